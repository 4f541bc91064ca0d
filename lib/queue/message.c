/* SPDX-License-Identifier: Apache-2.0 */

/* What comes in from other nodes, and what became of what was sent to them. */

#include <string.h>

#include "queue_priv.h"

/* An acknowledge was done, and its asker, if it is the consumer's host, does not know. */
static void reply_lost(struct rp_queues *qs, struct queue *q, uint64_t node,
	const struct rp_qmsg *m, uint64_t now_ns)
{
	if (q && m->status == RP_Q_OK && m->count > 0 && m->alloc_node)
		notice_settled(qs, q, node, m, now_ns);
}

static void reply(struct rp_queues *qs, struct queue *q, uint64_t to, const struct rp_qmsg *asked,
	const struct settled *s, uint64_t now_ns)
{
	struct rp_qmsg m = {
		.type = RP_QMSG_REPLY,
		.name = asked->name,
		.name_length = asked->name_length,
		.hash = asked->hash,
		.epoch = q ? q->epoch : 0,
		.dispatcher = q ? q->dispatcher : 0,
		.alloc_node = s->alloc_node,
		.token = asked->token,
		.idx = asked->idx,
		.status = s->status,
		.count = s->deleted,
		.attempt = s->attempt,
		.mod_revision = s->mod_revision,
		.tail_length = s->payload ? s->tail_length : 0,
		.payload = s->payload,
	};

	/* Of a process request: what stands before the value is not all tail. */
	if (s->payload && s->meta_length > 0) {
		m.process.kind = RP_PROCESS_REQUEST;
		m.process.meta_length = s->meta_length;
	}

	memcpy(m.uuid, asked->uuid, RP_UUID_BYTES);
	if (peer_send(qs, to, &m, now_ns) == 0)
		return;
	/* The asker is told by its own deadline; what its client held is over all the same. */
	rte_pktmbuf_free(s->payload);
	reply_lost(qs, q, to, &m, now_ns);
}

static void send_moved(struct rp_queues *qs, const struct queue *q, uint64_t to, uint64_t now_ns)
{
	const struct rp_qmsg m = qmsg_for(q, RP_QMSG_MOVED);

	peer_send(qs, to, &m, now_ns);
}

/* Another node dispatches, be it the asker's, and nothing here is what the asker means. */
static bool is_elsewhere(const struct rp_queues *qs, const struct queue *q, const struct rp_qmsg *m)
{
	return !q->own && q->dispatcher && !is_self(qs, q->dispatcher) &&
	       !message_find(qs, q, m->idx, m->alloc_node);
}

/* It is not here, but a node that dispatched in the dark may hold it: the asker is sent there,
 * once. */
static bool is_at_rival(
	struct rp_queues *qs, const struct queue *q, uint64_t from, const struct rp_qmsg *m)
{
	uint64_t rival = q->own ? request_rival(qs, q) : 0;

	return rival && rival != from && !message_find(qs, q, m->idx, m->alloc_node);
}

/* take: the payload of a QACK. */
static void on_request(struct rp_queues *qs, struct queue *q, uint64_t from,
	const struct rp_qmsg *m, uint64_t now_ns)
{
	struct settled s = {.status = m->type == RP_QMSG_QACK ? RP_Q_OK : RP_Q_NOT_FOUND};
	bool taken = false;

	if (q && m->type == RP_QMSG_REJECTED && !m->idx) {
		/* A consumer has left, whoever dispatches now: what it held of here is free. */
		s = settle_reject(qs, q, m, from, now_ns);
	} else if (m->type == RP_QMSG_GET && !m->idx) {
		s.status = !q ? RP_Q_OK : q->own ? RP_Q_MOVED : left_status(qs, q);
		s.alloc_node = q && q->own ? qs->config.node : 0;
		s.deleted = s.status == RP_Q_STALL && left_is_moving(q);
	} else if (q && move_is_between(qs, q, m->idx, m->alloc_node)) {
		s.status = RP_Q_STALL;
	} else if (q && (is_elsewhere(qs, q, m) || (m->token && is_at_rival(qs, q, from, m)))) {
		COUNT(qs, q, moved);
		s.status = RP_Q_MOVED;
		s.alloc_node = q->own ? q->more->rival : q->dispatcher;
	} else if (q && q->own && request_rival_lost(qs, q) &&
		   !message_find(qs, q, m->idx, m->alloc_node)) {
		s.status = RP_Q_UNREACHABLE;
	} else if (q && m->type == RP_QMSG_QACK) {
		s = settle_ack(qs, q, m, from, now_ns);
		taken = true;
	} else if (q && m->type == RP_QMSG_GET) {
		s = settle_get(qs, q, m);
	} else if (q) {
		s = settle_reject(qs, q, m, from, now_ns);
	}
	if (m->type == RP_QMSG_QACK && !taken)
		rte_pktmbuf_free(m->payload);
	if (m->type != RP_QMSG_REJECTED || m->token)
		reply(qs, q, from, m, &s, now_ns);
	else
		rte_pktmbuf_free(s.payload);
}

