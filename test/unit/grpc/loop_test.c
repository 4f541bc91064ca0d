/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <base/rand.h>
#include <grpc/loop.h>

static struct rp_loop *loop;

static int setup(void **state)
{
	loop = rp_loop_new();
	return loop ? 0 : -1;
}

static int teardown(void **state)
{
	rp_loop_destroy(loop);
	return 0;
}

/* Timers against a plain array: armed, re-armed and cancelled at random, then run in order. */
#define TIMERS 300

struct timed {
	struct rp_loop_timer timer;
	uint64_t deadline_ns; /* RP_NEVER: not armed */
	unsigned runs;
};

static uint64_t last_deadline_ns;

static void on_timed(void *ctx)
{
	struct timed *t = ctx;

	assert_true(t->deadline_ns >= last_deadline_ns);
	assert_true(t->deadline_ns <= rp_loop_now_ns(loop));
	assert_false(rp_loop_timer_armed(&t->timer));
	last_deadline_ns = t->deadline_ns;
	t->deadline_ns = RP_NEVER;
	t->runs++;
}

static void test_timers(void **state)
{
	const char *text = getenv("RP_SEED");
	struct rp_rand rand = {text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL)};
	struct timed *timers = calloc(TIMERS, sizeof(*timers));
	uint64_t base = rp_loop_now_ns(loop);
	unsigned armed = 0, runs = 0;

	print_message("seed %llu\n", (unsigned long long)rand.state);
	for (int i = 0; i < TIMERS; i++) {
		rp_loop_timer_setup(&timers[i].timer, on_timed, &timers[i]);
		timers[i].deadline_ns = RP_NEVER;
	}
	for (int i = 0; i < 20000; i++) {
		struct timed *t = &timers[rp_rand_below(&rand, TIMERS)];
		uint64_t least = RP_NEVER;

		if (rp_rand_below(&rand, 3) == 0) {
			rp_loop_timer_cancel(&t->timer);
			t->deadline_ns = RP_NEVER;
		} else {
			t->deadline_ns = base + 1 + rp_rand_below(&rand, 20 * RP_NS_PER_MS);
			rp_loop_timer_at(loop, &t->timer, t->deadline_ns);
		}
		for (int j = 0; i % 50 == 0 && j < TIMERS; j++)
			least = RP_MIN(least, timers[j].deadline_ns);
		if (i % 50 == 0)
			assert_int_equal(rp_loop_next_timer_ns(loop), least);
	}
	for (int i = 0; i < TIMERS; i++)
		armed += timers[i].deadline_ns != RP_NEVER;
	last_deadline_ns = 0;
	for (int i = 0; i < 10000 && rp_loop_next_timer_ns(loop) != RP_NEVER; i++)
		assert_true(rp_loop_run_once(loop, RP_NEVER) >= 0);
	for (int i = 0; i < TIMERS; i++)
		runs += timers[i].runs;
	assert_int_equal(runs, armed);
	free(timers);
}

struct again {
	struct rp_loop_timer timer;
	unsigned runs;
};

static void on_again(void *ctx)
{
	struct again *a = ctx;

	a->runs++;
	rp_loop_timer_at(loop, &a->timer, 0);
}

/* A timer that re-arms itself for now runs once a turn. */
static void test_timer_again(void **state)
{
	struct again a = {.runs = 0};

	rp_loop_timer_setup(&a.timer, on_again, &a);
	rp_loop_timer_in(loop, &a.timer, 0);
	for (unsigned i = 1; i <= 5; i++) {
		assert_int_equal(rp_loop_run_once(loop, RP_NEVER), 1);
		assert_int_equal(a.runs, i);
	}
	rp_loop_timer_cancel(&a.timer);
	rp_loop_timer_cancel(&a.timer);
	rp_loop_timer_at(loop, &a.timer, RP_NEVER);
	assert_int_equal(rp_loop_run_once(loop, 0), 0);
}

static char order[64];
static size_t order_length;

static void put(char c)
{
	order[order_length++] = c;
	order[order_length] = 0;
}

struct step {
	struct rp_loop_task task;
	struct step *then;
	bool late;
	char name;
};

static void on_step(void *ctx)
{
	struct step *s = ctx;

	put(s->name);
	if (s->then && s->then->late)
		rp_loop_task_post_late(loop, &s->then->task);
	else if (s->then)
		rp_loop_task_post(loop, &s->then->task);
}

/* Tasks in order, late ones last; what a late one posts is for the next turn. */
static void test_tasks(void **state)
{
	struct step next = {.name = 'n'}, late = {.name = 'l', .late = true, .then = &next};
	struct step second = {.name = 'b'}, first = {.name = 'a', .then = &second};
	struct step gone = {.name = 'x'};
	struct step *all[] = {&next, &late, &second, &first, &gone};

	for (size_t i = 0; i < RP_ARRAY_SIZE(all); i++)
		rp_loop_task_setup(&all[i]->task, on_step, all[i]);
	order_length = 0;
	rp_loop_task_post_late(loop, &late.task);
	rp_loop_task_post(loop, &first.task);
	rp_loop_task_post(loop, &first.task);
	rp_loop_task_post(loop, &gone.task);
	rp_loop_task_cancel(&gone.task);
	assert_int_equal(rp_loop_run_once(loop, RP_NEVER), 3);
	assert_string_equal(order, "abl");
	assert_int_equal(rp_loop_run_once(loop, RP_NEVER), 1);
	assert_string_equal(order, "abln");
	assert_int_equal(rp_loop_run_once(loop, 0), 0);
}

