#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/tcp.md against the tests: each that it names exists and runs; each RFC, MUST and class has one; none is missing."""
import re

import tree

PAGE = tree.ROOT / "docs" / "tcp.md"
CLASSES, MUSTS = "Faults of other stacks", "The MUSTs of RFC 9293"
MUSTS_NOT_DONE = {32, 33, 47, 51, 52, 53}  # the page says so

known = {}
for path in tree.files("*_test.c", under=["test"]):
    folder = path.parent.name
    names = set(re.findall(r"cmocka_unit_test(?:_setup\w*)?\((\w+)", path.read_text()))
    stem = path.stem.removesuffix("_test")
    known[f"{folder}/{stem}"] = names
    if folder == "tcp":
        known[stem] = names

faults, checked, classes, musts, section = [], 0, [], [], ""
for number, line in enumerate(PAGE.read_text().splitlines(), 1):
    if line.startswith("## "):
        section = line[3:]
    cells = [c.strip() for c in line.strip().strip("|").split("|")]
    if section not in ("RFCs", MUSTS, CLASSES) or not re.match(r"\|\s*\d", line):
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
    if section == CLASSES:
        classes.append(cells[0])
    elif section == MUSTS:
        musts += map(int, cells[0].split(","))
    if found == 0:
        faults.append(f"docs/tcp.md:{number}: names no test")
if classes != [str(i) for i in range(1, 34)]:
    faults.append(f"docs/tcp.md: classes {classes}, expected 1 to 33")
if sorted(musts) != sorted(set(range(1, 70)) - MUSTS_NOT_DONE):
    faults.append(f"docs/tcp.md: MUSTs {sorted(musts)}, expected 1 to 69 but for {MUSTS_NOT_DONE}")
tree.verdict("tcp_tests", faults, checked=checked)
