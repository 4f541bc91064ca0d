/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/* The path MTU: what is believed, what follows, how long (RFC 1191, RFC 5927). Class 32. */

/* A narrow path; no IPv6 one has less than 1280. */
#define PATH (uint16_t)(sim_family() == 6 ? 1300 : 1000)
#define PATH_MSS (PATH - (sim_family() == 6 ? 60 : 40))

static const struct sim_config plain = {.seed = 6, .rtt_ns = 1000};
#define MSS 1460
#define MS RP_NS_PER_MS
#define ICMP_UNREACHABLE 3

static struct rp_tcp_info info(struct wire *w)
{
	struct rp_tcp_info i;

	rp_tcp_conn_info(w->app.conn, &i);
	return i;
}

static const struct rp_tcp_counters *counters(struct wire *w)
{
	return rp_tcp_counters(w->sim->host[0].stack);
}

static void more(struct wire *w, uint32_t bytes)
{
	w->app.chunk = bytes;
	w->app.to_send += bytes;
	app_pump(&w->app);
	sim_turn(w->sim, 0);
}

static struct wire *start(const struct sim_config *c, uint32_t bytes)
{
	struct wire *w = wire_new(c);

	wire_accept(w, false);
	more(w, bytes);
	return w;
}

/* Lowered, and what is in flight goes again at once, though nothing was acknowledged. */
static void a_true_one_is_followed_at_once(void **state)
{
	struct wire *w = start(&plain, 3 * MSS);
	uint32_t cwnd = info(w).cwnd, seq = 1;

	for (unsigned i = 0; i < 3; i++)
		wire_expect(w, ACK, 1 + i * MSS, 1, MSS);
	wire_icmp(w, ICMP_UNREACHABLE, 4, PATH, w->irs + 1 + MSS);
	while (seq < 1 + 3 * MSS) {
		uint32_t end = 1 + MSS * ((seq - 1) / MSS + 1),
			 n = RP_MIN((uint32_t)PATH_MSS, end - seq);

		wire_expect(w, ACK, seq, 1, n);
		seq += n;
	}
	wire_none(w);
	assert_int_equal(info(w).mss, PATH_MSS);
	assert_int_equal(info(w).path_mtu, PATH);
	/* It is no congestion (RFC 1191 6.4). */
	wire_put(w, ACK, 1, 1 + 3 * MSS, NULL, 0);
	assert_false(info(w).recovery);
	assert_true(info(w).cwnd >= cwnd);
	wire_free(w);
}

static void what_is_not_believed(void **state)
{
	struct wire *w = start(&plain, 2 * MSS);

	wire_take(w);
	wire_take(w);
	wire_icmp(w, ICMP_UNREACHABLE, 4, 300, w->irs + 1); /* below 576 */
	wire_icmp(w, ICMP_UNREACHABLE, 4, 0, w->irs + 1);   /* a router that does not say */
	wire_icmp(w, ICMP_UNREACHABLE, 4, sim_mtu(&plain), w->irs + 1); /* that fits */
	wire_icmp(w, ICMP_UNREACHABLE, 4, 9000, w->irs + 1);
	wire_icmp(w, ICMP_UNREACHABLE, 4, PATH, w->irs + 2 * MSS + 1); /* not sent yet */
	wire_icmp(w, ICMP_UNREACHABLE, 4, PATH, w->irs);	       /* acknowledged */
	wire_icmp(w, ICMP_UNREACHABLE, 4, PATH, w->irs + 1000000);
	wire_none(w);
	assert_int_equal(info(w).mss, MSS);
	assert_int_equal(counters(w)->drop_icmp_invalid, 7);
	/* About a segment that would have fitted. */
	wire_put(w, ACK, 1, 1 + 2 * MSS, NULL, 0);
	more(w, 100);
	wire_take(w);
	wire_icmp(w, ICMP_UNREACHABLE, 4, PATH, w->irs + 1 + 2 * MSS);
	assert_int_equal(info(w).mss, MSS);
	assert_int_equal(counters(w)->drop_icmp_invalid, 8);
	wire_free(w);
}

/* One after the other, each a little less: no more than a few of them count. */
static void a_flood_is_bounded(void **state)
{
	struct wire *w = start(&plain, 10 * MSS);
	uint16_t most = sim_mtu(&plain) - 1, least = sim_family() == 6 ? 1280 : 700;
	uint64_t rtx;

	for (unsigned i = 0; i < 10; i++)
		wire_take(w);
	for (uint16_t mtu = most; mtu > least; mtu--) {
		wire_icmp(w, ICMP_UNREACHABLE, 4, mtu, w->irs + 1);
		w->out_count = w->out_next = 0;
	}
	assert_in_range(counters(w)->icmp_too_big, 1, 4);
	assert_true(counters(w)->drop_icmp_rate > most - least - 100u);
	rtx = info(w).rtx_segments;
	assert_true(rtx <= 4 * 20);
	wire_free(w);
}

