/* SPDX-License-Identifier: Apache-2.0 */
/* Auth: who may do what; spec/etcd-semantics.md section 11. */
#include "etcd_auth_rig.h"

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

static int put_in_txn(struct rig *r, const char *key, const char *value)
{
	Etcdserverpb__TxnRequest t = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__RequestOp op = ETCDSERVERPB__REQUEST_OP__INIT, *ops[1] = {&op};
	Etcdserverpb__PutRequest p = ETCDSERVERPB__PUT_REQUEST__INIT;

	p.key = B(key);
	p.value = B(value);
	op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
	op.request_put = &p;
	t.success = ops;
	t.n_success = 1;
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

#define ASK(reply) "{\"v\":1,\"ttl_ms\":1000," reply "\"data\":1}"

/* Answers go where an envelope says: only where its sender may write himself. */
static void test_reply_to(void **state)
{
	struct rig *r = *state;
	const char *root;

	people(r);
	root = fake_token = authenticate(r, "root", "rootpw");
	permit(r, "letters", AUTHPB__PERMISSION__TYPE__READWRITE, "/q/jobs/", B("/q/jobs0"));
	fake_token = authenticate(r, "alice", "alicepw");
	rig_put(r, "/q/jobs/p/1", ASK("\"reply_to\":\"others\","));
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	rig_put(r, "/q/jobs/p/1", ASK(""));
	assert_ok(r);
	/* What is no envelope names nothing. */
	rig_put(r, "/q/jobs/p/1", "{\"v\":1,\"reply_to\":\"others\"}");
	assert_ok(r);
	/* In a txn as well. */
	assert_int_equal(put_in_txn(r, "/q/jobs/p/1", ASK("\"reply_to\":\"others\",")),
		RP_GRPC_PERMISSION_DENIED);
	assert_int_equal(put_in_txn(r, "/q/jobs/p/1", ASK("")), 0);
	/* One key of it is enough, by whatever name. */
	fake_token = root;
	permit(r, "letters", AUTHPB__PERMISSION__TYPE__WRITE, "/queue/others/producer/2", B(""));
	fake_token = authenticate(r, "alice", "alicepw");
	rig_put(r, "/q/jobs/p/1", ASK("\"reply_to\":\"others\","));
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	rig_put(r, "/q/jobs/p/2", ASK("\"reply_to\":\"others\","));
	assert_ok(r);
	fake_token = root;
	rig_put(r, "/q/jobs/p/1", ASK("\"reply_to\":\"others\","));
	assert_ok(r);
	disable(r);
	fake_token = NULL;
	rig_put(r, "/q/jobs/p/1", ASK("\"reply_to\":\"others\","));
	assert_ok(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_keys),
		T(test_write_only),
		T(test_watch),
		T(test_leases),
		T(test_lock),
		T(test_methods),
		T(test_queue_keys),
		T(test_reply_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
