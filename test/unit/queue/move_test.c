/* SPDX-License-Identifier: Apache-2.0 */

/* A node that stops hands over what it dispatches: nothing is lost, nothing comes twice. */

#include <stdio.h>
#include <string.h>

#include "rules.h"

#define MANY 300

static void put_many(struct cluster *c, unsigned node, unsigned from, unsigned count)
{
	for (unsigned i = from; i < from + count; i++) {
		char tail[16];

		snprintf(tail, sizeof(tail), "t%u", i);
		put(c, node, Q, tail, i);
		if (i % 20 == 19)
			cluster_run(c, MS);
	}
	settle(c);
}

/* Stops it, and ends it when it says that nothing is left. */
static void stop(struct cluster *c, unsigned node)
{
	uint64_t start_ns = c->now_ns;

	rp_queue_stop(c->nodes[node].qs, c->now_ns);
	while (rp_queue_is_moving(c->nodes[node].qs)) {
		cluster_run(c, MS / 2);
		cluster_audit(c);
		assert_true(c->now_ns - start_ns < 5 * SEC);
	}
	/* What it says last is on its way. */
	cluster_run(c, 2 * MS);
	assert_int_equal(info_of(c, node, Q).depth, 0);
}

static void gone(struct cluster *c, unsigned node)
{
	cluster_state(c, node, RP_NODE_GONE);
	cluster_kill(c, node);
}

static void shown_in_order(const struct client *cl, unsigned first, unsigned count)
{
	unsigned next = first;

	for (unsigned i = 0; i < cl->event_count; i++) {
		if (cl->events[i].deleted)
			continue;
		assert_int_equal(cl->events[i].value, next);
		next++;
	}
	assert_int_equal(next, first + count);
}

static void ack_all(struct cluster *c, unsigned node, const struct client *cl, unsigned uuid)
{
	for (unsigned i = 0; i < cl->event_count; i++) {
		unsigned a = ack(c, node, Q, uuid, cl->events[i].idx, 0);

		settle(c);
		assert_true(answer_of(c, a)->done);
		assert_int_equal(answer_of(c, a)->status, RP_Q_OK);
		assert_int_equal(answer_of(c, a)->deleted, 1);
	}
}

static void test_backlog(void **state)
{
	for (unsigned seed = 1; seed < 6; seed++) {
		struct cluster *c = cluster_new(3, seed, NULL);
		struct client *b;

		c->delay_max_ns = seed * MS / 2;
		c->full_one_in = seed == 5 ? 5 : 0;
		put_many(c, 0, 0, MANY);
		assert_int_equal(info_of(c, 0, Q).depth, MANY);
		stop(c, 0);
		gone(c, 0);
		settle(c);
		assert_int_equal(info_of(c, 1, Q).depth + info_of(c, 2, Q).depth, MANY);
		b = open_consumer(c, 2, Q, 7, 0, ";prefetch=1000");
		cluster_run(c, 200 * MS);
		shown_in_order(b, 0, MANY);
		cluster_free(c);
	}
}

/* Bound to a consumer of the taker, of a third node, of the node that stops. */
static void test_bound_stays_bound(void **state)
{
	for (unsigned at = 0; at < 3; at++) {
		struct cluster *c = cluster_new(3, 1, NULL);
		struct client *mine, *later;

		/* It dispatches since it came first. */
		put_many(c, 0, 0, 1);
		mine = open_consumer(c, at, Q, 7, 0, ";prefetch=10");
		settle(c);
		put_many(c, 1, 1, 29);
		assert_int_equal(info_of(c, 0, Q).in_flight, 10);
		shown_in_order(mine, 0, 10);
		stop(c, 0);
		settle(c);
		assert_int_equal(info_of(c, 1, Q).in_flight + info_of(c, 2, Q).in_flight, 10);
		assert_int_equal(info_of(c, 1, Q).depth + info_of(c, 2, Q).depth, 30);
		if (at > 0)
			gone(c, 0);
		/* It is not shown again, nor to anybody else; and it is his to acknowledge. */
		later = open_consumer(c, 2, Q, 8, 0, ";prefetch=1000");
		settle(c);
		shown_in_order(mine, 0, 10);
		shown_in_order(later, 10, 20);
		ack_all(c, at, mine, 7);
		assert_int_equal(info_of(c, 1, Q).depth + info_of(c, 2, Q).depth, 20);
		/* Until the ack of his that did not change its prefetch: nothing more for him. */
		shown_in_order(mine, 0, 10);
		cluster_free(c);
	}
}

