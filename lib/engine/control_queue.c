/* SPDX-License-Identifier: Apache-2.0 */

/* The control end of queue operations, deliveries and the unary path. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <base/log.h>
#include <base/mbuf.h>
#include <deliver/deliver.h>
#include <engine/control_process_priv.h>

/** status u32, epoch u32, dispatcher u64, little-endian: what DeliverOne answers. */
#define UNARY_ANSWER_BYTES 16
/** Pieces of a value that one delivery hands on without a copy. */
#define PIECES_MAX 64
/** A put takes none of the pool's last part: half of what lib/node keeps for operations. */
#define CONTROL_RESERVE_PART 32

#define ENGINE_TOKENS (RP_CONTROL_REQUEST_FLAG | RP_CONTROL_OUTPUT_FLAG)

/* ---- operations ---- */

/* Parts that go with an operation: the name, and what is behind it. */
static unsigned op_parts(enum rp_xmsg_type type)
{
	if (type == RP_XMSG_PUT || type == RP_XMSG_ACKS)
		return 3;
	return type == RP_XMSG_CANCEL ? 2 : 1;
}

/* By uuid and queue: one of several that have the same is enough to say no. */
static uint64_t user_key(uint32_t hash, const uint8_t uuid[RP_UUID_BYTES])
{
	uint64_t key;

	memcpy(&key, uuid, sizeof(key));
	return key ^ hash;
}

/* The consumer that it names is here, and somebody else's. */
static bool is_of_another(struct rp_control *c, const struct rp_control_queue_op *op)
{
	uint64_t key = user_key(op->hash, op->uuid);
	struct rp_hmap_node *n;

	if (op->user == 0 || c->users.count == 0 || (op->flags & RP_QMSG_NO_HOLDER) ||
		(op->type != RP_XMSG_ACK && op->type != RP_XMSG_REJECT))
		return false;
	for (n = *rp_hmap_chain(&c->users, key); n; n = n->next) {
		const struct control_consumer *k =
			RP_CONTAINER_OF(n, struct control_consumer, by_uuid);

		if (n->key == key && memcmp(k->uuid, op->uuid, RP_UUID_BYTES) == 0 &&
			span_equal((struct rp_span){k->name, k->name_length}, op->name))
			return k->user != op->user;
	}
	return false;
}

int rp_control_queue_op(struct rp_control *c, const struct rp_control_queue_op *op, uint64_t token,
	struct rp_repl_now now)
{
	unsigned shard = rp_hash_pick(op->hash, c->shards);
	struct rp_span parts[3] = {op->name, op->tail, op->value};
	struct rp_xmsg m = {
		.type = (uint8_t)op->type,
		.flags = op->flags,
		.name_length = (uint16_t)op->name.length,
		.hash = op->hash,
		.token = token,
		.idx = op->idx,
	};

