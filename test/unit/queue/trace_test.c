/* SPDX-License-Identifier: Apache-2.0 */

/* Messages that are followed: which steps are told, at which times, and what becomes of the rest.
 */

#include <string.h>

#include <queue/trace.h>

#include "rules.h"

static struct rp_queue_trace told;

static bool trace(struct cluster *c, unsigned node, uint64_t idx)
{
	memset(&told, 0, sizeof(told));
	return rp_queue_trace(c->nodes[node].qs, span_of(Q), idx, &told, c->now_ns);
}

static uint64_t follow(struct cluster *c, unsigned node, uint32_t count)
{
	return rp_queue_trace_next(c->nodes[node].qs, span_of(Q), count, SEC, c->now_ns);
}

static uint32_t followed(
	struct cluster *c, unsigned node, uint64_t above, struct rp_queue_trace *out, uint32_t max)
{
	return rp_queue_traces(c->nodes[node].qs, span_of(Q), above, out, max, c->now_ns);
}

/* The words of its steps, one after the other. */
static const char *steps(const struct rp_queue_trace *t)
{
	static char text[1024];

	text[0] = '\0';
	for (uint32_t i = 0; i < t->step_count; i++) {
		strcat(text, i ? " " : "");
		strcat(text, rp_queue_step_word(t->steps[i].step));
		/* Time does not go back. */
		if (i > 0)
			assert_true(t->steps[i].at_ns >= t->steps[i - 1].at_ns);
	}
	return text;
}

/* One that is here, which nobody asked for before; asked for, its end is seen as well. */
static void held_message(void **state)
{
	struct cluster *c = cluster_new(2, 1, NULL);
	struct client *a = open_consumer(c, 0, Q, 1, 0, "");
	uint64_t idx;

	settle(c);
	put(c, 0, Q, "one", 7);
	settle(c);
	assert_int_equal(shown(a, false), 1);
	idx = a->events[0].idx;
	cluster_run(c, 30 * MS);
	assert_false(trace(c, 0, idx + 1));
	assert_false(trace(c, 1, idx));
	assert_true(trace(c, 0, idx));
	assert_string_equal(steps(&told), "put indexed offered written");
	assert_int_equal(told.idx, idx);
	assert_int_equal(told.tail_length, 3);
	assert_memory_equal(told.tail, "one", 3);
	assert_int_equal(told.bytes, 8 + 7);
	assert_false(told.ended);
	assert_true(told.age_ns >= 50 * MS && told.age_ns < 60 * MS);
	assert_int_equal(told.steps[0].at_ns, 0);
	assert_int_equal(told.steps[0].node, c->nodes[0].id);
	assert_int_equal(told.steps[2].node, c->nodes[0].id);
	assert_memory_equal(told.steps[2].uuid, a->uuid, RP_UUID_BYTES);
	assert_int_equal(told.steps[2].attempt, 1);
	/* It took the client's side some of the time. */
	assert_true(told.steps[3].at_ns > told.steps[2].at_ns && told.steps[3].at_ns < 20 * MS);
	ack(c, 0, Q, 1, idx, 0);
	settle(c);
	assert_true(trace(c, 0, idx));
	assert_string_equal(steps(&told), "put indexed offered written acknowledged");
	assert_true(told.ended);
	assert_int_equal(told.age_ns, told.steps[4].at_ns);
	assert_true(told.age_ns >= 50 * MS && told.age_ns < 75 * MS);
	cluster_free(c);
}

/* From another node, to a consumer of a third, and back, and to a fourth: one clock tells it. */
static void whole_way(void **state)
{
	struct cluster *c = cluster_new(3, 1, NULL);
	struct client *a = open_consumer(c, 1, Q, 1, 0, ""), *b;
	struct rp_queue_trace t[4];
	uint64_t above, idx;

	settle(c);
	b = open_consumer(c, 2, Q, 2, 0, "");
	settle(c);
	assert_true(info_of(c, 1, Q).dispatching);
	above = follow(c, 1, 2);
	assert_true(above > 0);
	assert_int_equal(followed(c, 1, above, t, 4), 0);
	for (unsigned i = 0; i < 3; i++)
		put(c, 0, Q, "t", i);
	settle(c);
	assert_int_equal(followed(c, 1, above, t, 4), 2);
	assert_int_equal(followed(c, 1, t[0].serial, t, 4), 1);
	assert_int_equal(followed(c, 1, above, t, 1), 1);
	/* The first two go to one consumer each; one of them is on another node. */
	assert_int_equal(followed(c, 1, above, t, 4), 2);
	assert_int_equal(t[0].steps[0].node, c->nodes[0].id);
	assert_int_equal(t[0].steps[1].node, c->nodes[1].id);
	assert_string_equal(steps(&t[0]), "put indexed offered written");
	assert_string_equal(steps(&t[1]), "put indexed offered taken written");
	assert_int_equal(t[1].steps[2].node, c->nodes[2].id);
	/* There and back over the network, each way at least half a millisecond. */
	assert_true(t[1].steps[3].at_ns - t[1].steps[2].at_ns >= MS);
	idx = t[1].idx;
	assert_int_equal(b->events[0].idx, idx);
	reject(c, 2, Q, 2, idx);
	settle(c);
	assert_int_equal(a->events[a->event_count - 1].idx, idx);
	ack(c, 1, Q, 1, idx, 0);
	settle(c);
	assert_int_equal(followed(c, 1, above, t, 4), 2);
	assert_string_equal(steps(&t[1]), "put indexed offered taken written rejected returned "
					  "offered written acknowledged");
	assert_int_equal(t[1].steps[7].attempt, 2);
	assert_int_equal(t[1].steps[7].node, c->nodes[1].id);
	cluster_free(c);
}

