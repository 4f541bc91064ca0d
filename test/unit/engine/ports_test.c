/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A link whose shard has no queue of the port: what comes is handed over to it, what it sends
 * leaves by the queue of another. And no pattern of full rings loses an mbuf.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/mbuf.h>
#include <base/rand.h>
#include <engine/shard_engine.h>

#define SHARDS 3
#define LINK_SHARD 2
#define RING 512
#define MS RP_NS_PER_MS

struct node;

struct shard {
	struct node *node;
	unsigned index;
	struct rp_engine *engine;
	struct rp_xmsg ring[RING];
	uint8_t from[RING];
	unsigned head, tail;
};

struct node {
	unsigned index;
	struct rp_place *place;
	struct shard shard[SHARDS];
	struct rte_mempool *pool;
	unsigned links_up;
};

static struct node nodes[2];
static struct rp_rand chance;
static unsigned lose_percent; /* of messages between shards, as a full ring refuses them */
static uint64_t now = 1000 * RP_NS_PER_S;

static int post(void *ctx, unsigned to, const struct rp_xmsg *m)
{
	struct shard *s = ctx, *target;

	if (to == RP_ENGINE_CONTROL) {
		if (m->type == RP_XMSG_LINK_STATE)
			s->node->links_up = m->value;
		rp_xmsg_free(m);
		return 0;
	}
	target = &s->node->shard[to];
	if (rp_xmsg_class_of(m->type) == RP_XMSG_CLASS_N &&
		(target->tail - target->head == RING || rp_rand_below(&chance, 100) < lose_percent))
		return -ENOBUFS;
	assert_true(target->tail - target->head < RING);
	target->from[target->tail % RING] = (uint8_t)s->index;
	target->ring[target->tail++ % RING] = *m;
	return 0;
}

static void draw(void *ctx, void *out, size_t length)
{
	for (uint8_t *p = out; length > 0; length--)
		*p++ = (uint8_t)rp_rand_u64(&chance);
}

static const struct rp_engine_ops ops = {.post = post, .random = draw};

static void tcp_config(struct node *n, struct rp_tcp_config *t)
{
	*t = (struct rp_tcp_config){
		.net = {.iface = {.mac = {2, 0, 0, 0, 0, (uint8_t)(n->index + 1)},
				.mtu = 1500,
				.addresses = {{.ip = RP_IP4(10, 0, 0, (uint8_t)(n->index + 1)),
					.prefix_length = 24}}},
			.header_pool = n->pool},
		.connections_max = 16,
		.segments_max = 1024,
		.rto_min_ns = 5 * MS,
		.secret = {(uint8_t)n->index},
	};
}

static void shard_new(struct node *n, unsigned index)
{
	struct rp_engine_config c = {
		.shard = index,
		.shards = SHARDS,
		.link_shard = LINK_SHARD,
		.link_shards = 1u << LINK_SHARD,
		.port_count = 1,
		.ports_foreign = index != 0,
		.place = {n->place},
		.stack_shards = (1u << SHARDS) - 1,
		.listen_port = 7400,
		.links = {.node = n->index + 1,
			.boot = n->index + 5,
			.per_peer = 1,
			.heartbeat_ns = 500 * MS,
			.dead_after_ns = 3 * RP_NS_PER_S,
			.handshake_grace_ns = 10 * RP_NS_PER_S,
			.peer_queue_frames = 1024,
			.peers_max = 4,
			.handshakes_max = 4,
			.pool = n->pool},
		.deliver = {.node = n->index + 1,
			.shard = index,
			.shards = SHARDS,
			.message_bytes_max = 4096,
			.window_bytes = 4096,
			.peer_budget_bytes = 1 << 20,
			.peer_frames_max = index == LINK_SHARD ? 0 : 64,
			.streams_max = 64,
			.peers_max = 4,
			.peer_messages_max = 64,
			.messages_max = 64,
			.idle_ns = 30 * RP_NS_PER_S,
			.pool = n->pool},
		.queue = {.node = n->index + 1,
			.boot = n->index + 5,
			.pool = n->pool,
			.message_bytes_max = 4096,
			.queues_max = 16,
			.messages_max = 64,
			.consumers_max = 16,
			.holds_max = 16,
			.producers_max = 16,
			.tails_max = 16},
	};
	struct shard *s = &n->shard[index];

	tcp_config(n, &c.tcp[0]);
	*s = (struct shard){.node = n, .index = index};
	s->engine = rp_engine_create(&c, &ops, s, now);
	assert_non_null(s->engine);
}

