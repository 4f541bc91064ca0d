/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

/* Random traffic both ways with losses, holds, full wires and both routes, from one seed. */

static uint64_t total(int i, bool received)
{
	uint64_t n = 0;

	for (int q = 0; q < QUEUES; q++)
		n += received ? tnodes[i].flows[q].received : tnodes[i].flows[q].next_seq;
	return n;
}

static bool settled(uint64_t want)
{
	for (int i = 0; i < 2; i++) {
		for (int q = 0; q < QUEUES; q++) {
			const struct flow_model *f = &tnodes[i].flows[q];

			if (f->received != f->next_seq || f->again_head != f->again_tail)
				return false;
		}
		if (total(i, true) < want)
			return false;
	}
	return true;
}

static void push(uint64_t want, int tries)
{
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < tries; k++) {
			struct flow_model *f = &tnodes[i].flows[rp_rand_below(&rnd, QUEUES)];

			if (f->again_head != f->again_tail || total(i, false) < want)
				flow_send(&tnodes[i], f);
		}
	}
}

static void show(uint64_t want)
{
	for (int i = 0; i < 2; i++) {
		struct rp_deliver_info info;

		printf("node %d: made %llu of %llu, received %llu, violations %u (%s)\n", i,
			(unsigned long long)total(i, false), (unsigned long long)want,
			(unsigned long long)total(i, true), tnodes[i].violations,
			rp_deliver_violation_text(tnodes[i].why));
		for (uint32_t s = 0; s < tnodes[i].shards; s++) {
			rp_deliver_info(tnodes[i].d[s], 0, &info);
			printf(" shard %u: out %u in %u messages %u unary %u credit %llu\n", s,
				info.streams_out, info.streams_in, info.messages, info.flows_unary,
				(unsigned long long)info.credit_given);
		}
		for (int q = 0; q < QUEUES; q++) {
			const struct flow_model *f = &tnodes[i].flows[q];

			if (f->received != f->next_seq)
				printf(" flow %d: made %llu received %llu again %u\n", q,
					(unsigned long long)f->next_seq,
					(unsigned long long)f->received,
					f->again_tail - f->again_head);
		}
	}
}

static void settle(uint64_t want, uint64_t ns)
{
	for (uint64_t end = now + ns; now < end && !settled(want); now += MS) {
		push(want, QUEUES * 2);
		world_turn(64);
	}
	if (!settled(want))
		show(want);
	assert_true(settled(want));
	assert_int_equal(tnodes[0].violations + tnodes[1].violations, 0);
	assert_int_equal(failures, 0);
}

/* Small credits, a wire of four frames, large messages on all queues at once, both ways. */
static void full_queues_both_ways(uint32_t peer_budget_bytes, uint32_t budget_bytes)
{
	struct rp_deliver_config c = world_config();

	c.window_bytes = 4096;
	c.window_messages = 4;
	c.peer_budget_bytes = peer_budget_bytes;
	c.budget_bytes = budget_bytes;
	c.unary_fallback = false;
	c.peer_frames_max = 3;
	world_start(&c, 1, 2);
	world_sizes(400000);
	tnodes[0].out.cap = tnodes[1].out.cap = 4;
	tnodes[0].hold_random = tnodes[1].hold_random = 10;
	world_up();
	for (int i = 0; i < 200; i++)
		push(600, QUEUES);
	settle(600, 100 * RP_NS_PER_S);
	world_end();
}

static void full_queues_both_ways_do_not_deadlock(void **state)
{
	full_queues_both_ways(8192, 0);
	/* The peer has more than there is for all, and a window more than that. */
	full_queues_both_ways(1 << 20, 8192);
	full_queues_both_ways(1 << 20, 2048);
}

static void links_that_break(bool fallback, bool fails)
{
	struct rp_deliver_config c = world_config();
	uint64_t want = 0;

	c.unary_fallback = fallback;
	c.peer_budget_bytes = 512 << 10;
	world_start(&c, 2, 1);
	world_sizes(200000);
	tnodes[0].out.cap = tnodes[1].out.cap = 16;
	tnodes[0].hold_random = tnodes[1].hold_random = 50;
	rpc_fails = fails;
	world_up();
	if (fallback)
		world_rpc(true);
	for (int round = 0; round < 60; round++) {
		want += 60;
		for (uint64_t n = 1 + rp_rand_below(&rnd, 40); n > 0; n--, now += MS) {
			push(want, 20);
			world_turn(1 + (uint32_t)rp_rand_below(&rnd, 20));
		}
		world_down();
		for (uint64_t n = rp_rand_below(&rnd, 40); n > 0; n--, now += MS) {
			push(want, 20);
			world_turn(16);
			if (fallback && fails && rp_rand_below(&rnd, 20) == 0)
				world_rpc(!rpc_up);
		}
		world_up();
		if (fallback)
			world_rpc(true);
	}
	settle(want, 60 * RP_NS_PER_S);
	if (fallback)
		assert_true(rp_deliver_counters(tnodes[1].d[0])->forwards_unary > 0 &&
			    rp_deliver_counters(tnodes[1].d[0])->deliveries_unary > 0);
	else
		assert_true(tnodes[0].lost > 0);
	world_end();
}

static void links_that_break_without_fallback(void **state)
{
	links_that_break(false, false);
}

static void links_that_break_with_fallback(void **state)
{
	links_that_break(true, false);
}

static void links_and_calls_that_break(void **state)
{
	links_that_break(true, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_queues_both_ways_do_not_deadlock),
		cmocka_unit_test(links_that_break_without_fallback),
		cmocka_unit_test(links_that_break_with_fallback),
		cmocka_unit_test(links_and_calls_that_break),
	};

	if (world_setup(argc, argv) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
