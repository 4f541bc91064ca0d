/* SPDX-License-Identifier: Apache-2.0 */

/* The rules of membership and replication, one test each. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <base/log.h>
#include <repl/repl_priv.h>

#include "cluster.h"

static struct cluster cl;

static struct rp_repl *repl(unsigned node)
{
	return cl.nodes[node].repl;
}

static const struct rp_repl_stats *stats(unsigned node)
{
	return rp_repl_get_stats(repl(node));
}

/** All up and Online. */
static void start(unsigned count)
{
	cluster_init(&cl, count, 1);
	for (unsigned i = 0; i < count; i++)
		cluster_up(&cl, i);
	cluster_run(&cl, 2000);
	assert_true(cluster_all_online(&cl));
}

static int end(void **state)
{
	(void)state;
	cluster_free(&cl);
	memset(&cl, 0, sizeof(cl));
	return 0;
}

static void value_is(unsigned node, const char *key, const char *value)
{
	const char *got = cluster_get(&cl, node, key);

	if (!value) {
		assert_null(got);
		return;
	}
	assert_non_null(got);
	assert_string_equal(got, value);
}

/** Sends one record to `to` as if `from` had. */
static int send_record(unsigned from, unsigned to, const struct repl_record *record)
{
	struct repl_hello hello = {.node = cl.nodes[from].id,
		.cluster_high = cl.config.cluster_high,
		.cluster_low = cl.config.cluster_low,
		.ready = true};
	struct repl_buf b = {0};
	struct rp_span answer;
	int error;

	repl_put_hello(&b, REPL_F_HELLO, &hello);
	repl_put_record(&b, REPL_F_APPLY_RECORDS, record);
	error = rp_repl_on_request(repl(to), hello.node, RP_REPL_APPLY, repl_buf_span(&b), &answer,
		cluster_now(&cl, to));
	repl_buf_free(&b);
	return error;
}

static struct repl_record a_record(
	const char *key, const char *value, uint64_t stamp, uint64_t node)
{
	return (struct repl_record){.kv = {.key = cluster_span(key),
					    .value = cluster_span(value ? value : ""),
					    .deleted = !value,
					    .stamp = stamp,
					    .node = node}};
}

/* ---- membership ---- */

static void first_node_boots_alone(void **state)
{
	(void)state;
	cluster_init(&cl, 3, 1);
	cluster_up(&cl, 0);
	assert_int_equal(cluster_put(&cl, 0, "k", "v"), RP_REPL_REFUSED);
	assert_int_equal(stats(0)->refused_not_ready, 1);
	assert_int_equal(rp_repl_state_of(repl(0), 101), RP_REPL_IN_PROGRESS);
	cluster_run(&cl, 50);
	assert_true(rp_repl_ready(repl(0)));
	assert_int_equal(cl.nodes[0].ready_calls, 1);
	assert_true(cl.nodes[0].ready_alone);
	assert_int_equal(cl.nodes[0].seen[0], RP_REPL_ONLINE);
	assert_int_equal(cluster_put(&cl, 0, "k", "v"), RP_REPL_DONE);
	/* Those that come later sync by themselves. */
	cluster_up(&cl, 1);
	cluster_up(&cl, 2);
	cluster_run(&cl, 1500);
	assert_true(cluster_all_online(&cl));
	assert_false(cl.nodes[1].ready_alone);
	value_is(2, "k", "v");
}

/* Alone it would claim the queues that the other has. */
static void a_busy_peer_is_waited_for(void **state)
{
	(void)state;
	cluster_init(&cl, 2, 1);
	cluster_up(&cl, 1);
	cluster_run(&cl, 100);
	assert_int_equal(cluster_put(&cl, 1, "k", "v"), RP_REPL_DONE);
	cl.busy[1] = true;
	cluster_up(&cl, 0);
	cluster_run(&cl, 1500);
	assert_false(rp_repl_ready(repl(0)));
	cl.busy[1] = false;
	cluster_run(&cl, 1400);
	assert_true(rp_repl_ready(repl(0)));
	assert_false(cl.nodes[0].ready_alone);
	value_is(0, "k", "v");
}

