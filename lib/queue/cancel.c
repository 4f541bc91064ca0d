/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A cancel, wherever its requests are: at the queue's dispatcher, or at a node that dispatched
 * before it and holds what it bound, be that one out of reach of the queue's keys by now (apart.c).
 * They are asked in turn, and each names the one before it. The dispatcher is the last, since what
 * moves goes there; what is on its way is waited for.
 *
 * Who may not hear of the queue's keys is told a digest of the tail: it knows the tails of what
 * came there before, and learns no other.
 */

#include <string.h>

#include "queue_priv.h"

static struct rp_span cancel_tail(const struct rte_mbuf *m)
{
	return (struct rp_span){rte_pktmbuf_mtod(m, const uint8_t *), m->data_len};
}

/* ---- where it is asked for ---- */

static bool was_asked(const struct request *r, uint64_t node)
{
	for (unsigned i = 0; i < r->asked_count; i++) {
		if (r->asked[i] == node)
			return true;
	}
	return false;
}

static void asked_forget(struct request *r, uint64_t node)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->asked_count; i++) {
		if (r->asked[i] != node)
			r->asked[n++] = r->asked[i];
	}
	r->asked_count = (uint8_t)n;
}

/* It lives, as far as is known. */
static bool may_have(struct rp_queues *qs, uint64_t node)
{
	const struct peer *p = peer_find(qs, node);

	return p && p->state != RP_NODE_GONE && !p->offered;
}

static uint64_t cancel_last(const struct rp_queues *qs, const struct queue *q)
{
	return q->own ? qs->config.node : q->dispatcher;
}

/* The next to be asked; 0: all were. */
static uint64_t cancel_next(struct rp_queues *qs, struct request *r)
{
	const struct queue *q = r->q;
	uint64_t nodes[TOOK_MAX + 4], last = cancel_last(qs, q);
	unsigned n = 0;

	nodes[n++] = qs->config.node;
	nodes[n++] = r->hint;
	for (unsigned i = TOOK_MAX; q->more && i > 0; i--)
		nodes[n++] = q->more->took[i - 1];
	nodes[n++] = q->more ? q->more->rival : 0;
	nodes[n++] = last;
	for (unsigned i = 0; i < n; i++) {
		if (!nodes[i] || (nodes[i] == last && i + 1 < n) || was_asked(r, nodes[i]))
			continue;
		if (r->asked_count == RP_ARRAY_SIZE(r->asked))
			return 0;
		r->asked[r->asked_count++] = nodes[i];
		if (is_self(qs, nodes[i]) || may_have(qs, nodes[i]))
			return nodes[i];
	}
	return 0;
}

static bool cancel_send(struct rp_queues *qs, struct request *r, uint64_t node, uint64_t now_ns)
{
	struct rp_qmsg m = qmsg_for(r->q, RP_QMSG_CANCEL);

	m.token = slab_id(&qs->requests_slab, r);
	m.mod_revision = r->request;
	if (queue_is_apart(qs, r->q, node)) {
		m.idx = job_digest(cancel_tail(r->with));
	} else {
		m.payload = payload_share(r->with);
		m.tail_length = r->with->data_len;
	}
	r->node = node;
	if (peer_send(qs, node, &m, now_ns) == 0)
		return true;
	rte_pktmbuf_free(m.payload);
	return false;
}

/* From the first on: what was on its way may be anywhere by then. */
static void cancel_again(struct rp_queues *qs, struct request *r, uint64_t now_ns)
{
	r->asked_count = 0;
	r->hint = 0;
	r->unsure = false;
	request_park(qs, r, now_ns);
}

void cancel_step(struct rp_queues *qs, struct request *r, uint64_t now_ns)
{
	const struct cancel_what what = {
		.tail = cancel_tail(r->with),
		.digest = job_digest(cancel_tail(r->with)),
		.request = r->request,
	};
	struct settled s = {.status = RP_Q_OK};
	uint64_t node;

	while ((node = cancel_next(qs, r))) {
		if (!is_self(qs, node)) {
			if (cancel_send(qs, r, node, now_ns))
				return;
			r->unsure = true;
		} else if (move_is_between(qs, r->q, 0, 0)) {
			cancel_again(qs, r, now_ns);
			return;
		} else {
			r->ended += job_cancel(qs, r->q, &what, now_ns);
		}
	}
	s.deleted = r->ended;
	if (r->unsure && r->ended == 0)
		s.status = RP_Q_UNREACHABLE;
	request_finish(qs, r, &s);
}

void cancel_answered(
	struct rp_queues *qs, struct request *r, const struct rp_qmsg *m, uint64_t now_ns)
{
	if (m->status == RP_Q_STALL) {
		cancel_again(qs, r, now_ns);
		return;
	}
	r->ended += m->count;
	r->unsure |= m->status != RP_Q_OK && m->status != RP_Q_MOVED;
	if (m->alloc_node && !was_asked(r, m->alloc_node)) {
		r->hint = m->alloc_node;
		asked_forget(r, cancel_last(qs, r->q));
	}
	cancel_step(qs, r, now_ns);
}

void cancel_lost(struct rp_queues *qs, struct request *r, uint64_t now_ns)
{
	r->unsure = true;
	cancel_step(qs, r, now_ns);
}

void rp_queue_cancel(struct rp_queues *qs, uint64_t token, struct rp_span name,
	struct rte_mbuf *tail, uint64_t request, uint64_t now_ns)
{
	struct queue *q =
		name.length && name.length <= RP_NAME_BYTES_MAX ? queue_find(qs, name) : NULL;
	struct request *r = q ? slab_get(&qs->requests_slab) : NULL;
	const struct rp_queue_answer none = {.status = q ? RP_Q_LIMIT : RP_Q_OK};

	if (!r) {
		rte_pktmbuf_free(tail);
		qs->ops.answer(qs->ctx, token, &none);
		return;
	}
	r->kind = REQUEST_CANCEL;
	r->q = q;
	r->token = token;
	r->with = tail;
	r->request = request;
	request_wait(qs, r, now_ns);
	cancel_step(qs, r, now_ns);
}

/* ---- where they are ---- */

/* Another node that dispatched, for one that may hear of it. */
static uint64_t cancel_hint(struct rp_queues *qs, const struct queue *q, uint64_t from)
{
	uint64_t rival = q->more ? q->more->rival : 0;

	if (rival == from || is_self(qs, rival) || !may_have(qs, rival) ||
		queue_is_apart(qs, q, from))
		return 0;
	return rival;
}

struct settled cancel_here(struct rp_queues *qs, struct queue *q, uint64_t from,
	const struct rp_qmsg *m, uint64_t now_ns)
{
	struct settled s = {.status = RP_Q_OK};
	struct cancel_what what = {.digest = m->idx, .request = m->mod_revision};

	if (m->payload) {
		what.tail = cancel_tail(m->payload);
		what.digest = job_digest(what.tail);
	}
	if (!q)
		return s;
	if (move_is_between(qs, q, 0, 0)) {
		s.status = RP_Q_STALL;
		return s;
	}
	s.alloc_node = cancel_hint(qs, q, from);
	s.deleted = job_cancel(qs, q, &what, now_ns);
	return s;
}
