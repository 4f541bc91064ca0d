/* SPDX-License-Identifier: Apache-2.0 */
/* The KV service on plain keys: headers, errors, limits (sections 1, 2, 4). */
#include "etcd_test_util.h"

static void test_headers(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__PutResponse *put = rig_put(r, "k", "v");
	Etcdserverpb__RangeResponse *get;
	Etcdserverpb__DeleteRangeResponse *del;

	assert_int_equal(put->header->cluster_id, RIG_CLUSTER);
	assert_int_equal(put->header->member_id, RIG_MEMBER);
	assert_int_equal(put->header->raft_term, 2);
	assert_int_equal(put->header->revision, 2);
	assert_null(put->prev_kv);
	rig_put(r, "other", "");
	get = rig_get(r, "k", "");
	assert_int_equal(get->header->revision, 3);
	assert_int_equal(get->count, 1);
	assert_true(b_is(get->kvs[0]->value, "v"));
	assert_int_equal(get->kvs[0]->create_revision, 2);
	assert_int_equal(get->kvs[0]->version, 1);
	get = rig_get(r, "none", "");
	assert_int_equal(get->count, 0);
	assert_int_equal(get->n_kvs, 0);
	del = rig_delete(r, "k", "");
	assert_int_equal(del->deleted, 1);
	assert_int_equal(del->header->revision, 4);
	assert_true(b_is(del->prev_kvs[0]->value, "v"));
	del = rig_delete(r, "k", "");
	assert_int_equal(del->deleted, 0);
	assert_int_equal(del->header->revision, 4);
}

static void test_range_options(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__RangeRequest m = ETCDSERVERPB__RANGE_REQUEST__INIT;
	Etcdserverpb__RangeResponse *get;

	rig_put(r, "a", "1");
	rig_put(r, "b", "2");
	m.key = B("a");
	m.range_end = B_from();
	m.limit = 1;
	m.keys_only = 1;
	get = rig_call_on(r, NULL, RIG_RANGE, &m, &etcdserverpb__range_response__descriptor);
	assert_int_equal(get->n_kvs, 1);
	assert_int_equal(get->count, 2);
	assert_true(get->more);
	assert_int_equal(get->kvs[0]->value.len, 0);
	m.count_only = 1;
	get = rig_call_on(r, NULL, RIG_RANGE, &m, &etcdserverpb__range_response__descriptor);
	assert_int_equal(get->n_kvs, 0);
	assert_int_equal(get->count, 2);
	m.revision = 9;
	rig_call_on(r, NULL, RIG_RANGE, &m, &etcdserverpb__range_response__descriptor);
	assert_refused(r, RP_GRPC_OUT_OF_RANGE,
		"etcdserver: mvcc: required revision is a future revision");
	m.revision = 0;
	m.sort_order = (Etcdserverpb__RangeRequest__SortOrder)7;
	rig_call_on(r, NULL, RIG_RANGE, &m, &etcdserverpb__range_response__descriptor);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: invalid sort option");
}

static void test_request_errors(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;

	rig_put(r, "", "v");
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: key is not provided");
	rig_get(r, "", "");
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: key is not provided");
	rig_delete(r, "", "");
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: key is not provided");
	m.key = B("k");
	m.ignore_value = 1;
	rig_call_on(r, NULL, RIG_PUT, &m, &etcdserverpb__put_response__descriptor);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: key not found");
	m.value = B("v");
	rig_call_on(r, NULL, RIG_PUT, &m, &etcdserverpb__put_response__descriptor);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: value is provided");
	m.ignore_value = 0;
	m.lease = 5;
	rig_call_on(r, NULL, RIG_PUT, &m, &etcdserverpb__put_response__descriptor);
	assert_refused(r, RP_GRPC_NOT_FOUND, "etcdserver: requested lease not found");
	m.ignore_lease = 1;
	rig_call_on(r, NULL, RIG_PUT, &m, &etcdserverpb__put_response__descriptor);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: lease is provided");
	assert_int_equal(rp_kv_revision(r->kv), 1);
}

static void test_malformed(void **state)
{
	static const char *const paths[] = {RIG_RANGE, RIG_PUT, RIG_DELETE, RIG_TXN, RIG_COMPACT,
		"/etcdserverpb.Cluster/MemberAdd", "/etcdserverpb.Cluster/MemberList",
		"/etcdserverpb.Maintenance/Alarm", "/etcdserverpb.Maintenance/Status",
		"/etcdserverpb.Maintenance/HashKV", "/ringpost.v1.Peer/Prove"};
	struct rig *r = *state;
	struct rp_etcd_stats stats;

	for (size_t i = 0; i < RP_ARRAY_SIZE(paths); i++) {
		struct rp_grpc_call *c = fake_call_new(r->server, paths[i], NULL);

		fake_call_send(c, "\x0a\xff\xff\xff", 4);
		rig_take(r, c, NULL);
		assert_int_equal(r->code, RP_GRPC_INTERNAL);
		assert_memory_equal(r->message, "grpc: error unmarshalling request: ", 35);
	}
	rp_etcd_stats_get(r->e, &stats);
	assert_int_equal(stats.malformed, RP_ARRAY_SIZE(paths));
}

