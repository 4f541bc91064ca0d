/* SPDX-License-Identifier: Apache-2.0 */
/* How busy the loop is: shares, cycles, bursts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <shard/load_priv.h>

#define GHZ 1000000000ull

static void bursts_have_their_buckets(void **state)
{
	static const struct {
		unsigned n, bucket;
	} cases[] = {{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {32, 5}, {33, 6}, {64, 6},
		{65, RP_ENGINE_BURST_BUCKETS}, {4096, RP_ENGINE_BURST_BUCKETS}};
	struct shard_load l;
	uint64_t sum = 0;

	shard_load_init(&l, GHZ, 0);
	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		uint64_t before = l.loop.rx_bursts.counts[cases[i].bucket];

		shard_load_burst(&l, &l.loop.rx_bursts, cases[i].n);
		assert_int_equal(l.loop.rx_bursts.counts[cases[i].bucket], before + 1);
		sum += cases[i].n;
	}
	assert_int_equal(l.loop.rx_bursts.sum, sum);
	assert_int_equal(l.loop.items, sum);
	assert_int_equal(l.loop.ring_bursts.sum, 0);
}

static void a_second_has_shares_and_cycles(void **state)
{
	struct shard_load l;

	shard_load_init(&l, 2 * GHZ, 5 * RP_NS_PER_S);
	/* A quarter of the second busy, a turn of it slow. */
	shard_load_turn(&l, true, 240 * RP_NS_PER_MS);
	for (unsigned i = 0; i < 10; i++)
		shard_load_turn(&l, true, RP_NS_PER_MS);
	shard_load_turn(&l, false, 750 * RP_NS_PER_MS);
	shard_load_burst(&l, &l.loop.ring_bursts, 1000);
	assert_false(shard_load_due(&l, 6 * RP_NS_PER_S - 1));
	assert_true(shard_load_due(&l, 6 * RP_NS_PER_S));
	shard_load_second(&l, 100, 6 * RP_NS_PER_S);
	assert_int_equal(l.loop.loops, 12);
	assert_int_equal(l.loop.busy_loops, 11);
	assert_int_equal(l.loop.slow_loops, 2);
	assert_int_equal(l.loop.busy_ppm, 250000);
	assert_int_equal(l.loop.item_cycles, 500000000 / 1000);
	assert_int_equal(l.loop.message_cycles, 500000000 / 100);
	/* Only what is of this second counts; without any, what was known stays. */
	shard_load_turn(&l, true, 10 * RP_NS_PER_MS);
	shard_load_second(&l, 150, 7 * RP_NS_PER_S);
	assert_int_equal(l.loop.busy_ppm, 10000);
	assert_int_equal(l.loop.item_cycles, 500000000 / 1000);
	assert_int_equal(l.loop.message_cycles, 20000000 / 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bursts_have_their_buckets),
		cmocka_unit_test(a_second_has_shares_and_cycles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
