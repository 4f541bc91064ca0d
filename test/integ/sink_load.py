# SPDX-License-Identifier: Apache-2.0
"""Messages for the tests of sinks, and what these look at."""
import json
import sys
import time

from cluster import skip

try:
    import grpc
    from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc
except ImportError:
    skip("python3-etcd3 is not installed")


class Producer:
    """Puts, many at once, as fast as wanted."""

    def __init__(self, node):
        self.kv = rpc_pb2_grpc.KVStub(grpc.insecure_channel(node.client))

    def call(self, queue, tail, value):
        return self.kv.Put.future(rpc_pb2.PutRequest(key=f"/q/{queue}/p/{tail}".encode(),
                                                     value=value.encode()), timeout=30)

    def put(self, queue, items):
        """Items are (tail, value), one after the other; all of them are taken, or the error is raised."""
        for tail, value in items:
            self.call(queue, tail, value).result()

    def flood(self, queue, first, count, rate, batch=50):
        """Rows {"id": n, "text": ...} at that rate."""
        begin = time.monotonic()
        for n in range(first, first + count, batch):
            delay = begin + (n - first) / rate - time.monotonic()
            if delay > 0:
                time.sleep(delay)
            for call in [self.call(queue, f"r{i}", json.dumps({"id": i, "text": f"row {i}"}))
                         for i in range(n, min(n + batch, first + count))]:
                call.result()
        return time.monotonic() - begin


def depth(node, queue):
    for q in json.loads(node.ctl("queues", "-j"))["queues"]:
        if q["name"] == queue:
            return int(q["messages"])
    return 0


def resident_mib(node):
    with open(f"/proc/{node.process.pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmRSS"))


def fill(address, queue, first, count, per, window=1000):
    """As fast as it goes, with so many rows in a message and so many calls open."""
    kv = rpc_pb2_grpc.KVStub(grpc.insecure_channel(address))
    calls = []
    for i in range(first, first + count, per):
        value = "\n".join(json.dumps({"id": k, "text": f"row {k}"}) for k in range(i, i + per))
        calls.append(kv.Put.future(rpc_pb2.PutRequest(key=f"/q/{queue}/p/r{i}".encode(), value=value.encode()),
                                   timeout=60))
        if len(calls) >= window:
            for call in calls[:window // 2]:
                call.result()
            del calls[:window // 2]
    for call in calls:
        call.result()


if __name__ == "__main__":
    fill(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
