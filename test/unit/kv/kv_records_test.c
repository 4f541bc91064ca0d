/* SPDX-License-Identifier: Apache-2.0 */
/* Replicated writes, tombstones and their pages (spec/cluster.md, Replication). */
#include <stdio.h>
#include <stdlib.h>

#include <base/rand.h>

#include "kv_test_util.h"

static struct rp_kv *kv_replicated(uint64_t node)
{
	struct rp_kv_config config = {.initial_revision = 1, .node = node, .keep_tombstones = true};

	return rp_kv_create(&config);
}

static struct rp_kv_record rec(const char *key, const char *value, uint64_t stamp, uint64_t node)
{
	return (struct rp_kv_record){
		.key = S(key), .value = S(value), .stamp = stamp, .node = node};
}

static struct rp_kv_record gone(const char *key, uint64_t stamp, uint64_t node)
{
	return (struct rp_kv_record){.key = S(key), .deleted = true, .stamp = stamp, .node = node};
}

static uint32_t take(struct rp_kv *kv, struct rp_kv_record r)
{
	return rp_kv_apply_replicated(kv, &r, 1, 9);
}

static void test_last_writer_wins(void **state)
{
	struct rp_kv *kv = kv_replicated(1);
	struct rp_kv_record r;

	assert_int_equal(take(kv, rec("k", "new", 200, 2)), 1);
	assert_int_equal(rp_kv_revision(kv), 2);
	assert_int_equal(take(kv, rec("k", "old", 100, 3)), 0);
	assert_int_equal(take(kv, rec("k", "same", 200, 2)), 0);
	assert_int_equal(take(kv, rec("k", "low", 200, 1)), 0);
	assert_int_equal(rp_kv_revision(kv), 2);
	assert_int_equal(take(kv, rec("k", "high", 200, 3)), 1);
	assert_int_equal(take(kv, gone("k", 300, 1)), 1);
	assert_int_equal(rp_kv_revision(kv), 4);
	assert_int_equal(take(kv, rec("k", "late", 250, 9)), 0);
	assert_true(rp_kv_record_get(kv, S("k"), &r));
	assert_true(r.deleted);
	assert_int_equal(r.stamp, 300);
	r = rec("k", "forced", 10, 1);
	r.force = true;
	assert_int_equal(take(kv, r), 1);
	/* A local write goes above everything that was seen. */
	kv_put(kv, "k", "mine");
	rp_kv_record_get(kv, S("k"), &r);
	assert_true(r.stamp > 300);
	assert_int_equal(r.node, 1);
	rp_kv_destroy(kv);
}

static void test_tombstone_of_unknown_key(void **state)
{
	struct rp_kv *kv = kv_replicated(1);

	assert_int_equal(take(kv, gone("k", 300, 1)), 1);
	assert_int_equal(rp_kv_revision(kv), 1); /* nothing to see */
	assert_int_equal(take(kv, rec("k", "late", 250, 9)), 0);
	assert_int_equal(take(kv, rec("k", "later", 350, 9)), 1);
	rp_kv_destroy(kv);
}

static void test_tombstones_outlive_compaction(void **state)
{
	struct rp_kv *kv = kv_replicated(1);
	struct rp_kv_stats s;
	struct rp_kv_record r;

	kv_put(kv, "k", "1");
	kv_delete(kv, "k", "");
	kv_put(kv, "x", "1");
	rp_kv_compact(kv, rp_kv_revision(kv));
	kv_settle(kv);
	rp_kv_stats_get(kv, &s);
	assert_int_equal(s.tombstones, 1);
	assert_int_equal(s.versions, 1);
	assert_true(rp_kv_record_get(kv, S("k"), &r));
	assert_true(r.deleted);
	assert_int_equal(r.mod_revision, 0);
	assert_int_equal(take(kv, rec("k", "old", r.stamp - 1, 3)), 0);
	assert_false(rp_kv_tombstone_drop(kv, S("k"), r.stamp + 1));
	assert_true(rp_kv_tombstone_drop(kv, S("k"), r.stamp));
	assert_false(rp_kv_record_get(kv, S("k"), &r));
	rp_kv_destroy(kv);
}

