/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/* ECN by hand: negotiation, marks, echoes (RFC 3168), DCTCP's echo (RFC 8257 3.2). */

static const struct sim_config plain = {.seed = 9, .rtt_ns = 1000};
#define MS RP_NS_PER_MS
#define MSS 1460
#define CE RP_NET_ECN_CE
#define ECT0 RP_NET_ECN_ECT0

static const uint8_t syn_options[4] = {2, 4, 0x05, 0xb4};

/* A SYN with these flags; what the SYN-ACK has besides. */
static uint8_t accept_with(struct wire *w, const struct rp_conn_options *o, uint8_t flags)
{
	struct wire_out *out;

	SIM_CHECK(w->sim, app_listen(&w->app, 80, o) == 0);
	wire_send(w, &(struct wire_segment){.flags = SYN | flags,
			     .seq = w->iss,
			     .window = 0xffff,
			     .options = syn_options,
			     .options_length = sizeof(syn_options)});
	out = wire_take(w);
	SIM_CHECK(w->sim, out && (out->flags & (SYN | ACK)) == (SYN | ACK));
	w->irs = out->seq;
	assert_int_equal(out->ecn, 0);
	return out->flags & (ECE | CWR);
}

static struct wire *start(const struct rp_conn_options *o)
{
	struct wire *w = wire_new(&plain);

	assert_int_equal(accept_with(w, o, ECE | CWR), ECE);
	wire_put(w, ACK, 1, 1, NULL, 0);
	SIM_CHECK(w->sim, w->app.opened);
	return w;
}

static struct rp_tcp_info info(struct wire *w)
{
	struct rp_tcp_info i;

	rp_tcp_conn_info(w->app.conn, &i);
	return i;
}

static void more(struct wire *w, uint32_t bytes)
{
	w->app.chunk = bytes;
	w->app.to_send += bytes;
	app_pump(&w->app);
	sim_turn(w->sim, 0);
}

static void data(struct wire *w, uint8_t flags, uint32_t seq, uint32_t ack, uint32_t n, uint8_t ecn)
{
	uint8_t bytes[MSS];

	for (uint32_t i = 0; i < n; i++)
		bytes[i] = app_byte(w->app.peer_pattern, seq - 1 + i);
	wire_send(w, &(struct wire_segment){.flags = ACK | flags,
			     .seq = w->iss + seq,
			     .ack = w->irs + ack,
			     .window = 0xffff,
			     .data = bytes,
			     .length = n,
			     .ecn = ecn});
}

static void who_offers_and_who_accepts(void **state)
{
	static const struct {
		enum rp_ecn ecn;
		uint8_t offer, answer;
	} cases[] = {
		{RP_ECN_DEFAULT, ECE | CWR, ECE}, {RP_ECN_ACCEPT, ECE | CWR, ECE},
		{RP_ECN_ASK, ECE | CWR, ECE}, {RP_ECN_OFF, ECE | CWR, 0}, {RP_ECN_ASK, 0, 0},
		{RP_ECN_ASK, ECE, 0}, /* no offer */
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct rp_conn_options o = {.ecn = cases[i].ecn};
		struct wire *w = wire_new(&plain);

		assert_int_equal(accept_with(w, &o, cases[i].offer), cases[i].answer);
		wire_put(w, ACK, 1, 1, NULL, 0);
		assert_int_equal(info(w).ecn, cases[i].answer != 0);
		more(w, 100);
		assert_int_equal(wire_take(w)->ecn, cases[i].answer ? ECT0 : 0);
		wire_free(w);
	}
}

static void dialling(void **state)
{
	static const struct {
		enum rp_ecn ecn;
		uint8_t offer, answer;
		bool agreed;
	} cases[] = {
		{RP_ECN_ASK, ECE | CWR, ECE, true},
		{RP_ECN_ASK, ECE | CWR, 0, false},
		{RP_ECN_ASK, ECE | CWR, ECE | CWR, false}, /* our own flags, reflected */
		{RP_ECN_DEFAULT, 0, 0, false},
		{RP_ECN_DEFAULT, 0, ECE, false}, /* nobody asked */
		{RP_ECN_OFF, 0, ECE, false},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct rp_conn_options o = {.ecn = cases[i].ecn};
		struct wire *w = wire_new(&plain);
		struct wire_out *out;

		assert_int_equal(app_dial(&w->app, 1234, &o), 0);
		sim_turn(w->sim, 0);
		out = wire_take(w);
		assert_int_equal(out->flags, SYN | cases[i].offer);
		assert_int_equal(out->ecn, 0);
		w->irs = out->seq;
		wire_put(w, SYN | ACK | cases[i].answer, 0, 1, NULL, 0);
		assert_int_equal(wire_take(w)->flags, ACK);
		assert_int_equal(info(w).ecn, cases[i].agreed);
		wire_free(w);
	}
}