static void silent_peers_do_not_keep_a_node_from_booting(void **state)
{
	(void)state;
	cluster_init(&cl, 2, 1);
	cl.config.boot_ms = 700;
	cl.config.timeout_ms = 5000;
	cluster_cut(&cl, 0, 1, true);
	cluster_up(&cl, 0);
	cluster_run(&cl, 690);
	assert_false(rp_repl_ready(repl(0)));
	cluster_run(&cl, 20);
	assert_true(rp_repl_ready(repl(0)));
}

static void no_write_before_the_first_sync(void **state)
{
	(void)state;
	cluster_init(&cl, 2, 1);
	cluster_up(&cl, 0);
	cluster_run(&cl, 100);
	for (unsigned i = 0; i < 2000; i++) {
		char key[32];

		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(cluster_put(&cl, 0, key, "v"), RP_REPL_DONE);
	}
	cl.config.message_bytes = 1000;
	cl.delay_ns_max = 10 * RP_NS_PER_MS;
	cluster_up(&cl, 1);
	for (unsigned i = 0; i < 10000 && !rp_repl_ready(repl(1)); i++) {
		assert_int_equal(cluster_put(&cl, 1, "own", "v"), RP_REPL_REFUSED);
		cluster_run(&cl, 1);
	}
	/* Ready means that all of it is here. */
	assert_true(cluster_equal(&cl, 0, 1));
	value_is(1, "k1999", "v");
	assert_int_not_equal(cluster_put(&cl, 1, "own", "v"), RP_REPL_REFUSED);
}

static void late_peer_comes_back_by_a_sync(void **state)
{
	(void)state;
	start(3);
	cluster_put(&cl, 0, "before", "1");
	cluster_run(&cl, 50);
	cluster_down(&cl, 2);
	cluster_run(&cl, 100);
	assert_int_equal(cl.nodes[0].seen[2], RP_REPL_SPARE);
	cluster_put(&cl, 1, "meanwhile", "2");
	cluster_delete(&cl, 0, "before");
	cluster_up(&cl, 2);
	cluster_run(&cl, 1500);
	assert_true(cluster_all_online(&cl));
	value_is(2, "meanwhile", "2");
	assert_true(cluster_equal(&cl, 0, 2));
	assert_true(cluster_equal(&cl, 1, 2));
}

static void silent_peer_falls_and_returns(void **state)
{
	(void)state;
	start(2);
	cl.hung[1] = true;
	cluster_run(&cl, 400);
	assert_int_equal(cl.nodes[0].seen[1], RP_REPL_ONLINE);
	cluster_run(&cl, 1000);
	assert_int_not_equal(cl.nodes[0].seen[1], RP_REPL_ONLINE);
	assert_true(stats(0)->peer_timeouts > 0);
	cl.hung[1] = false;
	cluster_run(&cl, 2500);
	assert_true(cluster_all_online(&cl));
}

static void syncing_peer_gets_writes_but_does_not_count(void **state)
{
	(void)state;
	cluster_init(&cl, 3, 1);
	cl.config.boot_ms = 60000;
	cl.config.timeout_ms = 30000;
	cluster_up(&cl, 0);
	cluster_run(&cl, 100);
	/* Node 1 waits for node 2, which does not answer its dial. */
	cluster_cut(&cl, 1, 2, true);
	cluster_up(&cl, 1);
	cluster_run(&cl, 1000);
	assert_false(rp_repl_ready(repl(1)));
	assert_int_equal(cl.nodes[0].seen[1], RP_REPL_IN_PROGRESS);
	assert_int_equal(cluster_put(&cl, 0, "k", "v"), RP_REPL_DONE);
	cluster_run(&cl, 20);
	value_is(1, "k", "v");
}

/* ---- the majority ---- */

static void write_waits_for_more_than_half(void **state)
{
	(void)state;
	start(5);
	cl.config.ack_ms = 1000;
	/* Three of four answer. */
	cl.hung[4] = true;
	assert_int_equal(cluster_put(&cl, 0, "a", "1"), RP_REPL_WAITING);
	assert_int_equal(cl.nodes[0].writes_done, 0);
	cluster_run(&cl, 20);
	assert_int_equal(cl.nodes[0].writes_done, 1);
	assert_int_equal(cl.nodes[0].writes_confirmed, 1);
	/* Two of four are not more than half. */
	cl.hung[3] = true;
	assert_int_equal(cluster_put(&cl, 0, "a", "2"), RP_REPL_WAITING);
	cluster_run(&cl, 20);
	assert_int_equal(cl.nodes[0].writes_done, 1);
	cluster_run(&cl, 2000);
	assert_int_equal(cl.nodes[0].writes_done, 2);
	assert_int_equal(cl.nodes[0].writes_confirmed, 1);
	assert_int_equal(stats(0)->writes_unconfirmed, 1);
	/* They have fallen, and the rest is enough again. */
	assert_int_equal(cluster_put(&cl, 0, "a", "3"), RP_REPL_WAITING);
	cluster_run(&cl, 20);
	assert_int_equal(cl.nodes[0].writes_confirmed, 2);
}

