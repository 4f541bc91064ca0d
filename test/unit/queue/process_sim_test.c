/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random runs of process requests: `queue_process_sim_test [first seed [how many]]`. Requesters ask
 * and cancel, workers come, go, answer, reject and die, queues move. By the bits of the seed: nodes
 * without a requester die (1), requesters go on at other nodes in the middle of their answers (2),
 * and the nodes where they are die and start anew (4). What must hold:
 *
 *   - no request runs twice at the same time: a second worker has it only when the first has left,
 *     has rejected it, or was fenced
 *   - each request that was taken ends exactly once at its requester, with an answer or one error;
 *     one that was refused brings nothing
 *   - outputs come in order, and none behind the end
 *   - a worker whose last output was taken has answered; one whose was not has not
 *
 * Of a node that dies nobody knows what it showed to its clients in its last moments: that may be
 * shown again, and what lay in a queue that it dispatched is lost with it.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "requests.h"

#define ASKS 160
#define NODES 4
#define WORKERS 5
/* Of a request that nobody tells of: its time, the guard of its reply queue, and some steps. */
#define GUARD (3 * SEC)
/* So long before a node's death it may have shown what it could not tell any more. */
#define LAST_MOMENTS (30 * MS)
#define SHOWN_LAST 16
/* So long after it dispatched a reply queue a node has handed over what it knew of the requests. */
#define HANDED_OVER (300 * MS)

static uint64_t seed_first = 1, seed_count = 20;

/* Over all runs: nodes that died, and those of them that dispatched the requests; nodes of
 * requesters that died; requesters that went elsewhere, and with something on its way to them; what
 * was shown again; ends that were lost with a node. */
static unsigned deaths, dispatcher_deaths, falls, roams, roams_amid, shown_again, lost_ends;

struct run_ask {
	struct ask *a;
	unsigned requester;
	unsigned outputs; /**< put, and taken */
	unsigned seen, ends;
	uint64_t end, end_ns;
	uint64_t shown_idx[SHOWN_LAST], shown_ns[SHOWN_LAST]; /**< the last events */
	bool shown_untold[SHOWN_LAST], end_untold; /**< its node died just after it showed that */
	unsigned shown_node[SHOWN_LAST], end_node;
	unsigned shown_count;
	uint64_t fell_ns; /**< the node of its requester died; 0: not while it lived */
	bool unwatched;	  /**< its reply queue's dispatcher died: only the request's own tells */
	bool exposed;	  /**< and that one as well, or it had ended */
	bool answered;	  /**< a last output was taken */
	int holder;	  /**< client that has it, as far as its requester could know; -1 */
};

struct put_output {
	unsigned token, ask;
	uint64_t value;
	bool last;
};

struct worker {
	struct client *client;
	unsigned uuid, seen;
};

struct run {
	struct cluster *c;
	struct rp_rand rand;
	struct run_ask asks[ASKS];
	unsigned ask_count;
	struct client *requesters[2];
	unsigned requester_seen[2];
	struct worker workers[WORKERS];
	struct put_output outputs[4096];
	unsigned output_count, uuids;
	bool killed, dies, roams, falls;
	int fallen; /**< node of a requester that is dead; -1 */
	uint64_t fallen_until_ns;
	unsigned gpu_percent;	    /**< of workers that have what some requests need */
	uint64_t answers_ns[NODES]; /**< last seen with something of a reply queue */
};

static const char *const replies[] = {"reply-0", "reply-1"};

static uint32_t below(struct run *r, uint32_t n)
{
	return (uint32_t)rp_rand_below(&r->rand, n);
}

static bool chance(struct run *r, uint32_t percent)
{
	return below(r, 100) < percent;
}

/* Values say whose they are: ask * 1000 + which output, in multiples that carry no long filler. */
static uint64_t value_of(unsigned ask, unsigned which)
{
	return ((uint64_t)ask * 1000 + which) * 8 + 1;
}

