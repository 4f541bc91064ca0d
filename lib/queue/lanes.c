/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What waits. Plain messages of priority 0, which most are, stand on one list of the queue. As soon
 * as something else waits there are lists by class and priority, each in the order of indexes, for
 * as long as there is something on them.
 */

#include "queue_priv.h"

static unsigned lane_of(const struct message *m)
{
	return (unsigned)lane_class_of(m) * LANE_PRIORITIES + m->process.priority;
}

struct rp_list *lane_at(const struct queue *q, unsigned lane)
{
	if (lane == 0)
		return (struct rp_list *)&q->waiting;
	return q->more && q->more->lanes ? &q->more->lanes->waiting[lane] : NULL;
}

static struct rp_list **scan_at(const struct queue *q, unsigned lane)
{
	return lane == 0 ? (struct rp_list **)&q->scan : &q->more->lanes->scan[lane];
}

bool lanes_any(const struct queue *q)
{
	return !rp_list_empty(&q->waiting) || (q->more && q->more->lanes);
}

static struct message *first_of(const struct rp_list *list)
{
	return rp_list_empty(list) ? NULL : rp_list_entry(list->next, struct message, link);
}

struct message *lanes_oldest(const struct queue *q)
{
	struct message *best = first_of(&q->waiting);

	for (unsigned i = 1; i < LANE_COUNT && q->more && q->more->lanes; i++) {
		struct message *m = first_of(&q->more->lanes->waiting[i]);

		if (m && (!best || m->idx < best->idx))
			best = m;
	}
	return best;
}

static uint64_t weight_of(const struct queue *q, const struct message *m, uint64_t now_ns)
{
	return m->process.priority + age_ns(m->since_ns, now_ns) / RP_MAX(q->more->age_ns, 1ull);
}

struct message *lanes_next(const struct queue *q, const bool closed[LANE_CLASSES], uint64_t now_ns)
{
	struct message *best = NULL;
	uint64_t best_weight = 0;

	if (!q->more || !q->more->lanes) {
		if (closed[LANE_PLAIN] || q->scan == &q->waiting)
			return NULL;
		return rp_list_entry(q->scan, struct message, link);
	}
	for (unsigned i = 0; i < LANE_COUNT; i++) {
		struct message *m;
		uint64_t weight;

		if (closed[i / LANE_PRIORITIES] || *scan_at(q, i) == lane_at(q, i))
			continue;
		m = rp_list_entry(*scan_at(q, i), struct message, link);
		weight = weight_of(q, m, now_ns);
		if (best && (weight < best_weight || (weight == best_weight && m->idx > best->idx)))
			continue;
		best = m;
		best_weight = weight;
	}
	return best;
}

void lanes_skip(struct message *m)
{
	struct rp_list **scan = scan_at(m->q, lane_of(m));

	RP_ASSERT(*scan == &m->link);
	*scan = m->link.next;
}

void lanes_rescan(struct queue *q)
{
	q->scan = q->waiting.next;
	for (unsigned i = 1; i < LANE_COUNT && q->more && q->more->lanes; i++)
		q->more->lanes->scan[i] = q->more->lanes->waiting[i].next;
}

static void lanes_make(struct rp_queues *qs, struct queue *q)
{
	struct queue_more *more = queue_more(qs, q);

	if (more->lanes)
		return;
	more->lanes = slab_get(&qs->lanes); /* as many as queues */
	RP_ASSERT(more->lanes != NULL);
	more->age_ns = qs->config.age_ns;
	for (unsigned i = 0; i < LANE_COUNT; i++) {
		rp_list_init(&more->lanes->waiting[i]);
		more->lanes->scan[i] = &more->lanes->waiting[i];
	}
}

void waiting_remove(struct rp_queues *qs, struct message *m)
{
	struct queue *q = m->q;
	unsigned lane = lane_of(m);
	struct rp_list **scan = scan_at(q, lane);

	RP_ASSERT(m->state == MESSAGE_WAITING);
	if (*scan == &m->link)
		*scan = m->link.next;
	if (q->move && q->move->behind == &m->link)
		q->move->behind = m->link.prev;
	rp_list_unlink(&m->link);
	rp_wheel_del(&qs->wheel, &m->due);
	if (lane > 0 && --q->more->lanes->count == 0) {
		slab_put(&qs->lanes, q->more->lanes);
		q->more->lanes = NULL;
	}
}

/* To its place by index: a message that was offered before stands before all that came later. */
void waiting_insert(struct rp_queues *qs, struct message *m)
{
	struct queue *q = m->q;
	unsigned lane = lane_of(m);
	struct rp_list *list, **scan, *n;

	if (lane > 0)
		lanes_make(qs, q);
	list = lane_at(q, lane);
	scan = scan_at(q, lane);
	n = list->next;
	if (lane == 0 && q->move && q->move->behind && q->move->behind != list &&
		rp_list_entry(q->move->behind, struct message, link)->idx < m->idx)
		n = q->move->behind->next;
	/* Most come at the end, or back at the head. */
	if (!rp_list_empty(list) && rp_list_entry(list->prev, struct message, link)->idx < m->idx)
		n = list;
	while (n != list && rp_list_entry(n, struct message, link)->idx < m->idx)
		n = n->next;
	rp_list_insert_between(&m->link, n->prev, n);
	m->state = MESSAGE_WAITING;
	if (*scan == n || n != list)
		*scan = n == *scan ? &m->link : list->next;
	if (lane > 0)
		q->more->lanes->count++;
}
