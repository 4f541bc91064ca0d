#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""queues.policies on two real nodes, each field as its users meet it: policies.py BINARIES PORT"""
import base64
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

from cluster import Cluster, need, wait_until

try:
    import jsonschema
except ImportError:  # Debian: python3-jsonschema
    jsonschema = None
SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "schema"

POLICIES = """[
  {match: short, ttl_ms: 700, dead_letter: dead},
  {match: late, delay_ms: 1500},
  {match: once, dedup_s: 2},
  {match: newest, depth_max: 3, overflow: drop-oldest},
  {match: small, depth_max: 2},
  {match: nobody, fail_fast: true},
  {match: "raw*", ttl_ms: 100, dead_letter: dead-raw},
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


def ask(node, schema, *words):
    value = json.loads(node.ctl(*words, "-j"))
    if jsonschema:
        jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{schema}.schema.json").read_text())).validate(value)
    return value


def refused(node, text, *words):
    r = subprocess.run([os.path.join(node.cluster.bin, "ringpostctl", "ringpostctl"), "--endpoint",
                        f"unix:{node.admin}", *words], capture_output=True, text=True, timeout=30, check=False)
    assert r.returncode == 1 and text in r.stderr, r


def operators(a, b):
    """A look at messages, dead letters sent back, what is in the way removed."""
    for i in range(5):
        put(a, "short", f"back-{i}", f"again-{i}\n\x01")
    w = b.watch(consumer("dead-too"))
    # One was too old before, where the queue was dispatched then.
    wait_until("they are dead", 10, lambda: sum(
        ask(n, "queue_show", "queue", "show", "short")["queue"]["dead_letters"] for n in (a, b)) == 6)
    w.stop()
    # Nobody watches the dead letters now; who dispatches them?
    home = a if ask(a, "queue_show", "queue", "show", "dead")["queue"]["here"] else b
    other = b if home is a else a
    wait_until("five dead letters", 10, lambda: len(
        ask(home, "queue_peek", "dead-letters", "list", "dead")["messages"]) == 5)
    listed = ask(home, "queue_peek", "dead-letters", "list", "dead", "-n", "2")["messages"]
    assert [(m["dead_letter"]["queue"], m["dead_letter"]["reason"], m["tail"], m["state"]) for m in listed] == \
        [("short", "expired", f"back-{i}", "waiting") for i in range(2)], listed
    assert base64.b64decode(listed[0]["value"]).endswith(b"\nagain-0\n\x01"), listed
    print("\n".join("  " + x for x in home.ctl("dead-letters", "list", "dead").splitlines()[:2]))
    refused(other, "dispatches it: ask there", "queue", "peek", "dead")
    refused(other, "another node dispatches", "queue", "purge", "dead")
    # Back they go, and their queue has a consumer now.
    w = b.watch(consumer("short"))
    wait_until("the consumer", 10, lambda: a.etcdctl("get", "--prefix", "--keys-only", "/q/short/c/").stdout.strip())
    assert ask(home, "clear", "dead-letters", "replay", "dead", "-n", "3")["messages"] == 3
    wait_until("three are back", 10, lambda: sum(x.startswith("again-") for x in w.lines()) == 3)
    assert ask(home, "clear", "dead-letters", "drop", "dead")["messages"] == 2
    assert ask(home, "queue_peek", "queue", "peek", "dead")["messages"] == []
    held = ask(a if ask(a, "queue_show", "queue", "show", "short")["queue"]["here"] else b,
               "queue_peek", "queue", "peek", "short")["messages"]
    assert [m["state"] for m in held] == ["held"] * 3 and all(m["holder"] in w.process.args[-1] for m in held), held
    w.stop()
    print("  dead letters: listed, sent back, dropped")
    raw(a)


def raw(a):
    """A name that is no UTF-8 is told as it can be; its letters stay where they are."""
    put(a, "raw\udcff\u00e9", "t", "bytes")
    wait_until("it is dead", 10, lambda: len(
        ask(a, "queue_peek", "dead-letters", "list", "dead-raw")["messages"]) == 1)
    head = ask(a, "queue_peek", "dead-letters", "list", "dead-raw")["messages"][0]["dead_letter"]
    assert head["raw"] is True and head["queue"].startswith("raw\u00ff"), head
    assert ask(a, "clear", "dead-letters", "replay", "dead-raw")["messages"] == 1
    wait_until("it stays", 10, lambda: [m["state"] for m in ask(
        a, "queue_peek", "queue", "peek", "dead-raw")["messages"]] == ["waiting"])


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
        for line, before in zip(dead.lines()[1:], dead.lines()):
            if line.startswith('{"v":1,"dead_letter":'):
                assert a.etcdctl("del", before).stdout.strip() == "1", before
        dead.stop()
        operators(a, b)
        reload(a)


if __name__ == "__main__":
    main()
