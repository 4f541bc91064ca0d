/* SPDX-License-Identifier: Apache-2.0 */
/* Users of the Auth service (spec/etcd-semantics.md section 11). */
#include <stdlib.h>
#include <string.h>

#include <mbedtls/base64.h>
#include <etcdserverpb/auth.pb-c.h>

#include "auth_service_priv.h"

/* ---- passwords ---- */

/* A hash that came from the client, base64 of what bcrypt gives; NULL when it is none. */
static const char *hash_given(struct etcd_call *c, const char *base64)
{
	size_t length = strlen(base64), n = 0;
	char *hash = etcd_arena_get(&c->arena, length + 1);

	if (mbedtls_base64_decode((unsigned char *)hash, length, &n, (const unsigned char *)base64,
		    length) != 0 ||
		n != 60 || hash[0] != '$' || hash[1] != '2' || memchr(hash, 0, n))
		return NULL;
	return hash;
}

/* Ends in `done` with c->hash set; or in an error. */
static void hash_then(struct etcd_call *c, const char *password, const char *given,
	auth_hashed_fn hashed, void (*go)(struct etcd_call *c))
{
	struct rp_etcd *e = c->e;
	uint32_t cost = e->config.bcrypt_cost ? e->config.bcrypt_cost : AUTH_COST;

	if (password[0] == '\0' && given[0] != '\0') {
		c->hash = hash_given(c, given);
		if (c->hash)
			go(c);
		else
			etcd_call_fail(c, RP_GRPC_INVALID_ARGUMENT,
				"etcdserver: hashedPassword is not the base64 of a bcrypt hash");
	} else if (!auth_hasher_make(e->auth->hasher, password, cost, c->node.key, hashed)) {
		etcd_call_fail(c, RP_GRPC_RESOURCE_EXHAUSTED, AUTH_TEXT_TOO_MANY);
	}
}

/* The call that waited for its hash, or NULL. */
static struct etcd_call *hashed_call(struct rp_etcd *e, uint64_t token, const char *hash)
{
	struct etcd_call *c = etcd_call_find(e, token);
	char *copy;

	if (!c)
		return NULL;
	if (hash[0] == '\0') {
		etcd_call_fail(c, RP_GRPC_INTERNAL, "etcdserver: the password cannot be hashed");
		return NULL;
	}
	copy = etcd_arena_get(&c->arena, strlen(hash) + 1);
	memcpy(copy, hash, strlen(hash));
	c->hash = copy;
	return c;
}

/* ---- users ---- */

static void user_add(struct etcd_call *c)
{
	const Etcdserverpb__AuthUserAddRequest *r = (const void *)c->request;
	Authpb__User m = AUTHPB__USER__INIT;
	struct auth_change d;

	if (auth_user_find(c->e->auth, r->name)) {
		auth_refuse(c, AUTH_TEXT_USER_THERE);
		return;
	}
	d = auth_change_begin(c, AUTH_CHANGES_MAX);
	m.name = auth_text(r->name);
	m.options = r->options;
	if (c->hash)
		m.password = auth_text(c->hash);
	auth_change_user(&d, &m);
	auth_change_propose(&d, true);
}

static void user_add_hashed(struct rp_etcd *e, uint64_t token, const char *hash, bool matches)
{
	struct etcd_call *c = hashed_call(e, token, hash);

	if (c)
		user_add(c);
}

AUTH_HANDLER(user_add, AuthUserAddRequest, auth_user_add_request, true)
{
	if (r->name[0] == '\0')
		auth_refuse(c, AUTH_TEXT_USER_EMPTY);
	else if (auth_user_find(e->auth, r->name))
		auth_refuse(c, AUTH_TEXT_USER_THERE);
	else if (r->options && r->options->no_password)
		user_add(c);
	else
		hash_then(c, r->password, r->hashedpassword, user_add_hashed, user_add);
}

static void user_change_password(struct etcd_call *c)
{
	const Etcdserverpb__AuthUserChangePasswordRequest *r = (const void *)c->request;
	struct auth_user *u = auth_user_find(c->e->auth, r->name);
	Authpb__User m;
	struct auth_change d;

	if (!u) {
		auth_refuse(c, AUTH_TEXT_USER_NONE);
		return;
	}
	d = auth_change_begin(c, AUTH_CHANGES_MAX);
	m = *u->m;
	if (!m.options || !m.options->no_password)
		m.password = auth_text(c->hash);
	auth_change_user(&d, &m);
	auth_change_propose(&d, true);
}

static void password_hashed(struct rp_etcd *e, uint64_t token, const char *hash, bool matches)
{
	struct etcd_call *c = hashed_call(e, token, hash);

	if (c)
		user_change_password(c);
}

