/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Acknowledges, gets and rejects of this node's clients: settled here, or where the message is.
 * Cancels, of which there may be something at several nodes, are in cancel.c.
 */

#include <string.h>

#include "queue_priv.h"

static void request_answer(
	struct rp_queues *qs, uint64_t token, const struct settled *s, uint64_t idx)
{
	const struct rp_queue_answer answer = {
		.status = s->status,
		.deleted = s->deleted,
		.attempt = s->attempt,
		.idx = idx,
		.mod_revision = s->mod_revision,
		.tail_length = s->tail_length,
		.meta_length = s->meta_length,
		.payload = s->payload,
	};

	qs->ops.answer(qs->ctx, token, &answer);
}

/* Asked again after so long, while the message is between two dispatchers. */
#define REQUEST_AGAIN_NS (2 * RP_NS_PER_MS)

void request_park(struct rp_queues *qs, struct request *r, uint64_t now_ns)
{
	r->node = 0;
	r->retried = false;
	r->alloc_node = 0;
	r->again_ns = now_ns + REQUEST_AGAIN_NS;
	rp_list_push_back(&qs->again, &r->again);
}

static void request_free(struct rp_queues *qs, struct request *r)
{
	rp_list_unlink(&r->again);
	rp_list_unlink(&r->timer);
	r->q->requests--;
	rte_pktmbuf_free(r->with);
	slab_put(&qs->requests_slab, r);
}

void request_finish(struct rp_queues *qs, struct request *r, const struct settled *s)
{
	uint64_t token = r->token, idx = r->idx;

	request_free(qs, r);
	request_answer(qs, token, s, idx);
}

void request_fail(struct rp_queues *qs, struct request *r, enum rp_qstatus status)
{
	const struct settled s = {.status = r->ended ? RP_Q_OK : status, .deleted = r->ended};
	uint64_t of = r->of;
	struct queue *q = r->q;

	if (!of) {
		request_finish(qs, r, &s);
		return;
	}
	request_free(qs, r);
	left_answered(qs, q, of, status);
}

static struct rp_qmsg request_msg(const struct request *r)
{
	static const uint8_t types[] = {
		[REQUEST_ACK] = RP_QMSG_QACK,
		[REQUEST_GET] = RP_QMSG_GET,
		[REQUEST_REJECT] = RP_QMSG_REJECTED,
		[REQUEST_FAIL] = RP_QMSG_REJECTED,
		[REQUEST_LEFT] = RP_QMSG_GET,
	};
	struct rp_qmsg m = qmsg_for(r->q, types[r->kind]);

	m.idx = r->idx;
	m.alloc_node = r->alloc_node;
	m.flags = r->flags;
	m.status = r->kind == REQUEST_REJECT ? RP_Q_REJECT
		   : r->kind == REQUEST_FAIL ? RP_Q_TOO_LARGE
					     : RP_Q_OK;
	memcpy(m.uuid, r->uuid, RP_UUID_BYTES);
	/* It may be asked for once more elsewhere. */
	m.payload = r->with ? payload_share(r->with) : NULL;
	return m;
}

static struct hold *request_hold(const struct rp_queues *qs, const struct request *r)
{
	const struct consumer *c;

	if (r->flags & RP_QMSG_NO_HOLDER)
		return NULL;
	c = consumer_find(qs, r->q, r->uuid);
	return c && c->host ? hold_find(qs, c->host, r->idx) : NULL;
}

/* The local consumer's part: the delivery is over when the dispatcher says so. */
static void request_settle_hold(
	struct rp_queues *qs, const struct request *r, const struct settled *s)
{
	struct hold *h = request_hold(qs, r);

	if (r->kind == REQUEST_GET)
		return;
	if (!h) {
		const struct consumer *c = consumer_find(qs, r->q, r->uuid);

		if (c && c->host && s->deleted && !(r->flags & RP_QMSG_NO_HOLDER)) {
			host_settled(c->host, r->idx, s->alloc_node);
			host_acked(c->host, r->idx);
		}
		return;
	}
	if (r->alloc_node && h->alloc_node != r->alloc_node)
		return;
	if (s->status == RP_Q_OK || s->status == RP_Q_NOT_FOUND) {
		struct host *host = h->host;

		host->c->acks += r->kind == REQUEST_ACK && !is_self(qs, h->from);
		hold_done(qs, h, false);
		if (r->kind == REQUEST_ACK)
			host_acked(host, r->idx);
	} else if (s->status == RP_Q_NOT_HOLDER)
		hold_forget(qs, h);
}

