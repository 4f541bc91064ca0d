#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Queues into a real ClickHouse: sink_clickhouse.py BINARIES [long].

Rows, refused rows, names, a lost answer, a server that is away under load. `long`: away for a minute under 5,000
messages/s.
"""
import json
import sys
import threading
import time

from cluster import Cluster, wait_until
from servers import ClickHouse, Proxy
from sink_load import Producer, depth, resident_mib


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
    producer.flood("ch:again", 0, 500, 100000)
    wait_until("all acknowledged", 30, lambda: depth(node, "ch:again") == 0
               and ch.query("SELECT uniqExact(id) FROM again") == "500")
    assert proxy.lost == 1
    # The block of the lost answer went in twice, the same both times: the table can tell, and merges them. (libcurl
    # itself sends it again where the connection was used before.)
    assert ch.query("SELECT count() FROM again FINAL") == "500"
    assert ch.query("SELECT uniqExact(id, text) FROM again") == "500"


def away(ch, node, producer, seconds, rate):
    ch.query("CREATE TABLE away (id UInt32, text String) ENGINE = MergeTree ORDER BY id")
    producer.flood("ch:away", 0, rate, rate)
    wait_until("the first rows", 20, lambda: ch.query("SELECT count() FROM away") == str(rate))
    wait_until("their acknowledges", 20, lambda: depth(node, "ch:away") == 0)
    before = resident_mib(node)
    ch.kill()
    count = rate * seconds
    took = producer.flood("ch:away", rate, count, rate)
    assert took < 2 * seconds + 5, f"{count} puts took {took:.1f} s"
    grown = resident_mib(node) - before
    limit = 64 + 2.5 * count * 1024 / (1 << 20)
    print(f"away for {took:.1f} s: {count} messages, {grown:.0f} MiB more (limit {limit:.0f})")
    assert grown < limit
    ch.start()
    total = rate + count
    wait_until("every row", 90, lambda: ch.query("SELECT uniqExact(id) FROM away") == str(total))
    wait_until("all acknowledged", 30, lambda: depth(node, "ch:away") == 0)
    assert ch.query("SELECT count() FROM away") == str(total), "rows are doubled"


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


def p99_ms(node, queue, count=300):
    """Of puts on another queue, one at a time."""
    p, times = Producer(node), []
    for i in range(count):
        begin = time.monotonic()
        p.put(queue, [(f"l{i}", "x")])
        times.append(time.monotonic() - begin)
    node.ctl("queue", "purge", queue)
    return sorted(times)[int(count * 0.99) - 1] * 1000


def other_queues(ch, node, producer, pairs):
    """The p99 of another queue's puts while the sink's server is away, against while it is there, by turns."""
    ratios = []
    ch.query("CREATE TABLE turns (id UInt32, text String) ENGINE = MergeTree ORDER BY id")
    first = 0
    for _ in range(pairs):
        figures = []
        for there in (True, False):
            if not there:
                ch.kill()
            load = threading.Thread(target=producer.flood, args=("ch:turns", first, 5000, 2500))
            first += 5000
            load.start()
            time.sleep(0.2)
            figures.append(p99_ms(node, "bystander"))
            load.join()
            if not there:
                ch.start()
        ratios.append(figures[1] / figures[0])
    ratios.sort()
    print(f"p99 of another queue, away to there: {[round(r, 2) for r in ratios]}")
    wait_until("every row", 90, lambda: ch.query("SELECT uniqExact(id) FROM turns") == str(first))
    return ratios[len(ratios) // 2]


def main():
    binaries, long = sys.argv[1], "long" in sys.argv[2:]
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
            producer = Producer(node)
            rows(ch, node, producer)
            refused(ch, node, producer)
            names(ch, node, producer)
            no_table_yet(ch, node, producer)
            lost_answer(ch, node, producer, proxy)
            if long:
                away(ch, node, producer, 60, 5000)
                ratio = other_queues(ch, node, producer, 5)
                assert ratio <= 1.2, f"another queue's p99 is {ratio:.2f} times as long"
            else:
                away(ch, node, producer, 4, 2000)
        proxy.close()
        who_writes(ch, binaries)
    print("ok")


main()
