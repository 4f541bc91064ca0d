/* SPDX-License-Identifier: Apache-2.0 */

/* The dispatcher: what becomes of offers, and of the consumers that they were made to. */

#include <string.h>

#include "trace_priv.h"

static bool message_is_held_by(const struct message *m, const uint8_t uuid[RP_UUID_BYTES])
{
	return m->state == MESSAGE_BOUND && memcmp(m->consumer->uuid, uuid, RP_UUID_BYTES) == 0;
}

/* The bound message that a report is about; NULL when it was bound anew, or is settled. */
static struct message *settle_find(
	struct rp_queues *qs, const struct queue *q, const struct rp_qmsg *m)
{
	struct message *msg = message_find(qs, q, m->idx, m->alloc_node);

	if (!msg || !message_is_held_by(msg, m->uuid))
		return NULL;
	return !m->attempt || m->attempt == msg->attempt ? msg : NULL;
}

static void message_took(struct rp_queues *qs, struct message *msg, uint64_t now_ns)
{
	msg->kept = false;
	if (msg->took)
		return;
	msg->took = true;
	trace_step(qs, msg, RP_QUEUE_STEP_TAKEN, msg->consumer, now_ns);
	RP_ASSERT(msg->consumer->untook > 0);
	msg->consumer->untook--;
}

/* It is to be offered again to its consumer, as if it had not arrived. */
static void message_lost(struct rp_queues *qs, struct message *msg, uint64_t now_ns)
{
	struct consumer *c = msg->consumer;

	if (msg->took) {
		msg->took = false;
		c->untook++;
	}
	if (msg->accepted) {
		msg->accepted = false;
		c->unaccepted++;
		msg->deadline_ns = now_ns + qs->config.accept_ns;
		rp_list_push_back(&qs->offers, &msg->timer);
	}
	msg->lost = true;
	msg->sends++;
	c->resend = true;
	c->q->resend = true;
	queue_work(qs, c->q);
	consumer_update(qs, c);
}

void settle_verify(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	struct rp_list *n;

	rp_list_foreach (n, &c->bound)
		message_lost(qs, rp_list_entry(n, struct message, link), now_ns);
}

bool settle_keep_kept(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	struct rp_list *n, *next;

	rp_list_foreach_safe (n, next, &c->bound) {
		struct message *msg = rp_list_entry(n, struct message, link);

		if (!msg->kept)
			job_release(qs, msg, false, now_ns);
	}
	return !rp_list_empty(&c->bound);
}

void settle_lost(struct rp_queues *qs, struct message *msg, uint64_t now_ns)
{
	struct consumer *c = msg->consumer;

	/* Its node had refused something before it, and so would this have been. */
	if ((c->away || c->restart) && !msg->accepted && !msg->seen && !msg->lost)
		dispatch_release(qs, msg, now_ns);
	else
		message_lost(qs, msg, now_ns);
}

void settle_took(struct rp_queues *qs, struct message *msg, uint64_t now_ns)
{
	message_took(qs, msg, now_ns);
	consumer_update(qs, msg->consumer);
}

/*
 * A report of the node where the consumer was before. Its client may have seen the event there; if
 * it is to be sent again, then unchanged. True: it has come back behind it, so this counts.
 */
static bool accept_is_late(struct message *msg, uint64_t mod_revision)
{
	if (!msg->lost || msg->seen)
		return false;
	msg->seen = true;
	msg->mod_revision = mod_revision;
	return mod_revision < msg->consumer->start_revision;
}

static void count_times(struct rp_queues *qs, const struct message *msg, uint64_t now_ns)
{
	uint64_t wait = age_ns(msg->since_ns, msg->bound_ns), took = age_ns(msg->bound_ns, now_ns);
	struct queue *q = msg->q;

	times_count(qs, q, wait, took);
	q->wait_sum_ns += wait;
	q->wait_max_ns = RP_MAX(q->wait_max_ns, wait);
	q->accept_sum_ns += took;
}

/* Outputs need no acknowledge: the requester has it. */
void output_read(struct rp_queues *qs, struct message *msg, uint64_t now_ns)
{
	struct queue *q = msg->q;

	dispatch_unbind(qs, msg);
	message_unindexed(qs, msg);
	message_free(qs, msg);
	COUNT(qs, q, acks);
	queue_touch(qs, q, now_ns);
}

