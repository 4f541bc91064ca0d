#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a node does with bad requests and bad bytes: bad_input.py BINARIES [SEED]

Each request gets its gRPC status and text; bytes that are no protocol close their connection only,
on the client port and on the link port, while a client of the same node goes on."""
import os
import random
import socket
import sys
import threading
import time
import uuid

from cluster import Cluster, need, skip

try:
    import grpc
    from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc
except ImportError as e:
    skip(f"python3-etcd3: {e}")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Bytes that could be the beginning of something are waited on: 10 s on either port.
CLOSED_S = 20


def refused(what, call, code, *texts):
    try:
        got = call()
    except grpc.RpcError as e:
        assert e.code() == code, f"{what}: {e.code()} {e.details()}, expected {code}"
        for text in texts:
            assert text in e.details(), f"{what}: nothing says {text!r}: {e.details()}"
        print(f"  {what}: {code.name}: {e.details()}")
        return
    raise AssertionError(f"{what}: was taken: {got}")


def requests(node, message_bytes):
    print("requests")
    channel = grpc.insecure_channel(node.client)
    kv = rpc_pb2_grpc.KVStub(channel)
    consumer = uuid.uuid4()

    def put(key, value=b""):
        return lambda: kv.Put(rpc_pb2.PutRequest(key=key.encode(), value=value), timeout=10)

    invalid = grpc.StatusCode.INVALID_ARGUMENT
    refused("a producer key with two tails", put("/q/jobs/producer/a/b"), invalid, "too many segments")
    refused("a delivered key with two tails", put(f"/q/jobs/consumer/{consumer}/1/a/b"), invalid,
            "too many segments")
    refused("a consumer that is no uuid", put("/q/jobs/consumer/me"), invalid, "not a uuid")
    refused("no tail", put("/q/jobs/producer/"), invalid, "tail is empty")
    refused("a message over the limit", put("/q/jobs/producer/big", bytes(message_bytes + 1)), invalid,
            "etcdserver: request is too large")
    refused("a value over the limit", put("ordinary", bytes(message_bytes + 1)), invalid,
            "etcdserver: request is too large")
    for i in range(2):
        put(f"/q/full/producer/{i}", b"x")()
    refused("a put to a full queue", put("/q/full/producer/2", b"x"),
            grpc.StatusCode.RESOURCE_EXHAUSTED, "full", "limits.queue_depth")
    put("/q/other/producer/1", b"x")()
    refused("a request that is no protobuf",
            lambda: channel.unary_unary("/etcdserverpb.KV/Put")(b"\xff" * 20, timeout=10),
            grpc.StatusCode.INTERNAL, "unmarshal")
    refused("a method that is not there",
            lambda: channel.unary_unary("/etcdserverpb.KV/NoSuch")(b"", timeout=10),
            grpc.StatusCode.UNIMPLEMENTED)
    channel.close()


class Client(threading.Thread):
    """Puts on one connection all the while; a failure of any is a failure of the test."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.channel = grpc.insecure_channel(node.client)
        self.kv = rpc_pb2_grpc.KVStub(self.channel)
        self.revision, self.puts, self.failure, self.ended = 0, 0, None, threading.Event()

    def run(self):
        try:
            while not self.ended.is_set():
                r = self.kv.Put(rpc_pb2.PutRequest(key=b"steady", value=str(self.puts).encode()),
                                timeout=10)
                assert r.header.revision > self.revision
                self.revision, self.puts = r.header.revision, self.puts + 1
                time.sleep(0.002)
        except Exception as e:  # noqa: BLE001 - told by stop()
            self.failure = e

    def stop(self):
        self.ended.set()
        self.join()
        self.channel.close()
        assert self.failure is None, f"the other client failed: {self.failure}"
        assert self.puts > 0


def closes(port, data, what, host="127.0.0.1"):
    """The server closes the connection on which `data` came."""
    with socket.create_connection((host, port), timeout=CLOSED_S) as s:
        try:
            s.sendall(data)
            while s.recv(65536):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            raise AssertionError(f"{what}: still open after {CLOSED_S} s") from None


def noise(rng, first):
    return first + rng.randbytes(rng.choice([100, 1000, 20000]))


def bytes_on_ports(cluster, seed):
    rng = random.Random(seed)
    node = cluster.nodes[0]
    boots = [n.log_text().count(" up: node ") for n in cluster.nodes]
    client = Client(node)
    client.start()
    print(f"random bytes, seed {seed}")
    for i in range(40):
        # A letter could begin a request of HTTP/1, which would be waited for.
        closes(node.port, noise(rng, b"\xff"), f"client port, {i}")
        closes(node.port, noise(rng, PREFACE), f"client port after a preface, {i}")
        closes(node.link_port, noise(rng, b""), f"link port, {i}")
    with socket.create_connection(("127.0.0.1", node.port)) as s:
        s.sendall(PREFACE[:10])
    client.stop()
    print(f"  {client.puts} puts went on meanwhile")
    for n in cluster.nodes:
        assert n.process.poll() is None, n.log_text()[-3000:]
        assert n.stats("ringpost_link_bundles_up")["link_bundles_up"] == 1
        assert n.stats("ringpost_repl_peers_online")["repl_peers_online"] == 1
    assert boots == [n.log_text().count(" up: node ") for n in cluster.nodes], "the link went down"
    counters = node.stats("ringpost_link_")
    assert counters["link_handshakes_refused"] >= 40, counters


def main():
    need("etcdctl")
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "big")
    with Cluster(sys.argv[1], nodes=2, config={"limits": "{queue_depth: 2, message_bytes: 65536}"}) as c:
        c.join(90)
        requests(c.nodes[0], 65536)
        bytes_on_ports(c, seed)
    print("bad input stays where it is")


if __name__ == "__main__":
    main()
