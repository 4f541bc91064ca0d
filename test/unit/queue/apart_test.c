/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes that a queue's keys do not go to any more: lib/queue/apart.c says what holds. */

#include <stdio.h>
#include <string.h>

#include "rules.h"

/* Node 0 dispatches and has a consumer; node 1 has one that holds two messages. */
struct parted {
	struct cluster *c;
	struct client *here, *there;
};

static struct parted parted_new(unsigned nodes)
{
	struct parted p = {.c = cluster_new(nodes, 1, NULL)};

	p.here = open_consumer(p.c, 0, Q, 1, 0, ";match=h");
	settle(p.c);
	p.there = open_consumer(p.c, 1, Q, 2, 0, NULL);
	settle(p.c);
	put(p.c, 0, Q, "t", 1);
	put(p.c, 0, Q, "t", 2);
	settle(p.c);
	assert_int_equal(p.there->event_count, 2);
	return p;
}

static unsigned payloads_sent(const struct cluster *c)
{
	return c->qmsg_sent[RP_QMSG_FORWARD] + c->qmsg_sent[RP_QMSG_DELIVER];
}

/* It stays his who has it, for as long as it takes, and is his to acknowledge. */
static void test_held_stays(void **state)
{
	struct parted p = parted_new(2);
	struct client *other;
	unsigned t;

	cluster_part(p.c, 0, 1, true);
	other = open_consumer(p.c, 0, Q, 3, 0, NULL);
	cluster_run(p.c, 20 * SEC);
	cluster_audit(p.c);
	assert_int_equal(other->event_count, 0);
	assert_int_equal(p.there->event_count, 2);
	assert_int_equal(info_of(p.c, 0, Q).in_flight, 2);
	t = get(p.c, 1, Q, 2, p.there->events[0].idx, 0);
	settle(p.c);
	ok(p.c, t);
	for (unsigned i = 0; i < 2; i++) {
		t = ack(p.c, 1, Q, 2, p.there->events[i].idx, 0);
		settle(p.c);
		deleted(p.c, t, 1);
	}
	assert_int_equal(info_of(p.c, 0, Q).depth, 0);
	cluster_free(p.c);
}

/* A reject crosses too: it goes to one on the side where it is. */
static void test_rejected(void **state)
{
	struct parted p = parted_new(2);
	struct client *other;
	unsigned t;

	cluster_part(p.c, 0, 1, true);
	other = open_consumer(p.c, 0, Q, 3, 0, NULL);
	settle(p.c);
	t = reject(p.c, 1, Q, 2, p.there->events[1].idx);
	settle(p.c);
	ok(p.c, t);
	assert_int_equal(other->event_count, 1);
	assert_int_equal(other->events[0].value, 2);
	assert_int_equal(other->events[0].attempt, 2);
	cluster_free(p.c);
}