/* How else it ends. */
static void ends(void **state)
{
	static const struct rp_queue_policy old = {.match = Q, .ttl_ns = 50 * MS};
	struct cluster *c = cluster_new(2, 1, NULL);
	struct rp_queue_trace t[4];
	unsigned token;
	uint64_t above;

	rp_queue_set_policies(c->nodes[0].qs, &old, 1);
	put(c, 0, Q, "t", 1);
	settle(c);
	above = follow(c, 0, 3);
	put(c, 0, Q, "t", 2);
	cluster_run(c, 100 * MS);
	rp_queue_set_policies(c->nodes[0].qs, NULL, 0);
	put(c, 0, Q, "t", 3);
	settle(c);
	token = c->token_count++;
	rp_queue_clear(
		c->nodes[0].qs, (1u << 20) + token, span_of(Q), RP_QUEUE_PURGE, 0, c->now_ns);
	settle(c);
	put(c, 0, Q, "t", 4);
	settle(c);
	assert_int_equal(followed(c, 0, above, t, 4), 3);
	assert_string_equal(steps(&t[0]), "put indexed ended");
	assert_string_equal(t[0].steps[2].why, "expired");
	assert_true(t[0].age_ns >= 50 * MS);
	assert_string_equal(steps(&t[1]), "put indexed purged");
	assert_string_equal(steps(&t[2]), "put indexed");
	rp_queue_drain(c->nodes[0].qs, true, c->now_ns);
	settle(c);
	assert_true(info_of(c, 1, Q).dispatching);
	assert_int_equal(followed(c, 0, above, t, 4), 3);
	assert_string_equal(steps(&t[2]), "put indexed handed over");
	assert_int_equal(t[2].steps[2].node, c->nodes[1].id);
	/* Where it is now it has the same index, and is as old. */
	assert_true(trace(c, 1, t[2].idx));
	assert_true(told.age_ns >= t[2].age_ns);
	cluster_free(c);
}

/* Many offers: the first steps and the last stay. */
static void omitted(void **state)
{
	struct cluster *c = cluster_new(1, 1, NULL);
	uint64_t above;

	put(c, 0, Q, "t", 0);
	settle(c);
	above = follow(c, 0, 1);
	put(c, 0, Q, "t", 1);
	settle(c);
	for (unsigned i = 0; i < 30; i++) {
		struct client *a = open_consumer(c, 0, Q, i, 0, "");

		settle(c);
		close_consumer(c, a, RP_QUEUE_CLOSE_LEFT);
		settle(c);
	}
	assert_int_equal(followed(c, 0, above, &told, 1), 1);
	assert_int_equal(told.step_count, RP_QUEUE_TRACE_STEPS);
	assert_int_equal(told.omitted, 2 + 3 * 30 - RP_QUEUE_TRACE_STEPS);
	assert_int_equal(told.steps[1].step, RP_QUEUE_STEP_INDEXED);
	assert_int_equal(told.steps[2].attempt, 1);
	assert_int_equal(told.steps[RP_QUEUE_TRACE_STEPS - 1].step, RP_QUEUE_STEP_RETURNED);
	assert_int_equal(told.steps[RP_QUEUE_TRACE_STEPS - 1].attempt, 30);
	cluster_free(c);
}

/* There is room for so many; what has ended goes first. */
static void many(void **state)
{
	struct cluster *c = cluster_new(1, 1, NULL);
	struct client *a = open_consumer(c, 0, Q, 1, 0, ";prefetch=1000");
	static struct rp_queue_trace t[RP_QUEUE_TRACES];
	uint64_t above, first;

	settle(c);
	above = follow(c, 0, 10 + RP_QUEUE_TRACES);
	for (unsigned i = 0; i < RP_QUEUE_TRACES; i++)
		put(c, 0, Q, "t", i);
	settle(c);
	first = a->events[0].idx;
	for (unsigned i = 10; i < 20; i++)
		ack(c, 0, Q, 1, a->events[i].idx, 0);
	settle(c);
	assert_int_equal(followed(c, 0, above, t, RP_QUEUE_TRACES), RP_QUEUE_TRACES);
	for (unsigned i = 0; i < 10; i++)
		put(c, 0, Q, "t", i);
	settle(c);
	assert_int_equal(followed(c, 0, above, t, RP_QUEUE_TRACES), RP_QUEUE_TRACES);
	assert_int_equal(t[0].idx, first);
	assert_false(trace(c, 0, a->events[10].idx));
	/* It asks for no more of them. */
	put(c, 0, Q, "t", 99);
	settle(c);
	assert_int_equal(followed(c, 0, t[RP_QUEUE_TRACES - 1].serial, t, 1), 0);
	/* None has ended: the oldest is followed no more, and lives on. */
	assert_true(trace(c, 0, a->events[a->event_count - 1].idx));
	assert_int_equal(followed(c, 0, above, t, RP_QUEUE_TRACES), RP_QUEUE_TRACES);
	assert_int_equal(t[0].idx, a->events[1].idx);
	ack(c, 0, Q, 1, first, 0);
	settle(c);
	assert_false(trace(c, 0, first));
	cluster_free(c);
}

