/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/lines.h>
#include <tcp/siphash.h>
#include <tcp/tcp_priv.h>

#define STACK_TIMER_BUDGET 64  /* a poll */
#define STACK_DIRTY_BUDGET 512 /* connections served a poll */

static void stack_defaults(struct rp_tcp_config *c)
{
	if (!c->connections_max)
		c->connections_max = 1024;
	if (!c->listeners_max)
		c->listeners_max = 16;
	if (!c->time_wait_max)
		c->time_wait_max = 4 * c->connections_max;
	if (!c->segments_max)
		c->segments_max = 65536;
	if (!c->reassembly_max)
		c->reassembly_max = 4096;
	if (!c->backlog)
		c->backlog = 128;
	if (!c->send_buffer_bytes)
		c->send_buffer_bytes = 1 << 20;
	if (!c->unsent_bytes_max)
		c->unsent_bytes_max = 128 << 10;
	if (!c->receive_buffer_bytes)
		c->receive_buffer_bytes = 1 << 20;
	if (!c->ooo_ranges_max)
		c->ooo_ranges_max = 128;
	if (!c->ooo_mbufs_max)
		c->ooo_mbufs_max = 1024;
	if (!c->ooo_mbufs_total)
		c->ooo_mbufs_total = 2 * c->ooo_mbufs_max;
	if (!c->port_first)
		c->port_first = 32768;
	if (!c->port_last)
		c->port_last = 60999;
	if (!c->rto_min_ns)
		c->rto_min_ns = 200 * RP_NS_PER_MS;
	if (!c->rto_max_ns)
		c->rto_max_ns = 60 * RP_NS_PER_S;
	if (!c->ack_delay_max_ns)
		c->ack_delay_max_ns = 40 * RP_NS_PER_MS;
	if (!c->user_timeout_ns)
		c->user_timeout_ns = 180 * RP_NS_PER_S;
	if (!c->time_wait_ns)
		c->time_wait_ns = 60 * RP_NS_PER_S;
	if (!c->fin_wait_ns)
		c->fin_wait_ns = 60 * RP_NS_PER_S;
}

static bool stack_config_ok(const struct rp_tcp_config *c)
{
	const uint32_t records_max = 1u << 28;

	return c->connections_max < records_max && c->time_wait_max < records_max &&
	       c->segments_max < records_max && c->reassembly_max < records_max &&
	       c->listeners_max <= 1024 && c->route_count <= RP_TCP_ROUTES_MAX &&
	       c->port_first <= c->port_last && c->receive_buffer_bytes <= 1u << 30 &&
	       c->receive_buffer_bytes >= 2048 && c->send_buffer_bytes <= 1u << 30 &&
	       c->send_buffer_bytes >= 2048 && c->unsent_bytes_max >= 2048 &&
	       c->receive_shift_least <= TCP_SHIFT_MAX && c->shard < RP_PLACE_SHARDS_MAX &&
	       (!c->place || c->hand_over) && c->ooo_mbufs_max <= 32768 && c->net.header_pool &&
	       rte_pktmbuf_data_room_size(c->net.header_pool) >=
		       RTE_PKTMBUF_HEADROOM + RP_NET_HEADROOM + TCP_HEADER_BYTES +
			       TCP_OPTIONS_MAX &&
	       (!c->net.control_pool || rte_pktmbuf_data_room_size(c->net.control_pool) >=
						RTE_PKTMBUF_HEADROOM + RP_NET_HEADROOM +
							TCP_HEADER_BYTES + 2 * TCP_OPTIONS_MAX);
}

static void stack_neigh_failed(void *ctx, struct rp_list *user, uint64_t now_ns)
{
	struct tcp_conn *c = RP_CONTAINER_OF(user, struct tcp_conn, neigh_user);

	/* An open connection lives on: the way may come back before the user timeout. */
	if (c->state == TCPS_SYN_SENT)
		c->flags |= TCPF_NEIGH_FAILED;
	c->flags |= TCPF_SOFT_ERROR;
	tcp_mark_dirty(c);
}

