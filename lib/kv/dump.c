/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kv_priv.h"

/* Versions of a key that compaction has made unreachable come first; as compact_key() frees them.
 */
static uint32_t dump_first(const struct rp_kv *kv, const struct rp_kv_key *k)
{
	uint32_t until, older;

	if (kv->compacted < 0)
		return 0;
	until = kv_key_versions_until(k, kv->compacted);
	older = kv_key_versions_until(k, kv->compacted - 1);
	if (older == until && older > 0 && !k->versions[older - 1]->deleted)
		older--;
	return older;
}

/* By revision; those of one stay as the walk found them, by key. */
static int dump_order(const void *a, const void *b)
{
	const struct rp_kv_dump_item *x = a, *y = b;

	if (x->version->mod_revision != y->version->mod_revision)
		return x->version->mod_revision < y->version->mod_revision ? -1 : 1;
	return (x->sub > y->sub) - (x->sub < y->sub);
}

void rp_kv_dump(struct rp_kv *kv, struct rp_kv_dump *out)
{
	uint64_t n = 0;

	*out = (struct rp_kv_dump){.revision = kv->revision, .compacted = kv->compacted};
	out->items = kv_alloc((kv->stats.versions + 1) * sizeof(out->items[0]));
	for (struct rp_kv_key *k = kv_index_lower(kv, (struct rp_span){0}, false); k;
		k = kv_index_next(k))
		for (uint32_t i = dump_first(kv, k); i < k->version_count; i++) {
			RP_ASSERT(n < kv->stats.versions);
			out->items[n].version = rp_kv_version_ref(k->versions[i]);
			out->items[n].sub = (uint32_t)n;
			n++;
		}
	out->count = n;
	qsort(out->items, n, sizeof(out->items[0]), dump_order);
	for (uint64_t i = 0, first = 0; i < n; i++) {
		if (out->items[i].version->mod_revision != out->items[first].version->mod_revision)
			first = i;
		out->items[i].sub = (uint32_t)(i - first);
	}
}

void rp_kv_dump_clear(struct rp_kv_dump *d)
{
	for (uint64_t i = 0; i < d->count; i++)
		rp_kv_version_unref(d->items[i].version);
	free(d->items);
	*d = (struct rp_kv_dump){0};
}