	c->now = now;
	RP_ASSERT(!(token & (CONTROL_CONSUMER_FLAG | CONTROL_LETTER_FLAG | RP_CONTROL_REQUEST_FLAG |
				    RP_CONTROL_OUTPUT_FLAG)));
	RP_ASSERT(op->name.length <= RP_NAME_BYTES_MAX);
	if (is_of_another(c, op)) {
		const struct rp_control_answer no = {.status = RP_Q_NOT_HOLDER};

		c->ops->queue_answer(c->ctx, token, &no);
		return 0;
	}
	if (!rp_list_empty(&c->posts[shard]) || c->ops->tokens(c->ctx, shard, op->type) == 0)
		goto wait;
	if (op->type == RP_XMSG_ACKS && c->acks_open[shard] == RP_XMSG_ACKS_OPEN_MAX)
		goto wait;
	/* What is left is for those who empty the pool; and puts on their way give back theirs. */
	if (op->type == RP_XMSG_PUT &&
		rte_mempool_avail_count(c->pool) < c->pool->size / CONTROL_RESERVE_PART)
		goto wait;
	if (op->type == RP_XMSG_PUT &&
		(control_job_put(c, op, token) == 0 || control_request_put(c, op, token) == 0))
		return 0;
	memcpy(m.uuid, op->uuid, sizeof(m.uuid));
	if (op->type == RP_XMSG_PUT)
		m.tail_length = (uint16_t)op->tail.length;
	if (op->type == RP_XMSG_ACKS) {
		m.count = (uint32_t)(op->value.length / sizeof(uint64_t));
		RP_ASSERT(m.count > 0 && m.count <= RP_XMSG_ACKS_MAX);
	}
	m.m = control_chain(c, parts, op_parts(op->type));
	if (!m.m)
		goto wait;
	if (c->ops->post(c->ctx, shard, &m) != 0) {
		rte_pktmbuf_free(m.m);
		goto wait;
	}
	if (op->type == RP_XMSG_PUT)
		c->counters.queue_puts++;
	else if (op->type == RP_XMSG_ACK)
		c->counters.queue_acks++;
	else if (op->type == RP_XMSG_ACKS) {
		c->counters.queue_acks += m.count;
		c->acks_open[shard]++;
	} else if (op->type == RP_XMSG_GET)
		c->counters.queue_gets++;
	else if (op->type == RP_XMSG_REJECT)
		c->counters.queue_rejects++;
	else if (op->type == RP_XMSG_CANCEL)
		c->counters.queue_cancels++;
	return 0;

wait:
	c->counters.queue_waits++;
	return -EAGAIN;
}

/* The value behind the tail, as spans of the chain where it has few segments, else as one copy. */
static unsigned value_pieces(
	const struct rte_mbuf *m, uint32_t head_length, struct rp_span *pieces, void **copy)
{
	size_t length = m->pkt_len - head_length;
	unsigned n = 0;

	*copy = NULL;
	if (m->nb_segs > PIECES_MAX) {
		*copy = control_alloc(length + 1);
		pieces[0] = (struct rp_span){*copy, length};
		rp_mbuf_copy_out(m, head_length, *copy, length);
		return 1;
	}
	for (size_t skip = head_length; m; m = m->next, skip = 0)
		if (m->data_len > skip)
			pieces[n++] =
				(struct rp_span){rte_pktmbuf_mtod_offset(m, const uint8_t *, skip),
					m->data_len - skip};
	return n;
}

static void on_answer(struct rp_control *c, const struct rp_xmsg *m)
{
	struct rp_control_answer a = {
		.status = m->status,
		.deleted = m->count,
		.revision = m->revision,
		.attempt = m->attempt,
		.has_message = m->m != NULL,
	};
	void *copy = NULL;

	if (m->token & CONTROL_CONSUMER_FLAG) {
		struct control_consumer *k =
			control_consumer_find(c, m->token & ~CONTROL_CONSUMER_FLAG);

		if (k && m->status != RP_Q_OK) {
			uint64_t handle = k->by_handle.key;

			control_consumer_free(c, k);
			c->ops->consumer_end(c->ctx, handle, rp_qstatus_text(m->status));
		}
		rte_pktmbuf_free(m->m);
		return;
	}
	if (m->token & CONTROL_LETTER_FLAG) {
		control_letter_answered(c, m);
		return;
	}
	/* Embedders' and services' tokens have bits of their own above these. */
	if ((m->token & ENGINE_TOKENS) == RP_CONTROL_REQUEST_FLAG) {
		control_request_answered(c, m);
		return;
	}
	if ((m->token & ENGINE_TOKENS) == RP_CONTROL_OUTPUT_FLAG) {
		control_job_answered(c, m);
		return;
	}
	if (m->m) {
		size_t head = (size_t)m->tail_length + m->value;
		size_t length = m->m->pkt_len - head;

		copy = control_alloc(length + 1);
		rp_mbuf_copy_out(m->m, head, copy, length);
		a.tail = (struct rp_span){rte_pktmbuf_mtod(m->m, const uint8_t *), m->tail_length};
		a.value = (struct rp_span){copy, length};
	}
	c->ops->queue_answer(c->ctx, m->token, &a);
	free(copy);
	rte_pktmbuf_free(m->m);
}

