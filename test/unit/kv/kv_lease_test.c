/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kv_test_util.h"

#define S_NS RP_NS_PER_S

static int setup(void **state)
{
	*state = kv_new();
	return 0;
}

static int teardown(void **state)
{
	rp_kv_destroy(*state);
	return 0;
}

static enum rp_kv_error put_leased(struct rp_kv *kv, const char *key, int64_t lease)
{
	struct rp_kv_op op = op_put(key, "v");
	struct rp_kv_result r;
	enum rp_kv_error error;

	op.put.lease = lease;
	error = kv_run(kv, &op, 1, &r);
	rp_kv_result_clear(&r);
	return error;
}

static enum rp_kv_error grant(struct rp_kv *kv, int64_t id, int64_t ttl_s, uint64_t now_ns)
{
	return kv_lease(kv, RP_KV_SYSTEM_GRANT, id, ttl_s, now_ns);
}

static enum rp_kv_error revoke(struct rp_kv *kv, int64_t id)
{
	return kv_lease(kv, RP_KV_SYSTEM_REVOKE, id, 0, 0);
}

struct names {
	char text[256];
};

static void on_name(void *ctx, struct rp_span key)
{
	struct names *n = ctx;
	size_t at = strlen(n->text);

	memcpy(n->text + at, key.data, key.length);
	n->text[at + key.length] = ' ';
	n->text[at + key.length + 1] = 0;
}

static void assert_keys(struct rp_kv *kv, int64_t id, const char *want)
{
	struct names n = {{0}};

	rp_kv_lease_keys(kv, id, on_name, &n);
	assert_string_equal(n.text, want);
}

static void test_grant(void **state)
{
	struct rp_kv_lease l;

	assert_int_equal(grant(*state, 5, 10, S_NS), RP_KV_OK);
	assert_int_equal(rp_kv_revision(*state), 1); /* takes none */
	assert_int_equal(grant(*state, 5, 10, S_NS), RP_KV_LEASE_EXISTS);
	assert_int_equal(
		grant(*state, 6, RP_KV_LEASE_TTL_MAX_S + 1, S_NS), RP_KV_LEASE_TTL_TOO_LARGE);
	assert_int_equal(grant(*state, -6, RP_KV_LEASE_TTL_MAX_S, S_NS), RP_KV_OK);
	assert_int_equal(grant(*state, 7, -3, S_NS), RP_KV_OK);
	assert_true(rp_kv_lease_get(*state, 7, S_NS, &l));
	assert_int_equal(l.ttl_s, 2); /* the least */
	assert_true(rp_kv_lease_get(*state, 5, S_NS * 3 + 1, &l));
	assert_int_equal(l.ttl_s, 10);
	assert_int_equal(l.left_s, 7); /* whole seconds, cut */
	assert_int_equal(l.owner, 7);
	assert_false(rp_kv_lease_get(*state, 5, S_NS * 11, &l)); /* over */
	assert_false(rp_kv_lease_get(*state, 99, 0, &l));
}

/* Attach, move, detach by put and by delete. */
static void test_keys(void **state)
{
	struct rp_kv *kv = *state;

	grant(kv, 1, 10, 0);
	grant(kv, 2, 10, 0);
	put_leased(kv, "b", 1);
	put_leased(kv, "a", 1);
	put_leased(kv, "c", 1);
	put_leased(kv, "c", 1);
	assert_keys(kv, 1, "a b c ");
	put_leased(kv, "b", 2);
	assert_keys(kv, 1, "a c ");
	assert_keys(kv, 2, "b ");
	kv_put(kv, "c", "plain");
	assert_keys(kv, 1, "a ");
	kv_delete(kv, "a", "");
	assert_keys(kv, 1, "");
	put_leased(kv, "a", 1);
	assert_keys(kv, 1, "a ");
	/* A ranged delete that meets a key put in the same txn. */
	kv_delete(kv, "a", "z");
	assert_keys(kv, 1, "");
	assert_keys(kv, 2, "");
}

struct seen {
	uint32_t calls, count, hidden;
	int64_t revision;
	char keys[64];
};

static void on_commit(void *ctx, int64_t revision, const struct rp_kv_event *events, uint32_t count,
	uint64_t origin)
{
	struct seen *s = ctx;

	if (rp_kv_is_hidden(rp_kv_version_key(events[0].kv))) {
		s->hidden += count;
		return;
	}
	s->calls++;
	s->count += count;
	s->revision = revision;
	for (uint32_t i = 0; i < count; i++) {
		struct rp_span key = rp_kv_version_key(events[i].kv);

		assert_true(events[i].kv->deleted);
		strncat(s->keys, (const char *)key.data, key.length);
	}
}

