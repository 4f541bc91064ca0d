/* SPDX-License-Identifier: Apache-2.0 */

/* What stands behind a command: its options, and what is wrong with them. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/units.h>

#include "client.h"

int bad_usage(const char *format, ...)
{
	va_list args;

	fputs("ringpostctl: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("\n", stderr);
	return 2;
}

static const struct {
	char letter;
	const char *short_name, *long_name;
} names[] = {{'j', "-j", "--json"}, {'l', "-l", "--long"}, {'x', "-x", "--exact"},
	{'r', "-r", "--reset"}, {'c', "", "--conn"}, {'s', "", "--sum"}, {'n', "-n", "--count"},
	{'d', "-d", "--delay"}, {'t', "", "--seconds"}};
/** Of them, those that take a value. */
static const char valued[] = "cndt";

/* Its letter; 0: none of `known` has that name. */
static char letter_of(const char *known, const char *a, size_t length)
{
	for (size_t n = 0; n < RP_ARRAY_SIZE(names); n++) {
		const char *longer = names[n].long_name;

		if (strchr(known, names[n].letter) &&
			((names[n].short_name[0] && strcmp(a, names[n].short_name) == 0) ||
				(strlen(longer) == length && memcmp(a, longer, length) == 0)))
			return names[n].letter;
	}
	return '\0';
}

static bool number_take(const char *text, uint32_t *number)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	*number = (uint32_t)n;
	return text[0] >= '0' && text[0] <= '9' && *end == '\0' && n > 0 && n <= UINT32_MAX;
}

static bool seconds_take(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	return end != text && *end == '\0' && *seconds >= 0 && *seconds < 1e9;
}

/* 0, or 2 having said why. */
static int value_take(struct options *o, char letter, char *value)
{
	if (letter == 'c' && !value)
		return bad_usage("--conn: a value is missing");
	if (letter == 'c')
		o->endpoint = value;
	else if (letter == 'n' && !number_take(value ? value : "", &o->count))
		return bad_usage("--count: \"%s\" is no number from 1 on", value ? value : "");
	else if (letter != 'n' &&
		 !seconds_take(value ? value : "", letter == 'd' ? &o->delay : &o->seconds))
		return bad_usage("--%s: \"%s\" is no number of seconds",
			letter == 'd' ? "delay" : "seconds", value ? value : "");
	return 0;
}

int options_take(struct options *o, const char *known, int least, int most, int argc, char **argv)
{
	*o = (struct options){.argv = argv, .delay = -1, .seconds = -1};
	for (int i = 0; i < argc; i++) {
		const char *a = argv[i], *equals = strchr(a, '=');
		size_t length = equals ? (size_t)(equals - a) : strlen(a);
		char letter;

		if (a[0] != '-') {
			argv[o->argc++] = argv[i];
			continue;
		}
		letter = letter_of(known, a, length);
		if (letter == '\0')
			return bad_usage("%s: no such option of this command", a);
		if (equals && !strchr(valued, letter))
			return bad_usage("%.*s: takes no value", (int)length, a);
		o->json |= letter == 'j';
		o->details |= letter == 'l';
		o->exact |= letter == 'x';
		o->reset |= letter == 'r';
		o->sum |= letter == 's';
		if (!strchr(valued, letter))
			continue;
		if (value_take(o, letter,
			    equals	   ? argv[i] + length + 1
			    : i + 1 < argc ? argv[++i]
					   : NULL) != 0)
			return 2;
	}
	if (o->argc > most)
		return bad_usage("unexpected argument \"%s\"", o->argv[most]);
	if (o->argc < least || (least > 0 && o->argv[0][0] == '\0'))
		return bad_usage("an argument is missing");
	return 0;
}

unsigned text_distance(const char *a, const char *b)
{
	unsigned row[64];
	size_t n = strlen(b);

	if (n >= RP_ARRAY_SIZE(row))
		return UINT32_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; a[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= n; j++) {
			unsigned change = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = RP_MIN(RP_MIN(row[j] + 1, row[j - 1] + 1), change);
		}
	}
	return row[n];
}
