/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Auth service (spec/etcd-semantics.md section 11). Who may call what, the gate has seen to,
 * but for UserGet and RoleGet. A change is decided on the state of this moment and proposed at
 * once, so nothing comes in between.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <etcdserverpb/auth.pb-c.h>
#include <mbedtls/base64.h>

#include "auth_priv.h"

#define TEXT_ROLE_EMPTY "etcdserver: role name is empty"
#define TEXT_USER_THERE "etcdserver: user name already exists"
#define TEXT_USER_NONE "etcdserver: user name not found"
#define TEXT_ROLE_THERE "etcdserver: role name already exists"
#define TEXT_ROLE_NONE "etcdserver: role name not found"
#define TEXT_ROLE_NOT_GRANTED "etcdserver: role is not granted to the user"
#define TEXT_PERMISSION_NOT_GRANTED "etcdserver: permission is not granted to the role"
#define TEXT_PERMISSION_NONE "etcdserver: permission not given"
#define TEXT_MANAGEMENT "etcdserver: invalid auth management"
#define TEXT_NO_ROOT "etcdserver: root user does not exist"
#define TEXT_NO_ROOT_ROLE "etcdserver: root user does not have root role"
#define TEXT_OFF "etcdserver: authentication is not enabled"
#define TEXT_FAILED "etcdserver: authentication failed, invalid user ID or password"
#define TEXT_NO_PASSWORD "auth: authentication failed, password was given for no password user"
#define TEXT_TOO_MANY "etcdserver: too many requests"

/** Writes of one change. */
#define CHANGES_MAX 2

struct change {
	struct etcd_call *c;
	struct rp_kv_system_op *ops;
	uint32_t count, size;
};

/* All answers of changes are a header and nothing else: one descriptor stands for all. */
static void change_done(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_call *c = done_ctx;
	Etcdserverpb__AuthEnableResponse m = ETCDSERVERPB__AUTH_ENABLE_RESPONSE__INIT;

	if (status != RP_GRPC_OK) {
		etcd_call_fail(c, status, message);
	} else if (r->error) {
		etcd_call_fail(c, etcd_kv_code(r->error), rp_kv_error_text(r->error));
	} else {
		m.header = etcd_header_in(&c->arena, c->e, r->revision);
		etcd_call_reply(c, &m.base);
	}
}

static struct rp_kv_system_op *change_add(struct change *d, const char *kind, struct rp_span name)
{
	struct etcd_arena *a = &d->c->arena;
	size_t kind_length = strlen(kind);
	uint8_t *key = etcd_arena_get(a, AUTH_PREFIX_BYTES + kind_length + name.length);
	struct rp_kv_system_op *op = &d->ops[d->count++];

	RP_ASSERT(d->count <= d->size);
	memcpy(key, AUTH_PREFIX, AUTH_PREFIX_BYTES);
	memcpy(key + AUTH_PREFIX_BYTES, kind, kind_length);
	if (name.length > 0)
		memcpy(key + AUTH_PREFIX_BYTES + kind_length, name.data, name.length);
	op->key = (struct rp_span){
		.data = key, .length = AUTH_PREFIX_BYTES + kind_length + name.length};
	op->type = RP_KV_SYSTEM_DELETE;
	return op;
}

static void change_value(struct change *d, struct rp_kv_system_op *op, const ProtobufCMessage *m)
{
	size_t length = protobuf_c_message_get_packed_size(m);
	uint8_t *value = etcd_arena_get(&d->c->arena, length + 1);

	protobuf_c_message_pack(m, value);
	op->type = RP_KV_SYSTEM_PUT;
	op->value = (struct rp_span){.data = value, .length = length};
}

static struct change change_begin(struct etcd_call *c, uint32_t size)
{
	struct change d = {.c = c, .size = size};

	d.ops = etcd_arena_get(&c->arena, size * sizeof(d.ops[0]));
	return d;
}