/* RFC 1191 6.3: after ten minutes the whole size is tried again. */
static void it_is_forgotten(void **state)
{
	struct wire *w = start(&plain, MSS);

	wire_take(w);
	wire_icmp(w, ICMP_UNREACHABLE, 4, PATH, w->irs + 1);
	wire_put(w, ACK, 1, 1 + MSS, NULL, 0);
	for (unsigned i = 0; i < 2; i++) {
		wire_wait(w, 301 * RP_NS_PER_S);
		w->out_count = w->out_next = 0;
		more(w, 100);
		wire_put(w, ACK, 1, 1 + MSS + 100 * (i + 1), NULL, 0);
		wire_wait(w, 10 * RP_NS_PER_S);
		assert_int_equal(info(w).mss, i == 0 ? PATH_MSS : MSS);
	}
	wire_free(w);
}

static void window(struct wire *w, uint32_t ack, uint16_t bytes)
{
	const struct wire_segment s = {
		.flags = ACK, .seq = w->iss + 1, .ack = w->irs + ack, .window = bytes};

	wire_send(w, &s);
}

/* What was full, and was summed as such, is not added to when segments may be longer. */
static void a_full_segment_stays_as_it_is(void **state)
{
	struct wire *w = start(&plain, MSS);
	struct wire_out *o;
	uint32_t got = 0;

	wire_take(w);
	wire_icmp(w, ICMP_UNREACHABLE, 4, PATH, w->irs + 1);
	window(w, 1 + MSS, 0);
	assert_int_equal(info(w).mss, PATH_MSS);
	more(w, PATH_MSS);
	for (unsigned i = 0; i < 11; i++) {
		wire_wait(w, 60 * RP_NS_PER_S);
		window(w, 1 + MSS, 0);
	}
	assert_int_equal(info(w).mss, MSS);
	more(w, 100);
	w->out_count = w->out_next = 0;
	window(w, 1 + MSS, 60000);
	while (got < PATH_MSS + 100u && (o = wire_take(w)))
		got += o->length;
	assert_int_equal(got, PATH_MSS + 100);
	wire_free(w);
}

/* Another connection to the same peer knows it; one to another peer does not. */
static void the_next_connection_knows(void **state)
{
	struct wire *w = start(&plain, MSS);
	struct rp_conn *first = w->app.conn;
	struct rp_transport *t = first->transport;

	wire_take(w);
	wire_icmp(w, ICMP_UNREACHABLE, 4, PATH, w->irs + 1);
	t->ops->abort(first, w->sim->now_ns);
	sim_turn(w->sim, 0);
	app_init(&w->app, w->sim, 0, 1, 2);
	w->app.close = APP_CLOSE_NEVER;
	w->out_count = w->out_next = 0;
	rp_tcp_unlisten(w->sim->host[0].stack, 80, w->sim->now_ns);
	w->remote_port++;
	w->iss += 100000;
	wire_accept(w, false);
	assert_int_equal(info(w).mss, PATH_MSS);
	wire_free(w);
}

/* Large segments vanish without a word: after three timeouts smaller ones go. */
static void a_black_hole(void **state)
{
	struct sim_config c = plain;
	struct wire *w;
	struct wire_out *o;

	for (unsigned on = 0; on < 2; on++) {
		c.tcp[0].pmtu_blackhole = on;
		w = start(&c, 2 * MSS);
		for (unsigned i = 0; i < 5; i++)
			wire_wait(w, 20 * MS);
		for (o = wire_take(w); w->out_next < w->out_count;)
			o = wire_take(w);
		assert_int_equal(o->length, on ? (sim_family() == 6 ? 1280 - 60 : 1024 - 40) : MSS);
		assert_int_equal(counters(w)->pmtu_blackhole, on);
		wire_free(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_true_one_is_followed_at_once),
		cmocka_unit_test(what_is_not_believed),
		cmocka_unit_test(a_flood_is_bounded),
		cmocka_unit_test(it_is_forgotten),
		cmocka_unit_test(a_full_segment_stays_as_it_is),
		cmocka_unit_test(the_next_connection_knows),
		cmocka_unit_test(a_black_hole),
	};

	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
