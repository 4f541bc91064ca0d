/* SPDX-License-Identifier: Apache-2.0 */

/*
 * ringpostctl restore FILE: the keys of an etcd snapshot, as they were last, into a running node
 * that has none; and its users and roles (restore_auth.c).
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mbedtls/sha256.h>

#include <base/units.h>
#include <bolt/bolt.h>
#include <etcdserverpb/lease.pb-c.h>
#include <etcdserverpb/rpc.pb-c.h>
#include <leasepb/lease.pb-c.h>
#include <mvccpb/kv.pb-c.h>

#include "restore.h"

#define HASH_BYTES 32u
#define REVISION_BYTES 17u
/* One txn: well below what a node takes, and few enough round trips. */
#define BATCH_OPS_MAX 64u
#define BATCH_BYTES_MAX (256u << 10)

struct item {
	Mvccpb__KeyValue *kv;
	uint64_t order;
	bool deleted;
};

struct lease {
	int64_t id, ttl_s;
	bool granted;
};

struct keys {
	struct lease *leases; /* by id */
	size_t lease_count, lease_size;
	struct item *items;
	size_t count, size;
	bool broken;
	struct restore_auth auth;
};

/* What the nodes write themselves: a restored one would say what is no longer so. */
static const char *const own_prefixes[] = {"/_ringpost/", "/q/", "/queue/"};

static int complain(const char *path, const char *why)
{
	fprintf(stderr, "ringpostctl: %s: %s\n", path, why);
	return 1;
}

/* ---- the file ---- */

static bool on_pair(void *ctx, struct rp_span key, struct rp_span value)
{
	struct keys *k = ctx;
	Mvccpb__KeyValue *kv = mvccpb__key_value__unpack(NULL, value.length, value.data);

	if (!kv || key.length < REVISION_BYTES || kv->key.len == 0) {
		if (kv)
			mvccpb__key_value__free_unpacked(kv, NULL);
		k->broken = true;
		return false;
	}
	if (k->count == k->size) {
		k->size = k->size ? 2 * k->size : 1024;
		k->items = realloc(k->items, k->size * sizeof(*k->items));
		if (!k->items)
			abort();
	}
	k->items[k->count] = (struct item){.kv = kv,
		.order = k->count,
		.deleted = key.length > REVISION_BYTES && key.data[REVISION_BYTES] == 't'};
	k->count++;
	return true;
}

static bool on_lease(void *ctx, struct rp_span key, struct rp_span value)
{
	struct keys *k = ctx;
	Leasepb__Lease *l = leasepb__lease__unpack(NULL, value.length, value.data);

	if (!l)
		return true;
	if (k->lease_count == k->lease_size) {
		k->lease_size = k->lease_size ? 2 * k->lease_size : 64;
		k->leases = realloc(k->leases, k->lease_size * sizeof(*k->leases));
		if (!k->leases)
			abort();
	}
	k->leases[k->lease_count++] = (struct lease){.id = l->id, .ttl_s = l->ttl};
	leasepb__lease__free_unpacked(l, NULL);
	return true;
}

