/* SPDX-License-Identifier: Apache-2.0 */

/* What policies make of queues: each field alone, and what they do to one another. */

#include <stdio.h>
#include <string.h>

#include "rules.h"

#define DEAD "dead"

static struct rp_queue_policy policies[2];

static struct cluster *policed(unsigned nodes, uint64_t seed, struct rp_queue_policy p)
{
	struct cluster *c = cluster_new(nodes, seed, NULL);

	p.match = Q;
	policies[0] = p;
	for (unsigned i = 0; i < nodes; i++)
		rp_queue_set_policies(c->nodes[i].qs, policies, 1);
	return c;
}

static enum rp_qstatus put_status(
	struct cluster *c, unsigned node, const char *tail, uint64_t value)
{
	unsigned token = put(c, node, Q, tail, value);

	settle(c);
	assert_true(answer_of(c, token)->done);
	return answer_of(c, token)->status;
}

/* The first that matches counts, at once when they change. */
static void first_match(void **state)
{
	struct cluster *c = cluster_new(1, 1, NULL);
	const struct rp_queue_policy first[] = {
		{.match = "jo?s", .depth_max = 2}, {.match = "*", .depth_max = 1}};
	const struct rp_queue_policy second[] = {{.match = "*", .depth_max = 3}};
	unsigned other;

	rp_queue_set_policies(c->nodes[0].qs, first, 2);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(put_status(c, 0, "t", i), RP_Q_OK);
	assert_int_equal(put_status(c, 0, "t", 2), RP_Q_QUEUE_DEPTH);
	other = put(c, 0, "other", "t", 1);
	settle(c);
	ok(c, other);
	other = put(c, 0, "other", "t", 1);
	settle(c);
	status_is(c, other, RP_Q_QUEUE_DEPTH);
	rp_queue_set_policies(c->nodes[0].qs, second, 1);
	assert_int_equal(put_status(c, 0, "t", 3), RP_Q_OK);
	assert_int_equal(put_status(c, 0, "t", 4), RP_Q_QUEUE_DEPTH);
	rp_queue_set_policies(c->nodes[0].qs, NULL, 0);
	assert_int_equal(put_status(c, 0, "t", 5), RP_Q_OK);
	cluster_free(c);
}

static void bytes_max(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){.bytes_max = 40});

	/* 1 + 8 + value % 40 bytes each. */
	assert_int_equal(put_status(c, 0, "t", 20), RP_Q_OK);
	assert_int_equal(put_status(c, 1, "t", 20), RP_Q_QUEUE_BYTES);
	assert_int_equal(put_status(c, 1, "t", 1), RP_Q_OK);
	assert_int_equal(info_of(c, 0, Q).depth, 2);
	cluster_free(c);
}

/* The oldest that nobody holds goes; what is held stays, and alone keeps new ones out. */
static void drop_oldest(void **state)
{
	struct cluster *c = policed(2, 1,
		(struct rp_queue_policy){
			.depth_max = 3, .overflow = RP_QUEUE_OVERFLOW_DROP_OLDEST});
	struct client *a = open_consumer(c, 0, Q, 1, 0, ";prefetch=1"), *b;

	settle(c);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(put_status(c, i % 2, "t", i), RP_Q_OK);
	assert_int_equal(info_of(c, 0, Q).depth, 3);
	assert_int_equal(totals_of(c, 0).overflowed, 3);
	b = open_consumer(c, 1, Q, 2, 0, ";prefetch=9");
	settle(c);
	assert_int_equal(shown(a, false), 1);
	assert_int_equal(a->events[0].value, 0);
	assert_int_equal(shown(b, false), 2);
	assert_int_equal(b->events[0].value, 4);
	assert_int_equal(b->events[1].value, 5);
	assert_int_equal(put_status(c, 0, "t", 7), RP_Q_QUEUE_DEPTH);
	assert_int_equal(totals_of(c, 0).overflowed, 3);
	cluster_free(c);
}