/* RFC 3168 6.1.1.1: a SYN that gets no answer goes again without the offer. */
static void fallback_of_a_lost_syn(void **state)
{
	struct rp_conn_options o = {.ecn = RP_ECN_ASK};

	for (unsigned late = 0; late < 2; late++) {
		struct wire *w = wire_new(&plain);

		assert_int_equal(app_dial(&w->app, 1234, &o), 0);
		wire_wait(w, 1100 * MS);
		w->irs = w->out[0].seq;
		assert_int_equal(wire_take(w)->flags, SYN | ECE | CWR);
		assert_int_equal(wire_take(w)->flags, SYN);
		/* It was the first that was answered, after all: its sender may mark, we do not. */
		wire_put(w, late ? SYN | ACK | ECE : SYN | ACK, 0, 1, NULL, 0);
		assert_int_equal(wire_take(w)->flags, ACK);
		assert_false(info(w).ecn);
		more(w, 100);
		assert_int_equal(wire_take(w)->ecn, 0);
		data(w, 0, 1, 101, MSS, CE);
		wire_wait(w, 2 * MS);
		assert_int_equal(wire_take(w)->flags, late ? ACK | ECE : ACK);
		wire_free(w);
	}
}

/* RP_ECN_INSIST: the question goes with each SYN, so one that is lost costs nothing but time. */
static void a_lost_syn_with_insistence(void **state)
{
	struct rp_conn_options o = {.congestion = RP_CONGESTION_DCTCP, .ecn = RP_ECN_INSIST};
	struct wire *w = wire_new(&plain);

	assert_int_equal(app_dial(&w->app, 1234, &o), 0);
	wire_wait(w, 7100 * MS);
	w->irs = w->out[0].seq;
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(wire_take(w)->flags, SYN | ECE | CWR);
	wire_put(w, SYN | ACK | ECE, 0, 1, NULL, 0);
	assert_int_equal(wire_take(w)->flags, ACK);
	assert_true(info(w).ecn);
	assert_string_equal(info(w).congestion, "dctcp");
	wire_free(w);
}

/* The peer's SYN comes again, without its offer: it gave ECN up. */
static void peer_falls_back(void **state)
{
	struct wire *w = wire_new(&plain);

	assert_int_equal(accept_with(w, NULL, ECE | CWR), ECE);
	wire_wait(w, 100 * MS);
	wire_send(w, &(struct wire_segment){.flags = SYN,
			     .seq = w->iss,
			     .window = 0xffff,
			     .options = syn_options,
			     .options_length = sizeof(syn_options)});
	assert_int_equal(wire_take(w)->flags, SYN | ACK);
	wire_put(w, ACK, 1, 1, NULL, 0);
	assert_false(info(w).ecn);
	wire_free(w);
}

/* ECT on new data only: not on what goes again, not on acknowledgements (6.1.4, 6.1.5). */
static void what_may_be_marked(void **state)
{
	struct wire *w = start(NULL);

	more(w, 100);
	assert_int_equal(wire_expect(w, ACK, 1, 1, 100)->ecn, ECT0);
	wire_wait(w, 6 * MS);
	assert_int_equal(wire_expect(w, ACK, 1, 1, 100)->ecn, 0);
	data(w, 0, 1, 101, 100, ECT0);
	wire_wait(w, 2 * MS);
	assert_int_equal(wire_expect(w, ACK, 101, 101, 0)->ecn, 0);
	/* New data after the timeout says that the window was reduced. */
	more(w, 100);
	assert_int_equal(wire_expect(w, ACK | CWR, 101, 101, 100)->ecn, ECT0);
	wire_put(w, ACK, 101, 201, NULL, 0);
	more(w, 100);
	wire_expect(w, ACK, 201, 101, 100);
	wire_free(w);
}

/* 6.1.3: ECE on every acknowledgement until CWR. */
static void marks_are_echoed_until_cwr(void **state)
{
	struct wire *w = start(NULL);

	data(w, 0, 1, 1, 10, ECT0);
	wire_wait(w, 2 * MS);
	wire_expect(w, ACK, 1, 11, 0);
	data(w, 0, 11, 1, 10, CE);
	wire_wait(w, 2 * MS);
	wire_expect(w, ACK | ECE, 1, 21, 0);
	data(w, 0, 21, 1, 10, ECT0);
	wire_wait(w, 2 * MS);
	wire_expect(w, ACK | ECE, 1, 31, 0);
	more(w, 10);
	wire_expect(w, ACK | ECE, 1, 31, 10);
	data(w, CWR, 31, 11, 10, ECT0);
	wire_wait(w, 2 * MS);
	wire_expect(w, ACK, 11, 41, 0);
	data(w, CWR, 41, 11, 10, CE); /* a new mark on the segment that ends the echo */
	wire_wait(w, 2 * MS);
	wire_expect(w, ACK | ECE, 11, 51, 0);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->ecn_ce_rx, 2);
	wire_free(w);
}

