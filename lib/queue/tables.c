/* SPDX-License-Identifier: Apache-2.0 */

/* The tables: queues by name, messages by index, consumers by uuid, nodes by id. */

#include <errno.h>
#include <string.h>

#include "trace_priv.h"

/** Of time, in struct queue's `listed`: a quarter of a second. */
#define LISTED_SHIFT 28
/** A queue's place on the list of the idle may be wrong by this part of idle_ns. */
#define LISTED_PART 64

void queue_set_idle(struct rp_queues *qs, uint64_t idle_ns)
{
	qs->config.idle_ns = idle_ns;
	qs->listed_slack = (uint32_t)RP_MIN(idle_ns / LISTED_PART >> LISTED_SHIFT, 1024ull);
}

struct queue *queue_find_by(const struct rp_queues *qs, struct rp_span name, uint32_t hash)
{
	struct queue *q = qs->queue_table[hash & qs->queue_mask];

	while (q && !(q->hash == hash && q->name_length == name.length &&
			    memcmp(q->name, name.data, name.length) == 0))
		q = q->hash_next;
	return q;
}

struct queue *queue_find(const struct rp_queues *qs, struct rp_span name)
{
	return queue_find_by(qs, name, rp_queue_hash(name.data, name.length));
}

static struct queue *queue_new(
	struct rp_queues *qs, struct rp_span name, uint32_t hash, uint64_t now_ns)
{
	struct queue *q = slab_get(&qs->queues), **bucket;

	if (!q)
		return NULL;
	q->name = blob_get(&qs->names, name.data, (uint32_t)name.length);
	if (!q->name) {
		slab_put(&qs->queues, q);
		return NULL;
	}
	q->name_length = (uint8_t)name.length;
	q->hash = hash;
	rp_list_init(&q->idle);
	rp_list_init(&q->work);
	rp_list_init(&q->at_node);
	rp_list_init(&q->waiting);
	rp_list_init(&q->unsent);
	rp_list_init(&q->sent);
	rp_list_init(&q->consumers);
	rp_list_init(&q->ready);
	/* Another node may remember the numbers of an earlier queue of that name. */
	q->order = qs->order_floor;
	q->scan = &q->waiting;
	q->policy = POLICY_NONE;
	q->policy_version = (uint16_t)(qs->policy_version - 1);
	rp_list_push_back(&qs->unclaimed, &q->at_node);
	bucket = &qs->queue_table[q->hash & qs->queue_mask];
	q->hash_next = *bucket;
	*bucket = q;
	queue_touch(qs, q, now_ns);
	return q;
}

struct queue *queue_get_by(
	struct rp_queues *qs, struct rp_span name, uint32_t hash, uint64_t now_ns)
{
	struct queue *q;

	if (name.length == 0 || name.length > RP_NAME_BYTES_MAX)
		return NULL;
	q = queue_find_by(qs, name, hash);
	if (!q)
		return queue_new(qs, name, hash, now_ns);
	queue_touch(qs, q, now_ns);
	return q;
}

struct queue *queue_get(struct rp_queues *qs, struct rp_span name, uint64_t now_ns)
{
	return queue_get_by(qs, name, rp_queue_hash(name.data, name.length), now_ns);
}

void queue_free(struct rp_queues *qs, struct queue *q)
{
	struct queue **at = &qs->queue_table[q->hash & qs->queue_mask];

	RP_ASSERT(queue_is_unused(q));
	while (*at != q)
		at = &(*at)->hash_next;
	*at = q->hash_next;
	while (q->producers)
		producer_free(qs, q->producers);
	qs->epoch_floor = RP_MAX(qs->epoch_floor, q->epoch_seen);
	qs->order_floor = RP_MAX(qs->order_floor, q->order);
	qs->own_count -= q->own;
	rp_list_unlink(&q->idle);
	rp_list_unlink(&q->work);
	rp_list_unlink(&q->at_node);
	move_end(qs, q);
	pin_forget(q);
	trace_disarm(qs, q);
	sessions_free(qs, q);
	if (q->more)
		rp_wheel_del(&qs->look_wheel, &q->more->look);
	times_forget(qs, q);
	if (q->more)
		slab_put(&qs->mores, q->more);
	blob_put(&qs->names, q->name, q->name_length);
	slab_put(&qs->queues, q);
}

struct queue_more *queue_more(struct rp_queues *qs, struct queue *q)
{
	if (!q->more) {
		q->more = slab_get(&qs->mores); /* as many as queues */
		RP_ASSERT(q->more != NULL);
		q->more->q = q;
		rp_list_init(&q->more->pin);
		rp_list_init(&q->more->delayed);
		rp_list_init(&q->more->ending);
		rp_list_init(&q->more->tails);
		rp_list_init(&q->more->jobs);
		rp_list_init(&q->more->sessions);
		rp_wheel_node_init(&q->more->look);
	}
	return q->more;
}

