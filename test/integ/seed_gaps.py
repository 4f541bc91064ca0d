#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the documents that Ringpost comes from leave broken, each as a test with real nodes that its behaviour fails:

    seed_gaps.py BINARIES GAP

Each function says what went wrong there."""
import json
import signal
import sys
import time
import uuid

from cluster import Cluster, need, skip, wait_until

CONFIG = {"links": {"dead_after_ms": 1500}}


def node_id(node):
    bits = uuid.UUID(node.uuid).int
    return str(bits >> 64 ^ bits & (1 << 64) - 1)


def dispatched_by(queue, node, by):
    wait_until(f"node {node.index} knows who dispatches {queue}", 15, lambda: node.etcdctl(
        "get", "--print-value-only", f"/q/{queue}").stdout.startswith(node_id(by)))


def keep_at(queue, node):
    """A consumer that nothing is for: the queue is dispatched there, and stays."""
    idle = uuid.uuid4()
    node.etcdctl("put", f"/q/{queue}/consumer/{idle}", ";match=nothing")
    w = node.watch(f"/q/{queue}/consumer/{idle}")
    wait_until("it dispatches", 15, lambda: node.etcdctl(
        "get", "--print-value-only", f"/q/{queue}").stdout.startswith(node_id(node)))
    return w


def messages(nodes):
    return sum(n.stats("ringpost_queue")["queue_messages"] for n in nodes)


def forwarded_ack_on_dispatcher():
    """A message that another node forwarded could not be acknowledged on the dispatcher's own node: its index was the
    forwarder's, so the delete found nothing, and it came again."""
    with Cluster(sys.argv[1], nodes=2, config=CONFIG) as c:
        c.join()
        a, b = c.nodes
        w = b.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        dispatched_by("jobs", a, b)
        a.etcdctl("put", "/q/jobs/producer/one", "hello")
        key = w.wait("hello")
        assert b.etcdctl("del", key).stdout.strip() == "1"
        assert messages(c.nodes) == 0
        time.sleep(1.5)
        assert w.lines().count("PUT") == 1, "it came again"


def consumer_dead_before_ack():
    """What a consumer held when it died was gone, or lay at its node for ever: nobody was offered it again."""
    with Cluster(sys.argv[1], nodes=2, config=CONFIG) as c:
        c.join()
        a, b = c.nodes
        keep = keep_at("jobs", a)
        w = b.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        wait_until("A knows the consumer", 10, lambda: "1 here, 1 on other" in a.ctl("route", "explain", "jobs"))
        a.etcdctl("put", "/q/jobs/producer/one", "hello")
        w.wait("hello")
        w.process.kill()
        other = a.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        key = other.wait("hello", 15)
        assert a.etcdctl("del", key).stdout.strip() == "1" and messages(c.nodes) == 0
        # And so when the whole node dies.
        keep2 = keep_at("jobs2", a)
        third = b.watch(f"/q/jobs2/consumer/{uuid.uuid4()}")
        wait_until("A knows the consumer", 10, lambda: "1 here, 1 on other" in a.ctl("route", "explain", "jobs2"))
        a.etcdctl("put", "/q/jobs2/producer/one", "again")
        third.wait("again")
        b.stop(signal.SIGKILL)
        last = a.watch(f"/q/jobs2/consumer/{uuid.uuid4()}")
        assert a.etcdctl("del", last.wait("again", 20)).stdout.strip() == "1"
        keep.stop()
        keep2.stop()


def registry_of_an_unreachable_node():
    """A node that could not be reached for a moment kept what it knew of the registry then: what was written, and
    deleted, meanwhile never came to it."""
    with Cluster(sys.argv[1], nodes=3, config=CONFIG) as c:
        c.join()
        a, b, d = c.nodes
        gone = b.watch(f"/q/old/consumer/{uuid.uuid4()}")
        dispatched_by("old", d, b)
        d.process.send_signal(signal.SIGSTOP)
        for n in (a, b):
            wait_until("it fell away", 15, lambda n=n: n.stats("ringpost_repl")["repl_peers_online"] == 1)
        new = uuid.uuid4()
        w = b.watch(f"/q/new/consumer/{new}")
        dispatched_by("new", a, b)
        gone.stop()
        wait_until("the old consumer's record is gone", 15, lambda: not a.etcdctl(
            "get", "--prefix", "--keys-only", "/q/old/c/").stdout.strip())
        d.process.send_signal(signal.SIGCONT)
        wait_until("it is back", 30, lambda: d.stats("ringpost_repl")["repl_peers_online"] == 2)
        dispatched_by("new", d, b)
        wait_until("it knows the new consumer", 15, lambda: d.etcdctl(
            "get", "--keys-only", f"/q/new/c/{new}").stdout.strip())
        wait_until("and not the old one", 15, lambda: not d.etcdctl(
            "get", "--prefix", "--keys-only", "/q/old/c/").stdout.strip())
        d.etcdctl("put", "/q/new/producer/x", "by the one that was away")
        assert b.etcdctl("del", w.wait("by the one that was away")).stdout.strip() == "1"


