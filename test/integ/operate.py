#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What operators ask of three real nodes by ringpostctl: tables, and JSON against the schemas in docs/schema.

    operate.py BINARIES SOURCE COMPLETION
"""
import base64
import http.client as http_client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import uuid

from cluster import Cluster, need, skip, wait_until

SCHEMAS = pathlib.Path(sys.argv[2]) / "docs" / "schema"
MANY = 1800  # queues on three shards: more than a page of 512 on some


def node_id(node):
    bits = uuid.UUID(node.uuid).int
    return str(bits >> 64 ^ bits & (1 << 64) - 1)


def ask(node, *words):
    """JSON of a command, found to follow its schema."""
    command = [w for w in words if not w.startswith("-")]
    name = "route_explain" if command[0] == "route" else command[0]
    value = json.loads(node.ctl(*words, "-j"))
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(value)
    assert value["kind"] == f"ringpost.{name}" and value["node"] == node_id(node), value
    assert value["version"] == 1, value
    return value


def refused(node, status, text, *words):
    r = subprocess.run([os.path.join(node.cluster.bin, "ringpostctl", "ringpostctl"),
                        "--endpoint", f"unix:{node.admin}", *words],
                       capture_output=True, text=True, timeout=30, check=False)
    assert r.returncode == status and text in r.stderr, (words, r)


def work(a, b, c):
    """A queue dispatched at B, which hosts one consumer; another at C; A forwards."""
    consumers = [uuid.uuid4(), uuid.uuid4()]
    b.etcdctl("put", f"/q/jobs/consumer/{consumers[0]}", ";prefetch=2")
    c.etcdctl("put", f"/q/jobs/consumer/{consumers[1]}", ";prefetch=3;match=job")
    watches = [b.watch(f"/q/jobs/consumer/{consumers[0]}")]
    wait_until("A knows the dispatcher", 10,
               lambda: a.etcdctl("get", "--print-value-only", "/q/jobs").stdout.strip())
    watches.append(c.watch(f"/q/jobs/consumer/{consumers[1]}"))
    wait_until("B knows C's consumer", 10, lambda: any(
        x["uuid"] == str(consumers[1]) and x["node"] == node_id(c)
        for x in ask(b, "consumers", "jobs")["consumers"]))
    for i in range(8):
        a.etcdctl("put", f"/q/jobs/producer/job-{i}", f"hello {i}")
    wait_until("five are held", 10, lambda: ask(b, "queues", "jobs", "-x")["queues"][0]
               ["in_flight"] == 5)
    return consumers, watches


def show_status(a, b, c):
    one = ask(b, "status")
    assert one["name"] == "n1" and one["state"] == "ready" and one["node_version"], one
    assert one["peers"] == one["peers_online"] == one["links_up"] == 2, one
    assert one["messages"] == 8 and one["dispatched"] == 1 and one["consumers"] == 1, one
    assert one["holds"] == 2 and one["keys"] > 0 and one["uptime_ns"] > 0, one
    assert 0 < one["buffers_free"] < one["buffers"], one
    assert ask(a, "status")["dispatched"] == ask(c, "status")["dispatched"] == 0
    text = b.ctl("status")
    assert "ready" in text and "1 dispatched here" in text, text
    print("  " + text.replace("\n", "\n  "))


def show_nodes(a, b, c):
    rows = ask(a, "nodes")["nodes"]
    assert [n["node"] for n in rows if n["self"]] == [node_id(a)], rows
    assert {n["node"] for n in rows} == {node_id(n) for n in (a, b, c)}, rows
    assert all(n["state"] == "online" and n["version"] for n in rows), rows
    others = [n for n in rows if not n["self"]]
    assert all(n["connected"] and n["link_up"] and n["synced_ago_ns"] > 0 for n in others), rows
    links = ask(a, "links")["links"]
    assert {x["node"] for x in links} == {node_id(b), node_id(c)}, links
    assert all(x["state"] == "up" and x["unary"] and x["rtt_ns"] > 0 for x in links), links
    assert {x["name"] for x in links} == {"n1", "n2"}, links
    print("  " + a.ctl("nodes").replace("\n", "\n  ") + a.ctl("links").replace("\n", "\n  "))


def show_queues(a, b, c, consumers):
    here, = ask(b, "queues", "jobs")["queues"]
    assert here["here"] and here["messages"] == 8 and here["waiting"] == 3, here
    assert here["in_flight"] == 5 and here["indexed"] == 8 and here["acks"] == 0, here
    assert (here["consumers_local"], here["consumers_remote"]) == (1, 1), here
    assert here["waiting_oldest_ns"] > 0 and here["in_flight_oldest_ns"] > 0, here
    there, = ask(a, "queues", "jo")["queues"]
    assert not there["here"] and there["dispatcher"] == node_id(b), there
    assert ask(a, "queues", "jo", "--exact")["queues"] == ask(a, "queues", "nobody")["queues"] == []
    rows = {x["uuid"]: x for x in ask(b, "consumers")["consumers"]}
    one, other = rows[str(consumers[0])], rows[str(consumers[1])]
    assert one["here"] and one["node"] == node_id(b) and one["state"] == "full", one
    assert one["outstanding"] == one["holds"] == one["prefetch"] == 2, one
    assert not other["here"] and other["node"] == node_id(c) and other["outstanding"] == 3, other
    assert other["match"] == "job" and other["state"] == "full", other
    rows = {x["uuid"]: x for x in ask(c, "consumers", "jobs")["consumers"]}
    assert rows[str(consumers[1])]["holds"] == 3 and rows[str(consumers[1])]["state"] == "open", rows
    assert "full" in b.ctl("consumers") and "this node" in b.ctl("queues")


def show_streams(a, b, c):
    out, = ask(a, "streams")["streams"]
    assert (out["direction"], out["kind"], out["queue"]) == ("out", "forward", "jobs"), out
    assert out["node"] == node_id(b) and out["answered"] == 8 and out["state"] == "open", out
    rows = {(x["direction"], x["kind"], x["node"]) for x in ask(b, "streams", "jobs")["streams"]}
    assert rows == {("in", "forward", node_id(a)), ("out", "deliver", node_id(c))}, rows
    link, = [x for x in ask(b, "links")["links"] if x["node"] == node_id(c)]
    assert (link["streams_out"], link["streams_in"], link["unary_queues"]) == (1, 0, 0), link
    print("  " + b.ctl("streams").replace("\n", "\n  "))


def explain(a, b, c):
    a.etcdctl("put", "/q/jobs", ";reply_to=answers")
    w = a.watch(f"/q/answers/consumer/{uuid.uuid4()}")
    wait_until("B knows where replies go", 10, lambda: ask(
        b, "route", "explain", "jobs")["reply_dispatcher"] == node_id(a))
    r = ask(a, "route", "explain", "jobs")
    assert r["dispatcher"] == node_id(b) and r["dispatcher_name"] == "n1", r
    assert r["state"] == "online" and not r["dispatching_here"] and r["reply_to"] == "answers", r
    places = {p["node"]: p for p in r["places"]}
    near, far = places[node_id(b)], places[node_id(c)]
    assert [(h["step"], h["way"], h["rpcs"]) for h in near["hops"]] == [
        ("put", "local", 0), ("forward", "stream", 1), ("deliver", "local", 0)], near
    assert [(h["step"], h["to"], h["rpcs"]) for h in far["hops"]] == [
        ("put", node_id(a), 0), ("forward", node_id(b), 1), ("deliver", node_id(c), 1)], far
    assert (near["cost_put"], near["cost_ack"], near["cost_round_trip"]) == (1, 0, 2), near
    assert (far["cost_put"], far["cost_ack"], far["cost_round_trip"]) == (2, 1, 3), far
    assert r["cost_put"] == 1 and r["cost_ack"] == 1, r
    nobody = ask(a, "route", "explain", "nobody")
    assert nobody["dispatcher"] == "0" and nobody["state"] == "unknown" and not nobody["places"]
    print("  " + a.ctl("route", "explain", "jobs").replace("\n", "\n  "))
    w.stop()


def many_queues(a, c):
    """More than one page, each queue once."""
    http = http_client.HTTPConnection("127.0.0.1", a.port, timeout=20)
    for i in range(MANY):
        body = {"key": base64.b64encode(b"/q/many-%d/p/x" % i).decode(), "value": "eA=="}
        http.request("POST", "/v3/kv/put", json.dumps(body))
        answer = http.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    names = [q["name"] for q in ask(a, "queues", "many-")["queues"] if q["here"]]
    assert len(names) == MANY and set(names) == {f"many-{i}" for i in range(MANY)}, len(names)
    one, = ask(a, "queues", "many-1799", "-x")["queues"]
    assert one["messages"] == one["waiting"] == 1, one
    lines = a.ctl("queues").splitlines()
    assert len(lines) == MANY + 3, lines[:5]  # a head, jobs and answers
    r = ask(c, "route", "explain", "many-1799")
    assert r["dispatcher"] == node_id(a) and r["cost_put"] == 1, r


def log_levels(a):
    def levels():
        return {x["subject"]: x["level"] for x in ask(a, "log")["levels"]}

    before = levels()
    assert set(before.values()) == {"info"} and "tcp" in before, before
    got = {x["subject"]: x["level"] for x in ask(a, "log", "link=debug", "repl=trace")["levels"]}
    assert got == dict(before, link="debug", repl="trace") == levels(), got
    ask(a, "log", "error")
    assert set(levels().values()) == {"error"}
    refused(a, 1, "is no level", "log", "tcp=info", "tcp=loud")
    assert set(levels().values()) == {"error"}, "half of a refused change was made"
    ask(a, "log", "--reset", "port=debug")
    assert levels() == dict(before, port="debug")
    assert ask(a, "reload")["done"] and levels() == before, "a reload sets what is configured"
    assert "log levels: port=debug" in a.log_text()


def complete(completion, *words):
    """What bash offers for the last of the words."""
    script = (f"source {completion}; COMP_WORDS=(ringpostctl {' '.join(repr(w) for w in words)}); "
              f"COMP_CWORD={len(words)}; _ringpostctl; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    r = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert not r.stderr, r.stderr
    return r.stdout.split()


def completion(node, path):
    usage = node.ctl("--help")
    commands = [line[2:].split("  ")[0] for line in usage.splitlines()
                if line.startswith("  ") and line[2] != " "]
    assert len(commands) > 12, usage
    first = complete(path, "")
    for c in commands:
        words = [w for w in c.split() if w[0].islower()]
        assert words[0] in first, (c, first)
        assert complete(path, words[0][:3])[0].startswith(words[0][:3])
        if len(words) > 1:
            assert words[1] in complete(path, words[0], ""), c
        offered = complete(path, *words, "-")
        help_text = node.ctl(*words, "--help")
        for line in help_text.splitlines():
            if line.startswith("      -"):
                for o in line[6:].split("  ")[0].split(","):
                    assert o.split()[0] in offered, (c, line, offered)
    assert set(complete(path, "show", "")) == {"tcp", "neighbours", "drops"}
    assert "tcp=" in complete(path, "log", "t") and "debug" in complete(path, "log", "d")
    assert complete(path, "log", "tcp", "=", "de") == ["debug"]
    assert complete(path, "--endpoint", "localhost", ":", "1", "rel") == ["reload"]
    assert complete(path, "route", "explain", "x") == []


WRONG = {
    ("queues", "a", "b"): 'unexpected argument "b"',
    ("queues", "-x"): "of which queue?",
    ("status", "x"): 'unexpected argument "x"',
    ("nodes", "-l"): "-l: no such option of this command",
    ("nodes", "--json=yes"): "--json: takes no value",
    ("route", "explain"): "an argument is missing",
    ("route", "explain", ""): "an argument is missing",
    ("log", "--nope"): "--nope: no such option of this command",
    ("show", "tcp", "--conn"): "--conn: a value is missing",
    ("drain", "--seconds"): "--seconds: a value is missing",
    ("drain", "--seconds", "soon"): '"soon" is no number of seconds',
    ("trace",): "an argument is missing",
    ("trace", "q", "--count", "99"): "64 at most",
    ("top", "-n", "none"): '"none" is no number',
    ("queue", "show", "q", "-d", "soon"): '--delay: "soon" is no number of seconds',
    ("drain", "now"): 'unexpected argument "now"',
    ("impair", "x"): '"x" is no port',
    ("impair",): "PORT is missing",
    ("restore",): "an argument is missing",
    ("capture", "--packets", "few"): '"few" is no number that fits',
}


def bare(cluster, *words, **more):
    """Without an endpoint of ours."""
    return subprocess.run([os.path.join(cluster.bin, "ringpostctl", "ringpostctl"), *words],
                          capture_output=True, text=True, timeout=30, check=False, **more)


def usage(a):
    """What is wrong is said first, then how that command is used."""
    for words, text in WRONG.items():
        refused(a, 2, text, *words)
        refused(a, 2, "usage:", *words)
    refused(a, 1, "longer than 255", "queues", "q" * 256)
    for words, text in {("statsu",): 'no command "statsu", perhaps "stats"', ("stat",): 'perhaps "stat',
                        ("show", "tpc"): 'no command "show tpc", perhaps "show tcp"', ("route",): '"route explain"',
                        ("xyzzyx",): 'no command "xyzzyx"; usage'}.items():
        r = bare(a.cluster, *words)
        assert r.returncode == 2 and text in r.stderr and len(r.stderr.splitlines()) == 1, r
    r = bare(a.cluster, "-j", "status")
    assert r.returncode == 2 and "behind it" in r.stderr, r
    assert bare(a.cluster).returncode == 2 and "usage:" in bare(a.cluster).stderr
    for words in (["--help"], ["help"], ["help", "links"], ["links", "-h"], ["show", "tcp", "-l", "--help"]):
        r = bare(a.cluster, *words)
        assert r.returncode == 0 and "usage:" in r.stdout and not r.stderr, r


def endpoints(a):
    """Where the node is said to be: anywhere on the line, as a URL, and where none is."""
    address = f"127.0.0.1:{a.port}"
    for words in (["--endpoint", address, "status"], ["status", "--endpoint", address],
                  ["status", f"--endpoint=http://{address}", "-j"]):
        r = bare(a.cluster, *words)
        assert r.returncode == 0 and "n0" in r.stdout, r
    for endpoint, status, text in (
            ("127.0.0.1:1", 1, "cannot reach the node at 127.0.0.1:1: Connection refused"),
            ("unix:/nowhere", 1, "cannot reach the node at unix:/nowhere: No such file"),
            (f"https://{address}", 2, "ask by the node's admin_socket"),
            ("nowhere:port", 2, "is no address")):
        r = bare(a.cluster, "--endpoint", endpoint, "status")
        assert r.returncode == status and text in r.stderr and not r.stdout, r
    r = bare(a.cluster, "status", "--endpoint")
    assert r.returncode == 2 and "--endpoint: a value is missing" in r.stderr, r
    with open("/dev/full", "w", encoding="utf-8") as full:
        r = subprocess.run([os.path.join(a.cluster.bin, "ringpostctl", "ringpostctl"), "--endpoint", address, "config"],
                           stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert r.returncode == 1 and "No space left" in r.stderr, r


def stats(a):
    """One by one, summed, and as JSON, for which the labels are members."""
    rows = {(m["name"], m["labels"].get("shard")): m for m in ask(a, "stats", "ringpost_link_")["metrics"]}
    assert all(name.startswith("ringpost_link_") for name, _ in rows) and len(rows) > 20, rows
    up = ask(a, "stats", "ringpost_link_bundles_up")["metrics"]
    assert sum(m["value"] for m in up) == 2 and {m["labels"]["shard"] for m in up} == {"1"}, up
    one, = ask(a, "stats", "--sum", "ringpost_link_bundles_up")["metrics"]
    assert one["value"] == 2 and one["labels"] == {} and one["help"], one
    assert a.ctl("stats", "ringpost_link_bundles_up", "--sum") == "ringpost_link_bundles_up 2\n"
    reasons = {m["labels"]["reason"] for m in ask(a, "stats", "ringpost_link_downs")["metrics"]}
    assert "no heartbeat within links.dead_after_ms" in reasons, reasons
    queue = [m for m in ask(a, "stats", "ringpost_queue_depth")["metrics"] if m["labels"]["queue"] == "many-7"]
    assert len(queue) == 1 and queue[0]["value"] == 1, queue
    # Kernel sockets have counters of their own.
    assert a.stats("ringpost_ktcp_")["ktcp_accepts"] + a.stats("ringpost_ktcp_")["ktcp_dials"] >= 2


def jq(a):
    """What a script of an operator would do."""
    r = subprocess.run(["jq", "-e", "-r", ".links[] | [.name, .state, (.bundle_links | length)] | @tsv"],
                       input=a.ctl("links", "-j"), capture_output=True, text=True, check=False)
    assert r.returncode == 0 and sorted(r.stdout.splitlines()) == ["n1\tup\t1", "n2\tup\t1"], r


def tools(a):
    a.ctl("drain", "--seconds", "0")
    assert a.ctl("undrain") == "ready: it takes queues and consumers again\n"
    if shutil.which("jq"):
        jq(a)


def main():
    need("etcdctl", "bash")
    with Cluster(sys.argv[1], nodes=3, config={
            "shards": '{idle: adaptive, cpus: "0,1,0"}'}) as cluster:
        cluster.join()
        a, b, c = cluster.nodes
        consumers, watches = work(a, b, c)
        show_status(a, b, c)
        show_nodes(a, b, c)
        show_queues(a, b, c, consumers)
        show_streams(a, b, c)
        explain(a, b, c)
        many_queues(a, c)
        log_levels(a)
        usage(a)
        endpoints(a)
        stats(a)
        completion(a, sys.argv[3])
        for w in watches:
            w.stop()
        tools(a)
    print("what is told holds")


if __name__ == "__main__":
    try:
        import jsonschema
    except ImportError:
        skip("python3-jsonschema is not installed")
    main()
