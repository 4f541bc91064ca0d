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

/* RFC 9406 4.3. */
#define HYSTART_SAMPLES 8
#define HYSTART_DIVISOR 8
#define HYSTART_THRESH_MIN_NS (4 * RP_NS_PER_MS)
#define HYSTART_THRESH_NEAR_NS (200 * RP_NS_PER_US)
#define HYSTART_THRESH_MAX_NS (16 * RP_NS_PER_MS)
#define HYSTART_LOW_WINDOW 16u /* of segments; not in the RFC, which does not leave at once */
#define CSS_GROWTH_DIVISOR 4
#define CSS_ROUNDS 5

/* So much longer than in the round before, round trips have a queue in them. */
static uint64_t hystart_thresh_ns(const struct tcp_conn *c)
{
	/* The least is there for hosts whose timers and interrupts alone make milliseconds. */
	uint64_t least_ns = tcp_is_near(c) ? HYSTART_THRESH_NEAR_NS : HYSTART_THRESH_MIN_NS;
	uint64_t thresh_ns = RP_MIN(c->hystart.last_ns / HYSTART_DIVISOR, HYSTART_THRESH_MAX_NS);

	return RP_MAX(least_ns, thresh_ns);
}

static void hystart_leave(struct tcp_conn *c)
{
	c->ssthresh = c->cwnd;
	c->hystart.css = 0;
}

/* A round ends: true where conservative slow start does so with it. */
static bool hystart_round(struct tcp_conn *c)
{
	struct tcp_hystart *h = &c->hystart;

	h->round_end = c->snd_nxt;
	h->last_ns = h->current_ns;
	h->current_ns = 0;
	h->samples = 0;
	return h->css > 0 && h->css++ == CSS_ROUNDS;
}

/* RFC 9406 4.2. */
void tcp_hystart_on_ack(struct tcp_conn *c, uint64_t rtt_ns)
{
	enum rp_slow_start how = tcp_stack_of(c)->config.slow_start;
	struct tcp_hystart *h = &c->hystart;

	if (c->ssthresh != TCP_SSTHRESH_INITIAL || how == RP_SLOW_START_PLAIN)
		return;
	if (rp_seq_gt(c->snd_una, h->round_end) && hystart_round(c)) {
		hystart_leave(c);
		return;
	}
	if (h->samples == HYSTART_SAMPLES && h->css > 0 && h->current_ns < h->base_ns) {
		h->css = 0; /* it was no queue */
	} else if (h->samples == HYSTART_SAMPLES && h->css == 0 && h->last_ns > 0 &&
		   h->current_ns >= h->last_ns + hystart_thresh_ns(c)) {
		if (how == RP_SLOW_START_CSS) {
			h->base_ns = h->current_ns;
			h->css = 1;
		} else if (c->cwnd >= HYSTART_LOW_WINDOW * c->mss) {
			hystart_leave(c);
		}
	}
	if (rtt_ns == 0)
		return;
	h->current_ns = h->current_ns ? RP_MIN(h->current_ns, rtt_ns) : rtt_ns;
	h->samples = (uint8_t)RP_MIN(h->samples + 1, HYSTART_SAMPLES);
}

uint32_t tcp_cc_slow_start(struct tcp_conn *c, uint32_t acked)
{
	uint32_t grow, rest;

	if (c->cwnd >= c->ssthresh)
		return acked;
	/* By bytes (RFC 3465), without its limit: one ACK answers a whole burst here. */
	grow = c->hystart.css > 0 ? acked / CSS_GROWTH_DIVISOR : acked;
	rest = grow > c->ssthresh - c->cwnd ? grow - (c->ssthresh - c->cwnd) : 0;
	c->cwnd = RP_MIN(c->cwnd + grow - rest, tcp_cc_window_max(c));
	return rest;
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
