#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages against the code: functions named in docs/dataflow.md exist, links and paths lead somewhere."""
import re

import tree

faults, checked = [], 0
defined, mentioned = set(), set()
for path in tree.files("*.c", "*.h", under=["lib", "app"]):
    text = path.read_text()
    defined |= {f for f, _, _ in tree.functions(text)}
    mentioned |= set(re.findall(r"\b[a-z]\w+\b", text))

dataflow = tree.ROOT / "docs" / "dataflow.md"
if dataflow.exists():
    for number, line in enumerate(dataflow.read_text().splitlines(), 1):
        for function in re.findall(r"`(\w+)\(\)`", line):
            checked += 1
            if function not in defined:
                faults.append(f"docs/dataflow.md:{number}: no function {function}()")
        for counter in re.findall(r"`(?:\w+\.)?(\w+)`", line):
            checked += 1
            if re.match(r"[a-z]+(_[a-z0-9]+)+$", counter) and counter not in mentioned and counter not in defined:
                faults.append(f"docs/dataflow.md:{number}: nothing is called {counter}")

for path in [*sorted(tree.ROOT.glob("*.md")), *tree.files("*.md", under=["docs", "drivers-config", "test"])]:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
            checked += 1
            if "://" not in target and not (path.parent / target).exists():
                faults.append(f"{tree.name(path)}:{number}: nothing at {target}")
        for target in re.findall(r"`((?:lib|app|docs|test|tools|drivers-config|proto)/[\w./-]*)`", line):
            checked += 1
            if not (tree.ROOT / target.rstrip("/")).exists():
                faults.append(f"{tree.name(path)}:{number}: no {target}")

tree.verdict("docs", faults, checked=checked)