static void ttl(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){.ttl_ns = 100 * MS});
	struct client *a;

	assert_int_equal(put_status(c, 1, "t", 1), RP_Q_OK);
	cluster_run(c, 50 * MS);
	assert_int_equal(put_status(c, 1, "t", 2), RP_Q_OK);
	cluster_run(c, 40 * MS);
	assert_int_equal(totals_of(c, 1).expired, 1);
	a = open_consumer(c, 0, Q, 1, 0, "");
	settle(c);
	assert_int_equal(shown(a, false), 1);
	assert_int_equal(a->events[0].value, 2);
	/* What a consumer holds lives; released, it is over. */
	cluster_run(c, SEC);
	assert_int_equal(info_of(c, 0, Q).depth + info_of(c, 1, Q).depth, 1);
	close_consumer(c, a, RP_QUEUE_CLOSE_LEFT);
	settle(c);
	assert_int_equal(info_of(c, 0, Q).depth + info_of(c, 1, Q).depth, 0);
	assert_int_equal(totals_of(c, 0).expired + totals_of(c, 1).expired, 2);
	cluster_free(c);
}

/* A life goes on where the queue goes. */
static void ttl_moves(void **state)
{
	for (unsigned seed = 1; seed < 6; seed++) {
		struct cluster *c = policed(2, seed, (struct rp_queue_policy){.ttl_ns = 500 * MS});

		assert_int_equal(put_status(c, 0, "t", 1), RP_Q_OK);
		cluster_run(c, 300 * MS);
		rp_queue_drain(c->nodes[0].qs, true, c->now_ns);
		settle(c);
		assert_true(info_of(c, 1, Q).dispatching);
		cluster_run(c, 140 * MS);
		assert_int_equal(info_of(c, 1, Q).depth, 1);
		cluster_run(c, 40 * MS);
		assert_int_equal(info_of(c, 1, Q).depth, 0);
		assert_int_equal(totals_of(c, 1).expired, 1);
		cluster_free(c);
	}
}

static void delayed(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){.delay_ns = 100 * MS});
	struct client *a = open_consumer(c, 0, Q, 1, 0, "");

	settle(c);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(put_status(c, i % 2, "t", i), RP_Q_OK);
	assert_int_equal(shown(a, false), 0);
	assert_int_equal(info_of(c, 0, Q).delayed, 3);
	assert_int_equal(info_of(c, 0, Q).waiting, 0);
	cluster_run(c, 41 * MS);
	assert_int_equal(shown(a, false), 1);
	cluster_run(c, 60 * MS);
	assert_int_equal(shown(a, false), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(a->events[i].value, i);
	/* Offered again, it does not wait anew. */
	close_consumer(c, a, RP_QUEUE_CLOSE_LEFT);
	a = open_consumer(c, 1, Q, 2, 0, "");
	settle(c);
	assert_int_equal(shown(a, false), 3);
	cluster_free(c);
}

static void delayed_moves(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){.delay_ns = 200 * MS});
	struct client *a;

	assert_int_equal(put_status(c, 0, "t", 1), RP_Q_OK);
	assert_int_equal(put_status(c, 0, "t", 2), RP_Q_OK);
	rp_queue_drain(c->nodes[0].qs, true, c->now_ns);
	settle(c);
	assert_int_equal(info_of(c, 1, Q).delayed, 2);
	a = open_consumer(c, 1, Q, 1, 0, "");
	cluster_run(c, 100 * MS);
	assert_int_equal(shown(a, false), 0);
	cluster_run(c, 100 * MS);
	assert_int_equal(shown(a, false), 2);
	assert_int_equal(a->events[0].value, 1);
	cluster_free(c);
}

/* A life shorter than the delay ends before it is ever offered. */
static void delay_over_ttl(void **state)
{
	struct cluster *c =
		policed(1, 1, (struct rp_queue_policy){.delay_ns = 200 * MS, .ttl_ns = 100 * MS});
	struct client *a = open_consumer(c, 0, Q, 1, 0, "");

	assert_int_equal(put_status(c, 0, "t", 1), RP_Q_OK);
	cluster_run(c, 300 * MS);
	assert_int_equal(shown(a, false), 0);
	assert_int_equal(totals_of(c, 0).expired, 1);
	cluster_free(c);
}

