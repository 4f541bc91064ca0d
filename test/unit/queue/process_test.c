/* SPDX-License-Identifier: Apache-2.0 */

/* Process requests, rule by rule (spec/queues.md, "Process requests"), on a cluster of engines. */

#include "requests.h"

static void test_completes(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *worker = open_consumer(w.c, 1, Q, 1, 0, NULL);
	struct held_job job;
	unsigned token;
	struct ask *a;

	settle(w.c);
	a = asked(&w, "r1", 5, NULL);
	assert_int_equal(a->status, RP_Q_OK);
	assert_int_equal(shown(worker, false), 1);
	assert_int_equal(worker->events[0].value, 5);
	assert_int_equal(worker->events[0].process.request, a->request);
	job = *job_of(w.c, 1, a->request);
	for (unsigned i = 0; i < 5; i++) {
		token = output(w.c, 1, REPLY, &job, 100 + i);
		settle(w.c);
		ok(w.c, token);
		got(&w, i + 1, 100 + i);
	}
	token = last_output(w.c, 1, &job, 200);
	settle(w.c);
	deleted(w.c, token, 1);
	got(&w, 6, 200);
	/* Nothing comes behind the end, in whatever name. */
	token = output(w.c, 1, REPLY, &job, 300);
	settle(w.c);
	status_is(w.c, token, RP_Q_NOT_LIVE);
	token = last_output(w.c, 1, &job, 300);
	settle(w.c);
	deleted(w.c, token, 0);
	token = put(w.c, 2, REPLY, "r1", 300);
	settle(w.c);
	status_is(w.c, token, RP_Q_NOT_LIVE);
	token = cancel(w.c, 0, Q, "r1");
	settle(w.c);
	deleted(w.c, token, 0);
	got(&w, 6, 200);
	over(&w);
}

/* Deleting the delivered key first completes it without an output. */
static void test_ack_completes(void **state)
{
	struct world w = world_new(2, NULL);
	unsigned token;
	struct ask *a;

	open_consumer(w.c, 1, Q, 1, 0, NULL);
	settle(w.c);
	a = asked(&w, "r1", 5, NULL);
	token = ack(w.c, 1, Q, 1, job_of(w.c, 1, a->request)->idx, 0);
	settle(w.c);
	deleted(w.c, token, 1);
	got(&w, 1, EMPTY_FINAL);
	over(&w);
}

static void test_identity(void **state)
{
	struct world w = world_new(3, NULL);
	struct ask *a, *again, *other;
	unsigned token;

	open_consumer(w.c, 1, Q, 1, 0, NULL);
	open_consumer(w.c, 2, "others", 2, 0, NULL);
	settle(w.c);
	a = asked(&w, "same", 1, NULL);
	again = ask(w.c, 1, Q, "same", 2, REPLY, NULL);
	other = ask(w.c, 2, "others", "same", 3, REPLY, NULL);
	settle(w.c);
	assert_int_equal(again->status, RP_Q_EXISTS);
	assert_int_equal(other->status, RP_Q_EXISTS);
	token = ack(w.c, 1, Q, 1, job_of(w.c, 1, a->request)->idx, 0);
	settle(w.c);
	deleted(w.c, token, 1);
	/* When it is over there may be another one. */
	a = asked(&w, "same", 4, NULL);
	assert_int_equal(a->status, RP_Q_OK);
	token = ack(w.c, 1, Q, 1, job_of(w.c, 1, a->request)->idx, 0);
	settle(w.c);
	got(&w, 2, EMPTY_FINAL);
	over(&w);
}

/* One whose put was refused is not live either. */
static void test_refused_is_closed(void **state)
{
	struct world w = world_new(2, NULL);
	const struct ask_options fast = {.flags = RP_PROCESS_FAIL_FAST};
	struct ask *a;

	a = asked(&w, "r1", 1, &fast);
	assert_int_equal(a->status, RP_Q_NO_CONSUMER);
	a = asked(&w, "r1", 1, &fast);
	assert_int_equal(a->status, RP_Q_NO_CONSUMER);
	got(&w, 0, 0);
	over(&w);
}

