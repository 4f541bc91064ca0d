/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/* Segments in, segments out: the rules of RFC 9293, 5961, 7323 and 2018 one by one. */

static const struct sim_config plain = {.seed = 5, .rtt_ns = 1000};

/* The byte that the app expects at this offset of our stream. */
static void fill(uint8_t *p, uint32_t offset, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = app_byte(2, offset + i);
}

static void put_data(struct wire *w, uint32_t offset, uint32_t n, uint8_t flags)
{
	uint8_t data[2000];

	fill(data, offset, n);
	wire_put(w, ACK | flags, 1 + offset, 1, data, n);
}

static void options_of_the_handshake(void **state)
{
	static const struct {
		uint8_t bytes[24];
		unsigned length;
		bool shift, ts, sack;
	} cases[] = {
		{{2, 4, 5, 0xb4}, 4, false, false, false},
		{{0}, 0, false, false, false},
		{{2, 4, 5, 0xb4, 3, 3, 15, 0}, 8, true, false, false},
		{{2, 4, 5, 0xb4, 4, 2, 1, 1}, 8, false, false, true},
		{{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0}, 12, false, true, false},
		{{2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7}, 20, true, true,
			true},
		/* Unknown kinds are skipped, known ones with an impossible length ignored. */
		{{253, 4, 0, 0, 3, 4, 1, 1, 4, 2, 1, 1}, 12, false, false, true},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct wire *w = wire_new(&plain);
		struct wire_out *o;

		assert_int_equal(app_listen(&w->app, 80, NULL), 0);
		wire_send(w, &(struct wire_segment){.flags = SYN,
				     .seq = w->iss,
				     .window = 1000,
				     .options = cases[i].bytes,
				     .options_length = cases[i].length});
		o = wire_take(w);
		assert_non_null(o);
		assert_int_equal(o->flags, SYN | ACK);
		assert_true(o->has_mss);
		assert_int_equal(o->mss, 1460);
		assert_int_equal(o->has_shift, cases[i].shift);
		assert_int_equal(o->has_ts, cases[i].ts);
		assert_int_equal(o->has_sack, cases[i].sack);
		assert_int_equal(o->window, 0xffff); /* never scaled in a SYN */
		if (o->has_ts)
			assert_int_equal(o->ts_echo, 1);
		w->irs = o->seq;
		wire_put(w, ACK, 1, 1, NULL, 0);
		assert_true(w->app.opened);
		if (cases[i].shift) {
			struct rp_tcp_info info;

			rp_tcp_conn_info(w->app.conn, &info);
			assert_int_equal(info.send_shift, cases[i].bytes[6] == 15 ? 14 : 7);
		}
		wire_free(w);
	}
}

static void malformed_options_drop_the_segment(void **state)
{
	static const uint8_t bad[][4] = {{2, 0, 0, 0}, {2, 1, 0, 0}, {2, 5, 0, 0}, {1, 1, 1, 2}};
	struct wire *w = wire_new(&plain);

	app_listen(&w->app, 80, NULL);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(bad); i++)
		wire_send(w, &(struct wire_segment){.flags = SYN,
				     .seq = w->iss,
				     .window = 1000,
				     .options = bad[i],
				     .options_length = 4});
	wire_none(w);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->drop_malformed, 4);
	wire_free(w);
}

static void bad_checksum_is_dropped(void **state)
{
	struct wire *w = wire_new(&plain);

	app_listen(&w->app, 80, NULL);
	wire_send(w, &(struct wire_segment){
			     .flags = SYN, .seq = w->iss, .window = 1000, .bad_checksum = true});
	wire_none(w);
	assert_int_equal(rp_net_counters(rp_tcp_net(w->sim->host[0].stack))->drop_l4_csum, 1);
	wire_free(w);
}

static void isn_differs_by_tuple_and_time(void **state)
{
	struct wire *w = wire_new(&plain);
	uint32_t isn[3];

	app_listen(&w->app, 80, NULL);
	for (unsigned i = 0; i < 3; i++) {
		struct wire_out *o;

		w->remote_port = (uint16_t)(1000 + (i == 1));
		wire_send(w, &(struct wire_segment){.flags = SYN, .seq = 7, .window = 1000});
		o = wire_take(w);
		assert_non_null(o);
		isn[i] = o->seq;
		w->irs = o->seq;
		w->iss = 7;
		wire_put(w, RST, 1, 0, NULL, 0);
		wire_wait(w, RP_NS_PER_MS);
	}
	assert_true(isn[0] != isn[1]);
	/* The same tuple, 2 ms later: 4 us a step (RFC 6528). */
	assert_in_range(isn[2] - isn[0], 400, 600);
	wire_free(w);
}