static void change_user(struct change *d, const Authpb__User *m)
{
	change_value(d, change_add(d, "user/", etcd_span(m->name)), &m->base);
}

static void change_role(struct change *d, const Authpb__Role *m)
{
	change_value(d, change_add(d, "role/", etcd_span(m->name)), &m->base);
}

/* The writes of a change, with the next revision of the auth store. */
static void change_propose(struct change *d, bool new_revision)
{
	struct rp_etcd *e = d->c->e;
	struct rp_kv_txn *t = etcd_arena_get(&d->c->arena, sizeof(*t));

	if (new_revision) {
		struct rp_kv_system_op *op = change_add(d, "revision", (struct rp_span){0});
		char *text = etcd_arena_get(&d->c->arena, 24);

		op->type = RP_KV_SYSTEM_PUT;
		op->value.data = (uint8_t *)text;
		op->value.length = (size_t)snprintf(text, 24, "%" PRIu64, e->auth->revision + 1);
	}
	t->system = d->ops;
	t->system_count = d->count;
	e->backend->propose(e->backend->ctx, t, change_done, d->c);
}

/* Nothing is to be changed: done already. */
static void change_none(struct etcd_call *c)
{
	struct rp_kv_result r = {.revision = rp_kv_revision(c->e->kv)};

	change_done(c, RP_GRPC_OK, NULL, &r);
}

static void refuse(struct etcd_call *c, const char *text)
{
	bool argument = strcmp(text, AUTH_TEXT_USER_EMPTY) == 0 ||
			strcmp(text, TEXT_ROLE_EMPTY) == 0 ||
			strcmp(text, TEXT_PERMISSION_NONE) == 0 ||
			strcmp(text, TEXT_MANAGEMENT) == 0 || strcmp(text, TEXT_FAILED) == 0;

	etcd_call_fail(c, argument ? RP_GRPC_INVALID_ARGUMENT : RP_GRPC_FAILED_PRECONDITION, text);
}

/* Unpacks and makes the call; NULL: answered. `write`: it changes something. */
static struct etcd_call *begin(struct rp_etcd *e, struct rp_grpc_call *call,
	const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t length, bool write)
{
	ProtobufCMessage *m;

	if (write && etcd_stopped(e, call))
		return NULL;
	m = etcd_unpack(e, call, d, data, length);
	return m ? etcd_call_new(e, call, ETCD_CALL_AUTH, m) : NULL;
}

#define HANDLER(name)          \
	static void on_##name( \
		struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)

#define OPS(name)                                           \
	const struct rp_grpc_call_ops etcd_##name##_ops = { \
		.on_message = on_##name, .on_cancel = etcd_call_on_cancel}

/* ---- enable, disable, status ---- */

HANDLER(auth_enable)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c =
		begin(e, call, &etcdserverpb__auth_enable_request__descriptor, data, length, true);
	struct auth_user *root = auth_user_find(e->auth, AUTH_ROOT);
	struct change d;

	if (!c)
		return;
	if (e->auth->enabled) {
		change_none(c);
	} else if (!root) {
		refuse(c, TEXT_NO_ROOT);
	} else if (!auth_user_has_role(root, AUTH_ROOT)) {
		refuse(c, TEXT_NO_ROOT_ROLE);
	} else {
		d = change_begin(c, CHANGES_MAX);
		change_add(&d, "enabled", (struct rp_span){0})->type = RP_KV_SYSTEM_PUT;
		change_propose(&d, false);
	}
}
OPS(auth_enable);

HANDLER(auth_disable)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c =
		begin(e, call, &etcdserverpb__auth_disable_request__descriptor, data, length, true);
	struct change d;

	if (!c)
		return;
	if (!e->auth->enabled) {
		change_none(c);
		return;
	}
	d = change_begin(c, CHANGES_MAX);
	change_add(&d, "enabled", (struct rp_span){0});
	change_propose(&d, true);
}
OPS(auth_disable);

