/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An intrusive balanced binary tree (AVL) with parent pointers and an augmentation: a value of each
 * node that is computed from its own data and its two children. Both the index of keys (counts of
 * live keys) and the intervals of watchers (greatest end) are such trees.
 *
 *   1. Find the place by walking from `root`; kv_tree_insert() below that parent.
 *   2. kv_tree_remove() whenever; kv_tree_touch() when a node's own data changed.
 */

#include <stdbool.h>
#include <stddef.h>

struct kv_node {
	struct kv_node *left, *right, *parent;
	int height;
};

struct kv_tree {
	struct kv_node *root;
	/** Recomputes the augmented value of `n`; its children are right already. */
	void (*augment)(struct kv_node *n);
};

/** `parent` NULL: `n` becomes the root; else it becomes the left or right child, which is free. */
void kv_tree_insert(struct kv_tree *t, struct kv_node *n, struct kv_node *parent, bool left);
void kv_tree_remove(struct kv_tree *t, struct kv_node *n);
/** Recomputes augmented values from `n` to the root. */
void kv_tree_touch(struct kv_tree *t, struct kv_node *n);
struct kv_node *kv_tree_first(const struct kv_tree *t);
struct kv_node *kv_tree_next(const struct kv_node *n);
