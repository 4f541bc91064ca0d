/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/*
 * The pool that the port receives into must never be empty: then nothing arrives, not even the
 * acknowledgements that would let buffers go. So what fills it is held back in steps while it runs
 * short: who is new, how much the peers may send, and what is out of order, which is the sender's
 * still (RFC 2018 8). What is in order is never dropped.
 */

#define PRESSURE_LOOK_NS (100 * RP_NS_PER_US)
#define PRESSURE_SHORT_PART 4	  /* less than a quarter is free */
#define PRESSURE_CRITICAL_PART 10 /* ... a tenth */
/* It ends where an eighth more is free, so that it does not come and go. */
#define PRESSURE_MARGIN_PART 8

static enum tcp_pressure pressure_of(struct rp_tcp_stack *s)
{
	const struct rte_mempool *pool = s->config.rx_pool;
	uint32_t margin = s->pressure ? s->rx_most / PRESSURE_MARGIN_PART : 0;
	uint32_t least = s->rx_most / PRESSURE_SHORT_PART + margin;
	/* What is common to all lcores is known at once; what their caches hold is counted. */
	uint32_t free = rte_mempool_get_ops(pool->ops_index)->get_count(pool);

	if (free >= least) {
		s->rx_most = RP_MAX(s->rx_most, free);
		return TCP_PRESSURE_NONE;
	}
	free = rte_mempool_avail_count(pool);
	if (free < s->rx_most / PRESSURE_CRITICAL_PART)
		return TCP_PRESSURE_CRITICAL;
	return free < least ? TCP_PRESSURE_SHORT : TCP_PRESSURE_NONE;
}

static bool pressure_concerns(const struct tcp_conn *c)
{
	return c->base.transport && !(c->flags & TCPF_DEAD) && tcp_synchronized(c);
}

/* Windows may open again: each peer that has little left is told. */
static void pressure_over(struct rp_tcp_stack *s)
{
	for (uint32_t i = 0; i < s->conn_top; i++)
		if (pressure_concerns(&s->conns[i]) && tcp_window_update_due(&s->conns[i]))
			tcp_mark_dirty(&s->conns[i]);
}

static void pressure_give_up_gaps(struct rp_tcp_stack *s)
{
	for (uint32_t i = 0; s->ooo_count > 0 && i < s->conn_top; i++) {
		struct tcp_conn *c = &s->conns[i];

		if (!pressure_concerns(c) || c->ooo_count == 0)
			continue;
		s->counters->pressure_gaps += c->ooo_count;
		tcp_ooo_free(c);
		tcp_mark_dirty(c); /* an ACK may have waited to report them */
	}
}

void tcp_pressure_poll(struct rp_tcp_stack *s, uint64_t now_ns)
{
	enum tcp_pressure before = s->pressure;

	s->pressure_due_ns = now_ns + PRESSURE_LOOK_NS;
	s->pressure = pressure_of(s);
	if (s->pressure == before && s->pressure != TCP_PRESSURE_CRITICAL)
		return;
	if (before == TCP_PRESSURE_NONE)
		s->counters->pressures++;
	if (s->pressure == TCP_PRESSURE_CRITICAL)
		pressure_give_up_gaps(s);
	else if (s->pressure < before)
		pressure_over(s);
}
