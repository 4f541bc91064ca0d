/* SPDX-License-Identifier: Apache-2.0 */
/* Maintenance and Cluster beyond what a node is asked each second: snapshots, changes, refusals. */
#include <mbedtls/sha256.h>

#include <base/bytes.h>
#include <bolt/bolt.h>

#include "etcd_test_util.h"

#define SNAPSHOT "/etcdserverpb.Maintenance/Snapshot"

/* What a client holds of a snapshot. */
struct snapshot {
	uint8_t *data;
	size_t length;
	uint64_t remaining;
	unsigned blobs;
	bool over;
};

static void snapshot_read(struct rp_grpc_call *c, struct snapshot *s)
{
	const struct fake_answer *a;

	while ((a = fake_call_next(c))) {
		Etcdserverpb__SnapshotResponse *m =
			etcdserverpb__snapshot_response__unpack(NULL, a->length, a->data);

		assert_non_null(m);
		assert_null(m->header);
		assert_true(m->blob.len > 0 && m->blob.len <= 32768);
		s->data = realloc(s->data, s->length + m->blob.len);
		memcpy(s->data + s->length, m->blob.data, m->blob.len);
		s->length += m->blob.len;
		s->remaining = m->remaining_bytes;
		s->blobs++;
		etcdserverpb__snapshot_response__free_unpacked(m, NULL);
	}
	s->over = c->over;
}

static struct snapshot snapshot_of(struct rig *r)
{
	Etcdserverpb__SnapshotRequest m = ETCDSERVERPB__SNAPSHOT_REQUEST__INIT;
	struct rp_grpc_call *c = fake_call_new(r->server, SNAPSHOT, NULL);
	struct snapshot s = {0};

	rig_send(c, &m);
	snapshot_read(c, &s);
	assert_true(c->over);
	assert_int_equal(c->code, RP_GRPC_OK);
	fake_call_free(c);
	return s;
}

static void snapshot_check_sum(const struct snapshot *s)
{
	uint8_t hash[32];

	assert_int_equal(s->remaining, 0);
	assert_int_equal(s->length % 512, 32);
	mbedtls_sha256_ret(s->data, s->length - 32, hash, 0);
	assert_memory_equal(hash, s->data + s->length - 32, 32);
}

/* The pairs of "key" as text, each "revision.sub[t] key=value" of the version, in order. */
static bool print_pair(void *ctx, struct rp_span key, struct rp_span value)
{
	struct rp_reader r = rp_reader_of(key.data, key.length);
	Mvccpb__KeyValue *kv = mvccpb__key_value__unpack(NULL, value.length, value.data);
	uint64_t revision = rp_read_be64(&r), sub;
	char *out = ctx;

	assert_non_null(kv);
	assert_int_equal(rp_read_u8(&r), '_');
	sub = rp_read_be64(&r);
	sprintf(out + strlen(out), "%d.%d%.*s %.*s=%.*s;", (int)revision, (int)sub,
		(int)rp_reader_left(&r), (const char *)r.pos, (int)kv->key.len,
		(const char *)kv->key.data, (int)kv->value.len, (const char *)kv->value.data);
	/* A tombstone is its key alone. */
	assert_int_equal(kv->mod_revision, rp_reader_left(&r) > 0 ? 0 : revision);
	mvccpb__key_value__free_unpacked(kv, NULL);
	return true;
}

static bool print_meta(void *ctx, struct rp_span key, struct rp_span value)
{
	struct rp_reader r = rp_reader_of(value.data, value.length);
	char *out = ctx;

	sprintf(out + strlen(out), "%.*s=%d/%d;", (int)key.length, (const char *)key.data,
		(int)rp_read_be64(&r), (int)value.length);
	return true;
}

static void assert_pairs(const struct snapshot *s, const char *bucket,
	bool (*print)(void *, struct rp_span, struct rp_span), const char *expected)
{
	struct rp_span file = {.data = s->data, .length = s->length - 32};
	struct rp_bolt_file f;
	const char *why = "";
	char text[4096] = "";

	assert_int_equal(rp_bolt_open(&f, file, &why), 0);
	assert_int_equal(rp_bolt_each(&f, bucket, print, text, &why), 0);
	assert_string_equal(text, expected);
}

