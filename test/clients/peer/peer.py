# SPDX-License-Identifier: Apache-2.0
"""A node of a cluster that is no ringpostd: gRPC and dictionaries, by docs/protocol.md and proto/ringpost/v1 alone. It
has no link: frames come and go by ringpost.v1.Peer's Deliver and DeliverOne.

    peer = Peer(protos, cluster_uuid, secret)      # protos: a folder with what protoc made
    peer.serve(); peer.dial("127.0.0.1:2379")
"""
import hashlib
import hmac
import os
import queue
import struct
import threading
import time
import uuid as uuids
from concurrent import futures

import grpc

TYPES = {"FORWARD": 9, "DELIVER": 10, "ACCEPTED": 11, "REJECTED": 12, "QACK": 13, "GET": 14, "REPLY": 15, "MOVED": 16,
         "WITHDRAW": 17, "RESUME": 18, "CLAIM": 24, "HANDOVER": 25}
NAMES = {v: k for k, v in TYPES.items()}
OK, NOT_FOUND = 0, 7
# Fields of a queue message by bit: name, struct.
FIELDS = [("idx", "Q"), ("alloc_node", "Q"), ("uuid", "16s"), ("producer", "QQQ"), ("token", "Q"), ("mod_revision", "Q"),
          ("attempt", "I"), ("count", "I"), ("status", "B"), ("tail_length", "B"), ("total", "I"), ("control", "BI"),
          ("name", None), ("holder", "QQ"), ("age", "QI")]


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def node_id(u):
    return u.int >> 64 ^ u.int & (1 << 64) - 1


class Message:
    """One message, as one flat frame (docs/protocol.md, Unary)."""

    def __init__(self, kind, name, epoch=0, dispatcher=0, flags=0, tail=b"", value=b"", **fields):
        self.kind, self.name, self.epoch, self.dispatcher, self.flags = kind, name, epoch, dispatcher, flags
        self.tail, self.value, self.fields = tail, value, fields

    def __getattr__(self, name):
        return self.fields.get(name, b"\0" * 16 if name == "uuid" else (0, 0, 0) if name == "producer" else 0)

    def encode(self):
        body, bits, payload = b"", 0, self.tail + self.value
        values = dict(self.fields, name=self.name)
        if payload:
            values.update(tail_length=len(self.tail), total=len(payload))
        for bit, (name, form) in enumerate(FIELDS):
            v = values.get(name)
            if not v:
                continue
            bits |= 1 << bit
            if form is None:
                body += bytes([len(v)]) + v
            else:
                body += struct.pack("<" + form, *(v if isinstance(v, tuple) else (v,)))
        return struct.pack("<BBHIIIQ", TYPES[self.kind], self.flags, bits, crc32c(self.name), len(body) + len(payload),
                           self.epoch, self.dispatcher) + body + payload

    @staticmethod
    def decode(frame):
        kind, flags, bits, handle, length, epoch, dispatcher = struct.unpack_from("<BBHIIIQ", frame)
        at, values = 24, {}
        assert len(frame) == 24 + length
        for bit, (name, form) in enumerate(FIELDS):
            if not bits >> bit & 1:
                continue
            if form is None:
                values[name] = frame[at + 1:at + 1 + frame[at]]
                at += 1 + frame[at]
            else:
                v = struct.unpack_from("<" + form, frame, at)
                values[name] = v if len(v) > 1 else v[0]
                at += struct.calcsize("<" + form)
        payload = frame[at:]
        n = values.pop("tail_length", 0)
        assert len(payload) == values.pop("total", 0) and crc32c(values["name"]) == handle
        return Message(NAMES[kind], values.pop("name"), epoch, dispatcher, flags, payload[:n], payload[n:], **values)


def connect(address):
    """A connection of its own: the proof is one connection's, and gRPC would share it."""
    return grpc.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1),))


