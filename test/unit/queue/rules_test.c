/* SPDX-License-Identifier: Apache-2.0 */

/* One test a rule of spec/queues.md, on a network without faults. */

#include <stdio.h>
#include <string.h>

#include "rules.h"

/* The first act: consumer on B, put on A. B hosts the consumer, so B dispatches. */
static void test_act_one(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *b = open_consumer(c, 1, Q, 7, 0, NULL);
	unsigned p, a;

	settle(c);
	p = put(c, 0, Q, "job-1", 42);
	assert_false(answer_of(c, p)->done);
	settle(c);
	ok(c, p);
	assert_int_equal(b->event_count, 1);
	assert_string_equal(b->events[0].tail, "job-1");
	assert_int_equal(b->events[0].value, 42);
	assert_int_equal(b->events[0].attempt, 1);
	assert_true(b->events[0].revision > b->open_revision);
	assert_true(b->events[0].revision < 1ull << 53);
	assert_true(info_of(c, 1, Q).dispatching);
	assert_int_equal(info_of(c, 0, Q).dispatcher, c->nodes[1].id);
	a = ack(c, 1, Q, 7, b->events[0].idx, 0);
	settle(c);
	deleted(c, a, 1);
	assert_int_equal(c->qmsg_sent[RP_QMSG_FORWARD], 1);
	assert_int_equal(c->qmsg_sent[RP_QMSG_DELIVER], 0);
	assert_int_equal(c->qmsg_sent[RP_QMSG_QACK], 0);
	assert_int_equal(totals_of(c, 1).deliveries_local, 1);
	assert_int_equal(totals_of(c, 1).held, 0);
	assert_int_equal(totals_of(c, 0).puts_remote, 1);
	assert_int_equal(info_of(c, 1, Q).depth, 0);
	cluster_free(c);
}

/* The second: consumers on both, A dispatching with its own consumer's prefetch full. */
static void test_act_two(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *a = open_consumer(c, 0, Q, 1, 0, ";prefetch=1"), *b;
	unsigned token;

	settle(c);
	b = open_consumer(c, 1, Q, 2, 0, NULL);
	settle(c);
	assert_true(info_of(c, 0, Q).dispatching);
	put(c, 0, Q, "job-1", 1);
	token = put(c, 0, Q, "job-2", 2);
	settle(c);
	ok(c, token);
	assert_int_equal(a->event_count, 1);
	assert_int_equal(b->event_count, 1);
	assert_int_equal(b->events[0].value, 2);
	assert_int_equal(c->qmsg_sent[RP_QMSG_DELIVER], 1);
	assert_int_equal(totals_of(c, 0).deliveries_remote, 1);
	assert_int_equal(totals_of(c, 0).held, 0);
	token = ack(c, 1, Q, 2, b->events[0].idx, 0);
	settle(c);
	deleted(c, token, 1);
	assert_int_equal(c->qmsg_sent[RP_QMSG_QACK], 1);
	assert_int_equal(info_of(c, 0, Q).depth, 1);
	cluster_free(c);
}

static void test_one_node_sends_nothing(void **state)
{
	struct cluster *c = cluster_new(1, 1, NULL);
	unsigned waiting = put(c, 0, Q, "before", 1), token;
	struct client *cl;

	ok(c, waiting);
	assert_true(answer_of(c, waiting)->idx > 0);
	assert_int_equal(totals_of(c, 0).held, 1);
	cl = open_consumer(c, 0, Q, 1, 0, NULL);
	put(c, 0, Q, "after", 2);
	settle(c);
	assert_int_equal(cl->event_count, 2);
	assert_string_equal(cl->events[0].tail, "before");
	assert_true(cl->events[0].idx < cl->events[1].idx);
	assert_true(cl->events[0].revision < cl->events[1].revision);
	for (unsigned i = 0; i < 2; i++) {
		token = ack(c, 0, Q, 1, cl->events[i].idx, 0);
		deleted(c, token, 1);
	}
	for (unsigned t = 0; t < RP_QMSG_TYPE_COUNT; t++)
		assert_int_equal(c->qmsg_sent[t], 0);
	assert_int_equal(c->nodes[0].claims, 1);
	cluster_free(c);
}

