#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two acts over net_af_packet on a veth pair between two network namespaces, with tshark looking
at every checksum, and ping answered by a shard: veth.py BINARIES"""
import os
import re
import subprocess
import sys
import time

import acts
from cluster import Cluster, need, skip, wait_until

BULK = 40


def ip(*args, ns=None):
    prefix = ["ip", "netns", "exec", ns] if ns else []
    subprocess.run([*prefix, "ip", *args], check=True, capture_output=True)


class VethCluster(Cluster):
    """Two namespaces with two veth pairs: `data` for DPDK, without kernel addresses, and `ctl`."""

    def __init__(self, binary_dir):
        super().__init__(binary_dir, nodes=2, port="af_packet")
        self.spaces = [f"rp{os.getpid()}-{i}" for i in range(2)]
        for n in self.nodes:
            n.client = f"10.99.0.{n.index + 1}:2379"
            n.prefix = ["ip", "netns", "exec", self.spaces[n.index]]

    def device(self, index):
        return "net_af_packet0,iface=data"

    def __enter__(self):
        try:
            for ns in self.spaces:
                ip("netns", "add", ns)
        except (subprocess.CalledProcessError, FileNotFoundError) as e:
            skip(f"no network namespaces here: {e}")
        for name in ("data", "ctl"):
            ip("link", "add", name, "netns", self.spaces[0], "type", "veth", "peer", "name", name,
               "netns", self.spaces[1])
        for i, ns in enumerate(self.spaces):
            ip("addr", "add", f"10.99.0.{i + 1}/24", "dev", "ctl", ns=ns)
            ip("link", "set", "lo", "up", ns=ns)
            for name in ("data", "ctl"):
                ip("link", "set", name, "up", ns=ns)
            subprocess.run(["ip", "netns", "exec", ns, "ethtool", "-K", "data", "tx", "off"],
                           check=True, capture_output=True)
            with open(os.devnull, "wb") as null:
                subprocess.run(["ip", "netns", "exec", ns, "sysctl", "-w",
                                "net.ipv6.conf.data.disable_ipv6=1"], stdout=null, stderr=null,
                               check=False)
        return super().__enter__()

    def __exit__(self, kind, value, trace):
        try:
            return super().__exit__(kind, value, trace)
        finally:
            for ns in self.spaces:
                subprocess.run(["ip", "netns", "del", ns], check=False, capture_output=True)


def capture(c):
    path = os.path.join(c.dir, "capture.pcapng")
    # To its output: tshark gives up the right to write into a folder that is ours alone.
    with open(path, "wb") as f:
        p = subprocess.Popen([*c.nodes[0].prefix, "tshark", "-q", "-i", "data", "-w", "-"],
                             stdout=f, stderr=subprocess.DEVNULL)
    wait_until("tshark captures", 30, lambda: os.path.getsize(path) > 0)
    return p, path


def count(path, display_filter):
    with open(path, "rb") as f:
        r = subprocess.run(["tshark", "-r", "-", "-o", "tcp.check_checksum:TRUE", "-o",
                            "ip.check_checksum:TRUE", "-Y", display_filter, "-T", "fields", "-e",
                            "frame.number"], stdin=f, capture_output=True, text=True, check=False)
    assert r.returncode == 0, r.stderr
    return len(r.stdout.split())


def bulk(c):
    """Messages of a kilobyte and more, so that segments of every size are seen."""
    a, b = c.nodes
    w = b.watch("/q/bulk/consumer/12345678-1234-1234-1234-123456789abc")
    wait_until("A knows the dispatcher", 10,
               lambda: a.etcdctl("get", "--print-value-only", "/q/bulk").stdout.strip())
    ends = [f"end-{i}-" for i in range(BULK)]
    for i, end in enumerate(ends):
        a.etcdctl("put", f"/q/bulk/producer/m{i}", "x" * (i * 397) + end)
    wait_until("all came", 20, lambda: all(any(line.endswith(end) for line in w.lines())
                                           for end in ends))


def ping(c):
    """The kernel takes over B's end of the pair, and asks A's shard."""
    a, b = c.nodes
    assert b.stop() == 0
    ip("addr", "add", "10.77.0.9/24", "dev", "data", ns=c.spaces[1])
    for size, sent in (("56", 20), ("1400", 20)):
        r = subprocess.run([*b.prefix, "ping", "-c", str(sent), "-i", "0.05", "-s", size, "-W", "2",
                            "10.77.0.1"], capture_output=True, text=True, check=False)
        print(r.stdout.strip().split("\n")[-2:])
        got = int(re.search(r"(\d+) received", r.stdout).group(1))
        assert got == sent, r.stdout


def main():
    need("etcdctl", "tshark", "ethtool", "ip", "ping")
    if os.geteuid() != 0:
        skip("namespaces and af_packet need root")
    with VethCluster(sys.argv[1]) as c:
        p, path = capture(c)
        acts.play(c, True)
        bulk(c)
        time.sleep(0.5)
        p.terminate()
        p.wait()
        good = count(path, "tcp.checksum.status == 1 && ip.checksum.status == 1")
        bad = count(path, "tcp.checksum.status == 0 || ip.checksum.status == 0")
        print(f"tshark: {good} segments, {bad} bad checksums")
        assert good > 50 and bad == 0
        ping(c)
    print("acts, checksums and ping hold over af_packet")


main()
