/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/hot_priv.h>

/* The TCP header at `h`, in front of so many bytes of options. Returns its raw sum. */
static inline uint64_t out_header_at(uint8_t *h, const struct flow_key *key, uint32_t seq,
	uint32_t ack, uint8_t flags, uint16_t window, unsigned options)
{
	uint64_t sum = tcp_store32(h, (uint32_t)key->local_port << 16 | key->remote_port);

	sum += tcp_store32(h + 4, seq);
	sum += tcp_store32(h + 8, ack);
	sum += tcp_store32(
		h + 12, (TCP_HEADER_BYTES + options) / 4 << 28 | (uint32_t)flags << 16 | window);
	tcp_store32(h + 16, 0); /* checksum, urgent pointer */
	return sum;
}

/* That of a new packet. */
static inline uint64_t out_header(struct rte_mbuf *m, const struct flow_key *key, uint32_t seq,
	uint32_t ack, uint8_t flags, uint16_t window, unsigned options)
{
	return out_header_at(rte_pktmbuf_mtod_offset(m, uint8_t *, RP_NET_HEADROOM), key, seq, ack,
		flags, window, options);
}

static RP_APART struct rte_mbuf *out_starved(struct rp_tcp_stack *s)
{
	s->counters->alloc_failed++;
	s->blocked_until_ns = s->now_ns + TCP_RETRY_NS;
	return NULL;
}

static struct rte_mbuf *out_alloc_control(struct rp_tcp_stack *s)
{
	struct rte_mbuf *m;

	if (rp_net_tx_room(s->net, true) == 0)
		return NULL;
	m = rte_pktmbuf_alloc(s->net_config.control_pool);
	return m ? m : out_starved(s);
}

static inline struct rte_mbuf *out_alloc(struct rp_tcp_stack *s)
{
	struct rte_mbuf *m;

	if (rp_net_tx_room(s->net, false) == 0)
		return NULL;
	m = tcp_header_mbuf(s);
	return m ? m : out_starved(s);
}

/* What the network layer adds: addresses, checksum, and the two bits for ECN. */
static inline void out_segment(struct rp_tcp_stack *s, struct rp_neigh *neigh,
	const struct flow_key *key, struct rte_mbuf *m, unsigned options, uint64_t sum, uint8_t ecn,
	uint64_t now_ns)
{
	struct rp_net_segment segment = {
		.remote = &key->remote,
		.local = key->local,
		.sum = sum,
		.tcp_length = (uint16_t)(TCP_HEADER_BYTES + options),
		.ecn = ecn,
	};

	s->counters->tx_segments++;
	rp_net_output_tcp(s->net, neigh, m, &segment, now_ns);
}

static uint8_t *out_options(struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod_offset(m, uint8_t *, TCP_OUT_HEADERS);
}

/* The acknowledgement is on its way, and all there is to report. */
static inline void out_told(struct tcp_conn *c)
{
	c->last_ack_sent = c->rcv_nxt;
	c->flags &= ~(TCPF_ACK_NOW | TCPF_ACK_DELAYED | TCPF_DSACK);
}

static void out_acked(struct tcp_conn *c, unsigned sacks)
{
	if (tcp_sack_owed(c) && sacks == 0)
		c->last_ack_sent = c->rcv_nxt; /* a full segment had no room for it */
	else
		out_told(c);
}

bool tcp_send_control(struct tcp_conn *c, uint32_t seq, uint8_t flags, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct rte_mbuf *m = out_alloc_control(s);
	unsigned options, sacks;
	uint64_t sum;

	if (!m)
		return false;
	if (c->ecn & TCP_ECN_ECHO && !(flags & TCP_RST))
		flags |= TCP_ECE;
	options = tcp_options_build(c, out_options(m), TCP_OPTIONS_MAX, &sacks, now_ns);
	m->data_len = (uint16_t)(TCP_OUT_HEADERS + options);
	m->pkt_len = m->data_len;
	sum = rp_csum_header(out_options(m), options);
	sum += out_header(m, &c->key, seq, c->rcv_nxt, flags, tcp_window_select(c), options);
	out_acked(c, sacks);
	if (flags & TCP_RST)
		s->counters->rst_sent++;
	else
		s->counters->acks_sent++;
	out_segment(s, c->neigh, &c->key, m, options, sum, RP_NET_ECN_NONE, now_ns);
	return true;
}

