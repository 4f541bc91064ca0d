#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What goes through the queues of real nodes: `trace`, `top`, `queue show`, and every counter that the page
on queues promises.

    follow.py BINARIES SOURCE
"""
import base64
import fcntl
import http.client as http_client
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
import uuid

from cluster import Cluster, need, skip, wait_until

SOURCE = pathlib.Path(sys.argv[2])


def node_id(node):
    bits = uuid.UUID(node.uuid).int
    return str(bits >> 64 ^ bits & (1 << 64) - 1)


def program(node, *words):
    return [os.path.join(node.cluster.bin, "ringpostctl", "ringpostctl"), "--endpoint", f"unix:{node.admin}", *words]


def valid(name, text):
    value = json.loads(text)
    schema = json.loads((SOURCE / "docs" / "schema" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(value)
    assert value["kind"] == f"ringpost.{name}" and value["version"] == 1, value
    return value


def ask(node, name, *words):
    value = valid(name, node.ctl(*words, "-j"))
    assert value["node"] == node_id(node), value
    return value


def refused(node, status, text, *words):
    r = subprocess.run(program(node, *words), capture_output=True, text=True, timeout=30, check=False)
    assert r.returncode == status and text in r.stderr and not r.stdout, (words, r)


class Putter:
    """Puts by the gateway: a process for each takes too long."""

    def __init__(self, node):
        self.http = http_client.HTTPConnection("127.0.0.1", node.port, timeout=20)

    def put(self, queue, tail, value="x"):
        body = {"key": base64.b64encode(f"/q/{queue}/p/{tail}".encode()).decode(),
                "value": base64.b64encode(value.encode()).decode()}
        self.http.request("POST", "/v3/kv/put", json.dumps(body))
        answer = self.http.getresponse()
        text = answer.read()
        assert answer.status == 200, text


def words_of(trace):
    at = [s["at_ns"] for s in trace["steps"]]
    assert at == sorted(at) and at[0] == 0, trace
    return [s["step"] for s in trace["steps"]]


def held(a, b, putter):
    """A message that a consumer has, from another node to another node."""
    worker = str(uuid.uuid4())
    w = b.watch(f"/q/far/consumer/{uuid.uuid4()}")
    wait_until("B dispatches", 10, lambda: ask(a, "queues", "queues", "far", "-x")["queues"][0]["dispatcher"] == node_id(b))
    b.etcdctl("put", f"/q/far/consumer/{worker}", ";prefetch=9")
    v = a.watch(f"/q/far/consumer/{worker}")
    wait_until("B knows A's consumer", 10, lambda: any(
        x["uuid"] == worker and x["state"] == "ready" for x in ask(b, "consumers", "consumers", "far", "-x")["consumers"]))
    for i in range(2):
        putter.put("far", f"job-{i}", f"walk {i}")
    wait_until("both are held", 10, lambda: ask(b, "queues", "queues", "far", "-x")["queues"][0]["in_flight"] == 2)
    wait_until("a client has each", 10, lambda: v.lines() and w.lines())
    rows = ask(b, "queue_peek", "queue", "peek", "far")["messages"]
    row, = [m for m in rows if m["holder"] == worker]
    shown = ask(b, "trace", "trace", "far", row["idx"])
    one, = shown["traces"]
    assert shown["queue"] == "far" and one["idx"] == row["idx"] and not one["ended"], shown
    assert words_of(one) == ["put", "indexed", "offered", "written"], one
    assert [s["node"] for s in one["steps"]] == [node_id(a), node_id(b), node_id(a), node_id(a)], one
    assert one["steps"][2]["consumer"] == worker and one["steps"][2]["attempt"] == 1, one
    # Over the link and into the socket: it takes some time, and little.
    assert 0 < one["steps"][3]["at_ns"] < one["age_ns"] < 60_000_000_000, one
    assert one["size"] == len("walk 0") and one["tail"] == row["tail"], one
    a.etcdctl("del", f"/q/far/consumer/{worker}/{row['idx']}/{row['tail']}")
    wait_until("its end is seen", 10, lambda: ask(b, "trace", "trace", "far", row["idx"])["traces"][0]["ended"])
    one, = ask(b, "trace", "trace", "far", row["idx"])["traces"]
    assert words_of(one)[-1] == "acknowledged" and one["age_ns"] == one["steps"][-1]["at_ns"], one
    text = b.ctl("trace", "far", row["idx"])
    assert re.search(r"written +1 +\d+ +" + worker, text) and "ended" in text.splitlines()[0], text
    print("  " + text.replace("\n", "\n  "))
    refused(a, 1, "dispatches it: ask there", "trace", "far", row["idx"])
    refused(b, 1, "no such message here", "trace", "far", "7")
    refused(b, 1, "knows no such queue", "trace", "nobody")
    refused(b, 1, "no message came", "trace", "far", "--seconds", "0.2")
    refused(b, 2, "is no index", "trace", "far", "first")
    refused(b, 2, "are to come", "trace", "far", "7", "-n", "2")
    v.stop()
    wait_until("A's consumer has gone for good", 10, lambda: len(
        ask(b, "consumers", "consumers", "far", "-x")["consumers"]) == 1)


def next_ones(a, b, putter):
    """Those that come: asked for before, told when they have ended."""
    p = subprocess.Popen(program(b, "trace", "far", "-n", "2", "--seconds", "2", "-j"), stdout=subprocess.PIPE, text=True)
    time.sleep(0.3)
    for i in range(3):
        putter.put("far", f"next-{i}", f"next {i}")
    wait_until("they are held", 10, lambda: all(b.watches[0].key_of(f"next {i}") for i in range(3)))
    keys = [b.watches[0].key_of(f"next {i}") for i in range(3)]
    b.etcdctl("put", keys[0], "reject:not mine")
    for i in (1, 2):
        b.etcdctl("del", keys[i])
    out = p.communicate(timeout=30)[0]
    assert p.returncode == 0, out
    got = valid("trace", out)
    assert [t["tail"] for t in got["traces"]] == ["next-0", "next-1"], got
    # Its only consumer does not want it: it waits, when the time is over.
    assert words_of(got["traces"][0])[:6] == ["put", "indexed", "offered", "written", "rejected", "returned"], got
    assert got["traces"][1]["ended"] and words_of(got["traces"][1])[-1] == "acknowledged", got


def tops(a, b, putter):
    """Snapshots while something goes through, and the screen."""
    stop = threading.Event()

    def load():
        i = 0
        while not stop.is_set():
            putter.put("busy", f"t-{i}")
            i += 1
            time.sleep(0.002)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        wait_until("it goes", 10, lambda: ask(a, "queues", "queues", "busy", "-x")["queues"])
        looks = [valid("top", line) for line in a.ctl("top", "-n", "3", "-d", "0.15", "-j").splitlines()]
        assert len(looks) == 3, looks
        for look in looks:
            row, = [q for q in look["queues"] if q["name"] == "busy"]
            assert look["interval_s"] > 0 and row["puts_per_s"] > 5 and look["puts_per_s"] >= row["puts_per_s"], look
            assert look["status"]["node"] == node_id(a) and not look["more"], look
        only, = [valid("top", line) for line in a.ctl("top", "fa", "-n", "1", "-d", "0.1", "-j").splitlines()]
        assert [q["name"] for q in only["queues"]] == ["far"], only
        text = a.ctl("top", "-n", "2", "-d", "0.1")
        assert text.count("PUTS/s") == 2 and re.search(r"^busy +\d", text, re.M), text
        one = ask(a, "queue_show", "queue", "show", "busy")
        assert one["rates"]["puts_per_s"] > 5 and 0.4 < one["rates"]["interval_s"] < 5, one
        screen(a)
    finally:
        stop.set()
        thread.join()
    assert "rates" not in ask(a, "queue_show", "queue", "show", "busy", "-d", "0")
    refused(a, 2, "0.05 s at least", "top", "-d", "0")


def screen(node):
    """On a terminal: rows as wide as it, keys, and at the end all is as before."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 90, 0, 0))
    before = termios.tcgetattr(its)
    p = subprocess.Popen(program(node, "top", "-d", "0.1"), stdin=its, stdout=its, stderr=its)
    text = b""

    def seen(what):
        nonlocal text
        end = time.monotonic() + 15
        while what not in text and time.monotonic() < end:
            text += os.read(ours, 65536)
        assert what in text, (what, text[-2000:])
        text = text[text.index(what) + len(what):]

    seen(b"\x1b[?1049h")
    seen(b"QUEUE")
    seen(b"busy")
    os.write(ours, b"c")
    seen(b"CONSUMER")
    os.write(ours, b"h")
    seen(b"puts/s")
    os.write(ours, b"cn")  # queues again, by name
    seen(b"busy")
    os.write(ours, b" q")
    seen(b"\x1b[?1049l")
    assert p.wait(timeout=10) == 0
    assert termios.tcgetattr(its) == before, "the terminal is not as it was"
    # A signal ends it in the same way.
    p = subprocess.Popen(program(node, "top", "-d", "0.1"), stdin=its, stdout=its, stderr=its)
    seen(b"QUEUE")
    p.terminate()
    seen(b"\x1b[?1049l")
    assert p.wait(timeout=10) == 0 and termios.tcgetattr(its) == before
    os.close(its)
    os.close(ours)


