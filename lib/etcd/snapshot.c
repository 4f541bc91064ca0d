/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maintenance.Snapshot (spec/etcd-semantics.md section 9): the store as etcd's own file, so that
 * etcdctl reads and restores it. The file is made while the client reads it; what it is made of are
 * references to the versions there were when the client asked.
 */
#include <stdlib.h>
#include <string.h>

#include <mbedtls/sha256.h>

#include <authpb/auth.pb-c.h>
#include <base/assert.h>
#include <base/bytes.h>
#include <bolt/bolt.h>
#include <etcdserverpb/rpc.pb-c.h>
#include <kv/lease.h>
#include <leasepb/lease.pb-c.h>

#include "auth_priv.h"
#include "etcd_priv.h"

#define SNAPSHOT_CHUNK_BYTES 32768u
#define SNAPSHOT_HASH_BYTES 32u
/* References to all versions each: what holds memory that writes have superseded. */
#define SNAPSHOTS_MAX 16u
#define REVISION_BYTES 17u

enum {
	BUCKET_ALARM,
	BUCKET_AUTH,
	BUCKET_AUTH_ROLES,
	BUCKET_AUTH_USERS,
	BUCKET_CLUSTER,
	BUCKET_KEY,
	BUCKET_LEASE,
	BUCKET_MEMBERS,
	BUCKET_MEMBERS_REMOVED,
	BUCKET_META,
	BUCKET_COUNT,
};

/* A bucket that is small: its pairs are copied when the client asks. */
struct snapshot_pairs {
	struct snapshot_pair {
		struct rp_span key, value;
	} * at;
	uint32_t count, size;
};

struct etcd_snapshot {
	struct rp_etcd *e;
	struct rp_grpc_call *call;
	struct rp_kv_dump dump;
	struct etcd_arena arena; /* of the pairs */
	struct snapshot_pairs pairs[BUCKET_COUNT];
	struct rp_bolt_bucket buckets[BUCKET_COUNT];
	struct rp_bolt_writer *writer;
	uint64_t left;
	mbedtls_sha256_context sha;
};

/* ---- the buckets ---- */

/* etcd's key of a version: revision, '_', place in it, and a 't' for a tombstone. */
static void put_revision(uint8_t *out, int64_t revision, uint64_t sub, bool tombstone)
{
	struct rp_writer w = rp_writer_of(out, REVISION_BYTES + tombstone);

	rp_write_be64(&w, (uint64_t)revision);
	rp_write_u8(&w, '_');
	rp_write_be64(&w, sub);
	if (tombstone)
		rp_write_u8(&w, 't');
}

static void version_message(Mvccpb__KeyValue *kv, const struct rp_kv_version *v)
{
	etcd_kv_fill(kv, v, false);
	if (v->deleted)
		kv->mod_revision = 0;
}

static void key_size(void *ctx, uint64_t i, uint32_t *key, uint32_t *value)
{
	const struct etcd_snapshot *s = ctx;
	const struct rp_kv_version *v = s->dump.items[i].version;
	Mvccpb__KeyValue kv;

	version_message(&kv, v);
	*key = REVISION_BYTES + v->deleted;
	*value = (uint32_t)protobuf_c_message_get_packed_size(&kv.base);
}

static void key_key(void *ctx, uint64_t i, uint8_t *key)
{
	const struct etcd_snapshot *s = ctx;
	const struct rp_kv_dump_item *item = &s->dump.items[i];

	put_revision(key, item->version->mod_revision, item->sub, item->version->deleted);
}

static void key_fill(void *ctx, uint64_t i, uint8_t *key, uint8_t *value)
{
	const struct etcd_snapshot *s = ctx;
	Mvccpb__KeyValue kv;

	key_key(ctx, i, key);
	version_message(&kv, s->dump.items[i].version);
	protobuf_c_message_pack(&kv.base, value);
}

static void pair_size(void *ctx, uint64_t i, uint32_t *key, uint32_t *value)
{
	const struct snapshot_pairs *p = ctx;

	*key = (uint32_t)p->at[i].key.length;
	*value = (uint32_t)p->at[i].value.length;
}

static void pair_key(void *ctx, uint64_t i, uint8_t *key)
{
	const struct snapshot_pairs *p = ctx;

	memcpy(key, p->at[i].key.data, p->at[i].key.length);
}

static void pair_fill(void *ctx, uint64_t i, uint8_t *key, uint8_t *value)
{
	const struct snapshot_pairs *p = ctx;

	pair_key(ctx, i, key);
	if (p->at[i].value.length > 0)
		memcpy(value, p->at[i].value.data, p->at[i].value.length);
}

