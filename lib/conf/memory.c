/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

struct rp_conf_memory *conf_memory_new(void)
{
	struct rp_conf_memory *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->origins = calloc(conf_slots_count(), sizeof(*m->origins));
	if (!m->origins) {
		free(m);
		return NULL;
	}
	return m;
}

static void *block_new(struct rp_conf_memory *m, size_t size)
{
	struct conf_block *b = calloc(1, sizeof(*b) + size);

	if (!b) {
		m->out_of_memory = true;
		return NULL;
	}
	b->next = m->blocks;
	m->blocks = b;
	return b + 1;
}

const char *conf_text_copy(struct rp_conf_memory *m, const char *text, size_t length)
{
	char *copy = length ? block_new(m, length + 1) : NULL;

	if (!copy)
		return "";
	memcpy(copy, text, length);
	return copy;
}

const char **conf_items_new(struct rp_conf_memory *m, unsigned count)
{
	return count ? block_new(m, count * sizeof(const char *)) : NULL;
}

void rp_conf_free(struct rp_conf *conf)
{
	struct rp_conf_memory *m = conf->memory;

	if (m) {
		for (struct conf_block *b = m->blocks, *next; b; b = next) {
			next = b->next;
			free(b);
		}
		free(m->origins);
		free(m->file);
		free(m);
	}
	memset(conf, 0, sizeof(*conf));
}

unsigned *conf_list_count(struct rp_conf *conf, const struct conf_entry *list)
{
	return (unsigned *)((char *)conf + list->count_offset);
}

void *conf_field(struct rp_conf *conf, struct conf_at at)
{
	char *base = (char *)conf;

	if (at.list)
		base += at.list->offset + at.index * at.list->item_size;
	return base + at.entry->offset;
}

struct conf_at conf_at_item(
	const struct conf_entry *list, unsigned index, const struct conf_entry *e)
{
	return (struct conf_at){.entry = e, .list = list, .index = index};
}

/* Slots: one a knob outside lists, in the table's order, then bound times item knobs for each list.
 */
static unsigned list_slots(const struct conf_entry *list)
{
	return list->bound * conf_item_entries_count;
}

unsigned conf_slots_count(void)
{
	unsigned n = conf_entries_count;

	for (unsigned i = 0; i < conf_entries_count; i++) {
		if (conf_entries[i].kind == CONF_LIST)
			n += list_slots(&conf_entries[i]);
	}
	return n;
}

struct conf_origin *conf_origin(const struct rp_conf *conf, struct conf_at at)
{
	unsigned slot = conf_entries_count;

	if (!at.list)
		return &conf->memory->origins[at.entry - conf_entries];
	for (const struct conf_entry *e = conf_entries; e < at.list; e++) {
		if (e->kind == CONF_LIST)
			slot += list_slots(e);
	}
	RP_ASSERT(at.index < at.list->bound);
	slot += at.index * conf_item_entries_count + (unsigned)(at.entry - conf_item_entries);
	return &conf->memory->origins[slot];
}

void conf_path(struct conf_at at, char *text, size_t size)
{
	const struct conf_entry *e = at.list ? at.list : at.entry;
	const char *dot = e->section[0] ? "." : "";

	if (at.list)
		snprintf(text, size, "%s%s%s[%u].%s", e->section, dot, e->name, at.index,
			at.entry->name);
	else
		snprintf(text, size, "%s%s%s", e->section, dot, e->name);
}

void conf_visit(struct rp_conf *conf,
	void (*visit)(struct rp_conf *conf, struct conf_at at, void *arg), void *arg)
{
	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];
		unsigned count = e->kind == CONF_LIST ? *conf_list_count(conf, e) : 0;

		if (e->kind == CONF_KNOB)
			visit(conf, (struct conf_at){.entry = e}, arg);
		for (unsigned n = 0; n < count; n++) {
			for (unsigned j = 0; j < conf_item_entries_count; j++) {
				const struct conf_entry *item = &conf_item_entries[j];

				if (strcmp(item->section, e->item) == 0)
					visit(conf, conf_at_item(e, n, item), arg);
			}
		}
	}
}
