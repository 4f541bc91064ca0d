/* SPDX-License-Identifier: Apache-2.0 */
/* Range, section 4.1. */
#include <stdio.h>
#include <stdlib.h>

#include "kv_test_util.h"

/* a=3 b=1 c=2 d=1 by value; b twice. Revisions 2..6. */
static int setup(void **state)
{
	struct rp_kv *kv = kv_new();

	kv_put(kv, "a", "3");
	kv_put(kv, "b", "0");
	kv_put(kv, "c", "2");
	kv_put(kv, "b", "1");
	kv_put(kv, "d", "4");
	*state = kv;
	return 0;
}

static int teardown(void **state)
{
	rp_kv_destroy(*state);
	return 0;
}

static void expect(
	struct rp_kv *kv, const struct rp_kv_range *r, const char *keys, int64_t count, bool more)
{
	struct rp_kv_range_result out;
	char got[64] = "";

	assert_int_equal(rp_kv_range(kv, r, &out), RP_KV_OK);
	for (uint32_t i = 0; i < out.item_count; i++) {
		struct rp_span key = rp_kv_version_key(out.items[i]);

		strncat(got, (const char *)key.data, key.length);
	}
	assert_string_equal(got, keys);
	assert_int_equal(out.count, count);
	assert_int_equal(out.more, more);
	rp_kv_range_result_clear(&out);
}

static void test_selectors(void **state)
{
	struct rp_kv_range r = {.key = S("b")};

	expect(*state, &r, "b", 1, false);
	r.key = S("bb");
	expect(*state, &r, "", 0, false);
	r = (struct rp_kv_range){.key = S("b"), .end = S("d")};
	expect(*state, &r, "bc", 2, false);
	r.end = S_from();
	expect(*state, &r, "bcd", 3, false);
	r.key = S_from();
	expect(*state, &r, "abcd", 4, false);
	r = (struct rp_kv_range){.key = S("d"), .end = S("b")};
	expect(*state, &r, "", 0, false);
	r = (struct rp_kv_range){.key = S("b"), .end = S("b")};
	expect(*state, &r, "", 0, false);
}

static void test_limit_and_count(void **state)
{
	struct rp_kv_range r = {.key = S("a"), .end = S_from(), .limit = 2};

	expect(*state, &r, "ab", 4, true);
	r.limit = 4;
	expect(*state, &r, "abcd", 4, false);
	r.limit = -1;
	expect(*state, &r, "abcd", 4, false);
	r.limit = INT64_MAX;
	expect(*state, &r, "abcd", 4, false);
	r.limit = 1;
	r.count_only = true;
	expect(*state, &r, "", 4, false);
}

static void test_sort(void **state)
{
	struct rp_kv_range r = {.key = S("a"), .end = S_from(), .sort_target = RP_KV_SORT_VALUE};

	expect(*state, &r, "bcad", 4, false);
	r.sort_order = RP_KV_SORT_DESCEND;
	expect(*state, &r, "dacb", 4, false);
	r.limit = 2;
	expect(*state, &r, "da", 4, true);
	/* A target without an order sorts only what the limit let through. */
	r.sort_order = RP_KV_SORT_NONE;
	r.limit = 1;
	expect(*state, &r, "b", 4, true);
	r = (struct rp_kv_range){.key = S("a"),
		.end = S_from(),
		.sort_order = RP_KV_SORT_DESCEND,
		.sort_target = RP_KV_SORT_KEY};
	expect(*state, &r, "dcba", 4, false);
	r.sort_target = RP_KV_SORT_MOD;
	expect(*state, &r, "dbca", 4, false);
	r.sort_target = RP_KV_SORT_CREATE;
	expect(*state, &r, "dcba", 4, false);
	r.sort_target = RP_KV_SORT_VERSION;
	r.limit = 1;
	expect(*state, &r, "b", 4, true);
}

static void test_filters(void **state)
{
	struct rp_kv_range r = {.key = S("a"), .end = S_from(), .min_mod_revision = 4};

	expect(*state, &r, "bcd", 4, false);
	r.max_mod_revision = 5;
	expect(*state, &r, "bc", 4, false);
	r.limit = 1;
	expect(*state, &r, "b", 4, true);
	r = (struct rp_kv_range){.key = S("a"), .end = S_from(), .max_create_revision = 3};
	expect(*state, &r, "ab", 4, false);
	r.min_create_revision = 3;
	expect(*state, &r, "b", 4, false);
}

static void test_revision(void **state)
{
	struct rp_kv *kv = *state;
	struct rp_kv_range r = {.key = S("a"), .end = S_from(), .revision = 3};
	struct rp_kv_range_result out;

	expect(kv, &r, "ab", 2, false);
	kv_delete(kv, "a", "");
	expect(kv, &r, "ab", 2, false);
	r.revision = 7;
	expect(kv, &r, "bcd", 3, false);
	r.revision = -5;
	expect(kv, &r, "bcd", 3, false);
	r.revision = 8;
	assert_int_equal(rp_kv_range(kv, &r, &out), RP_KV_FUTURE_REVISION);
	assert_int_equal(rp_kv_compact(kv, 5), RP_KV_OK);
	r.revision = 4;
	assert_int_equal(rp_kv_range(kv, &r, &out), RP_KV_COMPACTED);
	r.revision = 5;
	expect(kv, &r, "abc", 3, false);
	kv_settle(kv);
	expect(kv, &r, "abc", 3, false);
}

static void test_values(void **state)
{
	struct rp_kv_range r = {.key = S("b")};
	struct rp_kv_range_result out;
	struct rp_kv_version *v;

	assert_int_equal(rp_kv_range(*state, &r, &out), RP_KV_OK);
	v = out.items[0];
	assert_true(span_is(rp_kv_version_value(v), "1"));
	assert_int_equal(v->create_revision, 3);
	assert_int_equal(v->mod_revision, 5);
	assert_int_equal(v->version, 2);
	assert_int_equal(v->lease, 0);
	assert_int_equal(v->node, 7);
	/* A result stays as it was, whatever happens to the key. */
	kv_put(*state, "b", "9");
	kv_delete(*state, "a", "z");
	rp_kv_compact(*state, rp_kv_revision(*state));
	kv_settle(*state);
	assert_true(span_is(rp_kv_version_value(v), "1"));
	rp_kv_range_result_clear(&out);
}

static void test_binary_keys(void **state)
{
	static const uint8_t high[] = {0xff, 0x00}, low[] = {0x7f};
	struct rp_kv *kv = *state;
	struct rp_kv_op op = {.type = RP_KV_OP_PUT};
	struct rp_kv_range r = {.key = {low, 1}, .end = S_from()};
	struct rp_kv_result res;
	struct rp_kv_range_result out;

	op.put.key = (struct rp_span){high, 2};
	assert_int_equal(kv_run(kv, &op, 1, &res), RP_KV_OK);
	rp_kv_result_clear(&res);
	assert_int_equal(rp_kv_range(kv, &r, &out), RP_KV_OK);
	assert_int_equal(out.count, 1);
	assert_int_equal(out.items[0]->value_length, 0);
	rp_kv_range_result_clear(&out);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_selectors),
		T(test_limit_and_count),
		T(test_sort),
		T(test_filters),
		T(test_revision),
		T(test_values),
		T(test_binary_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