static void unknown_segments_are_reset(void **state)
{
	struct wire *w = wire_new(&plain);
	struct wire_out *o;
	unsigned n = 0;

	wire_send(w, &(struct wire_segment){.flags = ACK, .seq = 5, .ack = 77, .window = 9});
	o = wire_take(w);
	assert_true(o && o->flags == RST && o->seq == 77);
	wire_send(w, &(struct wire_segment){.flags = SYN, .seq = 5, .window = 9});
	o = wire_take(w);
	assert_true(o && o->flags == (RST | ACK) && o->seq == 0 && o->ack == 6);
	wire_send(w, &(struct wire_segment){.flags = RST, .seq = 5, .window = 9});
	wire_none(w);
	/* No more than the limit, whatever comes. */
	for (unsigned i = 0; i < 1000; i++) {
		wire_send(
			w, &(struct wire_segment){.flags = ACK, .seq = 5, .ack = 77, .window = 9});
		w->out_count = w->out_next = 0;
		n++;
	}
	assert_in_range(rp_tcp_counters(w->sim->host[0].stack)->rst_sent, 10, 210);
	wire_free(w);
}

static void resets_are_checked(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	wire_put(w, RST, 5, 0, NULL, 0); /* in the window, not exact: RFC 5961 3.2 */
	wire_expect(w, ACK, 1, 1, 0);
	wire_put(w, RST, 1u << 30, 0, NULL, 0); /* outside */
	wire_put(w, RST, 0, 0, NULL, 0);
	wire_none(w);
	assert_false(w->app.closed);
	wire_put(w, RST, 1, 0, NULL, 0);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_RESET);
	wire_none(w);
	wire_free(w);
}

static void syn_in_established_is_challenged(void **state)
{
	struct wire *w = wire_new(&plain);
	unsigned n = 0;

	wire_accept(w, false);
	wire_send(w, &(struct wire_segment){.flags = SYN, .seq = w->iss + 100, .window = 9});
	wire_expect(w, ACK, 1, 1, 0);
	for (unsigned i = 0; i < 400; i++) {
		wire_send(
			w, &(struct wire_segment){.flags = SYN, .seq = w->iss + 100, .window = 9});
		wire_wait(w, RP_NS_PER_MS);
	}
	while (wire_take(w))
		n++;
	assert_in_range(n, 1, 30); /* RFC 5961 7: in 0.4 s */
	assert_false(w->app.closed);
	wire_free(w);
}

static void acks_out_of_range(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	wire_put(w, ACK, 1, 2, NULL, 0); /* of what was not sent */
	wire_expect(w, ACK, 1, 1, 0);
	wire_put(w, ACK, 1, 1u - 100000, NULL, 0);
	wire_expect(w, ACK, 1, 1, 0);
	wire_put(w, ACK, 1, 0, NULL, 0); /* a little old: fine */
	wire_none(w);
	wire_put(w, 0, 1, 0, "x", 1); /* no ACK at all */
	wire_none(w);
	assert_int_equal(w->app.received, 0);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->drop_ack, 2);
	wire_free(w);
}

static void delayed_acks(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	put_data(w, 0, 100, 0);
	wire_wait(w, 900 * RP_NS_PER_US);
	wire_none(w);
	wire_wait(w, 200 * RP_NS_PER_US); /* 1 ms is this simulation's delay */
	wire_expect(w, ACK, 1, 101, 0);
	put_data(w, 100, 1460, 0);
	wire_none(w);
	put_data(w, 1560, 1460, 0); /* the second full segment */
	wire_expect(w, ACK, 1, 3021, 0);
	put_data(w, 3020, 10, FIN); /* at once */
	wire_expect(w, ACK, 1, 3032, 0);
	assert_true(w->app.peer_fin);
	assert_int_equal(w->app.received, 3030);
	wire_free(w);
}

