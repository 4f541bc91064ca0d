#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each file of good/ and bad/ through a program that takes ringpostd's command line.

golden.py PROGRAM [--update]

A file's expected output stands beside it as FILE.expected: the status, then the report, then (good/ only) the
lines of --dump-config that are not defaults. Flags to run a file with stand in its first line, after "# flags:".
Every file of good/ is also loaded from its own dump, which must give the same values.
"""
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def run(program, args, cwd):
    return subprocess.run([program, *args], cwd=cwd, capture_output=True, timeout=30)


def text(b):
    return b.decode("utf-8", "backslashreplace")


def flags_of(path):
    first = path.read_bytes().split(b"\n", 1)[0].decode("utf-8", "replace")
    return shlex.split(first[len("# flags:"):]) if first.startswith("# flags:") else []


def values(dump):
    """The dump without its comments."""
    return [re.sub(r" # (default|flag|[^\"]*:\d+)(, was auto)?$", "", line) for line in dump.splitlines()]


def shown(dump):
    """Section heads and what does not come from the defaults."""
    kept = []
    for line in dump.splitlines():
        if line.endswith(":") or not line.endswith("# default"):
            kept.append(line)
    return [l for i, l in enumerate(kept) if not (l.endswith(":") and not l.startswith(" ") and
            (i + 1 == len(kept) or not kept[i + 1].startswith(" ")))]


def output_of(program, path, good):
    request = "--dump-config" if good else "--check-config"
    got = run(program, ["--config", path.name, request, *flags_of(path)], path.parent)
    lines = [f"status {got.returncode}", *text(got.stderr).splitlines()]
    if good:
        lines += shown(text(got.stdout))
    return "\n".join(lines) + "\n", got


def round_trip(program, path, dump):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "again.yml").write_bytes(dump)
        got = run(program, ["--config", "again.yml", "--dump-config"], folder)
    if got.returncode != 0 or values(text(got.stdout)) != values(text(dump)):
        return f"{path.name}: its dump does not load to the same values\n{text(got.stderr)}"
    return None


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    update = "--update" in sys.argv
    failures = []
    count = 0
    for folder in ("good", "bad"):
        for path in sorted((HERE / folder).glob("*.yml")):
            count += 1
            out, got = output_of(program, path, folder == "good")
            expected = path.with_name(path.name + ".expected")
            if folder == "bad" and got.returncode == 0:
                failures.append(f"{path.name}: taken, and is not sound")
            if folder == "good" and got.returncode != 0:
                failures.append(f"{path.name}: refused, and is sound\n{out}")
            if folder == "good" and got.returncode == 0:
                failures += filter(None, [round_trip(program, path, got.stdout)])
            if update:
                expected.write_text(out)
            elif not expected.exists() or expected.read_text() != out:
                failures.append(f"{path.name}: got\n{out}")
    for f in failures:
        print(f)
    print(f"{count} files, {len(failures)} failures")
    return 1 if failures or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
