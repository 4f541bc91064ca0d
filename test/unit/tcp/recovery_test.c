/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/* Retransmission timeout, fast retransmit with and without SACK, RACK, tail loss probe, undo. */

/* A peer that may delay its acknowledgements: others are probed more than once. */
static const struct sim_config plain = {
	.seed = 6, .rtt_ns = 1000, .tcp = {{.ack_delay_max_ns = 11 * RP_NS_PER_MS}}};
#define MSS 1460
#define MS RP_NS_PER_MS

static struct wire *start(bool rich, uint32_t bytes)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, rich);
	w->app.chunk = bytes;
	w->app.to_send += bytes;
	app_pump(&w->app);
	sim_turn(w->sim, 0);
	return w;
}

static void more(struct wire *w, uint32_t bytes)
{
	w->app.chunk = bytes;
	w->app.to_send += bytes;
	app_pump(&w->app);
	sim_turn(w->sim, 0);
}

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

/* A segment with SACK blocks, all relative to the stack's first byte. */
static void sack_with(struct wire *w, uint32_t seq, uint32_t length, uint32_t ack, unsigned n,
	const uint32_t (*blocks)[2])
{
	uint8_t data[MSS], o[40] = {1, 1, 8, 10};

	for (uint32_t i = 0; i < length; i++)
		data[i] = app_byte(w->app.peer_pattern, seq - 1 + i);
	put32(o + 4, w->ts);
	o[12] = o[13] = 1;
	o[14] = 5;
	o[15] = (uint8_t)(2 + 8 * n);
	for (unsigned i = 0; i < n; i++) {
		put32(o + 16 + 8 * i, w->irs + blocks[i][0]);
		put32(o + 20 + 8 * i, w->irs + blocks[i][1]);
	}
	wire_send(w, &(struct wire_segment){.flags = ACK,
			     .seq = w->iss + seq,
			     .ack = w->irs + ack,
			     .window = 0xffff,
			     .data = data,
			     .length = length,
			     .options = o,
			     .options_length = 16 + 8 * n});
}

/* The same as an ACK without data, later than all before. */
static void sack(struct wire *w, uint32_t ack, unsigned n, const uint32_t (*blocks)[2])
{
	w->ts++;
	sack_with(w, 1, 0, ack, n, blocks);
}

static void timeout_backs_off(void **state)
{
	struct wire *w = start(false, 100);
	uint64_t last_ns = wire_expect(w, ACK, 1, 1, 100)->now_ns, gap_ns = 5 * MS;

	for (unsigned i = 0; i < 6; i++) {
		struct wire_out *o;

		wire_wait(w, gap_ns + MS);
		o = wire_expect(w, ACK, 1, 1, 100);
		assert_in_range(o->now_ns - last_ns, gap_ns, gap_ns + 100000);
		last_ns = o->now_ns;
		gap_ns *= 2;
		wire_none(w);
	}
	assert_int_equal(info(w).rtos, 6);
	assert_int_equal(info(w).cwnd, MSS);
	wire_put(w, ACK, 1, 101, NULL, 0);
	assert_int_equal(info(w).backoff, 0);
	more(w, 50); /* the timeout is what it was */
	last_ns = wire_expect(w, ACK, 101, 1, 50)->now_ns;
	wire_wait(w, 6 * MS);
	assert_in_range(wire_expect(w, ACK, 101, 1, 50)->now_ns - last_ns, 5 * MS, 5 * MS + 100000);
	wire_free(w);
}

static void floor_can_be_raised(void **state)
{
	struct wire *w = start(false, 100);

	wire_expect(w, ACK, 1, 1, 100);
	rp_tcp_set_rto_floor(w->sim->host[0].stack, 50 * MS);
	wire_wait(w, 49 * MS);
	wire_none(w);
	wire_wait(w, 2 * MS);
	wire_expect(w, ACK, 1, 1, 100);
	wire_free(w);
}

static void duplicates_do_not_postpone_the_timeout(void **state)
{
	struct wire *w = start(false, 2 * MSS);
	uint64_t sent_ns = wire_take(w)->now_ns;

	wire_take(w);
	for (unsigned i = 0; i < 3; i++) {
		wire_wait(w, 2 * MS);
		if (i < 2) {
			wire_put(w, ACK, 1, 1, NULL, 0);
			wire_none(w);
		}
	}
	assert_in_range(wire_expect(w, ACK, 1, 1, MSS)->now_ns - sent_ns, 5 * MS, 5 * MS + 100000);
	wire_free(w);
}