/* It takes what it is offered: where that was a question, it may be ready again. */
static void consumer_proven(struct rp_queues *qs, struct consumer *c)
{
	bool asked = c->probation || c->restart;

	c->probation = false;
	if (c->pause == PAUSE_SUSPENDED)
		consumer_unpause(qs, c);
	else if (asked)
		consumer_update(qs, c);
}

/* The node `from` says that its client has what is bound to it. */
static void message_accepted(struct rp_queues *qs, struct message *msg, uint64_t mod_revision,
	bool begun, uint64_t from, uint64_t now_ns)
{
	struct consumer *c = msg->consumer;

	if (from != c->node) {
		bool has = accept_is_late(msg, mod_revision);

		asked_end(qs, msg);
		if (!has)
			return;
	}
	message_took(qs, msg, now_ns);
	msg->lost = false;
	msg->seen = true;
	msg->mod_revision = mod_revision;
	if (!msg->accepted) {
		msg->accepted = true;
		msg->accepted_ns = now_ns;
		trace_step(qs, msg, RP_QUEUE_STEP_WRITTEN, c, now_ns);
		c->unaccepted--;
		rp_list_unlink(&msg->timer);
		COUNT(qs, msg->q, accepts);
		count_times(qs, msg, now_ns);
	}
	if (begun)
		msg->process.flags |= RP_PROCESS_BEGUN;
	if (lane_class_of(msg) == LANE_OUTPUT)
		output_read(qs, msg, now_ns);
	consumer_proven(qs, c);
}

void settle_accept(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m, uint64_t from,
	uint64_t now_ns)
{
	struct message *msg;
	struct consumer *c;

	if (m->idx == 0) {
		c = consumer_find(qs, q, m->uuid);
		if (c && c->pause == PAUSE_STALL)
			consumer_unpause(qs, c);
		return;
	}
	msg = settle_find(qs, q, m);
	if (msg)
		message_accepted(qs, msg, m->mod_revision, m->flags & RP_QMSG_BEGUN, from, now_ns);
	else
		accept_goes_on(qs, q, m, now_ns);
}

void settle_accept_held(
	struct rp_queues *qs, struct message *msg, const struct hold *h, uint64_t now_ns)
{
	/* Else it was bound anew. */
	if (!h->attempt || h->attempt == msg->attempt)
		message_accepted(qs, msg, h->mod_revision, h->begun, qs->config.node, now_ns);
}

void settle_accept_here(struct rp_queues *qs, const struct hold *h, uint64_t now_ns)
{
	const struct consumer *c = h->host->c;
	struct message *msg = message_find(qs, c->q, h->idx, h->alloc_node);

	/* Else it is settled. */
	if (msg && msg->consumer == c)
		settle_accept_held(qs, msg, h, now_ns);
}

/* The consumer's node holds a delivery that was settled from another node: it may forget it. */
static void settle_tell_host(struct rp_queues *qs, struct queue *q, const struct consumer *c,
	const struct rp_qmsg *about, uint64_t from, uint64_t now_ns)
{
	struct rp_qmsg gone = *about;

	if (!c->node || (c->node == from && !is_self(qs, from)))
		return;
	if (is_self(qs, c->node)) {
		struct hold *h = c->host ? hold_find(qs, c->host, about->idx) : NULL;

		if (h && h->alloc_node == about->alloc_node)
			hold_done(qs, h, false);
		return;
	}
	memcpy(gone.uuid, c->uuid, RP_UUID_BYTES);
	notice_settled(qs, q, c->node, &gone, now_ns);
}

/* It was acknowledged, is on no list, and nobody is told of it any more. */
static void message_acked(struct rp_queues *qs, struct message *msg)
{
	struct queue *q = msg->q;

	message_unindexed(qs, msg);
	message_free(qs, msg);
	COUNT(qs, q, acks);
}

/* A queue that waits to be empty is looked at when it is. */
static void queue_drained(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	queue_touch(qs, q, now_ns);
	if (q->depth == 0 && q->more && q->more->pin_node)
		queue_work(qs, q);
}

