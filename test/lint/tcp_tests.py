#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/tcp.md against the tests: each that it names exists and runs; each RFC and class has one; no class is missing."""
import re

import tree

PAGE = tree.ROOT / "docs" / "tcp.md"
NO_TEST = {"27"}  # the page says why

known = {}
for path in tree.files("*_test.c", under=["test"]):
    folder = path.parent.name
    names = set(re.findall(r"cmocka_unit_test(?:_setup\w*)?\((\w+)", path.read_text()))
    stem = path.stem.removesuffix("_test")
    known[f"{folder}/{stem}"] = names
    if folder == "tcp":
        known[stem] = names

faults, checked, classes, section = [], 0, [], ""
for number, line in enumerate(PAGE.read_text().splitlines(), 1):
    if line.startswith("## "):
        section = line[3:]
    cells = [c.strip() for c in line.strip().strip("|").split("|")]
    if section not in ("RFCs", "Faults of other stacks") or not re.match(r"\|\s*\d", line):
        continue
    found = 0
    for file, test in re.findall(r"`([a-z0-9_/]+)\.(\w+)`", cells[-1]):
        if file.startswith("test/"):
            continue
        found += 1
        if test not in known.get(file, set()):
            faults.append(f"docs/tcp.md:{number}: no test {file}.{test}")
    for script in re.findall(r"`script:([\w./-]+)`", cells[-1]):
        found += 1
        if not (tree.ROOT / "test" / "script" / script).exists():
            faults.append(f"docs/tcp.md:{number}: no script {script}")
    checked += found
    if section != "RFCs":
        classes.append(cells[0])
    if found == 0 and not (section != "RFCs" and cells[0] in NO_TEST):
        faults.append(f"docs/tcp.md:{number}: names no test")
if classes != [str(i) for i in range(1, 34)]:
    faults.append(f"docs/tcp.md: classes {classes}, expected 1 to 33")
tree.verdict("tcp_tests", faults, checked=checked)
