/* SPDX-License-Identifier: Apache-2.0 */
#include "load_priv.h"

/** A turn that took longer was held up: it has a bound on its work. */
#define SLOW_NS RP_NS_PER_MS

void shard_load_init(struct shard_load *l, uint64_t tsc_hz, uint64_t now_ns)
{
	*l = (struct shard_load){.tsc_hz = tsc_hz, .begin_ns = now_ns};
}

void shard_load_turn(struct shard_load *l, bool busy, uint64_t took_ns)
{
	l->loop.loops++;
	l->loop.slow_loops += took_ns > SLOW_NS;
	if (busy) {
		l->loop.busy_loops++;
		l->loop.busy_ns += took_ns;
	} else {
		l->loop.idle_ns += took_ns;
	}
}

void shard_load_second(struct shard_load *l, uint64_t messages, uint64_t now_ns)
{
	uint64_t took_ns = now_ns - l->begin_ns, busy_ns = l->loop.busy_ns - l->busy_ns;
	uint64_t items = l->loop.items - l->items;
	double cycles = (double)busy_ns * (double)l->tsc_hz / (double)RP_NS_PER_S;

	l->loop.busy_ppm = RP_MIN(busy_ns * 1000 / (took_ns / 1000), 1000000u);
	if (items > 0)
		l->loop.item_cycles = (uint64_t)(cycles / (double)items);
	if (messages > l->messages)
		l->loop.message_cycles = (uint64_t)(cycles / (double)(messages - l->messages));
	l->begin_ns = now_ns;
	l->busy_ns += busy_ns;
	l->items += items;
	l->messages = messages;
}
