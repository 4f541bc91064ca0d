# SPDX-License-Identifier: Apache-2.0
"""What the lint tests share: the files of the tree, the table of docs/layers.md, the verdict."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIB = ROOT / "lib"


def files(*patterns, under=("lib", "app", "test", "tools", "proto", "docs")):
    """Sorted files below the named folders whose name fits a pattern, build folders left out."""
    found = set()
    for folder in under:
        for pattern in patterns:
            found |= {p for p in (ROOT / folder).rglob(pattern) if p.is_file()}
    return sorted(p for p in found if "__pycache__" not in p.parts)


def name(path):
    return str(path.relative_to(ROOT))


class Folder:
    def __init__(self, layer, sans_io, allocates, edges):
        self.layer, self.sans_io, self.allocates, self.edges = layer, sans_io, allocates, edges


def layers():
    """The table of docs/layers.md: name -> Folder."""
    table = {}
    for line in (ROOT / "docs" / "layers.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")]
        if len(cells) == 5 and cells[1].isdigit():
            table[cells[0]] = Folder(int(cells[1]), "sans-I/O" in cells[2], "allocates" in cells[2],
                                     set(re.findall(r"\w+", cells[3])))
    return table


def without_comments(text):
    """Comments and string contents blanked, line numbers kept."""
    def blank(m):
        s = m.group(0)
        if s.startswith("/"):
            return re.sub(r"[^\n]", " ", s)
        return s[0] + s[-1] + " " * (len(s) - 2)
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def functions(text):
    """(name, first line, last line) of each function definition of a C text."""
    lines = without_comments(text).splitlines()
    start, found = None, []
    for i, line in enumerate(lines):
        if line.startswith("{") and start is None:
            head = i - 1
            while head > 0 and (not lines[head].strip() or lines[head][0] in "\t "):
                head -= 1
            m = re.search(r"(\w+)\s*\(", " ".join(lines[head:i]))
            start = (m.group(1) if m and not m.group(1).startswith("__attribute") else "?", head + 1)
        elif line.startswith("}") and start is not None:
            found.append((start[0], start[1], i + 1))
            start = None
    return found


def verdict(what, faults, warnings=(), checked=0):
    for w in warnings:
        print(f"warning: {w}")
    for f in faults:
        print(f"fault: {f}")
    print(f"{what}: {checked} checked, {len(faults)} faults, {len(warnings)} warnings")
    if checked == 0:
        print("nothing was checked")
    sys.exit(1 if faults or checked == 0 else 0)