static int pair_order(const void *a, const void *b)
{
	const struct rp_span *x = &((const struct snapshot_pair *)a)->key;
	const struct rp_span *y = &((const struct snapshot_pair *)b)->key;
	int c = memcmp(x->data, y->data, RP_MIN(x->length, y->length));

	return c != 0 ? c : (x->length > y->length) - (x->length < y->length);
}

/* Room for a pair whose key is copied; its value is to be filled. */
static uint8_t *pair_add(struct etcd_snapshot *s, unsigned bucket, const void *key,
	size_t key_length, size_t value_length)
{
	struct snapshot_pairs *p = &s->pairs[bucket];
	uint8_t *data = etcd_arena_get(&s->arena, key_length + value_length);

	p->at = etcd_grow(p->at, &p->size, (uint64_t)p->count + 1, sizeof(p->at[0]));
	memcpy(data, key, key_length);
	p->at[p->count++] = (struct snapshot_pair){.key = {.data = data, .length = key_length},
		.value = {.data = data + key_length, .length = value_length}};
	return data + key_length;
}

static void message_add(struct etcd_snapshot *s, unsigned bucket, const void *key,
	size_t key_length, const ProtobufCMessage *m)
{
	protobuf_c_message_pack(
		m, pair_add(s, bucket, key, key_length, protobuf_c_message_get_packed_size(m)));
}

static void number_add(struct etcd_snapshot *s, unsigned bucket, const char *key, uint64_t number)
{
	struct rp_writer w = rp_writer_of(pair_add(s, bucket, key, strlen(key), 8), 8);

	rp_write_be64(&w, number);
}

static void leases_add(struct etcd_snapshot *s)
{
	uint32_t count;
	int64_t *ids = rp_kv_lease_list(s->e->kv, &count);

	for (uint32_t i = 0; i < count; i++) {
		Leasepb__Lease m = LEASEPB__LEASE__INIT;
		struct rp_kv_lease l;
		uint8_t key[8];
		struct rp_writer w = rp_writer_of(key, sizeof(key));

		if (!rp_kv_lease_get(s->e->kv, ids[i], s->e->now_ns, &l))
			continue;
		m.id = l.id;
		m.ttl = l.ttl_s;
		rp_write_be64(&w, (uint64_t)l.id);
		message_add(s, BUCKET_LEASE, key, sizeof(key), &m.base);
	}
	free(ids);
}

/* Users with the hashes of their passwords, as etcd's snapshots have them. */
static void auth_add(struct etcd_snapshot *s)
{
	const struct etcd_auth *a = s->e->auth;

	*pair_add(s, BUCKET_AUTH, "authEnabled", 11, 1) = a->enabled;
	number_add(s, BUCKET_AUTH, "authRevision", a->revision);
	for (uint32_t i = 0; i < a->user_count; i++) {
		const Authpb__User *m = a->users[i]->m;

		message_add(s, BUCKET_AUTH_USERS, m->name.data, m->name.len, &m->base);
	}
	for (uint32_t i = 0; i < a->role_count; i++) {
		const Authpb__Role *m = a->roles[i]->m;

		message_add(s, BUCKET_AUTH_ROLES, m->name.data, m->name.len, &m->base);
	}
}

/* The index of the log that all of it is in, and how far it is compacted. */
static void meta_add(struct etcd_snapshot *s)
{
	int64_t compacted = s->dump.compacted;

	number_add(s, BUCKET_META, "consistent_index", (uint64_t)s->dump.revision);
	if (compacted <= 0)
		return;
	put_revision(pair_add(s, BUCKET_META, "finishedCompactRev", 18, REVISION_BYTES), compacted,
		0, false);
	put_revision(pair_add(s, BUCKET_META, "scheduledCompactRev", 19, REVISION_BYTES), compacted,
		0, false);
}

static void buckets_fill(struct etcd_snapshot *s)
{
	static const char *const names[BUCKET_COUNT] = {"alarm", "auth", "authRoles", "authUsers",
		"cluster", "key", "lease", "members", "members_removed", "meta"};

	leases_add(s);
	auth_add(s);
	meta_add(s);
	for (unsigned i = 0; i < BUCKET_COUNT; i++) {
		struct snapshot_pairs *p = &s->pairs[i];

		if (p->count > 0)
			qsort(p->at, p->count, sizeof(p->at[0]), pair_order);
		s->buckets[i] = (struct rp_bolt_bucket){.name = names[i],
			.count = p->count,
			.size = pair_size,
			.fill = pair_fill,
			.key = pair_key,
			.ctx = p};
	}
	s->buckets[BUCKET_KEY] = (struct rp_bolt_bucket){.name = names[BUCKET_KEY],
		.count = s->dump.count,
		.size = key_size,
		.fill = key_fill,
		.key = key_key,
		.ctx = s};
}

