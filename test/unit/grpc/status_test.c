/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <base/rand.h>
#include <base/units.h>
#include <grpc/status.h>

static void test_codes(void **state)
{
	assert_string_equal(rp_grpc_code_name(RP_GRPC_NOT_FOUND), "NOT_FOUND");
	assert_string_equal(rp_grpc_code_name((enum rp_grpc_code)77), "UNKNOWN");
	assert_int_equal(rp_grpc_code_to_http(RP_GRPC_FAILED_PRECONDITION), 400);
	assert_int_equal(rp_grpc_code_to_http(RP_GRPC_UNAVAILABLE), 503);
	assert_int_equal(rp_grpc_code_to_http((enum rp_grpc_code)77), 500);
	assert_int_equal(rp_grpc_code_from_http(404), RP_GRPC_UNIMPLEMENTED);
	assert_int_equal(rp_grpc_code_from_http(418), RP_GRPC_UNKNOWN);
	assert_int_equal(rp_grpc_code_parse("0", 1), RP_GRPC_OK);
	assert_int_equal(rp_grpc_code_parse("16", 2), RP_GRPC_UNAUTHENTICATED);
	assert_int_equal(rp_grpc_code_parse("17", 2), RP_GRPC_UNKNOWN);
	assert_int_equal(rp_grpc_code_parse("", 0), RP_GRPC_UNKNOWN);
	assert_int_equal(rp_grpc_code_parse("1x", 2), RP_GRPC_UNKNOWN);
	assert_int_equal(rp_grpc_code_parse("001", 3), RP_GRPC_UNKNOWN);
}

static void expect_encoded(const char *text, const char *encoded)
{
	char out[128], back[128];
	size_t n = rp_grpc_message_encode(out, sizeof(out), text, strlen(text));

	assert_int_equal(n, strlen(encoded));
	assert_memory_equal(out, encoded, n);
	n = rp_grpc_message_decode(back, sizeof(back), out, n);
	assert_int_equal(n, strlen(text));
	assert_memory_equal(back, text, n);
}

static void test_messages(void **state)
{
	char out[8];

	expect_encoded("etcdserver: no leader", "etcdserver: no leader");
	expect_encoded("100% \n\x7f~", "100%25 %0A%7F~");
	expect_encoded("\xc3\xa4", "%C3%A4");
	/* Cut at an escape, never inside it. */
	assert_int_equal(rp_grpc_message_encode(out, 5, "abcd\n", 5), 4);
	assert_int_equal(rp_grpc_message_encode(out, 2, "abcd", 4), 2);
	assert_int_equal(rp_grpc_message_decode(out, sizeof(out), "%4", 2), 2);
	assert_int_equal(rp_grpc_message_decode(out, sizeof(out), "%zz%41", 6), 4);
	assert_memory_equal(out, "%zzA", 4);
}

/* Any bytes come back, in whatever room: a prefix. */
static void test_messages_random(void **state)
{
	struct rp_rand rand = {5};
	char text[64], encoded[200], back[200];

	for (int i = 0; i < 20000; i++) {
		size_t length = (size_t)rp_rand_below(&rand, sizeof(text)), n;
		size_t size = (size_t)rp_rand_below(&rand, sizeof(encoded));

		for (size_t j = 0; j < length; j++)
			text[j] = (char)rp_rand_u64(&rand);
		n = rp_grpc_message_encode(encoded, size, text, length);
		assert_true(n <= size);
		n = rp_grpc_message_decode(back, sizeof(back), encoded, n);
		assert_true(n <= length);
		assert_memory_equal(back, text, n);
		if (size >= 3 * length)
			assert_int_equal(n, length);
	}
}

static void test_timeouts(void **state)
{
	uint64_t ns;
	char text[16];
	static const char *const bad[] = {"", "5", "s", "5x", "-5S", "123456789S", "5 S", "S5"};

	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++)
		assert_int_equal(rp_grpc_timeout_parse(bad[i], strlen(bad[i]), &ns), -EINVAL);
	assert_int_equal(rp_grpc_timeout_parse("5S", 2, &ns), 0);
	assert_int_equal(ns, 5 * RP_NS_PER_S);
	assert_int_equal(rp_grpc_timeout_parse("250m", 4, &ns), 0);
	assert_int_equal(ns, 250 * RP_NS_PER_MS);
	assert_int_equal(rp_grpc_timeout_parse("00000001u", 9, &ns), 0);
	assert_int_equal(ns, 1000);
	assert_int_equal(rp_grpc_timeout_parse("99999999H", 9, &ns), 0);
	assert_true(ns == RP_NEVER);
	for (uint64_t want = 1; want < RP_NEVER / 20; want = want * 17 + 5) {
		size_t n = rp_grpc_timeout_format(text, want);

		assert_true(n == strlen(text) && n <= 9);
		assert_int_equal(rp_grpc_timeout_parse(text, n, &ns), 0);
		assert_true(ns <= want && want - ns <= want / 90000 + 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_codes),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_messages_random),
		cmocka_unit_test(test_timeouts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
