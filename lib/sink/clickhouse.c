/* SPDX-License-Identifier: Apache-2.0 */

/* Queues into ClickHouse: what comes is gathered, inserted, and acknowledged. */

#include <sink/clickhouse.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <sink/clickhouse_priv.h>
#include <sink/row_priv.h>

/** A consumer that was not to be had is asked for again. */
#define CONSUME_RETRY_NS RP_NS_PER_S
#define ACK_RETRY_NS RP_NS_PER_S
#define PREFETCH_MAX 1000000u

/** Rows that are in their table and not yet acknowledged. */
struct ch_ack {
	struct rp_list node; /**< queue->acks, queue->again */
	struct ch_queue *q;
	uint64_t life, again_ns;
	uint32_t count;
	uint64_t idx[RP_SINK_ACKS_MAX];
};

static void want_run(struct rp_clickhouse *c)
{
	rp_loop_task_post(c->loop, &c->task);
}

static uint64_t now_ns(const struct rp_clickhouse *c)
{
	return rp_loop_now_ns(c->loop);
}

/* ---- acknowledges ---- */

static void ack_send(struct ch_ack *a);

static void ack_free(struct ch_ack *a)
{
	rp_list_unlink(&a->node);
	free(a);
}

static void on_acked(void *ctx, int status, const char *message, int64_t result)
{
	struct ch_ack *a = ctx;
	struct ch_queue *q = a->q;
	struct rp_clickhouse *c = q->c;

	c->acking -= a->count;
	if (status == RP_SINK_STATUS_UNAVAILABLE && q->consumer && a->life == q->life) {
		c->counters.acks_failed += a->count;
		a->again_ns = now_ns(c) + ACK_RETRY_NS;
		rp_list_unlink(&a->node);
		rp_list_push_back(&q->again, &a->node);
		want_run(c);
		return;
	}
	/* What was said again may have gone the first time. */
	if (!a->again_ns)
		c->counters.acks_late += a->count - (status == 0 ? (uint32_t)result : 0);
	ack_free(a);
	/* Who waits for the last of them is told. */
	if (c->acking == 0)
		want_run(c);
}

static void ack_send(struct ch_ack *a)
{
	rp_list_unlink(&a->node);
	rp_list_push_back(&a->q->acks, &a->node);
	a->q->c->acking += a->count;
	a->q->c->host->acks(a->q->consumer, a->idx, a->count, on_acked, a);
}

/* All of the batch that are this node's still: together, which is one message to the shard. */
static void batch_ack(const struct ch_batch *b)
{
	struct ch_ack *a = NULL;

	for (uint32_t i = 0; i < b->count; i++) {
		if (b->rows[i].withdrawn) {
			b->q->c->counters.acks_late++;
			continue;
		}
		if (!a) {
			a = ch_alloc(sizeof(*a));
			a->q = b->q;
			a->life = b->q->life;
			rp_list_init(&a->node);
		}
		a->idx[a->count++] = b->rows[i].idx;
		if (a->count == RP_SINK_ACKS_MAX) {
			ack_send(a);
			a = NULL;
		}
	}
	if (a)
		ack_send(a);
}

/* An acknowledge of it is under way, or to be said again: its row is written. */
static bool is_written(struct ch_queue *q, uint64_t idx)
{
	struct rp_list *lists[2] = {&q->acks, &q->again}, *n;

	for (unsigned i = 0; i < 2; i++)
		rp_list_foreach (n, lists[i]) {
			const struct ch_ack *a = rp_list_entry(n, struct ch_ack, node);

			for (uint32_t k = 0; k < a->count; k++)
				if (a->idx[k] == idx)
					return true;
		}
	return false;
}

static uint64_t acks_again(struct ch_queue *q)
{
	while (!rp_list_empty(&q->again)) {
		struct ch_ack *a = rp_list_entry(q->again.next, struct ch_ack, node);

		if (!q->consumer || a->life != q->life)
			ack_free(a);
		else if (a->again_ns <= now_ns(q->c))
			ack_send(a);
		else
			return a->again_ns;
	}
	return RP_NEVER;
}

/* ---- what comes ---- */

static void refuse(struct ch_queue *q, uint64_t idx, const char *why)
{
	struct rp_clickhouse *c = q->c;

	if (q->refused == 0)
		RP_LOG(RP_LOG_QUEUE, RP_LOG_WARNING, "clickhouse %.*s: a message is refused: %s",
			(int)q->name_length, (const char *)q->name, why);
	snprintf(q->error, sizeof(q->error), "%s", why);
	q->refused++;
	c->counters.rows_refused++;
	c->host->reject(q->consumer, idx, NULL, NULL);
}

