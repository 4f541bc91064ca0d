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

#include "sim_priv.h"

#define RING_SLOTS 1024
#define RING_RESERVE 512

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
	sim_schedule(n->sim, (struct event){.at_ns = n->sim->now_ns + RING_NS,
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
		sim_wake_control(n, n->sim->now_ns + RING_NS);
		return -EAGAIN;
	}
	n->to_shard[shard]++;
	sim_schedule(n->sim, (struct event){.at_ns = n->sim->now_ns + RING_NS,
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

	sim_schedule(n->sim, (struct event){.at_ns = n->sim->now_ns + n->sim->options.call_delay_ns,
				     .type = EVENT_DIALLED,
				     .node = n->index,
				     .peer = node_of_peer(n, peer)});
}

static void control_hangup(void *ctx, rp_repl_peer_id peer)
{
	struct sim_node *n = ctx;

	n->peer_open[node_of_peer(n, peer)] = false;
}

/* On their way, one that is cut is told of when the caller gives up. */
static uint64_t call_at(const struct sim_node *from, unsigned to, bool *failed)
{
	const struct sim *s = from->sim;

	if (!s->way_cut[from->index][to])
		return s->now_ns + s->options.call_delay_ns + from->slow_ns + s->nodes[to].slow_ns;
	*failed = true;
	return s->now_ns + CALL_TIMEOUT_NS;
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
	bool failed = false;
	uint64_t at_ns = call_at(n, peer, &failed);

	if (failed) {
		sim_schedule(n->sim, (struct event){.at_ns = at_ns,
					     .type = EVENT_RESPONSE,
					     .node = n->index,
					     .kind = kind,
					     .token = token,
					     .failed = true,
					     .bytes = copy_bytes((struct rp_span){0})});
		return;
	}
	sim_schedule(n->sim, (struct event){.at_ns = at_ns,
				     .type = EVENT_REQUEST,
				     .node = peer,
				     .peer = n->index,
				     .kind = kind,
				     .token = token,
				     .bytes = copy_bytes(bytes),
				     .length = bytes.length});
}

void sim_response(struct sim_node *n, unsigned caller, int kind, struct rp_span bytes,
	uint64_t token, bool failed)
{
	uint64_t at_ns = call_at(n, caller, &failed);

	sim_schedule(n->sim, (struct event){.at_ns = at_ns,
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

static bool control_eligible(void *ctx, uint64_t node, struct rp_span key)
{
	const struct sim_node *n = ctx;
	unsigned to = (unsigned)(node - sim_node_id(0));

	return to >= n->sim->options.nodes || !n->apart[to] || key.length < 3 ||
	       memcmp(key.data, "/q/", 3) != 0;
}

static bool control_same_zone(void *ctx, uint64_t node)
{
	const struct sim_node *n = ctx;
	unsigned to = (unsigned)(node - sim_node_id(0));

	return to < n->sim->options.nodes && !n->apart[to];
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
		sim_response(n, w->caller, -1, answer, w->token, answer.length == 0);
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
	.eligible = control_eligible,
	.same_zone = control_same_zone,
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

unsigned sim_link_shard(const struct sim_options *o)
{
	return o->shards > 1 ? 1 : 0;
}

static void shard_new(struct sim_node *n, unsigned shard)
{
	static const uint8_t secret[32] = "thirty-two bytes of a secret...";
	const struct sim_options *o = &n->sim->options;
	uint64_t boot = 77 + n->index + 100 * n->life;
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
			.queues_max = o->queues ? o->queues : 4096,
			.messages_max = 65536,
			.consumers_max = 1024,
			.holds_max = 16384,
			.producers_max = 4096,
			.tails_max = 4096},
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
	rp_engine_set_wall_offset(n->shards[shard].engine, ((int64_t)WALL_US + n->skew_us) * 1000);
	sim_wake_shard(n, shard, n->sim->now_ns);
}

void sim_node_new(struct sim *s, unsigned index)
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
	n->limits = sim_limits(s);
	if (!n->queue_pool) {
		n->queue_pool = pool_new("queue", index, buffers, 2048);
		n->frame_pool = pool_new("frame", index, 2 * buffers + 1, 640);
	}
	rp_impair_init(&n->impair, &s->options.network, rp_rand_u64(&s->rand));
	c.self = (struct rp_node_record){.node = n->id,
		.boot = 77 + index + 100 * n->life,
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

void sim_peer_add(struct sim_node *n, unsigned other)
{
	char address[64];

	snprintf(address, sizeof(address), "http://10.0.0.%u:2379", other + 1);
	n->peers[other] = rp_control_peer_add(n->control, address, sim_now_of(n));
}

void sim_node_start(struct sim_node *n)
{
	for (unsigned p = 0; p < n->sim->options.nodes; p++) {
		n->peers[p] = RP_REPL_NO_PEER;
		n->peer_open[p] = false;
		if (p != n->index)
			sim_peer_add(n, p);
	}
	rp_control_start(n->control, sim_now_of(n));
	sim_policy_use(n);
	sim_wake_control(n, n->sim->now_ns);
}

void sim_node_free(struct sim_node *n)
{
	struct rp_list *l;

	while ((l = rp_list_pop_front(&n->unary_waits))) {
		struct unary_wait *w = rp_list_entry(l, struct unary_wait, node);

		sim_response(n, w->caller, -1, (struct rp_span){0}, w->token, true);
		free(w);
	}
	rp_control_destroy(n->control);
	for (unsigned k = 0; k < n->sim->options.shards; k++)
		rp_engine_destroy(n->shards[k].engine);
	memset(n->to_shard, 0, sizeof(n->to_shard));
	memset(n->to_control, 0, sizeof(n->to_control));
}
