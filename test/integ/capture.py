#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ringpostctl capture between two real nodes: tshark reads the file and finds the link's stream both ways and nothing
malformed; filters, limits, a reader that reads nothing, and one that goes. No buffer is lost, no message late.

    capture.py BINARIES PORT
"""
import os
import signal
import subprocess
import sys
import time
import uuid

from cluster import Cluster, need, wait_until


def capture(node, *args, **kwargs):
    kwargs.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([os.path.join(node.cluster.bin, "ringpostctl", "ringpostctl"), "--endpoint",
                             f"unix:{node.admin}", "capture", *args], **kwargs)


def tshark(file, *args):
    r = subprocess.run(["tshark", "-n", "-r", file, *args], capture_output=True, text=True, timeout=60,
                       check=False)
    assert r.returncode == 0, r.stderr
    return r.stdout.splitlines()


def fields(file, *names):
    args = [x for n in names for x in ("-e", n)]
    return [tuple(line.split("\t")) for line in tshark(file, "-T", "fields", *args)]


def begun(file):
    """The file's head is there: the tap is about to be on, or is."""
    return os.path.exists(file) and os.path.getsize(file) > 0


def tap_free(node):
    """Blocks of the tap's pool that are not in use, and all that there are."""
    out = {}
    for line in node.ctl("stats", "ringpost_pool").splitlines():
        if 'pool="tap"' in line:
            out[line.split("{")[0]] = int(line.rsplit(" ", 1)[1])
    return out["ringpost_pool_free"], out["ringpost_pool_size"]


def is_full(node):
    """Nothing is left for the shard: what is free lies in the control thread's cache of the pool."""
    free, size = tap_free(node)
    return free <= size // 8 * 3 // 2


def nothing_lost(*nodes):
    for n in nodes:
        wait_until(f"all blocks are back: {tap_free(n)}", 10, lambda n=n: tap_free(n)[0] == tap_free(n)[1])


class Traffic:
    """Messages from a to a consumer at b."""

    def __init__(self, a, b):
        self.a, self.sent = a, 0
        consumer = f"/q/jobs/consumer/{uuid.uuid4()}"
        b.etcdctl("put", consumer, ";prefetch=10000")  # nothing is acknowledged
        self.watch = b.watch(consumer)
        wait_until("A knows the dispatcher", 10,
                   lambda: a.etcdctl("get", "--print-value-only", "/q/jobs").stdout.strip())

    def send(self, count, size=4000):
        begin = time.monotonic()
        for _ in range(count):
            self.sent += 1
            self.a.etcdctl("put", f"/q/jobs/producer/{uuid.uuid4()}", f"hello {self.sent} " + "." * size)
        wait_until("all have arrived", 20, lambda: self.arrived() >= self.sent)
        return time.monotonic() - begin

    def arrived(self):
        return "\n".join(self.watch.lines()).count("hello ")


def both_ways(a, b, traffic, folder):
    print("a capture of all, interrupted: both directions, nothing malformed")
    file = os.path.join(folder, "all.pcapng")
    p = capture(a, "-w", file)
    wait_until("the file begins", 10, lambda: begun(file))
    traffic.send(10)
    time.sleep(1.2)  # the counts are written once a second
    p.send_signal(signal.SIGINT)
    said = p.communicate(timeout=20)[1].decode()
    assert p.returncode == 0 and "packets captured, 0 found no room" in said, said
    packets = fields(file, "frame.len", "frame.cap_len", "frame.packet_flags_direction", "tcp.stream",
                     "ip.src", "ipv6.src", "frame.interface_name", "frame.time_epoch")
    assert int(said.split()[0]) == len(packets) > 20, said
    streams = [x for x in packets if x[3] != ""]
    ways = {x[2] for x in streams}
    assert len(ways) == 2, f"one direction only: {ways}"
    sources = {x[2]: {y[4] + y[5] for y in streams if y[2] == x[2]} for x in streams}
    assert all(len(s) == 1 for s in sources.values()) and len(set.union(*sources.values())) == 2, sources
    assert max(int(x[1]) for x in packets) <= 256 < max(int(x[0]) for x in packets)
    assert len({x[6] for x in packets}) == 1 and "" not in {x[6] for x in packets}, packets[0]
    assert abs(float(packets[-1][7]) - time.time()) < 30, packets[-1]
    assert [x[7] for x in packets] == sorted(x[7] for x in packets)
    assert tshark(file, "-Y", "_ws.malformed") == []
    assert tshark(file, "-Y", "tcp.analysis.ack_lost_segment or tcp.analysis.lost_segment") == [], \
        "segments are missing"
    info = subprocess.run(["capinfos", file], capture_output=True, text=True, timeout=30, check=True).stdout
    assert "pcapng" in info and "nanoseconds" in info and "ringpostd" in info, info
    # The stream is whole where frames are: the link's bytes are in it.
    whole = os.path.join(folder, "whole.pcapng")
    p = capture(b, "-w", whole, "--snaplen", "9216", "--seconds", "2")
    wait_until("the file begins", 10, lambda: begun(whole))
    traffic.send(3)
    assert p.wait(timeout=20) == 0
    number = traffic.sent
    with open(whole, "rb") as f:
        assert f"hello {number} ".encode() in f.read(), "the message is not in the file"
    assert tshark(whole, "-Y", "_ws.malformed or tcp.analysis.lost_segment") == []
    nothing_lost(a, b)


