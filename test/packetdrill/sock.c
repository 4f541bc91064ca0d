/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_mbuf.h>

#include <base/mbuf.h>
#include <base/units.h>

#include "pd.h"

#define PD_CHUNK (128u << 10) /* bytes given to the stack at once */

int pd_fail(int error)
{
	errno = error;
	return -1;
}

struct pd_sock *pd_sock_of(int fd)
{
	return fd >= 0 && fd < PD_FDS_MAX ? pd.by_fd[fd] : NULL;
}

struct pd_sock *pd_sock_get(int fd)
{
	struct pd_sock *s = pd_sock_of(fd);

	if (!s)
		errno = EBADF;
	else if (s->state == PD_EPOLL)
		errno = ENOTSOCK;
	return s && s->state != PD_EPOLL ? s : NULL;
}

int pd_sock_open(struct pd_sock *s)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (fd >= PD_FDS_MAX) {
		close(fd);
		return pd_fail(EMFILE);
	}
	s->fd = fd;
	pd.by_fd[fd] = s;
	return 0;
}

struct pd_sock *pd_sock_new(enum pd_state state, bool fd)
{
	for (unsigned i = 0; i < PD_SOCKS_MAX; i++) {
		struct pd_sock *s = &pd.socks[i];

		if (s->state != PD_FREE)
			continue;
		*s = (struct pd_sock){.state = state, .fd = -1};
		s->opt.rcvlowat = 1;
		s->opt.mtu_discover = IP_PMTUDISC_WANT;
		if (fd && pd_sock_open(s)) {
			s->state = PD_FREE;
			return NULL;
		}
		return s;
	}
	errno = ENFILE;
	return NULL;
}

void pd_sock_free(struct pd_sock *s)
{
	if (s->fd >= 0) {
		pd.by_fd[s->fd] = NULL;
		close(s->fd);
	}
	free(s->rx);
	free(s->tx);
	free(s->watches);
	pd_errqueue_free(s);
	*s = (struct pd_sock){.state = PD_FREE, .fd = -1};
}

void pd_changed(struct pd_sock *s)
{
	s->changes++;
}

int pd_take_error(struct pd_sock *s)
{
	int error = s->error;

	s->error = 0;
	return error;
}

/* What is sent when. */

uint32_t pd_outstanding(const struct pd_sock *s)
{
	struct rp_tcp_info info;

	if (!s->conn)
		return (uint32_t)s->tx_length;
	rp_tcp_conn_info(s->conn, &info);
	return (uint32_t)s->tx_length + info.unsent + info.unacked;
}

uint64_t pd_acked(const struct pd_sock *s)
{
	struct rp_tcp_info info;

	if (!s->conn)
		return s->pushed;
	rp_tcp_conn_info(s->conn, &info);
	return s->pushed - RP_MIN(s->pushed, (uint64_t)info.unsent + info.unacked);
}

bool pd_writable(const struct pd_sock *s)
{
	uint32_t limit =
		(uint32_t)(s->opt.sndbuf ? 2 * s->opt.sndbuf : RP_MAX(pd.knobs.wmem[2], 2048));

	return pd_outstanding(s) < limit / 3 * 2;
}

/* Gives `n` bytes from the front to the stack. */
static bool push_bytes(struct pd_sock *s, size_t n)
{
	struct rte_mbuf *m = rp_mbuf_from(pd.rig->payload_pool, s->tx, n);

	if (!m)
		return false;
	if (s->conn->transport->ops->send(s->conn, m, pd_now())) {
		rte_pktmbuf_free(m);
		return false;
	}
	s->pushed += n;
	s->tx_length -= n;
	memmove(s->tx, s->tx + n, s->tx_length);
	return true;
}

/* May a segment go that is not full? (RFC 9293 3.7.4, after Minshall: for one of them at a time.)
 */
static bool small_may_go(struct pd_sock *s, const struct rp_tcp_info *info)
{
	if (s->fin_wanted || s->flush)
		return true;
	/* MSG_MORE holds a write back until the next ACK at most. */
	if (s->more && pd_acked(s) > s->more_acked)
		s->more = false;
	if (s->opt.cork || s->more) {
		/* As long as a timeout, no longer (tcp(7), TCP_CORK). */
		if (!s->cork_ns)
			s->cork_ns = pd_now() + info->rto_ns;
		return pd_now() >= s->cork_ns;
	}
	return s->opt.nodelay || s->small_end + info->unsent + info->unacked <= s->pushed;
}

/* The stack joins what it is given: what follows a record waits until that was sent. */
static bool record_holds(struct pd_sock *s, const struct rp_tcp_info *info)
{
	if (s->record_count == 0 || s->pushed < s->records[0])
		return false;
	if (info->unsent > 0)
		return true;
	s->record_count--;
	memmove(s->records, s->records + 1, s->record_count * sizeof(s->records[0]));
	return false;
}