static int stack_alloc(struct rp_tcp_stack *s)
{
	const struct rp_tcp_config *c = &s->config;
	uint64_t secret[2];

	memcpy(secret, c->secret, sizeof(secret));
	secret[0] ^= siphash24(c->secret, "flow", 4);
	secret[1] ^= siphash24(c->secret, "table", 5);
	s->conns = rp_lines_alloc(c->connections_max, sizeof(*s->conns));
	s->dead = calloc(c->connections_max, sizeof(*s->dead));
	s->tsegs = rp_lines_alloc(c->segments_max, sizeof(*s->tsegs));
	s->ooos = calloc(c->reassembly_max, sizeof(*s->ooos));
	s->listeners = calloc(c->listeners_max, sizeof(*s->listeners));
	if (!s->conns || !s->dead || !s->tsegs || !s->ooos || !s->listeners || tcp_tw_init(s) ||
		flow_init(&s->flows, c->connections_max + c->time_wait_max, secret))
		return -ENOMEM;
	s->flows.a = (const uint8_t *)s->conns;
	s->flows.a_stride = sizeof(*s->conns);
	s->flows.b = (const uint8_t *)s->tws;
	s->flows.b_stride = sizeof(*s->tws);
	s->flows.split = c->connections_max;
	for (uint32_t i = 0; i < c->connections_max; i++)
		s->conns[i].next_free = i + 1 < c->connections_max ? i + 1 : FLOW_NONE;
	for (uint32_t i = 0; i < c->segments_max; i++)
		rp_list_push_back(&s->tseg_free, &s->tsegs[i].link);
	for (uint32_t i = 0; i < c->reassembly_max; i++)
		rp_list_push_back(&s->ooo_free, &s->ooos[i].link);
	return 0;
}

struct rp_tcp_stack *rp_tcp_create(const struct rp_tcp_config *config, uint64_t now_ns)
{
	struct rp_tcp_stack *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->config = *config;
	stack_defaults(&s->config);
	if (!stack_config_ok(&s->config)) {
		free(s);
		errno = EINVAL;
		return NULL;
	}
	s->transport.ops = rp_tcp_ops;
	s->transport.name = "tcp";
	s->counters = config->counters ? config->counters : &s->own_counters;
	s->now_ns = now_ns;
	s->pressure_due_ns = config->rx_pool ? now_ns : RP_NEVER;
	s->rx_most = config->rx_pool ? rte_mempool_avail_count(config->rx_pool) : 0;
	s->rand.state = config->seed;
	rp_list_init(&s->dirty);
	rp_list_init(&s->blocked);
	rp_list_init(&s->tseg_free);
	rp_list_init(&s->ooo_free);
	rp_wheel_init(&s->wheel, now_ns);
	while ((s->config.receive_buffer_bytes >> s->rcv_shift) > UINT16_MAX)
		s->rcv_shift++;
	s->rcv_shift = RP_MAX(s->rcv_shift, s->config.receive_shift_least);
	s->port_counter = (uint32_t)rp_rand_u64(&s->rand);
	s->net_config = s->config.net;
	if (!s->net_config.control_pool)
		s->net_config.control_pool = s->net_config.header_pool;
	if (!s->net_config.payload_pool)
		s->net_config.payload_pool = s->net_config.header_pool;
	s->net_config.on_neigh_failed = stack_neigh_failed;
	if (!s->net_config.on_neigh)
		s->net_config.ctx = s;
	if (stack_alloc(s)) {
		rp_tcp_destroy(s);
		errno = ENOMEM;
		return NULL;
	}
	s->net = rp_net_create(&s->net_config, now_ns);
	if (!s->net) {
		int error = errno;

		rp_tcp_destroy(s);
		errno = error;
		return NULL;
	}
	return s;
}

void rp_tcp_destroy(struct rp_tcp_stack *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; s->conns && i < s->conn_top; i++)
		if (s->conns[i].base.transport && !(s->conns[i].flags & TCPF_DEAD))
			tcp_conn_kill(&s->conns[i]);
	tcp_headers_free(s);
	rp_net_destroy(s->net);
	flow_free(&s->flows);
	free(s->conns);
	free(s->dead);
	free(s->tsegs);
	free(s->ooos);
	free(s->listeners);
	free(s->tws);
	free(s);
}

/* What each of them sent first and an ACK may free: its record, then its buffer. */
static void stack_fetch_acked(struct tcp_conn *const *conns, unsigned n)
{
	const struct tseg *heads[RP_NET_BURST];
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct tseg *head = tcp_head(conns[i]);

		if (!head)
			continue;
		__builtin_prefetch(head, 1);
		heads[k++] = head;
	}
	for (unsigned i = 0; i < k; i++) {
		const uint8_t *m = (const uint8_t *)heads[i]->payload;

		if (m) {
			__builtin_prefetch(m, 1);
			__builtin_prefetch(m + RP_CACHE_LINE, 1);
		}
	}
}

