/* SPDX-License-Identifier: Apache-2.0 */
#include "selftest.h"

#include <pthread.h>
#include <sched.h>

/* Calls that block, poll and epoll, options, what is held back. */

/* Blocking calls, on a thread of their own. */

struct blocked {
	int fd;
	char buf[64];
	ssize_t result;
	long long end_us;
	_Atomic int tid, ended;
};

static void *blocked_read(void *arg)
{
	struct blocked *b = arg;

	b->tid = gettid();
	b->result = t.recv(U, b->fd, b->buf, 20, MSG_WAITALL);
	b->end_us = now_us();
	b->ended = 1;
	return NULL;
}

/* Until the thread sleeps: in its call, since nothing else holds it up. */
static void await_sleep(const struct blocked *b)
{
	char path[64], line[256] = "";

	while (!b->tid)
		sched_yield();
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", b->tid);
	while (!strstr(line, ") S ")) {
		FILE *f = fopen(path, "r");

		assert_non_null(f);
		if (!fgets(line, sizeof(line), f))
			line[0] = '\0';
		fclose(f);
		sched_yield();
	}
}

void blocked_on_a_thread(void **state)
{
	int listener;
	struct blocked b = {.fd = accepted(&listener)};
	long long start = now_us();
	pthread_t thread;

	pthread_create(&thread, NULL, blocked_read, &b);
	await_sleep(&b);
	t.usleep(U, 1000000);
	assert_false(b.ended);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "0123456789", .length = 10);
	t.usleep(U, 1000000);
	assert_false(b.ended);
	in(.flags = PSH | ACK, .seq = 11, .ack = 1, .data = "0123456789", .length = 10);
	/* The call has ended before this one goes on, and at its own time. */
	t.usleep(U, 3000000);
	pthread_join(thread, NULL);
	assert_int_equal(b.result, 20);
	assert_memory_equal(b.buf, "01234567890123456789", 20);
	assert_in_range(b.end_us - start, 2000000, 2000100);
}

void blocked_here(void **state)
{
	int listener, fd = accepted(&listener);
	struct timeval tv = {2, 0};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	long long start;
	char buf[4];

	/* Nobody else can let time pass: the call does. */
	start = now_us();
	assert_int_equal(t.poll(U, &p, 1, 500), 0);
	assert_in_range(now_us() - start, 500000, 500100);
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
	start = now_us();
	assert_errno(t.read(U, fd, buf, 4), EAGAIN);
	assert_in_range(now_us() - start, 2000000, 2000100);
}

void epolls(void **state)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = 5}, got[2];
	int listener, fd = accepted(&listener), ep = t.epoll_create(U, 1), v;
	static char large[20000];
	char buf[16];

	assert_true(ep >= 0);
	assert_errno(t.epoll_ctl(U, ep, EPOLL_CTL_MOD, fd, &e), ENOENT);
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_ADD, fd, &e), 0);
	assert_errno(t.epoll_ctl(U, ep, EPOLL_CTL_ADD, fd, &e), EEXIST);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(got[0].events, EPOLLOUT);
	assert_int_equal(got[0].data.u32, 5);
	/* Edge triggered: not again before something happens. */
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "abcd", .length = 4);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, -1), 1);
	assert_int_equal(got[0].events, EPOLLIN | EPOLLOUT);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	/* Room again after a write found none. */
	v = 4096;
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v)), 0);
	assert_int_equal(t.send(U, fd, large, sizeof(large), MSG_DONTWAIT), 8192);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	in(.flags = ACK, .seq = 5, .ack = 8193);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(got[0].events, EPOLLIN | EPOLLOUT);
	/* Level triggered, once. */
	e.events = EPOLLIN | EPOLLONESHOT;
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_MOD, fd, &e), 0);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	e.events = EPOLLIN;
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_MOD, fd, &e), 0);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(t.read(U, fd, buf, 16), 4);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	in(.flags = FIN | ACK, .seq = 5, .ack = 8193);
	e.events = EPOLLIN | EPOLLRDHUP;
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_MOD, fd, &e), 0);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(got[0].events, EPOLLIN | EPOLLRDHUP);
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_DEL, fd, NULL), 0);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	assert_int_equal(t.close(U, ep), 0);
}

