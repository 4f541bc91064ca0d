/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Calls of the Auth service in short, and a rig with users, for the tests of auth. */

#include <unistd.h>

#include "etcd_test_util.h"

#include <etcdserverpb/auth.pb-c.h>
#include <etcdserverpb/lease.pb-c.h>
#include <v3lockpb/v3lock.pb-c.h>

#define AUTH(name) "/etcdserverpb.Auth/" name
#define EMPTY "etcdserver: user name is empty"
#define DENIED "etcdserver: permission denied"
#define BAD_TOKEN "etcdserver: invalid auth token"

/* Hashing is done elsewhere: turns of the loop until the call is over. */
static inline void *call(
	struct rig *r, const char *path, const void *m, const ProtobufCMessageDescriptor *d)
{
	struct rp_grpc_call *c = fake_call_new(r->server, path, NULL);

	rig_send(c, m);
	for (int i = 0; !c->over && i < 20000; i++) {
		usleep(500);
		rp_etcd_run(r->e, r->now_ns);
	}
	return rig_take(r, c, d);
}

#define CALL(r, path, m, answer) call(r, path, m, &etcdserverpb__##answer##__descriptor)
#define EMPTY_ANSWER auth_enable_response

static inline void enable(struct rig *r)
{
	Etcdserverpb__AuthEnableRequest m = ETCDSERVERPB__AUTH_ENABLE_REQUEST__INIT;

	CALL(r, AUTH("AuthEnable"), &m, auth_enable_response);
}

static inline void disable(struct rig *r)
{
	Etcdserverpb__AuthDisableRequest m = ETCDSERVERPB__AUTH_DISABLE_REQUEST__INIT;

	CALL(r, AUTH("AuthDisable"), &m, auth_disable_response);
}

static inline uint64_t revision(struct rig *r)
{
	Etcdserverpb__AuthStatusRequest m = ETCDSERVERPB__AUTH_STATUS_REQUEST__INIT;
	Etcdserverpb__AuthStatusResponse *a = CALL(r, AUTH("AuthStatus"), &m, auth_status_response);

	return a ? a->authrevision : 0;
}

static inline void user_add(struct rig *r, const char *name, const char *password)
{
	Etcdserverpb__AuthUserAddRequest m = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;
	Authpb__UserAddOptions options = AUTHPB__USER_ADD_OPTIONS__INIT;

	m.name = (char *)name;
	m.password = (char *)(password ? password : "");
	options.no_password = !password;
	m.options = &options;
	CALL(r, AUTH("UserAdd"), &m, auth_user_add_response);
}

static inline void user_delete(struct rig *r, const char *name)
{
	Etcdserverpb__AuthUserDeleteRequest m = ETCDSERVERPB__AUTH_USER_DELETE_REQUEST__INIT;

	m.name = (char *)name;
	CALL(r, AUTH("UserDelete"), &m, auth_user_delete_response);
}

static inline void change_password(struct rig *r, const char *name, const char *password)
{
	Etcdserverpb__AuthUserChangePasswordRequest m =
		ETCDSERVERPB__AUTH_USER_CHANGE_PASSWORD_REQUEST__INIT;

	m.name = (char *)name;
	m.password = (char *)password;
	CALL(r, AUTH("UserChangePassword"), &m, auth_user_change_password_response);
}

static inline void grant_role(struct rig *r, const char *user, const char *role)
{
	Etcdserverpb__AuthUserGrantRoleRequest m = ETCDSERVERPB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;

	m.user = (char *)user;
	m.role = (char *)role;
	CALL(r, AUTH("UserGrantRole"), &m, auth_user_grant_role_response);
}

static inline void revoke_role(struct rig *r, const char *user, const char *role)
{
	Etcdserverpb__AuthUserRevokeRoleRequest m =
		ETCDSERVERPB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;

	m.name = (char *)user;
	m.role = (char *)role;
	CALL(r, AUTH("UserRevokeRole"), &m, auth_user_revoke_role_response);
}

static inline Etcdserverpb__AuthUserGetResponse *user_get(struct rig *r, const char *name)
{
	Etcdserverpb__AuthUserGetRequest m = ETCDSERVERPB__AUTH_USER_GET_REQUEST__INIT;

	m.name = (char *)name;
	return CALL(r, AUTH("UserGet"), &m, auth_user_get_response);
}

static inline void role_add(struct rig *r, const char *name)
{
	Etcdserverpb__AuthRoleAddRequest m = ETCDSERVERPB__AUTH_ROLE_ADD_REQUEST__INIT;

	m.name = (char *)name;
	CALL(r, AUTH("RoleAdd"), &m, auth_role_add_response);
}

