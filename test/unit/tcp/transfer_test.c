/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sim.h"

/*
 * Bytes between two stacks over networks good and bad: all arrive, in order, once; nothing is left
 * behind; and the rate is what the network allows. `tcp_transfer_test [seed]`.
 */

static uint64_t base_seed = 1;
static const uint64_t rtts_ns[] = {5000, 50000, RP_NS_PER_MS, 50 * RP_NS_PER_MS};

struct pair {
	struct sim *sim;
	struct app a, b;
};

struct outcome {
	double seconds;
	uint64_t segments, rtx, rtos, dsacks;
};

static bool both_closed(void *ctx)
{
	struct pair *p = ctx;

	return p->a.closed && p->b.closed;
}

static uint64_t opened_ns;

/* The handshake is not what is measured: a SYN that is lost costs a second. */
static void note_open(struct app *a)
{
	opened_ns = a->sim->now_ns;
}

static struct outcome transfer(const struct sim_config *config, uint64_t bytes_ab,
	uint64_t bytes_ba, const struct rp_conn_options *options)
{
	struct outcome o = {0};
	struct pair p;
	uint64_t start_ns;

	p.sim = sim_new(config);
	app_init(&p.a, p.sim, 0, 11, 22);
	app_init(&p.b, p.sim, 1, 22, 11);
	p.a.to_send = bytes_ab;
	p.b.to_send = bytes_ba;
	p.b.on_open = note_open;
	SIM_CHECK(p.sim, app_listen(&p.b, 4242, options) == 0);
	SIM_CHECK(p.sim, app_dial(&p.a, 4242, options) == 0);
	start_ns = p.sim->now_ns;
	SIM_CHECK(p.sim, sim_run(p.sim, start_ns + 3600 * RP_NS_PER_S, both_closed, &p));
	o.seconds = (double)(p.sim->now_ns - opened_ns) / 1e9;
	SIM_CHECK(p.sim, p.a.received == bytes_ba && p.b.received == bytes_ab);
	SIM_CHECK(p.sim, p.a.reason == RP_CLOSE_FIN && p.b.reason == RP_CLOSE_FIN);
	for (unsigned i = 0; i < 2; i++) {
		const struct rp_tcp_counters *c = rp_tcp_counters(p.sim->host[i].stack);

		o.segments += c->tx_segments;
		o.rtx += c->rtx_segments;
		o.rtos += c->rto;
		o.dsacks += c->dsack_rx;
		SIM_CHECK(p.sim, c->rx_bytes == (i ? bytes_ab : bytes_ba));
		SIM_CHECK(p.sim, c->tx_bytes == (i ? bytes_ba : bytes_ab));
		SIM_CHECK(p.sim, c->drop_malformed == 0 && c->drop_closed == 0);
	}
	sim_free(p.sim);
	return o;
}

static void a_clean_network(void **state)
{
	for (unsigned i = 0; i < RP_ARRAY_SIZE(rtts_ns); i++) {
		struct sim_config c = {.seed = base_seed, .rtt_ns = rtts_ns[i], .byte_ps = 800};
		struct outcome o = transfer(&c, 4 << 20, 4 << 20, NULL);
		double rtt = (double)rtts_ns[i] / 1e9;
		/* The rate of the link, or a buffer a round trip; and the time to get there. */
		double best =
			RP_MAX((4 << 20) * 0.8e-9 * 1.06, (4 << 20) / (1048576 / rtt)) + 12 * rtt;

		assert_int_equal(o.rtx, 0);
		if (o.seconds > best * 1.25)
			sim_fail(&(struct sim){.config = c}, "%g s, expected %g", o.seconds, best);
	}
}

static void a_lossy_network(void **state)
{
	static const double losses[] = {0.01, 0.05};

	for (unsigned k = 0; k < RP_ARRAY_SIZE(losses); k++)
		for (unsigned i = 0; i < RP_ARRAY_SIZE(rtts_ns); i++) {
			struct sim_config c = {.seed = base_seed,
				.rtt_ns = rtts_ns[i],
				.byte_ps = 800,
				.impair = {.drop = losses[k]}};
			struct outcome o = transfer(&c, 2 << 20, 1 << 20, NULL);
			double bytes = 2 << 20, rtt = (double)rtts_ns[i] / 1e9;
			/* Mathis: MSS/RTT * 1.22/sqrt(p). */
			double rate = 1448 / rtt * 1.22 / (k ? 0.2236 : 0.1);
			double best = bytes / RP_MIN(rate, 1.25e9);

			if (o.seconds > 2.5 * best + 0.03)
				sim_fail(&(struct sim){.config = c}, "%g s, expected %g", o.seconds,
					best);
			/* Not much more goes again than was lost. */
			assert_true((double)o.rtx <= 1.5 * losses[k] * (double)o.segments + 20);
			assert_true(o.dsacks <= 10);
			if (k == 0)
				assert_true(o.rtos <= 3);
		}
}

