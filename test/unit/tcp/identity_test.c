/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/*
 * Which connection is it: floods of SYNs and cookies, backlogs, ports, TIME-WAIT and who may come
 * after (RFC 4987, RFC 6191).
 */

static const struct sim_config plain = {.seed = 12, .rtt_ns = 1000};
#define MS RP_NS_PER_MS
#define S RP_NS_PER_S

static const uint8_t mss_only[4] = {2, 4, 0x05, 0xb4};
static const uint8_t rich[20] = {
	2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 100, 0, 0, 0, 0, 1, 3, 3, 7};

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

static struct rp_tcp_usage usage(struct wire *w)
{
	struct rp_tcp_usage u;

	rp_tcp_usage(w->sim->host[0].stack, &u);
	return u;
}

static void put32(uint8_t *p, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void syn(struct wire *w, uint32_t seq, const uint8_t *options, unsigned n)
{
	wire_send(w, &(struct wire_segment){.flags = SYN,
			     .seq = seq,
			     .window = 0xffff,
			     .options = options,
			     .options_length = n});
}

/* An ACK (with a byte where `byte` is set) that echoes `echo`. */
static void ack_ts(struct wire *w, uint32_t ts, uint32_t echo, const uint8_t *byte)
{
	uint8_t o[12] = {1, 1, 8, 10};

	put32(o + 4, ts);
	put32(o + 8, echo);
	wire_send(w, &(struct wire_segment){.flags = ACK,
			     .seq = w->iss + 1,
			     .ack = w->irs + 1,
			     .window = 1000,
			     .data = byte,
			     .length = byte != NULL,
			     .options = o,
			     .options_length = 12});
}

static struct wire *cookies_always(uint32_t receive_buffer)
{
	struct sim_config c = plain;
	struct wire *w;

	c.tcp[0].syn_cookies = RP_SYN_COOKIES_ALWAYS;
	c.tcp[0].receive_buffer_bytes = receive_buffer;
	w = wire_new(&c);
	assert_int_equal(app_listen(&w->app, 80, NULL), 0);
	return w;
}

/* With timestamps nothing is lost: scale, SACK, MSS. Class 19. */
static void cookie_with_timestamps(void **state)
{
	uint8_t byte = app_byte(2, 0);

	for (unsigned scaled = 0; scaled < 2; scaled++)
		for (unsigned sack = 0; sack < 2; sack++) {
			struct wire *w = cookies_always(4 << 20);
			uint8_t o[20];
			struct wire_out *out;

			memcpy(o, rich, 20);
			if (!sack)
				o[4] = o[5] = 1;
			if (!scaled)
				o[16] = o[17] = o[18] = o[19] = 1;
			syn(w, w->iss, o, 20);
			out = wire_take(w);
			assert_true(out && out->flags == (SYN | ACK) && out->ack == w->iss + 1);
			assert_true(out->has_ts && out->ts_echo == 100 && out->mss == 1460);
			assert_int_equal(out->has_sack, sack);
			assert_int_equal(out->has_shift, scaled);
			assert_int_equal(usage(w).connections, 0); /* nothing is kept */
			w->irs = out->seq;
			wire_wait(w, 500 * MS);
			wire_none(w); /* nothing to send again either */
			ack_ts(w, 600, out->ts_value, &byte);
			assert_true(w->app.opened);
			assert_int_equal(w->app.received, 1);
			assert_int_equal(info(w).mss, 1448);
			assert_int_equal(info(w).sack, sack);
			assert_true(info(w).timestamps);
			assert_int_equal(info(w).send_shift, scaled ? 7 : 0);
			assert_int_equal(info(w).send_window, scaled ? 128000 : 1000);
			assert_int_equal(info(w).receive_shift, scaled ? 7 : 0);
			/* Its timestamps go on: never behind that of the cookie. */
			w->app.chunk = w->app.to_send = 10;
			app_pump(&w->app);
			sim_turn(w->sim, 0);
			assert_true((int32_t)(wire_take(w)->ts_value - out->ts_value) >= 0);
			assert_int_equal(counters(w)->cookies_good, 1);
			wire_free(w);
		}
}

/* Without them it is a plain connection, and works. Class 19. */
static void cookie_without_timestamps(void **state)
{
	static const struct {
		uint16_t offer, used;
	} cases[] = {{1460, 1460}, {1459, 1440}, {536, 536}, {1300, 1220}, {9000, 1460}, {100, 88}};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct wire *w = cookies_always(0);
		uint8_t o[4] = {2, 4, (uint8_t)(cases[i].offer >> 8), (uint8_t)cases[i].offer};
		struct wire_out *out;

		syn(w, w->iss, o, 4);
		out = wire_take(w);
		assert_true(out && !out->has_ts && !out->has_sack && !out->has_shift);
		w->irs = out->seq;
		wire_put(w, ACK, 1, 1, NULL, 0);
		assert_true(w->app.opened);
		assert_int_equal(info(w).mss, cases[i].used);
		assert_false(info(w).sack || info(w).timestamps);
		wire_free(w);
	}
}

