/* SPDX-License-Identifier: Apache-2.0 */

/* The callbacks that join the cores of a shard to each other and to the rings. */

#include <errno.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/log.h>
#include <base/mbuf.h>
#include <engine/shard_engine_priv.h>

struct rte_mbuf *engine_text(struct rp_engine *e, struct rp_span a, struct rp_span b)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(e->pool);

	if (!m)
		return NULL;
	/* Names and tails: two of them fit any buffer. */
	if (a.length > 0)
		memcpy(rte_pktmbuf_append(m, (uint16_t)a.length), a.data, a.length);
	if (b.length > 0)
		memcpy(rte_pktmbuf_append(m, (uint16_t)b.length), b.data, b.length);
	return m;
}

/* ---- deliver ---- */

static int deliver_unary_send(
	void *ctx, uint64_t node, uint32_t hash, struct rte_mbuf *frame, uint64_t token)
{
	struct rp_engine *e = ctx;
	struct rp_xmsg m = {
		.type = RP_XMSG_UNARY_OUT, .node = node, .hash = hash, .token = token, .m = frame};

	return e->ops->post(e->ctx, RP_ENGINE_CONTROL, &m);
}

static int deliver_on_msg(void *ctx, uint64_t node, const struct rp_qmsg *m, uint32_t *epoch,
	uint64_t *dispatcher, uint64_t now_ns)
{
	struct rp_engine *e = ctx;

	return rp_queue_on_msg(e->queues, node, m, epoch, dispatcher, now_ns);
}

static void deliver_on_took(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct rp_engine *e = ctx;

	rp_queue_on_took(e->queues, node, m, now_ns);
}

static void deliver_on_refused(void *ctx, uint64_t node, const struct rp_qmsg *m,
	enum rp_qstatus status, uint32_t epoch, uint64_t dispatcher, uint64_t now_ns)
{
	struct rp_engine *e = ctx;

	rp_queue_on_refused(e->queues, node, m, status, epoch, dispatcher, now_ns);
}

static void deliver_on_lost(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct rp_engine *e = ctx;

	rp_queue_on_lost(e->queues, node, m, now_ns);
}

static void deliver_on_room(void *ctx, uint64_t node, uint64_t now_ns)
{
	struct rp_engine *e = ctx;

	rp_queue_on_room(e->queues, node, now_ns);
}

static void deliver_on_soon(void *ctx, const uint32_t *hashes, unsigned n)
{
	struct rp_engine *e = ctx;

	rp_queue_fetch(e->queues, hashes, n);
}

static void deliver_on_note(void *ctx, const uint8_t *name, size_t length,
	enum rp_deliver_note what, enum rp_deliver_fallback why)
{
	static const enum rp_queue_way fallbacks[] = {
		[RP_DELIVER_FALLBACK_LINK_DOWN] = RP_QUEUE_WAY_LINK_DOWN,
		[RP_DELIVER_FALLBACK_STALL] = RP_QUEUE_WAY_STALLED,
		[RP_DELIVER_FALLBACK_OPEN_REFUSED] = RP_QUEUE_WAY_REFUSED,
		[RP_DELIVER_FALLBACK_NO_STREAM] = RP_QUEUE_WAY_NO_STREAM,
	};
	static const enum rp_queue_way ways[] = {
		[RP_DELIVER_NOTE_OPENED] = RP_QUEUE_WAY_OPENED,
		[RP_DELIVER_NOTE_IDLE] = RP_QUEUE_WAY_IDLE,
		[RP_DELIVER_NOTE_UNARY] = RP_QUEUE_WAY_UNARY,
	};
	struct rp_engine *e = ctx;

	rp_queue_on_way(e->queues, (struct rp_span){name, length},
		what == RP_DELIVER_NOTE_FALL_BACK ? fallbacks[why] : ways[what]);
}

