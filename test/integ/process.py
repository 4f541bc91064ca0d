#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ringpost.v1.Process against three real nodes: requesters at one, workers at another, the queue where it falls.

    process.py BINARIES SOURCE [slow MIB | beside SECONDS]

Debian's own interpreter has gRPC. With `slow`: a requester that reads nothing while its worker sends so much. With
`beside`: what others wait for meanwhile, of five pairs of runs of so many seconds, with such a requester and without.
"""
import json
import os
import pathlib
import queue as queues
import subprocess
import sys
import threading
import time
import uuid

from cluster import Cluster, need, skip, wait_until

try:
    import grpc
    import google.protobuf  # noqa: F401
except ImportError:
    skip("python3-grpcio or python3-protobuf is not installed")

BINARIES, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
WAIT_S = 20
pb = None  # process_pb2, when it is made


class Stream:
    """A call both ways: what is sent, and what has come."""

    def __init__(self, node, method, answer, read=True):
        self.channel = grpc.insecure_channel(node.client, [("grpc.max_receive_message_length", 8 << 20)])
        self.out = queues.Queue()
        call = self.channel.stream_stream(f"/ringpost.v1.Process/{method}",
                                          request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=answer.FromString)
        self.call = call(iter(self.out.get, None))
        self.got, self.changed, self.error = [], threading.Condition(), None
        self.reader = threading.Thread(target=self.read, daemon=True)
        if read:
            self.reader.start()

    def read(self):
        try:
            for m in self.call:
                with self.changed:
                    self.got.append(m)
                    self.changed.notify_all()
        except grpc.RpcError as e:
            self.error = e
        with self.changed:
            self.got.append(None)
            self.changed.notify_all()

    def take(self, seconds=WAIT_S):
        """The next message; None: the end."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.got, seconds), "nothing comes"
            return self.got.pop(0)

    def none(self, seconds):
        with self.changed:
            assert not self.changed.wait_for(lambda: self.got, seconds), self.got

    def send(self, m):
        self.out.put(m)

    def half_close(self):
        self.out.put(None)

    def close(self):
        self.half_close()
        self.call.cancel()
        self.channel.close()


class Run(Stream):
    def __init__(self, node, read=True):
        super().__init__(node, "Run", pb.RunEvent, read)

    def job(self, queue, data, id=0, ttl_ms=20000, **more):
        self.send(pb.RunRequest(id=id, job=pb.Job(queue=queue, data=data, ttl_ms=ttl_ms, **more)))

    def taken(self, id=0):
        m = self.take()
        assert m.HasField("taken") and m.id == id, m

    def output(self, data, id=0):
        m = self.take()
        assert m.HasField("output") and m.output.data == data and m.id == id, (m, data)

    def end(self, data=b"", id=0):
        m = self.take()
        assert m.HasField("end") and m.end.data == data and m.id == id, (m, data)

    def failed(self, *codes, id=0):
        m = self.take()
        assert m.HasField("failed") and m.failed.code in codes and m.id == id, (m, codes)
        return m.failed.reason


class Work(Stream):
    def __init__(self, node, queue, **more):
        super().__init__(node, "Work", pb.WorkItem)
        self.send(pb.WorkEvent(register=pb.Register(queue=queue, **more)))
        m = self.take()
        assert m.HasField("registered"), m
        self.uuid = m.registered.uuid

    def assigned(self, data=None):
        m = self.take()
        assert m.HasField("assigned") and data in (None, m.assigned.data), (m, data)
        return m.job, m.assigned

    def output(self, job, data):
        self.send(pb.WorkEvent(job=job, output=pb.Output(data=data)))

    def end(self, job, data=b""):
        self.send(pb.WorkEvent(job=job, end=pb.End(data=data)))
        self.settled(job, 0)

    def settled(self, job, status):
        m = self.take()
        assert m.HasField("settled") and m.job == job and m.settled.status == status, (m, job, status)

    def stop(self, job):
        m = self.take()
        assert m.HasField("stop") and m.job == job, m


def protos(folder):
    global pb
    subprocess.run(["protoc", f"-I{SOURCE / 'proto'}", f"--python_out={folder}", "ringpost/v1/process.proto"],
                   cwd=SOURCE / "proto", check=True)
    sys.path.insert(0, folder)
    from ringpost.v1 import process_pb2
    pb = process_pb2


