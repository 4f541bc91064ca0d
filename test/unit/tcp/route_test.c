/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/* Attributes of a connection by its peer's address, and by the options given with it. */

#define MS RP_NS_PER_MS
#define MSS 1460

/* 10.0.0.0/8 and within it the peer's 10.0.0.0/30; and one for all. */
static struct sim_config config_of(void)
{
	struct sim_config c = {.seed = 4, .rtt_ns = 1000};

	c.tcp[0].rto_min_ns = 200 * MS;
	c.tcp[0].ack_delay_max_ns = 40 * MS;
	c.tcp[0].route_count = 3;
	c.tcp[0].routes[0] =
		(struct rp_tcp_route){.prefix = {.b = {[10] = 0xff, [11] = 0xff, [12] = 10}},
			.prefix_length = 96 + 8,
			.options = {.congestion = RP_CONGESTION_RENO, .rto_min_ns = 50 * MS}};
	c.tcp[0].routes[1] =
		(struct rp_tcp_route){.prefix = {.b = {[10] = 0xff, [11] = 0xff, [12] = 10}},
			.prefix_length = 96 + 30,
			.options = {.congestion = RP_CONGESTION_DCTCP,
				.ecn = RP_ECN_ASK,
				.rto_min_ns = 5 * MS,
				.ack_delay_max_ns = MS,
				.mtu = 1000}};
	c.tcp[0].routes[2] = (struct rp_tcp_route){.options = {.ecn = RP_ECN_OFF}};
	return c;
}

static struct rp_tcp_info info(struct wire *w)
{
	struct rp_tcp_info i;

	rp_tcp_conn_info(w->app.conn, &i);
	return i;
}

static struct wire_out *dial(struct wire *w, const struct rp_conn_options *o)
{
	struct wire_out *out;

	assert_int_equal(app_dial(&w->app, 1234, o), 0);
	sim_turn(w->sim, 0);
	out = wire_take(w);
	w->irs = out->seq;
	return out;
}

static void the_longest_prefix_counts(void **state)
{
	struct sim_config c = config_of();
	struct wire *w = wire_new(&c);
	struct wire_out *out = dial(w, NULL);

	assert_int_equal(out->flags, SYN | ECE | CWR);
	assert_int_equal(out->mss, 960);
	wire_put(w, SYN | ACK | ECE, 0, 1, NULL, 0);
	wire_take(w);
	assert_string_equal(info(w).congestion, "dctcp");
	assert_true(info(w).ecn);
	assert_true(info(w).rto_floor_ns == 5 * MS);
	wire_put(w, ACK, 1, 1, "", 0);
	wire_free(w);

	c.tcp[0].routes[1].prefix.b[15] = 8; /* 10.0.0.8/30: not the peer's any more */
	w = wire_new(&c);
	out = dial(w, NULL);
	assert_int_equal(out->flags, SYN);
	assert_int_equal(out->mss, MSS);
	wire_put(w, SYN | ACK, 0, 1, NULL, 0);
	assert_string_equal(info(w).congestion, "reno");
	assert_true(info(w).rto_floor_ns == 50 * MS);
	wire_free(w);

	c.tcp[0].routes[0].prefix.b[12] = 11;
	w = wire_new(&c);
	dial(w, NULL);
	wire_put(w, SYN | ACK, 0, 1, NULL, 0);
	assert_string_equal(info(w).congestion, "cubic");
	assert_true(info(w).rto_floor_ns == 200 * MS);
	wire_free(w);
}

static void options_come_before_the_route(void **state)
{
	struct rp_conn_options o = {
		.congestion = RP_CONGESTION_CUBIC, .ecn = RP_ECN_OFF, .mtu = 600};
	struct sim_config c = config_of();
	struct wire *w = wire_new(&c);
	struct wire_out *out = dial(w, &o);

	assert_int_equal(out->flags, SYN);
	assert_int_equal(out->mss, 560);
	wire_put(w, SYN | ACK, 0, 1, NULL, 0);
	assert_string_equal(info(w).congestion, "cubic");
	assert_true(info(w).rto_floor_ns == 5 * MS); /* not given: the route's */
	wire_free(w);
}

static void accepted_connections_have_them_too(void **state)
{
	struct sim_config c = config_of();
	struct wire *w = wire_new(&c);
	uint8_t byte = app_byte(2, 0);
	uint64_t sent_ns;

	wire_accept(w, false);
	assert_true(info(w).rto_floor_ns == 5 * MS);
	assert_int_equal(info(w).mss, 960); /* the peer's is more */
	sent_ns = w->sim->now_ns;
	wire_put(w, ACK, 1, 1, &byte, 1);
	wire_wait(w, 10 * MS);
	assert_in_range(wire_expect(w, ACK, 1, 2, 0)->now_ns - sent_ns, MS, 2 * MS);
	wire_free(w);
}

/* The floor that the loop's pauses set holds for all; a route's own may be higher. */
static void floor_of_the_loop(void **state)
{
	struct sim_config c = config_of();
	struct wire *w = wire_new(&c);

	wire_accept(w, false);
	rp_tcp_set_rto_floor(w->sim->host[0].stack, 20 * MS);
	assert_true(info(w).rto_floor_ns == 20 * MS);
	rp_tcp_set_rto_floor(w->sim->host[0].stack, 2 * MS);
	assert_true(info(w).rto_floor_ns == 5 * MS);
	wire_free(w);
}

/* RP_ACK_QUICK: sixteen at once, then every second one. */
static void quick_acknowledgements(void **state)
{
	struct rp_conn_options o = {.ack_profile = RP_ACK_QUICK, .ack_delay_max_ns = 40 * MS};
	struct sim_config c = {.seed = 4, .rtt_ns = 1000};
	struct wire *w = wire_new(&c);

	assert_int_equal(dial(w, &o)->flags, SYN);
	wire_put(w, SYN | ACK, 0, 1, NULL, 0);
	wire_take(w);
	for (unsigned i = 0; i < 20; i++) {
		uint8_t byte = app_byte(2, i);

		wire_put(w, ACK, 1 + i, 1, &byte, 1);
		if (i < 16)
			wire_expect(w, ACK, 1, 2 + i, 0);
		else
			wire_none(w);
	}
	wire_wait(w, 41 * MS);
	wire_expect(w, ACK, 1, 21, 0);
	wire_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_longest_prefix_counts),
		cmocka_unit_test(options_come_before_the_route),
		cmocka_unit_test(accepted_connections_have_them_too),
		cmocka_unit_test(floor_of_the_loop),
		cmocka_unit_test(quick_acknowledgements),
	};

	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