static void a_reordering_network(void **state)
{
	for (unsigned i = 0; i < RP_ARRAY_SIZE(rtts_ns); i++) {
		struct sim_config c = {.seed = base_seed,
			.rtt_ns = rtts_ns[i],
			.byte_ps = 800,
			.impair = {.drop = 0.01,
				.duplicate = 0.02,
				.reorder = 0.1,
				.reorder_ns = 50 * RP_NS_PER_US}};
		struct outcome o = transfer(&c, 2 << 20, 1 << 20, NULL);

		/*
		 * Before reordering is known, what is late in a window goes again (RFC 8985 6.2): a
		 * tenth of it, and a window is most of such a transfer.
		 */
		assert_true((double)o.rtx <= 0.06 * (double)o.segments + 150);
		assert_true(o.rtos <= 10);
	}
}

static void many_seeds(void **state)
{
	for (uint64_t i = 0; i < 60; i++) {
		struct rp_rand r = {base_seed * 1000 + i};
		struct sim_config c = {.seed = base_seed * 1000 + i, .check_every = 7};
		struct rp_conn_options o = {0};

		c.rtt_ns = 1000ull << rp_rand_below(&r, 15);
		c.byte_ps = 100 << rp_rand_below(&r, 8);
		c.queue_frames = rp_rand_u64(&r) % 3 ? 0 : 5 + (uint32_t)rp_rand_below(&r, 100);
		c.impair.drop = rp_rand_unit(&r) * (rp_rand_u64(&r) % 4 ? 0.03 : 0.15);
		c.impair.duplicate = rp_rand_u64(&r) % 2 ? rp_rand_unit(&r) * 0.1 : 0;
		c.impair.reorder = rp_rand_u64(&r) % 2 ? rp_rand_unit(&r) * 0.3 : 0;
		c.impair.reorder_ns = c.rtt_ns * (1 + rp_rand_below(&r, 8)) / 4;
		c.impair.jitter_ns = rp_rand_u64(&r) % 2 ? rp_rand_below(&r, c.rtt_ns) : 0;
		c.mtu = (uint16_t)(576 + rp_rand_below(&r, 9000 - 576));
		if (rp_rand_u64(&r) % 2) {
			c.pause_every = 1u << rp_rand_below(&r, 8);
			c.pause_ns = 1000ull << rp_rand_below(&r, 15);
		}
		for (unsigned h = 0; h < 2; h++) {
			c.tcp[h].receive_buffer_bytes = 4096u << rp_rand_below(&r, 9);
			c.tcp[h].send_buffer_bytes = 4096u << rp_rand_below(&r, 9);
		}
		o.rto_min_ns = rp_rand_u64(&r) % 2 ? 200 * RP_NS_PER_MS : 0;
		o.ack_delay_max_ns = rp_rand_u64(&r) % 2 ? 40 * RP_NS_PER_MS : 0;
		transfer(&c, rp_rand_below(&r, 400000), rp_rand_below(&r, 400000), &o);
	}
}

static void frames_of_9000(void **state)
{
	struct sim_config c = {
		.seed = base_seed, .rtt_ns = 20000, .mtu = 9000, .impair = {.drop = 0.01}};

	transfer(&c, 4 << 20, 1 << 20, NULL);
}

static void mbufs_shared_with_the_peer(void **state)
{
	struct sim_config c = {.seed = base_seed,
		.rtt_ns = 20000,
		.share_mbufs = true,
		.payload_mbufs = 16383,
		.impair = {.drop = 0.02, .reorder = 0.05, .reorder_ns = 50000}};

	transfer(&c, 2 << 20, 2 << 20, NULL);
}

static void small_pools(void **state)
{
	for (uint64_t i = 0; i < 10; i++) {
		struct sim_config c = {.seed = base_seed * 100 + i,
			.rtt_ns = 20000,
			.byte_ps = 800,
			.header_mbufs = 7 + 8 * (unsigned)i,
			.payload_mbufs = 60,
			.impair = {.drop = 0.02}};

		for (unsigned h = 0; h < 2; h++) {
			c.tcp[h].segments_max = 40;
			c.tcp[h].reassembly_max = 4;
			c.tcp[h].net.tx_queue_packets = 128;
			c.tcp[h].send_buffer_bytes = 30000;
		}
		transfer(&c, 300000, 300000, NULL);
	}
}

/* One that waits must not wait for ever: echoes of single messages, each lost now and then. */
static uint64_t echo_left;

