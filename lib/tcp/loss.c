/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/hot_priv.h>

/*
 * What was lost, and what follows from it: RACK-TLP (RFC 8985) with SACK, three duplicate
 * acknowledgements (RFC 6582) without, PRR (RFC 6937) during recovery, the retransmission timeout
 * (RFC 6298), and taking a reduction back when duplicate SACKs (RFC 2883) show that nothing was
 * lost.
 */

#define DUP_THRESHOLD 3
#define REO_PERSIST 16 /* RFC 8985 6.2 */
/* A spell of measuring ends after so many late segments and round trips, or recoveries. */
#define REO_SPELL_LATE 64
#define REO_SPELL_RTTS 16
#define REO_SPELL_RECOVERIES 32

void tcp_mark_lost(struct tcp_conn *c, struct tseg *t)
{
	struct rp_list *at;

	if (!tseg_in_pipe(t))
		return;
	tcp_stack_of(c)->counters->lost_segments++;
	c->pipe -= tseg_span(t);
	c->lost_bytes += tseg_span(t);
	t->flags |= TSEG_LOST;
	rp_list_unlink(&t->xmit);
	/* The list is in sequence; losses are mostly found in that order. */
	for (at = c->lost.prev; at != &c->lost; at = at->prev)
		if (rp_seq_lt(tseg_of_xmit(at)->seq, t->seq))
			break;
	rp_list_push_front(at, &t->xmit);
}

/*
 * Which transmission of a SYN was answered is told by the timestamp: they are a second or more
 * apart. Without that the first round trip would be unknown, and the timeout 3 s (RFC 6298 5.7).
 */
static bool rtt_of_syn(
	const struct tcp_conn *c, const struct tseg *t, const struct tcp_ack_result *r)
{
	return t->flags & TSEG_SYN && c->flags & TCPF_TS && r->has_ts &&
	       r->ts_echo == tcp_ts_now(t->xmit_ns) + c->ts_offset;
}

/*
 * The most of two spells counts, so that what was late once, since somebody's loop paused, is
 * forgotten. Not before some round trips: where half of all segments are late, there are hundreds
 * in each, and the latest of a few is much less than the latest there is.
 */
static void reordering_spell(struct tcp_conn *c, uint64_t now_ns)
{
	c->reo_seen_before_ns = c->reo_seen_ns;
	c->reo_seen_ns = 0;
	c->reo_seen_count = c->reo_seen_recoveries = 0;
	c->reo_spell_ns = now_ns;
}

/*
 * A segment came late and was not lost. So much later than by the newest that had come the window
 * has to be for it not to be taken for lost; steps of a quarter of a round trip for each DSACK (RFC
 * 8985 6.2 step 4) would take many losses that are none to get there, and forget it after 16
 * recoveries, when nothing is retransmitted for nothing since the window is right.
 */
static void reordering_seen(struct tcp_conn *c, uint64_t late_ns, uint64_t now_ns)
{
	c->flags |= TCPF_REORDERING;
	c->reo_seen_ns = RP_MAX(c->reo_seen_ns, late_ns);
	c->reo_seen_count = (uint16_t)RP_MIN(c->reo_seen_count + 1, REO_SPELL_LATE);
	if (c->reo_seen_count == REO_SPELL_LATE &&
		now_ns - c->reo_spell_ns >= REO_SPELL_RTTS * c->srtt_ns)
		reordering_spell(c, now_ns);
}

/* What was retransmitted and comes now is an earlier transmission of it. */
static void original_came(struct tcp_conn *c, const struct tseg *t, struct tcp_ack_result *r,
	uint64_t rtt_ns, uint64_t now_ns)
{
	/*
	 * By the echo it is certain. That an answer came sooner than any before is proof enough
	 * where a tick of timestamps is longer than many round trips; they differ a little, so
	 * that a reduction is taken back for one that comes much too soon only.
	 */
	if (!tcp_is_near(c) && rtt_ns < c->rtt_min_ns)
		return;
	/* It went again when it had been late by the window already. */
	reordering_seen(c, tcp_reo_window_ns(c) + rtt_ns, now_ns);
	if (tseg_end(t) == c->undo_rtx_end && rtt_ns < c->rtt_min_ns / 4 * 3)
		r->original = true;
}