const struct rp_deliver_ops engine_deliver_ops = {
	.frame_out = engine_frame_out,
	.frame_room = engine_frame_room,
	.on_soon = deliver_on_soon,
	.unary_send = deliver_unary_send,
	.violation = engine_violation,
	.on_msg = deliver_on_msg,
	.on_took = deliver_on_took,
	.on_refused = deliver_on_refused,
	.on_lost = deliver_on_lost,
	.on_room = deliver_on_room,
	.on_note = deliver_on_note,
};

/* ---- queues ---- */

static int queue_send(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct rp_engine *e = ctx;

	return rp_deliver_send(e->deliver, node, m, now_ns);
}

bool engine_apart(void *ctx, struct rp_span name, uint64_t node)
{
	const struct rp_engine *e = ctx;

	return engine_rules_part(e->rules, name, node);
}

static void queue_answer(void *ctx, uint64_t token, const struct rp_queue_answer *a)
{
	struct rp_xmsg m = {
		.type = RP_XMSG_ANSWER,
		.token = token,
		.status = (uint16_t)a->status,
		.count = a->deleted,
		.attempt = a->attempt,
		.idx = a->idx,
		.revision = a->mod_revision,
		.tail_length = a->tail_length,
		.value = a->meta_length,
		.m = a->payload,
	};

	if (!engine_acks_answer(ctx, token, a))
		engine_tell(ctx, &m);
}

static struct rp_xmsg delivery_of(uint64_t consumer, const struct rp_queue_delivery *d)
{
	return (struct rp_xmsg){
		.type = RP_XMSG_DELIVERY,
		.token = consumer,
		.idx = d->idx,
		.revision = d->mod_revision,
		.attempt = d->attempt,
		.tail_length = d->tail_length,
		.value = rp_xmsg_process(&d->process),
		.alloc_node = d->process.request,
		.node = d->process.left_ns + d->process.left_us * RP_NS_PER_US,
		.m = d->payload,
	};
}

static int queue_deliver(void *ctx, uint64_t consumer, const struct rp_queue_delivery *d)
{
	struct rp_engine *e = ctx;
	struct rp_xmsg m = delivery_of(consumer, d);

	return e->ops->post(e->ctx, RP_ENGINE_CONTROL, &m) == 0 ? 0 : -EAGAIN;
}

/* Of what its client has seen, tail and meta are enough. */
static int queue_job_here(void *ctx, uint64_t consumer, const struct rp_queue_delivery *d)
{
	struct rp_engine *e = ctx;
	struct rp_xmsg m = delivery_of(consumer, d);
	struct rp_span head = {rte_pktmbuf_mtod(d->payload, const uint8_t *),
		(size_t)d->tail_length + d->process.meta_length};

	m.flags = 1;
	m.m = engine_text(e, head, (struct rp_span){0});
	if (!m.m)
		return -EAGAIN;
	if (e->ops->post(e->ctx, RP_ENGINE_CONTROL, &m) == 0)
		return 0;
	rte_pktmbuf_free(m.m);
	return -EAGAIN;
}

static void queue_job_over(void *ctx, uint64_t request, uint64_t idx)
{
	engine_tell(ctx,
		&(struct rp_xmsg){.type = RP_XMSG_JOB_OVER, .idx = idx, .alloc_node = request});
}

static void queue_output_room(void *ctx, uint64_t request)
{
	engine_tell(ctx, &(struct rp_xmsg){.type = RP_XMSG_OUTPUT_ROOM, .alloc_node = request});
}

static int queue_run_event(void *ctx, const struct rp_queue_run_event *event)
{
	struct rp_engine *e = ctx;
	const struct rp_xmsg m = {
		.type = RP_XMSG_RUN_EVENT,
		.flags = event->end,
		.idx = event->request,
		.value = event->meta_length,
		.tail_length = event->tail_length,
		.m = event->payload,
	};

	return e->ops->post(e->ctx, RP_ENGINE_CONTROL, &m) == 0 ? 0 : -EAGAIN;
}

static void queue_recall(void *ctx, uint64_t consumer, uint64_t idx)
{
	engine_tell(ctx, &(struct rp_xmsg){.type = RP_XMSG_RECALL, .token = consumer, .idx = idx});
}

