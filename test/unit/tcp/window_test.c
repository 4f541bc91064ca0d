/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/* Windows: closed, small, silly, scaled; ours and the peer's. */

static const struct sim_config plain = {.seed = 7, .rtt_ns = 1000};
#define MS RP_NS_PER_MS

static void ack_window(struct wire *w, uint32_t ack, uint16_t window)
{
	wire_send(
		w, &(struct wire_segment){
			   .flags = ACK, .seq = w->iss + 1, .ack = w->irs + ack, .window = window});
}

static void more(struct wire *w, uint32_t bytes)
{
	w->app.chunk = bytes;
	w->app.to_send += bytes;
	app_pump(&w->app);
	sim_turn(w->sim, 0);
}

static void a_minute_of_closed_window(void **state)
{
	struct wire *w = wire_new(&plain);
	uint64_t last_ns = 0, gap_ns = 0;
	unsigned probes = 0;
	uint64_t end_ns;

	wire_accept(w, false);
	ack_window(w, 1, 0);
	more(w, 5000);
	wire_none(w);
	end_ns = w->sim->now_ns + 300 * RP_NS_PER_S; /* five of them: longer than R2 */
	while (w->sim->now_ns < end_ns) {
		struct wire_out *o;

		wire_wait(w, MS);
		while ((o = wire_take(w))) {
			/* One before what is expected: it must be answered, and moves nothing. */
			assert_int_equal(o->seq, w->irs);
			assert_int_equal(o->length, 0);
			if (last_ns && gap_ns)
				assert_true(o->now_ns - last_ns + 2 * MS >=
					    RP_MIN(2 * gap_ns, 60 * RP_NS_PER_S));
			gap_ns = last_ns ? o->now_ns - last_ns : 0;
			last_ns = o->now_ns;
			probes++;
			ack_window(w, 1, 0);
			w->out_count = w->out_next = 0;
		}
	}
	assert_in_range(probes, 8, 30);
	assert_false(w->app.closed);
	ack_window(w, 1, 0xffff);
	wire_expect(w, ACK, 1, 1, 1460);
	wire_expect(w, ACK, 1461, 1, 1460);
	wire_expect(w, ACK, 2921, 1, 1460);
	wire_expect(w, ACK, 4381, 1, 620);
	/* The back-off of the probes is not that of the data. */
	wire_wait(w, 6 * MS);
	wire_expect(w, ACK, 1, 1, 1460);
	wire_free(w);
}

static void unanswered_probes_end(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	ack_window(w, 1, 0);
	more(w, 100);
	wire_wait(w, 170 * RP_NS_PER_S);
	assert_false(w->app.closed);
	wire_wait(w, 20 * RP_NS_PER_S);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_TIMEOUT);
	wire_free(w);
}

static void user_timeout_counts_a_closed_window(void **state)
{
	struct wire *w = wire_new(&plain);
	struct rp_conn_options o = {.user_timeout_ns = 2 * RP_NS_PER_S};

	assert_int_equal(app_dial(&w->app, 1234, &o), 0);
	sim_turn(w->sim, 0);
	w->irs = wire_take(w)->seq;
	wire_put(w, SYN | ACK, 0, 1, NULL, 0);
	ack_window(w, 1, 0);
	more(w, 100);
	for (unsigned i = 0; i < 199; i++) {
		wire_wait(w, 10 * MS);
		ack_window(w, 1, 0);
		w->out_count = w->out_next = 0;
	}
	assert_false(w->app.closed);
	wire_wait(w, 30 * MS);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_TIMEOUT);
	wire_free(w);
}

static void window_smaller_than_a_segment(void **state)
{
	struct wire *w = wire_new(&plain);
	uint32_t got = 0;

	assert_int_equal(app_listen(&w->app, 80, NULL), 0);
	wire_send(w, &(struct wire_segment){.flags = SYN, .seq = w->iss, .window = 100});
	w->irs = wire_take(w)->seq;
	ack_window(w, 1, 100);
	more(w, 1000);
	for (unsigned n = 0; got < 1000; n++) {
		struct wire_out *o = wire_take(w);

		assert_non_null(o);
		assert_int_equal(o->seq, w->irs + 1 + got);
		assert_in_range(o->length, 1, 100);
		assert_true(n < 12);
		for (unsigned i = 0; i < o->length; i++)
			assert_int_equal(o->data[i], app_byte(1, got + i));
		got += o->length;
		ack_window(w, 1 + got, 100);
	}
	wire_none(w);
	wire_free(w);
}

