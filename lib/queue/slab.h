/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Items of one size, as many as were declared. The memory is reserved at creation and becomes real
 * when an item is first used, so that a large bound costs nothing until it is reached. An item has
 * an id that is not given again to another soon: a late answer about a freed item finds nothing.
 */

#include <stdint.h>

struct slab {
	uint8_t *base;
	uint16_t *generations;
	uint32_t *free_next;
	uint32_t item_size, capacity;
	uint64_t inverse; /**< item_size = odd << shift, and inverse * odd = 1 (mod 2^64) */
	uint32_t shift;
	uint32_t fresh;	     /**< items below were used before */
	uint32_t free_first; /**< index + 1; 0 = none */
	uint32_t used;
};

/** 0 or -ENOMEM. */
int slab_init(struct slab *s, uint32_t item_size, uint32_t capacity);
void slab_fini(struct slab *s);
/** Zeroed; NULL when all are used. */
void *slab_get(struct slab *s);
void slab_put(struct slab *s, void *item);
/** 48 bits, never 0. */
uint64_t slab_id(const struct slab *s, const void *item);
/** NULL when that item was freed. */
void *slab_find(const struct slab *s, uint64_t id);

static inline uint32_t slab_index(const struct slab *s, const void *item)
{
	/* The division has no rest, so a multiplication does it. */
	return (uint32_t)(((uint64_t)((const uint8_t *)item - s->base) >> s->shift) * s->inverse);
}

/** Byte strings of up to 255 bytes, in four sizes. */
#define BLOB_CLASSES 4

struct blobs {
	struct slab slabs[BLOB_CLASSES];
	uint8_t nothing[1]; /**< the blob without bytes */
};

int blobs_init(struct blobs *b, uint32_t capacity);
void blobs_fini(struct blobs *b);
/** A copy; NULL when there is no room. `length` up to 255; 0 takes nothing and is not NULL. */
uint8_t *blob_get(struct blobs *b, const void *data, uint32_t length);
void blob_put(struct blobs *b, uint8_t *blob, uint32_t length);
