#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a ringpostd: etcdctl saves it and finds it whole, a second ringpostd takes it by
`ringpostctl restore`, and a real etcd, where there is one, serves what etcdctl restored of it.

    snapshot.py BINARIES
"""
import base64
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

from gateway_server import Server, free_port, ringpost

BINARIES = os.path.abspath(sys.argv[1])
CTL = os.path.join(BINARIES, "ringpostctl", "ringpostctl")
SEED = int(os.environ.get("RP_SEED", random.randrange(1 << 32)))


def b64(data):
    return base64.b64encode(data).decode()


def post(server, path, body):
    status, data = server.post(path, body)
    assert status == 200, (path, status, data)
    return data


def etcdctl(server, *args):
    r = subprocess.run(["etcdctl", "--endpoints", f"127.0.0.1:{server.port}", *args],
                       env=dict(os.environ, ETCDCTL_API="3"), capture_output=True, text=True,
                       timeout=60, check=False)
    assert r.returncode == 0, (args, r.stdout, r.stderr)
    return r.stdout


def ctl(server, *args):
    return subprocess.run([CTL, "--endpoint", f"127.0.0.1:{server.port}", *args],
                          capture_output=True, text=True, timeout=60, check=False)


def fill(server, rng):
    """Keys of all sizes, written over and deleted; returns what is there at the end."""
    keys = {}
    for _ in range(60):
        ops, used = [], set()
        for _ in range(100):
            key = b"k%04d" % rng.randrange(3000)
            if key in used:
                continue
            used.add(key)
            value = rng.randbytes(rng.choice([0, 1, 50, 300, 3000]))
            ops.append({"request_put": {"key": b64(key), "value": b64(value)}})
            keys[key] = value
        post(server, "/v3/kv/txn", {"success": ops})
    for _ in range(100):
        key = rng.choice(sorted(keys))
        del keys[key]
        post(server, "/v3/kv/deleterange", {"key": b64(key)})
    # Two keys with a lease, one of an id that is negative.
    for lease, key in ((4711, b"leased"), (-5, b"leased too")):
        post(server, "/v3/lease/grant", {"ID": str(lease), "TTL": "3600"})
        post(server, "/v3/kv/put", {"key": b64(key), "value": b64(key), "lease": str(lease)})
        keys[key] = key
    post(server, "/v3/auth/role/add", {"name": "readers"})
    post(server, "/v3/auth/role/grant", {"name": "readers", "perm": {
        "permType": "READWRITE", "key": b64(b"a"), "range_end": b64(b"b")}})
    post(server, "/v3/auth/user/add", {"name": "ann", "password": "secret"})
    post(server, "/v3/auth/user/grant", {"user": "ann", "role": "readers"})
    post(server, "/v3/auth/user/add", {"name": "bob", "options": {"no_password": True}})
    keys[b"big"] = rng.randbytes(1500000)
    post(server, "/v3/kv/put", {"key": b64(b"big"), "value": b64(keys[b"big"])})
    return keys


def content(server):
    """Keys and values of clients."""
    out, key = {}, b"\0"
    while True:
        data = post(server, "/v3/kv/range", {"key": b64(key), "range_end": b64(b"\0"), "limit": 500})
        for kv in data.get("kvs", []):
            key = base64.b64decode(kv["key"])
            out[key] = base64.b64decode(kv.get("value", ""))
        if not data.get("more"):
            return out
        key += b"\0"


def check_leases(server):
    for lease, key in (("4711", b"leased"), ("-5", b"leased too")):
        data = post(server, "/v3/lease/timetolive", {"ID": lease, "keys": True})
        assert data["grantedTTL"] == "3600" and data["keys"] == [b64(key)], data


def check_users(server):
    assert post(server, "/v3/auth/user/get", {"name": "ann"})["roles"] == ["readers"]
    perm = post(server, "/v3/auth/role/get", {"role": "readers"})["perm"]
    assert perm == [{"permType": "READWRITE", "key": b64(b"a"), "range_end": b64(b"b")}], perm


def check_auth_on(one, three, folder):
    """A snapshot with auth on: who comes needs his password at the restored node too."""
    file = os.path.join(folder, "auth.db")
    post(one, "/v3/auth/user/add", {"name": "root", "password": "pw"})
    post(one, "/v3/auth/user/grant", {"user": "root", "role": "root"})
    post(one, "/v3/auth/enable", {})
    etcdctl(one, "--user", "root:pw", "snapshot", "save", file)
    r = ctl(three, "restore", file)
    assert r.returncode == 0 and "restored 3 users and 1 roles; auth is on" in r.stdout, r
    status, data = three.post("/v3/kv/range", {"key": b64(b"big")})
    assert status == 400 and "user name is empty" in data["error"], data
    etcdctl(three, "--user", "ann:secret", "put", "abc", "1")
    assert "abc" in etcdctl(three, "--user", "root:pw", "get", "abc")
    r = subprocess.run(["etcdctl", "--endpoints", f"127.0.0.1:{three.port}", "--user", "ann:wrong", "get", "abc"],
                       env=dict(os.environ, ETCDCTL_API="3"), capture_output=True, text=True, check=False)
    assert "invalid user ID or password" in r.stderr, r


def real_etcd(folder):
    port, peer = free_port(), free_port()
    return Server("etcd", lambda d: [
        "etcd", "--data-dir", folder, "--listen-client-urls", f"http://127.0.0.1:{port}",
        "--advertise-client-urls", f"http://127.0.0.1:{port}", "--listen-peer-urls",
        f"http://127.0.0.1:{peer}"], port)


def check_etcd(file, folder, keys):
    """etcdctl makes a data folder of the file, and etcd serves it."""
    subprocess.run(["etcdctl", "snapshot", "restore", file, "--data-dir", folder], check=True,
                   env=dict(os.environ, ETCDCTL_API="3"), capture_output=True, timeout=60)
    if not shutil.which("etcd"):
        print("no etcd here: that it serves the snapshot is not tested")
        return
    server = real_etcd(folder)
    try:
        assert content(server) == keys
        check_leases(server)
        check_users(server)
        # It goes on from there: a write has a revision of its own.
        before = int(post(server, "/v3/kv/range", {"key": b64(b"x")})["header"]["revision"])
        after = int(post(server, "/v3/kv/put", {"key": b64(b"x")})["header"]["revision"])
        assert after == before + 1
    finally:
        server.stop()


def check_broken(server, file, folder):
    data = open(file, "rb").read()
    for name, bad in {"cut": data[:-5000], "changed": data[:9000] + b"\xff" + data[9001:],
                      "none": b"", "text": b"no snapshot\n" * 100}.items():
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(bad)
        r = ctl(server, "restore", path)
        assert r.returncode == 1 and r.stderr.startswith("ringpostctl: "), (name, r)
    r = ctl(server, "restore", os.path.join(folder, "not-there"))
    assert r.returncode == 1 and "No such file" in r.stderr, r


def main():
    if not shutil.which("etcdctl"):
        print("SKIP: etcdctl is not installed")
        return 77
    print(f"RP_SEED={SEED}")
    folder = tempfile.mkdtemp(prefix="snapshot-")
    file = os.path.join(folder, "snapshot.db")
    one, two, three = ringpost(BINARIES), ringpost(BINARIES), ringpost(BINARIES)
    try:
        keys = fill(one, random.Random(SEED))
        etcdctl(one, "snapshot", "save", file)
        assert os.path.getsize(file) % 512 == 32
        status = json.loads(etcdctl(one, "snapshot", "status", file, "-w", "json"))
        revision = int(post(one, "/v3/kv/range", {"key": b64(b"x")})["header"]["revision"])
        assert status["revision"] == revision, (status, revision)
        check_broken(two, file, folder)
        assert not content(two), "a broken file left keys"
        r = ctl(two, "restore", file)
        assert r.returncode == 0 and f"restored {len(keys)} keys" in r.stdout, r
        assert content(two) == keys, "the restored node has other keys"
        check_leases(two)
        assert "restored 2 users and 1 roles; auth is off" in r.stdout, r
        check_users(two)
        r = ctl(two, "restore", file)
        assert r.returncode == 1 and "wants an empty one" in r.stderr, r
        check_etcd(file, os.path.join(folder, "data"), keys)
        # The stream in JSON is the same file.
        status, lines, _ = one.ask("POST", "/v3/maintenance/snapshot", b"{}")
        blobs = [json.loads(line)["result"] for line in lines.splitlines()]
        data = b"".join(base64.b64decode(b["blob"]) for b in blobs)
        assert status == 200 and data == open(file, "rb").read(), "the gateway's file differs"
        assert "remaining_bytes" not in blobs[-1]
        check_auth_on(one, three, folder)
    finally:
        status = [one.stop(), two.stop(), three.stop()]
        shutil.rmtree(folder)
    assert status == [0, 0, 0], status
    print("ok")
    return 0


sys.exit(main())
