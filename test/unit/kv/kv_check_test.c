/* SPDX-License-Identifier: Apache-2.0 */
/* Request checks of spec/etcd-semantics.md sections 4.1 to 4.4. */
#include <stdio.h>
#include <stdlib.h>

#include "kv_test_util.h"

#define CHECK(ops, want)                                                                       \
	do {                                                                                   \
		struct rp_kv_txn t_ = {.success = (ops), .success_count = RP_ARRAY_SIZE(ops)}; \
		struct rp_kv_txn f_ = {.failure = (ops), .failure_count = RP_ARRAY_SIZE(ops)}; \
		assert_int_equal(rp_kv_txn_check(&t_, 128), want);                             \
		assert_int_equal(rp_kv_txn_check(&f_, 128), want);                             \
	} while (0)

static void test_texts(void **state)
{
	assert_string_equal(rp_kv_error_text(RP_KV_KEY_EMPTY), "etcdserver: key is not provided");
	assert_string_equal(rp_kv_error_text(RP_KV_FUTURE_REVISION),
		"etcdserver: mvcc: required revision is a future revision");
	assert_string_equal(
		rp_kv_error_text(RP_KV_NO_SPACE), "etcdserver: mvcc: database space exceeded");
}

static void test_single(void **state)
{
	struct rp_kv_range r = {.key = S("")};
	struct rp_kv_put p = {.key = S("")};
	struct rp_kv_delete d = {.key = S("")};

	assert_int_equal(rp_kv_range_check(&r), RP_KV_KEY_EMPTY);
	assert_int_equal(rp_kv_put_check(&p), RP_KV_KEY_EMPTY);
	assert_int_equal(rp_kv_delete_check(&d), RP_KV_KEY_EMPTY);
	r.key = p.key = d.key = S("k");
	assert_int_equal(rp_kv_range_check(&r), RP_KV_OK);
	r.sort_order = 3;
	assert_int_equal(rp_kv_range_check(&r), RP_KV_INVALID_SORT);
	r.sort_order = 2;
	r.sort_target = 5;
	assert_int_equal(rp_kv_range_check(&r), RP_KV_INVALID_SORT);
	r.sort_target = -1;
	assert_int_equal(rp_kv_range_check(&r), RP_KV_INVALID_SORT);
	p.ignore_value = true;
	assert_int_equal(rp_kv_put_check(&p), RP_KV_OK);
	p.value = S("v");
	assert_int_equal(rp_kv_put_check(&p), RP_KV_VALUE_PROVIDED);
	p.ignore_value = false;
	p.ignore_lease = true;
	assert_int_equal(rp_kv_put_check(&p), RP_KV_OK);
	p.lease = 5;
	assert_int_equal(rp_kv_put_check(&p), RP_KV_LEASE_PROVIDED);
	assert_int_equal(rp_kv_delete_check(&d), RP_KV_OK);
}

static void test_op_count(void **state)
{
	struct rp_kv_op ops[129];
	struct rp_kv_op inner = op_range("k", "");
	struct rp_kv_txn nested = {.success = &inner, .success_count = 1};
	struct rp_kv_txn t = {.success = ops, .success_count = 128};

	for (int i = 0; i < 129; i++)
		ops[i] = op_range("k", "");
	assert_int_equal(rp_kv_txn_check(&t, 128), RP_KV_OK);
	t.success_count = 129;
	assert_int_equal(rp_kv_txn_check(&t, 128), RP_KV_TOO_MANY_OPS);
	/* 128 outer operations leave none for a nested txn, 127 leave one. */
	ops[0] = op_txn(&nested);
	t.success_count = 128;
	assert_int_equal(rp_kv_txn_check(&t, 128), RP_KV_TOO_MANY_OPS);
	t.success_count = 127;
	assert_int_equal(rp_kv_txn_check(&t, 128), RP_KV_OK);
}

static void test_compare_count_and_keys(void **state)
{
	struct rp_kv_compare c[3] = {{.key = S("a")}, {.key = S("b")}, {.key = S("")}};
	struct rp_kv_txn t = {.compares = c, .compare_count = 2};

	assert_int_equal(rp_kv_txn_check(&t, 2), RP_KV_OK);
	assert_int_equal(rp_kv_txn_check(&t, 1), RP_KV_TOO_MANY_OPS);
	t.compare_count = 3;
	assert_int_equal(rp_kv_txn_check(&t, 128), RP_KV_KEY_EMPTY);
}

