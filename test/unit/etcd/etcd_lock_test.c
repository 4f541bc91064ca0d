/* SPDX-License-Identifier: Apache-2.0 */
/* Lock and Election; spec/etcd-semantics.md section 8. */
#include "etcd_test_util.h"

#include <etcdserverpb/lease.pb-c.h>
#include <v3electionpb/v3election.pb-c.h>
#include <v3lockpb/v3lock.pb-c.h>

#define ELECTION(name) "/v3electionpb.Election/" name

static void grant(struct rig *r, int64_t id, int64_t ttl)
{
	Etcdserverpb__LeaseGrantRequest m = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;

	m.id = id;
	m.ttl = ttl;
	rig_call_on(r, NULL, "/etcdserverpb.Lease/LeaseGrant", &m,
		&etcdserverpb__lease_grant_response__descriptor);
	assert_int_equal(r->code, 0);
}

static void lease_revoke(struct rig *r, int64_t id)
{
	Etcdserverpb__LeaseRevokeRequest m = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;

	m.id = id;
	rig_call_on(r, NULL, "/etcdserverpb.Lease/LeaseRevoke", &m,
		&etcdserverpb__lease_revoke_response__descriptor);
	assert_int_equal(r->code, 0);
	rig_run(r);
}

static struct rp_grpc_call *lock_begin(struct rig *r, const char *name, int64_t lease)
{
	struct rp_grpc_call *c = fake_call_new(r->server, "/v3lockpb.Lock/Lock", NULL);
	V3lockpb__LockRequest m = V3LOCKPB__LOCK_REQUEST__INIT;

	m.name = B(name);
	m.lease = lease;
	rig_send(c, &m);
	return c;
}

static V3lockpb__LockResponse *lock_end(struct rig *r, struct rp_grpc_call *c)
{
	return rig_take(r, c, &v3lockpb__lock_response__descriptor);
}

static V3lockpb__UnlockResponse *unlock(struct rig *r, const char *key)
{
	V3lockpb__UnlockRequest m = V3LOCKPB__UNLOCK_REQUEST__INIT;

	m.key = B(key);
	return rig_call_on(
		r, NULL, "/v3lockpb.Lock/Unlock", &m, &v3lockpb__unlock_response__descriptor);
}

static uint64_t count_under(struct rig *r, const char *prefix, const char *end)
{
	return (uint64_t)rig_get(r, prefix, end)->count;
}

static void test_lock(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *first, *second, *third, *again;
	V3lockpb__LockResponse *m;

	grant(r, 0x1a, 60);
	grant(r, 0x2b, 60);
	grant(r, -0x3c, 60);
	first = lock_begin(r, "m", 0x1a);
	m = lock_end(r, first);
	assert_true(b_is(m->key, "m/1a"));
	assert_int_equal(m->header->revision, 2);
	assert_int_equal(m->header->member_id, RIG_MEMBER);
	/* The same lease again: the same key, and no write. */
	again = lock_begin(r, "m", 0x1a);
	assert_true(b_is(lock_end(r, again)->key, "m/1a"));
	assert_int_equal(rp_kv_revision(r->kv), 2);
	second = lock_begin(r, "m", 0x2b);
	third = lock_begin(r, "m", -0x3c);
	rig_run(r);
	assert_false(second->over);
	assert_false(third->over);
	assert_int_equal(count_under(r, "m/-3c", ""), 1);
	/* A put on the key waited for is no release. */
	rig_put(r, "m/1a", "x");
	rig_run(r);
	assert_false(second->over);
	unlock(r, "m/1a");
	assert_int_equal(r->code, 0);
	rig_run(r);
	assert_true(second->over);
	assert_false(third->over);
	assert_true(b_is(lock_end(r, second)->key, "m/2b"));
	/* The holder's lease ends: so does its lock. */
	lease_revoke(r, 0x2b);
	assert_true(b_is(lock_end(r, third)->key, "m/-3c"));
}

/* One in the middle gives up: its key goes, and the next waits for the one before. */
static void test_lock_cancelled(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *second, *third;
	struct rp_etcd_stats s;

	for (int64_t id = 1; id <= 3; id++)
		grant(r, id, 60);
	lock_end(r, lock_begin(r, "m", 1));
	second = lock_begin(r, "m", 2);
	third = lock_begin(r, "m", 3);
	assert_int_equal(count_under(r, "m/", "m0"), 3);
	fake_call_cancel(second, RP_GRPC_CANCEL_DEADLINE);
	fake_call_free(second);
	rig_run(r);
	assert_int_equal(count_under(r, "m/", "m0"), 2);
	assert_false(third->over);
	unlock(r, "m/1");
	rig_run(r);
	assert_true(b_is(lock_end(r, third)->key, "m/3"));
	rp_etcd_stats_get(r->e, &s);
	assert_int_equal(s.contests, 0);
}

