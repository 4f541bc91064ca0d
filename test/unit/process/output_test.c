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

static void test_failures(void **state)
{
	for (unsigned i = 0; i < RP_PROCESS_CODE_COUNT; i++) {
		const char *reasons[] = {NULL, "a \"reason\"\n"};

		for (unsigned k = 0; k < 2; k++) {
			struct rp_output out;
			size_t length;
			char *text = rp_failure_write((enum rp_process_code)i, reasons[k], &length);

			rp_output_read(&out, (struct rp_span){(const uint8_t *)text, length});
			assert_true(out.final && out.failed);
			assert_int_equal(out.code, i);
			assert_string_equal(out.reason,
				k ? reasons[k] : rp_process_code_text((enum rp_process_code)i));
			free(text);
		}
	}
}

static void test_read(void **state)
{
	static const struct {
		const char *text;
		bool final, failed;
		enum rp_process_code code;
	} rows[] = {
		{"", false, false, 0},
		{"bytes", false, false, 0},
		{"{\"final\":true", false, false, 0},
		{"{\"final\":1}", false, false, 0},
		{"{\"final\":false}", false, false, 0},
		{"{\"final\":true}", true, false, 0},
		{"{\"data\":{\"final\":true}}", false, false, 0},
		{"[{\"final\":true}]", false, false, 0},
		{"{\"final\":true,\"error\":{\"code\":\"WHAT\"}}", true, true, RP_PROCESS_INTERNAL},
		{"{\"final\":true,\"error\":{}}", true, true, RP_PROCESS_INTERNAL},
		{"{\"final\":true,\"error\":7}", true, false, 0},
		{"{\"final\":true,\"error\":{\"code\":\"TOO_LARGE\"}}", true, true,
			RP_PROCESS_TOO_LARGE},
		{"{\"error\":{\"code\":\"TOO_LARGE\"}}", false, false, 0},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		struct rp_output out;

		rp_output_read(&out,
			(struct rp_span){(const uint8_t *)rows[i].text, strlen(rows[i].text)});
		if (out.final != rows[i].final || out.failed != rows[i].failed ||
			(out.failed && out.code != rows[i].code))
			fail_msg("read otherwise: %s", rows[i].text);
	}
}

static void test_outputs(void **state)
{
	static const uint8_t binary[] = {0x80, 0, 0xff};
	const struct rp_span datas[] = {
		{binary, 3}, {(const uint8_t *)"", 0}, {(const uint8_t *)"\xc3\xa9", 2}, {0}};

	for (unsigned i = 0; i < 2 * RP_ARRAY_SIZE(datas); i++) {
		struct rp_span data = datas[i / 2], value;
		struct rp_output out;
		size_t n;
		char *text = rp_output_write(data, i & 1, &value.length);
		uint8_t *copy;

		value.data = (const uint8_t *)text;
		rp_output_read(&out, value);
		assert_int_equal(out.final, i & 1);
		assert_false(out.failed);
		assert_int_equal(rp_process_data(value, &copy, &n), data.data != NULL);
		assert_int_equal(n, data.length);
		if (n > 0)
			assert_memory_equal(copy, data.data, n);
		free(copy);
		free(text);
	}
}

static void test_data_of_others(void **state)
{
	static const struct {
		const char *text, *data;
	} rows[] = {
		{"{\"v\":1,\"data\":{\"a\":[1,2]}}", "{\"a\":[1,2]}"},
		{"{\"v\":1,\"data\":7}", "7"},
		{"{\"v\":1,\"data\":null}", "null"},
		{"{\"data\":\"no version\"}", NULL},
		{"{\"v\":1,\"data_base64\":\"!\"}", NULL},
		{"not JSON with \"data\"", NULL},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		struct rp_span value = {(const uint8_t *)rows[i].text, strlen(rows[i].text)};
		uint8_t *copy;
		size_t n;

		assert_int_equal(rp_process_data(value, &copy, &n), rows[i].data != NULL);
		if (rows[i].data)
			assert_string_equal((const char *)copy, rows[i].data);
		free(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_outputs),
		cmocka_unit_test(test_data_of_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
