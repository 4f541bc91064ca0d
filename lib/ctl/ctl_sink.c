/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The sinks in the node: who writes which queue, puts below prefixes, and what sinks ask of queues.
 *
 * A queue for ClickHouse is consumed by each node with a clickhouse_url that knows of it; consumers
 * of other nodes cannot be seen there, so that its dispatcher writes, and a dispatcher without one
 * hands the queue over. A queue for PostgreSQL is consumed by its dispatcher, or, when that hosts
 * nobody, by whoever comes first: what it takes stays in order. A put below a prefix is applied by
 * the node that took it from its client.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <ctl/embed.h>
#include <kv/watch.h>
#include <route/key.h>
#include <sink/clickhouse.h>
#include <sink/postgres.h>

#define LOOK_NS RP_NS_PER_S
#define QUEUES_MAX 4096

/** A consumer of a sink. */
struct sink_consumer {
	struct rp_list node; /**< sinks->consumers */
	struct rp_ctl_consumer *k;
	struct rp_sink_consumer_ops ops;
	void *ctx;
};

/** A prefix that is applied. */
struct sink_prefix {
	struct rp_ctl *ctl;
	unsigned entry;
	struct rp_kv_watcher *watcher;
};

struct ctl_sinks {
	struct rp_ctl *ctl;
	struct rp_sink_host host;
	struct rp_clickhouse *clickhouse; /**< NULL: no URL */
	struct rp_postgres *postgres;	  /**< NULL: likewise */
	struct rp_list consumers;
	struct sink_prefix prefixes[RP_POSTGRES_ENTRIES_MAX];
	struct rp_ctl_watch *watches[RP_POSTGRES_ENTRIES_MAX + 1];
	unsigned watch_count;
	struct rp_loop_timer timer;
	struct rp_loop_task task;
	bool ready;
};

/* ---- what sinks ask of queues ---- */

static void consumer_forget(struct sink_consumer *s)
{
	rp_list_unlink(&s->node);
	free(s);
}

static void on_message(void *ctx, const struct rp_ctl_message *m)
{
	struct sink_consumer *s = ctx;
	const struct rp_sink_message message = {
		.idx = m->idx, .tail = m->tail, .value = m->value, .attempt = m->attempt};

	s->ops.message(s->ctx, &message);
}

static void on_withdrawn(void *ctx, uint64_t idx)
{
	struct sink_consumer *s = ctx;

	s->ops.withdrawn(s->ctx, idx);
}

static void on_end(void *ctx, const char *reason)
{
	struct sink_consumer *s = ctx;

	s->ops.end(s->ctx, reason);
	consumer_forget(s);
}

static void *host_consume(void *ctx, struct rp_span queue, uint32_t prefetch,
	const struct rp_sink_consumer_ops *ops, void *ops_ctx)
{
	static const struct rp_ctl_consumer_ops mine = {
		.message = on_message, .withdrawn = on_withdrawn, .end = on_end};
	struct ctl_sinks *sinks = ctx;
	struct sink_consumer *s = calloc(1, sizeof(*s));
	char fields[32];

	RP_ASSERT(s != NULL);
	s->ops = *ops;
	s->ctx = ops_ctx;
	snprintf(fields, sizeof(fields), ";prefetch=%u", prefetch);
	s->k = ctl_consume_own(sinks->ctl, queue, NULL, fields, 0, &mine, s);
	if (!s->k) {
		free(s);
		return NULL;
	}
	rp_list_push_back(&sinks->consumers, &s->node);
	return s;
}

static void host_close(void *consumer)
{
	struct sink_consumer *s = consumer;

	rp_ctl_consumer_close(s->k, true);
	consumer_forget(s);
}

static void host_ack(void *consumer, uint64_t idx, rp_sink_done_fn done, void *done_ctx)
{
	rp_ctl_consumer_ack(((struct sink_consumer *)consumer)->k, idx, false, done, done_ctx);
}

static void host_acks(
	void *consumer, const uint64_t *idx, unsigned count, rp_sink_done_fn done, void *done_ctx)
{
	rp_ctl_consumer_acks(((struct sink_consumer *)consumer)->k, idx, count, done, done_ctx);
}

