/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_eal.h>

#include <base/mbuf.h>
#include <base/rand.h>
#include <ktcp/ktcp.h>
#include <link/frame.h>
#include <link/link.h>

/* Two transports over loopback, turned in one loop with bounds in turns and in time. */

#define TURNS_MAX 2000000

struct side {
	struct rp_conn *conn;
	bool open, closed, fin, writable, consume;
	enum rp_close_reason why;
	uint64_t received, unconsumed, bad;
	uint32_t opens;
};

static struct rte_mempool *pool;
static unsigned pool_start;
static struct rp_ktcp *client, *server;
static struct side c_side, s_side;

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * RP_NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16));
}

static void on_open(void *ctx, struct rp_conn *c, uint64_t now)
{
	((struct side *)ctx)->open = true;
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *m, uint64_t now)
{
	struct side *s = ctx;
	uint32_t n = m->pkt_len, sum = 0;

	for (struct rte_mbuf *seg = m; seg; seg = seg->next) {
		const uint8_t *p = rte_pktmbuf_mtod(seg, const uint8_t *);

		for (uint32_t i = 0; i < seg->data_len; i++)
			s->bad += p[i] != byte_at(s->received++);
		sum += seg->data_len;
	}
	s->bad += sum != n;
	rte_pktmbuf_free(m);
	if (s->consume)
		c->transport->ops->consume(c, n, now);
	else
		s->unconsumed += n;
}

static void on_writable(void *ctx, struct rp_conn *c, uint64_t now)
{
	((struct side *)ctx)->writable = true;
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now)
{
	((struct side *)ctx)->fin = true;
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now)
{
	struct side *s = ctx;

	assert_false(s->closed);
	s->closed = true;
	s->why = why;
	s->conn = NULL;
}

static const struct rp_conn_events events = {on_open, on_data, on_writable, on_peer_fin, on_close};

static int accept_one(void *listen_ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **e, void **ctx, uint64_t now)
{
	if (s_side.conn || peer->family != 4 || peer->addr[0] != 127)
		return -ECONNREFUSED;
	s_side.conn = c;
	*e = &events;
	*ctx = &s_side;
	return 0;
}

static struct rp_ktcp_config config(void)
{
	return (struct rp_ktcp_config){
		.listen = {.family = 4, .addr = {127, 0, 0, 1}},
		.pool = pool,
		.connections_max = 16,
		.send_bytes_max = 256 << 10,
		.receive_bytes_max = 256 << 10,
	};
}

static void turn(void)
{
	rp_ktcp_poll(client, clock_ns());
	rp_ktcp_poll(server, clock_ns());
}

#define RUN_UNTIL(cond)                                                                     \
	do {                                                                                \
		uint64_t end_ = clock_ns() + 20 * RP_NS_PER_S;                              \
		for (uint64_t i_ = 0; i_ < TURNS_MAX && !(cond) && clock_ns() < end_; i_++) \
			turn();                                                             \
		assert_true(cond);                                                          \
	} while (0)

static void start(void)
{
	const struct rp_ktcp_config c = config();
	const struct rp_conn_options options = {.user_timeout_ns = 3 * RP_NS_PER_S};

	c_side = s_side = (struct side){.consume = true};
	client = rp_ktcp_create(&c);
	server = rp_ktcp_create(&c);
	assert_true(client && server);
	assert_int_equal(rp_ktcp_transport(server)->ops->listen(
				 rp_ktcp_transport(server), 0, &options, accept_one, NULL),
		0);
	assert_true(rp_ktcp_port(server, 0) != 0);
}

static struct rp_endpoint server_endpoint(void)
{
	return (struct rp_endpoint){
		.family = 4, .port = rp_ktcp_port(server, 0), .addr = {127, 0, 0, 1}};
}

static void dial(void)
{
	const struct rp_conn_options options = {.user_timeout_ns = 3 * RP_NS_PER_S};
	const struct rp_endpoint to = server_endpoint();

	c_side.conn = rp_ktcp_transport(client)->ops->dial(
		rp_ktcp_transport(client), &to, &options, &events, &c_side, clock_ns());
	assert_non_null(c_side.conn);
	assert_false(c_side.open);
	RUN_UNTIL(c_side.open && s_side.conn);
}

static void finish(void)
{
	rp_ktcp_destroy(client);
	rp_ktcp_destroy(server);
	assert_int_equal(rte_mempool_avail_count(pool), pool_start);
}

