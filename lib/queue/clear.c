/* SPDX-License-Identifier: Apache-2.0 */

/* What an operator does to the messages of a queue: looks, removes, sends dead letters back. */

#include <string.h>

#include "trace_priv.h"

static struct queue *cleared_find(const struct rp_queues *qs, struct rp_span name)
{
	return name.length && name.length <= RP_NAME_BYTES_MAX ? queue_find(qs, name) : NULL;
}

static void clear_answer(struct rp_queues *qs, uint64_t token, enum rp_qstatus s, uint32_t count)
{
	const struct rp_queue_answer answer = {.status = s, .deleted = count};

	qs->ops.answer(qs->ctx, token, &answer);
}

void rp_queue_clear(struct rp_queues *qs, uint64_t token, struct rp_span name,
	enum rp_queue_clearing what, uint32_t max, uint64_t now_ns)
{
	struct queue *q = cleared_find(qs, name);
	struct queue_more *more = q && q->own ? queue_more(qs, q) : NULL;

	if (!q || (!q->own && (!q->dispatcher || is_self(qs, q->dispatcher)))) {
		clear_answer(qs, token, RP_Q_OK, 0);
		return;
	}
	if (!more || more->clearing) {
		clear_answer(qs, token, more ? RP_Q_STALL : RP_Q_NOT_HOLDER, 0);
		return;
	}
	more->clearing = true;
	more->replays = what == RP_QUEUE_REPLAY;
	more->clear_token = token;
	more->clear_until = rp_route_idx_pack(q->epoch, q->sequence);
	more->clear_left = max ? max : UINT32_MAX;
	more->clear_count = 0;
	more->clear_round++;
	queue_touch(qs, q, now_ns);
	queue_work(qs, q);
}

/*
 * The first that nobody holds, of what was there when it was asked for; but for one that came back,
 * since it could not be replayed.
 */
static struct message *clear_first(const struct queue *q, const struct rp_list *list)
{
	const struct rp_list *n;

	if (!list)
		return NULL;
	rp_list_foreach (n, list) {
		struct message *m = rp_list_entry(n, struct message, link);

		if (m->idx > q->more->clear_until)
			break;
		if (m->clear_round != q->more->clear_round)
			return m;
	}
	return NULL;
}

static struct message *clear_next(const struct queue *q)
{
	struct message *best = NULL;

	for (unsigned i = 0; i < LANE_COUNT; i++) {
		struct message *m = clear_first(q, lane_at(q, i));

		if (m && (!best || m->idx < best->idx))
			best = m;
	}
	return best ? best : clear_first(q, &q->more->delayed);
}

static void clear_one(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct queue *q = m->q;

	if (m->state == MESSAGE_WAITING)
		waiting_remove(qs, m);
	else
		aside_remove(qs, m);
	if (q->more->replays) {
		message_end(qs, m, RP_QUEUE_DEATH_REPLAYED, now_ns);
		return;
	}
	if (job_reply_to(m).length > 0) {
		message_end(qs, m, RP_QUEUE_DEATH_CANCELLED, now_ns);
		return;
	}
	COUNT(qs, q, purged);
	trace_last(qs, m, RP_QUEUE_STEP_PURGED, 0, "", now_ns);
	message_unindexed(qs, m);
	message_free(qs, m);
}

bool clear_step(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct queue_more *more = q->more;
	struct message *m;

	if (!more || !more->clearing)
		return false;
	for (unsigned budget = POLL_BUDGET; more->clear_left > 0 && (m = clear_next(q)); budget--) {
		if (budget == 0)
			return true;
		m->clear_round = more->clear_round;
		more->clear_left--;
		more->clear_count++;
		clear_one(qs, m, now_ns);
	}
	more->clearing = false;
	clear_answer(qs, more->clear_token, RP_Q_OK, more->clear_count);
	return false;
}

/* ---- looking ---- */

struct look {
	struct rp_queue_message_info *out;
	uint32_t skip, max, count;
	uint64_t now_ns;
};

static bool look_at(struct look *l, const struct message *m, const char *state)
{
	struct rp_queue_message_info *x = &l->out[l->count];

	if (l->skip > 0) {
		l->skip--;
		return true;
	}
	*x = (struct rp_queue_message_info){
		.idx = m->idx,
		.age_ns = age_ns(m->since_ns, l->now_ns),
		.ends_in_ns = RP_NEVER,
		.attempt = m->attempt,
		.state = state,
		.tail_length = m->tail_length,
		.meta_length = m->process.meta_length,
		.process = m->process,
		.payload = m->payload,
	};
	if (m->process.kind == RP_PROCESS_REQUEST)
		x->left_us = rp_process_left_us(m->process.left_us, m->process.left_ns, l->now_ns);
	if (m->consumer) {
		x->node = m->consumer->node;
		memcpy(x->uuid, m->consumer->uuid, RP_UUID_BYTES);
	} else if (m->expires_ns != RP_NEVER && m->state != MESSAGE_ENDING) {
		x->ends_in_ns = m->expires_ns > l->now_ns ? m->expires_ns - l->now_ns : 0;
	}
	return ++l->count < l->max;
}

static bool look_through(struct look *l, const struct rp_list *list, const char *state)
{
	const struct rp_list *n;

	rp_list_foreach (n, list) {
		if (!look_at(l, rp_list_entry(n, struct message, link), state))
			return false;
	}
	return true;
}

uint32_t rp_queue_messages(const struct rp_queues *qs, struct rp_span name, uint32_t skip,
	struct rp_queue_message_info *out, uint32_t max, uint64_t now_ns)
{
	const struct queue *q = cleared_find(qs, name);
	struct look l = {.out = out, .skip = skip, .max = max, .now_ns = now_ns};
	const struct rp_list *n;

	if (!q || max == 0 || skip > RP_QUEUE_MESSAGES_REACH)
		return 0;
	for (unsigned i = 0; i < LANE_COUNT; i++) {
		const struct rp_list *lane = lane_at(q, i);

		if (lane && !look_through(&l, lane, "waiting"))
			return l.count;
	}
	if (q->more && (!look_through(&l, &q->more->delayed, "delayed") ||
			       !look_through(&l, &q->more->ending, "ending")))
		return l.count;
	rp_list_foreach (n, &q->consumers) {
		if (!look_through(&l, &rp_list_entry(n, struct consumer, link)->bound, "held"))
			break;
	}
	return l.count;
}
