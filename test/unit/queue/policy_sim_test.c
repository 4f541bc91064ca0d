/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random runs under policies: `queue_policy_sim_test [first seed [how many]]`. Queues move between
 * nodes, consumers come, go, reject and acknowledge. What must hold in each:
 *
 *   - no message is shown before its delay, nor, the first time, long after its end
 *   - what was acknowledged is no dead letter
 *   - every put that was taken, and not for a tail seen before, is at the end in one place:
 *     acknowledged, among the dead letters, or dropped and counted
 *   - no message is shown more often than deliveries_max
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rules.h"

#define DEAD "dead"
#define PUTS 300
#define NODES 3
/* Of what a client has, over the link and the server's buffer. */
#define SLACK (30 * MS)

static uint64_t seed_first = 1, seed_count = 40;

struct put {
	unsigned token;
	uint64_t at_ns;
	bool again; /**< its tail was used before */
	unsigned shown, dead;
	bool acked;
};

struct run {
	struct cluster *c;
	struct rp_rand rand;
	struct rp_queue_policy policy;
	struct put puts[PUTS];
	unsigned put_count;
	struct client *members[4], *dead;
	unsigned seen[CLIENTS_MAX], dead_seen;
	unsigned acks[16384], acked[16384], ack_count;
	unsigned uuid;
	int drained; /**< node; -1 = none */
};

static uint32_t below(struct run *r, uint32_t n)
{
	return (uint32_t)rp_rand_below(&r->rand, n);
}

static bool chance(struct run *r, uint32_t percent)
{
	return below(r, 100) < percent;
}

static struct rp_queue_policy random_policy(struct run *r)
{
	struct rp_queue_policy p = {.match = Q};

	if (chance(r, 60))
		p.dead_letter = DEAD;
	if (chance(r, 60))
		p.ttl_ns = (40 + below(r, 300)) * MS;
	if (chance(r, 40))
		p.delay_ns = (5 + below(r, 100)) * MS;
	if (chance(r, 40))
		p.dedup_ns = (50 + below(r, 2000)) * MS;
	if (chance(r, 50))
		p.deliveries_max = 1 + below(r, 4);
	if (chance(r, 30)) {
		p.depth_max = 5 + below(r, 20);
		p.overflow = RP_QUEUE_OVERFLOW_DROP_OLDEST;
	}
	return p;
}

static void random_put(struct run *r)
{
	struct put *p = &r->puts[r->put_count];
	unsigned tail = r->put_count;
	char text[16];

	if (r->put_count == PUTS)
		return;
	p->again = r->policy.dedup_ns && tail > 0 && chance(r, 30);
	if (p->again)
		tail = below(r, tail);
	snprintf(text, sizeof(text), "t%u", tail);
	p->at_ns = r->c->now_ns;
	p->token = put(r->c, below(r, NODES), Q, text, r->put_count++);
}

static void random_member(struct run *r)
{
	struct client **m = &r->members[below(r, 4)];

	if (*m && ((*m)->ended || !(*m)->open)) {
		*m = NULL;
	} else if (*m) {
		close_consumer(r->c, *m, RP_QUEUE_CLOSE_ENDED);
		*m = NULL;
	} else if (chance(r, 70)) {
		unsigned node = below(r, NODES);

		if ((int)node != r->drained)
			*m = open_consumer(r->c, node, Q, ++r->uuid % 200, 0, ";prefetch=5");
	}
}

static void look_at_event(struct run *r, struct client *cl, const struct event *e)
{
	struct put *p = &r->puts[e->value];
	unsigned uuid;

	if (e->deleted)
		return;
	p->shown++;
	assert_true(e->at_ns >= p->at_ns + (p->shown == 1 ? r->policy.delay_ns : 0));
	if (p->shown == 1 && r->policy.ttl_ns)
		assert_true(e->at_ns <= p->at_ns + r->policy.ttl_ns + SLACK);
	if (r->policy.deliveries_max)
		assert_true(p->shown <= r->policy.deliveries_max);
	memcpy(&uuid, cl->uuid, sizeof(uuid));
	if (chance(r, 50) || r->ack_count == RP_ARRAY_SIZE(r->acks))
		return;
	if (chance(r, 30)) {
		reject(r->c, cl->node, Q, uuid, e->idx);
		return;
	}
	r->acked[r->ack_count] = (unsigned)e->value;
	r->acks[r->ack_count++] = ack(r->c, cl->node, Q, uuid, e->idx, 0);
}

