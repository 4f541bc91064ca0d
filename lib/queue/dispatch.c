/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The dispatcher's choice: oldest undelivered first, each bound before it leaves; fewest
 * outstanding among the consumers that match and have room, a local one before a remote one
 * (spec/queues.md, "Dispatch").
 */

#include <errno.h>
#include <string.h>

#include "trace_priv.h"

/* A consumer's client may have so many requests' worth of outputs on their way to it. */
#define OUTPUT_CREDITS 16

/* ---- consumers: who is ready ---- */

static bool consumer_is_able(struct rp_queues *qs, const struct consumer *c)
{
	const struct peer *p;

	/* Outputs of requests are beyond the prefetch. */
	bool full = c->outstanding >= c->prefetch && !(c->q->more && c->q->more->session_count > 0);

	if (!c->q->own || !c->life || c->away || c->pause || c->resend || full ||
		(c->probation && c->unaccepted > 0))
		return false;
	/* After a stall everything that was on its way has come back before offers begin again. */
	if (c->restart && c->untook > 0)
		return false;
	if (is_self(qs, c->node))
		return c->host && c->host->open;
	if (c->record_node != c->node || consumer_is_apart(qs, c))
		return false;
	p = peer_find(qs, c->node);
	return p && !p->lost;
}

void consumer_update(struct rp_queues *qs, struct consumer *c)
{
	bool able = consumer_is_able(qs, c);

	if (able == c->is_ready)
		return;
	c->is_ready = able;
	if (!able) {
		rp_list_unlink(&c->ready);
		return;
	}
	rp_list_push_back(&c->q->ready, &c->ready);
	/* What stands at the head may be for this one. */
	lanes_rescan(c->q);
	queue_work(qs, c->q);
}

void consumer_pause(
	struct rp_queues *qs, struct consumer *c, enum consumer_pause why, uint64_t now_ns)
{
	struct peer *p = peer_find(qs, c->node);
	struct rp_list *list = NULL;

	c->is_ready = false;
	rp_list_unlink(&c->ready);
	c->pause = (uint8_t)why;
	switch (why) {
	case PAUSE_NONE:
		break;
	case PAUSE_RETRY:
		c->pause_until_ns = now_ns + qs->config.retry_ns;
		list = &qs->retry;
		break;
	case PAUSE_STALL:
		c->pause_until_ns = now_ns + STALL_RETRY_NS;
		list = &qs->stalled;
		break;
	case PAUSE_SUSPENDED:
		c->pause_until_ns = now_ns + qs->config.accept_ns;
		list = &qs->suspended;
		break;
	case PAUSE_DOUBT:
		c->pause_until_ns = now_ns + qs->config.resume_ns;
		list = &qs->doubted;
		break;
	case PAUSE_PATH:
		list = p ? &p->blocked : NULL;
		break;
	}
	if (list)
		rp_list_push_back(list, &c->ready);
}

void consumer_unpause(struct rp_queues *qs, struct consumer *c)
{
	if (c->pause) {
		rp_list_unlink(&c->ready);
		c->pause = PAUSE_NONE;
	}
	if (c->resend) {
		c->q->resend = true;
		queue_work(qs, c->q);
	}
	consumer_update(qs, c);
}

void consumer_place(struct rp_queues *qs, struct consumer *c, uint64_t node, uint64_t life)
{
	struct peer *p = peer_get(qs, node);

	if (c->pause) {
		rp_list_unlink(&c->ready);
		c->pause = PAUSE_NONE;
	}
	c->away = c->probation = c->restart = false;
	rp_list_unlink(&c->at_node);
	c->node = p ? node : 0;
	c->life = p ? life : 0;
	if (p)
		rp_list_push_back(&p->consumers, &c->at_node);
	if (c->resend) {
		c->q->resend = true;
		queue_work(qs, c->q);
	}
	consumer_update(qs, c);
}

void consumer_tidy(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	bool known = c->record_node && !consumer_is_apart(qs, c);

	if (!c->host && !c->life && !known && rp_list_empty(&c->bound))
		consumer_free(qs, c, now_ns);
}