static void test_deadline(void **state)
{
	struct world w = world_new(3, NULL);
	const struct ask_options soon = {.left_us = 50000};
	struct client *worker;
	unsigned token;
	struct held_job job;
	uint64_t idx;
	struct ask *a;

	/* Nobody takes it. */
	asked(&w, "r1", 1, &soon);
	got(&w, 0, 0);
	cluster_run(w.c, 40 * MS);
	got(&w, 1, failed(RP_QUEUE_DEATH_DEADLINE));
	assert_true(w.requester->events[0].at_ns >= w.c->now_ns - 20 * MS);
	/* Its worker does not end it. */
	worker = open_consumer(w.c, 1, Q, 1, 0, NULL);
	settle(w.c);
	a = asked(&w, "r2", 2, &soon);
	assert_int_equal(shown(worker, false), 1);
	job = *job_of(w.c, 1, a->request);
	idx = worker->events[0].idx;
	cluster_run(w.c, 60 * MS);
	got(&w, 2, failed(RP_QUEUE_DEATH_DEADLINE));
	assert_int_equal(shown(worker, true), 1);
	token = ack(w.c, 1, Q, 1, idx, 0);
	settle(w.c);
	status_is(w.c, token, RP_Q_NOT_HOLDER);
	token = output(w.c, 1, REPLY, &job, 7);
	settle(w.c);
	status_is(w.c, token, RP_Q_NOT_LIVE);
	assert_int_equal(
		info_of(w.c, 1, Q).counters.deadlines + info_of(w.c, 0, Q).counters.deadlines, 2);
	over(&w);
}

/* A worker that is silent for longer than any timer, inside of its time, is left alone. */
static void test_silence(void **state)
{
	struct world w = world_new(3, NULL);
	const struct ask_options long_one = {.left_us = 100000000};
	struct client *worker = open_consumer(w.c, 1, Q, 1, 0, NULL);
	unsigned token;
	struct ask *a;

	open_consumer(w.c, 2, Q, 2, 0, NULL);
	settle(w.c);
	w.c->step_ns = MS;
	a = asked(&w, "r1", 1, &long_one);
	cluster_run(w.c, 90 * SEC);
	assert_int_equal(shown(worker, true), 0);
	token = last_output(w.c, job_of(w.c, 1, a->request) ? 1 : 2,
		job_of(w.c, 1, a->request) ? job_of(w.c, 1, a->request)
					   : job_of(w.c, 2, a->request),
		9);
	settle(w.c);
	deleted(w.c, token, 1);
	got(&w, 1, 9);
	over(&w);
}

static void test_cancel(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *worker;
	struct held_job job;
	unsigned token;
	struct ask *a;

	asked(&w, "r1", 1, NULL);
	token = cancel(w.c, 2, Q, "r1");
	settle(w.c);
	deleted(w.c, token, 1);
	got(&w, 1, failed(RP_QUEUE_DEATH_CANCELLED));
	worker = open_consumer(w.c, 1, Q, 1, 0, NULL);
	settle(w.c);
	assert_int_equal(shown(worker, false), 0);
	a = asked(&w, "r2", 2, NULL);
	job = *job_of(w.c, 1, a->request);
	token = cancel(w.c, 0, Q, "r2");
	cluster_run(w.c, 4 * MS);
	deleted(w.c, token, 1);
	/* At once, and what the worker says from now on is refused. */
	assert_int_equal(shown(worker, true), 1);
	assert_null(job_of(w.c, 1, a->request));
	token = last_output(w.c, 1, &job, 3);
	settle(w.c);
	status_is(w.c, token, RP_Q_NOT_HOLDER);
	got(&w, 2, failed(RP_QUEUE_DEATH_CANCELLED));
	/* All with that tail, of whatever requester; and of a queue that nobody knows, none. */
	open_consumer(w.c, 2, "reply-2", 251, 0, NULL);
	settle(w.c);
	asked(&w, "r3", 3, NULL);
	ask(w.c, 2, Q, "r3", 4, "reply-2", NULL);
	settle(w.c);
	token = cancel(w.c, 0, Q, "r3");
	settle(w.c);
	deleted(w.c, token, 2);
	token = cancel(w.c, 0, "unknown", "r3");
	settle(w.c);
	deleted(w.c, token, 0);
	over(&w);
}

