/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are queue traffic or records (spec/queues.md, "Keys", "What a stock client sees"). */
#include "etcd_test_util.h"

#define CONSUMER "/q/jobs/c/" UUID

static void test_put(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;
	Etcdserverpb__PutResponse *put;

	rig_put(r, "k", "v");
	put = rig_put(r, "/q/jobs/producer/t1", "hello");
	assert_int_equal(put->header->revision, 2);
	assert_int_equal(r->node.ops, 1);
	assert_int_equal(r->node.last_op.type, RP_ETCD_QUEUE_PUT);
	assert_int_equal(r->node.last_op.hash, rp_queue_hash("jobs", 4));
	assert_int_equal(rig_get(r, "/q/jobs/producer/t1", "")->count, 0);
	m.key = B("/queue/jobs/i/t2");
	m.lease = 4;
	rig_call_on(r, NULL, RIG_PUT, &m, &etcdserverpb__put_response__descriptor);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "queue key: a message cannot have a lease");
	m.lease = 0;
	m.ignore_value = 1;
	rig_call_on(r, NULL, RIG_PUT, &m, &etcdserverpb__put_response__descriptor);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: key not found");
}

struct status_row {
	enum rp_qstatus status;
	int code;
	const char *message;
};

static const struct status_row status_rows[] = {
	{RP_Q_TOO_LARGE, RP_GRPC_INVALID_ARGUMENT, "etcdserver: request is too large"},
	{RP_Q_QUEUE_DEPTH, RP_GRPC_RESOURCE_EXHAUSTED,
		"queue \"jobs\": queue is full: limits.queue_depth"},
	{RP_Q_QUEUE_BYTES, RP_GRPC_RESOURCE_EXHAUSTED,
		"queue \"jobs\": queue is full: limits.queue_bytes"},
	{RP_Q_QUEUE_BUFFERS, RP_GRPC_RESOURCE_EXHAUSTED,
		"queue \"jobs\": queue is full: dpdk.memory_mib"},
	{RP_Q_NO_DISPATCHER, RP_GRPC_UNAVAILABLE, "queue \"jobs\": no dispatcher can be reached"},
	{RP_Q_UNREACHABLE, RP_GRPC_UNAVAILABLE, "queue \"jobs\": the peer cannot be reached"},
	{RP_Q_STOPPING, RP_GRPC_UNAVAILABLE, "queue \"jobs\": the node is stopping or draining"},
	{RP_Q_MOVED, RP_GRPC_UNAVAILABLE, "queue \"jobs\": the dispatcher has moved"},
	{RP_Q_NO_CONSUMER, RP_GRPC_FAILED_PRECONDITION, "queue \"jobs\": no consumer"},
	{RP_Q_DUPLICATE, RP_GRPC_ALREADY_EXISTS, "queue \"jobs\": already taken"},
	{RP_Q_LIMIT, RP_GRPC_RESOURCE_EXHAUSTED,
		"queue \"jobs\": out of streams, queues or buffers"},
	{RP_Q_INVALID, RP_GRPC_INVALID_ARGUMENT, "queue \"jobs\": malformed"},
};

static void test_statuses(void **state)
{
	struct rig *r = *state;

	for (size_t i = 0; i < RP_ARRAY_SIZE(status_rows); i++) {
		r->node.refuse = status_rows[i].status;
		rig_put(r, "/q/jobs/p/t", "v");
		assert_refused(r, status_rows[i].code, status_rows[i].message);
	}
	r->node.refuse = RP_Q_QUEUE_DEPTH;
	r->node.refuse_message = "queue \"jobs\" holds 10 messages (limits.queue_depth)";
	rig_put(r, "/q/jobs/p/t", "v");
	assert_refused(r, RP_GRPC_RESOURCE_EXHAUSTED, r->node.refuse_message);
}

struct key_row {
	const char *key, *reason;
};

static const struct key_row invalid_keys[] = {
	{"/q/jobs/p/a/b", "queue key: too many segments"},
	{"/q/jobs/p/", "queue key: the message's tail is empty"},
	{"/q/", "queue key: the queue's name is empty"},
	{"/q/jobs/c/nobody", "queue key: the consumer is not a uuid"},
};

