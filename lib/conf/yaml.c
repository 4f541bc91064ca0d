/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/*
 * The file as a tree of libyaml, walked along the table: depth is that of the table, whatever
 * anchors and aliases the file holds.
 */

/* Of one mapping; the largest of the table has some thirty. */
#define KEYS_MAX 4096

struct reader {
	struct conf_loader *l;
	yaml_document_t doc;
};

static struct conf_place place_of(const struct reader *r, const yaml_node_t *n)
{
	return (struct conf_place){
		r->l->file, (unsigned)n->start_mark.line + 1, (unsigned)n->start_mark.column + 1};
}

static const char *kind_name(const yaml_node_t *n)
{
	return n->type == YAML_MAPPING_NODE    ? "a mapping"
	       : n->type == YAML_SEQUENCE_NODE ? "a sequence"
					       : "a scalar";
}

static const char *scalar(const yaml_node_t *n)
{
	return (const char *)n->data.scalar.value;
}

/* "key:" with nothing behind it, or null: the default stands. */
static bool is_null(const yaml_node_t *n)
{
	return n->type == YAML_SCALAR_NODE && n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (n->data.scalar.length == 0 || strcmp(scalar(n), "~") == 0 ||
		       strcasecmp(scalar(n), "null") == 0);
}

static bool text_ok(struct reader *r, const yaml_node_t *n, const char *path)
{
	if (strlen(scalar(n)) == n->data.scalar.length)
		return true;
	conf_say(r->l->report, RP_CONF_ERROR, place_of(r, n), path, "holds a zero byte");
	return false;
}

static void say_kind(struct reader *r, const yaml_node_t *n, const char *path, const char *expected)
{
	conf_say(r->l->report, RP_CONF_ERROR, place_of(r, n), path, "got %s, expected %s",
		kind_name(n), expected);
}

static void read_items(struct reader *r, struct conf_at at, const yaml_node_t *n, const char *path)
{
	unsigned count = (unsigned)(n->data.sequence.items.top - n->data.sequence.items.start);
	const char **items = calloc(count + 1, sizeof(*items));
	struct conf_place *places = calloc(count + 1, sizeof(*places));
	unsigned used = 0;

	for (unsigned i = 0; items && places && i < count; i++) {
		yaml_node_t *item =
			yaml_document_get_node(&r->doc, n->data.sequence.items.start[i]);

		if (item->type != YAML_SCALAR_NODE) {
			say_kind(r, item, path, "a text");
		} else if (text_ok(r, item, path)) {
			items[used] = scalar(item);
			places[used++] = place_of(r, item);
		}
	}
	if (items && places)
		conf_set_items(r->l, at, items, places, used, place_of(r, n));
	else
		r->l->conf->memory->out_of_memory = true;
	free(items);
	free(places);
}

/* [0, 1] as "0,1". */
static void read_joined(struct reader *r, struct conf_at at, const yaml_node_t *n, const char *path)
{
	char text[256] = "";
	size_t used = 0;

	for (yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
		i++) {
		const yaml_node_t *item = yaml_document_get_node(&r->doc, *i);

		if (item->type != YAML_SCALAR_NODE) {
			say_kind(r, item, path, "a scalar");
			return;
		}
		if (!text_ok(r, item, path))
			return;
		if (used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
				used ? "," : "", scalar(item));
	}
	conf_set(r->l, at, text, place_of(r, n));
}

static void read_knob(struct reader *r, struct conf_at at, const yaml_node_t *n)
{
	char path[128], expected[256];

	conf_path(at, path, sizeof(path));
	if (is_null(n))
		return;
	if (n->type == YAML_SEQUENCE_NODE && conf_is_list(at.entry)) {
		read_items(r, at, n, path);
	} else if (n->type == YAML_SEQUENCE_NODE &&
		   conf_type_info(at.entry->type)->shape == CONF_JOINED) {
		read_joined(r, at, n, path);
	} else if (n->type != YAML_SCALAR_NODE) {
		conf_expected(at.entry, expected, sizeof(expected));
		say_kind(r, n, path, expected);
	} else if (text_ok(r, n, path)) {
		conf_set(r->l, at, scalar(n), place_of(r, n));
	}
}

