/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small steps that each segment takes, to be inlined where it passes. */

#include <tcp/tcp_priv.h>

/** One mbuf without a next one, not empty (take). */
static inline void tcp_chain_push(struct tcp_chain *chain, struct rte_mbuf *m)
{
	if (chain->tail)
		chain->tail->next = m;
	else
		chain->head = m;
	chain->tail = m;
	chain->bytes += m->data_len;
	chain->mbufs++;
}

/** Was `a` sent after `b`? By time, and what went in one turn by sequence (RFC 8985 6.2). */
static inline bool tcp_rack_sent_after(uint64_t a_ns, uint32_t a_end, uint64_t b_ns, uint32_t b_end)
{
	return a_ns > b_ns || (a_ns == b_ns && rp_seq_gt(a_end, b_end));
}

/** The round trip of an ACK is that of what was sent last. */
static inline void tcp_rack_rtt(struct tcp_ack_result *r, uint64_t xmit_ns, uint64_t rtt_ns)
{
	if (xmit_ns < r->rtt_xmit_ns)
		return;
	r->rtt_xmit_ns = xmit_ns;
	r->rtt_ns = RP_MAX(rtt_ns, 1u);
}

/** A segment up to `end` was delivered: is it the newest one that was? */
static inline void tcp_rack_newest(
	struct tcp_conn *c, uint32_t end, uint64_t xmit_ns, uint64_t rtt_ns)
{
	c->rack_fack = rp_seq_max(c->rack_fack, end);
	if (tcp_rack_sent_after(xmit_ns, end, c->rack_xmit_ns, c->rack_end)) {
		c->rack_xmit_ns = xmit_ns;
		c->rack_end = end;
		c->rack_rtt_ns = rtt_ns;
	}
}

/** Nothing that is in flight was sent before what was delivered. */
static inline bool tcp_rack_quiet(const struct tcp_conn *c)
{
	const struct tseg *oldest = tseg_of_xmit(c->xmit.next);

	return rp_list_empty(&c->xmit) || !tcp_rack_sent_after(c->rack_xmit_ns, c->rack_end,
						  oldest->xmit_ns, tseg_end(oldest));
}

/**
 * An ACK after which tcp_loss_on_ack() has nothing to do: it moved on, nothing is or was thought to
 * be lost, no probe is out, and the congestion window was not the limit.
 */
static inline bool tcp_loss_calm(const struct tcp_conn *c, const struct tcp_ack_result *r)
{
	const uint32_t flags =
		TCPF_SACK | TCPF_TLP_OUT | TCPF_UNDO | TCPF_CWND_LIMITED | TCPF_STALLED;

	return r->acked > 0 && (c->flags & flags) == TCPF_SACK && c->ca_state == TCP_CA_OPEN &&
	       c->lost_bytes == 0 && tcp_rack_quiet(c);
}

/** The sum of a payload, where it is not known and the device does not make it. */
static inline void tcp_tseg_sum(const struct rp_tcp_stack *s, struct tseg *t)
{
	if (s->net_config.iface.tx_csum_tcp || t->flags & TSEG_SUM)
		return;
	t->sum = rp_csum_fold(rp_csum_chain(t->payload, t->offset, t->length));
	t->flags |= TSEG_SUM;
}

/** The window of a segment whose ACK is acceptable (RFC 9293 3.10.7.4). */
static inline void tcp_update_send_window(struct tcp_conn *c, const struct tcp_segment_in *in)
{
	if (!(rp_seq_lt(c->snd_wl1, in->seq) ||
		    (c->snd_wl1 == in->seq && rp_seq_leq(c->snd_wl2, in->ack))))
		return;
	/* The time for which it was closed is no standstill, unless the owner counts it as one. */
	if (c->snd_wnd == 0 && in->window > 0 && !(c->flags & TCPF_OPTION_TIMEOUT))
		c->progress_ns = c->heard_ns;
	c->snd_wnd = (uint32_t)in->window << (in->flags & TCP_SYN ? 0 : c->snd_shift);
	c->snd_wnd_max = RP_MAX(c->snd_wnd_max, c->snd_wnd);
	c->snd_wl1 = in->seq;
	c->snd_wl2 = in->ack;
}

/** No window update is due, by the rule of tcp_window_update_due(): most of it is left. */
static inline bool tcp_window_plenty(const struct tcp_conn *c)
{
	return (int32_t)(c->rcv_adv - c->rcv_nxt - c->window_plenty) >= 0;
}

