/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Metrics as a list, and their text. Names are ringpost_<module>_<counter>; what a metric counts is
 * in the list that declares it.
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

#include <engine/shard_engine.h>

struct rp_metric {
	char name[80];
	char *labels;	  /**< without braces; "" = none */
	const char *help; /**< constant */
	uint64_t value;
	uint32_t parts; /**< `value` is in as many parts of the metric's unit, a power of ten; 1 */
	bool gauge;
	struct rp_queue_times *times; /**< a histogram, of seconds; `value` is its count. NULL */
};

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
/** `labels` is copied, `help` is not. */
void rp_metrics_add(struct rp_metrics *m, const char *module, const char *name, const char *help,
	const char *labels, uint64_t value, bool gauge);
/** The same under a whole name, without "ringpost_"; a counter's "_total" is added in its text. */
void rp_metrics_add_as(struct rp_metrics *m, const char *name, const char *help, const char *labels,
	uint64_t value, bool gauge);
/** The same, of a value in micros of the metric's unit. */
void rp_metrics_add_micros(struct rp_metrics *m, const char *name, const char *help,
	const char *labels, uint64_t micros, bool gauge);
/** A histogram of durations; copied. Its name ends with _seconds. */
void rp_metrics_add_times(struct rp_metrics *m, const char *name, const char *help,
	const char *labels, const struct rp_queue_times *times);
/** Everything in a shard's snapshot: engine, queues, deliver, links, tcp, net and the loop. */
void rp_metrics_shard(struct rp_metrics *m, unsigned shard, const struct rp_engine_snapshot *s);
/** The text of all, grouped by name; malloc'd, free it. */
char *rp_metrics_text(struct rp_metrics *m, enum rp_metrics_format format, size_t *length);
/** What `accept` (a request's header, NULL = none) asks for, and the Content-Type of that. */
enum rp_metrics_format rp_metrics_format_of(const char *accept, const char **content_type);
