/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* One argument of the command line, and the next where it is its value. */
struct flag {
	const char *name, *value; /**< without "--"; value NULL when there is none */
	size_t name_length;
	struct conf_at at; /**< entry NULL when it is no knob */
	bool indexed;
	const struct conf_other_key *other;
	bool taken_next;
};

static const struct {
	const char *name;
	enum rp_conf_request request;
} requests[] = {
	{"check-config", RP_CONF_CHECK},
	{"dump-config", RP_CONF_DUMP},
	{"dry-run", RP_CONF_DRY_RUN},
	{"version", RP_CONF_VERSION},
	{"help", RP_CONF_HELP},
};

static const struct conf_place at_flag = {"flag", 0, 0};

static void usage(struct conf_loader *l, const char *argument, const char *text, const char *more)
{
	conf_say(l->report, RP_CONF_ERROR, at_flag, argument, "%s%s", text, more);
	l->report->exit_code = RP_EXIT_USAGE;
}

static void to_flag(const char *section, const char *name, char *text, size_t size)
{
	snprintf(text, size, "%s%s%s", section, section[0] ? "-" : "", name);
	for (char *c = text; *c; c++) {
		if (*c == '_')
			*c = '-';
	}
}

void conf_flag_name(struct conf_at at, char *text, size_t size)
{
	const struct conf_entry *e = at.list ? at.list : at.entry;
	char head[64], tail[64] = "";

	to_flag(e->section, e->name, head, sizeof(head));
	if (at.list)
		to_flag("", at.entry->name, tail, sizeof(tail));
	snprintf(text, size, "--%s%s%s", head, at.list ? "-" : "", tail);
}

static bool name_is(const struct flag *f, const char *name)
{
	return strlen(name) == f->name_length && memcmp(name, f->name, f->name_length) == 0;
}

/* "ports-mtu" and "ports-0-mtu". */
static bool find_item(struct flag *f, const struct conf_entry *list)
{
	char name[128], head[64];
	const char *rest;
	unsigned long index = 0;

	to_flag(list->section, list->name, head, sizeof(head));
	if (f->name_length <= strlen(head) + 1 || memcmp(f->name, head, strlen(head)) != 0 ||
		f->name[strlen(head)] != '-')
		return false;
	rest = f->name + strlen(head) + 1;
	if (isdigit((unsigned char)*rest)) {
		char *end;

		index = strtoul(rest, &end, 10);
		if (*end != '-')
			return false;
		rest = end + 1;
		f->indexed = true;
	}
	for (unsigned i = 0; i < conf_item_entries_count; i++) {
		const struct conf_entry *e = &conf_item_entries[i];

		if (strcmp(e->section, list->item) != 0)
			continue;
		to_flag("", e->name, name, sizeof(name));
		if (strlen(name) == (size_t)(f->name + f->name_length - rest) &&
			memcmp(name, rest, strlen(name)) == 0) {
			f->at = conf_at_item(list, (unsigned)RP_MIN(index, 1000000ul), e);
			return true;
		}
	}
	return false;
}

static bool find_knob(struct flag *f)
{
	char name[128], copy[128];

	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];

		if (e->kind == CONF_LIST && find_item(f, e))
			return true;
		if (e->kind != CONF_KNOB)
			continue;
		to_flag(e->section, e->name, name, sizeof(name));
		if (name_is(f, name)) {
			f->at.entry = e;
			return true;
		}
	}
	if (f->name_length < sizeof(copy)) {
		memcpy(copy, f->name, f->name_length);
		copy[f->name_length] = '\0';
		f->other = conf_other_find(copy);
	}
	return f->other != NULL;
}

static const struct conf_entry *is_bool(const struct flag *f)
{
	return f->at.entry && f->at.entry->type == CONF_T_BOOL ? f->at.entry : NULL;
}

/* Takes "--name=value" or "--name value"; a switch may stand alone. */
static void take_value(struct flag *f, const char *next)
{
	bool boolean;

	if (f->value || !next)
		return;
	if (is_bool(f) && !conf_bool_parse(next, &boolean))
		return;
	if (f->other && next[0] == '-')
		return;
	if (strncmp(next, "--", 2) == 0)
		return;
	f->value = next;
	f->taken_next = true;
}

static struct flag split(const char *argument)
{
	struct flag f = {.name = argument + 2};
	const char *equal = strchr(f.name, '=');

	f.name_length = equal ? (size_t)(equal - f.name) : strlen(f.name);
	f.value = equal ? equal + 1 : NULL;
	return f;
}

