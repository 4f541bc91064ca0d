/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <base/assert.h>
#include <base/mbuf.h>

#include "ktcp_priv.h"

static struct ktcp_conn *conn_of(const struct rp_conn *conn)
{
	return RP_CONTAINER_OF(conn, struct ktcp_conn, conn);
}

enum rp_close_reason ktcp_reason(int error)
{
	switch (error) {
	case ETIMEDOUT:
		return RP_CLOSE_TIMEOUT;
	case ECONNREFUSED:
		return RP_CLOSE_REFUSED;
	case ECONNRESET:
	case EPIPE:
		return RP_CLOSE_RESET;
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ENETDOWN:
		return RP_CLOSE_UNREACHABLE;
	case ENOMEM:
	case ENOBUFS:
		return RP_CLOSE_NOMEM;
	default:
		return RP_CLOSE_ABORTED;
	}
}

void ktcp_pend(struct ktcp_conn *c)
{
	if (rp_list_empty(&c->pending))
		rp_list_push_back(&c->k->pending, &c->pending);
}

/* epoll is level-triggered: it watches only what we would act upon. */
void ktcp_interest(struct ktcp_conn *c)
{
	struct epoll_event e = {
		.data.u64 = (uint64_t)c->generation << 32 | (uint32_t)(c - c->k->conns)};

	if (c->state == KTCP_OPENING || c->blocked)
		e.events |= EPOLLOUT;
	if (c->state != KTCP_OPENING && !c->fin_received &&
		c->unconsumed < c->k->config.receive_bytes_max)
		e.events |= EPOLLIN;
	/* A socket that is watched for nothing still reports its errors; 0 means "not added". */
	if (e.events == 0)
		e.events = EPOLLERR;
	if (e.events == c->interest)
		return;
	if (epoll_ctl(c->k->epoll_fd, c->interest == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, c->fd,
		    &e) != 0) {
		c->error = errno;
		ktcp_pend(c);
		return;
	}
	c->interest = e.events;
}

void ktcp_free(struct ktcp_conn *c)
{
	struct rp_ktcp *k = c->k;

	RP_ASSERT(c->state != KTCP_FREE);
	close(c->fd);
	while (c->tx_first) {
		struct rte_mbuf *next = c->tx_first->next;

		rte_pktmbuf_free_seg(c->tx_first);
		c->tx_first = next;
	}
	rp_list_unlink(&c->entry);
	rp_list_unlink(&c->pending);
	c->state = KTCP_FREE;
	c->generation++;
	rp_list_push_back(&k->conns_free, &c->entry);
	k->conn_count--;
	k->counters.closes++;
}

void ktcp_end(struct ktcp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	const struct rp_conn_events *events = c->events;

	/* The place is free only afterwards: the callee may dial from inside the event. */
	c->events = NULL;
	rp_list_unlink(&c->pending);
	if (events)
		events->on_close(c->ctx, &c->conn, why, now_ns);
	ktcp_free(c);
}

static void tx_advance(struct ktcp_conn *c, uint32_t n)
{
	c->tx_bytes -= n;
	n += c->tx_offset;
	while (c->tx_first && n >= c->tx_first->data_len) {
		struct rte_mbuf *next = c->tx_first->next;

		n -= c->tx_first->data_len;
		rte_pktmbuf_free_seg(c->tx_first);
		c->tx_first = next;
	}
	c->tx_offset = n;
	if (!c->tx_first)
		c->tx_last = NULL;
}

static int tx_gather(const struct ktcp_conn *c, struct iovec *iov)
{
	uint32_t offset = c->tx_offset;
	int n = 0;

	for (struct rte_mbuf *m = c->tx_first; m && n < KTCP_IOVECS; m = m->next) {
		iov[n].iov_base = rte_pktmbuf_mtod_offset(m, void *, offset);
		iov[n++].iov_len = m->data_len - offset;
		offset = 0;
	}
	return n;
}

