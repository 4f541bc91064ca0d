/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tcp/tcp_priv.h>

#include "sim.h"

/*
 * Congestion control by itself, against the formulas of the RFCs in floating point, and over links
 * with a queue. `tcp_cc_test [seed]`.
 */

static uint64_t base_seed = 1;

#define MSS 1000u
#define MS RP_NS_PER_MS

/* A connection as far as congestion control looks at it. */
static struct tcp_conn *conn_new(const struct tcp_cc_ops *ops, uint32_t cwnd, uint64_t srtt_ns)
{
	struct rp_tcp_stack *s = calloc(1, sizeof(*s));
	struct tcp_conn *c = calloc(1, sizeof(*c));

	s->config.send_buffer_bytes = 1u << 30;
	s->counters = &s->own_counters;
	c->base.transport = &s->transport;
	c->mss = MSS;
	c->cwnd = c->pipe = cwnd;
	c->ssthresh = UINT32_MAX / 2;
	c->srtt_ns = srtt_ns;
	c->rto_ns = 2 * srtt_ns;
	c->cc = ops;
	ops->init(c);
	return c;
}

static void conn_free(struct tcp_conn *c)
{
	free(tcp_stack_of(c));
	free(c);
}

static void congestion(struct tcp_conn *c, enum tcp_congestion why)
{
	c->ssthresh = c->cc->reduce(c, why);
	c->cwnd = why == TCP_CONGESTION_RTO ? MSS : c->ssthresh;
	c->pipe = c->cwnd;
}

/* A window's worth of acknowledgements, two segments each, evenly over a round trip. */
static uint64_t round_trip(struct tcp_conn *c, uint64_t now_ns)
{
	uint32_t acks = RP_MAX(c->cwnd / (2 * MSS), 1u);

	for (uint32_t i = 0; i < acks; i++)
		c->cc->on_ack(c, 2 * MSS, now_ns + c->srtt_ns * (i + 1) / acks);
	c->pipe = c->cwnd;
	return now_ns + c->srtt_ns;
}

static void cube_roots(void **state)
{
	struct rp_rand r = {base_seed};

	for (unsigned i = 0; i < 10000; i++) {
		uint64_t x = rp_rand_u64(&r) >> (1 + i % 62), root = tcp_cubic_root(x);

		assert_true(root * root * root <= x);
		assert_true((root + 1) * (root + 1) * (root + 1) > x);
	}
	assert_int_equal(tcp_cubic_root(0), 0);
	assert_int_equal(tcp_cubic_root(26), 2);
	assert_int_equal(tcp_cubic_root(27), 3);
}

/* RFC 9438 (1), in segments and seconds. */
static double curve(double t, double k, double w_max)
{
	double d = t - k;

	return 0.4 * d * d * d + w_max;
}

static double root_of(double x)
{
	double r = x > 1 ? x : 1;

	for (unsigned i = 0; i < 200; i++)
		r -= (r * r * r - x) / (3 * r * r);
	return r;
}

static double square_root(double x)
{
	double r = x > 1 ? x : 1;

	for (unsigned i = 0; i < 200; i++)
		r = (r + x / r) / 2;
	return r;
}

/* A long path: the window follows the curve, through its plateau and beyond. */
static void cubic_follows_its_curve(void **state)
{
	struct tcp_conn *c = conn_new(&tcp_cc_cubic, 1000 * MSS, 100 * MS);
	uint64_t start_ns = 77 * RP_NS_PER_S, now_ns = start_ns;
	double k = root_of(1000 * 0.3 / 0.4);

	congestion(c, TCP_CONGESTION_LOSS);
	assert_int_equal(c->cwnd, 700 * MSS);
	while (now_ns < start_ns + 20 * RP_NS_PER_S) {
		double t, expected;

		now_ns = round_trip(c, now_ns);
		t = (double)(now_ns - start_ns) / 1e9;
		expected = curve(t, k, 1000);
		if (c->cwnd < expected * 0.97 * MSS ||
			c->cwnd > curve(t + 0.15, k, 1000) * 1.03 * MSS)
			fail_msg("%u bytes after %g s, expected %g", c->cwnd, t, expected * MSS);
	}
	assert_true(c->cwnd > 1500 * MSS); /* convex by now */
	conn_free(c);
}

