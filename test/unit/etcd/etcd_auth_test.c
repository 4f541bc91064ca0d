/* SPDX-License-Identifier: Apache-2.0 */
/* Auth; spec/etcd-semantics.md section 11. */
#include <crypt.h>
#include <sys/random.h>
#include <unistd.h>

#include <mbedtls/base64.h>
#include <mbedtls/pk.h>
#include <mbedtls/rsa.h>

#include "etcd_test_util.h"

#include <etcdserverpb/auth.pb-c.h>
#include <etcdserverpb/lease.pb-c.h>
#include <v3lockpb/v3lock.pb-c.h>

#define AUTH(name) "/etcdserverpb.Auth/" name
#define EMPTY "etcdserver: user name is empty"
#define DENIED "etcdserver: permission denied"
#define BAD_TOKEN "etcdserver: invalid auth token"

/* Hashing is done elsewhere: turns of the loop until the call is over. */
static void *call(
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

static void enable(struct rig *r)
{
	Etcdserverpb__AuthEnableRequest m = ETCDSERVERPB__AUTH_ENABLE_REQUEST__INIT;

	CALL(r, AUTH("AuthEnable"), &m, auth_enable_response);
}

static void disable(struct rig *r)
{
	Etcdserverpb__AuthDisableRequest m = ETCDSERVERPB__AUTH_DISABLE_REQUEST__INIT;

	CALL(r, AUTH("AuthDisable"), &m, auth_disable_response);
}

static uint64_t revision(struct rig *r)
{
	Etcdserverpb__AuthStatusRequest m = ETCDSERVERPB__AUTH_STATUS_REQUEST__INIT;
	Etcdserverpb__AuthStatusResponse *a = CALL(r, AUTH("AuthStatus"), &m, auth_status_response);

	return a ? a->authrevision : 0;
}

static void user_add(struct rig *r, const char *name, const char *password)
{
	Etcdserverpb__AuthUserAddRequest m = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;
	Authpb__UserAddOptions options = AUTHPB__USER_ADD_OPTIONS__INIT;

	m.name = (char *)name;
	m.password = (char *)(password ? password : "");
	options.no_password = !password;
	m.options = &options;
	CALL(r, AUTH("UserAdd"), &m, auth_user_add_response);
}

static void user_delete(struct rig *r, const char *name)
{
	Etcdserverpb__AuthUserDeleteRequest m = ETCDSERVERPB__AUTH_USER_DELETE_REQUEST__INIT;

	m.name = (char *)name;
	CALL(r, AUTH("UserDelete"), &m, auth_user_delete_response);
}

static void change_password(struct rig *r, const char *name, const char *password)
{
	Etcdserverpb__AuthUserChangePasswordRequest m =
		ETCDSERVERPB__AUTH_USER_CHANGE_PASSWORD_REQUEST__INIT;

	m.name = (char *)name;
	m.password = (char *)password;
	CALL(r, AUTH("UserChangePassword"), &m, auth_user_change_password_response);
}

static void grant_role(struct rig *r, const char *user, const char *role)
{
	Etcdserverpb__AuthUserGrantRoleRequest m = ETCDSERVERPB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;

	m.user = (char *)user;
	m.role = (char *)role;
	CALL(r, AUTH("UserGrantRole"), &m, auth_user_grant_role_response);
}

static void revoke_role(struct rig *r, const char *user, const char *role)
{
	Etcdserverpb__AuthUserRevokeRoleRequest m =
		ETCDSERVERPB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;

	m.name = (char *)user;
	m.role = (char *)role;
	CALL(r, AUTH("UserRevokeRole"), &m, auth_user_revoke_role_response);
}

static Etcdserverpb__AuthUserGetResponse *user_get(struct rig *r, const char *name)
{
	Etcdserverpb__AuthUserGetRequest m = ETCDSERVERPB__AUTH_USER_GET_REQUEST__INIT;

	m.name = (char *)name;
	return CALL(r, AUTH("UserGet"), &m, auth_user_get_response);
}

static void role_add(struct rig *r, const char *name)
{
	Etcdserverpb__AuthRoleAddRequest m = ETCDSERVERPB__AUTH_ROLE_ADD_REQUEST__INIT;

	m.name = (char *)name;
	CALL(r, AUTH("RoleAdd"), &m, auth_role_add_response);
}

static void role_delete(struct rig *r, const char *name)
{
	Etcdserverpb__AuthRoleDeleteRequest m = ETCDSERVERPB__AUTH_ROLE_DELETE_REQUEST__INIT;

	m.role = (char *)name;
	CALL(r, AUTH("RoleDelete"), &m, auth_role_delete_response);
}

static Etcdserverpb__AuthRoleGetResponse *role_get(struct rig *r, const char *name)
{
	Etcdserverpb__AuthRoleGetRequest m = ETCDSERVERPB__AUTH_ROLE_GET_REQUEST__INIT;

	m.role = (char *)name;
	return CALL(r, AUTH("RoleGet"), &m, auth_role_get_response);
}

static void permit(
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

static void forbid(struct rig *r, const char *role, const char *key, const char *end)
{
	Etcdserverpb__AuthRoleRevokePermissionRequest m =
		ETCDSERVERPB__AUTH_ROLE_REVOKE_PERMISSION_REQUEST__INIT;

	m.role = (char *)role;
	m.key = B(key);
	m.range_end = B(end);
	CALL(r, AUTH("RoleRevokePermission"), &m, auth_role_revoke_permission_response);
}

/* Token of the user, or NULL; kept until the next call. */
static const char *authenticate(struct rig *r, const char *name, const char *password)
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

static int setup_with(void **state, enum rp_etcd_token token, const char *key)
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

static int setup(void **state)
{
	return setup_with(state, RP_ETCD_TOKEN_SIMPLE, NULL);
}

static int teardown(void **state)
{
	fake_token = fake_authorization = fake_cn = NULL;
	return rig_teardown(state);
}

/* root, and alice who reads and writes a..c and reads x. */
static void people(struct rig *r)
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

static void test_users_and_roles(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__AuthUserListRequest users = ETCDSERVERPB__AUTH_USER_LIST_REQUEST__INIT;
	Etcdserverpb__AuthUserListResponse *list;
	Etcdserverpb__AuthUserGetResponse *u;
	Etcdserverpb__AuthRoleGetResponse *role;

	assert_int_equal(revision(r), 1);
	user_add(r, "", "x");
	assert_refused(r, INVALID, EMPTY);
	user_add(r, "bob", "x");
	assert_ok(r);
	user_add(r, "alice", NULL);
	assert_ok(r);
	assert_int_equal(revision(r), 3);
	user_add(r, "bob", "y");
	assert_refused(r, FAILED, "etcdserver: user name already exists");
	list = CALL(r, AUTH("UserList"), &users, auth_user_list_response);
	assert_int_equal(list->n_users, 2);
	assert_string_equal(list->users[0], "alice");
	role_add(r, "");
	assert_refused(r, INVALID, "etcdserver: role name is empty");
	role_add(r, "r2");
	role_add(r, "r1");
	role_add(r, "r1");
	assert_refused(r, FAILED, "etcdserver: role name already exists");
	grant_role(r, "bob", "none");
	assert_refused(r, FAILED, "etcdserver: role name not found");
	grant_role(r, "none", "r1");
	assert_refused(r, FAILED, "etcdserver: user name not found");
	grant_role(r, "bob", "r2");
	grant_role(r, "bob", "r1");
	assert_int_equal(revision(r), 7);
	grant_role(r, "bob", "r1");
	assert_ok(r);
	assert_int_equal(revision(r), 7);
	u = user_get(r, "bob");
	assert_int_equal(u->n_roles, 2);
	assert_string_equal(u->roles[0], "r1");
	user_get(r, "none");
	assert_refused(r, FAILED, "etcdserver: user name not found");
	permit(r, "none", 0, "a", B(""));
	assert_refused(r, FAILED, "etcdserver: role name not found");
	permit(r, "r1", 0, "", B(""));
	assert_refused(r, INVALID, "etcdserver: invalid auth management");
	permit(r, "r1", 0, "b", B("a"));
	assert_refused(r, INVALID, "etcdserver: invalid auth management");
	permit(r, "r1", 2, "b", B_from());
	permit(r, "r1", 1, "a", B(""));
	permit(r, "r1", 0, "a", B(""));
	role = role_get(r, "r1");
	assert_int_equal(role->n_perm, 2);
	assert_true(b_is(role->perm[0]->key, "a"));
	assert_int_equal(role->perm[0]->permtype, AUTHPB__PERMISSION__TYPE__READ);
	forbid(r, "r1", "a", "z");
	assert_refused(r, FAILED, "etcdserver: permission is not granted to the role");
	forbid(r, "r1", "a", "");
	assert_int_equal(role_get(r, "r1")->n_perm, 1);
	role_delete(r, "r1");
	assert_ok(r);
	assert_int_equal(user_get(r, "bob")->n_roles, 1);
	role_delete(r, "r1");
	assert_refused(r, FAILED, "etcdserver: role name not found");
	revoke_role(r, "bob", "r1");
	assert_refused(r, FAILED, "etcdserver: role is not granted to the user");
	revoke_role(r, "bob", "r2");
	assert_ok(r);
	user_delete(r, "bob");
	user_delete(r, "bob");
	assert_refused(r, FAILED, "etcdserver: user name not found");
	change_password(r, "bob", "x");
	assert_refused(r, FAILED, "etcdserver: user name not found");
	role_add(r, "root");
	role = role_get(r, "root");
	assert_int_equal(role->n_perm, 1);
	assert_int_equal(role->perm[0]->key.len, 0);
	assert_int_equal(role->perm[0]->range_end.len, 1);
	/* None of it is a key, nor a revision. */
	assert_int_equal(rp_kv_revision(r->kv), 1);
}

static void test_permission_absent(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__AuthRoleGrantPermissionRequest m =
		ETCDSERVERPB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;

	m.name = (char *)"r";
	CALL(r, AUTH("RoleGrantPermission"), &m, auth_role_grant_permission_response);
	assert_refused(r, INVALID, "etcdserver: permission not given");
}

static void test_enable(void **state)
{
	struct rig *r = *state;
	uint64_t before;

	enable(r);
	assert_refused(r, FAILED, "etcdserver: root user does not exist");
	user_add(r, "root", "rootpw");
	enable(r);
	assert_refused(r, FAILED, "etcdserver: root user does not have root role");
	authenticate(r, "root", "rootpw");
	assert_refused(r, FAILED, "etcdserver: authentication is not enabled");
	grant_role(r, "root", "root");
	before = revision(r);
	enable(r);
	assert_ok(r);
	enable(r);
	assert_refused(r, INVALID, EMPTY);
	fake_token = authenticate(r, "root", "rootpw");
	assert_non_null(fake_token);
	assert_int_equal(strchr(fake_token, '.') - fake_token, 16);
	assert_int_equal(revision(r), before);
	enable(r);
	assert_ok(r);
	user_delete(r, "root");
	assert_refused(r, INVALID, "etcdserver: invalid auth management");
	revoke_role(r, "root", "root");
	assert_refused(r, INVALID, "etcdserver: invalid auth management");
	role_delete(r, "root");
	assert_refused(r, INVALID, "etcdserver: invalid auth management");
	disable(r);
	assert_ok(r);
	/* Off: whatever token comes is not looked at. */
	fake_token = "rubbish";
	rig_put(r, "k", "v");
	assert_ok(r);
	assert_int_equal(revision(r), before + 1);
}

static void test_authenticate(void **state)
{
	struct rig *r = *state;

	people(r);
	assert_null(authenticate(r, "alice", "wrong"));
	assert_refused(
		r, INVALID, "etcdserver: authentication failed, invalid user ID or password");
	assert_null(authenticate(r, "nobody", "x"));
	assert_refused(
		r, INVALID, "etcdserver: authentication failed, invalid user ID or password");
	fake_token = authenticate(r, "root", "rootpw");
	user_add(r, "mute", NULL);
	assert_ok(r);
	fake_token = NULL;
	assert_null(authenticate(r, "mute", ""));
	assert_refused(r, RP_GRPC_UNKNOWN,
		"auth: authentication failed, password was given for no password user");
}

static void test_tokens(void **state)
{
	struct rig *r = *state;
	const char *alice, *root;
	char bearer[128];

	people(r);
	rig_put(r, "a", "1");
	assert_refused(r, INVALID, EMPTY);
	fake_token = "abc.1";
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	alice = fake_token = authenticate(r, "alice", "alicepw");
	rig_put(r, "a", "1");
	assert_ok(r);
	fake_token = NULL;
	fake_authorization = alice;
	rig_put(r, "a", "1");
	assert_ok(r);
	snprintf(bearer, sizeof(bearer), "Bearer %s", alice);
	fake_authorization = bearer;
	rig_put(r, "a", "1");
	assert_ok(r);
	fake_authorization = NULL;
	/* It lives on by being used, and ends by not being used. */
	fake_token = alice;
	for (int i = 0; i < 4; i++) {
		r->now_ns += 8 * RP_NS_PER_S;
		rig_run(r);
		rig_put(r, "a", "1");
		assert_ok(r);
	}
	r->now_ns += 11 * RP_NS_PER_S;
	rig_run(r);
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	/* Another password, and the user's end. */
	alice = authenticate(r, "alice", "alicepw");
	root = fake_token = authenticate(r, "root", "rootpw");
	change_password(r, "alice", "other");
	assert_ok(r);
	fake_token = alice;
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	alice = authenticate(r, "alice", "other");
	fake_token = root;
	user_delete(r, "alice");
	fake_token = alice;
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	fake_token = root;
	disable(r);
	assert_ok(r);
	enable(r);
	assert_ok(r);
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
}

static void test_certificate(void **state)
{
	struct rig *r = *state;

	people(r);
	fake_cn = "alice";
	rig_put(r, "a", "1");
	assert_ok(r);
	rig_put(r, "z", "1");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	fake_cn = "nobody";
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	/* A token is stronger. */
	fake_cn = "alice";
	fake_token = authenticate(r, "root", "rootpw");
	rig_put(r, "z", "1");
	assert_ok(r);
}

static int txn_code(struct rig *r, const char *put, const char *nested_get, const char *compare)
{
	Etcdserverpb__TxnRequest t = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__TxnRequest inner = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__RequestOp op = ETCDSERVERPB__REQUEST_OP__INIT;
	Etcdserverpb__RequestOp inner_op = ETCDSERVERPB__REQUEST_OP__INIT;
	Etcdserverpb__RequestOp nested = ETCDSERVERPB__REQUEST_OP__INIT;
	Etcdserverpb__PutRequest p = ETCDSERVERPB__PUT_REQUEST__INIT;
	Etcdserverpb__RangeRequest g = ETCDSERVERPB__RANGE_REQUEST__INIT;
	Etcdserverpb__Compare c = ETCDSERVERPB__COMPARE__INIT, *compares[1] = {&c};
	Etcdserverpb__RequestOp *success[1] = {&op}, *failure[1] = {&nested},
				*inner_failure[1] = {&inner_op};

	p.key = B(put);
	op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
	op.request_put = &p;
	g.key = B(nested_get);
	inner_op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
	inner_op.request_range = &g;
	inner.failure = inner_failure;
	inner.n_failure = 1;
	nested.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN;
	nested.request_txn = &inner;
	c.key = B(compare);
	t.compare = compares;
	t.n_compare = 1;
	t.success = success;
	t.n_success = 1;
	t.failure = failure;
	t.n_failure = 1;
	CALL(r, RIG_TXN, &t, txn_response);
	return r->code;
}

static void test_keys(void **state)
{
	struct rig *r = *state;
	const char *root;

	people(r);
	root = authenticate(r, "root", "rootpw");
	fake_token = authenticate(r, "alice", "alicepw");
	rig_get(r, "a", "");
	assert_ok(r);
	rig_get(r, "a", "c"); /* both permissions together */
	assert_ok(r);
	rig_get(r, "a", "d");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	rig_get(r, "c", "");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	rig_get(r, "x", "");
	assert_ok(r);
	rig_get(r, "xx", "");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	rig_put(r, "x", "1");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	rig_put(r, "bzz", "1");
	assert_ok(r);
	rig_delete(r, "a", "c");
	assert_ok(r);
	rig_delete(r, "a", "x");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	assert_int_equal(txn_code(r, "a", "b", "x"), 0);
	assert_int_equal(txn_code(r, "z", "b", "x"), RP_GRPC_PERMISSION_DENIED);
	assert_int_equal(txn_code(r, "a", "z", "x"), RP_GRPC_PERMISSION_DENIED);
	assert_int_equal(txn_code(r, "a", "b", "z"), RP_GRPC_PERMISSION_DENIED);
	fake_token = root;
	rig_get(r, "a", "z");
	assert_ok(r);
	/* "From here on" needs just that. */
	permit(r, "letters", AUTHPB__PERMISSION__TYPE__READ, "m", B_from());
	fake_token = authenticate(r, "alice", "alicepw");
	rig_get(r, "n", "");
	assert_ok(r);
	rig_get(r, "zzzz", "");
	assert_ok(r);
}

static void test_write_only(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__PutRequest p = ETCDSERVERPB__PUT_REQUEST__INIT;
	const char *root;

	people(r);
	root = fake_token = authenticate(r, "root", "rootpw");
	permit(r, "letters", AUTHPB__PERMISSION__TYPE__WRITE, "w", B(""));
	fake_token = authenticate(r, "alice", "alicepw");
	p.key = B("w");
	CALL(r, RIG_PUT, &p, put_response);
	assert_ok(r);
	p.prev_kv = 1;
	CALL(r, RIG_PUT, &p, put_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	rig_get(r, "w", "");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	fake_token = root;
	forbid(r, "letters", "w", "");
	assert_ok(r);
	fake_token = authenticate(r, "alice", "alicepw");
	p.prev_kv = 0;
	CALL(r, RIG_PUT, &p, put_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
}

static const char *watch_reason(struct rig *r, const char *key, const char *end)
{
	static char reason[256];
	struct rp_grpc_call *c = fake_call_new(r->server, RIG_WATCH, NULL);
	Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchRequest m = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchResponse *a;
	const struct fake_answer *answer;

	create.key = B(key);
	create.range_end = B(end);
	m.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	m.create_request = &create;
	rig_send(c, &m);
	answer = fake_call_next(c);
	assert_non_null(answer);
	a = etcdserverpb__watch_response__unpack(NULL, answer->length, answer->data);
	snprintf(reason, sizeof(reason), "%s", a->canceled ? a->cancel_reason : "created");
	etcdserverpb__watch_response__free_unpacked(a, NULL);
	fake_call_free(c);
	return reason;
}

static void test_watch(void **state)
{
	struct rig *r = *state;

	people(r);
	assert_string_equal(watch_reason(r, "a", ""),
		"rpc error: code = InvalidArgument desc = etcdserver: user name is empty");
	fake_token = "bad";
	assert_string_equal(watch_reason(r, "a", ""),
		"rpc error: code = Unauthenticated desc = etcdserver: invalid auth token");
	fake_token = authenticate(r, "alice", "alicepw");
	assert_string_equal(watch_reason(r, "a", ""), "created");
	assert_string_equal(watch_reason(r, "a", "z"),
		"rpc error: code = PermissionDenied desc = etcdserver: permission denied");
}

static int lease_call(struct rig *r, const char *what, int64_t id)
{
	Etcdserverpb__LeaseGrantRequest grant = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
	Etcdserverpb__LeaseRevokeRequest revoke = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
	Etcdserverpb__LeaseTimeToLiveRequest ttl = ETCDSERVERPB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
	Etcdserverpb__LeaseKeepAliveRequest alive = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;
	struct rp_grpc_call *c;

	grant.id = revoke.id = ttl.id = alive.id = id;
	grant.ttl = 60;
	ttl.keys = strcmp(what, "keys") == 0;
	if (strcmp(what, "grant") == 0) {
		CALL(r, "/etcdserverpb.Lease/LeaseGrant", &grant, lease_grant_response);
	} else if (strcmp(what, "revoke") == 0) {
		CALL(r, "/etcdserverpb.Lease/LeaseRevoke", &revoke, lease_revoke_response);
	} else if (strcmp(what, "alive") == 0) {
		c = fake_call_new(r->server, "/etcdserverpb.Lease/LeaseKeepAlive", NULL);
		rig_send(c, &alive);
		r->code = c->over ? c->code : 0;
		fake_call_free(c);
	} else {
		CALL(r, "/etcdserverpb.Lease/LeaseTimeToLive", &ttl, lease_time_to_live_response);
	}
	return r->code;
}

static void test_leases(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__PutRequest p = ETCDSERVERPB__PUT_REQUEST__INIT;
	const char *root, *alice;

	people(r);
	root = authenticate(r, "root", "rootpw");
	alice = authenticate(r, "alice", "alicepw");
	assert_int_equal(lease_call(r, "grant", 1), INVALID);
	assert_int_equal(lease_call(r, "alive", 1), INVALID);
	fake_token = alice;
	assert_int_equal(lease_call(r, "grant", 1), 0);
	assert_int_equal(lease_call(r, "alive", 1), 0);
	p.lease = 1;
	p.key = B("a");
	CALL(r, RIG_PUT, &p, put_response);
	assert_ok(r);
	assert_int_equal(lease_call(r, "keys", 1), 0);
	/* With somebody else's key on it, it is no longer hers alone. */
	fake_token = root;
	p.key = B("z");
	CALL(r, RIG_PUT, &p, put_response);
	assert_ok(r);
	fake_token = alice;
	p.key = B("a");
	CALL(r, RIG_PUT, &p, put_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	assert_int_equal(lease_call(r, "ttl", 1), 0);
	assert_int_equal(lease_call(r, "keys", 1), RP_GRPC_PERMISSION_DENIED);
	assert_int_equal(lease_call(r, "revoke", 1), RP_GRPC_PERMISSION_DENIED);
	assert_int_equal(lease_call(r, "alive", 1), RP_GRPC_PERMISSION_DENIED);
	fake_token = root;
	assert_int_equal(lease_call(r, "revoke", 1), 0);
}

static void test_lock(void **state)
{
	struct rig *r = *state;
	V3lockpb__LockRequest m = V3LOCKPB__LOCK_REQUEST__INIT;

	people(r);
	m.name = B("z");
	call(r, "/v3lockpb.Lock/Lock", &m, &v3lockpb__lock_response__descriptor);
	assert_refused(r, RP_GRPC_UNKNOWN, EMPTY);
	fake_token = authenticate(r, "alice", "alicepw");
	call(r, "/v3lockpb.Lock/Lock", &m, &v3lockpb__lock_response__descriptor);
	assert_refused(r, RP_GRPC_UNKNOWN, DENIED);
	m.name = B("a");
	call(r, "/v3lockpb.Lock/Lock", &m, &v3lockpb__lock_response__descriptor);
	assert_ok(r);
}

static int maintenance(struct rig *r, const char *path)
{
	Etcdserverpb__StatusRequest m = ETCDSERVERPB__STATUS_REQUEST__INIT;
	struct rp_grpc_call *c = fake_call_new(r->server, path, NULL);
	int code;

	rig_send(c, &m); /* empty, as all of these may be */
	code = c->code;
	fake_call_free(c);
	return code;
}

/* Who may call what, of methods that name no key. */
static void test_methods(void **state)
{
	static const char *const root_only[] = {"/etcdserverpb.KV/Compact",
		"/etcdserverpb.Maintenance/Hash", "/etcdserverpb.Maintenance/HashKV",
		"/etcdserverpb.Maintenance/Defragment", "/etcdserverpb.Maintenance/Snapshot",
		"/etcdserverpb.Maintenance/MoveLeader", "/etcdserverpb.Maintenance/Downgrade",
		"/etcdserverpb.Cluster/MemberAdd", "/etcdserverpb.Cluster/MemberRemove",
		"/etcdserverpb.Cluster/MemberUpdate", "/etcdserverpb.Cluster/MemberPromote",
		AUTH("AuthEnable"), AUTH("AuthDisable"), AUTH("AuthStatus"), AUTH("UserAdd"),
		AUTH("UserList"), AUTH("UserDelete"), AUTH("UserChangePassword"),
		AUTH("UserGrantRole"), AUTH("UserRevokeRole"), AUTH("RoleAdd"), AUTH("RoleList"),
		AUTH("RoleDelete"), AUTH("RoleGrantPermission"), AUTH("RoleRevokePermission"),
		AUTH("UserGet"), AUTH("RoleGet")};
	static const char *const any_user[] = {"/etcdserverpb.Maintenance/Status",
		"/etcdserverpb.Maintenance/Alarm", "/etcdserverpb.Cluster/MemberList",
		"/etcdserverpb.Lease/LeaseLeases"};
	struct rig *r = *state;
	Etcdserverpb__AlarmRequest alarm = ETCDSERVERPB__ALARM_REQUEST__INIT;
	struct rp_grpc_call *c;

	people(r);
	for (size_t i = 0; i < RP_ARRAY_SIZE(root_only); i++)
		assert_int_equal(maintenance(r, root_only[i]), INVALID);
	for (size_t i = 0; i < RP_ARRAY_SIZE(any_user); i++)
		assert_int_equal(maintenance(r, any_user[i]), INVALID);
	/* A node that dials shows no token. */
	c = fake_call_new(r->server, "/etcdserverpb.Maintenance/Status", NULL);
	c->x_peer = true;
	fake_call_send(c, "", 0);
	assert_int_equal(c->code, 0);
	fake_call_free(c);
	fake_token = authenticate(r, "alice", "alicepw");
	for (size_t i = 0; i < RP_ARRAY_SIZE(root_only); i++)
		assert_int_equal(maintenance(r, root_only[i]), RP_GRPC_PERMISSION_DENIED);
	for (size_t i = 0; i < RP_ARRAY_SIZE(any_user); i++)
		assert_int_equal(maintenance(r, any_user[i]), 0);
	alarm.action = ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE;
	CALL(r, "/etcdserverpb.Maintenance/Alarm", &alarm, alarm_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	/* Of herself she may know. */
	assert_non_null(user_get(r, "alice"));
	user_get(r, "root");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	assert_non_null(role_get(r, "letters"));
	role_get(r, "other");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
}

static void test_queue_keys(void **state)
{
	struct rig *r = *state;
	const char *root;

	people(r);
	root = authenticate(r, "root", "rootpw");
	fake_token = authenticate(r, "alice", "alicepw");
	rig_put(r, "/q/jobs/p/1", "x");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	assert_string_equal(watch_reason(r, "/q/jobs/c/" UUID, ""),
		"rpc error: code = PermissionDenied desc = etcdserver: permission denied");
	fake_token = root;
	permit(r, "letters", AUTHPB__PERMISSION__TYPE__READWRITE, "/q/jobs/", B("/q/jobs0"));
	fake_token = authenticate(r, "alice", "alicepw");
	rig_put(r, "/q/jobs/p/1", "x");
	assert_ok(r);
	/* The other name of the same queue. */
	rig_put(r, "/queue/jobs/p/2", "x");
	assert_ok(r);
	rig_put(r, "/queue/other/p/2", "x");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
}

/* What the peers tell: the same records, in another node's store. */
static void test_replicated(void **state)
{
	struct rig *r = *state;
	struct rp_kv_record records[64];
	struct rig *other;
	uint32_t n;

	people(r);
	n = rp_kv_record_page(r->kv, (struct rp_span){0}, false, (struct rp_span){0}, records, 64);
	setup((void **)&other);
	rp_kv_apply_replicated(other->kv, records, n, 1);
	rig_put(other, "a", "1");
	assert_refused(other, INVALID, EMPTY);
	fake_token = authenticate(other, "alice", "alicepw");
	assert_non_null(fake_token);
	rig_put(other, "a", "1");
	assert_ok(other);
	rig_put(other, "z", "1");
	assert_refused(other, RP_GRPC_PERMISSION_DENIED, DENIED);
	teardown((void **)&other);
}

/* The client goes while its password is hashed. */
static void test_cancelled(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, AUTH("UserAdd"), NULL);
	Etcdserverpb__AuthUserAddRequest m = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;

	m.name = (char *)"u";
	m.password = (char *)"p";
	rig_send(c, &m);
	fake_call_free(c);
	for (int i = 0; i < 100; i++) {
		usleep(1000);
		rp_etcd_run(r->e, r->now_ns);
	}
	/* And one that is never looked at again. */
	c = fake_call_new(r->server, AUTH("UserAdd"), NULL);
	m.name = (char *)"v";
	rig_send(c, &m);
	fake_call_free(c);
}

static void test_hash_given(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__AuthUserAddRequest m = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;
	struct crypt_data *data = calloc(1, sizeof(*data));
	char setting[CRYPT_GENSALT_OUTPUT_SIZE];
	unsigned char base64[128];
	const char *hash;
	size_t n;

	people(r);
	fake_token = authenticate(r, "root", "rootpw");
	m.name = (char *)"given";
	m.hashedpassword = (char *)"bm90IGEgaGFzaA==";
	CALL(r, AUTH("UserAdd"), &m, auth_user_add_response);
	assert_int_equal(r->code, INVALID);
	crypt_gensalt_rn("$2b$", 4, "0123456789abcdef", 16, setting, sizeof(setting));
	hash = crypt_rn("pass", setting, data, sizeof(*data));
	assert_non_null(hash);
	assert_int_equal(mbedtls_base64_encode(base64, sizeof(base64), &n,
				 (const unsigned char *)hash, strlen(hash)),
		0);
	free(data);
	m.hashedpassword = (char *)base64;
	CALL(r, AUTH("UserAdd"), &m, auth_user_add_response);
	assert_ok(r);
	assert_null(authenticate(r, "given", "not pass"));
	assert_non_null(authenticate(r, "given", "pass"));
}

static int setup_hs256(void **state)
{
	FILE *f = fopen("etcd_auth_test.key", "w");

	fputs("a secret that is long enough to be one", f);
	fclose(f);
	return setup_with(state, RP_ETCD_TOKEN_JWT_HS256, "etcd_auth_test.key");
}

static void test_jwt(void **state)
{
	struct rig *r = *state;
	const char *alice, *root;
	char bad[2048];

	people(r);
	root = authenticate(r, "root", "rootpw");
	alice = fake_token = authenticate(r, "alice", "alicepw");
	assert_non_null(alice);
	assert_int_equal(strncmp(alice, "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.", 37), 0);
	rig_put(r, "a", "1");
	assert_ok(r);
	rig_put(r, "z", "1");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	/* Each byte of it counts. */
	for (size_t i = 0; i < strlen(alice); i += 7) {
		snprintf(bad, sizeof(bad), "%s", alice);
		bad[i] = bad[i] == 'A' ? 'B' : 'A';
		fake_token = bad;
		rig_put(r, "a", "1");
		if (strcmp(bad, alice) != 0 && i + 1 < strlen(alice))
			assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	}
	fake_token =
		"eyJhbGciOiJub25lIn0.eyJ1c2VybmFtZSI6InJvb3QiLCJyZXZpc2lvbiI6OSwiZXhwIjo5OTk5OTk5"
		"OTk5fQ.";
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	/* A change of the auth store makes those from before old. */
	fake_token = root;
	role_add(r, "new");
	assert_ok(r);
	fake_token = alice;
	rig_put(r, "a", "1");
	assert_refused(r, INVALID, "etcdserver: revision of auth store is old");
	fake_token = authenticate(r, "alice", "alicepw");
	rig_put(r, "a", "1");
	assert_ok(r);
	unlink("etcd_auth_test.key");
}

static int test_random(void *ctx, unsigned char *out, size_t length)
{
	return getrandom(out, length, 0) == (ssize_t)length ? 0 : -1;
}

static int setup_rs256(void **state)
{
	static unsigned char pem[8192];
	mbedtls_pk_context key;
	FILE *f;

	mbedtls_pk_init(&key);
	assert_int_equal(mbedtls_pk_setup(&key, mbedtls_pk_info_from_type(MBEDTLS_PK_RSA)), 0);
	assert_int_equal(
		mbedtls_rsa_gen_key(mbedtls_pk_rsa(key), test_random, NULL, 1024, 65537), 0);
	assert_int_equal(mbedtls_pk_write_key_pem(&key, pem, sizeof(pem)), 0);
	mbedtls_pk_free(&key);
	f = fopen("etcd_auth_test.pem", "w");
	fputs((const char *)pem, f);
	fclose(f);
	return setup_with(state, RP_ETCD_TOKEN_JWT_RS256, "etcd_auth_test.pem");
}

static void test_jwt_rs256(void **state)
{
	struct rig *r = *state;
	char bad[2048];

	people(r);
	fake_token = authenticate(r, "alice", "alicepw");
	assert_non_null(fake_token);
	rig_put(r, "a", "1");
	assert_ok(r);
	snprintf(bad, sizeof(bad), "%s", fake_token);
	bad[strlen(bad) / 2] ^= 1;
	fake_token = bad;
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	unlink("etcd_auth_test.pem");
}

/* A key that is none: the services do not start. */
static void test_bad_key(void **state)
{
	struct rig *r = *state;
	struct rp_etcd_config config = {.cluster_id = 1, .member_id = 1, .raft_term = 1};

	config.kv = r->kv;
	config.server = r->server;
	config.backend = &r->node.backend;
	config.token = RP_ETCD_TOKEN_JWT_RS256;
	config.jwt_private_key = "/dev/null";
	assert_null(rp_etcd_create(&config));
	config.token = RP_ETCD_TOKEN_JWT_HS256;
	config.jwt_private_key = NULL;
	assert_null(rp_etcd_create(&config));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_users_and_roles),
		T(test_permission_absent),
		T(test_enable),
		T(test_authenticate),
		T(test_tokens),
		T(test_certificate),
		T(test_keys),
		T(test_write_only),
		T(test_watch),
		T(test_leases),
		T(test_lock),
		T(test_methods),
		T(test_queue_keys),
		T(test_replicated),
		T(test_cancelled),
		T(test_hash_given),
		cmocka_unit_test_setup_teardown(test_jwt, setup_hs256, teardown),
		cmocka_unit_test_setup_teardown(test_jwt_rs256, setup_rs256, teardown),
		T(test_bad_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