def filters(a, b, traffic, folder):
    print("filters and limits")
    show = a.ctl("show", "tcp").splitlines()[1].split()
    local, peer = show[0], show[1]
    file = os.path.join(folder, "some.pcapng")
    p = capture(a, "-w", file, "--peer", peer, "--packets", "8", "--port", "0")
    wait_until("the file begins", 10, lambda: begun(file))
    traffic.send(4)
    assert p.wait(timeout=20) == 0
    packets = fields(file, "tcp.port", "frame.packet_flags_direction")
    assert len(packets) == 8 and len({x[1] for x in packets}) == 2, packets
    ports = {local.rsplit(":", 1)[1], peer.rsplit(":", 1)[1]}
    assert all(set(x[0].split(",")) == ports for x in packets), (packets, ports)
    # Nothing is from there; and what the filter left out is no loss.
    p = capture(a, "-w", file, "--peer", "192.0.2.9", "--seconds", "1.5")
    wait_until("the file begins", 10, lambda: begun(file))
    traffic.send(2)
    assert p.wait(timeout=20) == 0 and fields(file, "frame.number") == []
    for args, text in ((["--port", "7"], "no such port"), (["--peer", "somewhere"], "not an endpoint"),
                       (["--snaplen", "70000"], "snaplen is 9216")):
        p = capture(a, "-w", os.devnull, *args)
        assert text in p.communicate(timeout=20)[1].decode() and p.returncode == 1, (args, text)
    for args in (["--packets", "x"], ["--seconds", "-1"], ["--what", "1"], ["-w"]):
        p = capture(a, *args, stdout=subprocess.DEVNULL)
        p.communicate(timeout=20)
        assert p.returncode == 2, args
    nothing_lost(a)


def slow_reader(a, b, traffic):
    print("a reader that reads nothing costs frames of the capture, not messages")
    without = traffic.send(12, 60000)
    p = capture(a, "-w", "-", "--snaplen", "9216", stdout=subprocess.PIPE)
    head = os.read(p.stdout.fileno(), 64)
    assert head[:4] == b"\x0a\x0d\x0d\x0a", head
    end = time.monotonic() + 60
    while not is_full(a) and time.monotonic() < end:
        traffic.send(12, 60000)
    assert is_full(a), tap_free(a)
    with_it = traffic.send(12, 60000)
    print(f"  12 messages of 60 kB: {without:.2f} s, with a full tap {with_it:.2f} s")
    assert with_it < 3 * without + 1, "the capture slows traffic"
    other = capture(a, "-w", os.devnull)
    assert "another capture" in other.communicate(timeout=20)[1].decode() and other.returncode == 1
    # It goes without a word: the blocks come back, and the next capture is let in.
    p.kill()
    p.communicate()
    nothing_lost(a)
    file = os.path.join(a.dir, "after.pcapng")
    p = capture(a, "-w", file, "--packets", "5")
    wait_until("the file begins", 10, lambda: begun(file))
    traffic.send(3)
    assert p.wait(timeout=20) == 0 and len(fields(file, "frame.number")) == 5
    nothing_lost(a)


def dropped_are_counted(a, traffic):
    print("what found no room is in the file's statistics")
    file = os.path.join(a.dir, "dropped.pcapng")
    with open(file, "wb") as f:
        p = capture(a, "-w", "-", "--snaplen", "9216", stdout=subprocess.PIPE)
        f.write(os.read(p.stdout.fileno(), 64))
        end = time.monotonic() + 60
        while not is_full(a) and time.monotonic() < end:
            traffic.send(12, 60000)
        traffic.send(12, 60000)
        # It reads again: what waited comes, then the counts.
        os.set_blocking(p.stdout.fileno(), False)
        quiet = time.monotonic()
        while time.monotonic() - quiet < 2.5:
            part = p.stdout.read()
            if part:
                f.write(part)
                quiet = time.monotonic() if len(part) > 4096 else quiet
            time.sleep(0.05)
        p.send_signal(signal.SIGTERM)
        said = p.communicate(timeout=20)
        f.write(said[0])
    dropped = int(said[1].split()[3])
    assert dropped > 0, said
    assert tshark(file, "-Y", "_ws.malformed") == []
    counted = last_ifdrop(file)
    assert counted == dropped, (counted, dropped)
    print(f"  {said[1].decode().strip()}")
    nothing_lost(a)


def last_ifdrop(file):
    """isb_ifdrop of the last statistics, read by hand: tshark does not print it."""
    with open(file, "rb") as f:
        data = f.read()
    at, value = 0, None
    while at + 12 <= len(data):
        kind = int.from_bytes(data[at:at + 4], "little")
        length = int.from_bytes(data[at + 4:at + 8], "little")
        o = at + 20
        while kind == 5 and o + 4 <= at + length - 4:
            code = int.from_bytes(data[o:o + 2], "little")
            n = int.from_bytes(data[o + 2:o + 4], "little")
            if code == 5:
                value = int.from_bytes(data[o + 4:o + 4 + n], "little")
            o += 4 + (n + 3 & ~3)
        at += length
    assert at == len(data), "the file does not end with a whole block"
    return value


def node_stops(node):
    print("a node stops in the middle of it")
    file = os.path.join(node.dir, "stopped.pcapng")
    p = capture(node, "-w", file)
    wait_until("the file begins", 10, lambda: begun(file))
    assert node.stop() == 0, node.log_text()[-2000:]
    assert "server stopped" in p.communicate(timeout=20)[1].decode() and p.returncode == 1
    assert tshark(file, "-Y", "_ws.malformed") == []


def main():
    need("etcdctl", "tshark", "capinfos")
    with Cluster(sys.argv[1], nodes=2, port=sys.argv[2]) as c:
        c.join()
        a, b = c.nodes
        traffic = Traffic(a, b)
        both_ways(a, b, traffic, c.dir)
        filters(a, b, traffic, c.dir)
        slow_reader(a, b, traffic)
        dropped_are_counted(a, traffic)
        node_stops(b)
    print("captures hold")


if __name__ == "__main__":
    main()