static void hung_peer_never_hangs_a_put(void **state)
{
	uint64_t begun;

	(void)state;
	cluster_init(&cl, 2, 1);
	cl.config.timeout_ms = 5000;
	cl.config.ack_ms = 700;
	cluster_up(&cl, 0);
	cluster_up(&cl, 1);
	cluster_run(&cl, 1000);
	assert_true(cluster_all_online(&cl));
	cl.hung[1] = true;
	begun = cl.now_ns;
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(cluster_put(&cl, 0, "a", "1"), RP_REPL_WAITING);
	cluster_run(&cl, 690);
	assert_int_equal(cl.nodes[0].writes_done, 0);
	cluster_run(&cl, 11);
	assert_int_equal(cl.nodes[0].writes_done, 100);
	assert_int_equal(cl.nodes[0].done_ns - begun, 700 * RP_NS_PER_MS);
	assert_int_equal(stats(0)->writes_unconfirmed, 100);
	value_is(0, "a", "1");
	cl.hung[1] = false;
	cluster_run(&cl, 8000);
	value_is(1, "a", "1");
}

static void full_queue_makes_a_peer_spare(void **state)
{
	(void)state;
	cluster_init(&cl, 2, 1);
	cl.config.timeout_ms = 5000;
	cl.config.queue_writes = 10;
	cluster_up(&cl, 0);
	cluster_up(&cl, 1);
	cluster_run(&cl, 1000);
	cl.hung[1] = true;
	for (unsigned i = 0; i < 30; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%u", i);
		cluster_put(&cl, 0, key, "v");
	}
	cluster_run(&cl, 1);
	assert_int_equal(stats(0)->peer_overflows, 1);
	assert_int_equal(cl.nodes[0].seen[1], RP_REPL_SPARE);
	/* Its ten writes are answered: nobody is left to wait for. */
	assert_int_equal(cl.nodes[0].writes_done, 10);
	cl.hung[1] = false;
	cluster_run(&cl, 10000);
	assert_true(cluster_all_online(&cl));
	assert_true(cluster_equal(&cl, 0, 1));
	value_is(1, "k29", "v");
}

/* ---- merging ---- */

static void last_writer_wins(void **state)
{
	struct repl_record r;
	uint64_t stamp;

	(void)state;
	start(2);
	cluster_cut(&cl, 0, 1, true);
	cluster_run(&cl, 1000);
	cluster_put(&cl, 0, "k", "early");
	cluster_run(&cl, 10);
	cluster_put(&cl, 1, "k", "late");
	cluster_put(&cl, 1, "d", "early");
	cluster_run(&cl, 10);
	cluster_delete(&cl, 0, "d");
	cluster_put(&cl, 0, "d", "x");
	cluster_delete(&cl, 0, "d");
	cluster_cut(&cl, 0, 1, false);
	cluster_run(&cl, 3000);
	value_is(0, "k", "late");
	value_is(1, "d", NULL);
	assert_true(cluster_equal(&cl, 0, 1));
	/* A tie goes to the higher node id, in either order of arrival. */
	stamp = cluster_now(&cl, 0).wall_us;
	r = a_record("tie", "high", stamp, 900);
	assert_int_equal(send_record(1, 0, &r), 0);
	r = a_record("tie", "low", stamp, 800);
	assert_int_equal(send_record(1, 0, &r), 0);
	value_is(0, "tie", "high");
	r = a_record("tie", "higher", stamp, 901);
	assert_int_equal(send_record(1, 0, &r), 0);
	value_is(0, "tie", "higher");
}

