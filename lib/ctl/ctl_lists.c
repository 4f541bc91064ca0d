/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Admin: queues, consumers and streams of a node, a page at a time. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <ctl/ctl_priv.h>
#include <route/key.h>

bool ctl_view_missing(struct rp_ctl *ctl, struct rp_grpc_call *call)
{
	if (ctl->view->filled)
		return false;
	rp_grpc_call_finish(
		call, RP_GRPC_UNAVAILABLE, "ringpost: the shard's ring is full, ask again");
	return true;
}

bool ctl_view_ask_queue(struct rp_grpc_call *call, struct ctl_view_ask *ask, const char *queue)
{
	if (strlen(queue) > RP_NAME_BYTES_MAX) {
		rp_grpc_call_finish(call, RP_GRPC_INVALID_ARGUMENT,
			"queue key: the queue's name is longer than 255 bytes");
		return false;
	}
	snprintf(ask->name, sizeof(ask->name), "%s", queue);
	return true;
}

/* Where the next page begins: further in this shard's table, or with the next shard's. */
void ctl_page_fill(struct rp_ctl *ctl, Ringpost__V1__Page *p, const struct ctl_view_ask *ask)
{
	ringpost__v1__page__init(p);
	p->shard = ask->shard;
	p->cursor = ctl->view->next;
	if (p->cursor == 0)
		p->shard++;
	/* A name that is asked for exactly lies on one shard. */
	p->more = p->cursor != 0 || (!ask->exact && p->shard < ctl->config.self.shards);
}

void ctl_list_ask(struct rp_ctl *ctl, struct rp_grpc_call *call, const uint8_t *data, size_t length,
	enum rp_engine_view_kind kind, void (*fn)(struct rp_ctl *, void *))
{
	Ringpost__V1__ListRequest *q = ringpost__v1__list_request__unpack(NULL, length, data);
	struct ctl_view_ask ask = {.wanted = true, .kind = kind};

	if (ctl_admin_malformed(call, q))
		return;
	if (!ctl_admin_admitted(call))
		goto out;
	if (!ctl_view_ask_queue(call, &ask, q->queue))
		goto out;
	ask.exact = q->exact;
	if (q->page) {
		ask.shard = q->page->shard;
		ask.cursor = q->page->cursor;
	} else if (q->exact) {
		ask.shard = rp_hash_pick(
			rp_queue_hash(q->queue, strlen(q->queue)), ctl->config.self.shards);
	}
	if (ask.shard >= ctl->config.self.shards)
		rp_grpc_call_finish(call, RP_GRPC_INVALID_ARGUMENT, "ringpost: no such shard");
	else
		ctl_admin_ask_view(ctl, call, &ask, fn);
out:
	ringpost__v1__list_request__free_unpacked(q, NULL);
}

/* ---- queues ---- */

static void queue_fill(
	Ringpost__V1__QueueView *x, struct rp_engine_view_row *row, const struct ctl_view_ask *ask)
{
	const struct rp_queue_info *q = &row->queue;
	const struct rp_queue_counters *c = &q->counters;

	ringpost__v1__queue_view__init(x);
	x->name = row->name;
	x->shard = ask->shard;
	x->dispatcher = q->dispatcher;
	x->epoch = q->epoch;
	x->here = q->dispatching;
	x->messages = q->depth;
	x->waiting = q->waiting;
	x->in_flight = q->in_flight;
	x->forwards = q->forwards;
	x->bytes = q->bytes;
	x->consumers_local = q->consumers_local;
	x->consumers_remote = q->consumers_remote;
	x->waiting_oldest_ns = q->waiting_oldest_ns;
	x->in_flight_oldest_ns = q->in_flight_oldest_ns;
	x->indexed = c->indexed;
	x->acks = c->acks;
	x->redeliveries = c->redeliveries;
	x->refused = c->refused_too_large + c->refused_depth + c->refused_bytes +
		     c->refused_buffers + c->refused_limit + c->refused_no_consumer +
		     c->refused_dispatcher + c->refused_stopping;
	x->delayed = q->delayed;
	x->ending = q->ending;
	x->ended = c->expired + c->overflowed + c->exhausted + c->rejected;
	x->dead_letters = c->dead_letters;
	x->puts = c->puts;
	x->accepts = c->accepts;
	x->wait_mean_ns = q->wait_mean_ns;
	x->wait_max_ns = q->wait_max_ns;
	x->accept_mean_ns = q->accept_mean_ns;
}

