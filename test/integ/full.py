#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that runs out: full.py BINARIES

Queues that nobody empties fill what two nodes have for messages. Their producers are told, at either node; other queues go on,
with consumers that come and go; a node joins again; and what is emptied can be filled anew.
"""
import sys
import uuid

from cluster import Cluster, need, wait_until

MIB = 1 << 20
BIG = "x" * MIB


def put(node, queue, tail, value=""):
    """None, or why not. A value from standard input has no end of line of its own."""
    r = node.etcdctl("put", f"/q/{queue}/producer/{tail}", check=False, data=value.encode())
    return None if r.returncode == 0 else r.stderr.decode()


def fill(node, queue):
    for i in range(1000):
        error = put(node, queue, f"t{i}", BIG)
        if error:
            assert f'desc = queue "{queue}": queue is full: dpdk.memory_mib' in error, error
            assert "code = ResourceExhausted" in error, error
            return i
    raise AssertionError(f"{queue} takes more than 1000 MiB")


def free(node):
    """The part of the messages' buffers that is free."""
    lines = dict(line.rsplit(" ", 1) for line in node.ctl("stats", "ringpost_pool").splitlines())
    return int(lines['ringpost_pool_free{pool="queue"}']) / int(lines['ringpost_pool_size{pool="queue"}'])


def goes_on(at, to, queue, count):
    """A consumer at `to` that was not there before, puts at `at`: each delivered and acknowledged."""
    uid = uuid.uuid4()
    w = to.watch(f"/q/{queue}/consumer/{uid}")
    for i in range(count):
        value = f"{queue}-{uid}-{i}"
        error = put(at, queue, f"m{i}", value)
        assert error is None, error
        w.wait(value)
        assert to.etcdctl("del", w.key_of(value)).stdout.strip() == "1"
    w.stop()


def drain(node, queue, count):
    """All of it, by one client that acknowledges what it gets."""
    prefix = f"/q/{queue}/consumer/{uuid.uuid4()}"
    w = node.watch(prefix)
    done = 0
    with open(w.path, encoding="ascii") as out:
        rest = ""

        def step():
            nonlocal done, rest
            *lines, rest = (rest + out.read()).split("\n")
            for line in lines:
                if line.startswith(prefix + "/"):
                    assert node.etcdctl("del", line).stdout.strip() == "1", line
                    done += 1
            return done == count

        wait_until(f"{count} of {queue}", 120, step)
    w.stop()


def main():
    need("etcdctl")
    config = {"dpdk": "{hugepages: off, memory_mib: 256}", "limits": "{queue_bytes: 1 GiB}"}
    with Cluster(sys.argv[1], nodes=2, port="vhost", config=config) as c:
        c.join()
        a, b = c.nodes
        hogs = {"hog0": fill(a, "hog0"), "hog1": fill(a, "hog1"), "hog2": fill(a, "hog2")}
        print("full:", hogs, f"free at the dispatcher: {free(a):.0%}")
        assert hogs["hog0"] > 3 * hogs["hog1"] > 0, hogs
        assert free(a) > 1 / 32, free(a)
        # The dispatcher's refusal reaches the requester at the other node.
        error = put(b, "hog0", "t", BIG)
        assert error and 'queue "hog0": queue is full: dpdk.memory_mib' in error, error
        for at, to in ((a, a), (a, b), (b, a), (b, b)):
            goes_on(at, to, f"busy{at.index}{to.index}", 10)
        b.stop()
        goes_on(a, a, "alone", 5)
        b.start()
        b.ready()
        wait_until("the link is up again", 30, lambda: a.stats("ringpost_link")["link_bundles_up"] == 1)
        goes_on(a, b, "again", 5)
        assert a.stats("ringpost_queue")["queue_refused_buffers"] >= 4
        for queue, count in hogs.items():
            drain(b, queue, count)
        wait_until("the buffers are back", 10, lambda: free(a) > 0.95)
        assert fill(a, "hog3") == hogs["hog0"]
        print("holds")


main()
