#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node that the others have not in their files announces itself, and is taken in; one that was removed is not, until
it is added again: announce.py BINARIES"""
import json
import sys
import time
import uuid

from cluster import Cluster, need, wait_until


def states(node):
    return {n["name"]: n["state"] for n in json.loads(node.ctl("nodes", "-j"))["nodes"]}


def members(node):
    return len(node.etcdctl("member", "list").stdout.strip().splitlines())


def main():
    need("etcdctl")
    c = Cluster(sys.argv[1], nodes=3)
    a, b, d = c.nodes
    two = ",".join(f"http://{n.client}" for n in (a, b))
    a.extra = b.extra = {"initial_advertise_peer_urls": two}
    with c:
        for n in c.nodes:
            wait_until("all answer", 30, n.ready)
        wait_until("A and B see each other", 20, lambda: states(a).get("n1") == "online")
        for n in (a, b):
            wait_until("the third is taken in", 30, lambda n=n: states(n).get("n2") == "online")
            assert members(n) == 3, n.etcdctl("member", "list").stdout
            assert "announced itself" in n.log_text(), "it was known before"
        assert states(d) == {"n0": "online", "n1": "online", "n2": "online"}, states(d)
        w = d.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        wait_until("A knows the dispatcher", 10, lambda: a.etcdctl(
            "get", "--print-value-only", "/q/jobs").stdout.strip())
        a.etcdctl("put", "/q/jobs/producer/one", "hello")
        assert d.etcdctl("del", w.wait("hello")).stdout.strip() == "1"
        # Removed at A, it may knock as it likes; B keeps it.
        member = next(line.split(",")[0] for line in a.etcdctl("member", "list").stdout.splitlines()
                      if "n2" in line)
        a.etcdctl("member", "remove", member)
        assert members(a) == 2
        assert d.stop() == 0
        d.start()
        wait_until("it is back", 30, d.ready)
        wait_until("it has asked", 30, lambda: "does not take this node in" in d.log_text())
        assert members(a) == 2 and members(b) == 3
        a.etcdctl("member", "add", "n2", f"--peer-urls=http://{d.client}")
        wait_until("it is in again", 30, lambda: states(a).get("n2") == "online")
        time.sleep(0.5)
        assert members(a) == 3, a.etcdctl("member", "list").stdout
    print("holds")


main()
