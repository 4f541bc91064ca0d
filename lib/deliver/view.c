/* SPDX-License-Identifier: Apache-2.0 */

/* Streams, for people: first the flows of this node, then the streams of others towards it. */

#include "deliver_priv.h"

uint32_t rp_deliver_stream_slots(const struct rp_deliver *d)
{
	return d->flows.used + d->rxs.used;
}

static const char *flow_state(const struct dl_flow *f)
{
	if (f->unary)
		return f->unary_busy ? "unary, call open" : "unary";
	if (!f->tx)
		return "waiting";
	switch (f->tx->state) {
	case DL_TX_OPENING:
		return "opening";
	case DL_TX_CLOSING:
		return "closing";
	case DL_TX_OPEN:
		break;
	}
	return f->tx->returning ? "idle" : "open";
}

static bool flow_info(const struct dl_flow *f, struct rp_deliver_stream_info *info, uint64_t now_ns)
{
	const struct dl_tx *tx = f->tx;

	if (!f->live || f->kind == DL_CONTROL)
		return false;
	*info = (struct rp_deliver_stream_info){
		.node = f->peer->node,
		.name = {f->name, f->name_length},
		.out = true,
		.type = f->kind == DL_FORWARD ? RP_QMSG_FORWARD : RP_QMSG_DELIVER,
		.state = flow_state(f),
		.messages = f->count,
		.done = tx ? tx->seq_took : 0,
		.credit_messages = tx ? tx->msgs_limit - tx->seq_sent : 0,
		.credit_bytes = tx ? tx->bytes_limit - tx->bytes_sent : 0,
		.quiet_ns = now_ns - RP_MIN(f->stamp, now_ns),
	};
	return true;
}

static bool rx_info(const struct dl_rx *rx, struct rp_deliver_stream_info *info)
{
	if (!rx->live)
		return false;
	*info = (struct rp_deliver_stream_info){
		.node = rx->peer->node,
		.name = {rx->name, rx->name_length},
		.type = rx->kind == RP_FRAME_FORWARD ? RP_QMSG_FORWARD : RP_QMSG_DELIVER,
		.state = rx->resetting ? "closing"
			 : rx->holding ? "held"
				       : "open",
		.messages = rx->seq_head - rx->seq_done,
		.done = rx->seq_done,
		.credit_messages = rx->msgs_limit - rx->seq_head,
		.credit_bytes = rx->bytes_limit - RP_MIN(rx->bytes_received, rx->bytes_limit),
	};
	return true;
}

bool rp_deliver_stream_at(const struct rp_deliver *d, uint32_t slot,
	struct rp_deliver_stream_info *info, uint64_t now_ns)
{
	if (slot < d->flows.used)
		return flow_info(dl_slab_at(&d->flows, slot), info, now_ns);
	slot -= d->flows.used;
	return slot < d->rxs.used && rx_info(dl_slab_at(&d->rxs, slot), info);
}
