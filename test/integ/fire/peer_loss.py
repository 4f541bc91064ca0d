#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node that goes away under full load and comes back, again and again:

    peer_loss.py BINARIES FIRE PORT [--times N] [--signals TERM,KILL] [--victims 0,1]
                 [--hugepages on]

Each time the survivor serves on, and the node that is started again rejoins and takes deliveries.
Messages that the survivor dispatches are all delivered, in order and whole; what the node that was
killed had in its memory is lost. At the end no runtime folder, socket or hugepage is left."""
import argparse
import os
import random
import signal
import time

from load import Load
from cluster import Cluster, need, wait_until


def runtime_dir(node):
    base = "/var/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp")
    return os.path.join(base, "dpdk", f"ringpost-{node.uuid}")


def hugepages_free():
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("HugePages_Free"))


def port_socket(c):
    return os.path.join(c.dir, "port.sock")


def check_gone(c, node, sig):
    """What a node that ended by itself leaves: nothing. A killed one's is taken by the next."""
    if sig == signal.SIGKILL:
        return
    left = [p for p in (runtime_dir(node), node.admin) if os.path.exists(p)]
    if c.socket_owner == node.index and os.path.exists(port_socket(c)):
        left.append(port_socket(c))
    assert not left, f"left behind by node {node.index}: {left}"


def once(c, load, victim, sig, pause):
    v, s = c.nodes[victim], c.nodes[1 - victim]
    start = load.fresh()
    load.wait("a load on both nodes", 60, lambda p: p[f"put{victim}"] > start[f"put{victim}"] + 200
              and p[f"crossed{victim}"] > start[f"crossed{victim}"] + 50
              and p[f"crossed{1 - victim}"] > start[f"crossed{1 - victim}"])
    status = v.stop(sig)
    expected = 0 if sig == signal.SIGTERM else -sig
    assert status == expected, f"node {victim} ended with status {status}"
    check_gone(c, v, sig)
    went = load.fresh()
    load.wait("the survivor takes puts and delivers", 60,
              lambda p: p[f"put{1 - victim}"] > went[f"put{1 - victim}"] + 50
              and p[f"received{1 - victim}"] > went[f"received{1 - victim}"] + 50)
    time.sleep(pause)
    assert s.process.poll() is None, f"the survivor ended with status {s.process.poll()}"
    v.start()
    back = load.fresh()
    load.wait("the node that came back takes puts, and deliveries of the other", 60,
              lambda p: p[f"put{victim}"] > back[f"put{victim}"] + 20
              and p[f"crossed{victim}"] > back[f"crossed{victim}"] + 20)
    assert s.process.poll() is None, f"the survivor ended with status {s.process.poll()}"


def print_held(nodes):
    """Counters, and those queues whose messages are held somewhere."""
    for n in nodes:
        if not n.process or n.process.poll() is not None:
            continue
        print(f"--- counters of node {n.index}: ", {
            k: v for k, v in n.stats().items()
            if v and k.startswith(("queue", "deliver", "control", "link", "engine"))})
        for line in n.ctl("stats", "ringpost_queue").splitlines():
            if "queue=" in line and not line.endswith(" 0"):
                print(f"  {line}")


def series(o, victim, sig, rand):
    print(f"port {o.port}, node {victim} goes by {signal.Signals(sig).name}, {o.times} times",
          flush=True)
    config = {"dpdk": f"{{hugepages: {o.hugepages}, memory_mib: {o.memory}}}",
              "links": {"dead_after_ms": o.dead_after}, "stop": "{grace_ms: 1000}"}
    with Cluster(o.binaries, nodes=2, port=o.port, config=config) as c:
        # Who listens on the port's socket: node 0 with memif (server) and with vhost.
        c.socket_owner = 0
        c.join(90)
        load = Load(o.fire, c.nodes, victim=victim, seed=o.seed, rate=o.rate, queues=o.queues,
                    in_flight=o.in_flight, hold_ms=500, drain_ms=30000)
        try:
            for i in range(o.times):
                begin = time.monotonic()
                once(c, load, victim, sig, rand.choice([0, 0.3, 2]))
                print(f"  {i + 1}: {time.monotonic() - begin:.1f} s {load.last}", flush=True)
            load.end(60)
        except AssertionError:
            print_held(c.nodes)
            raise
        finally:
            load.kill()
        nodes = c.nodes
        for n in nodes:
            status = n.stop()
            assert status == 0, f"node {n.index} ended with status {status}"
        left = [p for n in nodes for p in (runtime_dir(n), n.admin) if os.path.exists(p)]
        left += [port_socket(c)] if os.path.exists(port_socket(c)) else []
        assert not left, f"left behind: {left}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries")
    p.add_argument("fire")
    p.add_argument("port", choices=["memif", "vhost"])
    p.add_argument("--times", type=int, default=2)
    p.add_argument("--signals", default="TERM,KILL")
    p.add_argument("--victims", default="0,1")
    p.add_argument("--queues", type=int, default=40)
    p.add_argument("--in-flight", type=int, default=200)
    p.add_argument("--rate", type=int, default=0)
    # A node that gets no CPU for so long counts as dead, and what it holds comes twice.
    p.add_argument("--dead-after", type=int, default=4000)
    p.add_argument("--memory", type=int, default=320)
    p.add_argument("--hugepages", choices=["on", "off"], default="off")
    p.add_argument("--seed", type=int, default=int(time.time()))
    o = p.parse_args()
    need("etcdctl")
    print(f"seed {o.seed}")
    rand, pages = random.Random(o.seed), hugepages_free()
    for victim in map(int, o.victims.split(",")):
        for name in o.signals.split(","):
            series(o, victim, signal.Signals[f"SIG{name}"], rand)
    if o.hugepages == "on":
        wait_until(f"{pages} hugepages are free again", 10, lambda: hugepages_free() == pages)
    print("holds")


main()