void tcp_challenge_ack(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	/*
	 * RFC 5961 7: a connection's own limit first, so that one cannot use up the others'. The
	 * common one is a little random: counting its answers would tell a stranger who else is
	 * here.
	 */
	if (!tcp_bucket_take(&c->challenge, now_ns, 50 * RP_NS_PER_MS, 10) ||
		!tcp_bucket_take(&s->challenge, now_ns,
			RP_NS_PER_MS / 2 + rp_rand_below(&s->rand, RP_NS_PER_MS), 100))
		return;
	if (tcp_send_control(c, c->snd_nxt, TCP_ACK, now_ns))
		s->counters->challenge_acks++;
}

/*
 * A segment that is one mbuf, nobody else's, goes out for the first time with its headers in the
 * headroom of that mbuf: one buffer and one descriptor less. From then on its payload begins behind
 * them. Later transmissions get headers of their own, since the device may hold the first one
 * still. Not at an odd address, where the fields of a header cannot be stored. The packet without
 * its headers, or NULL: it does not go so.
 */
static inline struct rte_mbuf *out_in_place(struct tcp_conn *c, struct tseg *t)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct rte_mbuf *p = t->payload;
	uint16_t headers, more;

	if (t->length <= TCP_COPY_MAX || t->offset != 0)
		return NULL;
	headers = TCP_OUT_HEADERS + (c->flags & TCPF_TS ? TCP_TS_BYTES : 0);
	more = rp_net_headroom_more(&s->net_config.iface, &c->key.remote);
	if (p->next || p->data_len != t->length || p->data_off & 1 || !RTE_MBUF_DIRECT(p) ||
		rte_mbuf_refcnt_read(p) != 1 || rte_pktmbuf_headroom(p) < headers + more)
		return NULL;
	tcp_tseg_sum(s, t);
	p->data_off = (uint16_t)(p->data_off - headers);
	p->data_len = (uint16_t)(p->data_len + headers);
	p->pkt_len = p->data_len;
	t->offset = (uint32_t)headers + more; /* the network layer adds more in front */
	tcp_mbuf_ref(p);
	return p;
}

/* A small payload that lies in one piece goes into the header's mbuf. False: it does not. */
static inline bool out_copy(struct tseg *t, struct rte_mbuf *m)
{
	const struct rte_mbuf *p = t->payload;
	uint64_t sum;

	if (t->length > TCP_COPY_MAX || t->offset + t->length > p->data_len ||
		t->length > rte_pktmbuf_tailroom(m))
		return false;
	sum = rp_csum_copy(rte_pktmbuf_mtod_offset(m, uint8_t *, m->data_len),
		rte_pktmbuf_mtod_offset(p, uint8_t *, t->offset), t->length);
	t->sum = rp_csum_fold(sum);
	t->flags |= TSEG_SUM;
	m->data_len = (uint16_t)(m->data_len + t->length);
	m->pkt_len = m->data_len;
	return true;
}

/* Attaches the payload of `t` behind the header in `m`; false: no buffer. */
static RP_APART bool out_payload(struct tcp_conn *c, struct tseg *t, struct rte_mbuf *m)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct rte_mbuf *p = t->payload;

	tcp_tseg_sum(s, t);
	if (t->length <= TCP_COPY_MAX && t->length <= rte_pktmbuf_tailroom(m)) {
		rp_mbuf_copy_out(p, t->offset, rte_pktmbuf_mtod_offset(m, uint8_t *, m->data_len),
			t->length);
		m->data_len = (uint16_t)(m->data_len + t->length);
		m->pkt_len = m->data_len;
		return true;
	}
	if (t->offset == 0 && t->length == p->pkt_len) {
		tcp_mbuf_ref(p);
	} else {
		p = tcp_mbuf_slice(s->net_config.header_pool, p, t->offset, t->length);
		if (!p)
			return out_starved(s) != NULL;
	}
	m->next = p;
	m->nb_segs = (uint16_t)(1 + p->nb_segs);
	m->pkt_len += t->length;
	return true;
}

