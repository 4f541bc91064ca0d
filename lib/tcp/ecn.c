/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/*
 * Explicit congestion notification: negotiation, echo of marks and reaction to them (RFC 3168 6.1),
 * with DCTCP's echo of each change (RFC 8257 3.2).
 */

void tcp_ecn_on_syn(struct tcp_conn *c, const struct tcp_segment_in *in)
{
	uint8_t flags = in->flags & (TCP_ECE | TCP_CWR), want = TCP_ECE | TCP_CWR;

	if (in->flags & TCP_ACK)
		want = TCP_ECE; /* with both it is a reflection, not an answer */
	c->ecn &= ~(TCP_ECN_ON | TCP_ECN_ECT);
	if (flags != want || !(c->ecn & (in->flags & TCP_ACK ? TCP_ECN_ASKED : TCP_ECN_ACCEPT)))
		return;
	c->ecn |= TCP_ECN_ON;
	/*
	 * Whoever has sent a SYN without the offer marks nothing (6.1.1), but the peer may, if it
	 * was the first SYN that arrived.
	 */
	if (!(in->flags & TCP_ACK) || c->ecn & TCP_ECN_ASK)
		c->ecn |= TCP_ECN_ECT;
}

void tcp_ecn_established(struct tcp_conn *c)
{
	/* What is left is about data: without ECN nothing, so that nothing is looked at. */
	c->ecn &= TCP_ECN_ON | TCP_ECN_ECT;
	c->ecn_recover = c->snd_una - 1;
}

/* The echo changes: what waits to be acknowledged is told with the old one (RFC 8257 3.2). */
static void ecn_turn(struct tcp_conn *c, uint64_t now_ns)
{
	if (c->ecn & TCP_ECN_DCTCP && c->rcv_nxt != c->last_ack_sent)
		tcp_send_control(c, c->snd_nxt, TCP_ACK, now_ns);
	c->ecn ^= TCP_ECN_ECHO;
}

void tcp_ecn_data(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns)
{
	bool ce = in->ecn == RP_NET_ECN_CE;

	if (in->length == 0)
		return; /* nothing else may be marked (6.1.4) */
	if (ce)
		tcp_stack_of(c)->counters->ecn_ce_rx++;
	if (c->ecn & TCP_ECN_DCTCP) {
		if (ce != !!(c->ecn & TCP_ECN_ECHO))
			ecn_turn(c, now_ns);
		return;
	}
	/* 6.1.3: until the peer says that it has reduced; a mark on that very segment is a new one.
	 */
	if (in->flags & TCP_CWR)
		c->ecn &= ~TCP_ECN_ECHO;
	if (ce)
		c->ecn |= TCP_ECN_ECHO;
}

void tcp_ecn_reduced(struct tcp_conn *c)
{
	c->ecn_recover = c->snd_nxt;
	if (c->ecn & TCP_ECN_ON)
		c->ecn |= TCP_ECN_CWR;
}

void tcp_ecn_ack(struct tcp_conn *c, const struct tcp_segment_in *in, struct tcp_ack_result *r)
{
	bool ece = in->flags & TCP_ECE;

	if (c->cc->on_marks && r->acked > 0)
		c->cc->on_marks(c, r->acked, ece);
	if (!ece)
		return;
	r->ece = true; /* no growth with it (6.1.2) */
	/* Once a window of data. */
	if (c->ca_state != TCP_CA_OPEN || !rp_seq_gt(c->snd_una, c->ecn_recover))
		return;
	tcp_stack_of(c)->counters->ecn_reductions++;
	/* The window that was marked includes what this ACK took out of it. */
	c->cc_acked = r->acked;
	c->ssthresh = c->cc->reduce(c, TCP_CONGESTION_ECN);
	c->cc_acked = 0;
	c->cwnd = RP_MIN(c->cwnd, c->ssthresh);
	c->flags &= ~TCPF_UNDO; /* the mark is real, whatever the loss before it was */
	tcp_ecn_reduced(c);
}

uint8_t tcp_ecn_output(struct tcp_conn *c, const struct tseg *t, uint8_t *flags)
{
	bool fresh = t->length > 0 && !(t->flags & TSEG_SENT);

	if (t->flags & TSEG_SYN) {
		if (c->state == TCPS_SYN_SENT)
			*flags |= c->ecn & TCP_ECN_ASK ? TCP_ECE | TCP_CWR : 0;
		else
			*flags |= c->ecn & TCP_ECN_ON ? TCP_ECE : 0;
		return RP_NET_ECN_NONE;
	}
	if (c->ecn & TCP_ECN_ECHO)
		*flags |= TCP_ECE;
	/* 6.1.5: what is sent again is not marked, and carries no CWR. */
	if (!fresh)
		return RP_NET_ECN_NONE;
	if (c->ecn & TCP_ECN_CWR) {
		c->ecn &= ~TCP_ECN_CWR;
		*flags |= TCP_CWR;
	}
	return c->ecn & TCP_ECN_ECT ? RP_NET_ECN_ECT0 : RP_NET_ECN_NONE;
}
