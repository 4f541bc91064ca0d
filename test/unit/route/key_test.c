/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <errno.h>
#include <cmocka.h>

#include <route/key.h>

#define UUID "0189aBcd-1234-5678-9abc-def012345678"
#define UUID_LOWER "0189abcd-1234-5678-9abc-def012345678"
#define UUID_SIMPLE "0189abcd123456789abcdef012345678"
#define X64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X255 X64 X64 X64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

struct row {
	const char *key;
	enum rp_key_kind kind;
	enum rp_key_reason reason;
	const char *name, *tail;
	uint64_t idx;
};

#define ORDINARY(k)                                                   \
	{                                                             \
		k, RP_KEY_ORDINARY, RP_KEY_REASON_NONE, NULL, NULL, 0 \
	}
#define BAD(k, why)                                                   \
	{                                                             \
		k, RP_KEY_INVALID, RP_KEY_REASON_##why, NULL, NULL, 0 \
	}
#define RECORD(k, kind, name)                                       \
	{                                                           \
		k, RP_KEY_##kind, RP_KEY_REASON_NONE, name, NULL, 0 \
	}
#define TRAFFIC(k, kind, name, tail, idx)                             \
	{                                                             \
		k, RP_KEY_##kind, RP_KEY_REASON_NONE, name, tail, idx \
	}

static const struct row rows[] = {
	ORDINARY(""),
	ORDINARY("/"),
	ORDINARY("a"),
	ORDINARY("/q"),
	ORDINARY("/queue"),
	ORDINARY("q/jobs/p/x"),
	ORDINARY("/qq/jobs/p/x"),
	ORDINARY("/queues/jobs"),
	ORDINARY("//q/jobs"),
	ORDINARY("/Q/jobs"),
	ORDINARY("/x/q/jobs"),

	RECORD("/q/jobs", DISPATCHER, "jobs"),
	RECORD("/queue/jobs", DISPATCHER, "jobs"),
	RECORD("/q/jobs/", DISPATCHER, "jobs"),
	RECORD("/q/p", DISPATCHER, "p"),
	RECORD("/q/" X255, DISPATCHER, X255),
	RECORD("/q/a b\xff", DISPATCHER, "a b\xff"),
	BAD("/q/", NO_NAME),
	BAD("/queue/", NO_NAME),
	BAD("/q//", NO_NAME),
	BAD("/q//p/x", NO_NAME),
	BAD("/q/x" X255, NAME_LONG),
	BAD("/q/x" X255 "/p/x", NAME_LONG),
	BAD("/q/jobs//", SHAPE),
	BAD("/q/jobs/x", SHAPE),
	BAD("/q/jobs/c", SHAPE),
	BAD("/q/jobs/p", SHAPE),
	BAD("/q/jobs/17", SHAPE),

	TRAFFIC("/q/jobs/p/job-1", PRODUCE, "jobs", "job-1", 0),
	TRAFFIC("/q/jobs/producer/job-1", PRODUCE, "jobs", "job-1", 0),
	TRAFFIC("/q/jobs/i/job-1", PRODUCE, "jobs", "job-1", 0),
	TRAFFIC("/q/jobs/input/job-1", PRODUCE, "jobs", "job-1", 0),
	TRAFFIC("/queue/jobs/producer/job-1", PRODUCE, "jobs", "job-1", 0),
	TRAFFIC("/q/jobs/p/" X255, PRODUCE, "jobs", X255, 0),
	TRAFFIC("/q/p/p/p", PRODUCE, "p", "p", 0),
	BAD("/q/jobs/p/", NO_TAIL),
	BAD("/q/jobs/p/x" X255, TAIL_LONG),
	BAD("/q/jobs/p/x/", DEEP),
	BAD("/q/jobs/p/x/y", DEEP),
	BAD("/q/jobs/p//x", DEEP),
	BAD("/q/jobs/p/a/b/c/d/e/f/g", DEEP),
	BAD("/q/jobs/P/x", SHAPE),
	BAD("/q/jobs/inputs/x", SHAPE),

	RECORD("/q/jobs/c/" UUID, CONSUMER, "jobs"),
	RECORD("/q/jobs/consumer/" UUID, CONSUMER, "jobs"),
	RECORD("/queue/jobs/consumer/" UUID "/", CONSUMER, "jobs"),
	RECORD("/q/jobs/c/" UUID_SIMPLE, CONSUMER, "jobs"),
	BAD("/q/jobs/c/", BAD_UUID),
	BAD("/q/jobs/c/worker-1", BAD_UUID),
	BAD("/q/jobs/c/" UUID "0", BAD_UUID),
	BAD("/q/jobs/c/0189abcd-1234-5678-9abc-def01234567g", BAD_UUID),
	BAD("/q/jobs/c/0189abcd-1234-5678-9abcd-ef012345678", BAD_UUID),
	BAD("/q/jobs/c/" UUID "/17", SHAPE),
	BAD("/q/jobs/c/" UUID "//", BAD_IDX),

	TRAFFIC("/q/jobs/c/" UUID "/17/job-1", DELIVERED, "jobs", "job-1", 17),
	TRAFFIC("/queue/jobs/consumer/" UUID "/18446744073709551615/t", DELIVERED, "jobs", "t",
		UINT64_MAX),
	TRAFFIC("/q/jobs/c/" UUID "/0/t", DELIVERED, "jobs", "t", 0),
	BAD("/q/jobs/c/" UUID "/18446744073709551616/t", BAD_IDX),
	BAD("/q/jobs/c/" UUID "/017/t", BAD_IDX),
	BAD("/q/jobs/c/" UUID "/+17/t", BAD_IDX),
	BAD("/q/jobs/c/" UUID "/x/t", BAD_IDX),
	BAD("/q/jobs/c/" UUID "/17/", NO_TAIL),
	BAD("/q/jobs/c/" UUID "/17/t/", DEEP),
	BAD("/q/jobs/c/" UUID "/17/t/u", DEEP),
	BAD("/q/jobs/c/" UUID "/17/t/u/v/w", DEEP),
	BAD("/q/jobs/c/" UUID "/17/x" X255, TAIL_LONG),
	BAD("/q/jobs/c/nobody/17/t", BAD_UUID),

	TRAFFIC("/q/jobs/17/job-1", DELIVERED_SHORT, "jobs", "job-1", 17),
	TRAFFIC("/queue/jobs/17/p", DELIVERED_SHORT, "jobs", "p", 17),
	BAD("/q/jobs/17/", NO_TAIL),
	BAD("/q/jobs/17/a/b", DEEP),
	BAD("/q/jobs/1x/a", BAD_IDX),
	BAD("/q/jobs/99999999999999999999/a", BAD_IDX),

	TRAFFIC("/q/ch:events/p/e1", PRODUCE, "ch:events", "e1", 0),
	TRAFFIC("/queue/clickhouse:db.events/producer/e1", PRODUCE, "clickhouse:db.events", "e1",
		0),
	RECORD("/q/ch:events", DISPATCHER, "ch:events"),
	TRAFFIC("/q/ch:events/17/e1", DELIVERED_SHORT, "ch:events", "e1", 17),
	RECORD("/q/ch:events/c/" UUID, SINK, "ch:events"),
	RECORD("/queue/clickhouse:db.events/consumer/" UUID "/", SINK, "clickhouse:db.events"),
	BAD("/q/ch:events/c/" UUID "/17", CLICKHOUSE_CONSUMER),
	BAD("/q/ch:events/c/" UUID "/17/t", CLICKHOUSE_CONSUMER),
	BAD("/q/ch:/p/e1", CLICKHOUSE_TABLE),
	BAD("/q/ch:a.b.c/p/e1", CLICKHOUSE_TABLE),
	BAD("/q/ch:.t", CLICKHOUSE_TABLE),
	BAD("/q/clickhouse:d.", CLICKHOUSE_TABLE),
};

