/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Answers of DPDK's telemetry, made of metrics. Their names may hold no label, so that of metrics
 * of the same name there is the sum; and only whole numbers: seconds are nanoseconds there, in a
 * name that ends with _ns, ratios parts of a million (_ppm).
 *
 * Any thread; the metrics are the caller's.
 */

#include <rte_telemetry.h>

#include <telem/metrics.h>

/**
 * The names that begin with `prefix` with their sums over those with `label` (as shard="0"; NULL:
 * all), from the one with number `skip` on; where there are more than an answer holds, `next` says
 * where to go on. 0 or -errno for the library.
 */
int rp_telem_metrics(struct rte_tel_data *d, const struct rp_metrics *m, const char *prefix,
	const char *label, unsigned skip);
/** What came, what became of it, and what is lost. 0 or -errno. */
int rp_telem_drops(struct rte_tel_data *d, const struct rp_metrics *m);