/*
 * With many connections none is near: the slots of the flow table are fetched, then what they point
 * at, so that no segment waits for the one before it. Segments of one connection mostly come in a
 * row, and it is fetched once.
 */
static void stack_input_many(
	struct rp_tcp_stack *s, struct rp_net_packet *packets, unsigned k, uint64_t now_ns)
{
	struct tcp_conn *conns[RP_NET_BURST];
	uint32_t hashes[RP_NET_BURST];
	unsigned count = 0;

	for (unsigned i = 0; i < k; i++) {
		struct flow_key key;

		hashes[i] = 0;
		if (packets[i].kind != RP_NET_TCP)
			continue;
		key = tcp_key_of(&packets[i]);
		hashes[i] = flow_hash(&s->flows, &key);
		flow_prefetch(&s->flows, hashes[i]);
	}
	for (unsigned i = 0; i < k; i++) {
		struct tcp_conn *c = NULL;

		if (packets[i].kind == RP_NET_TCP && (i == 0 || hashes[i] != hashes[i - 1]))
			c = flow_guess(&s->flows, hashes[i]);
		if (!c)
			continue;
		tcp_conn_prefetch(c);
		conns[count++] = c;
	}
	stack_fetch_acked(conns, count);
	for (unsigned i = 0; i < k; i++) {
		if (packets[i].kind == RP_NET_TCP)
			tcp_input(s, &packets[i], &hashes[i], now_ns);
		else
			tcp_icmp(s, &packets[i], now_ns);
	}
}

/* Up to RP_NET_BURST packets. */
static void stack_input(
	struct rp_tcp_stack *s, struct rp_net_packet *packets, unsigned k, uint64_t now_ns)
{
	if (s->conn_count > TCP_CONNS_NEAR) {
		stack_input_many(s, packets, k, now_ns);
		return;
	}
	for (unsigned i = 0; i < k; i++) {
		if (packets[i].kind == RP_NET_TCP)
			tcp_input(s, &packets[i], NULL, now_ns);
		else
			tcp_icmp(s, &packets[i], now_ns);
	}
}

void rp_tcp_rx(struct rp_tcp_stack *s, struct rte_mbuf **frames, unsigned n, uint64_t now_ns)
{
	struct rp_net_packet packets[RP_NET_BURST];
	unsigned k;

	s->now_ns = RP_MAX(s->now_ns, now_ns);
	for (; n > RP_NET_BURST; frames += RP_NET_BURST, n -= RP_NET_BURST) {
		k = rp_net_rx(s->net, frames, RP_NET_BURST, packets, now_ns);
		stack_input(s, packets, k, now_ns);
	}
	k = rp_net_rx(s->net, frames, n, packets, now_ns);
	stack_input(s, packets, k, now_ns);
}

void rp_tcp_rx_packets(
	struct rp_tcp_stack *s, struct rte_mbuf **handed, unsigned n, uint64_t now_ns)
{
	struct rp_net_packet packets[RP_NET_BURST];

	s->now_ns = RP_MAX(s->now_ns, now_ns);
	while (n > 0) {
		unsigned burst = RP_MIN(n, (unsigned)RP_NET_BURST), k = 0;

		for (unsigned i = 0; i < burst; i++)
			if (rp_net_rx_handed(s->net, handed[i], &packets[k]))
				k++;
		s->counters->handed_here += k;
		stack_input(s, packets, k, now_ns);
		handed += burst;
		n -= burst;
	}
}

void rp_tcp_rx_error(struct rp_tcp_stack *s, const struct rp_net_packet *error, uint64_t now_ns)
{
	struct rp_net_packet p = *error;

	s->now_ns = RP_MAX(s->now_ns, now_ns);
	p.handed_over = true;
	s->counters->handed_here++;
	tcp_icmp(s, &p, now_ns);
}

/* The owner of the listener decides. False: the connection is gone. */
static RP_APART bool serve_accept(struct tcp_conn *c, uint64_t now_ns)
{
	struct tcp_listener *l = c->listener;
	struct rp_endpoint peer = rp_ip_to_endpoint(&c->key.remote, c->key.remote_port);
	const struct rp_conn_events *events = NULL;
	void *ctx = NULL;

	c->flags &= ~TCPF_EV_ACCEPT;
	tcp_half_open_done(c);
	if (l->accept(l->ctx, &c->base, &peer, &events, &ctx, now_ns) || !events) {
		if (!(c->flags & TCPF_DEAD)) {
			tcp_send_control(c, c->snd_nxt, TCP_RST | TCP_ACK, now_ns);
			tcp_conn_kill(c);
		}
		return false;
	}
	c->events = events;
	c->events_ctx = ctx;
	return !(c->flags & TCPF_DEAD);
}

