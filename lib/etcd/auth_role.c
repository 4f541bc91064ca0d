/* SPDX-License-Identifier: Apache-2.0 */
/* Roles of the Auth service, and their permissions (spec/etcd-semantics.md section 11). */
#include <stdlib.h>
#include <string.h>

#include <etcdserverpb/auth.pb-c.h>

#include "auth_service_priv.h"

AUTH_HANDLER(role_add, AuthRoleAddRequest, auth_role_add_request, true)
{
	Authpb__Role m = AUTHPB__ROLE__INIT;
	struct auth_change d;

	if (r->name[0] == '\0') {
		auth_refuse(c, AUTH_TEXT_ROLE_EMPTY);
	} else if (auth_role_find(e->auth, r->name)) {
		auth_refuse(c, AUTH_TEXT_ROLE_THERE);
	} else {
		d = auth_change_begin(c, AUTH_CHANGES_MAX);
		m.name = auth_text(r->name);
		auth_change_role(&d, &m);
		auth_change_propose(&d, true);
	}
}

static bool caller_has_role(
	struct rp_etcd *e, const struct rp_etcd_caller *caller, const char *role)
{
	struct auth_user *u = caller->user ? auth_user_find(e->auth, caller->user) : NULL;

	return u && auth_user_has_role(u, role);
}

AUTH_HANDLER(role_get, AuthRoleGetRequest, auth_role_get_request, false)
{
	Etcdserverpb__AuthRoleGetResponse m = ETCDSERVERPB__AUTH_ROLE_GET_RESPONSE__INIT;
	Authpb__Permission all = AUTHPB__PERMISSION__INIT, *list[1] = {&all};
	struct rp_etcd_caller caller;
	const char *message = NULL;
	struct auth_role *role;
	int code;

	caller = etcd_caller_of(e, c->call);
	code = etcd_auth_require(e, &caller, true, &message);
	role = auth_role_find(e->auth, r->role);
	if (code == RP_GRPC_PERMISSION_DENIED && caller_has_role(e, &caller, r->role))
		code = RP_GRPC_OK;
	if (code != RP_GRPC_OK) {
		etcd_call_fail(c, code, message);
	} else if (!role) {
		auth_refuse(c, AUTH_TEXT_ROLE_NONE);
	} else {
		m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
		m.perm = role->m->keypermission;
		m.n_perm = role->m->n_keypermission;
		if (strcmp(r->role, AUTH_ROOT) == 0) {
			all.permtype = AUTHPB__PERMISSION__TYPE__READWRITE;
			all.range_end = (ProtobufCBinaryData){.data = (uint8_t *)"", .len = 1};
			m.perm = list;
			m.n_perm = 1;
		}
		etcd_call_reply(c, &m.base);
	}
}

AUTH_HANDLER(role_list, AuthRoleListRequest, auth_role_list_request, false)
{
	Etcdserverpb__AuthRoleListResponse m = ETCDSERVERPB__AUTH_ROLE_LIST_RESPONSE__INIT;

	m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
	m.roles = etcd_arena_get(&c->arena, e->auth->role_count * sizeof(m.roles[0]));
	for (uint32_t i = 0; i < e->auth->role_count; i++)
		m.roles[m.n_roles++] = auth_name_in(&c->arena, e->auth->roles[i]->m->name);
	etcd_call_reply(c, &m.base);
}

AUTH_HANDLER(role_delete, AuthRoleDeleteRequest, auth_role_delete_request, true)
{
	struct auth_change d;

	if (e->auth->enabled && strcmp(r->role, AUTH_ROOT) == 0) {
		auth_refuse(c, AUTH_TEXT_MANAGEMENT);
	} else if (!auth_role_find(e->auth, r->role)) {
		auth_refuse(c, AUTH_TEXT_ROLE_NONE);
	} else {
		d = auth_change_begin(c, AUTH_CHANGES_MAX + e->auth->user_count);
		auth_change_add(&d, "role/", etcd_span(auth_text(r->role)));
		for (uint32_t i = 0; i < e->auth->user_count; i++) {
			Authpb__User m;

			if (!auth_user_has_role(e->auth->users[i], r->role))
				continue;
			m = auth_user_without(c, e->auth->users[i], r->role);
			auth_change_user(&d, &m);
		}
		auth_change_propose(&d, true);
	}
}

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

AUTH_HANDLER(role_grant_permission, AuthRoleGrantPermissionRequest,
	auth_role_grant_permission_request, true)
{
	struct auth_role *role;
	Authpb__Role m;
	struct auth_change d;

	role = auth_role_find(e->auth, r->name);
	if (!r->perm) {
		auth_refuse(c, AUTH_TEXT_PERMISSION_NONE);
	} else if (!permission_valid(r->perm)) {
		auth_refuse(c, AUTH_TEXT_MANAGEMENT);
	} else if (!role) {
		auth_refuse(c, AUTH_TEXT_ROLE_NONE);
	} else {
		d = auth_change_begin(c, AUTH_CHANGES_MAX);
		m = *role->m;
		m.keypermission = permissions_without(
			c, role->m, r->perm->key, r->perm->range_end, &m.n_keypermission);
		m.keypermission[m.n_keypermission++] = r->perm;
		qsort(m.keypermission, m.n_keypermission, sizeof(m.keypermission[0]),
			permission_order);
		auth_change_role(&d, &m);
		auth_change_propose(&d, true);
	}
}

AUTH_HANDLER(role_revoke_permission, AuthRoleRevokePermissionRequest,
	auth_role_revoke_permission_request, true)
{
	struct auth_role *role;
	Authpb__Role m;
	struct auth_change d;

	role = auth_role_find(e->auth, r->role);
	if (!role) {
		auth_refuse(c, AUTH_TEXT_ROLE_NONE);
		return;
	}
	m = *role->m;
	m.keypermission = permissions_without(c, role->m, r->key, r->range_end, &m.n_keypermission);
	if (m.n_keypermission == role->m->n_keypermission) {
		auth_refuse(c, AUTH_TEXT_PERMISSION_NOT_GRANTED);
		return;
	}
	d = auth_change_begin(c, AUTH_CHANGES_MAX);
	auth_change_role(&d, &m);
	auth_change_propose(&d, true);
}
