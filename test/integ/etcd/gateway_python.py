#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""python3-etcd3gw, the client of OpenStack's tooz, against the JSON gateway of a ringpostd.

    gateway_python.py BINARIES
"""
import os
import sys
import threading
import time

try:
    import etcd3gw
    from etcd3gw import exceptions
except ImportError as e:
    print(f"SKIP: {e}")
    sys.exit(77)

from gateway_server import ringpost

BINARIES = os.path.abspath(sys.argv[1])


def client_of(server):
    return etcd3gw.client(host="127.0.0.1", port=server.port, timeout=20)


def keys(c):
    assert c.put("k", "v") and c.get("k") == [b"v"]
    assert c.create("new", "1") and not c.create("new", "2")
    assert c.replace("new", "1", "3") and not c.replace("new", "1", "4")
    for i in range(5):
        c.put(f"p/{i}", str(i))
    assert [v for v, _ in c.get_prefix("p/")] == [b"0", b"1", b"2", b"3", b"4"]
    assert [m["key"] for _, m in c.get_prefix("p/", sort_order="descend", sort_target="key")][0] == b"p/4"
    value, meta = c.get("k", metadata=True)[0]
    assert value == b"v" and int(meta["version"]) == 1
    assert c.delete_prefix("p/") and c.get_prefix("p/") == []
    assert c.delete("k") and not c.delete("k") and c.get("k") == []
    binary = bytes(range(256))
    assert c.put(binary, binary) and c.get(binary) == [binary]
    assert c.status()["version"] and len(c.members()) == 1


def transaction(c):
    b64 = etcd3gw.utils._encode
    got = c.transaction({
        "compare": [{"key": b64("t"), "result": "EQUAL", "target": "CREATE", "create_revision": 0}],
        "success": [{"request_put": {"key": b64("t"), "value": b64("1")}}],
        "failure": [{"request_range": {"key": b64("t")}}]})
    assert got["succeeded"], got


def leases(c):
    lease = c.lease(ttl=30)
    assert c.put("leased", "x", lease=lease)
    assert 0 < lease.ttl() <= 30 and lease.refresh() == 30
    assert lease.keys() == [b"leased"]
    assert lease.revoke() and c.get("leased") == []


def locks(c):
    with c.lock("name", ttl=10) as held:
        assert held.is_acquired()
        assert not c.lock("name", ttl=10).acquire()
    assert c.lock("name", ttl=10).acquire()


def watches(c):
    def later():
        time.sleep(0.3)
        c.put("watched", "1")
        c.put("watched", "2")
        c.delete("watched")
    thread = threading.Thread(target=later)
    thread.start()
    events, cancel = c.watch("watched")
    got = [next(events) for _ in range(3)]
    cancel()
    thread.join()
    assert [e["kv"].get("value") for e in got] == [b"1", b"2", None], got
    assert got[2]["type"] == "DELETE", got
    try:
        c.watch_once("silence", timeout=1)
        raise AssertionError("an event of nothing")
    except exceptions.WatchTimedOut:
        pass


def main():
    server = ringpost(BINARIES)
    try:
        c = client_of(server)
        for test in (keys, transaction, leases, locks, watches):
            test(c)
    finally:
        status = server.stop()
    assert status == 0, status
    print("ok")
    return 0


sys.exit(main())
