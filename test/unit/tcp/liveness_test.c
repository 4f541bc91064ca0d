/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/*
 * Is the other side still there, and still the one it was: keepalive (RFC 9293 3.8.4), peers that
 * start again, blind attacks (RFC 5961), errors that must not end a connection.
 */

static const struct sim_config plain = {.seed = 8, .rtt_ns = 1000};
#define MSS 1460
#define MS RP_NS_PER_MS
#define S RP_NS_PER_S
#define ICMP_UNREACHABLE 3
#define ICMP_QUENCH 4
#define ICMP_TIME_EXCEEDED 11

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

static struct wire *dialled(const struct rp_conn_options *o)
{
	struct wire *w = wire_new(&plain);

	assert_int_equal(app_dial(&w->app, 1234, o), 0);
	sim_turn(w->sim, 0);
	w->irs = wire_take(w)->seq;
	wire_put(w, SYN | ACK, 0, 1, NULL, 0);
	wire_expect(w, ACK, 1, 1, 0);
	return w;
}

static void more(struct wire *w, uint32_t bytes)
{
	w->app.chunk = bytes;
	w->app.to_send += bytes;
	app_pump(&w->app);
	sim_turn(w->sim, 0);
}

/* What `show tcp` says of timers is the one that is due first, and when. */
static void the_next_timer_is_named(void **state)
{
	const struct rp_conn_options o = {.keepalive_idle_ns = 60 * S};
	struct wire *w = dialled(NULL);
	uint8_t byte = app_byte(w->app.peer_pattern, 0);

	assert_string_equal(info(w).timer, "none");
	assert_true(info(w).deadline_ns == RP_NEVER);
	wire_free(w);
	w = dialled(&o);
	assert_string_equal(info(w).timer, "keepalive");
	assert_in_range(info(w).deadline_ns - w->sim->now_ns, 59 * S, 60 * S);
	wire_put(w, ACK, 1, 1, &byte, 1);
	assert_string_equal(info(w).timer, "ack");
	assert_in_range(info(w).deadline_ns - w->sim->now_ns, 1, S / 2);
	more(w, 100);
	wire_expect(w, ACK, 1, 2, 100);
	assert_string_equal(info(w).timer, "rto");
	assert_in_range(info(w).deadline_ns - w->sim->now_ns, 1, 3 * S);
	wire_put(w, ACK, 2, 101, NULL, 0);
	assert_string_equal(info(w).timer, "keepalive");
	app_close(&w->app);
	sim_turn(w->sim, 0);
	wire_expect(w, FIN | ACK, 101, 2, 0);
	wire_put(w, ACK, 2, 102, NULL, 0);
	assert_string_equal(info(w).state, "FIN-WAIT-2");
	assert_string_equal(info(w).timer, "fin-wait");
	wire_free(w);
}

/* By default there is none, however long the silence (MUST-25). Class 22. */
static void no_keepalive_unless_asked_for(void **state)
{
	struct wire *w = dialled(NULL);

	wire_wait(w, 30ull * 86400 * S);
	wire_none(w);
	assert_false(w->app.closed);
	wire_free(w);
}

/* Hours of silence: asked once each, answered, and it goes on. Class 22. */
static void keepalive_of_a_peer_that_is_there(void **state)
{
	const struct rp_conn_options o = {.keepalive_idle_ns = 7200 * S};
	struct wire *w = dialled(&o);
	uint64_t last_ns = w->sim->now_ns;

	for (unsigned i = 0; i < 20; i++) {
		struct wire_out *out;

		wire_wait(w, 7200 * S + S);
		out = wire_take(w);
		/* An old byte's number, and nothing with it; ACK, as any other (MUST-26). */
		assert_true(out && out->flags == ACK && out->seq == w->irs && out->length == 0);
		assert_in_range(out->now_ns - last_ns, 7200 * S, 7200 * S + 2 * S);
		wire_none(w);
		wire_put(w, ACK, 1, 1, NULL, 0);
		last_ns = w->sim->now_ns;
		assert_int_equal(info(w).keepalive_sent, 1);
	}
	assert_int_equal(counters(w)->keepalive_probes, 20);
	assert_false(w->app.closed);
	wire_free(w);
}