void ktcp_write(struct ktcp_conn *c)
{
	struct iovec iov[KTCP_IOVECS];

	c->blocked = false;
	while (c->tx_bytes > 0 && c->error == 0) {
		const struct msghdr msg = {
			.msg_iov = iov,
			.msg_iovlen = (size_t)tx_gather(c, iov),
		};
		ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL);

		c->k->counters.writes++;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			if (errno == EAGAIN || errno == EWOULDBLOCK)
				c->blocked = true;
			else
				c->error = errno;
			break;
		}
		c->k->counters.bytes_out += (uint64_t)n;
		tx_advance(c, (uint32_t)n);
	}
	if (c->error != 0)
		ktcp_pend(c);
	if (c->state == KTCP_CLOSING && c->tx_bytes == 0 && !c->fin_sent && c->error == 0) {
		c->fin_sent = true;
		if (shutdown(c->fd, SHUT_WR) != 0)
			c->error = errno;
		if (c->error != 0 || c->fin_received)
			ktcp_pend(c);
	}
	ktcp_interest(c);
}

uint32_t ktcp_send_space(const struct rp_conn *conn)
{
	const struct ktcp_conn *c = conn_of(conn);
	uint32_t max = c->k->config.send_bytes_max;

	return c->state == KTCP_OPEN && c->tx_bytes < max ? max - c->tx_bytes : 0;
}

/* The kernel cuts what it copies. */
uint32_t ktcp_piece(const struct rp_conn *conn)
{
	return 0;
}

void ktcp_ends(const struct rp_conn *conn, struct rp_endpoint *local, struct rp_endpoint *peer)
{
	const struct ktcp_conn *c = conn_of(conn);

	*local = c->local;
	*peer = c->peer;
}

int ktcp_send(struct rp_conn *conn, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct ktcp_conn *c = conn_of(conn);

	if ((c->state != KTCP_OPEN && c->state != KTCP_OPENING) || c->error != 0)
		return -EPIPE;
	/* A chain larger than the bound passes when nothing waits, or it never would. */
	if (c->tx_bytes > 0 && c->tx_bytes + chain->pkt_len > c->k->config.send_bytes_max) {
		c->k->counters.sends_refused++;
		c->want_writable = true;
		return -EAGAIN;
	}
	c->tx_bytes += chain->pkt_len;
	if (c->tx_last)
		c->tx_last->next = chain;
	else
		c->tx_first = chain;
	c->tx_last = rte_pktmbuf_lastseg(chain);
	if (c->state == KTCP_OPEN && !c->blocked)
		ktcp_write(c);
	return 0;
}

void ktcp_consume(struct rp_conn *conn, uint32_t bytes, uint64_t now_ns)
{
	struct ktcp_conn *c = conn_of(conn);

	RP_ASSERT(bytes <= c->unconsumed);
	c->unconsumed -= bytes;
	if (!(c->interest & EPOLLIN) && c->unconsumed <= c->k->config.receive_bytes_max / 2)
		ktcp_interest(c);
}

void ktcp_close(struct rp_conn *conn, uint64_t now_ns)
{
	struct ktcp_conn *c = conn_of(conn);

	if (c->state == KTCP_OPENING) {
		c->error = ECONNABORTED;
		ktcp_pend(c);
	}
	if (c->state != KTCP_OPEN)
		return;
	c->state = KTCP_CLOSING;
	c->want_writable = false;
	if (!c->blocked)
		ktcp_write(c);
}

void ktcp_abort(struct rp_conn *conn, uint64_t now_ns)
{
	struct ktcp_conn *c = conn_of(conn);
	const struct linger reset = {.l_onoff = 1, .l_linger = 0};

	c->events = NULL;
	/* RST instead of FIN (RFC 9293, 3.10.5). */
	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	ktcp_free(c);
}