bool consumer_wants(const struct consumer *c, const struct message *m)
{
	if (c->max_bytes && m->bytes - m->tail_length - m->process.meta_length > c->max_bytes)
		return false;
	if (m->process.kind == RP_PROCESS_REQUEST && !job_is_met(m, c))
		return false;
	if (c->match_length > m->tail_length ||
		(c->match_length && memcmp(rte_pktmbuf_mtod(m->payload, const uint8_t *), c->match,
					    c->match_length) != 0))
		return false;
	return true;
}

static bool consumer_matches(const struct consumer *c, const struct message *m)
{
	if (!consumer_wants(c, m))
		return false;
	for (const struct rejection *r = m->rejections; r; r = r->next) {
		if (memcmp(r->uuid, c->uuid, RP_UUID_BYTES) == 0)
			return false;
	}
	return true;
}

/* One of these more, beside what it has. */
static bool consumer_has_room(
	const struct rp_queues *qs, const struct consumer *c, const struct message *m)
{
	switch (lane_class_of(m)) {
	case LANE_OUTPUT:
		return c->output_bytes == 0 ||
		       c->output_bytes + m->bytes <=
			       OUTPUT_CREDITS * (uint64_t)qs->config.output_credit;
	case LANE_JOB:
		return c->jobs < c->jobs_max && c->outstanding < c->prefetch;
	case LANE_PLAIN:
	case LANE_CLASSES:
		break;
	}
	return c->outstanding < c->prefetch;
}

/* *room: somebody could have taken it, had it been for him. */
static struct consumer *dispatch_choose(
	struct rp_queues *qs, struct queue *q, const struct message *m, bool *room)
{
	struct consumer *best = NULL;
	bool best_local = false;
	struct rp_list *n;

	*room = false;
	rp_list_foreach (n, &q->ready) {
		struct consumer *c = rp_list_entry(n, struct consumer, ready);
		bool local = is_self(qs, c->node);

		if (!consumer_has_room(qs, c, m))
			continue;
		*room = true;
		if (best && (c->outstanding > best->outstanding ||
				    (c->outstanding == best->outstanding && local <= best_local)))
			continue;
		if (!consumer_matches(c, m))
			continue;
		best = c;
		best_local = local;
		if (local && c->outstanding == 0)
			break;
	}
	return best;
}

/* ---- binding ---- */

void dispatch_return(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct rp_list *last = m->q->waiting.prev;
	struct queue *q = m->q;

	policy_place(qs, m, now_ns);
	if (q->move && q->waiting.prev != last)
		q->move->behind = q->waiting.prev;
	queue_work(qs, q);
}

void consumer_take(struct consumer *c, const struct message *m)
{
	if (lane_class_of(m) == LANE_OUTPUT) {
		c->output_bytes += m->bytes;
		return;
	}
	c->outstanding++;
	c->jobs += lane_class_of(m) == LANE_JOB;
}

/* What it had no room for may stand before what was offered since. */
static void consumer_give(struct rp_queues *qs, struct consumer *c, const struct message *m)
{
	enum lane_class class = lane_class_of(m);

	if (class == LANE_OUTPUT) {
		c->output_bytes -= m->bytes;
	} else {
		c->outstanding--;
		c->jobs -= class == LANE_JOB;
	}
	if (c->q->more && (c->q->more->lanes || c->q->more->session_count > 0)) {
		lanes_rescan(c->q);
		queue_work(qs, c->q);
	}
}

static void dispatch_bind(
	struct rp_queues *qs, struct message *m, struct consumer *c, uint64_t now_ns)
{
	/* One that is new and goes on at once has not waited. */
	if (!rp_list_empty(&m->link))
		waiting_remove(qs, m);
	m->state = MESSAGE_BOUND;
	m->consumer = c;
	m->attempt++;
	m->bound_ns = now_ns;
	m->deadline_ns = now_ns + qs->config.accept_ns;
	m->took = m->accepted = m->timed_out = m->lost = m->seen = false;
	m->mod_revision = 0;
	rp_list_push_back(&c->bound, &m->link);
	rp_list_push_back(&qs->offers, &m->timer);
	consumer_take(c, m);
	c->unaccepted++;
	c->untook++;
	m->q->in_flight++;
	job_arm_bound(qs, m, now_ns);
}

