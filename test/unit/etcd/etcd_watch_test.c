/* SPDX-License-Identifier: Apache-2.0 */
/* Watch streams on keys (section 7). */
#include "etcd_test_util.h"

static struct rp_grpc_call *stream(struct rig *r)
{
	return fake_call_new(r->server, RIG_WATCH, NULL);
}

static void create(struct rp_grpc_call *c, Etcdserverpb__WatchCreateRequest *m)
{
	Etcdserverpb__WatchRequest w = ETCDSERVERPB__WATCH_REQUEST__INIT;

	w.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	w.create_request = m;
	rig_send(c, &w);
}

static void cancel(struct rp_grpc_call *c, int64_t id)
{
	Etcdserverpb__WatchRequest w = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCancelRequest m = ETCDSERVERPB__WATCH_CANCEL_REQUEST__INIT;

	w.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST;
	w.cancel_request = &m;
	m.watch_id = id;
	rig_send(c, &w);
}

static void progress(struct rp_grpc_call *c)
{
	Etcdserverpb__WatchRequest w = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchProgressRequest m = ETCDSERVERPB__WATCH_PROGRESS_REQUEST__INIT;

	w.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST;
	w.progress_request = &m;
	rig_send(c, &w);
}

/* The next answer, freed at the next call; NULL when there is none. */
static Etcdserverpb__WatchResponse *next(struct rig *r, struct rp_grpc_call *c)
{
	const struct fake_answer *a = fake_call_next(c);

	rig_answer_free(r);
	if (!a)
		return NULL;
	r->answer = etcdserverpb__watch_response__unpack(NULL, a->length, a->data);
	assert_non_null(r->answer);
	assert_non_null(((Etcdserverpb__WatchResponse *)r->answer)->header);
	return r->answer;
}

static void watch(struct rp_grpc_call *c, const char *key, ProtobufCBinaryData end, int64_t start)
{
	Etcdserverpb__WatchCreateRequest m = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;

	m.key = B(key);
	m.range_end = end;
	m.start_revision = start;
	create(c, &m);
}

static void expect_created(struct rig *r, struct rp_grpc_call *c, int64_t id)
{
	Etcdserverpb__WatchResponse *m = next(r, c);

	assert_non_null(m);
	assert_true(m->created);
	assert_false(m->canceled);
	assert_int_equal(m->watch_id, id);
	assert_int_equal(m->header->revision, rp_kv_revision(r->kv));
}

static void expect_refused(struct rig *r, struct rp_grpc_call *c, const char *reason)
{
	Etcdserverpb__WatchResponse *m = next(r, c);

	assert_non_null(m);
	assert_true(m->created);
	assert_true(m->canceled);
	assert_int_equal(m->watch_id, -1);
	assert_string_equal(m->cancel_reason, reason);
}

static void test_events(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	Etcdserverpb__WatchCreateRequest o = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchResponse *m;

	rig_put(r, "k", "1");
	o.key = B("k");
	o.prev_kv = 1;
	create(c, &o);
	expect_created(r, c, 0);
	rig_put(r, "k", "2");
	rig_delete(r, "k", "");
	m = next(r, c);
	assert_int_equal(m->header->revision, 3);
	assert_int_equal(m->header->member_id, RIG_MEMBER);
	assert_int_equal(m->n_events, 1);
	assert_int_equal(m->events[0]->type, MVCCPB__EVENT__EVENT_TYPE__PUT);
	assert_true(b_is(m->events[0]->kv->value, "2"));
	assert_true(b_is(m->events[0]->prev_kv->value, "1"));
	m = next(r, c);
	assert_int_equal(m->events[0]->type, MVCCPB__EVENT__EVENT_TYPE__DELETE);
	assert_int_equal(m->events[0]->kv->mod_revision, 4);
	assert_int_equal(m->events[0]->kv->create_revision, 0);
	assert_int_equal(m->events[0]->kv->version, 0);
	assert_true(b_is(m->events[0]->prev_kv->value, "2"));
	assert_null(next(r, c));
	fake_call_free(c);
}

