/* SPDX-License-Identifier: Apache-2.0 */

/* What a dispatcher has bound, and is to hear of, when another one dispatches by now. */

#include <stdio.h>
#include <string.h>

#include "rules.h"

/*
 * Node 0 dispatched, and what its consumer on node 2 holds stays with it; node 1 dispatches since.
 * Records take so long that nothing is known by them.
 */
struct former {
	struct cluster *c;
	struct client *holder, *other;
};

static struct former former_new(void)
{
	struct former f = {.c = cluster_new(3, 1, NULL)};
	char text[64];

	open_consumer(f.c, 0, Q, 9, 0, ";match=none");
	settle(f.c);
	f.holder = open_consumer(f.c, 2, Q, 1, 0, ";match=t");
	settle(f.c);
	put(f.c, 0, Q, "t", 1);
	put(f.c, 0, Q, "t", 2);
	settle(f.c);
	assert_int_equal(f.holder->event_count, 2);
	f.other = open_consumer(f.c, 1, Q, 2, 0, ";match=none");
	settle(f.c);
	snprintf(text, sizeof(text), "102;epoch=%u", info_of(f.c, 0, Q).epoch + 1);
	publish_record(f.c, Q, text);
	settle(f.c);
	assert_false(info_of(f.c, 0, Q).dispatching);
	assert_true(info_of(f.c, 1, Q).dispatching);
	assert_int_equal(info_of(f.c, 0, Q).in_flight, 2);
	f.c->registry_ns = 1000 * SEC;
	return f;
}

/* The consumer leaves: who has bound something of it hears so, and at once. */
static void test_left(void **state)
{
	struct former f = former_new();
	struct client *next;

	next = open_consumer(f.c, 1, Q, 3, 0, NULL);
	settle(f.c);
	assert_int_equal(next->event_count, 0);
	close_consumer(f.c, f.holder, RP_QUEUE_CLOSE_LEFT);
	settle(f.c);
	assert_int_equal(next->event_count, 2);
	assert_int_equal(next->events[0].value, 1);
	assert_int_equal(next->events[1].value, 2);
	assert_int_equal(info_of(f.c, 0, Q).depth, 0);
	cluster_free(f.c);
}

/* Likewise when the word of it is lost, as often as it is. */
static void test_left_word_lost(void **state)
{
	struct former f = former_new();
	struct client *next;

	next = open_consumer(f.c, 1, Q, 3, 0, NULL);
	settle(f.c);
	close_consumer(f.c, f.holder, RP_QUEUE_CLOSE_LEFT);
	for (unsigned i = 0; i < 3; i++) {
		cluster_silence(f.c, 0, 2, true);
		cluster_run(f.c, MS);
		cluster_silence(f.c, 0, 2, false);
	}
	settle(f.c);
	assert_int_equal(next->event_count, 2);
	assert_int_equal(info_of(f.c, 0, Q).depth, 0);
	cluster_free(f.c);
}

/* A new watch of the same consumer lets go what it had, whoever delivered it. */
static void test_new_life(void **state)
{
	struct former f = former_new();
	struct client *next;

	close_consumer(f.c, f.holder, RP_QUEUE_CLOSE_ENDED);
	next = open_consumer(f.c, 2, Q, 1, 0, ";match=t");
	settle(f.c);
	assert_int_equal(next->event_count, 2);
	for (unsigned i = 0; i < 2; i++) {
		unsigned t;

		assert_int_equal(next->events[i].value, 1 + i);
		assert_int_equal(next->events[i].attempt, 2);
		t = ack(f.c, 2, Q, 1, next->events[i].idx, 0);
		settle(f.c);
		deleted(f.c, t, 1);
	}
	assert_int_equal(info_of(f.c, 0, Q).depth + info_of(f.c, 1, Q).depth, 0);
	cluster_free(f.c);
}