/* Marks on segments outside of the window, or without data, mean nothing. */
static void marks_that_do_not_count(void **state)
{
	struct wire *w = start(NULL);

	data(w, 0, 1u + (1u << 21), 1, 10, CE);
	wire_expect(w, ACK, 1, 1, 0);
	data(w, 0, 1, 1, 0, CE);
	data(w, 0, 1, 1, 10, 0);
	wire_wait(w, 2 * MS);
	wire_expect(w, ACK, 1, 11, 0);
	wire_free(w);
}

/* 6.1.2: one reduction a window of data, then CWR; no growth by acknowledgements with ECE. */
static void echoes_reduce_once_a_window(void **state)
{
	struct wire *w = start(NULL);
	uint32_t cwnd = info(w).cwnd, reduced;

	more(w, 10 * MSS);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(wire_take(w)->ecn, ECT0);
	wire_put(w, ACK | ECE, 1, 1 + 2 * MSS, NULL, 0);
	reduced = info(w).cwnd;
	assert_in_range(reduced, cwnd * 5 / 10, cwnd * 8 / 10);
	for (unsigned i = 2; i < 5; i++)
		wire_put(w, ACK | ECE, 1, 1 + 2 * i * MSS, NULL, 0);
	assert_int_equal(info(w).cwnd, reduced);
	more(w, 3 * MSS);
	wire_expect(w, ACK | CWR, 1 + 10 * MSS, 1, MSS);
	wire_expect(w, ACK, 1 + 11 * MSS, 1, MSS);
	wire_expect(w, ACK, 1 + 12 * MSS, 1, MSS);
	wire_put(w, ACK | ECE, 1, 1 + 10 * MSS, NULL, 0);
	assert_int_equal(info(w).cwnd, reduced); /* still of the old window */
	wire_put(w, ACK | ECE, 1, 1 + 12 * MSS, NULL, 0);
	assert_true(info(w).cwnd < reduced);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->ecn_reductions, 2);
	assert_int_equal(info(w).rtx_segments, 0);
	wire_free(w);
}

/* RFC 8257 3.2: when the mark changes, what waits is acknowledged at once, with the old echo. */
static void dctcp_tells_each_change(void **state)
{
	struct rp_conn_options o = {.congestion = RP_CONGESTION_DCTCP, .ecn = RP_ECN_ASK};
	struct wire *w = start(&o);

	assert_string_equal(info(w).congestion, "dctcp");
	data(w, 0, 1, 1, 10, ECT0);
	wire_none(w);
	data(w, 0, 11, 1, 10, CE);
	wire_expect(w, ACK, 1, 11, 0);
	data(w, 0, 21, 1, 10, CE);
	wire_none(w);
	data(w, 0, 31, 1, 10, ECT0);
	wire_expect(w, ACK | ECE, 1, 31, 0);
	wire_wait(w, 2 * MS);
	wire_expect(w, ACK, 1, 41, 0);
	/* CWR means nothing to it. */
	data(w, 0, 41, 1, 10, CE);
	data(w, CWR, 51, 1, 10, CE);
	wire_wait(w, 2 * MS);
	wire_expect(w, ACK | ECE, 1, 61, 0);
	wire_free(w);
}

static void dctcp_reduces_by_the_marked_part(void **state)
{
	struct rp_conn_options o = {.congestion = RP_CONGESTION_DCTCP, .ecn = RP_ECN_ASK};
	struct wire *w = start(&o);
	uint32_t end = 0, cwnd;

	/* Windows without marks bring alpha down. */
	for (unsigned i = 0; i < 40; i++) {
		more(w, MSS);
		end += MSS;
		wire_take(w);
		wire_put(w, ACK, 1, 1 + end, NULL, 0);
	}
	cwnd = info(w).cwnd;
	more(w, MSS);
	end += MSS;
	wire_take(w);
	wire_put(w, ACK | ECE, 1, 1 + end, NULL, 0);
	assert_in_range(info(w).cwnd, cwnd * 85 / 100, cwnd - 1);
	wire_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_offers_and_who_accepts),
		cmocka_unit_test(dialling),
		cmocka_unit_test(fallback_of_a_lost_syn),
		cmocka_unit_test(a_lost_syn_with_insistence),
		cmocka_unit_test(peer_falls_back),
		cmocka_unit_test(what_may_be_marked),
		cmocka_unit_test(marks_are_echoed_until_cwr),
		cmocka_unit_test(marks_that_do_not_count),
		cmocka_unit_test(echoes_reduce_once_a_window),
		cmocka_unit_test(dctcp_tells_each_change),
		cmocka_unit_test(dctcp_reduces_by_the_marked_part),
	};

	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
