/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A dispatcher that is pinned, and one that follows its only consumer (spec/queues.md, "Election,
 * epoch and placement").
 *
 * Who hosts consumers takes a queue over from a node that hosts none, within `resume_ns`. A pinned
 * queue is not taken over so: its dispatcher was placed, as the end of a pair of queues that does
 * not move with each watch. It follows when it is plain where to: one consumer in all, on another
 * node that is Online, there for `pin_ns`, and no message that is not acknowledged. A queue that is
 * not pinned goes the same way, should nobody have asked for it.
 */

#include "queue_priv.h"

/* The only consumer, when it is where the queue could go; else NULL. */
static const struct consumer *pin_consumer(struct rp_queues *qs, const struct queue *q)
{
	const struct rp_list *first = q->consumers.next;
	const struct consumer *c = rp_list_entry(first, struct consumer, link);
	const struct peer *p;

	if (!q->own || first == &q->consumers || first->next != &q->consumers || is_leaving(qs))
		return NULL;
	if (!c->life || c->away || is_self(qs, c->node) || c->record_node != c->node)
		return NULL;
	p = peer_find(qs, c->node);
	return p && p->state == RP_NODE_ONLINE && !p->lost && !consumer_is_apart(qs, c) ? c : NULL;
}

static void pin_wait(struct rp_queues *qs, struct queue *q, uint64_t node, uint64_t now_ns)
{
	struct queue_more *more = queue_more(qs, q);

	rp_list_unlink(&more->pin);
	more->pin_node = node;
	more->pin_at_ns = now_ns + qs->config.pin_ns;
	if (node)
		rp_list_push_back(&qs->pins, &more->pin);
}

void pin_look(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	const struct consumer *c = pin_consumer(qs, q);
	uint64_t node = c ? c->node : 0;

	if (node != (q->more ? q->more->pin_node : 0)) {
		pin_wait(qs, q, node, now_ns);
		return;
	}
	/* One that is busy when its time has come is looked at when it has drained. */
	if (!node || q->more->pin_at_ns > now_ns || q->depth > 0 || q->move)
		return;
	pin_wait(qs, q, node, now_ns);
	if (move_follow(qs, q, node, now_ns))
		COUNT(qs, q, pins);
}

void pin_forget(struct queue *q)
{
	if (!q->more)
		return;
	rp_list_unlink(&q->more->pin);
	q->more->pin_node = 0;
}

bool pin_poll(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(&qs->pins); i++) {
		struct queue_more *more = rp_list_entry(qs->pins.next, struct queue_more, pin);

		if (more->pin_at_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		rp_list_unlink(&more->pin);
		pin_look(qs, more->q, now_ns);
	}
	return false;
}

void rp_queue_pin(struct rp_queues *qs, struct rp_span name, uint64_t now_ns)
{
	struct queue *q = queue_get(qs, name, now_ns);

	if (!q) {
		COUNT_SHARD(qs, refused_limit);
		return;
	}
	if (q->own) {
		q->pinned = true;
		qs->ops.claimed(qs->ctx, queue_name(q), q->epoch, true);
		return;
	}
	q->pin_wanted = true;
	queue_recheck(qs, q, now_ns);
}
