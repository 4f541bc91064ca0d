/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <base/log.h>
#include <base/units.h>

#include "ctl_docs.h"

/** A command, or an option of the command before it. */
static const struct entry {
	const char *words; /**< NULL: an option */
	const char *arguments, *short_name, *long_name, *help;
} table[] = {
#define RP_COMMAND(words, arguments, function, help) {words, arguments, "", "", help},
#define RP_OPTION(short_name, long_name, value, help) {NULL, value, short_name, long_name, help},
#include "../app/ringpostctl/commands.def"
};

#define TABLE_END (table + RP_ARRAY_SIZE(table))

/* ---- man page ---- */

/* scdoc takes a backslash before what it would read as markup. */
static void man_text(const char *text)
{
	for (; *text; text++) {
		if (strchr("_*\\<>#[]|~", *text))
			putchar('\\');
		putchar(*text);
	}
}

static void man_bold(const char *text)
{
	putchar('*');
	man_text(text);
	putchar('*');
}

static void man_option(const struct entry *o)
{
	fputs("\n\t", stdout);
	if (o->short_name[0])
		man_bold(o->short_name);
	if (o->short_name[0] && o->long_name[0])
		fputs(", ", stdout);
	if (o->long_name[0])
		man_bold(o->long_name);
	if (o->arguments[0]) {
		fputs(" _", stdout);
		man_text(o->arguments);
		fputs("_", stdout);
	}
	fputs("++\n\t", stdout);
	man_text(o->help);
	fputs("\n", stdout);
}

void ctl_man(void)
{
	fputs("ringpostctl(1)\n\n# NAME\n\nringpostctl - asks a ringpostd how it is\n\n"
	      "# SYNOPSIS\n\n*ringpostctl* [*--endpoint* _ADDRESS_] _COMMAND_\n\n"
	      "# DESCRIPTION\n\n"
	      "Calls the node's service ringpost.v1.Admin, which it serves to callers on the same host only:\n"
	      "on its client port, and on the unix socket of the knob admin\\_socket.\n\n"
	      "# OPTIONS\n\n*--endpoint* _ADDRESS_\n"
	      "\tHost:port or unix:/path of the node; localhost:2379 by default.\n\n"
	      "*--version*, *--help*\n\tPrint it and end. After a command, *--help* is about that one.\n\n"
	      "# COMMANDS\n",
		stdout);
	for (const struct entry *e = table; e < TABLE_END; e++) {
		if (!e->words) {
			man_option(e);
			continue;
		}
		fputs("\n", stdout);
		man_bold(e->words);
		if (e->arguments[0]) {
			fputs(" ", stdout);
			man_text(e->arguments);
		}
		fputs("\n\t", stdout);
		man_text(e->help);
		fputs("\n", stdout);
	}
	fputs("\n# JSON\n\n"
	      "Each answer has a _kind_ and a _version_, which changes when a member goes or changes its\n"
	      "meaning; new members may come. Ids of nodes are texts: 64 bits are no number for everybody.\n"
	      "\n# EXIT STATUS\n\n*0*\n\tdone\n\n"
	      "*1*\n\tthe node cannot be reached, or refused; the reason is on standard error\n\n"
	      "*2*\n\tusage\n\n# SEE ALSO\n\n*ringpostd*(8), *etcdctl*(1)\n",
		stdout);
}

/* ---- bash ---- */

/* What stands for the value, as the script's function offers it. */
static const char *kind_of(const char *value)
{
	return strstr(value, "FILE") ? "file" : strstr(value, "LEVEL") ? "level" : "none";
}

static void bash_commands(void)
{
	fputs("\tlocal commands=(", stdout);
	for (const struct entry *e = table; e < TABLE_END; e++)
		if (e->words)
			printf("%s'%s'", e == table ? "" : " ", e->words);
	fputs(")\n", stdout);
}

static void bash_options(const struct entry *e)
{
	fputs("\t\toptions='--help", stdout);
	for (const struct entry *o = e + 1; o < TABLE_END && !o->words; o++)
		printf("%s%s%s%s", o->short_name[0] ? " " : "", o->short_name,
			o->long_name[0] ? " " : "", o->long_name);
	fputs("'\n", stdout);
	printf("\t\targument=%s\n", kind_of(e->arguments));
	fputs("\t\tvalues='", stdout);
	for (const struct entry *o = e + 1; o < TABLE_END && !o->words; o++) {
		const char *names[] = {o->short_name, o->long_name};

		for (unsigned i = 0; i < 2 && o->arguments[0]; i++)
			if (names[i][0])
				printf(" %s:%s", names[i], kind_of(o->arguments));
	}
	fputs(" '\n", stdout);
}