/* The dispatcher decides the race, and tells both sides the same. */
static void test_race(void **state)
{
	for (unsigned lag = 0; lag < 24; lag++) {
		struct world w = world_new(3, NULL);
		unsigned done, stop;
		struct ask *a;

		open_consumer(w.c, 1, Q, 1, 0, NULL);
		settle(w.c);
		a = asked(&w, "r1", 1, NULL);
		stop = lag < 12 ? cancel(w.c, 0, Q, "r1") : 0;
		cluster_run(w.c, (lag % 12) * MS / 8);
		done = last_output(w.c, 1,
			job_of(w.c, 1, a->request) ? job_of(w.c, 1, a->request)
						   : &(struct held_job){.request = a->request,
							     .queue = Q,
							     .tail = "r1"},
			77);
		if (lag >= 12) {
			cluster_run(w.c, (lag % 12) * MS / 8);
			stop = cancel(w.c, 0, Q, "r1");
		}
		settle(w.c);
		ok(w.c, stop);
		if (answer_of(w.c, stop)->deleted) {
			assert_int_equal(answer_of(w.c, done)->deleted, 0);
			got(&w, 1, failed(RP_QUEUE_DEATH_CANCELLED));
		} else {
			deleted(w.c, done, 1);
			got(&w, 1, 77);
		}
		over(&w);
	}
}

static void test_rejected(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *one = open_consumer(w.c, 1, Q, 1, 0, NULL);
	struct client *two = open_consumer(w.c, 2, Q, 2, 0, NULL), *first;
	struct ask *a;

	settle(w.c);
	a = asked(&w, "r1", 1, NULL);
	first = shown(one, false) ? one : two;
	reject(w.c, first->node, Q, first == one ? 1 : 2, first->events[0].idx);
	settle(w.c);
	assert_int_equal(shown(one, false), 1);
	assert_int_equal(shown(two, false), 1);
	got(&w, 0, 0);
	first = first == one ? two : one;
	assert_non_null(job_of(w.c, first->node, a->request));
	reject(w.c, first->node, Q, first == one ? 1 : 2, first->events[0].idx);
	settle(w.c);
	got(&w, 1, failed(RP_QUEUE_DEATH_REJECTED));
	over(&w);
}

static void test_worker_leaves(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *one = open_consumer(w.c, 1, Q, 1, 0, NULL), *two;
	struct ask *a;

	settle(w.c);
	/* Before an output: another one gets it. */
	a = asked(&w, "r1", 1, NULL);
	two = open_consumer(w.c, 2, Q, 2, 0, NULL);
	close_consumer(w.c, one, RP_QUEUE_CLOSE_ENDED);
	cluster_run(w.c, 990 * MS);
	assert_int_equal(shown(two, false), 0);
	cluster_run(w.c, 30 * MS);
	assert_int_equal(shown(two, false), 1);
	got(&w, 0, 0);
	/* After the first: it is lost. */
	output(w.c, 2, REPLY, job_of(w.c, 2, a->request), 8);
	settle(w.c);
	one = open_consumer(w.c, 1, Q, 3, 0, NULL);
	settle(w.c);
	close_consumer(w.c, two, RP_QUEUE_CLOSE_ENDED);
	cluster_run(w.c, 1100 * MS);
	assert_int_equal(shown(one, false), 0);
	got(&w, 2, failed(RP_QUEUE_DEATH_WORKER_LOST));
	over(&w);
}

static void test_worker_returns(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *one = open_consumer(w.c, 1, Q, 1, 0, NULL);
	unsigned token;
	struct ask *a;

	settle(w.c);
	a = asked(&w, "r1", 1, NULL);
	close_consumer(w.c, one, RP_QUEUE_CLOSE_ENDED);
	settle(w.c);
	/* With all it has, on another node: it may go on there. */
	one = open_consumer(w.c, 2, Q, 1, one->events[0].revision + 1, NULL);
	cluster_run(w.c, 1500 * MS);
	assert_int_equal(shown(one, false), 0);
	assert_non_null(job_of(w.c, 2, a->request));
	token = output(w.c, 2, REPLY, job_of(w.c, 2, a->request), 5);
	settle(w.c);
	ok(w.c, token);
	token = last_output(w.c, 2, job_of(w.c, 2, a->request), 6);
	settle(w.c);
	deleted(w.c, token, 1);
	got(&w, 2, 6);
	over(&w);
}