static struct settled request_here(struct rp_queues *qs, const struct request *r, uint64_t now_ns)
{
	const struct rp_qmsg m = request_msg(r);
	struct settled s = {0};

	switch ((enum request_kind)r->kind) {
	case REQUEST_ACK:
		s = settle_ack(qs, r->q, &m, qs->config.node, now_ns);
		break;
	case REQUEST_GET:
		s = settle_get(qs, r->q, &m);
		break;
	case REQUEST_REJECT:
	case REQUEST_FAIL:
		s = settle_reject(qs, r->q, &m, qs->config.node, now_ns);
		break;
	case REQUEST_LEFT: /* of another node */
	case REQUEST_CANCEL:
		break;
	}
	request_settle_hold(qs, r, &s);
	return s;
}

uint64_t request_rival(struct rp_queues *qs, const struct queue *q)
{
	const struct peer *p = q->more ? peer_find(qs, q->more->rival) : NULL;

	return p && p->state == RP_NODE_ONLINE && !p->lost && !is_self(qs, p->node) ? p->node : 0;
}

bool request_rival_lost(struct rp_queues *qs, const struct queue *q)
{
	const struct peer *p = q->more ? peer_find(qs, q->more->rival) : NULL;

	return p && !is_self(qs, p->node) && p->state != RP_NODE_GONE && !p->offered &&
	       (p->lost || p->state != RP_NODE_ONLINE);
}

/* Which node settles it, or 0 and *status. */
static uint64_t request_node(
	struct rp_queues *qs, struct request *r, enum rp_qstatus *status, uint64_t now_ns)
{
	const struct hold *hold = request_hold(qs, r);
	uint64_t rival;

	if (hold)
		r->alloc_node = hold->alloc_node;
	/* What this node delivered itself may have been handed over since. */
	if (hold && (!is_self(qs, hold->from) || r->q->own ||
			    message_find(qs, r->q, r->idx, r->alloc_node)))
		return hold->from;
	if (!hold && !(r->flags & RP_QMSG_NO_HOLDER)) {
		const struct consumer *c = consumer_find(qs, r->q, r->uuid);

		if (c && c->host && host_was_fenced(c->host, r->idx)) {
			COUNT(qs, r->q, acks_refused);
			*status = RP_Q_NOT_HOLDER;
			return 0;
		}
	}
	if (message_find(qs, r->q, r->idx, 0))
		return qs->config.node;
	switch (queue_dispatch(qs, r->q, RP_CLAIM_NONE, now_ns)) {
	case RP_DISPATCH_LOCAL:
		rival = request_rival(qs, r->q);
		if (!rival && request_rival_lost(qs, r->q)) {
			*status = RP_Q_UNREACHABLE;
			return 0;
		}
		return rival ? rival : qs->config.node;
	case RP_DISPATCH_REMOTE:
		return r->q->dispatcher;
	case RP_DISPATCH_UNKNOWN:
		break;
	}
	*status = RP_Q_NO_DISPATCHER;
	return 0;
}

/* False: it has failed. */
static bool request_send(struct rp_queues *qs, struct request *r, uint64_t node, uint64_t now_ns)
{
	struct rp_qmsg m = request_msg(r);

	m.token = slab_id(&qs->requests_slab, r);
	r->node = node;
	if (peer_send(qs, node, &m, now_ns) == 0)
		return true;
	rte_pktmbuf_free(m.payload);
	request_fail(qs, r, RP_Q_UNREACHABLE);
	return false;
}

void request_wait(struct rp_queues *qs, struct request *r, uint64_t now_ns)
{
	r->deadline_ns = now_ns + 2 * qs->config.dead_after_ns;
	rp_list_init(&r->timer);
	rp_list_init(&r->again);
	rp_list_push_back(&qs->requests, &r->timer);
	r->q->requests++;
}

bool request_left(struct rp_queues *qs, struct queue *q, uint64_t node, uint64_t now_ns)
{
	struct request *r = slab_get(&qs->requests_slab);

	if (!r)
		return false;
	r->kind = REQUEST_LEFT;
	r->flags = RP_QMSG_NO_HOLDER;
	r->q = q;
	r->of = node;
	request_wait(qs, r, now_ns);
	return request_send(qs, r, node, now_ns);
}

/* What is asked for finds nothing. */
static struct settled settled_nothing(enum request_kind kind)
{
	return (struct settled){.status = kind == REQUEST_ACK ? RP_Q_OK : RP_Q_NOT_FOUND};
}

