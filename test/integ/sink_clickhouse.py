#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Queues into a real ClickHouse: sink_clickhouse.py BINARIES SINK_LOAD [long].

Rows, refused rows, names, a lost answer, a server that is away under load, a node that ends while inserts are in doubt.
`long`: away for a minute under 5,000 messages/s, and what another queue notices of it.
"""
import json
import sys

from cluster import Cluster, wait_until
from servers import ClickHouse, Proxy
from sink_load import Producer, away, depth, other_queues


def rows(ch, node, producer):
    ch.query("CREATE TABLE plain (id UInt32, text String) ENGINE = MergeTree ORDER BY id")
    producer.put("ch:plain", [(f"t{i}", json.dumps({"id": i, "text": "a\nb \"q\" ü"})) for i in range(100)])
    producer.put("clickhouse:plain", [("x", '{"id": 100, "text": "two"}\n{"id": 101, "text": "rows"}')])
    wait_until("rows in the table", 20, lambda: ch.query("SELECT count() FROM plain") == "102")
    assert ch.query("SELECT uniqExact(text) FROM plain WHERE id < 100") == "1"
    assert json.loads(ch.query("SELECT text FROM plain WHERE id = 7 FORMAT JSONEachRow"))["text"] == "a\nb \"q\" ü"
    wait_until("everything acknowledged", 10, lambda: node.stats("ringpost_queue_messages")["queue_messages"] == 0)
    assert node.stats("ringpost_clickhouse_rows")["clickhouse_rows"] == 101


def refused(ch, node, producer):
    ch.query("CREATE TABLE strict (id UInt32, text String) ENGINE = MergeTree ORDER BY id")
    ch.query("CREATE TABLE kept (id UInt32, text String) ENGINE = MergeTree ORDER BY id")
    good = [(f"g{i}", json.dumps({"id": i, "text": "good"})) for i in range(60)]
    bad = [("no-json", "nothing"), ("cut", '{"id": 1, "text": "no end}'), ("word", '{"id": "many", "text": ""}'),
           ("field", '{"id": 5, "what": 1}')]
    mixed = good[:20] + bad[:2] + good[20:33] + bad[2:] + good[33:]
    for queue in ("ch:strict", "ch:kept"):
        producer.put(queue, mixed + [("blank", " \n")])
        table = queue[3:]
        wait_until(f"the good rows of {table}", 20, lambda t=table: ch.query(f"SELECT count() FROM {t}") == "60")
    wait_until("letters only", 10, lambda: depth(node, "strict-dead") == 4 and depth(node, "ch:strict") == 0)
    letters = json.loads(node.ctl("dead-letters", "list", "strict-dead", "-j"))
    text = json.dumps(letters)
    for tail, _ in bad:
        assert f'"{tail}"' in text, text
    # Without a queue for them they stay where they are, and the others go on.
    wait_until("refused rows stay", 10, lambda: depth(node, "ch:kept") == 4)
    wait_until("eight rows refused", 10,
               lambda: node.stats("ringpost_clickhouse_rows")["clickhouse_rows_refused"] == 8)
    s = node.stats("ringpost_clickhouse_")
    assert s["clickhouse_rows_empty_dropped"] == 2, s
    assert s["clickhouse_batches_halved"] > 0


def names(ch, node, producer):
    ch.query("CREATE DATABASE `other db`")
    ch.query("CREATE TABLE `other db`.`we``ird \\\\ name` (id UInt32) ENGINE = MergeTree ORDER BY id"
             .replace("``", "\\`"))
    producer.put("ch:other db.we`ird \\ name", [("a", '{"id": 1}')])
    wait_until("a row in a table with an odd name", 20,
               lambda: ch.query("SELECT count() FROM `other db`.`we\\`ird \\\\ name`") == "1")


def no_table_yet(ch, node, producer):
    producer.put("ch:later", [("a", '{"id": 1}')])
    wait_until("a failed insert", 10, lambda: node.stats("ringpost_clickhouse_")
               ["clickhouse_inserts_failed"] > 0)
    assert "ch:later: Code: 60" in node.log_text()
    ch.query("CREATE TABLE later (id UInt32) ENGINE = MergeTree ORDER BY id")
    wait_until("the row", 20, lambda: ch.query("SELECT count() FROM later") == "1")


def lost_answer(ch, node, producer, proxy):
    ch.query("CREATE TABLE again (id UInt32, text String) ENGINE = ReplacingMergeTree ORDER BY id")
    proxy.lose = 1
    producer.flood("ch:again", 0, 500)
    wait_until("all acknowledged", 30, lambda: depth(node, "ch:again") == 0
               and ch.query("SELECT uniqExact(id) FROM again") == "500")
    assert proxy.lost == 1
    # The block of the lost answer went in twice, the same both times: the table can tell, and merges them. (libcurl
    # itself sends it again where the connection was used before.)
    assert ch.query("SELECT count() FROM again FINAL") == "500"
    assert ch.query("SELECT uniqExact(id, text) FROM again") == "500"


def rows_of(ch, table):
    """How many are in the table, and how many different ones."""
    return lambda: tuple(map(int, ch.query(f"SELECT count(), uniqExact(id) FROM {table}").split()))


def who_writes(ch, binaries):
    """The node that has the URL gets the queue, whoever took the first message; and when it is gone, another."""
    ch.query("CREATE TABLE shared (id UInt32, text String) ENGINE = MergeTree ORDER BY id")
    with Cluster(binaries, nodes=3) as c:
        for node in c.nodes[1:]:
            node.stop()
            node.extra["clickhouse_url"] = ch.url
            node.start()
        c.join()
        Producer(c.nodes[0]).put("ch:shared", [("a", '{"id": 1}')])
        wait_until("a row put where no sink is", 30, lambda: ch.query("SELECT count() FROM shared") == "1")
        writer = next(n for n in c.nodes[1:] if n.stats("ringpost_clickhouse_rows")["clickhouse_rows"] == 1)
        other = c.nodes[3 - writer.index]
        Producer(other).put("ch:shared", [("b", '{"id": 2}')])
        wait_until("a row put at the other node", 30, lambda: ch.query("SELECT count() FROM shared") == "2")
        writer.stop()
        Producer(c.nodes[0]).put("ch:shared", [("c", '{"id": 3}')])
        wait_until("a row after the writer's end", 30, lambda: ch.query("SELECT count() FROM shared") == "3")
        wait_until("all acknowledged", 10, lambda: depth(other, "ch:shared") == 0)
        assert other.stats("ringpost_clickhouse_rows")["clickhouse_rows"] >= 1
        sinks_record(c.nodes[0], other)


def sinks_record(node, writer):
    """A sink's own record can be read everywhere, and no client takes its place."""
    me = str(json.loads(writer.ctl("status", "-j"))["node"])

    def records():
        lines = node.etcdctl("get", "--prefix", "/q/ch:shared/c/").stdout.splitlines()
        return [pair for pair in zip(lines[::2], lines[1::2]) if pair[1].split(";")[0] == me]
    wait_until("its record", 5, lambda: len(records()) == 1)
    key, value = records()[0]
    assert value.split(";")[1] == "prefetch=50000", value
    assert writer.etcdctl("get", key).stdout.splitlines()[1] == value
    for n in (node, writer):
        for command in (("put", key, ";prefetch=1"), ("del", key), ("watch", key)):
            r = n.etcdctl(*command, check=False)
            assert "a ClickHouse queue has no consumers" in r.stdout + r.stderr, (command, r)


