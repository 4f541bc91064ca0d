#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Lease, Lock, Election and Auth with etcdctl and python3-etcd3: lease_auth.py BINARIES

Every command is given to ringpostd, and to a real etcd where it is installed: the words must be the
same, but for ids and seconds. Status 77 when a client is missing.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import etcd_basic as basic
from etcd_basic import check, equal, wait_for
import differential
import etcd3

KILL_S = 15


def ctl(server, *args, user=None, stdin=None):
    """Status, words and errors, without what differs from run to run."""
    argv = ["etcdctl", "--endpoints", server.address, "--command-timeout", "10s"]
    if user:
        argv += ["--user", user]
    p = subprocess.run(argv + list(args), env=dict(os.environ, ETCDCTL_API="3"), text=True,
                       input=stdin, capture_output=True, timeout=KILL_S)
    errors = "\n".join(l for l in p.stderr.splitlines() if l.startswith("Error:"))
    words = re.sub(r"\b[0-9a-f]{14,16}\b", "ID", p.stdout + errors)
    words = re.sub(r"remaining\(\d+s\)", "remaining(Ns)", words)
    # etcd holds a lease's keys in a map: their order differs from question to question.
    words = re.sub(r"keys\(\[(.*?)\]\)", lambda m: f"keys({sorted(m[1].split())})", words)
    return p.returncode, words


def script(what, servers, lines):
    for user, args in lines:
        answers = [ctl(s, *args, user=user) for s in servers]
        for s, a in zip(servers[1:], answers[1:]):
            equal(f"{what} {user or ''} {' '.join(args)}: {s.name}", a, answers[0])


# ---- leases ----


def leases(servers):
    ids = {}
    for s in servers:
        out = subprocess.run(["etcdctl", "--endpoints", s.address, "lease", "grant", "600"], text=True,
                             capture_output=True, env=dict(os.environ, ETCDCTL_API="3"),
                             timeout=KILL_S).stdout
        m = re.fullmatch(r"lease ([0-9a-f]+) granted with TTL\(600s\)\n", out)
        check(f"{s.name}: lease grant", m, out)
        ids[s.name] = m.group(1)
    steps = [
        lambda i: ["put", "leased/a", "1", f"--lease={i}"],
        lambda i: ["put", "leased/b", "2", f"--lease={i}"],
        lambda i: ["put", "leased/b", "3", "--ignore-lease"],
        lambda i: ["put", "leased/c", "4", "--ignore-lease"],
        lambda i: ["put", "leased/c", "4", "--lease=1234"],
        lambda i: ["lease", "timetolive", i],
        lambda i: ["lease", "timetolive", i, "--keys"],
        lambda i: ["lease", "keep-alive", "--once", i],
        lambda i: ["lease", "keep-alive", "--once", "1234"],
        lambda i: ["lease", "list"],
        lambda i: ["lease", "revoke", i],
        lambda i: ["lease", "revoke", i],
        lambda i: ["lease", "timetolive", i],
        lambda i: ["get", "--prefix", "leased/"],
        lambda i: ["lease", "grant", "9000000001"],
    ]
    for n, step in enumerate(steps):
        answers = [ctl(s, *step(ids[s.name])) for s in servers]
        for s, a in zip(servers[1:], answers[1:]):
            equal(f"lease step {n}: {s.name}", a, answers[0])


def lease_ends(server):
    """A lease that nobody keeps takes its keys along; one that is kept does not."""
    c = etcd3.client(host="127.0.0.1", port=server.port, timeout=basic.WAIT_S)
    short, kept = c.lease(2), c.lease(2)
    c.put("ends/a", "1", lease=short)
    c.put("ends/b", "2", lease=kept)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        list(kept.refresh())
        time.sleep(0.4)
    equal(f"{server.name}: ended", c.get("ends/a")[0], None)
    equal(f"{server.name}: kept", c.get("ends/b")[0], b"2")
    check(f"{server.name}: remaining", 0 <= kept.remaining_ttl <= 2, kept.remaining_ttl)
    equal(f"{server.name}: keys", kept.keys, [b"ends/b"])
    kept.revoke()
    equal(f"{server.name}: revoked", c.get("ends/b")[0], None)
    # python3-etcd3's own lock is a txn and a lease; it does not wait with Debian's tenacity.
    for _ in range(2):
        with c.lock("pylock", ttl=10) as lock:
            check(f"{server.name}: python lock", lock.is_acquired())
    c.close()


