#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages that say which test shows what, against the tests: each test that they name is one of meson's, each case of
one runs in it, and each row names some. docs/cluster.md is such a page as a whole, the others from a heading on."""
import fnmatch
import re
import sys

import tree

PAGES = ("cluster.md", "sinks.md", "bus.md", "queues.md")
HEADING = "## What holds, and which test shows it"
ROOTS = ("unit/", "sim/", "integ/", "docs/", "lint/", "fuzz/", "process/")


def names():
    """From the build files: literal names, and those that a loop puts together, with * for what the loop adds."""
    found = set()
    for path in tree.files("meson.build", under=["test", "docs"]):
        text = path.read_text()
        for a, b in re.findall(r"\b(?:test|benchmark)\('([^']+)'((?:\s*\+\s*[\w\[\]']+)*)", text):
            found.add(a + ("*" if b else ""))
    return found


def cases_of(test):
    """Of a unit test with cmocka; of one whose source has another name, those of its folder. None: it has no cases."""
    folder, stem = test.split("/")[1:3]
    here = tree.ROOT / "test" / "unit" / folder
    paths = [p for p in (here / f"{stem}_test.c", here / f"{folder}_{stem}_test.c") if p.exists()]
    found = set()
    for path in paths or sorted(here.glob("*_test.c")):
        lists = re.findall(r"struct CMUnitTest \w+\[\] = \{(.*?)\n\t\};", path.read_text(), re.S)
        found |= set(re.findall(r"\b\w+\((\w+)", "".join(lists)))
    return found or None


def functions_of(test):
    """Of a test that is a script: what it defines, and has from others."""
    path = tree.ROOT / "test" / "integ" / (test.removeprefix("integ/").replace("/", "_") + ".py")
    text = path.read_text() if path.exists() else ""
    return set(re.findall(r"^def (\w+)", text, re.M)) | set(
        re.findall(r"\w+", " ".join(re.findall(r"^from \w+ import (.*)$", text, re.M))))


def rows():
    """(where, what shows it)"""
    for page in PAGES:
        lines = (tree.ROOT / "docs" / page).read_text().splitlines()
        first = lines.index(HEADING) if HEADING in lines else 0
        for number, line in enumerate(lines[first:], first + 1):
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            if line.startswith("|") and len(cells) == 2 and cells[1] not in ("shown by", "---", ""):
                yield f"docs/{page}:{number}", cells[1]


faults, checked, known = [], 0, names()
for where, shown in rows():
    found, test = int("`tools/" in shown), None
    for word in re.findall(r"[\w/*-]+:?", re.sub(r"\[[^\]]*\]\([^)]*\)|\([^)]*\)", "", shown)):
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
            script = functions_of(test)
            if word not in script and not any(
                    k == family or (not script and fnmatch.fnmatchcase(family, k)) for k in known):
                faults.append(f"{where}: no test {family}")
    checked += found
    if found == 0:
        faults.append(f"{where}: names no test")
tree.verdict("cluster_tests", faults, checked=checked)
