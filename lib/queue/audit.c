/* SPDX-License-Identifier: Apache-2.0 */

/* Every table against every other, for tests. */

#include "queue_priv.h"

#define HOLDS(cond)                   \
	do {                          \
		if (!(cond))          \
			return #cond; \
	} while (0)

struct audit {
	uint32_t messages, consumers, holds, hosts, producers, queues, indexed, own, handing, tails;
	uint32_t jobs, sessions, lanes;
	uint64_t bytes, foreign_buffers;
};

/* Whatever lies in a receive pool will be copied, and is counted until then. */
static bool audit_payload(const struct rp_queues *qs, const struct message *m, struct audit *a)
{
	bool listed = !rp_list_empty(&m->stay);

	if (listed)
		a->foreign_buffers += admit_buffers_of(qs, m->bytes);
	return listed || !foreign_lies(qs, m);
}

static const char *audit_lane(const struct rp_queues *qs, const struct queue *q, unsigned lane,
	struct audit *a, uint32_t *indexed, uint64_t *bytes)
{
	const struct rp_list *list = lane_at(q, lane), *n;
	const struct rp_list *scan = lane == 0 ? q->scan : q->more->lanes->scan[lane];
	bool scan_seen = scan == list;
	uint64_t idx = 0;

	rp_list_foreach (n, list) {
		const struct message *m = rp_list_entry(n, struct message, link);

		HOLDS(m->state == MESSAGE_WAITING && m->q == q && m->idx > idx && !m->consumer);
		HOLDS(m->payload && m->payload->pkt_len == m->bytes && audit_payload(qs, m, a));
		HOLDS(rp_list_empty(&m->timer) && m->answered);
		HOLDS(rp_wheel_armed(&m->due) == (m->expires_ns != RP_NEVER));
		HOLDS((unsigned)lane_class_of(m) * LANE_PRIORITIES + m->process.priority == lane);
		idx = m->idx;
		scan_seen |= scan == n;
		(*indexed)++;
		*bytes += m->bytes;
	}
	HOLDS(scan_seen);
	return NULL;
}

static const char *audit_waiting(const struct rp_queues *qs, const struct queue *q, struct audit *a,
	uint32_t *indexed, uint64_t *bytes)
{
	uint32_t plain = 0;

	for (unsigned i = 0; i < LANE_COUNT; i++) {
		const char *fault = lane_at(q, i) ? audit_lane(qs, q, i, a, indexed, bytes) : NULL;

		if (fault)
			return fault;
		plain = i == 0 ? *indexed : plain;
	}
	HOLDS(!(q->more && q->more->lanes) ||
		(q->more->lanes->count > 0 && q->more->lanes->count == *indexed - plain));
	a->lanes += q->more && q->more->lanes;
	a->messages += *indexed;
	return NULL;
}

/* Requests of the queue, and those that outputs are expected of. */
static const char *audit_processes(const struct queue *q, struct audit *a)
{
	const struct rp_list *n;
	uint32_t jobs = 0, sessions = 0;

	if (!q->more)
		return NULL;
	rp_list_foreach (n, &q->more->jobs) {
		const struct job *j = rp_list_entry(n, struct job, link);

		HOLDS(j->m->job == j && j->m->q == q && j->m->idx);
		HOLDS(!j->last || j->m->state == MESSAGE_ENDING);
		jobs++;
	}
	rp_list_foreach (n, &q->more->sessions) {
		const struct session *s = rp_list_entry(n, struct session, link);

		HOLDS(s->q == q && rp_wheel_armed(&s->due));
		HOLDS(rp_list_empty(&s->old) == !(s->ended && s->messages == 0));
		HOLDS(s->messages > 0 || s->bytes == 0 || s->native);
		sessions++;
	}
	HOLDS(jobs == q->more->job_count && sessions == q->more->session_count);
	a->jobs += jobs;
	a->sessions += sessions;
	return NULL;
}

