/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <rte_eal.h>

#include <xcore/xcore.h>
#include <xcore/xcore_msg.h>

/* n = 10, r = 2, a = 8 (of which NORMAL asks may hold 7). */
static const struct rp_xcore_config small = {
	.shard_count = 2,
	.control_socket = -1,
	.shard_socket = {-1, -1},
	.control_slots = 20,
	.control_reserve_slots = 2,
	.control_answer_slots = 8,
	.control_backlog_slots = 3,
	.shard_slots = 4,
	.shard_backlog_slots = 3,
};

static struct rp_xmsg message(uint64_t token)
{
	return (struct rp_xmsg){.token = token, .idx = ~token};
}

static int setup(void **state)
{
	*state = rp_xcore_create(&small);
	assert_non_null(*state);
	return 0;
}

static int teardown(void **state)
{
	rp_xcore_destroy(*state);
	return 0;
}

static int send_token(struct rp_xcore_end *e, unsigned to, uint64_t token, unsigned how)
{
	struct rp_xmsg m = message(token);

	return rp_xcore_send(e, to, &m, how);
}

static void expect(struct rp_xcore_end *e, unsigned from, uint64_t token)
{
	struct rp_xmsg m;

	assert_int_equal(rp_xcore_recv(e, from, &m, 1), 1);
	assert_int_equal(m.token, token);
	assert_int_equal(m.idx, ~token);
}

static void classes_have_their_slots(void **state)
{
	struct rp_xcore_end *c = rp_xcore_end(*state, RP_XCORE_CONTROL);
	struct rp_xcore_end *s = rp_xcore_end(*state, 0);
	struct rp_xcore_stats stats;

	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_NORMAL), 10);
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_NORMAL | RP_XCORE_ASKS), 7);
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_RESERVE | RP_XCORE_ASKS), 8);
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_RESERVE), 12 + 3);
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_ANSWER), 0);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(send_token(c, 0, i, RP_XCORE_NORMAL), 0);
	assert_int_equal(send_token(c, 0, 99, RP_XCORE_NORMAL), -EAGAIN);
	/* Two slots of the reserve, three of the backlog. */
	for (uint64_t i = 10; i < 15; i++)
		assert_int_equal(send_token(c, 0, i, RP_XCORE_RESERVE), 0);
	assert_int_equal(send_token(c, 0, 99, RP_XCORE_RESERVE), -EAGAIN);
	rp_xcore_get_stats(c, &stats);
	assert_int_equal(stats.sent, 12);
	assert_int_equal(stats.backlogged, 3);
	assert_int_equal(stats.no_token, 2);
	/* A normal one must not overtake the backlog. */
	expect(s, RP_XCORE_CONTROL, 0);
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_NORMAL), 0);
	assert_int_equal(send_token(c, 0, 15, RP_XCORE_NORMAL), -EAGAIN);
	for (uint64_t i = 1; i < 12; i++)
		expect(s, RP_XCORE_CONTROL, i);
	assert_int_equal(rp_xcore_flush(c), 0);
	assert_int_equal(send_token(c, 0, 15, RP_XCORE_NORMAL), 0);
	for (uint64_t i = 12; i < 16; i++)
		expect(s, RP_XCORE_CONTROL, i);
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_NORMAL), 10);
}

/** Both sides ask all they may and fill both rings; then every answer still fits. */
static void answers_always_fit(void **state)
{
	struct rp_xcore_end *e[2] = {
		rp_xcore_end(*state, RP_XCORE_CONTROL), rp_xcore_end(*state, 1)};
	unsigned other[2] = {1, RP_XCORE_CONTROL};

	for (unsigned round = 0; round < 50; round++) {
		unsigned asks[2] = {0, 0}, filled[2] = {0, 0}, answers[2] = {0, 0};
		struct rp_xmsg got[32];

		for (unsigned k = 0; k < 2; k++) {
			while (send_token(e[k], other[k], asks[k],
				       RP_XCORE_NORMAL | RP_XCORE_ASKS) == 0)
				asks[k]++;
			assert_int_equal(asks[k], 7);
			assert_int_equal(send_token(e[k], other[k], asks[k]++,
						 RP_XCORE_RESERVE | RP_XCORE_ASKS),
				0);
			assert_int_equal(
				send_token(e[k], other[k], 9, RP_XCORE_RESERVE | RP_XCORE_ASKS),
				-EAGAIN);
		}
		/* Each takes the asks out, and the rings are filled up again by others. */
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(rp_xcore_recv(e[k], other[k], got, 32), 8);
		for (unsigned k = 0; k < 2; k++) {
			while (send_token(e[k], other[k], 0, RP_XCORE_NORMAL) == 0)
				filled[k]++;
			while (send_token(e[k], other[k], 0, RP_XCORE_RESERVE) == 0)
				filled[k]++;
			assert_int_equal(filled[k], 12 + 3);
			assert_int_equal(rp_xcore_tokens(e[k], other[k], RP_XCORE_ANSWER), 8);
		}
		for (unsigned k = 0; k < 2; k++)
			for (; answers[k] < 8; answers[k]++)
				assert_int_equal(
					send_token(e[k], other[k], 100, RP_XCORE_ANSWER), 0);
		for (unsigned k = 0; k < 2; k++) {
			assert_int_equal(rp_xcore_recv(e[k], other[k], got, 32), 20);
			assert_int_equal(got[19].token, 100);
		}
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(rp_xcore_flush(e[k]), 0);
		for (unsigned k = 0; k < 2; k++)
			assert_int_equal(rp_xcore_recv(e[k], other[k], got, 32), 3);
	}
}