static struct rte_mbuf *chain_of(uint64_t from, uint32_t n)
{
	static uint8_t bytes[1 << 20];

	for (uint32_t i = 0; i < n; i++)
		bytes[i] = byte_at(from + i);
	return rp_mbuf_from(pool, bytes, n);
}

/* Sends [*sent, total) as far as it goes. */
static void push(struct side *s, uint64_t *sent, uint64_t total, struct rp_rand *r)
{
	while (*sent < total) {
		uint32_t n = (uint32_t)(1 + rp_rand_below(r, 40000));
		struct rte_mbuf *m;

		n = (uint32_t)RP_MIN((uint64_t)n, total - *sent);
		m = chain_of(*sent, n);
		if (!m)
			return;
		if (s->conn->transport->ops->send(s->conn, m, clock_ns()) != 0) {
			rte_pktmbuf_free(m);
			return;
		}
		*sent += n;
	}
}

static void bytes_both_ways(void **state)
{
	const uint64_t total = 30 << 20;
	uint64_t c_sent = 0, s_sent = 0;
	struct rp_rand r = {7};

	start();
	dial();
	for (int i = 0; i < TURNS_MAX && (c_side.received < total || s_side.received < total);
		i++) {
		push(&c_side, &c_sent, total, &r);
		push(&s_side, &s_sent, total, &r);
		turn();
	}
	assert_int_equal(c_side.received, total);
	assert_int_equal(s_side.received, total);
	assert_int_equal(c_side.bad + s_side.bad, 0);
	assert_true(rp_ktcp_counters(client)->sends_refused > 0 && c_side.writable);
	assert_true(rp_ktcp_counters(client)->bytes_out == total);
	assert_true(rp_ktcp_counters(server)->bytes_in == total);
	assert_int_equal(rp_ktcp_counters(client)->dials, 1);
	assert_int_equal(rp_ktcp_counters(server)->accepts, 1);
	/* A call moves many bytes, and not all that there are. */
	assert_in_range(rp_ktcp_counters(client)->writes, 2, total / 1000);
	assert_in_range(rp_ktcp_counters(server)->reads, 2, total / 1000);
	finish();
}

static void both_see_the_same_ends(void **state)
{
	struct rp_endpoint local[2], peer[2];

	start();
	dial();
	c_side.conn->transport->ops->ends(c_side.conn, &local[0], &peer[0]);
	s_side.conn->transport->ops->ends(s_side.conn, &local[1], &peer[1]);
	assert_int_equal(peer[0].port, rp_ktcp_port(server, 0));
	assert_int_equal(local[0].family, 4);
	assert_true(local[0].port != 0 && local[0].port != peer[0].port);
	assert_memory_equal(&local[0], &peer[1], sizeof(local[0]));
	assert_memory_equal(&local[1], &peer[0], sizeof(local[1]));
	finish();
}

static void an_unread_side_stops_the_other(void **state)
{
	uint64_t sent = 0, before;
	struct rp_rand r = {8};

	start();
	dial();
	s_side.consume = false;
	for (int i = 0; i < 3000; i++) {
		push(&c_side, &sent, 64 << 20, &r);
		turn();
	}
	assert_true(s_side.unconsumed <= 256 << 10);
	assert_true(sent < 32 << 20);
	assert_true(c_side.conn->transport->ops->send_space(c_side.conn) < 40000);
	before = s_side.received;
	c_side.writable = false;
	s_side.conn->transport->ops->consume(s_side.conn, (uint32_t)s_side.unconsumed, clock_ns());
	s_side.consume = true;
	RUN_UNTIL(s_side.received == sent && c_side.writable);
	assert_true(s_side.received > before);
	assert_int_equal(s_side.bad, 0);
	finish();
}

static void close_sends_the_rest(void **state)
{
	uint64_t sent = 0;
	struct rp_rand r = {9};

	start();
	dial();
	while (sent < 8 << 20) {
		push(&c_side, &sent, 8 << 20, &r);
		if (sent < 8 << 20)
			turn();
	}
	c_side.conn->transport->ops->close(c_side.conn, clock_ns());
	RUN_UNTIL(s_side.fin);
	assert_int_equal(s_side.received, 8 << 20);
	assert_false(s_side.closed || c_side.closed);
	/* The other half still works until it is closed, too. */
	sent = 0;
	push(&s_side, &sent, 1000, &r);
	RUN_UNTIL(c_side.received == 1000);
	s_side.conn->transport->ops->close(s_side.conn, clock_ns());
	RUN_UNTIL(s_side.closed && c_side.closed);
	assert_int_equal(c_side.why, RP_CLOSE_FIN);
	assert_int_equal(s_side.why, RP_CLOSE_FIN);
	assert_int_equal(rp_ktcp_connections(client) + rp_ktcp_connections(server), 0);
	assert_int_equal(rp_ktcp_counters(client)->closes, 1);
	assert_int_equal(rp_ktcp_counters(server)->closes, 1);
	finish();
}