static void host_reject(void *consumer, uint64_t idx, rp_sink_done_fn done, void *done_ctx)
{
	rp_ctl_consumer_ack(((struct sink_consumer *)consumer)->k, idx, true, done, done_ctx);
}

static void host_send(void *ctx, struct rp_span queue, struct rp_span tail, struct rp_span value,
	rp_sink_done_fn done, void *done_ctx)
{
	struct ctl_sinks *sinks = ctx;

	rp_ctl_send(sinks->ctl, queue, tail, value, done, done_ctx);
}

/* ---- who writes which queue ---- */

static bool is_online(struct rp_ctl *ctl, uint64_t node)
{
	struct rp_repl *repl = rp_control_repl(ctl->control);
	rp_repl_peer_id peer = rp_repl_peer_of_node(repl, node);
	struct rp_repl_peer_info info;

	return peer != RP_REPL_NO_PEER && rp_repl_peer_get(repl, peer, &info) &&
	       info.state == RP_REPL_ONLINE;
}

struct names {
	struct rp_ctl *ctl;
	uint32_t count;
	bool others; /**< a consumer of another node is there */
	struct {
		size_t length;
		uint8_t bytes[RP_NAME_BYTES_MAX];
	} items[];
};

static bool take_name(void *ctx, const struct rp_kv_version *v)
{
	struct names *names = ctx;
	struct rp_span key = rp_kv_version_key(v);
	struct rp_route_key k;

	rp_route_key_parse(&k, key.data, key.length);
	if (k.kind == RP_KEY_DISPATCHER && k.clickhouse) {
		names->items[names->count].length = k.name.length;
		memcpy(names->items[names->count++].bytes, k.name.data, k.name.length);
	}
	return names->count < QUEUES_MAX;
}

static bool take_other(void *ctx, const struct rp_kv_version *v)
{
	struct names *names = ctx;
	struct rp_span key = rp_kv_version_key(v), value = rp_kv_version_value(v);
	struct rp_consumer_record r;
	struct rp_route_key k;

	rp_route_key_parse(&k, key.data, key.length);
	names->others = k.kind == RP_KEY_CONSUMER &&
			rp_route_consumer_parse(&r, value.data, value.length) == 0 &&
			r.node != names->ctl->config.self.node && is_online(names->ctl, r.node);
	return !names->others;
}

static void clickhouse_queue(void *ctx, const struct rp_clickhouse_state *state)
{
	struct ctl_sinks *s = ctx;

	/* One whose record is gone has ended. */
	if (ctl_dispatcher_record(s->ctl, state->queue).length == 0)
		rp_clickhouse_queue(s->clickhouse, state->queue, false);
}

static void look_clickhouse(struct ctl_sinks *s)
{
	static const char *const roots[][2] = {
		{"/q/ch:", "/q/ch;"}, {"/q/clickhouse:", "/q/clickhouse;"}};
	struct names *names = calloc(1, sizeof(*names) + QUEUES_MAX * sizeof(names->items[0]));

	RP_ASSERT(names != NULL);
	for (size_t i = 0; i < RP_ARRAY_SIZE(roots); i++)
		if (names->count < QUEUES_MAX)
			rp_ctl_range(s->ctl,
				(struct rp_span){(const uint8_t *)roots[i][0], strlen(roots[i][0])},
				(struct rp_span){(const uint8_t *)roots[i][1], strlen(roots[i][1])},
				0, take_name, names);
	rp_clickhouse_each(s->clickhouse, clickhouse_queue, s);
	for (uint32_t i = 0; i < names->count; i++)
		rp_clickhouse_queue(s->clickhouse,
			(struct rp_span){names->items[i].bytes, names->items[i].length}, true);
	free(names);
}

