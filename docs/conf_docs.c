/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes the pages that are made from tables of the code: conf_docs markdown|man|ctl-man|ctl-bash.
 */

#include <stdio.h>
#include <string.h>

#include <conf/conf.h>

#include "ctl_docs.h"

int main(int argc, char *argv[])
{
	if (argc == 2 && strcmp(argv[1], "markdown") == 0) {
		rp_conf_help_markdown(stdout);
	} else if (argc == 2 && strcmp(argv[1], "man") == 0) {
		rp_conf_help_man(stdout);
	} else if (argc == 2 && strcmp(argv[1], "ctl-man") == 0) {
		ctl_man();
	} else if (argc == 2 && strcmp(argv[1], "ctl-bash") == 0) {
		ctl_bash();
	} else {
		fprintf(stderr, "usage: conf_docs markdown|man|ctl-man|ctl-bash\n");
		return 2;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
