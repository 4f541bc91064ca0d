/* SPDX-License-Identifier: Apache-2.0 */

/* Which process request goes to whom, and when: priorities, needs, time left, moves. */

#include "requests.h"

static void test_prefetch(void **state)
{
	struct world w = world_new(2, NULL);
	struct client *one = open_consumer(w.c, 1, Q, 1, 0, NULL);
	char tail[8];

	settle(w.c);
	for (unsigned i = 0; i < 6; i++) {
		snprintf(tail, sizeof(tail), "r%u", i);
		ask(w.c, 0, Q, tail, i, REPLY, NULL);
		put(w.c, 0, Q, "plain", 100 + i);
	}
	settle(w.c);
	/* One request, and all that is plain. */
	assert_int_equal(shown(one, false), 7);
	for (unsigned i = 0; i < one->event_count; i++)
		ack(w.c, 1, Q, 1, one->events[i].idx, 0);
	settle(w.c);
	assert_int_equal(shown(one, false), 8);
	close_consumer(w.c, one, RP_QUEUE_CLOSE_LEFT);
	one = open_consumer(w.c, 1, Q, 2, 0, ";prefetch=3");
	settle(w.c);
	assert_int_equal(shown(one, false), 3);
	for (unsigned i = 0; i < 5; i++) {
		for (unsigned k = 0; k < one->event_count; k++)
			ack(w.c, 1, Q, 2, one->events[k].idx, 0);
		settle(w.c);
	}
	assert_int_equal(shown(one, false), 5);
	got(&w, 6, EMPTY_FINAL);
	over(&w);
}

static void test_priorities(void **state)
{
	static const uint8_t order[] = {3, 9, 0, 5, 9, 0, 7};
	static const uint64_t expected[] = {101, 104, 106, 103, 100, 102, 105};
	struct world w = world_new(1, NULL);
	struct client *one;
	char tail[8];

	for (unsigned i = 0; i < RP_ARRAY_SIZE(order); i++) {
		const struct ask_options o = {.priority = order[i], .flags = RP_PROCESS_PRIORITY};

		snprintf(tail, sizeof(tail), "r%u", i);
		asked(&w, tail, 100 + i, &o);
	}
	one = open_consumer(w.c, 0, Q, 1, 0, NULL);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(order); i++) {
		settle(w.c);
		assert_int_equal(one->event_count, i + 1);
		assert_int_equal(one->events[i].value, expected[i]);
		ack(w.c, 0, Q, 1, one->events[i].idx, 0);
	}
	settle(w.c);
	over(&w);
}

/* A policy's priority is for messages that name none; and a second counts as a step. */
static void test_aging(void **state)
{
	struct world w = world_new(1, NULL);
	const struct rp_queue_policy policy = {.match = Q, .priority = 2};
	const struct ask_options four = {.priority = 4, .flags = RP_PROCESS_PRIORITY};
	struct client *one;

	rp_queue_set_policies(w.c->nodes[0].qs, &policy, 1);
	put(w.c, 0, Q, "old", 1);
	cluster_run(w.c, 1500 * MS);
	put(w.c, 0, Q, "young", 2);
	asked(&w, "four", 3, &four);
	cluster_run(w.c, 1000 * MS);
	one = open_consumer(w.c, 0, Q, 1, 0, NULL);
	settle(w.c);
	assert_int_equal(one->event_count, 3);
	/* 2 and two steps, and it was first; 4 and one step. */
	assert_int_equal(one->events[0].value, 3);
	assert_int_equal(one->events[1].value, 1);
	assert_int_equal(one->events[2].value, 2);
	close_consumer(w.c, one, RP_QUEUE_CLOSE_LEFT);
	settle(w.c);
	cluster_run(w.c, 3000 * MS);
	/* The request was nobody's any more. */
	got(&w, 1, failed(RP_QUEUE_DEATH_NO_CONSUMER));
	asked(&w, "late", 4, &four);
	one = open_consumer(w.c, 0, Q, 2, 0, NULL);
	settle(w.c);
	/* By now the plain ones are before what came later with more. */
	assert_int_equal(one->event_count, 3);
	assert_int_equal(one->events[0].value, 1);
	assert_int_equal(one->events[1].value, 2);
	assert_int_equal(one->events[2].value, 4);
	for (unsigned i = 0; i < one->event_count; i++)
		ack(w.c, 0, Q, 2, one->events[i].idx, 0);
	settle(w.c);
	over(&w);
}

static void test_needs(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *plain = open_consumer(w.c, 1, Q, 1, 0, ";cap=cpu");
	struct client *gpu = open_consumer(w.c, 2, Q, 2, 0, ";cap=cpu,gpu");
	char tail[8];

	settle(w.c);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(tail, sizeof(tail), "r%u", i);
		asked(&w, tail, i, &(struct ask_options){.need = "gpu"});
	}
	assert_int_equal(shown(plain, false), 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(shown(gpu, false), i + 1);
		ack(w.c, 2, Q, 2, gpu->events[i].idx, 0);
		settle(w.c);
	}
	assert_int_equal(shown(plain, false), 0);
	got(&w, 4, EMPTY_FINAL);
	over(&w);
}