static uint8_t out_flags(const struct tcp_conn *c, const struct tseg *t)
{
	uint8_t flags = c->state == TCPS_SYN_SENT ? 0 : TCP_ACK;

	if (t->flags & TSEG_SYN)
		flags |= TCP_SYN;
	if (t->flags & TSEG_FIN)
		flags |= TCP_FIN;
	/* Nothing is queued behind it (RFC 9293 MUST-61), or nothing follows now. */
	if (t->length > 0 && (t->link.next == &c->segs || c->burst_ends))
		flags |= TCP_PSH;
	return flags;
}

/* What is sent for the first time moves on what is. */
static inline void out_account_new(
	struct tcp_conn *c, struct tseg *t, uint32_t span, uint64_t now_ns)
{
	t->flags |= TSEG_SENT;
	c->snd_nxt = t->seq + span;
	c->pipe += span;
	c->next_unsent = t->link.next == &c->segs ? NULL : tseg_of_link(t->link.next);
	c->tlp_start_ns = now_ns;
	c->stat_sent += t->length;
	tcp_stack_of(c)->counters->tx_bytes += t->length;
}

static RP_APART void out_account_again(struct tcp_conn *c, struct tseg *t, uint64_t now_ns)
{
	struct rp_tcp_counters *n = tcp_stack_of(c)->counters;
	uint32_t span = tseg_span(t);

	if (t->flags & TSEG_LOST) {
		/* The first one waits for its acknowledgement anew. */
		if (t->seq == c->snd_una)
			c->rto_start_ns = now_ns;
		t->flags &= ~TSEG_LOST;
		c->lost_bytes -= span;
		c->pipe += span;
	}
	rp_list_unlink(&t->xmit);
	t->flags |= TSEG_RTX;
	t->retransmits = (uint8_t)RP_MIN(t->retransmits + 1, UINT8_MAX);
	if (c->flags & TCPF_UNDO)
		tcp_undo_retransmitted(c, t, now_ns);
	if (t->retransmits == 1)
		tcp_watch(c, t, now_ns);
	c->stat_rtx++;
	n->rtx_segments++;
	n->rtx_bytes += t->length;
}

/* What the queue and the sums have to say of a transmission. */
static inline void out_account(struct tcp_conn *c, struct tseg *t, uint32_t span, uint64_t now_ns)
{
	if (c->snd_una == c->snd_nxt) {
		c->rto_start_ns = now_ns;
		if (c->timer == TCP_TIMER_PERSIST) {
			c->backoff = 0;
			c->timer = TCP_TIMER_NONE;
		}
	}
	if (c->ca_state == TCP_CA_RECOVERY)
		c->prr_out += span;
	if (!(t->flags & TSEG_SENT))
		out_account_new(c, t, span, now_ns);
	else
		out_account_again(c, t, now_ns);
	rp_list_push_back(&c->xmit, &t->xmit);
	t->xmit_ns = c->sent_ns = now_ns;
}

