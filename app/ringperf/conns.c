/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "conns.h"

/** For what is open when the time of the run is over. */
#define DRAIN_NS (500 * RP_NS_PER_MS)
#define SERVER_PLACES 16384u
/** Held by a server for a client that does not read. */
#define HELD_MAX (1u << 20)

static const struct rp_conn_options conn_options = {
	.rto_min_ns = 5 * RP_NS_PER_MS,
	.ack_delay_max_ns = 1 * RP_NS_PER_MS,
};

static unsigned index_of(const struct conns_conn *c)
{
	return (unsigned)(c - c->conns->all);
}

struct conns_conn *conns_take_idle(struct conns *cs)
{
	struct conns_conn *c = cs->idle < cs->count ? &cs->all[cs->idle] : NULL;

	if (c)
		cs->idle = c->next_idle;
	return c;
}

void conns_put_idle(struct conns_conn *c)
{
	c->next_idle = c->conns->idle;
	c->conns->idle = index_of(c);
}

bool conns_reply(struct conns_conn *c, uint32_t bytes)
{
	struct perf_run *r = c->conns->run;

	c->got += bytes;
	if (!c->busy || c->got > r->options->size) {
		r->faults++;
		return false;
	}
	if (c->got < r->options->size)
		return false;
	c->busy = false;
	perf_pace_done(&r->pace, c->planned_ns, c->begun_ns, 1, rp_clock_now(&r->worker->reader));
	return true;
}

static void fail(struct conns *cs, const char *why)
{
	if (!cs->run->why)
		cs->run->why = why;
	cs->run->finished = true;
}

/* ---- a server's ---- */

static void echo_some(struct conns_conn *c, uint64_t now_ns)
{
	uint32_t bytes;

	if (!c->held)
		return;
	bytes = c->held->pkt_len;
	if (c->c->transport->ops->send(c->c, c->held, now_ns) != 0)
		return;
	c->held = NULL;
	c->c->transport->ops->consume(c->c, bytes, now_ns);
}

static void serve_bytes(struct conns_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct perf_pace *p = &c->conns->run->pace;
	uint32_t bytes = chain->pkt_len;

	p->units += bytes;
	p->ended_in_window++;
	if (!c->conns->echo) {
		rte_pktmbuf_free(chain);
		c->c->transport->ops->consume(c->c, bytes, now_ns);
		return;
	}
	if (c->held && (rte_pktmbuf_chain(c->held, chain) != 0 || c->held->pkt_len > HELD_MAX)) {
		c->c->transport->ops->abort(c->c, now_ns);
		rte_pktmbuf_free(c->held);
		*c = (struct conns_conn){.conns = c->conns};
		c->conns->open--;
		conns_put_idle(c);
		return;
	}
	if (!c->held)
		c->held = chain;
	echo_some(c, now_ns);
}

/* ---- events ---- */

static void on_open(void *ctx, struct rp_conn *conn, uint64_t now_ns)
{
	struct conns_conn *c = ctx;

	c->open = true;
	c->conns->open++;
	if (c->conns->ops && c->conns->ops->on_open)
		c->conns->ops->on_open(c, now_ns);
}

static void on_data(void *ctx, struct rp_conn *conn, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct conns_conn *c = ctx;
	uint32_t bytes = chain->pkt_len;

	if (!c->conns->ops) {
		serve_bytes(c, chain, now_ns);
		return;
	}
	rte_pktmbuf_free(chain);
	conn->transport->ops->consume(conn, bytes, now_ns);
	if (c->conns->ops->on_bytes)
		c->conns->ops->on_bytes(c, bytes, now_ns);
}

static void on_writable(void *ctx, struct rp_conn *conn, uint64_t now_ns)
{
	struct conns_conn *c = ctx;

	if (!c->conns->ops)
		echo_some(c, now_ns);
}

static void on_peer_fin(void *ctx, struct rp_conn *conn, uint64_t now_ns)
{
	conn->transport->ops->close(conn, now_ns);
}

static void on_close(void *ctx, struct rp_conn *conn, enum rp_close_reason why, uint64_t now_ns)
{
	struct conns_conn *c = ctx;
	struct conns *cs = c->conns;

	rte_pktmbuf_free(c->held);
	c->held = NULL;
	c->c = NULL;
	cs->open -= c->open;
	if (cs->ops) {
		cs->ops->on_close(c, why, now_ns);
		c->open = false;
		return;
	}
	*c = (struct conns_conn){.conns = cs};
	conns_put_idle(c);
}

static const struct rp_conn_events conn_events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_writable = on_writable,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

static int on_accept(void *listen_ctx, struct rp_conn *conn, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **ctx, uint64_t now_ns)
{
	struct perf_worker *w = listen_ctx;
	struct conns *cs = w->conns;
	struct conns_conn *c = cs ? conns_take_idle(cs) : NULL;

	if (!c)
		return -EBUSY;
	c->c = conn;
	c->open = true;
	cs->open++;
	*events = &conn_events;
	*ctx = c;
	return 0;
}

/* ---- a client's ---- */

