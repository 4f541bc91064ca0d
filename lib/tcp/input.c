/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/hot_priv.h>

/* The events of RFC 9293 3.10.7: a segment arrives. */

static inline bool input_parse(
	struct rp_tcp_stack *s, const struct rp_net_packet *p, struct tcp_segment_in *in)
{
	const struct tcp_header *h = tcp_header_of(p);
	unsigned bytes = (h->offset >> 4) * 4u;

	in->m = p->m;
	in->header_bytes = (uint16_t)(p->l4_offset + bytes);
	in->flags = h->flags;
	in->ecn = p->ecn;
	in->window = rte_be_to_cpu_16(h->window);
	in->seq = rte_be_to_cpu_32(h->seq);
	in->ack = rte_be_to_cpu_32(h->ack);
	in->length = p->l4_length - bytes;
	bytes -= TCP_HEADER_BYTES;
	return tcp_options_parse_plain((const uint8_t *)(h + 1), bytes, &in->opt) ||
	       tcp_options_parse((const uint8_t *)(h + 1), bytes, in->flags & TCP_SYN, &in->opt);
}

static void input_reset(struct tcp_conn *c)
{
	if (c->state == TCPS_SYN_RCVD && c->flags & TCPF_PASSIVE) {
		tcp_stack_of(c)->counters->open_failed++;
		tcp_conn_kill(c); /* back to LISTEN */
		return;
	}
	tcp_conn_close(c, c->state <= TCPS_SYN_RCVD ? RP_CLOSE_REFUSED : RP_CLOSE_RESET);
}

static void input_established(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	tcp_set_state(c, TCPS_ESTABLISHED);
	c->ssthresh = TCP_SSTHRESH_INITIAL;
	c->ca_state = TCP_CA_OPEN;
	c->recover = c->hystart.round_end = c->snd_una;
	c->flags &= ~TCPF_UNDO;
	/* RFC 5681 3.1: a lost SYN is a sign of congestion. */
	c->cwnd = c->flags & TCPF_SYN_RTX ? c->mss : tcp_initial_window(c);
	if (c->flags & TCPF_SYN_RTX && c->srtt_ns == 0)
		c->rto_ns = TCP_RTO_SYN_LOST_NS;
	tcp_ecn_established(c);
	tcp_cc_select(c);
	c->progress_ns = now_ns;
	tcp_keepalive_start(c, now_ns);
	if (c->flags & TCPF_PASSIVE) {
		s->counters->opens_passive++;
		c->flags |= TCPF_EV_ACCEPT;
	} else {
		s->counters->opens_active++;
		c->flags |= TCPF_EV_OPEN;
	}
	if (c->flags & TCPF_FIN_QUEUED)
		tcp_set_state(c, TCPS_FIN_WAIT_1); /* closed before it was open */
}

/* RFC 9293 3.10.7.3. True: the rest of the segment is to be processed. */
static bool input_syn_sent(struct tcp_conn *c, struct tcp_segment_in *in, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	bool acceptable = in->flags & TCP_ACK && in->ack == c->iss + 1 && c->snd_nxt == in->ack;

	if (in->flags & TCP_ACK && !acceptable) {
		s->counters->drop_ack++;
		if (!(in->flags & TCP_RST))
			tcp_reset_unknown(s, &c->key, in, now_ns);
		return false;
	}
	if (in->flags & TCP_RST) {
		if (acceptable)
			input_reset(c);
		else
			s->counters->drop_reset_invalid++;
		return false;
	}
	if (!(in->flags & TCP_SYN)) {
		s->counters->drop_malformed++;
		return false;
	}
	tcp_syn_options(c, in, now_ns);
	c->heard_ns = now_ns;
	c->flags |= TCPF_ACK_NOW;
	if (acceptable) {
		tcp_ack(c, in, now_ns);
		input_established(c, now_ns);
	} else {
		/* Simultaneous open: our SYN goes out again, with an ACK. */
		tcp_set_state(c, TCPS_SYN_RCVD);
		c->flags &= ~TCPF_ACK_NOW;
		tcp_mark_lost(c, tcp_head(c));
	}
	in->seq++;
	in->flags &= ~TCP_SYN;
	return acceptable;
}