static int on_deliver(struct rp_queues *qs, struct queue *q, uint64_t from, const struct rp_qmsg *m,
	uint32_t *epoch, uint64_t *dispatcher, uint64_t now_ns)
{
	struct offer o = {
		.from = from,
		.idx = m->idx,
		.alloc_node = m->alloc_node,
		.life = m->token,
		.mod_revision = m->mod_revision,
		.attempt = m->attempt,
		.tail_length = m->tail_length,
		.process = m->process,
		.begins = m->flags & RP_QMSG_RESUMES,
		.payload = m->payload,
	};
	enum rp_qstatus status;
	struct consumer *c;

	if (!m->payload || m->tail_length == 0 || m->tail_length > m->payload->data_len ||
		m->tail_length > RP_TAIL_BYTES_MAX || !m->idx || !m->alloc_node ||
		!process_is_sound(&m->process, m->payload, m->tail_length))
		return RP_Q_INVALID;
	o.process.left_ns = now_ns;
	if (!q)
		return RP_Q_NO_CONSUMER;
	c = consumer_find(qs, q, m->uuid);
	/*
	 * What was bound before the move stays with its old dispatcher, and is sent again by it; it
	 * may not know that the client has it, which it is told whoever dispatches now.
	 */
	if (m->mod_revision == 0 && !(c && c->host && host_has(qs, c->host, &o)) &&
		rp_route_dispatcher_compare(m->epoch, m->dispatcher, q->epoch, q->dispatcher) < 0) {
		COUNT(qs, q, moved);
		*epoch = q->epoch;
		*dispatcher = q->dispatcher;
		return RP_Q_MOVED;
	}
	if (!c)
		return RP_Q_NO_CONSUMER;
	status = host_take(qs, c, &o, now_ns);
	if (status != RP_Q_DUPLICATE)
		return status;
	rte_pktmbuf_free(m->payload);
	return RP_Q_OK;
}

static void on_resume(struct rp_queues *qs, struct queue *q, uint64_t from, const struct rp_qmsg *m,
	uint64_t now_ns)
{
	struct consumer *c;

	/* To be asked for it is a reason to dispatch, when nobody else does. */
	if (!q->own && (!q->dispatcher || is_self(qs, q->dispatcher)) &&
		!queue_is_apart(qs, q, from))
		queue_dispatch(qs, q, RP_CLAIM_PRODUCER, now_ns);
	c = q->own ? consumer_get(qs, q, m->uuid) : consumer_find(qs, q, m->uuid);
	if (c && m->token)
		settle_said(qs, c, from, m, now_ns);
	if (c)
		consumer_tidy(qs, c, now_ns);
	if (is_elsewhere(qs, q, m) && q->dispatcher != from)
		send_moved(qs, q, from, now_ns);
}

