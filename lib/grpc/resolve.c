/* SPDX-License-Identifier: Apache-2.0 */
#include "resolve_priv.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct grpc_resolve {
	atomic_uint refs; /* the asker's and the thread's */
	int event_fd;
	struct grpc_target target;
	struct grpc_addr addrs[GRPC_ADDR_MAX]; /* the thread's until it rings */
	int count;
	/* the asker's */
	struct rp_loop_fd watch;
	void (*done)(void *ctx, const struct grpc_addr *addrs, int count);
	void *ctx;
};

static void resolve_unref(struct grpc_resolve *r)
{
	if (atomic_fetch_sub(&r->refs, 1) > 1)
		return;
	close(r->event_fd);
	free(r);
}

static void *resolve_thread(void *arg)
{
	struct grpc_resolve *r = arg;
	uint64_t one = 1;

	r->count = grpc_target_resolve(&r->target, r->addrs);
	/* The write orders what was found before the read that follows it. */
	while (write(r->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	resolve_unref(r);
	return NULL;
}

static void resolve_on_event(void *ctx, uint32_t events)
{
	struct grpc_resolve *r = ctx;
	uint64_t count;

	if (read(r->event_fd, &count, sizeof(count)) < 0)
		return;
	rp_loop_fd_remove(&r->watch);
	r->done(r->ctx, r->addrs, r->count);
	resolve_unref(r);
}

struct grpc_resolve *grpc_resolve_start(struct rp_loop *loop, const struct grpc_target *target,
	void (*done)(void *ctx, const struct grpc_addr *addrs, int count), void *ctx)
{
	struct grpc_resolve *r = calloc(1, sizeof(*r));
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;
	int error;

	if (!r)
		return NULL;
	r->target = *target;
	r->done = done;
	r->ctx = ctx;
	atomic_init(&r->refs, 2);
	rp_loop_fd_setup(&r->watch, resolve_on_event, r);
	r->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	error = r->event_fd < 0 ? errno : -rp_loop_fd_add(loop, &r->watch, r->event_fd, EPOLLIN);
	if (error == 0) {
		/* Signals are the loop's: the thread starts with all of them blocked. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		error = pthread_create(&thread, &attr, resolve_thread, r);
		pthread_attr_destroy(&attr);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (error == 0)
		return r;
	rp_loop_fd_remove(&r->watch);
	if (r->event_fd >= 0)
		close(r->event_fd);
	free(r);
	errno = error;
	return NULL;
}

void grpc_resolve_cancel(struct grpc_resolve *r)
{
	if (!r)
		return;
	rp_loop_fd_remove(&r->watch);
	resolve_unref(r);
}
