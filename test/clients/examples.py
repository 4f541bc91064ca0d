#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/queues-by-etcd.md, each producing for each: examples.py BINARIES PAGE [--work FOLDER]

They are taken from the page as they stand. A language whose tools or libraries cannot be had is told and
left out; status 77 when fewer than two are left.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import run

COUNT = 5
WAIT_S = 30


def python(source, work):
    program = run.debian_python("etcd3", "python_etcd3.py")(work)
    path = work / "queue.example.py"
    path.write_text(source)
    return [program[0], str(path)]


def go(source, work):
    folder = work / "queue-go"
    folder.mkdir(exist_ok=True)
    for name in ("go-3.6.mod", "go-3.6.sum"):
        shutil.copy(run.HERE / "go" / name, folder)
    (folder / "main.go").write_text(source)
    return run.go_build(folder, "3.6", work)


def node(source, work):
    folder = pathlib.Path(run.node(work)[1]).parent
    (folder / "queue.js").write_text(source)
    return ["node", str(folder / "queue.js")]


def c(source, work):
    flags = run.command("libcurl or jansson is not there", ["pkg-config", "--cflags", "--libs", "libcurl", "jansson"],
                        run.Skip, 60).split()
    path = work / "queue.c"
    path.write_text(source)
    run.command("the program does not build", ["cc", "-Wall", "-Wextra", "-O1", "-o", str(work / "queue-c"), str(path),
                                               *flags], AssertionError, 120)
    return [str(work / "queue-c")]


LANGUAGES = {"python": python, "go": go, "js": node, "c": c}


def try_pair(server, producer, consumer, queue):
    """What went wrong, or nothing."""
    address, count = f"127.0.0.1:{server.port}", str(COUNT)
    taker = subprocess.Popen(consumer + ["consume", address, queue, count], stdout=subprocess.PIPE, text=True)
    try:
        maker = subprocess.run(producer + ["produce", address, queue, count], timeout=WAIT_S, check=False)
        out = taker.communicate(timeout=WAIT_S)[0].splitlines()
    except subprocess.TimeoutExpired:
        taker.kill()
        return f"no end; the consumer printed {taker.communicate()[0]!r}"
    if maker.returncode or taker.returncode or out != [f"payload {i}" for i in range(COUNT)]:
        return f"producer {maker.returncode}, consumer {taker.returncode}: {out}"
    return None


def counted(server, name):
    """A counter or gauge of the node, over its shards."""
    _, text, _ = server.ask("GET", "/metrics")
    return sum(int(v) for v in re.findall(rf"^{name}{{[^}}]*}} (\d+)$", text.decode(), re.M))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binaries")
    p.add_argument("page", type=pathlib.Path)
    p.add_argument("--work", type=pathlib.Path, required=True)
    args = p.parse_args()
    args.work = args.work.resolve()
    args.work.mkdir(parents=True, exist_ok=True)
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", args.page.read_text(), re.M | re.S))
    faults, programs = [f"no program in {n}" for n in LANGUAGES if n not in blocks], {}
    left_out = []
    for name in blocks.keys() & LANGUAGES.keys():
        try:
            programs[name] = LANGUAGES[name](blocks[name], args.work)
        except run.Skip as e:
            left_out.append(f"{name}: {e}")
    if len(programs) < 2:
        print(f"skipped: fewer than two languages can be had: {'; '.join(left_out)}")
        return 77
    server = run.ours(os.path.abspath(args.binaries))
    try:
        for maker in programs:
            for taker in programs:
                start = time.monotonic()
                fault = try_pair(server, programs[maker], programs[taker], f"{maker}-{taker}")
                print(f"{maker} to {taker}: {fault or 'ok'}, {time.monotonic() - start:.1f} s", flush=True)
                faults += [f"{maker} to {taker}: {fault}"] if fault else []
        acks, left = counted(server, "ringpost_queue_acks_total"), counted(server, "ringpost_queue_messages")
        if not faults and (acks, left) != (COUNT * len(programs) ** 2, 0):
            faults.append(f"{acks} messages were acknowledged and {left} are left")
    finally:
        status = server.stop()
    if status:
        faults.append(f"ringpostd ended with status {status}")
    print("\n".join(f"FAIL {f}" for f in faults) or
          f"{len(programs) ** 2} pairs of {' '.join(programs)}; left out: {'; '.join(left_out) or 'none'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
