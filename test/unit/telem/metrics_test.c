/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as text, in both formats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <telem/metrics.h>

static void add(struct rp_metrics *m)
{
	rp_metrics_init(m);
	rp_metrics_add_as(m, "b_gauge", "of b", "", 7, true);
	rp_metrics_add_as(m, "a_calls", "of a", "x=\"2\"", 5, false);
	rp_metrics_add_micros(m, "c_seconds", "of c", "", 12000034, false);
	rp_metrics_add_as(m, "a_calls", "of a", "x=\"1\"", 0, false);
	rp_metrics_add(m, "kv", "keys", "of d", "", UINT64_MAX, true);
}

static void assert_text(enum rp_metrics_format format, const char *expected)
{
	struct rp_metrics m;
	size_t length;
	char *text;

	add(&m);
	text = rp_metrics_text(&m, format, &length);
	assert_string_equal(text, expected);
	assert_int_equal(length, strlen(expected));
	free(text);
	rp_metrics_free(&m);
}

static void both_formats_group_by_name(void **state)
{
	assert_text(RP_METRICS_PROMETHEUS,
		"# HELP a_calls_total of a\n# TYPE a_calls_total counter\n"
		"a_calls_total{x=\"1\"} 0\na_calls_total{x=\"2\"} 5\n"
		"# HELP b_gauge of b\n# TYPE b_gauge gauge\nb_gauge 7\n"
		"# HELP c_seconds_total of c\n# TYPE c_seconds_total counter\n"
		"c_seconds_total 12.000034\n"
		"# HELP ringpost_kv_keys of d\n# TYPE ringpost_kv_keys gauge\n"
		"ringpost_kv_keys 18446744073709551615\n");
	assert_text(RP_METRICS_OPENMETRICS,
		"# HELP a_calls of a\n# TYPE a_calls counter\n"
		"a_calls_total{x=\"1\"} 0\na_calls_total{x=\"2\"} 5\n"
		"# HELP b_gauge of b\n# TYPE b_gauge gauge\nb_gauge 7\n"
		"# HELP c_seconds of c\n# TYPE c_seconds counter\n"
		"c_seconds_total 12.000034\n"
		"# HELP ringpost_kv_keys of d\n# TYPE ringpost_kv_keys gauge\n"
		"ringpost_kv_keys 18446744073709551615\n# EOF\n");
}

static void openmetrics_is_for_who_asks(void **state)
{
	const char *type = "";

	assert_int_equal(rp_metrics_format_of(NULL, &type), RP_METRICS_PROMETHEUS);
	assert_string_equal(type, "text/plain; version=0.0.4; charset=utf-8");
	assert_int_equal(rp_metrics_format_of("*/*", &type), RP_METRICS_PROMETHEUS);
	assert_int_equal(rp_metrics_format_of("text/plain;version=0.0.4;q=0.5,"
					      "application/openmetrics-text; version=1.0.0",
				 &type),
		RP_METRICS_OPENMETRICS);
	assert_string_equal(type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

/* Buckets hold what is at most their edge, those below included. */
static void histograms_are_cumulative(void **state)
{
	struct rp_queue_times t = {.count = 6, .sum_ns = 2000000123};
	struct rp_metrics m;
	size_t length;
	char *text;

	t.buckets[0] = 1;
	t.buckets[1] = 2;
	t.buckets[RP_QUEUE_TIMES_BUCKETS - 1] = 3;
	rp_metrics_init(&m);
	rp_metrics_add_times(&m, "w_seconds", "of w", "shard=\"0\"", &t);
	text = rp_metrics_text(&m, RP_METRICS_OPENMETRICS, &length);
	assert_non_null(strstr(text, "# TYPE w_seconds histogram\n"
				     "w_seconds_bucket{shard=\"0\",le=\"0.000001\"} 1\n"
				     "w_seconds_bucket{shard=\"0\",le=\"0.000004\"} 3\n"));
	assert_non_null(strstr(text, "w_seconds_bucket{shard=\"0\",le=\"67.108864\"} 3\n"
				     "w_seconds_bucket{shard=\"0\",le=\"+Inf\"} 6\n"
				     "w_seconds_sum{shard=\"0\"} 2.000000123\n"
				     "w_seconds_count{shard=\"0\"} 6\n"));
	free(text);
	rp_metrics_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_formats_group_by_name),
		cmocka_unit_test(openmetrics_is_for_who_asks),
		cmocka_unit_test(histograms_are_cumulative),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
