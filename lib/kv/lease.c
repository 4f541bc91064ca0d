/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <stdlib.h>

#include "kv_priv.h"

#define LEASE_KEY RP_KV_HIDDEN_PREFIX "lease/"
#define LEASE_KEY_PREFIX_BYTES (RP_KV_HIDDEN_PREFIX_BYTES + 6)
#define LEASE_KEY_BYTES (LEASE_KEY_PREFIX_BYTES + 8)
/** ttl_s and owner, big-endian */
#define LEASE_VALUE_BYTES 16
#define LEASE_BITS_MIN 4
/** Of an id: bits of the node, of milliseconds, of a count within one. */
#define LEASE_ID_TIME_BITS 40
#define LEASE_ID_COUNT_BITS 8

static struct kv_lease *lease_of(struct rp_hmap_node *n)
{
	return n ? RP_CONTAINER_OF(n, struct kv_lease, by_id) : NULL;
}

static int64_t lease_id(const struct kv_lease *l)
{
	return (int64_t)l->by_id.key;
}

static void put_be64(uint8_t *to, uint64_t v)
{
	v = htobe64(v);
	memcpy(to, &v, sizeof(v));
}

static uint64_t get_be64(const uint8_t *from)
{
	uint64_t v;

	memcpy(&v, from, sizeof(v));
	return be64toh(v);
}

/* ---- table ---- */

static struct rp_hmap table_new(unsigned bits)
{
	size_t bytes = sizeof(struct rp_hmap_node *) << bits;
	struct rp_hmap h = {.chains = kv_alloc(bytes), .bits = bits};

	memset(h.chains, 0, bytes);
	return h;
}

void kv_lease_init(struct rp_kv *kv)
{
	kv->leases = table_new(LEASE_BITS_MIN);
}

static void table_grow(struct rp_kv *kv)
{
	struct rp_hmap bigger;

	if (kv->leases.count >> kv->leases.bits < 2 || kv->leases.bits >= 24)
		return;
	bigger = table_new(kv->leases.bits + 2);
	for (size_t i = 0; i < (size_t)1 << kv->leases.bits; i++)
		while (kv->leases.chains[i]) {
			struct rp_hmap_node *n = kv->leases.chains[i];

			rp_hmap_remove(&kv->leases, n);
			rp_hmap_insert(&bigger, n, n->key);
		}
	free(kv->leases.chains);
	kv->leases = bigger;
}

struct kv_lease *kv_lease_find(const struct rp_kv *kv, int64_t id)
{
	return lease_of(rp_hmap_find(&kv->leases, (uint64_t)id));
}

/* ---- heap ---- */

static bool lease_before(const struct kv_lease *a, const struct kv_lease *b)
{
	if (a->expiry_ns != b->expiry_ns)
		return a->expiry_ns < b->expiry_ns;
	return lease_id(a) < lease_id(b);
}

static void heap_set(struct rp_kv *kv, uint32_t at, struct kv_lease *l)
{
	kv->lease_heap[at] = l;
	l->heap_at = at + 1;
}