/* Each side has a dispatcher of its own, and no message crosses; then one is left, with all. */
static void test_each_for_itself(void **state)
{
	struct parted p = parted_new(3);
	unsigned before, acked = 0;
	struct client *all[2];

	cluster_part(p.c, 0, 1, true);
	cluster_part(p.c, 0, 2, true);
	settle(p.c);
	before = payloads_sent(p.c);
	put(p.c, 0, Q, "h", 11);
	put(p.c, 1, Q, "t", 12);
	cluster_run(p.c, SEC);
	assert_true(info_of(p.c, 0, Q).dispatching);
	assert_true(info_of(p.c, 1, Q).dispatching);
	assert_int_equal(payloads_sent(p.c), before);
	put(p.c, 0, Q, "t", 13);
	put(p.c, 2, Q, "h", 14);
	cluster_run(p.c, SEC);
	cluster_audit(p.c);
	assert_int_equal(p.here->event_count, 1);
	assert_int_equal(p.here->events[0].value, 11);
	/* One of 2's went to 1, which is on its side. */
	assert_int_equal(p.there->event_count, 4);
	assert_int_equal(p.there->events[2].value, 12);
	assert_int_equal(p.there->events[3].value, 14);
	assert_int_equal(info_of(p.c, 0, Q).consumers_remote, 0);
	cluster_part(p.c, 0, 1, false);
	cluster_part(p.c, 0, 2, false);
	cluster_run(p.c, 2 * SEC);
	cluster_audit(p.c);
	assert_int_equal(info_of(p.c, 0, Q).dispatching + info_of(p.c, 1, Q).dispatching, 1);
	assert_int_equal(p.there->event_count, 5);
	assert_int_equal(p.there->events[4].value, 13);
	assert_int_equal(p.here->event_count, 1);
	all[0] = p.here;
	all[1] = p.there;
	for (unsigned k = 0; k < 2; k++) {
		for (unsigned i = 0; i < all[k]->event_count; i++) {
			unsigned t = ack(p.c, k, Q, 1 + k, all[k]->events[i].idx, 0);

			settle(p.c);
			deleted(p.c, t, 1);
			acked++;
		}
	}
	assert_int_equal(acked, 6);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(info_of(p.c, i, Q).depth, 0);
	cluster_free(p.c);
}

/* The other side may not know of the rule yet: who dispatches there is not learned. */
static void test_teaches_nothing(void **state)
{
	struct parted p = parted_new(2);
	struct rp_qmsg m = {.type = RP_QMSG_MOVED,
		.name = (const uint8_t *)Q,
		.name_length = sizeof(Q) - 1,
		.dispatcher = p.c->nodes[1].id};
	uint64_t dispatcher;
	uint32_t epoch;

	m.hash = rp_queue_hash(m.name, m.name_length);
	m.epoch = info_of(p.c, 0, Q).epoch + 1;
	cluster_part(p.c, 0, 1, true);
	rp_queue_on_msg(p.c->nodes[0].qs, p.c->nodes[1].id, &m, &epoch, &dispatcher, p.c->now_ns);
	settle(p.c);
	assert_true(info_of(p.c, 0, Q).dispatching);
	cluster_part(p.c, 0, 1, false);
	rp_queue_on_msg(p.c->nodes[0].qs, p.c->nodes[1].id, &m, &epoch, &dispatcher, p.c->now_ns);
	settle(p.c);
	assert_int_equal(info_of(p.c, 0, Q).dispatching + info_of(p.c, 1, Q).dispatching, 1);
	cluster_free(p.c);
}

/* One that never arrived, and may not be sent again, is asked back and goes to another. */
static void test_not_arrived(void **state)
{
	struct parted p = parted_new(2);
	struct client *other;
	unsigned before;

	put(p.c, 0, Q, "t", 3);
	cluster_part(p.c, 0, 1, true);
	cluster_silence(p.c, 0, 1, true);
	cluster_silence(p.c, 0, 1, false);
	other = open_consumer(p.c, 0, Q, 3, 0, NULL);
	before = payloads_sent(p.c);
	settle(p.c);
	assert_int_equal(other->event_count, 0);
	cluster_run(p.c, 11 * SEC);
	cluster_audit(p.c);
	assert_int_equal(payloads_sent(p.c), before);
	assert_int_equal(p.there->event_count, 2);
	assert_int_equal(other->event_count, 1);
	assert_int_equal(other->events[0].value, 3);
	cluster_free(p.c);
}