static void test_purge(void **state)
{
	struct rp_kv *kv = kv_replicated(1);
	struct rp_kv_stats s;
	char key[8];

	for (int i = 0; i < 10; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		take(kv, gone(key, i % 2 ? 100 : 200, 1));
	}
	assert_int_equal(rp_kv_tombstone_purge(kv, 150, 4), 2);
	assert_int_equal(rp_kv_tombstone_purge(kv, 150, 100), 3);
	assert_int_equal(rp_kv_tombstone_purge(kv, 150, 100), 0);
	/* One that still has history for a watcher goes with its compaction. */
	kv_put(kv, "h", "1");
	kv_delete(kv, "h", "");
	assert_int_equal(rp_kv_tombstone_purge(kv, UINT64_MAX, 100), 6);
	rp_kv_stats_get(kv, &s);
	assert_int_equal(s.tombstones, 0);
	assert_int_equal(s.versions, 2);
	kv_put(kv, "z", "");
	rp_kv_compact(kv, rp_kv_revision(kv));
	kv_settle(kv);
	rp_kv_stats_get(kv, &s);
	assert_int_equal(s.versions, 1);
	rp_kv_destroy(kv);
}

static void test_pages(void **state)
{
	struct rp_kv *kv = kv_replicated(1);
	struct rp_kv_record page[3];
	char seen[64] = "", last[8] = "";
	bool after = false;

	for (const char *k = "hbdfaceg"; *k; k++)
		kv_put(kv, (char[]){*k, 0}, "v");
	kv_delete(kv, "c", "e");
	for (;;) {
		uint32_t n = rp_kv_record_page(kv, S(last), after, S("g"), page, 3);

		if (n == 0)
			break;
		for (uint32_t i = 0; i < n; i++) {
			strcat(seen, page[i].deleted ? "-" : "+");
			strncat(seen, (const char *)page[i].key.data, page[i].key.length);
		}
		last[0] = (char)page[n - 1].key.data[0];
		after = true;
	}
	assert_string_equal(seen, "+a+b-c-d+e+f");
	rp_kv_destroy(kv);
}

/* Stores that got the same records in different orders end equal. */
static void test_converge(void **state)
{
	struct rp_rand r = {.state = 7};
	struct rp_kv_record records[200], pa[64], pb[64];
	struct rp_kv *a = kv_replicated(1), *b = kv_replicated(2);
	static char keys[8][2] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	static const char *const values[] = {"1", "2", "3"};
	uint32_t na, nb;

	for (size_t i = 0; i < 200; i++) {
		records[i] = rec(keys[rp_rand_below(&r, 8)], values[rp_rand_below(&r, 3)],
			1 + rp_rand_below(&r, 1000), i);
		records[i].deleted = rp_rand_below(&r, 3) == 0;
		if (records[i].deleted)
			records[i].value.length = 0;
	}
	rp_kv_apply_replicated(a, records, 200, 9);
	for (size_t i = 0; i < 400; i++)
		take(b, records[i < 200 ? 199 - i : rp_rand_below(&r, 200)]);
	na = rp_kv_record_page(a, S(""), false, S(""), pa, 64);
	nb = rp_kv_record_page(b, S(""), false, S(""), pb, 64);
	assert_int_equal(na, nb);
	assert_int_equal(na, 8);
	for (uint32_t i = 0; i < na; i++) {
		assert_int_equal(pa[i].stamp, pb[i].stamp);
		assert_int_equal(pa[i].node, pb[i].node);
		assert_int_equal(pa[i].deleted, pb[i].deleted);
		assert_int_equal(pa[i].value.length, pb[i].value.length);
		assert_memory_equal(pa[i].value.data, pb[i].value.data, pa[i].value.length);
	}
	rp_kv_destroy(a);
	rp_kv_destroy(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_writer_wins),
		cmocka_unit_test(test_tombstone_of_unknown_key),
		cmocka_unit_test(test_tombstones_outlive_compaction),
		cmocka_unit_test(test_purge),
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_converge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
