#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""etcd's own end-to-end tests against ringpostd, with one node.

    run.py BINARIES [--work FOLDER] [--run REGEX] [--reference] [--results FILE] [--jobs N]

The suite is Debian's golang-etcd-server-dev (etcd 3.4), its clusters made of one node. Where it wants the
server's version it is told that of ringpostd, and the text of /health that etcd has since 3.5. --reference
runs a real etcd in its place, with the suite as it is. Each test is a process of its own, so that one that hangs costs its
own time only. The outcome is compared with expected.txt: a test that is said to pass and does not
is a failure; one that passes and is not said to is told. Status 77 where Go or the suite is missing.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = "/usr/share/gocode"
SUITE = "go.etcd.io/etcd/tests/e2e"
TEST_S = 60
# What ringpostd tells clients.
VERSION = "3.6.0"
EXPECTED = os.path.join(HERE, "expected.txt")


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


# What a server of a later version says otherwise: (file, what the suite wants, what it is to want).
LATER = [
    ("metrics_test.go", "version.Version", "serverVersion"),
    ("v3_cipher_suite_test.go", "version.Version", "serverVersion"),
    ("metrics_test.go", '`{"health":"true"}`', "healthyText"),
    ("ctl_v3_alarm_test.go", '`{"health":"false"}`', "unhealthyText"),
]
LATER_GO = """package e2e

import (
	"os"

	"go.etcd.io/etcd/version"
)

var (
	serverVersion = version.Version
	healthyText   = `{"health":"true"}`
	unhealthyText = `{"health":"false"}`
)

func init() {
	if v := os.Getenv("RINGPOST_VERSION"); v != "" {
		serverVersion = v
		healthyText = `{"health":"true","reason":""}`
		unhealthyText = `{"health":"false","reason":"ALARM NOSPACE"}`
	}
}
"""