/* ---- consumers ---- */

struct control_consumer *control_consumer_find(struct rp_control *c, uint64_t handle)
{
	struct rp_hmap_node *n = rp_hmap_find(&c->consumers, handle);

	return n ? RP_CONTAINER_OF(n, struct control_consumer, by_handle) : NULL;
}

static void held_free(struct control_held *h)
{
	rp_list_unlink(&h->node);
	free(h);
}

void control_consumer_free(struct rp_control *c, struct control_consumer *k)
{
	while (!rp_list_empty(&k->held))
		held_free(rp_list_entry(k->held.next, struct control_held, node));
	rp_hmap_remove(&c->consumers, &k->by_handle);
	if (k->user)
		rp_hmap_remove(&c->users, &k->by_uuid);
	free(k);
}

void rp_control_consumer_user(struct rp_control *c, uint64_t consumer, uint64_t user)
{
	struct control_consumer *k = control_consumer_find(c, consumer);

	if (!k || k->user || !user)
		return;
	k->user = user;
	rp_hmap_insert(
		&c->users, &k->by_uuid, user_key(rp_queue_hash(k->name, k->name_length), k->uuid));
}

int rp_control_consumer_open(struct rp_control *c, uint64_t consumer, struct rp_span name,
	uint32_t hash, const uint8_t uuid[RP_UUID_BYTES], int64_t start_revision, int64_t *revision,
	struct rp_repl_now now)
{
	unsigned shard = rp_hash_pick(hash, c->shards);
	struct rp_xmsg m = {
		.type = RP_XMSG_CONSUMER_OPEN,
		.name_length = (uint16_t)name.length,
		.hash = hash,
		.token = consumer | CONTROL_CONSUMER_FLAG,
		.revision = start_revision > 0 ? (uint64_t)start_revision : 0,
	};
	struct rp_span parts[2] = {name, control_consumer_fields(c, name, uuid)};
	struct control_consumer *k;

	c->now = now;
	RP_ASSERT(!(consumer & CONTROL_CONSUMER_FLAG));
	if (c->consumers.count >= c->consumers_max)
		return -ENOSPC;
	memcpy(m.uuid, uuid, sizeof(m.uuid));
	m.m = control_chain(c, parts, 2);
	if (!m.m)
		return -EAGAIN;
	k = control_alloc(sizeof(*k) + name.length);
	k->shard = shard;
	memcpy(k->uuid, uuid, RP_UUID_BYTES);
	k->name_length = (uint8_t)name.length;
	memcpy(k->name, name.data, name.length);
	rp_list_init(&k->held);
	rp_hmap_insert(&c->consumers, &k->by_handle, consumer);
	control_send(c, shard, &m);
	/* Below every delivery to come: those of before are sent again from start_revision on. */
	*revision = (int64_t)now.wall_us - 1;
	if (start_revision > 0)
		*revision = RP_MIN(*revision, start_revision - 1);
	c->counters.consumers_opened++;
	return 0;
}

void rp_control_consumer_close(struct rp_control *c, uint64_t consumer, enum rp_queue_close how)
{
	struct control_consumer *k = control_consumer_find(c, consumer);
	struct rp_xmsg m = {.type = RP_XMSG_CONSUMER_CLOSE,
		.token = consumer | CONTROL_CONSUMER_FLAG,
		.value = how};

	if (!k)
		return;
	/* What no client saw goes back first, so that it is free for another consumer at once. */
	while (!rp_list_empty(&k->held)) {
		struct control_held *h = rp_list_entry(k->held.next, struct control_held, node);
		struct rp_xmsg back = {.type = RP_XMSG_RETURNED, .token = m.token, .idx = h->m.idx};

		control_send(c, k->shard, &back);
		held_free(h);
	}
	control_send(c, k->shard, &m);
	control_consumer_free(c, k);
}

