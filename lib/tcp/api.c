/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <tcp/hot_priv.h>

/* The vtable of base/transport.h. Calls change state and mark; output follows with the next poll.
 */

static struct rp_tcp_stack *api_stack(struct rp_transport *t)
{
	return RP_CONTAINER_OF(t, struct rp_tcp_stack, transport);
}

struct rp_conn *tcp_dial(struct rp_tcp_stack *s, const struct rp_endpoint *peer,
	uint16_t local_port, const struct rp_conn_options *options,
	const struct rp_conn_events *events, void *ctx, uint64_t now_ns)
{
	struct flow_key key = {.remote_port = peer->port, .local_port = local_port};
	struct tcp_conn *c;
	bool reused = false;
	uint32_t isn_min;
	int local;

	if (rp_ip_from_endpoint(&key.remote, peer) || peer->port == 0) {
		errno = peer->port != 0 ? EAFNOSUPPORT : EINVAL;
		return NULL;
	}
	local = rp_net_source(s->net, &key.remote);
	if (local < 0) {
		errno = -local;
		return NULL;
	}
	key.local = (uint32_t)local;
	if (s->conn_free == FLOW_NONE) {
		s->counters->drop_nomem++;
		errno = ENOBUFS;
		return NULL;
	}
	if (local_port != 0 &&
		flow_find(&s->flows, &key, flow_hash(&s->flows, &key)) != FLOW_NONE) {
		errno = EADDRINUSE;
		return NULL;
	}
	if (local_port == 0 && !tcp_pick_port(s, options, &key, &reused, &isn_min, now_ns)) {
		errno = EADDRNOTAVAIL;
		return NULL;
	}
	c = tcp_conn_new(s, &key, now_ns);
	if (!c)
		return NULL; /* errno of rp_neigh_ref() */
	if (reused && rp_seq_leq(c->iss, isn_min))
		tcp_conn_set_iss(c, isn_min + TCP_ISN_GAP);
	tcp_conn_options(c, options);
	tcp_conn_offers(c);
	c->events = events;
	c->events_ctx = ctx;
	tcp_set_state(c, TCPS_SYN_SENT);
	tcp_sendq_flag(c, TSEG_SYN);
	tcp_mark_dirty(c);
	return &c->base;
}

static struct rp_conn *api_dial(struct rp_transport *t, const struct rp_endpoint *peer,
	const struct rp_conn_options *options, const struct rp_conn_events *events, void *ctx,
	uint64_t now_ns)
{
	return tcp_dial(api_stack(t), peer, 0, options, events, ctx, now_ns);
}

static int api_listen(struct rp_transport *t, uint16_t port, const struct rp_conn_options *options,
	rp_accept_fn accept, void *listen_ctx)
{
	struct rp_tcp_stack *s = api_stack(t);

	if (port == 0 || !accept)
		return -EINVAL;
	if (tcp_listener_find(s, port))
		return -EADDRINUSE;
	for (uint32_t i = 0; i < s->config.listeners_max; i++) {
		struct tcp_listener *l = &s->listeners[i];

		if (l->port != 0)
			continue;
		*l = (struct tcp_listener){.port = port, .accept = accept, .ctx = listen_ctx};
		if (options)
			l->options = *options;
		return 0;
	}
	return -ENOBUFS;
}

/* So many bytes have room in the buffer and in its unsent part. */
static inline bool send_has_room(const struct tcp_conn *c, uint32_t bytes)
{
	const struct rp_tcp_config *config = &tcp_stack_of(c)->config;
	/* The limits are below 2^31, and may be passed by less. */
	int32_t room = (int32_t)(config->send_buffer_bytes - tcp_queued(c));
	int32_t unsent = (int32_t)(config->unsent_bytes_max - (c->queue_end - c->snd_nxt));

	return (int64_t)RP_MIN(room, unsent) >= (int64_t)bytes;
}

/* Bytes for which there is room, in the buffer and in its unsent part. */
static inline uint32_t send_room(const struct tcp_conn *c)
{
	const struct rp_tcp_config *config = &tcp_stack_of(c)->config;
	uint32_t used = tcp_queued(c), unsent = c->queue_end - c->snd_nxt;

	if (used >= config->send_buffer_bytes || unsent >= config->unsent_bytes_max)
		return 0;
	return RP_MIN(config->send_buffer_bytes - used, config->unsent_bytes_max - unsent);
}

static uint32_t api_send_space(const struct rp_conn *conn)
{
	const struct tcp_conn *c = tcp_conn_of(conn);

	return c->state == TCPS_CLOSED || c->flags & TCPF_FIN_QUEUED ? 0 : send_room(c);
}

static uint32_t api_piece(const struct rp_conn *conn)
{
	return tcp_conn_of(conn)->mss;
}

