#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What nodes under load tell of themselves: telemetry.py BINARIES SOURCE FIRE

- `show drops` says, at every look, that nothing is lost.
- /metrics holds against prometheus_client's parser of OpenMetrics and against promtool; names, types and labels are
  those of docs/counters.md.
- What the dashboard and the alert rules of tools/grafana name is there; promtool takes the rules.
- Debian's prometheus scrapes both nodes, and answers every expression of the two.
- DPDK's telemetry socket has the commands /ringpost/..., among them the connections of the links.
"""
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fire"))

from cluster import Cluster, free_port, need, skip, wait_until
from load import Load

SOURCE = pathlib.Path(sys.argv[2])
GRAFANA = SOURCE / "tools" / "grafana"
MESSAGES = 1500
# promtool does not like names of etcd's, takes "for_us" for microseconds, and a counter's own unit is in its name.
NOT_OURS = re.compile(r"^(etcd_|grpc_|process_|ringpost_net_drop_not_for_us|ringpost_link_time_to_up_ns)")


def listed():
    """docs/counters.md: family -> (type, unit, labels)."""
    out = {}
    for line in (SOURCE / "docs" / "counters.md").read_text().splitlines():
        m = re.match(r"\| `(\w+)` \| (\w+) \| (\w*) \| ([\w,]*) \|", line)
        if m:
            name = m[1].removesuffix("_total") if m[2] == "counter" else m[1]
            out[name] = (m[2], m[3], set(m[4].split(",")) - {""})
    assert len(out) > 300, f"docs/counters.md has {len(out)} metrics"
    return out


def ask(node, accept=None, port=None):
    c = http.client.HTTPConnection("127.0.0.1", port or node.port, timeout=10)
    c.request("GET", "/metrics", headers={"Accept": accept} if accept else {})
    r = c.getresponse()
    text = r.read().decode()
    c.close()
    assert r.status == 200, (r.status, text[:200])
    return r.getheader("Content-Type"), text


def drops(node):
    value = json.loads(node.ctl("show", "drops", "-j"))
    try:
        import jsonschema
        schema = json.loads((SOURCE / "docs" / "schema" / "show_drops.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(value)
    except ImportError:
        pass
    m = value["messages"]
    out = m["delivered"] + m["passed_on"] + m["held"] + sum(r["count"] for r in m["reasons"])
    assert m["lost"] == 0 and m["in"] == out, m
    return m


def balance(nodes, load):
    """While messages come and go."""
    looks, moved, last = 0, 0, None
    while not load.ended:
        now = [drops(n) for n in nodes]
        looks += 1
        moved += last is not None and now != last
        last = now
    load.end(60)
    assert looks >= 3 and moved >= 2, f"{looks} looks, {moved} of them saw other figures"
    end = [drops(n) for n in nodes]
    assert sum(m["delivered"] for m in end) >= MESSAGES, end
    text = nodes[0].ctl("show", "drops")
    assert re.search(r"^  lost +0$", text, re.M), text
    print(f"  {looks} looks under load: nothing is lost of {[m['in'] for m in end]}")


def openmetrics(node, names):
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
    except ImportError:
        skip("python3-prometheus-client is not installed")
    kind, text = ask(node, "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")
    assert kind.startswith("application/openmetrics-text; version=1.0.0"), kind
    families = list(text_string_to_metric_families(text))
    assert len(families) > 250, len(families)
    for f in families:
        assert f.name in names, f"{f.name} is not in docs/counters.md"
        kind, unit, labels = names[f.name]
        assert f.type == kind, (f.name, f.type, kind)
        assert not f.unit or f.unit == unit, (f.name, f.unit, unit)
        assert f.documentation, f.name
        for s in f.samples:
            assert set(s.labels) - {"le"} <= labels, (f.name, s.labels, labels)
    print(f"  OpenMetrics: {len(families)} families")
    return {s.name for f in families for s in f.samples}


def promtool(node, folder):
    _, text = ask(node)
    r = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    said = [line for line in (r.stdout + r.stderr).splitlines() if line.strip() and not NOT_OURS.match(line)]
    assert not said and r.returncode in (0, 3), (r.returncode, said)
    r = subprocess.run(["promtool", "check", "rules", str(GRAFANA / "alerts.yml")],
                       capture_output=True, text=True, check=False)
    assert r.returncode == 0, r.stdout + r.stderr
    print("  promtool takes metrics and rules")


def expressions():
    """Of the dashboard and of the alerts."""
    import yaml
    board = json.loads((GRAFANA / "ringpost.json").read_text())
    found = [t["expr"] for p in board["panels"] for t in p.get("targets", [])]
    for group in yaml.safe_load((GRAFANA / "alerts.yml").read_text())["groups"]:
        found += [r["expr"] for r in group["rules"]]
    assert len(found) > 60, len(found)
    return found


def names_exist(samples, names):
    """Metrics that come only when there is something to tell are in the list, if not in the output."""
    some = re.compile(r"\b((?:ringpost|etcd|grpc_server|process)_\w+)")
    used = {n for e in expressions() for n in some.findall(re.sub(r'"[^"]*"', '""', e))}
    assert len(used) > 40, used
    known = set(samples)
    for name, (kind, _, _) in names.items():
        if kind == "histogram":
            known |= {name + "_bucket", name + "_sum", name + "_count"}
        else:
            known.add(name + "_total" if kind == "counter" else name)
    assert used <= known, f"no such metrics: {sorted(used - known)}"
    missing = sorted(n for n in used - set(samples))
    assert len(missing) < 6, f"not in the output: {missing}"
    print(f"  dashboard and alerts use {len(used)} metrics, all there are")


def query(port, expression):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode(
            {"query": expression}), timeout=10) as r:
        value = json.loads(r.read())
    assert value["status"] == "success", (expression, value)
    return value["data"]["result"]


def prometheus(cluster, folder):
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(f"""global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{GRAFANA / 'alerts.yml'}]
scrape_configs:
  - job_name: ringpost
    static_configs: [{{targets: [{', '.join(f'"{n.client}"' for n in cluster.nodes)}]}}]
