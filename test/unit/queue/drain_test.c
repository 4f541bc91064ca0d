/* SPDX-License-Identifier: Apache-2.0 */

/* A node that is drained: its queues go, its consumers go on elsewhere, puts go through. */

#include <stdio.h>
#include <string.h>

#include "rules.h"

static uint32_t left_at(struct cluster *c, unsigned node)
{
	struct rp_queue_totals t;

	rp_queue_get_totals(c->nodes[node].qs, &t);
	return t.dispatched + t.held;
}

static void drain(struct cluster *c, unsigned node)
{
	rp_queue_drain(c->nodes[node].qs, true, c->now_ns);
	for (unsigned i = 0; i < 200 && left_at(c, node) > 0; i++) {
		cluster_run(c, 10 * MS);
		cluster_audit(c);
	}
	assert_int_equal(left_at(c, node), 0);
	settle(c);
}

static enum rp_qstatus put_status(
	struct cluster *c, unsigned node, const char *queue, uint64_t value)
{
	unsigned token = put(c, node, queue, "t", value);

	settle(c);
	assert_true(answer_of(c, token)->done);
	return answer_of(c, token)->status;
}

/* What was shown stays its consumer's, which goes on at another node behind it. */
static void test_consumer_goes_on(void **state)
{
	for (unsigned seed = 1; seed < 6; seed++) {
		struct cluster *c = cluster_new(3, seed, NULL);
		struct client *mine, *later;
		unsigned a;

		c->delay_max_ns = seed * MS / 2;
		mine = open_consumer(c, 0, Q, 7, 0, ";prefetch=3");
		settle(c);
		for (unsigned i = 0; i < 6; i++)
			assert_int_equal(put_status(c, 1, Q, i), RP_Q_OK);
		assert_int_equal(shown(mine, false), 3);
		drain(c, 0);
		assert_true(mine->ended);
		assert_int_equal(mine->end, RP_QUEUE_END_DRAINING);
		assert_int_equal(info_of(c, 1, Q).in_flight + info_of(c, 2, Q).in_flight, 3);
		later = open_consumer(c, 2, Q, 7, mine->events[2].revision + 1, ";prefetch=3");
		settle(c);
		assert_int_equal(shown(later, false), 0);
		for (unsigned i = 0; i < 3; i++) {
			a = ack(c, i, Q, 7, mine->events[i].idx, 0);
			settle(c);
			assert_int_equal(answer_of(c, a)->deleted, 1);
		}
		settle(c);
		assert_int_equal(shown(later, false), 3);
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(later->events[i].value, 3 + i);
		assert_int_equal(shown(mine, true) + shown(later, true), 0);
		cluster_free(c);
	}
}

/* New work is refused; what others dispatch is forwarded; and all of it ends with the drain. */
static void test_new_work(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	unsigned claims;

	assert_int_equal(put_status(c, 0, Q, 1), RP_Q_OK);
	drain(c, 0);
	assert_int_equal(info_of(c, 1, Q).depth, 1);
	claims = c->nodes[0].claims;
	assert_int_equal(put_status(c, 0, "other", 1), RP_Q_STOPPING);
	assert_int_equal(put_status(c, 0, Q, 2), RP_Q_OK);
	assert_int_equal(info_of(c, 1, Q).depth, 2);
	assert_int_equal(c->nodes[0].claims, claims);
	rp_queue_drain(c->nodes[0].qs, false, c->now_ns);
	assert_int_equal(put_status(c, 0, "other", 1), RP_Q_OK);
	assert_int_equal(info_of(c, 0, "other").depth, 1);
	cluster_free(c);
}

/* Nobody is there: it serves on, and gives away what it has as soon as somebody comes. */
static void test_nobody_takes(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *mine;

	mine = open_consumer(c, 0, Q, 7, 0, "");
	settle(c);
	cluster_state(c, 1, RP_NODE_SPARE);
	rp_queue_drain(c->nodes[0].qs, true, c->now_ns);
	cluster_run(c, 3 * SEC);
	assert_int_equal(left_at(c, 0), 1);
	assert_int_equal(put_status(c, 0, Q, 1), RP_Q_OK);
	assert_int_equal(shown(mine, false), 1);
	assert_false(mine->ended);
	cluster_state(c, 1, RP_NODE_ONLINE);
	cluster_run(c, 3 * SEC);
	assert_int_equal(left_at(c, 0), 0);
	assert_true(mine->ended);
	assert_int_equal(info_of(c, 1, Q).in_flight, 1);
	cluster_free(c);
}

/* Two that drain at once do not hand each other the queue for ever, nor keep it from its consumer.
 */
static void test_both_drain(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *mine = open_consumer(c, 0, Q, 7, 0, "");
	unsigned claims;

	settle(c);
	claims = c->nodes[0].claims + c->nodes[1].claims;
	rp_queue_drain(c->nodes[0].qs, true, c->now_ns);
	rp_queue_drain(c->nodes[1].qs, true, c->now_ns);
	for (unsigned i = 0; i < 5; i++) {
		put(c, 0, Q, "t", i);
		cluster_run(c, 2 * SEC);
	}
	assert_int_equal(shown(mine, false), 5);
	assert_int_equal(c->nodes[0].claims + c->nodes[1].claims, claims);
	rp_queue_drain(c->nodes[0].qs, false, c->now_ns);
	cluster_run(c, 2 * SEC);
	assert_false(mine->ended);
	assert_true(info_of(c, 0, Q).dispatching);
	cluster_free(c);
}

/* Drained no more: who was sent away and does not come back holds nothing for ever. */
static void test_sent_away_for_good(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *mine = open_consumer(c, 0, Q, 7, 0, ""), *other;

	settle(c);
	assert_int_equal(put_status(c, 1, Q, 1), RP_Q_OK);
	assert_int_equal(shown(mine, false), 1);
	drain(c, 0);
	assert_true(mine->ended);
	other = open_consumer(c, 1, Q, 8, 0, "");
	cluster_run(c, 3 * SEC);
	assert_int_equal(shown(other, false), 0);
	rp_queue_drain(c->nodes[0].qs, false, c->now_ns);
	cluster_run(c, 900 * MS);
	assert_int_equal(shown(other, false), 0);
	cluster_run(c, 200 * MS);
	assert_int_equal(shown(other, false), 1);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sent_away_for_good),
		cmocka_unit_test(test_consumer_goes_on),
		cmocka_unit_test(test_new_work),
		cmocka_unit_test(test_nobody_takes),
		cmocka_unit_test(test_both_drain),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
