/* SPDX-License-Identifier: Apache-2.0 */
/* Workers without keys: ringpost.v1.Process.Work (docs/process-service.md). */
#include "etcd_process_rig.h"

static Ringpost__V1__WorkItem *item_next(struct rig *r, struct rp_grpc_call *c)
{
	const struct fake_answer *a = fake_call_next(c);

	rig_answer_free(r);
	if (a)
		r->answer = ringpost__v1__work_item__unpack(NULL, a->length, a->data);
	return r->answer;
}

static void register_send(struct rp_grpc_call *c, Ringpost__V1__Register *what)
{
	Ringpost__V1__WorkEvent m = RINGPOST__V1__WORK_EVENT__INIT;

	m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_REGISTER;
	m.register_ = what;
	rig_send(c, &m);
}

static struct rp_grpc_call *worker(struct rig *r, const char *uuid)
{
	struct rp_grpc_call *c = fake_call_new(r->server, WORK, NULL);
	Ringpost__V1__Register what = RINGPOST__V1__REGISTER__INIT;
	const Ringpost__V1__WorkItem *m;

	what.queue = (char *)"jobs";
	what.uuid = (char *)uuid;
	register_send(c, &what);
	m = item_next(r, c);
	assert_non_null(m);
	assert_int_equal(m->item_case, RINGPOST__V1__WORK_ITEM__ITEM_REGISTERED);
	assert_int_equal(strlen(m->registered->uuid), 36);
	if (uuid[0])
		assert_string_equal(m->registered->uuid, uuid);
	return c;
}

/* With "-" as data: an output or an end that has none. */
static void say(struct rp_grpc_call *c, uint64_t job, bool end, const char *data)
{
	Ringpost__V1__WorkEvent m = RINGPOST__V1__WORK_EVENT__INIT;
	Ringpost__V1__Output o = RINGPOST__V1__OUTPUT__INIT;
	Ringpost__V1__End e = RINGPOST__V1__END__INIT;

	m.job = job;
	if (end) {
		m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_END;
		m.end = &e;
		e.data = B(data);
	} else {
		m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_OUTPUT;
		m.output = &o;
		o.data = B(data);
	}
	rig_send(c, &m);
}

static void say_reject(struct rp_grpc_call *c, uint64_t job, const char *reason)
{
	Ringpost__V1__WorkEvent m = RINGPOST__V1__WORK_EVENT__INIT;
	Ringpost__V1__Reject reject = RINGPOST__V1__REJECT__INIT;

	m.job = job;
	m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_REJECT;
	m.reject = &reject;
	reject.reason = (char *)reason;
	rig_send(c, &m);
}

static void expect_settled(
	struct rig *r, struct rp_grpc_call *c, uint64_t job, int code, const char *text)
{
	const Ringpost__V1__WorkItem *m = item_next(r, c);

	assert_non_null(m);
	assert_int_equal(m->item_case, RINGPOST__V1__WORK_ITEM__ITEM_SETTLED);
	assert_int_equal(m->job, job);
	assert_int_equal(m->settled->status, code);
	if (text)
		assert_non_null(strstr(m->settled->message, text));
	else
		assert_string_equal(m->settled->message, "");
}

static uint64_t consumer_handle(struct rig *r)
{
	assert_false(rp_list_empty(&r->node.consumers));
	return rp_list_entry(r->node.consumers.next, struct fake_consumer, link)->handle;
}

/* A job with a requester; what deliver says. */
static int assign(struct rig *r, uint64_t idx, const char *data)
{
	struct rp_envelope e = {.ttl_ms = 1000};
	struct rp_span value;
	char *json = rp_envelope_write(
		&e, (struct rp_span){(const uint8_t *)data, strlen(data)}, &value.length);
	struct rp_etcd_delivery d = {.idx = idx,
		.tail = {(const uint8_t *)"tail", 4},
		.value = &value,
		.value_count = 1,
		.mod_revision = 100,
		.attempt = 2,
		.request = 1000 + idx,
		.left_us = 900000,
		.priority = 4,
		.max_bytes = 4096};
	int rc;

	value.data = (const uint8_t *)json;
	rc = rp_etcd_consumer_deliver(r->e, consumer_handle(r), &d);
	free(json);
	return rc;
}