static void dedup(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){.dedup_ns = 200 * MS});
	struct client *a = open_consumer(c, 0, Q, 1, 0, "");
	unsigned t;

	settle(c);
	assert_int_equal(put_status(c, 0, "one", 1), RP_Q_OK);
	assert_int_equal(put_status(c, 1, "one", 2), RP_Q_OK);
	assert_int_equal(put_status(c, 0, "one", 3), RP_Q_OK);
	assert_int_equal(put_status(c, 1, "two", 4), RP_Q_OK);
	assert_int_equal(shown(a, false), 2);
	assert_int_equal(totals_of(c, 0).deduplicated, 2);
	/* Acknowledged, it is not taken again either. */
	t = ack(c, 0, Q, 1, a->events[0].idx, 0);
	settle(c);
	deleted(c, t, 1);
	assert_int_equal(put_status(c, 1, "one", 5), RP_Q_OK);
	assert_int_equal(shown(a, false), 2);
	cluster_run(c, 100 * MS);
	assert_int_equal(put_status(c, 1, "one", 6), RP_Q_OK);
	assert_int_equal(shown(a, false), 3);
	cluster_free(c);
}

/* A dispatcher that hands its queue over hands over what it remembers, however much. */
static void dedup_moves(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){.dedup_ns = 20 * SEC});
	struct client *a = open_consumer(c, 1, Q, 1, 0, ";prefetch=4000");
	char tail[32];

	/* Node 0 dispatches: its consumer is there as well, for nothing. */
	open_consumer(c, 0, Q, 2, 0, ";match=none");
	settle(c);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 3000; i++) {
			snprintf(tail, sizeof(tail), "a-rather-long-tail-%u", i);
			put(c, (i + round) % 2, Q, tail, i);
			if (i % 100 == 0)
				settle(c);
		}
		settle(c);
		for (unsigned i = 0; round == 0 && i < a->event_count; i++)
			ack(c, 1, Q, 1, a->events[i].idx, 0);
		settle(c);
		assert_int_equal(info_of(c, 0, Q).depth + info_of(c, 1, Q).depth, 0);
		if (round == 0) {
			unsigned from = info_of(c, 0, Q).dispatching ? 0 : 1;

			rp_queue_drain(c->nodes[from].qs, true, c->now_ns);
			cluster_run(c, 300 * MS);
			assert_true(info_of(c, 1 - from, Q).dispatching);
			rp_queue_drain(c->nodes[from].qs, false, c->now_ns);
			settle(c);
		}
	}
	assert_int_equal(totals_of(c, 0).deduplicated + totals_of(c, 1).deduplicated, 3000);
	cluster_run(c, 21 * SEC);
	cluster_audit(c);
	cluster_free(c);
}

/* A queue that has nothing but remembered tails does not end before they do. */
static void dedup_keeps_the_queue(void **state)
{
	const struct rp_queue_config config = {.idle_ns = 50 * MS};
	struct cluster *c = cluster_new(1, 1, &config);
	const struct rp_queue_policy p = {.match = "*", .dedup_ns = 300 * MS};
	struct rp_queue_totals t;
	unsigned token;

	rp_queue_set_policies(c->nodes[0].qs, &p, 1);
	assert_int_equal(put_status(c, 0, "one", 1), RP_Q_OK);
	token = ack(
		c, 0, Q, 0, info_of(c, 0, Q).depth ? answer_of(c, 0)->idx : 0, RP_QMSG_NO_HOLDER);
	settle(c);
	deleted(c, token, 1);
	cluster_run(c, 200 * MS);
	assert_int_equal(put_status(c, 0, "one", 2), RP_Q_OK);
	assert_int_equal(info_of(c, 0, Q).depth, 0);
	cluster_run(c, 300 * MS);
	rp_queue_get_totals(c->nodes[0].qs, &t);
	assert_int_equal(t.queues, 0);
	cluster_free(c);
}