static void abort_resets(void **state)
{
	struct rte_mbuf *m;

	start();
	dial();
	c_side.conn->transport->ops->abort(c_side.conn, clock_ns());
	RUN_UNTIL(s_side.closed);
	assert_int_equal(s_side.why, RP_CLOSE_RESET);
	assert_false(c_side.closed);
	assert_int_equal(rp_ktcp_connections(client), 0);
	/* A place that is used again does not get the events of its earlier life. */
	s_side = c_side = (struct side){.consume = true};
	dial();
	m = chain_of(0, 10);
	assert_int_equal(c_side.conn->transport->ops->send(c_side.conn, m, clock_ns()), 0);
	RUN_UNTIL(s_side.received == 10);
	finish();
}

static void refusals(void **state)
{
	const struct rp_conn_options options = {0};
	struct rp_endpoint to;
	struct rp_conn *c;
	int fd, i;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(a);

	start();
	/* A port that nobody listens on: bound by us, and not listening. */
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &length), 0);
	to = (struct rp_endpoint){.family = 4, .port = ntohs(a.sin_port), .addr = {127, 0, 0, 1}};
	c = rp_ktcp_transport(client)->ops->dial(
		rp_ktcp_transport(client), &to, &options, &events, &c_side, clock_ns());
	if (c) {
		RUN_UNTIL(c_side.closed);
		assert_int_equal(c_side.why, RP_CLOSE_REFUSED);
	} else {
		assert_int_equal(errno, ECONNREFUSED);
	}
	assert_false(c_side.open);
	close(fd);
	/* The same port twice, here and in another object. */
	assert_int_equal(rp_ktcp_transport(client)->ops->listen(rp_ktcp_transport(client),
				 rp_ktcp_port(server, 0), &options, accept_one, NULL),
		-EADDRINUSE);
	/* An accept() that says no. */
	c_side = (struct side){.consume = true};
	s_side.conn = (struct rp_conn *)&i;
	to = server_endpoint();
	c_side.conn = rp_ktcp_transport(client)->ops->dial(
		rp_ktcp_transport(client), &to, &options, &events, &c_side, clock_ns());
	RUN_UNTIL(c_side.closed);
	assert_int_equal(c_side.why, RP_CLOSE_RESET);
	assert_int_equal(rp_ktcp_counters(server)->accepts_refused, 1);
	/* More than connections_max. */
	for (i = 0; i < 100; i++) {
		static struct side many[100];

		many[i].consume = true;
		if (!rp_ktcp_transport(client)->ops->dial(rp_ktcp_transport(client), &to, &options,
			    &events, &many[i], clock_ns()))
			break;
	}
	assert_int_equal(i, 16);
	assert_true(rp_ktcp_counters(client)->no_connections > 0);
	finish();
}

static void an_empty_pool_is_waited_out(void **state)
{
	static struct rte_mbuf *all[16384];
	struct rte_mbuf *m;
	unsigned n = 0;

	start();
	dial();
	m = chain_of(0, 5000);
	assert_int_equal(c_side.conn->transport->ops->send(c_side.conn, m, clock_ns()), 0);
	while ((all[n] = rte_pktmbuf_alloc(pool)) != NULL)
		n++;
	for (int i = 0; i < 100; i++)
		turn();
	assert_int_equal(s_side.received, 0);
	assert_true(rp_ktcp_counters(server)->no_buffers > 0);
	while (n > 0)
		rte_pktmbuf_free(all[--n]);
	RUN_UNTIL(s_side.received == 5000);
	finish();
}

static void the_descriptor_wakes(void **state)
{
	struct rte_mbuf *m;
	struct pollfd p;

	start();
	dial();
	for (int i = 0; i < 10; i++)
		turn();
	p = (struct pollfd){.fd = rp_ktcp_fd(server), .events = POLLIN};
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_false(rp_ktcp_pending(server));
	m = chain_of(0, 10);
	assert_int_equal(c_side.conn->transport->ops->send(c_side.conn, m, clock_ns()), 0);
	assert_int_equal(poll(&p, 1, 1000), 1);
	turn();
	assert_int_equal(s_side.received, 10);
	assert_int_equal(poll(&p, 1, 0), 0);
	finish();
}