static bool is_writable(const struct tcp_conn *c)
{
	return c->flags & TCPF_WANT_WRITE && !tcp_stack_of(c)->starved &&
	       !(c->flags & (TCPF_FIN_QUEUED | TCPF_EV_CLOSE)) && tcp_send_fits(c, c->want_bytes);
}

static void serve_writable(struct tcp_conn *c, uint64_t now_ns)
{
	if (!is_writable(c))
		return;
	c->flags &= ~TCPF_WANT_WRITE;
	if (c->events->on_writable)
		c->events->on_writable(c->events_ctx, &c->base, now_ns);
}

/* False: the connection is gone. */
static RP_APART bool serve_before(struct tcp_conn *c, uint64_t now_ns)
{
	if (c->flags & TCPF_NEIGH_FAILED) {
		c->flags &= ~TCPF_NEIGH_FAILED;
		if (c->state == TCPS_SYN_SENT)
			tcp_conn_close(c, RP_CLOSE_UNREACHABLE);
	}
	if (c->flags & TCPF_EV_ACCEPT && !serve_accept(c, now_ns))
		return false;
	if (c->flags & TCPF_EV_OPEN) {
		c->flags &= ~TCPF_EV_OPEN;
		c->events->on_open(c->events_ctx, &c->base, now_ns);
	}
	return !(c->flags & TCPF_DEAD);
}

/* False: the connection is gone. */
static RP_APART bool serve_behind(struct tcp_conn *c, uint64_t now_ns)
{
	if (c->flags & TCPF_EV_FIN && !(c->flags & TCPF_DEAD)) {
		c->flags &= ~TCPF_EV_FIN;
		if (c->events->on_peer_fin)
			c->events->on_peer_fin(c->events_ctx, &c->base, now_ns);
	}
	if (c->flags & TCPF_DEAD)
		return false;
	serve_writable(c, now_ns);
	if (c->flags & TCPF_DEAD)
		return false;
	if (c->flags & TCPF_EV_CLOSE) {
		c->events->on_close(c->events_ctx, &c->base, c->close_reason, now_ns);
		tcp_conn_kill(c);
		return false;
	}
	return true;
}

/* One turn of a connection: its events, in their order, then its output. */
static inline void serve(struct tcp_conn *c, uint64_t now_ns)
{
	if (c->flags & TCPF_TURN_BEFORE && !serve_before(c, now_ns))
		return;
	if (c->rx.bytes > 0 && c->events) {
		if (tcp_chain_sparse(&c->rx, c->rcv_mss))
			tcp_chain_collapse(&c->rx);
		c->unconsumed += c->rx.bytes;
		c->events->on_data(c->events_ctx, &c->base, tcp_chain_take(&c->rx), now_ns);
	}
	if (c->flags & TCPF_TURN_BEHIND && !serve_behind(c, now_ns))
		return;
	/* What its own events asked for goes out now: one output is enough. */
	if (!(c->flags & (TCPF_BLOCKED | TCPF_EV_FIN | TCPF_NEIGH_FAILED)))
		rp_list_unlink(&c->dirty);
	tcp_output(c, now_ns);
	if (c->flags & TCPF_WANT_WRITE && is_writable(c))
		tcp_mark_dirty(c); /* it made room */
}

static bool stack_fed(const struct rp_tcp_stack *s)
{
	return s->tseg_count <= s->config.segments_max / 4 * 3;
}

/* Segments are free again: those that were refused for lack of them are told. */
static RP_SELDOM void stack_feed_starved(struct rp_tcp_stack *s)
{
	if (!stack_fed(s))
		return;
	s->starved = false;
	for (uint32_t i = 0; i < s->conn_top; i++)
		if (s->conns[i].flags & TCPF_WANT_WRITE)
			tcp_mark_dirty(&s->conns[i]);
}