# ---- lock and election ----


class Background:
    """An etcdctl that holds something until it is killed."""

    def __init__(self, server, *args):
        self.process = subprocess.Popen(
            ["etcdctl", "--endpoints", server.address, *args], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=dict(os.environ, ETCDCTL_API="3"))
        self.lines = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def stop(self, signal="interrupt"):
        """With SIGINT etcdctl lets go; killed it leaves all to the lease."""
        if signal == "interrupt":
            self.process.send_signal(2)
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                pass
        self.process.kill()
        self.process.wait(timeout=KILL_S)


def locks(server):
    first = Background(server, "lock", "mutex")
    check(f"{server.name}: lock", wait_for(lambda: len(first.lines) > 0))
    check(f"{server.name}: its key", first.lines and first.lines[0].startswith("mutex/"), first.lines)
    second = Background(server, "lock", "mutex")
    time.sleep(0.5)
    equal(f"{server.name}: the second waits", second.lines, [])
    first.stop()
    check(f"{server.name}: and gets it", wait_for(lambda: len(second.lines) > 0))
    second.stop()
    check(f"{server.name}: nothing is left",
          wait_for(lambda: ctl(server, "get", "--prefix", "mutex/")[1] == ""))
    equal(f"{server.name}: lock with a command", ctl(server, "lock", "mutex", "echo", "held")[0], 0)


def elections(server):
    seen = Background(server, "elect", "--listen", "vote")
    first = Background(server, "elect", "vote", "one")
    check(f"{server.name}: elected", wait_for(lambda: len(first.lines) >= 2))
    equal(f"{server.name}: value", first.lines[1:], ["one"])
    second = Background(server, "elect", "vote", "two")
    time.sleep(0.5)
    equal(f"{server.name}: the second waits", second.lines, [])
    first.stop()
    check(f"{server.name}: the second is elected", wait_for(lambda: len(second.lines) >= 2))
    check(f"{server.name}: observed", wait_for(lambda: seen.lines[1::2] == ["one", "two"]), seen.lines)
    second.stop()
    seen.stop("kill")


def services(server):
    """The Lock and Election services themselves: etcdctl makes its own of txns."""
    def lock(name, lease):
        return bytes([0x0a, len(name)]) + name + (bytes([0x10, lease]) if lease else b"")

    call = server.channel.unary_unary("/v3lockpb.Lock/Lock")
    lease = differential.rpc_pb2_grpc.LeaseStub(server.channel)
    for id_ in (5, 6):
        lease.LeaseGrant(basic.rpc_pb2.LeaseGrantRequest(ID=id_, TTL=60))
    answer = call(lock(b"svc", 5), timeout=basic.WAIT_S)
    check(f"{server.name}: Lock", answer.endswith(b"svc/5"), answer)
    answers = []
    waiting = call.future(lock(b"svc", 6), timeout=basic.WAIT_S)
    waiting.add_done_callback(answers.append)
    time.sleep(0.3)
    equal(f"{server.name}: Lock waits", answers, [])
    short = call.future(lock(b"svc", 0), timeout=0.5)
    check(f"{server.name}: Lock with a deadline",
          isinstance(short.exception(), basic.grpc.RpcError)
          and short.code() == basic.grpc.StatusCode.DEADLINE_EXCEEDED)
    check(f"{server.name}: its key goes", wait_for(
        lambda: server.kv.Range(basic.rpc_pb2.RangeRequest(
            key=b"svc/", range_end=b"svc0", count_only=True)).count == 2))
    server.kv.DeleteRange(basic.rpc_pb2.DeleteRangeRequest(key=b"svc/5"))
    check(f"{server.name}: Lock is handed on", waiting.result(timeout=5).endswith(b"svc/6"))
    kind, value = basic.ask(call, lock(b"svc", 99))
    equal(f"{server.name}: Lock without a lease", value,
          ("UNKNOWN", "etcdserver: requested lease not found"))
    leader = server.channel.unary_unary("/v3electionpb.Election/Leader")
    kind, value = basic.ask(leader, lock(b"nobody", 0))
    equal(f"{server.name}: Leader of nothing", value, ("UNKNOWN", "election: no leader"))
    resign = server.channel.unary_unary("/v3electionpb.Election/Resign")
    kind, value = basic.ask(resign, b"")
    equal(f"{server.name}: Resign of nobody", value, ("UNKNOWN", '"leader" field must be provided'))