/* Reports a key that was there before in the same mapping; hyphens and underscores are one. */
static bool is_duplicate(struct reader *r, const yaml_node_t *mapping, const yaml_node_pair_t *pair,
	const char *path)
{
	const yaml_node_t *key = yaml_document_get_node(&r->doc, pair->key);

	for (const yaml_node_pair_t *p = mapping->data.mapping.pairs.start; p < pair; p++) {
		const yaml_node_t *k = yaml_document_get_node(&r->doc, p->key);
		const char *a = scalar(k), *b = scalar(key);

		if (k->type != YAML_SCALAR_NODE)
			continue;
		for (; *a && (*a == *b || (strchr("-_", *a) && *b && strchr("-_", *b))); a++)
			b++;
		if (*a || *b)
			continue;
		conf_say(r->l->report, RP_CONF_ERROR, place_of(r, key), path,
			"given twice, first in line %zu", k->start_mark.line + 1);
		return true;
	}
	return false;
}

static void say_unknown(struct reader *r, const yaml_node_t *key, const char *prefix,
	const char *section, bool is_item)
{
	char path[256], nearest[128];

	snprintf(path, sizeof(path), "%s%s%.64s", prefix, prefix[0] ? "." : "", scalar(key));
	conf_nearest(section, is_item, scalar(key), nearest, sizeof(nearest));
	conf_say(r->l->report, RP_CONF_ERROR, place_of(r, key), path,
		"unknown key, expected a key of %s%s%s%s", prefix[0] ? prefix : "the configuration",
		nearest[0] ? "; did you mean " : "", nearest, nearest[0] ? "?" : "");
}

/* The pairs of a mapping whose keys are sound, one by one; false at the end. */
static bool next_pair(struct reader *r, const yaml_node_t *mapping, const char *prefix,
	yaml_node_pair_t **pair, const yaml_node_t **key, const yaml_node_t **value)
{
	char path[256];

	/* Duplicates are looked for key by key, so their number is bounded. */
	if (!*pair &&
		mapping->data.mapping.pairs.top - mapping->data.mapping.pairs.start > KEYS_MAX) {
		conf_say(r->l->report, RP_CONF_ERROR, place_of(r, mapping), prefix,
			"more than %d keys in one mapping", KEYS_MAX);
		return false;
	}
	*pair = *pair ? *pair + 1 : mapping->data.mapping.pairs.start;
	for (; *pair < mapping->data.mapping.pairs.top; (*pair)++) {
		*key = yaml_document_get_node(&r->doc, (*pair)->key);
		*value = yaml_document_get_node(&r->doc, (*pair)->value);
		if ((*key)->type != YAML_SCALAR_NODE) {
			say_kind(r, *key, prefix, "a key");
			continue;
		}
		snprintf(path, sizeof(path), "%s%s%.64s", prefix, prefix[0] ? "." : "",
			scalar(*key));
		if (text_ok(r, *key, prefix) && !is_duplicate(r, mapping, *pair, path))
			return true;
	}
	return false;
}

static void read_list_item(
	struct reader *r, const struct conf_entry *list, unsigned index, const yaml_node_t *n)
{
	const yaml_node_t *key, *value;
	yaml_node_pair_t *pair = NULL;
	char prefix[64];

	snprintf(prefix, sizeof(prefix), "%s%s%s[%u]", list->section, list->section[0] ? "." : "",
		list->name, index);
	while (next_pair(r, n, prefix, &pair, &key, &value)) {
		const struct conf_entry *e = conf_item_find(list->item, scalar(key));

		if (e)
			read_knob(r, conf_at_item(list, index, e), value);
		else
			say_unknown(r, key, prefix, list->item, true);
	}
}

static void read_list(struct reader *r, const struct conf_entry *list, const yaml_node_t *n)
{
	char path[128];

	conf_path((struct conf_at){.entry = list}, path, sizeof(path));
	if (is_null(n))
		return;
	if (n->type != YAML_SEQUENCE_NODE) {
		say_kind(r, n, path, "a sequence of mappings");
		return;
	}
	for (yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
		i++) {
		const yaml_node_t *item = yaml_document_get_node(&r->doc, *i);

		if (item->type != YAML_MAPPING_NODE) {
			say_kind(r, item, path, "a mapping");
			continue;
		}
		if (!conf_list_add(r->l, list, place_of(r, item)))
			return;
		read_list_item(r, list, *conf_list_count(r->l->conf, list) - 1, item);
	}
}

