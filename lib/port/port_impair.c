/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "port_priv.h"

static bool is_plain(const struct rp_impair_spec *s)
{
	return s->drop <= 0 && s->duplicate <= 0 && s->reorder <= 0 && s->delay_ns == 0 &&
	       s->jitter_ns == 0 && !s->cut;
}

int port_hold_init(
	struct port_hold *h, const struct rp_impair_spec *spec, uint64_t seed, uint32_t held_max)
{
	*h = (struct port_hold){.count_max = held_max, .active = !is_plain(spec)};
	rp_impair_init(&h->impair, spec, seed);
	h->heap = calloc(held_max, sizeof(*h->heap));
	return h->heap ? 0 : -ENOMEM;
}

void port_hold_fini(struct port_hold *h)
{
	for (uint32_t i = 0; i < h->count; i++)
		rte_pktmbuf_free(h->heap[i].frame);
	free(h->heap);
	*h = (struct port_hold){0};
}

void port_hold_set(struct port_hold *h, const struct rp_impair_spec *spec)
{
	rp_impair_set(&h->impair, spec);
	h->active = h->count > 0 || !is_plain(spec);
}

static bool is_before(const struct port_held *a, const struct port_held *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void insert(struct port_hold *h, struct rte_mbuf *frame, uint64_t due_ns)
{
	struct port_held x = {due_ns, h->order++, frame};
	uint32_t i = h->count++;

	for (; i > 0 && is_before(&x, &h->heap[(i - 1) / 2]); i = (i - 1) / 2)
		h->heap[i] = h->heap[(i - 1) / 2];
	h->heap[i] = x;
}

static void hold_or_drop(struct port_hold *h, struct rte_mbuf *frame, uint64_t due_ns,
	struct rp_port_queue_counters *counters)
{
	if (h->count < h->count_max) {
		insert(h, frame, due_ns);
		return;
	}
	PORT_COUNT(counters, impair_full_drops, 1);
	rte_pktmbuf_free(frame);
}

void port_hold_push(struct port_hold *h, struct rte_mbuf *frame, struct rte_mempool *pool,
	struct rp_port_queue_counters *counters, bool rx, uint64_t now_ns)
{
	struct rp_impair_verdict v = rp_impair_decide(&h->impair);

	if (v.copies == 0) {
		if (rx)
			PORT_COUNT(counters, impair_rx_drops, 1);
		else
			PORT_COUNT(counters, impair_tx_drops, 1);
		rte_pktmbuf_free(frame);
		return;
	}
	for (unsigned i = 1; i < v.copies; i++) {
		/* A real second frame shares no byte with the first. */
		struct rte_mbuf *copy = rte_pktmbuf_copy(frame, pool, 0, UINT32_MAX);

		if (!copy) {
			PORT_COUNT(counters, impair_nomem, 1);
			continue;
		}
		PORT_COUNT(counters, impair_duplicated, 1);
		hold_or_drop(h, copy, now_ns + v.delay_ns[i], counters);
	}
	hold_or_drop(h, frame, now_ns + v.delay_ns[0], counters);
}

struct rte_mbuf *port_hold_pop(struct port_hold *h, uint64_t now_ns)
{
	struct rte_mbuf *frame;
	struct port_held last;
	uint32_t i = 0, child;

	if (h->count == 0 || h->heap[0].due_ns > now_ns)
		return NULL;
	frame = h->heap[0].frame;
	last = h->heap[--h->count];
	while ((child = 2 * i + 1) < h->count) {
		if (child + 1 < h->count && is_before(&h->heap[child + 1], &h->heap[child]))
			child++;
		if (!is_before(&h->heap[child], &last))
			break;
		h->heap[i] = h->heap[child];
		i = child;
	}
	h->heap[i] = last;
	if (h->count == 0)
		h->active = !is_plain(&h->impair.spec);
	return frame;
}

uint64_t port_hold_next_ns(const struct port_hold *h)
{
	return h->count > 0 ? h->heap[0].due_ns : RP_NEVER;
}