def ack_after_a_move():
    """After the dispatcher had moved, an acknowledge went to the old one, or removed another message that had the same
    number at the new one."""
    with Cluster(sys.argv[1], nodes=2, config=CONFIG) as c:
        c.join()
        a, b = c.nodes
        keep = keep_at("jobs", a)
        w = b.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        wait_until("A knows the consumer", 10, lambda: "1 here, 1 on other" in a.ctl("route", "explain", "jobs"))
        for i in range(3):
            a.etcdctl("put", f"/q/jobs/producer/m{i}", f"first {i}")
        keys = [w.wait(f"first {i}") for i in range(3)]
        # It moves to B, where new messages begin.
        a.ctl("drain", "--seconds", "10")
        dispatched_by("jobs", b, b)
        for i in range(3):
            b.etcdctl("put", f"/q/jobs/producer/n{i}", f"second {i}")
        late = [w.wait(f"second {i}") for i in range(3)]
        assert b.etcdctl("del", keys[1]).stdout.strip() == "1"
        assert a.etcdctl("del", keys[0]).stdout.strip() == "1", "through the old dispatcher's node"
        assert messages(c.nodes) == 4
        assert b.etcdctl("del", keys[0]).stdout.strip() == "0"
        for key in (keys[2], *late):
            assert b.etcdctl("get", "--print-value-only", key).stdout.strip(), "another was removed for it"
            assert b.etcdctl("del", key).stdout.strip() == "1"
        assert messages(c.nodes) == 0 and w.lines().count("PUT") == 6
        keep.stop()


def delete_that_looks_like_an_ack():
    """A delete of any key whose path ended like a delivered one, /x/y/<number>/<tail>, was taken for an acknowledge."""
    with Cluster(sys.argv[1], nodes=1) as c:
        n, = c.nodes
        wait_until("it answers", 30, n.ready)
        who = uuid.uuid4()
        w = n.watch(f"/q/jobs/consumer/{who}")
        n.etcdctl("put", "/q/jobs/producer/one", "hello")
        idx = w.wait("hello").split("/")[5]
        for key in (f"/app/jobs/{idx}/one", f"/x/jobs/c/{who}/{idx}/one", f"q/jobs/{idx}/one", f"//q/jobs/{idx}/one"):
            n.etcdctl("put", key, "mine")
            assert n.etcdctl("del", key).stdout.strip() == "1", key
            assert messages(c.nodes) == 1, key
        # Another queue, another index, another holder, a range.
        for key in (f"/q/other/{idx}/one", f"/q/jobs/{int(idx) + 1}/one"):
            assert n.etcdctl("del", key).stdout.strip() == "0", key
        assert n.etcdctl("del", f"/q/jobs/c/{uuid.uuid4()}/{idx}/one", check=False).returncode != 0
        n.etcdctl("del", "--prefix", f"/q/jobs/{idx}", check=False)
        assert messages(c.nodes) == 1
        assert n.etcdctl("del", f"/q/jobs/{idx}/one").stdout.strip() == "1" and messages(c.nodes) == 0


