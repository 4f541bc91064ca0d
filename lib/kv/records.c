/* SPDX-License-Identifier: Apache-2.0 */
#include "kv_priv.h"

/* Does (stamp, node) of the record win against what the key has? */
static bool record_wins(const struct rp_kv_record *r, const struct rp_kv_key *k)
{
	if (r->force || !k)
		return true;
	/* A tombstone that was forgotten ranks nowhere, also while history of the key is left. */
	if (!k->live && !k->tombstone)
		return true;
	return r->stamp > k->stamp || (r->stamp == k->stamp && r->node > k->writer);
}

static void record_hidden(struct rp_kv *kv, struct rp_kv_key *k, const struct rp_kv_record *r)
{
	if (k->live || !r->deleted) {
		kv_hidden_write(kv, k, r->value, r->deleted, r->stamp, r->node);
		return;
	}
	k->stamp = r->stamp;
	k->writer = r->node;
	kv_key_set_tombstone(kv, k, kv->config.keep_tombstones);
	kv_index_reap(kv, k);
}

static void record_put(struct rp_kv *kv, struct rp_kv_key *k, const struct rp_kv_record *r)
{
	struct rp_kv_version *prev = k->live ? k->versions[k->version_count - 1] : NULL;
	struct rp_kv_version *v = kv_version_new(k, r->value);

	v->mod_revision = kv_write_revision(kv);
	v->create_revision = prev ? prev->create_revision : v->mod_revision;
	v->version = prev ? prev->version + 1 : 1;
	v->lease = r->lease;
	v->stamp = r->stamp;
	v->node = r->node;
	kv_key_append(kv, k, v);
	kv_event_add(kv, v, prev);
}

static void record_delete(struct rp_kv *kv, struct rp_kv_key *k, const struct rp_kv_record *r)
{
	if (k->live) {
		struct rp_kv_version *prev = k->versions[k->version_count - 1];
		struct rp_kv_version *v = kv_version_new(k, (struct rp_span){0});

		v->deleted = true;
		v->mod_revision = kv_write_revision(kv);
		v->stamp = r->stamp;
		v->node = r->node;
		kv_key_append(kv, k, v);
		kv_event_add(kv, v, prev);
		return;
	}
	/* Nothing to see for a client, but an older put that comes later must lose against it. */
	k->stamp = r->stamp;
	k->writer = r->node;
	kv_key_set_tombstone(kv, k, kv->config.keep_tombstones);
	kv_index_reap(kv, k);
}

uint32_t rp_kv_apply_replicated(
	struct rp_kv *kv, const struct rp_kv_record *records, uint32_t count, uint64_t origin)
{
	uint32_t applied = 0;

	RP_ASSERT(kv->write_revision == 0);
	for (uint32_t i = 0; i < count; i++) {
		const struct rp_kv_record *r = &records[i];
		struct rp_kv_key *k = kv_any_find(kv, r->key);

		kv->stamp = RP_MAX(kv->stamp, r->stamp);
		if (r->key.length == 0 || !record_wins(r, k)) {
			kv->stats.replicated_stale++;
			continue;
		}
		if (!k)
			k = kv_any_find_or_add(kv, r->key);
		if (k->hidden)
			record_hidden(kv, k, r);
		else if (r->deleted)
			record_delete(kv, k, r);
		else
			record_put(kv, k, r);
		applied++;
	}
	kv->stats.replicated_applied += applied;
	kv_commit(kv, origin);
	return applied;
}

static bool record_of(const struct rp_kv_key *k, struct rp_kv_record *out)
{
	const struct rp_kv_version *v =
		k->version_count > 0 ? k->versions[k->version_count - 1] : NULL;

	/* A tombstone that replication has done with is history only. */
	if (!k->live && !k->tombstone)
		return false;
	*out = (struct rp_kv_record){
		.key = {.data = k->bytes, .length = k->length},
		.deleted = !k->live,
		.stamp = k->stamp,
		.node = k->writer,
	};
	if (v) {
		out->lease = v->lease;
		out->mod_revision = v->mod_revision;
	}
	if (k->live)
		out->value = rp_kv_version_value(v);
	return true;
}

bool rp_kv_record_get(const struct rp_kv *kv, struct rp_span key, struct rp_kv_record *out)
{
	const struct rp_kv_key *k = kv_any_find(kv, key);

	return k && record_of(k, out);
}

uint32_t rp_kv_record_page(const struct rp_kv *kv, struct rp_span from, bool after,
	struct rp_span end, struct rp_kv_record *out, uint32_t max)
{
	const struct rp_kv_key *shown = kv_index_lower(kv, from, after);
	const struct rp_kv_key *hidden = kv_hidden_lower(kv, from, after), *k;
	uint32_t n = 0;

	/* Two indexes, one order. */
	while (n < max && (shown || hidden)) {
		bool first = !hidden || (shown && kv_bytes_compare(shown->bytes, shown->length,
							  hidden->bytes, hidden->length) < 0);

		k = first ? shown : hidden;
		*(first ? &shown : &hidden) = kv_index_next(k);
		if (end.length > 0 &&
			kv_bytes_compare(k->bytes, k->length, end.data, end.length) >= 0)
			break;
		if (record_of(k, &out[n]))
			n++;
	}
	return n;
}

bool rp_kv_tombstone_drop(struct rp_kv *kv, struct rp_span key, uint64_t stamp)
{
	struct rp_kv_key *k = kv_any_find(kv, key);

	if (!k || !k->tombstone || k->stamp != stamp)
		return false;
	kv_key_set_tombstone(kv, k, false);
	kv_index_reap(kv, k);
	return true;
}

uint32_t rp_kv_tombstone_purge(struct rp_kv *kv, uint64_t stamp_end, uint32_t budget)
{
	uint32_t purged = 0;

	for (; budget > 0 && !rp_list_empty(&kv->tombstones); budget--) {
		struct rp_kv_key *k =
			rp_list_entry(kv->tombstones.next, struct rp_kv_key, tombstone_link);

		if (k->stamp < stamp_end) {
			kv_key_set_tombstone(kv, k, false);
			kv_index_reap(kv, k);
			purged++;
		} else {
			/* Behind it may lie older ones: the list is in the order of arrival. */
			rp_list_unlink(&k->tombstone_link);
			rp_list_push_back(&kv->tombstones, &k->tombstone_link);
		}
	}
	return purged;
}
