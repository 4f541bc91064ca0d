/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <tcp/siphash.h>
#include <tcp/tcp_priv.h>

#define MSS_LEAST 88 /* below, headers would cost more than they carry */

uint32_t tcp_isn(const struct rp_tcp_stack *s, const struct flow_key *key, uint64_t now_ns)
{
	/* RFC 6528: a clock of 4 us and a keyed function of the connection's identity. */
	return (uint32_t)(now_ns >> 12) + (uint32_t)siphash24(s->config.secret, key, sizeof(*key));
}

uint32_t tcp_ts_offset(const struct rp_tcp_stack *s, const struct flow_key *key)
{
	/* Without the ports: between two hosts time goes on across connections (RFC 7323 5.4). */
	return (uint32_t)(siphash24(s->config.secret, &key->remote, sizeof(key->remote)) >> 32);
}

/*
 * The first free port of a search, in key->local_port; 0: none, and *waiting may be a TIME-WAIT
 * record whose port could be had.
 */
static uint16_t port_search(struct rp_tcp_stack *s, const struct rp_conn_options *far,
	struct flow_key *key, uint32_t *waiting, uint64_t now_ns)
{
	struct rp_place_search_config c = {
		.local = rp_net_local(s->net, key->local),
		.remote = &key->remote,
		.remote_port = key->remote_port,
		.port_first = s->config.port_first,
		.port_last = s->config.port_last,
		.step = s->port_counter,
		.near = {.place = s->config.place, .shards = 1ull << s->config.shard},
	};
	struct rp_place_search search;

	if (far)
		c.far = (struct rp_place_end){far->far_place, far->far_shards};
	key->local_port = 0;
	c.salt = (uint32_t)siphash24(s->config.secret, key, sizeof(*key));
	rp_place_search_begin(&search, &c);
	while ((key->local_port = rp_place_search_next(&search))) {
		uint32_t index;

		if (tcp_listener_find(s, key->local_port))
			continue;
		index = flow_find(&s->flows, key, flow_hash(&s->flows, key));
		if (index == FLOW_NONE)
			break;
		if (*waiting == FLOW_NONE && index >= s->config.connections_max &&
			tcp_tw_reusable(s, index - s->config.connections_max, now_ns))
			*waiting = index - s->config.connections_max;
	}
	s->port_counter = search.step;
	return key->local_port;
}

uint16_t tcp_pick_port(struct rp_tcp_stack *s, const struct rp_conn_options *options,
	struct flow_key *key, bool *reused, uint32_t *isn_min, uint64_t now_ns)
{
	const struct rp_conn_options *far = options && options->far_place ? options : NULL;
	uint32_t waiting = FLOW_NONE;

	*reused = false;
	if (port_search(s, far, key, &waiting, now_ns))
		return key->local_port;
	if (far && waiting == FLOW_NONE) {
		/* The peer hands over what comes to the wrong shard: better than no connection. */
		s->counters->ports_misplaced++;
		if (port_search(s, NULL, key, &waiting, now_ns))
			return key->local_port;
	}
	if (waiting == FLOW_NONE)
		return 0;
	key->local_port = s->tws[waiting].key.local_port;
	*reused = true;
	*isn_min = s->tws[waiting].snd_nxt;
	s->counters->time_wait_reused++;
	tcp_tw_drop(s, waiting);
	return key->local_port;
}

struct tcp_listener *tcp_listener_find(struct rp_tcp_stack *s, uint16_t port)
{
	for (uint32_t i = 0; i < s->config.listeners_max; i++)
		if (s->listeners[i].port == port && port != 0)
			return &s->listeners[i];
	return NULL;
}

void tcp_half_open_done(struct tcp_conn *c)
{
	if (!c->listener)
		return;
	c->listener->half_open--;
	tcp_stack_of(c)->half_open--;
	c->listener = NULL;
}

