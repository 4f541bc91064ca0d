/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/* Timeouts and recoveries that were for nothing, and their undoing; and those that were not. */

/* A peer that may delay its acknowledgements: with others a timeout comes after several probes. */
static const struct sim_config plain = {
	.seed = 6, .rtt_ns = 1000, .tcp = {{.ack_delay_max_ns = 40 * RP_NS_PER_MS}}};
#define MSS 1448
#define MS RP_NS_PER_MS
#define S RP_NS_PER_S

static struct rp_tcp_info info(struct wire *w)
{
	struct rp_tcp_info i;

	rp_tcp_conn_info(w->app.conn, &i);
	return i;
}

static void put32(uint8_t *p, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void more(struct wire *w, uint32_t bytes)
{
	w->app.chunk = bytes;
	w->app.to_send += bytes;
	app_pump(&w->app);
	sim_turn(w->sim, 0);
}

/* An ACK that echoes `echo` (0: no timestamps at all), with one SACK block where `to` is not 0. */
static void ack(struct wire *w, uint32_t number, uint32_t echo, uint32_t from, uint32_t to)
{
	uint8_t o[28] = {1, 1, 8, 10};
	unsigned n = 0;

	if (echo) {
		put32(o + 4, ++w->ts);
		put32(o + 8, echo);
		n = 12;
	}
	if (to) {
		memcpy(o + n, (uint8_t[]){1, 1, 5, 10}, 4);
		put32(o + n + 4, w->irs + from);
		put32(o + n + 8, w->irs + to);
		n += 12;
	}
	wire_send(w, &(struct wire_segment){.flags = ACK,
			     .seq = w->iss + 1,
			     .ack = w->irs + number,
			     .window = 0xffff,
			     .options = o,
			     .options_length = n});
}

/* Accepts with SACK, and timestamps where `ts`; one round trip of 2 ms is measured. */
static struct wire *start(bool ts)
{
	static const uint8_t with[20] = {
		2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 100, 0, 0, 0, 0, 1, 3, 3, 7};
	static const uint8_t without[12] = {2, 4, 0x05, 0xa8, 1, 1, 4, 2, 1, 3, 3, 7};
	struct wire *w = wire_new(&plain);
	struct wire_out *out;

	SIM_CHECK(w->sim, app_listen(&w->app, 80, NULL) == 0);
	wire_send(w, &(struct wire_segment){.flags = SYN,
			     .seq = w->iss,
			     .window = 0xffff,
			     .options = ts ? with : without,
			     .options_length = ts ? 20 : 12});
	out = wire_take(w);
	w->irs = out->seq;
	w->ts = 100;
	ack(w, 1, ts ? out->ts_value : 0, 0, 0);
	SIM_CHECK(w->sim, w->app.opened);
	more(w, MSS);
	out = wire_take(w);
	wire_wait(w, 2 * MS);
	w->out_next = w->out_count;
	ack(w, 1 + MSS, ts ? out->ts_value : 0, 0, 0);
	return w;
}

#define FIRST (1 + MSS)

/*
 * The path stalls: the timeout fires, the first segment goes again; then the acknowledgements of
 * the first transmissions come. Eifel by the timestamp (RFC 3522), and nothing else goes again.
 */
static void a_stall_with_timestamps(void **state)
{
	struct wire *w = start(true);
	uint32_t ts, cwnd = info(w).cwnd;
	uint64_t srtt_ns = info(w).srtt_ns;

	more(w, 8 * MSS);
	ts = wire_take(w)->ts_value;
	wire_wait(w, 40 * MS);
	assert_true(info(w).rtos >= 1);
	assert_int_equal(info(w).cwnd <= 2 * MSS, 1);
	w->out_next = w->out_count;
	ack(w, FIRST + MSS, ts, 0, 0);
	assert_int_equal(info(w).undos, 1);
	assert_true(info(w).cwnd >= cwnd);
	assert_false(info(w).recovery);
	assert_int_equal(info(w).backoff, 0);
	wire_none(w);
	for (unsigned i = 2; i <= 8; i++)
		ack(w, FIRST + i * MSS, ts, 0, 0);
	wire_none(w);
	assert_int_equal(info(w).unacked, 0);
	/* RFC 4015: the timeout has learned. */
	assert_true(info(w).srtt_ns > srtt_ns + 3 * MS);
	assert_true(info(w).rto_ns > 40 * MS);
	wire_free(w);
}

/* A true loss of everything: the echo is that of the retransmission. */
static void a_true_timeout_with_timestamps(void **state)
{
	struct wire *w = start(true);
	struct wire_out *out;
	uint32_t cwnd = info(w).cwnd;

	more(w, 8 * MSS);
	for (unsigned i = 0; i < 8; i++)
		wire_take(w);
	wire_wait(w, 12 * MS);
	for (out = wire_take(w); out && out->seq != w->irs + FIRST; out = wire_take(w))
		;
	assert_non_null(out);
	w->out_next = w->out_count;
	ack(w, FIRST + MSS, out->ts_value, 0, 0);
	assert_int_equal(info(w).undos, 0);
	assert_true(info(w).recovery);
	assert_true(info(w).cwnd < cwnd);
	assert_int_equal(wire_take(w)->seq, w->irs + FIRST + MSS); /* the next hole */
	/* A later ACK with an old echo is nothing to go by any more. */
	ack(w, FIRST + 2 * MSS, out->ts_value - 50, 0, 0);
	assert_int_equal(info(w).undos, 0);
	wire_free(w);
}

/* No timestamps: an ACK that takes what was sent before, once, together with the first (F-RTO). */
static void a_stall_without_timestamps(void **state)
{
	struct wire *w = start(false);
	uint32_t cwnd = info(w).cwnd;
	uint64_t rtx;

	more(w, 8 * MSS);
	wire_wait(w, 12 * MS);
	assert_int_equal(info(w).rtos, 1);
	w->out_next = w->out_count;
	ack(w, FIRST + 3 * MSS, 0, 0, 0);
	assert_int_equal(info(w).undos, 1);
	assert_true(info(w).cwnd >= cwnd);
	rtx = info(w).rtx_segments;
	wire_wait(w, MS);
	ack(w, FIRST + 8 * MSS, 0, 0, 0);
	assert_int_equal(info(w).rtx_segments, rtx);
	assert_int_equal(info(w).unacked, 0);
	wire_free(w);
}

/* Without SACK as well: it may be that only the first was lost, and the rest waited for it. */
static void nothing_to_go_by(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	more(w, 8 * 1460);
	wire_wait(w, 6 * MS);
	assert_int_equal(info(w).rtos, 1);
	wire_put(w, ACK, 1, 1 + 8 * 1460, NULL, 0);
	assert_int_equal(info(w).undos, 0);
	assert_true(info(w).ssthresh <= 7 * 1460);
	wire_free(w);
}

/* Only what went again is acknowledged: a timeout as it should be. */
static void a_true_timeout_without_timestamps(void **state)
{
	struct wire *w = start(false);

	more(w, 8 * MSS);
	wire_wait(w, 12 * MS);
	ack(w, FIRST + MSS, 0, 0, 0);
	assert_int_equal(info(w).undos, 0);
	/* And from then on every ACK is one of retransmissions, as far as can be known. */
	ack(w, FIRST + 3 * MSS, 0, 0, 0);
	assert_int_equal(info(w).undos, 0);
	assert_true(info(w).recovery);
	wire_free(w);
}

/* Reordering by more than RACK allows for: the recovery is undone by the echo (RFC 3522). */
static void a_late_segment_with_timestamps(void **state)
{
	struct wire *w = start(true);
	uint32_t ts, cwnd;

	more(w, 9 * MSS);
	ts = wire_take(w)->ts_value;
	cwnd = info(w).cwnd;
	wire_wait(w, 3 * MS);
	ack(w, FIRST, ts, FIRST + MSS, FIRST + 5 * MSS);
	wire_wait(w, 2 * MS);
	assert_true(info(w).recovery);
	assert_true(info(w).rtx_segments >= 1);
	ack(w, FIRST + 5 * MSS, ts, 0, 0); /* the first one was only late */
	assert_int_equal(info(w).undos, 1);
	assert_true(info(w).cwnd >= cwnd && info(w).cwnd < 100 * MSS);
	assert_true(info(w).reordering);
	assert_false(info(w).recovery);
	wire_free(w);
}

/* An undo in the middle, with more to send again: no window without a bound comes of it. */
static void an_undo_with_losses_left(void **state)
{
	struct wire *w = start(true);
	uint32_t ts;

	more(w, 10 * MSS);
	ts = wire_take(w)->ts_value;
	wire_wait(w, 3 * MS);
	ack(w, FIRST, ts, FIRST + 6 * MSS, FIRST + 9 * MSS);
	wire_wait(w, MS);
	ack(w, FIRST + MSS, ts, FIRST + 6 * MSS, FIRST + 9 * MSS);
	assert_int_equal(info(w).undos, 1);
	assert_null(rp_tcp_check(w->sim->host[0].stack));
	ack(w, FIRST + 10 * MSS, ts, 0, 0);
	assert_true(info(w).cwnd < 100 * MSS);
	assert_int_equal(info(w).unacked, 0);
	wire_free(w);
}

/* In bulk: a path that stalls for longer than the timeout, again and again, loses no window. */
static void stalls_in_bulk(void **state)
{
	struct sim_config c = {.seed = 5, .rtt_ns = 4 * MS, .byte_ps = 8000, .check_every = 10};
	const struct rp_tcp_counters *n;
	struct sim *s = sim_new(&c);
	struct app a, b;

	app_init(&a, s, 0, 11, 22);
	app_init(&b, s, 1, 22, 11);
	a.to_send = 30 << 20;
	SIM_CHECK(s, app_listen(&b, 9, NULL) == 0);
	SIM_CHECK(s, app_dial(&a, 9, NULL) == 0);
	for (unsigned i = 0; i < 20; i++) {
		sim_run(s, s->now_ns + 10 * MS, NULL, NULL);
		/* Nothing is received for a while; it is all there afterwards. */
		s->paused_ns[1] = s->now_ns + 60 * MS;
	}
	sim_run(s, s->now_ns + 20 * S, NULL, NULL);
	SIM_CHECK(s, a.closed && b.received == 30 << 20);
	n = rp_tcp_counters(s->host[0].stack);
	SIM_CHECK(s, n->rto > 3 && n->undo >= n->rto / 3);
	SIM_CHECK(s, n->rtx_segments < n->tx_segments / 50);
	sim_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stall_with_timestamps),
		cmocka_unit_test(a_true_timeout_with_timestamps),
		cmocka_unit_test(a_stall_without_timestamps),
		cmocka_unit_test(nothing_to_go_by),
		cmocka_unit_test(a_true_timeout_without_timestamps),
		cmocka_unit_test(a_late_segment_with_timestamps),
		cmocka_unit_test(an_undo_with_losses_left),
		cmocka_unit_test(stalls_in_bulk),
	};

	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
