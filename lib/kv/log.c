/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kv_priv.h"

static size_t commit_cost(const struct kv_commit *c)
{
	return sizeof(*c) + c->count * sizeof(c->versions[0]) + KV_MALLOC_OVERHEAD + sizeof(void *);
}

const struct kv_commit *kv_log_at(const struct rp_kv *kv, int64_t revision)
{
	uint64_t offset = (uint64_t)(revision - kv->log_first);

	RP_ASSERT(revision >= kv->log_first && offset < kv->log_count);
	return kv->log[(kv->log_head + offset) & (kv->log_size - 1)];
}

static void log_push(struct rp_kv *kv, struct kv_commit *c)
{
	if (kv->log_count == kv->log_size) {
		uint64_t size = kv->log_size > 0 ? kv->log_size * 2 : 64;
		struct kv_commit **log = kv_alloc(size * sizeof(struct kv_commit *));

		for (uint64_t i = 0; i < kv->log_count; i++)
			log[i] = kv->log[(kv->log_head + i) & (kv->log_size - 1)];
		free(kv->log);
		kv->log = log;
		kv->log_size = size;
		kv->log_head = 0;
	}
	kv->log[(kv->log_head + kv->log_count) & (kv->log_size - 1)] = c;
	kv->log_count++;
	kv->stats.bytes += commit_cost(c);
}

void kv_log_pop(struct rp_kv *kv)
{
	struct kv_commit *c = kv->log[kv->log_head];

	RP_ASSERT(kv->log_count > 0);
	kv->log_head = (kv->log_head + 1) & (kv->log_size - 1);
	kv->log_count--;
	kv->log_first++;
	kv->stats.bytes -= commit_cost(c);
	for (uint32_t i = 0; i < c->count; i++)
		rp_kv_version_unref(c->versions[i]);
	free(c);
	/* The ring itself shrinks too, so that one burst does not hold memory for ever. */
	if (kv->log_size > 1024 && kv->log_count < kv->log_size / 8) {
		uint64_t size = kv->log_size / 4;
		struct kv_commit **log = kv_alloc(size * sizeof(struct kv_commit *));

		for (uint64_t i = 0; i < kv->log_count; i++)
			log[i] = kv->log[(kv->log_head + i) & (kv->log_size - 1)];
		free(kv->log);
		kv->log = log;
		kv->log_size = size;
		kv->log_head = 0;
	}
}

int64_t kv_write_revision(struct rp_kv *kv)
{
	if (kv->write_revision == 0)
		kv->write_revision = kv->revision + 1;
	return kv->write_revision;
}

void kv_event_add(struct rp_kv *kv, struct rp_kv_version *v, struct rp_kv_version *prev)
{
	kv->events = kv_grow(
		kv->events, &kv->event_size, (uint64_t)kv->event_count + 1, sizeof(kv->events[0]));
	kv->events[kv->event_count++] = (struct rp_kv_event){.kv = v, .prev = prev};
}

static void commit_keys(struct rp_kv *kv, uint64_t origin)
{
	int64_t revision = kv->write_revision;
	struct kv_commit *c;
	struct rp_list *n, *t;

	if (revision == 0)
		return;
	RP_ASSERT(kv->event_count > 0);
	c = kv_alloc(sizeof(*c) + kv->event_count * sizeof(c->versions[0]));
	c->count = kv->event_count;
	for (uint32_t i = 0; i < kv->event_count; i++)
		c->versions[i] = rp_kv_version_ref((struct rp_kv_version *)kv->events[i].kv);
	log_push(kv, c);
	kv->revision = revision;
	kv->stats.events += kv->event_count;
	rp_list_foreach_safe (n, t, &kv->hooks) {
		struct rp_kv_hook *hook = rp_list_entry(n, struct rp_kv_hook, node);

		hook->on_commit(hook->ctx, revision, kv->events, kv->event_count, origin);
	}
	kv_watch_show(kv, revision);
	kv->event_count = 0;
	kv->write_revision = 0;
}

void kv_commit(struct rp_kv *kv, uint64_t origin)
{
	/* Keys first: a peer that hears of a revoke only in part has a lease too many, not a key.
	 */
	commit_keys(kv, origin);
	kv_hidden_commit(kv, origin);
}
