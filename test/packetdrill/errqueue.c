/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h> /* linux/errqueue.h does not bring it */

#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <base/units.h>

#include "pd.h"

/*
 * The error queue of a socket as Linux has it: that the data of a send with MSG_ZEROCOPY is not
 * needed any more (which was copied here, as for any interface that is not a device), and when the
 * last byte of a send was queued, sent and acknowledged (SO_TIMESTAMPING).
 */

#define WANTED(s, flag) (((s)->opt.timestamping & (flag)) != 0)

static void *grown(void *array, uint32_t count, size_t size)
{
	/* Doubles at each power of two. */
	if (count & (count - 1))
		return array;
	array = realloc(array, size * (count ? 2 * count : 1));
	if (!array)
		abort();
	return array;
}

void pd_errqueue_free(struct pd_sock *s)
{
	free(s->pending);
	free(s->notices);
	s->pending = NULL;
	s->notices = NULL;
	s->pending_count = s->notice_count = 0;
}

static void pending_add(struct pd_sock *s, enum pd_notice_kind kind, uint32_t id, uint64_t end)
{
	s->pending = grown(s->pending, s->pending_count, sizeof(*s->pending));
	s->pending[s->pending_count++] = (struct pd_pending){.kind = kind, .id = id, .end = end};
}

void pd_errqueue_sent(struct pd_sock *s, uint64_t end, int flags)
{
	uint32_t id = (uint32_t)(end - 1 - s->timestamp_base);

	if (flags & MSG_ZEROCOPY && s->opt.zerocopy)
		pending_add(s, PD_NOTICE_ZEROCOPY, s->zerocopy_next++, end);
	if (!WANTED(s, SOF_TIMESTAMPING_OPT_ID))
		id = 0;
	if (WANTED(s, SOF_TIMESTAMPING_TX_SCHED))
		pending_add(s, PD_NOTICE_SCHED, id, end);
	if (WANTED(s, SOF_TIMESTAMPING_TX_SOFTWARE))
		pending_add(s, PD_NOTICE_SENT, id, end);
	if (WANTED(s, SOF_TIMESTAMPING_TX_ACK))
		pending_add(s, PD_NOTICE_ACKED, id, end);
}

static void notice_add(struct pd_sock *s, const struct pd_pending *p)
{
	struct pd_notice *last = s->notice_count ? &s->notices[s->notice_count - 1] : NULL;

	pd_changed(s);
	if (p->kind == PD_NOTICE_ZEROCOPY && last && last->kind == p->kind &&
		last->hi + 1 == p->id) {
		last->hi = p->id; /* those in a row are told of together */
		return;
	}
	s->notices = grown(s->notices, s->notice_count, sizeof(*s->notices));
	s->notices[s->notice_count++] =
		(struct pd_notice){.kind = p->kind, .lo = p->id, .hi = p->id, .at_ns = pd_now()};
}

void pd_errqueue_look(struct pd_sock *s)
{
	uint64_t acked, sent;
	uint32_t left = 0;
	struct rp_tcp_info info;

	if (s->pending_count == 0)
		return;
	acked = sent = UINT64_MAX; /* without a connection nothing is held any more */
	if (s->conn) {
		rp_tcp_conn_info(s->conn, &info);
		acked = pd_acked(s);
		sent = s->pushed - RP_MIN(s->pushed, (uint64_t)info.unsent);
	}
	for (uint32_t i = 0; i < s->pending_count; i++) {
		const struct pd_pending p = s->pending[i];
		bool wire = p.kind == PD_NOTICE_SCHED || p.kind == PD_NOTICE_SENT;

		if (p.end > (wire ? sent : acked))
			s->pending[left++] = p;
		else if (s->conn || p.kind == PD_NOTICE_ZEROCOPY)
			notice_add(s, &p);
	}
	s->pending_count = left;
}

/* One item of control data; false: no room. */
static bool put(struct msghdr *msg, size_t *used, int level, int type, const void *data, size_t n)
{
	struct cmsghdr c = {.cmsg_len = CMSG_LEN(n), .cmsg_level = level, .cmsg_type = type};
	uint8_t *at = (uint8_t *)msg->msg_control + *used;

	if (!msg->msg_control || *used + CMSG_SPACE(n) > msg->msg_controllen) {
		msg->msg_flags |= MSG_CTRUNC;
		return false;
	}
	memset(at, 0, CMSG_SPACE(n));
	memcpy(at, &c, sizeof(c));
	memcpy(at + CMSG_LEN(0), data, n);
	*used += CMSG_SPACE(n);
	return true;
}

static void put_times(struct msghdr *msg, size_t *used, const struct pd_notice *n)
{
	struct timespec times[3] = {{.tv_sec = (time_t)(n->at_ns / RP_NS_PER_S),
		.tv_nsec = (long)(n->at_ns % RP_NS_PER_S)}};

	put(msg, used, SOL_SOCKET, SCM_TIMESTAMPING, times, sizeof(times));
}

static void put_error(
	const struct pd_sock *s, struct msghdr *msg, size_t *used, const struct pd_notice *n)
{
	static const uint32_t infos[] = {[PD_NOTICE_SCHED] = SCM_TSTAMP_SCHED,
		[PD_NOTICE_SENT] = SCM_TSTAMP_SND,
		[PD_NOTICE_ACKED] = SCM_TSTAMP_ACK};
	struct {
		struct sock_extended_err e;
		struct sockaddr_in6 offender; /* none */
	} error = {0};
	bool six = s->domain == AF_INET6;

	if (n->kind == PD_NOTICE_ZEROCOPY) {
		error.e.ee_origin = SO_EE_ORIGIN_ZEROCOPY;
		error.e.ee_code = SO_EE_CODE_ZEROCOPY_COPIED;
		error.e.ee_info = n->lo;
		error.e.ee_data = n->hi;
	} else {
		error.e.ee_errno = ENOMSG;
		error.e.ee_origin = SO_EE_ORIGIN_TIMESTAMPING;
		error.e.ee_info = infos[n->kind];
		error.e.ee_data = n->lo;
	}
	put(msg, used, six ? SOL_IPV6 : SOL_IP, six ? IPV6_RECVERR : IP_RECVERR, &error,
		sizeof(error.e) + (six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)));
}

ssize_t pd_errqueue_read(struct pd_sock *s, struct msghdr *msg)
{
	struct pd_notice n;
	size_t used = 0;

	if (s->notice_count == 0)
		return pd_fail(EAGAIN);
	n = s->notices[0];
	s->notice_count--;
	memmove(s->notices, s->notices + 1, s->notice_count * sizeof(n));
	msg->msg_flags = MSG_ERRQUEUE;
	if (n.kind != PD_NOTICE_ZEROCOPY) {
		/* The packet would come along, for which nobody leaves room. */
		if (!WANTED(s, SOF_TIMESTAMPING_OPT_TSONLY))
			msg->msg_flags |= MSG_TRUNC;
		if (WANTED(s, SOF_TIMESTAMPING_SOFTWARE))
			put_times(msg, &used, &n);
	}
	put_error(s, msg, &used, &n);
	msg->msg_controllen = used;
	return 0;
}
