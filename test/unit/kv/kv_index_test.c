/* SPDX-License-Identifier: Apache-2.0 */
/* Counts, revisions and the books of the index. */
#include <stdio.h>
#include <stdlib.h>

#include "kv_test_util.h"

static void test_lifecycle(void **state)
{
	struct rp_kv *kv = kv_new();
	struct rp_kv_record r;

	assert_int_equal(rp_kv_revision(kv), 1);
	assert_int_equal(rp_kv_compacted_revision(kv), -1);
	assert_int_equal(kv_put(kv, "k", "1"), 2);
	assert_int_equal(kv_put(kv, "k", "1"), 3);
	assert_int_equal(kv_delete(kv, "k", ""), 1);
	assert_int_equal(rp_kv_revision(kv), 4);
	/* What changes nothing takes no revision. */
	assert_int_equal(kv_delete(kv, "k", ""), 0);
	assert_int_equal(rp_kv_revision(kv), 4);
	assert_int_equal(kv_put(kv, "k", "2"), 5);
	assert_true(rp_kv_record_get(kv, S("k"), &r));
	assert_int_equal(r.mod_revision, 5);
	rp_kv_destroy(kv);
}

static void test_many(void **state)
{
	struct rp_kv *kv = kv_new();
	struct rp_kv_range all = {.key = S("key"), .end = S_from(), .count_only = true};
	struct rp_kv_range_result out;
	struct rp_kv_stats before, after;
	char key[32];

	rp_kv_stats_get(kv, &before);
	for (int i = 0; i < 20000; i++) {
		snprintf(key, sizeof(key), "key%05d", (i * 7919) % 20000);
		kv_put(kv, key, "value");
	}
	assert_int_equal(rp_kv_range(kv, &all, &out), RP_KV_OK);
	assert_int_equal(out.count, 20000);
	assert_int_equal(kv_delete(kv, "key10", "key12"), 2000);
	rp_kv_range(kv, &all, &out);
	assert_int_equal(out.count, 18000);
	all.revision = 20001;
	rp_kv_range(kv, &all, &out);
	assert_int_equal(out.count, 20000);
	assert_int_equal(kv_delete(kv, "key", "kez"), 18000);
	rp_kv_compact(kv, rp_kv_revision(kv));
	kv_settle(kv);
	/* Tombstones at the compacted revision itself stay until it moves on. */
	kv_put(kv, "x", "");
	kv_delete(kv, "x", "");
	kv_put(kv, "y", "");
	kv_delete(kv, "y", "");
	kv_put(kv, "y", "");
	rp_kv_compact(kv, rp_kv_revision(kv));
	kv_settle(kv);
	rp_kv_stats_get(kv, &after);
	assert_int_equal(after.keys, 1);
	assert_int_equal(after.versions, 1);
	assert_int_equal(after.commits, 1);
	assert_true(after.bytes < 1024);
	assert_true(after.bytes_in_use <= after.bytes);
	rp_kv_destroy(kv);
}

static void test_initial_revision(void **state)
{
	struct rp_kv_config config = {.initial_revision = 1000};
	struct rp_kv_range r = {.key = S("k"), .revision = 999};
	struct rp_kv_range_result out;
	struct rp_kv *kv;

	kv = rp_kv_create(&config);
	assert_int_equal(rp_kv_revision(kv), 1000);
	assert_int_equal(rp_kv_range(kv, &r, &out), RP_KV_COMPACTED);
	assert_int_equal(kv_put(kv, "k", ""), 1001);
	assert_int_equal(rp_kv_compact(kv, 1000), RP_KV_COMPACTED);
	rp_kv_destroy(kv);
	config.initial_revision = -1;
	assert_null(rp_kv_create(&config));
	rp_kv_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lifecycle),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_initial_revision),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
