/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/fnv.h>

#include "kv_priv.h"

const char *rp_kv_error_text(enum rp_kv_error error)
{
	static const char *const texts[] = {
#define X(name, text) [RP_KV_##name] = text,
		RP_KV_ERRORS(X)
#undef X
	};

	return (unsigned)error < RP_ARRAY_SIZE(texts) ? texts[error] : "etcdserver: unknown error";
}

void *kv_alloc(size_t bytes)
{
	void *p = malloc(bytes);

	RP_ASSERT(p != NULL);
	return p;
}

void *kv_grow(void *array, uint32_t *size, uint64_t want, size_t item)
{
	uint64_t n = *size > 0 ? *size : 16;

	if (want <= *size)
		return array;
	while (n < want)
		n *= 2;
	RP_ASSERT(n <= UINT32_MAX);
	array = realloc(array, n * item);
	RP_ASSERT(array != NULL);
	*size = (uint32_t)n;
	return array;
}

struct rp_kv *rp_kv_create(const struct rp_kv_config *config)
{
	struct rp_kv *kv;

	if (config->initial_revision < 0) {
		errno = EINVAL;
		return NULL;
	}
	kv = kv_alloc(sizeof(*kv));
	memset(kv, 0, sizeof(*kv));
	kv->config = *config;
	if (kv->config.txn_ops_max == 0)
		kv->config.txn_ops_max = KV_TXN_OPS_MAX;
	kv->revision = config->initial_revision;
	/*
	 * Revisions before the first one of this life may have been another life's: whoever asks
	 * for them is told that they are compacted, not that nothing happened.
	 */
	kv->compacted = config->initial_revision > 1 ? config->initial_revision : -1;
	kv->trimmed = kv->compacted;
	kv->log_first = kv->revision + 1;
	kv_index_init(kv);
	rp_list_init(&kv->hooks);
	kv_watch_init(kv);
	kv_lease_init(kv);
	return kv;
}

static void tree_clear(struct rp_kv *kv, struct kv_tree *t)
{
	while (t->root) {
		struct rp_kv_key *k = kv_key_of(t->root);

		kv_key_drop(kv, k, 0, k->version_count);
		kv_key_set_tombstone(kv, k, false);
		kv_index_reap(kv, k);
	}
}

void rp_kv_destroy(struct rp_kv *kv)
{
	if (!kv)
		return;
	kv_watch_destroy(kv);
	while (kv->log_count > 0)
		kv_log_pop(kv);
	kv_lease_destroy(kv);
	tree_clear(kv, &kv->index);
	tree_clear(kv, &kv->hidden);
	free(kv->log);
	free(kv->events);
	free(kv->hidden_events);
	free(kv->hidden_keys);
	free(kv->hits);
	free(kv->touched);
	free(kv->shown);
	free(kv);
}

int64_t rp_kv_revision(const struct rp_kv *kv)
{
	return kv->revision;
}

int64_t rp_kv_compacted_revision(const struct rp_kv *kv)
{
	return kv->compacted;
}

void rp_kv_set_node(struct rp_kv *kv, uint64_t node)
{
	kv->config.node = node;
}

void rp_kv_set_limits(struct rp_kv *kv, uint64_t quota_bytes, uint32_t txn_ops_max)
{
	kv->config.quota_bytes = quota_bytes;
	kv->config.txn_ops_max = txn_ops_max > 0 ? txn_ops_max : KV_TXN_OPS_MAX;
}

uint64_t rp_kv_quota_bytes(const struct rp_kv *kv)
{
	return kv->config.quota_bytes;
}

uint32_t rp_kv_txn_ops_max(const struct rp_kv *kv)
{
	return kv->config.txn_ops_max;
}

void rp_kv_stats_get(const struct rp_kv *kv, struct rp_kv_stats *stats)
{
	*stats = kv->stats;
	stats->commits = kv->log_count;
	stats->leases = kv->leases_known;
}

void rp_kv_set_now(struct rp_kv *kv, uint64_t now_ns)
{
	kv->now_ns = RP_MAX(kv->now_ns, now_ns);
}

uint64_t rp_kv_stamp(const struct rp_kv *kv)
{
	return kv->stamp;
}

bool rp_kv_alarm_active(const struct rp_kv *kv, enum rp_kv_alarm alarm)
{
	switch (alarm) {
	case RP_KV_ALARM_NOSPACE:
		return kv->nospace;
	case RP_KV_ALARM_CORRUPT:
		return kv->corrupt;
	case RP_KV_ALARM_NONE:
		break;
	}
	return false;
}

bool rp_kv_alarm_set(struct rp_kv *kv, enum rp_kv_alarm alarm, bool active)
{
	bool *flag = alarm == RP_KV_ALARM_NOSPACE ? &kv->nospace : &kv->corrupt;

	if (alarm == RP_KV_ALARM_NONE || *flag == active)
		return false;
	*flag = active;
	return true;
}

void rp_kv_hook_add(struct rp_kv *kv, struct rp_kv_hook *hook)
{
	rp_list_push_back(&kv->hooks, &hook->node);
}

void rp_kv_hook_remove(struct rp_kv *kv, struct rp_kv_hook *hook)
{
	(void)kv;
	rp_list_unlink(&hook->node);
}

bool rp_kv_step_wanted(const struct rp_kv *kv)
{
	return !rp_list_empty(&kv->unsynced) || !rp_kv_compact_done(kv);
}

bool rp_kv_step(struct rp_kv *kv, uint32_t budget)
{
	uint32_t left = budget;
	bool more = kv_compact_step(kv, &left);

	/* Watchers have a budget of their own: a long compaction must not starve them. */
	left = budget;
	return kv_watch_step(kv, &left) || more;
}

static uint64_t hash_key(
	uint64_t h, const struct rp_kv *kv, const struct rp_kv_key *k, int64_t until)
{
	uint32_t end = kv_key_versions_until(k, until);
	uint32_t kept = kv_key_versions_until(k, kv->compacted);

	/* Of what lies at or below the compacted revision only the newest counts, if it exists. */
	if (kept > 0)
		kept -= k->versions[kept - 1]->deleted ? 0 : 1;
	for (uint32_t i = kept; i < end; i++) {
		const struct rp_kv_version *v = k->versions[i];
		int64_t numbers[4] = {v->create_revision, v->mod_revision, v->version, v->lease};

		h = rp_fnv1a(h, k->bytes, k->length);
		h = rp_fnv1a(h, numbers, sizeof(numbers));
		h = rp_fnv1a(h, v->value, v->value_length);
	}
	return h;
}

enum rp_kv_error rp_kv_hash(struct rp_kv *kv, int64_t revision, uint32_t *hash)
{
	uint64_t h = RP_FNV1A_BASIS;

	if (revision > kv->revision)
		return RP_KV_FUTURE_REVISION;
	if (revision <= 0)
		revision = kv->revision;
	if (revision < kv->compacted)
		return RP_KV_COMPACTED;
	for (struct kv_node *n = kv_tree_first(&kv->index); n; n = kv_tree_next(n))
		h = hash_key(h, kv, kv_key_of(n), revision);
	*hash = (uint32_t)(h ^ (h >> 32));
	return RP_KV_OK;
}