HANDLER(auth_status)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c =
		begin(e, call, &etcdserverpb__auth_status_request__descriptor, data, length, false);
	Etcdserverpb__AuthStatusResponse m = ETCDSERVERPB__AUTH_STATUS_RESPONSE__INIT;

	if (!c)
		return;
	m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
	m.enabled = e->auth->enabled;
	m.authrevision = e->auth->revision;
	etcd_call_reply(c, &m.base);
}
OPS(auth_status);

/* ---- Authenticate ---- */

static void authenticate_checked(struct rp_etcd *e, uint64_t token, const char *hash, bool matches)
{
	Etcdserverpb__AuthenticateResponse m = ETCDSERVERPB__AUTHENTICATE_RESPONSE__INIT;
	struct etcd_call *c = etcd_call_find(e, token);
	const Etcdserverpb__AuthenticateRequest *request;
	struct auth_user *u;
	char *text;

	if (!c)
		return;
	request = (const void *)c->request;
	u = auth_user_find(e->auth, request->name);
	/* The password may have been changed while it was looked at. */
	if (!matches || !u || u->m->password.len != strlen(hash) ||
		memcmp(u->m->password.data, hash, u->m->password.len) != 0) {
		e->stats.auth_failed++;
		refuse(c, TEXT_FAILED);
		return;
	}
	text = e->auth->enabled ? auth_token_new(e, u) : NULL;
	if (!text) {
		refuse(c, e->auth->enabled ? "etcdserver: no key to sign a token with" : TEXT_OFF);
		return;
	}
	e->stats.authenticated++;
	m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
	m.token = text;
	etcd_call_reply(c, &m.base);
	free(text);
}

HANDLER(authenticate)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(
		e, call, &etcdserverpb__authenticate_request__descriptor, data, length, false);
	const Etcdserverpb__AuthenticateRequest *m;
	struct auth_user *u;
	char *hash;

	if (!c)
		return;
	m = (const void *)c->request;
	u = auth_user_find(e->auth, m->name);
	if (!e->auth->enabled) {
		refuse(c, TEXT_OFF);
	} else if (!u) {
		e->stats.auth_failed++;
		refuse(c, TEXT_FAILED);
	} else if (u->m->options && u->m->options->no_password) {
		e->stats.auth_failed++;
		etcd_call_fail(c, RP_GRPC_UNKNOWN, TEXT_NO_PASSWORD);
	} else {
		hash = etcd_arena_get(&c->arena, u->m->password.len + 1);
		memcpy(hash, u->m->password.data, u->m->password.len);
		if (!auth_hasher_check(
			    e->auth->hasher, m->password, hash, c->node.key, authenticate_checked))
			etcd_call_fail(c, RP_GRPC_RESOURCE_EXHAUSTED, TEXT_TOO_MANY);
	}
}
OPS(authenticate);

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
		etcd_call_fail(c, RP_GRPC_RESOURCE_EXHAUSTED, TEXT_TOO_MANY);
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

static ProtobufCBinaryData text_bytes(const char *text)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)text, .len = strlen(text)};
}

/* ---- users ---- */

static void user_add(struct etcd_call *c)
{
	const Etcdserverpb__AuthUserAddRequest *r = (const void *)c->request;
	Authpb__User m = AUTHPB__USER__INIT;
	struct change d;

	if (auth_user_find(c->e->auth, r->name)) {
		refuse(c, TEXT_USER_THERE);
		return;
	}
	d = change_begin(c, CHANGES_MAX);
	m.name = text_bytes(r->name);
	m.options = r->options;
	if (c->hash)
		m.password = text_bytes(c->hash);
	change_user(&d, &m);
	change_propose(&d, true);
}

static void user_add_hashed(struct rp_etcd *e, uint64_t token, const char *hash, bool matches)
{
	struct etcd_call *c = hashed_call(e, token, hash);

	if (c)
		user_add(c);
}