/* Nobody answers: so many probes, so far apart, then it is over, with a reset. Class 22. */
static void keepalive_of_a_peer_that_is_gone(void **state)
{
	const struct rp_conn_options o = {.keepalive_idle_ns = 60 * S,
		.keepalive_interval_ns = 10 * S,
		.keepalive_probes = 3};
	struct wire *w = dialled(&o);
	uint64_t start_ns = w->sim->now_ns;

	for (unsigned i = 0; i < 3; i++) {
		wire_wait(w, i ? 10 * S : 60 * S + MS);
		assert_in_range(wire_expect(w, ACK, 0, 1, 0)->now_ns - start_ns, (60 + 10 * i) * S,
			(60 + 10 * i) * S + 2 * MS);
		wire_none(w);
	}
	wire_wait(w, 9 * S);
	assert_false(w->app.closed);
	wire_wait(w, S);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_TIMEOUT);
	wire_expect(w, RST | ACK, 1, 1, 0);
	assert_int_equal(counters(w)->closed_keepalive, 1);
	wire_free(w);
}

/* One lost answer ends nothing (MUST-24). Class 22. */
static void keepalive_outlives_a_loss(void **state)
{
	const struct rp_conn_options o = {.keepalive_idle_ns = 60 * S,
		.keepalive_interval_ns = 10 * S,
		.keepalive_probes = 2};
	struct wire *w = dialled(&o);

	for (unsigned i = 0; i < 10; i++) {
		wire_wait(w, 72 * S);
		wire_expect(w, ACK, 0, 1, 0);
		wire_expect(w, ACK, 0, 1, 0); /* the second one is answered */
		wire_put(w, ACK, 1, 1, NULL, 0);
	}
	assert_false(w->app.closed);
	wire_free(w);
}

/* While data is under way, retransmission asks, and the user timeout decides. */
static void keepalive_waits_for_data(void **state)
{
	const struct rp_conn_options o = {.keepalive_idle_ns = 2 * S,
		.keepalive_interval_ns = S,
		.keepalive_probes = 1,
		.user_timeout_ns = 30 * S};
	struct wire *w = dialled(&o);

	more(w, 100);
	wire_wait(w, 29 * S);
	assert_false(w->app.closed);
	assert_int_equal(counters(w)->keepalive_probes, 0);
	wire_wait(w, 2 * S);
	assert_true(w->app.closed);
	w->out_count = w->out_next = 0;
	wire_free(w);

	/* The user timeout ends the questions as well (RFC 5482 4). */
	w = dialled(&(struct rp_conn_options){.keepalive_idle_ns = 2 * S,
		.keepalive_interval_ns = S,
		.keepalive_probes = 200,
		.user_timeout_ns = 10 * S});
	wire_wait(w, 9 * S);
	assert_false(w->app.closed);
	wire_wait(w, 2 * S);
	assert_true(w->app.closed);
	w->out_count = w->out_next = 0;
	wire_free(w);
}

/* Set later, and after our half of it is closed; and taken back. */
static void keepalive_set_later(void **state)
{
	struct wire *w = dialled(NULL);

	wire_wait(w, 100 * S);
	rp_tcp_shutdown(w->app.conn, w->sim->now_ns);
	sim_turn(w->sim, 0);
	wire_expect(w, FIN | ACK, 1, 1, 0);
	wire_put(w, ACK, 1, 2, NULL, 0);
	wire_wait(w, 1000 * S);
	wire_none(w);
	rp_tcp_set_keepalive(w->app.conn, 10 * S, S, 2, w->sim->now_ns);
	wire_wait(w, S / 2);
	wire_expect(w, ACK, 1, 1, 0);
	rp_tcp_set_keepalive(w->app.conn, 0, 0, 0, w->sim->now_ns);
	wire_wait(w, 1000 * S);
	wire_none(w);
	rp_tcp_set_keepalive(w->app.conn, 10 * S, S, 2, w->sim->now_ns);
	wire_wait(w, 5 * S);
	assert_true(w->app.closed);
	w->out_next = w->out_count;
	wire_free(w);
}

/*
 * The peer has started again and dials from the same port: it is asked, it answers with a reset,
 * and its next SYN is a new connection, within two round trips. Class 22.
 */
