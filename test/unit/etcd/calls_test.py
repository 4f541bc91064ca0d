#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of calls in docs/etcd-compat.md: calls_test.py SOURCES

Each call of the .proto files has a row, each row is such a call, and each test of a row names the call: by its
path, or by a function or macro of the tests' headers that has the path. The matrix of clients has the same calls.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "test/clients"))
from calls import BESIDES, ETCD, calls, short
from errors_test import test_files, texts

BEGIN, END = "<!-- begin calls -->", "<!-- end calls -->"
CLIENTS_BEGIN, CLIENTS_END = "<!-- begin client calls:", "<!-- end client calls -->"


def rows_of(page, begin, end):
    lines = page[page.index(begin):page.index(end)].splitlines()
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]


def paths(text, prefixes):
    """The calls that a text names: whole, or as PREFIX("Method")."""
    out = set(re.findall(r'"(/[\w.]+/\w+)"', text))
    for prefix, service in prefixes.items():
        out |= {f"{service}{method}" for method in re.findall(rf'\b{prefix}\("(\w+)"\)', text)}
    return out


def prefixes_of(text):
    return dict(re.findall(r'#define (\w+)\(name\) "(/[\w.]+/)" name', text))


def helpers(headers):
    """{name: calls} of the headers' macros and functions."""
    prefixes, out = prefixes_of(headers), {}
    for name, path in re.findall(r'#define (\w+) "(/[\w.]+/\w+)"', headers):
        out[name] = {path}
    functions = re.findall(r"^static inline [^;{}]*?\b(\w+)\([^;{}]*?\)\n\{\n(.*?)^\}", headers, re.M | re.S)
    for _ in range(3):  # a function may call one that stands before or behind it
        for name, body in functions:
            used = {c for n, found in out.items() if re.search(rf"\b{n}\b", body) for c in found}
            out[name] = out.get(name, set()) | paths(body, prefixes) | used
    return {name: found for name, found in out.items() if found}


def named(text, headers, known):
    """The calls that a test names; a function of the headers has the rig as its first argument."""
    out = paths(text, {**prefixes_of(headers), **prefixes_of(text)})
    for name, found in known.items():
        if re.search(rf"\b{name}\b" if name.isupper() else rf"\b{name}\(r\b", text):
            out |= found
    return out


def main():
    page = (ROOT / "docs/etcd-compat.md").read_text()
    wanted = {short(c): c for c in calls(ROOT, ETCD + BESIDES)}
    tests, faults = texts(ROOT / "test"), []
    headers = "".join(t for p, t in tests.items() if p.suffix == ".h" and p.parent.name == "etcd")
    known = helpers(headers)
    rows = rows_of(page, BEGIN, END)
    for name in sorted(set(wanted) - {r[0] for r in rows}):
        faults.append(f"{name}: is not in the table of calls")
    for name, where in rows:
        if name not in wanted:
            faults.append(f"{name}: there is no such call")
            continue
        for part in where.split("; "):
            for test, files in test_files(part, tests):
                if not files:
                    faults.append(f"{name}: there is no test {test}")
                elif not any(wanted[name] in named(tests[f], headers, known) for f in files):
                    faults.append(f"{name}: {test} does not name it")
    in_matrix = [r[0].strip("`") for r in rows_of(page, CLIENTS_BEGIN, CLIENTS_END)]
    if in_matrix != [short(c) for c in calls(ROOT, ETCD)]:
        faults.append("the calls of the clients' matrix are not those of the .proto files: ninja clients-page writes it")
    for fault in faults:
        print(f"FAIL {fault}")
    print(f"{len(rows)} calls, {len(faults)} faults")
    return 1 if faults or len(rows) < 50 else 0


if __name__ == "__main__":
    sys.exit(main())
