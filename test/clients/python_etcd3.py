#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cases with Python's etcd3: python_etcd3.py HOST:PORT CLIENT CASE... (see cases.py)"""
import importlib.metadata
import io
import queue
import uuid

import etcd3
import grpc
from etcd3.etcdrpc import rpc_pb2 as pb, rpc_pb2_grpc as stubs

import cases
from cases import NotInLibrary, need


def connect(address):
    host, port = address.rsplit(":", 1)
    return etcd3.client(host=host, port=int(port), timeout=cases.WAIT_S)


def error_of(f, *args, **more):
    try:
        f(*args, **more)
    except grpc.RpcError as e:
        return f"{e.code().name}: {e.details()}"
    except etcd3.exceptions.Etcd3Exception as e:
        return type(e).__name__
    raise AssertionError("no error")


def kind(event):
    return type(event).__name__.replace("Event", "")


class Watch:
    """The answers of one watch in a queue."""

    def __init__(self, c, key, **more):
        self.client, self.answers = c, queue.Queue()
        self.id = c.add_watch_callback(key, self.answers.put, **more)

    def events(self, count):
        """The next ones, as many."""
        got = []
        while len(got) < count:
            answer = self.answers.get(timeout=cases.WAIT_S)
            if isinstance(answer, Exception):
                raise answer
            got += answer.events
        return got


def put_get(a):
    with connect(a) as c:
        c.put("put_get", "one")
        prev = c.put("put_get", "two", prev_kv=True).prev_kv.value.decode()
        value, meta = c.get("put_get")
        again = [c.put_if_not_exists("put_get", "x"), c.replace("put_get", "two", "three"), c.get("none")[0]]
        return f"{prev} {value} version {meta.version} mod +{meta.mod_revision - meta.create_revision} {again}"


def range_(a):
    with connect(a) as c:
        for i in range(5):
            c.put(f"range/{i}", str(i))
        c.put("range/2", "new")
        down = [m.key.decode() for _, m in c.get_prefix("range/", sort_order="descend")]
        by_mod = [v.decode() for v, _ in c.get_prefix("range/", sort_order="ascend", sort_target="mod")]
        part = [v.decode() for v, _ in c.get_range("range/1", "range/3")]
        keys = [(v, m.key.decode()) for v, m in c.get_prefix("range/", keys_only=True)]
        return [down, by_mod, part, str(keys), c.get_prefix_response("range/").count]


def delete(a):
    with connect(a) as c:
        for i in range(4):
            c.put(f"delete/{i}", str(i))
        gone = c.delete("delete/0", prev_kv=True, return_response=True)
        return [gone.prev_kvs[0].value.decode(), c.delete("delete/0"), c.delete_prefix("delete/").deleted,
                len(list(c.get_prefix("delete/")))]


def txn(a):
    with connect(a) as c:
        c.put("txn/k", "v")
        t = c.transactions
        good = c.transaction(compare=[t.value("txn/k") == "v", t.version("txn/k") == 1, t.create("txn/none") == 0,
                                      t.mod("txn/k") > 0],
                             success=[t.put("txn/k2", "x"), t.get("txn/k"),
                                      t.txn(compare=[t.version("txn/k") > 0], success=[t.get("txn/k2")], failure=[])],
                             failure=[])
        bad = c.transaction(compare=[t.value("txn/k") == "other"], success=[],
                            failure=[t.get("txn/k2"), t.delete("txn/k2")])
        twice = error_of(c.transaction, compare=[], success=[t.put("txn/k", "x"), t.put("txn/k", "y")], failure=[])
        return [good[0], good[1][1][0][0].decode(), len(good[1]), bad[0], bad[1][0][0][0].decode(), twice]


def compact(a):
    with connect(a) as c:
        c.put("compact", "1")
        at = c.put("compact", "2").header.revision
        c.compact(at)
        return [error_of(c.compact, at), error_of(c.compact, at + 1000), c.get("compact")[0].decode()]


def watch_start(a):
    with connect(a) as c:
        start = c.put("watch_start/a", "0").header.revision
        c.put("watch_start/a", "1")
        c.delete("watch_start/a")
        w = Watch(c, "watch_start/", range_end="watch_start0", start_revision=start, prev_kv=True)
        got = w.events(3)
        c.put("watch_start/b", "live")
        got += w.events(1)
        c.cancel_watch(w.id)
        return [[kind(e), e.key.decode(), e.value.decode(), e.prev_value.decode() if e.prev_value else "",
                 e.mod_revision - start] for e in got]


def watch_progress(a):
    raise NotInLibrary("the library cannot ask for progress; by itself a server tells it after ten minutes")


def watch_cancel(a):
    with connect(a) as c:
        first, second = Watch(c, "watch_cancel"), Watch(c, "watch_cancel")
        c.put("watch_cancel", "1")
        both = [first.events(1)[0].value, second.events(1)[0].value]
        c.cancel_watch(first.id)
        c.put("watch_cancel", "2")
        rest = second.events(1)[0].value
        need(first.answers.empty(), "an event after the cancel")
        return str([both, rest])