/* How much may go now; 0: nothing. */
static size_t push_length(struct pd_sock *s, const struct rp_tcp_info *info)
{
	size_t n = RP_MIN(s->tx_length, PD_CHUNK), whole;

	if (s->record_count > 0)
		n = RP_MIN(n, (size_t)(s->records[0] - s->pushed));
	/* Nagle's rule is for the last segment of all. */
	if (n < s->tx_length && n < PD_CHUNK)
		return n;
	whole = n / info->mss * info->mss;
	if (whole > 0)
		return whole;
	return small_may_go(s, info) ? n : 0;
}

void pd_push(struct pd_sock *s)
{
	struct rp_tcp_info info;

	if (!s->conn || s->state != PD_CONNECTED)
		return;
	while (s->tx_length > 0) {
		size_t n;

		rp_tcp_conn_info(s->conn, &info);
		if (record_holds(s, &info))
			return;
		n = push_length(s, &info);
		if (n == 0)
			return;
		if (!push_bytes(s, n))
			return;
		if (n % info.mss)
			s->small_end = s->pushed;
	}
	s->cork_ns = 0;
	s->flush = s->more = false;
	if (!s->fin_wanted)
		return;
	s->fin_wanted = false;
	if (s->orphan)
		s->conn->transport->ops->close(s->conn, pd_now());
	else
		rp_tcp_shutdown(s->conn, pd_now());
}

/* Events of the stack. */

static void on_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct pd_sock *s = ctx;

	s->state = PD_CONNECTED;
	s->opened = true;
	s->wire.opened_ns = pd_now();
	pd_changed(s);
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct pd_sock *s = ctx;
	uint32_t n = chain->pkt_len;

	if (s->orphan) {
		/* Nobody will read it: the peer is told so (RFC 9293 3.6.1). */
		rte_pktmbuf_free(chain);
		rp_tcp_refuse(c, now_ns);
		s->conn = NULL;
		pd_sock_free(s);
		return;
	}
	if (s->rd_shut && s->wr_shut) {
		/* Both directions were shut: as if it were closed, but for the error. */
		rte_pktmbuf_free(chain);
		rp_tcp_refuse(c, now_ns);
		s->conn = NULL;
		s->state = PD_ENDED;
		s->error = ECONNRESET;
		pd_changed(s);
		return;
	}
	if (s->rx_length + n > s->rx_size) {
		s->rx_size = RP_MAX(2 * s->rx_size, s->rx_length + n);
		s->rx = realloc(s->rx, s->rx_size);
		if (!s->rx)
			abort();
	}
	rp_mbuf_copy_out(chain, 0, s->rx + s->rx_length, n);
	s->rx_length += n;
	rte_pktmbuf_free(chain);
	pd_changed(s);
}

static void on_writable(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	pd_changed(ctx);
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct pd_sock *s = ctx;

	s->peer_fin = true;
	pd_changed(s);
}

static int close_error(const struct pd_sock *s, enum rp_close_reason why)
{
	switch (why) {
	case RP_CLOSE_FIN:
	case RP_CLOSE_ABORTED:
		return 0;
	case RP_CLOSE_RESET:
		return s->peer_fin && !s->wr_shut ? EPIPE : ECONNRESET;
	case RP_CLOSE_TIMEOUT:
		return s->wr_shut && s->peer_fin ? 0 : ETIMEDOUT;
	case RP_CLOSE_REFUSED:
		return ECONNREFUSED;
	case RP_CLOSE_UNREACHABLE:
		return EHOSTUNREACH;
	case RP_CLOSE_NOMEM:
		return ENOBUFS;
	}
	return 0;
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct pd_sock *s = ctx;

	s->conn = NULL;
	s->error = close_error(s, why);
	s->state = PD_ENDED;
	pd_changed(s);
	if (s->orphan)
		pd_sock_free(s);
}

const struct rp_conn_events pd_events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_writable = on_writable,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

int pd_on_accept(void *ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **conn_ctx, uint64_t now_ns)
{
	struct pd_sock *l = ctx, *s;

	if (l->queued == PD_BACKLOG_MAX)
		return -ENOBUFS;
	s = pd_sock_new(PD_CONNECTED, false);
	if (!s)
		return -ENOBUFS;
	s->domain = l->domain;
	s->opt = l->opt;
	s->local = l->local;
	s->peer = *peer;
	s->conn = c;
	s->opened = true;
	s->wire.opened_ns = pd_now();
	l->queue[l->queued++] = s;
	pd_changed(l);
	*events = &pd_events;
	*conn_ctx = s;
	return 0;
}
