/* SPDX-License-Identifier: Apache-2.0 */

/* What the control plane of a node does for process requests, as far as the queues need it. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <process/meta.h>

#include "cluster.h"

static uint64_t token_new(struct cluster *c)
{
	assert_true(c->token_count < TOKENS_MAX);
	return (1u << 20) + c->token_count++;
}

struct rte_mbuf *payload_with(
	const char *tail, const void *meta, uint32_t meta_length, uint64_t value)
{
	uint8_t bytes[4096];
	size_t length = strlen(tail), filler = value % 7 == 0 ? value % 3000 : value % 40;
	struct rte_mbuf *m;

	memcpy(bytes, tail, length);
	if (meta_length > 0)
		memcpy(bytes + length, meta, meta_length);
	length += meta_length;
	memcpy(bytes + length, &value, sizeof(value));
	for (size_t i = 0; i < filler; i++)
		bytes[length + sizeof(value) + i] = (uint8_t)(value + i);
	m = rp_mbuf_from(pool_queue, bytes, length + sizeof(value) + filler);
	assert_non_null(m);
	return m;
}

/* ---- jobs of a node's workers ---- */

struct held_job *job_of(struct cluster *c, unsigned node, uint64_t request)
{
	struct node *n = &c->nodes[node];

	for (unsigned i = 0; i < n->job_count; i++) {
		if (n->jobs[i].request == request)
			return &n->jobs[i];
	}
	return NULL;
}

void process_held(struct node *n, const struct client *cl, const struct rp_queue_delivery *d)
{
	struct held_job *j;

	if (d->process.kind != RP_PROCESS_REQUEST)
		return;
	j = job_of(n->c, n->index, d->process.request);
	if (!j) {
		assert_true(n->job_count < RP_ARRAY_SIZE(n->jobs));
		j = &n->jobs[n->job_count++];
	}
	*j = (struct held_job){.request = d->process.request, .idx = d->idx};
	snprintf(j->queue, sizeof(j->queue), "%s", cl->queue);
	memcpy(j->tail, rte_pktmbuf_mtod(d->payload, const uint8_t *), d->tail_length);
	memcpy(j->uuid, cl->uuid, RP_UUID_BYTES);
}

int on_job_here(void *ctx, uint64_t consumer, const struct rp_queue_delivery *d)
{
	struct node *n = ctx;

	process_held(n, &n->c->clients[consumer - 1], d);
	return 0;
}

void on_job_over(void *ctx, uint64_t request, uint64_t idx)
{
	struct node *n = ctx;
	struct held_job *j = job_of(n->c, n->index, request);

	if (j && j->idx == idx)
		*j = n->jobs[--n->job_count];
}

int on_run_event(void *ctx, const struct rp_queue_run_event *event)
{
	struct node *n = ctx;

	rte_pktmbuf_free(event->payload);
	n->c->run_events += event->request != 0;
	return 0;
}

void on_output_room(void *ctx, uint64_t request)
{
	struct node *n = ctx;

	assert_true(request != 0);
	n->c->rooms[n->index]++;
}

void process_walks(struct cluster *c, const struct rp_qmsg *m)
{
	if (m->process.kind == RP_PROCESS_REQUEST && c->walked < RP_ARRAY_SIZE(c->walk))
		c->walk[c->walked++] = m->process.left_us;
}

/* ---- requests ---- */

static struct rte_mbuf *head_of(
	const char *tail, const char *name, const char *need, uint16_t *meta_length, uint64_t value)
{
	uint8_t bytes[RP_META_BYTES_MAX];
	struct rp_meta meta = {.reply_to = span_of(name)};

	if (need && need[0]) {
		meta.need[0] = span_of(need);
		meta.need_count = 1;
	}
	*meta_length = (uint16_t)rp_meta_write(&meta, bytes);
	return payload_with(tail, bytes, *meta_length, value);
}

struct ask *ask(struct cluster *c, unsigned node, const char *queue, const char *tail,
	uint64_t value, const char *reply, const struct ask_options *options)
{
	struct ask *a = cluster_must(calloc(1, sizeof(*a)));
	struct rp_qmsg_process p = {.kind = RP_PROCESS_OPEN};
	struct rte_mbuf *payload;

	a->node = node;
	a->boot = c->nodes[node].boot;
	a->value = value;
	a->request = ++c->requests;
	a->left_us = options && options->left_us ? options->left_us : 10000000;
	a->started_ns = c->now_ns;
	a->priority = options ? options->priority : 0;
	a->flags = options ? options->flags : 0;
	snprintf(a->queue, sizeof(a->queue), "%s", queue);
	snprintf(a->tail, sizeof(a->tail), "%s", tail);
	snprintf(a->reply, sizeof(a->reply), "%s", reply);
	snprintf(a->need, sizeof(a->need), "%s", options && options->need ? options->need : "");
	rp_list_push_back(&c->asks, &a->link);
	a->open_token = (unsigned)(token_new(c) - (1u << 20));
	p.request = a->request;
	p.left_us = a->left_us;
	p.left_ns = c->now_ns;
	payload = head_of(tail, queue, NULL, &p.meta_length, 1);
	rp_queue_put_process(c->nodes[node].qs, (1u << 20) + a->open_token, span_of(reply),
		(uint16_t)strlen(tail), &p, payload, c->now_ns);
	return a;
}

