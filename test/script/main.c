/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "script.h"

/* Runs the scripts named, or those (*.tcp) in and below the folders named. */

#define PATHS_MAX 4096

static char *paths[PATHS_MAX];
static unsigned path_count;

static int is_wanted(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

static void add_path(const char *path)
{
	struct dirent **entries;
	struct stat st;
	size_t length = strlen(path);
	int n;

	if (stat(path, &st)) {
		perror(path);
		exit(2);
	}
	if (!S_ISDIR(st.st_mode)) {
		if (length > 4 && strcmp(path + length - 4, ".tcp") == 0 && path_count < PATHS_MAX)
			paths[path_count++] = strdup(path);
		return;
	}
	n = scandir(path, &entries, is_wanted, alphasort);
	for (int i = 0; i < n; i++) {
		char full[4096];

		snprintf(full, sizeof(full), "%s/%s", path, entries[i]->d_name);
		add_path(full);
		free(entries[i]);
	}
	free(entries);
}

int main(int argc, char **argv)
{
	unsigned failed = 0, checks = 0;

	if (argc < 2) {
		fprintf(stderr, "usage: %s FILE|FOLDER...\n", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++)
		add_path(argv[i]);
	if (path_count == 0) {
		fprintf(stderr, "no script there\n");
		return 2;
	}
	if (rig_eal(96)) {
		fprintf(stderr, "EAL does not start\n");
		return 2;
	}
	for (unsigned i = 0; i < path_count; i++) {
		struct script *s = calloc(1, sizeof(*s));
		const char *report;

		if (!s || !script_load(s, paths[i])) {
			fprintf(stderr, "%s: cannot be read\n", paths[i]);
			return 2;
		}
		report = script_run(s);
		if (report) {
			failed++;
			fputs(report, stderr);
		}
		checks += s->checks;
		free(s);
		free(paths[i]);
	}
	printf("%u scripts, %u checks, %u failed\n", path_count, checks, failed);
	return failed > 0;
}
