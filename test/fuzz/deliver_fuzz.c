/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Frames of a proven peer, and flat frames of its RPCs. The input is a row of frames, each with two
 * bytes before it: its length (little-endian, 15 bits), and in the top bit that it comes by RPC. A
 * frame's own length field is made to fit, or hardly any would get past it; its type, flags, handle
 * and fields are as they come. The node has messages of each kind on their way to the peer, so that
 * answers have something to answer. A violation takes the link down, as in the engine.
 */

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_eal.h>

#include <base/assert.h>
#include <base/mbuf.h>
#include <deliver/deliver.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PEER 10

struct node {
	struct rp_deliver *d;
	uint64_t now;
	uint32_t sent, ended, messages;
};

static struct rte_mempool *pool;
static unsigned pool_start;

static int frame_out(
	void *ctx, uint64_t node, uint32_t bundle, uint32_t hash, struct rte_mbuf *frame)
{
	rte_pktmbuf_free(frame);
	return 0;
}

static int unary_send(
	void *ctx, uint64_t node, uint32_t hash, struct rte_mbuf *frame, uint64_t token)
{
	return -ENOTCONN;
}

static void violation(void *ctx, uint64_t node, enum rp_deliver_violation why)
{
	struct node *n = ctx;

	rp_deliver_peer_down(n->d, node, n->now);
}

/* What is said to a message turns with their number; all of it is looked at. */
static int on_msg(void *ctx, uint64_t node, const struct rp_qmsg *m, uint32_t *epoch,
	uint64_t *dispatcher, uint64_t now)
{
	struct node *n = ctx;
	uint32_t length = m->payload ? m->payload->pkt_len : 0;
	bool stream = m->type == RP_QMSG_FORWARD || m->type == RP_QMSG_DELIVER;

	RP_ASSERT(m->tail_length <= length && m->name_length > 0);
	RP_ASSERT(m->hash == rp_queue_hash(m->name, m->name_length));
	RP_ASSERT(length == 0 || m->tail_length <= m->payload->data_len);
	n->messages++;
	if (stream && n->messages % 5 == 3)
		return RP_DELIVER_HOLD;
	if (stream && n->messages % 5 == 4)
		return RP_Q_MOVED;
	rte_pktmbuf_free(m->payload);
	return RP_Q_OK;
}

static void on_took(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t now)
{
	((struct node *)ctx)->ended++;
}

static void on_refused(void *ctx, uint64_t node, const struct rp_qmsg *m, enum rp_qstatus status,
	uint32_t epoch, uint64_t dispatcher, uint64_t now)
{
	((struct node *)ctx)->ended++;
	rte_pktmbuf_free(m->payload);
}

static void on_lost(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t now)
{
	((struct node *)ctx)->ended += m->type == RP_QMSG_FORWARD || m->type == RP_QMSG_DELIVER;
	rte_pktmbuf_free(m->payload);
}

static void on_room(void *ctx, uint64_t node, uint64_t now)
{
}

static const struct rp_deliver_ops ops = {
	.frame_out = frame_out,
	.unary_send = unary_send,
	.violation = violation,
	.on_msg = on_msg,
	.on_took = on_took,
	.on_refused = on_refused,
	.on_lost = on_lost,
	.on_room = on_room,
};

static void start(void)
{
	char *args[] = {"fuzz", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};

	RP_ASSERT(rte_eal_init((int)RP_ARRAY_SIZE(args), args) >= 0);
	pool = rte_pktmbuf_pool_create(
		"fuzz", 4095, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	RP_ASSERT(pool);
	pool_start = rte_mempool_avail_count(pool);
}

static void send_one(struct node *n, enum rp_qmsg_type type, uint32_t bytes)
{
	static const uint8_t zeros[4000];
	struct rp_qmsg m = {
		.type = type,
		.name = (const uint8_t *)"jobs",
		.name_length = 4,
		.hash = rp_queue_hash("jobs", 4),
		.tail_length = 1,
		.payload = rp_mbuf_from(pool, zeros, bytes),
	};

	RP_ASSERT(m.payload);
	RP_ASSERT(rp_deliver_send(n->d, PEER, &m, n->now) == 0);
	n->sent += type == RP_QMSG_FORWARD || type == RP_QMSG_DELIVER;
}

static void feed(struct node *n, const uint8_t *data, size_t length, bool rpc)
{
	uint8_t bytes[4096];
	struct rp_deliver_answer answer;
	struct rte_mbuf *m;
	uint32_t fits = length >= 24 ? (uint32_t)length - 24 : 0;

	memcpy(bytes, data, length);
	if (length >= 12)
		memcpy(bytes + 8, &fits, 4);
	m = rp_mbuf_from(pool, bytes, length);
	RP_ASSERT(m);
	if (!rpc) {
		rp_deliver_on_frame(n->d, PEER, m, n->now);
	} else if (rp_deliver_unary_shard(bytes, length, 1) == 0) {
		if (rp_deliver_on_unary(n->d, PEER, m, &answer, n->now) == 0)
			RP_ASSERT(answer.status < RP_QSTATUS_COUNT);
	} else {
		rte_pktmbuf_free(m);
	}
}

static void play(struct node *n, const uint8_t *data, size_t size)
{
	while (size >= 2) {
		uint32_t head = data[0] | (uint32_t)data[1] << 8;
		size_t length = RP_MIN(RP_MIN((size_t)(head & 0x7fff), size - 2), (size_t)4096);

		feed(n, data + 2, length, head >> 15);
		data += 2 + length;
		size -= 2 + length;
		n->now += 10 * RP_NS_PER_MS;
		rp_deliver_poll(n->d, n->now);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_deliver_config config = {
		.node = 20,
		.shards = 1,
		.message_bytes_max = 3000,
		.window_bytes = 1000,
		.window_messages = 8,
		.peer_budget_bytes = 3000,
		.streams_max = 8,
		.peers_max = 2,
		.peer_messages_max = 32,
		.messages_max = 64,
		.idle_ns = RP_NS_PER_S,
		.unary_fallback = false,
	};
	struct node n = {.now = 1};

	if (!pool)
		start();
	config.pool = pool;
	n.d = rp_deliver_create(&config, &ops, &n);
	RP_ASSERT(n.d);
	RP_ASSERT(rp_deliver_peer_up(n.d, PEER, 1, n.now) == 0);
	for (int i = 0; i < 3; i++) {
		send_one(&n, RP_QMSG_FORWARD, 100 + 1400 * (uint32_t)i);
		send_one(&n, RP_QMSG_DELIVER, 50);
		send_one(&n, RP_QMSG_REPLY, 200);
	}
	rp_deliver_poll(n.d, n.now);
	play(&n, data, size);
	rp_deliver_resume(n.d, n.now);
	for (int i = 0; i < 4; i++) {
		n.now += 700 * RP_NS_PER_MS;
		rp_deliver_poll(n.d, n.now);
	}
	/* Each message we sent ends exactly once. */
	rp_deliver_peer_remove(n.d, PEER, n.now);
	RP_ASSERT(n.ended == n.sent);
	rp_deliver_destroy(n.d);
	RP_ASSERT(rte_mempool_avail_count(pool) == pool_start);
	return 0;
}
