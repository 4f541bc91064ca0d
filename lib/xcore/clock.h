/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Time of the shards: nanoseconds on CLOCK_MONOTONIC's scale, derived from the TSC, so that a
 * reading costs no system call. The control thread measures and publishes an anchor each second;
 * a shard follows it from its next loop turn on.
 *
 *   1. rp_clock_init() by the control thread before the shards start.
 *   2. rp_clock_publish() by the control thread, once a second.
 *   3. rp_clock_now() by each shard with a reader of its own, once a loop turn.
 *
 * A reader never goes backwards, and the published rate never leaves the measured one by more than
 * RP_CLOCK_SLEW_PPM, so that a step of the anchor becomes a slope.
 */

#include <stdatomic.h>
#include <stdint.h>

#include <base/units.h>

#define RP_CLOCK_SLEW_PPM 500

/** Written by the control thread, read by shards under the sequence count. */
struct rp_clock {
	_Atomic uint32_t sequence; /**< odd while the control thread writes */
	uint32_t pad;
	_Atomic uint64_t tsc, mono_ns;
	_Atomic uint64_t ns_per_tsc_q32; /**< nanoseconds a tick, 32.32 fixed point */
	_Atomic int64_t wall_offset_ns;	 /**< CLOCK_REALTIME minus CLOCK_MONOTONIC */
	/* The control thread's own. */
	uint64_t measured_tsc, measured_ns;
} __attribute__((aligned(RP_CACHE_LINE)));

/** One shard's view. */
struct rp_clock_reader {
	const struct rp_clock *clock;
	uint32_t sequence;
	uint64_t tsc, mono_ns, ns_per_tsc_q32;
	int64_t wall_offset_ns;
	uint64_t last_ns;
};

/** Measures the TSC's rate for about `measure_ns` (10 ms is enough). Control thread. */
void rp_clock_init(struct rp_clock *c, uint64_t measure_ns);
/** Measures again and publishes. Control thread. */
void rp_clock_publish(struct rp_clock *c);
void rp_clock_reader_init(struct rp_clock_reader *r, const struct rp_clock *c);
/** Now, in ns; never less than the last reading. The reader's lcore. */
uint64_t rp_clock_now(struct rp_clock_reader *r);
/** Wall-clock microseconds since 1970 that belong to `now_ns`. The reader's lcore. */
static inline uint64_t rp_clock_wall_us(const struct rp_clock_reader *r, uint64_t now_ns)
{
	return (uint64_t)((int64_t)now_ns + r->wall_offset_ns) / RP_NS_PER_US;
}

/*
 * Pure part, for the tests: the rate that brings a clock which stands `error_ns` behind (positive)
 * or ahead of the measurement back within `period_ns`, limited to RP_CLOCK_SLEW_PPM of `rate_q32`.
 */
uint64_t rp_clock_slewed_rate(uint64_t rate_q32, int64_t error_ns, uint64_t period_ns);
