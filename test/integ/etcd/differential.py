#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The same random operations to ringpostd and to a real etcd 3.4, the answers compared.

    differential.py BINARIES [--seed N] [--operations N]

Compared field by field: answers with headers (but for the ids in them), errors with code and text,
the events of watches that live through the whole run, the history replayed now and then, and what
goes when leases end. Both begin at the same revision, so revisions are compared as they are. What
is known to differ, and why, is in KNOWN. Status 77 when etcd or python3-etcd3 is missing.
"""

import argparse
import os
import queue
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import etcd_basic as basic
from etcd_basic import ask, check, equal
import grpc
from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc

LEASES = range(1, 7)
PAD = b"0pad"  # below every key of the run
TTL_SLACK_S = 2


def lease_text(name, request, value):
    """An answer of the Lease service as text; seconds that pass, and the order of leases that
    end at the same time, are left out."""
    value = type(value).FromString(value.SerializeToString())
    ttl = None
    if name == "LeaseTimeToLive":
        ttl = value.TTL if value.TTL < 0 else None
        value.ClearField("TTL")
        keys = sorted(value.keys)
        del value.keys[:]
        value.keys.extend(keys)
    if name == "LeaseLeases":
        return f"{value.header.revision} {sorted(l.ID for l in value.leases)}"
    return f"{basic.plain(value)} {ttl}"


# What differs by intent: (name, does it apply, why). `theirs` and `ours` are (kind, text).
KNOWN = [
    ("sort option that is none", lambda name, request, theirs, ours:
     ours == ("error", ("INVALID_ARGUMENT", "etcdserver: invalid sort option")),
     "3.4 ignores it; 3.6 and we refuse it"),
    ("tombstone at the compacted revision", lambda name, request, theirs, ours: False,
     "3.4 has lost it (bugs 18089, 19179): histories are compared from one revision above"),
    ("txn that deletes without an end and puts with ignore_value", lambda name, request, theirs, ours:
     False, "3.4 dies of it, so it is not made"),
    ("TTL of LeaseTimeToLive", lambda name, request, theirs, ours: False,
     f"two calls a moment apart: the granted TTL is compared, the rest within {TTL_SLACK_S} s"),
]


def known(name, request, theirs, ours):
    return next((k[0] for k in KNOWN if k[1](name, request, theirs, ours)), None)


class Random(basic.Random):
    """The operations of etcd_basic.py, with leases that exist."""

    def __init__(self, seed):
        super().__init__(seed)
        self.seen = {}

    def put(self):
        m = super().put()
        if not m.ignore_lease and self.r.random() < 0.4:
            m.lease = self.r.choice(LEASES)
        return m

    def compare(self):
        c = super().compare()
        if self.r.random() < 0.1:
            # LEASE, field 8: newer than python3-etcd3's .proto.
            raw = rpc_pb2.Compare(key=c.key, result=c.result).SerializeToString()
            return rpc_pb2.Compare.FromString(raw + bytes([0x10, 4, 0x40, self.r.choice(LEASES)]))
        return c

    def lease(self):
        what = self.r.random()
        id_ = self.r.choice(LEASES)
        if what < 0.35:
            ttl = self.r.choice([600, 1000, 5000, 9000000000, 9000000001])
            return "LeaseGrant", rpc_pb2.LeaseGrantRequest(ID=id_, TTL=ttl)
        if what < 0.55:
            return "LeaseRevoke", rpc_pb2.LeaseRevokeRequest(ID=id_)
        if what < 0.75:
            return "LeaseTimeToLive", rpc_pb2.LeaseTimeToLiveRequest(
                ID=id_, keys=self.r.random() < 0.7)
        if what < 0.9:
            return "LeaseKeepAlive", rpc_pb2.LeaseKeepAliveRequest(ID=id_)
        return "LeaseLeases", rpc_pb2.LeaseLeasesRequest()

    def operation(self):
        what = self.r.random()
        if what < 0.25:
            return "Put", self.put()
        if what < 0.33:
            return "DeleteRange", self.delete()
        if what < 0.55:
            return "Range", self.range()
        if what < 0.83:
            return "Txn", self.txn()
        if what < 0.85:
            return "Compact", rpc_pb2.CompactionRequest(
                revision=self.revision + self.r.randrange(-20, 3), physical=self.r.random() < 0.3)
        return self.lease()


def method(server, name):
    if not name.startswith("Lease"):
        return getattr(server.kv, name)
    lease = rpc_pb2_grpc.LeaseStub(server.channel)
    if name == "LeaseKeepAlive":
        return lambda request, timeout: next(lease.LeaseKeepAlive(iter([request]), timeout=timeout))
    if name == "LeaseLeases":
        return server.channel.unary_unary(
            "/etcdserverpb.Lease/LeaseLeases",
            request_serializer=rpc_pb2.LeaseLeasesRequest.SerializeToString,
            response_deserializer=rpc_pb2.LeaseLeasesResponse.FromString)
    return getattr(lease, name)


def run_one(servers, r, i, seed):
    name, request = r.operation()
    answers = []
    ttls = []
    for s in servers:
        kind, value = ask(method(s, name), request)
        if kind == "ok":
            r.revision = max(r.revision, value.header.revision)
            if name == "LeaseTimeToLive":
                ttls.append(value.TTL)
            value = lease_text(name, request, value) if name.startswith("Lease") else basic.plain(value)
        answers.append((kind, value))
    if len(ttls) == 2:
        check(f"seed {seed} operation {i}: TTL", abs(ttls[0] - ttls[1]) <= TTL_SLACK_S, ttls)
    if answers[0] == answers[1]:
        return
    why = known(name, request, answers[0], answers[1])
    if why:
        r.seen[why] = r.seen.get(why, 0) + 1
    else:
        check(f"seed {seed} operation {i} {name} {request}", False,
              f"\n  etcd: {answers[0]}\n  ringpost: {answers[1]}")


class Live:
    """Watches of one server from the start of the run to its end."""

    OPTIONS = [dict(key=b"a", range_end=b"zzz"), dict(key=b"a", range_end=b"e", prev_kv=True),
               dict(key=b"b"), dict(key=b"c", range_end=b"\0", filters=[rpc_pb2.WatchCreateRequest.NOPUT]),
               dict(key=b"a", range_end=b"zzz", filters=[rpc_pb2.WatchCreateRequest.NODELETE])]

    def __init__(self, server):
        self.name = server.name
        self.streams = []
        for options in self.OPTIONS:
            s = basic.Stream(server)
            s.create(**options)
            created = s.next()
            check(f"{server.name}: live watch", created is not None and created.created)
            self.streams.append(s)

    def events(self, revision):
        """Of each watch, up to a put of every kind of event at `revision` and behind."""
        out = []
        for s in self.streams:
            events = []
            end = time.monotonic() + basic.WAIT_S
            while time.monotonic() < end:
                try:
                    m = s.answers.get(timeout=0.5)
                except queue.Empty:
                    break
                if not hasattr(m, "events"):
                    events.append(f"ended: {m}")
                    break
                events += [str(e) for e in m.events if e.kv.mod_revision <= revision]
            out.append(events)
            s.close()
        return out


def compare_events(what, theirs, ours):
    for w, (a, b) in enumerate(zip(theirs, ours)):
        for i, (x, y) in enumerate(zip(a, b)):
            if x != y:
                check(f"{what} {w}, event {i}", False, f"\n  etcd: {x}\n  ringpost: {y}")
                break
        equal(f"{what} {w}: number of events", len(b), len(a))


def expiry(servers):
    """Leases that end by themselves: their keys go in one revision, in order, as DELETE events."""
    histories = []
    for s in servers:
        lease = rpc_pb2_grpc.LeaseStub(s.channel)
        stream = basic.Stream(s)
        stream.create(key=b"exp", range_end=b"exq", prev_kv=True)
        stream.next()
        granted = lease.LeaseGrant(rpc_pb2.LeaseGrantRequest(ID=77, TTL=1))
        equal(f"{s.name}: least TTL", granted.TTL, 2)
        for k in (b"exp/b", b"exp/a", b"exp/c"):
            s.kv.Put(rpc_pb2.PutRequest(key=k, value=b"x", lease=77))
        s.kv.Put(rpc_pb2.PutRequest(key=b"exp/c", value=b"detached"))
        events = []
        end = time.monotonic() + basic.WAIT_S
        while len(events) < 6 and time.monotonic() < end:
            m = stream.next(timeout=1)
            events += [str(e) for e in m.events] if m else []
        stream.close()
        histories.append(events)
        kind, value = ask(lease.LeaseRevoke, rpc_pb2.LeaseRevokeRequest(ID=77))
        equal(f"{s.name}: gone", value, ("NOT_FOUND", "etcdserver: requested lease not found"))
    equal("events of an expiry", histories[1], histories[0])


def start_ours(binaries):
    folder = tempfile.mkdtemp(prefix="differential-")
    port = basic.free_port()
    log = open(os.path.join(folder, "log"), "wb")
    p = subprocess.Popen([os.path.join(os.path.abspath(binaries), "ringpostd", "ringpostd"),
                          "--listen-client-urls", f"127.0.0.1:{port}", "--kv-initial-revision", "1"],
                         stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    return basic.Server("ringpost", p, port, folder)


def align(etcd, ours):
    """ringpostd has written its own record: etcd gets as many revisions."""
    target = ours.kv.Range(rpc_pb2.RangeRequest(key=b"a")).header.revision
    while etcd.kv.Put(rpc_pb2.PutRequest(key=PAD)).header.revision < target:
        pass
    got = etcd.kv.Range(rpc_pb2.RangeRequest(key=b"a")).header.revision
    for _ in range(got - target):
        ours.kv.Put(rpc_pb2.PutRequest(key=PAD))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries")
    p.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    p.add_argument("--operations", type=int, default=2000)
    args = p.parse_args()
    print(f"seed {args.seed}", flush=True)
    basic.WAIT_S = 20
    etcd = basic.start_etcd()
    if not etcd:
        print("skipped: etcd is not installed (package etcd-server)")
        return 77
    ours = start_ours(args.binaries)
    servers = [etcd, ours]
    try:
        align(etcd, ours)
        r = Random(args.seed)
        live = [Live(s) for s in servers]
        for i in range(args.operations):
            run_one(servers, r, i, args.seed)
            if i % 1000 == 500:
                basic.watch_history(servers)
            if basic.failures > 3:
                break
        last = [s.kv.Put(rpc_pb2.PutRequest(key=b"zz")).header.revision for s in servers]
        equal("last revision", last[1], last[0])
        compare_events("live watch", *[l.events(last[0]) for l in live])
        expiry(servers)
        for name, count in sorted(r.seen.items()):
            print(f"known difference, {count} times: {name}")
        print(f"{args.operations} operations, revision {last[0]}")
    finally:
        etcd.stop()
        status = ours.stop()
    equal("status of ringpostd after SIGTERM", status, 0)
    print("failures:", basic.failures)
    return 1 if basic.failures else 0


if __name__ == "__main__":
    sys.exit(main())