void settle_ack_here(struct rp_queues *qs, struct message *msg, struct hold *h, uint64_t now_ns)
{
	struct consumer *c = msg->consumer;
	struct host *host = h->host;
	struct queue *q = msg->q;
	uint64_t idx = msg->idx;

	trace_last(qs, msg, RP_QUEUE_STEP_ACKED, 0, "", now_ns);
	c->acks++;
	dispatch_unbind(qs, msg);
	hold_done(qs, h, false);
	host_acked(host, idx);
	message_acked(qs, msg);
	queue_drained(qs, q, now_ns);
}

/* *last: the last output, taken where a requester waits for it. */
static struct settled settle_acked(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m,
	struct rte_mbuf **last, uint64_t from, uint64_t now_ns)
{
	struct message *msg = message_find(qs, q, m->idx, m->alloc_node);
	struct settled s = {.status = RP_Q_OK};
	struct consumer *c;

	/* What ends goes where its queue sends it, and is nobody's to acknowledge. */
	if (!msg || msg->state == MESSAGE_ENDING) {
		COUNT(qs, q, acks_unknown);
		return s;
	}
	if (!(m->flags & RP_QMSG_NO_HOLDER) && !message_is_held_by(msg, m->uuid)) {
		COUNT(qs, q, acks_refused);
		s.status = RP_Q_NOT_HOLDER;
		return s;
	}
	s.deleted = 1;
	s.alloc_node = msg->alloc_node;
	s.attempt = msg->attempt;
	s.mod_revision = msg->mod_revision;
	s.tail_length = msg->tail_length;
	c = msg->consumer;
	trace_last(qs, msg, RP_QUEUE_STEP_ACKED, 0, "", now_ns);
	if (c) {
		const struct rp_qmsg about = {
			.idx = msg->idx, .alloc_node = msg->alloc_node, .attempt = msg->attempt};

		c->acks++;
		dispatch_unbind(qs, msg);
		settle_tell_host(qs, q, c, &about, from, now_ns);
		consumer_tidy(qs, c, now_ns);
	} else if (msg->state == MESSAGE_DELAYED) {
		aside_remove(qs, msg);
	} else {
		waiting_remove(qs, msg);
	}
	if (m->flags & RP_QMSG_WANT_MESSAGE) {
		s.payload = payload_share(msg->payload);
		s.meta_length = msg->process.meta_length;
	}
	if (job_reply_to(msg).length > 0) {
		msg->job->last = *last;
		*last = NULL;
		message_end(qs, msg, RP_QUEUE_DEATH_COMPLETED, now_ns);
	} else {
		message_acked(qs, msg);
	}
	queue_drained(qs, q, now_ns);
	return s;
}

struct settled settle_ack(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m,
	uint64_t from, uint64_t now_ns)
{
	struct rte_mbuf *last = m->payload;
	struct settled s = settle_acked(qs, q, m, &last, from, now_ns);

	rte_pktmbuf_free(last);
	return s;
}

struct settled settle_get(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m)
{
	struct message *msg = message_find(qs, q, m->idx, m->alloc_node);
	struct settled s = {.status = RP_Q_OK};

	if (!msg || msg->state != MESSAGE_BOUND) {
		s.status = RP_Q_NOT_FOUND;
		return s;
	}
	if (!(m->flags & RP_QMSG_NO_HOLDER) && !message_is_held_by(msg, m->uuid)) {
		s.status = RP_Q_NOT_HOLDER;
		return s;
	}
	s.attempt = msg->attempt;
	s.mod_revision = msg->mod_revision;
	s.tail_length = msg->tail_length;
	s.meta_length = msg->process.meta_length;
	s.payload = payload_share(msg->payload);
	return s;
}

