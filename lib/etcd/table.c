/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include <base/assert.h>

#include "table_priv.h"

static uint32_t table_slot(const struct etcd_table *t, uint64_t key)
{
	return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 32) & (t->size - 1);
}

static void table_grow(struct etcd_table *t)
{
	struct etcd_table bigger = {.size = t->size > 0 ? t->size * 2 : 8};

	bigger.slots = calloc(bigger.size, sizeof(bigger.slots[0]));
	RP_ASSERT(bigger.slots != NULL);
	for (uint32_t i = 0; i < t->size; i++) {
		struct etcd_node *n = t->slots[i], *next;

		for (; n; n = next) {
			uint32_t slot = table_slot(&bigger, n->key);

			next = n->next;
			n->next = bigger.slots[slot];
			bigger.slots[slot] = n;
		}
	}
	free(t->slots);
	t->slots = bigger.slots;
	t->size = bigger.size;
}

void etcd_table_add(struct etcd_table *t, struct etcd_node *n, uint64_t key)
{
	uint32_t slot;

	if (t->count >= t->size)
		table_grow(t);
	slot = table_slot(t, key);
	n->key = key;
	n->next = t->slots[slot];
	t->slots[slot] = n;
	t->count++;
}

struct etcd_node *etcd_table_find(const struct etcd_table *t, uint64_t key)
{
	struct etcd_node *n;

	if (t->count == 0)
		return NULL;
	for (n = t->slots[table_slot(t, key)]; n; n = n->next)
		if (n->key == key)
			return n;
	return NULL;
}

void etcd_table_remove(struct etcd_table *t, struct etcd_node *n)
{
	struct etcd_node **at = &t->slots[table_slot(t, n->key)];

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	n->next = NULL;
	t->count--;
}

struct etcd_node *etcd_table_any(const struct etcd_table *t)
{
	for (uint32_t i = 0; t->count > 0 && i < t->size; i++)
		if (t->slots[i])
			return t->slots[i];
	return NULL;
}

void etcd_table_each(struct etcd_table *t, void (*fn)(struct etcd_node *n, void *ctx), void *ctx)
{
	for (uint32_t i = 0; i < t->size; i++) {
		struct etcd_node *n = t->slots[i], *next;

		for (; n; n = next) {
			next = n->next;
			fn(n, ctx);
		}
	}
}

void etcd_table_clear(struct etcd_table *t)
{
	RP_ASSERT(t->count == 0);
	free(t->slots);
	*t = (struct etcd_table){0};
}