static void three_duplicates_without_sack(void **state)
{
	struct wire *w = start(false, 10 * MSS);
	uint32_t cwnd;

	for (unsigned i = 0; i < 10; i++)
		wire_expect(w, ACK, 1 + i * MSS, 1, MSS);
	more(w, 10 * MSS);
	wire_none(w);
	wire_put(w, ACK, 1, 1, NULL, 0); /* limited transmit (RFC 3042) */
	wire_expect(w, ACK, 1 + 10 * MSS, 1, MSS);
	wire_put(w, ACK, 1, 1, NULL, 0);
	wire_expect(w, ACK, 1 + 11 * MSS, 1, MSS);
	wire_put(w, ACK, 1, 1, NULL, 0);
	wire_expect(w, ACK, 1, 1, MSS);
	assert_true(info(w).recovery);
	/* A partial one: the next hole, at once (RFC 6582 3.2). */
	wire_put(w, ACK, 1, 1 + 3 * MSS, NULL, 0);
	wire_expect(w, ACK, 1 + 3 * MSS, 1, MSS);
	wire_put(w, ACK, 1, 1 + 12 * MSS, NULL, 0);
	assert_false(info(w).recovery);
	cwnd = info(w).cwnd;
	assert_in_range(cwnd, 6 * MSS, 9 * MSS); /* 0.7 of what was in flight */
	assert_int_equal(info(w).rtos, 0);
	wire_free(w);
}

#define RICH (MSS - 12)

static void losses_found_by_sack(void **state)
{
	struct wire *w = start(true, 10 * RICH);

	for (unsigned i = 0; i < 10; i++)
		wire_expect(w, ACK, 1 + i * RICH, 1, RICH);
	wire_wait(w, 20000);
	/* 0 and 3 are missing; three are reported behind them. */
	sack(w, 1, 2,
		(const uint32_t[][2]){{1 + 4 * RICH, 1 + 6 * RICH}, {1 + RICH, 1 + 3 * RICH}});
	wire_expect(w, ACK, 1, 1, RICH);
	if (info(w).unsent == 0 && w->out_next == w->out_count)
		sack(w, 1, 2,
			(const uint32_t[][2]){
				{1 + 4 * RICH, 1 + 10 * RICH}, {1 + RICH, 1 + 3 * RICH}});
	wire_expect(w, ACK, 1 + 3 * RICH, 1, RICH);
	wire_none(w);
	assert_int_equal(info(w).rtx_segments, 2);
	assert_true(info(w).recovery);
	sack(w, 1 + 10 * RICH, 0, NULL);
	assert_false(info(w).recovery);
	assert_int_equal(info(w).pipe, 0);
	wire_free(w);
}

static void lost_retransmission_needs_no_timeout(void **state)
{
	struct wire *w = start(true, 10 * RICH);

	for (unsigned i = 0; i < 10; i++)
		wire_take(w);
	wire_wait(w, 20000);
	sack(w, 1, 1, (const uint32_t[][2]){{1 + RICH, 1 + 9 * RICH}});
	wire_expect(w, ACK, 1, 1, RICH);
	more(w, 2 * RICH);
	wire_expect(w, ACK, 1 + 10 * RICH, 1, RICH);
	wire_take(w);
	/* What was sent after the retransmission arrives: the retransmission is lost (RFC 8985). */
	wire_wait(w, 20000);
	sack(w, 1, 2,
		(const uint32_t[][2]){{1 + 10 * RICH, 1 + 11 * RICH}, {1 + RICH, 1 + 9 * RICH}});
	wire_wait(w, 100000);
	wire_expect(w, ACK, 1, 1, RICH);
	assert_int_equal(info(w).rtos, 0);
	wire_free(w);
}

static void nonsense_in_sack_blocks(void **state)
{
	static const uint32_t bad[][2] = {{500, 100}, {0u - 5000, 0u - 100}, {1, 1u << 31},
		{100 * RICH, 101 * RICH}, {1, 1}, {1 + RICH / 2, 1 + RICH}, {5, 1 + 20 * RICH}};
	struct wire *w = start(true, 10 * RICH);

	for (unsigned i = 0; i < 10; i++)
		wire_take(w);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(bad); i++) {
		sack(w, 1, 1, &bad[i]);
		assert_null(rp_tcp_check(w->sim->host[0].stack));
	}
	assert_int_equal(info(w).pipe, 10 * RICH);
	wire_none(w);
	wire_free(w);
}

