#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Process requests with a stock client on real nodes, keys only: requests.py BINARIES PORT"""
import json
import os
import queue
import sys
import time
import uuid

from cluster import Cluster, skip, wait_until

try:
    import etcd3
    import grpc
except ImportError:  # Debian: python3-etcd3
    skip("no etcd3")


class Watch:
    """Events of a consumer key: (key, value, event); value None: a DELETE."""

    def __init__(self, node, name, cap="", **more):
        self.key = f"/q/{name}/c/{uuid.uuid4()}"
        self.client = connect(node)
        if cap:
            self.client.put(self.key, cap)
        self.events = queue.Queue()
        self.id = self.client.add_watch_callback(self.key, self.take, **more)

    def take(self, answer):
        for e in getattr(answer, "events", []):
            gone = isinstance(e, etcd3.events.DeleteEvent)
            self.events.put((e.key.decode(), None if gone else e.value, e))

    def next(self, seconds=10):
        return self.events.get(timeout=seconds)

    def none(self, seconds=0.3):
        try:
            raise AssertionError(self.events.get(timeout=seconds))
        except queue.Empty:
            pass

    def stop(self):
        self.client.cancel_watch(self.id)


def connect(node):
    return etcd3.client(host="127.0.0.1", port=node.port, timeout=10)


def error_of(f, *args):
    try:
        f(*args)
    except grpc.RpcError as e:
        return f"{e.code().name}: {e.details()}"
    except etcd3.exceptions.Etcd3Exception as e:
        # The library has names of its own for some.
        return f"{e.__context__.code().name}: {e.__context__.details()}"
    raise AssertionError("no error")


def envelope(**fields):
    return json.dumps({"v": 1, "ttl_ms": 10000, "reply_to": "replies", **fields})


def consumers(node, name, count):
    """Hosted ones: a record that its watch has not come for yet names no node."""
    wait_until(f"{count} consumers of {name}", 10, lambda: sum(
        not value.startswith(b";") for value, _ in node_client(node).get_prefix(f"/q/{name}/c/")) == count)


CLIENTS = {}


def node_client(node):
    if node not in CLIENTS:
        CLIENTS[node] = connect(node)
    return CLIENTS[node]


def failed(watch, code):
    _, value, _ = watch.next()
    e = json.loads(value)
    assert e["v"] == 1 and e["final"] is True and e["error"]["code"] == code and e["error"]["reason"], e


def stream(a, b, answers, jobs):
    """A job is answered with a stream, in order, whose last completes it."""
    text = envelope(data="what", unknown=[1, 2])
    a.put("/q/work/p/r1", text)
    key, value, _ = jobs.next()
    assert json.loads(value) == json.loads(text) and key.endswith("/r1"), (key, value)
    for i in range(50):
        b.put("/q/replies/p/r1", json.dumps({"v": 1, "data": i}))
    b.put("/q/replies/p/r1", json.dumps({"v": 1, "data": "end", "final": True}))
    got = [json.loads(answers.next()[1]) for _ in range(51)]
    assert [x["data"] for x in got] == [*range(50), "end"] and got[-1]["final"], got
    assert "FAILED_PRECONDITION" in error_of(b.put, "/q/replies/p/r1", "late")
    assert "FAILED_PRECONDITION" in error_of(a.put, "/q/replies/p/r1", "not mine")
    assert not b.delete(key)
    print("  a stream of 51 outputs, in order; nothing behind its end")


def empty(a, b, answers, jobs):
    a.put("/q/work/p/r2", envelope())
    key, _, _ = jobs.next()
    assert "ALREADY_EXISTS" in error_of(a.put, "/q/work/p/r2", envelope())
    assert "ALREADY_EXISTS" in error_of(b.put, "/q/other/p/r2", envelope())
    assert b.delete(key)
    assert json.loads(answers.next()[1]) == {"v": 1, "final": True}
    print("  the delivered key's delete is an empty end; one identity, one live request")


def time_is_over(a, answers, jobs):
    at = time.monotonic()
    a.put("/q/work/p/r3", envelope(ttl_ms=400))
    key, _, _ = jobs.next()
    failed(answers, "DEADLINE_EXCEEDED")
    took = time.monotonic() - at
    assert 0.35 < took < 2, took
    again, value, _ = jobs.next()
    assert again == key and value is None, (again, value)
    print(f"  DEADLINE_EXCEEDED after {took * 1000:.0f} ms of 400, and its worker is told")


