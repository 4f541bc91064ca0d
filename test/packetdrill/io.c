/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <base/units.h>

#include "pd.h"

#define SPLICE_MAX 65536

static bool is_blocking(const struct pd_sock *s, int flags)
{
	return !s->nonblock && !(flags & MSG_DONTWAIT);
}

static uint64_t deadline_in(uint64_t ns)
{
	return ns ? pd_now() + ns : PD_EVER;
}

/* Reading. */

struct reading {
	struct pd_sock *s;
	size_t want;
};

static bool read_ended(const struct pd_sock *s)
{
	return s->peer_fin || s->rd_shut || s->error || s->state == PD_ENDED;
}

static bool read_ready(void *ctx)
{
	const struct reading *r = ctx;

	return r->s->rx_length >= r->want || read_ended(r->s);
}

/* Takes `n` bytes from the front: the window opens by them. */
static void rx_consume(struct pd_sock *s, size_t n)
{
	s->rx_length -= n;
	memmove(s->rx, s->rx + n, s->rx_length);
	if (s->conn)
		s->conn->transport->ops->consume(s->conn, (uint32_t)n, pd_now());
	pd_settle();
}

/* Nothing is there: what the call says. */
static ssize_t read_nothing(struct pd_sock *s)
{
	int error = pd_take_error(s);

	if (error)
		return pd_fail(error);
	if (s->peer_fin || s->rd_shut || s->state == PD_ENDED)
		return 0;
	return pd_fail(EAGAIN);
}

/* Linux finds it when it copies: an empty piece may be anywhere. */
static bool bad_address(const struct iovec *iov, size_t iovcnt)
{
	for (size_t i = 0; i < iovcnt; i++)
		if (!iov[i].iov_base && iov[i].iov_len > 0)
			return true;
	return false;
}

static ssize_t do_recv(int fd, const struct iovec *iov, size_t iovcnt, int flags)
{
	struct pd_sock *s = pd_sock_get(fd);
	size_t room = 0, done = 0;

	if (!s)
		return -1;
	for (size_t i = 0; i < iovcnt; i++)
		room += iov[i].iov_len;
	if (flags & MSG_OOB)
		return pd_fail(EINVAL); /* urgent data stays in line */
	if (flags & MSG_ERRQUEUE)
		return pd_fail(EAGAIN);
	if (s->state == PD_NEW || s->state == PD_LISTEN)
		return pd_fail(ENOTCONN);
	if (s->rx_length < RP_MAX(s->opt.rcvlowat, 1) && room > 0 && is_blocking(s, flags)) {
		struct reading r = {s, flags & MSG_WAITALL ? room : 1};

		r.want = RP_MAX(r.want, RP_MIN(room, (size_t)RP_MAX(s->opt.rcvlowat, 1)));
		pd_block(read_ready, &r, deadline_in(s->opt.rcvtimeo_ns));
	}
	if (room == 0)
		return 0;
	if (s->rx_length == 0)
		return read_nothing(s);
	if (!(flags & MSG_TRUNC) && bad_address(iov, iovcnt))
		return pd_fail(EFAULT);
	for (size_t i = 0; i < iovcnt && done < s->rx_length; i++) {
		size_t n = RP_MIN(iov[i].iov_len, s->rx_length - done);

		if (!(flags & MSG_TRUNC) && iov[i].iov_base)
			memcpy(iov[i].iov_base, s->rx + done, n);
		done += n;
	}
	if (!(flags & MSG_PEEK))
		rx_consume(s, done);
	return (ssize_t)done;
}