static void heap_up(struct rp_kv *kv, uint32_t at, struct kv_lease *l)
{
	while (at > 0 && lease_before(l, kv->lease_heap[(at - 1) / 2])) {
		heap_set(kv, at, kv->lease_heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	heap_set(kv, at, l);
}

static void heap_down(struct rp_kv *kv, uint32_t at, struct kv_lease *l)
{
	for (;;) {
		uint32_t child = 2 * at + 1;

		if (child + 1 < kv->lease_heap_count &&
			lease_before(kv->lease_heap[child + 1], kv->lease_heap[child]))
			child++;
		if (child >= kv->lease_heap_count || lease_before(l, kv->lease_heap[child]))
			break;
		heap_set(kv, at, kv->lease_heap[child]);
		at = child;
	}
	heap_set(kv, at, l);
}

static void heap_remove(struct rp_kv *kv, struct kv_lease *l)
{
	uint32_t at = l->heap_at - 1;
	struct kv_lease *last;

	if (l->heap_at == 0)
		return;
	last = kv->lease_heap[--kv->lease_heap_count];
	l->heap_at = 0;
	if (last == l)
		return;
	heap_down(kv, at, last);
	heap_up(kv, last->heap_at - 1, last);
}

static void lease_expire_at(struct rp_kv *kv, struct kv_lease *l, uint64_t expiry_ns)
{
	heap_remove(kv, l);
	l->expiry_ns = expiry_ns;
	if (expiry_ns == RP_NEVER)
		return;
	kv->lease_heap = kv_grow(kv->lease_heap, &kv->lease_heap_size,
		(uint64_t)kv->lease_heap_count + 1, sizeof(kv->lease_heap[0]));
	heap_up(kv, kv->lease_heap_count++, l);
}

static uint64_t lease_expiry(const struct rp_kv *kv, int64_t ttl_s)
{
	return kv->now_ns + (uint64_t)ttl_s * RP_NS_PER_S;
}

/* ---- leases and their keys ---- */

static struct kv_lease *lease_get_or_add(struct rp_kv *kv, int64_t id)
{
	struct kv_lease *l = kv_lease_find(kv, id);

	if (l)
		return l;
	l = kv_alloc(sizeof(*l));
	memset(l, 0, sizeof(*l));
	l->expiry_ns = RP_NEVER;
	rp_list_init(&l->keys);
	table_grow(kv);
	rp_hmap_insert(&kv->leases, &l->by_id, (uint64_t)id);
	return l;
}

/* Without a record a lease lives as long as it has keys, and no longer than the grace. */
static void lease_settle(struct rp_kv *kv, struct kv_lease *l)
{
	if (l->known)
		return;
	if (l->key_count > 0) {
		if (l->heap_at == 0)
			lease_expire_at(kv, l, kv->now_ns + KV_LEASE_GRACE_NS);
		return;
	}
	heap_remove(kv, l);
	rp_hmap_remove(&kv->leases, &l->by_id);
	free(l);
}

void kv_lease_key_changed(struct rp_kv *kv, struct rp_kv_key *k)
{
	const struct rp_kv_version *v = k->versions[k->version_count - 1];
	int64_t id = k->live ? v->lease : 0;
	struct kv_lease *old = k->lease, *l;

	if (old ? id == lease_id(old) : id == 0)
		return;
	/* The new one first: what is left without keys may be freed. */
	l = id != 0 ? lease_get_or_add(kv, id) : NULL;
	rp_list_unlink(&k->lease_link);
	k->lease = l;
	if (l) {
		rp_list_push_back(&l->keys, &k->lease_link);
		l->key_count++;
		lease_settle(kv, l);
	}
	if (old) {
		old->key_count--;
		lease_settle(kv, old);
	}
}

void kv_lease_destroy(struct rp_kv *kv)
{
	for (size_t i = 0; i < (size_t)1 << kv->leases.bits; i++)
		while (kv->leases.chains[i]) {
			struct kv_lease *l = lease_of(kv->leases.chains[i]);
			struct rp_list *n;

			while ((n = rp_list_pop_front(&l->keys)))
				rp_list_entry(n, struct rp_kv_key, lease_link)->lease = NULL;
			rp_hmap_remove(&kv->leases, &l->by_id);
			free(l);
		}
	free(kv->leases.chains);
	free(kv->lease_heap);
}

static int key_order(const void *a, const void *b)
{
	const struct rp_kv_key *x = *(struct rp_kv_key *const *)a;
	const struct rp_kv_key *y = *(struct rp_kv_key *const *)b;

	return kv_bytes_compare(x->bytes, x->length, y->bytes, y->length);
}

struct rp_kv_key **kv_lease_sorted(const struct kv_lease *l)
{
	struct rp_kv_key **keys = kv_alloc((l->key_count + 1) * sizeof(keys[0]));
	struct rp_list *n;
	uint32_t i = 0;

	rp_list_foreach (n, &l->keys)
		keys[i++] = rp_list_entry(n, struct rp_kv_key, lease_link);
	RP_ASSERT(i == l->key_count);
	if (i > 1)
		qsort(keys, i, sizeof(keys[0]), key_order);
	return keys;
}

/* ---- records ---- */

static struct rp_span record_key(uint8_t out[LEASE_KEY_BYTES], int64_t id)
{
	memcpy(out, LEASE_KEY, LEASE_KEY_PREFIX_BYTES);
	put_be64(out + LEASE_KEY_PREFIX_BYTES, (uint64_t)id);
	return (struct rp_span){.data = out, .length = LEASE_KEY_BYTES};
}

void kv_lease_record_changed(struct rp_kv *kv, const struct rp_kv_key *k)
{
	const struct rp_kv_version *v = k->versions[k->version_count - 1];
	struct kv_lease *l;
	int64_t id, ttl_s;

	if (k->length != LEASE_KEY_BYTES || memcmp(k->bytes, LEASE_KEY, LEASE_KEY_PREFIX_BYTES))
		return;
	id = (int64_t)get_be64(k->bytes + LEASE_KEY_PREFIX_BYTES);
	ttl_s = k->live && v->value_length == LEASE_VALUE_BYTES ? (int64_t)get_be64(v->value) : 0;
	/* What a peer sends is not trusted: a record that makes no sense is no lease. */
	if (id == 0 || ttl_s <= 0 || ttl_s > RP_KV_LEASE_TTL_MAX_S) {
		l = kv_lease_find(kv, id);
		if (!l || !l->known)
			return;
		l->known = false;
		kv->leases_known--;
		lease_expire_at(kv, l, RP_NEVER);
		lease_settle(kv, l);
		return;
	}
	l = lease_get_or_add(kv, id);
	kv->leases_known += !l->known;
	l->known = true;
	l->ttl_s = ttl_s;
	l->owner = get_be64(v->value + 8);
	lease_expire_at(kv, l, l->owner == kv->config.node ? lease_expiry(kv, l->ttl_s) : RP_NEVER);
}

void kv_lease_write(struct rp_kv *kv, int64_t id, int64_t ttl_s, uint64_t stamp)
{
	uint8_t key[LEASE_KEY_BYTES], value[LEASE_VALUE_BYTES];
	struct rp_kv_key *k = kv_any_find_or_add(kv, record_key(key, id));

	put_be64(value, (uint64_t)RP_MAX(ttl_s, (int64_t)RP_KV_LEASE_TTL_MIN_S));
	put_be64(value + 8, kv->config.node);
	kv_hidden_write(
		kv, k, (struct rp_span){value, sizeof(value)}, false, stamp, kv->config.node);
}

void kv_lease_erase(struct rp_kv *kv, int64_t id, uint64_t stamp)
{
	uint8_t key[LEASE_KEY_BYTES];
	struct rp_kv_key *k = kv_any_find(kv, record_key(key, id));

	RP_ASSERT(k && k->live);
	kv_hidden_write(kv, k, (struct rp_span){0}, true, stamp, kv->config.node);
}

/* ---- public ---- */

bool rp_kv_lease_get(const struct rp_kv *kv, int64_t id, uint64_t now_ns, struct rp_kv_lease *out)
{
	const struct kv_lease *l = kv_lease_find(kv, id);

	if (!l || !l->known || l->expiry_ns <= now_ns)
		return false;
	*out = (struct rp_kv_lease){
		.id = id,
		.ttl_s = l->ttl_s,
		.left_s = l->ttl_s,
		.owner = l->owner,
		.expiry_ns = l->expiry_ns,
		.key_count = l->key_count,
	};
	if (l->expiry_ns != RP_NEVER)
		out->left_s = (int64_t)((l->expiry_ns - now_ns) / RP_NS_PER_S);
	return true;
}

enum rp_kv_lease_state rp_kv_lease_keepalive(struct rp_kv *kv, int64_t id, uint64_t now_ns)
{
	struct kv_lease *l = kv_lease_find(kv, id);

	rp_kv_set_now(kv, now_ns);
	if (!l || !l->known)
		return RP_KV_LEASE_NONE;
	if (l->expiry_ns == RP_NEVER)
		return RP_KV_LEASE_ELSEWHERE;
	if (l->expiry_ns <= kv->now_ns)
		return RP_KV_LEASE_OVER;
	lease_expire_at(kv, l, lease_expiry(kv, l->ttl_s));
	kv->stats.leases_renewed++;
	return RP_KV_LEASE_RENEWED;
}

void rp_kv_lease_keys(
	const struct rp_kv *kv, int64_t id, void (*fn)(void *ctx, struct rp_span key), void *ctx)
{
	const struct kv_lease *l = kv_lease_find(kv, id);
	struct rp_kv_key **keys;

	if (!l)
		return;
	keys = kv_lease_sorted(l);
	for (uint32_t i = 0; i < l->key_count; i++)
		fn(ctx, (struct rp_span){.data = keys[i]->bytes, .length = keys[i]->length});
	free(keys);
}

static int expiry_order(const void *a, const void *b)
{
	const struct kv_lease *x = *(struct kv_lease *const *)a, *y = *(struct kv_lease *const *)b;

	return lease_before(x, y) ? -1 : lease_before(y, x);
}

int64_t *rp_kv_lease_list(const struct rp_kv *kv, uint32_t *count)
{
	const struct kv_lease **all = kv_alloc((kv->leases.count + 1) * sizeof(all[0]));
	int64_t *ids = kv_alloc((kv->leases.count + 1) * sizeof(ids[0]));
	uint32_t n = 0;

	for (size_t i = 0; i < (size_t)1 << kv->leases.bits; i++)
		for (struct rp_hmap_node *h = kv->leases.chains[i]; h; h = h->next)
			if (lease_of(h)->known)
				all[n++] = lease_of(h);
	if (n > 1)
		qsort(all, n, sizeof(all[0]), expiry_order);
	for (uint32_t i = 0; i < n; i++)
		ids[i] = lease_id(all[i]);
	free(all);
	*count = n;
	return ids;
}

bool rp_kv_lease_expired(const struct rp_kv *kv, uint64_t now_ns, int64_t *id)
{
	if (rp_kv_lease_next_ns(kv) > now_ns)
		return false;
	*id = lease_id(kv->lease_heap[0]);
	return true;
}

uint64_t rp_kv_lease_next_ns(const struct rp_kv *kv)
{
	return kv->lease_heap_count > 0 ? kv->lease_heap[0]->expiry_ns : RP_NEVER;
}

int64_t rp_kv_lease_id_new(struct rp_kv *kv)
{
	uint64_t node = kv->config.node, time, id;

	node ^= node >> 32;
	node ^= node >> 16;
	time = (kv->stamp / 1000) << LEASE_ID_COUNT_BITS;
	do {
		kv->lease_id_last = RP_MAX(kv->lease_id_last + 1, time);
		id = kv->lease_id_last & ((1ull << (LEASE_ID_TIME_BITS + LEASE_ID_COUNT_BITS)) - 1);
		id |= (node & 0x7fff) << (LEASE_ID_TIME_BITS + LEASE_ID_COUNT_BITS);
	} while (id == 0 || kv_lease_find(kv, (int64_t)id));
	return (int64_t)id;
}

uint32_t rp_kv_lease_foreign(const struct rp_kv *kv)
{
	/* All that are counted here are in the heap. */
	return kv->leases.count - kv->lease_heap_count;
}

uint32_t rp_kv_lease_orphans(const struct rp_kv *kv, bool (*orphaned)(void *ctx, uint64_t owner),
	void *ctx, int64_t *ids, uint32_t max)
{
	uint32_t n = 0;

	if (rp_kv_lease_foreign(kv) == 0)
		return 0;
	for (size_t i = 0; i < (size_t)1 << kv->leases.bits; i++)
		for (struct rp_hmap_node *h = kv->leases.chains[i]; h && n < max; h = h->next) {
			const struct kv_lease *l = lease_of(h);

			if (l->known && l->expiry_ns == RP_NEVER && orphaned(ctx, l->owner))
				ids[n++] = lease_id(l);
		}
	return n;
}
