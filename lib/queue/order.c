/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Order for each producer's node, when a queue's dispatcher is another one than before.
 *
 * What the former one took and did not bind goes on to the newer one (forward.c), by another way
 * than what the producer's node sends next. So that node waits: it asks each dispatcher that took
 * something of it (GET without an index) whether all of that has left, and sends what is newer once
 * it has. A node that cannot be reached is not waited for, as the newer dispatcher is there to
 * serve meanwhile; when it comes back it is asked, before anything else leaves.
 *
 * Only what clients of this node put waits so: a message that is handed over, or that may have been
 * sent already, never waits for another one, so no two nodes wait for each other.
 */

#include <string.h>

#include "queue_priv.h"

void left_took(struct rp_queues *qs, struct queue *q, uint64_t node)
{
	uint64_t *took = queue_more(qs, q)->took;
	unsigned i = 0;

	while (i < TOOK_MAX - 1 && took[i] && took[i] != node)
		i++;
	for (; i > 0; i--)
		took[i] = took[i - 1];
	took[0] = node;
}

static void left_forget(struct queue *q, uint64_t node)
{
	uint64_t *took = q->more->took;
	unsigned n = 0;

	for (unsigned i = 0; i < TOOK_MAX; i++) {
		if (took[i] != node)
			took[n++] = took[i];
	}
	memset(took + n, 0, (TOOK_MAX - n) * sizeof(*took));
}

void left_forget_all(struct queue *q)
{
	if (!q->more)
		return;
	memset(q->more->took, 0, sizeof(q->more->took));
	q->more->rival = 0;
}

/* Something is on its way from here to a consumer that can be reached. */
static bool offers_fly(struct rp_queues *qs, const struct queue *q)
{
	const struct rp_list *n;

	if (q->in_flight == 0)
		return false;
	rp_list_foreach (n, &q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);
		const struct peer *p = peer_find(qs, c->node);

		if (c->untook > 0 && p && !p->lost)
			return true;
	}
	return false;
}

bool left_all(struct rp_queues *qs, struct queue *q, uint64_t target, uint64_t now_ns)
{
	/* Of what this node dispatched itself all else is in the order of what it sends. */
	if (!is_self(qs, target) && offers_fly(qs, q))
		return false;
	if (!q->more)
		return true;
	for (unsigned i = 0; i < TOOK_MAX && q->more->took[i]; i++) {
		uint64_t node = q->more->took[i];
		const struct peer *p = node == target ? NULL : peer_find(qs, node);

		if (!p || p->state != RP_NODE_ONLINE || p->lost || queue_is_apart(qs, q, node))
			continue;
		if (!q->asking)
			q->asking = request_left(qs, q, node, now_ns);
		return false;
	}
	return true;
}

void left_answered(struct rp_queues *qs, struct queue *q, uint64_t node, enum rp_qstatus status)
{
	q->asking = false;
	/*
	 * One that has it still when the time is over, and is to give it to consumers, is not
	 * waited for any longer: one of them may be slow for ever. See rp_queue_poll().
	 */
	if (q->more && (status == RP_Q_OK || status == RP_Q_STALL))
		left_forget(q, node);
	queue_work(qs, q);
}

enum rp_qstatus left_status(struct rp_queues *qs, const struct queue *q)
{
	return left_is_moving(q) || offers_fly(qs, q) ? RP_Q_STALL : RP_Q_OK;
}

bool left_is_moving(const struct queue *q)
{
	return lanes_any(q) || q->handing > 0;
}
