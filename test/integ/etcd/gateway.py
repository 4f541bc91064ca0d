#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The JSON gateway of a ringpostd, and of a real etcd where there is one: the same requests, the
same answers, but for the ids in headers and what docs/etcd-compat.md lists.

    gateway.py BINARIES
"""
import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid

from gateway_server import WAIT_S, Server, free_port, ringpost

BINARIES = os.path.abspath(sys.argv[1])
failures = 0
# What dashboards of etcd ask for; the two of a disk's time are not there: nothing is written.
METRICS = """etcd_server_has_leader etcd_server_is_leader etcd_server_leader_changes_seen_total
    etcd_server_proposals_committed_total etcd_server_proposals_applied_total etcd_server_proposals_pending
    etcd_server_proposals_failed_total etcd_server_version etcd_server_id etcd_server_quota_backend_bytes
    etcd_mvcc_db_total_size_in_bytes etcd_mvcc_db_total_size_in_use_in_bytes etcd_mvcc_put_total etcd_mvcc_delete_total
    etcd_mvcc_range_total etcd_mvcc_txn_total etcd_debugging_mvcc_keys_total etcd_debugging_mvcc_current_revision
    etcd_debugging_mvcc_compact_revision etcd_debugging_mvcc_watcher_total etcd_debugging_mvcc_watch_stream_total
    etcd_debugging_mvcc_slow_watcher_total etcd_debugging_mvcc_events_total etcd_debugging_mvcc_pending_events_total
    etcd_network_client_grpc_received_bytes_total etcd_network_client_grpc_sent_bytes_total
    etcd_debugging_lease_granted_total etcd_debugging_lease_revoked_total etcd_debugging_lease_renewed_total
    etcd_debugging_server_lease_expired_total etcd_server_client_requests_total grpc_server_started_total
    grpc_server_handled_total grpc_server_msg_received_total grpc_server_msg_sent_total process_resident_memory_bytes
    process_cpu_seconds_total process_open_fds process_max_fds process_start_time_seconds""".split()


def check(what, good, detail=""):
    global failures
    if not good:
        failures += 1
        print(f"FAIL {what} {detail}")


def b64(text):
    return base64.b64encode(text.encode()).decode()


def etcd():
    if not shutil.which("etcd"):
        return None
    port, peer = free_port(), free_port()
    return Server("etcd", lambda d: [
        "etcd", "--data-dir", os.path.join(d, "data"), "--listen-client-urls",
        f"http://127.0.0.1:{port}", "--advertise-client-urls", f"http://127.0.0.1:{port}",
        "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls",
        f"http://127.0.0.1:{peer}", "--initial-cluster", f"default=http://127.0.0.1:{peer}"], port)


# Path below /v3/, body. In order: what is asked later sees what was written before.
TABLE = [
    ("kv/put", {"key": b64("a"), "value": b64("1")}),
    ("kv/put", {"key": b64("a"), "value": b64("2"), "prev_kv": True}),
    ("kv/put", {"key": b64("a"), "value": b64("3"), "prevKv": True}),
    ("kv/put", {"key": b64("b")}),
    ("kv/put", {"key": b64("c"), "value": b64("x" * 1000)}),
    ("kv/range", {"key": b64("a")}),
    ("kv/range", {"key": b64("a"), "range_end": b64("z")}),
    ("kv/range", {"key": b64("a"), "rangeEnd": b64("z"), "limit": 1}),
    ("kv/range", {"key": b64("a"), "range_end": b64("z"), "limit": "2"}),
    ("kv/range", {"key": b64("a"), "range_end": b64("z"), "count_only": True}),
    ("kv/range", {"key": b64("a"), "range_end": b64("z"), "keys_only": True}),
    ("kv/range", {"key": b64("a"), "range_end": b64("z"), "sort_order": "DESCEND",
                  "sort_target": "VALUE"}),
    ("kv/range", {"key": b64("a"), "range_end": b64("z"), "sort_order": 2, "sort_target": 3}),
    ("kv/range", {"key": b64("a"), "range_end": b64("z"), "min_mod_revision": "4"}),
    ("kv/range", {"key": b64("a"), "revision": "2"}),
    ("kv/range", {"key": b64("a"), "revision": "1000"}),
    ("kv/range", {"key": b64("none")}),
    ("kv/range", {}),
    ("kv/range", ""),
    ("kv/range", {"key": None}),
    ("kv/range", {"key": b64("a"), "unknown": {"x": [1, 2]}}),
    ("kv/range", "null"),
    ("kv/range", '{"key": "Y\\nQ=\\r\\n=\\n"}'),
    ("kv/range", '{"key": "Y Q=="}'),
    ("lease/keepalive", ""),
    ("lease/keepalive", '{"ID": "1"}'),
    ("kv/range", "[]"),
    ("kv/range", "{"),
    ("kv/range", '{"key": "YQ=="} trailing'),
    ("kv/range", '{"key": 1}'),
    ("kv/range", '{"key": "*"}'),
    ("kv/range", '{"key": "YQ==", "limit": "x"}'),
    ("kv/range", '{"key": "YQ==", "limit": true}'),
    ("kv/range", '{"key": "YQ==", "limit": 99999999999999999999}'),
    ("kv/range", '{"key": "YQ==", "sort_order": "SIDEWAYS"}'),
    ("kv/range", '{"key": "YQ==", "serializable": "yes"}'),
    ("kv/put", {"value": b64("1")}),
    ("kv/put", {"key": b64("a"), "lease": "12345"}),
    ("kv/put", {"key": b64("new"), "ignore_value": True}),
    ("kv/txn", {}),
    ("kv/txn", {"compare": [{"key": b64("a"), "target": "CREATE", "create_revision": "2"}],
                "success": [{"request_put": {"key": b64("t"), "value": b64("1")}},
                            {"request_range": {"key": b64("t")}},
                            {"request_delete_range": {"key": b64("b"), "prev_kv": True}}]}),
    ("kv/txn", {"compare": [{"key": b64("a"), "result": "GREATER", "target": "VERSION",
                             "version": "100"}],
                "failure": [{"requestRange": {"key": b64("a")}}]}),
    ("kv/txn", {"compare": [{"key": b64("none"), "target": "VERSION", "version": 0}],
                "success": [{"request_txn": {"success": [
                    {"request_put": {"key": b64("n"), "value": b64("1")}}]}}]}),
    ("kv/txn", {"success": [{"request_put": {"key": b64("d")}},
                            {"request_put": {"key": b64("d")}}]}),
    ("kv/txn", {"success": [{}]}),
    ("kv/txn", {"success": {}}),
    ("kv/deleterange", {"key": b64("c")}),
    ("kv/deleterange", {"key": b64("c")}),
    ("kv/deleterange", {"key": b64("a"), "range_end": b64("b"), "prev_kv": True}),
    ("kv/compaction", {"revision": "3"}),
    ("kv/compaction", {"revision": "3"}),
    ("kv/compaction", {"revision": "300"}),
    ("kv/range", {"key": b64("a"), "revision": "2"}),
    ("nothing/here", {}),
    ("kv", {}),
]


def masked(value):
    """Without the ids that each server has of its own."""
    if isinstance(value, dict):
        own = {"cluster_id", "member_id", "raft_term"}
        # The text of an error in JSON is each parser's own.
        if "error" in value and "code" in value and "etcdserver: " not in str(value["error"]):
            return {"code": value["code"]}
        return {k: masked(v) for k, v in value.items() if k not in own and k != "details"}
    if isinstance(value, list):
        return [masked(v) for v in value]
    return value


def revision(server):
    return int(server.post("/v3/kv/range", {"key": b64("a")})[1]["header"]["revision"])


def compare(ours, theirs):
    # What a node writes about itself takes revisions too.
    while theirs and revision(theirs) < revision(ours):
        theirs.post("/v3/kv/put", {"key": b64("\x01")})
    for i, (path, body) in enumerate(TABLE):
        got = ours.post("/v3/" + path, body)
        check(f"{i} {path} is an answer", got[0] in (200, 400, 404), got)
        if not theirs:
            continue
        want = theirs.post("/v3/" + path, body)
        good = got[0] == want[0] and masked(got[1]) == masked(want[1])
        check(f"{i} {path} {str(body)[:200]}", good,
              f"\n  got  {str(got)[:1000]}\n  want {str(want)[:1000]}")


def plain(server):
    """What is not the gateway's, and how HTTP itself is kept."""
    status, data, r = server.ask("GET", "/version")
    check("/version", status == 200 and "etcdserver" in json.loads(data), data)
    status, data, r = server.ask("GET", "/health")
    check("/health", status == 200 and json.loads(data)["health"] == "true", data)
    for path in ("/livez", "/readyz"):
        status, data, r = server.ask("GET", path)
        check(path, (status, data) == (200, b"ok\n"), (status, data))
        status, data, r = server.ask("GET", path + "?verbose")
        check(path + "?verbose", status == 200 and b"[+]serializable_read ok\n" in data, data)
    status, data, r = server.ask("GET", "/metrics")
    check("/metrics", status == 200 and b"process_resident_memory_bytes" in data, status)
    server.post("/v3/kv/range", {})
    server.post("/v3/kv/range", {"key": b64("x")})
    data = server.ask("GET", "/metrics")[1].decode()
    of = 'grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"'
    for line in (f"grpc_server_started_total{{{of}}} ", f"grpc_server_msg_received_total{{{of}}} ",
                 f'grpc_server_handled_total{{grpc_code="OK",{of}}} ',
                 f'grpc_server_handled_total{{grpc_code="InvalidArgument",{of}}} '):
        check(line, "\n" + line in data)
    metrics(server)
    status, _, r = server.ask("GET", "/v3/kv/range")
    check("GET of a method", status == 405, status)
    status, _, r = server.ask("OPTIONS", "/v3/kv/range", headers={"Origin": "http://x"})
    check("OPTIONS", status == 200, status)
    status, _, r = server.ask("POST", "/v3/kv/range", b'{"key":"YQ=="}')
    check("CORS", r.getheader("Access-Control-Allow-Origin") == "*", r.getheaders())
    check("type", r.getheader("Content-Type") == "application/json", r.getheaders())
    status, data, _ = server.ask("POST", "/v3beta/kv/range", b'{"key":"YQ=="}')
    check("/v3beta", status == 200 and "header" in json.loads(data), data)
    # A body in chunks, on a connection that is used again.
    c = server.connect()
    for _ in range(3):
        status, data, _ = server.ask("POST", "/v3/kv/range", iter([b'{"key":', b'"YQ=="}']),
                                     {"Transfer-Encoding": "chunked"}, c)
        check("chunked, kept alive", status == 200 and "header" in json.loads(data), data)
    c.close()


