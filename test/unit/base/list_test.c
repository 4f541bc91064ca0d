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

/* Each run of five nodes, to the front of a list of two. */
static void moves_a_run(void **state)
{
	for (unsigned from = 0; from < 5; from++)
		for (unsigned to = from; to < 5; to++) {
			struct item a[7];
			struct rp_list l, m, *n;
			unsigned want = from, seen = 0;

			rp_list_init(&l);
			rp_list_init(&m);
			for (unsigned i = 0; i < 7; i++) {
				a[i].value = (int)i;
				rp_list_push_back(i < 5 ? &l : &m, &a[i].node);
			}
			rp_list_move_front(&m, &a[from].node, &a[to].node);
			rp_list_foreach (n, &m) {
				assert_int_equal(rp_list_entry(n, struct item, node)->value, want);
				assert_ptr_equal(n->next->prev, n);
				want = want == to ? 5 : want + 1;
			}
			assert_int_equal(want, 7);
			rp_list_foreach (n, &l) {
				assert_int_equal(rp_list_entry(n, struct item, node)->value,
					seen < from ? seen : seen + to - from + 1);
				assert_ptr_equal(n->next->prev, n);
				seen++;
			}
			assert_int_equal(seen, 5 - (to - from + 1));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_order_and_unlinks),
		cmocka_unit_test(moves_a_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
