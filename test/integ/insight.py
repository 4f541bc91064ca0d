#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a running node shows: `show tcp` and `show neighbours`, as JSON against the schemas in docs/schema, and as
tables.

    insight.py BINARIES SOURCE PORT
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios
import uuid

from cluster import Cluster, need, skip, wait_until

SCHEMAS = pathlib.Path(sys.argv[2]) / "docs" / "schema"


def shown(node, what, *args):
    """JSON of `show`, found to follow its schema."""
    value = json.loads(node.ctl("show", what, "-j", *args))
    schema = json.loads((SCHEMAS / f"show_{what}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(value)
    return value


def on_terminal(node, columns, *args):
    """Lines that ringpostctl writes on a terminal of that width."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    subprocess.run([os.path.join(node.cluster.bin, "ringpostctl", "ringpostctl"),
                    "--endpoint", f"unix:{node.admin}", *args], stdout=its, check=True, timeout=30)
    os.close(its)
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(ours)
    return text.decode().splitlines()


def send(a, b, count):
    """Messages from a to a consumer at b."""
    w = b.watch(f"/q/jobs/consumer/{uuid.uuid4()}")
    wait_until("A knows the dispatcher", 10,
               lambda: a.etcdctl("get", "--print-value-only", "/q/jobs").stdout.strip())
    for i in range(count):
        a.etcdctl("put", f"/q/jobs/producer/{uuid.uuid4()}", f"hello {i}" + "." * 4000)
    wait_until("all have arrived", 20,
               lambda: "\n".join(w.lines()).count("hello ") >= count)


def show_tcp(a, b):
    one, = shown(a, "tcp")["connections"]
    other, = shown(b, "tcp")["connections"]
    assert (one["local"], one["peer"]) == (other["peer"], other["local"]), (one, other)
    assert one["passive"] != other["passive"]
    assert one["state"] == other["state"] == "ESTABLISHED"
    assert one["sent_bytes"] > 3 * 4000 and other["received_bytes"] > 3 * 4000
    assert one["srtt_ns"] > 0 and one["rto_ns"] >= one["rto_floor_ns"] >= 5_000_000, one
    assert one["age_ns"] > 0 and one["cwnd_bytes"] >= one["mss_bytes"] > 0
    # The filter takes either end, with its port and without.
    for text in (one["local"], one["peer"], one["peer"].rsplit(":", 1)[0]):
        assert len(shown(a, "tcp", "--conn", text)["connections"]) == 1, text
    assert shown(a, "tcp", "--conn", one["peer"].rsplit(":", 1)[0] + ":1")["connections"] == []
    assert shown(a, "tcp", "--conn", "192.0.2.7")["connections"] == []
    try:
        a.ctl("show", "tcp", "--conn", "nobody")
        raise RuntimeError("a name was taken for an address")
    except AssertionError as e:
        assert "not an endpoint" in str(e), e
    details = a.ctl("show", "tcp", "-l")
    assert re.search(r"rto \S+, floor \S+", details) and "reordering window" in details, details
    for columns in (60, 80, 200):
        lines = on_terminal(a, columns, "show", "tcp")
        assert len(lines) == 2 and all(len(line) <= columns for line in lines), (columns, lines)
        assert one["local"] in lines[1], lines
    print(f"  {lines[0]}\n  {lines[1]}")


def show_neighbours(a, b):
    va, vb = shown(a, "neighbours"), shown(b, "neighbours")
    mine = {x["address"].split("/")[0]: x for x in va["addresses"]}
    other = {x["address"].split("/")[0]: x for x in vb["addresses"]}
    assert mine and all(x["state"] == "valid" for x in mine.values()), va
    peers = [n for n in va["neighbours"] if n["address"] in other]
    assert peers and all(n["mac"] == other[n["address"]]["mac"] for n in peers), (va, vb)
    used = [n for n in peers if n["users"] == 1]
    assert len(used) == 1 and used[0]["confirmed_ago_ns"] is not None, va
    table = a.ctl("show", "neighbours")
    assert "own, valid" in table and used[0]["mac"] in table, table
    print("  " + table.replace("\n", "\n  "))


def main():
    need("etcdctl")
    with Cluster(sys.argv[1], nodes=2, port=sys.argv[3]) as c:
        c.join()
        a, b = c.nodes
        send(a, b, 4)
        show_tcp(a, b)
        show_neighbours(a, b)
    print("what is shown holds")


if __name__ == "__main__":
    try:
        import jsonschema
    except ImportError:
        skip("python3-jsonschema is not installed")
    main()