static void test_limits(void **state)
{
	const struct rp_queue_config config = {
		.queue_depth_max = 3, .queue_bytes_max = 200, .message_bytes_max = 100};
	struct cluster *c = cluster_new(2, 1, &config);
	unsigned t;

	status_is(c, put(c, 0, Q, "big", 7 * 50), RP_Q_TOO_LARGE);
	assert_int_equal(totals_of(c, 0).refused_too_large, 1);
	/* Before the queue exists. */
	assert_null(info_of(c, 0, Q).name.data);
	for (unsigned i = 1; i <= 3; i++)
		ok(c, put(c, 0, Q, "t", i));
	status_is(c, put(c, 0, Q, "t", 4), RP_Q_QUEUE_DEPTH);
	assert_int_equal(totals_of(c, 0).refused_depth, 1);
	/* 8 bytes of number, 1 of tail, 80 of filler. */
	ok(c, put(c, 0, "bytes", "t", 7 * 440 + 8));
	ok(c, put(c, 0, "bytes", "t", 84));
	status_is(c, put(c, 0, "bytes", "t", 84), RP_Q_QUEUE_BYTES);
	/* From another node likewise, and its requester is told. */
	settle(c);
	t = put(c, 1, Q, "t", 5);
	settle(c);
	status_is(c, t, RP_Q_QUEUE_DEPTH);
	assert_int_equal(totals_of(c, 1).refused_dispatcher, 1);
	rp_queue_stop(c->nodes[0].qs, c->now_ns);
	status_is(c, put(c, 0, "other", "t", 1), RP_Q_STOPPING);
	status_is(c, put(c, 0, Q, "", 1), RP_Q_INVALID);
	cluster_free(c);
}

static unsigned put_until_refused(struct cluster *c, unsigned node, const char *queue)
{
	for (unsigned n = 0; n < 1000; n++) {
		unsigned token = put(c, node, queue, "t", n);

		if (answer_of(c, token)->status == RP_Q_OK)
			continue;
		status_is(c, token, RP_Q_QUEUE_BUFFERS);
		return n;
	}
	fail_msg("never refused");
	return 0;
}

/* Queues that nobody empties take most of the buffers; never all, and what is emptied is free. */
static void test_few_buffers(void **state)
{
	const struct rp_queue_config config = {.pool = pool_tight};
	struct cluster *c = cluster_new(1, 1, &config);
	unsigned all = rte_mempool_avail_count(pool_tight), hog, second, third, left;
	struct client *cl;

	hog = put_until_refused(c, 0, "hog");
	/* What was put lies in another pool: its copies are counted before they are made. */
	assert_int_equal(rte_mempool_avail_count(pool_tight), all);
	settle(c);
	assert_int_equal(rte_mempool_avail_count(pool_tight), all - hog);
	assert_in_range(hog, all * 7 / 10, all * 8 / 10);
	second = put_until_refused(c, 0, "second");
	settle(c);
	third = put_until_refused(c, 0, "third");
	settle(c);
	assert_in_range(second, all / 10, all / 5);
	assert_in_range(third, 5, second);
	left = rte_mempool_avail_count(pool_tight);
	assert_true(left > all / 16);
	assert_int_equal(totals_of(c, 0).refused_buffers, 3);
	assert_int_equal(put_until_refused(c, 0, "hog"), 0);
	cl = open_consumer(c, 0, "hog", 7, 0, ";prefetch=1000");
	settle(c);
	assert_int_equal(cl->event_count, hog);
	for (unsigned i = 0; i < hog; i++)
		deleted(c, ack(c, 0, "hog", 7, cl->events[i].idx, 0), 1);
	assert_int_equal(rte_mempool_avail_count(pool_tight), left + hog);
	assert_true(put_until_refused(c, 0, "third") > 4 * second - third);
	cluster_free(c);
}