def watch_compacted(a):
    with connect(a) as c:
        start = c.put("watch_compacted", "1").header.revision
        at = c.put("watch_compacted", "2").header.revision
        c.compact(at)
        try:
            w = Watch(c, "watch_compacted", start_revision=start)
            w.events(1)
        except etcd3.exceptions.RevisionCompactedError as e:
            return f"compacted at +{e.compacted_revision - start}"
        raise AssertionError("no error")


def lease(a):
    with connect(a) as c:
        held = c.lease(60)
        c.put("lease/k", "v", lease=held)
        ttl, granted, keys = held.remaining_ttl, held.granted_ttl, [k.decode() for k in held.keys]
        kept = [r.TTL for r in held.refresh()]
        need(55 < ttl <= 60, ttl)
        listed = stubs.LeaseStub(c.channel).LeaseLeases(pb.LeaseLeasesRequest())
        need(listed.header.revision > 0, str(listed))
        held.revoke()
        return [granted, keys, kept, c.get("lease/k")[0],
                error_of(held.revoke), error_of(c.put, "lease/k", "v", lease=1234)]


def lease_expiry(a):
    with connect(a) as c:
        w = Watch(c, "lease_expiry")
        c.put("lease_expiry", "1", lease=c.lease(2))
        got = w.events(2)
        return [[kind(e) for e in got], c.get("lease_expiry")[0]]


def lock(a):
    with connect(a) as one, connect(a) as two:
        # Debian's tenacity is newer than the library knows: its lock does not wait, so nor does this.
        first, second = one.lock("mutex", ttl=20), two.lock("mutex", ttl=20)
        need(first.acquire(timeout=5), "the lock is free")
        held = [first.is_acquired(), second.is_acquired()]
        need(first.release(), "released")
        need(second.acquire(timeout=5), "handed on")
        return held + [first.is_acquired(), second.is_acquired(), second.release()]


def election(a):
    raise NotInLibrary("the library has none")


stm = election


def cluster(a):
    with connect(a) as c:
        members = list(c.members)
        status = c.status()
        need(status.leader.id == members[0].id and status.db_size > 0, str(status))
        return [len(members), status.version.count("."), c.hash() > 0]


def members(a):
    with connect(a) as c:
        own = list(c.members)[0]
        own.update(list(own.peer_urls))
        # As a learner, so that an etcd of one node keeps its majority: newer than the library's .proto, field 2.
        asked = pb.MemberAddRequest(peerURLs=["http://127.0.0.1:7"]).SerializeToString() + b"\x10\x01"
        added = c.clusterstub.MemberAdd(pb.MemberAddRequest.FromString(asked)).member
        there = len(list(c.members))
        c.remove_member(added.ID)
        return [there, len(list(c.members)), error_of(c.add_member, ["nonsense"]), error_of(c.update_member, 1, ["http://127.0.0.1:7"])]


def maintenance(a):
    with connect(a) as c:
        own, file = list(c.members)[0].id, io.BytesIO()
        c.put("maintenance", "1")
        raised = [x.alarm_type for x in c.create_alarm(own)]
        listed = [(x.alarm_type, x.member_id == own) for x in c.list_alarms()]
        full = error_of(c.put, "maintenance", "2")
        gone = [x.alarm_type for x in c.disarm_alarm(own)]
        c.defragment()
        c.snapshot(file)
        stub = c.maintenancestub
        hashed = stub.HashKV(pb.HashKVRequest())
        stub.MoveLeader(pb.MoveLeaderRequest(targetID=own))
        return [raised, listed, full, gone, list(c.list_alarms()), len(file.getvalue()) % 512, c.hash() == c.hash(),
                hashed.hash > 0, error_of(stub.MoveLeader, pb.MoveLeaderRequest(targetID=1)),
                error_of(stub.HashKV, pb.HashKVRequest(revision=1 << 50))]


def newer(a):
    raise NotInLibrary("the library is older than these calls")


