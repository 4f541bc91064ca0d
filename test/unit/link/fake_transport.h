/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Two transports joined in memory: bytes move in fake_step(), in pieces of `piece` bytes, through a
 * window; they can be cut off (black hole) and reset.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/list.h>
#include <base/mbuf.h>
#include <base/transport.h>

#define FAKE_WINDOW 65536u

struct fake_conn {
	struct rp_conn conn;
	struct rp_list entry;
	struct fake_conn *other; /* NULL: it is gone */
	const struct rp_conn_events *events;
	void *ctx;
	uint8_t out[FAKE_WINDOW]; /* on the way to the other */
	uint32_t out_length, unconsumed;
	bool opening, dead, fin, fin_seen, fin_told, refused, reset;
	uint64_t bytes_total;
};

struct fake_transport {
	struct rp_transport transport;
	struct fake_net *net;
	struct fake_transport *other;
	rp_accept_fn accept;
	void *listen_ctx;
	uint32_t user_timeout_seen;
	struct rp_conn_options dial_options, listen_options;
	uint32_t ecn_dials[RP_ECN_INSIST + 1];
	uint64_t far_shards[16]; /* asked for by the first dials */
	uint32_t dials;
};

struct fake_net {
	struct fake_transport side[2];
	struct rp_list conns;
	struct rte_mempool *pool;
	uint32_t piece;
	bool hole; /* nothing moves */
	uint32_t space_max;
	uint32_t alive;
};

static inline struct fake_conn *fake_conn_new(struct fake_transport *t)
{
	struct fake_conn *c = calloc(1, sizeof(*c));

	c->conn.transport = &t->transport;
	rp_list_push_back(&t->net->conns, &c->entry);
	t->net->alive++;
	return c;
}

static inline struct rp_conn *fake_dial(struct rp_transport *transport,
	const struct rp_endpoint *peer, const struct rp_conn_options *options,
	const struct rp_conn_events *events, void *ctx, uint64_t now_ns)
{
	struct fake_transport *t = RP_CONTAINER_OF(transport, struct fake_transport, transport);
	struct fake_conn *c = fake_conn_new(t);

	if (options->user_timeout_ns != 0)
		t->user_timeout_seen++;
	t->dial_options = *options;
	t->ecn_dials[options->ecn]++;
	if (t->dials < RP_ARRAY_SIZE(t->far_shards))
		t->far_shards[t->dials++] = options->far_shards;
	c->events = events;
	c->ctx = ctx;
	c->opening = true;
	return &c->conn;
}

static inline int fake_listen(struct rp_transport *transport, uint16_t port,
	const struct rp_conn_options *options, rp_accept_fn accept, void *listen_ctx)
{
	struct fake_transport *t = RP_CONTAINER_OF(transport, struct fake_transport, transport);

	t->listen_options = *options;
	t->accept = accept;
	t->listen_ctx = listen_ctx;
	return 0;
}

static inline uint32_t fake_space(const struct rp_conn *conn)
{
	const struct fake_conn *c = (const struct fake_conn *)conn;
	const struct fake_net *net = ((const struct fake_transport *)conn->transport)->net;
	uint32_t max = net->space_max ? net->space_max : FAKE_WINDOW;

	return c->out_length < max ? max - c->out_length : 0;
}

static inline uint32_t fake_piece(const struct rp_conn *c)
{
	return 0;
}

static inline void fake_ends(
	const struct rp_conn *c, struct rp_endpoint *local, struct rp_endpoint *peer)
{
	*local = *peer = (struct rp_endpoint){.family = 4, .port = 7400};
}

static inline int fake_send(struct rp_conn *conn, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct fake_conn *c = (struct fake_conn *)conn;

	RP_ASSERT(!c->dead);
	if (c->fin || c->reset)
		return -EPIPE;
	if (chain->pkt_len > fake_space(conn)) {
		c->refused = true;
		return -EAGAIN;
	}
	c->out_length += rp_mbuf_copy_out(chain, 0, c->out + c->out_length, chain->pkt_len);
	c->bytes_total += chain->pkt_len;
	rte_pktmbuf_free(chain);
	return 0;
}

static inline void fake_consume(struct rp_conn *conn, uint32_t bytes, uint64_t now_ns)
{
	struct fake_conn *c = (struct fake_conn *)conn;

	RP_ASSERT(bytes <= c->unconsumed);
	c->unconsumed -= bytes;
}

static inline void fake_close(struct rp_conn *conn, uint64_t now_ns)
{
	((struct fake_conn *)conn)->fin = true;
}

