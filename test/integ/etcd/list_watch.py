#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""List and watch as Kubernetes' API server does it: list_watch.py BINARIES [KEYS] [SEED]

100,000 keys are listed in pages of 500 at the revision of the first page, while another client writes and
deletes among them: the pages together are exactly what there was at that revision. A watch from the next
revision on then leads to exactly what there is at the end. A list that a compaction overtakes is told so.
"""
import os
import random
import sys
import threading
import time

try:
    import grpc
    from etcd3.etcdrpc import rpc_pb2 as pb, rpc_pb2_grpc
except ImportError as e:
    print(f"SKIP: python3-etcd3: {e}")
    sys.exit(77)
from gateway_server import ringpost

PREFIX, END = b"/registry/pods/", b"/registry/pods0"
PAGE, BATCH, VALUE_BYTES = 500, 100, 200
WAIT_S = 60


def key(n):
    return PREFIX + b"default/pod-%06d" % n


def fill(kv, count, rng):
    """{key: value} as the node has it now, and the revision."""
    state, revision = {}, 0
    for begin in range(0, count, BATCH):
        ops = []
        for n in range(begin, min(count, begin + BATCH)):
            state[key(n)] = rng.randbytes(VALUE_BYTES)
            ops.append(pb.RequestOp(request_put=pb.PutRequest(key=key(n), value=state[key(n)])))
        revision = kv.Txn(pb.TxnRequest(success=ops)).header.revision
    # Of another kind, beside them: no list of these has it.
    kv.Put(pb.PutRequest(key=b"/registry/podtemplates/x", value=b"x"))
    kv.Put(pb.PutRequest(key=b"/registry/nodes/x", value=b"x"))
    return state, revision


class Writer(threading.Thread):
    """Changes one key after another, as the API server does: guarded by the key's revision."""

    def __init__(self, address, state, count, seed):
        super().__init__(daemon=True)
        self.kv = rpc_pb2_grpc.KVStub(grpc.insecure_channel(address))
        self.count, self.rng = count, random.Random(seed)
        self.log = []  # (revision, key, value or None)
        self.failure, self.ended = None, threading.Event()

    def change(self):
        k = key(self.rng.randrange(self.count + self.count // 10))
        got = self.kv.Range(pb.RangeRequest(key=k)).kvs
        guard = pb.Compare(key=k, target=pb.Compare.MOD, result=pb.Compare.EQUAL,
                           mod_revision=got[0].mod_revision if got else 0)
        value = None if got and self.rng.random() < 0.3 else self.rng.randbytes(VALUE_BYTES)
        op = (pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=k)) if value is None else
              pb.RequestOp(request_put=pb.PutRequest(key=k, value=value)))
        r = self.kv.Txn(pb.TxnRequest(compare=[guard], success=[op],
                                      failure=[pb.RequestOp(request_range=pb.RangeRequest(key=k))]))
        assert r.succeeded, "nobody else writes, and the guard did not hold"
        self.log.append((r.header.revision, k, value))

    def run(self):
        try:
            while not self.ended.is_set():
                self.change()
        except Exception as e:  # noqa: BLE001 - told by stop()
            self.failure = e

    def stop(self):
        self.ended.set()
        self.join()
        assert self.failure is None, f"the writer failed: {self.failure}"
        assert len(self.log) > 50, f"only {len(self.log)} changes came in between"


def at(state, log, revision):
    """What there was at a revision."""
    out = dict(state)
    for r, k, value in log:
        if r <= revision and value is None:
            out.pop(k, None)
        elif r <= revision:
            out[k] = value
    return out


def pages(kv, revision=0):
    """Each page of a list at one revision, and that revision."""
    start = PREFIX
    while True:
        r = kv.Range(pb.RangeRequest(key=start, range_end=END, limit=PAGE, revision=revision))
        revision = revision or r.header.revision
        yield r, revision
        if not r.more:
            return
        start = r.kvs[-1].key + b"\0"


def listed(kv, between=lambda n: None):
    """{key: value} of all pages, and the revision."""
    out, left = {}, None
    for n, (r, revision) in enumerate(pages(kv)):
        assert all(kv_.mod_revision <= revision for kv_ in r.kvs), "a page has something newer than the list"
        # `count` is of what the page's range has: what Kubernetes tells as remaining.
        assert left is None or r.count == left, (n, r.count, left)
        left = r.count - len(r.kvs)
        assert r.more == (left > 0) and len(r.kvs) == min(PAGE, r.count)
        keys = [kv_.key for kv_ in r.kvs]
        assert keys == sorted(keys) and not set(keys) & out.keys()
        out.update((kv_.key, kv_.value) for kv_ in r.kvs)
        between(n)
    return out, revision