/** tcp_window_select_any() of an open connection; mostly all was consumed, and the edge stays. */
static inline uint16_t tcp_window_select(struct tcp_conn *c)
{
	uint32_t told = c->rcv_adv - c->rcv_nxt, field;

	/* Where it tells more than it could now, the difference is a large one. */
	if (c->unconsumed + c->rx.bytes > 0 || c->window_full - told >= c->window_step)
		return tcp_window_select_any(c, false);
	/* Rounded up: the buffer has room for that. */
	field = (told + (1u << c->rcv_shift) - 1) >> c->rcv_shift;
	c->rcv_adv = c->rcv_nxt + (field << c->rcv_shift);
	return (uint16_t)field;
}

static inline bool tcp_sack_owed(const struct tcp_conn *c)
{
	return (c->ooo_count > 0 || c->flags & TCPF_DSACK) && c->flags & TCPF_SACK;
}

/** Stores a word in network order; returns what it adds to a checksum. */
static inline uint64_t tcp_store32(uint8_t *p, uint32_t v)
{
	v = rte_cpu_to_be_32(v);
	memcpy(p, &v, sizeof(v));
	return v;
}

#define TCP_OPT_TS_HEAD 0x0101080a /* two NOPs, kind, length: what everybody sends */

static inline uint32_t tcp_opt_load32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return rte_be_to_cpu_32(v);
}

/** False: there is more than nothing or the timestamps; *out is empty then. */
static inline bool tcp_options_parse_plain(
	const uint8_t *p, unsigned length, struct tcp_options *out)
{
	out->has_mss = out->has_shift = out->has_sack_permitted = out->has_ts = false;
	out->sack_count = 0;
	if (length != TCP_TS_BYTES || tcp_opt_load32(p) != TCP_OPT_TS_HEAD)
		return length == 0;
	out->has_ts = true;
	out->ts_value = tcp_opt_load32(p + 4);
	out->ts_echo = tcp_opt_load32(p + 8);
	return true;
}

/** The timestamps option, TCP_TS_BYTES; returns its raw sum. */
static inline uint64_t tcp_options_put_ts(uint8_t *p, uint32_t value, uint32_t echo)
{
	return tcp_store32(p, TCP_OPT_TS_HEAD) + tcp_store32(p + 4, value) +
	       tcp_store32(p + 8, echo);
}

/**
 * The options of a segment that has no block to report, where that is known. Returns their length,
 * and adds to the raw sum.
 */
static inline unsigned tcp_options_build_plain(
	const struct tcp_conn *c, uint8_t *p, uint64_t *sum, uint64_t now_ns)
{
	if (!(c->flags & TCPF_TS))
		return 0;
	*sum += tcp_options_put_ts(p, tcp_ts_now(now_ns) + c->ts_offset, c->ts_recent);
	return TCP_TS_BYTES;
}

/**
 * Something is in flight, nothing is missing, and now all waits begin anew: no deadline can be
 * before what the wheel has, which fires in vain. That is so for each turn of a quick exchange.
 */
static inline bool tcp_timer_stays(const struct tcp_conn *c, uint64_t now_ns)
{
	const uint64_t at_ns = c->wheel.deadline_ns;
	uint64_t least_ns = TCP_PTO_MIN_NS;

	if (c->pipe < 2u * c->mss)
		least_ns += c->peer_ack_delay_ns;
	return c->tlp_start_ns == now_ns && c->rto_start_ns == now_ns &&
	       at_ns <= now_ns + RP_MIN(least_ns, c->rto_min_ns) && rp_wheel_armed(&c->wheel) &&
	       c->snd_una != c->snd_nxt && (c->flags & (TCPF_TLP_OUT | TCPF_ACK_DELAYED)) == 0 &&
	       c->ca_state == TCP_CA_OPEN && c->sacked_count == 0 && c->reo_ns == RP_NEVER &&
	       at_ns <= c->life_ns && c->timer_ns != RP_NEVER && c->timer != TCP_TIMER_NONE &&
	       at_ns <= c->progress_ns + c->user_timeout_ns;
}

/**
 * The header mbuf of the next data segment. A device in another process or on a bus read it when it
 * was used last, so that writing it means to fetch its lines back: they are asked for a few
 * segments ahead.
 */
static inline struct rte_mbuf *tcp_header_mbuf(struct rp_tcp_stack *s)
{
	struct rte_mbuf *m;

	if (s->header_count <= TCP_HEADERS_AHEAD / 2) {
		tcp_headers_more(s);
		if (s->header_count == 0)
			return NULL;
	}
	m = s->headers[s->header_first];
	s->header_first = (s->header_first + 1) % TCP_HEADERS_AHEAD;
	s->header_count--;
	return m;
}
