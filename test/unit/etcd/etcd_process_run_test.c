/* SPDX-License-Identifier: Apache-2.0 */
/* Requests without keys: ringpost.v1.Process.Run (docs/process-service.md). */
#include "etcd_process_rig.h"

static void run_send(struct rp_grpc_call *c, uint64_t id, Ringpost__V1__Job *job)
{
	Ringpost__V1__RunRequest m = RINGPOST__V1__RUN_REQUEST__INIT;
	Ringpost__V1__Cancel cancel = RINGPOST__V1__CANCEL__INIT;

	m.id = id;
	if (job) {
		m.act_case = RINGPOST__V1__RUN_REQUEST__ACT_JOB;
		m.job = job;
	} else {
		m.act_case = RINGPOST__V1__RUN_REQUEST__ACT_CANCEL;
		m.cancel = &cancel;
	}
	rig_send(c, &m);
}

static void run_job(struct rp_grpc_call *c, uint64_t id, const char *data)
{
	Ringpost__V1__Job job = RINGPOST__V1__JOB__INIT;

	job.queue = (char *)"jobs";
	job.data = B(data);
	job.ttl_ms = 5000;
	run_send(c, id, &job);
}

static Ringpost__V1__RunEvent *event_next(struct rig *r, struct rp_grpc_call *c)
{
	const struct fake_answer *a = fake_call_next(c);

	rig_answer_free(r);
	if (a)
		r->answer = ringpost__v1__run_event__unpack(NULL, a->length, a->data);
	return r->answer;
}

static void expect_taken(struct rig *r, struct rp_grpc_call *c, uint64_t id)
{
	const Ringpost__V1__RunEvent *m = event_next(r, c);

	assert_non_null(m);
	assert_int_equal(m->event_case, RINGPOST__V1__RUN_EVENT__EVENT_TAKEN);
	assert_int_equal(m->id, id);
}

static void expect_failed(
	struct rig *r, struct rp_grpc_call *c, uint64_t id, const char *code, const char *reason)
{
	const Ringpost__V1__RunEvent *m = event_next(r, c);

	assert_non_null(m);
	assert_int_equal(m->event_case, RINGPOST__V1__RUN_EVENT__EVENT_FAILED);
	assert_int_equal(m->id, id);
	assert_string_equal(m->failed->code, code);
	if (reason)
		assert_non_null(strstr(m->failed->reason, reason));
}

/* What the engine tells of a run. */
static size_t tell(struct rig *r, uint64_t run, enum rp_etcd_run_event_kind kind, const char *data)
{
	struct rp_etcd_run_event e = {.kind = kind, .code = RP_PROCESS_CANCELLED};
	char *json = kind == RP_ETCD_RUN_FAILED
			     ? NULL
			     : rp_output_write((struct rp_span){(const uint8_t *)data,
						       data ? strlen(data) : 0},
				       kind == RP_ETCD_RUN_FINAL, &e.value.length);
	size_t length = e.value.length;

	e.value.data = (const uint8_t *)json;
	rp_etcd_run_event(r->e, run, &e);
	free(json);
	return length;
}

