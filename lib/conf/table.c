/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <ctype.h>
#include <string.h>

#define FIXED CONF_FIXED
#define LIVE CONF_LIVE
#define UNUSED CONF_UNUSED

/* The place of a list: at the top or in its section. */
#define CONF_AT_top
#define CONF_AT_queues queues.
#define CONF_AT_tcp tcp.
#define CONF_SECTION_top ""
#define CONF_SECTION_queues "queues"
#define CONF_SECTION_tcp "tcp"

const struct conf_entry conf_entries[] = {
#define RP_TOP(n, t, u, d, lo, hi, l, h) \
	{CONF_KNOB, "", #n, u, d, h, CONF_T_##t, lo, hi, l, offsetof(struct rp_conf, n)},
#define RP_SECTION_BEGIN(s, h) \
	{.kind = CONF_SECTION, .section = "", .name = #s, .unit = "", .text = "", .help = h},
#define RP_KNOB(s, n, t, u, d, lo, hi, l, h) \
	{CONF_KNOB, #s, #n, u, d, h, CONF_T_##t, lo, hi, l, offsetof(struct rp_conf, s.n)},
#define RP_LIST(s, n, i, b, h)                                                   \
	{.kind = CONF_LIST,                                                      \
		.section = CONF_SECTION_##s,                                     \
		.name = #n,                                                      \
		.unit = "",                                                      \
		.text = "",                                                      \
		.help = h,                                                       \
		.offset = offsetof(struct rp_conf, CONF_AT_##s n),               \
		.item = #i,                                                      \
		.bound = b,                                                      \
		.count_offset = offsetof(struct rp_conf, CONF_AT_##s n##_count), \
		.item_size = sizeof(struct rp_conf_##i)},
#include <conf/knobs.def>
};
const unsigned conf_entries_count = RP_ARRAY_SIZE(conf_entries);

const struct conf_entry conf_item_entries[] = {
#define RP_ITEM(i, n, t, u, d, lo, hi, l, h) \
	{CONF_KNOB, #i, #n, u, d, h, CONF_T_##t, lo, hi, l, offsetof(struct rp_conf_##i, n)},
#include <conf/knobs.def>
};
const unsigned conf_item_entries_count = RP_ARRAY_SIZE(conf_item_entries);

#define CHOICE(upper, text) text,
#define RP_ENUM(type, tag, names) static const char *const tag##_choices[] = {names(CHOICE)};
#include <conf/types.def>

static const struct conf_type_info type_infos[CONF_T_COUNT] = {
#define RP_TYPE(type, ctype, shape, text) [CONF_T_##type] = {CONF_##shape, text, NULL, 0},
#define RP_ENUM(type, tag, names) \
	[CONF_T_##type] = {CONF_ONE, "", tag##_choices, RP_ARRAY_SIZE(tag##_choices)},
#include <conf/types.def>
};

static const struct conf_other_key other_keys[] = {
#define X(name, instead) {#name, instead},
#include <conf/other_keys.def>
#undef X
};

const struct conf_type_info *conf_type_info(enum conf_type type)
{
	return &type_infos[type];
}

/* A hyphen and an underscore are one in a key: etcd's files are written with hyphens. */
static bool name_is(const char *a, const char *b)
{
	for (; *a && *b; a++, b++) {
		if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
			return false;
	}
	return *a == *b;
}

const struct conf_entry *conf_find(const char *section, const char *name)
{
	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];

		if (strcmp(e->section, section) == 0 && name_is(e->name, name))
			return e;
	}
	return NULL;
}

const struct conf_entry *conf_item_find(const char *item, const char *name)
{
	for (unsigned i = 0; i < conf_item_entries_count; i++) {
		const struct conf_entry *e = &conf_item_entries[i];

		if (strcmp(e->section, item) == 0 && name_is(e->name, name))
			return e;
	}
	return NULL;
}

const struct conf_other_key *conf_other_find(const char *name)
{
	static const struct conf_other_key experimental = {"experimental-...", NULL};
	char head[14];

	snprintf(head, sizeof(head), "%s", name);
	if (name_is(head, "experimental_"))
		return &experimental;
	for (unsigned i = 0; i < RP_ARRAY_SIZE(other_keys); i++) {
		if (name_is(other_keys[i].name, name))
			return &other_keys[i];
	}
	return NULL;
}

#define NAME_MAX_COMPARED 64

/* Insertions, deletions, replacements and swaps of neighbours. */
unsigned conf_edit_distance(const char *a, const char *b)
{
	unsigned rows[3][NAME_MAX_COMPARED + 1], *two = rows[0], *one = rows[1], *row = rows[2];
	size_t a_length = strlen(a), b_length = strlen(b);

	if (a_length > NAME_MAX_COMPARED || b_length > NAME_MAX_COMPARED)
		return UINT32_MAX;
	for (size_t j = 0; j <= b_length; j++)
		one[j] = (unsigned)j;
	for (size_t i = 1; i <= a_length; i++) {
		unsigned *swap;

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= b_length; j++) {
			unsigned cost = a[i - 1] != b[j - 1];

			row[j] = RP_MIN(one[j - 1] + cost, RP_MIN(one[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = RP_MIN(row[j], two[j - 2] + 1);
		}
		swap = two;
		two = one;
		one = row;
		row = swap;
	}
	return one[b_length];
}

struct nearest {
	const char *name;
	unsigned distance, best;
	char *text;
	size_t size;
};

static void nearest_try(struct nearest *n, const struct conf_entry *e)
{
	unsigned distance = conf_edit_distance(n->name, e->name);

	if (distance >= n->best)
		return;
	n->best = distance;
	snprintf(n->text, n->size, "%s", e->name);
}

void conf_nearest(const char *section, bool is_item, const char *name, char *text, size_t size)
{
	struct nearest n = {.name = name, .text = text, .size = size};
	const struct conf_entry *table = is_item ? conf_item_entries : conf_entries;
	unsigned count = is_item ? conf_item_entries_count : conf_entries_count;

	text[0] = '\0';
	n.best = (unsigned)RP_MAX(strlen(name) / 3, 1u) + 1;
	for (unsigned i = 0; i < count; i++) {
		if (strcmp(table[i].section, section) == 0)
			nearest_try(&n, &table[i]);
	}
	/* A right name in the wrong place. */
	for (unsigned i = 0; text[0] == '\0' && i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];

		if (name_is(e->name, name))
			snprintf(text, size, "%s%s%s", e->section, e->section[0] ? "." : "",
				e->name);
	}
}
