#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a page of the tree with what makes it: same.py PAGE PROGRAM ARGUMENT..."""
import difflib
import pathlib
import subprocess
import sys

page = pathlib.Path(sys.argv[1])
made = subprocess.run(sys.argv[2:], check=True, capture_output=True, text=True).stdout
kept = page.read_text()
if made != kept:
    sys.stdout.writelines(difflib.unified_diff(kept.splitlines(True), made.splitlines(True),
                                               str(page), "made now"))
    print(f"{page} is old; write it again: {' '.join(sys.argv[2:])} > {page}")
    sys.exit(1)
