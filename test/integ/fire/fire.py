#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two real nodes under a load while their network is bad, and dead for a while:

    fire.py BINARIES FIRE PORT [--messages N] [--cut SECONDS] [--fallback on|off|both] ...

PORT is memif or vhost. With the fallback off, nothing crosses during the cut and all goes on after
it; with it on, messages go on by unary and return to the stream. In the end each message was
delivered once, buffers are back, and what came in is what was delivered and dropped."""
import argparse
import time

from load import Load
from cluster import Cluster, need, wait_until

IMPAIR = "drop=0.01,reorder=0.02,reorder_us=200"
PORT_DROPS = ("impair_rx_drops", "impair_full_drops")


# Buffers that a driver keeps after they were sent, until it wants their descriptors: virtio-user a
# ring of them; memif none.
TX_HELD = {"memif": 0, "vhost": 256}


def pools_free(c):
    return [n.stats("ringpost_pool")["pool_free"] for n in c.nodes]


def short_load(o, c, prefix):
    load = Load(o.fire, c.nodes, messages=1000, prefix=prefix, seed=o.seed)
    try:
        load.end(o.timeout)
    finally:
        load.kill()


def pools_at_rest(o, c):
    """After a first, short load: what is set up at first use stays. The most of what is seen, as
    heartbeats come and go."""
    short_load(o, c, "first")
    most = [0, 0]
    for _ in range(20):
        time.sleep(0.1)
        most = [max(p) for p in zip(most, pools_free(c))]
    return most


def check_streams(o, c):
    """In the end messages go by streams, and by nothing else."""
    for n in c.nodes:
        wait_until(f"the link of node {n.index}", 30, lambda n=n: n.stats(
            "ringpost_link_bundles_up")["link_bundles_up"] == 1)
    before = [n.stats() for n in c.nodes]
    short_load(o, c, "last")
    now = crossings(before, [n.stats() for n in c.nodes])
    print(f"  crossings at the end: {now}")
    assert now["forwards_streamed"] > 0 and now["deliveries_streamed"] > 0, now
    assert now["forwards_unary"] + now["deliveries_unary"] == 0, now


def check_pools(c, before, held):
    def back():
        now = pools_free(c)
        if all(a >= b - held for a, b in zip(now, before)):
            return True
        raise AssertionError(f"{now} are free; " + "".join(
            n.ctl("stats", "ringpost_pool_free") for n in c.nodes))
    wait_until(f"the pools are back at {before}", 20, back)


def total(stats, name):
    return sum(s.get(name, 0) for s in stats)


def same(what, a, b):
    print(f"  {what}: {a} = {b}")
    assert a == b, f"{what}: {a} is not {b}"


def frames_lost(a, b):
    """Frames that a's device took and that b neither saw nor dropped: 0 when none is under way."""
    drops = sum(b.get(f"port_{d}", 0) for d in PORT_DROPS)
    return a["port_tx_packets"] + b["port_impair_duplicated"] - b["port_rx_packets"] - drops


def check_frames(nodes):
    def balanced():
        a, b = (n.stats("ringpost_port") for n in nodes)
        first = [frames_lost(a, b), frames_lost(b, a)]
        if first == [0, 0]:
            return True
        raise AssertionError(f"frames missing: {first}")
    wait_until("frames sent = frames received + drops", 15, balanced)
    stats = [n.stats("ringpost_port") for n in nodes]
    print(f"  frames sent {total(stats, 'port_tx_packets')} = received "
          f"{total(stats, 'port_rx_packets')} + dropped "
          + str(sum(total(stats, f'port_{d}') for d in PORT_DROPS)))


def check_messages(before, after, result):
    def grown(name):
        return total(after, name) - total(before, name)
    # A retry was refused before it came to a queue: a connection with too many bytes queued.
    same("puts refused by queues", sum(grown(k) for k in after[0] if k.startswith("queue_refused")), 0)
    same("puts taken = puts answered", grown("queue_puts"), result["put"])
    same("indexed = acknowledged + handed over", grown("queue_indexed"),
         grown("queue_acks") + grown("queue_handed_over"))
    same("acknowledged = put", grown("queue_acks"), result["put"])
    same("held, waiting or on the way", total(after, "queue_messages")
         + total(after, "queue_holds") + total(after, "queue_requests")
         + total(after, "deliver_messages"), 0)
    for i in (0, 1):
        puts, taken = (after[j].get(name, 0) - before[j].get(name, 0)
                       for j, name in ((i, "queue_puts_remote"), (1 - i, "queue_indexed")))
        own = after[1 - i]["queue_puts"] - before[1 - i]["queue_puts"] - (
            after[1 - i]["queue_puts_remote"] - before[1 - i]["queue_puts_remote"])
        same(f"indexed at node {1 - i} = forwarded by node {i} + put there", taken, puts + own)