void tcp_rack_delivered(
	struct tcp_conn *c, const struct tseg *t, struct tcp_ack_result *r, uint64_t now_ns)
{
	uint64_t rtt_ns = now_ns - t->xmit_ns;
	uint32_t end = tseg_end(t);

	if (!(t->flags & TSEG_RTX) || rtt_of_syn(c, t, r)) {
		if (rp_seq_lt(end, c->rack_fack))
			reordering_seen(
				c, rtt_ns > c->rack_rtt_ns ? rtt_ns - c->rack_rtt_ns : 0, now_ns);
		tcp_rack_rtt(r, t->xmit_ns, rtt_ns);
	} else if (rtt_ns < c->rtt_min_ns ||
		   (r->at_una && tcp_echo_before(c, r, tcp_ts_now(t->xmit_ns) + c->ts_offset))) {
		/* It answers an earlier transmission (RFC 8985 6.2 step 2). */
		original_came(c, t, r, rtt_ns, now_ns);
		return;
	}
	tcp_rack_newest(c, end, t->xmit_ns, rtt_ns);
}

uint64_t tcp_reo_window_ns(const struct tcp_conn *c)
{
	uint64_t window_ns, seen_ns;

	if (!(c->flags & TCPF_REORDERING) &&
		(c->ca_state != TCP_CA_OPEN || c->sacked_count >= DUP_THRESHOLD))
		return 0;
	if (c->rtt_min_ns == RP_NEVER)
		return 0;
	/* RFC 8985 6.2 step 4; its steps would take long to matter where a round trip is
	 * microseconds. */
	window_ns = RP_MIN(
		c->rtt_min_ns / 4 + (c->reo_mult - 1) * RP_MAX(c->rtt_min_ns / 4, TCP_REO_STEP_NS),
		RP_MAX(c->srtt_ns, TCP_REO_CAP_NS));
	/* What was measured counts beyond a round trip as well: the bound is a SHOULD there. */
	seen_ns = RP_MAX(c->reo_seen_ns, c->reo_seen_before_ns);
	seen_ns += seen_ns / 8;
	return RP_MAX(
		window_ns, RP_MIN(seen_ns, RP_MAX(TCP_REO_SEEN_RTTS * c->srtt_ns, TCP_REO_CAP_NS)));
}

uint32_t tcp_rack_detect(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_list *l, *next;
	uint32_t lost = 0;
	uint64_t reo_ns;

	c->reo_ns = RP_NEVER;
	if (!(c->flags & TCPF_SACK) || tcp_rack_quiet(c))
		return 0;
	reo_ns = tcp_reo_window_ns(c);
	rp_list_foreach_safe (l, next, &c->xmit) {
		struct tseg *t = tseg_of_xmit(l);
		uint64_t due_ns = t->xmit_ns + c->rack_rtt_ns + reo_ns;

		if (!tcp_rack_sent_after(c->rack_xmit_ns, c->rack_end, t->xmit_ns, tseg_end(t)))
			break;
		if (due_ns > now_ns) {
			c->reo_ns = due_ns;
			break;
		}
		lost += tseg_span(t);
		tcp_mark_lost(c, t);
	}
	return lost;
}

/* `delivered`: by the ACK that begins it; prr_delivered counts these as well. */
static void enter_recovery(struct tcp_conn *c, uint32_t delivered, uint64_t now_ns)
{
	tcp_stack_of(c)->counters->recoveries++;
	tcp_undo_begin(c, now_ns);
	c->ca_state = TCP_CA_RECOVERY;
	c->recover = c->snd_nxt;
	c->ssthresh = c->cc->reduce(c, TCP_CONGESTION_LOSS);
	tcp_ecn_reduced(c);
	/* RecoverFS: what was delivered before is in neither of the two. */
	c->prr_flight = RP_MAX(tcp_flight(c) + c->lost_bytes + delivered, 1u);
	c->prr_delivered = c->prr_out = 0;
	c->flags &= ~TCPF_CWND_LIMITED;
}

/*
 * RFC 6937 3.1, with the slow start part of its reduction bound where it is safe, as its successor
 * has it (RFC 9937 6.2): the ACK moved on and showed no new loss.
 */