class Other:
    """A node as seen from here: calls to it, and one Deliver stream."""

    def __init__(self, peer, address):
        self.peer, self.address = peer, address
        self.channel = connect(address)
        status = peer.rpc.StatusResponse.FromString(
            self.call("/etcdserverpb.Maintenance/Status", b""))
        self.node = status.header.member_id
        assert status.header.cluster_id == node_id(peer.cluster), "another cluster"
        self.prove()
        self.out, self.waiting, self.last = queue.Queue(), {}, 0
        self.lock = threading.Lock()
        answers = self.channel.stream_stream("/ringpost.v1.Peer/Deliver")(iter(self.out.get, None))
        self.reader = threading.Thread(target=self.read, args=(answers,), daemon=True)
        self.reader.start()

    def call(self, path, data):
        return self.channel.unary_unary(path)(data, timeout=10, metadata=(("x-peer", str(self.peer.node)),))

    def prove(self):
        pb = self.peer.pb
        nonce = os.urandom(32)
        ask = pb.ProveRequest(node=self.peer.node, cluster=self.peer.cluster.bytes, frame=nonce)
        theirs = pb.ProveReply.FromString(self.call("/ringpost.v1.Peer/Prove", ask.SerializeToString())).frame
        ask.frame = self.peer.mac(1, self.peer.node, self.node, nonce, theirs)
        reply = pb.ProveReply.FromString(self.call("/ringpost.v1.Peer/Prove", ask.SerializeToString()))
        assert reply.proved and reply.frame == self.peer.mac(2, self.peer.node, self.node, nonce, theirs)

    def read(self, answers):
        try:
            for data in answers:
                m = self.peer.pb.Frame.FromString(data)
                with self.lock:
                    box = self.waiting.pop(m.id)
                box.put(m)
        except grpc.RpcError as e:
            with self.lock:
                for box in self.waiting.values():
                    box.put(e)

    def send(self, message):
        """Its status at the other node; through the stream."""
        box = queue.Queue()
        with self.lock:
            self.last += 1
            self.waiting[self.last] = box
            self.out.put(self.peer.pb.Frame(frame=message.encode(), id=self.last).SerializeToString())
        m = box.get(timeout=20)
        if isinstance(m, Exception):
            raise m
        assert m.status == 0, m
        return struct.unpack("<IIQ", m.frame)

    def apply(self, records):
        pb = self.peer.repl
        reply = pb.ReplApplyReply.FromString(self.call("/ringpost.v1.Peer/Apply", pb.ReplApply(
            hello=self.peer.hello(), records=records).SerializeToString()))
        assert reply.skewed == 0 and reply.taken == len(records), reply

    def close(self):
        self.out.put(None)
        self.channel.close()


