/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Bytes from whoever reaches the peer port. The first byte: bit 0 the node accepts (else it has
 * dialed), bit 1 its links are open, so that any MAC proves and the bytes get as far as frames;
 * the rest how large the pieces are in which the others arrive. After them the clock runs past the
 * handshake's deadline, and no mbuf may be missing.
 */

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_eal.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>
#include <base/rand.h>
#include <link/link.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct rte_mempool *pool;
static unsigned pool_start;

/* One connection at a time, whose bytes go nowhere. */
struct wire {
	struct rp_transport transport;
	struct rp_conn conn;
	const struct rp_conn_events *events;
	void *ctx;
	rp_accept_fn accept;
	void *listen_ctx;
	bool alive, closing;
	uint32_t unconsumed;
};

static struct wire *wire_of(const struct rp_conn *c)
{
	return RP_CONTAINER_OF(c->transport, struct wire, transport);
}

static struct rp_conn *wire_dial(struct rp_transport *t, const struct rp_endpoint *peer,
	const struct rp_conn_options *options, const struct rp_conn_events *events, void *ctx,
	uint64_t now)
{
	struct wire *w = RP_CONTAINER_OF(t, struct wire, transport);

	if (w->alive)
		return NULL;
	w->alive = true;
	w->closing = false;
	w->unconsumed = 0;
	w->events = events;
	w->ctx = ctx;
	return &w->conn;
}

static int wire_listen(struct rp_transport *t, uint16_t port, const struct rp_conn_options *options,
	rp_accept_fn accept, void *listen_ctx)
{
	struct wire *w = RP_CONTAINER_OF(t, struct wire, transport);

	w->accept = accept;
	w->listen_ctx = listen_ctx;
	return 0;
}

static int wire_send(struct rp_conn *c, struct rte_mbuf *chain, uint64_t now)
{
	RP_ASSERT(wire_of(c)->alive);
	rte_pktmbuf_free(chain);
	return 0;
}

static uint32_t wire_space(const struct rp_conn *c)
{
	return 65536;
}

static uint32_t wire_piece(const struct rp_conn *c)
{
	return 0;
}

static void wire_consume(struct rp_conn *c, uint32_t bytes, uint64_t now)
{
	RP_ASSERT(bytes <= wire_of(c)->unconsumed);
	wire_of(c)->unconsumed -= bytes;
}

static void wire_ends(const struct rp_conn *c, struct rp_endpoint *local, struct rp_endpoint *peer)
{
	*local = *peer = (struct rp_endpoint){0};
}

static void wire_close(struct rp_conn *c, uint64_t now)
{
	RP_ASSERT(wire_of(c)->alive);
	wire_of(c)->closing = true;
}

static void wire_abort(struct rp_conn *c, uint64_t now)
{
	RP_ASSERT(wire_of(c)->alive);
	wire_of(c)->alive = false;
}

static const struct rp_transport_ops wire_ops = {
	.dial = wire_dial,
	.listen = wire_listen,
	.send = wire_send,
	.send_space = wire_space,
	.piece = wire_piece,
	.ends = wire_ends,
	.consume = wire_consume,
	.close = wire_close,
	.abort = wire_abort,
};

static void on_random(void *ctx, void *out, size_t length)
{
	memset(out, 0x42, length);
}

static void on_up(void *ctx, uint64_t node, uint32_t bundle, uint64_t boot, uint64_t now)
{
}

static void on_down(void *ctx, uint64_t node, enum rp_link_down why, uint64_t now)
{
}

static void on_frames(void *ctx, uint64_t node, struct rte_mbuf **frames, unsigned n, uint64_t now)
{
	struct rp_links **l = ctx;

	RP_ASSERT(n > 0 && n <= RP_LINK_BURST);
	for (unsigned i = 0; i < n; i++) {
		RP_ASSERT(frames[i]->data_len >= 24 && frames[i]->pkt_len >= 24);
		/* The layer above finds fault now and then. */
		if (*rte_pktmbuf_mtod_offset(frames[i], uint8_t *, 5) == 0xee)
			rp_links_violation(*l, node, now);
		rte_pktmbuf_free(frames[i]);
	}
}

static void on_room(void *ctx, uint64_t node, uint64_t now)
{
}

static const struct rp_links_ops ops = {
	.random = on_random,
	.on_up = on_up,
	.on_down = on_down,
	.on_frames = on_frames,
	.on_room = on_room,
};

static void start(void)
{
	char *args[] = {"fuzz", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};

	RP_ASSERT(rte_eal_init((int)RP_ARRAY_SIZE(args), args) >= 0);
	pool = rte_pktmbuf_pool_create(
		"fuzz", 2047, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	RP_ASSERT(pool);
	pool_start = rte_mempool_avail_count(pool);
	rp_log_set_level(RP_LOG_CRIT);
}

static void feed(struct wire *w, const uint8_t *data, size_t size, uint32_t piece, uint64_t now)
{
	while (size > 0 && w->alive) {
		size_t n = RP_MIN(size, (size_t)piece);
		struct rte_mbuf *m = rp_mbuf_from(pool, data, n);

		RP_ASSERT(m);
		w->unconsumed += (uint32_t)n;
		w->events->on_data(w->ctx, &w->conn, m, now);
		data += n;
		size -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t secret[32] = {1, 2, 3};
	struct rp_links_config config = {
		.node = 20,
		.boot = 101,
		.cluster_uuid = "cluster",
		.per_peer = 1,
		.secret = secret,
		.secret_length = sizeof(secret),
		.heartbeat_ns = 500 * RP_NS_PER_MS,
		.dead_after_ns = 3000 * RP_NS_PER_MS,
		.handshake_grace_ns = 10 * RP_NS_PER_S,
		.peer_queue_frames = 16,
		.peers_max = 2,
		.handshakes_max = 2,
		.pool = NULL,
	};
	const struct rp_endpoint at = {.family = 4, .port = 1};
	struct wire w = {.transport = {&wire_ops, "wire"}};
	struct rp_links *l = NULL;
	uint64_t now = RP_NS_PER_S;
	bool accepts;

	if (!pool)
		start();
	if (size < 1)
		return 0;
	accepts = data[0] & 1;
	config.pool = pool;
	if (data[0] & 2)
		config.secret = NULL;
	w.conn.transport = &w.transport;
	l = rp_links_create(&config, &ops, &l);
	RP_ASSERT(l);
	RP_ASSERT(rp_links_listen(l, &w.transport, 1) == 0);
	RP_ASSERT(rp_links_add_peer(l, accepts ? 10 : 30, &w.transport, &at, now) == 0);
	rp_links_poll(l, now);
	if (accepts) {
		w.alive = true;
		RP_ASSERT(w.accept(w.listen_ctx, &w.conn, &at, &w.events, &w.ctx, now) == 0);
	} else {
		RP_ASSERT(w.alive);
		w.events->on_open(w.ctx, &w.conn, now);
	}
	feed(&w, data + 1, size - 1, 1 + (uint32_t)(data[0] >> 2) * 8, now);
	rp_links_flush(l, now);
	for (int i = 0; i < 3; i++) {
		now += 6 * RP_NS_PER_S;
		rp_links_poll(l, now);
		rp_links_flush(l, now);
	}
	RP_ASSERT(rp_links_handshakes(l) == 0);
	if (w.alive && w.closing)
		w.events->on_close(w.ctx, &w.conn, RP_CLOSE_FIN, now);
	rp_links_destroy(l);
	RP_ASSERT(rte_mempool_avail_count(pool) == pool_start);
	return 0;
}
