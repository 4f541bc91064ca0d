/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The consumer's host: shows offers to its clients, each with a revision of its own sequence, keeps
 * what they hold, and tells the dispatcher what became of it.
 */

#include <errno.h>
#include <string.h>

#include "queue_priv.h"

/* So many are told at once of what became of a consumer. */
#define FORMERS_MAX 8

static struct host **handle_bucket(const struct rp_queues *qs, uint64_t handle)
{
	return &qs->handle_table[(handle * 0x9e3779b97f4a7c15ull >> 32) & qs->handle_mask];
}

struct host *host_find(const struct rp_queues *qs, uint64_t handle)
{
	struct host *h = *handle_bucket(qs, handle);

	while (h && h->handle != handle)
		h = h->handle_next;
	return h;
}

static void host_unlink(struct rp_queues *qs, struct host *h)
{
	struct host **at = handle_bucket(qs, h->handle);

	while (*at != h)
		at = &(*at)->handle_next;
	*at = h->handle_next;
}

static uint64_t host_next_revision(struct rp_queues *qs, struct host *h, uint64_t now_ns)
{
	h->last_revision = RP_MAX(h->last_revision + 1, wall_us(qs, now_ns));
	return h->last_revision;
}

/* ---- deliveries that are over ---- */

struct done *done_slot(struct host *h, uint64_t idx)
{
	/* Sequences of all epochs begin alike. */
	return &h->done[(idx * 0x9e3779b97f4a7c15ull >> 32) % DONE_SLOTS];
}

void hold_done(struct rp_queues *qs, struct hold *h, bool fenced)
{
	*done_slot(h->host, h->idx) =
		(struct done){.idx = h->idx, .alloc_node = h->alloc_node, .fenced = fenced};
	/* Acknowledged by what its client knew from before: it need not be shown again. */
	if (!h->accepted && !fenced && h->host->open)
		qs->ops.recall(qs->ctx, h->host->handle, h->idx);
	hold_forget(qs, h);
}

void host_settled(struct host *h, uint64_t idx, uint64_t alloc_node)
{
	*done_slot(h, idx) = (struct done){.idx = idx, .alloc_node = alloc_node};
}

void host_acked(struct host *h, uint64_t idx)
{
	struct done *d = done_slot(h, idx);

	if (d->idx == idx)
		d->acked = true;
}

static uint16_t node_digest(uint64_t node)
{
	return (uint16_t)(node * 0x9e3779b97f4a7c15ull >> 48);
}

/* That dispatcher may give it to others: what is still on its way from there is not shown. */
static void host_returned(struct host *h, const struct rp_qmsg *m, uint64_t from)
{
	*done_slot(h, m->idx) = (struct done){
		.idx = m->idx,
		.alloc_node = m->alloc_node,
		.attempt = m->attempt,
		.from = node_digest(from),
		.returned = true,
	};
}

bool host_was_fenced(struct host *h, uint64_t idx)
{
	const struct done *d = done_slot(h, idx);

	return d->idx == idx && d->fenced;
}

void hold_withdraw(struct rp_queues *qs, struct hold *h, uint64_t now_ns)
{
	struct host *host = h->host;

	if (!host->open)
		return;
	COUNT(qs, host->c->q, withdrawals);
	qs->ops.withdraw(
		qs->ctx, host->handle, h->idx, hold_tail(h), host_next_revision(qs, host, now_ns));
}

/* ---- reports to the dispatcher ---- */

static void peer_reports_due(struct rp_queues *qs, uint64_t node)
{
	struct peer *p = peer_find(qs, node);

	if (p)
		p->reports_due = true;
}

static struct rp_qmsg hold_msg(const struct hold *h, enum rp_qmsg_type type)
{
	const struct consumer *c = h->host->c;
	struct rp_qmsg msg = qmsg_for(c->q, type);

	msg.idx = h->idx;
	msg.alloc_node = h->alloc_node;
	msg.attempt = h->attempt;
	memcpy(msg.uuid, c->uuid, RP_UUID_BYTES);
	return msg;
}

/* Its client has an output of a request, which is all that there is to it. */
static void hold_read(struct rp_queues *qs, struct hold *h)
{
	struct host *host = h->host;
	uint64_t idx = h->idx;

	if (!h->output)
		return;
	hold_done(qs, h, false);
	host_has_read(host, idx);
}

