/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Two nodes, 10 (dials) and 20 (accepts), on a fake network and a clock of their own. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include <base/mbuf.h>
#include <base/rand.h>
#include <link/frame.h>
#include <link/link.h>

#include "eal.h"
#include "fake_transport.h"
#include "hello_priv.h"

#define NODE_A 10
#define NODE_B 20

struct node {
	struct rp_links *links;
	struct rp_rand rand;
	uint64_t peer;
	uint32_t bundle; /* 0: down */
	uint32_t ups, downs, rooms, answered;
	uint64_t answered_ns;
	enum rp_link_down why;
	uint32_t frames, frame_bad;
	uint32_t violate_at; /* the n-th frame is called a violation */
	uint64_t now;
};

static struct rte_mempool *pool;
static unsigned pool_start;
static struct fake_net net;
static struct node nodes[3]; /* the third: A once more */
static uint64_t now;

static uint8_t secret_1[32] = {1, 2, 3};
static uint8_t secret_2[40] __attribute__((unused)) = {9, 8, 7};

static void node_random(void *ctx, void *out, size_t length)
{
	struct node *n = ctx;

	for (size_t i = 0; i < length; i++)
		((uint8_t *)out)[i] = (uint8_t)rp_rand_u64(&n->rand);
}

static void node_up(void *ctx, uint64_t peer, uint32_t bundle, uint64_t boot, uint64_t t)
{
	struct node *n = ctx;

	assert_int_equal(n->bundle, 0);
	assert_true(bundle != 0);
	n->bundle = bundle;
	n->ups++;
}

static void node_down(void *ctx, uint64_t peer, enum rp_link_down why, uint64_t t)
{
	struct node *n = ctx;

	assert_true(n->bundle != 0);
	n->bundle = 0;
	n->downs++;
	n->why = why;
}

/* Frame i of a sender has length i * 37 % 17000 and bytes that follow from i. */
static inline uint32_t frame_length(uint32_t i)
{
	return i * 37 % (RP_FRAME_LENGTH_MAX + 1);
}

static inline struct rte_mbuf *frame_make(uint32_t i)
{
	static uint8_t bytes[RP_FRAME_HEADER_BYTES + RP_FRAME_LENGTH_MAX];
	const struct rp_frame_header h = {
		.type = RP_FRAME_QACK, .handle = i, .length = frame_length(i)};

	rp_frame_header_write(&h, bytes);
	memset(bytes + RP_FRAME_HEADER_BYTES, (int)(i * 7 + 1), h.length);
	return rp_mbuf_from(pool, bytes, RP_FRAME_HEADER_BYTES + h.length);
}

static void node_frame(struct node *n, struct rte_mbuf *frame)
{
	static uint8_t bytes[RP_FRAME_HEADER_BYTES + RP_FRAME_LENGTH_MAX + 1];
	struct rp_frame_header h;
	size_t length = rp_mbuf_copy_out(frame, 0, bytes, sizeof(bytes));

	rp_frame_header_read(&h, rte_pktmbuf_mtod(frame, const void *));
	if (frame->data_len < RP_FRAME_HEADER_BYTES || h.handle != n->frames ||
		h.length != frame_length(n->frames) || length != RP_FRAME_HEADER_BYTES + h.length)
		n->frame_bad++;
	for (size_t i = RP_FRAME_HEADER_BYTES; i < length; i++)
		n->frame_bad += bytes[i] != (uint8_t)(n->frames * 7 + 1);
	n->frames++;
	rte_pktmbuf_free(frame);
}

/* What comes behind one that breaks the rules is of a bundle that is over. */
static void node_frames(
	void *ctx, uint64_t peer, struct rte_mbuf **frames, unsigned count, uint64_t t)
{
	struct node *n = ctx;
	unsigned i = 0;

	while (i < count) {
		node_frame(n, frames[i++]);
		if (n->frames == n->violate_at) {
			rp_links_violation(n->links, peer, t);
			break;
		}
	}
	while (i < count)
		rte_pktmbuf_free(frames[i++]);
}

static void node_room(void *ctx, uint64_t peer, uint64_t t)
{
	((struct node *)ctx)->rooms++;
}

static void node_answered(void *ctx, uint64_t peer, uint64_t sent, uint64_t t)
{
	struct node *n = ctx;

	n->answered++;
	n->answered_ns = sent;
}

static const struct rp_links_ops node_ops = {
	.random = node_random,
	.on_up = node_up,
	.on_down = node_down,
	.on_frames = node_frames,
	.on_room = node_room,
	.on_answered = node_answered,
};

static struct rp_links_config node_config(int i)
{
	return (struct rp_links_config){
		.node = i == 0 ? NODE_A : NODE_B,
		.boot = 100 + (uint64_t)i,
		.cluster_uuid = "cluster",
		.per_peer = 1,
		.secret = secret_1,
		.secret_length = sizeof(secret_1),
		.heartbeat_ns = 500 * RP_NS_PER_MS,
		.dead_after_ns = 3000 * RP_NS_PER_MS,
		.conn = {.congestion = RP_CONGESTION_DCTCP, .ack_delay_max_ns = RP_NS_PER_MS},
		.handshake_grace_ns = 10000 * RP_NS_PER_MS,
		.peer_queue_frames = 64,
		.peers_max = 4,
		.handshakes_max = 8,
		.pool = pool,
	};
}

static inline void node_start(struct node *n, int i, const struct rp_links_config *config)
{
	static const struct rp_endpoint somewhere = {.family = 4, .port = 7400};

	*n = (struct node){.rand = {(uint64_t)i + config->boot}, .peer = i == 0 ? NODE_B : NODE_A};
	n->links = rp_links_create(config, &node_ops, n);
	assert_non_null(n->links);
	assert_int_equal(rp_links_listen(n->links, &net.side[i].transport, 7400), 0);
	assert_int_equal(
		rp_links_add_peer(n->links, n->peer, &net.side[i].transport, &somewhere, now), 0);
}

static inline void turn(void)
{
	fake_step(&net, now);
	for (int i = 0; i < 3; i++) {
		if (!nodes[i].links)
			continue;
		rp_links_poll(nodes[i].links, now);
		rp_links_flush(nodes[i].links, now);
	}
}

static inline void run_for(uint64_t ns)
{
	uint64_t end = now + ns;

	for (; now < end; now += 5 * RP_NS_PER_MS) {
		turn();
		turn();
	}
}

static inline void world_start(const struct rp_links_config *a, const struct rp_links_config *b)
{
	now = 0;
	fake_init(&net, pool);
	memset(nodes, 0, sizeof(nodes));
	if (a)
		node_start(&nodes[0], 0, a);
	if (b)
		node_start(&nodes[1], 1, b);
}

static inline void world_end(void)
{
	for (int i = 0; i < 3; i++) {
		rp_links_destroy(nodes[i].links);
		nodes[i].links = NULL;
	}
	fake_step(&net, now);
	fake_fini(&net);
	assert_int_equal(rte_mempool_avail_count(pool), pool_start);
}

static inline int world_setup(void)
{
	if (test_eal_init() < 0)
		return -1;
	pool = rte_pktmbuf_pool_create(
		"link", 8191, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (!pool)
		return -1;
	pool_start = rte_mempool_avail_count(pool);
	return 0;
}
