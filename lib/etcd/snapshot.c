/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maintenance.Snapshot (spec/etcd-semantics.md section 9): the store as etcd's own file, so that
 * etcdctl reads and restores it. The file is made while the client reads it; what it is made of are
 * references to the versions there were when the client asked.
 */
#include <stdlib.h>
#include <string.h>

#include <mbedtls/sha256.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <bolt/bolt.h>
#include <etcdserverpb/rpc.pb-c.h>
#include <kv/lease.h>
#include <leasepb/lease.pb-c.h>

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

struct snapshot_lease {
	int64_t id, ttl_s;
};

struct etcd_snapshot {
	struct rp_etcd *e;
	struct rp_grpc_call *call;
	struct rp_kv_dump dump;
	struct snapshot_lease *leases; /* by id */
	uint32_t lease_count;
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

static void lease_message(Leasepb__Lease *m, const struct snapshot_lease *l)
{
	leasepb__lease__init(m);
	m->id = l->id;
	m->ttl = l->ttl_s;
}

static void lease_size(void *ctx, uint64_t i, uint32_t *key, uint32_t *value)
{
	const struct etcd_snapshot *s = ctx;
	Leasepb__Lease m;

	lease_message(&m, &s->leases[i]);
	*key = 8;
	*value = (uint32_t)leasepb__lease__get_packed_size(&m);
}

static void lease_key(void *ctx, uint64_t i, uint8_t *key)
{
	const struct etcd_snapshot *s = ctx;
	struct rp_writer w = rp_writer_of(key, 8);

	rp_write_be64(&w, (uint64_t)s->leases[i].id);
}

static void lease_fill(void *ctx, uint64_t i, uint8_t *key, uint8_t *value)
{
	const struct etcd_snapshot *s = ctx;
	Leasepb__Lease m;

	lease_key(ctx, i, key);
	lease_message(&m, &s->leases[i]);
	leasepb__lease__pack(&m, value);
}

static int lease_order(const void *a, const void *b)
{
	uint64_t x = (uint64_t)((const struct snapshot_lease *)a)->id;
	uint64_t y = (uint64_t)((const struct snapshot_lease *)b)->id;

	return (x > y) - (x < y);
}

static void leases_take(struct etcd_snapshot *s, uint64_t now_ns)
{
	uint32_t count, n = 0;
	int64_t *ids = rp_kv_lease_list(s->e->kv, &count);

	s->leases = calloc((size_t)count + 1, sizeof(s->leases[0]));
	RP_ASSERT(s->leases != NULL);
	for (uint32_t i = 0; i < count; i++) {
		struct rp_kv_lease l;

		if (rp_kv_lease_get(s->e->kv, ids[i], now_ns, &l))
			s->leases[n++] = (struct snapshot_lease){.id = l.id, .ttl_s = l.ttl_s};
	}
	free(ids);
	if (n > 0)
		qsort(s->leases, n, sizeof(s->leases[0]), lease_order);
	s->lease_count = n;
}

/* The index of the log that all of it is in, and how far it is compacted. */
static const char *const meta_keys[] = {
	"consistent_index", "finishedCompactRev", "scheduledCompactRev"};

static void meta_size(void *ctx, uint64_t i, uint32_t *key, uint32_t *value)
{
	*key = (uint32_t)strlen(meta_keys[i]);
	*value = i == 0 ? 8 : REVISION_BYTES;
}

static void meta_key(void *ctx, uint64_t i, uint8_t *key)
{
	memcpy(key, meta_keys[i], strlen(meta_keys[i]));
}

static void meta_fill(void *ctx, uint64_t i, uint8_t *key, uint8_t *value)
{
	const struct etcd_snapshot *s = ctx;
	struct rp_writer w = rp_writer_of(value, 8);

	meta_key(ctx, i, key);
	if (i == 0)
		rp_write_be64(&w, (uint64_t)s->dump.revision);
	else
		put_revision(value, s->dump.compacted, 0, false);
}

static void buckets_fill(struct etcd_snapshot *s)
{
	static const char *const names[BUCKET_COUNT] = {"alarm", "auth", "authRoles", "authUsers",
		"cluster", "key", "lease", "members", "members_removed", "meta"};

	for (unsigned i = 0; i < BUCKET_COUNT; i++)
		s->buckets[i] = (struct rp_bolt_bucket){.name = names[i], .ctx = s};
	s->buckets[BUCKET_KEY].count = s->dump.count;
	s->buckets[BUCKET_KEY].size = key_size;
	s->buckets[BUCKET_KEY].fill = key_fill;
	s->buckets[BUCKET_KEY].key = key_key;
	s->buckets[BUCKET_LEASE].count = s->lease_count;
	s->buckets[BUCKET_LEASE].size = lease_size;
	s->buckets[BUCKET_LEASE].fill = lease_fill;
	s->buckets[BUCKET_LEASE].key = lease_key;
	s->buckets[BUCKET_META].count = s->dump.compacted > 0 ? RP_ARRAY_SIZE(meta_keys) : 1;
	s->buckets[BUCKET_META].size = meta_size;
	s->buckets[BUCKET_META].fill = meta_fill;
	s->buckets[BUCKET_META].key = meta_key;
}

/* ---- the stream ---- */

static void snapshot_free(struct etcd_snapshot *s)
{
	s->e->snapshots--;
	mbedtls_sha256_free(&s->sha);
	rp_bolt_writer_free(s->writer);
	rp_kv_dump_clear(&s->dump);
	free(s->leases);
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
	struct etcd_snapshot *s;

	if (!request)
		return;
	etcd_unpacked_free(&request->base);
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
	leases_take(s, e->now_ns);
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
