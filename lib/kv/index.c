/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kv_priv.h"

static void index_augment(struct kv_node *n)
{
	struct rp_kv_key *k = kv_key_of(n);

	k->live_below = k->live;
	if (n->left)
		k->live_below += kv_key_of(n->left)->live_below;
	if (n->right)
		k->live_below += kv_key_of(n->right)->live_below;
}

void kv_index_init(struct rp_kv *kv)
{
	kv->index.root = NULL;
	kv->index.augment = index_augment;
	kv->hidden.root = NULL;
	kv->hidden.augment = index_augment;
	rp_list_init(&kv->tombstones);
}

struct kv_selector kv_selector_of(struct rp_span key, struct rp_span end)
{
	struct kv_selector s = {.start = key, .end = end};

	s.single = end.length == 0;
	s.endless = end.length == 1 && end.data[0] == 0;
	return s;
}

bool kv_selector_below_end(const struct kv_selector *s, const struct rp_kv_key *k)
{
	if (s->endless)
		return true;
	if (s->single)
		return kv_bytes_compare(k->bytes, k->length, s->start.data, s->start.length) == 0;
	return kv_bytes_compare(k->bytes, k->length, s->end.data, s->end.length) < 0;
}

static struct rp_kv_key *tree_find(const struct kv_tree *t, struct rp_span key)
{
	struct rp_kv_key *k = kv_key_of(t->root);

	while (k) {
		int c = kv_bytes_compare(key.data, key.length, k->bytes, k->length);

		if (c == 0)
			return k;
		k = kv_key_of(c < 0 ? k->node.left : k->node.right);
	}
	return NULL;
}

struct rp_kv_key *kv_index_find(const struct rp_kv *kv, struct rp_span key)
{
	return tree_find(&kv->index, key);
}

struct rp_kv_key *kv_any_find(const struct rp_kv *kv, struct rp_span key)
{
	return tree_find(rp_kv_is_hidden(key) ? &kv->hidden : &kv->index, key);
}

static size_t key_cost(const struct rp_kv_key *k)
{
	return sizeof(*k) + k->length + KV_MALLOC_OVERHEAD;
}

static size_t version_cost(const struct rp_kv_version *v)
{
	return sizeof(*v) + v->value_length + KV_MALLOC_OVERHEAD;
}

static struct rp_kv_key *tree_find_or_add(struct rp_kv *kv, struct kv_tree *t, struct rp_span key)
{
	struct kv_node *parent = NULL, *n = t->root;
	bool left = false;
	struct rp_kv_key *k;

	while (n) {
		int c;

		k = kv_key_of(n);
		c = kv_bytes_compare(key.data, key.length, k->bytes, k->length);
		if (c == 0)
			return k;
		parent = n;
		left = c < 0;
		n = left ? n->left : n->right;
	}
	k = kv_alloc(sizeof(*k) + key.length);
	memset(k, 0, sizeof(*k));
	k->references = 1;
	k->length = (uint32_t)key.length;
	k->version_size = 1;
	k->versions = &k->one;
	k->indexed = true;
	k->hidden = t == &kv->hidden;
	rp_list_init(&k->tombstone_link);
	rp_list_init(&k->lease_link);
	if (key.length > 0)
		memcpy(k->bytes, key.data, key.length);
	kv_tree_insert(t, &k->node, parent, left);
	kv->stats.bytes += key_cost(k);
	return k;
}

struct rp_kv_key *kv_index_find_or_add(struct rp_kv *kv, struct rp_span key)
{
	return tree_find_or_add(kv, &kv->index, key);
}

struct rp_kv_key *kv_any_find_or_add(struct rp_kv *kv, struct rp_span key)
{
	return tree_find_or_add(kv, rp_kv_is_hidden(key) ? &kv->hidden : &kv->index, key);
}

struct rp_kv_key *kv_tree_lower(const struct kv_tree *t, struct rp_span key, bool after)
{
	struct rp_kv_key *k = kv_key_of(t->root), *best = NULL;

	while (k) {
		int c = kv_bytes_compare(k->bytes, k->length, key.data, key.length);

		if (c > 0 || (c == 0 && !after)) {
			best = k;
			k = kv_key_of(k->node.left);
		} else {
			k = kv_key_of(k->node.right);
		}
	}
	return best;
}

struct rp_kv_key *kv_index_lower(const struct rp_kv *kv, struct rp_span key, bool after)
{
	return kv_tree_lower(&kv->index, key, after);
}

struct rp_kv_key *kv_hidden_lower(const struct rp_kv *kv, struct rp_span key, bool after)
{
	return kv_tree_lower(&kv->hidden, key, after);
}

struct rp_kv_key *kv_index_next(const struct rp_kv_key *k)
{
	return kv_key_of(kv_tree_next(&k->node));
}

static struct rp_kv_key *index_first_live(struct rp_kv_key *k)
{
	for (;;) {
		struct rp_kv_key *l = kv_key_of(k->node.left);

		if (l && l->live_below > 0)
			k = l;
		else if (k->live)
			return k;
		else
			k = kv_key_of(k->node.right);
	}
}

struct rp_kv_key *kv_index_next_live(struct rp_kv_key *k)
{
	for (;;) {
		struct kv_node *n = &k->node;
		struct rp_kv_key *r = kv_key_of(n->right);

		if (r && r->live_below > 0)
			return index_first_live(r);
		while (n->parent && n == n->parent->right)
			n = n->parent;
		k = kv_key_of(n->parent);
		if (!k || k->live)
			return k;
	}
}

