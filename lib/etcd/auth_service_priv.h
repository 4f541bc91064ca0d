/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the files of the Auth service share: auth_change.c makes the writes of a change,
 * auth_service.c, auth_user.c and auth_role.c have the methods, and include
 * <etcdserverpb/auth.pb-c.h>.
 */

#include <string.h>

#include "auth_priv.h"

#define AUTH_TEXT_ROLE_EMPTY "etcdserver: role name is empty"
#define AUTH_TEXT_USER_THERE "etcdserver: user name already exists"
#define AUTH_TEXT_USER_NONE "etcdserver: user name not found"
#define AUTH_TEXT_ROLE_THERE "etcdserver: role name already exists"
#define AUTH_TEXT_ROLE_NONE "etcdserver: role name not found"
#define AUTH_TEXT_ROLE_NOT_GRANTED "etcdserver: role is not granted to the user"
#define AUTH_TEXT_PERMISSION_NOT_GRANTED "etcdserver: permission is not granted to the role"
#define AUTH_TEXT_PERMISSION_NONE "etcdserver: permission not given"
#define AUTH_TEXT_MANAGEMENT "etcdserver: invalid auth management"
#define AUTH_TEXT_NO_ROOT "etcdserver: root user does not exist"
#define AUTH_TEXT_NO_ROOT_ROLE "etcdserver: root user does not have root role"
#define AUTH_TEXT_OFF "etcdserver: authentication is not enabled"
#define AUTH_TEXT_FAILED "etcdserver: authentication failed, invalid user ID or password"
#define AUTH_TEXT_NO_PASSWORD "auth: authentication failed, password was given for no password user"
#define AUTH_TEXT_TOO_MANY "etcdserver: too many requests"

/** Writes of one change. */
#define AUTH_CHANGES_MAX 2

struct auth_change {
	struct etcd_call *c;
	struct rp_kv_system_op *ops;
	uint32_t count, size;
};

/** `size`: writes there may be, that of the revision included. */
struct auth_change auth_change_begin(struct etcd_call *c, uint32_t size);
/** A delete of that record, to be made a put; the name is copied. */
struct rp_kv_system_op *auth_change_add(
	struct auth_change *d, const char *kind, struct rp_span name);
void auth_change_user(struct auth_change *d, const Authpb__User *m);
void auth_change_role(struct auth_change *d, const Authpb__Role *m);
/** The writes of a change, with the next revision of the auth store; answers the call. */
void auth_change_propose(struct auth_change *d, bool new_revision);
/** Nothing is to be changed: done already. */
void auth_change_none(struct etcd_call *c);
/** Answers with the text and its code. */
void auth_refuse(struct etcd_call *c, const char *text);
/** Unpacks and makes the call; NULL: answered. `write`: it changes something. */
struct etcd_call *auth_begin(struct rp_etcd *e, struct rp_grpc_call *call,
	const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t length, bool write);
/** The user without the role, in the call's arena. */
Authpb__User auth_user_without(struct etcd_call *c, const struct auth_user *u, const char *role);
/** The name, terminated. */
char *auth_name_in(struct etcd_arena *a, ProtobufCBinaryData name);

static inline ProtobufCBinaryData auth_text(const char *text)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)text, .len = strlen(text)};
}

/**
 * A method: its etcd_NAME_ops, and behind the macro the body of a function of `e`, the call `c` and
 * its request `r`.
 */
#define AUTH_HANDLER(name, type, descriptor, write)                                       \
	static void do_##name(                                                            \
		struct rp_etcd *e, struct etcd_call *c, const Etcdserverpb__##type *r);   \
	static void on_##name(                                                            \
		struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx) \
	{                                                                                 \
		struct etcd_call *c = auth_begin(ctx, call,                               \
			&etcdserverpb__##descriptor##__descriptor, data, length, write);  \
                                                                                          \
		if (c)                                                                    \
			do_##name(ctx, c, (const void *)c->request);                      \
	}                                                                                 \
	const struct rp_grpc_call_ops etcd_##name##_ops = {                               \
		.on_message = on_##name, .on_cancel = etcd_call_on_cancel};               \
	static void do_##name(struct rp_etcd *e, struct etcd_call *c, const Etcdserverpb__##type *r)