/* Its dispatcher does; and where that hosts nobody, this node, so that it may become it. */
static bool consumes(struct ctl_sinks *s, struct rp_span name)
{
	struct rp_span record = ctl_dispatcher_record(s->ctl, name);
	uint8_t key[3 + RP_NAME_BYTES_MAX + 3], end[sizeof(key)];
	struct rp_dispatcher_record r;
	struct names names = {.ctl = s->ctl};
	int n;

	if (record.length == 0 || rp_route_dispatcher_parse(&r, record.data, record.length) != 0)
		return false;
	if (r.node == s->ctl->config.self.node)
		return true;
	n = snprintf(
		(char *)key, sizeof(key), "/q/%.*s/c/", (int)name.length, (const char *)name.data);
	memcpy(end, key, (size_t)n);
	end[n - 1]++;
	rp_ctl_range(s->ctl, (struct rp_span){key, (size_t)n}, (struct rp_span){end, (size_t)n}, 0,
		take_other, &names);
	return !names.others;
}

static void look_postgres(struct ctl_sinks *s)
{
	for (unsigned i = 0; i < rp_postgres_entry_count(s->postgres); i++) {
		bool is_prefix;
		struct rp_span event = rp_postgres_event(s->postgres, i, &is_prefix);

		if (!is_prefix)
			rp_postgres_queue(s->postgres, i, consumes(s, event));
	}
}

static void on_look(void *ctx)
{
	struct ctl_sinks *s = ctx;

	if (s->clickhouse)
		look_clickhouse(s);
	if (s->postgres)
		look_postgres(s);
	rp_loop_timer_in(s->ctl->loop, &s->timer, LOOK_NS);
}

static void on_record(void *ctx, const struct rp_kv_version *v)
{
	struct ctl_sinks *s = ctx;

	rp_loop_task_post(s->ctl->loop, &s->task);
}

static void watch_records(struct ctl_sinks *s, const char *from, const char *to)
{
	static const struct rp_ctl_watch_ops ops = {.event = on_record};

	s->watches[s->watch_count++] =
		rp_ctl_watch(s->ctl, (struct rp_span){(const uint8_t *)from, strlen(from)},
			(struct rp_span){(const uint8_t *)to, strlen(to)}, 0, &ops, s);
}

/* ---- prefixes ---- */

static bool on_events(void *ctx, struct rp_kv_watcher *w, int64_t revision,
	const struct rp_kv_event *events, uint32_t count)
{
	struct sink_prefix *x = ctx;
	struct ctl_sinks *s = x->ctl->sinks;

	if (!rp_postgres_has_room(s->postgres, x->entry))
		return false;
	for (uint32_t i = 0; i < count; i++) {
		const struct rp_kv_version *v = events[i].kv;

		if (v->node != x->ctl->config.self.node)
			continue;
		if (v->deleted)
			rp_postgres_deleted(s->postgres, x->entry);
		else
			rp_postgres_put(s->postgres, x->entry, rp_kv_version_key(v),
				rp_kv_version_value(v));
	}
	return true;
}

static void prefix_watch(struct sink_prefix *x);

static void on_compacted(void *ctx, struct rp_kv_watcher *w, int64_t compacted_revision)
{
	struct sink_prefix *x = ctx;

	rp_postgres_missed(x->ctl->sinks->postgres, x->entry);
	prefix_watch(x);
}

static void prefix_watch(struct sink_prefix *x)
{
	static const struct rp_kv_watch_ops ops = {
		.on_events = on_events, .on_compacted = on_compacted};
	bool is_prefix;
	struct rp_span key = rp_postgres_event(x->ctl->sinks->postgres, x->entry, &is_prefix);
	char *end = strndup((const char *)key.data, key.length);
	struct rp_kv_watch_options o = {.key = key, .ops = &ops, .ctx = x};

	/* It begins with '/', so there is a last byte that can be one more. */
	RP_ASSERT(end != NULL);
	o.end = (struct rp_span){(const uint8_t *)end, key.length};
	while ((uint8_t)end[o.end.length - 1] == 0xff)
		o.end.length--;
	end[o.end.length - 1]++;
	x->watcher = rp_kv_watch(rp_control_kv(x->ctl->control), &o);
	free(end);
	RP_ASSERT(x->watcher != NULL);
}

