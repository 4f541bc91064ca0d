/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h> /* linux/errqueue.h does not bring it */

#include "selftest.h"

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>

struct told {
	struct sock_extended_err e;
	struct timespec at;
	bool timed;
	int flags;
};

/* The next item of the error queue, whose address family is that of the socket. */
static int next(int fd, struct told *told)
{
	char control[256];
	struct msghdr m = {.msg_control = control, .msg_controllen = sizeof(control)};
	int rc = (int)t.recvmsg(U, fd, &m, MSG_ERRQUEUE);

	*told = (struct told){.flags = m.msg_flags};
	if (rc < 0)
		return rc;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPING) {
			memcpy(&told->at, CMSG_DATA(c), sizeof(told->at));
			told->timed = true;
		} else if (c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) {
			memcpy(&told->e, CMSG_DATA(c), sizeof(told->e));
		}
	}
	return rc;
}

void told_what_is_free(void **state)
{
	int listener, fd = accepted(&listener), one = 1, ep = t.epoll_create(U, 1);
	struct epoll_event e = {.events = EPOLLOUT | EPOLLET};
	struct told told;
	char data[1000] = {0};

	/* Without the option the flag means nothing. */
	assert_int_equal(t.send(U, fd, data, 10, MSG_ZEROCOPY), 10);
	out(.flags = PSH | ACK, .seq = 1, .ack = 1, .length = 10);
	in(.flags = ACK, .seq = 1, .ack = 11);
	assert_errno(next(fd, &told), EAGAIN);
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)), 0);
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_ADD, fd, &e), 0);
	assert_int_equal(t.epoll_wait(U, ep, &e, 1, 0), 1);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(t.send(U, fd, data, 1000, MSG_ZEROCOPY), 1000);
		out(.flags = PSH | ACK, .seq = 11 + 1000 * i, .ack = 1, .length = 1000);
		assert_int_equal(t.epoll_wait(U, ep, &e, 1, 0), i > 0);
		in(.flags = ACK, .seq = 1, .ack = 1011 + 1000 * i);
	}
	assert_int_equal(t.epoll_wait(U, ep, &e, 1, 0), 1);
	assert_int_equal(e.events, EPOLLOUT | EPOLLERR);
	/* Both in one. */
	assert_int_equal(next(fd, &told), 0);
	assert_int_equal(told.flags, MSG_ERRQUEUE);
	assert_int_equal(told.e.ee_origin, SO_EE_ORIGIN_ZEROCOPY);
	assert_int_equal(told.e.ee_code, SO_EE_CODE_ZEROCOPY_COPIED);
	assert_int_equal(told.e.ee_info, 0);
	assert_int_equal(told.e.ee_data, 1);
	assert_false(told.timed);
	assert_errno(next(fd, &told), EAGAIN);
	/* A reset gives back what was not acknowledged. */
	assert_int_equal(t.send(U, fd, data, 1000, MSG_ZEROCOPY), 1000);
	in(.flags = RST, .seq = 1);
	assert_int_equal(next(fd, &told), 0);
	assert_int_equal(told.e.ee_data, 2);
}

void told_when_it_went(void **state)
{
	static const uint32_t infos[] = {SCM_TSTAMP_SCHED, SCM_TSTAMP_SND, SCM_TSTAMP_ACK};
	static const int late_ms[] = {20, 20, 50};
	int listener = listening(), fd, one = 1;
	int flags = SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_SOFTWARE |
		    SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_ID;
	struct told told;
	char data[3000] = {0};
	long long begin, at;

	assert_errno(t.setsockopt(U, listener, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)),
		EINVAL);
	assert_int_equal(t.close(U, listener), 0);
	fd = accepted(&listener);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	in_segment((struct segment){.flags = ACK, .seq = 1, .ack = 1, .window = 1460});
	assert_int_equal(
		t.setsockopt(U, fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags)), 0);
	begin = now_us();
	/* The last byte leaves when the window lets it. */
	assert_int_equal(t.send(U, fd, data, 2000, 0), 2000);
	out(.flags = ACK, .seq = 1, .ack = 1, .length = 1460);
	t.usleep(U, 20000);
	assert_errno(next(fd, &told), EAGAIN);
	in(.flags = ACK, .seq = 1, .ack = 1461);
	out(.flags = PSH | ACK, .seq = 1461, .ack = 1, .length = 540);
	t.usleep(U, 30000);
	in(.flags = ACK, .seq = 1, .ack = 2001);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(next(fd, &told), 0);
		assert_int_equal(told.flags, MSG_ERRQUEUE | MSG_TRUNC);
		assert_int_equal(told.e.ee_errno, ENOMSG);
		assert_int_equal(told.e.ee_origin, SO_EE_ORIGIN_TIMESTAMPING);
		assert_int_equal(told.e.ee_info, infos[i]);
		assert_int_equal(told.e.ee_data, 1999);
		assert_true(told.timed);
		at = told.at.tv_sec * 1000000ll + told.at.tv_nsec / 1000 - begin;
		assert_in_range(at, late_ms[i] * 1000 - 100, late_ms[i] * 1000 + 100);
	}
	assert_errno(next(fd, &told), EAGAIN);
}