static void fail_fast(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){.fail_fast = true});
	struct client *a;

	assert_int_equal(put_status(c, 0, "t", 1), RP_Q_NO_CONSUMER);
	assert_int_equal(c->nodes[0].claims, 0);
	a = open_consumer(c, 1, Q, 1, 0, ";prefetch=1");
	settle(c);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(put_status(c, i % 2, "t", i), RP_Q_OK);
	close_consumer(c, a, RP_QUEUE_CLOSE_LEFT);
	settle(c);
	assert_int_equal(put_status(c, 0, "t", 1), RP_Q_NO_CONSUMER);
	assert_int_equal(put_status(c, 1, "t", 1), RP_Q_NO_CONSUMER);
	assert_int_equal(info_of(c, 1, Q).depth, 3);
	assert_int_equal(
		totals_of(c, 0).refused_no_consumer + totals_of(c, 1).refused_no_consumer, 3);
	cluster_free(c);
}

/* Consumers that die with it: it ends after as many as it may have. */
static void deliveries_max(void **state)
{
	struct cluster *c =
		policed(2, 1, (struct rp_queue_policy){.deliveries_max = 3, .dead_letter = DEAD});
	struct client *a, *d;

	assert_int_equal(put_status(c, 0, "t", 5), RP_Q_OK);
	for (unsigned i = 0; i < 3; i++) {
		a = open_consumer(c, i % 2, Q, 1 + i, 0, "");
		settle(c);
		assert_int_equal(shown(a, false), 1);
		assert_int_equal(a->events[0].attempt, i + 1);
		close_consumer(c, a, RP_QUEUE_CLOSE_LEFT);
		settle(c);
	}
	assert_int_equal(info_of(c, 0, Q).depth, 0);
	d = open_consumer(c, 1, DEAD, 9, 0, "");
	settle(c);
	assert_int_equal(shown(d, false), 1);
	assert_int_equal(d->events[0].value, 5);
	assert_int_equal(totals_of(c, 0).exhausted, 1);
	assert_int_equal(totals_of(c, 0).dead_letters, 1);
	cluster_free(c);
}

/* Offers that no client saw are no deliveries. */
static void unseen_is_no_delivery(void **state)
{
	struct cluster *c = policed(1, 1, (struct rp_queue_policy){.deliveries_max = 1});
	struct client *a;

	assert_int_equal(put_status(c, 0, "t", 5), RP_Q_OK);
	for (unsigned i = 0; i < 4; i++) {
		a = open_consumer(c, 0, Q, 1 + i, 0, "");
		a->mute = true;
		settle(c);
		client_drop_buffer(a);
		close_consumer(c, a, RP_QUEUE_CLOSE_LEFT);
		settle(c);
	}
	a = open_consumer(c, 0, Q, 9, 0, "");
	settle(c);
	assert_int_equal(shown(a, false), 1);
	assert_int_equal(a->events[0].attempt, 5);
	cluster_free(c);
}

static void rejected_by_all(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){.dead_letter = DEAD});
	struct client *a = open_consumer(c, 0, Q, 1, 0, ""), *b = open_consumer(c, 1, Q, 2, 0, "");
	struct client *none = open_consumer(c, 1, Q, 3, 0, ";match=other"), *d;

	settle(c);
	assert_int_equal(put_status(c, 0, "t", 5), RP_Q_OK);
	assert_int_equal(shown(a, false) + shown(b, false), 1);
	if (shown(a, false))
		reject(c, 0, Q, 1, a->events[0].idx);
	else
		reject(c, 1, Q, 2, b->events[0].idx);
	settle(c);
	assert_int_equal(shown(a, false), 1);
	assert_int_equal(shown(b, false), 1);
	assert_int_equal(info_of(c, 0, Q).depth + info_of(c, 1, Q).depth, 1);
	if (a->events[0].attempt == 2)
		reject(c, 0, Q, 1, a->events[0].idx);
	else
		reject(c, 1, Q, 2, b->events[0].idx);
	settle(c);
	assert_int_equal(shown(none, false), 0);
	assert_int_equal(info_of(c, 0, Q).depth + info_of(c, 1, Q).depth, 0);
	d = open_consumer(c, 1, DEAD, 9, 0, "");
	settle(c);
	assert_int_equal(shown(d, false), 1);
	assert_int_equal(totals_of(c, 0).rejected + totals_of(c, 1).rejected, 1);
	cluster_free(c);
}

