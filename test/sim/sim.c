/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/assert.h>
#include <base/list.h>
#include <base/mbuf.h>

#include "sim.h"

#define WALL_US 1800000000000000ull
#define RING_NS 2000
#define RING_SLOTS 1024
#define RING_RESERVE 512
#define BURST 32

enum event_type {
	EVENT_WAKE_SHARD,
	EVENT_WAKE_CONTROL,
	EVENT_FRAME,
	EVENT_RING,
	EVENT_DIALLED,
	EVENT_REQUEST,	/* at the called node */
	EVENT_RESPONSE, /* at the caller */
	EVENT_TIMER,
};

struct event {
	uint64_t at_ns, serial;
	enum event_type type;
	unsigned node, shard, peer;
	struct rte_mbuf *frame;
	struct rp_xmsg m;
	unsigned from;
	uint64_t token;
	int kind; /* rp_repl_kind, or -1: DeliverOne */
	bool failed;
	uint8_t *bytes;
	size_t length;
};

struct sim_shard {
	struct rp_engine *engine;
	uint64_t wake_ns;
};

/** A DeliverOne call that waits at the called node. */
struct unary_wait {
	struct rp_list node;
	uint64_t id, token;
	unsigned caller;
};

struct sim_node {
	struct sim *sim;
	unsigned index;
	uint64_t id;
	struct rp_control *control;
	uint64_t control_wake_ns;
	struct sim_shard shards[SIM_SHARDS_MAX];
	struct rte_mempool *queue_pool, *frame_pool;
	struct rp_impair impair;
	struct rp_place place;
	/* Messages on the rings, per shard: to it, and from it. */
	uint32_t to_shard[SIM_SHARDS_MAX], to_control[SIM_SHARDS_MAX];
	rp_repl_peer_id peers[SIM_NODES_MAX];
	bool peer_open[SIM_NODES_MAX];
	struct rp_list unary_waits;
	uint64_t unary_ids;
};

struct shard_ctx {
	struct sim_node *node;
	unsigned shard;
};

struct sim {
	struct sim_options options;
	struct sim_hooks hooks;
	uint64_t now_ns, serial;
	struct rp_rand rand;
	struct event *heap;
	size_t count, size;
	struct sim_node nodes[SIM_NODES_MAX];
	struct shard_ctx shard_ctx[SIM_NODES_MAX][SIM_SHARDS_MAX];
	bool calls_cut;
	char fault[256];
};

uint64_t sim_now(const struct sim *s)
{
	return s->now_ns;
}

struct rp_rand *sim_rand(struct sim *s)
{
	return &s->rand;
}

uint64_t sim_node_id(unsigned node)
{
	return 1000 + node;
}

static struct rp_repl_now now_of(const struct sim *s)
{
	return (struct rp_repl_now){.ns = s->now_ns, .wall_us = WALL_US + s->now_ns / 1000};
}

/* ---- the event heap ---- */

static bool earlier(const struct event *a, const struct event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->serial < b->serial;
}

static void swap(struct event *a, struct event *b)
{
	struct event t = *a;

	*a = *b;
	*b = t;
}

