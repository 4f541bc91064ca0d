/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as text, in both formats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <telem/metrics.h>

static void add(struct rp_metrics *m)
{
	rp_metrics_init(m);
	rp_metrics_add(m, RP_METRIC_leases, "", 7);
	rp_metrics_add(m, RP_METRIC_queue_puts, "x=\"2\"", 5);
	rp_metrics_add(m, RP_METRIC_process_cpu, "", 12000034);
	rp_metrics_add(m, RP_METRIC_queue_puts, "x=\"1\"", 0);
	rp_metrics_add(m, RP_METRIC_kv_bytes, "", UINT64_MAX);
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
		"# HELP process_cpu_seconds_total user and system time\n"
		"# TYPE process_cpu_seconds_total counter\n"
		"process_cpu_seconds_total 12.000034\n"
		"# HELP ringpost_kv_bytes bytes held\n# TYPE ringpost_kv_bytes gauge\n"
		"ringpost_kv_bytes 18446744073709551615\n"
		"# HELP ringpost_leases leases known\n# TYPE ringpost_leases gauge\n"
		"ringpost_leases 7\n"
		"# HELP ringpost_queue_puts_total messages put by clients of this node\n"
		"# TYPE ringpost_queue_puts_total counter\n"
		"ringpost_queue_puts_total{x=\"1\"} 0\nringpost_queue_puts_total{x=\"2\"} 5\n");
	assert_text(RP_METRICS_OPENMETRICS,
		"# HELP process_cpu_seconds user and system time\n"
		"# TYPE process_cpu_seconds counter\n# UNIT process_cpu_seconds seconds\n"
		"process_cpu_seconds_total 12.000034\n"
		"# HELP ringpost_kv_bytes bytes held\n# TYPE ringpost_kv_bytes gauge\n"
		"# UNIT ringpost_kv_bytes bytes\n"
		"ringpost_kv_bytes 18446744073709551615\n"
		"# HELP ringpost_leases leases known\n# TYPE ringpost_leases gauge\n"
		"ringpost_leases 7\n"
		"# HELP ringpost_queue_puts messages put by clients of this node\n"
		"# TYPE ringpost_queue_puts counter\n"
		"ringpost_queue_puts_total{x=\"1\"} 0\nringpost_queue_puts_total{x=\"2\"} 5\n"
		"# EOF\n");
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
	struct rp_metric_histogram h = {
		.buckets = 3, .bounds = {1000, 4000}, .counts = {1, 2, 3}, .sum = 2000000123};
	struct rp_metrics m;
	size_t length;
	char *text;

	rp_metrics_init(&m);
	rp_metrics_add_histogram(&m, RP_METRIC_queue_wait, "shard=\"0\"", &h);
	assert_int_equal(m.items[0].value, 6);
	text = rp_metrics_text(&m, RP_METRICS_OPENMETRICS, &length);
	assert_non_null(strstr(text,
		"# TYPE ringpost_queue_wait_seconds histogram\n"
		"# UNIT ringpost_queue_wait_seconds seconds\n"
		"ringpost_queue_wait_seconds_bucket{shard=\"0\",le=\"0.000001000\"} 1\n"
		"ringpost_queue_wait_seconds_bucket{shard=\"0\",le=\"0.000004000\"} 3\n"
		"ringpost_queue_wait_seconds_bucket{shard=\"0\",le=\"+Inf\"} 6\n"
		"ringpost_queue_wait_seconds_sum{shard=\"0\"} 2.000000123\n"
		"ringpost_queue_wait_seconds_count{shard=\"0\"} 6\n"));
	free(text);
	rp_metrics_free(&m);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);

	return n >= k && strcmp(text + n - k, end) == 0;
}

/* What parsers and promtool refuse: a name twice, one that looks like a part of another, no help.
 */
static void names_are_sound(void **state)
{
	for (unsigned i = 0; i < RP_METRIC_COUNT; i++) {
		const struct rp_metric_info *x = &rp_metric_infos[i];
		const char *unit = rp_metric_unit_name(x->unit);

		assert_non_null(x->name);
		assert_true(x->help[0] != '\0' && !strchr(x->help, '\n') && !strchr(x->help, '\\'));
		if (strncmp(x->name, "ringpost_", 9) == 0) {
			assert_false(ends_with(x->name, "_total"));
			assert_false(ends_with(x->name, "_count") || ends_with(x->name, "_sum") ||
				     ends_with(x->name, "_bucket"));
			assert_true(ends_with(x->name, unit));
		}
		for (unsigned k = i + 1; k < RP_METRIC_COUNT; k++)
			assert_string_not_equal(x->name, rp_metric_infos[k].name);
	}
}

static void labels_are_escaped(void **state)
{
	char text[16];

	rp_metrics_label(text, sizeof(text), "a\"b\\c\nd");
	assert_string_equal(text, "a\\\"b\\\\c\\nd");
	rp_metrics_label(text, 4, "abcdef");
	assert_string_equal(text, "ab");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_formats_group_by_name),
		cmocka_unit_test(openmetrics_is_for_who_asks),
		cmocka_unit_test(histograms_are_cumulative),
		cmocka_unit_test(names_are_sound),
		cmocka_unit_test(labels_are_escaped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
