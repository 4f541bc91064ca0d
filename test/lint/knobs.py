#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A knob has an effect or says that it has none: each one that is not UNUSED is read outside lib/conf, and the reverse."""
import re

import tree

# Knobs that are read by a function of lib/conf for its callers.
THROUGH = {"initial_advertise_peer_urls": "rp_conf_peers", "max_request_bytes": "rp_conf_message_bytes",
           "cpus": "rp_conf_resolve", "memory_mib": "rp_conf_resolve", "control_cpu": "rp_conf_resolve",
           "hugepages": "rp_conf_resolve", "idle": "rp_conf_resolve", "transport": "rp_conf_resolve",
           "log_level": "rp_conf_levels_use", "log_levels": "rp_conf_levels_use"}

# A knob's name may be that of another folder's field, so only who has the configuration counts.
HOLDERS = ("node", "ctl", "ringpostd")
text = "\n".join(tree.without_comments(p.read_text()) for p in tree.files("*.c", "*.h", under=["lib", "app"])
                 if p.parts[-2] in HOLDERS)
faults, checked = [], 0
if "rp_conf_load" not in text:
    # Nothing loads a configuration yet, so nothing can be said of any knob.
    print("skipped: no program loads a configuration")
    raise SystemExit(77)
for line in (tree.LIB / "conf" / "knobs.def").read_text().splitlines():
    m = re.match(r"RP_(TOP|KNOB|ITEM)\(([^)]*?)\"", line)
    if not m or line.startswith("RP_LIST"):
        continue
    words = [w.strip() for w in m.group(2).split(",")]
    name = words[0] if m.group(1) == "TOP" else words[1]
    where = "" if m.group(1) == "TOP" else words[0] + "."
    unused = bool(re.search(r"\bUNUSED\b", line))
    owner = "" if m.group(1) != "KNOB" else r"\b%s" % words[0]
    read = bool(re.search(owner + r"(?:\.|->)%s\b(?!\s*\()" % name, text))
    read = read or name in THROUGH and THROUGH[name] in text
    checked += 1
    if unused and re.search(r"\b%s(?:\.|->)%s\b" % (where.rstrip(".") or "conf", name), text):
        faults.append(f"lib/conf/knobs.def: {where}{name} is marked UNUSED and is read")
    if not unused and not read:
        faults.append(f"lib/conf/knobs.def: nothing reads {where}{name}")
tree.verdict("knobs", faults, checked=checked)