/* Nothing is known of the queue here: no client of this node has got what is asked for. */
static void withdraw_unknown(
	struct rp_queues *qs, uint64_t from, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct rp_qmsg msg = {
		.type = RP_QMSG_REJECTED,
		.status = RP_Q_STALL,
		.name = m->name,
		.name_length = m->name_length,
		.hash = m->hash,
		.idx = m->idx,
		.alloc_node = m->alloc_node,
		.attempt = m->attempt,
		.mod_revision = m->token,
	};

	if (m->status != RP_Q_STALL)
		return;
	memcpy(msg.uuid, m->uuid, RP_UUID_BYTES);
	peer_send(qs, from, &msg, now_ns);
}

static void on_withdraw(struct rp_queues *qs, struct queue *q, uint64_t from,
	const struct rp_qmsg *m, uint64_t now_ns)
{
	struct consumer *c;
	struct hold *hold;

	if (m->status == RP_Q_STALL) {
		host_recall(qs, q, m, from, now_ns);
		return;
	}
	c = consumer_find(qs, q, m->uuid);
	hold = c && c->host ? hold_find(qs, c->host, m->idx) : NULL;
	/* What is taken back before it came is not shown when it comes. */
	if (c && c->host && !hold && (m->status == RP_Q_NOT_FOUND || m->status == RP_Q_OK))
		host_settled(c->host, m->idx, m->alloc_node);
	if (!hold || hold->alloc_node != m->alloc_node || hold->from != from)
		return;
	if (m->status == RP_Q_OK)
		hold_withdraw(qs, hold, now_ns);
	hold_done(qs, hold, m->status == RP_Q_OK);
}

/* What a dispatcher that hands over remembers. */
static void handed_receive(
	struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m, uint64_t now_ns)
{
	if (m->flags & RP_QMSG_KEEPS)
		sessions_receive(qs, q, m->payload, now_ns);
	else
		dedup_receive(qs, q, m->payload, now_ns);
}

int rp_queue_on_msg(struct rp_queues *qs, uint64_t from, const struct rp_qmsg *m, uint32_t *epoch,
	uint64_t *dispatcher, uint64_t now_ns)
{
	const struct rp_span name = {m->name, m->name_length};
	struct queue *q;

	*epoch = 0;
	*dispatcher = 0;
	if (m->type == RP_QMSG_FORWARD)
		return forward_receive(qs, from, m, epoch, dispatcher, now_ns);
	q = name.length ? queue_find_by(qs, name, m->hash) : NULL;
	if (!q && (m->type == RP_QMSG_RESUME || m->type == RP_QMSG_HANDOVER))
		q = queue_get(qs, name, now_ns);
	if (q)
		queue_learn(qs, q, m->epoch, m->dispatcher, now_ns);
	if (m->type == RP_QMSG_DELIVER)
		return on_deliver(qs, q, from, m, epoch, dispatcher, now_ns);
	if (m->type == RP_QMSG_REPLY) {
		request_reply(qs, from, m, now_ns);
		return RP_Q_OK;
	}
	if (q && m->payload && m->type == RP_QMSG_HANDOVER) {
		handed_receive(qs, q, m, now_ns);
		rte_pktmbuf_free(m->payload);
		return RP_Q_OK;
	}
	if (m->type == RP_QMSG_CANCEL) {
		const struct settled s = cancel_here(qs, q, from, m, now_ns);

		rte_pktmbuf_free(m->payload);
		reply(qs, q, from, m, &s, now_ns);
		return RP_Q_OK;
	}
	if (m->type != RP_QMSG_QACK)
		rte_pktmbuf_free(m->payload);
	switch (m->type) {
	case RP_QMSG_QACK:
	case RP_QMSG_GET:
	case RP_QMSG_REJECTED:
		on_request(qs, q, from, m, now_ns);
		break;
	case RP_QMSG_ACCEPTED:
		if (!m->idx && m->alloc_node && qs->ops.output_room)
			qs->ops.output_room(qs->ctx, m->alloc_node);
		else if (q)
			settle_accept(qs, q, m, from, now_ns);
		break;
	case RP_QMSG_RESUME:
		if (q)
			on_resume(qs, q, from, m, now_ns);
		break;
	case RP_QMSG_WITHDRAW:
		if (q)
			on_withdraw(qs, q, from, m, now_ns);
		else
			withdraw_unknown(qs, from, m, now_ns);
		break;
	case RP_QMSG_HANDOVER:
		if (q)
			move_receive(qs, q, from, m, now_ns);
		break;
	case RP_QMSG_CLAIM:
		if (q)
			move_claimed(qs, q, from, now_ns);
		break;
	case RP_QMSG_MOVED: /* learned above */
	case RP_QMSG_CANCEL:
	case RP_QMSG_FORWARD:
	case RP_QMSG_DELIVER:
	case RP_QMSG_REPLY:
	case RP_QMSG_TYPE_COUNT:
		break;
	}
	return RP_Q_OK;
}