static void test_worker_node_dies(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *one;

	/* The dispatcher is the requester's node, which stays. */
	open_consumer(w.c, 0, Q, 9, 0, ";cap=other");
	settle(w.c);
	one = open_consumer(w.c, 1, Q, 1, 0, ";cap=gpu");
	settle(w.c);
	asked(&w, "r1", 1, &(struct ask_options){.need = "gpu"});
	assert_int_equal(shown(one, false), 1);
	open_consumer(w.c, 2, Q, 2, 0, ";cap=gpu");
	settle(w.c);
	cluster_kill(w.c, 1);
	cluster_run(w.c, 4400 * MS);
	got(&w, 0, 0);
	cluster_run(w.c, 200 * MS);
	got(&w, 1, failed(RP_QUEUE_DEATH_WORKER_LOST));
	assert_int_equal(w.c->nodes[2].job_count, 0);
	over(&w);
}

static void test_deserted(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *gpu, *busy;
	struct ask *a;

	busy = open_consumer(w.c, 1, Q, 1, 0, ";cap=gpu");
	gpu = open_consumer(w.c, 2, Q, 2, 0, NULL);
	settle(w.c);
	a = asked(&w, "r1", 1, &(struct ask_options){.need = "gpu"});
	assert_non_null(job_of(w.c, 1, a->request));
	asked(&w, "r2", 2, &(struct ask_options){.need = "gpu"});
	assert_int_equal(shown(gpu, false), 0);
	close_consumer(w.c, busy, RP_QUEUE_CLOSE_ENDED);
	cluster_run(w.c, 980 * MS);
	got(&w, 0, 0);
	cluster_run(w.c, 60 * MS);
	/* Both: the one that it held has come back, before an output. */
	got(&w, 2, failed(RP_QUEUE_DEATH_NO_CONSUMER));
	/* One that needs nothing waits for somebody who may come. */
	close_consumer(w.c, gpu, RP_QUEUE_CLOSE_ENDED);
	cluster_run(w.c, 1500 * MS);
	asked(&w, "r3", 3, NULL);
	cluster_run(w.c, 3 * SEC);
	got(&w, 2, failed(RP_QUEUE_DEATH_NO_CONSUMER));
	gpu = open_consumer(w.c, 1, Q, 3, 0, NULL);
	settle(w.c);
	assert_int_equal(shown(gpu, false), 1);
	ack(w.c, 1, Q, 3, gpu->events[0].idx, 0);
	settle(w.c);
	got(&w, 3, EMPTY_FINAL);
	over(&w);
}

static void test_requester_gone(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *worker = open_consumer(w.c, 1, Q, 1, 0, NULL);

	settle(w.c);
	asked(&w, "r1", 1, NULL);
	assert_int_equal(shown(worker, false), 1);
	close_consumer(w.c, w.requester, RP_QUEUE_CLOSE_ENDED);
	cluster_run(w.c, 990 * MS);
	assert_int_equal(shown(worker, true), 0);
	cluster_run(w.c, 60 * MS);
	assert_int_equal(shown(worker, true), 1);
	/* Nobody is there to hear of it, and it does not lie there for ever. */
	assert_int_equal(info_of(w.c, 0, REPLY).depth, 0);
	assert_int_equal(totals_of(w.c, 0).ends_unheard, 1);
	over(&w);
}

static void test_requester_returns(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *worker = open_consumer(w.c, 1, Q, 1, 0, NULL);
	struct ask *a;

	settle(w.c);
	a = asked(&w, "r1", 1, NULL);
	close_consumer(w.c, w.requester, RP_QUEUE_CLOSE_ENDED);
	cluster_run(w.c, 500 * MS);
	w.requester = open_consumer(w.c, 0, REPLY, 250, 1, NULL);
	cluster_run(w.c, 1000 * MS);
	assert_int_equal(shown(worker, true), 0);
	last_output(w.c, 1, job_of(w.c, 1, a->request), 4);
	settle(w.c);
	got(&w, 1, 4);
	over(&w);
}

