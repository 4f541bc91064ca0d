/* SPDX-License-Identifier: Apache-2.0 */
/* Auth: users, roles, on and off; spec/etcd-semantics.md section 11. */
#include <crypt.h>

#include <mbedtls/base64.h>

#include "etcd_auth_rig.h"

static void test_users_and_roles(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__AuthUserListRequest users = ETCDSERVERPB__AUTH_USER_LIST_REQUEST__INIT;
	Etcdserverpb__AuthUserListResponse *list;
	Etcdserverpb__AuthRoleListRequest roles = ETCDSERVERPB__AUTH_ROLE_LIST_REQUEST__INIT;
	Etcdserverpb__AuthRoleListResponse *listed;
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
	listed = CALL(r, AUTH("RoleList"), &roles, auth_role_list_response);
	assert_int_equal(listed->n_roles, 2);
	assert_string_equal(listed->roles[0], "r1");
	assert_string_equal(listed->roles[1], "r2");
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_users_and_roles),
		T(test_permission_absent),
		T(test_enable),
		T(test_authenticate),
		T(test_replicated),
		T(test_cancelled),
		T(test_hash_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