static void take(struct rig *r, struct rp_grpc_call *c, uint64_t idx, const char *data)
{
	const Ringpost__V1__WorkItem *m;

	assert_int_equal(assign(r, idx, data), 0);
	m = item_next(r, c);
	assert_non_null(m);
	assert_int_equal(m->item_case, RINGPOST__V1__WORK_ITEM__ITEM_ASSIGNED);
	assert_int_equal(m->job, idx);
	assert_true(b_is(m->assigned->data, data));
}

static void answer(struct rig *r, uint32_t output, enum rp_qstatus status)
{
	const struct rp_etcd_queue_answer a = {.status = status};

	rp_etcd_queue_answer(r->e, asked.tokens[output], &a);
}

static void test_work(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = worker(r, UUID);
	const Ringpost__V1__WorkItem *m;
	const Ringpost__V1__Assigned *a;

	assert_true(consumer_handle(r) & RP_ETCD_PROCESS_FLAG);
	assert_int_equal(assign(r, 7, "do it"), 0);
	m = item_next(r, c);
	a = m->assigned;
	assert_int_equal(m->job, 7);
	assert_true(b_is(a->data, "do it") && b_is(a->tail, "tail"));
	assert_int_equal(a->left_us, 900000);
	assert_int_equal(a->attempt, 2);
	assert_int_equal(a->priority, 4);
	assert_int_equal(a->max_bytes, 4096);
	assert_int_equal(r->node.accepted, 0);
	fake_call_written(c);
	assert_int_equal(r->node.accepted, 1);
	assert_int_equal(r->node.last_accepted_idx, 7);
	say(c, 7, false, "part");
	assert_int_equal(asked.outputs, 1);
	assert_int_equal(asked.output.idx, 7);
	assert_int_equal(asked.output.request, 1007);
	assert_false(asked.output.final);
	assert_int_equal(asked.output.uuid[1], 0x11);
	assert_string_equal(asked.said, "{\"v\":1,\"data\":\"part\"}");
	answer(r, 0, RP_Q_OK);
	assert_null(item_next(r, c));
	say(c, 7, true, "");
	assert_true(asked.output.final);
	assert_string_equal(asked.said, "{\"v\":1,\"final\":true}");
	/* Nothing more can be said of it, and it is told when that is so. */
	say(c, 7, false, "more");
	expect_settled(r, c, 7, RP_GRPC_FAILED_PRECONDITION, "has been ended");
	answer(r, 1, RP_Q_OK);
	expect_settled(r, c, 7, RP_GRPC_OK, NULL);
	say(c, 7, true, "");
	expect_settled(r, c, 7, RP_GRPC_FAILED_PRECONDITION, "does not have that job");
	/* The worker goes on. */
	take(r, c, 8, "again");
	say_reject(c, 8, "no time");
	assert_int_equal(r->node.last_op.type, RP_ETCD_QUEUE_REJECT);
	expect_settled(r, c, 8, RP_GRPC_NOT_FOUND, "");
	fake_call_free(c);
	assert_int_equal(r->node.last_close, RP_ETCD_CONSUMER_LOST);
	assert_int_equal(asked.leaves, 0);
}

