/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <base/qmsg.h>
#include <process/meta.h>

static struct rp_span span(const char *text)
{
	return (struct rp_span){(const uint8_t *)text, strlen(text)};
}

static void test_round(void **state)
{
	const struct rp_meta m = {.max_bytes = 0x01020304,
		.reply_to = span("replies"),
		.need_count = 2,
		.need = {span("gpu"), span("model-x")}};
	uint8_t bytes[RP_META_BYTES_MAX];
	uint32_t n = rp_meta_write(&m, bytes);
	struct rp_meta back;

	assert_true(rp_meta_read(&back, (struct rp_span){bytes, n}));
	assert_int_equal(back.max_bytes, m.max_bytes);
	assert_int_equal(back.reply_to.length, 7);
	assert_int_equal(back.need_count, 2);
	assert_memory_equal(back.need[1].data, "model-x", 7);
	/* None of its beginnings, and nothing longer, is one. */
	for (uint32_t i = 0; i < n; i++) {
		uint8_t *cut = malloc(i + 1);

		memcpy(cut, bytes, i);
		assert_false(rp_meta_read(&back, (struct rp_span){cut, i}));
		free(cut);
	}
	bytes[n] = 0;
	assert_false(rp_meta_read(&back, (struct rp_span){bytes, n + 1}));
}

static void test_met(void **state)
{
	static const struct {
		const char *cap;
		unsigned needs;
		bool met;
	} rows[] = {
		{"", 0, true},
		{"gpu", 0, true},
		{"", 1, false},
		{"gpu", 1, true},
		{"gpux", 1, false},
		{"gpu", 2, false},
		{"big,gpu", 2, true},
		{"gpu, big", 2, true},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		const struct rp_meta m = {
			.need_count = rows[i].needs, .need = {span("gpu"), span("big")}};

		assert_int_equal(rp_meta_is_met(&m, span(rows[i].cap)), rows[i].met);
	}
}

/* It falls at each step, whatever the clock does, and never below zero. */
static void test_left(void **state)
{
	static const struct {
		uint64_t left, since, now, is;
	} rows[] = {
		{1000, 0, 0, 999},
		{1000, 5000, 5000, 999},
		{1000, 5000, 5999, 999},
		{1000, 5000, 6000, 998},
		{1000, 5000, 4000, 999},       /* backwards */
		{1000, 5000, UINT64_MAX, 999}, /* backwards, past zero */
		{1000, 0, 998 * 1000, 1},
		{1000, 0, 999 * 1000, 0},
		{1000, 0, 1ull << 60, 0},
		{1, 0, 0, 0},
		{0, 0, 0, 0},
	};
	uint64_t left = 1000000, now = 1ull << 40;

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++)
		assert_int_equal(
			rp_process_left_us(rows[i].left, rows[i].since, rows[i].now), rows[i].is);
	srand(1);
	for (unsigned hop = 0; hop < 1000; hop++) {
		uint64_t since = now, was = left;

		/* A clock that jumps, in both directions. */
		now += (uint64_t)(int64_t)(rand() % 2000000 - 1000000);
		left = rp_process_left_us(left, since, now);
		assert_true(left < was || was == 0);
	}
}

/* Where an output stands in its worker's stream. */
static void test_number(void **state)
{
	uint8_t bytes[RP_META_BYTES_MAX];
	struct rp_span meta = {bytes, 0};
	struct rp_meta other = {.max_bytes = 3, .reply_to = {(const uint8_t *)"abc", 3}};
	uint32_t stream = 0, number = 0;

	meta.length = rp_meta_number_write(0xfedcba98, 77, bytes);
	assert_true(rp_meta_number_read(meta, &stream, &number));
	assert_int_equal(stream, 0xfedcba98);
	assert_int_equal(number, 77);
	/* Of a node that knows of none, and what no node writes. */
	assert_false(rp_meta_number_read((struct rp_span){0}, &stream, &number));
	meta.length--;
	assert_false(rp_meta_number_read(meta, &stream, &number));
	meta.length = rp_meta_write(&other, bytes);
	assert_false(rp_meta_number_read(meta, &stream, &number));
	meta.length = rp_meta_number_write(1, 0, bytes);
	assert_false(rp_meta_number_read(meta, &stream, &number));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round),
		cmocka_unit_test(test_met),
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
