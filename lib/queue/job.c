/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Process requests at the dispatcher of their queue, which alone decides how each ends, and sees
 * that its requester is told before it is forgotten here (spec/queues.md, "Process requests").
 */

#include <string.h>

#include <process/meta.h>

#include <base/fnv.h>

#include "queue_priv.h"

/* ---- what they are ---- */

struct rp_meta message_meta(const struct message *m)
{
	struct rp_span bytes = {
		rte_pktmbuf_mtod_offset(m->payload, const uint8_t *, m->tail_length),
		m->process.meta_length};
	struct rp_meta meta = {0};

	if (m->process.meta_length == 0 || !rp_meta_read(&meta, bytes))
		meta = (struct rp_meta){0};
	return meta;
}

static struct rp_span tail_of(const struct message *m)
{
	return (struct rp_span){rte_pktmbuf_mtod(m->payload, const uint8_t *), m->tail_length};
}

struct rp_span job_reply_to(const struct message *m)
{
	if (m->process.kind != RP_PROCESS_REQUEST || !(m->process.flags & RP_PROCESS_REPLY))
		return (struct rp_span){0};
	return message_meta(m).reply_to;
}

uint64_t job_ends_ns(const struct message *m)
{
	return m->process.left_ns + m->process.left_us * RP_NS_PER_US;
}

bool job_is_over(const struct message *m, uint64_t now_ns)
{
	return m->process.kind == RP_PROCESS_REQUEST &&
	       rp_process_left_us(m->process.left_us, m->process.left_ns, now_ns) == 0;
}

struct rp_qmsg_process process_for(const struct message *m, uint64_t now_ns)
{
	struct rp_qmsg_process p = m->process;

	if (p.kind == RP_PROCESS_PLAIN)
		return (struct rp_qmsg_process){0};
	p.left_us = rp_process_left_us(p.left_us, p.left_ns, now_ns);
	p.left_ns = now_ns;
	return p;
}

bool process_look(
	const struct rp_qmsg_process *p, const struct rte_mbuf *payload, uint16_t tail_length)
{
	struct rp_meta meta;
	struct rp_span bytes;

	if (tail_length + p->meta_length > payload->data_len ||
		p->priority > RP_PROCESS_PRIORITY_MAX || p->left_us > RP_PROCESS_LEFT_US_MAX)
		return false;
	if (p->kind == RP_PROCESS_PLAIN)
		return p->meta_length == 0;
	bytes = (struct rp_span){
		rte_pktmbuf_mtod_offset(payload, const uint8_t *, tail_length), p->meta_length};
	if (p->meta_length > 0 && !rp_meta_read(&meta, bytes))
		return false;
	if (p->kind == RP_PROCESS_REQUEST && (p->flags & RP_PROCESS_REPLY))
		return p->meta_length > 0 && meta.reply_to.length > 0;
	return p->request != 0;
}

bool job_is_met(const struct message *m, const struct consumer *c)
{
	struct rp_meta meta = message_meta(m);

	return rp_meta_is_met(&meta, (struct rp_span){c->cap, c->cap_length});
}

static bool is_there(const struct consumer *c)
{
	return c->host || c->life || c->record_node;
}

bool job_fails_fast(struct rp_queues *qs, struct queue *q, const struct rp_qmsg_process *p,
	const struct rte_mbuf *payload, uint16_t tail_length)
{
	struct message m = {
		.process = *p, .payload = (struct rte_mbuf *)payload, .tail_length = tail_length};
	struct rp_list *n;

	if (p->kind != RP_PROCESS_REQUEST || !(p->flags & RP_PROCESS_FAIL_FAST))
		return false;
	rp_list_foreach (n, &q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);

		if (is_there(c) && job_is_met(&m, c))
			return false;
	}
	return true;
}

/* ---- the table, by queue and tail ---- */

static struct job **job_bucket(
	const struct rp_queues *qs, const struct queue *q, uint32_t tail_hash)
{
	uint64_t h = (tail_hash ^ (uint64_t)q->hash << 32) * 0x9e3779b97f4a7c15ull;

	return &qs->job_table[(h >> 32) & qs->job_mask];
}

static uint32_t tail_hash_of(const struct message *m)
{
	struct rp_span tail = tail_of(m);

	return rp_queue_hash(tail.data, tail.length);
}

static void look_later(
	struct rp_queues *qs, struct queue_more *more, uint64_t in_ns, uint64_t now_ns)
{
	rp_wheel_del(&qs->look_wheel, &more->look);
	rp_wheel_advance(&qs->look_wheel, now_ns);
	rp_wheel_add(&qs->look_wheel, &more->look, now_ns + in_ns);
}

