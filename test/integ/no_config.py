#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Without configuration: ready within a second, and a queue between two etcdctl on one host:
no_config.py BINARIES"""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid

from cluster import Watch, free_port, need, wait_until

ringpostd = os.path.abspath(os.path.join(sys.argv[1], "ringpostd", "ringpostd"))
# Half a second on a quiet machine; the bound leaves room for tests that run beside this one.
READY_S = 5.0
# Whoever shares the machine makes a start slow, never fast: the best of a few counts.
TRIES = 5


class Node:
    """Its address is the one flag, so that the test needs no port of its own on the host."""

    def __init__(self, root):
        self.dir = tempfile.mkdtemp(dir=root)
        self.client = f"127.0.0.1:{free_port()}"
        self.prefix = []
        self.begin = time.monotonic()
        self.log = open(os.path.join(self.dir, "log"), "w", encoding="utf-8")
        self.process = subprocess.Popen([ringpostd, "--listen-client-urls", self.client],
                                        cwd=self.dir, stdout=self.log, stderr=self.log)

    def etcdctl(self, *args, check=True):
        r = subprocess.run(["etcdctl", "--endpoints", self.client, *args], capture_output=True,
                           env=dict(os.environ, ETCDCTL_API="3"), text=True, timeout=30, check=False)
        assert not check or r.returncode == 0, f"{args}: {r.stdout}{r.stderr}"
        return r

    def first_put(self):
        """Seconds from exec to the end of the first put that succeeds."""
        host, port = self.client.split(":")
        while time.monotonic() < self.begin + 30:
            assert self.process.poll() is None, open(self.log.name, encoding="utf-8").read()
            try:
                socket.create_connection((host, int(port))).close()
            except OSError:
                time.sleep(0.005)
                continue
            if self.etcdctl("put", "key", "value", check=False).returncode == 0:
                return time.monotonic() - self.begin
        raise AssertionError("no put within 30 s")

    def stop(self):
        self.process.terminate()
        status = self.process.wait(timeout=20)
        self.log.close()
        assert status == 0, f"status {status}"


def queue(node):
    consumer = uuid.uuid4()
    w = Watch(node, f"/q/jobs/consumer/{consumer}")
    try:
        wait_until("the queue is known", 10,
                   lambda: node.etcdctl("get", "--print-value-only", "/q/jobs").stdout.strip())
        node.etcdctl("put", "/q/jobs/producer/job-1", "hello")
        key = w.wait("hello")
        assert node.etcdctl("del", key).stdout.strip() == "1"
        assert node.etcdctl("get", key).stdout == ""
    finally:
        w.stop()
    node.etcdctl("put", "/q/left/producer/job-2", "nobody is there to take it")


def main():
    need("etcdctl")
    root = tempfile.mkdtemp(prefix="ringpost-noconf-")
    taken = []
    try:
        shown = subprocess.run([ringpostd, "--dump-config"], cwd=root, capture_output=True, text=True,
                               check=True).stdout
        assert "localhost:2379" in shown, shown
        while len(taken) < TRIES and (not taken or min(taken) > READY_S):
            node = Node(root)
            try:
                taken.append(node.first_put())
                if len(taken) == 1:
                    queue(node)
            finally:
                node.stop()
            with open(node.log.name, encoding="utf-8") as log:
                said = "1 messages are lost" in log.read()
            assert said == (len(taken) == 1), "whoever stops it is told what is lost"
    finally:
        shutil.rmtree(root)
    print("seconds to the first put: " + ", ".join(f"{t:.2f}" for t in taken))
    assert min(taken) <= READY_S, f"not within {READY_S} s"


main()