static void test_too_large(void **state)
{
	struct rig *r = *state;
	char *value = malloc(70000);

	memset(value, 'x', 70000);
	value[65536 - 40] = 0;
	rig_put(r, "k", value);
	assert_int_equal(r->code, RP_GRPC_OK);
	value[65536 - 40] = 'x';
	value[65536] = 0;
	rig_put(r, "k", value);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: request is too large");
	free(value);
}

static void test_compact(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__CompactionRequest m = ETCDSERVERPB__COMPACTION_REQUEST__INIT;
	Etcdserverpb__CompactionResponse *ok;
	struct rp_grpc_call *c;

	for (int i = 0; i < 10; i++)
		rig_put(r, "k", "v");
	m.revision = 5;
	ok = rig_call_on(r, NULL, RIG_COMPACT, &m, &etcdserverpb__compaction_response__descriptor);
	assert_int_equal(ok->header->revision, 11);
	rig_call_on(r, NULL, RIG_COMPACT, &m, &etcdserverpb__compaction_response__descriptor);
	assert_refused(
		r, RP_GRPC_OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted");
	m.revision = 99;
	rig_call_on(r, NULL, RIG_COMPACT, &m, &etcdserverpb__compaction_response__descriptor);
	assert_refused(r, RP_GRPC_OUT_OF_RANGE,
		"etcdserver: mvcc: required revision is a future revision");
	/* Physical: answered when the memory is really free. */
	m.revision = 9;
	m.physical = 1;
	c = fake_call_new(r->server, RIG_COMPACT, NULL);
	rig_send(c, &m);
	assert_false(c->over);
	rp_etcd_run(r->e, 1);
	assert_false(c->over);
	rig_run(r);
	rig_take(r, c, &etcdserverpb__compaction_response__descriptor);
	assert_int_equal(r->code, RP_GRPC_OK);
	/* One whose client has gone is forgotten. */
	m.revision = 11;
	c = fake_call_new(r->server, RIG_COMPACT, NULL);
	rig_send(c, &m);
	fake_call_free(c);
	rig_run(r);
}

static void test_policy(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_conn *remote = fake_conn_new(true);
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	Etcdserverpb__RangeRequest get = ETCDSERVERPB__RANGE_REQUEST__INIT;
	Etcdserverpb__RequestOp op = ETCDSERVERPB__REQUEST_OP__INIT, *ops[] = {&op};
	Etcdserverpb__TxnRequest txn = ETCDSERVERPB__TXN_REQUEST__INIT;

	r->node.denied = "secret/";
	put.key = get.key = B("secret/k");
	rig_call_on(r, NULL, RIG_PUT, &put, &etcdserverpb__put_response__descriptor);
	assert_int_equal(r->code, RP_GRPC_OK);
	rig_call_on(r, remote, RIG_PUT, &put, &etcdserverpb__put_response__descriptor);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, "policy: local_only_prefix");
	rig_call_on(r, remote, RIG_RANGE, &get, &etcdserverpb__range_response__descriptor);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, "policy: local_only_prefix");
	/* A txn is checked part by part, in both branches. */
	op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
	op.request_put = &put;
	txn.failure = ops;
	txn.n_failure = 1;
	rig_call_on(r, remote, RIG_TXN, &txn, &etcdserverpb__txn_response__descriptor);
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, "policy: local_only_prefix");
	assert_int_equal(rp_kv_revision(r->kv), 2);
	fake_conn_free(remote);
}

static void test_late_answer(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct rp_grpc_call *c = fake_call_new(r->server, RIG_PUT, NULL);
	struct rp_etcd_stats stats;

	m.key = B("k");
	r->node.hold_writes = true;
	rig_send(c, &m);
	assert_false(c->over);
	fake_call_free(c); /* the client goes; the write is still the backend's */
	fake_node_write_held(&r->node);
	rp_etcd_stats_get(r->e, &stats);
	assert_int_equal(stats.answers_dropped, 1);
	assert_int_equal(stats.calls_waiting, 0);
	c = fake_call_new(r->server, RIG_PUT, NULL);
	r->node.hold_writes = true;
	rig_send(c, &m);
	fake_node_write_held(&r->node);
	assert_non_null(rig_take(r, c, &etcdserverpb__put_response__descriptor));
}

static void test_stopped(void **state)
{
	struct rig *r = *state;

	rig_put(r, "k", "v");
	rp_etcd_stop(r->e);
	rig_put(r, "k", "v");
	assert_refused(r, RP_GRPC_UNAVAILABLE, "etcdserver: server stopped");
	assert_non_null(rig_get(r, "k", ""));
}

static void test_alarm_no_space(void **state)
{
	struct rig *r = *state;

	rp_kv_set_limits(r->kv, 1, 0);
	rig_put(r, "k", "v");
	assert_refused(r, RP_GRPC_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded");
	rp_kv_alarm_set(r->kv, RP_KV_ALARM_CORRUPT, true);
	rig_delete(r, "k", "");
	assert_refused(r, RP_GRPC_DATA_LOSS, "etcdserver: corrupt cluster");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_headers),
		T(test_range_options),
		T(test_request_errors),
		T(test_malformed),
		T(test_too_large),
		T(test_compact),
		T(test_policy),
		T(test_late_answer),
		T(test_stopped),
		T(test_alarm_no_space),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
