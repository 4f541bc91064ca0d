/* SPDX-License-Identifier: Apache-2.0 */

/* The message's JSON and its life. */

#include "rig.h"

#include <stdlib.h>

static struct rp_bus_message *parse(const char *json)
{
	return rp_bus_message_parse((struct rp_span){(const uint8_t *)json, strlen(json)});
}

static void what_is_written_is_read(void **state)
{
	static const char json[] =
		"{\"ver\":1,\"uid\":\"u\",\"cmd\":\"c\",\"exp\":20,\"try\":2,\"dat\":\"aGk=\",\"tag\":"
		"\"t\",\"src\":4294967295,\"dst\":[1,2],\"ret\":\"r\",\"shm\":\"s\",\"now\":1653454930,"
		"\"err\":\"\",\"sig\":\"x\",\"pxy\":false}";
	struct rp_bus_message *m = parse(json), *c;
	size_t length, n;
	char *text;
	uint8_t *data;

	assert_non_null(m);
	assert_int_equal(m->source, UINT32_MAX);
	assert_int_equal(m->now, 1653454930);
	data = rp_bus_message_data(m, &n);
	assert_int_equal(n, 2);
	assert_memory_equal(data, "hi", 2);
	free(data);
	c = rp_bus_message_copy(m);
	text = rp_bus_message_format(c, &length);
	assert_string_equal(text, json);
	assert_int_equal(length, strlen(json));
	free(text);
	rp_bus_message_free(c);
	rp_bus_message_free(m);
}

static void what_is_left_out_is_empty(void **state)
{
	struct rp_bus_message *m = parse("{\"err\":null,\"tag\":null,\"dst\":null}");

	assert_non_null(m);
	assert_string_equal(m->error, "");
	assert_int_equal(m->destination_count, 0);
	rp_bus_message_free(m);
}

static void what_is_none_is_refused(void **state)
{
	static const char *const bad[] = {"", "[]", "1", "{", "{\"uid\":1}", "{\"dst\":1}",
		"{\"dst\":[-1]}", "{\"dst\":[\"1\"]}", "{\"src\":4294967296}", "{\"exp\":\"1\"}",
		"{\"uid\":\"\\u0000\"}", "{}x"};

	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++)
		if (parse(bad[i]))
			fail_msg("%s was taken", bad[i]);
}

static void a_life_shrinks_and_never_grows(void **state)
{
	struct rp_bus_message *m = rp_bus_message_new();
	uint64_t ttl;

	m->expiration = 10;
	m->now = 1000;
	assert_true(rp_bus_message_ttl(m, 1000000, &ttl));
	assert_int_equal(ttl, 10000);
	assert_true(rp_bus_message_ttl(m, 1000001, &ttl));
	assert_int_equal(ttl, 9999);
	assert_true(rp_bus_message_ttl(m, 1009999, &ttl));
	assert_int_equal(ttl, 1);
	assert_true(rp_bus_message_ttl(m, 1010000, &ttl));
	assert_int_equal(ttl, 0);
	assert_true(rp_bus_message_ttl(m, UINT64_MAX / 4, &ttl));
	assert_int_equal(ttl, 0);
	/* A clock that is behind gives no more than it was. */
	assert_true(rp_bus_message_ttl(m, 5000, &ttl));
	assert_int_equal(ttl, 10000);
	m->expiration = 0;
	assert_false(rp_bus_message_ttl(m, 1000000, &ttl));
	m->expiration = INT64_MAX;
	assert_false(rp_bus_message_ttl(m, 1000000, &ttl));
	rp_bus_message_free(m);
}

static void ids_are_uuids(void **state)
{
	uint8_t bytes[16];
	char id[RP_BUS_ID_SIZE], other[RP_BUS_ID_SIZE];

	memset(bytes, 0xff, sizeof(bytes));
	rp_bus_id_format(bytes, id);
	assert_string_equal(id, "ffffffff-ffff-4fff-bfff-ffffffffffff");
	memset(bytes, 0, sizeof(bytes));
	rp_bus_id_format(bytes, id);
	assert_string_equal(id, "00000000-0000-4000-8000-000000000000");
	rp_bus_id_new(id);
	rp_bus_id_new(other);
	assert_string_not_equal(id, other);
}

static void data_that_is_no_base64(void **state)
{
	struct rp_bus_message *m = rp_bus_message_new();
	size_t n;
	uint8_t *data = rp_bus_message_data(m, &n);

	assert_non_null(data);
	assert_int_equal(n, 0);
	free(data);
	rp_bus_text_set(&m->data, "not base64!");
	assert_null(rp_bus_message_data(m, &n));
	rp_bus_message_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(what_is_left_out_is_empty),
		cmocka_unit_test(what_is_none_is_refused),
		cmocka_unit_test(a_life_shrinks_and_never_grows),
		cmocka_unit_test(ids_are_uuids),
		cmocka_unit_test(data_that_is_no_base64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
