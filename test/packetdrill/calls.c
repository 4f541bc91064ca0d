/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <base/units.h>

#include "pd.h"

static uint64_t deadline_in(uint64_t ns)
{
	return ns ? pd_now() + ns : PD_EVER;
}

/* Addresses. */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static int address_read(const struct pd_sock *s, const struct sockaddr *addr, socklen_t length,
	struct rp_endpoint *e)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;

	*e = (struct rp_endpoint){0};
	if (!addr || length < sizeof(sa_family_t))
		return EINVAL;
	if (addr->sa_family == AF_INET && length >= sizeof(*in)) {
		e->family = 4;
		e->port = ntohs(in->sin_port);
		memcpy(e->addr, &in->sin_addr, 4);
		return 0;
	}
	if (addr->sa_family != AF_INET6)
		return addr->sa_family == AF_INET ? EINVAL : EAFNOSUPPORT;
	if (length < sizeof(*in6))
		return EINVAL;
	if (s->domain != AF_INET6)
		return EAFNOSUPPORT;
	e->port = ntohs(in6->sin6_port);
	if (memcmp(&in6->sin6_addr, mapped, 12) == 0) {
		e->family = 4;
		memcpy(e->addr, (const uint8_t *)&in6->sin6_addr + 12, 4);
	} else {
		e->family = 6;
		memcpy(e->addr, &in6->sin6_addr, 16);
	}
	return 0;
}

void pd_address(const struct pd_sock *s, const struct rp_endpoint *e, struct sockaddr *addr,
	socklen_t *length)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(e->port)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(e->port)};
	bool v6 = s->domain == AF_INET6;
	socklen_t full = v6 ? sizeof(in6) : sizeof(in);

	if (!addr || !length)
		return;
	memcpy(&in.sin_addr, e->addr, 4);
	if (e->family == 6) {
		memcpy(&in6.sin6_addr, e->addr, 16);
	} else {
		memcpy(&in6.sin6_addr, mapped, 12);
		memcpy((uint8_t *)&in6.sin6_addr + 12, e->addr, 4);
	}
	memcpy(addr, v6 ? (const void *)&in6 : (const void *)&in, RP_MIN(*length, full));
	*length = full;
}

/* Calls. */

static int do_socket(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct pd_sock *s;

	if (domain != AF_INET && domain != AF_INET6)
		return pd_fail(EAFNOSUPPORT);
	if (kind != SOCK_STREAM)
		return pd_fail(ESOCKTNOSUPPORT);
	if (protocol != 0 && protocol != IPPROTO_TCP)
		return pd_fail(EPROTONOSUPPORT);
	pd_knobs_read();
	s = pd_sock_new(PD_NEW, true);
	if (!s)
		return -1;
	s->domain = domain;
	s->nonblock = type & SOCK_NONBLOCK;
	return s->fd;
}

int pd_socket(void *u, int domain, int type, int protocol)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_socket(domain, type, protocol);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

static bool port_taken(const struct pd_sock *self, uint16_t port)
{
	for (unsigned i = 0; i < PD_SOCKS_MAX; i++) {
		const struct pd_sock *s = &pd.socks[i];

		if (s == self || s->state == PD_FREE || s->local.port != port)
			continue;
		if (s->state == PD_LISTEN || !self->opt.reuse || !s->opt.reuse)
			return true;
	}
	return false;
}

static uint16_t port_choose(const struct pd_sock *s)
{
	uint16_t port = 61000;

	while (port < 65535 && port_taken(s, port))
		port++;
	return port;
}

static int do_bind(int fd, const struct sockaddr *addr, socklen_t length)
{
	struct pd_sock *s = pd_sock_get(fd);
	struct rp_endpoint e;
	int error;

	if (!s)
		return -1;
	error = address_read(s, addr, length, &e);
	if (error)
		return pd_fail(error);
	if (s->local.family || s->state != PD_NEW)
		return pd_fail(EINVAL);
	if (e.port == 0)
		e.port = port_choose(s);
	else if (port_taken(s, e.port))
		return pd_fail(EADDRINUSE);
	s->local = e;
	return 0;
}

int pd_bind(void *u, int fd, const struct sockaddr *addr, socklen_t length)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_bind(fd, addr, length);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

