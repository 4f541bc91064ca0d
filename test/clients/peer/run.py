#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A peer in Python takes part in a cluster of two ringpostd: it joins by MemberAdd, gets and writes keys, consumes
from a queue that one of them dispatches, and dispatches one itself.

    run.py BINARIES SOURCE
"""
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "integ")]
from cluster import Cluster, need, skip, wait_until  # noqa: E402

try:
    import grpc
    import google.protobuf  # noqa: F401
except ImportError:
    skip("python3-grpcio or python3-protobuf is not installed")
from peer import Message, OK, Other, Peer, connect  # noqa: E402


def protos(source, folder):
    """Modules of the .proto files, made by protoc."""
    root = os.path.abspath(os.path.join(source, "proto"))
    files = ["ringpost/v1/peer.proto", "ringpost/v1/repl.proto", "etcdserverpb/rpc.proto", "mvccpb/kv.proto",
             "authpb/auth.proto"]
    subprocess.run(["protoc", f"-I{root}", f"--python_out={folder}", *files], cwd=root, check=True)
    sys.path.insert(0, folder)
    from etcdserverpb import rpc_pb2
    from ringpost.v1 import peer_pb2, repl_pb2
    return rpc_pb2, peer_pb2, repl_pb2


def join(peer, nodes):
    peer.serve()
    for n in nodes:
        peer.dial(n.client)
        n.etcdctl("member", "add", "python", f"--peer-urls=http://127.0.0.1:{peer.port}")
    for n in nodes:
        wait_until(f"node {n.index} sees the peer online", 30, lambda n=n: any(
            "python" in line and "online" in line for line in n.ctl("nodes").splitlines()))
        wait_until("its name is in the list", 10, lambda n=n: "python" in n.etcdctl("member", "list").stdout)


def keys(peer, a, b):
    a.etcdctl("put", "greeting", "from A")
    wait_until("the peer has A's key", 10, lambda: peer.value(b"greeting") == b"from A")
    peer.write(b"answer", b"from Python")
    for n in (a, b):
        wait_until("a node has the peer's key", 10,
                   lambda n=n: n.etcdctl("get", "--print-value-only", "answer").stdout.strip() == "from Python")
    b.etcdctl("del", "greeting")
    wait_until("the delete", 10, lambda: peer.value(b"greeting") is None)
    print("  keys go both ways")


class Consumer:
    """A consumer that lives at the peer; `dispatcher` is a node."""

    def __init__(self, peer, name, dispatcher, count):
        self.peer, self.name, self.other = peer, name, peer.others[dispatcher]
        self.uuid, self.life, self.revision = uuid.uuid4(), int(time.time() * 1e6), int(time.time() * 1e6)
        self.got, self.replies, self.count, self.done = [], [], count, threading.Event()
        peer.handlers.update(DELIVER=self.on_deliver, REPLY=self.on_reply)
        peer.write(b"/q/" + name + b"/c/" + str(self.uuid).encode(), b"%d;prefetch=4" % peer.node)
        self.send("RESUME", token=self.life)

    def send(self, kind, **fields):
        assert self.other.send(Message(kind, self.name, uuid=self.uuid.bytes, **fields))[0] == OK

    def on_deliver(self, m):
        if m.uuid != self.uuid.bytes or m.token != self.life:
            return 5  # NO_CONSUMER
        self.got.append(m.value)
        self.peer.later(self.settle, m)
        return OK

    def settle(self, m):
        self.revision += 1
        self.send("ACCEPTED", idx=m.idx, alloc_node=m.alloc_node, attempt=m.attempt, mod_revision=self.revision)
        self.send("QACK", idx=m.idx, alloc_node=m.alloc_node, token=len(self.got) + 1000)

    def on_reply(self, m):
        self.replies.append((m.status, m.count))
        if len(self.replies) == self.count:
            self.done.set()


def consume(peer, a):
    count = 40
    for i in range(count):
        a.etcdctl("put", f"/q/to-python/producer/m-{i}", f"work {i}")
    dispatcher = int(peer.value(b"/q/to-python").split(b";")[0])
    c = Consumer(peer, b"to-python", dispatcher, count)
    assert c.done.wait(30), (len(c.got), len(c.replies))
    assert c.got == [b"work %d" % i for i in range(count)], c.got
    assert c.replies == [(OK, 1)] * count, c.replies
    wait_until("nothing is held at A", 10, lambda: a.stats()["queue_messages"] == 0)
    print(f"  {count} messages consumed and acknowledged, in order; {peer.counts}")


class Dispatcher:
    """The queue is dispatched by the peer: forwards come, and go to whoever says that it is there."""

    def __init__(self, peer, name):
        self.peer, self.name = peer, name
        self.epoch = int((time.time() - 1767225600) / 60) + 10
        self.waiting, self.held, self.acked, self.consumers = [], {}, [], []
        self.sequence, self.lock = 0, threading.Lock()
        peer.handlers.update(FORWARD=self.on_forward, RESUME=self.on_resume, ACCEPTED=self.on_accepted, QACK=self.on_ack)
        peer.write(b"/q/" + name, b"%d;epoch=%d" % (peer.node, self.epoch))

    def message(self, kind, **more):
        return Message(kind, self.name, self.epoch, self.peer.node, **more)

    def on_forward(self, m):
        with self.lock:
            self.sequence += 1
            self.waiting.append((self.epoch << 40 | self.sequence, m))
        self.peer.later(self.offer)
        return OK

    def on_resume(self, m):
        node = int(self.peer.value(b"/q/" + self.name + b"/c/" + str(uuid.UUID(bytes=m.uuid)).encode()).split(b";")[0])
        self.consumers = [(node, m.uuid, m.token)]
        self.peer.later(self.offer)

    def offer(self):
        with self.lock:
            while self.waiting and self.consumers:
                node, who, life = self.consumers[0]
                idx, m = self.waiting.pop(0)
                self.held[idx] = (m, None)
                status = self.peer.others[node].send(self.message(
                    "DELIVER", tail=m.tail, value=m.value, idx=idx, alloc_node=self.peer.node, uuid=who, attempt=1,
                    token=life))[0]
                assert status == OK, status

    def on_accepted(self, m):
        if m.idx:
            self.held[m.idx] = (self.held[m.idx][0], m.mod_revision)

    def on_ack(self, m):
        taken = self.held.pop(m.idx, None)
        if taken:
            self.acked.append(taken[0].value)
        node = self.consumers[0][0]
        self.peer.later(self.peer.others[node].send, self.message(
            "REPLY", token=m.token, idx=m.idx, count=1 if taken else 0))


def dispatch(peer, a, b):
    d = Dispatcher(peer, b"by-python")
    for n in (a, b):
        wait_until("the nodes know who dispatches", 10, lambda n=n: n.etcdctl(
            "get", "--print-value-only", "/q/by-python").stdout.startswith(str(peer.node)))
    w = b.watch(f"/q/by-python/consumer/{uuid.uuid4()}")
    for i in range(10):
        a.etcdctl("put", f"/q/by-python/producer/t{i}", f"task {i}")
    for i in range(10):
        key = w.wait(f"task {i}", 20)
        assert b.etcdctl("del", key).stdout.strip() == "1", key
        assert b.etcdctl("del", key).stdout.strip() == "0", "an acknowledge may be repeated"
    assert [v for v in w.lines() if v.startswith("task")] == [f"task {i}" for i in range(10)]
    assert d.acked == [b"task %d" % i for i in range(10)] and not d.held and not d.waiting
    w.stop()
    print("  10 messages from A, dispatched by the peer, consumed at B")


def strangers(modules, cluster, node):
    """Without the secret there is no stream."""
    stranger = Peer(modules, cluster, b"not the secret at all, but long enough")
    stranger.serve()
    try:
        Other(stranger, node.client)
        raise RuntimeError("a stranger proved itself")
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.PERMISSION_DENIED, e
    channel = connect(node.client)
    try:
        list(channel.stream_stream("/ringpost.v1.Peer/Deliver")(iter([b""]), timeout=10))
        raise RuntimeError("a stream without a proof")
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.PERMISSION_DENIED, e
    channel.close()
    stranger.stop()
    print("  a stranger is refused")


def play(modules, with_deliver):
    with Cluster(sys.argv[1], nodes=2) as c:
        c.join()
        a, b = c.nodes
        with open(c.secret, "rb") as f:
            peer = Peer(modules, uuid.UUID(c.uuid), f.read(), with_deliver)
        join(peer, c.nodes)
        keys(peer, a, b)
        consume(peer, a)
        dispatch(peer, a, b)
        assert peer.counts["stream" if with_deliver else "unary"] > 50, peer.counts
        assert peer.counts["unary" if with_deliver else "stream"] == 0, peer.counts
        if with_deliver:
            strangers(modules, uuid.UUID(c.uuid), a)
        peer.stop()


def main():
    need("etcdctl", "protoc")
    with tempfile.TemporaryDirectory() as folder:
        modules = protos(sys.argv[2], folder)
        for with_deliver in (True, False):
            print("by Deliver" if with_deliver else "by DeliverOne, where the peer has no other", flush=True)
            play(modules, with_deliver)
    print("holds")


main()
