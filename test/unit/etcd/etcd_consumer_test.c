/* SPDX-License-Identifier: Apache-2.0 */
/* Watches that are consumers (spec/queues.md, "What a stock client sees"). */
#include <errno.h>

#include "etcd_test_util.h"

#define CONSUMER "/q/jobs/consumer/" UUID

static void create(struct rp_grpc_call *c, const char *key, int64_t start)
{
	Etcdserverpb__WatchRequest w = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest m = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;

	w.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	w.create_request = &m;
	m.key = B(key);
	m.start_revision = start;
	rig_send(c, &w);
}

static Etcdserverpb__WatchResponse *next(struct rig *r, struct rp_grpc_call *c)
{
	const struct fake_answer *a = fake_call_next(c);

	rig_answer_free(r);
	if (!a)
		return NULL;
	r->answer = etcdserverpb__watch_response__unpack(NULL, a->length, a->data);
	return r->answer;
}

static struct rp_grpc_call *consumer(
	struct rig *r, const char *key, int64_t start, int64_t *revision)
{
	struct rp_grpc_call *c = fake_call_new(r->server, RIG_WATCH, NULL);
	Etcdserverpb__WatchResponse *m;

	create(c, key, start);
	m = next(r, c);
	assert_true(m->created);
	assert_false(m->canceled);
	if (revision)
		*revision = m->header->revision;
	fake_node_dispatch(&r->node);
	return c;
}

static void test_delivery(void **state)
{
	struct rig *r = *state;
	int64_t created;
	struct rp_grpc_call *c = consumer(r, CONSUMER "/", 0, &created);
	Etcdserverpb__WatchResponse *m;
	const Mvccpb__KeyValue *kv;

	rig_put(r, "/q/jobs/producer/job-1", "hello");
	m = next(r, c);
	assert_int_equal(m->n_events, 1);
	assert_int_equal(m->events[0]->type, MVCCPB__EVENT__EVENT_TYPE__PUT);
	assert_null(m->events[0]->prev_kv);
	kv = m->events[0]->kv;
	assert_true(b_is(kv->key, CONSUMER "/1/job-1"));
	assert_true(b_is(kv->value, "hello"));
	assert_true(kv->mod_revision > created);
	assert_int_equal(kv->mod_revision, kv->create_revision);
	assert_int_equal(kv->mod_revision, m->header->revision);
	assert_int_equal(kv->version, 1);
	assert_int_equal(kv->lease, 0);
	assert_int_equal(rp_kv_revision(r->kv), 1); /* the store knows nothing of it */
	assert_int_equal(r->node.accepted, 0);
	fake_call_written(c);
	assert_int_equal(r->node.accepted, 1);
	assert_int_equal(r->node.last_accepted_idx, 1);
	fake_call_free(c);
	assert_int_equal(r->node.last_close, RP_ETCD_CONSUMER_LOST);
}

static void test_withdraw(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = consumer(r, CONSUMER, 0, NULL);
	Etcdserverpb__WatchResponse *m;
	int64_t put;

	rig_put(r, "/q/jobs/p/t", "hello");
	put = next(r, c)->header->revision;
	assert_int_equal(rig_delete(r, "/q/jobs/p/t", "")->deleted, 1);
	m = next(r, c);
	assert_int_equal(m->events[0]->type, MVCCPB__EVENT__EVENT_TYPE__DELETE);
	assert_true(b_is(m->events[0]->kv->key, CONSUMER "/1/t"));
	assert_true(m->header->revision > put);
	assert_int_equal(m->events[0]->kv->mod_revision, m->header->revision);
	assert_int_equal(m->events[0]->kv->version, 0);
	fake_call_free(c);
}

static void test_no_room(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = consumer(r, CONSUMER, 0, NULL);
	struct rp_etcd_stats stats;

	fake_call_window(c, 10);
	rig_put(r, "/q/jobs/p/t", "a value that does not fit");
	assert_null(next(r, c));
	rp_etcd_stats_get(r->e, &stats);
	assert_int_equal(stats.deliveries_no_room, 1);
	assert_int_equal(r->node.rooms, 0);
	fake_call_window(c, 20); /* still too little */
	assert_int_equal(r->node.rooms, 1);
	assert_null(next(r, c));
	fake_call_window(c, 10000);
	assert_int_equal(r->node.rooms, 2);
	assert_int_equal(next(r, c)->n_events, 1);
	fake_call_free(c);
}

static void test_second_watch(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *a = consumer(r, CONSUMER, 0, NULL);
	struct rp_grpc_call *b = consumer(r, "/queue/jobs/c/" UUID, 0, NULL);
	Etcdserverpb__WatchResponse *m = next(r, a);

	assert_true(m->canceled);
	assert_string_equal(m->cancel_reason, "queue: another watch has taken over this consumer");
	assert_int_equal(r->node.closes, 1);
	assert_int_equal(r->node.last_close, RP_ETCD_CONSUMER_REPLACED);
	rig_put(r, "/q/jobs/p/t", "x");
	assert_null(next(r, a));
	assert_true(b_is(next(r, b)->events[0]->kv->key, "/queue/jobs/c/" UUID "/1/t"));
	fake_call_free(a);
	assert_int_equal(r->node.closes, 1);
	fake_call_free(b);
	assert_int_equal(r->node.closes, 2);
}