def there_and_back(a, b):
    """Text, bytes, nothing; several at a time on a stream; in order, whichever the nodes."""
    w = Work(b, "jobs", prefetch=3)
    r = Run(a)
    values = [b"text", b"\xff\x00bytes", "Grüße \"x\"\\".encode(), b"", b"n" * 70000]
    for i, value in enumerate(values[:3]):
        r.job("jobs", value, id=i)
    jobs = {}
    for value in values[:3]:
        job, m = w.assigned()
        assert m.attempt == 1 and 15_000_000 < m.left_us < 20_000_000, m
        jobs[m.data] = job
    assert set(jobs) == set(values[:3]), jobs
    for i in range(3):
        r.taken(i)
    for n, value in enumerate(values):
        w.output(jobs[values[1]], value)
        w.output(jobs[values[0]], b"%d" % n)
        got = sorted((r.take() for _ in range(2)), key=lambda m: m.id)
        assert [(m.id, m.output.data) for m in got] == [(0, b"%d" % n), (1, value)], got
    w.end(jobs[values[0]], b"the last")
    r.end(b"the last", 0)
    w.end(jobs[values[1]])
    r.end(b"", 1)
    # What is over is over.
    w.output(jobs[values[1]], b"more")
    w.settled(jobs[values[1]], grpc.StatusCode.FAILED_PRECONDITION.value[0])
    r.half_close()
    w.end(jobs[values[2]])
    r.end(b"", 2)
    assert r.take() is None and r.error is None, r.error
    w.half_close()
    assert w.take() is None and w.error is None, w.error
    print("  there and back")


def cancels(a, b):
    w = Work(b, "cancels", prefetch=5)
    r = Run(a)
    r.job("cancels", b"one", id=1)
    r.taken(1)
    job, _ = w.assigned(b"one")
    w.output(job, b"part")
    r.output(b"part", 1)
    r.send(pb.RunRequest(id=1, cancel=pb.Cancel()))
    r.failed("CANCELLED", id=1)
    w.stop(job)
    w.output(job, b"late")
    w.settled(job, grpc.StatusCode.FAILED_PRECONDITION.value[0])
    # The stream's end is a cancel of what is open on it.
    r.job("cancels", b"two", id=2)
    r.taken(2)
    job, _ = w.assigned(b"two")
    begin = time.monotonic()
    r.close()
    w.stop(job)
    assert time.monotonic() - begin < 1, "a cancel takes a trip over the network, not a timer"
    # An operator's.
    r = Run(a)
    r.job("cancels", b"three")
    r.taken()
    job, m = w.assigned(b"three")
    listed = [json.loads(n.ctl("job", "list", "cancels", "-j"))["jobs"] for n in (a, b)
              if json.loads(n.ctl("queues", "cancels", "-x", "-j"))["queues"][0]["here"]]
    assert [x["tail"].encode() for x in listed[0]] == [m.tail] and listed[0][0]["holder"] == w.uuid, listed
    assert 0 < listed[0][0]["left_us"] <= 20_000_000, listed
    assert a.ctl("job", "cancel", "cancels", m.tail.decode()) == "1 requests cancelled\n"
    r.failed("CANCELLED")
    w.stop(job)
    assert a.ctl("job", "cancel", "cancels", m.tail.decode()) == "0 requests cancelled\n"
    r.close()
    w.close()
    print("  cancels")


def deadlines(a, b):
    w = Work(b, "slow", prefetch=5)
    r = Run(a)
    begin = time.monotonic()
    r.job("slow", b"x", ttl_ms=300)
    r.taken()
    job, m = w.assigned(b"x")
    assert 0 < m.left_us <= 300_000, m
    r.failed("DEADLINE_EXCEEDED")
    assert 0.28 < time.monotonic() - begin < 1.5, time.monotonic() - begin
    w.stop(job)
    # Where nobody takes it: in the queue.
    r.job("nobody", b"x", ttl_ms=200)
    r.taken()
    r.failed("DEADLINE_EXCEEDED")
    r.job("nobody", b"x", fail_fast=True)
    r.failed("FAILED_PRECONDITION", "NO_CONSUMER")
    r.job("slow", b"x", need=["what-nobody-has"])
    r.failed("FAILED_PRECONDITION", "NO_CONSUMER")
    r.job("slow/er", b"x")
    assert "'/'" in r.failed("INVALID_ARGUMENT")
    r.close()
    w.close()
    print("  deadlines")