/* The call goes while its key is being written. */
static void test_lock_cancelled_early(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c;
	struct rp_etcd_stats s;

	grant(r, 1, 60);
	r->node.hold_writes = true;
	c = lock_begin(r, "m", 1);
	fake_call_free(c);
	fake_node_write_held(&r->node);
	assert_int_equal(count_under(r, "m/", "m0"), 0);
	rp_etcd_stats_get(r->e, &s);
	assert_int_equal(s.contests, 0);
}

static void test_lock_errors(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c;
	V3lockpb__LockResponse *m;

	lock_end(r, lock_begin(r, "m", 99));
	assert_refused(r, RP_GRPC_UNKNOWN, "etcdserver: requested lease not found");
	unlock(r, "");
	assert_refused(r, RP_GRPC_UNKNOWN, "etcdserver: key is not provided");
	unlock(r, "absent");
	assert_int_equal(r->code, 0);
	/* Without a lease the server grants one of 60 s. */
	m = lock_end(r, lock_begin(r, "m", 0));
	assert_int_equal(m->key.len > 2, 1);
	r->now_ns += 61 * RP_NS_PER_S;
	rig_run(r);
	assert_int_equal(count_under(r, "m/", "m0"), 0);
	/* Our key goes while we wait. */
	grant(r, 1, 60);
	grant(r, 2, 60);
	lock_end(r, lock_begin(r, "m", 1));
	c = lock_begin(r, "m", 2);
	lease_revoke(r, 2);
	assert_false(c->over);
	unlock(r, "m/1");
	rig_run(r);
	lock_end(r, c);
	assert_refused(r, RP_GRPC_UNKNOWN, "mutex: session is expired");
	lock_end(r, lock_begin(r, "/q/jobs/p", 1));
	assert_int_equal(r->code, RP_GRPC_UNKNOWN);
}

static void test_stop(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c;

	grant(r, 1, 60);
	grant(r, 2, 60);
	lock_end(r, lock_begin(r, "m", 1));
	c = lock_begin(r, "m", 2);
	rp_etcd_stop(r->e);
	lock_end(r, c);
	assert_refused(r, RP_GRPC_UNAVAILABLE, "etcdserver: server stopped");
	lock_end(r, lock_begin(r, "m", 2));
	assert_refused(r, RP_GRPC_UNAVAILABLE, "etcdserver: server stopped");
}

/* ---- elections ---- */

static struct rp_grpc_call *campaign_begin(
	struct rig *r, const char *name, int64_t lease, const char *value)
{
	struct rp_grpc_call *c = fake_call_new(r->server, ELECTION("Campaign"), NULL);
	V3electionpb__CampaignRequest m = V3ELECTIONPB__CAMPAIGN_REQUEST__INIT;

	m.name = B(name);
	m.lease = lease;
	m.value = B(value);
	rig_send(c, &m);
	return c;
}

static V3electionpb__CampaignResponse *campaign_end(struct rig *r, struct rp_grpc_call *c)
{
	return rig_take(r, c, &v3electionpb__campaign_response__descriptor);
}

static V3electionpb__LeaderResponse *leader(struct rig *r, const char *name)
{
	V3electionpb__LeaderRequest m = V3ELECTIONPB__LEADER_REQUEST__INIT;

	m.name = B(name);
	return rig_call_on(
		r, NULL, ELECTION("Leader"), &m, &v3electionpb__leader_response__descriptor);
}

static V3electionpb__LeaderKey leader_key(
	const char *name, const char *key, int64_t rev, int64_t id)
{
	V3electionpb__LeaderKey k = V3ELECTIONPB__LEADER_KEY__INIT;

	k.name = B(name);
	k.key = B(key);
	k.rev = rev;
	k.lease = id;
	return k;
}

static void proclaim(struct rig *r, V3electionpb__LeaderKey *k, const char *value)
{
	V3electionpb__ProclaimRequest m = V3ELECTIONPB__PROCLAIM_REQUEST__INIT;

	m.leader = k;
	m.value = B(value);
	rig_call_on(
		r, NULL, ELECTION("Proclaim"), &m, &v3electionpb__proclaim_response__descriptor);
}

static void resign(struct rig *r, V3electionpb__LeaderKey *k)
{
	V3electionpb__ResignRequest m = V3ELECTIONPB__RESIGN_REQUEST__INIT;

	m.leader = k;
	rig_call_on(r, NULL, ELECTION("Resign"), &m, &v3electionpb__resign_response__descriptor);
	rig_run(r);
}

