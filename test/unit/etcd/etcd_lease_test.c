/* SPDX-License-Identifier: Apache-2.0 */
/* Lease over a store with real leases; spec/etcd-semantics.md section 5. */
#include "etcd_test_util.h"

#include <etcdserverpb/lease.pb-c.h>

#define LEASE(name) "/etcdserverpb.Lease/" name

static Etcdserverpb__LeaseGrantResponse *grant(struct rig *r, int64_t id, int64_t ttl)
{
	Etcdserverpb__LeaseGrantRequest m = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;

	m.id = id;
	m.ttl = ttl;
	return rig_call_on(
		r, NULL, LEASE("LeaseGrant"), &m, &etcdserverpb__lease_grant_response__descriptor);
}

static Etcdserverpb__LeaseRevokeResponse *revoke_lease(struct rig *r, int64_t id)
{
	Etcdserverpb__LeaseRevokeRequest m = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;

	m.id = id;
	return rig_call_on(r, NULL, LEASE("LeaseRevoke"), &m,
		&etcdserverpb__lease_revoke_response__descriptor);
}

static Etcdserverpb__LeaseTimeToLiveResponse *time_to_live(struct rig *r, int64_t id, bool keys)
{
	Etcdserverpb__LeaseTimeToLiveRequest m = ETCDSERVERPB__LEASE_TIME_TO_LIVE_REQUEST__INIT;

	m.id = id;
	m.keys = keys;
	return rig_call_on(r, NULL, LEASE("LeaseTimeToLive"), &m,
		&etcdserverpb__lease_time_to_live_response__descriptor);
}

static Etcdserverpb__PutResponse *put_leased(struct rig *r, const char *key, int64_t lease)
{
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;

	m.key = B(key);
	m.value = B("v");
	m.lease = lease;
	return rig_call_on(r, NULL, RIG_PUT, &m, &etcdserverpb__put_response__descriptor);
}

static void keepalive_send(struct rp_grpc_call *c, int64_t id)
{
	Etcdserverpb__LeaseKeepAliveRequest m = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;

	m.id = id;
	rig_send(c, &m);
}

/* -2: no answer. */
static int64_t keepalive_ttl(struct rp_grpc_call *c, int64_t id)
{
	const struct fake_answer *a = fake_call_next(c);
	Etcdserverpb__LeaseKeepAliveResponse *m;
	int64_t ttl;

	if (!a)
		return -2;
	m = etcdserverpb__lease_keep_alive_response__unpack(NULL, a->length, a->data);
	assert_non_null(m);
	assert_non_null(m->header);
	assert_int_equal(m->header->member_id, RIG_MEMBER);
	assert_int_equal(m->id, id);
	ttl = m->ttl;
	etcdserverpb__lease_keep_alive_response__free_unpacked(m, NULL);
	return ttl;
}

static int64_t keepalive(struct rp_grpc_call *c, int64_t id)
{
	keepalive_send(c, id);
	return keepalive_ttl(c, id);
}

static void pass(struct rig *r, uint64_t ns)
{
	r->now_ns += ns;
	rig_run(r);
}

static void test_grant(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__LeaseGrantResponse *m = grant(r, 0, 30);
	int64_t first;

	assert_int_equal(m->header->revision, 1);
	assert_int_equal(m->header->cluster_id, RIG_CLUSTER);
	assert_int_equal(m->header->raft_term, 2);
	assert_int_equal(m->ttl, 30);
	assert_string_equal(m->error, "");
	first = m->id;
	assert_true(first > 0);
	m = grant(r, 0, 0);
	assert_int_equal(m->ttl, 2);
	assert_true(m->id > 0 && m->id != first);
	m = grant(r, -5, 9000000000);
	assert_int_equal(m->id, -5);
	assert_int_equal(m->ttl, 9000000000);
	grant(r, first, 5);
	assert_refused(r, RP_GRPC_FAILED_PRECONDITION, "etcdserver: lease already exists");
	grant(r, 9, 9000000001);
	assert_refused(r, RP_GRPC_OUT_OF_RANGE, "etcdserver: too large lease TTL");
}