static void test_revoke_is_one_revision(void **state)
{
	struct rp_kv *kv = *state;
	struct seen seen = {0};
	struct rp_kv_hook hook = {.on_commit = on_commit, .ctx = &seen};

	grant(kv, 1, 10, 0);
	put_leased(kv, "c", 1);
	put_leased(kv, "a", 1);
	put_leased(kv, "b", 1);
	assert_int_equal(rp_kv_revision(kv), 4);
	rp_kv_hook_add(kv, &hook);
	assert_int_equal(revoke(kv, 1), RP_KV_OK);
	assert_int_equal(rp_kv_revision(kv), 5);
	assert_int_equal(seen.calls, 1);
	assert_int_equal(seen.hidden, 1);
	assert_int_equal(seen.revision, 5);
	assert_string_equal(seen.keys, "abc"); /* ascending */
	assert_int_equal(revoke(kv, 1), RP_KV_LEASE_NOT_FOUND);
	assert_int_equal(put_leased(kv, "a", 1), RP_KV_LEASE_NOT_FOUND);
	/* Without keys no revision. */
	grant(kv, 1, 10, 0);
	assert_int_equal(revoke(kv, 1), RP_KV_OK);
	assert_int_equal(rp_kv_revision(kv), 5);
	rp_kv_hook_remove(kv, &hook);
}

static void test_expiry_and_keepalive(void **state)
{
	struct rp_kv *kv = *state;
	int64_t id, *ids;
	uint32_t count;

	assert_true(rp_kv_lease_next_ns(kv) == RP_NEVER);
	grant(kv, 1, 10, S_NS);
	grant(kv, 2, 5, S_NS);
	grant(kv, 3, 20, S_NS);
	assert_true(rp_kv_lease_next_ns(kv) == 6 * S_NS);
	assert_false(rp_kv_lease_expired(kv, 6 * S_NS - 1, &id));
	assert_int_equal(rp_kv_lease_keepalive(kv, 2, 4 * S_NS), RP_KV_LEASE_RENEWED);
	assert_true(rp_kv_lease_next_ns(kv) == 9 * S_NS);
	assert_true(rp_kv_lease_expired(kv, 9 * S_NS, &id));
	assert_int_equal(id, 2);
	/* Over is over, though not revoked yet. */
	assert_int_equal(rp_kv_lease_keepalive(kv, 2, 9 * S_NS), RP_KV_LEASE_OVER);
	assert_int_equal(rp_kv_lease_keepalive(kv, 77, 9 * S_NS), RP_KV_LEASE_NONE);
	ids = rp_kv_lease_list(kv, &count);
	assert_int_equal(count, 3);
	assert_int_equal(ids[0], 2);
	assert_int_equal(ids[1], 1);
	assert_int_equal(ids[2], 3);
	free(ids);
	assert_int_equal(revoke(kv, id), RP_KV_OK);
	assert_false(rp_kv_lease_expired(kv, 9 * S_NS, &id));
}

static bool is_nine(void *ctx, uint64_t owner)
{
	return owner == 9;
}

/* Records of one store, taken by another node's. */
static void replicate(struct rp_kv *from, struct rp_kv *to)
{
	struct rp_kv_record records[64];
	uint32_t n = rp_kv_record_page(
		from, (struct rp_span){0}, false, (struct rp_span){0}, records, 64);

	rp_kv_apply_replicated(to, records, n, 1);
}

static void test_other_node(void **state)
{
	struct rp_kv_config config = {.initial_revision = 1, .node = 9, .keep_tombstones = true};
	struct rp_kv *kv = *state, *other = rp_kv_create(&config);
	struct rp_kv_lease l;
	struct rp_kv_record record;
	int64_t id, ids[4];

	grant(other, 1, 10, S_NS);
	put_leased(other, "a", 1);
	replicate(other, kv);
	assert_true(rp_kv_lease_get(kv, 1, 100 * S_NS, &l));
	assert_int_equal(l.owner, 9);
	assert_int_equal(l.left_s, 10);
	assert_keys(kv, 1, "a ");
	/* Not ours to let expire, but ours to put on and to revoke. */
	assert_true(rp_kv_lease_next_ns(kv) == RP_NEVER);
	assert_int_equal(rp_kv_lease_keepalive(kv, 1, 2 * S_NS), RP_KV_LEASE_ELSEWHERE);
	assert_int_equal(put_leased(kv, "b", 1), RP_KV_OK);
	assert_int_equal(rp_kv_lease_foreign(kv), 1);
	assert_int_equal(rp_kv_lease_orphans(kv, is_nine, NULL, ids, 4), 1);
	assert_int_equal(ids[0], 1);
	/* Taken: it counts here from now on, and no longer there. */
	assert_int_equal(kv_lease(kv, RP_KV_SYSTEM_TAKE, 1, 0, 50 * S_NS), RP_KV_OK);
	assert_true(rp_kv_lease_next_ns(kv) == 60 * S_NS);
	replicate(kv, other);
	assert_true(rp_kv_lease_next_ns(other) == RP_NEVER);
	assert_true(rp_kv_lease_expired(kv, 60 * S_NS, &id));
	assert_int_equal(revoke(kv, id), RP_KV_OK);
	assert_true(rp_kv_record_get(kv, S("a"), &record) == false || record.deleted);
	rp_kv_destroy(other);
}