static void stamp_too_far_ahead_is_refused(void **state)
{
	uint64_t wall;
	struct repl_record r;

	(void)state;
	cluster_init(&cl, 2, 1);
	cl.nodes[1].skew_us = 2 * 3600 * 1000000ll;
	cluster_up(&cl, 0);
	cluster_up(&cl, 1);
	cluster_run(&cl, 1000);
	cluster_put(&cl, 1, "k", "from the future");
	cluster_put(&cl, 0, "j", "from now");
	cluster_run(&cl, 2000);
	value_is(0, "k", NULL);
	value_is(1, "j", "from now");
	assert_true(stats(0)->records_skew > 0);
	/* The bound itself is fine. */
	wall = cluster_now(&cl, 0).wall_us;
	r = a_record("edge", "in", wall + 3600000000ull, 102);
	send_record(1, 0, &r);
	value_is(0, "edge", "in");
	r = a_record("edge", "out", wall + 3600000001ull, 102);
	send_record(1, 0, &r);
	value_is(0, "edge", "in");
	/* Here the clock followed the edge, so our own writes still win. */
	cluster_put(&cl, 0, "edge", "ours");
	value_is(0, "edge", "ours");
}

static void dispatcher_records_merge_by_epoch(void **state)
{
	(void)state;
	start(2);
	cluster_cut(&cl, 0, 1, true);
	cluster_run(&cl, 1000);
	cluster_put(&cl, 0, "/q/a", "101;epoch=8");
	cluster_put(&cl, 0, "/q/b", "101;epoch=8");
	cluster_put(&cl, 0, "/q/c", "101;epoch=8");
	cluster_delete(&cl, 0, "/q/c");
	cluster_put(&cl, 0, "/q/d", "101;epoch=8");
	cluster_delete(&cl, 0, "/q/d");
	cluster_run(&cl, 10);
	/* All of these are later. */
	cluster_put(&cl, 1, "/q/a", "102;epoch=7");
	cluster_put(&cl, 1, "/q/b", "102;epoch=8");
	cluster_put(&cl, 1, "/q/c", "102;epoch=8");
	cluster_put(&cl, 1, "/q/d", "102;epoch=9");
	cluster_cut(&cl, 0, 1, false);
	cluster_run(&cl, 3000);
	for (unsigned i = 0; i < 2; i++) {
		value_is(i, "/q/a", "101;epoch=8");
		value_is(i, "/q/b", "102;epoch=8");
		value_is(i, "/q/c", NULL);
		value_is(i, "/q/d", "102;epoch=9");
	}
	assert_true(cluster_equal(&cl, 0, 1));
	/* The same epoch and node: the later write, so that a client can set ;pinned. */
	cluster_put(&cl, 0, "/q/a", "101;pinned;epoch=8");
	cluster_run(&cl, 50);
	value_is(1, "/q/a", "101;pinned;epoch=8");
}

#define CONSUMER_KEY "/q/jobs/c/00000000-0000-4000-8000-000000000001"

static void consumer_records_belong_to_their_host(void **state)
{
	struct repl_record r;

	(void)state;
	start(3);
	cluster_put(&cl, 1, CONSUMER_KEY, "102");
	cluster_run(&cl, 50);
	value_is(0, CONSUMER_KEY, "102");
	/* Somebody adds a capability; the host has it, so it takes it. */
	cluster_put(&cl, 0, CONSUMER_KEY, "102;cap=a");
	cluster_run(&cl, 50);
	value_is(1, CONSUMER_KEY, "102;cap=a");
	/* The host dies and comes back without the consumer: peers drop it. */
	cluster_down(&cl, 1);
	cluster_run(&cl, 500);
	value_is(0, CONSUMER_KEY, "102;cap=a");
	cluster_up(&cl, 1);
	cluster_run(&cl, 2000);
	for (unsigned i = 0; i < 3; i++)
		value_is(i, CONSUMER_KEY, NULL);
	assert_true(stats(1)->host_answered >= 1);
	/* It registers again, and a record of the earlier life turns up that is newer. */
	cluster_put(&cl, 1, CONSUMER_KEY, "102;cap=b");
	cluster_run(&cl, 50);
	r = a_record(CONSUMER_KEY, NULL, cluster_now(&cl, 0).wall_us + 5000000, 102);
	send_record(0, 1, &r);
	r = a_record(CONSUMER_KEY, "102;cap=old", cluster_now(&cl, 0).wall_us + 9000000, 102);
	send_record(0, 1, &r);
	assert_int_equal(stats(1)->host_restored, 2);
	cluster_run(&cl, 50);
	for (unsigned i = 0; i < 3; i++)
		value_is(i, CONSUMER_KEY, "102;cap=b");
	/* A client deletes the registration elsewhere: a leave. */
	cluster_delete(&cl, 2, CONSUMER_KEY);
	cluster_run(&cl, 50);
	for (unsigned i = 0; i < 3; i++)
		value_is(i, CONSUMER_KEY, NULL);
	/* And who did not hear of it in time is answered. */
	r = a_record(CONSUMER_KEY, "102;cap=c", rp_kv_stamp(cl.nodes[1].kv) + 1, 101);
	send_record(0, 1, &r);
	value_is(1, CONSUMER_KEY, NULL);
	cluster_run(&cl, 50);
	assert_true(cluster_equal(&cl, 0, 1));
}