static void bash_levels(void)
{
	static const enum rp_log_level levels[] = {
		RP_LOG_ERROR, RP_LOG_WARNING, RP_LOG_INFO, RP_LOG_DEBUG, RP_LOG_TRACE};

	fputs("\tlocal levels='", stdout);
	for (unsigned l = 0; l < RP_ARRAY_SIZE(levels); l++)
		printf("%s%s", l ? " " : "", rp_log_level_name(levels[l]));
	fputs("' subjects='", stdout);
	for (unsigned s = 0; s < RP_LOG_SUBJECT_COUNT; s++)
		printf("%s%s=", s ? " " : "", rp_log_subject_name((enum rp_log_subject)s));
	fputs("'\n", stdout);
}

void ctl_bash(void)
{
	fputs("# SPDX-License-Identifier: Apache-2.0\n"
	      "# Completion of ringpostctl for bash, made from the table of its commands.\n\n"
	      "_ringpostctl()\n{\n"
	      "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	      "\tlocal typed='' command='' options='--endpoint --help --version' argument=none values=' '\n"
	      "\tlocal i word kind offer=''\n",
		stdout);
	bash_commands();
	bash_levels();
	fputs("\tCOMPREPLY=()\n"
	      "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	      "\t\tword=${COMP_WORDS[i]}\n"
	      "\t\tif [[ $word == --endpoint ]]; then\n"
	      "\t\t\t((i++))\n"
	      "\t\t\t# An address comes in pieces: bash parts words at colons.\n"
	      "\t\t\twhile [[ ${COMP_WORDS[i+1]} == : ]]; do ((i += 2)); done\n"
	      "\t\telif [[ $word != -* && -z $command ]]; then\n"
	      "\t\t\ttyped+=\"${typed:+ }$word\"\n"
	      "\t\t\tfor word in \"${commands[@]}\"; do\n"
	      "\t\t\t\t[[ $word == \"$typed\" ]] && command=$typed\n"
	      "\t\t\tdone\n"
	      "\t\tfi\n"
	      "\tdone\n"
	      "\tcase $command in\n",
		stdout);
	for (const struct entry *e = table; e < TABLE_END; e++) {
		if (!e->words)
			continue;
		printf("\t'%s')\n", e->words);
		bash_options(e);
		fputs("\t\t;;\n", stdout);
	}
	fputs("\tesac\n"
	      "\tkind=$argument\n"
	      "\t[[ $values == *\" $prev:\"* ]] && kind=${values#*\" $prev:\"} && kind=${kind%% *} && options=''\n"
	      "\tif [[ -z $command && $cur != -* ]]; then\n"
	      "\t\tfor word in \"${commands[@]}\"; do\n"
	      "\t\t\tif [[ -z $typed ]]; then\n"
	      "\t\t\t\toffer+=\" ${word%% *}\"\n"
	      "\t\t\telif [[ $word == \"$typed \"* ]]; then\n"
	      "\t\t\t\tword=${word#\"$typed \"}\n"
	      "\t\t\t\toffer+=\" ${word%% *}\"\n"
	      "\t\t\tfi\n"
	      "\t\tdone\n"
	      "\telif [[ $cur == -* ]]; then\n"
	      "\t\toffer=$options\n"
	      "\telif [[ $kind == level ]]; then\n"
	      "\t\toffer=\"$levels $subjects\"\n"
	      "\t\t# Bash parts words at the equals sign, too.\n"
	      "\t\t[[ $cur == '=' || $prev == '=' ]] && offer=$levels && cur=${cur#=}\n"
	      "\t\tcompopt -o nospace 2>/dev/null\n"
	      "\telif [[ $kind == file ]]; then\n"
	      "\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n"
	      "\t\tcompopt -o filenames 2>/dev/null\n"
	      "\t\treturn\n"
	      "\tfi\n"
	      "\tCOMPREPLY=($(compgen -W \"$offer\" -- \"$cur\"))\n"
	      "}\n"
	      "complete -F _ringpostctl ringpostctl\n",
		stdout);
}