static void echo_next(struct app *a)
{
	if (a->received == a->sent && echo_left > 0) {
		echo_left--;
		a->chunk = 64;
		a->to_send += 64;
		app_pump(a);
	} else if (a->received == a->sent) {
		app_close(a);
	}
}

static void ping_pong(void **state)
{
	struct sim_config c = {.seed = base_seed, .rtt_ns = 10000, .impair = {.drop = 0.01}};
	struct pair p;
	uint64_t start_ns;

	p.sim = sim_new(&c);
	app_init(&p.a, p.sim, 0, 11, 11);
	app_init(&p.b, p.sim, 1, 11, 11);
	p.b.echo = true;
	p.a.close = APP_CLOSE_NEVER;
	p.b.close = APP_CLOSE_ON_FIN;
	p.a.on_open = p.a.on_data = echo_next;
	echo_left = 2000;
	SIM_CHECK(p.sim, app_listen(&p.b, 7, NULL) == 0);
	SIM_CHECK(p.sim, app_dial(&p.a, 7, NULL) == 0);
	start_ns = p.sim->now_ns;
	SIM_CHECK(p.sim, sim_run(p.sim, start_ns + 60 * RP_NS_PER_S, both_closed, &p));
	assert_int_equal(p.a.received, 2000 * 64);
	/* A probe repairs each loss, in 2 ms or so: 2 % of 2000 times. */
	assert_true(p.sim->now_ns - start_ns < 2000 * 11000 + 60 * 3 * RP_NS_PER_MS);
	sim_free(p.sim);
}

static void small_messages_are_joined(void **state)
{
	struct sim_config c = {.seed = base_seed, .rtt_ns = 10000};
	struct pair p;

	p.sim = sim_new(&c);
	app_init(&p.a, p.sim, 0, 11, 22);
	app_init(&p.b, p.sim, 1, 22, 11);
	p.a.to_send = 64 * 1000;
	p.a.chunk = 64;
	SIM_CHECK(p.sim, app_listen(&p.b, 7, NULL) == 0);
	SIM_CHECK(p.sim, app_dial(&p.a, 7, NULL) == 0);
	SIM_CHECK(p.sim, sim_run(p.sim, p.sim->now_ns + RP_NS_PER_S, both_closed, &p));
	/* 64000 / 1448, and the handshake, the acknowledgements, the FINs. */
	assert_true(rp_tcp_counters(p.sim->host[0].stack)->tx_segments < 45 + 6);
	sim_free(p.sim);
}

/* 16 KiB are 11 whole pieces and one of 456 bytes: 12 segments each, however they lie behind each
 * other, and whatever happens to them on their way. */
static void whole_pieces_stay_whole(void **state)
{
	for (unsigned bad = 0; bad < 4; bad++) {
		struct sim_config c = {.seed = base_seed + bad, .rtt_ns = 50000};
		const struct rp_tcp_counters *n;
		struct pair p;

		c.share_mbufs = bad & 1;
		if (bad & 2)
			c.impair = (struct rp_impair_spec){.drop = 0.02, .duplicate = 0.02};
		p.sim = sim_new(&c);
		app_init(&p.a, p.sim, 0, 11, 22);
		app_init(&p.b, p.sim, 1, 22, 11);
		p.a.to_send = 16384 * 200;
		p.a.chunk = 16384;
		p.a.pieces = true;
		SIM_CHECK(p.sim, app_listen(&p.b, 7, NULL) == 0);
		SIM_CHECK(p.sim, app_dial(&p.a, 7, NULL) == 0);
		SIM_CHECK(p.sim, sim_run(p.sim, p.sim->now_ns + 60 * RP_NS_PER_S, both_closed, &p));
		SIM_CHECK(p.sim, p.b.received == p.a.to_send);
		n = rp_tcp_counters(p.sim->host[0].stack);
		/* Beside the data: handshake, FIN, acknowledgements. */
		SIM_CHECK(p.sim,
			n->tx_segments - n->rtx_segments - n->acks_sent >= 200 * 12 &&
				n->tx_segments - n->rtx_segments - n->acks_sent <= 200 * 12 + 3);
		sim_free(p.sim);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_clean_network),
		cmocka_unit_test(a_lossy_network),
		cmocka_unit_test(a_reordering_network),
		cmocka_unit_test(many_seeds),
		cmocka_unit_test(frames_of_9000),
		cmocka_unit_test(mbufs_shared_with_the_peer),
		cmocka_unit_test(small_pools),
		cmocka_unit_test(ping_pong),
		cmocka_unit_test(small_messages_are_joined),
		cmocka_unit_test(whole_pieces_stay_whole),
	};

	if (argc > 1)
		base_seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)base_seed);
	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
