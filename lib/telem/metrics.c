/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <telem/metrics.h>

void rp_metrics_init(struct rp_metrics *m)
{
	*m = (struct rp_metrics){0};
}

void rp_metrics_free(struct rp_metrics *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->items[i].labels);
		free(m->items[i].histogram);
	}
	free(m->items);
	rp_metrics_init(m);
}

void rp_metrics_add(struct rp_metrics *m, enum rp_metric_id id, const char *labels, uint64_t value)
{
	struct rp_metric *item;

	if (m->count == m->size) {
		m->size = m->size ? 2 * m->size : 512;
		m->items = realloc(m->items, m->size * sizeof(*m->items));
		RP_ASSERT(m->items != NULL);
	}
	item = &m->items[m->count++];
	*item = (struct rp_metric){.id = id, .labels = strdup(labels), .value = value};
	RP_ASSERT(item->labels != NULL);
}

void rp_metrics_add_histogram(struct rp_metrics *m, enum rp_metric_id id, const char *labels,
	const struct rp_metric_histogram *h)
{
	struct rp_metric_histogram *copy = malloc(sizeof(*copy));
	uint64_t count = 0;

	RP_ASSERT(copy != NULL && h->buckets > 0 && h->buckets <= RP_METRIC_BUCKETS_MAX);
	*copy = *h;
	for (unsigned i = 0; i < h->buckets; i++)
		count += h->counts[i];
	rp_metrics_add(m, id, labels, count);
	m->items[m->count - 1].histogram = copy;
}

void rp_metrics_label(char *out, size_t size, const char *value)
{
	size_t n = 0;

	for (; *value && n + 2 < size; value++) {
		if (*value == '"' || *value == '\\' || *value == '\n')
			out[n++] = '\\';
		out[n++] = *value == '\n' ? 'n' : *value;
	}
	out[n] = '\0';
}

/* ---- one shard ---- */

static void add_times(struct rp_metrics *m, enum rp_metric_id id, const char *labels,
	const struct rp_queue_times *t)
{
	struct rp_metric_histogram h = {.buckets = RP_QUEUE_TIMES_BUCKETS, .sum = t->sum_ns};
	uint64_t bound_ns = RP_NS_PER_US;

	_Static_assert(RP_QUEUE_TIMES_BUCKETS <= RP_METRIC_BUCKETS_MAX, "they fit");
	for (unsigned i = 0; i < RP_QUEUE_TIMES_BUCKETS; i++, bound_ns *= 4) {
		h.bounds[i] = bound_ns;
		h.counts[i] = t->buckets[i];
	}
	rp_metrics_add_histogram(m, id, labels, &h);
}

/* Bucket i of a burst has up to 2^i. */
static void add_bursts(struct rp_metrics *m, enum rp_metric_id id, const char *labels,
	const struct rp_engine_bursts *b)
{
	struct rp_metric_histogram h = {.buckets = RP_ENGINE_BURST_BUCKETS + 1, .sum = b->sum};

	_Static_assert(RP_ENGINE_BURST_BUCKETS < RP_METRIC_BUCKETS_MAX, "they fit");
	for (unsigned i = 0; i < RP_ENGINE_BURST_BUCKETS; i++) {
		h.bounds[i] = 1u << i;
		h.counts[i] = b->counts[i];
	}
	rp_metrics_add_histogram(m, id, labels, &h);
}

