#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that mean harm, one after the other, on the client port of a ringpostd: floods.py BINARIES [SECONDS]

Each sends frames of one kind for SECONDS (1) as fast as they are taken. Meanwhile another client puts: none
of its calls fails or waits long. What the node holds for such a client is bounded, and given back.
"""
import multiprocessing
import multiprocessing.forkserver
import os
import select
import socket
import struct
import sys
import threading
import time

try:
    import grpc
    from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc
except ImportError as e:
    print(f"SKIP: python3-etcd3: {e}")
    sys.exit(77)
from gateway_server import ringpost

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# A call of the other client takes no longer, on a busy machine too; nor is more held for all of a flood than
# the 256 MiB of one connection's input, and some.
CALL_S, HELD_MIB = 1.0, 300
# The same of a node with AddressSanitizer, which is slow and keeps what was freed.
CALL_ASAN_S, HELD_ASAN_MIB = 10.0, 1600
STREAM_MAX = 0x7fffffff


def frame(kind, flags, stream, data=b""):
    return struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data


def text(s):
    """An HPACK string, not Huffman coded."""
    b = s if isinstance(s, bytes) else s.encode()
    n = len(b)
    if n < 127:
        return bytes([n]) + b
    out, n = b"\x7f", n - 127
    while n >= 128:
        out, n = out + bytes([n % 128 + 128]), n // 128
    return out + bytes([n]) + b


def block(path, **more):
    fields = {":method": "POST", ":scheme": "http", ":path": path, "content-type": "application/grpc", **more}
    return b"".join(b"\0" + text(k) + text(v) for k, v in fields.items())


def message(stream, body, flags=END_STREAM):
    return frame(DATA, flags, stream, b"\0" + struct.pack(">I", len(body)) + body)


RANGE, WATCH, AUTHENTICATE = ("/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch",
                              "/etcdserverpb.Auth/Authenticate")


def streams():
    return range(1, STREAM_MAX, 2)


def settings():
    while True:
        yield frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65536)) * 500


def pings():
    while True:
        yield frame(PING, 0, 0, b"12345678") * 500


def rapid_reset():
    """CVE-2023-44487: each request is taken back at once."""
    head = block(WATCH)
    for s in streams():
        yield frame(HEADERS, END_HEADERS, s, head) + frame(RST_STREAM, 0, s, b"\0\0\0\x08")


def made_to_reset():
    """CVE-2025-8671: the server is made to reset each request."""
    head = block(WATCH)
    for s in streams():
        yield (frame(HEADERS, END_HEADERS, s, head) +
               frame(WINDOW_UPDATE, 0, s, b"\x7f\xff\xff\xff"))


def continuations():
    """CVE-2024-27316: a block of headers without an end."""
    yield frame(HEADERS, 0, 1, block(RANGE))
    while True:
        yield frame(CONTINUATION, 0, 1, b"\0" + text("a" * 20) + text("b" * 2000))


def empty_continuations():
    yield frame(HEADERS, 0, 1, block(RANGE))
    while True:
        yield frame(CONTINUATION, 0, 1) * 500


def bombs():
    """Blocks of few bytes that stand for 16 MB each: one entry of the table, again and again."""
    yield frame(HEADERS, END_HEADERS | END_STREAM, 1, block(RANGE) + b"\x40" + text("bomb") + text("b" * 4000))
    for s in streams():
        if s > 1:
            yield frame(HEADERS, END_HEADERS | END_STREAM, s, block(RANGE) + b"\xbe" * 4000)


def empty_data():
    """CVE-2019-9518: frames of nothing."""
    yield frame(HEADERS, END_HEADERS, 1, block(WATCH))
    while True:
        yield frame(DATA, 0, 1) * 500


def padding():
    """Frames of padding alone."""
    yield frame(HEADERS, END_HEADERS, 1, block(WATCH))
    while True:
        yield frame(DATA, 8, 1, b"\xff" + bytes(255)) * 50


def priorities():
    for n, s in enumerate(streams()):
        yield frame(PRIORITY, 0, s, struct.pack(">IB", (s * 7 + 2) % 10001, n % 256)) * 100


def windows():
    yield frame(HEADERS, END_HEADERS, 1, block(WATCH))
    while True:
        yield frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1") * 500


def slow_reads():
    """Answers that are asked for and never read."""
    body = rpc_pb2.RangeRequest(key=b"large").SerializeToString()
    yield frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
    for s in streams():
        yield frame(HEADERS, END_HEADERS, s, block(RANGE)) + message(s, body)


def unfinished():
    """Messages that are announced large and never end."""
    for s in streams():
        yield (frame(HEADERS, END_HEADERS, s, block(RANGE)) +
               frame(DATA, 0, s, b"\0" + struct.pack(">I", 2000000) + bytes(16000)))


def passwords():
    """Requests that cost much, each taken back."""
    body = rpc_pb2.AuthenticateRequest(name="root", password="wrong").SerializeToString()
    for s in streams():
        yield (frame(HEADERS, END_HEADERS, s, block(AUTHENTICATE)) + message(s, body) +
               frame(RST_STREAM, 0, s, b"\0\0\0\x08"))


READS_NOTHING = (slow_reads, settings)
FLOODS = [settings, pings, rapid_reset, made_to_reset, continuations, empty_continuations, bombs, empty_data, padding,
          priorities, windows, slow_reads, unfinished, passwords]


def thrown_out(s):
    return select.select([s], [], [], 0)[0] and not s.recv(1 << 20)


def flood_once(s, kind, end, sent):
    """Until the time is over, the server ends the connection, or takes no more of it."""
    s.sendall(PREFACE + frame(SETTINGS, 0, 0))
    for data in kind():
        try:
            s.sendall(data)
        except TimeoutError:
            # Held open to the end: that is what holds memory.
            time.sleep(max(0, end - time.monotonic()))
        sent.value += len(data)
        if time.monotonic() >= end or (kind not in READS_NOTHING and thrown_out(s)):
            return


def flood(kind, port, seconds, sent):
    """In a process of its own; begins anew when it is thrown out."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.settimeout(0.2)
            try:
                flood_once(s, kind, end, sent)
            except (ConnectionError, TimeoutError):
                pass


