# SPDX-License-Identifier: Apache-2.0
"""Real ringpostd processes, each in a network namespace of its own, joined by a bridge in one more.

    with SpaceCluster(binary_dir, nodes=3) as c: ...
"""
import os
import subprocess

from cluster import Cluster, skip


def ip(*args, ns=None):
    prefix = ["ip", "netns", "exec", ns] if ns else []
    subprocess.run([*prefix, "ip", *args], check=True, capture_output=True)


class SpaceCluster(Cluster):
    def __init__(self, binary_dir, nodes, config=None):
        super().__init__(binary_dir, nodes=nodes, config=config)
        self.hub = f"rp{os.getpid()}-hub"
        self.spaces = [f"rp{os.getpid()}-{i}" for i in range(nodes)]
        for n in self.nodes:
            n.client = f"10.98.0.{n.index + 1}:2379"
            n.prefix = ["ip", "netns", "exec", self.spaces[n.index]]

    def __enter__(self):
        if os.geteuid() != 0:
            skip("namespaces need root")
        try:
            for ns in (self.hub, *self.spaces):
                ip("netns", "add", ns)
        except (subprocess.CalledProcessError, FileNotFoundError) as e:
            skip(f"no network namespaces here: {e}")
        ip("link", "add", "hub", "type", "bridge", ns=self.hub)
        ip("link", "set", "hub", "up", ns=self.hub)
        for i, ns in enumerate(self.spaces):
            ip("link", "add", f"n{i}", "netns", self.hub, "type", "veth", "peer", "name", "eth", "netns", ns)
            ip("link", "set", f"n{i}", "master", "hub", "up", ns=self.hub)
            ip("addr", "add", f"10.98.0.{i + 1}/24", "dev", "eth", ns=ns)
            ip("link", "set", "lo", "up", ns=ns)
            ip("link", "set", "eth", "up", ns=ns)
        return super().__enter__()

    def cut(self, index, down=True):
        """Nothing comes to that node, or goes from it."""
        ip("link", "set", f"n{index}", "down" if down else "up", ns=self.hub)

    def __exit__(self, kind, value, trace):
        try:
            return super().__exit__(kind, value, trace)
        finally:
            for ns in (self.hub, *self.spaces):
                subprocess.run(["ip", "netns", "del", ns], check=False, capture_output=True)
