/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/*
 * DCTCP (RFC 8257): the window shrinks by as much as the part of the bytes that were marked says,
 * once a window of data. Growth, and what follows a loss, are Reno's (3.4, 3.5).
 */

#define ALPHA_ONE (1u << 16)
#define ALPHA_SHIFT 4 /* g = 1/16, 4.2 */

static void dctcp_init(struct tcp_conn *c)
{
	/* 4.2: the first marks are taken for full congestion. */
	c->cc_state.dctcp.alpha = ALPHA_ONE;
	c->cc_state.dctcp.window_end = c->snd_nxt;
}

static void dctcp_on_ack(struct tcp_conn *c, uint32_t acked, uint64_t now_ns)
{
	tcp_cc_reno_grow(c, acked, &c->cc_state.dctcp.reno_acked);
}

/* 3.3, steps 1 to 8. */
static void dctcp_on_marks(struct tcp_conn *c, uint32_t acked, bool marked)
{
	struct tcp_dctcp *d = &c->cc_state.dctcp;
	uint32_t part;

	d->acked += acked;
	if (marked)
		d->marked += acked;
	if (!rp_seq_gt(c->snd_una, d->window_end) || d->acked == 0)
		return;
	part = (uint32_t)((uint64_t)d->marked * ALPHA_ONE / d->acked);
	/* What is left of an old alpha goes, too, though a 16th of it is nothing any more. */
	d->alpha -= d->alpha >> ALPHA_SHIFT ? d->alpha >> ALPHA_SHIFT : d->alpha;
	d->alpha = RP_MIN(d->alpha + (part >> ALPHA_SHIFT), ALPHA_ONE);
	d->acked = d->marked = 0;
	d->window_end = c->snd_nxt;
}

static uint32_t dctcp_reduce(struct tcp_conn *c, enum tcp_congestion why)
{
	struct tcp_dctcp *d = &c->cc_state.dctcp;
	uint64_t cut;

	d->reno_acked = 0;
	if (why != TCP_CONGESTION_ECN)
		return tcp_cc_reno_reduce(c);
	/* 3.3 step 9. */
	cut = (uint64_t)c->cwnd * d->alpha / (2 * ALPHA_ONE);
	return RP_MAX(c->cwnd - (uint32_t)cut, 2u * c->mss);
}

static void dctcp_on_undo(struct tcp_conn *c)
{
	c->cc_state.dctcp.reno_acked = 0;
}

const struct tcp_cc_ops tcp_cc_dctcp = {
	.name = "dctcp",
	.init = dctcp_init,
	.on_ack = dctcp_on_ack,
	.reduce = dctcp_reduce,
	.on_undo = dctcp_on_undo,
	.on_marks = dctcp_on_marks,
};
