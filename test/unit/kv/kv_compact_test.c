/* SPDX-License-Identifier: Apache-2.0 */
/* Compaction, section 4.5, and the sums of section 9. */
#include <stdio.h>
#include <stdlib.h>

#include "kv_test_util.h"

static void test_errors(void **state)
{
	struct rp_kv *kv = kv_new();

	assert_int_equal(rp_kv_compact(kv, 2), RP_KV_FUTURE_REVISION);
	assert_int_equal(rp_kv_compact(kv, -1), RP_KV_COMPACTED);
	assert_int_equal(rp_kv_compact(kv, 0), RP_KV_OK);
	assert_int_equal(rp_kv_compact(kv, 0), RP_KV_COMPACTED);
	assert_int_equal(rp_kv_compact(kv, 1), RP_KV_OK);
	kv_put(kv, "a", "");
	assert_int_equal(rp_kv_compact(kv, 2), RP_KV_OK);
	assert_int_equal(rp_kv_compact(kv, 2), RP_KV_COMPACTED);
	rp_kv_destroy(kv);
}

static void test_steps(void **state)
{
	struct rp_kv *kv = kv_new();
	struct rp_kv_stats s;
	int steps = 0;

	for (int i = 0; i < 1000; i++)
		kv_put(kv, "hot", "value");
	rp_kv_stats_get(kv, &s);
	assert_int_equal(s.versions, 1000);
	rp_kv_compact(kv, rp_kv_revision(kv));
	assert_false(rp_kv_compact_done(kv));
	while (rp_kv_step(kv, 10)) {
		uint64_t before = s.versions;

		rp_kv_stats_get(kv, &s);
		assert_true(before - s.versions <= 10);
		assert_true(++steps < 10000);
	}
	assert_true(steps >= 100);
	assert_true(rp_kv_compact_done(kv));
	rp_kv_stats_get(kv, &s);
	assert_int_equal(s.versions, 1);
	assert_int_equal(s.commits, 1);
	rp_kv_destroy(kv);
}

static void test_keeps_newest(void **state)
{
	struct rp_kv *kv = kv_new();
	struct rp_kv_range r = {.key = S("a"), .end = S_from()};
	struct rp_kv_range_result out;
	struct rp_kv_stats s;

	kv_put(kv, "a", "1");	/* 2 */
	kv_put(kv, "b", "1");	/* 3 */
	kv_put(kv, "a", "2");	/* 4 */
	kv_delete(kv, "b", ""); /* 5 */
	kv_put(kv, "c", "1");	/* 6 */
	kv_put(kv, "a", "3");	/* 7 */
	rp_kv_compact(kv, 6);
	kv_settle(kv);
	rp_kv_stats_get(kv, &s);
	assert_int_equal(s.versions, 3); /* a@4, c@6, a@7 */
	r.revision = 6;
	rp_kv_range(kv, &r, &out);
	assert_int_equal(out.count, 2);
	assert_true(span_is(rp_kv_version_value(out.items[0]), "2"));
	rp_kv_range_result_clear(&out);
	rp_kv_destroy(kv);
}

static void test_hash(void **state)
{
	struct rp_kv *a = kv_new(), *b = kv_new();
	uint32_t ha, hb, hc;

	assert_int_equal(rp_kv_hash(a, 0, &ha), RP_KV_OK);
	for (int i = 0; i < 20; i++) {
		char key[8];

		snprintf(key, sizeof(key), "k%d", i % 7);
		kv_put(a, key, "v");
		kv_put(b, key, "v");
		if (i % 5 == 4) {
			kv_delete(a, key, "");
			kv_delete(b, key, "");
		}
	}
	rp_kv_hash(a, 0, &ha);
	rp_kv_hash(b, 0, &hb);
	assert_int_equal(ha, hb);
	rp_kv_hash(a, 10, &hc);
	assert_int_not_equal(ha, hc);
	assert_int_equal(rp_kv_hash(a, 999, &hc), RP_KV_FUTURE_REVISION);
	rp_kv_compact(a, 12);
	rp_kv_compact(b, 12);
	rp_kv_hash(a, 20, &ha);
	kv_settle(b);
	rp_kv_hash(b, 20, &hb);
	assert_int_equal(ha, hb); /* whether or not the freeing has been done */
	assert_int_equal(rp_kv_hash(a, 11, &hc), RP_KV_COMPACTED);
	kv_put(a, "k1", "other");
	rp_kv_hash(a, 20, &ha);
	assert_int_equal(ha, hb);
	rp_kv_hash(a, 0, &ha);
	assert_int_not_equal(ha, hb);
	rp_kv_destroy(a);
	rp_kv_destroy(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_keeps_newest),
		cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
