#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real node that is stopped in order hands over what it dispatches: handover.py BINARIES PORT"""
import sys
import uuid

from cluster import Cluster, need, wait_until

WAITING, BOUND = 200, 20


def put_many(node, queue, count):
    for i in range(count):
        node.etcdctl("put", f"/q/{queue}/producer/n{i}", f"{queue}-{i}")


def depth(node):
    return node.stats("ringpost_queue")["queue_messages"]


def main():
    need("etcdctl")
    with Cluster(sys.argv[1], nodes=2, port=sys.argv[2]) as c:
        c.join()
        a, b = c.nodes
        consumer = uuid.uuid4()
        put_many(a, "waits", WAITING)
        # The first put makes A the dispatcher, so that what B's consumer gets is bound at A.
        put_many(a, "held", 1)
        wait_until("B knows the dispatcher", 10, lambda: b.etcdctl(
            "get", "--print-value-only", "/q/held").stdout.strip())
        # One at A that nothing is for: else B, with the only consumer, would soon dispatch itself.
        idle = uuid.uuid4()
        a.etcdctl("put", f"/q/held/consumer/{idle}", ";match=nothing")
        wa = a.watch(f"/q/held/consumer/{idle}")
        b.etcdctl("put", f"/q/held/consumer/{consumer}", f";prefetch={BOUND}")
        w = b.watch(f"/q/held/consumer/{consumer}")
        for i in range(1, BOUND + 5):
            a.etcdctl("put", f"/q/held/producer/n{i}", f"held-{i}")
        keys = [w.wait(f"held-{i}") for i in range(BOUND)]
        assert depth(a) == WAITING + BOUND + 5, depth(a)
        print(f"  {depth(a)} messages at A, {BOUND} of them held by a consumer at B; A stops")
        assert a.stop() == 0
        wa.stop()
        print(f"  {depth(b)} messages at B")
        assert depth(b) == WAITING + BOUND + 5, depth(b)
        # What was shown is still this consumer's, and not shown again.
        for key in keys[:10]:
            assert b.etcdctl("del", key).stdout.strip() == "1", key
        for i in range(BOUND, BOUND + 5):
            keys.append(w.wait(f"held-{i}"))
        assert w.lines().count("PUT") == BOUND + 5, "a delivery was shown twice"
        for key in keys[10:]:
            assert b.etcdctl("del", key).stdout.strip() == "1", key
        w.stop()
        # The rest in order.
        other = uuid.uuid4()
        b.etcdctl("put", f"/q/waits/consumer/{other}", ";prefetch=1000")
        w = b.watch(f"/q/waits/consumer/{other}")
        w.wait(f"waits-{WAITING - 1}")
        values = [line for line in w.lines() if line.startswith("waits-")]
        assert values == [f"waits-{i}" for i in range(WAITING)], values
        w.stop()
        print("  all of them once, in order")
        take_over(a, b)


def take_over(a, b):
    """A queue goes to the node that has the consumers, when its dispatcher has none."""
    a.start()
    wait_until("A is back", 30, lambda: b.stats("ringpost_link_bundles_up")["link_bundles_up"] == 1)
    put_many(b, "moves", 20)
    consumer = uuid.uuid4()
    w = a.watch(f"/q/moves/consumer/{consumer}")
    w.wait("moves-19", 20)
    bits = uuid.UUID(a.uuid).int
    node = str(bits >> 64 ^ bits & (1 << 64) - 1)
    wait_until("A dispatches", 20, lambda: a.etcdctl(
        "get", "--print-value-only", "/q/moves").stdout.split(";")[0] == node)
    assert w.lines().count("PUT") == 20, w.lines()
    for i in range(20):
        assert a.etcdctl("del", w.key_of(f"moves-{i}")).stdout.strip() == "1"
    w.stop()
    print("  a queue moved to the node of its consumer")


if __name__ == "__main__":
    main()
