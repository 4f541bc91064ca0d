#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Server reflection and health of a ringpostd, with a client that knows no .proto but what
reflection tells it.

    reflection.py BINARIES
"""
import os
import queue
import sys

try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError as e:
    print(f"SKIP: {e}")
    sys.exit(77)

from gateway_server import WAIT_S, ringpost

BINARIES = os.path.abspath(sys.argv[1])
RAW = {"request_serializer": bytes, "response_deserializer": bytes}
SERVICES = {"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Cluster", "etcdserverpb.Lease",
            "etcdserverpb.Maintenance", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection", "ringpost.v1.Admin", "ringpost.v1.Peer", "ringpost.v1.Process"}


def text_field(number, text):
    return bytes([number << 3 | 2, len(text)]) + text.encode()


def parts(data):
    """Fields of a message with bytes in them: (number, bytes)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = varint()
        if tag & 7 == 2:
            n = varint()
            yield tag >> 3, data[at:at + n]
            at += n
        else:
            yield tag >> 3, varint()


class Reflection:
    """One stream; a request, an answer."""

    def __init__(self, channel, version):
        self.requests = queue.Queue()
        call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo", **RAW)
        self.answers = call(iter(self.requests.get, None), timeout=WAIT_S)

    def ask(self, number, text):
        """Number of the answer's kind, and its bytes."""
        self.requests.put(text_field(number, text))
        got = {n: v for n, v in parts(next(self.answers))}
        assert got[2] == text_field(number, text), got  # the request, as it was
        (kind,) = set(got) - {1, 2}
        return kind, got[kind]

    def files(self, number, text):
        kind, data = self.ask(number, text)
        assert kind == 4, (text, kind, data)
        return [descriptor_pb2.FileDescriptorProto.FromString(v) for _, v in parts(data)]

    def end(self):
        self.requests.put(None)
        assert list(self.answers) == []
        assert self.answers.code() == grpc.StatusCode.OK


def services_of(channel, version):
    r = Reflection(channel, version)
    kind, data = r.ask(7, "*")
    names = {next(parts(v))[1].decode() for _, v in parts(data)}
    assert kind == 6 and names >= SERVICES, (names, SERVICES - names)
    for name in names:
        (file, *_) = r.files(4, name)
        package, _, service = name.rpartition(".")
        assert file.package == package and service in [s.name for s in file.service], file.name
    for symbol, file in {"etcdserverpb.RangeRequest": "etcdserverpb/rpc.proto",
                         "etcdserverpb.RangeRequest.SortOrder": "etcdserverpb/rpc.proto",
                         "etcdserverpb.KV.Range": "etcdserverpb/rpc.proto",
                         "etcdserverpb.AlarmType": "etcdserverpb/rpc.proto",
                         "grpc.health.v1.HealthCheckResponse.ServingStatus":
                         "grpc/health/v1/health.proto",
                         "mvccpb.Event.EventType": "mvccpb/kv.proto"}.items():
        assert r.files(4, symbol)[0].name == file, symbol
    for number, text in ((4, "etcdserverpb.Nothing"), (4, "etcdserverpb"), (4, ""), (4, "x.y"),
                         (4, "etcdserverpb.KV.Range.x"), (4, "etcdserverpb.RangeRequest.No"),
                         (3, "no.proto"), (6, "no.Type")):
        kind, data = r.ask(number, text)
        assert kind == 7 and dict(parts(data))[1] == 5, (text, kind, data)
    assert r.ask(6, "mvccpb.KeyValue")[0] == 5
    assert [f.name for f in r.files(3, "etcdserverpb/rpc.proto")] == [
        "etcdserverpb/rpc.proto", "mvccpb/kv.proto"]
    r.end()


def dynamic(channel):
    """A call whose messages were never compiled in here."""
    r = Reflection(channel, "v1")
    pool = descriptor_pool.DescriptorPool()
    for file in reversed(r.files(4, "etcdserverpb.KV")):
        pool.Add(file)
    r.end()
    service = pool.FindServiceByName("etcdserverpb.KV")
    make = message_factory.MessageFactory(pool).GetPrototype

    def call(name, **fields):
        m = service.FindMethodByName(name)
        stub = channel.unary_unary(f"/etcdserverpb.KV/{name}",
                                   request_serializer=make(m.input_type).SerializeToString,
                                   response_deserializer=make(m.output_type).FromString)
        return stub(make(m.input_type)(**fields), timeout=WAIT_S)

    call("Put", key=b"k", value=b"v")
    assert call("Range", key=b"k").kvs[0].value == b"v"


def health(server, channel):
    check = channel.unary_unary("/grpc.health.v1.Health/Check", **RAW)
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch", **RAW)
    assert check(b"", timeout=WAIT_S) == b"\x08\x01"
    try:
        check(text_field(1, "etcdserverpb.KV"), timeout=WAIT_S)
        raise AssertionError("a service is known")
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.NOT_FOUND and e.details() == "unknown service"
    assert channel.unary_unary("/grpc.health.v1.Health/List", **RAW)(b"", timeout=WAIT_S)
    unknown, known = watch(text_field(1, "nobody")), watch(b"")
    assert next(unknown) == b"\x08\x03" and next(known) == b"\x08\x01"
    status = server.stop()
    # What a client sees of a stop: first that it serves no more, then the end.
    assert next(known) == b"\x08\x02"
    for call in (known, unknown):
        try:
            next(call)
            raise AssertionError("the watch goes on")
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.UNAVAILABLE, e
    assert status == 0, status


def main():
    server = ringpost(BINARIES)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        services_of(channel, "v1")
        services_of(channel, "v1alpha")
        dynamic(channel)
        health(server, channel)
    print("ok")
    return 0


sys.exit(main())