def cancelled(a, b, answers, jobs):
    a.put("/q/work/p/r4", envelope())
    key, _, _ = jobs.next()
    a.put("/q/work/p/r5", envelope())
    jobs.none()
    at = time.monotonic()
    assert a.delete("/q/work/p/r4")
    again, value, _ = jobs.next()
    took = time.monotonic() - at
    assert again == key and value is None
    failed(answers, "CANCELLED")
    assert "FAILED_PRECONDITION" in error_of(
        b.put, "/q/replies/p/r4", '{"v":1,"final":true}')
    key, _, _ = jobs.next()
    assert key.endswith("/r5")
    assert b.delete(key)
    assert json.loads(answers.next()[1])["final"]
    assert not a.delete("/q/work/p/r4") and not a.delete("/q/work/p/none")
    print(f"  CANCELLED: its worker hears of it after {took * 1000:.1f} ms, and has the next one")


def refused(a, answers):
    for fields, says in (({"ttl_ms": "5"}, "ttl_ms"), ({"priority": 10}, "priority"), ({"need": "gpu"}, "need"),
                         ({"reply_to": "work"}, "reply_to")):
        r = error_of(a.put, "/q/work/p/bad", envelope(**fields))
        assert r.startswith("INVALID_ARGUMENT") and says in r, r
    r = error_of(a.put, "/q/work/p/bad", '{"v":1,"ttl_ms":5,"ttl_ms":6}')
    assert r.startswith("INVALID_ARGUMENT") and "twice" in r, r
    r = error_of(a.put, "/q/work/p/bad", envelope(need=["gpu"]))
    assert r.startswith("FAILED_PRECONDITION"), r
    r = error_of(a.put, "/q/nobody/p/bad", envelope(fail_fast=True))
    assert r.startswith("FAILED_PRECONDITION"), r
    answers.none()
    print("  refused:", r)


def workers(a, b, nodes, answers, jobs):
    """Rejected by one it goes to another; by all, it is told; and lost workers."""
    other = Watch(nodes[0], "work", cap=";cap=gpu")
    consumers(nodes[1], "work", 2)
    a.put("/q/work/p/r6", envelope(need=["gpu"]))
    key, _, _ = other.next()
    jobs.none()
    other.client.put(key, "reject:no")
    failed(answers, "REJECTED")
    a.put("/q/work/p/r7", envelope(need=["gpu"]))
    key, _, _ = other.next()
    other.client.put("/q/replies/p/r7", "begun")
    assert answers.next()[1] == b"begun"
    other.stop()
    failed(answers, "WORKER_LOST")
    other = Watch(nodes[0], "work", cap=";cap=gpu")
    consumers(nodes[1], "work", 2)
    a.put("/q/work/p/r8", envelope(need=["gpu"]))
    other.next()
    other.stop()
    failed(answers, "NO_CONSUMER")
    print("  REJECTED, WORKER_LOST after an output, NO_CONSUMER before one")


def large(a, b, answers, jobs):
    a.put("/q/work/p/r9", envelope(max_bytes=100))
    jobs.next()
    b.put("/q/replies/p/r9", "x" * 100)
    r = error_of(b.put, "/q/replies/p/r9", "x" * 101)
    assert r.startswith("INVALID_ARGUMENT"), r
    assert answers.next()[1] == b"x" * 100
    failed(answers, "TOO_LARGE")
    assert jobs.next()[1] is None
    print("  TOO_LARGE:", r)


def deserted(a, nodes, jobs):
    """Nobody listens to the answers any more."""
    listener = Watch(nodes[0], "gone")
    consumers(nodes[1], "gone", 1)
    a.put("/q/work/p/r10", envelope(reply_to="gone"))
    key, _, _ = jobs.next()
    at = time.monotonic()
    listener.stop()
    again, value, _ = jobs.next()
    took = time.monotonic() - at
    assert again == key and value is None and 0.9 < took < 3, took
    print(f"  implied cancel {took * 1000:.0f} ms after the last listener left")