static void test_revoke(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__RangeResponse *g;

	revoke_lease(r, 7);
	assert_refused(r, RP_GRPC_NOT_FOUND, "etcdserver: requested lease not found");
	grant(r, 7, 30);
	put_leased(r, "b", 7);
	put_leased(r, "a", 7);
	rig_put(r, "c", "stays");
	assert_int_equal(rp_kv_revision(r->kv), 4);
	assert_int_equal(revoke_lease(r, 7)->header->revision, 5);
	g = rig_get(r, "a", "z");
	assert_int_equal(g->count, 1);
	put_leased(r, "a", 7);
	assert_refused(r, RP_GRPC_NOT_FOUND, "etcdserver: requested lease not found");
	grant(r, 7, 30);
	assert_int_equal(revoke_lease(r, 7)->header->revision, 5); /* no keys, no revision */
}

static void test_time_to_live(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__LeaseTimeToLiveResponse *m = time_to_live(r, 7, true);

	assert_int_equal(m->id, 7);
	assert_int_equal(m->ttl, -1);
	assert_int_equal(m->grantedttl, 0);
	grant(r, 7, 30);
	put_leased(r, "b", 7);
	put_leased(r, "a", 7);
	pass(r, 2500 * RP_NS_PER_MS);
	m = time_to_live(r, 7, false);
	assert_int_equal(m->ttl, 27);
	assert_int_equal(m->grantedttl, 30);
	assert_int_equal(m->n_keys, 0);
	m = time_to_live(r, 7, true);
	assert_int_equal(m->n_keys, 2);
	assert_true(b_is(m->keys[0], "a"));
	assert_true(b_is(m->keys[1], "b"));
}

static void test_leases(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__LeaseLeasesRequest q = ETCDSERVERPB__LEASE_LEASES_REQUEST__INIT;
	Etcdserverpb__LeaseLeasesResponse *m;

	grant(r, 1, 30);
	grant(r, 2, 10);
	grant(r, 3, 20);
	m = rig_call_on(r, NULL, LEASE("LeaseLeases"), &q,
		&etcdserverpb__lease_leases_response__descriptor);
	assert_int_equal(m->n_leases, 3);
	assert_int_equal(m->leases[0]->id, 2);
	assert_int_equal(m->leases[1]->id, 3);
	assert_int_equal(m->leases[2]->id, 1);
	assert_int_equal(m->header->member_id, RIG_MEMBER);
}

static void test_expiry(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c;

	grant(r, 1, 5);
	put_leased(r, "b", 1);
	put_leased(r, "a", 1);
	c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);
	pass(r, 4 * RP_NS_PER_S);
	assert_int_equal(keepalive(c, 1), 5);
	pass(r, 4 * RP_NS_PER_S);
	assert_int_equal(rig_get(r, "a", "z")->count, 2);
	pass(r, 2 * RP_NS_PER_S);
	assert_int_equal(rig_get(r, "a", "z")->count, 0);
	assert_int_equal(rp_kv_revision(r->kv), 4);
	assert_int_equal(keepalive(c, 1), 0);
	assert_int_equal(keepalive(c, 99), 0);
	assert_int_equal(time_to_live(r, 1, false)->ttl, -1);
	/* The stream stays for others. */
	grant(r, 2, 9);
	assert_int_equal(keepalive(c, 2), 9);
	fake_call_half_close(c);
	assert_true(c->over);
	assert_int_equal(c->code, RP_GRPC_OK);
	fake_call_free(c);
}

/* Over, and not revoked yet: the answer comes when its keys are gone. */
static void test_keepalive_of_one_that_is_over(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);

	grant(r, 1, 5);
	put_leased(r, "a", 1);
	r->node.hold_expiry = true;
	pass(r, 6 * RP_NS_PER_S);
	assert_int_equal(rig_get(r, "a", "")->count, 1);
	r->node.hold_writes = true;
	keepalive_send(c, 1);
	assert_int_equal(keepalive_ttl(c, 1), -2);
	assert_true(c->paused);
	fake_call_half_close(c);
	assert_false(c->over);
	fake_node_write_held(&r->node);
	assert_int_equal(keepalive_ttl(c, 1), 0);
	assert_false(c->paused);
	assert_true(c->over);
	assert_int_equal(rig_get(r, "a", "")->count, 0);
	fake_call_free(c);
}

