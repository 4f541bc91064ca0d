#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two acts of the first slice, between two real nodes: acts.py BINARIES PORT [SHARDS]

PORT is memif, vhost or none (kernel sockets)."""
import json
import sys
import uuid

from cluster import Cluster, need, wait_until


def differ(after, before, name):
    return after.get(name, 0) - before.get(name, 0)


def check(what, got, expected):
    print(f"  {what}: {got}")
    assert got == expected, f"{what}: {got}, expected {expected}"


def act1(a, b):
    print("act 1: the consumer is at B, so B dispatches; A forwards")
    consumer = uuid.uuid4()
    w = b.watch(f"/q/jobs/consumer/{consumer}")
    wait_until("A knows the dispatcher", 10,
               lambda: a.etcdctl("get", "--print-value-only", "/q/jobs").stdout.strip())
    sa, sb = a.stats(), b.stats()
    a.etcdctl("put", "/q/jobs/producer/job-1", "hello")
    key = w.wait("hello")
    assert key.startswith(f"/q/jobs/consumer/{consumer}/") and key.endswith("/job-1"), key
    assert b.etcdctl("get", "--print-value-only", key).stdout.strip() == "hello"
    assert b.etcdctl("del", key).stdout.strip() == "1"
    assert b.etcdctl("del", key).stdout.strip() == "0", "an acknowledge may be repeated"
    na, nb = a.stats(), b.stats()
    check("forwards streamed", differ(na, sa, "deliver_forwards_streamed"), 1)
    check("deliveries local", differ(nb, sb, "queue_deliveries_local"), 1)
    check("by unary", differ(na, sa, "deliver_forwards_unary")
          + differ(nb, sb, "deliver_deliveries_unary"), 0)
    check("held", nb["queue_messages"] + na["queue_messages"], 0)
    w.stop()


def act2(a, b):
    print("act 2: consumers at both nodes, A dispatches, its own consumer's prefetch is full")
    ca, cb = uuid.uuid4(), uuid.uuid4()
    a.etcdctl("put", f"/q/work/consumer/{ca}", ";prefetch=1")
    wa = a.watch(f"/q/work/consumer/{ca}")
    wait_until("B knows the dispatcher", 10,
               lambda: b.etcdctl("get", "--print-value-only", "/q/work").stdout.strip())
    a.etcdctl("put", "/q/work/producer/first", "first")
    first = wa.wait("first")
    wb = b.watch(f"/q/work/consumer/{cb}")
    wait_until("A knows B's consumer", 10,
               lambda: a.etcdctl("get", "--print-value-only",
                                 f"/q/work/c/{cb}").stdout.strip())
    sa, sb = a.stats(), b.stats()
    a.etcdctl("put", "/q/work/producer/second", "second")
    second = wb.wait("second")
    assert b.etcdctl("del", second).stdout.strip() == "1"
    na, nb = a.stats(), b.stats()
    check("deliveries streamed", differ(na, sa, "deliver_deliveries_streamed"), 1)
    check("acknowledged at A", differ(na, sa, "queue_acks"), 1)
    check("by unary", differ(na, sa, "deliver_deliveries_unary"), 0)
    assert a.etcdctl("del", first).stdout.strip() == "1"
    wait_until("nothing is held", 5, lambda: a.stats()["queue_messages"]
               + b.stats()["queue_messages"] + b.stats()["queue_holds"] == 0)


def play(cluster, over_port):
    cluster.join()
    a, b = cluster.nodes
    assert len(a.etcdctl("member", "list").stdout.strip().split("\n")) == 2
    act1(a, b)
    act2(a, b)
    if over_port:
        # As between appliances: marks in the place of losses, and a floor of 5 ms or more.
        shown = json.loads(a.ctl("show", "tcp", "-j"))["connections"]
        assert [(c["congestion"], c["ecn"]) for c in shown] == [("dctcp", True)], shown
        assert 5_000_000 <= shown[0]["rto_floor_ns"] <= 200_000_000, shown


def main():
    need("etcdctl")
    port = None if sys.argv[2] == "none" else sys.argv[2]
    config = {}
    if len(sys.argv) > 3:
        # Queues spread over the shards, links stay on one: frames cross the rings between them.
        cpus = ",".join(str(i % 2) for i in range(int(sys.argv[3])))
        config["shards"] = '{idle: adaptive, cpus: "%s"}' % cpus
    with Cluster(sys.argv[1], nodes=2, port=port, config=config) as c:
        play(c, port is not None)
    print("both acts hold")


if __name__ == "__main__":
    main()