/* RFC 7323 5.3. True: it is an old one. */
static bool input_paws(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns)
{
	/*
	 * It is for what comes from before the sequence numbers went round. That cannot be so
	 * little older; but what was held back on its way, while retransmissions filled the holes
	 * before it, is. A peer that we do not know gets the letter of the RFC.
	 */
	uint32_t slack = tcp_is_near(c) ? TCP_PAWS_SLACK_MS : 0;

	if (!(c->flags & TCPF_TS) || !in->opt.has_ts || in->flags & TCP_RST ||
		!rp_seq_lt(in->opt.ts_value + slack, c->ts_recent))
		return false;
	return now_ns - c->ts_recent_ns <= TCP_PAWS_IDLE_NS; /* else it is too old to judge by */
}

/* RFC 9293 3.10.7.4, first check. */
static bool input_in_window(const struct tcp_conn *c, const struct tcp_segment_in *in)
{
	uint32_t window = rp_seq_gt(c->rcv_adv, c->rcv_nxt) ? c->rcv_adv - c->rcv_nxt : 0;
	uint32_t length = tcp_seg_in_end(in) - in->seq, last = in->seq + length - 1;

	if (in->seq == c->rcv_nxt)
		return true; /* where the window is closed, its data is cut off */
	if (window == 0)
		return false;
	if (in->seq - c->rcv_nxt < window)
		return true;
	return length > 0 && last - c->rcv_nxt < window;
}

static void input_unacceptable(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	bool old = in->length > 0 && rp_seq_leq(in->seq + in->length, c->rcv_nxt);

	if (old)
		s->counters->drop_duplicate++;
	else
		s->counters->drop_window++;
	if (in->flags & TCP_RST)
		return;
	if (c->state == TCPS_SYN_RCVD && in->flags & TCP_SYN && in->seq == c->irs) {
		/* The peer did not get our SYN-ACK. */
		struct tseg *head = tcp_head(c);

		/* Without the offer: it has given ECN up (RFC 3168 6.1.1.1). */
		if (!(in->flags & TCP_ACK) && !(in->flags & TCP_ECE))
			c->ecn = 0;
		if (head && now_ns - head->xmit_ns > RP_NS_PER_MS)
			tcp_mark_lost(c, head);
		return;
	}
	if (in->flags & TCP_SYN) {
		tcp_challenge_ack(c, now_ns); /* RFC 5961 4.2: wherever it lies */
		return;
	}
	if (in->length > 0 || in->flags & TCP_FIN) {
		/* Old data, most likely, since our ACK was lost. */
		if (old)
			tcp_note_duplicate(c, in->seq, in->seq + in->length, now_ns);
		c->flags |= TCPF_ACK_NOW;
		return;
	}
	/* An answer to a probe; not more of them than a probing peer needs (RFC 5961 7). */
	if (tcp_bucket_take(&c->challenge, now_ns, 50 * RP_NS_PER_MS, 10))
		c->flags |= TCPF_ACK_NOW;
}

/* Cuts what lies outside of the window; FIN goes with the last byte. */
static void input_trim(struct tcp_conn *c, struct tcp_segment_in *in)
{
	uint32_t end = in->seq + in->length;

	if (rp_seq_gt(end, c->rcv_adv)) {
		uint32_t over = end - c->rcv_adv;

		in->length -= RP_MIN(over, in->length);
		in->flags &= ~(TCP_FIN | TCP_PSH);
		c->flags |= TCPF_ACK_NOW;
	}
	if (c->flags & TCPF_FIN_SEEN && in->length > 0 &&
		rp_seq_gt(in->seq + in->length, c->fin_seq)) {
		in->length = rp_seq_gt(c->fin_seq, in->seq) ? c->fin_seq - in->seq : 0;
		in->flags &= ~TCP_FIN;
		tcp_stack_of(c)->counters->drop_closed++;
	}
}

static void input_fin(struct tcp_conn *c, uint64_t now_ns)
{
	c->rcv_nxt++;
	c->rcv_adv = rp_seq_max(c->rcv_adv, c->rcv_nxt);
	c->flags |= TCPF_FIN_RCVD | TCPF_EV_FIN | TCPF_ACK_NOW;
	if (c->state == TCPS_ESTABLISHED)
		tcp_set_state(c, TCPS_CLOSE_WAIT);
	else if (c->state == TCPS_FIN_WAIT_1)
		tcp_set_state(c, TCPS_CLOSING); /* our FIN is not acknowledged, else it were 2 */
	else if (c->state == TCPS_FIN_WAIT_2)
		tcp_tw_enter(c, now_ns);
}

/* Our FIN, when it is acknowledged (RFC 9293 3.10.7.4, fifth check). False: the connection is gone.
 */