/* A put that may have crossed: nobody knows, and its producer is told that. */
static void test_put_on_its_way(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	unsigned t;

	put(c, 0, Q, "t", 1);
	settle(c);
	t = put(c, 1, Q, "t", 2);
	cluster_run(c, MS / 2);
	c->apart[0][1] = c->apart[1][0] = true;
	for (unsigned i = 0; i < 40 && !answer_of(c, t)->done; i++) {
		cluster_silence(c, 0, 1, true);
		cluster_silence(c, 0, 1, false);
		cluster_part(c, 0, 1, true);
		cluster_run(c, MS);
	}
	assert_true(answer_of(c, t)->done);
	assert_true(
		answer_of(c, t)->status == RP_Q_UNREACHABLE || answer_of(c, t)->status == RP_Q_OK);
	assert_int_equal(info_of(c, 0, Q).depth + info_of(c, 1, Q).depth,
		1 + (answer_of(c, t)->status == RP_Q_OK || info_of(c, 0, Q).depth == 2));
	cluster_free(c);
}

/* It leaves while the ways are cut as well: the dispatcher hears of it, by no record. */
static void test_leaves(void **state)
{
	struct parted p = parted_new(2);
	struct client *other;

	cluster_part(p.c, 0, 1, true);
	other = open_consumer(p.c, 0, Q, 3, 0, NULL);
	settle(p.c);
	cluster_silence(p.c, 0, 1, true);
	close_consumer(p.c, p.there, RP_QUEUE_CLOSE_LEFT);
	settle(p.c);
	assert_int_equal(other->event_count, 0);
	cluster_silence(p.c, 0, 1, false);
	settle(p.c);
	assert_int_equal(other->event_count, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(other->events[i].value, 1 + i);
		assert_int_equal(other->events[i].attempt, 2);
	}
	cluster_free(p.c);
}

/* Its node dies: offered again after the same time as ever. */
static void test_host_dies(void **state)
{
	struct parted p = parted_new(2);
	struct client *other;

	cluster_part(p.c, 0, 1, true);
	other = open_consumer(p.c, 0, Q, 3, 0, NULL);
	settle(p.c);
	cluster_kill(p.c, 1);
	cluster_run(p.c, 4400 * MS);
	assert_int_equal(other->event_count, 0);
	cluster_run(p.c, 200 * MS);
	assert_int_equal(other->event_count, 2);
	cluster_free(p.c);
}

/* The queue changes its dispatcher on its side: what is held on the other stays held there, and the
 * new one hears of it. */
static void test_handed_over(void **state)
{
	for (unsigned leaves = 0; leaves < 2; leaves++) {
		struct parted p = parted_new(3);
		struct client *other;

		cluster_part(p.c, 0, 1, true);
		cluster_part(p.c, 2, 1, true);
		settle(p.c);
		rp_queue_stop(p.c->nodes[0].qs, p.c->now_ns);
		settle(p.c);
		assert_int_equal(info_of(p.c, 2, Q).in_flight, 2);
		other = open_consumer(p.c, 2, Q, 3, 0, NULL);
		cluster_run(p.c, 12 * SEC);
		cluster_audit(p.c);
		assert_int_equal(other->event_count, 0);
		if (leaves) {
			close_consumer(p.c, p.there, RP_QUEUE_CLOSE_LEFT);
			settle(p.c);
			assert_int_equal(other->event_count, 2);
		} else {
			unsigned t = ack(p.c, 1, Q, 2, p.there->events[0].idx, 0);

			settle(p.c);
			deleted(p.c, t, 1);
			assert_int_equal(info_of(p.c, 2, Q).depth, 1);
		}
		cluster_free(p.c);
	}
}

/* A node that leaves gives its queue to nobody on the other side. */
static void test_drained(void **state)
{
	struct parted p = parted_new(3);

	cluster_part(p.c, 0, 1, true);
	cluster_part(p.c, 2, 1, true);
	put(p.c, 0, Q, "t", 3);
	settle(p.c);
	rp_queue_stop(p.c->nodes[0].qs, p.c->now_ns);
	for (unsigned i = 0; i < 200 && rp_queue_is_moving(p.c->nodes[0].qs); i++)
		cluster_run(p.c, MS);
	assert_false(rp_queue_is_moving(p.c->nodes[0].qs));
	settle(p.c);
	assert_int_equal(info_of(p.c, 0, Q).depth, 0);
	assert_int_equal(info_of(p.c, 2, Q).depth, 3);
	assert_int_equal(info_of(p.c, 2, Q).in_flight, 2);
	cluster_free(p.c);
}

