/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A file that is wrong in every line is cut off here; the count goes on. */
#define MESSAGES_MAX 1000

static char *text_or_null(const char *text)
{
	return strdup(text ? text : "");
}

static void message_free(struct rp_conf_message *m)
{
	free(m->origin);
	free(m->path);
	free(m->text);
}

void conf_say(struct rp_conf_report *r, enum rp_conf_severity severity, struct conf_place place,
	const char *path, const char *format, ...)
{
	struct rp_conf_message m = {.severity = severity}, *grown;
	va_list args;

	if (severity == RP_CONF_ERROR) {
		r->errors++;
		if (r->exit_code == RP_EXIT_OK)
			r->exit_code = RP_EXIT_CONF;
	} else {
		r->warnings++;
	}
	if (r->count >= MESSAGES_MAX)
		return;
	m.line = place.line;
	m.column = place.column;
	m.origin = text_or_null(place.origin);
	m.path = text_or_null(path);
	va_start(args, format);
	if (vasprintf(&m.text, format, args) < 0)
		m.text = NULL;
	va_end(args);
	grown = realloc(r->messages, (r->count + 1) * sizeof(m));
	if (grown)
		r->messages = grown;
	/* Out of memory: the counts and the status still tell. */
	if (!grown || !m.origin || !m.path || !m.text) {
		message_free(&m);
		return;
	}
	r->messages[r->count++] = m;
}

void rp_conf_report_error(struct rp_conf_report *r, const char *path, const char *text)
{
	conf_say(r, RP_CONF_ERROR, (struct conf_place){"", 0, 0}, path, "%s", text);
}

int rp_conf_message_format(const struct rp_conf_message *m, char *text, size_t size)
{
	const char *severity = m->severity == RP_CONF_ERROR ? "error" : "warning";
	const char *colon = m->path[0] ? ": " : "";

	if (m->line > 0)
		return snprintf(text, size, "%s:%u:%u: %s: %s%s%s", m->origin, m->line, m->column,
			severity, m->path, colon, m->text);
	return snprintf(text, size, "%s%s%s: %s%s%s", m->origin, m->origin[0] ? ": " : "", severity,
		m->path, colon, m->text);
}

void rp_conf_report_print(const struct rp_conf_report *r, FILE *out)
{
	for (unsigned i = 0; i < r->count; i++) {
		char line[6144];

		rp_conf_message_format(&r->messages[i], line, sizeof(line));
		fprintf(out, "%s\n", line);
	}
	if (r->errors + r->warnings > r->count)
		fprintf(out, "and %u more\n", r->errors + r->warnings - r->count);
}

void rp_conf_report_free(struct rp_conf_report *r)
{
	for (unsigned i = 0; i < r->count; i++)
		message_free(&r->messages[i]);
	free(r->messages);
	memset(r, 0, sizeof(*r));
}