bool tcp_xmit(struct tcp_conn *c, struct tseg *t, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	unsigned options, sacks = 0;
	struct rte_mbuf *m;
	bool syn = t->flags & TSEG_SYN;
	uint8_t flags, ecn = RP_NET_ECN_NONE;
	uint64_t sum = 0;

	if (t->length > c->mss && !tcp_sendq_split(c, t, c->mss))
		return false;
	m = t->length > 0 ? out_alloc(s) : out_alloc_control(s);
	if (!m)
		return false;
	if (syn)
		options = tcp_options_build_syn(c, out_options(m), now_ns);
	else
		options = tcp_options_build(c, out_options(m),
			RP_MIN((unsigned)(c->mss - t->length), TCP_OPTIONS_MAX), &sacks, now_ns);
	m->data_len = (uint16_t)(TCP_OUT_HEADERS + options);
	m->pkt_len = m->data_len;
	if (t->length > 0) {
		if (!out_copy(t, m) && !out_payload(c, t, m)) {
			rte_pktmbuf_free(m);
			return false;
		}
		sum = t->sum;
	}
	flags = out_flags(c, t);
	if (c->ecn)
		ecn = tcp_ecn_output(c, t, &flags);
	sum += rp_csum_header(out_options(m), options);
	sum += out_header(m, &c->key, t->seq, c->state == TCPS_SYN_SENT ? 0 : c->rcv_nxt, flags,
		tcp_window_select_any(c, syn), options);
	out_account(c, t, tseg_span(t), now_ns);
	out_acked(c, sacks);
	out_segment(s, c->neigh, &c->key, m, options, sum, ecn, now_ns);
	return true;
}

/*
 * The common segment, by a shorter way to the same packet: data that goes for the first time, no
 * longer than the MSS, without flags of its own, while no block is to be reported, and there is
 * room in the transmit queue.
 */
static bool out_plain(struct tcp_conn *c, struct tseg *t, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct rte_mbuf *m = out_in_place(c, t);
	uint8_t flags = TCP_ACK, ecn = RP_NET_ECN_NONE;
	uint64_t sum = 0;
	unsigned options;

	if (m) {
		options = tcp_options_build_plain(c, out_options(m), &sum, now_ns);
	} else {
		m = tcp_header_mbuf(s);
		if (!m)
			return out_starved(s) != NULL;
		options = tcp_options_build_plain(c, out_options(m), &sum, now_ns);
		m->data_len = (uint16_t)(TCP_OUT_HEADERS + options);
		m->pkt_len = m->data_len;
		if (!out_copy(t, m) && !out_payload(c, t, m)) {
			rte_pktmbuf_free(m);
			return false;
		}
	}
	if (t->link.next == &c->segs || c->burst_ends)
		flags |= TCP_PSH;
	if (c->ecn)
		ecn = tcp_ecn_output(c, t, &flags);
	sum += t->sum;
	sum += out_header(m, &c->key, t->seq, c->rcv_nxt, flags, tcp_window_select(c), options);
	out_account(c, t, t->length, now_ns);
	out_told(c);
	out_segment(s, c->neigh, &c->key, m, options, sum, ecn, now_ns);
	return true;
}

/*
 * Segments that are full and follow each other in one turn differ in sequence number, checksum and
 * payload only. The first of them goes by out_plain(); for the others the headers are made once.
 */
struct out_run {
	unsigned count, bytes; /* of segments that went; of the headers */
	bool never;	       /* they cannot be made ahead */
	uint64_t sum;	       /* raw, of all but sequence number and payload; bytes > 0 */
	uint8_t headers[TCP_OUT_HEADERS + TCP_TS_BYTES];
};

static RP_APART void out_run_make(struct tcp_conn *c, struct out_run *run, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	unsigned options = c->flags & TCPF_TS ? TCP_TS_BYTES : 0;
	uint8_t flags = TCP_ACK | (c->ecn & TCP_ECN_ECHO ? TCP_ECE : 0);
	struct rp_net_segment segment = {
		.remote = &c->key.remote,
		.local = c->key.local,
		.ecn = c->ecn & TCP_ECN_ECT ? RP_NET_ECN_ECT0 : RP_NET_ECN_NONE,
	};
	struct rp_net_template t;

	if (!rp_net_template_make(s->net, c->neigh, &segment,
		    (uint16_t)(TCP_HEADER_BYTES + options + c->mss), &t)) {
		run->never = true;
		return;
	}
	memcpy(run->headers, t.headers, RP_NET_HEADROOM);
	run->sum = t.pseudo;
	tcp_options_build_plain(c, run->headers + TCP_OUT_HEADERS, &run->sum, now_ns);
	run->sum += out_header_at(run->headers + RP_NET_HEADROOM, &c->key, 0, c->rcv_nxt, flags,
		tcp_window_select(c), options);
	run->bytes = TCP_OUT_HEADERS + options;
}

