#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TLS of a ringpostd: certificates that change while it runs, ALPN, suites, clients' certificates
and a list of those that are not good any more.

    tls.py BINARIES
"""
import http.client
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time

from gateway_server import WAIT_S, free_port

BINARIES = os.path.abspath(sys.argv[1])


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


class Authority:
    def __init__(self, folder):
        self.folder = folder
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                "-nodes", "-keyout", self.path("ca.key"), "-out", self.path("ca.pem"), "-days", "2",
                "-subj", "/CN=test ca")
        with open(self.path("ca.conf"), "w", encoding="utf-8") as f:
            f.write(f"[ca]\ndefault_ca=d\n[d]\ndatabase={self.path('index')}\n"
                    f"crlnumber={self.path('number')}\ndefault_md=sha256\n"
                    "default_crl_days=1\n")
        open(self.path("index"), "w").close()
        with open(self.path("number"), "w", encoding="utf-8") as f:
            f.write("01\n")

    def path(self, name):
        return os.path.join(self.folder, name)

    def make(self, name, cn):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", self.path(name + ".key"), "-out", self.path(name + ".csr"), "-subj",
                f"/CN={cn}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        openssl("x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.path("ca.pem"),
                "-CAkey", self.path("ca.key"), "-CAcreateserial", "-days", "2", "-copy_extensions",
                "copy", "-out", self.path(name + ".pem"))

    def revoke(self, name, out, form="PEM"):
        conf = self.path("ca.conf")
        keys = ["-keyfile", self.path("ca.key"), "-cert", self.path("ca.pem")]
        openssl("ca", "-config", conf, "-revoke", self.path(name + ".pem"), *keys)
        openssl("ca", "-config", conf, "-gencrl", "-out", self.path("crl.pem"), *keys)
        openssl("crl", "-in", self.path("crl.pem"), "-outform", form, "-out", out)


class Node:
    def __init__(self, ca, *flags):
        self.ca, self.port = ca, free_port()
        self.log = open(ca.path(f"log-{self.port}"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [os.path.join(BINARIES, "ringpostd", "ringpostd"), "--listen-client-urls",
             f"https://127.0.0.1:{self.port}", "--tls-cert-file", ca.path("live.pem"),
             "--tls-key-file", ca.path("live.key"), *flags], cwd=ca.folder, stdout=self.log,
            stderr=self.log)
        end = time.monotonic() + WAIT_S
        while "ready" not in self.text():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.05)

    def text(self):
        return open(self.log.name, encoding="utf-8").read()

    def context(self, client=None, alpn=None, ciphers=None):
        c = ssl.create_default_context(cafile=self.ca.path("ca.pem"))
        c.maximum_version = ssl.TLSVersion.TLSv1_2
        if client:
            c.load_cert_chain(self.ca.path(client + ".pem"), self.ca.path(client + ".key"))
        if alpn:
            c.set_alpn_protocols(alpn)
        if ciphers:
            c.set_ciphers(ciphers)
        return c

    def version(self, **kinds):
        """The answer to /version, or the failure."""
        c = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=WAIT_S,
                                        context=self.context(**kinds))
        try:
            c.request("GET", "/version")
            return c.getresponse().status
        except (OSError, http.client.HTTPException) as e:
            return e
        finally:
            c.close()

    def open(self, **kinds):
        c = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=WAIT_S,
                                        context=self.context(**kinds))
        c.connect()
        return c

    def shown(self):
        """Common name of the certificate that new connections get."""
        c = self.open()
        subject = dict(x[0] for x in c.sock.getpeercert()["subject"])
        c.close()
        return subject["commonName"]

    def stop(self):
        self.process.terminate()
        status = self.process.wait(timeout=WAIT_S)
        assert status == 0, (status, self.text())


def wait_for(what, fn):
    end = time.monotonic() + WAIT_S
    while not fn():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def put_live(ca, name):
    """Key first: between the two the pair does not match, and what was before stays."""
    for kind in ("key", "pem"):
        shutil.copy(ca.path(f"{name}.{kind}"), ca.path("new"))
        os.replace(ca.path("new"), ca.path(f"live.{kind}"))


def reload(ca):
    put_live(ca, "one")
    node = Node(ca)
    try:
        assert node.shown() == "one"
        old = node.open()
        old.request("GET", "/version")
        assert old.getresponse().read()
        put_live(ca, "two")
        wait_for("the new certificate", lambda: node.shown() == "two")
        # A connection that was open goes on.
        old.request("GET", "/version")
        assert old.getresponse().status == 200
        old.close()
        # A file that is no certificate is told, and changes nothing.
        with open(ca.path("live.pem"), "w", encoding="utf-8") as f:
            f.write("no certificate")
        wait_for("the complaint", lambda: "certificates stay as they are" in node.text())
        assert node.shown() == "two"
        put_live(ca, "one")
        node.process.send_signal(signal.SIGHUP)
        wait_for("the first certificate again", lambda: node.shown() == "one")
    finally:
        node.stop()


def protocols(ca):
    node = Node(ca, "--tls-cipher-suites", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")
    try:
        for offered, chosen in ((["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"),
                                (None, None)):
            c = node.open(alpn=offered)
            assert c.sock.selected_alpn_protocol() == chosen, (offered, chosen)
            assert "CHACHA20" in c.sock.cipher()[0], c.sock.cipher()
            c.close()
        assert node.version() == 200
        assert node.version(alpn=["http/1.1"]) == 200
        assert isinstance(node.version(ciphers="ECDHE-ECDSA-AES128-GCM-SHA256"), ssl.SSLError)
    finally:
        node.stop()


def clients(ca):
    for form in ("PEM", "DER"):
        ca.make("good", "good")
        ca.make("bad", "bad")
        ca.revoke("bad", ca.path("revoked"), form)
        # The CA alone asks for certificates, as with etcd; client_cert_auth makes users of their names.
        auth = ["--tls-client-cert-auth", "true"] if form == "PEM" else []
        node = Node(ca, "--tls-ca-file", ca.path("ca.pem"), *auth, "--tls-crl-file", ca.path("revoked"))
        try:
            assert node.version(client="good") == 200
            assert isinstance(node.version(), OSError)
            assert isinstance(node.version(client="bad"), OSError)
        finally:
            node.stop()


def main():
    if not shutil.which("openssl"):
        print("SKIP: openssl is not installed")
        return 77
    folder = tempfile.mkdtemp(prefix="tls-")
    try:
        ca = Authority(folder)
        for name in ("one", "two"):
            ca.make(name, name)
        reload(ca)
        protocols(ca)
        clients(ca)
    finally:
        shutil.rmtree(folder)
    print("ok")
    return 0


sys.exit(main())