/* It needs something that nobody has, as far as is known here. */
static bool job_is_alone(const struct message *m)
{
	struct rp_list *n;

	if (message_meta(m).need_count == 0)
		return false;
	rp_list_foreach (n, &m->q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);

		if (is_there(c) && consumer_wants(c, m))
			return false;
	}
	return true;
}

void job_begin(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct queue_more *more;
	struct job **bucket;

	if (m->process.kind != RP_PROCESS_REQUEST)
		return;
	more = queue_more(qs, m->q);
	m->job = slab_get(&qs->jobs); /* as many as messages */
	RP_ASSERT(m->job != NULL);
	m->job->m = m;
	rp_list_init(&m->job->link);
	rp_list_push_back(&more->jobs, &m->job->link);
	more->job_count++;
	bucket = job_bucket(qs, m->q, tail_hash_of(m));
	m->job->hash_next = *bucket;
	*bucket = m->job;
	/* Somebody had what it needs when it was let in. */
	if (!rp_wheel_armed(&more->look) && job_is_alone(m))
		look_later(qs, more, qs->config.resume_ns, now_ns);
}

void job_free(struct rp_queues *qs, struct message *m)
{
	struct job *job = m->job, **at;

	if (!job)
		return;
	at = job_bucket(qs, m->q, tail_hash_of(m));
	while (*at != job)
		at = &(*at)->hash_next;
	*at = job->hash_next;
	rp_list_unlink(&job->link);
	m->q->more->job_count--;
	rte_pktmbuf_free(job->last);
	slab_put(&qs->jobs, job);
	m->job = NULL;
}

/* ---- how they end ---- */

/* Its host shows a DELETE event, now or when it can be told, and refuses what its worker says. */
static void job_withdraw(struct rp_queues *qs, struct queue *q, struct consumer *c,
	const struct rp_qmsg *about, uint64_t now_ns)
{
	struct hold *h;

	if (!c->node)
		return;
	if (!is_self(qs, c->node)) {
		notice_send_to(qs, q, c->node, about, now_ns);
		return;
	}
	h = c->host ? hold_find(qs, c->host, about->idx) : NULL;
	if (!h || h->alloc_node != about->alloc_node)
		return;
	hold_withdraw(qs, h, now_ns);
	hold_done(qs, h, true);
}

/* An indexed message is taken off whatever list it is on. */
static void job_take(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct rp_qmsg about = {.idx = m->idx,
		.alloc_node = m->alloc_node,
		.attempt = m->attempt,
		.status = RP_Q_OK};
	struct consumer *c = m->consumer;

	if (m->state == MESSAGE_WAITING) {
		waiting_remove(qs, m);
	} else if (m->state == MESSAGE_BOUND) {
		memcpy(about.uuid, c->uuid, RP_UUID_BYTES);
		dispatch_unbind(qs, m);
		job_withdraw(qs, m->q, c, &about, now_ns);
		consumer_tidy(qs, c, now_ns);
	} else {
		aside_remove(qs, m);
	}
}

void job_fail(struct rp_queues *qs, struct message *m, enum rp_queue_death death, uint64_t now_ns)
{
	struct queue *q = m->q;

	job_take(qs, m, now_ns);
	message_end(qs, m, death, now_ns);
	queue_work(qs, q);
}

void job_release(struct rp_queues *qs, struct message *m, bool proven, uint64_t now_ns)
{
	struct queue *q = m->q;

	if (m->process.kind != RP_PROCESS_REQUEST ||
		(proven && !(m->process.flags & RP_PROCESS_BEGUN))) {
		dispatch_release(qs, m, now_ns);
		return;
	}
	m->unseen += !m->accepted && !m->seen;
	dispatch_unbind(qs, m);
	message_end(qs, m, RP_QUEUE_DEATH_WORKER_LOST, now_ns);
	queue_work(qs, q);
}

/* The hash that picks the bucket, and another one. */
uint64_t job_digest(struct rp_span tail)
{
	uint64_t h = rp_fnv1a(RP_FNV1A_BASIS, tail.data, tail.length);

	return (uint64_t)rp_queue_hash(tail.data, tail.length) << 32 | (uint32_t)(h >> 32) | 1;
}

