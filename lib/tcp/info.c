/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

void rp_tcp_usage(const struct rp_tcp_stack *s, struct rp_tcp_usage *usage)
{
	*usage = (struct rp_tcp_usage){
		.connections = s->conn_count,
		.half_open = s->half_open,
		.time_wait = s->tw_count,
		.segments = s->tseg_count,
		.ranges = s->ooo_count,
		.timers = s->wheel.count,
	};
}

static void info_sizes(const struct tcp_conn *c, struct rp_tcp_info *i)
{
	i->mss = c->mss;
	i->sack = c->flags & TCPF_SACK;
	i->timestamps = c->flags & TCPF_TS;
	i->ecn = (c->ecn & (TCP_ECN_ON | TCP_ECN_ECT)) == (TCP_ECN_ON | TCP_ECN_ECT);
	i->congestion = c->cc->name;
	i->path_mtu = c->flags & TCPF_PMTU ? (uint16_t)(c->mss + rp_net_overhead(&c->key.remote) +
							(i->timestamps ? TCP_TS_BYTES : 0))
					   : 0;
	i->keepalive_idle_ns = c->keepalive_idle_ns;
	i->keepalive_interval_ns = c->keepalive_interval_ns;
	i->keepalive_probes = c->keepalive_probes;
	i->keepalive_sent = c->keepalive_sent;
	i->send_shift = c->snd_shift;
	i->receive_shift = c->rcv_shift;
	i->cwnd = c->cwnd;
	i->ssthresh = c->ssthresh;
	i->pipe = c->pipe;
	i->send_window = c->snd_wnd;
	i->receive_window = rp_seq_gt(c->rcv_adv, c->rcv_nxt) ? c->rcv_adv - c->rcv_nxt : 0;
	i->unsent = c->queue_end - c->snd_nxt;
	i->unacked = c->snd_nxt - c->snd_una;
	i->unconsumed = c->unconsumed;
	i->ooo = c->ooo_bytes;
}

/* What tcp_deadline() is for. */
static const char *info_timer(const struct tcp_conn *c)
{
	uint64_t d = tcp_deadline(c);

	if (d == RP_NEVER)
		return tcp_timer_name(TCP_TIMER_NONE);
	if (d == c->timer_ns)
		return tcp_timer_name(c->timer);
	if (c->flags & TCPF_ACK_DELAYED && d == c->ack_deadline_ns)
		return "ack";
	return c->state == TCPS_FIN_WAIT_2 && !c->half_closed ? "fin-wait" : "keepalive";
}

void rp_tcp_conn_info(const struct rp_conn *conn, struct rp_tcp_info *info)
{
	const struct tcp_conn *c = tcp_conn_of(conn);
	const union rp_ip *local = rp_net_local(tcp_stack_of(c)->net, c->key.local);

	*info = (struct rp_tcp_info){
		.local = rp_ip_to_endpoint(local, c->key.local_port),
		.peer = rp_ip_to_endpoint(&c->key.remote, c->key.remote_port),
		.state = tcp_state_name(c->state),
		.passive = c->flags & TCPF_PASSIVE,
		.srtt_ns = c->srtt_ns,
		.rttvar_ns = c->rttvar_ns,
		.rtt_min_ns = c->rtt_min_ns == RP_NEVER ? 0 : c->rtt_min_ns,
		.rto_ns = tcp_rto_now(c),
		.rto_floor_ns = c->rto_min_ns,
		.reo_window_ns = tcp_reo_window_ns(c),
		.backoff = c->backoff,
		.recovery = c->ca_state != TCP_CA_OPEN,
		.reduced = c->ecn & TCP_ECN_ON && rp_seq_lt(c->snd_una, c->ecn_recover),
		.reordering = c->flags & TCPF_REORDERING,
		.rtx_segments = c->stat_rtx,
		.rtos = c->stat_rto,
		.tlps = c->stat_tlp,
		.undos = c->stat_undo,
		.bytes_sent = c->stat_sent,
		.bytes_received = c->stat_received,
		.opened_ns = c->opened_ns,
		.deadline_ns = tcp_deadline(c),
		.timer = info_timer(c),
	};
	info_sizes(c, info);
}

static bool info_live(const struct tcp_conn *c)
{
	return c->base.transport && !(c->flags & TCPF_DEAD);
}

void rp_tcp_foreach(const struct rp_tcp_stack *s,
	void (*cb)(void *ctx, const struct rp_tcp_info *info), void *ctx)
{
	for (uint32_t i = 0; i < s->conn_top; i++) {
		struct rp_tcp_info info;

		if (!info_live(&s->conns[i]))
			continue;
		rp_tcp_conn_info(&s->conns[i].base, &info);
		cb(ctx, &info);
	}
}

#define CHECK(cond)                   \
	do {                          \
		if (!(cond))          \
			return #cond; \
	} while (0)