static void test_ids(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	Etcdserverpb__WatchCreateRequest o = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;

	o.key = B("k");
	o.watch_id = 1;
	create(c, &o);
	expect_created(r, c, 1);
	create(c, &o);
	expect_refused(r, c, "mvcc: duplicate watch ID provided on the WatchStream");
	o.watch_id = 0;
	create(c, &o);
	expect_created(r, c, 0);
	create(c, &o);
	expect_created(r, c, 2); /* 1 is in use */
	o.watch_id = -7;
	create(c, &o);
	expect_created(r, c, -7);
	cancel(c, 1);
	assert_true(next(r, c)->canceled);
	o.watch_id = 1;
	create(c, &o);
	expect_created(r, c, 1);
	o.watch_id = 0;
	create(c, &o);
	expect_created(r, c, 3); /* the counter never goes back */
	fake_call_free(c);
}

static void test_cancel(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	Etcdserverpb__WatchResponse *m;

	watch(c, "k", B(""), 0);
	next(r, c);
	cancel(c, 9); /* unknown: no answer */
	cancel(c, 0);
	m = next(r, c);
	assert_true(m->canceled);
	assert_false(m->created);
	assert_string_equal(m->cancel_reason, "");
	assert_int_equal(m->header->revision, 1);
	cancel(c, 0);
	rig_put(r, "k", "");
	assert_null(next(r, c));
	fake_call_free(c);
}

static void test_refusals(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_conn *remote = fake_conn_new(true);
	struct rp_grpc_call *c = fake_call_new(r->server, RIG_WATCH, remote);
	int refused = 0;

	watch(c, "b", B("a"), 0);
	expect_refused(r, c, "mvcc: watcher range is empty");
	watch(c, "b", B(""), -1);
	expect_refused(r, c, "etcdserver: mvcc: required revision has been compacted");
	watch(c, "/q/jobs/p/t", B(""), 0);
	expect_refused(r, c, "queue key: a message cannot be watched; watch the consumer's key");
	r->node.denied = "secret";
	watch(c, "secret/x", B(""), 0);
	expect_refused(r, c, "rpc error: code = PermissionDenied desc = policy: local_only_prefix");
	watch(c, "a", B(""), 0);
	expect_created(r, c, 0); /* what is refused takes no id */
	for (int i = 0; i < 70; i++) {
		watch(c, "a", B(""), 0);
		refused += next(r, c)->canceled;
	}
	assert_int_equal(refused, 70 - 63);
	assert_false(c->over);
	fake_call_free(c);
	fake_conn_free(remote);
}

static void test_history_and_compaction(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	Etcdserverpb__WatchResponse *m;

	for (int i = 0; i < 6; i++)
		rig_put(r, "k", "v"); /* 2..7 */
	watch(c, "k", B(""), 6);
	expect_created(r, c, 0);
	assert_null(next(r, c));
	rig_run(r);
	m = next(r, c);
	assert_int_equal(m->n_events, 2);
	assert_int_equal(m->header->revision, 7);
	rp_kv_compact(r->kv, 5);
	watch(c, "k", B(""), 4);
	expect_created(r, c, 1);
	rig_run(r);
	m = next(r, c);
	assert_true(m->canceled);
	assert_int_equal(m->watch_id, 1);
	assert_int_equal(m->compact_revision, 5);
	assert_int_equal(m->header->revision, 0);
	assert_string_equal(m->cancel_reason, "");
	cancel(c, 1); /* answered like any other */
	assert_true(next(r, c)->canceled);
	rig_put(r, "k", "");
	assert_int_equal(next(r, c)->watch_id, 0);
	assert_null(next(r, c));
	fake_call_free(c);
}

static void test_progress(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	Etcdserverpb__WatchResponse *m;

	progress(c); /* no watch: nothing */
	assert_null(next(r, c));
	rig_put(r, "k", "");
	watch(c, "k", B(""), 0);
	next(r, c);
	progress(c);
	m = next(r, c);
	assert_int_equal(m->watch_id, -1);
	assert_int_equal(m->header->revision, 2);
	assert_int_equal(m->n_events, 0);
	watch(c, "k", B(""), 2); /* behind */
	next(r, c);
	progress(c);
	assert_null(next(r, c));
	rig_run(r);
	assert_int_equal(next(r, c)->n_events, 1);
	progress(c);
	assert_int_equal(next(r, c)->watch_id, -1);
	watch(c, "k", B(""), 99); /* waits for the future */
	next(r, c);
	progress(c);
	assert_null(next(r, c));
	fake_call_free(c);
}

