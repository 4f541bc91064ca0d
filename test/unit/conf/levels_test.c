/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <conf/conf.h>

static void test_levels(void **state)
{
	const char *items[] = {"tcp=debug", "nonsense", "link=loud", "tcp=trace"};
	struct rp_conf conf = {.log_level = RP_LOG_WARNING};

	conf.log_levels.items = items;
	conf.log_levels.count = RP_ARRAY_SIZE(items);
	assert_int_equal(rp_conf_level_of(&conf, RP_LOG_TCP), RP_LOG_TRACE);
	assert_int_equal(rp_conf_level_of(&conf, RP_LOG_LINK), RP_LOG_WARNING);
	rp_log_set_level(RP_LOG_DEBUG);
	rp_conf_levels_use(&conf);
	for (unsigned i = 0; i < RP_LOG_SUBJECT_COUNT; i++)
		assert_int_equal(
			rp_log_subject_level(i), i == RP_LOG_TCP ? RP_LOG_TRACE : RP_LOG_WARNING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
