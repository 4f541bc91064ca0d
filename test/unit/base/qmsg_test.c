/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <base/qmsg.h>

static void hash_is_crc32c(void **state)
{
	/* The check value of CRC-32C, and RFC 3720 B.4's 32 zero bytes. */
	static const uint8_t zeros[32];

	assert_int_equal(rp_queue_hash("123456789", 9), 0xe3069283);
	assert_int_equal(rp_queue_hash(zeros, sizeof(zeros)), 0x8a9136aa);
}

/* By the processor's instruction, where it has one, and by the table. */
static void hash_is_the_same_on_every_processor(void **state)
{
	uint8_t name[67];

	for (unsigned i = 0; i < sizeof(name); i++)
		name[i] = (uint8_t)(i * 151 + 7);
	for (unsigned at = 0; at < 8; at++) {
		for (unsigned n = 0; at + n <= sizeof(name); n++)
			assert_int_equal(
				rp_queue_hash(name + at, n), rp_queue_hash_portable(name + at, n));
	}
}

static void pick_covers_the_range(void **state)
{
	assert_int_equal(rp_hash_pick(0, 7), 0);
	assert_int_equal(rp_hash_pick(UINT32_MAX, 7), 6);
	assert_int_equal(rp_hash_pick(UINT32_MAX, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hash_is_crc32c),
		cmocka_unit_test(hash_is_the_same_on_every_processor),
		cmocka_unit_test(pick_covers_the_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
