# SPDX-License-Identifier: Apache-2.0
"""The load client `fire` on two or three nodes, with its progress as it comes."""
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def fields(line):
    return {k: float(v) if "." in v else int(v)
            for k, v in (part.split("=", 1) for part in line.split() if "=" in part)}


class Load:
    def __init__(self, program, nodes, **options):
        command = [program]
        for n in nodes:
            command += ["--endpoint", n.client]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        self.last, self.result, self.ended = {}, None, False
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("result"):
                self.result = fields(line)
                print(line.strip(), flush=True)
            elif line.startswith("t="):
                self.last = fields(line)
        self.ended = True

    def alive(self):
        if self.process.poll() is not None and not self.result:
            raise AssertionError(f"the load ended with status {self.process.returncode}")

    def wait(self, what, seconds, fn):
        """Until fn(progress) is true."""
        end = time.monotonic() + seconds
        while not (self.last and fn(self.last)):
            if self.ended or time.monotonic() > end:
                raise AssertionError(f"the load: waited {seconds} s in vain for: {what} "
                                     f"({self.last})")
            time.sleep(0.02)
        return self.last

    def fresh(self):
        """Progress that is printed from now on."""
        before = self.last.get("t", -1)
        return self.wait("progress", 30, lambda p: p["t"] > before)

    def end(self, seconds):
        """Its result; with a victim, ends the load first."""
        self.process.stdin.close()
        try:
            status = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the load did not end within {seconds} s: {self.last}") from None
        self.reader.join()
        assert status == 0, f"the load found faults: status {status}"
        return self.result

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