/* 4.7: a second loss before the window was back where it had been. */
static void cubic_makes_room(void **state)
{
	struct tcp_conn *c = conn_new(&tcp_cc_cubic, 1000 * MSS, 100 * MS);

	congestion(c, TCP_CONGESTION_LOSS);
	assert_int_equal(c->cc_state.cubic.w_max, 1000 * MSS);
	congestion(c, TCP_CONGESTION_LOSS);
	assert_int_equal(c->cc_state.cubic.w_max, 700 * MSS * 17 / 20);
	assert_int_equal(c->cwnd, 490 * MSS);
	conn_free(c);
}

/* 4.3: on a short path it grows as Reno with the same reduction would. */
static void cubic_is_no_slower_than_reno(void **state)
{
	struct tcp_conn *c = conn_new(&tcp_cc_cubic, 100 * MSS, MS / 10);
	uint64_t now_ns = RP_NS_PER_S;
	uint32_t before;

	congestion(c, TCP_CONGESTION_LOSS);
	before = c->cwnd;
	for (unsigned i = 0; i < 20; i++)
		now_ns = round_trip(c, now_ns);
	/* 9/17 of a segment a round trip, up to where it was; then one. */
	assert_in_range(c->cwnd - before, 9 * MSS, 12 * MSS);
	for (unsigned i = 0; i < 60; i++)
		now_ns = round_trip(c, now_ns);
	before = c->cwnd;
	assert_true(before > 100 * MSS);
	for (unsigned i = 0; i < 20; i++)
		now_ns = round_trip(c, now_ns);
	assert_in_range(c->cwnd - before, 18 * MSS, 21 * MSS);
	conn_free(c);
}

/* 4.8: after a timeout, slow start up to ssthresh; from there the convex part. */
static void cubic_after_a_timeout(void **state)
{
	struct tcp_conn *c = conn_new(&tcp_cc_cubic, 400 * MSS, 50 * MS);
	uint64_t now_ns = RP_NS_PER_S;

	congestion(c, TCP_CONGESTION_RTO);
	assert_int_equal(c->ssthresh, 280 * MSS);
	for (unsigned i = 0; i < 8; i++)
		now_ns = round_trip(c, now_ns);
	assert_in_range(c->cwnd, 256 * MSS, 285 * MSS);
	now_ns = round_trip(c, now_ns);
	assert_int_equal(c->cc_state.cubic.k, 0);
	assert_in_range(c->cc_state.cubic.w_max, 279 * MSS, 283 * MSS);
	conn_free(c);
}

/* 5.8: a pause of the sender is no time in which the window could have grown. */
static void cubic_does_not_grow_by_waiting(void **state)
{
	struct tcp_conn *c = conn_new(&tcp_cc_cubic, 1000 * MSS, 50 * MS);
	uint64_t now_ns = RP_NS_PER_S;
	uint32_t before;

	congestion(c, TCP_CONGESTION_LOSS);
	for (unsigned i = 0; i < 10; i++)
		now_ns = round_trip(c, now_ns);
	before = c->cwnd;
	now_ns = round_trip(c, now_ns + 600 * RP_NS_PER_S);
	assert_in_range(c->cwnd, before, before + before / 20);
	conn_free(c);
}

/* 4.9. */
static void cubic_undo(void **state)
{
	struct tcp_conn *c = conn_new(&tcp_cc_cubic, 1000 * MSS, 50 * MS);
	struct tcp_cubic before;
	uint64_t now_ns = RP_NS_PER_S;

	congestion(c, TCP_CONGESTION_LOSS);
	for (unsigned i = 0; i < 30; i++)
		now_ns = round_trip(c, now_ns);
	before = c->cc_state.cubic;
	congestion(c, TCP_CONGESTION_LOSS);
	c->cc->on_undo(c);
	assert_int_equal(c->cc_state.cubic.w_max, before.w_max);
	assert_int_equal(c->cc_state.cubic.k, before.k);
	assert_true(c->cc_state.cubic.epoch_ns == before.epoch_ns);
	conn_free(c);
}

/* 4.3 in bytes: a small window is reduced again before it has grown by a whole segment. */
static void cubic_grows_by_parts(void **state)
{
	struct tcp_conn *c = conn_new(&tcp_cc_cubic, 5 * MSS, 50000);
	uint64_t now_ns = RP_NS_PER_S;
	uint32_t before;

	congestion(c, TCP_CONGESTION_LOSS);
	before = c->cwnd;
	assert_int_equal(before, 5 * MSS * 7 / 10);
	c->cc->on_ack(c, 2 * MSS, now_ns);
	/* 9/17 of a segment for a window. */
	assert_in_range(c->cwnd, before + MSS / 4, before + MSS / 3);
	conn_free(c);
}

