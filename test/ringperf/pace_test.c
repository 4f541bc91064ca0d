/* SPDX-License-Identifier: Apache-2.0 */
/* The open loop of ringperf: what is planned, what counts, and what a stall does to either time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pace.h"

#define MS RP_NS_PER_MS
#define SEC RP_NS_PER_S

static const struct perf_pace_config config = {
	.rate = 1000, .warmup_ns = SEC, .run_ns = 4 * SEC, .cool_ns = SEC};

/*
 * One server, one at a time, 100 us each, which stops for `stall_ns` at 3 s; each request waits for
 * the one before.
 */
static struct perf_pace *play(const struct perf_pace_config *c, uint64_t took_ns, uint64_t stall_ns)
{
	struct perf_pace *p = malloc(sizeof(*p));
	uint64_t now_ns = 7 * SEC;

	assert_non_null(p);
	perf_pace_begin(p, c, now_ns);
	for (;;) {
		uint64_t next_ns = perf_pace_next(p, now_ns), planned_ns, begun_ns;

		if (next_ns == RP_NEVER)
			break;
		now_ns = RP_MAX(now_ns, next_ns);
		assert_true(perf_pace_due(p, now_ns));
		planned_ns = perf_pace_take(p, now_ns);
		begun_ns = now_ns;
		if (now_ns <= 10 * SEC && now_ns + took_ns > 10 * SEC)
			now_ns += stall_ns;
		now_ns += took_ns;
		perf_pace_done(p, planned_ns, begun_ns, 1, now_ns);
		if (perf_pace_over(p, now_ns))
			break;
	}
	return p;
}

static void steady_rate_is_met(void **state)
{
	struct perf_pace *p = play(&config, 100000, 0);
	struct perf_verdict v;

	perf_pace_verdict(p, &v);
	assert_true(v.met && v.open == 0);
	assert_true(v.achieved > 999 && v.achieved < 1001);
	/* Four of six seconds count. */
	assert_in_range(p->taken, 5999, 6001);
	assert_in_range(p->done, 3999, 4001);
	assert_int_equal(p->corrected.count, p->raw.count);
	assert_in_range(rp_hist_percentile(&p->corrected, 99.9), 98000, 102000);
	free(p);
}

static void a_stall_shows_in_what_is_corrected_only(void **state)
{
	struct perf_pace *p = play(&config, 100000, SEC);
	struct perf_verdict v;
	uint64_t most_ns = 0;

	perf_pace_verdict(p, &v);
	assert_true(rp_hist_percentile(&p->raw, 99.9) < MS);
	assert_true(rp_hist_percentile(&p->raw, 100) >= SEC);
	assert_true(rp_hist_percentile(&p->corrected, 99.9) > 900 * MS);
	assert_true(rp_hist_percentile(&p->corrected, 90) > 400 * MS);
	assert_true(rp_hist_percentile(&p->corrected, 50) < MS);
	/* It was made up for: the rate is met all the same. */
	assert_true(v.met);
	for (unsigned i = 0; i < PERF_SERIES_MAX; i++)
		most_ns = RP_MAX(most_ns, p->series[i].max_ns);
	assert_true(most_ns >= SEC);
	free(p);
}

static void a_rate_out_of_reach_is_not_met(void **state)
{
	struct perf_pace *p = play(&config, 2 * MS, 0);
	struct perf_verdict v;

	perf_pace_verdict(p, &v);
	assert_false(v.met);
	assert_true(v.open > 0);
	assert_true(v.achieved > 490 && v.achieved < 510);
	free(p);
}

static void what_is_lost_is_no_success(void **state)
{
	struct perf_pace_config c = {.rate = 100, .run_ns = SEC};
	struct perf_pace *p = malloc(sizeof(*p));
	struct perf_verdict v;

	assert_non_null(p);
	perf_pace_begin(p, &c, SEC);
	for (unsigned i = 0; i < 100; i++) {
		uint64_t at_ns = perf_pace_take(p, SEC + i * 10 * MS);

		if (i == 50)
			perf_pace_lost(p, at_ns);
		else
			perf_pace_done(p, at_ns, at_ns, 1, at_ns + 1);
	}
	assert_true(perf_pace_next(p, 2 * SEC) == RP_NEVER);
	perf_pace_verdict(p, &v);
	assert_true(v.achieved >= 99 && !v.met && v.open == 0 && p->lost == 1);
	free(p);
}

static void what_was_not_begun_is_due_again(void **state)
{
	struct perf_pace *p = malloc(sizeof(*p));
	uint64_t at_ns;

	assert_non_null(p);
	perf_pace_begin(p, &config, SEC);
	at_ns = perf_pace_take(p, SEC);
	perf_pace_untake(p, at_ns);
	assert_int_equal(perf_pace_take(p, SEC), at_ns);
	assert_int_equal(p->planned, 0);
	free(p);
}

static void a_closed_loop_has_no_plan(void **state)
{
	const struct perf_pace_config c = {.run_ns = SEC};
	struct perf_pace *p = play(&c, MS, 0);
	struct perf_verdict v;

	perf_pace_verdict(p, &v);
	assert_true(v.met && v.wanted == 0);
	assert_in_range(p->done, 999, 1001);
	assert_int_equal(rp_hist_percentile(&p->raw, 99), rp_hist_percentile(&p->corrected, 99));
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steady_rate_is_met),
		cmocka_unit_test(a_stall_shows_in_what_is_corrected_only),
		cmocka_unit_test(a_rate_out_of_reach_is_not_met),
		cmocka_unit_test(what_is_lost_is_no_success),
		cmocka_unit_test(what_was_not_begun_is_due_again),
		cmocka_unit_test(a_closed_loop_has_no_plan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