/* Of a queue that has requests and messages, a worker gets both. */
static void test_plain(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = worker(r, "");
	const Ringpost__V1__WorkItem *m;
	uint64_t job;

	rig_put(r, "/q/jobs/p/t", "{\"v\":1,\"data\":\"as it is\"}");
	m = item_next(r, c);
	job = m->job;
	assert_int_equal(m->assigned->left_us, 0);
	assert_true(b_is(m->assigned->data, "{\"v\":1,\"data\":\"as it is\"}"));
	say(c, job, false, "x");
	expect_settled(r, c, job, RP_GRPC_FAILED_PRECONDITION, "nobody waits");
	say(c, job, true, "x");
	expect_settled(r, c, job, RP_GRPC_FAILED_PRECONDITION, "nobody waits");
	say(c, job, true, "");
	expect_settled(r, c, job, RP_GRPC_OK, NULL);
	assert_int_equal(r->node.last_op.type, RP_ETCD_QUEUE_ACK);
	assert_true(rp_list_empty(&r->node.messages));
	assert_int_equal(asked.outputs, 0);
	fake_call_free(c);
	/* Nobody returns as it: it has left. */
	assert_int_equal(asked.leaves, 1);
}

static void test_register(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, WORK, NULL);
	Ringpost__V1__Register what = RINGPOST__V1__REGISTER__INIT;
	char *caps[] = {(char *)"a", (char *)"b"};
	static const struct {
		const char *queue, *uuid, *cap, *match, *text;
		bool resume;
	} bad[] = {
		{"", "", "x", "", "name is missing", false},
		{"jobs", "no uuid", "x", "", "uuid is none", false},
		{"jobs", "", "x", "", "nothing to resume", true},
		{"jobs", "", "x;y", "", "a word", false},
		{"jobs", "", "x", "a;b", "the beginning of a tail", false},
	};
	const Etcdserverpb__RangeResponse *record;
	struct rp_etcd_stats stats;

	what.queue = (char *)"jobs";
	what.uuid = (char *)UUID;
	what.cap = caps;
	what.n_cap = 2;
	what.prefetch = 3;
	what.max_bytes = 99;
	what.match = (char *)"t-";
	register_send(c, &what);
	record = rig_get(r, "/q/jobs/c/" UUID, "");
	assert_int_equal(record->count, 1);
	assert_true(b_is(record->kvs[0]->value, ";cap=a,b;max_bytes=99;prefetch=3;match=t-"));
	rp_etcd_stats_get(r->e, &stats);
	assert_int_equal(stats.workers, 1);
	register_send(c, &what);
	assert_int_equal(c->code, RP_GRPC_INVALID_ARGUMENT);
	assert_int_equal(asked.leaves, 1);
	fake_call_free(c);
	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++) {
		c = fake_call_new(r->server, WORK, NULL);
		ringpost__v1__register__init(&what);
		caps[0] = (char *)bad[i].cap;
		what.queue = (char *)bad[i].queue;
		what.uuid = (char *)bad[i].uuid;
		what.cap = caps;
		what.n_cap = 1;
		what.match = (char *)bad[i].match;
		what.resume = bad[i].resume;
		register_send(c, &what);
		assert_int_equal(c->code, RP_GRPC_INVALID_ARGUMENT);
		assert_non_null(strstr(c->message, bad[i].text));
		fake_call_free(c);
	}
	c = fake_call_new(r->server, WORK, NULL);
	say(c, 1, false, "x");
	assert_int_equal(c->code, RP_GRPC_INVALID_ARGUMENT);
	fake_call_free(c);
	c = fake_call_new(r->server, WORK, NULL);
	fake_call_send(c, "\xff", 1);
	assert_int_equal(c->code, RP_GRPC_INTERNAL);
	fake_call_free(c);
	c = fake_call_new(r->server, WORK, NULL);
	ringpost__v1__register__init(&what);
	what.queue = (char *)"closed";
	register_send(c, &what);
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	assert_non_null(strstr(c->message, "closed for the test"));
	fake_call_free(c);
	rp_etcd_stats_get(r->e, &stats);
	assert_int_equal(stats.workers, 0);
}

static rp_etcd_done_fn held_done;
static void *held_ctx;

static void record_held(void *ctx, const struct rp_route_key *key, struct rp_span value,
	int64_t lease, bool prev_kv, const struct rp_etcd_caller *caller, rp_etcd_done_fn done,
	void *done_ctx)
{
	held_done = done;
	held_ctx = done_ctx;
}