""")
    with open(folder / "prometheus.log", "wb") as log:
        p = subprocess.Popen(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
                              f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        try:
            wait_until("two scrapes of both nodes", 30, lambda: len(query(
                port, 'count_over_time(ringpost_shard_loops_total{shard="0"}[1m]) >= 2')) == 2)
            assert [r["value"][1] for r in query(port, 'up{job="ringpost"}')] == ["1", "1"]
            for e in expressions():
                query(port, e.replace("$__rate_interval", "1m").replace("$instance", ".*"))
            firing = query(port, 'ALERTS{alertname=~"RingpostDown|RingpostMessagesUnaccounted|RingpostTakesNoWrites"}')
            assert not firing, firing
        except Exception:
            print((folder / "prometheus.log").read_text()[-3000:])
            raise
        finally:
            p.terminate()
            p.wait(timeout=20)
    print("  prometheus scrapes both nodes and answers all expressions")


def telemetry_of(node):
    base = "/var/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp")
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(10)
    s.connect(f"{base}/dpdk/ringpost-{node.uuid}/dpdk_telemetry.v2")
    s.recv(1024)

    def command(text):
        s.send(text.encode())
        return json.loads(s.recv(1 << 16).decode())[text.split(",")[0]]
    return s, command


def connections(node, command):
    """Each connection of the links, as `show tcp` has it."""
    shown = json.loads(node.ctl("show", "tcp", "-j"))["connections"]
    assert shown, "no connection"
    listed_, lines = command("/ringpost/tcp"), ["%(local)s %(peer)s %(state)s" % c for c in shown]
    assert listed_ == lines, (listed_, lines)
    moving = {"unsent_bytes", "unacked_bytes", "pipe_bytes", "unconsumed_bytes", "cwnd_bytes", "srtt_ns", "rttvar_ns",
              "rtt_min_ns", "rto_ns", "reo_window_ns", "age_ns", "sent_bytes", "received_bytes", "receive_window_bytes"}
    for c in shown:
        told = command(f"/ringpost/tcp,{c['peer']}")
        if told["connections"] > 1:
            told = next(t for t in (command(f"/ringpost/tcp,{c['peer']},{i}") for i in range(told["connections"]))
                        if t["local"] == c["local"])
        del told["connections"]
        for name, value in c.items():
            if name in ("timer", "keepalive"):
                continue
            if value is None:
                assert name not in told, (name, told)
            elif name not in moving:
                assert told.pop(name) == value, (name, value, told)
            else:
                assert isinstance(told.pop(name), int), name
        assert told.pop("timer", "none") and told.pop("timer_in_ns", 0) >= 0
        assert not [n for n in told if not n.startswith("keepalive_")], told
    assert command("/ringpost/tcp,192.0.2.1") == {"connections": 0}
    assert command("/ringpost/tcp,nonsense") is None
    print(f"  DPDK's telemetry: {len(shown)} connections")


def dpdk(node):
    s, command = telemetry_of(node)
    try:
        assert "/ringpost/metrics" in command("/")
        assert command("/ringpost/info")["shards"] == 1, command("/ringpost/info")
        assert "ringpost_queue_puts" in command("/ringpost/names")
        puts = command("/ringpost/metrics,ringpost_queue_puts")["ringpost_queue_puts"]
        assert puts == node.stats("ringpost_queue_puts")["queue_puts"] > 0, puts
        shard = command("/ringpost/shard,0")
        assert shard["ringpost_shard_busy_ns"] > 0 and shard["ringpost_shard_items"] > 0, shard
        assert command("/ringpost/shard,7") in ({}, None)
        seen, skip_ = {}, 0
        while True:
            page = command(f"/ringpost/metrics,,{skip_}")
            skip_ = page.pop("next", 0)
            assert not seen.keys() & page.keys(), seen.keys() & page.keys()
            seen.update(page)
            if not skip_:
                break
        assert len(seen) > 250 and "process_cpu_us" in seen, sorted(seen)
        m = command("/ringpost/drops")
        assert m["lost"] == 0 and m["in"] > 0, m
        connections(node, command)
    finally:
        s.close()
    print(f"  DPDK's telemetry: {len(seen)} metrics")


def figures(node):
    """Of a node that has worked: every figure of a loop is there, and makes sense."""
    s = node.stats("ringpost_shard_")
    assert 0 < s["shard_busy_ratio"] <= 1, s
    assert s["shard_item_cycles"] > 0 and s["shard_message_cycles"] > 0 and s["shard_items"] > 0, s
    assert s["shard_rx_burst_frames_count"] > 0 and s["shard_ring_burst_messages_count"] > 0, s
    assert node.stats("ringpost_ring_")["ring_size"] > 1000


def main():
    need("etcdctl", "prometheus", "promtool")
    names, own = listed(), free_port()
    cluster = Cluster(sys.argv[1], nodes=2, port="memif", config={
        "dpdk": "{hugepages: off, memory_mib: 224, telemetry: true}"})
    cluster.nodes[0].extra["metrics"] = f'{{listen: "127.0.0.1:{own}"}}'
    with cluster:
        cluster.join()
        folder = pathlib.Path(cluster.dir)
        load = Load(sys.argv[3], cluster.nodes, messages=MESSAGES, rate=1000)
        try:
            balance(cluster.nodes, load)
        finally:
            load.kill()
        figures(cluster.nodes[0])
        assert "ringpost_queue_puts_total" in ask(cluster.nodes[0], port=own)[1]
        samples = openmetrics(cluster.nodes[0], names)
        promtool(cluster.nodes[0], folder)
        names_exist(samples, names)
        dpdk(cluster.nodes[1])
        prometheus(cluster, folder)
        runtime = [f"/var/run/dpdk/ringpost-{n.uuid}" for n in cluster.nodes]
    assert not [d for d in runtime if os.path.exists(d)], runtime
    print("what is told holds")


if __name__ == "__main__":
    main()
