/* SPDX-License-Identifier: Apache-2.0 */

/* A bounded cache of messages: the one that was not asked for longest goes first. */

#include <stdlib.h>
#include <string.h>

#include <base/hmap.h>
#include <store/store_priv.h>

#define CACHE_BITS 12
/** Whatever the number of entries: messages may be large. */
#define CACHE_BYTES_MAX (64ull << 20)

struct cached {
	struct rp_hmap_node by_hash;
	struct rp_list node; /**< cache->order, the youngest last */
	size_t bytes;
	struct rp_bus_message *message;
};

struct store_cache {
	struct rp_hmap map;
	struct rp_list order;
	uint32_t entries_max;
	uint64_t bytes;
};

struct store_cache *store_cache_new(uint32_t entries_max)
{
	struct store_cache *c = store_alloc(sizeof(*c));

	c->map.bits = CACHE_BITS;
	c->map.chains = store_alloc(sizeof(struct rp_hmap_node *) << CACHE_BITS);
	rp_list_init(&c->order);
	c->entries_max = entries_max;
	return c;
}

static void cached_free(struct store_cache *c, struct cached *e)
{
	rp_hmap_remove(&c->map, &e->by_hash);
	rp_list_unlink(&e->node);
	c->bytes -= e->bytes;
	rp_bus_message_free(e->message);
	free(e);
}

void store_cache_free(struct store_cache *c)
{
	if (!c)
		return;
	while (!rp_list_empty(&c->order))
		cached_free(c, rp_list_entry(c->order.next, struct cached, node));
	free(c->map.chains);
	free(c);
}

static void trim(struct store_cache *c)
{
	while (c->map.count > c->entries_max || (c->bytes > CACHE_BYTES_MAX && c->map.count > 0))
		cached_free(c, rp_list_entry(c->order.next, struct cached, node));
}

void store_cache_set_max(struct store_cache *c, uint32_t entries_max)
{
	c->entries_max = entries_max;
	trim(c);
}

static struct cached *cached_find(struct store_cache *c, const char *id)
{
	uint64_t hash = store_hash(id, strlen(id));

	/* Of two ids with one hash the younger has the place. */
	struct rp_hmap_node *n = rp_hmap_find(&c->map, hash);
	struct cached *e = n ? RP_CONTAINER_OF(n, struct cached, by_hash) : NULL;

	return e;
}

const struct rp_bus_message *store_cache_get(struct store_cache *c, const char *id)
{
	struct cached *e = cached_find(c, id);

	if (!e || strcmp(e->message->id, id) != 0)
		return NULL;
	rp_list_unlink(&e->node);
	rp_list_push_back(&c->order, &e->node);
	return e->message;
}

void store_cache_remove(struct store_cache *c, const char *id)
{
	struct cached *e = cached_find(c, id);

	if (e && strcmp(e->message->id, id) == 0)
		cached_free(c, e);
}

void store_cache_put(struct store_cache *c, const struct rp_bus_message *m)
{
	struct cached *e = cached_find(c, m->id);

	if (e)
		cached_free(c, e);
	e = store_alloc(sizeof(*e));
	e->message = rp_bus_message_copy(m);
	e->bytes = sizeof(*e) + sizeof(*m) + strlen(m->data) + strlen(m->schema) +
		   strlen(m->command) + strlen(m->id) + strlen(m->reply) + strlen(m->tag) +
		   m->destination_count * sizeof(uint32_t);
	rp_hmap_insert(&c->map, &e->by_hash, store_hash(m->id, strlen(m->id)));
	rp_list_push_back(&c->order, &e->node);
	c->bytes += e->bytes;
	trim(c);
}

uint64_t store_cache_bytes(const struct store_cache *c)
{
	return c->bytes;
}

uint32_t store_cache_count(const struct store_cache *c)
{
	return c->map.count;
}
