# SPDX-License-Identifier: Apache-2.0
"""Clients of other makes (grpc's C core, curl) against the server: interop.py <echo_server>."""
import gzip
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

try:
    import grpc
except ImportError:
    print("python3-grpcio is missing: skipped")
    sys.exit(77)

SERVER = sys.argv[1]
CURL = shutil.which("curl")
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


class Server:
    def __init__(self, *args, addresses=("127.0.0.1:0",)):
        self.process = subprocess.Popen([SERVER, *args, *addresses], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.ports = [int(self.process.stdout.readline().split()[1]) for _ in addresses]
        self.port = self.ports[0]
        self.target = f"127.0.0.1:{self.port}"

    def drain(self):
        self.process.stdin.write("d")
        self.process.stdin.flush()

    def stop(self):
        self.process.stdin.close()
        text = self.process.stdout.read()
        assert self.process.wait(20) == 0, self.process.returncode
        return {k: int(v) for k, v in (line.split() for line in text.splitlines())}

    def rss_kib(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


class Echo:
    """The server's methods with plain bytes."""

    def __init__(self, channel):
        self.channel = channel
        for name in ("Unary", "Fail", "Counters", "Meta", "Never", "Nope"):
            setattr(self, name.lower(), channel.unary_unary(f"/test.Echo/{name}"))
        self.bidi = channel.stream_stream("/test.Echo/Bidi")
        self.never_bidi = channel.stream_stream("/test.Echo/NeverBidi")
        self.early = channel.stream_stream("/test.Echo/Early")
        self.down = channel.unary_stream("/test.Echo/Down")
        self.up = channel.stream_unary("/test.Echo/Up")


def expect(call, code, text):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, (error.code(), error.details())
        assert error.details() == text, error.details()
        return
    raise AssertionError(f"no error, {code} {text} expected")


def eventually(probe, seconds=5):
    end = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_unary(echo):
    for size in (0, 1, 5, 16379, 16384, 70000, 1 << 20, 2 << 20):
        data = os.urandom(size)
        assert echo.unary(data) == data
    expect(lambda: echo.unary(bytes((2 << 20) + 1)), grpc.StatusCode.RESOURCE_EXHAUSTED,
        "grpc: received message larger than max (2097153 vs. 2097152)")
    assert echo.unary(b"after") == b"after"


def test_errors(echo):
    expect(lambda: echo.fail(b"5 etcdserver: requested lease not found"), grpc.StatusCode.NOT_FOUND,
        "etcdserver: requested lease not found")
    text = "percent % and \n and \u00e4\u6f22"
    expect(lambda: echo.fail(b"3 " + text.encode()), grpc.StatusCode.INVALID_ARGUMENT, text)
    expect(lambda: echo.nope(b""), grpc.StatusCode.UNIMPLEMENTED,
        "unknown method Nope for service test.Echo")
    other = echo.channel.unary_unary("/no.Such/Thing")
    expect(lambda: other(b""), grpc.StatusCode.UNIMPLEMENTED, "unknown service no.Such")
    expect(lambda: list(echo.early(iter([]))), grpc.StatusCode.FAILED_PRECONDITION, "too early")


def test_metadata(echo):
    answer = echo.meta(b"", metadata=(("token", "secret"), ("data-bin", b"\x01xyz")))
    assert answer == b"secret|\x01xyz|1|-", answer


def test_deadline(echo):
    before = echo.counters(b"").split()
    start = time.monotonic()
    try:
        echo.never(b"x", timeout=0.3)
        raise AssertionError("answered")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert 0.2 < time.monotonic() - start < 3
    # The client's reset and our own timer race: either ends the work.
    eventually(lambda: sum(map(int, echo.counters(b"").split()[:2])) ==
        sum(map(int, before[:2])) + 1)


def test_cancel(echo):
    before = int(echo.counters(b"").split()[0])
    call = echo.never.future(b"x")
    stream = echo.never_bidi(iter([b"1"]))
    stream.initial_metadata()  # HEADERS come before any message
    call.cancel()
    stream.cancel()
    eventually(lambda: int(echo.counters(b"").split()[0]) == before + 2)


def test_bidi(echo):
    rng = random.Random(7)
    messages = [rng.randbytes(rng.randrange(0, 50000)) for _ in range(300)]
    assert list(echo.bidi(iter(messages))) == messages


def test_up(echo):
    pieces = [bytes(100000)] * 200
    assert echo.up(iter(pieces)) == b"20000000"


def test_down(echo):
    got = list(echo.down(b"300 100000"))
    assert len(got) == 300 and all(len(m) == 100000 for m in got)


def test_many_streams(echo):
    streams = [echo.never_bidi(iter([])) for _ in range(0)]
    calls = [echo.bidi(iter([b"a%d" % i])) for i in range(1000)]
    for i, call in enumerate(calls):
        assert list(call) == [b"a%d" % i]
    futures = [echo.unary.future(b"%d" % i) for i in range(1000)]
    assert [f.result() for f in futures] == [b"%d" % i for i in range(1000)]
    assert not streams


def test_slow_reader(server, echo):
    """A stream that nobody reads: bounded memory, and the others go on."""
    before = server.rss_kib()
    with grpc.insecure_channel(server.target, options=OPTIONS) as channel:
        slow = Echo(channel).down(b"3000 100000")
        next(slow)
        time.sleep(0.3)
        for _ in range(50):
            echo.unary(b"x" * 1000)
        assert server.rss_kib() - before < 32 << 10, (before, server.rss_kib())
        assert sum(1 for _ in slow) == 2999


def test_garbage(server, echo):
    """Random bytes close their own connection and nothing else."""
    rng = random.Random(11)
    stream = echo.bidi(iter_queue := QueueIterator())
    iter_queue.put(b"before")
    assert next(stream) == b"before"
    for i in range(60):
        head = rng.choice([b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + bytes.fromhex("000000040000000000"), b"GET / HTTP/1.1\r\n"])
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.settimeout(10)
            try:
                s.sendall(head + rng.randbytes(rng.randrange(1, 3000)))
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except (ConnectionResetError, BrokenPipeError):
                pass
    iter_queue.put(b"after")
    assert next(stream) == b"after"
    iter_queue.end()


class QueueIterator:
    def __init__(self):
        self.items, self.ready, self.over = [], threading.Condition(), False

    def __iter__(self):
        return self

    def put(self, item):
        with self.ready:
            self.items.append(item)
            self.ready.notify()

    def end(self):
        with self.ready:
            self.over = True
            self.ready.notify()

    def __next__(self):
        with self.ready:
            self.ready.wait_for(lambda: self.items or self.over, 60)
            if not self.items:
                raise StopIteration
            return self.items.pop(0)


def curl(*args, data=None):
    return subprocess.run([CURL, "-sS", "-m", "20", *args], input=data, capture_output=True,
        check=True).stdout


def test_curl(server):
    base = f"http://127.0.0.1:{server.port}"
    for version in ("--http1.1", "--http1.0", "--http2-prior-knowledge"):
        head = curl(version, "-i", base + "/health").decode().lower()
        assert "200" in head.splitlines()[0] and "access-control-allow-origin: *" in head
        assert head.endswith('{"health":"true"}')
        assert "404" in curl(version, "-i", base + "/nothing").decode().splitlines()[0]
        assert curl(version, base + "/pieces/a?q=1") == b"one\nq=1"
        body = os.urandom(300000)
        assert curl(version, "--data-binary", "@-", base + "/mirror", data=body) == body
        assert "413" in curl(version, "-i", "--data-binary", "@-", base + "/mirror",
            data=bytes(5 << 20)).decode(errors="replace").splitlines()[0]
        code = curl(version, "-X", "OPTIONS", "-o", "/dev/null", "-w", "%{http_code}", base + "/health")
        assert code == b"200"
        # Two requests on one connection; curl 7.88 cannot do that with prior knowledge.
        if version == "--http1.1":
            assert curl(version, base + "/health", base + "/health") == b'{"health":"true"}' * 2
    assert curl("--http1.1", "-H", "Transfer-Encoding: chunked", "--data-binary", "@-", base + "/mirror",
        data=body) == body
    grpc_type = ("-H", "content-type: application/grpc", "--http2-prior-knowledge")
    assert curl(*grpc_type, "--data-binary", "@-", base + "/test.Echo/Unary",
        data=b"\0\0\0\0\2hi") == b"\0\0\0\0\2hi"
    assert "405" in curl(*grpc_type, "-i", base + "/test.Echo/Unary").decode().splitlines()[0]
    bad = curl(*grpc_type, "-i", "-H", "grpc-timeout: 5x", "-d", "", base + "/test.Echo/Unary").decode()
    assert "400" in bad.splitlines()[0] and "grpc-status: 13" in bad
    for encoding, status, text in (
            (None, 13, "grpc: compressed flag set with identity or empty encoding"),
            ("gzip", 12, 'grpc: Decompressor is not installed for grpc-encoding "gzip"')):
        more = ("-H", f"grpc-encoding: {encoding}") if encoding else ()
        got = curl(*grpc_type, *more, "-i", "--data-binary", "@-", base + "/test.Echo/Unary",
            data=b"\1\0\0\0\2hi").decode()
        assert f"grpc-status: {status}" in got and text in got, got
    got = curl("--http2-prior-knowledge", "-i", "-d", "{}", base + "/test.Echo/Unary").decode()
    assert "415" in got.splitlines()[0]


def test_gzip():
    server = Server("--gzip")
    with grpc.insecure_channel(server.target, options=OPTIONS) as channel:
        unary = channel.unary_unary("/test.Echo/Unary")
        data = b"abc" * 100000
        assert unary(data, compression=grpc.Compression.Gzip) == data
        expect(lambda: unary(bytes(30 << 20), compression=grpc.Compression.Gzip),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "grpc: received message larger than max (2097153 vs. 2097152)")
        # What was not asked for is not compressed, nor what does not shrink.
        assert unary(data) == data
        noise = os.urandom(5000)
        assert unary(noise, compression=grpc.Compression.Gzip) == noise
    packed = gzip.compress(data)
    body = b"\1" + len(packed).to_bytes(4, "big") + packed
    for accept, flag in (("identity, gzip", 1), ("identity", 0)):
        got = curl("--http2-prior-knowledge", "-i", "-H", "content-type: application/grpc", "-H",
            "grpc-encoding: gzip", "-H", f"grpc-accept-encoding: {accept}", "--data-binary", "@-",
            f"http://{server.target}/test.Echo/Unary", data=body)
        head, _, answer = got.partition(b"\r\n\r\n")
        assert answer[0] == flag and (b"grpc-encoding: gzip" in head) == bool(flag), head
        length = int.from_bytes(answer[1:5], "big")
        message = answer[5:5 + length]
        assert (gzip.decompress(message) if flag else message) == data
        assert b"grpc-accept-encoding: gzip" in head
    stats = server.stop()
    # Once in full for the call without compression, once for the one that takes none.
    assert 2 * len(data) < stats["bytes_out"] < 2.5 * len(data), stats["bytes_out"]


def test_drain():
    server = Server()
    with grpc.insecure_channel(server.target, options=OPTIONS) as channel:
        echo = Echo(channel)
        requests = QueueIterator()
        stream = echo.bidi(requests)
        requests.put(b"one")
        assert next(stream) == b"one"
        server.drain()
        time.sleep(0.3)
        requests.put(b"two")
        assert next(stream) == b"two"  # a call in flight goes on
        expect(lambda: next(stream), grpc.StatusCode.UNAVAILABLE, "etcdserver: server stopped")
        requests.end()
    stats = server.stop()
    assert stats["conns_open"] == 0 and stats["calls_open"] == 0


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def make_certificates(folder):
    def path(name):
        return os.path.join(folder, name)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", path("ca.key"), "-out", path("ca.pem"), "-days", "2", "-subj", "/CN=test ca")
    for name, san in (("server", "DNS:localhost,IP:127.0.0.1"), ("client", "DNS:client")):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", path(name + ".key"), "-out", path(name + ".csr"), "-subj", f"/CN={name}-cn")
        with open(path("ext"), "w") as f:
            f.write(f"subjectAltName={san}\n")
        openssl("x509", "-req", "-in", path(name + ".csr"), "-CA", path("ca.pem"), "-CAkey",
            path("ca.key"), "-CAcreateserial", "-days", "2", "-extfile", path("ext"), "-out",
            path(name + ".pem"))
    return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


def test_tls():
    if not shutil.which("openssl"):
        print("openssl is missing: TLS not tested here")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = make_certificates(folder)
        tls = ("--tls", path("server.pem"), path("server.key"))
        server = Server(*tls)
        credentials = grpc.ssl_channel_credentials(read(path("ca.pem")))
        with grpc.secure_channel(server.target, credentials, options=OPTIONS) as channel:
            echo = Echo(channel)
            test_unary(echo)
            test_bidi(echo)
            test_down(echo)
            test_up(echo)
        if CURL:
            base = f"https://127.0.0.1:{server.port}"
            for version, shown in (("--http1.1", b"1.1"), ("--http2", b"2")):
                got = curl(version, "--cacert", path("ca.pem"), "-w", " %{http_version}",
                    base + "/health")
                assert got == b'{"health":"true"} ' + shown, got
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.sendall(b"GET / HTTP/1.1\r\n\r\n")  # plain text on a TLS port
            s.settimeout(10)
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
        assert server.stop()["conns_closed_tls"] == 1
        server = Server(*tls, "--ca", path("ca.pem"))
        credentials = grpc.ssl_channel_credentials(read(path("ca.pem")), read(path("client.key")),
            read(path("client.pem")))
        with grpc.secure_channel(server.target, credentials, options=OPTIONS) as channel:
            assert Echo(channel).meta(b"") == b"-||1|client-cn"
        credentials = grpc.ssl_channel_credentials(read(path("ca.pem")))
        with grpc.secure_channel(server.target, credentials, options=OPTIONS) as channel:
            try:
                Echo(channel).unary(b"x", timeout=5)
                raise AssertionError("no certificate was asked for")
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE
        server.stop()


def test_unix():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "s")
        server = Server(addresses=("unix:" + path, "localhost:0"))
        for target in ("unix:" + path, f"127.0.0.1:{server.ports[1]}"):
            with grpc.insecure_channel(target, options=OPTIONS) as channel:
                assert Echo(channel).unary(b"hello") == b"hello"
        server.stop()
        assert not os.path.exists(path)


def main():
    server = Server()
    with grpc.insecure_channel(server.target, options=OPTIONS) as channel:
        echo = Echo(channel)
        for test in (test_unary, test_errors, test_metadata, test_deadline, test_cancel, test_bidi,
                test_up, test_down, test_many_streams):
            start = time.monotonic()
            test(echo)
            print(f"{test.__name__} {time.monotonic() - start:.2f} s", flush=True)
        test_slow_reader(server, echo)
        test_garbage(server, echo)
        print("slow reader, garbage", flush=True)
    if CURL:
        test_curl(server)
        print("curl", flush=True)
    eventually(lambda: True)
    stats = server.stop()
    assert stats["in_bytes_held"] == 0 and stats["out_bytes_held"] == 0, stats
    assert stats["calls_open"] == 0 and stats["conns_open"] <= 1, stats
    print(stats)
    for test in (test_gzip, test_drain, test_tls, test_unix):
        test()
        print(test.__name__, flush=True)


main()