void rp_control_consumer_accepted(struct rp_control *c, uint64_t consumer, uint64_t idx)
{
	struct control_consumer *k = control_consumer_find(c, consumer);
	struct rp_xmsg m = {
		.type = RP_XMSG_ACCEPTED, .token = consumer | CONTROL_CONSUMER_FLAG, .idx = idx};

	if (k)
		control_send(c, k->shard, &m);
}

static int show(struct rp_control *c, uint64_t consumer, const struct rp_xmsg *m,
	const uint8_t *tail, const struct rp_span *value, unsigned value_count)
{
	struct rp_control_delivery d = {
		.idx = m->idx,
		.tail = {tail, m->tail_length},
		.value = value,
		.value_count = value_count,
		.revision = (int64_t)m->revision,
		.attempt = m->attempt,
	};
	struct rp_qmsg_process p;
	struct rp_meta meta;
	int rc;

	rp_xmsg_process_read(m->value, &p);
	if (p.kind == RP_PROCESS_REQUEST &&
		rp_meta_read(&meta, (struct rp_span){tail + m->tail_length, p.meta_length})) {
		d.request = m->alloc_node;
		d.left_us = m->node > c->now.ns ? (m->node - c->now.ns) / RP_NS_PER_US : 0;
		d.priority = p.priority;
		d.max_bytes = meta.max_bytes;
		d.reply_to = meta.reply_to;
	}
	rc = c->ops->deliver(c->ctx, consumer, &d);

	if (rc == 0)
		c->counters.deliveries++;
	return rc;
}

/* What cannot be shown at all goes back; -EAGAIN: it waits. */
static int shown(struct rp_control *c, unsigned shard, const struct rp_xmsg *m, int rc)
{
	struct rp_xmsg back = {.type = RP_XMSG_RETURNED, .token = m->token, .idx = m->idx};

	if (rc == 0 || rc == -EAGAIN)
		return rc;
	RP_LOG(RP_LOG_QUEUE, RP_LOG_WARNING, "a delivery could not be shown: %s", strerror(-rc));
	control_send(c, shard, &back);
	return 0;
}

/* What stands before the value. */
static uint32_t head_length(const struct rp_xmsg *m)
{
	struct rp_qmsg_process p;

	rp_xmsg_process_read(m->value, &p);
	return (uint32_t)m->tail_length + p.meta_length;
}

static int show_mbuf(struct rp_control *c, struct control_consumer *k, const struct rp_xmsg *m)
{
	struct rp_span pieces[PIECES_MAX];
	uint64_t consumer = k->by_handle.key;
	unsigned shard = k->shard;
	void *copy;
	unsigned n = value_pieces(m->m, head_length(m), pieces, &copy);
	int rc = show(c, consumer, m, rte_pktmbuf_mtod(m->m, const uint8_t *), pieces, n);

	free(copy);
	return shown(c, shard, m, rc);
}

static int show_held(struct rp_control *c, struct control_consumer *k, const struct control_held *h)
{
	uint32_t head = head_length(&h->m);
	struct rp_span value = {h->bytes + head, h->length - head};
	unsigned shard = k->shard;

	return shown(c, shard, &h->m, show(c, k->by_handle.key, &h->m, h->bytes, &value, 1));
}

static void hold(struct rp_control *c, struct control_consumer *k, const struct rp_xmsg *m)
{
	struct control_held *h = control_alloc(sizeof(*h) + m->m->pkt_len);

	h->m = *m;
	h->m.m = NULL;
	h->length = m->m->pkt_len;
	rp_mbuf_copy_out(m->m, 0, h->bytes, h->length);
	rp_list_push_back(&k->held, &h->node);
	c->counters.deliveries_held++;
}

static void on_delivery(struct rp_control *c, const struct rp_xmsg *m)
{
	struct control_consumer *k = control_consumer_find(c, m->token & ~CONTROL_CONSUMER_FLAG);
	struct rp_qmsg_process p;

	rp_xmsg_process_read(m->value, &p);
	if (k && p.kind == RP_PROCESS_REQUEST)
		control_job_learn(c, k, m, &p);
	if (m->flags & 1)
		/* Its client has it. */
		;
	else if (!k)
		/* Its close is on the way to the shard, which offers the message again. */
		c->counters.deliveries_late++;
	else if (!rp_list_empty(&k->held) || show_mbuf(c, k, m) == -EAGAIN)
		hold(c, k, m);
	rte_pktmbuf_free(m->m);
}

