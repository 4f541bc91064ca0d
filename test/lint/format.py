#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-format decides: every .c and .h must be as it would write it. Skipped where it is not installed."""
import shutil
import subprocess
import sys

import tree

if not shutil.which("clang-format"):
    print("skipped: clang-format is not installed")
    sys.exit(77)
sources = tree.files("*.c", "*.h", under=["lib", "app", "test"])
got = subprocess.run(["clang-format", "--dry-run", "-Werror", "--ferror-limit=1", *map(str, sources)],
                     cwd=tree.ROOT, capture_output=True, text=True)
bad = sorted({line.split(":")[0] for line in got.stderr.splitlines() if ": error:" in line})
faults = [f"{b.removeprefix(str(tree.ROOT) + '/')}: clang-format -i it" for b in bad]
if got.returncode and not faults:
    faults = [got.stderr]
tree.verdict("format", faults, checked=len(sources))
