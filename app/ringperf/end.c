/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/mbuf.h>

#include "end.h"

#define BOX_SLOTS 8192u
#define MESSAGES_MAX 65536u
#define BURST 32
/** Bursts that a port may bring in one turn. */
#define RX_BURSTS 4

/* Each consumer has one: by its token. */
static void uuid_of(uint64_t token, uint8_t uuid[RP_UUID_BYTES])
{
	memset(uuid, 0x5a, RP_UUID_BYTES);
	memcpy(uuid, &token, sizeof(token));
}

static bool is_server(const struct end *e)
{
	return e->run->options->server;
}

/* ---- what the engine says ---- */

static int end_post(void *ctx, unsigned to, const struct rp_xmsg *m)
{
	struct end *e = ctx;

	RP_ASSERT(to == RP_ENGINE_CONTROL);
	/* The half is for answers, which may not be refused. */
	if (e->box_tail - e->box_head >=
		(rp_xmsg_class_of(m->type) == RP_XMSG_CLASS_N ? BOX_SLOTS / 2 : BOX_SLOTS))
		return -EAGAIN;
	e->box[e->box_tail++ % BOX_SLOTS] = *m;
	return 0;
}

static void end_random(void *ctx, void *out, size_t length)
{
	RP_ASSERT(getrandom(out, length, 0) == (ssize_t)length);
}

static const struct rp_engine_ops engine_ops = {.post = end_post, .random = end_random};

/* ---- what it is told ---- */

static void tell(struct end *e, const struct rp_xmsg *m)
{
	rp_engine_on_xmsg(e->engine, RP_ENGINE_CONTROL, m, e->now_ns);
}

/* A message's buffer with two texts in it; without one the run has failed. */
static struct rte_mbuf *texts(struct end *e, const char *name, const void *more, size_t length)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(e->run->worker->pool);
	size_t n = strlen(name);

	if (!m) {
		e->run->why = "out of buffers";
		e->run->finished = true;
		return NULL;
	}
	memcpy(rte_pktmbuf_append(m, (uint16_t)(n + length)), name, n);
	if (length > 0)
		memcpy(rte_pktmbuf_mtod_offset(m, void *, n), more, length);
	return m;
}

static void tell_text(
	struct end *e, struct rp_xmsg *m, const char *name, const void *more, size_t length)
{
	m->m = texts(e, name, more, length);
	m->name_length = (uint16_t)strlen(name);
	if (m->m)
		tell(e, m);
}

void end_consume(struct end *e, const char *queue)
{
	static const char fields[] = ";prefetch=1024";
	struct rp_xmsg m = {.type = RP_XMSG_CONSUMER_OPEN, .token = e->consumers + 1};

	uuid_of(m.token, m.uuid);
	e->consumers++;
	tell_text(e, &m, queue, fields, sizeof(fields) - 1);
}

/* An old claim: what the other node answers says the newer one. */
void end_dispatcher(struct end *e, const char *queue, uint64_t node)
{
	struct rp_xmsg m = {.type = RP_XMSG_SET_RECORD};
	char text[64];

	snprintf(text, sizeof(text), "%" PRIu64 ";epoch=1", node);
	tell_text(e, &m, queue, text, strlen(text));
}

static void on_claimed(struct end *e, const struct rp_xmsg *claimed)
{
	struct rp_xmsg m = {.type = RP_XMSG_SET_RECORD};
	char text[64], name[RP_NAME_BYTES_MAX + 1] = "";

	memcpy(name, rte_pktmbuf_mtod(claimed->m, const void *), claimed->name_length);
	snprintf(text, sizeof(text), "%u;epoch=%u", is_server(e) ? END_SERVER : END_CLIENT,
		claimed->epoch);
	tell_text(e, &m, name, text, strlen(text));
}

/* ---- messages ---- */