static void bad_records_are_refused(void **state)
{
	uint64_t stamp;
	struct repl_record r;

	(void)state;
	start(2);
	stamp = cluster_now(&cl, 0).wall_us;
	r = a_record("/q/jobs/p/tail", "traffic", stamp, 102);
	send_record(1, 0, &r);
	r = a_record("/q/", "no name", stamp, 102);
	send_record(1, 0, &r);
	r = a_record("", "no key", stamp, 102);
	send_record(1, 0, &r);
	r = a_record("k", "no stamp", 0, 102);
	send_record(1, 0, &r);
	r = a_record("k", "no node", stamp, 0);
	send_record(1, 0, &r);
	assert_int_equal(stats(0)->records_invalid, 5);
	assert_int_equal(stats(0)->records_taken, 0);
}

static bool not_local(void *ctx, uint64_t node, struct rp_span key)
{
	(void)ctx;
	(void)node;
	return key.length < 6 || memcmp(key.data, "local/", 6) != 0;
}

static void local_keys_never_leave(void **state)
{
	struct rp_kv_op ops[2] = {
		{.type = RP_KV_OP_PUT,
			.put = {.key = cluster_span("local/t"), .value = cluster_span("1")}},
		{.type = RP_KV_OP_PUT,
			.put = {.key = cluster_span("shared/t"), .value = cluster_span("1")}},
	};
	struct rp_kv_txn txn = {.success = ops, .success_count = 2};
	struct rp_kv_result result;
	struct repl_record r;

	(void)state;
	cluster_init(&cl, 2, 1);
	cl.eligible = not_local;
	cluster_up(&cl, 0);
	cluster_up(&cl, 1);
	cluster_run(&cl, 1000);
	/* Nobody is eligible, so nobody is waited for. */
	assert_int_equal(cluster_put(&cl, 0, "local/k", "v"), RP_REPL_DONE);
	cl.nodes[0].writes_waiting++;
	assert_int_equal(
		rp_repl_propose(repl(0), &txn, 2, &result, cluster_now(&cl, 0)), RP_REPL_WAITING);
	rp_kv_result_clear(&result);
	cluster_run(&cl, 200);
	assert_int_equal(cl.nodes[0].writes_confirmed, 1);
	value_is(1, "shared/t", "1");
	value_is(1, "local/t", NULL);
	/* Nor by the sync of a reconnect. */
	cluster_down(&cl, 1);
	cluster_run(&cl, 100);
	cluster_up(&cl, 1);
	cluster_run(&cl, 2000);
	value_is(1, "shared/t", "1");
	value_is(1, "local/k", NULL);
	r = a_record("local/k", "theirs", cluster_now(&cl, 0).wall_us + 1, 102);
	send_record(1, 0, &r);
	value_is(0, "local/k", "v");
	assert_int_equal(stats(0)->records_policy, 1);
}

/* ---- anti-entropy ---- */

static void fill(unsigned node, const char *prefix, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		char key[64];

		snprintf(key, sizeof(key), "%s/%05u", prefix, i);
		cluster_put(&cl, node, key, "some value");
	}
}