/* For so long, and for so many queues. */
static void waited_for(void **state)
{
	struct cluster *c = cluster_new(1, 1, NULL);
	unsigned taken = 0;
	uint64_t above;
	char name[32];

	assert_int_equal(follow(c, 0, 1), 0); /* no such queue */
	put(c, 0, Q, "t", 0);
	settle(c);
	above = follow(c, 0, 1);
	cluster_run(c, 2 * SEC);
	put(c, 0, Q, "t", 0);
	settle(c);
	assert_int_equal(followed(c, 0, above, &told, 1), 0);
	/* Asked again before it came, it counts anew. */
	follow(c, 0, 5);
	above = follow(c, 0, 1);
	put(c, 0, Q, "t", 0);
	put(c, 0, Q, "t", 0);
	settle(c);
	assert_int_equal(followed(c, 0, above, &told, 1), 1);
	assert_int_equal(followed(c, 0, told.serial, &told, 1), 0);
	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "q%u", i);
		put(c, 0, i < 10 ? name : Q, "t", 0);
	}
	settle(c);
	for (unsigned i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "q%u", i);
		taken += rp_queue_trace_next(c->nodes[0].qs, span_of(name), 1, SEC, c->now_ns) > 0;
	}
	assert_int_equal(taken, 10);
	/* A queue that ends is waited for no more: the idle ones are gone. */
	for (unsigned i = 0; i < 10; i++) {
		unsigned token = c->token_count++;

		snprintf(name, sizeof(name), "q%u", i);
		rp_queue_clear(c->nodes[0].qs, (1u << 20) + token, span_of(name), RP_QUEUE_PURGE, 0,
			c->now_ns);
	}
	cluster_run(c, 1300 * SEC);
	assert_false(info_of(c, 0, "q0").dispatching);
	cluster_free(c);
}

/* Each queue has its own histograms, and those of the shard are of all. */
static void times(void **state)
{
	struct cluster *c = cluster_new(1, 1, NULL);
	struct client *a = open_consumer(c, 0, Q, 1, 0, ""),
		      *b = open_consumer(c, 0, "other", 2, 0, "");
	struct rp_queue_times wait, accept;
	struct rp_queue_totals totals;

	settle(c);
	assert_false(rp_queue_times_of(c->nodes[0].qs, span_of(Q), &wait, &accept));
	put(c, 0, Q, "t", 1);
	for (unsigned i = 0; i < 3; i++)
		put(c, 0, "other", "t", i);
	settle(c);
	assert_int_equal(shown(a, false) + shown(b, false), 4);
	assert_true(rp_queue_times_of(c->nodes[0].qs, span_of(Q), &wait, &accept));
	assert_int_equal(wait.count, 1);
	assert_int_equal(accept.count, 1);
	/* It was offered at once, and accepted some tenths of a millisecond later. */
	assert_int_equal(wait.buckets[0], 1);
	assert_true(accept.sum_ns > 0 && accept.max_ns == accept.sum_ns && !accept.buckets[0]);
	assert_true(rp_queue_times_of(c->nodes[0].qs, span_of("other"), &wait, &accept));
	assert_int_equal(wait.count, 3);
	rp_queue_get_totals(c->nodes[0].qs, &totals);
	assert_int_equal(totals.wait.count, 4);
	assert_int_equal(totals.accept.count, 4);
	/* A queue that ended left nothing to the next of its name. */
	for (unsigned i = 0; i < 3; i++)
		ack(c, 0, "other", 2, b->events[i].idx, 0);
	settle(c);
	close_consumer(c, b, RP_QUEUE_CLOSE_LEFT);
	cluster_run(c, 700 * SEC);
	assert_false(rp_queue_times_of(c->nodes[0].qs, span_of("other"), &wait, &accept));
	b = open_consumer(c, 0, "other", 3, 0, "");
	put(c, 0, "other", "t", 1);
	settle(c);
	assert_true(rp_queue_times_of(c->nodes[0].qs, span_of("other"), &wait, &accept));
	assert_int_equal(wait.count, 1);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(held_message),
		cmocka_unit_test(whole_way),
		cmocka_unit_test(ends),
		cmocka_unit_test(omitted),
		cmocka_unit_test(many),
		cmocka_unit_test(waited_for),
		cmocka_unit_test(times),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
