/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sim.h"

/* The ends of connections, in every order, over networks good and bad. `tcp_close_test [seed]`. */

static uint64_t base_seed = 1;

struct pair {
	struct sim *sim;
	struct app a, b;
};

static bool both_closed(void *ctx)
{
	struct pair *p = ctx;

	return p->a.closed && p->b.closed;
}

static bool both_open(void *ctx)
{
	struct pair *p = ctx;

	return p->a.opened && p->b.opened;
}

static bool a_closed(void *ctx)
{
	return ((struct pair *)ctx)->a.closed;
}

static void pair_start(struct pair *p, uint64_t seed, double loss)
{
	struct sim_config c = {.seed = seed,
		.rtt_ns = 20000,
		.impair = {
			.drop = loss, .reorder = loss * 4, .reorder_ns = 30000, .duplicate = loss}};

	/* Five losses in a row after a lost SYN take longer than the default. */
	c.tcp[0].fin_wait_ns = c.tcp[1].fin_wait_ns = 400 * RP_NS_PER_S;
	p->sim = sim_new(&c);
	app_init(&p->a, p->sim, 0, 11, 22);
	app_init(&p->b, p->sim, 1, 22, 11);
	p->a.close = p->b.close = APP_CLOSE_NEVER;
	SIM_CHECK(p->sim, app_listen(&p->b, 9, NULL) == 0);
}

static void pair_open(struct pair *p, uint64_t seed, double loss)
{
	pair_start(p, seed, loss);
	SIM_CHECK(p->sim, app_dial(&p->a, 9, NULL) == 0);
	SIM_CHECK(p->sim, sim_run(p->sim, p->sim->now_ns + 100 * RP_NS_PER_S, both_open, p));
}

static void pair_end(struct pair *p)
{
	SIM_CHECK(p->sim, sim_run(p->sim, p->sim->now_ns + 500 * RP_NS_PER_S, both_closed, p));
	SIM_CHECK(p->sim, p->a.closes == 1 && p->b.closes == 1);
}

static void add(struct app *a, uint32_t bytes)
{
	a->to_send += bytes;
	app_pump(a);
}

static uint32_t time_waits(struct pair *p)
{
	struct rp_tcp_usage u[2];

	rp_tcp_usage(p->sim->host[0].stack, &u[0]);
	rp_tcp_usage(p->sim->host[1].stack, &u[1]);
	return u[0].time_wait + u[1].time_wait;
}

static void one_after_the_other(void **state)
{
	struct pair p;
	struct rp_tcp_usage u;

	pair_open(&p, base_seed, 0);
	add(&p.a, 5000);
	app_close(&p.a);
	sim_run(p.sim, p.sim->now_ns + RP_NS_PER_MS, NULL, NULL);
	assert_true(p.b.peer_fin && !p.b.closed && !p.a.closed);
	assert_int_equal(p.b.received, 5000);
	add(&p.b, 70000); /* half closed: the other direction goes on */
	app_close(&p.b);
	pair_end(&p);
	assert_int_equal(p.a.received, 70000);
	assert_true(p.a.reason == RP_CLOSE_FIN && p.b.reason == RP_CLOSE_FIN);
	/* Who closed first waits. */
	rp_tcp_usage(p.sim->host[0].stack, &u);
	assert_int_equal(u.time_wait, 1);
	assert_int_equal(time_waits(&p), 1);
	sim_free(p.sim);
}

static void both_at_once(void **state)
{
	struct pair p;

	pair_open(&p, base_seed, 0);
	add(&p.a, 5000);
	add(&p.b, 3000);
	app_close(&p.a);
	app_close(&p.b);
	pair_end(&p);
	assert_true(p.a.reason == RP_CLOSE_FIN && p.b.reason == RP_CLOSE_FIN);
	assert_true(p.a.received == 3000 && p.b.received == 5000);
	assert_int_equal(time_waits(&p), 2);
	sim_free(p.sim);
}

static void abort_resets(void **state)
{
	struct pair p;

	pair_open(&p, base_seed, 0);
	add(&p.a, 50000);
	p.a.conn->transport->ops->abort(p.a.conn, p.sim->now_ns);
	p.a.conn = NULL;
	sim_run(p.sim, p.sim->now_ns + RP_NS_PER_MS, NULL, NULL);
	assert_true(p.b.closed && !p.a.closed);
	assert_int_equal(p.b.reason, RP_CLOSE_RESET);
	assert_int_equal(time_waits(&p), 0);
	sim_free(p.sim);
}

static void abort_self(struct app *a)
{
	a->conn->transport->ops->abort(a->conn, a->sim->now_ns);
	a->conn = NULL;
}

