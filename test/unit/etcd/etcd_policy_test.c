/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix policy at each service (spec/cluster.md, Policy); what meets a rule:
 * unit/route/policy. */
#include "etcd_test_util.h"

#include <etcdserverpb/lease.pb-c.h>
#include <v3electionpb/v3election.pb-c.h>
#include <v3lockpb/v3lock.pb-c.h>

#define TEXT_LOCAL "ringpost: local_only_prefix: served to callers on the node's host only"
#define TEXT_READONLY "ringpost: readonly_prefix: no call writes here"
#define CALL(conn, path, m, d) rig_call_on(r, conn, path, m, &d##__descriptor)

static struct rp_policy *policy_new(const char *local_only, const char *readonly)
{
	struct rp_policy_config c = {
		.local_only = {.items = &local_only, .count = local_only != NULL},
		.readonly = {.items = &readonly, .count = readonly != NULL},
	};
	struct rp_policy *p = rp_policy_create(&c);

	assert_non_null(p);
	return p;
}

static void policy_free(struct rig *r, struct rp_policy *p)
{
	rp_etcd_set_policy(r->e, NULL);
	rp_policy_destroy(p);
}

static uint64_t refused(struct rig *r)
{
	struct rp_etcd_stats s;

	rp_etcd_stats_get(r->e, &s);
	return s.policy_refused;
}

static void test_readonly(void **state)
{
	struct rig *r = *state;
	struct rp_policy *p = policy_new(NULL, "ro/");
	Etcdserverpb__TxnRequest txn = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__RequestOp op = ETCDSERVERPB__REQUEST_OP__INIT, *ops[] = {&op};
	Etcdserverpb__DeleteRangeRequest del = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;

	rig_put(r, "ro/k", "before");
	assert_int_equal(r->code, 0);
	rp_etcd_set_policy(r->e, p);
	rig_put(r, "ro/k", "after");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_READONLY);
	rig_delete(r, "ro/k", "");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_READONLY);
	/* A range that holds one such key, and a branch that is not taken. */
	rig_delete(r, "a", "z");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_READONLY);
	op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
	op.request_delete_range = &del;
	del.key = B("ro/other");
	txn.failure = ops;
	txn.n_failure = 1;
	CALL(NULL, RIG_TXN, &txn, etcdserverpb__txn_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_READONLY);
	assert_int_equal(refused(r), 4);
	assert_int_equal(rig_get(r, "ro/k", "")->n_kvs, 1);
	rig_put(r, "rw/k", "v");
	assert_int_equal(r->code, 0);
	rig_delete(r, "rw/", "rw0");
	assert_int_equal(r->code, 0);
	policy_free(r, p);
	rig_put(r, "ro/k", "after");
	assert_int_equal(r->code, 0);
}

static void test_local_only(void **state)
{
	struct rig *r = *state;
	struct rp_policy *p = policy_new("host/", NULL);
	struct rp_grpc_conn *remote = fake_conn_new(true);
	Etcdserverpb__RangeRequest get = ETCDSERVERPB__RANGE_REQUEST__INIT;
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	Etcdserverpb__TxnRequest txn = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__Compare compare = ETCDSERVERPB__COMPARE__INIT, *compares[] = {&compare};
	V3lockpb__LockRequest lock = V3LOCKPB__LOCK_REQUEST__INIT;
	V3electionpb__LeaderRequest leader = V3ELECTIONPB__LEADER_REQUEST__INIT;

	rp_etcd_set_policy(r->e, p);
	rig_put(r, "host/k", "v");
	assert_int_equal(r->code, 0);
	get.key = put.key = compare.key = B("host/k");
	CALL(remote, RIG_RANGE, &get, etcdserverpb__range_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_LOCAL);
	get.key = get.range_end = B_from();
	CALL(remote, RIG_RANGE, &get, etcdserverpb__range_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_LOCAL);
	CALL(remote, RIG_PUT, &put, etcdserverpb__put_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_LOCAL);
	/* What a compare tells is a read. */
	compare.target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__VERSION;
	compare.target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION;
	txn.compare = compares;
	txn.n_compare = 1;
	CALL(remote, RIG_TXN, &txn, etcdserverpb__txn_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_LOCAL);
	lock.name = leader.name = B("host/lock");
	CALL(remote, "/v3lockpb.Lock/Lock", &lock, v3lockpb__lock_response);
	assert_refused(r, RP_GRPC_UNKNOWN, TEXT_LOCAL);
	CALL(remote, "/v3electionpb.Election/Leader", &leader, v3electionpb__leader_response);
	assert_refused(r, RP_GRPC_UNKNOWN, TEXT_LOCAL);
	get.key = B("free");
	get.range_end = B("g");
	CALL(remote, RIG_RANGE, &get, etcdserverpb__range_response);
	assert_int_equal(r->code, 0);
	policy_free(r, p);
	fake_conn_free(remote);
}