void rp_control_consumer_room(struct rp_control *c, uint64_t consumer)
{
	struct control_consumer *k = control_consumer_find(c, consumer);

	while (k && !rp_list_empty(&k->held)) {
		struct control_held *h = rp_list_entry(k->held.next, struct control_held, node);

		if (show_held(c, k, h) != 0)
			return;
		held_free(h);
	}
}

static struct control_held *held_find(struct control_consumer *k, uint64_t idx)
{
	struct rp_list *n;

	rp_list_foreach (n, &k->held) {
		struct control_held *h = rp_list_entry(n, struct control_held, node);

		if (h->m.idx == idx)
			return h;
	}
	return NULL;
}

static void on_recall(struct rp_control *c, const struct rp_xmsg *m)
{
	struct control_consumer *k = control_consumer_find(c, m->token & ~CONTROL_CONSUMER_FLAG);
	struct control_held *h = k ? held_find(k, m->idx) : NULL;
	struct rp_xmsg back = {.type = RP_XMSG_RETURNED, .token = m->token, .idx = m->idx};

	if (!h)
		return;
	held_free(h);
	control_send(c, k->shard, &back);
}

static void on_withdraw(struct rp_control *c, const struct rp_xmsg *m)
{
	struct control_consumer *k = control_consumer_find(c, m->token & ~CONTROL_CONSUMER_FLAG);
	struct control_held *h = k ? held_find(k, m->idx) : NULL;
	struct rp_span tail = {rte_pktmbuf_mtod(m->m, const uint8_t *), m->tail_length};

	if (h)
		held_free(h);
	else if (k)
		c->ops->withdraw(c->ctx, k->by_handle.key, m->idx, tail, (int64_t)m->revision);
	c->counters.withdrawals += k != NULL;
	rte_pktmbuf_free(m->m);
}

static void on_consumer_ended(struct rp_control *c, const struct rp_xmsg *m)
{
	static const char *const reasons[] = {
		[RP_QUEUE_END_REPLACED] =
			"queue consumer: replaced by a later watch of the same uuid",
		[RP_QUEUE_END_REMOVED] = "queue consumer: its registration was deleted",
		[RP_QUEUE_END_STOPPING] = "etcdserver: server stopped",
		[RP_QUEUE_END_DRAINING] = RP_CONTROL_TEXT_DRAINING,
	};
	struct control_consumer *k = control_consumer_find(c, m->token & ~CONTROL_CONSUMER_FLAG);
	uint64_t handle;

	if (!k)
		return;
	handle = k->by_handle.key;
	control_consumer_free(c, k);
	c->ops->consumer_end(c->ctx, handle, reasons[m->value]);
}

/* ---- the unary path ---- */

static void unary_failed(struct rp_control *c, unsigned shard, uint64_t token)
{
	struct rp_xmsg m = {.type = RP_XMSG_UNARY_RESULT, .token = token, .value = 1};

	c->counters.unary_failed++;
	control_send(c, shard, &m);
}

static void on_unary_out(struct rp_control *c, unsigned shard, const struct rp_xmsg *m)
{
	struct control_unary *u = control_alloc(sizeof(*u));
	size_t length = m->m->pkt_len;
	uint8_t *frame = control_alloc(length);

	u->shard = shard;
	u->token = m->token;
	rp_hmap_insert(&c->unaries, &u->by_id, ++c->unary_id_last);
	rp_mbuf_copy_out(m->m, 0, frame, length);
	rte_pktmbuf_free(m->m);
	c->counters.unary_out++;
	if (c->ops->unary_call(c->ctx, m->node, (struct rp_span){frame, length}, u->by_id.key)) {
		rp_hmap_remove(&c->unaries, &u->by_id);
		free(u);
		unary_failed(c, shard, m->token);
	}
	free(frame);
}