/* Acknowledged while it moves: each once, whoever has it at that moment. */
static void test_acknowledge_meanwhile(void **state)
{
	for (unsigned seed = 1; seed < 20; seed++) {
		struct cluster *c = cluster_new(3, seed, NULL);
		unsigned at = seed % 3, tokens[MANY], n = 0;
		struct client *cl;

		c->delay_max_ns = 3 * MS;
		put_many(c, 0, 0, 1);
		cl = open_consumer(c, at, Q, 7, 0, ";prefetch=1000");
		settle(c);
		put_many(c, 1, 1, MANY - 1);
		cluster_run(c, 100 * MS);
		shown_in_order(cl, 0, MANY);
		rp_queue_stop(c->nodes[0].qs, c->now_ns);
		while (n < MANY) {
			for (unsigned i = 0; i < 10; i++, n++)
				tokens[n] = ack(c, at, Q, 7, cl->events[n].idx, 0);
			cluster_run(c, MS / 2);
			cluster_audit(c);
		}
		cluster_run(c, 500 * MS);
		cluster_audit(c);
		assert_false(rp_queue_is_moving(c->nodes[0].qs));
		for (unsigned i = 0; i < MANY; i++) {
			assert_true(answer_of(c, tokens[i])->done);
			assert_int_equal(answer_of(c, tokens[i])->status, RP_Q_OK);
			assert_int_equal(answer_of(c, tokens[i])->deleted, 1);
		}
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(info_of(c, i, Q).depth, 0);
		shown_in_order(cl, 0, MANY);
		cluster_free(c);
	}
}

/* Puts go on, at the taker and at a third node: none is lost, and each producer's are in order. */
static void test_puts_meanwhile(void **state)
{
	for (unsigned seed = 1; seed < 10; seed++) {
		struct cluster *c = cluster_new(3, seed, NULL);
		unsigned next[2] = {0, 1000}, taken = 0, seen = 0;
		struct client *cl;

		c->delay_max_ns = 3 * MS;
		put_many(c, 0, 5000, 50);
		for (unsigned i = 0; i < 100; i++) {
			for (unsigned k = 0; k < 2; k++) {
				char tail[16];

				snprintf(tail, sizeof(tail), "t%u", next[k]);
				put(c, 1 + k, Q, tail, next[k]++);
				taken++;
			}
			if (i == 30)
				rp_queue_stop(c->nodes[0].qs, c->now_ns);
			cluster_run(c, MS / 2);
			cluster_audit(c);
		}
		cluster_run(c, SEC);
		assert_false(rp_queue_is_moving(c->nodes[0].qs));
		gone(c, 0);
		cl = open_consumer(c, 1, Q, 7, 0, ";prefetch=1000");
		cluster_run(c, 200 * MS);
		next[0] = 0;
		next[1] = 1000;
		for (unsigned i = 0; i < cl->event_count; i++) {
			uint64_t v = cl->events[i].value;

			if (v >= 5000)
				assert_int_equal(v, 5000 + i);
			else
				assert_int_equal(v, next[v >= 1000]++);
			seen++;
		}
		assert_int_equal(seen, taken + 50);
		cluster_free(c);
	}
}

/* The taker dies in the middle: what it had not taken is dispatched by the old one again. */
static void test_taker_dies(void **state)
{
	struct cluster *c = cluster_new(2, 3, NULL);
	unsigned depth;

	c->delay_min_ns = c->delay_max_ns = 2 * MS;
	put_many(c, 0, 0, MANY);
	rp_queue_stop(c->nodes[0].qs, c->now_ns);
	while (info_of(c, 1, Q).depth < 20)
		cluster_run(c, MS / 10);
	gone(c, 1);
	settle(c);
	cluster_run(c, SEC);
	cluster_audit(c);
	depth = info_of(c, 0, Q).depth;
	assert_true(info_of(c, 0, Q).dispatching);
	assert_in_range(depth, 1, MANY);
	assert_false(rp_queue_is_moving(c->nodes[0].qs));
	cluster_start(c, 1);
	cluster_join(c, 0, 1);
	settle(c);
	cluster_free(c);
}

/* Nobody is there to take it: it stops all the same, at once. */
static void test_alone(void **state)
{
	struct cluster *c = cluster_new(1, 1, NULL);

	put_many(c, 0, 0, 10);
	rp_queue_stop(c->nodes[0].qs, c->now_ns);
	cluster_run(c, 5 * MS);
	assert_false(rp_queue_is_moving(c->nodes[0].qs));
	assert_int_equal(info_of(c, 0, Q).depth, 10);
	cluster_free(c);
}

static bool dispatches(struct cluster *c, unsigned node)
{
	return info_of(c, node, Q).dispatching;
}