static const char *audit_aside(const struct rp_queues *qs, const struct queue *q, struct audit *a,
	uint32_t *indexed, uint64_t *bytes)
{
	uint32_t delayed = 0, ending = 0;
	uint64_t ending_bytes = 0;
	const struct rp_list *n;

	if (!q->more)
		return NULL;
	rp_list_foreach (n, &q->more->delayed) {
		const struct message *m = rp_list_entry(n, struct message, link);

		HOLDS(m->state == MESSAGE_DELAYED && m->q == q && m->idx && !m->consumer);
		HOLDS(rp_wheel_armed(&m->due) && audit_payload(qs, m, a));
		delayed++;
		*bytes += m->bytes;
	}
	rp_list_foreach (n, &q->more->ending) {
		const struct message *m = rp_list_entry(n, struct message, link);

		HOLDS(m->state == MESSAGE_ENDING && m->q == q && m->idx && !m->consumer);
		HOLDS(rp_wheel_armed(&m->due) != m->letter_sent && audit_payload(qs, m, a));
		ending++;
		ending_bytes += m->bytes;
	}
	HOLDS(delayed == q->more->delayed_count && ending == q->more->ending_count);
	HOLDS(ending_bytes == q->more->ending_bytes);
	for (n = q->more->tails.next; n != &q->more->tails; n = n->next)
		a->tails++;
	a->messages += delayed + ending;
	*indexed += delayed + ending;
	*bytes += ending_bytes;
	return NULL;
}

static const char *audit_forwards(
	const struct rp_queues *qs, const struct queue *q, struct audit *a, uint64_t *bytes)
{
	const struct rp_list *n;
	uint32_t unsent = 0, sent = 0;
	uint64_t order = 0;

	rp_list_foreach (n, &q->sent) {
		const struct message *m = rp_list_entry(n, struct message, link);

		HOLDS(m->state == MESSAGE_SENT && m->idx == 0 && !m->payload && m->target);
		HOLDS(rp_list_empty(&m->stay));
		sent++;
		*bytes += m->bytes;
	}
	rp_list_foreach (n, &q->unsent) {
		const struct message *m = rp_list_entry(n, struct message, link);

		HOLDS(m->state == MESSAGE_UNSENT && m->idx == 0 && m->payload);
		HOLDS(audit_payload(qs, m, a));
		HOLDS(m->order > order);
		order = m->order;
		unsent++;
		*bytes += m->bytes;
	}
	HOLDS(unsent == q->unsent_count && sent == q->sent_count);
	a->messages += unsent + sent;
	return NULL;
}

static const char *audit_host(const struct consumer *c, struct audit *a)
{
	const struct rp_list *n;
	uint32_t held = 0;

	if (!c->host)
		return NULL;
	a->hosts++;
	HOLDS(c->host->c == c && c->host->handle);
	rp_list_foreach (n, &c->host->holds) {
		const struct hold *h = rp_list_entry(n, struct hold, link);

		HOLDS(h->host == c->host && !rp_list_empty(&h->at_node));
		a->holds++;
		held++;
	}
	HOLDS(held == c->host->hold_count);
	return NULL;
}

static const char *audit_consumer(const struct rp_queues *qs, const struct consumer *c,
	struct audit *a, uint32_t *in_flight, uint64_t *bytes)
{
	uint32_t bound = 0, unaccepted = 0, untook = 0, outputs = 0, jobs = 0;
	uint64_t output_bytes = 0;
	const struct rp_list *n;