void hold_report(struct rp_queues *qs, struct hold *h, uint64_t now_ns)
{
	struct queue *q = h->host->c->q;
	bool returned = h->returned;
	struct rp_qmsg msg;

	h->report = false;
	if (is_self(qs, h->from) && !returned) {
		settle_accept_here(qs, h, now_ns);
		hold_read(qs, h);
		return;
	}
	msg = hold_msg(h, returned ? RP_QMSG_REJECTED : RP_QMSG_ACCEPTED);
	msg.status = returned ? RP_Q_STALL : RP_Q_OK;
	msg.mod_revision = returned ? h->host->life : h->mod_revision;
	msg.flags = h->begun && !returned ? RP_QMSG_BEGUN : 0;
	if (is_self(qs, h->from)) {
		hold_forget(qs, h);
		settle_reject(qs, q, &msg, qs->config.node, now_ns);
		return;
	}
	if (peer_send(qs, h->from, &msg, now_ns) < 0) {
		h->report = true;
		peer_reports_due(qs, h->from);
	} else if (returned) {
		hold_forget(qs, h);
	} else {
		hold_read(qs, h);
	}
}

/* What that dispatcher still counts as held here belongs to a life that is over. */
void host_new_life(struct rp_queues *qs, struct host *h, uint64_t now_ns)
{
	h->life = RP_MAX(h->life + 1, wall_us(qs, now_ns));
	h->start_revision = 0;
	if (is_self(qs, h->c->node))
		h->c->life = h->life;
}

void host_resume(struct rp_queues *qs, struct host *h, uint64_t now_ns)
{
	struct queue *q = h->c->q;
	/* It is not told yet that what it delivered was taken back. */
	bool lets_go = q->dispatcher == h->fenced_node;
	struct rp_qmsg msg;

	h->resume_due = false;
	if (!q->dispatcher || is_self(qs, q->dispatcher))
		return;
	/* It dispatches again: what it offers from now on is meant for another life. */
	if (q->dispatcher == h->barred_node && h->life == h->barred_life) {
		host_new_life(qs, h, now_ns);
		lets_go = true;
	}
	msg = qmsg_for(q, RP_QMSG_RESUME);
	memcpy(msg.uuid, h->c->uuid, RP_UUID_BYTES);
	msg.token = h->life;
	msg.idx = h->watch_life;
	msg.mod_revision = h->start_revision;
	msg.flags = h->start_revision ? RP_QMSG_RESUMES : lets_go ? 0 : RP_QMSG_KEEPS;
	if (peer_send(qs, q->dispatcher, &msg, now_ns) < 0) {
		h->resume_due = true;
		peer_reports_due(qs, q->dispatcher);
	}
}

/* There is room again at a consumer that a dispatcher elsewhere was refused for. */
static void host_tell_room(struct rp_queues *qs, struct host *h, uint64_t now_ns)
{
	struct queue *q = h->c->q;
	struct rp_qmsg msg;

	h->room_due = false;
	if (!q->dispatcher || is_self(qs, q->dispatcher))
		return;
	msg = qmsg_for(q, RP_QMSG_ACCEPTED);
	memcpy(msg.uuid, h->c->uuid, RP_UUID_BYTES);
	if (peer_send(qs, q->dispatcher, &msg, now_ns) < 0) {
		h->room_due = true;
		peer_reports_due(qs, q->dispatcher);
	}
}

void host_reports(struct rp_queues *qs, struct peer *p, uint64_t now_ns)
{
	struct rp_list *n, *next, *cn;

	if (!p->reports_due)
		return;
	p->reports_due = false;
	host_fence_lifted(qs, p, now_ns);
	rp_list_foreach_safe (n, next, &p->holds) {
		struct hold *h = rp_list_entry(n, struct hold, at_node);

		if (p->reports_due)
			return;
		if (h->report)
			hold_report(qs, h, now_ns);
	}
	rp_list_foreach (n, &p->queues) {
		struct queue *q = rp_list_entry(n, struct queue, at_node);

		rp_list_foreach (cn, &q->consumers) {
			struct host *h = rp_list_entry(cn, struct consumer, link)->host;

			if (p->reports_due)
				return;
			if (h && h->resume_due && h->open)
				host_resume(qs, h, now_ns);
			if (h && h->room_due && h->open)
				host_tell_room(qs, h, now_ns);
		}
	}
}

/* ---- a delivery comes ---- */

bool host_has(struct rp_queues *qs, struct host *h, const struct offer *o)
{
	const struct hold *hold = hold_find(qs, h, o->idx);
	const struct done *d = done_slot(h, o->idx);

	return (hold && hold->alloc_node == o->alloc_node) ||
	       (d->idx == o->idx && d->alloc_node == o->alloc_node && !d->fenced && !d->returned);
}

