/* SPDX-License-Identifier: Apache-2.0 */

/* One test a rule of spec/queues.md for what goes wrong: clients that stall, nodes that go. */

#include <stdio.h>
#include <string.h>

#include "rules.h"

/* Not accepted in time: offers to it are suspended, and what its client never had goes elsewhere.
 */
static void test_accept_timeout(void **state)
{
	for (unsigned node = 0; node < 2; node++) {
		struct cluster *c = cluster_new(2, 1, NULL);
		struct client *a, *b;

		open_consumer(c, 0, Q, 9, 0, ";match=none");
		settle(c);
		a = open_consumer(c, node, Q, 1, 0, NULL);
		settle(c);
		put(c, 0, Q, "t", 1);
		settle(c);
		a->mute = true;
		put(c, 0, Q, "t", 2);
		put(c, 0, Q, "t", 3);
		cluster_run(c, 4900 * MS);
		assert_int_equal(a->event_count, 1);
		assert_int_equal(info_of(c, 0, Q).in_flight, 3);
		b = open_consumer(c, 0, Q, 2, 0, NULL);
		cluster_run(c, 200 * MS);
		cluster_audit(c);
		/* The accepted one stays. */
		assert_int_equal(b->event_count, 2);
		assert_int_equal(b->events[0].value, 2);
		assert_int_equal(b->events[1].value, 3);
		assert_int_equal(b->events[0].attempt, 2);
		assert_int_equal(totals_of(c, 0).accept_timeouts, 2);
		/* Suspended: the next goes to the other, though it has more. */
		put(c, 0, Q, "t", 4);
		settle(c);
		assert_int_equal(b->event_count, 3);
		/* It recovers, with one offer at first. */
		a->mute = false;
		cluster_run(c, 6 * SEC);
		put(c, 0, Q, "t", 5);
		settle(c);
		assert_int_equal(a->event_count, 2);
		assert_int_equal(a->events[1].value, 5);
		cluster_free(c);
	}
}

/* What is said of an offer that was taken back is not said of the one since. */
static void test_report_of_an_earlier_attempt(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct rp_queue_message_info info = {0};
	struct rp_qmsg m = {.type = RP_QMSG_ACCEPTED,
		.name = (const uint8_t *)Q,
		.name_length = sizeof(Q) - 1,
		.alloc_node = c->nodes[0].id,
		.mod_revision = 5};
	uint64_t dispatcher;
	uint32_t epoch;

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	open_consumer(c, 1, Q, 1, 0, NULL)->mute = true;
	settle(c);
	put(c, 0, Q, "t", 1);
	for (unsigned i = 0; i < 300 && !(info.attempt > 1 && info.node); i++) {
		cluster_run(c, 100 * MS);
		assert_int_equal(
			rp_queue_messages(c->nodes[0].qs, span_of(Q), 0, &info, 1, c->now_ns), 1);
	}
	assert_true(info.attempt > 1 && info.node == c->nodes[1].id);
	m.idx = info.idx;
	memcpy(m.uuid, info.uuid, sizeof(m.uuid));
	m.hash = rp_queue_hash(m.name, m.name_length);
	for (unsigned now = 0; now < 2; now++) {
		m.attempt = info.attempt - 1 + now;
		rp_queue_on_msg(c->nodes[0].qs, c->nodes[1].id, &m, &epoch, &dispatcher, c->now_ns);
		assert_int_equal(totals_of(c, 0).accepts, now);
	}
	cluster_free(c);
}

/* A client whose window is closed holds nothing up and is served in order when it opens. */
static void test_no_room(void **state)
{
	for (unsigned node = 0; node < 2; node++) {
		struct cluster *c = cluster_new(2, 1, NULL);
		struct client *a, *b;

		open_consumer(c, 0, Q, 9, 0, ";match=none");
		settle(c);
		a = open_consumer(c, node, Q, 1, 0, ";match=a");
		b = open_consumer(c, node, Q, 2, 0, ";match=b");
		settle(c);
		a->blocked = true;
		for (unsigned i = 1; i <= 20; i++) {
			put(c, 0, Q, "a", i);
			put(c, 0, Q, "b", i);
			cluster_run(c, MS);
		}
		cluster_run(c, 500 * MS);
		cluster_audit(c);
		assert_int_equal(a->event_count, 0);
		assert_int_equal(b->event_count, 20);
		room(c, a);
		cluster_run(c, 150 * MS);
		assert_int_equal(a->event_count, 20);
		for (unsigned i = 1; i <= 20; i++)
			assert_int_equal(a->events[i - 1].value, i);
		/* In the middle of a burst. */
		for (unsigned i = 21; i <= 60; i++) {
			a->blocked = i > 30;
			put(c, 0, Q, "a", i);
			cluster_run(c, MS / 10);
			if (i == 45)
				room(c, a);
		}
		room(c, a);
		cluster_run(c, 300 * MS);
		assert_int_equal(a->event_count, 60);
		for (unsigned i = 1; i <= 60; i++)
			assert_int_equal(a->events[i - 1].value, i);
		cluster_free(c);
	}
}