/* One more of them. */
static RP_APART bool out_run_one(
	struct tcp_conn *c, struct out_run *run, struct tseg *t, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct rte_mbuf *m = out_in_place(c, t);
	uint16_t checksum;
	uint64_t sum;
	uint8_t *p;

	if (!m) {
		m = tcp_header_mbuf(s);
		if (!m)
			return out_starved(s) != NULL;
		m->data_len = (uint16_t)run->bytes;
		m->pkt_len = m->data_len;
		if (!out_payload(c, t, m)) {
			rte_pktmbuf_free(m);
			return false;
		}
	}
	p = rte_pktmbuf_mtod(m, uint8_t *);
	memcpy(p, run->headers, TCP_OUT_HEADERS);
	if (run->bytes > TCP_OUT_HEADERS)
		memcpy(p + TCP_OUT_HEADERS, run->headers + TCP_OUT_HEADERS, TCP_TS_BYTES);
	sum = rp_csum_add(run->sum + t->sum, tcp_store32(p + RP_NET_HEADROOM + 4, t->seq));
	checksum = (uint16_t)~rp_csum_fold(sum);
	memcpy(p + RP_NET_HEADROOM + 16, &checksum, sizeof(checksum));
	out_account(c, t, t->length, now_ns);
	s->counters->tx_segments++;
	rp_net_output_made(s->net, c->neigh, m, now_ns);
	return true;
}

/* Full, and not the last of a burst, which is pushed. */
static inline bool out_in_run(const struct tcp_conn *c, const struct tseg *t)
{
	return t->length == c->mss && !c->burst_ends && t->link.next != &c->segs &&
	       !(c->ecn & TCP_ECN_CWR) && t->length > TCP_COPY_MAX;
}

static inline bool out_next(
	struct tcp_conn *c, struct out_run *run, struct tseg *t, uint64_t now_ns)
{
	if (run->never || !out_in_run(c, t) || run->count++ == 0)
		return out_plain(c, t, now_ns);
	if (run->bytes == 0)
		out_run_make(c, run, now_ns);
	return run->never ? out_plain(c, t, now_ns) : out_run_one(c, run, t, now_ns);
}

static inline bool out_is_plain(const struct tcp_conn *c, const struct tseg *t)
{
	return !(t->flags & ~TSEG_SUM) && !tcp_sack_owed(c) &&
	       rp_net_tx_room(tcp_stack_of(c)->net, false) > 0;
}

void tcp_send_reply(struct rp_tcp_stack *s, const struct tcp_reply *r, uint64_t now_ns)
{
	struct rp_list nobody;
	struct rp_neigh *neigh;
	struct rte_mbuf *m;
	unsigned options = 0;
	uint64_t sum;

	rp_list_init(&nobody);
	neigh = rp_neigh_ref(s->net, &r->key->remote, &nobody, now_ns);
	if (!neigh)
		return;
	m = out_alloc_control(s);
	if (m) {
		if (r->options_length > 0) {
			memcpy(out_options(m), r->options, r->options_length);
			options = r->options_length;
		} else if (r->ts) {
			tcp_options_put_ts(out_options(m), r->ts_value, r->ts_echo);
			options = TCP_TS_BYTES;
		}
		m->data_len = (uint16_t)(TCP_OUT_HEADERS + options);
		m->pkt_len = m->data_len;
		sum = rp_csum_header(out_options(m), options);
		sum += out_header(m, r->key, r->seq, r->ack, r->flags, r->window, options);
		out_segment(s, neigh, r->key, m, options, sum, RP_NET_ECN_NONE, now_ns);
	}
	rp_neigh_unref(s->net, neigh, &nobody);
}

