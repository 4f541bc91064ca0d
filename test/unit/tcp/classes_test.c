/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_mbuf.h>

#include <base/mbuf.h>

#include "wire.h"

/*
 * Faults that other stacks had, those that no other file here has a test of; docs/tcp.md lists them
 * all. `tcp_classes_test [seed]`.
 */

static uint64_t base_seed = 1;
static const struct sim_config plain = {.seed = 21, .rtt_ns = 1000};
#define MSS 1460
#define MS RP_NS_PER_MS
#define S RP_NS_PER_S

static struct rp_tcp_info info_of(const struct app *a)
{
	struct rp_tcp_info i;

	rp_tcp_conn_info(a->conn, &i);
	return i;
}

static void put_bytes(struct wire *w, uint32_t offset, uint32_t n)
{
	uint8_t data[4096];

	for (uint32_t i = 0; i < n; i++)
		data[i] = app_byte(w->app.peer_pattern, offset + i);
	wire_put(w, ACK, 1 + offset, 1, data, n);
}

/* Class 5: the SYN comes again, without the options of the first: what was agreed on stays. */
static void a_syn_that_comes_again_plain(void **state)
{
	static const uint8_t rich[20] = {
		2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 100, 0, 0, 0, 0, 1, 3, 3, 7};
	struct wire *w = wire_new(&plain);
	struct wire_out *o;

	assert_int_equal(app_listen(&w->app, 80, NULL), 0);
	for (unsigned i = 0; i < 2; i++) {
		wire_send(w, &(struct wire_segment){.flags = SYN,
				     .seq = w->iss,
				     .window = 5000,
				     .options = i ? NULL : rich,
				     .options_length = i ? 0 : 20});
		o = wire_take(w);
		assert_true(o && o->flags == (SYN | ACK));
		assert_true(o->has_shift && o->has_ts && o->has_sack && o->window == 0xffff);
		wire_wait(w, 2 * MS);
	}
	w->irs = o->seq;
	wire_put(w, ACK, 1, 1, NULL, 0);
	assert_int_equal(info_of(&w->app).send_window, 0xffff << 7);
	assert_int_equal(info_of(&w->app).mss, 1448);
	put_bytes(w, 0, 100);
	assert_int_equal(w->app.received, 100);
	wire_free(w);
}

/*
 * Class 8: round trips of less than a tick, a peer that acknowledges late: no timeout, and nothing
 * sent twice but probes of the tail.
 */
static void tiny_round_trips(void **state)
{
	static const uint64_t rtts_ns[] = {500, 5000, 50000};
	static const uint64_t delays_ns[] = {MS, 40 * MS, 199 * MS};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rtts_ns); i++)
		for (unsigned k = 0; k < RP_ARRAY_SIZE(delays_ns); k++) {
			struct rp_conn_options late = {.ack_delay_max_ns = delays_ns[k]};
			struct rp_conn_options far = {.rto_min_ns = k == 0 ? 5 * MS : 200 * MS,
				.ack_delay_max_ns = delays_ns[k]};
			struct sim_config c = {.seed = base_seed, .rtt_ns = rtts_ns[i]};
			const struct rp_tcp_counters *n;
			struct sim *s = sim_new(&c);
			struct app a, b;

			app_init(&a, s, 0, 11, 22);
			app_init(&b, s, 1, 22, 11);
			a.close = APP_CLOSE_NEVER;
			b.close = APP_CLOSE_ON_FIN;
			SIM_CHECK(s, app_listen(&b, 9, &late) == 0);
			SIM_CHECK(s, app_dial(&a, 9, &far) == 0);
			for (unsigned j = 0; j < 50; j++) {
				a.chunk = 1 + 700 * (j % 5);
				a.to_send = a.sent + a.chunk;
				app_pump(&a);
				sim_run(s, s->now_ns + (j % 7) * 60 * MS, NULL, NULL);
			}
			sim_run(s, s->now_ns + S, NULL, NULL);
			n = rp_tcp_counters(s->host[0].stack);
			SIM_CHECK(s, b.received == a.sent && n->rto == 0);
			SIM_CHECK(s, n->rtx_segments <= n->tlp);
			/* The probe waits as long as the peer may. */
			SIM_CHECK(s, n->tlp <= 2);
			app_close(&a);
			sim_run(s, s->now_ns + 3 * S, NULL, NULL);
			sim_free(s);
		}
}