void dispatch_unbind(struct rp_queues *qs, struct message *m)
{
	struct consumer *c = m->consumer;

	RP_ASSERT(m->state == MESSAGE_BOUND);
	rp_list_unlink(&m->link);
	rp_list_unlink(&m->timer);
	rp_wheel_del(&qs->wheel, &m->due);
	consumer_give(qs, c, m);
	if (!m->accepted) {
		c->unaccepted--;
		asked_end(qs, m);
	}
	if (!m->took)
		c->untook--;
	m->q->in_flight--;
	m->consumer = NULL;
	m->took = m->accepted = m->lost = m->seen = m->kept = false;
	/* What comes back of an earlier sending is not this one's. */
	m->sends++;
	/* It has become no less ready by that. */
	if (!c->is_ready)
		consumer_update(qs, c);
}

/* Back to the state before dispatch_bind(): nothing has left. */
static void dispatch_bind_undo(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	dispatch_unbind(qs, m);
	m->attempt--;
	waiting_insert(qs, m);
	policy_arm(qs, m, now_ns);
}

void dispatch_release(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct queue *q = m->q;

	m->unseen += !m->accepted && !m->seen;
	trace_step(qs, m, RP_QUEUE_STEP_RETURNED, m->consumer, now_ns);
	dispatch_unbind(qs, m);
	if (q->own)
		policy_place(qs, m, now_ns);
	else
		forward_hand_over(qs, m, now_ns);
	queue_work(qs, q);
}

void dispatch_unsend(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	struct rp_list *n = c->bound.prev;

	if (!c->restart && !c->away)
		return;
	while (n != &c->bound) {
		struct message *m = rp_list_entry(n, struct message, link);

		n = n->prev;
		/* What was lost or seen before may be with the client. */
		if (m->took || m->accepted || m->lost || m->seen)
			continue;
		m->unseen++;
		trace_step(qs, m, RP_QUEUE_STEP_RETURNED, c, now_ns);
		dispatch_unbind(qs, m);
		dispatch_return(qs, m, now_ns);
	}
}

void dispatch_release_all(struct rp_queues *qs, struct consumer *c, bool proven, uint64_t now_ns)
{
	/* From the last one on: each goes before the others, so that none is searched for. */
	if (c->q->own) {
		while (!rp_list_empty(&c->bound))
			job_release(qs, rp_list_entry(c->bound.prev, struct message, link), proven,
				now_ns);
		return;
	}
	while (!rp_list_empty(&c->bound))
		job_release(qs, rp_list_entry(c->bound.next, struct message, link), proven, now_ns);
}

/* ---- offering ---- */

static uint64_t message_cookie(struct rp_queues *qs, const struct message *m)
{
	return slab_id(&qs->messages, m) | (uint64_t)m->sends << 48;
}

static int offer_local(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct consumer *c = m->consumer;
	struct offer o = {
		.from = qs->config.node,
		.idx = m->idx,
		.alloc_node = m->alloc_node,
		.life = c->life,
		.mod_revision = m->seen ? m->mod_revision : 0,
		.attempt = m->attempt,
		.tail_length = m->tail_length,
		.process = process_for(m, now_ns),
		.begins = true,
		.payload = payload_share(m->payload),
	};
	enum rp_qstatus status;

	status = host_take(qs, c, &o, now_ns);
	if (status != RP_Q_OK)
		rte_pktmbuf_free(o.payload);
	if (status != RP_Q_OK && status != RP_Q_DUPLICATE)
		return -EAGAIN;
	if (!m->took) {
		m->took = true;
		c->untook--;
	}
	return 0;
}