static void ask_budget_returns_with_the_answer(void **state)
{
	struct rp_xcore_end *c = rp_xcore_end(*state, RP_XCORE_CONTROL);
	struct rp_xcore_end *s = rp_xcore_end(*state, 0);

	for (uint64_t i = 0; i < 7; i++)
		assert_int_equal(send_token(c, 0, i, RP_XCORE_NORMAL | RP_XCORE_ASKS), 0);
	for (uint64_t i = 0; i < 7; i++)
		expect(s, RP_XCORE_CONTROL, i);
	/* Taking the ask out gives its slot back, not its answer slot. */
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_NORMAL), 10);
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_NORMAL | RP_XCORE_ASKS), 0);
	assert_int_equal(send_token(s, RP_XCORE_CONTROL, 70, RP_XCORE_ANSWER), 0);
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_NORMAL | RP_XCORE_ASKS), 0);
	expect(c, 0, 70);
	assert_int_equal(rp_xcore_tokens(c, 0, RP_XCORE_NORMAL | RP_XCORE_ASKS), 1);
}

static void full_shard_ring_waits_in_the_backlog(void **state)
{
	struct rp_xcore_end *a = rp_xcore_end(*state, 0), *b = rp_xcore_end(*state, 1);
	struct rp_xcore_stats stats;
	uint64_t got = 0;

	for (uint64_t i = 0; i < 7; i++)
		assert_int_equal(send_token(a, 1, i, RP_XCORE_NORMAL), 0);
	assert_int_equal(send_token(a, 1, 99, RP_XCORE_NORMAL), -ENOBUFS);
	/* With its output stuck, it goes on draining its input. */
	assert_int_equal(send_token(b, 0, 50, RP_XCORE_NORMAL), 0);
	expect(a, 1, 50);
	assert_int_equal(rp_xcore_flush(a), 3);
	expect(b, 0, got++);
	assert_int_equal(rp_xcore_flush(a), 2);
	assert_int_equal(send_token(a, 1, 7, RP_XCORE_NORMAL), 0);
	for (; got < 8; got++) {
		expect(b, 0, got);
		rp_xcore_flush(a);
	}
	rp_xcore_get_stats(a, &stats);
	assert_int_equal(stats.backlog_full, 1);
	assert_int_equal(stats.backlogged, 4);
	assert_int_equal(stats.sent, 8);
}

static void senders_are_served_in_turn(void **state)
{
	struct rp_xcore_end *s0 = rp_xcore_end(*state, 0), *s1 = rp_xcore_end(*state, 1);
	struct rp_xcore_end *c = rp_xcore_end(*state, RP_XCORE_CONTROL);
	struct rp_xmsg m[4];
	uint8_t from[4];

	for (uint64_t i = 0; i < 4; i++) {
		assert_int_equal(send_token(s1, 0, i, RP_XCORE_NORMAL), 0);
		assert_int_equal(send_token(c, 0, 10 + i, RP_XCORE_NORMAL), 0);
	}
	assert_int_equal(rp_xcore_recv_any(s0, m, from, 3), 3);
	assert_int_equal(from[0], 1);
	assert_int_equal(from[2], 1);
	/* The first sender has one left, yet the other is next. */
	assert_int_equal(rp_xcore_recv_any(s0, m, from, 1), 1);
	assert_int_equal(from[0], RP_XCORE_CONTROL);
	assert_int_equal(m[0].token, 10);
	assert_int_equal(rp_xcore_recv_any(s0, m, from, 4), 4);
	assert_int_equal(from[0], 1);
	assert_int_equal(m[0].token, 3);
	assert_int_equal(from[3], RP_XCORE_CONTROL);
	assert_int_equal(rp_xcore_recv_any(s0, m, from, 4), 0);
}

