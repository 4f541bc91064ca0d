/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Answers of DPDK's telemetry, made of metrics and of connections. Names may hold no label, so that
 * of metrics of the same name there is the sum; and numbers are whole ones: seconds are nanoseconds
 * there, in a name that ends with _ns, ratios parts of a million (_ppm).
 *
 * Any thread; metrics and connections are the caller's.
 */

#include <rte_telemetry.h>

#include <tcp/tcp.h>
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

/** A connection of the links, as a snapshot has it. */
struct rp_telem_connection {
	uint32_t shard, port; /**< port: index in ports[] */
	uint64_t now_ns;      /**< of the snapshot */
	struct rp_tcp_info info;
};

/** "LOCAL PEER STATE" of each, as many as an answer holds. 0 or -errno. */
int rp_telem_connections(struct rte_tel_data *d, const struct rp_telem_connection *all, uint32_t n);
/**
 * All of one, by the names that `ringpostctl show tcp -j` has, what is not known left out; with
 * `connections`, of how many it is one. NULL: there is none. 0 or -errno.
 */
int rp_telem_connection(
	struct rte_tel_data *d, const struct rp_telem_connection *c, uint32_t connections);
