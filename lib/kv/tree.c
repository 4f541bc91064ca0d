/* SPDX-License-Identifier: Apache-2.0 */
#include "tree_priv.h"

static int tree_height(const struct kv_node *n)
{
	return n ? n->height : 0;
}

static void tree_update(struct kv_tree *t, struct kv_node *n)
{
	int l = tree_height(n->left), r = tree_height(n->right);

	n->height = (l > r ? l : r) + 1;
	t->augment(n);
}

/* Puts `with` (may be NULL) where `old` hangs. */
static void tree_replace(struct kv_tree *t, struct kv_node *old, struct kv_node *with)
{
	struct kv_node *p = old->parent;

	if (!p)
		t->root = with;
	else if (p->left == old)
		p->left = with;
	else
		p->right = with;
	if (with)
		with->parent = p;
}

static struct kv_node *tree_rotate_left(struct kv_tree *t, struct kv_node *n)
{
	struct kv_node *r = n->right;

	tree_replace(t, n, r);
	n->right = r->left;
	if (n->right)
		n->right->parent = n;
	r->left = n;
	n->parent = r;
	tree_update(t, n);
	tree_update(t, r);
	return r;
}

static struct kv_node *tree_rotate_right(struct kv_tree *t, struct kv_node *n)
{
	struct kv_node *l = n->left;

	tree_replace(t, n, l);
	n->left = l->right;
	if (n->left)
		n->left->parent = n;
	l->right = n;
	n->parent = l;
	tree_update(t, n);
	tree_update(t, l);
	return l;
}

/* From `n` to the root: heights, augmented values, rotations. */
static void tree_fix(struct kv_tree *t, struct kv_node *n)
{
	while (n) {
		int balance = tree_height(n->left) - tree_height(n->right);

		if (balance > 1) {
			if (tree_height(n->left->left) < tree_height(n->left->right))
				tree_rotate_left(t, n->left);
			n = tree_rotate_right(t, n);
		} else if (balance < -1) {
			if (tree_height(n->right->right) < tree_height(n->right->left))
				tree_rotate_right(t, n->right);
			n = tree_rotate_left(t, n);
		} else {
			tree_update(t, n);
		}
		n = n->parent;
	}
}

void kv_tree_insert(struct kv_tree *t, struct kv_node *n, struct kv_node *parent, bool left)
{
	n->left = n->right = NULL;
	n->parent = parent;
	n->height = 1;
	if (!parent)
		t->root = n;
	else if (left)
		parent->left = n;
	else
		parent->right = n;
	tree_fix(t, n);
}

void kv_tree_remove(struct kv_tree *t, struct kv_node *n)
{
	struct kv_node *from;

	if (n->left && n->right) {
		/* The successor takes the place of `n`; it has no left child. */
		struct kv_node *s = n->right;

		while (s->left)
			s = s->left;
		from = s->parent == n ? s : s->parent;
		if (s->parent != n) {
			tree_replace(t, s, s->right);
			s->right = n->right;
			s->right->parent = s;
		}
		tree_replace(t, n, s);
		s->left = n->left;
		s->left->parent = s;
	} else {
		from = n->parent;
		tree_replace(t, n, n->left ? n->left : n->right);
	}
	n->left = n->right = n->parent = NULL;
	tree_fix(t, from);
}

void kv_tree_touch(struct kv_tree *t, struct kv_node *n)
{
	for (; n; n = n->parent)
		t->augment(n);
}

struct kv_node *kv_tree_first(const struct kv_tree *t)
{
	struct kv_node *n = t->root;

	while (n && n->left)
		n = n->left;
	return n;
}

struct kv_node *kv_tree_next(const struct kv_node *n)
{
	if (n->right) {
		struct kv_node *r = n->right;

		while (r->left)
			r = r->left;
		return r;
	}
	while (n->parent && n == n->parent->right)
		n = n->parent;
	return n->parent;
}