static void on_delivery(struct end *e, const struct rp_xmsg *d)
{
	uint8_t copy[END_HEAD_BYTES];
	struct end_message m = {
		.consumer = d->token,
		.length = d->m->pkt_len - d->tail_length,
		.value = rte_pktmbuf_mtod_offset(d->m, const uint8_t *, d->tail_length),
	};

	e->received++;
	if (d->m->data_len < d->tail_length + RP_MIN(m.length, (uint32_t)END_HEAD_BYTES)) {
		rp_mbuf_copy_out(d->m, d->tail_length, copy, sizeof(copy));
		m.value = copy;
	}
	if (m.length < e->run->options->size)
		e->run->faults++;
	else
		e->ops->message(e, &m, e->now_ns);
	e->acks[e->ack_count++] = (struct end_ack){d->token, d->idx};
}

static void acknowledge(struct end *e)
{
	for (unsigned i = 0; i < e->ack_count; i++) {
		const struct end_ack *a = &e->acks[i];
		const struct rp_xmsg ack = {.type = RP_XMSG_ACKED,
			.token = a->consumer,
			.node = a->consumer,
			.idx = a->idx};

		tell(e, &ack);
	}
	e->ack_count = 0;
}

static void on_answer(struct end *e, const struct rp_xmsg *a)
{
	/* Of an acknowledge, or of the consumer's opening. */
	if (a->token < END_TOKEN_MIN) {
		e->run->faults += a->status != RP_Q_OK;
		return;
	}
	e->open--;
	e->answered++;
	e->ops->answered(e, a->token, a->status == RP_Q_OK, e->now_ns);
}

static void on_link(struct end *e, const struct rp_xmsg *m)
{
	e->up = m->value == 1;
	if (!e->up && !is_server(e) && e->put > 0) {
		e->run->why = "the link went down";
		e->run->finished = true;
	}
}

static void on_one(struct end *e, struct rp_xmsg *m)
{
	if (m->type == RP_XMSG_DELIVERY && !e->stopping)
		on_delivery(e, m);
	else if (m->type == RP_XMSG_ANSWER && !e->stopping)
		on_answer(e, m);
	else if (m->type == RP_XMSG_CLAIMED)
		on_claimed(e, m);
	else if (m->type == RP_XMSG_LINK_STATE)
		on_link(e, m);
	rp_xmsg_free(m);
}

bool end_put(struct end *e, const char *queue, uint64_t token, const void *head,
	uint32_t head_bytes, uint64_t now_ns)
{
	struct rte_mempool *pool = e->run->worker->pool;
	uint32_t room = (uint32_t)rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
	uint32_t size = RP_MAX(e->run->options->size, head_bytes), left;
	uint32_t name = (uint32_t)strlen(queue);
	struct rp_xmsg m = {.type = RP_XMSG_PUT, .token = token, .tail_length = 1};
	struct rte_mbuf *last = rte_pktmbuf_alloc(pool);
	uint8_t *p;

	if (!last)
		return false;
	m.m = last;
	m.name_length = (uint16_t)name;
	p = rte_pktmbuf_mtod(last, uint8_t *);
	memcpy(p, queue, name);
	p[name] = 'x';
	memcpy(p + name + 1, head, head_bytes);
	last->data_len = (uint16_t)RP_MIN(name + 1 + size, room);
	m.m->pkt_len = name + 1 + size;
	for (left = m.m->pkt_len - last->data_len; left > 0; left -= last->data_len) {
		last->next = rte_pktmbuf_alloc(pool);
		if (!last->next) {
			rte_pktmbuf_free(m.m);
			return false;
		}
		last = last->next;
		m.m->nb_segs++;
		last->data_len = (uint16_t)RP_MIN(left, room);
	}
	e->open++;
	e->put++;
	rp_engine_on_xmsg(e->engine, RP_ENGINE_CONTROL, &m, now_ns);
	return true;
}

/* ---- turns ---- */

static bool drain(struct end *e)
{
	unsigned n = e->box_tail - e->box_head;

	for (unsigned i = 0; i < n; i++) {
		on_one(e, &e->box[e->box_head % BOX_SLOTS]);
		e->box_head++;
	}
	/* From the start again: the slots that were used last are the nearest ones. */
	if (e->box_head == e->box_tail)
		e->box_head = e->box_tail = 0;
	return n > 0;
}

void end_frames(
	struct perf_run *r, unsigned port, struct rte_mbuf **burst, unsigned n, uint64_t now_ns)
{
	struct end *e = r->state;

