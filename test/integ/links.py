#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""k links a peer between real nodes: links.py BINARIES PORT [short]

PORT is memif, vhost or none (kernel sockets). Nodes of four shards with k = 1, 2 and 4: the bundle is up
with all its links, messages of many queues keep their order, and a node with another k is refused with the reason.
`short` has k = 4 in the clear and k = 2 over TLS, and sends fewer messages."""
import json
import os
import shutil
import subprocess
import sys
import uuid

from cluster import Cluster, need, wait_until
from trust import make_certificates

SHARDS = 4
SHORT = sys.argv[3:] == ["short"]
QUEUES = 12
MESSAGES = 4 if SHORT else 10


def config(k):
    return {"shards": '{idle: adaptive, cpus: "0,1,0,1"}', "links": {"per_peer": k}}


def links_of(node):
    return json.loads(node.ctl("links", "-j"))["links"]


def order_is_kept(a, b):
    watches = {}
    for q in range(QUEUES):
        at = b if q % 2 else a
        watches[q] = at.watch(f"/q/many{q}/consumer/{uuid.uuid4()}")
    for q in range(QUEUES):
        other = a if q % 2 else b
        wait_until(f"the other node knows who dispatches many{q}", 20,
                   lambda q=q, other=other: other.etcdctl(
                       "get", "--print-value-only", f"/q/many{q}").stdout.strip())
    for m in range(MESSAGES):
        for q in range(QUEUES):
            at = a if q % 2 else b
            at.etcdctl("put", f"/q/many{q}/producer/t-{m}", f"q{q}m{m}")
    for q, w in watches.items():
        w.wait(f"q{q}m{MESSAGES - 1}", 20)
        got = [line for line in w.lines() if line.startswith(f"q{q}m")]
        assert got == [f"q{q}m{m}" for m in range(MESSAGES)], got
        w.stop()


class SecureCluster(Cluster):
    """Links over TLS: an authority, and a certificate of it for all."""

    def __enter__(self):
        for name in ("good", "bad"):
            path = os.path.join(self.dir, name)
            os.mkdir(path)
            make_certificates(path)
        for n in self.nodes:
            path = os.path.join(self.dir, "good")
            # gRPC between them stays plain, so only links meet the other authority.
            n.extra["tls"] = (f"{{peer_cert_file: {path}/node.pem, peer_key_file: {path}/node.key, "
                              f"peer_ca_file: {path}/ca.pem}}")
            n.extra["links"] = {**n.extra["links"], "tls": "on"}
        return super().__enter__()


def each_link(c, k, secure):
    """Each link of the bundle, as both nodes show it."""
    sides = [links_of(n)[0] for n in c.nodes]
    for mine, yours in (sides, sides[::-1]):
        assert [x["link"] for x in mine["bundle_links"]] == list(range(k)), mine
        for a, b in zip(mine["bundle_links"], yours["bundle_links"]):
            assert a["state"] == "up" and a["shard"] == mine["shards"][a["link"]], a
            # One connection, seen from either end.
            assert a["local"] == b["peer"] and a["peer"] == b["local"] and a["dialed"] != b["dialed"], (a, b)
            assert a["transport"] == ("tcp" if c.port else "ktcp") and a["port"] == 0, a
            assert a["placement"] == mine["placement"], a
            if a["placement"] in ("rss", "hand-over"):
                assert a["in_range"] == (a["shard"] * k // SHARDS == a["link"]) is True, a
                assert a["aimed"] == a["dialed"], a
            assert a["bytes_sent"] > 0 and a["bytes_received"] > 0, a
        dialed = [x for x in mine["bundle_links"] if x["dialed"]]
        assert len({x["local"] for x in dialed}) == len(dialed) in (0, k), mine
    if not secure:
        text = c.nodes[0].ctl("links")
        assert len(text.splitlines()) == 4 + k and "PLACEMENT" in text, text
        print("  " + text.replace("\n", "\n  "))


def streams_by_link(c, k):
    """Streams and frames of all queues are spread over the links by their hash, and nothing else."""
    for n in c.nodes:
        (row,) = links_of(n)
        lines = row["bundle_links"]
        assert sum(x["streams_out"] for x in lines) == row["streams_out"] > 0, row
        assert sum(x["streams_in"] for x in lines) == row["streams_in"], row
        for x in lines:
            assert (x["streams_out"] + x["streams_in"] > 0) <= (x["frames_sent"] + x["frames_received"] > 0), x
        assert k == 1 or sum(x["frames_sent"] > 0 for x in lines) > 1, lines


def bundle(binaries, port, k, kind=Cluster):
    print(f"k = {k} over {port}" + (", TLS" if kind is SecureCluster else ""))
    with kind(binaries, port=None if port == "none" else port, config=config(k)) as c:
        a, b = c.nodes
        c.join()
        for n in c.nodes:
            (link,) = links_of(n)
            assert link["state"] == "up" and len(link["shards"]) == k, link
            # Each link lies in its range of shards, at both ends, where all shards have stacks.
            if link["placement"] in ("rss", "hand-over"):
                assert [s * k // SHARDS for s in link["shards"]] == list(range(k)), link
            else:
                assert len(set(link["shards"])) == 1, link
        each_link(c, k, kind is SecureCluster)
        done = [n.stats("ringpost_link_handshakes_done")["link_handshakes_done"] for n in c.nodes]
        # A dialer that comes before it is known as a peer is refused, and comes again.
        assert min(done) >= k, done
        before = [n.stats() for n in c.nodes]
        order_is_kept(a, b)
        after = [n.stats() for n in c.nodes]
        streamed = sum(y["deliver_forwards_streamed"] - x["deliver_forwards_streamed"]
                       for x, y in zip(before, after))
        unary = sum(y["deliver_forwards_unary"] - x["deliver_forwards_unary"]
                    for x, y in zip(before, after))
        assert streamed == QUEUES * MESSAGES and unary == 0, (streamed, unary)
        streams_by_link(c, k)
        print(f"  {streamed} messages of {QUEUES} queues by streams, in order; links on shards",
              [link["shards"] for n in c.nodes for link in links_of(n)], links_of(a)[0]["placement"])


def another_k(binaries, port):
    print("another k is refused with its reason")
    with Cluster(binaries, port=None if port == "none" else port, config=config(2)) as c:
        c.nodes[1].extra["links"] = {"per_peer": 4}
        c.nodes[1].stop()
        c.nodes[1].start()
        for n in c.nodes:
            wait_until("it answers", 60, n.ready)

        def refused():
            return any(link["last_refusal"] == "links.per_peer differs"
                       for n in c.nodes for link in links_of(n))
        wait_until("the dialer knows why", 30, refused)
        assert all(link["state"] != "up" for n in c.nodes for link in links_of(n))
        for n, text in zip(c.nodes, ("links.per_peer: 2 here, 4 there", "links.per_peer: 4 here, 2 there")):
            wait_until("both say why", 10, lambda n=n, text=text: links_of(n)[0]["obstacle"] == text)
            said = f"no link to node {links_of(n)[0]['node']}: {text}"
            wait_until("so does the log", 5, lambda n=n, said=said: said in n.log_text())
        # The unary path carries what there is meanwhile.
        w = c.nodes[1].watch(f"/q/k/consumer/{uuid.uuid4()}")
        wait_until("the dispatcher is known", 20, lambda: c.nodes[0].etcdctl(
            "get", "--print-value-only", "/q/k").stdout.strip())
        c.nodes[0].etcdctl("put", "/q/k/producer/one", "one")
        w.wait("one", 20)
        print("  refused:", [link["last_refusal"] for n in c.nodes for link in links_of(n)])


def other_rings(binaries):
    print("the rings of a memif port follow k: with another number at the other end it stays down, and both say so")
    with Cluster(binaries, port="memif", config=config(2)) as c:
        c.nodes[1].extra["links"] = {"per_peer": 4}
        c.nodes[1].stop()
        c.nodes[1].start()
        for n in c.nodes:
            wait_until("it answers", 60, n.ready)
        rings = [n.stats("ringpost_port_queues")["port_queues"] for n in c.nodes]
        assert rings[0] != rings[1], rings
        for n, (here, there) in zip(c.nodes, (rings, rings[::-1])):
            text = f"ports[0]: memif wants as many rings at both ends: {here} here, {there} there"
            wait_until("both say why", 20, lambda n=n, text=text: links_of(n)[0]["obstacle"] == text)
            wait_until("so does the log", 5, lambda n=n, text=text: text in n.log_text())
            assert n.log_text().count(text) == 1 and text[:40] in n.ctl("links"), n.log_text()
            assert n.stats("ringpost_port_link_up")["port_link_up"] == 0
        print("  rings:", rings)


def another_authority(binaries, port):
    print("a certificate of another authority is refused")
    with SecureCluster(binaries, port=None if port == "none" else port, config=config(2)) as c:
        c.nodes[1].stop()
        path = os.path.join(c.dir, "bad")
        c.nodes[1].extra["tls"] = (f"{{peer_cert_file: {path}/node.pem, peer_key_file: {path}/node.key, "
                                   f"peer_ca_file: {path}/ca.pem}}")
        c.nodes[1].start()
        for n in c.nodes:
            wait_until("it answers", 60, n.ready)
        wait_until("the dialer knows why", 30, lambda: any(
            link["last_refusal"].startswith("TLS") for n in c.nodes for link in links_of(n)))
        assert all(link["state"] != "up" for n in c.nodes for link in links_of(n))
        # The files become good ones: both see it without a word, and without a restart.
        for name in ("ca.pem", "node.pem", "node.key"):
            shutil.copy(os.path.join(c.dir, "good", name), os.path.join(path, name))
        wait_until("good files are used", 20, lambda: all(
            link["state"] == "up" for n in c.nodes for link in links_of(n)))
        assert "certificates loaded anew" in c.nodes[1].log_text()


def stranger(binaries, port):
    print("a node without the secret is met with silence")
    with Cluster(binaries, port=None if port == "none" else port, config=config(2)) as c:
        other = c.nodes[1].dir + "/other"
        subprocess.run(["sh", "-c", f"umask 077; head -c 40 /dev/urandom > {other}"], check=True)
        c.nodes[1].stop()
        c.nodes[1].extra["links"] = {"per_peer": 2, "secret_file": other}
        c.nodes[1].start()
        for n in c.nodes:
            wait_until("it answers", 60, lambda n=n: n.ctl("status"))
        # No reason comes over the link: the dialer sees a MAC that proves nothing, or no dial at all.
        wait_until("nobody is up", 5, lambda: all(
            link["state"] != "up" for n in c.nodes for link in links_of(n)))
        told = {link["last_refusal"] for n in c.nodes for link in links_of(n)}
        assert told <= {"", "the secret is wrong", "closed before the handshake was over"}, told
        print("  told:", told)


def main():
    need("etcdctl")
    binaries, port = sys.argv[1:3]
    for k in (4,) if SHORT else (1, 2, 4):
        bundle(binaries, port, k)
    if port == "memif":
        other_rings(binaries)
    else:
        another_k(binaries, port)
    stranger(binaries, port)
    if shutil.which("openssl"):
        bundle(binaries, port, 2, SecureCluster)
        if not SHORT:
            another_authority(binaries, port)


if __name__ == "__main__":
    main()