class Peer:
    def __init__(self, protos, cluster, secret, with_deliver=True):
        self.rpc, self.pb, self.repl = protos
        self.uuid = uuids.uuid4()
        self.node, self.cluster, self.secret = node_id(self.uuid), cluster, secret
        self.boot = int(time.time() * 1e6)
        self.store, self.lock = {}, threading.RLock()  # key: ReplRecord
        self.others, self.proofs = {}, {}
        self.handlers = {}  # of messages, by kind
        self.counts = {"stream": 0, "unary": 0}
        self.with_deliver = with_deliver
        self.work = futures.ThreadPoolExecutor(8)

    # ---- the secret ----

    def mac(self, direction, client, server, client_nonce, server_nonce):
        text = (b"ringpost prove 1\0" + bytes([direction]) + self.cluster.bytes + struct.pack(">QQ", client, server)
                + client_nonce + server_nonce)
        return hmac.new(self.secret, text, hashlib.sha256).digest()

    def on_prove(self, data, context):
        ask, who = self.pb.ProveRequest.FromString(data), context.peer()
        if ask.cluster != self.cluster.bytes:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "another cluster")
        reply = self.pb.ProveReply(node=self.node)
        if who not in self.proofs:
            reply.frame = os.urandom(32)
            self.proofs[who] = (ask.frame, reply.frame)
            return reply.SerializeToString()
        theirs, ours = self.proofs.pop(who)
        if ask.frame != self.mac(1, ask.node, self.node, theirs, ours):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "the secret is wrong")
        reply.proved, reply.frame = True, self.mac(2, ask.node, self.node, theirs, ours)
        return reply.SerializeToString()

    # ---- keys ----

    def hello(self):
        high, low = struct.unpack(">QQ", self.cluster.bytes)
        return self.repl.ReplHello(node=self.node, cluster_high=high, cluster_low=low, ready=True,
                                   wall_us=int(time.time() * 1e6))

    @staticmethod
    def rank(key, deleted, stamp, node, value, epoch=0):
        """A dispatcher's record goes by (epoch, node in it), all others by (stamp, writer)."""
        if key.startswith(b"/q/") and key.count(b"/") == 2:
            fields = value.split(b";")
            for f in fields:
                if f.startswith(b"epoch="):
                    epoch = int(f[6:])
            return (epoch, deleted, 0 if deleted or not fields[0].isdigit() else int(fields[0]), stamp, node)
        return (0, False, 0, stamp, node)

    def merge(self, record):
        have = self.store.get(record.key)
        new = self.rank(record.key, record.deleted, record.stamp, record.node, record.value, record.epoch)
        if have is None or new > self.rank(have.key, have.deleted, have.stamp, have.node, have.value, have.epoch):
            self.store[record.key] = record

    def on_apply(self, data, context):
        m = self.repl.ReplApply.FromString(data)
        with self.lock:
            for r in m.records:
                self.merge(r)
        return self.repl.ReplApplyReply(hello=self.hello(), taken=len(m.records)).SerializeToString()

    def on_sync(self, data, context):
        """Every range differs, so that each is compared key by key: it is a small store."""
        m = self.repl.ReplSync.FromString(data)
        reply = self.repl.ReplSyncReply(hello=self.hello(), differ=range(len(m.ranges)))
        if not m.HasField("listed"):
            return reply.SerializeToString()
        begin, end = m.listed.begin, m.listed.end
        with self.lock:
            seen = set()
            for i, meta in enumerate(m.list):
                seen.add(meta.key)
                have = self.store.get(meta.key)
                if have is None:
                    reply.wanted.append(i)
                    reply.unknown.append(i)
                elif (meta.stamp, meta.node) > (have.stamp, have.node):
                    reply.wanted.append(i)
                elif (meta.stamp, meta.node) < (have.stamp, have.node):
                    reply.newer.append(have)
            for key in sorted(self.store):
                if key not in seen and key >= begin and (not end or key < end):
                    reply.newer.append(self.store[key])
        return reply.SerializeToString()

    def write(self, key, value):
        record = self.repl.ReplRecord(key=key, value=value, stamp=int(time.time() * 1e6), node=self.node)
        with self.lock:
            self.merge(record)
        for other in list(self.others.values()):
            other.apply([record])

    def value(self, key):
        with self.lock:
            r = self.store.get(key)
            return None if r is None or r.deleted else r.value

    # ---- messages ----

    def take(self, frame):
        m = Message.decode(frame)
        fn = self.handlers.get(m.kind)
        status = fn(m) if fn else OK
        return struct.pack("<IIQ", status or OK, m.epoch, m.dispatcher)

    def on_deliver_one(self, data, context):
        self.counts["unary"] += 1
        return self.pb.Frame(frame=self.take(self.pb.Frame.FromString(data).frame)).SerializeToString()

    def on_deliver(self, requests, context):
        for data in requests:
            m = self.pb.Frame.FromString(data)
            self.counts["stream"] += 1
            yield self.pb.Frame(id=m.id, frame=self.take(m.frame)).SerializeToString()

    def later(self, fn, *args):
        """Calls from within a handler are made behind its answer, in order."""
        self.work.submit(fn, *args)

    # ---- life ----

    def on_status(self, data, context):
        reply = self.rpc.StatusResponse()
        reply.header.cluster_id, reply.header.member_id = node_id(self.cluster), self.node
        return reply.SerializeToString()

    def serve(self):
        def unary(fn):
            return grpc.unary_unary_rpc_method_handler(fn)

        methods = {"Prove": unary(self.on_prove), "Apply": unary(self.on_apply), "Sync": unary(self.on_sync),
                   "DeliverOne": unary(self.on_deliver_one)}
        if self.with_deliver:
            methods["Deliver"] = grpc.stream_stream_rpc_method_handler(self.on_deliver)
        self.server = grpc.server(futures.ThreadPoolExecutor(16))
        self.server.add_generic_rpc_handlers((
            grpc.method_handlers_generic_handler("ringpost.v1.Peer", methods),
            grpc.method_handlers_generic_handler("etcdserverpb.Maintenance", {"Status": unary(self.on_status)})))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        self.merge(self.repl.ReplRecord(
            key=b"/_ringpost/node/%d" % self.node, stamp=int(time.time() * 1e6), node=self.node,
            value=b"1;boot=%d;k=1;shards=1;name=python;version=foreign" % self.boot))

    def dial(self, address):
        other = Other(self, address)
        self.others[other.node] = other
        with self.lock:
            mine = [r for r in self.store.values() if r.node == self.node]
        other.apply(mine)

    def stop(self):
        self.work.shutdown(wait=False)
        for other in self.others.values():
            other.close()
        self.server.stop(0)
