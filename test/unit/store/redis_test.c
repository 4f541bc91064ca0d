/* SPDX-License-Identifier: Apache-2.0 */

/* A redis-server that is killed, restarted, slow, full, and that refuses. */

#include "rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	rig_create(r, true);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	rig_destroy(*state);
	free(*state);
	return 0;
}

struct taken {
	unsigned count;
	uint64_t ids[256];
	char texts[256][16];
};

static void on_entry(void *ctx, uint64_t id, struct rp_span entry)
{
	struct taken *t = ctx;

	assert_true(t->count < 256);
	t->ids[t->count] = id;
	snprintf(t->texts[t->count++], 16, "%.*s", (int)entry.length, (const char *)entry.data);
}

static void wait_count(struct rig *r, const struct taken *t, unsigned count)
{
	for (unsigned i = 0; i < 8000 && t->count < count; i++)
		rig_pass(r, 1);
	assert_int_equal(t->count, count);
}

static void wait_connected(struct rig *r)
{
	struct rp_store_state s = {0};

	for (unsigned i = 0; i < 8000 && !s.connected; i++) {
		rig_pass(r, 1);
		rp_store_state_get(r->s, &s);
	}
	assert_true(s.connected);
}

static void killed_and_back(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "kept", 600000);
	struct outcome o;
	uint64_t begin_ns;

	assert_int_equal(rig_forward(r, m, NULL), RP_STORE_OK);
	assert_int_equal(rig_run(r, m, NULL), RP_STORE_OK);
	redis_server_kill(&r->server);
	begin_ns = rp_loop_clock_ns();
	assert_int_equal(rig_get(r, "kept", &o), RP_STORE_UNAVAILABLE);
	assert_true(strlen(o.text) > strlen(rp_store_status_text(RP_STORE_UNAVAILABLE)));
	assert_int_equal(rig_run(r, m, NULL), RP_STORE_UNAVAILABLE);
	/* Long before the limit of a call: it is known that nobody is there. */
	assert_true(rp_loop_clock_ns() - begin_ns < 4000 * RP_NS_PER_MS);
	redis_server_start(&r->server, NULL);
	wait_connected(r);
	assert_int_equal(rig_get(r, "kept", NULL), RP_STORE_OK);
	assert_int_equal(rig_length(r, "msgbus.calc.add"), 1);
	assert_int_equal(rig_length(r, RP_STORE_FORWARD), 1);
	assert_true(rp_store_counters(r->s)->connects >= 2);
	assert_true(rp_store_counters(r->s)->disconnects >= 1);
	assert_int_equal(rp_store_counters(r->s)->failed, 2);
	rp_bus_message_free(m);
}

/* Each of 200 entries comes once, though the server dies twice meanwhile. */
static void taking_through_restarts(void **state)
{
	struct rig *r = *state;
	struct taken t = {0};
	struct rp_store_taker *taker = rp_store_take(r->s, "msgbus.jobs", on_entry, &t);
	bool seen[200] = {0};
	char text[16];

	for (unsigned i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "%u", i);
		assert_int_equal(rig_push(r, "msgbus.jobs", text, 0), RP_STORE_OK);
	}
	for (unsigned round = 0; round < 3; round++) {
		unsigned from = t.count;

		rp_store_want(taker, round < 2 ? 60 : 200 - t.count);
		wait_count(r, &t, round < 2 ? from + 60 : 200);
		for (unsigned i = from; i < t.count; i += 2)
			rp_store_settle(taker, t.ids[i]);
		if (round == 2)
			break;
		redis_server_kill(&r->server);
		for (unsigned i = from + 1; i < t.count; i += 2)
			rp_store_settle(taker, t.ids[i]);
		rig_pass(r, 20);
		redis_server_start(&r->server, NULL);
		wait_connected(r);
	}
	for (unsigned i = 0; i < 200; i++) {
		unsigned n = (unsigned)atoi(t.texts[i]);

		assert_false(seen[n]);
		seen[n] = true;
	}
	for (unsigned i = 1; i < 80; i += 2)
		rp_store_settle(taker, t.ids[120 + i]);
	for (unsigned i = 0; i < 3000 && strcmp(redis_server_ask(&r->server, "keys '*'"), ""); i++)
		rig_pass(r, 1);
	assert_string_equal(redis_server_ask(&r->server, "keys '*'"), "");
}