/* New limits of a running node: more is taken at once; what is above a lower one stays. */
static void test_limits_change(void **state)
{
	const struct rp_queue_config config = {
		.queue_depth_max = 3, .message_bytes_max = 100, .idle_ns = 100 * SEC};
	struct rp_queue_limits l = {.message_bytes_max = 1000,
		.queue_depth_max = 5,
		.queue_bytes_max = 1 << 20,
		.resume_ns = SEC,
		.idle_ns = 100 * SEC};
	struct cluster *c = cluster_new(2, 1, &config);
	struct client *k;

	for (unsigned i = 1; i <= 3; i++)
		ok(c, put(c, 0, Q, "t", i));
	status_is(c, put(c, 0, Q, "t", 4), RP_Q_QUEUE_DEPTH);
	status_is(c, put(c, 0, Q, "big", 7 * 50), RP_Q_TOO_LARGE);
	rp_queue_set_limits(c->nodes[0].qs, &l);
	ok(c, put(c, 0, Q, "t", 4));
	ok(c, put(c, 0, Q, "big", 7 * 50));
	l.queue_depth_max = 2;
	rp_queue_set_limits(c->nodes[0].qs, &l);
	status_is(c, put(c, 0, Q, "t", 6), RP_Q_QUEUE_DEPTH);
	assert_int_equal(info_of(c, 0, Q).depth, 5);
	k = open_consumer(c, 0, Q, 1, 0, NULL);
	settle(c);
	assert_int_equal(k->event_count, 5);
	for (unsigned i = 0; i < 4; i++)
		ack(c, 0, Q, 1, k->events[i].idx, 0);
	settle(c);
	ok(c, put(c, 0, Q, "t", 8));
	settle(c);
	/* An idle queue ends by the new time. */
	for (unsigned i = 4; i < 6; i++)
		ack(c, 0, Q, 1, k->events[i].idx, 0);
	close_consumer(c, k, RP_QUEUE_CLOSE_ENDED);
	cluster_run(c, 10 * SEC);
	assert_int_equal(c->nodes[0].released, 0);
	l.idle_ns = 2 * SEC;
	rp_queue_set_limits(c->nodes[0].qs, &l);
	cluster_run(c, 10 * SEC);
	assert_int_equal(c->nodes[0].released, 1);
	cluster_free(c);
}

/* What became of a queue's way to other nodes is in its own counters. */
static void test_ways(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct rp_queue_counters k;

	put(c, 0, Q, "t", 1);
	settle(c);
	for (unsigned i = 0; i <= RP_QUEUE_WAY_NO_STREAM; i++) {
		for (unsigned n = 0; n <= i; n++)
			rp_queue_on_way(c->nodes[0].qs, span_of(Q), (enum rp_queue_way)i);
		rp_queue_on_way(c->nodes[0].qs, span_of("unknown"), (enum rp_queue_way)i);
	}
	k = info_of(c, 0, Q).counters;
	assert_int_equal(k.streams_opened, 1 + RP_QUEUE_WAY_OPENED);
	assert_int_equal(k.stream_idle_closes, 1 + RP_QUEUE_WAY_IDLE);
	assert_int_equal(k.sent_unary, 1 + RP_QUEUE_WAY_UNARY);
	assert_int_equal(k.fallbacks_link_down, 1 + RP_QUEUE_WAY_LINK_DOWN);
	assert_int_equal(k.fallbacks_stall, 1 + RP_QUEUE_WAY_STALLED);
	assert_int_equal(k.fallbacks_refused, 1 + RP_QUEUE_WAY_REFUSED);
	assert_int_equal(k.fallbacks_no_stream, 1 + RP_QUEUE_WAY_NO_STREAM);
	cluster_free(c);
}

static void test_choice_is_fair(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *a = open_consumer(c, 0, Q, 1, 0, NULL);
	struct client *b = open_consumer(c, 0, Q, 2, 0, NULL), *r;

	settle(c);
	r = open_consumer(c, 1, Q, 3, 0, NULL);
	settle(c);
	/* The first two go to the local ones, the third to the one with the fewest. */
	put(c, 0, Q, "t", 1);
	put(c, 0, Q, "t", 2);
	settle(c);
	assert_int_equal(a->event_count, 1);
	assert_int_equal(b->event_count, 1);
	assert_int_equal(r->event_count, 0);
	put(c, 0, Q, "t", 3);
	settle(c);
	assert_int_equal(r->event_count, 1);
	for (unsigned i = 4; i <= 30; i++)
		put(c, 0, Q, "t", i);
	settle(c);
	assert_int_equal(a->event_count, 10);
	assert_int_equal(b->event_count, 10);
	assert_int_equal(r->event_count, 10);
	cluster_free(c);
}