static void abort_from_within_an_event(void **state)
{
	struct pair p;

	pair_start(&p, base_seed, 0);
	p.b.on_data = abort_self;
	SIM_CHECK(p.sim, app_dial(&p.a, 9, NULL) == 0);
	add(&p.a, 3000); /* before it is open: goes with the handshake's end */
	sim_run(p.sim, p.sim->now_ns + RP_NS_PER_MS, NULL, NULL);
	assert_int_equal(p.a.reason, RP_CLOSE_RESET);
	assert_true(p.a.closed && p.b.datas == 1 && p.b.closes == 0);
	sim_free(p.sim);
}

static void nobody_listens(void **state)
{
	struct pair p;

	pair_start(&p, base_seed, 0);
	SIM_CHECK(p.sim, app_dial(&p.a, 10, NULL) == 0);
	SIM_CHECK(p.sim, sim_run(p.sim, p.sim->now_ns + RP_NS_PER_MS, a_closed, &p));
	assert_int_equal(p.a.reason, RP_CLOSE_REFUSED);
	assert_false(p.a.opened);
	sim_free(p.sim);
}

static void owner_refuses(void **state)
{
	struct pair p;

	pair_start(&p, base_seed, 0);
	p.b.closed = true; /* its accept says no */
	SIM_CHECK(p.sim, app_dial(&p.a, 9, NULL) == 0);
	SIM_CHECK(p.sim, sim_run(p.sim, p.sim->now_ns + RP_NS_PER_MS, a_closed, &p));
	assert_int_equal(p.a.reason, RP_CLOSE_RESET);
	sim_free(p.sim);
}

static void no_such_neighbour(void **state)
{
	struct rp_endpoint away = sim_endpoint(1, 9), other = away;
	struct rp_transport *t;
	struct pair p;

	away.addr[1] = 99;
	other.family = 10 - other.family;
	other.addr[0] = 0xfd;
	pair_start(&p, base_seed, 0);
	t = rp_tcp_transport(p.sim->host[0].stack);
	SIM_CHECK(p.sim, app_dial(&p.a, 9, NULL) == 0);
	abort_self(&p.a);
	assert_null(t->ops->dial(t, &away, NULL, NULL, NULL, p.sim->now_ns));
	assert_int_equal(errno, ENETUNREACH);
	assert_null(t->ops->dial(t, &other, NULL, NULL, NULL, p.sim->now_ns));
	assert_int_equal(errno, EAFNOSUPPORT);
	/* Borrow the events of an app by dialling as it does. */
	p.sim->cut = true;
	SIM_CHECK(p.sim, app_dial(&p.a, 9, NULL) == 0);
	SIM_CHECK(p.sim, sim_run(p.sim, p.sim->now_ns + 60 * RP_NS_PER_S, a_closed, &p));
	assert_int_equal(p.a.reason, RP_CLOSE_UNREACHABLE);
	sim_free(p.sim);
}

static void close_before_it_is_open(void **state)
{
	struct pair p;

	pair_start(&p, base_seed, 0);
	SIM_CHECK(p.sim, app_dial(&p.a, 9, NULL) == 0);
	app_close(&p.a);
	SIM_CHECK(p.sim, sim_run(p.sim, p.sim->now_ns + RP_NS_PER_MS, a_closed, &p));
	assert_int_equal(p.a.reason, RP_CLOSE_ABORTED);
	sim_free(p.sim);
}

static void peer_that_vanished(void **state)
{
	struct pair p;

	pair_open(&p, base_seed, 0);
	/* Host 1 forgets: as after a restart. The next segment is answered by a reset. */
	abort_self(&p.b);
	p.sim->cut = true;
	sim_run(p.sim, p.sim->now_ns + RP_NS_PER_MS, NULL, NULL);
	p.sim->cut = false;
	add(&p.a, 100);
	SIM_CHECK(p.sim, sim_run(p.sim, p.sim->now_ns + RP_NS_PER_S, a_closed, &p));
	assert_int_equal(p.a.reason, RP_CLOSE_RESET);
	sim_free(p.sim);
}

static void a_cut_of_ten_seconds(void **state)
{
	struct pair p;

	pair_open(&p, base_seed, 0.01);
	add(&p.a, 300000);
	sim_run(p.sim, p.sim->now_ns + 100000, NULL, NULL);
	p.sim->cut = true;
	sim_run(p.sim, p.sim->now_ns + 10 * RP_NS_PER_S, NULL, NULL);
	p.sim->cut = false;
	p.a.close = APP_CLOSE_WHEN_SENT;
	p.b.close = APP_CLOSE_ON_FIN;
	app_pump(&p.a);
	pair_end(&p);
	assert_int_equal(p.b.received, 300000);
	sim_free(p.sim);
}