def forged_x_peer():
    """A client that sent the metadata x-peer was taken for a peer: its writes went past every rule, and were not
    spread."""
    try:
        import grpc
    except ImportError:
        skip("python3-grpcio is not installed")
    with Cluster(sys.argv[1], nodes=2, config={**CONFIG, "readonly_prefix": "locked/"}) as c:
        c.join()
        a, b = c.nodes

        def call(path, body):
            with grpc.insecure_channel(a.client) as channel:
                return channel.unary_unary(path)(body, timeout=10, metadata=(("x-peer", node_id(b)),))

        def put(key, value):
            return b"\x0a" + bytes([len(key)]) + key + b"\x12" + bytes([len(value)]) + value

        before = a.stats("ringpost_etcd_peer_unproved")["etcd_peer_unproved"]
        call("/etcdserverpb.KV/Put", put(b"forged", b"x"))
        wait_until("it was spread as a client's", 10, lambda: b.etcdctl(
            "get", "--print-value-only", "forged").stdout.strip() == "x")
        for path, body in (("/etcdserverpb.KV/Put", put(b"locked/key", b"x")),
                           ("/ringpost.v1.Peer/Apply", b""), ("/ringpost.v1.Peer/DeliverOne", b"")):
            try:
                call(path, body)
                raise RuntimeError(f"{path} was taken")
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.PERMISSION_DENIED, e
        assert a.stats("ringpost_etcd_peer_unproved")["etcd_peer_unproved"] >= before + 3


def hung_peer_and_a_put():
    """A put waited for every peer, and one that hung held it up for ever."""
    with Cluster(sys.argv[1], nodes=3, config={**CONFIG, "repl": "{ack_ms: 500}"}) as c:
        c.join()
        a, b, d = c.nodes
        for n in (b, d):
            n.process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        a.etcdctl("put", "key", "value")
        took = time.monotonic() - begin
        assert took < 3, f"a put took {took:.1f} s"
        w = a.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        a.etcdctl("put", "/q/jobs/producer/one", "hello")
        a.etcdctl("del", w.wait("hello", 10))
        for n in (b, d):
            n.process.send_signal(signal.SIGCONT)
        for n in (b, d):
            wait_until("it has the key", 30, lambda n=n: n.etcdctl(
                "get", "--print-value-only", "key").stdout.strip() == "value")
        print(f"  the put took {took:.2f} s")


def slow_peer_recovers():
    """A peer that was once too slow stayed Spare until it was started again."""
    with Cluster(sys.argv[1], nodes=2, config=CONFIG) as c:
        c.join()
        a, b = c.nodes
        for _ in range(2):
            b.process.send_signal(signal.SIGSTOP)
            wait_until("it is spare", 15, lambda: a.stats("ringpost_repl")["repl_peers_online"] == 0)
            a.etcdctl("put", "while-it-slept", str(time.time()))
            b.process.send_signal(signal.SIGCONT)
            wait_until("it is online again, by itself", 30, lambda: a.stats(
                "ringpost_repl")["repl_peers_online"] == 1 and b.stats("ringpost_repl")["repl_peers_online"] == 1)
        state = {n["name"]: n["state"] for n in json.loads(a.ctl("nodes", "-j"))["nodes"]}
        assert state == {"n0": "online", "n1": "online"}, state
        want = a.etcdctl("get", "--print-value-only", "while-it-slept").stdout
        assert b.etcdctl("get", "--print-value-only", "while-it-slept").stdout == want


def first_node_alone():
    """The first node of a cluster waited for a peer to sync with, and served nobody."""
    with Cluster(sys.argv[1], nodes=3, config=CONFIG) as c:
        a, b, d = c.nodes
        for n in (b, d):
            n.stop(signal.SIGKILL)
        a.stop(signal.SIGKILL)
        # Now it is the first, with two configured peers of which none is there.
        begin = time.monotonic()
        a.start()
        wait_until("it serves alone", 15, a.ready)
        print(f"  ready after {time.monotonic() - begin:.1f} s")
        a.etcdctl("put", "first", "alone")
        w = a.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        a.etcdctl("put", "/q/jobs/producer/one", "hello")
        a.etcdctl("del", w.wait("hello", 10))
        for n in (b, d):
            n.start()
        for n in (b, d):
            wait_until("who comes later has it", 30, lambda n=n: n.ready() and n.etcdctl(
                "get", "--print-value-only", "first").stdout.strip() == "alone")


GAPS = [forwarded_ack_on_dispatcher, consumer_dead_before_ack, registry_of_an_unreachable_node, ack_after_a_move,
        delete_that_looks_like_an_ack, forged_x_peer, hung_peer_and_a_put, slow_peer_recovers, first_node_alone]


def main():
    need("etcdctl")
    gap, = [g for g in GAPS if g.__name__ == sys.argv[2]]
    gap()
    print(f"{gap.__name__}: holds")


main()