# What spec/queues.md has under "Counters": where the node tells it, and of one queue, where `queue show` does.
COUNTERS = {
    "streams open": ("deliver_streams_out deliver_streams_in", ""),
    "deliveries streamed": ("deliver_deliveries_streamed queue_deliveries_remote", "counters.deliveries_remote"),
    "deliveries by unary": ("deliver_deliveries_unary", ""),
    "fallbacks to unary": ("deliver_fallbacks", ""),
    "idle closes": ("deliver_idle_closes", ""),
    "rejects": ("queue_rejects queue_rejected_by_all", "counters.rejects"),
    "deadline expiries": ("queue_deadlines queue_expired", "counters.deadlines counters.expired"),
    "cancels": ("queue_cancels", "counters.cancels"),
    "redeliveries": ("queue_redeliveries", "redeliveries counters.redeliveries"),
    "dead letters": ("queue_dead_letters", "dead_letters counters.dead_letters"),
    "refused by limit": ("queue_refused_too_large queue_refused_depth queue_refused_bytes queue_refused_limit "
                         "queue_refused_buffers", "refused counters.refused_depth counters.refused_bytes"),
    "acknowledges refused": ("queue_acks_refused", "counters.acks_refused"),
    "depth": ("queue_messages queue_depth", "messages"),
    "bytes": ("queue_bytes", "bytes"),
    "in flight": ("queue_in_flight queue_holds", "in_flight"),
    "age of the oldest": ("queue_waiting_oldest_seconds queue_in_flight_oldest_seconds", "waiting_oldest_ns in_flight_oldest_ns"),
    "time in queue": ("queue_wait_seconds_count", "wait_mean_ns wait_max_ns wait_times"),
    "accept time": ("queue_accept_seconds_count", "accept_mean_ns accept_times"),
}