/* ---- the stream ---- */

static void snapshot_free(struct etcd_snapshot *s)
{
	s->e->snapshots--;
	mbedtls_sha256_free(&s->sha);
	rp_bolt_writer_free(s->writer);
	rp_kv_dump_clear(&s->dump);
	for (unsigned i = 0; i < BUCKET_COUNT; i++)
		free(s->pairs[i].at);
	etcd_arena_free(&s->arena);
	free(s);
}

static int snapshot_send(struct etcd_snapshot *s, uint8_t *blob, size_t length)
{
	Etcdserverpb__SnapshotResponse m = ETCDSERVERPB__SNAPSHOT_RESPONSE__INIT;
	size_t size;
	uint8_t *data;

	m.remaining_bytes = s->left;
	m.blob = (ProtobufCBinaryData){.data = blob, .len = length};
	m.version = (char *)ETCD_VERSION_CLUSTER;
	size = protobuf_c_message_get_packed_size(&m.base);
	data = malloc(size);
	RP_ASSERT(data != NULL);
	protobuf_c_message_pack(&m.base, data);
	return rp_grpc_call_send_take(s->call, data, size, 0);
}

static void snapshot_end(struct etcd_snapshot *s, int code, const char *text)
{
	struct rp_grpc_call *call = s->call;

	snapshot_free(s);
	rp_grpc_call_finish(call, (enum rp_grpc_code)code, text);
}

/* As much as the client has room for. */
static void snapshot_pump(struct etcd_snapshot *s)
{
	uint8_t chunk[SNAPSHOT_CHUNK_BYTES], hash[SNAPSHOT_HASH_BYTES];

	while (rp_grpc_call_fits(s->call, SNAPSHOT_CHUNK_BYTES)) {
		ssize_t n = rp_bolt_write(s->writer, chunk, sizeof(chunk));

		if (n == 0) {
			mbedtls_sha256_finish_ret(&s->sha, hash);
			n = snapshot_send(s, hash, sizeof(hash));
			snapshot_end(s, n == 0 ? RP_GRPC_OK : RP_GRPC_RESOURCE_EXHAUSTED,
				n == 0 ? "" : "etcdserver: too many requests");
			return;
		}
		if (n > 0) {
			mbedtls_sha256_update_ret(&s->sha, chunk, (size_t)n);
			s->left -= (uint64_t)n;
			n = snapshot_send(s, chunk, (size_t)n);
		}
		if (n < 0) {
			snapshot_end(
				s, RP_GRPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests");
			return;
		}
	}
}

static void on_snapshot(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__SnapshotRequest *request =
		etcd_unpack(e, call, &etcdserverpb__snapshot_request__descriptor, data, length);
	const struct rp_span zero = {.data = (const uint8_t *)"", .length = 1};
	struct rp_etcd_caller caller;
	const char *message = NULL;
	struct etcd_snapshot *s;

	if (!request)
		return;
	etcd_unpacked_free(&request->base);
	caller = etcd_caller_of(e, call);
	/* All keys from the first to the last, as a Range of them. */
	if (etcd_policy_check(e, RP_ETCD_READ, zero, zero, &caller, &message) != RP_GRPC_OK) {
		etcd_refuse(call, RP_GRPC_PERMISSION_DENIED, message);
		return;
	}
	if (e->snapshots >= SNAPSHOTS_MAX) {
		etcd_refuse(call, RP_GRPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests");
		return;
	}
	s = calloc(1, sizeof(*s));
	RP_ASSERT(s != NULL);
	e->snapshots++;
	s->e = e;
	s->call = call;
	rp_kv_dump(e->kv, &s->dump);
	buckets_fill(s);
	s->writer = rp_bolt_writer_new(s->buckets, BUCKET_COUNT);
	RP_ASSERT(s->writer != NULL);
	s->left = rp_bolt_writer_bytes(s->writer);
	mbedtls_sha256_init(&s->sha);
	mbedtls_sha256_starts_ret(&s->sha, 0);
	rp_grpc_call_set_user(call, s);
	snapshot_pump(s);
}

static void on_room(struct rp_grpc_call *call, void *ctx)
{
	struct etcd_snapshot *s = rp_grpc_call_user(call);

	if (s)
		snapshot_pump(s);
}

static void on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct etcd_snapshot *s = rp_grpc_call_user(call);

	if (s)
		snapshot_free(s);
}

const struct rp_grpc_call_ops etcd_snapshot_ops = {
	.on_message = on_snapshot, .on_room = on_room, .on_cancel = on_cancel};