static void test_election(void **state)
{
	struct rig *r = *state;
	V3electionpb__CampaignResponse *m;
	V3electionpb__LeaderKey k, wrong;
	struct rp_grpc_call *second;

	leader(r, "e");
	assert_refused(r, RP_GRPC_UNKNOWN, "election: no leader");
	grant(r, 1, 60);
	grant(r, 2, 60);
	m = campaign_end(r, campaign_begin(r, "e", 1, "one"));
	assert_true(b_is(m->leader->name, "e"));
	assert_true(b_is(m->leader->key, "e/1"));
	assert_int_equal(m->leader->rev, 2);
	assert_int_equal(m->leader->lease, 1);
	assert_int_equal(m->header->revision, 2);
	assert_true(b_is(leader(r, "e")->kv->value, "one"));
	second = campaign_begin(r, "e", 2, "two");
	assert_false(second->over);
	/* Again with another value: proclaimed, and still the leader. */
	m = campaign_end(r, campaign_begin(r, "e", 1, "uno"));
	assert_int_equal(m->leader->rev, 2);
	assert_true(b_is(leader(r, "e")->kv->value, "uno"));
	k = leader_key("e", "e/1", 2, 1);
	wrong = leader_key("e", "e/1", 3, 1);
	proclaim(r, &k, "eins");
	assert_int_equal(r->code, 0);
	assert_true(b_is(leader(r, "e")->kv->value, "eins"));
	assert_int_equal(leader(r, "e")->kv->lease, 1);
	proclaim(r, &wrong, "no");
	assert_refused(r, RP_GRPC_UNKNOWN, "election: not leader");
	proclaim(r, NULL, "no");
	assert_refused(r, RP_GRPC_UNKNOWN, "\"leader\" field must be provided");
	resign(r, NULL);
	assert_refused(r, RP_GRPC_UNKNOWN, "\"leader\" field must be provided");
	resign(r, &wrong);
	assert_int_equal(r->code, 0);
	assert_false(second->over);
	resign(r, &k);
	assert_int_equal(r->code, 0);
	m = campaign_end(r, second);
	assert_true(b_is(m->leader->key, "e/2"));
	assert_int_equal(m->leader->rev, 3);
}

/* "key value" of the next message, "" when there is none. */
static const char *observed(struct rp_grpc_call *c)
{
	static char text[128];
	const struct fake_answer *a = fake_call_next(c);
	V3electionpb__LeaderResponse *m;

	if (!a)
		return "";
	m = v3electionpb__leader_response__unpack(NULL, a->length, a->data);
	assert_non_null(m);
	assert_int_equal(m->header->cluster_id, RIG_CLUSTER);
	snprintf(text, sizeof(text), "%.*s %.*s", (int)m->kv->key.len, (char *)m->kv->key.data,
		(int)m->kv->value.len, (char *)m->kv->value.data);
	v3electionpb__leader_response__free_unpacked(m, NULL);
	return text;
}

static struct rp_grpc_call *observe(struct rig *r, const char *name)
{
	struct rp_grpc_call *c = fake_call_new(r->server, ELECTION("Observe"), NULL);
	V3electionpb__LeaderRequest m = V3ELECTIONPB__LEADER_REQUEST__INIT;

	m.name = B(name);
	rig_send(c, &m);
	return c;
}

static void test_observe(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c = observe(r, "e"), *second;
	V3electionpb__LeaderKey k;

	assert_string_equal(observed(c), "");
	grant(r, 1, 60);
	grant(r, 2, 60);
	campaign_end(r, campaign_begin(r, "e", 1, "one"));
	assert_string_equal(observed(c), "e/1 one");
	second = campaign_begin(r, "e", 2, "two");
	assert_string_equal(observed(c), "");
	k = leader_key("e", "e/1", 2, 1);
	proclaim(r, &k, "uno");
	assert_string_equal(observed(c), "e/1 uno");
	resign(r, &k);
	assert_string_equal(observed(c), "e/2 two");
	assert_string_equal(observed(c), "");
	campaign_end(r, second);
	lease_revoke(r, 2);
	assert_string_equal(observed(c), "");
	rig_put(r, "e/other", "x");
	assert_string_equal(observed(c), "e/other x");
	fake_call_free(c);
	/* One that comes later is told at once. */
	c = observe(r, "e");
	assert_string_equal(observed(c), "e/other x");
	rp_etcd_stop(r->e);
	assert_int_equal(c->code, RP_GRPC_UNAVAILABLE);
	fake_call_free(c);
}

/* A client that does not read gets where things stand when it does. */
static void test_observe_slow(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_call *c;

	rig_put(r, "e/1", "one");
	c = observe(r, "e");
	assert_string_equal(observed(c), "e/1 one");
	fake_call_window(c, 0);
	rig_put(r, "e/1", "two");
	rig_put(r, "e/2", "next");
	rig_delete(r, "e/1", "");
	rig_put(r, "e/2", "newer");
	rig_run(r);
	assert_string_equal(observed(c), "");
	fake_call_window(c, SIZE_MAX);
	rig_run(r);
	assert_string_equal(observed(c), "e/1 two");
	assert_string_equal(observed(c), "e/2 newer");
	assert_string_equal(observed(c), "");
	fake_call_free(c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_lock),
		T(test_lock_cancelled),
		T(test_lock_cancelled_early),
		T(test_lock_errors),
		T(test_stop),
		T(test_election),
		T(test_observe),
		T(test_observe_slow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