/* It goes while its record is written; and comes again, with what it had. */
static void test_returns(void **state)
{
	struct rig *r = *state;
	Ringpost__V1__Register what = RINGPOST__V1__REGISTER__INIT;
	struct rp_grpc_call *c = fake_call_new(r->server, WORK, NULL);
	void (*record_write)(void *, const struct rp_route_key *, struct rp_span, int64_t, bool,
		const struct rp_etcd_caller *, rp_etcd_done_fn, void *);
	const struct rp_kv_result done = {.error = RP_KV_OK};
	const Ringpost__V1__WorkItem *m;
	uint64_t job;

	what.queue = (char *)"jobs";
	what.uuid = (char *)UUID;
	record_write = r->node.backend.record_write;
	r->node.backend.record_write = record_held;
	register_send(c, &what);
	assert_null(item_next(r, c));
	fake_call_half_close(c);
	assert_false(c->over);
	fake_call_cancel(c, RP_GRPC_CANCEL_LOST);
	held_done(held_ctx, 0, NULL, &done);
	r->node.backend.record_write = record_write;
	assert_true(rp_list_empty(&r->node.consumers));
	fake_call_free(c);
	c = worker(r, UUID);
	rig_put(r, "/q/jobs/p/t", "v");
	job = item_next(r, c)->job;
	fake_call_free(c);
	c = fake_call_new(r->server, WORK, NULL);
	what.resume = 1;
	register_send(c, &what);
	assert_int_equal(item_next(r, c)->item_case, RINGPOST__V1__WORK_ITEM__ITEM_REGISTERED);
	fake_node_dispatch(&r->node);
	m = item_next(r, c);
	assert_int_equal(m->item_case, RINGPOST__V1__WORK_ITEM__ITEM_ASSIGNED);
	assert_int_equal(m->job, job);
	fake_call_free(c);
}

static void test_stop(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = worker(r, "");
	const Ringpost__V1__WorkItem *m;

	take(r, c, 1, "x");
	rp_etcd_consumer_withdraw(
		r->e, consumer_handle(r), 1, (struct rp_span){(const uint8_t *)"tail", 4}, 200);
	m = item_next(r, c);
	assert_int_equal(m->item_case, RINGPOST__V1__WORK_ITEM__ITEM_STOP);
	assert_int_equal(m->job, 1);
	say(c, 1, false, "late");
	expect_settled(r, c, 1, RP_GRPC_FAILED_PRECONDITION, "does not have that job");
	assert_int_equal(asked.outputs, 0);
	/* The node knows first that it is over. */
	take(r, c, 2, "x");
	say(c, 2, false, "late");
	answer(r, 0, RP_Q_NOT_LIVE);
	expect_settled(r, c, 2, RP_GRPC_FAILED_PRECONDITION, "");
	say(c, 2, true, "");
	expect_settled(r, c, 2, RP_GRPC_FAILED_PRECONDITION, "does not have that job");
	/* What may pass can be said again. */
	take(r, c, 3, "x");
	say(c, 3, true, "e");
	answer(r, 1, RP_Q_UNREACHABLE);
	expect_settled(r, c, 3, RP_GRPC_UNAVAILABLE, "");
	say(c, 3, true, "e");
	answer(r, 2, RP_Q_OK);
	expect_settled(r, c, 3, RP_GRPC_OK, NULL);
	rp_etcd_consumer_end(r->e, consumer_handle(r),
		"queue consumer: replaced by a later watch of the same uuid");
	assert_int_equal(c->code, RP_GRPC_ABORTED);
	assert_int_equal(r->node.closes, 0);
	fake_call_free(c);
}