static inline void fake_abort(struct rp_conn *conn, uint64_t now_ns)
{
	struct fake_conn *c = (struct fake_conn *)conn;

	RP_ASSERT(!c->dead);
	c->dead = true;
	c->events = NULL;
	if (c->other) {
		c->other->reset = true;
		c->other->other = NULL;
		c->other = NULL;
	}
}

static const struct rp_transport_ops fake_ops = {
	.dial = fake_dial,
	.listen = fake_listen,
	.send = fake_send,
	.send_space = fake_space,
	.piece = fake_piece,
	.ends = fake_ends,
	.consume = fake_consume,
	.close = fake_close,
	.abort = fake_abort,
};

static inline void fake_init(struct fake_net *net, struct rte_mempool *pool)
{
	*net = (struct fake_net){.pool = pool, .piece = FAKE_WINDOW};
	rp_list_init(&net->conns);
	for (int i = 0; i < 2; i++) {
		net->side[i].transport.ops = &fake_ops;
		net->side[i].transport.name = "fake";
		net->side[i].net = net;
		net->side[i].other = &net->side[1 - i];
	}
}

static inline void fake_end(struct fake_conn *c, enum rp_close_reason why, uint64_t now)
{
	c->dead = true;
	if (c->other)
		c->other->other = NULL;
	c->other = NULL;
	if (c->events && c->events->on_close)
		c->events->on_close(c->ctx, &c->conn, why, now);
	c->events = NULL;
}

static inline void fake_open(struct fake_net *net, struct fake_conn *c, uint64_t now)
{
	struct fake_transport *t = (struct fake_transport *)c->conn.transport;
	struct fake_conn *o;

	c->opening = false;
	if (!t->other->accept) {
		fake_end(c, RP_CLOSE_REFUSED, now);
		return;
	}
	o = fake_conn_new(t->other);
	o->other = c;
	c->other = o;
	if (t->other->accept(t->other->listen_ctx, &o->conn, NULL, &o->events, &o->ctx, now) != 0) {
		o->dead = true;
		c->other = NULL;
		fake_end(c, RP_CLOSE_RESET, now);
		return;
	}
	c->events->on_open(c->ctx, &c->conn, now);
}

static inline bool fake_move(struct fake_net *net, struct fake_conn *c, uint64_t now)
{
	struct fake_conn *o = c->other;
	uint32_t n = RP_MIN(c->out_length, net->piece);
	struct rte_mbuf *m;

	if (!o || n == 0 || o->unconsumed + n > FAKE_WINDOW)
		return false;
	m = rp_mbuf_from(net->pool, c->out, n);
	if (!m)
		return false;
	c->out_length -= n;
	memmove(c->out, c->out + n, c->out_length);
	o->unconsumed += n;
	o->events->on_data(o->ctx, &o->conn, m, now);
	if (!c->dead && c->refused && fake_space(&c->conn) > 0) {
		c->refused = false;
		c->events->on_writable(c->ctx, &c->conn, now);
	}
	return true;
}

static inline bool fake_conn_step(struct fake_net *net, struct fake_conn *c, uint64_t now)
{
	bool moved = false;

	if (c->dead)
		return false;
	if (c->reset) {
		fake_end(c, RP_CLOSE_RESET, now);
		return true;
	}
	if (c->opening) {
		fake_open(net, c, now);
		return true;
	}
	moved = fake_move(net, c, now);
	if (!c->dead && c->fin && c->out_length == 0 && c->other && !c->other->fin_told) {
		c->other->fin_told = true;
		c->other->events->on_peer_fin(c->other->ctx, &c->other->conn, now);
		moved = true;
	}
	if (!c->dead && c->fin && c->fin_told && c->out_length == 0) {
		struct fake_conn *o = c->other;

		fake_end(c, RP_CLOSE_FIN, now);
		if (o && !o->dead && o->fin)
			fake_end(o, RP_CLOSE_FIN, now);
		moved = true;
	}
	return moved;
}

/** One round over all connections; true when something moved. */
static inline bool fake_step(struct fake_net *net, uint64_t now)
{
	struct rp_list *n, *t;
	bool moved = false;

	if (!net->hole) {
		rp_list_foreach (n, &net->conns)
			moved |=
				fake_conn_step(net, rp_list_entry(n, struct fake_conn, entry), now);
	}
	rp_list_foreach_safe (n, t, &net->conns) {
		struct fake_conn *c = rp_list_entry(n, struct fake_conn, entry);

		if (c->dead) {
			if (c->other)
				c->other->other = NULL;
			rp_list_unlink(n);
			free(c);
			net->alive--;
		}
	}
	return moved;
}

static inline void fake_fini(struct fake_net *net)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&net->conns)) != NULL)
		free(rp_list_entry(n, struct fake_conn, entry));
}
