/* SPDX-License-Identifier: Apache-2.0 */

/* Pages of a shard's tables, for people. */

#include <string.h>

#include <base/mbuf.h>
#include <engine/shard_engine_priv.h>

static bool name_fits(const struct rp_engine_view *v, struct rp_span name)
{
	size_t length = strlen(v->name);

	if (v->exact ? name.length != length : name.length < length)
		return false;
	return memcmp(name.data, v->name, length) == 0;
}

static void text_of(char *out, struct rp_span text)
{
	if (text.length > 0)
		memcpy(out, text.data, text.length);
	out[text.length] = '\0';
}

static uint32_t slots_of(struct rp_engine *e, enum rp_engine_view_kind kind)
{
	switch (kind) {
	case RP_ENGINE_VIEW_QUEUES:
		return rp_queue_slots(e->queues);
	case RP_ENGINE_VIEW_CONSUMERS:
		return rp_queue_consumer_slots(e->queues);
	case RP_ENGINE_VIEW_STREAMS:
	case RP_ENGINE_VIEW_MESSAGES:
	case RP_ENGINE_VIEW_TRACES:
		break;
	}
	return rp_deliver_stream_slots(e->deliver);
}

/* False: nothing is at that position, or nothing that is wanted. */
static bool row_fill(struct rp_engine *e, const struct rp_engine_view *v, uint32_t slot,
	struct rp_engine_view_row *row, uint64_t now_ns)
{
	struct rp_span name = {0}, match = {0};
	bool there = false;

	switch (v->kind) {
	case RP_ENGINE_VIEW_QUEUES:
		there = rp_queue_at(e->queues, slot, &row->queue, now_ns);
		name = row->queue.name;
		break;
	case RP_ENGINE_VIEW_CONSUMERS:
		there = rp_queue_consumer_at(e->queues, slot, &row->consumer, now_ns);
		name = row->consumer.name;
		match = row->consumer.match;
		break;
	case RP_ENGINE_VIEW_STREAMS:
		there = rp_deliver_stream_at(e->deliver, slot, &row->stream, now_ns);
		name = row->stream.name;
		break;
	case RP_ENGINE_VIEW_MESSAGES:
	case RP_ENGINE_VIEW_TRACES:
		break;
	}
	if (!there || !name_fits(v, name))
		return false;
	text_of(row->name, name);
	text_of(row->match, match);
	return true;
}

/* One queue by its name, wherever it lies. */
static void queue_fill(struct rp_engine *e, struct rp_engine_view *v, uint64_t now_ns)
{
	struct rp_span name = {(const uint8_t *)v->name, strlen(v->name)};

	if (!rp_queue_info(e->queues, name, &v->rows[0].queue, now_ns))
		return;
	text_of(v->rows[0].name, name);
	v->row_count = 1;
	v->has_times = rp_queue_times_of(e->queues, name, &v->wait, &v->accept);
	v->place_count = rp_queue_places(e->queues, name, v->places, RP_PEERS_MAX);
}

static void messages_fill(struct rp_engine *e, struct rp_engine_view *v, uint64_t now_ns)
{
	struct rp_span name = {(const uint8_t *)v->name, strlen(v->name)};
	struct rp_queue_message_info infos[RP_ENGINE_VIEW_MESSAGES_MAX];

	v->message_count = rp_queue_messages(
		e->queues, name, v->cursor, infos, RP_ENGINE_VIEW_MESSAGES_MAX, now_ns);
	for (uint32_t i = 0; i < v->message_count; i++) {
		struct rp_engine_view_message *x = &v->messages[i];

		x->info = infos[i];
		x->value_length =
			infos[i].payload->pkt_len - infos[i].tail_length - infos[i].meta_length;
		rp_mbuf_copy_out(infos[i].payload, 0, x->tail, infos[i].tail_length);
		rp_mbuf_copy_out(infos[i].payload,
			(size_t)infos[i].tail_length + infos[i].meta_length, x->value,
			RP_MIN(x->value_length, (uint32_t)sizeof(x->value)));
		x->info.payload = NULL;
	}
	if (v->message_count == RP_ENGINE_VIEW_MESSAGES_MAX &&
		v->cursor + v->message_count <= RP_QUEUE_MESSAGES_REACH)
		v->next = v->cursor + v->message_count;
}

static void traces_fill(struct rp_engine *e, struct rp_engine_view *v, uint64_t now_ns)
{
	struct rp_span name = {(const uint8_t *)v->name, strlen(v->name)};
	struct rp_engine_view_trace *t = &v->trace;

	if (t->idx) {
		v->trace_count =
			rp_queue_trace(e->queues, name, t->idx, &v->traces[0], now_ns) ? 1 : 0;
		return;
	}
	if (t->next)
		t->above = rp_queue_trace_next(e->queues, name, t->next, t->for_ns, now_ns);
	if (!t->next && t->above)
		v->trace_count = rp_queue_traces(
			e->queues, name, t->above, v->traces, RP_QUEUE_TRACES, now_ns);
}

/* Of one queue by its name; false: the view is a page of a table. */
static bool named_fill(struct rp_engine *e, struct rp_engine_view *v, uint64_t now_ns)
{
	if (v->kind != RP_ENGINE_VIEW_MESSAGES && v->kind != RP_ENGINE_VIEW_TRACES &&
		(v->kind != RP_ENGINE_VIEW_QUEUES || !v->exact))
		return false;
	queue_fill(e, v, now_ns);
	if (v->kind == RP_ENGINE_VIEW_MESSAGES)
		messages_fill(e, v, now_ns);
	else if (v->kind == RP_ENGINE_VIEW_TRACES)
		traces_fill(e, v, now_ns);
	return true;
}

void engine_view_fill(struct rp_engine *e, struct rp_engine_view *v, uint64_t now_ns)
{
	uint32_t slots = slots_of(e, v->kind), at = v->cursor;

	v->filled = true;
	v->now_ns = now_ns;
	v->has_times = false;
	v->next = v->row_count = v->place_count = v->message_count = v->trace_count = 0;
	if (named_fill(e, v, now_ns))
		return;
	for (uint32_t n = 0; at < slots && n < RP_ENGINE_VIEW_SLOTS; n++, at++) {
		if (v->row_count == RP_ENGINE_VIEW_ROWS)
			break;
		if (row_fill(e, v, at, &v->rows[v->row_count], now_ns))
			v->row_count++;
	}
	if (at < slots)
		v->next = at;
}