void queue_touch(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	uint32_t listed = (uint32_t)(now_ns >> LISTED_SHIFT);

	q->active_ns = now_ns;
	/* Its place is right still, but for a part of the time after which it ends. */
	if (listed - q->listed < qs->listed_slack && !rp_list_empty(&q->idle))
		return;
	q->listed = listed;
	rp_list_unlink(&q->idle);
	rp_list_push_back(&qs->idle, &q->idle);
}

void queue_unwork(struct queue *q)
{
	rp_list_unlink(&q->work);
	q->in_work = q->in_later = false;
}

void queue_work(struct rp_queues *qs, struct queue *q)
{
	if (q->in_work)
		return;
	queue_unwork(q);
	q->in_work = true;
	rp_list_push_back(&qs->work, &q->work);
}

/* ---- messages ---- */

struct message *message_new(struct rp_queues *qs, struct queue *q, struct rte_mbuf *payload,
	uint16_t tail_length, uint64_t now_ns)
{
	struct message *m = slab_get(&qs->messages);

	if (!m)
		return NULL;
	rp_list_init(&m->link);
	rp_list_init(&m->timer);
	rp_list_init(&m->stay);
	rp_wheel_node_init(&m->due);
	m->expires_ns = RP_NEVER;
	m->q = q;
	m->payload = payload;
	m->bytes = payload->pkt_len;
	q->bytes += m->bytes;
	qs->bytes += m->bytes;
	m->tail_length = tail_length;
	m->since_ns = now_ns;
	return m;
}

void message_free(struct rp_queues *qs, struct message *m)
{
	struct rejection *r;

	RP_ASSERT(m->idx == 0 && rp_list_empty(&m->link) && !m->job && !m->session);
	rp_list_unlink(&m->timer);
	rp_wheel_del(&qs->wheel, &m->due);
	foreign_remove(qs, m);
	while ((r = m->rejections)) {
		m->rejections = r->next;
		slab_put(&qs->rejections, r);
	}
	if (m->binding)
		slab_put(&qs->bindings, m->binding);
	message_unhand(qs, m, false);
	m->q->bytes -= m->bytes;
	qs->bytes -= m->bytes;
	if (m->payload)
		rp_mbuf_free(m->payload);
	slab_put(&qs->messages, m);
}

static struct message **idx_bucket(const struct rp_queues *qs, const struct queue *q, uint64_t idx)
{
	return &qs->idx_table[idx_slot(q->hash, idx) & qs->idx_mask];
}

void message_indexed(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct message **bucket = idx_bucket(qs, m->q, m->idx);

	job_begin(qs, m, now_ns);
	session_add(qs, m);
	m->idx_next = *bucket;
	*bucket = m;
	m->q->depth++;
}

void message_unindexed(struct rp_queues *qs, struct message *m)
{
	struct message **at = idx_bucket(qs, m->q, m->idx);

	if (m->traced)
		trace_gone(qs, m);
	job_free(qs, m);
	session_remove(qs, m);
	while (*at != m)
		at = &(*at)->idx_next;
	*at = m->idx_next;
	m->q->depth--;
	m->idx = m->alloc_node = 0;
}

struct message *message_find(
	const struct rp_queues *qs, const struct queue *q, uint64_t idx, uint64_t alloc_node)
{
	struct message *m = idx ? *idx_bucket(qs, q, idx) : NULL;

	while (m && !(m->idx == idx && m->q == q && (!alloc_node || m->alloc_node == alloc_node)))
		m = m->idx_next;
	return m;
}

struct rte_mbuf *payload_share(struct rte_mbuf *payload)
{
	rte_pktmbuf_refcnt_update(payload, 1);
	return payload;
}

/* ---- consumers ---- */

static struct consumer **uuid_bucket(
	const struct rp_queues *qs, const struct queue *q, const uint8_t uuid[RP_UUID_BYTES])
{
	uint64_t a, b;

	memcpy(&a, uuid, sizeof(a));
	memcpy(&b, uuid + 8, sizeof(b));
	a = (a ^ b * 0xff51afd7ed558ccdull ^ q->hash) * 0x9e3779b97f4a7c15ull;
	return &qs->uuid_table[(a >> 32) & qs->uuid_mask];
}

struct consumer *consumer_find(
	const struct rp_queues *qs, const struct queue *q, const uint8_t uuid[RP_UUID_BYTES])
{
	struct consumer *c = *uuid_bucket(qs, q, uuid);

	while (c && !(c->q == q && memcmp(c->uuid, uuid, RP_UUID_BYTES) == 0))
		c = c->uuid_next;
	return c;
}

bool consumer_is_live(const struct rp_queues *qs, const struct consumer *c)
{
	/* What a freed item has left in it still leads to its bucket, where it is not. */
	const struct consumer *at = c->q ? *uuid_bucket(qs, c->q, c->uuid) : NULL;

	while (at && at != c)
		at = at->uuid_next;
	return at != NULL;
}

struct consumer *consumer_get(
	struct rp_queues *qs, struct queue *q, const uint8_t uuid[RP_UUID_BYTES])
{
	struct consumer *c = consumer_find(qs, q, uuid), **bucket;