/* Another node dispatches it by now. */
static bool hold_move(struct rp_queues *qs, struct hold *hold, uint64_t to)
{
	struct peer *p = peer_get(qs, to);

	if (!p)
		return false;
	hold->from = to;
	rp_list_unlink(&hold->at_node);
	rp_list_push_back(&p->holds, &hold->at_node);
	return true;
}

static uint64_t left_of(const struct offer *o, uint64_t now_ns)
{
	return rp_process_left_us(o->process.left_us, o->process.left_ns, now_ns);
}

static struct rp_queue_delivery delivery_of(const struct offer *o, uint64_t now_ns)
{
	struct rp_queue_delivery d = {
		.idx = o->idx,
		.attempt = o->attempt,
		.tail_length = o->tail_length,
		.process = o->process,
		.payload = o->payload,
	};

	if (d.process.kind) {
		d.process.left_us = left_of(o, now_ns);
		d.process.left_ns = now_ns;
	}
	return d;
}

/* Its worker may put outputs here from now on. */
static bool host_learn_job(
	struct rp_queues *qs, struct host *h, const struct offer *o, uint64_t now_ns)
{
	struct rp_queue_delivery d = delivery_of(o, now_ns);

	return qs->ops.job_here(qs->ctx, h->handle, &d) == 0;
}

/* The client has it, or had it: RP_Q_DUPLICATE; else what stands against it, or RP_Q_OK. */
static enum rp_qstatus host_check(
	struct rp_queues *qs, struct host *h, const struct offer *o, uint64_t now_ns)
{
	struct hold *hold = hold_find(qs, h, o->idx);
	struct done *d = done_slot(h, o->idx);

	/* Two dispatchers gave the same index: their keys would be the same. One after the other.
	 */
	if (hold && hold->alloc_node != o->alloc_node)
		return RP_Q_STALL;
	/* Its new dispatcher does not know yet what was taken back from it: first that. */
	if (hold && hold->from != o->from && h->life != o->life)
		return RP_Q_STALL;
	if (hold) {
		hold->attempt = o->attempt;
		if (hold->from != o->from && !hold_move(qs, hold, o->from))
			return RP_Q_LIMIT;
		if (hold->accepted)
			hold_report(qs, hold, now_ns);
		return RP_Q_DUPLICATE;
	}
	if (d->idx == o->idx && d->alloc_node == o->alloc_node && d->returned) {
		if (o->attempt <= d->attempt && d->from == node_digest(o->from))
			return RP_Q_STALL;
	} else if (d->idx == o->idx && d->alloc_node == o->alloc_node && !d->fenced) {
		return RP_Q_DUPLICATE;
	}
	/* Its client resumed behind it, so it has it; only who dispatches is news. */
	if (o->mod_revision && o->mod_revision < h->start_revision) {
		hold = hold_new(qs, h, o, o->mod_revision);
		if (!hold)
			return RP_Q_STALL;
		hold->accepted = true;
		if (hold->request && !host_learn_job(qs, h, o, now_ns)) {
			hold_forget(qs, hold);
			return RP_Q_STALL;
		}
		hold_report(qs, hold, now_ns);
		return RP_Q_DUPLICATE;
	}
	/* What its client had before the watch ended is still the consumer's; nothing new is. */
	if (!h->open || h->life != o->life)
		return RP_Q_NO_CONSUMER;
	/* It is about to be told that what it counts as held here is not, this one as well. */
	if ((h->fenced_node == o->from && !h->fenced_anew) ||
		(h->barred_node == o->from && h->barred_life == o->life))
		return RP_Q_NO_CONSUMER;
	if (h->stalled && !o->begins)
		return RP_Q_STALL;
	if (o->process.kind == RP_PROCESS_REQUEST && left_of(o, now_ns) == 0)
		return RP_Q_DEADLINE;
	/* Offered anew after it was taken back: it may be acknowledged again. */
	if (d->idx == o->idx)
		d->idx = 0;
	return RP_Q_OK;
}

enum rp_qstatus host_take(
	struct rp_queues *qs, struct consumer *c, const struct offer *o, uint64_t now_ns)
{
	struct host *h = c->host;
	struct rp_queue_delivery d;
	enum rp_qstatus status;
	uint64_t last;
	struct hold *hold;

