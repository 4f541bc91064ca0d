/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <base/units.h>

#include "pd.h"

/* Options that are numbers: kept, given back, and read where they matter. */
struct number {
	int level, name;
	size_t offset;
	int least, most, error; /* outside of it */
};
#define NUMBER(level, name, member, ...)                                      \
	{                                                                     \
		level, name, offsetof(struct pd_options, member), __VA_ARGS__ \
	}
#define ANY INT32_MIN, INT32_MAX, 0

static const struct number numbers[] = {
	NUMBER(SOL_SOCKET, SO_REUSEADDR, reuse, ANY),
	NUMBER(SOL_SOCKET, SO_REUSEPORT, reuse, ANY),
	NUMBER(SOL_SOCKET, SO_KEEPALIVE, keepalive, ANY),
	NUMBER(SOL_SOCKET, SO_RCVLOWAT, rcvlowat, 0, INT32_MAX, EINVAL),
	NUMBER(SOL_SOCKET, SO_NO_CHECK, no_check, ANY),
	NUMBER(SOL_SOCKET, SO_PRIORITY, priority, ANY),
	NUMBER(SOL_SOCKET, SO_MARK, mark, ANY),
	NUMBER(SOL_SOCKET, SO_BROADCAST, broadcast, ANY),
	NUMBER(SOL_SOCKET, SO_TIMESTAMPING, timestamping, 0, SOF_TIMESTAMPING_MASK, EINVAL),
	NUMBER(SOL_SOCKET, SO_ZEROCOPY, zerocopy, 0, 1, EINVAL),
	NUMBER(SOL_IP, IP_TOS, tos, 0, 255, EINVAL),
	NUMBER(SOL_IP, IP_TTL, ttl, 1, 255, EINVAL),
	NUMBER(SOL_IP, IP_MTU_DISCOVER, mtu_discover, 0, IP_PMTUDISC_OMIT, EINVAL),
	NUMBER(SOL_IP, IP_RECVERR, kept, ANY),
	NUMBER(SOL_IP, IP_FREEBIND, kept, ANY),
	NUMBER(SOL_IP, IP_BIND_ADDRESS_NO_PORT, kept, ANY),
	NUMBER(SOL_IPV6, IPV6_RECVERR, kept, ANY),
	NUMBER(SOL_IPV6, IPV6_MTU_DISCOVER, kept, 0, IPV6_PMTUDISC_OMIT, EINVAL),
	NUMBER(SOL_IPV6, IPV6_UNICAST_HOPS, hops, -1, 255, EINVAL),
	NUMBER(SOL_IPV6, IPV6_V6ONLY, v6only, ANY),
	NUMBER(IPPROTO_TCP, TCP_NODELAY, nodelay, ANY),
	NUMBER(IPPROTO_TCP, TCP_CORK, cork, ANY),
	NUMBER(IPPROTO_TCP, TCP_MAXSEG, maxseg, 88, 32767, EINVAL),
	NUMBER(IPPROTO_TCP, TCP_KEEPIDLE, keep_idle, 1, 32767, EINVAL),
	NUMBER(IPPROTO_TCP, TCP_KEEPINTVL, keep_interval, 1, 32767, EINVAL),
	NUMBER(IPPROTO_TCP, TCP_KEEPCNT, keep_count, 1, 127, EINVAL),
	NUMBER(IPPROTO_TCP, TCP_SYNCNT, syn_count, 1, 127, EINVAL),
	NUMBER(IPPROTO_TCP, TCP_LINGER2, linger2, ANY),
	NUMBER(IPPROTO_TCP, TCP_DEFER_ACCEPT, defer_accept, ANY),
	NUMBER(IPPROTO_TCP, TCP_WINDOW_CLAMP, window_clamp, ANY),
	NUMBER(IPPROTO_TCP, TCP_USER_TIMEOUT, user_timeout_ms, 0, INT32_MAX, EINVAL),
	NUMBER(IPPROTO_TCP, TCP_QUICKACK, quickack, ANY),
	NUMBER(IPPROTO_TCP, TCP_NOTSENT_LOWAT, notsent_lowat, ANY),
	NUMBER(IPPROTO_TCP, TCP_INQ, inq, 0, 1, EINVAL),
};

