#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Licence lines, white space, unfinished marks; long files and functions are named as warnings."""
import re

import tree

FILE_LINES, FUNCTION_LINES = 800, 70
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

faults, warnings, checked = [], [], 0


def scripts():
    for folder in ("tools", ".ci"):
        for path in sorted((tree.ROOT / folder).rglob("*")) if (tree.ROOT / folder).exists() else []:
            if path.is_file() and path.suffix in ("", ".sh", ".py") and path.read_bytes()[:2] == b"#!":
                yield path


sources = tree.files("*.c", "*.h", "*.def", "*.py", "*.sh", "*.proto", "meson.build") + list(scripts())
for path in [tree.ROOT / "meson.build", *sorted(set(sources))]:
    text = path.read_text()
    lines = text.splitlines()
    where = tree.name(path)
    checked += 1
    if not any("SPDX-License-Identifier: Apache-2.0" in l for l in lines[:3]):
        faults.append(f"{where}: no SPDX line at the top")
    if text and not text.endswith("\n"):
        faults.append(f"{where}: no newline at the end")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            faults.append(f"{where}:{number}: white space at the end")
        if UNFINISHED.search(line) and path != tree.ROOT / "test/lint/text.py":
            faults.append(f"{where}:{number}: unfinished: {line.strip()}")
    if path.suffix == ".py" and "\t" in text:
        warnings.append(f"{where}: tabs, where .editorconfig says spaces")
    if path.suffix in (".c", ".h"):
        if len(lines) > FILE_LINES:
            warnings.append(f"{where}: {len(lines)} lines wants to be two files")
        for function, first, last in tree.functions(text):
            if last - first + 1 > FUNCTION_LINES:
                warnings.append(f"{where}:{first}: {function}() has {last - first + 1} lines")

tree.verdict("text", faults, warnings, checked)
