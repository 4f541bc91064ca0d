#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums meson's JSON test logs up: summary.py [--failed-builds N] [--page FILE] NAME=LOG...

Failed tests are printed with the end of their output, skipped ones with their reason. The last line is
"N passed, N failed, N skipped". --page writes a Markdown page with every test.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


def read(argument):
    name, path = argument.split("=", 1)
    for line in pathlib.Path(path).read_text().splitlines():
        test = json.loads(line)
        yield name, test


def tail(test, lines):
    text = (test.get("stdout") or "") + "\n" + (test.get("stderr") or "")
    return [l for l in text.splitlines() if l.strip()][-lines:]


def page(path, tests):
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=pathlib.Path(__file__).parent,
                            capture_output=True, text=True).stdout.strip()
    out = ["# tools/check --long", "",
           f"{datetime.date.today()}, commit {commit or 'unknown'}, {os.cpu_count()} CPUs, "
           f"{platform.system()} {platform.release()}.", "",
           "| build and suite | test | result | seconds | last line |", "|---|---|---|---|---|"]
    for name, test in tests:
        last = (tail(test, 1) or [""])[0].replace("|", "\\|")[:160]
        out.append(f"| {name} | {test['name']} | {test['result']} | {test['duration']:.1f} | {last} |")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--failed-builds", type=int, default=0)
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("logs", nargs="*")
    args = parser.parse_args()
    tests = [t for log in args.logs for t in read(log)]
    passed = [t for t in tests if t[1]["result"] in PASSED]
    skipped = [t for t in tests if t[1]["result"] in SKIPPED]
    failed = [t for t in tests if t not in passed and t not in skipped]
    for name, test in skipped:
        print(f"skipped: {name}: {test['name']}: {(tail(test, 1) or ['no reason given'])[0]}")
    for name, test in failed:
        print(f"failed: {name}: {test['name']} ({test['result']}, {test['duration']:.1f} s)")
        for line in tail(test, 25):
            print(f"    {line}")
    if args.failed_builds:
        print(f"failed: {args.failed_builds} builds or runs; the reason is above")
    if args.page:
        page(args.page, tests)
        print(f"wrote {args.page}")
    bad = len(failed) + args.failed_builds
    print(f"{len(passed)} passed, {bad} failed, {len(skipped)} skipped")
    sys.exit(1 if bad or not passed else 0)


if __name__ == "__main__":
    main()
