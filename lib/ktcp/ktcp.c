/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <base/assert.h>

#include "ktcp_priv.h"

/* In epoll data: what is not a connection. */
#define KTCP_LISTENER_MARK 0x80000000u

static socklen_t address_of(
	const struct rp_endpoint *e, uint16_t port, struct sockaddr_storage *storage)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)storage;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)storage;

	memset(storage, 0, sizeof(*storage));
	if (e->family == 6) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		memcpy(&v6->sin6_addr, e->addr, 16);
		return sizeof(*v6);
	}
	v4->sin_family = AF_INET;
	v4->sin_port = htons(port);
	memcpy(&v4->sin_addr, e->addr, 4);
	return sizeof(*v4);
}

static void endpoint_of(const struct sockaddr_storage *storage, struct rp_endpoint *e)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)storage;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)storage;

	memset(e, 0, sizeof(*e));
	if (storage->ss_family == AF_INET6) {
		e->family = 6;
		e->port = ntohs(v6->sin6_port);
		memcpy(e->addr, &v6->sin6_addr, 16);
	} else {
		e->family = 4;
		e->port = ntohs(v4->sin_port);
		memcpy(e->addr, &v4->sin_addr, 4);
	}
}

/* What the kernel takes: whole seconds, 1 to 32767. */
static int seconds_of(uint64_t ns, int if_zero)
{
	return ns ? (int)RP_MIN((ns + RP_NS_PER_S - 1) / RP_NS_PER_S, 32767u) : if_zero;
}

static void socket_options(const struct rp_ktcp *k, int fd, const struct rp_conn_options *options)
{
	unsigned int timeout_ms = (unsigned int)(options->user_timeout_ns / RP_NS_PER_MS);
	const int on = 1, bytes = k->config.socket_buffer_bytes;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (timeout_ms > 0)
		setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
	if (options->keepalive_idle_ns > 0) {
		int idle = seconds_of(options->keepalive_idle_ns, 7200);
		int interval = seconds_of(options->keepalive_interval_ns, 75);
		int probes = options->keepalive_probes ? (int)options->keepalive_probes : 9;

		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
		setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
		setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
		setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	}
	if (bytes > 0) {
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	}
}

static struct ktcp_conn *conn_new(struct rp_ktcp *k, int fd)
{
	struct rp_list *n = rp_list_pop_front(&k->conns_free);
	struct ktcp_conn *c;
	uint32_t generation;

	if (!n) {
		k->counters.no_connections++;
		return NULL;
	}
	c = rp_list_entry(n, struct ktcp_conn, entry);
	generation = c->generation;
	*c = (struct ktcp_conn){
		.conn.transport = &k->transport, .k = k, .fd = fd, .generation = generation};
	rp_list_init(&c->pending);
	rp_list_push_back(&k->conns_used, &c->entry);
	k->conn_count++;
	return c;
}

static void local_learn(struct ktcp_conn *c)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);

	if (getsockname(c->fd, (struct sockaddr *)&address, &length) == 0)
		endpoint_of(&address, &c->local);
}

static struct rp_conn *ktcp_dial(struct rp_transport *t, const struct rp_endpoint *peer,
	const struct rp_conn_options *options, const struct rp_conn_events *events, void *ctx,
	uint64_t now_ns)
{
	struct rp_ktcp *k = RP_CONTAINER_OF(t, struct rp_ktcp, transport);
	struct sockaddr_storage address;
	socklen_t length = address_of(peer, peer->port, &address);
	struct ktcp_conn *c;
	int fd;

	k->counters.dials++;
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	socket_options(k, fd, options);
	c = conn_new(k, fd);
	if (!c) {
		close(fd);
		errno = ENOBUFS;
		return NULL;
	}
	c->state = KTCP_OPENING;
	c->peer = *peer;
	c->events = events;
	c->ctx = ctx;
	if (connect(fd, (const struct sockaddr *)&address, length) != 0 && errno != EINPROGRESS) {
		int error = errno;

		ktcp_free(c);
		errno = error;
		return NULL;
	}
	ktcp_interest(c);
	return &c->conn;
}