	if (c)
		return c;
	c = slab_get(&qs->consumers);
	if (!c)
		return NULL;
	rp_list_init(&c->link);
	rp_list_init(&c->ready);
	rp_list_init(&c->at_node);
	rp_list_init(&c->bound);
	c->q = q;
	memcpy(c->uuid, uuid, RP_UUID_BYTES);
	c->prefetch = qs->config.prefetch_default;
	c->jobs_max = 1;
	rp_list_push_back(&q->consumers, &c->link);
	bucket = uuid_bucket(qs, q, uuid);
	c->uuid_next = *bucket;
	*bucket = c;
	return c;
}

void consumer_free(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	struct consumer **at = uuid_bucket(qs, c->q, c->uuid);

	jobs_missed(qs, c->q, c->waited, now_ns);
	RP_ASSERT(!c->host && rp_list_empty(&c->bound) && c->outstanding == 0);
	while (*at != c)
		at = &(*at)->uuid_next;
	*at = c->uuid_next;
	rp_list_unlink(&c->link);
	rp_list_unlink(&c->ready);
	rp_list_unlink(&c->at_node);
	blob_put(&qs->matches, c->match, c->match_length);
	blob_put(&qs->matches, c->cap, c->cap_length);
	slab_put(&qs->consumers, c);
}

/* A list that is longer than a record may have it is cut where an item ends. */
static struct rp_span cap_of(const struct rp_consumer_record *r)
{
	struct rp_span cap = r->cap;

	while (cap.length > RP_CAP_BYTES_MAX ||
		(cap.length > 0 && cap.length < r->cap.length && cap.data[cap.length] != ','))
		cap.length--;
	return cap;
}

int consumer_set_fields(struct rp_queues *qs, struct consumer *c,
	const struct rp_consumer_record *r, uint64_t now_ns)
{
	const struct rp_span cap = cap_of(r);
	uint8_t *match, *cap_copy;
	bool other;

	if (r->match.length > RP_TAIL_BYTES_MAX)
		return -EINVAL;
	match = blob_get(&qs->matches, r->match.data, (uint32_t)r->match.length);
	cap_copy = blob_get(&qs->matches, cap.data, (uint32_t)cap.length);
	if (!match || !cap_copy) {
		blob_put(&qs->matches, match, match ? (uint32_t)r->match.length : 0);
		blob_put(&qs->matches, cap_copy, cap_copy ? (uint32_t)cap.length : 0);
		return -ENOSPC;
	}
	other = c->cap_length != cap.length ||
		(cap.length > 0 && memcmp(c->cap, cap.data, cap.length) != 0) ||
		c->match_length != r->match.length;
	blob_put(&qs->matches, c->match, c->match_length);
	blob_put(&qs->matches, c->cap, c->cap_length);
	c->match = match;
	c->match_length = (uint8_t)r->match.length;
	c->cap = cap_copy;
	c->cap_length = (uint8_t)cap.length;
	c->prefetch = r->prefetch ? r->prefetch : qs->config.prefetch_default;
	c->jobs_max = r->prefetch ? r->prefetch : 1;
	if (other) {
		jobs_missed(qs, c->q, false, now_ns);
		lanes_rescan(c->q);
	}
	c->max_bytes = r->max_bytes;
	return 0;
}

/* ---- nodes ---- */

struct peer *peer_find(struct rp_queues *qs, uint64_t node)
{
	for (unsigned i = 0; node && i < RP_ARRAY_SIZE(qs->peers) && qs->peers[i].node; i++) {
		if (qs->peers[i].node == node)
			return &qs->peers[i];
	}
	return NULL;
}

struct peer *peer_get(struct rp_queues *qs, uint64_t node)
{
	struct peer *p = peer_find(qs, node);

	if (p || !node)
		return p;
	for (unsigned i = 0; i < RP_ARRAY_SIZE(qs->peers); i++) {
		p = &qs->peers[i];
		/* A node that is gone leaves its slot when nothing here refers to it. */
		if (p->node &&
			!(p->state == RP_NODE_GONE && i > 0 && rp_list_empty(&p->queues) &&
				rp_list_empty(&p->consumers) && rp_list_empty(&p->holds) &&
				rp_list_empty(&p->blocked_queues) && rp_list_empty(&p->notices)))
			continue;
		*p = (struct peer){.node = node, .fence_ns = RP_NEVER, .offer_ns = RP_NEVER};
		rp_list_init(&p->queues);
		rp_list_init(&p->consumers);
		rp_list_init(&p->holds);
		rp_list_init(&p->blocked);
		rp_list_init(&p->blocked_queues);
		rp_list_init(&p->notices);
		return p;
	}
	return NULL;
}

struct rp_qmsg qmsg_for(const struct queue *q, enum rp_qmsg_type type)
{
	return (struct rp_qmsg){
		.type = type,
		.name = q->name,
		.name_length = q->name_length,
		.hash = q->hash,
		.epoch = q->epoch,
		.dispatcher = q->dispatcher,
	};
}
