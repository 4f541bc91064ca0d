#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prefix policy and zones between real nodes, set and changed by reloads: policy.py BINARIES"""
import os
import socket
import subprocess
import sys
import time
import uuid

from cluster import Cluster, need, skip, wait_until


def own_address():
    """An address of this host that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
            return s.getsockname()[0]
        except OSError:
            return None


def reload(node, **knobs):
    for key, value in knobs.items():
        if value is None:
            node.extra.pop(key, None)
        else:
            node.extra[key] = value
    node.write_config()
    return node.ctl("reload")


def value(node, key):
    return node.etcdctl("get", "--print-value-only", key).stdout.strip()


def arrives(node, key, text):
    wait_until(f"{key} = {text}", 10, lambda: value(node, key) == text)


def denied(r, rule, key):
    said = r.stderr if isinstance(r.stderr, str) else r.stderr.decode()
    assert r.returncode != 0 and "PermissionDenied" in said and rule in said, r
    assert key not in said, r
    return True


def local(a, b):
    print("local_prefix: stays here, but for its exceptions; and what others send is not taken")
    watch = a.watch("--prefix", "/")
    for n in (a, b):
        said = reload(n, local_prefix="[/local/, /queue/mine/]", local_prefix_except="/local/shared/")
        assert "local_prefix: [] -> [/local/, /queue/mine/]" in said, said
    a.etcdctl("put", "/local/one", "at-a")
    b.etcdctl("put", "/local/two", "at-b")
    a.etcdctl("put", "/local/shared/one", "both")
    a.etcdctl("txn", data=b"\nput /local/txn 1\nput /else/txn 1\n\n\n")
    arrives(b, "/local/shared/one", "both")
    arrives(b, "/else/txn", "1")
    assert value(b, "/local/one") == "" and value(b, "/local/txn") == ""
    assert value(a, "/local/two") == ""
    # A queue below it is each node's own: neither hears of the other's dispatcher or consumer.
    at_a = a.watch(f"/q/mine/consumer/{uuid.uuid4()}")
    a.etcdctl("put", "/q/mine/producer/1", "of-a")
    at_a.wait("of-a")
    b.etcdctl("put", "/q/mine/producer/2", "of-b")
    a.etcdctl("put", "/free/mark", "1")
    arrives(b, "/free/mark", "1")
    assert value(a, "/q/mine") != "" and value(b, "/q/mine") not in ("", value(a, "/q/mine"))
    assert "consumers: 0 here, 0 on other nodes" in b.ctl("route", "explain", "mine")
    at_b = b.watch(f"/q/mine/consumer/{uuid.uuid4()}")
    at_b.wait("of-b")
    assert at_a.key_of("of-b") is None
    # A node without the rule sends, and it is not taken.
    reload(b, local_prefix=None, local_prefix_except=None)
    b.etcdctl("put", "/local/three", "at-b")
    b.etcdctl("put", "/else/three", "1")
    arrives(a, "/else/three", "1")
    assert value(a, "/local/three") == ""
    # Without the rule on both sides the next comparison makes them equal.
    reload(a, local_prefix=None, local_prefix_except=None)
    arrives(a, "/local/three", "at-b")
    arrives(b, "/local/one", "at-a")
    watch.wait("both")
    assert watch.process.poll() is None


def apart(a, b):
    print("a queue that was shared parts when the rule comes, and is one again when it goes")
    at_a = a.watch(f"/q/later/consumer/{uuid.uuid4()}")
    wait_until("b knows a's consumer", 10,
               lambda: "consumers: 0 here, 1 on other nodes" in b.ctl("route", "explain", "later")
               or b.etcdctl("put", "/q/later/producer/0", "shared"))
    b.etcdctl("put", "/q/later/producer/1", "before")
    at_a.wait("before")
    for n in (b, a):
        reload(n, local_prefix="/q/later/")
    wait_until("b knows it no more", 10,
               lambda: "0 on other nodes" in b.ctl("route", "explain", "later"))
    b.etcdctl("put", "/q/later/producer/2", "during")
    wait_until("b has it", 10, lambda: ", this node)" in b.ctl("route", "explain", "later")
               and "messages here: 1" in b.ctl("route", "explain", "later"))
    a.etcdctl("put", "/q/later/producer/3", "own")
    at_a.wait("own")
    assert at_a.key_of("during") is None
    for n in (a, b):
        reload(n, local_prefix=None)
    at_a.wait("during", 20)
    assert at_a.process.poll() is None


def readonly(a, b):
    print("readonly_prefix: no call writes there, alone, in a range or in a txn")
    a.etcdctl("put", "/ro/a", "before")
    arrives(b, "/ro/a", "before")
    lease = a.etcdctl("lease", "grant", "600").stdout.split()[1]
    a.etcdctl("put", "/ro/leased", "x", "--lease", lease)
    reload(a, readonly_prefix="[/ro/, /q/held/]")
    denied(a.etcdctl("put", "/ro/a", "after", check=False), "readonly_prefix", "/ro/a")
    denied(a.etcdctl("del", "/ro/a", check=False), "readonly_prefix", "/ro/a")
    denied(a.etcdctl("del", "--prefix", "/", check=False), "readonly_prefix", "/ro/")
    denied(a.etcdctl("txn", check=False, data=b"\n\nput /rw 1\nput /ro/b 2\n\n\n"),
           "readonly_prefix", "/ro/b")
    denied(a.etcdctl("put", "/queue/held/producer/1", "m", check=False), "readonly_prefix", "held")
    denied(a.etcdctl("lease", "revoke", lease, check=False), "readonly_prefix", "/ro/")
    denied(a.etcdctl("put", "/rw", "1", "--lease", lease, check=False), "readonly_prefix", "/ro/")
    assert value(a, "/ro/a") == "before" and value(a, "/rw") == ""
    # A peer without the rule may write, and it replicates.
    b.etcdctl("put", "/ro/a", "by-b")
    arrives(a, "/ro/a", "by-b")
    reload(a, readonly_prefix=None)
    a.etcdctl("put", "/ro/a", "after")
    a.etcdctl("lease", "revoke", lease)


def local_only(a, address):
    print("local_only_prefix: for callers on this host")
    far = f"{address}:{a.port}"

    def remote(*args):
        return subprocess.run(["etcdctl", "--endpoints", far, *args], capture_output=True, text=True,
                              env=dict(os.environ, ETCDCTL_API="3"), timeout=30, check=False)

    a.etcdctl("put", "/host/a", "seen")
    assert "seen" in remote("get", "/host/a").stdout
    path = os.path.join(a.dir, "far-watch")
    with open(path, "w", encoding="utf-8") as out:
        watch = subprocess.Popen(["etcdctl", "--endpoints", far, "watch", "--prefix", "/host/"],
                                 stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                 env=dict(os.environ, ETCDCTL_API="3"))
    near = a.watch("--prefix", "/host/")
    time.sleep(0.5)
    a.etcdctl("put", "/host/a", "again")
    wait_until("the far watch", 10, lambda: "again" in open(path, encoding="utf-8").read())
    near.wait("again")
    reload(a, local_only_prefix="/host/", local_only_prefix_except="/host/open/")
    for args in (("get", "/host/a"), ("get", "--prefix", "/"), ("put", "/host/a", "x"),
                 ("snapshot", "save", os.path.join(a.dir, "far.db"))):
        denied(remote(*args), "local_only_prefix", "/host/a")
    assert remote("put", "/host/open/a", "x").returncode == 0
    assert remote("get", "/free").returncode == 0
    # Who watched before the rule was there sees nothing more; who may, goes on.
    a.etcdctl("put", "/host/a", "hidden")
    near.wait("hidden")
    wait_until("the end of the far watch", 10, lambda: watch.poll() is not None)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    assert "hidden" not in text and "watch is canceled by the server" in text, text
    reload(a, local_only_prefix=None, local_only_prefix_except=None)
    assert "hidden" in remote("get", "/host/a").stdout


def zones(a, b):
    print("zones: a scoped key goes to known peers of the zone only")
    for n in (a, b):
        reload(n, zone="east", zone_prefix="/zone/", peer_zones=f"{b.client}=west,{a.client}=west")
    a.etcdctl("put", "/zone/a", "1")
    a.etcdctl("put", "/free/a", "1")
    arrives(b, "/free/a", "1")
    assert value(b, "/zone/a") == ""
    # The host's zone is overruled by that of host and port.
    for n, other in ((a, b), (b, a)):
        reload(n, peer_zones=f"127.0.0.1=west,{other.client}=east")
    a.etcdctl("put", "/zone/b", "2")
    arrives(b, "/zone/b", "2")
    arrives(b, "/zone/a", "1")
    # Without a label a peer is outside.
    for n in (a, b):
        reload(n, peer_zones=None)
    a.etcdctl("put", "/zone/c", "3")
    a.etcdctl("put", "/free/c", "3")
    arrives(b, "/free/c", "3")
    assert value(b, "/zone/c") == ""


def labels(a, b):
    print("zones: what peer_zones says of a peer, and what it says of itself")
    reload(b, zone="west", zone_prefix="/zone/", peer_zones=f"{a.client}=west")
    reload(a, zone="east", zone_prefix="/zone/", peer_zones=f"{b.client}=east")
    for n, own, other in ((a, "east", b), (b, "west", a)):
        label = own
        wait_until("it is said", 10, lambda: f"zone {own}: peer_zones says {label} of" in n.log_text()
                   and f"{other.client}, which says of itself" in n.log_text())
    a.etcdctl("put", "/zone/d", "4")
    b.etcdctl("put", "/zone/e", "4")
    a.etcdctl("put", "/free/d", "4")
    arrives(b, "/free/d", "4")
    b.etcdctl("put", "/free/e", "4")
    arrives(a, "/free/e", "4")
    assert value(b, "/zone/d") == "" and value(a, "/zone/e") == ""
    # They agree, and it goes on without another word to the one that had it right.
    reload(b, zone="east", peer_zones=f"{a.client}=east")
    arrives(b, "/zone/d", "4")
    arrives(a, "/zone/e", "4")
    # One that says it is inside, and is not labelled here.
    reload(a, peer_zones=None)
    wait_until("it is said", 10, lambda: "zone east: peer_zones says nothing of" in a.log_text())


def parted(a, b):
    print("zones that part a queue while a consumer holds a message: it stays his, and no stream stays")
    idle = uuid.uuid4()
    b.etcdctl("put", f"/q/zoned/consumer/{idle}", ";match=nothing")
    keep = b.watch(f"/q/zoned/consumer/{idle}")
    wait_until("a knows that b dispatches", 10, lambda: value(a, "/q/zoned") != "")
    at_a = a.watch(f"/q/zoned/consumer/{uuid.uuid4()}")
    wait_until("b knows a's consumer", 10,
               lambda: "consumers: 1 here, 1 on other nodes" in b.ctl("route", "explain", "zoned"))
    b.etcdctl("put", "/q/zoned/producer/1", "held")
    key = at_a.wait("held")
    assert "zoned" in b.ctl("streams")
    at_b = b.watch(f"/q/zoned/consumer/{uuid.uuid4()}")
    for n in (b, a):
        reload(n, zone="east", zone_prefix="/q/zoned/", peer_zones="127.0.0.1=west")
    wait_until("b has consumers of its own only", 10,
               lambda: "consumers: 2 here, 0 on other nodes" in b.ctl("route", "explain", "zoned"))
    wait_until("no stream is left", 10, lambda: "zoned" not in b.ctl("streams"))
    # Longer than a consumer that is gone is waited for.
    time.sleep(2.5)
    assert at_b.key_of("held") is None
    b.etcdctl("put", "/q/zoned/producer/2", "of-b")
    at_b.wait("of-b")
    a.etcdctl("put", "/q/zoned/producer/3", "of-a")
    at_a.wait("of-a")
    assert at_a.key_of("of-b") is None and at_b.key_of("of-a") is None
    assert a.etcdctl("del", key).stdout.strip() == "1"
    wait_until("b has what its own consumer holds", 10,
               lambda: "messages here: 1" in b.ctl("route", "explain", "zoned"))
    for n in (a, b):
        reload(n, zone=None, zone_prefix=None, peer_zones=None)
    wait_until("one dispatcher is left", 20,
               lambda: value(a, "/q/zoned") == value(b, "/q/zoned") != "")
    a.etcdctl("put", "/q/zoned/producer/4", "again")
    wait_until("one of them has it", 10, lambda: at_a.key_of("again") or at_b.key_of("again"))
    assert at_a.key_of("of-b") is None and at_b.key_of("of-a") is None and at_b.key_of("held") is None
    assert keep.process.poll() is None


def main():
    need("etcdctl")
    address = own_address()
    c = Cluster(sys.argv[1], nodes=2)
    a, b = c.nodes
    for n in c.nodes:
        n.extra["repl"] = "{sync_s: 1}"
    if address:
        a.extra["listen_client_urls"] = f"[\"http://{a.client}\", \"http://{address}:{a.port}\"]"
    with c:
        c.join()
        local(a, b)
        apart(a, b)
        readonly(a, b)
        zones(a, b)
        labels(a, b)
        parted(a, b)
        if address:
            local_only(a, address)
    if not address:
        skip("this host has no address but loopback: local_only_prefix was not tried")
    print("policy holds")


main()