def workers(a, b, c):
    """Rejected, lost before and after it began, and one that returns."""
    one, two = Work(b, "team", cap=["paint", "sing"]), Work(c, "team", cap=["sing"])
    r = Run(a)
    for i in range(2):
        r.job("team", b"sing", id=i, need=["sing"])
    (job1, _), (job2, _) = one.assigned(b"sing"), two.assigned(b"sing")
    r.taken(0), r.taken(1)
    two.send(pb.WorkEvent(job=job2, reject=pb.Reject(reason="hoarse")))
    two.settled(job2, 0)
    one.end(job1, b"la")
    job1, m = one.assigned(b"sing")
    assert m.attempt == 2, m
    one.end(job1, b"la")
    got = sorted((r.take() for _ in range(2)), key=lambda m: m.id)
    assert [m.end.data for m in got] == [b"la", b"la"], got
    r.job("team", b"paint", need=["paint"])
    r.taken()
    job, _ = one.assigned(b"paint")
    two.none(0.2)
    one.send(pb.WorkEvent(job=job, reject=pb.Reject()))
    one.settled(job, 0)
    r.failed("REJECTED")
    # Lost before it began: another one gets it.
    r.job("team", b"sing")
    r.taken()
    loser = first(one, two)
    other = two if loser is one else one
    loser.close()
    job, m = other.assigned(b"sing")
    other.output(job, b"first")
    r.output(b"first")
    # Lost when it had begun: nobody else may.
    other.close()
    r.failed("WORKER_LOST")
    # One that was lost and returns has its job.
    name = str(uuid.uuid4())
    w = Work(b, "team", uuid=name)
    r.job("team", b"long")
    r.taken()
    job, _ = w.assigned(b"long")
    w.output(job, b"half")
    r.output(b"half")
    w.close()
    w = Work(b, "team", uuid=name, resume=True)
    again, m = w.assigned(b"long")
    assert again == job, (again, job)
    w.end(job, b"whole")
    r.end(b"whole")
    # A second one of the same name.
    v = Work(b, "team", uuid=name)
    assert w.take() is None and w.error.code() == grpc.StatusCode.ABORTED, w.error
    v.close()
    r.close()
    print("  workers")