static struct ch_batch *open_batch(struct ch_queue *q)
{
	struct ch_batch *b;

	if (!rp_list_empty(&q->batches)) {
		b = rp_list_entry(q->batches.prev, struct ch_batch, node);
		if (b->state == CH_BATCH_OPEN)
			return b;
	}
	b = ch_batch_new(q);
	b->first_ns = now_ns(q->c);
	rp_list_push_back(&q->batches, &b->node);
	return b;
}

static void on_message(void *ctx, const struct rp_sink_message *m)
{
	struct ch_queue *q = ctx;
	struct rp_clickhouse *c = q->c;
	enum sink_row row = sink_row_outline(m->value);
	struct ch_batch *b;

	if (row == SINK_ROW_EMPTY) {
		c->counters.rows_empty_dropped++;
		c->host->ack(q->consumer, m->idx, NULL, NULL);
		return;
	}
	if (row == SINK_ROW_BAD) {
		refuse(q, m->idx, "the value is no JSON object");
		return;
	}
	/* It was written, and its acknowledge is not through yet. */
	if (m->attempt > 1 && is_written(q, m->idx))
		return;
	b = open_batch(q);
	if (b->count > 0 && b->length + m->value.length + 1 > c->limits.batch_bytes) {
		b->state = CH_BATCH_READY;
		b = open_batch(q);
	}
	ch_batch_add(b, m->idx, m->value);
	q->held++;
	q->held_bytes += m->value.length + 1;
	if (b->count >= c->limits.batch_rows || b->length >= c->limits.batch_bytes)
		b->state = CH_BATCH_READY;
	want_run(c);
}

static void on_withdrawn(void *ctx, uint64_t idx)
{
	struct ch_queue *q = ctx;
	struct rp_list *n;

	rp_list_foreach (n, &q->batches) {
		struct ch_batch *b = rp_list_entry(n, struct ch_batch, node);

		for (uint32_t i = 0; i < b->count; i++)
			if (b->rows[i].idx == idx && b->life == q->life && !b->rows[i].withdrawn) {
				b->rows[i].withdrawn = true;
				b->withdrawn++;
				q->c->counters.withdrawn++;
				return;
			}
	}
}

static void batch_end(struct ch_batch *b)
{
	struct ch_queue *q = b->q;

	q->held -= b->count;
	for (uint32_t i = 0; i < b->count; i++)
		q->held_bytes -= b->rows[i].length;
	ch_batch_free(b);
}

/* What is not being inserted is somebody else's now, or comes again. */
static void batches_forget(struct ch_queue *q)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &q->batches) {
		struct ch_batch *b = rp_list_entry(n, struct ch_batch, node);

		if (b->state != CH_BATCH_SENDING)
			batch_end(b);
	}
}

static void on_end(void *ctx, const char *reason)
{
	struct ch_queue *q = ctx;

	RP_LOG(RP_LOG_QUEUE, RP_LOG_INFO, "clickhouse %.*s: %s", (int)q->name_length,
		(const char *)q->name, reason);
	q->consumer = NULL;
	q->next_ns = RP_MAX(q->next_ns, now_ns(q->c) + CONSUME_RETRY_NS);
	batches_forget(q);
	want_run(q->c);
}

/* ---- inserts ---- */

static void queue_failed(struct ch_queue *q, const char *why, const char *body)
{
	uint64_t wait_ns;

	/* Several that failed together are one failure. */
	if (q->next_ns > now_ns(q->c))
		return;
	q->failures++;
	wait_ns = rp_sink_backoff_ns(q->failures);
	q->next_ns = now_ns(q->c) + wait_ns;
	snprintf(q->error, sizeof(q->error), "%.*s", (int)strcspn(*why ? why : body, "\r\n"),
		*why ? why : body);
	RP_LOG(RP_LOG_QUEUE, q->failures == 1 ? RP_LOG_WARNING : RP_LOG_INFO,
		"clickhouse %.*s: %s; again in %" PRIu64 " s", (int)q->name_length,
		(const char *)q->name, q->error, (uint64_t)(wait_ns / RP_NS_PER_S));
}

