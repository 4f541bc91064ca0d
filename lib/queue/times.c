/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How long messages waited and how long their offers took: of the shard, and of the queues where
 * something happened lately. There are TIMES_MAX records for these; a queue that has none takes
 * that of one that was not used for the longest, nearly (the clock algorithm), so that an idle
 * queue costs nothing for it.
 */

#include <stdlib.h>

#include "trace_priv.h"

#define TIMES_MAX 4096

struct queue_times {
	struct queue *q; /**< NULL: free */
	bool recent;	 /**< used since the hand came by */
	struct rp_queue_times wait, accept;
};

struct queue_times_table {
	uint32_t hand;
	struct queue_times items[TIMES_MAX];
};

struct queue_times_table *times_new(void)
{
	return calloc(1, sizeof(struct queue_times_table));
}

static unsigned bucket_of(uint64_t ns)
{
	uint64_t us = (ns + RP_NS_PER_US - 1) / RP_NS_PER_US;
	unsigned i = us <= 1 ? 0 : (65 - (unsigned)__builtin_clzll(us - 1)) / 2;

	return RP_MIN(i, (unsigned)RP_QUEUE_TIMES_BUCKETS - 1);
}

static void times_add(struct rp_queue_times *t, unsigned bucket, uint64_t ns)
{
	t->buckets[bucket]++;
	t->count++;
	t->sum_ns += ns;
	t->max_ns = RP_MAX(t->max_ns, ns);
}

static struct queue_times *times_take(struct queue_times_table *table, struct queue *q)
{
	struct queue_times *t;

	for (;;) {
		t = &table->items[table->hand];
		table->hand = (table->hand + 1) % TIMES_MAX;
		if (!t->q || !t->recent)
			break;
		t->recent = false;
	}
	if (t->q)
		t->q->times_slot = 0;
	*t = (struct queue_times){.q = q};
	q->times_slot = (uint16_t)(t - table->items + 1);
	return t;
}

void times_count(struct rp_queues *qs, struct queue *q, uint64_t wait_ns, uint64_t accept_ns)
{
	struct queue_times *t =
		q->times_slot ? &qs->times->items[q->times_slot - 1] : times_take(qs->times, q);
	unsigned wait = bucket_of(wait_ns), accept = bucket_of(accept_ns);

	t->recent = true;
	times_add(&t->wait, wait, wait_ns);
	times_add(&t->accept, accept, accept_ns);
	times_add(&qs->wait, wait, wait_ns);
	times_add(&qs->accept, accept, accept_ns);
}

void times_forget(struct rp_queues *qs, struct queue *q)
{
	if (q->times_slot)
		qs->times->items[q->times_slot - 1].q = NULL;
	q->times_slot = 0;
}

bool rp_queue_times_of(const struct rp_queues *qs, struct rp_span name, struct rp_queue_times *wait,
	struct rp_queue_times *accept)
{
	const struct queue *q =
		name.length && name.length <= RP_NAME_BYTES_MAX ? queue_find(qs, name) : NULL;

	if (!q || !q->times_slot)
		return false;
	*wait = qs->times->items[q->times_slot - 1].wait;
	*accept = qs->times->items[q->times_slot - 1].accept;
	return true;
}
