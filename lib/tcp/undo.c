/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/*
 * Taking back what followed from a loss that was none. Three ways to know: the ACK of what was
 * retransmitted echoes a timestamp from before (Eifel, RFC 3522, with the response of RFC 4015);
 * after a timeout, an ACK takes with it what was sent before and never again (F-RTO, RFC 5682 3,
 * step 3b); every retransmission is reported as a duplicate (RFC 3708 over RFC 2883).
 */

/* So many round trips after the first of several reductions the later ones stand on their own. */
#define UNDO_CHAIN_RTTS 8

void tcp_undo_begin(struct tcp_conn *c, uint64_t now_ns)
{
	/*
	 * What came late by several round trips is reported when the next recovery has begun. Until
	 * all that went again is reported, or some time passed, they are one.
	 */
	c->undo_chained = c->flags & TCPF_UNDO && c->undo_bytes > 0 && c->flags & TCPF_REORDERING &&
			  now_ns - c->undo_ns < UNDO_CHAIN_RTTS * c->srtt_ns;
	c->frto_ns = 0;
	c->undo_end = c->snd_nxt;
	if (c->undo_chained)
		return;
	c->flags |= TCPF_UNDO;
	c->undo_ns = now_ns;
	c->undo_una = c->undo_rtx_end = c->snd_una;
	c->undo_bytes = 0;
	c->undo_cwnd = c->cwnd;
	c->undo_ssthresh = c->ssthresh;
}

void tcp_undo_retransmitted(struct tcp_conn *c, const struct tseg *t, uint64_t now_ns)
{
	if (c->undo_bytes == 0) {
		c->undo_rtx_end = tseg_end(t);
		c->undo_ts = tcp_ts_now(now_ns) + c->ts_offset;
	}
	c->undo_bytes += tseg_span(t);
}

/* Nothing is lost any more; what is, is found again. The list in flight is by time of sending. */
static void undo_losses(struct tcp_conn *c)
{
	struct rp_list *l, *at;

	while ((l = rp_list_pop_front(&c->lost))) {
		struct tseg *t = tseg_of_xmit(l);

		t->flags &= ~TSEG_LOST;
		c->lost_bytes -= tseg_span(t);
		c->pipe += tseg_span(t);
		for (at = c->xmit.next; at != &c->xmit; at = at->next)
			if (tseg_of_xmit(at)->xmit_ns > t->xmit_ns)
				break;
		rp_list_push_back(at, l); /* in front of `at` */
	}
}

void tcp_undo(struct tcp_conn *c)
{
	c->flags &= ~TCPF_UNDO;
	if (c->ca_state != TCP_CA_LOSS)
		c->flags |= TCPF_REORDERING; /* what else, if nothing was lost */
	tcp_stack_of(c)->counters->undo++;
	c->stat_undo++;
	c->cwnd = RP_MAX(c->cwnd, c->undo_cwnd);
	c->ssthresh = RP_MAX(c->ssthresh, c->undo_ssthresh);
	c->cc->on_undo(c);
	undo_losses(c);
	c->ca_state = TCP_CA_OPEN;
	c->dupacks = 0;
	c->dup_bytes = 0;
	c->backoff = 0;
	c->frto_ns = 0;
	c->ecn &= ~TCP_ECN_CWR;
}

/* RFC 3522 3.2: the first ACK behind the first retransmission tells, and no later one. */
static bool undo_by_timestamp(struct tcp_conn *c, const struct tcp_ack_result *r)
{
	if (c->undo_rtx_end == c->undo_una || rp_seq_lt(c->snd_una, c->undo_rtx_end))
		return false;
	c->undo_rtx_end = c->undo_una;
	return r->original || tcp_echo_before(c, r, c->undo_ts);
}

/* The newest of what was acknowledged and never sent twice was sent before the timeout. */
static bool undo_by_frto(const struct tcp_conn *c, const struct tcp_ack_result *r)
{
	return c->frto_ns > 0 && r->rtt_ns > 0 && r->rtt_xmit_ns < c->frto_ns;
}

void tcp_undo_on_ack(struct tcp_conn *c, const struct tcp_ack_result *r, uint64_t now_ns)
{
	bool timeout = c->ca_state == TCP_CA_LOSS;
	uint32_t age_ms;

	if (c->ca_state == TCP_CA_OPEN || r->acked == 0)
		return;
	if (!undo_by_timestamp(c, r) && !undo_by_frto(c, r)) {
		c->frto_ns = 0; /* it is the retransmissions that are being acknowledged */
		return;
	}
	tcp_undo(c);
	if (!timeout)
		return;
	/* RFC 4015 3: the timeout was too short, so the next one knows of that round trip. */
	age_ms = tcp_ts_now(now_ns) + c->ts_offset - r->ts_echo;
	if (r->rtt_ns == 0 && r->has_ts && age_ms > 0 && age_ms < 60000)
		tcp_rtt_sample(c, age_ms * RP_NS_PER_MS);
	if (r->rtt_ns > 0) {
		/* What came in tells of the time that its own transmission took, not of our last.
		 */
		c->rack_xmit_ns = r->rtt_xmit_ns;
		c->rack_rtt_ns = r->rtt_ns;
		c->rack_end = c->snd_una;
	}
}