static unsigned ask_of(uint64_t value)
{
	return (unsigned)((value - 1) / 8 / 1000);
}

static unsigned which_of(uint64_t value)
{
	return (unsigned)((value - 1) / 8 % 1000);
}

/* A node that lives, not `other` if there is a choice. */
static unsigned living(struct run *r, unsigned other)
{
	unsigned node = below(r, NODES);

	for (unsigned i = 0; i < NODES; i++, node = (node + 1) % NODES) {
		if (!r->c->nodes[node].dead && node != other)
			return node;
	}
	return other;
}

static void random_ask(struct run *r)
{
	unsigned i = r->ask_count, q = below(r, 2);
	struct ask_options o = {
		.left_us = 20000 + below(r, r->gpu_percent < 50 ? 5000 : 3000) * 1000};
	char tail[16];

	if (i == ASKS || !r->requesters[q]->open)
		return;
	if (chance(r, 30))
		o.need = "gpu";
	if (chance(r, 20)) {
		o.priority = (uint8_t)below(r, 10);
		o.flags = RP_PROCESS_PRIORITY;
	}
	snprintf(tail, sizeof(tail), "r%u", i);
	r->asks[i].requester = q;
	r->asks[i].holder = -1;
	/* At its requester's node. */
	r->asks[i].a = ask(r->c, r->requesters[q]->node, Q, tail, value_of(i, 0), replies[q], &o);
	r->ask_count++;
}

static void random_worker(struct run *r)
{
	struct worker *w = &r->workers[below(r, WORKERS)];
	/* Where nodes die the workers are mostly where that may be. */
	unsigned node = r->dies && chance(r, 80) ? 2 + below(r, 2) : below(r, NODES);

	if (w->client && (!w->client->open || w->client->ended)) {
		w->client = NULL;
	} else if (w->client) {
		close_consumer(r->c, w->client,
			chance(r, 70) ? RP_QUEUE_CLOSE_ENDED : RP_QUEUE_CLOSE_LEFT);
		w->client = NULL;
	} else if (!r->c->nodes[node].dead) {
		w->uuid = ++r->uuids % 200;
		w->seen = 0;
		w->client = open_consumer(r->c, node, Q, w->uuid, 0,
			chance(r, r->gpu_percent) ? ";cap=gpu,cpu" : NULL);
	}
}

static struct held_job *held_by(struct run *r, const struct worker *w, unsigned i)
{
	struct held_job *j = job_of(r->c, w->client->node, r->asks[i].a->request);

	return j && memcmp(j->uuid, w->client->uuid, RP_UUID_BYTES) == 0 ? j : NULL;
}

static void put_one(struct run *r, struct worker *w, unsigned i, bool last)
{
	struct held_job *j = held_by(r, w, i);
	struct put_output *o = &r->outputs[r->output_count];

	if (!j || r->output_count == RP_ARRAY_SIZE(r->outputs) || r->asks[i].outputs > 900)
		return;
	o->ask = i;
	o->last = last;
	o->value = value_of(i, ++r->asks[i].outputs);
	o->token = last ? last_output(r->c, w->client->node, j, o->value)
			: output(r->c, w->client->node, replies[r->asks[i].requester], j, o->value);
	r->output_count++;
}

/* The one before has gone, was told, or is out of reach, when another one is shown the request. */
static void look_at_job(struct run *r, struct worker *w, const struct event *e)
{
	struct run_ask *x;
	int me = (int)(w->client - r->c->clients);

	if (e->deleted) {
		for (unsigned i = 0; i < r->ask_count; i++) {
			if (r->asks[i].holder == me && strcmp(r->asks[i].a->tail, e->tail) == 0)
				r->asks[i].holder = -1;
		}
		return;
	}
	x = &r->asks[ask_of(e->value)];
	if (x->holder >= 0 && x->holder != me) {
		const struct client *before = &r->c->clients[x->holder];

		if (before->open && !before->ended && !r->c->nodes[before->node].dead)
			fail_msg("request %u runs at two workers", (unsigned)(x - r->asks));
	}
	x->holder = me;
}

