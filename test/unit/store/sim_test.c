/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The bus in memory under a clock of the test's, from seeds: messages that expire before each step,
 * floods of one queue, readers that lag. sim_test [seeds [first]].
 *
 * What must hold: each (id, destination) that was taken comes once, or its time was over and its
 * sender was told; an answer comes once, in order; while both queues have some, neither waits for
 * more than a few turns of the other; get and run know only what is not over; local messages come
 * once, in order.
 */

#include "rig.h"

#include <stdio.h>
#include <stdlib.h>

#include <base/rand.h>

#define STEPS 600
#define MESSAGES 400
/** Those that were taken ahead of their turn, and one. */
#define LAG_MAX 20

static unsigned seeds = 50;
static uint64_t first_seed = 1;

struct sim {
	struct rig r;
	struct rp_rand rand;
	unsigned forwarded, expected, forwards, replies_sent, replies, expired_calls;
	unsigned locals_sent, locals, locals_wanted;
	unsigned since_forward, since_reply; /* turns of the other while there were some */
	unsigned waiting;		     /* for queued */
	uint8_t seen[MESSAGES][4];
	uint64_t end_ms[MESSAGES];
	uint64_t dropped;
	uint64_t turn_ms; /* the clock when the step began */
};

static void on_plain(void *ctx, const struct rp_store_result *r)
{
	enum rp_store_status *status = ctx;

	*status = r->status;
}

static void take_forward(struct sim *s, const struct rp_store_result *r)
{
	unsigned n = (unsigned)atoi(r->message->id + 1), d = r->message->destinations[0];

	assert_true(n < MESSAGES && d < 4);
	assert_int_equal(s->seen[n][d], 1); /* was forwarded, and did not come before */
	/* Its time was not over when its turn came, which was in this step. */
	assert_true(s->turn_ms < s->end_ms[n]);
	s->seen[n][d] = 2;
	s->forwards++;
	s->since_forward = 0;
	s->since_reply++;
}

static void take_reply(struct sim *s, const struct rp_store_result *r)
{
	assert_int_equal(atoi(r->message->id + 1), s->replies);
	s->replies++;
	s->since_reply = 0;
	s->since_forward++;
}

static void on_queued(void *ctx, const struct rp_store_result *r)
{
	struct sim *s = ctx;

	assert_int_equal(r->status, RP_STORE_OK);
	s->waiting--;
	if (r->kind == RP_STORE_KIND_FORWARD)
		take_forward(s, r);
	else
		take_reply(s, r);
}

static uint64_t length(struct sim *s, const char *queue)
{
	return rig_length(&s->r, queue);
}

static void forward(struct sim *s)
{
	uint64_t ttl = 1 + rp_rand_below(&s->rand, 3) * rp_rand_below(&s->rand, 400);
	struct rp_bus_message *m;
	unsigned n = s->forwarded, count = 1 + (unsigned)rp_rand_below(&s->rand, 3);
	char id[16];
	enum rp_store_status status;

	if (n == MESSAGES)
		return;
	snprintf(id, sizeof(id), "m%u", n);
	m = rig_message(&s->r, id, ttl);
	s->end_ms[n] = s->r.wall_ms + ttl;
	free(m->destinations);
	m->destinations = calloc(count, sizeof(uint32_t));
	m->destination_count = count;
	for (unsigned i = 0; i < count; i++)
		m->destinations[i] = i;
	/* Its time may be over between its making and this step. */
	if (rp_rand_below(&s->rand, 8) == 0)
		s->r.wall_ms += ttl;
	/* It may come before the call is answered. */
	for (unsigned i = 0; s->r.wall_ms < s->end_ms[n] && i < count; i++)
		s->seen[n][i] = 1;
	status = rig_forward(&s->r, m, NULL);
	if (s->r.wall_ms < s->end_ms[n]) {
		assert_int_equal(status, RP_STORE_OK);
		s->expected += count;
	} else {
		assert_int_equal(status, RP_STORE_EXPIRED);
		s->expired_calls++;
	}
	s->forwarded++;
	rp_bus_message_free(m);
}

static void reply(struct sim *s)
{
	char json[64];

	snprintf(json, sizeof(json), "{\"uid\":\"r%u\",\"cmd\":\"a\"}", s->replies_sent++);
	assert_int_equal(rig_push(&s->r, RP_STORE_REPLY, json, 0), RP_STORE_OK);
}

static void run(struct sim *s)
{
	uint64_t ttl = 1 + rp_rand_below(&s->rand, 400);
	struct rp_bus_message *m = rig_message(&s->r, "run", ttl);
	bool over = rp_rand_below(&s->rand, 4) == 0;
	enum rp_store_status status;

	if (over)
		s->r.wall_ms += ttl;
	rp_store_run(s->r.s, m, on_plain, &status);
	rig_pass(&s->r, 0);
	assert_int_equal(status, over ? RP_STORE_EXPIRED : RP_STORE_OK);
	s->expired_calls += over;
	assert_true(length(s, "msgbus.calc.add") <= s->r.config.commands_max);
	rp_bus_message_free(m);
}

