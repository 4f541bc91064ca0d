/* SPDX-License-Identifier: Apache-2.0 */
/* KV.Txn: on keys (section 4.4) and with queue operations (spec/queues.md). */
#include "etcd_test_util.h"

struct ops {
	Etcdserverpb__RequestOp op[200], *at[200];
	Etcdserverpb__PutRequest put[200];
	Etcdserverpb__RangeRequest get[200];
	Etcdserverpb__DeleteRangeRequest del[200];
	size_t count;
};

static Etcdserverpb__RequestOp *op_new(struct ops *o)
{
	size_t i = o->count++;

	etcdserverpb__request_op__init(&o->op[i]);
	etcdserverpb__put_request__init(&o->put[i]);
	etcdserverpb__range_request__init(&o->get[i]);
	etcdserverpb__delete_range_request__init(&o->del[i]);
	o->at[i] = &o->op[i];
	return &o->op[i];
}

static void add_put(struct ops *o, const char *key, const char *value)
{
	size_t i = o->count;
	Etcdserverpb__RequestOp *op = op_new(o);

	op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
	op->request_put = &o->put[i];
	o->put[i].key = B(key);
	o->put[i].value = B(value);
}

static void add_get(struct ops *o, const char *key)
{
	size_t i = o->count;
	Etcdserverpb__RequestOp *op = op_new(o);

	op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
	op->request_range = &o->get[i];
	o->get[i].key = B(key);
}

static void add_del(struct ops *o, const char *key, ProtobufCBinaryData end)
{
	size_t i = o->count;
	Etcdserverpb__RequestOp *op = op_new(o);

	op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
	op->request_delete_range = &o->del[i];
	o->del[i].key = B(key);
	o->del[i].range_end = end;
	o->del[i].prev_kv = 1;
}

static void add_txn(struct ops *o, Etcdserverpb__TxnRequest *t)
{
	Etcdserverpb__RequestOp *op = op_new(o);

	op->request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN;
	op->request_txn = t;
}

static Etcdserverpb__TxnResponse *run(struct rig *r, const struct ops *success,
	const struct ops *failure, Etcdserverpb__Compare *compare)
{
	Etcdserverpb__TxnRequest m = ETCDSERVERPB__TXN_REQUEST__INIT;

	if (success) {
		m.success = (Etcdserverpb__RequestOp **)success->at;
		m.n_success = success->count;
	}
	if (failure) {
		m.failure = (Etcdserverpb__RequestOp **)failure->at;
		m.n_failure = failure->count;
	}
	m.compare = &compare;
	m.n_compare = compare != NULL;
	return rig_call_on(r, NULL, RIG_TXN, &m, &etcdserverpb__txn_response__descriptor);
}

static Etcdserverpb__Compare value_is(const char *key, const char *value)
{
	Etcdserverpb__Compare c = ETCDSERVERPB__COMPARE__INIT;

	c.key = B(key);
	c.target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__VALUE;
	c.target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE;
	c.value = B(value);
	return c;
}

static void test_keys(void **state)
{
	struct rig *r = *state;
	struct ops *a = calloc(2, sizeof(*a)), *b = a + 1;
	Etcdserverpb__Compare c = value_is("k", "1");
	Etcdserverpb__TxnResponse *m;

	rig_put(r, "k", "1");
	add_put(a, "x", "1");
	add_get(a, "x");
	add_del(a, "k", B(""));
	add_get(b, "k");
	m = run(r, a, b, &c);
	assert_true(m->succeeded);
	assert_int_equal(m->header->revision, 3);
	assert_int_equal(m->header->member_id, RIG_MEMBER);
	assert_int_equal(m->n_responses, 3);
	assert_int_equal(m->responses[0]->response_put->header->revision, 3);
	assert_int_equal(m->responses[0]->response_put->header->member_id, 0);
	assert_int_equal(m->responses[1]->response_range->count, 1);
	assert_int_equal(m->responses[2]->response_delete_range->deleted, 1);
	assert_true(b_is(m->responses[2]->response_delete_range->prev_kvs[0]->key, "k"));
	m = run(r, a, b, &c);
	assert_false(m->succeeded);
	assert_int_equal(m->n_responses, 1);
	assert_int_equal(m->responses[0]->response_range->count, 0);
	m = run(r, NULL, NULL, NULL);
	assert_true(m->succeeded);
	assert_int_equal(m->n_responses, 0);
	assert_int_equal(m->header->revision, 3);
	free(a);
}

