#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns driver files into a C table of texts, so that the library needs no file at run time.

usage: embed.py OUTPUT FILE.yaml...
"""
import os
import sys


def quote(line):
    return '"' + line.replace('\\', '\\\\').replace('"', '\\"') + '\\n"'


def main():
    output, files = sys.argv[1], sys.argv[2:]
    with open(output, 'w', encoding='ascii') as out:
        out.write('/* Generated from drivers-config/ by embed.py. */\n#include "port_priv.h"\n\n')
        out.write('const struct port_driver_text port_driver_texts[] = {\n')
        for path in files:
            name = os.path.splitext(os.path.basename(path))[0]
            with open(path, encoding='ascii') as f:
                lines = f.read().splitlines()
            out.write('\t{"%s",\n' % name)
            out.writelines('\t\t%s\n' % quote(line) for line in lines)
            out.write('\t},\n')
        out.write('\t{NULL, NULL},\n};\n')


main()