class Client(threading.Thread):
    """Puts on one connection all the while."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.kv = rpc_pb2_grpc.KVStub(self.channel)
        self.took, self.failure, self.ended = [], None, threading.Event()

    def run(self):
        try:
            while not self.ended.is_set():
                start = time.monotonic()
                self.kv.Put(rpc_pb2.PutRequest(key=b"steady", value=b"x"), timeout=10)
                self.took.append(time.monotonic() - start)
                time.sleep(0.001)
        except Exception as e:  # noqa: BLE001 - told by stop()
            self.failure = e

    def stop(self):
        self.ended.set()
        self.join()
        self.channel.close()
        assert self.failure is None, f"the other client failed: {self.failure}"
        return sorted(self.took)


def rss_mib(pid):
    for line in open(f"/proc/{pid}/status", encoding="ascii"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0


def during(server, action):
    """The other client's times while the action goes on, and the most memory."""
    client = Client(server.port)
    client.start()
    process = action()
    most = 0
    while process.is_alive():
        most = max(most, rss_mib(server.process.pid))
        process.join(0.05)
    return client.stop(), most


def settle(server):
    """Connections of floods are gone; returns the memory then."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        text_ = server.ask("GET", "/metrics")[1].decode()
        held = {l.split()[0]: float(l.split()[1]) for l in text_.splitlines() if l.startswith("ringpost_grpc_")}
        # This request's own is the one.
        if held.get("ringpost_grpc_conns_open", 1) <= 1:
            break
        time.sleep(0.1)
    return rss_mib(server.process.pid)


def main():
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    # Which meson sets: memory that is taken and not used yet would be resident.
    os.environ.pop("MALLOC_PERTURB_", None)
    if not os.path.isdir(sys.argv[1]):
        sys.exit("no such folder")
    # Forked before gRPC has threads: a fork beside them may find a lock taken for ever.
    processes = multiprocessing.get_context("forkserver")
    multiprocessing.forkserver.ensure_running()
    server = ringpost(os.path.abspath(sys.argv[1]))
    with open(os.path.join(sys.argv[1], "ringpostd", "ringpostd"), "rb") as f:
        call_s, held_mib = (CALL_ASAN_S, HELD_ASAN_MIB) if b"__asan_init" in f.read() else (CALL_S, HELD_MIB)
    faults = []
    try:
        channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        kv = rpc_pb2_grpc.KVStub(channel)
        kv.Put(rpc_pb2.PutRequest(key=b"large", value=bytes(1000000)))
        auth = rpc_pb2_grpc.AuthStub(channel)
        auth.UserAdd(rpc_pb2.AuthUserAddRequest(name="root", password="right"))
        channel.close()
        for kind in FLOODS:
            before = settle(server)
            sent = processes.Value("Q", 0, lock=False)

            def action(kind=kind, sent=sent):
                p = processes.Process(target=flood, args=(kind, server.port, seconds, sent))
                p.start()
                return p

            took, most = during(server, action)
            assert server.process.poll() is None, f"{kind.__name__}: the node is gone"
            after = settle(server)
            p99, worst = took[len(took) * 99 // 100], took[-1]
            print(f"{kind.__name__:20} {sent.value / 1e6:7.1f} MB sent; others: {len(took)} puts, p99 {p99 * 1e3:.1f} ms, "
                  f"worst {worst * 1e3:.1f} ms; RSS {before:.0f}, at most {most:.0f}, then {after:.0f} MiB", flush=True)
            if worst > call_s:
                faults.append(f"{kind.__name__}: a put took {worst:.1f} s")
            if most > before + held_mib:
                faults.append(f"{kind.__name__}: {most - before:.0f} MiB were held")
    finally:
        status = server.stop()
    assert status == 0, f"ringpostd ended with status {status}"
    for fault in faults:
        print(f"FAIL {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