/* A lease is what its keys are. */
static void test_leases(void **state)
{
	struct rig *r = *state;
	struct rp_policy *p = policy_new("host/", "ro/");
	struct rp_grpc_conn *remote = fake_conn_new(true);
	Etcdserverpb__LeaseGrantRequest grant = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
	Etcdserverpb__LeaseRevokeRequest revoke = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
	Etcdserverpb__LeaseTimeToLiveRequest ttl = ETCDSERVERPB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;

	for (int64_t id = 7; id <= 8; id++) {
		grant.id = put.lease = id;
		grant.ttl = 60;
		put.key = B(id == 7 ? "ro/k" : "host/k");
		CALL(NULL, "/etcdserverpb.Lease/LeaseGrant", &grant,
			etcdserverpb__lease_grant_response);
		CALL(NULL, RIG_PUT, &put, etcdserverpb__put_response);
		assert_int_equal(r->code, 0);
	}
	rp_etcd_set_policy(r->e, p);
	revoke.id = put.lease = 7;
	CALL(NULL, "/etcdserverpb.Lease/LeaseRevoke", &revoke, etcdserverpb__lease_revoke_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_READONLY);
	put.key = B("rw/k");
	CALL(NULL, RIG_PUT, &put, etcdserverpb__put_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_READONLY);
	ttl.id = 8;
	ttl.keys = 1;
	CALL(remote, "/etcdserverpb.Lease/LeaseTimeToLive", &ttl,
		etcdserverpb__lease_time_to_live_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_LOCAL);
	CALL(NULL, "/etcdserverpb.Lease/LeaseTimeToLive", &ttl,
		etcdserverpb__lease_time_to_live_response);
	assert_int_equal(r->code, 0);
	policy_free(r, p);
	CALL(NULL, "/etcdserverpb.Lease/LeaseRevoke", &revoke, etcdserverpb__lease_revoke_response);
	assert_int_equal(r->code, 0);
	fake_conn_free(remote);
}

/* A snapshot holds all keys. */
static void test_snapshot(void **state)
{
	struct rig *r = *state;
	struct rp_policy *p = policy_new("host/", NULL);
	struct rp_grpc_conn *remote = fake_conn_new(true);
	Etcdserverpb__SnapshotRequest m = ETCDSERVERPB__SNAPSHOT_REQUEST__INIT;

	rp_etcd_set_policy(r->e, p);
	CALL(remote, "/etcdserverpb.Maintenance/Snapshot", &m, etcdserverpb__snapshot_response);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, TEXT_LOCAL);
	policy_free(r, p);
	fake_conn_free(remote);
}

static void watch(struct rp_grpc_call *c, const char *key, const char *end)
{
	Etcdserverpb__WatchRequest w = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest m = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;

	m.key = B(key);
	m.range_end = B(end);
	w.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	w.create_request = &m;
	rig_send(c, &w);
}