static void span_is(struct rp_span s, const char *text, const char *key)
{
	if (!text)
		text = "";
	if (s.length != strlen(text) || (s.length && memcmp(s.data, text, s.length) != 0))
		fail_msg(
			"%s: \"%.*s\", not \"%s\"", key, (int)s.length, (const char *)s.data, text);
}

static void test_grammar(void **state)
{
	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		const struct row *r = &rows[i];
		struct rp_route_key k;

		rp_route_key_parse(&k, r->key, strlen(r->key));
		if (k.kind != r->kind || k.reason != r->reason)
			fail_msg("%s: %s (%s), not %s (%s)", r->key, rp_key_kind_name(k.kind),
				rp_key_reason_text(k.reason), rp_key_kind_name(r->kind),
				rp_key_reason_text(r->reason));
		if (r->kind == RP_KEY_INVALID)
			continue;
		span_is(k.name, r->name, r->key);
		span_is(k.tail, r->tail, r->key);
		assert_int_equal(k.idx, r->idx);
		assert_int_equal(rp_route_key_is_stored(&k), !rp_route_key_is_traffic(&k));
	}
}

static void test_parts(void **state)
{
	static const char key[] = "/queue/jobs/consumer/" UUID "/17/job-1";
	static const uint8_t uuid[] = {0x01, 0x89, 0xab, 0xcd, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc,
		0xde, 0xf0, 0x12, 0x34, 0x56, 0x78};
	uint8_t out[RP_DELIVERED_KEY_BYTES_MAX];
	struct rp_route_key k;
	int length;

	rp_route_key_parse(&k, key, strlen(key));
	span_is(k.uuid_text, UUID, key);
	span_is(k.consumer, "/queue/jobs/consumer/" UUID, key);
	assert_memory_equal(k.uuid, uuid, sizeof(uuid));
	length = rp_route_key_delivered(k.consumer, k.idx, k.tail, out, sizeof(out));
	span_is((struct rp_span){out, (size_t)length}, key, key);
	assert_int_equal(rp_route_key_delivered(k.consumer, k.idx, k.tail, out, 10), -ENOSPC);

	rp_route_key_parse(
		&k, "/queue/jobs/consumer/" UUID "/", sizeof("/queue/jobs/consumer/" UUID));
	span_is(k.consumer, "/queue/jobs/consumer/" UUID, key);
	length = rp_route_key_canonical(&k, out, sizeof(out));
	span_is((struct rp_span){out, (size_t)length}, "/q/jobs/c/" UUID_LOWER, key);
	rp_route_key_parse(&k, "/queue/jobs/", 12);
	length = rp_route_key_canonical(&k, out, sizeof(out));
	span_is((struct rp_span){out, (size_t)length}, "/q/jobs", key);
	rp_route_key_parse(&k, "/q/jobs/p/x", 11);
	assert_int_equal(rp_route_key_canonical(&k, out, sizeof(out)), -EINVAL);

	rp_route_key_parse(&k, "/q/clickhouse:db.t/p/x", 22);
	assert_true(k.clickhouse);
	span_is(k.table, "db.t", "table");
}