/*
 * Rules that contradict each other: 1 may hear of 0 and of 2, which keep apart. What 0 has for a
 * consumer of 1 waits; nothing is lost or comes twice, and when they agree all comes.
 */
static void test_no_classes(void **state)
{
	for (unsigned known = 0; known < 2; known++) {
		struct cluster *c = cluster_new(3, 1, NULL);
		struct client *between;
		unsigned t, moved;

		if (known)
			open_consumer(c, 0, Q, 9, 0, ";match=none");
		settle(c);
		cluster_part(c, 0, 2, true);
		between = open_consumer(c, 1, Q, 1, 0, NULL);
		settle(c);
		open_consumer(c, 2, Q, 2, 0, ";match=none");
		settle(c);
		for (unsigned i = 0; i < 20; i++) {
			put(c, i % 3, Q, "t", 1 + i);
			cluster_run(c, 50 * MS);
		}
		cluster_run(c, 5 * SEC);
		cluster_audit(c);
		moved = totals_of(c, 1).moved;
		cluster_run(c, 5 * SEC);
		/* Nobody asks again and again for what is not to be had. */
		assert_true(totals_of(c, 1).moved <= moved + 60);
		cluster_part(c, 0, 2, false);
		cluster_run(c, 2 * SEC);
		cluster_audit(c);
		assert_int_equal(between->event_count, 20);
		for (unsigned k = 0; k < 3; k++) {
			uint64_t last = 0;

			for (unsigned i = 0; i < 20; i++) {
				if (between->events[i].value % 3 != (k + 1) % 3)
					continue;
				assert_true(between->events[i].value > last);
				last = between->events[i].value;
			}
			assert_int_equal(last, k < 2 ? 19 + k : 18);
		}
		for (unsigned i = 0; i < 20; i++) {
			t = ack(c, 1, Q, 1, between->events[i].idx, 0);
			settle(c);
			deleted(c, t, 1);
		}
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(info_of(c, i, Q).depth, 0);
		cluster_free(c);
	}
}

/* Likewise, and the dispatcher that 0 knows is at 2 by now: a put there is told why it is refused.
 */
static void test_no_classes_put(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *far;
	unsigned t;

	cluster_part(c, 0, 2, true);
	t = put(c, 1, Q, "t", 1);
	settle(c);
	ok(c, t);
	t = put(c, 0, Q, "t", 2);
	settle(c);
	ok(c, t);
	far = open_consumer(c, 2, Q, 1, 0, NULL);
	cluster_run(c, 2 * SEC);
	assert_true(info_of(c, 2, Q).dispatching);
	assert_int_equal(far->event_count, 2);
	t = put(c, 0, Q, "t", 3);
	settle(c);
	status_is(c, t, RP_Q_APART);
	assert_int_equal(totals_of(c, 0).zones_disagree, 1);
	cluster_part(c, 0, 2, false);
	settle(c);
	t = put(c, 0, Q, "t", 4);
	settle(c);
	ok(c, t);
	assert_int_equal(far->event_count, 3);
	assert_int_equal(far->events[2].value, 4);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_held_stays),
		cmocka_unit_test(test_rejected),
		cmocka_unit_test(test_each_for_itself),
		cmocka_unit_test(test_teaches_nothing),
		cmocka_unit_test(test_not_arrived),
		cmocka_unit_test(test_put_on_its_way),
		cmocka_unit_test(test_leaves),
		cmocka_unit_test(test_host_dies),
		cmocka_unit_test(test_handed_over),
		cmocka_unit_test(test_drained),
		cmocka_unit_test(test_no_classes),
		cmocka_unit_test(test_no_classes_put),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