static void test_prefetch(void **state)
{
	struct cluster *c = cluster_new(1, 1, NULL);
	struct client *a = open_consumer(c, 0, Q, 1, 0, ";prefetch=3");

	for (unsigned i = 1; i <= 5; i++)
		put(c, 0, Q, "t", i);
	settle(c);
	assert_int_equal(a->event_count, 3);
	assert_int_equal(totals_of(c, 0).held, 2);
	ack(c, 0, Q, 1, a->events[1].idx, 0);
	settle(c);
	assert_int_equal(a->event_count, 4);
	assert_int_equal(a->events[3].value, 4);
	/* A client's put on the consumer key comes by its record. */
	publish_consumer(c, Q, 1, "101;prefetch=10");
	settle(c);
	assert_int_equal(a->event_count, 5);
	open_consumer(c, 0, "default", 1, 0, NULL);
	for (unsigned i = 0; i < 300; i++)
		put(c, 0, "default", "t", i);
	settle(c);
	assert_int_equal(info_of(c, 0, "default").in_flight, 256);
	cluster_free(c);
}

static void test_filters(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *x = open_consumer(c, 0, Q, 1, 0, ";match=x-"), *y, *small;

	settle(c);
	y = open_consumer(c, 1, Q, 2, 0, ";match=y-");
	settle(c);
	put(c, 0, Q, "z-1", 1);
	put(c, 0, Q, "y-1", 2);
	put(c, 0, Q, "x-1", 3);
	put(c, 0, Q, "x", 4);
	settle(c);
	assert_int_equal(x->event_count, 1);
	assert_string_equal(x->events[0].tail, "x-1");
	assert_int_equal(y->event_count, 1);
	assert_string_equal(y->events[0].tail, "y-1");
	assert_int_equal(info_of(c, 0, Q).waiting, 2);
	small = open_consumer(c, 0, "small", 1, 0, ";max_bytes=20");
	put(c, 0, "small", "t", 7 * 100);
	put(c, 0, "small", "t", 2);
	settle(c);
	assert_int_equal(small->event_count, 1);
	assert_int_equal(small->events[0].value, 2);
	cluster_free(c);
}

static void test_reject(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *a = open_consumer(c, 0, Q, 1, 0, NULL), *b, *d;
	unsigned t;

	settle(c);
	b = open_consumer(c, 1, Q, 2, 0, NULL);
	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	assert_int_equal(a->event_count, 1);
	t = reject(c, 0, Q, 2, a->events[0].idx);
	settle(c);
	status_is(c, t, RP_Q_NOT_HOLDER);
	t = reject(c, 0, Q, 1, a->events[0].idx);
	settle(c);
	ok(c, t);
	assert_int_equal(b->event_count, 1);
	assert_int_equal(b->events[0].attempt, 2);
	assert_int_equal(b->events[0].idx, a->events[0].idx);
	/* The remote one rejects too: nobody is asked twice, and it waits. */
	t = reject(c, 1, Q, 2, b->events[0].idx);
	settle(c);
	ok(c, t);
	assert_int_equal(a->event_count, 1);
	assert_int_equal(b->event_count, 1);
	assert_int_equal(info_of(c, 0, Q).waiting, 1);
	assert_int_equal(totals_of(c, 0).rejects, 2);
	assert_int_equal(totals_of(c, 0).rejected_by_all, 1);
	/* What comes behind is not held up. */
	put(c, 0, Q, "t", 2);
	settle(c);
	assert_int_equal(a->event_count + b->event_count, 3);
	d = open_consumer(c, 0, Q, 3, 0, NULL);
	settle(c);
	assert_int_equal(d->event_count, 1);
	assert_int_equal(d->events[0].value, 1);
	assert_int_equal(d->events[0].attempt, 3);
	t = reject(c, 0, Q, 3, 12345);
	status_is(c, t, RP_Q_NOT_FOUND);
	cluster_free(c);
}