/* Tells control something with a text; without a buffer it cannot be said, which is counted. */
static void tell_text(struct rp_engine *e, struct rp_xmsg *m, struct rp_span text, bool is_name)
{
	m->m = engine_text(e, text, (struct rp_span){0});
	if (!m->m) {
		e->counters.posts_lost++;
		RP_LOG(RP_LOG_NODE, RP_LOG_ERROR, "shard %u: no buffer for a message %s", e->shard,
			rp_xmsg_type_name(m->type));
		return;
	}
	if (is_name)
		m->name_length = (uint16_t)text.length;
	else
		m->tail_length = (uint16_t)text.length;
	engine_tell(e, m);
}

static void queue_withdraw(
	void *ctx, uint64_t consumer, uint64_t idx, struct rp_span tail, uint64_t mod_revision)
{
	struct rp_xmsg m = {
		.type = RP_XMSG_WITHDRAW, .token = consumer, .idx = idx, .revision = mod_revision};

	tell_text(ctx, &m, tail, false);
}

static void queue_consumer_ended(void *ctx, uint64_t consumer, enum rp_queue_end why)
{
	engine_tell(ctx,
		&(struct rp_xmsg){.type = RP_XMSG_CONSUMER_ENDED, .token = consumer, .value = why});
}

static void queue_consumer_here(
	void *ctx, struct rp_span name, const uint8_t uuid[RP_UUID_BYTES], bool here)
{
	struct rp_xmsg m = {.type = RP_XMSG_CONSUMER_HERE, .value = here};

	memcpy(m.uuid, uuid, sizeof(m.uuid));
	tell_text(ctx, &m, name, true);
}

static void queue_claimed(void *ctx, struct rp_span name, uint32_t epoch, bool pinned)
{
	struct rp_xmsg m = {.type = RP_XMSG_CLAIMED, .epoch = epoch, .value = pinned};

	tell_text(ctx, &m, name, true);
}

/* Puts `payload` (shared) behind `m->m`, and posts it; 0 or -EAGAIN: nothing is taken. */
static int post_behind(struct rp_engine *e, struct rp_xmsg *m, struct rte_mbuf *payload)
{
	struct rte_mbuf *last = rte_pktmbuf_lastseg(m->m);

	/* Not rte_pktmbuf_chain(), which writes into the payload: that is shared. */
	if (payload) {
		last->next = payload;
		m->m->nb_segs += payload->nb_segs;
		m->m->pkt_len += payload->pkt_len;
	}
	if (e->ops->post(e->ctx, RP_ENGINE_CONTROL, m) == 0)
		return 0;
	last->next = NULL;
	if (payload) {
		m->m->nb_segs -= payload->nb_segs;
		m->m->pkt_len -= payload->pkt_len;
	}
	rte_pktmbuf_free(m->m);
	return -EAGAIN;
}

static int queue_process_end(void *ctx, uint64_t token, const struct rp_queue_process_end *end)
{
	struct rp_engine *e = ctx;
	struct rp_xmsg m = {
		.type = RP_XMSG_PROCESS_END,
		.token = token,
		.value = end->death,
		.idx = end->request,
		.name_length = (uint16_t)end->name.length,
		.tail_length = (uint16_t)end->tail.length,
		.hash = (uint32_t)end->reply_to.length,
	};

	m.m = engine_text(e, end->name, end->reply_to);
	if (!m.m)
		return -EAGAIN;
	memcpy(rte_pktmbuf_append(m.m, (uint16_t)end->tail.length), end->tail.data,
		end->tail.length);
	return post_behind(e, &m, end->payload);
}

static void queue_cancel(void *ctx, struct rp_span name, struct rp_span tail, uint64_t request)
{
	struct rp_engine *e = ctx;
	struct rp_xmsg m = {
		.type = RP_XMSG_CANCEL_ASK,
		.idx = request,
		.name_length = (uint16_t)name.length,
		.tail_length = (uint16_t)tail.length,
		.m = engine_text(e, name, tail),
	};

	/* Asked again in a while. */
	if (m.m)
		engine_tell(e, &m);
}

