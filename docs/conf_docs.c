/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the pages that are made from tables of the code: conf_docs markdown|man|ctl-man.
 */

#include <stdio.h>
#include <string.h>

#include <base/units.h>
#include <conf/conf.h>

static const struct {
	const char *syntax, *help;
} commands[] = {
#define RP_COMMAND(syntax, help) {syntax, help},
#include "../app/ringpostctl/commands.def"
};

/* scdoc takes a backslash before what it would read as markup. */
static void man_text(const char *text)
{
	for (; *text; text++) {
		if (strchr("_*\\<>#[]|~", *text))
			putchar('\\');
		putchar(*text);
	}
}

static void ctl_man(void)
{
	fputs("ringpostctl(1)\n\n# NAME\n\nringpostctl - asks a ringpostd how it is\n\n"
	      "# SYNOPSIS\n\n*ringpostctl* [*--endpoint* _ADDRESS_] _COMMAND_\n\n"
	      "# DESCRIPTION\n\n"
	      "Calls the node's service ringpost.v1.Admin, which it serves to callers on the same host only:\n"
	      "on its client port, and on the unix socket of the knob admin\\_socket.\n\n"
	      "# OPTIONS\n\n*--endpoint* _ADDRESS_\n"
	      "\tHost:port or unix:/path of the node; localhost:2379 by default.\n\n"
	      "*--version*, *--help*\n\tPrint it and end.\n\n"
	      "# COMMANDS\n",
		stdout);
	for (size_t i = 0; i < RP_ARRAY_SIZE(commands); i++) {
		fputs("\n*", stdout);
		man_text(commands[i].syntax);
		fputs("*\n\t", stdout);
		man_text(commands[i].help);
		fputs("\n", stdout);
	}
	fputs("\n# EXIT STATUS\n\n*0*\n\tdone\n\n"
	      "*1*\n\tthe node cannot be reached, or refused; the reason is on standard error\n\n"
	      "*2*\n\tusage\n\n# SEE ALSO\n\n*ringpostd*(8), *etcdctl*(1)\n",
		stdout);
}

int main(int argc, char *argv[])
{
	if (argc == 2 && strcmp(argv[1], "markdown") == 0) {
		rp_conf_help_markdown(stdout);
	} else if (argc == 2 && strcmp(argv[1], "man") == 0) {
		rp_conf_help_man(stdout);
	} else if (argc == 2 && strcmp(argv[1], "ctl-man") == 0) {
		ctl_man();
	} else {
		fprintf(stderr, "usage: conf_docs markdown|man|ctl-man\n");
		return 2;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
