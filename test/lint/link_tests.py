#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each refusal, each reason of an end and each counter of the links is counted in lib and named by an assertion of a unit
test; each that comes over the network by a test on real nodes as well, over both transports."""
import re

import tree

# What has no assertion of its own, and why.
ELSEWHERE = {
    "DOWN_INCOMPLETE": "a bundle that was never up does not go down; `incomplete` counts it",
    "REFUSAL_NONE": "no refusal",
}
# Texts that a real node has to have said, and the program that makes it. Each runs over the transports named there.
NODES = {
    "links.py": ["links.per_peer differs", "TLS", "the secret is wrong"],
    "links_cut.py": ["not finished within links.handshake_grace_ms", "no heartbeat within links.dead_after_ms",
                     "too many handshakes in flight", "not a handshake", "unknown protocol version",
                     "plain or TLS does not match links.tls", "closed before the handshake was over"],
    "fire/rotate.py": ["the secret is wrong", "link_secret_previous"],
    "trust.py": ["another cluster"],
}


def listed(path, macro):
    text = tree.without_comments((tree.ROOT / path).read_text())
    body = re.search(r"#define %s\(X\)((?:[^\n]*\\\n)*[^\n]*)" % macro, text).group(1)
    return re.findall(r"\bX\((\w+)", body)


def assertions(folders):
    """All statements of unit tests that assert something."""
    found = []
    for path in tree.files("*.c", "*.h", under=folders):
        text = tree.without_comments(path.read_text())
        found += re.findall(r"\bassert_\w+\((?:[^;]|\n)*;", text)
        # Rows of a table that a loop asserts.
        found += re.findall(r"^\s*\{?RP_LINK_\w+[^;\n]*\}?,.*$", text, re.M)
        found += re.findall(r"= \{RP_LINK_REFUSAL_(?:[^;]|\n)*;", text)
        found += re.findall(r"^\s*\{RP_CLOSE_\w+, RP_LINK_DOWN_\w+\},$", text, re.M)
    return "\n".join(found)


faults, checked = [], 0
link = assertions(["test/unit/link", "test/unit/ktcp"])
code = "\n".join(tree.without_comments(p.read_text()) for p in tree.files("*.c", under=["lib/link", "lib/ktcp"]))
for kind, macro in (("DOWN", "RP_LINK_DOWNS"), ("REFUSAL", "RP_LINK_REFUSALS")):
    for name in listed("lib/link/link.h", macro):
        checked += 1
        whole = f"RP_LINK_{kind}_{name}"
        if not re.search(rf"\b{whole}\b", code):
            faults.append(f"lib/link: nothing gives {whole}")
        if f"{kind}_{name}" not in ELSEWHERE and not re.search(rf"\b{whole}\b", link):
            faults.append(f"test/unit/link: no assertion names {whole}")
for path, macro in (("lib/link/link.h", "RP_LINK_COUNTERS"), ("lib/ktcp/ktcp.h", "RP_KTCP_COUNTERS")):
    for name in listed(path, macro):
        checked += 1
        if not re.search(rf"counters\.{name}\b", code):
            faults.append(f"{path}: nothing counts {name}")
        if not re.search(rf"(?:->|, ){name}\b", link):
            faults.append(f"test/unit: no assertion names the counter {name} of {path}")
for program, texts in NODES.items():
    path = tree.ROOT / "test" / "integ" / program
    for text in texts:
        checked += 1
        if not path.exists() or text not in path.read_text():
            faults.append(f"test/integ/{program}: does not look for {text!r}")
tree.verdict("link_tests", faults, checked=checked)