static int listener_socket(const struct rp_ktcp *k, uint16_t port)
{
	struct sockaddr_storage address;
	socklen_t length = address_of(&k->config.listen, port, &address);
	const int on = 1;
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (address.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, (const struct sockaddr *)&address, length) == 0 && listen(fd, 1024) == 0)
		return fd;
	error = errno;
	close(fd);
	return -error;
}

static int ktcp_listen(struct rp_transport *t, uint16_t port, const struct rp_conn_options *options,
	rp_accept_fn accept, void *listen_ctx)
{
	struct rp_ktcp *k = RP_CONTAINER_OF(t, struct rp_ktcp, transport);
	struct ktcp_listener *l = &k->listeners[k->listener_count];
	struct epoll_event e = {
		.events = EPOLLIN, .data.u64 = KTCP_LISTENER_MARK | k->listener_count};
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	struct rp_endpoint bound;
	int fd;

	if (k->listener_count == KTCP_LISTENERS)
		return -ENOSPC;
	if (port != 0 && rp_ktcp_port(k, port) != 0)
		return -EADDRINUSE;
	fd = listener_socket(k, port);
	if (fd < 0)
		return fd;
	if (getsockname(fd, (struct sockaddr *)&address, &length) != 0 ||
		epoll_ctl(k->epoll_fd, EPOLL_CTL_ADD, fd, &e) != 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	endpoint_of(&address, &bound);
	*l = (struct ktcp_listener){
		.fd = fd,
		.port = bound.port,
		.asked = port,
		.options = options ? *options : (struct rp_conn_options){0},
		.accept = accept,
		.ctx = listen_ctx,
	};
	k->listener_count++;
	return 0;
}

static const struct rp_transport_ops ktcp_ops = {
	.dial = ktcp_dial,
	.listen = ktcp_listen,
	.send = ktcp_send,
	.send_space = ktcp_send_space,
	.piece = ktcp_piece,
	.ends = ktcp_ends,
	.consume = ktcp_consume,
	.close = ktcp_close,
	.abort = ktcp_abort,
};

struct rp_ktcp *rp_ktcp_create(const struct rp_ktcp_config *config)
{
	struct rp_ktcp *k;

	if (!config->pool || config->connections_max == 0 || config->connections_max > 1u << 20 ||
		(config->listen.family != 4 && config->listen.family != 6)) {
		errno = EINVAL;
		return NULL;
	}
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->config = *config;
	if (k->config.send_bytes_max == 0)
		k->config.send_bytes_max = KTCP_BUFFER_BYTES;
	if (k->config.receive_bytes_max == 0)
		k->config.receive_bytes_max = KTCP_BUFFER_BYTES;
	k->transport.ops = &ktcp_ops;
	k->transport.name = "ktcp";
	k->transport.lone = true;
	rp_list_init(&k->conns_free);
	rp_list_init(&k->conns_used);
	rp_list_init(&k->pending);
	k->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	k->conns = calloc(config->connections_max, sizeof(k->conns[0]));
	if (k->epoll_fd < 0 || !k->conns) {
		int error = k->epoll_fd < 0 ? errno : ENOMEM;

		rp_ktcp_destroy(k);
		errno = error;
		return NULL;
	}
	for (uint32_t i = 0; i < config->connections_max; i++) {
		rp_list_init(&k->conns[i].entry);
		rp_list_push_back(&k->conns_free, &k->conns[i].entry);
	}
	return k;
}

void rp_ktcp_destroy(struct rp_ktcp *k)
{
	if (!k)
		return;
	while (!rp_list_empty(&k->conns_used))
		ktcp_free(rp_list_entry(k->conns_used.next, struct ktcp_conn, entry));
	for (uint32_t i = 0; i < k->listener_count; i++)
		close(k->listeners[i].fd);
	if (k->epoll_fd >= 0)
		close(k->epoll_fd);
	free(k->conns);
	free(k);
}

struct rp_transport *rp_ktcp_transport(struct rp_ktcp *k)
{
	return &k->transport;
}

static void accept_one(struct rp_ktcp *k, struct ktcp_listener *l, int fd,
	const struct rp_endpoint *peer, uint64_t now_ns)
{
	struct ktcp_conn *c = conn_new(k, fd);

	if (!c) {
		k->counters.accepts_refused++;
		close(fd);
		return;
	}
	socket_options(k, fd, &l->options);
	c->state = KTCP_OPEN;
	c->peer = *peer;
	local_learn(c);
	k->counters.accepts++;
	if (l->accept(l->ctx, &c->conn, peer, &c->events, &c->ctx, now_ns) != 0) {
		k->counters.accepts_refused++;
		ktcp_abort(&c->conn, now_ns);
		return;
	}
	ktcp_interest(c);
}

static void listener_poll(struct rp_ktcp *k, struct ktcp_listener *l, uint64_t now_ns)
{
	for (int i = 0; i < KTCP_ACCEPTS; i++) {
		struct sockaddr_storage address;
		socklen_t length = sizeof(address);
		struct rp_endpoint peer;
		int fd = accept4(
			l->fd, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		endpoint_of(&address, &peer);
		accept_one(k, l, fd, &peer, now_ns);
	}
}

static void conn_opening(struct ktcp_conn *c, uint64_t now_ns)
{
	uint32_t generation = c->generation;
	int error = 0;
	socklen_t length = sizeof(error);

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
		error = errno;
	if (error != 0) {
		ktcp_end(c, ktcp_reason(error), now_ns);
		return;
	}
	c->state = KTCP_OPEN;
	local_learn(c);
	ktcp_interest(c);
	c->events->on_open(c->ctx, &c->conn, now_ns);
	if (c->generation == generation && c->state != KTCP_FREE && !c->blocked)
		ktcp_write(c);
}

static void conn_poll(struct ktcp_conn *c, uint32_t events, uint64_t now_ns)
{
	uint32_t generation = c->generation;

	if (c->state == KTCP_OPENING) {
		conn_opening(c, now_ns);
		return;
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		ktcp_read(c, now_ns);
		if (c->generation != generation)
			return;
	}
	if ((events & (EPOLLERR | EPOLLHUP)) && c->error == 0 && !(events & EPOLLIN)) {
		socklen_t length = sizeof(c->error);

		getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &c->error, &length);
		/* Both directions are over, and not by us. */
		if (c->error == 0 && !c->fin_received && (events & EPOLLHUP))
			c->error = ECONNRESET;
	}
	if (events & EPOLLOUT)
		ktcp_write(c);
	ktcp_settle(c, now_ns);
}

uint32_t rp_ktcp_poll(struct rp_ktcp *k, uint64_t now_ns)
{
	struct epoll_event events[KTCP_EVENTS];
	int n = epoll_wait(k->epoll_fd, events, KTCP_EVENTS, 0);
	struct rp_list work;

	for (int i = 0; i < n; i++) {
		uint32_t low = (uint32_t)events[i].data.u64;
		struct ktcp_conn *c;

		if (low & KTCP_LISTENER_MARK) {
			listener_poll(k, &k->listeners[low & ~KTCP_LISTENER_MARK], now_ns);
			continue;
		}
		c = &k->conns[low];
		if (c->state != KTCP_FREE && c->generation == events[i].data.u64 >> 32)
			conn_poll(c, events[i].events, now_ns);
	}
	rp_list_init(&work);
	rp_list_splice_back(&work, &k->pending);
	while (!rp_list_empty(&work)) {
		struct ktcp_conn *c =
			rp_list_entry(rp_list_pop_front(&work), struct ktcp_conn, pending);

		ktcp_settle(c, now_ns);
	}
	return n > 0 ? (uint32_t)n : 0;
}

int rp_ktcp_fd(const struct rp_ktcp *k)
{
	return k->epoll_fd;
}

bool rp_ktcp_pending(const struct rp_ktcp *k)
{
	return !rp_list_empty(&k->pending);
}

uint16_t rp_ktcp_port(const struct rp_ktcp *k, uint16_t port)
{
	for (uint32_t i = 0; i < k->listener_count; i++) {
		if (k->listeners[i].asked == port)
			return k->listeners[i].port;
	}
	return 0;
}

const struct rp_ktcp_counters *rp_ktcp_counters(const struct rp_ktcp *k)
{
	return &k->counters;
}

uint32_t rp_ktcp_connections(const struct rp_ktcp *k)
{
	return k->conn_count;
}