static struct settled settle_rejected(struct rp_queues *qs, struct queue *q,
	const struct rp_qmsg *m, uint64_t from, uint64_t now_ns)
{
	struct message *msg = message_find(qs, q, m->idx, m->alloc_node);
	struct settled s = {.status = RP_Q_OK};
	struct rp_qmsg about;
	struct consumer *c;

	if (!msg || msg->state != MESSAGE_BOUND) {
		s.status = RP_Q_NOT_FOUND;
		return s;
	}
	if (!(m->flags & RP_QMSG_NO_HOLDER) && !message_is_held_by(msg, m->uuid)) {
		COUNT(qs, q, acks_refused);
		s.status = RP_Q_NOT_HOLDER;
		return s;
	}
	about = (struct rp_qmsg){
		.idx = msg->idx, .alloc_node = msg->alloc_node, .attempt = msg->attempt};
	c = msg->consumer;
	trace_step(qs, msg, RP_QUEUE_STEP_REJECTED, c, now_ns);
	if (m->status == RP_Q_TOO_LARGE) {
		if (msg->process.kind == RP_PROCESS_REQUEST)
			job_fail(qs, msg, RP_QUEUE_DEATH_TOO_LARGE, now_ns);
		return s;
	}
	message_reject(qs, msg, c);
	/* Another one's outputs would come behind those that there are. */
	if (msg->process.flags & RP_PROCESS_BEGUN)
		job_fail(qs, msg, RP_QUEUE_DEATH_REJECTED, now_ns);
	else
		dispatch_release(qs, msg, now_ns);
	settle_tell_host(qs, q, c, &about, from, now_ns);
	consumer_tidy(qs, c, now_ns);
	return s;
}

struct settled settle_reject(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m,
	uint64_t from, uint64_t now_ns)
{
	struct settled s = {.status = RP_Q_OK};
	struct message *msg;
	struct consumer *c;

	if (m->status == RP_Q_REJECT || (m->status == RP_Q_TOO_LARGE && m->idx))
		return settle_rejected(qs, q, m, from, now_ns);
	if (m->idx == 0) {
		c = consumer_find(qs, q, m->uuid);
		if (c)
			c->waited = m->flags & RP_QMSG_WAITED;
		if (c)
			settle_leave(
				qs, c, from, m->mod_revision, !(m->flags & RP_QMSG_DOUBT), now_ns);
		return s;
	}
	msg = settle_find(qs, q, m);
	if (msg && msg->asked && msg->target == from) {
		asked_end(qs, msg);
		return s;
	}
	/* Accepted meanwhile: the client has it, whatever a late report says. */
	if (!msg || msg->accepted || msg->consumer->node != from ||
		msg->consumer->life != m->mod_revision)
		return s;
	COUNT(qs, q, returns);
	c = msg->consumer;
	dispatch_release(qs, msg, now_ns);
	consumer_tidy(qs, c, now_ns);
	return s;
}

/* It comes back, at `node`: it has all that is older. */
static void bound_resume(struct rp_queues *qs, struct consumer *c, uint64_t node,
	uint64_t start_revision, uint64_t now_ns)
{
	struct rp_list *n;

	if (c->q->own)
		dispatch_unsend(qs, c, now_ns);
	rp_list_foreach (n, &c->bound) {
		struct message *msg = rp_list_entry(n, struct message, link);

		if (msg->asked && msg->target == node)
			asked_end(qs, msg);
		if (msg->accepted && msg->mod_revision < start_revision)
			continue;
		if (c->node && c->node != node)
			asked_begin(qs, msg, c->node, now_ns);
		message_lost(qs, msg, now_ns);
	}
}

/*
 * A worker goes on elsewhere: its host there has to know what it holds, so that its outputs are
 * taken. Whether it has begun is not known for sure.
 */
static void bound_go_on(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	struct rp_list *n;

	rp_list_foreach (n, &c->bound) {
		struct message *msg = rp_list_entry(n, struct message, link);

		if (msg->process.kind != RP_PROCESS_REQUEST)
			continue;
		msg->process.flags |= RP_PROCESS_BEGUN;
		message_lost(qs, msg, now_ns);
	}
}

/*
 * It let go what it had from here. What it had from another dispatcher, which handed that over
 * meanwhile, it may have still: it is offered again, and shown as new if not.
 */
static void bound_let_go(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	struct rp_list *n = c->bound.prev;

	while (n != &c->bound) {
		struct message *msg = rp_list_entry(n, struct message, link);

		n = n->prev;
		if (!msg->kept) {
			job_release(qs, msg, true, now_ns);
			continue;
		}
		message_lost(qs, msg, now_ns);
		msg->seen = false;
		msg->mod_revision = 0;
		msg->attempt++;
	}
}