/* A dispatcher's node that is lost: what it delivered is taken back after L. */
static void test_lost_dispatcher(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *b;
	unsigned t;

	put(c, 0, Q, "t", 1);
	settle(c);
	b = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	assert_int_equal(b->event_count, 1);
	cluster_cut(c, 0, 1);
	t = ack(c, 1, Q, 1, b->events[0].idx, 0);
	status_is(c, t, RP_Q_UNREACHABLE);
	cluster_run(c, 2900 * MS);
	assert_int_equal(shown(b, true), 0);
	cluster_run(c, 200 * MS);
	assert_int_equal(shown(b, true), 1);
	assert_true(b->events[1].idx == b->events[0].idx);
	assert_string_equal(b->events[1].tail, "t");
	assert_true(b->events[1].revision > b->events[0].revision);
	t = ack(c, 1, Q, 1, b->events[0].idx, 0);
	status_is(c, t, RP_Q_NOT_HOLDER);
	/* The path returns: it is offered again, as another attempt. */
	cluster_run(c, 5 * SEC);
	cluster_join(c, 0, 1);
	settle(c);
	assert_int_equal(shown(b, false), 2);
	assert_int_equal(b->events[2].attempt, 2);
	t = ack(c, 1, Q, 1, b->events[2].idx, 0);
	settle(c);
	deleted(c, t, 1);
	cluster_free(c);
}

/* A consumer's node that is lost: offered again 1.5 L after the last PING, not before. */
static void test_lost_host(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *b, *d;

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	b = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	assert_int_equal(b->event_count, 1);
	d = open_consumer(c, 2, Q, 2, 0, NULL);
	settle(c);
	cluster_kill(c, 1);
	cluster_run(c, 4400 * MS);
	assert_int_equal(d->event_count, 0);
	cluster_run(c, 200 * MS);
	assert_int_equal(d->event_count, 1);
	assert_int_equal(d->events[0].attempt, 2);
	cluster_audit(c);
	cluster_free(c);
}

/* Both claim in the dark; they agree, and no message is lost or doubled. */
static void test_two_claims(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *a, *b;
	unsigned seen[201] = {0}, winner;

	c->registry_ns = 50 * MS;
	a = open_consumer(c, 0, Q, 1, 0, ";prefetch=20");
	b = open_consumer(c, 1, Q, 2, 0, ";prefetch=20");
	for (unsigned i = 1; i <= 200; i++) {
		put(c, i % 2, Q, "t", i);
		cluster_run(c, MS / 5);
	}
	assert_int_equal(c->nodes[0].claims, 1);
	assert_int_equal(c->nodes[1].claims, 1);
	for (unsigned round = 0; round < 400; round++) {
		struct client *both[] = {a, b};

		for (unsigned k = 0; k < 2; k++) {
			for (unsigned i = 0; i < both[k]->event_count; i++) {
				struct event *e = &both[k]->events[i];

				if (e->deleted || seen[e->value])
					continue;
				seen[e->value] = 1;
				ack(c, k, Q, 1 + k, e->idx, 0);
			}
		}
		cluster_run(c, 5 * MS);
	}
	cluster_audit(c);
	assert_int_equal(a->event_count + b->event_count, 200);
	for (unsigned i = 1; i <= 200; i++)
		assert_int_equal(seen[i], 1);
	/* The same epoch: the higher node id. */
	winner = 1;
	assert_true(info_of(c, winner, Q).dispatching);
	assert_false(info_of(c, 0, Q).dispatching);
	assert_int_equal(totals_of(c, 0).losses, 1);
	assert_true(totals_of(c, 0).handed_over > 0);
	assert_int_equal(totals_of(c, 0).acks + totals_of(c, 1).acks, 200);
	assert_int_equal(info_of(c, 0, Q).depth + info_of(c, 1, Q).depth, 0);
	cluster_free(c);
}

