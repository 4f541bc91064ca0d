/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A node that leaves: it stops, or is drained. Both hand over what the node dispatches. Who stops
 * has little time and takes no put; who drains serves on for as long as it takes, forwards puts to
 * the new dispatchers, and ends its consumers once none of its queues is left, so that they go on
 * at another node with what they hold.
 */

#include "queue_priv.h"

/* So many moves are under way at once. */
#define MOVES_AT_ONCE 256
/* Queues that nobody took are looked at again after this. */
#define DRAIN_AGAIN_NS (1 * RP_NS_PER_S)

void rp_queue_stop(struct rp_queues *qs, uint64_t now_ns)
{
	qs->stopping = true;
	qs->leave_cursor = 0;
}

/*
 * Consumers of this node may claim again what they could not. One that was sent away and has not
 * come back, here or elsewhere, is waited for no longer than any other: nobody else has what it
 * holds.
 */
static void hosts_recheck(struct rp_queues *qs, uint64_t now_ns)
{
	for (uint32_t i = 0; i < qs->hosts.fresh; i++) {
		struct host *h = (struct host *)(qs->hosts.base + (size_t)i * qs->hosts.item_size);

		if (h->c && !h->open && rp_list_empty(&h->timer)) {
			h->deadline_ns = now_ns + qs->config.resume_ns;
			rp_list_push_back(&qs->resuming, &h->timer);
		}
		if (!h->c || !h->open)
			continue;
		h->c->q->recheck = true;
		queue_work(qs, h->c->q);
	}
}

void rp_queue_drain(struct rp_queues *qs, bool on, uint64_t now_ns)
{
	if (qs->draining == on)
		return;
	qs->draining = on;
	qs->leave_cursor = qs->leave_hosts = 0;
	qs->leave_again_ns = now_ns + DRAIN_AGAIN_NS;
	if (!on)
		hosts_recheck(qs, now_ns);
}

bool rp_queue_is_moving(const struct rp_queues *qs)
{
	return qs->stopping && (qs->leave_cursor <= qs->queue_mask || !rp_list_empty(&qs->moves));
}

static bool may_go_on(const struct rp_queues *qs)
{
	return is_leaving(qs) && qs->leave_cursor <= qs->queue_mask &&
	       qs->moves_slab.used < MOVES_AT_ONCE;
}

/* No queue of this node is left, and some consumers were not looked at since. */
static bool may_end_hosts(const struct rp_queues *qs)
{
	return qs->draining && !qs->stopping && qs->own_count == 0 &&
	       qs->leave_hosts < qs->hosts.fresh;
}

/* What its client was shown is known to the dispatcher, so that it is not shown again elsewhere. */
static bool host_has_reported(const struct host *h)
{
	const struct rp_list *n;

	rp_list_foreach (n, &h->holds) {
		if (rp_list_entry(n, struct hold, link)->report)
			return false;
	}
	return true;
}

/* By the server, so what they hold stays theirs. */
static void host_send_away(struct rp_queues *qs, struct host *h)
{
	if (!h->c || !h->open || !host_has_reported(h))
		return;
	qs->ops.consumer_ended(qs->ctx, h->handle, RP_QUEUE_END_DRAINING);
	h->open = false;
	consumer_update(qs, h->c);
}

void leave_step(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; i < POLL_BUDGET && may_go_on(qs); i++) {
		struct queue *q = qs->queue_table[qs->leave_cursor++];

		for (; q; q = q->hash_next) {
			if (q->own || (q->depth > 0 && q->dispatcher))
				move_begin(qs, q, now_ns);
		}
	}
	for (unsigned i = 0; i < POLL_BUDGET && may_end_hosts(qs); i++)
		host_send_away(qs, (struct host *)(qs->hosts.base + (size_t)qs->leave_hosts++ *
									    qs->hosts.item_size));
	if (qs->draining && !qs->stopping && now_ns >= qs->leave_again_ns) {
		qs->leave_again_ns = now_ns + DRAIN_AGAIN_NS;
		qs->leave_cursor = qs->own_count > 0 ? 0 : qs->leave_cursor;
		qs->leave_hosts = 0;
	}
}

uint64_t leave_next_ns(const struct rp_queues *qs)
{
	if (may_go_on(qs) || may_end_hosts(qs))
		return 0;
	return qs->draining && !qs->stopping ? qs->leave_again_ns : RP_NEVER;
}
