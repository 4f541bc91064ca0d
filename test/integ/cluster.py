# SPDX-License-Identifier: Apache-2.0
"""Real ringpostd processes for the tests: each in a folder of its own, stopped by its pid.

    with Cluster(binary_dir, nodes=2, port="memif") as c:
        c.join()
        c.nodes[0].etcdctl("put", "/q/jobs/producer/job-1", "hello")
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid

SKIP = 77


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIP)


def need(*programs):
    for p in programs:
        if not shutil.which(p):
            skip(f"{p} is not installed")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(what, seconds, fn):
    """Until fn() is true; an exception of fn counts as not yet."""
    end = time.monotonic() + seconds
    last = None
    while time.monotonic() < end:
        try:
            if fn():
                return
        except Exception as e:  # noqa: BLE001 - whatever it was, it is told at the end
            last = e
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain for: {what} ({last})")


class Watch:
    """etcdctl watch, its events by value."""

    def __init__(self, node, key, *args):
        self.path = os.path.join(node.dir, f"watch-{uuid.uuid4()}")
        self.out = open(self.path, "wb")
        env = dict(os.environ, ETCDCTL_API="3")
        self.process = subprocess.Popen(
            [*node.prefix, "etcdctl", "--endpoints", node.client, "watch", key, *args],
            stdout=self.out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env)

    def lines(self):
        with open(self.path, encoding="utf-8", errors="replace") as f:
            return f.read().split("\n")

    def key_of(self, value, type_="PUT"):
        """The key of the event with that value, or None."""
        lines = self.lines()
        for i in range(len(lines) - 2):
            if lines[i] == type_ and lines[i + 2] == value:
                return lines[i + 1]
        return None

    def wait(self, value, seconds=10):
        wait_until(f"an event with value {value!r} ({self.lines()})", seconds,
                   lambda: self.key_of(value))
        return self.key_of(value)

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.out.close()


class Node:
    def __init__(self, cluster, index, config):
        self.cluster, self.index = cluster, index
        self.dir = os.path.join(cluster.dir, f"n{index}")
        os.makedirs(self.dir, exist_ok=True)
        self.uuid = str(uuid.uuid4())
        self.port = free_port()
        self.link_port = free_port()
        self.client = f"127.0.0.1:{self.port}"
        self.prefix = []  # before every command: a network namespace, say
        self.admin = os.path.join(self.dir, "admin.sock")
        self.extra = config
        self.process = None
        self.watches = []

    def write_config(self):
        c = self.cluster
        lines = [
            f"node: {self.uuid}",
            f"name: n{self.index}",
            f"listen_client_urls: http://{self.client}",
            f"admin_socket: {self.admin}",
            "shards: {idle: adaptive}",
            # Tests run side by side: none takes the hugepages that another counts on.
            "dpdk: {hugepages: off, memory_mib: 224}",
        ]
        if len(c.nodes) > 1:
            lines += [f"cluster: {c.uuid}",
                      "initial_advertise_peer_urls: "
                      + ",".join(f"http://{n.client}" for n in c.nodes)]
        lines += c.section("links", {"listen": self.link_port if not c.port else 7400,
                                     "secret_file": c.secret}, self.extra)
        device = c.device(self.index)
        if device:
            address = (f"ipv6: fd77::{self.index + 1}/64" if os.environ.get("RP_FAMILY") == "6"
                       else f"ipv4: 10.77.0.{self.index + 1}/24")
            lines += ["ports:", f"  - device: \"{device}\"", f"    {address}"]
            if c.impair:
                lines += [f"    impair: \"{c.impair}\""]
        for key, value in self.extra.items():
            if key == "links":
                continue
            # A test's own value takes the place of the usual one.
            lines = [line for line in lines if not line.startswith(f"{key}:")]
            lines.append(f"{key}: {value}")
        with open(os.path.join(self.dir, "config.yml"), "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")

    def start(self):
        self.write_config()
        self.log = open(os.path.join(self.dir, "log"), "ab")
        # meson sets it, and then every page of tables that are reserved for their bounds becomes real: over a
        # gigabyte a shard.
        env = {k: v for k, v in os.environ.items() if k != "MALLOC_PERTURB_"}
        self.process = subprocess.Popen(
            [*self.prefix, os.path.join(self.cluster.bin, "ringpostd", "ringpostd"), "--config",
             "config.yml"],
            cwd=self.dir, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=env)

    def log_text(self):
        with open(os.path.join(self.dir, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def stop(self, sig=signal.SIGTERM, seconds=60):
        """The status with which it ended."""
        if not self.process:
            return None
        if self.process.poll() is None:
            self.process.send_signal(sig)
        status = self.process.wait(timeout=seconds)
        self.process = None
        self.log.close()
        return status

    def print_stacks(self):
        if shutil.which("gdb"):
            r = subprocess.run(["gdb", "-p", str(self.process.pid), "-batch",
                                "-ex", "thread apply all bt 12"],
                               capture_output=True, text=True, timeout=60, check=False)
            print(f"--- stacks of node {self.index}\n{r.stdout[-6000:]}")

    def etcdctl(self, *args, check=True, data=None):
        env = dict(os.environ, ETCDCTL_API="3")
        r = subprocess.run([*self.prefix, "etcdctl", "--endpoints", self.client, *args], env=env,
                           input=data, capture_output=True, text=data is None, timeout=30,
                           check=False)
        if check and r.returncode != 0:
            raise AssertionError(f"etcdctl {args}: {r.returncode} {r.stdout} {r.stderr}")
        return r

    def watch(self, key, *args):
        w = Watch(self, key, *args)
        self.watches.append(w)
        return w

    def ctl(self, *args):
        r = subprocess.run(
            [os.path.join(self.cluster.bin, "ringpostctl", "ringpostctl"),
             "--endpoint", f"unix:{self.admin}", *args],
            capture_output=True, text=True, timeout=30, check=False)
        if r.returncode != 0:
            raise AssertionError(f"ringpostctl {args}: {r.returncode} {r.stdout} {r.stderr}")
        return r.stdout

    def stats(self, prefix="ringpost_"):
        """All counters, summed over shards, queues and reasons."""
        out = {}
        for line in self.ctl("stats", "--sum", prefix).splitlines():
            name, value = line.rsplit(" ", 1)
            out[name.removeprefix("ringpost_")] = int(value) if value.isdigit() else float(value)
        return out

    def ready(self):
        """It takes writes: until then its status names no leader."""
        r = self.etcdctl("endpoint", "status", "-w", "json", check=False)
        return r.returncode == 0 and json.loads(r.stdout)[0]["Status"].get("leader", 0) != 0


class Cluster:
    """`port` is memif, vhost or None (kernel sockets)."""

    def __init__(self, binary_dir, nodes=2, port=None, impair="", config=None):
        self.bin = os.path.abspath(binary_dir)
        assert os.path.exists(os.path.join(self.bin, "ringpostd")), f"no ringpostd in {self.bin}"
        self.port, self.impair = port, impair
        self.dir = tempfile.mkdtemp(prefix="ringpost-test-")
        self.uuid = str(uuid.uuid4())
        self.secret = os.path.join(self.dir, "secret")
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
            f.write(os.urandom(48).hex().encode())
        self.nodes = []
        for i in range(nodes):
            self.nodes.append(Node(self, i, dict(config or {})))

    @staticmethod
    def section(name, values, extra):
        values = {**values, **extra.get(name, {})}
        return [f"{name}:"] + [f"  {k}: {v}" for k, v in values.items()]

    def device(self, index):
        sock = os.path.join(self.dir, "port.sock")
        if self.port == "memif":
            role = "server" if index == 0 else "client"
            return (f"net_memif0,role={role},socket-abstract=no,socket={sock},"
                    "bsize=2048,rsize=11")
        if self.port == "vhost":
            return (f"net_vhost0,iface={sock}" if index == 0
                    else f"net_virtio_user0,path={sock}")
        return None

    def __enter__(self):
        for n in self.nodes:
            n.start()
        return self

    def join(self, seconds=60):
        for n in self.nodes:
            wait_until(f"node {n.index} answers: {n.log_text()[-2000:]}", seconds, n.ready)
        others = len(self.nodes) - 1
        for n in self.nodes:
            wait_until(f"the links of node {n.index}", seconds,
                       lambda n=n: n.stats("ringpost_link_bundles_up")["link_bundles_up"] == others)
            wait_until(f"node {n.index} sees all peers online", seconds,
                       lambda n=n: n.stats("ringpost_repl_peers_online")["repl_peers_online"] == others)

    def __exit__(self, kind, value, trace):
        failed = kind is not None
        for n in self.nodes:
            for w in n.watches:
                w.stop()
        for n in self.nodes:
            try:
                status = n.stop()
                if status not in (None, 0) and not failed:
                    failed = True
                    value = AssertionError(f"node {n.index} ended with status {status}")
            except subprocess.TimeoutExpired:
                n.print_stacks()
                n.process.kill()
                n.process.wait()
                if not failed:
                    failed = True
                    value = AssertionError(f"node {n.index} did not stop")
        if failed:
            for n in self.nodes:
                print(f"--- log of node {n.index}\n{n.log_text()[-6000:]}")
        if failed and kind is None:
            os.environ.get("RP_KEEP") or shutil.rmtree(self.dir, ignore_errors=True)
            raise value
        os.environ.get("RP_KEEP") or shutil.rmtree(self.dir, ignore_errors=True)
        return False