/* 4.6: what cannot be used of a window, since it is less than a segment, is no reason to shrink. */
static void cubic_keeps_the_rest_of_a_segment(void **state)
{
	struct tcp_conn *c = conn_new(&tcp_cc_cubic, 5 * MSS, 50000);

	c->cwnd = 5 * MSS + MSS / 2;
	c->pipe = 5 * MSS;
	assert_int_equal(c->cc->reduce(c, TCP_CONGESTION_LOSS), (5 * MSS + MSS / 2) * 7 / 10);
	conn_free(c);
}

static void reno_grows_and_halves(void **state)
{
	struct tcp_conn *c = conn_new(&tcp_cc_reno, 10 * MSS, 50 * MS);
	uint64_t now_ns = RP_NS_PER_S;

	now_ns = round_trip(c, now_ns); /* slow start doubles */
	assert_int_equal(c->cwnd, 20 * MSS);
	congestion(c, TCP_CONGESTION_LOSS);
	assert_int_equal(c->cwnd, 10 * MSS);
	for (unsigned i = 0; i < 10; i++)
		now_ns = round_trip(c, now_ns);
	assert_in_range(c->cwnd, 19 * MSS, 20 * MSS);
	c->cwnd = c->pipe = 3 * MSS;
	congestion(c, TCP_CONGESTION_LOSS);
	assert_int_equal(c->cwnd, 2 * MSS); /* never below */
	conn_free(c);
}

/* RFC 8257 3.3: alpha comes to be the part of the bytes that is marked. */
static void dctcp_estimates_the_marks(void **state)
{
	static const unsigned parts[] = {0, 1, 10, 50, 100};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(parts); i++) {
		struct tcp_conn *c = conn_new(&tcp_cc_dctcp, 100 * MSS, MS);
		uint32_t alpha;

		assert_int_equal(c->cc_state.dctcp.alpha, 65536);
		for (unsigned window = 0; window < 300; window++) {
			c->snd_nxt = c->snd_una + 100 * MSS;
			for (unsigned k = 0; k < 100; k++) {
				c->snd_una += MSS;
				c->cc->on_marks(c, MSS, k * 7 % 100 < parts[i]);
			}
		}
		alpha = c->cc_state.dctcp.alpha;
		assert_in_range(alpha + 400, parts[i] * 655, parts[i] * 656 + 800);
		c->cwnd = 100 * MSS;
		congestion(c, TCP_CONGESTION_ECN);
		assert_in_range(
			c->cwnd, (99.0 - parts[i] / 2.0) * MSS, (100.7 - parts[i] / 2.0) * MSS);
		c->cwnd = c->pipe = 100 * MSS;
		congestion(c, TCP_CONGESTION_LOSS);
		assert_int_equal(c->cwnd, 50 * MSS); /* 3.5 */
		conn_free(c);
	}
}

/* Over links. */

struct flow {
	struct sim *sim;
	struct app a, b;
	uint64_t open_ns;
};

static bool all_received(void *ctx)
{
	struct flow *f = ctx;

	return f->b.received == f->a.to_send;
}

static struct rp_tcp_info info_of(const struct app *a)
{
	struct rp_tcp_info i;

	rp_tcp_conn_info(a->conn, &i);
	return i;
}

static void flow_start(struct flow *f, const struct sim_config *config,
	const struct rp_conn_options *options, uint64_t bytes)
{
	f->sim = sim_new(config);
	app_init(&f->a, f->sim, 0, 11, 22);
	app_init(&f->b, f->sim, 1, 22, 11);
	f->a.close = APP_CLOSE_NEVER;
	f->b.close = APP_CLOSE_ON_FIN;
	f->a.to_send = bytes;
	SIM_CHECK(f->sim, app_listen(&f->b, 9, options) == 0);
	SIM_CHECK(f->sim, app_dial(&f->a, 9, options) == 0);
	f->open_ns = f->sim->now_ns;
}

static double flow_run(struct flow *f, uint64_t bytes)
{
	uint64_t start_ns = f->sim->now_ns, before = f->b.received;

	f->a.to_send = f->a.sent + bytes;
	app_pump(&f->a);
	SIM_CHECK(f->sim, sim_run(f->sim, start_ns + 4000 * RP_NS_PER_S, all_received, f));
	return (double)(f->b.received - before) / ((double)(f->sim->now_ns - start_ns) / 1e9);
}

static void flow_end(struct flow *f)
{
	app_close(&f->a);
	sim_run(f->sim, f->sim->now_ns + 10 * RP_NS_PER_S, NULL, NULL);
	SIM_CHECK(f->sim, f->a.closed && f->b.closed);
	sim_free(f->sim);
}

