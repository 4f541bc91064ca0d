/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random runs from seeds: `queue_sim_test [first seed [how many]]`. What must hold in each:
 *
 *   - an accepted put is delivered, unless a node died; an acknowledged message never again
 *   - a message is with one consumer at a time: another gets it only after the first left,
 * rejected, was fenced or lost its node
 *   - a consumer that returns gets what it missed, no more
 *   - with one consumer that never ends, order holds for each producer's node
 *   - where buffers are few, puts are refused, and the pool never runs empty
 *   - at the end every table is empty and every buffer back
 */

#include <stdlib.h>

#include "sim.h"

/* ---- a run ---- */

static bool is_done(struct sim *s)
{
	for (unsigned i = 0; i < s->shape->nodes; i++) {
		struct rp_queue_totals t;

		if (s->c->nodes[i].dead)
			return false;
		rp_queue_get_totals(s->c->nodes[i].qs, &t);
		if (t.messages || t.requests || t.holds)
			return false;
	}
	return s->ack_count == 0;
}

/* Everybody is well again: what is held is acknowledged, what waits is delivered. */
static void finish(struct sim *s)
{
	while (s->stop_stage != STOP_NONE) {
		cluster_run(s->c, s->c->step_ns);
		sim_members_step(s);
		sim_stops_step(s);
		sim_events_step(s);
		sim_acks_step(s);
	}
	for (unsigned i = 0; i < s->shape->nodes; i++) {
		if (s->c->nodes[i].dead)
			cluster_start(s->c, i);
		rp_queue_drain(s->c->nodes[i].qs, false, s->c->now_ns);
	}
	s->drain_node = NODES_MAX;
	for (unsigned a = 1; a < s->shape->nodes; a++) {
		for (unsigned b = 0; b < a; b++)
			cluster_join(s->c, a, b);
	}
	for (unsigned i = 0; i < s->shape->nodes; i++)
		cluster_state(s->c, i, RP_NODE_ONLINE);
	s->c->full_one_in = 0;
	for (unsigned round = 0; round < 400 && !is_done(s); round++) {
		for (unsigned i = 0; i < s->shape->members; i++) {
			struct member *m = &s->members[i];
			struct client *cl = &s->c->clients[m->client];

			if (!cl->open)
				m->open = false;
			cl->mute = false;
			if (cl->blocked && cl->open)
				room(s->c, cl);
			/* A fresh uuid now and then, for what all others rejected. */
			if (!m->open || (round % 100 == 50 && s->shape->rejects)) {
				if (m->open)
					sim_member_close(s, i, RP_QUEUE_CLOSE_LEFT);
				m->uuid += 10;
				sim_member_open(s, i, sim_alive(s), 0);
			}
		}
		for (unsigned k = 0; k < 100; k++) {
			cluster_run(s->c, MS);
			sim_events_step(s);
			sim_acks_step(s);
		}
	}
}

static uint64_t seed_first = 1, seed_count = 6;
/* Over all runs: what never happened was not tested. */
static struct rp_queue_counters sum;

static void add_counters(const struct rp_queue_counters *from)
{
	for (unsigned i = 0; i < RP_QUEUE_COUNTER_COUNT; i++)
		((uint64_t *)&sum)[i] += ((const uint64_t *)from)[i];
}

static void check_end(struct sim *s)
{
	uint64_t acks = 0, accepted = 0;

	cluster_audit(s->c);
	for (unsigned i = 0; i < s->message_count; i++) {
		const struct message *m = &s->messages[i];
		const struct answer *a = answer_of(s->c, m->token);

		if (!a->done && !s->kills && !s->stops)
			fail_msg("message %u: its put was not answered", i + 1);
		if (!a->done || a->status != RP_Q_OK)
			continue;
		accepted++;
		if (m->delivery_count == 0 && !s->kills)
			fail_msg("message %u: accepted and never delivered", i + 1);
	}
	for (unsigned i = 0; i < s->shape->nodes; i++) {
		struct rp_queue_totals t;

		rp_queue_get_totals(s->c->nodes[i].qs, &t);
		if (t.messages || t.holds || t.requests)
			fail_msg("node %u: left are %u messages, %u holds, %u requests", i,
				t.messages, t.holds, t.requests);
		acks += t.counters.acks;
		add_counters(&t.counters);
	}
	if (!s->kills && !s->stops)
		assert_int_equal(acks, accepted);
	assert_true(!s->shape->stops || s->stops > 0);
	assert_true(!s->shape->drains || s->drains > 0);
	assert_true(accepted > s->message_count / (s->shape->tight ? 8 : 2));
}