static void peer_that_reneges(void **state)
{
	struct wire *w = start(true, 3 * RICH);
	uint32_t seq = 1;

	for (unsigned i = 0; i < 3; i++)
		wire_take(w);
	sack(w, 1, 1, (const uint32_t[][2]){{1 + RICH, 1 + 3 * RICH}});
	wire_wait(w, 20 * MS);
	sack(w, 1 + RICH, 0, NULL); /* and of the rest it knows nothing any more */
	wire_wait(w, 100 * MS);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->reneged, 1);
	for (struct wire_out *o = wire_take(w); o; o = wire_take(w))
		seq = RP_MAX(seq, o->seq - w->irs);
	wire_put(w, ACK, 1, 1 + 2 * RICH, NULL, 0);
	wire_put(w, ACK, 1, 1 + 3 * RICH, NULL, 0);
	assert_int_equal(info(w).unacked, 0);
	wire_free(w);
}

static void tail_loss_probe(void **state)
{
	struct wire *w = start(true, 2 * RICH);
	uint64_t sent_ns = wire_take(w)->now_ns;
	struct wire_out *o;

	wire_take(w);
	wire_wait(w, 4 * MS);
	o = wire_expect(w, ACK, 1 + RICH, 1, RICH); /* the last one, well before the timeout */
	assert_in_range(o->now_ns - sent_ns, 200000, 2 * MS);
	wire_none(w);
	assert_int_equal(info(w).tlps, 1);
	/* It tells that the first is missing. */
	sack(w, 1, 1, (const uint32_t[][2]){{1 + RICH, 1 + 2 * RICH}});
	wire_wait(w, MS);
	wire_expect(w, ACK, 1, 1, RICH);
	assert_int_equal(info(w).rtos, 0);
	wire_free(w);
}

/*
 * The lcore was away: when it comes back, the acknowledgement is there and the timer has run out,
 * in the same turn. What was acknowledged needs no probe and no retransmission.
 */
static void acknowledged_while_the_lcore_paused(void **state)
{
	static const uint64_t pauses_ns[] = {MS, 5 * MS, 50 * MS, 500 * MS, 5000 * MS};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(pauses_ns); i++) {
		struct wire *w = start(true, 2 * RICH);

		wire_take(w);
		wire_take(w);
		w->sim->now_ns += pauses_ns[i];
		wire_put(w, ACK, 1, 1 + 2 * RICH, NULL, 0);
		wire_none(w);
		assert_int_equal(info(w).tlps, 0);
		assert_int_equal(info(w).rtos, 0);
		assert_null(rp_tcp_check(w->sim->host[0].stack));

		/* Likewise, where a part is acknowledged: that is progress, and the timer starts
		 * anew. */
		more(w, 2 * RICH);
		wire_take(w);
		wire_take(w);
		w->sim->now_ns += pauses_ns[i];
		wire_put(w, ACK, 1, 1 + 3 * RICH, NULL, 0);
		wire_none(w);
		assert_int_equal(info(w).rtos, 0);
		assert_null(rp_tcp_check(w->sim->host[0].stack));
		wire_free(w);
	}
}

static void false_recovery_is_undone(void **state)
{
	struct wire *w = start(true, 10 * RICH);
	uint32_t cwnd = info(w).cwnd;

	for (unsigned i = 0; i < 10; i++)
		wire_take(w);
	wire_wait(w, 20000);
	sack(w, 1, 1, (const uint32_t[][2]){{1 + RICH, 1 + 5 * RICH}});
	wire_expect(w, ACK, 1, 1, RICH);
	sack(w, 1 + 10 * RICH, 0, NULL); /* it was only late */
	assert_true(info(w).cwnd < cwnd);
	sack(w, 1 + 10 * RICH, 1, (const uint32_t[][2]){{1, 1 + RICH}});
	assert_int_equal(info(w).undos, 1);
	assert_true(info(w).cwnd >= cwnd);
	assert_true(info(w).reordering);
	wire_free(w);
}