static int offer_remote(struct rp_queues *qs, struct message *m, bool again, uint64_t now_ns)
{
	struct consumer *c = m->consumer;
	struct rp_qmsg msg = qmsg_for(m->q, RP_QMSG_DELIVER);
	int error;

	m->sends++;
	msg.flags = (c->restart ? RP_QMSG_RESUMES : 0) | (again ? RP_QMSG_REPEAT : 0);
	msg.idx = m->idx;
	msg.alloc_node = m->alloc_node;
	memcpy(msg.uuid, c->uuid, RP_UUID_BYTES);
	msg.token = c->life;
	msg.mod_revision = m->seen ? m->mod_revision : 0;
	msg.attempt = m->attempt;
	msg.tail_length = m->tail_length;
	msg.process = process_for(m, now_ns);
	msg.cookie = message_cookie(qs, m);
	msg.payload = payload_share(m->payload);
	error = peer_send(qs, c->node, &msg, now_ns);
	if (error) {
		rte_pktmbuf_free(msg.payload);
		return error;
	}
	c->restart = false;
	return 0;
}

/* What to do about a consumer that could not be sent to. */
static void offer_failed(struct rp_queues *qs, struct message *m, int error, uint64_t now_ns)
{
	struct consumer *c = m->consumer;

	if (error == -ENOBUFS || error == -ENETUNREACH)
		consumer_pause(qs, c, PAUSE_PATH, now_ns);
	else if (error == -EMSGSIZE || error == -EINVAL)
		/* It would be refused again each time: not for this consumer. */
		message_reject(qs, m, c);
	else
		consumer_pause(qs, c, PAUSE_RETRY, now_ns);
}

void message_reject(struct rp_queues *qs, struct message *m, const struct consumer *c)
{
	struct rejection *r = slab_get(&qs->rejections);

	COUNT(qs, m->q, rejects);
	if (!r)
		return;
	memcpy(r->uuid, c->uuid, RP_UUID_BYTES);
	r->next = m->rejections;
	m->rejections = r;
}

static void dispatch_offer(
	struct rp_queues *qs, struct message *m, struct consumer *c, uint64_t now_ns)
{
	bool local = is_self(qs, c->node);
	struct queue *q = m->q;
	int error;

	dispatch_bind(qs, m, c, now_ns);
	error = local ? offer_local(qs, m, now_ns) : offer_remote(qs, m, false, now_ns);
	if (error) {
		offer_failed(qs, m, error, now_ns);
		dispatch_bind_undo(qs, m, now_ns);
		return;
	}
	c->offers++;
	trace_step(qs, m, RP_QUEUE_STEP_OFFERED, c, now_ns);
	if (local)
		COUNT(qs, q, deliveries_local);
	else
		COUNT(qs, q, deliveries_remote);
	if (m->attempt > 1)
		COUNT(qs, q, redeliveries);
	if (c->outstanding >= c->prefetch || c->probation || c->restart)
		consumer_update(qs, c);
	/* Behind the others with as many outstanding. */
	if (c->is_ready && c->ready.next != &q->ready) {
		rp_list_unlink(&c->ready);
		rp_list_push_back(&q->ready, &c->ready);
	}
}

/* What the consumer holds and may not have got, in order; false when it cannot be sent to. */
static bool consumer_send_again(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	struct rp_list *n, *next;

	rp_list_foreach_safe (n, next, &c->bound) {
		struct message *m = rp_list_entry(n, struct message, link);
		int error;

		if (!m->lost)
			continue;
		if (m->asked)
			return false;
		error = is_self(qs, c->node) ? offer_local(qs, m, now_ns)
					     : offer_remote(qs, m, true, now_ns);
		if (error) {
			offer_failed(qs, m, error, now_ns);
			if (c->pause)
				return false;
			dispatch_release(qs, m, now_ns);
			continue;
		}
		m->lost = false;
		trace_step(qs, m, RP_QUEUE_STEP_SENT_AGAIN, c, now_ns);
		COUNT(qs, m->q, resends);
		if (host_read_it(qs, m))
			output_read(qs, m, now_ns);
	}
	c->resend = false;
	consumer_update(qs, c);
	return true;
}