/* Live keys below the span. */
static uint64_t index_rank(const struct kv_tree *t, struct rp_span key)
{
	struct rp_kv_key *k = kv_key_of(t->root);
	uint64_t rank = 0;

	while (k) {
		struct rp_kv_key *l = kv_key_of(k->node.left);

		if (kv_bytes_compare(k->bytes, k->length, key.data, key.length) < 0) {
			rank += (l ? l->live_below : 0) + k->live;
			k = kv_key_of(k->node.right);
		} else {
			k = l;
		}
	}
	return rank;
}

uint64_t kv_tree_count_live(const struct kv_tree *t, const struct kv_selector *s)
{
	struct rp_kv_key *root = kv_key_of(t->root);
	uint64_t low, high;

	if (s->single) {
		struct rp_kv_key *k = tree_find(t, s->start);

		return k && k->live;
	}
	low = index_rank(t, s->start);
	high = s->endless ? (root ? root->live_below : 0) : index_rank(t, s->end);
	return high > low ? high - low : 0;
}

void kv_key_unref(struct rp_kv_key *k)
{
	RP_ASSERT(k->references > 0);
	if (--k->references > 0)
		return;
	if (k->versions != &k->one)
		free(k->versions);
	free(k);
}

void kv_index_reap(struct rp_kv *kv, struct rp_kv_key *k)
{
	if (!k->indexed || k->version_count > 0 || k->tombstone)
		return;
	kv_tree_remove(k->hidden ? &kv->hidden : &kv->index, &k->node);
	k->indexed = false;
	kv->stats.bytes -= key_cost(k);
	kv_key_unref(k);
}

struct rp_kv_version *kv_version_new(struct rp_kv_key *k, struct rp_span value)
{
	struct rp_kv_version *v = kv_alloc(sizeof(*v) + value.length);

	memset(v, 0, sizeof(*v));
	v->references = 1;
	v->key = k;
	k->references++;
	v->value_length = (uint32_t)value.length;
	if (value.length > 0)
		memcpy(v->value, value.data, value.length);
	return v;
}

struct rp_kv_version *rp_kv_version_ref(struct rp_kv_version *v)
{
	v->references++;
	return v;
}

void rp_kv_version_unref(struct rp_kv_version *v)
{
	RP_ASSERT(v->references > 0);
	if (--v->references > 0)
		return;
	kv_key_unref(v->key);
	free(v);
}

struct rp_span rp_kv_version_key(const struct rp_kv_version *v)
{
	return (struct rp_span){.data = v->key->bytes, .length = v->key->length};
}

/* Bytes of a live key and its newest version. */
static size_t key_in_use(const struct rp_kv_key *k)
{
	return key_cost(k) + version_cost(k->versions[k->version_count - 1]);
}

void kv_key_set_tombstone(struct rp_kv *kv, struct rp_kv_key *k, bool on)
{
	if (k->tombstone == on)
		return;
	k->tombstone = on;
	if (on) {
		rp_list_push_back(&kv->tombstones, &k->tombstone_link);
		kv->stats.tombstones++;
	} else {
		rp_list_unlink(&k->tombstone_link);
		kv->stats.tombstones--;
	}
}

void kv_key_append(struct rp_kv *kv, struct rp_kv_key *k, struct rp_kv_version *v)
{
	if (k->live && !k->hidden)
		kv->stats.bytes_in_use -= key_in_use(k);
	if (k->version_count == k->version_size) {
		uint32_t size = k->version_size * 2;
		struct rp_kv_version **versions = kv_alloc(size * sizeof(struct rp_kv_version *));

		memcpy(versions, k->versions, k->version_count * sizeof(*versions));
		if (k->versions != &k->one)
			free(k->versions);
		k->versions = versions;
		k->version_size = size;
	}
	k->versions[k->version_count++] = v;
	kv->stats.versions++;
	kv->stats.bytes += version_cost(v);
	k->stamp = v->stamp;
	k->writer = v->node;
	if (k->live == v->deleted) {
		k->live = !v->deleted;
		if (!k->hidden)
			kv->stats.keys += k->live ? 1 : (uint64_t)-1;
		kv_tree_touch(k->hidden ? &kv->hidden : &kv->index, &k->node);
	}
	if (k->live && !k->hidden)
		kv->stats.bytes_in_use += key_in_use(k);
	kv_key_set_tombstone(kv, k, v->deleted && kv->config.keep_tombstones);
	if (k->hidden)
		kv_lease_record_changed(kv, k);
	else
		kv_lease_key_changed(kv, k);
}

void kv_key_drop(struct rp_kv *kv, struct rp_kv_key *k, uint32_t first, uint32_t count)
{
	if (count == 0)
		return;
	RP_ASSERT(first + count <= k->version_count);
	for (uint32_t i = first; i < first + count; i++) {
		kv->stats.versions--;
		kv->stats.bytes -= version_cost(k->versions[i]);
		rp_kv_version_unref(k->versions[i]);
	}
	memmove(k->versions + first, k->versions + first + count,
		(k->version_count - first - count) * sizeof(struct rp_kv_version *));
	k->version_count -= count;
	/* A key that was busy once and is quiet now gives its array back. */
	if (k->version_count <= 1 && k->versions != &k->one) {
		k->one = k->version_count > 0 ? k->versions[0] : NULL;
		free(k->versions);
		k->versions = &k->one;
		k->version_size = 1;
	}
}

uint32_t kv_key_versions_until(const struct rp_kv_key *k, int64_t revision)
{
	uint32_t low = 0, high = k->version_count;

	if (high > 0 && k->versions[high - 1]->mod_revision <= revision)
		return high;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (k->versions[mid]->mod_revision <= revision)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct rp_kv_version *kv_key_at(const struct rp_kv_key *k, int64_t revision)
{
	uint32_t n = kv_key_versions_until(k, revision);

	return n > 0 && !k->versions[n - 1]->deleted ? k->versions[n - 1] : NULL;
}