/* The letter arrives before the original goes; meanwhile it is offered to nobody. */
static void letter_waits(void **state)
{
	struct cluster *c =
		policed(2, 1, (struct rp_queue_policy){.ttl_ns = 50 * MS, .dead_letter = DEAD});
	const struct rp_queue_policy full[] = {policies[0], {.match = DEAD, .depth_max = 1}};
	struct client *a, *d;
	unsigned t;

	for (unsigned i = 0; i < 2; i++)
		rp_queue_set_policies(c->nodes[i].qs, full, 2);
	c->letters_blocked = true;
	assert_int_equal(put_status(c, 0, "t", 1), RP_Q_OK);
	assert_int_equal(put_status(c, 0, "t", 2), RP_Q_OK);
	cluster_run(c, 100 * MS);
	assert_int_equal(info_of(c, 0, Q).ending, 2);
	a = open_consumer(c, 0, Q, 1, 0, "");
	settle(c);
	assert_int_equal(shown(a, false), 0);
	/* Nor can it be acknowledged. */
	t = ack(c, 0, Q, 1, answer_of(c, 0)->idx, RP_QMSG_NO_HOLDER);
	settle(c);
	deleted(c, t, 0);
	c->letters_blocked = false;
	cluster_run(c, 300 * MS);
	/* One has room there. */
	assert_int_equal(info_of(c, 0, Q).depth, 1);
	assert_int_equal(totals_of(c, 0).dead_letters, 1);
	assert_true(totals_of(c, 0).dead_letter_waits > 0);
	d = open_consumer(c, 1, DEAD, 9, 0, "");
	settle(c);
	assert_int_equal(shown(d, false), 1);
	t = ack(c, 1, DEAD, 9, d->events[0].idx, 0);
	cluster_run(c, 2 * SEC);
	deleted(c, t, 1);
	assert_int_equal(shown(d, false), 2);
	assert_int_equal(info_of(c, 0, Q).depth, 0);
	assert_int_equal(totals_of(c, 0).expired, 2);
	cluster_free(c);
}

/* The queue moves with a letter on its way: it arrives once, and nothing stays behind. */
static void letter_moves(void **state)
{
	for (unsigned seed = 1; seed < 20; seed++) {
		struct cluster *c = policed(
			3, seed, (struct rp_queue_policy){.ttl_ns = 50 * MS, .dead_letter = DEAD});
		struct client *d = open_consumer(c, 2, DEAD, 9, 0, "");

		settle(c);
		c->delay_max_ns = 3 * MS;
		for (unsigned i = 0; i < 5; i++) {
			put(c, 0, Q, "t", i);
			cluster_run(c, MS);
		}
		cluster_run(c, (44 + seed % 8) * MS);
		rp_queue_drain(c->nodes[0].qs, true, c->now_ns);
		cluster_run(c, 300 * MS);
		cluster_audit(c);
		assert_int_equal(shown(d, false), 5);
		assert_int_equal(
			info_of(c, 0, Q).depth + info_of(c, 1, Q).depth + info_of(c, 2, Q).depth,
			0);
		cluster_free(c);
	}
}

/* A queue is not its own. */
static void letters_to_itself(void **state)
{
	struct cluster *c =
		policed(1, 1, (struct rp_queue_policy){.ttl_ns = 50 * MS, .dead_letter = Q});

	assert_int_equal(put_status(c, 0, "t", 1), RP_Q_OK);
	cluster_run(c, 100 * MS);
	assert_int_equal(info_of(c, 0, Q).depth, 0);
	assert_int_equal(totals_of(c, 0).expired, 1);
	assert_int_equal(totals_of(c, 0).dead_letters, 0);
	cluster_free(c);
}

static unsigned purge(struct cluster *c, unsigned node)
{
	unsigned token = c->token_count++;

	rp_queue_clear(
		c->nodes[node].qs, (1u << 20) + token, span_of(Q), RP_QUEUE_PURGE, 0, c->now_ns);
	return token;
}

