/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/* NewReno's growth and reduction (RFC 5681), counted in bytes (RFC 3465). */

uint32_t tcp_initial_window(const struct tcp_conn *c)
{
	/* RFC 6928 2. */
	return RP_MIN(10u * c->mss, RP_MAX(2u * c->mss, 14600u));
}

static uint32_t cc_window_max(const struct tcp_conn *c)
{
	return 2 * tcp_stack_of(c)->config.send_buffer_bytes + 10u * c->mss;
}

static void newreno_init(struct tcp_conn *c)
{
	c->ca_acked = 0;
}

static void newreno_on_ack(struct tcp_conn *c, uint32_t acked, uint64_t now_ns)
{
	uint32_t max = cc_window_max(c);

	if (c->cwnd < c->ssthresh) {
		uint32_t grow = RP_MIN(acked, c->ssthresh - c->cwnd);

		c->cwnd += grow;
		acked -= grow;
	}
	c->ca_acked += acked;
	if (c->ca_acked >= c->cwnd) {
		c->ca_acked -= c->cwnd;
		c->cwnd += c->mss;
	}
	c->cwnd = RP_MIN(c->cwnd, max);
}

static uint32_t newreno_ssthresh(struct tcp_conn *c)
{
	/* RFC 5681 (4), with what is in the network or thought to be lost of it. */
	uint32_t flight = c->pipe + c->lost_bytes + c->sacked_bytes;

	c->ca_acked = 0;
	return RP_MAX(flight / 2, 2u * c->mss);
}

static void newreno_on_undo(struct tcp_conn *c)
{
	c->ca_acked = 0;
}

const struct tcp_cc_ops tcp_cc_newreno = {
	.name = "newreno",
	.init = newreno_init,
	.on_ack = newreno_on_ack,
	.ssthresh = newreno_ssthresh,
	.on_undo = newreno_on_undo,
};
