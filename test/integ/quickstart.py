#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/quickstart plays, twice in a row and beside another one, and --stop leaves nothing:
quickstart.py SOURCE BUILD"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from cluster import free_port, need

source, build = map(pathlib.Path, sys.argv[1:3])
script = source / "tools/quickstart"


class Quickstart:
    def __init__(self, folder, port_a, port_b):
        self.here = pathlib.Path(folder) / "quickstart"
        # meson sets it, and then all that tables reserve becomes real: over a gigabyte a shard.
        os.environ.pop("MALLOC_PERTURB_", None)
        self.env = dict(os.environ, RP_STATE_DIR=str(folder), RP_PORT_A=str(port_a),
                        RP_PORT_B=str(port_b))

    def run(self, *args, status=0):
        r = subprocess.run([script, *args], env=self.env, capture_output=True, text=True, timeout=120,
                           check=False)
        assert r.returncode == status, f"{args}: status {r.returncode}\n{r.stdout}{r.stderr}"
        return r.stdout + r.stderr

    def play(self, *args):
        out = self.run("--build", build, "--no-install", "--no-hugepages", *args)
        rows = [line for line in out.splitlines() if line.endswith("ok")]
        assert len(rows) == 8 and "WRONG" not in out, out
        return out

    def started(self):
        return [line.split() for line in (self.here / "started").read_text().splitlines()]

    def left(self, started):
        """What --stop must have taken away."""
        base = os.environ.get("RUNTIME_DIRECTORY") or (
            "/var/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
        left = [f"process {entry}" for entry in started if running(*entry[:2])]
        left += [str(p) for p in self.here.rglob("*") if p.is_socket() or "port.sock" in p.name]
        for node in "ab":
            uuid = (self.here / node / "node").read_text().strip()
            runtime = pathlib.Path(base) / "dpdk" / f"ringpost-{uuid}"
            left += [str(runtime)] if runtime.exists() else []
        return left


def running(pid, start):
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except OSError:
        return False
    return fields[0] != "Z" and fields[19] == start


def main():
    need("etcdctl", "bash", "awk", "flock")
    root = tempfile.mkdtemp(prefix="ringpost-quickstart-")
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = busy.getsockname()[1]
        one = Quickstart(os.path.join(root, "one"), taken, free_port())
        two = Quickstart(os.path.join(root, "two"), free_port(), free_port())
        try:
            out = one.play("--port", "memif")
            assert f"(127.0.0.1:{taken})" not in out, "a port that is in use was taken"
            first = one.started()
            assert len(first) == 5 and all(running(*e[:2]) for e in first), first
            two.play("--port=vhost")
            assert all(running(*e[:2]) for e in first), "the second one stopped what the first has"
            one.play()
            assert not any(running(*e[:2]) for e in first), "the second run left the first one's"
            second = one.started()
            # A node that was killed cannot clean up; --stop does it.
            os.kill(int(two.started()[0][0]), signal.SIGKILL)
            others = two.started()
            for q, started in ((one, second), (two, others)):
                q.run("--stop")
                assert not q.left(started), q.left(started)
                q.run("--stop")
            assert "unknown argument" in one.run("--no-such", status=1)
        finally:
            for q in (one, two):
                subprocess.run([script, "--stop"], env=q.env, capture_output=True, check=False)
            shutil.rmtree(root)
    print("quickstart plays and leaves nothing")


main()