HANDLER(user_add)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(
		e, call, &etcdserverpb__auth_user_add_request__descriptor, data, length, true);
	const Etcdserverpb__AuthUserAddRequest *m;

	if (!c)
		return;
	m = (const void *)c->request;
	if (m->name[0] == '\0')
		refuse(c, AUTH_TEXT_USER_EMPTY);
	else if (auth_user_find(e->auth, m->name))
		refuse(c, TEXT_USER_THERE);
	else if (m->options && m->options->no_password)
		user_add(c);
	else
		hash_then(c, m->password, m->hashedpassword, user_add_hashed, user_add);
}
OPS(user_add);

static void user_change_password(struct etcd_call *c)
{
	const Etcdserverpb__AuthUserChangePasswordRequest *r = (const void *)c->request;
	struct auth_user *u = auth_user_find(c->e->auth, r->name);
	Authpb__User m;
	struct change d;

	if (!u) {
		refuse(c, TEXT_USER_NONE);
		return;
	}
	d = change_begin(c, CHANGES_MAX);
	m = *u->m;
	if (!m.options || !m.options->no_password)
		m.password = text_bytes(c->hash);
	change_user(&d, &m);
	change_propose(&d, true);
}

static void password_hashed(struct rp_etcd *e, uint64_t token, const char *hash, bool matches)
{
	struct etcd_call *c = hashed_call(e, token, hash);

	if (c)
		user_change_password(c);
}

HANDLER(user_change_password)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(e, call,
		&etcdserverpb__auth_user_change_password_request__descriptor, data, length, true);
	const Etcdserverpb__AuthUserChangePasswordRequest *m;

	if (!c)
		return;
	m = (const void *)c->request;
	if (!auth_user_find(e->auth, m->name))
		refuse(c, TEXT_USER_NONE);
	else
		hash_then(c, m->password, m->hashedpassword, password_hashed, user_change_password);
}
OPS(user_change_password);

HANDLER(user_get)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(
		e, call, &etcdserverpb__auth_user_get_request__descriptor, data, length, false);
	Etcdserverpb__AuthUserGetResponse m = ETCDSERVERPB__AUTH_USER_GET_RESPONSE__INIT;
	const Etcdserverpb__AuthUserGetRequest *request;
	struct rp_etcd_caller caller;
	const char *message = NULL;
	struct auth_user *u;
	int code;

	if (!c)
		return;
	request = (const void *)c->request;
	caller = etcd_caller_of(e, call);
	code = etcd_auth_require(e, &caller, true, &message);
	u = auth_user_find(e->auth, request->name);
	/* Everybody may look at himself. */
	if (code == RP_GRPC_PERMISSION_DENIED && caller.user &&
		strcmp(caller.user, request->name) == 0)
		code = RP_GRPC_OK;
	if (code != RP_GRPC_OK) {
		etcd_call_fail(c, code, message);
	} else if (!u) {
		refuse(c, TEXT_USER_NONE);
	} else {
		m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
		m.roles = u->m->roles;
		m.n_roles = u->m->n_roles;
		etcd_call_reply(c, &m.base);
	}
}
OPS(user_get);

static char *name_in(struct etcd_arena *a, ProtobufCBinaryData name)
{
	char *text = etcd_arena_get(a, name.len + 1);

	if (name.len > 0)
		memcpy(text, name.data, name.len);
	return text;
}

HANDLER(user_list)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(
		e, call, &etcdserverpb__auth_user_list_request__descriptor, data, length, false);
	Etcdserverpb__AuthUserListResponse m = ETCDSERVERPB__AUTH_USER_LIST_RESPONSE__INIT;

	if (!c)
		return;
	m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
	m.users = etcd_arena_get(&c->arena, e->auth->user_count * sizeof(m.users[0]));
	for (uint32_t i = 0; i < e->auth->user_count; i++)
		m.users[m.n_users++] = name_in(&c->arena, e->auth->users[i]->m->name);
	etcd_call_reply(c, &m.base);
}
OPS(user_list);