/* The client goes while the write is out. */
static void test_keepalive_cancelled(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);
	struct rp_etcd_stats s;

	grant(r, 1, 5);
	r->node.hold_expiry = true;
	pass(r, 6 * RP_NS_PER_S);
	r->node.hold_writes = true;
	keepalive_send(c, 1);
	fake_call_free(c);
	rp_etcd_stats_get(r->e, &s);
	assert_int_equal(s.lease_streams, 1);
	fake_node_write_held(&r->node);
	rp_etcd_stats_get(r->e, &s);
	assert_int_equal(s.lease_streams, 0);
}

/* A lease that another node counts, as it comes by replication. */
static void grant_elsewhere(struct rig *r, int64_t id, int64_t ttl_s)
{
	struct rp_kv_config config = {.initial_revision = 1, .node = 9, .keep_tombstones = true};
	struct rp_kv *other = rp_kv_create(&config);
	struct rp_kv_system_op op = {.type = RP_KV_SYSTEM_GRANT, .lease = id, .ttl_s = ttl_s};
	struct rp_kv_txn t = {.system = &op, .system_count = 1};
	struct rp_kv_writer w = {.wall_us = 5};
	struct rp_kv_record record;
	struct rp_kv_result result;

	rp_kv_apply(other, &t, &w, &result);
	rp_kv_result_clear(&result);
	assert_int_equal(rp_kv_record_page(other, (struct rp_span){0}, false, (struct rp_span){0},
				 &record, 1),
		1);
	rp_kv_apply_replicated(r->kv, &record, 1, 1);
	rp_kv_destroy(other);
}

/* The node that counts it is asked; nothing is written, and it stays that node's. */
static void test_elsewhere(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);
	struct rp_kv_lease l;

	grant_elsewhere(r, 77, 8);
	r->node.told = (struct rp_etcd_lease_time){
		.state = RP_ETCD_LEASE_COUNTED, .ttl_s = 8, .left_s = 3};
	assert_int_equal(time_to_live(r, 77, false)->ttl, 3);
	assert_int_equal(r->node.asked_renew, 0);
	assert_int_equal(keepalive(c, 77), 8);
	assert_int_equal(r->node.asked, 2);
	assert_int_equal(r->node.asked_renew, 1);
	assert_int_equal(r->node.asked_node, 9);
	assert_int_equal(r->node.asked_lease, 77);
	assert_true(rp_kv_lease_get(r->kv, 77, 0, &l));
	assert_int_equal(l.owner, 9);
	/* It knows of none any more; it is over, which is told when its keys are gone. */
	r->node.told.state = RP_ETCD_LEASE_NONE;
	assert_int_equal(time_to_live(r, 77, false)->ttl, -1);
	assert_int_equal(keepalive(c, 77), 0);
	r->node.told.state = RP_ETCD_LEASE_OVER;
	assert_int_equal(keepalive(c, 77), 0);
	assert_false(rp_kv_lease_get(r->kv, 77, 0, &l));
	fake_call_free(c);
}

/* No node answers: asked again until one does, or the client has waited long enough. */
static void test_elsewhere_away(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);
	Etcdserverpb__LeaseTimeToLiveRequest ttl = ETCDSERVERPB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
	struct rp_grpc_call *t;

	grant_elsewhere(r, 77, 8);
	r->node.told.state = RP_ETCD_LEASE_NO_ANSWER;
	ttl.id = 77;
	t = fake_call_new(r->server, LEASE("LeaseTimeToLive"), NULL);
	rig_send(t, &ttl);
	assert_int_equal(t->code, RP_GRPC_UNAVAILABLE);
	fake_call_free(t);
	keepalive_send(c, 77);
	assert_true(c->paused);
	pass(r, RP_NS_PER_S);
	assert_true(r->node.asked > 2);
	assert_true(c->paused && !c->over);
	r->node.told = (struct rp_etcd_lease_time){.state = RP_ETCD_LEASE_COUNTED, .ttl_s = 8};
	pass(r, RP_NS_PER_S);
	assert_int_equal(keepalive_ttl(c, 77), 8);
	assert_false(c->paused);
	r->node.told.state = RP_ETCD_LEASE_MOVED;
	keepalive_send(c, 77);
	pass(r, 6 * RP_NS_PER_S);
	assert_false(c->over);
	pass(r, 2 * RP_NS_PER_S);
	assert_true(c->over);
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	assert_string_equal(c->message, "etcdserver: request timed out");
	fake_call_free(c);
}

