#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may be a peer, and TLS for clients and between nodes: trust.py BINARIES"""
import os
import subprocess
import sys
import time
import uuid

from cluster import Cluster, need, wait_until


def online(node):
    return node.stats("ringpost_repl_peers_online")["repl_peers_online"]


def wrong_secret():
    print("a node with another secret is no peer, on either path")
    c = Cluster(sys.argv[1], nodes=2)
    other = os.path.join(c.dir, "other")
    with open(os.open(other, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
        f.write(os.urandom(48).hex().encode())
    c.nodes[1].extra["links"] = {"secret_file": other}
    with c:
        for n in c.nodes:
            wait_until("the node answers", 20, n.ready)
        time.sleep(2)
        for n in c.nodes:
            assert online(n) == 0, n.log_text()
            assert n.stats("ringpost_link_")["link_bundles_up"] == 0
            assert "secret" in n.log_text()
        a, b = c.nodes
        a.etcdctl("put", "only-at-a", "x")
        assert b.etcdctl("get", "only-at-a").stdout == ""


def no_secret():
    print("without secrets the configured addresses are trusted, and the log says so")
    c = Cluster(sys.argv[1], nodes=2)
    for n in c.nodes:
        n.extra["links"] = {"secret_file": '""'}
    with c:
        c.join()
        assert "links.secret_file" in c.nodes[0].log_text()
        c.nodes[0].etcdctl("put", "k", "v")
        wait_until("the key arrives", 5,
                   lambda: c.nodes[1].etcdctl("get", "--print-value-only", "k").stdout == "v\n")


def other_cluster():
    print("a node of another cluster is refused with a line in the log")
    c = Cluster(sys.argv[1], nodes=2)
    c.nodes[0].start()
    c.uuid = str(uuid.uuid4())
    c.nodes[1].start()
    try:
        for n in c.nodes:
            wait_until("the node answers", 20, n.ready)
        wait_until("the refusal", 10, lambda: "another cluster" in c.nodes[0].log_text()
                   + c.nodes[1].log_text())
        assert online(c.nodes[0]) == 0
        # It is dialled again and again, and told of once.
        time.sleep(3)
        for n in c.nodes:
            assert n.log_text().count("another cluster") <= 1, n.log_text()
    finally:
        for n in c.nodes:
            assert n.stop() == 0


def make_certificates(d):
    def run(*args):
        subprocess.run(["openssl", *args], check=True, cwd=d, capture_output=True)

    run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test-ca")
    run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
        "node.key", "-out", "node.csr", "-subj", "/CN=node")
    with open(os.path.join(d, "ext"), "w", encoding="ascii") as f:
        f.write("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    run("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-out", "node.pem", "-days", "2", "-extfile", "ext")


class TlsCluster(Cluster):
    """Clients and peers speak TLS to the first listener; the tests' etcdctl brings the authority."""

    def __enter__(self):
        make_certificates(self.dir)
        urls = ",".join(f"https://{n.client}" for n in self.nodes)
        for n in self.nodes:
            n.extra["tls"] = ("{cert_file: %s/node.pem, key_file: %s/node.key, "
                              "peer_ca_file: %s/ca.pem}") % (self.dir, self.dir, self.dir)
            n.extra["listen_client_urls"] = f"https://{n.client}"
            n.extra["initial_advertise_peer_urls"] = urls
            plain = n.etcdctl
            n.etcdctl = lambda *args, plain=plain, d=self.dir, **more: plain(
                "--cacert", os.path.join(d, "ca.pem"), *args, **more)
            n.client = f"https://{n.client}"
        return super().__enter__()


def tls():
    print("TLS for clients and between control threads")
    with TlsCluster(sys.argv[1], nodes=2) as c:
        c.join()
        c.nodes[0].etcdctl("put", "k", "v")
        wait_until("the key arrives", 5,
                   lambda: c.nodes[1].etcdctl("get", "--print-value-only", "k").stdout == "v\n")
        r = subprocess.run(["etcdctl", "--endpoints", c.nodes[0].client.removeprefix("https://"),
                            "--dial-timeout", "1s", "--command-timeout", "2s", "get", "k"],
                           env=dict(os.environ, ETCDCTL_API="3"), capture_output=True, check=False)
        assert r.returncode != 0, "a plain client got through"


def main():
    need("etcdctl", "openssl")
    wrong_secret()
    no_secret()
    other_cluster()
    tls()
    print("trust holds")


if __name__ == "__main__":
    main()
