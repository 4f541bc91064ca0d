/* SPDX-License-Identifier: Apache-2.0 */
#include <grpc/loop.h>

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <base/assert.h>

#define LOOP_EVENTS_MAX 256
/* Tasks that post tasks: after so many rounds the rest waits for the next turn. */
#define LOOP_TASK_ROUNDS_MAX 8

struct rp_loop {
	int epoll_fd;
	bool stopping;
	uint64_t now_ns;
	struct rp_loop_timer *timers; /* root of a pairing heap */
	struct rp_list tasks, late;
	struct rp_loop_fd wake;
	int event_count, event_next; /* of the events being handed out */
	struct epoll_event events[LOOP_EVENTS_MAX];
};

uint64_t rp_loop_clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void loop_on_wake(void *ctx, uint32_t events)
{
	struct rp_loop *loop = ctx;
	uint64_t count;

	/* Only to empty it: that the wait ended is all that was asked for. */
	while (read(loop->wake.fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

struct rp_loop *rp_loop_new(void)
{
	struct rp_loop *loop = calloc(1, sizeof(*loop));
	int fd, error;

	if (!loop)
		return NULL;
	rp_list_init(&loop->tasks);
	rp_list_init(&loop->late);
	loop->now_ns = rp_loop_clock_ns();
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		goto fail_free;
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		goto fail_epoll;
	rp_loop_fd_setup(&loop->wake, loop_on_wake, loop);
	error = rp_loop_fd_add(loop, &loop->wake, fd, EPOLLIN);
	if (error == 0)
		return loop;
	close(fd);
	errno = -error;
fail_epoll:
	error = errno;
	close(loop->epoll_fd);
	errno = error;
fail_free:
	error = errno;
	free(loop);
	errno = error;
	return NULL;
}

void rp_loop_destroy(struct rp_loop *loop)
{
	int fd;

	if (!loop)
		return;
	RP_ASSERT(loop->timers == NULL);
	fd = loop->wake.fd;
	rp_loop_fd_remove(&loop->wake);
	close(fd);
	close(loop->epoll_fd);
	free(loop);
}

uint64_t rp_loop_now_ns(const struct rp_loop *loop)
{
	return loop->now_ns;
}

void rp_loop_stop(struct rp_loop *loop)
{
	loop->stopping = true;
	rp_loop_wake(loop);
}

void rp_loop_wake(struct rp_loop *loop)
{
	uint64_t one = 1;

	/* A full counter (EAGAIN) wakes as well. */
	while (write(loop->wake.fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* Watches. */

int rp_loop_fd_add(struct rp_loop *loop, struct rp_loop_fd *w, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = w};

	RP_ASSERT(w->loop == NULL && w->fn != NULL);
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
		return -errno;
	w->loop = loop;
	w->fd = fd;
	w->events = events;
	return 0;
}

void rp_loop_fd_modify(struct rp_loop_fd *w, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = w};

	RP_ASSERT(w->loop != NULL);
	if (w->events == events)
		return;
	w->events = events;
	/* It was added, so this cannot fail but for lack of kernel memory at add. */
	(void)epoll_ctl(w->loop->epoll_fd, EPOLL_CTL_MOD, w->fd, &e);
}

void rp_loop_fd_remove(struct rp_loop_fd *w)
{
	struct rp_loop *loop = w->loop;

	if (!loop)
		return;
	(void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	for (int i = loop->event_next; i < loop->event_count; i++) {
		if (loop->events[i].data.ptr == w)
			loop->events[i].data.ptr = NULL;
	}
	w->loop = NULL;
}

/* Timers: an intrusive pairing heap. `prev` is the left sibling, or the parent of a first child. */

static struct rp_loop_timer *timer_meld(struct rp_loop_timer *a, struct rp_loop_timer *b)
{
	if (!a)
		return b;
	if (!b)
		return a;
	if (b->deadline_ns < a->deadline_ns) {
		struct rp_loop_timer *t = a;

		a = b;
		b = t;
	}
	b->next = a->child;
	if (b->next)
		b->next->prev = b;
	b->prev = a;
	a->child = b;
	a->next = a->prev = NULL;
	return a;
}

/* Melds a list of siblings in two passes, the second from the right. */
static struct rp_loop_timer *timer_meld_siblings(struct rp_loop_timer *first)
{
	struct rp_loop_timer *pairs = NULL, *root = NULL;

	while (first) {
		struct rp_loop_timer *a = first, *b = a->next;

		first = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = timer_meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		struct rp_loop_timer *next = pairs->next;

		pairs->next = NULL;
		root = timer_meld(root, pairs);
		pairs = next;
	}
	return root;
}

void rp_loop_timer_cancel(struct rp_loop_timer *t)
{
	struct rp_loop *loop = t->loop;
	struct rp_loop_timer *rest;

	if (!loop)
		return;
	rest = timer_meld_siblings(t->child);
	if (loop->timers == t) {
		loop->timers = rest;
	} else {
		if (t->prev->child == t)
			t->prev->child = t->next;
		else
			t->prev->next = t->next;
		if (t->next)
			t->next->prev = t->prev;
		loop->timers = timer_meld(loop->timers, rest);
	}
	t->child = t->next = t->prev = NULL;
	t->loop = NULL;
}

void rp_loop_timer_at(struct rp_loop *loop, struct rp_loop_timer *t, uint64_t deadline_ns)
{
	rp_loop_timer_cancel(t);
	if (deadline_ns == RP_NEVER)
		return;
	RP_ASSERT(t->fn != NULL);
	/* Never due in the turn that armed it: a timer that re-arms itself cannot hold the loop. */
	t->deadline_ns = RP_MAX(deadline_ns, loop->now_ns + 1);
	t->loop = loop;
	t->child = t->next = t->prev = NULL;
	loop->timers = timer_meld(loop->timers, t);
}

void rp_loop_timer_in(struct rp_loop *loop, struct rp_loop_timer *t, uint64_t delay_ns)
{
	uint64_t room = RP_NEVER - 1 - loop->now_ns;

	rp_loop_timer_at(loop, t, loop->now_ns + RP_MIN(delay_ns, room));
}

uint64_t rp_loop_next_timer_ns(const struct rp_loop *loop)
{
	return loop->timers ? loop->timers->deadline_ns : RP_NEVER;
}

static int loop_run_timers(struct rp_loop *loop)
{
	int ran = 0;

	while (loop->timers && loop->timers->deadline_ns <= loop->now_ns) {
		struct rp_loop_timer *t = loop->timers;

		rp_loop_timer_cancel(t);
		t->fn(t->ctx);
		ran++;
	}
	return ran;
}

/* Tasks. */

void rp_loop_task_post(struct rp_loop *loop, struct rp_loop_task *t)
{
	if (rp_list_empty(&t->node))
		rp_list_push_back(&loop->tasks, &t->node);
}

void rp_loop_task_post_late(struct rp_loop *loop, struct rp_loop_task *t)
{
	if (rp_list_empty(&t->node))
		rp_list_push_back(&loop->late, &t->node);
}

void rp_loop_task_cancel(struct rp_loop_task *t)
{
	rp_list_unlink(&t->node);
}

/* Runs what waits now; what is posted meanwhile stays for the next round. */
static int loop_run_list(struct rp_list *list)
{
	struct rp_list batch, *n;
	int ran = 0;

	rp_list_init(&batch);
	rp_list_splice_back(&batch, list);
	while ((n = rp_list_pop_front(&batch)) != NULL) {
		struct rp_loop_task *t = rp_list_entry(n, struct rp_loop_task, node);

		t->fn(t->ctx);
		ran++;
	}
	return ran;
}

/* The turn. */

static int loop_wait(struct rp_loop *loop, uint64_t timeout_ns)
{
	uint64_t now = rp_loop_clock_ns();
	struct timespec ts, *wait = &ts;
	int n;

	if (!rp_list_empty(&loop->tasks) || !rp_list_empty(&loop->late))
		timeout_ns = 0;
	if (loop->timers) {
		uint64_t due = loop->timers->deadline_ns;

		timeout_ns = RP_MIN(timeout_ns, due > now ? due - now : 0);
	}
	ts.tv_sec = (time_t)(timeout_ns / RP_NS_PER_S);
	ts.tv_nsec = (long)(timeout_ns % RP_NS_PER_S);
	if (timeout_ns == RP_NEVER)
		wait = NULL;
	n = epoll_pwait2(loop->epoll_fd, loop->events, LOOP_EVENTS_MAX, wait, NULL);
	if (n < 0 && errno == ENOSYS) {
		uint64_t ms = (timeout_ns + RP_NS_PER_MS - 1) / RP_NS_PER_MS;
		int wait_ms = wait ? (int)RP_MIN(ms, (uint64_t)INT32_MAX) : -1;

		n = epoll_wait(loop->epoll_fd, loop->events, LOOP_EVENTS_MAX, wait_ms);
	}
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n;
}

int rp_loop_run_once(struct rp_loop *loop, uint64_t timeout_ns)
{
	int n = loop_wait(loop, timeout_ns), ran = 0;

	if (n < 0)
		return n;
	loop->now_ns = rp_loop_clock_ns();
	loop->event_count = n;
	for (loop->event_next = 0; loop->event_next < loop->event_count;) {
		struct epoll_event *e = &loop->events[loop->event_next++];
		struct rp_loop_fd *w = e->data.ptr;

		if (!w)
			continue;
		w->fn(w->ctx, e->events);
		ran++;
	}
	loop->event_count = loop->event_next = 0;
	ran += loop_run_timers(loop);
	for (int i = 0; i < LOOP_TASK_ROUNDS_MAX && !rp_list_empty(&loop->tasks); i++)
		ran += loop_run_list(&loop->tasks);
	ran += loop_run_list(&loop->late);
	return ran;
}

int rp_loop_run(struct rp_loop *loop)
{
	while (!loop->stopping) {
		int n = rp_loop_run_once(loop, RP_NEVER);

		if (n < 0)
			return n;
	}
	loop->stopping = false;
	return 0;
}

/* Signals. */

static void loop_on_signal(void *ctx, uint32_t events)
{
	struct rp_loop_signals *s = ctx;
	struct signalfd_siginfo info;

	/* Level-triggered: a further one comes in the next turn, so the callback may remove `s`. */
	if (read(s->watch.fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		s->fn(s->ctx, (int)info.ssi_signo);
}

int rp_loop_signals_add(struct rp_loop *loop, struct rp_loop_signals *s, const sigset_t *set,
	void (*fn)(void *ctx, int signo), void *ctx)
{
	int fd, error = pthread_sigmask(SIG_BLOCK, set, NULL);

	if (error != 0)
		return -error;
	fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	rp_loop_fd_setup(&s->watch, loop_on_signal, s);
	s->fn = fn;
	s->ctx = ctx;
	error = rp_loop_fd_add(loop, &s->watch, fd, EPOLLIN);
	if (error < 0)
		close(fd);
	return error;
}

void rp_loop_signals_remove(struct rp_loop_signals *s)
{
	int fd = s->watch.fd;

	if (!s->watch.loop)
		return;
	rp_loop_fd_remove(&s->watch);
	close(fd);
}