static const char *check_send_queue(const struct tcp_conn *c)
{
	uint32_t seq = c->snd_una, pipe = 0, lost = 0, sacked = 0, sacked_count = 0,
		 nxt = c->snd_una;
	uint32_t on_xmit = 0, on_lost = 0;
	const struct tseg *unsent = NULL;
	const struct rp_list *l;

	rp_list_foreach (l, &c->segs) {
		const struct tseg *t = tseg_of_link(l);

		CHECK(t->seq == seq);
		CHECK(tseg_span(t) > 0);
		CHECK(t->length == 0 || t->offset + t->length <= t->payload->pkt_len);
		seq = tseg_end(t);
		if (!(t->flags & TSEG_SENT)) {
			CHECK(rp_list_empty(&t->xmit));
			if (!unsent)
				unsent = t;
			continue;
		}
		CHECK(!unsent);
		nxt = seq;
		if (t->flags & TSEG_SACKED) {
			CHECK(!(t->flags & TSEG_LOST) && rp_list_empty(&t->xmit));
			sacked += tseg_span(t);
			sacked_count++;
		} else if (t->flags & TSEG_LOST) {
			lost += tseg_span(t);
			on_lost++;
		} else {
			pipe += tseg_span(t);
			on_xmit++;
		}
	}
	CHECK(seq == c->queue_end);
	CHECK(nxt == c->snd_nxt);
	CHECK(unsent == c->next_unsent);
	CHECK(pipe == c->pipe);
	CHECK(lost == c->lost_bytes);
	CHECK(sacked == c->sacked_bytes && sacked_count == c->sacked_count);
	rp_list_foreach (l, &c->xmit) {
		CHECK(tseg_in_pipe(tseg_of_xmit(l)));
		on_xmit--;
	}
	rp_list_foreach (l, &c->lost) {
		CHECK(tseg_of_xmit(l)->flags & TSEG_LOST);
		CHECK(l->next == &c->lost ||
			rp_seq_lt(tseg_of_xmit(l)->seq, tseg_of_xmit(l->next)->seq));
		on_lost--;
	}
	CHECK(on_xmit == 0 && on_lost == 0);
	return NULL;
}

static uint32_t check_chain_bytes(const struct tcp_chain *chain, uint32_t *mbufs)
{
	uint32_t bytes = 0;

	for (const struct rte_mbuf *m = chain->head; m; m = m->next) {
		bytes += m->data_len;
		(*mbufs)++;
	}
	return bytes;
}

static const char *check_receive_queue(const struct tcp_conn *c, uint32_t *ranges)
{
	const struct rp_tcp_stack *s = tcp_stack_of(c);
	uint32_t bytes = 0, mbufs = 0, count = 0, rx_mbufs = 0;
	const struct rp_list *l;

	rp_list_foreach (l, &c->ooo) {
		const struct tcp_ooo *o = rp_list_entry(l, struct tcp_ooo, link);
		uint32_t before = mbufs;

		CHECK(rp_seq_gt(o->start, c->rcv_nxt));
		CHECK(rp_seq_lt(o->start, o->end));
		CHECK(rp_seq_leq(o->end, c->rcv_adv));
		CHECK(l->next == &c->ooo ||
			rp_seq_lt(o->end, rp_list_entry(l->next, struct tcp_ooo, link)->start));
		CHECK(check_chain_bytes(&o->chain, &mbufs) == o->end - o->start);
		CHECK(o->chain.bytes == o->end - o->start && o->chain.mbufs == mbufs - before);
		bytes += o->end - o->start;
		count++;
	}
	CHECK(bytes == c->ooo_bytes && mbufs == c->ooo_mbufs && count == c->ooo_count);
	CHECK(count <= s->config.ooo_ranges_max && mbufs <= s->config.ooo_mbufs_max + 1);
	CHECK(check_chain_bytes(&c->rx, &rx_mbufs) == c->rx.bytes && rx_mbufs == c->rx.mbufs);
	CHECK(c->state < TCPS_ESTABLISHED ||
		c->rcv_adv - c->rcv_nxt <=
			s->config.receive_buffer_bytes + 2 * (1u << c->rcv_shift));
	*ranges += count;
	return NULL;
}

/* A connection that waits for something has a timer, or is about to be served. */
static const char *check_timers(const struct tcp_conn *c)
{
	bool due = !rp_list_empty(&c->dirty);

	CHECK(tcp_deadline(c) == RP_NEVER || due || rp_wheel_armed(&c->wheel));
	CHECK(due || !rp_wheel_armed(&c->wheel) || c->wheel.deadline_ns <= tcp_deadline(c) ||
		tcp_deadline(c) == RP_NEVER);
	CHECK(rp_list_empty(&c->segs) || due || c->timer_ns != RP_NEVER);
	CHECK(!(c->flags & TCPF_ACK_NOW) || due || c->state == TCPS_SYN_SENT ||
		c->state == TCPS_SYN_RCVD || c->flags & TCPF_DSACK || c->ooo_count > 0);
	return NULL;
}

const char *rp_tcp_check(const struct rp_tcp_stack *s)
{
	uint32_t conns = 0, table = 0, ranges = 0, half_open = 0, mbufs = 0;
	const char *fault;

	for (uint32_t i = 0; i < s->conn_top; i++) {
		const struct tcp_conn *c = &s->conns[i];

		if (!info_live(c))
			continue;
		conns++;
		mbufs += c->ooo_mbufs;
		table += (c->flags & TCPF_IN_TABLE) != 0;
		half_open += c->listener != NULL;
		CHECK(!(c->flags & TCPF_IN_TABLE) || flow_find(&s->flows, &c->key, c->hash) == i);
		if (c->state == TCPS_CLOSED)
			continue;
		fault = check_send_queue(c);
		if (!fault)
			fault = check_receive_queue(c, &ranges);
		if (!fault)
			fault = check_timers(c);
		if (fault)
			return fault;
	}
	CHECK(conns + s->dead_count == s->conn_count);
	CHECK(table + s->tw_count == s->flows.count);
	CHECK(half_open == s->half_open);
	CHECK(ranges == s->ooo_count && mbufs == s->ooo_mbufs);
	return NULL;
}