static void purged(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){0});
	struct client *a = open_consumer(c, 0, Q, 1, 0, ";prefetch=2");
	unsigned t;

	settle(c);
	for (unsigned i = 0; i < 300; i++)
		put(c, 0, Q, "t", i);
	t = purge(c, 0);
	put(c, 0, Q, "t", 1000);
	status_is(c, purge(c, 0), RP_Q_STALL);
	settle(c);
	deleted(c, t, 298);
	assert_int_equal(info_of(c, 0, Q).depth, 3);
	assert_int_equal(shown(a, false), 2);
	status_is(c, purge(c, 1), RP_Q_NOT_HOLDER);
	t = purge(c, 0);
	settle(c);
	deleted(c, t, 1);
	assert_int_equal(totals_of(c, 0).purged, 299);
	cluster_free(c);
}

/* Letters go back; what is none stays in its place, and is not asked for again. */
static void replayed(void **state)
{
	struct cluster *c = policed(1, 1, (struct rp_queue_policy){.delay_ns = 0});
	struct client *back = open_consumer(c, 0, "back", 1, 0, ""), *rest;
	unsigned t;

	settle(c);
	for (unsigned i = 0; i < 200; i++)
		put(c, 0, Q, i % 10 == 0 ? "no" : "yes", i);
	settle(c);
	t = c->token_count++;
	rp_queue_clear(c->nodes[0].qs, (1u << 20) + t, span_of(Q), RP_QUEUE_REPLAY, 100, c->now_ns);
	settle(c);
	deleted(c, t, 100);
	assert_int_equal(shown(back, false), 90);
	assert_int_equal(info_of(c, 0, Q).depth, 110);
	assert_int_equal(info_of(c, 0, Q).ending, 0);
	t = c->token_count++;
	rp_queue_clear(c->nodes[0].qs, (1u << 20) + t, span_of(Q), RP_QUEUE_REPLAY, 0, c->now_ns);
	settle(c);
	deleted(c, t, 110);
	assert_int_equal(shown(back, false), 180);
	assert_int_equal(totals_of(c, 0).replayed, 180);
	assert_int_equal(totals_of(c, 0).dead_letters, 0);
	rest = open_consumer(c, 0, Q, 2, 0, "");
	settle(c);
	assert_int_equal(shown(rest, false), 20);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(rest->events[i].value, 10 * i);
	cluster_free(c);
}

/* How long messages waited, and how long their clients took to get them. */
static void times(void **state)
{
	struct cluster *c = policed(1, 1, (struct rp_queue_policy){.delay_ns = 0});
	struct rp_queue_totals t;
	struct client *a;

	for (unsigned i = 0; i < 4; i++)
		put(c, 0, Q, "t", i);
	cluster_run(c, 100 * MS);
	a = open_consumer(c, 0, Q, 1, 0, "");
	a->mute = true;
	cluster_run(c, 20 * MS);
	a->mute = false;
	settle(c);
	assert_int_equal(shown(a, false), 4);
	assert_true(info_of(c, 0, Q).wait_mean_ns >= 100 * MS);
	assert_true(info_of(c, 0, Q).wait_max_ns < 102 * MS);
	assert_true(info_of(c, 0, Q).accept_mean_ns >= 20 * MS);
	rp_queue_get_totals(c->nodes[0].qs, &t);
	/* 65.5 ms and 262 ms are the edges about it, 16.4 ms and 65.5 ms those of the other. */
	assert_int_equal(t.wait.buckets[9], 4);
	assert_int_equal(t.accept.buckets[8], 4);
	assert_int_equal(t.wait.count, 4);
	assert_int_equal(t.wait.sum_ns / 4, info_of(c, 0, Q).wait_mean_ns);
	cluster_free(c);
}

/* A worker may take ten times as long as any timer runs: nothing is taken from it. */
static void silent_worker(void **state)
{
	struct cluster *c = policed(2, 1, (struct rp_queue_policy){.ttl_ns = 8000 * SEC});
	struct client *worker = open_consumer(c, 1, Q, 1, 0, ";prefetch=1"), *other;
	unsigned t;

	settle(c);
	assert_int_equal(put_status(c, 0, "t", 1), RP_Q_OK);
	assert_int_equal(shown(worker, false), 1);
	other = open_consumer(c, 0, Q, 2, 0, "");
	c->step_ns = 50 * MS;
	cluster_run(c, 6100 * SEC); /* queues.idle_s is the longest: 600 */
	assert_int_equal(shown(other, false), 0);
	assert_int_equal(worker->event_count, 1);
	t = ack(c, 1, Q, 1, worker->events[0].idx, 0);
	cluster_run(c, SEC);
	deleted(c, t, 1);
	cluster_free(c);
}