void rp_control_unary_result(
	struct rp_control *c, uint64_t token, bool failed, struct rp_span answer)
{
	struct rp_hmap_node *n = rp_hmap_find(&c->unaries, token);
	struct rp_reader r = rp_reader_of(answer.data, answer.length);
	struct rp_xmsg m = {.type = RP_XMSG_UNARY_RESULT};
	struct control_unary *u;
	uint32_t status;

	if (!n)
		return;
	u = RP_CONTAINER_OF(n, struct control_unary, by_id);
	m.token = u->token;
	status = rp_read_le32(&r);
	m.epoch = rp_read_le32(&r);
	m.node = rp_read_le64(&r);
	m.status = (uint16_t)status;
	if (failed || r.bad || status >= RP_QSTATUS_COUNT)
		unary_failed(c, u->shard, u->token);
	else
		control_send(c, u->shard, &m);
	rp_hmap_remove(&c->unaries, &u->by_id);
	free(u);
}

int rp_control_unary_in(struct rp_control *c, uint64_t node, struct rp_span frame, uint64_t token)
{
	int shard = rp_deliver_unary_shard(frame.data, frame.length, c->shards);
	struct rp_xmsg m = {.type = RP_XMSG_UNARY_IN, .node = node, .token = token};

	if (shard < 0) {
		c->counters.unary_malformed++;
		return -EINVAL;
	}
	if (!rp_list_empty(&c->posts[shard]) ||
		c->ops->tokens(c->ctx, (unsigned)shard, RP_XMSG_UNARY_IN) == 0)
		return -EAGAIN;
	m.m = control_chain(c, &frame, 1);
	if (!m.m)
		return -EAGAIN;
	if (c->ops->post(c->ctx, (unsigned)shard, &m) != 0) {
		rte_pktmbuf_free(m.m);
		return -EAGAIN;
	}
	c->counters.unary_in++;
	return 0;
}

static void on_unary_done(struct rp_control *c, const struct rp_xmsg *m)
{
	uint8_t bytes[UNARY_ANSWER_BYTES];
	struct rp_writer w = rp_writer_of(bytes, sizeof(bytes));

	rp_write_le32(&w, m->status);
	rp_write_le32(&w, m->epoch);
	rp_write_le64(&w, m->node);
	c->ops->unary_answer(
		c->ctx, m->token, (struct rp_span){bytes, m->value ? 0 : sizeof(bytes)});
}

/* ---- what the rings bring ---- */

static void on_named(struct rp_control *c, const struct rp_xmsg *m)
{
	struct rp_span name = {rte_pktmbuf_mtod(m->m, const uint8_t *), m->name_length};

	if (m->type == RP_XMSG_CLAIMED)
		control_on_claimed(c, name, m->epoch, m->value != 0);
	else if (m->type == RP_XMSG_RELEASED)
		control_on_released(c, name, m->epoch);
	else
		control_on_consumer_here(c, name, m->uuid, m->value != 0);
	rte_pktmbuf_free(m->m);
}