static bool input_fin_acked(struct tcp_conn *c, uint64_t now_ns)
{
	if (!(c->flags & TCPF_FIN_ACKED))
		return true;
	if (c->state == TCPS_FIN_WAIT_1) {
		tcp_set_state(c, TCPS_FIN_WAIT_2);
		if (!c->half_closed)
			c->life_ns = now_ns + tcp_stack_of(c)->config.fin_wait_ns;
	} else if (c->state == TCPS_CLOSING) {
		tcp_tw_enter(c, now_ns);
		return false;
	} else if (c->state == TCPS_LAST_ACK) {
		tcp_conn_close(c, RP_CLOSE_FIN);
		return false;
	}
	return true;
}

static void input_text(struct tcp_conn *c, struct tcp_segment_in *in, uint64_t now_ns)
{
	uint32_t before = c->rcv_nxt;

	if (c->flags & TCPF_FIN_RCVD) {
		if (in->length > 0)
			tcp_stack_of(c)->counters->drop_closed++;
		if (in->length > 0 || in->flags & TCP_FIN)
			c->flags |= TCPF_ACK_NOW;
		return;
	}
	input_trim(c, in);
	if (in->flags & TCP_FIN && !(c->flags & TCPF_FIN_SEEN)) {
		uint32_t end = in->seq + in->length;

		c->flags |= TCPF_ACK_NOW;
		/* An end before bytes that were received is not the end of this stream. */
		if (c->ooo_count > 0 && rp_seq_gt(tcp_ooo_end(c), end)) {
			tcp_stack_of(c)->counters->drop_closed++;
		} else {
			c->flags |= TCPF_FIN_SEEN;
			c->fin_seq = end;
		}
	}
	if (in->length > 0)
		tcp_data(c, in, now_ns);
	tcp_stack_of(c)->counters->rx_bytes += c->rcv_nxt - before;
	c->stat_received += c->rcv_nxt - before;
	if (c->state == TCPS_FIN_WAIT_2 && c->rcv_nxt != before && !c->half_closed)
		c->life_ns = now_ns + tcp_stack_of(c)->config.fin_wait_ns;
	if (c->flags & TCPF_FIN_SEEN && c->rcv_nxt == c->fin_seq)
		input_fin(c, now_ns);
}

/* False: the segment ends here. */
static bool input_rst_syn_ack(struct tcp_conn *c, struct tcp_segment_in *in, uint64_t now_ns)
{
	struct rp_tcp_counters *n = tcp_stack_of(c)->counters;

	if (in->flags & TCP_RST) {
		/* RFC 5961 3.2: exactly in order, or it is asked back. */
		if (in->seq == c->rcv_nxt) {
			input_reset(c);
		} else {
			n->drop_reset_invalid++;
			tcp_challenge_ack(c, now_ns);
		}
		return false;
	}
	if (in->flags & TCP_SYN) {
		n->drop_syn++;
		tcp_challenge_ack(c, now_ns); /* RFC 5961 4.2 */
		return false;
	}
	if (!(in->flags & TCP_ACK)) {
		n->drop_malformed++;
		return false;
	}
	return true;
}

static void input_timestamp(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns)
{
	/* RFC 7323 4.3 (2), and 5.5 where ours is too old. */
	if (c->flags & TCPF_TS && in->opt.has_ts &&
		(rp_seq_geq(in->opt.ts_value, c->ts_recent) ||
			now_ns - c->ts_recent_ns > TCP_PAWS_IDLE_NS) &&
		rp_seq_leq(in->seq, c->last_ack_sent)) {
		c->ts_recent = in->opt.ts_value;
		c->ts_recent_ns = now_ns;
	}
}