static void batch_done(struct ch_batch *b)
{
	struct ch_queue *q = b->q;
	struct rp_clickhouse *c = q->c;
	bool ours = q->consumer && b->life == q->life;

	c->counters.inserts++;
	c->counters.rows += b->count;
	c->counters.bytes += b->length;
	q->failures = 0;
	if (q->refused == 0)
		q->error[0] = '\0';
	if (ours)
		batch_ack(b);
	else
		c->counters.acks_late += b->count;
	batch_end(b);
}

static void batch_refused(struct ch_batch *b, const char *body)
{
	struct ch_queue *q = b->q;
	struct rp_clickhouse *c = q->c;
	char why[200];

	c->counters.inserts_refused++;
	if (b->count > 1) {
		c->counters.batches_halved++;
		ch_batch_halve(b);
		return;
	}
	snprintf(why, sizeof(why), "%.*s", (int)strcspn(body, "\r\n"), body);
	if (q->consumer && b->life == q->life && !b->rows[0].withdrawn)
		refuse(q, b->rows[0].idx, why);
	batch_end(b);
}

static void on_inserted(void *ctx, const struct sink_answer *a)
{
	struct ch_batch *b = ctx;
	struct ch_queue *q = b->q;
	struct rp_clickhouse *c = q->c;
	enum ch_outcome outcome = ch_outcome_of(a);

	b->request = NULL;
	b->state = CH_BATCH_READY;
	c->sending--;
	q->sending--;
	/* Rows of a consumer that is gone come again: they are not inserted a second time here. */
	if (outcome != CH_OUTCOME_DONE && (!q->consumer || b->life != q->life)) {
		batch_end(b);
	} else if (outcome == CH_OUTCOME_DONE) {
		batch_done(b);
	} else if (outcome == CH_OUTCOME_ROW) {
		batch_refused(b, a->body);
	} else {
		c->counters.inserts_failed++;
		queue_failed(q, a->error, a->body);
		if (a->status == 0)
			c->probed = false; /* what answers next may be another version */
		if (outcome == CH_OUTCOME_LARGE && b->count > 1)
			ch_batch_halve(b);
	}
	want_run(c);
}

static void batch_send(struct ch_batch *b)
{
	struct rp_clickhouse *c = b->q->c;
	char token[96], *url;

	b->state = CH_BATCH_SENDING;
	b->sent = true;
	ch_batch_token(b, token, sizeof(token));
	url = ch_insert_url(c, b->q->table, c->has_token ? token : NULL);
	b->request = sink_http_post(c->http, url, c->user, c->password,
		(struct rp_span){b->body, b->length}, c->timeout_ns / RP_NS_PER_MS, on_inserted, b);
	free(url);
	RP_ASSERT(b->request != NULL);
	c->sending++;
	b->q->sending++;
}

/* The next batch of the queue that may go; when there is one later, *next_ns. */
static struct ch_batch *next_batch(struct ch_queue *q, uint64_t *next_ns)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &q->batches) {
		struct ch_batch *b = rp_list_entry(n, struct ch_batch, node);
		uint64_t due_ns = b->first_ns + q->c->limits.batch_ms * RP_NS_PER_MS;

		if (b->state == CH_BATCH_SENDING)
			continue;
		if (!b->sent) {
			ch_batch_clean(b);
			if (b->count == 0) {
				batch_end(b);
				continue;
			}
		}
		if (b->state == CH_BATCH_READY || due_ns <= now_ns(q->c))
			return b;
		*next_ns = RP_MIN(*next_ns, due_ns);
		return NULL;
	}
	return NULL;
}

/* ---- the server's abilities ---- */

static void on_probed(void *ctx, const struct sink_answer *a)
{
	struct rp_clickhouse *c = ctx;
	struct rp_list *n;

	c->probe = NULL;
	c->counters.probes++;
	c->probed = a->status == 200;
	if (c->probed) {
		c->probe_failures = 0;
		c->has_token = strstr(a->body, "insert_deduplication_token") != NULL;
		c->has_parallel = strstr(a->body, "input_format_parallel_parsing") != NULL;
	} else {
		c->probe_at_ns = now_ns(c) + rp_sink_backoff_ns(++c->probe_failures);
		rp_list_foreach (n, &c->queues)
			if (!rp_list_empty(&rp_list_entry(n, struct ch_queue, node)->batches))
				queue_failed(
					rp_list_entry(n, struct ch_queue, node), a->error, a->body);
	}
	want_run(c);
}

