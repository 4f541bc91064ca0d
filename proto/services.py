#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists every service of the .proto files as C: what walks all services needs no list by hand.

    services.py OUT.c FILE.proto...
"""
import pathlib
import re
import sys


def lower(name):
    """As protoc-c spells it: LeaseGrant is lease_grant, KV is kv, HashKVRequest hash_kvrequest."""
    out, upper_before = "", True
    for c in name:
        out += ("_" if c.isupper() and not upper_before else "") + c.lower()
        upper_before = c.isupper()
    return out


includes, symbols = [], []
out, files = pathlib.Path(sys.argv[1]), sys.argv[2:]
for name in files:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", pathlib.Path(name).read_text(), flags=re.S)
    package = re.search(r"^\s*package\s+([\w.]+)\s*;", text, re.M).group(1)
    services = re.findall(r"^\s*service\s+(\w+)\s*\{", text, re.M)
    prefix = "__".join(lower(part) for part in package.split("."))
    symbols += [f"{prefix}__{lower(s)}__descriptor" for s in services]
    if services:
        includes.append(str(pathlib.Path(name[name.rindex("proto/") + 6:]).with_suffix(".pb-c.h")))
lines = ["#include <services.h>", ""]
lines += [f"#include <{i}>" for i in includes] + [""]
lines += ["const ProtobufCServiceDescriptor *const rp_proto_services[] = {"]
lines += [f"\t&{s}," for s in symbols] + ["\tNULL,", "};", ""]
out.write_text("\n".join(lines))