static const struct number *number_find(int level, int name)
{
	if (level == SOL_IPV6 && name == IPV6_TCLASS) {
		level = SOL_IP;
		name = IP_TOS;
	}
	for (unsigned i = 0; i < RP_ARRAY_SIZE(numbers); i++)
		if (numbers[i].level == level && numbers[i].name == name)
			return &numbers[i];
	return NULL;
}

static int *number_of(struct pd_sock *s, const struct number *n)
{
	return (int *)((uint8_t *)&s->opt + n->offset);
}

/* What a new value does to a connection that is there already. */
static void number_apply(struct pd_sock *s, const struct number *n, int value)
{
	uint64_t idle_ns, interval_ns;
	uint32_t probes;

	if (s->state == PD_LISTEN)
		pd_relisten(s);
	if (!s->conn)
		return;
	if ((n->level == SOL_SOCKET && n->name == SO_KEEPALIVE) ||
		(n->level == IPPROTO_TCP && s->opt.keepalive &&
			(n->name == TCP_KEEPIDLE || n->name == TCP_KEEPINTVL ||
				n->name == TCP_KEEPCNT))) {
		pd_keepalive(s, &idle_ns, &interval_ns, &probes);
		rp_tcp_set_keepalive(
			s->conn, s->opt.keepalive ? idle_ns : 0, interval_ns, probes, pd_now());
	}
	if (n->level != IPPROTO_TCP)
		return;
	/* What waits goes now, though it be corked. */
	if (n->name == TCP_NODELAY && value)
		s->flush = true;
	if (n->name == TCP_CORK && !value)
		s->cork_ns = 0;
	if (n->name == TCP_USER_TIMEOUT)
		rp_tcp_set_user_timeout(s->conn, (uint64_t)value * RP_NS_PER_MS, pd_now());
	if (n->name == TCP_QUICKACK && value)
		rp_tcp_ack_now(s->conn);
	pd_push(s);
	pd_settle();
}

static int set_struct(struct pd_sock *s, int name, const void *value, socklen_t length)
{
	struct linger l;
	struct timeval tv;

	if (name == SO_LINGER) {
		if (length < sizeof(l))
			return pd_fail(EINVAL);
		memcpy(&l, value, sizeof(l));
		s->opt.linger_on = l.l_onoff;
		s->opt.linger_s = l.l_linger;
		return 0;
	}
	if (length < sizeof(tv))
		return pd_fail(EINVAL);
	memcpy(&tv, value, sizeof(tv));
	if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
		return pd_fail(EDOM);
	*(name == SO_RCVTIMEO ? &s->opt.rcvtimeo_ns : &s->opt.sndtimeo_ns) =
		(uint64_t)tv.tv_sec * RP_NS_PER_S + (uint64_t)tv.tv_usec * RP_NS_PER_US;
	return 0;
}

static int set_congestion(struct pd_sock *s, const void *value, socklen_t length)
{
	char name[sizeof(s->opt.congestion)] = "";

	memcpy(name, value, RP_MIN((size_t)length, sizeof(name) - 1));
	if (strcmp(name, "reno") != 0 && strcmp(name, "cubic") != 0 && strcmp(name, "dctcp") != 0)
		return pd_fail(ENOENT);
	memcpy(s->opt.congestion, name, sizeof(name));
	return 0;
}