static void compact(struct rig *r, int64_t revision)
{
	Etcdserverpb__CompactionRequest m = ETCDSERVERPB__COMPACTION_REQUEST__INIT;

	m.revision = revision;
	rig_call_on(r, NULL, RIG_COMPACT, &m, &etcdserverpb__compaction_response__descriptor);
	assert_int_equal(r->code, RP_GRPC_OK);
}

static void test_snapshot(void **state)
{
	struct rig *r = *state;
	struct snapshot s = snapshot_of(r);

	snapshot_check_sum(&s);
	assert_pairs(&s, "key", print_pair, "");
	assert_pairs(&s, "meta", print_meta, "consistent_index=1/8;");
	free(s.data);
	rig_put(r, "b", "1");
	rig_put(r, "a", "2");
	rig_put(r, "b", "3");
	rig_delete(r, "a", "c");
	s = snapshot_of(r);
	snapshot_check_sum(&s);
	assert_pairs(&s, "key", print_pair, "2.0 b=1;3.0 a=2;4.0 b=3;5.0t a=;5.1t b=;");
	free(s.data);
	/* What compaction has made unreachable is not in it, freed or not. */
	compact(r, 4);
	s = snapshot_of(r);
	assert_pairs(&s, "key", print_pair, "3.0 a=2;4.0 b=3;5.0t a=;5.1t b=;");
	assert_pairs(&s, "meta", print_meta,
		"consistent_index=5/8;finishedCompactRev=4/17;scheduledCompactRev=4/17;");
	free(s.data);
	rig_run(r);
	s = snapshot_of(r);
	assert_pairs(&s, "key", print_pair, "3.0 a=2;4.0 b=3;5.0t a=;5.1t b=;");
	free(s.data);
}

/* A client that reads slowly holds what it has not read, and sees the store as it was. */
static void test_snapshot_slow(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__SnapshotRequest m = ETCDSERVERPB__SNAPSHOT_REQUEST__INIT;
	struct rp_grpc_call *c;
	struct snapshot s = {0};
	char value[5000], key[16];
	unsigned turns = 0;

	memset(value, 'v', sizeof(value));
	value[sizeof(value) - 1] = 0;
	for (unsigned i = 0; i < 60; i++) {
		snprintf(key, sizeof(key), "k%03u", i);
		rig_put(r, key, value);
	}
	c = fake_call_new(r->server, SNAPSHOT, NULL);
	fake_call_window(c, 40000);
	rig_send(c, &m);
	snapshot_read(c, &s);
	assert_int_equal(s.blobs, 1);
	assert_false(s.over);
	rig_put(r, "late", "x");
	rig_delete(r, "k000", "");
	compact(r, 60);
	rig_run(r);
	while (!s.over && turns++ < 100) {
		fake_call_window(c, 40000);
		snapshot_read(c, &s);
	}
	assert_int_equal(c->code, RP_GRPC_OK);
	snapshot_check_sum(&s);
	assert_non_null(memmem(s.data, s.length, "k000", 4));
	assert_null(memmem(s.data, s.length, "late", 4));
	assert_true(s.length > 60 * sizeof(value));
	fake_call_free(c);
	free(s.data);
}

static void test_snapshot_bounds(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__SnapshotRequest m = ETCDSERVERPB__SNAPSHOT_REQUEST__INIT;
	struct rp_grpc_call *calls[17];

	rig_put(r, "k", "v");
	for (unsigned i = 0; i < 17; i++) {
		calls[i] = fake_call_new(r->server, SNAPSHOT, NULL);
		fake_call_window(calls[i], 0);
		rig_send(calls[i], &m);
	}
	assert_true(calls[16]->over);
	assert_int_equal(calls[16]->code, RP_GRPC_RESOURCE_EXHAUSTED);
	fake_call_cancel(calls[0], RP_GRPC_CANCEL_RESET);
	fake_call_free(calls[16]);
	calls[16] = fake_call_new(r->server, SNAPSHOT, NULL);
	rig_send(calls[16], &m);
	assert_int_equal(calls[16]->code, RP_GRPC_OK);
	for (unsigned i = 1; i < 16; i++)
		fake_call_cancel(calls[i], RP_GRPC_CANCEL_LOST);
	for (unsigned i = 0; i < 17; i++)
		fake_call_free(calls[i]);
}

