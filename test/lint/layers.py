#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes against the table of docs/layers.md, and each folder's dependencies against its includes."""
import re

import tree

DPDK_DATA = {"rte_mbuf.h", "rte_ether.h", "rte_arp.h", "rte_ip.h", "rte_icmp.h", "rte_tcp.h", "rte_udp.h",
             "rte_byteorder.h", "rte_branch_prediction.h", "rte_common.h", "rte_prefetch.h", "rte_mempool.h",
             "rte_hash.h", "rte_hash_crc.h", "rte_jhash.h", "rte_thash.h", "rte_gro.h", "rte_gso.h", "rte_net.h",
             "rte_memcpy.h"}
NO_DPDK = {"base", "conf", "stats", "route", "kv", "repl"}
DPDK_EXCEPTIONS = {"lib/base/mbuf.h"}
IO_HEADERS = {"sys/socket.h", "netinet/in.h", "netinet/tcp.h", "sys/epoll.h", "sys/eventfd.h",
              "poll.h", "sys/select.h", "sys/mman.h", "fcntl.h", "unistd.h", "pthread.h", "sys/time.h",
              "stdatomic.h", "threads.h", "time.h"}

table = tree.layers()
faults, checked = [], 0


def may_include(folder, other):
    me, it = table[folder], table[other]
    return folder == other or it.layer < me.layer or other in me.edges


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if m:
            yield number, m.group(1), m.group(2)


def check_private(path, quote, target, where):
    """A private header is reached from its own folder or its own unit test."""
    if not target.endswith("_priv.h"):
        return
    owner = (tree.LIB / target if quote == "<" else path.parent / target).resolve()
    mine = path.parent == owner.parent or (
        tree.ROOT / "test" in path.parents and path.parent.name == owner.parent.name)
    if not mine:
        faults.append(f"{where}: private header of another folder: {target}")


def check_dpdk(path, folder, target, where):
    if not re.match(r"rte_\w+\.h$", target) or tree.name(path) in DPDK_EXCEPTIONS:
        return
    if folder in NO_DPDK:
        faults.append(f"{where}: {target} in {folder}, which has no DPDK")
    elif table[folder].sans_io and target not in DPDK_DATA:
        faults.append(f"{where}: {target} in a sans-I/O folder")
    elif target.startswith("rte_ethdev") and folder != "port":
        faults.append(f"{where}: {target}, and only port uses ethdev")


def dependencies(folder, seen=None):
    """Folders whose dep_ stands in a meson.build, with what those bring."""
    seen = set() if seen is None else seen
    build = tree.LIB / folder / "meson.build"
    for other in re.findall(r"\bdep_(\w+)", build.read_text() if build.exists() else ""):
        if other in table and other != folder and other not in seen:
            seen.add(other)
            dependencies(other, seen)
    return seen


for folder in sorted(p.name for p in tree.LIB.iterdir() if p.is_dir()):
    if folder not in table:
        faults.append(f"lib/{folder}: not in docs/layers.md")
        continue
    used = set()
    for path in tree.files("*.c", "*.h", "*.def", under=[f"lib/{folder}"]):
        checked += 1
        for number, quote, target in includes(path):
            where = f"{tree.name(path)}:{number}"
            check_private(path, quote, target, where)
            check_dpdk(path, folder, target, where)
            if table[folder].sans_io and target in IO_HEADERS:
                faults.append(f"{where}: <{target}> in a sans-I/O folder")
            other = target.split("/")[0]
            if "/" in target and other in table:
                used.add(other)
                if not may_include(folder, other):
                    faults.append(f"{where}: {folder} (layer {table[folder].layer}) may not include {other} "
                                  f"(layer {table[other].layer})")
                if quote == '"':
                    faults.append(f"{where}: another folder is included as <{target}>")
    if (tree.LIB / folder / "meson.build").exists():
        for other in sorted(used - {folder} - dependencies(folder)):
            faults.append(f"lib/{folder}/meson.build: includes {other} and does not name dep_{other}")

for path in tree.files("*.c", "*.h", under=["test", "app"]):
    checked += 1
    for number, quote, target in includes(path):
        check_private(path, quote, target, f"{tree.name(path)}:{number}")

edges = [(a, b) for a in table for b in table[a].edges]
for a, b in edges:
    if b not in table:
        faults.append(f"docs/layers.md: {a} names {b}, which is no folder")
    elif (b, a) in edges:
        faults.append(f"docs/layers.md: {a} and {b} name each other")

tree.verdict("layers", faults, checked=checked)