def users(node):
    """With auth on: answers go where who asks may write, and come from who watches."""
    from etcd3.etcdrpc import auth_pb2, rpc_pb2 as rpc, rpc_pb2_grpc as stubs

    channel = connect(node).channel
    auth, kv, tokens = stubs.AuthStub(channel), stubs.KVStub(channel), {}
    asks, work = "/q/user-work/p/", f"/q/user-work/c/{uuid.uuid4()}"
    may = {"root": [], "asker": [asks, "/q/mine/"], "worker": [work, "/q/mine/p/"], "thief": [work, "/q/mine/p/"]}

    def put(user, key, value):
        kv.Put(rpc.PutRequest(key=key.encode(), value=value.encode()), metadata=[("token", tokens[user])])

    def delete(user, key):
        return kv.DeleteRange(rpc.DeleteRangeRequest(key=key.encode()), metadata=[("token", tokens[user])]).deleted

    def watch(user, key):
        """Its events, as (key, value); the first of all that comes says that it is there."""
        wants = rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=key.encode()))
        stop = queue.Queue()
        answers = stubs.WatchStub(channel).Watch(asked(wants, stop), metadata=[("token", tokens[user])])
        assert next(answers).created
        return ((e.kv.key.decode(), e.kv.value.decode()) for a in answers for e in a.events)

    def asked(first, stop):
        yield first
        stop.get()

    for name, prefixes in may.items():
        auth.UserAdd(rpc.AuthUserAddRequest(name=name, password="pw"))
        if name != "root":
            auth.RoleAdd(rpc.AuthRoleAddRequest(name=name))
        for p in prefixes:
            auth.RoleGrantPermission(rpc.AuthRoleGrantPermissionRequest(name=name, perm=auth_pb2.Permission(
                permType=auth_pb2.Permission.READWRITE, key=p.encode(), range_end=p[:-1].encode() + bytes([ord(p[-1]) + 1]))))
        auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=name, role=name))
    auth.AuthEnable(rpc.AuthEnableRequest())
    for name in may:
        tokens[name] = auth.Authenticate(rpc.AuthenticateRequest(name=name, password="pw")).token
    jobs, answers = watch("worker", work), watch("asker", f"/q/mine/c/{uuid.uuid4()}")
    r = error_of(put, "asker", asks + "a1", envelope(reply_to="replies"))
    assert r == "PERMISSION_DENIED: etcdserver: permission denied", r
    put("asker", asks + "a1", envelope(reply_to="mine"))
    key, _ = next(jobs)
    for f, args in ((put, ("thief", "/q/mine/p/a1", "mine now")), (put, ("thief", "/q/mine/p/a1", '{"v":1,"final":true}')),
                    (put, ("thief", key, "reject")), (delete, ("thief", key))):
        r = error_of(f, *args)
        assert r.startswith("FAILED_PRECONDITION") and "held by another" in r, r
    put("worker", "/q/mine/p/a1", "one")
    assert next(answers)[1] == "one"
    assert delete("worker", key) == 1
    assert json.loads(next(answers)[1])["final"]
    auth.AuthDisable(rpc.AuthDisableRequest(), metadata=[("token", tokens["root"])])
    print("  users:", r)


def main():
    with Cluster(sys.argv[1], nodes=2, port=None if sys.argv[2] == "none" else sys.argv[2],
                 config={"shards": '{idle: adaptive, cpus: "0,1"}'}) as c:
        c.join()
        a, b = (node_client(n) for n in c.nodes)
        answers = Watch(c.nodes[0], "replies")
        jobs = Watch(c.nodes[1], "work")
        for n in c.nodes:
            consumers(n, "work", 1)
            consumers(n, "replies", 1)
        stream(a, b, answers, jobs)
        empty(a, b, answers, jobs)
        time_is_over(a, answers, jobs)
        cancelled(a, b, answers, jobs)
        refused(a, answers)
        workers(a, b, c.nodes, answers, jobs)
        large(a, b, answers, jobs)
        deserted(a, c.nodes, jobs)
        answers.none()
        jobs.none()
        users(c.nodes[1])


if __name__ == "__main__":
    main()
    # The library's threads watch on, and gRPC does not survive that they are there when the interpreter ends.
    sys.stdout.flush()
    os._exit(0)
