/* SPDX-License-Identifier: Apache-2.0 */

/* A configuration that is read again while the node runs: what differs, and what of it may. */

#include "conf_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#define HIDDEN "(hidden)"
#define LISTS_MAX 8

struct compare {
	const struct rp_conf *running;
	struct rp_conf_report *report;	 /**< may be NULL */
	struct rp_conf_changes *changes; /**< may be NULL */
	unsigned kept;
	/** Entries that both have, of each list. */
	const struct conf_entry *lists[LISTS_MAX];
	unsigned seen[LISTS_MAX], list_count;
};

/* conf_field() takes what it may write to; what is only read comes in here. */
static const void *field_of(const struct rp_conf *conf, struct conf_at at)
{
	return conf_field((struct rp_conf *)(uintptr_t)conf, at);
}

static char *value_text(const struct conf_entry *e, const void *field)
{
	char *text = NULL;
	size_t size;
	FILE *f;

	if (e->type == CONF_T_SECRET && (*(const char *const *)field)[0] != '\0')
		return strdup(HIDDEN);
	f = open_memstream(&text, &size);
	if (!f)
		return NULL;
	conf_value_print(e, field, f);
	fclose(f);
	return text;
}

static void change_free(struct rp_conf_change *c)
{
	free(c->path);
	free(c->was);
	free(c->is);
}

/* take: the texts. Out of memory the counts still tell. */
static void change_add(struct compare *k, const char *path, char *was, char *is, bool fixed)
{
	struct rp_conf_changes *list = k->changes;
	struct rp_conf_change c = {.path = strdup(path), .was = was, .is = is, .fixed = fixed};
	struct rp_conf_change *grown;

	k->kept += fixed;
	if (!list) {
		change_free(&c);
		return;
	}
	list->fixed += fixed;
	list->live += !fixed;
	grown = c.path && was && is ? realloc(list->items, (list->count + 1) * sizeof(c)) : NULL;
	if (!grown) {
		change_free(&c);
		return;
	}
	list->items = grown;
	list->items[list->count++] = c;
}

static void say_kept(struct compare *k, struct conf_place place, const char *path)
{
	if (k->report)
		conf_say(k->report, RP_CONF_WARNING, place, path,
			"cannot change in a running node, left as it is");
}

static void set_back(struct compare *k, struct rp_conf *next, struct conf_at at)
{
	conf_value_copy(at.entry, conf_field(next, at), field_of(k->running, at), next->memory);
	*conf_origin(next, at) = *conf_origin(k->running, at);
}

static void same(struct compare *k)
{
	if (k->changes)
		k->changes->same++;
}

static unsigned seen_of(const struct compare *k, const struct conf_entry *list)
{
	for (unsigned i = 0; i < k->list_count; i++)
		if (k->lists[i] == list)
			return k->seen[i];
	return 0;
}

static void compare_one(struct rp_conf *next, struct conf_at at, void *arg)
{
	struct compare *k = arg;
	const struct conf_origin *origin = conf_origin(next, at);
	bool fixed = at.entry->change == CONF_FIXED;
	char path[128], *was, *is;

	if (at.entry->change == CONF_UNUSED)
		return;
	if (at.list && fixed && at.index >= seen_of(k, at.list)) {
		/* An entry that came back has been told of with its list. */
		set_back(k, next, at);
		return;
	}
	if (conf_value_equal(at.entry, field_of(k->running, at), field_of(next, at))) {
		same(k);
		return;
	}
	was = value_text(at.entry, field_of(k->running, at));
	is = value_text(at.entry, field_of(next, at));
	/* What was resolved at start differs from "auto" written again, and is the same wish. */
	if (fixed && conf_origin(k->running, at)->resolved && is && strcmp(is, "auto") == 0) {
		same(k);
		free(was);
		free(is);
	} else {
		conf_path(at, path, sizeof(path));
		if (fixed)
			say_kept(k,
				(struct conf_place){
					origin->kind == CONF_FROM_FILE ? next->memory->file : "",
					origin->line, origin->column},
				path);
		change_add(k, path, was, is, fixed);
	}
	if (fixed)
		set_back(k, next, at);
}

