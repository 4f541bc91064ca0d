#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The message bus with a real Redis: bus.py BINARIES SOURCES STORE_BUS.

Programs written as those of the original bus, with its keys and its JSON, and ours, in both directions: through the
storage alone, and through queues of a node that ride on it.
"""
import base64
import json
import pathlib
import subprocess
import sys
import time
import uuid

from cluster import Cluster, wait_until
from servers import Redis


class Program:
    """A client of the original bus, as its libraries do it."""

    def __init__(self, redis):
        self.redis = redis

    def send(self, command, data, destinations, expiration=20):
        message = {"ver": 1, "uid": "", "cmd": command, "exp": expiration, "try": 2,
                   "dat": base64.b64encode(data.encode()).decode(), "tag": "", "src": 0, "dst": destinations,
                   "ret": str(uuid.uuid4()), "shm": "", "now": int(time.time()), "err": "", "sig": "", "pxy": False}
        self.redis.ask("RPUSH", "msgbus.system.local", json.dumps(message))
        return message

    def take(self, queue, seconds=10):
        found = self.redis.ask("BLPOP", queue, seconds)
        assert found, f"nothing came on {queue}"
        return json.loads(found[1])

    def answer(self, message, data):
        message = {**message, "dat": base64.b64encode(data.encode()).decode(),
                   "dst": [message["src"]], "src": message["dst"][0]}
        self.redis.ask("RPUSH", "msgbus.system.reply", json.dumps(message))


def text(message):
    return base64.b64decode(message["dat"]).decode()


def storage(redis, store_bus):
    """A request goes round: client, storage, worker, storage, client."""
    program = Program(redis)
    bus = subprocess.Popen([store_bus, redis.url, "60"])
    try:
        sent = program.send("calc.add", "2 3", [7, 8])
        jobs = [program.take("msgbus.calc.add") for _ in range(2)]
        assert sorted(j["dst"][0] for j in jobs) == [7, 8], jobs
        for job in jobs:
            assert uuid.UUID(job["uid"]).version == 4 and job["uid"] == jobs[0]["uid"]
            assert text(job) == "2 3" and job["ret"] == sent["ret"] and job["now"] == sent["now"]
            assert set(job) >= set(sent), "a field is lost"
            program.answer(job, str(sum(map(int, text(job).split()))))
        answers = [program.take(sent["ret"]) for _ in range(2)]
        assert [text(a) for a in answers] == ["5", "5"]
        ttl = redis.ask("PTTL", f"msgbus.backlog.{jobs[0]['uid']}")
        assert 10000 < ttl <= 20000, ttl
        wait_until("nothing held", 5, lambda: not [k for k in redis.ask("KEYS", "msgbus.*") if "held" in k])
    finally:
        bus.kill()
        bus.wait()


def shown(node, source):
    import jsonschema  # pylint: disable=import-outside-toplevel
    value = json.loads(node.ctl("bus", "-j"))
    jsonschema.validate(value, json.loads((pathlib.Path(source) / "docs/schema/bus.schema.json").read_text()))
    return value, {q["name"]: q for q in value["queues"]}


def route(node, source, queue):
    import jsonschema  # pylint: disable=import-outside-toplevel
    value = json.loads(node.ctl("route", "explain", queue, "-j"))
    jsonschema.validate(value, json.loads((pathlib.Path(source) / "docs/schema/route_explain.schema.json").read_text()))
    return value


def explained(node, source, storage, peer=None):
    """Its consumers have records, as those of other queues have, and `route explain` says who takes."""
    uuid_text = "11111111-1111-4111-8111-111111111111"
    key = f"/q/calc.who/c/{uuid_text}"
    node.etcdctl("put", key, ";prefetch=3")
    node.etcdctl("put", "/q/calc.who/p/a", "waits")
    before = route(node, source, "calc.who")
    assert (before["bus"], before["depth"], before["consumers_local"], before["places"]) == (storage, 1, 0, []), before
    w = node.watch(key)
    delivered = w.wait("waits")
    me = str(json.loads(node.ctl("status", "-j"))["node"])
    assert node.etcdctl("get", key).stdout.splitlines()[1] == f"{me};prefetch=3"
    now = route(node, source, "calc.who")
    assert (now["consumers_local"], now["depth"], now["in_flight"], now["dispatcher"]) == (1, 0, 1, "0"), now
    assert [(p["node"], p["consumers"], [h["step"] for h in p["hops"]]) for p in now["places"]] == [
        (me, 1, ["put", "take"])], now
    if peer:
        wait_until("the other node knows", 5, lambda: route(peer, source, "calc.who")["consumers_remote"] == 1)
        # None of its shards has a queue of that name for it.
        assert "calc.who" not in peer.ctl("queues", "-j") + node.ctl("queues", "-j")
    assert f"rides on the message bus ({storage})" in node.ctl("route", "explain", "calc.who")
    node.etcdctl("del", delivered)
    w.stop()
    node.watches.remove(w)
    wait_until("the record goes with it", 10, lambda: not node.etcdctl("get", key).stdout)
    if peer:
        wait_until("everywhere", 5, lambda: not peer.etcdctl("get", key).stdout)


def ours_to_theirs(redis, node):
    node.etcdctl("put", "/q/calc.sub/p/job-1", "9 4")
    job = Program(redis).take("msgbus.calc.sub")
    assert (text(job), job["cmd"], job["tag"], job["ver"]) == ("9 4", "calc.sub", "job-1", 1), job
    assert abs(job["now"] - time.time()) < 60 and uuid.UUID(job["uid"])


def theirs_to_ours(redis, node, source):
    w = node.watch("/q/calc.mul/c/11111111-1111-4111-8111-111111111111")
    for i in range(3):
        redis.ask("RPUSH", "msgbus.calc.mul", json.dumps({
            "ver": 1, "uid": f"u-{i}", "cmd": "calc.mul", "dat": base64.b64encode(f"6 {i}".encode()).decode()}))
    redis.ask("RPUSH", "msgbus.calc.mul", "no message at all")
    keys = [w.wait(v) for v in ("6 0", "6 1", "6 2", "no message at all")]
    assert keys[1].endswith("/u-1") and keys[3].endswith("/raw"), keys
    state, queues = shown(node, source)
    assert state["storage"] == "redis" and state["connected"] and queues["msgbus.calc.mul"]["in_flight"] == 4
    assert node.etcdctl("get", keys[0]).stdout.splitlines()[1] == "6 0"
    for key in keys[:3]:
        r = node.etcdctl("del", key, check=False)
        assert r.stdout.strip() == "1", (key, r)
    assert node.etcdctl("del", keys[0]).stdout.strip() == "0"
    other = keys[3].replace("11111111-1111", "22222222-1111")
    assert "held by another" in node.etcdctl("del", other, check=False).stderr
    held = next(k for k in redis.ask("KEYS", "msgbus.held.*"))
    wait_until("one is held", 5, lambda: redis.ask("LLEN", held) == 1)
    # It dies, and another one gets what it did not acknowledge.
    w.stop()
    node.watches.remove(w)
    second = node.watch("/q/calc.mul/c/33333333-1111-4111-8111-111111111111")
    key = second.wait("no message at all")
    # A reject puts it back after a second.
    begin = time.monotonic()
    node.etcdctl("put", key, "reject: not mine")
    wait_until("it comes again", 10, lambda: second.lines().count("no message at all") == 2)
    assert time.monotonic() - begin > 0.9
    again = [line for line in second.lines() if line.endswith("/raw")][-1]
    assert node.etcdctl("del", again).stdout.strip() == "1"
    wait_until("nothing held", 5, lambda: not redis.ask("KEYS", "msgbus.held.*"))


def limits(redis, node):
    for i in range(5):
        node.etcdctl("put", f"/q/calc.few/p/{i}", "x")
    assert "full" in node.etcdctl("put", "/q/calc.few/p/5", "x", check=False).stderr
    assert redis.ask("LLEN", "msgbus.calc.few") == 5


def gone(redis, node, source):
    w = node.watch("/q/calc.div/c/11111111-1111-4111-8111-111111111111")
    node.etcdctl("put", "/q/calc.div/p/a", "before")
    before = w.wait("before")
    redis.kill()
    begin = time.monotonic()
    r = node.etcdctl("put", "/q/calc.div/p/b", "meanwhile", check=False)
    assert r.returncode != 0 and "cannot be reached" in r.stderr, r.stderr
    assert time.monotonic() - begin < 5
    # Its acknowledge is told to the server when it is back.
    assert node.etcdctl("del", before).stdout.strip() == "1"
    assert not shown(node, source)[0]["connected"]
    redis.start()
    wait_until("it is connected", 10, lambda: shown(node, source)[0]["connected"])
    node.etcdctl("put", "/q/calc.div/p/c", "after")
    assert node.etcdctl("del", w.wait("after")).stdout.strip() == "1"
    wait_until("nothing held", 10, lambda: not redis.ask("KEYS", "msgbus.held.*"))
    w.stop()
    node.watches.remove(w)


def two_nodes(redis, binaries, config, source):
    """Redis hands out: each message to one of two nodes; what a killed node held it gets again when it returns."""
    with Cluster(binaries, nodes=2, config=config) as c:
        c.join()
        a, b = c.nodes
        explained(a, source, "redis", b)
        wa = a.watch("/q/calc.two/c/11111111-1111-4111-8111-111111111111")
        wb = b.watch("/q/calc.two/c/22222222-1111-4111-8111-111111111111")
        time.sleep(0.5)
        for i in range(20):
            (a, b)[i % 2].etcdctl("put", f"/q/calc.two/p/{i}", f"value-{i}")

        def got(w):
            return {line for line in w.lines() if line.startswith("value-")}
        wait_until("all came", 10, lambda: len(got(wa)) + len(got(wb)) == 20)
        assert not got(wa) & got(wb)
        held = got(wa)
        assert held and got(wb)
        wa.stop()
        a.watches.remove(wa)
        a.process.kill()
        a.process.wait()
        a.process = None
        a.start()
        wait_until("it is back", 30, a.ready)
        wa = a.watch("/q/calc.two/c/33333333-1111-4111-8111-111111111111")
        # The watch of before may have ended in time for some to go back, to either node.
        wait_until("what it held", 10, lambda: held <= got(wa) | got(wb))


def main():
    binaries, source, store_bus = sys.argv[1:4]
    with Redis() as redis:
        storage(redis, store_bus)
        config = {
            "store": json.dumps({"url": redis.url, "timeout_ms": 1000}),
            "queues": "{policies: [{match: calc.few, backend: store, depth_max: 5}, "
                      "{match: 'calc.*', backend: store}]}",
        }
        with Cluster(binaries, nodes=1, config=config) as c:
            node = c.nodes[0]
            wait_until("the node is ready", 30, node.ready)
            ours_to_theirs(redis, node)
            theirs_to_ours(redis, node, source)
            limits(redis, node)
            gone(redis, node, source)
            print(node.ctl("bus"))
        two_nodes(redis, binaries, config, source)
    # Without a Redis the bus is the node's own.
    del config["store"]
    with Cluster(binaries, nodes=1, config=config) as c:
        node = c.nodes[0]
        wait_until("the node is ready", 30, node.ready)
        w = node.watch("/q/calc.own/c/11111111-1111-4111-8111-111111111111")
        node.etcdctl("put", "/q/calc.own/p/a", "mine")
        assert node.etcdctl("del", w.wait("mine")).stdout.strip() == "1"
        assert shown(node, source)[0]["storage"] == "memory"
        explained(node, source, "memory")
    print("ok")


main()