/* Of what was ever forwarded: it is there for as long as it lives, whether it was taken or not. */
static void get(struct sim *s)
{
	struct outcome o = {0};
	bool lives;
	unsigned n;
	char id[16];

	if (s->forwarded == 0)
		return;
	n = (unsigned)rp_rand_below(&s->rand, s->forwarded);
	snprintf(id, sizeof(id), "m%u", n);
	lives = s->r.wall_ms < s->end_ms[n];
	assert_int_equal(rig_get(&s->r, id, &o), lives ? RP_STORE_OK : RP_STORE_NONE);
	if (lives)
		assert_string_equal(o.message->id, id);
	outcome_clear(&o);
}

static void on_local(void *ctx, const struct rp_store_result *r)
{
	struct sim *s = ctx;

	assert_int_equal(r->status, RP_STORE_OK);
	assert_int_equal(atoi(r->message->id + 1), s->locals);
	s->locals++;
	s->locals_wanted--;
}

static void local(struct sim *s)
{
	char json[64];

	if (rp_rand_below(&s->rand, 2) == 0) {
		snprintf(json, sizeof(json), "{\"uid\":\"l%u\",\"cmd\":\"a\"}", s->locals_sent++);
		assert_int_equal(rig_push(&s->r, RP_STORE_LOCAL, json, 0), RP_STORE_OK);
	} else if (s->locals_wanted < 8) {
		s->locals_wanted++;
		rp_store_local(s->r.s, on_local, s);
	}
}

static void step(struct sim *s, unsigned flood)
{
	uint64_t what = rp_rand_below(&s->rand, 14);

	s->turn_ms = s->r.wall_ms;
	if (what < 2 || (flood == 1 && what < 6))
		forward(s);
	else if (what < 4 || (flood == 2 && what < 6))
		reply(s);
	else if (what == 6)
		run(s);
	else if (what == 7)
		s->r.wall_ms += rp_rand_below(&s->rand, 200);
	else if (what == 12)
		get(s);
	else if (what == 13)
		local(s);
	else if (s->waiting < 8) {
		s->waiting++;
		rp_store_queued(s->r.s, on_queued, s);
	}
	if (rp_rand_below(&s->rand, 3) == 0)
		rig_pass(&s->r, (unsigned)rp_rand_below(&s->rand, 3));
	/* Only where there are some can they be made to wait; one whose time was over had its turn.
	 */
	if (length(s, RP_STORE_FORWARD) == 0 ||
		rp_store_counters(s->r.s)->forwards_expired_dropped != s->dropped)
		s->since_forward = 0;
	s->dropped = rp_store_counters(s->r.s)->forwards_expired_dropped;
	if (length(s, RP_STORE_REPLY) == 0)
		s->since_reply = 0;
	assert_true(s->since_forward <= LAG_MAX && s->since_reply <= LAG_MAX);
}

/* What is left comes, or is over. */
static void finish(struct sim *s)
{
	const struct rp_store_counters *c = rp_store_counters(s->r.s);

	s->turn_ms = s->r.wall_ms;
	for (unsigned i = 0; i < 20000; i++) {
		if (s->forwards + c->forwards_expired_dropped == s->expected &&
			s->replies == s->replies_sent && s->locals == s->locals_sent)
			break;
		if (s->locals_wanted < 8 && s->locals < s->locals_sent) {
			s->locals_wanted++;
			rp_store_local(s->r.s, on_local, s);
		}
		if (s->waiting < 8) {
			s->waiting++;
			rp_store_queued(s->r.s, on_queued, s);
		}
		rp_loop_run_once(s->r.loop, 0);
	}
	assert_int_equal(s->forwards + c->forwards_expired_dropped, s->expected);
	assert_int_equal(s->replies, s->replies_sent);
	assert_int_equal(s->locals, s->locals_sent);
	assert_int_equal(c->refused_expired, s->expired_calls);
	for (unsigned i = 0; i < 50 && c->senders_told < c->forwards_expired_dropped; i++)
		rp_loop_run_once(s->r.loop, 0);
	assert_int_equal(length(s, "answers"), c->senders_told);
	/* A sender is forgotten a minute after its message's end. */
	assert_true(c->senders_told <= c->forwards_expired_dropped);
	assert_int_equal(c->malformed_dropped, 0);
}

static void a_seed(uint64_t seed)
{
	struct sim *s = calloc(1, sizeof(*s));

	rig_create(&s->r, false);
	s->rand.state = seed;
	for (unsigned i = 0; i < STEPS; i++)
		step(s, (unsigned)(seed + i / 100) % 3);
	finish(s);
	rig_destroy(&s->r);
	free(s);
}

static void all_seeds(void **state)
{
	for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
		print_message("seed %llu\n", (unsigned long long)seed);
		a_seed(seed);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_seeds)};

	if (argc > 1)
		seeds = (unsigned)atoi(argv[1]);
	if (argc > 2)
		first_seed = strtoull(argv[2], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
