/* SPDX-License-Identifier: Apache-2.0 */

/* Tails that were taken within dedup_s: a put of the same tail again is answered, and not queued.
 */

#include <string.h>

#include <base/bytes.h>

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

static struct rp_span seen_tail_of(const struct rte_mbuf *payload, uint16_t tail_length)
{
	return (struct rp_span){rte_pktmbuf_mtod(payload, const uint8_t *), tail_length};
}

bool dedup_has(
	struct rp_queues *qs, struct queue *q, const struct rte_mbuf *payload, uint16_t tail_length)
{
	if (!q->more || rp_list_empty(&q->more->tails) ||
		!seen_find(qs, q, seen_tail_of(payload, tail_length)))
		return false;
	COUNT(qs, q, deduplicated);
	return true;
}

static void seen_add(struct rp_queues *qs, struct queue *q, struct rp_span tail, uint64_t left_ns,
	uint64_t now_ns)
{
	struct queue_more *more = queue_more(qs, q);
	struct seen_tail *t, **bucket;

	if (seen_find(qs, q, tail))
		return;
	t = more ? slab_get(&qs->seen_slab) : NULL;
	if (t)
		t->tail = blob_get(&qs->seen_blobs, tail.data, (uint32_t)tail.length);
	if (!t || !t->tail) {
		if (t)
			slab_put(&qs->seen_slab, t);
		COUNT(qs, q, dedup_forgotten);
		return;
	}
	t->tail_length = (uint8_t)tail.length;
	t->q = q;
	rp_list_init(&t->link);
	rp_list_push_back(&more->tails, &t->link);
	rp_wheel_node_init(&t->due);
	rp_wheel_advance(&qs->tail_wheel, now_ns);
	rp_wheel_add(&qs->tail_wheel, &t->due, now_ns + left_ns);
	bucket = seen_bucket(qs, q, tail);
	t->hash_next = *bucket;
	*bucket = t;
}

void dedup_add(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	const struct rp_queue_policy *p = policy_of(qs, m->q);
	uint64_t age = age_ns(m->since_ns, now_ns);

	if (p && p->dedup_ns > age && !m->letter && m->process.kind == RP_PROCESS_PLAIN)
		seen_add(qs, m->q, seen_tail_of(m->payload, m->tail_length), p->dedup_ns - age,
			now_ns);
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

/* ---- to another dispatcher ---- */

/*
 * A HANDOVER with a payload: for each tail the ms for which it is remembered still (4, little
 * endian), its length (1), and the tail.
 */
#define TAILS_BYTES 8192
#define TAIL_HEAD_BYTES 5
/** Of one step. */
#define TAILS_FRAMES 8

/* Those that fit, from the first on; `*end` is the first that does not. */
static struct rte_mbuf *tails_pack(
	struct rp_queues *qs, const struct queue *q, struct rp_list **end, uint64_t now_ns)
{
	uint8_t bytes[TAILS_BYTES];
	struct rp_writer w = rp_writer_of(bytes, sizeof(bytes));
	struct rp_list *n = q->more->tails.next;

	for (; n != &q->more->tails; n = n->next) {
		const struct seen_tail *t = rp_list_entry(n, struct seen_tail, link);
		uint64_t due = t->due.deadline_ns;

		if ((size_t)(w.pos - bytes) + TAIL_HEAD_BYTES + t->tail_length > sizeof(bytes))
			break;
		rp_write_le32(&w, due > now_ns ? (uint32_t)((due - now_ns) / RP_NS_PER_MS) : 0);
		rp_write_u8(&w, t->tail_length);
		rp_write_bytes(&w, t->tail, t->tail_length);
	}
	*end = n;
	return rp_mbuf_from(qs->config.pool, bytes, (size_t)(w.pos - bytes));
}

bool dedup_hand_over(struct rp_queues *qs, struct queue *q, uint64_t to, uint64_t now_ns)
{
	for (unsigned i = 0; q->more && !rp_list_empty(&q->more->tails); i++) {
		struct rp_qmsg m = qmsg_for(q, RP_QMSG_HANDOVER);
		struct rp_list *end;

		if (i == TAILS_FRAMES)
			return false;
		m.payload = tails_pack(qs, q, &end, now_ns);
		if (!m.payload)
			return false;
		if (peer_send(qs, to, &m, now_ns) != 0) {
			rte_pktmbuf_free(m.payload);
			return false;
		}
		while (q->more->tails.next != end)
			seen_free(qs, rp_list_entry(q->more->tails.next, struct seen_tail, link));
	}
	return true;
}

void dedup_receive(
	struct rp_queues *qs, struct queue *q, const struct rte_mbuf *payload, uint64_t now_ns)
{
	uint8_t bytes[TAILS_BYTES];
	struct rp_reader r =
		rp_reader_of(bytes, rp_mbuf_copy_out(payload, 0, bytes, sizeof(bytes)));

	while (!r.bad && r.pos < r.end) {
		uint64_t left_ns = rp_read_le32(&r) * RP_NS_PER_MS;
		uint32_t length = rp_read_u8(&r);
		const uint8_t *tail = rp_read_bytes(&r, length);

		if (tail && length > 0 && left_ns > 0)
			seen_add(qs, q, (struct rp_span){tail, length}, left_ns, now_ns);
	}
}
