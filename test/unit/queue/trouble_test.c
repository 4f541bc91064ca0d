/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What clusters in trouble found (docs/results/sim_cluster.md), each in as few steps as it takes.
 */

#include <stdio.h>
#include <string.h>

#include "rules.h"

/* Node 1 dispatches from now on, by a claim that node 0 hears of. */
static void taken_by_1(struct cluster *c)
{
	char text[64];

	snprintf(text, sizeof(text), "102;epoch=%u", info_of(c, 0, Q).epoch + 1);
	publish_record(c, Q, text);
	cluster_run(c, MS);
	assert_true(info_of(c, 1, Q).dispatching);
	assert_false(info_of(c, 0, Q).dispatching);
}

static void shows(const struct client *cl, const uint64_t *values, unsigned count)
{
	unsigned n = 0;

	for (unsigned i = 0; i < cl->event_count; i++) {
		if (cl->events[i].deleted)
			continue;
		assert_true(n < count);
		assert_int_equal(cl->events[i].value, values[n]);
		n++;
	}
	assert_int_equal(n, count);
}

#define SHOWS(cl, ...) \
	shows(cl, (const uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / 8)

static void acked(struct cluster *c, unsigned node, unsigned uuid, uint64_t idx)
{
	unsigned t = ack(c, node, Q, uuid, idx, 0);

	settle(c);
	deleted(c, t, 1);
}

/* It may have arrived where nothing is heard from any more: its producer is told that. */
static void test_put_of_unknown_outcome(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	unsigned t;

	put(c, 0, Q, "t", 1);
	settle(c);
	t = put(c, 1, Q, "t", 2);
	cluster_run(c, MS * 7 / 10);
	assert_int_equal(info_of(c, 0, Q).depth, 2);
	cluster_silence(c, 0, 1, true);
	cluster_state(c, 0, RP_NODE_SPARE);
	settle(c);
	status_is(c, t, RP_Q_UNREACHABLE);
	assert_int_equal(info_of(c, 1, Q).depth + info_of(c, 2, Q).depth, 0);
	/* One that cannot have arrived goes to another. */
	t = put(c, 1, Q, "t", 3);
	settle(c);
	ok(c, t);
	assert_int_equal(info_of(c, 1, Q).depth, 1);
	cluster_free(c);
}

/* What a lost dispatcher delivered was given up here. It knows nothing of that yet, and offers. */
static void test_offers_to_a_life_that_is_over(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *cl;

	put(c, 0, Q, "t", 1);
	settle(c);
	cl = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	cluster_cut(c, 0, 1);
	put(c, 0, Q, "t", 2);
	cluster_run(c, 3200 * MS);
	assert_int_equal(shown(cl, true), 1);
	cluster_join(c, 0, 1);
	cluster_run(c, SEC);
	cluster_audit(c);
	SHOWS(cl, 1, 1, 2);
	assert_int_equal(cl->events[2].attempt, 2);
	acked(c, 1, 1, cl->events[2].idx);
	acked(c, 1, 1, cl->events[3].idx);
	assert_int_equal(info_of(c, 0, Q).depth, 0);
	cluster_free(c);
}

/* Likewise, and another node dispatches by the time that it is heard from again. */
static void test_offers_of_one_that_leads_no_more(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl;

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	cl = open_consumer(c, 2, Q, 1, 0, NULL);
	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	SHOWS(cl, 1);
	cluster_cut(c, 0, 1);
	cluster_cut(c, 0, 2);
	put(c, 0, Q, "t", 2);
	/* Nodes 1 and 2 alone hear of what 2 claims. */
	rp_queue_set_node(c->nodes[2].qs, c->nodes[0].id, RP_NODE_SPARE, c->now_ns);
	c->registry_ns = 10 * SEC;
	cluster_run(c, 3200 * MS);
	assert_int_equal(shown(cl, true), 1);
	assert_true(info_of(c, 2, Q).dispatching && info_of(c, 0, Q).dispatching);
	rp_queue_set_node(c->nodes[2].qs, c->nodes[0].id, RP_NODE_ONLINE, c->now_ns);
	cluster_join(c, 0, 1);
	cluster_join(c, 0, 2);
	cluster_run(c, 20 * SEC);
	cluster_audit(c);
	/* What it was not shown yet was on its way to it before the other came back. */
	SHOWS(cl, 1, 2, 1);
	assert_int_equal(cl->events[3].attempt, 2);
	acked(c, 2, 1, cl->events[2].idx);
	acked(c, 2, 1, cl->events[3].idx);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(info_of(c, i, Q).depth, 0);
	cluster_free(c);
}

/* Its dispatcher claims anew while a forward is on its way: that is refused, and what follows it
 * waits until it has gone again. */
static void test_forward_of_an_earlier_claim(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *cl = open_consumer(c, 0, Q, 1, 0, NULL);
	uint32_t epoch;
	unsigned t[3];

	settle(c);
	t[0] = put(c, 1, Q, "t", 1);
	settle(c);
	c->registry_ns = 0;
	epoch = info_of(c, 0, Q).epoch;
	t[1] = put(c, 1, Q, "t", 2);
	cluster_run(c, MS / 10);
	rp_queue_set_record(c->nodes[0].qs, span_of(Q), (struct rp_span){0}, c->now_ns);
	cluster_run(c, MS / 10);
	assert_int_equal(info_of(c, 1, Q).epoch, epoch + 1);
	t[2] = put(c, 1, Q, "t", 3);
	cluster_run(c, 200 * MS);
	for (unsigned i = 0; i < 3; i++)
		ok(c, t[i]);
	assert_int_equal(totals_of(c, 0).forwards_moved, 1);
	SHOWS(cl, 1, 2, 3);
	cluster_free(c);
}

/*
 * Shown, and the confirmation is lost; then its host hears of a newer dispatcher, before the one
 * that offers. It is not shown again.
 */
static void test_confirmation_lost_before_a_move(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl, *next;
	char text[64];

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	cl = open_consumer(c, 2, Q, 1, 0, NULL);
	settle(c);
	put(c, 0, Q, "t", 1);
	for (unsigned i = 0; i < 40 && cl->event_count == 0; i++)
		cluster_run(c, MS / 10);
	assert_int_equal(cl->event_count, 1);
	cluster_silence(c, 0, 2, true);
	next = open_consumer(c, 0, Q, 2, 0, NULL);
	snprintf(text, sizeof(text), "102;epoch=%u", info_of(c, 0, Q).epoch + 1);
	rp_queue_set_record(c->nodes[2].qs, span_of(Q), span_of(text), c->now_ns);
	settle(c);
	cluster_silence(c, 0, 2, false);
	cluster_run(c, 12 * SEC);
	cluster_audit(c);
	SHOWS(cl, 1);
	assert_int_equal(next->event_count, 0);
	acked(c, 2, 1, cl->events[0].idx);
	assert_int_equal(info_of(c, 0, Q).depth + info_of(c, 1, Q).depth, 0);
	cluster_free(c);
}

/* It was to leave, and its taker is gone before: what came behind it is behind it. */
static void test_comes_home_in_order(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl;

	for (unsigned i = 1; i <= 3; i++)
		put(c, 0, Q, "t", i);
	settle(c);
	cluster_silence(c, 0, 1, true);
	open_consumer(c, 1, Q, 2, 0, ";match=none");
	taken_by_1(c);
	put(c, 0, Q, "t", 4);
	settle(c);
	cluster_state(c, 1, RP_NODE_GONE);
	cluster_kill(c, 1);
	put(c, 0, Q, "t", 5);
	cluster_run(c, SEC);
	cl = open_consumer(c, 0, Q, 1, 0, NULL);
	settle(c);
	SHOWS(cl, 1, 2, 3, 4, 5);
	cluster_free(c);
}

/* Bound by the former dispatcher and never arrived: before what waited behind it. */
static void test_bound_goes_before_what_waits(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl;

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	cl = open_consumer(c, 2, Q, 1, 0, ";prefetch=1");
	settle(c);
	put(c, 0, Q, "t", 1);
	cluster_silence(c, 0, 2, true);
	put(c, 0, Q, "t", 2);
	put(c, 0, Q, "t", 3);
	settle(c);
	assert_int_equal(info_of(c, 0, Q).in_flight, 1);
	taken_by_1(c);
	for (unsigned i = 0; i < 3; i++) {
		settle(c);
		cluster_run(c, SEC);
		assert_int_equal(cl->event_count, 1 + i);
		acked(c, 2, 1, cl->events[i].idx);
	}
	SHOWS(cl, 1, 2, 3);
	cluster_free(c);
}

/* It lets go what one dispatcher delivered: what another one did is its own still. */
static void test_lets_go_of_one_only(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl, *next;

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	cl = open_consumer(c, 2, Q, 1, 0, NULL);
	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	taken_by_1(c);
	settle(c);
	put(c, 1, Q, "t", 2);
	settle(c);
	SHOWS(cl, 1, 2);
	next = open_consumer(c, 1, Q, 2, 0, NULL);
	cluster_cut(c, 0, 2);
	cluster_run(c, 3200 * MS);
	assert_int_equal(shown(cl, true), 1);
	cluster_join(c, 0, 2);
	cluster_run(c, 2 * SEC);
	cluster_audit(c);
	/* The first comes again, to either; the second does not. */
	assert_int_equal(shown(cl, false) + next->event_count, 3);
	for (unsigned i = 0; i < next->event_count; i++)
		assert_int_equal(next->events[i].value, 1);
	acked(c, 2, 1, cl->events[1].idx);
	cluster_free(c);
}

/* Handed over bound, by a node that leaves, to one that cannot reach its consumer: it stays his. */
static void test_handed_over_out_of_reach(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl, *next;

	put(c, 0, Q, "t", 1);
	settle(c);
	open_consumer(c, 0, Q, 9, 0, ";match=none");
	cl = open_consumer(c, 2, Q, 1, 0, NULL);
	settle(c);
	SHOWS(cl, 1);
	cluster_state(c, 2, RP_NODE_SPARE);
	cluster_cut(c, 1, 2);
	rp_queue_stop(c->nodes[0].qs, c->now_ns);
	settle(c);
	assert_int_equal(info_of(c, 1, Q).in_flight, 1);
	next = open_consumer(c, 1, Q, 2, 0, NULL);
	cluster_run(c, 10 * SEC);
	cluster_audit(c);
	assert_int_equal(next->event_count, 0);
	cluster_join(c, 1, 2);
	settle(c);
	SHOWS(cl, 1);
	acked(c, 2, 1, cl->events[0].idx);
	assert_int_equal(info_of(c, 1, Q).depth, 0);
	cluster_free(c);
}

/* Likewise while its consumer moves, which the node that leaves has not heard of. */
static void test_handed_over_while_it_moves(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl, *is, *next;

	put(c, 0, Q, "t", 1);
	settle(c);
	open_consumer(c, 0, Q, 9, 0, ";match=none");
	cl = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	SHOWS(cl, 1);
	cluster_silence(c, 0, 2, true);
	is = open_consumer(c, 2, Q, 1, cl->events[0].revision + 1, NULL);
	settle(c);
	rp_queue_stop(c->nodes[0].qs, c->now_ns);
	settle(c);
	assert_int_equal(info_of(c, 1, Q).in_flight, 1);
	next = open_consumer(c, 1, Q, 2, 0, NULL);
	cluster_run(c, 5 * SEC);
	cluster_audit(c);
	assert_int_equal(next->event_count, 0);
	assert_int_equal(is->event_count, 0);
	acked(c, 2, 1, cl->events[0].idx);
	assert_int_equal(info_of(c, 1, Q).depth, 0);
	cluster_free(c);
}

/* A node that has claimed in the dark does not say that there is no such message. */
static void test_acknowledge_in_the_dark(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl;
	unsigned t;

	put(c, 0, Q, "t", 1);
	settle(c);
	cl = open_consumer(c, 2, Q, 1, 0, NULL);
	settle(c);
	c->registry_ns = 1000 * SEC;
	cluster_cut(c, 0, 1);
	rp_queue_set_node(c->nodes[1].qs, c->nodes[0].id, RP_NODE_SPARE, c->now_ns);
	t = put(c, 1, Q, "t", 2);
	settle(c);
	ok(c, t);
	assert_true(info_of(c, 1, Q).dispatching);
	t = ack(c, 1, Q, 1, cl->events[0].idx, 0);
	settle(c);
	status_is(c, t, RP_Q_UNREACHABLE);
	rp_queue_set_node(c->nodes[1].qs, c->nodes[0].id, RP_NODE_ONLINE, c->now_ns);
	cluster_join(c, 0, 1);
	acked(c, 1, 1, cl->events[0].idx);
	cluster_free(c);
}

/* That a consumer has moved is heard by its record first, and then by its word. */
static void test_record_before_the_word(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *was, *is;
	char text[64];

	c->registry_ns = 1000 * SEC;
	was = open_consumer(c, 1, Q, 1, 0, NULL);
	cluster_run(c, 10 * MS);
	assert_true(info_of(c, 1, Q).dispatching);
	/* Who dispatches is known to all; where the consumer is, to nobody. */
	snprintf(text, sizeof(text), "102;epoch=%u", info_of(c, 1, Q).epoch);
	publish_record(c, Q, text);
	cluster_run(c, 10 * MS);
	is = open_consumer(c, 2, Q, 1, 0, NULL);
	publish_consumer(c, Q, 1, "103");
	settle(c);
	assert_true(was->ended);
	put(c, 0, Q, "t", 1);
	put(c, 1, Q, "t", 2);
	settle(c);
	assert_int_equal(shown(is, false), 2);
	cluster_free(c);
}

/* A copy of what its client has acknowledged with another dispatcher ends. */
static void test_copy_of_what_is_over(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	uint8_t bytes[1 + sizeof(uint64_t) + 1] = "t\1";
	struct rp_qmsg m = {.type = RP_QMSG_FORWARD, .name = (const uint8_t *)Q};
	uint64_t dispatcher;
	struct client *cl;
	uint32_t epoch;

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	cl = open_consumer(c, 1, Q, 1, 0, ";match=t");
	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	acked(c, 1, 1, cl->events[0].idx);
	bytes[sizeof(bytes) - 1] = 1;
	m.name_length = sizeof(Q) - 1;
	m.hash = rp_queue_hash(m.name, m.name_length);
	m.tail_length = 1;
	m.epoch = info_of(c, 0, Q).epoch;
	m.dispatcher = c->nodes[0].id;
	m.producer_node = c->nodes[2].id;
	m.producer_boot = m.producer_seq = 77;
	m.token = m.attempt = m.deliveries = 1;
	m.idx = cl->events[0].idx;
	m.alloc_node = c->nodes[0].id;
	m.mod_revision = cl->events[0].revision;
	m.holder_node = c->nodes[1].id;
	m.holder_life = 1;
	uuid_of(1, m.uuid);
	m.payload = rp_mbuf_from(pool_queue, bytes, sizeof(bytes));
	assert_int_equal(
		rp_queue_on_msg(c->nodes[0].qs, c->nodes[2].id, &m, &epoch, &dispatcher, c->now_ns),
		RP_Q_OK);
	assert_int_equal(info_of(c, 0, Q).depth, 1);
	put(c, 0, Q, "t", 2);
	cluster_run(c, 20 * SEC);
	cluster_audit(c);
	SHOWS(cl, 1, 2);
	assert_int_equal(info_of(c, 0, Q).depth, 1);
	cluster_free(c);
}

/* Its dispatcher is node 0, and it is at node 1 with two messages on their way to it. */
static struct client *two_on_their_way(struct cluster *c)
{
	struct client *cl;

	open_consumer(c, 0, Q, 1, 0, ";match=none");
	settle(c);
	cl = open_consumer(c, 1, Q, 2, 0, NULL);
	settle(c);
	assert_true(info_of(c, 0, Q).dispatching);
	put(c, 0, Q, "t", 7);
	put(c, 0, Q, "t", 8);
	/* Whatever is said from now on takes its time. */
	c->delay_min_ns = c->delay_max_ns = 20 * MS;
	return cl;
}

static struct client *goes_on_at_2(struct cluster *c, struct client *cl)
{
	uint64_t revision =
		cl->event_count > 0 ? cl->events[cl->event_count - 1].revision : cl->open_revision;

	c->delay_min_ns = c->delay_max_ns = MS / 2;
	close_consumer(c, cl, RP_QUEUE_CLOSE_ENDED);
	return open_consumer(c, 2, Q, 2, revision + 1, NULL);
}

/* It goes on elsewhere before the word of what it was shown has come: that is waited for. */
static void test_goes_on_before_the_word(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl = two_on_their_way(c), *again;

	cluster_run(c, 7 * MS);
	SHOWS(cl, 7, 8);
	again = goes_on_at_2(c, cl);
	cluster_run(c, 100 * MS);
	cluster_audit(c);
	assert_int_equal(again->event_count, 0);
	assert_int_equal(totals_of(c, 0).hosts_asked, 2);
	put(c, 1, Q, "t", 9);
	settle(c);
	SHOWS(again, 9);
	acked(c, 2, 2, cl->events[0].idx);
	acked(c, 2, 2, cl->events[1].idx);
	acked(c, 2, 2, again->events[0].idx);
	cluster_free(c);
}

/* What it was not shown it is shown where it is now, in order. */
static void test_goes_on_before_it_is_shown(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl = two_on_their_way(c), *again;

	cl->mute = true;
	cluster_run(c, 7 * MS);
	again = goes_on_at_2(c, cl);
	put(c, 0, Q, "t", 9);
	cluster_run(c, 100 * MS);
	SHOWS(again, 7, 8, 9);
	cluster_free(c);
}

/* A node that is out of reach is not waited for: it is shown again, at the same key. */
static void test_goes_on_as_its_node_is_lost(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *cl = two_on_their_way(c), *again;

	cluster_run(c, 7 * MS);
	again = goes_on_at_2(c, cl);
	cluster_run(c, 2 * MS);
	assert_int_equal(totals_of(c, 0).hosts_asked, 2);
	assert_int_equal(again->event_count, 0);
	cluster_cut(c, 0, 1);
	cluster_run(c, 100 * MS);
	SHOWS(again, 7, 8);
	assert_int_equal(again->events[0].idx, cl->events[0].idx);
	cluster_free(c);
}

/* Who leaves at once takes its record along: nobody counts on it any more. */
static void test_leaves_no_record(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *cl = open_consumer(c, 1, Q, 2, 0, NULL);

	settle(c);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(c->homes[i][queue_index(c, Q, strlen(Q))][2], c->nodes[1].id);
	close_consumer(c, cl, RP_QUEUE_CLOSE_LEFT);
	settle(c);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(c->homes[i][queue_index(c, Q, strlen(Q))][2], 0);
	cluster_free(c);
}

/* A node that has started anew, and knows nothing of the queue, says so. */
static void test_goes_on_as_its_node_starts_anew(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct rp_qmsg m = {.type = RP_QMSG_WITHDRAW,
		.status = RP_Q_STALL,
		.name = (const uint8_t *)"unknown",
		.name_length = 7,
		.idx = 1,
		.alloc_node = c->nodes[0].id};
	uint32_t epoch;
	uint64_t dispatcher;

	rp_queue_on_msg(c->nodes[1].qs, c->nodes[0].id, &m, &epoch, &dispatcher, c->now_ns);
	assert_int_equal(c->qmsg_sent[RP_QMSG_REJECTED], 1);
	settle(c);
	cluster_free(c);
}

/*
 * Node 1 dispatches and has taken what node 0 put, but the word of it is lost, as all is that they
 * say from now on. The put's token.
 */
static unsigned taken_unsaid(struct cluster *c)
{
	unsigned t = put(c, 0, Q, "t", 1);

	for (unsigned i = 0; i < 1000 && info_of(c, 1, Q).depth == 0; i++)
		cluster_run(c, 10 * RP_NS_PER_US);
	assert_int_equal(info_of(c, 1, Q).depth, 1);
	assert_false(answer_of(c, t)->done);
	cluster_silence(c, 0, 1, true);
	return t;
}

static void dispatches_next(struct cluster *c, unsigned id)
{
	char text[64];

	snprintf(text, sizeof(text), "%u;epoch=%u", id, info_of(c, 1, Q).epoch + 1);
	publish_record(c, Q, text);
	cluster_run(c, MS);
}

/* It is on its way to the next one, the producer's own node, when the producer asks for it. */
static void test_repeated_while_handed_over(void **state)
{
	for (unsigned seed = 1; seed <= 20; seed++) {
		struct cluster *c = cluster_new(3, seed, NULL);
		struct client *next;
		unsigned t;

		open_consumer(c, 1, Q, 9, 0, ";match=none");
		settle(c);
		t = taken_unsaid(c);
		dispatches_next(c, 101);
		cluster_silence(c, 0, 1, false);
		settle(c);
		assert_int_equal(answer_of(c, t)->status, RP_Q_OK);
		next = open_consumer(c, 0, Q, 3, 0, NULL);
		settle(c);
		assert_int_equal(next->event_count, 1);
		assert_int_equal(info_of(c, 0, Q).depth + info_of(c, 1, Q).depth, 1);
		cluster_free(c);
	}
}

/* It is bound to a consumer, and the queue comes back before it was handed over. */
static void test_repeated_when_it_stayed(void **state)
{
	for (unsigned seed = 1; seed <= 20; seed++) {
		struct cluster *c = cluster_new(3, seed, NULL);
		struct client *holder;
		unsigned t;

		open_consumer(c, 1, Q, 9, 0, ";match=none");
		settle(c);
		holder = open_consumer(c, 0, Q, 1, 0, NULL);
		settle(c);
		assert_true(info_of(c, 1, Q).dispatching);
		t = taken_unsaid(c);
		assert_int_equal(info_of(c, 1, Q).in_flight, 1);
		cluster_silence(c, 1, 2, true);
		dispatches_next(c, 103);
		dispatches_next(c, 102);
		cluster_silence(c, 0, 1, false);
		cluster_silence(c, 1, 2, false);
		settle(c);
		assert_int_equal(answer_of(c, t)->status, RP_Q_OK);
		assert_int_equal(holder->event_count, 1);
		assert_int_equal(info_of(c, 1, Q).depth + info_of(c, 2, Q).depth, 1);
		cluster_free(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_of_unknown_outcome),
		cmocka_unit_test(test_offers_to_a_life_that_is_over),
		cmocka_unit_test(test_offers_of_one_that_leads_no_more),
		cmocka_unit_test(test_forward_of_an_earlier_claim),
		cmocka_unit_test(test_confirmation_lost_before_a_move),
		cmocka_unit_test(test_comes_home_in_order),
		cmocka_unit_test(test_bound_goes_before_what_waits),
		cmocka_unit_test(test_lets_go_of_one_only),
		cmocka_unit_test(test_handed_over_out_of_reach),
		cmocka_unit_test(test_handed_over_while_it_moves),
		cmocka_unit_test(test_acknowledge_in_the_dark),
		cmocka_unit_test(test_record_before_the_word),
		cmocka_unit_test(test_copy_of_what_is_over),
		cmocka_unit_test(test_goes_on_before_the_word),
		cmocka_unit_test(test_goes_on_before_it_is_shown),
		cmocka_unit_test(test_goes_on_as_its_node_is_lost),
		cmocka_unit_test(test_goes_on_as_its_node_starts_anew),
		cmocka_unit_test(test_leaves_no_record),
		cmocka_unit_test(test_repeated_while_handed_over),
		cmocka_unit_test(test_repeated_when_it_stayed),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