/* Links over it: two nodes, frames both ways, and a listener that meets random bytes. */
struct node {
	struct rp_links *links;
	struct rp_rand rand;
	uint32_t bundle, frames, downs;
};

static void node_random(void *ctx, void *out, size_t length)
{
	for (size_t i = 0; i < length; i++)
		((uint8_t *)out)[i] = (uint8_t)rp_rand_u64(&((struct node *)ctx)->rand);
}

static void node_up(void *ctx, uint64_t peer, uint32_t bundle, uint64_t boot, uint64_t now)
{
	((struct node *)ctx)->bundle = bundle;
}

static void node_down(void *ctx, uint64_t peer, enum rp_link_down why, uint64_t now)
{
	((struct node *)ctx)->bundle = 0;
	((struct node *)ctx)->downs++;
}

static void node_frame(void *ctx, struct rte_mbuf *frame)
{
	struct rp_frame_header h;

	rp_frame_header_read(&h, rte_pktmbuf_mtod(frame, const void *));
	if (h.handle == ((struct node *)ctx)->frames && frame->pkt_len == 24 + h.length)
		((struct node *)ctx)->frames++;
	rte_pktmbuf_free(frame);
}

static void node_frames(
	void *ctx, uint64_t peer, struct rte_mbuf **frames, unsigned n, uint64_t now)
{
	for (unsigned i = 0; i < n; i++)
		node_frame(ctx, frames[i]);
}

static void node_room(void *ctx, uint64_t peer, uint64_t now)
{
}

static const struct rp_links_ops node_ops = {
	.random = node_random,
	.on_up = node_up,
	.on_down = node_down,
	.on_frames = node_frames,
	.on_room = node_room,
};

static struct rp_links_config node_config(uint64_t id)
{
	return (struct rp_links_config){
		.node = id,
		.boot = id,
		.per_peer = 1,
		.secret = "0123456789abcdef0123456789abcdef",
		.secret_length = 32,
		.heartbeat_ns = 100 * RP_NS_PER_MS,
		.dead_after_ns = 3000 * RP_NS_PER_MS,
		.handshake_grace_ns = RP_NS_PER_S,
		.peer_queue_frames = 256,
		.peers_max = 2,
		.handshakes_max = 8,
		.pool = pool,
	};
}

static void node_start(struct node *n, struct rp_ktcp *k, const struct rp_links_config *c)
{
	*n = (struct node){.rand = {c->node}};
	n->links = rp_links_create(c, &node_ops, n);
	assert_non_null(n->links);
	assert_int_equal(rp_links_listen(n->links, rp_ktcp_transport(k), 0), 0);
}

static void nodes_turn(struct node *a, struct node *b)
{
	turn();
	rp_links_poll(a->links, clock_ns());
	rp_links_poll(b->links, clock_ns());
	rp_links_flush(a->links, clock_ns());
	rp_links_flush(b->links, clock_ns());
}

static void send_frames(struct node *n, uint64_t peer, uint32_t *sent, uint32_t total)
{
	for (; *sent < total; ++*sent) {
		uint8_t bytes[RP_FRAME_HEADER_BYTES + 5000] = {0};
		const struct rp_frame_header h = {
			.type = RP_FRAME_QACK, .handle = *sent, .length = *sent * 13 % 5001};
		struct rte_mbuf *m;

		rp_frame_header_write(&h, bytes);
		m = rp_mbuf_from(pool, bytes, RP_FRAME_HEADER_BYTES + h.length);
		if (rp_links_send(n->links, peer, n->bundle, 0, m) != 0) {
			rte_pktmbuf_free(m);
			return;
		}
	}
}

static void nodes_start(struct node *a, struct node *b, struct rp_links_config a_config,
	struct rp_links_config b_config)
{
	const struct rp_ktcp_config c = config();
	struct rp_endpoint to;

	client = rp_ktcp_create(&c);
	server = rp_ktcp_create(&c);
	assert_true(client && server);
	node_start(a, client, &a_config);
	node_start(b, server, &b_config);
	to = server_endpoint();
	assert_int_equal(
		rp_links_add_peer(a->links, 2, rp_ktcp_transport(client), &to, clock_ns()), 0);
	assert_int_equal(
		rp_links_add_peer(b->links, 1, rp_ktcp_transport(server), NULL, clock_ns()), 0);
}

