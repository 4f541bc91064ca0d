#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each header compiles alone, and twice: headers.py COMPILER FLAG..."""
import concurrent.futures
import os
import subprocess
import sys

import tree


def compile_alone(path):
    relative = path.relative_to(tree.LIB)
    target = f'"{path}"' if path.name.endswith("_priv.h") else f"<{relative}>"
    source = f"#include {target}\n#include {target}\nint rp_lint_unit;\n"
    got = subprocess.run([*sys.argv[1:], f"-I{tree.LIB}", "-Wall", "-Wextra", "-Wno-unused-parameter",
                          "-Wno-missing-field-initializers", "-Werror", "-fsyntax-only", "-x", "c", "-"],
                         input=source, capture_output=True, text=True)
    return path, got.returncode, got.stderr


headers = tree.files("*.h", under=["lib"])
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    results = list(pool.map(compile_alone, headers))
faults = [f"{tree.name(p)} does not compile alone:\n{err}" for p, code, err in results if code]
tree.verdict("headers", faults, checked=len(headers))