static void test_acknowledge(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *a = open_consumer(c, 0, Q, 1, 0, NULL), *b;
	uint64_t idx;
	unsigned t;

	settle(c);
	b = open_consumer(c, 1, Q, 2, 0, NULL);
	settle(c);
	for (unsigned i = 1; i <= 4; i++)
		put(c, 2, Q, "t", i);
	settle(c);
	assert_int_equal(a->event_count, 2);
	assert_int_equal(b->event_count, 2);
	/* By another uuid: refused, from any node. */
	idx = b->events[0].idx;
	for (unsigned node = 0; node < 3; node++) {
		t = ack(c, node, Q, 1, idx, 0);
		settle(c);
		status_is(c, t, RP_Q_NOT_HOLDER);
	}
	assert_int_equal(totals_of(c, 0).acks_refused, 3);
	/* From a node that is neither; and again: a retry is safe. */
	t = ack(c, 2, Q, 2, idx, 0);
	settle(c);
	deleted(c, t, 1);
	t = ack(c, 2, Q, 2, idx, 0);
	settle(c);
	deleted(c, t, 0);
	t = ack(c, 1, Q, 2, idx, 0);
	settle(c);
	deleted(c, t, 0);
	/* get, and prev_kv. */
	idx = b->events[1].idx;
	t = get(c, 2, Q, 2, idx, 0);
	settle(c);
	ok(c, t);
	assert_true(answer_of(c, t)->message);
	assert_int_equal(answer_of(c, t)->value, b->events[1].value);
	assert_true(answer_of(c, t)->revision == b->events[1].revision);
	t = get(c, 2, Q, 1, idx, 0);
	settle(c);
	status_is(c, t, RP_Q_NOT_HOLDER);
	t = ack(c, 1, Q, 2, idx, RP_QMSG_WANT_MESSAGE);
	settle(c);
	deleted(c, t, 1);
	assert_int_equal(answer_of(c, t)->value, b->events[1].value);
	assert_int_equal(answer_of(c, t)->attempt, 1);
	t = get(c, 2, Q, 2, idx, 0);
	settle(c);
	status_is(c, t, RP_Q_NOT_FOUND);
	/* The short form has no holder to check; the host forgets what it shows. */
	t = get(c, 2, Q, 99, a->events[0].idx, RP_QMSG_NO_HOLDER);
	settle(c);
	assert_int_equal(answer_of(c, t)->value, a->events[0].value);
	t = ack(c, 2, Q, 99, a->events[0].idx, RP_QMSG_NO_HOLDER | RP_QMSG_WANT_MESSAGE);
	settle(c);
	deleted(c, t, 1);
	assert_true(answer_of(c, t)->message);
	t = ack(c, 0, Q, 1, a->events[1].idx, 0);
	settle(c);
	deleted(c, t, 1);
	t = ack(c, 2, "nosuch", 1, 5, 0);
	deleted(c, t, 0);
	for (unsigned node = 0; node < 3; node++) {
		struct rp_queue_totals totals;

		rp_queue_get_totals(c->nodes[node].qs, &totals);
		assert_int_equal(totals.holds + totals.messages + totals.requests, 0);
	}
	cluster_free(c);
}

static void test_short_form_from_the_dispatcher(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *b;
	struct rp_queue_totals totals;
	unsigned t;

	put(c, 0, Q, "t", 1); /* A claims as a producer */
	settle(c);
	b = open_consumer(c, 1, Q, 2, 0, NULL);
	settle(c);
	assert_true(info_of(c, 0, Q).dispatching);
	assert_int_equal(b->event_count, 1);
	t = ack(c, 0, Q, 0, b->events[0].idx, RP_QMSG_NO_HOLDER);
	deleted(c, t, 1);
	settle(c);
	rp_queue_get_totals(c->nodes[1].qs, &totals);
	assert_int_equal(totals.holds, 0);
	assert_int_equal(shown(b, true), 0);
	cluster_free(c);
}

/* A watch that ends and comes back within resume_ms keeps its bindings, on either node. */
static void return_within_resume(unsigned from, unsigned to)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *other = open_consumer(c, 0, Q, 9, 0, ";match=none"), *a, *b;
	uint64_t revision;
	unsigned t;

	settle(c);
	a = open_consumer(c, from, Q, 1, 0, NULL);
	settle(c);
	assert_true(info_of(c, 0, Q).dispatching);
	for (unsigned i = 1; i <= 5; i++)
		put(c, 0, Q, "t", i);
	settle(c);
	assert_int_equal(a->event_count, 5);
	close_consumer(c, a, RP_QUEUE_CLOSE_ENDED);
	cluster_run(c, 500 * MS);
	put(c, 0, Q, "t", 6);
	settle(c);
	assert_int_equal(info_of(c, 0, Q).in_flight, 5);
	/* It has seen the first three. */
	revision = a->events[3].revision;
	b = open_consumer(c, to, Q, 1, revision, NULL);
	settle(c);
	assert_int_equal(b->event_count, 3);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(b->events[i].idx == a->events[3 + i].idx);
		assert_true(b->events[i].revision == a->events[3 + i].revision);
		assert_int_equal(b->events[i].attempt, 1);
	}
	assert_int_equal(b->events[2].value, 6);
	assert_true(b->events[2].revision > b->events[1].revision);
	/* The sixth was offered while the watch was away. */
	assert_int_equal(totals_of(c, 0).redeliveries, from == 1);
	assert_int_equal(totals_of(c, 0).resends, 2);
	/* What it saw before is still its own. */
	for (unsigned i = 0; i < 5; i++) {
		t = ack(c, to, Q, 1, a->events[i].idx, 0);
		settle(c);
		deleted(c, t, 1);
	}
	cluster_run(c, 3 * SEC);
	assert_int_equal(info_of(c, 0, Q).in_flight, 1);
	assert_int_equal(other->event_count, 0);
	assert_true(b->open);
	cluster_free(c);
}

