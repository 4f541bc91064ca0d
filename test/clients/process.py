#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of test/clients/process, each way of requesters with each way of workers:
process.py BINARIES [--work FOLDER] [--only LANGUAGE...] [--across]

With --across none with itself. A language whose tools or libraries cannot be had is told and left out; status
77 when fewer than two are left.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

import run

HERE = run.HERE / "process"
PROTO = run.HERE.parents[1] / "proto"
WAIT_S = 20
LINE, ANSWER = "hello wide world", ["HELLO", "WIDE", "WORLD"]


def protoc(what, *args):
    run.command(f"{what}: protoc does not do it", ["protoc", f"-I{PROTO}", *args, "ringpost/v1/process.proto"], run.Skip,
                60)


def python(work):
    program = run.debian_python("etcd3, grpc", "process/job.py")(work)
    made = work / "process-python"
    made.mkdir(exist_ok=True)
    protoc("python", f"--python_out={made}")
    return program, {"PYTHONPATH": str(made)}


def go(work):
    folder = work / "process-go"
    folder.mkdir(exist_ok=True)
    for name in ("go-3.6.mod", "go-3.6.sum"):
        shutil.copy(run.HERE / "go" / name, folder)
    shutil.copy(HERE / "job.go", folder / "main.go")
    protoc("go", f"--go_out={folder}", "--go_opt=paths=source_relative",
           "--go_opt=Mringpost/v1/process.proto=ringpost/clients/ringpost/v1")
    return run.go_build(folder, "3.6", work), {}


def node(work):
    folder = pathlib.Path(run.node(work)[1]).parent
    shutil.copy(HERE / "job.js", folder)
    return ["node", str(folder / "job.js")], {"PROTO": str(PROTO)}


def c(work):
    flags = run.command("libcurl, jansson or protobuf-c is not there",
                        ["pkg-config", "--cflags", "--libs", "libcurl", "jansson", "libprotobuf-c"], run.Skip, 60).split()
    made = work / "process-c"
    made.mkdir(exist_ok=True)
    run.command("there is no protoc-c", ["protoc-c", f"-I{PROTO}", f"--c_out={made}", "ringpost/v1/process.proto"],
                run.Skip, 60)
    run.command("the program does not build", ["cc", "-Wall", "-Wextra", "-O1", f"-I{made}", "-o", str(made / "job"),
                                               str(HERE / "job.c"), str(made / "ringpost/v1/process.pb-c.c"), *flags],
                AssertionError, 120)
    return [str(made / "job")], {}


LANGUAGES = {"c": c, "go": go, "node": node, "python": python}


def start(program, act, way, server, queue, what):
    argv, env = program
    return subprocess.Popen(argv + [act, way, f"127.0.0.1:{server.port}", queue, what], stdout=subprocess.PIPE, text=True,
                            stdin=subprocess.DEVNULL, env=dict(os.environ, **env))


def try_pair(server, requester, ask_way, worker, work_way, queue):
    """What went wrong, or nothing."""
    doer = start(worker, "work", work_way, server, queue, "1")
    asker = start(requester, "run", ask_way, server, queue, LINE)
    try:
        out = asker.communicate(timeout=WAIT_S)[0].splitlines()
        doer.wait(timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        return f"no end; requester {asker.poll()}, worker {doer.poll()}"
    finally:
        for p in (asker, doer):
            if p.poll() is None:
                p.kill()
            p.communicate()
    if asker.returncode or doer.returncode or out != ANSWER:
        return f"requester {asker.returncode}, worker {doer.returncode}: {out}"
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries")
    p.add_argument("--work", type=pathlib.Path, required=True)
    p.add_argument("--only", nargs="*", default=list(LANGUAGES))
    p.add_argument("--across", action="store_true")
    args = p.parse_args()
    args.work = args.work.resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    faults, programs, left_out = [], {}, []
    for name in args.only:
        try:
            programs[name] = LANGUAGES[name](args.work)
        except run.Skip as e:
            left_out.append(f"{name}: {e}")
    if len(programs) < min(2, len(args.only)):
        print(f"skipped: fewer than two languages can be had: {'; '.join(left_out)}")
        return 77
    server = run.ours(os.path.abspath(args.binaries))
    ways = ("native", "keys")
    pairs = [(r, rw, w, ww) for r in programs for rw in ways for w in programs for ww in ways
             if not args.across or r != w]
    try:
        for r, rw, w, ww in pairs:
            begin = time.monotonic()
            fault = try_pair(server, programs[r], rw, programs[w], ww, f"{r}-{rw}-{w}-{ww}")
            print(f"{r} by {rw} to {w} by {ww}: {fault or 'ok'}, {time.monotonic() - begin:.1f} s", flush=True)
            faults += [f"{r} by {rw} to {w} by {ww}: {fault}"] if fault else []
    finally:
        status = server.stop()
    if status:
        faults.append(f"ringpostd ended with status {status}")
    print("\n".join(f"FAIL {f}" for f in faults) or
          f"{len(pairs)} pairs of {' '.join(programs)}; left out: {'; '.join(left_out) or 'none'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