static void run(const struct shape *shape, uint64_t seed)
{
	const struct rp_queue_config config = {.pool = shape->tight ? pool_tight : NULL,
		.forward_window = 64 + seed % 3 * 200,
		.accept_ns = shape->mutes ? 300 * MS : 0};
	struct sim *s = calloc(1, sizeof(*s));
	uint64_t back_ns = 0;
	unsigned down = NODES_MAX;

	assert_non_null(s);
	print_message("%s, seed %llu\n", shape->name, (unsigned long long)seed);
	s->shape = shape;
	s->stop_node = s->drain_node = NODES_MAX;
	s->rand.state = seed;
	s->c = cluster_new(shape->nodes, seed ^ 0x5eed, &config);
	s->c->step_ns = MS / 4;
	s->c->delay_min_ns = MS / 10;
	s->c->delay_max_ns = 3 * MS;
	s->c->registry_ns = MS + sim_below(s, 20) * MS;
	s->c->full_one_in = 15;
	for (unsigned i = 0; i < shape->members; i++) {
		s->members[i].queue = i % shape->queues;
		s->members[i].uuid = 1 + i;
		sim_member_open(s, i, sim_alive(s), 0);
	}
	if (!shape->race)
		cluster_run(s->c, 100 * MS);
	for (unsigned step = 0; step < 400000; step++) {
		sim_puts_step(s, step);
		sim_network_step(s);
		sim_kills_step(s, &back_ns, &down);
		sim_stops_step(s);
		sim_drains_step(s);
		sim_reloads_step(s);
		sim_members_step(s);
		cluster_run(s->c, s->c->step_ns);
		sim_events_step(s);
		sim_acks_step(s);
		assert_true(rte_mempool_avail_count(pool_tight) > 0);
		if (step % 1024 == 0)
			cluster_audit(s->c);
		if (s->message_count == shape->messages && step > 40000)
			break;
	}
	finish(s);
	check_end(s);
	for (unsigned i = 0; i < shape->members; i++) {
		if (s->members[i].open)
			sim_member_close(s, i, RP_QUEUE_CLOSE_LEFT);
	}
	cluster_free(s->c);
	free(s->acks);
	free(s);
}

static void runs(const struct shape *shape)
{
	for (uint64_t seed = seed_first; seed < seed_first + seed_count; seed++)
		run(shape, seed);
}

static void test_order(void **state)
{
	runs(&(struct shape){.name = "order",
		.nodes = 3,
		.queues = 3,
		.members = 3,
		.messages = 1500,
		.cuts = true,
		.blocks = true});
}

static void test_two_consumers(void **state)
{
	runs(&(struct shape){.name = "two consumers",
		.nodes = 3,
		.queues = 2,
		.members = 6,
		.messages = 1500,
		.cuts = true,
		.blocks = true,
		.rejects = true});
}

static void test_claims_at_once(void **state)
{
	runs(&(struct shape){.name = "claims at once",
		.nodes = 3,
		.queues = 3,
		.members = 6,
		.messages = 1500,
		.cuts = true,
		.race = true});
}

static void test_consumers_come_and_go(void **state)
{
	runs(&(struct shape){.name = "come and go",
		.nodes = 3,
		.queues = 2,
		.members = 6,
		.messages = 1500,
		.cuts = true,
		.long_cuts = true,
		.blocks = true,
		.ends = true,
		.rejects = true,
		.mutes = true});
}

static void test_long_cuts(void **state)
{
	runs(&(struct shape){.name = "long cuts",
		.nodes = 3,
		.queues = 2,
		.members = 4,
		.messages = 1500,
		.cuts = true,
		.long_cuts = true});
}

static void test_nodes_die(void **state)
{
	runs(&(struct shape){.name = "nodes die",
		.nodes = 3,
		.queues = 3,
		.members = 6,
		.messages = 1500,
		.cuts = true,
		.blocks = true,
		.ends = true,
		.rejects = true,
		.mutes = true,
		.kills = true,
		.race = true});
}

static void test_nodes_stop(void **state)
{
	runs(&(struct shape){.name = "nodes stop",
		.nodes = 3,
		.queues = 3,
		.members = 6,
		.messages = 1500,
		.blocks = true,
		.ends = true,
		.rejects = true,
		.stops = true});
}

static void test_nodes_stop_in_order(void **state)
{
	runs(&(struct shape){.name = "nodes stop, in order",
		.nodes = 3,
		.queues = 3,
		.members = 3,
		.messages = 1500,
		.stops = true});
}

/* Drained while all goes on; consumers go on elsewhere with what they hold, in order. */
static void test_nodes_drain(void **state)
{
	runs(&(struct shape){.name = "nodes drain",
		.nodes = 3,
		.queues = 3,
		.members = 6,
		.messages = 1500,
		.cuts = true,
		.blocks = true,
		.ends = true,
		.rejects = true,
		.drains = true,
		.reloads = true});
}

