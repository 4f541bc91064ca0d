#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Queues and prefixes into a real PostgreSQL: sink_postgres.py BINARIES SINK_LOAD [long].

Upserts, values that can never go in, what passes another time, several on their way at once, connections that are lost,
a server that is away under load, prefixes. `long`: away for a minute under 5,000 messages/s, and what another queue
notices of it.
"""
import json
import subprocess
import sys

from cluster import Cluster, wait_until
from servers import Postgres
from sink_load import Producer, away, depth, other_queues

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
create table late (id int primary key, item int references items (id) deferrable initially deferred);
"""
UPSERT = ("items=public.items:id; /q/odd=odd schema.odd \" table:Key,part; flaky=public.flaky:id;"
          "late=public.late:id; later=public.later:id; load=public.load:id; /conf/=public.conf:name")


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


def held_back(pg, node, producer, table, items):
    """What is put while the table is locked waits, and goes together when it is not any more."""
    with subprocess.Popen([f"{pg.bin}/psql", "-XqAt", "-h", pg.dir, "-U", "postgres"], stdin=subprocess.PIPE,
                          text=True) as psql:
        psql.stdin.write(f"begin; lock table {table} in exclusive mode;\n")
        psql.stdin.flush()
        wait_until("the lock", 10, lambda: pg.query(
            f"select count(*) from pg_locks where mode = 'ExclusiveLock' and relation = '{table}'::regclass") == "1")
        producer.put(table, items)
        wait_until("they wait", 10, lambda: depth(node, table) == len(items))
        psql.stdin.write("commit;\n")
        psql.stdin.close()
        psql.wait(timeout=30)


def together(pg, node, producer):
    """Several on their way at once: each is a transaction, they stay in order over one that is tried again, and one
    that can never go in takes no other with it."""
    pg.query("delete from flaky; alter sequence tries restart with 2; alter sequence steps restart")
    before = node.stats("ringpost_postgres_")
    good = [(f"g{i}", json.dumps({"id": i, "text": f"text {i}"})) for i in range(1, 41)]
    never_in = [("n1", '{"id": "x"}'), ("n2", '{"id": null, "text": "no key"}'), ("n3", '{"id": 50, "what": 1}'),
                ("n4", "{")]
    flaky = [("f", '{"id": 41, "text": "flaky"}')]
    items = good[:10] + never_in[:1] + good[10:20] + flaky + never_in[1:3] + good[20:30] + never_in[3:] + good[30:]
    held_back(pg, node, producer, "flaky", items)
    wait_until("all of them", 30, lambda: depth(node, "flaky") == 0 and pg.query("select count(*) from flaky") == "41")
    wanted = ",".join(str(i) for i in [*range(1, 21), 41, *range(21, 41)])
    assert pg.query("select string_agg(id::text, ',' order by step) from flaky") == wanted, "out of order"
    assert pg.query("select count(distinct xmin::text) from flaky") == "41", "two in one transaction"
    s = node.stats("ringpost_postgres_")
    assert s["postgres_values"] - before["postgres_values"] == 41, s
    assert s["postgres_refused"] - before["postgres_refused"] == 4, s
    assert s["postgres_retries"] - before["postgres_retries"] == 1, s
    wait_until("letters", 10, lambda: depth(node, "pg-dead") == 4)
    node.ctl("dead-letters", "drop", "pg-dead")


def at_commit(pg, node, producer):
    """A constraint that is looked at when the transaction ends: of one alone, and of one among others."""
    producer.put("late", [("alone", '{"id": 1, "item": 777}')])
    wait_until("a letter", 10, lambda: depth(node, "pg-dead") == 1 and depth(node, "late") == 0)
    held_back(pg, node, producer, "late",
              [("a", '{"id": 2, "item": 1}'), ("b", '{"id": 3, "item": 778}'), ("c", '{"id": 4, "item": 1}'),
               ("d", '{"id": 5, "item": 779}'), ("e", '{"id": 6, "item": 2}')])
    wait_until("the good ones", 20, lambda: pg.query("select string_agg(id::text, ',' order by id) from late") == "2,4,6")
    wait_until("letters", 10, lambda: depth(node, "pg-dead") == 3 and depth(node, "late") == 0)
    node.ctl("dead-letters", "drop", "pg-dead")


def cut(pg, node, producer):
    """Connections that end while values are on them: they go again, in order, and are there once."""
    flood = producer.begin("load", 0, 4000, 2000)
    for _ in range(2):
        wait_until("it is at work", 10, lambda: depth(node, "load") > 0 or flood.poll() is not None)
        pg.query("select count(pg_terminate_backend(pid)) from pg_stat_activity where pid <> pg_backend_pid()")
        wait_until("it is back", 20, lambda: depth(node, "load") == 0)
    producer.end(flood)
    wait_until("all of them", 30, lambda: pg.query("select count(*) from load") == "4000" and depth(node, "load") == 0)
    pg.query("delete from load")


def node_ends(pg, binaries, program):
    """The node that writes ends under load: the other one goes on, and each value is there once."""
    config = {"postgres": json.dumps({"url": pg.url, "upsert": "load=public.load:id"})}
    pg.query("truncate load")
    with Cluster(binaries, nodes=2, config=config) as c:
        c.join()
        writer, other = c.nodes
        Producer(writer, program).flood("load", 0, 6000)
        writer.stop()
        wait_until("all of them", 60, lambda: pg.query("select count(*) from load") == "6000")
        wait_until("all acknowledged", 30, lambda: depth(other, "load") == 0)


def main():
    binaries, program, long = sys.argv[1], sys.argv[2], "long" in sys.argv[3:]
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
            producer = Producer(node, program)
            rows(pg, node, producer)
            never(pg, node, producer, True)
            grows(pg, node, producer)
            passes(pg, node, producer)
            prefix(pg, node, producer)
            together(pg, node, producer)
            at_commit(pg, node, producer)
            cut(pg, node, producer)

            def loaded():
                return tuple(map(int, pg.query("select count(*), count(distinct id) from load").split("|")))
            total = away(node, producer, pg, "load", loaded, *((60, 5000) if long else (2, 1500)))
            if long:
                ratios = other_queues(node, producer, pg, "load", loaded, total, 5, 5000)
                assert ratios[2] <= 1.2, "another queue notices it"
        config["postgres"] = json.dumps({"url": pg.url, "upsert": UPSERT})
        with Cluster(binaries, nodes=1, config=config) as c:
            node = c.nodes[0]
            wait_until("the node is ready", 30, node.ready)
            pg.query("delete from items where id >= 100")
            never(pg, node, Producer(node), False)
        node_ends(pg, binaries, program)
    print("ok")


main()
