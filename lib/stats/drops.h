/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The registry of drops: one enum over drop_reason.def, one array of counters a shard. In =
 * delivered + held + the sum of these.
 *
 *   1. A core gets a struct rp_drops of its lcore at creation (borrowed) and calls rp_drop() once
 * for each frame or message that ends there.
 *   2. Anybody reads with rp_drops_read() and rp_drop_reason_info().
 */

#include <stdint.h>

#include <base/units.h>
#include <stats/counters.h>

enum rp_drop_reason {
#define X(name, severity, help) RP_DROP_##name,
#include <stats/drop_reason.def>
#undef X
	RP_DROP_COUNT,
};

enum rp_drop_severity { RP_DROP_NORMAL, RP_DROP_ODD, RP_DROP_BAD };

struct rp_drop_reason_info {
	const char *name, *help;
	enum rp_drop_severity severity;
};

/** Written by the lcore that owns it. */
struct rp_drops {
	uint64_t by_reason[RP_DROP_COUNT];
} __attribute__((aligned(RP_CACHE_LINE)));

static inline void rp_drop_n(struct rp_drops *d, enum rp_drop_reason reason, uint64_t n)
{
	rp_count_by(&d->by_reason[reason], n);
}

static inline void rp_drop(struct rp_drops *d, enum rp_drop_reason reason)
{
	rp_drop_n(d, reason, 1);
}

static inline uint64_t rp_drops_read(const struct rp_drops *d, enum rp_drop_reason reason)
{
	return rp_counter_read(&d->by_reason[reason]);
}

/** Sum over all reasons. Any thread. */
uint64_t rp_drops_total(const struct rp_drops *d);

/** Never NULL for a reason of the enum. */
const struct rp_drop_reason_info *rp_drop_reason_info(enum rp_drop_reason reason);
const char *rp_drop_severity_name(enum rp_drop_severity severity);