/* What the peer's SYN says, into the connection; what it does not offer is not used. */
void tcp_syn_options(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	const struct tcp_options *o = &in->opt;
	uint32_t mss = o->has_mss ? RP_MAX(o->mss, MSS_LEAST) : tcp_mss_default(&c->key);

	if (!o->has_ts)
		c->flags &= ~TCPF_TS;
	if (!o->has_sack_permitted)
		c->flags &= ~TCPF_SACK;
	if (!o->has_shift)
		c->flags &= ~TCPF_SHIFT;
	if (c->flags & TCPF_SHIFT) {
		c->snd_shift = o->shift;
		c->rcv_shift = s->rcv_shift;
	} else {
		c->snd_shift = c->rcv_shift = 0;
	}
	if (c->flags & TCPF_TS) {
		c->ts_recent = o->ts_value;
		c->ts_recent_ns = now_ns;
	}
	tcp_ecn_on_syn(c, in);
	c->mss = (uint16_t)(RP_MIN(mss, c->mss_max) - (c->flags & TCPF_TS ? TCP_TS_BYTES : 0));
	c->mss_full = c->mss;
	tcp_window_init(c);
	tcp_pmtu_apply(c, now_ns);
	c->rcv_mss = (uint16_t)RP_MIN(TCP_MSS_DEFAULT, c->mss);
	c->irs = in->seq;
	c->rcv_nxt = c->last_ack_sent = in->seq + 1;
	c->rcv_adv = c->rcv_nxt + RP_MIN(s->config.receive_buffer_bytes, (uint32_t)UINT16_MAX);
	/* The window of a SYN is never scaled (RFC 7323 2.2). */
	c->snd_wnd = c->snd_wnd_max = in->window;
	c->snd_wl1 = in->seq;
	c->snd_wl2 = in->flags & TCP_ACK ? in->ack : c->iss;
	c->cwnd = tcp_initial_window(c);
}

struct tcp_conn *tcp_listen_conn(
	struct rp_tcp_stack *s, struct tcp_listener *l, const struct flow_key *key, uint64_t now_ns)
{
	struct tcp_conn *c;

	if (s->pressure) {
		s->counters->drop_pressure++;
		return NULL;
	}
	c = tcp_conn_new(s, key, now_ns);
	if (!c) {
		s->counters->drop_nomem++;
		return NULL;
	}
	c->listener = l;
	l->half_open++;
	s->half_open++;
	c->flags |= TCPF_PASSIVE;
	tcp_conn_options(c, &l->options);
	tcp_conn_offers(c);
	return c;
}

/* What comes without a SYN: the end of a handshake with a cookie, or nothing of ours. */
static struct tcp_conn *listen_no_syn(struct rp_tcp_stack *s, struct tcp_listener *l,
	const struct flow_key *key, const struct tcp_segment_in *in, uint64_t now_ns)
{
	if (l && (in->flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_ACK) {
		bool ours;
		struct tcp_conn *c = tcp_cookie_input(s, l, key, in, &ours, now_ns);

		if (ours)
			return c; /* no reset to a client that has completed */
	}
	if (!(in->flags & TCP_RST))
		tcp_reset_unknown(s, key, in, now_ns);
	s->counters->drop_no_connection++;
	return NULL;
}

struct tcp_conn *tcp_listen_input(struct rp_tcp_stack *s, const struct flow_key *key, uint32_t hash,
	const struct tcp_segment_in *in, const uint32_t *isn_min, uint64_t now_ns)
{
	struct tcp_listener *l = tcp_listener_find(s, key->local_port);
	/* Half of the connections are for those that have completed: a flood must not have them. */
	bool full = l && (l->half_open >= s->config.backlog ||
				 s->half_open >= (s->config.connections_max + 1) / 2);
	struct tcp_conn *c;

	if (!l || in->flags & (TCP_RST | TCP_ACK))
		return listen_no_syn(s, l, key, in, now_ns);
	if (!(in->flags & TCP_SYN) || in->flags & TCP_FIN) {
		s->counters->drop_syn++;
		return NULL;
	}
	if (full && s->config.syn_cookies == RP_SYN_COOKIES_OFF) {
		s->counters->listen_overflow++;
		return NULL;
	}
	if (full || s->config.syn_cookies == RP_SYN_COOKIES_ALWAYS) {
		tcp_cookie_send(s, l, key, in, now_ns);
		return NULL;
	}
	c = tcp_listen_conn(s, l, key, now_ns);
	if (!c)
		return NULL;
	if (isn_min && rp_seq_leq(c->iss, *isn_min))
		tcp_conn_set_iss(c, *isn_min + TCP_ISN_GAP);
	tcp_syn_options(c, in, now_ns);
	tcp_set_state(c, TCPS_SYN_RCVD);
	tcp_sendq_flag(c, TSEG_SYN);
	tcp_mark_dirty(c);
	return NULL;
}
