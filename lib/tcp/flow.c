/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>
#include <base/lines.h>
#include <tcp/flow.h>

int flow_init(struct flow_table *f, uint32_t entries_max, const uint64_t secret[2])
{
	uint32_t slots = 64;

	while (slots < 2 * entries_max)
		slots *= 2;
	*f = (struct flow_table){.mask = slots - 1, .secret = {secret[0] | 1, secret[1] | 1}};
	f->slots = rp_lines_alloc(slots, sizeof(*f->slots));
	if (!f->slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < slots; i++)
		f->slots[i].index = FLOW_NONE;
	return 0;
}

void flow_free(struct flow_table *f)
{
	free(f->slots);
	f->slots = NULL;
}

static inline const struct flow_key *flow_key_of(const struct flow_table *f, uint32_t index)
{
	const uint8_t *p = index < f->split ? f->a + (size_t)index * f->a_stride
					    : f->b + (size_t)(index - f->split) * f->b_stride;

	return (const struct flow_key *)p;
}

uint32_t flow_find(const struct flow_table *f, const struct flow_key *key, uint32_t hash)
{
	/* Never full, so it ends at an empty slot. */
	for (uint32_t i = hash & f->mask;; i = (i + 1) & f->mask) {
		const struct flow_slot *s = &f->slots[i];

		if (s->index == FLOW_NONE)
			return FLOW_NONE;
		if (s->tag == hash && flow_key_equal(flow_key_of(f, s->index), key))
			return s->index;
	}
}

void flow_insert(struct flow_table *f, uint32_t hash, uint32_t index)
{
	uint32_t i = hash & f->mask;

	RP_ASSERT(f->count <= f->mask / 2);
	while (f->slots[i].index != FLOW_NONE)
		i = (i + 1) & f->mask;
	f->slots[i] = (struct flow_slot){.tag = hash, .index = index};
	f->count++;
}

static uint32_t flow_slot_of(const struct flow_table *f, uint32_t hash, uint32_t index)
{
	uint32_t i = hash & f->mask;

	while (f->slots[i].index != index) {
		RP_ASSERT(f->slots[i].index != FLOW_NONE);
		i = (i + 1) & f->mask;
	}
	return i;
}

void flow_remove(struct flow_table *f, uint32_t hash, uint32_t index)
{
	uint32_t hole = flow_slot_of(f, hash, index);

	for (uint32_t i = (hole + 1) & f->mask; f->slots[i].index != FLOW_NONE;
		i = (i + 1) & f->mask) {
		uint32_t home = f->slots[i].tag & f->mask;

		/* It may move back only where the hole is not before its home. */
		if (((i - home) & f->mask) >= ((i - hole) & f->mask)) {
			f->slots[hole] = f->slots[i];
			hole = i;
		}
	}
	f->slots[hole].index = FLOW_NONE;
	f->count--;
}

void flow_replace(struct flow_table *f, uint32_t hash, uint32_t from, uint32_t to)
{
	f->slots[flow_slot_of(f, hash, from)].index = to;
}