HANDLER(user_delete)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(
		e, call, &etcdserverpb__auth_user_delete_request__descriptor, data, length, true);
	const Etcdserverpb__AuthUserDeleteRequest *m;
	struct change d;

	if (!c)
		return;
	m = (const void *)c->request;
	if (e->auth->enabled && strcmp(m->name, AUTH_ROOT) == 0) {
		refuse(c, TEXT_MANAGEMENT);
	} else if (!auth_user_find(e->auth, m->name)) {
		refuse(c, TEXT_USER_NONE);
	} else {
		d = change_begin(c, CHANGES_MAX);
		change_add(&d, "user/", etcd_span(text_bytes(m->name)));
		change_propose(&d, true);
	}
}
OPS(user_delete);

static int name_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

HANDLER(user_grant_role)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(e, call,
		&etcdserverpb__auth_user_grant_role_request__descriptor, data, length, true);
	const Etcdserverpb__AuthUserGrantRoleRequest *r;
	struct auth_user *u;
	Authpb__User m;
	struct change d;

	if (!c)
		return;
	r = (const void *)c->request;
	u = auth_user_find(e->auth, r->user);
	if (!u) {
		refuse(c, TEXT_USER_NONE);
	} else if (strcmp(r->role, AUTH_ROOT) != 0 && !auth_role_find(e->auth, r->role)) {
		refuse(c, TEXT_ROLE_NONE);
	} else if (auth_user_has_role(u, r->role)) {
		change_none(c);
	} else {
		d = change_begin(c, CHANGES_MAX);
		m = *u->m;
		m.roles = etcd_arena_get(&c->arena, (u->m->n_roles + 1) * sizeof(m.roles[0]));
		for (size_t i = 0; i < u->m->n_roles; i++)
			m.roles[i] = u->m->roles[i];
		m.roles[m.n_roles++] = r->role;
		qsort(m.roles, m.n_roles, sizeof(m.roles[0]), name_order);
		change_user(&d, &m);
		change_propose(&d, true);
	}
}
OPS(user_grant_role);

/* The user without the role. */
static Authpb__User user_without(struct etcd_call *c, const struct auth_user *u, const char *role)
{
	Authpb__User m = *u->m;

	m.roles = etcd_arena_get(&c->arena, u->m->n_roles * sizeof(m.roles[0]));
	m.n_roles = 0;
	for (size_t i = 0; i < u->m->n_roles; i++)
		if (strcmp(u->m->roles[i], role) != 0)
			m.roles[m.n_roles++] = u->m->roles[i];
	return m;
}

HANDLER(user_revoke_role)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(e, call,
		&etcdserverpb__auth_user_revoke_role_request__descriptor, data, length, true);
	const Etcdserverpb__AuthUserRevokeRoleRequest *r;
	struct auth_user *u;
	Authpb__User m;
	struct change d;

	if (!c)
		return;
	r = (const void *)c->request;
	u = auth_user_find(e->auth, r->name);
	if (e->auth->enabled && strcmp(r->name, AUTH_ROOT) == 0 &&
		strcmp(r->role, AUTH_ROOT) == 0) {
		refuse(c, TEXT_MANAGEMENT);
	} else if (!u) {
		refuse(c, TEXT_USER_NONE);
	} else if (!auth_user_has_role(u, r->role)) {
		refuse(c, TEXT_ROLE_NOT_GRANTED);
	} else {
		d = change_begin(c, CHANGES_MAX);
		m = user_without(c, u, r->role);
		change_user(&d, &m);
		change_propose(&d, true);
	}
}
OPS(user_revoke_role);

/* ---- roles ---- */

