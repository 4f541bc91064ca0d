/* SPDX-License-Identifier: Apache-2.0 */

/* What holds of every storage: in memory, and in a real redis-server (argument "redis"). */

#include "rig.h"

#include <stdio.h>
#include <stdlib.h>

static bool with_redis;

static int setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	rig_create(r, with_redis);
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	rig_destroy(*state);
	free(*state);
	return 0;
}

static const struct rp_store_counters *counters(struct rig *r)
{
	return rp_store_counters(r->s);
}

static void messages_live_as_long_as_they_say(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "id-1", 1500);
	struct outcome o;

	assert_int_equal(rig_get(r, "id-1", NULL), RP_STORE_NONE);
	assert_int_equal(rig_forward(r, m, NULL), RP_STORE_OK);
	assert_int_equal(rig_get(r, "id-1", &o), RP_STORE_OK);
	assert_string_equal(o.message->id, "id-1");
	assert_string_equal(o.message->data, "aGVsbG8=");
	assert_int_equal(o.message->source, 3);
	outcome_clear(&o);
	rig_pass(r, 1600);
	assert_int_equal(rig_get(r, "id-1", NULL), RP_STORE_NONE);
	rp_bus_message_free(m);
}

static void what_is_incomplete_is_refused(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "", 5000);

	assert_int_equal(rig_forward(r, m, NULL), RP_STORE_INVALID);
	assert_int_equal(rig_run(r, m, NULL), RP_STORE_INVALID);
	assert_int_equal(rig_reply(r, m, NULL), RP_STORE_INVALID);
	assert_int_equal(rig_get(r, "", NULL), RP_STORE_INVALID);
	rp_bus_text_set(&m->id, "id-2");
	rp_bus_text_set(&m->reply, "");
	assert_int_equal(rig_reply(r, m, NULL), RP_STORE_INVALID);
	rp_bus_text_set(&m->command, "system.local");
	assert_int_equal(rig_run(r, m, NULL), RP_STORE_INVALID);
	m->destination_count = 0;
	assert_int_equal(rig_forward(r, m, NULL), RP_STORE_INVALID);
	assert_int_equal(counters(r)->refused_invalid, 7);
	assert_int_equal(rig_length(r, RP_STORE_FORWARD), 0);
	assert_int_equal(rig_length(r, RP_STORE_LOCAL), 0);
	rp_bus_message_free(m);
}

static void a_program_that_does_not_work_keeps_the_newest(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "id-0", 500000);
	char id[16];

	for (unsigned i = 0; i < 13; i++) {
		struct outcome o;

		snprintf(id, sizeof(id), "id-%u", i);
		rp_bus_text_set(&m->id, id);
		assert_int_equal(rig_run(r, m, &o), RP_STORE_OK);
		assert_int_equal(o.count, i < 10 ? 0 : 1);
		outcome_clear(&o);
	}
	assert_int_equal(counters(r)->commands_dropped, 3);
	assert_int_equal(rig_length(r, "msgbus.calc.add"), 10);
	assert_non_null(strstr(rig_pop(r, "msgbus.calc.add"), "\"id-3\""));
	rp_bus_message_free(m);
}

static void answers_go_where_they_are_waited_for(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "id-4", 5000), *got;
	const char *json;

	assert_int_equal(rig_reply(r, m, NULL), RP_STORE_OK);
	json = rig_pop(r, "answers");
	got = rp_bus_message_parse((struct rp_span){(const uint8_t *)json, strlen(json)});
	assert_non_null(got);
	assert_string_equal(got->id, "id-4");
	rp_bus_message_free(got);
	rp_bus_message_free(m);
}