static void what_was_held_comes_again(void **state)
{
	struct rig *r = *state;
	struct taken first = {0}, second = {0};
	struct rp_store_taker *t = rp_store_take(r->s, "msgbus.jobs", on_entry, &first);

	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(
			rig_push(r, "msgbus.jobs", i < 2 ? "same" : "other", 0), RP_STORE_OK);
	rp_store_want(t, 3);
	wait_count(r, &first, 3);
	rp_store_settle(t, first.ids[0]);
	rig_pass(r, 50);
	/* The process dies, and another one of the same node begins. */
	rig_restart(r);
	t = rp_store_take(r->s, "msgbus.jobs", on_entry, &second);
	rp_store_want(t, 10);
	wait_count(r, &second, 3);
	assert_string_equal(second.texts[0], "same");
	assert_string_equal(second.texts[1], "other");
	assert_string_equal(second.texts[2], "other");
	assert_int_equal(rp_store_counters(r->s)->taken_again, 2);
	for (unsigned i = 0; i < 3; i++)
		rp_store_settle(t, second.ids[i]);
	rig_pass(r, 50);
	assert_string_equal(redis_server_ask(&r->server, "keys '*'"), "");
}

static void slow(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "slow", 600000);
	uint64_t begin_ns;
	struct outcome o;

	assert_int_equal(rig_run(r, m, NULL), RP_STORE_OK);
	rp_store_set_limits(r->s, 10, 4, 500);
	redis_server_signal(&r->server, SIGSTOP);
	begin_ns = rp_loop_clock_ns();
	assert_int_equal(rig_run(r, m, &o), RP_STORE_TIMEOUT);
	assert_true(rp_loop_clock_ns() - begin_ns >= 400 * RP_NS_PER_MS);
	assert_true(rp_loop_clock_ns() - begin_ns < 4000 * RP_NS_PER_MS);
	assert_non_null(strstr(o.text, "no answer"));
	redis_server_signal(&r->server, SIGCONT);
	rp_store_set_limits(r->s, 10, 4, 5000);
	wait_connected(r);
	/* What was not answered has been done, as it may be. */
	assert_int_equal(rig_run(r, m, NULL), RP_STORE_OK);
	assert_int_equal(rig_length(r, "msgbus.calc.add"), 3);
	rp_bus_message_free(m);
}

static void full(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "full", 600000);
	struct taken t = {0};
	struct rp_store_taker *taker;
	struct outcome o;

	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(rig_push(r, "msgbus.jobs", "job", 0), RP_STORE_OK);
	redis_server_ask(&r->server, "config set maxmemory-policy noeviction");
	assert_string_equal(redis_server_ask(&r->server, "config set maxmemory 1"), "OK");
	assert_int_equal(rig_forward(r, m, &o), RP_STORE_FULL);
	assert_non_null(strstr(o.text, "OOM"));
	assert_int_equal(rig_run(r, m, NULL), RP_STORE_FULL);
	assert_int_equal(rig_push(r, "msgbus.jobs", "more", 0), RP_STORE_FULL);
	assert_int_equal(rig_length(r, RP_STORE_FORWARD), 0);
	/* It can be emptied: that is how it gets room again. */
	taker = rp_store_take(r->s, "msgbus.jobs", on_entry, &t);
	rp_store_want(taker, 2);
	wait_count(r, &t, 2);
	rp_store_settle(taker, t.ids[0]);
	rp_store_give_back(taker, t.ids[1]);
	for (unsigned i = 0; i < 1000 && rig_length(r, "msgbus.jobs") != 2; i++)
		rig_pass(r, 1);
	assert_int_equal(rig_length(r, "msgbus.jobs"), 2);
	assert_string_equal(redis_server_ask(&r->server, "config set maxmemory 0"), "OK");
	assert_int_equal(rig_forward(r, m, NULL), RP_STORE_OK);
	rp_bus_message_free(m);
}