def metrics(server):
    """Prometheus' own text by default, as etcd; OpenMetrics for who asks for that."""
    _, data, r = server.ask("GET", "/metrics")
    types = dict(l.split()[2:4] for l in data.decode().splitlines() if l.startswith("# TYPE "))
    samples = {l.split("{")[0].split()[0]: l.split()[-1] for l in data.decode().splitlines() if l[:1] not in ("", "#")}
    check("type of /metrics", r.getheader("Content-Type").startswith("text/plain; version=0.0.4"), r.getheaders())
    check("no end of OpenMetrics", b"# EOF" not in data)
    families = {next((n[:-len(x)] for x in ("_bucket", "_sum", "_count") if n.endswith(x)
                      and types.get(n[:-len(x)]) == "histogram"), n) for n in samples}
    check("each sample has a type", families == set(types), families ^ set(types))
    for name in METRICS:
        check(name, name in samples)
    check("CPU time in fractions", "." in samples["process_cpu_seconds_total"], samples["process_cpu_seconds_total"])
    _, data, r = server.ask("GET", "/metrics", headers={
        "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"})
    check("OpenMetrics", r.getheader("Content-Type").startswith("application/openmetrics-text") and
          data.endswith(b"# EOF\n") and b"# TYPE process_cpu_seconds counter\n" in data
          and b"\nprocess_cpu_seconds_total " in data, data[-2000:])