void nagle_and_cork(void **state)
{
	int listener, fd = accepted(&listener), one = 1, zero = 0;

	assert_int_equal(t.write(U, fd, "a", 1), 1);
	out(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "a", .length = 1);
	assert_int_equal(t.write(U, fd, "b", 1), 1);
	assert_int_equal(t.write(U, fd, "c", 1), 1);
	in(.flags = ACK, .seq = 1, .ack = 2);
	out(.flags = PSH | ACK, .seq = 2, .ack = 1, .data = "bc", .length = 2);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	assert_int_equal(t.write(U, fd, "d", 1), 1);
	out(.flags = PSH | ACK, .seq = 4, .ack = 1, .data = "d", .length = 1);
	in(.flags = ACK, .seq = 1, .ack = 5);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_CORK, &one, sizeof(one)), 0);
	assert_int_equal(t.write(U, fd, "e", 1), 1);
	assert_int_equal(t.write(U, fd, "f", 1), 1);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_CORK, &zero, sizeof(zero)), 0);
	out(.flags = PSH | ACK, .seq = 5, .ack = 1, .data = "ef", .length = 2);
	in(.flags = ACK, .seq = 1, .ack = 7);
	assert_int_equal(t.send(U, fd, "g", 1, MSG_MORE), 1);
	assert_int_equal(t.send(U, fd, "h", 1, 0), 1);
	out(.flags = PSH | ACK, .seq = 7, .ack = 1, .data = "gh", .length = 2);
}

void held_back(void **state)
{
	int listener, fd = accepted(&listener), one = 1;
	long long start;

	/* MSG_MORE holds for a timeout at most: 300 ms here. */
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	assert_int_equal(t.send(U, fd, "a", 1, MSG_MORE), 1);
	start = now_us();
	assert_in_range(
		out(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "a", .length = 1) - start,
		298000, 302000);
	/* Or until the next ACK. */
	assert_int_equal(t.send(U, fd, "bc", 2, MSG_MORE), 2);
	in(.flags = ACK, .seq = 1, .ack = 2);
	out(.flags = PSH | ACK, .seq = 2, .ack = 1, .data = "bc", .length = 2);
	in(.flags = ACK, .seq = 1, .ack = 4);
	/* TCP_NODELAY pushes what is corked. */
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_CORK, &one, sizeof(one)), 0);
	assert_int_equal(t.write(U, fd, "de", 2), 2);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	out(.flags = PSH | ACK, .seq = 4, .ack = 1, .data = "de", .length = 2);
}

static int inq_of(int fd, size_t want)
{
	static char buf[4096];
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {buf, want};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c;
	int left;

	assert_int_equal(t.recvmsg(U, fd, &m, 0), want);
	c = CMSG_FIRSTHDR(&m);
	assert_non_null(c);
	assert_int_equal(c->cmsg_level, IPPROTO_TCP);
	assert_int_equal(c->cmsg_type, TCP_CM_INQ);
	memcpy(&left, CMSG_DATA(c), sizeof(left));
	return left;
}

void left_in_queue(void **state)
{
	int listener, fd = accepted(&listener), one = 1;

	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_INQ, &one, sizeof(one)), 0);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .length = 1000);
	assert_int_equal(inq_of(fd, 200), 800);
	assert_int_equal(inq_of(fd, 800), 0);
	in(.flags = FIN | ACK, .seq = 1001, .ack = 1, .length = 100);
	assert_int_equal(inq_of(fd, 100), 1); /* the end can be read */
}

void bad_addresses(void **state)
{
	int listener, fd = accepted(&listener);

	assert_errno(t.write(U, fd, NULL, 1000), EFAULT);
	assert_errno(t.send(U, fd, NULL, 1000, 0), EFAULT);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .length = 10);
	assert_errno(t.read(U, fd, NULL, 1000), EFAULT);
	assert_errno(t.recv(U, fd, NULL, 1000, 0), EFAULT);
	assert_int_equal(t.recv(U, fd, NULL, 1000, MSG_TRUNC), 10);
}

void times_of_sending(void **state)
{
	static char data[8000];
	int listener, fd = accepted(&listener), size = 4096, one = 1;
	struct tcp_info i;

	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	t.usleep(U, 50000);
	assert_int_equal(t.send(U, fd, data, 8000, MSG_DONTWAIT), 8000);
	t.usleep(U, 20000);
	assert_int_equal(t.send(U, fd, data, 8000, MSG_DONTWAIT), 192);
	t.usleep(U, 30000);
	in(.flags = ACK, .seq = 1, .ack = 8193);
	t.usleep(U, 50000);
	i = info_of(fd);
	assert_in_range(i.tcpi_busy_time, 49900, 50100);
	assert_in_range(i.tcpi_sndbuf_limited, 29900, 30100);
	assert_int_equal(i.tcpi_rwnd_limited, 0);
}