AUTH_HANDLER(user_change_password, AuthUserChangePasswordRequest, auth_user_change_password_request,
	true)
{
	if (!auth_user_find(e->auth, r->name))
		auth_refuse(c, AUTH_TEXT_USER_NONE);
	else
		hash_then(c, r->password, r->hashedpassword, password_hashed, user_change_password);
}

AUTH_HANDLER(user_get, AuthUserGetRequest, auth_user_get_request, false)
{
	Etcdserverpb__AuthUserGetResponse m = ETCDSERVERPB__AUTH_USER_GET_RESPONSE__INIT;
	struct rp_etcd_caller caller;
	const char *message = NULL;
	struct auth_user *u;
	int code;

	caller = etcd_caller_of(e, c->call);
	code = etcd_auth_require(e, &caller, true, &message);
	u = auth_user_find(e->auth, r->name);
	/* Everybody may look at himself. */
	if (code == RP_GRPC_PERMISSION_DENIED && caller.user && strcmp(caller.user, r->name) == 0)
		code = RP_GRPC_OK;
	if (code != RP_GRPC_OK) {
		etcd_call_fail(c, code, message);
	} else if (!u) {
		auth_refuse(c, AUTH_TEXT_USER_NONE);
	} else {
		m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
		m.roles = u->m->roles;
		m.n_roles = u->m->n_roles;
		etcd_call_reply(c, &m.base);
	}
}

AUTH_HANDLER(user_list, AuthUserListRequest, auth_user_list_request, false)
{
	Etcdserverpb__AuthUserListResponse m = ETCDSERVERPB__AUTH_USER_LIST_RESPONSE__INIT;

	m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
	m.users = etcd_arena_get(&c->arena, e->auth->user_count * sizeof(m.users[0]));
	for (uint32_t i = 0; i < e->auth->user_count; i++)
		m.users[m.n_users++] = auth_name_in(&c->arena, e->auth->users[i]->m->name);
	etcd_call_reply(c, &m.base);
}

AUTH_HANDLER(user_delete, AuthUserDeleteRequest, auth_user_delete_request, true)
{
	struct auth_change d;

	if (e->auth->enabled && strcmp(r->name, AUTH_ROOT) == 0) {
		auth_refuse(c, AUTH_TEXT_MANAGEMENT);
	} else if (!auth_user_find(e->auth, r->name)) {
		auth_refuse(c, AUTH_TEXT_USER_NONE);
	} else {
		d = auth_change_begin(c, AUTH_CHANGES_MAX);
		auth_change_add(&d, "user/", etcd_span(auth_text(r->name)));
		auth_change_propose(&d, true);
	}
}

static int name_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

AUTH_HANDLER(user_grant_role, AuthUserGrantRoleRequest, auth_user_grant_role_request, true)
{
	struct auth_user *u;
	Authpb__User m;
	struct auth_change d;

	u = auth_user_find(e->auth, r->user);
	if (!u) {
		auth_refuse(c, AUTH_TEXT_USER_NONE);
	} else if (strcmp(r->role, AUTH_ROOT) != 0 && !auth_role_find(e->auth, r->role)) {
		auth_refuse(c, AUTH_TEXT_ROLE_NONE);
	} else if (auth_user_has_role(u, r->role)) {
		auth_change_none(c);
	} else {
		d = auth_change_begin(c, AUTH_CHANGES_MAX);
		m = *u->m;
		m.roles = etcd_arena_get(&c->arena, (u->m->n_roles + 1) * sizeof(m.roles[0]));
		for (size_t i = 0; i < u->m->n_roles; i++)
			m.roles[i] = u->m->roles[i];
		m.roles[m.n_roles++] = r->role;
		qsort(m.roles, m.n_roles, sizeof(m.roles[0]), name_order);
		auth_change_user(&d, &m);
		auth_change_propose(&d, true);
	}
}

AUTH_HANDLER(user_revoke_role, AuthUserRevokeRoleRequest, auth_user_revoke_role_request, true)
{
	struct auth_user *u;
	Authpb__User m;
	struct auth_change d;

	u = auth_user_find(e->auth, r->name);
	if (e->auth->enabled && strcmp(r->name, AUTH_ROOT) == 0 &&
		strcmp(r->role, AUTH_ROOT) == 0) {
		auth_refuse(c, AUTH_TEXT_MANAGEMENT);
	} else if (!u) {
		auth_refuse(c, AUTH_TEXT_USER_NONE);
	} else if (!auth_user_has_role(u, r->role)) {
		auth_refuse(c, AUTH_TEXT_ROLE_NOT_GRANTED);
	} else {
		d = auth_change_begin(c, AUTH_CHANGES_MAX);
		m = auth_user_without(c, u, r->role);
		auth_change_user(&d, &m);
		auth_change_propose(&d, true);
	}
}
