/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#define FILE_DEFAULT "config.yml"
#define FILE_BYTES_MAX (1u << 20)

void conf_note_unused(
	struct conf_loader *l, const char *name, const char *instead, struct conf_place place)
{
	size_t at = strlen(l->others);

	if (!l->others_seen)
		l->others_place = place;
	at += (size_t)snprintf(
		l->others + at, sizeof(l->others) - at, "%s%s", l->others_seen ? ", " : "", name);
	l->others_seen = true;
	if (instead && at < sizeof(l->others))
		snprintf(l->others + at, sizeof(l->others) - at, " (here: %s)", instead);
}

static void mark(struct conf_loader *l, struct conf_at at, struct conf_place place)
{
	struct conf_origin *o = conf_origin(l->conf, at);
	char path[128];

	o->kind = l->kind;
	o->line = place.line;
	o->column = place.column;
	if (at.entry->change == CONF_UNUSED && l->kind != CONF_FROM_DEFAULT) {
		conf_path(at, path, sizeof(path));
		conf_note_unused(l, path, NULL, place);
	}
}

/* What a user sees of a value that does not fit. */
static void say_bad_value(struct conf_loader *l, struct conf_at at, const char *text,
	struct conf_place place, const char *why)
{
	char path[128], expected[256];

	conf_path(at, path, sizeof(path));
	conf_expected(at.entry, expected, sizeof(expected));
	conf_say(l->report, RP_CONF_ERROR, place, path, "got \"%.64s\", expected %s%s%s", text,
		expected, why[0] ? ": " : "", why);
	conf_origin(l->conf, at)->bad = true;
}

/* The rule of the documents: a level that is none of the five logs critical messages only. */
static void set_log_level_critical(
	struct conf_loader *l, struct conf_at at, const char *text, struct conf_place place)
{
	char path[128];

	conf_path(at, path, sizeof(path));
	conf_say(l->report, RP_CONF_WARNING, place, path,
		"\"%.64s\" is not one of error, warning, info, debug and trace: critical messages only",
		text);
	*(enum rp_log_level *)conf_field(l->conf, at) = RP_LOG_CRIT;
	mark(l, at, place);
}

/* "a, b" as entries without the spaces around; an empty text is no entry. */
static void set_split(
	struct conf_loader *l, struct conf_at at, const char *text, struct conf_place place)
{
	bool splits = conf_type_info(at.entry->type)->shape == CONF_SPLIT;
	const char *items[256];
	struct conf_place places[256];
	char *copy = strdup(text), *save = NULL;
	unsigned count = 0;

	if (!copy) {
		l->conf->memory->out_of_memory = true;
		return;
	}
	for (char *p = splits ? strtok_r(copy, ",", &save) : copy; p;
		p = splits ? strtok_r(NULL, ",", &save) : NULL) {
		char *end;

		p += strspn(p, " \t\n");
		for (end = p + strlen(p); end > p && strchr(" \t\n", end[-1]);)
			*--end = '\0';
		if (*p == '\0')
			continue;
		if (count == RP_ARRAY_SIZE(items)) {
			say_bad_value(l, at, text, place, "more than 256 entries in one text");
			break;
		}
		places[count] = place;
		items[count++] = p;
	}
	conf_set_items(l, at, items, places, count, place);
	free(copy);
}

void conf_set(struct conf_loader *l, struct conf_at at, const char *text, struct conf_place place)
{
	char why[160];

	if (conf_is_list(at.entry)) {
		set_split(l, at, text, place);
		return;
	}
	if (conf_value_parse(
		    at.entry, text, conf_field(l->conf, at), l->conf->memory, why, sizeof(why)))
		mark(l, at, place);
	else if (at.entry->type == CONF_T_LOGLEVEL)
		set_log_level_critical(l, at, text, place);
	else
		say_bad_value(l, at, text, place, why);
}

void conf_set_items(struct conf_loader *l, struct conf_at at, const char *const *items,
	const struct conf_place *places, unsigned count, struct conf_place place)
{
	struct rp_conf_list *list = conf_field(l->conf, at);
	struct rp_conf_memory *m = l->conf->memory;
	/* A flag given again adds to what the first one began. */
	bool adds = l->kind == CONF_FROM_FLAG && conf_origin(l->conf, at)->kind == CONF_FROM_FLAG;
	struct rp_conf_list old = adds ? *list : (struct rp_conf_list){0};
	const char **merged = conf_items_new(m, old.count + count);
	unsigned n = old.count;

	if (!merged && old.count + count > 0)
		return;
	for (unsigned i = 0; i < old.count; i++)
		merged[i] = old.items[i];
	for (unsigned i = 0; i < count; i++) {
		if (conf_value_item_ok(at.entry, items[i]))
			merged[n++] = conf_text_copy(m, items[i], strlen(items[i]));
		else
			say_bad_value(l, at, items[i], places[i], "");
	}
	list->items = merged;
	list->count = n;
	mark(l, at, place);
}