/* It goes to the node that has the consumers, when there is none where it is. */
static void test_taken_over(void **state)
{
	for (unsigned seed = 1; seed < 8; seed++) {
		struct cluster *c = cluster_new(3, seed, NULL);
		struct client *b, *a;

		c->delay_max_ns = seed * MS / 2;
		put_many(c, 0, 0, MANY);
		b = open_consumer(c, 1, Q, 7, 0, ";prefetch=100");
		cluster_run(c, 800 * MS);
		assert_true(dispatches(c, 0));
		shown_in_order(b, 0, 100);
		/* One that opens there just in time keeps it. */
		if (seed % 2) {
			a = open_consumer(c, 0, Q, 8, 0, ";match=nothing");
			cluster_run(c, 3 * SEC);
			cluster_audit(c);
			assert_true(dispatches(c, 0));
			close_consumer(c, a, RP_QUEUE_CLOSE_LEFT);
			publish_consumer(c, Q, 8, "");
		}
		cluster_run(c, 3 * SEC);
		cluster_audit(c);
		assert_true(dispatches(c, 1));
		assert_int_equal(info_of(c, 0, Q).depth, 0);
		shown_in_order(b, 0, 100);
		ack_all(c, 1, b, 7);
		cluster_run(c, 100 * MS);
		shown_in_order(b, 0, MANY);
		cluster_free(c);
	}
}

/* Two nodes want it: one gets it, and keeps it. */
static void test_two_want_it(void **state)
{
	struct cluster *c = cluster_new(3, 2, NULL);
	struct client *x, *y;

	put_many(c, 0, 0, MANY);
	x = open_consumer(c, 1, Q, 7, 0, ";prefetch=1000");
	y = open_consumer(c, 2, Q, 8, 0, ";prefetch=1000");
	cluster_run(c, 10 * SEC);
	cluster_audit(c);
	assert_false(dispatches(c, 0));
	assert_int_equal(dispatches(c, 1) + dispatches(c, 2), 1);
	assert_int_equal(c->nodes[1].claims + c->nodes[2].claims, 1);
	assert_int_equal(x->event_count + y->event_count, MANY);
	assert_int_equal(info_of(c, 0, Q).depth, 0);
	cluster_free(c);
}

/* One after the other, as an upgrade does it. */
static void test_one_after_the_other(void **state)
{
	for (unsigned seed = 1; seed < 6; seed++) {
		struct cluster *c = cluster_new(3, seed, NULL);
		struct client *cl;

		put_many(c, 0, 0, MANY);
		for (unsigned i = 0; i < 6; i++) {
			stop(c, i % 3);
			gone(c, i % 3);
			settle(c);
			cluster_start(c, i % 3);
			cluster_join(c, i % 3, (i + 1) % 3);
			cluster_join(c, i % 3, (i + 2) % 3);
			settle(c);
		}
		cl = open_consumer(c, seed % 3, Q, 7, 0, ";prefetch=1000");
		cluster_run(c, 300 * MS);
		shown_in_order(cl, 0, MANY);
		cluster_free(c);
	}
}

/* Its taker has no buffers for all of it: the rest follows, in order, as others are acknowledged.
 */
static void test_into_few_buffers(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *other, *mine;
	unsigned taken = 0;
	uint64_t start_ns;

	gone(c, 1);
	c->config.pool = pool_tight;
	cluster_start(c, 1);
	cluster_join(c, 0, 1);
	put_many(c, 0, 0, MANY);
	assert_int_equal(info_of(c, 0, Q).depth, MANY);
	while (answer_of(c, put(c, 1, "other", "t", taken))->status == RP_Q_OK)
		taken++;
	assert_true(taken > MANY);
	rp_queue_stop(c->nodes[0].qs, c->now_ns);
	cluster_run(c, 500 * MS);
	cluster_audit(c);
	assert_true(rp_queue_is_moving(c->nodes[0].qs));
	assert_true(rte_mempool_avail_count(pool_tight) > 0);
	assert_in_range(info_of(c, 1, Q).depth, 10, MANY / 2);
	other = open_consumer(c, 1, "other", 8, 0, ";prefetch=1000");
	settle(c);
	assert_int_equal(other->event_count, taken);
	for (unsigned i = 0; i < taken; i++) {
		deleted(c, ack(c, 1, "other", 8, other->events[i].idx, 0), 1);
		cluster_run(c, MS / 2);
	}
	start_ns = c->now_ns;
	while (rp_queue_is_moving(c->nodes[0].qs)) {
		cluster_run(c, MS);
		assert_true(c->now_ns - start_ns < 5 * SEC);
	}
	settle(c);
	gone(c, 0);
	settle(c);
	assert_int_equal(info_of(c, 1, Q).depth, MANY);
	mine = open_consumer(c, 1, Q, 7, 0, ";prefetch=1000");
	cluster_run(c, 200 * MS);
	shown_in_order(mine, 0, MANY);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_backlog),
		cmocka_unit_test(test_into_few_buffers),
		cmocka_unit_test(test_bound_stays_bound),
		cmocka_unit_test(test_acknowledge_meanwhile),
		cmocka_unit_test(test_puts_meanwhile),
		cmocka_unit_test(test_taker_dies),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_taken_over),
		cmocka_unit_test(test_two_want_it),
		cmocka_unit_test(test_one_after_the_other),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