/* One report in each piece of a large segment (segmentation offload) is one report. */
static void copies_of_a_duplicate_sack_undo_nothing(void **state)
{
	static const uint32_t again[][2] = {{1, 1 + RICH}};
	struct wire *w = start(true, 10 * RICH);
	const struct rp_tcp_counters *n = rp_tcp_counters(w->sim->host[0].stack);
	uint32_t cwnd;

	for (unsigned i = 0; i < 10; i++)
		wire_take(w);
	wire_wait(w, 20000);
	sack(w, 1, 1, (const uint32_t[][2]){{1 + 3 * RICH, 1 + 9 * RICH}});
	wire_wait(w, 20000);
	sack(w, 1, 1, (const uint32_t[][2]){{1 + 3 * RICH, 1 + 10 * RICH}});
	sack(w, 1 + 10 * RICH, 0, NULL);
	assert_int_equal(info(w).rtx_segments, 3);
	cwnd = info(w).cwnd;
	/* The first of three was only late, and a client that sends says so in four pieces. */
	w->ts++;
	for (unsigned i = 0; i < 4; i++)
		sack_with(w, 1 + i * 100, 100, 1 + 10 * RICH, 1, again);
	assert_int_equal(n->dsack_rx, 1);
	assert_int_equal(info(w).undos, 0);
	assert_int_equal(info(w).cwnd, cwnd);
	/* Each ACK of its own is another duplicate. */
	for (unsigned i = 0; i < 2; i++)
		sack_with(w, 401, 0, 1 + 10 * RICH, 1, again);
	assert_int_equal(n->dsack_rx, 3);
	assert_int_equal(info(w).undos, 1);
	wire_free(w);
}

static void owner_hears_of_the_timeout(void **state)
{
	struct wire *w = wire_new(&plain);
	struct rp_conn_options o = {.user_timeout_ns = RP_NS_PER_S};

	assert_int_equal(app_dial(&w->app, 1234, &o), 0);
	wire_wait(w, 999 * MS);
	assert_false(w->app.closed);
	wire_wait(w, 2 * MS);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_TIMEOUT);
	wire_free(w);

	w = start(false, 100); /* by default, three minutes (RFC 9293 3.8.3 R2) */
	for (unsigned i = 0; i < 179; i++)
		wire_wait(w, RP_NS_PER_S);
	assert_false(w->app.closed);
	wire_wait(w, 2 * RP_NS_PER_S);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_TIMEOUT);
	wire_free(w);
}

static void lost_syn(void **state)
{
	struct wire *w = wire_new(&plain);
	uint64_t first_ns;

	assert_int_equal(app_dial(&w->app, 1234, NULL), 0);
	sim_turn(w->sim, 0);
	first_ns = wire_take(w)->now_ns;
	wire_wait(w, 3100 * MS);
	assert_in_range(wire_take(w)->now_ns - first_ns, RP_NS_PER_S, RP_NS_PER_S + 100000);
	w->irs = w->out[0].seq;
	assert_int_equal(wire_take(w)->seq, w->irs);
	wire_none(w);
	wire_put(w, SYN | ACK, 0, 1, NULL, 0);
	wire_expect(w, ACK, 1, 1, 0);
	assert_true(w->app.opened);
	assert_int_equal(info(w).cwnd, info(w).mss);	   /* RFC 5681 3.1 */
	assert_int_equal(info(w).rto_ns, 3 * RP_NS_PER_S); /* RFC 6298 5.7 */
	wire_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timeout_backs_off),
		cmocka_unit_test(floor_can_be_raised),
		cmocka_unit_test(duplicates_do_not_postpone_the_timeout),
		cmocka_unit_test(three_duplicates_without_sack),
		cmocka_unit_test(losses_found_by_sack),
		cmocka_unit_test(lost_retransmission_needs_no_timeout),
		cmocka_unit_test(nonsense_in_sack_blocks),
		cmocka_unit_test(peer_that_reneges),
		cmocka_unit_test(tail_loss_probe),
		cmocka_unit_test(acknowledged_while_the_lcore_paused),
		cmocka_unit_test(false_recovery_is_undone),
		cmocka_unit_test(copies_of_a_duplicate_sack_undo_nothing),
		cmocka_unit_test(owner_hears_of_the_timeout),
		cmocka_unit_test(lost_syn),
	};

	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
