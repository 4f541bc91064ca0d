/* SPDX-License-Identifier: Apache-2.0 */

/* Names, URLs, answers and batches of the sink for ClickHouse. */

#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sink/clickhouse_priv.h>

static struct rp_span text(const char *s)
{
	return (struct rp_span){(const uint8_t *)s, strlen(s)};
}

static void tables(void **state)
{
	static const struct {
		const char *queue, *table;
	} cases[] = {
		{"ch:t", "`def`.`t`"},
		{"clickhouse:t", "`def`.`t`"},
		{"ch:d.t", "`d`.`t`"},
		{"ch:a b.c`d\\e", "`a b`.`c\\`d\\\\e`"},
		{"ch:", NULL},
		{"ch:.t", NULL},
		{"ch:d.", NULL},
		{"other", NULL},
	};

	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		char *table = ch_table_of(text(cases[i].queue), "def");

		if (cases[i].table)
			assert_string_equal(table, cases[i].table);
		else
			assert_null(table);
		free(table);
	}
	assert_true(rp_clickhouse_is_queue(text("ch:t")));
	assert_false(rp_clickhouse_is_queue(text("chx")));
}

static void urls(void **state)
{
	struct rp_clickhouse c = {.has_parallel = true};
	char *url;

	assert_int_equal(
		ch_url_parse("http://u%40x:p%3Aq@127.0.0.1:8123", &c.url, &c.user, &c.password), 0);
	assert_string_equal(c.user, "u@x");
	assert_string_equal(c.password, "p:q");
	url = ch_insert_url(&c, "`d`.`t&x`", "tok");
	assert_string_equal(url,
		"http://127.0.0.1:8123/?query=INSERT+INTO+%60d%60.%60t%26x%60+FORMAT+JSONEachRow&"
		"max_insert_block_size=100000000&input_format_parallel_parsing=0&"
		"insert_deduplication_token=tok");
	free(url);
	free(c.url);
	free(c.user);
	free(c.password);
	assert_int_equal(ch_url_parse("ftp://h", &c.url, &c.user, &c.password), -EINVAL);
	assert_int_equal(ch_url_parse("", &c.url, &c.user, &c.password), -EINVAL);
	free(c.user);
	free(c.password);
}

static void outcomes(void **state)
{
	static const struct {
		long status;
		const char *body;
		enum ch_outcome outcome;
	} cases[] = {
		{200, "", CH_OUTCOME_DONE},
		{0, "", CH_OUTCOME_LATER},
		{500, "Code: 27, e.displayText() = DB::Exception: Cannot parse input",
			CH_OUTCOME_ROW},
		{400, "Code: 117. DB::Exception: Unknown field found", CH_OUTCOME_ROW},
		{404, "Code: 60, e.displayText() = DB::Exception: Table x doesn't exist",
			CH_OUTCOME_LATER},
		{500, "Code: 241, e.displayText() = DB::Exception: Memory limit", CH_OUTCOME_LARGE},
		{200, "Code: 33, e.displayText() = DB::Exception: Cannot read all data",
			CH_OUTCOME_ROW},
		{502, "bad gateway", CH_OUTCOME_LATER},
	};

	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		const struct sink_answer a = {
			.status = cases[i].status, .error = "", .body = cases[i].body};

		assert_int_equal(ch_outcome_of(&a), cases[i].outcome);
	}
}

static void batches_halve_down_to_the_row(void **state)
{
	struct ch_queue q = {.life = 1};
	struct ch_batch *b, *half;
	char value[16];

	rp_list_init(&q.batches);
	b = ch_batch_new(&q);
	rp_list_push_back(&q.batches, &b->node);
	for (unsigned i = 0; i < 7; i++) {
		snprintf(value, sizeof(value), "{\"id\":%u}", i);
		ch_batch_add(b, i, text(value));
	}
	q.held = 7;
	q.held_bytes = b->length;
	assert_int_equal(b->length, 7 * 9);
	ch_batch_halve(b);
	assert_int_equal(b->count, 3);
	assert_memory_equal(b->body, "{\"id\":0}\n{\"id\":1}\n{\"id\":2}\n", b->length);
	half = rp_list_entry(b->node.next, struct ch_batch, node);
	assert_int_equal(half->count, 4);
	assert_int_equal(half->rows[0].idx, 3);
	assert_memory_equal(half->body, "{\"id\":3}\n", 9);
	half->rows[1].withdrawn = true;
	half->withdrawn = 1;
	ch_batch_clean(half);
	assert_int_equal(half->count, 3);
	assert_memory_equal(half->body, "{\"id\":3}\n{\"id\":5}\n{\"id\":6}\n", half->length);
	assert_int_equal(q.held, 6);
	assert_int_equal(q.held_bytes, 6 * 9);
	ch_batch_free(half);
	ch_batch_free(b);
}

static void a_token_is_that_of_its_rows(void **state)
{
	struct rp_clickhouse c = {.node = 5};
	struct ch_queue q = {.c = &c, .name_length = 4, .name = "ch:t"};
	struct ch_batch *a = ch_batch_new(&q), *b = ch_batch_new(&q);
	char one[96], two[96];

	ch_batch_add(a, 1, text("{}"));
	ch_batch_add(a, 2, text("{}"));
	ch_batch_add(b, 1, text("{}"));
	ch_batch_add(b, 2, text("{}"));
	ch_batch_token(a, one, sizeof(one));
	ch_batch_token(b, two, sizeof(two));
	assert_string_equal(one, two);
	ch_batch_add(b, 3, text("{}"));
	ch_batch_token(b, two, sizeof(two));
	assert_string_not_equal(one, two);
	q.name[3] = 'u';
	ch_batch_token(a, two, sizeof(two));
	assert_string_not_equal(one, two);
	ch_batch_free(a);
	ch_batch_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables),
		cmocka_unit_test(urls),
		cmocka_unit_test(outcomes),
		cmocka_unit_test(batches_halve_down_to_the_row),
		cmocka_unit_test(a_token_is_that_of_its_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
