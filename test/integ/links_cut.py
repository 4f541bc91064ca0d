#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A path that is cut without a word, and peers that never finish: links_cut.py BINARIES PORT

PORT is af_packet (our stack) or none (kernel sockets). Two nodes in namespaces, joined by a bridge in a third one: what
the bridge drops, neither end hears of. Bounds: the bundle ends within dead_after_ms + 100 ms of the cut, deliveries
go on at another consumer, and the bundle is back within a second of the path's return. Then strangers whose first bytes
are wrong: each is closed without a byte, and counted by its reason; one without the secret hears no reason. Then 300 connections that say a byte a second: each
is closed one grace after its connect, and a good peer comes up meanwhile."""
import json
import os
import select
import socket
import subprocess
import sys
import time
import uuid
from datetime import datetime

from cluster import Cluster, need, skip, wait_until

DEAD_MS = 1500
GRACE_MS = 4000
STRANGERS = 300
STRANGER = {"ctl": "10.99.0.99/24", "data": "10.77.0.99/24"}
# First bytes, and what they are refused for.
PREAMBLE = b"RPLK\x01\x00\x00\x02" + b"\x01" * 8
WRONG = {
    "not a handshake": b"GET / HTTP/1.1\r\n\r\n",
    "unknown protocol version": b"RPLK\x02" + PREAMBLE[5:],
    "plain or TLS does not match links.tls": b"RPLK\x01\x01" + PREAMBLE[6:],
    "closed before the handshake was over": PREAMBLE[:9],
}
CHALLENGE_BYTES = 84


def ip(*args, ns=None):
    prefix = ["ip", "netns", "exec", ns] if ns else []
    subprocess.run([*prefix, "ip", *args], check=True, capture_output=True)


class Bridged(Cluster):
    """A namespace for each node, and one with the bridges that join them: `ctl`, and `data` for DPDK."""

    def __init__(self, binary_dir, port, config):
        super().__init__(binary_dir, nodes=2, port=port, config=config)
        self.names = ["ctl"] + (["data"] if port else [])
        self.spaces = [f"rp{os.getpid()}-{i}" for i in range(2)]
        self.middle = f"rp{os.getpid()}-m"
        for n in self.nodes:
            n.client = f"10.99.0.{n.index + 1}:2379"
            n.prefix = ["ip", "netns", "exec", self.spaces[n.index]]

    def device(self, index):
        return "net_af_packet0,iface=data" if self.port else None

    def __enter__(self):
        try:
            for ns in [self.middle, *self.spaces]:
                ip("netns", "add", ns)
        except (subprocess.CalledProcessError, FileNotFoundError) as e:
            skip(f"no network namespaces here: {e}")
        for name in self.names:
            ip("link", "add", f"br-{name}", "type", "bridge", ns=self.middle)
            ip("link", "set", f"br-{name}", "up", ns=self.middle)
            # Strangers are there: hosts of the same network, with a kernel that sums what it sends itself.
            ip("addr", "add", STRANGER[name], "dev", f"br-{name}", ns=self.middle)
            subprocess.run(["ip", "netns", "exec", self.middle, "ethtool", "-K", f"br-{name}", "tx", "off"],
                           check=True, capture_output=True)
            for i, ns in enumerate(self.spaces):
                far = f"{name}{i}"
                ip("link", "add", name, "netns", ns, "type", "veth", "peer", "name", far, "netns", self.middle)
                ip("link", "set", far, "master", f"br-{name}", "up", ns=self.middle)
                ip("link", "set", name, "up", ns=ns)
                ip("link", "set", "lo", "up", ns=ns)
                if name == "ctl":
                    ip("addr", "add", f"10.99.0.{i + 1}/24", "dev", name, ns=ns)
                else:
                    subprocess.run(["ip", "netns", "exec", ns, "ethtool", "-K", name, "tx", "off"],
                                   check=True, capture_output=True)
        return super().__enter__()

    def __exit__(self, kind, value, trace):
        try:
            return super().__exit__(kind, value, trace)
        finally:
            for ns in [self.middle, *self.spaces]:
                subprocess.run(["ip", "netns", "del", ns], check=False, capture_output=True)

    def path(self, up):
        """The ends keep their carrier: nothing tells them."""
        for name in self.names:
            ip("link", "set", f"br-{name}", "up" if up else "down", ns=self.middle)


def up(node):
    return node.stats("ringpost_link_bundles_up")["link_bundles_up"] == 1


def logged(node, what):
    """When the node last said so: a question to it takes a while on a busy machine, its own word does not."""
    line = [text for text in node.log_text().splitlines() if what in text][-1]
    return datetime.fromisoformat(line.split()[0].replace("Z", "+00:00")).timestamp()


def cut(c):
    a, b = c.nodes
    wa = a.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
    wait_until("a dispatcher", 20, lambda: b.etcdctl("get", "--print-value-only", "/q/jobs").stdout.strip())
    wb = b.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
    wait_until("two consumers", 20, lambda: len(a.etcdctl(
        "get", "--prefix", "--keys-only", "/q/jobs/c/").stdout.split()) == 2)
    for i in range(4):
        a.etcdctl("put", f"/q/jobs/producer/before-{i}", f"before-{i}")
    wait_until("both consumers have some", 20, lambda: all(
        any(line.startswith("before-") for line in w.lines()) for w in (wa, wb)))
    c.path(False)
    at = time.time()
    wait_until("the bundle ends", 20, lambda: not up(a))
    took = (logged(a, "[link] warning: down: ") - at) * 1000
    print(f"  the bundle ended {took:.0f} ms after the cut, dead_after_ms = {DEAD_MS}")
    assert took <= DEAD_MS + 100, took
    downs = by_reason(a, "ringpost_link_downs")
    assert downs["no heartbeat within links.dead_after_ms"] == 1, downs
    (row,) = json.loads(a.ctl("links", "-j"))["links"]
    assert row["last_down"] == "no heartbeat within links.dead_after_ms" and row["downs"] == 1, row
    assert 0 < row["down_ago_ns"] < 20e9 and row["last_down"] in a.ctl("links"), row
    for i in range(6):
        a.etcdctl("put", f"/q/jobs/producer/during-{i}", f"during-{i}")
    wait_until("deliveries go on", 20, lambda: all(wa.key_of(f"during-{i}") for i in range(6)))
    assert not any(line.startswith("during-") for line in wb.lines())
    # What B holds and has not acknowledged is offered again once its death is certain.
    held = [v for v in (f"before-{i}" for i in range(4)) if v in wb.lines()]
    wait_until(f"{held} are offered again", 20, lambda: all(wa.key_of(v) for v in held))
    for round_ in range(2):
        if round_:
            c.path(False)
            time.sleep(DEAD_MS / 1000 + 1)
            assert not up(a)
        c.path(True)
        back = time.time()
        wait_until("the bundle is back", 20, lambda: up(a) and up(b))
        took = (max(logged(n, "[link] info: up: ") for n in (a, b)) - back) * 1000
        print(f"  the bundle is back {took:.0f} ms after the path")
        assert took <= 1000, took
    for w in (wa, wb):
        w.stop()


def by_reason(node, name):
    """A counter by its reason, over all shards."""
    counts = {}
    for line in node.ctl("stats", name).splitlines():
        labels, value = line.rsplit(" ", 1)
        reason = labels.split('reason="')[1].split('"')[0]
        counts[reason] = counts.get(reason, 0) + int(value)
    return counts


def acceptor(c):
    """The two nodes, that which accepts behind, and where it listens."""
    low, high = sorted(c.nodes, key=lambda n: int(json.loads(n.ctl("links", "-j"))["node"]))
    net, port = ("10.77.0", 7400) if c.port else ("10.99.0", high.link_port)
    return low, high, ["%s.%d" % (net, high.index + 1), str(port)]


def stranger(c, what, where):
    """This program in the namespace between the nodes."""
    return subprocess.Popen(
        ["ip", "netns", "exec", c.middle, sys.executable, os.path.abspath(__file__), what, *where],
        stdout=subprocess.PIPE, text=True)


def wrong_bytes(c):
    _, high, where = acceptor(c)
    before = by_reason(high, "ringpost_link_handshakes_refused")
    out = json.loads(stranger(c, "wrong", where).communicate(timeout=60)[0])
    assert out == {reason: "silence" for reason in WRONG}, out

    def counted():
        now = by_reason(high, "ringpost_link_handshakes_refused")
        return all(now[reason] == before[reason] + 1 for reason in WRONG)
    wait_until("each is counted once", 10, counted)
    assert up(high), "a stranger has ended a bundle"


def wrong_secret(c):
    """Everything is right but for the MAC: the acceptor's own challenge comes, and no word of why it is closed."""
    low, high, where = acceptor(c)
    before = by_reason(high, "ringpost_link_handshakes_refused")["the secret is wrong"]
    ids = [json.loads(n.ctl("links", "-j"))["node"] for n in (low, high)]
    out = json.loads(stranger(c, "secret", [*where, c.uuid, *ids]).communicate(timeout=60)[0])
    assert out == {"bytes": CHALLENGE_BYTES}, out
    wait_until("it is counted", 10, lambda: by_reason(
        high, "ringpost_link_handshakes_refused")["the secret is wrong"] == before + 1)
    assert up(high), "a stranger has ended a bundle"