HANDLER(role_add)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(
		e, call, &etcdserverpb__auth_role_add_request__descriptor, data, length, true);
	const Etcdserverpb__AuthRoleAddRequest *r;
	Authpb__Role m = AUTHPB__ROLE__INIT;
	struct change d;

	if (!c)
		return;
	r = (const void *)c->request;
	if (r->name[0] == '\0') {
		refuse(c, TEXT_ROLE_EMPTY);
	} else if (auth_role_find(e->auth, r->name)) {
		refuse(c, TEXT_ROLE_THERE);
	} else {
		d = change_begin(c, CHANGES_MAX);
		m.name = text_bytes(r->name);
		change_role(&d, &m);
		change_propose(&d, true);
	}
}
OPS(role_add);

static bool caller_has_role(
	struct rp_etcd *e, const struct rp_etcd_caller *caller, const char *role)
{
	struct auth_user *u = caller->user ? auth_user_find(e->auth, caller->user) : NULL;

	return u && auth_user_has_role(u, role);
}

HANDLER(role_get)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(
		e, call, &etcdserverpb__auth_role_get_request__descriptor, data, length, false);
	Etcdserverpb__AuthRoleGetResponse m = ETCDSERVERPB__AUTH_ROLE_GET_RESPONSE__INIT;
	Authpb__Permission all = AUTHPB__PERMISSION__INIT, *list[1] = {&all};
	const Etcdserverpb__AuthRoleGetRequest *request;
	struct rp_etcd_caller caller;
	const char *message = NULL;
	struct auth_role *role;
	int code;

	if (!c)
		return;
	request = (const void *)c->request;
	caller = etcd_caller_of(e, call);
	code = etcd_auth_require(e, &caller, true, &message);
	role = auth_role_find(e->auth, request->role);
	if (code == RP_GRPC_PERMISSION_DENIED && caller_has_role(e, &caller, request->role))
		code = RP_GRPC_OK;
	if (code != RP_GRPC_OK) {
		etcd_call_fail(c, code, message);
	} else if (!role) {
		refuse(c, TEXT_ROLE_NONE);
	} else {
		m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
		m.perm = role->m->keypermission;
		m.n_perm = role->m->n_keypermission;
		if (strcmp(request->role, AUTH_ROOT) == 0) {
			all.permtype = AUTHPB__PERMISSION__TYPE__READWRITE;
			all.range_end = (ProtobufCBinaryData){.data = (uint8_t *)"", .len = 1};
			m.perm = list;
			m.n_perm = 1;
		}
		etcd_call_reply(c, &m.base);
	}
}
OPS(role_get);

HANDLER(role_list)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(
		e, call, &etcdserverpb__auth_role_list_request__descriptor, data, length, false);
	Etcdserverpb__AuthRoleListResponse m = ETCDSERVERPB__AUTH_ROLE_LIST_RESPONSE__INIT;

	if (!c)
		return;
	m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
	m.roles = etcd_arena_get(&c->arena, e->auth->role_count * sizeof(m.roles[0]));
	for (uint32_t i = 0; i < e->auth->role_count; i++)
		m.roles[m.n_roles++] = name_in(&c->arena, e->auth->roles[i]->m->name);
	etcd_call_reply(c, &m.base);
}
OPS(role_list);

HANDLER(role_delete)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(
		e, call, &etcdserverpb__auth_role_delete_request__descriptor, data, length, true);
	const Etcdserverpb__AuthRoleDeleteRequest *r;
	struct change d;

	if (!c)
		return;
	r = (const void *)c->request;
	if (e->auth->enabled && strcmp(r->role, AUTH_ROOT) == 0) {
		refuse(c, TEXT_MANAGEMENT);
	} else if (!auth_role_find(e->auth, r->role)) {
		refuse(c, TEXT_ROLE_NONE);
	} else {
		d = change_begin(c, CHANGES_MAX + e->auth->user_count);
		change_add(&d, "role/", etcd_span(text_bytes(r->role)));
		for (uint32_t i = 0; i < e->auth->user_count; i++) {
			Authpb__User m;

			if (!auth_user_has_role(e->auth->users[i], r->role))
				continue;
			m = user_without(c, e->auth->users[i], r->role);
			change_user(&d, &m);
		}
		change_propose(&d, true);
	}
}
OPS(role_delete);