static void test_nodes_drain_in_order(void **state)
{
	runs(&(struct shape){.name = "nodes drain, in order",
		.nodes = 3,
		.queues = 3,
		.members = 3,
		.messages = 1500,
		.drains = true,
		.reloads = true});
}

static void test_few_buffers(void **state)
{
	runs(&(struct shape){.name = "few buffers",
		.nodes = 3,
		.queues = 3,
		.members = 3,
		.messages = 1500,
		.cuts = true,
		.blocks = true,
		.tight = true});
}

static void test_few_buffers_and_stops(void **state)
{
	runs(&(struct shape){.name = "few buffers, and nodes stop",
		.nodes = 3,
		.queues = 3,
		.members = 3,
		.messages = 1500,
		.stops = true,
		.tight = true});
}

static void test_everything_happened(void **state)
{
	static const enum rp_queue_counter never[] = {
		/* Limits have tests of their own, and a cut is not told apart from a full ring. */
		RP_QUEUE_COUNTER_refused_too_large, RP_QUEUE_COUNTER_refused_depth,
		RP_QUEUE_COUNTER_refused_bytes, RP_QUEUE_COUNTER_refused_limit,
		RP_QUEUE_COUNTER_refused_stopping, RP_QUEUE_COUNTER_refused_dispatcher,
		/* There are no policies, nor operators. */
		RP_QUEUE_COUNTER_expired, RP_QUEUE_COUNTER_overflowed, RP_QUEUE_COUNTER_exhausted,
		RP_QUEUE_COUNTER_rejected, RP_QUEUE_COUNTER_purged, RP_QUEUE_COUNTER_replayed,
		RP_QUEUE_COUNTER_dead_letters, RP_QUEUE_COUNTER_dead_letter_waits,
		RP_QUEUE_COUNTER_deduplicated, RP_QUEUE_COUNTER_dedup_forgotten,
		RP_QUEUE_COUNTER_refused_no_consumer,
		/* Process requests have a simulation of their own. */
		RP_QUEUE_COUNTER_completed, RP_QUEUE_COUNTER_deadlines, RP_QUEUE_COUNTER_cancels,
		RP_QUEUE_COUNTER_deserted, RP_QUEUE_COUNTER_workers_lost,
		RP_QUEUE_COUNTER_answers_too_large, RP_QUEUE_COUNTER_outputs,
		RP_QUEUE_COUNTER_outputs_refused, RP_QUEUE_COUNTER_outputs_stalled,
		RP_QUEUE_COUNTER_sessions, RP_QUEUE_COUNTER_sessions_expired,
		RP_QUEUE_COUNTER_ends_unheard, RP_QUEUE_COUNTER_session_words,
		RP_QUEUE_COUNTER_refused_exists, RP_QUEUE_COUNTER_refused_deadline,
		/* Nobody stays for 30 s here, and nothing is kept from a node: see apart_test.c. */
		RP_QUEUE_COUNTER_pins, RP_QUEUE_COUNTER_kept_apart, RP_QUEUE_COUNTER_zones_disagree,
		/* The network here has no streams: see rules_test.c. */
		RP_QUEUE_COUNTER_streams_opened, RP_QUEUE_COUNTER_stream_idle_closes,
		RP_QUEUE_COUNTER_sent_unary, RP_QUEUE_COUNTER_fallbacks_link_down,
		RP_QUEUE_COUNTER_fallbacks_stall, RP_QUEUE_COUNTER_fallbacks_refused,
		RP_QUEUE_COUNTER_fallbacks_no_stream};

	if (seed_count < 6)
		return;
	for (unsigned i = 0; i < RP_QUEUE_COUNTER_COUNT; i++) {
		bool expected = true;

		for (unsigned k = 0; k < RP_ARRAY_SIZE(never); k++)
			expected &= never[k] != i;
		print_message("%s %llu\n", rp_queue_counter_name(i),
			(unsigned long long)((uint64_t *)&sum)[i]);
		if (expected && !((uint64_t *)&sum)[i])
			fail_msg("%s: never", rp_queue_counter_name(i));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_two_consumers),
		cmocka_unit_test(test_claims_at_once),
		cmocka_unit_test(test_consumers_come_and_go),
		cmocka_unit_test(test_long_cuts),
		cmocka_unit_test(test_nodes_die),
		cmocka_unit_test(test_nodes_stop),
		cmocka_unit_test(test_nodes_stop_in_order),
		cmocka_unit_test(test_nodes_drain),
		cmocka_unit_test(test_nodes_drain_in_order),
		cmocka_unit_test(test_few_buffers),
		cmocka_unit_test(test_few_buffers_and_stops),
		cmocka_unit_test(test_everything_happened),
	};

	if (argc > 1)
		seed_first = strtoull(argv[1], NULL, 10);
	if (argc > 1)
		seed_count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