	e->got = true;
	rp_engine_rx(e->engine, port, burst, n, now_ns);
}

static bool transmit(struct end *e, uint64_t now_ns)
{
	struct rp_port_queue *q = e->run->worker->queue;
	struct rte_mbuf *out[BURST];
	unsigned n, total = 0;

	if (!q)
		return false;
	do {
		n = rp_engine_tx(e->engine, 0, out, RP_MIN((unsigned)rp_port_tx_room(q), BURST));
		for (unsigned i = 0; i < n; i++)
			rp_port_tx(q, out[i], now_ns);
		total += n;
	} while (n == BURST);
	return total > 0;
}

/* The time since the last turn was that one's. */
static void turn_count(struct end *e, uint64_t now_ns)
{
	uint64_t took_ns = e->turned_ns ? now_ns - e->turned_ns : 0;

	if (e->was_busy)
		e->turned.busy_ns += took_ns;
	else
		e->turned.idle_ns += took_ns;
	e->turned_ns = now_ns;
	e->turned.turns++;
}

bool end_turn(struct perf_run *r, uint64_t now_ns)
{
	struct end *e = r->state;
	int64_t offset_ns = r->worker->reader.wall_offset_ns;
	bool worked;

	turn_count(e, now_ns);
	e->now_ns = now_ns;
	if (offset_ns != e->wall_offset_ns) {
		e->wall_offset_ns = offset_ns;
		rp_engine_set_wall_offset(e->engine, offset_ns);
	}
	worked = rp_engine_poll_in(e->engine, now_ns);
	worked |= drain(e);
	if (e->ops->told)
		e->ops->told(e, now_ns);
	worked |= rp_engine_poll_out(e->engine, now_ns);
	worked |= transmit(e, now_ns);
	if (r->worker->queue)
		rp_port_tx_flush(r->worker->queue, now_ns);
	acknowledge(e);
	worked |= e->got;
	e->got = false;
	e->was_busy = worked;
	e->turned.busy_turns += worked;
	return worked;
}

/* ---- load ---- */

static void load_now(const struct end *e, struct perf_load *l)
{
	const struct rp_deliver_counters *d = rp_deliver_counters(rp_engine_deliver(e->engine));
	const struct rp_link_counters *k = rp_links_counters(rp_engine_links(e->engine));

	*l = e->turned;
	l->messages = e->put + e->received;
	l->frames_out = d->frames_out;
	l->frames_in = d->frames_in;
	l->sends = k->sends_batched;
	if (e->run->worker->port) {
		const struct rp_tcp_counters *t = rp_tcp_counters(rp_engine_tcp(e->engine, 0));

		l->segments_out = t->tx_segments;
		l->segments_in = t->rx_segments;
		l->acks_out = t->acks_sent;
	}
}

void end_load_begin(struct end *e)
{
	load_now(e, &e->load_from);
}

void end_load(const struct end *e, struct perf_load *load)
{
	load_now(e, load);
#define X(name, text) load->name -= e->load_from.name;
	PERF_LOADS(X)
#undef X
}

bool end_is_up(struct end *e, uint64_t now_ns)
{
	if (e->up)
		return true;
	if (!is_server(e) && now_ns - e->run->begun_ns > e->run->options->connect_ns) {
		e->run->why = "no link comes up: is the other end there, with the same mode?";
		e->run->finished = true;
	}
	return false;
}

/* ---- creation ---- */

