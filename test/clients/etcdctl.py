#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cases with etcdctl: etcdctl.py HOST:PORT CLIENT CASE... (see cases.py)"""
import base64
import json
import os
import re
import subprocess
import tempfile
import threading
import time
import uuid

import cases
from cases import NotInLibrary, need, wait_for

ENV = dict(os.environ, ETCDCTL_API="3")


def argv(address, user=None):
    return ["etcdctl", "--endpoints", address, "--command-timeout", "10s"] + (["--user", user] if user else [])


def run(address, *args, user=None, stdin=None):
    """Status, what it printed, what it said went wrong."""
    p = subprocess.run(argv(address, user) + list(args), env=ENV, input=stdin, text=True,
                       capture_output=True, timeout=cases.WAIT_S)
    errors = " ".join(l for l in p.stderr.splitlines() if l.startswith("Error:"))
    return p.returncode, p.stdout, errors


def ctl(address, *args, **more):
    status, out, errors = run(address, *args, **more)
    need(status == 0, f"{' '.join(args)}: {errors}")
    return out


def fails(address, *args, **more):
    status, _, errors = run(address, *args, **more)
    need(status != 0, f"{' '.join(args)} did not fail")
    return re.sub(r"\(\d+ vs \d+\)", "", errors)


def as_json(address, *args, **more):
    return json.loads(ctl(address, *args, "-w", "json", **more))


def revision(address):
    return as_json(address, "get", "none")["header"]["revision"]


