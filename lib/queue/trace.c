/* SPDX-License-Identifier: Apache-2.0 */

/* Messages that are followed from step to step, because somebody asked for it. */

#include <stdlib.h>
#include <string.h>

#include "trace_priv.h"

/** Queues of one shard whose next messages are waited for. */
#define ARMED_MAX 16
/** Steps at the beginning that stay when there are too many. */
#define STEPS_KEPT (RP_QUEUE_TRACE_STEPS / 2)

struct trace {
	struct rp_queue_trace shown; /**< at_ns of its steps: by the clock */
	uint64_t message;	     /**< its id, 0 = it has ended */
	uint64_t since_ns;
	uint8_t name_length;
	uint8_t name[RP_NAME_BYTES_MAX];
};

struct armed {
	struct queue *q; /**< NULL: free */
	uint32_t left;
	uint64_t until_ns;
};

struct queue_traces {
	uint64_t serial_last;
	struct armed armed[ARMED_MAX];
	struct trace traces[RP_QUEUE_TRACES];
};

struct queue_traces *traces_new(void)
{
	return calloc(1, sizeof(struct queue_traces));
}

const char *rp_queue_step_word(enum rp_queue_step step)
{
	static const char *const words[] = {
#define X(name, word) word,
		RP_QUEUE_STEPS(X)
#undef X
	};

	return (unsigned)step < RP_ARRAY_SIZE(words) ? words[step] : "?";
}

static struct trace *trace_find(struct rp_queues *qs, const struct message *m)
{
	uint64_t id = slab_id(&qs->messages, m);

	for (unsigned i = 0; i < RP_QUEUE_TRACES; i++) {
		if (qs->traces->traces[i].message == id)
			return &qs->traces->traces[i];
	}
	return NULL;
}

static struct rp_queue_trace_step *step_new(struct rp_queue_trace *t)
{
	if (t->step_count < RP_QUEUE_TRACE_STEPS)
		return &t->steps[t->step_count++];
	memmove(&t->steps[STEPS_KEPT], &t->steps[STEPS_KEPT + 1],
		(RP_QUEUE_TRACE_STEPS - STEPS_KEPT - 1) * sizeof(t->steps[0]));
	t->omitted++;
	return &t->steps[RP_QUEUE_TRACE_STEPS - 1];
}

static struct rp_queue_trace_step *trace_put(
	struct rp_queue_trace *t, enum rp_queue_step step, uint32_t attempt, uint64_t now_ns)
{
	struct rp_queue_trace_step *s = step_new(t);

	*s = (struct rp_queue_trace_step){
		.at_ns = now_ns, .why = "", .attempt = attempt, .step = (uint8_t)step};
	return s;
}

static void put_consumer(struct rp_queue_trace *t, enum rp_queue_step step, const struct message *m,
	const struct consumer *c, uint64_t now_ns)
{
	struct rp_queue_trace_step *s = trace_put(t, step, m->attempt, now_ns);

	if (!c)
		return;
	s->node = c->node;
	memcpy(s->uuid, c->uuid, RP_UUID_BYTES);
}

void trace_add(struct rp_queues *qs, const struct message *m, enum rp_queue_step step,
	const struct consumer *c, uint64_t now_ns)
{
	struct trace *t = trace_find(qs, m);

	if (t)
		put_consumer(&t->shown, step, m, c, now_ns);
}

void trace_end(struct rp_queues *qs, struct message *m, enum rp_queue_step step, uint64_t node,
	const char *why, uint64_t now_ns)
{
	struct trace *t = trace_find(qs, m);
	struct rp_queue_trace_step *s;

	m->traced = false;
	if (!t)
		return;
	put_consumer(&t->shown, step, m, m->consumer, now_ns);
	s = &t->shown.steps[t->shown.step_count - 1];
	s->why = why;
	if (node)
		s->node = node;
	t->shown.ended = true;
	t->shown.age_ns = age_ns(t->since_ns, now_ns);
	t->message = 0;
}

void trace_gone(struct rp_queues *qs, struct message *m)
{
	const struct trace *t = trace_find(qs, m);
	uint64_t at_ns = t ? t->shown.steps[t->shown.step_count - 1].at_ns : 0;

	trace_end(qs, m, RP_QUEUE_STEP_GONE, 0, "", at_ns);
}

/* The one that ended first; where none has, the oldest. */
static struct trace *trace_oldest(struct rp_queues *qs)
{
	struct trace *best = &qs->traces->traces[0];

	for (unsigned i = 1; i < RP_QUEUE_TRACES; i++) {
		struct trace *t = &qs->traces->traces[i];

		if (best->message != 0 ? t->message == 0 || t->shown.serial < best->shown.serial
				       : t->message == 0 && t->shown.serial < best->shown.serial)
			best = t;
	}
	return best;
}

/* What the message's own fields tell of it. */
static void shown_fill(const struct rp_queues *qs, struct rp_queue_trace *t,
	const struct message *m, uint64_t now_ns)
{
	const struct consumer *c = m->consumer;

	*t = (struct rp_queue_trace){
		.idx = m->idx,
		.age_ns = age_ns(m->since_ns, now_ns),
		.bytes = m->bytes - m->tail_length - m->process.meta_length,
		.tail_length = m->tail_length,
	};
	memcpy(t->tail, rte_pktmbuf_mtod(m->payload, const uint8_t *), m->tail_length);
	trace_put(t, RP_QUEUE_STEP_PUT, 0, m->since_ns)->node =
		m->origin_node ? m->origin_node : qs->config.node;
	trace_put(t, RP_QUEUE_STEP_INDEXED, 0, m->indexed_ns)->node = m->alloc_node;
	if (!c)
		return;
	/* How it was bound before is not known. */
	t->omitted = m->attempt > 1;
	put_consumer(t, RP_QUEUE_STEP_OFFERED, m, c, m->bound_ns);
	if (m->accepted)
		put_consumer(t, RP_QUEUE_STEP_WRITTEN, m, c, m->accepted_ns);
}