def first(*streams):
    """The one that has something."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        for s in streams:
            with s.changed:
                if s.got:
                    return s
        time.sleep(0.01)
    raise AssertionError("nothing comes")


def messages(a, b):
    """A plain message is a job that nobody waits for; a job by keys is served without them."""
    w = Work(b, "mixed", prefetch=2)
    a.etcdctl("put", "/q/mixed/producer/m", "plain")
    job, m = w.assigned(b"plain")
    assert m.left_us == 0 and m.tail == b"m", m
    w.output(job, b"x")
    w.settled(job, grpc.StatusCode.FAILED_PRECONDITION.value[0])
    w.end(job)
    answers = a.watch(f"/q/replies/consumer/{uuid.uuid4()}")
    wait_until("the reply queue is there", 10, lambda: a.etcdctl("get", "--print-value-only", "/q/replies").stdout.strip())
    a.etcdctl("put", "/q/mixed/producer/corr-1",
              json.dumps({"v": 1, "ttl_ms": 20000, "reply_to": "replies", "data": "by keys"}))
    job, m = w.assigned(b"by keys")
    assert m.tail == b"corr-1" and m.left_us > 0, m
    w.output(job, b"one")
    w.end(job, b"two")
    wait_until("both answers", 10, lambda: any('"two"' in line for line in answers.lines()))
    values = [json.loads(line) for line in answers.lines() if line.startswith("{")]
    assert [(v["data"], v.get("final", False)) for v in values] == [("one", False), ("two", True)], values
    w.close()
    print("  messages and keys")


def slow(a, b, c, chunks):
    """A requester that does not read: its worker waits, nothing grows, others go on."""
    w, r = Work(b, "much"), Run(a, read=False)
    r.job("much", b"x", ttl_ms=100000)
    job, _ = w.assigned(b"x")
    before = {n: rss(n) for n in (a, b, c)}
    sent = 0
    chunk = os.urandom(32768).hex().encode()  # 64 KiB

    def pour():
        nonlocal sent
        for _ in range(chunks):
            while w.out.qsize() > 4:
                time.sleep(0.001)
            w.output(job, chunk)
            sent += 1

    thread = threading.Thread(target=pour)
    thread.start()
    last, quiet = -1, 0
    while quiet < 10:
        quiet, last = (quiet + 1, last) if sent == last else (0, sent)
        time.sleep(0.1)
    stood = sent
    assert 0 < stood < 400, f"{stood} of {chunks} chunks were taken, and nobody read"
    grown = {n.index: rss(n) - before[n] for n in (a, b, c)}
    assert all(g < 64 << 20 for g in grown.values()), grown
    v, q = Work(c, "quick"), Run(a)
    begin = time.monotonic()
    for i in range(50):
        q.job("quick", b"%d" % i)
        q.taken()
        other, _ = v.assigned(b"%d" % i)
        v.end(other)
        q.end()
    took = (time.monotonic() - begin) / 50
    assert took < 0.2, took
    r.reader.start()
    total = 0
    m = r.take()
    assert m.HasField("taken"), m
    while total < chunks:
        m = r.take()
        assert m.HasField("output") and m.output.data == chunk, m
        total += 1
    thread.join()
    w.end(job)
    r.end()
    for s in (v, q, w, r):
        s.close()
    print(f"  a requester that does not read: its worker stood at {stood} of {chunks} chunks, the nodes grew by {grown}; "
          f"{1000 * took:.1f} ms a request meanwhile")


class Stuck:
    """A requester that reads nothing, whose worker has more to say than it may."""

    def __init__(self, a, b):
        self.w, self.r, self.over, self.sent = Work(b, "much"), Run(a, read=False), False, 0
        self.r.job("much", b"x", ttl_ms=600000)
        self.job, _ = self.w.assigned(b"x")
        self.thread = threading.Thread(target=self.pour)
        self.thread.start()
        last = -1
        while self.sent != last:
            last = self.sent
            time.sleep(0.5)

    def pour(self):
        chunk = os.urandom(32768).hex().encode()
        while not self.over:
            if self.w.out.qsize() > 4:
                time.sleep(0.01)
                continue
            self.w.output(self.job, chunk)
            self.sent += 1

    def end(self):
        self.over = True
        self.thread.join()
        self.r.close()
        self.w.close()


def p99(a, seconds, folder):
    """Of requests that a worker of ringperf answers, at a rate that leaves room, in us."""
    result = folder / "beside.json"
    subprocess.run([BINARIES / "ringperf/ringperf", "run", "process", "--peer", "127.0.0.1", "--port", str(a.port),
                    "--rate", "300", "--seconds", str(seconds), "--size", "64", "--json-file", result],
                   check=True, stdout=subprocess.DEVNULL)
    return json.loads(result.read_text())["latency_us"]["raw"]["p99"]


def beside(a, b, folder, seconds):
    """p99 of other requests beside a stuck requester: at most 1.2 times that without, the median of five pairs."""
    worker = subprocess.Popen([BINARIES / "ringperf/ringperf", "run", "process", "--serve", "--peer", "127.0.0.1",
                               "--port", str(b.port)], stdout=subprocess.DEVNULL)
    try:
        time.sleep(1)
        p99(a, 1, folder)
        ratios = []
        for i in range(5):
            times = {}
            # Each comes first in turn.
            for stuck in (True, False) if i % 2 else (False, True):
                s = Stuck(a, b) if stuck else None
                times[stuck] = p99(a, seconds, folder)
                if s:
                    s.end()
            ratios.append(times[True] / times[False])
            print(f"  pair {i + 1}: p99 {times[False]} us without, {times[True]} us beside it: {ratios[-1]:.3f}", flush=True)
        median = sorted(ratios)[2]
        print(f"  median of five: {median:.3f}")
        assert median <= 1.2, ratios
    finally:
        worker.terminate()
        worker.wait()


def rss(node):
    with open(f"/proc/{node.process.pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096


def drains(a, b, c):
    """A node that drains sends its workers away, with a status to come again."""
    w = Work(b, "moved")
    b.ctl("drain", "--seconds", "0")
    assert w.take() is None and w.error.code() == grpc.StatusCode.UNAVAILABLE, w.error
    b.ctl("undrain")
    stats = c.stats("ringpost_process_")
    assert stats["process_workers"] == 0, stats


def main():
    need("etcdctl", "protoc")
    with Cluster(sys.argv[1], nodes=3) as cluster:
        protos(cluster.dir)
        cluster.join()
        a, b, c = cluster.nodes
        if len(sys.argv) > 4 and sys.argv[3] == "beside":
            beside(a, b, cluster.dir, int(sys.argv[4]))
            return
        if len(sys.argv) > 4:
            slow(a, b, c, 16 * int(sys.argv[4]))
            return
        there_and_back(a, b)
        there_and_back(a, a)
        cancels(a, b)
        deadlines(a, b)
        messages(a, b)
        workers(a, b, c)
        drains(a, b, c)
        stats = a.stats("ringpost_process_")
        assert stats["process_runs"] > 10 and stats["process_runs_refused"] >= 3, stats
        assert stats["process_runs_failed"] >= 6 and stats["process_run_outputs"] > 10, stats
    print("requests without keys hold")


if __name__ == "__main__":
    main()