void tcp_reset_unknown(struct rp_tcp_stack *s, const struct flow_key *key,
	const struct tcp_segment_in *in, uint64_t now_ns)
{
	struct tcp_reply r = {.key = key, .flags = TCP_RST};

	if (!tcp_bucket_take(&s->rst, now_ns, RP_NS_PER_MS, 200))
		return;
	if (in->flags & TCP_ACK) {
		r.seq = in->ack;
	} else {
		r.flags |= TCP_ACK;
		r.ack = tcp_seg_in_end(in);
	}
	s->counters->rst_sent++;
	tcp_send_reply(s, &r, now_ns);
}

enum out_result { OUT_DONE, OUT_BLOCKED, OUT_MORE };

static enum out_result out_lost(struct tcp_conn *c, uint64_t now_ns)
{
	while (!rp_list_empty(&c->lost)) {
		struct tseg *t = tseg_of_xmit(c->lost.next);
		uint32_t flight = tcp_flight(c);

		if (flight > 0 && flight + RP_MIN(tseg_span(t), c->mss) > c->cwnd)
			return OUT_DONE;
		if (!tcp_xmit(c, t, now_ns))
			return OUT_BLOCKED;
	}
	return OUT_DONE;
}

/*
 * Makes `t` fit the window; false: it may not go now. Silly windows (RFC 9293 3.8.6.2.1): a piece
 * is sent only where it is half of what the peer ever offered; else the persist timer decides.
 */
static bool out_fit_window(struct tcp_conn *c, struct tseg *t)
{
	int32_t room = (int32_t)(c->snd_una + c->snd_wnd - c->snd_nxt);
	uint32_t want = RP_MIN(t->length, (uint32_t)c->mss);

	if (t->flags & TSEG_SYN)
		return true;
	if (room <= 0)
		return false;
	if (want <= (uint32_t)room)
		return true;
	return (uint32_t)room >= c->snd_wnd_max / 2 && tcp_sendq_split(c, t, (uint32_t)room);
}

/*
 * Does a burst end with this segment, since the one behind it may not go yet? Then it is pushed:
 * who joins segments on the way has no reason to wait for more.
 */
static bool out_burst_ends(const struct tcp_conn *c, const struct tseg *t, uint32_t flight)
{
	const struct tseg *next;
	uint32_t want;

	if (t->link.next == &c->segs)
		return false;
	next = tseg_of_link(t->link.next);
	want = RP_MIN(next->length, (uint32_t)c->mss);
	return flight + tseg_span(t) + want > c->cwnd ||
	       rp_seq_gt(tseg_end(t) + want, c->snd_una + c->snd_wnd);
}

/* Most segments, and mbufs, of a super-segment: its length fits in the 16 bits of IP. */
#define OUT_SUPER_SEGMENTS 44
#define OUT_SUPER_MBUFS 48

/*
 * How many segments from `t` on may go as one, for the device to cut: all that could go now one by
 * one, full but for the last, without flags of their own.
 */
static unsigned out_super_count(
	const struct tcp_conn *c, const struct tseg *t, uint32_t flight, uint32_t quantum)
{
	uint32_t bytes = 0, most = RP_MIN(quantum, (uint32_t)OUT_SUPER_SEGMENTS * c->mss),
		 mbufs = 0;
	const uint32_t end = c->snd_una + c->snd_wnd;
	unsigned n = 0;

	most = RP_MIN(most, 65535u - rp_net_overhead(&c->key.remote) - TCP_OPTIONS_MAX);
	if (tcp_sack_owed(c) || c->ecn & TCP_ECN_CWR)
		return 0;
	for (;;) {
		bytes += t->length;
		mbufs += t->payload ? t->payload->nb_segs : 0;
		if (t->length == 0 || t->length > c->mss || bytes > most ||
			mbufs > OUT_SUPER_MBUFS || t->flags & ~(TSEG_SUM | TSEG_OWNED) ||
			flight + bytes > c->cwnd || rp_seq_gt(tseg_end(t), end))
			return n;
		n++;
		if (t->length < c->mss || t->link.next == &c->segs)
			return n;
		t = tseg_of_link(t->link.next);
	}
}

