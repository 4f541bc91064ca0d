#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of errors in docs/etcd-compat.md: errors_test.py SOURCES

Each text is in the sources of lib and in a test that the row names, or in neither and the row says why; each
text of etcd's in the sources is in the table.
"""
import pathlib
import re
import sys

BEGIN, END = "<!-- begin errors -->", "<!-- end errors -->"
# Texts that are no answer to a call, or of this server alone.
NOT_ERRORS = ("etcdserver: the password cannot be hashed", "etcdserver: hashedPassword is not the base64 of a bcrypt hash",
              "etcdserver: no key to sign a token with", "etcdserver: unknown downgrade action",
              "etcdserver: not ready: the first sync with the peers is not done", "etcdserver: unknown error")


def texts(folder):
    """File: its string constants, joined where C joins them."""
    out = {}
    for path in sorted(folder.rglob("*.[chp]*")):
        if path.suffix in (".c", ".h", ".py"):
            text = path.read_text(errors="replace")
            out[path] = re.sub(r'"\s*\n\s*"', "", text).replace('\\"', '"')
    return out


def test_files(where, tests):
    """The sources of "unit/etcd/kv, txn"."""
    folder, _, first = where.rpartition("/")
    for name in [first.split(",")[0]] + [n.strip() for n in where.split(",")[1:]]:
        wanted = {f"{folder.split('/')[-1]}_{name}_test.c", f"{name}_test.c", f"{name}.py"}
        yield name, [p for p in tests if p.name in wanted and folder in str(p)]


def main():
    root = pathlib.Path(sys.argv[1])
    page = (root / "docs/etcd-compat.md").read_text()
    rows = [[c.strip() for c in line.strip("|").split("|")]
            for line in page[page.index(BEGIN):page.index(END)].splitlines() if line.startswith("| ")][1:]
    lib, tests, faults = texts(root / "lib"), texts(root / "test"), []
    helpers = "".join(t for p, t in tests.items() if p.name == "etcd_auth_rig.h")
    known = set()
    for code, text, where in rows:
        text = text.strip("`")
        short = text.removeprefix("etcdserver: ")
        known.add(text)
        told = re.compile(re.sub(r"%(s|zu)", r"%[.*0-9]*\1", re.escape(short)) + '[": ]')
        used = any(told.search(t) for t in lib.values())
        if where.startswith("none: "):
            if any(f'"{text}"' in t for t in lib.values()):
                faults.append(f"{code} {text}: the sources have it, and the table says that it does not arise")
            continue
        if not used:
            faults.append(f"{code} {text}: nothing in lib says it")
        # A test has what the format makes of it.
        pattern = re.compile(re.sub(r"%(s|zu)", ".+", re.escape(short)))
        for name, files in test_files(where, tests):
            if not files:
                faults.append(f"{code} {text}: there is no test {name}")
            elif not any(pattern.search(tests[f]) for f in files):
                words = re.search(r"#define (\w+) \"[^\"]*" + pattern.pattern + '"', helpers)
                if not words or not any(re.search(rf"\b{words[1]}\b", tests[f]) for f in files):
                    faults.append(f"{code} {text}: {name} does not name it")
    for path, source in lib.items():
        for text in re.findall(r'"(etcdserver: [^"%]+)"', source):
            if text not in known and text not in NOT_ERRORS:
                faults.append(f"{path.name}: {text}: is not in the table")
    for fault in faults:
        print(f"FAIL {fault}")
    print(f"{len(rows)} errors, {len(faults)} faults")
    return 1 if faults or len(rows) < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
