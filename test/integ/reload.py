#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A new configuration in running nodes: reload.py BINARIES SOURCE

Each kind of change is seen to take effect, while a watch and a queue's consumer that were there before stay as they are;
a broken file changes nothing, and what cannot change live is named. Then every knob of the table, one after the other:
it changes and the node serves on, or it is named and left.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import uuid

from cluster import Cluster, need, wait_until


def reload(node, **knobs):
    """Writes the node's file with these values and asks for it; None takes a knob out."""
    for key, value in knobs.items():
        if value is None:
            node.extra.pop(key, None)
        else:
            node.extra[key] = value
    node.write_config()
    return node.ctl("reload")


def refused(node, *args):
    r = subprocess.run([os.path.join(node.cluster.bin, "ringpostctl", "ringpostctl"), "--endpoint",
                        f"unix:{node.admin}", *args], capture_output=True, text=True, timeout=30,
                       check=False)
    assert r.returncode == 1, r
    return r.stderr


def value(node, key):
    return node.etcdctl("get", "--print-value-only", key).stdout.strip()


value_of = value


def online(node):
    return node.stats("ringpost_repl_peers_online")["repl_peers_online"]


def links(node):
    return node.stats("ringpost_link_bundles_up")["link_bundles_up"]


def simple_values(a, b):
    print("name, term, log")
    said = reload(a, name="renamed", term=7, log_level="debug", log_levels="[grpc=error]")
    assert "name: n0 -> renamed" in said and "term: 1 -> 7" in said, said
    assert "log_level: info -> debug" in said, said
    members = json.loads(a.etcdctl("member", "list", "-w", "json").stdout)
    assert "renamed" in [m["name"] for m in members["members"]], members
    wait_until("the name at the other node", 10, lambda: "renamed" in b.etcdctl("member", "list").stdout)
    status = json.loads(a.etcdctl("endpoint", "status", "-w", "json").stdout)[0]["Status"]
    assert status["header"]["raft_term"] == 7, status
    assert "] debug: " not in a.log_text()
    assert "name: renamed # config.yml:" in a.ctl("config")
    # The same again is no change, and what is taken out goes back to its default.
    assert a.ctl("reload").startswith("0 changed, 0 want a restart"), "changes without a change"
    said = reload(a, term=None, log_level=None, log_levels=None, log_format="json")
    assert "term: 7 -> 1" in said and "log_format: text -> json" in said, said
    last = a.log_text().strip().split("\n")[-1]
    assert json.loads(last)["subject"] == "conf", last
    reload(a, log_format=None)


def limits(a):
    print("limits: of a message, a transaction, a queue")
    big = "x" * 5000
    reload(a, max_request_bytes=4096, max_txn_ops=2)
    assert "too large" in a.etcdctl("put", "big", big, check=False).stderr
    ops = "\n" + "".join(f"put t{i} v\n" for i in range(3)) + "\n\n"
    r = a.etcdctl("txn", check=False, data=ops.encode())
    assert b"too many operations" in r.stderr, r
    reload(a, max_request_bytes=None, max_txn_ops=None)
    a.etcdctl("put", "big", big)
    a.etcdctl("txn", data=ops.encode())
    for i in range(3):
        a.etcdctl("put", f"/q/deep/producer/{i}", "v")
    reload(a, quota_backend_bytes="1 KiB")
    assert "space exceeded" in a.etcdctl("put", "big", big, check=False).stderr
    reload(a, quota_backend_bytes=None)
    a.etcdctl("alarm", "disarm")
    a.etcdctl("put", "big", big)
    reload(a, limits="{queue_depth: 3}")
    r = a.etcdctl("put", "/q/deep/producer/more", "v", check=False)
    assert r.returncode != 0 and "deep" in r.stderr, r
    reload(a, limits=None)
    a.etcdctl("put", "/q/deep/producer/more", "v")


def broken(a):
    print("a broken file changes nothing")
    before = a.ctl("config")
    path = os.path.join(a.dir, "config.yml")
    with open(path, encoding="utf-8") as f:
        sound = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(sound + "term: 9\nnonsense: 1\nmax_txn_ops: none\n")
    said = refused(a, "reload")
    lines = len(sound.splitlines())
    assert f"config.yml:{lines + 2}:" in said and "nonsense" in said, said
    assert f"config.yml:{lines + 3}:" in said and "max_txn_ops" in said, said
    assert "nothing has changed" in said
    assert f"config.yml:{lines + 2}:" in a.log_text()
    assert a.ctl("config") == before
    os.rename(path, path + ".away")
    assert "no such file" in refused(a, "reload")
    os.rename(path + ".away", path)
    with open(path, "w", encoding="utf-8") as f:
        f.write(sound)


