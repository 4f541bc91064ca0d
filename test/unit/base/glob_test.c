/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <base/glob.h>

static bool matches(const char *pattern, const char *name)
{
	return rp_glob_match(pattern, name, strlen(name));
}

static void names_match(void **state)
{
	assert_true(matches("*", ""));
	assert_true(matches("*", "a"));
	assert_true(matches("jobs-*", "jobs-"));
	assert_true(matches("jobs-*", "jobs-1"));
	assert_false(matches("jobs-*", "jobs"));
	assert_true(matches("a*b*c", "a-b-b-c"));
	assert_false(matches("a*b*c", "a-b-b-cd"));
	assert_true(matches("a?c", "abc"));
	assert_false(matches("a?c", "ac"));
	assert_true(matches("", ""));
	assert_false(matches("", "a"));
	assert_true(matches("**", "x"));
	/* Backtracking stays linear in the pattern times the name. */
	assert_false(matches("*a*a*a*a*a*a*a*a*b",
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_match),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