static RP_APART void input_conn(struct tcp_conn *c, struct tcp_segment_in *in, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	if (c->state == TCPS_SYN_SENT) {
		if (!input_syn_sent(c, in, now_ns))
			return;
	} else {
		/* The SYN-ACK of a simultaneous open. */
		if (c->state == TCPS_SYN_RCVD &&
			(in->flags & (TCP_SYN | TCP_ACK | TCP_RST)) == (TCP_SYN | TCP_ACK) &&
			in->seq == c->irs && in->ack == c->snd_nxt) {
			tcp_ecn_on_syn(c, in);
			in->flags &= ~TCP_SYN;
			in->seq++;
		}
		if (input_paws(c, in, now_ns)) {
			s->counters->drop_paws++;
			/* RFC 7323 5.3 R1; two who answer each other must come to an end. */
			if (in->length == 0) {
				tcp_challenge_ack(c, now_ns);
				return;
			}
			/* What was held back and went again meanwhile: the sender learns by how
			 * much. */
			if (rp_seq_leq(in->seq + in->length, c->rcv_nxt))
				tcp_note_duplicate(c, in->seq, in->seq + in->length, now_ns);
			c->flags |= TCPF_ACK_NOW;
			return;
		}
		if (!input_in_window(c, in)) {
			input_unacceptable(c, in, now_ns);
			return;
		}
		if (!input_rst_syn_ack(c, in, now_ns))
			return;
		if (c->state == TCPS_SYN_RCVD &&
			(rp_seq_leq(in->ack, c->snd_una) || rp_seq_gt(in->ack, c->snd_nxt))) {
			s->counters->drop_ack++;
			tcp_reset_unknown(s, &c->key, in, now_ns);
			return;
		}
		/*
		 * RFC 5961 5.2. Whoever guesses a sequence number and not the acknowledgement
		 * changes nothing: a timestamp of his would have the peer's own dropped as old.
		 */
		if (rp_seq_gt(in->ack, c->snd_nxt) ||
			rp_seq_lt(in->ack, c->snd_una - c->snd_wnd_max)) {
			s->counters->drop_ack++;
			tcp_challenge_ack(c, now_ns);
			return;
		}
		c->heard_ns = now_ns;
		input_timestamp(c, in, now_ns);
		tcp_ack(c, in, now_ns);
		if (c->state == TCPS_SYN_RCVD)
			input_established(c, now_ns);
	}
	if (!input_fin_acked(c, now_ns))
		return;
	if (c->ecn)
		tcp_ecn_data(c, in, now_ns);
	input_text(c, in, now_ns);
}

/*
 * The common case: established, in sequence, nothing but ACK, nothing out of order. Header
 * prediction after Van Jacobson, without guessing the window.
 */
static inline bool input_fast(struct tcp_conn *c, struct tcp_segment_in *in, uint64_t now_ns)
{
	if (c->state != TCPS_ESTABLISHED ||
		(in->flags & ~(TCP_PSH | TCP_ECE | TCP_CWR)) != TCP_ACK || in->seq != c->rcv_nxt ||
		c->ooo_count > 0 || c->flags & TCPF_FIN_SEEN ||
		in->length > c->rcv_adv - c->rcv_nxt || rp_seq_lt(in->ack, c->snd_una) ||
		rp_seq_gt(in->ack, c->snd_nxt))
		return false;
	if (c->flags & TCPF_TS && in->opt.has_ts) {
		if (rp_seq_lt(in->opt.ts_value, c->ts_recent))
			return false;
		if (in->seq == c->last_ack_sent || rp_seq_leq(in->seq, c->last_ack_sent)) {
			c->ts_recent = in->opt.ts_value;
			c->ts_recent_ns = now_ns;
		}
	}
	c->heard_ns = now_ns;
	tcp_stack_of(c)->counters->rx_fast++;
	if (in->length > 0 && in->ack == c->snd_una && in->opt.sack_count == 0)
		tcp_update_send_window(c, in);
	else
		tcp_ack(c, in, now_ns);
	if (in->length > 0) {
		if (c->ecn)
			tcp_ecn_data(c, in, now_ns);
		tcp_stack_of(c)->counters->rx_bytes += in->length;
		c->stat_received += in->length;
		tcp_data(c, in, now_ns);
	}
	return true;
}

/*
 * Gives a packet of a flow that is not here to the shard it belongs to. False: to this one. What
 * was handed over once stays, whoever is right.
 */
static RP_APART bool tcp_hand_over(
	struct rp_tcp_stack *s, const struct rp_net_packet *p, const struct flow_key *key)
{
	const struct rp_place_flow flow = {
		.src = &key->remote,
		.dst = rp_net_local(s->net, key->local),
		.src_port = key->remote_port,
		.dst_port = key->local_port,
	};
	unsigned shard = rp_place_shard_of(s->config.place, &flow);

	if (shard == s->config.shard || p->handed_over)
		return false;
	s->counters->handed_over++;
	if (p->m)
		p->m->l3_len = p->l4_offset;
	s->config.hand_over(s->config.place_ctx, shard, p);
	return true;
}

/* For no connection that is known: a listener's, one in TIME-WAIT, or nobody's. */
static RP_APART void input_stranger(struct rp_tcp_stack *s, const struct flow_key *key,
	uint32_t hash, uint32_t index, struct tcp_segment_in *in, uint64_t now_ns)
{
	uint32_t isn_min;
	bool reused = false;
	struct tcp_conn *c;

	if (index != FLOW_NONE) {
		reused = tcp_tw_input(s, index - s->config.connections_max, in, &isn_min, now_ns);
		if (!reused)
			return;
	}
	c = tcp_listen_input(s, key, hash, in, reused ? &isn_min : NULL, now_ns);
	if (c) {
		input_conn(c, in, now_ns);
		tcp_mark_dirty(c);
	}
}