/* Tasks that post each other do not hold the turn. */
static void test_tasks_endless(void **state)
{
	struct step a = {.name = '.'}, b = {.name = '.', .then = &a};
	int turns = 0;

	a.then = &b;
	rp_loop_task_setup(&a.task, on_step, &a);
	rp_loop_task_setup(&b.task, on_step, &b);
	order_length = 0;
	rp_loop_task_post(loop, &a.task);
	for (; turns < 4; turns++)
		assert_true(rp_loop_run_once(loop, RP_NEVER) > 0);
	rp_loop_task_cancel(&a.task);
	rp_loop_task_cancel(&b.task);
}

struct watched {
	struct rp_loop_fd watch, *other;
	unsigned runs;
};

static void on_watched(void *ctx, uint32_t events)
{
	struct watched *w = ctx;

	w->runs++;
	rp_loop_fd_remove(w->other);
	rp_loop_fd_remove(&w->watch);
}

/* Two are ready in one turn; the first removes both: the second is not called. */
static void test_watch_removed(void **state)
{
	struct watched a = {.other = NULL}, b = {.other = NULL};
	int fds[2] = {eventfd(1, EFD_NONBLOCK), eventfd(1, EFD_NONBLOCK)};

	rp_loop_fd_setup(&a.watch, on_watched, &a);
	rp_loop_fd_setup(&b.watch, on_watched, &b);
	a.other = &b.watch;
	b.other = &a.watch;
	assert_int_equal(rp_loop_fd_add(loop, &a.watch, fds[0], EPOLLIN), 0);
	assert_int_equal(rp_loop_fd_add(loop, &b.watch, fds[1], EPOLLIN), 0);
	assert_int_equal(rp_loop_run_once(loop, RP_NEVER), 1);
	assert_int_equal(a.runs + b.runs, 1);
	assert_int_equal(rp_loop_run_once(loop, 0), 0);
	/* Added again, with nothing to wait for but errors. */
	assert_int_equal(rp_loop_fd_add(loop, &a.watch, fds[0], EPOLLIN), 0);
	rp_loop_fd_modify(&a.watch, 0);
	assert_int_equal(rp_loop_run_once(loop, 0), 0);
	rp_loop_fd_modify(&a.watch, EPOLLIN);
	assert_int_equal(rp_loop_run_once(loop, 0), 1);
	assert_int_equal(rp_loop_fd_add(loop, &b.watch, -1, EPOLLIN), -EBADF);
	close(fds[0]);
	close(fds[1]);
}

static void *waker(void *arg)
{
	usleep(20000);
	rp_loop_wake(loop);
	return NULL;
}

static void test_wake(void **state)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, waker, NULL), 0);
	assert_int_equal(rp_loop_run_once(loop, 10 * RP_NS_PER_S), 1);
	pthread_join(thread, NULL);
}

static void on_stop(void *ctx)
{
	rp_loop_stop(loop);
}

static void test_stop(void **state)
{
	struct rp_loop_timer t;

	rp_loop_timer_setup(&t, on_stop, NULL);
	rp_loop_timer_in(loop, &t, RP_NS_PER_MS);
	assert_int_equal(rp_loop_run(loop), 0);
}

/* The wait lasts as asked, within what a busy machine needs. */
static void test_timeout(void **state)
{
	uint64_t before;

	(void)rp_loop_run_once(loop, 0);
	before = rp_loop_now_ns(loop);
	assert_int_equal(rp_loop_run_once(loop, 300 * RP_NS_PER_US), 0);
	assert_true(rp_loop_now_ns(loop) - before >= 300 * RP_NS_PER_US);
	assert_true(rp_loop_now_ns(loop) - before < 2 * RP_NS_PER_S);
}

static int signals_seen;

static void on_signal(void *ctx, int signo)
{
	assert_int_equal(signo, SIGUSR1);
	signals_seen++;
	rp_loop_signals_remove(ctx);
}

static void test_signals(void **state)
{
	struct rp_loop_signals s;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	assert_int_equal(rp_loop_signals_add(loop, &s, &set, on_signal, &s), 0);
	assert_int_equal(raise(SIGUSR1), 0);
	assert_int_equal(rp_loop_run_once(loop, RP_NEVER), 1);
	assert_int_equal(signals_seen, 1);
	rp_loop_signals_remove(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_timers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timer_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tasks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tasks_endless, setup, teardown),
		cmocka_unit_test_setup_teardown(test_watch_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wake, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stop, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timeout, setup, teardown),
		cmocka_unit_test_setup_teardown(test_signals, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
