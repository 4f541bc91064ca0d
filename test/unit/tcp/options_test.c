/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <base/rand.h>
#include <tcp/tcp_priv.h>

static bool parse(const char *bytes, unsigned n, bool syn, struct tcp_options *o)
{
	memset(o, 0xee, sizeof(*o));
	return tcp_options_parse((const uint8_t *)bytes, n, syn, o);
}

#define PARSE(text, syn) parse(text, sizeof(text) - 1, syn, &o)

static void each_kind(void **state)
{
	struct tcp_options o;

	assert_true(PARSE("\2\4\5\xb4\1\3\3\x7\4\2\1\1\x8\xa\0\0\1\0\0\0\0\2", true));
	assert_true(o.has_mss && o.mss == 1460);
	assert_true(o.has_shift && o.shift == 7);
	assert_true(o.has_sack_permitted);
	assert_true(o.has_ts && o.ts_value == 256 && o.ts_echo == 2);
	assert_int_equal(o.sack_count, 0);
	/* These mean something on a SYN only. */
	assert_true(PARSE("\2\4\5\xb4\1\3\3\x7\4\2\1\1", false));
	assert_false(o.has_mss || o.has_shift || o.has_sack_permitted || o.has_ts);
	assert_true(PARSE("\1\1\5\x12\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4", false));
	assert_int_equal(o.sack_count, 2);
	assert_true(o.sack[1].start == 3 && o.sack[1].end == 4);
	assert_true(PARSE("\1\1\x8\xa\0\0\0\1\0\0\0\2", false)); /* the common pattern */
	assert_true(o.has_ts && o.ts_value == 1 && o.ts_echo == 2 && o.sack_count == 0);
	assert_true(PARSE("\3\3\xff\0", true));
	assert_int_equal(o.shift, 14);
	assert_true(PARSE("\0\2\2\2", true)); /* behind the end: whatever */
}

static void lengths_that_cannot_be(void **state)
{
	struct tcp_options o;

	assert_false(PARSE("\2\0", true));
	assert_false(PARSE("\2\1", true));
	assert_false(PARSE("\2", true));
	assert_false(PARSE("\2\5\0\0", true));
	assert_false(PARSE("\xfd\xff\0\0", true));
	/* Of a known kind, but of another length: skipped. */
	assert_true(PARSE("\2\3\5\x3\4\1\1\5\x3\0", true));
	assert_false(o.has_mss || o.has_shift || o.has_ts || o.sack_count);
}

static void any_bytes(void **state)
{
	struct rp_rand r = {1};

	for (unsigned i = 0; i < 200000; i++) {
		uint8_t *exact = NULL;
		unsigned n = (unsigned)rp_rand_below(&r, 11) * 4;
		struct tcp_options o;

		exact = malloc(n + 1);
		for (unsigned k = 0; k < n; k++)
			exact[k] = (uint8_t)(rp_rand_u64(&r) % 3 ? rp_rand_below(&r, 12)
								 : rp_rand_u64(&r));
		if (tcp_options_parse(exact, n, i & 1, &o)) {
			assert_true(o.sack_count <= TCP_SACK_BLOCKS_MAX);
			assert_true(!o.has_shift || o.shift <= TCP_SHIFT_MAX);
		}
		free(exact);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind),
		cmocka_unit_test(lengths_that_cannot_be),
		cmocka_unit_test(any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
