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


class Page(unittest.TestCase):
    def test_round(self):
        marks = {name: ("pass", "") for name in cases.NAMES}
        marks["stm"] = ("none", "it has none")
        columns = {"etcdctl": ("1", marks), "rust": ("not run", {cases.NAMES[0]: ("not run", "there is no cargo")})}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.md"
            run.write_page(path, f"before\n{run.BEGIN}\n{run.END}\nafter\n", columns)
            text = path.read_text()
            got = run.read_page(text)
            run.write_page(path, text, got)
            self.assertEqual(path.read_text(), text)
        self.assertEqual(got["etcdctl"], columns["etcdctl"])
        self.assertEqual(run.compare_page("etcdctl", marks, got), [])
        self.assertEqual({m for m, _ in got["rust"][1].values()}, {"not run"})
        self.assertEqual(len(run.compare_page("rust", marks, got)), len(cases.NAMES))
        self.assertTrue(run.compare_page("node", marks, got))
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))


if __name__ == "__main__":
    unittest.main()