static uint64_t gauges(struct cluster *c)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < c->node_count; i++) {
		struct rp_queue_totals t;

		rp_queue_get_totals(c->nodes[i].qs, &t);
		sum += t.queues + t.messages + t.consumers + t.holds + t.requests + t.producers +
		       t.hosts + t.held + t.bytes;
	}
	return sum;
}

/* A day of puts, deliveries, rejects, ends and returns: what there is goes back to nothing. */
static void a_day(void **state)
{
	struct cluster *c = policed(2, 1,
		(struct rp_queue_policy){.ttl_ns = 90 * SEC,
			.delay_ns = SEC,
			.dedup_ns = 120 * SEC,
			.deliveries_max = 3,
			.dead_letter = DEAD});
	char tail[16];

	c->step_ns = 100 * MS;
	for (unsigned minute = 0; minute < 24 * 60; minute++) {
		struct client *a;

		for (unsigned i = 0; i < 3; i++) {
			snprintf(tail, sizeof(tail), "t%u", (minute + i) % 50);
			put(c, i % 2, Q, tail, minute % 256);
		}
		a = open_consumer(
			c, minute % 2, minute % 7 ? Q : DEAD, minute % 200, 0, ";prefetch=2");
		cluster_run(c, 20 * SEC);
		for (unsigned i = 0; i < a->event_count; i++) {
			if (!a->events[i].deleted && i % 3 == 0)
				ack(c, a->node, a->queue, minute % 200, a->events[i].idx, 0);
			else
				reject(c, a->node, a->queue, minute % 200, a->events[i].idx);
		}
		cluster_run(c, 20 * SEC);
		close_consumer(c, a, RP_QUEUE_CLOSE_ENDED);
		cluster_run(c, 20 * SEC);
		if (minute % 60 == 0)
			cluster_audit(c);
	}
	assert_true(totals_of(c, 0).indexed + totals_of(c, 1).indexed > 2000);
	print_message("%llu indexed, %llu dead letters\n",
		(unsigned long long)(totals_of(c, 0).indexed + totals_of(c, 1).indexed),
		(unsigned long long)(totals_of(c, 0).dead_letters + totals_of(c, 1).dead_letters));
	assert_true(totals_of(c, 0).dead_letters + totals_of(c, 1).dead_letters > 20);
	for (unsigned i = 0; i < 2; i++) {
		unsigned token = c->token_count++;

		rp_queue_clear(c->nodes[i].qs, (1u << 20) + token, span_of(DEAD), RP_QUEUE_PURGE, 0,
			c->now_ns);
	}
	cluster_run(c, 1500 * SEC);
	assert_int_equal(gauges(c), 0);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_match),
		cmocka_unit_test(bytes_max),
		cmocka_unit_test(drop_oldest),
		cmocka_unit_test(ttl),
		cmocka_unit_test(ttl_moves),
		cmocka_unit_test(delayed),
		cmocka_unit_test(delayed_moves),
		cmocka_unit_test(delay_over_ttl),
		cmocka_unit_test(dedup),
		cmocka_unit_test(dedup_moves),
		cmocka_unit_test(dedup_keeps_the_queue),
		cmocka_unit_test(fail_fast),
		cmocka_unit_test(deliveries_max),
		cmocka_unit_test(unseen_is_no_delivery),
		cmocka_unit_test(rejected_by_all),
		cmocka_unit_test(letter_waits),
		cmocka_unit_test(letter_moves),
		cmocka_unit_test(letters_to_itself),
		cmocka_unit_test(purged),
		cmocka_unit_test(replayed),
		cmocka_unit_test(times),
		cmocka_unit_test(silent_worker),
		cmocka_unit_test(a_day),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
