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
    if path.suffix == ".h":
        defined |= set(re.findall(r"\b(rp_\w+)\s*\(", tree.without_comments(text)))
    mentioned |= set(re.findall(r"\b[a-z]\w+\b", text))

# The counters of a module: lists of its headers and .def files; the control engine's go by "control".
lists = {}
for path in tree.files("*.h", "*_counters.def", under=["lib"]):
    text = tree.without_comments(path.read_text())
    bodies = [text] if path.suffix == ".def" else \
        re.findall(r"#define RP_\w+_(?:COUNTERS|STATS)\(X\)((?:[^\n]*\\\n)*[^\n]*)", text)
    module = "control" if path.name == "control_engine.h" else path.parent.name
    for body in bodies:
        lists.setdefault(module, set()).update(re.findall(r"\b(?:[XY]|RP_PORT\w*_COUNTER)\((\w+)", body))
knobs = {f"{s}.{n}" for s, n in re.findall(r"^RP_KNOB\((\w+), (\w+)",
                                           (tree.LIB / "conf" / "knobs.def").read_text(), re.M)}

dataflow = tree.ROOT / "docs" / "dataflow.md"
if dataflow.exists():
    for number, line in enumerate(dataflow.read_text().splitlines(), 1):
        for function in re.findall(r"`(\w+)\(\)`", line):
            checked += 1
            if function not in defined:
                faults.append(f"docs/dataflow.md:{number}: no function {function}()")
        for module, counter in re.findall(r"`([a-z]+)\.([a-z]\w*)`", line):
            checked += 1
            if counter not in lists.get(module, set()) and f"{module}.{counter}" not in knobs:
                faults.append(f"docs/dataflow.md:{number}: {module} counts no {counter}")

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