static void fill(struct end *e, struct rp_engine_config *c)
{
	const struct perf_options *o = e->run->options;
	struct perf_worker *w = e->run->worker;
	uint64_t node = o->server ? END_SERVER : END_CLIENT, boot;

	end_random(NULL, &boot, sizeof(boot));
	boot |= 1;
	*c = (struct rp_engine_config){
		.shards = 1,
		.link_shards = 1,
		.listen_port = e->run->options->tcp_port,
		.ktcp = w->ktcp ? rp_ktcp_transport(w->ktcp) : NULL,
		.links = {.node = node,
			.boot = boot,
			.cluster_uuid = "ringperf",
			.per_peer = 1,
			.heartbeat_ns = RP_NS_PER_S,
			.dead_after_ns = 10 * RP_NS_PER_S,
			.handshake_grace_ns = 10 * RP_NS_PER_S,
			.peer_queue_frames = 4096,
			.peers_max = 4,
			.handshakes_max = 4,
			.pool = w->frame_pool},
		.deliver = {.node = node,
			.shards = 1,
			.links = 1,
			.message_bytes_max = PERF_MESSAGE_MAX + 1024,
			/* As a node's of its size; window_kib as it is by default. */
			.window_bytes = 64u << 10,
			.peer_budget_bytes = 64u << 20,
			.budget_bytes = 16u << 20,
			.payload_pool = w->pool,
			.streams_max = 2 * END_QUEUES_MAX,
			.peers_max = 4,
			.peer_messages_max = MESSAGES_MAX,
			.messages_max = 2 * MESSAGES_MAX,
			.idle_ns = 60 * RP_NS_PER_S,
			.pool = w->frame_pool},
		.queue = {.node = node,
			.boot = boot,
			.pool = w->pool,
			.message_bytes_max = PERF_MESSAGE_MAX,
			.queue_depth_max = MESSAGES_MAX,
			.queues_max = 2 * END_QUEUES_MAX,
			.messages_max = 2 * MESSAGES_MAX},
	};
	if (w->port) {
		c->port_count = 1;
		c->stack_shards = 1;
		c->tcp[0] = w->tcp_config;
		c->tcp[0].send_buffer_bytes = c->tcp[0].receive_buffer_bytes = 4u << 20;
	}
}

static void tell_peer(struct end *e)
{
	const struct perf_options *o = e->run->options;
	struct rp_xmsg m = {.type = RP_XMSG_SET_PEER, .node = o->server ? END_CLIENT : END_SERVER};
	struct rp_xmsg_peer p = {0};

	if (e->run->worker->port) {
		p.tcp_family = o->has_peer ? 4 : 0;
		p.tcp_port = e->run->options->tcp_port;
		memcpy(p.tcp_addr, o->peer, sizeof(o->peer));
	} else {
		p.ktcp_family = o->has_peer ? 4 : 0;
		p.ktcp_port = e->run->options->tcp_port;
		memcpy(p.ktcp_addr, o->peer, sizeof(o->peer));
	}
	m.m = texts(e, "", &p, sizeof(p));
	if (m.m)
		tell(e, &m);
}

int end_begin(struct perf_run *r, const struct end_ops *ops, uint64_t now_ns)
{
	struct rp_engine_config *c = malloc(sizeof(*c));
	struct end *e = calloc(1, sizeof(*e));

	r->state = e;
	if (e) {
		e->box = calloc(BOX_SLOTS, sizeof(*e->box));
		e->acks = calloc(BOX_SLOTS, sizeof(*e->acks));
	}
	if (!c || !e || !e->box || !e->acks) {
		free(c);
		r->why = "no memory";
		return -ENOMEM;
	}
	e->run = r;
	e->ops = ops;
	e->now_ns = now_ns;
	fill(e, c);
	e->engine = rp_engine_create(c, &engine_ops, e, now_ns);
	free(c);
	if (!e->engine) {
		r->why = errno == EADDRINUSE ? "the port is in use" : "the engine cannot be made";
		return -EIO;
	}
	e->wall_offset_ns = r->worker->reader.wall_offset_ns;
	rp_engine_set_wall_offset(e->engine, e->wall_offset_ns);
	for (uint64_t node = END_SERVER; node <= END_CLIENT; node++)
		tell(e, &(struct rp_xmsg){
				.type = RP_XMSG_SET_NODE, .node = node, .value = RP_NODE_ONLINE});
	tell_peer(e);
	return 0;
}

void end_end(struct perf_run *r, uint64_t now_ns)
{
	struct end *e = r->state;

	if (!e)
		return;
	e->stopping = true;
	if (e->engine) {
		end_load(e, &r->load);
		drain(e);
	}
	rp_engine_destroy(e->engine);
	free(e->mode);
	free(e->acks);
	free(e->box);
	free(e);
	r->state = NULL;
}