static void peer_starts_again_and_dials(void **state)
{
	struct wire *w = wire_new(&plain);
	struct wire_out *o;

	wire_accept(w, true);
	w->app.to_send = 0;
	for (unsigned i = 0; i < 2; i++) {
		/* Its new timestamps may be older or newer than those we know (RFC 7323 5.4). */
		uint8_t ts[12] = {1, 1, 8, 10, 0, 0, i ? 2 : 0, 0, 0, 0, 0, 0};
		uint32_t seq = w->iss + 5000000 + 1000 * i;

		wire_send(w, &(struct wire_segment){.flags = SYN,
				     .seq = seq,
				     .window = 0xffff,
				     .options = ts,
				     .options_length = 12});
		o = wire_take(w);
		assert_true(o && o->flags == ACK && o->seq == w->irs + 1 && o->ack == w->iss + 1);
		assert_false(w->app.closed);
	}
	/* Nothing but its sequence number: that is what a host without a connection sends. */
	wire_send(w, &(struct wire_segment){.flags = RST, .seq = o->ack});
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_RESET);
	wire_none(w);
	app_init(&w->app, w->sim, 0, 1, 2);
	w->app.close = APP_CLOSE_NEVER;
	w->iss += 5000000;
	w->ts = 0;
	wire_send(w, &(struct wire_segment){.flags = SYN, .seq = w->iss, .window = 0xffff});
	o = wire_take(w);
	assert_true(o && o->flags == (SYN | ACK) && o->ack == w->iss + 1);
	w->irs = o->seq;
	wire_put(w, ACK, 1, 1, NULL, 0);
	assert_true(w->app.opened);
	wire_free(w);
}

/* RFC 5961 3.2: a reset counts with exactly the next number; in the window it is asked back. */
static void resets_by_their_number(void **state)
{
	static const struct {
		uint32_t seq;
		bool answer;
	} cases[] = {{2, true}, {60000, true}, {0, false}, {0u - 5000, false}, {1u << 30, false}};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct wire *w = wire_new(&plain);

		wire_accept(w, false);
		wire_put(w, RST, cases[i].seq, 0, NULL, 0);
		assert_false(w->app.closed);
		if (cases[i].answer)
			wire_expect(w, ACK, 1, 1, 0);
		wire_none(w);
		wire_put(w, RST, 1, 0, NULL, 0);
		assert_true(w->app.closed);
		wire_free(w);
	}
}

/* RFC 5961 4.2: a SYN gets one answer wherever it lies, and ends nothing. */
static void syns_wherever_they_lie(void **state)
{
	static const uint32_t seqs[] = {0, 1, 2, 60000, 0u - 70000, 1u << 30};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(seqs); i++) {
		struct wire *w = wire_new(&plain);

		wire_accept(w, false);
		wire_put(w, SYN, seqs[i], 0, NULL, 0);
		wire_expect(w, ACK, 1, 1, 0);
		wire_put(w, SYN | ACK, seqs[i], 1, NULL, 0);
		wire_expect(w, ACK, 1, 1, 0);
		wire_none(w);
		assert_false(w->app.closed);
		assert_int_equal(counters(w)->challenge_acks, 2);
		wire_free(w);
	}
}

/* RFC 5961 5.2: acknowledgements of what was never sent, or of what is too long ago. */
static void acks_by_their_number(void **state)
{
	struct wire *w = wire_new(&plain);
	uint8_t byte = app_byte(2, 0);

	wire_accept(w, false);
	more(w, 100);
	wire_take(w);
	wire_put(w, ACK, 1, 102, &byte, 1); /* never sent: its data is not taken either */
	wire_expect(w, ACK, 101, 1, 0);
	wire_put(w, ACK, 1, 1u - 70000, &byte, 1);
	wire_expect(w, ACK, 101, 1, 0);
	assert_int_equal(w->app.received, 0);
	assert_int_equal(counters(w)->drop_ack, 2);
	wire_put(w, ACK, 1, 0, &byte, 1); /* old, within the largest window: taken */
	assert_int_equal(w->app.received, 1);
	wire_free(w);
}

/*
 * A peer that answers each challenge with something that is challenged again: it comes to an end,
 * of the connection first, then of the whole stack (RFC 5961 7). Class 21.
 */
static void challenges_are_limited(void **state)
{
	struct wire *w = wire_new(&plain);
	unsigned sent = 0;

	wire_accept(w, false);
	for (unsigned i = 0; i < 1000; i++) {
		wire_put(w, i % 2 ? RST : SYN, 100 + i, 0, NULL, 0);
		while (wire_take(w))
			sent++;
	}
	assert_in_range(sent, 5, 10);
	w->out_count = w->out_next = sent = 0;
	for (unsigned i = 0; i < 1000; i++) {
		wire_wait(w, MS);
		wire_put(w, i % 2 ? RST : SYN, 100 + i, 0, NULL, 0);
		while (wire_take(w))
			sent++;
	}
	assert_in_range(sent, 15, 31); /* 20 a second, and what had gathered */
	assert_false(w->app.closed);
	wire_free(w);
}

