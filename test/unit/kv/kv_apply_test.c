/* SPDX-License-Identifier: Apache-2.0 */
/* Put, DeleteRange, Txn: sections 4.2 to 4.4 and 4.7. */
#include <stdio.h>
#include <stdlib.h>

#include "kv_test_util.h"

static int setup(void **state)
{
	*state = kv_new();
	return 0;
}

static int teardown(void **state)
{
	rp_kv_destroy(*state);
	return 0;
}

static enum rp_kv_error apply(struct rp_kv *kv, const struct rp_kv_txn *t, struct rp_kv_result *out)
{
	struct rp_kv_writer w = {.wall_us = 5};

	return rp_kv_apply(kv, t, &w, out);
}

static void test_put(void **state)
{
	struct rp_kv_op op = op_put("k", "1");
	struct rp_kv_result r;

	assert_int_equal(kv_run(*state, &op, 1, &r), RP_KV_OK);
	assert_int_equal(r.revision, 2);
	assert_true(r.wrote);
	assert_true(r.txn.succeeded);
	assert_null(r.txn.ops[0].put.prev);
	rp_kv_result_clear(&r);
	kv_run(*state, &op, 1, &r);
	assert_int_equal(r.txn.ops[0].put.prev->mod_revision, 2);
	assert_int_equal(r.txn.ops[0].revision, 3);
	rp_kv_result_clear(&r);
}

static void test_lease_and_ignore(void **state)
{
	struct rp_kv *kv = *state;
	struct rp_kv_op op = op_put("k", "1");
	struct rp_kv_result r;
	struct rp_kv_record rec;

	assert_int_equal(kv_lease(kv, RP_KV_SYSTEM_GRANT, 7, 10, 0), RP_KV_OK);

	op.put.lease = 8;
	assert_int_equal(kv_run(kv, &op, 1, &r), RP_KV_LEASE_NOT_FOUND);
	assert_int_equal(rp_kv_revision(kv), 1);
	op.put.lease = 7;
	assert_int_equal(kv_run(kv, &op, 1, &r), RP_KV_OK);
	rp_kv_result_clear(&r);
	op = op_put("k", "2");
	op.put.ignore_lease = true;
	assert_int_equal(kv_run(kv, &op, 1, &r), RP_KV_OK);
	rp_kv_result_clear(&r);
	rp_kv_record_get(kv, S("k"), &rec);
	assert_int_equal(rec.lease, 7);
	op = op_put("k", "");
	op.put.ignore_value = true;
	assert_int_equal(kv_run(kv, &op, 1, &r), RP_KV_OK);
	rp_kv_result_clear(&r);
	rp_kv_record_get(kv, S("k"), &rec);
	assert_int_equal(rec.lease, 0); /* detached */
	assert_true(span_is(rec.value, "2"));
	op.put.key = S("absent");
	assert_int_equal(kv_run(kv, &op, 1, &r), RP_KV_KEY_NOT_FOUND);
}

static void test_delete(void **state)
{
	struct rp_kv_op op = op_delete("a", "c");
	struct rp_kv_result r;

	kv_put(*state, "b", "2");
	kv_put(*state, "a", "1");
	kv_put(*state, "c", "3");
	kv_run(*state, &op, 1, &r);
	assert_int_equal(r.txn.ops[0].del.deleted, 2);
	assert_int_equal(r.txn.ops[0].del.prev_count, 2);
	assert_true(span_is(rp_kv_version_key(r.txn.ops[0].del.prevs[0]), "a"));
	assert_int_equal(r.revision, 5);
	rp_kv_result_clear(&r);
	op.del.prev_kv = false;
	op.del.key = S_from();
	op.del.end = S_from();
	kv_run(*state, &op, 1, &r);
	assert_int_equal(r.txn.ops[0].del.deleted, 1);
	assert_int_equal(r.txn.ops[0].del.prev_count, 0);
	rp_kv_result_clear(&r);
}

struct compare_row {
	const char *key;
	int target, result;
	int64_t number;
	const char *value;
	bool want;
};