/* A requester that does not read: the worker is not read. */
static void test_throttle(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = worker(r, "");
	static char large[100001];
	uint32_t sent;

	memset(large, 'x', sizeof(large) - 1);
	take(r, c, 1, "x");
	say(c, 1, false, large);
	say(c, 1, false, large);
	assert_false(c->paused);
	say(c, 1, false, large);
	assert_true(c->paused);
	answer(r, 0, RP_Q_OK);
	assert_true(c->paused);
	answer(r, 1, RP_Q_OK);
	assert_false(c->paused);
	answer(r, 2, RP_Q_OK);
	/* Many small ones as well; and where there is no token they wait, in order. */
	asked.full = true;
	sent = asked.outputs;
	for (unsigned i = 0; i < 64; i++)
		say(c, 1, false, i ? "y" : "first");
	assert_true(c->paused);
	assert_int_equal(asked.outputs, sent);
	rig_run(r);
	assert_int_equal(asked.outputs, sent);
	assert_true(rp_etcd_run(r->e, r->now_ns) <= r->now_ns + RP_NS_PER_MS);
	asked.full = false;
	rig_run(r);
	assert_int_equal(asked.outputs, sent + 64);
	for (unsigned i = 0; i < 64; i++)
		answer(r, sent + i, RP_Q_OK);
	assert_false(c->paused);
	/* Without room for it a job waits at the node. */
	fake_call_window(c, 10);
	assert_int_equal(assign(r, 2, "a job that does not fit"), -EAGAIN);
	assert_int_equal(r->node.rooms, 0);
	fake_call_window(c, 1000);
	assert_int_equal(r->node.rooms, 1);
	fake_call_free(c);
}

/* It says no more: when all is answered it has left. */
static void test_leaves(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = worker(r, UUID);
	Ringpost__V1__Register what;
	void (*record_write)(void *, const struct rp_route_key *, struct rp_span, int64_t, bool,
		const struct rp_etcd_caller *, rp_etcd_done_fn, void *) =
		r->node.backend.record_write;

	take(r, c, 1, "x");
	take(r, c, 2, "x");
	say(c, 1, true, "e");
	fake_call_half_close(c);
	assert_false(c->over);
	answer(r, 0, RP_Q_OK);
	expect_settled(r, c, 1, RP_GRPC_OK, NULL);
	assert_true(c->over);
	assert_int_equal(c->code, RP_GRPC_OK);
	assert_int_equal(asked.leaves, 1);
	fake_call_free(c);
	/* Answers for one that has gone, at once and at the end of all. A record that is never
	 * written. */
	r->node.backend.record_write = record_held;
	c = fake_call_new(r->server, WORK, NULL);
	ringpost__v1__register__init(&what);
	what.queue = (char *)"other";
	register_send(c, &what);
	fake_call_free(c);
	r->node.backend.record_write = record_write;
	c = worker(r, UUID);
	take(r, c, 1, "x");
	say(c, 1, false, "a");
	say(c, 1, false, "b");
	asked.full = true;
	say(c, 1, false, "c");
	fake_call_free(c);
	answer(r, 1, RP_Q_OK);
	rig_run(r);
	assert_int_equal(asked.outputs, 3);
	/* The node ends. */
	asked.full = false;
	c = worker(r, UUID);
	rp_etcd_stop(r->e);
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	assert_int_equal(r->node.last_close, RP_ETCD_CONSUMER_STOPPED);
	fake_call_free(c);
}

/* A permission that goes ends what it allowed. */
static void test_policy(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_conn *remote = fake_conn_new(true);
	struct rp_grpc_call *c = fake_call_new(r->server, WORK, remote);
	Ringpost__V1__Register what = RINGPOST__V1__REGISTER__INIT;

	r->node.denied = "/q/jobs/";
	what.queue = (char *)"jobs";
	register_send(c, &what);
	assert_int_equal(c->code, RP_GRPC_PERMISSION_DENIED);
	assert_int_equal(r->node.records, 0);
	fake_call_free(c);
	fake_conn_free(remote);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_work, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_plain, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_register, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_returns, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_stop, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_throttle, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_leaves, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_policy, setup, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
