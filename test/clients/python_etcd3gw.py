#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cases with Python's etcd3gw, by the JSON gateway: python_etcd3gw.py HOST:PORT CLIENT CASE... (see cases.py)"""
import importlib.metadata
import queue
import uuid

import etcd3gw
from etcd3gw import exceptions, watch
from etcd3gw.utils import _encode, _increment_last_byte

import cases
from cases import NotInLibrary, need


def connect(address):
    host, port = address.rsplit(":", 1)
    # The library's own default is /v3alpha/, which etcd has no more.
    return etcd3gw.Etcd3Client(host=host, port=int(port), timeout=cases.WAIT_S, api_path="/v3/")


def error_of(f, *args, **more):
    try:
        f(*args, **more)
    except exceptions.Etcd3Exception as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError("no error")


class Watch:
    """The events of one watch in a queue."""

    def __init__(self, c, key, **more):
        self.answers = queue.Queue()
        self.watcher = watch.Watcher(c, key, self.answers.put, **more)

    def events(self, count):
        return [self.answers.get(timeout=cases.WAIT_S) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watcher.stop()


def revision(c):
    return int(c.transaction({"compare": [], "success": [], "failure": []})["header"]["revision"])


def kind(event):
    return event.get("type", "PUT")


def put_get(a):
    c = connect(a)
    c.put("put_get", "one")
    c.put("put_get", "two")
    value, meta = c.get("put_get", metadata=True)[0]
    again = [c.create("put_get", "x"), c.replace("put_get", "two", "three"), c.get("none")]
    binary = bytes(range(256))
    c.put(binary, binary)
    need(c.get(binary) == [binary], "binary keys and values")
    return f"{value} version {meta['version']} mod +{int(meta['mod_revision']) - int(meta['create_revision'])} {again}"


def range_(a):
    c = connect(a)
    for i in range(5):
        c.put(f"range/{i}", str(i))
    before = revision(c)
    c.put("range/2", "new")
    end = _encode(_increment_last_byte("range/"))
    down = [m["key"].decode() for _, m in c.get_prefix("range/", sort_order="descend", sort_target="key")]
    by_mod = [v.decode() for v, _ in c.get_prefix("range/", sort_order="ascend", sort_target="mod")]
    return [down, by_mod, len(c.get("range/", range_end=end, limit=2)), str(c.get("range/2", revision=before)),
            str(c.get("range/", range_end=end, keys_only=True)), error_of(c.get, "range/2", revision=1 << 53)]


def delete(a):
    c = connect(a)
    for i in range(4):
        c.put(f"delete/{i}", str(i))
    return [c.delete("delete/0"), c.delete("delete/0"), c.delete_prefix("delete/"), c.get_prefix("delete/")]


def txn(a):
    c = connect(a)
    c.put("txn/k", "v")
    put = {"request_put": {"key": _encode("txn/k2"), "value": _encode("x")}}
    good = c.transaction({"compare": [
        {"key": _encode("txn/k"), "result": "EQUAL", "target": "VALUE", "value": _encode("v")},
        {"key": _encode("txn/k"), "result": "EQUAL", "target": "VERSION", "version": 1},
        {"key": _encode("txn/none"), "result": "EQUAL", "target": "CREATE", "create_revision": 0},
        {"key": _encode("txn/k"), "result": "GREATER", "target": "MOD", "mod_revision": 0}],
        "success": [put, {"request_range": {"key": _encode("txn/k")}}], "failure": []})
    bad = c.transaction({"compare": [{"key": _encode("txn/k"), "result": "EQUAL", "target": "VALUE", "value": _encode("o")}],
                         "success": [], "failure": [{"request_range": {"key": _encode("txn/k2")}},
                                                    {"request_delete_range": {"key": _encode("txn/k2")}}]})
    twice = error_of(c.transaction, {"compare": [], "success": [put, put], "failure": []})
    return [good.get("succeeded"), [sorted(r) for r in good["responses"]], bad.get("succeeded"),
            bad["responses"][0]["response_range"]["kvs"][0]["value"],
            bad["responses"][1]["response_delete_range"]["deleted"], twice]


def compact(_):
    raise NotInLibrary("the library has no such call")


def watch_start(a):
    c = connect(a)
    c.put("watch_start/a", "0")
    start = revision(c)
    c.put("watch_start/a", "1")
    c.delete("watch_start/a")
    with Watch(c, "watch_start/", range_end="watch_start0", start_revision=start, prev_kv=True) as w:
        got = w.events(3)
        c.put("watch_start/b", "live")
        got += w.events(1)
    return [[kind(e), e["kv"]["key"].decode(), str(e["kv"].get("value")), e.get("prev_kv", {}).get("value"),
             int(e["kv"]["mod_revision"]) - start] for e in got]


def watch_progress(_):
    raise NotInLibrary("the library shows events only")


def watch_cancel(a):
    c = connect(a)
    with Watch(c, "watch_cancel") as second:
        with Watch(c, "watch_cancel") as first:
            c.put("watch_cancel", "1")
            both = [first.events(1)[0]["kv"]["value"], second.events(1)[0]["kv"]["value"]]
        c.put("watch_cancel", "2")
        rest = second.events(1)[0]["kv"]["value"]
        need(first.answers.empty(), "an event after the cancel")
    try:
        c.watch_once("silence", timeout=0.5)
        raise AssertionError("an event of nothing")
    except exceptions.WatchTimedOut:
        return str([both, rest])


watch_compacted = watch_progress


def lease(a):
    c = connect(a)
    held = c.lease(ttl=60)
    c.put("lease/k", "v", lease=held)
    need(55 < held.ttl() <= 60, held.ttl())
    said = [held.refresh(), str(held.keys()), held.revoke(), c.get("lease/k"), error_of(held.revoke)]
    return said + [error_of(c.put, "lease/k", "v", lease=etcd3gw.Lease(1234, client=c))]


def lease_expiry(a):
    c = connect(a)
    with Watch(c, "lease_expiry") as w:
        c.put("lease_expiry", "1", lease=c.lease(ttl=2))
        got = w.events(2)
    return [[kind(e) for e in got], c.get("lease_expiry")]


def lock(a):
    first, second = connect(a).lock("mutex", ttl=20), connect(a).lock("mutex", ttl=20)
    said = [bool(first.acquire()), bool(second.acquire()), first.is_acquired(), second.is_acquired(),
            second.release(), first.release(), bool(second.acquire()), second.is_acquired(), second.refresh()]
    return said + [second.release()]


def election(_):
    raise NotInLibrary("the library has none")


stm = election


def cluster(a):
    c = connect(a)
    status, members = c.status(), c.members()
    need(status["leader"] == members[0]["ID"], f"{status} {members}")
    return [len(members), status["version"].count(".")]


def members(_):
    raise NotInLibrary("the library has no such calls")


maintenance = newer = auth_admin = members


def queue_keys(case):
    name = f"etcd3gw-{case}"
    return f"/q/{name}/producer/", f"/q/{name}/consumer/{uuid.uuid4()}"


def queue_deliver(a):
    c = connect(a)
    producer, consumer = queue_keys("deliver")
    with Watch(c, consumer) as w:
        for i in range(3):
            c.put(f"{producer}job-{i}", f"payload {i}")
        got = w.events(3)
        keys = [e["kv"]["key"].decode() for e in got]
        need(all(k.startswith(consumer + "/") for k in keys), keys)
        acks = [c.delete(k) for k in keys + keys]
    values = [e["kv"]["value"].decode() for e in got]
    need(values == ["payload 0", "payload 1", "payload 2"] and acks == [True] * 3 + [False] * 3, f"{values} {acks}")
    return f"{values} acknowledged {acks}"


def queue_resume(a):
    c = connect(a)
    producer, consumer = queue_keys("resume")
    with Watch(c, consumer) as w:
        c.put(f"{producer}job", "kept")
        event = w.events(1)[0]
    with Watch(c, consumer, start_revision=int(event["kv"]["mod_revision"])) as w:
        again = w.events(1)[0]
        need(again == event, f"{event} {again}")
        need(c.delete(event["kv"]["key"]), "not acknowledged")
    return "the same message again, unchanged"


def queue_hand_on(a):
    c = connect(a)
    producer, consumer = queue_keys("hand_on")
    with Watch(c, consumer) as w:
        c.put(f"{producer}job", "moves")
        first = w.events(1)[0]["kv"]["key"].decode()
    other = queue_keys("hand_on")[1]
    with Watch(c, other) as w:
        second = w.events(1)[0]["kv"]["key"].decode()
        need(second.startswith(other) and first.split("/")[-2:] == second.split("/")[-2:], f"{first} {second}")
        need(c.delete(second), "not acknowledged")
    return "the same message under the other's key"


def auth(_):
    raise NotInLibrary("the library has no users")


if __name__ == "__main__":
    cases.main({name: globals()["range_" if name == "range" else name] for name in cases.NAMES},
               importlib.metadata.version("etcd3gw"))