static void test_return_within_resume(void **state)
{
	return_within_resume(0, 0);
	return_within_resume(1, 1);
	return_within_resume(0, 1);
	return_within_resume(1, 0);
}

/* After resume_ms its death is proven: back in the pool, in order, at the head. */
static void end_for_good(unsigned node, enum rp_queue_close how)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *first = open_consumer(c, 0, Q, 9, 0, ";match=none"), *a, *b;

	settle(c);
	a = open_consumer(c, node, Q, 1, 0, ";prefetch=1000");
	settle(c);
	for (unsigned i = 1; i <= 1000; i++)
		put(c, 0, Q, "t", i);
	cluster_run(c, 100 * MS);
	assert_int_equal(a->event_count, 1000);
	put(c, 0, Q, "t", 1001);
	close_consumer(c, a, how);
	if (how == RP_QUEUE_CLOSE_LEFT)
		publish_consumer(c, Q, 1, "");
	b = open_consumer(c, 0, Q, 2, 0, ";prefetch=2000");
	cluster_run(c, how == RP_QUEUE_CLOSE_ENDED ? 900 * MS : 1 * MS);
	if (how == RP_QUEUE_CLOSE_ENDED)
		assert_int_equal(b->event_count, 1);
	cluster_run(c, 200 * MS);
	assert_int_equal(b->event_count, 1001);
	for (unsigned i = 1; i <= 1000; i++) {
		unsigned at = how == RP_QUEUE_CLOSE_ENDED ? i : i - 1;

		if (b->events[at].value != i)
			at = i;
		assert_int_equal(b->events[at].value, i);
		assert_int_equal(b->events[at].attempt, 2);
	}
	assert_int_equal(totals_of(c, 0).redeliveries, 1000);
	assert_int_equal(first->event_count, 0);
	/* A late acknowledge of the old life is refused. */
	ack(c, node, Q, 1, a->events[0].idx, 0);
	settle(c);
	status_is(c, c->token_count - 1, RP_Q_NOT_HOLDER);
	cluster_free(c);
}

static void test_end_for_good(void **state)
{
	end_for_good(0, RP_QUEUE_CLOSE_ENDED);
	end_for_good(1, RP_QUEUE_CLOSE_ENDED);
	end_for_good(0, RP_QUEUE_CLOSE_LEFT);
	end_for_good(1, RP_QUEUE_CLOSE_LEFT);
}

static void test_close_by_the_server_is_no_death(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *a, *b, *d;

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	a = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	assert_int_equal(a->event_count, 1);
	close_consumer(c, a, RP_QUEUE_CLOSE_SERVER);
	b = open_consumer(c, 0, Q, 2, 0, NULL);
	cluster_run(c, 20 * SEC);
	assert_int_equal(b->event_count, 0);
	d = open_consumer(c, 0, Q, 1, 1, NULL);
	settle(c);
	assert_int_equal(d->event_count, 1);
	cluster_free(c);
}

