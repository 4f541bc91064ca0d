/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Auth service (spec/etcd-semantics.md section 11): whether it is on, and Authenticate. Who may
 * call what, the gate has seen to, but for UserGet and RoleGet.
 */
#include <stdlib.h>
#include <string.h>

#include <etcdserverpb/auth.pb-c.h>

#include "auth_service_priv.h"

/* ---- enable, disable, status ---- */

AUTH_HANDLER(auth_enable, AuthEnableRequest, auth_enable_request, true)
{
	struct auth_user *root = auth_user_find(e->auth, AUTH_ROOT);
	struct auth_change d;

	if (e->auth->enabled) {
		auth_change_none(c);
	} else if (!root) {
		auth_refuse(c, AUTH_TEXT_NO_ROOT);
	} else if (!auth_user_has_role(root, AUTH_ROOT)) {
		auth_refuse(c, AUTH_TEXT_NO_ROOT_ROLE);
	} else {
		d = auth_change_begin(c, AUTH_CHANGES_MAX);
		auth_change_add(&d, "enabled", (struct rp_span){0})->type = RP_KV_SYSTEM_PUT;
		auth_change_propose(&d, false);
	}
}

AUTH_HANDLER(auth_disable, AuthDisableRequest, auth_disable_request, true)
{
	struct auth_change d;

	if (!e->auth->enabled) {
		auth_change_none(c);
		return;
	}
	d = auth_change_begin(c, AUTH_CHANGES_MAX);
	auth_change_add(&d, "enabled", (struct rp_span){0});
	auth_change_propose(&d, true);
}

AUTH_HANDLER(auth_status, AuthStatusRequest, auth_status_request, false)
{
	Etcdserverpb__AuthStatusResponse m = ETCDSERVERPB__AUTH_STATUS_RESPONSE__INIT;

	m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
	m.enabled = e->auth->enabled;
	m.authrevision = e->auth->revision;
	etcd_call_reply(c, &m.base);
}

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
		auth_refuse(c, AUTH_TEXT_FAILED);
		return;
	}
	text = e->auth->enabled ? auth_token_new(e, u) : NULL;
	if (!text) {
		auth_refuse(c, e->auth->enabled ? "etcdserver: no key to sign a token with"
						: AUTH_TEXT_OFF);
		return;
	}
	e->stats.authenticated++;
	m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
	m.token = text;
	etcd_call_reply(c, &m.base);
	free(text);
}

AUTH_HANDLER(authenticate, AuthenticateRequest, authenticate_request, false)
{
	struct auth_user *u;
	char *hash;

	u = auth_user_find(e->auth, r->name);
	if (!e->auth->enabled) {
		auth_refuse(c, AUTH_TEXT_OFF);
	} else if (!u) {
		e->stats.auth_failed++;
		auth_refuse(c, AUTH_TEXT_FAILED);
	} else if (u->m->options && u->m->options->no_password) {
		e->stats.auth_failed++;
		etcd_call_fail(c, RP_GRPC_UNKNOWN, AUTH_TEXT_NO_PASSWORD);
	} else {
		hash = etcd_arena_get(&c->arena, u->m->password.len + 1);
		memcpy(hash, u->m->password.data, u->m->password.len);
		if (!auth_hasher_check(
			    e->auth->hasher, r->password, hash, c->node.key, authenticate_checked))
			etcd_call_fail(c, RP_GRPC_RESOURCE_EXHAUSTED, AUTH_TEXT_TOO_MANY);
	}
}