static void reassembly_and_sack(void **state)
{
	struct wire *w = wire_new(&plain);
	struct wire_out *o;

	wire_accept(w, true);
	put_data(w, 200, 100, 0);
	o = wire_expect(w, ACK, 1, 1, 0);
	assert_int_equal(o->blocks, 1);
	assert_int_equal(o->block[0][0], w->iss + 201);
	assert_int_equal(o->block[0][1], w->iss + 301);
	put_data(w, 400, 100, 0);
	o = wire_expect(w, ACK, 1, 1, 0);
	assert_int_equal(o->blocks, 2); /* the most recent first */
	assert_int_equal(o->block[0][0], w->iss + 401);
	assert_int_equal(o->block[1][0], w->iss + 201);
	put_data(w, 300, 50, 0); /* grows the older one, which is the most recent now */
	o = wire_expect(w, ACK, 1, 1, 0);
	assert_int_equal(o->block[0][0], w->iss + 201);
	assert_int_equal(o->block[0][1], w->iss + 351);
	put_data(w, 350, 50, 0); /* joins both */
	o = wire_expect(w, ACK, 1, 1, 0);
	assert_int_equal(o->blocks, 1);
	assert_int_equal(o->block[0][1], w->iss + 501);
	put_data(w, 250, 20, 0); /* a duplicate: D-SACK first (RFC 2883) */
	o = wire_expect(w, ACK, 1, 1, 0);
	assert_int_equal(o->blocks, 2);
	assert_int_equal(o->block[0][0], w->iss + 251);
	assert_int_equal(o->block[0][1], w->iss + 271);
	assert_int_equal(o->block[1][0], w->iss + 201);
	assert_int_equal(w->app.received, 0);
	put_data(w, 0, 220, 0); /* overlaps */
	o = wire_expect(w, ACK, 1, 501, 0);
	assert_int_equal(o->blocks, 1); /* what came twice of it */
	assert_int_equal(o->block[0][0], w->iss + 201);
	assert_int_equal(o->block[0][1], w->iss + 221);
	assert_int_equal(w->app.received, 500);
	put_data(w, 480, 20, 0);
	o = wire_expect(w, ACK, 1, 501, 0);
	assert_int_equal(o->blocks, 1);
	assert_int_equal(o->block[0][0], w->iss + 481);
	wire_free(w);
}

static void first_arrived_bytes_stay(void **state)
{
	struct wire *w = wire_new(&plain);
	uint8_t data[300];

	wire_accept(w, true);
	put_data(w, 50, 10, 0);
	put_data(w, 80, 10, 0);
	/* Covers both, with other bytes where they are: the app's check would see them. */
	fill(data, 0, 120);
	memset(data + 50, 0xee, 10);
	memset(data + 80, 0xee, 10);
	wire_put(w, ACK, 1 + 20, 1, data + 20, 100);
	fill(data, 0, 30);
	memset(data + 20, 0xee, 10);
	wire_put(w, ACK, 1, 1, data, 30);
	assert_int_equal(w->app.received, 120);
	wire_free(w);
}

static void fin_out_of_order(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	put_data(w, 100, 50, FIN);
	wire_expect(w, ACK, 1, 1, 0);
	put_data(w, 150, 50, 0); /* behind the end of the stream */
	wire_take(w);
	assert_false(w->app.peer_fin);
	put_data(w, 0, 100, 0);
	wire_expect(w, ACK, 1, 152, 0);
	assert_true(w->app.peer_fin);
	assert_int_equal(w->app.received, 150);
	put_data(w, 150, 50, 0);
	wire_take(w);
	assert_int_equal(w->app.received, 150);
	wire_free(w);
}

static void fin_before_bytes_that_came(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, true);
	put_data(w, 200, 100, 0);
	put_data(w, 50, 0, FIN); /* cannot be: bytes behind it are here */
	put_data(w, 0, 200, 0);
	assert_int_equal(w->app.received, 300);
	assert_false(w->app.peer_fin);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->drop_closed, 1);
	put_data(w, 300, 10, FIN);
	assert_true(w->app.peer_fin);
	wire_free(w);
}