# ---- auth ----

ROOT, ALICE, BOB = "root:rootpw", "alice:alicepw", "bob:bobpw"

AUTH = [
    (None, ["auth", "enable"]),
    (None, ["user", "add", "root:rootpw"]),
    (None, ["auth", "enable"]),
    (None, ["role", "add", "root"]),
    (None, ["role", "add", "root"]),
    (None, ["user", "grant-role", "root", "root"]),
    (None, ["user", "add", "alice:alicepw"]),
    (None, ["user", "add", "alice:alicepw"]),
    (None, ["user", "add", "bob:bobpw"]),
    (None, ["user", "add", ":x"]),
    (None, ["role", "add", "rw"]),
    (None, ["role", "add", "ro"]),
    (None, ["role", "grant-permission", "rw", "readwrite", "a", "c"]),
    (None, ["role", "grant-permission", "ro", "read", "--prefix", "pre/"]),
    (None, ["role", "grant-permission", "ro", "read", "one"]),
    (None, ["role", "grant-permission", "none", "read", "one"]),
    (None, ["role", "get", "rw"]),
    (None, ["role", "get", "ro"]),
    (None, ["role", "get", "none"]),
    (None, ["user", "grant-role", "alice", "rw"]),
    (None, ["user", "grant-role", "alice", "ro"]),
    (None, ["user", "grant-role", "alice", "ro"]),
    (None, ["user", "grant-role", "alice", "none"]),
    (None, ["user", "grant-role", "none", "ro"]),
    (None, ["user", "grant-role", "bob", "ro"]),
    (None, ["user", "get", "alice"]),
    (None, ["user", "get", "alice", "--detail"]),
    (None, ["user", "get", "none"]),
    (None, ["user", "list"]),
    (None, ["role", "list"]),
    (None, ["put", "pre/x", "seen"]),
    (None, ["put", "zz", "hidden"]),
    (ROOT, ["get", "pre/x"]),
    (None, ["auth", "enable"]),
    (None, ["put", "a", "1"]),
    (None, ["get", "a"]),
    ("alice:wrong", ["get", "a"]),
    ("nobody:x", ["get", "a"]),
    (ALICE, ["put", "a", "1"]),
    (ALICE, ["put", "a", "2", "--prev-kv"]),
    (ALICE, ["put", "c", "1"]),
    (ALICE, ["get", "a", "c"]),
    (ALICE, ["get", "a", "d"]),
    (ALICE, ["get", "--prefix", "pre/"]),
    (ALICE, ["get", "--prefix", "pre/x"]),
    (ALICE, ["get", "--prefix", "pr"]),
    (ALICE, ["put", "pre/x", "no"]),
    (ALICE, ["del", "a", "c"]),
    (ALICE, ["del", "zz"]),
    (ALICE, ["del", "--prefix", ""]),
    (BOB, ["get", "one"]),
    (BOB, ["put", "one", "no"]),
    (ROOT, ["get", "zz"]),
    (ROOT, ["put", "zz", "by root"]),
    (ROOT, ["user", "list"]),
    (ALICE, ["user", "list"]),
    (ALICE, ["user", "add", "eve:x"]),
    (ALICE, ["user", "get", "alice"]),
    (ALICE, ["user", "get", "root"]),
    (ALICE, ["role", "get", "rw"]),
    (ALICE, ["role", "get", "root"]),
    (ALICE, ["auth", "disable"]),
    (ROOT, ["role", "revoke-permission", "ro", "one"]),
    (ROOT, ["role", "revoke-permission", "ro", "one"]),
    (BOB, ["get", "one"]),
    (ROOT, ["user", "revoke-role", "bob", "ro"]),
    (ROOT, ["user", "revoke-role", "bob", "ro"]),
    (ROOT, ["user", "revoke-role", "root", "root"]),
    (ROOT, ["user", "delete", "root"]),
    (ROOT, ["role", "delete", "root"]),
    (ROOT, ["role", "delete", "ro"]),
    (ROOT, ["user", "get", "alice"]),
    (ALICE, ["get", "pre/x"]),
    (ROOT, ["user", "delete", "bob"]),
    (BOB, ["get", "one"]),
    (ROOT, ["user", "delete", "bob"]),
    (ROOT, ["auth", "disable"]),
    (None, ["get", "zz"]),
    (ROOT, ["get", "zz"]),
]