/* The stack's listener, with the options that the socket has now. 0 or -errno. */
static int listen_start(struct pd_sock *s)
{
	struct rp_transport *t = rp_tcp_transport(pd.rig->stack);
	struct rp_conn_options o = pd_conn_options(s);

	return t->ops->listen(t, s->local.port, &o, pd_on_accept, s);
}

void pd_relisten(struct pd_sock *s)
{
	struct rp_tcp_usage usage;

	rp_tcp_usage(pd.rig->stack, &usage);
	if (usage.half_open > 0)
		return; /* they would be lost */
	rp_tcp_unlisten(pd.rig->stack, s->local.port, pd_now());
	listen_start(s);
}

static int do_listen(int fd, int backlog)
{
	struct pd_sock *s = pd_sock_get(fd);
	int rc;

	if (!s)
		return -1;
	if (s->state == PD_LISTEN) {
		s->backlog = backlog;
		return 0;
	}
	if (s->state != PD_NEW && s->state != PD_ENDED)
		return pd_fail(EINVAL);
	if (!s->local.family) {
		s->local = s->domain == AF_INET6 ? pd.knobs.local6 : pd.knobs.local4;
		s->local.port = port_choose(s);
	}
	rc = pd_stack(s, &s->local);
	if (rc)
		return pd_fail(-rc);
	rc = listen_start(s);
	if (rc)
		return pd_fail(-rc);
	s->state = PD_LISTEN;
	s->backlog = backlog;
	return 0;
}

int pd_listen(void *u, int fd, int backlog)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_listen(fd, backlog);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

static bool accept_ready(void *ctx)
{
	const struct pd_sock *s = ctx;

	return s->state != PD_LISTEN || s->queued > 0;
}

static int do_accept(int fd, struct sockaddr *addr, socklen_t *length)
{
	struct pd_sock *l = pd_sock_get(fd), *s;

	if (!l)
		return -1;
	if (l->state != PD_LISTEN)
		return pd_fail(EINVAL);
	if (l->queued == 0 && l->nonblock)
		return pd_fail(EAGAIN);
	if (l->queued == 0 && !pd_block(accept_ready, l, deadline_in(l->opt.rcvtimeo_ns)))
		return pd_fail(EAGAIN);
	if (l->state != PD_LISTEN)
		return pd_fail(EINVAL);
	s = l->queue[0];
	if (pd_sock_open(s))
		return -1;
	l->queued--;
	memmove(l->queue, l->queue + 1, l->queued * sizeof(l->queue[0]));
	pd_address(s, &s->peer, addr, length);
	return s->fd;
}

int pd_accept(void *u, int fd, struct sockaddr *addr, socklen_t *length)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_accept(fd, addr, length);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

static bool connect_ready(void *ctx)
{
	return ((const struct pd_sock *)ctx)->state != PD_CONNECTING;
}

static int connect_start(struct pd_sock *s, const struct rp_endpoint *peer)
{
	struct rp_conn_options o = pd_conn_options(s);
	struct rp_endpoint local = s->local;
	struct rp_tcp_info info;
	int rc;

	if (!local.family)
		local = peer->family == 4 ? pd.knobs.local4 : pd.knobs.local6;
	rc = pd_stack(s, &local);
	if (rc)
		return -rc;
	s->conn = rp_tcp_dial_from(pd.rig->stack, peer, s->local.port, &o, &pd_events, s, pd_now());
	if (!s->conn)
		return errno;
	rp_tcp_conn_info(s->conn, &info);
	s->local = info.local;
	s->peer = *peer;
	s->state = PD_CONNECTING;
	s->error = 0;
	s->peer_fin = s->rd_shut = s->wr_shut = s->fin_wanted = s->opened = false;
	s->pushed = s->small_end = 0;
	s->rx_length = s->tx_length = 0;
	s->wire = (struct pd_wire){0};
	return 0;
}

/* What a connection attempt that has ended says: once. */
static int connect_result(struct pd_sock *s)
{
	int error = pd_take_error(s);

	if (s->state == PD_CONNECTED)
		return error ? pd_fail(error) : 0;
	s->state = PD_NEW;
	return pd_fail(error ? error : ECONNABORTED);
}