static void reassembly_is_bounded(void **state)
{
	struct sim_config c = plain;
	struct wire *w;
	struct rp_tcp_usage u;

	c.tcp[0].ooo_ranges_max = 8;
	c.tcp[0].ooo_mbufs_max = 20;
	w = wire_new(&c);
	wire_accept(w, true);
	for (unsigned i = 0; i < 100; i++)
		put_data(w, 100 + 20 * i, 10, 0);
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.ranges, 8);
	for (unsigned i = 0; i < 100; i++)
		put_data(w, 10000 + i, 1, 0);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->drop_ooo_limit, 192);
	w->out_count = w->out_next = 0;
	put_data(w, 0, 100, 0);
	assert_int_equal(w->app.received, 110);
	wire_free(w);
}

/* What all connections may have: one takes at most as many as it leaves. */
static void reassembly_is_shared(void **state)
{
	struct sim_config c = plain;
	struct rp_tcp_usage u;
	struct wire *w;

	c.tcp[0].ooo_mbufs_max = 20;
	c.tcp[0].ooo_mbufs_total = 30;
	w = wire_new(&c);
	wire_accept(w, true);
	for (unsigned i = 0; i < 40; i++)
		put_data(w, 100 + 20 * i, 10, 0);
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.ranges, 15);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->drop_ooo_limit, 25);
	put_data(w, 0, 100, 0);
	assert_int_equal(w->app.received, 110);
	put_data(w, 2000, 10, 0);
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.ranges, 15);
	wire_free(w);
}

static void timestamps(void **state)
{
	struct wire *w = wire_new(&plain);
	uint64_t received;

	wire_accept(w, true);
	w->ts = 1200;
	put_data(w, 0, 10, 0);
	w->ts = 1200 - 257; /* PAWS: older than anything that was merely held back by a near peer */
	put_data(w, 10, 10, 0);
	wire_expect(w, ACK, 1, 11, 0);
	assert_int_equal(w->app.received, 10);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->drop_paws, 1);
	w->ts = 0; /* none at all: taken */
	put_data(w, 10, 10, 0);
	assert_int_equal(w->app.received, 20);
	w->ts = 1300;
	put_data(w, 20, 2000, 0);
	received = w->app.received;
	assert_int_equal(received, 2020);
	w->ts = 150; /* after 25 days of silence what we know means nothing (RFC 7323 5.5) */
	wire_wait(w, 25ull * 86400 * RP_NS_PER_S);
	w->out_count = w->out_next = 0;
	put_data(w, 2020, 10, 0);
	assert_int_equal(w->app.received, 2030);
	wire_free(w);
}

static void half_open(void **state)
{
	struct wire *w = wire_new(&plain);
	struct wire_out *o;

	app_listen(&w->app, 80, NULL);
	for (unsigned i = 0; i < 2; i++) {
		wire_send(w, &(struct wire_segment){.flags = SYN, .seq = w->iss, .window = 9});
		o = wire_take(w);
		assert_true(o && o->flags == (SYN | ACK));
		wire_wait(w, 2 * RP_NS_PER_MS);
	}
	w->irs = o->seq;
	wire_put(w, ACK, 1, 2, NULL, 0); /* of another life: RFC 9293 3.10.7.4 */
	o = wire_take(w);
	assert_true(o && o->flags == RST && o->seq == w->irs + 2);
	wire_put(w, RST, 1, 0, NULL, 0);
	wire_wait(w, 10 * RP_NS_PER_S);
	wire_none(w); /* it is gone, nothing is sent again */
	assert_false(w->app.opened);
	wire_free(w);
}

static void backlog(void **state)
{
	struct sim_config c = plain;
	struct wire *w;
	struct rp_tcp_usage u;

	c.tcp[0].backlog = 10;
	c.tcp[0].syn_cookies = RP_SYN_COOKIES_OFF;
	w = wire_new(&c);
	app_listen(&w->app, 80, NULL);
	for (unsigned i = 0; i < 100; i++) {
		w->remote_port = (uint16_t)(2000 + i);
		wire_send(w, &(struct wire_segment){.flags = SYN, .seq = 1, .window = 9});
	}
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.half_open, 10);
	assert_int_equal(rp_tcp_counters(w->sim->host[0].stack)->listen_overflow, 90);
	/* They give up in time, and it listens again. */
	for (unsigned i = 0; i < 400; i++) {
		wire_wait(w, RP_NS_PER_S);
		w->out_count = w->out_next = 0;
	}
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.half_open, 0);
	w->remote_port = 1234;
	wire_send(w, &(struct wire_segment){.flags = SYN, .seq = 1, .window = 9});
	assert_non_null(wire_take(w));
	assert_int_equal(rp_tcp_unlisten(w->sim->host[0].stack, 80, w->sim->now_ns), 0);
	wire_free(w);
}