/* Class 9: what is in flight is never more than the window when something new goes. */
static struct app *watched;
static uint64_t watched_new;
static uint32_t watched_end;

static bool watch_window(void *ctx, const struct sim_frame_info *f)
{
	struct rp_tcp_info i;

	if (f->from != 0 || f->payload == 0 || !watched || !watched->conn)
		return true;
	if (watched_new > 0 && (int32_t)(f->seq - watched_end) < 0)
		return true; /* sent before */
	watched_end = f->seq + f->payload;
	watched_new++;
	rp_tcp_conn_info(watched->conn, &i);
	if (!i.recovery && i.pipe > i.cwnd + i.mss)
		sim_fail(watched->sim, "pipe %u, window %u", i.pipe, i.cwnd);
	return true;
}

static void the_window_bounds_what_is_in_flight(void **state)
{
	for (uint64_t k = 0; k < 10; k++) {
		struct sim_config c = {.seed = base_seed * 100 + k,
			.rtt_ns = 200000,
			.byte_ps = 800,
			.queue_frames = 40 + 20 * (uint32_t)k,
			.impair = {.drop = 0.005 * (double)k,
				.duplicate = 0.01,
				.reorder = 0.05,
				.reorder_ns = 50000},
			.tap = watch_window};
		struct sim *s = sim_new(&c);
		struct app a, b;

		app_init(&a, s, 0, 11, 22);
		app_init(&b, s, 1, 22, 11);
		watched = &a;
		watched_new = 0;
		a.to_send = 3 << 20;
		SIM_CHECK(s, app_listen(&b, 9, NULL) == 0);
		SIM_CHECK(s, app_dial(&a, 9, NULL) == 0);
		sim_run(s, s->now_ns + 60 * S, NULL, NULL);
		SIM_CHECK(s, b.received == 3 << 20 && watched_new >= 2000);
		watched = NULL;
		sim_free(s);
	}
}

/*
 * Class 11: reordering of every share and extent, without loss: less than 1 % goes again for
 * nothing, once the reordering is known, and the rate is the link's.
 */
static void reordering_without_loss(void **state)
{
	static const uint64_t rtts_ns[] = {50000, MS, 50 * MS};
	static const double shares[] = {0.01, 0.1, 0.5};
	static const double extents[] = {0.1, 0.5, 1};

	for (unsigned i = 0; i < 27; i++) {
		uint64_t rtt_ns = rtts_ns[i / 9];
		double extent = extents[i % 3];
		/* 1 Gb/s, and a tenth of it where more would be out of order than is kept. */
		uint64_t byte_ps = rtt_ns > 10 * MS ? 80000 : 8000;
		uint64_t bytes = 4 << 20, rtx, sent, start_ns;
		struct sim_config c = {.seed = base_seed + i,
			.rtt_ns = rtt_ns,
			.byte_ps = byte_ps,
			.impair = {.reorder = shares[i / 3 % 3],
				.reorder_ns = (uint64_t)((double)rtt_ns * extent)},
			.check_every = 97};
		const struct rp_tcp_counters *n;
		struct app a, b;
		struct sim *s;
		double seconds, best;

		for (unsigned h = 0; h < 2; h++)
			c.tcp[h].send_buffer_bytes = c.tcp[h].receive_buffer_bytes = 8 << 20;
		c.tcp[0].segments_max = 32768;
		c.tcp[1].ooo_ranges_max = 1024;
		c.payload_mbufs = c.header_mbufs = 32767;
		s = sim_new(&c);
		app_init(&a, s, 0, 11, 22);
		app_init(&b, s, 1, 22, 11);
		a.close = APP_CLOSE_NEVER;
		b.close = APP_CLOSE_ON_FIN;
		SIM_CHECK(s, app_listen(&b, 9, NULL) == 0);
		SIM_CHECK(s, app_dial(&a, 9, NULL) == 0);
		n = rp_tcp_counters(s->host[0].stack);
		a.to_send = bytes / 4;
		sim_run(s, s->now_ns + 20 * S, NULL, NULL);
		SIM_CHECK(s, b.received == a.sent && a.sent == bytes / 4);
		rtx = n->rtx_segments;
		sent = n->tx_segments;
		start_ns = s->now_ns;
		a.to_send += bytes;
		app_pump(&a);
		while (b.received < a.to_send && s->now_ns < start_ns + 100 * S)
			sim_step(s, s->now_ns + S);
		seconds = (double)(s->now_ns - start_ns) / 1e9;
		rtx = n->rtx_segments - rtx;
		sent = n->tx_segments - sent;
		if (rtx * 100 > sent || n->rto > 0)
			sim_fail(s,
				"rtt %g ms, share %g, extent %g: %llu of %llu again, %llu timeouts",
				(double)rtt_ns / 1e6, shares[i / 3 % 3], extent,
				(unsigned long long)rtx, (unsigned long long)sent,
				(unsigned long long)n->rto);
		/* The link's rate, or a buffer a round trip; and slow start, as after a pause. */
		best = (double)bytes /
		       RP_MIN(1e12 / (double)byte_ps * 1448 / 1514, 7e6 / ((double)rtt_ns / 1e9));
		if (seconds > 1.25 * best + 14 * (double)rtt_ns / 1e9)
			sim_fail(s, "rtt %g ms, share %g, extent %g: %g s of %g",
				(double)rtt_ns / 1e6, shares[i / 3 % 3], extent, seconds, best);
		app_close(&a);
		sim_run(s, s->now_ns + 5 * S, NULL, NULL);
		sim_free(s);
	}
}

