/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pins (spec/queues.md, "Election, epoch and placement"): a pinned dispatcher stays where it was
 * placed, and follows its only consumer once that was in place for 30 s with nothing outstanding.
 */

#include <stdio.h>
#include <string.h>

#include "rules.h"

static bool dispatches(struct cluster *c, unsigned node)
{
	return info_of(c, node, Q).dispatching;
}

/* Node 0 dispatches, pinned, and hosts no consumer. */
static struct cluster *pinned_at_0(unsigned nodes)
{
	struct cluster *c = cluster_new(nodes, 1, NULL);

	rp_queue_pin(c->nodes[0].qs, span_of(Q), c->now_ns);
	settle(c);
	assert_true(dispatches(c, 0));
	for (unsigned i = 0; i < nodes; i++)
		assert_int_equal(info_of(c, i, Q).dispatcher, c->nodes[0].id);
	return c;
}

static void put_and_ack(struct cluster *c, struct client *cl, unsigned node, unsigned uuid)
{
	unsigned was = cl->event_count, t;

	t = put(c, 0, Q, "t", 1 + was);
	settle(c);
	ok(c, t);
	assert_int_equal(cl->event_count, was + 1);
	t = ack(c, node, Q, uuid, cl->events[was].idx, 0);
	settle(c);
	deleted(c, t, 1);
}

static void test_stays_then_follows(void **state)
{
	struct cluster *c = pinned_at_0(3);
	struct client *b = open_consumer(c, 1, Q, 7, 0, NULL);

	cluster_run(c, 10 * SEC);
	assert_true(dispatches(c, 0));
	put_and_ack(c, b, 1, 7);
	cluster_run(c, 19800 * MS);
	assert_true(dispatches(c, 0));
	cluster_run(c, 400 * MS);
	cluster_audit(c);
	assert_true(dispatches(c, 1));
	assert_false(dispatches(c, 0));
	assert_int_equal(totals_of(c, 0).pins, 1);
	put_and_ack(c, b, 1, 7);
	cluster_free(c);
}

/* One that is not pinned goes at once: nobody waits for 30 s to be where it belongs. */
static void test_not_pinned_goes_at_once(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);

	put(c, 0, Q, "t", 1);
	settle(c);
	assert_true(dispatches(c, 0));
	open_consumer(c, 1, Q, 7, 0, NULL);
	cluster_run(c, 1200 * MS);
	assert_true(dispatches(c, 1));
	cluster_free(c);
}

/* A record that is not pinned any more is taken over like any other. */
static void test_unpinned_by_record(void **state)
{
	struct cluster *c = pinned_at_0(2);
	char text[64];

	open_consumer(c, 1, Q, 7, 0, NULL);
	cluster_run(c, 3 * SEC);
	assert_true(dispatches(c, 0));
	snprintf(text, sizeof(text), "%u;epoch=%u", 101, info_of(c, 0, Q).epoch);
	publish_record(c, Q, text);
	cluster_run(c, 1200 * MS);
	assert_true(dispatches(c, 1));
	cluster_free(c);
}

static void test_waits_for_the_drain(void **state)
{
	struct cluster *c = pinned_at_0(2);
	struct client *b = open_consumer(c, 1, Q, 7, 0, NULL);

	settle(c);
	put(c, 0, Q, "t", 1);
	cluster_run(c, 35 * SEC);
	assert_int_equal(b->event_count, 1);
	assert_true(dispatches(c, 0));
	/* Not with the next timer: with the acknowledge that drains it. */
	ack(c, 1, Q, 7, b->events[0].idx, 0);
	settle(c);
	assert_true(dispatches(c, 1));
	cluster_free(c);
}

static void test_two_consumers_keep_it(void **state)
{
	struct cluster *c = pinned_at_0(3);
	struct client *d;

	open_consumer(c, 1, Q, 7, 0, NULL);
	d = open_consumer(c, 2, Q, 8, 0, NULL);
	cluster_run(c, 65 * SEC);
	assert_true(dispatches(c, 0));
	/* Alone since then, so 30 s from then. */
	close_consumer(c, d, RP_QUEUE_CLOSE_LEFT);
	publish_consumer(c, Q, 8, "");
	cluster_run(c, 29 * SEC);
	assert_true(dispatches(c, 0));
	cluster_run(c, 1200 * MS);
	assert_true(dispatches(c, 1));
	cluster_free(c);
}

