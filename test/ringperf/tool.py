#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ringperf says must be true: tool.py RINGPERF SOURCE BINARIES latency|modes|all_modes|shell|etcd|nats

- latency: a stub that stalls for a second shows in the corrected p99.9 and not in the raw; a rate that it cannot
  reach gives a status; the search finds about what it can do; reports follow their schema, and are drawn.
- modes: the modes with queues, and connections that come and go, between two ringperfs over a memif port; all_modes:
  all of them, and over kernel sockets.
- shell: testpmd's words; a file of commands stops at an error.
- etcd: puts, ranges and events of a ringpostd; unary calls of gRPC.
- nats: both exchanges through a nats-server.
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

RINGPERF, SOURCE, BINARIES = [os.path.abspath(a) for a in sys.argv[1:4]]
PART = sys.argv[4]
SOURCE = pathlib.Path(SOURCE)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Stub:
    """Echoes on one connection after another; stands still for a second once, or takes so long for each."""

    def __init__(self, stall_at=None, each_s=0.0):
        self.stall_at, self.each_s = stall_at, each_s
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        begin, stalled = time.monotonic(), self.stall_at is None
        with c:
            while True:
                try:
                    data = c.recv(65536)
                    if not data:
                        return
                    if not stalled and time.monotonic() - begin > self.stall_at:
                        stalled = True
                        time.sleep(1)
                    if self.each_s:
                        time.sleep(self.each_s)
                    c.sendall(data)
                except OSError:
                    return


def run(*words, status=0, timeout=60):
    r = subprocess.run([RINGPERF, *words], capture_output=True, text=True, timeout=timeout, check=False)
    assert r.returncode == status, (words, r.returncode, r.stdout, r.stderr)
    return r