void rp_control_on_xmsg(
	struct rp_control *c, unsigned shard, const struct rp_xmsg *m, struct rp_repl_now now)
{
	c->now = now;
	switch ((enum rp_xmsg_type)m->type) {
	case RP_XMSG_ANSWER:
		c->acks_open[shard] -= m->flags & 1;
		on_answer(c, m);
		return;
	case RP_XMSG_DELIVERY:
		on_delivery(c, m);
		return;
	case RP_XMSG_RECALL:
		on_recall(c, m);
		return;
	case RP_XMSG_WITHDRAW:
		on_withdraw(c, m);
		return;
	case RP_XMSG_CONSUMER_ENDED:
		on_consumer_ended(c, m);
		return;
	case RP_XMSG_CLAIMED:
	case RP_XMSG_RELEASED:
	case RP_XMSG_CONSUMER_HERE:
		on_named(c, m);
		return;
	case RP_XMSG_UNARY_OUT:
		on_unary_out(c, shard, m);
		return;
	case RP_XMSG_UNARY_DONE:
		on_unary_done(c, m);
		return;
	case RP_XMSG_LINK_STATE:
		return; /* the shards know; control learns of peers by its own channel */
	case RP_XMSG_SNAPSHOT_DONE:
		c->ops->snapshot_done(c->ctx, shard, m->token);
		return;
	case RP_XMSG_TAPPED:
		c->ops->tapped(c->ctx, shard, m->m);
		return;
	case RP_XMSG_STOPPED:
		c->ops->stopped(c->ctx, shard, m->value);
		return;
	case RP_XMSG_DEAD_LETTER:
		control_on_dead_letter(c, shard, m);
		return;
	case RP_XMSG_POLICIES_USED:
		control_on_policies_used(c, m);
		return;
	case RP_XMSG_PROCESS_END:
		control_on_process_end(c, shard, m);
		return;
	case RP_XMSG_CANCEL_ASK:
		control_on_cancel_ask(c, m);
		return;
	case RP_XMSG_JOB_OVER:
		control_on_job_over(c, m);
		return;
	case RP_XMSG_OUTPUT_ROOM:
		control_on_output_room(c, m);
		return;
	case RP_XMSG_RUN_EVENT:
		control_on_run_event(c, m);
		return;
	case RP_XMSG_PUT:
	case RP_XMSG_ACK:
	case RP_XMSG_ACKS:
	case RP_XMSG_GET:
	case RP_XMSG_REJECT:
	case RP_XMSG_PURGE:
	case RP_XMSG_CANCEL:
	case RP_XMSG_FAIL:
	case RP_XMSG_BEGUN:
	case RP_XMSG_RUN_READ:
	case RP_XMSG_LETTERED:
	case RP_XMSG_SET_POLICIES:
	case RP_XMSG_CONSUMER_OPEN:
	case RP_XMSG_CONSUMER_CLOSE:
	case RP_XMSG_ACCEPTED:
	case RP_XMSG_ACKED:
	case RP_XMSG_RETURNED:
	case RP_XMSG_SET_RECORD:
	case RP_XMSG_SET_CONSUMER:
	case RP_XMSG_PIN:
	case RP_XMSG_SET_NODE:
	case RP_XMSG_SET_PEER:
	case RP_XMSG_SET_UNARY:
	case RP_XMSG_SET_LIMITS:
	case RP_XMSG_SET_SECRETS:
	case RP_XMSG_SET_TLS:
	case RP_XMSG_UNARY_IN:
	case RP_XMSG_UNARY_RESULT:
	case RP_XMSG_SNAPSHOT:
	case RP_XMSG_IMPAIR:
	case RP_XMSG_TAP:
	case RP_XMSG_STOP:
	case RP_XMSG_FRAME_OUT:
	case RP_XMSG_FRAME_IN:
	case RP_XMSG_LINK:
	case RP_XMSG_PACKETS_IN:
	case RP_XMSG_PACKETS_OUT:
	case RP_XMSG_ICMP_IN:
	case RP_XMSG_NEIGH:
	case RP_XMSG_TYPE_COUNT:
		break;
	}
	RP_ASSERT(!"a message that control is never sent");
}

void control_queue_free(struct rp_control *c)
{
	control_letter_free(c);
	control_request_free_all(c);
	control_job_free_all(c);
	control_run_free_all(c);
	for (size_t i = 0; i < 1u << CONTROL_CONSUMER_BITS; i++)
		while (c->consumers.chains[i])
			control_consumer_free(c, RP_CONTAINER_OF(c->consumers.chains[i],
							 struct control_consumer, by_handle));
	for (size_t i = 0; i < 1u << CONTROL_UNARY_BITS; i++)
		while (c->unaries.chains[i]) {
			struct control_unary *u =
				RP_CONTAINER_OF(c->unaries.chains[i], struct control_unary, by_id);

			rp_hmap_remove(&c->unaries, &u->by_id);
			free(u);
		}
}