/* Guessed, of another connection, or too old: a reset, as for any ACK. Class 19. */
static void cookies_that_are_none(void **state)
{
	struct wire *w = cookies_always(0);

	wire_put(w, ACK, 1, 1, NULL, 0); /* none was sent yet */
	assert_int_equal(wire_take(w)->flags, RST);
	assert_int_equal(counters(w)->cookies_bad, 0);
	syn(w, w->iss, mss_only, 4);
	w->irs = wire_take(w)->seq;
	for (unsigned bit = 0; bit < 32; bit++) {
		wire_put(w, ACK, 1, 1u + (1u << bit), NULL, 0);
		assert_int_equal(wire_take(w)->flags, RST);
	}
	wire_put(w, ACK, 2, 1, NULL, 0);
	assert_int_equal(wire_take(w)->flags, RST);
	w->remote_port++;
	wire_put(w, ACK, 1, 1, NULL, 0);
	assert_int_equal(wire_take(w)->flags, RST);
	w->remote_port--;
	assert_int_equal(counters(w)->cookies_bad, 34);
	wire_wait(w, 140 * S);
	syn(w, w->iss, mss_only, 4); /* so that they are looked at */
	wire_take(w);
	wire_put(w, ACK, 1, 1, NULL, 0);
	assert_int_equal(wire_take(w)->flags, RST);
	assert_false(w->app.opened);
	wire_free(w);
}

/* A cookie is good for a minute at least. */
static void cookies_last_a_minute(void **state)
{
	struct wire *w = cookies_always(0);

	syn(w, w->iss, mss_only, 4);
	w->irs = wire_take(w)->seq;
	wire_wait(w, 60 * S);
	wire_put(w, ACK, 1, 1, NULL, 0);
	assert_true(w->app.opened);
	wire_free(w);
}

/*
 * Ten times the backlog of SYNs that nobody completes, and one client that does: it is served, at
 * once, and never reset. Class 18.
 */
static void flood(uint32_t connections, uint32_t backlog, uint32_t half_open)
{
	struct sim_config c = plain;
	struct wire *w;
	struct wire_out *out;

	c.tcp[0].connections_max = connections;
	c.tcp[0].backlog = backlog;
	w = wire_new(&c);
	assert_int_equal(app_listen(&w->app, 80, NULL), 0);
	for (unsigned i = 0; i < 320; i++) {
		w->remote_port = (uint16_t)(2000 + i);
		syn(w, 1000 * i, mss_only, 4);
		assert_int_equal(wire_take(w)->flags, SYN | ACK);
	}
	assert_int_equal(usage(w).half_open, half_open);
	assert_int_equal(counters(w)->cookies_sent, 320 - half_open);
	w->remote_port = 1234;
	syn(w, w->iss, mss_only, 4);
	out = wire_take(w);
	w->irs = out->seq;
	wire_put(w, ACK, 1, 1, NULL, 0);
	assert_true(w->app.opened);
	wire_none(w);
	assert_int_equal(counters(w)->listen_overflow, 0);
	assert_int_equal(rp_tcp_unlisten(w->sim->host[0].stack, 80, w->sim->now_ns), 0);
	wire_free(w);
}

static void a_flood_of_syns(void **state)
{
	flood(64, 32, 32);
	/* A backlog larger than the table leaves half of it to those that complete. */
	flood(16, 128, 8);
}

/* Full with cookies off: SYNs are dropped, nobody is reset; one place free, and it goes on.
 * Class 18.
 */
static void a_full_backlog_without_cookies(void **state)
{
	struct sim_config c = plain;
	struct wire *w;

	c.tcp[0].backlog = 4;
	c.tcp[0].syn_cookies = RP_SYN_COOKIES_OFF;
	w = wire_new(&c);
	assert_int_equal(app_listen(&w->app, 80, NULL), 0);
	for (unsigned i = 0; i < 40; i++) {
		w->remote_port = (uint16_t)(2000 + i);
		syn(w, 1000, mss_only, 4);
		if (i < 4)
			w->irs = wire_take(w)->seq; /* the last one's */
	}
	wire_none(w);
	assert_int_equal(counters(w)->listen_overflow, 36);
	w->remote_port = 2003;
	w->iss = 1000;
	wire_put(w, ACK, 1, 1, NULL, 0);
	assert_true(w->app.opened);
	w->remote_port = 3000;
	wire_none(w);
	syn(w, 5, mss_only, 4); /* within the same moment, let alone a second */
	assert_int_equal(wire_take(w)->flags, SYN | ACK);
	assert_int_equal(rp_tcp_unlisten(w->sim->host[0].stack, 80, w->sim->now_ns), 0);
	wire_free(w);
}