static void on_room(void *ctx, unsigned entry)
{
	struct ctl_sinks *s = ctx;

	rp_kv_watcher_resume(s->prefixes[entry].watcher);
	ctl_kick(s->ctl);
}

void ctl_sinks_ready(struct rp_ctl *ctl)
{
	struct ctl_sinks *s = ctl->sinks;

	if (!s || s->ready)
		return;
	s->ready = true;
	if (s->clickhouse)
		watch_records(s, "/q/c", "/q/d");
	for (unsigned i = 0; s->postgres && i < rp_postgres_entry_count(s->postgres); i++) {
		bool is_prefix;
		struct rp_span event = rp_postgres_event(s->postgres, i, &is_prefix);
		char from[RP_NAME_BYTES_MAX + 4], to[RP_NAME_BYTES_MAX + 5];

		if (is_prefix) {
			s->prefixes[i] = (struct sink_prefix){.ctl = ctl, .entry = i};
			prefix_watch(&s->prefixes[i]);
			continue;
		}
		snprintf(
			from, sizeof(from), "/q/%.*s", (int)event.length, (const char *)event.data);
		snprintf(to, sizeof(to), "%s0", from);
		watch_records(s, from, to);
	}
	on_look(s);
}

/* ---- creation ---- */

static struct rp_clickhouse_limits limits_of(const struct rp_conf *c)
{
	return (struct rp_clickhouse_limits){
		.batch_rows = c->clickhouse.batch_rows,
		.batch_bytes = c->clickhouse.batch_bytes,
		.batch_ms = c->clickhouse.batch_ms,
		.in_flight = c->clickhouse.in_flight,
	};
}

static int create_clickhouse(struct ctl_sinks *s, char *error, size_t error_size)
{
	const struct rp_conf *c = s->ctl->conf;
	struct rp_clickhouse_config config = {
		.loop = s->ctl->loop,
		.host = &s->host,
		.url = c->clickhouse_url,
		.database = c->clickhouse_db,
		.node = s->ctl->config.self.node,
		.limits = limits_of(c),
	};

	s->clickhouse = rp_clickhouse_create(&config);
	if (s->clickhouse)
		return 0;
	snprintf(error, error_size, "clickhouse_url: expected http://[user[:password]@]host:port");
	return -EINVAL;
}

static int create_postgres(struct ctl_sinks *s, char *error, size_t error_size)
{
	const struct rp_conf *c = s->ctl->conf;
	struct rp_postgres_config config = {
		.loop = s->ctl->loop,
		.host = &s->host,
		.url = c->postgres.url,
		.upsert = c->postgres.upsert,
		.dead_letter = c->postgres.dead_letter,
		.room = on_room,
		.ctx = s,
	};
	char why[300];

	s->postgres = rp_postgres_create(&config, why, sizeof(why));
	if (s->postgres)
		return 0;
	snprintf(error, error_size, "postgres.upsert: %s", why);
	return -EINVAL;
}

int ctl_sinks_create(struct rp_ctl *ctl, char *error, size_t error_size)
{
	const struct rp_conf *c = ctl->conf;
	struct ctl_sinks *s = calloc(1, sizeof(*s));
	int rc = 0;

	RP_ASSERT(s != NULL);
	s->ctl = ctl;
	s->host = (struct rp_sink_host){
		.ctx = s,
		.consume = host_consume,
		.close = host_close,
		.ack = host_ack,
		.acks = host_acks,
		.reject = host_reject,
		.send = host_send,
	};
	rp_list_init(&s->consumers);
	rp_loop_timer_setup(&s->timer, on_look, s);
	rp_loop_task_setup(&s->task, on_look, s);
	ctl->sinks = s;
	if (c->clickhouse_url[0])
		rc = create_clickhouse(s, error, error_size);
	if (rc == 0 && c->postgres.url[0] && c->postgres.upsert[0])
		rc = create_postgres(s, error, error_size);
	return rc;
}