/*
 * The payloads of `n` segments behind the headers in `m`, by references of its own: a chain that is
 * in flight already must not change. False: a buffer is missing.
 */
static bool out_super_payload(struct tcp_conn *c, struct tseg *t, unsigned n, struct rte_mbuf *m)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct rte_mbuf *tail = m;

	for (; n > 0; n--, t = tseg_of_link(t->link.next)) {
		struct rte_mbuf *p =
			tcp_mbuf_slice(s->net_config.header_pool, t->payload, t->offset, t->length);

		if (!p)
			return out_starved(s) != NULL;
		tail->next = p;
		m->nb_segs = (uint16_t)(m->nb_segs + p->nb_segs);
		m->pkt_len += t->length;
		while (tail->next)
			tail = tail->next;
	}
	return true;
}

/* Sends `n` segments as one. False: no buffer. */
static bool out_super(
	struct tcp_conn *c, struct tseg *t, unsigned n, uint32_t flight, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct rte_mbuf *m = out_alloc(s);
	struct tseg *last = t, *next = t;
	uint8_t flags, ecn = RP_NET_ECN_NONE;
	uint32_t seq = t->seq;
	uint64_t sum = 0; /* the port makes them */
	unsigned options;

	if (!m)
		return false;
	for (unsigned i = 1; i < n; i++) {
		flight += last->length;
		last = tseg_of_link(last->link.next);
	}
	c->burst_ends = out_burst_ends(c, last, flight);
	options = tcp_options_build_plain(c, out_options(m), &sum, now_ns);
	m->data_len = (uint16_t)(TCP_OUT_HEADERS + options);
	m->pkt_len = m->data_len;
	if (!out_super_payload(c, t, n, m)) {
		rte_pktmbuf_free(m);
		return false;
	}
	flags = out_flags(c, last);
	if (c->ecn)
		ecn = tcp_ecn_output(c, t, &flags);
	out_header(m, &c->key, seq, c->rcv_nxt, flags, tcp_window_select(c), options);
	for (unsigned i = 0; i < n; i++) {
		t = next;
		next = i + 1 < n ? tseg_of_link(t->link.next) : NULL;
		out_account(c, t, t->length, now_ns);
	}
	out_acked(c, 0);
	m->tso_segsz = c->mss;
	m->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
	s->counters->tx_segments += n - 1;
	s->counters->tx_super++;
	out_segment(s, c->neigh, &c->key, m, options, 0, ecn, now_ns);
	return true;
}

/* What is in flight fills the window, or half of it in slow start (RFC 7661 4.3). */
static void out_limited(struct tcp_conn *c)
{
	c->flags |= TCPF_CWND_LIMITED;
	c->limited_end = c->snd_nxt;
	c->limited_flight = c->pipe;
}

/*
 * The peer's window is closed by a hole, while what lies behind it is reported: meanwhile little is
 * left in flight. When the hole closes, all that cwnd allows at once would overrun the buffer of
 * the path, as after an idle time (RFC 5681 4.1, RFC 7661 4.4): it is filled by what ACKs deliver.
 */
static inline void out_stalled(struct tcp_conn *c)
{
	if (c->sacked_bytes == 0 || c->flags & TCPF_STALLED)
		return;
	c->flags |= TCPF_STALLED;
	c->refill_room = 0;
}