static int by_id(const void *a, const void *b)
{
	const struct lease *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static int by_key(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	size_t n = RP_MIN(x->kv->key.len, y->kv->key.len);
	int c = memcmp(x->kv->key.data, y->kv->key.data, n);

	if (c == 0 && x->kv->key.len != y->kv->key.len)
		return x->kv->key.len < y->kv->key.len ? -1 : 1;
	return c != 0 ? c : (x->order > y->order) - (x->order < y->order);
}

static bool is_own(const Mvccpb__KeyValue *kv)
{
	for (size_t i = 0; i < RP_ARRAY_SIZE(own_prefixes); i++) {
		size_t n = strlen(own_prefixes[i]);

		if (kv->key.len >= n && memcmp(kv->key.data, own_prefixes[i], n) == 0)
			return true;
	}
	return false;
}

/* Of each key the last version stays, unless it was deleted or is a node's own. */
static void keep_last(struct keys *k, size_t *own)
{
	size_t kept = 0;

	*own = 0;
	if (k->count > 0)
		qsort(k->items, k->count, sizeof(k->items[0]), by_key);
	for (size_t i = 0; i < k->count; i++) {
		Mvccpb__KeyValue *kv = k->items[i].kv;
		bool last = i + 1 == k->count || kv->key.len != k->items[i + 1].kv->key.len ||
			    memcmp(kv->key.data, k->items[i + 1].kv->key.data, kv->key.len) != 0;

		if (last && !k->items[i].deleted && !is_own(kv)) {
			k->items[kept++] = k->items[i];
			continue;
		}
		*own += last && !k->items[i].deleted;
		mvccpb__key_value__free_unpacked(kv, NULL);
	}
	k->count = kept;
}

static void keys_free(struct keys *k)
{
	for (size_t i = 0; i < k->count; i++)
		mvccpb__key_value__free_unpacked(k->items[i].kv, NULL);
	free(k->items);
	free(k->leases);
	restore_auth_free(&k->auth);
}

/* The file without the sum that etcdctl and Snapshot put behind it. */
static int strip_sum(const char *path, struct rp_span *file)
{
	uint8_t hash[HASH_BYTES];

	if (file->length % 512 != HASH_BYTES)
		return 0;
	file->length -= HASH_BYTES;
	mbedtls_sha256_ret(file->data, file->length, hash, 0);
	if (memcmp(hash, file->data + file->length, HASH_BYTES) == 0)
		return 0;
	return complain(path, "its SHA-256 is wrong: the file is not whole");
}

static int read_keys(const char *path, struct rp_span file, struct keys *k)
{
	struct rp_bolt_file f;
	const char *why = NULL;
	int error;

	if (strip_sum(path, &file) != 0)
		return 1;
	if (rp_bolt_open(&f, file, &why) < 0)
		return complain(path, why);
	error = rp_bolt_each(&f, "key", on_pair, k, &why);
	if (error == -ENOENT)
		return complain(path, "no snapshot of etcd 3: there is no bucket \"key\"");
	if (k->broken)
		return complain(path, "no snapshot of etcd 3: a pair is no version of a key");
	if (error == 0)
		error = rp_bolt_each(&f, "lease", on_lease, k, &why);
	if (error == 0 || error == -ENOENT)
		error = restore_auth_read(&k->auth, &f, &why);
	if (error < 0 && error != -ENOENT)
		return complain(path, why ? why : strerror(-error));
	if (k->lease_count > 0)
		qsort(k->leases, k->lease_count, sizeof(k->leases[0]), by_id);
	return 0;
}

/* ---- the node ---- */

/* Keys in [from, end), -1 after a failure. */
static int64_t count_keys(
	struct client *c, const char *from, size_t from_length, const char *end, size_t end_length)
{
	Etcdserverpb__RangeRequest q = ETCDSERVERPB__RANGE_REQUEST__INIT;
	Etcdserverpb__RangeResponse *r;
	struct answer a;
	int64_t n;

	q.key = (ProtobufCBinaryData){.data = (uint8_t *)from, .len = from_length};
	q.range_end = (ProtobufCBinaryData){.data = (uint8_t *)end, .len = end_length};
	q.count_only = true;
	if (call(c, "/etcdserverpb.KV/Range", &q.base, &a) != 0)
		return -1;
	r = etcdserverpb__range_response__unpack(NULL, a.length, a.data);
	free(a.data);
	if (!r)
		return -1;
	n = r->count;
	etcdserverpb__range_response__free_unpacked(r, NULL);
	return n;
}

static bool is_empty(struct client *c)
{
	int64_t count = count_keys(c, "\0", 1, "\0", 1);

	if (count > 0)
		fprintf(stderr,
			"ringpostctl: the node has %" PRId64 " keys: restore wants an empty one\n",
			count);
	return count == 0;
}

/* Grants what keys refer to, with the full time, as etcd does after a restart. */
static void grant_all(struct client *c, struct keys *k, size_t *lost)
{
	for (size_t i = 0; i < k->count; i++) {
		Etcdserverpb__LeaseGrantRequest q = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
		Mvccpb__KeyValue *kv = k->items[i].kv;
		struct lease wanted = {.id = kv->lease}, *l;
		struct answer a;

		if (kv->lease == 0)
			continue;
		l = k->lease_count > 0
			    ? bsearch(&wanted, k->leases, k->lease_count, sizeof(wanted), by_id)
			    : NULL;
		if (l && !l->granted) {
			q.id = l->id;
			q.ttl = l->ttl_s;
			l->granted = call(c, "/etcdserverpb.Lease/LeaseGrant", &q.base, &a) == 0;
			free(a.data);
		}
		if (l && l->granted)
			continue;
		kv->lease = 0;
		(*lost)++;
	}
}

/* Puts the items in one txn. */
static int put_batch(struct client *c, const struct item *items, size_t count)
{
	Etcdserverpb__TxnRequest q = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__RequestOp ops[BATCH_OPS_MAX], *list[BATCH_OPS_MAX];
	Etcdserverpb__PutRequest puts[BATCH_OPS_MAX];
	struct answer a;
	int rc;

	for (size_t i = 0; i < count; i++) {
		etcdserverpb__put_request__init(&puts[i]);
		puts[i].key = items[i].kv->key;
		puts[i].value = items[i].kv->value;
		puts[i].lease = items[i].kv->lease;
		etcdserverpb__request_op__init(&ops[i]);
		ops[i].request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
		ops[i].request_put = &puts[i];
		list[i] = &ops[i];
	}
	q.success = list;
	q.n_success = count;
	rc = call(c, "/etcdserverpb.KV/Txn", &q.base, &a);
	free(a.data);
	return rc;
}

static int put_all(struct client *c, const struct keys *k)
{
	for (size_t i = 0; i < k->count;) {
		size_t n = 0, bytes = 0;

		while (n < BATCH_OPS_MAX && i + n < k->count) {
			const Mvccpb__KeyValue *kv = k->items[i + n].kv;

			bytes += kv->key.len + kv->value.len;
			if (n > 0 && bytes > BATCH_BYTES_MAX)
				break;
			n++;
		}
		if (put_batch(c, &k->items[i], n) != 0) {
			fprintf(stderr, "ringpostctl: %zu of %zu keys are there\n", i, k->count);
			return 1;
		}
		i += n;
	}
	return 0;
}

static int restore_from(struct client *c, const char *path, struct rp_span file)
{
	struct keys k = {0};
	size_t own = 0, lost = 0;
	int rc = read_keys(path, file, &k);

	if (rc == 0) {
		keep_last(&k, &own);
		rc = is_empty(c) ? 0 : 1;
	}
	if (rc == 0) {
		grant_all(c, &k, &lost);
		rc = put_all(c, &k);
	}
	if (rc == 0)
		printf("restored %zu keys\n", k.count);
	if (rc == 0 && own > 0)
		printf("left out %zu keys of queues and nodes: they write their own\n", own);
	if (rc == 0 && lost > 0)
		printf("%zu keys had a lease that is not in the file, and have none now\n", lost);
	/* Last: from then on a caller has to say who he is. */
	if (rc == 0)
		rc = restore_auth(c, &k.auth);
	keys_free(&k);
	return rc;
}

int restore(struct client *c, int argc, char **argv)
{
	const char *path;
	struct options o;
	struct stat st;
	void *data;
	int fd, rc;

	if (options_take(&o, "", 1, 1, argc, argv) != 0)
		return 2;
	path = o.argv[0];
	fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0) {
		rc = complain(path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	data = st.st_size > 0 ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
			      : MAP_FAILED;
	close(fd);
	if (data == MAP_FAILED)
		return complain(path, st.st_size > 0 ? strerror(errno) : "the file is empty");
	rc = restore_from(c, path, (struct rp_span){.data = data, .length = (size_t)st.st_size});
	munmap(data, (size_t)st.st_size);
	return rc;
}