void ctl_sinks_destroy(struct rp_ctl *ctl)
{
	struct ctl_sinks *s = ctl->sinks;

	if (!s)
		return;
	for (unsigned i = 0; i < RP_POSTGRES_ENTRIES_MAX; i++)
		rp_kv_watcher_cancel(s->prefixes[i].watcher);
	for (unsigned i = 0; i < s->watch_count; i++)
		rp_ctl_unwatch(s->watches[i]);
	rp_clickhouse_destroy(s->clickhouse);
	rp_postgres_destroy(s->postgres);
	while (!rp_list_empty(&s->consumers))
		host_close(rp_list_entry(s->consumers.next, struct sink_consumer, node));
	rp_loop_timer_cancel(&s->timer);
	rp_loop_task_cancel(&s->task);
	free(s);
	ctl->sinks = NULL;
}

void ctl_sinks_use(struct rp_ctl *ctl, const struct rp_conf *c)
{
	struct rp_clickhouse_limits limits = limits_of(c);

	if (ctl->sinks && ctl->sinks->clickhouse)
		rp_clickhouse_set_limits(ctl->sinks->clickhouse, &limits);
}

void ctl_sinks_pause(struct rp_ctl *ctl, bool on)
{
	struct ctl_sinks *s = ctl->sinks;

	if (s->clickhouse)
		rp_clickhouse_pause(s->clickhouse, on);
	if (s->postgres)
		rp_postgres_pause(s->postgres, on);
}

bool ctl_sinks_busy(struct rp_ctl *ctl)
{
	struct ctl_sinks *s = ctl->sinks;

	return (s->clickhouse && rp_clickhouse_busy(s->clickhouse)) ||
	       (s->postgres && rp_postgres_busy(s->postgres));
}

/* ---- metrics ---- */

static void label_of(char *label, size_t size, const char *name, struct rp_span value)
{
	char text[RP_NAME_BYTES_MAX + 1], escaped[2 * RP_NAME_BYTES_MAX + 2];

	snprintf(text, sizeof(text), "%.*s", (int)value.length, (const char *)value.data);
	rp_metrics_label(escaped, sizeof(escaped), text);
	snprintf(label, size, "%s=\"%s\"", name, escaped);
}

static void metrics_clickhouse(void *ctx, const struct rp_clickhouse_state *state)
{
	char label[2 * RP_NAME_BYTES_MAX + 32];

	label_of(label, sizeof(label), "queue", state->queue);
	rp_metrics_add(ctx, RP_METRIC_clickhouse_held, label, state->held);
	rp_metrics_add(ctx, RP_METRIC_clickhouse_held_bytes, label, state->held_bytes);
	rp_metrics_add(ctx, RP_METRIC_clickhouse_failures, label, state->failures);
}

static void metrics_postgres(void *ctx, const struct rp_postgres_state *state)
{
	char label[2 * RP_NAME_BYTES_MAX + 32];

	label_of(label, sizeof(label), "event", state->event);
	rp_metrics_add(ctx, RP_METRIC_postgres_held, label, state->held);
	rp_metrics_add(ctx, RP_METRIC_postgres_failures, label, state->failures);
}

void ctl_sinks_metrics(struct rp_ctl *ctl, struct rp_metrics *m)
{
	struct ctl_sinks *s = ctl->sinks;

	if (s->clickhouse) {
		const struct rp_clickhouse_counters *c = rp_clickhouse_counters(s->clickhouse);

#define X(field, text) rp_metrics_add(m, RP_METRIC_clickhouse_##field, "", c->field);
		RP_CLICKHOUSE_COUNTERS(X)
#undef X
		rp_metrics_add(m, RP_METRIC_clickhouse_in_flight, "",
			rp_clickhouse_in_flight(s->clickhouse));
		rp_clickhouse_each(s->clickhouse, metrics_clickhouse, m);
	}
	if (s->postgres) {
		const struct rp_postgres_counters *c = rp_postgres_counters(s->postgres);

#define X(field, text) rp_metrics_add(m, RP_METRIC_postgres_##field, "", c->field);
		RP_POSTGRES_COUNTERS(X)
#undef X
		rp_postgres_each(s->postgres, metrics_postgres, m);
	}
}