static Ringpost__V1__TimesBucket **times_fill(const struct rp_queue_times *t)
{
	Ringpost__V1__TimesBucket *items = calloc(RP_QUEUE_TIMES_BUCKETS, sizeof(*items));
	Ringpost__V1__TimesBucket **list = calloc(RP_QUEUE_TIMES_BUCKETS, sizeof(*list));

	RP_ASSERT(items && list);
	for (unsigned i = 0; i < RP_QUEUE_TIMES_BUCKETS; i++) {
		ringpost__v1__times_bucket__init(&items[i]);
		items[i].le_us = i + 1 < RP_QUEUE_TIMES_BUCKETS ? 1ull << 2 * i : 0;
		items[i].count = t->buckets[i];
		list[i] = &items[i];
	}
	return list;
}

static void times_free(Ringpost__V1__TimesBucket **list)
{
	if (list)
		free(list[0]);
	free(list);
}

/* Of one queue; freed with counters_free(). */
static void counters_fill(Ringpost__V1__QueueView *x, const struct rp_engine_view *v)
{
	const struct rp_queue_counters *c = &v->rows[0].queue.counters;
	Ringpost__V1__QueueCounter *items = calloc(RP_QUEUE_COUNTER_COUNT, sizeof(*items));

	x->counters = calloc(RP_QUEUE_COUNTER_COUNT, sizeof(*x->counters));
	RP_ASSERT(items && x->counters);
#define X(field, help)                                                       \
	ringpost__v1__queue_counter__init(&items[RP_QUEUE_COUNTER_##field]); \
	items[RP_QUEUE_COUNTER_##field].name = (char *)#field;               \
	items[RP_QUEUE_COUNTER_##field].text = (char *)help;                 \
	items[RP_QUEUE_COUNTER_##field].value = c->field;                    \
	x->counters[RP_QUEUE_COUNTER_##field] = &items[RP_QUEUE_COUNTER_##field];
#include <queue/queue_counters.def>
#undef X
	x->n_counters = RP_QUEUE_COUNTER_COUNT;
	if (!v->has_times)
		return;
	x->wait_times = times_fill(&v->wait);
	x->accept_times = times_fill(&v->accept);
	x->n_wait_times = x->n_accept_times = RP_QUEUE_TIMES_BUCKETS;
}

static void counters_free(Ringpost__V1__QueueView *x)
{
	times_free(x->n_wait_times ? x->wait_times : NULL);
	times_free(x->n_accept_times ? x->accept_times : NULL);
	if (x->n_counters > 0)
		free(x->counters[0]);
	free(x->counters);
}

static void queues_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__QueuesReply r = RINGPOST__V1__QUEUES_REPLY__INIT;
	Ringpost__V1__QueueView items[RP_ENGINE_VIEW_ROWS], *list[RP_ENGINE_VIEW_ROWS];
	Ringpost__V1__Page page;

	if (!ctl_view_missing(ctl, a->call)) {
		for (uint32_t i = 0; i < ctl->view->row_count; i++) {
			queue_fill(&items[i], &ctl->view->rows[i], &a->ask);
			list[i] = &items[i];
		}
		if (a->ask.exact && ctl->view->row_count > 0)
			counters_fill(&items[0], ctl->view);
		r.node = ctl->config.self.node;
		r.at_ns = ctl->view->now_ns;
		r.queues = list;
		r.n_queues = ctl->view->row_count;
		r.page = &page;
		ctl_page_fill(ctl, &page, &a->ask);
		ctl_admin_reply(a->call, &r.base);
		if (r.n_queues > 0)
			counters_free(&items[0]);
	}
	free(a);
}

static void on_queues(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	ctl_list_ask(ctx, call, data, length, RP_ENGINE_VIEW_QUEUES, queues_reply);
}

/* ---- consumers ---- */

struct consumer_item {
	Ringpost__V1__ConsumerView c;
	char uuid[RP_UUID_TEXT_BYTES + 1];
};

static void consumer_fill(
	struct consumer_item *x, struct rp_engine_view_row *row, const struct ctl_view_ask *ask)
{
	const struct rp_queue_consumer_info *c = &row->consumer;

	ringpost__v1__consumer_view__init(&x->c);
	rp_uuid_format(c->uuid, x->uuid);
	x->uuid[RP_UUID_TEXT_BYTES] = '\0';
	x->c.queue = row->name;
	x->c.uuid = x->uuid;
	x->c.shard = ask->shard;
	x->c.node = c->node;
	x->c.here = c->here;
	x->c.state = (char *)c->state;
	x->c.prefetch = c->prefetch;
	x->c.outstanding = c->outstanding;
	x->c.unaccepted = c->unaccepted;
	x->c.holds = c->holds;
	x->c.max_bytes = c->max_bytes;
	x->c.match = row->match;
	x->c.offers = c->offers;
	x->c.acks = c->acks;
	x->c.oldest_ns = c->oldest_ns;
}

static void consumers_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__ConsumersReply r = RINGPOST__V1__CONSUMERS_REPLY__INIT;
	Ringpost__V1__ConsumerView *list[RP_ENGINE_VIEW_ROWS];
	struct consumer_item items[RP_ENGINE_VIEW_ROWS];
	Ringpost__V1__Page page;

	if (!ctl_view_missing(ctl, a->call)) {
		for (uint32_t i = 0; i < ctl->view->row_count; i++) {
			consumer_fill(&items[i], &ctl->view->rows[i], &a->ask);
			list[i] = &items[i].c;
		}
		r.node = ctl->config.self.node;
		r.at_ns = ctl->view->now_ns;
		r.consumers = list;
		r.n_consumers = ctl->view->row_count;
		r.page = &page;
		ctl_page_fill(ctl, &page, &a->ask);
		ctl_admin_reply(a->call, &r.base);
	}
	free(a);
}

static void on_consumers(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	ctl_list_ask(ctx, call, data, length, RP_ENGINE_VIEW_CONSUMERS, consumers_reply);
}

/* ---- streams ---- */

static void stream_fill(
	Ringpost__V1__StreamView *x, struct rp_engine_view_row *row, const struct ctl_view_ask *ask)
{
	const struct rp_deliver_stream_info *t = &row->stream;

	ringpost__v1__stream_view__init(x);
	x->queue = row->name;
	x->node = t->node;
	x->shard = ask->shard;
	x->direction = (char *)(t->out ? "out" : "in");
	x->kind = (char *)(t->type == RP_QMSG_FORWARD ? "forward" : "deliver");
	x->state = (char *)t->state;
	x->messages = t->messages;
	x->answered = t->done;
	x->credit_messages = t->credit_messages;
	x->credit_bytes = t->credit_bytes;
	x->quiet_ns = t->quiet_ns;
}

static void streams_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__StreamsReply r = RINGPOST__V1__STREAMS_REPLY__INIT;
	Ringpost__V1__StreamView items[RP_ENGINE_VIEW_ROWS], *list[RP_ENGINE_VIEW_ROWS];
	Ringpost__V1__Page page;

	if (!ctl_view_missing(ctl, a->call)) {
		for (uint32_t i = 0; i < ctl->view->row_count; i++) {
			stream_fill(&items[i], &ctl->view->rows[i], &a->ask);
			list[i] = &items[i];
		}
		r.node = ctl->config.self.node;
		r.streams = list;
		r.n_streams = ctl->view->row_count;
		r.page = &page;
		ctl_page_fill(ctl, &page, &a->ask);
		ctl_admin_reply(a->call, &r.base);
	}
	free(a);
}

static void on_streams(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	ctl_list_ask(ctx, call, data, length, RP_ENGINE_VIEW_STREAMS, streams_reply);
}

const struct rp_grpc_call_ops ctl_queues_ops = {
	.on_message = on_queues, .on_cancel = ctl_admin_on_cancel};
const struct rp_grpc_call_ops ctl_consumers_ops = {
	.on_message = on_consumers, .on_cancel = ctl_admin_on_cancel};
const struct rp_grpc_call_ops ctl_streams_ops = {
	.on_message = on_streams, .on_cancel = ctl_admin_on_cancel};
