/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/units.h>

#include "script.h"

void script_fail(struct script *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(s->message, sizeof(s->message), format, args);
	va_end(args);
	longjmp(s->failed, 1);
}

void script_defer(struct script *s, const char *format, ...)
{
	va_list args;

	if (s->message[0])
		return;
	va_start(args, format);
	vsnprintf(s->message, sizeof(s->message), format, args);
	va_end(args);
}

void script_settle(struct script *s)
{
	if (s->message[0])
		longjmp(s->failed, 1);
}

void script_trace(struct script *s, const char *format, ...)
{
	char *line = s->trace[s->trace_count++ % RP_ARRAY_SIZE(s->trace)];
	uint64_t us = s->rig ? (s->rig->now_ns - s->start_ns) / 1000 : 0;
	va_list args;
	int n = snprintf(line, sizeof(s->trace[0]), "%6llu.%03llu ms  ",
		(unsigned long long)us / 1000, (unsigned long long)us % 1000);

	va_start(args, format);
	vsnprintf(line + n, sizeof(s->trace[0]) - (size_t)n, format, args);
	va_end(args);
}

bool script_load(struct script *s, const char *path)
{
	FILE *f = fopen(path, "r");
	long size;
	char *p;

	if (!f)
		return false;
	fseek(f, 0, SEEK_END);
	size = ftell(f);
	rewind(f);
	s->path = path;
	s->text = calloc(1, (size_t)size + 1);
	if (!s->text || fread(s->text, 1, (size_t)size, f) != (size_t)size) {
		fclose(f);
		return false;
	}
	fclose(f);
	for (p = s->text; *p && s->line_count < LINES_MAX;) {
		char *end = strchr(p, '\n');

		s->lines[s->line_count++] = p;
		if (!end)
			break;
		*end = '\0';
		p = end + 1;
	}
	return s->line_count < LINES_MAX;
}

void script_tokens(struct script *s, const char *line)
{
	char *p = s->tokens_text;

	s->token_count = s->next = 0;
	snprintf(s->tokens_text, sizeof(s->tokens_text), "%s", line);
	for (;;) {
		char *end;

		while (isspace((unsigned char)*p))
			p++;
		/* `#` and a digit is a flow, else a comment. */
		if (!*p || (*p == '#' && !isdigit((unsigned char)p[1])))
			return;
		if (s->token_count == TOKENS_MAX)
			script_fail(s, "too many words");
		s->token[s->token_count++] = p;
		end = p;
		if (*p == '<' && p[1] && !isspace((unsigned char)p[1])) {
			end = strchr(p, '>');
			if (!end)
				script_fail(s, "no end of the options");
			end++;
		} else {
			while (*end && !isspace((unsigned char)*end))
				end++;
		}
		if (!*end)
			return;
		*end = '\0';
		p = end + 1;
	}
}

const char *script_peek(const struct script *s)
{
	return s->next < s->token_count ? s->token[s->next] : NULL;
}

const char *script_take(struct script *s)
{
	if (s->next == s->token_count)
		script_fail(s, "something is missing at the end");
	return s->token[s->next++];
}

bool script_word(struct script *s, const char *word)
{
	if (!script_peek(s) || strcmp(script_peek(s), word) != 0)
		return false;
	s->next++;
	return true;
}

/* Numbers. */

struct reader {
	struct script *script;
	const char *p, *whole;
};

static int64_t read_sum(struct reader *r);

static int64_t read_unit(struct reader *r, double number, bool integer, int64_t value)
{
	static const struct {
		const char *name;
		double factor;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"k", 1024}};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(units); i++) {
		size_t n = strlen(units[i].name);

		if (strncmp(r->p, units[i].name, n) == 0 && !isalnum((unsigned char)r->p[n])) {
			r->p += n;
			return integer ? value * (int64_t)units[i].factor
				       : (int64_t)(number * units[i].factor + 0.5);
		}
	}
	if (!integer)
		script_fail(r->script, "%s: a fraction needs a unit", r->whole);
	return value;
}

static int64_t read_atom(struct reader *r)
{
	char name[16];
	size_t n = 0;

	if (*r->p == '-') {
		r->p++;
		return -read_atom(r);
	}
	if (*r->p == '(') {
		int64_t v;

		r->p++;
		v = read_sum(r);
		if (*r->p != ')')
			script_fail(r->script, "%s: no end of the parenthesis", r->whole);
		r->p++;
		return v;
	}
	if (isdigit((unsigned char)*r->p)) {
		char *end;
		int64_t v = strtoll(r->p, &end, 0);
		double d = v;
		bool integer = *end != '.' || end[1] == '.';

		if (!integer)
			d = strtod(r->p, &end);
		r->p = end;
		return read_unit(r, d, integer, v);
	}
	while ((isalnum((unsigned char)r->p[n]) || r->p[n] == '_') && n + 1 < sizeof(name)) {
		name[n] = r->p[n];
		n++;
	}
	name[n] = '\0';
	for (unsigned i = r->script->var_count; n > 0 && i-- > 0;) {
		if (strcmp(r->script->vars[i].name, name) == 0) {
			r->p += n;
			return r->script->vars[i].value;
		}
	}
	script_fail(r->script, "%s: not a number", r->whole);
}

static int64_t read_product(struct reader *r)
{
	int64_t v = read_atom(r);

	for (;;) {
		char op = *r->p;
		int64_t w;

		if (op != '*' && op != '/')
			return v;
		r->p++;
		w = read_atom(r);
		if (op == '/' && w == 0)
			script_fail(r->script, "%s: division by zero", r->whole);
		v = op == '*' ? v * w : v / w;
	}
}

static int64_t read_sum(struct reader *r)
{
	int64_t v = read_product(r);

	for (;;) {
		char op = *r->p;
		int64_t w;

		if (op != '+' && op != '-')
			return v;
		r->p++;
		w = read_product(r);
		v = op == '+' ? v + w : v - w;
	}
}

int64_t script_number(struct script *s, const char *text)
{
	struct reader r = {s, text, text};
	int64_t v = read_sum(&r);

	if (*r.p)
		script_fail(s, "%s: not a number", text);
	return v;
}

int64_t script_take_number(struct script *s)
{
	return script_number(s, script_take(s));
}

void script_let(struct script *s, const char *name, int64_t value)
{
	for (unsigned i = 0; i < s->var_count; i++) {
		if (strcmp(s->vars[i].name, name) == 0) {
			s->vars[i].value = value;
			return;
		}
	}
	if (s->var_count == VARS_MAX || strlen(name) >= sizeof(s->vars[0].name))
		script_fail(s, "%s: too many names, or too long", name);
	snprintf(s->vars[s->var_count].name, sizeof(s->vars[0].name), "%s", name);
	s->vars[s->var_count++].value = value;
}