/*
 * Class 12: the device gives nothing back for ten seconds. What is lost goes again all the same,
 * and no byte of what the device holds is touched.
 */
#define HELD_MAX 256

static void a_device_that_gives_nothing_back(void **state)
{
	static struct {
		struct rte_mbuf *m;
		uint8_t copy[2048];
		uint32_t length;
	} held[HELD_MAX];
	struct wire *w = wire_new(&plain);
	struct rp_tcp_stack *stack = w->sim->host[0].stack;
	unsigned count = 0, firsts = 0;

	wire_accept(w, true);
	w->app.chunk = 5000;
	w->app.to_send = 15000;
	app_pump(&w->app);
	for (unsigned i = 0; i < 10000; i++) {
		struct rte_mbuf *out[32];
		unsigned n;

		w->sim->now_ns += MS;
		rp_tcp_poll(stack, w->sim->now_ns);
		assert_null(rp_tcp_check(stack));
		n = rp_tcp_tx(stack, out, 32);
		for (unsigned k = 0; k < n; k++, count++) {
			assert_true(count < HELD_MAX);
			held[count].m = out[k];
			held[count].length = rp_mbuf_copy_out(out[k], 0, held[count].copy, 2048);
			if (held[count].length > 1000)
				firsts += memcmp(held[count].copy + 38, held[0].copy + 38, 4) == 0;
		}
	}
	assert_true(firsts >= 8); /* by timeouts that double from 5 ms on */
	for (unsigned i = 0; i < count; i++) {
		uint8_t now[2048];

		assert_int_equal(rp_mbuf_copy_out(held[i].m, 0, now, 2048), held[i].length);
		assert_memory_equal(now, held[i].copy, held[i].length);
	}
	wire_put(w, ACK, 1, 15001, NULL, 0); /* acknowledged while the device has it */
	assert_int_equal(info_of(&w->app).unacked, 0);
	for (unsigned i = 0; i < count; i++) {
		uint8_t now[2048];

		rp_mbuf_copy_out(held[i].m, 0, now, 2048);
		assert_memory_equal(now, held[i].copy, held[i].length);
		rte_pktmbuf_free(held[i].m);
	}
	wire_free(w);
}

/* Class 14: five segments in each of their 120 orders: each is answered as its place demands. */
static void every_order_of_five(void **state)
{
	for (unsigned code = 0; code < 120; code++) {
		struct wire *w = wire_new(&plain);
		unsigned left[5] = {0, 1, 2, 3, 4}, rest = code, next = 0;
		bool came[5] = {false};

		wire_accept(w, true);
		for (unsigned i = 0; i < 5; i++) {
			unsigned pick = rest % (5 - i), k = left[pick], before = next;
			struct wire_out *o;

			rest /= 5 - i;
			memmove(left + pick, left + pick + 1, (4 - pick) * sizeof(left[0]));
			came[k] = true;
			while (next < 5 && came[next])
				next++;
			put_bytes(w, k * 1000, 1000);
			o = wire_take(w);
			/* At once: out of order, or behind it something waited (RFC 5681 4.2). */
			if (k != before || next > before + 1)
				assert_non_null(o);
			if (o)
				assert_int_equal(o->ack, w->iss + 1 + next * 1000);
			if (o && k > before)
				assert_true(
					o->blocks >= 1 && o->block[0][0] <= w->iss + 1 + k * 1000);
		}
		assert_int_equal(w->app.received, 5000);
		wire_free(w);
	}
}

