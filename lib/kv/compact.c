/* SPDX-License-Identifier: Apache-2.0 */
#include "kv_priv.h"

enum rp_kv_error rp_kv_compact(struct rp_kv *kv, int64_t revision)
{
	if (revision > kv->revision)
		return RP_KV_FUTURE_REVISION;
	if (revision <= kv->compacted)
		return RP_KV_COMPACTED;
	kv->compacted = revision;
	return RP_KV_OK;
}

bool rp_kv_compact_done(const struct rp_kv *kv)
{
	return kv->trimmed >= kv->compacted;
}

/*
 * Of a key's versions at or below the compacted revision only the newest can still be read; those
 * of that very revision stay for watchers that start there. At most `max` go; returns how many, and
 * whether that was all.
 */
static uint32_t compact_key(struct rp_kv *kv, struct rp_kv_key *k, uint32_t max, bool *all)
{
	uint32_t until = kv_key_versions_until(k, kv->compacted);
	uint32_t older = kv_key_versions_until(k, kv->compacted - 1);
	uint32_t drop = older;

	/* With nothing written at the revision itself, the newest older one is what is read. */
	if (older == until && older > 0 && !k->versions[older - 1]->deleted)
		drop--;
	*all = drop <= max;
	drop = RP_MIN(drop, max);
	kv_key_drop(kv, k, 0, drop);
	if (k->version_count == 0)
		kv_index_reap(kv, k);
	return drop;
}

/* False: the budget ended before the commit's keys did. */
static bool compact_commit(struct rp_kv *kv, const struct kv_commit *c, uint32_t *budget)
{
	for (uint32_t i = 0; i < c->count; i++) {
		struct rp_kv_key *k = c->versions[i]->key;
		uint32_t work;
		bool all;

		if (!k->indexed)
			continue;
		work = compact_key(kv, k, RP_MAX(*budget, 1u), &all);
		if (!all) {
			*budget = 0;
			return false;
		}
		*budget -= RP_MIN(*budget, work);
	}
	*budget -= RP_MIN(*budget, 1 + c->count);
	return true;
}

/*
 * Every version that compaction can free was superseded by a commit that is still in the log, or is
 * a tombstone whose own commit is: so it is enough to walk the log up to the compacted revision.
 */
bool kv_compact_step(struct rp_kv *kv, uint32_t *budget)
{
	while (kv->trimmed < kv->compacted) {
		if (*budget == 0)
			return true;
		if (kv->log_count == 0 || kv->log_first > kv->compacted) {
			kv->trimmed = kv->compacted;
			break;
		}
		if (!compact_commit(kv, kv_log_at(kv, kv->log_first), budget))
			return true;
		if (kv->log_first == kv->compacted) {
			kv->trimmed = kv->compacted;
			break;
		}
		kv_log_pop(kv);
	}
	return false;
}