/* Everything at random times, the network losing a part of it. */
static void any_order_with_loss(void **state)
{
	for (uint64_t i = 0; i < 300; i++) {
		struct rp_rand r = {base_seed * 1000 + i};
		struct pair p;
		bool fin = true;

		pair_open(&p, base_seed * 1000 + i, rp_rand_unit(&r) * 0.2);
		p.sim->config.check_every = 3;
		for (unsigned k = 0; k < 12; k++) {
			struct app *x = rp_rand_u64(&r) % 2 ? &p.a : &p.b;
			uint64_t what = rp_rand_below(&r, 20);

			if (x->conn && !x->close_called) {
				if (what < 8)
					add(x, (uint32_t)rp_rand_below(&r, 8000));
				else if (what < 14 && k > 3)
					app_close(x);
				else if (what == 19 && k > 6)
					fin = false;
				if (!fin && x->conn) {
					abort_self(x);
					x->closed = true;
					x->closes++;
					break;
				}
			}
			sim_run(p.sim, p.sim->now_ns + rp_rand_below(&r, 60000), NULL, NULL);
		}
		app_pump(&p.a);
		app_pump(&p.b);
		if (p.a.conn)
			app_close(&p.a);
		if (p.b.conn)
			app_close(&p.b);
		pair_end(&p);
		if (fin && p.a.reason == RP_CLOSE_FIN && p.b.reason == RP_CLOSE_FIN)
			SIM_CHECK(p.sim, p.a.received == p.b.sent && p.b.received == p.a.sent);
		/* Nobody may be left waiting: with a record in TIME-WAIT on one side, in order. */
		if (fin && p.a.reason != RP_CLOSE_FIN && p.b.reason != RP_CLOSE_FIN)
			sim_fail(p.sim, "ended by %d and %d", p.a.reason, p.b.reason);
		sim_free(p.sim);
	}
}

/* Connections by the thousand: each table and record is used again. */
static void many_connections(void **state)
{
	struct sim_config c = {.seed = base_seed, .rtt_ns = 5000, .check_every = 50};
	struct pair p;

	c.tcp[0].time_wait_max = 16;
	p.sim = sim_new(&c);
	app_init(&p.b, p.sim, 1, 22, 11);
	SIM_CHECK(p.sim, app_listen(&p.b, 9, NULL) == 0);
	for (unsigned i = 0; i < 3000; i++) {
		app_init(&p.a, p.sim, 0, 11, 22);
		app_init(&p.b, p.sim, 1, 22, 11);
		p.b.close = APP_CLOSE_ON_FIN;
		p.a.to_send = 100;
		SIM_CHECK(p.sim, app_dial(&p.a, 9, NULL) == 0);
		pair_end(&p);
		assert_int_equal(p.b.received, 100);
	}
	assert_true(rp_tcp_counters(p.sim->host[0].stack)->time_wait_early > 2900);
	sim_run(p.sim, p.sim->now_ns + 2 * RP_NS_PER_S, NULL, NULL);
	assert_int_equal(time_waits(&p), 0);
	sim_free(p.sim);
}

static void limits_of_connections(void **state)
{
	struct sim_config c = {.seed = base_seed, .rtt_ns = 5000};
	struct rp_transport *t;
	struct app apps[5];
	struct sim *s;

	c.tcp[0].connections_max = 4;
	c.tcp[1].listeners_max = 1;
	s = sim_new(&c);
	for (unsigned i = 0; i < 5; i++) {
		app_init(&apps[i], s, 0, 11, 22);
		assert_int_equal(app_dial(&apps[i], 9, NULL), i < 4 ? 0 : -ENOBUFS);
	}
	for (unsigned i = 0; i < 4; i++)
		abort_self(&apps[i]);
	sim_turn(s, 0);
	assert_int_equal(app_dial(&apps[0], 9, NULL), 0);
	abort_self(&apps[0]);
	app_init(&apps[0], s, 1, 11, 22);
	t = rp_tcp_transport(s->host[1].stack);
	assert_int_equal(app_listen(&apps[0], 9, NULL), 0);
	assert_int_equal(app_listen(&apps[0], 9, NULL), -EADDRINUSE);
	assert_int_equal(app_listen(&apps[0], 10, NULL), -ENOBUFS);
	assert_int_equal(t->ops->listen(t, 0, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(rp_tcp_unlisten(s->host[1].stack, 9, s->now_ns), 0);
	assert_int_equal(rp_tcp_unlisten(s->host[1].stack, 9, s->now_ns), -ENOENT);
	assert_int_equal(app_listen(&apps[0], 10, NULL), 0);
	sim_free(s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_after_the_other),
		cmocka_unit_test(both_at_once),
		cmocka_unit_test(abort_resets),
		cmocka_unit_test(abort_from_within_an_event),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(owner_refuses),
		cmocka_unit_test(no_such_neighbour),
		cmocka_unit_test(close_before_it_is_open),
		cmocka_unit_test(peer_that_vanished),
		cmocka_unit_test(a_cut_of_ten_seconds),
		cmocka_unit_test(any_order_with_loss),
		cmocka_unit_test(many_connections),
		cmocka_unit_test(limits_of_connections),
	};

	if (argc > 1)
		base_seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)base_seed);
	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
