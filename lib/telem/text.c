/* SPDX-License-Identifier: Apache-2.0 */

/* Names, and texts of metrics: Prometheus, OpenMetrics, and the page of docs. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <telem/metrics.h>

const struct rp_metric_info rp_metric_infos[RP_METRIC_COUNT] = {
#define RP_METRIC(id, name, kind, unit, labels, help) \
	[RP_METRIC_##id] = {name, labels, help, RP_METRIC_KIND_##kind, RP_METRIC_UNIT_##unit},
#include <telem/metrics.def>
};

static const char *const kind_names[] = {
	[RP_METRIC_KIND_COUNTER] = "counter",
	[RP_METRIC_KIND_GAUGE] = "gauge",
	[RP_METRIC_KIND_HISTOGRAM] = "histogram",
};

const char *rp_metric_unit_name(enum rp_metric_unit unit)
{
	static const char *const names[] = {
#define X(name, text, parts) text,
		RP_METRIC_UNITS(X)
#undef X
	};

	return names[unit];
}

uint64_t rp_metric_unit_parts(enum rp_metric_unit unit)
{
	static const uint64_t parts_of[] = {
#define X(name, text, parts) parts,
		RP_METRIC_UNITS(X)
#undef X
	};

	return parts_of[unit];
}

void rp_metrics_value_write(FILE *f, enum rp_metric_unit unit, uint64_t value)
{
	uint64_t parts = rp_metric_unit_parts(unit);
	int digits = 0;

	for (uint64_t p = parts; p > 1; p /= 10)
		digits++;
	fprintf(f, "%" PRIu64, value / parts);
	if (digits > 0)
		fprintf(f, ".%0*" PRIu64, digits, value % parts);
}

static int by_name(const void *a, const void *b)
{
	const struct rp_metric *x = a, *y = b;
	int c = strcmp(rp_metric_info(x)->name, rp_metric_info(y)->name);

	return c ? c : strcmp(x->labels, y->labels);
}

enum rp_metrics_format rp_metrics_format_of(const char *accept, const char **content_type)
{
	if (accept && strstr(accept, "application/openmetrics-text")) {
		*content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
		return RP_METRICS_OPENMETRICS;
	}
	*content_type = "text/plain; version=0.0.4; charset=utf-8";
	return RP_METRICS_PROMETHEUS;
}

/* Buckets are cumulative. */
static void histogram_write(FILE *f, const struct rp_metric *x)
{
	const struct rp_metric_info *info = rp_metric_info(x);
	const struct rp_metric_histogram *h = x->histogram;
	const char *comma = x->labels[0] ? "," : "";
	uint64_t sum = 0;

	for (unsigned i = 0; i < h->buckets; i++) {
		sum += h->counts[i];
		fprintf(f, "%s_bucket{%s%sle=\"", info->name, x->labels, comma);
		if (i + 1 < h->buckets)
			rp_metrics_value_write(f, info->unit, h->bounds[i]);
		else
			fputs("+Inf", f);
		fprintf(f, "\"} %" PRIu64 "\n", sum);
	}
	fprintf(f, "%s_sum{%s} ", info->name, x->labels);
	rp_metrics_value_write(f, info->unit, h->sum);
	fprintf(f, "\n%s_count{%s} %" PRIu64 "\n", info->name, x->labels, sum);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

/*
 * OpenMetrics names a counter's family without "_total", the older format with it; and a unit can
 * only be told of a name that ends with it.
 */
static void family_write(FILE *f, const struct rp_metric_info *info, bool open)
{
	const char *total = !open && info->kind == RP_METRIC_KIND_COUNTER ? "_total" : "";
	const char *unit = rp_metric_unit_name(info->unit);

	fprintf(f, "# HELP %s%s %s\n# TYPE %s%s %s\n", info->name, total, info->help, info->name,
		total, kind_names[info->kind]);
	if (open && unit[0] && ends_with(info->name, unit))
		fprintf(f, "# UNIT %s %s\n", info->name, unit);
}

char *rp_metrics_text(struct rp_metrics *m, enum rp_metrics_format format, size_t *length)
{
	bool open = format == RP_METRICS_OPENMETRICS;
	char *text = NULL;
	FILE *f = open_memstream(&text, length);

	RP_ASSERT(f != NULL);
	if (m->count > 0)
		qsort(m->items, m->count, sizeof(*m->items), by_name);
	for (size_t i = 0; i < m->count; i++) {
		const struct rp_metric *x = &m->items[i];
		const struct rp_metric_info *info = rp_metric_info(x);

		if (i == 0 || x->id != m->items[i - 1].id)
			family_write(f, info, open);
		if (x->histogram) {
			histogram_write(f, x);
			continue;
		}
		fprintf(f, x->labels[0] ? "%s%s{%s} " : "%s%s%s ", info->name,
			info->kind == RP_METRIC_KIND_COUNTER ? "_total" : "", x->labels);
		rp_metrics_value_write(f, info->unit, x->value);
		fputc('\n', f);
	}
	if (open)
		fputs("# EOF\n", f);
	fclose(f);
	return text;
}

void rp_metrics_markdown(FILE *f)
{
	for (unsigned i = 0; i < RP_METRIC_COUNT; i++) {
		const struct rp_metric_info *info = &rp_metric_infos[i];
		const char *unit = rp_metric_unit_name(info->unit);

		fprintf(f, "| `%s%s` | %s | %s | %s | %s |\n", info->name,
			info->kind == RP_METRIC_KIND_COUNTER ? "_total" : "",
			kind_names[info->kind], unit[0] ? unit : "", info->labels, info->help);
	}
}
