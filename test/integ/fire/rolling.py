#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three real nodes are upgraded one after the other under load: drained, ended, started again. Nothing is lost, and
nothing comes twice.

    rolling.py BINARIES FIRE [--rounds N] [--rate N] [--queues N]
"""
import argparse
import json
import time

from load import Load
from cluster import Cluster, need, wait_until


def left(node):
    return json.loads(node.ctl("drain", "--seconds", "0", "-j"))


def state_seen(node, of):
    """What `node` says of the others: (state, draining)."""
    rows = json.loads(node.ctl("nodes", "-j"))["nodes"]
    return {n["name"]: (n["state"], n["draining"]) for n in rows}[f"n{of.index}"]


def traffic(load, nodes, count):
    """Each of these nodes takes puts, and messages come."""
    at = load.fresh()
    load.wait("puts at all nodes", 60, lambda p: all(
        p[f"put{n.index}"] > at[f"put{n.index}"] + count for n in nodes)
        and p["received"] > at["received"] + count * len(nodes))


def upgrade(load, node, others):
    begin = time.monotonic()
    dispatched = json.loads(node.ctl("status", "-j"))["dispatched"]
    assert dispatched > 0, "it dispatches nothing that could move"
    roamed = load.last["roamed"]
    said = json.loads(node.ctl("drain", "--exit", "--seconds", "60", "-j"))
    assert said["state"] == "drained" and said["dispatched"] == 0, said
    assert said["messages"] == said["consumers"] == 0 and said["takers"] == 2, said
    drained = time.monotonic() - begin
    wait_until("the others know", 10, lambda: state_seen(others[0], node) in (
        ("online", True), ("spare", True)))
    # By itself: that is what --exit is for.
    assert node.process.wait(timeout=60) == 0, "it ended with a fault"
    node.process = None
    node.log.close()
    traffic(load, others, 20)
    assert load.last["roamed"] > roamed, "no consumer went to another node"
    node.start()
    wait_until(f"node {node.index} is back", 60, node.ready)
    for n in [node, *others]:
        wait_until("all are online to each other", 60, lambda n=n: n.stats(
            "ringpost_repl_peers_online")["repl_peers_online"] == 2 and n.stats(
            "ringpost_link_bundles_up")["link_bundles_up"] == 2)
    assert state_seen(others[0], node) == ("online", False)
    traffic(load, [node, *others], 20)
    print(f"  node {node.index}: {dispatched} queues gone after {drained:.2f} s, back after "
          f"{time.monotonic() - begin:.1f} s {load.last}", flush=True)


def undrain(node, others):
    """It takes nothing new while it drains, and goes on as before after it."""
    node.ctl("drain", "--seconds", "30")
    r = node.etcdctl("put", "/q/new-work/producer/x", "y", check=False)
    assert r.returncode != 0 and "stopping or draining" in r.stderr, r
    w = node.watch("/q/new-work/consumer/00000000-0000-0000-0000-00000000000a")
    wait_until("the refusal", 10, lambda: "draining" in "\n".join(w.lines()))
    w.stop()
    assert json.loads(node.ctl("status", "-j"))["state"] == "drained"
    # What others dispatch it still forwards.
    others[0].etcdctl("put", "/q/elsewhere/producer/x", "y")
    wait_until("it is known", 10, lambda: node.etcdctl(
        "get", "--print-value-only", "/q/elsewhere").stdout.strip())
    node.etcdctl("put", "/q/elsewhere/producer/z", "y")
    node.ctl("undrain")
    assert json.loads(node.ctl("status", "-j"))["state"] == "ready"
    node.etcdctl("put", "/q/new-work/producer/x", "y")


def alone():
    """Nobody is there to take what a node has: it says so, and serves on."""
    with Cluster(o.binaries, nodes=1) as c:
        n = c.nodes[0]
        wait_until("it answers", 30, n.ready)
        w = n.watch("/q/mine/consumer/00000000-0000-0000-0000-00000000000b")
        n.etcdctl("put", "/q/mine/producer/a", "one")
        w.wait("one")
        said = left(n)
        assert said["state"] == "draining" and said["dispatched"] == 1 and said["takers"] == 0, said
        n.etcdctl("put", "/q/mine/producer/b", "two")
        w.wait("two")
        time.sleep(1.5)
        assert left(n)["state"] == "draining" and left(n)["consumers"] == 1
        n.ctl("undrain")
        w.stop()


def main():
    need("etcdctl")
    alone()
    config = {"dpdk": "{hugepages: off, memory_mib: 320}", "links": {"dead_after_ms": o.dead_after}}
    with Cluster(o.binaries, nodes=3, config=config) as c:
        c.join(90)
        print(f"{o.queues} queues, {o.rate} messages a second, seed {o.seed}", flush=True)
        load = Load(o.fire, c.nodes, roam=True, seed=o.seed, rate=o.rate, queues=o.queues,
                    in_flight=o.in_flight, hold_ms=300, drain_ms=30000)
        try:
            traffic(load, c.nodes, 20)
            for _ in range(o.rounds):
                for node in c.nodes:
                    upgrade(load, node, [n for n in c.nodes if n is not node])
            result = load.end(60)
        finally:
            load.kill()
        assert result["faults"] == result["missing"] == result["again"] == 0, result
        # A put that was on its way when its connection ended is asked for no more; it came once, or not.
        assert result["put"] > 1000 and result["unknown"] <= 3 * o.rounds * o.queues, result
        wait_until("nothing is held anywhere", 30, lambda: sum(
            n.stats("ringpost_queue")["queue_messages"] for n in c.nodes) == 0)
        undrain(c.nodes[0], c.nodes[1:])
    print("holds")


p = argparse.ArgumentParser()
p.add_argument("binaries")
p.add_argument("fire")
p.add_argument("--rounds", type=int, default=1)
p.add_argument("--rate", type=int, default=300)
p.add_argument("--queues", type=int, default=30)
p.add_argument("--in-flight", type=int, default=100)
# A node that gets no CPU for so long counts as dead, and what it holds comes twice.
p.add_argument("--dead-after", type=int, default=8000)
p.add_argument("--seed", type=int, default=int(time.time()))
o = p.parse_args()
main()
