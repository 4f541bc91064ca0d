/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An open loop: when each operation is planned, whatever became of those before it, and how long
 * each took, from its plan and from when it was begun. A stall of what is measured delays all
 * that is planned meanwhile; who only looks at what was begun never sees that (coordinated
 * omission).
 *
 *   1. perf_pace_begin(). Each turn: while perf_pace_due(), begin one: perf_pace_take() says when
 *      it was planned.
 *   2. perf_pace_done() for each that ended well, perf_pace_lost() for others.
 *   3. After perf_pace_over() wait a little for what is open; then perf_pace_verdict().
 *
 * It reads no clock and allocates nothing. Rate 0 is a closed loop: each is planned for when it is
 * begun, and both histograms are the same.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>
#include <stats/hist.h>

/** Slots of the time series. */
#define PERF_SERIES_MAX 600

struct perf_pace_config {
	double rate;	  /**< operations a second; 0: closed loop */
	unsigned fan_out; /**< each that is planned ends so often; 0 = 1 */
	/** What is planned in the first and the last of the three is not counted. */
	uint64_t warmup_ns, run_ns, cool_ns;
};

struct perf_pace_slot {
	uint64_t count, sum_ns, max_ns;
};

struct perf_pace {
	struct perf_pace_config config;
	uint64_t begin_ns, slot_ns;
	uint64_t taken;		  /**< begun, all of the run */
	uint64_t planned, done;	  /**< of those that count */
	uint64_t ended_in_window; /**< whenever planned */
	uint64_t lost;		  /**< of those that count */
	uint64_t units;		  /**< of ended_in_window: messages, bytes, as the mode says */
	struct rp_hist corrected, raw;
	struct perf_pace_slot series[PERF_SERIES_MAX]; /**< by plan; corrected */
};

/** What became of it. */
struct perf_verdict {
	double wanted, achieved; /**< operations a second within the window that counts */
	uint64_t open;		 /**< planned there and without an end */
	bool met;		 /**< 99 of 100 of the rate, and nothing lost or open */
};

void perf_pace_begin(struct perf_pace *p, const struct perf_pace_config *config, uint64_t now_ns);
/** When the next one is planned; RP_NEVER: the run is over. */
uint64_t perf_pace_next(const struct perf_pace *p, uint64_t now_ns);
static inline bool perf_pace_due(const struct perf_pace *p, uint64_t now_ns)
{
	return perf_pace_next(p, now_ns) <= now_ns;
}
/** Begins one that is due: its plan. */
uint64_t perf_pace_take(struct perf_pace *p, uint64_t now_ns);
/** Not begun after all: it is due again. The last one taken. */
void perf_pace_untake(struct perf_pace *p, uint64_t planned_ns);
void perf_pace_done(struct perf_pace *p, uint64_t planned_ns, uint64_t begun_ns, uint64_t units,
	uint64_t now_ns);
/** Over at once, its time is not known: it counts as done where it is planned. */
void perf_pace_skip(struct perf_pace *p, uint64_t planned_ns);
void perf_pace_lost(struct perf_pace *p, uint64_t planned_ns);
/** It is in the window that counts. */
bool perf_pace_in_window(const struct perf_pace *p, uint64_t now_ns);
bool perf_pace_over(const struct perf_pace *p, uint64_t now_ns);
void perf_pace_verdict(const struct perf_pace *p, struct perf_verdict *v);