	rp_list_foreach (n, &c->bound) {
		const struct message *m = rp_list_entry(n, struct message, link);

		HOLDS(m->state == MESSAGE_BOUND && m->consumer == c && m->idx && m->payload);
		HOLDS(audit_payload(qs, m, a));
		HOLDS(message_find(qs, c->q, m->idx, m->alloc_node) == m);
		HOLDS(m->accepted == rp_list_empty(&m->timer));
		HOLDS(!m->asked || (m->lost && !m->accepted && m->target));
		HOLDS(!m->lost || c->resend);
		HOLDS(rp_wheel_armed(&m->due) == (lane_class_of(m) == LANE_JOB));
		jobs += lane_class_of(m) == LANE_JOB;
		outputs += lane_class_of(m) == LANE_OUTPUT;
		output_bytes += lane_class_of(m) == LANE_OUTPUT ? m->bytes : 0;
		bound++;
		unaccepted += !m->accepted;
		untook += !m->took;
		*bytes += m->bytes;
	}
	HOLDS(bound - outputs == c->outstanding && unaccepted == c->unaccepted);
	HOLDS(untook == c->untook && jobs == c->jobs && output_bytes == c->output_bytes);
	HOLDS(bound - outputs <= c->prefetch || !c->is_ready);
	HOLDS(!c->is_ready || (c->q->own && c->life && !c->pause));
	HOLDS(c->host || c->life || c->record_node || bound);
	HOLDS(!c->node == rp_list_empty(&c->at_node));
	a->messages += bound;
	a->consumers++;
	*in_flight += bound;
	return audit_host(c, a);
}

static const char *audit_queue(const struct rp_queues *qs, const struct queue *q, struct audit *a)
{
	const struct rp_queue_counters k = queue_counters(q);
	uint32_t depth = 0, in_flight = 0;
	const char *fault;
	struct rp_list *n;
	uint64_t bytes = 0;

	fault = audit_waiting(qs, q, a, &depth, &bytes);
	if (!fault)
		fault = audit_processes(q, a);
	if (!fault)
		fault = audit_aside(qs, q, a, &depth, &bytes);
	if (!fault)
		fault = audit_forwards(qs, q, a, &bytes);
	if (fault)
		return fault;
	rp_list_foreach (n, &q->consumers) {
		fault = audit_consumer(
			qs, rp_list_entry(n, struct consumer, link), a, &in_flight, &bytes);
		if (fault)
			return fault;
	}
	for (const struct producer *p = q->producers; p; p = p->next)
		a->producers++;
	depth += in_flight;
	HOLDS(depth == q->depth && in_flight == q->in_flight && bytes == q->bytes);
	HOLDS(k.indexed == counters_gone(&k) + q->depth);
	HOLDS(!q->own || q->dispatcher == qs->config.node);
	HOLDS(q->own || !lanes_any(q));
	a->bytes += bytes;
	a->indexed += depth;
	a->queues++;
	a->own += q->own;
	a->handing += q->handing;
	return NULL;
}

#define FATE_IN +
#define FATE_DELIVERED -
#define FATE_PASSED -
#define FATE_REASON -

/* What came is delivered, passed on, refused for a reason, or here. */
static bool nothing_is_lost(const struct rp_queues *qs)
{
	const struct rp_queue_counters *k = &qs->counters;
	uint64_t here = 0
#define X(counter, fate, severity) FATE_##fate k->counter
#include <stats/message_fate.def>
		;

	return here == qs->messages.used - qs->handing;
}

const char *rp_queue_audit(const struct rp_queues *qs)
{
	struct audit a = {0};

	for (uint32_t i = 0; i <= qs->queue_mask; i++) {
		for (const struct queue *q = qs->queue_table[i]; q; q = q->hash_next) {
			const char *fault = audit_queue(qs, q, &a);

			if (fault)
				return fault;
		}
	}
	HOLDS(nothing_is_lost(qs));
	HOLDS(a.messages == qs->messages.used && a.consumers == qs->consumers.used);
	HOLDS(a.holds == qs->holds.used && a.hosts == qs->hosts.used);
	HOLDS(a.producers == qs->producers_slab.used && a.queues == qs->queues.used);
	HOLDS(a.bytes == qs->bytes && a.foreign_buffers == qs->foreign_buffers);
	HOLDS(a.tails == qs->seen_slab.used && a.tails == qs->tail_wheel.count);
	HOLDS(a.own == qs->own_count && a.handing == qs->handing);
	HOLDS(a.jobs == qs->jobs.used && a.sessions == qs->sessions.used);
	HOLDS(a.sessions == qs->session_wheel.count && a.lanes == qs->lanes.used);
	return NULL;
}