static void sync_makes_large_stores_equal(void **state)
{
	uint64_t syncs, runs;

	(void)state;
	cluster_init(&cl, 2, 1);
	cl.config.sync_s = 1;
	cluster_cut(&cl, 0, 1, true);
	cluster_up(&cl, 0);
	cluster_up(&cl, 1);
	cluster_run(&cl, 4000);
	fill(0, "a", 1000);
	fill(1, "b", 1200);
	fill(0, "c", 300);
	fill(1, "c", 700);
	cluster_cut(&cl, 0, 1, false);
	cluster_run(&cl, 3000);
	assert_true(cluster_all_online(&cl));
	assert_true(cluster_equal(&cl, 0, 1));
	value_is(0, "b/01199", "some value");
	value_is(1, "a/00000", "some value");
	/* Equal stores of 2900 keys cost one call of digests a run, and no list. */
	syncs = stats(0)->syncs_sent;
	runs = stats(0)->sync_runs;
	cluster_run(&cl, 5000);
	runs = stats(0)->sync_runs - runs;
	assert_true(runs >= 3);
	/* The rest are hellos, two a second. */
	assert_in_range(stats(0)->syncs_sent - syncs, runs, runs + 11);
	assert_int_equal(stats(0)->bad_messages, 0);
}

static void one_run_of_one_side_makes_both_equal(void **state)
{
	(void)state;
	cluster_init(&cl, 2, 1);
	cl.config.message_bytes = 2000;
	cl.config.boot_ms = 100;
	cl.config.sync_s = 1000;
	cl.deaf[1] = true;
	cluster_cut(&cl, 0, 1, true);
	cluster_up(&cl, 0);
	cluster_up(&cl, 1);
	cluster_run(&cl, 1000);
	fill(0, "a", 700);
	fill(0, "c", 600);
	fill(1, "b", 1200);
	fill(1, "c", 700);
	cluster_delete(&cl, 0, "c/00011");
	cluster_delete(&cl, 1, "c/00012");
	cluster_put(&cl, 0, "/q/x", "101;epoch=9");
	cluster_put(&cl, 1, "/q/x", "102;epoch=8");
	cluster_put(&cl, 0, "/q/y", "101;epoch=8");
	cluster_put(&cl, 1, "/q/y", "102;epoch=9");
	cluster_cut(&cl, 0, 1, false);
	cluster_run(&cl, 1500);
	assert_int_equal(stats(0)->sync_runs, 1);
	assert_int_equal(stats(1)->syncs_sent, 0);
	assert_true(cluster_equal(&cl, 0, 1));
	value_is(0, "c/00012", NULL);
	value_is(1, "c/00011", NULL);
	value_is(1, "c/00599", "some value");
	value_is(1, "/q/x", "101;epoch=9");
	value_is(0, "/q/y", "102;epoch=9");
}

static void times_change_while_it_runs(void **state)
{
	struct rp_repl_times times = {.ack_ms = 200,
		.sync_s = 1,
		.tombstone_s = 5,
		.tombstone_max_s = 60,
		.max_skew_s = 3600};
	struct rp_kv_record kv;
	uint64_t runs;

	(void)state;
	cluster_init(&cl, 2, 1);
	cl.config.sync_s = 1000;
	cluster_up(&cl, 0);
	cluster_up(&cl, 1);
	cluster_run(&cl, 2000);
	cluster_put(&cl, 0, "k", "v");
	cluster_delete(&cl, 0, "k");
	runs = stats(0)->sync_runs;
	cluster_run(&cl, 10000);
	assert_int_equal(stats(0)->sync_runs, runs);
	/* The wait for the next comparison that was a quarter of an hour is a second now. */
	for (unsigned i = 0; i < 2; i++)
		rp_repl_set_times(cl.nodes[i].repl, &times, cluster_now(&cl, i));
	cluster_run(&cl, 5000);
	assert_true(stats(0)->sync_runs >= runs + 3);
	cluster_run(&cl, 10000);
	for (unsigned i = 0; i < 2; i++)
		assert_false(rp_kv_record_get(cl.nodes[i].kv, cluster_span("k"), &kv));
	assert_true(cluster_all_online(&cl));
}

