/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <process/envelope.h>
#include <process/output.h>

static struct rp_span span(const char *text)
{
	return (struct rp_span){(const uint8_t *)text, strlen(text)};
}

static enum rp_envelope_kind kind_of(const char *text, const char **why)
{
	struct rp_envelope e;
	enum rp_envelope_kind kind = rp_envelope_parse(&e, span(text), why);

	assert_true((kind == RP_ENVELOPE_BAD) == (*why != NULL));
	rp_envelope_clear(&e);
	return kind;
}

static void test_whole(void **state)
{
	const char *text =
		"{\"v\":1,\"ttl_ms\":12000,\"reply_to\":\"rpc-reply-A\",\"max_bytes\":65536,"
		"\"need\":[\"model-x\",\"gpu\"],\"fail_fast\":true,\"priority\":4,\"data\":\"x\","
		"\"unknown\":{\"is\":[\"ignored\"]}}";
	struct rp_envelope e;
	const char *why;

	assert_int_equal(rp_envelope_parse(&e, span(text), &why), RP_ENVELOPE_OK);
	assert_int_equal(e.ttl_ms, 12000);
	assert_int_equal(e.max_bytes, 65536);
	assert_int_equal(e.priority, 4);
	assert_true(e.has_priority && e.fail_fast);
	assert_int_equal(e.reply_to.length, 11);
	assert_memory_equal(e.reply_to.data, "rpc-reply-A", 11);
	assert_int_equal(e.need_count, 2);
	assert_memory_equal(e.need[1].data, "gpu", 3);
	rp_envelope_clear(&e);
	assert_int_equal(
		rp_envelope_parse(&e, span(" \n{\"ttl_ms\":1,\"v\":1}"), &why), RP_ENVELOPE_OK);
	assert_int_equal(e.ttl_ms, 1);
	assert_true(!e.has_priority && !e.fail_fast && e.reply_to.length == 0);
	rp_envelope_clear(&e);
}

static void test_plain(void **state)
{
	static const char *const plain[] = {"", "{", "hello", "[1,2]", "{}", "{\"v\":1}",
		"{\"ttl_ms\":5}", "{\"v\":2,\"ttl_ms\":5}", "{\"v\":\"1\",\"ttl_ms\":5}",
		"{\"v\":1,\"ttl_ms\":5", "{\"v\":1,\"ttl_ms\":5} and more",
		"[{\"v\":1,\"ttl_ms\":5}]", "{\"v\":1,\"data\":\"\\\"ttl_ms\\\"\"}",
		"{\"v\":1,\"ttl_ms\":5,\"data\":\"\xff\xfe\"}", "{\"v\":1,\"ttl_ms\":1e999}",
		"{\"v\":2,\"ttl_ms\":5,\"ttl_ms\":6}"};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(plain); i++) {
		const char *why;

		if (kind_of(plain[i], &why) != RP_ENVELOPE_NONE)
			fail_msg("not plain: %s", plain[i]);
	}
}

static void test_bad(void **state)
{
	static const struct {
		const char *fields, *says;
	} bad[] = {
		{"\"ttl_ms\":0", "ttl_ms"},
		{"\"ttl_ms\":-5", "ttl_ms"},
		{"\"ttl_ms\":1.5", "ttl_ms"},
		{"\"ttl_ms\":\"5\"", "ttl_ms"},
		{"\"ttl_ms\":null", "ttl_ms"},
		{"\"ttl_ms\":[]", "ttl_ms"},
		{"\"ttl_ms\":1099511627777", "ttl_ms"},
		{"\"ttl_ms\":99999999999999999999999999", "out of range"},
		{"\"ttl_ms\":5,\"ttl_ms\":6", "twice"},
		{"\"ttl_ms\":5,\"data\":{\"a\":1,\"a\":2}", "twice"},
		{"\"ttl_ms\":5,\"priority\":10", "priority"},
		{"\"ttl_ms\":5,\"priority\":-1", "priority"},
		{"\"ttl_ms\":5,\"priority\":\"high\"", "priority"},
		{"\"ttl_ms\":5,\"max_bytes\":0", "max_bytes"},
		{"\"ttl_ms\":5,\"max_bytes\":true", "max_bytes"},
		{"\"ttl_ms\":5,\"fail_fast\":1", "fail_fast"},
		{"\"ttl_ms\":5,\"reply_to\":\"\"", "reply_to"},
		{"\"ttl_ms\":5,\"reply_to\":\"a/b\"", "reply_to"},
		{"\"ttl_ms\":5,\"reply_to\":\"a\\u0000b\"", "reply_to"},
		{"\"ttl_ms\":5,\"reply_to\":7", "reply_to"},
		{"\"ttl_ms\":5,\"need\":\"gpu\"", "need"},
		{"\"ttl_ms\":5,\"need\":[1]", "need"},
		{"\"ttl_ms\":5,\"need\":[\"\"]", "need"},
		{"\"ttl_ms\":5,\"need\":[\"a,b\"]", "need"},
		{"\"ttl_ms\":5,\"need\":[\"a;b\"]", "need"},
		{"\"ttl_ms\":5,\"need\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
		 "\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]",
			"need"},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(bad); i++) {
		char text[512];
		const char *why;

		snprintf(text, sizeof(text), "{\"v\":1,%s}", bad[i].fields);
		if (kind_of(text, &why) != RP_ENVELOPE_BAD)
			fail_msg("taken: %s", text);
		if (!strstr(why, bad[i].says))
			fail_msg("%s: %s", text, why);
	}
}