/* Class 14: two pieces in every relation to each other, and a third that fills: each is answered.
 */
static void every_overlap_of_two(void **state)
{
	for (unsigned a = 0; a < 5; a++)
		for (unsigned b = a + 1; b <= 5; b++)
			for (unsigned c = 0; c < 5; c++)
				for (unsigned d = c + 1; d <= 5; d++) {
					struct wire *w = wire_new(&plain);
					uint32_t end = RP_MAX(b, d) * 100;

					wire_accept(w, (a + d) % 2);
					put_bytes(w, a * 100, (b - a) * 100);
					if (a > 0)
						assert_non_null(wire_take(w));
					w->out_next = w->out_count;
					put_bytes(w, c * 100, (d - c) * 100);
					/* Neither in order alone nor without overlap: at once. */
					if (c > (a == 0 ? b : 0) || (a == 0 && c < b) || a > 0)
						assert_non_null(wire_take(w));
					w->out_next = w->out_count;
					put_bytes(w, 0, end);
					wire_wait(w, 2 * MS);
					assert_int_equal(w->app.received, end);
					assert_int_equal(
						w->out[w->out_count - 1].ack, w->iss + 1 + end);
					wire_free(w);
				}
}

/* Class 20: closed while no buffer is left: the FIN goes as soon as there is one. */
static void a_close_without_buffers(void **state)
{
	struct sim_config c = plain;
	static struct rte_mbuf *hog[64];
	unsigned hogged = 0;
	struct wire *w;

	c.header_mbufs = 31;
	w = wire_new(&c);
	wire_accept(w, false);
	w->app.chunk = w->app.to_send = 1000;
	while (hogged < 64 && (hog[hogged] = rte_pktmbuf_alloc(w->sim->host[0].header_pool)))
		hogged++;
	app_pump(&w->app);
	app_close(&w->app);
	wire_wait(w, 50 * MS);
	assert_null(rp_tcp_check(w->sim->host[0].stack));
	w->out_next = w->out_count;
	rte_pktmbuf_free_bulk(hog, hogged);
	wire_wait(w, MS);
	wire_wait(w, 20 * MS);
	wire_put(w, ACK, 1, 1002, NULL, 0);
	assert_string_equal(info_of(&w->app).state, "FIN-WAIT-2");
	wire_put(w, FIN | ACK, 1, 1002, NULL, 0);
	assert_true(w->app.closed);
	wire_free(w);
}

/* Class 23: timestamps were agreed on, and then some segments have none: they count. */
static void segments_without_timestamps(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, true);
	assert_true(info_of(&w->app).timestamps);
	w->ts = 0; /* as old peers send keepalives, and middleboxes everything */
	put_bytes(w, 0, 100);
	assert_int_equal(w->app.received, 100);
	w->app.chunk = w->app.to_send = 500;
	app_pump(&w->app);
	sim_turn(w->sim, 0);
	w->out_next = w->out_count;
	wire_put(w, ACK, 101, 501, NULL, 0);
	assert_int_equal(info_of(&w->app).unacked, 0);
	wire_put(w, FIN | ACK, 101, 501, NULL, 0);
	assert_true(w->app.peer_fin);
	wire_free(w);
}

static unsigned rx_used(const struct wire *w)
{
	return w->sim->host[0].rx_free - rte_mempool_avail_count(w->sim->host[0].rx_pool);
}

static void forget_out(struct wire *w)
{
	w->out_count = w->out_next = 0;
}

/* Class 6: segments of a byte, in any order, do not hold a buffer each. */
static void tiny_segments_share_buffers(void **state)
{
	struct rp_rand rand = {base_seed};
	uint32_t order[600], n = RP_ARRAY_SIZE(order);

	for (unsigned way = 0; way < 3; way++) {
		struct sim_config c = plain;
		unsigned most = 0;
		struct wire *w;

		c.tcp[0].ooo_ranges_max = n;
		w = wire_new(&c);

		wire_accept(w, true);
		for (uint32_t i = 0; i < n; i++)
			order[i] = way == 0 ? 1 + i : n - i;
		for (uint32_t i = n - 1; way == 2 && i > 0; i--) {
			uint32_t k = rp_rand_below(&rand, i + 1), swap = order[i];

			order[i] = order[k];
			order[k] = swap;
		}
		for (uint32_t i = 0; i < n; i++) {
			put_bytes(w, order[i], 1);
			most = RP_MAX(most, rx_used(w));
			forget_out(w);
		}
		/* At random they are in many ranges for a while. */
		assert_in_range(most, 1, way < 2 ? 40 : n * 3 / 4);
		assert_in_range(rx_used(w), 1, 40);
		put_bytes(w, 0, 1);
		assert_int_equal(w->app.received, 1 + n);
		wire_free(w);
	}
}

