/* SPDX-License-Identifier: Apache-2.0 */

/* Rows by their outline: whether a value stands by itself. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(outlines)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