/* The reason is there before the socket closes; who has not proved the secret gets none. */
static void refusals_over_sockets(void **state)
{
	static const enum rp_link_refusal cases[] = {RP_LINK_REFUSAL_K, RP_LINK_REFUSAL_CLUSTER,
		RP_LINK_REFUSAL_MAC, RP_LINK_REFUSAL_GONE};

	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct rp_links_config c = node_config(1);
		const struct rp_link_counters *dialer, *acceptor;
		struct node a, b;
		uint64_t end = clock_ns() + 20 * RP_NS_PER_S;

		if (cases[i] == RP_LINK_REFUSAL_K)
			c.per_peer = 2;
		if (cases[i] == RP_LINK_REFUSAL_CLUSTER)
			c.cluster_uuid[0] = 1;
		if (cases[i] == RP_LINK_REFUSAL_MAC)
			c.secret = "fedcba9876543210fedcba9876543210";
		/* It trusts whoever answers, and is not trusted. */
		if (cases[i] == RP_LINK_REFUSAL_GONE)
			c.secret = NULL;
		nodes_start(&a, &b, c, node_config(2));
		dialer = rp_links_counters(a.links);
		acceptor = rp_links_counters(b.links);
		while (dialer->refused_out[cases[i]] == 0 && clock_ns() < end)
			nodes_turn(&a, &b);
		assert_true(dialer->refused_out[cases[i]] > 0);
		if (cases[i] == RP_LINK_REFUSAL_GONE)
			assert_true(acceptor->refused[RP_LINK_REFUSAL_MAC] > 0);
		else if (cases[i] != RP_LINK_REFUSAL_MAC)
			assert_true(acceptor->refused[cases[i]] > 0);
		assert_false(a.bundle || b.bundle);
		rp_links_destroy(a.links);
		rp_links_destroy(b.links);
		finish();
	}
}

static void links_over_sockets(void **state)
{
	struct node a, b;
	struct rp_endpoint to;
	uint32_t a_sent = 0, b_sent = 0;
	uint64_t end = clock_ns() + 20 * RP_NS_PER_S;
	int fd, noise = 0;
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	nodes_start(&a, &b, node_config(1), node_config(2));
	to = server_endpoint();
	while ((!a.bundle || !b.bundle) && clock_ns() < end)
		nodes_turn(&a, &b);
	assert_true(a.bundle && b.bundle);
	address.sin_port = htons(to.port);
	while ((a.frames < 20000 || b.frames < 20000) && clock_ns() < end) {
		send_frames(&a, 2, &a_sent, 20000);
		send_frames(&b, 1, &b_sent, 20000);
		nodes_turn(&a, &b);
		if (noise < 20 && b.frames > (uint32_t)noise * 500) {
			fd = socket(AF_INET, SOCK_STREAM, 0);
			assert_int_equal(
				connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
			assert_int_equal(write(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27), 27);
			nodes_turn(&a, &b);
			close(fd);
			noise++;
		}
	}
	assert_int_equal(a.frames, 20000);
	assert_int_equal(b.frames, 20000);
	assert_int_equal(a.downs + b.downs, 0);
	assert_int_equal(noise, 20);
	rp_links_stop(a.links, clock_ns());
	while (rp_ktcp_connections(client) + rp_ktcp_connections(server) > 0 && clock_ns() < end)
		nodes_turn(&a, &b);
	assert_int_equal(rp_links_counters(b.links)->downs[RP_LINK_DOWN_CLOSED], 1);
	rp_links_destroy(a.links);
	rp_links_destroy(b.links);
	finish();
}

int main(void)
{
	char *args[] = {"test", "--no-huge", "-m", "128", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_both_ways),
		cmocka_unit_test(both_see_the_same_ends),
		cmocka_unit_test(an_unread_side_stops_the_other),
		cmocka_unit_test(close_sends_the_rest),
		cmocka_unit_test(abort_resets),
		cmocka_unit_test(refusals),
		cmocka_unit_test(an_empty_pool_is_waited_out),
		cmocka_unit_test(the_descriptor_wakes),
		cmocka_unit_test(links_over_sockets),
		cmocka_unit_test(refusals_over_sockets),
	};

	if (rte_eal_init((int)RP_ARRAY_SIZE(args), args) < 0)
		return 1;
	pool = rte_pktmbuf_pool_create(
		"ktcp", 16383, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (!pool)
		return 1;
	pool_start = rte_mempool_avail_count(pool);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
