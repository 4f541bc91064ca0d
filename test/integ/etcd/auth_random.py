#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Users, roles and permissions at random, and calls of those users, to ringpostd and to a real etcd 3.4.

    auth_random.py BINARIES [--seed N] [--operations N]

Every answer is compared: field by field but for the ids in headers, errors by code and text. What 3.4 does
otherwise than 3.6 is not asked (docs/etcd-compat.md). Status 77 when etcd or python3-etcd3 is missing.
"""
import argparse
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import etcd_basic as basic
from etcd_basic import ask, check
from etcd3.etcdrpc import rpc_pb2 as pb, rpc_pb2_grpc as stubs

USERS, ROLES, PASSWORDS = ["root", "u1", "u2", "u3", "none"], ["root", "r1", "r2", "r3", "none"], ["p1", "p2"]
KEYS = [bytes([c]) for c in b"abcdef"]
ENDS = dict(zip(KEYS, [b"", b"d", b"e", b"", b"\0", b""]))
LEASES = (1, 2, 3)


def plain(m):
    """As text; permissions of one key have no order in etcd."""
    if isinstance(m, pb.AuthRoleGetResponse):
        m = type(m).FromString(m.SerializeToString())
        perms = sorted(m.perm, key=lambda p: (p.key, p.range_end))
        del m.perm[:]
        m.perm.extend(perms)
    if isinstance(m, pb.AuthenticateResponse):
        m = type(m).FromString(m.SerializeToString())
        m.token = ""
    return basic.plain(m)


class Run:
    def __init__(self, servers, seed):
        self.servers = servers
        self.random = basic.Random(seed)
        self.r = self.random.r
        self.seed, self.enabled, self.count, self.refused = seed, False, 0, 0
        self.tokens = []  # one for each server, of the same user
        self.stubs = [{n: getattr(stubs, n + "Stub")(s.channel) for n in ("Auth", "KV", "Lease")} for s in servers]

    def call(self, service, name, request, tokens=None):
        """The answers of all servers, which are alike."""
        self.count += 1
        answers, raw = [], []
        for i, by_service in enumerate(self.stubs):
            method = getattr(by_service[service], name)
            metadata = [("token", tokens[i])] if tokens else None
            kind, value = ask(lambda m, timeout: method(m, timeout=timeout, metadata=metadata), request)
            raw.append(value)
            answers.append((kind, plain(value) if kind == "ok" else value))
        self.refused += answers[0][0] == "error"
        check(f"seed {self.seed} call {self.count} {name} {str(request)!r} {'with a token' if tokens else ''}",
              answers[0] == answers[1], f"\n  {answers[0]}\n  {answers[1]}")
        return answers[0][0] == "ok", raw

    def user(self):
        return self.r.choice(USERS)

    def role(self):
        return self.r.choice(ROLES)

    def range(self):
        """Of a permission: one end a key, since 3.4 finds and replaces a permission by its key alone."""
        key = self.r.choice(KEYS)
        return key, ENDS[key]

    def token(self):
        """Of somebody who has asked for one; sometimes none, or a bad one. Without auth 3.4 refuses what it ignores later."""
        what = self.r.random()
        if not self.enabled or what < 0.05:
            return None
        if what < 0.08 or not self.tokens:
            return ["bad.1"] * len(self.servers)
        return self.r.choice(self.tokens)

    def change(self):
        perm = pb.AuthRoleGrantPermissionRequest(name=self.role())
        key, end = self.range()
        perm.perm.permType, perm.perm.key, perm.perm.range_end = self.r.randrange(3), key, end
        requests = [
            pb.AuthUserAddRequest(name=self.user(), password=self.r.choice(PASSWORDS)),
            pb.AuthUserAddRequest(name="", password="x"),
            pb.AuthUserDeleteRequest(name=self.user()),
            pb.AuthUserChangePasswordRequest(name=self.user(), password=self.r.choice(PASSWORDS)),
            pb.AuthUserGrantRoleRequest(user=self.user(), role=self.role()),
            pb.AuthUserGrantRoleRequest(user=self.user(), role=self.role()),
            pb.AuthUserRevokeRoleRequest(name=self.user(), role=self.role()),
            pb.AuthRoleAddRequest(name=self.role()), pb.AuthRoleAddRequest(name=self.role()),
            pb.AuthRoleDeleteRequest(role=self.role()), perm, perm, perm,
            pb.AuthRoleRevokePermissionRequest(role=self.role(), key=key, range_end=end)]
        request = self.r.choice(requests)
        # Role root as a name of its own is all there is to it: what it may do is the server's.
        if request is perm and perm.name == "root":
            return
        name = type(request).__name__.removeprefix("Auth").removesuffix("Request")
        self.call("Auth", name, request, self.root() if self.r.random() < 0.7 else self.token())

    def root(self):
        """Tokens of root while auth is on."""
        if not self.enabled:
            return None
        for password in PASSWORDS:
            good, answers = self.call("Auth", "Authenticate", pb.AuthenticateRequest(name="root", password=password))
            if good:
                return [a.token for a in answers]
        return self.token()

    def look(self):
        request = self.r.choice([pb.AuthUserGetRequest(name=self.user()), pb.AuthRoleGetRequest(role=self.r.choice(ROLES[1:])),
                                 pb.AuthUserListRequest(), pb.AuthRoleListRequest()])
        name = type(request).__name__.removeprefix("Auth").removesuffix("Request")
        self.call("Auth", name, request, self.token())

    def keys(self):
        what = self.r.random()
        if what < 0.1:
            name = self.r.choice(["LeaseRevoke", "LeaseGrant"])
            id_ = self.r.choice(LEASES)
            request = pb.LeaseGrantRequest(ID=id_, TTL=600) if name == "LeaseGrant" else pb.LeaseRevokeRequest(ID=id_)
            # 3.4 asks nobody who grants, or revokes what has no keys.
            self.call("Lease", name, request, self.root() if name == "LeaseGrant" else self.token() or self.root())
            return
        self.random.open_deletes = True
        if what < 0.4:
            name, request = "Put", self.random.put()
            request.lease = self.r.choice([0, 0, *LEASES])
        elif what < 0.6:
            name, request = "Range", forward(self.random.range())
        elif what < 0.7:
            name, request = "DeleteRange", forward(self.random.delete())
        else:
            name, request = "Txn", known_to_34(self.random.txn())
        good, answers = self.call("KV", name, request, self.token())
        if good:
            self.random.revision = max(self.random.revision, answers[0].header.revision)

    def authenticate(self):
        good, answers = self.call("Auth", "Authenticate", pb.AuthenticateRequest(
            name=self.user(), password=self.r.choice(PASSWORDS)))
        if good:
            self.tokens = (self.tokens + [[a.token for a in answers]])[-8:]

    def switch(self):
        if self.enabled and self.r.random() < 0.3:
            good, _ = self.call("Auth", "AuthDisable", pb.AuthDisableRequest(), self.root())
            self.enabled = self.enabled and not good
            return
        if not self.enabled:
            self.call("Auth", "UserAdd", pb.AuthUserAddRequest(name="root", password="p1"))
            self.call("Auth", "UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root"))
        good, _ = self.call("Auth", "AuthEnable", pb.AuthEnableRequest(), self.root())
        self.enabled = self.enabled or good

    def step(self):
        what = self.r.random()
        if what < 0.3:
            self.change()
        elif what < 0.4:
            self.look()
        elif what < 0.5:
            self.authenticate()
        elif what < 0.52:
            self.switch()
        else:
            self.keys()


def forward(m):
    """Whether a range that ends before it begins is permitted is in 3.4 a matter of how its tree has grown."""
    if m.range_end not in (b"", b"\0") and m.range_end <= m.key:
        m.range_end = b""
    return m


def known_to_34(txn):
    """3.4 does not ask whether who puts in a txn may read what was there before, nor about the keys of nested txns."""
    for ops in (txn.success, txn.failure):
        kept = [op for op in ops if not op.HasField("request_txn")]
        del ops[:]
        ops.extend(kept)
        for op in ops:
            if op.HasField("request_put"):
                op.request_put.prev_kv = False
            elif op.HasField("request_range"):
                forward(op.request_range)
            elif op.HasField("request_delete_range"):
                forward(op.request_delete_range)
    for compare in txn.compare:
        forward(compare)
    return txn


def start_ours(binaries):
    folder = tempfile.mkdtemp(prefix="auth-random-")
    port = basic.free_port()
    log = open(os.path.join(folder, "log"), "wb")
    p = subprocess.Popen([os.path.join(os.path.abspath(binaries), "ringpostd", "ringpostd"), "--auth-bcrypt-cost", "4",
                          "--listen-client-urls", f"127.0.0.1:{port}", "--kv-initial-revision", "1"],
                         stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    return basic.Server("ringpost", p, port, folder)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries")
    p.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    p.add_argument("--operations", type=int, default=3000)
    args = p.parse_args()
    print(f"seed {args.seed}", flush=True)
    basic.WAIT_S = 20
    etcd = basic.start_etcd("--bcrypt-cost", "4")
    if not etcd:
        print("skipped: etcd is not installed (package etcd-server)")
        return 77
    ours = start_ours(args.binaries)
    try:
        run = Run([etcd, ours], args.seed)
        for _ in range(args.operations):
            run.step()
            if basic.failures > 3:
                break
        print(f"{run.count} calls, {run.refused} of them refused")
    finally:
        etcd.stop()
        status = ours.stop()
    check("status of ringpostd after SIGTERM", status == 0, status)
    print("failures:", basic.failures)
    return 1 if basic.failures else 0


if __name__ == "__main__":
    sys.exit(main())
