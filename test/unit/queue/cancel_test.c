/* SPDX-License-Identifier: Apache-2.0 */

/* Cancels of process requests whose queue has, or had, another dispatcher: lib/queue/cancel.c. */

#include <stdio.h>

#include "requests.h"

/* Node 1 dispatches and its worker has a request of node 0, where the answers are awaited. */
static struct ask *at_one(struct world *w, struct client **worker)
{
	struct ask *a;

	*worker = open_consumer(w->c, 1, Q, 1, 0, NULL);
	settle(w->c);
	assert_true(info_of(w->c, 1, Q).dispatching);
	a = asked(w, "r1", 5, NULL);
	assert_int_equal(a->status, RP_Q_OK);
	assert_int_equal(shown(*worker, false), 1);
	return a;
}

/* Node 2 claims it as well, with a consumer that takes nothing of this; 1 keeps what it bound. */
static void claimed_by_two(struct world *w)
{
	char text[64];

	open_consumer(w->c, 2, Q, 2, 0, ";match=none");
	settle(w->c);
	snprintf(text, sizeof(text), "%u;epoch=%u", (unsigned)w->c->nodes[2].id,
		info_of(w->c, 1, Q).epoch + 1);
	publish_record(w->c, Q, text);
	settle(w->c);
	assert_true(info_of(w->c, 2, Q).dispatching);
	assert_false(info_of(w->c, 1, Q).dispatching);
}

static void cancelled(struct world *w, unsigned node, const struct client *worker)
{
	unsigned token = cancel(w->c, node, Q, "r1");

	settle(w->c);
	deleted(w->c, token, 1);
	got(w, 1, failed(RP_QUEUE_DEATH_CANCELLED));
	assert_int_equal(shown(worker, true), 1);
	/* There is one no more. */
	token = cancel(w->c, node, Q, "r1");
	settle(w->c);
	deleted(w->c, token, 0);
}

/* It is asked for at each node in turn: of its producer, its former and its newer dispatcher. */
static void test_former_dispatcher(void **state)
{
	for (unsigned node = 0; node < 3; node++) {
		struct world w = world_new(3, NULL);
		struct client *worker;

		at_one(&w, &worker);
		claimed_by_two(&w);
		assert_int_equal(info_of(w.c, 1, Q).in_flight, 1);
		cancelled(&w, node, worker);
		over(&w);
	}
}

/* Asked for where nothing is known of the former dispatcher: the newer one names it. */
static void test_named(void **state)
{
	struct world w = world_new(4, NULL);
	struct client *worker;

	at_one(&w, &worker);
	claimed_by_two(&w);
	cluster_kill(w.c, 3);
	cluster_start(w.c, 3);
	for (unsigned i = 0; i < 3; i++)
		cluster_join(w.c, 3, i);
	settle(w.c);
	cancelled(&w, 3, worker);
	over(&w);
}

/* Those with one tail are at both; each ends, and the count is of all. */
static void test_at_both(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *worker;
	unsigned token;

	open_consumer(w.c, 2, "reply-2", 251, 0, NULL);
	at_one(&w, &worker);
	claimed_by_two(&w);
	ask(w.c, 2, Q, "r1", 6, "reply-2", &(struct ask_options){.need = "gpu"});
	settle(w.c);
	assert_int_equal(info_of(w.c, 2, Q).depth, 1);
	token = cancel(w.c, 0, Q, "r1");
	settle(w.c);
	deleted(w.c, token, 2);
	got(&w, 1, failed(RP_QUEUE_DEATH_CANCELLED));
	cluster_free(w.c);
}

/* The dispatcher is cut off: none is found, and that is not the same as there being none. */
static void test_out_of_reach(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *worker;
	unsigned token;

	at_one(&w, &worker);
	cluster_cut(w.c, 1, 0);
	cluster_cut(w.c, 1, 2);
	cluster_state(w.c, 1, RP_NODE_SPARE);
	settle(w.c);
	token = cancel(w.c, 0, Q, "r1");
	settle(w.c);
	status_is(w.c, token, RP_Q_UNREACHABLE);
	/* Another one dispatches meanwhile. */
	open_consumer(w.c, 2, Q, 2, 0, ";match=none");
	settle(w.c);
	assert_true(info_of(w.c, 2, Q).dispatching);
	for (unsigned node = 0; node < 3; node += 2) {
		token = cancel(w.c, node, Q, "r1");
		settle(w.c);
		status_is(w.c, token, RP_Q_UNREACHABLE);
	}
	cluster_state(w.c, 1, RP_NODE_ONLINE);
	cluster_join(w.c, 1, 0);
	cluster_join(w.c, 1, 2);
	settle(w.c);
	cancelled(&w, 0, worker);
	over(&w);
}

