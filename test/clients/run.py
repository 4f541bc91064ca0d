#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real client libraries, unchanged, against ringpostd and a real etcd; what comes out is compared.

    run.py BINARIES [--client NAME]... [--work FOLDER] [--page FILE [--write]] [--verbose]

Each client program does the cases of cases.py once with either server. A case passes when it works with
ringpostd and says the same there as with etcd; queue cases exist with ringpostd only. Which calls of the API
that took is read from ringpostd's /metrics: each call that the library has must be among them. --page compares
the client's columns of the matrices in docs/etcd-compat.md; with --write they are written anew, others stay.
The environment's RP_CLIENTS_END, in seconds since 1970, is when all of it has to be over.
What a client needs is fetched into the work folder, in the versions of its lock file. Where that cannot
be had the client is skipped with the reason: status 77 when no client ran.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integ" / "etcd")]
import calls
import cases
from gateway_server import Server, free_port, ringpost

FETCH_S, BUILD_S, RUN_S = 600, 900, 150
# What both runs of a client take, at most.
RUNS_S = 60
BEGIN = "<!-- begin clients: test/clients/run.py writes this -->"
END = "<!-- end clients -->"
CALLS_BEGIN = "<!-- begin client calls: test/clients/run.py writes this -->"
CALLS_END = "<!-- end client calls -->"
CALLS = [calls.short(c) for c in calls.calls(HERE.parents[1], calls.ETCD)]
DEBIAN_PYTHON = "/usr/bin/python3"

# Where ringpostd says something else than etcd 3.4, by intent: (case, what etcd says, what ringpostd says, why).
DIFFERS = [("newer", "(?i)unknown method|unimplemented", ".", "etcd 3.4 has no such calls")]


class Skip(Exception):
    """The client cannot run here."""


def time_left():
    return float(os.environ.get("RP_CLIENTS_END", "inf")) - time.time()


def need_time(seconds):
    if time_left() < seconds:
        raise Skip("no time is left for it")


def command(what, argv, error, seconds, **more):
    """Runs argv; raises error(what, and its words about it)."""
    need_time(RUNS_S)
    try:
        p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, errors="replace", timeout=min(seconds, time_left()), check=False, **more)
        out, status = p.stdout, p.returncode
    except FileNotFoundError:
        raise Skip(f"there is no {argv[0]}") from None
    except subprocess.TimeoutExpired:
        need_time(RUNS_S)
        out, status = "it takes too long", 1
    if status != 0:
        lines = [l.strip() for l in out.splitlines() if l.strip()]
        told = [l for l in lines if re.search(r"\berror\b", l, re.I)][:3] or lines[-2:]
        raise error(f"{what}: {re.sub(r'https?://[^ ]+', '...', ' '.join(told))[:300]}")
    return out


# ---- clients: each gives the argv of its program, or raises Skip ----


def etcdctl(_):
    if not shutil.which("etcdctl"):
        raise Skip("etcdctl is not installed")
    return [sys.executable, str(HERE / "etcdctl.py")]


def debian_python(module, program):
    def prepare(_):
        python = DEBIAN_PYTHON if os.path.exists(DEBIAN_PYTHON) else sys.executable
        command(f"Python has no {module}", [python, "-c", f"import {module}"], Skip, 60)
        return [python, str(HERE / program)]
    return prepare


def copied(name, work):
    """The client's sources in the work folder, where its tools may write."""
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(HERE / name, folder, dirs_exist_ok=True)
    return folder


def go_build(folder, version, work):
    cache, program = work / "cache", work / f"{folder.name}-{version}"
    env = dict(os.environ, GOMODCACHE=str(cache / "go-mod"), GOCACHE=str(cache / "go-build"),
               GOTOOLCHAIN="local", GOFLAGS="-modcacherw", CGO_ENABLED="0")
    (folder / "go.mod").write_text("module ringpost/clients\n")  # says where the module is, no more
    modfile = f"-modfile=go-{version}.mod"
    command("the modules cannot be had", ["go", "mod", "download", modfile], Skip, FETCH_S, cwd=folder, env=env)
    command("the program does not build",
            ["go", "build", "-p", "2", "-mod=readonly", modfile, "-tags", f"clientv3_{version}", "-o", str(program), "."],
            AssertionError, BUILD_S, cwd=folder, env=env)
    return [str(program)]