static void work(struct run *r, struct worker *w)
{
	if (!w->client || !w->client->open || w->client->ended)
		return;
	while (w->seen < w->client->event_count)
		look_at_job(r, w, &w->client->events[w->seen++]);
	for (unsigned i = 0; i < r->ask_count; i++) {
		if (r->asks[i].holder != (int)(w->client - r->c->clients) || !chance(r, 6))
			continue;
		if (chance(r, 55)) {
			put_one(r, w, i, false);
		} else if (chance(r, 60)) {
			put_one(r, w, i, true);
			r->asks[i].holder = -1;
		} else if (chance(r, 50)) {
			struct held_job *j = held_by(r, w, i);

			if (j)
				reject(r->c, w->client->node, Q, w->uuid, j->idx);
			r->asks[i].holder = -1;
		}
	}
}

/* It was shown in the last moments of its requester's node, or how it ended was. */
static bool is_shown_again(const struct run_ask *x, const struct event *e)
{
	for (unsigned i = 0; i < RP_MIN(x->shown_count, SHOWN_LAST); i++) {
		if (x->shown_idx[i] == e->idx && x->shown_untold[i])
			return true;
	}
	return e->process.kind == RP_PROCESS_END && x->ends == 1 && x->end_untold;
}

static void look_at_answer(struct run *r, const struct event *e)
{
	struct run_ask *x = NULL;

	assert_false(e->deleted);
	for (unsigned i = 0; i < r->ask_count; i++) {
		if (strcmp(r->asks[i].a->tail, e->tail) == 0)
			x = &r->asks[i];
	}
	assert_non_null(x);
	if (is_shown_again(x, e)) {
		shown_again++;
		return;
	}
	if (x->ends > 0)
		fail_msg("request %s: an event behind its end", e->tail);
	x->shown_idx[x->shown_count % SHOWN_LAST] = e->idx;
	x->shown_untold[x->shown_count % SHOWN_LAST] = false;
	x->shown_node[x->shown_count % SHOWN_LAST] = r->requesters[x->requester]->node;
	x->shown_ns[x->shown_count++ % SHOWN_LAST] = e->at_ns;
	if (e->process.kind == RP_PROCESS_END) {
		x->ends++;
		x->end = e->value;
		x->end_ns = e->at_ns;
		x->end_node = r->requesters[x->requester]->node;
	}
	if (e->value >= FAILED_BASE)
		return;
	/* In order, each once. */
	assert_ptr_equal(x, &r->asks[ask_of(e->value)]);
	assert_true(which_of(e->value) > x->seen);
	x->seen = which_of(e->value);
}

/* It goes on at that node, behind what it has. */
static void requester_at(struct run *r, unsigned q, unsigned node)
{
	struct client *old = r->requesters[q];
	uint64_t revision = old->event_count > 0 ? old->events[old->event_count - 1].revision
						 : old->open_revision;

	while (r->requester_seen[q] < old->event_count)
		look_at_answer(r, &old->events[r->requester_seen[q]++]);
	if (old->open)
		close_consumer(r->c, old, RP_QUEUE_CLOSE_ENDED);
	r->requesters[q] = open_consumer(r->c, node, replies[q], 250 + q, revision + 1, NULL);
	r->requester_seen[q] = 0;
}

/* What its dispatcher believes to be on its way to it. */
static bool has_more_to_come(struct run *r, unsigned q)
{
	for (unsigned i = 0; i < NODES; i++) {
		if (!r->c->nodes[i].dead && info_of(r->c, i, replies[q]).in_flight > 0)
			return true;
	}
	return false;
}

