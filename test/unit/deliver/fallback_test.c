/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#define COUNTERS(i) rp_deliver_counters(tnodes[i].d[0])

static void a_stalled_stream_goes_by_unary_and_returns(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0];
	uint64_t streamed;

	world_start(&c, 1, 1);
	world_up();
	world_rpc(true);
	for (int i = 0; i < 10; i++)
		assert_int_equal(flow_send(a, &a->flows[1]), 0);
	world_run(20 * MS);
	assert_int_equal(a->took, 10);
	/* The link stands, but nothing moves on it. */
	wire_stuck = true;
	for (int i = 0; i < 20; i++)
		assert_int_equal(flow_send(a, &a->flows[1]), 0);
	world_run(4900 * MS);
	assert_int_equal(a->took, 10);
	assert_int_equal(COUNTERS(0)->fallbacks[RP_DELIVER_FALLBACK_STALL], 0);
	world_run(500 * MS);
	assert_int_equal(a->took, 30);
	assert_int_equal(COUNTERS(0)->fallbacks[RP_DELIVER_FALLBACK_STALL], 1);
	assert_int_equal(COUNTERS(0)->deliveries_unary, 20);
	assert_true(COUNTERS(0)->repeats >= 20);
	/* The link moves again: what it still had arrives late and is known; the next opens anew.
	 */
	wire_stuck = false;
	streamed = COUNTERS(0)->deliveries_streamed;
	world_run(20 * MS);
	for (int i = 0; i < 10; i++)
		assert_int_equal(flow_send(a, &a->flows[1]), 0);
	world_run(50 * MS);
	assert_int_equal(a->took, 40);
	assert_int_equal(COUNTERS(0)->deliveries_streamed, streamed + 10);
	assert_int_equal(COUNTERS(0)->deliveries_unary, 20);
	assert_int_equal(COUNTERS(0)->streams_opened, 2);
	/* The queue is told of each. */
	assert_int_equal(a->notes[RP_DELIVER_NOTE_OPENED], 2);
	assert_int_equal(a->notes[RP_DELIVER_NOTE_FALL_BACK], 1);
	assert_int_equal(a->fallbacks, 1);
	assert_int_equal(a->notes[RP_DELIVER_NOTE_UNARY], 20);
	assert_int_equal(tnodes[0].violations + tnodes[1].violations, 0);
	world_end();
}

static void a_lost_tail_goes_first(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0];

	world_start(&c, 1, 1);
	world_up();
	world_rpc(true);
	for (int i = 0; i < 30; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_turn(3);
	world_turn(3);
	world_turn(7);
	world_down();
	for (int i = 0; i < 30; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_run(500 * MS);
	assert_int_equal(a->took, 60);
	assert_int_equal(a->flows[0].received, 60);
	assert_int_equal(COUNTERS(0)->fallbacks[RP_DELIVER_FALLBACK_LINK_DOWN], 1);
	assert_true(COUNTERS(0)->repeats > 0);
	/* With the link back the next ones take the stream. */
	world_up();
	for (int i = 0; i < 5; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_run(20 * MS);
	assert_int_equal(a->took, 65);
	assert_int_equal(COUNTERS(0)->streams_opened, 2);
	world_end();
}

static void failing_calls_are_tried_again(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0];

	world_start(&c, 1, 1);
	world_rpc(true);
	rpc_fails = true;
	for (int i = 0; i < 40; i++)
		assert_int_equal(flow_send(a, &a->flows[i % 2]), 0);
	world_run(60 * RP_NS_PER_S);
	assert_int_equal(a->took, 40);
	assert_true(COUNTERS(0)->unary_failures > 0);
	/* The path goes away with a call under way: it all comes back, once that call has failed.
	 */
	rpc_fails = false;
	for (int i = 0; i < 10; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_turn(1);
	world_rpc(false);
	assert_int_equal(a->lost, 0);
	world_run(10 * MS);
	assert_int_equal(a->lost, 10);
	assert_true(a->flows[0].again_repeat[0]);
	assert_false(a->flows[0].again_repeat[1]);
	world_end();
}

static void held_by_unary_is_tried_again(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0], *b = &tnodes[1];

	world_start(&c, 1, 1);
	world_rpc(true);
	b->hold_queue = 0;
	for (int i = 0; i < 5; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_run(2 * RP_NS_PER_S);
	assert_int_equal(a->took, 0);
	assert_in_range(COUNTERS(1)->held, 8, 12);
	b->hold_queue = -1;
	world_run(300 * MS);
	assert_int_equal(a->took, 5);
	world_end();
}

static void fallback_switched_off_hands_back(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0];

	world_start(&c, 1, 1);
	world_rpc(true);
	for (int i = 0; i < 5; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	rp_deliver_set_fallback(a->d[0], false, now);
	assert_int_equal(a->lost, 5);
	assert_int_equal(flow_send(a, &a->flows[0]), -ENETUNREACH);
	a->room = false;
	rp_deliver_set_fallback(a->d[0], true, now);
	world_turn(1);
	assert_true(a->room);
	for (int i = 0; i < 5; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_run(100 * MS);
	assert_int_equal(a->took, 5);
	world_end();
}

static void what_is_no_frame_is_refused(void **state)
{
	struct rp_deliver_config c = world_config();
	struct rp_deliver_answer answer;
	struct rp_rand r = {seed};
	uint8_t bytes[200];

	world_start(&c, 1, 1);
	assert_int_equal(rp_deliver_unary_shard(bytes, 23, 4), -EINVAL);
	for (int i = 0; i < 2000; i++) {
		for (size_t j = 0; j < sizeof(bytes); j++)
			bytes[j] = (uint8_t)rp_rand_u64(&r);
		bytes[0] = (uint8_t)(9 + i % 10);
		assert_int_equal(
			rp_deliver_on_unary(tnodes[1].d[0], 100,
				rp_mbuf_from(pool, bytes, (size_t)i % sizeof(bytes)), &answer, now),
			-EINVAL);
	}
	world_end();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stalled_stream_goes_by_unary_and_returns),
		cmocka_unit_test(a_lost_tail_goes_first),
		cmocka_unit_test(failing_calls_are_tried_again),
		cmocka_unit_test(held_by_unary_is_tried_again),
		cmocka_unit_test(fallback_switched_off_hands_back),
		cmocka_unit_test(what_is_no_frame_is_refused),
	};

	if (world_setup(argc, argv) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
