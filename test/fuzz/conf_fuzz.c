/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as a configuration file. What is taken must dump to a file that is taken, with the same
 * values; what is refused must say so.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <conf/conf.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void dump(const struct rp_conf *conf, char **text, size_t *length)
{
	FILE *f = open_memstream(text, length);

	RP_ASSERT(f);
	rp_conf_dump(conf, f);
	fclose(f);
}

/* Origins differ; values are what stands before " # ". */
static void cut_origins(char *text)
{
	char *to = text, *mark, *end;

	for (; *text; text = end) {
		end = strchr(text, '\n');
		end = end ? end + 1 : text + strlen(text);
		mark = NULL;
		for (char *c = text; c + 3 < end; c++) {
			if (memcmp(c, " # ", 3) == 0)
				mark = c;
		}
		memmove(to, text, (size_t)((mark ? mark : end) - text));
		to += (mark ? mark : end) - text;
	}
	*to = '\0';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rp_conf first, second;
	struct rp_conf_report r1, r2;
	char *argv[] = {(char *)"ringpostd"}, *d1, *d2;
	size_t l1, l2;
	int rc = rp_conf_load_text("in.yml", data, size, 1, argv, &first, &r1);

	RP_ASSERT((rc < 0) == (r1.errors > 0) && (rc < 0) == (r1.exit_code == RP_EXIT_CONF));
	if (rc == 0) {
		dump(&first, &d1, &l1);
		rc = rp_conf_load_text("dump.yml", d1, l1, 1, argv, &second, &r2);
		if (rc < 0)
			rp_conf_report_print(&r2, stderr);
		RP_ASSERT(rc == 0);
		dump(&second, &d2, &l2);
		cut_origins(d1);
		cut_origins(d2);
		RP_ASSERT(strcmp(d1, d2) == 0);
		free(d1);
		free(d2);
		rp_conf_free(&second);
		rp_conf_report_free(&r2);
	}
	rp_conf_free(&first);
	rp_conf_report_free(&r1);
	return 0;
}