/* Key "k": put at 2 and 3, value "m". */
static const struct compare_row compare_rows[] = {
	{"k", RP_KV_TARGET_VERSION, RP_KV_EQUAL, 2, "", true},
	{"k", RP_KV_TARGET_VERSION, RP_KV_NOT_EQUAL, 2, "", false},
	{"k", RP_KV_TARGET_VERSION, RP_KV_GREATER, 1, "", true},
	{"k", RP_KV_TARGET_VERSION, RP_KV_LESS, 2, "", false},
	{"k", RP_KV_TARGET_CREATE, RP_KV_EQUAL, 2, "", true},
	{"k", RP_KV_TARGET_MOD, RP_KV_EQUAL, 3, "", true},
	{"k", RP_KV_TARGET_MOD, RP_KV_LESS, 4, "", true},
	{"k", RP_KV_TARGET_LEASE, RP_KV_EQUAL, 0, "", true},
	{"k", RP_KV_TARGET_VALUE, RP_KV_EQUAL, 0, "m", true},
	{"k", RP_KV_TARGET_VALUE, RP_KV_GREATER, 0, "a", true},
	{"k", RP_KV_TARGET_VALUE, RP_KV_LESS, 0, "mm", true},
	{"none", RP_KV_TARGET_VERSION, RP_KV_EQUAL, 0, "", true},
	{"none", RP_KV_TARGET_CREATE, RP_KV_GREATER, 0, "", false},
	{"none", RP_KV_TARGET_MOD, RP_KV_LESS, 1, "", true},
	{"none", RP_KV_TARGET_VALUE, RP_KV_EQUAL, 0, "", false},
	{"none", RP_KV_TARGET_VALUE, RP_KV_NOT_EQUAL, 0, "x", false},
	{"k", 9, RP_KV_EQUAL, 77, "", true},
	{"k", 9, RP_KV_NOT_EQUAL, 77, "", false},
	{"k", RP_KV_TARGET_VERSION, 9, 77, "", true},
	{"none", RP_KV_TARGET_VALUE, 9, 0, "", false},
};

static void test_compare(void **state)
{
	kv_put(*state, "k", "x");
	kv_put(*state, "k", "m");
	for (size_t i = 0; i < RP_ARRAY_SIZE(compare_rows); i++) {
		const struct compare_row *row = &compare_rows[i];
		struct rp_kv_compare c = {.key = S(row->key),
			.target = row->target,
			.result = row->result,
			.number = row->number,
			.value = S(row->value)};
		struct rp_kv_txn t = {.compares = &c, .compare_count = 1};
		struct rp_kv_result r;

		assert_int_equal(apply(*state, &t, &r), RP_KV_OK);
		if (r.txn.succeeded != row->want)
			fail_msg("row %zu", i);
		assert_false(r.wrote);
		rp_kv_result_clear(&r);
	}
}

static void test_compare_range(void **state)
{
	struct rp_kv_compare c = {
		.key = S("a"), .end = S("c"), .target = RP_KV_TARGET_VERSION, .number = 1};
	struct rp_kv_txn t = {.compares = &c, .compare_count = 1};
	struct rp_kv_result r;

	kv_put(*state, "a", "1");
	kv_put(*state, "b", "1");
	apply(*state, &t, &r);
	assert_true(r.txn.succeeded);
	kv_put(*state, "b", "2");
	apply(*state, &t, &r);
	assert_false(r.txn.succeeded);
	c.key = S("x");
	c.end = S("z");
	c.number = 0;
	apply(*state, &t, &r);
	assert_true(r.txn.succeeded); /* no key: one virtual key of zeros */
}

static void test_txn_revisions(void **state)
{
	struct rp_kv_op ops[] = {op_range("a", ""), op_delete("none", ""), op_put("a", "1"),
		op_range("a", ""), op_delete("b", ""), op_delete("none", "")};
	struct rp_kv_result r;
	int64_t want[] = {2, 2, 3, 3, 3, 3};

	kv_put(*state, "b", "0");
	assert_int_equal(kv_run(*state, ops, 6, &r), RP_KV_OK);
	assert_int_equal(r.revision, 3);
	for (int i = 0; i < 6; i++)
		assert_int_equal(r.txn.ops[i].revision, want[i]);
	assert_int_equal(r.txn.ops[0].range.count, 0);
	assert_int_equal(r.txn.ops[3].range.count, 1);
	assert_int_equal(r.txn.ops[3].range.items[0]->mod_revision, 3);
	rp_kv_result_clear(&r);
	assert_int_equal(rp_kv_revision(*state), 3);
}

static void test_txn_all_or_none(void **state)
{
	struct rp_kv_op future[] = {op_put("a", "1"), op_range("a", "")};
	struct rp_kv_op lease[] = {op_put("a", "1"), op_put("b", "1")};
	struct rp_kv_op missing[] = {op_put("a", "1"), op_put("b", "")};
	struct rp_kv_result r;
	struct rp_kv_record rec;

	future[1].range.revision = 99;
	assert_int_equal(kv_run(*state, future, 2, &r), RP_KV_FUTURE_REVISION);
	lease[1].put.lease = 4;
	assert_int_equal(kv_run(*state, lease, 2, &r), RP_KV_LEASE_NOT_FOUND);
	missing[1].put.ignore_value = true;
	assert_int_equal(kv_run(*state, missing, 2, &r), RP_KV_KEY_NOT_FOUND);
	assert_int_equal(r.txn.op_count, 0);
	assert_int_equal(rp_kv_revision(*state), 1);
	assert_false(rp_kv_record_get(*state, S("a"), &rec));
	kv_put(*state, "x", "");
	kv_put(*state, "x", "");
	rp_kv_compact(*state, 3);
	future[1].range.revision = 2;
	assert_int_equal(kv_run(*state, future, 2, &r), RP_KV_COMPACTED);
}