static void dispatch_resend(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct rp_list *n, *next;

	q->resend = false;
	rp_list_foreach_safe (n, next, &q->consumers) {
		struct consumer *c = rp_list_entry(n, struct consumer, link);

		if (c->resend && !c->pause && !c->away && c->life && !consumer_is_apart(qs, c))
			consumer_send_again(qs, c, now_ns);
	}
}

bool dispatch_pump(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	unsigned budget = POLL_BUDGET;
	bool closed[LANE_CLASSES] = {false};
	struct message *m;

	if (q->resend)
		dispatch_resend(qs, q, now_ns);
	/* While it changes its dispatcher, nothing new is bound. */
	if (q->move && (q->move->from || q->move->to))
		return false;
	while (!rp_list_empty(&q->ready) && (m = lanes_next(q, closed, now_ns))) {
		struct consumer *c;
		bool room;

		if (budget-- == 0)
			return true;
		if (m->expires_ns <= now_ns || job_is_over(m, now_ns)) {
			waiting_remove(qs, m);
			message_end(qs, m, death_by_age(m), now_ns);
			continue;
		}
		c = dispatch_choose(qs, q, m, &room);
		if (c) {
			/* Unbound again when it cannot leave: then the scan stands at it still. */
			dispatch_offer(qs, m, c, now_ns);
			continue;
		}
		if (!room) {
			closed[lane_class_of(m)] = true;
			continue;
		}
		if (message_dies_rejected(qs, m)) {
			waiting_remove(qs, m);
			message_end(qs, m, RP_QUEUE_DEATH_REJECTED, now_ns);
			continue;
		}
		if (m->rejections && !m->all_rejected) {
			m->all_rejected = true;
			COUNT(qs, q, rejected_by_all);
		}
		lanes_skip(m);
	}
	return false;
}

/* ---- taking in ---- */

/*
 * Nothing waits that a new message would have to wait for, and no policy has a say: who takes it
 * gets it at once. NULL: nobody, or it is not so.
 */
static struct consumer *dispatch_straight(
	struct rp_queues *qs, struct queue *q, const struct message *m)
{
	bool room;

	if (m->process.kind != RP_PROCESS_PLAIN || rp_list_empty(&q->ready) || lanes_any(q) ||
		q->resend || (q->move && (q->move->from || q->move->to)) || policy_of(qs, q))
		return NULL;
	return dispatch_choose(qs, q, m, &room);
}

uint64_t dispatch_index(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	uint64_t id = slab_id(&qs->messages, m), idx;
	struct queue *q = m->q;
	struct consumer *c;

	RP_ASSERT(q->own && rp_list_empty(&m->link) && m->idx == 0);
	if (q->sequence == RP_SEQUENCE_MAX)
		queue_claim(qs, q, now_ns);
	m->idx = rp_route_idx_pack(q->epoch, ++q->sequence);
	m->alloc_node = qs->config.node;
	message_unhand(qs, m, true);
	idx = m->idx;
	message_indexed(qs, m, now_ns);
	trace_indexed(qs, m, now_ns);
	COUNT(qs, q, indexed);
	policy_begin(qs, m, now_ns);
	dedup_add(qs, m, now_ns);
	c = m->attempt == 0 ? dispatch_straight(qs, q, m) : NULL;
	if (c)
		dispatch_offer(qs, m, c, now_ns);
	else
		policy_place(qs, m, now_ns);
	/* Where it is with somebody, nothing else has become possible. */
	if (!c || m->state != MESSAGE_BOUND)
		dispatch_pump(qs, q, now_ns);
	queue_work(qs, q);
	m = slab_find(&qs->messages, id);
	if (!m)
		return idx;
	if (m->state == MESSAGE_WAITING)
		COUNT(qs, q, held);
	foreign_check(qs, m, now_ns);
	return idx;
}