/* The time is that at one place: a consumer that wanders drags nothing along. */
static void test_moves_reset_it(void **state)
{
	struct cluster *c = pinned_at_0(3);
	uint64_t revision = 0;

	for (unsigned i = 0; i < 4; i++) {
		struct client *cl = open_consumer(c, 1 + i % 2, Q, 7, revision, NULL);

		cluster_run(c, 20 * SEC);
		assert_true(dispatches(c, 0));
		revision = cl->open_revision + 1;
	}
	cluster_run(c, 10200 * MS);
	assert_true(dispatches(c, 2));
	cluster_free(c);
}

static void test_not_online_does_not_count(void **state)
{
	struct cluster *c = pinned_at_0(2);

	open_consumer(c, 1, Q, 7, 0, NULL);
	cluster_run(c, 20 * SEC);
	rp_queue_set_node(c->nodes[0].qs, c->nodes[1].id, RP_NODE_IN_PROGRESS, c->now_ns);
	cluster_run(c, 20 * SEC);
	assert_true(dispatches(c, 0));
	rp_queue_set_node(c->nodes[0].qs, c->nodes[1].id, RP_NODE_ONLINE, c->now_ns);
	cluster_run(c, 29 * SEC);
	assert_true(dispatches(c, 0));
	cluster_run(c, 1200 * MS);
	assert_true(dispatches(c, 1));
	cluster_free(c);
}

/* queue_link of a queue that a node without consumers dispatches: its backlog comes along. */
static void test_pinned_here_from_elsewhere(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *b;

	for (unsigned i = 1; i <= 50; i++)
		put(c, 0, Q, "t", i);
	settle(c);
	assert_int_equal(info_of(c, 0, Q).depth, 50);
	rp_queue_pin(c->nodes[2].qs, span_of(Q), c->now_ns);
	cluster_run(c, 1200 * MS);
	cluster_audit(c);
	assert_true(dispatches(c, 2));
	assert_int_equal(info_of(c, 2, Q).depth, 50);
	/* A pin it is: the consumer's node gets it after 30 s only, when nothing is left. */
	b = open_consumer(c, 1, Q, 7, 0, ";prefetch=100");
	cluster_run(c, 5 * SEC);
	assert_true(dispatches(c, 2));
	assert_int_equal(b->event_count, 50);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(b->events[i].value, i + 1);
	cluster_free(c);
}

/* From one that hosts a consumer it is not taken, until that has left for good. */
static void test_waits_for_its_host(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *a = open_consumer(c, 0, Q, 7, 0, NULL);

	settle(c);
	rp_queue_pin(c->nodes[1].qs, span_of(Q), c->now_ns);
	cluster_run(c, 5 * SEC);
	assert_true(dispatches(c, 0));
	close_consumer(c, a, RP_QUEUE_CLOSE_LEFT);
	publish_consumer(c, Q, 7, "");
	cluster_run(c, 1500 * MS);
	assert_true(dispatches(c, 1));
	cluster_free(c);
}

/* Two pin the same queue: the first has it. */
static void test_the_first_pin_holds(void **state)
{
	struct cluster *c = pinned_at_0(2);

	rp_queue_pin(c->nodes[1].qs, span_of(Q), c->now_ns);
	cluster_run(c, 40 * SEC);
	assert_true(dispatches(c, 0));
	assert_int_equal(c->nodes[1].claims, 0);
	cluster_free(c);
}

/* Its node dies: elected anew, and the pin is gone with it. */
static void test_cleared_by_an_election(void **state)
{
	struct cluster *c = pinned_at_0(3);

	cluster_state(c, 0, RP_NODE_SPARE);
	cluster_kill(c, 0);
	put(c, 1, Q, "t", 1);
	settle(c);
	assert_true(dispatches(c, 1));
	open_consumer(c, 2, Q, 7, 0, NULL);
	cluster_run(c, 1200 * MS);
	assert_true(dispatches(c, 2));
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stays_then_follows),
		cmocka_unit_test(test_not_pinned_goes_at_once),
		cmocka_unit_test(test_unpinned_by_record),
		cmocka_unit_test(test_waits_for_the_drain),
		cmocka_unit_test(test_two_consumers_keep_it),
		cmocka_unit_test(test_moves_reset_it),
		cmocka_unit_test(test_not_online_does_not_count),
		cmocka_unit_test(test_pinned_here_from_elsewhere),
		cmocka_unit_test(test_waits_for_its_host),
		cmocka_unit_test(test_the_first_pin_holds),
		cmocka_unit_test(test_cleared_by_an_election),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
