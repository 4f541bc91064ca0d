/* SPDX-License-Identifier: Apache-2.0 */

/* Tails that were taken within dedup_s: a put of the same tail again is answered, and not queued.
 */

#include <string.h>

#include "queue_priv.h"

static struct seen_tail **seen_bucket(
	const struct rp_queues *qs, const struct queue *q, struct rp_span tail)
{
	uint64_t h = (rp_queue_hash(tail.data, tail.length) ^ (uint64_t)q->hash << 32) *
		     0x9e3779b97f4a7c15ull;

	return &qs->seen_table[(h >> 32) & qs->seen_mask];
}

static struct seen_tail *seen_find(
	const struct rp_queues *qs, const struct queue *q, struct rp_span tail)
{
	struct seen_tail *t = *seen_bucket(qs, q, tail);

	while (t && !(t->q == q && t->tail_length == tail.length &&
			    memcmp(t->tail, tail.data, tail.length) == 0))
		t = t->hash_next;
	return t;
}

static struct rp_span tail_of(const struct rte_mbuf *payload, uint16_t tail_length)
{
	return (struct rp_span){rte_pktmbuf_mtod(payload, const uint8_t *), tail_length};
}

bool dedup_has(
	struct rp_queues *qs, struct queue *q, const struct rte_mbuf *payload, uint16_t tail_length)
{
	if (!q->more || rp_list_empty(&q->more->tails) ||
		!seen_find(qs, q, tail_of(payload, tail_length)))
		return false;
	COUNT(qs, q, deduplicated);
	return true;
}

void dedup_add(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	const struct rp_queue_policy *p = policy_of(qs, m->q);
	uint64_t age = age_ns(m->since_ns, now_ns);
	struct rp_span tail = tail_of(m->payload, m->tail_length);
	struct seen_tail *t, **bucket;
	struct queue_more *more;

	if (!p || p->dedup_ns <= age || m->letter || seen_find(qs, m->q, tail))
		return;
	more = queue_more(qs, m->q);
	t = more ? slab_get(&qs->seen_slab) : NULL;
	if (t)
		t->tail = blob_get(&qs->seen_blobs, tail.data, (uint32_t)tail.length);
	if (!t || !t->tail) {
		if (t)
			slab_put(&qs->seen_slab, t);
		COUNT(qs, m->q, dedup_forgotten);
		return;
	}
	t->tail_length = (uint8_t)tail.length;
	t->q = m->q;
	rp_list_init(&t->link);
	rp_list_push_back(&more->tails, &t->link);
	rp_wheel_node_init(&t->due);
	rp_wheel_advance(&qs->tail_wheel, now_ns);
	rp_wheel_add(&qs->tail_wheel, &t->due, now_ns + p->dedup_ns - age);
	bucket = seen_bucket(qs, m->q, tail);
	t->hash_next = *bucket;
	*bucket = t;
}

static void seen_free(struct rp_queues *qs, struct seen_tail *t)
{
	struct seen_tail **at = seen_bucket(qs, t->q, (struct rp_span){t->tail, t->tail_length});

	while (*at != t)
		at = &(*at)->hash_next;
	*at = t->hash_next;
	rp_wheel_del(&qs->tail_wheel, &t->due);
	rp_list_unlink(&t->link);
	blob_put(&qs->seen_blobs, t->tail, t->tail_length);
	slab_put(&qs->seen_slab, t);
}

bool dedup_poll(struct rp_queues *qs, uint64_t now_ns)
{
	rp_wheel_advance(&qs->tail_wheel, now_ns);
	for (unsigned i = 0; i < POLL_BUDGET; i++) {
		struct rp_wheel_node *n = rp_wheel_pop(&qs->tail_wheel);

		if (!n)
			return false;
		seen_free(qs, RP_CONTAINER_OF(n, struct seen_tail, due));
	}
	return true;
}
