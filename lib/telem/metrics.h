/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Metrics as a list, and their text. Names are ringpost_<module>_<counter>; what a metric counts is
 * in the list that declares it.
 *
 *   1. rp_metrics_init(); rp_metrics_shard() for each shard's snapshot, rp_metrics_add() for
 * others.
 *   2. rp_metrics_openmetrics() for /metrics, or walk `items`.
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
	bool gauge;
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
/** Everything in a shard's snapshot: engine, queues, deliver, links, tcp, net and the loop. */
void rp_metrics_shard(struct rp_metrics *m, unsigned shard, const struct rp_engine_snapshot *s);
/** The text of all, grouped by name, ending in "# EOF"; malloc'd, free it. */
char *rp_metrics_openmetrics(struct rp_metrics *m, size_t *length);