static int queue_dead_letter(void *ctx, uint64_t token, const struct rp_queue_letter *letter)
{
	const struct rp_span to = {(const uint8_t *)letter->to, strlen(letter->to)};
	struct rp_engine *e = ctx;
	struct rp_xmsg m = {
		.type = RP_XMSG_DEAD_LETTER,
		.token = token,
		.value = letter->death,
		.count = letter->deliveries,
		.revision = letter->age_ns / RP_NS_PER_US,
		.name_length = (uint16_t)letter->name.length,
		.tail_length = letter->tail_length,
		.hash = (uint32_t)to.length,
	};

	m.idx = letter->process.meta_length;
	m.m = engine_text(e, letter->name, to);
	return m.m ? post_behind(e, &m, letter->payload) : -EAGAIN;
}

static void queue_released(void *ctx, struct rp_span name, uint32_t epoch)
{
	struct rp_xmsg m = {.type = RP_XMSG_RELEASED, .epoch = epoch};

	tell_text(ctx, &m, name, true);
}

const struct rp_queue_ops engine_queue_ops = {
	.dead_letter = queue_dead_letter,
	.process_end = queue_process_end,
	.job_here = queue_job_here,
	.job_over = queue_job_over,
	.output_room = queue_output_room,
	.cancel = queue_cancel,
	.run_event = queue_run_event,
	.send = queue_send,
	.apart = engine_apart,
	.answer = queue_answer,
	.deliver = queue_deliver,
	.recall = queue_recall,
	.withdraw = queue_withdraw,
	.consumer_ended = queue_consumer_ended,
	.consumer_here = queue_consumer_here,
	.claimed = queue_claimed,
	.released = queue_released,
};

/* ---- insight ---- */

static void add_counters(void *sum, const void *part, size_t size)
{
	uint64_t *s = sum;
	const uint64_t *p = part;

	for (size_t i = 0; i < size / sizeof(*s); i++)
		s[i] += p[i];
}

/** A snapshot under way, and the port that it is at. */
struct view_filler {
	struct rp_engine *e;
	struct rp_engine_snapshot *s;
	uint32_t port;
};

static void add_connection(void *ctx, const struct rp_tcp_info *info)
{
	struct view_filler *f = ctx;
	struct rp_engine_snapshot *s = f->s;

	if (s->connection_count < s->connections_max)
		s->connections[s->connection_count++] =
			(struct rp_engine_connection_view){.port = f->port, .info = *info};
	else
		s->connections_omitted++;
}

static void add_neighbour(void *ctx, const struct rp_neigh_info *info)
{
	struct view_filler *f = ctx;
	struct rp_engine_snapshot *s = f->s;

	if (s->neighbour_count < s->neighbours_max)
		s->neighbours[s->neighbour_count++] =
			(struct rp_engine_neighbour_view){.port = f->port, .info = *info};
	else
		s->neighbours_omitted++;
}

static void add_address(void *ctx, const struct rp_net_address_info *info)
{
	struct view_filler *f = ctx;
	struct rp_engine_snapshot *s = f->s;

	if (s->addresses && s->address_count < RP_ENGINE_ADDRESSES_MAX)
		s->addresses[s->address_count++] =
			(struct rp_engine_address_view){.port = f->port, .info = *info};
}

static void snapshot_tcp(struct rp_engine *e, struct rp_engine_snapshot *s)
{
	memset(&s->tcp, 0, sizeof(s->tcp));
	memset(&s->net, 0, sizeof(s->net));
	memset(&s->tcp_usage, 0, sizeof(s->tcp_usage));
	for (uint32_t i = 0; i < e->port_count; i++) {
		struct view_filler f = {.s = s, .port = i};
		const struct rp_net *net = rp_tcp_net(e->tcp[i]);
		struct rp_tcp_usage u;

		add_counters(&s->tcp, rp_tcp_counters(e->tcp[i]), sizeof(s->tcp));
		add_counters(&s->net, rp_net_counters(net), sizeof(s->net));
		rp_tcp_usage(e->tcp[i], &u);
		s->tcp_usage.connections += u.connections;
		s->tcp_usage.half_open += u.half_open;
		s->tcp_usage.time_wait += u.time_wait;
		s->tcp_usage.segments += u.segments;
		s->tcp_usage.ranges += u.ranges;
		s->tcp_usage.timers += u.timers;
		rp_tcp_foreach(e->tcp[i], add_connection, &f);
		rp_net_neigh_foreach(net, add_neighbour, &f);
		rp_net_address_foreach(net, add_address, &f);
	}
}