static void schedule(struct sim *s, struct event e)
{
	size_t i = s->count;

	if (s->count == s->size) {
		s->size = s->size ? 2 * s->size : 4096;
		s->heap = realloc(s->heap, s->size * sizeof(*s->heap));
		RP_ASSERT(s->heap != NULL);
	}
	e.serial = ++s->serial;
	s->heap[s->count++] = e;
	for (; i > 0 && earlier(&s->heap[i], &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		swap(&s->heap[i], &s->heap[(i - 1) / 2]);
}

static struct event pop(struct sim *s)
{
	struct event top = s->heap[0];
	size_t i = 0;

	s->heap[0] = s->heap[--s->count];
	for (;;) {
		size_t least = i, l = 2 * i + 1;

		if (l < s->count && earlier(&s->heap[l], &s->heap[least]))
			least = l;
		if (l + 1 < s->count && earlier(&s->heap[l + 1], &s->heap[least]))
			least = l + 1;
		if (least == i)
			return top;
		swap(&s->heap[i], &s->heap[least]);
		i = least;
	}
}

static void wake_shard(struct sim_node *n, unsigned shard, uint64_t at_ns)
{
	struct sim *s = n->sim;

	at_ns = RP_MAX(at_ns, s->now_ns);
	if (at_ns >= n->shards[shard].wake_ns)
		return;
	n->shards[shard].wake_ns = at_ns;
	schedule(s, (struct event){.at_ns = at_ns,
			    .type = EVENT_WAKE_SHARD,
			    .node = n->index,
			    .shard = shard});
}

static void wake_control(struct sim_node *n, uint64_t at_ns)
{
	struct sim *s = n->sim;

	at_ns = RP_MAX(at_ns, s->now_ns);
	if (at_ns >= n->control_wake_ns)
		return;
	n->control_wake_ns = at_ns;
	schedule(s, (struct event){.at_ns = at_ns, .type = EVENT_WAKE_CONTROL, .node = n->index});
}

/* ---- rings ---- */

static int shard_post(void *ctx, unsigned to, const struct rp_xmsg *m)
{
	struct shard_ctx *c = ctx;
	struct sim_node *n = c->node;
	bool reserve = rp_xmsg_class_of(m->type) == RP_XMSG_CLASS_R;

	if (to == RP_ENGINE_CONTROL) {
		if (!reserve && n->to_control[c->shard] >= RING_SLOTS - RING_RESERVE)
			return -EAGAIN;
		n->to_control[c->shard]++;
	}
	schedule(n->sim, (struct event){.at_ns = n->sim->now_ns + RING_NS,
				 .type = EVENT_RING,
				 .node = n->index,
				 .shard = to,
				 .from = c->shard,
				 .m = *m});
	return 0;
}

static void shard_random(void *ctx, void *out, size_t length)
{
	struct shard_ctx *c = ctx;
	uint8_t *p = out;

	for (size_t i = 0; i < length; i++)
		p[i] = (uint8_t)rp_rand_u64(&c->node->sim->rand);
}

static const struct rp_engine_ops engine_ops = {.post = shard_post, .random = shard_random};

static uint32_t control_tokens(void *ctx, unsigned shard, enum rp_xmsg_type type)
{
	struct sim_node *n = ctx;
	uint32_t slots =
		rp_xmsg_class_of(type) == RP_XMSG_CLASS_R ? RING_SLOTS : RING_SLOTS - RING_RESERVE;

	return n->to_shard[shard] < slots ? slots - n->to_shard[shard] : 0;
}

static int control_post(void *ctx, unsigned shard, const struct rp_xmsg *m)
{
	struct sim_node *n = ctx;

	if (control_tokens(n, shard, m->type) == 0) {
		wake_control(n, n->sim->now_ns + RING_NS);
		return -EAGAIN;
	}
	n->to_shard[shard]++;
	schedule(n->sim, (struct event){.at_ns = n->sim->now_ns + RING_NS,
				 .type = EVENT_RING,
				 .node = n->index,
				 .shard = shard,
				 .from = RP_ENGINE_CONTROL,
				 .m = *m});
	return 0;
}

/* ---- calls between control engines ---- */

static unsigned node_of_peer(const struct sim_node *n, rp_repl_peer_id peer)
{
	for (unsigned i = 0; i < n->sim->options.nodes; i++)
		if (i != n->index && n->peers[i] == peer)
			return i;
	return n->index;
}

static void control_dial(void *ctx, rp_repl_peer_id peer, const char *address)
{
	struct sim_node *n = ctx;

	schedule(n->sim, (struct event){.at_ns = n->sim->now_ns + n->sim->options.call_delay_ns,
				 .type = EVENT_DIALLED,
				 .node = n->index,
				 .peer = node_of_peer(n, peer)});
}

static void control_hangup(void *ctx, rp_repl_peer_id peer)
{
	struct sim_node *n = ctx;

	n->peer_open[node_of_peer(n, peer)] = false;
}

static uint8_t *copy_bytes(struct rp_span s)
{
	uint8_t *p = malloc(s.length + 1);

	RP_ASSERT(p != NULL);
	if (s.length > 0)
		memcpy(p, s.data, s.length);
	return p;
}

static void request(
	struct sim_node *n, unsigned peer, int kind, struct rp_span bytes, uint64_t token)
{
	schedule(n->sim, (struct event){.at_ns = n->sim->now_ns + n->sim->options.call_delay_ns,
				 .type = EVENT_REQUEST,
				 .node = peer,
				 .peer = n->index,
				 .kind = kind,
				 .token = token,
				 .bytes = copy_bytes(bytes),
				 .length = bytes.length});
}

static void response(struct sim_node *n, unsigned caller, int kind, struct rp_span bytes,
	uint64_t token, bool failed)
{
	schedule(n->sim, (struct event){.at_ns = n->sim->now_ns + n->sim->options.call_delay_ns,
				 .type = EVENT_RESPONSE,
				 .node = caller,
				 .kind = kind,
				 .token = token,
				 .failed = failed,
				 .bytes = copy_bytes(bytes),
				 .length = bytes.length});
}

static int control_peer_call(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind,
	struct rp_span bytes, uint64_t token)
{
	struct sim_node *n = ctx;
	unsigned to = node_of_peer(n, peer);

	if (!n->peer_open[to])
		return -ENOTCONN;
	request(n, to, (int)kind, bytes, token);
	return 0;
}

static int control_unary_call(void *ctx, uint64_t node, struct rp_span frame, uint64_t token)
{
	struct sim_node *n = ctx;
	unsigned to = (unsigned)(node - sim_node_id(0));

	if (to >= n->sim->options.nodes || !n->peer_open[to])
		return -ENOTCONN;
	request(n, to, -1, frame, token);
	return 0;
}

static void control_unary_answer(void *ctx, uint64_t token, struct rp_span answer)
{
	struct sim_node *n = ctx;
	struct rp_list *l;

	rp_list_foreach (l, &n->unary_waits) {
		struct unary_wait *w = rp_list_entry(l, struct unary_wait, node);

		if (w->id != token)
			continue;
		response(n, w->caller, -1, answer, w->token, answer.length == 0);
		rp_list_unlink(&w->node);
		free(w);
		return;
	}
	RP_ASSERT(!"an answer to a call that nobody made");
}

/* ---- clients ---- */

static void control_queue_answer(void *ctx, uint64_t token, const struct rp_control_answer *a)
{
	struct sim_node *n = ctx;

	if (n->sim->hooks.answered)
		n->sim->hooks.answered(n->sim->hooks.ctx, n->index, token, a);
}

static int control_deliver(void *ctx, uint64_t consumer, const struct rp_control_delivery *d)
{
	struct sim_node *n = ctx;
	size_t length = 0, at = 0;
	uint8_t *value;

	for (uint32_t i = 0; i < d->value_count; i++)
		length += d->value[i].length;
	value = malloc(length + 1);
	RP_ASSERT(value != NULL);
	for (uint32_t i = 0; i < d->value_count; at += d->value[i++].length)
		memcpy(value + at, d->value[i].data, d->value[i].length);
	if (n->sim->hooks.delivered)
		n->sim->hooks.delivered(n->sim->hooks.ctx, n->index, consumer, d, value, length);
	free(value);
	return 0;
}

static void control_withdraw(
	void *ctx, uint64_t consumer, uint64_t idx, struct rp_span tail, int64_t revision)
{
	struct sim_node *n = ctx;

	if (n->sim->hooks.withdrawn)
		n->sim->hooks.withdrawn(n->sim->hooks.ctx, n->index, consumer, idx);
}

static void control_consumer_end(void *ctx, uint64_t consumer, const char *reason)
{
	struct sim_node *n = ctx;

	if (n->sim->hooks.ended)
		n->sim->hooks.ended(n->sim->hooks.ctx, n->index, consumer, reason);
}

static void control_write_done(void *ctx, uint64_t token, const struct rp_kv_result *result)
{
}

static void control_ready(void *ctx, bool alone)
{
	struct sim_node *n = ctx;

	if (n->sim->options.verbose)
		printf("%" PRIu64 " us: node %u ready%s\n", n->sim->now_ns / 1000, n->index,
			alone ? " alone" : "");
}

static void control_stopped(void *ctx, unsigned shard, uint32_t phase)
{
}

static void control_snapshot_done(void *ctx, unsigned shard, uint64_t token)
{
}

static const struct rp_control_ops control_ops = {
	.tokens = control_tokens,
	.post = control_post,
	.peer_call = control_peer_call,
	.dial = control_dial,
	.hangup = control_hangup,
	.unary_call = control_unary_call,
	.unary_answer = control_unary_answer,
	.queue_answer = control_queue_answer,
	.deliver = control_deliver,
	.withdraw = control_withdraw,
	.consumer_end = control_consumer_end,
	.write_done = control_write_done,
	.ready = control_ready,
	.snapshot_done = control_snapshot_done,
	.stopped = control_stopped,
};

/* ---- creation ---- */

static struct rte_mempool *pool_new(const char *what, unsigned node, unsigned count, unsigned room)
{
	char name[32];
	struct rte_mempool *p;

	snprintf(name, sizeof(name), "sim_%s_%u", what, node);
	p = rte_pktmbuf_pool_create(
		name, count, 0, 0, (uint16_t)(room + RTE_PKTMBUF_HEADROOM), SOCKET_ID_ANY);
	RP_ASSERT(p != NULL);
	return p;
}

static void tcp_config(struct sim_node *n, struct rp_tcp_config *t)
{
	*t = (struct rp_tcp_config){
		.net = {.iface = {.mac = {2, 0, 0, 0, 0, (uint8_t)(n->index + 1)},
				.mtu = 1500,
				.addresses = {{.ip = RP_IP4(10, 0, 0, (uint8_t)(n->index + 1)),
					.prefix_length = 24}}},
			.header_pool = n->frame_pool,
			.control_pool = n->frame_pool,
			.payload_pool = n->queue_pool,
			.seed = rp_rand_u64(&n->sim->rand)},
		.connections_max = 64,
		.segments_max = 16384,
		.rto_min_ns = 5 * RP_NS_PER_MS,
		.ack_delay_max_ns = RP_NS_PER_MS,
		.seed = rp_rand_u64(&n->sim->rand),
	};
	for (unsigned i = 0; i < sizeof(t->secret); i++)
		t->secret[i] = (uint8_t)rp_rand_u64(&n->sim->rand);
}

/* Every shard may own links where stacks are on all of them. */
static uint32_t stack_shards(const struct sim_options *o)
{
	if (o->stacks != SIM_STACKS_ONE)
		return (1u << o->shards) - 1;
	return o->shards > 1 ? 2 : 1;
}

static unsigned link_shard(const struct sim_options *o)
{
	return o->shards > 1 ? 1 : 0;
}

static void shard_new(struct sim_node *n, unsigned shard)
{
	static const uint8_t secret[32] = "thirty-two bytes of a secret...";
	const struct sim_options *o = &n->sim->options;
	uint64_t boot = 77 + n->index;
	struct rp_engine_config c = {
		.shard = shard,
		.shards = o->shards,
		.link_shard = o->shards > 1 ? 1 : 0,
		.link_shards = stack_shards(o),
		.stack_shards = stack_shards(o),
		.place = {&n->place},
		.listen_port = 7400,
		.links = {.node = n->id,
			.boot = boot,
			.cluster_uuid = "a cluster's uuid",
			.per_peer = (uint8_t)(o->links ? o->links : 1),
			.secret = secret,
			.secret_length = sizeof(secret),
			.heartbeat_ns = 500 * RP_NS_PER_MS,
			.dead_after_ns = 3 * RP_NS_PER_S,
			.handshake_grace_ns = 10 * RP_NS_PER_S,
			.peer_queue_frames = 4096,
			.peers_max = SIM_NODES_MAX,
			.handshakes_max = 64,
			.pool = n->frame_pool},
		.deliver = {.node = n->id,
			.shard = shard,
			.shards = o->shards,
			.links = o->links,
			.message_bytes_max = o->message_bytes_max,
			.window_bytes = 64 << 10,
			.peer_budget_bytes = 16 << 20,
			/* Little, so that peers wait for each other. */
			.budget_bytes = 256 << 10,
			.streams_max = 1024,
			.peers_max = SIM_NODES_MAX,
			.peer_messages_max = 8192,
			.messages_max = 16384,
			.idle_ns = 30 * RP_NS_PER_S,
			.unary_fallback = o->unary_fallback,
			.pool = n->frame_pool,
			.payload_pool = n->queue_pool},
		.queue = {.node = n->id,
			.boot = boot,
			.pool = n->queue_pool,
			.message_bytes_max = o->message_bytes_max,
			.queues_max = 4096,
			.messages_max = 65536,
			.consumers_max = 1024,
			.holds_max = 16384,
			.producers_max = 4096},
	};

	if (c.link_shards >> shard & 1) {
		c.port_count = 1;
		if (o->stacks == SIM_STACKS_HAND_OVER && shard != c.link_shard) {
			c.ports_foreign = 1;
			c.queue_shard[0] = (uint8_t)c.link_shard;
		}
		tcp_config(n, &c.tcp[0]);
	}
	if (c.link_shards != 1u << shard && o->shards > 1) {
		c.deliver.peer_frames_max = 4096 * 3 / 4 / (o->shards - 1);
	}
	n->sim->shard_ctx[n->index][shard] = (struct shard_ctx){n, shard};
	n->shards[shard].wake_ns = RP_NEVER;
	n->shards[shard].engine = rp_engine_create(
		&c, &engine_ops, &n->sim->shard_ctx[n->index][shard], n->sim->now_ns);
	RP_ASSERT(n->shards[shard].engine != NULL);
	rp_engine_set_wall_offset(n->shards[shard].engine, (int64_t)(WALL_US * 1000));
	wake_shard(n, shard, n->sim->now_ns);
}

static void node_new(struct sim *s, unsigned index)
{
	struct sim_node *n = &s->nodes[index];
	unsigned buffers = s->options.buffers ? s->options.buffers : 16383;
	struct rp_control_config c = {
		.transport_tcp = true,
		.shards = s->options.shards,
		.kv = {.initial_revision = 1},
		.cluster_uuid = "a cluster's uuid",
	};

	n->sim = s;
	n->index = index;
	n->id = sim_node_id(index);
	n->control_wake_ns = RP_NEVER;
	rp_list_init(&n->unary_waits);
	n->queue_pool = pool_new("queue", index, buffers, 2048);
	n->frame_pool = pool_new("frame", index, 2 * buffers + 1, 640);
	rp_impair_init(&n->impair, &s->options.network, rp_rand_u64(&s->rand));
	c.self = (struct rp_node_record){.node = n->id,
		.boot = 77 + index,
		.per_peer = s->options.links ? s->options.links : 1,
		.shards = s->options.shards,
		.tcp = {.family = 4, .port = 7400, .addr = {10, 0, 0, (uint8_t)(index + 1)}}};
	memcpy(c.self.rss_key, rp_place_key_default, sizeof(c.self.rss_key));
	c.self.rss_table_size = 64;
	c.self.rss_shards = stack_shards(&s->options);
	RP_ASSERT(rp_place_init_spread(
			  &n->place, rp_place_key_default, 64, stack_shards(&s->options)) == 0);
	c.pool = n->queue_pool;
	c.repl.seed = rp_rand_u64(&s->rand);
	n->control = rp_control_create(&c, &control_ops, n);
	RP_ASSERT(n->control != NULL);
	for (unsigned i = 0; i < s->options.shards; i++)
		shard_new(n, i);
}

struct sim *sim_create(const struct sim_options *options, const struct sim_hooks *hooks)
{
	struct sim *s = calloc(1, sizeof(*s));

	RP_ASSERT(
		s != NULL && options->nodes <= SIM_NODES_MAX && options->shards <= SIM_SHARDS_MAX);
	s->options = *options;
	s->hooks = *hooks;
	s->rand = (struct rp_rand){options->seed};
	s->now_ns = RP_NS_PER_S;
	for (unsigned i = 0; i < options->nodes; i++)
		node_new(s, i);
	for (unsigned i = 0; i < options->nodes; i++) {
		struct sim_node *n = &s->nodes[i];

		for (unsigned p = 0; p < options->nodes; p++) {
			char address[64];

			n->peers[p] = RP_REPL_NO_PEER;
			if (p == i)
				continue;
			snprintf(address, sizeof(address), "http://10.0.0.%u:2379", p + 1);
			n->peers[p] = rp_control_peer_add(n->control, address, now_of(s));
		}
		rp_control_start(n->control, now_of(s));
		wake_control(n, s->now_ns);
	}
	return s;
}

/* ---- stepping ---- */

static void transmit(struct sim_node *n, struct rte_mbuf *frame)
{
	struct sim *s = n->sim;
	static const uint8_t broadcast[6] = {255, 255, 255, 255, 255, 255};
	const uint8_t *dst = rte_pktmbuf_mtod(frame, const uint8_t *);

	for (unsigned i = 0; i < s->options.nodes; i++) {
		struct rp_impair_verdict v;

		if (i == n->index || (memcmp(dst, broadcast, 6) != 0 && dst[5] != i + 1))
			continue;
		v = rp_impair_decide(&n->impair);
		for (unsigned c = 0; c < v.copies; c++) {
			struct rte_mbuf *copy =
				rte_pktmbuf_copy(frame, s->nodes[i].queue_pool, 0, UINT32_MAX);

			if (!copy)
				continue;
			schedule(s, (struct event){.at_ns = s->now_ns + 1000 + v.delay_ns[c],
					    .type = EVENT_FRAME,
					    .node = i,
					    .frame = copy});
		}
	}
	rte_pktmbuf_free(frame);
}

static void run_shard(struct sim_node *n, unsigned shard)
{
	struct rp_engine *e = n->shards[shard].engine;
	struct rte_mbuf *out[BURST];
	unsigned got;
	bool busy = rp_engine_poll(e, n->sim->now_ns);

	if (rp_engine_tcp(e, 0) && (n->sim->options.stacks != SIM_STACKS_HAND_OVER ||
					   shard == link_shard(&n->sim->options))) {
		while ((got = rp_engine_tx(e, 0, out, BURST)) > 0)
			for (unsigned i = 0; i < got; i++)
				transmit(n, out[i]);
	}
	/* A turn takes time: a busy one comes again a little later. */
	wake_shard(n, shard,
		busy ? n->sim->now_ns + 1000
		     : RP_MAX(rp_engine_next_deadline(e), n->sim->now_ns + 1000));
}

static void run_control(struct sim_node *n)
{
	wake_control(n, RP_MAX(rp_control_run(n->control, now_of(n->sim)), n->sim->now_ns + 1000));
}

static void on_ring(struct sim_node *n, const struct event *e)
{
	if (e->shard == RP_ENGINE_CONTROL) {
		n->to_control[e->from]--;
		rp_control_on_xmsg(n->control, e->from, &e->m, now_of(n->sim));
		wake_control(n, n->sim->now_ns);
		return;
	}
	if (e->from == RP_ENGINE_CONTROL)
		n->to_shard[e->shard]--;
	rp_engine_on_xmsg(n->shards[e->shard].engine, e->from, &e->m, n->sim->now_ns);
	wake_shard(n, e->shard, n->sim->now_ns);
}

static void on_request(struct sim_node *n, const struct event *e)
{
	struct rp_span bytes = {e->bytes, e->length}, answer = {0};
	uint64_t from = sim_node_id(e->peer);
	int rc;

	if (n->sim->calls_cut) {
		response(n, e->peer, e->kind, answer, e->token, true);
		return;
	}
	if (e->kind >= 0) {
		rc = rp_control_on_request(n->control, from, (enum rp_repl_kind)e->kind, bytes,
			&answer, now_of(n->sim));
		response(n, e->peer, e->kind, answer, e->token, rc != 0);
	} else {
		struct unary_wait *w = calloc(1, sizeof(*w));

		RP_ASSERT(w != NULL);
		*w = (struct unary_wait){
			.id = ++n->unary_ids, .token = e->token, .caller = e->peer};
		rp_list_push_back(&n->unary_waits, &w->node);
		if (rp_control_unary_in(n->control, from, bytes, w->id) != 0) {
			rp_list_unlink(&w->node);
			free(w);
			response(n, e->peer, -1, answer, e->token, true);
		}
	}
	wake_control(n, n->sim->now_ns);
}

static void on_response(struct sim_node *n, const struct event *e)
{
	struct rp_span answer = {e->bytes, e->length};

	if (e->kind >= 0)
		rp_control_peer_result(n->control, e->token, e->failed, answer, now_of(n->sim));
	else
		rp_control_unary_result(n->control, e->token, e->failed, answer);
	wake_control(n, n->sim->now_ns);
}

static void on_dialled(struct sim_node *n, const struct event *e)
{
	static const uint8_t uuid[RP_UUID_BYTES] = "a cluster's uuid";

	if (n->sim->calls_cut) {
		rp_control_peer_failed(n->control, n->peers[e->peer], true, now_of(n->sim));
	} else {
		n->peer_open[e->peer] = true;
		if (rp_control_peer_connected(n->control, n->peers[e->peer], sim_node_id(e->peer),
			    uuid, now_of(n->sim)) != 0)
			n->peer_open[e->peer] = false;
	}
	wake_control(n, n->sim->now_ns);
}

/* The device's queue, which is a shard's: by the hash of the flow where it spreads flows. */
static unsigned queue_of(const struct sim_node *n, const struct rte_mbuf *frame)
{
	const uint8_t *p = rte_pktmbuf_mtod(frame, const uint8_t *), *ip = p + 14;
	const uint8_t *ports = ip + (ip[0] & 15) * 4;
	union rp_ip src, dst;
	struct rp_place_flow flow = {.src = &src, .dst = &dst};

	if (n->sim->options.stacks != SIM_STACKS_RSS || p[12] != 8 || p[13] != 0 || ip[9] != 6)
		return link_shard(&n->sim->options);
	src = rp_ip_from4(ip + 12);
	dst = rp_ip_from4(ip + 16);
	flow.src_port = (uint16_t)(ports[0] << 8 | ports[1]);
	flow.dst_port = (uint16_t)(ports[2] << 8 | ports[3]);
	return rp_place_shard_of(&n->place, &flow);
}

static void dispatch(struct sim *s, struct event *e)
{
	struct sim_node *n = &s->nodes[e->node];

	switch (e->type) {
	case EVENT_WAKE_SHARD:
		if (n->shards[e->shard].wake_ns == e->at_ns) {
			n->shards[e->shard].wake_ns = RP_NEVER;
			run_shard(n, e->shard);
		}
		break;
	case EVENT_WAKE_CONTROL:
		if (n->control_wake_ns == e->at_ns) {
			n->control_wake_ns = RP_NEVER;
			run_control(n);
		}
		break;
	case EVENT_FRAME: {
		unsigned shard = queue_of(n, e->frame);

		rp_engine_rx(n->shards[shard].engine, 0, &e->frame, 1, s->now_ns);
		wake_shard(n, shard, s->now_ns);
		break;
	}
	case EVENT_RING:
		on_ring(n, e);
		break;
	case EVENT_DIALLED:
		on_dialled(n, e);
		break;
	case EVENT_REQUEST:
		on_request(n, e);
		break;
	case EVENT_RESPONSE:
		on_response(n, e);
		break;
	case EVENT_TIMER:
		s->hooks.timer(s->hooks.ctx, e->token);
		break;
	}
	free(e->bytes);
}

bool sim_run_until(struct sim *s, uint64_t until_ns, bool (*done)(void *ctx), void *ctx)
{
	while (s->count > 0 && s->heap[0].at_ns <= until_ns) {
		struct event e = pop(s);

		s->now_ns = e.at_ns;
		dispatch(s, &e);
		if (done && done(ctx))
			return true;
	}
	s->now_ns = until_ns;
	return done ? done(ctx) : true;
}

void sim_at(struct sim *s, uint64_t at_ns, uint64_t id)
{
	schedule(s, (struct event){
			    .at_ns = RP_MAX(at_ns, s->now_ns), .type = EVENT_TIMER, .token = id});
}

/* ---- operations ---- */

static struct rp_span text(const char *t)
{
	return (struct rp_span){(const uint8_t *)t, strlen(t)};
}

static int queue_op(
	struct sim *s, unsigned node, const struct rp_control_queue_op *op, uint64_t token)
{
	int rc = rp_control_queue_op(s->nodes[node].control, op, token);

	wake_control(&s->nodes[node], s->now_ns);
	return rc;
}

int sim_put(struct sim *s, unsigned node, const char *queue, const char *tail, const void *value,
	size_t length, uint64_t token)
{
	struct rp_control_queue_op op = {
		.type = RP_XMSG_PUT,
		.hash = rp_queue_hash(queue, strlen(queue)),
		.name = text(queue),
		.tail = text(tail),
		.value = {value, length},
	};

	return queue_op(s, node, &op, token);
}

int sim_ack(struct sim *s, unsigned node, const char *queue, uint64_t idx,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t token)
{
	struct rp_control_queue_op op = {
		.type = RP_XMSG_ACK,
		.hash = rp_queue_hash(queue, strlen(queue)),
		.name = text(queue),
		.idx = idx,
	};

	memcpy(op.uuid, uuid, sizeof(op.uuid));
	return queue_op(s, node, &op, token);
}

int sim_consumer_open(struct sim *s, unsigned node, const char *queue,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t consumer)
{
	struct sim_node *n = &s->nodes[node];
	int64_t revision;
	int rc = rp_control_consumer_open(n->control, consumer, text(queue),
		rp_queue_hash(queue, strlen(queue)), uuid, 0, &revision, now_of(s));

	wake_control(n, s->now_ns);
	return rc;
}

void sim_consumer_close(struct sim *s, unsigned node, uint64_t consumer)
{
	rp_control_consumer_close(s->nodes[node].control, consumer, RP_QUEUE_CLOSE_ENDED);
	wake_control(&s->nodes[node], s->now_ns);
}

void sim_consumer_accepted(struct sim *s, unsigned node, uint64_t consumer, uint64_t idx)
{
	rp_control_consumer_accepted(s->nodes[node].control, consumer, idx);
	wake_control(&s->nodes[node], s->now_ns);
}

void sim_network(struct sim *s, const struct rp_impair_spec *spec)
{
	for (unsigned i = 0; i < s->options.nodes; i++)
		rp_impair_set(&s->nodes[i].impair, spec);
}

void sim_calls_cut(struct sim *s, bool cut)
{
	s->calls_cut = cut;
}

struct rp_control *sim_control(struct sim *s, unsigned node)
{
	return s->nodes[node].control;
}

struct rp_engine *sim_engine(struct sim *s, unsigned node, unsigned shard)
{
	return s->nodes[node].shards[shard].engine;
}

bool sim_joined(struct sim *s)
{
	unsigned link_shard = s->options.shards > 1 ? 1 : 0;

	for (unsigned i = 0; i < s->options.nodes; i++) {
		struct sim_node *n = &s->nodes[i];

		if (rp_links_up_count(rp_engine_links(n->shards[link_shard].engine)) !=
			s->options.nodes - 1)
			return false;
		for (unsigned p = 0; p < s->options.nodes; p++)
			if (rp_repl_state_of(rp_control_repl(n->control), sim_node_id(p)) !=
				RP_REPL_ONLINE)
				return false;
	}
	return true;
}

/* ---- the end ---- */

static void check_pool(struct sim *s, struct rte_mempool *pool)
{
	unsigned in_use = rte_mempool_in_use_count(pool);

	if (in_use > 0 && s->fault[0] == '\0')
		snprintf(s->fault, sizeof(s->fault), "%u buffers of %s did not come back", in_use,
			pool->name);
}

const char *sim_destroy(struct sim *s)
{
	static char fault[sizeof(s->fault)];

	for (size_t i = 0; i < s->count; i++) {
		rte_pktmbuf_free(s->heap[i].frame);
		rp_xmsg_free(&s->heap[i].m);
		free(s->heap[i].bytes);
	}
	for (unsigned i = 0; i < s->options.nodes; i++) {
		struct sim_node *n = &s->nodes[i];
		struct rp_list *l;

		while ((l = rp_list_pop_front(&n->unary_waits)))
			free(rp_list_entry(l, struct unary_wait, node));
		rp_control_destroy(n->control);
		for (unsigned k = 0; k < s->options.shards; k++)
			rp_engine_destroy(n->shards[k].engine);
	}
	/* A frame may hold references to another pool's buffers: all must be gone first. */
	for (unsigned i = 0; i < s->options.nodes; i++) {
		check_pool(s, s->nodes[i].queue_pool);
		check_pool(s, s->nodes[i].frame_pool);
		rte_mempool_free(s->nodes[i].queue_pool);
		rte_mempool_free(s->nodes[i].frame_pool);
	}
	memcpy(fault, s->fault, sizeof(fault));
	free(s->heap);
	free(s);
	return fault[0] ? fault : NULL;
}