/* True: it is known. */
static bool probe(struct rp_clickhouse *c, uint64_t *next_ns)
{
	char *url;

	if (c->probed)
		return true;
	if (c->probe)
		return false;
	if (now_ns(c) < c->probe_at_ns) {
		*next_ns = RP_MIN(*next_ns, c->probe_at_ns);
		return false;
	}
	url = ch_probe_url(c);
	c->probe = sink_http_post(c->http, url, c->user, c->password, (struct rp_span){0},
		c->timeout_ns / RP_NS_PER_MS, on_probed, c);
	free(url);
	RP_ASSERT(c->probe != NULL);
	return false;
}

/* ---- the queues ---- */

static uint32_t prefetch_of(const struct rp_clickhouse *c)
{
	uint64_t rows = (uint64_t)c->limits.batch_rows * (c->limits.in_flight + 1ull);

	return (uint32_t)RP_MIN(rows, PREFETCH_MAX);
}

static void queue_open(struct ch_queue *q)
{
	static const struct rp_sink_consumer_ops ops = {
		.message = on_message, .withdrawn = on_withdrawn, .end = on_end};
	struct rp_clickhouse *c = q->c;

	q->life++;
	q->refused = 0;
	q->consumer = c->host->consume(
		c->host->ctx, (struct rp_span){q->name, q->name_length}, prefetch_of(c), &ops, q);
	if (!q->consumer)
		q->next_ns = now_ns(c) + CONSUME_RETRY_NS;
}

static void queue_close(struct ch_queue *q)
{
	if (q->consumer)
		q->c->host->close(q->consumer);
	q->consumer = NULL;
	q->life++;
	batches_forget(q);
}

static bool queue_busy(const struct ch_queue *q)
{
	return q->sending > 0 || !rp_list_empty(&q->acks) || !rp_list_empty(&q->again);
}

static void queue_free(struct ch_queue *q)
{
	while (!rp_list_empty(&q->batches))
		batch_end(rp_list_entry(q->batches.next, struct ch_batch, node));
	while (!rp_list_empty(&q->acks))
		ack_free(rp_list_entry(q->acks.next, struct ch_ack, node));
	while (!rp_list_empty(&q->again))
		ack_free(rp_list_entry(q->again.next, struct ch_ack, node));
	rp_list_unlink(&q->node);
	free(q->table);
	free(q);
}

/* Opens and closes it, and begins one insert at most. True: it did. */
static bool queue_run(struct ch_queue *q, bool may_send, uint64_t *next_ns)
{
	struct rp_clickhouse *c = q->c;
	struct ch_batch *b;

	if (!q->on || c->paused) {
		if (!queue_busy(q) && q->consumer) {
			queue_close(q);
			want_run(c);
		}
		return false;
	}
	if (q->next_ns > now_ns(c)) {
		if (!q->consumer || !rp_list_empty(&q->batches))
			*next_ns = RP_MIN(*next_ns, q->next_ns);
		return false;
	}
	if (!q->consumer) {
		queue_open(q);
		if (!q->consumer)
			*next_ns = RP_MIN(*next_ns, q->next_ns);
	}
	if (!may_send || rp_list_empty(&q->batches) || !probe(c, next_ns))
		return false;
	b = next_batch(q, next_ns);
	if (!b)
		return false;
	/* While the last insert failed, one at a time shows whether it passes again. */
	if (q->failures > 0 && q->sending > 0)
		return false;
	batch_send(b);
	return true;
}

static void on_run(void *ctx)
{
	struct rp_clickhouse *c = ctx;
	uint64_t next_ns = RP_NEVER;
	struct rp_list *n, *t, round;

	rp_list_foreach_safe (n, t, &c->queues) {
		struct ch_queue *q = rp_list_entry(n, struct ch_queue, node);

		next_ns = RP_MIN(next_ns, acks_again(q));
		if (!q->on && !q->consumer && !queue_busy(q))
			queue_free(q);
	}
	/* One insert a queue and round, as long as there are some to begin. */
	for (bool more = true; more;) {
		more = false;
		rp_list_init(&round);
		rp_list_splice_back(&round, &c->queues);
		while ((n = rp_list_pop_front(&round))) {
			rp_list_push_back(&c->queues, n);
			more |= queue_run(rp_list_entry(n, struct ch_queue, node),
				c->sending < c->limits.in_flight, &next_ns);
		}
	}
	rp_loop_timer_at(c->loop, &c->timer, next_ns);
}