/* Of a segment that has passed the parser. */
static inline void input_known(struct tcp_conn *c, struct tcp_segment_in *in, uint64_t now_ns)
{
	if (!input_fast(c, in, now_ns))
		input_conn(c, in, now_ns);
	tcp_mark_dirty(c);
	if (in->m)
		rte_pktmbuf_free(in->m);
}

__attribute__((always_inline)) static inline bool input_begin(
	struct rp_tcp_stack *s, const struct rp_net_packet *p, struct tcp_segment_in *in)
{
	s->counters->rx_segments++;
	if (input_parse(s, p, in))
		return true;
	s->counters->drop_malformed++;
	rte_pktmbuf_free(p->m);
	return false;
}

/* Not of the connection that the segment before was for. */
static RP_APART void input_look_up(
	struct rp_tcp_stack *s, struct rp_net_packet *p, const uint32_t *hash, uint64_t now_ns)
{
	struct flow_key key = tcp_key_of(p);
	uint32_t h = hash ? *hash : flow_hash(&s->flows, &key);
	uint32_t index = flow_find(&s->flows, &key, h);
	struct tcp_segment_in in;

	if (index == FLOW_NONE && s->config.place && tcp_hand_over(s, p, &key))
		return;
	if (index < s->config.connections_max)
		s->recent = &s->conns[index];
	if (!input_begin(s, p, &in))
		return;
	if (index < s->config.connections_max) {
		input_known(&s->conns[index], &in, now_ns);
		return;
	}
	input_stranger(s, &key, h, index, &in, now_ns);
	if (in.m)
		rte_pktmbuf_free(in.m);
}

static inline bool input_is_of(const struct tcp_conn *c, const struct rp_net_packet *p)
{
	const struct tcp_header *h = tcp_header_of(p);
	const uint32_t ports = (uint32_t)c->key.local_port << 16 | c->key.remote_port;
	uint32_t there;

	/* Their source is our remote port: in the order of the header it comes first. */
	memcpy(&there, &h->src_port, sizeof(there));
	there = rte_be_to_cpu_32(there);
	return (there >> 16 | there << 16) == ports && rp_ip_equal(&c->key.remote, &p->remote) &&
	       c->key.local == p->local;
}

void tcp_input(
	struct rp_tcp_stack *s, struct rp_net_packet *p, const uint32_t *hash, uint64_t now_ns)
{
	struct tcp_segment_in in;

	if (!s->recent || !input_is_of(s->recent, p))
		input_look_up(s, p, hash, now_ns);
	else if (input_begin(s, p, &in))
		input_known(s->recent, &in, now_ns);
}

void tcp_icmp(struct rp_tcp_stack *s, const struct rp_net_packet *p, uint64_t now_ns)
{
	struct flow_key key = {
		.remote = p->remote,
		.local = p->local,
		.local_port = p->local_port,
		.remote_port = p->remote_port,
	};
	uint32_t index = flow_find(&s->flows, &key, flow_hash(&s->flows, &key));
	struct tcp_conn *c;

	if (index == FLOW_NONE && s->config.place && tcp_hand_over(s, p, &key))
		return;
	if (index == FLOW_NONE || index >= s->config.connections_max) {
		s->counters->drop_icmp_invalid++;
		return;
	}
	c = &s->conns[index];
	/* RFC 5927 4.1: it must be about something in flight. */
	if (rp_seq_lt(p->seq, c->snd_una) || rp_seq_geq(p->seq, c->snd_nxt)) {
		s->counters->drop_icmp_invalid++;
		return;
	}
	switch (p->error) {
	case RP_NET_ICMP_TOO_BIG:
		tcp_pmtu_too_big(c, p->seq, p->mtu, now_ns);
		break;
	case RP_NET_ICMP_HARD:
		if (c->state == TCPS_SYN_SENT) {
			tcp_conn_close(c, RP_CLOSE_REFUSED);
			break;
		}
		/* RFC 5927 5.2: hard errors are soft once there is a connection. */
		/* fallthrough */
	case RP_NET_ICMP_SOFT:
		s->counters->icmp_soft++;
		c->flags |= TCPF_SOFT_ERROR;
		break;
	}
	tcp_mark_dirty(c);
}