def go(version):
    """All versions are built from one source; each has a module file and a tag."""
    return lambda work: go_build(copied("go", work), version, work)


def node(work):
    if not shutil.which("node"):
        raise Skip("there is no node")
    folder = copied("node", work)
    command("the packages cannot be had",
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline",
             "--cache", str(work / "cache" / "npm")], Skip, FETCH_S, cwd=folder)
    return ["node", str(folder / "main.js")]


def complete_lock(folder, known, env):
    """Cargo.lock is kept without the source of each package, which is the same for all: cargo says which."""
    lock = folder / "Cargo.lock"
    pinned = lock.read_text()
    if not known.exists():
        lock.unlink()
        command("the crates cannot be had", ["cargo", "generate-lockfile"], Skip, FETCH_S, cwd=folder, env=env)
        known.write_text(re.search(r"^source = .*\n", lock.read_text(), re.M).group())
    lock.write_text(re.sub(r"^(?=checksum = )", known.read_text(), pinned, flags=re.M))
    shutil.copystat(HERE / "rust" / "Cargo.lock", lock)  # as old as it is: nothing to build anew


def rust(work):
    folder, cache = copied("rust", work), work / "cache" / "cargo"
    cache.mkdir(parents=True, exist_ok=True)
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")
    for settings in ("config.toml", "config"):
        if (home / settings).exists() and not (cache / settings).exists():
            (cache / settings).symlink_to(home / settings)
    env = dict(os.environ, CARGO_HOME=str(cache), CARGO_TARGET_DIR=str(work / "rust-target"))
    if not shutil.which("protoc"):
        raise Skip("there is no protoc")
    complete_lock(folder, work / "cargo-source", env)
    command("the crates cannot be had", ["cargo", "fetch", "--locked"], Skip, FETCH_S, cwd=folder, env=env)
    command("the program does not build", ["cargo", "build", "--locked", "--offline", "--jobs", "2"],
            AssertionError, BUILD_S, cwd=folder, env=env)
    return [str(work / "rust-target" / "debug" / "ringpost-clients")]


CLIENTS = {
    "etcdctl": etcdctl,
    "go-3.5": go("3.5"),
    "go-3.6": go("3.6"),
    "rust": rust,
    "python-etcd3": debian_python("etcd3", "python_etcd3.py"),
    "python-etcd3gw": debian_python("etcd3gw", "python_etcd3gw.py"),
    "node": node,
}


# ---- servers ----


def etcd():
    if not shutil.which("etcd"):
        raise Skip("etcd is not installed: nothing to compare with")
    port, peer = free_port(), free_port()
    return Server("etcd", lambda d: [
        "etcd", "--data-dir", os.path.join(d, "data"), "--listen-client-urls", f"http://127.0.0.1:{port}",
        "--advertise-client-urls", f"http://127.0.0.1:{port}", "--listen-peer-urls", f"http://127.0.0.1:{peer}",
        "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
        "--initial-cluster", f"default=http://127.0.0.1:{peer}", "--log-level", "error"], port)


def ours(binaries):
    # A consumer's return takes a process: on a busy machine more than the usual second.
    # Members are taken in by a node that has a cluster.
    return ringpost(binaries, "--queues-resume-ms", "3000", "--auth-bcrypt-cost", "4", "--cluster", str(uuid.uuid4()),
                    "--links-listen", str(free_port()))