/* A queue that marks: DCTCP fills the link, keeps the queue at the threshold, and loses nothing. */
static void dctcp_keeps_the_queue_short(void **state)
{
	const struct rp_conn_options options = {
		.congestion = RP_CONGESTION_DCTCP, .ecn = RP_ECN_ASK};
	struct sim_config config = {.seed = base_seed,
		.rtt_ns = 100000,
		.byte_ps = 800, /* 10 Gb/s: 83 frames fill it */
		.mark_frames = 30,
		.check_every = 50};
	struct flow f;
	double rate;

	flow_start(&f, &config, &options, 8 << 20); /* alpha comes down from 1 */
	SIM_CHECK(f.sim, sim_run(f.sim, f.open_ns + RP_NS_PER_S, all_received, &f));
	assert_string_equal(info_of(&f.a).congestion, "dctcp");
	assert_true(info_of(&f.a).ecn);
	f.sim->queue_most[0] = 0;
	rate = flow_run(&f, 32 << 20);
	if (rate < 0.95 * 1.25e9 * 1448 / 1514)
		sim_fail(f.sim, "%g bytes/s", rate);
	assert_in_range(f.sim->queue_most[0], 30, 80);
	assert_true(f.sim->marked[0] > 0);
	assert_int_equal(f.sim->dropped_queue[0], 0);
	assert_int_equal(info_of(&f.a).rtx_segments, 0);
	assert_true(rp_tcp_counters(f.sim->host[0].stack)->ecn_reductions > 10);
	flow_end(&f);
}

/* The same queue with CUBIC and ECN: marks in the place of losses. */
static void cubic_reacts_to_marks(void **state)
{
	const struct rp_conn_options options = {.ecn = RP_ECN_ASK};
	struct sim_config config = {.seed = base_seed,
		.rtt_ns = 100000,
		.byte_ps = 800,
		.mark_frames = 30,
		.check_every = 50};
	struct flow f;

	flow_start(&f, &config, &options, 0);
	assert_true(flow_run(&f, 16 << 20) > 0.7 * 1.25e9 * 1448 / 1514);
	assert_string_equal(info_of(&f.a).congestion, "cubic");
	assert_int_equal(info_of(&f.a).rtx_segments, 0);
	assert_true(f.sim->marked[0] > 0);
	assert_true(rp_tcp_counters(f.sim->host[0].stack)->ecn_reductions >= 2);
	flow_end(&f);
}

/* DCTCP was asked for, but the other side does not do ECN. */
static void without_ecn_dctcp_is_cubic(void **state)
{
	const struct rp_conn_options off = {.ecn = RP_ECN_OFF},
				     options = {
					     .congestion = RP_CONGESTION_DCTCP, .ecn = RP_ECN_ASK};
	struct sim_config config = {.seed = base_seed, .rtt_ns = 100000};
	struct flow f;

	f.sim = sim_new(&config);
	app_init(&f.a, f.sim, 0, 11, 22);
	app_init(&f.b, f.sim, 1, 22, 11);
	f.a.close = APP_CLOSE_NEVER;
	f.b.close = APP_CLOSE_ON_FIN;
	SIM_CHECK(f.sim, app_listen(&f.b, 9, &off) == 0);
	SIM_CHECK(f.sim, app_dial(&f.a, 9, &options) == 0);
	flow_run(&f, 100000);
	assert_string_equal(info_of(&f.a).congestion, "cubic");
	assert_false(info_of(&f.a).ecn);
	flow_end(&f);
}

/*
 * RFC 9438 5.1: what CUBIC gets at a loss rate, or the link's rate where that is less. 0.9 of it,
 * over enough data that the losses are the mean.
 */
