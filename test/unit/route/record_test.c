/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include <route/record.h>

#define SPAN(text) ((struct rp_span){(const uint8_t *)(text), strlen(text)})

static void span_is(struct rp_span s, const char *text)
{
	assert_int_equal(s.length, strlen(text));
	if (s.length)
		assert_memory_equal(s.data, text, s.length);
}

static void test_dispatcher(void **state)
{
	static const struct {
		const char *text;
		int result;
		uint64_t node;
		const char *reply_to;
		bool pinned;
		uint32_t epoch;
		const char *written;
	} rows[] = {
		{"17", 0, 17, "", false, 0, "17"},
		{" 17 ", 0, 17, "", false, 0, "17"},
		{"17;epoch=5", 0, 17, "", false, 5, "17;epoch=5"},
		{"17;epoch=5;pinned;reply_to=r", 0, 17, "r", true, 5,
			"17;reply_to=r;pinned;epoch=5"},
		{" 17 ; reply_to = r ;pinned ", 0, 17, "r", true, 0, "17;reply_to=r;pinned"},
		{"17;zone=b;epoch=5;x", 0, 17, "", false, 5, "17;epoch=5;zone=b;x"},
		{"18446744073709551615", 0, UINT64_MAX, "", false, 0, "18446744073709551615"},
		{"17;epoch=16777216", 0, 17, "", false, 0, "17"},
		{"17;epoch=x", 0, 17, "", false, 0, "17"},
		{"17;reply_to=a/b", 0, 17, "", false, 0, "17"},
		{"17;;", 0, 17, "", false, 0, "17"},
		{"", -ENOENT, 0, "", false, 0, "0"},
		{"0", -ENOENT, 0, "", false, 0, "0"},
		{"0;reply_to=r", -ENOENT, 0, "r", false, 0, "0;reply_to=r"},
		{";pinned", -ENOENT, 0, "", true, 0, "0;pinned"},
		{"x", -ENOENT, 0, "", false, 0, "0"},
		{"-1", -ENOENT, 0, "", false, 0, "0"},
		{"18446744073709551616", -ENOENT, 0, "", false, 0, "0"},
	};
	char out[128];

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		struct rp_dispatcher_record r;
		int length;

		assert_int_equal(rp_route_dispatcher_parse(&r, rows[i].text, strlen(rows[i].text)),
			rows[i].result);
		assert_true(r.node == rows[i].node);
		span_is(r.reply_to, rows[i].reply_to);
		assert_int_equal(r.pinned, rows[i].pinned);
		assert_int_equal(r.epoch, rows[i].epoch);
		length = rp_route_dispatcher_format(&r, out, sizeof(out));
		span_is((struct rp_span){(uint8_t *)out, (size_t)length}, rows[i].written);
		assert_int_equal(rp_route_dispatcher_format(&r, out, (size_t)length - 1), -ENOSPC);
	}
}

static void test_dispatcher_merge(void **state)
{
	static const struct {
		const char *current, *put;
		int result;
		const char *written;
	} rows[] = {
		{"17;epoch=5", ";pinned", 0, "17;pinned;epoch=5"},
		{"17;epoch=5", ";reply_to=r", 0, "17;reply_to=r;epoch=5"},
		{"17;reply_to=r;pinned;epoch=5", ";pinned=0", 0, "17;reply_to=r;epoch=5"},
		{"17;reply_to=r;pinned;epoch=5", ";reply_to=", 0, "17;pinned;epoch=5"},
		{"17;reply_to=r;epoch=5", "17;pinned;epoch=5", 0, "17;pinned;epoch=5"},
		{"17;epoch=5;zone=b", ";pinned", 0, "17;pinned;epoch=5;zone=b"},
		{"17;epoch=5;zone=b", ";zone=c;k", 0, "17;epoch=5;zone=c;k"},
		{"", ";reply_to=r", 0, "0;reply_to=r"},
		{"17;epoch=5", "18;epoch=5", -EPERM, NULL},
		{"17;epoch=5", "17;epoch=6", -EPERM, NULL},
		{"17;epoch=5", "17", -EPERM, NULL},
		{"17;epoch=5", ";epoch=9", -EPERM, NULL},
		{"17;epoch=5", "", -EINVAL, NULL},
		{"17;epoch=5", "x", -EINVAL, NULL},
	};
	char out[128];

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		struct rp_dispatcher_record current, merged;
		int length;

		rp_route_dispatcher_parse(&current, rows[i].current, strlen(rows[i].current));
		assert_int_equal(rp_route_dispatcher_merge(
					 &merged, &current, rows[i].put, strlen(rows[i].put)),
			rows[i].result);
		if (rows[i].result)
			continue;
		length = rp_route_dispatcher_format(&merged, out, sizeof(out));
		span_is((struct rp_span){(uint8_t *)out, (size_t)length}, rows[i].written);
	}
}

