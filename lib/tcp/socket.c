/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/* What a layer of sockets needs beyond the vtable of base/transport.h. */

void tcp_conn_offers(struct tcp_conn *c)
{
	const struct rp_tcp_config *config = &tcp_stack_of(c)->config;

	if (config->no_timestamps)
		c->flags &= ~TCPF_TS;
	if (config->no_sack)
		c->flags &= ~TCPF_SACK;
	if (config->no_window_scale)
		c->flags &= ~TCPF_SHIFT;
}

struct rp_conn *rp_tcp_dial_from(struct rp_tcp_stack *s, const struct rp_endpoint *peer,
	uint16_t local_port, const struct rp_conn_options *options,
	const struct rp_conn_events *events, void *ctx, uint64_t now_ns)
{
	return tcp_dial(s, peer, local_port, options, events, ctx, now_ns);
}

void rp_tcp_shutdown(struct rp_conn *conn, uint64_t now_ns)
{
	struct tcp_conn *c = tcp_conn_of(conn);

	if (c->flags & (TCPF_FIN_QUEUED | TCPF_DEAD | TCPF_EV_CLOSE))
		return;
	rp_tcp_ops->close(conn, now_ns);
	c->half_closed = true;
}

void rp_tcp_refuse(struct rp_conn *conn, uint64_t now_ns)
{
	struct tcp_conn *c = tcp_conn_of(conn);
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct tcp_reply r = {.key = &c->key, .seq = c->snd_nxt, .flags = TCP_RST};

	if (c->flags & (TCPF_DEAD | TCPF_EV_CLOSE) || !tcp_synchronized(c))
		return;
	s->counters->rst_sent++;
	s->counters->closed_aborted++;
	tcp_send_reply(s, &r, now_ns);
	tcp_conn_kill(c);
}

void rp_tcp_set_user_timeout(struct rp_conn *conn, uint64_t user_timeout_ns, uint64_t now_ns)
{
	struct tcp_conn *c = tcp_conn_of(conn);

	if (c->state == TCPS_CLOSED)
		return;
	if (user_timeout_ns) {
		c->flags |= TCPF_OPTION_TIMEOUT;
		c->user_timeout_ns = user_timeout_ns;
	} else {
		c->flags &= ~TCPF_OPTION_TIMEOUT;
		c->user_timeout_ns = tcp_stack_of(c)->config.user_timeout_ns;
	}
	tcp_arm(c, now_ns);
}

void rp_tcp_set_keepalive(struct rp_conn *conn, uint64_t idle_ns, uint64_t interval_ns,
	uint32_t probes, uint64_t now_ns)
{
	struct tcp_conn *c = tcp_conn_of(conn);

	if (c->state == TCPS_CLOSED)
		return;
	tcp_keepalive_set(c, idle_ns, interval_ns, probes);
	tcp_keepalive_start(c, now_ns);
	tcp_arm(c, now_ns);
}

void rp_tcp_ack_now(struct rp_conn *conn)
{
	struct tcp_conn *c = tcp_conn_of(conn);

	if (!(c->flags & TCPF_ACK_DELAYED) || c->state == TCPS_CLOSED)
		return;
	c->flags |= TCPF_ACK_NOW;
	tcp_mark_dirty(c);
}

void rp_tcp_conn_segments(const struct rp_conn *conn, struct rp_tcp_segments *segments)
{
	const struct tcp_conn *c = tcp_conn_of(conn);
	const struct rp_list *l;

	*segments = (struct rp_tcp_segments){.after_timeout = c->ca_state == TCP_CA_LOSS};
	rp_list_foreach (l, &c->segs) {
		const struct tseg *t = tseg_of_link(l);
		/* What is longer than a segment here is cut when it goes again. */
		uint32_t n = RP_MAX((t->length + c->mss - 1) / c->mss, 1u);

		if (!(t->flags & TSEG_SENT))
			break;
		if (segments->unacked == 0)
			segments->head_retransmits = t->retransmits;
		segments->unacked += n;
		if (t->flags & TSEG_SACKED)
			segments->sacked += n;
		else if (t->flags & TSEG_LOST)
			segments->lost += n;
		else if (t->flags & TSEG_RTX)
			segments->retransmitted += n;
	}
}