/* No connection is left: a good cookie is not answered by a reset, and works later. Class 18. */
static void a_cookie_without_a_place(void **state)
{
	struct sim_config c = plain;
	struct app other;
	struct wire *w;

	c.tcp[0].connections_max = 1;
	c.tcp[0].syn_cookies = RP_SYN_COOKIES_ALWAYS;
	w = wire_new(&c);
	assert_int_equal(app_listen(&w->app, 80, NULL), 0);
	app_init(&other, w->sim, 0, 1, 2);
	assert_int_equal(app_dial(&other, 99, NULL), 0);
	sim_turn(w->sim, 0);
	w->out_count = w->out_next = 0;
	w->local_port = 80;
	w->remote_port = 1234;
	syn(w, w->iss, mss_only, 4);
	w->irs = wire_take(w)->seq;
	wire_put(w, ACK, 1, 1, NULL, 0);
	wire_none(w);
	other.conn->transport->ops->abort(other.conn, w->sim->now_ns);
	sim_turn(w->sim, 0);
	w->out_count = w->out_next = 0;
	w->local_port = 80;
	w->remote_port = 1234;
	wire_put(w, ACK, 1, 1, NULL, 0);
	assert_true(w->app.opened);
	wire_free(w);
}

/* Over a bad network, with data both ways and the client speaking first. Class 19. */
static void transfers_by_cookie(void **state)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct sim_config c = {.seed = seed,
			.rtt_ns = 50000,
			.impair = {.drop = 0.02, .reorder = 0.05, .reorder_ns = 20000},
			.check_every = 5};
		struct sim *s;
		struct app a, b;

		c.tcp[1].syn_cookies = RP_SYN_COOKIES_ALWAYS;
		c.tcp[0].no_timestamps = seed % 2;
		s = sim_new(&c);
		app_init(&a, s, 0, 11, 22);
		app_init(&b, s, 1, 22, 11);
		a.to_send = 200000;
		b.to_send = 100000;
		SIM_CHECK(s, app_listen(&b, 9, NULL) == 0);
		SIM_CHECK(s, app_dial(&a, 9, NULL) == 0);
		sim_run(s, s->now_ns + 100 * S, NULL, NULL);
		SIM_CHECK(s, a.closed && b.closed);
		SIM_CHECK(s, a.received == 100000 && b.received == 200000);
		sim_free(s);
	}
}

/* Closes the connection of wire_accept() so that a record of it is left. */
static void to_time_wait(struct wire *w)
{
	app_close(&w->app);
	wire_wait(w, 0);
	wire_expect(w, FIN | ACK, 1, 1, 0);
	wire_put(w, FIN | ACK, 1, 2, NULL, 0);
	wire_expect(w, ACK, 2, 2, 0);
	assert_int_equal(usage(w).time_wait, 1);
	app_init(&w->app, w->sim, 0, 1, 2);
	w->app.close = APP_CLOSE_NEVER;
}

/* RFC 6191 2, case by case: who may open a connection that is in TIME-WAIT. Class 17. */
static void time_wait_and_who_comes_next(void **state)
{
	static const struct {
		bool had_ts, has_ts;
		int ts, seq; /* relative to what was last seen */
		bool taken;
	} cases[] = {
		{true, true, 1, -1000, true},
		{true, true, 0, 1000, true},
		{true, true, 0, -1000, false},
		{true, true, -1, 1000, false},
		{true, false, 0, 1000, true},
		{true, false, 0, -1000, false},
		{false, true, 0, -1000, true},
		{false, false, 0, 1000, true},
		{false, false, 0, -1000, false},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct wire *w = wire_new(&plain);
		uint8_t o[12] = {1, 1, 8, 10};
		struct wire_out *out;
		uint32_t last = w->irs;

		wire_accept(w, cases[i].had_ts);
		to_time_wait(w);
		last = w->irs + 2;
		put32(o + 4, 100 + (uint32_t)cases[i].ts);
		syn(w, w->iss + 2 + (uint32_t)cases[i].seq, cases[i].has_ts ? o : NULL,
			cases[i].has_ts ? 12 : 0);
		out = wire_take(w);
		if (!out || (out->flags == (SYN | ACK)) != cases[i].taken)
			fail_msg("case %u: flags %x", i, out ? out->flags : 0);
		if (cases[i].taken) /* its numbers are behind those of the old one */
			assert_true((int32_t)(out->seq - last) > 0);
		assert_int_equal(counters(w)->time_wait_reused, cases[i].taken);
		rp_tcp_unlisten(w->sim->host[0].stack, 80, w->sim->now_ns);
		wire_free(w);
	}
}

