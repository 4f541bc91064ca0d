/* SPDX-License-Identifier: Apache-2.0 */

/* The peer table, and what calls of peers may do, without a network. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <base/log.h>
#include <repl/repl_priv.h>

static unsigned stub_dials, stub_hangups;
static enum rp_repl_state stub_states[4];

static uint64_t stub_token; /* of the last call */

static int stub_send(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind, struct rp_span bytes,
	uint64_t token)
{
	stub_token = token;
	return *(int *)ctx;
}

static void stub_dial(void *ctx, rp_repl_peer_id peer, const char *address)
{
	stub_dials++;
}

static void stub_hangup(void *ctx, rp_repl_peer_id peer)
{
	stub_hangups++;
}

static void stub_state(void *ctx, uint64_t node, enum rp_repl_state state)
{
	stub_states[node % 4] = state;
}

static void stub_done(void *ctx, uint64_t token, bool confirmed)
{
}

static void stub_ready(void *ctx, bool alone)
{
}

static const struct rp_repl_ops stub_ops = {.send = stub_send,
	.dial = stub_dial,
	.hangup = stub_hangup,
	.node_state = stub_state,
	.write_done = stub_done,
	.ready = stub_ready};

/** Node 1 of cluster (3, 4), with four peers p0 .. p3 that are being dialled. */
struct fixture {
	struct rp_kv *kv;
	struct rp_repl *r;
	struct rp_repl_now now;
	int send_result;
};

static int setup(void **state)
{
	static struct fixture f;
	struct rp_kv_config kv = {.initial_revision = 1, .node = 1, .keep_tombstones = true};
	struct rp_repl_config config = {.node = 1,
		.cluster_high = 3,
		.cluster_low = 4,
		.ops = &stub_ops,
		.ctx = &f.send_result};

	memset(&f, 0, sizeof(f));
	stub_dials = stub_hangups = 0;
	memset(stub_states, 0, sizeof(stub_states));
	f.now = (struct rp_repl_now){.ns = 1, .wall_us = 1790000000000000ull};
	f.kv = rp_kv_create(&kv);
	f.r = rp_repl_create(f.kv, &config);
	assert_non_null(f.r);
	for (unsigned i = 0; i < 4; i++) {
		char address[8];

		snprintf(address, sizeof(address), "p%u", i);
		assert_int_equal(rp_repl_peer_add(f.r, address, f.now), i);
		assert_int_equal(rp_repl_peer_add(f.r, address, f.now), i);
	}
	assert_int_equal(rp_repl_next_ns(f.r), RP_NEVER);
	rp_repl_start(f.r, f.now);
	assert_int_equal(stub_dials, 4);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rp_repl_destroy(f->r);
	rp_kv_destroy(f->kv);
	return 0;
}

static void strangers_and_doubles_are_refused(void **state)
{
	struct fixture *f = *state;
	struct rp_repl_peer_info info;

	assert_int_equal(rp_repl_peer_connected(f->r, 0, 2, 3, 5, f->now), -EPERM);
	assert_int_equal(rp_repl_get_stats(f->r)->wrong_cluster, 1);
	assert_int_equal(rp_repl_peer_connected(f->r, 0, 2, 3, 4, f->now), -ECANCELED);
	assert_int_equal(rp_repl_peer_connected(f->r, 1, 1, 3, 4, f->now), -EALREADY);
	assert_int_equal(rp_repl_peer_connected(f->r, 2, 2, 3, 4, f->now), 0);
	assert_int_equal(stub_states[2], RP_REPL_IN_PROGRESS);
	assert_int_equal(rp_repl_peer_connected(f->r, 3, 2, 3, 4, f->now), -EEXIST);
	assert_true(rp_repl_peer_get(f->r, 1, &info) && info.self);
	assert_int_equal(rp_repl_peer_of_node(f->r, 2), 2);
	assert_int_equal(rp_repl_peer_of_node(f->r, 1), RP_REPL_NO_PEER);
}

static void another_node_behind_an_address(void **state)
{
	struct fixture *f = *state;
	struct rp_repl_peer_info info;

	assert_int_equal(rp_repl_peer_connected(f->r, 2, 2, 3, 4, f->now), 0);
	for (unsigned i = 0; i < 4; i++)
		if (i != 2)
			rp_repl_peer_remove(f->r, i, f->now);
	f->now.ns += 3 * RP_NS_PER_S;
	rp_repl_tick(f->r, f->now);
	assert_int_equal(stub_states[2], RP_REPL_SPARE);
	f->now.ns += 2 * RP_NS_PER_S;
	rp_repl_tick(f->r, f->now);
	assert_int_equal(rp_repl_peer_connected(f->r, 2, 3, 3, 4, f->now), 0);
	assert_int_equal(stub_states[2], RP_REPL_GONE);
	assert_int_equal(rp_repl_state_of(f->r, 2), RP_REPL_GONE);
	assert_int_equal(stub_states[3], RP_REPL_IN_PROGRESS);
	rp_repl_peer_remove(f->r, 2, f->now);
	assert_int_equal(stub_states[3], RP_REPL_GONE);
	assert_false(rp_repl_peer_get(f->r, 2, &info));
	/* The three that were being dialled, the time-out, the member that was removed. */
	assert_int_equal(stub_hangups, 5);
}