class Watch(threading.Thread):
    """The events of the prefix from a revision on; progress is asked for every 100 ms."""

    def __init__(self, address, revision):
        super().__init__(daemon=True)
        channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
        self.events, self.seen, self.ended, self.failure = [], 0, threading.Event(), None
        self.stream = rpc_pb2_grpc.WatchStub(channel).Watch(self.requests(revision))

    def requests(self, revision):
        yield pb.WatchRequest(create_request=pb.WatchCreateRequest(
            key=PREFIX, range_end=END, start_revision=revision, prev_kv=True, progress_notify=True))
        # The generated code of python3-etcd3 has no progress request: field 3, empty.
        while not self.ended.wait(0.1):
            yield pb.WatchRequest.FromString(b"\x1a\x00")

    def run(self):
        try:
            for r in self.stream:
                assert not r.canceled, r
                for e in r.events:
                    assert e.kv.mod_revision >= self.seen, "an event came late"
                    self.seen = e.kv.mod_revision
                    self.events.append(e)
                if not r.events and not r.created:
                    self.seen = max(self.seen, r.header.revision)
        except grpc.RpcError as e:
            if not self.ended.is_set():
                self.failure = e
        except AssertionError as e:
            self.failure = e

    def until(self, revision):
        end = time.monotonic() + WAIT_S
        while self.seen < revision and not self.failure and time.monotonic() < end:
            time.sleep(0.02)
        self.ended.set()
        self.stream.cancel()
        assert not self.failure, self.failure
        assert self.seen >= revision, f"the watch came to {self.seen}, not to {revision}"


def follow(state, events):
    """The list after the events, each with what it took the place of."""
    out = dict(state)
    for e in events:
        before = out.get(e.kv.key)
        assert e.prev_kv.value == (before or b""), (e.kv.key, "prev_kv is another")
        if e.type == e.DELETE:
            del out[e.kv.key]
        else:
            assert (e.kv.create_revision == e.kv.mod_revision) == (before is None), e.kv.key
            out[e.kv.key] = e.kv.value
    return out


def compacted(kv):
    """A list that a compaction overtakes has to begin anew."""
    walk = pages(kv)
    _, revision = next(walk)
    now = kv.Put(pb.PutRequest(key=b"/registry/nodes/x", value=b"y")).header.revision
    kv.Compact(pb.CompactionRequest(revision=now))
    try:
        next(walk)
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.OUT_OF_RANGE and "has been compacted" in e.details(), e
        return
    raise AssertionError(f"a page of revision {revision} came after a compaction at {now}")


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    server = ringpost(os.path.abspath(sys.argv[1]))
    try:
        address = f"127.0.0.1:{server.port}"
        kv = rpc_pb2_grpc.KVStub(grpc.insecure_channel(address))
        start = time.monotonic()
        state, _ = fill(kv, count, random.Random(seed))
        print(f"{count} keys in {time.monotonic() - start:.1f} s")
        writer = Writer(address, state, count, seed + 1)
        writer.start()
        start = time.monotonic()
        got, revision = listed(kv)
        print(f"listed {len(got)} keys at revision {revision} in {time.monotonic() - start:.1f} s", flush=True)
        watch = Watch(address, revision + 1)
        watch.start()
        time.sleep(1)
        writer.stop()
        last = writer.log[-1][0]
        assert got == at(state, writer.log, revision), "the list is not what there was at its revision"
        watch.until(last)
        end = follow(got, watch.events)
        assert end == at(state, writer.log, last), "list and watch do not lead to what there is"
        again, _ = listed(kv)
        assert again == end, "a second list differs from the first and its watch"
        # The past is still there, page by page.
        old = {kv_.key: kv_.value for r, _ in pages(kv, revision) for kv_ in r.kvs}
        assert old == got, "the same revision later is another list"
        print(f"{len(watch.events)} events from {revision + 1} to {last}; {len(writer.log)} changes in all")
        compacted(kv)
    finally:
        status = server.stop()
    assert status == 0, f"ringpostd ended with status {status}"
    print("list and watch: as they should")
    return 0


if __name__ == "__main__":
    sys.exit(main())
