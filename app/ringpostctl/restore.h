/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The part of `ringpostctl restore` that is about auth. */

#include <bolt/bolt.h>

#include "client.h"

struct Authpb__Role;
struct Authpb__User;

/** What a snapshot says of auth. Zero it first. */
struct restore_auth {
	struct Authpb__Role **roles;
	struct Authpb__User **users;
	size_t role_count, user_count;
	bool enabled, broken;
};

/** 0, or -errno and *why. */
int restore_auth_read(struct restore_auth *a, const struct rp_bolt_file *f, const char **why);
/** Into a node that has neither users nor roles; says what it did. 0 or 1, as call(). */
int restore_auth(struct client *c, const struct restore_auth *a);
void restore_auth_free(struct restore_auth *a);