static void look(struct run *r)
{
	struct cluster *c = r->c;

	for (unsigned i = 0; i < c->client_count; i++) {
		struct client *cl = &c->clients[i];

		if (cl == r->dead)
			continue;
		while (r->seen[i] < cl->event_count)
			look_at_event(r, cl, &cl->events[r->seen[i]++]);
	}
	for (; r->dead_seen < r->dead->event_count; r->dead_seen++) {
		const struct event *e = &r->dead->events[r->dead_seen];

		r->puts[e->value].dead += !e->deleted;
		ack(c, r->dead->node, DEAD, 250, e->idx, 0);
	}
}

static void random_drain(struct run *r)
{
	if (r->drained >= 0) {
		rp_queue_drain(r->c->nodes[r->drained].qs, false, r->c->now_ns);
		r->drained = -1;
		return;
	}
	/* The last one has the consumer of the dead letters. */
	r->drained = (int)below(r, NODES - 1);
	rp_queue_drain(r->c->nodes[r->drained].qs, true, r->c->now_ns);
}

static uint64_t total(struct run *r, enum rp_queue_counter which)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < NODES; i++) {
		struct rp_queue_counters k = totals_of(r->c, i);

		sum += ((const uint64_t *)&k)[which];
	}
	return sum;
}

/* Everything comes to its end: what waits is shown, and acknowledged. */
static void finish(struct run *r)
{
	struct client *last;

	if (r->drained >= 0)
		random_drain(r);
	for (unsigned i = 0; i < 4; i++) {
		if (r->members[i] && r->members[i]->open && !r->members[i]->ended)
			close_consumer(r->c, r->members[i], RP_QUEUE_CLOSE_ENDED);
	}
	cluster_run(r->c, 1400 * MS);
	look(r);
	last = open_consumer(r->c, 1, Q, 240, 0, ";prefetch=1000");
	for (unsigned i = 0; i < 12; i++) {
		cluster_run(r->c, 100 * MS);
		for (unsigned k = r->seen[last - r->c->clients]; k < last->event_count; k++) {
			r->acked[r->ack_count] = (unsigned)last->events[k].value;
			r->acks[r->ack_count++] = ack(r->c, 1, Q, 240, last->events[k].idx, 0);
		}
		r->seen[last - r->c->clients] = last->event_count;
		look(r);
		cluster_audit(r->c);
	}
}

static void judge(struct run *r)
{
	uint64_t dropped = 0, missing = 0, dead = 0;

	for (unsigned i = 0; i < r->ack_count; i++) {
		const struct answer *a = answer_of(r->c, r->acks[i]);

		assert_true(a->done);
		if (a->deleted)
			r->puts[r->acked[i]].acked = true;
	}
	for (unsigned i = 0; i < r->put_count; i++) {
		const struct put *p = &r->puts[i];
		const struct answer *a = answer_of(r->c, p->token);

		assert_true(a->done);
		assert_true(p->dead <= 1);
		assert_false(p->acked && p->dead);
		if (a->status != RP_Q_OK)
			assert_true(p->shown == 0 && p->dead == 0);
		else
			missing += !p->acked && !p->dead;
		dead += p->dead;
	}
	dropped = total(r, RP_QUEUE_COUNTER_expired) + total(r, RP_QUEUE_COUNTER_overflowed) +
		  total(r, RP_QUEUE_COUNTER_exhausted) + total(r, RP_QUEUE_COUNTER_rejected) -
		  total(r, RP_QUEUE_COUNTER_dead_letters);
	assert_int_equal(missing, dropped + total(r, RP_QUEUE_COUNTER_deduplicated));
	assert_int_equal(dead, total(r, RP_QUEUE_COUNTER_dead_letters));
	for (unsigned i = 0; i < NODES; i++)
		assert_int_equal(info_of(r->c, i, Q).depth, 0);
}

static void one(uint64_t seed)
{
	struct run *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	print_message("seed %llu\n", (unsigned long long)seed);
	r->c = cluster_new(NODES, seed, NULL);
	r->rand.state = seed * 7919 + 1;
	r->policy = random_policy(r);
	r->drained = -1;
	r->c->delay_max_ns = 2 * MS;
	for (unsigned i = 0; i < NODES; i++)
		rp_queue_set_policies(r->c->nodes[i].qs, &r->policy, 1);
	r->dead = open_consumer(r->c, NODES - 1, DEAD, 250, 0, ";prefetch=1000");
	cluster_run(r->c, 20 * MS);
	for (unsigned i = 0; i < 2000; i++) {
		if (chance(r, 25))
			random_put(r);
		if (chance(r, 3))
			random_member(r);
		if (chance(r, 1))
			random_drain(r);
		r->c->letters_blocked = chance(r, 20);
		cluster_run(r->c, MS);
		look(r);
		if (i % 64 == 0)
			cluster_audit(r->c);
	}
	r->c->letters_blocked = false;
	finish(r);
	judge(r);
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
	};

	if (argc > 1)
		seed_first = strtoull(argv[1], NULL, 10);
	if (argc > 1)
		seed_count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
