/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <base/rand.h>
#include <stats/hist.h>

#define N 20000

static int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Edges meet without a gap, and each value lies in its bucket, within 1/64. */
static void test_buckets(void **state)
{
	for (unsigned b = 0; b < RP_HIST_BUCKETS; b++) {
		uint64_t low = rp_hist_bucket_low(b), high = rp_hist_bucket_high(b);

		assert_true(low <= high);
		assert_int_equal(rp_hist_bucket_of(low), b);
		assert_int_equal(rp_hist_bucket_of(high), b);
		if (b + 1 < RP_HIST_BUCKETS) {
			assert_true(high + 1 == rp_hist_bucket_low(b + 1));
			assert_true((high - low) * 64 <= low || low < 64);
		}
	}
	assert_int_equal(rp_hist_bucket_of(UINT64_MAX), RP_HIST_BUCKETS - 1);
	assert_int_equal(rp_hist_bucket_of(1ull << 40), RP_HIST_BUCKETS - 1);
	assert_int_equal(rp_hist_bucket_of((1ull << 40) - 1), RP_HIST_BUCKETS - 1);
}

static void test_empty(void **state)
{
	static struct rp_hist h;

	rp_hist_init(&h);
	assert_int_equal(rp_hist_percentile(&h, 50), 0);
	assert_int_equal(rp_hist_mean(&h), 0);
}

static void test_one(void **state)
{
	static struct rp_hist h;

	rp_hist_init(&h);
	rp_hist_record(&h, 123456789);
	assert_int_equal(rp_hist_percentile(&h, 0), 123456789);
	assert_int_equal(rp_hist_percentile(&h, 50), 123456789);
	assert_int_equal(rp_hist_percentile(&h, 100), 123456789);
	assert_int_equal(h.min_ns, 123456789);
	assert_int_equal(rp_hist_mean(&h), 123456789);
}

/* Against sorting: log-uniform values, two halves merged. */
static void test_percentiles(void **state)
{
	static struct rp_hist a, b;
	static uint64_t values[N];
	const double percents[] = {0.1, 1, 25, 50, 90, 99, 99.9, 100};
	uint64_t seed = getenv("RP_SEED") ? strtoull(getenv("RP_SEED"), NULL, 0) : 42;
	struct rp_rand r = {seed};
	uint64_t sum = 0;

	print_message("seed %llu (RP_SEED)\n", (unsigned long long)seed);
	rp_hist_init(&a);
	rp_hist_init(&b);
	for (unsigned i = 0; i < N; i++) {
		values[i] = rp_rand_u64(&r) >> (24 + rp_rand_below(&r, 40));
		sum += values[i];
		rp_hist_record(i & 1 ? &a : &b, values[i]);
	}
	rp_hist_merge(&a, &b);
	qsort(values, N, sizeof(values[0]), compare_u64);
	assert_int_equal(a.count, N);
	assert_int_equal(a.sum_ns, sum);
	assert_int_equal(a.min_ns, values[0]);
	assert_int_equal(a.max_ns, values[N - 1]);
	for (unsigned i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		double rank = percents[i] / 100.0 * N;
		unsigned at = (unsigned)rank;
		uint64_t want, got = rp_hist_percentile(&a, percents[i]);

		if ((double)at < rank)
			at++;
		want = values[at - 1];
		assert_true(got >= want);
		assert_true(got - want <= want / 64 + 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_percentiles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
