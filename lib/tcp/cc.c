/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/* What all congestion controls have in common: the first window, slow start, marks. */

uint32_t tcp_initial_window(const struct tcp_conn *c)
{
	/* RFC 6928 2. */
	return RP_MIN(10u * c->mss, RP_MAX(2u * c->mss, 14600u));
}

uint32_t tcp_cc_window_max(const struct tcp_conn *c)
{
	return 2 * tcp_stack_of(c)->config.send_buffer_bytes + 10u * c->mss;
}

uint32_t tcp_cc_flight(const struct tcp_conn *c)
{
	/*
	 * What is in the network or thought to be lost of it (RFC 5681 2, FlightSize). With what
	 * was reported out of order it may be more than the window ever was: a window that is
	 * derived from that would not shrink.
	 */
	return RP_MIN(c->pipe + c->lost_bytes + c->sacked_bytes + c->cc_acked, c->cwnd);
}

uint32_t tcp_cc_slow_start(struct tcp_conn *c, uint32_t acked)
{
	uint32_t grow;

	if (c->cwnd >= c->ssthresh)
		return acked;
	/* By bytes (RFC 3465), without its limit: one ACK answers a whole burst here. */
	grow = RP_MIN(acked, c->ssthresh - c->cwnd);
	c->cwnd = RP_MIN(c->cwnd + grow, tcp_cc_window_max(c));
	return acked - grow;
}

void tcp_cc_select(struct tcp_conn *c)
{
	switch ((enum rp_congestion)c->cc_wanted) {
	case RP_CONGESTION_DCTCP:
		/* Without marks it would be Reno with a longer name. */
		c->cc = c->ecn & TCP_ECN_ON ? &tcp_cc_dctcp : &tcp_cc_cubic;
		break;
	case RP_CONGESTION_RENO:
		c->cc = &tcp_cc_reno;
		break;
	case RP_CONGESTION_DEFAULT:
	case RP_CONGESTION_CUBIC:
		c->cc = &tcp_cc_cubic;
		break;
	}
	if (c->cc == &tcp_cc_dctcp)
		c->ecn |= TCP_ECN_DCTCP;
	memset(&c->cc_state, 0, sizeof(c->cc_state));
	c->cc->init(c);
}
