/* SPDX-License-Identifier: Apache-2.0 */
#include "dial.h"

#include <errno.h>

#include <rte_mbuf.h>

#include <base/mbuf.h>
#include <base/units.h>

#define AT_ONCE_MAX 64
#define PIECE 1024

/* One connection. */
struct dialled {
	struct rp_conn *conn; /* NULL: the slot is free */
	uint32_t sent, received, skew;
	bool opened, fin, ended; /* fin: the peer's; ended: our direction */
};

static struct dial_plan plan;
static struct dial_counts counts;
static struct rp_tcp_stack *stack;
static struct rte_mempool *pool;
static struct dialled slots[AT_ONCE_MAX];
static uint32_t open_count;

/* Differs by connection, so that no stream is taken for another. */
static uint8_t pattern(const struct dialled *d, uint32_t at)
{
	return (uint8_t)(at * 31 + (at >> 8) + d->skew);
}

static struct rte_mbuf *piece_of(const struct dialled *d, uint32_t length)
{
	uint8_t data[PIECE];

	for (uint32_t i = 0; i < length; i++)
		data[i] = pattern(d, d->sent + i);
	return rp_mbuf_from(pool, data, length);
}

static void pump(struct dialled *d, uint64_t now_ns)
{
	const struct rp_transport_ops *ops = d->conn->transport->ops;

	if (!d->opened || d->ended || (plan.peer_first && !d->fin))
		return;
	while (d->sent < plan.bytes) {
		uint32_t length = RP_MIN(plan.bytes - d->sent, PIECE);
		struct rte_mbuf *m = piece_of(d, length);

		if (!m)
			return;
		if (ops->send(d->conn, m, now_ns) != 0) {
			rte_pktmbuf_free(m);
			counts.refused_sends++;
			return;
		}
		d->sent += length;
	}
	d->ended = true;
	if (d->fin)
		ops->close(d->conn, now_ns);
	else
		rp_tcp_shutdown(d->conn, now_ns);
}

static void on_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct dialled *d = ctx;

	d->opened = true;
	pump(d, now_ns);
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct dialled *d = ctx;
	uint32_t length = chain->pkt_len;

	for (const struct rte_mbuf *m = chain; m; m = m->next) {
		const uint8_t *data = rte_pktmbuf_mtod(m, const uint8_t *);

		/* What the peer says first is its own: zeros. */
		for (uint16_t i = 0; i < m->data_len; i++)
			counts.bad_bytes +=
				data[i] != (plan.peer_first ? 0 : pattern(d, d->received + i));
		d->received += m->data_len;
	}
	rte_pktmbuf_free(chain);
	c->transport->ops->consume(c, length, now_ns);
}

static void on_writable(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	pump(ctx, now_ns);
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct dialled *d = ctx;

	d->fin = true;
	if (d->ended)
		c->transport->ops->close(c, now_ns);
	else
		pump(d, now_ns);
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct dialled *d = ctx;
	bool whole = d->sent == plan.bytes && d->received == plan.bytes;

	counts.closed[why]++;
	counts.short_streams += !whole;
	counts.good += whole && why == RP_CLOSE_FIN;
	*d = (struct dialled){0};
	open_count--;
}

static const struct rp_conn_events events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_writable = on_writable,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

void dial_begin(const struct dial_plan *p, struct rp_tcp_stack *s, struct rte_mempool *payloads)
{
	plan = *p;
	plan.at_once = RP_MIN(plan.at_once, AT_ONCE_MAX);
	stack = s;
	pool = payloads;
}

void dial_turn(uint64_t now_ns)
{
	struct rp_conn_options options = {.rto_min_ns = 200 * RP_NS_PER_MS,
		.ack_delay_max_ns = 40 * RP_NS_PER_MS,
		.ecn = plan.ecn ? RP_ECN_ASK : RP_ECN_DEFAULT};
	struct rp_transport *t = rp_tcp_transport(stack);

	if (!plan.peer.family)
		return;
	for (unsigned i = 0; i < plan.at_once && counts.begun < plan.total; i++) {
		struct dialled *d = &slots[i];

		if (d->conn)
			continue;
		*d = (struct dialled){.skew = (uint32_t)counts.begun * 7};
		d->conn = t->ops->dial(t, &plan.peer, &options, &events, d, now_ns);
		if (!d->conn)
			return;
		counts.begun++;
		open_count++;
	}
}

bool dial_done(void)
{
	return plan.peer.family && counts.begun == plan.total && open_count == 0;
}

const struct dial_counts *dial_counts(void)
{
	return &counts;
}