/* Deleting /q/{name} re-elects and drops nothing. */
static void test_record_deleted(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *a;
	uint32_t epoch;

	put(c, 0, Q, "t", 1);
	settle(c);
	epoch = info_of(c, 0, Q).epoch;
	publish_record(c, Q, "");
	settle(c);
	assert_true(info_of(c, 0, Q).dispatching);
	assert_true(info_of(c, 0, Q).epoch > epoch);
	assert_int_equal(info_of(c, 1, Q).dispatcher, c->nodes[0].id);
	put(c, 1, Q, "t", 2);
	settle(c);
	a = open_consumer(c, 0, Q, 1, 0, NULL);
	settle(c);
	assert_int_equal(a->event_count, 2);
	assert_true(a->events[0].idx < a->events[1].idx);
	cluster_free(c);
}

/* A record that names a node that is not Online is unusable. */
static void test_dispatcher_not_online(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *b;
	unsigned t;

	b = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	assert_int_equal(b->event_count, 1);
	cluster_kill(c, 1);
	t = put(c, 0, Q, "t", 2);
	cluster_run(c, 100 * MS);
	assert_false(answer_of(c, t)->done);
	cluster_state(c, 1, RP_NODE_SPARE);
	settle(c);
	ok(c, t);
	assert_true(info_of(c, 0, Q).dispatching);
	assert_int_equal(info_of(c, 0, Q).depth, 1);
	/* A consumer's node claims at once, without a put. */
	b = open_consumer(c, 2, "other", 1, 0, NULL);
	settle(c);
	assert_true(info_of(c, 2, "other").dispatching);
	cluster_free(c);
}

static void test_only_online_nodes_dispatch(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *a;
	unsigned t;

	cluster_state(c, 0, RP_NODE_IN_PROGRESS);
	t = put(c, 0, Q, "t", 1);
	status_is(c, t, RP_Q_NO_DISPATCHER);
	t = ack(c, 0, Q, 1, 5, 0);
	status_is(c, t, RP_Q_NO_DISPATCHER);
	a = open_consumer(c, 0, Q, 1, 0, NULL);
	settle(c);
	assert_int_equal(c->nodes[0].claims, 0);
	cluster_state(c, 0, RP_NODE_ONLINE);
	settle(c);
	assert_int_equal(c->nodes[0].claims, 1);
	put(c, 0, Q, "t", 2);
	settle(c);
	assert_int_equal(a->event_count, 1);
	cluster_free(c);
}

/* A forward to a node that dispatches no longer is answered MOVED and lands once. */
static void test_moved(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct rp_dispatcher_record r;
	struct client *d;
	char text[64];
	unsigned t;

	d = open_consumer(c, 2, Q, 1, 0, NULL);
	settle(c);
	/* A alone believes in an old record that names B. */
	publish_record(c, "x", "102;epoch=5");
	rp_queue_set_record(c->nodes[1].qs, span_of("x"), span_of("103;epoch=6"), c->now_ns);
	rp_queue_set_record(c->nodes[2].qs, span_of("x"), span_of("103;epoch=6"), c->now_ns);
	t = put(c, 0, "x", "t", 1);
	settle(c);
	ok(c, t);
	assert_int_equal(totals_of(c, 1).moved, 1);
	assert_int_equal(info_of(c, 0, "x").dispatcher, c->nodes[2].id);
	/* C had to claim it anew: the record was of no life that it knows of. */
	assert_int_equal(info_of(c, 2, "x").depth, 1);
	assert_true(info_of(c, 2, "x").epoch > 6);
	snprintf(text, sizeof(text), "103;epoch=%u", info_of(c, 2, "x").epoch);
	assert_int_equal(rp_route_dispatcher_parse(&r, text, strlen(text)), 0);
	assert_int_equal(d->event_count, 0);
	cluster_free(c);
}