	if (!h)
		return RP_Q_NO_CONSUMER;
	status = host_check(qs, h, o, now_ns);
	if (status == RP_Q_DUPLICATE)
		host_had(qs, h, o, now_ns);
	if (status != RP_Q_OK)
		return status;
	last = h->last_revision;
	d = delivery_of(o, now_ns);
	d.mod_revision = o->mod_revision ? o->mod_revision : host_next_revision(qs, h, now_ns);
	hold = hold_new(qs, h, o, d.mod_revision);
	if (!hold || qs->ops.deliver(qs->ctx, h->handle, &d) < 0) {
		if (hold)
			hold_forget(qs, hold);
		h->last_revision = last;
		h->stalled = true;
		return RP_Q_STALL;
	}
	h->stalled = false;
	c->offers += !is_self(qs, o->from);
	h->last_revision = RP_MAX(h->last_revision, d.mod_revision);
	return RP_Q_OK;
}

/* Its client has settled it with another dispatcher, of whose copy this is one. */
static void host_is_done(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m, bool acked,
	uint64_t from, uint64_t now_ns)
{
	struct rp_qmsg msg = qmsg_for(q, acked ? RP_QMSG_QACK : RP_QMSG_REJECTED);

	msg.idx = m->idx;
	msg.alloc_node = m->alloc_node;
	msg.status = acked ? RP_Q_OK : RP_Q_REJECT;
	memcpy(msg.uuid, m->uuid, RP_UUID_BYTES);
	if (!is_self(qs, from))
		peer_send(qs, from, &msg, now_ns);
	else if (acked)
		settle_ack(qs, q, &msg, from, now_ns);
	else
		settle_reject(qs, q, &msg, from, now_ns);
}

/*
 * It has it from another dispatcher, of whom the asker has it by now, and may not send it here
 * again. Not accepted: it asks again.
 */
static void host_tell_has(struct rp_queues *qs, struct hold *hold, const struct rp_qmsg *m,
	uint64_t from, uint64_t now_ns)
{
	struct rp_qmsg msg = hold_msg(hold, RP_QMSG_ACCEPTED);

	/* Else it does not know yet what was taken back from it. */
	if (hold->host->life == m->token)
		hold_move(qs, hold, from);
	if (!hold->accepted)
		return;
	msg.attempt = m->attempt;
	msg.mod_revision = hold->mod_revision;
	if (is_self(qs, from))
		settle_accept(qs, hold->host->c->q, &msg, from, now_ns);
	else
		peer_send(qs, from, &msg, now_ns);
}

void host_recall(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m, uint64_t from,
	uint64_t now_ns)
{
	struct consumer *c = consumer_find(qs, q, m->uuid);
	struct hold *hold = c && c->host ? hold_find(qs, c->host, m->idx) : NULL;
	const struct done *done;
	struct rp_qmsg msg;

	if (hold && hold->alloc_node == m->alloc_node && hold->from != from) {
		host_tell_has(qs, hold, m, from, now_ns);
		return;
	}
	if (hold && hold->alloc_node == m->alloc_node) {
		hold->attempt = m->attempt;
		if (hold->accepted || hold->returned) {
			hold_report(qs, hold, now_ns);
		} else if (c->host->open) {
			qs->ops.recall(qs->ctx, c->host->handle, m->idx);
		} else {
			/* The watch ended before it was written. */
			hold->returned = true;
			hold_report(qs, hold, now_ns);
		}
		return;
	}
	done = c && c->host ? done_slot(c->host, m->idx) : NULL;
	if (done && done->idx == m->idx && done->alloc_node == m->alloc_node && !done->fenced &&
		!done->returned) {
		host_is_done(qs, q, m, done->acked, from, now_ns);
		return;
	}
	if (done)
		host_returned(c->host, m, from);
	msg = qmsg_for(q, RP_QMSG_REJECTED);
	msg.idx = m->idx;
	msg.alloc_node = m->alloc_node;
	msg.attempt = m->attempt;
	msg.status = RP_Q_STALL;
	msg.mod_revision = m->token;
	memcpy(msg.uuid, m->uuid, RP_UUID_BYTES);
	if (is_self(qs, from))
		settle_reject(qs, q, &msg, from, now_ns);
	else
		peer_send(qs, from, &msg, now_ns);
}

/* ---- the consumer's life ---- */

/* Forgets what a new watch has to be sent again, or, in a new life, everything. */
static void host_forget(struct rp_queues *qs, struct host *h, uint64_t start_revision)
{
	struct rp_list *n, *next;

	rp_list_foreach_safe (n, next, &h->holds) {
		struct hold *hold = rp_list_entry(n, struct hold, link);

		if (!start_revision || !hold->accepted || hold->mod_revision >= start_revision)
			hold_forget(qs, hold);
	}
}