static void test_consumer(void **state)
{
	static const struct {
		const char *current, *put;
		int result;
		const char *written;
	} rows[] = {
		{"9", ";cap=a,b;prefetch=4", 0, "9;cap=a,b;prefetch=4"},
		{"9;prefetch=4;match=x", ";prefetch=", 0, "9;match=x"},
		{"9;zone=b;cap=a", ";max_bytes=100", 0, "9;cap=a;max_bytes=100;zone=b"},
		{"9;zone=b", ";zone=c", 0, "9;zone=c"},
		{"", ";match=req-", 0, "0;match=req-"},
		{"9;prefetch=4", " ; prefetch = 7 ", 0, "9;prefetch=7"},
		{"9", "9;cap=a", -EPERM, NULL},
		{"9", "cap=a", -EPERM, NULL},
		{"9", ";prefetch=x", -EINVAL, NULL},
		{"9", ";prefetch=4294967296", -EINVAL, NULL},
		{"9", ";max_bytes=-1", -EINVAL, NULL},
		{"9", "", -EINVAL, NULL},
	};
	struct rp_consumer_record r;
	char out[128];

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		struct rp_consumer_record merged;
		int length;

		rp_route_consumer_parse(&r, rows[i].current, strlen(rows[i].current));
		assert_int_equal(
			rp_route_consumer_merge(&merged, &r, rows[i].put, strlen(rows[i].put)),
			rows[i].result);
		if (rows[i].result)
			continue;
		length = rp_route_consumer_format(&merged, out, sizeof(out));
		span_is((struct rp_span){(uint8_t *)out, (size_t)length}, rows[i].written);
	}
	assert_int_equal(rp_route_consumer_parse(&r, "0;cap=a", 7), -ENOENT);
	assert_int_equal(rp_route_consumer_parse(&r, "9;prefetch=x;match=m", 20), 0);
	assert_int_equal(r.prefetch, 0);
	span_is(r.match, "m");
}

static void test_cap(void **state)
{
	assert_true(rp_route_cap_has(SPAN("a,b , c"), SPAN("b")));
	assert_true(rp_route_cap_has(SPAN("a,b , c"), SPAN(" c")));
	assert_true(rp_route_cap_has(SPAN(""), SPAN("")));
	assert_false(rp_route_cap_has(SPAN("a,b"), SPAN("ab")));
	assert_false(rp_route_cap_has(SPAN("model-x2"), SPAN("model-x")));
	assert_false(rp_route_cap_has(SPAN(""), SPAN("a")));
}

static void test_epoch(void **state)
{
	const uint64_t origin_us = 1767225600ull * 1000000;

	assert_int_equal(rp_route_epoch_next(0, 0), 1);
	assert_int_equal(rp_route_epoch_next(0, origin_us + 90 * 60000000ull), 90);
	assert_int_equal(rp_route_epoch_next(89, origin_us + 90 * 60000000ull), 90);
	assert_int_equal(rp_route_epoch_next(90, origin_us + 90 * 60000000ull), 91);
	assert_int_equal(rp_route_epoch_next(5000, origin_us), 5001);
	assert_int_equal(rp_route_epoch_next(RP_EPOCH_MAX - 1, origin_us), RP_EPOCH_MAX);
	assert_int_equal(rp_route_epoch_next(RP_EPOCH_MAX, origin_us), 0);
	assert_int_equal(rp_route_epoch_next(7, UINT64_MAX), 8);

	assert_true(rp_route_dispatcher_compare(5, 1, 4, 9) > 0);
	assert_true(rp_route_dispatcher_compare(5, 1, 5, 9) < 0);
	assert_true(rp_route_dispatcher_compare(5, 9, 5, 9) == 0);
	assert_true(rp_route_dispatcher_compare(1, 1, 0, 0) > 0);

	assert_true(rp_route_idx_pack(3, 7) == (3ull << 40 | 7));
	assert_int_equal(rp_route_idx_epoch(rp_route_idx_pack(RP_EPOCH_MAX, 7)), RP_EPOCH_MAX);
	assert_true(
		rp_route_idx_sequence(rp_route_idx_pack(3, RP_SEQUENCE_MAX)) == RP_SEQUENCE_MAX);
	assert_true(rp_route_idx_pack(3, RP_SEQUENCE_MAX) < rp_route_idx_pack(4, 1));
}