static bool bytes_equal(ProtobufCBinaryData a, ProtobufCBinaryData b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static int bytes_order(ProtobufCBinaryData a, ProtobufCBinaryData b)
{
	size_t n = RP_MIN(a.len, b.len);
	int c = n > 0 ? memcmp(a.data, b.data, n) : 0;

	return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

static int permission_order(const void *a, const void *b)
{
	const Authpb__Permission *x = *(Authpb__Permission *const *)a;
	const Authpb__Permission *y = *(Authpb__Permission *const *)b;
	int c = bytes_order(x->key, y->key);

	return c != 0 ? c : bytes_order(x->range_end, y->range_end);
}

static bool permission_valid(const Authpb__Permission *p)
{
	if (p->key.len == 0)
		return false;
	if (p->range_end.len == 0 || (p->range_end.len == 1 && p->range_end.data[0] == 0))
		return true;
	return bytes_order(p->key, p->range_end) < 0;
}

/* The role's permissions without that of the range, and how many are left. */
static Authpb__Permission **permissions_without(struct etcd_call *c, const Authpb__Role *role,
	ProtobufCBinaryData key, ProtobufCBinaryData end, size_t *count)
{
	Authpb__Permission **list =
		etcd_arena_get(&c->arena, (role->n_keypermission + 1) * sizeof(list[0]));

	*count = 0;
	for (size_t i = 0; i < role->n_keypermission; i++)
		if (!bytes_equal(role->keypermission[i]->key, key) ||
			!bytes_equal(role->keypermission[i]->range_end, end))
			list[(*count)++] = role->keypermission[i];
	return list;
}

HANDLER(role_grant_permission)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(e, call,
		&etcdserverpb__auth_role_grant_permission_request__descriptor, data, length, true);
	const Etcdserverpb__AuthRoleGrantPermissionRequest *r;
	struct auth_role *role;
	Authpb__Role m;
	struct change d;

	if (!c)
		return;
	r = (const void *)c->request;
	role = auth_role_find(e->auth, r->name);
	if (!r->perm) {
		refuse(c, TEXT_PERMISSION_NONE);
	} else if (!permission_valid(r->perm)) {
		refuse(c, TEXT_MANAGEMENT);
	} else if (!role) {
		refuse(c, TEXT_ROLE_NONE);
	} else {
		d = change_begin(c, CHANGES_MAX);
		m = *role->m;
		m.keypermission = permissions_without(
			c, role->m, r->perm->key, r->perm->range_end, &m.n_keypermission);
		m.keypermission[m.n_keypermission++] = r->perm;
		qsort(m.keypermission, m.n_keypermission, sizeof(m.keypermission[0]),
			permission_order);
		change_role(&d, &m);
		change_propose(&d, true);
	}
}
OPS(role_grant_permission);

HANDLER(role_revoke_permission)
{
	struct rp_etcd *e = ctx;
	struct etcd_call *c = begin(e, call,
		&etcdserverpb__auth_role_revoke_permission_request__descriptor, data, length, true);
	const Etcdserverpb__AuthRoleRevokePermissionRequest *r;
	struct auth_role *role;
	Authpb__Role m;
	struct change d;

	if (!c)
		return;
	r = (const void *)c->request;
	role = auth_role_find(e->auth, r->role);
	if (!role) {
		refuse(c, TEXT_ROLE_NONE);
		return;
	}
	m = *role->m;
	m.keypermission = permissions_without(c, role->m, r->key, r->range_end, &m.n_keypermission);
	if (m.n_keypermission == role->m->n_keypermission) {
		refuse(c, TEXT_PERMISSION_NOT_GRANTED);
		return;
	}
	d = change_begin(c, CHANGES_MAX);
	change_role(&d, &m);
	change_propose(&d, true);
}
OPS(role_revoke_permission);