/* ---- what became of ours ---- */

/* The message of a cookie, in the state that this sending left it in; else NULL. */
static struct message *sent_find(
	struct rp_queues *qs, const struct rp_qmsg *m, enum message_state state)
{
	struct message *msg = slab_find(&qs->messages, m->cookie & 0xffffffffffffull);

	if (!msg || msg->sends != (uint16_t)(m->cookie >> 48) || msg->state != state)
		return NULL;
	return msg;
}

void rp_queue_on_way(struct rp_queues *qs, struct rp_span name, enum rp_queue_way what)
{
	struct queue *q = queue_find(qs, name);

	if (!q)
		return;
	switch (what) {
	case RP_QUEUE_WAY_OPENED:
		COUNT(qs, q, streams_opened);
		break;
	case RP_QUEUE_WAY_IDLE:
		COUNT(qs, q, stream_idle_closes);
		break;
	case RP_QUEUE_WAY_UNARY:
		COUNT(qs, q, sent_unary);
		break;
	case RP_QUEUE_WAY_LINK_DOWN:
		COUNT(qs, q, fallbacks_link_down);
		break;
	case RP_QUEUE_WAY_STALLED:
		COUNT(qs, q, fallbacks_stall);
		break;
	case RP_QUEUE_WAY_REFUSED:
		COUNT(qs, q, fallbacks_refused);
		break;
	case RP_QUEUE_WAY_NO_STREAM:
		COUNT(qs, q, fallbacks_no_stream);
		break;
	}
}

void rp_queue_on_took(struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct message *msg;

	if (m->type == RP_QMSG_FORWARD) {
		msg = sent_find(qs, m, MESSAGE_SENT);
		if (msg)
			forward_took(qs, msg, now_ns);
	} else if (m->type == RP_QMSG_DELIVER) {
		msg = sent_find(qs, m, MESSAGE_BOUND);
		if (msg)
			settle_took(qs, msg, now_ns);
	}
}

/*
 * Who says that it has moved may hear of its dispatcher, and this node may not: their rules
 * disagree. A put is not asked for again and again; and a consumer there is not of this side, until
 * it says so.
 */
static enum rp_qstatus refused_status(
	struct rp_queues *qs, const struct message *m, uint64_t dispatcher)
{
	if (!queue_is_apart(qs, m->q, dispatcher))
		return RP_Q_MOVED;
	COUNT(qs, m->q, zones_disagree);
	if (m->state == MESSAGE_BOUND)
		return m->kept || m->seen ? RP_Q_MOVED : RP_Q_NO_CONSUMER;
	return m->answered ? RP_Q_MOVED : RP_Q_APART;
}

void rp_queue_on_refused(struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m,
	enum rp_qstatus status, uint32_t epoch, uint64_t dispatcher, uint64_t now_ns)
{
	enum message_state state = m->type == RP_QMSG_FORWARD ? MESSAGE_SENT : MESSAGE_BOUND;
	struct message *msg = sent_find(qs, m, state);

	if (msg && status == RP_Q_MOVED) {
		queue_learn(qs, msg->q, epoch, dispatcher, now_ns);
		/* Which may have handed it over. */
		msg = sent_find(qs, m, state);
		if (msg)
			status = refused_status(qs, msg, dispatcher);
	}
	if (!msg) {
		rte_pktmbuf_free(m->payload);
		return;
	}
	if (m->type == RP_QMSG_FORWARD) {
		bool elsewhere = m->epoch != msg->q->epoch || m->dispatcher != msg->q->dispatcher;

		forward_refused(qs, msg, m->payload, status, elsewhere, now_ns);
		return;
	}
	rte_pktmbuf_free(m->payload);
	settle_refused(qs, msg, status, now_ns);
}

