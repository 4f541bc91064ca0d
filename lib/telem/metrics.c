/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <ktcp/ktcp.h>
#include <telem/metrics.h>

void rp_metrics_init(struct rp_metrics *m)
{
	*m = (struct rp_metrics){0};
}

void rp_metrics_free(struct rp_metrics *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->items[i].labels);
		free(m->items[i].times);
	}
	free(m->items);
	rp_metrics_init(m);
}

void rp_metrics_add_as(struct rp_metrics *m, const char *name, const char *help, const char *labels,
	uint64_t value, bool gauge)
{
	struct rp_metric *item;

	if (m->count == m->size) {
		m->size = m->size ? 2 * m->size : 512;
		m->items = realloc(m->items, m->size * sizeof(*m->items));
		RP_ASSERT(m->items != NULL);
	}
	item = &m->items[m->count++];
	snprintf(item->name, sizeof(item->name), "%s", name);
	item->labels = strdup(labels);
	RP_ASSERT(item->labels != NULL);
	item->help = help;
	item->value = value;
	item->parts = 1;
	item->gauge = gauge;
	item->times = NULL;
}

void rp_metrics_add_times(struct rp_metrics *m, const char *name, const char *help,
	const char *labels, const struct rp_queue_times *times)
{
	struct rp_queue_times *copy = malloc(sizeof(*copy));

	RP_ASSERT(copy != NULL);
	*copy = *times;
	rp_metrics_add_as(m, name, help, labels, times->count, true);
	m->items[m->count - 1].times = copy;
}

void rp_metrics_add_micros(struct rp_metrics *m, const char *name, const char *help,
	const char *labels, uint64_t micros, bool gauge)
{
	rp_metrics_add_as(m, name, help, labels, micros, gauge);
	m->items[m->count - 1].parts = 1000000;
}

void rp_metrics_add(struct rp_metrics *m, const char *module, const char *name, const char *help,
	const char *labels, uint64_t value, bool gauge)
{
	char whole[sizeof(m->items[0].name)];

	snprintf(whole, sizeof(whole), "ringpost_%s_%s", module, name);
	rp_metrics_add_as(m, whole, help, labels, value, gauge);
}

/* ---- one shard ---- */

static void add_engine(struct rp_metrics *m, const char *labels, const struct rp_engine_snapshot *s)
{
#define X(field, text) rp_metrics_add(m, "engine", #field, text, labels, s->engine.field, false);
	RP_ENGINE_COUNTERS(X)
#undef X
	rp_metrics_add(m, "shard", "loops", "turns of the loop", labels, s->loops, false);
	rp_metrics_add(m, "shard", "busy_loops", "turns with work", labels, s->busy_loops, false);
	rp_metrics_add(m, "shard", "busy_ns", "time in turns with work", labels, s->busy_ns, false);
	rp_metrics_add(m, "shard", "idle_ns", "time in turns without work, and asleep", labels,
		s->idle_ns, false);
	rp_metrics_add(m, "shard", "sleeps", "times the loop slept", labels, s->sleeps, false);
	rp_metrics_add(m, "shard", "loop_gap_ns_max", "longest turn of the last seconds", labels,
		s->loop_gap_ns_max, true);
}

static void add_queue(struct rp_metrics *m, const char *labels, const struct rp_queue_totals *q)
{
#define X(field, text) rp_metrics_add(m, "queue", #field, text, labels, q->counters.field, false);
#include <queue/queue_counters.def>
#undef X
	rp_metrics_add(m, "queue", "queues", "queues known", labels, q->queues, true);
	rp_metrics_add(m, "queue", "messages", "messages here", labels, q->messages, true);
	rp_metrics_add(m, "queue", "bytes", "bytes of messages here", labels, q->bytes, true);
	rp_metrics_add(m, "queue", "consumers", "consumers known", labels, q->consumers, true);
	rp_metrics_add(
		m, "queue", "holds", "deliveries with local clients", labels, q->holds, true);
	rp_metrics_add(
		m, "queue", "requests", "operations on their way", labels, q->requests, true);
	rp_metrics_add(m, "queue", "producers", "producers remembered", labels, q->producers, true);
	rp_metrics_add_times(m, "ringpost_queue_wait_seconds",
		"from a put to the offer that reached its client", labels, &q->wait);
	rp_metrics_add_times(m, "ringpost_queue_accept_seconds",
		"from an offer to its place in the client's connection", labels, &q->accept);
}

static void add_one_queue(
	struct rp_metrics *m, unsigned shard, const struct rp_engine_queue_view *v)
{
	char labels[2 * RP_NAME_BYTES_MAX + 64], *p = labels;

