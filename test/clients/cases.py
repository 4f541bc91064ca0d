# SPDX-License-Identifier: Apache-2.0
"""The cases that every client program has, and what a Python client program shares.

A client program is called as PROGRAM HOST:PORT CLIENT CASE... and prints one JSON line a case:
{"client", "case", "ok", "detail"}. `ok` is true or false, or null where the library cannot do it.
`detail` says what came out, without what differs from run to run (ids, revisions as they are, time),
so that it can be compared between two servers. `version` is a case of its own: the library's.
"""
import json
import sys
import time
import traceback

# (case, the calls it makes)
CASES = [
    ("put_get", "KV Put, Range"),
    ("range", "KV Range: prefix, order, limit, count, revision"),
    ("delete", "KV DeleteRange"),
    ("txn", "KV Txn: compares, both branches"),
    ("compact", "KV Compact, Range below it"),
    ("watch_start", "Watch from a revision, then live, prev_kv"),
    ("watch_progress", "Watch progress"),
    ("watch_cancel", "Watch cancel, the others go on"),
    ("watch_compacted", "Watch below a compaction"),
    ("lease", "Lease Grant, TimeToLive, KeepAlive, Revoke"),
    ("lease_expiry", "Lease that ends, seen by a watch"),
    ("lock", "lock between two sessions"),
    ("election", "election between two sessions"),
    ("stm", "software transaction of the library"),
    ("cluster", "Maintenance Status, Cluster MemberList"),
    ("members", "Cluster MemberAdd, Update, Remove, Promote"),
    ("maintenance", "Maintenance Alarm, Hash, HashKV, Defragment, Snapshot, MoveLeader"),
    ("newer", "Auth AuthStatus, Maintenance Downgrade: not in etcd 3.4"),
    ("queue_deliver", "queue: put, watch, acknowledge"),
    ("queue_resume", "queue: the same consumer comes back"),
    ("queue_hand_on", "queue: another consumer gets it"),
    ("auth_admin", "Auth: lists, changes and ends of users and roles"),
    ("auth", "Auth: users, roles, refusals, on and off"),
]

# Calls of the API that a library has no way to make; services whole by their name.
LIBRARY_HAS_NOT = {
    "etcdctl": ["Auth AuthStatus", "Maintenance Hash", "Maintenance Downgrade", "Lock", "Election"],
    "go-3.5": ["Maintenance Hash", "Maintenance Downgrade", "Lock", "Election"],
    "go-3.6": ["Maintenance Hash", "Lock", "Election"],
    "rust": ["Auth AuthStatus", "Maintenance Downgrade"],
    "python-etcd3": ["Auth AuthStatus", "Cluster MemberPromote", "Maintenance Downgrade", "Lock", "Election"],
    "python-etcd3gw": ["KV Compact", "Lease LeaseLeases", "Cluster MemberAdd", "Cluster MemberRemove",
                       "Cluster MemberUpdate", "Cluster MemberPromote", "Maintenance Alarm", "Maintenance Hash",
                       "Maintenance HashKV", "Maintenance Defragment", "Maintenance Snapshot", "Maintenance MoveLeader",
                       "Maintenance Downgrade", "Auth", "Lock", "Election"],
    # Its hashKV() asks the stub for a method of another spelling.
    "node": ["Maintenance HashKV", "Lock", "Election"],
}


def library_has(client, call):
    """Whether "KV Range" is a call that the library offers."""
    return not {call, call.split()[0]} & set(LIBRARY_HAS_NOT[client])

NAMES = [name for name, _ in CASES]
WAIT_S = 15


class NotInLibrary(Exception):
    """The library has no way to do it."""


def ours_only(case):
    return case.startswith("queue_")


def need(good, what):
    if not good:
        raise AssertionError(what)


def wait_for(what, condition, seconds=WAIT_S):
    """The first value that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for {what}")


def main(functions, version):
    """functions: {case: f(address) -> detail}."""
    address, client = sys.argv[1:3]
    for case in ["version"] + sys.argv[3:]:
        try:
            if case == "version":
                ok, detail = True, version
            elif case not in functions:
                ok, detail = None, "the program has no such case"
            else:
                ok, detail = True, functions[case](address)
        except NotInLibrary as e:
            ok, detail = None, str(e)
        except Exception as e:  # pylint: disable=broad-except
            traceback.print_exc()
            ok, detail = False, f"{type(e).__name__}: {e}"
        print(json.dumps({"client": client, "case": case, "ok": ok, "detail": detail}), flush=True)