static void lost_report(
	struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns)
{
	const struct rp_span name = {m->name, m->name_length};
	struct queue *q = name.length ? queue_find_by(qs, name, m->hash) : NULL;
	struct consumer *c = q ? consumer_find(qs, q, m->uuid) : NULL;
	struct peer *p = peer_find(qs, node);
	struct hold *hold;

	if (!c || !c->host || !p)
		return;
	if (m->type == RP_QMSG_RESUME && (m->flags & RP_QMSG_RESUMES) && q->dispatcher != node) {
		if (m->token == c->host->life)
			notice_resumed(qs, c->host, node, now_ns);
		return;
	}
	p->reports_due = true;
	if (m->type == RP_QMSG_RESUME) {
		/* That it has to let go was not heard. */
		if (!(m->flags & (RP_QMSG_RESUMES | RP_QMSG_KEEPS)) &&
			m->token > c->host->watch_life && !c->host->fenced_node) {
			c->host->fenced_node = node;
			c->host->fenced_anew = true;
		}
		c->host->resume_due = true;
		return;
	}
	hold = hold_find(qs, c->host, m->idx);
	if (hold && hold->from == node)
		hold->report = true;
}

static void lost_notice(
	struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns)
{
	const struct rp_span name = {m->name, m->name_length};
	struct queue *q = name.length ? queue_find_by(qs, name, m->hash) : NULL;

	/* A recall is repeated by its timer. */
	if (q && m->type == RP_QMSG_REJECTED && m->status == RP_Q_NO_CONSUMER && !m->idx)
		notice_left(qs, q, node, m->uuid, m->mod_revision, m->flags, now_ns);
	if (q && m->type == RP_QMSG_WITHDRAW &&
		(m->status == RP_Q_NOT_FOUND || m->status == RP_Q_OK))
		notice_send_to(qs, q, node, m, now_ns);
	else if (m->type == RP_QMSG_REPLY)
		reply_lost(qs, q, node, m, now_ns);
	else if (q && m->type == RP_QMSG_HANDOVER && m->payload)
		handed_receive(qs, q, m, now_ns);
	if (q && m->type == RP_QMSG_HANDOVER && (m->flags & RP_QMSG_RESUMES || m->payload) &&
		!q->own && !(m->flags & RP_QMSG_KEEPS))
		move_begin(qs, q, now_ns);
}

void rp_queue_on_lost(struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct message *msg;

	switch (m->type) {
	case RP_QMSG_FORWARD:
		msg = sent_find(qs, m, MESSAGE_SENT);
		if (msg)
			forward_lost(qs, msg, m->payload, m->flags & RP_QMSG_REPEAT, now_ns);
		else
			rte_pktmbuf_free(m->payload);
		return;
	case RP_QMSG_DELIVER:
		msg = sent_find(qs, m, MESSAGE_BOUND);
		if (msg && !msg->took)
			settle_lost(qs, msg, now_ns);
		break;
	case RP_QMSG_QACK:
	case RP_QMSG_GET:
	case RP_QMSG_CANCEL:
		request_lost(qs, m->token, now_ns);
		break;
	case RP_QMSG_REJECTED:
		if (m->token)
			request_lost(qs, m->token, now_ns);
		else
			lost_notice(qs, node, m, now_ns);
		break;
	case RP_QMSG_ACCEPTED:
	case RP_QMSG_RESUME:
		lost_report(qs, node, m, now_ns);
		break;
	case RP_QMSG_WITHDRAW:
	case RP_QMSG_REPLY:
	case RP_QMSG_HANDOVER:
		lost_notice(qs, node, m, now_ns);
		break;
	case RP_QMSG_MOVED:
	case RP_QMSG_CLAIM: /* its timer repeats it */
	case RP_QMSG_TYPE_COUNT:
		break;
	}
	rte_pktmbuf_free(m->payload);
}