def one_node(folder):
    """The suite's sources with every cluster of three made one of one, as Go's overlay."""
    where = os.path.join(SOURCES, "src", SUITE)
    overlay = {}
    for name in sorted(os.listdir(where)):
        text = open(os.path.join(where, name), encoding="utf-8").read()
        changed = re.sub(r"(clusterSize:\s*)3\b", r"\g<1>1", text)
        for file, wants, shall in LATER:
            if file == name:
                assert wants in changed, f"{file} has no {wants}"
                changed = changed.replace(wants, shall)
                if "version." not in changed:
                    changed = re.sub(r'\n\t"go.etcd.io/etcd/version"', "", changed)
        if changed != text:
            overlay[os.path.join(where, name)] = os.path.join(folder, name)
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(changed)
    overlay[os.path.join(where, "later_test.go")] = os.path.join(folder, "later_test.go")
    with open(os.path.join(folder, "later_test.go"), "w", encoding="utf-8") as f:
        f.write(LATER_GO)
    path = os.path.join(folder, "overlay.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"Replace": overlay}, f)
    return path


def build(folder):
    program = os.path.join(folder, "e2e.test")
    if os.path.exists(program) and os.path.getmtime(program) > os.path.getmtime(__file__):
        return program
    go = "/usr/lib/go-1.19/bin/go" if os.path.exists("/usr/lib/go-1.19/bin/go") else shutil.which("go")
    env = dict(os.environ, GO111MODULE="off", GOPATH=SOURCES, GOFLAGS="",
               GOCACHE=os.path.join(folder, "go-cache"), GOTOOLCHAIN="local")
    r = subprocess.run([go, "test", "-vet=off", "-p", "2", "-c", "-overlay", one_node(folder), "-o", program,
                        SUITE], env=env, capture_output=True, text=True, timeout=900, check=False)
    if r.returncode != 0:
        skip(f"the suite does not build: {r.stderr.strip()[-500:]}")
    return program


def programs(folder, reference):
    """A bin folder as the suite wants it."""
    bin_dir = os.path.join(folder, "bin-reference" if reference else "bin")
    shutil.rmtree(bin_dir, ignore_errors=True)
    os.makedirs(bin_dir)
    if reference:
        path = os.path.join(bin_dir, "etcd")
        with open(path, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\n: > "$RINGPOST_PIDS/$$"\nexec {shutil.which("etcd")} "$@"\n')
        os.chmod(path, 0o755)
    else:
        os.symlink(os.path.join(HERE, "etcd"), os.path.join(bin_dir, "etcd"))
    os.symlink(shutil.which("etcdctl"), os.path.join(bin_dir, "etcdctl"))
    return bin_dir


def end_servers(folder):
    """The suite leaves servers behind when it fails; each has said its pid."""
    for pid in os.listdir(folder):
        try:
            command = open(f"/proc/{pid}/cmdline", encoding="utf-8").read()
            if "ringpostd" in command or "etcd" in command:
                os.kill(int(pid), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass


def own_network():
    """The suite's ports are fixed: each test gets a loopback of its own, where that is allowed."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        return []
    return ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def run_one(program, name, bin_dir, log):
    """pass, fail, skip or timeout."""
    work = tempfile.mkdtemp(prefix="e2e-")
    pids = os.path.join(work, "pids")
    os.mkdir(pids)
    env = dict(os.environ, TMPDIR=work, RINGPOST_PIDS=pids)
    start = time.monotonic()
    p = subprocess.Popen(
        [*own_network(), program, f"-test.run=^{name}$", "-test.v", f"-test.timeout={TEST_S}s", "-bin-dir", bin_dir,
         "-cert-dir", os.path.join(SOURCES, "src/go.etcd.io/etcd/integration/fixtures")],
        cwd=os.path.join(SOURCES, "src", SUITE), env=env, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True)
    try:
        out = p.communicate(timeout=TEST_S + 15)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, 9)
        out = p.communicate()[0].decode(errors="replace")
    end_servers(pids)
    shutil.rmtree(work, ignore_errors=True)
    took = time.monotonic() - start
    if f"--- SKIP: {name}" in out or "no tests to run" in out:
        result = "skip"
    elif p.returncode == 0 and f"--- PASS: {name}" in out:
        result = "pass"
    else:
        result = "timeout" if "panic: test timed out" in out or took > TEST_S else "fail"
    if result != "pass":
        with open(os.path.join(log, name + ".log"), "w", encoding="utf-8") as f:
            f.write(out)
    return result, took


def expected():
    """Name: (pass or fail, reason)."""
    out = {}
    for line in open(EXPECTED, encoding="utf-8"):
        parts = line.split("#")[0].split(maxsplit=2)
        if len(parts) >= 2:
            out[parts[1]] = (parts[0], parts[2].strip() if len(parts) > 2 else "")
    return out


def main():
    a = argparse.ArgumentParser()
    a.add_argument("binaries")
    a.add_argument("--work", type=os.path.abspath, default=os.path.join(tempfile.gettempdir(), "ringpost-e2e"))
    a.add_argument("--run", default=".")
    a.add_argument("--reference", action="store_true")
    a.add_argument("--results")
    args = a.parse_args()
    if not shutil.which("go") or not os.path.isdir(os.path.join(SOURCES, "src", SUITE)):
        skip("golang-go or golang-etcd-server-dev is not installed")
    for p in ["etcdctl", "openssl", "curl"] + (["etcd"] if args.reference else []):
        if not shutil.which(p):
            skip(f"{p} is not installed")
    os.makedirs(args.work, exist_ok=True)
    program = build(args.work)
    bin_dir = programs(args.work, args.reference)
    os.environ["RINGPOST_APP"] = os.path.abspath(args.binaries)
    os.environ["RINGPOST_PATH"] = os.environ["PATH"]
    if not args.reference:
        os.environ["RINGPOST_VERSION"] = VERSION
    log = os.path.join(args.work, "log-reference" if args.reference else "log")
    os.makedirs(log, exist_ok=True)
    names = subprocess.run([program, "-test.list", args.run], capture_output=True, text=True,
                           cwd=os.path.join(SOURCES, "src", SUITE), check=True).stdout.split("\n")
    said = {} if args.reference else expected()
    results, worse, better = {}, [], []
    for name in filter(lambda n: re.match(r"Test\w+$", n), names):
        if said.get(name, ("", ""))[0] == "skip":
            continue
        result, took = run_one(program, name, bin_dir, log)
        results[name] = result
        print(f"{result:7} {name} {took:.1f} s", flush=True)
        if said.get(name, ("", ""))[0] == "pass" and result != "pass":
            worse.append(name)
        if said.get(name, ("", ""))[0] == "fail" and result == "pass":
            better.append(name)
    if args.results:
        with open(args.results, "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
    counts = {r: list(results.values()).count(r) for r in ("pass", "fail", "timeout", "skip")}
    print(", ".join(f"{n} {r}" for r, n in counts.items()))
    for name in better:
        print(f"passes, and expected.txt says it does not: {name}")
    for name in worse:
        print(f"FAIL {name}: see {os.path.join(log, name)}.log")
    return 1 if worse else 0


sys.exit(main())