static int do_connect(int fd, const struct sockaddr *addr, socklen_t length)
{
	struct pd_sock *s = pd_sock_get(fd);
	struct rp_endpoint peer;
	int error;

	if (!s)
		return -1;
	if (s->state == PD_CONNECTED)
		return pd_fail(EISCONN);
	if (s->state == PD_LISTEN)
		return pd_fail(EISCONN);
	if (s->state == PD_CONNECTING && s->nonblock)
		return pd_fail(EALREADY);
	if (s->state == PD_ENDED && s->opened)
		s->state = PD_NEW; /* it may be used again */
	if (s->state == PD_ENDED)
		return connect_result(s);
	if (s->state == PD_NEW) {
		error = address_read(s, addr, length, &peer);
		if (!error)
			error = connect_start(s, &peer);
		if (error)
			return pd_fail(error);
		pd_settle();
		if (s->nonblock && s->state == PD_CONNECTING)
			return pd_fail(EINPROGRESS);
	}
	if (!pd_block(connect_ready, s, deadline_in(s->opt.sndtimeo_ns)))
		return pd_fail(EINPROGRESS);
	return connect_result(s);
}

int pd_connect(void *u, int fd, const struct sockaddr *addr, socklen_t length)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_connect(fd, addr, length);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

/* The end. */

static void abort_conn(struct pd_sock *s)
{
	struct rp_conn *c = s->conn;

	s->conn = NULL;
	if (c)
		c->transport->ops->abort(c, pd_now());
}

static void close_listener(struct pd_sock *s)
{
	rp_tcp_unlisten(pd.rig->stack, s->local.port, pd_now());
	while (s->queued > 0) {
		struct pd_sock *child = s->queue[--s->queued];

		abort_conn(child);
		pd_sock_free(child);
	}
}

static bool ended(void *ctx)
{
	const struct pd_sock *s = ctx;

	return s->state == PD_ENDED ||
	       (s->tx_length == 0 && !s->fin_wanted && pd_outstanding(s) == 0);
}

static int close_conn(struct pd_sock *s)
{
	/* What was received and not read is lost, and the peer is to know (RFC 2525 2.17). */
	if (s->rx_length > 0 || (s->opt.linger_on && s->opt.linger_s == 0)) {
		abort_conn(s);
		return 0;
	}
	if (s->state == PD_CONNECTING) {
		s->conn->transport->ops->close(s->conn, pd_now());
		return 0;
	}
	if (!s->wr_shut)
		s->fin_wanted = true;
	else if (!s->fin_wanted)
		s->conn->transport->ops->close(s->conn, pd_now());
	s->orphan = !(s->opt.linger_on && !s->nonblock);
	pd_push(s);
	if (s->orphan)
		return 1;
	pd_block(ended, s, pd_now() + (uint64_t)s->opt.linger_s * RP_NS_PER_S);
	if (!s->conn)
		return 0;
	s->orphan = true;
	if (!s->fin_wanted)
		s->conn->transport->ops->close(s->conn, pd_now());
	return 1;
}

static int do_close(int fd)
{
	struct pd_sock *s = pd_sock_of(fd);
	bool keep = false;

	if (!s)
		return close(fd);
	if (s->state == PD_LISTEN)
		close_listener(s);
	else if (s->conn)
		keep = close_conn(s);
	if (!keep) {
		if (s->conn) {
			/* Its last event follows with the next turn. */
			s->orphan = keep = true;
		} else {
			pd_sock_free(s);
		}
	}
	if (keep) {
		pd.by_fd[s->fd] = NULL;
		close(s->fd);
		s->fd = -1;
	}
	pd_settle();
	return 0;
}

int pd_close(void *u, int fd)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_close(fd);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

static int do_shutdown(int fd, int how)
{
	struct pd_sock *s = pd_sock_get(fd);

	if (!s)
		return -1;
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return pd_fail(EINVAL);
	if (s->state == PD_LISTEN && how != SHUT_WR) {
		close_listener(s);
		s->state = PD_NEW;
		return 0;
	}
	if (s->state == PD_CONNECTING) {
		abort_conn(s);
		s->state = PD_NEW;
		return 0;
	}
	if (s->state != PD_CONNECTED)
		return pd_fail(ENOTCONN);
	if (how != SHUT_WR)
		s->rd_shut = true;
	if (how != SHUT_RD && !s->wr_shut) {
		s->wr_shut = s->fin_wanted = true;
		pd_push(s);
	}
	pd_changed(s);
	pd_settle();
	return 0;
}

int pd_shutdown(void *u, int fd, int how)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_shutdown(fd, how);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}
