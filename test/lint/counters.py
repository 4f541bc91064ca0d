#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The registry of drops against the lists of counters: each counter named as a drop is registered, each entry exists."""
import re

import tree

# Records of the store, not frames or messages on their way.
NOT_FRAMES = {("repl", "pull_dropped"), ("repl", "tombstones_dropped")}
DROP = re.compile(r"(^|_)(drop|drops|dropped)(_|$)")

counters, faults = set(), []
for path in tree.files("*.h", "*.def", under=["lib"]):
    text = tree.without_comments(path.read_text())
    module = path.parent.name
    if path.name.endswith("_counters.def"):
        counters |= {(module, n) for n in re.findall(r"^(?:[XY]|RP_\w+)\((\w+),", text, re.M)}
    for listing in re.findall(r"#define RP_\w+_COUNTERS\(X\)((?:[^\n]*\\\n)*[^\n]*)", text):
        counters |= {(module, n) for n in re.findall(r"\bX\((\w+)", listing)}

registry = re.findall(r"^X\((\w+),\s*(\w+),\s*(\w+)\)",
                      (tree.LIB / "stats" / "drop_reason.def").read_text(), re.M)
registered = {(m, c) for m, c, _ in registry}
if len(registered) != len(registry):
    faults.append("lib/stats/drop_reason.def: an entry stands twice")
for module, name in sorted(registered - counters):
    faults.append(f"lib/stats/drop_reason.def: {module} counts no {name}")
for module, name in sorted(counters - registered - NOT_FRAMES):
    if DROP.search(name):
        faults.append(f"lib/{module}: {name} counts drops and is not in lib/stats/drop_reason.def")
tree.verdict("counters", faults, checked=len(counters))