static void test_move_leader(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__MoveLeaderRequest m = ETCDSERVERPB__MOVE_LEADER_REQUEST__INIT;
	Etcdserverpb__MoveLeaderResponse *a;

	m.targetid = 1234;
	rig_call_on(r, NULL, "/etcdserverpb.Maintenance/MoveLeader", &m,
		&etcdserverpb__move_leader_response__descriptor);
	assert_refused(r, RP_GRPC_FAILED_PRECONDITION, "etcdserver: bad leader transferee");
	m.targetid = RIG_MEMBER;
	a = rig_call_on(r, NULL, "/etcdserverpb.Maintenance/MoveLeader", &m,
		&etcdserverpb__move_leader_response__descriptor);
	assert_non_null(a);
	assert_null(a->header);
}

static void test_defragment(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__DefragmentRequest m = ETCDSERVERPB__DEFRAGMENT_REQUEST__INIT;
	Etcdserverpb__DefragmentResponse *a =
		rig_call_on(r, NULL, "/etcdserverpb.Maintenance/Defragment", &m,
			&etcdserverpb__defragment_response__descriptor);

	assert_non_null(a);
	assert_null(a->header);
}

static uint32_t hash(struct rig *r)
{
	Etcdserverpb__HashRequest m = ETCDSERVERPB__HASH_REQUEST__INIT;
	Etcdserverpb__HashResponse *a = rig_call_on(r, NULL, "/etcdserverpb.Maintenance/Hash", &m,
		&etcdserverpb__hash_response__descriptor);

	assert_non_null(a);
	assert_int_equal(a->header->member_id, RIG_MEMBER);
	assert_int_equal(a->header->revision, rp_kv_revision(r->kv));
	return a->hash;
}

/* Of what is stored: equal while nothing changes, another one with every write. */
static void test_hash(void **state)
{
	struct rig *r = *state;
	uint32_t empty = hash(r), one, two;

	assert_int_equal(hash(r), empty);
	rig_put(r, "k", "v");
	one = hash(r);
	assert_int_not_equal(one, empty);
	assert_int_equal(hash(r), one);
	rig_put(r, "k", "v");
	two = hash(r);
	assert_int_not_equal(two, one);
}

static Etcdserverpb__DowngradeResponse *downgrade(struct rig *r, int action, const char *version)
{
	Etcdserverpb__DowngradeRequest m = ETCDSERVERPB__DOWNGRADE_REQUEST__INIT;

	m.action = (Etcdserverpb__DowngradeRequest__DowngradeAction)action;
	m.version = (char *)version;
	return rig_call_on(r, NULL, "/etcdserverpb.Maintenance/Downgrade", &m,
		&etcdserverpb__downgrade_response__descriptor);
}

static const Etcdserverpb__DowngradeInfo *downgrade_info(struct rig *r)
{
	Etcdserverpb__StatusRequest m = ETCDSERVERPB__STATUS_REQUEST__INIT;
	Etcdserverpb__StatusResponse *s = rig_call_on(r, NULL, "/etcdserverpb.Maintenance/Status",
		&m, &etcdserverpb__status_response__descriptor);

	assert_non_null(s->downgradeinfo);
	return s->downgradeinfo;
}

static void test_downgrade(void **state)
{
	static const char *const malformed[] = {"", "x", "3", "3.5.0.1", "3.5-rc", "3..5", ".3.5",
		"33333.5.0", "3.5.0000000000000"};
	static const char *const wrong[] = {"3.6.0", "3.4.0", "3.7.0", "2.5.0", "4.5.0"};
	struct rig *r = *state;
	Etcdserverpb__DowngradeResponse *a;

	for (int action = 0; action < 2; action++) {
		for (size_t i = 0; i < RP_ARRAY_SIZE(malformed); i++) {
			downgrade(r, action, malformed[i]);
			assert_refused(r, RP_GRPC_INVALID_ARGUMENT,
				"etcdserver: wrong downgrade target version format");
		}
		for (size_t i = 0; i < RP_ARRAY_SIZE(wrong); i++) {
			downgrade(r, action, wrong[i]);
			assert_refused(r, RP_GRPC_INVALID_ARGUMENT,
				"etcdserver: invalid downgrade target version");
		}
	}
	downgrade(r, 2, "");
	assert_refused(r, RP_GRPC_FAILED_PRECONDITION, "etcdserver: no inflight downgrade job");
	a = downgrade(r, 0, "3.5");
	assert_string_equal(a->version, "3.6.0");
	assert_int_equal(a->header->member_id, RIG_MEMBER);
	assert_false(downgrade_info(r)->enabled);
	assert_non_null(downgrade(r, 1, "3.5.0"));
	assert_true(downgrade_info(r)->enabled);
	assert_string_equal(downgrade_info(r)->targetversion, "3.5.0");
	downgrade(r, 1, "3.5.0");
	assert_refused(r, RP_GRPC_FAILED_PRECONDITION,
		"etcdserver: cluster has a downgrade job in progress");
	assert_non_null(downgrade(r, 2, ""));
	assert_false(downgrade_info(r)->enabled);
	downgrade(r, 9, "3.5.0");
	assert_int_equal(r->code, RP_GRPC_UNKNOWN);
}