static void random_roam(struct run *r)
{
	unsigned q = below(r, 2), node = living(r, r->requesters[q]->node);

	if (!r->requesters[q]->open)
		return;
	roams++;
	roams_amid += has_more_to_come(r, q);
	requester_at(r, q, node);
}

static void look(struct run *r)
{
	for (unsigned q = 0; q < 2; q++) {
		while (r->requester_seen[q] < r->requesters[q]->event_count)
			look_at_answer(r, &r->requesters[q]->events[r->requester_seen[q]++]);
		/* Sent away, or its node has died. */
		if (!r->requesters[q]->open)
			requester_at(r, q, living(r, r->requesters[q]->node));
	}
	for (unsigned i = 0; i < WORKERS; i++)
		work(r, &r->workers[i]);
}

/* What lies in a queue, and is known there, is lost with its dispatcher: ends as well. */
static void look_for_answers(struct run *r)
{
	for (unsigned n = 0; n < 2 * NODES; n++) {
		struct rp_queue_info i;

		if (r->c->nodes[n / 2].dead)
			continue;
		i = info_of(r->c, n / 2, replies[n % 2]);
		if (i.dispatching || i.depth > 0)
			r->answers_ns[n / 2] = r->c->now_ns;
	}
}

/* The request waits, or is held, at a node that lives on: it will tell how it ends. */
static bool is_live(struct run *r, const struct run_ask *x, unsigned but)
{
	struct rp_queue_message_info found[ASKS];

	for (unsigned n = 0; n < NODES; n++) {
		uint32_t count = n == but || r->c->nodes[n].dead
					 ? 0
					 : rp_queue_messages(r->c->nodes[n].qs, span_of(Q), 0,
						   found, ASKS, r->c->now_ns);

		for (uint32_t i = 0; i < count; i++) {
			if (found[i].process.request == x->a->request)
				return true;
		}
	}
	return false;
}

static void node_dies(struct run *r, unsigned node)
{
	for (unsigned q = 0; q < 2; q++) {
		struct client *cl = r->requesters[q];

		while (r->requester_seen[q] < cl->event_count)
			look_at_answer(r, &cl->events[r->requester_seen[q]++]);
	}
	for (unsigned i = 0; i < r->ask_count; i++) {
		struct run_ask *x = &r->asks[i];
		unsigned q = x->requester;

		if (r->requesters[q]->node == node)
			x->fell_ns = r->c->now_ns;
		/* Wherever its requester is by now. */
		x->end_untold |= x->ends > 0 && x->end_node == node &&
				 x->end_ns + LAST_MOMENTS > r->c->now_ns;
		for (unsigned k = 0; k < RP_MIN(x->shown_count, SHOWN_LAST); k++)
			x->shown_untold[k] |= x->shown_node[k] == node &&
					      x->shown_ns[k] + LAST_MOMENTS > r->c->now_ns;
		/* What tells how it ended, or that nobody does, is there. */
		if (r->c->now_ns - r->answers_ns[node] < HANDED_OVER)
			x->unwatched = true;
		x->exposed |= x->unwatched && !is_live(r, x, node);
	}
	cluster_kill(r->c, node);
	cluster_state(r->c, node, RP_NODE_GONE);
}

/* Not a requester's: what is asked of it is asked elsewhere. */
static void random_death(struct run *r)
{
	unsigned node = 2 + below(r, NODES - 2);

	if (r->killed || r->c->nodes[2].dead || r->c->nodes[3].dead)
		return;
	/* The worst of them, where there is a choice: who dispatches the requests. */
	if (!r->c->nodes[5 - node].dead && info_of(r->c, 5 - node, Q).dispatching)
		node = 5 - node;
	/* It has handed over what it knew. */
	if (r->c->now_ns - r->answers_ns[node] < HANDED_OVER)
		return;
	r->killed = true;
	deaths++;
	dispatcher_deaths += info_of(r->c, node, Q).dispatching;
	node_dies(r, node);
}