/* The same with old timestamps, which are acknowledged as well (RFC 7323 5.3). Class 21. */
static void old_timestamps_do_not_echo_for_ever(void **state)
{
	struct wire *w = wire_new(&plain);
	unsigned sent = 0;

	wire_accept(w, true);
	w->ts -= 1000;
	for (unsigned i = 0; i < 1000; i++) {
		wire_put(w, ACK, 1, 1, NULL, 0);
		while (wire_take(w))
			sent++;
	}
	assert_in_range(sent, 1, 10);
	assert_int_equal(counters(w)->drop_paws, 1000);
	wire_free(w);
}

/* Both windows closed, both sides probing: no storm. Class 21. */
static void two_closed_windows(void **state)
{
	struct sim_config c = {.seed = 3, .rtt_ns = 100000};
	struct sim *s;
	struct app a, b;
	uint64_t frames;

	for (unsigned h = 0; h < 2; h++)
		c.tcp[h].receive_buffer_bytes = 8192;
	s = sim_new(&c);
	app_init(&a, s, 0, 11, 22);
	app_init(&b, s, 1, 22, 11);
	a.close = b.close = APP_CLOSE_NEVER;
	a.hold = b.hold = true;
	a.to_send = b.to_send = 100000;
	SIM_CHECK(s, app_listen(&b, 9, NULL) == 0);
	SIM_CHECK(s, app_dial(&a, 9, NULL) == 0);
	sim_run(s, s->now_ns + 10 * S, NULL, NULL);
	frames = s->frames[0] + s->frames[1];
	sim_run(s, s->now_ns + 60 * S, NULL, NULL);
	frames = s->frames[0] + s->frames[1] - frames;
	SIM_CHECK(s, frames > 2 && frames < 60);
	a.hold = b.hold = false;
	app_consume(&a);
	app_consume(&b);
	sim_run(s, s->now_ns + 2 * S, NULL, NULL);
	SIM_CHECK(s, a.received == 100000 && b.received == 100000);
	app_close(&a);
	app_close(&b);
	sim_run(s, s->now_ns + 5 * S, NULL, NULL);
	sim_free(s);
}

/* RFC 1122 4.2.3.9, RFC 5927 5.2: no ICMP error ends an open connection (MUST-55, MUST-56). */
static void errors_that_end_nothing(void **state)
{
	static const uint8_t kinds[][2] = {{ICMP_UNREACHABLE, 0}, {ICMP_UNREACHABLE, 1},
		{ICMP_UNREACHABLE, 2}, {ICMP_UNREACHABLE, 3}, {ICMP_UNREACHABLE, 5},
		{ICMP_UNREACHABLE, 13}, {ICMP_QUENCH, 0}, {ICMP_TIME_EXCEEDED, 0}};
	struct wire *w = wire_new(&plain);
	uint32_t cwnd;

	wire_accept(w, false);
	more(w, 100);
	wire_take(w);
	cwnd = info(w).cwnd;
	for (unsigned i = 0; i < RP_ARRAY_SIZE(kinds); i++) {
		wire_icmp(w, kinds[i][0], kinds[i][1], 0, w->irs + 1);
		wire_icmp(w, kinds[i][0], kinds[i][1], 0, w->irs + 5000);
		assert_false(w->app.closed);
	}
	assert_int_equal(info(w).cwnd, cwnd); /* source quench means nothing (RFC 6633) */
	/* ICMPv6 has no source quench: the test sends another one in its place. */
	assert_int_equal(counters(w)->icmp_soft, sim_family() == 6 ? 8 : 7);
	wire_put(w, ACK, 1, 101, NULL, 0);
	assert_int_equal(info(w).unacked, 0);
	wire_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_next_timer_is_named),
		cmocka_unit_test(no_keepalive_unless_asked_for),
		cmocka_unit_test(keepalive_of_a_peer_that_is_there),
		cmocka_unit_test(keepalive_of_a_peer_that_is_gone),
		cmocka_unit_test(keepalive_outlives_a_loss),
		cmocka_unit_test(keepalive_waits_for_data),
		cmocka_unit_test(keepalive_set_later),
		cmocka_unit_test(peer_starts_again_and_dials),
		cmocka_unit_test(resets_by_their_number),
		cmocka_unit_test(syns_wherever_they_lie),
		cmocka_unit_test(acks_by_their_number),
		cmocka_unit_test(challenges_are_limited),
		cmocka_unit_test(old_timestamps_do_not_echo_for_ever),
		cmocka_unit_test(two_closed_windows),
		cmocka_unit_test(errors_that_end_nothing),
	};

	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