void rp_clickhouse_queue(struct rp_clickhouse *c, struct rp_span name, bool on)
{
	struct ch_queue *q = NULL;
	struct rp_list *n;

	rp_list_foreach (n, &c->queues) {
		struct ch_queue *known = rp_list_entry(n, struct ch_queue, node);

		if (known->name_length == name.length &&
			memcmp(known->name, name.data, name.length) == 0)
			q = known;
	}
	if (!q && (!on || name.length > sizeof(q->name)))
		return;
	if (!q) {
		q = ch_alloc(sizeof(*q));
		q->c = c;
		rp_list_init(&q->batches);
		rp_list_init(&q->acks);
		rp_list_init(&q->again);
		q->name_length = name.length;
		memcpy(q->name, name.data, name.length);
		q->table = ch_table_of(name, c->database);
		rp_list_push_back(&c->queues, &q->node);
		if (!q->table)
			RP_LOG(RP_LOG_QUEUE, RP_LOG_WARNING,
				"clickhouse %.*s: the name has no table in it; its messages stay",
				(int)name.length, (const char *)name.data);
	}
	if (q->on == (on && q->table))
		return;
	q->on = on && q->table;
	want_run(c);
}

/* ---- creation ---- */

static const struct rp_clickhouse_limits *limits_ok(const struct rp_clickhouse_limits *l)
{
	RP_ASSERT(l->batch_rows > 0 && l->in_flight > 0 && l->batch_bytes > 0);
	return l;
}

struct rp_clickhouse *rp_clickhouse_create(const struct rp_clickhouse_config *config)
{
	struct rp_clickhouse *c = ch_alloc(sizeof(*c));

	if (ch_url_parse(config->url, &c->url, &c->user, &c->password) != 0) {
		free(c);
		errno = EINVAL;
		return NULL;
	}
	c->loop = config->loop;
	c->host = config->host;
	c->database =
		strdup(config->database && config->database[0] ? config->database : "default");
	RP_ASSERT(c->database != NULL);
	c->node = config->node;
	c->timeout_ns = (config->timeout_ms ? config->timeout_ms : 30000) * RP_NS_PER_MS;
	c->limits = *limits_ok(&config->limits);
	c->http = sink_http_new(config->loop);
	rp_list_init(&c->queues);
	rp_loop_timer_setup(&c->timer, on_run, c);
	rp_loop_task_setup(&c->task, on_run, c);
	return c;
}

void rp_clickhouse_destroy(struct rp_clickhouse *c)
{
	if (!c)
		return;
	while (!rp_list_empty(&c->queues)) {
		struct ch_queue *q = rp_list_entry(c->queues.next, struct ch_queue, node);

		queue_close(q);
		queue_free(q);
	}
	sink_http_free(c->http);
	rp_loop_timer_cancel(&c->timer);
	rp_loop_task_cancel(&c->task);
	if (c->password)
		explicit_bzero(c->password, strlen(c->password));
	free(c->url);
	free(c->user);
	free(c->password);
	free(c->database);
	free(c);
}

void rp_clickhouse_set_limits(struct rp_clickhouse *c, const struct rp_clickhouse_limits *l)
{
	c->limits = *limits_ok(l);
	want_run(c);
}

void rp_clickhouse_pause(struct rp_clickhouse *c, bool on)
{
	c->paused = on;
	want_run(c);
}

bool rp_clickhouse_busy(const struct rp_clickhouse *c)
{
	return c->sending > 0 || c->acking > 0;
}

const struct rp_clickhouse_counters *rp_clickhouse_counters(const struct rp_clickhouse *c)
{
	return &c->counters;
}

uint32_t rp_clickhouse_in_flight(const struct rp_clickhouse *c)
{
	return c->sending;
}

void rp_clickhouse_each(struct rp_clickhouse *c,
	void (*fn)(void *ctx, const struct rp_clickhouse_state *state), void *ctx)
{
	struct rp_list *n;

	rp_list_foreach (n, &c->queues) {
		const struct ch_queue *q = rp_list_entry(n, struct ch_queue, node);
		const struct rp_clickhouse_state state = {
			.queue = {q->name, q->name_length},
			.table = q->table ? q->table : "",
			.consuming = q->consumer != NULL,
			.held = q->held,
			.held_bytes = q->held_bytes,
			.refused = q->refused,
			.failures = q->failures,
			.error = q->error,
		};

		fn(ctx, &state);
	}
}