/* k times the peers is bounded, so there is room for all (links.md, "Placement"). */
static void add_line(void *ctx, const struct rp_link_line_info *info)
{
	struct view_filler *f = ctx;
	struct rp_engine_line_view *v = &f->s->lines[f->s->line_count];

	if (f->s->line_count == RP_PEERS_MAX)
		return;
	f->s->line_count++;
	*v = (struct rp_engine_line_view){.port = RP_ENGINE_NO_PORT, .info = *info};
	for (uint32_t i = 0; i < f->e->port_count; i++)
		if (info->transport == rp_tcp_transport(f->e->tcp[i]))
			v->port = i;
}

/* Streams of this shard's queues go by links of any shard. */
static void link_streams(struct rp_engine *e, struct rp_engine_link_view *v)
{
	memset(v->streams_out, 0, sizeof(v->streams_out));
	memset(v->streams_in, 0, sizeof(v->streams_in));
	for (uint32_t j = 0; j < v->info.per_peer; j++)
		rp_deliver_link_streams(
			e->deliver, v->node, j, &v->streams_out[j], &v->streams_in[j]);
}

static void snapshot_links(struct rp_engine *e, struct rp_engine_snapshot *s)
{
	struct view_filler f = {.e = e, .s = s};

	s->link_count = s->line_count = 0;
	for (uint32_t i = 0; s->links_known && i < e->peer_count; i++) {
		const struct engine_peer *p = &e->peer_slots[i];
		struct rp_engine_link_view *v = &s->links_known[s->link_count];

		v->node = p->by_node.key;
		v->info = (struct rp_link_info){0};
		v->linked = e->links && rp_links_info(e->links, v->node, &v->info) == 0 &&
			    e->shard == e->link_shard;
		v->unary = p->unary;
		rp_deliver_info(e->deliver, v->node, &v->deliver);
		link_streams(e, v);
		if (e->links && s->lines)
			rp_links_lines(e->links, v->node, add_line, &f);
		s->link_count++;
	}
}

void rp_engine_snapshot(struct rp_engine *e, struct rp_engine_snapshot *s, uint64_t now_ns)
{
	struct rp_queue_info info;
	uint32_t cursor = 0;

	s->now_ns = now_ns;
	s->queue_count = s->connection_count = s->neighbour_count = s->address_count = 0;
	s->connections_omitted = s->neighbours_omitted = 0;
	while (s->queue_count < s->queues_max && rp_queue_next(e->queues, &cursor, &info, now_ns)) {
		struct rp_engine_queue_view *v = &s->queues[s->queue_count++];

		memcpy(v->name, info.name.data, info.name.length);
		v->name[info.name.length] = '\0';
		v->info = info;
		v->info.name = (struct rp_span){0};
	}
	s->engine = e->counters;
	rp_queue_get_totals(e->queues, &s->queue);
	s->deliver = *rp_deliver_counters(e->deliver);
	rp_deliver_info(e->deliver, 0, &s->deliver_info);
	s->has_links = e->links && e->link_shards >> e->shard & 1;
	if (e->links) {
		s->links = *rp_links_counters(e->links);
		s->links_up = e->shard == e->link_shard ? rp_links_up_count(e->links) : 0;
	}
	s->has_tcp = e->port_count > 0;
	snapshot_tcp(e, s);
	snapshot_links(e, s);
	if (s->view)
		engine_view_fill(e, s->view, now_ns);
}
