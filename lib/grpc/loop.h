/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The control thread's event loop: one thread, epoll, timers, deferred calls. Everything that the
 * control thread waits for hangs on it: client sockets, eventfds of the shards' rings, signals,
 * periodic work.
 *
 *   1. rp_loop_new().
 *   2. Embed a struct rp_loop_fd, rp_loop_timer or rp_loop_task in your own object, set it up with
 *      its function and context, then add, arm or post it. The loop allocates nothing for them.
 *   3. Call rp_loop_run_once() until done, or rp_loop_run() until rp_loop_stop().
 *   4. Remove what you added; rp_loop_destroy().
 *
 * One turn: wait; refresh the clock; ready fds; due timers; tasks; late tasks. A connection posts
 * itself as a late task when something is to be written, so all that a turn queued for it leaves in
 * one write. All functions belong to the loop's thread, but for rp_loop_wake(). A callback may
 * remove, free or re-add any watch, timer or task, its own included. A loop is not destroyed from
 * within a callback.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include <base/list.h>
#include <base/units.h>

struct rp_loop;

/** Reader of readiness: `events` as epoll_wait(2) gives them (EPOLLIN, EPOLLOUT, EPOLLERR, ...). */
typedef void (*rp_loop_fd_fn)(void *ctx, uint32_t events);
typedef void (*rp_loop_fn)(void *ctx);

/** A watched descriptor; it stays its owner's, who closes it after rp_loop_fd_remove(). */
struct rp_loop_fd {
	struct rp_loop *loop; /* NULL while not added */
	rp_loop_fd_fn fn;
	void *ctx;
	int fd;
	uint32_t events;
};

/** A one-shot timer. Zero it, or set it up, before its first use. */
struct rp_loop_timer {
	struct rp_loop *loop; /* NULL while not armed */
	rp_loop_fn fn;
	void *ctx;
	uint64_t deadline_ns;
	struct rp_loop_timer *child, *next, *prev; /* the loop's heap */
};

/** A call that runs later in this turn, or in the next turn when posted from a late task. */
struct rp_loop_task {
	struct rp_list node;
	rp_loop_fn fn;
	void *ctx;
};

struct rp_loop_signals {
	struct rp_loop_fd watch;
	void (*fn)(void *ctx, int signo);
	void *ctx;
};

/** NULL and errno when descriptors or memory are missing. */
struct rp_loop *rp_loop_new(void);
/** Nothing may be added, armed or posted any more. destroy(NULL) is fine. */
void rp_loop_destroy(struct rp_loop *loop);

/** CLOCK_MONOTONIC in ns as read once in this turn. Before the first turn: time of creation. */
uint64_t rp_loop_now_ns(const struct rp_loop *loop);
/** The same clock read anew: for how long something takes. */
uint64_t rp_loop_clock_ns(void);

/**
 * One turn. Waits at most `timeout_ns` (0: not at all; RP_NEVER: until something happens), less if
 * a timer is due or a task is waiting. Returns how many callbacks ran (0: the wait just ended), or
 * -errno when epoll itself fails.
 */
int rp_loop_run_once(struct rp_loop *loop, uint64_t timeout_ns);
/** Turns until rp_loop_stop(). 0 or -errno. */
int rp_loop_run(struct rp_loop *loop);
void rp_loop_stop(struct rp_loop *loop);
/** Ends the wait of the loop's thread. Any thread, and a signal handler. */
void rp_loop_wake(struct rp_loop *loop);

static inline void rp_loop_fd_setup(struct rp_loop_fd *w, rp_loop_fd_fn fn, void *ctx)
{
	*w = (struct rp_loop_fd){.fn = fn, .ctx = ctx, .fd = -1};
}

/** Watches `fd` for `events` (level-triggered EPOLLIN, EPOLLOUT). 0 or -errno. */
int rp_loop_fd_add(struct rp_loop *loop, struct rp_loop_fd *w, int fd, uint32_t events);
/** Changes what is waited for; 0 leaves only errors and hang-ups. */
void rp_loop_fd_modify(struct rp_loop_fd *w, uint32_t events);
/** Its function is not called again, also not for what this turn has already seen. Idempotent. */
void rp_loop_fd_remove(struct rp_loop_fd *w);

static inline void rp_loop_timer_setup(struct rp_loop_timer *t, rp_loop_fn fn, void *ctx)
{
	*t = (struct rp_loop_timer){.fn = fn, .ctx = ctx};
}

/** Arms, or re-arms, for an absolute time of rp_loop_now_ns(). RP_NEVER disarms. */
void rp_loop_timer_at(struct rp_loop *loop, struct rp_loop_timer *t, uint64_t deadline_ns);
/** The same, `delay_ns` from now. */
void rp_loop_timer_in(struct rp_loop *loop, struct rp_loop_timer *t, uint64_t delay_ns);
/** Idempotent. */
void rp_loop_timer_cancel(struct rp_loop_timer *t);
static inline bool rp_loop_timer_armed(const struct rp_loop_timer *t)
{
	return t->loop != NULL;
}
/** When the next timer is due, RP_NEVER if none is armed. */
uint64_t rp_loop_next_timer_ns(const struct rp_loop *loop);

static inline void rp_loop_task_setup(struct rp_loop_task *t, rp_loop_fn fn, void *ctx)
{
	rp_list_init(&t->node);
	t->fn = fn;
	t->ctx = ctx;
}

/** Runs the task once; posting one that waits already changes nothing. */
void rp_loop_task_post(struct rp_loop *loop, struct rp_loop_task *t);
/** The same, after all other tasks of the turn: for flushing what they queued. */
void rp_loop_task_post_late(struct rp_loop *loop, struct rp_loop_task *t);
/** Idempotent. */
void rp_loop_task_cancel(struct rp_loop_task *t);

/**
 * Blocks the signals of `set` for this thread and hands them to `fn` in the loop, by signalfd. Call
 * before other threads start, or they take the signals. 0 or -errno.
 */
int rp_loop_signals_add(struct rp_loop *loop, struct rp_loop_signals *s, const sigset_t *set,
	void (*fn)(void *ctx, int signo), void *ctx);
/** Closes the signalfd; the signals stay blocked. Idempotent. */
void rp_loop_signals_remove(struct rp_loop_signals *s);