void windows_that_limit(void **state)
{
	static char data[3000];
	int listener, fd = accepted(&listener), one = 1;
	struct tcp_info i;

	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	assert_int_equal(t.send(U, fd, data, 1000, 0), 1000);
	out(.flags = PSH | ACK, .seq = 1, .ack = 1, .length = 1000);
	t.usleep(U, 30000);
	in_segment((struct segment){.flags = ACK, .seq = 1, .ack = 1001, .window = 100});
	t.usleep(U, 10000);
	i = info_of(fd);
	assert_in_range(i.tcpi_busy_time, 29900, 30100);
	assert_int_equal(t.send(U, fd, data, 1000, 0), 1000);
	/* Time that is not over yet counts as well. */
	t.usleep(U, 20000);
	i = info_of(fd);
	assert_in_range(i.tcpi_rwnd_limited, 19900, 20100);
	t.usleep(U, 20000);
	in_segment((struct segment){.flags = ACK, .seq = 1, .ack = 1001, .window = 5000});
	i = info_of(fd);
	assert_in_range(i.tcpi_rwnd_limited, 39900, 40100);
	assert_in_range(i.tcpi_busy_time, 69800, 70200);
	assert_int_equal(i.tcpi_sndbuf_limited, 0);
}

void marks_that_reduce(void **state)
{
	static char data[4 * 1460];
	int listener = listening(), fd;

	in(.flags = SYN | ECE | CWR, .options = opt_mss, .options_length = 4);
	out(.flags = SYN | ACK | ECE, .ack = 1, .options = opt_mss, .options_length = 4);
	in(.flags = ACK, .seq = 1, .ack = 1);
	fd = t.accept(U, listener, NULL, NULL);
	assert_int_equal(t.send(U, fd, data, sizeof(data), 0), sizeof(data));
	for (uint32_t i = 0; i < 4; i++)
		out(.flags = ACK | (i == 3 ? PSH : 0), .seq = 1 + 1460 * i, .ack = 1,
			.length = 1460, .tos = 2);
	assert_int_equal(info_of(fd).tcpi_ca_state, 0);
	in(.flags = ACK | ECE, .seq = 1, .ack = 1461);
	assert_int_equal(info_of(fd).tcpi_ca_state, 2); /* CWR */
	assert_in_range(info_of(fd).tcpi_snd_cwnd, 1, 9);
	in(.flags = ACK, .seq = 1, .ack = 1 + sizeof(data));
	assert_int_equal(info_of(fd).tcpi_ca_state, 0);
}

void ttl_and_tos(void **state)
{
	int listener = listening(), ttl = 4, tos = 0x28, fd;

	assert_int_equal(t.setsockopt(U, listener, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl)), 0);
	in(.flags = SYN, .options = opt_mss, .options_length = 4);
	out(.flags = SYN | ACK, .ack = 1, .options = opt_mss, .options_length = 4, .ttl = 4);
	in(.flags = ACK, .seq = 1, .ack = 1);
	fd = t.accept(U, listener, NULL, NULL);
	assert_int_equal(t.write(U, fd, "a", 1), 1);
	out(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "a", .length = 1, .ttl = 4);
	ttl = 6;
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_IP, IP_TTL, &ttl, sizeof(ttl)), 0);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos)), 0);
	in(.flags = ACK, .seq = 1, .ack = 2);
	assert_int_equal(t.close(U, fd), 0);
	out(.flags = FIN | ACK, .seq = 2, .ack = 1, .ttl = 6, .tos = 0x28);
}

void records_end_segments(void **state)
{
	static char data[14600];
	int listener, fd = accepted(&listener);

	assert_int_equal(t.send(U, fd, data, 14600, 0), 14600);
	for (uint32_t i = 0; i < 10; i++)
		out(.flags = ACK | (i == 9 ? PSH : 0), .seq = 1 + 1460 * i, .ack = 1,
			.length = 1460);
	/* The window is full; two records and what follows do not become one segment. */
	assert_int_equal(t.send(U, fd, data, 100, MSG_EOR), 100);
	assert_int_equal(t.send(U, fd, data, 100, MSG_EOR), 100);
	assert_int_equal(t.send(U, fd, data, 1460, 0), 1460);
	in(.flags = ACK, .seq = 1, .ack = 14601);
	out(.flags = PSH | ACK, .seq = 14601, .ack = 1, .length = 100);
	out(.flags = PSH | ACK, .seq = 14701, .ack = 1, .length = 100);
	out(.flags = PSH | ACK, .seq = 14801, .ack = 1, .length = 1460);
}