/* Who would have told is dead: the reply queue tells it. */
static void test_dispatcher_dies(void **state)
{
	struct world w = world_new(3, NULL);
	const struct ask_options o = {.left_us = 2000000};

	open_consumer(w.c, 1, Q, 1, 0, NULL);
	settle(w.c);
	asked(&w, "r1", 1, &o);
	assert_true(info_of(w.c, 1, Q).dispatching);
	cluster_kill(w.c, 1);
	cluster_state(w.c, 1, RP_NODE_GONE);
	cluster_run(w.c, 4900 * MS);
	got(&w, 0, 0);
	cluster_run(w.c, 200 * MS);
	got(&w, 1, failed(RP_QUEUE_DEATH_DEADLINE));
	assert_int_equal(totals_of(w.c, 0).sessions_expired, 1);
	over(&w);
}

/* A requester that does not read: its worker is told to wait, and other requests go on. */
static void test_back_pressure(void **state)
{
	const struct rp_queue_config config = {.output_credit = 8192};
	struct world w = world_new(3, &config);
	struct held_job job;
	unsigned token, taken = 0;
	struct ask *a;

	open_consumer(w.c, 1, Q, 1, 0, ";prefetch=9");
	settle(w.c);
	a = asked(&w, "r1", 1, NULL);
	job = *job_of(w.c, 1, a->request);
	w.requester->mute = true;
	for (unsigned i = 0; i < 200; i++) {
		token = output(w.c, 1, REPLY, &job, 7 * (50 + i));
		cluster_run(w.c, 4 * MS);
		if (answer_of(w.c, token)->status != RP_Q_OK)
			break;
		taken++;
	}
	status_is(w.c, token, RP_Q_BUSY);
	assert_true(taken > 2 && taken < 40);
	assert_true(info_of(w.c, 0, REPLY).bytes <= 8192 + 3100);
	/* Another requester's is not held up, nor is its end. */
	open_consumer(w.c, 2, "reply-2", 251, 0, NULL);
	settle(w.c);
	a = ask(w.c, 2, Q, "r2", 4, "reply-2", NULL);
	settle(w.c);
	token = output(w.c, 1, "reply-2", job_of(w.c, 1, a->request), 70);
	settle(w.c);
	ok(w.c, token);
	ack(w.c, 1, Q, 1, job_of(w.c, 1, a->request)->idx, 0);
	/* It reads again. */
	w.requester->mute = false;
	cluster_run(w.c, 6 * SEC);
	token = output(w.c, 1, REPLY, &job, 99);
	settle(w.c);
	ok(w.c, token);
	got(&w, taken + 1, 99);
	ack(w.c, 1, Q, 1, job.idx, 0);
	settle(w.c);
	got(&w, taken + 2, EMPTY_FINAL);
	over(&w);
}

/* Outputs that leave together are taken in their order, or not at all. */
static void test_in_turn(void **state)
{
	struct world w = world_new(2, NULL);
	struct held_job job;
	const struct ask_options o = {.left_us = 60000000};
	unsigned t[4], taken;
	struct ask *a;

	open_consumer(w.c, 1, Q, 1, 0, NULL);
	settle(w.c);
	a = asked(&w, "r1", 1, &o);
	job = *job_of(w.c, 1, a->request);
	for (unsigned i = 0; i < 3; i++)
		t[i] = output_in_turn(w.c, 1, REPLY, &job, 70 + i, 5, 1 + i);
	settle(w.c);
	for (unsigned i = 0; i < 3; i++)
		ok(w.c, t[i]);
	got(&w, 3, 72);
	/* One is missing, or is another stream's. */
	t[0] = output_in_turn(w.c, 1, REPLY, &job, 74, 5, 5);
	t[1] = output_in_turn(w.c, 1, REPLY, &job, 73, 6, 4);
	settle(w.c);
	status_is(w.c, t[0], RP_Q_BUSY);
	status_is(w.c, t[1], RP_Q_BUSY);
	got(&w, 3, 72);
	/* A stream begins anew, and goes on. */
	t[0] = output_in_turn(w.c, 1, REPLY, &job, 80, 7, 1);
	t[1] = output_in_turn(w.c, 1, REPLY, &job, 81, 7, 2);
	settle(w.c);
	ok(w.c, t[0]);
	ok(w.c, t[1]);
	got(&w, 5, 81);
	/* Nobody reads: what is refused is refused with all behind it, though that is small. */
	w.c->rooms[1] = 0;
	w.requester->mute = true;
	for (taken = 0; taken < 1000; taken++) {
		/* Of some size: a multiple of 7 carries a filler. */
		t[0] = output_in_turn(w.c, 1, REPLY, &job, 7 * (500 + taken % 400), 7, 3 + taken);
		settle(w.c);
		if (answer_of(w.c, t[0])->status != RP_Q_OK)
			break;
	}
	status_is(w.c, t[0], RP_Q_BUSY);
	t[1] = output_in_turn(w.c, 1, REPLY, &job, 1, 7, 4 + taken);
	settle(w.c);
	status_is(w.c, t[1], RP_Q_BUSY);
	assert_int_equal(w.c->rooms[1], 0);
	/* It reads again, and the worker's node is told, once. */
	w.requester->mute = false;
	cluster_run(w.c, 6 * SEC);
	assert_int_equal(w.c->rooms[1], 1);
	t[0] = output_in_turn(w.c, 1, REPLY, &job, 1, 8, 1);
	settle(w.c);
	ok(w.c, t[0]);
	ack(w.c, 1, Q, 1, job.idx, 0);
	settle(w.c);
	got(&w, 5 + taken + 2, EMPTY_FINAL);
	over(&w);
}

