/* SPDX-License-Identifier: Apache-2.0 */
/* How long an adaptive shard sleeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <shard/rest_priv.h>

#define NOW (1000 * RP_NS_PER_S)

static void until_something_is_due(void **state)
{
	assert_int_equal(shard_rest_ns(NOW, NOW, false, false), 0);
	assert_int_equal(shard_rest_ns(0, NOW, true, false), 0);
	assert_int_equal(shard_rest_ns(NOW + 7, NOW, true, false), 7);
	assert_int_equal(shard_rest_ns(NOW + RP_NS_PER_MS, NOW, false, false), RP_NS_PER_MS);
}

static void a_port_is_looked_at_soon(void **state)
{
	assert_int_equal(shard_rest_ns(RP_NEVER, NOW, true, false), 20 * RP_NS_PER_US);
	assert_int_equal(shard_rest_ns(RP_NEVER, NOW, false, false), 100 * RP_NS_PER_MS);
}

/* Frames wait for it at all times then: to turn in between is to hold up who takes them. */
static void a_full_device_is_not_spun_on(void **state)
{
	assert_int_equal(shard_rest_ns(0, NOW, true, true), 20 * RP_NS_PER_US);
	assert_int_equal(shard_rest_ns(RP_NEVER, NOW, true, true), 20 * RP_NS_PER_US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(until_something_is_due),
		cmocka_unit_test(a_port_is_looked_at_soon),
		cmocka_unit_test(a_full_device_is_not_spun_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