def pipelined(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as s:
        body = b'{"key":"YQ=="}'
        one = b"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        s.sendall(one * 5 + b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        data = b""
        while True:
            got = s.recv(65536)
            if not got:
                break
            data += got
    check("pipelined", data.count(b"HTTP/1.1 200 OK") == 6, data)


def stream(server, path, body, lines):
    """The first lines of an endless answer."""
    c = server.connect()
    c.request("POST", path, body=json.dumps(body))
    r = c.getresponse()
    out = []
    for _ in range(lines):
        out.append(json.loads(r.readline()))
    return c, r, out


def watch(server):
    key = b64("w")
    c, r, out = stream(server, "/v3/watch", {"create_request": {"key": key, "prev_kv": True}}, 1)
    check("watch is created", out[0]["result"].get("created") is True, out)
    server.post("/v3/kv/put", {"key": key, "value": b64("1")})
    server.post("/v3/kv/put", {"key": key, "value": b64("2")})
    server.post("/v3/kv/deleterange", {"key": key})
    events = []
    while len(events) < 3:
        events += json.loads(r.readline())["result"].get("events", [])
    c.close()
    check("watch: put", "type" not in events[0] and events[0]["kv"]["value"] == b64("1"), events)
    check("watch: prev_kv", events[1]["prev_kv"]["value"] == b64("1"), events)
    check("watch: delete", events[2]["type"] == "DELETE" and "value" not in events[2]["kv"], events)
    # Two creates in one body, one of them refused.
    c = server.connect()
    c.request("POST", "/v3/watch", body='{"create_request":{"key":"YQ==","watch_id":"7"}}\n'
              '{"createRequest":{"key":"YQ==","watch_id":"7"}}')
    r = c.getresponse()
    one, two = json.loads(r.readline())["result"], json.loads(r.readline())["result"]
    check("two watches", one["watch_id"] == "7" and two["canceled"] is True, (one, two))
    c.close()


def newer(server):
    """What etcd 3.5 and 3.6 answer, and 3.4 does not."""
    status, data = server.post("/v3/kv/range", {"key": "YQ"})
    check("base64 without padding", status == 200, (status, data))
    status, data = server.post("/v3/kv/range", {"key": "_-8="})
    check("base64 for URLs", status == 200, (status, data))
    status, data = server.post("/v3/watch", "{")
    check("watch of bad JSON", status == 400 and data["error"]["grpc_code"] == 3, (status, data))
    for body in ({}, {"action": "GET", "alarm": "NOSPACE"}):
        status, data = server.post("/v3/maintenance/alarm", body)
        check("alarm", status == 200 and list(data) == ["header"], (status, data))


def many_watches(server):
    """Clients that leave take their watches with them."""
    def watchers():
        text = server.ask("GET", "/metrics")[1].decode()
        for line in text.splitlines():
            if line.startswith("ringpost_kv_watchers"):
                return int(float(line.split()[-1]))
        return -1

    before = watchers()
    open_ones = [stream(server, "/v3/watch", {"create_request": {"key": b64(f"m{i}")}}, 1)[0]
                 for i in range(20)]
    check("watchers", watchers() == before + 20, (before, watchers()))
    for c in open_ones:
        c.close()
    end = time.monotonic() + WAIT_S
    while watchers() != before and time.monotonic() < end:
        time.sleep(0.05)
    check("watchers are gone with their clients", watchers() == before, watchers())


def bounds(server):
    status, data = server.post("/v3/kv/put", {"key": b64("big"), "value": b64("x" * 1572865)})
    check("too large a value", status == 400 and "too large" in str(data), (status, str(data)[:200]))
    status, data, _ = server.ask("POST", "/v3/kv/put", b"{" + b" " * (5 << 20))
    check("too large a body", status == 413, status)
    deep = '{"success":[{"request_txn":' * 1000 + "{}" + "}]}" * 1000
    status, data = server.post("/v3/kv/txn", deep)
    check("too deep", status == 400, (status, str(data)[:200]))
    status, data = server.post("/v3/kv/txn", "[" * 100000)
    check("far too deep", status == 400, (status, str(data)[:200]))


def nodes_records(server):
    """What nodes say of themselves is read by who asks for just that; otherwise it is not there."""
    everything, own = {"key": b64("\0"), "range_end": b64("\0")}, {"key": b64("/_ringpost/"), "range_end": b64("/_ringpost0")}
    before = server.post("/v3/kv/range", own)[1]
    check("a node's record", before["count"] == "1" and len(before["kvs"]) == 1, before)
    one = server.post("/v3/kv/range", {"key": before["kvs"][0]["key"]})[1]
    check("the record alone", one["kvs"] == before["kvs"], one)
    server.post("/v3/kv/put", {"key": b64("!")})
    server.post("/v3/kv/put", {"key": b64("~")})
    clients = server.post("/v3/kv/range", everything)[1]
    check("not among all keys", before["kvs"][0]["key"] not in [kv["key"] for kv in clients["kvs"]] and
          clients["count"] == str(len(clients["kvs"])), clients)
    deleted = server.post("/v3/kv/deleterange", everything)[1]
    check("deleted", deleted["deleted"] == clients["count"], (deleted, clients))
    check("no key is left", "kvs" not in server.post("/v3/kv/range", everything)[1])
    check("the record stays", server.post("/v3/kv/range", own)[1]["kvs"] == before["kvs"], before)
    for key, end in (("/_ringpost/", "/_ringpost0"), ("/_ringpost/node/", "~")):
        status, _ = server.post("/v3/kv/deleterange", {"key": b64(key), "range_end": b64(end)})
        check(f"{key} is the nodes'", status == 403, status)
    status, _ = server.post("/v3/kv/put", {"key": b64("/_ringpost/mine")})
    check("no client's key there", status == 403, status)


def at_once(server):
    """On a node where nothing else happens a watch of the past begins now, not with a timer."""
    key = b64("past")
    for i in range(3):
        server.post("/v3/kv/put", {"key": key, "value": b64(str(i))})
    took = []
    for _ in range(5):
        time.sleep(0.2)
        begin = time.monotonic()
        c, r, _ = stream(server, "/v3/watch", {"create_request": {"key": key, "start_revision": 1}},
                         2)
        took.append(time.monotonic() - begin)
        c.close()
    check("the past at once", sorted(took)[2] < 0.2, took)


def consumer(server):
    """A queue by HTTP alone: deliveries come in lines, a delete acknowledges."""
    name = f"/q/jobs/consumer/{uuid.uuid4()}"
    c, r, out = stream(server, "/v3/watch", {"create_request": {"key": b64(name)}}, 1)
    check("consumer", out[0]["result"].get("created") is True, out)
    for i in range(50):
        status, data = server.post("/v3/kv/put", {"key": b64(f"/q/jobs/producer/{i}"),
                                                  "value": b64(f"message {i}")})
        check("put", status == 200, data)
    got = []
    while len(got) < 50:
        for e in json.loads(r.readline())["result"].get("events", []):
            got.append(base64.b64decode(e["kv"]["value"]).decode())
            status, data = server.post("/v3/kv/deleterange", {"key": e["kv"]["key"]})
            check("acknowledge", data.get("deleted") == "1", data)
    check("each message once", sorted(got) == sorted(f"message {i}" for i in range(50)), got)
    c.close()


def slow_reader(server):
    """A client that does not read holds neither others nor memory, and gets all in the end."""
    key, size, count = b64("slow"), 200000, 100
    value = "s" * size
    body = json.dumps({"create_request": {"key": key}}).encode()
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    s.settimeout(WAIT_S)
    s.connect(("127.0.0.1", server.port))
    s.sendall(b"POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    r = http.client.HTTPResponse(s)
    r.begin()
    check("created", json.loads(r.readline())["result"].get("created") is True)
    before = resident(server)
    for i in range(count):
        server.post("/v3/kv/put", {"key": key, "value": b64(f"{i:06}" + value)})
    # The store holds the history itself; what was queued for the client would come on top.
    grown = resident(server) - before
    check("memory", grown < count * size * 1.6, grown)
    seen, begin = 0, time.monotonic()
    while seen < count:
        for e in json.loads(r.readline())["result"].get("events", []):
            number = int(base64.b64decode(e["kv"]["value"])[:6])
            check("in order", number == seen, (number, seen))
            seen += 1
    took = time.monotonic() - begin
    check("catching up", took < 15, took)
    s.close()


def resident(server):
    for line in server.ask("GET", "/metrics")[1].decode().splitlines():
        if line.startswith("process_resident_memory_bytes"):
            return int(line.split()[1])
    return 0


def turns():
    """Calls over the limit wait for others to end, each in its turn."""
    server = ringpost(BINARIES, "--limits-streams-per-connection", "3")
    try:
        watches = [stream(server, "/v3/watch", {"create_request": {"key": b64("a")}}, 1)[0]
                   for _ in range(3)]
        waiting = [server.connect() for _ in range(200)]
        for c in waiting:
            c.request("POST", "/v3/kv/range", body=json.dumps({"key": b64("a")}))
        gone = server.connect()
        gone.request("POST", "/v3/kv/range", body=json.dumps({"key": b64("a")}))
        gone.close()
        waiting[0].sock.settimeout(1)
        try:
            waiting[0].getresponse()
            check("a call waits", False)
        except TimeoutError:
            waiting[0].close()
        # What is not the gateway's waits for nobody.
        check("health", server.ask("GET", "/health")[0] == 200)
        watches[0].close()
        for c in waiting[1:]:
            check("its turn", c.getresponse().status == 200)
            c.close()
        for c in watches[1:]:
            c.close()
    finally:
        check("ringpostd with a limit ends well", server.stop() == 0)


def grpc_over_http2(server):
    """curl speaks HTTP/2 without gRPC to the same paths."""
    if not shutil.which("curl"):
        return
    r = subprocess.run(["curl", "-s", "--http2-prior-knowledge", "-d", '{"key":"YQ=="}',
                        f"http://127.0.0.1:{server.port}/v3/kv/range"], capture_output=True,
                       timeout=WAIT_S, check=False)
    check("HTTP/2", r.returncode == 0 and "header" in json.loads(r.stdout or b"{}"), r)


def main():
    ours, theirs = ringpost(BINARIES), etcd()
    try:
        if not theirs:
            print("no etcd here: its answers are not compared")
        compare(ours, theirs)
        plain(ours)
        pipelined(ours)
        watch(ours)
        if theirs:
            watch(theirs)
        newer(ours)
        many_watches(ours)
        bounds(ours)
        grpc_over_http2(ours)
        nodes_records(ours)
        at_once(ours)
        consumer(ours)
        slow_reader(ours)
        turns()
    finally:
        status = ours.stop()
        if theirs:
            theirs.stop()
    check("ringpostd ends well", status == 0, status)
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