static void tombstones_go_when_all_have_seen_them(void **state)
{
	struct rp_kv_record kv;

	(void)state;
	cluster_init(&cl, 3, 1);
	cl.config.sync_s = 1;
	cl.config.tombstone_s = 5;
	cl.config.tombstone_max_s = 60;
	for (unsigned i = 0; i < 3; i++)
		cluster_up(&cl, i);
	cluster_run(&cl, 1000);
	cluster_put(&cl, 0, "k", "v");
	cluster_run(&cl, 100);
	cluster_delete(&cl, 0, "k");
	cluster_run(&cl, 3000);
	assert_true(rp_kv_record_get(cl.nodes[1].kv, cluster_span("k"), &kv) && kv.deleted);
	cluster_run(&cl, 8000);
	for (unsigned i = 0; i < 3; i++)
		assert_false(rp_kv_record_get(cl.nodes[i].kv, cluster_span("k"), &kv));
	/* One member is away: they stay, until tombstone_max_s. */
	cluster_put(&cl, 0, "k", "v");
	cluster_run(&cl, 100);
	cluster_down(&cl, 2);
	cluster_delete(&cl, 0, "k");
	cluster_run(&cl, 40000);
	assert_true(rp_kv_record_get(cl.nodes[0].kv, cluster_span("k"), &kv) && kv.deleted);
	cluster_run(&cl, 30000);
	assert_false(rp_kv_record_get(cl.nodes[0].kv, cluster_span("k"), &kv));
}

static void long_absent_member_rejoins_by_pulling(void **state)
{
	(void)state;
	cluster_init(&cl, 3, 1);
	cl.config.sync_s = 1;
	cl.config.tombstone_s = 2;
	cl.config.tombstone_max_s = 10;
	for (unsigned i = 0; i < 3; i++)
		cluster_up(&cl, i);
	cluster_run(&cl, 2000);
	cluster_put(&cl, 2, "old", "deleted while node 2 was away");
	cluster_put(&cl, 2, "kept", "v");
	cluster_put(&cl, 2, "/q/old", "103;epoch=5");
	cluster_run(&cl, 2000);
	cluster_cut(&cl, 2, 0, true);
	cluster_cut(&cl, 2, 1, true);
	cluster_run(&cl, 3000);
	cluster_delete(&cl, 0, "old");
	cluster_delete(&cl, 0, "/q/old");
	cluster_put(&cl, 2, "new", "written while away");
	cluster_run(&cl, 30000);
	cluster_cut(&cl, 2, 0, false);
	cluster_cut(&cl, 2, 1, false);
	cluster_run(&cl, 5000);
	assert_true(cluster_all_online(&cl));
	for (unsigned i = 0; i < 3; i++) {
		value_is(i, "old", NULL);
		value_is(i, "/q/old", NULL);
		value_is(i, "kept", "v");
		value_is(i, "new", "written while away");
	}
	assert_int_equal(stats(2)->pulls, 1);
	assert_int_equal(stats(2)->pull_dropped, 2);
}

static void node_without_a_cluster_peers_with_nobody(void **state)
{
	(void)state;
	cluster_init(&cl, 2, 1);
	cl.config.cluster_high = cl.config.cluster_low = 0;
	cluster_up(&cl, 0);
	assert_true(rp_repl_ready(repl(0)));
	cluster_run(&cl, 5000);
	assert_int_equal(stats(0)->dials, 0);
}

#define RULE(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(first_node_boots_alone),
		RULE(a_busy_peer_is_waited_for),
		RULE(silent_peers_do_not_keep_a_node_from_booting),
		RULE(no_write_before_the_first_sync),
		RULE(late_peer_comes_back_by_a_sync),
		RULE(silent_peer_falls_and_returns),
		RULE(syncing_peer_gets_writes_but_does_not_count),
		RULE(write_waits_for_more_than_half),
		RULE(hung_peer_never_hangs_a_put),
		RULE(full_queue_makes_a_peer_spare),
		RULE(last_writer_wins),
		RULE(stamp_too_far_ahead_is_refused),
		RULE(dispatcher_records_merge_by_epoch),
		RULE(consumer_records_belong_to_their_host),
		RULE(bad_records_are_refused),
		RULE(local_keys_never_leave),
		RULE(sync_makes_large_stores_equal),
		RULE(one_run_of_one_side_makes_both_equal),
		RULE(times_change_while_it_runs),
		RULE(tombstones_go_when_all_have_seen_them),
		RULE(long_absent_member_rejoins_by_pulling),
		RULE(node_without_a_cluster_peers_with_nobody),
	};

	rp_log_set_level(RP_LOG_CRIT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
