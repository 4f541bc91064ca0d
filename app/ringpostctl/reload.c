/* SPDX-License-Identifier: Apache-2.0 */

/* `config`, `reload` and `log`: the configuration of a running node, and its change. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <ringpost/v1/admin.pb-c.h>

#include "client.h"
#include "json.h"
#include "table.h"

int config(struct client *c, int argc, char **argv)
{
	Ringpost__V1__ConfigRequest q = RINGPOST__V1__CONFIG_REQUEST__INIT;
	Ringpost__V1__ConfigReply *r;
	struct options o;

	if (options_take(&o, "", 0, 0, argc, argv) != 0)
		return 2;
	r = ask(c, "/ringpost.v1.Admin/Config", &q.base, &ringpost__v1__config_reply__descriptor);
	if (!r)
		return 1;
	fputs(r->yaml, stdout);
	ringpost__v1__config_reply__free_unpacked(r, NULL);
	return 0;
}

static int print_reload(const Ringpost__V1__ReloadReply *r)
{
	for (size_t i = 0; i < r->n_messages; i++)
		fprintf(stderr, "%s\n", r->messages[i]);
	if (!r->done) {
		fprintf(stderr, "ringpostctl: nothing has changed\n");
		return 1;
	}
	for (size_t i = 0; i < r->n_changed; i++)
		printf("%s: %s -> %s\n", r->changed[i]->knob, r->changed[i]->was,
			r->changed[i]->is);
	for (size_t i = 0; i < r->n_kept; i++)
		printf("%s: %s stays, %s wants a restart\n", r->kept[i]->knob, r->kept[i]->was,
			r->kept[i]->is);
	printf("%zu changed, %zu want a restart, %" PRIu32 " as before\n", r->n_changed, r->n_kept,
		r->unchanged);
	return 0;
}

int reload(struct client *c, int argc, char **argv)
{
	Ringpost__V1__ReloadRequest q = RINGPOST__V1__RELOAD_REQUEST__INIT;
	Ringpost__V1__ReloadReply *r;
	struct options o;
	int rc;

	if (options_take(&o, "j", 0, 0, argc, argv) != 0)
		return 2;
	r = ask(c, "/ringpost.v1.Admin/Reload", &q.base, &ringpost__v1__reload_reply__descriptor);
	if (!r)
		return 1;
	if (o.json)
		rc = json_answer("ringpost.reload", &r->base) != 0 || !r->done;
	else
		rc = print_reload(r);
	ringpost__v1__reload_reply__free_unpacked(r, NULL);
	return rc;
}

int log_levels(struct client *c, int argc, char **argv)
{
	static const char *const heads[] = {"SUBJECT", "LEVEL", "CONFIGURED", NULL};
	Ringpost__V1__LogRequest q = RINGPOST__V1__LOG_REQUEST__INIT;
	Ringpost__V1__LogReply *r;
	struct options o;
	struct table t;
	int rc = 0;

	if (options_take(&o, "jr", 0, argc, argc, argv) != 0)
		return 2;
	q.reset = o.reset;
	q.n_set = (size_t)o.argc;
	q.set = o.argv;
	r = ask(c, "/ringpost.v1.Admin/Log", &q.base, &ringpost__v1__log_reply__descriptor);
	if (!r)
		return 1;
	table_init(&t, heads, 0);
	for (size_t i = 0; i < r->n_levels && !o.json; i++) {
		char(*row)[TABLE_CELL_SIZE] = table_row(&t);

		snprintf(row[0], TABLE_CELL_SIZE, "%s", r->levels[i]->subject);
		snprintf(row[1], TABLE_CELL_SIZE, "%s", r->levels[i]->level);
		snprintf(row[2], TABLE_CELL_SIZE, "%s", r->levels[i]->configured);
	}
	if (o.json)
		rc = json_answer("ringpost.log", &r->base);
	else
		table_print(&t);
	table_free(&t);
	ringpost__v1__log_reply__free_unpacked(r, NULL);
	return rc;
}