/* The client goes while the question is out; adopted meanwhile, it is answered here. */
static void test_elsewhere_held(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);
	struct rp_kv_system_op take = {.type = RP_KV_SYSTEM_TAKE, .lease = 77};
	struct rp_kv_txn txn = {.system = &take, .system_count = 1};
	struct rp_kv_writer w = {.wall_us = 9, .now_ns = r->node.now_ns};
	struct rp_kv_result result;
	struct rp_etcd_stats s;

	grant_elsewhere(r, 77, 8);
	r->node.hold_question = true;
	r->node.told.state = RP_ETCD_LEASE_NO_ANSWER;
	keepalive_send(c, 77);
	fake_call_free(c);
	rp_etcd_stats_get(r->e, &s);
	assert_int_equal(s.lease_streams, 1);
	fake_node_tell(&r->node);
	rp_etcd_stats_get(r->e, &s);
	assert_int_equal(s.lease_streams, 0);
	c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);
	keepalive_send(c, 77);
	rp_kv_apply(r->kv, &txn, &w, &result);
	rp_kv_result_clear(&result);
	fake_node_tell(&r->node);
	pass(r, RP_NS_PER_S);
	assert_int_equal(keepalive_ttl(c, 77), 8);
	fake_call_free(c);
}

/* A client that does not read: no more of its requests are read. */
static void test_keepalive_without_room(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);

	grant(r, 1, 5);
	c->refuse_sends = true;
	keepalive_send(c, 1);
	assert_true(c->paused);
	rig_run(r);
	assert_true(c->paused);
	c->refuse_sends = false;
	rig_run(r);
	assert_false(c->paused);
	assert_int_equal(keepalive_ttl(c, 1), 5);
	fake_call_free(c);
}

static void test_no_leader_and_stop(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c;

	r->node.leader = 0;
	fake_has_leader = true;
	c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);
	fake_has_leader = false;
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	assert_string_equal(c->message, "etcdserver: no leader");
	fake_call_free(c);
	c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);
	fake_call_send(c, "\xff\xff", 2);
	assert_int_equal(c->code, RP_GRPC_INTERNAL);
	fake_call_free(c);
	c = fake_call_new(r->server, LEASE("LeaseKeepAlive"), NULL);
	rp_etcd_stop(r->e);
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	fake_call_free(c);
	grant(r, 1, 5);
	assert_refused(r, RP_GRPC_UNAVAILABLE, "etcdserver: server stopped");
	revoke_lease(r, 1);
	assert_refused(r, RP_GRPC_UNAVAILABLE, "etcdserver: server stopped");
}

/* A consumer's record with a lease goes with it; a message has none. */
static void test_queue_keys(void **state)
{
	struct rig *r = *state;

	grant(r, 1, 5);
	put_leased(r, "/q/jobs/c/" UUID, 1);
	assert_int_equal(r->code, 0);
	assert_int_equal(time_to_live(r, 1, true)->n_keys, 1);
	pass(r, 6 * RP_NS_PER_S);
	assert_int_equal(rig_get(r, "/q/jobs/c/" UUID, "")->count, 0);
	put_leased(r, "/q/jobs/p/x", 1);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "queue key: a message cannot have a lease");
}

static void test_reserved_keys(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;

	m.key = (ProtobufCBinaryData){.data = (uint8_t *)RP_KV_HIDDEN_PREFIX "x", .len = 12};
	rig_call_on(r, NULL, RIG_PUT, &m, &etcdserverpb__put_response__descriptor);
	assert_refused(
		r, RP_GRPC_PERMISSION_DENIED, "ringpost: the key is reserved for the server");
}

#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_grant),
		T(test_revoke),
		T(test_time_to_live),
		T(test_leases),
		T(test_expiry),
		T(test_keepalive_of_one_that_is_over),
		T(test_keepalive_cancelled),
		T(test_elsewhere),
		T(test_elsewhere_away),
		T(test_elsewhere_held),
		T(test_keepalive_without_room),
		T(test_no_leader_and_stop),
		T(test_queue_keys),
		T(test_reserved_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