static void test_txn_nested(void **state)
{
	struct rp_kv_op put_b = op_put("b", "1"), put_c = op_put("c", "1");
	/* All compares look at the state before the txn: "a" does not exist for the inner one. */
	struct rp_kv_compare a_missing = {.key = S("a"), .target = RP_KV_TARGET_CREATE};
	struct rp_kv_txn inner = {.compares = &a_missing,
		.compare_count = 1,
		.success = &put_b,
		.success_count = 1,
		.failure = &put_c,
		.failure_count = 1};
	struct rp_kv_op ops[] = {op_put("a", "1"), op_txn(&inner)};
	struct rp_kv_record rec;
	struct rp_kv_result r;

	assert_int_equal(kv_run(*state, ops, 2, &r), RP_KV_OK);
	assert_true(r.txn.ops[1].txn->succeeded);
	assert_int_equal(r.txn.ops[1].txn->op_count, 1);
	rp_kv_result_clear(&r);
	assert_int_equal(rp_kv_revision(*state), 2);
	assert_true(rp_kv_record_get(*state, S("b"), &rec));
	assert_false(rp_kv_record_get(*state, S("c"), &rec));
	ops[0] = op_range("a", "");
	assert_int_equal(kv_run(*state, ops, 2, &r), RP_KV_OK);
	assert_false(r.txn.ops[1].txn->succeeded);
	rp_kv_result_clear(&r);
}

static void test_quota(void **state)
{
	struct rp_kv_op op = op_put("k", "0123456789");
	struct rp_kv_result r;
	int puts = 0;

	rp_kv_set_limits(*state, 8192, 0);
	while (kv_run(*state, &op, 1, &r) == RP_KV_OK) {
		rp_kv_result_clear(&r);
		assert_true(++puts < 1000);
	}
	assert_true(puts > 5);
	assert_int_equal(r.error, RP_KV_NO_SPACE);
	assert_true(rp_kv_alarm_active(*state, RP_KV_ALARM_NOSPACE));
	/* Deletes, reads and compaction still work; the alarm stays until it is taken back. */
	assert_int_equal(kv_delete(*state, "k", ""), 1);
	rp_kv_compact(*state, rp_kv_revision(*state));
	kv_settle(*state);
	assert_int_equal(kv_run(*state, &op, 1, &r), RP_KV_NO_SPACE);
	assert_true(rp_kv_alarm_set(*state, RP_KV_ALARM_NOSPACE, false));
	assert_int_equal(kv_run(*state, &op, 1, &r), RP_KV_OK);
	rp_kv_result_clear(&r);
	rp_kv_alarm_set(*state, RP_KV_ALARM_CORRUPT, true);
	assert_int_equal(kv_run(*state, &op, 1, &r), RP_KV_CORRUPT);
	op = op_range("k", "");
	assert_int_equal(kv_run(*state, &op, 1, &r), RP_KV_OK);
	rp_kv_result_clear(&r);
}

struct seen {
	int64_t revision;
	uint32_t count;
	uint64_t origin;
	char text[64];
};

static void on_commit(void *ctx, int64_t revision, const struct rp_kv_event *events, uint32_t count,
	uint64_t origin)
{
	struct seen *s = ctx;

	s->revision = revision;
	s->count = count;
	s->origin = origin;
	s->text[0] = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct rp_span key = rp_kv_version_key(events[i].kv);

		strcat(s->text, events[i].kv->deleted ? "-" : "+");
		strncat(s->text, (const char *)key.data, key.length);
		if (events[i].prev)
			strcat(s->text, "*");
	}
}

static void test_hook(void **state)
{
	struct seen s = {0};
	struct rp_kv_hook hook = {.on_commit = on_commit, .ctx = &s};
	struct rp_kv_op ops[] = {op_put("a", "1"), op_delete("b", ""), op_put("c", "2")};
	struct rp_kv_result r;

	kv_put(*state, "b", "");
	kv_put(*state, "c", "");
	rp_kv_hook_add(*state, &hook);
	kv_run(*state, ops, 3, &r);
	rp_kv_result_clear(&r);
	assert_int_equal(s.revision, 4);
	assert_string_equal(s.text, "+a-b*+c*");
	assert_int_equal(s.origin, 0);
	rp_kv_hook_remove(*state, &hook);
	kv_put(*state, "z", "");
	assert_int_equal(s.revision, 4);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_put),
		T(test_lease_and_ignore),
		T(test_delete),
		T(test_compare),
		T(test_compare_range),
		T(test_txn_revisions),
		T(test_txn_all_or_none),
		T(test_txn_nested),
		T(test_quota),
		T(test_hook),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