static void prr_update(struct tcp_conn *c, uint32_t delivered, bool safe)
{
	uint32_t flight = tcp_flight(c);
	int64_t send;

	c->prr_delivered += delivered;
	if (flight > c->ssthresh) {
		send = (int64_t)(((uint64_t)c->prr_delivered * c->ssthresh + c->prr_flight - 1) /
				 c->prr_flight) -
		       c->prr_out;
	} else {
		int64_t limit = RP_MAX((int64_t)c->prr_delivered - c->prr_out, (int64_t)delivered);

		limit += safe ? c->mss : 0;
		send = RP_MIN((int64_t)c->ssthresh - flight, limit);
	}
	/* The first retransmission is due at once. */
	send = RP_MAX(send, c->prr_out == 0 ? (int64_t)c->mss : 0);
	c->cwnd = flight + (uint32_t)send;
}

static void leave_recovery(struct tcp_conn *c, uint64_t now_ns)
{
	if (c->ca_state == TCP_CA_RECOVERY)
		c->cwnd = RP_MAX(c->ssthresh, 2u * c->mss);
	c->ca_state = TCP_CA_OPEN;
	c->dupacks = 0;
	c->dup_bytes = 0;
	if (c->reo_persist > 0 && --c->reo_persist == 0)
		c->reo_mult = 1;
	if (++c->reo_seen_recoveries >= REO_SPELL_RECOVERIES)
		reordering_spell(c, now_ns);
}

/*
 * A peer with segmentation offload puts the options of one large segment into each of the pieces:
 * they tell of one duplicate together (RFC 2883 4: each is reported once). Such copies carry data,
 * and the same acknowledgement.
 */
static bool dsack_is_new(struct tcp_conn *c, const struct tcp_segment_in *in)
{
	const struct tcp_range *b = &in->opt.sack[0], *seen = &c->dsack_seen;
	bool copy = in->length > 0 && in->ack == c->dsack_seen_ack && b->start == seen->start &&
		    b->end == seen->end;

	c->dsack_seen = *b;
	c->dsack_seen_ack = in->ack;
	return !copy;
}

void tcp_watch(struct tcp_conn *c, const struct tseg *t, uint64_t now_ns)
{
	for (unsigned i = 0; i < TCP_WATCHED; i++) {
		struct tcp_watched *w = &c->watched[i];

		if (w->again_ns > 0 && now_ns - w->again_ns < 2 * TCP_REO_SEEN_RTTS * c->srtt_ns)
			continue;
		*w = (struct tcp_watched){
			.sent_ns = t->xmit_ns, .again_ns = now_ns, .end = tseg_end(t)};
		return;
	}
}

/*
 * One of two came second: the retransmission, and then the D-SACK is there a round trip after it,
 * or the first one, whose delay is known then.
 */
static void watched_came(struct tcp_conn *c, uint32_t end, uint64_t now_ns)
{
	for (unsigned i = 0; i < TCP_WATCHED; i++) {
		struct tcp_watched *w = &c->watched[i];

		if (w->again_ns == 0 || w->end != end)
			continue;
		if (now_ns - w->again_ns > c->srtt_ns + c->srtt_ns / 4 + 4 * c->rttvar_ns)
			reordering_seen(c, now_ns - w->sent_ns - c->srtt_ns, now_ns);
		w->again_ns = 0;
		return;
	}
}

/* RFC 8985 6.2 step 4, and the count of retransmissions that were not needed. */
static void dsack_received(struct tcp_conn *c, const struct tcp_range *block, uint64_t now_ns)
{
	uint32_t bytes = block->end - block->start;

	tcp_stack_of(c)->counters->dsack_rx++;
	if (c->flags & TCPF_TLP_OUT && c->flags & TCPF_TLP_RTX && block->end == c->tlp_end) {
		c->flags &= ~(TCPF_TLP_OUT | TCPF_TLP_RTX); /* the probe was not needed */
		return;
	}
	watched_came(c, block->end, now_ns);
	if (rp_seq_geq(c->snd_una, c->reo_round_end)) {
		c->reo_round_end = c->snd_nxt;
		/* One more quarter of a round trip; where that is next to nothing, twice as much.
		 */
		c->reo_mult = (uint8_t)RP_MIN(
			c->rtt_min_ns / 4 < TCP_REO_STEP_NS ? 2u * c->reo_mult : c->reo_mult + 1u,
			(unsigned)UINT8_MAX);
		c->reo_persist = REO_PERSIST;
	}
	if (c->flags & TCPF_UNDO && c->undo_bytes > 0 && rp_seq_geq(block->start, c->undo_una) &&
		rp_seq_leq(block->end, c->undo_end)) {
		c->undo_bytes -= RP_MIN(bytes, c->undo_bytes);
		if (c->undo_bytes == 0)
			tcp_undo(c);
	}
}

