/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/units.h>

#include "pd.h"

static uint64_t deadline_ms(int timeout_ms)
{
	return timeout_ms < 0 ? PD_EVER : pd_now() + (uint64_t)timeout_ms * RP_NS_PER_MS;
}

uint32_t pd_poll_mask(const struct pd_sock *s)
{
	bool ended = s->state == PD_ENDED || s->state == PD_NEW;
	bool in_shut = s->rd_shut || s->peer_fin || s->state == PD_ENDED;
	bool out_shut = s->wr_shut || s->state == PD_ENDED;
	uint32_t mask = 0;

	if (s->state == PD_LISTEN)
		return s->queued > 0 ? POLLIN | POLLRDNORM : 0;
	if (s->state == PD_EPOLL)
		return 0;
	if (ended || (in_shut && out_shut))
		mask |= POLLHUP;
	if (in_shut)
		mask |= POLLIN | POLLRDNORM | POLLRDHUP;
	if (s->state != PD_CONNECTING) {
		if (s->rx_length >= (size_t)RP_MAX(s->opt.rcvlowat, 1))
			mask |= POLLIN | POLLRDNORM;
		if (out_shut || ended || pd_writable(s))
			mask |= POLLOUT | POLLWRNORM;
	}
	if (s->error || s->notice_count > 0)
		mask |= POLLERR;
	return mask;
}

/* poll. */

struct polling {
	struct pollfd *fds;
	nfds_t n;
};

static int poll_fill(const struct polling *p)
{
	int count = 0;

	for (nfds_t i = 0; i < p->n; i++) {
		const struct pd_sock *s = pd_sock_of(p->fds[i].fd);
		uint32_t always = POLLERR | POLLHUP;

		p->fds[i].revents = 0;
		if (p->fds[i].fd < 0)
			continue;
		if (s)
			p->fds[i].revents =
				(short)(pd_poll_mask(s) & ((uint32_t)p->fds[i].events | always));
		else
			p->fds[i].revents = POLLNVAL;
		count += p->fds[i].revents != 0;
	}
	return count;
}

static bool poll_ready(void *ctx)
{
	return poll_fill(ctx) > 0;
}

int pd_poll(void *u, struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct polling p = {fds, n};
	int rc;

	pthread_mutex_lock(&pd.lock);
	pd_settle();
	if (timeout_ms != 0)
		pd_block(poll_ready, &p, deadline_ms(timeout_ms));
	rc = poll_fill(&p);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

/* epoll. */

int pd_epoll_create(void *u, int size)
{
	struct pd_sock *s;
	int fd = -1;

	if (size <= 0)
		return pd_fail(EINVAL);
	pthread_mutex_lock(&pd.lock);
	s = pd_sock_new(PD_EPOLL, true);
	if (s) {
		s->watches = calloc(PD_WATCHES_MAX, sizeof(*s->watches));
		fd = s->fd;
	}
	pthread_mutex_unlock(&pd.lock);
	return fd;
}

static struct pd_watch *watch_find(struct pd_sock *s, int fd)
{
	for (unsigned i = 0; i < s->watch_count; i++)
		if (s->watches[i].fd == fd)
			return &s->watches[i];
	return NULL;
}

static int do_epoll_ctl(int epfd, int op, int fd, const struct epoll_event *event)
{
	struct pd_sock *s = pd_sock_of(epfd);
	struct pd_watch *w;

	if (!s || !pd_sock_of(fd))
		return pd_fail(EBADF);
	if (s->state != PD_EPOLL || fd == epfd)
		return pd_fail(EINVAL);
	w = watch_find(s, fd);
	switch (op) {
	case EPOLL_CTL_ADD:
		if (w)
			return pd_fail(EEXIST);
		if (s->watch_count == PD_WATCHES_MAX)
			return pd_fail(ENOSPC);
		w = &s->watches[s->watch_count++];
		*w = (struct pd_watch){.fd = fd, .event = *event, .seen = UINT64_MAX};
		return 0;
	case EPOLL_CTL_MOD:
		if (!w)
			return pd_fail(ENOENT);
		*w = (struct pd_watch){.fd = fd, .event = *event, .seen = UINT64_MAX};
		return 0;
	case EPOLL_CTL_DEL:
		if (!w)
			return pd_fail(ENOENT);
		*w = s->watches[--s->watch_count];
		return 0;
	default:
		return pd_fail(EINVAL);
	}
}

int pd_epoll_ctl(void *u, int epfd, int op, int fd, struct epoll_event *event)
{
	int rc;

	pthread_mutex_lock(&pd.lock);
	rc = do_epoll_ctl(epfd, op, fd, event);
	pthread_mutex_unlock(&pd.lock);
	return rc;
}

/* What is ready; where `take`, it counts as told. */
static int epoll_fill(struct pd_sock *s, struct epoll_event *events, int max, bool take)
{
	int count = 0;

	for (unsigned i = 0; i < s->watch_count && count < max; i++) {
		struct pd_watch *w = &s->watches[i];
		const struct pd_sock *t = pd_sock_of(w->fd);
		uint32_t mask;

		if (!t || w->disabled)
			continue;
		mask = pd_poll_mask(t) & (w->event.events | POLLERR | POLLHUP);
		if (!mask || (w->event.events & EPOLLET && w->seen == t->changes))
			continue;
		if (take) {
			events[count] = w->event;
			events[count].events = mask;
			w->seen = t->changes;
			w->disabled = w->event.events & EPOLLONESHOT;
		}
		count++;
	}
	return count;
}

static bool epoll_ready(void *ctx)
{
	return epoll_fill(ctx, NULL, 1, false) > 0;
}

int pd_epoll_wait(void *u, int epfd, struct epoll_event *events, int max, int timeout_ms)
{
	struct pd_sock *s;
	int rc;

	pthread_mutex_lock(&pd.lock);
	s = pd_sock_of(epfd);
	if (!s) {
		rc = pd_fail(EBADF);
	} else if (s->state != PD_EPOLL || max <= 0) {
		rc = pd_fail(EINVAL);
	} else {
		pd_settle();
		if (timeout_ms != 0)
			pd_block(epoll_ready, s, deadline_ms(timeout_ms));
		rc = epoll_fill(s, events, max, true);
	}
	pthread_mutex_unlock(&pd.lock);
	return rc;
}
