# SPDX-License-Identifier: Apache-2.0
"""The calls of the API, as the .proto files have them."""
import re

# Packages of etcd's API, and what every gRPC server has besides.
ETCD = ("etcdserverpb", "v3lockpb", "v3electionpb")
BESIDES = ("grpc.health.v1",)


def calls(root, packages):
    """["/etcdserverpb.KV/Range", ...] in the order of the files; root is that of the sources."""
    out = []
    for path in sorted((root / "proto").rglob("*.proto")):
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.S)
        package = re.search(r"^\s*package\s+([\w.]+)\s*;", text, re.M).group(1)
        if package not in packages:
            continue
        for service, body in re.findall(r"^\s*service\s+(\w+)\s*\{(.*?)^\s*\}", text, re.M | re.S):
            out += [f"/{package}.{service}/{method}" for method in re.findall(r"\brpc\s+(\w+)\s*\(", body)]
    return out


def short(call):
    """/etcdserverpb.KV/Range is "KV Range"."""
    service, method = call.strip("/").split("/")
    return f"{service.rpartition('.')[2]} {method}"