/* What was on its way to the life before may have been refused: it is sent to this one. */
static void bound_keep(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	struct rp_list *n;

	rp_list_foreach (n, &c->bound) {
		struct message *msg = rp_list_entry(n, struct message, link);

		if (!msg->took)
			message_lost(qs, msg, now_ns);
	}
}

void settle_resume(struct rp_queues *qs, struct queue *q, struct consumer *c, uint64_t node,
	uint64_t life, uint64_t start_revision, bool keeps, uint64_t now_ns)
{
	if (c->node == node && c->life == life) {
		c->away = false;
		consumer_unpause(qs, c);
		return;
	}
	if (start_revision > 0) {
		bound_resume(qs, c, node, start_revision, now_ns);
		if (c->node && c->node != node)
			bound_go_on(qs, c, now_ns);
	} else if (keeps) {
		bound_keep(qs, c, now_ns);
	} else {
		consumer_place(qs, c, 0, 0);
		if (q->own)
			bound_let_go(qs, c, now_ns);
		else
			dispatch_release_all(qs, c, true, now_ns);
	}
	consumer_place(qs, c, node, life);
	c->start_revision = start_revision;
	c->recorded = false;
	queue_work(qs, q);
}

static void consumer_replace(struct rp_queues *qs, struct consumer *c)
{
	if (c->host->open)
		qs->ops.consumer_ended(qs->ctx, c->host->handle, RP_QUEUE_END_REPLACED);
	host_free(qs, c->host);
}

void settle_said(struct rp_queues *qs, struct consumer *c, uint64_t node, const struct rp_qmsg *m,
	uint64_t now_ns)
{
	uint64_t life = m->token, start_revision = m->mod_revision;
	/* A new life for another dispatcher's sake, of the watch that is known here. */
	bool keeps = (m->flags & RP_QMSG_KEEPS) && c->life && c->life >= m->idx && node == c->node;
	uint64_t known = c->host ? c->host->life : c->life;
	bool gone = c->host ? !c->host->open : !c->life || c->away;

	if (node != c->node && !gone && life < known && c->record_node != node) {
		c->said_node = node;
		c->said_life = life;
		c->said_revision = start_revision;
		return;
	}
	c->said_node = 0;
	if (c->host)
		consumer_replace(qs, c);
	settle_resume(qs, c->q, c, node, life, start_revision, keeps, now_ns);
}

void settle_recorded(struct rp_queues *qs, struct consumer *c, uint64_t node, uint64_t now_ns)
{
	c->heard_node = node;
	if (c->host && !is_self(qs, node) && is_self(qs, c->record_node)) {
		/* Its record here was seen, so the other one is newer: it has moved. */
		consumer_replace(qs, c);
		consumer_place(qs, c, node, 0);
	}
	if (!c->host || is_self(qs, node))
		c->record_node = node;
	c->recorded = true;
	if (c->pause == PAUSE_DOUBT)
		consumer_unpause(qs, c);
	if (!c->host && c->said_node && c->said_node == node) {
		c->said_node = 0;
		settle_resume(qs, c->q, c, node, c->said_life, c->said_revision, false, now_ns);
	}
}

void settle_leave(struct rp_queues *qs, struct consumer *c, uint64_t node, uint64_t life,
	bool proven, uint64_t now_ns)
{
	if (c->node == node && c->life == life)
		consumer_gone(qs, c, proven, now_ns);
}

/*
 * Its client was shown it, or a former dispatcher bound it, so that it may have been: there, or
 * where it has gone to, which is known a little later. False: it is not so.
 */
static bool settle_kept(
	struct rp_queues *qs, struct message *m, enum rp_qstatus status, uint64_t now_ns)
{
	struct consumer *c = m->consumer;

