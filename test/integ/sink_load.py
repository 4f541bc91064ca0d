# SPDX-License-Identifier: Apache-2.0
"""Messages for the tests of sinks, what these look at, and what is the same for both."""
import json
import subprocess
import time

from cluster import skip, wait_until

try:
    import grpc
    from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc
except ImportError:
    skip("python3-etcd3 is not installed")


class Producer:
    """Puts of a test's own values, and loads of rows by the program sink_load."""

    def __init__(self, node, program=None):
        self.node, self.program = node, program
        self.kv = rpc_pb2_grpc.KVStub(grpc.insecure_channel(node.client))

    def call(self, queue, tail, value):
        return self.kv.Put.future(rpc_pb2.PutRequest(key=f"/q/{queue}/p/{tail}".encode(),
                                                     value=value.encode()), timeout=30)

    def put(self, queue, items):
        """Items are (tail, value), one after the other; all of them are taken, or the error is raised."""
        for tail, value in items:
            self.call(queue, tail, value).result()

    def begin(self, queue, first, count, rate=0, rows=1, size=0):
        return subprocess.Popen([self.program, self.node.client, queue, *map(str, (first, count, rate, rows, size))],
                                stdout=subprocess.PIPE, text=True)

    def end(self, process):
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0, "a load failed"
        return json.loads(out)

    def flood(self, queue, first, count, rate=0, rows=1, size=0):
        """Rows {"id": n, "text": ...} at that rate; how it went."""
        return self.end(self.begin(queue, first, count, rate, rows, size))


def depth(node, queue):
    for q in json.loads(node.ctl("queues", "-j"))["queues"]:
        if q["name"] == queue:
            return int(q["messages"])
    return 0


def resident_mib(node):
    with open(f"/proc/{node.process.pid}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmRSS"))


def away(node, producer, server, queue, rows, seconds, rate):
    """The server is away under load: nothing is lost, nothing doubled, memory within limits. `rows` says how many rows
    and how many different ones are in the table."""
    producer.flood(queue, 0, rate, rate)
    wait_until("the first rows", 30, lambda: rows() == (rate, rate))
    wait_until("their acknowledges", 20, lambda: depth(node, queue) == 0)
    before = resident_mib(node)
    server.kill()
    count = rate * seconds
    took = producer.flood(queue, rate, count, rate)
    grown = resident_mib(node) - before
    limit = 64 + 2.5 * count * 1024 / (1 << 20)
    print(f"away for {took['seconds']:.1f} s: {count} messages, {count / took['seconds']:.0f}/s, puts' p99 "
          f"{took['p99_us']:.0f} us, {grown:.0f} MiB more (limit {limit:.0f})", flush=True)
    assert took["seconds"] < 1.02 * seconds + 2, took
    assert grown < limit
    server.start()
    begin, total = time.monotonic(), rate + count
    wait_until("every row", 400, lambda: rows()[1] == total)
    wait_until("all acknowledged", 60, lambda: depth(node, queue) == 0)
    print(f"{total} rows {time.monotonic() - begin:.1f} s after it was back", flush=True)
    assert rows() == (total, total), "rows are doubled"
    return total


def other_queues(node, producer, server, queue, rows, first, pairs, rate, seconds=4):
    """The p99 of another queue's puts while the sink's server is away, against while it is there, by turns, under the
    same load; and, to be told, while the load goes to a queue that has no sink. The ratios, sorted."""
    ratios, idle = [], []
    for pair in range(pairs):
        figures = {}
        for how in ("there", "away", "no sink") if pair % 2 == 0 else ("no sink", "away", "there"):
            wait_until("nothing waits", 120, lambda: depth(node, queue) == 0)
            if how == "away":
                server.kill()
            load = producer.begin("nobodys" if how == "no sink" else queue, first, rate * (seconds + 1), rate)
            if how != "no sink":
                first += rate * (seconds + 1)
            time.sleep(0.5)
            figures[how] = producer.flood("bystander", 0, 200 * seconds, 200)["p99_us"]
            producer.end(load)
            for other in ("bystander", "nobodys"):
                node.ctl("queue", "purge", other)
            if how == "away":
                server.start()
        ratios.append(figures["away"] / figures["there"])
        idle.append(figures["away"] / figures["no sink"])
        print("p99 of another queue: " + ", ".join(f"{how} {us:.0f} us" for how, us in sorted(figures.items())),
              flush=True)
    wait_until("every row", 120, lambda: rows() == (first, first))
    ratios.sort()
    idle.sort()
    print(f"p99 of another queue, away to there: {[round(r, 2) for r in ratios]}, median "
          f"{ratios[len(ratios) // 2]:.2f}; away to no sink: {[round(r, 2) for r in idle]}, median "
          f"{idle[len(idle) // 2]:.2f}", flush=True)
    return ratios