static void sack_mark(struct tcp_conn *c, struct tseg *t, struct tcp_ack_result *r, uint64_t now_ns)
{
	uint32_t span = tseg_span(t);

	tcp_rack_delivered(c, t, r, now_ns);
	if (t->flags & TSEG_LOST)
		c->lost_bytes -= span;
	else
		c->pipe -= span;
	rp_list_unlink(&t->xmit);
	t->flags = (uint8_t)((t->flags & ~TSEG_LOST) | TSEG_SACKED);
	c->sacked_bytes += span;
	c->sacked_count++;
	r->delivered += span;
}

/* The first segment whose end is behind `seq`, looked for from where the last search ended. */
static struct tseg *sack_seek(const struct tcp_conn *c, uint32_t seq)
{
	struct rp_list *l = c->sack_hint ? &c->sack_hint->link : c->segs.next;

	while (l->prev != &c->segs && rp_seq_gt(tseg_end(tseg_of_link(l->prev)), seq))
		l = l->prev;
	while (l != &c->segs && rp_seq_leq(tseg_end(tseg_of_link(l)), seq))
		l = l->next;
	return l == &c->segs ? NULL : tseg_of_link(l);
}

static void sack_block(
	struct tcp_conn *c, struct tcp_range b, struct tcp_ack_result *r, uint64_t now_ns)
{
	uint32_t from = b.start;
	struct tseg *t;

	/* What an earlier acknowledgement said already needs no second walk. */
	for (unsigned i = 0; i < c->sack_cache_count; i++) {
		const struct tcp_range *k = &c->sack_cache[i];

		if (rp_seq_leq(k->start, b.start) && rp_seq_gt(k->end, from))
			from = k->end;
	}
	if (rp_seq_geq(from, b.end))
		return;
	for (t = sack_seek(c, from); t && t->flags & TSEG_SENT; t = tseg_of_link(t->link.next)) {
		if (rp_seq_gt(tseg_end(t), b.end))
			break;
		c->sack_hint = t;
		if (rp_seq_geq(t->seq, b.start) && !(t->flags & TSEG_SACKED))
			sack_mark(c, t, r, now_ns);
		if (t->link.next == &c->segs)
			break;
	}
}

void tcp_sack_input(struct tcp_conn *c, const struct tcp_segment_in *in, struct tcp_ack_result *r,
	uint64_t now_ns)
{
	const struct tcp_range *b = in->opt.sack;
	struct tcp_range valid[TCP_SACK_BLOCKS_MAX];
	unsigned n = 0, first = 0;

	if (!(c->flags & TCPF_SACK) || in->opt.sack_count == 0)
		return;
	/* RFC 2883 4: the first block, where it is acknowledged already or lies in the second. */
	if (rp_seq_lt(b[0].start, b[0].end) && b[0].end - b[0].start <= c->snd_wnd_max &&
		(rp_seq_leq(b[0].end, in->ack) ||
			(in->opt.sack_count > 1 && rp_seq_geq(b[0].start, b[1].start) &&
				rp_seq_leq(b[0].end, b[1].end)))) {
		r->dsack = dsack_is_new(c, in);
		if (r->dsack)
			dsack_received(c, &b[0], now_ns);
		first = 1;
	}
	for (unsigned i = first; i < in->opt.sack_count; i++) {
		unsigned k = n;

		if (!rp_seq_lt(b[i].start, b[i].end) || rp_seq_lt(b[i].start, c->snd_una) ||
			rp_seq_gt(b[i].end, c->snd_nxt))
			continue;
		/* In sequence, else an older hole would look like reordering. */
		for (; k > 0 && rp_seq_gt(valid[k - 1].start, b[i].start); k--)
			valid[k] = valid[k - 1];
		valid[k] = b[i];
		n++;
	}
	for (unsigned i = 0; i < n; i++)
		sack_block(c, valid[i], r, now_ns);
	if (n > 0) {
		memcpy(c->sack_cache, valid, n * sizeof(valid[0]));
		c->sack_cache_count = n;
	}
}