	if (status != RP_Q_STALL && status != RP_Q_NO_CONSUMER)
		return false;
	/* It tells who dispatches now where it is, and not this node. */
	if (status == RP_Q_NO_CONSUMER && !c->q->own && c->record_node && c->record_node != c->node)
		consumer_place(qs, c, c->record_node, c->life);
	else if (!c->pause)
		consumer_pause(qs, c, status == RP_Q_STALL ? PAUSE_STALL : PAUSE_DOUBT, now_ns);
	message_lost(qs, m, now_ns);
	return true;
}

void settle_refused(
	struct rp_queues *qs, struct message *m, enum rp_qstatus status, uint64_t now_ns)
{
	struct consumer *c = m->consumer;

	/* Its client has it, by what was heard meanwhile. */
	if (m->accepted)
		status = RP_Q_DUPLICATE;
	if ((m->kept || m->seen) && settle_kept(qs, m, status, now_ns))
		return;
	switch (status) {
	case RP_Q_OK:
	case RP_Q_DUPLICATE:
		settle_took(qs, m, now_ns);
		return;
	case RP_Q_STALL:
	case RP_Q_LIMIT:
	case RP_Q_QUEUE_DEPTH:
	case RP_Q_QUEUE_BYTES:
	case RP_Q_QUEUE_BUFFERS:
		/* All that is on its way behind it comes back too; then offers begin again. */
		c->restart = true;
		if (!c->pause)
			consumer_pause(qs, c, PAUSE_STALL, now_ns);
		break;
	case RP_Q_NO_CONSUMER:
	case RP_Q_STOPPING:
		/* Until it says that it is there. */
		c->away = true;
		break;
	case RP_Q_DEADLINE:
		if (m->process.kind == RP_PROCESS_REQUEST) {
			job_fail(qs, m, RP_QUEUE_DEATH_DEADLINE, now_ns);
			return;
		}
		message_reject(qs, m, c);
		break;
	case RP_Q_TOO_LARGE:
	case RP_Q_EXISTS:
	case RP_Q_NOT_LIVE:
	case RP_Q_BUSY:
	case RP_Q_INCAPABLE:
	case RP_Q_REJECT:
	case RP_Q_INVALID:
	case RP_Q_NOT_HOLDER:
	case RP_Q_NOT_FOUND:
		message_reject(qs, m, c);
		break;
	case RP_Q_MOVED:
	case RP_Q_NO_DISPATCHER:
	case RP_Q_UNREACHABLE:
	case RP_Q_APART:
	case RP_QSTATUS_COUNT:
		if (!c->pause)
			consumer_pause(qs, c, PAUSE_STALL, now_ns);
		break;
	}
	COUNT(qs, m->q, returns);
	dispatch_release(qs, m, now_ns);
	consumer_update(qs, c);
	consumer_tidy(qs, c, now_ns);
}

void settle_timeout(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct consumer *c = m->consumer;
	struct rp_qmsg msg;

	rp_list_unlink(&m->timer);
	m->deadline_ns = now_ns + qs->config.accept_ns;
	rp_list_push_back(&qs->offers, &m->timer);
	if (asked_again(qs, m, now_ns))
		return;
	if (!m->timed_out) {
		m->timed_out = true;
		trace_step(qs, m, RP_QUEUE_STEP_LATE, c, now_ns);
		COUNT(qs, m->q, accept_timeouts);
	}
	if (c->pause == PAUSE_NONE || c->pause == PAUSE_RETRY || c->pause == PAUSE_STALL) {
		consumer_pause(qs, c, PAUSE_SUSPENDED, now_ns);
		c->probation = true;
	}
	/*
	 * It comes back when its node says that the client has not got it; never before. One that
	 * may not be sent there again is asked for, though it may never have arrived.
	 */
	if (!m->took && !consumer_is_apart(qs, c))
		return;
	msg = qmsg_for(m->q, RP_QMSG_WITHDRAW);
	msg.idx = m->idx;
	msg.alloc_node = m->alloc_node;
	msg.attempt = m->attempt;
	msg.status = RP_Q_STALL;
	msg.token = c->life;
	memcpy(msg.uuid, c->uuid, RP_UUID_BYTES);
	if (is_self(qs, c->node))
		host_recall(qs, m->q, &msg, qs->config.node, now_ns);
	else if (c->node)
		peer_send(qs, c->node, &msg, now_ns);
}
