#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How ringpostd ends: each status with its reason, and nothing left behind: exit_codes.py BINARIES"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

from cluster import free_port, wait_until

ringpostd = os.path.abspath(os.path.join(sys.argv[1], "ringpostd", "ringpostd"))
ringpostctl = os.path.abspath(os.path.join(sys.argv[1], "ringpostctl", "ringpostctl"))
# A failing start reads its configuration, starts DPDK and makes its pools; a busy machine takes long.
START_S = 60


def runtime_dir(node):
    base = os.environ.get("RUNTIME_DIRECTORY") or (
        "/var/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
    return pathlib.Path(base) / "dpdk" / f"ringpost-{node}"


class Case:
    """A run in a folder of its own that ends by itself."""

    def __init__(self, root):
        self.root = root

    def __call__(self, what, status, texts, *flags, config=None):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        node = str(uuid.uuid4())
        if config is not None:
            (folder / "config.yml").write_text(config)
        r = subprocess.run([ringpostd, "--node", node, *flags], cwd=folder, capture_output=True,
                           text=True, timeout=START_S, check=False)
        said = r.stdout + r.stderr
        assert r.returncode == status, f"{what}: status {r.returncode}, expected {status}\n{said}"
        for text in texts:
            assert text in said, f"{what}: nothing says {text!r}:\n{said}"
        assert not runtime_dir(node).exists(), f"{what}: {runtime_dir(node)} is left"
        left = {p.name for p in folder.iterdir()} - {"config.yml"}
        assert not left, f"{what}: left {left}"
        print(f"{status:3} {what}")


def usage(case):
    case("an unknown flag", 2, ["--no-such: unknown flag"], "--no-such")
    case("a flag without its value", 2, ["--log-level: needs a value"], "--log-level")
    case("a flag with a bad value", 2, ["limits.queue_depth", "expected a number"],
         "--limits-queue-depth=none")
    case("--version", 0, ["ringpostd "], "--version")
    case("--help", 0, ["--listen-client-urls", "status"], "--help")


def configuration(case):
    case("--check-config of a good file", 0, ["ok"], "--check-config", config="log_level: debug\n")
    bad = "links:\n  listn: 5\nlimits: {queue_depth: zero}\n"
    wanted = ["config.yml:2:3: error: links.listn: unknown key", "did you mean listen?",
              "config.yml:3:23: error: limits.queue_depth"]
    case("--check-config of a bad file", 11, wanted, "--check-config", config=bad)
    case("a start with a bad file", 11, wanted, config=bad)
    case("no YAML", 11, ["config.yml:2:1: error: not YAML"], config="links: [\n")
    case("a port without an address", 11, ["ports[0].ipv4"],
         config="ports: [{device: net_memif0}]\n")
    case("tcp without a port", 11, ["links.transport"], "--links-transport", "tcp")


def listeners(case):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = f"127.0.0.1:{busy.getsockname()[1]}"
        case("a client port that is in use", 10, [f"cannot listen on {taken}", "in use"],
             "--listen-client-urls", taken)
        case("a link port that is in use", 10, ["links.listen", "in use"],
             "--listen-client-urls", f"127.0.0.1:{free_port()}", "--cluster", str(uuid.uuid4()),
             "--links-listen", taken.split(":")[1])
    case("an admin socket in no folder", 10, ["admin_socket", "No such file"],
         "--listen-client-urls", f"127.0.0.1:{free_port()}", "--admin-socket", "/nonexistent/s")


def start(case, root):
    secret = os.path.join(root, "secret")
    with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o644), "w", encoding="ascii") as f:
        f.write("x" * 40)
    os.chmod(secret, 0o644)
    case("a secret that others may read", 13, [secret, "mode 644"], "--links-secret-file", secret)
    os.chmod(secret, 0o600)
    os.truncate(secret, 5)
    case("a secret that is too short", 13, [secret, "holds 5 bytes"], "--links-secret-file", secret)
    os.unlink(secret)
    case("no secret", 13, [secret, "cannot be read"], "--links-secret-file", secret)


def host(case):
    case("hugepages that are not there", 14, ["dpdk.hugepages: 1000000 MiB wanted", "nr_hugepages"],
         "--dpdk-hugepages", "on", "--dpdk-memory-mib", "1000000")
    case("memory that is not there", 14, ["dpdk.memory_mib: 1000000 MiB wanted"],
         "--dpdk-hugepages", "off", "--dpdk-memory-mib", "1000000")
    case("too little memory", 14, ["dpdk.memory_mib", "raise it"], "--dpdk-memory-mib", "40")
    case("a CPU that is not there", 14, ["shards.cpus: CPU 1000"], "--shards-cpus", "1000")


def port(case):
    def wants(what, texts, device):
        case(what, 15, ["ports[0]: ", *texts], "--listen-client-urls", f"127.0.0.1:{free_port()}",
             config=f"ports: [{{device: '{device}', ipv4: 10.77.0.1/24}}]\n"
             "dpdk: {hugepages: off, memory_mib: 128}\n")

    wants("a memif socket in no folder", ["/nonexistent/s", "the folder must exist"],
          "net_memif0,role=server,socket-abstract=no,socket=/nonexistent/s")
    wants("a vhost socket in no folder", ["/nonexistent/s"], "net_vhost0,iface=/nonexistent/s")
    wants("an interface that is not there", ["net_af_packet0", "No such device"],
          "net_af_packet0,iface=rp-nonexistent")
    wants("a driver that is not there", ["net_nosuch0"], "net_nosuch0")


def signals(root):
    for sig in (signal.SIGTERM, signal.SIGINT):
        at, node = free_port(), str(uuid.uuid4())
        sock = os.path.join(root, "admin.sock")
        log = open(os.path.join(root, "log"), "w+", encoding="utf-8")
        p = subprocess.Popen([ringpostd, "--node", node, "--listen-client-urls", f"127.0.0.1:{at}",
                              "--admin-socket", sock], cwd=root, stdout=log, stderr=log)

        def serves():
            socket.create_connection(("127.0.0.1", at)).close()
            return True

        try:
            wait_until("the node serves", START_S, serves)
            p.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            assert p.poll() is None, "SIGHUP ended it"
            p.send_signal(sig)
            status = p.wait(timeout=20)
        finally:
            if p.poll() is None:
                p.kill()
                p.wait()
        log.seek(0)
        assert status == 0, f"{sig.name}: status {status}\n{log.read()}"
        log.close()
        assert not runtime_dir(node).exists() and not os.path.exists(sock), f"{sig.name}: left files"
        print(f"  0 {sig.name}")


def ctl():
    for what, status, text, *args in (
            ("ringpostctl without a command", 2, "usage:"),
            ("ringpostctl with an unknown flag", 2, "--nope", "--nope"),
            ("ringpostctl to an address that is none", 2, "is no address", "--endpoint", "::::", "stats"),
            ("ringpostctl to nobody", 1, "cannot reach", f"--endpoint=127.0.0.1:{free_port()}", "stats")):
        r = subprocess.run([ringpostctl, *args], capture_output=True, text=True, timeout=20, check=False)
        assert r.returncode == status and text in r.stderr, f"{what}: {r}"
        print(f"  {status} {what}")


def main():
    root = tempfile.mkdtemp(prefix="ringpost-exit-")
    case = Case(root)
    try:
        usage(case)
        configuration(case)
        listeners(case)
        start(case, root)
        host(case)
        port(case)
        signals(root)
        ctl()
    finally:
        shutil.rmtree(root)


main()
