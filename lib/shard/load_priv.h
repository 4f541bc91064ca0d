/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How busy the loop is, and with what. The shard's lcore alone; what is kept by the second is made
 * once a second, so that a turn adds to counters only.
 */

#include <stdbool.h>
#include <stdint.h>

#include <engine/shard_engine.h>

struct shard_load {
	struct rp_engine_loop loop;
	uint64_t tsc_hz;
	/* Where the second began. */
	uint64_t begin_ns, busy_ns, items, messages;
};

void shard_load_init(struct shard_load *l, uint64_t tsc_hz, uint64_t now_ns);
/** A turn ended that took so long. */
void shard_load_turn(struct shard_load *l, bool busy, uint64_t took_ns);
/** The second is over. */
static inline bool shard_load_due(const struct shard_load *l, uint64_t now_ns)
{
	return now_ns - l->begin_ns >= RP_NS_PER_S;
}
/** Ends it, between turns: `messages` were put or sent here since the start. */
void shard_load_second(struct shard_load *l, uint64_t messages, uint64_t now_ns);

/** A burst that had some. */
static inline void shard_load_burst(struct shard_load *l, struct rp_engine_bursts *b, unsigned n)
{
	unsigned i = n <= 1 ? 0 : 32 - (unsigned)__builtin_clz(n - 1);

	b->counts[i < RP_ENGINE_BURST_BUCKETS ? i : RP_ENGINE_BURST_BUCKETS]++;
	b->sum += n;
	l->loop.items += n;
}
