/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the pages that are made from the table of knobs: conf_docs markdown|man.
 */

#include <stdio.h>
#include <string.h>

#include <conf/conf.h>

int main(int argc, char *argv[])
{
	if (argc == 2 && strcmp(argv[1], "markdown") == 0) {
		rp_conf_help_markdown(stdout);
	} else if (argc == 2 && strcmp(argv[1], "man") == 0) {
		rp_conf_help_man(stdout);
	} else {
		fprintf(stderr, "usage: conf_docs markdown|man\n");
		return 2;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