def auth_admin(a):
    with connect(a) as c:
        s = stubs.AuthStub(c.channel)
        for name in ("u1", "u2"):
            s.UserAdd(pb.AuthUserAddRequest(name=name, password="pw"))
        for name in ("r1", "r2"):
            s.RoleAdd(pb.AuthRoleAddRequest(name=name))
            s.UserGrantRole(pb.AuthUserGrantRoleRequest(user="u1", role=name))
        grant = pb.AuthRoleGrantPermissionRequest(name="r1")
        grant.perm.permType, grant.perm.key, grant.perm.range_end = 2, b"y", b"z"
        s.RoleGrantPermission(grant)
        before = [list(s.UserList(pb.AuthUserListRequest()).users), list(s.RoleList(pb.AuthRoleListRequest()).roles),
                  list(s.UserGet(pb.AuthUserGetRequest(name="u1")).roles), len(s.RoleGet(pb.AuthRoleGetRequest(role="r1")).perm)]
        s.UserChangePassword(pb.AuthUserChangePasswordRequest(name="u1", password="new"))
        s.UserRevokeRole(pb.AuthUserRevokeRoleRequest(name="u1", role="r2"))
        revoke = pb.AuthRoleRevokePermissionRequest(role="r1", key=b"y", range_end=b"z")
        s.RoleRevokePermission(revoke)
        refused = [error_of(s.RoleRevokePermission, revoke), error_of(s.AuthEnable, pb.AuthEnableRequest()),
                   error_of(s.Authenticate, pb.AuthenticateRequest(name="u1", password="new"))]
        for name in ("r1", "r2"):
            s.RoleDelete(pb.AuthRoleDeleteRequest(role=name))
        for name in ("u1", "u2"):
            s.UserDelete(pb.AuthUserDeleteRequest(name=name))
        return before + refused + [list(s.UserList(pb.AuthUserListRequest()).users),
                                   list(s.RoleList(pb.AuthRoleListRequest()).roles)]


def queue_keys(case):
    name = f"python-{case}"
    return f"/q/{name}/producer/", f"/q/{name}/consumer/{uuid.uuid4()}"


def queue_deliver(a):
    producer, consumer = queue_keys("deliver")
    with connect(a) as c:
        w = Watch(c, consumer)
        for i in range(3):
            c.put(f"{producer}job-{i}", f"payload {i}")
        got = w.events(3)
        need(all(e.key.decode().startswith(consumer + "/") for e in got), str(got))
        acks = [c.delete(e.key) for e in got + got]
        values = [e.value.decode() for e in got]
        need(values == ["payload 0", "payload 1", "payload 2"] and acks == [True] * 3 + [False] * 3,
             f"{values} {acks}")
        return f"{values} acknowledged {acks}"


def queue_resume(a):
    producer, consumer = queue_keys("resume")
    with connect(a) as c:
        with connect(a) as other:
            w = Watch(other, consumer)
            c.put(f"{producer}job", "kept")
            event = w.events(1)[0]
        again = Watch(c, consumer, start_revision=event.mod_revision).events(1)[0]
        need((again.key, again.value, again.mod_revision) == (event.key, event.value, event.mod_revision), str(again))
        need(c.delete(event.key), "not acknowledged")
        return "the same message again, unchanged"


def queue_hand_on(a):
    producer, consumer = queue_keys("hand_on")
    with connect(a) as c:
        with connect(a) as other:
            w = Watch(other, consumer)
            c.put(f"{producer}job", "moves")
            first = w.events(1)[0].key.decode()
        mine = queue_keys("hand_on")[1]
        second = Watch(c, mine).events(1)[0].key.decode()
        need(second.startswith(mine) and first.split("/")[-2:] == second.split("/")[-2:], f"{first} {second}")
        need(c.delete(second), "not acknowledged")
        return "the same message under the other's key"


def auth(a):
    """With the library's stubs: its client itself shows its token over TLS only."""
    with connect(a) as c:
        s = stubs.AuthStub(c.channel)
        for name, role in (("root", "root"), ("alice", "rw")):
            s.UserAdd(pb.AuthUserAddRequest(name=name, password=name + "pw"))
            s.RoleAdd(pb.AuthRoleAddRequest(name=role))
            s.UserGrantRole(pb.AuthUserGrantRoleRequest(user=name, role=role))
        grant = pb.AuthRoleGrantPermissionRequest(name="rw")
        grant.perm.permType, grant.perm.key, grant.perm.range_end = 2, b"auth/", b"auth0"
        s.RoleGrantPermission(grant)
        s.AuthEnable(pb.AuthEnableRequest())
        token = {name: [("token", s.Authenticate(pb.AuthenticateRequest(name=name, password=name + "pw")).token)]
                 for name in ("root", "alice")}
        try:
            put = lambda key, **more: c.kvstub.Put(pb.PutRequest(key=key, value=b"v"), **more)
            put(b"auth/k", metadata=token["alice"])
            return [error_of(put, b"auth/k"), error_of(put, b"other", metadata=token["alice"]),
                    error_of(put, b"auth/k", metadata=[("token", "none.1")]),
                    error_of(s.UserList, pb.AuthUserListRequest(), metadata=token["alice"]),
                    error_of(s.Authenticate, pb.AuthenticateRequest(name="alice", password="wrong"))]
        finally:
            s.AuthDisable(pb.AuthDisableRequest(), metadata=token["root"])


if __name__ == "__main__":
    cases.main({name: globals()["range_" if name == "range" else name] for name in cases.NAMES},
               importlib.metadata.version("etcd3"))
