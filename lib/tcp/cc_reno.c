/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/* Reno's growth and reduction (RFC 5681), counted in bytes (RFC 3465). */

static void reno_init(struct tcp_conn *c)
{
}

void tcp_cc_reno_grow(struct tcp_conn *c, uint32_t acked, uint32_t *acked_sum)
{
	acked = tcp_cc_slow_start(c, acked);
	*acked_sum += acked;
	if (*acked_sum >= c->cwnd) {
		*acked_sum -= c->cwnd;
		c->cwnd = RP_MIN(c->cwnd + c->mss, tcp_cc_window_max(c));
	}
}

uint32_t tcp_cc_reno_reduce(const struct tcp_conn *c)
{
	/* RFC 5681 (4). */
	return RP_MAX(tcp_cc_flight(c) / 2, 2u * c->mss);
}

static void reno_on_ack(struct tcp_conn *c, uint32_t acked, uint64_t now_ns)
{
	tcp_cc_reno_grow(c, acked, &c->cc_state.reno.acked);
}

static uint32_t reno_reduce(struct tcp_conn *c, enum tcp_congestion why)
{
	c->cc_state.reno.acked = 0;
	return tcp_cc_reno_reduce(c);
}

static void reno_on_undo(struct tcp_conn *c)
{
	c->cc_state.reno.acked = 0;
}

const struct tcp_cc_ops tcp_cc_reno = {
	.name = "reno",
	.init = reno_init,
	.on_ack = reno_on_ack,
	.reduce = reno_reduce,
	.on_undo = reno_on_undo,
};