static void test_refused(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, RIG_WATCH, NULL);
	Etcdserverpb__WatchRequest w = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest m = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest__FilterType no_put =
		ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT;
	Etcdserverpb__WatchResponse *answer;

	w.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	w.create_request = &m;
	m.key = B(CONSUMER);
	m.filters = &no_put;
	m.n_filters = 1;
	rig_send(c, &w);
	answer = next(r, c);
	assert_int_equal(answer->watch_id, -1);
	assert_string_equal(answer->cancel_reason, "queue: a consumer cannot filter puts out");
	create(c, "/q/jobs/c/nobody", 0);
	answer = next(r, c);
	assert_true(answer->created && answer->canceled);
	assert_memory_equal(answer->cancel_reason, "queue key: the consumer is not a uuid", 37);
	create(c, "/q/closed/c/" UUID, 0);
	answer = next(r, c);
	assert_string_equal(answer->cancel_reason, "queue: closed for the test");
	assert_true(rp_list_empty(&r->node.consumers));
	fake_call_free(c);
	assert_int_equal(r->node.closes, 0);
}

static void test_resume(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = consumer(r, CONSUMER, 0, NULL);
	Etcdserverpb__WatchResponse *m;
	int64_t revision, created;

	rig_put(r, "/q/jobs/p/t", "x");
	revision = next(r, c)->header->revision;
	fake_call_free(c);
	c = consumer(r, CONSUMER, revision, &created);
	assert_true(created < revision);
	m = next(r, c);
	assert_int_equal(m->header->revision, revision); /* sent again unchanged */
	assert_int_equal(m->events[0]->kv->version, 1);
	fake_call_free(c);
	c = consumer(r, CONSUMER, revision + 1, NULL);
	assert_null(next(r, c));
	fake_call_free(c);
	c = consumer(r, CONSUMER, 0, NULL);
	assert_int_equal(next(r, c)->events[0]->kv->version, 2); /* a new life */
	fake_call_free(c);
}

static void test_progress(void **state)
{
	struct rig *r = *state;
	int64_t created, sent;
	struct rp_grpc_call *c = consumer(r, CONSUMER, 0, &created);
	Etcdserverpb__WatchRequest w = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchProgressRequest p = ETCDSERVERPB__WATCH_PROGRESS_REQUEST__INIT;
	Etcdserverpb__WatchResponse *m;

	create(c, "plain", 0);
	next(r, c);
	rig_put(r, "/q/jobs/p/t", "x");
	sent = next(r, c)->header->revision;
	w.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST;
	w.progress_request = &p;
	rig_send(c, &w);
	for (int i = 0; i < 2; i++) {
		m = next(r, c);
		assert_int_equal(m->n_events, 0);
		assert_int_equal(m->header->revision, m->watch_id == 0 ? sent : 1);
	}
	assert_null(next(r, c));
	fake_call_free(c);
}

static void test_bad_calls(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = consumer(r, CONSUMER, 0, NULL);
	struct fake_consumer *f = rp_list_entry(r->node.consumers.next, struct fake_consumer, link);
	struct rp_etcd_delivery d = {
		.tail = {.data = (const uint8_t *)"t", .length = 1}, .mod_revision = 5000000};

	assert_int_equal(rp_etcd_consumer_deliver(r->e, f->handle, &d), 0);
	assert_int_equal(rp_etcd_consumer_deliver(r->e, f->handle, &d), -EINVAL);
	assert_int_equal(rp_etcd_consumer_deliver(r->e, 4711, &d), -ENOENT);
	assert_int_equal(rp_etcd_consumer_withdraw(r->e, 4711, 1, d.tail, 1), -ENOENT);
	assert_int_equal(rp_etcd_consumer_withdraw(r->e, f->handle, 1, d.tail, 1), -EINVAL);
	rp_etcd_consumer_end(r->e, f->handle, "queue: moved away");
	next(r, c);
	assert_string_equal(next(r, c)->cancel_reason, "queue: moved away");
	assert_int_equal(rp_etcd_consumer_deliver(r->e, f->handle, &d), -ENOENT);
	rp_etcd_consumer_end(r->e, 4711, NULL);
	fake_call_written(c); /* accepted by nobody any more */
	assert_int_equal(r->node.accepted, 0);
	fake_call_free(c);
	assert_int_equal(r->node.closes, 0);
}

static void test_many(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = consumer(r, CONSUMER, 0, NULL);
	struct rp_grpc_call *d = consumer(r, "/q/jobs/consumer/" UUID2, 0, NULL);
	int events = 0;

	for (int i = 0; i < 16; i++)
		rig_put(r, "/q/jobs/p/t", "x");
	while (next(r, c))
		events++;
	assert_int_equal(events, 8);
	while (next(r, d))
		events++;
	assert_int_equal(events, 16);
	rig_put(r, "/q/jobs/p/t", "x");
	assert_refused(
		r, RP_GRPC_RESOURCE_EXHAUSTED, "queue \"jobs\": queue is full: limits.queue_depth");
	fake_call_written(c);
	fake_call_written(d);
	assert_int_equal(r->node.accepted, 16);
	rp_etcd_stop(r->e);
	assert_int_equal(r->node.last_close, RP_ETCD_CONSUMER_STOPPED);
	fake_call_free(c);
	fake_call_free(d);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_delivery),
		T(test_withdraw),
		T(test_no_room),
		T(test_second_watch),
		T(test_refused),
		T(test_resume),
		T(test_progress),
		T(test_bad_calls),
		T(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