/* RFC 8985 7.4.2: did the probe repair a loss that nobody else saw? */
static void tlp_on_ack(struct tcp_conn *c, const struct tcp_ack_result *r)
{
	if (!(c->flags & TCPF_TLP_OUT) || rp_seq_lt(c->snd_una, c->tlp_end))
		return;
	if (!(c->flags & TCPF_TLP_RTX) || r->dsack || (r->dupack && c->snd_una == c->tlp_end)) {
		c->flags &= ~(TCPF_TLP_OUT | TCPF_TLP_RTX);
	} else if (rp_seq_gt(c->snd_una, c->tlp_end)) {
		c->flags &= ~(TCPF_TLP_OUT | TCPF_TLP_RTX);
		if (c->ca_state == TCP_CA_OPEN) {
			c->ssthresh = c->cc->reduce(c, TCP_CONGESTION_LOSS);
			c->cwnd = RP_MIN(c->cwnd, c->ssthresh);
			tcp_ecn_reduced(c);
		}
	} else if (rp_list_empty(&c->segs)) {
		/* All is acknowledged: whether it was the probe that did it shows with what
		 * follows. */
		return;
	}
}

/* Without SACK: RFC 6582, the duplicate acknowledgements standing in for what left the network. */
static void newreno_on_ack(struct tcp_conn *c, struct tcp_ack_result *r)
{
	struct tseg *head;

	if (r->acked > 0) {
		uint32_t gone = r->acked > c->mss ? r->acked - c->mss : 0;

		c->dup_bytes -= RP_MIN(gone, c->dup_bytes);
		c->dupacks = 0;
		if (c->ca_state == TCP_CA_OPEN)
			c->dup_bytes = 0;
	} else if (r->dupack) {
		c->dupacks = (uint8_t)RP_MIN(c->dupacks + 1, UINT8_MAX);
		if (c->dup_bytes + c->mss < c->pipe)
			c->dup_bytes += c->mss;
		r->delivered += c->mss;
	}
	head = tcp_head(c);
	if (!head || !tseg_in_pipe(head))
		return;
	if (c->ca_state == TCP_CA_OPEN && c->dupacks == DUP_THRESHOLD &&
		rp_seq_geq(c->snd_una, c->recover)) {
		r->lost += tseg_span(head);
		tcp_mark_lost(c, head);
	} else if (c->ca_state == TCP_CA_RECOVERY && r->acked > 0) {
		/* A partial acknowledgement: the next one is missing as well. */
		r->lost += tseg_span(head);
		tcp_mark_lost(c, head);
	}
}

/*
 * What the window may grow by: what has left the network, reported out of order or acknowledged
 * for good, each byte once. While nothing tells of reordering, a report out of order is the first
 * sign of a loss, and the window waits.
 */
static bool loss_may_grow(const struct tcp_conn *c, const struct tcp_ack_result *r)
{
	return !r->ece && (r->acked > 0 || (c->flags & TCPF_REORDERING && r->delivered > 0));
}

/*
 * With the ACK that ends a recovery, all that was delivered in it (RFC 3465 counts bytes): else a
 * small window, which is in recovery most of the time, would never grow.
 */
static uint32_t loss_counts(
	const struct tcp_conn *c, const struct tcp_ack_result *r, bool recovered)
{
	uint32_t delivered = c->flags & TCPF_SACK ? r->delivered : r->acked;

	return recovered ? c->prr_delivered + delivered : delivered;
}