static void silly_window_waits_for_the_timer(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	ack_window(w, 1, 50); /* it has offered 65535 before */
	more(w, 3000);
	wire_none(w);
	wire_wait(w, 10 * MS);
	wire_expect(w, ACK, 1, 1, 50); /* the override */
	ack_window(w, 51, 50);
	wire_none(w);
	wire_free(w);
}

static void lost_window_update(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	ack_window(w, 1, 0);
	more(w, 1000);
	/* The peer opens again, and the update is lost: the next probe's answer says it. */
	wire_wait(w, 10 * MS);
	assert_non_null(wire_take(w));
	while (wire_take(w))
		;
	ack_window(w, 1, 8000);
	wire_expect(w, ACK, 1, 1, 1000);
	wire_free(w);
}

static void old_windows_do_not_count(void **state)
{
	struct wire *w = wire_new(&plain);
	uint8_t data[10];

	wire_accept(w, false);
	for (unsigned i = 0; i < 10; i++)
		data[i] = app_byte(2, i);
	wire_put(w, ACK, 1, 1, data, 10); /* WL1 is here now */
	wire_send(w, &(struct wire_segment){
			     .flags = ACK, .seq = w->iss + 1, .ack = w->irs + 1, .window = 0});
	w->out_count = w->out_next = 0;
	more(w, 100);
	wire_expect(w, ACK, 1, 11, 100); /* the zero came from before */
	wire_send(w, &(struct wire_segment){
			     .flags = ACK, .seq = w->iss + 11, .ack = w->irs + 101, .window = 0});
	more(w, 100);
	wire_none(w);
	/* The same sequence number with an older ACK (WL2). */
	wire_send(w, &(struct wire_segment){
			     .flags = ACK, .seq = w->iss + 11, .ack = w->irs + 50, .window = 500});
	wire_none(w);
	wire_free(w);
}

/* Fills our buffer; returns the bytes taken. Checks that the right edge never moves left. */
static uint32_t fill_up(struct wire *w, uint32_t piece, uint32_t most)
{
	uint32_t sent = 0, edge = 0;
	uint8_t data[1460];

	for (;;) {
		uint32_t n, told;
		struct wire_out *o;

		for (uint32_t i = 0; i < piece; i++)
			data[i] = app_byte(2, sent + i);
		wire_put(w, ACK, 1 + sent, 1, data, piece);
		wire_wait(w, 2 * MS);
		o = wire_take(w);
		assert_non_null(o);
		told = (uint32_t)o->window << 5;
		n = o->ack - w->iss - 1;
		assert_true(n + told >= edge);
		edge = RP_MAX(edge, n + told);
		w->out_count = w->out_next = 0;
		if (n == sent)
			return sent;
		sent = n;
		assert_true(sent <= most);
	}
}

static struct wire *held(void)
{
	struct sim_config c = plain;
	struct wire *w;

	c.tcp[0].receive_buffer_bytes = 1 << 20; /* shift 5 */
	w = wire_new(&c);
	wire_accept(w, true);
	w->app.hold = true;
	return w;
}

static void reopening_is_announced(void **state)
{
	static const uint32_t drains[] = {1, 100, 70000};
	struct wire *w = held();
	uint32_t taken = fill_up(w, 1460, (1 << 20) + 64);
	struct wire_out *o;

	assert_in_range(taken, (1 << 20) / 16 * 15 - 1460, (1 << 20) + 64);
	/* A little is not told: it would be a silly window. */
	for (unsigned i = 0; i < RP_ARRAY_SIZE(drains); i++) {
		w->app.held -= drains[i];
		w->app.conn->transport->ops->consume(w->app.conn, drains[i], w->sim->now_ns);
		sim_turn(w->sim, 0);
		if (i < 2)
			wire_none(w);
	}
	o = wire_take(w); /* within the same turn */
	assert_non_null(o);
	assert_int_equal(o->ack, w->iss + 1 + taken);
	assert_in_range((uint32_t)o->window << 5, 1448, 140000);
	app_consume(&w->app);
	sim_turn(w->sim, 0);
	o = wire_take(w);
	assert_non_null(o);
	assert_in_range((uint32_t)o->window << 5, (1 << 20) / 16 * 15 - 64, 1 << 20);
	wire_free(w);
}