static void set_default(struct conf_loader *l, struct conf_at at)
{
	struct conf_loader quiet = *l;
	unsigned errors = l->report->errors;

	quiet.kind = CONF_FROM_DEFAULT;
	if (conf_is_list(at.entry))
		*(struct rp_conf_list *)conf_field(l->conf, at) = (struct rp_conf_list){0};
	conf_set(&quiet, at, at.entry->text, (struct conf_place){"default", 0, 0});
	RP_ASSERT(l->report->errors == errors);
}

void conf_set_item_defaults(struct conf_loader *l, const struct conf_entry *list, unsigned index)
{
	for (unsigned i = 0; i < conf_item_entries_count; i++) {
		const struct conf_entry *e = &conf_item_entries[i];

		if (strcmp(e->section, list->item) == 0)
			set_default(l, conf_at_item(list, index, e));
	}
}

bool conf_list_add(struct conf_loader *l, const struct conf_entry *list, struct conf_place place)
{
	unsigned *count = conf_list_count(l->conf, list);
	char path[128];

	if (*count == list->bound) {
		conf_path((struct conf_at){.entry = list}, path, sizeof(path));
		conf_say(
			l->report, RP_CONF_ERROR, place, path, "more than %u entries", list->bound);
		return false;
	}
	conf_set_item_defaults(l, list, *count);
	for (unsigned i = 0; i < conf_item_entries_count; i++) {
		struct conf_origin *o =
			conf_origin(l->conf, conf_at_item(list, *count, &conf_item_entries[i]));

		o->line = place.line;
		o->column = place.column;
	}
	(*count)++;
	return true;
}

static void set_all_defaults(struct conf_loader *l)
{
	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];

		if (e->kind == CONF_KNOB)
			set_default(l, (struct conf_at){.entry = e});
	}
}

static void say_others(struct conf_loader *l)
{
	if (l->others_seen)
		conf_say(l->report, RP_CONF_WARNING, l->others_place, "", "known and not used: %s",
			l->others);
}

/* The whole file, at most FILE_BYTES_MAX; NULL with errno. */
static char *file_read(const char *path, size_t *length)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	int error = 0;

	if (!f)
		return NULL;
	text = malloc(FILE_BYTES_MAX + 1);
	if (!text) {
		error = ENOMEM;
	} else {
		*length = fread(text, 1, FILE_BYTES_MAX + 1, f);
		if (ferror(f))
			error = errno ? errno : EIO;
		else if (*length > FILE_BYTES_MAX)
			error = EFBIG;
	}
	fclose(f);
	if (error) {
		free(text);
		errno = error;
		return NULL;
	}
	return text;
}

static void load_file(struct conf_loader *l, const struct conf_flags *flags)
{
	const char *path = flags->file ? flags->file : FILE_DEFAULT;
	size_t length = 0;
	char *text = file_read(path, &length);

	if (text) {
		l->file = path;
		l->kind = CONF_FROM_FILE;
		l->conf->memory->file = strdup(path);
		conf_read_yaml(l, text, length);
		free(text);
	} else if (errno == ENOENT && !flags->file) {
		return;
	} else if (errno == ENOENT) {
		conf_say(l->report, RP_CONF_WARNING, (struct conf_place){path, 0, 0}, "",
			"no such file: flags and defaults stand");
	} else {
		conf_say(l->report, RP_CONF_ERROR, (struct conf_place){path, 0, 0}, "",
			"cannot be read: %s; expected a YAML file of at most 1 MiB",
			strerror(errno));
	}
}

static int load(const char *file, const void *text, size_t length, int argc, char *const argv[],
	struct rp_conf *conf, struct rp_conf_report *report)
{
	struct conf_loader l = {.conf = conf, .report = report, .file = file};
	struct conf_flags flags = {.request = RP_CONF_RUN};

	memset(conf, 0, sizeof(*conf));
	memset(report, 0, sizeof(*report));
	conf->memory = conf_memory_new();
	if (!conf->memory) {
		report->exit_code = RP_EXIT_CONF;
		return -ENOMEM;
	}
	set_all_defaults(&l);
	conf_flags_scan(&l, argc, argv, &flags);
	report->request = flags.request;
	if (report->errors == 0 &&
		(flags.request == RP_CONF_HELP || flags.request == RP_CONF_VERSION))
		return 0;
	if (text) {
		l.kind = CONF_FROM_FILE;
		conf->memory->file = strdup(file);
		conf_read_yaml(&l, text, length);
	} else {
		load_file(&l, &flags);
	}
	l.kind = CONF_FROM_FLAG;
	conf_flags_apply(&l, argc, argv);
	say_others(&l);
	conf_check(conf, report);
	if (conf->memory->out_of_memory) {
		report->exit_code = RP_EXIT_CONF;
		return -ENOMEM;
	}
	return report->errors ? -EINVAL : 0;
}

int rp_conf_load(int argc, char *const argv[], struct rp_conf *conf, struct rp_conf_report *report)
{
	return load("", NULL, 0, argc, argv, conf, report);
}

int rp_conf_load_text(const char *file, const void *text, size_t length, int argc,
	char *const argv[], struct rp_conf *conf, struct rp_conf_report *report)
{
	return load(file, text, length, argc, argv, conf, report);
}
