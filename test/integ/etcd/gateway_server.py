# SPDX-License-Identifier: Apache-2.0
"""Servers of etcd's HTTP for the tests: a ringpostd, or whatever else serves it."""
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

WAIT_S = 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, name, argv, port):
        self.name, self.port = name, port
        self.dir = tempfile.mkdtemp(prefix="gateway-")
        self.log = open(os.path.join(self.dir, "log"), "wb")
        self.process = subprocess.Popen(argv(self.dir), cwd=self.dir, stdout=self.log,
                                        stderr=self.log)
        end = time.monotonic() + WAIT_S
        while True:
            try:
                status, _, _ = self.ask("GET", "/health")
                if status == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                print(open(self.log.name, encoding="utf-8", errors="replace").read())
                raise AssertionError(f"{name} does not serve")
            time.sleep(0.05)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def ask(self, method, path, body=None, headers=None, connection=None):
        c = connection or self.connect()
        c.request(method, path, body=body, headers=headers or {},
                  encode_chunked="Transfer-Encoding" in (headers or {}))
        r = c.getresponse()
        data = r.read()
        if not connection:
            c.close()
        return r.status, data, r

    def post(self, path, body):
        text = body if isinstance(body, (str, bytes)) else json.dumps(body)
        status, data, r = self.ask("POST", path, text)
        try:
            return status, json.loads(data)
        except ValueError:
            return status, data.decode()

    def stop(self):
        self.process.terminate()
        status = self.process.wait(timeout=WAIT_S)
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        return status


def ringpost(binaries, *flags):
    port = free_port()
    return Server("ringpost", lambda d: [
        os.path.join(binaries, "ringpostd", "ringpostd"), "--listen-client-urls",
        f"127.0.0.1:{port}", "--kv-initial-revision", "1", *flags], port)
