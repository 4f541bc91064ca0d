#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the built sans-I/O libraries call and keep: symbols.py LIBRARY...

Reads undefined symbols (a clock, a socket, a file, a ring) and writable data from each lib<x>.a whose folder
docs/layers.md marks sans-I/O. Memory is taken in functions whose name says that they create.
"""
import pathlib
import re
import subprocess
import sys

import tree

FORBIDDEN = re.compile(
    r"^(clock_\w+|gettimeofday|time|nanosleep|usleep|sleep|timer_\w+|timerfd_\w+"
    r"|socket|connect|bind|listen|accept4?|send|sendto|sendmsg|recv|recvfrom|recvmsg|setsockopt|getsockopt|shutdown"
    r"|poll|ppoll|select|epoll_\w+|eventfd|pipe2?|read|write|readv|writev|pread\w*|pwrite\w*|open|openat|close|fopen|fclose"
    r"|fread|fwrite|printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|fputc|perror|stdout|stderr|__printf_chk|__fprintf_chk"
    r"|rand|srand|random|srandom|rand_r|getrandom|getentropy|arc4random\w*|getenv|syslog|system|fork|exec\w+"
    r"|pthread_\w+|rte_eth_\w+|rte_ring_\w+|rte_get_tsc\w*|rte_get_timer\w*|rte_log|rte_vlog|rte_malloc\w*|rte_zmalloc\w*"
    r"|rte_calloc\w*|rte_realloc\w*|rte_free|rte_eal_\w+|rte_lcore_\w+|rte_delay\w*|exit|_exit|abort)$")
ALLOCATING = {"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "strdup", "strndup", "asprintf", "vasprintf"}
CREATES = re.compile(r"(create|new|init|open|setup|alloc|grow|reserve)")
# Names that instrumented builds add.
INSTRUMENTED = re.compile(r"^(__asan|__ubsan|__odr_asan|_GLOBAL_|__sanitizer|__gcov|__llvm|\.L|__tsan)")

table = tree.layers()
faults, checked = [], 0


def nm(library, *flags):
    out = subprocess.run(["nm", *flags, library], check=True, capture_output=True, text=True).stdout
    member = "?"
    for line in out.splitlines():
        if line.endswith(":"):
            member = line[:-1]
        elif line.split():
            parts = line.split()
            yield member, parts[-2], parts[-1]


def is_relro(library):
    """Writable data of position-independent code may be a constant table of pointers: those are .data.rel.ro."""
    out = subprocess.run(["objdump", "-t", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in out.splitlines() if ".data.rel.ro" in line}


def check_allocations(folder):
    for path in tree.files("*.c", under=[f"lib/{folder}"]):
        text = path.read_text()
        lines = tree.without_comments(text).splitlines()
        for function, first, last in tree.functions(text):
            if CREATES.search(function):
                continue
            for number in range(first, last + 1):
                m = re.search(r"\b(%s)\s*\(" % "|".join(ALLOCATING), lines[number - 1])
                if m:
                    faults.append(f"{tree.name(path)}:{number}: {m.group(1)} in {function}(), whose name does not "
                                  "say that it creates")


for library in sys.argv[1:]:
    folder = pathlib.Path(library).parent.name
    if folder not in table or not table[folder].sans_io:
        continue
    checked += 1
    constant = is_relro(library)
    for member, kind, symbol in nm(library):
        if kind == "U" and FORBIDDEN.match(symbol):
            faults.append(f"lib/{folder} {member}: calls {symbol}")
        if kind in "BbDdC" and symbol not in constant and not INSTRUMENTED.match(symbol):
            faults.append(f"lib/{folder} {member}: keeps the variable {symbol}")
    if not table[folder].allocates:
        check_allocations(folder)

tree.verdict("symbols", faults, checked=checked)