static void local_messages_come_and_get_ids(void **state)
{
	struct rig *r = *state;
	struct outcome first = {0}, second = {0};

	rp_store_local(r->s, rig_done, &first);
	rp_store_local(r->s, rig_done, &second);
	rig_pass(r, 20);
	assert_false(first.done);
	rig_push(r, RP_STORE_LOCAL, "{\"ver\":1,\"uid\":\"\",\"cmd\":\"a\",\"dst\":[1,2]}", 0);
	rig_push(r, RP_STORE_LOCAL, "no message", 0);
	rig_push(r, RP_STORE_LOCAL, "{\"ver\":1,\"uid\":\"own\",\"cmd\":\"b\",\"src\":-1}", 0);
	rig_push(r, RP_STORE_LOCAL, "{\"ver\":1,\"uid\":\"own\",\"cmd\":\"b\"}", 0);
	assert_true(rig_wait(r, &second.done, 20000));
	assert_int_equal(first.status, RP_STORE_OK);
	assert_int_equal(strlen(first.message->id), RP_BUS_ID_SIZE - 1);
	assert_int_equal(first.message->id[14], '4');
	assert_int_equal(first.message->now, r->wall_ms / 1000);
	assert_int_equal(first.message->destination_count, 2);
	assert_string_equal(second.message->id, "own");
	assert_int_equal(counters(r)->malformed_dropped, 2);
	outcome_clear(&first);
	outcome_clear(&second);
}

static void each_destination_is_one_turn(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "with.dots.in", 60000);
	uint32_t destinations[3] = {7, 8, UINT32_MAX};

	free(m->destinations);
	m->destinations = destinations;
	m->destination_count = 3;
	assert_int_equal(rig_forward(r, m, NULL), RP_STORE_OK);
	for (unsigned i = 0; i < 3; i++) {
		struct outcome o = {0};

		rp_store_queued(r->s, rig_done, &o);
		assert_true(rig_wait(r, &o.done, 20000));
		assert_int_equal(o.kind, RP_STORE_KIND_FORWARD);
		assert_int_equal(o.message->destination_count, 1);
		assert_int_equal(o.message->destinations[0], destinations[i]);
		assert_string_equal(o.message->id, "with.dots.in");
		outcome_clear(&o);
	}
	assert_int_equal(counters(r)->cache_misses, 1);
	assert_int_equal(counters(r)->cache_hits, 2);
	assert_int_equal(counters(r)->queued_forwards, 3);
	m->destinations = NULL;
	m->destination_count = 0;
	rp_bus_message_free(m);
}

static void the_cache_is_bounded(void **state)
{
	struct rig *r = *state;
	char id[16];

	/* Twice five messages, with room for four: the second round finds none of them. */
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 5; i++) {
			struct rp_bus_message *m;
			struct outcome o = {0};

			snprintf(id, sizeof(id), "id-%u", i);
			m = rig_message(r, id, 600000);
			assert_int_equal(rig_forward(r, m, NULL), RP_STORE_OK);
			rp_store_queued(r->s, rig_done, &o);
			assert_true(rig_wait(r, &o.done, 20000));
			outcome_clear(&o);
			rp_bus_message_free(m);
		}
	assert_int_equal(counters(r)->cache_misses, 10);
}

static void neither_starves(void **state, const char *flooded, const char *other)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "id-5", 600000);
	unsigned forwards = 0, replies = 0;
	char entry[64];

	assert_int_equal(rig_forward(r, m, NULL), RP_STORE_OK);
	assert_string_equal(rig_pop(r, RP_STORE_FORWARD), "id-5.7");
	for (unsigned i = 0; i < 60; i++) {
		const char *queue = i < 40 ? flooded : other;

		snprintf(entry, sizeof(entry),
			strcmp(queue, RP_STORE_FORWARD) == 0 ? "id-5.7"
							     : "{\"uid\":\"r\",\"cmd\":\"a\"}");
		assert_int_equal(rig_push(r, queue, entry, 0), RP_STORE_OK);
	}
	for (unsigned i = 0; i < 60; i++) {
		struct outcome o = {0};

		/* The one that is behind has its 20 done by then, and a few to begin with: until
		 * both connections are there only one of them has some. */
		if (i == 56)
			assert_int_equal(
				strcmp(other, RP_STORE_FORWARD) == 0 ? forwards : replies, 20);
		rp_store_queued(r->s, rig_done, &o);
		assert_true(rig_wait(r, &o.done, 20000));
		assert_int_equal(o.status, RP_STORE_OK);
		forwards += o.kind == RP_STORE_KIND_FORWARD;
		replies += o.kind == RP_STORE_KIND_REPLY;
		outcome_clear(&o);
		if (i == 0)
			rig_pass(r, 50);
	}
	assert_int_equal(forwards + replies, 60);
	rp_bus_message_free(m);
}

