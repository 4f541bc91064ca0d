/* SPDX-License-Identifier: Apache-2.0 */

/* `config` and `reload`: the configuration of a running node, and its change. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <ringpost/v1/admin.pb-c.h>

#include "client.h"

int config(struct client *c)
{
	Ringpost__V1__ConfigRequest q = RINGPOST__V1__CONFIG_REQUEST__INIT;
	Ringpost__V1__ConfigReply *r;
	struct answer a;

	if (call(c, "/ringpost.v1.Admin/Config", &q.base, &a) != 0)
		return 1;
	r = ringpost__v1__config_reply__unpack(NULL, a.length, a.data);
	free(a.data);
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

int reload(struct client *c)
{
	Ringpost__V1__ReloadRequest q = RINGPOST__V1__RELOAD_REQUEST__INIT;
	Ringpost__V1__ReloadReply *r;
	struct answer a;
	int rc;

	if (call(c, "/ringpost.v1.Admin/Reload", &q.base, &a) != 0)
		return 1;
	r = ringpost__v1__reload_reply__unpack(NULL, a.length, a.data);
	free(a.data);
	if (!r)
		return 1;
	rc = print_reload(r);
	ringpost__v1__reload_reply__free_unpacked(r, NULL);
	return rc;
}