static void test_progress_notify(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	Etcdserverpb__WatchCreateRequest o = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchResponse *m;

	o.key = B("k");
	o.progress_notify = 1;
	create(c, &o);
	next(r, c);
	rig_run(r);
	r->now_ns += 100 * RP_NS_PER_MS;
	rig_run(r);
	m = next(r, c);
	assert_int_equal(m->watch_id, 0);
	assert_int_equal(m->n_events, 0);
	rig_put(r, "k", "");
	next(r, c);
	r->now_ns += 100 * RP_NS_PER_MS;
	rig_run(r);
	assert_null(next(r, c)); /* something was sent since the last tick */
	r->now_ns += 100 * RP_NS_PER_MS;
	rig_run(r);
	assert_int_equal(next(r, c)->header->revision, 2);
	fake_call_free(c);
}

static void test_filters(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	Etcdserverpb__WatchCreateRequest o = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest__FilterType no_put[] = {
		ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT,
		(Etcdserverpb__WatchCreateRequest__FilterType)17};

	o.key = B("k");
	o.filters = no_put;
	o.n_filters = 2;
	create(c, &o);
	next(r, c);
	rig_put(r, "k", "");
	rig_delete(r, "k", "");
	assert_int_equal(next(r, c)->events[0]->type, MVCCPB__EVENT__EVENT_TYPE__DELETE);
	assert_null(next(r, c));
	fake_call_free(c);
}

static void test_slow_client(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r), *other = stream(r);
	struct rp_kv_stats s;
	int64_t last = 0;
	int seen = 0;

	for (int i = 0; i < 40; i++) {
		watch(c, "k", B(""), 0);
		next(r, c);
	}
	watch(other, "k", B(""), 0);
	next(r, other);
	fake_call_window(c, 0);
	rig_put(r, "k", "1");
	rig_put(r, "k", "2");
	rig_run(r);
	assert_null(next(r, c));
	assert_int_equal(next(r, other)->header->revision, 2);
	rp_kv_stats_get(r->kv, &s);
	assert_int_equal(s.watchers_blocked, 40);
	/* Room comes in small pieces; in the end everybody has seen both, in order. */
	for (int i = 0; i < 200; i++) {
		Etcdserverpb__WatchResponse *m;

		fake_call_window(c, 100);
		rig_run(r);
		while ((m = next(r, c))) {
			for (size_t j = 0; j < m->n_events; j++)
				seen++;
			last = m->header->revision;
		}
	}
	assert_int_equal(seen, 80);
	assert_int_equal(last, 3);
	rp_kv_stats_get(r->kv, &s);
	assert_int_equal(s.watchers_blocked, 0);
	fake_call_free(c);
	fake_call_free(other);
}

static void test_parked(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);

	c->refuse_sends = true;
	watch(c, "k", B(""), 0);
	assert_true(c->paused);
	rig_put(r, "k", "");
	assert_int_equal(c->answer_count, 0);
	rig_run(r);
	assert_true(c->paused);
	c->refuse_sends = false;
	rig_run(r);
	rig_run(r);
	assert_false(c->paused);
	assert_true(next(r, c)->created);
	assert_int_equal(next(r, c)->n_events, 1);
	assert_null(next(r, c));
	fake_call_free(c);
}

/* Created answers pile up at a client that does not read: its requests wait. */
static void test_throttle(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	int sent = 0;

	while (!c->paused && sent < 10000) {
		watch(c, "k", B(""), 0);
		cancel(c, c->answer_count / 2);
		sent++;
	}
	assert_true(c->paused);
	assert_true(sent < 10000);
	fake_call_written(c);
	rig_run(r);
	assert_false(c->paused);
	fake_call_free(c);
}