/* A connection that sent more than the clock of sequence numbers advanced. Class 17. */
static void numbers_go_on_after_a_fast_connection(void **state)
{
	struct wire *w = wire_new(&plain);
	struct wire_out *out;
	uint32_t sent = 0, end;

	wire_accept(w, true);
	while (sent < 3000000) {
		w->app.chunk = 14480;
		w->app.to_send += 14480;
		app_pump(&w->app);
		sim_turn(w->sim, 0);
		w->out_count = w->out_next = 0;
		sent += 14480;
		wire_put(w, ACK, 1, 1 + sent, NULL, 0);
	}
	app_close(&w->app);
	wire_wait(w, 0);
	w->out_count = w->out_next = 0;
	wire_put(w, FIN | ACK, 1, 2 + sent, NULL, 0);
	w->out_count = w->out_next = 0;
	end = w->irs + sent + 2;
	syn(w, w->iss + 1000, rich, 20);
	out = wire_take(w);
	if (out->flags != (SYN | ACK)) { /* the timestamp is the same: once more, a later one */
		uint8_t o[20];

		memcpy(o, rich, 20);
		o[11] = 200;
		syn(w, w->iss + 1000, o, 20);
		out = wire_take(w);
	}
	assert_int_equal(out->flags, SYN | ACK);
	assert_true((int32_t)(out->seq - end) > 0);
	rp_tcp_unlisten(w->sim->host[0].stack, 80, w->sim->now_ns);
	wire_free(w);
}

/*
 * All ports towards one peer: each once; then none is free, until a second of TIME-WAIT is over for
 * one that had timestamps. Class 17.
 */
static void every_port_once(void **state)
{
	struct sim_config c = {.seed = 2, .rtt_ns = 10000, .check_every = 100};
	static struct app a[41], b;
	bool seen[40] = {false};
	struct sim *s;

	c.tcp[0].port_first = 40000;
	c.tcp[0].port_last = 40039;
	c.tcp[0].time_wait_ns = 100 * S;
	s = sim_new(&c);
	app_init(&b, s, 1, 22, 11);
	SIM_CHECK(s, app_listen(&b, 9, NULL) == 0);
	for (unsigned i = 0; i < 40; i++) {
		struct rp_tcp_info in;

		app_init(&b, s, 1, 22, 11);
		b.close = APP_CLOSE_ON_FIN;
		app_init(&a[i], s, 0, 11, 22);
		a[i].close = APP_CLOSE_NEVER;
		SIM_CHECK(s, app_dial(&a[i], 9, NULL) == 0);
		rp_tcp_conn_info(a[i].conn, &in);
		SIM_CHECK(s, in.local.port >= 40000 && !seen[in.local.port - 40000]);
		seen[in.local.port - 40000] = true;
		sim_run(s, s->now_ns + MS, NULL, NULL);
		SIM_CHECK(s, a[i].opened);
		app_close(&a[i]);
		sim_run(s, s->now_ns + MS, NULL, NULL);
		SIM_CHECK(s, a[i].closed && b.closed);
	}
	app_init(&a[40], s, 0, 11, 22);
	app_init(&b, s, 1, 22, 11);
	SIM_CHECK(s, app_dial(&a[40], 9, NULL) == -EADDRNOTAVAIL);
	sim_run(s, s->now_ns + 2 * S, NULL, NULL);
	b.close = APP_CLOSE_ON_FIN;
	a[40].to_send = 1000;
	SIM_CHECK(s, app_dial(&a[40], 9, NULL) == 0);
	sim_run(s, s->now_ns + MS, NULL, NULL);
	SIM_CHECK(s, a[40].closed && b.received == 1000);
	SIM_CHECK(s, rp_tcp_counters(s->host[0].stack)->time_wait_reused == 1);
	sim_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cookie_with_timestamps),
		cmocka_unit_test(cookie_without_timestamps),
		cmocka_unit_test(cookies_that_are_none),
		cmocka_unit_test(cookies_last_a_minute),
		cmocka_unit_test(a_flood_of_syns),
		cmocka_unit_test(a_full_backlog_without_cookies),
		cmocka_unit_test(a_cookie_without_a_place),
		cmocka_unit_test(transfers_by_cookie),
		cmocka_unit_test(time_wait_and_who_comes_next),
		cmocka_unit_test(numbers_go_on_after_a_fast_connection),
		cmocka_unit_test(every_port_once),
	};

	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
