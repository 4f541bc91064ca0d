/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/* Room of the receive buffer, counted from rcv_nxt. */
static uint32_t window_free(const struct tcp_conn *c)
{
	uint32_t size = tcp_stack_of(c)->config.receive_buffer_bytes;
	uint32_t used = c->unconsumed + c->rx.bytes;

	return size > used ? size - used : 0;
}

/* RFC 9293 3.8.6.2.2: what the edge has to move by before it is moved at all. */
static uint32_t window_step(const struct tcp_conn *c)
{
	return RP_MIN((uint32_t)c->mss, tcp_stack_of(c)->config.receive_buffer_bytes / 2);
}

uint16_t tcp_window_select(struct tcp_conn *c, bool syn)
{
	uint32_t room = window_free(c), shift = syn ? 0 : c->rcv_shift;
	uint32_t unit = 1u << shift, told = c->rcv_adv - c->rcv_nxt, field;

	if (rp_seq_lt(c->rcv_adv, c->rcv_nxt))
		told = 0;
	if (room >= told + window_step(c) || (told == 0 && room >= window_step(c)))
		field = RP_MIN(room >> shift, UINT16_MAX);
	else
		field = 0;
	if (field << shift <= told) {
		/*
		 * The edge stays. It is rounded up to the unit, so that it does not seem to move
		 * left; not so often, though, that many small segments creep past the buffer.
		 */
		field = (told + unit - 1) >> shift;
		if (field << shift > room + unit)
			field = told >> shift;
		field = RP_MIN(field, UINT16_MAX);
	}
	c->rcv_adv = rp_seq_max(c->rcv_adv, c->rcv_nxt + (field << shift));
	return (uint16_t)field;
}

bool tcp_window_update_due(const struct tcp_conn *c)
{
	uint32_t room = window_free(c), told = c->rcv_adv - c->rcv_nxt;
	uint32_t size = tcp_stack_of(c)->config.receive_buffer_bytes;
	uint32_t most = (uint32_t)UINT16_MAX << c->rcv_shift, gain;

	if (c->state < TCPS_ESTABLISHED || c->flags & TCPF_FIN_RCVD)
		return false;
	if (rp_seq_lt(c->rcv_adv, c->rcv_nxt))
		told = 0;
	room = RP_MIN(room, most);
	if (room < told + window_step(c))
		return false;
	gain = room - told;
	/*
	 * While the peer has plenty left, the next acknowledgement is soon enough: an update for
	 * each segment consumed would undo the delayed acknowledgement.
	 */
	return told < RP_MAX(2u * c->mss, size / 8) || gain >= size / 4;
}