static struct trace *trace_new(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct trace *t = trace_oldest(qs);
	struct message *old = t->message ? slab_find(&qs->messages, t->message) : NULL;

	if (old)
		old->traced = false;
	shown_fill(qs, &t->shown, m, now_ns);
	t->shown.serial = ++qs->traces->serial_last;
	t->message = slab_id(&qs->messages, m);
	t->since_ns = m->since_ns;
	t->name_length = (uint8_t)m->q->name_length;
	memcpy(t->name, m->q->name, m->q->name_length);
	m->traced = true;
	return t;
}

/* ---- the next of a queue ---- */

static struct armed *armed_find(struct rp_queues *qs, const struct queue *q)
{
	for (unsigned i = 0; i < ARMED_MAX; i++) {
		if (qs->traces->armed[i].q == q)
			return &qs->traces->armed[i];
	}
	return NULL;
}

void trace_disarm(struct rp_queues *qs, struct queue *q)
{
	struct armed *a = q->traced ? armed_find(qs, q) : NULL;

	q->traced = 0;
	if (a)
		*a = (struct armed){0};
}

void trace_begin(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct queue *q = m->q;
	struct armed *a = armed_find(qs, q);

	if (a && a->until_ns > now_ns && a->left > 0) {
		if (!m->traced)
			trace_new(qs, m, now_ns);
		a->left--;
	}
	if (!a || a->left == 0 || a->until_ns <= now_ns)
		trace_disarm(qs, q);
}

/* Those whose time is over make room. */
static void armed_tidy(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; i < ARMED_MAX; i++) {
		struct armed *a = &qs->traces->armed[i];

		if (a->q && a->until_ns <= now_ns)
			trace_disarm(qs, a->q);
	}
}

static struct queue *traced_find(const struct rp_queues *qs, struct rp_span name)
{
	return name.length && name.length <= RP_NAME_BYTES_MAX ? queue_find(qs, name) : NULL;
}

uint64_t rp_queue_trace_next(
	struct rp_queues *qs, struct rp_span name, uint32_t count, uint64_t for_ns, uint64_t now_ns)
{
	struct queue *q = traced_find(qs, name);
	struct armed *a;

	armed_tidy(qs, now_ns);
	a = q ? armed_find(qs, q) : NULL;
	if (q && !a)
		a = armed_find(qs, NULL);
	if (!a)
		return 0;
	*a = (struct armed){.q = q, .left = count, .until_ns = now_ns + for_ns};
	q->traced = 1;
	/* Serials begin at 1, so that 0 is none: what is above is what is begun from now on. */
	if (qs->traces->serial_last == 0)
		qs->traces->serial_last = 1;
	return qs->traces->serial_last;
}

/* ---- looking ---- */

static bool trace_is_of(const struct trace *t, struct rp_span name)
{
	return t->shown.serial != 0 && t->name_length == name.length &&
	       memcmp(t->name, name.data, name.length) == 0;
}

static void trace_show(const struct trace *t, struct rp_queue_trace *out, uint64_t now_ns)
{
	*out = t->shown;
	if (!out->ended)
		out->age_ns = age_ns(t->since_ns, now_ns);
	for (uint32_t i = 0; i < out->step_count; i++)
		out->steps[i].at_ns = age_ns(t->since_ns, out->steps[i].at_ns);
}

bool rp_queue_trace(struct rp_queues *qs, struct rp_span name, uint64_t idx,
	struct rp_queue_trace *out, uint64_t now_ns)
{
	struct queue *q = traced_find(qs, name);
	struct message *m = q ? message_find(qs, q, idx, 0) : NULL;
	const struct trace *best = NULL;

	if (m) {
		best = m->traced ? trace_find(qs, m) : NULL;
		if (!best)
			best = trace_new(qs, m, now_ns);
		trace_show(best, out, now_ns);
		return true;
	}
	for (unsigned i = 0; i < RP_QUEUE_TRACES; i++) {
		const struct trace *t = &qs->traces->traces[i];

		if (trace_is_of(t, name) && t->shown.idx == idx &&
			(!best || t->shown.serial > best->shown.serial))
			best = t;
	}
	if (best)
		trace_show(best, out, now_ns);
	return best != NULL;
}

uint32_t rp_queue_traces(struct rp_queues *qs, struct rp_span name, uint64_t above,
	struct rp_queue_trace *out, uint32_t max, uint64_t now_ns)
{
	uint32_t count = 0;

	while (count < max) {
		const struct trace *next = NULL;

		for (unsigned i = 0; i < RP_QUEUE_TRACES; i++) {
			const struct trace *t = &qs->traces->traces[i];

			if (trace_is_of(t, name) && t->shown.serial > above &&
				(!next || t->shown.serial < next->shown.serial))
				next = t;
		}
		if (!next)
			break;
		trace_show(next, &out[count++], now_ns);
		above = next->shown.serial;
	}
	return count;
}