static void node_new(unsigned index)
{
	struct node *n = &nodes[index];
	uint8_t table[8];
	char name[32];
	static unsigned serial;

	snprintf(name, sizeof(name), "ports%u", serial++);
	*n = (struct node){.index = index};
	n->pool = rte_pktmbuf_pool_create_by_ops(
		name, 8191, 0, 0, RTE_PKTMBUF_HEADROOM + 2048, SOCKET_ID_ANY, "ring_mp_mc");
	assert_non_null(n->pool);
	n->place = malloc(sizeof(*n->place));
	memset(table, LINK_SHARD, sizeof(table));
	assert_int_equal(rp_place_init(n->place, rp_place_key_default, table, sizeof(table)), 0);
	for (unsigned i = 0; i < SHARDS; i++)
		shard_new(n, i);
}

static void add_peer(struct node *n)
{
	struct rp_xmsg_peer peer = {
		.tcp_family = 4, .tcp_port = 7400, .tcp_addr = {10, 0, 0, (uint8_t)(2 - n->index)}};
	struct rp_xmsg m = {.type = RP_XMSG_SET_PEER,
		.node = 2 - n->index,
		.m = rp_mbuf_from(n->pool, &peer, sizeof(peer))};

	rp_engine_on_xmsg(n->shard[LINK_SHARD].engine, RP_ENGINE_CONTROL, &m, now);
}

static void turn(struct shard *s)
{
	struct rte_mbuf *out[32];
	unsigned n;

	while (s->head != s->tail) {
		struct rp_xmsg m = s->ring[s->head % RING];

		rp_engine_on_xmsg(s->engine, s->from[s->head++ % RING], &m, now);
	}
	rp_engine_poll(s->engine, now);
	if (s->index != 0)
		return; /* only the first one has a queue */
	while ((n = rp_engine_tx(s->engine, 0, out, 32)) > 0) {
		struct node *peer = &nodes[1 - s->node->index];

		for (unsigned i = 0; i < n; i++) {
			struct rte_mbuf *copy = rte_pktmbuf_copy(out[i], peer->pool, 0, UINT32_MAX);

			rte_pktmbuf_free(out[i]);
			rp_engine_rx(peer->shard[0].engine, 0, &copy, 1, now);
		}
	}
}

static void run(uint64_t ns)
{
	for (uint64_t until = now + ns; now < until; now += MS / 10)
		for (unsigned n = 0; n < 2; n++)
			for (unsigned s = 0; s < SHARDS; s++)
				turn(&nodes[n].shard[s]);
}

static void nodes_free(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct node *n = &nodes[i];

		for (unsigned s = 0; s < SHARDS; s++) {
			struct shard *k = &n->shard[s];

			for (; k->head != k->tail; k->head++)
				rp_xmsg_free(&k->ring[k->head % RING]);
			rp_engine_destroy(k->engine);
		}
		free(n->place);
		assert_int_equal(rte_mempool_avail_count(n->pool), 8191);
		rte_mempool_free(n->pool);
	}
}

static void snapshot(struct shard *s, struct rp_engine_snapshot *snap)
{
	*snap = (struct rp_engine_snapshot){0};
	rp_engine_snapshot(s->engine, snap, now);
}

static void a_link_without_a_queue(void **state)
{
	struct rp_engine_snapshot snap;

	chance.state = 7;
	lose_percent = 0;
	node_new(0);
	node_new(1);
	add_peer(&nodes[0]);
	add_peer(&nodes[1]);
	run(3000 * MS);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(nodes[i].links_up, 1);
		snapshot(&nodes[i].shard[0], &snap);
		assert_true(snap.engine.packets_handed > 8);
		assert_int_equal(snap.tcp.rx_segments, 0);
		assert_int_equal(snap.tcp.handed_over, snap.engine.packets_handed);
		snapshot(&nodes[i].shard[LINK_SHARD], &snap);
		assert_true(snap.engine.packets_out > 8);
		assert_int_equal(snap.tcp.handed_here, snap.tcp.rx_segments);
		assert_int_equal(snap.tcp_usage.connections, 1);
	}
	nodes_free();
}

/* Rings that refuse what they are given: the link comes up all the same, and nothing leaks. */
static void rings_that_are_full(void **state)
{
	struct rp_engine_snapshot snap;

	chance.state = 9;
	lose_percent = 20;
	node_new(0);
	node_new(1);
	add_peer(&nodes[0]);
	add_peer(&nodes[1]);
	run(5000 * MS);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(nodes[i].links_up, 1);
		snapshot(&nodes[i].shard[0], &snap);
		assert_true(snap.engine.packets_dropped > 0);
	}
	nodes_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_link_without_a_queue),
		cmocka_unit_test(rings_that_are_full),
	};
	char *args[] = {"test", "--no-huge", "-m", "128", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};

	if (rte_eal_init((int)(sizeof(args) / sizeof(args[0])), args) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