static char *nested(unsigned depth)
{
	char *text = malloc(2 * (size_t)depth + 64);
	size_t n;

	assert_non_null(text);
	n = (size_t)sprintf(text, "{\"v\":1,\"ttl_ms\":5,\"data\":");
	memset(text + n, '[', depth);
	memset(text + n + depth, ']', depth);
	strcpy(text + n + 2 * (size_t)depth, "}");
	return text;
}

static void test_deep(void **state)
{
	static const struct {
		unsigned depth;
		enum rp_envelope_kind kind;
	} deep[] = {
		{RP_ENVELOPE_DEPTH_MAX - 1, RP_ENVELOPE_OK},
		{RP_ENVELOPE_DEPTH_MAX, RP_ENVELOPE_BAD},
		{1000, RP_ENVELOPE_BAD},
		/* Not even the parser goes there. */
		{100000, RP_ENVELOPE_NONE},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(deep); i++) {
		char *text = nested(deep[i].depth);
		const char *why;

		assert_int_equal(kind_of(text, &why), deep[i].kind);
		free(text);
	}
}

static void test_long_need(void **state)
{
	char text[400], need[300];
	const char *why;

	memset(need, 'x', sizeof(need));
	need[255] = '\0';
	snprintf(text, sizeof(text), "{\"v\":1,\"ttl_ms\":5,\"need\":[\"%s\"]}", need);
	assert_int_equal(kind_of(text, &why), RP_ENVELOPE_OK);
	need[255] = 'x';
	need[256] = '\0';
	snprintf(text, sizeof(text), "{\"v\":1,\"ttl_ms\":5,\"need\":[\"%s\"]}", need);
	assert_int_equal(kind_of(text, &why), RP_ENVELOPE_BAD);
}

static void test_ceiling(void **state)
{
	static const struct {
		uint64_t ttl, max, limit_ttl, limit_max, ttl_is, max_is;
	} rows[] = {
		{10, 0, 0, 0, 10, 0},
		{10, 0, 0, 500, 10, 500},
		{10, 400, 0, 500, 10, 400},
		{10, 600, 0, 500, 10, 500},
		{10, 600, 5, 0, 5, 600},
		{10, 600, 50, 0, 10, 600},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		struct rp_envelope e = {.ttl_ms = rows[i].ttl, .max_bytes = rows[i].max};
		const struct rp_envelope_limits limits = {
			.ttl_ms = rows[i].limit_ttl, .output_bytes = rows[i].limit_max};

		rp_envelope_ceil(&e, &limits);
		assert_int_equal(e.ttl_ms, rows[i].ttl_is);
		assert_int_equal(e.max_bytes, rows[i].max_is);
	}
}

static void test_written(void **state)
{
	static const uint8_t binary[] = {0, 0xff, 1, 2};
	const struct rp_span datas[] = {{(const uint8_t *)"text", 4}, {binary, 4}, {0}};
	struct rp_envelope e = {.ttl_ms = 7,
		.max_bytes = 9,
		.priority = 3,
		.has_priority = true,
		.fail_fast = true,
		.reply_to = {(const uint8_t *)"r", 1},
		.need_count = 1,
		.need = {{(const uint8_t *)"gpu", 3}}};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(datas); i++) {
		struct rp_envelope back;
		size_t length, n;
		char *text = rp_envelope_write(&e, datas[i], &length);
		struct rp_span value = {(const uint8_t *)text, length};
		uint8_t *data;
		const char *why;

		assert_non_null(text);
		assert_int_equal(rp_envelope_parse(&back, value, &why), RP_ENVELOPE_OK);
		assert_int_equal(back.ttl_ms, 7);
		assert_int_equal(back.max_bytes, 9);
		assert_int_equal(back.priority, 3);
		assert_true(back.fail_fast && back.need_count == 1);
		assert_memory_equal(back.need[0].data, "gpu", 3);
		rp_envelope_clear(&back);
		assert_int_equal(rp_process_data(value, &data, &n), datas[i].data != NULL);
		assert_int_equal(n, datas[i].length);
		if (n > 0)
			assert_memory_equal(data, datas[i].data, n);
		free(data);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_long_need),
		cmocka_unit_test(test_ceiling),
		cmocka_unit_test(test_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