static Etcdserverpb__WatchResponse *next(struct rig *r, struct rp_grpc_call *c)
{
	const struct fake_answer *a = fake_call_next(c);

	rig_answer_free(r);
	if (a)
		r->answer = etcdserverpb__watch_response__unpack(NULL, a->length, a->data);
	return r->answer;
}

static void expect_end(struct rig *r, struct rp_grpc_call *c, int64_t id)
{
	Etcdserverpb__WatchResponse *w = next(r, c);

	assert_non_null(w);
	assert_int_equal(w->watch_id, id);
	assert_true(w->canceled);
	assert_string_equal(
		w->cancel_reason, "rpc error: code = PermissionDenied desc = " TEXT_LOCAL);
}

/* A rule that comes ends the watches that it forbids, those only, and on that stream only. */
static void test_watches(void **state)
{
	struct rig *r = *state;
	struct rp_policy *p = policy_new("host/", NULL), *q = policy_new("/q/jobs/", NULL);
	struct rp_grpc_conn *remote = fake_conn_new(true);
	struct rp_grpc_call *far = fake_call_new(r->server, RIG_WATCH, remote);
	struct rp_grpc_call *near = fake_call_new(r->server, RIG_WATCH, NULL);
	struct rp_etcd_stats before, after;

	watch(far, "host/k", "");
	watch(far, "free", "");
	watch(far, "a", "z");
	watch(far, "/q/jobs/c/" UUID, "");
	watch(near, "host/k", "");
	for (int i = 0; i < 4; i++)
		assert_true(next(r, far)->created);
	assert_true(next(r, near)->created);
	rp_etcd_stats_get(r->e, &before);
	rp_etcd_set_policy(r->e, p);
	rp_etcd_stats_get(r->e, &after);
	assert_int_equal(before.watches - after.watches, 2);
	for (int i = 0; i < 2; i++) {
		const Etcdserverpb__WatchResponse *w = next(r, far);

		assert_non_null(w);
		assert_true(w->watch_id == 0 || w->watch_id == 2);
		assert_true(w->canceled);
	}
	assert_null(next(r, far));
	rig_put(r, "host/k", "hidden");
	rig_put(r, "free", "seen");
	assert_int_equal(next(r, far)->watch_id, 1);
	assert_null(next(r, far));
	assert_int_equal(next(r, near)->n_events, 1);
	/* A consumer is a watch, and its queue learns that it is no death. */
	rp_etcd_set_policy(r->e, q);
	expect_end(r, far, 3);
	rp_etcd_stats_get(r->e, &after);
	assert_int_equal(after.consumers, 0);
	watch(far, "/queue/jobs/consumer/" UUID, "");
	assert_true(next(r, far)->canceled);
	fake_call_free(far);
	fake_call_free(near);
	policy_free(r, q);
	rp_policy_destroy(p);
	fake_conn_free(remote);
}

static void test_observer(void **state)
{
	struct rig *r = *state;
	struct rp_policy *p = policy_new("host/", NULL);
	struct rp_grpc_conn *remote = fake_conn_new(true);
	struct rp_grpc_call *far =
		fake_call_new(r->server, "/v3electionpb.Election/Observe", remote);
	V3electionpb__LeaderRequest m = V3ELECTIONPB__LEADER_REQUEST__INIT;

	m.name = B("host/election");
	rig_send(far, &m);
	assert_false(far->over);
	rp_etcd_set_policy(r->e, p);
	assert_true(far->over);
	assert_int_equal(far->code, RP_GRPC_UNKNOWN);
	assert_string_equal(far->message, TEXT_LOCAL);
	fake_call_free(far);
	policy_free(r, p);
	fake_conn_free(remote);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_readonly),
		TEST(test_local_only),
		TEST(test_leases),
		TEST(test_snapshot),
		TEST(test_watches),
		TEST(test_observer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
