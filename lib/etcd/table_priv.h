/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An intrusive hash table by u64: tokens, consumer handles, watch ids. Grows by doubling; an object
 * embeds struct etcd_node.
 */

#include <stdint.h>

struct etcd_node {
	struct etcd_node *next;
	uint64_t key;
};

struct etcd_table {
	struct etcd_node **slots;
	uint32_t size, count; /**< size is 0 or a power of two */
};

/** The key is not in the table yet. */
void etcd_table_add(struct etcd_table *t, struct etcd_node *n, uint64_t key);
struct etcd_node *etcd_table_find(const struct etcd_table *t, uint64_t key);
void etcd_table_remove(struct etcd_table *t, struct etcd_node *n);
/** Any one, or NULL when empty. */
struct etcd_node *etcd_table_any(const struct etcd_table *t);
/** Calls `fn` for each; it may remove the node it is called with, and no other. */
void etcd_table_each(struct etcd_table *t, void (*fn)(struct etcd_node *n, void *ctx), void *ctx);
/** Frees the slots; the table is empty. */
void etcd_table_clear(struct etcd_table *t);