/* A key that comes before its lease, and one whose lease never comes. */
static void test_record_late_or_lost(void **state)
{
	struct rp_kv *kv = *state;
	struct rp_kv_record a = {.key = S("a"), .value = S("1"), .lease = 5, .stamp = 9, .node = 9};
	struct rp_kv_lease l;
	int64_t id;

	rp_kv_set_now(kv, S_NS);
	rp_kv_apply_replicated(kv, &a, 1, 1);
	assert_false(rp_kv_lease_get(kv, 5, S_NS, &l));
	assert_int_equal(put_leased(kv, "b", 5), RP_KV_LEASE_NOT_FOUND);
	assert_true(rp_kv_lease_next_ns(kv) == 31 * S_NS);
	assert_int_equal(grant(kv, 5, 60, S_NS), RP_KV_OK);
	assert_keys(kv, 5, "a ");
	assert_true(rp_kv_lease_next_ns(kv) == 61 * S_NS);
	revoke(kv, 5);
	a.stamp = 2000;
	rp_kv_apply_replicated(kv, &a, 1, 1);
	assert_true(rp_kv_lease_expired(kv, 31 * S_NS, &id));
	assert_int_equal(id, 5);
	assert_int_equal(revoke(kv, id), RP_KV_OK);
	assert_int_equal(kv_delete(kv, "a", ""), 0); /* gone */
	assert_true(rp_kv_lease_next_ns(kv) == RP_NEVER);
}

/* What a peer may send and is no lease. */
static void test_bad_records(void **state)
{
	static const uint8_t key[] = RP_KV_HIDDEN_PREFIX "lease/\0\0\0\0\0\0\0\5";
	static const uint8_t zero[16], huge[16] = {0x7f, 1};
	struct rp_kv_record r = {
		.key = {key, sizeof(key) - 1}, .stamp = 9, .node = 9, .value = {zero, 16}};
	struct rp_kv_lease l;

	assert_int_equal(r.key.length, RP_KV_HIDDEN_PREFIX_BYTES + 14);
	rp_kv_apply_replicated(*state, &r, 1, 1);
	assert_false(rp_kv_lease_get(*state, 5, 0, &l));
	r.stamp++;
	r.value = (struct rp_span){huge, 16};
	rp_kv_apply_replicated(*state, &r, 1, 1);
	assert_false(rp_kv_lease_get(*state, 5, 0, &l));
	r.stamp++;
	r.value = (struct rp_span){huge, 3};
	rp_kv_apply_replicated(*state, &r, 1, 1);
	assert_false(rp_kv_lease_get(*state, 5, 0, &l));
	assert_int_equal(rp_kv_revision(*state), 1);
}

/* Hidden records are seen by replication, and by nobody else. */
static void test_hidden(void **state)
{
	struct rp_kv_range all = {.key = {(const uint8_t *)"", 1}, .end = S_from()};
	struct rp_kv_range_result r;
	struct rp_kv_record records[4];
	struct rp_kv_stats before, after;
	struct rp_kv_put put = {.key = {(const uint8_t *)RP_KV_HIDDEN_PREFIX "x", 12}};
	uint32_t hash, hash_after;

	kv_put(*state, "a", "1");
	rp_kv_hash(*state, 0, &hash);
	rp_kv_stats_get(*state, &before);
	grant(*state, 1, 10, 0);
	rp_kv_stats_get(*state, &after);
	rp_kv_hash(*state, 0, &hash_after);
	assert_int_equal(hash, hash_after);
	assert_int_equal(before.keys, after.keys);
	assert_true(before.bytes < after.bytes);
	assert_int_equal(rp_kv_range(*state, &all, &r), RP_KV_OK);
	assert_int_equal(r.count, 1);
	rp_kv_range_result_clear(&r);
	assert_int_equal(rp_kv_record_page(*state, (struct rp_span){0}, false, (struct rp_span){0},
				 records, 4),
		2);
	assert_true(rp_kv_is_hidden(records[0].key));
	assert_true(span_is(records[1].key, "a"));
	assert_int_equal(rp_kv_put_check(&put), RP_KV_KEY_RESERVED);
	/* In one order, whatever lies around it. */
	kv_put(*state, "\x01", "1");
	assert_int_equal(kv_delete(*state, "\x01", ""), 1);
	revoke(*state, 1);
	rp_kv_stats_get(*state, &after);
	assert_int_equal(rp_kv_record_page(*state, (struct rp_span){0}, false, (struct rp_span){0},
				 records, 4),
		1);
}

