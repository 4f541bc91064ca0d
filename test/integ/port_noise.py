#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random bytes on the peer port, over our own TCP: port_noise.py BINARIES [SEED]

A has a port to B (vhost), and one to the kernel (af_packet on a veth pair), which says nonsense to
the port for links. Each such connection is closed; the link to B and A's clients notice nothing, and
no buffer is lost. All of it is in a network namespace that ends with the test."""
import os
import random
import shutil
import subprocess
import sys
import threading
import time

from bad_input import Client, closes, noise
from cluster import Cluster, need, skip, wait_until

INSIDE = "RP_PORT_NOISE_INSIDE"
ADDRESS = "10.78.0.1"


def enter():
    """This program again, in a namespace of its own."""
    need("etcdctl", "ip", "ethtool", "unshare")
    if os.geteuid() != 0:
        skip("namespaces and af_packet need root")
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode != 0:
        skip("no network namespaces here")
    os.environ[INSIDE] = "1"
    os.execv(shutil.which("unshare"), ["unshare", "-n", sys.executable, *sys.argv])


def run(*args):
    subprocess.run(args, check=True, capture_output=True)


def veth():
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "kernel", "type", "veth", "peer", "name", "dpdk")
    run("ethtool", "-K", "kernel", "tx", "off")
    run("ip", "addr", "add", "10.78.0.9/24", "dev", "kernel")
    for name in ("kernel", "dpdk"):
        run("ip", "link", "set", name, "up")


def cluster(binaries):
    c = Cluster(binaries, nodes=2)
    sock = os.path.join(c.dir, "port.sock")
    c.nodes[0].extra["ports"] = (f"[{{device: 'net_vhost0,iface={sock}', ipv4: 10.77.0.1/24}}, "
                                 f"{{device: 'net_af_packet0,iface=dpdk', ipv4: {ADDRESS}/24}}]")
    c.nodes[1].extra["ports"] = f"[{{device: 'net_virtio_user0,path={sock}', ipv4: 10.77.0.2/24}}]"
    return c


# A virtual port keeps up to a ring of sent buffers until it wants the descriptors again, and the
# stack a few headers ready; noise that left a buffer a connection would be seen over that.
HELD = 256 + 16


def messages(a, b, ended, done, failures):
    """Messages from A to B all the while, each acknowledged: `done` has them."""
    w = b.watch("/q/noise/consumer/12345678-1234-1234-1234-123456789abc")
    try:
        wait_until("A knows the dispatcher", 60,
                   lambda: a.etcdctl("get", "--print-value-only", "/q/noise").stdout.strip())
        for i in range(100000):
            if ended.is_set():
                return
            a.etcdctl("put", f"/q/noise/producer/m{i}", f"value-{i}")
            assert b.etcdctl("del", w.wait(f"value-{i}", 60)).stdout.strip() == "1"
            done.append(i)
    except Exception as e:  # noqa: BLE001 - told by main()
        failures.append(e)


def main():
    if INSIDE not in os.environ:
        enter()
    veth()
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "big")
    rng = random.Random(seed)
    print(f"random bytes over our own TCP, seed {seed}")
    with cluster(sys.argv[1]) as c:
        c.join(90)
        a, b = c.nodes
        before = a.stats()
        ended, done, failures = threading.Event(), [], []
        traffic = threading.Thread(target=messages, args=(a, b, ended, done, failures))
        client = Client(a)
        traffic.start()
        client.start()
        count = 0
        while count < 400 or (len(done) < 3 and count < 5000 and not failures):
            closes(a.link_port, noise(rng, b""), f"connection {count}", ADDRESS)
            count += 1
        ended.set()
        traffic.join()
        client.stop()
        assert not failures, f"the traffic between A and B failed: {failures[0]}"
        after = a.stats()
        grown = {k: after[k] - before.get(k, 0) for k in after}
        print(f"  {len(done)} messages and {client.puts} puts went on meanwhile; "
              f"{grown['link_handshakes_refused']} connections refused")
        assert grown["link_handshakes_refused"] == count, grown
        assert grown["link_downs"] == 0 and grown["link_ups"] == 0, grown
        wait_until("no buffer is lost, and no connection is left", 30,
                   lambda: a.stats()["tcp_connections"] == before["tcp_connections"]
                   and a.stats()["pool_free"] >= before["pool_free"] - HELD)
    print("the noise stayed on its connections")


main()