static char *entries_text(unsigned count)
{
	char text[32];

	snprintf(text, sizeof(text), "%u entries", count);
	return strdup(text);
}

static bool list_is_fixed(const struct conf_entry *list)
{
	for (unsigned i = 0; i < conf_item_entries_count; i++)
		if (strcmp(conf_item_entries[i].section, list->item) == 0 &&
			conf_item_entries[i].change == CONF_FIXED)
			return true;
	return false;
}

/* How many entries a list has; what is in those that both have is compared one by one. */
static void compare_list(struct compare *k, struct rp_conf *next, const struct conf_entry *list)
{
	unsigned was = *conf_list_count((struct rp_conf *)(uintptr_t)k->running, list);
	unsigned *is = conf_list_count(next, list);
	struct rp_conf_report none = {0};
	struct conf_loader l = {.conf = next, .report = k->report ? k->report : &none};
	char path[128];

	RP_ASSERT(k->list_count < LISTS_MAX);
	k->lists[k->list_count] = list;
	k->seen[k->list_count++] = RP_MIN(was, *is);
	if (was == *is || !list_is_fixed(list))
		return;
	snprintf(path, sizeof(path), "%s%s%s", list->section, list->section[0] ? "." : "",
		list->name);
	say_kept(k, (struct conf_place){"", 0, 0}, path);
	change_add(k, path, entries_text(was), entries_text(*is), true);
	/* Entries that come back hold defaults, so that all of them are set right one by one. */
	for (; *is < was; ++*is)
		conf_set_item_defaults(&l, list, *is);
	*is = was;
}

unsigned rp_conf_keep_fixed(const struct rp_conf *running, struct rp_conf *next,
	struct rp_conf_report *report, struct rp_conf_changes *changes)
{
	struct compare k = {.running = running, .report = report, .changes = changes};

	for (unsigned i = 0; i < conf_entries_count; i++)
		if (conf_entries[i].kind == CONF_LIST)
			compare_list(&k, next, &conf_entries[i]);
	conf_visit(next, compare_one, &k);
	return k.kept;
}

/*
 * What is left of the new configuration and what stays of the old one must go together, too. Only
 * errors count: the warnings have been given.
 */
static void check_together(struct rp_conf *next, struct rp_conf_report *report)
{
	struct rp_conf_report again = {0};

	conf_check(next, &again);
	for (unsigned i = 0; i < again.count; i++) {
		const struct rp_conf_message *m = &again.messages[i];

		if (m->severity == RP_CONF_ERROR)
			conf_say(report, RP_CONF_ERROR,
				(struct conf_place){m->origin, m->line, m->column}, m->path,
				"%s (with what cannot change in a running node)", m->text);
	}
	rp_conf_report_free(&again);
}

int rp_conf_reload(const struct rp_conf *running, const struct rp_conf_source *source,
	struct rp_conf *next, struct rp_conf_report *report, struct rp_conf_changes *changes)
{
	int rc = rp_conf_load(source->argc, source->argv, next, report);

	memset(changes, 0, sizeof(*changes));
	/* At start a missing file is fine; in its absence all of it would go back to defaults. */
	if (next->memory && running->memory->file && !next->memory->file && report->errors == 0)
		conf_say(report, RP_CONF_ERROR, (struct conf_place){running->memory->file, 0, 0},
			"", "no such file, expected the one that this node was started with");
	if (rc != 0 || report->errors > 0)
		return rc ? rc : -EINVAL;
	rp_conf_keep_fixed(running, next, NULL, changes);
	check_together(next, report);
	if (next->memory->out_of_memory)
		return -ENOMEM;
	return report->errors > 0 ? -EINVAL : 0;
}

void rp_conf_changes_note(
	struct rp_conf_changes *changes, const char *path, const char *was, const char *is)
{
	struct compare k = {.changes = changes};

	if (changes->same > 0)
		changes->same--;
	change_add(&k, path, strdup(was), strdup(is), false);
}

void rp_conf_changes_free(struct rp_conf_changes *changes)
{
	for (unsigned i = 0; i < changes->count; i++)
		change_free(&changes->items[i]);
	free(changes->items);
	memset(changes, 0, sizeof(*changes));
}