def ask(argv, server, client, names, verbose):
    """{case: {ok, detail}} of one client against one server."""
    errors = None if verbose else subprocess.DEVNULL
    p = subprocess.Popen(argv + [f"127.0.0.1:{server.port}", client] + names, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        out = p.communicate(timeout=RUN_S)[0]
    except subprocess.TimeoutExpired:
        p.kill()
        out = p.communicate()[0]
    got = {}
    for line in out.splitlines():
        try:
            answer = json.loads(line)
            got[answer["case"]] = {"ok": answer["ok"], "detail": answer["detail"]}
        except (ValueError, KeyError, TypeError):
            print(f"{client}: not an answer: {line}")
    return got


# ---- outcomes ----


def judge(case, theirs, ours_):
    """(mark, note): "pass", "as etcd", "none" (the library has it not) or "FAIL"."""
    if ours_ is None:
        return "FAIL", "the program gave no answer"
    if cases.ours_only(case):
        if ours_["ok"] is None:
            return "none", ours_["detail"]
        return ("pass", "") if ours_["ok"] else ("FAIL", ours_["detail"])
    if theirs is None:
        return "FAIL", "the program gave no answer with etcd"
    if ours_["ok"] is None and theirs["ok"] is None:
        return "none", ours_["detail"]
    if ours_ == theirs:
        return ("pass", "") if ours_["ok"] else ("as etcd", f"fails with both: {ours_['detail']}")
    if ours_["ok"] and theirs["ok"] is False:
        return "pass", "fails with etcd 3.4"
    for where, left, right, why in DIFFERS:
        if where == case and re.search(left, str(theirs["detail"])) and re.search(right, str(ours_["detail"])):
            return "pass", why
    return "FAIL", f"etcd: {theirs['ok']} {theirs['detail']}; ringpostd: {ours_['ok']} {ours_['detail']}"


def counted(text):
    """{call: "pass" or "refused"} of what a server's /metrics say about calls that it got."""
    out = {}
    for name, labels in re.findall(r"^grpc_server_(started|msg_sent)_total\{(.*)\} [1-9]", text, re.M):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        call = calls.short(f"{of['grpc_service']}/{of['grpc_method']}")
        if call in CALLS and (name == "msg_sent" or call not in out):
            out[call] = "pass" if name == "msg_sent" else "refused"
    return out


def judge_calls(client, made):
    """{call: mark} for every call: "pass", "refused", "none" or, when no case made it, "FAIL"."""
    out = {}
    for call in CALLS:
        has = cases.library_has(client, call)
        out[call] = made.get(call, "FAIL" if has else "none") if has or call not in made else "FAIL"
    return out


def run_client(client, args):
    """{case: (mark, note)}, {call: mark} and the library's version."""
    argv = CLIENTS[client](args.work)
    need_time(RUNS_S)
    answers, made = [], {}
    for start, names in ((etcd, [n for n in cases.NAMES if not cases.ours_only(n)]),
                         (lambda: ours(args.binaries), cases.NAMES)):
        server = start()
        try:
            answers.append(ask(argv, server, client, names, args.verbose))
            if server.name == "ringpost":
                made = counted(server.ask("GET", "/metrics")[1].decode())
        finally:
            status = server.stop()
        if server.name == "ringpost" and status != 0:
            raise AssertionError(f"ringpostd ended with status {status}")
    theirs, mine = answers
    if args.verbose:
        print(json.dumps(mine, indent=1))
    marks = {case: judge(case, theirs.get(case), mine.get(case)) for case in cases.NAMES}
    return marks, judge_calls(client, made), mine.get("version", {}).get("detail", "unknown")


# ---- the page ----


def table(text, begin, end):
    """The rows of a matrix's table, and all between its marks."""
    body = text[text.index(begin) + len(begin):text.index(end)]
    return [[c.strip() for c in l.strip().strip("|").split("|")] for l in body.splitlines() if l.startswith("|")], body


def read_page(text):
    """{client: (version, {case: (mark, note)}, {call: mark})} of the matrices."""
    rows, body = table(text, BEGIN, END)
    notes = dict(re.findall(r"^\* (\S+ \S+): (.*)$", body, re.M))
    if len(rows) < 3:
        return {}
    by_call = table(text, CALLS_BEGIN, CALLS_END)[0]
    columns = {}
    for n, client in enumerate(rows[0][2:], 2):
        marks = {row[0].strip("`"): (row[n], "") for row in rows[3:]}
        at = by_call[0].index(client) if by_call and client in by_call[0] else None
        columns[client] = (rows[2][n], {c: (m, notes.get(f"{client} {c}", "")) for c, (m, _) in marks.items()},
                           {row[0].strip("`"): row[at] for row in by_call[2:]} if at else {})
    return columns


def between(text, begin, end, lines):
    head, tail = text[:text.index(begin) + len(begin)], text[text.index(end):]
    return head + "\n" + "\n".join(lines) + "\n\n" + tail


def write_page(path, text, columns):
    order = [c for c in CLIENTS if c in columns]
    lines = ["| case | calls | " + " | ".join(order) + " |", "|---" * (len(order) + 2) + "|",
             "| version | | " + " | ".join(columns[c][0] for c in order) + " |"]
    for case, what in cases.CASES:
        lines.append(f"| `{case}` | {what} | " + " | ".join(
            columns[c][1].get(case, ("not run", ""))[0] for c in order) + " |")
    notes = [f"* {c} {case}: {columns[c][1][case][1]}" for case in cases.NAMES for c in order
             if columns[c][1].get(case, ("", ""))[1]]
    text = between(text, BEGIN, END, lines + ([""] if notes else []) + notes)
    lines = ["| call | " + " | ".join(order) + " |", "|---" * (len(order) + 1) + "|"]
    for call in CALLS:
        lines.append(f"| `{call}` | " + " | ".join(columns[c][2].get(call, "not run") for c in order) + " |")
    path.write_text(between(text, CALLS_BEGIN, CALLS_END, lines))


def compare_page(client, marks, by_call, columns):
    if client not in columns:
        return [f"{client} is not in the matrix"]
    _, old, old_calls = columns[client]
    return [f"the matrix says {client} {case}: {old.get(case, ('nothing',))[0]}, it is {marks[case][0]}"
            for case in cases.NAMES if old.get(case, ("",))[0] != marks[case][0]] + [
            f"the matrix says {client} {call}: {old_calls.get(call, 'nothing')}, it is {by_call[call]}"
            for call in CALLS if old_calls.get(call) != by_call[call]]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("binaries")
    p.add_argument("--client", action="append", choices=CLIENTS)
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "ringpost-clients")
    p.add_argument("--page", type=pathlib.Path)
    p.add_argument("--write", action="store_true")
    p.add_argument("--verbose", action="store_true")
    args = p.parse_args()
    args.binaries, args.work = os.path.abspath(args.binaries), args.work.resolve()
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = "/dev/shm"  # etcd writes each change to its disk

    columns = read_page(args.page.read_text()) if args.page else {}
    faults, ran, skipped = [], 0, []
    for client in args.client or CLIENTS:
        start = time.monotonic()
        try:
            marks, by_call, version = run_client(client, args)
        except Skip as e:
            skipped.append(f"{client}: {e}")
            print(f"skipped: {skipped[-1]}")
            columns.setdefault(client, ("not run", {cases.NAMES[0]: ("not run", str(e))}, {}))
            continue
        ran += 1
        found = [f"{client} {case}: {note}" for case, (mark, note) in marks.items() if mark == "FAIL"]
        found += [f"{client}: no case makes {call}, or the library has it all the same"
                  for call, mark in by_call.items() if mark == "FAIL"]
        if args.write:
            columns[client] = (version, marks, by_call)
        elif args.page:
            found += compare_page(client, marks, by_call, columns)
        faults += found
        count = {m: [v[0] for v in marks.values()].count(m) for m in ("pass", "as etcd", "none", "FAIL")}
        print(f"{client} {version}: {count}, {len(CALLS) - list(by_call.values()).count('none')} of {len(CALLS)} calls, "
              f"{time.monotonic() - start:.1f} s", flush=True)
    for fault in faults:
        print(f"FAIL {fault}")
    if args.write and args.page:
        write_page(args.page, args.page.read_text(), columns)
    if not ran:
        print(f"skipped: {'; '.join(skipped)}")
        return 77
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
