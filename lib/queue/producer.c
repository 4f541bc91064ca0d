/* SPDX-License-Identifier: Apache-2.0 */

/* What a dispatcher remembers of the forwards that it took, so that none counts twice. */

#include <string.h>

#include "queue_priv.h"

/* Most that one new one looks at. */
#define CHANCES_MAX 64

void producer_free(struct rp_queues *qs, struct producer *p)
{
	struct producer **at = &p->q->producers;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	rp_list_unlink(&p->recent);
	slab_put(&qs->producers_slab, p);
}

struct producer *producer_find(struct rp_queues *qs, struct queue *q, uint64_t node, uint64_t boot)
{
	struct producer *p = q->producers;

	while (p && !(p->node == node && p->boot == boot))
		p = p->next;
	if (p)
		p->used = true;
	return p;
}

/*
 * The one that was silent for the longest, nearly, makes room: what it repeats has been answered.
 * Who was heard since he came to the front gets a second chance.
 */
static void producers_evict(struct rp_queues *qs)
{
	struct producer *p = rp_list_entry(qs->producers.next, struct producer, recent);

	for (unsigned i = 0; i < CHANCES_MAX && p->used; i++) {
		p->used = false;
		rp_list_unlink(&p->recent);
		rp_list_push_back(&qs->producers, &p->recent);
		p = rp_list_entry(qs->producers.next, struct producer, recent);
	}
	producer_free(qs, p);
}

struct producer *producer_get(struct rp_queues *qs, struct queue *q, uint64_t node, uint64_t boot)
{
	struct producer *p = producer_find(qs, q, node, boot);

	if (p)
		return p;
	p = slab_get(&qs->producers_slab);
	if (!p) {
		producers_evict(qs);
		p = slab_get(&qs->producers_slab);
	}
	p->node = node;
	p->boot = boot;
	p->q = q;
	p->next = q->producers;
	q->producers = p;
	rp_list_push_back(&qs->producers, &p->recent);
	return p;
}

bool producer_has(const struct producer *p, uint64_t seq)
{
	if (!p || seq > p->high)
		return false;
	if (p->high - seq >= DEDUPE_WINDOW)
		return true;
	return p->seen[seq % DEDUPE_WINDOW / 64] >> (seq % 64) & 1;
}

void producer_add(struct producer *p, uint64_t seq)
{
	if (seq > p->high) {
		if (seq - p->high >= DEDUPE_WINDOW)
			memset(p->seen, 0, sizeof(p->seen));
		else
			for (uint64_t s = p->high + 1; s < seq; s++)
				p->seen[s % DEDUPE_WINDOW / 64] &= ~(1ull << (s % 64));
		p->high = seq;
	}
	if (p->high - seq < DEDUPE_WINDOW)
		p->seen[seq % DEDUPE_WINDOW / 64] |= 1ull << (seq % 64);
}

/* It leaves: should it come back, handed over from where it goes now, it is not a repetition. */
void producer_forget(struct rp_queues *qs, const struct message *m)
{
	struct producer *p = producer_find(qs, m->q, m->origin_node, m->origin_boot);

	if (p && m->origin_seq <= p->high && p->high - m->origin_seq < DEDUPE_WINDOW)
		p->seen[m->origin_seq % DEDUPE_WINDOW / 64] &= ~(1ull << (m->origin_seq % 64));
}

void producer_again(struct rp_queues *qs, const struct message *m)
{
	if (!is_self(qs, m->origin_node))
		producer_add(producer_get(qs, m->q, m->origin_node, m->origin_boot), m->origin_seq);
}

static bool list_hands(const struct rp_list *list, uint64_t node, uint64_t boot, uint64_t seq)
{
	const struct rp_list *n;

	rp_list_foreach (n, list) {
		const struct message *m = rp_list_entry(n, struct message, link);

		if (m->handed && m->origin_seq == seq && m->origin_node == node &&
			m->origin_boot == boot)
			return true;
	}
	return false;
}

bool producer_leaves(const struct queue *q, uint64_t node, uint64_t boot, uint64_t seq)
{
	return q->handing > 0 &&
	       (list_hands(&q->unsent, node, boot, seq) || list_hands(&q->sent, node, boot, seq));
}

bool producer_came_back(struct rp_queues *qs, const struct message *m)
{
	const struct producer *p;

	if (m->answered || m->sends == 0)
		return false;
	p = producer_find(qs, m->q, m->origin_node, m->origin_boot);
	return p && m->origin_seq + DEDUPE_WINDOW > p->high && producer_has(p, m->origin_seq);
}