/* So many bytes from `t` on may go now: one segment where nothing is in flight. */
static inline uint32_t out_refill(const struct tcp_conn *c, const struct tseg *t, uint32_t flight)
{
	if (!(c->flags & TCPF_STALLED))
		return UINT32_MAX;
	return flight == 0 ? RP_MAX(c->refill_room, t->length) : c->refill_room;
}

static enum out_result out_new(struct tcp_conn *c, uint64_t now_ns)
{
	const bool tso = tcp_stack_of(c)->net_config.iface.tx_tso;
	struct out_run run;
	uint32_t quantum = TCP_QUANTUM_BYTES, room;
	unsigned super;
	struct tseg *t;

	run.count = run.bytes = 0;
	run.never = false;
	if (c->next_unsent && c->snd_una == c->snd_nxt &&
		now_ns - c->sent_ns >= RP_MAX(c->rto_ns, c->rto_min_ns) && c->snd_wnd > 0)
		tcp_cwnd_restart(c, now_ns - c->sent_ns);
	while ((t = c->next_unsent)) {
		uint32_t flight = tcp_flight(c), span;
		bool sent;

		if (!(t->flags & TSEG_SYN) && !tcp_synchronized(c))
			return OUT_DONE;
		if (!out_fit_window(c, t)) {
			out_stalled(c);
			return OUT_DONE;
		}
		if (t->length > c->mss && !tcp_sendq_split(c, t, c->mss))
			return OUT_BLOCKED;
		span = tseg_span(t);
		if (flight > 0 && flight + t->length > c->cwnd) {
			c->flags &= ~TCPF_STALLED;
			out_limited(c);
			return OUT_DONE;
		}
		room = out_refill(c, t, flight);
		if (t->length > room)
			return OUT_DONE;
		if (tso && t->length == c->mss &&
			(super = out_super_count(c, t, flight, RP_MIN(quantum, room))) > 1) {
			sent = out_super(c, t, super, flight, now_ns);
			span = c->snd_nxt - t->seq;
		} else {
			c->burst_ends = quantum < TCP_QUANTUM_BYTES && out_burst_ends(c, t, flight);
			sent = out_is_plain(c, t) ? out_next(c, &run, t, now_ns)
						  : tcp_xmit(c, t, now_ns);
		}
		c->burst_ends = false;
		if (!sent)
			return OUT_BLOCKED;
		c->refill_room -= RP_MIN(span, c->refill_room);
		if (span >= quantum)
			return c->next_unsent ? OUT_MORE : OUT_DONE;
		quantum -= span;
	}
	/* In slow start the window may grow to twice of what was in use. */
	if (quantum < TCP_QUANTUM_BYTES && c->cwnd < c->ssthresh && c->pipe > c->cwnd / 2)
		out_limited(c);
	return OUT_DONE;
}

void tcp_block(struct tcp_conn *c)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	if (c->flags & TCPF_BLOCKED)
		return;
	rp_list_unlink(&c->dirty);
	c->flags |= TCPF_BLOCKED;
	rp_list_push_back(&s->blocked, &c->dirty);
}

void tcp_output(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	enum out_result result;

	if (c->state == TCPS_CLOSED)
		return;
	result = out_lost(c, now_ns);
	if (result == OUT_DONE && rp_list_empty(&c->lost))
		result = out_new(c, now_ns);
	if (!tcp_window_plenty(c) && tcp_window_update_due(c)) {
		if (!(c->flags & (TCPF_ACK_NOW | TCPF_ACK_DELAYED)))
			s->counters->window_updates++;
		c->flags |= TCPF_ACK_NOW;
	}
	if (c->flags & TCPF_ACK_NOW && c->state != TCPS_SYN_SENT) {
		if (!tcp_send_control(c, c->snd_nxt, TCP_ACK, now_ns))
			result = OUT_BLOCKED;
	}
	if (result == OUT_BLOCKED)
		tcp_block(c);
	else if (result == OUT_MORE)
		tcp_mark_dirty(c);
	if (!tcp_timer_stays(c, now_ns))
		tcp_arm(c, now_ns);
}