static void read_section(struct reader *r, const struct conf_entry *section, const yaml_node_t *n)
{
	const yaml_node_t *key, *value;
	yaml_node_pair_t *pair = NULL;
	/* A scalar under a name that is etcd's too (metrics: basic) is etcd's. */
	const struct conf_other_key *other = conf_other_find(section->name);

	if (is_null(n))
		return;
	if (n->type == YAML_SCALAR_NODE && other) {
		conf_note_unused(r->l, other->name, other->instead, place_of(r, n));
		return;
	}
	if (n->type != YAML_MAPPING_NODE) {
		say_kind(r, n, section->name, "a mapping");
		return;
	}
	while (next_pair(r, n, section->name, &pair, &key, &value)) {
		const struct conf_entry *e = conf_find(section->name, scalar(key));

		if (!e)
			say_unknown(r, key, section->name, section->name, false);
		else if (e->kind == CONF_LIST)
			read_list(r, e, value);
		else
			read_knob(r, (struct conf_at){.entry = e}, value);
	}
}

static void read_top(struct reader *r, const yaml_node_t *n)
{
	const yaml_node_t *key, *value;
	yaml_node_pair_t *pair = NULL;

	if (is_null(n))
		return;
	if (n->type != YAML_MAPPING_NODE) {
		say_kind(r, n, "", "a mapping of knobs");
		return;
	}
	while (next_pair(r, n, "", &pair, &key, &value)) {
		const struct conf_entry *e = conf_find("", scalar(key));
		const struct conf_other_key *other = conf_other_find(scalar(key));

		if (e && e->kind == CONF_SECTION)
			read_section(r, e, value);
		else if (e && e->kind == CONF_LIST)
			read_list(r, e, value);
		else if (e)
			read_knob(r, (struct conf_at){.entry = e}, value);
		else if (other)
			conf_note_unused(r->l, other->name, other->instead, place_of(r, key));
		else
			say_unknown(r, key, "", "", false);
	}
}

/* libyaml gives a byte offset in place of a line for what is not UTF-8 or not printable. */
static void say_problem(
	struct conf_loader *l, const yaml_parser_t *p, const char *text, size_t length)
{
	struct conf_place place = {
		l->file, (unsigned)p->problem_mark.line + 1, (unsigned)p->problem_mark.column + 1};

	if (p->error == YAML_MEMORY_ERROR) {
		l->conf->memory->out_of_memory = true;
		return;
	}
	if (p->error == YAML_READER_ERROR) {
		size_t offset = RP_MIN(p->problem_offset, length);

		place.line = place.column = 1;
		for (size_t i = 0; i < offset; i++) {
			place.column = text[i] == '\n' ? 1 : place.column + 1;
			place.line += text[i] == '\n';
		}
	}
	conf_say(l->report, RP_CONF_ERROR, place, "", "not YAML: %s%s%s",
		p->problem ? p->problem : "cannot be parsed", p->context ? ", " : "",
		p->context ? p->context : "");
}

void conf_read_yaml(struct conf_loader *l, const void *text, size_t length)
{
	struct reader r = {.l = l};
	yaml_document_t second;
	yaml_parser_t parser;
	yaml_node_t *root;

	if (!yaml_parser_initialize(&parser)) {
		l->conf->memory->out_of_memory = true;
		return;
	}
	yaml_parser_set_input_string(&parser, text, length);
	if (!yaml_parser_load(&parser, &r.doc)) {
		say_problem(l, &parser, text, length);
		yaml_parser_delete(&parser);
		return;
	}
	root = yaml_document_get_root_node(&r.doc);
	if (root)
		read_top(&r, root);
	if (root && !yaml_parser_load(&parser, &second)) {
		say_problem(l, &parser, text, length);
	} else if (root) {
		const yaml_node_t *more = yaml_document_get_root_node(&second);

		if (more)
			conf_say(l->report, RP_CONF_ERROR, place_of(&r, more), "",
				"a second document, expected one");
		yaml_document_delete(&second);
	}
	yaml_document_delete(&r.doc);
	yaml_parser_delete(&parser);
}