static void test_run(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, RUN, NULL);
	Ringpost__V1__Job job = RINGPOST__V1__JOB__INIT;
	char *needs[] = {(char *)"gpu", (char *)"x"};
	const Ringpost__V1__RunEvent *m;
	struct rp_envelope e;
	const char *why;
	uint8_t *data;
	size_t length;

	job.queue = (char *)"jobs";
	job.data = B("do it");
	job.ttl_ms = 5000;
	job.max_bytes = 77;
	job.need = needs;
	job.n_need = 2;
	job.fail_fast = 1;
	job.chosen_case = RINGPOST__V1__JOB__CHOSEN_PRIORITY;
	job.priority = 7;
	run_send(c, 0, &job);
	assert_string_equal(asked.queue, "jobs");
	assert_int_equal(
		rp_envelope_parse(&e,
			(struct rp_span){(const uint8_t *)asked.value, strlen(asked.value)}, &why),
		RP_ENVELOPE_OK);
	assert_int_equal(e.ttl_ms, 5000);
	assert_int_equal(e.max_bytes, 77);
	assert_true(e.has_priority && e.fail_fast);
	assert_int_equal(e.priority, 7);
	assert_int_equal(e.need_count, 2);
	assert_memory_equal(e.need[0].data, "gpu", 3);
	/* A worker by keys finds where its answer goes. */
	assert_int_equal(e.reply_to.length, 4);
	assert_memory_equal(e.reply_to.data, "runs", 4);
	rp_envelope_clear(&e);
	assert_true(
		rp_process_data((struct rp_span){(const uint8_t *)asked.value, strlen(asked.value)},
			&data, &length));
	assert_int_equal(length, 5);
	assert_memory_equal(data, "do it", 5);
	free(data);
	expect_taken(r, c, 0);
	length = tell(r, asked.run, RP_ETCD_RUN_OUTPUT, "one");
	m = event_next(r, c);
	assert_int_equal(m->event_case, RINGPOST__V1__RUN_EVENT__EVENT_OUTPUT);
	assert_true(b_is(m->output->data, "one"));
	assert_int_equal(asked.reads, 0);
	fake_call_written(c);
	assert_int_equal(asked.reads, 1);
	assert_int_equal(asked.read_of, asked.run);
	assert_int_equal(asked.read_bytes, length);
	fake_call_half_close(c);
	assert_false(c->over);
	tell(r, asked.run, RP_ETCD_RUN_FINAL, "two");
	m = event_next(r, c);
	assert_int_equal(m->event_case, RINGPOST__V1__RUN_EVENT__EVENT_END);
	assert_true(b_is(m->end->data, "two"));
	assert_true(c->over);
	assert_int_equal(c->code, RP_GRPC_OK);
	assert_int_equal(asked.drops, 0);
	fake_call_free(c);
}

/* An end may have no data, and an output of a worker by keys be no JSON. */
static void test_values(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, RUN, NULL);
	struct rp_etcd_run_event raw = {
		.kind = RP_ETCD_RUN_OUTPUT, .value = {(const uint8_t *)"raw\0x", 5}};
	const Ringpost__V1__RunEvent *m;

	run_job(c, 9, "x");
	expect_taken(r, c, 9);
	rp_etcd_run_event(r->e, asked.run, &raw);
	m = event_next(r, c);
	assert_int_equal(m->output->data.len, 5);
	assert_memory_equal(m->output->data.data, "raw\0x", 5);
	tell(r, asked.run, RP_ETCD_RUN_FINAL, NULL);
	m = event_next(r, c);
	assert_int_equal(m->event_case, RINGPOST__V1__RUN_EVENT__EVENT_END);
	assert_int_equal(m->end->data.len, 0);
	/* The stream goes on, with the same id. */
	run_job(c, 9, "y");
	expect_taken(r, c, 9);
	assert_int_equal(asked.starts, 2);
	fake_call_free(c);
	assert_int_equal(asked.drops, 1);
}

static void test_run_refused(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_conn *remote = fake_conn_new(true);
	struct rp_grpc_call *c = fake_call_new(r->server, RUN, remote);
	static const struct {
		const char *queue, *need, *text;
		uint64_t ttl_ms;
		uint32_t priority, needs;
	} bad[] = {
		{"", "x", "name is missing", 1, 0, 0},
		{"a/b", "x", "'/'", 1, 0, 0},
		{"jobs", "x", "ttl_ms", 0, 0, 0},
		{"jobs", "x", "ttl_ms", UINT64_MAX, 0, 0},
		{"jobs", "x", "0 to 9", 1, 10, 0},
		{"jobs", "x", "too many", 1, 0, 17},
		{"jobs", "a,b", "a word", 1, 0, 1},
		{"jobs", "", "a word", 1, 0, 1},
		{"jobs", "0123456789012345678901234567890123456789", "too long", 1, 0, 16},
	};
	struct rp_etcd_stats stats;

	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++) {
		Ringpost__V1__Job job = RINGPOST__V1__JOB__INIT;
		char *needs[17];

		for (unsigned n = 0; n < 17; n++)
			needs[n] = (char *)bad[i].need;
		job.queue = (char *)bad[i].queue;
		job.ttl_ms = bad[i].ttl_ms;
		job.chosen_case = RINGPOST__V1__JOB__CHOSEN_PRIORITY;
		job.priority = bad[i].priority;
		job.need = needs;
		job.n_need = bad[i].needs;
		run_send(c, i, &job);
		expect_failed(r, c, i, "INVALID_ARGUMENT", bad[i].text);
	}
	assert_int_equal(asked.starts, 0);
	r->node.denied = "/q/jobs/";
	run_job(c, 1, "x");
	expect_failed(r, c, 1, "PERMISSION_DENIED", "policy");
	assert_int_equal(asked.starts, 0);
	r->node.denied = NULL;
	asked.answer = RP_Q_NO_CONSUMER;
	run_job(c, 1, "x");
	expect_failed(r, c, 1, "FAILED_PRECONDITION", "\"jobs\"");
	asked.answer = RP_Q_OK;
	for (unsigned i = 0; i < 128; i++) {
		run_job(c, i, "x");
		expect_taken(r, c, i);
	}
	run_job(c, 128, "x");
	expect_failed(r, c, 128, "RESOURCE_EXHAUSTED", "open another");
	rp_etcd_stats_get(r->e, &stats);
	assert_int_equal(stats.runs, RP_ARRAY_SIZE(bad) + 2 + 128 + 1);
	assert_int_equal(stats.runs_refused, RP_ARRAY_SIZE(bad) + 3);
	/* An id twice: nobody could tell them apart. */
	run_job(c, 5, "x");
	assert_true(c->over);
	assert_int_equal(c->code, RP_GRPC_INVALID_ARGUMENT);
	assert_int_equal(asked.drops, 128);
	fake_call_free(c);
	fake_conn_free(remote);
	c = fake_call_new(r->server, RUN, NULL);
	fake_call_send(c, "\xff", 1);
	assert_int_equal(c->code, RP_GRPC_INTERNAL);
	fake_call_free(c);
	c = fake_call_new(r->server, RUN, NULL);
	fake_call_send(c, "", 0);
	assert_int_equal(c->code, RP_GRPC_INVALID_ARGUMENT);
	fake_call_free(c);
}

