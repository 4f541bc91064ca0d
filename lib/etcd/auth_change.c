/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of users, roles and of whether auth is on. One is decided on the state of this moment and
 * proposed at once, so nothing comes in between.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <base/assert.h>
#include <etcdserverpb/auth.pb-c.h>

#include "auth_service_priv.h"

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

struct rp_kv_system_op *auth_change_add(
	struct auth_change *d, const char *kind, struct rp_span name)
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

static void change_value(
	struct auth_change *d, struct rp_kv_system_op *op, const ProtobufCMessage *m)
{
	size_t length = protobuf_c_message_get_packed_size(m);
	uint8_t *value = etcd_arena_get(&d->c->arena, length + 1);

	protobuf_c_message_pack(m, value);
	op->type = RP_KV_SYSTEM_PUT;
	op->value = (struct rp_span){.data = value, .length = length};
}

struct auth_change auth_change_begin(struct etcd_call *c, uint32_t size)
{
	struct auth_change d = {.c = c, .size = size};

	d.ops = etcd_arena_get(&c->arena, size * sizeof(d.ops[0]));
	return d;
}

void auth_change_user(struct auth_change *d, const Authpb__User *m)
{
	change_value(d, auth_change_add(d, "user/", etcd_span(m->name)), &m->base);
}

void auth_change_role(struct auth_change *d, const Authpb__Role *m)
{
	change_value(d, auth_change_add(d, "role/", etcd_span(m->name)), &m->base);
}

void auth_change_propose(struct auth_change *d, bool new_revision)
{
	struct rp_etcd *e = d->c->e;
	struct rp_kv_txn *t = etcd_arena_get(&d->c->arena, sizeof(*t));

	if (new_revision) {
		struct rp_kv_system_op *op = auth_change_add(d, "revision", (struct rp_span){0});
		char *text = etcd_arena_get(&d->c->arena, 24);

		op->type = RP_KV_SYSTEM_PUT;
		op->value.data = (uint8_t *)text;
		op->value.length = (size_t)snprintf(text, 24, "%" PRIu64, e->auth->revision + 1);
	}
	t->system = d->ops;
	t->system_count = d->count;
	e->backend->propose(e->backend->ctx, t, change_done, d->c);
}

void auth_change_none(struct etcd_call *c)
{
	struct rp_kv_result r = {.revision = rp_kv_revision(c->e->kv)};

	change_done(c, RP_GRPC_OK, NULL, &r);
}

void auth_refuse(struct etcd_call *c, const char *text)
{
	bool argument = strcmp(text, AUTH_TEXT_USER_EMPTY) == 0 ||
			strcmp(text, AUTH_TEXT_ROLE_EMPTY) == 0 ||
			strcmp(text, AUTH_TEXT_PERMISSION_NONE) == 0 ||
			strcmp(text, AUTH_TEXT_MANAGEMENT) == 0 ||
			strcmp(text, AUTH_TEXT_FAILED) == 0;

	etcd_call_fail(c, argument ? RP_GRPC_INVALID_ARGUMENT : RP_GRPC_FAILED_PRECONDITION, text);
}

struct etcd_call *auth_begin(struct rp_etcd *e, struct rp_grpc_call *call,
	const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t length, bool write)
{
	ProtobufCMessage *m;

	if (write && etcd_stopped(e, call))
		return NULL;
	m = etcd_unpack(e, call, d, data, length);
	return m ? etcd_call_new(e, call, ETCD_CALL_AUTH, m) : NULL;
}

char *auth_name_in(struct etcd_arena *a, ProtobufCBinaryData name)
{
	char *text = etcd_arena_get(a, name.len + 1);

	if (name.len > 0)
		memcpy(text, name.data, name.len);
	return text;
}

Authpb__User auth_user_without(struct etcd_call *c, const struct auth_user *u, const char *role)
{
	Authpb__User m = *u->m;

	m.roles = etcd_arena_get(&c->arena, u->m->n_roles * sizeof(m.roles[0]));
	m.n_roles = 0;
	for (size_t i = 0; i < u->m->n_roles; i++)
		if (strcmp(u->m->roles[i], role) != 0)
			m.roles[m.n_roles++] = u->m->roles[i];
	return m;
}