/* Dials and takes the SYN. */
static void dial(struct wire *w)
{
	struct wire_out *o;

	assert_int_equal(app_dial(&w->app, 1234, NULL), 0);
	wire_wait(w, RP_NS_PER_MS);
	o = wire_take(w);
	assert_true(o && o->flags == SYN && o->ack == 0 && o->has_mss && o->has_ts && o->has_sack &&
		    o->has_shift);
	w->irs = o->seq;
}

static void active_open_refused(void **state)
{
	struct wire *w = wire_new(&plain);

	dial(w);
	wire_put(w, ACK, 0, 5, NULL, 0); /* not ours */
	assert_int_equal(wire_take(w)->flags, RST);
	wire_put(w, RST, 0, 0, NULL, 0); /* without ACK: could be anybody's */
	wire_put(w, RST | ACK, 0, 9, NULL, 0);
	assert_false(w->app.closed);
	wire_put(w, RST | ACK, 0, 1, NULL, 0);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_REFUSED);
	wire_free(w);
}

static void simultaneous_open(void **state)
{
	struct wire *w = wire_new(&plain);
	struct wire_out *o;

	dial(w);
	wire_put(w, SYN, 0, 0, NULL, 0);
	o = wire_take(w);
	assert_true(o && o->flags == (SYN | ACK) && o->seq == w->irs && o->ack == w->iss + 1);
	assert_false(w->app.opened);
	wire_put(w, SYN | ACK, 0, 1, NULL, 0); /* RFC 9293 figure 8 */
	assert_true(w->app.opened);
	put_data(w, 0, 10, 0);
	assert_int_equal(w->app.received, 10);
	wire_free(w);
}

static void icmp_errors(void **state)
{
	struct wire *w = wire_new(&plain);

	dial(w);
	wire_icmp(w, 3, 3, 0, w->irs + 5); /* about nothing in flight */
	assert_false(w->app.closed);
	wire_icmp(w, 3, 1, 0, w->irs); /* host unreachable: soft */
	assert_false(w->app.closed);
	wire_icmp(w, 3, 3, 0, w->irs);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_REFUSED);
	wire_free(w);
}

static void path_mtu(void **state)
{
	struct wire *w = wire_new(&plain);
	/* Below 1280 an IPv6 path does not go. */
	uint16_t mtu = sim_family() == 6 ? 1300 : 1000;
	uint32_t seq = 1, mss = mtu - (sim_family() == 6 ? 60u : 40u);

	dial(w);
	wire_put(w, SYN | ACK, 0, 1, NULL, 0); /* no options: 536 */
	wire_expect(w, ACK, 1, 1, 0);
	wire_free(w);
	w = wire_new(&plain);
	w->app.chunk = 2920;
	w->app.to_send = 2920;
	assert_int_equal(app_listen(&w->app, 80, NULL), 0);
	wire_send(w, &(struct wire_segment){.flags = SYN,
			     .seq = w->iss,
			     .window = 0xffff,
			     .options = (const uint8_t[]){2, 4, 5, 0xb4},
			     .options_length = 4});
	w->irs = wire_take(w)->seq;
	wire_put(w, ACK, 1, 1, NULL, 0);
	wire_expect(w, ACK, 1, 1, 1460);
	wire_expect(w, ACK, 1461, 1, 1460);
	wire_icmp(w, 3, 4, 300, w->irs + 1); /* too small to be true */
	wire_icmp(w, 3, 4, mtu, w->irs + 50000);
	wire_none(w);
	wire_icmp(w, 3, 4, mtu, w->irs + 1);
	while (seq < 2921) { /* again at once, in pieces that fit */
		uint32_t n = RP_MIN(mss, seq <= 1460 ? 1461 - seq : 2921 - seq);

		wire_expect(w, ACK, seq, 1, n);
		seq += n;
	}
	wire_none(w);
	wire_free(w);
}