/* take: `with`. `q` NULL: there is none of that name. */
static void request_start(struct rp_queues *qs, const struct request *asked, struct queue *q,
	const uint8_t *uuid, uint64_t now_ns)
{
	struct settled s = settled_nothing(asked->kind);
	uint64_t node, token = asked->token, idx = asked->idx;
	struct request local = *asked, *r;
	bool between;

	if (uuid)
		memcpy(local.uuid, uuid, RP_UUID_BYTES);
	else
		local.flags |= RP_QMSG_NO_HOLDER;
	local.q = q;
	if (!q) {
		rte_pktmbuf_free(local.with);
		request_answer(qs, token, &s, idx);
		return;
	}
	node = request_node(qs, &local, &s.status, now_ns);
	between = is_self(qs, node) && move_is_between(qs, local.q, idx, 0);
	if (!between && (!node || is_self(qs, node))) {
		if (node)
			s = request_here(qs, &local, now_ns);
		rte_pktmbuf_free(local.with);
		request_answer(qs, token, &s, idx);
		return;
	}
	r = slab_get(&qs->requests_slab);
	if (!r) {
		rte_pktmbuf_free(local.with);
		s.status = RP_Q_LIMIT;
		request_answer(qs, token, &s, idx);
		return;
	}
	*r = local;
	request_wait(qs, r, now_ns);
	if (between)
		request_park(qs, r, now_ns);
	else
		request_send(qs, r, node, now_ns);
}

/* Where the message is by now. */
static void request_again(struct rp_queues *qs, struct request *r, uint64_t now_ns)
{
	struct settled s = settled_nothing(r->kind);
	uint64_t node;

	rp_list_unlink(&r->again);
	if (r->kind == REQUEST_CANCEL) {
		cancel_step(qs, r, now_ns);
		return;
	}
	if (r->of) {
		request_send(qs, r, r->of, now_ns);
		return;
	}
	node = request_node(qs, r, &s.status, now_ns);
	if (node && !is_self(qs, node)) {
		request_send(qs, r, node, now_ns);
		return;
	}
	if (node && move_is_between(qs, r->q, r->idx, 0)) {
		request_park(qs, r, now_ns);
		return;
	}
	if (node)
		s = request_here(qs, r, now_ns);
	request_finish(qs, r, &s);
}

bool requests_again(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(&qs->again); i++) {
		struct request *r = rp_list_entry(qs->again.next, struct request, again);

		if (r->again_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		request_again(qs, r, now_ns);
	}
	return false;
}

void request_reply(struct rp_queues *qs, uint64_t from, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct request *r = slab_find(&qs->requests_slab, m->token);
	struct settled s = {
		.status = m->status,
		.deleted = m->count,
		.alloc_node = m->alloc_node,
		.attempt = m->attempt,
		.mod_revision = m->mod_revision,
		.tail_length = m->tail_length,
		.meta_length = m->process.meta_length,
		.payload = m->payload,
	};

	if (!r || r->node != from || (m->payload && rp_qmsg_head_bytes(m) > m->payload->data_len)) {
		rte_pktmbuf_free(m->payload);
		return;
	}
	if (r->kind == REQUEST_CANCEL) {
		rte_pktmbuf_free(m->payload);
		cancel_answered(qs, r, m, now_ns);
		return;
	}
	if (m->status == RP_Q_STALL) {
		r->moving = r->of && m->count;
		rte_pktmbuf_free(m->payload);
		request_park(qs, r, now_ns);
		return;
	}
	if (r->of) {
		rte_pktmbuf_free(m->payload);
		request_fail(qs, r, m->status);
		return;
	}
	if (m->status == RP_Q_MOVED) {
		uint64_t node = m->alloc_node;

		rte_pktmbuf_free(m->payload);
		s = settled_nothing(r->kind);
		if (!r->retried && node && node != from && !is_self(qs, node)) {
			r->retried = true;
			request_send(qs, r, node, now_ns);
			return;
		}
		if (!r->retried && is_self(qs, node) && move_is_between(qs, r->q, r->idx, 0)) {
			request_park(qs, r, now_ns);
			return;
		}
		/* Neither has it; or it is to be looked for here. */
		if (!r->retried && is_self(qs, node))
			s = request_here(qs, r, now_ns);
	} else {
		request_settle_hold(qs, r, &s);
	}
	request_finish(qs, r, &s);
}

