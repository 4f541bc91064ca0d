/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Three threads on tiny rings, full nearly all the time: the control end and two shards. Each asks,
 * answers and sends one-way messages as fast as tokens allow, and sleeps without a time-out when it
 * has nothing to do; a lost wake-up therefore hangs the test, and the watchdog fails it.
 */

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>

#include <base/assert.h>
#include <base/rand.h>
#include <xcore/xcore.h>
#include <xcore/xcore_msg.h>

#define PARTIES 3
static const unsigned party_id[PARTIES] = {RP_XCORE_CONTROL, 0, 1};

struct lane {
	uint64_t sent[2], got[2]; /**< one-way, by class */
	uint64_t asked, answered, answers_got, asks_got;
	uint64_t owed[64]; /**< tokens of asks received and not answered yet */
	unsigned owed_count;
};

struct party {
	struct rp_xcore *x;
	unsigned index;
	uint64_t per_lane, seed;
	struct lane lane[PARTIES];
};

enum { KIND_NORMAL, KIND_RESERVE, KIND_ASK, KIND_ANSWER };

static bool between_shards(unsigned a, unsigned b)
{
	return a != 0 && b != 0;
}

static void party_receive(struct party *p, unsigned other, const struct rp_xmsg *m)
{
	struct lane *l = &p->lane[other];

	switch (m->type) {
	case KIND_NORMAL:
	case KIND_RESERVE:
		RP_ASSERT(m->token == l->got[m->type]);
		l->got[m->type]++;
		break;
	case KIND_ASK:
		l->asks_got++;
		RP_ASSERT(l->owed_count < RP_ARRAY_SIZE(l->owed));
		l->owed[l->owed_count++] = m->token;
		break;
	case KIND_ANSWER:
		RP_ASSERT(m->token < l->asked);
		l->answers_got++;
		break;
	default:
		RP_ASSERT(false);
	}
}

static bool party_send(struct party *p, struct rp_xcore_end *e, unsigned other, unsigned kind,
	uint64_t token, unsigned how)
{
	struct rp_xmsg m = {.type = (uint8_t)kind, .token = token, .node = p->index};

	return rp_xcore_send(e, party_id[other], &m, how) == 0;
}

/** True when something was sent. */
static bool party_work(
	struct party *p, struct rp_xcore_end *e, unsigned other, struct rp_rand *rand)
{
	struct lane *l = &p->lane[other];
	bool shards = between_shards(p->index, other), moved = false;

	for (unsigned k = 0; k < 2; k++) {
		unsigned how = shards ? RP_XCORE_NORMAL : k;

		while (l->sent[k] < p->per_lane && rp_rand_below(rand, 8) != 0 &&
			party_send(p, e, other, k, l->sent[k], how)) {
			l->sent[k]++;
			moved = true;
		}
	}
	if (shards)
		return moved;
	while (l->asked < p->per_lane && rp_rand_below(rand, 4) != 0) {
		unsigned class = rp_rand_below(rand, 8) ? RP_XCORE_NORMAL : RP_XCORE_RESERVE;

		if (!party_send(p, e, other, KIND_ASK, l->asked, class | RP_XCORE_ASKS))
			break;
		l->asked++;
		moved = true;
	}
	while (l->owed_count > 0 && rp_rand_below(rand, 4) != 0) {
		RP_ASSERT(party_send(
			p, e, other, KIND_ANSWER, l->owed[--l->owed_count], RP_XCORE_ANSWER));
		l->answered++;
		moved = true;
	}
	return moved;
}

static bool lane_done(const struct party *p, unsigned other)
{
	const struct lane *l = &p->lane[other];
	bool shards = between_shards(p->index, other);

	for (unsigned k = 0; k < 2; k++)
		if (l->sent[k] < p->per_lane || l->got[k] < p->per_lane)
			return false;
	return shards || (l->answers_got == p->per_lane && l->answered == p->per_lane);
}

/** Is there something that this party would do without any event? */
static bool lane_busy(const struct party *p, struct rp_xcore_end *e, unsigned other)
{
	const struct lane *l = &p->lane[other];
	unsigned to = party_id[other];
	bool shards = between_shards(p->index, other);

	for (unsigned k = 0; k < 2; k++)
		if (l->sent[k] < p->per_lane &&
			rp_xcore_tokens(e, to, shards ? RP_XCORE_NORMAL : k) > 0)
			return true;
	if (shards)
		return false;
	return l->owed_count > 0 ||
	       (l->asked < p->per_lane &&
		       (rp_xcore_tokens(e, to, RP_XCORE_NORMAL | RP_XCORE_ASKS) > 0 ||
			       rp_xcore_tokens(e, to, RP_XCORE_RESERVE | RP_XCORE_ASKS) > 0));
}

