#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What run.py makes of answers, and of the page: a client that was skipped or failed is never a pass."""
import pathlib
import tempfile
import unittest

import cases
import run


def said(ok, detail="x"):
    return {"ok": ok, "detail": detail}


class Judge(unittest.TestCase):
    def mark(self, theirs, ours, case="put_get"):
        return run.judge(case, theirs, ours)[0]

    def test_marks(self):
        self.assertEqual(self.mark(said(True), said(True)), "pass")
        self.assertEqual(self.mark(said(True), said(True, "y")), "FAIL")
        self.assertEqual(self.mark(said(True), said(False)), "FAIL")
        self.assertEqual(self.mark(said(True), said(None)), "FAIL")
        self.assertEqual(self.mark(said(True), None), "FAIL")
        self.assertEqual(self.mark(None, said(True)), "FAIL")
        self.assertEqual(self.mark(said(None), said(True)), "FAIL")
        self.assertEqual(self.mark(said(None), said(None)), "none")
        self.assertEqual(self.mark(said(False), said(False)), "as etcd")
        self.assertEqual(self.mark(said(False), said(False, "y")), "FAIL")

    def test_queue_cases(self):
        self.assertEqual(self.mark(None, said(True), "queue_deliver"), "pass")
        self.assertEqual(self.mark(None, said(False), "queue_deliver"), "FAIL")
        self.assertEqual(self.mark(None, None, "queue_deliver"), "FAIL")


class Calls(unittest.TestCase):
    METRICS = """grpc_server_started_total{grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 4
grpc_server_msg_sent_total{grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 3
grpc_server_started_total{grpc_method="MemberPromote",grpc_service="etcdserverpb.Cluster",grpc_type="unary"} 1
grpc_server_msg_sent_total{grpc_method="MemberPromote",grpc_service="etcdserverpb.Cluster",grpc_type="unary"} 0
grpc_server_started_total{grpc_method="Watch",grpc_service="etcdserverpb.Watch",grpc_type="bidi_stream"} 0
grpc_server_started_total{grpc_method="Prove",grpc_service="ringpost.v1.Peer",grpc_type="unary"} 9
"""

    def test_counted(self):
        self.assertEqual(run.counted(self.METRICS), {"KV Range": "pass", "Cluster MemberPromote": "refused"})

    def test_marks(self):
        all_of_them = {call: "pass" for call in run.CALLS}
        self.assertEqual(set(run.judge_calls("etcdctl", {}).values()), {"FAIL", "none"})
        got = run.judge_calls("etcdctl", {c: "pass" for c in run.CALLS if cases.library_has("etcdctl", c)})
        self.assertEqual(set(got.values()), {"pass", "none"})
        self.assertEqual(got["Maintenance Hash"], "none")
        self.assertEqual(got["Election Leader"], "none")
        # A call that the library is said to lack, and that was made.
        self.assertEqual(run.judge_calls("etcdctl", all_of_them)["Maintenance Hash"], "FAIL")
        for client, names in cases.LIBRARY_HAS_NOT.items():
            self.assertIn(client, run.CLIENTS)
            for name in names:
                self.assertTrue(any(name in (c, c.split()[0]) for c in run.CALLS), name)


class Page(unittest.TestCase):
    def test_round(self):
        marks = {name: ("pass", "") for name in cases.NAMES}
        marks["stm"] = ("none", "it has none")
        by_call = {call: "pass" for call in run.CALLS}
        columns = {"etcdctl": ("1", marks, by_call),
                   "rust": ("not run", {cases.NAMES[0]: ("not run", "there is no cargo")}, {})}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.md"
            run.write_page(path, f"before\n{run.BEGIN}\n{run.END}\nbetween\n{run.CALLS_BEGIN}\n{run.CALLS_END}\nafter\n",
                           columns)
            text = path.read_text()
            got = run.read_page(text)
            run.write_page(path, text, got)
            self.assertEqual(path.read_text(), text)
        self.assertEqual(got["etcdctl"], columns["etcdctl"])
        self.assertEqual(run.compare_page("etcdctl", marks, by_call, got), [])
        self.assertEqual(len(run.compare_page("etcdctl", marks, {**by_call, "KV Range": "refused"}, got)), 1)
        self.assertEqual({m for m, _ in got["rust"][1].values()}, {"not run"})
        self.assertEqual(set(got["rust"][2].values()), {"not run"})
        self.assertEqual(len(run.compare_page("rust", marks, by_call, got)), len(cases.NAMES) + len(run.CALLS))
        self.assertTrue(run.compare_page("node", marks, by_call, got))
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))


if __name__ == "__main__":
    unittest.main()