static void refusals(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "no", 600000);
	struct taken t = {0};
	struct rp_store_taker *taker = rp_store_take(r->s, "msgbus.jobs", on_entry, &t);
	struct outcome o;

	redis_server_ask(&r->server, "set msgbus.calc.add text");
	redis_server_ask(&r->server, "set msgbus.jobs text");
	redis_server_ask(&r->server, "set msgbus.system.forward text");
	assert_int_equal(rig_run(r, m, &o), RP_STORE_REFUSED);
	assert_non_null(strstr(o.text, "WRONGTYPE"));
	assert_int_equal(rig_forward(r, m, NULL), RP_STORE_REFUSED);
	assert_int_equal(rig_get(r, "no", NULL), RP_STORE_NONE);
	redis_server_ask(&r->server, "set msgbus.backlog.odd '{'");
	assert_int_equal(rig_get(r, "odd", NULL), RP_STORE_MALFORMED);
	rp_store_want(taker, 1);
	rig_pass(r, 50);
	redis_server_ask(&r->server, "del msgbus.jobs");
	assert_int_equal(rig_push(r, "msgbus.jobs", "job", 0), RP_STORE_OK);
	wait_count(r, &t, 1);
	rp_bus_message_free(m);
}

static void passwords_and_databases(void **state)
{
	struct rig *r = *state;
	static const char *const guarded[] = {"--requirepass", "secret", NULL};
	struct rp_bus_message *m = rig_message(r, "id", 600000);
	struct rp_store_state s;
	char url[160];
	struct outcome o;

	redis_server_kill(&r->server);
	redis_server_start(&r->server, guarded);
	assert_int_not_equal(rig_run(r, m, &o), RP_STORE_OK);
	snprintf(url, sizeof(url), "unix://%s?db=3", r->server.socket);
	r->config.url = url;
	rig_restart(r);
	assert_int_not_equal(rig_run(r, m, &o), RP_STORE_OK);
	rp_store_state_get(r->s, &s);
	assert_non_null(strstr(s.error, "NOAUTH"));
	rp_bus_message_free(m);
}

static void urls(void **state)
{
	static const char *const bad[] = {"http://127.0.0.1", "redis://", "redis://a.name",
		"redis://127.0.0.1:0", "redis://127.0.0.1:x", "redis://127.0.0.1/x", "unix://",
		"unix://relative", "redis://x@127.0.0.1", "redis://[::1", "redis://::1"};
	static const char *const good[] = {"redis://127.0.0.1", "redis://127.0.0.1:1/2",
		"redis://:pass@localhost:6379", "redis://[::1]:6379/0", "unix:///nowhere?db=1"};
	struct rig *r = *state;
	struct rp_store_config c = r->config;

	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++) {
		c.url = bad[i];
		if (rp_store_create(&c))
			fail_msg("%s was taken", bad[i]);
	}
	for (size_t i = 0; i < RP_ARRAY_SIZE(good); i++) {
		struct rp_store *s;

		c.url = good[i];
		s = rp_store_create(&c);
		if (!s)
			fail_msg("%s was not taken", good[i]);
		rp_store_destroy(s);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(killed_and_back),
		TEST(taking_through_restarts),
		TEST(what_was_held_comes_again),
		TEST(slow),
		TEST(full),
		TEST(refusals),
		TEST(passwords_and_databases),
		TEST(urls),
	};

	if (!redis_server_installed())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