	p += sprintf(p, "queue=\"");
	for (const char *c = v->name; *c; c++) {
		if (*c == '"' || *c == '\\')
			*p++ = '\\';
		*p++ = *c == '\n' ? ' ' : *c;
	}
	sprintf(p, "\",shard=\"%u\"", shard);
	rp_metrics_add(
		m, "queue", "depth", "messages of the queue here", labels, v->info.depth, true);
	rp_metrics_add(m, "queue", "waiting", "of those, not with a consumer", labels,
		v->info.waiting, true);
	rp_metrics_add(m, "queue", "in_flight", "of those, with a consumer", labels,
		v->info.in_flight, true);
	rp_metrics_add(m, "queue", "dispatching", "1 where this node dispatches the queue", labels,
		v->info.dispatching, true);
	rp_metrics_add(m, "queue", "waiting_oldest_ns", "age of the oldest waiting message", labels,
		v->info.waiting_oldest_ns, true);
	rp_metrics_add(m, "queue", "in_flight_oldest_ns",
		"age of the oldest message with a consumer", labels, v->info.in_flight_oldest_ns,
		true);
}

static void add_deliver(struct rp_metrics *m, unsigned shard, const struct rp_engine_snapshot *s)
{
	const struct rp_deliver_counters *d = &s->deliver;
	char labels[160];

	snprintf(labels, sizeof(labels), "shard=\"%u\"", shard);
#define X(field) \
	rp_metrics_add(m, "deliver", #field, "see docs/protocol.md", labels, d->field, false);
	RP_DELIVER_COUNTERS(X)
#undef X
	rp_metrics_add(m, "deliver", "streams_out", "streams open to peers", labels,
		s->deliver_info.streams_out, true);
	rp_metrics_add(m, "deliver", "streams_in", "streams open from peers", labels,
		s->deliver_info.streams_in, true);
	rp_metrics_add(m, "deliver", "messages", "messages waiting or unconfirmed", labels,
		s->deliver_info.messages, true);
	for (unsigned i = 0; i < RP_DELIVER_FALLBACK_COUNT; i++) {
		snprintf(labels, sizeof(labels), "reason=\"%s\",shard=\"%u\"",
			rp_deliver_fallback_text(i), shard);
		rp_metrics_add(m, "deliver", "fallbacks", "times a queue went from stream to unary",
			labels, d->fallbacks[i], false);
	}
	for (unsigned i = 0; i < RP_DELIVER_VIOLATION_COUNT; i++) {
		snprintf(labels, sizeof(labels), "reason=\"%s\",shard=\"%u\"",
			rp_deliver_violation_text(i), shard);
		rp_metrics_add(m, "deliver", "violations", "bundles closed for a peer's fault",
			labels, d->violations[i], false);
	}
}

static void add_links(struct rp_metrics *m, unsigned shard, const struct rp_engine_snapshot *s)
{
	const struct rp_link_counters *l = &s->links;
	char labels[160];

	snprintf(labels, sizeof(labels), "shard=\"%u\"", shard);
#define X(field, text) rp_metrics_add(m, "link", #field, text, labels, l->field, false);
	RP_LINK_COUNTERS(X)
#undef X
	rp_metrics_add(m, "link", "bundles_up", "peers with a link", labels, s->links_up, true);
	for (unsigned i = 0; i < RP_LINK_DOWN_COUNT; i++) {
		snprintf(labels, sizeof(labels), "reason=\"%s\",shard=\"%u\"", rp_link_down_text(i),
			shard);
		rp_metrics_add(
			m, "link", "downs", "bundles that went down", labels, l->downs[i], false);
	}
	for (unsigned i = 0; i < RP_LINK_REFUSAL_COUNT; i++) {
		snprintf(labels, sizeof(labels), "reason=\"%s\",shard=\"%u\"",
			rp_link_refusal_text(i), shard);
		rp_metrics_add(m, "link", "handshakes_refused", "inbound handshakes refused",
			labels, l->refused[i], false);
		rp_metrics_add(m, "link", "dials_refused", "handshakes of our dials that failed",
			labels, l->refused_out[i], false);
	}
}

static void add_ktcp(struct rp_metrics *m, const char *labels, const struct rp_engine_snapshot *s)
{
	struct rp_ktcp_counters k;

	memcpy(&k, s->ktcp, sizeof(k));
#define X(field, text) rp_metrics_add(m, "ktcp", #field, text, labels, k.field, false);
	RP_KTCP_COUNTERS(X)
#undef X
}

static void add_tcp(struct rp_metrics *m, const char *labels, const struct rp_engine_snapshot *s)
{
#define X(field, text) rp_metrics_add(m, "tcp", #field, text, labels, s->tcp.field, false);
#include <tcp/tcp_counters.def>
#undef X
#define X(field, text) rp_metrics_add(m, "net", #field, text, labels, s->net.field, false);
#include <net/net_counters.def>
#undef X
	rp_metrics_add(
		m, "tcp", "connections", "connections now", labels, s->tcp_usage.connections, true);
	rp_metrics_add(m, "tcp", "time_wait", "records in TIME-WAIT", labels,
		s->tcp_usage.time_wait, true);
}

void rp_metrics_shard(struct rp_metrics *m, unsigned shard, const struct rp_engine_snapshot *s)
{
	char labels[32];

	snprintf(labels, sizeof(labels), "shard=\"%u\"", shard);
	add_engine(m, labels, s);
	add_queue(m, labels, &s->queue);
	for (uint32_t i = 0; i < s->queue_count; i++)
		add_one_queue(m, shard, &s->queues[i]);
	add_deliver(m, shard, s);
	if (s->has_links)
		add_links(m, shard, s);
	if (s->has_ktcp)
		add_ktcp(m, labels, s);
	if (s->has_tcp)
		add_tcp(m, labels, s);
}

/* ---- text ---- */

static int by_name(const void *a, const void *b)
{
	const struct rp_metric *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : strcmp(x->labels, y->labels);
}

enum rp_metrics_format rp_metrics_format_of(const char *accept, const char **content_type)
{
	if (accept && strstr(accept, "application/openmetrics-text")) {
		*content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
		return RP_METRICS_OPENMETRICS;
	}
	*content_type = "text/plain; version=0.0.4; charset=utf-8";
	return RP_METRICS_PROMETHEUS;
}

static void seconds_write(FILE *f, uint64_t ns)
{
	fprintf(f, "%llu.%09llu\n", (unsigned long long)ns / RP_NS_PER_S,
		(unsigned long long)ns % RP_NS_PER_S);
}

/* Buckets are cumulative. */
static void times_write(FILE *f, const struct rp_metric *x)
{
	const char *comma = x->labels[0] ? "," : "";
	uint64_t sum = 0, le_us = 1;

	for (unsigned i = 0; i < RP_QUEUE_TIMES_BUCKETS; i++, le_us *= 4) {
		sum += x->times->buckets[i];
		if (i + 1 < RP_QUEUE_TIMES_BUCKETS)
			fprintf(f, "%s_bucket{%s%sle=\"%" PRIu64 ".%06" PRIu64 "\"} %" PRIu64 "\n",
				x->name, x->labels, comma, le_us / 1000000, le_us % 1000000, sum);
		else
			fprintf(f, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", x->name, x->labels,
				comma, sum);
	}
	fprintf(f, "%s_sum{%s} ", x->name, x->labels);
	seconds_write(f, x->times->sum_ns);
	fprintf(f, "%s_count{%s} %" PRIu64 "\n", x->name, x->labels, sum);
}

char *rp_metrics_text(struct rp_metrics *m, enum rp_metrics_format format, size_t *length)
{
	bool open = format == RP_METRICS_OPENMETRICS;
	char *text = NULL;
	FILE *f = open_memstream(&text, length);

	RP_ASSERT(f != NULL);
	if (m->count > 0)
		qsort(m->items, m->count, sizeof(*m->items), by_name);
	for (size_t i = 0; i < m->count; i++) {
		const struct rp_metric *x = &m->items[i];
		const char *total = x->gauge ? "" : "_total";
		/* OpenMetrics names a counter's family without "_total", the older format with it.
		 */
		const char *family = open ? "" : total;

		if (i == 0 || strcmp(x->name, m->items[i - 1].name) != 0)
			fprintf(f, "# HELP %s%s %s\n# TYPE %s%s %s\n", x->name, family, x->help,
				x->name, family,
				x->times   ? "histogram"
				: x->gauge ? "gauge"
					   : "counter");
		if (x->times) {
			times_write(f, x);
			continue;
		}
		fprintf(f, x->labels[0] ? "%s%s{%s} %" PRIu64 : "%s%s%s %" PRIu64, x->name, total,
			x->labels, x->value / x->parts);
		if (x->parts > 1)
			fprintf(f, ".%06" PRIu64, x->value % x->parts);
		fputc('\n', f);
	}
	if (open)
		fputs("# EOF\n", f);
	fclose(f);
	return text;
}