bool tcp_send_fits(const struct tcp_conn *c, uint32_t bytes)
{
	uint32_t queued = tcp_queued(c), unsent = c->queue_end - c->snd_nxt;

	if (bytes > 1u << 30)
		return false;
	return bytes <= send_room(c) || queued == 0 ||
	       (unsent == 0 && queued + bytes <= tcp_stack_of(c)->config.send_buffer_bytes);
}

static RP_APART int send_refused(struct tcp_conn *c, int rc, uint32_t bytes)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	if (rc == -ENOBUFS) {
		s->blocked_until_ns = s->now_ns + TCP_RETRY_NS;
		tcp_block(c);
	}
	s->counters->send_refused++;
	c->flags |= TCPF_WANT_WRITE;
	c->want_bytes = bytes;
	return -EAGAIN;
}

static int api_send(struct rp_conn *conn, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct tcp_conn *c = tcp_conn_of(conn);
	uint32_t bytes = chain->pkt_len;
	bool idle = tcp_queued(c) == 0;
	int rc;

	if (c->state == TCPS_CLOSED || c->flags & TCPF_FIN_QUEUED)
		return -EPIPE;
	if (!send_has_room(c, bytes) && !tcp_send_fits(c, bytes))
		rc = -EAGAIN;
	else
		rc = tcp_sendq_push(c, chain);
	if (rc)
		return send_refused(c, rc, bytes);
	if (idle)
		c->progress_ns = now_ns;
	tcp_mark_dirty(c);
	return 0;
}

static void api_ends(
	const struct rp_conn *conn, struct rp_endpoint *local, struct rp_endpoint *peer)
{
	const struct tcp_conn *c = tcp_conn_of(conn);

	*local = rp_ip_to_endpoint(
		rp_net_local(tcp_stack_of(c)->net, c->key.local), c->key.local_port);
	*peer = rp_ip_to_endpoint(&c->key.remote, c->key.remote_port);
}

static void api_consume(struct rp_conn *conn, uint32_t bytes, uint64_t now_ns)
{
	struct tcp_conn *c = tcp_conn_of(conn);

	RP_ASSERT(bytes <= c->unconsumed);
	c->unconsumed -= bytes;
	if (!tcp_window_plenty(c) && tcp_window_update_due(c))
		tcp_mark_dirty(c);
}

static void api_close(struct rp_conn *conn, uint64_t now_ns)
{
	struct tcp_conn *c = tcp_conn_of(conn);

	if (c->half_closed && !(c->flags & (TCPF_DEAD | TCPF_EV_CLOSE))) {
		c->half_closed = false;
		if (c->state == TCPS_FIN_WAIT_2)
			c->life_ns = now_ns + tcp_stack_of(c)->config.fin_wait_ns;
		tcp_mark_dirty(c);
		return;
	}
	if (c->flags & (TCPF_FIN_QUEUED | TCPF_DEAD | TCPF_EV_CLOSE))
		return;
	if (c->state == TCPS_SYN_SENT) {
		tcp_conn_close(c, RP_CLOSE_ABORTED); /* nobody has answered: nothing to end */
		return;
	}
	if (tcp_queued(c) == 0)
		c->progress_ns = now_ns;
	c->flags |= TCPF_FIN_QUEUED;
	tcp_sendq_flag(c, TSEG_FIN);
	if (c->state == TCPS_ESTABLISHED)
		tcp_set_state(c, TCPS_FIN_WAIT_1);
	else if (c->state == TCPS_CLOSE_WAIT)
		tcp_set_state(c, TCPS_LAST_ACK);
	tcp_mark_dirty(c);
}

static void api_abort(struct rp_conn *conn, uint64_t now_ns)
{
	struct tcp_conn *c = tcp_conn_of(conn);
	struct rp_tcp_stack *s = tcp_stack_of(c);

	if (c->flags & TCPF_DEAD)
		return;
	/* RFC 9293 3.10.5. */
	if (c->state >= TCPS_SYN_RCVD)
		tcp_send_control(c, c->snd_nxt, TCP_RST | TCP_ACK, now_ns);
	if (!(c->flags & TCPF_EV_CLOSE)) {
		if (tcp_synchronized(c))
			s->counters->closed_aborted++;
		else
			s->counters->open_failed++;
	}
	tcp_conn_kill(c);
}

static const struct rp_transport_ops api_ops = {
	.dial = api_dial,
	.listen = api_listen,
	.send = api_send,
	.send_space = api_send_space,
	.piece = api_piece,
	.ends = api_ends,
	.consume = api_consume,
	.close = api_close,
	.abort = api_abort,
};

const struct rp_transport_ops *const rp_tcp_ops = &api_ops;

struct rp_transport *rp_tcp_transport(struct rp_tcp_stack *s)
{
	return &s->transport;
}

void rp_tcp_prefetch(const struct rp_conn *c)
{
	tcp_conn_prefetch(tcp_conn_of(c));
}

struct rp_net *rp_tcp_net(struct rp_tcp_stack *s)
{
	return s->net;
}

const struct rp_tcp_counters *rp_tcp_counters(const struct rp_tcp_stack *s)
{
	return s->counters;
}