static void fill(struct wire *w, uint32_t from, uint32_t to)
{
	for (; from < to; from += 1460) {
		forget_out(w);
		put_bytes(w, from, RP_MIN(1460u, to - from));
	}
	wire_wait(w, 2 * MS); /* a delayed acknowledgement */
}

static unsigned take_buffers(struct wire *w, struct rte_mbuf **taken, unsigned have, unsigned leave)
{
	struct rte_mempool *pool = w->sim->host[0].rx_pool;

	for (; rte_mempool_avail_count(pool) > leave; have++)
		taken[have] = rte_pktmbuf_alloc(pool);
	return have;
}

static void dial_by_hand(struct wire *w)
{
	w->remote_port++;
	forget_out(w);
	wire_send(w, &(struct wire_segment){.flags = SYN, .seq = w->iss, .window = 5000});
	w->remote_port--;
}

/* A millisecond, and a turn of the loop. */
static void pass(struct wire *w)
{
	wire_wait(w, MS);
	sim_turn(w->sim, 0);
}

/* Class 29: what fills the receive pool is held back in steps; what is in order is not dropped. */
static void receive_buffers_run_short(void **state)
{
	struct sim_config c = plain;
	const struct rp_tcp_counters *n;
	struct rte_mbuf *taken[1000];
	struct rp_tcp_usage u;
	unsigned have;
	struct wire *w;

	c.rx_mbufs = 1000;
	c.watch_rx = true;
	c.tcp[0].receive_buffer_bytes = 60000;
	w = wire_new(&c);
	n = rp_tcp_counters(w->sim->host[0].stack);
	wire_accept(w, true);
	for (uint32_t i = 0; i < 10; i++)
		put_bytes(w, 50000 + 20 * i, 10);
	have = take_buffers(w, taken, 0, 300);
	pass(w);
	assert_int_equal(n->pressures, 0);
	have = take_buffers(w, taken, have, 240);
	pass(w);
	assert_int_equal(n->pressures, 1);
	/* Nobody new; what was offered stays, and then a quarter is. */
	dial_by_hand(w);
	wire_none(w);
	assert_int_equal(n->drop_pressure, 1);
	fill(w, 0, 40000);
	assert_int_equal(w->app.received, 40000);
	assert_int_equal(w->out[w->out_count - 1].window, 20000);
	fill(w, 40000, 49640);
	assert_in_range(w->out[w->out_count - 1].window, 15000 - 1460, 15000);
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.ranges, 10);
	/* Then what is out of order goes, which the peer has still. */
	have = take_buffers(w, taken, have, 90);
	pass(w);
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.ranges, 0);
	assert_int_equal(n->pressure_gaps, 10);
	fill(w, 49640, 60000);
	assert_int_equal(w->app.received, 60000);
	/* All is well again: the peer is told, and others come. */
	forget_out(w);
	rte_pktmbuf_free_bulk(taken, have);
	pass(w);
	assert_int_equal(wire_expect(w, ACK, 1, 60001, 0)->window, 60000);
	dial_by_hand(w);
	assert_int_equal(wire_take(w)->flags, SYN | ACK);
	assert_int_equal(n->pressures, 1);
	w->remote_port++;
	wire_put(w, RST, 1, 0, NULL, 0);
	w->remote_port--;
	wire_free(w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_syn_that_comes_again_plain),
		cmocka_unit_test(tiny_round_trips),
		cmocka_unit_test(the_window_bounds_what_is_in_flight),
		cmocka_unit_test(reordering_without_loss),
		cmocka_unit_test(a_device_that_gives_nothing_back),
		cmocka_unit_test(every_order_of_five),
		cmocka_unit_test(every_overlap_of_two),
		cmocka_unit_test(a_close_without_buffers),
		cmocka_unit_test(segments_without_timestamps),
		cmocka_unit_test(tiny_segments_share_buffers),
		cmocka_unit_test(receive_buffers_run_short),
	};

	if (argc > 1)
		base_seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)base_seed);
	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