/* The flag whose name is nearest to one that does not exist. */
static void nearest_flag(const struct flag *f, char *text, size_t size)
{
	char wanted[64], name[128];
	unsigned best = (unsigned)RP_MAX(f->name_length / 4, (size_t)1) + 1;

	text[0] = '\0';
	if (f->name_length >= sizeof(wanted))
		return;
	memcpy(wanted, f->name, f->name_length);
	wanted[f->name_length] = '\0';
	for (unsigned i = 0; i < conf_entries_count; i++) {
		unsigned distance;

		if (conf_entries[i].kind != CONF_KNOB)
			continue;
		conf_flag_name((struct conf_at){.entry = &conf_entries[i]}, name, sizeof(name));
		distance = conf_edit_distance(wanted, name + 2);
		if (distance < best) {
			best = distance;
			snprintf(text, size, "; did you mean %s?", name);
		}
	}
}

/* True when the argument was a request or --config. */
static bool scan_request(struct conf_loader *l, struct flag *f, const char *argument,
	const char *next, struct conf_flags *flags)
{
	if (name_is(f, "config")) {
		take_value(f, next);
		if (!f->value || !f->value[0])
			usage(l, argument, "needs a value, expected the path of a file", "");
		else if (flags->file)
			usage(l, argument, "given twice", "");
		flags->file = f->value;
		return true;
	}
	for (unsigned i = 0; i < RP_ARRAY_SIZE(requests); i++) {
		if (!name_is(f, requests[i].name))
			continue;
		if (f->value)
			usage(l, argument, "takes no value", "");
		if (flags->request != RP_CONF_RUN && flags->request != requests[i].request)
			usage(l, argument, "a second request, expected one at a time", "");
		flags->request = requests[i].request;
		return true;
	}
	return false;
}

void conf_flags_scan(struct conf_loader *l, int argc, char *const argv[], struct conf_flags *flags)
{
	for (int i = 1; i < argc; i++) {
		const char *next = i + 1 < argc ? argv[i + 1] : NULL;
		char nearest[160];
		struct flag f;

		if (strncmp(argv[i], "--", 2) != 0 || argv[i][2] == '\0') {
			usage(l, argv[i], "unexpected argument, expected --flag or --flag=value",
				"");
			continue;
		}
		f = split(argv[i]);
		if (!scan_request(l, &f, argv[i], next, flags)) {
			if (!find_knob(&f)) {
				nearest_flag(&f, nearest, sizeof(nearest));
				usage(l, argv[i], "unknown flag", nearest);
				/* Its value, if it has one, is not an error of its own. */
				if (!f.value && next && next[0] != '-')
					i++;
				continue;
			}
			take_value(&f, next);
			if (!f.value && !f.other && !is_bool(&f))
				usage(l, argv[i], "needs a value, as --flag=value", "");
		}
		i += f.taken_next;
	}
}

#define COUNTED_MAX (64)

/* How often each item flag without an index was seen: the n-th is for the n-th entry. */
struct seen {
	const struct conf_entry *list[COUNTED_MAX], *entry[COUNTED_MAX];
	unsigned times[COUNTED_MAX], count;
};

static unsigned seen_next(struct seen *s, struct conf_at at)
{
	for (unsigned i = 0; i < s->count; i++) {
		if (s->list[i] == at.list && s->entry[i] == at.entry)
			return ++s->times[i];
	}
	if (s->count < COUNTED_MAX) {
		s->list[s->count] = at.list;
		s->entry[s->count++] = at.entry;
	}
	return 0;
}

static void apply(struct conf_loader *l, struct flag *f, struct seen *seen)
{
	unsigned errors = l->report->errors;

	if (f->at.list) {
		unsigned count = *conf_list_count(l->conf, f->at.list);

		if (!f->indexed)
			f->at.index = seen_next(seen, f->at);
		if (f->at.index > count) {
			char name[160];

			snprintf(name, sizeof(name), "--%.*s", (int)f->name_length, f->name);
			conf_say(l->report, RP_CONF_ERROR, at_flag, name,
				"entry %u, expected at most %u: entries come without gaps",
				f->at.index, count);
			l->report->exit_code = RP_EXIT_USAGE;
			return;
		}
		if (f->at.index == count && !conf_list_add(l, f->at.list, at_flag)) {
			l->report->exit_code = RP_EXIT_USAGE;
			return;
		}
	}
	conf_set(l, f->at, f->value ? f->value : "true", at_flag);
	if (l->report->errors != errors)
		l->report->exit_code = RP_EXIT_USAGE;
}

void conf_flags_apply(struct conf_loader *l, int argc, char *const argv[])
{
	struct seen seen = {.count = 0};

	for (int i = 1; i < argc; i++) {
		const char *next = i + 1 < argc ? argv[i + 1] : NULL;
		struct flag f;

		if (strncmp(argv[i], "--", 2) != 0)
			continue;
		f = split(argv[i]);
		if (name_is(&f, "config")) {
			take_value(&f, next);
		} else if (find_knob(&f)) {
			take_value(&f, next);
			if (f.other)
				conf_note_unused(l, f.other->name, f.other->instead, at_flag);
			else if (f.value || is_bool(&f))
				apply(l, &f, &seen);
		}
		i += f.taken_next;
	}
}