/* A requester's node, with whatever is there; it starts anew a while later. */
static void random_fall(struct run *r)
{
	unsigned node = r->requesters[below(r, 2)]->node;

	if (r->fallen >= 0 || r->c->nodes[node].dead)
		return;
	falls++;
	r->killed |= info_of(r->c, node, Q).dispatching;
	r->fallen = (int)node;
	r->fallen_until_ns = r->c->now_ns + (20 + below(r, 400)) * MS;
	node_dies(r, node);
}

static void rise(struct run *r)
{
	if (r->fallen < 0 || r->c->now_ns < r->fallen_until_ns)
		return;
	cluster_restart(r->c, (unsigned)r->fallen);
	r->fallen = -1;
}

/* Where nodes die the requesters' stay, with what is known of the answers. */
static void random_move(struct run *r, bool dies)
{
	unsigned node = dies ? 2 + below(r, NODES - 2) : below(r, NODES);

	if (r->c->nodes[node].dead)
		return;
	/* Whoever dispatches gives it away, and takes work again. */
	rp_queue_drain(r->c->nodes[node].qs, true, r->c->now_ns);
	cluster_run(r->c, 5 * MS);
	rp_queue_drain(r->c->nodes[node].qs, false, r->c->now_ns);
}

static void finish(struct run *r)
{
	r->fallen_until_ns = 0;
	rise(r);
	for (unsigned i = 0; i < WORKERS; i++) {
		struct client *cl = r->workers[i].client;

		if (cl && cl->open && !cl->ended)
			close_consumer(r->c, cl, RP_QUEUE_CLOSE_ENDED);
		r->workers[i].client = NULL;
	}
	r->c->step_ns = MS;
	cluster_run(r->c, 5200 * MS + GUARD + 2 * SEC);
	look(r);
	cluster_audit(r->c);
}

static void judge(struct run *r)
{
	for (unsigned i = 0; i < r->ask_count; i++) {
		const struct run_ask *x = &r->asks[i];
		const struct node *n = &r->c->nodes[x->a->node];

		/* Its client never heard of it: the node that it was put at has died. */
		if (!x->a->done && !n->dead && n->boot == x->a->boot)
			fail_msg("request %u: its put was not answered", i);
		if (!x->a->done)
			continue;
		if (x->a->status == RP_Q_OK && x->ends == 0 && x->exposed) {
			lost_ends++;
			continue;
		}
		if (x->a->status == RP_Q_OK && x->ends != 1)
			fail_msg("request %s of %s: %u ends", x->a->tail, x->a->reply, x->ends);
		if (x->a->status != RP_Q_OK && x->a->status != RP_Q_UNREACHABLE && x->ends > 0)
			fail_msg("request %u: refused with %s, and an end", i,
				rp_qstatus_name(x->a->status));
	}
	for (unsigned k = 0; k < r->output_count; k++) {
		const struct put_output *o = &r->outputs[k];
		const struct answer *a = answer_of(r->c, o->token);
		const struct run_ask *x = &r->asks[o->ask];

		/* The node that it was put at, or the one that took it, may have died with it. */
		if (!o->last || !a->done)
			continue;
		if (a->status == RP_Q_OK && a->deleted && x->end != o->value && !r->killed &&
			!x->exposed)
			fail_msg("request %u: its last output was taken, and %#llx came", o->ask,
				(unsigned long long)x->end);
		if (a->status == RP_Q_OK && !a->deleted)
			assert_true(x->end != o->value || r->killed);
	}
	for (unsigned i = 0; i < NODES; i++) {
		if (r->c->nodes[i].dead)
			continue;
		assert_int_equal(info_of(r->c, i, Q).depth, 0);
		assert_int_equal(r->c->nodes[i].job_count, 0);
	}
}

/* Over all runs; a node that died takes its own along. */
static struct rp_queue_counters sum;