/* One that comes back is sent again, unchanged, what it says it has not got; no more. */
static void test_comes_back(void **state)
{
	for (unsigned lost = 0; lost < 2; lost++) {
		struct former f = former_new();
		struct client *next;

		close_consumer(f.c, f.holder, RP_QUEUE_CLOSE_ENDED);
		if (lost)
			cluster_silence(f.c, 0, 2, true);
		next = open_consumer(f.c, 2, Q, 1, f.holder->events[1].revision, ";match=t");
		settle(f.c);
		if (lost)
			cluster_silence(f.c, 0, 2, false);
		settle(f.c);
		assert_int_equal(next->event_count, 1);
		assert_true(next->events[0].idx == f.holder->events[1].idx);
		assert_true(next->events[0].revision == f.holder->events[1].revision);
		assert_int_equal(next->events[0].attempt, 1);
		for (unsigned i = 0; i < 2; i++) {
			unsigned t = ack(f.c, 2, Q, 1, f.holder->events[i].idx, 0);

			settle(f.c);
			deleted(f.c, t, 1);
		}
		assert_int_equal(info_of(f.c, 0, Q).depth + info_of(f.c, 1, Q).depth, 0);
		cluster_free(f.c);
	}
}

/*
 * What the former dispatcher has to hand over cannot leave it for long: a put of the node that sent
 * it there waits, and comes after it.
 */
static void test_order_waits(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl;
	char text[64];
	unsigned t;

	put(c, 0, Q, "t", 1);
	settle(c);
	for (unsigned i = 2; i <= 5; i++)
		put(c, 2, Q, "t", i);
	settle(c);
	assert_int_equal(info_of(c, 0, Q).waiting, 5);
	cluster_silence(c, 0, 1, true);
	cl = open_consumer(c, 1, Q, 1, 0, NULL);
	snprintf(text, sizeof(text), "102;epoch=%u", info_of(c, 0, Q).epoch + 1);
	publish_record(c, Q, text);
	settle(c);
	assert_true(info_of(c, 1, Q).dispatching);
	t = put(c, 2, Q, "t", 6);
	cluster_run(c, 30 * SEC);
	cluster_audit(c);
	assert_int_equal(cl->event_count, 0);
	assert_false(answer_of(c, t)->done);
	cluster_silence(c, 0, 1, false);
	cluster_run(c, SEC);
	ok(c, t);
	assert_int_equal(cl->event_count, 6);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(cl->events[i].value, 1 + i);
	cluster_free(c);
}

/*
 * A put waits here for a former dispatcher's word, and meanwhile the queue is lost to a third node:
 * what this one took before, and hands over, goes first.
 */
static void test_waiting_puts_go_behind(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl;
	char text[64];
	unsigned t;

	put(c, 0, Q, "t", 1);
	settle(c);
	t = put(c, 1, Q, "t", 2);
	settle(c);
	ok(c, t);
	cluster_silence(c, 0, 1, true);
	cluster_silence(c, 0, 2, true);
	rp_queue_set_node(c->nodes[1].qs, c->nodes[0].id, RP_NODE_SPARE, c->now_ns);
	c->registry_ns = 1000 * SEC;
	put(c, 1, Q, "t", 3);
	put(c, 1, Q, "t", 4);
	settle(c);
	assert_int_equal(info_of(c, 1, Q).waiting, 2);
	rp_queue_set_node(c->nodes[1].qs, c->nodes[0].id, RP_NODE_ONLINE, c->now_ns);
	t = put(c, 1, Q, "t", 5);
	settle(c);
	assert_false(answer_of(c, t)->done);
	cl = open_consumer(c, 2, Q, 1, 0, NULL);
	snprintf(text, sizeof(text), "103;epoch=%u", info_of(c, 1, Q).epoch + 1);
	publish_record(c, Q, text);
	settle(c);
	cluster_silence(c, 0, 1, false);
	cluster_silence(c, 0, 2, false);
	cluster_run(c, SEC);
	ok(c, t);
	assert_int_equal(cl->event_count, 5);
	for (unsigned i = 0, last = 1; i < 5; i++) {
		if (cl->events[i].value == 1)
			continue;
		/* What it handed over itself, and the newest, in their order. */
		if (cl->events[i].value > 2) {
			assert_true(cl->events[i].value > last);
			last = (unsigned)cl->events[i].value;
		}
	}
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_left_word_lost),
		cmocka_unit_test(test_new_life),
		cmocka_unit_test(test_comes_back),
		cmocka_unit_test(test_order_waits),
		cmocka_unit_test(test_waiting_puts_go_behind),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