static int do_setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
	struct pd_sock *s = pd_sock_get(fd);
	const struct number *n;
	int v;

	if (!s)
		return -1;
	if (level == SOL_SOCKET &&
		(name == SO_LINGER || name == SO_RCVTIMEO || name == SO_SNDTIMEO))
		return set_struct(s, name, value, length);
	if (level == IPPROTO_TCP && name == TCP_CONGESTION)
		return set_congestion(s, value, length);
	/* Of IP a byte will do (ip(7)). */
	if (level == SOL_IP && length >= 1 && length < sizeof(v))
		v = *(const uint8_t *)value;
	else if (length < sizeof(v))
		return pd_fail(EINVAL);
	else
		memcpy(&v, value, sizeof(v));
	if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_RCVBUFFORCE)) {
		s->opt.rcvbuf = RP_MAX(v, 1152);
		return 0;
	}
	if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_SNDBUFFORCE)) {
		s->opt.sndbuf = RP_MAX(v, 2304);
		return 0;
	}
	n = number_find(level, name);
	if (!n)
		return pd_fail(ENOPROTOOPT);
	if (v < n->least || v > n->most)
		return pd_fail(n->error);
	if (level == SOL_SOCKET && name == SO_RCVLOWAT)
		v = RP_MAX(v, 1);
	if (level == SOL_SOCKET && name == SO_TIMESTAMPING &&
		v & ~s->opt.timestamping & SOF_TIMESTAMPING_OPT_ID) {
		if (!s->conn)
			return pd_fail(EINVAL); /* there is nothing to count from */
		s->timestamp_base = pd_acked(s);
	}
	*number_of(s, n) = v;
	number_apply(s, n, v);
	return 0;
}

int pd_setsockopt(void *u, int fd, int level, int name, const void *value, socklen_t length)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_setsockopt(fd, level, name, value, length);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

/* Reading them. */

static int give(void *value, socklen_t *length, const void *from, size_t size)
{
	size_t n = RP_MIN((size_t)*length, size);

	memcpy(value, from, n);
	*length = (socklen_t)n;
	return 0;
}

static int give_number(void *value, socklen_t *length, int number)
{
	return give(value, length, &number, sizeof(number));
}

/* Linux's array: bytes held, and the limits of the buffers. */
static int get_meminfo(const struct pd_sock *s, void *value, socklen_t *length)
{
	enum { RMEM, RCVBUF, WMEM, SNDBUF, FORWARD, QUEUED, OPTMEM, BACKLOG, DROPS, COUNT };
	uint32_t m[COUNT] = {
		[RMEM] = (uint32_t)s->rx_length,
		[RCVBUF] = (uint32_t)(s->opt.rcvbuf ? 2 * s->opt.rcvbuf : pd.knobs.rmem[1]),
		[SNDBUF] = (uint32_t)(s->opt.sndbuf ? 2 * s->opt.sndbuf : pd.knobs.wmem[1]),
		[QUEUED] = pd_outstanding(s),
	};

	return give(value, length, m, sizeof(m));
}

static int get_socket(struct pd_sock *s, int name, void *value, socklen_t *length)
{
	struct linger l = {s->opt.linger_on, s->opt.linger_s};
	uint64_t ns = name == SO_RCVTIMEO ? s->opt.rcvtimeo_ns : s->opt.sndtimeo_ns;
	struct timeval tv = {
		(time_t)(ns / RP_NS_PER_S), (suseconds_t)(ns % RP_NS_PER_S / RP_NS_PER_US)};

	switch (name) {
	case SO_ERROR:
		return give_number(value, length, pd_take_error(s));
	case SO_TYPE:
		return give_number(value, length, SOCK_STREAM);
	case SO_DOMAIN:
		return give_number(value, length, s->domain);
	case SO_PROTOCOL:
		return give_number(value, length, IPPROTO_TCP);
	case SO_ACCEPTCONN:
		return give_number(value, length, s->state == PD_LISTEN);
	case SO_RCVBUF:
		return give_number(
			value, length, s->opt.rcvbuf ? 2 * s->opt.rcvbuf : pd.knobs.rmem[1]);
	case SO_SNDBUF:
		return give_number(
			value, length, s->opt.sndbuf ? 2 * s->opt.sndbuf : pd.knobs.wmem[1]);
	case SO_LINGER:
		return give(value, length, &l, sizeof(l));
	case SO_MEMINFO:
		return get_meminfo(s, value, length);
	case SO_RCVTIMEO:
	case SO_SNDTIMEO:
		return give(value, length, &tv, sizeof(tv));
	default:
		return 1;
	}
}

