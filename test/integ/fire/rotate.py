#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cluster's secret is changed in running nodes, under load: rotate.py BINARIES FIRE PORT [--messages N]

PORT is none (three nodes over kernel sockets, of which the third is started anew in each mixture of old and new) or vhost
(two nodes, whose bundle is cut and made anew in each). By reload at one node after the other, three times: the new
secret is accepted, is sent, is the only one. No bundle ends by it, no message is lost, none comes twice or out of order;
a node that has only the old one is out, and a secret that cannot be read changes nothing."""
import argparse
import json
import os
import signal
import subprocess
import time

from load import Load
from cluster import Cluster, need, wait_until

DEAD_MS = 2000


def secret(path):
    with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as f:
        f.write(os.urandom(48).hex().encode())
    return path


def by_reason(node, name, reason):
    return sum(int(line.rsplit(" ", 1)[1]) for line in node.ctl("stats", name).splitlines()
               if f'reason="{reason}"' in line)


def configure(c, node, now, before):
    links = {"per_peer": 2, "dead_after_ms": DEAD_MS, "secret_file": now}
    if before:
        links["previous_secret_file"] = before
    node.extra["links"] = links
    node.write_config()


def reload(node, how):
    """By the command, or by the signal."""
    if how == "command":
        return json.loads(node.ctl("reload", "-j"))
    said = node.log_text().count("configuration read again")
    node.process.send_signal(signal.SIGHUP)
    wait_until("the signal is done", 20, lambda: node.log_text().count("configuration read again") > said)
    return None


def downs(nodes):
    return sum(n.stats("ringpost_link_downs")["link_downs"] for n in nodes)


def all_up(c):
    others = len(c.nodes) - 1
    for n in c.nodes:
        wait_until(f"the links of node {n.index}", 30, lambda n=n: n.stats(
            "ringpost_link_bundles_up")["link_bundles_up"] == others)
        wait_until(f"node {n.index} sees all online", 30, lambda n=n: n.stats(
            "ringpost_repl_peers_online")["repl_peers_online"] == others)


def renew(c):
    """Bundles are made anew, with the secrets as they are now at each node."""
    if len(c.nodes) == 3:
        assert c.nodes[2].stop() == 0
        c.nodes[2].start()
        wait_until("node 2 is ready", 60, c.nodes[2].ready)
    else:
        ups = c.nodes[0].stats("ringpost_link_ups")["link_ups"]
        for n in c.nodes:
            n.ctl("impair", "0", "cut=1")
        wait_until("the bundle ends", 20, lambda: all(n.stats(
            "ringpost_link_bundles_up")["link_bundles_up"] == 0 for n in c.nodes))
        for n in c.nodes:
            n.ctl("impair", "0")
        wait_until("another bundle", 20, lambda: c.nodes[0].stats("ringpost_link_ups")["link_ups"] > ups)
    all_up(c)


def rotate(c, load, old, new):
    hows = ["command", "signal", "command"]
    for name, now, before in (("accepted", old, new), ("sent", new, old), ("alone", new, None)):
        for n, how in zip(c.nodes, hows):
            ended = downs(c.nodes)
            configure(c, n, now, before)
            said = reload(n, how)
            if said:
                assert said["done"] and not said["kept"], said
                assert all(x["knob"].startswith("links.") for x in said["changed"]) and said["changed"], said
            time.sleep(0.3)
            assert downs(c.nodes) == ended, "a reload has ended a bundle"
            if n is c.nodes[0] or name == "sent":
                renew(c)
        load.alive()
        assert not load.ended, "the load was over before the change was; more --messages"
        print(f"  the new secret is {name}: {load.last}", flush=True)
    proved = sum(n.stats("ringpost_link_secret_previous")["link_secret_previous"] for n in c.nodes)
    assert proved > 0, "no link met a node with the other secret"
    print(f"  {proved} proofs were by the previous secret")


def other_contents(c, path):
    """The same file, and other bytes in it: first unreadable, then by all nodes at once."""
    a = c.nodes[0]
    os.chmod(path, 0o644)
    r = subprocess.run([os.path.join(c.bin, "ringpostctl", "ringpostctl"), "--endpoint", f"unix:{a.admin}",
                        "reload"], capture_output=True, text=True, timeout=30, check=False)
    assert r.returncode == 1 and "links.secret_file" in r.stderr and "mode 644" in r.stderr, r
    os.chmod(path, 0o600)
    assert a.ctl("reload").startswith("0 changed"), "nothing was to change"
    secret(path)
    for n in c.nodes:
        said = reload(n, "command")
        assert [x["knob"] for x in said["changed"]] == ["links.secret_file"], said
        assert said["changed"][0]["is"].endswith("(other contents)"), said
    renew(c)


def left_behind(c, path, old):
    """The last node comes with the secret of before."""
    last = c.nodes[-1]
    assert last.stop() == 0
    configure(c, last, old, None)
    last.start()
    wait_until("it answers", 60, last.ready)

    # By gRPC first: who proves nothing there is not told where links listen, and is not dialed.
    wait_until("it is refused", 20, lambda: "the secret is wrong" in last.log_text().split("ready:")[-1]
               or "did not prove" in "".join(n.log_text() for n in c.nodes))
    assert last.stats("ringpost_link_bundles_up")["link_bundles_up"] == 0
    assert last.stats("ringpost_repl_peers_online")["repl_peers_online"] == 0
    assert sum(by_reason(n, "ringpost_link_handshakes_refused", "accepted") for n in c.nodes) == 0
    print("  with the old secret: no peer, no link")
    configure(c, last, path, None)
    assert reload(last, "command")["done"]
    all_up(c)


def main():
    need("etcdctl")
    config = {"shards": '{idle: adaptive, cpus: "0,1"}', "dpdk": "{hugepages: off, memory_mib: 320}",
              "links": {"per_peer": 2, "dead_after_ms": DEAD_MS}}
    port = None if o.port == "none" else o.port
    with Cluster(o.binaries, nodes=2 if port else 3, port=port, config=config) as c:
        c.join(90)
        old, new = c.secret, secret(os.path.join(c.dir, "new"))
        load = Load(o.fire, c.nodes[:2], messages=o.messages, rate=o.rate, queues=20, in_flight=100, seed=o.seed)
        try:
            load.wait("puts", 30, lambda p: p["put0"] > 20)
            print(f"a secret is changed over {o.port}, {o.rate} messages a second, seed {o.seed}", flush=True)
            rotate(c, load, old, new)
            result = load.end(200)
        finally:
            load.kill()
        assert result["put"] == o.messages and result["faults"] == result["missing"] == result["again"] == 0, result
        other_contents(c, new)
        left_behind(c, new, old)
    print("no bundle ended by it, and no message was lost")


p = argparse.ArgumentParser()
p.add_argument("binaries")
p.add_argument("fire")
p.add_argument("port")
p.add_argument("--messages", type=int, default=5000)
p.add_argument("--rate", type=int, default=200)
p.add_argument("--seed", type=int, default=int(time.time()))
o = p.parse_args()
main()