static void test_election(void **state)
{
	static const struct {
		struct rp_election e;
		enum rp_election_verdict none, producer, consumer;
	} rows[] = {
		/* unclaimed */
		{{1, RP_NODE_ONLINE, 0, RP_NODE_GONE, false, false}, RP_ELECT_UNAVAILABLE,
			RP_ELECT_CLAIM, RP_ELECT_CLAIM},
		/* unclaimed, and this node is not Online */
		{{1, RP_NODE_IN_PROGRESS, 0, RP_NODE_GONE, false, false}, RP_ELECT_UNAVAILABLE,
			RP_ELECT_UNAVAILABLE, RP_ELECT_UNAVAILABLE},
		/* another node, Online, with a consumer */
		{{1, RP_NODE_ONLINE, 2, RP_NODE_ONLINE, false, true}, RP_ELECT_REMOTE,
			RP_ELECT_REMOTE, RP_ELECT_REMOTE},
		/* another node, Online, without: a consumer's node takes over */
		{{1, RP_NODE_ONLINE, 2, RP_NODE_ONLINE, false, false}, RP_ELECT_REMOTE,
			RP_ELECT_REMOTE, RP_ELECT_TAKE_OVER},
		{{1, RP_NODE_SPARE, 2, RP_NODE_ONLINE, false, false}, RP_ELECT_REMOTE,
			RP_ELECT_REMOTE, RP_ELECT_REMOTE},
		/* pinned there: nobody takes it over, while it is Online */
		{{1, RP_NODE_ONLINE, 2, RP_NODE_ONLINE, false, false, true}, RP_ELECT_REMOTE,
			RP_ELECT_REMOTE, RP_ELECT_REMOTE},
		{{1, RP_NODE_ONLINE, 2, RP_NODE_SPARE, false, false, true}, RP_ELECT_UNAVAILABLE,
			RP_ELECT_CLAIM, RP_ELECT_CLAIM},
		/* another node that is not Online: the record is unusable */
		{{1, RP_NODE_ONLINE, 2, RP_NODE_IN_PROGRESS, false, true}, RP_ELECT_UNAVAILABLE,
			RP_ELECT_CLAIM, RP_ELECT_CLAIM},
		{{1, RP_NODE_ONLINE, 2, RP_NODE_SPARE, false, true}, RP_ELECT_UNAVAILABLE,
			RP_ELECT_CLAIM, RP_ELECT_CLAIM},
		{{1, RP_NODE_ONLINE, 2, RP_NODE_GONE, false, false}, RP_ELECT_UNAVAILABLE,
			RP_ELECT_CLAIM, RP_ELECT_CLAIM},
		{{1, RP_NODE_SPARE, 2, RP_NODE_SPARE, false, false}, RP_ELECT_UNAVAILABLE,
			RP_ELECT_UNAVAILABLE, RP_ELECT_UNAVAILABLE},
		/* this node's own claim */
		{{1, RP_NODE_ONLINE, 1, RP_NODE_ONLINE, true, false}, RP_ELECT_LOCAL,
			RP_ELECT_LOCAL, RP_ELECT_LOCAL},
		{{1, RP_NODE_SPARE, 1, RP_NODE_SPARE, true, false}, RP_ELECT_UNAVAILABLE,
			RP_ELECT_UNAVAILABLE, RP_ELECT_UNAVAILABLE},
		/* this node's claim of an earlier life */
		{{1, RP_NODE_ONLINE, 1, RP_NODE_ONLINE, false, false}, RP_ELECT_UNAVAILABLE,
			RP_ELECT_CLAIM, RP_ELECT_CLAIM},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		assert_int_equal(rp_route_elect(&rows[i].e, RP_CLAIM_NONE), rows[i].none);
		assert_int_equal(rp_route_elect(&rows[i].e, RP_CLAIM_PRODUCER), rows[i].producer);
		assert_int_equal(rp_route_elect(&rows[i].e, RP_CLAIM_CONSUMER), rows[i].consumer);
	}
	assert_int_equal(rp_route_dispatch_of(RP_ELECT_CLAIM), RP_DISPATCH_LOCAL);
	assert_int_equal(rp_route_dispatch_of(RP_ELECT_LOCAL), RP_DISPATCH_LOCAL);
	assert_int_equal(rp_route_dispatch_of(RP_ELECT_REMOTE), RP_DISPATCH_REMOTE);
	assert_int_equal(rp_route_dispatch_of(RP_ELECT_TAKE_OVER), RP_DISPATCH_REMOTE);
	assert_int_equal(rp_route_dispatch_of(RP_ELECT_UNAVAILABLE), RP_DISPATCH_UNKNOWN);
}

/* spec/queues.md, "Cost model": peer RPCs a round trip between A (1) and B (2), third party C (3).
 */
static void test_the_cost_model_holds(void **state)
{
	for (uint32_t nodes = 2; nodes <= 9; nodes++)
		assert_int_equal(rp_route_cost_round_trip(nodes, 1, 2, 0, 0), 2 * (nodes - 1));
	assert_int_equal(rp_route_cost_round_trip(9, 1, 2, 0, 0), 16);
	assert_int_equal(rp_route_cost_round_trip(9, 1, 2, 3, 3), 4);
	assert_int_equal(rp_route_cost_round_trip(9, 1, 2, 2, 1), 2);
	assert_int_equal(rp_route_cost_round_trip(9, 1, 2, 1, 2), 2);
	assert_int_equal(rp_route_cost_round_trip(9, 1, 2, 1, 1), 2);
	assert_int_equal(rp_route_cost_round_trip(9, 1, 1, 1, 1), 0);
	assert_int_equal(rp_route_cost_leg(9, 1, 2, 2), 1);
	assert_int_equal(rp_route_cost_ack(1, 2), 1);
	assert_int_equal(rp_route_cost_ack(1, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dispatcher),
		cmocka_unit_test(test_dispatcher_merge),
		cmocka_unit_test(test_consumer),
		cmocka_unit_test(test_cap),
		cmocka_unit_test(test_epoch),
		cmocka_unit_test(test_election),
		cmocka_unit_test(test_the_cost_model_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
