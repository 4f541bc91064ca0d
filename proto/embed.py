#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file's bytes as C: embed.py OUT.c IN"""
import pathlib
import sys

data = pathlib.Path(sys.argv[2]).read_bytes()
rows = [",".join(map(str, data[i:i + 24])) for i in range(0, len(data), 24)]
pathlib.Path(sys.argv[1]).write_text(
    "#include <services.h>\n\nconst uint8_t rp_proto_files[] = {\n" + ",\n".join(rows) +
    "};\nconst size_t rp_proto_files_length = sizeof(rp_proto_files);\n")