def secret(host, port, cluster, low, high):
    nodes = [int(n).to_bytes(8, "little") for n in (low, high)]
    hello = (b"\x01\x01\x58\x00" + uuid.UUID(cluster).bytes + nodes[0] + nodes[1] + b"\x07" * 8
             + b"\xff" * 7 + b"\x00" + os.urandom(32) + b"\x02\x00\x00\x00")
    got = 0
    with socket.create_connection((host, port), timeout=5) as s:
        s.sendall(b"RPLK\x01\x00\x00\x02" + nodes[0] + hello)
        while got < CHALLENGE_BYTES:
            part = s.recv(CHALLENGE_BYTES - got)
            assert part, f"closed after {got} bytes"
            got += len(part)
        s.sendall(b"\x03\x01\x24\x00" + os.urandom(32))
        try:
            got += len(s.recv(100))
        except ConnectionResetError:
            pass
    print(json.dumps({"bytes": got}))


def wrong(host, port):
    out = {}
    for reason, first in WRONG.items():
        with socket.create_connection((host, port), timeout=5) as s:
            s.sendall(first)
            if len(first) < len(PREAMBLE):
                s.shutdown(socket.SHUT_WR)
            try:
                out[reason] = "silence" if s.recv(100) == b"" else "bytes"
            except ConnectionResetError:
                out[reason] = "silence"
    print(json.dumps(out))


