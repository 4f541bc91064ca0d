/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where there are many queues, each message is of another one, whose state has left the caches: a
 * dozen lines, one found by the other. Those of a burst are fetched together, a step at a time for
 * all of them, so that they wait for memory once.
 */

#include <base/fetch.h>

#include "queue_priv.h"

/* With fewer queues all of it is near anyway. */
#define FETCH_QUEUES_MIN 64

static const struct consumer *first_consumer(const struct queue *q)
{
	return rp_list_empty(&q->consumers)
		       ? NULL
		       : rp_list_entry(q->consumers.next, struct consumer, link);
}

void rp_queue_fetch(const struct rp_queues *qs, const uint32_t *hashes, unsigned n)
{
	const struct queue *q[RP_QUEUE_FETCH_MAX];

	if (qs->queues.used < FETCH_QUEUES_MIN)
		return;
	n = RP_MIN(n, (unsigned)RP_QUEUE_FETCH_MAX);
	for (unsigned i = 0; i < n; i++)
		__builtin_prefetch(&qs->queue_table[hashes[i] & qs->queue_mask]);
	for (unsigned i = 0; i < n; i++) {
		q[i] = qs->queue_table[hashes[i] & qs->queue_mask];
		rp_fetch(q[i], sizeof(*q[i]));
	}
	for (unsigned i = 0; i < n; i++) {
		const struct consumer *c = q[i] ? first_consumer(q[i]) : NULL;

		if (!q[i])
			continue;
		rp_fetch(q[i]->name, 1);
		rp_fetch(q[i]->producers, sizeof(*q[i]->producers));
		rp_fetch(c, sizeof(*c));
	}
	for (unsigned i = 0; i < n; i++) {
		const struct consumer *c = q[i] ? first_consumer(q[i]) : NULL;

		if (c)
			rp_fetch(c->host, offsetof(struct host, done));
	}
}
