/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Log-linear histogram of durations in nanoseconds: each power of two is cut into 64 equal parts,
 * so a reported value is within 1/64 of the recorded one. Values up to 2^40 ns (18 minutes) have
 * buckets of their own, longer ones share the last; least, most and sum are exact.
 *
 *   1. rp_hist_init(), or a zeroed struct and one rp_hist_init() before use.
 *   2. rp_hist_record() by the owner; no allocation, no loop.
 *   3. rp_hist_merge() into the reader's own, rp_hist_percentile() there.
 *
 * One writer. A reader of another thread sees each bucket whole, the set of them not at one
 * instant.
 */

#include <stdint.h>

#define RP_HIST_SUB_BITS 6
#define RP_HIST_VALUE_BITS 40
#define RP_HIST_BUCKETS ((RP_HIST_VALUE_BITS - RP_HIST_SUB_BITS + 1) << RP_HIST_SUB_BITS)

struct rp_hist {
	uint64_t count, sum_ns, min_ns, max_ns;
	uint64_t buckets[RP_HIST_BUCKETS];
};

void rp_hist_init(struct rp_hist *h);

/** Adds `from` to `to`, bucket by bucket. `from` may be another thread's. */
void rp_hist_merge(struct rp_hist *to, const struct rp_hist *from);

/**
 * The value below or at which `percent` (0 to 100) of the recorded ones lie: the upper edge of its
 * bucket, never above max_ns. 0 when nothing was recorded.
 */
uint64_t rp_hist_percentile(const struct rp_hist *h, double percent);

/** Mean in ns, 0 when nothing was recorded. */
uint64_t rp_hist_mean(const struct rp_hist *h);

/** Least and most value of a bucket. */
uint64_t rp_hist_bucket_low(unsigned bucket);
uint64_t rp_hist_bucket_high(unsigned bucket);

static inline unsigned rp_hist_bucket_of(uint64_t value_ns)
{
	unsigned shift;

	if (value_ns >> RP_HIST_VALUE_BITS)
		return RP_HIST_BUCKETS - 1;
	if (value_ns >> RP_HIST_SUB_BITS == 0)
		return (unsigned)value_ns;
	shift = 63 - RP_HIST_SUB_BITS - (unsigned)__builtin_clzll(value_ns);
	return ((shift + 1) << RP_HIST_SUB_BITS) +
	       (unsigned)((value_ns >> shift) - (1u << RP_HIST_SUB_BITS));
}

static inline void rp_hist_record_n(struct rp_hist *h, uint64_t value_ns, uint64_t n)
{
	uint64_t *b = &h->buckets[rp_hist_bucket_of(value_ns)];

	__atomic_store_n(b, *b + n, __ATOMIC_RELAXED);
	__atomic_store_n(&h->count, h->count + n, __ATOMIC_RELAXED);
	__atomic_store_n(&h->sum_ns, h->sum_ns + value_ns * n, __ATOMIC_RELAXED);
	if (value_ns < h->min_ns)
		__atomic_store_n(&h->min_ns, value_ns, __ATOMIC_RELAXED);
	if (value_ns > h->max_ns)
		__atomic_store_n(&h->max_ns, value_ns, __ATOMIC_RELAXED);
}

static inline void rp_hist_record(struct rp_hist *h, uint64_t value_ns)
{
	rp_hist_record_n(h, value_ns, 1);
}
