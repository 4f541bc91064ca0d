/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/hot_priv.h>

/*
 * Room of the receive buffer, counted from rcv_nxt. While receive buffers are short it is a quarter
 * of what it could be, or a sixteenth; what was offered before stays offered.
 */
static uint32_t window_free(const struct tcp_conn *c)
{
	const struct rp_tcp_stack *s = tcp_stack_of(c);
	uint32_t size = s->config.receive_buffer_bytes >> 2 * s->pressure;
	uint32_t used = c->unconsumed + c->rx.bytes;

	return size > used ? size - used : 0;
}

/*
 * Where the edge may be moved to, of so much room. A scaled window is told in units, and rounding
 * it up with each acknowledgement, so that it does not seem to move left, moves it right a little
 * each time: a part of the room is kept for that (RFC 7323 2.4 has the dilemma).
 */
static uint32_t window_offer_of(const struct tcp_conn *c, uint32_t room)
{
	if (c->rcv_shift > 0)
		room -= room / 16;
	return RP_MIN(room, (uint32_t)UINT16_MAX << c->rcv_shift);
}

static uint32_t window_offer(const struct tcp_conn *c)
{
	return window_offer_of(c, window_free(c));
}

static uint32_t window_most(const struct tcp_conn *c)
{
	return RP_MIN(
		tcp_stack_of(c)->config.receive_buffer_bytes, (uint32_t)UINT16_MAX << c->rcv_shift);
}

void tcp_window_init(struct tcp_conn *c)
{
	uint32_t most = window_most(c);

	c->window_full = window_offer_of(c, tcp_stack_of(c)->config.receive_buffer_bytes);
	/* RFC 9293 3.8.6.2.2: less is no news. */
	c->window_step = RP_MIN((uint32_t)c->mss_full, most / 2);
	c->window_plenty = RP_MAX(most - most / 4 + 1, 2u * c->mss_full);
}

/* The edge stays; it is rounded up while the buffer has room for it. */
static inline uint32_t window_same(const struct tcp_conn *c, uint32_t told, uint32_t shift)
{
	uint32_t unit = 1u << shift, field = (told + unit - 1) >> shift;

	if (field << shift > window_free(c) + unit)
		field = told >> shift;
	return RP_MIN(field, UINT16_MAX);
}

uint16_t tcp_window_select_any(struct tcp_conn *c, bool syn)
{
	uint32_t offer = window_offer(c), shift = syn ? 0 : c->rcv_shift, told = 0, field = 0;

	if (rp_seq_geq(c->rcv_adv, c->rcv_nxt))
		told = c->rcv_adv - c->rcv_nxt;
	if (offer >= told + c->window_step)
		field = RP_MIN(offer >> shift, UINT16_MAX);
	if (field << shift > told) {
		c->rcv_adv = c->rcv_nxt + (field << shift);
		return (uint16_t)field;
	}
	field = window_same(c, told, shift);
	c->rcv_adv = rp_seq_max(c->rcv_adv, c->rcv_nxt + (field << shift));
	return (uint16_t)field;
}

bool tcp_window_update_due(const struct tcp_conn *c)
{
	uint32_t offer = window_offer(c), told = c->rcv_adv - c->rcv_nxt;
	uint32_t most = window_most(c), gain;

	/* Before any data came, what the SYN offered will do. */
	if (c->state < TCPS_ESTABLISHED || c->flags & TCPF_FIN_RCVD || c->rcv_nxt == c->irs + 1)
		return false;
	if (rp_seq_lt(c->rcv_adv, c->rcv_nxt))
		told = 0;
	if (offer < told + c->window_step)
		return false;
	gain = offer - told;
	/*
	 * While the peer has plenty left, the next acknowledgement is soon enough: an update for
	 * each segment consumed would undo the delayed acknowledgement.
	 */
	return told < RP_MAX(2u * c->mss, most / 8) || gain >= most / 4;
}