/* Who does not read is not told as reading, and gets all of it in order later. */
static void test_no_room(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, RUN, NULL);
	char text[8];

	run_job(c, 1, "x");
	expect_taken(r, c, 1);
	fake_call_written(c);
	fake_call_window(c, 0);
	for (unsigned i = 0; i < 5; i++) {
		snprintf(text, sizeof(text), "o%u", i);
		tell(r, asked.run, RP_ETCD_RUN_OUTPUT, text);
	}
	fake_call_half_close(c);
	tell(r, asked.run, RP_ETCD_RUN_FINAL, "end");
	assert_null(event_next(r, c));
	fake_call_written(c);
	assert_int_equal(asked.reads, 0);
	assert_false(c->over);
	c->refuse_sends = true;
	fake_call_window(c, 100000);
	assert_null(event_next(r, c));
	c->refuse_sends = false;
	rig_run(r);
	for (unsigned i = 0; i < 5; i++) {
		snprintf(text, sizeof(text), "o%u", i);
		assert_true(b_is(event_next(r, c)->output->data, text));
	}
	assert_true(b_is(event_next(r, c)->end->data, "end"));
	assert_true(c->over);
	fake_call_free(c);
}

static void test_cancel(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, RUN, NULL);
	uint64_t one, two;

	run_job(c, 1, "x");
	one = asked.run;
	run_job(c, 2, "x");
	two = asked.run;
	expect_taken(r, c, 1);
	expect_taken(r, c, 2);
	run_send(c, 3, NULL);
	assert_int_equal(asked.cancels, 0);
	run_send(c, 1, NULL);
	assert_int_equal(asked.last_cancel, one);
	tell(r, one, RP_ETCD_RUN_FAILED, NULL);
	expect_failed(r, c, 1, "CANCELLED", NULL);
	/* What comes after its end is nobody's. */
	tell(r, one, RP_ETCD_RUN_OUTPUT, "late");
	rp_etcd_run_answer(r->e, one, RP_Q_OK, NULL);
	assert_null(event_next(r, c));
	fake_call_cancel(c, RP_GRPC_CANCEL_RESET);
	assert_int_equal(asked.drops, 1);
	assert_int_equal(asked.last_drop, two);
	tell(r, two, RP_ETCD_RUN_OUTPUT, "late");
	fake_call_free(c);
	/* When the node stops, they are told. */
	c = fake_call_new(r->server, RUN, NULL);
	run_job(c, 1, "x");
	rp_etcd_stop(r->e);
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	assert_int_equal(asked.drops, 2);
	fake_call_free(c);
	c = fake_call_new(r->server, RUN, NULL);
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	fake_call_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_run, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_values, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_run_refused, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_no_room, setup, rig_teardown),
		cmocka_unit_test_setup_teardown(test_cancel, setup, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
