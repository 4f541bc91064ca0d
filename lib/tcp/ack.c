/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/hot_priv.h>

static inline void rtt_sample(struct tcp_conn *c, uint64_t rtt_ns)
{
	c->rtt_min_ns = RP_MIN(c->rtt_min_ns, rtt_ns);
	if (c->srtt_ns == 0) {
		c->srtt_ns = rtt_ns;
		c->rttvar_ns = rtt_ns / 2;
	} else {
		uint64_t delta_ns = c->srtt_ns > rtt_ns ? c->srtt_ns - rtt_ns : rtt_ns - c->srtt_ns;

		c->rttvar_ns = (3 * c->rttvar_ns + delta_ns) / 4;
		c->srtt_ns = RP_MAX((7 * c->srtt_ns + rtt_ns) / 8, 1u);
	}
	c->rto_ns = c->srtt_ns + 4 * c->rttvar_ns;
}

void tcp_rtt_sample(struct tcp_conn *c, uint64_t rtt_ns)
{
	rtt_sample(c, rtt_ns);
}

/* It is long ago that the next segments were sent: their records and buffers are fetched meanwhile.
 */
static inline void ack_prefetch(const struct tcp_conn *c, const struct tseg *t)
{
	const struct tseg *next;

	if (t->link.next == &c->segs)
		return;
	next = tseg_of_link(t->link.next);
	__builtin_prefetch(next->link.next);
	if (next->payload) {
		__builtin_prefetch(next->payload);
		__builtin_prefetch((const uint8_t *)next->payload + RP_CACHE_LINE);
	}
}

/* Buffers that an ACK frees, which go back to their pool together. */
#define ACK_FREED 16
struct ack_freed {
	struct rte_mbuf *mbufs[ACK_FREED];
	unsigned count;
};

static RP_APART void ack_freed_back(struct ack_freed *f)
{
	rte_mempool_put_bulk(f->mbufs[0]->pool, (void **)f->mbufs, f->count);
	f->count = 0;
}

static inline void ack_free(struct ack_freed *f, struct rte_mbuf *m)
{
	if (!rp_mbuf_is_plain(m)) {
		rte_pktmbuf_free(m);
		return;
	}
	if (f->count > 0 && (f->count == ACK_FREED || f->mbufs[0]->pool != m->pool))
		ack_freed_back(f);
	f->mbufs[f->count++] = m;
}

/*
 * Takes out the common segments at the head: sent once, nothing else known of them. Returns where
 * they end; *xmit_ns is when the last of them was sent.
 */
static inline uint32_t ack_take(struct tcp_conn *c, uint32_t ack, uint64_t *xmit_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct rp_list *first = c->segs.next, *l;
	uint32_t end = c->snd_una, n = 0;
	struct ack_freed freed;

	freed.count = 0;
	for (l = first; l != &c->segs; l = l->next) {
		struct tseg *t = tseg_of_link(l);

		if ((t->flags & ~TSEG_SUM) != TSEG_SENT || rp_seq_gt(t->seq + t->length, ack))
			break;
		ack_prefetch(c, t);
		end = t->seq + t->length;
		*xmit_ns = t->xmit_ns;
		if (c->sack_hint == t)
			c->sack_hint = NULL;
		rp_list_remove(&t->xmit);
		ack_free(&freed, t->payload);
		n++;
	}
	if (n == 0)
		return end;
	rp_list_move_front(&s->tseg_free, first, l->prev);
	s->tseg_count -= n;
	if (freed.count == 1)
		rte_mbuf_raw_free(freed.mbufs[0]);
	else if (freed.count > 0)
		ack_freed_back(&freed);
	c->pipe -= end - c->snd_una;
	return end;
}

/*
 * ... where none behind them was reported. They were sent in this order, so that for RACK and for
 * the round trip the last of them is what counts.
 */
static inline void ack_plain(
	struct tcp_conn *c, uint32_t ack, struct tcp_ack_result *r, uint64_t now_ns)
{
	uint64_t xmit_ns = 0;
	uint32_t end;

	if (rp_seq_gt(c->rack_fack, c->snd_una))
		return;
	end = ack_take(c, ack, &xmit_ns);
	if (end == c->snd_una)
		return;
	r->delivered += end - c->snd_una;
	r->at_una = false;
	tcp_rack_rtt(r, xmit_ns, now_ns - xmit_ns);
	tcp_rack_newest(c, end, xmit_ns, now_ns - xmit_ns);
}

/* Takes the other segments out that are acknowledged. */
static RP_APART void ack_rest(
	struct tcp_conn *c, uint32_t ack, struct tcp_ack_result *r, uint64_t now_ns)
{
	struct tseg *t;

	while ((t = tcp_head(c)) && t->flags & TSEG_SENT && rp_seq_gt(ack, t->seq)) {
		uint32_t span = tseg_span(t), n = RP_MIN(ack - t->seq, span);

		ack_prefetch(c, t);
		if (!(t->flags & TSEG_SACKED)) {
			r->delivered += n;
			tcp_rack_delivered(c, t, r, now_ns);
		}
		r->at_una = false;
		if (n < span) {
			tcp_sendq_trim(c, t, n);
			break;
		}
		if (t->flags & TSEG_FIN)
			c->flags |= TCPF_FIN_ACKED;
		tcp_sendq_drop(c, t);
	}
	c->snd_una = ack;
}

