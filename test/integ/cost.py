#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost model of queues.md by counters, on three real nodes in namespaces: calls between nodes of a round trip,
4 with the dispatchers at neither end, 2 with each at an end, 0 with all on one node; and of an acknowledge, 1 to a
dispatcher elsewhere and 0 to one here. `route explain` says the same.

    cost.py BINARIES
"""
import json
import sys
import time
import uuid

from cluster import need, wait_until
from spaces import SpaceCluster

TRIPS = 8
MESSAGES = ("deliver_forwards_streamed", "deliver_forwards_unary", "deliver_deliveries_streamed",
            "deliver_deliveries_unary")
CONTROLS = ("deliver_controls_framed", "deliver_controls_unary")


def node_id(node):
    bits = uuid.UUID(node.uuid).int
    return bits >> 64 ^ bits & (1 << 64) - 1


def total(nodes, names):
    return sum(n.stats("ringpost_deliver").get(name, 0) for n in nodes for name in names)


def still(nodes, names):
    """The count, once it grows no more."""
    last = total(nodes, names)
    while True:
        time.sleep(0.2)
        now = total(nodes, names)
        if now == last:
            return now
        last = now


def place(nodes, queue, dispatcher, consumer):
    """The queue is dispatched there, and has one consumer that takes messages here. The watch."""
    idle = uuid.uuid4()
    first = None
    if dispatcher is not consumer:
        # One that nothing is for keeps the queue where it is.
        dispatcher.etcdctl("put", f"/q/{queue}/consumer/{idle}", ";match=nothing")
        first = dispatcher.watch(f"/q/{queue}/consumer/{idle}")
        for n in nodes:
            wait_until(f"node {n.index} knows the dispatcher", 10, lambda n=n: n.etcdctl(
                "get", "--print-value-only", f"/q/{queue}").stdout.startswith(str(node_id(dispatcher))))
    who = uuid.uuid4()
    w = consumer.watch(f"/q/{queue}/consumer/{who}")
    for n in nodes:
        wait_until(f"node {n.index} knows dispatcher and consumer", 10, lambda n=n: n.etcdctl(
            "get", "--print-value-only", f"/q/{queue}").stdout.startswith(str(node_id(dispatcher)))
            and n.etcdctl("get", "--print-value-only", f"/q/{queue}/c/{who}").stdout.startswith(
                str(node_id(consumer))))
    assert first is None or "nothing" not in "\n".join(first.lines())
    return w


def explained(node, queue, at):
    r = json.loads(node.ctl("route", "explain", queue, "-j"))
    p, = [p for p in r["places"] if p["node"] == str(node_id(at)) and p["consumers"] > 0]
    return p["cost_put"], p["cost_ack"]


def row(nodes, what, requester, worker, request_at, reply_at, trip, ack):
    """Round trips from requester to worker and back; what one costs, and each acknowledge."""
    name = what.replace(" ", "-")
    work = place(nodes, f"ask-{name}", request_at, worker)
    answers = place(nodes, f"tell-{name}", reply_at, requester)
    before = still(nodes, MESSAGES)
    keys = []
    for i in range(TRIPS):
        requester.etcdctl("put", f"/q/ask-{name}/producer/r{i}", f"ask {i}")
        keys.append((worker, work.wait(f"ask {i}")))
        worker.etcdctl("put", f"/q/tell-{name}/producer/r{i}", f"tell {i}")
        keys.append((requester, answers.wait(f"tell {i}")))
    cost = (still(nodes, MESSAGES) - before) / TRIPS
    controls = still(nodes, CONTROLS)
    for node, key in keys:
        assert node.etcdctl("del", key).stdout.strip() == "1"
    # An acknowledge that crosses is one call: a question and its answer, and no other node hears of it.
    acks = (still(nodes, CONTROLS) - controls) / 2 / len(keys)
    print(f"  {what}: {cost:g} calls a round trip, {acks:g} an acknowledge")
    assert cost == trip, f"{cost}, expected {trip}"
    assert acks == ack, f"{acks}, expected {ack}"
    there, back = explained(requester, f"ask-{name}", worker), explained(worker, f"tell-{name}", requester)
    assert there[0] + back[0] == trip and (there[1] + back[1]) / 2 == ack, (there, back)
    work.stop()
    answers.stop()


def main():
    need("etcdctl", "ip")
    with SpaceCluster(sys.argv[1], nodes=3) as c:
        c.join()
        a, b, d = c.nodes
        row(c.nodes, "dispatchers at neither end", a, b, d, d, 4, 1)
        row(c.nodes, "each dispatcher at an end", a, b, b, a, 2, 0)
        row(c.nodes, "both dispatchers at the requester", a, b, a, a, 2, 0.5)
        row(c.nodes, "all on one node", a, a, a, a, 0, 0)
        for n in c.nodes:
            assert n.stats()["control_unary_out"] == 0, "the link was not used"
    print("the rows hold")


main()