static void add_loop(struct rp_metrics *m, const char *labels, const struct rp_engine_loop *l)
{
	rp_metrics_add(m, RP_METRIC_shard_loops, labels, l->loops);
	rp_metrics_add(m, RP_METRIC_shard_busy_loops, labels, l->busy_loops);
	rp_metrics_add(m, RP_METRIC_shard_slow_loops, labels, l->slow_loops);
	rp_metrics_add(m, RP_METRIC_shard_busy, labels, l->busy_ns);
	rp_metrics_add(m, RP_METRIC_shard_idle, labels, l->idle_ns);
	rp_metrics_add(m, RP_METRIC_shard_busy_share, labels, l->busy_ppm);
	rp_metrics_add(m, RP_METRIC_shard_sleeps, labels, l->sleeps);
	rp_metrics_add(m, RP_METRIC_shard_loop_gap, labels, l->gap_ns_max);
	rp_metrics_add(m, RP_METRIC_shard_items, labels, l->items);
	rp_metrics_add(m, RP_METRIC_shard_item_cycles, labels, l->item_cycles);
	rp_metrics_add(m, RP_METRIC_shard_message_cycles, labels, l->message_cycles);
	add_bursts(m, RP_METRIC_shard_rx_burst, labels, &l->rx_bursts);
	add_bursts(m, RP_METRIC_shard_ring_burst, labels, &l->ring_bursts);
}

static void add_engine(struct rp_metrics *m, const char *labels, const struct rp_engine_snapshot *s)
{
#define X(field, text) rp_metrics_add(m, RP_METRIC_engine_##field, labels, s->engine.field);
	RP_ENGINE_COUNTERS(X)
#undef X
}

static void add_queue(struct rp_metrics *m, const char *labels, const struct rp_queue_totals *q)
{
#define X(field, text) rp_metrics_add(m, RP_METRIC_queue_##field, labels, q->counters.field);
#include <queue/queue_counters.def>
#undef X
	rp_metrics_add(m, RP_METRIC_queue_queues, labels, q->queues);
	rp_metrics_add(m, RP_METRIC_queue_messages, labels, q->messages);
	rp_metrics_add(m, RP_METRIC_queue_handing, labels, q->handing);
	rp_metrics_add(m, RP_METRIC_queue_bytes, labels, q->bytes);
	rp_metrics_add(m, RP_METRIC_queue_consumers, labels, q->consumers);
	rp_metrics_add(m, RP_METRIC_queue_holds, labels, q->holds);
	rp_metrics_add(m, RP_METRIC_queue_requests, labels, q->requests);
	rp_metrics_add(m, RP_METRIC_queue_producers, labels, q->producers);
	add_times(m, RP_METRIC_queue_wait, labels, &q->wait);
	add_times(m, RP_METRIC_queue_accept, labels, &q->accept);
}

static void add_one_queue(
	struct rp_metrics *m, unsigned shard, const struct rp_engine_queue_view *v)
{
	char name[2 * RP_NAME_BYTES_MAX + 2], labels[sizeof(name) + 64];
	const struct rp_queue_info *i = &v->info;

	rp_metrics_label(name, sizeof(name), v->name);
	snprintf(labels, sizeof(labels), "queue=\"%s\",shard=\"%u\"", name, shard);
	rp_metrics_add(m, RP_METRIC_queue_depth, labels, i->depth);
	rp_metrics_add(m, RP_METRIC_queue_waiting, labels, i->waiting);
	rp_metrics_add(m, RP_METRIC_queue_in_flight, labels, i->in_flight);
	rp_metrics_add(m, RP_METRIC_queue_dispatching, labels, i->dispatching);
	rp_metrics_add(m, RP_METRIC_queue_waiting_oldest, labels, i->waiting_oldest_ns);
	rp_metrics_add(m, RP_METRIC_queue_in_flight_oldest, labels, i->in_flight_oldest_ns);
}

static void add_reason(struct rp_metrics *m, enum rp_metric_id id, unsigned shard,
	const char *reason, uint64_t value)
{
	char text[96], labels[160];

	rp_metrics_label(text, sizeof(text), reason);
	snprintf(labels, sizeof(labels), "reason=\"%s\",shard=\"%u\"", text, shard);
	rp_metrics_add(m, id, labels, value);
}

