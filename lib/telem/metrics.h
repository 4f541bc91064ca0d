/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Metrics as a list, and their text. What there is stands in metrics.def, each name once, with its
 * type, unit and help.
 *
 *   1. rp_metrics_init(); rp_metrics_shard() for each shard's snapshot, rp_metrics_add() for
 * others.
 *   2. rp_metrics_text() for /metrics, or walk `items`.
 *   3. rp_metrics_free().
 *
 * Control thread; it allocates.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <engine/control_engine.h>
#include <engine/shard_engine.h>
#include <grpc/server.h>
#include <ktcp/ktcp.h>
#include <port/port.h>
#include <repl/repl.h>
#include <sink/clickhouse.h>
#include <sink/postgres.h>
#include <store/store.h>
#include <xcore/xcore.h>

/** X(name, unit of OpenMetrics, how many of what is given are one of them) */
#define RP_METRIC_UNITS(X)           \
	X(ONE, "", 1)                \
	X(BYTES, "bytes", 1)         \
	X(SECONDS, "seconds", 1)     \
	X(US, "seconds", 1000000)    \
	X(NS, "seconds", 1000000000) \
	X(PPM, "ratio", 1000000)

enum rp_metric_unit {
#define X(name, text, parts) RP_METRIC_UNIT_##name,
	RP_METRIC_UNITS(X)
#undef X
};

enum rp_metric_kind {
	RP_METRIC_KIND_COUNTER, /**< only grows; its text adds "_total" to the name */
	RP_METRIC_KIND_GAUGE,
	RP_METRIC_KIND_HISTOGRAM,
};

enum rp_metric_id {
#define RP_METRIC(id, name, kind, unit, labels, help) RP_METRIC_##id,
#include <telem/metrics.def>
	RP_METRIC_COUNT,
};

struct rp_metric_info {
	const char *name;   /**< without "_total" */
	const char *labels; /**< names, with commas between */
	const char *help;
	enum rp_metric_kind kind;
	enum rp_metric_unit unit;
};

extern const struct rp_metric_info rp_metric_infos[RP_METRIC_COUNT];

/** As OpenMetrics names it, "" = none; how many parts of it a value is in. */
const char *rp_metric_unit_name(enum rp_metric_unit unit);
uint64_t rp_metric_unit_parts(enum rp_metric_unit unit);

#define RP_METRIC_BUCKETS_MAX 16
/** Values in buckets: bucket i counts those above bounds[i - 1], up to bounds[i]; the last the
 * rest. */
struct rp_metric_histogram {
	unsigned buckets; /**< the last one has no bound */
	uint64_t bounds[RP_METRIC_BUCKETS_MAX];
	uint64_t counts[RP_METRIC_BUCKETS_MAX];
	uint64_t sum;
};

struct rp_metric {
	enum rp_metric_id id;
	char *labels;	/**< name="text",name="text"; "" = none */
	uint64_t value; /**< in parts of the unit; of a histogram how many values there were */
	struct rp_metric_histogram *histogram; /**< NULL: it is none */
};

static inline const struct rp_metric_info *rp_metric_info(const struct rp_metric *m)
{
	return &rp_metric_infos[m->id];
}

enum rp_metrics_format {
	RP_METRICS_PROMETHEUS,	/**< text/plain; version=0.0.4, which every scraper reads */
	RP_METRICS_OPENMETRICS, /**< application/openmetrics-text; version=1.0.0 */
};

struct rp_metrics {
	struct rp_metric *items;
	size_t count, size;
};

void rp_metrics_init(struct rp_metrics *m);
void rp_metrics_free(struct rp_metrics *m);
/** `labels` is copied. `value` is in parts of the metric's unit. */
void rp_metrics_add(struct rp_metrics *m, enum rp_metric_id id, const char *labels, uint64_t value);
/** Copied; bounds and sum are in parts of the metric's unit. */
void rp_metrics_add_histogram(struct rp_metrics *m, enum rp_metric_id id, const char *labels,
	const struct rp_metric_histogram *h);
/** The text of a label's value: quotes, backslashes and ends of lines escaped. */
void rp_metrics_label(char *out, size_t size, const char *value);
/** Everything in a shard's snapshot: engine, queues, deliver, links, tcp, net and the loop. */
void rp_metrics_shard(struct rp_metrics *m, unsigned shard, const struct rp_engine_snapshot *s);
/** The text of all, grouped by name; malloc'd, free it. */
char *rp_metrics_text(struct rp_metrics *m, enum rp_metrics_format format, size_t *length);
/** What `accept` (a request's header, NULL = none) asks for, and the Content-Type of that. */
enum rp_metrics_format rp_metrics_format_of(const char *accept, const char **content_type);
/** The value of a metric in its unit, "12.000034"; not of a histogram. */
void rp_metrics_value_write(FILE *f, enum rp_metric_unit unit, uint64_t value);

/** docs/counters.md: a table of all, a line each. */
void rp_metrics_markdown(FILE *f);
