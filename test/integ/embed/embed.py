#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A program with a node inside: the example of docs/embedding.md with etcdctl, and the whole API with a client of a
service of the program's own.

    embed.py EXAMPLE TEST
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from cluster import free_port, need, skip  # noqa: E402

ENV = {k: v for k, v in os.environ.items() if k != "MALLOC_PERTURB_"}


def start(program, folder, *flags):
    port = free_port()
    p = subprocess.Popen(
        [program, f"--listen-client-urls=http://127.0.0.1:{port}", "--dpdk-hugepages=off", "--dpdk-memory-mib=128",
         *flags], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENV)
    return p, f"127.0.0.1:{port}"


def etcdctl(client, *args, check=True):
    return subprocess.run(["etcdctl", "--endpoints", client, *args], capture_output=True, text=True, timeout=30,
                          check=check)


def until(p, text):
    for line in p.stdout:
        print("  " + line.rstrip())
        if line.startswith(text):
            return line
    raise AssertionError(f"it ended with {p.wait()} before it said {text!r}")


def example(program, folder):
    p, client = start(program, folder)
    until(p, "ready on port")
    for i in range(3):
        etcdctl(client, "put", f"/q/jobs/p/job-{i}", "hello")
    out, _ = p.communicate(timeout=30)
    print("  " + out.replace("\n", "\n  "))
    assert p.returncode == 0 and "job job-2: hello" in out and "3 so far" in out, (p.returncode, out)


def whole(program, folder):
    p, client = start(program, folder, "--readonly-prefix=readonly/", "--name=inside")
    try:
        until(p, "port ")
        channel = grpc.insecure_channel(client)
        echo = channel.unary_unary("/example.Echo/Hello")
        assert echo(b"from a client", timeout=10) == b"from a client"
        channel.close()
        got = etcdctl(client, "get", "--print-value-only", "readonly/here").stdout.strip()
        assert got == "by the program", got
        assert etcdctl(client, "put", "readonly/here", "x", check=False).returncode != 0
        out, _ = p.communicate("go on\n", timeout=60)
        assert p.returncode == 0 and "holds" in out, (p.returncode, out)
    finally:
        if p.poll() is None:
            p.kill()


def main():
    need("etcdctl")
    with tempfile.TemporaryDirectory() as folder:
        example(os.path.abspath(sys.argv[1]), folder)
        whole(os.path.abspath(sys.argv[2]), folder)
    print("holds")


if __name__ == "__main__":
    try:
        import grpc
    except ImportError:
        skip("python3-grpcio is not installed")
    main()