static void add_deliver(struct rp_metrics *m, unsigned shard, const char *labels,
	const struct rp_engine_snapshot *s)
{
	const struct rp_deliver_counters *d = &s->deliver;

#define X(field, text) rp_metrics_add(m, RP_METRIC_deliver_##field, labels, d->field);
	RP_DELIVER_COUNTERS(X)
#undef X
	rp_metrics_add(m, RP_METRIC_deliver_streams_out, labels, s->deliver_info.streams_out);
	rp_metrics_add(m, RP_METRIC_deliver_streams_in, labels, s->deliver_info.streams_in);
	rp_metrics_add(m, RP_METRIC_deliver_messages, labels, s->deliver_info.messages);
	for (unsigned i = 0; i < RP_DELIVER_FALLBACK_COUNT; i++)
		add_reason(m, RP_METRIC_deliver_fallbacks, shard, rp_deliver_fallback_text(i),
			d->fallbacks[i]);
	for (unsigned i = 0; i < RP_DELIVER_VIOLATION_COUNT; i++)
		add_reason(m, RP_METRIC_deliver_violations, shard, rp_deliver_violation_text(i),
			d->violations[i]);
}

static void add_links(struct rp_metrics *m, unsigned shard, const char *labels,
	const struct rp_engine_snapshot *s)
{
	const struct rp_link_counters *l = &s->links;

#define X(field, text) rp_metrics_add(m, RP_METRIC_link_##field, labels, l->field);
	RP_LINK_COUNTERS(X)
#undef X
	rp_metrics_add(m, RP_METRIC_link_bundles_up, labels, s->links_up);
	for (unsigned i = 0; i < RP_LINK_DOWN_COUNT; i++)
		add_reason(m, RP_METRIC_link_downs, shard, rp_link_down_text(i), l->downs[i]);
	for (unsigned i = 0; i < RP_LINK_REFUSAL_COUNT; i++) {
		add_reason(m, RP_METRIC_link_handshakes_refused, shard, rp_link_refusal_text(i),
			l->refused[i]);
		add_reason(m, RP_METRIC_link_dials_refused, shard, rp_link_refusal_text(i),
			l->refused_out[i]);
	}
}

static void add_ktcp(struct rp_metrics *m, const char *labels, const struct rp_engine_snapshot *s)
{
	struct rp_ktcp_counters k;

	memcpy(&k, s->ktcp, sizeof(k));
#define X(field, text) rp_metrics_add(m, RP_METRIC_ktcp_##field, labels, k.field);
	RP_KTCP_COUNTERS(X)
#undef X
}

static void add_tcp(struct rp_metrics *m, const char *labels, const struct rp_engine_snapshot *s)
{
#define X(field, text) rp_metrics_add(m, RP_METRIC_tcp_##field, labels, s->tcp.field);
#include <tcp/tcp_counters.def>
#undef X
#define X(field, text) rp_metrics_add(m, RP_METRIC_net_##field, labels, s->net.field);
#include <net/net_counters.def>
#undef X
	rp_metrics_add(m, RP_METRIC_tcp_connections, labels, s->tcp_usage.connections);
	rp_metrics_add(m, RP_METRIC_tcp_time_wait, labels, s->tcp_usage.time_wait);
}

void rp_metrics_shard(struct rp_metrics *m, unsigned shard, const struct rp_engine_snapshot *s)
{
	char labels[32];

	snprintf(labels, sizeof(labels), "shard=\"%u\"", shard);
	add_loop(m, labels, &s->loop);
	add_engine(m, labels, s);
	add_queue(m, labels, &s->queue);
	for (uint32_t i = 0; i < s->queue_count; i++)
		add_one_queue(m, shard, &s->queues[i]);
	add_deliver(m, shard, labels, s);
	if (s->has_links)
		add_links(m, shard, labels, s);
	if (s->has_ktcp)
		add_ktcp(m, labels, s);
	if (s->has_tcp)
		add_tcp(m, labels, s);
}
