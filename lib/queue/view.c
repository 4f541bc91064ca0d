/* SPDX-License-Identifier: Apache-2.0 */

/* What people ask of consumers: where they are, what they hold, and why nothing is offered. */

#include "queue_priv.h"

uint32_t rp_queue_consumer_slots(const struct rp_queues *qs)
{
	return qs->consumers.fresh;
}

static const char *host_state(const struct host *h)
{
	if (!h->open)
		return rp_list_empty(&h->timer) ? "closed by the server" : "resuming";
	return h->stalled ? "no room" : NULL;
}

static const char *consumer_state(const struct rp_queues *qs, const struct consumer *c)
{
	const char *text = c->host ? host_state(c->host) : NULL;

	if (text)
		return text;
	if (consumer_is_apart(qs, c))
		return "kept apart";
	/* Only the dispatcher offers; what other nodes know of it is where it is. */
	if (!c->q->own)
		return c->host ? "open" : "known";
	switch ((enum consumer_pause)c->pause) {
	case PAUSE_RETRY:
		return "retry";
	case PAUSE_STALL:
		return "no room";
	case PAUSE_SUSPENDED:
		return "suspended";
	case PAUSE_DOUBT:
		return "in doubt";
	case PAUSE_PATH:
		return "unreachable";
	case PAUSE_NONE:
		break;
	}
	if (c->away || !c->life)
		return "away";
	return c->outstanding >= c->prefetch ? "full" : "ready";
}

bool rp_queue_consumer_at(const struct rp_queues *qs, uint32_t slot,
	struct rp_queue_consumer_info *info, uint64_t now_ns)
{
	const struct consumer *c =
		(const struct consumer *)(qs->consumers.base +
					  (size_t)slot * qs->consumers.item_size);

	if (slot >= qs->consumers.fresh || !consumer_is_live(qs, c))
		return false;
	*info = (struct rp_queue_consumer_info){
		.name = queue_name(c->q),
		.node = c->host	  ? qs->config.node
			: c->life ? c->node
				  : c->record_node,
		.here = c->host != NULL,
		.dispatched = c->q->own,
		.state = consumer_state(qs, c),
		.prefetch = c->prefetch,
		.outstanding = c->outstanding,
		.unaccepted = c->unaccepted,
		.holds = c->host ? c->host->hold_count : 0,
		.offers = c->offers,
		.acks = c->acks,
		.max_bytes = c->max_bytes,
		.match = {c->match, c->match_length},
	};
	if (!rp_list_empty(&c->bound))
		info->oldest_ns = age_ns(
			rp_list_entry(c->bound.next, struct message, link)->bound_ns, now_ns);
	memcpy(info->uuid, c->uuid, sizeof(info->uuid));
	return true;
}

static void place_add(struct rp_queue_place *places, uint32_t *count, uint32_t max, uint64_t node)
{
	for (uint32_t i = 0; i < *count; i++) {
		if (places[i].node == node) {
			places[i].consumers++;
			return;
		}
	}
	if (*count < max)
		places[(*count)++] = (struct rp_queue_place){.node = node, .consumers = 1};
}

uint32_t rp_queue_places(const struct rp_queues *qs, struct rp_span name,
	struct rp_queue_place *places, uint32_t max)
{
	const struct queue *q = name.length ? queue_find(qs, name) : NULL;
	uint32_t count = 0;
	struct rp_list *n;

	if (!q)
		return 0;
	rp_list_foreach (n, &q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);
		uint64_t node = c->host ? qs->config.node : c->life ? c->node : c->record_node;

		if (node && !consumer_is_apart(qs, c))
			place_add(places, &count, max, node);
	}
	return count;
}