def crossings(before, after):
    return {name: total(after, f"deliver_{name}") - total(before, f"deliver_{name}")
            for name in ("forwards_streamed", "deliveries_streamed", "forwards_unary",
                         "deliveries_unary", "repeats")}


def impair(nodes, spec):
    for n in nodes:
        n.ctl("impair", "0", spec)


def cut(nodes, load, o, fallback):
    load.wait("two fifths of the messages", o.timeout,
              lambda p: p["started"] >= 0.4 * o.messages)
    print(f"  cut for {o.cut} s at {load.last}")
    impair(nodes, "cut=1")
    begin = time.monotonic()
    # What was in the nodes' hands already may still come to the clients.
    time.sleep(o.settle)
    first = load.fresh()
    before = [n.stats() for n in nodes]
    time.sleep(max(0.0, o.cut - (time.monotonic() - begin)))
    assert load.last["acked"] < o.messages, "the load ended before the cut did: give it a --rate"
    last = load.fresh()
    impair(nodes, IMPAIR)
    during = crossings(before, [n.stats() for n in nodes])
    print(f"  crossed during the cut: {last['crossed'] - first['crossed']} {during}")
    if fallback:
        assert last["crossed"] > first["crossed"], "nothing crossed by unary during the cut"
        assert during["forwards_unary"] > 0 and during["deliveries_unary"] > 0, during
    else:
        same("crossed during the cut", last["crossed"] - first["crossed"], 0)
        same("by unary", during["forwards_unary"] + during["deliveries_unary"], 0)
    return last, [n.stats() for n in nodes]


def one_run(o, fallback):
    print(f"port {o.port}, unary fallback {'on' if fallback else 'off'}, "
          f"{o.messages} messages, seed {o.seed}", flush=True)
    config = {"deliver": f"{{unary_fallback: {'true' if fallback else 'false'}}}",
              "dpdk": f"{{hugepages: off, memory_mib: {o.memory}}}", "links": {"dead_after_ms": o.dead_after}}
    with Cluster(o.binaries, nodes=2, port=o.port, impair=IMPAIR, config=config) as c:
        c.join(90)
        pools = pools_at_rest(o, c)
        before = [n.stats() for n in c.nodes]
        load = Load(o.fire, c.nodes, messages=o.messages, large=o.large, rate=o.rate,
                    in_flight=o.in_flight, seed=o.seed)
        try:
            last, stats = (None, before) if o.cut == 0 else cut(c.nodes, load, o, fallback)
            if o.cut:
                load.wait("crossings after the cut", o.timeout,
                          lambda p: p["crossed"] > last["crossed"])
            result = load.end(o.timeout)
        except AssertionError:
            for n in c.nodes:
                print(f"--- counters of node {n.index}: ", {
                    k: v for k, v in n.stats().items()
                    if v and k.startswith(("queue", "deliver", "control", "link", "engine"))})
            raise
        finally:
            load.kill()
        after = [n.stats() for n in c.nodes]
        print(f"  crossings {crossings(before, after)}, of those after the cut "
              f"{crossings(stats, after)}")
        assert result["in_flight_max"] >= o.in_flight, "too few messages in flight"
        wait_until("nothing is held", 20, lambda: total(
            [n.stats("ringpost_queue") for n in c.nodes], "queue_holds") == 0)
        after = [n.stats() for n in c.nodes]
        check_messages(before, after, result)
        check_pools(c, pools, TX_HELD[o.port])
        check_streams(o, c)
        print(f"  buffers free: {pools_free(c)}, before {pools}")
        check_frames(c.nodes)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries")
    p.add_argument("fire")
    p.add_argument("port", choices=["memif", "vhost"])
    p.add_argument("--messages", type=int, default=6000)
    p.add_argument("--large", type=int, default=3)
    p.add_argument("--in-flight", type=int, default=1000)
    p.add_argument("--rate", type=int, default=600)
    p.add_argument("--cut", type=float, default=4)
    p.add_argument("--settle", type=float, default=1.5)
    p.add_argument("--dead-after", type=int, default=3000)
    p.add_argument("--memory", type=int, default=448)
    p.add_argument("--timeout", type=float, default=100)
    p.add_argument("--fallback", choices=["on", "off", "both"], default="both")
    p.add_argument("--seed", type=int, default=int(time.time()))
    o = p.parse_args()
    need("etcdctl")
    for fallback in (False, True):
        if o.fallback != ("off" if fallback else "on"):
            one_run(o, fallback)
    print("holds")


main()
