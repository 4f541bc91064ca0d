/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <stats/counters.h>
#include <stats/drops.h>

#define RP_SAMPLE_COUNTERS(X)           \
	X(frames_in, "frames received") \
	X(frames_out, "frames sent")
RP_COUNTERS_DECLARE(sample, RP_SAMPLE_COUNTERS)
RP_COUNTERS_DEFINE(sample, RP_SAMPLE_COUNTERS)

static void test_set(void **state)
{
	assert_string_equal(rp_sample_counter_set.module, "sample");
	assert_int_equal(rp_sample_counter_set.count, 2);
	assert_string_equal(rp_sample_counter_set.infos[1].name, "frames_out");
	assert_string_equal(rp_sample_counter_set.infos[1].help, "frames sent");
}

static void test_count_and_sum(void **state)
{
	struct rp_sample_counters a = {0}, b = {0};
	uint64_t sum[2] = {0};

	rp_count(&a.frames_in);
	rp_count_by(&a.frames_in, 4);
	rp_count_by(&b.frames_in, 10);
	rp_count(&b.frames_out);
	rp_counters_add(sum, &a, rp_sample_counter_set.count);
	rp_counters_add(sum, &b, rp_sample_counter_set.count);
	assert_int_equal(sum[0], 15);
	assert_int_equal(sum[1], 1);
}

static void test_drops(void **state)
{
	const struct rp_drop_reason *r = rp_drop_reason_find("tcp", "drop_malformed");

	assert_non_null(r);
	assert_string_equal(rp_drop_severity_name(r->severity), "odd");
	assert_null(rp_drop_reason_find("tcp", "rx_segments"));
	assert_null(rp_drop_reason_find("net", "drop_malformed"));
	for (unsigned i = 0; i < rp_drop_reasons_count; i++) {
		r = &rp_drop_reasons[i];
		assert_ptr_equal(rp_drop_reason_find(r->module, r->counter), r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_count_and_sum),
		cmocka_unit_test(test_drops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
