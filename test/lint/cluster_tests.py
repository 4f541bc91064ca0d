#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/cluster.md against the tests: each test that it names is one of meson's (cluster_tests.py NAME...), each case of
one runs in it, and each row names some."""
import fnmatch
import re
import sys

import tree

PAGE = tree.ROOT / "docs" / "cluster.md"
ROOTS = ("unit/", "sim/", "integ/", "docs/", "lint/")


def names():
    """From the build files: literal names, and those that a loop puts together, with * for what the loop adds."""
    found = set()
    for path in tree.files("meson.build", under=["test", "docs"]):
        text = path.read_text()
        for a, b in re.findall(r"\b(?:test|benchmark)\('([^']+)'((?:\s*\+\s*[\w\[\]']+)*)", text):
            found.add(a + ("*" if b else ""))
    return found


def cases_of(test):
    """Of a unit test with cmocka; None: it has no cases."""
    folder, stem = test.split("/")[1:3]
    for name in (f"{stem}_test.c", f"{folder}_{stem}_test.c"):
        path = tree.ROOT / "test" / "unit" / folder / name
        if path.exists():
            lists = re.findall(r"struct CMUnitTest \w+\[\] = \{(.*?)\n\t\};", path.read_text(), re.S)
            return set(re.findall(r"\b\w+\((\w+)", "".join(lists)))
    return None


faults, checked, known = [], 0, names()
for number, line in enumerate(PAGE.read_text().splitlines(), 1):
    cells = [c.strip() for c in line.strip().strip("|").split("|")]
    if not line.startswith("|") or len(cells) != 2 or cells[1] in ("shown by", "---"):
        continue
    where, found, test = f"docs/cluster.md:{number}", 0, None
    for word in re.findall(r"[\w/*-]+:?", re.sub(r"\[[^\]]*\]\([^)]*\)|\([^)]*\)", "", cells[1])):
        if word.startswith(ROOTS):
            test, found = word.rstrip(":"), found + 1
            if not any(fnmatch.fnmatchcase(test, k) or fnmatch.fnmatchcase(k, test) for k in known):
                faults.append(f"{where}: no test {test}")
        elif "/" in word and test:
            # More of the same family: "sim/queues/links, links4".
            faults.append(f"{where}: {word} is no name of a test")
        elif test and test.startswith("unit/") and word:
            checked += 1
            if word not in (cases_of(test) or set()):
                faults.append(f"{where}: {test} has no case {word}")
        elif test:
            family = test.rsplit("/", 1)[0] + "/" + word
            if not any(fnmatch.fnmatchcase(family, k) for k in known):
                faults.append(f"{where}: no test {family}")
    checked += found
    if found == 0:
        faults.append(f"{where}: names no test")
tree.verdict("cluster_tests", faults, checked=checked)