static RP_SELDOM void stack_unblock(struct rp_tcp_stack *s, uint64_t now_ns)
{
	struct rp_list *l;

	if (now_ns < s->blocked_until_ns || rp_net_tx_room(s->net, false) == 0)
		return;
	while ((l = rp_list_pop_front(&s->blocked))) {
		rp_list_entry(l, struct tcp_conn, dirty)->flags &= ~TCPF_BLOCKED;
		rp_list_push_back(&s->dirty, l);
	}
}

/* What its owner has of a connection begins there, most likely. */
static inline void stack_prefetch_owner(const struct tcp_conn *c)
{
	const uint8_t *p = c->events_ctx;

	if (c->rx.bytes > 0) {
		__builtin_prefetch(p, 1);
		__builtin_prefetch(p + RP_CACHE_LINE, 1);
	}
}

unsigned rp_tcp_poll(struct rp_tcp_stack *s, uint64_t now_ns)
{
	unsigned served = 0, fired = 0;
	struct rp_wheel_node *n;
	struct rp_list *l;

	s->now_ns = RP_MAX(s->now_ns, now_ns);
	rp_net_poll(s->net, now_ns);
	if (now_ns >= s->pressure_due_ns)
		tcp_pressure_poll(s, now_ns);
	rp_wheel_advance(&s->wheel, now_ns);
	while (fired < STACK_TIMER_BUDGET && (n = rp_wheel_pop(&s->wheel))) {
		fired++;
		if (!rp_list_empty(&s->wheel.due))
			tcp_conn_prefetch(
				rp_list_entry(s->wheel.due.next, struct tcp_conn, wheel.link));
		tcp_timer_fired(RP_CONTAINER_OF(n, struct tcp_conn, wheel), now_ns);
	}
	if (s->starved)
		stack_feed_starved(s);
	if (!rp_list_empty(&s->blocked))
		stack_unblock(s, now_ns);
	while (served < STACK_DIRTY_BUDGET && (l = rp_list_pop_front(&s->dirty))) {
		served++;
		if (!rp_list_empty(&s->dirty)) {
			const struct tcp_conn *next =
				rp_list_entry(s->dirty.next, struct tcp_conn, dirty);

			tcp_conn_prefetch(next);
			stack_prefetch_owner(next);
		}
		serve(rp_list_entry(l, struct tcp_conn, dirty), now_ns);
	}
	if (s->dead_count > 0)
		tcp_conn_reap(s);
	if (s->tw_count > 0)
		tcp_tw_expire(s, now_ns);
	return served + fired;
}

unsigned rp_tcp_tx(struct rp_tcp_stack *s, struct rte_mbuf **out, unsigned max)
{
	return rp_net_tx(s->net, out, max);
}

uint64_t rp_tcp_next_deadline(const struct rp_tcp_stack *s)
{
	uint64_t d;

	if (!rp_list_empty(&s->dirty) || (s->starved && stack_fed(s)))
		return 0;
	d = RP_MIN(rp_wheel_next(&s->wheel), rp_net_next_deadline(s->net));
	d = RP_MIN(d, tcp_tw_next(s));
	if (s->pressure)
		d = RP_MIN(d, s->pressure_due_ns);
	if (!rp_list_empty(&s->blocked) && rp_net_tx_room(s->net, false) > 0)
		d = RP_MIN(d, s->blocked_until_ns);
	return d;
}

void rp_tcp_set_rto_floor(struct rp_tcp_stack *s, uint64_t rto_min_ns)
{
	s->rto_floor_ns = rto_min_ns;
	for (uint32_t i = 0; i < s->conn_top; i++) {
		struct tcp_conn *c = &s->conns[i];

		if (!c->base.transport || c->flags & TCPF_DEAD)
			continue;
		c->rto_min_ns = RP_MAX(c->rto_min_own_ns, rto_min_ns);
		if (c->state != TCPS_CLOSED)
			tcp_arm(c, s->now_ns);
	}
}

int rp_tcp_unlisten(struct rp_tcp_stack *s, uint16_t port, uint64_t now_ns)
{
	struct tcp_listener *l = tcp_listener_find(s, port);

	if (!l)
		return -ENOENT;
	for (uint32_t i = 0; l->half_open > 0 && i < s->conn_top; i++) {
		struct tcp_conn *c = &s->conns[i];

		if (!c->base.transport || c->flags & TCPF_DEAD || c->listener != l)
			continue;
		if (tcp_synchronized(c))
			tcp_send_control(c, c->snd_nxt, TCP_RST | TCP_ACK, now_ns);
		tcp_conn_kill(c);
	}
	l->port = 0;
	return 0;
}