static uint64_t member_added(struct rig *r, const char *url)
{
	Etcdserverpb__MemberAddRequest m = ETCDSERVERPB__MEMBER_ADD_REQUEST__INIT;
	char *urls[] = {(char *)url};
	Etcdserverpb__MemberAddResponse *a;

	m.peerurls = urls;
	m.n_peerurls = 1;
	a = rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberAdd", &m,
		&etcdserverpb__member_add_response__descriptor);
	assert_non_null(a);
	return a->member->id;
}

static Etcdserverpb__MemberUpdateResponse *member_update(
	struct rig *r, uint64_t id, const char *url)
{
	Etcdserverpb__MemberUpdateRequest m = ETCDSERVERPB__MEMBER_UPDATE_REQUEST__INIT;
	char *urls[] = {(char *)url};

	m.id = id;
	m.peerurls = urls;
	m.n_peerurls = url != NULL;
	return rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberUpdate", &m,
		&etcdserverpb__member_update_response__descriptor);
}

static Etcdserverpb__MemberRemoveResponse *member_remove(struct rig *r, uint64_t id)
{
	Etcdserverpb__MemberRemoveRequest m = ETCDSERVERPB__MEMBER_REMOVE_REQUEST__INIT;

	m.id = id;
	return rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberRemove", &m,
		&etcdserverpb__member_remove_response__descriptor);
}

static void test_member_changes(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__MemberPromoteRequest promote = ETCDSERVERPB__MEMBER_PROMOTE_REQUEST__INIT;
	Etcdserverpb__MemberUpdateResponse *updated;
	Etcdserverpb__MemberRemoveResponse *removed;
	uint64_t id = member_added(r, "http://10.0.0.1:2380");

	member_added(r, "http://10.0.0.2:2380");
	member_update(r, 5, "http://10.0.0.3:2380");
	assert_refused(r, RP_GRPC_NOT_FOUND, "etcdserver: member not found");
	member_update(r, id, NULL);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: given member URLs are invalid");
	member_update(r, id, "nonsense");
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: given member URLs are invalid");
	member_update(r, id, "http://10.0.0.2:2380");
	assert_refused(r, RP_GRPC_FAILED_PRECONDITION, "etcdserver: Peer URLs already exists");
	/* Its own URL again is no conflict. */
	assert_non_null(member_update(r, id, "http://10.0.0.1:2380"));
	updated = member_update(r, id, "http://10.0.0.9:2380");
	assert_int_equal(updated->header->revision, 0);
	assert_int_equal(updated->n_members, 3);
	assert_string_equal(updated->members[1]->peerurls[0], "http://10.0.0.9:2380");

	promote.id = id;
	rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberPromote", &promote,
		&etcdserverpb__member_promote_response__descriptor);
	assert_refused(
		r, RP_GRPC_FAILED_PRECONDITION, "etcdserver: can only promote a learner member");
	promote.id = 5;
	rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberPromote", &promote,
		&etcdserverpb__member_promote_response__descriptor);
	assert_refused(r, RP_GRPC_NOT_FOUND, "etcdserver: member not found");

	member_remove(r, 5);
	assert_refused(r, RP_GRPC_NOT_FOUND, "etcdserver: member not found");
	member_remove(r, RIG_MEMBER);
	assert_refused(r, RP_GRPC_FAILED_PRECONDITION,
		"etcdserver: re-configuration failed due to not enough started members");
	removed = member_remove(r, id);
	assert_int_equal(removed->header->revision, 0);
	assert_int_equal(removed->n_members, 2);
	member_remove(r, id);
	assert_refused(r, RP_GRPC_NOT_FOUND, "etcdserver: member not found");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_snapshot),
		T(test_snapshot_slow),
		T(test_snapshot_bounds),
		T(test_move_leader),
		T(test_defragment),
		T(test_hash),
		T(test_downgrade),
		T(test_member_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
