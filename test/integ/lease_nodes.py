#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Leases and auth between two real nodes: lease_nodes.py BINARIES"""
import signal
import sys
import time
import uuid

from cluster import Cluster, need, wait_until


def grant(node, ttl, *user):
    return node.etcdctl(*user, "lease", "grant", str(ttl)).stdout.split()[1]


def value(node, key):
    return node.etcdctl("get", "--print-value-only", key).stdout.strip()


def ends_everywhere(a, b):
    print("a lease that ends at its owner takes its keys along at both nodes")
    lease = grant(a, 2)
    wait_until("B knows the lease", 5, lambda: lease in b.etcdctl("lease", "list").stdout)
    a.etcdctl("put", "end/a", "1", f"--lease={lease}")
    b.etcdctl("put", "end/b", "2", f"--lease={lease}")
    wait_until("both have both", 5, lambda: value(a, "end/b") == "2" and value(b, "end/a") == "1")
    text = b.etcdctl("lease", "timetolive", lease, "--keys").stdout
    assert "attached keys([end/a end/b])" in text, text
    for n in (a, b):
        wait_until("the keys are gone", 10, lambda: not value(n, "end/a") and not value(n, "end/b"))
    assert "already expired" in b.etcdctl("lease", "timetolive", lease).stdout


def kept_elsewhere(a, b):
    print("a client that has gone to B keeps its lease there, and A counts it")
    lease = grant(a, 60)
    wait_until("B knows the lease", 5, lambda: lease in b.etcdctl("lease", "list").stdout)
    time.sleep(2)
    left = [int(n.etcdctl("lease", "timetolive", lease).stdout.split("remaining(")[1].split("s")[0]) for n in (b, a)]
    assert 30 < left[1] <= left[0] <= 58, left
    assert "keepalived with TTL(60)" in b.etcdctl("lease", "keep-alive", "--once", lease).stdout
    left = int(a.etcdctl("lease", "timetolive", lease).stdout.split("remaining(")[1].split("s")[0])
    assert left >= 58, left
    assert b.etcdctl("lease", "revoke", lease).returncode == 0
    wait_until("A has it no more", 5, lambda: lease not in a.etcdctl("lease", "list").stdout)
    lease = grant(a, 3)
    a.etcdctl("put", "kept", "1", f"--lease={lease}")
    wait_until("B has the key", 5, lambda: value(b, "kept") == "1")
    for _ in range(6):
        assert "keepalived with TTL(3)" in b.etcdctl("lease", "keep-alive", "--once", lease).stdout
        time.sleep(1)
    assert value(a, "kept") == "1" and value(b, "kept") == "1"
    assert a.etcdctl("lease", "revoke", lease).returncode == 0
    wait_until("B deletes the key", 5, lambda: not value(b, "kept"))


def consumer_record(a, b):
    print("a consumer's record goes with its lease")
    key = f"/q/jobs/consumer/{uuid.uuid4()}"
    lease = grant(a, 60)
    a.etcdctl("put", key, ";prefetch=3", f"--lease={lease}")
    w = a.watch(key)
    wait_until("B sees the record with its node", 10, lambda: value(b, key)[:1].isdigit())
    a.etcdctl("lease", "revoke", lease)
    wait_until("the record is gone", 10, lambda: not value(a, key) and not value(b, key))
    r = a.etcdctl("put", "/q/jobs", ";pinned", f"--lease={grant(a, 60)}", check=False)
    assert "a lease is for consumer records only" in r.stderr, r.stderr
    w.stop()


def adopted(a, b):
    print("the leases of a node that is dead are taken over, with their full TTL")
    lease = grant(a, 8)
    a.etcdctl("put", "orphan", "1", f"--lease={lease}")
    wait_until("B has the key", 5, lambda: value(b, "orphan") == "1")
    a.stop(signal.SIGKILL)
    before = b.stats().get("leases_adopted", 0)
    wait_until("B takes it over", 20, lambda: b.etcdctl("lease", "timetolive", lease).stdout
               .find("remaining(7s)") > 0 or b.stats().get("leases_adopted", 0) > before)
    assert value(b, "orphan") == "1"
    wait_until("and lets it end", 20, lambda: not value(b, "orphan"))


def auth(cluster, a, b):
    print("auth holds on both nodes, and on one that comes back")
    root = ("--user", "root:pw")
    for args in (["user", "add", "root:pw"], ["user", "grant-role", "root", "root"], ["auth", "enable"]):
        b.etcdctl(*args)
    r = b.etcdctl("put", "k", "1", check=False)
    assert "user name is empty" in r.stderr, r.stderr
    a.start()
    wait_until("A is back and refuses", 30, lambda: "user name is empty" in a.etcdctl(
        "put", "k", "1", check=False).stderr)
    assert a.etcdctl(*root, "put", "k", "2").returncode == 0
    wait_until("B has it", 10, lambda: b.etcdctl(*root, "get", "--print-value-only", "k").stdout == "2\n")
    b.etcdctl(*root, "user", "delete", "root", check=False)
    a.etcdctl(*root, "user", "add", "alice:pw")
    wait_until("B knows alice", 10, lambda: "alice" in b.etcdctl(*root, "user", "list").stdout)
    b.etcdctl(*root, "auth", "disable")
    wait_until("A takes writes of anybody", 10, lambda: a.etcdctl("put", "k", "3", check=False).returncode == 0)


def main():
    need("etcdctl")
    with Cluster(sys.argv[1], nodes=2) as c:
        c.join()
        a, b = c.nodes
        ends_everywhere(a, b)
        kept_elsewhere(a, b)
        consumer_record(a, b)
        adopted(a, b)
        auth(c, a, b)
    print("leases and auth between nodes: as they should")


if __name__ == "__main__":
    main()
