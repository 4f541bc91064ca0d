/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#include "slab.h"

/* Of an odd number; each step doubles the bits that are right, of which there are three at first.
 */
static uint64_t inverse_of(uint64_t odd)
{
	uint64_t x = odd;

	for (unsigned bits = 3; bits < 64; bits *= 2)
		x *= 2 - odd * x;
	return x;
}

int slab_init(struct slab *s, uint32_t item_size, uint32_t capacity)
{
	*s = (struct slab){.item_size = (item_size + 15) & ~15u, .capacity = capacity};
	s->shift = (uint32_t)__builtin_ctz(s->item_size);
	s->inverse = inverse_of(s->item_size >> s->shift);
	s->base = calloc(capacity, s->item_size);
	s->generations = calloc(capacity, sizeof(*s->generations));
	s->free_next = calloc(capacity, sizeof(*s->free_next));
	if (s->base && s->generations && s->free_next)
		return 0;
	slab_fini(s);
	return -ENOMEM;
}

void slab_fini(struct slab *s)
{
	free(s->base);
	free(s->generations);
	free(s->free_next);
	*s = (struct slab){0};
}

void *slab_get(struct slab *s)
{
	uint32_t index;
	void *item;

	if (s->free_first) {
		index = s->free_first - 1;
		s->free_first = s->free_next[index];
	} else if (s->fresh < s->capacity) {
		index = s->fresh++;
	} else {
		return NULL;
	}
	s->used++;
	item = s->base + (size_t)index * s->item_size;
	memset(item, 0, s->item_size);
	return item;
}

void slab_put(struct slab *s, void *item)
{
	uint32_t index = slab_index(s, item);

	RP_ASSERT(s->used > 0 && index < s->fresh);
	s->generations[index]++;
	s->free_next[index] = s->free_first;
	s->free_first = index + 1;
	s->used--;
}

uint64_t slab_id(const struct slab *s, const void *item)
{
	uint32_t index = slab_index(s, item);

	return (uint64_t)s->generations[index] << 32 | (index + 1);
}

void *slab_find(const struct slab *s, uint64_t id)
{
	uint32_t index = (uint32_t)id - 1;

	if ((uint32_t)id == 0 || index >= s->fresh || s->generations[index] != (uint16_t)(id >> 32))
		return NULL;
	return s->base + (size_t)index * s->item_size;
}

static const uint32_t blob_sizes[BLOB_CLASSES] = {32, 64, 128, 256};

static unsigned blob_class(uint32_t length)
{
	unsigned c = 0;

	while (blob_sizes[c] < length)
		c++;
	return c;
}

int blobs_init(struct blobs *b, uint32_t capacity)
{
	*b = (struct blobs){0};
	for (unsigned c = 0; c < BLOB_CLASSES; c++) {
		if (slab_init(&b->slabs[c], blob_sizes[c], capacity) < 0) {
			blobs_fini(b);
			return -ENOMEM;
		}
	}
	return 0;
}

void blobs_fini(struct blobs *b)
{
	for (unsigned c = 0; c < BLOB_CLASSES; c++)
		slab_fini(&b->slabs[c]);
}

uint8_t *blob_get(struct blobs *b, const void *data, uint32_t length)
{
	uint8_t *blob;

	RP_ASSERT(length <= 255);
	if (length == 0)
		return b->nothing;
	blob = slab_get(&b->slabs[blob_class(length)]);
	if (blob)
		memcpy(blob, data, length);
	return blob;
}

void blob_put(struct blobs *b, uint8_t *blob, uint32_t length)
{
	if (blob && length > 0)
		slab_put(&b->slabs[blob_class(length)], blob);
}