/* The end of a request is shown once, though its requester goes on at once at another node. */
static void test_requester_moves_at_the_end(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *there, *again;
	struct held_job job;
	struct ask *a;

	/* The reply queue is dispatched by a node where its requester is not. */
	open_consumer(w.c, 1, Q, 1, 0, NULL);
	close_consumer(w.c, w.requester, RP_QUEUE_CLOSE_LEFT);
	open_consumer(w.c, 0, REPLY, 249, 0, ";match=none");
	there = open_consumer(w.c, 1, REPLY, 250, 0, NULL);
	settle(w.c);
	assert_true(info_of(w.c, 0, REPLY).dispatching);
	a = asked(&w, "r1", 1, NULL);
	job = *job_of(w.c, 1, a->request);
	output(w.c, 1, REPLY, &job, 70);
	settle(w.c);
	last_output(w.c, 1, &job, 80);
	while (there->event_count < 2) {
		/* What is said of it is slow, once it has come. */
		if (w.c->nodes[1].qs && info_of(w.c, 0, REPLY).in_flight > 0)
			w.c->delay_min_ns = w.c->delay_max_ns = 20 * MS;
		cluster_run(w.c, MS / 10);
	}
	w.c->delay_min_ns = w.c->delay_max_ns = MS / 2;
	close_consumer(w.c, there, RP_QUEUE_CLOSE_ENDED);
	again = open_consumer(w.c, 2, REPLY, 250, there->events[1].revision + 1, NULL);
	cluster_run(w.c, 100 * MS);
	assert_int_equal(again->event_count, 0);
	over(&w);
}

static void test_too_large(void **state)
{
	struct world w = world_new(2, NULL);
	struct client *worker = open_consumer(w.c, 1, Q, 1, 0, NULL);
	uint8_t uuid[RP_UUID_BYTES];
	struct ask *a;

	settle(w.c);
	a = asked(&w, "r1", 1, NULL);
	uuid_of(1, uuid);
	rp_queue_fail(w.c->nodes[1].qs, (1u << 20) + w.c->token_count++, span_of(Q),
		job_of(w.c, 1, a->request)->idx, uuid, w.c->now_ns);
	settle(w.c);
	assert_int_equal(shown(worker, true), 1);
	got(&w, 1, failed(RP_QUEUE_DEATH_TOO_LARGE));
	over(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_completes),
		cmocka_unit_test(test_ack_completes),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_refused_is_closed),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_rejected),
		cmocka_unit_test(test_worker_leaves),
		cmocka_unit_test(test_worker_returns),
		cmocka_unit_test(test_worker_node_dies),
		cmocka_unit_test(test_deserted),
		cmocka_unit_test(test_requester_gone),
		cmocka_unit_test(test_requester_returns),
		cmocka_unit_test(test_dispatcher_dies),
		cmocka_unit_test(test_back_pressure),
		cmocka_unit_test(test_in_turn),
		cmocka_unit_test(test_requester_moves_at_the_end),
		cmocka_unit_test(test_too_large),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
