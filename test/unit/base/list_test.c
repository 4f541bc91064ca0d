/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <base/list.h>

struct item {
	int value;
	struct rp_list node;
};

static void keeps_order_and_unlinks(void **state)
{
	struct rp_list l, m;
	struct item a = {1}, b = {2}, c = {3};

	rp_list_init(&l);
	rp_list_init(&m);
	rp_list_push_back(&l, &b.node);
	rp_list_push_back(&l, &c.node);
	rp_list_push_front(&l, &a.node);
	rp_list_unlink(&b.node);
	rp_list_unlink(&b.node);
	assert_ptr_equal(rp_list_pop_front(&l), &a.node);
	rp_list_push_back(&m, &a.node);
	rp_list_splice_back(&m, &l);
	assert_true(rp_list_empty(&l));
	assert_int_equal(rp_list_entry(m.prev, struct item, node)->value, 3);
	assert_ptr_equal(rp_list_pop_front(&m), &a.node);
	assert_ptr_equal(rp_list_pop_front(&m), &c.node);
	assert_null(rp_list_pop_front(&m));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_order_and_unlinks)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