static ssize_t locked_recv(int fd, const struct iovec *iov, size_t iovcnt, int flags)
{
	ssize_t rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_recv(fd, iov, iovcnt, flags);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

ssize_t pd_read(void *u, int fd, void *buf, size_t count)
{
	if (!pd_sock_of(fd))
		return read(fd, buf, count);
	return locked_recv(fd, &(struct iovec){buf, count}, 1, 0);
}

ssize_t pd_readv(void *u, int fd, const struct iovec *iov, int iovcnt)
{
	if (!pd_sock_of(fd))
		return readv(fd, iov, iovcnt);
	return iovcnt < 0 ? pd_fail(EINVAL) : locked_recv(fd, iov, (size_t)iovcnt, 0);
}

ssize_t pd_recv(void *u, int fd, void *buf, size_t length, int flags)
{
	return locked_recv(fd, &(struct iovec){buf, length}, 1, flags);
}

ssize_t pd_recvfrom(void *u, int fd, void *buf, size_t length, int flags, struct sockaddr *addr,
	socklen_t *addr_length)
{
	/* A connected stream names nobody. */
	if (addr && addr_length)
		*addr_length = 0;
	return locked_recv(fd, &(struct iovec){buf, length}, 1, flags);
}

/* TCP_INQ: what is left to be read, or 1 where only the end is. */
static void control_inq(const struct pd_sock *s, struct msghdr *msg, ssize_t n)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	int left;

	if (!s || !s->opt.inq || n < 0 || !c || msg->msg_controllen < CMSG_SPACE(sizeof(left))) {
		msg->msg_controllen = 0;
		return;
	}
	left = (int)s->rx_length;
	if (left == 0 && s->peer_fin)
		left = 1;
	c->cmsg_level = IPPROTO_TCP;
	c->cmsg_type = TCP_CM_INQ;
	c->cmsg_len = CMSG_LEN(sizeof(left));
	memcpy(CMSG_DATA(c), &left, sizeof(left));
	msg->msg_controllen = CMSG_SPACE(sizeof(left));
}

ssize_t pd_recvmsg(void *u, int fd, struct msghdr *msg, int flags)
{
	struct pd_sock *s;
	ssize_t n;

	if (flags & MSG_ERRQUEUE) {
		pthread_mutex_lock(&pd.lock);
		msg->msg_namelen = 0;
		s = pd_sock_get(fd);
		n = s ? pd_errqueue_read(s, msg) : -1;
		pthread_mutex_unlock(&pd.lock);
		return n;
	}
	n = locked_recv(fd, msg->msg_iov, msg->msg_iovlen, flags);
	msg->msg_flags = 0;
	msg->msg_namelen = 0;
	pthread_mutex_lock(&pd.lock);
	control_inq(pd_sock_of(fd), msg, n);
	pthread_mutex_unlock(&pd.lock);
	return n;
}

/* Writing. */

static uint32_t send_room(const struct pd_sock *s)
{
	uint32_t limit =
		(uint32_t)(s->opt.sndbuf ? 2 * s->opt.sndbuf : RP_MAX(pd.knobs.wmem[2], 2048));
	uint32_t used = pd_outstanding(s);

	return limit > used ? limit - used : 0;
}

static bool write_ready(void *ctx)
{
	const struct pd_sock *s = ctx;

	if (s->error || s->wr_shut || s->state == PD_ENDED)
		return true;
	/* Not for each byte: for a third of the buffer. */
	return s->state == PD_CONNECTED && pd_writable(s);
}

static int write_error(struct pd_sock *s)
{
	int error = pd_take_error(s);

	if (error)
		return error;
	return s->wr_shut || s->state != PD_CONNECTED ? EPIPE : 0;
}

static void tx_append(struct pd_sock *s, const uint8_t *data, size_t n)
{
	if (s->tx_length + n > s->tx_size) {
		s->tx_size = RP_MAX(2 * s->tx_size, s->tx_length + n);
		s->tx = realloc(s->tx, s->tx_size);
		if (!s->tx)
			abort();
	}
	memcpy(s->tx + s->tx_length, data, n);
	s->tx_length += n;
}

/* *told: what the error queue will tell of this send is asked for. */
static ssize_t send_bytes(
	struct pd_sock *s, const uint8_t *data, size_t length, int flags, bool *told)
{
	size_t done = 0;
	int error;

	do {
		size_t n;

		if (s->state == PD_CONNECTING || (s->state == PD_CONNECTED && send_room(s) == 0)) {
			s->full = true;
			if (!is_blocking(s, flags))
				return done ? (ssize_t)done : pd_fail(EAGAIN);
			if (!pd_block(write_ready, s, deadline_in(s->opt.sndtimeo_ns)))
				return done ? (ssize_t)done : pd_fail(EAGAIN);
		}
		error = done ? (s->error || s->wr_shut || s->state != PD_CONNECTED)
			     : write_error(s);
		if (error)
			return done ? (ssize_t)done : pd_fail(error);
		n = RP_MIN(length - done, (size_t)send_room(s));
		tx_append(s, data + done, n);
		done += n;
		if (n > 0 && !*told && done == length) {
			*told = true;
			pd_errqueue_sent(s, s->pushed + s->tx_length, flags);
		}
		if (flags & MSG_EOR && done == length && s->record_count < PD_RECORDS_MAX)
			s->records[s->record_count++] = s->pushed + s->tx_length;
		s->more = flags & MSG_MORE;
		s->more_acked = pd_acked(s);
		pd_push(s);
		pd_settle();
	} while (done < length);
	return (ssize_t)done;
}