static void add_up(struct run *r)
{
	for (unsigned i = 0; i < NODES; i++) {
		struct rp_queue_counters k;

		if (r->c->nodes[i].dead)
			continue;
		k = totals_of(r->c, i);
		for (unsigned n = 0; n < RP_QUEUE_COUNTER_COUNT; n++)
			((uint64_t *)&sum)[n] += ((const uint64_t *)&k)[n];
	}
}

static void everything_happened(void **state)
{
	static const enum rp_queue_counter expected[] = {RP_QUEUE_COUNTER_completed,
		RP_QUEUE_COUNTER_deadlines, RP_QUEUE_COUNTER_cancels, RP_QUEUE_COUNTER_deserted,
		RP_QUEUE_COUNTER_workers_lost, RP_QUEUE_COUNTER_rejected, RP_QUEUE_COUNTER_rejects,
		RP_QUEUE_COUNTER_outputs, RP_QUEUE_COUNTER_sessions,
		RP_QUEUE_COUNTER_sessions_expired, RP_QUEUE_COUNTER_hosts_asked,
		RP_QUEUE_COUNTER_redeliveries, RP_QUEUE_COUNTER_handed_over,
		RP_QUEUE_COUNTER_puts_remote};

	print_message("%u nodes died, %u of them dispatched; %u of requesters, %u events shown "
		      "again, %u ends lost; %u requesters moved, %u amid their answers\n",
		deaths, dispatcher_deaths, falls, shown_again, lost_ends, roams, roams_amid);
	if (seed_count < 20)
		return;
	assert_true(deaths && dispatcher_deaths && falls && roams && roams_amid);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(expected); i++) {
		uint64_t n = ((const uint64_t *)&sum)[expected[i]];

		print_message(
			"%s %llu\n", rp_queue_counter_name(expected[i]), (unsigned long long)n);
		if (n == 0)
			fail_msg("%s: never", rp_queue_counter_name(expected[i]));
	}
}

static void one(uint64_t seed)
{
	struct run *r = calloc(1, sizeof(*r));
	bool dies = seed % 2;

	assert_non_null(r);
	print_message("seed %llu\n", (unsigned long long)seed);
	r->c = cluster_new(NODES, seed, NULL);
	r->rand.state = seed * 7919 + 1;
	r->c->delay_max_ns = 2 * MS;
	r->dies = dies;
	r->roams = seed & 2;
	r->falls = seed & 4;
	r->fallen = -1;
	r->gpu_percent = seed % 3 == 0 ? 7 : 60;
	for (unsigned q = 0; q < 2; q++)
		r->requesters[q] = open_consumer(r->c, q, replies[q], 250 + q, 0, NULL);
	cluster_run(r->c, 20 * MS);
	for (unsigned i = 0; i < 1500; i++) {
		if (chance(r, 12))
			random_ask(r);
		if (chance(r, 4))
			random_worker(r);
		if (chance(r, 3) && r->ask_count > 0)
			cancel(r->c, living(r, NODES), Q, r->asks[below(r, r->ask_count)].a->tail);
		if (chance(r, 1) && chance(r, 30))
			random_move(r, dies);
		if (dies && i > 300 && chance(r, 4))
			random_death(r);
		if (r->roams && chance(r, 2))
			random_roam(r);
		if (r->falls && i > 200 && chance(r, 1) && chance(r, 40))
			random_fall(r);
		rise(r);
		cluster_run(r->c, MS);
		look(r);
		look_for_answers(r);
		if (i % 64 == 0)
			cluster_audit(r->c);
	}
	finish(r);
	judge(r);
	add_up(r);
	cluster_free(r->c);
	free(r);
}

static void random_runs(void **state)
{
	for (uint64_t s = 0; s < seed_count; s++)
		one(seed_first + s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_runs),
		cmocka_unit_test(everything_happened),
	};

	if (argc > 1)
		seed_first = strtoull(argv[1], NULL, 10);
	if (argc > 1)
		seed_count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