/* r = 0 is a new life: what was bound to the uuid is released. */
static void test_new_life(void **state)
{
	for (unsigned node = 0; node < 2; node++) {
		struct cluster *c = cluster_new(2, 1, NULL);
		struct client *a, *b;
		unsigned t;

		open_consumer(c, 0, Q, 9, 0, ";match=none");
		settle(c);
		a = open_consumer(c, node, Q, 1, 0, NULL);
		settle(c);
		put(c, 0, Q, "t", 1);
		settle(c);
		assert_int_equal(a->event_count, 1);
		b = open_consumer(c, node, Q, 1, 0, NULL);
		assert_true(a->ended);
		assert_int_equal(a->end, RP_QUEUE_END_REPLACED);
		settle(c);
		assert_int_equal(b->event_count, 1);
		assert_int_equal(b->events[0].attempt, 2);
		assert_true(b->events[0].revision > a->events[0].revision);
		t = ack(c, node, Q, 1, b->events[0].idx, 0);
		settle(c);
		deleted(c, t, 1);
		cluster_free(c);
	}
}

/* A second watch of the same uuid on another node ends the first. */
static void test_replaced_elsewhere(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *a, *b;

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	a = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	b = open_consumer(c, 2, Q, 1, 1, NULL);
	settle(c);
	assert_true(a->ended && a->end == RP_QUEUE_END_REPLACED);
	assert_true(b->open);
	assert_int_equal(b->event_count, 1);
	assert_int_equal(b->events[0].attempt, 1);
	cluster_run(c, 3 * SEC);
	assert_true(b->open);
	assert_int_equal(info_of(c, 0, Q).in_flight, 1);
	cluster_free(c);
}

static void test_registration_deleted(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *a, *b;

	open_consumer(c, 0, Q, 9, 0, ";match=none");
	settle(c);
	a = open_consumer(c, 1, Q, 1, 0, NULL);
	settle(c);
	put(c, 0, Q, "t", 1);
	settle(c);
	b = open_consumer(c, 0, Q, 2, 0, NULL);
	settle(c);
	publish_consumer(c, Q, 1, "");
	settle(c);
	assert_true(a->ended && a->end == RP_QUEUE_END_REMOVED);
	assert_int_equal(b->event_count, 1);
	assert_int_equal(b->events[0].attempt, 2);
	cluster_free(c);
}

/* A consumer's own acknowledge, on the dispatcher's node and on another: it has the message, too.
 */
static void test_acknowledge_says_accepted(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *here = open_consumer(c, 0, Q, 1, 0, ";match=h"), *there, gone = {0};
	uint64_t idx;
	unsigned token;

	settle(c);
	there = open_consumer(c, 1, Q, 2, 0, ";match=t");
	settle(c);
	put(c, 0, Q, "h", 1);
	settle(c);
	idx = here->events[0].idx;
	token = ack_by(c, here, idx);
	ok(c, token);
	deleted(c, token, 1);
	here->mute = there->mute = true;
	put(c, 0, Q, "h", 2);
	put(c, 0, Q, "t", 3);
	settle(c);
	assert_int_equal(totals_of(c, 0).accepts, 1);
	token = ack_by(c, here, idx + 1);
	ok(c, token);
	deleted(c, token, 1);
	assert_int_equal(totals_of(c, 0).accepts, 2);
	token = ack_by(c, there, idx + 2);
	settle(c);
	ok(c, token);
	deleted(c, token, 1);
	assert_int_equal(totals_of(c, 0).accepts, 3);
	assert_int_equal(totals_of(c, 0).acks, 3);
	assert_int_equal(info_of(c, 0, Q).depth, 0);
	/* Once more, and by one that is not there. */
	token = ack_by(c, here, idx + 1);
	deleted(c, token, 0);
	gone.handle = 12345;
	token = ack_by(c, &gone, idx);
	deleted(c, token, 0);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_act_one),
		cmocka_unit_test(test_act_two),
		cmocka_unit_test(test_one_node_sends_nothing),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_few_buffers),
		cmocka_unit_test(test_limits_change),
		cmocka_unit_test(test_choice_is_fair),
		cmocka_unit_test(test_ways),
		cmocka_unit_test(test_prefetch),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_reject),
		cmocka_unit_test(test_acknowledge),
		cmocka_unit_test(test_acknowledge_says_accepted),
		cmocka_unit_test(test_short_form_from_the_dispatcher),
		cmocka_unit_test(test_return_within_resume),
		cmocka_unit_test(test_end_for_good),
		cmocka_unit_test(test_close_by_the_server_is_no_death),
		cmocka_unit_test(test_new_life),
		cmocka_unit_test(test_replaced_elsewhere),
		cmocka_unit_test(test_registration_deleted),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
