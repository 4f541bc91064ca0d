# SPDX-License-Identifier: Apache-2.0
"""Real servers of a test's own: Redis, ClickHouse, PostgreSQL. Each has a folder, a port or socket of its own, and is
stopped by its pid. A server that is not installed skips the test.

    with ClickHouse() as ch:
        ch.query("CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a")
"""
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from cluster import free_port, skip, wait_until


class Server:
    """What they share; a subclass gives command() and answers()."""

    program = ""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="rp-server-")
        os.chmod(self.dir, 0o755)
        self.process = None
        self.log = os.path.join(self.dir, "out")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.kill()
        if exc[0]:
            with open(self.log, encoding="utf-8", errors="replace") as f:
                print(f"--- {self.program}\n{f.read()[-3000:]}")
        shutil.rmtree(self.dir, ignore_errors=True)

    def user(self):
        return None

    def start(self):
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                self.command(), cwd=self.dir, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                user=self.user(), start_new_session=True)

        def up():
            assert self.process.poll() is None, "it ended"
            return self.answers()
        wait_until(f"{self.program} is up", 60, up)

    def send(self, signo):
        self.process.send_signal(signo)

    def kill(self, signo=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signo)
            self.process.wait(timeout=60)
        self.process = None


class Redis(Server):
    program = "redis-server"

    def __init__(self):
        if not shutil.which(self.program):
            skip("redis-server is not installed")
        super().__init__()
        self.path = os.path.join(self.dir, "redis.sock")
        self.url = f"unix://{self.path}"

    def command(self):
        return [self.program, "--port", "0", "--unixsocket", self.path, "--dir", self.dir, "--save", "",
                "--appendonly", "yes", "--appendfsync", "no", "--daemonize", "no"]

    def answers(self):
        return self.ask("PING") == "PONG"

    def ask(self, *command):
        """One command; an error of the server is raised."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(30)
            s.connect(self.path)
            parts = [c if isinstance(c, bytes) else str(c).encode() for c in command]
            s.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
            return self.read(s.makefile("rb"))

    def read(self, f):
        line = f.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:].decode()
        if kind == b"-":
            raise RuntimeError(rest)
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if int(rest) < 0:
                return None
            return f.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return None if int(rest) < 0 else [self.read(f) for _ in range(int(rest))]
        return rest


CONFIG = """<?xml version="1.0"?>
<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <http_port>{http}</http_port>
  <tcp_port>{tcp}</tcp_port>
  <listen_host>127.0.0.1</listen_host>
  <max_concurrent_queries>100</max_concurrent_queries>
  <path>{dir}/data/</path>
  <tmp_path>{dir}/tmp/</tmp_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
</yandex>
"""
USERS = """<?xml version="1.0"?>
<yandex>
  <profiles><default><max_memory_usage>2000000000</max_memory_usage></default></profiles>
  <users>
    <default><password></password><networks><ip>::/0</ip></networks>
      <profile>default</profile><quota>default</quota></default>
    <writer><password>p@ss:w/rd</password><networks><ip>::/0</ip></networks>
      <profile>default</profile><quota>default</quota></writer>
  </users>
  <quotas><default><interval><duration>3600</duration><queries>0</queries><errors>0</errors>
    <result_rows>0</result_rows><read_rows>0</read_rows><execution_time>0</execution_time>
  </interval></default></quotas>
</yandex>
"""


class ClickHouse(Server):
    program = "clickhouse-server"

    def __init__(self):
        found = shutil.which(self.program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin")
        if not found:
            skip("clickhouse-server is not installed")
        super().__init__()
        self.found = found
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        for name, text in (("config.xml", CONFIG.format(http=self.port, tcp=free_port(), dir=self.dir)),
                           ("users.xml", USERS)):
            with open(os.path.join(self.dir, name), "w", encoding="utf-8") as f:
                f.write(text)

    def command(self):
        return [self.found, f"--config-file={self.dir}/config.xml"]

    def answers(self):
        return self.query("SELECT 1") == "1"

    def query(self, sql, data=b"", timeout=30):
        url = f"{self.url}/?{urllib.parse.urlencode({'query': sql})}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=timeout) as r:
                return r.read().decode().strip()
        except urllib.error.HTTPError as e:
            raise RuntimeError(e.read().decode()) from e


class Postgres(Server):
    program = "postgres"

    def __init__(self):
        found = shutil.which("initdb")
        if not found:
            base = "/usr/lib/postgresql"
            for version in sorted(os.listdir(base) if os.path.isdir(base) else [], key=float, reverse=True):
                if os.path.exists(f"{base}/{version}/bin/initdb"):
                    found = f"{base}/{version}/bin/initdb"
                    break
        if not found:
            skip("PostgreSQL is not installed")
        super().__init__()
        self.bin = os.path.dirname(os.path.realpath(found))
        self.data = os.path.join(self.dir, "data")
        if self.user():
            shutil.chown(self.dir, self.user())
        subprocess.run([f"{self.bin}/initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync",
                        "-E", "UTF8", "--no-locale"], check=True, stdout=subprocess.DEVNULL, user=self.user(),
                       cwd=self.dir)
        self.url = f"host={self.dir} port=5432 user=postgres dbname=postgres connect_timeout=5"

    def user(self):
        """A server that refuses to run as root gets the user that its package made."""
        if os.getuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                return pwd.getpwnam(name).pw_uid
            except KeyError:
                continue
        return None

    def command(self):
        return [f"{self.bin}/postgres", "-D", self.data, "-k", self.dir, "-c", "listen_addresses=",
                "-c", "fsync=off", "-c", "shared_buffers=32MB"]

    def answers(self):
        return self.query("select 1") == "1"

    def query(self, sql):
        r = subprocess.run([f"{self.bin}/psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", self.dir, "-U", "postgres",
                            "-c", sql], capture_output=True, text=True, timeout=60, check=False)
        if r.returncode != 0:
            raise RuntimeError(r.stderr)
        return r.stdout.strip()


class Proxy:
    """Between a client and a server on a port: hands bytes on, and can lose a number of answers: what was asked has
    been done by then, and the connection ends without a word."""

    def __init__(self, port, match=b""):
        self.target, self.match = port, match
        self.lose = 0
        self.lost = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        asked = bytearray()
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return

        def up():
            try:
                while data := client.recv(65536):
                    if self.match and len(asked) < 1 << 20:
                        asked.extend(data)
                    server.sendall(data)
            except OSError:
                pass
            finally:
                try:
                    server.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
        threading.Thread(target=up, daemon=True).start()
        try:
            while data := server.recv(65536):
                if self.lose > 0 and self.match in asked:
                    self.lose -= 1
                    self.lost += 1
                    break
                asked.clear()
                client.sendall(data)
        except OSError:
            pass
        for s in (client, server):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def close(self):
        self.listener.close()