static void test_invalid_keys(void **state)
{
	struct rig *r = *state;

	for (size_t i = 0; i < RP_ARRAY_SIZE(invalid_keys); i++) {
		size_t n = strlen(invalid_keys[i].reason);

		rig_put(r, invalid_keys[i].key, "v");
		assert_int_equal(r->code, RP_GRPC_INVALID_ARGUMENT);
		assert_memory_equal(r->message, invalid_keys[i].reason, n);
		assert_memory_equal(r->message + n, "; expected /q/{queue}", 21);
		rig_get(r, invalid_keys[i].key, "");
		assert_int_equal(r->code, RP_GRPC_INVALID_ARGUMENT);
		rig_delete(r, invalid_keys[i].key, "");
		assert_int_equal(r->code, RP_GRPC_INVALID_ARGUMENT);
	}
	assert_int_equal(r->node.ops, 0);
	assert_int_equal(rp_kv_revision(r->kv), 1);
}

/* A consumer in the fake node, without a watch: its handle is nobody's. */
static void bind_one(struct rig *r)
{
	struct rp_etcd_consumer_open open = {
		.name = {.data = (const uint8_t *)"jobs", .length = 4}};
	const char *reason;
	int64_t revision;

	assert_int_equal(rp_uuid_parse(UUID, strlen(UUID), open.uuid), 0);
	r->node.backend.consumer_open(&r->node, &open, 999, &revision, &reason);
	rig_put(r, "/q/jobs/p/t1", "hello");
	fake_node_dispatch(&r->node);
}

static void test_acknowledge(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__RangeResponse *get;
	Etcdserverpb__DeleteRangeResponse *del;

	bind_one(r);
	get = rig_get(r, CONSUMER "/1/t1", "");
	assert_int_equal(get->count, 1);
	assert_true(b_is(get->kvs[0]->key, CONSUMER "/1/t1"));
	assert_true(b_is(get->kvs[0]->value, "hello"));
	assert_int_equal(get->kvs[0]->version, 1);
	assert_int_equal(get->kvs[0]->mod_revision, get->kvs[0]->create_revision);
	assert_int_equal(get->header->revision, 1);
	rig_delete(r, "/q/jobs/c/" UUID2 "/1/t1", "");
	assert_refused(r, RP_GRPC_FAILED_PRECONDITION,
		"queue \"jobs\": the message is held by another consumer");
	del = rig_delete(r, CONSUMER "/1/t1", "");
	assert_int_equal(del->deleted, 1);
	assert_true(b_is(del->prev_kvs[0]->value, "hello"));
	/* A retry is safe. */
	del = rig_delete(r, CONSUMER "/1/t1", "");
	assert_int_equal(r->code, RP_GRPC_OK);
	assert_int_equal(del->deleted, 0);
	assert_int_equal(rig_get(r, CONSUMER "/1/t1", "")->count, 0);
}

static void test_short_form(void **state)
{
	struct rig *r = *state;

	bind_one(r);
	assert_int_equal(rig_get(r, "/q/jobs/1/t1", "")->count, 1);
	assert_int_equal(rig_delete(r, "/q/jobs/1/t1", "")->deleted, 1);
	assert_int_equal(r->node.last_op.flags & RP_ETCD_QUEUE_NO_HOLDER, RP_ETCD_QUEUE_NO_HOLDER);
}

static void test_reject(void **state)
{
	struct rig *r = *state;

	bind_one(r);
	rig_put(r, CONSUMER "/1/t1", "no");
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT,
		"queue key: only `reject` or `reject:<reason>` can be put on a delivered message");
	rig_put(r, CONSUMER "/1/t1", "rejected");
	assert_int_equal(r->code, RP_GRPC_INVALID_ARGUMENT);
	rig_put(r, CONSUMER "/1/t1", "reject:busy");
	assert_int_equal(r->code, RP_GRPC_OK);
	assert_int_equal(r->node.last_op.type, RP_ETCD_QUEUE_REJECT);
	rig_put(r, CONSUMER "/7/t1", "reject");
	assert_int_equal(r->code, RP_GRPC_NOT_FOUND);
}