static void single_bytes_do_not_creep_past_the_buffer(void **state)
{
	struct sim_config c = plain;
	struct wire *w;
	uint8_t byte;
	uint32_t n = 0;

	c.tcp[0].receive_buffer_bytes = 4096;
	w = wire_new(&c);
	wire_accept(w, true);
	w->app.hold = true;
	for (; n < 6000; n++) {
		byte = app_byte(2, n);
		wire_put(w, ACK, 1 + n, 1, &byte, 1);
		w->out_count = w->out_next = 0;
	}
	assert_in_range(w->app.received, 4096 - 1460, 4096 + 64);
	app_consume(&w->app);
	sim_turn(w->sim, 0);
	assert_int_equal(wire_take(w)->window, 4096);
	wire_free(w);
}

/* What cannot go yet stays with its owner, but for a bounded part; all of it goes in the end. */
static void the_unsent_part_is_bounded(void **state)
{
	static const uint32_t chunks[] = {64, 1000, 4096, 16384};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(chunks); i++) {
		struct sim_config c = plain;
		const uint32_t max = 100000, total = 1000000 / chunks[i] * chunks[i];
		struct wire *w;
		struct rp_tcp_info info;

		c.payload_mbufs = 4000;
		c.tcp[0].unsent_bytes_max = max;
		c.tcp[0].send_buffer_bytes = 400000;
		w = wire_new(&c);
		wire_accept(w, false);
		ack_window(w, 1, 0);
		w->app.chunk = chunks[i];
		w->app.to_send = total;
		app_pump(&w->app);
		sim_turn(w->sim, 0);
		rp_tcp_conn_info(w->app.conn, &info);
		assert_in_range(info.unsent, max - w->app.chunk + 1, max);
		assert_int_equal(w->app.sent, info.unsent);
		/* The window opens, and goes on: the owner hears of the room each time. */
		for (unsigned k = 0; k < 2000 && w->app.sent < total; k++) {
			rp_tcp_conn_info(w->app.conn, &info);
			ack_window(w, 1 + (uint32_t)w->app.sent - info.unsent, 0xffff);
			rp_tcp_conn_info(w->app.conn, &info);
			assert_true(info.unsent <= max);
			w->out_count = w->out_next = 0;
		}
		assert_int_equal(w->app.sent, total);
		wire_free(w);
	}
}

/* A message larger than the unsent part goes when nothing waits before it. */
static void a_large_message_goes_alone(void **state)
{
	struct sim_config c = plain;
	struct wire *w;
	struct rp_tcp_info info;

	c.tcp[0].unsent_bytes_max = 4096;
	w = wire_new(&c);
	wire_accept(w, false);
	ack_window(w, 1, 0);
	more(w, 100);
	w->app.chunk = 10000;
	w->app.to_send += 10000;
	app_pump(&w->app);
	assert_int_equal(w->app.sent, 100);
	sim_turn(w->sim, 0);
	assert_int_equal(w->app.sent, 100);
	ack_window(w, 1, 0xffff);
	assert_int_equal(w->app.sent, 10100);
	rp_tcp_conn_info(w->app.conn, &info);
	assert_int_equal(info.unsent, 0);
	wire_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_minute_of_closed_window),
		cmocka_unit_test(unanswered_probes_end),
		cmocka_unit_test(user_timeout_counts_a_closed_window),
		cmocka_unit_test(window_smaller_than_a_segment),
		cmocka_unit_test(silly_window_waits_for_the_timer),
		cmocka_unit_test(lost_window_update),
		cmocka_unit_test(old_windows_do_not_count),
		cmocka_unit_test(reopening_is_announced),
		cmocka_unit_test(the_unsent_part_is_bounded),
		cmocka_unit_test(a_large_message_goes_alone),
		cmocka_unit_test(single_bytes_do_not_creep_past_the_buffer),
	};

	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