static void ask_put(struct cluster *c, struct ask *a)
{
	struct rp_qmsg_process p = {
		.kind = RP_PROCESS_REQUEST,
		.request = a->request,
		.left_us = a->left_us,
		.left_ns = a->started_ns,
		.priority = a->priority,
		.flags = a->flags | RP_PROCESS_REPLY,
	};
	struct rte_mbuf *payload = head_of(a->tail, a->reply, a->need, &p.meta_length, a->value);

	a->put = true;
	a->token = (unsigned)(token_new(c) - (1u << 20));
	rp_queue_put_process(c->nodes[a->node].qs, (1u << 20) + a->token, span_of(a->queue),
		(uint16_t)strlen(a->tail), &p, payload, c->now_ns);
}

/* Until it is taken, as a node's control plane does. */
static void ask_close(struct cluster *c, struct ask *a)
{
	struct rp_qmsg_process p = {
		.kind = RP_PROCESS_CLOSE, .request = a->request, .left_us = 1000000};
	struct rte_mbuf *payload = head_of(a->tail, a->queue, NULL, &p.meta_length, 1);
	uint64_t token = token_new(c);

	a->closes = true;
	a->close_token = (unsigned)(token - (1u << 20));
	a->again_ns = c->now_ns + 100 * MS;
	p.left_ns = c->now_ns;
	rp_queue_put_process(c->nodes[a->node].qs, token, span_of(a->reply),
		(uint16_t)strlen(a->tail), &p, payload, c->now_ns);
}

static void ask_close_again(struct cluster *c, struct ask *a)
{
	const struct answer *x = answer_of(c, a->close_token);

	if (!x->done || c->now_ns < a->again_ns)
		return;
	a->closes = false;
	if (x->status != RP_Q_OK && c->now_ns < a->started_ns + a->left_us * RP_NS_PER_US + 2 * SEC)
		ask_close(c, a);
}

static void ask_run(struct cluster *c, struct ask *a)
{
	const struct answer *x = answer_of(c, a->put ? a->token : a->open_token);

	if (c->nodes[a->node].dead || c->nodes[a->node].boot != a->boot)
		return;
	if (a->closes)
		ask_close_again(c, a);
	if (a->done || !x->done)
		return;
	if (!a->put && x->status == RP_Q_OK) {
		ask_put(c, a);
		return;
	}
	a->done = true;
	a->status = x->status;
	if (a->put && x->status != RP_Q_OK && x->status != RP_Q_UNREACHABLE)
		ask_close(c, a);
}

void asks_run(struct cluster *c)
{
	struct rp_list *l;

	rp_list_foreach (l, &c->asks)
		ask_run(c, rp_list_entry(l, struct ask, link));
}

void asks_free(struct cluster *c)
{
	struct rp_list *l;

	while ((l = rp_list_pop_front(&c->asks)))
		free(rp_list_entry(l, struct ask, link));
}

/* ---- what comes back, and cancels ---- */

unsigned output_in_turn(struct cluster *c, unsigned node, const char *reply,
	const struct held_job *job, uint64_t value, uint32_t stream, uint32_t number)
{
	uint8_t meta[RP_META_BYTES_MAX];
	struct rp_qmsg_process p = {.kind = RP_PROCESS_OUTPUT,
		.request = job->request,
		.left_us = 1000000,
		.left_ns = c->now_ns};
	uint64_t token = token_new(c);

	if (number > 0)
		p.meta_length = (uint16_t)rp_meta_number_write(stream, number, meta);
	rp_queue_job_begun(c->nodes[node].qs, span_of(job->queue), job->uuid, job->idx, c->now_ns);
	rp_queue_put_process(c->nodes[node].qs, token, span_of(reply), (uint16_t)strlen(job->tail),
		&p, payload_with(job->tail, meta, p.meta_length, value), c->now_ns);
	return (unsigned)(token - (1u << 20));
}

unsigned output(struct cluster *c, unsigned node, const char *reply, const struct held_job *job,
	uint64_t value)
{
	return output_in_turn(c, node, reply, job, value, 0, 0);
}

unsigned last_output(struct cluster *c, unsigned node, const struct held_job *job, uint64_t value)
{
	uint64_t token = token_new(c);

	rp_queue_ack(c->nodes[node].qs, token, span_of(job->queue), job->idx, job->uuid, 0,
		payload_with("", NULL, 0, value), c->now_ns);
	return (unsigned)(token - (1u << 20));
}

static void cancel_one(struct cluster *c, unsigned node, struct rp_span queue, struct rp_span tail,
	uint64_t request, uint64_t token)
{
	struct rte_mbuf *m = rp_mbuf_from(pool_queue, tail.data, tail.length);

	assert_non_null(m);
	rp_queue_cancel(c->nodes[node].qs, token, queue, m, request, c->now_ns);
}

unsigned cancel(struct cluster *c, unsigned node, const char *queue, const char *tail)
{
	uint64_t token = token_new(c);

	cancel_one(c, node, span_of(queue), span_of(tail), 0, token);
	return (unsigned)(token - (1u << 20));
}

/* Not from inside the callback: as a node's control plane has it, a moment later. */
void on_cancel(void *ctx, struct rp_span name, struct rp_span tail, uint64_t request)
{
	struct node *n = ctx;
	struct cluster *c = n->c;
	struct ask *a = cluster_must(calloc(1, sizeof(*a)));

	a->node = n->index;
	a->boot = n->boot;
	a->request = request;
	memcpy(a->queue, name.data, name.length);
	memcpy(a->tail, tail.data, tail.length);
	rp_list_push_back(&c->cancels, &a->link);
}

void cancels_run(struct cluster *c)
{
	struct rp_list *l;

	while ((l = rp_list_pop_front(&c->cancels))) {
		struct ask *a = rp_list_entry(l, struct ask, link);

		if (!c->nodes[a->node].dead && c->nodes[a->node].boot == a->boot)
			cancel_one(c, a->node, span_of(a->queue), span_of(a->tail), a->request,
				token_new(c));
		free(a);
	}
}