static void goodput_by_the_response_function(void **state)
{
	static const struct {
		uint64_t rtt_ns;
		double loss;
		uint64_t bytes;
		double part;
	} cases[] = {
		{50000, 0.0001, 64 << 20, 0.9},
		{50000, 0.01, 16 << 20, 0.9},
		{50000, 0.05, 4 << 20, 0.7}, /* see links.c for what is between it and 0.9 */
		{MS, 0.001, 16 << 20, 0.9},
		{MS, 0.01, 8 << 20, 0.9},
		{MS, 0.05, 4 << 20, 0.9},
		{50 * MS, 0.001, 32 << 20, 0.9},
		{50 * MS, 0.01, 8 << 20, 0.9},
		{50 * MS, 0.05, 2 << 20, 0.9},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct sim_config config = {.seed = base_seed + i,
			.rtt_ns = cases[i].rtt_ns,
			.byte_ps = 8000, /* 1 Gb/s */
			.impair = {.drop = cases[i].loss},
			/* Twice what fills the link; what is on the way counts as well. */
			.queue_frames = 100 + (uint32_t)(cases[i].rtt_ns / 6000),
			.check_every = 97};
		double rtt = (double)cases[i].rtt_ns / 1e9, p = cases[i].loss, rate, aimd, cubic;
		struct flow f;

		for (unsigned h = 0; h < 2; h++) {
			config.tcp[h].send_buffer_bytes = 16 << 20;
			config.tcp[h].receive_buffer_bytes = 16 << 20;
			config.tcp[h].segments_max = 32768;
		}
		config.payload_mbufs = config.header_mbufs = 32767;
		flow_start(&f, &config, NULL, 0);
		while (!f.a.opened || !f.b.opened) /* a SYN that is lost costs a second */
			sim_step(f.sim, f.sim->now_ns + RP_NS_PER_S);
		rate = flow_run(&f, cases[i].bytes);
		assert_true(p > 0.02 || info_of(&f.a).rtos <= 2);
		/* What went again was lost: less than 1 % for nothing. */
		assert_true(rp_tcp_counters(f.sim->host[0].stack)->dsack_rx * 100 <=
			    rp_tcp_counters(f.sim->host[0].stack)->tx_segments);
		/* Segments in a round trip: (6) with C = 0.4, and Reno's with the same beta. */
		aimd = 1.22 / square_root(p);
		cubic = 1.054 * square_root(square_root(rtt * rtt * rtt / (p * p * p)));
		aimd = RP_MAX(aimd, cubic) * 1448 / rtt;
		aimd = RP_MIN(aimd, 1.25e8 * 1448 / 1514);
		/* What overflows the queue goes again; no more, and not in each round trip. */
		assert_true(f.sim->dropped_queue[0] <= 500);
		if (rate < cases[i].part * aimd)
			sim_fail(f.sim, "case %u: %g bytes/s of %g", i, rate, aimd);

		flow_end(&f);
	}
}

/* What the sender does not use, it does not get to keep growing (RFC 7661, RFC 5681 4.1). */
static void an_idle_or_slow_sender_gains_nothing(void **state)
{
	struct sim_config config = {.seed = base_seed, .rtt_ns = 1000000};
	struct flow f;
	uint32_t cwnd;

	flow_start(&f, &config, NULL, 0);
	flow_run(&f, 1000);
	cwnd = info_of(&f.a).cwnd;
	assert_int_equal(cwnd, 10 * info_of(&f.a).mss); /* RFC 6928 */
	for (unsigned i = 0; i < 100; i++)
		flow_run(&f, 1000);
	assert_int_equal(info_of(&f.a).cwnd, cwnd);
	flow_run(&f, 1 << 20);
	assert_true(info_of(&f.a).cwnd > 4 * cwnd);
	sim_run(f.sim, f.sim->now_ns + RP_NS_PER_S, NULL, NULL);
	flow_run(&f, 1000);
	assert_int_equal(info_of(&f.a).cwnd, 65536); /* a pause leaves a burst of it: RFC 7661 */
	sim_run(f.sim, f.sim->now_ns + 301 * RP_NS_PER_S, NULL, NULL);
	flow_run(&f, 1000);
	assert_int_equal(info_of(&f.a).cwnd, cwnd);	/* after minutes, as at the start */
	assert_true(info_of(&f.a).ssthresh > 2 * cwnd); /* but it gets there fast */
	flow_end(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cube_roots),
		cmocka_unit_test(cubic_follows_its_curve),
		cmocka_unit_test(cubic_makes_room),
		cmocka_unit_test(cubic_is_no_slower_than_reno),
		cmocka_unit_test(cubic_after_a_timeout),
		cmocka_unit_test(cubic_does_not_grow_by_waiting),
		cmocka_unit_test(cubic_undo),
		cmocka_unit_test(cubic_grows_by_parts),
		cmocka_unit_test(cubic_keeps_the_rest_of_a_segment),
		cmocka_unit_test(reno_grows_and_halves),
		cmocka_unit_test(dctcp_estimates_the_marks),
		cmocka_unit_test(dctcp_keeps_the_queue_short),
		cmocka_unit_test(cubic_reacts_to_marks),
		cmocka_unit_test(without_ecn_dctcp_is_cubic),
		cmocka_unit_test(goodput_by_the_response_function),
		cmocka_unit_test(an_idle_or_slow_sender_gains_nothing),
	};

	if (argc > 1)
		base_seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)base_seed);
	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