void request_lost(struct rp_queues *qs, uint64_t token, uint64_t now_ns)
{
	struct request *r = slab_find(&qs->requests_slab, token);

	if (r && r->kind == REQUEST_CANCEL)
		cancel_lost(qs, r, now_ns);
	else if (r)
		request_fail(qs, r, RP_Q_UNREACHABLE);
}

static struct queue *request_queue(const struct rp_queues *qs, struct rp_span name)
{
	return name.length && name.length <= RP_NAME_BYTES_MAX ? queue_find(qs, name) : NULL;
}

/*
 * Most acknowledges: of a plain message that this node dispatches, by who holds it here. It ends as
 * it does by request_here(), with nothing looked for twice. `accepts`: that its client has it is
 * said by this as well. False: it is not so.
 */
static bool ack_here(
	struct rp_queues *qs, uint64_t token, struct hold *h, bool accepts, uint64_t now_ns)
{
	struct rp_queue_answer answer = {.status = RP_Q_OK, .deleted = 1, .idx = h->idx};
	const struct consumer *c = h->host->c;
	struct message *m;

	if (!c->q->own || !is_self(qs, h->from) || !is_self(qs, c->node))
		return false;
	m = message_find(qs, c->q, h->idx, h->alloc_node);
	if (!m || m->consumer != c || m->process.kind != RP_PROCESS_PLAIN)
		return false;
	if (accepts) {
		h->accepted = true;
		h->returned = false;
		settle_accept_held(qs, m, h, now_ns);
	}
	answer.attempt = m->attempt;
	answer.mod_revision = m->mod_revision;
	answer.tail_length = m->tail_length;
	settle_ack_here(qs, m, h, now_ns);
	qs->ops.answer(qs->ctx, token, &answer);
	return true;
}

void rp_queue_ack(struct rp_queues *qs, uint64_t token, struct rp_span name, uint64_t idx,
	const uint8_t *uuid, uint8_t flags, struct rte_mbuf *last, uint64_t now_ns)
{
	struct queue *q = request_queue(qs, name);
	const struct request r = {
		.kind = REQUEST_ACK,
		.flags = flags & (RP_QMSG_WANT_MESSAGE | RP_QMSG_NO_HOLDER),
		.token = token,
		.idx = idx,
		.with = last,
	};

	if (q && uuid && !last && !r.flags) {
		const struct consumer *c = consumer_find(qs, q, uuid);
		struct hold *h = c && c->host ? hold_find(qs, c->host, idx) : NULL;

		if (h && ack_here(qs, token, h, false, now_ns))
			return;
	}
	request_start(qs, &r, q, uuid, now_ns);
}

void rp_queue_consumer_ack(
	struct rp_queues *qs, uint64_t token, uint64_t handle, uint64_t idx, uint64_t now_ns)
{
	const struct request r = {.kind = REQUEST_ACK, .token = token, .idx = idx};
	const struct host *host = host_find(qs, handle);
	struct hold *h = host ? hold_find(qs, host, idx) : NULL;

	if (h && ack_here(qs, token, h, !h->accepted, now_ns))
		return;
	if (h && !h->accepted)
		hold_accepted(qs, h, now_ns);
	request_start(qs, &r, host ? host->c->q : NULL, host ? host->c->uuid : NULL, now_ns);
}

void rp_queue_get(struct rp_queues *qs, uint64_t token, struct rp_span name, uint64_t idx,
	const uint8_t *uuid, uint8_t flags, uint64_t now_ns)
{
	const struct request r = {
		.kind = REQUEST_GET,
		.flags = (uint8_t)((flags & RP_QMSG_NO_HOLDER) | RP_QMSG_WANT_MESSAGE),
		.token = token,
		.idx = idx,
	};

	request_start(qs, &r, request_queue(qs, name), uuid, now_ns);
}

void rp_queue_reject(struct rp_queues *qs, uint64_t token, struct rp_span name, uint64_t idx,
	const uint8_t *uuid, uint8_t flags, uint64_t now_ns)
{
	const struct request r = {
		.kind = REQUEST_REJECT,
		.flags = flags & RP_QMSG_NO_HOLDER,
		.token = token,
		.idx = idx,
	};

	request_start(qs, &r, request_queue(qs, name), uuid, now_ns);
}

void rp_queue_fail(struct rp_queues *qs, uint64_t token, struct rp_span name, uint64_t idx,
	const uint8_t *uuid, uint64_t now_ns)
{
	const struct request r = {.kind = REQUEST_FAIL, .token = token, .idx = idx};

	request_start(qs, &r, request_queue(qs, name), uuid, now_ns);
}