def fixed(a):
    print("what cannot change live is named and left, and the rest is done; by SIGHUP, too")
    a.extra["links"] = {"heartbeat_ms": 600}
    said = reload(a, term=11)
    assert "links.heartbeat_ms: 500 stays, 600 wants a restart" in said, said
    assert "term: 1 -> 11" in said and "1 changed, 1 want a restart" in said, said
    assert "heartbeat_ms: 500" in a.ctl("config")
    del a.extra["links"]
    a.extra["term"] = 12
    a.write_config()
    a.process.send_signal(signal.SIGHUP)
    wait_until("the term of SIGHUP", 10, lambda: "term: 12 #" in a.ctl("config"))
    assert "term: 11 -> 12" in a.log_text()


# Another value, where the kind of the knob alone does not give one that this node takes.
SAMPLES = {"STR": "other", "UUID": "00000000-0000-0000-0000-0000000000aa", "CPUS": '"0,1"', "LIST": "[/zz/]",
           "ZONES": "[h=z]", "LEVELS": "[tcp=error]", "LOGLEVEL": "warning", "ARGS": "[--single-file-segments]",
           "URLS": '["127.0.0.1:1"]', "ENDPOINT": '"127.0.0.1:1"', "SECRET": '"http://h:1"', "E_TRI": "auto",
           "E_IDLE": "poll", "E_CONGESTION": "reno", "E_COOKIES": "always", "E_LOG_FORMAT": "json"}
# What other tests change, since it wants files or a second node.
ELSEWHERE = {
    "initial_advertise_peer_urls": "peers()", "links.transport": "unit/conf/reload: this node has no port",
    "links.secret_file": "integ/rotate", "links.previous_secret_file": "integ/rotate",
    **{f"tls.{n}": "tls(), and a file is read at once" for n in (
        "cert_file", "key_file", "ca_file", "crl_file", "cipher_suites", "client_cert_auth", "peer_cert_file",
        "peer_key_file", "peer_ca_file")},
    "links.tls": "unit/conf/reload: it wants certificates", "auth.token": "unit/conf/reload: it wants keys",
}


def knobs(source):
    """Path, kind, default, least and most, and what the table says that a reload does."""
    number = r"(?:\d+(?:ull)?(?: << \d+)?|UINT32_MAX)"
    line = re.compile(r'^RP_(?:TOP\(|KNOB\((\w+), +)(\w+), +(\w+), +"[^"]*", +"([^"]*)", +(%s), +(%s), +(\w+),' % (number, number))
    found = []
    for text in (pathlib.Path(source) / "lib" / "conf" / "knobs.def").read_text().splitlines():
        if re.match(r"RP_(TOP|KNOB)\((?!name, TYPE|section, name)", text):
            section, name, kind, default, least, most, change = line.match(text).groups()
            least, most = (eval(x.replace("ull", "").replace("UINT32_MAX", "0xffffffff")) for x in (least, most))
            found.append((f"{section}.{name}" if section else name, kind, default, least, most, change))
    return found


def another(kind, default, least, most):
    if kind in SAMPLES:
        return SAMPLES[kind]
    if kind == "BOOL":
        return "false" if default in ("true", "on") else "true"
    if not default.isdigit():
        return "64 MiB" if kind == "BYTES" else str(least + 1)
    return str(int(default) + 1 if int(default) < most else int(default) - 1)


def every_knob(a, source):
    print("every knob of the table changes, or is named and left, and the node serves on")
    base = {"shards": "idle: adaptive", "dpdk": "hugepages: off, memory_mib: 224"}
    counts = {"LIVE": 0, "FIXED": 0, "UNUSED": 0}
    for path, kind, default, least, most, change in knobs(source):
        if path in ELSEWHERE:
            continue
        section, _, name = path.rpartition(".")
        value = another(kind, default, least, most)
        before = dict(a.extra)
        if section == "links":
            a.extra["links"] = {name: value}
        elif section:
            a.extra[section] = "{%s}" % ", ".join(filter(None, [base.get(section, ""), f"{name}: {value}"])) \
                if name not in base.get(section, "") else "{%s: %s}" % (name, value)
        else:
            a.extra[name] = value
        a.write_config()
        said = json.loads(a.ctl("reload", "-j"))
        changed, kept = ({x["knob"]: x for x in said[k]} for k in ("changed", "kept"))
        if change == "LIVE":
            assert said["done"] and path in changed and path not in kept, (path, value, said)
        elif change == "FIXED":
            assert said["done"] and path in kept and path not in changed, (path, value, said)
            assert kept[path]["was"] != kept[path]["is"], said
        else:
            assert said["done"] and path not in {**changed, **kept}, (path, value, said)
            assert any(path in m for m in said["messages"]), (path, said)
        counts[change] += 1
        a.extra = before
        a.write_config()
        said = json.loads(a.ctl("reload", "-j"))
        back = [x["knob"] for x in said["changed"]]
        assert said["done"] and back == ([path] if change == "LIVE" else []), (path, said)
        a.etcdctl("put", "still", path)
        assert value_of(a, "still") == path
    print(f"  {counts}")
    assert counts["LIVE"] >= 30 and counts["FIXED"] >= 25, counts


