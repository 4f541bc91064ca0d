/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Intrusive hash map of u64 keys with a fixed number of chains, chosen at creation. The owner
 * embeds a struct rp_hmap_node and keeps the memory of its items; nothing is allocated here.
 */

#include <stdint.h>

#include <base/units.h>

struct rp_hmap_node {
	struct rp_hmap_node *next;
	uint64_t key;
};

struct rp_hmap {
	struct rp_hmap_node **chains; /**< borrow: 1 << bits pointers, zeroed at the start */
	unsigned bits;
	uint32_t count;
};

static inline struct rp_hmap_node **rp_hmap_chain(const struct rp_hmap *h, uint64_t key)
{
	return &h->chains[h->bits ? (key * 0x9e3779b97f4a7c15ull) >> (64 - h->bits) : 0];
}

static inline struct rp_hmap_node *rp_hmap_find(const struct rp_hmap *h, uint64_t key)
{
	struct rp_hmap_node *n = *rp_hmap_chain(h, key);

	while (n && n->key != key)
		n = n->next;
	return n;
}

/** The key must not be in the map. */
static inline void rp_hmap_insert(struct rp_hmap *h, struct rp_hmap_node *n, uint64_t key)
{
	struct rp_hmap_node **chain = rp_hmap_chain(h, key);

	n->key = key;
	n->next = *chain;
	*chain = n;
	h->count++;
}

/** Takes `n` out; it must be in the map. */
static inline void rp_hmap_remove(struct rp_hmap *h, struct rp_hmap_node *n)
{
	struct rp_hmap_node **p = rp_hmap_chain(h, n->key);

	while (*p != n)
		p = &(*p)->next;
	*p = n->next;
	h->count--;
}