/* What a listener is told after it listens holds for those who dial then. */
void listener_told_later(void **state)
{
	static const uint8_t mss[4] = {2, 4, 1100 >> 8, 1100 & 255};
	int listener = listening(), size = 1100, fd;
	socklen_t length = sizeof(size);
	uint8_t tos = 0x28;
	struct tcp_info i;

	assert_int_equal(t.setsockopt(U, listener, IPPROTO_TCP, TCP_MAXSEG, &size, length), 0);
	assert_int_equal(t.setsockopt(U, listener, IPPROTO_IP, IP_TOS, &tos, 1), 0);
	in(.flags = SYN, .options = opt_mss, .options_length = 4);
	out(.flags = SYN | ACK, .ack = 1, .options = mss, .options_length = 4, .tos = 0x28);
	in(.flags = ACK, .seq = 1, .ack = 1);
	fd = t.accept(U, listener, NULL, NULL);
	t.usleep(U, 500000);
	i = info_of(fd);
	assert_int_equal(i.tcpi_advmss, 1100);
	assert_int_equal(i.tcpi_snd_mss, 1100);
	/* Since it is open, where there was none. */
	assert_in_range(i.tcpi_last_data_recv, 499, 501);
	in(.flags = ACK, .seq = 1, .ack = 1, .data = "a", .length = 1);
	assert_int_equal(info_of(fd).tcpi_last_data_recv, 0);
}

void options(void **state)
{
	int listener, fd = accepted(&listener), v = 30000;
	socklen_t length = sizeof(v);

	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v)), 0);
	assert_int_equal(t.getsockopt(U, fd, SOL_SOCKET, SO_SNDBUF, &v, &length), 0);
	assert_int_equal(v, 60000); /* as Linux tells it */
	assert_int_equal(t.getsockopt(U, fd, IPPROTO_TCP, TCP_MAXSEG, &v, &length), 0);
	assert_int_equal(v, 1460);
	assert_int_equal(t.getsockopt(U, listener, SOL_SOCKET, SO_ACCEPTCONN, &v, &length), 0);
	assert_int_equal(v, 1);
	v = 0;
	assert_errno(t.setsockopt(U, fd, IPPROTO_TCP, TCP_KEEPIDLE, &v, sizeof(v)), EINVAL);
	v = 11;
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_KEEPIDLE, &v, sizeof(v)), 0);
	v = 0;
	assert_int_equal(t.getsockopt(U, fd, IPPROTO_TCP, TCP_KEEPIDLE, &v, &length), 0);
	assert_int_equal(v, 11);
	assert_errno(t.setsockopt(U, fd, IPPROTO_TCP, 9999, &v, sizeof(v)), ENOPROTOOPT);
	assert_errno(t.getsockopt(U, 1000, SOL_SOCKET, SO_ERROR, &v, &length), EBADF);
	/* A descriptor that is not ours goes to the system. */
	assert_errno(exported_getsockopt(0, SOL_SOCKET, SO_ERROR, &v, &length), ENOTSOCK);
	/* 3 s without an answer. */
	v = 3000;
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &v, sizeof(v)), 0);
	assert_int_equal(t.write(U, fd, "a", 1), 1);
	t.usleep(U, 2900000);
	assert_int_equal(info_of(fd).tcpi_state, 1);
	t.usleep(U, 200000);
	assert_errno(t.read(U, fd, &v, 1), ETIMEDOUT);
}

void pipes(void **state)
{
	int listener, fd = accepted(&listener), fds[2];
	char buf[8];

	assert_int_equal(t.pipe(U, fds), 0);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "spliced", .length = 7);
	assert_int_equal(t.splice(U, fd, NULL, fds[1], NULL, 100, 0), 7);
	assert_int_equal(t.read(U, fds[0], buf, 8), 7);
	assert_memory_equal(buf, "spliced", 7);
	assert_int_equal(t.write(U, fds[1], "back", 4), 4);
	assert_int_equal(t.splice(U, fds[0], NULL, fd, NULL, 4, 0), 4);
	out(.flags = PSH | ACK, .seq = 1, .ack = 8, .data = "back", .length = 4);
	assert_int_equal(t.close(U, fds[0]), 0);
	assert_int_equal(t.close(U, fds[1]), 0);
}