static void test_nested_headers(void **state)
{
	struct rig *r = *state;
	struct ops *a = calloc(2, sizeof(*a)), *inner = a + 1;
	Etcdserverpb__TxnRequest t = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__TxnResponse *m;

	add_put(inner, "i", "1");
	t.success = inner->at;
	t.n_success = 1;
	add_txn(a, &t);
	m = run(r, a, NULL, NULL);
	assert_non_null(m->responses[0]->response_txn->header);
	assert_int_equal(m->responses[0]->response_txn->header->revision, 0);
	assert_int_equal(
		m->responses[0]->response_txn->responses[0]->response_put->header->revision, 2);
	free(a);
}

static void test_errors(void **state)
{
	struct rig *r = *state;
	struct ops *a = calloc(3, sizeof(*a)), *many = a + 1, *none = a + 2;

	add_put(a, "k", "1");
	add_put(a, "k", "2");
	run(r, a, NULL, NULL);
	assert_refused(
		r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request");
	for (int i = 0; i < 129; i++)
		add_get(many, "k");
	run(r, many, NULL, NULL);
	assert_refused(
		r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: too many operations in txn request");
	op_new(none);
	run(r, none, NULL, NULL);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: key not found");
	assert_int_equal(rp_kv_revision(r->kv), 1);
	free(a);
}

/* Txns in each other, deeper than any stack: refused before they are unpacked. */
static void test_depth(void **state)
{
	struct rig *r = *state;
	static uint8_t buf[200000];
	size_t at = sizeof(buf);
	struct rp_grpc_call *c;

	while (at > 20) {
		size_t length = sizeof(buf) - at;
		uint8_t head[8];
		size_t n = 0;

		/* RequestOp{request_txn = all so far}, then TxnRequest{success = it}. */
		for (int level = 0; level < 2; level++) {
			n = 0;
			head[n++] = level == 0 ? 0x22 : 0x12;
			for (size_t v = length;; v >>= 7) {
				head[n++] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
				if (v <= 0x7f)
					break;
			}
			at -= n;
			memcpy(buf + at, head, n);
			length = sizeof(buf) - at;
		}
	}
	c = fake_call_new(r->server, RIG_TXN, NULL);
	fake_call_send(c, buf + at, sizeof(buf) - at);
	rig_take(r, c, NULL);
	assert_refused(
		r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: too many operations in txn request");
}

static void test_split_delete(void **state)
{
	struct rig *r = *state;
	struct ops *a = calloc(1, sizeof(*a));
	Etcdserverpb__TxnResponse *m;

	rig_put(r, "a", "1");
	rig_put(r, "/q/jobs", "5");
	rig_put(r, "z", "1");
	add_del(a, "/", B_from());
	m = run(r, a, NULL, NULL);
	assert_int_equal(m->n_responses, 1);
	assert_int_equal(m->responses[0]->response_delete_range->deleted, 2);
	assert_int_equal(m->responses[0]->response_delete_range->n_prev_kvs, 2);
	assert_true(b_is(m->responses[0]->response_delete_range->prev_kvs[1]->key, "z"));
	assert_int_equal(rig_get(r, "/q/jobs", "")->count, 1);
	/* As a request of its own. */
	rig_put(r, "a", "1");
	rig_put(r, "/p", "1");
	assert_int_equal(rig_delete(r, "/p", "/qz")->deleted, 1);
	assert_int_equal(rig_get(r, "/q/jobs", "")->count, 1);
	free(a);
}

static void test_queue_guarded(void **state)
{
	struct rig *r = *state;
	struct ops *a = calloc(2, sizeof(*a)), *b = a + 1;
	Etcdserverpb__Compare c = value_is("k", "go");
	Etcdserverpb__TxnResponse *m;

	add_get(a, "k");
	add_put(a, "/q/jobs/p/t1", "one");
	add_put(a, "/q/jobs/p/t2", "two");
	add_get(b, "k");
	m = run(r, a, b, &c);
	assert_false(m->succeeded);
	assert_int_equal(r->node.ops, 0);
	rig_put(r, "k", "go");
	m = run(r, a, b, &c);
	assert_true(m->succeeded);
	assert_int_equal(r->node.batches, 1);
	assert_int_equal(r->node.ops, 2);
	assert_int_equal(m->n_responses, 3);
	assert_true(b_is(m->responses[0]->response_range->kvs[0]->value, "go"));
	assert_non_null(m->responses[2]->response_put->header);
	assert_int_equal(rp_kv_revision(r->kv), 2); /* messages are not writes of the store */
	free(a);
}

static void test_read_only(void **state)
{
	struct rig *r = *state;
	struct ops *a = calloc(3, sizeof(*a));
	Etcdserverpb__Compare c = value_is("/queue/jobs", "7");
	Etcdserverpb__TxnResponse *m;

	rig_put(r, "/q/jobs", "7");
	add_get(a, "/queue/jobs/");
	m = run(r, a, NULL, &c);
	assert_true(m->succeeded); /* records are compared and read under any spelling */
	assert_int_equal(m->responses[0]->response_range->count, 1);
	assert_int_equal(m->header->revision, 2);
	a->get[0].revision = 99;
	run(r, a, NULL, NULL);
	assert_refused(r, RP_GRPC_OUT_OF_RANGE,
		"etcdserver: mvcc: required revision is a future revision");
	add_get(&a[1], "/q/jobs/p/a/b");
	run(r, &a[1], NULL, NULL);
	assert_int_equal(r->code, RP_GRPC_INVALID_ARGUMENT);
	c = value_is("/q/jobs/1/t", "x");
	run(r, &a[2], NULL, &c);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "queue key: a message cannot be compared");
	free(a);
}

static void test_queue_take(void **state)
{
	struct rig *r = *state;
	struct ops *a = calloc(2, sizeof(*a)), *b = a + 1;
	Etcdserverpb__TxnResponse *m;

	rig_put(r, "/q/jobs/p/t", "hello");
	add_get(a, "/q/jobs/1/t");
	m = run(r, a, NULL, NULL);
	assert_int_equal(m->responses[0]->response_range->count, 1);
	assert_true(b_is(m->responses[0]->response_range->kvs[0]->value, "hello"));
	assert_true(b_is(m->responses[0]->response_range->kvs[0]->key, "/q/jobs/1/t"));
	add_del(b, "/q/jobs/1/t", B(""));
	add_get(b, "k");
	m = run(r, b, NULL, NULL);
	assert_int_equal(m->responses[0]->response_delete_range->deleted, 1);
	assert_true(b_is(m->responses[0]->response_delete_range->prev_kvs[0]->value, "hello"));
	assert_int_equal(m->responses[1]->response_range->count, 0);
	m = run(r, a, NULL, NULL);
	assert_int_equal(m->responses[0]->response_range->count, 0);
	m = run(r, b, NULL, NULL);
	assert_int_equal(m->responses[0]->response_delete_range->deleted, 0);
	free(a);
}

static void test_ranged_delete_inside(void **state)
{
	struct rig *r = *state;
	struct ops *a = calloc(1, sizeof(*a));

	add_del(a, "/q/", B("/q0"));
	run(r, a, NULL, NULL);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT,
		"queue key: messages and records are deleted one by one, not by range");
	rp_etcd_stop(r->e);
	a->count = 0;
	add_put(a, "k", "");
	run(r, a, NULL, NULL);
	assert_refused(r, RP_GRPC_UNAVAILABLE, "etcdserver: server stopped");
	free(a);
}

static void test_queue_refused(void **state)
{
	struct rig *r = *state;
	struct ops *a = calloc(5, sizeof(*a));
	Etcdserverpb__TxnRequest nested = ETCDSERVERPB__TXN_REQUEST__INIT;

	add_put(&a[0], "/q/jobs/p/t", "");
	add_put(&a[0], "k", "");
	run(r, &a[0], NULL, NULL);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT,
		"queue key: a txn cannot mix queue operations with writes of keys");
	add_put(&a[1], "/q/jobs/p/t", "");
	add_put(&a[1], "/q/other/p/t", "");
	run(r, &a[1], NULL, NULL);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "queue key: a txn can touch one queue only");
	add_put(&a[2], "/q/jobs/p/t", "");
	nested.success = a[2].at;
	nested.n_success = 1;
	add_txn(&a[3], &nested);
	run(r, &a[3], NULL, NULL);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT,
		"queue key: queue operations cannot be in a nested txn");
	add_put(&a[4], "/q/jobs", "7");
	run(r, &a[4], NULL, NULL);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT,
		"queue key: a record is written by a put or delete alone, not in a txn");
	r->node.backend.queue_batch = NULL;
	add_put(&a[2], "/q/jobs/p/t2", "");
	run(r, &a[2], NULL, NULL);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT,
		"queue key: a txn with more than one queue operation is not supported");
	assert_int_equal(r->node.ops, 0);
	r->node.refuse = RP_Q_NO_DISPATCHER;
	a[2].count = 1;
	run(r, &a[2], NULL, NULL);
	assert_refused(r, RP_GRPC_UNAVAILABLE, "queue \"jobs\": no dispatcher can be reached");
	free(a);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_keys),
		T(test_nested_headers),
		T(test_errors),
		T(test_depth),
		T(test_split_delete),
		T(test_queue_guarded),
		T(test_read_only),
		T(test_queue_take),
		T(test_ranged_delete_inside),
		T(test_queue_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