static void test_longest(void **state)
{
	static const char key[] = "/queue/" X255 "/consumer/" UUID "/18446744073709551615/" X255;
	struct rp_route_key k;

	rp_route_key_parse(&k, key, strlen(key));
	assert_int_equal(k.kind, RP_KEY_DELIVERED);
	assert_int_equal(strlen(key), RP_DELIVERED_KEY_BYTES_MAX);
}

static void test_ranges(void **state)
{
	static const struct {
		const char *from, *to;
		size_t to_length;
		enum rp_range_kind kind;
	} ranges[] = {
		{"/q/jobs", "", 0, RP_RANGE_SINGLE},
		{"/q/", "/q0", 3, RP_RANGE_INSIDE},
		{"/q/jobs/", "/q/jobs0", 8, RP_RANGE_INSIDE},
		{"/q/a", "/q/b", 4, RP_RANGE_INSIDE},
		{"/queue/", "/queue0", 7, RP_RANGE_INSIDE},
		{"/queue/x", "/queue/y", 8, RP_RANGE_INSIDE},
		{"/q", "/r", 2, RP_RANGE_OVERLAPS},
		{"/q/", "/q1", 3, RP_RANGE_OVERLAPS},
		{"/p", "/q/a", 4, RP_RANGE_OVERLAPS},
		{"/q/", "/queue0", 7, RP_RANGE_OVERLAPS},
		{"a", "\0", 1, RP_RANGE_OUTSIDE},
		{"", "\0", 1, RP_RANGE_OVERLAPS},
		{"/q/", "\0", 1, RP_RANGE_OVERLAPS},
		{"/a", "/q/", 3, RP_RANGE_OUTSIDE},
		{"/q0", "/queue/", 7, RP_RANGE_OUTSIDE},
		{"/queue0", "/z", 2, RP_RANGE_OUTSIDE},
		{"b", "a", 1, RP_RANGE_EMPTY},
		{"/q/x", "/q/x", 4, RP_RANGE_EMPTY},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(ranges); i++) {
		enum rp_range_kind kind = rp_route_range_classify(
			ranges[i].from, strlen(ranges[i].from), ranges[i].to, ranges[i].to_length);

		if (kind != ranges[i].kind)
			fail_msg("[%s, %s): %d", ranges[i].from, ranges[i].to, kind);
	}
}

static void test_uuid(void **state)
{
	uint8_t a[RP_UUID_BYTES], b[RP_UUID_BYTES];
	char text[RP_UUID_TEXT_BYTES];

	assert_int_equal(rp_uuid_parse(UUID, 36, a), 0);
	assert_int_equal(rp_uuid_parse(UUID_SIMPLE, 32, b), 0);
	assert_memory_equal(a, b, sizeof(a));
	rp_uuid_format(a, text);
	assert_memory_equal(text, UUID_LOWER, 36);
	assert_int_equal(rp_uuid_parse(UUID, 35, a), -EINVAL);
	assert_int_equal(rp_uuid_parse("", 0, a), -EINVAL);
	assert_int_equal(rp_uuid_parse("0189abcd-1234-5678-9abc_def012345678", 36, a), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grammar),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_uuid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
