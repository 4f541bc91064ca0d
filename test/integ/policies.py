#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""queues.policies on two real nodes, each field as its users meet it: policies.py BINARIES PORT"""
import json
import signal
import sys
import time
import uuid

from cluster import Cluster, need, wait_until

POLICIES = """[
  {match: short, ttl_ms: 700, dead_letter: dead},
  {match: late, delay_ms: 1500},
  {match: once, dedup_s: 2},
  {match: newest, depth_max: 3, overflow: drop-oldest},
  {match: small, depth_max: 2},
  {match: nobody, fail_fast: true},
  {match: poison, deliveries_max: 2, dead_letter: dead}]"""


def consumer(queue):
    return f"/q/{queue}/consumer/{uuid.uuid4()}"


def put(node, queue, tail, value, check=True):
    return node.etcdctl("put", f"/q/{queue}/producer/{tail}", value, check=check)


def letters(w):
    """Heads of the dead letters that a watch has shown, with what they carry."""
    lines = w.lines()
    return [(json.loads(line)["dead_letter"], lines[i + 1]) for i, line in enumerate(lines)
            if line.startswith('{"v":1,"dead_letter":')]


def life(a, b, dead):
    """What is too old is offered to nobody; it comes to the dead letters, with why and how old."""
    put(a, "short", "job-1", "too late")
    wait_until("a dead letter", 10, lambda: len(letters(dead)) == 1)
    head, value = letters(dead)[0]
    assert value == "too late", value
    assert (head["queue"], head["tail"], head["reason"], head["deliveries"]) == ("short", "job-1", "expired", 0), head
    assert 700 <= head["age_ms"] < 5000, head
    w = b.watch(consumer("short"))
    put(a, "short", "job-2", "in time")
    key = w.wait("in time")
    assert "too late" not in w.lines()
    # What a consumer holds is its own, however old.
    time.sleep(1)
    assert b.etcdctl("del", key).stdout.strip() == "1"
    w.stop()
    print("  ttl_ms: a dead letter after", head["age_ms"], "ms")


def delay(a, b):
    w = a.watch(consumer("late"))
    wait_until("the consumer", 10, lambda: b.etcdctl("get", "--prefix", "--keys-only", "/q/late/c/").stdout.strip())
    at = time.monotonic()
    put(b, "late", "job", "patience")
    w.wait("patience")
    took = time.monotonic() - at
    assert took >= 1.4, took
    w.stop()
    print(f"  delay_ms: shown after {took * 1000:.0f} ms")


def dedup(a, b):
    w = a.watch(consumer("once"))
    put(a, "once", "order-1", "first")
    key = w.wait("first")
    assert a.etcdctl("del", key).stdout.strip() == "1"
    put(b, "once", "order-1", "second")
    put(b, "once", "order-2", "other")
    w.wait("other")
    assert "second" not in w.lines()
    time.sleep(2)
    put(b, "once", "order-1", "third")
    w.wait("third")
    w.stop()
    print("  dedup_s: a tail once in two seconds")


def overflow(a, b):
    for i in range(6):
        put(a, "newest", "t", f"newest-{i}")
    w = b.watch(consumer("newest"))
    w.wait("newest-5")
    assert [x for x in w.lines() if x.startswith("newest-")] == [f"newest-{i}" for i in (3, 4, 5)], w.lines()
    w.stop()
    for i in range(2):
        put(a, "small", "t", f"small-{i}")
    r = put(b, "small", "t", "small-2", check=False)
    assert r.returncode != 0 and "queue is full" in r.stderr, r.stderr
    print("  depth_max: the oldest go, or the newest are refused:", r.stderr.splitlines()[-1])


def fail_fast(a):
    r = put(a, "nobody", "t", "in vain", check=False)
    assert r.returncode != 0 and "no consumer" in r.stderr, r.stderr
    w = a.watch(consumer("nobody"))
    wait_until("it is taken", 10, lambda: put(a, "nobody", "t", "welcome", check=False).returncode == 0)
    w.wait("welcome")
    w.stop()
    print("  fail_fast:", r.stderr.splitlines()[-1])


def poison(a, b, dead):
    """Two consumers die with it; it is kept from the third."""
    put(a, "poison", "job-9", "deadly")
    for n in (a, b):
        w = n.watch(consumer("poison"))
        w.wait("deadly")
        w.stop()
    wait_until("a dead letter", 10, lambda: len(letters(dead)) == 2)
    head, value = letters(dead)[1]
    assert (head["queue"], head["reason"], head["deliveries"], value) == ("poison", "deliveries", 2, "deadly"), head
    print("  deliveries_max:", head)


def reload(a):
    """Another policy counts at once; a bad one changes nothing."""
    a.extra["queues"] = "{policies: [{match: small, depth_max: 4}]}"
    a.write_config()
    a.process.send_signal(signal.SIGHUP)
    wait_until("more room", 10, lambda: put(a, "small", "t", "more", check=False).returncode == 0)
    a.extra["queues"] = "{policies: [{match: a, dead_letter: b}, {match: b, dead_letter: a}]}"
    a.write_config()
    a.process.send_signal(signal.SIGHUP)
    wait_until("the reload is refused", 10, lambda: "come back to it" in a.log_text())
    put(a, "small", "t", "and more")
    assert put(a, "small", "t", "too much", check=False).returncode != 0
    print("  reload: policies change in a running node")


def main():
    need("etcdctl")
    with Cluster(sys.argv[1], nodes=2, port=None if sys.argv[2] == "none" else sys.argv[2],
                 config={"queues": "{policies: " + POLICIES.replace("\n", " ") + "}",
                         "shards": '{idle: adaptive, cpus: "0,1"}'}) as c:
        c.join()
        a, b = c.nodes
        dead = b.watch(consumer("dead"))
        wait_until("its consumer", 10, lambda: a.etcdctl("get", "--prefix", "--keys-only", "/q/dead/c/").stdout.strip())
        life(a, b, dead)
        delay(a, b)
        dedup(a, b)
        overflow(a, b)
        fail_fast(a)
        poison(a, b, dead)
        reload(a)
        dead.stop()


if __name__ == "__main__":
    main()
