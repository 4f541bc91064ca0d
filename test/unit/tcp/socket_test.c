/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire.h"

/* What a layer of sockets needs of the stack (lib/tcp/socket.c). */

static const struct sim_config plain = {.seed = 5, .rtt_ns = 1000};

static const struct rp_conn_events silent;

static struct rp_conn *dial_from(struct wire *w, uint16_t local, uint16_t remote)
{
	struct rp_endpoint peer = {.family = 4, .port = remote, .addr = {10, 0, 0, 2}};

	return rp_tcp_dial_from(
		w->sim->host[0].stack, &peer, local, NULL, &silent, NULL, w->sim->now_ns);
}

static void a_port_of_ones_own(void **state)
{
	struct wire *w = wire_new(&plain);
	struct rp_conn *c = dial_from(w, 4242, 80), *d, *any;

	assert_non_null(c);
	sim_turn(w->sim, 0);
	assert_non_null(wire_take(w));
	assert_int_equal(w->local_port, 4242);
	/* The flow is taken, the port is not. */
	assert_null(dial_from(w, 4242, 80));
	assert_int_equal(errno, EADDRINUSE);
	d = dial_from(w, 4242, 81);
	assert_non_null(d);
	any = dial_from(w, 0, 80);
	assert_non_null(any);
	c->transport->ops->abort(c, w->sim->now_ns);
	d->transport->ops->abort(d, w->sim->now_ns);
	any->transport->ops->abort(any, w->sim->now_ns);
	wire_free(w);
}

static void half_closed_for_hours(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	rp_tcp_shutdown(w->app.conn, w->sim->now_ns);
	sim_turn(w->sim, 0);
	wire_expect(w, ACK | FIN, 1, 1, 0);
	wire_put(w, ACK, 1, 2, NULL, 0);
	wire_wait(w, 7200 * RP_NS_PER_S);
	assert_false(w->app.closed);
	/* Twice is once; close() sets the limit. */
	rp_tcp_shutdown(w->app.conn, w->sim->now_ns);
	w->app.conn->transport->ops->close(w->app.conn, w->sim->now_ns);
	sim_turn(w->sim, 0);
	wire_none(w);
	wire_wait(w, 59 * RP_NS_PER_S);
	assert_false(w->app.closed);
	wire_wait(w, 2 * RP_NS_PER_S);
	assert_true(w->app.closed);
	wire_free(w);
}

static void refused_data(void **state)
{
	struct wire *w = wire_new(&plain);
	struct rp_conn *c;
	struct wire_out *o;

	wire_accept(w, false);
	c = w->app.conn;
	w->app.conn = NULL;
	rp_tcp_refuse(c, w->sim->now_ns);
	sim_turn(w->sim, 0);
	o = wire_take(w);
	assert_non_null(o);
	assert_int_equal(o->flags, RST);
	assert_int_equal(o->seq, w->irs + 1);
	assert_int_equal(o->ack, 0);
	assert_false(w->app.closed); /* no event follows */
	wire_free(w);
}

static void an_ack_that_is_owed(void **state)
{
	struct wire *w = wire_new(&plain);
	uint8_t byte = app_byte(2, 0);

	wire_accept(w, false);
	rp_tcp_ack_now(w->app.conn); /* nothing is */
	sim_turn(w->sim, 0);
	wire_none(w);
	wire_put(w, ACK, 1, 1, &byte, 1);
	wire_none(w);
	rp_tcp_ack_now(w->app.conn);
	sim_turn(w->sim, 0);
	wire_expect(w, ACK, 1, 2, 0);
	wire_wait(w, RP_NS_PER_S);
	wire_none(w);
	wire_free(w);
}

static void segments_are_counted(void **state)
{
	struct wire *w = wire_new(&plain);
	struct rp_tcp_segments g;

	wire_accept(w, false);
	w->app.to_send = 3 * 1460;
	w->app.chunk = 3 * 1460;
	app_pump(&w->app);
	rp_tcp_conn_segments(w->app.conn, &g);
	assert_int_equal(g.unacked, 0); /* none was sent yet */
	sim_turn(w->sim, 0);
	rp_tcp_conn_segments(w->app.conn, &g);
	assert_int_equal(g.unacked, 3);
	assert_int_equal(g.lost + g.sacked + g.retransmitted + g.head_retransmits, 0);
	wire_wait(w, 8 * RP_NS_PER_MS); /* the timeout of this simulation is 5 ms */
	rp_tcp_conn_segments(w->app.conn, &g);
	assert_int_equal(g.unacked, 3);
	assert_int_equal(g.retransmitted, 1);
	assert_int_equal(g.lost, 2);
	assert_int_equal(g.head_retransmits, 1);
	assert_true(g.after_timeout);
	wire_put(w, ACK, 1, 1 + 3 * 1460, NULL, 0);
	rp_tcp_conn_segments(w->app.conn, &g);
	assert_int_equal(g.unacked, 0);
	assert_false(g.after_timeout);
	wire_free(w);
}

static void a_timeout_set_later(void **state)
{
	struct wire *w = wire_new(&plain);

	wire_accept(w, false);
	w->app.to_send = w->app.chunk = 100;
	app_pump(&w->app);
	sim_turn(w->sim, 0);
	rp_tcp_set_user_timeout(w->app.conn, 2 * RP_NS_PER_S, w->sim->now_ns);
	wire_wait(w, 1900 * RP_NS_PER_MS);
	assert_false(w->app.closed);
	wire_wait(w, 200 * RP_NS_PER_MS);
	assert_true(w->app.closed);
	assert_int_equal(w->app.reason, RP_CLOSE_TIMEOUT);
	wire_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_port_of_ones_own),
		cmocka_unit_test(half_closed_for_hours),
		cmocka_unit_test(refused_data),
		cmocka_unit_test(an_ack_that_is_owed),
		cmocka_unit_test(segments_are_counted),
		cmocka_unit_test(a_timeout_set_later),
	};

	return sim_eal() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