static void test_ops_checked(void **state)
{
	struct rp_kv_op none[] = {{.type = RP_KV_OP_NONE}};
	struct rp_kv_op empty_put[] = {op_put("", "v")};
	struct rp_kv_op empty_delete[] = {op_delete("", "")};
	struct rp_kv_op empty_range[] = {op_range("", "")};
	struct rp_kv_txn inner = {.failure = empty_put, .failure_count = 1};
	struct rp_kv_op nested[] = {op_txn(&inner)};

	CHECK(none, RP_KV_KEY_NOT_FOUND);
	CHECK(empty_put, RP_KV_KEY_EMPTY);
	CHECK(empty_delete, RP_KV_KEY_EMPTY);
	CHECK(empty_range, RP_KV_KEY_EMPTY);
	CHECK(nested, RP_KV_KEY_EMPTY);
}

static void test_duplicates(void **state)
{
	struct rp_kv_op twice[] = {op_put("a", "1"), op_put("a", "2")};
	struct rp_kv_op distinct[] = {op_put("a", "1"), op_put("b", "2")};
	struct rp_kv_op point[] = {op_put("a", "1"), op_delete("a", "")};
	struct rp_kv_op range[] = {op_delete("a", "c"), op_put("b", "1")};
	struct rp_kv_op at_end[] = {op_delete("a", "b"), op_put("b", "1")};
	struct rp_kv_op joined[] = {op_delete("a", "b"), op_delete("b", "c"), op_put("b", "1")};
	struct rp_kv_op point_then_range[] = {
		op_delete("b", ""), op_delete("b", "c"), op_put("bb", "1")};
	struct rp_kv_op deletes[] = {op_delete("a", "c"), op_delete("b", "")};
	struct rp_kv_op inverted[] = {op_delete("c", "a"), op_put("b", "1")};

	CHECK(twice, RP_KV_DUPLICATE_KEY);
	CHECK(distinct, RP_KV_OK);
	CHECK(point, RP_KV_DUPLICATE_KEY);
	CHECK(range, RP_KV_DUPLICATE_KEY);
	CHECK(at_end, RP_KV_OK);
	CHECK(joined, RP_KV_DUPLICATE_KEY);
	CHECK(point_then_range, RP_KV_DUPLICATE_KEY);
	CHECK(deletes, RP_KV_OK);
	CHECK(inverted, RP_KV_OK);
}

static void test_duplicates_nested(void **state)
{
	struct rp_kv_op put_a[] = {op_put("a", "1")};
	struct rp_kv_op del_a[] = {op_delete("a", "")};
	struct rp_kv_txn both = {
		.success = put_a, .success_count = 1, .failure = put_a, .failure_count = 1};
	struct rp_kv_txn then_a = {.success = put_a, .success_count = 1};
	struct rp_kv_txn else_a = {.failure = put_a, .failure_count = 1};
	struct rp_kv_txn exclusive = {
		.success = put_a, .success_count = 1, .failure = del_a, .failure_count = 1};
	struct rp_kv_op one[] = {op_txn(&both)};
	struct rp_kv_op outside[] = {op_put("a", "1"), op_txn(&else_a)};
	struct rp_kv_op two[] = {op_txn(&then_a), op_txn(&else_a)};
	struct rp_kv_op deleted[] = {op_txn(&then_a), op_delete("a", "")};
	struct rp_kv_op fine[] = {op_txn(&exclusive)};

	CHECK(one, RP_KV_OK);
	CHECK(outside, RP_KV_DUPLICATE_KEY);
	CHECK(two, RP_KV_DUPLICATE_KEY);
	CHECK(deleted, RP_KV_DUPLICATE_KEY);
	CHECK(fine, RP_KV_OK);
}

static void test_branches_apart(void **state)
{
	struct rp_kv_op a[] = {op_put("a", "1")}, b[] = {op_delete("a", "")};
	struct rp_kv_txn t = {.success = a, .success_count = 1, .failure = b, .failure_count = 1};

	assert_int_equal(rp_kv_txn_check(&t, 128), RP_KV_OK);
	assert_false(rp_kv_txn_is_read_only(&t));
	assert_true(rp_kv_txn_has_put(&t));
}

static void test_read_only(void **state)
{
	struct rp_kv_op r[] = {op_range("a", "")}, d[] = {op_delete("a", "")};
	struct rp_kv_txn inner = {.failure = d, .failure_count = 1};
	struct rp_kv_op nested[] = {op_txn(&inner)};
	struct rp_kv_txn t = {.success = r, .success_count = 1};

	assert_true(rp_kv_txn_is_read_only(&t));
	t.failure = nested;
	t.failure_count = 1;
	assert_false(rp_kv_txn_is_read_only(&t));
	assert_false(rp_kv_txn_has_put(&t));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_single),
		cmocka_unit_test(test_op_count),
		cmocka_unit_test(test_compare_count_and_keys),
		cmocka_unit_test(test_ops_checked),
		cmocka_unit_test(test_duplicates),
		cmocka_unit_test(test_duplicates_nested),
		cmocka_unit_test(test_branches_apart),
		cmocka_unit_test(test_read_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
