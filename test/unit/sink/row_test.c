/* SPDX-License-Identifier: Apache-2.0 */

/* Rows by their outline: whether a value stands by itself. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <base/rand.h>

#include <sink/row_priv.h>

static enum sink_row outline(const char *text)
{
	return sink_row_outline((struct rp_span){(const uint8_t *)text, strlen(text)});
}

static void outlines(void **state)
{
	static const char *const objects[] = {"{}", " {\"a\": 1}\n", "{\"a\":[1,{\"b\":\"}\"}]}",
		"{\"a\":\"\\\"}{\"}", "{\"a\":\"\\\\\"}", "{\"a\":1}{\"a\":2}",
		"{\"a\":1}\n{\"a\":2}\n"};
	static const char *const bad[] = {"x", "1", "[]", "{", "}", "{]", "{[}]", "{\"a\":\"}",
		"{\"a\\", "{\"", "{} x", "{}]", "{\"a\":\"b\\\"}", "\"{}\"", "{}{"};
	static const char *const empty[] = {"", " ", "\n\t \r"};
	char deep[1024];

	for (size_t i = 0; i < RP_ARRAY_SIZE(objects); i++)
		if (outline(objects[i]) != SINK_ROW_OBJECT)
			fail_msg("%s was not taken", objects[i]);
	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++)
		if (outline(bad[i]) != SINK_ROW_BAD)
			fail_msg("%s was taken", bad[i]);
	for (size_t i = 0; i < RP_ARRAY_SIZE(empty); i++)
		assert_int_equal(outline(empty[i]), SINK_ROW_EMPTY);
	memset(deep, '{', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	assert_int_equal(outline(deep), SINK_ROW_BAD);
}

/* The same in the plainest words: one object after the other, blanks between. */
static enum sink_row plainly(const char *p, size_t length)
{
	const char *end = p + length;
	char closes[256];
	unsigned depth = 0;
	enum sink_row row = SINK_ROW_EMPTY;

	for (; p < end; p++) {
		if (depth == 0 && strchr(" \t\r\n", *p))
			continue;
		if (depth == 0 && *p != '{')
			return SINK_ROW_BAD;
		if (*p == '{' || *p == '[') {
			if (depth == sizeof(closes))
				return SINK_ROW_BAD;
			closes[depth++] = *p == '{' ? '}' : ']';
			row = SINK_ROW_OBJECT;
		} else if (*p == '}' || *p == ']') {
			if (closes[--depth] != *p)
				return SINK_ROW_BAD;
		} else if (*p == '"') {
			for (p++; p < end && *p != '"'; p++)
				p += *p == '\\';
			if (p >= end)
				return SINK_ROW_BAD;
		}
	}
	return depth == 0 ? row : SINK_ROW_BAD;
}

/* Values of every length around the blocks in which they are looked at, most of them well formed
 * but for a byte. */
static void outlines_are_those_of_plain_words(void **state)
{
	static const char alphabet[] = "{}[]\"\\ \n:,a1";
	static const char *const parts[] = {"{\"a\":1}", " ", "\n", "{\"b\":\"}{\"}",
		"{\"c\":[{},[1,\"]\"]]}", "{\"d\":\"\\\"\"}", "{\"e\":\"\\\\\"}",
		"{\"long\":\"....................................................\"}"};
	struct rp_rand rand = {.state = 7};
	unsigned seen[3] = {0};
	char text[400];

	for (unsigned i = 0; i < 40000; i++) {
		size_t length = 0, most = rp_rand_below(&rand, 300);

		while (length < most) {
			const char *part = parts[rp_rand_below(&rand, RP_ARRAY_SIZE(parts))];

			memcpy(text + length, part, strlen(part));
			length += strlen(part);
		}
		for (uint64_t k = rp_rand_below(&rand, 3); k > 0 && length > 0; k--)
			text[rp_rand_below(&rand, length)] =
				alphabet[rp_rand_below(&rand, sizeof(alphabet) - 1)];
		if (sink_row_outline((struct rp_span){(const uint8_t *)text, length}) !=
			plainly(text, length))
			fail_msg("round %u: %.*s", i, (int)length, text);
		seen[plainly(text, length)]++;
	}
	for (unsigned i = 0; i < 3; i++)
		assert_true(seen[i] > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(outlines), cmocka_unit_test(outlines_are_those_of_plain_words)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
