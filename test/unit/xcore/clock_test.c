/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include <xcore/clock.h>

static uint64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void follows_the_monotonic_clock(void **state)
{
	struct rp_clock c;
	struct rp_clock_reader r;
	uint64_t last = 0;

	rp_clock_init(&c, 5 * RP_NS_PER_MS);
	rp_clock_reader_init(&r, &c);
	for (int turn = 0; turn < 20; turn++) {
		struct timespec ts = {.tv_nsec = 2000000};
		uint64_t low, seen, high;

		nanosleep(&ts, NULL);
		if (turn % 3 == 0)
			rp_clock_publish(&c);
		low = mono_ns();
		seen = rp_clock_now(&r);
		high = mono_ns();
		assert_true(seen >= last);
		/* 5 ms of measuring are good for 100 ppm at least; 1 ms leaves room for a stall. */
		assert_true(seen + RP_NS_PER_MS > low && seen < high + RP_NS_PER_MS);
		last = seen;
	}
}

static void slew_is_limited_and_signed(void **state)
{
	uint64_t rate = 1ull << 31;

	assert_int_equal(rp_clock_slewed_rate(rate, 0, RP_NS_PER_S), rate);
	assert_int_equal(rp_clock_slewed_rate(rate, (int64_t)RP_NS_PER_S, RP_NS_PER_S),
		rate + rate / 1000000 * RP_CLOCK_SLEW_PPM);
	assert_int_equal(rp_clock_slewed_rate(rate, -(int64_t)RP_NS_PER_S, RP_NS_PER_S),
		rate - rate / 1000000 * RP_CLOCK_SLEW_PPM);
	assert_true(rp_clock_slewed_rate(rate, 1000, RP_NS_PER_S) > rate);
	assert_true(rp_clock_slewed_rate(rate, -1000, RP_NS_PER_S) < rate);
}

static void never_goes_backwards(void **state)
{
	struct rp_clock c;
	struct rp_clock_reader r;
	uint64_t before;

	rp_clock_init(&c, RP_NS_PER_MS);
	rp_clock_reader_init(&r, &c);
	before = rp_clock_now(&r);
	/* An anchor from the past, as a bad publication would give. */
	c.mono_ns = c.mono_ns - RP_NS_PER_S;
	c.sequence = c.sequence + 2;
	assert_true(rp_clock_now(&r) >= before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(follows_the_monotonic_clock),
		cmocka_unit_test(slew_is_limited_and_signed),
		cmocka_unit_test(never_goes_backwards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