static void calls_of_strangers_are_refused(void **state)
{
	struct fixture *f = *state;
	struct repl_hello hello = {.node = 2, .cluster_high = 3, .cluster_low = 5};
	struct rp_span none = {0}, answer;
	struct repl_buf b = {0};

	repl_put_hello(&b, REPL_F_HELLO, &hello);
	assert_int_equal(
		rp_repl_on_request(f->r, 2, RP_REPL_SYNC, repl_buf_span(&b), &answer, f->now),
		-EPERM);
	/* It says that it is another than the one that was proved. */
	assert_int_equal(
		rp_repl_on_request(f->r, 3, RP_REPL_SYNC, repl_buf_span(&b), &answer, f->now),
		-EINVAL);
	assert_int_equal(
		rp_repl_on_request(f->r, 3, RP_REPL_APPLY, none, &answer, f->now), -EINVAL);
	assert_int_equal(rp_repl_get_stats(f->r)->bad_messages, 2);
	rp_repl_result(f->r, 12345, false, none, f->now);
	assert_int_equal(rp_repl_get_stats(f->r)->unknown_results, 1);
	repl_buf_free(&b);
}

static void send_that_fails_at_once_is_a_loss(void **state)
{
	struct fixture *f = *state;

	f->send_result = -EPIPE;
	assert_int_equal(rp_repl_peer_connected(f->r, 3, 2, 3, 4, f->now), 0);
	assert_int_equal(stub_states[2], RP_REPL_SPARE);
	assert_int_equal(stub_hangups, 1);
	assert_int_equal(rp_repl_get_stats(f->r)->peer_losses, 1);
}

/* ---- what is in a call ---- */

static void hello_of(struct repl_buf *b, struct fixture *f, uint64_t node)
{
	struct repl_hello hello = {.node = node,
		.cluster_high = 3,
		.cluster_low = 4,
		.wall_us = f->now.wall_us,
		.ready = true};

	b->length = 0;
	repl_put_hello(b, REPL_F_HELLO, &hello);
}

static struct rp_span text(const char *s)
{
	return (struct rp_span){(const uint8_t *)s, strlen(s)};
}

static struct repl_record record_of(const char *key, const char *value, uint64_t stamp)
{
	struct repl_record r = {
		.kv = {.key = text(key), .stamp = stamp, .node = 2, .deleted = value == NULL}};

	if (value)
		r.kv.value = text(value);
	return r;
}

static void applied(struct fixture *f, const struct repl_record *records, unsigned count)
{
	struct repl_buf b = {0};
	struct rp_span answer;

	hello_of(&b, f, 2);
	for (unsigned i = 0; i < count; i++)
		repl_put_record(&b, REPL_F_APPLY_RECORDS, &records[i]);
	assert_int_equal(
		rp_repl_on_request(f->r, 2, RP_REPL_APPLY, repl_buf_span(&b), &answer, f->now), 0);
	repl_buf_free(&b);
}

static void is_stored(struct fixture *f, const char *key, const char *value)
{
	struct rp_kv_record kv;

	assert_true(rp_kv_record_get(f->kv, text(key), &kv));
	assert_int_equal(kv.deleted, value == NULL);
	if (value)
		assert_true(kv.value.length == strlen(value) &&
			    memcmp(kv.value.data, value, kv.value.length) == 0);
}

/* Each is held against what is there when its turn comes, the one before it included. */
static void one_key_twice_in_a_call(void **state)
{
	struct fixture *f = *state;
	uint64_t t = f->now.wall_us;
	const struct repl_record records[] = {
		record_of("/q/a", "2;epoch=9", t), record_of("/q/a", "3;epoch=5", t + 1)};

	applied(f, records, 2);
	is_stored(f, "/q/a", "2;epoch=9");
}

/* A tombstone that came from another node ends what was claimed before it, however late it comes.
 */
static void a_tombstone_keeps_its_epoch(void **state)
{
	struct fixture *f = *state;
	uint64_t t = f->now.wall_us;
	struct repl_record gone = record_of("/q/a", NULL, t);
	const struct repl_record before = record_of("/q/a", "3;epoch=9", t + 10),
				 after = record_of("/q/a", "3;epoch=10", t + 5);

	gone.epoch = 9;
	applied(f, &gone, 1);
	applied(f, &before, 1);
	is_stored(f, "/q/a", NULL);
	applied(f, &after, 1);
	is_stored(f, "/q/a", "3;epoch=10");
}