/* A full queue that drops its oldest tells whoever waits for it. */
static void test_overload(void **state)
{
	struct world w = world_new(1, NULL);
	const struct rp_queue_policy policy = {
		.match = Q, .depth_max = 2, .overflow = RP_QUEUE_OVERFLOW_DROP_OLDEST};

	rp_queue_set_policies(w.c->nodes[0].qs, &policy, 1);
	asked(&w, "r1", 1, NULL);
	asked(&w, "r2", 2, NULL);
	asked(&w, "r3", 3, NULL);
	got(&w, 1, failed(RP_QUEUE_DEATH_OVERFLOW));
	cancel(w.c, 0, Q, "r2");
	cancel(w.c, 0, Q, "r3");
	settle(w.c);
	got(&w, 3, failed(RP_QUEUE_DEATH_CANCELLED));
	over(&w);
}

/* Both queues change their dispatcher meanwhile. */
static void test_moves(void **state)
{
	struct world w = world_new(3, NULL);
	const struct ask_options o = {.left_us = 60000000};
	struct held_job job;
	unsigned token;
	struct ask *held, *waits;

	open_consumer(w.c, 1, Q, 1, 0, NULL);
	settle(w.c);
	held = asked(&w, "r1", 1, &o);
	waits = asked(&w, "r2", 2, &o);
	token = output(w.c, 1, REPLY, job_of(w.c, 1, held->request), 11);
	settle(w.c);
	ok(w.c, token);
	rp_queue_drain(w.c->nodes[1].qs, true, w.c->now_ns);
	cluster_run(w.c, 60 * MS);
	assert_false(info_of(w.c, 1, Q).dispatching);
	/* The client of the drained node comes back at another one. */
	open_consumer(w.c, 2, Q, 1, w.c->clients[1].events[0].revision + 1, NULL);
	cluster_run(w.c, 100 * MS);
	assert_non_null(job_of(w.c, 2, held->request));
	token = output(w.c, 2, REPLY, job_of(w.c, 2, held->request), 12);
	settle(w.c);
	ok(w.c, token);
	assert_int_equal(ask(w.c, 1, Q, "r1", 3, REPLY, NULL)->status, RP_Q_OK);
	settle(w.c);
	job = *job_of(w.c, 2, held->request);
	token = last_output(w.c, 2, &job, 13);
	settle(w.c);
	deleted(w.c, token, 1);
	got(&w, 3, 13);
	rp_queue_drain(w.c->nodes[1].qs, false, w.c->now_ns);
	cluster_run(w.c, 60 * MS);
	assert_non_null(job_of(w.c, 2, waits->request));
	/* And the reply queue, with what it knows. */
	rp_queue_drain(w.c->nodes[0].qs, true, w.c->now_ns);
	cluster_run(w.c, 100 * MS);
	assert_false(info_of(w.c, 0, REPLY).dispatching);
	w.requester = open_consumer(w.c, 1, REPLY, 250, 1, NULL);
	settle(w.c);
	token = put(w.c, 1, REPLY, "r2", 5);
	settle(w.c);
	status_is(w.c, token, RP_Q_NOT_LIVE);
	token = cancel(w.c, 1, Q, "r2");
	settle(w.c);
	deleted(w.c, token, 1);
	cluster_run(w.c, 1000 * MS);
	got(&w, 1, failed(RP_QUEUE_DEATH_CANCELLED));
	over(&w);
}

/* What is left is less at each hop: from its put over the forward to the offer. */
static void test_walk(void **state)
{
	struct world w = world_new(3, NULL);
	const struct ask_options o = {.left_us = 1000000};
	struct client *here, *there;
	uint64_t left = 1000000;

	here = open_consumer(w.c, 1, Q, 1, 0, ";cap=x");
	settle(w.c);
	there = open_consumer(w.c, 2, Q, 2, 0, ";cap=gpu");
	settle(w.c);
	assert_true(info_of(w.c, 1, Q).dispatching);
	asked(&w, "r1", 1, &(struct ask_options){.left_us = o.left_us, .need = "gpu"});
	assert_int_equal(shown(here, false), 0);
	assert_int_equal(shown(there, false), 1);
	assert_int_equal(w.c->walked, 2);
	for (unsigned i = 0; i < w.c->walked; i++) {
		assert_true(w.c->walk[i] < left);
		left = w.c->walk[i];
	}
	assert_true(there->events[0].process.left_us < left);
	/* It is measured: of the time until now, all but what it was on the wire. */
	assert_true(there->events[0].process.left_us < 1000000 - 1000);
	ack(w.c, 2, Q, 2, there->events[0].idx, 0);
	settle(w.c);
	/* How long it waits is taken off when it is offered. */
	asked(&w, "r2", 2, &(struct ask_options){.left_us = 1000000, .need = "late"});
	cluster_run(w.c, 300 * MS);
	there = open_consumer(w.c, 2, Q, 3, 0, ";cap=late");
	settle(w.c);
	assert_int_equal(shown(there, false), 1);
	assert_true(there->events[0].process.left_us < 700000);
	assert_true(there->events[0].process.left_us > 600000);
	ack(w.c, 2, Q, 3, there->events[0].idx, 0);
	settle(w.c);
	got(&w, 2, EMPTY_FINAL);
	over(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prefetch),
		cmocka_unit_test(test_priorities),
		cmocka_unit_test(test_aging),
		cmocka_unit_test(test_needs),
		cmocka_unit_test(test_overload),
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_walk),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
