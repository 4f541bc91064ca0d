/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the modes on bare frames share. */

#include "mode.h"

int frames_begin(struct perf_run *r, uint64_t now_ns);
bool frames_turn(struct perf_run *r, uint64_t now_ns);
void frames_end(struct perf_run *r, uint64_t now_ns);

/** Received by that port. */
void frames_count(struct perf_run *r, unsigned port, struct rte_mbuf *const *burst, unsigned n);
/** take: the burst. What the port has no room for is dropped, and counted. */
void frames_send(
	struct perf_run *r, unsigned port, struct rte_mbuf **burst, unsigned n, uint64_t now_ns);
/** Ports go in pairs, 0 and 1, 2 and 3; one without a partner is its own. */
unsigned frames_pair(const struct perf_run *r, unsigned port);
