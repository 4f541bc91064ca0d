#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A worker dies with a thousand messages: worker_dies.py BINARIES PORT

Killed without a word: all come back within resume_ms + 100 ms of its connection's end, to another consumer, in order, each
once. And one that returns within resume_ms keeps them, and is shown again what it says it missed, no more."""
import os
import sys
import threading
import time
import uuid

from cluster import Cluster, need, skip, wait_until

try:
    import etcd3
except ImportError:
    etcd3 = None

COUNT = 1000
RESUME_S = 1.0


class Consumer:
    """Events of one watch, with the time of each."""

    def __init__(self, node, key, start_revision=None):
        host, port = node.client.split(":")
        self.client = etcd3.client(host=host, port=int(port))
        self.events = []
        self.lock = threading.Lock()
        self.id = self.client.add_watch_callback(key, self.take, start_revision=start_revision)

    def take(self, response):
        if isinstance(response, Exception):
            return
        with self.lock:
            self.events += [(time.monotonic(), e.key.decode(), e.value.decode(), e.mod_revision)
                            for e in response.events if isinstance(e, etcd3.events.PutEvent)]

    def values(self):
        with self.lock:
            return [e[2] for e in self.events]

    def stop(self):
        self.client.close()


def fill(node, queue):
    host, port = node.client.split(":")
    client = etcd3.client(host=host, port=int(port))
    for i in range(COUNT):
        client.put(f"/q/{queue}/producer/t{i}", f"{queue}-{i}")
    client.close()


def key_of(node, queue):
    key = f"/q/{queue}/consumer/{uuid.uuid4()}"
    node.etcdctl("put", key, f";prefetch={COUNT}")
    return key


def killed(a, b):
    """The worker is at A, the survivor at B, whose prefetch is free."""
    victim = a.watch(key_of(a, "jobs"))
    wait_until("the worker", 10, lambda: b.etcdctl("get", "--prefix", "--keys-only", "/q/jobs/c/").stdout.strip())
    fill(a, "jobs")
    wait_until("it has them all", 30, lambda: victim.lines().count("PUT") == COUNT)
    other = Consumer(b, key_of(b, "jobs"))
    time.sleep(0.5)
    assert not other.values(), other.values()
    at = time.monotonic()
    victim.process.kill()
    wait_until("all are with the other", 30, lambda: len(other.values()) >= COUNT)
    values, took = other.values(), other.events[COUNT - 1][0] - at
    first = other.events[0][0] - at
    assert values == [f"jobs-{i}" for i in range(COUNT)], values[:10]
    print(f"  killed: the first after {first * 1000:.0f} ms, all {COUNT} after {took * 1000:.0f} ms")
    # From the pool the last of them still crosses a link and a client: that is its time, not the rule's.
    assert RESUME_S - 0.05 <= first <= RESUME_S + 0.1, first
    time.sleep(0.5)
    assert len(other.values()) == COUNT
    other.stop()


def returns(a):
    key = key_of(a, "steps")
    fill(a, "steps")
    worker = Consumer(a, key)
    wait_until("it has them all", 30, lambda: len(worker.values()) == COUNT)
    revisions = [e[3] for e in worker.events]
    worker.stop()
    time.sleep(RESUME_S / 2)
    again = Consumer(a, key, start_revision=revisions[COUNT // 2])
    wait_until("what it missed", 10, lambda: len(again.values()) >= COUNT - COUNT // 2)
    time.sleep(2 * RESUME_S)
    assert again.values() == [f"steps-{i}" for i in range(COUNT // 2, COUNT)], again.values()[:5]
    assert [e[3] for e in again.events] == revisions[COUNT // 2:]
    # The others are its own as before.
    assert a.etcdctl("del", worker.events[0][1]).stdout.strip() == "1"
    again.stop()
    print("  back in time: it has what it had, and was shown what it had missed")


def main():
    need("etcdctl")
    if etcd3 is None:
        skip("python3-etcd3 is not here")
    # Its threads complain of a client that was closed.
    threading.excepthook = lambda args: None
    with Cluster(sys.argv[1], nodes=2, port=None if sys.argv[2] == "none" else sys.argv[2]) as c:
        c.join()
        killed(*c.nodes)
        returns(c.nodes[0])


if __name__ == "__main__":
    main()
    # gRPC does not survive that these threads are there when the interpreter ends.
    sys.stdout.flush()
    os._exit(0)