static void time_wait(void **state)
{
	struct wire *w = wire_new(&plain);
	struct rp_tcp_usage u;

	w->app.close = APP_CLOSE_NEVER;
	wire_accept(w, true);
	app_close(&w->app);
	wire_wait(w, 0);
	wire_expect(w, FIN | ACK, 1, 1, 0);
	wire_put(w, ACK, 1, 2, NULL, 0);
	wire_put(w, FIN | ACK, 1, 2, NULL, 0);
	wire_expect(w, ACK, 2, 2, 0);
	assert_true(w->app.closed && w->app.peer_fin);
	assert_int_equal(w->app.reason, RP_CLOSE_FIN);
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.time_wait, 1);
	assert_int_equal(u.connections, 0);
	wire_wait(w, 900 * RP_NS_PER_MS);
	wire_put(w, RST, 2, 0, NULL, 0); /* RFC 1337 */
	wire_none(w);
	wire_put(w, FIN | ACK, 1, 2, NULL, 0); /* again: it waits again */
	wire_expect(w, ACK, 2, 2, 0);
	wire_wait(w, 900 * RP_NS_PER_MS);
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.time_wait, 1);
	/* An old SYN is not, a newer one is the begin of another connection. */
	wire_send(w, &(struct wire_segment){.flags = SYN, .seq = w->iss - 1000, .window = 9});
	wire_expect(w, ACK, 2, 2, 0);
	w->app.closed = false;
	wire_send(w, &(struct wire_segment){.flags = SYN, .seq = w->iss + 1000, .window = 9});
	assert_int_equal(wire_take(w)->flags, SYN | ACK);
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.time_wait, 0);
	assert_int_equal(u.half_open, 1);
	rp_tcp_unlisten(w->sim->host[0].stack, 80, w->sim->now_ns);
	wire_free(w);
}

static void time_wait_ends(void **state)
{
	struct wire *w = wire_new(&plain);
	struct rp_tcp_usage u;

	wire_accept(w, true);
	app_close(&w->app);
	wire_wait(w, 0);
	wire_put(w, FIN | ACK, 1, 2, NULL, 0);
	wire_wait(w, 1100 * RP_NS_PER_MS);
	rp_tcp_usage(w->sim->host[0].stack, &u);
	assert_int_equal(u.time_wait, 0);
	wire_free(w);
}

static void fin_wait_2_ends(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, true);
	app_close(&w->app);
	wire_wait(w, 0);
	wire_put(w, ACK, 1, 2, NULL, 0);
	wire_wait(w, 59 * RP_NS_PER_S);
	put_data(w, 0, 10, 0); /* not silent */
	wire_wait(w, 59 * RP_NS_PER_S);
	assert_false(w->app.closed);
	wire_wait(w, 2 * RP_NS_PER_S);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_TIMEOUT);
	wire_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_of_the_handshake),
		cmocka_unit_test(malformed_options_drop_the_segment),
		cmocka_unit_test(bad_checksum_is_dropped),
		cmocka_unit_test(isn_differs_by_tuple_and_time),
		cmocka_unit_test(unknown_segments_are_reset),
		cmocka_unit_test(resets_are_checked),
		cmocka_unit_test(syn_in_established_is_challenged),
		cmocka_unit_test(acks_out_of_range),
		cmocka_unit_test(delayed_acks),
		cmocka_unit_test(reassembly_and_sack),
		cmocka_unit_test(first_arrived_bytes_stay),
		cmocka_unit_test(fin_out_of_order),
		cmocka_unit_test(fin_before_bytes_that_came),
		cmocka_unit_test(reassembly_is_bounded),
		cmocka_unit_test(reassembly_is_shared),
		cmocka_unit_test(timestamps),
		cmocka_unit_test(half_open),
		cmocka_unit_test(backlog),
		cmocka_unit_test(active_open_refused),
		cmocka_unit_test(simultaneous_open),
		cmocka_unit_test(icmp_errors),
		cmocka_unit_test(path_mtu),
		cmocka_unit_test(time_wait),
		cmocka_unit_test(time_wait_ends),
		cmocka_unit_test(fin_wait_2_ends),
	};

	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