class Background:
    """An etcdctl that goes on: watch, lock, elect."""

    def __init__(self, address, *args, user=None, stdin=False):
        self.lines, self.errors = [], []
        self.process = subprocess.Popen(
            argv(address, user) + list(args), env=ENV, text=True,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            threading.Thread(target=self.read, args=(stream, lines), daemon=True).start()

    @staticmethod
    def read(stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def interrupt(self):
        """It lets go of what it holds, and ends."""
        self.process.send_signal(2)
        self.process.wait(timeout=cases.WAIT_S)


def put_get(a):
    ctl(a, "put", "put_get", "one")
    prev = ctl(a, "put", "put_get", "two", "--prev-kv").split()
    kv = as_json(a, "get", "put_get")["kvs"][0]
    value = base64.b64decode(kv["value"]).decode()
    return f"{prev} {value} version {kv['version']} mod +{kv['mod_revision'] - kv['create_revision']}"


def range_(a):
    for i in range(5):
        ctl(a, "put", f"range/{i}", str(i))
    before = revision(a)
    ctl(a, "put", "range/2", "new")
    got = as_json(a, "get", "--prefix", "range/", "--limit", "2")
    return [len(got["kvs"]), got["count"], got["more"],
            ctl(a, "get", "--prefix", "range/", "--order=DESCEND", "--keys-only").split(),
            ctl(a, "get", "--prefix", "range/", "--sort-by=MODIFY", "--print-value-only").split(),
            ctl(a, "get", "range/1", "range/3", "--print-value-only").split(),
            ctl(a, "get", "range/2", f"--rev={before}", "--print-value-only").split(),
            ctl(a, "get", "--from-key", "range/4", "--limit", "1", "--keys-only").split(),
            fails(a, "get", "range/2", "--rev=9007199254740000")]


def delete(a):
    for i in range(4):
        ctl(a, "put", f"delete/{i}", str(i))
    return [ctl(a, "del", "delete/0", "--prev-kv").split(), ctl(a, "del", "delete/0"),
            ctl(a, "del", "--prefix", "delete/"), ctl(a, "get", "--prefix", "delete/")]


def txn(a):
    ctl(a, "put", "txn/k", "v")
    text = ('value("txn/k") = "v"\nversion("txn/k") = "1"\ncreate("txn/none") = "0"\nmod("txn/k") > "0"\n\n'
            'put txn/k2 x\nget txn/k\n\nget txn/none\n\n')
    good = ctl(a, "txn", stdin=text)
    bad = ctl(a, "txn", stdin='value("txn/k") = "other"\n\nput txn/k2 y\n\nget txn/k2\ndel txn/k2\n\n')
    twice = fails(a, "txn", stdin='value("txn/k") = "v"\n\nput txn/k x\nput txn/k y\n\n\n')
    return [good.split(), bad.split(), twice]


def compact(a):
    ctl(a, "put", "compact", "1")
    ctl(a, "put", "compact", "2")
    at = revision(a)
    said = ctl(a, "compact", str(at)).replace(str(at), "N")
    return [said, fails(a, "get", "compact", f"--rev={at - 1}"), fails(a, "compact", str(at)),
            ctl(a, "get", "compact", f"--rev={at}", "--print-value-only")]


def watch_start(a):
    ctl(a, "put", "watch_start/a", "0")
    start = revision(a)
    ctl(a, "put", "watch_start/a", "1")
    ctl(a, "del", "watch_start/a")
    with Background(a, "watch", "--prefix", "watch_start/", f"--rev={start}", "--prev-kv") as w:
        wait_for("the past", lambda: "DELETE" in w.lines)
        ctl(a, "put", "watch_start/b", "live")
        wait_for("what is live", lambda: "live" in w.lines)
        return w.lines


def watch_progress(a):
    ctl(a, "put", "watch_progress", "1")
    now = revision(a)
    with Background(a, "watch", "-i", stdin=True) as w:
        w.say("watch watch_progress")

        def told():
            w.say("progress")
            time.sleep(0.3)
            return [l for l in w.lines if l.startswith("progress notify:")]
        lines = wait_for("a progress", told)
    need(int(lines[0].split(":")[1]) >= now, f"{lines[0]}, and the revision was {now}")
    return "told on demand"


def watch_cancel(_):
    raise NotInLibrary("etcdctl ends a watch by its own end")


def watch_compacted(a):
    ctl(a, "put", "watch_compacted", "1")
    start = revision(a)
    ctl(a, "put", "watch_compacted", "2")
    ctl(a, "compact", str(revision(a)))
    with Background(a, "watch", "watch_compacted", f"--rev={start}") as w:
        wait_for("its end", lambda: w.process.poll() is not None)
        wait_for("its words", lambda: w.errors)
        return [w.process.returncode, w.errors[0]]


def grant(a, ttl):
    return re.match(r"lease ([0-9a-f]+) granted", ctl(a, "lease", "grant", str(ttl))).group(1)


def lease(a):
    id_ = grant(a, 60)
    ctl(a, "put", "lease/k", "v", f"--lease={id_}")
    left = ctl(a, "lease", "timetolive", id_, "--keys")
    need(id_ in ctl(a, "lease", "list").split(), "the list has it not")
    words = [re.sub(r"remaining\(\d+s\)", "remaining(Ns)", left),
             ctl(a, "lease", "keep-alive", "--once", id_), ctl(a, "lease", "revoke", id_)]
    return [w.replace(id_, "ID") for w in words] + [ctl(a, "get", "lease/k"), fails(a, "lease", "revoke", id_)]


def lease_expiry(a):
    with Background(a, "watch", "lease_expiry") as w:
        wait_for("the watch", lambda: ctl(a, "put", "lease_expiry", "0") and w.lines)
        id_ = grant(a, 2)
        ctl(a, "put", "lease_expiry", "1", f"--lease={id_}")
        wait_for("the delete", lambda: "DELETE" in w.lines)
        return [w.lines[-2:], ctl(a, "get", "lease_expiry"), ctl(a, "lease", "timetolive", id_).replace(id_, "ID")]


def lock(a):
    with Background(a, "lock", "mutex") as first:
        wait_for("the lock", lambda: first.lines)
        with Background(a, "lock", "mutex") as second:
            time.sleep(0.5)
            need(not second.lines, "two hold it")
            first.interrupt()
            wait_for("the lock to be handed on", lambda: second.lines)
            second.interrupt()
    return [ctl(a, "get", "--prefix", "mutex/"), ctl(a, "lock", "mutex", "echo", "held")]


def election(a):
    with Background(a, "elect", "vote", "one") as first:
        wait_for("the leader", lambda: len(first.lines) >= 2)
        with Background(a, "elect", "vote", "two") as second, Background(a, "elect", "--listen", "vote") as seen:
            wait_for("what is observed", lambda: len(seen.lines) >= 2)
            need(not second.lines, "two lead")
            first.interrupt()
            wait_for("the next leader", lambda: len(second.lines) >= 2 and len(seen.lines) >= 4)
            second.interrupt()
            return [first.lines[1], second.lines[1], seen.lines[1::2]]


def stm(_):
    raise NotInLibrary("etcdctl has none; see `make-mirror` and `lock`")


def cluster(a):
    status = as_json(a, "endpoint", "status")[0]["Status"]
    members = as_json(a, "member", "list")["members"]
    need(status["header"]["member_id"] == members[0]["ID"] == status["leader"], f"{status} {members}")
    return [len(members), sorted(status), run(a, "endpoint", "health")[0]]


# Of a learner, so that an etcd of one node keeps its majority.
PEER, PEER_MOVED = "http://127.0.0.1:7", "http://127.0.0.1:9"


def members(a):
    own = as_json(a, "member", "list")["members"][0]
    said = [ctl(a, "member", "add", "other", "--learner", f"--peer-urls={PEER}").split(" to cluster")[0]]
    other = next(m for m in as_json(a, "member", "list")["members"] if m["ID"] != own["ID"])
    id_ = f"{other['ID']:x}"
    said += [len(as_json(a, "member", "list")["members"]),
             fails(a, "member", "add", "again", "--learner", f"--peer-urls={own['peerURLs'][0]}"),
             fails(a, "member", "add", "bad", "--learner", "--peer-urls=127.0.0.1:7"),
             ctl(a, "member", "update", id_, f"--peer-urls={PEER_MOVED}").split(" in cluster")[0],
             fails(a, "member", "update", "1", f"--peer-urls={PEER}"),
             fails(a, "member", "promote", "1"),
             ctl(a, "member", "remove", id_).split(" from cluster")[0], len(as_json(a, "member", "list")["members"])]
    return [re.sub(rf" +{id_}", " ID", s) if isinstance(s, str) else s for s in said]


def maintenance(a):
    own = as_json(a, "member", "list")["members"][0]["ID"]
    ctl(a, "put", "maintenance", "1")
    ctl(a, "compact", str(revision(a)))
    said = [ctl(a, "alarm", "list"), ctl(a, "alarm", "disarm"), re.sub(r"\[.*\]", "[X]", ctl(a, "defrag")),
            ctl(a, "move-leader", f"{own:x}").replace(f"{own:x}", "ID"), fails(a, "move-leader", "1"),
            [sorted(h["HashKV"]) for h in as_json(a, "endpoint", "hashkv")]]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "snapshot.db")
        said += [ctl(a, "snapshot", "save", file).replace(file, "FILE"), os.path.getsize(file) % 512,
                 sorted(as_json(a, "snapshot", "status", file))]
    return said


def newer(_):
    raise NotInLibrary("etcdctl 3.4 is older than these calls")


def auth_admin(a):
    steps = [(["user", "add", "u1:pw"], None), (["user", "add", "u2:pw"], None), (["role", "add", "r1"], None),
             (["role", "add", "r2"], None), (["role", "grant-permission", "r1", "read", "--prefix", "x/"], None),
             (["role", "grant-permission", "r1", "readwrite", "y", "z"], None), (["user", "grant-role", "u1", "r1"], None),
             (["user", "grant-role", "u1", "r2"], None), (["user", "list"], None), (["role", "list"], None),
             (["user", "get", "u1"], None), (["role", "get", "r1"], None),
             (["user", "passwd", "u1", "--interactive=false"], "new\n"), (["user", "revoke-role", "u1", "r2"], None),
             (["user", "revoke-role", "u1", "r2"], None), (["role", "revoke-permission", "r1", "y", "z"], None),
             (["role", "revoke-permission", "r1", "y", "z"], None), (["role", "get", "r1"], None),
             (["role", "delete", "r1"], None), (["role", "delete", "r2"], None), (["user", "get", "u1"], None),
             (["user", "delete", "u1"], None), (["user", "delete", "u2"], None), (["user", "delete", "u2"], None),
             (["user", "list"], None), (["role", "list"], None)]
    return [list(run(a, *args, stdin=stdin)) for args, stdin in steps]


def queue_keys(case):
    name = f"etcdctl-{case}"
    return f"/q/{name}/producer/", f"/q/{name}/consumer/{uuid.uuid4()}"


def deliveries(w):
    return [l for l in w.lines if l.startswith("/q/")]


def queue_deliver(a):
    producer, consumer = queue_keys("deliver")
    with Background(a, "watch", consumer) as w:
        for i in range(3):
            ctl(a, "put", f"{producer}job-{i}", f"payload {i}")
        keys = wait_for("three messages", lambda: len(w.lines) >= 9 and deliveries(w))
        values = w.lines[2::3]
    need(all(k.startswith(consumer + "/") for k in keys), keys)
    acks = [ctl(a, "del", k).strip() for k in keys + keys]
    need(values == ["payload 0", "payload 1", "payload 2"] and acks == ["1"] * 3 + ["0"] * 3, f"{values} {acks}")
    return f"{values} acknowledged {acks}"


def queue_resume(a):
    producer, consumer = queue_keys("resume")
    with Background(a, "watch", consumer, "-w", "json") as w:
        ctl(a, "put", f"{producer}job", "kept")
        event = json.loads(wait_for("the message", lambda: w.lines)[0])["Events"][0]["kv"]
    with Background(a, "watch", consumer, f"--rev={event['mod_revision']}", "-w", "json") as w:
        again = json.loads(wait_for("the same message", lambda: w.lines)[0])["Events"][0]["kv"]
        need(again == event, f"{event} {again}")
        need(ctl(a, "del", base64.b64decode(event["key"]).decode()) == "1\n", "not acknowledged")
    return "the same message again, unchanged"


def queue_hand_on(a):
    producer, consumer = queue_keys("hand_on")
    with Background(a, "watch", consumer) as w:
        ctl(a, "put", f"{producer}job", "moves")
        first = wait_for("the message", lambda: len(w.lines) >= 3 and w.lines[1])
    other = queue_keys("hand_on")[1]
    with Background(a, "watch", other) as w:
        second = wait_for("it at another", lambda: len(w.lines) >= 3 and w.lines[1])
        need(second.startswith(other), second)
        need(ctl(a, "del", second) == "1\n", "not acknowledged")
    need(first.split("/")[-2:] == second.split("/")[-2:], f"{first} {second}")
    return "the same message under the other's key"


def auth(a):
    steps = [(None, ["user", "add", "root:rootpw"]), (None, ["user", "grant-role", "root", "root"]),
             (None, ["role", "add", "rw"]), (None, ["role", "grant-permission", "rw", "readwrite", "--prefix", "auth/"]),
             (None, ["user", "add", "alice:alicepw"]), (None, ["user", "grant-role", "alice", "rw"]),
             (None, ["auth", "enable"]), (None, ["put", "auth/k", "v"]), ("alice:wrong", ["put", "auth/k", "v"]),
             ("alice:alicepw", ["put", "auth/k", "v"]), ("alice:alicepw", ["get", "auth/k"]),
             ("alice:alicepw", ["put", "other", "v"]), ("alice:alicepw", ["user", "list"]),
             ("root:rootpw", ["user", "get", "alice", "--detail"]), ("root:rootpw", ["auth", "disable"]),
             (None, ["put", "other", "v"])]
    return [list(run(a, *args, user=user)) for user, args in steps]


def version():
    out = subprocess.run(["etcdctl", "version"], env=ENV, text=True, capture_output=True, timeout=cases.WAIT_S).stdout
    return out.split()[2]


if __name__ == "__main__":
    cases.main({name: globals()["range_" if name == "range" else name] for name in cases.NAMES}, version())