/* What nodes say of themselves is read by a range inside its prefix, and is in no other. */
static void test_nodes(void **state)
{
	static const char key[] = RP_KV_NODES_PREFIX "node/1";
	const struct rp_kv_system_op op = {
		.type = RP_KV_SYSTEM_PUT, .key = S(key), .value = S("me")};
	const struct rp_kv_txn txn = {.system = &op, .system_count = 1};
	const struct rp_kv_writer writer = {.wall_us = 1};
	static const struct {
		const char *key, *end;
		int64_t count;
	} ranges[] = {
		{key, "", 1}, {RP_KV_NODES_PREFIX, RP_KV_NODES_END, 1},
		{RP_KV_NODES_PREFIX, RP_KV_NODES_PREFIX "node/1", 0},
		{RP_KV_NODES_PREFIX "node/2", RP_KV_NODES_END, 0},
		{RP_KV_NODES_PREFIX, "/_ringpost1", 0}, {"/", "0", 1}, /* the client's own */
	};
	struct rp_kv_result written = {0};
	struct rp_kv_stats stats;

	kv_put(*state, "/a", "1");
	assert_int_equal(rp_kv_apply(*state, &txn, &writer, &written), RP_KV_OK);
	rp_kv_result_clear(&written);
	assert_int_equal(rp_kv_revision(*state), 2);
	rp_kv_stats_get(*state, &stats);
	assert_int_equal(stats.keys, 1);
	for (size_t i = 0; i < RP_ARRAY_SIZE(ranges); i++) {
		struct rp_kv_range range = {.key = S(ranges[i].key), .end = S(ranges[i].end)};
		struct rp_kv_range_result r;

		assert_int_equal(rp_kv_range(*state, &range, &r), RP_KV_OK);
		assert_int_equal(r.count, ranges[i].count);
		assert_int_equal(r.item_count, ranges[i].count);
		rp_kv_range_result_clear(&r);
	}
	assert_int_equal(kv_delete(*state, "/", "0"), 1);
	assert_int_equal(kv_delete(*state, key, ""), 0);
}

static void test_ids(void **state)
{
	struct rp_kv_record a = {.key = S("a"), .stamp = 1764486000ull * 1000000, .node = 9};
	int64_t last = 0;

	rp_kv_apply_replicated(*state, &a, 1, 1);
	for (int i = 0; i < 2000; i++) {
		int64_t id = rp_kv_lease_id_new(*state);

		assert_true(id > last);
		last = id;
	}
	/* Later, also after a restart: the clock has gone on. */
	a.stamp += 100 * 1000000;
	rp_kv_apply_replicated(*state, &a, 1, 1);
	assert_true(rp_kv_lease_id_new(*state) > last + 1);
}

static void test_quota_and_alarms(void **state)
{
	rp_kv_set_limits(*state, 600, 0);
	assert_int_equal(grant(*state, 1, 10, 0), RP_KV_OK);
	kv_put(*state, "k", "1");
	assert_int_equal(grant(*state, 2, 10, 0), RP_KV_NO_SPACE);
	assert_true(rp_kv_alarm_active(*state, RP_KV_ALARM_NOSPACE));
	assert_int_equal(revoke(*state, 1), RP_KV_OK);
	rp_kv_alarm_set(*state, RP_KV_ALARM_CORRUPT, true);
	assert_int_equal(revoke(*state, 1), RP_KV_CORRUPT);
}

static void test_many(void **state)
{
	struct rp_kv *kv = *state;
	uint32_t expired = 0;
	int64_t id;

	for (int64_t i = 1; i <= 50000; i++)
		assert_int_equal(grant(kv, i * 7919, 2 + i % 100, 0), RP_KV_OK);
	for (uint64_t t = 1; t <= 110; t++) {
		if (t == 50)
			for (int64_t i = 1; i <= 50000; i += 2)
				rp_kv_lease_keepalive(kv, i * 7919, t * S_NS);
		while (rp_kv_lease_expired(kv, t * S_NS, &id)) {
			uint64_t next_ns = rp_kv_lease_next_ns(kv);

			assert_int_equal(revoke(kv, id), RP_KV_OK);
			assert_true(rp_kv_lease_next_ns(kv) >= next_ns);
			expired++;
		}
	}
	/* Of the odd ones those that were alive at 50 s count anew. */
	assert_true(expired > 36000 && expired < 50000);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_grant),
		T(test_keys),
		T(test_revoke_is_one_revision),
		T(test_expiry_and_keepalive),
		T(test_other_node),
		T(test_record_late_or_lost),
		T(test_bad_records),
		T(test_hidden),
		T(test_nodes),
		T(test_ids),
		T(test_quota_and_alarms),
		T(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
