/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <base/impair.h>

static void parses_every_field(void **state)
{
	struct rp_impair_spec s;
	char error[200];

	assert_int_equal(rp_impair_parse("drop=0.01,dup=0.5,reorder=0.1,reorder_us=20,delay_us=3,"
					 "jitter_us=4,cut=1",
				 &s, error, sizeof(error)),
		0);
	assert_true(s.drop == 0.01 && s.duplicate == 0.5 && s.reorder == 0.1 && s.cut);
	assert_int_equal(s.reorder_ns, 20000);
	assert_int_equal(s.delay_ns, 3000);
	assert_int_equal(s.jitter_ns, 4000);
}

static void refuses_what_it_does_not_know(void **state)
{
	static const char *const bad[] = {"drop", "drop=", "drop=2", "drop=-1", "x=1", "drop=nan",
		"cut=0.5", "delay_us=1e300", "drop=0.1x"};
	struct rp_impair_spec s;
	char error[200];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		error[0] = '\0';
		assert_int_equal(rp_impair_parse(bad[i], &s, error, sizeof(error)), -EINVAL);
		assert_non_null(strstr(error, bad[i]));
	}
}

static void same_seed_same_fate(void **state)
{
	struct rp_impair_spec s = {.drop = 0.1, .duplicate = 0.1, .reorder = 0.2, .reorder_ns = 5};
	struct rp_impair a, b;
	unsigned dropped = 0;

	rp_impair_init(&a, &s, 42);
	rp_impair_init(&b, &s, 42);
	for (int i = 0; i < 10000; i++) {
		struct rp_impair_verdict va = rp_impair_decide(&a), vb = rp_impair_decide(&b);

		assert_int_equal(va.copies, vb.copies);
		for (unsigned c = 0; c < va.copies; c++)
			assert_int_equal(va.delay_ns[c], vb.delay_ns[c]);
		dropped += va.copies == 0;
	}
	assert_int_equal(dropped, a.dropped);
	assert_in_range(dropped, 800, 1200);
}

static void a_cut_drops_everything(void **state)
{
	struct rp_impair_spec s = {.cut = true};
	struct rp_impair a;

	rp_impair_init(&a, &s, 1);
	for (int i = 0; i < 100; i++)
		assert_int_equal(rp_impair_decide(&a).copies, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_every_field),
		cmocka_unit_test(refuses_what_it_does_not_know),
		cmocka_unit_test(same_seed_same_fate),
		cmocka_unit_test(a_cut_drops_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
