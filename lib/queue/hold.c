/* SPDX-License-Identifier: Apache-2.0 */

/* What clients of this node hold: the table of it, by consumer and index. */

#include <string.h>

#include "queue_priv.h"

static struct hold **hold_bucket(const struct rp_queues *qs, const struct host *h, uint64_t idx)
{
	return &qs->hold_table[idx_slot(slab_index(&qs->hosts, h), idx) & qs->hold_mask];
}

struct hold *hold_find(const struct rp_queues *qs, const struct host *h, uint64_t idx)
{
	struct hold *hold = *hold_bucket(qs, h, idx);

	while (hold && !(hold->host == h && hold->idx == idx))
		hold = hold->idx_next;
	return hold;
}

struct rp_span hold_tail(const struct hold *h)
{
	bool in_place = h->tail_length <= sizeof(h->tail.bytes);

	return (struct rp_span){in_place ? h->tail.bytes : h->tail.blob, h->tail_length};
}

struct hold *hold_new(
	struct rp_queues *qs, struct host *h, const struct offer *o, uint64_t revision)
{
	const uint8_t *tail = rte_pktmbuf_mtod(o->payload, const uint8_t *);
	struct peer *p = peer_get(qs, o->from);
	struct hold *hold = p ? slab_get(&qs->holds) : NULL;
	struct hold **bucket;

	if (!hold)
		return NULL;
	if (o->tail_length <= sizeof(hold->tail.bytes)) {
		memcpy(hold->tail.bytes, tail, o->tail_length);
	} else if (!(hold->tail.blob = blob_get(&qs->tails, tail, o->tail_length))) {
		slab_put(&qs->holds, hold);
		return NULL;
	}
	hold->tail_length = (uint8_t)o->tail_length;
	hold->host = h;
	hold->from = o->from;
	hold->idx = o->idx;
	hold->alloc_node = o->alloc_node;
	hold->attempt = o->attempt;
	hold->mod_revision = revision;
	if (o->process.kind == RP_PROCESS_REQUEST)
		hold->request = o->process.request;
	hold->output = o->process.kind != RP_PROCESS_PLAIN && !hold->request;
	rp_list_init(&hold->link);
	rp_list_init(&hold->at_node);
	rp_list_push_back(&h->holds, &hold->link);
	h->hold_count++;
	rp_list_push_back(&p->holds, &hold->at_node);
	bucket = hold_bucket(qs, h, o->idx);
	hold->idx_next = *bucket;
	*bucket = hold;
	return hold;
}

void hold_forget(struct rp_queues *qs, struct hold *h)
{
	struct hold **at = hold_bucket(qs, h->host, h->idx);

	while (*at != h)
		at = &(*at)->idx_next;
	*at = h->idx_next;
	rp_list_unlink(&h->link);
	h->host->hold_count--;
	rp_list_unlink(&h->at_node);
	if (h->request)
		qs->ops.job_over(qs->ctx, h->request, h->idx);
	if (h->tail_length > sizeof(h->tail.bytes))
		blob_put(&qs->tails, h->tail.blob, h->tail_length);
	slab_put(&qs->holds, h);
}