static void *party_run(void *arg)
{
	struct party *p = arg;
	struct rp_xcore_end *e = rp_xcore_end(p->x, party_id[p->index]);
	struct rp_rand rand = {.state = p->seed + p->index};
	cpu_set_t all;

	/* EAL has bound the main thread to one core, and threads inherit that. */
	memset(&all, 0xff, sizeof(all));
	pthread_setaffinity_np(pthread_self(), sizeof(all), &all);
	for (;;) {
		struct rp_xmsg m[8];
		bool done = true, busy = false;

		for (unsigned other = 0; other < PARTIES; other++) {
			unsigned n;

			if (other == p->index)
				continue;
			n = rp_xcore_recv(
				e, party_id[other], m, 1 + (unsigned)rp_rand_below(&rand, 8));
			for (unsigned i = 0; i < n; i++)
				party_receive(p, other, &m[i]);
			if (party_work(p, e, other, &rand) || n > 0)
				busy = true;
			done = done && lane_done(p, other);
		}
		if (rp_xcore_flush(e) == 0 && done)
			return NULL;
		for (unsigned other = 0; other < PARTIES && !busy; other++)
			busy = other != p->index && lane_busy(p, e, other);
		if (!busy)
			rp_xcore_sleep(e, RP_NEVER);
	}
}

static void run(unsigned control_slots, uint64_t per_lane, uint64_t seed)
{
	struct rp_xcore_config c = {
		.shard_count = 2,
		.control_socket = -1,
		.shard_socket = {-1, -1},
		.control_slots = control_slots,
		.control_reserve_slots = control_slots / 4,
		.control_answer_slots = control_slots / 2,
		.control_backlog_slots = 2,
		.shard_slots = 4,
		.shard_backlog_slots = 3,
	};
	struct rp_xcore *x = rp_xcore_create(&c);
	struct party p[PARTIES];
	pthread_t t[PARTIES];
	struct rp_xcore_stats total = {0};

	assert_non_null(x);
	for (unsigned i = 0; i < PARTIES; i++) {
		memset(&p[i], 0, sizeof(p[i]));
		p[i].x = x;
		p[i].index = i;
		p[i].per_lane = per_lane;
		p[i].seed = seed;
		assert_int_equal(pthread_create(&t[i], NULL, party_run, &p[i]), 0);
	}
	for (unsigned i = 0; i < PARTIES; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	for (unsigned i = 0; i < PARTIES; i++) {
		struct rp_xcore_stats s;

		rp_xcore_get_stats(rp_xcore_end(x, party_id[i]), &s);
		total.sent += s.sent;
		total.received += s.received;
		total.no_token += s.no_token;
		total.rings += s.rings;
		total.sleeps += s.sleeps;
		total.backlogged += s.backlogged;
	}
	/* Four control lanes with four kinds, two between shards with two. */
	assert_int_equal(total.sent, per_lane * (4 * 4 + 2 * 2));
	assert_int_equal(total.received, total.sent);
	assert_true(total.no_token > 0);
	assert_true(total.backlogged > 0);
	assert_true(total.sleeps > 0 && total.rings > 0);
	printf("slots %u: %llu messages, %llu without token, %llu sleeps, %llu rings\n",
		control_slots, (unsigned long long)total.sent, (unsigned long long)total.no_token,
		(unsigned long long)total.sleeps, (unsigned long long)total.rings);
	rp_xcore_destroy(x);
}

static uint64_t seed_from_args = 1;

static void no_message_and_no_wakeup_is_lost(void **state)
{
	(void)state;
	printf("seed %llu\n", (unsigned long long)seed_from_args);
	run(4, 20000, seed_from_args);
	run(8, 20000, seed_from_args + 10);
	run(64, 40000, seed_from_args + 20);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_message_and_no_wakeup_is_lost),
	};
	char *eal[] = {"xcore_stress_test", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "3", NULL};

	if (argc > 1)
		seed_from_args = strtoull(argv[1], NULL, 0);
	if (rte_eal_init((int)RP_ARRAY_SIZE(eal) - 1, eal) < 0)
		return 1;
	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