def result(*words, **more):
    value = json.loads(run(*words, "--json", **more).stdout)
    try:
        import jsonschema
        schema = json.loads((SOURCE / "docs" / "schema" / "ringperf.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(value)
    except ImportError:
        pass
    return value


def against(port, *more):
    return ["run", "tcp-rr", "--peer", "127.0.0.1", "--port", str(port), "--idle", "adaptive", "--hugepages", "off", *more]


def latency():
    stub = Stub(stall_at=1.0)
    with tempfile.TemporaryDirectory(prefix="ringperf-") as folder:
        files = {k: os.path.join(folder, k) for k in ("hgrm", "csv", "json-file")}
        words = [w for k, v in files.items() for w in ("--" + k, v)]
        v = result(*against(stub.port, "--rate", "600", "--seconds", "3", "--warmup-ms", "200", *words))
        corrected, raw = v["latency_us"]["corrected"], v["latency_us"]["raw"]
        print(f"  a stall: corrected p99.9 {corrected['p99.9'] / 1e6:.2f} s, raw {raw['p99.9'] / 1e6:.3f} s")
        assert corrected["p99.9"] > 0.9e6 and corrected["p90"] > 0.3e6, corrected
        assert raw["p99.9"] < 0.5e6 and raw["max"] > 0.9e6, raw
        assert v["rate"]["met"] and v["good"] and v["latency_us"]["of"] == "round trip", v
        assert json.loads(pathlib.Path(files["json-file"]).read_text()) == v
        hgrm = pathlib.Path(files["hgrm"]).read_text()
        assert re.search(r"^ +Value +Percentile TotalCount 1/\(1-Percentile\)\n\n", hgrm), hgrm[:200]
        rows = [line.split() for line in hgrm.splitlines()[2:] if line and not line.startswith("#")]
        assert len(rows) > 20 and float(rows[-1][1]) == 1 and int(rows[-1][2]) == v["rate"]["done"], rows[-3:]
        assert [float(r[0]) for r in rows] == sorted(float(r[0]) for r in rows)
        csv = pathlib.Path(files["csv"]).read_text().splitlines()
        assert csv[1] == "kind,at,corrected_us,raw_us,count,max_us" and len(csv) > 50, csv[:5]
        draw(folder, files)
    stub = Stub(each_s=0.005)
    r = run(*against(stub.port, "--rate", "1000", "--seconds", "0.5"), status=1)
    assert "NOT MET" in r.stdout and "of 1000/s" in r.stdout, r.stdout
    found = result(*against(stub.port, "--search", "2000", "--search-steps", "6", "--seconds", "0.3", "--warmup-ms", "50"))
    assert len(found["search"]) == 6 and found["rate"]["met"], found
    print(f"  the search: {[round(t['rate']) for t in found['search']]}, {found['rate']['wanted']:.0f}/s")
    assert 20 <= found["rate"]["wanted"] <= 200, found["rate"]


def draw(folder, files):
    plot = SOURCE / "tools" / "plot"
    try:
        subprocess.run(["/usr/bin/python3", "-c", "import matplotlib"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print("  no matplotlib: nothing is drawn")
        return
    png, svg = (os.path.join(folder, f"picture.{ending}") for ending in ("png", "svg"))
    subprocess.run(["/usr/bin/python3", str(plot), files["json-file"], files["hgrm"], "-o", png, "-o", svg], check=True,
                   capture_output=True)
    assert pathlib.Path(png).read_bytes().startswith(b"\x89PNG")
    assert pathlib.Path(svg).read_bytes().startswith(b"<?xml")


class Server:
    def __init__(self, *words, inside=()):
        self.p = subprocess.Popen([*inside, RINGPERF, "run", *words, "--serve", "--idle", "adaptive", "--hugepages", "off"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.p.stdout.readline()
        assert line == "ready\n", (words, line, self.p.communicate(timeout=20))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.p.terminate()
        out, err = self.p.communicate(timeout=20)
        if exception[0]:
            print("the server:", out, err)
        else:
            assert self.p.returncode in (0, -15), (self.p.returncode, out, err)


def check_far(v, other_clock):
    """What the other end of `deliver` saw: times where both ends read one clock, and its load."""
    way = v["one_way_us"]
    assert "one way" in way["of"] and "round trip" in v["latency_us"]["of"], v
    if other_clock:
        assert "not_available" in way and "corrected" not in way, way
    else:
        assert 0 < way["raw"]["p50"] <= v["latency_us"]["raw"]["max"], (way, v["latency_us"])
        assert way["raw"]["p50"] <= way["corrected"]["max"], way
    assert v["load"]["messages"] >= v["rate"]["done"] <= v["load_other_end"]["messages"], v
    for load in v["load"], v["load_other_end"]:
        assert 0 < load["busy_turns"] <= load["turns"] and load["busy_ns"] > 0, load
        assert load["frames_out"] > 0 and load["sends"] > 0, load
    assert (v["load"]["segments_out"] > 0) == (v["setting"]["transport"] == "tcp"), v["load"]


def both(mode, folder, transport, *more, server_more=(), inside=()):
    if transport == "memif":
        sock = os.path.join(folder, mode)
        ends = [["--device", f"net_memif0,role={role},socket-abstract=no,socket={sock}", "--ipv4", f"10.9.0.{i}/24",
                 "--peer", f"10.9.0.{3 - i}"] for i, role in ((1, "server"), (2, "client"))]
    else:
        port = str(free_port())
        # A kernel node listens and is dialled on an address of the loopback's own.
        ends = [["--ipv4", "127.0.0.1", "--peer", "127.0.0.2", "--port", port],
                ["--ipv4", "127.0.0.2", "--peer", "127.0.0.1", "--port", port]]
    with Server(mode, *ends[0], *server_more, inside=inside):
        v = result("run", mode, *ends[1], "--idle", "adaptive", "--hugepages", "off", "--seconds", "0.5", "--warmup-ms",
                   "100", "--connect-s", "20", *more)
    assert v["good"] and v["rate"]["done"] > 10 and v["rate"]["wrong"] == 0, v
    if mode == "deliver":
        check_far(v, inside)
    print(f"  {mode} over {transport}: {v['rate']['achieved']:.0f}/s", end="")
    if "latency_us" in v:
        assert v["latency_us"]["of"] and 0 < v["latency_us"]["raw"]["p50"] <= v["latency_us"]["raw"]["p99.9"], v
        print(f", p50 {v['latency_us']['corrected']['p50']:.1f} us of {v['latency_us']['of']}")
    else:
        print(f", {v['units']['per_s'] / 1e9:.3f} G {v['units']['of']}/s")
    return v


def modes():
    with tempfile.TemporaryDirectory(prefix="ringperf-") as folder:
        both("tcp-crr", folder, "memif", "--connections", "4")
        both("deliver", folder, "memif", "--rate", "2000", "--size", "3000", server_more=("--size", "3000"))
        both("rr", folder, "memif")


def all_modes():
    with tempfile.TemporaryDirectory(prefix="ringperf-") as folder:
        for transport in ("memif", "ktcp"):
            both("tcp-stream", folder, transport, "--size", "16384")
            both("tcp-rr", folder, transport, "--connections", "4")
            both("tcp-crr", folder, transport, "--connections", "4")
            both("deliver", folder, transport)
            both("deliver", folder, transport, "--rate", "2000", "--size", "3000", server_more=("--size", "3000"))
            both("rr", folder, transport)
        if os.geteuid() == 0:
            # An end whose clock is another one, as on another host.
            both("deliver", folder, "memif", "--rate", "2000",
                 inside=("unshare", "--time", "--monotonic", "1000", "--kill-child=TERM"))


def shell_run(lines, *more, status=0):
    r = subprocess.run([RINGPERF, "--idle", "adaptive", "--hugepages", "off", *more], input="\n".join(lines) + "\n",
                       capture_output=True, text=True, timeout=60, check=False)
    assert r.returncode == status, (r.returncode, r.stdout, r.stderr)
    return r.stdout


def shell():
    with tempfile.TemporaryDirectory(prefix="ringperf-") as folder:
        sock = os.path.join(folder, "sock")
        device = ["--device", f"net_memif0,role=%s,socket-abstract=no,socket={sock}"]
        file = os.path.join(folder, "commands")
        pathlib.Path(file).write_text("# the other end\nset fwd echo\nset burst 16\nstart\n")
        echo = subprocess.Popen([RINGPERF, "--idle", "adaptive", "--hugepages", "off", device[0], device[1] % "server",
                                 "--cmdline-file", file, "--stats-period", "1"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            time.sleep(1.5)
            out = shell_run(["help", "show port info all", "set fwd io", "show config", "start tx_first", "stop", "start",
                             "start", "stop", "stop", "show fwd stats all", "show port stats all", "show port xstats all",
                             "clear port stats all", "clear fwd stats all", "clear port xstats all", "set burst 0",
                             "set fwd nothing", "set rate 10", "set peer 10.0.0.x", "quit"],
                            device[0], device[1] % "client")
        finally:
            echo.terminate()
            echoed, _ = echo.communicate(timeout=20)
        for text in ("Infos for port 0", "Driver name: net_memif", "Set io packet forwarding mode", "fwd io, role client",
                     "io forwarding started", "Packet forwarding already started", "Packet forwarding not started",
                     "Forward statistics for port 0", "NIC statistics for port 0", "NIC extended statistics for port 0",
                     "ringpost_rx_packets", "burst cannot be 0", "Bad arguments", "10.0.0.x is no IPv4 address",
                     "show port info|stats|xstats all", "tcp-crr"):
            assert text in out, (text, out)
        assert "echo forwarding started" in echoed and "NIC statistics for port 0" in echoed, echoed
        # A burst went round until it was stopped: both ends saw frames.
        assert max(int(n) for n in re.findall(r"RX-packets: (\d+)", echoed)) >= 32, echoed
        bad = os.path.join(folder, "bad")
        pathlib.Path(bad).write_text("set burst 8\nset bursts 9\nset burst 7\n")
        out = shell_run(["quit"], "--cmdline-file", bad, status=1)
        assert f"{bad}:2: " in out and "set burst 7" not in out, out
        out = shell_run(["show config", "quit"], "--cmdline-file", bad, "--keep-going")
        assert f"{bad}:2: " in out and "burst 7" in out, out
        out = shell_run([f"load {bad}", "show config", "quit"])
        assert f"{bad}:2: " in out and "burst 8" in out, out
        stub = Stub()
        out = shell_run(["set fwd tcp-rr", "set peer 127.0.0.1", f"set tcp_port {stub.port}", "set rate 500",
                         "set seconds 0.3", "start"], "--auto-start", "--mode", "tcp-rr", "--peer", "127.0.0.1", "--port",
                        str(stub.port), "--rate", "500", "--seconds", "0.3")
        assert "of 500/s: met" in out and "us of round trip" in out, out
    print("  the shell does what testpmd's does")


def etcd():
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ringperf-") as folder:
        env = {k: v for k, v in os.environ.items() if k != "MALLOC_PERTURB_"}
        node = subprocess.Popen([os.path.join(BINARIES, "ringpostd", "ringpostd"), "--listen-client-urls",
                                 f"http://127.0.0.1:{port}", "--dpdk-hugepages", "off"], cwd=folder, env=env,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            to = ["--peer", "127.0.0.1", "--port", str(port), "--seconds", "0.5", "--connect-s", "20"]
            end = time.monotonic() + 20
            while time.monotonic() < end:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            for mode, more in (("etcd-put", ["--connections", "2", "--window", "8"]),
                               ("etcd-range", ["--keys", "100", "--window", "4"]),
                               ("etcd-watch", ["--watchers", "20", "--rate", "50"])):
                v = result("run", mode, *to, *more)
                assert v["good"] and v["rate"]["done"] > 20, v
                print(f"  {mode}: {v['rate']['achieved']:.0f}/s, p50 {v['latency_us']['corrected']['p50']:.0f} us of "
                      f"{v['latency_us']['of']}")
            assert v["units"]["of"] == "events" and abs(v["units"]["per_s"] / 1000 - 1) < 0.1, v["units"]
            worker = ["--peer", "127.0.0.1", "--port", str(port)]
            with Server("process", *worker, "--outputs", "5"):
                v = result("run", "process", *to, "--window", "4")
            assert v["good"] and v["rate"]["done"] > 20, v
            assert abs(v["units"]["per_s"] / v["rate"]["achieved"] / 5 - 1) < 0.2, (v["units"], v["rate"])
            print(f"  process: {v['rate']['achieved']:.0f}/s, p50 {v['latency_us']['corrected']['p50']:.0f} us of "
                  f"{v['latency_us']['of']}")
        finally:
            node.terminate()
            node.wait(timeout=20)
        both("grpc", folder, "ktcp", "--window", "4")


def nats():
    if not shutil.which("nats-server"):
        print("skipped: no nats-server")
        return 77
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ringperf-") as folder:
        server = subprocess.Popen(["nats-server", "-a", "127.0.0.1", "-p", str(port)], cwd=folder,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            to = ["--peer", "127.0.0.1", "--port", str(port)]
            for mode in ("nats-rr", "nats"):
                with Server(mode, *to):
                    time.sleep(0.5)
                    v = result("run", mode, *to, "--idle", "adaptive", "--hugepages", "off", "--seconds", "0.3")
                assert v["good"] and v["rate"]["done"] > 20, v
                print(f"  {mode}: {v['rate']['achieved']:.0f}/s, p50 {v['latency_us']['corrected']['p50']:.0f} us of "
                      f"{v['latency_us']['of']}")
        finally:
            server.terminate()
            server.wait(timeout=20)
    return 0


def main():
    if PART != "etcd" and os.geteuid() != 0 and not os.environ.get("XDG_RUNTIME_DIR"):
        print("skipped: neither root nor XDG_RUNTIME_DIR: DPDK has no runtime folder")
        return 77
    return {"latency": latency, "modes": modes, "all_modes": all_modes, "shell": shell, "etcd": etcd, "nats": nats}[PART]()


sys.exit(main())