static int get_tcp(struct pd_sock *s, int name, void *value, socklen_t *length)
{
	struct rp_tcp_info info;
	const char *cc;

	switch (name) {
	case TCP_INFO:
		*length = (socklen_t)pd_tcp_info(s, value, *length);
		return 0;
	case TCP_MAXSEG:
		if (!s->conn)
			return give_number(value, length, s->opt.maxseg ? s->opt.maxseg : 536);
		rp_tcp_conn_info(s->conn, &info);
		return give_number(value, length, info.mss);
	case TCP_CONGESTION:
		cc = s->opt.congestion[0] ? s->opt.congestion : pd.knobs.congestion;
		if (s->conn) {
			rp_tcp_conn_info(s->conn, &info);
			cc = info.congestion;
		}
		if (!cc[0])
			cc = "cubic";
		return give(value, length, cc, RP_MIN(strlen(cc) + 1, (size_t)16));
	case TCP_CC_INFO:
		*length = 0; /* nothing that Linux has a struct for */
		return 0;
	case TCP_KEEPIDLE:
		return give_number(
			value, length, s->opt.keep_idle ? s->opt.keep_idle : pd.knobs.keep_idle);
	case TCP_KEEPINTVL:
		return give_number(value, length,
			s->opt.keep_interval ? s->opt.keep_interval : pd.knobs.keep_interval);
	case TCP_KEEPCNT:
		return give_number(
			value, length, s->opt.keep_count ? s->opt.keep_count : pd.knobs.keep_count);
	default:
		return 1;
	}
}

static int do_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
	struct pd_sock *s = pd_sock_get(fd);
	const struct number *n;
	int rc = 1;

	if (!s)
		return -1;
	if (level == SOL_SOCKET)
		rc = get_socket(s, name, value, length);
	else if (level == IPPROTO_TCP)
		rc = get_tcp(s, name, value, length);
	if (rc <= 0)
		return rc;
	n = number_find(level, name);
	if (!n)
		return pd_fail(ENOPROTOOPT);
	return give_number(value, length, *number_of(s, n));
}

int pd_getsockopt(void *u, int fd, int level, int name, void *value, socklen_t *length)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_getsockopt(fd, level, name, value, length);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

/* fcntl, ioctl. */

static int do_fcntl(struct pd_sock *s, int cmd, long arg)
{
	switch (cmd) {
	case F_GETFL:
		return O_RDWR | (s->nonblock ? O_NONBLOCK : 0);
	case F_SETFL:
		s->nonblock = arg & O_NONBLOCK;
		return 0;
	default:
		return (int)syscall(SYS_fcntl, s->fd, cmd, arg);
	}
}

int pd_fcntl(void *u, int fd, int cmd, ...)
{
	struct pd_sock *s;
	va_list args;
	long arg;
	int rc;

	va_start(args, cmd);
	arg = va_arg(args, long);
	va_end(args);
	pthread_mutex_lock(&pd.lock);
	s = pd_sock_of(fd);
	rc = s ? do_fcntl(s, cmd, arg) : (int)syscall(SYS_fcntl, fd, cmd, arg);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

static int do_ioctl(struct pd_sock *s, unsigned long request, int *value)
{
	struct rp_tcp_info info;

	switch (request) {
	case SIOCINQ: /* FIONREAD */
		if (s->state == PD_LISTEN)
			return pd_fail(EINVAL);
		*value = (int)s->rx_length;
		return 0;
	case SIOCOUTQ: /* TIOCOUTQ */
		if (s->state == PD_LISTEN)
			return pd_fail(EINVAL);
		*value = (int)pd_outstanding(s);
		return 0;
	case SIOCOUTQNSD:
		if (s->state == PD_LISTEN)
			return pd_fail(EINVAL);
		*value = (int)s->tx_length;
		if (s->conn) {
			rp_tcp_conn_info(s->conn, &info);
			*value += (int)info.unsent;
		}
		return 0;
	case FIONBIO:
		s->nonblock = *value != 0;
		return 0;
	default:
		return pd_fail(ENOTTY);
	}
}

int pd_ioctl(void *u, int fd, unsigned long request, ...)
{
	struct pd_sock *s;
	va_list args;
	void *arg;
	int rc;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	pthread_mutex_lock(&pd.lock);
	s = pd_sock_of(fd);
	rc = s ? do_ioctl(s, request, arg) : ioctl(fd, request, arg);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}
