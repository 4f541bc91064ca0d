#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The etcd services with real clients: etcdctl and python3-etcd3.

    etcd_basic.py --server PATH [--seed N] [--ops N]

PATH is test/unit/etcd/etcd_server: store and services on real gRPC, with queues of a fake node
behind them. What both can do is also asked of a real etcd, and the answers are compared field by
field, but for the ids in headers. Status 77 when a client is missing.
"""

import argparse
import json
import os
import queue
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

try:
    import grpc
    import etcd3
    from etcd3.etcdrpc import kv_pb2, rpc_pb2, rpc_pb2_grpc
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

UUID = "00112233-4455-6677-8899-aabbccddeeff"
WAIT_S = 10
failures = 0


def check(what, good, detail=""):
    global failures
    if not good:
        failures += 1
        print(f"FAIL {what} {detail}")


def equal(what, got, want):
    check(what, got == want, f"\n  got  {got!r}\n  want {want!r}")


# ---- servers ----


class Server:
    """A process that serves on a loopback port."""

    def __init__(self, name, argv, port, folder=None):
        self.name, self.port, self.folder = name, port, folder
        self.address = f"127.0.0.1:{port}"
        self.process = argv if isinstance(argv, subprocess.Popen) else subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.channel = grpc.insecure_channel(
            self.address, options=[("grpc.max_receive_message_length", 64 << 20)])
        grpc.channel_ready_future(self.channel).result(timeout=WAIT_S)
        self.kv = rpc_pb2_grpc.KVStub(self.channel)
        self.watch = rpc_pb2_grpc.WatchStub(self.channel)
        self.maintenance = rpc_pb2_grpc.MaintenanceStub(self.channel)
        self.cluster = rpc_pb2_grpc.ClusterStub(self.channel)

    def stop(self):
        self.channel.close()
        self.process.terminate()
        status = self.process.wait(timeout=WAIT_S)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        return status

    def etcdctl(self, *args, stdin=None, timeout=WAIT_S):
        env = dict(os.environ, ETCDCTL_API="3")
        p = subprocess.run(["etcdctl", "--endpoints", self.address, *args], env=env, text=True,
                           input=stdin, capture_output=True, timeout=timeout)
        errors = [l for l in p.stderr.splitlines() if l.startswith("Error:")]
        return p.returncode, p.stdout, "\n".join(errors)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_ours(path):
    p = subprocess.Popen([path, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    return Server("ours", p, int(p.stdout.readline()))


def start_etcd(*more):
    if not shutil.which("etcd"):
        return None
    # In memory where that is: thousands of writes, each with an fsync, take long on a disk.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="etcd-basic-", dir=memory)
    port, peer = free_port(), free_port()
    argv = ["etcd", "--data-dir", folder, "--listen-client-urls", f"http://127.0.0.1:{port}",
            "--advertise-client-urls", f"http://127.0.0.1:{port}",
            "--listen-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer}", "--log-level", "error", *more]
    return Server("etcd", argv, port, folder)


# ---- answers, comparable ----


def plain(m):
    """A message as text, without what differs between servers."""
    m = type(m).FromString(m.SerializeToString())
    for field in ("cluster_id", "member_id", "raft_term"):
        if m.HasField("header"):
            m.header.ClearField(field)
    return str(m)


def ask(method, request):
    try:
        return ("ok", method(request, timeout=WAIT_S))
    except grpc.RpcError as e:
        return ("error", (e.code().name, e.details()))


def same(what, servers, call):
    """The same call to all servers; the answers must be alike."""
    answers = []
    for s in servers:
        kind, value = call(s)
        answers.append((kind, plain(value) if kind == "ok" else value))
    for s, a in zip(servers[1:], answers[1:]):
        if a != answers[0]:
            check(what, False, f"\n  {servers[0].name}: {answers[0]}\n  {s.name}: {a}")
            return answers[0]
    return answers[0]


# ---- random operations ----


class Random:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.revision = 1
        self.open_deletes = True

    def key(self):
        return self.r.choice(b"abcdefgh".decode()).encode()

    def value(self):
        return str(self.r.randrange(10)).encode()

    def end(self):
        return self.r.choice([b"", b"", b"\0", self.key()])

    def rev(self):
        return self.r.choice([0, 0, 0, self.r.randrange(-1, self.revision + 3)])

    def put(self):
        m = rpc_pb2.PutRequest(key=self.key(), value=self.value(), prev_kv=self.r.random() < 0.5)
        if self.r.random() < 0.1 and not self.open_deletes:
            m.ignore_value = True
            if self.r.random() < 0.7:
                m.value = b""
        if self.r.random() < 0.05 and not self.open_deletes:
            m.ignore_lease = True
        if self.r.random() < 0.05:
            m.lease = 12345
        if self.r.random() < 0.02:
            m.key = b""
        return m

    def delete(self):
        m = rpc_pb2.DeleteRangeRequest(
            key=self.key(), range_end=self.end(), prev_kv=self.r.random() < 0.5)
        if m.range_end == b"\0" and not self.open_deletes:
            m.range_end = b""
        return m

    def range(self, in_txn=False):
        m = rpc_pb2.RangeRequest(key=self.key(), range_end=self.end())
        m.limit = self.r.randrange(-1, 5)
        m.revision = self.rev()
        m.serializable = self.r.random() < 0.5
        m.keys_only = self.r.random() < 0.2
        m.count_only = self.r.random() < 0.2
        m.sort_order = self.r.randrange(3)
        # Ties have no order in etcd; keys have none.
        m.sort_target = rpc_pb2.RangeRequest.KEY
        if self.r.random() < 0.2:
            m.min_mod_revision = self.rev()
        if self.r.random() < 0.2:
            m.max_mod_revision = self.rev()
        if self.r.random() < 0.2:
            m.min_create_revision = self.rev()
        if self.r.random() < 0.2:
            m.max_create_revision = self.rev()
        return m

    def compare(self):
        c = rpc_pb2.Compare(key=self.key(), result=self.r.randrange(4), target=self.r.randrange(4))
        target = self.r.randrange(4) if self.r.random() < 0.1 else c.target
        n = self.r.randrange(0, 5) if target == 0 else self.rev()
        if target == 0:
            c.version = n
        elif target == 1:
            c.create_revision = n
        elif target == 2:
            c.mod_revision = n
        else:
            c.value = self.value()
        if self.r.random() < 0.2:
            c.range_end = self.end()
        return c

    def op(self, depth):
        what = self.r.random()
        if what < 0.4:
            return rpc_pb2.RequestOp(request_put=self.put())
        if what < 0.6:
            return rpc_pb2.RequestOp(request_delete_range=self.delete())
        if what < 0.85 or depth > 2:
            return rpc_pb2.RequestOp(request_range=self.range(True))
        if what < 0.98:
            return rpc_pb2.RequestOp(request_txn=self.txn(depth + 1))
        return rpc_pb2.RequestOp()

    def txn(self, depth=0):
        """etcd 3.4 dies of a put with ignore_value behind a delete without an end of its key: its
        rule against duplicates does not see such deletes."""
        if depth == 0:
            self.open_deletes = self.r.random() < 0.3
        return rpc_pb2.TxnRequest(
            compare=[self.compare() for _ in range(self.r.randrange(3))],
            success=[self.op(depth) for _ in range(self.r.randrange(4))],
            failure=[self.op(depth) for _ in range(self.r.randrange(3))])


def random_operations(servers, seed, count):
    r = Random(seed)
    before = failures
    for i in range(count):
        what = r.r.random()
        if what < 0.3:
            name, request = "Put", r.put()
        elif what < 0.4:
            name, request = "DeleteRange", r.delete()
        elif what < 0.65:
            name, request = "Range", r.range()
        elif what < 0.98:
            name, request = "Txn", r.txn()
        else:
            name = "Compact"
            request = rpc_pb2.CompactionRequest(
                revision=r.revision + r.r.randrange(-20, 3), physical=r.r.random() < 0.3)
        kind, _ = same(f"seed {seed} operation {i} {name} {request}", servers,
                       lambda s: ask(getattr(s.kv, name), request))
        r.revision = servers[0].kv.Range(rpc_pb2.RangeRequest(key=b"a")).header.revision
        if failures > before + 3:
            break


# ---- watches ----


class Stream:
    """A raw Watch stream."""

    def __init__(self, server):
        self.requests = queue.Queue()
        self.answers = queue.Queue()
        self.call = server.watch.Watch(iter(self.requests.get, None))
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            for m in self.call:
                self.answers.put(m)
        except grpc.RpcError as e:
            self.answers.put(e)

    def create(self, watch_id=0, **fields):
        m = rpc_pb2.WatchCreateRequest(**fields)
        if watch_id:
            # python3-etcd3's own .proto is older than this field: 7, a varint.
            m = type(m).FromString(m.SerializeToString() + bytes([0x38, watch_id]))
        self.requests.put(rpc_pb2.WatchRequest(create_request=m))

    def cancel(self, watch_id):
        self.requests.put(rpc_pb2.WatchRequest(
            cancel_request=rpc_pb2.WatchCancelRequest(watch_id=watch_id)))

    def next(self, timeout=WAIT_S):
        try:
            return self.answers.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self):
        self.call.cancel()
        self.requests.put(None)


def events_until(stream, revision):
    """Events of the stream up to a revision, however they were batched."""
    events = []
    while not events or events[-1].kv.mod_revision < revision:
        m = stream.next()
        if m is None or isinstance(m, Exception) or m.canceled:
            return [str(e) for e in events] + [f"ended: {m}"]
        events += m.events
    return [str(e) for e in events]


def watch_history(servers, filters=(), prev_kv=True):
    """The whole history that is left, replayed: the same on all."""
    sentinel = rpc_pb2.PutRequest(key=b"zz", value=b"end")
    histories = []
    for s in servers:
        last = s.kv.Put(sentinel).header.revision
        # At the compacted revision itself 3.4 has lost tombstones; 3.6 and we have not.
        first = oldest(s, last) + 1
        stream = Stream(s)
        stream.create(key=b"a", range_end=b"zzz", start_revision=first, prev_kv=prev_kv,
                      filters=list(filters))
        created = stream.next()
        check(f"{s.name}: created comes first", created is not None and created.created)
        histories.append(events_until(stream, last))
        stream.close()
    for s, h in zip(servers[1:], histories[1:]):
        for i, (x, y) in enumerate(zip(histories[0], h)):
            if x != y:
                check(f"history {filters}, event {i}", False, f"\n{servers[0].name}:\n{x}\n{s.name}:\n{y}")
                break
        equal(f"length of history {filters}", len(histories[0]), len(h))


def oldest(server, last):
    """The lowest revision that can still be read."""
    low, high = 1, last
    while low < high:
        mid = (low + high) // 2
        if ask(server.kv.Range, rpc_pb2.RangeRequest(key=b"a", revision=mid))[0] == "ok":
            high = mid
        else:
            low = mid + 1
    return low


def watch_protocol(servers):
    """A scripted stream; created, refused, events, cancelled, compacted."""
    answers = []
    for s in servers:
        got = []
        rev = s.kv.Put(rpc_pb2.PutRequest(key=b"w", value=b"0")).header.revision
        stream = Stream(s)
        steps = [
            lambda: stream.create(key=b"w"),
            lambda: stream.create(key=b"w", watch_id=5),
            lambda: stream.create(key=b"w", watch_id=5),
            lambda: stream.create(key=b"w", range_end=b"a"),
            lambda: stream.cancel(5),
            lambda: stream.create(key=b"w", start_revision=rev),
        ]
        for step in steps:
            step()
            m = stream.next()
            got.append((m.watch_id, m.created, m.canceled, m.cancel_reason,
                        m.header.revision - rev, len(m.events)))
        m = stream.next()  # the event of the last
        got.append((m.watch_id, [e.kv.value for e in m.events]))
        stream.cancel(99)  # unknown: nothing comes
        s.kv.DeleteRange(rpc_pb2.DeleteRangeRequest(key=b"w"))
        pair = [stream.next(), stream.next()]
        got.append(sorted((m.watch_id, str(m.events), m.header.revision - rev) for m in pair))
        s.kv.Put(rpc_pb2.PutRequest(key=b"other"))
        s.kv.Compact(rpc_pb2.CompactionRequest(revision=rev + 1))
        late = Stream(s)
        late.create(key=b"w", start_revision=rev)
        m = late.next()
        got.append((m.watch_id, m.created, m.canceled))
        m = late.next()
        got.append((m.watch_id, m.canceled, m.compact_revision - rev, m.cancel_reason))
        late.create(key=b"other", start_revision=rev + 2)
        got.append(late.next().created)
        got.append([(e.type, e.kv.key) for e in late.next().events])
        late.close()
        stream.close()
        answers.append([str(g).replace(str(rev), "R").replace(str(rev + 1), "R+1") for g in got])
    for s, a in zip(servers[1:], answers[1:]):
        for i, (x, y) in enumerate(zip(answers[0], a)):
            equal(f"watch protocol, step {i}, {servers[0].name} against {s.name}", x, y)


# ---- etcdctl ----


def etcdctl(servers):
    """The same commands, the same words."""
    script = [
        (["put", "k", "v1"], None),
        (["put", "k", "v2", "--prev-kv"], None),
        (["put", "k2", "x"], None),
        (["get", "k"], None),
        (["get", "k", "--print-value-only"], None),
        (["get", "--prefix", "k"], None),
        (["get", "--prefix", "k", "--keys-only"], None),
        (["get", "--from-key", "k2"], None),
        (["get", "k", "k3", "--limit", "1"], None),
        (["get", "--prefix", "k", "--sort-by", "KEY", "--order", "DESCEND"], None),
        (["get", "k", "--rev", "999999"], None),
        (["txn"], 'value("k") = "v2"\n\nput k v3\nget k\n\nput k bad\n\n'),
        (["txn"], 'version("none") > "0"\n\nput k v4\n\nget k2\ndel k2\n\n'),
        (["del", "--prefix", "k", "--prev-kv"], None),
        (["del", "absent"], None),
        (["put", "", "v"], None),
        (["get", ""], None),
        (["compaction", "999999"], None),
        (["alarm", "list"], None),
    ]
    for args, stdin in script:
        answers = [s.etcdctl(*args, stdin=stdin) for s in servers]
        for s, a in zip(servers[1:], answers[1:]):
            equal(f"etcdctl {args}: {servers[0].name} and {s.name}", answers[0], a)
    for s in servers:
        status, out, _ = s.etcdctl("endpoint", "status", "-w", "json")
        check(f"{s.name}: endpoint status", status == 0 and json.loads(out)[0]["Status"]["dbSize"] > 0)
        status, out, _ = s.etcdctl("member", "list", "-w", "json")
        check(f"{s.name}: member list", status == 0 and len(json.loads(out)["members"]) == 1)
        status, out, err = s.etcdctl("endpoint", "health")
        check(f"{s.name}: endpoint health", status == 0, err)
        status, out, err = s.etcdctl("endpoint", "hashkv")
        check(f"{s.name}: endpoint hashkv", status == 0, err)


class Watcher:
    """etcdctl watch in the background."""

    def __init__(self, server, *args):
        self.process = subprocess.Popen(
            ["etcdctl", "--endpoints", server.address, "watch", *args], text=True,
            env=dict(os.environ, ETCDCTL_API="3"), stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        self.lines = queue.Queue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def take(self, count):
        lines = []
        end = time.monotonic() + WAIT_S
        while len(lines) < count and time.monotonic() < end:
            try:
                lines.append(self.lines.get(timeout=0.1))
            except queue.Empty:
                pass
        return lines

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=WAIT_S)


def wait_for(condition):
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def etcdctl_watch(servers):
    for s in servers:
        rev = s.kv.Put(rpc_pb2.PutRequest(key=b"seen/a", value=b"1")).header.revision
        w = Watcher(s, "--rev", str(rev), "--prefix", "seen/")
        equal(f"{s.name}: etcdctl watch, history", w.take(3), ["PUT", "seen/a", "1"])
        s.etcdctl("put", "seen/b", "2")
        s.etcdctl("del", "seen/a")
        equal(f"{s.name}: etcdctl watch", w.take(6), ["PUT", "seen/b", "2", "DELETE", "seen/a", ""])
        w.stop()


# ---- python3-etcd3 ----


def python_client(server):
    c = etcd3.client(host="127.0.0.1", port=server.port, timeout=WAIT_S)
    events, cancel = c.watch_prefix("py/")
    c.put("py/a", "1")
    c.put("py/b", "2")
    c.delete("py/a")
    got = [next(events) for _ in range(3)]
    equal(f"{server.name}: python watch", [type(e).__name__ for e in got],
          ["PutEvent", "PutEvent", "DeleteEvent"])
    cancel()
    equal(f"{server.name}: python get", c.get("py/b")[0], b"2")
    equal(f"{server.name}: python get_prefix", [v for v, _ in c.get_prefix("py/")], [b"2"])
    equal(f"{server.name}: python replace", c.replace("py/b", "2", "3"), True)
    equal(f"{server.name}: python replace again", c.replace("py/b", "2", "3"), False)
    ok, answers = c.transaction(
        compare=[c.transactions.value("py/b") == "3"],
        success=[c.transactions.put("py/c", "4"), c.transactions.get("py/b")],
        failure=[])
    check(f"{server.name}: python transaction", ok and answers[1][0][0] == b"3", answers)
    check(f"{server.name}: python status", c.status().db_size > 0)
    check(f"{server.name}: python members", len(list(c.members)) == 1)
    c.close()


# ---- what only ours has ----


def queues(server):
    consumer = f"/q/jobs/consumer/{UUID}"
    w = Watcher(server, consumer)
    delivered = f"{consumer}/1/job-1"
    time.sleep(0.5)
    equal("put to a queue", server.etcdctl("put", "/q/jobs/producer/job-1", "hello")[:2], (0, "OK\n"))
    equal("a delivery", w.take(3), ["PUT", delivered, "hello"])
    equal("get of the message", server.etcdctl("get", delivered)[1], f"{delivered}\nhello\n")
    other = delivered.replace("0011", "1011", 1)
    status, _, err = server.etcdctl("del", other)
    check("acknowledge by another", status != 0 and "held by another consumer" in err, err)
    equal("acknowledge", server.etcdctl("del", delivered)[1], "1\n")
    equal("acknowledge again", server.etcdctl("del", delivered)[1], "0\n")
    second = Watcher(server, consumer)
    check("the second watch ends the first", wait_for(lambda: w.process.poll() is not None))
    second.stop()
    for i in range(16):
        server.etcdctl("put", f"/q/full/p/{i}", "x")
    status, _, err = server.etcdctl("put", "/q/full/p/17", "x")
    check("put to a full queue", 'code = ResourceExhausted desc = queue "full": queue is full: '
          "limits.queue_depth" in err, err)
    status, _, err = server.etcdctl("put", "/q/jobs/p/a/b", "x")
    check("too many segments", "code = InvalidArgument desc = queue key: too many segments" in err, err)
    kind, value = ask(server.kv.Put, rpc_pb2.PutRequest(key=b"/q/jobs/p/t", value=b"x" * 1572864))
    equal("message over the limit", value, ("INVALID_ARGUMENT", "etcdserver: request is too large"))
    stream = Stream(server)
    stream.create(key=b"/q/jobs/c/nobody")
    m = stream.next()
    check("a uuid that is none", m.canceled and "not a uuid" in m.cancel_reason, m)
    stream.close()


def bulk(server):
    """A consumer that reads slowly loses nothing, and gets things in order."""
    stream = Stream(server)
    stream.create(key=f"/q/bulk/c/{UUID}".encode())
    created = stream.next()
    check("consumer created", created.created and not created.canceled)
    last = created.header.revision
    for i in range(60):
        value = bytes([i]) * 50000
        kind, value = ask(server.kv.Put, rpc_pb2.PutRequest(key=f"/q/bulk/p/{i}".encode(), value=value))
        check("bulk put", kind == "ok", value)
        m = stream.next()
        e = m.events[0]
        check("bulk revision rises", e.kv.mod_revision > last and m.header.revision == e.kv.mod_revision)
        last = e.kv.mod_revision
        equal("bulk key", e.kv.key.decode().rsplit("/", 1)[1], str(i))
        check("bulk value", e.kv.value == bytes([i]) * 50000)
        server.kv.DeleteRange(rpc_pb2.DeleteRangeRequest(key=e.kv.key))
    stream.close()


def slow_reader(server):
    """A watcher that does not read for a while gets all of it later; others are not held up."""
    options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.http2.lookahead_bytes", 65536)]
    channel = grpc.insecure_channel(server.address, options=options)
    requests = queue.Queue()
    call = rpc_pb2_grpc.WatchStub(channel).Watch(iter(requests.get, None))
    requests.put(rpc_pb2.WatchRequest(create_request=rpc_pb2.WatchCreateRequest(key=b"slow")))
    created = next(call)
    check("slow: created", created.created)
    for i in range(300):
        server.kv.Put(rpc_pb2.PutRequest(key=b"slow", value=str(i).encode() + b"x" * 30000))
    seen = []
    while len(seen) < 300:
        m = next(call)
        seen += [int(e.kv.value.rstrip(b"x")) for e in m.events]
    equal("slow: all, in order", seen, list(range(300)))
    call.cancel()
    requests.put(None)
    channel.close()


def http(server):
    def get(path, method="GET"):
        request = urllib.request.Request(f"http://{server.address}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, ""

    status, body = get("/health")
    equal("/health", (status, json.loads(body)["health"]), (200, "true"))
    status, body = get("/version")
    check("/version", status == 200 and "etcdserver" in json.loads(body))
    equal("/health by POST", get("/health", "POST")[0], 405)


def random_bytes(server, seed):
    """Garbage in messages and on the socket ends that call or connection, and nothing else."""
    r = random.Random(seed)
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as s:
            s.sendall(r.randbytes(r.randrange(1, 400)))
    for service, method in (("KV", "Range"), ("KV", "Put"), ("KV", "Txn"), ("KV", "DeleteRange"),
                            ("Cluster", "MemberAdd"), ("Maintenance", "Alarm")):
        call = server.channel.unary_unary(f"/etcdserverpb.{service}/{method}")
        for _ in range(30):
            try:
                call(r.randbytes(r.randrange(0, 60)), timeout=WAIT_S)
            except grpc.RpcError as e:
                check(f"{method} with garbage", e.code() != grpc.StatusCode.UNAVAILABLE, e.details())
    kind, _ = ask(server.kv.Range, rpc_pb2.RangeRequest(key=b"k"))
    equal("still serving", kind, "ok")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ops", type=int, default=1500)
    args = p.parse_args()
    if not shutil.which("etcdctl"):
        print("skipped: etcdctl is not installed")
        return 77
    print(f"seed {args.seed}")
    # python3-etcd3's watch threads try to come back to a channel that close() has closed.
    threading.excepthook = lambda _: None
    ours = start_ours(args.server)
    real = start_etcd()
    if not real:
        print("etcd is not installed: nothing to compare with")
    servers = [s for s in (ours, real) if s]
    try:
        etcdctl(servers)
        random_operations(servers, args.seed, args.ops)
        watch_history(servers)
        watch_history(servers, filters=[rpc_pb2.WatchCreateRequest.NOPUT])
        watch_history(servers, filters=[rpc_pb2.WatchCreateRequest.NODELETE], prev_kv=False)
        watch_protocol(servers)
        etcdctl_watch(servers)
        for s in servers:
            python_client(s)
        queues(ours)
        bulk(ours)
        slow_reader(ours)
        http(ours)
        random_bytes(ours, args.seed)
    finally:
        if real:
            real.stop()
        status = ours.stop()
    equal("status of the server after SIGTERM", status, 0)
    print("failures:", failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
