/* SPDX-License-Identifier: Apache-2.0 */

/* Entries, statements, errors and letters of the upsert. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sink/postgres_priv.h>

static void entries(void **state)
{
	struct pg_spec *s = calloc(RP_POSTGRES_ENTRIES_MAX, sizeof(*s));
	char error[256];
	int n = pg_specs_parse("jobs=public.jobs:id;\n /conf/a=b/ = s.t\"x : a , b\n\n"
			       "/queue/other=s.with.dots:id;;",
		"dead", s, error, sizeof(error));

	assert_int_equal(n, 3);
	assert_string_equal(s[0].event, "jobs");
	assert_false(s[0].is_prefix);
	assert_string_equal(s[0].table, "\"public\".\"jobs\"");
	assert_string_equal(s[1].event, "/conf/a=b/");
	assert_true(s[1].is_prefix);
	assert_string_equal(s[1].table, "\"s\".\"t\"\"x\"");
	assert_int_equal(s[1].key_count, 2);
	assert_string_equal(s[1].key[1], "b");
	assert_string_equal(s[2].event, "other");
	assert_string_equal(s[2].table, "\"s\".\"with.dots\"");
	for (int i = 0; i < n; i++)
		pg_spec_free(&s[i]);
	free(s);
}

static void entries_that_are_none(void **state)
{
	static const char *const bad[] = {"x", "a=t:id", "a=s.t", "=s.t:id", "a=s.t:", "a=.t:id",
		"a=s.:id", "a=s.t:id,", "a/b=s.t:id", "dead=s.t:id", "/q/dead=s.t:id",
		"ok=s.t:id;a=b"};
	char error[256];

	assert_int_equal(rp_postgres_check("", "", error, sizeof(error)), 0);
	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++)
		if (rp_postgres_check(bad[i], "dead", error, sizeof(error)) != -EINVAL)
			fail_msg("%s was taken", bad[i]);
}

static struct pg_column columns[] = {{"id", "integer"}, {"a\"b", "text"}};

static enum pg_shape statement(const char *value, char **sql, char **json)
{
	struct pg_entry e = {.spec = {.table = "\"s\".\"t\"", .key = {"id"}, .key_count = 1},
		.columns = columns,
		.column_count = 2};
	char error[PG_ERROR_SIZE] = "";
	enum pg_shape shape;

	*sql = *json = NULL;
	shape = pg_statement(
		&e, (struct rp_span){(const uint8_t *)value, strlen(value)}, sql, json, error);
	assert_true((shape == PG_SHAPE_OK || shape == PG_SHAPE_EMPTY) == (error[0] == '\0'));
	pg_statement_forget(&e);
	return shape;
}

static void statements(void **state)
{
	char *sql, *json;

	assert_int_equal(statement("{\"id\":1,\"a\\\"b\":2}", &sql, &json), PG_SHAPE_OK);
	assert_string_equal(sql,
		"insert into \"s\".\"t\" (\"id\",\"a\"\"b\") select \"id\",\"a\"\"b\" from "
		"jsonb_to_recordset($1::jsonb) as x(\"id\" integer,\"a\"\"b\" text) on conflict "
		"(\"id\") do update set \"a\"\"b\"=excluded.\"a\"\"b\"");
	assert_string_equal(json, "[{\"id\":1,\"a\\\"b\":2}]");
	free(sql);
	free(json);
	assert_int_equal(
		statement("[{\"id\":12345678901234567890},{\"id\":2}]", &sql, &json), PG_SHAPE_OK);
	assert_non_null(strstr(sql, "do nothing"));
	assert_string_equal(json, "[{\"id\":12345678901234567890},{\"id\":2}]");
	free(sql);
	free(json);
	assert_int_equal(statement("[]", &sql, &json), PG_SHAPE_EMPTY);
	assert_int_equal(statement("{\"id\":1,\"c\":2}", &sql, &json), PG_SHAPE_UNKNOWN);
	assert_int_equal(statement("{}", &sql, &json), PG_SHAPE_BAD);
	assert_int_equal(statement("5", &sql, &json), PG_SHAPE_BAD);
	assert_int_equal(statement("[1]", &sql, &json), PG_SHAPE_BAD);
	assert_int_equal(statement("x", &sql, &json), PG_SHAPE_BAD);
}

/* What was known for the last value is taken for those with the same fields only. */
static void statements_follow_the_fields(void **state)
{
	static const struct {
		const char *value, *columns;
	} cases[] = {
		{"{\"id\":1}", "(\"id\") select"},
		{"{\"id\":2}", "(\"id\") select"},
		{"{\"id\":1,\"a\\\"b\":2}", "(\"id\",\"a\"\"b\") select"},
		{"{\"a\\\"b\":2,\"id\":1}", "(\"a\"\"b\",\"id\") select"},
		{"{\"id\":3}", "(\"id\") select"},
		{"[{\"id\":3},{\"a\\\"b\":1}]", "(\"id\",\"a\"\"b\") select"},
	};
	struct pg_entry e = {.spec = {.table = "\"s\".\"t\"", .key = {"id"}, .key_count = 1},
		.columns = columns,
		.column_count = 2};
	char error[PG_ERROR_SIZE], *sql, *json;

	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct rp_span value = {(const uint8_t *)cases[i].value, strlen(cases[i].value)};

		assert_int_equal(pg_statement(&e, value, &sql, &json, error), PG_SHAPE_OK);
		assert_non_null(strstr(sql, cases[i].columns));
		free(sql);
		free(json);
	}
	pg_statement_forget(&e);
}

static void errors(void **state)
{
	static const char *const final[] = {"22P02", "23505", "21000", "42703", "42P01", "3F000"};
	static const char *const later[] = {
		"", "40001", "40P01", "08006", "57P01", "53300", "42501", "55P03", "25006"};

	for (size_t i = 0; i < RP_ARRAY_SIZE(final); i++)
		assert_true(pg_is_final(final[i]));
	for (size_t i = 0; i < RP_ARRAY_SIZE(later); i++)
		assert_false(pg_is_final(later[i]));
}

static void tails_of_keys(void **state)
{
	char tail[RP_TAIL_BYTES_MAX + 1], key[400];

	pg_tail_of_key((struct rp_span){(const uint8_t *)"/a/b%c", 6}, tail);
	assert_string_equal(tail, "%2Fa%2Fb%25c");
	memset(key, '/', sizeof(key));
	pg_tail_of_key((struct rp_span){(const uint8_t *)key, sizeof(key)}, tail);
	assert_int_equal(strlen(tail), 255);
}

static void back_off(void **state)
{
	static const unsigned seconds[] = {1, 1, 2, 4, 8, 16, 32, 60, 60};

	for (uint32_t i = 0; i < RP_ARRAY_SIZE(seconds); i++)
		assert_int_equal(rp_sink_backoff_ns(i), seconds[i] * RP_NS_PER_S);
	assert_int_equal(rp_sink_backoff_ns(UINT32_MAX), 60 * RP_NS_PER_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries),
		cmocka_unit_test(entries_that_are_none),
		cmocka_unit_test(statements),
		cmocka_unit_test(statements_follow_the_fields),
		cmocka_unit_test(errors),
		cmocka_unit_test(tails_of_keys),
		cmocka_unit_test(back_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