static bool is_meant(const struct job *job, const struct queue *q, const struct cancel_what *what)
{
	struct rp_span tail = tail_of(job->m);

	if (job->m->q != q || job->m->state == MESSAGE_ENDING ||
		(what->request && job->m->process.request != what->request))
		return false;
	if (what->tail.length == 0)
		return job_digest(tail) == what->digest;
	return tail.length == what->tail.length &&
	       memcmp(tail.data, what->tail.data, tail.length) == 0;
}

uint32_t job_cancel(
	struct rp_queues *qs, struct queue *q, const struct cancel_what *what, uint64_t now_ns)
{
	struct job **bucket = job_bucket(qs, q, (uint32_t)(what->digest >> 32)), *job, *next;
	uint32_t count = 0;

	for (job = *bucket; job; job = next) {
		next = job->hash_next;
		if (!is_meant(job, q, what))
			continue;
		job_fail(qs, job->m, RP_QUEUE_DEATH_CANCELLED, now_ns);
		count++;
		/* Where nobody is to be told it is freed, and the chain with it changed. */
		next = next ? *bucket : NULL;
	}
	return count;
}

void job_arm_bound(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	if (m->process.kind != RP_PROCESS_REQUEST)
		return;
	rp_wheel_advance(&qs->wheel, now_ns);
	rp_wheel_add(&qs->wheel, &m->due, job_ends_ns(m));
}

/* ---- nobody is left who could ---- */

void jobs_missed(struct rp_queues *qs, struct queue *q, bool waited, uint64_t now_ns)
{
	struct queue_more *more = q->more;

	if (!more || (more->job_count == 0 && more->session_count == 0))
		return;
	more->left_ns = now_ns;
	if (rp_wheel_armed(&more->look) && !waited)
		return;
	look_later(qs, more, waited ? 0 : qs->config.resume_ns, now_ns);
}

/* One that nobody could have had waits for somebody; one that needs something had somebody. */
static bool job_is_deserted(struct rp_queues *qs, const struct message *m)
{
	const struct queue_more *more = m->q->more;
	struct rp_list *n;

	if (m->state != MESSAGE_WAITING && m->state != MESSAGE_DELAYED)
		return false;
	if (message_meta(m).need_count == 0 && m->process.left_ns > more->left_ns)
		return false;
	rp_list_foreach (n, &m->q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);

		if (is_there(c) && consumer_wants(c, m))
			return false;
	}
	return true;
}

/* True: all were looked at. */
static bool jobs_look(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct queue_more *more = q->more;

	for (unsigned i = 0; i < POLL_BUDGET && more->look_left > 0; i++) {
		struct rp_list *n = more->jobs.next;
		struct message *m;

		more->look_left--;
		if (n == &more->jobs)
			break;
		rp_list_unlink(n);
		rp_list_push_back(&more->jobs, n);
		m = rp_list_entry(n, struct job, link)->m;
		if (job_is_deserted(qs, m))
			job_fail(qs, m, RP_QUEUE_DEATH_NO_CONSUMER, now_ns);
	}
	return more->look_left == 0 || rp_list_empty(&more->jobs);
}

bool jobs_poll(struct rp_queues *qs, uint64_t now_ns)
{
	rp_wheel_advance(&qs->look_wheel, now_ns);
	for (unsigned i = 0; i < POLL_BUDGET; i++) {
		struct rp_wheel_node *n = rp_wheel_pop(&qs->look_wheel);
		struct queue_more *more;

		if (!n)
			return false;
		more = RP_CONTAINER_OF(n, struct queue_more, look);
		if (more->look_left == 0) {
			more->look_left = more->job_count;
			sessions_look(qs, more->q, now_ns);
		}
		if (more->q->own && !jobs_look(qs, more->q, now_ns))
			rp_wheel_add(&qs->look_wheel, &more->look, now_ns);
		else
			more->look_left = 0;
	}
	return true;
}

/* ---- what hosts say ---- */

void rp_queue_job_begun(struct rp_queues *qs, struct rp_span name, const uint8_t *uuid,
	uint64_t idx, uint64_t now_ns)
{
	struct queue *q =
		name.length && name.length <= RP_NAME_BYTES_MAX ? queue_find(qs, name) : NULL;
	struct consumer *c = q ? consumer_find(qs, q, uuid) : NULL;
	struct hold *h = c && c->host ? hold_find(qs, c->host, idx) : NULL;

	if (!h || !h->request || h->begun)
		return;
	h->begun = true;
	/* Else it is in the report that is to come. */
	if (h->accepted && !h->report)
		hold_report(qs, h, now_ns);
}