/* All have seen it, so it is gone here: it does not come back. */
static void an_old_tombstone_is_not_taken(void **state)
{
	struct fixture *f = *state;
	uint64_t age = f->r->config.tombstone_s * 1000000ull;
	struct repl_record gone = record_of("k", NULL, f->now.wall_us - age - 1);
	struct rp_kv_record kv;

	applied(f, &gone, 1);
	assert_false(rp_kv_record_get(f->kv, text("k"), &kv));
	gone.kv.stamp++;
	applied(f, &gone, 1);
	assert_true(rp_kv_record_get(f->kv, text("k"), &kv));
}

/* What would be refused is not asked for, at each comparison anew. */
static void what_is_too_far_ahead_is_not_wanted(void **state)
{
	struct fixture *f = *state;
	uint64_t edge = f->now.wall_us + f->r->config.max_skew_s * 1000000ull;

	for (unsigned ahead = 0; ahead < 2; ahead++) {
		const struct repl_meta meta = {
			.key = text("k"), .rank = {.stamp = edge + ahead, .node = 2}};
		const struct repl_range all = {.count = 1};
		struct repl_buf b = {0};
		struct rp_reader reader;
		struct repl_field field;
		struct rp_span answer;
		size_t wanted = 0;

		hello_of(&b, f, 2);
		repl_put_meta(&b, REPL_F_SYNC_LIST, &meta);
		repl_put_range(&b, REPL_F_SYNC_LISTED, &all);
		assert_int_equal(rp_repl_on_request(
					 f->r, 2, RP_REPL_SYNC, repl_buf_span(&b), &answer, f->now),
			0);
		reader = rp_reader_of(answer.data, answer.length);
		while (repl_field_next(&reader, &field))
			if (field.number == REPL_F_REPLY_WANTED)
				wanted = field.bytes.length;
		assert_int_equal(wanted, !ahead);
		repl_buf_free(&b);
	}
	assert_int_equal(rp_repl_get_stats(f->r)->records_skew, 1);
}

/* A peer that says "more" and does not get on would keep the comparison going for ever. */
static void a_comparison_gets_on(void **state)
{
	struct fixture *f = *state;
	struct repl_buf b = {0};

	applied(f, (const struct repl_record[]){record_of("k", "v", f->now.wall_us)}, 1);
	assert_int_equal(rp_repl_peer_connected(f->r, 0, 2, 3, 4, f->now), 0);
	hello_of(&b, f, 2);
	repl_put_bytes(&b, REPL_F_REPLY_DIFFER, (struct rp_span){(const uint8_t *)"", 1});
	rp_repl_result(f->r, stub_token, false, repl_buf_span(&b), f->now);
	assert_int_equal(rp_repl_get_stats(f->r)->bad_messages, 0);
	assert_int_equal(rp_repl_get_stats(f->r)->ranges_differ, 1);
	hello_of(&b, f, 2);
	repl_put_uint(&b, REPL_F_REPLY_MORE, 1);
	repl_put_bytes(&b, REPL_F_REPLY_RESUME, (struct rp_span){0});
	rp_repl_result(f->r, stub_token, false, repl_buf_span(&b), f->now);
	assert_int_equal(rp_repl_get_stats(f->r)->bad_messages, 1);
	assert_int_equal(stub_states[2], RP_REPL_SPARE);
	repl_buf_free(&b);
}

static void bad_configurations_are_refused(void **state)
{
	struct rp_repl_config c = {.node = 0, .ops = &stub_ops};
	struct fixture *f = *state;

	assert_null(rp_repl_create(f->kv, &c));
	assert_int_equal(errno, EINVAL);
	c.node = 1;
	assert_null(rp_repl_create(NULL, &c));
	c.ops = NULL;
	assert_null(rp_repl_create(f->kv, &c));
	rp_repl_destroy(NULL);
}

#define WITH_PEERS(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PEERS(strangers_and_doubles_are_refused),
		WITH_PEERS(another_node_behind_an_address),
		WITH_PEERS(calls_of_strangers_are_refused),
		WITH_PEERS(send_that_fails_at_once_is_a_loss),
		WITH_PEERS(one_key_twice_in_a_call),
		WITH_PEERS(a_tombstone_keeps_its_epoch),
		WITH_PEERS(an_old_tombstone_is_not_taken),
		WITH_PEERS(what_is_too_far_ahead_is_not_wanted),
		WITH_PEERS(a_comparison_gets_on),
		WITH_PEERS(bad_configurations_are_refused),
	};

	rp_log_set_level(RP_LOG_CRIT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