void host_free(struct rp_queues *qs, struct host *h)
{
	host_forget(qs, h, 0);
	host_unlink(qs, h);
	rp_list_unlink(&h->timer);
	h->c->host = NULL;
	/* That it is elsewhere may have been heard before it was believed. */
	h->c->record_node = is_self(qs, h->c->heard_node) ? 0 : h->c->heard_node;
	consumer_update(qs, h->c);
	h->c = NULL;
	h->fenced_node = 0;
	slab_put(&qs->hosts, h);
}

/* Former dispatchers, on other nodes, whose deliveries its client holds; how many. */
static unsigned host_formers(
	const struct rp_queues *qs, const struct host *h, uint64_t formers[FORMERS_MAX])
{
	const struct rp_list *n;
	unsigned count = 0;

	rp_list_foreach (n, &h->holds) {
		uint64_t from = rp_list_entry(n, struct hold, link)->from;
		bool known = from == h->c->q->dispatcher || is_self(qs, from);

		for (unsigned i = 0; i < count && !known; i++)
			known = formers[i] == from;
		if (!known && count < FORMERS_MAX)
			formers[count++] = from;
	}
	return count;
}

/* That a worker has begun is known before that it has left. False: it cannot be said now. */
static bool host_tell_begun(struct rp_queues *qs, struct host *h, uint64_t now_ns)
{
	struct rp_list *n, *next;
	bool told = true;

	rp_list_foreach_safe (n, next, &h->holds) {
		struct hold *hold = rp_list_entry(n, struct hold, link);

		if (!hold->begun || !hold->report)
			continue;
		hold_report(qs, hold, now_ns);
		told &= !hold->report;
	}
	return told;
}

static uint8_t host_leave_flags(struct rp_queues *qs, struct host *h, uint64_t now_ns)
{
	return (uint8_t)((h->c->waited ? RP_QMSG_WAITED : 0) |
			 (host_tell_begun(qs, h, now_ns) ? 0 : RP_QMSG_DOUBT));
}

void host_leave(struct rp_queues *qs, struct host *h, uint64_t now_ns)
{
	uint64_t formers[FORMERS_MAX], life = h->life;
	unsigned count = host_formers(qs, h, formers);
	struct consumer *c = h->c;
	struct queue *q = c->q;
	uint8_t flags = host_leave_flags(qs, h, now_ns);

	for (unsigned i = 0; i < count; i++)
		notice_left(qs, q, formers[i], c->uuid, life, flags, now_ns);
	host_free(qs, h);
	/* Sooner than its record's end. */
	if (q->dispatcher && !is_self(qs, q->dispatcher))
		notice_left(qs, q, q->dispatcher, c->uuid, life, flags, now_ns);
	if (is_self(qs, c->node))
		settle_leave(qs, c, c->node, c->life, !(flags & RP_QMSG_DOUBT), now_ns);
	else
		consumer_tidy(qs, c, now_ns);
}

void host_end(struct rp_queues *qs, struct host *h, bool waited, uint64_t now_ns)
{
	qs->ops.consumer_here(qs->ctx, queue_name(h->c->q), h->c->uuid, false);
	h->c->waited = waited;
	host_leave(qs, h, now_ns);
}

/* What its client had of a former dispatcher is let go, or asked for again: nobody else tells it.
 */
static void host_tell_formers(struct rp_queues *qs, const struct host *h, const uint64_t *formers,
	unsigned count, uint64_t was_life, bool told, uint64_t now_ns)
{
	for (unsigned i = 0; i < count; i++) {
		if (h->start_revision)
			notice_resumed(qs, h, formers[i], now_ns);
		else
			notice_left(qs, h->c->q, formers[i], h->c->uuid, was_life,
				told ? 0 : RP_QMSG_DOUBT, now_ns);
	}
}