static ssize_t do_send(struct pd_sock *s, const uint8_t *data, size_t length, int flags)
{
	bool told = false;
	ssize_t n;

	if (flags & MSG_FASTOPEN)
		return pd_fail(EOPNOTSUPP);
	n = send_bytes(s, data, length, flags, &told);
	if (n > 0 && !told)
		pd_errqueue_sent(s, s->pushed + s->tx_length, flags);
	return n;
}

static ssize_t locked_send(int fd, const struct iovec *iov, size_t iovcnt, int flags)
{
	size_t length = 0, at = 0;
	struct pd_sock *s;
	uint8_t *data;
	ssize_t rc = -1;

	for (size_t i = 0; i < iovcnt; i++)
		length += iov[i].iov_len;
	if (bad_address(iov, iovcnt))
		return pd_fail(pd_sock_of(fd) ? EFAULT : EBADF);
	data = calloc(1, length + 1);
	if (!data)
		return pd_fail(ENOMEM);
	for (size_t i = 0; i < iovcnt; i++) {
		if (iov[i].iov_base)
			memcpy(data + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	pthread_mutex_lock(&pd.lock);
	s = pd_sock_get(fd);
	if (s)
		rc = do_send(s, data, length, flags);
	pthread_mutex_unlock(&pd.lock);
	free(data);
	return rc;
}

ssize_t pd_write(void *u, int fd, const void *buf, size_t count)
{
	if (!pd_sock_of(fd))
		return write(fd, buf, count);
	return locked_send(fd, &(struct iovec){(void *)(uintptr_t)buf, count}, 1, 0);
}

ssize_t pd_writev(void *u, int fd, const struct iovec *iov, int iovcnt)
{
	if (!pd_sock_of(fd))
		return writev(fd, iov, iovcnt);
	return iovcnt < 0 ? pd_fail(EINVAL) : locked_send(fd, iov, (size_t)iovcnt, 0);
}

ssize_t pd_send(void *u, int fd, const void *buf, size_t length, int flags)
{
	return locked_send(fd, &(struct iovec){(void *)(uintptr_t)buf, length}, 1, flags);
}

ssize_t pd_sendto(void *u, int fd, const void *buf, size_t length, int flags,
	const struct sockaddr *addr, socklen_t addr_length)
{
	return pd_send(u, fd, buf, length, flags);
}

ssize_t pd_sendmsg(void *u, int fd, const struct msghdr *msg, int flags)
{
	return locked_send(fd, msg->msg_iov, msg->msg_iovlen, flags);
}

/* Between a socket of ours and a pipe of the system. */

ssize_t pd_splice(void *u, int fd_in, loff_t *off_in, int fd_out, loff_t *off_out, size_t length,
	unsigned flags)
{
	int wait = flags & SPLICE_F_NONBLOCK ? MSG_DONTWAIT : 0;
	bool in = pd_sock_of(fd_in), out = pd_sock_of(fd_out);
	uint8_t data[SPLICE_MAX];
	ssize_t n, done;

	if (!in && !out)
		return splice(fd_in, off_in, fd_out, off_out, length, flags);
	if (in && out)
		return pd_fail(EINVAL);
	if (off_in || off_out)
		return pd_fail(ESPIPE);
	length = RP_MIN(length, sizeof(data));
	if (in) {
		struct pollfd p = {.fd = fd_out, .events = POLLOUT};

		if (poll(&p, 1, 0) != 1)
			return pd_fail(EAGAIN);
		n = pd_recv(u, fd_in, data, length, wait);
		return n > 0 ? write(fd_out, data, (size_t)n) : n;
	}
	n = read(fd_in, data, length);
	if (n <= 0)
		return n;
	done = pd_send(u, fd_out, data, (size_t)n, wait | (flags & SPLICE_F_MORE ? MSG_MORE : 0));
	return done;
}