def in_doubt(ch, binaries, program):
    """The writer stops while the answers of its inserts are lost: another node writes what was not acknowledged, in
    blocks of its own. Nothing is lost, no row is there more often than its insert was sent, and none twice where the
    table knows what makes it the same."""
    for table, engine in (("doubt", "ReplacingMergeTree"), ("doubt_plain", "MergeTree")):
        ch.query(f"CREATE TABLE {table} (id UInt32, text String) ENGINE = {engine} ORDER BY id")
    proxy = Proxy(ch.port, match=b"INSERT")
    config = {"clickhouse_url": f"http://127.0.0.1:{proxy.port}",
              "clickhouse": "{batch_ms: 50, batch_rows: 100, in_flight: 2}"}
    with Cluster(binaries, nodes=2, config=config) as c:
        c.join()
        writer, other = c.nodes
        proxy.lose = 1 << 30
        for table in ("doubt", "doubt_plain"):
            Producer(writer, program).flood(f"ch:{table}", 0, 1000)
        wait_until("answers are lost", 20, lambda: proxy.lost >= 4)
        writer.stop()
        proxy.lose = 0
        for table in ("doubt", "doubt_plain"):
            wait_until("every row", 90, lambda t=table: ch.query(f"SELECT uniqExact(id) FROM {t}") == "1000")
            wait_until("all acknowledged", 30, lambda t=table: depth(other, f"ch:{t}") == 0)
            assert ch.query(f"SELECT uniqExact(id, text) FROM {table}") == "1000"
        doubled = int(ch.query("SELECT count() FROM doubt_plain")) - 1000
        print(f"{proxy.lost} answers lost: {doubled} rows were written again")
        assert 0 < doubled <= 100 * proxy.lost
        assert ch.query("SELECT count() FROM doubt FINAL") == "1000"
    proxy.close()


def main():
    binaries, program, long = sys.argv[1], sys.argv[2], "long" in sys.argv[3:]
    with ClickHouse() as ch:
        proxy = Proxy(ch.port, match=b"INSERT")
        config = {
            "clickhouse_url": f"http://writer:p%40ss%3Aw%2Frd@127.0.0.1:{proxy.port}",
            "clickhouse": "{batch_ms: 50}",
            "limits": "{queue_depth: 1000000, queue_bytes: 1 GiB}",
            "queues": "{policies: [{match: 'ch:strict', dead_letter: strict-dead}]}",
        }
        if long:
            config["dpdk"] = "{hugepages: off, memory_mib: 2048}"
        with Cluster(binaries, nodes=1, config=config) as c:
            node = c.nodes[0]
            wait_until("the node is ready", 30, node.ready)
            producer = Producer(node, program)
            rows(ch, node, producer)
            refused(ch, node, producer)
            names(ch, node, producer)
            no_table_yet(ch, node, producer)
            lost_answer(ch, node, producer, proxy)
            ch.query("CREATE TABLE away (id UInt32, text String) ENGINE = MergeTree ORDER BY id")
            total = away(node, producer, ch, "ch:away", rows_of(ch, "away"), *((60, 5000) if long else (2, 3000)))
            if long:
                ratios = other_queues(node, producer, ch, "ch:away", rows_of(ch, "away"), total, 5, 5000)
                assert ratios[2] <= 1.2, "another queue notices it"
        proxy.close()
        who_writes(ch, binaries)
        in_doubt(ch, binaries, program)
    print("ok")


main()
