#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pinned dispatcher, with real nodes: pin.py BINARIES

It stays where it was placed though another node has the only consumer, follows it once that was there for 30 s and
nothing is left to acknowledge, and what clients wrote in its record goes along."""
import sys
import time
import uuid

from cluster import Cluster, need, wait_until


def node_id(node):
    bits = uuid.UUID(node.uuid).int
    return str(bits >> 64 ^ bits & (1 << 64) - 1)


def record(node, queue="jobs"):
    return node.etcdctl("get", "--print-value-only", f"/q/{queue}").stdout.strip()


def fields(text):
    return {f.split("=")[0]: f.partition("=")[2] for f in text.split(";")[1:]}


def main():
    need("etcdctl")
    with Cluster(sys.argv[1], nodes=3) as c:
        c.join()
        a, b, other = c.nodes
        a.etcdctl("put", "/q/jobs/producer/one", "hello")
        wait_until("A dispatches", 10, lambda: record(a).startswith(node_id(a)))
        a.etcdctl("put", "/q/jobs", ";pinned;reply_to=answers;future=kept")
        epoch = fields(record(a))["epoch"]
        assert fields(record(a)) == {"pinned": "", "reply_to": "answers", "future": "kept", "epoch": epoch}, record(a)
        wait_until("B knows", 10, lambda: record(b) == record(a))
        assert "pinned" in a.ctl("route", "explain", "jobs")

        w = b.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        begin = time.monotonic()
        key = w.wait("hello")
        time.sleep(5)
        assert record(b).startswith(node_id(a)), record(b)
        print("  5 s after the only consumer opened at B: A dispatches still")
        # The time runs; the message that is not acknowledged holds it up.
        wait_until("the time is over", 40, lambda: time.monotonic() > begin + 32)
        assert record(b).startswith(node_id(a)), record(b)
        assert b.etcdctl("del", key).stdout.strip() == "1"
        wait_until("B dispatches once all is acknowledged", 3, lambda: record(b).startswith(node_id(b)))
        print(f"  32 s: with the acknowledge it goes to B: {record(b)}")
        wait_until("all nodes agree", 10, lambda: record(a) == record(b) == record(other))
        now = fields(record(b))
        assert int(now.pop("epoch")) > int(epoch) and now == {"reply_to": "answers", "future": "kept"}, record(b)
        assert a.stats("ringpost_queue_pins")["queue_pins"] == 1
        # It is no pin any more: the consumer goes elsewhere, and the dispatcher with it.
        w.stop()
        w = other.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        wait_until("the third node dispatches", 10, lambda: record(a).startswith(node_id(other)))
        a.etcdctl("put", "/q/jobs/producer/two", "again")
        w.wait("again")
        w.stop()
        print("  and from there to the third node at once")


if __name__ == "__main__":
    main()