/* Up to `want` bytes of room in fresh mbufs, chained; NULL: the pool is empty. */
static struct rte_mbuf *rx_room(struct ktcp_conn *c, uint32_t want, struct iovec *iov, int *count)
{
	struct rte_mbuf *first = NULL, *last = NULL;
	uint32_t room = 0;

	for (*count = 0; *count < KTCP_IOVECS && room < want; ++*count) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(c->k->config.pool);
		uint32_t n;

		if (!m)
			break;
		n = RP_MIN((uint32_t)rte_pktmbuf_tailroom(m), want - room);
		iov[*count] = (struct iovec){rte_pktmbuf_mtod(m, void *), n};
		room += n;
		if (last)
			last->next = m;
		else
			first = m;
		last = m;
	}
	return first;
}

/* Sets the lengths of a chain that got `n` bytes, and frees what got none. */
static void rx_fill(struct rte_mbuf *first, const struct iovec *iov, uint32_t n)
{
	struct rte_mbuf *m = first, *rest;

	first->pkt_len = n;
	for (first->nb_segs = 0; m; m = m->next, iov++) {
		m->data_len = (uint16_t)RP_MIN((size_t)n, iov->iov_len);
		n -= m->data_len;
		first->nb_segs++;
		if (n == 0)
			break;
	}
	rest = m ? m->next : NULL;
	if (m)
		m->next = NULL;
	while (rest) {
		m = rest->next;
		rte_pktmbuf_free_seg(rest);
		rest = m;
	}
}

static void room_free(struct rte_mbuf *m)
{
	while (m) {
		struct rte_mbuf *next = m->next;

		rte_pktmbuf_free_seg(m);
		m = next;
	}
}

void ktcp_read(struct ktcp_conn *c, uint64_t now_ns)
{
	struct rp_ktcp *k = c->k;
	uint32_t generation = c->generation, total = 0;

	while (total < KTCP_READ_BYTES && c->unconsumed < k->config.receive_bytes_max &&
		!c->fin_received && c->error == 0) {
		struct iovec iov[KTCP_IOVECS];
		uint32_t want = RP_MIN(65536u, k->config.receive_bytes_max - c->unconsumed);
		struct rte_mbuf *m;
		ssize_t n;
		int count;

		m = rx_room(c, want, iov, &count);
		if (!m) {
			k->counters.no_buffers++;
			return;
		}
		n = readv(c->fd, iov, count);
		k->counters.reads++;
		if (n <= 0) {
			room_free(m);
			if (n == 0)
				c->fin_received = true;
			else if (errno == EINTR)
				continue;
			else if (errno != EAGAIN && errno != EWOULDBLOCK)
				c->error = errno;
			break;
		}
		rx_fill(m, iov, (uint32_t)n);
		k->counters.bytes_in += (uint64_t)n;
		c->unconsumed += (uint32_t)n;
		total += (uint32_t)n;
		c->events->on_data(c->ctx, &c->conn, m, now_ns);
		if (c->generation != generation)
			return;
	}
}

void ktcp_settle(struct ktcp_conn *c, uint64_t now_ns)
{
	uint32_t generation = c->generation;

	if (c->error != 0) {
		ktcp_end(c, ktcp_reason(c->error), now_ns);
		return;
	}
	if (c->want_writable && !c->blocked && c->tx_bytes <= c->k->config.send_bytes_max / 2) {
		c->want_writable = false;
		c->events->on_writable(c->ctx, &c->conn, now_ns);
		if (c->generation != generation)
			return;
	}
	if (c->fin_received && !c->fin_told) {
		c->fin_told = true;
		c->events->on_peer_fin(c->ctx, &c->conn, now_ns);
		if (c->generation != generation)
			return;
	}
	if (c->fin_received && c->fin_sent && c->error == 0) {
		ktcp_end(c, RP_CLOSE_FIN, now_ns);
		return;
	}
	ktcp_interest(c);
}
