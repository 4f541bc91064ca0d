/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <base/rand.h>
#include <base/wheel.h>

static uint64_t seed = 1;
static struct rp_wheel w;

#define S RP_NS_PER_S

static void fires_once_and_not_early(void **state)
{
	static const uint64_t spans[] = {0, 1, RP_WHEEL_TICK_NS - 1, RP_WHEEL_TICK_NS,
		RP_WHEEL_TICK_NS + 1, RP_WHEEL_SLOTS * RP_WHEEL_TICK_NS - 1,
		RP_WHEEL_SLOTS * RP_WHEEL_TICK_NS, 5 * S, 33 * RP_NS_PER_MS, 34 * RP_NS_PER_MS,
		8 * S, 9 * S, 34 * S, 35 * S, 540 * S, 560 * S, 2000 * S, 2200 * S, 100000 * S};
	uint64_t now = 123456789;

	for (unsigned i = 0; i < RP_ARRAY_SIZE(spans); i++) {
		struct rp_wheel_node n;

		rp_wheel_init(&w, now);
		rp_wheel_node_init(&n);
		rp_wheel_add(&w, &n, now + spans[i]);
		assert_true(rp_wheel_armed(&n));
		if (spans[i] > 0) {
			rp_wheel_advance(&w, now + spans[i] - 1);
			assert_null(rp_wheel_pop(&w));
		}
		assert_true(rp_wheel_next(&w) <= now + spans[i] + RP_WHEEL_TICK_NS);
		rp_wheel_advance(&w, now + spans[i] + RP_WHEEL_TICK_NS);
		assert_ptr_equal(rp_wheel_pop(&w), &n);
		assert_null(rp_wheel_pop(&w));
		assert_false(rp_wheel_armed(&n));
		assert_int_equal(rp_wheel_next(&w), RP_NEVER);
		assert_int_equal(w.count, 0);
	}
}

static void taken_out(void **state)
{
	struct rp_wheel_node n;

	rp_wheel_init(&w, 0);
	rp_wheel_node_init(&n);
	rp_wheel_del(&w, &n); /* harmless */
	rp_wheel_add(&w, &n, S);
	rp_wheel_del(&w, &n);
	assert_int_equal(w.count, 0);
	rp_wheel_advance(&w, 2 * S);
	assert_null(rp_wheel_pop(&w));
	rp_wheel_add(&w, &n, 2 * S);
	rp_wheel_advance(&w, 3 * S); /* due, and then taken out */
	assert_int_equal(rp_wheel_next(&w), 0);
	rp_wheel_del(&w, &n);
	assert_null(rp_wheel_pop(&w));
	assert_int_equal(w.count, 0);
}

/* Against a plain list, for a long virtual time. */
static void like_a_list(void **state)
{
	enum { NODES = 200 };
	static struct rp_wheel_node nodes[NODES];
	struct rp_rand r = {seed};
	uint64_t now = rp_rand_u64(&r) >> 20;

	rp_wheel_init(&w, now);
	for (unsigned i = 0; i < NODES; i++)
		rp_wheel_node_init(&nodes[i]);
	for (unsigned step = 0; step < 100000; step++) {
		struct rp_wheel_node *n = &nodes[rp_rand_below(&r, NODES)];
		uint64_t earliest = RP_NEVER;

		if (rp_rand_u64(&r) % 4 == 0)
			rp_wheel_del(&w, n);
		else if (!rp_wheel_armed(n))
			rp_wheel_add(
				&w, n, now + (rp_rand_u64(&r) >> (20 + rp_rand_below(&r, 40))));
		if (rp_rand_u64(&r) % 8 == 0)
			now += rp_rand_u64(&r) >> (22 + rp_rand_below(&r, 40));
		for (unsigned i = 0; i < NODES; i++)
			if (rp_wheel_armed(&nodes[i]))
				earliest = RP_MIN(earliest, nodes[i].deadline_ns);
		assert_true(
			earliest == RP_NEVER || rp_wheel_next(&w) < earliest + RP_WHEEL_TICK_NS);
		rp_wheel_advance(&w, now);
		while ((n = rp_wheel_pop(&w)))
			assert_true(n->deadline_ns <= now);
		for (unsigned i = 0; i < NODES; i++)
			if (rp_wheel_armed(&nodes[i]))
				assert_true(nodes[i].deadline_ns + RP_WHEEL_TICK_NS > now);
	}
	for (unsigned i = 0; i < NODES; i++)
		rp_wheel_del(&w, &nodes[i]);
	assert_int_equal(w.count, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fires_once_and_not_early),
		cmocka_unit_test(taken_out),
		cmocka_unit_test(like_a_list),
	};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