def drip(c):
    low, high, where = acceptor(c)
    reached = stranger(c, "strangers", where)
    assert reached.stdout.readline().strip() == "connected"
    time.sleep(1)
    # A good peer among them: its bundle is made anew.
    low.stop()
    at = time.monotonic()
    low.start()
    wait_until("the good peer is ready", 20, low.ready)
    ready = time.monotonic()
    wait_until("the good peer is up", 20, lambda: up(high))
    print(f"  a good peer was up {time.monotonic() - at:.2f} s after its start, "
          f"{time.monotonic() - ready:.2f} s after it was ready")
    assert time.monotonic() - ready < 2
    out = json.loads(reached.stdout.read())
    assert reached.wait() == 0
    print("  strangers:", out)
    assert out["closed"] == STRANGERS, out
    assert out["latest_ms"] <= GRACE_MS + 700, out
    refused = by_reason(high, "ringpost_link_handshakes_refused")
    late = refused["not finished within links.handshake_grace_ms"]
    early = refused["too many handshakes in flight"]
    print(f"  refused: {late} at the end of their grace, {early} at the bound of handshakes in flight")
    assert late + early >= STRANGERS and late >= 200, refused
    # Over kernel sockets one shard has them all; over ports each counts its own.
    assert c.port or early >= STRANGERS - 256, refused


def strangers(host, port):
    """A byte a second from each, of a preamble that is good as far as it goes."""
    preamble = PREAMBLE + b"\x01\x01\x58\x00" + b"\x00" * 84
    alive, ages = {}, []
    for _ in range(STRANGERS):
        s = socket.create_connection((host, port), timeout=5)
        s.setblocking(False)
        alive[s] = [time.monotonic(), 0]
    print("connected", flush=True)
    end, said = time.monotonic() + GRACE_MS / 1000 + 5, 0
    while alive and time.monotonic() < end:
        for s in select.select(list(alive), [], [], 0.05)[0]:
            try:
                gone = s.recv(100) == b""
            except OSError:
                gone = True
            if gone:
                ages.append(time.monotonic() - alive.pop(s)[0])
                s.close()
        if time.monotonic() - said >= 1:
            said = time.monotonic()
            for s, state in list(alive.items()):
                try:
                    s.send(preamble[state[1]:state[1] + 1])
                    state[1] += 1
                except OSError:
                    pass
    print(json.dumps({"closed": len(ages), "latest_ms": round(max(ages, default=0) * 1000),
                      "at_the_cap": sum(a < GRACE_MS / 1000 - 0.5 for a in ages)}))


def main():
    if sys.argv[1] in ("strangers", "wrong", "secret"):
        play = {"strangers": strangers, "wrong": wrong, "secret": secret}[sys.argv[1]]
        play(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
        return
    need("etcdctl", "ethtool", "ip")
    if os.geteuid() != 0:
        skip("namespaces need root")
    port = None if sys.argv[2] == "none" else sys.argv[2]
    config = {"links": {"per_peer": 2, "heartbeat_ms": 100, "dead_after_ms": DEAD_MS,
                        "handshake_grace_ms": GRACE_MS},
              "shards": '{idle: adaptive, cpus: "0,1"}'}
    with Bridged(sys.argv[1], port, config) as c:
        c.join()
        print(f"a path that is cut, over {sys.argv[2]}")
        cut(c)
        print("strangers with wrong bytes")
        wrong_bytes(c)
        wrong_secret(c)
        print(f"{STRANGERS} strangers that say a byte a second")
        drip(c)


if __name__ == "__main__":
    main()