static void test_teardown(void **state)
{
	const struct rp_queue_config config = {.idle_ns = 2 * SEC};
	struct cluster *c = cluster_new(2, 1, &config);
	struct client *b = open_consumer(c, 1, Q, 1, 0, NULL);
	struct rp_queue_totals totals;
	uint64_t idx;
	unsigned t;

	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	idx = b->events[0].idx;
	cluster_run(c, 10 * SEC);
	assert_true(info_of(c, 1, Q).dispatching);
	t = ack(c, 1, Q, 1, idx, 0);
	settle(c);
	deleted(c, t, 1);
	close_consumer(c, b, RP_QUEUE_CLOSE_ENDED);
	cluster_run(c, 10 * SEC);
	assert_int_equal(c->nodes[1].released, 1);
	for (unsigned i = 0; i < 2; i++) {
		rp_queue_get_totals(c->nodes[i].qs, &totals);
		assert_int_equal(totals.queues + totals.consumers + totals.producers, 0);
	}
	/* An index is never given again, however soon the name comes back. */
	put(c, 1, Q, "t", 2);
	b = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	assert_true(b->events[0].idx > idx);
	cluster_free(c);
}

/* A dispatcher that starts again claims anew: its old indexes stay its old ones. */
static void test_restart(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *b;
	uint64_t idx;
	unsigned t;

	put(c, 0, Q, "t", 1);
	settle(c);
	b = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	idx = b->events[0].idx;
	cluster_kill(c, 0);
	settle(c);
	cluster_start(c, 0);
	cluster_join(c, 0, 1);
	settle(c);
	put(c, 0, Q, "t", 2);
	cluster_run(c, 8 * SEC);
	assert_int_equal(b->events[b->event_count - 1].value, 2);
	assert_true(b->events[b->event_count - 1].idx > idx);
	t = ack(c, 1, Q, 1, idx, 0);
	settle(c);
	assert_int_equal(answer_of(c, t)->deleted, 0);
	cluster_free(c);
}

/* What waits leaves the receive pool; what passes straight through is not copied. */
static void test_receive_pool(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	unsigned start = rte_mempool_avail_count(pool_rx);
	struct client *a;

	put(c, 0, Q, "t", 1);
	settle(c);
	for (unsigned i = 2; i < 50; i++)
		put(c, 1, Q, "t", i * 7);
	settle(c);
	assert_int_equal(info_of(c, 0, Q).depth, 49);
	assert_int_equal(totals_of(c, 0).copied, 48);
	assert_int_equal(rte_mempool_avail_count(pool_rx), start);
	a = open_consumer(c, 0, Q, 1, 0, NULL);
	settle(c);
	assert_int_equal(a->event_count, 49);
	cluster_free(c);
}

static void test_cut_while_forwarding(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct cluster *c = cluster_new(2, seed, NULL);
		struct client *b = open_consumer(c, 1, Q, 1, 0, ";prefetch=1000");

		settle(c);
		for (unsigned i = 1; i <= 500; i++) {
			put(c, 0, Q, "t", i);
			if (i % 10 == 0)
				cluster_run(c, MS / 10);
			if (i == 100 || i == 300)
				cluster_cut(c, 0, 1);
			if (i == 200 || i == 400)
				cluster_join(c, 0, 1);
		}
		cluster_run(c, 100 * MS);
		assert_int_equal(b->event_count, 500);
		for (unsigned i = 1; i <= 500; i++)
			assert_int_equal(b->events[i - 1].value, i);
		for (unsigned t = 0; t < 500; t++)
			ok(c, t);
		cluster_free(c);
	}
}

static void test_names(void **state)
{
	for (unsigned i = 0; i < RP_QUEUE_COUNTER_COUNT; i++) {
		assert_true(strlen(rp_queue_counter_name(i)) > 3);
		assert_true(strlen(rp_queue_counter_text(i)) > 3);
	}
	assert_string_equal(rp_queue_counter_name(RP_QUEUE_COUNTER_held), "held");
	assert_string_equal(rp_queue_counter_name(RP_QUEUE_COUNTER_COUNT), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accept_timeout),
		cmocka_unit_test(test_report_of_an_earlier_attempt),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_lost_dispatcher),
		cmocka_unit_test(test_lost_host),
		cmocka_unit_test(test_two_claims),
		cmocka_unit_test(test_record_deleted),
		cmocka_unit_test(test_dispatcher_not_online),
		cmocka_unit_test(test_only_online_nodes_dispatch),
		cmocka_unit_test(test_moved),
		cmocka_unit_test(test_teardown),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_receive_pool),
		cmocka_unit_test(test_cut_while_forwarding),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