def counters(b):
    stats = b.stats()
    one = ask(b, "queue_show", "queue", "show", "far", "-d", "0.1")["queue"]
    for what, (node, queue) in COUNTERS.items():
        for name in node.split():
            assert name in stats, (what, name)
        for path in queue.split():
            value = one
            for part in path.split("."):
                value = value[part]
            assert isinstance(value, int) or sum(b["count"] for b in value) == one["counters"]["accepts"] > 0, (what, path)
    listed = re.findall(r"^[XY]\((\w+), ", (SOURCE / "lib/queue/queue_counters.def").read_text(), re.M)
    assert set(one["counters"]) == set(listed) and len(listed) > 30, one["counters"]
    assert one["counters"]["acks"] == one["acks"] == 3 and one["counters"]["rejects"] == 1, one
    rows = ask(b, "queue_show", "queue", "show", "far", "-d", "0.1")["consumers"]
    assert sum(x["offers"] for x in rows) >= 4 and sum(x["acks"] for x in rows) >= 2, rows
    assert any(x["oldest_ns"] > 0 for x in rows), rows
    text = b.ctl("queue", "show", "far", "-d", "0.1")
    assert "a second" in text and re.search(r"^  acks +3 ", text, re.M) and "DELIVERIES/s" in text, text
    print("  " + text.replace("\n", "\n  "))


def main():
    need("etcdctl")
    with Cluster(sys.argv[1], nodes=2) as cluster:
        cluster.join()
        a, b = cluster.nodes
        putter = Putter(a)
        held(a, b, putter)
        next_ones(a, b, putter)
        counters(b)
        tops(a, b, Putter(a))
    print("what is followed holds")


if __name__ == "__main__":
    try:
        import jsonschema
    except ImportError:
        skip("python3-jsonschema is not installed")
    main()