static void test_cancel(void **state)
{
	struct rig *r = *state;

	rig_put(r, "/q/jobs/p/t1", "a");
	rig_put(r, "/q/jobs/p/t1", "b");
	rig_put(r, "/q/jobs/p/t2", "c");
	assert_int_equal(rig_delete(r, "/q/jobs/p/t1", "")->deleted, 2);
	assert_int_equal(rig_delete(r, "/q/jobs/p/t1", "")->deleted, 0);
}

static void test_records(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__RangeResponse *get;

	rig_put(r, "/queue/jobs/", "7;pinned");
	assert_int_equal(r->node.records, 1);
	get = rig_get(r, "/queue/jobs", "");
	assert_int_equal(get->count, 1);
	assert_true(b_is(get->kvs[0]->key, "/queue/jobs")); /* as the client spelled it */
	get = rig_get(r, "/q/", "/q0");
	assert_int_equal(get->count, 1);
	assert_true(b_is(get->kvs[0]->key, "/q/jobs"));
	rig_delete(r, "/q/", "/q0");
	assert_int_equal(r->code, RP_GRPC_INVALID_ARGUMENT);
	rig_delete(r, "/queue/jobs/", "/queue/jobs0");
	assert_int_equal(r->code, RP_GRPC_INVALID_ARGUMENT);
	assert_int_equal(rig_delete(r, "/q/jobs", "")->deleted, 1);
	assert_int_equal(r->node.records, 2);
	/* Without the callback they are keys like all others. */
	r->node.backend.record_write = NULL;
	rig_put(r, "/queue/jobs/consumer/" UUID, "7");
	assert_int_equal(rig_get(r, "/q/jobs/c/" UUID, "")->count, 1);
	assert_int_equal(rig_delete(r, "/q/jobs/c/" UUID, "")->deleted, 1);
}

static void test_waiting(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct rp_grpc_call *c[17];

	m.key = B("/q/jobs/p/t");
	r->node.no_tokens = true;
	for (int i = 0; i < 17; i++) {
		c[i] = fake_call_new(r->server, RIG_PUT, NULL);
		rig_send(c[i], &m);
		assert_int_equal(c[i]->over, i == 16);
	}
	rig_take(r, c[16], NULL);
	assert_refused(r, RP_GRPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests");
	fake_call_cancel(c[3], RP_GRPC_CANCEL_RESET);
	rig_run(r);
	assert_int_equal(r->node.ops, 0);
	r->node.no_tokens = false;
	rig_run(r);
	assert_int_equal(r->node.ops, 15);
	for (int i = 0; i < 16; i++) {
		assert_true(c[i]->over);
		fake_call_free(c[i]);
	}
}

static void test_late_answer(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct rp_etcd_queue_answer ok = {.status = RP_Q_OK};
	struct rp_grpc_call *c[2];
	struct rp_etcd_stats stats;

	m.key = B("/q/jobs/p/t");
	r->node.hold = true;
	for (int i = 0; i < 2; i++) {
		c[i] = fake_call_new(r->server, RIG_PUT, NULL);
		rig_send(c[i], &m);
		assert_false(c[i]->over);
	}
	fake_call_cancel(c[0], RP_GRPC_CANCEL_DEADLINE);
	rp_etcd_queue_answer(r->e, r->node.held[1], &ok);
	rp_etcd_queue_answer(r->e, r->node.held[0], &ok);
	rp_etcd_queue_answer(r->e, 12345, &ok);
	assert_true(c[1]->over);
	assert_int_equal(c[1]->code, RP_GRPC_OK);
	rp_etcd_stats_get(r->e, &stats);
	assert_int_equal(stats.answers_dropped, 2);
	fake_call_free(c[0]);
	fake_call_free(c[1]);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_put),
		T(test_statuses),
		T(test_invalid_keys),
		T(test_acknowledge),
		T(test_short_form),
		T(test_reject),
		T(test_cancel),
		T(test_records),
		T(test_waiting),
		T(test_late_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
