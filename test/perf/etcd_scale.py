#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many clients one ringpostd carries.

    etcd_scale.py BINARIES ETCD_LOAD [--full] [--only NAME,...] [--page FILE]

  scale   many connections, watches and leases at once: nothing is lost, memory is bounded
  stuck   one client of many that reads nothing: how long events take for the others, with it and without
  churn   connections that come and go: memory does not grow
  perf    `etcdctl check perf` (with --full): passes wherever etcd passes

Without --full a smaller version, of a quarter of a minute; with it a real etcd, where there is one, does the
same beside it. --page writes the figures to a Markdown page.
"""
import argparse
import datetime
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integ", "etcd"))
from gateway_server import Server, free_port, ringpost

MIB = 1024.0
RSS_MAX_MIB = 1024
# What the longest of all may differ by, with one stuck client and without; --full takes the median of pairs.
RATIO_MAX, RATIO_SHORT_MAX = 1.2, 3.0
GROWTH_MAX = 0.02
SCALE = {"connections": 1000, "watches": 10000, "leases": 50000, "rate": 500, "seconds": 30}
SCALE_SHORT = {"connections": 200, "watches": 2000, "leases": 10000, "rate": 200, "seconds": 4}
FAN_OUT = {"connections": 1000, "rate": 10, "seconds": 10}
FAN_OUT_SHORT = {"connections": 200, "rate": 20, "seconds": 3}
CHURN, CHURN_SHORT = (20000, 100000), (8000, 8000)
PAIRS = 5
LOADS = "s", "m", "l"
# etcd's files are on tmpfs, as far as there is one.
TMPFS = "/dev/shm"


class Failed(Exception):
    pass


def etcd():
    port, peer = free_port(), free_port()
    return Server("etcd", lambda d: [
        "etcd", "--data-dir", os.path.join(d, "data"), "--listen-client-urls", f"http://127.0.0.1:{port}",
        "--advertise-client-urls", f"http://127.0.0.1:{port}", "--listen-peer-urls", f"http://127.0.0.1:{peer}",
        "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
        "--initial-cluster", f"default=http://127.0.0.1:{peer}", "--log-level", "error"], port)


def memory(server):
    """Resident now, and the most so far, MiB."""
    text = open(f"/proc/{server.process.pid}/status", encoding="ascii").read()
    return tuple(int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1]) / MIB for name in ("VmRSS", "VmHWM"))


def cpu_s(server):
    """User and system time so far."""
    fields = open(f"/proc/{server.process.pid}/stat", encoding="ascii").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def overloaded():
    """Others have so much to run that times are theirs."""
    return os.getloadavg()[0] > 2 * os.cpu_count()


class Run:
    def __init__(self, args):
        self.args, self.faults, self.rows = args, [], []
        self.starts = {"ringpostd": lambda: ringpost(args.binaries)}
        if args.full and shutil.which("etcd"):
            self.starts["etcd"] = etcd

    def load(self, server, mode, **options):
        argv = [self.args.load, f"127.0.0.1:{server.port}", mode]
        for name, value in options.items():
            argv += [name, str(value)]
        p = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)
        if p.returncode != 0:
            raise Failed(f"{' '.join(argv[2:])}: status {p.returncode}: {p.stdout}{p.stderr}")
        return json.loads(p.stdout)

    def want(self, what, holds, who="ringpostd"):
        print(f"{who}: {what}{'' if holds else ': NOT as wanted'}", flush=True)
        if not holds and who == "ringpostd":
            self.faults.append(what)

    def with_server(self, who, action):
        """What the action returns; None when the real etcd did not stand it."""
        server = self.starts[who]()
        try:
            return action(server)
        except Failed as e:
            if who == "ringpostd":
                raise
            print(f"{who}: {e}", flush=True)
            self.rows.append(f"| {who} | did not stand it: {str(e).strip().rpartition(': etcd_load: ')[2]} |")
            return None
        finally:
            status = server.stop()
            if who == "ringpostd" and status != 0:
                self.faults.append(f"ringpostd ended with status {status}")

    def scale(self):
        options = SCALE if self.args.full else SCALE_SHORT
        self.rows.append("\n## " + ", ".join(f"{options[n]:,} {n}" for n in ("connections", "watches", "leases")) +
                         f"\n\n`etcd_load ADDRESS scale {' '.join(f'{k} {v}' for k, v in options.items())}`: all are open while "
                         "puts are made, each seen by one watch, and all leases are renewed three times a minute.\n\n"
                         "| server | resident at start | at most | connect s | watches s | grants a s | put p50 / p99 ms | event p99 ms "
                         "| leases lost |\n|---|---|---|---|---|---|---|---|---|")

        def action(server):
            start = memory(server)[0]
            r = self.load(server, "scale", **options)
            return start, memory(server)[1], r
        for who in self.starts:
            got = self.with_server(who, action)
            if not got:
                continue
            start, most, r = got
            self.want(f"{r['connections']} connections, {r['watches']} watches, {r['leases']} leases: {most:.0f} MiB, "
                      f"put p99 {r['put_p99_ms']:.1f} ms, {r['leases_lost']} leases lost",
                      most < RSS_MAX_MIB and r["leases_lost"] == 0, who)
            self.rows.append(f"| {who} | {start:.0f} MiB | {most:.0f} MiB | {r['connect_s']:.2f} | {r['watch_s']:.2f} | "
                             f"{r['leases'] / max(r['grant_s'], 0.01):,.0f} | {r['put_p50_ms']:.2f} / {r['put_p99_ms']:.2f} | "
                             f"{r['event_p99_ms']:.2f} | {r['leases_lost']} |")

    def stuck(self):
        options = FAN_OUT if self.args.full else FAN_OUT_SHORT
        pairs = PAIRS if self.args.full else 1
        self.rows.append(f"\n## One stuck reader among {options['connections']:,}\n\n"
                         f"`etcd_load ADDRESS fanout {' '.join(f'{k} {v}' for k, v in options.items())} stuck 0|1`, in turn. Each put "
                         f"goes to all {options['connections']:,} watches; the stuck client's windows are open and its socket is never "
                         "read; 16 MB for it alone come first.\n\n| server | event p99 ms, without and with, each pair | "
                         "median of the ratios | CPU ms of the server a put and what came before | median of the ratios | "
                         "resident |\n|---|---|---|---|---|---|")
        for who in self.starts:
            def once(server, n):
                before = cpu_s(server)
                r = self.load(server, "fanout", **options, stuck=n)
                return r["event_p99_ms"], (cpu_s(server) - before) / r["puts"] * 1000

            def action(server):
                return [[once(server, n) for n in (0, 1)] for _ in range(pairs)], memory(server)[1]
            got = self.with_server(who, action)
            if not got:
                continue
            runs, most = got
            ratio, work = (statistics.median(b[i] / max(a[i], 0.001) for a, b in runs) for i in (0, 1))
            busy = overloaded()
            # Where others leave it no processor, what it has to do is compared, not how long it waited.
            self.want(f"one stuck reader among {options['connections']}: p99 of the others {ratio:.2f} times, the server's "
                      f"work a put {work:.2f} times{', on an overloaded machine' if busy else ''}",
                      (work if busy else ratio) <= (RATIO_MAX if self.args.full else RATIO_SHORT_MAX), who)
            self.rows.append(f"| {who} | {', '.join(f'{a[0]:.0f} {b[0]:.0f}' for a, b in runs)} | {ratio:.2f} | "
                             f"{', '.join(f'{a[1]:.1f} {b[1]:.1f}' for a, b in runs)} | {work:.2f} | {most:.0f} MiB |")

    def churn(self):
        first, then = CHURN if self.args.full else CHURN_SHORT
        self.rows.append(f"\n## {then:,} connections that come and go\n\n`etcd_load ADDRESS churn connections 64 total N`: {first:,} "
                         f"first, then {then:,}. A quarter each ends after a call, in the midst of a watch and a lease's stream, with half "
                         "a preface, and as HTTP/1.1; half of them by a reset.\n\n| server | resident after the first | after the rest | growth "
                         "| connections a s |\n|---|---|---|---|---|")

        def action(server):
            self.load(server, "churn", connections=64, total=first)
            before = memory(server)[0]
            r = self.load(server, "churn", connections=64, total=then)
            return before, memory(server)[0], r["total"] / r["seconds"]
        for who in self.starts:
            got = self.with_server(who, action)
            if not got:
                continue
            before, after, rate = got
            growth = after / before - 1
            self.want(f"{then} connections: {before:.1f} MiB, then {after:.1f}", growth <= GROWTH_MAX, who)
            self.rows.append(f"| {who} | {before:.1f} MiB | {after:.1f} MiB | {growth * 100:+.1f} % | {rate:,.0f} |")

    def check_perf(self, server, load):
        """Whether etcdctl says PASS, and its figures."""
        p = subprocess.run(["etcdctl", "--endpoints", f"127.0.0.1:{server.port}", "check", "perf", "--load", load],
                           env=dict(os.environ, ETCDCTL_API="3"), capture_output=True, text=True, timeout=300, check=False)
        # A bar of progress may stand before the first.
        lines = [m[1].strip() for m in re.finditer(r"((?:PASS|FAIL)[^\r\n]*)", p.stdout + p.stderr)]
        return bool(lines) and lines[-1] == "PASS", lines[:-1]

    def perf(self):
        if not self.args.full:
            return
        if not shutil.which("etcdctl"):
            print("skipped: perf: etcdctl is not installed")
            return
        self.rows.append("\n## `etcdctl check perf`\n\nEach load for a minute, the servers in turn, on the same host as the client, up to the "
                         "first that etcd does not pass.\n\n"
                         "| load | server | result | what etcdctl says |\n|---|---|---|---|")
        for load in LOADS:
            passed = {}
            for who in reversed(list(self.starts)):
                passed[who], lines = self.with_server(who, lambda server: self.check_perf(server, load))
                self.want(f"check perf --load {load}: {'; '.join(lines)}", passed[who] or not passed.get("etcd", True), who)
                self.rows.append(f"| {load} | {who} | {'PASS' if passed[who] else 'FAIL'} | {'; '.join(lines)} |")
            if not passed.get("etcd", True):
                break

    def page(self, path):
        commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=os.path.dirname(os.path.abspath(__file__)),
                                capture_output=True, text=True, check=False).stdout.strip()
        head = ["# Many etcd clients", "",
                "What one `ringpostd` without a port carries, beside etcd 3.4.23 with its files on tmpfs; clients on the same host.",
                "", "    test/perf/etcd_scale.py build/app build/test/perf/etcd_load --full --page docs/results/etcd_scale.md", "",
                f"{datetime.date.today()}, commit {commit or 'unknown'}, {os.cpu_count()} CPUs, {platform.system()} "
                f"{'.'.join(platform.release().split('.')[:2])}, load average {os.getloadavg()[1]:.1f} of other work besides."]
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(head + self.rows) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binaries", type=os.path.abspath)
    p.add_argument("load", type=os.path.abspath)
    p.add_argument("--full", action="store_true")
    p.add_argument("--only", type=lambda s: s.split(","), default=["scale", "stuck", "churn", "perf"])
    p.add_argument("--page")
    args = p.parse_args()
    if os.access(TMPFS, os.W_OK):
        tempfile.tempdir = TMPFS
    # Which meson sets: memory that is taken and not used yet would be resident.
    os.environ.pop("MALLOC_PERTURB_", None)
    run = Run(args)
    try:
        for name in args.only:
            getattr(run, name)()
    except Failed as e:
        run.faults.append(str(e))
    if args.page:
        run.page(args.page)
    for fault in run.faults:
        print(f"FAIL {fault}")
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main())