static struct host *host_open(struct rp_queues *qs, struct consumer *c,
	const struct rp_queue_consumer *open, uint64_t now_ns)
{
	struct host *h = c->host, **bucket;
	uint64_t formers[FORMERS_MAX], was_life = h ? h->life : 0;
	unsigned count = h ? host_formers(qs, h, formers) : 0;
	bool told = true;

	if (h) {
		if (h->open)
			qs->ops.consumer_ended(qs->ctx, h->handle, RP_QUEUE_END_REPLACED);
		host_unlink(qs, h);
		rp_list_unlink(&h->timer);
		told = host_tell_begun(qs, h, now_ns);
		host_forget(qs, h, open->start_revision);
	} else {
		h = slab_get(&qs->hosts);
		if (!h)
			return NULL;
		rp_list_init(&h->timer);
		rp_list_init(&h->holds);
		h->c = c;
		c->host = h;
	}
	h->handle = open->handle;
	c->waited = false;
	h->open = true;
	h->stalled = false;
	h->life = RP_MAX(h->life + 1, wall_us(qs, now_ns));
	h->start_revision = open->start_revision;
	h->watch_life = h->life;
	if (open->start_revision)
		h->last_revision = RP_MAX(h->last_revision, open->start_revision - 1);
	bucket = handle_bucket(qs, h->handle);
	h->handle_next = *bucket;
	*bucket = h;
	c->record_node = 0;
	host_tell_formers(qs, h, formers, count, was_life, told, now_ns);
	return h;
}

void rp_queue_consumer_open(
	struct rp_queues *qs, const struct rp_queue_consumer *consumer, uint64_t now_ns)
{
	struct rp_queue_answer answer = {.status = RP_Q_LIMIT};
	struct queue *q = queue_get(qs, consumer->name, now_ns);
	struct consumer *c = q ? consumer_get(qs, q, consumer->uuid) : NULL;
	struct rp_consumer_record fields;
	struct host *h;

	rp_route_consumer_parse(&fields, consumer->fields.data, consumer->fields.length);
	if (!c || consumer_set_fields(qs, c, &fields, now_ns) < 0 ||
		!(h = host_open(qs, c, consumer, now_ns))) {
		if (c)
			consumer_tidy(qs, c, now_ns);
		qs->ops.answer(qs->ctx, consumer->handle, &answer);
		return;
	}
	answer.status = RP_Q_OK;
	answer.mod_revision =
		h->start_revision ? h->start_revision - 1 : host_next_revision(qs, h, now_ns);
	qs->ops.answer(qs->ctx, consumer->handle, &answer);
	qs->ops.consumer_here(qs->ctx, queue_name(q), c->uuid, true);
	settle_resume(qs, q, c, qs->config.node, h->life, h->start_revision, false, now_ns);
	move_keep(qs, q);
	queue_dispatch(qs, q, RP_CLAIM_CONSUMER, now_ns);
	host_resume(qs, h, now_ns);
	queue_work(qs, q);
}

void rp_queue_consumer_close(
	struct rp_queues *qs, uint64_t handle, enum rp_queue_close how, uint64_t now_ns)
{
	struct host *h = host_find(qs, handle);

	if (!h || !h->open)
		return;
	h->open = false;
	consumer_update(qs, h->c);
	switch (how) {
	case RP_QUEUE_CLOSE_ENDED:
		h->deadline_ns = now_ns + qs->config.resume_ns;
		rp_list_push_back(&qs->resuming, &h->timer);
		break;
	case RP_QUEUE_CLOSE_LEFT:
		host_end(qs, h, false, now_ns);
		break;
	case RP_QUEUE_CLOSE_SERVER:
		break;
	}
}

void hold_accepted(struct rp_queues *qs, struct hold *h, uint64_t now_ns)
{
	h->accepted = true;
	h->returned = false;
	hold_report(qs, h, now_ns);
}

void rp_queue_consumer_accepted(
	struct rp_queues *qs, uint64_t handle, uint64_t idx, uint64_t now_ns)
{
	struct host *h = host_find(qs, handle);
	struct hold *hold = h ? hold_find(qs, h, idx) : NULL;

	if (hold && !hold->accepted)
		hold_accepted(qs, hold, now_ns);
}

void rp_queue_consumer_returned(
	struct rp_queues *qs, uint64_t handle, uint64_t idx, uint64_t now_ns)
{
	struct host *h = host_find(qs, handle);
	struct hold *hold = h ? hold_find(qs, h, idx) : NULL;

	if (!hold || hold->accepted)
		return;
	hold->returned = true;
	hold_report(qs, hold, now_ns);
}

void rp_queue_consumer_room(struct rp_queues *qs, uint64_t handle, uint64_t now_ns)
{
	struct host *h = host_find(qs, handle);

	if (!h)
		return;
	if (h->c->pause == PAUSE_RETRY)
		consumer_unpause(qs, h->c);
	if (h->stalled)
		host_tell_room(qs, h, now_ns);
}