/* Takes what is acknowledged out of the queue. */
static void ack_cumulative(
	struct tcp_conn *c, uint32_t ack, struct tcp_ack_result *r, uint64_t now_ns)
{
	/*
	 * The echo is of what moved the left edge, or filled the hole there (RFC 7323 4.3); of what
	 * lies behind, and of what is reported out of order, it says nothing.
	 */
	r->at_una = true;
	r->acked = ack - c->snd_una;
	ack_plain(c, ack, r, now_ns);
	ack_rest(c, ack, r, now_ns);
}

static void ack_progress(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	c->backoff = 0;
	c->progress_ns = c->rto_start_ns = c->tlp_start_ns = now_ns;
	rp_neigh_confirm(s->net, c->neigh, now_ns);
	if (c->flags & TCPF_FIN_PENDING && !(c->fin_seg.flags & TSEG_OWNED))
		tcp_sendq_flag(c, TSEG_FIN);
}

/* What follows from an ACK whose segments were counted, and whose window was taken. */
static RP_APART void ack_follow(struct tcp_conn *c, const struct tcp_segment_in *in,
	struct tcp_ack_result *r, uint64_t now_ns)
{
	if (in->opt.sack_count > 0)
		tcp_sack_input(c, in, r, now_ns);
	if (r->acked > 0)
		ack_progress(c, now_ns);
	else if (r->delivered > 0)
		c->tlp_start_ns = now_ns;
	if (r->delivered > 0)
		c->probes = 0;
	if (r->rtt_ns > 0)
		rtt_sample(c, r->rtt_ns);
	if (c->ecn)
		tcp_ecn_ack(c, in, r);
	if (tcp_loss_calm(c, r))
		c->reo_ns = RP_NEVER;
	else if (r->acked > 0 || r->delivered > 0 || r->dupack || r->dsack)
		tcp_loss_on_ack(c, r, now_ns);
}

static RP_APART void ack_any(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns)
{
	struct rp_tcp_counters *n = tcp_stack_of(c)->counters;
	struct tcp_ack_result r = {.has_ts = in->opt.has_ts, .ts_echo = in->opt.ts_echo};
	uint32_t window = c->snd_wnd;

	if (rp_seq_lt(in->ack, c->snd_una)) {
		/* An old one that was overtaken; what it says of later data may still be news. */
		tcp_sack_input(c, in, &r, now_ns);
		if (r.delivered > 0 || r.dsack)
			tcp_loss_on_ack(c, &r, now_ns);
		return;
	}
	tcp_update_send_window(c, in);
	/* RFC 5681 2: what a duplicate acknowledgement is. */
	if (in->ack == c->snd_una && c->snd_una != c->snd_nxt && in->length == 0 &&
		!(in->flags & (TCP_SYN | TCP_FIN)) && c->snd_wnd == window) {
		r.dupack = true;
		n->dupacks_rx++;
	}
	if (in->ack != c->snd_una)
		ack_cumulative(c, in->ack, &r, now_ns);
	ack_follow(c, in, &r, now_ns);
}

/* Some of it was not common, or something that is in flight was sent before it. */
static RP_APART void ack_not_calm(struct tcp_conn *c, const struct tcp_segment_in *in, uint32_t una,
	uint32_t end, uint64_t xmit_ns, uint64_t now_ns)
{
	struct tcp_ack_result r = {.has_ts = in->opt.has_ts, .ts_echo = in->opt.ts_echo};

	if (end != una) {
		r.delivered = end - una;
		tcp_rack_rtt(&r, xmit_ns, now_ns - xmit_ns);
	}
	r.at_una = end == una;
	ack_rest(c, in->ack, &r, now_ns);
	r.acked = in->ack - una;
	ack_follow(c, in, &r, now_ns);
}

/*
 * Most ACKs come while nothing is missing or in doubt and the window is no limit, and say no more
 * than up to where. Of ack_any() then little is left.
 */
void tcp_ack(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns)
{
	const uint32_t flags = TCPF_SACK | TCPF_TLP_OUT | TCPF_UNDO | TCPF_CWND_LIMITED |
			       TCPF_FIN_PENDING | TCPF_STALLED;
	uint32_t una = c->snd_una, end;
	uint64_t xmit_ns = 0;

	if ((c->flags & flags) != TCPF_SACK || c->ca_state != TCP_CA_OPEN || c->lost_bytes > 0 ||
		in->opt.sack_count > 0 || in->flags & (TCP_SYN | TCP_ECE) ||
		!rp_seq_gt(in->ack, una) || rp_seq_gt(c->rack_fack, una)) {
		ack_any(c, in, now_ns);
		return;
	}
	tcp_update_send_window(c, in);
	end = ack_take(c, in->ack, &xmit_ns);
	if (end != una)
		tcp_rack_newest(c, end, xmit_ns, now_ns - xmit_ns);
	if (end != in->ack || !tcp_rack_quiet(c)) {
		ack_not_calm(c, in, una, end, xmit_ns, now_ns);
		return;
	}
	c->snd_una = end;
	c->probes = c->backoff = 0;
	c->reo_ns = RP_NEVER;
	c->progress_ns = c->rto_start_ns = c->tlp_start_ns = now_ns;
	rp_neigh_confirm(tcp_stack_of(c)->net, c->neigh, now_ns);
	rtt_sample(c, RP_MAX(now_ns - xmit_ns, 1u));
	if (c->ecn && c->cc->on_marks)
		c->cc->on_marks(c, end - una, false);
}
