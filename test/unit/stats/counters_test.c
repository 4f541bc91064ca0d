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
	struct rp_drops d;

	memset(&d, 0, sizeof(d));
	rp_drop(&d, RP_DROP_tcp_checksum);
	rp_drop_n(&d, RP_DROP_port_tx_full, 3);
	assert_int_equal(rp_drops_read(&d, RP_DROP_tcp_checksum), 1);
	assert_int_equal(rp_drops_read(&d, RP_DROP_port_tx_full), 3);
	assert_int_equal(rp_drops_total(&d), 4);
	assert_string_equal(rp_drop_reason_info(RP_DROP_tcp_checksum)->name, "tcp_checksum");
	assert_string_equal(
		rp_drop_severity_name(rp_drop_reason_info(RP_DROP_queue_ended)->severity), "bad");
}

/* Names are told apart by operators: each once, each with a help text. */
static void test_drop_names(void **state)
{
	for (unsigned i = 0; i < RP_DROP_COUNT; i++) {
		const struct rp_drop_reason_info *a = rp_drop_reason_info((enum rp_drop_reason)i);

		assert_true(strlen(a->help) > 0);
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(
				a->name, rp_drop_reason_info((enum rp_drop_reason)j)->name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_count_and_sum),
		cmocka_unit_test(test_drops),
		cmocka_unit_test(test_drop_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