static void replies_pass_a_flood_of_forwards(void **state)
{
	neither_starves(state, RP_STORE_FORWARD, RP_STORE_REPLY);
}

static void forwards_pass_a_flood_of_replies(void **state)
{
	neither_starves(state, RP_STORE_REPLY, RP_STORE_FORWARD);
}

static void what_is_over_goes_no_further(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *late = rig_message(r, "late", 1500);
	struct rp_bus_message *next = rig_message(r, "next", 60000), *told;
	struct outcome o = {0};
	const char *json;

	late->now = (int64_t)(r->wall_ms / 1000) - late->expiration;
	late->expiration += 1;
	late->now -= 1;
	/* `late` has nothing left at all. */
	late->expiration = 1;
	assert_int_equal(rig_forward(r, late, NULL), RP_STORE_EXPIRED);
	assert_int_equal(rig_run(r, late, NULL), RP_STORE_EXPIRED);
	assert_int_equal(counters(r)->refused_expired, 2);
	rp_bus_message_free(late);
	late = rig_message(r, "late", 1500);
	assert_int_equal(rig_forward(r, late, NULL), RP_STORE_OK);
	assert_int_equal(rig_forward(r, next, NULL), RP_STORE_OK);
	rig_pass(r, 1600);
	rp_store_queued(r->s, rig_done, &o);
	assert_true(rig_wait(r, &o.done, 20000));
	assert_string_equal(o.message->id, "next");
	outcome_clear(&o);
	assert_int_equal(counters(r)->forwards_expired_dropped, 1);
	for (unsigned i = 0; i < 500 && rig_length(r, "answers") == 0; i++)
		rig_pass(r, 1);
	json = rig_pop(r, "answers");
	told = rp_bus_message_parse((struct rp_span){(const uint8_t *)json, strlen(json)});
	assert_non_null(told);
	assert_string_equal(told->id, "late");
	assert_string_equal(told->error, rp_store_status_text(RP_STORE_EXPIRED));
	assert_int_equal(told->source, 7);
	assert_int_equal(told->destinations[0], 3);
	assert_int_equal(counters(r)->senders_told, 1);
	rp_bus_message_free(told);
	rp_bus_message_free(late);
	rp_bus_message_free(next);
}

static void forward_entries_that_are_none_are_counted(void **state)
{
	struct rig *r = *state;
	static const char *const bad[] = {"", "x", ".7", "x.", "x.y", "x.4294967296", "x.-1"};
	struct outcome o = {0};

	for (size_t i = 1; i < RP_ARRAY_SIZE(bad); i++)
		rig_push(r, RP_STORE_FORWARD, bad[i], 0);
	rig_push(r, RP_STORE_REPLY, "[]", 0);
	rp_store_queued(r->s, rig_done, &o);
	for (unsigned i = 0; i < 500 && counters(r)->malformed_dropped < 7; i++)
		rig_pass(r, 1);
	assert_int_equal(counters(r)->malformed_dropped, 7);
	assert_false(o.done);
	rig_push(r, RP_STORE_REPLY, "{\"uid\":\"ok\"}", 0);
	assert_true(rig_wait(r, &o.done, 20000));
	outcome_clear(&o);
}

/* ---- taking ---- */

struct taken {
	unsigned count;
	bool enough;
	uint64_t ids[64];
	char texts[64][16];
};

static void on_entry(void *ctx, uint64_t id, struct rp_span entry)
{
	struct taken *t = ctx;

	assert_true(t->count < 64);
	t->ids[t->count] = id;
	snprintf(t->texts[t->count++], 16, "%.*s", (int)entry.length, (const char *)entry.data);
}

static void wait_count(struct rig *r, const struct taken *t, unsigned count)
{
	for (unsigned i = 0; i < 3000 && t->count < count; i++)
		rig_pass(r, 1);
	assert_int_equal(t->count, count);
	rig_pass(r, 5);
	assert_int_equal(t->count, count);
}