def peers(nodes):
    print("a peer is taken out on both sides, and comes back")
    both = ",".join(f"http://{n.client}" for n in nodes)
    for n in nodes:
        said = reload(n, initial_advertise_peer_urls=f"http://{n.client}")
        assert "initial_advertise_peer_urls: " in said, said
    for n in nodes:
        wait_until("no peer is online", 10, lambda n=n: online(n) == 0)
        wait_until("no link is up", 10, lambda n=n: links(n) == 0)
        members = json.loads(n.etcdctl("member", "list", "-w", "json").stdout)["members"]
        assert len(members) == 1, members
    nodes[0].etcdctl("put", "apart", "1")
    assert value(nodes[1], "apart") == ""
    for n in nodes:
        reload(n, initial_advertise_peer_urls=both)
    for n in nodes:
        wait_until("the peer is online again", 20, lambda n=n: online(n) == 1)
        wait_until("the link is up again", 20, lambda n=n: links(n) == 1)
    wait_until("what was written apart", 10, lambda: value(nodes[1], "apart") == "1")


def certificate(d, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj",
                    f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, cwd=d, capture_output=True)
    return f"{{cert_file: {d}/{name}.pem, key_file: {d}/{name}.key}}"


def tls():
    print("certificates: other files for new connections, none that is no good, and an open watch stays")
    c = Cluster(sys.argv[1], nodes=1)
    n = c.nodes[0]
    first, second = certificate(c.dir, "first"), certificate(c.dir, "second")
    n.extra["tls"] = first
    n.extra["listen_client_urls"] = f"https://{n.client}"
    plain, client = n.etcdctl, n.client

    def use(name):
        n.etcdctl = lambda *args, **more: plain("--cacert", f"{c.dir}/{name}.pem", *args, **more)

    use("first")
    n.client = f"https://{client}"
    with c:
        wait_until("the node answers", 20, n.ready)
        watch = n.watch("k", "--cacert", f"{c.dir}/first.pem")
        wait_until("the watch", 10, lambda: n.stats("ringpost_etcd_watch_streams")["etcd_watch_streams"])
        n.extra["tls"] = second.replace("second.key", "gone.key")
        n.extra["term"] = 5
        n.write_config()
        said = refused(n, "reload")
        assert "error: tls: " in said and "gone.key" in said, said
        assert "term: 1 #" in n.ctl("config")
        n.etcdctl("put", "k", "by-first")
        watch.wait("by-first")
        assert "second.pem" in reload(n, tls=second)
        use("second")
        n.etcdctl("put", "k", "by-second")
        watch.wait("by-second")


def main():
    need("etcdctl", "openssl")
    tls()
    with Cluster(sys.argv[1], nodes=2) as c:
        c.join()
        a, b = c.nodes
        watch = a.watch("--prefix", "seen/")
        consumer = a.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
        wait_until("the consumer", 10, lambda: "consumers: 1 here" in a.ctl("route", "explain", "jobs"))
        a.etcdctl("put", "/q/jobs/producer/one", "held")
        key = consumer.wait("held")
        simple_values(a, b)
        limits(a)
        broken(a)
        fixed(a)
        every_knob(a, sys.argv[2])
        peers(c.nodes)
        print("the watch and the consumer of the beginning are there, and nothing was dropped")
        b.etcdctl("put", "seen/last", "at-b")
        watch.wait("at-b")
        a.etcdctl("put", "/q/jobs/producer/two", "next")
        consumer.wait("next")
        assert consumer.lines().count("held") == 1, consumer.lines()
        a.etcdctl("del", key)
        for w in (watch, consumer):
            assert w.process.poll() is None, w.lines()
            assert "canceled" not in "\n".join(w.lines()), w.lines()
        assert a.stats("ringpost_queue_redeliveries").get("queue_redeliveries", 0) == 0
    print("every change took effect")


main()