# Where 3.4 says something else than 3.6 and we do.
DIFFER_34 = [
    ["role", "get", "root"],  # 3.6 shows what root may do
]


def auth(servers):
    script("auth", servers, [(u, a) for u, a in AUTH if a not in DIFFER_34])


def with_token(server, key, header, token):
    return basic.ask(lambda request, timeout: server.kv.Put(
        request, timeout=timeout, metadata=[(header, token)]), basic.rpc_pb2.PutRequest(key=key))


def auth_txn_and_watch(servers):
    """A txn is refused as a whole; a watch by its cancel_reason."""
    for s in servers:
        for args in (["user", "add", "root:rootpw"], ["user", "grant-role", "root", "root"],
                     ["user", "add", "alice:alicepw"], ["role", "add", "rw"],
                     ["role", "grant-permission", "rw", "readwrite", "a", "c"],
                     ["user", "grant-role", "alice", "rw"], ["auth", "enable"]):
            ctl(s, *args)
    for text in ('value("a") = "1"\n\nput b x\n\nget a\n\n', 'value("z") = "1"\n\nput b x\n\n\n',
                 'value("a") = "1"\n\nput b x\n\nput z x\n\n'):
        answers = [ctl(s, "txn", user=ALICE, stdin=text) for s in servers]
        for s, a in zip(servers[1:], answers[1:]):
            equal(f"txn {text!r}: {s.name}", a, answers[0])
    for s in servers:
        w = Background(s, "--user", ALICE, "watch", "a")
        # When the watch is there nobody says: the put is made until it shows.
        check(f"{s.name}: watch of a user", wait_for(
            lambda: ctl(s, "put", "a", "watched", user=ALICE)[0] == 0
            and w.lines[:3] == ["PUT", "a", "watched"]), w.lines)
        w.stop("kill")
        w = Background(s, "--user", ALICE, "watch", "z")
        check(f"{s.name}: watch that is refused", wait_for(lambda: w.process.poll() is not None))
        w.stop("kill")
        # python3-etcd3 shows its token over TLS only; its stubs take it as metadata.
        stub = differential.rpc_pb2_grpc.AuthStub(s.channel)
        token = stub.Authenticate(basic.rpc_pb2.AuthenticateRequest(
            name="alice", password="alicepw")).token
        for key in ("token", "authorization"):
            kind, value = with_token(s, b"b", key, token)
            equal(f"{s.name}: {key}", kind, "ok")
            kind, value = with_token(s, b"z", key, token)
            equal(f"{s.name}: {key} denied", value,
                  ("PERMISSION_DENIED", "etcdserver: permission denied"))
        kind, value = with_token(s, b"b", "token", "rubbish.1")
        equal(f"{s.name}: bad token", value, ("UNAUTHENTICATED", "etcdserver: invalid auth token"))
        equal(f"{s.name}: auth off", ctl(s, "auth", "disable", user=ROOT)[0], 0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries")
    args = p.parse_args()
    if not shutil.which("etcdctl"):
        print("skipped: etcdctl is not installed")
        return 77
    threading.excepthook = lambda _: None
    ours = differential.start_ours(args.binaries)
    real = basic.start_etcd()
    if not real:
        print("etcd is not installed (package etcd-server): nothing to compare with")
    servers = [s for s in (real, ours) if s]
    try:
        leases(servers)
        for s in servers:
            lease_ends(s)
            locks(s)
            elections(s)
            services(s)
        auth(servers)
        auth_txn_and_watch(servers)
    finally:
        if real:
            real.stop()
        status = ours.stop()
    equal("status of ringpostd after SIGTERM", status, 0)
    print("failures:", basic.failures)
    return 1 if basic.failures else 0


if __name__ == "__main__":
    sys.exit(main())