static void as_many_are_taken_as_are_wanted(void **state)
{
	struct rig *r = *state;
	struct taken a = {0}, b = {0};
	struct rp_store_taker *t = rp_store_take(r->s, "msgbus.jobs", on_entry, &a);
	char text[8];

	for (unsigned i = 0; i < 6; i++) {
		snprintf(text, sizeof(text), "j%u", i);
		assert_int_equal(rig_push(r, "msgbus.jobs", text, 0), RP_STORE_OK);
	}
	rp_store_want(t, 4);
	wait_count(r, &a, 4);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), "j%u", i);
		assert_string_equal(a.texts[i], text);
	}
	assert_int_equal(rig_length(r, "msgbus.jobs"), 2);
	rp_store_settle(t, a.ids[0]);
	rp_store_give_back(t, a.ids[2]);
	for (unsigned i = 0; i < 500 && rig_length(r, "msgbus.jobs") < 3; i++)
		rig_pass(r, 1);
	rp_store_want(t, 1);
	wait_count(r, &a, 5);
	assert_string_equal(a.texts[4], "j2");
	/* j1, j2 and j3 are held: they come first again. */
	rp_store_take_end(t);
	for (unsigned i = 0; i < 500 && rig_length(r, "msgbus.jobs") < 5; i++)
		rig_pass(r, 1);
	t = rp_store_take(r->s, "msgbus.jobs", on_entry, &b);
	rp_store_want(t, 10);
	wait_count(r, &b, 5);
	assert_string_equal(b.texts[0], "j1");
	assert_string_equal(b.texts[1], "j3");
	assert_string_equal(b.texts[2], "j2");
	assert_string_equal(b.texts[3], "j4");
	assert_string_equal(b.texts[4], "j5");
	/* A push wakes who waits. */
	rig_push(r, "msgbus.jobs", "j6", 0);
	wait_count(r, &b, 6);
	rp_store_take_end(t);
}

static void a_full_queue_says_so(void **state)
{
	struct rig *r = *state;

	assert_int_equal(rig_push(r, "msgbus.jobs", "a", 2), RP_STORE_OK);
	assert_int_equal(rig_push(r, "msgbus.jobs", "b", 2), RP_STORE_OK);
	assert_int_equal(rig_push(r, "msgbus.jobs", "c", 2), RP_STORE_FULL);
	assert_int_equal(rig_length(r, "msgbus.jobs"), 2);
}

static void the_state_is_told(void **state)
{
	struct rig *r = *state;
	struct rp_store_state s;

	assert_int_equal(rig_push(r, "msgbus.jobs", "a", 0), RP_STORE_OK);
	rp_store_state_get(r->s, &s);
	assert_int_equal(s.redis, r->redis);
	assert_true(s.connected);
	assert_string_equal(s.error, "");
}

static void an_end_in_the_midst_leaks_nothing(void **state)
{
	struct rig *r = *state;
	struct rp_bus_message *m = rig_message(r, "id-9", 60000);
	struct outcome o[4] = {0};
	struct taken a = {0};

	rp_store_local(r->s, rig_done, &o[0]);
	rp_store_queued(r->s, rig_done, &o[1]);
	rp_store_forward(r->s, m, rig_done, &o[2]);
	rp_store_get(r->s, "id-9", rig_done, &o[3]);
	rp_store_want(rp_store_take(r->s, "msgbus.jobs", on_entry, &a), 3);
	rig_restart(r);
	rig_pass(r, 10);
	for (unsigned i = 0; i < 4; i++)
		assert_false(o[i].done);
	rp_bus_message_free(m);
}

int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(messages_live_as_long_as_they_say),
		TEST(what_is_incomplete_is_refused),
		TEST(a_program_that_does_not_work_keeps_the_newest),
		TEST(answers_go_where_they_are_waited_for),
		TEST(local_messages_come_and_get_ids),
		TEST(each_destination_is_one_turn),
		TEST(the_cache_is_bounded),
		TEST(replies_pass_a_flood_of_forwards),
		TEST(forwards_pass_a_flood_of_replies),
		TEST(what_is_over_goes_no_further),
		TEST(forward_entries_that_are_none_are_counted),
		TEST(as_many_are_taken_as_are_wanted),
		TEST(a_full_queue_says_so),
		TEST(the_state_is_told),
		TEST(an_end_in_the_midst_leaks_nothing),
	};

	with_redis = argc > 1 && strcmp(argv[1], "redis") == 0;
	if (with_redis && !redis_server_installed())
		return 77;
	return cmocka_run_group_tests_name(with_redis ? "redis" : "memory", tests, NULL, NULL);
}