bool conns_dial(struct conns_conn *c, uint64_t now_ns)
{
	struct perf_run *r = c->conns->run;
	struct rp_transport *t = r->worker->transport;
	struct rp_endpoint peer = {.family = 4, .port = r->options->tcp_port};

	memcpy(peer.addr, r->options->peer, sizeof(r->options->peer));
	c->begun_ns = now_ns;
	c->open = false;
	c->c = t->ops->dial(t, &peer, &conn_options, &conn_events, c, now_ns);
	if (c->c)
		return true;
	fail(c->conns, strerror(errno));
	return false;
}

bool conns_ready(struct conns *cs, uint64_t now_ns)
{
	const struct perf_options *o = cs->run->options;
	unsigned dialled = 0;

	if (cs->started)
		return true;
	for (unsigned i = 0; i < cs->count && dialled < 64 && !cs->run->finished; i++) {
		struct conns_conn *c = &cs->all[i];

		if (c->c || (c->begun_ns > 0 && now_ns - c->begun_ns < PERF_DIAL_AGAIN_NS))
			continue;
		dialled++;
		if (!conns_dial(c, now_ns))
			return false;
	}
	if (cs->open < cs->count) {
		if (now_ns - cs->run->begun_ns > o->connect_ns)
			fail(cs, "nobody answers there");
		return false;
	}
	for (unsigned i = 0; i < cs->count; i++)
		conns_put_idle(&cs->all[i]);
	cs->started = true;
	perf_run_pace(cs->run, now_ns);
	return true;
}

bool conns_send(struct conns_conn *c, uint32_t size, uint64_t now_ns)
{
	const struct rp_transport_ops *ops = c->c->transport->ops;
	struct rte_mempool *pool = c->conns->run->worker->pool;
	uint32_t room = (uint32_t)rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
	uint32_t piece = ops->piece(c->c), left = size;
	struct rte_mbuf *first = NULL, *last = NULL;

	piece = piece > 0 ? RP_MIN(piece, room) : room;
	while (left > 0) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

		if (!m)
			break;
		m->data_len = (uint16_t)RP_MIN(left, piece);
		left -= m->data_len;
		if (first) {
			last->next = m;
			first->nb_segs++;
		} else {
			first = m;
			first->pkt_len = size;
		}
		last = m;
	}
	if (left == 0 && ops->send(c->c, first, now_ns) == 0)
		return true;
	rte_pktmbuf_free(first);
	return false;
}

void conns_finish(struct conns *cs, uint64_t now_ns)
{
	struct perf_run *r = cs->run;
	const struct perf_pace_config *c = &r->pace.config;
	uint64_t end_ns = r->pace.begin_ns + c->warmup_ns + c->run_ns + c->cool_ns;
	bool busy = false;

	if (!perf_pace_over(&r->pace, now_ns))
		return;
	for (unsigned i = 0; i < cs->count && !busy; i++)
		busy = cs->all[i].busy;
	r->finished |= !busy || now_ns - end_ns >= DRAIN_NS;
}

/* ---- both ---- */

static int serve(struct perf_run *r, struct conns *cs)
{
	struct perf_worker *w = r->worker;
	struct rp_transport *t = w->transport;
	int rc;

	for (unsigned i = 0; i < cs->count; i++)
		conns_put_idle(&cs->all[i]);
	w->conns = cs;
	if (w->listening)
		return 0;
	rc = t->ops->listen(t, r->options->tcp_port, &conn_options, on_accept, w);
	if (rc < 0)
		r->why = strerror(-rc);
	w->listening = rc == 0;
	return rc;
}

int conns_begin(
	struct perf_run *r, const struct conns_ops *ops, bool echo, bool lazy, uint64_t now_ns)
{
	bool server = r->options->server;
	struct conns *cs = calloc(1, sizeof(*cs));

	if (!cs)
		return -ENOMEM;
	r->state = cs;
	*cs = (struct conns){.run = r,
		.ops = server ? NULL : ops,
		.echo = echo,
		.count = server ? SERVER_PLACES : r->options->connections};
	cs->idle = cs->count;
	cs->all = calloc(cs->count, sizeof(*cs->all));
	if (!cs->all)
		return -ENOMEM;
	for (unsigned i = 0; i < cs->count; i++)
		cs->all[i].conns = cs;
	if (server)
		return serve(r, cs);
	if (!r->options->has_peer) {
		r->why = "--peer is needed";
		return -EINVAL;
	}
	if (!lazy)
		return 0;
	for (unsigned i = 0; i < cs->count; i++)
		conns_put_idle(&cs->all[i]);
	cs->started = true;
	perf_run_pace(r, now_ns);
	return 0;
}

void conns_end(struct perf_run *r, uint64_t now_ns)
{
	struct conns *cs = r->state;

	if (!cs)
		return;
	if (r->worker->conns == cs)
		r->worker->conns = NULL;
	for (unsigned i = 0; cs->all && i < cs->count; i++) {
		struct conns_conn *c = &cs->all[i];

		rte_pktmbuf_free(c->held);
		if (c->c)
			c->c->transport->ops->abort(c->c, now_ns);
	}
	free(cs->all);
	free(cs);
	r->state = NULL;
}
