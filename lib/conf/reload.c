/* SPDX-License-Identifier: Apache-2.0 */

/* A configuration that is read again while the node runs: what differs, and what of it may. */

#include "conf_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN "(hidden)"

struct compare {
	const struct rp_conf *running;
	struct rp_conf_report *report;	 /**< may be NULL */
	struct rp_conf_changes *changes; /**< may be NULL */
	unsigned ports_seen;		 /**< entries that both have */
	unsigned kept;
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

static void compare_one(struct rp_conf *next, struct conf_at at, void *arg)
{
	struct compare *k = arg;
	const struct conf_origin *origin = conf_origin(next, at);
	bool fixed = at.entry->change == CONF_FIXED;
	char path[128], *was, *is;

	if (at.entry->change == CONF_UNUSED)
		return;
	if (at.list && at.entry->change == CONF_FIXED && at.index >= k->ports_seen) {
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

unsigned rp_conf_keep_fixed(const struct rp_conf *running, struct rp_conf *next,
	struct rp_conf_report *report, struct rp_conf_changes *changes)
{
	struct compare k = {.running = running, .report = report, .changes = changes};
	struct rp_conf_report none = {0};
	struct conf_loader l = {.conf = next, .report = report ? report : &none};

	k.ports_seen = RP_MIN(running->ports_count, next->ports_count);
	if (running->ports_count != next->ports_count) {
		say_kept(&k, (struct conf_place){"", 0, 0}, "ports");
		change_add(&k, "ports", entries_text(running->ports_count),
			entries_text(next->ports_count), true);
		/* Entries that come back hold defaults, so the loop below sets all of them right.
		 */
		for (; next->ports_count < running->ports_count; next->ports_count++)
			conf_set_item_defaults(&l, conf_find("", "ports"), next->ports_count);
		next->ports_count = running->ports_count;
	}
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

void rp_conf_changes_free(struct rp_conf_changes *changes)
{
	for (unsigned i = 0; i < changes->count; i++)
		change_free(&changes->items[i]);
	free(changes->items);
	memset(changes, 0, sizeof(*changes));
}
