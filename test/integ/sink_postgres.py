#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Queues and prefixes into a real PostgreSQL: sink_postgres.py BINARIES [long].

Upserts, values that can never go in, what passes another time, a server that is away under load, prefixes.
"""
import json
import sys
import time

from cluster import Cluster, wait_until
from servers import Postgres
from sink_load import Producer, depth, resident_mib

TABLES = """
create table items (id int primary key, text text, n int default 7, at timestamptz default now(),
    check (n < 1000));
create schema "odd schema";
create table "odd schema"."odd "" table" ("Key" text, part int, "Value" jsonb, primary key ("Key", part));
create table conf (name text primary key, seen int, value text);
create sequence steps;
create table trail (step bigint default nextval('steps'), name text, value text);
create function note() returns trigger language plpgsql as $$ begin
    insert into trail (name, value) values (new.name, new.value); return new; end $$;
create trigger note after insert or update on conf for each row execute function note();
create sequence tries;
create table flaky (id int primary key, text text, step bigint default nextval('steps'));
create function flake() returns trigger language plpgsql as $$ begin
    if new.text = 'flaky' and nextval('tries') < 3 then
        raise exception 'not now' using errcode = '40001'; end if;
    return new; end $$;
create trigger flake before insert on flaky for each row execute function flake();
create table load (id int primary key, text text);
"""
UPSERT = ("items=public.items:id; /q/odd=odd schema.odd \" table:Key,part; flaky=public.flaky:id;"
          "later=public.later:id; load=public.load:id; /conf/=public.conf:name")


def rows(pg, node, producer):
    producer.put("items", [("a", '{"id": 1, "text": "one"}'), ("b", '[{"id": 2, "text": "two"}, {"id": 3}]'),
                           ("c", "[]"), ("d", '{"id": 1, "text": "new"}'), ("e", '{"id": 2, "n": 9}')])
    wait_until("all rows", 20, lambda: pg.query("select count(*) from items") == "3" and depth(node, "items") == 0)
    # What a value does not name stays; what it is new with gets the table's default.
    got = pg.query("select id, text, n from items order by id")
    assert got == "1|new|7\n2|two|9\n3||7", got
    producer.put("odd", [("a", json.dumps({"Key": "k", "part": 1, "Value": {"a": [1, "ü"]}}))])
    wait_until("an odd table", 10, lambda: pg.query(
        'select "Value"->\'a\'->>1 from "odd schema"."odd "" table" where "Key" = \'k\'') == "ü")
    s = node.stats("ringpost_postgres_")
    assert s["postgres_values"] == 5 and s["postgres_values_empty"] == 1 and s["postgres_rows"] == 6, s


def never(pg, node, producer, dead):
    bad = [("json", "{"), ("number", '{"id": "x"}'), ("text", "5"), ("inner", '[{"id": 1}, 5]'),
           ("check", '{"id": 8, "n": 1000}'), ("null", '{"text": "no key"}'), ("column", '{"id": 8, "what": 1}'),
           ("twice", '[{"id": 9, "n": 1}, {"id": 9, "n": 2}]'), ("empty", "{}")]
    before = int(pg.query("select count(*) from items"))
    producer.put("items", bad[:5] + [("good-1", '{"id": 100}')] + bad[5:] + [("good-2", '{"id": 101}')])
    wait_until("those behind", 20, lambda: pg.query("select count(*) from items") == str(before + 2))
    if not dead:
        wait_until("refused ones stay", 10, lambda: depth(node, "items") == len(bad))
        assert node.stats("ringpost_postgres_")["postgres_kept"] == len(bad)
        return
    wait_until("letters", 10, lambda: depth(node, "pg-dead") == len(bad) and depth(node, "items") == 0)
    text = node.ctl("dead-letters", "list", "pg-dead", "-j")
    for tail, _ in bad:
        assert f'"{tail}"' in text, (tail, text)
    s = node.stats("ringpost_postgres_")
    assert s["postgres_refused"] == len(bad) and s["postgres_letters"] == len(bad), s
    node.ctl("dead-letters", "drop", "pg-dead")


def grows(pg, node, producer):
    """A column, and a table, that come while the node runs."""
    pg.query("alter table items add column more text")
    producer.put("items", [("m", '{"id": 1, "more": "x"}')])
    wait_until("a new column", 10, lambda: pg.query("select more from items where id = 1") == "x")
    producer.put("later", [("a", '{"id": 1}')])
    wait_until("a letter", 10, lambda: depth(node, "pg-dead") == 1)
    node.ctl("dead-letters", "drop", "pg-dead")
    pg.query("create table later (id int primary key)")
    producer.put("later", [("b", '{"id": 2}')])
    wait_until("a new table", 10, lambda: pg.query("select id from later") == "2")
    # A table made anew has other columns, of other types.
    pg.query("drop table later; create table later (id text primary key, x int)")
    producer.put("later", [("c", '{"id": "three", "x": 1}')])
    wait_until("a table made anew", 10, lambda: pg.query("select id from later") == "three")


def passes(pg, node, producer):
    producer.put("flaky", [("a", '{"id": 1, "text": "flaky"}'), ("b", '{"id": 2, "text": "after"}')])
    wait_until("both", 20, lambda: pg.query("select count(*) from flaky") == "2")
    assert pg.query("select string_agg(id::text, ',' order by step) from flaky") == "1,2", "out of order"
    assert node.stats("ringpost_postgres_")["postgres_retries"] == 2


def prefix(pg, node, producer):
    for i in range(30):
        node.etcdctl("put", f"/conf/k{i % 3}", json.dumps({"name": f"k{i % 3}", "seen": i, "value": f"v{i}"}))
    node.etcdctl("del", "/conf/k0")
    node.etcdctl("put", "/config", '{"name": "outside"}')
    node.etcdctl("put", "/conf/bad", "no json")
    node.etcdctl("put", "/conf/last", '{"name": "last"}')
    wait_until("the last one", 20, lambda: pg.query("select count(*) from conf where name = 'last'") == "1")
    assert pg.query("select count(*) from conf") == "4"
    # In their order: per key, and over all keys, as they were put.
    wanted = ",".join(f"v{i}" for i in range(30))
    assert pg.query("select string_agg(value, ',' order by step) from trail where value is not null") == wanted
    s = node.stats("ringpost_postgres_")
    assert s["postgres_prefix_puts"] == 32 and s["postgres_prefix_deletes"] == 1, s
    wait_until("a letter of a key", 10, lambda: depth(node, "pg-dead") == 1)
    assert "%2Fconf%2Fbad" in node.ctl("queue", "peek", "pg-dead", "-j")
    node.ctl("dead-letters", "drop", "pg-dead")


def away(pg, node, producer, seconds, rate):
    producer.flood("load", 0, rate, rate)
    before = resident_mib(node)
    pg.kill()
    count = rate * seconds
    took = producer.flood("load", rate, count, rate)
    grown = resident_mib(node) - before
    limit = 64 + 2.5 * count * 1024 / (1 << 20)
    print(f"away for {took:.1f} s: {count} messages, {grown:.0f} MiB more (limit {limit:.0f})")
    assert grown < limit
    pg.start()
    begin = time.monotonic()
    total = str(rate + count)
    wait_until("every row", 400, lambda: pg.query("select count(*) from load") == total)
    wait_until("all acknowledged", 30, lambda: depth(node, "load") == 0)
    print(f"{total} values in the table {time.monotonic() - begin:.1f} s later")


def main():
    binaries, long = sys.argv[1], "long" in sys.argv[2:]
    with Postgres() as pg:
        pg.query(TABLES)
        config = {
            "postgres": json.dumps({"url": pg.url, "upsert": UPSERT, "dead_letter": "pg-dead"}),
            "limits": "{queue_depth: 1000000, queue_bytes: 1 GiB}",
        }
        if long:
            config["dpdk"] = "{hugepages: off, memory_mib: 2048}"
        with Cluster(binaries, nodes=1, config=config) as c:
            node = c.nodes[0]
            wait_until("the node is ready", 30, node.ready)
            producer = Producer(node)
            rows(pg, node, producer)
            never(pg, node, producer, True)
            grows(pg, node, producer)
            passes(pg, node, producer)
            prefix(pg, node, producer)
            if long:
                away(pg, node, producer, 60, 5000)
            else:
                away(pg, node, producer, 3, 1000)
        config["postgres"] = json.dumps({"url": pg.url, "upsert": UPSERT})
        with Cluster(binaries, nodes=1, config=config) as c:
            node = c.nodes[0]
            wait_until("the node is ready", 30, node.ready)
            pg.query("delete from items where id >= 100")
            never(pg, node, Producer(node), False)
    print("ok")


main()