static bool rung(struct rp_xcore_end *e)
{
	struct pollfd p = {.fd = rp_xcore_fd(e), .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void only_sleepers_are_rung(void **state)
{
	struct rp_xcore_end *c = rp_xcore_end(*state, RP_XCORE_CONTROL);
	struct rp_xcore_end *s = rp_xcore_end(*state, 0);
	struct rp_xmsg m[16];

	assert_int_equal(send_token(s, RP_XCORE_CONTROL, 1, RP_XCORE_NORMAL), 0);
	rp_xcore_flush(s);
	assert_false(rung(c));
	assert_false(rp_xcore_sleep_begin(c));
	expect(c, 0, 1);
	assert_true(rp_xcore_sleep_begin(c));
	assert_int_equal(send_token(s, RP_XCORE_CONTROL, 2, RP_XCORE_NORMAL), 0);
	assert_false(rung(c));
	rp_xcore_flush(s);
	assert_true(rung(c));
	rp_xcore_sleep_end(c);
	assert_false(rung(c));
	expect(c, 0, 2);
	/* Out of tokens: woken when the other side takes something out. */
	while (send_token(s, RP_XCORE_CONTROL, 3, RP_XCORE_NORMAL) == 0)
		;
	assert_true(rp_xcore_sleep_begin(s));
	assert_int_equal(rp_xcore_recv(c, 0, m, 16), 10);
	rp_xcore_flush(c);
	assert_true(rung(s));
	rp_xcore_sleep_end(s);
	assert_int_equal(rp_xcore_tokens(s, RP_XCORE_CONTROL, RP_XCORE_NORMAL), 10);
	/* Told once: a caller that has nothing left to send may sleep. */
	assert_true(rp_xcore_pending(s));
	assert_false(rp_xcore_pending(s));
	assert_true(rp_xcore_sleep_begin(s));
	rp_xcore_wake(*state, 0);
	assert_true(rung(s));
	rp_xcore_sleep_end(s);
	assert_false(rp_xcore_sleep(s, 1000));
}

/** The consumer is between taking something out and telling so when a refusal marks the pair. */
static void a_sleeper_waits_also_when_it_was_told_too_early(void **state)
{
	struct rp_xcore_end *c = rp_xcore_end(*state, RP_XCORE_CONTROL);
	struct rp_xcore_end *s = rp_xcore_end(*state, 0);
	struct rp_xmsg m[4];

	while (send_token(s, RP_XCORE_CONTROL, 3, RP_XCORE_NORMAL) == 0)
		;
	assert_int_equal(rp_xcore_recv(c, 0, m, 2), 2);
	while (send_token(s, RP_XCORE_CONTROL, 3, RP_XCORE_NORMAL) == 0)
		;
	rp_xcore_flush(c);
	assert_true(rp_xcore_sleep_begin(s));
	assert_false(rung(s));
	assert_int_equal(rp_xcore_recv(c, 0, m, 1), 1);
	rp_xcore_flush(c);
	assert_true(rung(s));
	rp_xcore_sleep_end(s);
	assert_int_equal(rp_xcore_tokens(s, RP_XCORE_CONTROL, RP_XCORE_NORMAL), 1);
}

static void types_have_a_way(void **state)
{
	unsigned asks = 0, answers = 0;

	(void)state;
	for (unsigned t = 0; t < RP_XMSG_TYPE_COUNT; t++) {
		unsigned how = rp_xcore_how_of(t), class = how & RP_XCORE_CLASS_MASK;

		/* What the contract calls class N never uses the reserve, and R never less. */
		if (rp_xmsg_class_of(t) == RP_XMSG_CLASS_N)
			assert_int_equal(class, RP_XCORE_NORMAL);
		else
			assert_int_not_equal(class, RP_XCORE_NORMAL);
		asks += (how & RP_XCORE_ASKS) != 0;
		answers += class == RP_XCORE_ANSWER;
	}
	assert_int_equal(asks, 19);
	assert_int_equal(answers, 7);
}

static void bad_configurations_are_refused(void **state)
{
	struct rp_xcore_config c = small;

	(void)state;
	c.shard_count = 0;
	assert_null(rp_xcore_create(&c));
	assert_int_equal(errno, EINVAL);
	c = small;
	c.shard_count = RP_SHARDS_MAX + 1;
	assert_null(rp_xcore_create(&c));
	c = small;
	c.control_reserve_slots = 12;
	assert_null(rp_xcore_create(&c));
	assert_int_equal(errno, EINVAL);
	rp_xcore_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(classes_have_their_slots, setup, teardown),
		cmocka_unit_test_setup_teardown(answers_always_fit, setup, teardown),
		cmocka_unit_test_setup_teardown(
			ask_budget_returns_with_the_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(
			full_shard_ring_waits_in_the_backlog, setup, teardown),
		cmocka_unit_test_setup_teardown(senders_are_served_in_turn, setup, teardown),
		cmocka_unit_test_setup_teardown(only_sleepers_are_rung, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_sleeper_waits_also_when_it_was_told_too_early, setup, teardown),
		cmocka_unit_test(types_have_a_way),
		cmocka_unit_test(bad_configurations_are_refused),
	};
	char *eal[] = {"xcore_test", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "3", NULL};

	if (rte_eal_init((int)RP_ARRAY_SIZE(eal) - 1, eal) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
