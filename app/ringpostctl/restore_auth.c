/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Users, roles and whether auth is on, of an etcd snapshot, into a running node that has none. By
 * the calls of the Auth service; passwords go as their bcrypt hashes.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/base64.h>

#include <authpb/auth.pb-c.h>
#include <etcdserverpb/auth.pb-c.h>

#include "restore.h"

#define AUTH(method) "/etcdserverpb.Auth/" method
/* Base64 of a bcrypt hash, and some more. */
#define HASH_TEXT_BYTES 256

static bool on_role(void *ctx, struct rp_span key, struct rp_span value)
{
	struct restore_auth *a = ctx;
	Authpb__Role *m = authpb__role__unpack(NULL, value.length, value.data);

	if (!m)
		return a->broken = true, false;
	a->roles = realloc(a->roles, (a->role_count + 1) * sizeof(*a->roles));
	if (!a->roles)
		abort();
	a->roles[a->role_count++] = m;
	return true;
}

static bool on_user(void *ctx, struct rp_span key, struct rp_span value)
{
	struct restore_auth *a = ctx;
	Authpb__User *m = authpb__user__unpack(NULL, value.length, value.data);

	if (!m)
		return a->broken = true, false;
	a->users = realloc(a->users, (a->user_count + 1) * sizeof(*a->users));
	if (!a->users)
		abort();
	a->users[a->user_count++] = m;
	return true;
}

static bool on_state(void *ctx, struct rp_span key, struct rp_span value)
{
	struct restore_auth *a = ctx;

	if (key.length == strlen("authEnabled") && memcmp(key.data, "authEnabled", key.length) == 0)
		a->enabled = value.length == 1 && value.data[0] == 1;
	return true;
}

int restore_auth_read(struct restore_auth *a, const struct rp_bolt_file *f, const char **why)
{
	static const struct {
		const char *bucket;
		bool (*fn)(void *ctx, struct rp_span key, struct rp_span value);
	} buckets[] = {{"authRoles", on_role}, {"authUsers", on_user}, {"auth", on_state}};

	for (size_t i = 0; i < RP_ARRAY_SIZE(buckets); i++) {
		int error = rp_bolt_each(f, buckets[i].bucket, buckets[i].fn, a, why);

		if (a->broken) {
			*why = "a user or role of it does not decode";
			return -EBADMSG;
		}
		if (error < 0 && error != -ENOENT)
			return error;
	}
	return 0;
}

void restore_auth_free(struct restore_auth *a)
{
	for (size_t i = 0; i < a->role_count; i++)
		authpb__role__free_unpacked(a->roles[i], NULL);
	for (size_t i = 0; i < a->user_count; i++)
		authpb__user__free_unpacked(a->users[i], NULL);
	free(a->roles);
	free(a->users);
}

/* The name, terminated; to be freed. */
static char *text_of(ProtobufCBinaryData b)
{
	char *text = strndup(b.len > 0 ? (const char *)b.data : "", b.len);

	if (!text)
		abort();
	return text;
}

static int call_empty(struct client *c, const char *path, const ProtobufCMessage *m)
{
	struct answer a;
	int rc = call(c, path, m, &a);

	free(a.data);
	return rc;
}

static int restore_role(struct client *c, const Authpb__Role *role)
{
	Etcdserverpb__AuthRoleAddRequest add = ETCDSERVERPB__AUTH_ROLE_ADD_REQUEST__INIT;
	Etcdserverpb__AuthRoleGrantPermissionRequest grant =
		ETCDSERVERPB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
	char *name = text_of(role->name);
	int rc;

	add.name = grant.name = name;
	rc = call_empty(c, AUTH("RoleAdd"), &add.base);
	for (size_t i = 0; rc == 0 && i < role->n_keypermission; i++) {
		/* etcd before 3.6 keeps ones without a key, which permit nothing. */
		if (role->keypermission[i]->key.len == 0)
			continue;
		grant.perm = role->keypermission[i];
		rc = call_empty(c, AUTH("RoleGrantPermission"), &grant.base);
	}
	free(name);
	return rc;
}

static int restore_user(struct client *c, const Authpb__User *user)
{
	Etcdserverpb__AuthUserAddRequest add = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;
	Etcdserverpb__AuthUserGrantRoleRequest grant =
		ETCDSERVERPB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
	Authpb__UserAddOptions no_password = AUTHPB__USER_ADD_OPTIONS__INIT;
	unsigned char hash[HASH_TEXT_BYTES];
	char *name = text_of(user->name);
	size_t length = 0;
	int rc;

	no_password.no_password = true;
	add.name = grant.user = name;
	add.options = user->options;
	/* One without a hash has none to log in with. */
	if (user->password.len == 0 || mbedtls_base64_encode(hash, sizeof(hash), &length,
					       user->password.data, user->password.len) != 0)
		add.options = &no_password;
	else
		add.hashedpassword = (char *)hash;
	rc = call_empty(c, AUTH("UserAdd"), &add.base);
	for (size_t i = 0; rc == 0 && i < user->n_roles; i++) {
		grant.role = user->roles[i];
		rc = call_empty(c, AUTH("UserGrantRole"), &grant.base);
	}
	free(name);
	return rc;
}

/* 1: it has users or roles; -1 after a failure. */
static int has_auth(struct client *c)
{
	Etcdserverpb__AuthUserListRequest users = ETCDSERVERPB__AUTH_USER_LIST_REQUEST__INIT;
	Etcdserverpb__AuthRoleListRequest roles = ETCDSERVERPB__AUTH_ROLE_LIST_REQUEST__INIT;
	Etcdserverpb__AuthUserListResponse *u = ask(c, AUTH("UserList"), &users.base,
		&etcdserverpb__auth_user_list_response__descriptor);
	Etcdserverpb__AuthRoleListResponse *r = ask(c, AUTH("RoleList"), &roles.base,
		&etcdserverpb__auth_role_list_response__descriptor);
	int has = u && r ? u->n_users + r->n_roles > 0 : -1;

	if (u)
		etcdserverpb__auth_user_list_response__free_unpacked(u, NULL);
	if (r)
		etcdserverpb__auth_role_list_response__free_unpacked(r, NULL);
	return has;
}

int restore_auth(struct client *c, const struct restore_auth *a)
{
	Etcdserverpb__AuthEnableRequest enable = ETCDSERVERPB__AUTH_ENABLE_REQUEST__INIT;
	int has, rc = 0;

	if (a->user_count + a->role_count == 0)
		return 0;
	has = has_auth(c);
	if (has != 0) {
		if (has > 0)
			printf("left out %zu users and %zu roles: the node has its own\n",
				a->user_count, a->role_count);
		return has > 0 ? 0 : 1;
	}
	for (size_t i = 0; rc == 0 && i < a->role_count; i++)
		rc = restore_role(c, a->roles[i]);
	for (size_t i = 0; rc == 0 && i < a->user_count; i++)
		rc = restore_user(c, a->users[i]);
	if (rc == 0 && a->enabled)
		rc = call_empty(c, AUTH("AuthEnable"), &enable.base);
	if (rc == 0)
		printf("restored %zu users and %zu roles; auth is %s\n", a->user_count,
			a->role_count, a->enabled ? "on" : "off");
	return rc;
}
