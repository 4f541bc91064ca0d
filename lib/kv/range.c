/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kv_priv.h"

enum rp_kv_error rp_kv_range_check(const struct rp_kv_range *r)
{
	if (r->key.length == 0)
		return RP_KV_KEY_EMPTY;
	if (r->sort_order < RP_KV_SORT_NONE || r->sort_order > RP_KV_SORT_DESCEND ||
		r->sort_target < RP_KV_SORT_KEY || r->sort_target > RP_KV_SORT_VALUE)
		return RP_KV_INVALID_SORT;
	return RP_KV_OK;
}

void rp_kv_range_result_clear(struct rp_kv_range_result *r)
{
	for (uint32_t i = 0; i < r->item_count; i++)
		rp_kv_version_unref(r->items[i]);
	free(r->items);
	r->items = NULL;
	r->item_count = 0;
}

static bool range_filtered(const struct rp_kv_range *r)
{
	return r->min_mod_revision != 0 || r->max_mod_revision != 0 ||
	       r->min_create_revision != 0 || r->max_create_revision != 0;
}

static bool range_passes(const struct rp_kv_range *r, const struct rp_kv_version *v)
{
	return (r->min_mod_revision == 0 || v->mod_revision >= r->min_mod_revision) &&
	       (r->max_mod_revision == 0 || v->mod_revision <= r->max_mod_revision) &&
	       (r->min_create_revision == 0 || v->create_revision >= r->min_create_revision) &&
	       (r->max_create_revision == 0 || v->create_revision <= r->max_create_revision);
}

struct range_order {
	int32_t target;
	bool descend;
};

static int range_compare(const void *pa, const void *pb, void *arg)
{
	const struct rp_kv_version *a = *(struct rp_kv_version *const *)pa;
	const struct rp_kv_version *b = *(struct rp_kv_version *const *)pb;
	const struct range_order *o = arg;
	int c = 0;

	switch (o->target) {
	case RP_KV_SORT_VERSION:
		c = (a->version > b->version) - (a->version < b->version);
		break;
	case RP_KV_SORT_CREATE:
		c = (a->create_revision > b->create_revision) -
		    (a->create_revision < b->create_revision);
		break;
	case RP_KV_SORT_MOD:
		c = (a->mod_revision > b->mod_revision) - (a->mod_revision < b->mod_revision);
		break;
	case RP_KV_SORT_VALUE:
		c = kv_bytes_compare(a->value, a->value_length, b->value, b->value_length);
		break;
	}
	if (c == 0)
		c = kv_bytes_compare(a->key->bytes, a->key->length, b->key->bytes, b->key->length);
	return o->descend ? -c : c;
}

struct range_walk {
	const struct kv_tree *tree;
	const struct rp_kv_range *r;
	struct rp_kv_range_result *out;
	uint32_t size;
	uint64_t fetch_max; /* 0 = no bound */
};

static void walk_take(struct range_walk *w, struct rp_kv_version *v)
{
	struct rp_kv_range_result *out = w->out;

	if (!range_passes(w->r, v))
		return;
	out->items = kv_grow(out->items, &w->size, (uint64_t)out->item_count + 1,
		sizeof(struct rp_kv_version *));
	out->items[out->item_count++] = rp_kv_version_ref(v);
}

/* The present: dead keys are skipped by the counts in the tree, which also give `count`. */
static void walk_now(struct range_walk *w, const struct kv_selector *s)
{
	struct rp_kv_key *k;
	uint64_t fetched = 0;

	w->out->count = (int64_t)kv_tree_count_live(w->tree, s);
	if (w->r->count_only || w->out->count == 0)
		return;
	k = kv_tree_lower(w->tree, s->start, false);
	if (k && !k->live)
		k = kv_index_next_live(k);
	for (; k && kv_selector_below_end(s, k); k = kv_index_next_live(k)) {
		walk_take(w, k->versions[k->version_count - 1]);
		if (w->fetch_max > 0 && ++fetched >= w->fetch_max)
			break;
	}
}

static void walk_past(struct range_walk *w, const struct kv_selector *s, int64_t revision)
{
	struct rp_kv_key *k = kv_tree_lower(w->tree, s->start, false);
	uint64_t fetched = 0;

	for (; k && kv_selector_below_end(s, k); k = kv_index_next(k)) {
		struct rp_kv_version *v = kv_key_at(k, revision);

		if (!v)
			continue;
		w->out->count++;
		if (w->r->count_only || (w->fetch_max > 0 && fetched >= w->fetch_max))
			continue;
		fetched++;
		walk_take(w, v);
	}
}

static void range_sort_and_cut(const struct rp_kv_range *r, struct rp_kv_range_result *out)
{
	struct range_order o = {
		.target = r->sort_target,
		.descend = r->sort_order == RP_KV_SORT_DESCEND,
	};

	/* Keys come in ascending order already. */
	if (out->item_count > 1 && (r->sort_target != RP_KV_SORT_KEY || o.descend))
		qsort_r(out->items, out->item_count, sizeof(out->items[0]), range_compare, &o);
	if (r->limit > 0 && out->item_count > r->limit) {
		for (uint32_t i = (uint32_t)r->limit; i < out->item_count; i++)
			rp_kv_version_unref(out->items[i]);
		out->item_count = (uint32_t)r->limit;
		out->more = true;
	}
}

/* What nodes say of themselves is read by who asks for just that. */
static bool range_is_of_nodes(const struct kv_selector *s)
{
	return rp_kv_is_nodes(s->start) &&
	       (s->single || (!s->endless && kv_bytes_compare(s->end.data, s->end.length,
						     (const uint8_t *)RP_KV_NODES_END,
						     RP_KV_NODES_PREFIX_BYTES) <= 0));
}

enum rp_kv_error kv_range_at(struct rp_kv *kv, const struct rp_kv_range *r, int64_t current,
	struct rp_kv_range_result *out)
{
	struct kv_selector s = kv_selector_of(r->key, r->end);
	int64_t revision = r->revision > 0 ? r->revision : current;
	bool nodes = range_is_of_nodes(&s);
	struct range_walk w = {.tree = nodes ? &kv->hidden : &kv->index, .r = r, .out = out};

	*out = (struct rp_kv_range_result){.keys_only = r->keys_only};
	if (revision > current)
		return RP_KV_FUTURE_REVISION;
	if (revision < kv->compacted)
		return RP_KV_COMPACTED;
	/*
	 * As etcd: a sort order or a filter fetches the whole range; a sort target alone sorts only
	 * what the limit let through.
	 */
	if (r->limit > 0 && r->limit < INT64_MAX && r->sort_order == RP_KV_SORT_NONE &&
		!range_filtered(r))
		w.fetch_max = (uint64_t)r->limit + 1;
	kv->stats.ranges++;
	/* Records of nodes have no history. */
	if (revision == current || nodes)
		walk_now(&w, &s);
	else
		walk_past(&w, &s, revision);
	range_sort_and_cut(r, out);
	return RP_KV_OK;
}

enum rp_kv_error rp_kv_range(
	struct rp_kv *kv, const struct rp_kv_range *r, struct rp_kv_range_result *out)
{
	return kv_range_at(kv, r, kv->revision, out);
}