void tcp_loss_on_ack(struct tcp_conn *c, struct tcp_ack_result *r, uint64_t now_ns)
{
	bool limited = c->flags & TCPF_CWND_LIMITED, recovered = false, after_timeout;

	/* Half more than what left the path, which its buffer may hold already. */
	if (c->flags & TCPF_STALLED)
		c->refill_room = r->delivered + r->delivered / 2 + c->mss;
	tlp_on_ack(c, r);
	if (c->flags & TCPF_UNDO)
		tcp_undo_on_ack(c, r, now_ns);
	/* Each ACK of what a timeout sent again counts, that of the last one, too (RFC 5681 3.1).
	 */
	after_timeout = c->ca_state == TCP_CA_LOSS;
	if (c->ca_state != TCP_CA_OPEN && rp_seq_geq(c->snd_una, c->recover)) {
		recovered = c->ca_state == TCP_CA_RECOVERY;
		leave_recovery(c, now_ns);
	}
	if (!(c->flags & TCPF_SACK))
		newreno_on_ack(c, r);
	else if (tcp_rack_quiet(c))
		c->reo_ns = RP_NEVER;
	else
		r->lost += tcp_rack_detect(c, now_ns);
	if (c->lost_bytes > 0 && c->ca_state == TCP_CA_OPEN && tcp_synchronized(c))
		enter_recovery(c, r->delivered, now_ns);
	if (c->ca_state == TCP_CA_RECOVERY) {
		prr_update(c, r->delivered, r->acked > 0 && r->lost == 0);
		/* RFC 6582 3.2 step 5: the hole behind a partial acknowledgement goes at once. */
		if (!(c->flags & TCPF_SACK) && r->acked > 0)
			c->cwnd = RP_MAX(c->cwnd, tcp_flight(c) + c->mss);
	} else if (loss_may_grow(c, r) && (limited || after_timeout)) {
		if (c->cwnd < c->ssthresh)
			tcp_hystart_on_ack(c, r->rtt_ns);
		/* Each ACK of that window counts, but no more than doubles what was in use. */
		if (c->cwnd >= c->ssthresh || after_timeout || c->cwnd < 2 * c->limited_flight)
			c->cc->on_ack(c, loss_counts(c, r, recovered), now_ns);
		if (rp_seq_geq(c->snd_una, c->limited_end))
			c->flags &= ~TCPF_CWND_LIMITED;
	}
}

void tcp_on_reorder_timer(struct tcp_conn *c, uint64_t now_ns)
{
	uint32_t cwnd = c->cwnd;

	if (tcp_rack_detect(c, now_ns) == 0)
		return;
	if (c->ca_state == TCP_CA_OPEN) {
		enter_recovery(c, 0, now_ns);
		prr_update(c, 0, false);
	} else if (c->ca_state == TCP_CA_RECOVERY) {
		/*
		 * PRR is for ACKs. What the last one allowed stays, so that what is lost now makes
		 * room for itself: nothing else may be there to be acknowledged.
		 */
		prr_update(c, 0, false);
		c->cwnd = RP_MAX(c->cwnd, RP_MIN(cwnd, c->ssthresh));
	}
}

void tcp_on_probe(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_list *l = rp_list_empty(&c->lost) ? c->xmit.next : c->lost.next;

	RP_ASSERT(l != &c->xmit); /* timer_probe_ns() */
	c->probes++;
	/* In the place of a timeout it begins the wait for that anew; before it, it does not. */
	if (now_ns >= c->rto_start_ns + tcp_rto_now(c))
		c->rto_start_ns = now_ns;
	if (!tcp_xmit(c, tseg_of_xmit(l), now_ns))
		return;
	tcp_stack_of(c)->counters->tlp++;
	c->stat_tlp++;
}

void tcp_on_tlp(struct tcp_conn *c, uint64_t now_ns)
{
	struct tseg *t = c->next_unsent;
	bool fresh = t && t->length <= c->mss && rp_seq_leq(tseg_end(t), c->snd_una + c->snd_wnd);

	if (!fresh) {
		/* The last one that was sent: whatever comes back for it shows what is missing. */
		t = t ? tseg_of_link(t->link.prev) : tseg_of_link(c->segs.prev);
	}
	c->rto_start_ns = now_ns;
	if (!tcp_xmit(c, t, now_ns))
		return;
	tcp_stack_of(c)->counters->tlp++;
	c->stat_tlp++;
	c->flags |= TCPF_TLP_OUT;
	if (fresh)
		c->flags &= ~TCPF_TLP_RTX;
	else
		c->flags |= TCPF_TLP_RTX;
	c->tlp_end = c->snd_nxt;
}

