/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include <base/rand.h>
#include <base/units.h>

#include "../../../lib/kv/tree_priv.h"
#include "kv_test_util.h"

struct item {
	struct kv_node node;
	int key;
	int count;
	bool in;
};

#define ITEMS 512

static struct item *item_of(struct kv_node *n)
{
	return RP_CONTAINER_OF(n, struct item, node);
}

static void augment(struct kv_node *n)
{
	item_of(n)->count = 1 + (n->left ? item_of(n->left)->count : 0) +
			    (n->right ? item_of(n->right)->count : 0);
}

static int check(struct kv_node *n, struct kv_node *parent)
{
	int l, r;

	if (!n)
		return 0;
	assert_ptr_equal(n->parent, parent);
	l = check(n->left, n);
	r = check(n->right, n);
	assert_true(abs(l - r) <= 1);
	assert_int_equal(n->height, (l > r ? l : r) + 1);
	return n->height;
}

static void insert(struct kv_tree *t, struct item *i)
{
	struct kv_node *parent = NULL, *n = t->root;
	bool left = false;

	while (n) {
		parent = n;
		left = i->key < item_of(n)->key;
		n = left ? n->left : n->right;
	}
	kv_tree_insert(t, &i->node, parent, left);
	i->in = true;
}

static void test_random(void **state)
{
	static struct item items[ITEMS];
	struct kv_tree t = {.augment = augment};
	struct rp_rand r = {.state = 42};
	int in = 0;

	for (int i = 0; i < ITEMS; i++)
		items[i].key = i;
	for (int step = 0; step < 20000; step++) {
		struct item *i = &items[rp_rand_below(&r, ITEMS)];
		int seen = 0, last = -1;

		if (i->in) {
			kv_tree_remove(&t, &i->node);
			i->in = false;
			in--;
		} else {
			insert(&t, i);
			in++;
		}
		assert_int_equal(t.root ? item_of(t.root)->count : 0, in);
		if (step % 100)
			continue;
		check(t.root, NULL);
		for (struct kv_node *n = kv_tree_first(&t); n; n = kv_tree_next(n)) {
			assert_true(item_of(n)->key > last);
			last = item_of(n)->key;
			seen++;
		}
		assert_int_equal(seen, in);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