/* It is dead: after the time that proves it there are none there. */
static void test_dead(void **state)
{
	struct world w = world_new(2, NULL);
	struct client *worker;
	unsigned token;

	at_one(&w, &worker);
	cluster_kill(w.c, 1);
	cluster_run(w.c, 4400 * MS);
	token = cancel(w.c, 0, Q, "r1");
	settle(w.c);
	status_is(w.c, token, RP_Q_UNREACHABLE);
	cluster_run(w.c, 100 * MS);
	token = cancel(w.c, 0, Q, "r1");
	settle(w.c);
	deleted(w.c, token, 0);
	cluster_free(w.c);
}

/* The word is lost on its way: what became of it is not known, and is asked for again. */
static void test_lost(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *worker;
	unsigned token;

	at_one(&w, &worker);
	token = cancel(w.c, 0, Q, "r1");
	cluster_silence(w.c, 0, 1, true);
	cluster_silence(w.c, 0, 1, false);
	settle(w.c);
	status_is(w.c, token, RP_Q_UNREACHABLE);
	cancelled(&w, 0, worker);
	over(&w);
}

/* Between two dispatchers, at whatever moment it comes: it ends, once, and the count says so. */
static void test_on_its_way(void **state)
{
	for (unsigned at = 0; at < 48; at++) {
		struct world w = world_new(3, NULL);
		bool bound = at % 2;
		struct client *worker;
		unsigned token;

		worker = open_consumer(w.c, 1, Q, 1, 0, bound ? NULL : ";match=none");
		settle(w.c);
		for (unsigned i = 0; i < 20; i++)
			put(w.c, 0, Q, "t", i);
		asked(&w, "r1", 5, NULL);
		rp_queue_stop(w.c->nodes[1].qs, w.c->now_ns);
		cluster_run(w.c, at / 2 * MS / 4);
		token = cancel(w.c, at / 2 % 3, Q, "r1");
		cluster_run(w.c, 200 * MS);
		cluster_audit(w.c);
		deleted(w.c, token, 1);
		got(&w, 1, failed(RP_QUEUE_DEATH_CANCELLED));
		assert_int_equal(shown(worker, true), bound);
		assert_false(rp_queue_is_moving(w.c->nodes[1].qs));
		cluster_free(w.c);
	}
}

/* Nothing of the queue's may cross any more, but what has can be cancelled; no key is said. */
static void test_apart(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *worker;
	unsigned token;

	at_one(&w, &worker);
	cluster_part(w.c, 0, 1, true);
	cluster_part(w.c, 2, 1, true);
	settle(w.c);
	token = cancel(w.c, 0, Q, "r2");
	settle(w.c);
	deleted(w.c, token, 0);
	/* One of this side with the same tail, too. */
	open_consumer(w.c, 2, "reply-2", 251, 0, NULL);
	settle(w.c);
	ask(w.c, 2, Q, "r1", 6, "reply-2", NULL);
	settle(w.c);
	token = cancel(w.c, 0, Q, "r1");
	settle(w.c);
	deleted(w.c, token, 2);
	assert_int_equal(shown(worker, true), 1);
	cluster_free(w.c);
}

/* Nobody listens to the answers any more: the same, without a client that asks for it. */
static void test_implied(void **state)
{
	struct world w = world_new(3, NULL);
	struct client *worker;

	at_one(&w, &worker);
	claimed_by_two(&w);
	close_consumer(w.c, w.requester, RP_QUEUE_CLOSE_ENDED);
	cluster_run(w.c, 1100 * MS);
	assert_int_equal(shown(worker, true), 1);
	assert_int_equal(info_of(w.c, 1, Q).depth, 0);
	cluster_free(w.c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_former_dispatcher),
		cmocka_unit_test(test_named),
		cmocka_unit_test(test_at_both),
		cmocka_unit_test(test_out_of_reach),
		cmocka_unit_test(test_dead),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_on_its_way),
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_implied),
	};

	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