static inline void role_delete(struct rig *r, const char *name)
{
	Etcdserverpb__AuthRoleDeleteRequest m = ETCDSERVERPB__AUTH_ROLE_DELETE_REQUEST__INIT;

	m.role = (char *)name;
	CALL(r, AUTH("RoleDelete"), &m, auth_role_delete_response);
}

static inline Etcdserverpb__AuthRoleGetResponse *role_get(struct rig *r, const char *name)
{
	Etcdserverpb__AuthRoleGetRequest m = ETCDSERVERPB__AUTH_ROLE_GET_REQUEST__INIT;

	m.role = (char *)name;
	return CALL(r, AUTH("RoleGet"), &m, auth_role_get_response);
}

static inline void permit(
	struct rig *r, const char *role, int type, const char *key, ProtobufCBinaryData end)
{
	Etcdserverpb__AuthRoleGrantPermissionRequest m =
		ETCDSERVERPB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
	Authpb__Permission p = AUTHPB__PERMISSION__INIT;

	m.name = (char *)role;
	p.permtype = (Authpb__Permission__Type)type;
	p.key = B(key);
	p.range_end = end;
	m.perm = &p;
	CALL(r, AUTH("RoleGrantPermission"), &m, auth_role_grant_permission_response);
}

static inline void forbid(struct rig *r, const char *role, const char *key, const char *end)
{
	Etcdserverpb__AuthRoleRevokePermissionRequest m =
		ETCDSERVERPB__AUTH_ROLE_REVOKE_PERMISSION_REQUEST__INIT;

	m.role = (char *)role;
	m.key = B(key);
	m.range_end = B(end);
	CALL(r, AUTH("RoleRevokePermission"), &m, auth_role_revoke_permission_response);
}

/* Token of the user, or NULL; kept until the next call. */
static inline const char *authenticate(struct rig *r, const char *name, const char *password)
{
	static char tokens[8][2048];
	static int next;
	Etcdserverpb__AuthenticateRequest m = ETCDSERVERPB__AUTHENTICATE_REQUEST__INIT;
	Etcdserverpb__AuthenticateResponse *a;

	m.name = (char *)name;
	m.password = (char *)password;
	a = CALL(r, AUTH("Authenticate"), &m, authenticate_response);
	if (!a)
		return NULL;
	next = (next + 1) % 8;
	snprintf(tokens[next], sizeof(tokens[next]), "%s", a->token);
	return tokens[next];
}

#define assert_ok(r)                                   \
	do {                                           \
		assert_string_equal((r)->message, ""); \
		assert_int_equal((r)->code, 0);        \
	} while (0)
#define FAILED RP_GRPC_FAILED_PRECONDITION
#define INVALID RP_GRPC_INVALID_ARGUMENT

static inline int setup_with(void **state, enum rp_etcd_token token, const char *key)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct rp_etcd_config config = {
		.cluster_id = RIG_CLUSTER, .member_id = RIG_MEMBER, .raft_term = 2};

	fake_node_init(&r->node, 1);
	r->server = fake_server_new();
	r->kv = config.kv = r->node.kv;
	config.server = r->server;
	config.backend = &r->node.backend;
	config.bcrypt_cost = 4;
	config.client_cert_auth = true;
	config.token_ttl_ns = 10 * RP_NS_PER_S;
	config.token = token;
	config.jwt_private_key = key;
	r->now_ns = r->node.now_ns = RP_NS_PER_S;
	r->e = r->node.etcd = rp_etcd_create(&config);
	fake_token = fake_authorization = fake_cn = NULL;
	*state = r;
	return r->e ? 0 : -1;
}

static inline int setup(void **state)
{
	return setup_with(state, RP_ETCD_TOKEN_SIMPLE, NULL);
}

static inline int teardown(void **state)
{
	fake_token = fake_authorization = fake_cn = NULL;
	return rig_teardown(state);
}

/* root, and alice who reads and writes a..c and reads x. */
static inline void people(struct rig *r)
{
	user_add(r, "root", "rootpw");
	assert_ok(r);
	grant_role(r, "root", "root");
	assert_ok(r);
	user_add(r, "alice", "alicepw");
	role_add(r, "letters");
	grant_role(r, "alice", "letters");
	assert_ok(r);
	permit(r, "letters", AUTHPB__PERMISSION__TYPE__READWRITE, "a", B("b"));
	permit(r, "letters", AUTHPB__PERMISSION__TYPE__READWRITE, "b", B("c"));
	permit(r, "letters", AUTHPB__PERMISSION__TYPE__READ, "x", B(""));
	assert_ok(r);
	enable(r);
	assert_ok(r);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