static void test_fragments(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	Etcdserverpb__WatchCreateRequest o = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchResponse *m;
	char *value = malloc(60001), key[8];
	size_t events = 0, parts = 0;

	memset(value, 'x', 60000);
	value[60000] = 0;
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "k%02d", i);
		rig_put(r, key, value);
	}
	o.key = B("k");
	o.range_end = B("l");
	o.fragment = 1;
	o.prev_kv = 1;
	create(c, &o);
	next(r, c);
	rig_delete(r, "k", "l"); /* one revision, 1.2 MB of prev_kv */
	do {
		m = next(r, c);
		assert_non_null(m);
		assert_int_equal(m->header->revision, 22);
		assert_int_equal(m->watch_id, 0);
		events += m->n_events;
		parts++;
	} while (m->fragment);
	assert_int_equal(events, 20);
	assert_true(parts >= 2);
	assert_null(next(r, c));
	free(value);
	fake_call_free(c);
}

static void test_record_watch(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);

	watch(c, "/queue/jobs", B(""), 0);
	expect_created(r, c, 0);
	rig_put(r, "/q/jobs", "7");
	assert_true(b_is(next(r, c)->events[0]->kv->key, "/queue/jobs"));
	fake_call_free(c);
}

static void test_alias(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = stream(r);
	Etcdserverpb__RangeResponse *get;
	Etcdserverpb__WatchCreateRequest o = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchResponse *m;

	rig_put(r, "/q/jobs", "7");
	rig_put(r, "/q/other", "7");
	get = rig_get(r, "/queue/", "/queue0");
	assert_int_equal(get->count, 2);
	assert_true(b_is(get->kvs[0]->key, "/queue/jobs"));
	get = rig_get(r, "/queue/k", "/queue/z");
	assert_int_equal(get->count, 1);
	assert_true(b_is(get->kvs[0]->key, "/queue/other"));
	assert_int_equal(rig_get(r, "/queue/", "/r")->count, 0); /* not inside: as stored */
	o.key = B("/queue/");
	o.range_end = B("/queue0");
	o.prev_kv = 1;
	create(c, &o);
	expect_created(r, c, 0);
	rig_put(r, "/q/jobs", "8");
	m = next(r, c);
	assert_true(b_is(m->events[0]->kv->key, "/queue/jobs"));
	assert_true(b_is(m->events[0]->prev_kv->key, "/queue/jobs"));
	fake_call_free(c);
}

static void test_leader(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c;

	fake_has_leader = true;
	c = stream(r);
	assert_false(c->over);
	fake_call_free(c);
	r->node.leader = 0;
	c = stream(r);
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	assert_string_equal(c->message, "etcdserver: no leader");
	fake_call_free(c);
	fake_has_leader = false;
	c = stream(r);
	assert_false(c->over);
	fake_call_free(c);
}

static void test_stream_ends(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *bad = stream(r), *c = stream(r), *late;
	struct rp_etcd_stats stats;

	watch(bad, "k", B(""), 0);
	fake_call_send(bad, "", 0); /* empty union: ignored */
	assert_false(bad->over);
	fake_call_send(bad, "\xff", 1);
	assert_true(bad->over);
	assert_int_equal(bad->code, RP_GRPC_INTERNAL);
	watch(c, "k", B(""), 0);
	rp_etcd_stop(r->e);
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	assert_string_equal(c->message, "etcdserver: server stopped");
	late = stream(r);
	assert_int_equal(late->code, RP_GRPC_UNAVAILABLE);
	rp_etcd_stats_get(r->e, &stats);
	assert_int_equal(stats.watches, 0);
	assert_int_equal(stats.watch_streams, 0);
	fake_call_free(bad);
	fake_call_free(c);
	fake_call_free(late);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_events),
		T(test_ids),
		T(test_cancel),
		T(test_refusals),
		T(test_history_and_compaction),
		T(test_progress),
		T(test_progress_notify),
		T(test_filters),
		T(test_slow_client),
		T(test_parked),
		T(test_throttle),
		T(test_fragments),
		T(test_record_watch),
		T(test_alias),
		T(test_leader),
		T(test_stream_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