/* The peer dropped what it had reported (RFC 2018 8): its reports count no more. */
static void forget_sacks(struct tcp_conn *c)
{
	struct rp_list *l;

	tcp_stack_of(c)->counters->reneged++;
	rp_list_foreach (l, &c->segs) {
		struct tseg *t = tseg_of_link(l);

		if (!(t->flags & TSEG_SACKED))
			continue;
		t->flags &= ~TSEG_SACKED;
		c->sacked_bytes -= tseg_span(t);
		c->sacked_count--;
		c->pipe += tseg_span(t);
		rp_list_push_front(&c->xmit, &t->xmit);
		tcp_mark_lost(c, t);
	}
	c->sack_cache_count = 0;
}

void tcp_on_rto(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_list *l, *next;
	struct tseg *head = tcp_head(c);
	uint64_t overdue_ns = c->rack_rtt_ns + tcp_reo_window_ns(c);

	tcp_pmtu_suspect(c, now_ns);
	tcp_stack_of(c)->counters->rto++;
	c->stat_rto++;
	if (c->backoff >= 1 && c->neigh)
		rp_neigh_suspect(tcp_stack_of(c)->net, c->neigh, now_ns);
	if (c->ca_state == TCP_CA_OPEN || (c->ca_state == TCP_CA_LOSS && c->backoff == 0)) {
		/* RFC 5681 (4): not again for the same loss. */
		tcp_undo_begin(c, now_ns);
		c->ssthresh = c->cc->reduce(c, TCP_CONGESTION_RTO);
		tcp_ecn_reduced(c);
		/* Without SACK, what lay behind one lost segment would look like it. */
		c->frto_ns = c->flags & TCPF_SACK ? now_ns : 0;
	}
	if (head->flags & TSEG_SACKED)
		forget_sacks(c);
	/* RFC 8985 6.3: the first one, and those that are late by RACK. */
	tcp_mark_lost(c, head);
	rp_list_foreach_safe (l, next, &c->xmit) {
		struct tseg *t = tseg_of_xmit(l);

		if (!(c->flags & TCPF_SACK) || t->xmit_ns + overdue_ns <= now_ns)
			tcp_mark_lost(c, t);
	}
	c->ca_state = TCP_CA_LOSS;
	c->recover = c->snd_nxt;
	c->dupacks = 0;
	c->dup_bytes = 0;
	c->cwnd = c->pipe + c->mss;
	c->reo_ns = RP_NEVER;
	c->flags &= ~(TCPF_TLP_OUT | TCPF_TLP_RTX);
	c->backoff = (uint8_t)RP_MIN(c->backoff + 1, 30);
	c->rto_start_ns = now_ns;
	if (head->flags & TSEG_SYN) {
		c->flags |= TCPF_SYN_RTX;
		/* Something on the way may not like the offer (RFC 3168 6.1.1.1). */
		if (!c->ecn_insist)
			c->ecn &= ~TCP_ECN_ASK;
	}
}

void tcp_cwnd_restart(struct tcp_conn *c, uint64_t idle_ns)
{
	uint32_t window = tcp_initial_window(c);

	if (tcp_stack_of(c)->config.no_idle_restart)
		return;
	/*
	 * RFC 7661 4.4: a window that was in use stays good for some minutes, but should not go out
	 * at once. Between appliances, whose timeout is a few milliseconds, a message in each of
	 * these would take two round trips: of what was validated a turn's burst is kept, which is
	 * as much as goes at once anyway.
	 */
	if (tcp_is_near(c) && idle_ns < TCP_VALID_NS)
		window = RP_MAX(window, (uint32_t)TCP_QUANTUM_BYTES);
	c->ssthresh = RP_MAX(c->ssthresh, c->cwnd / 4 * 3);
	c->cwnd = RP_MIN(c->cwnd, window);
	/* A round with the queue that was there before says nothing of this one. */
	c->hystart = (struct tcp_hystart){.round_end = c->snd_una};
}
