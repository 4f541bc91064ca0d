/* SPDX-License-Identifier: Apache-2.0 */
#include "kv_priv.h"

void kv_hidden_write(struct rp_kv *kv, struct rp_kv_key *k, struct rp_span value, bool deleted,
	uint64_t stamp, uint64_t node)
{
	struct rp_kv_version *prev = k->live ? k->versions[k->version_count - 1] : NULL;
	struct rp_kv_version *v = kv_version_new(k, deleted ? (struct rp_span){0} : value);

	v->deleted = deleted;
	v->mod_revision = kv->revision;
	if (!deleted) {
		v->create_revision = kv->revision;
		v->version = 1;
	}
	v->stamp = stamp;
	v->node = node;
	kv_key_append(kv, k, v);
	kv->hidden_events = kv_grow(kv->hidden_events, &kv->hidden_event_size,
		(uint64_t)kv->hidden_event_count + 1, sizeof(kv->hidden_events[0]));
	kv->hidden_keys = kv_grow(kv->hidden_keys, &kv->hidden_key_size,
		(uint64_t)kv->hidden_event_count + 1, sizeof(kv->hidden_keys[0]));
	kv->hidden_keys[kv->hidden_event_count] = k;
	k->references++;
	kv->hidden_events[kv->hidden_event_count++] = (struct rp_kv_event){.kv = v, .prev = prev};
}

/* Only the newest version stays, and of a tombstone only that it is one. */
static void hidden_trim(struct rp_kv *kv, struct rp_kv_key *k)
{
	uint32_t keep = k->live ? 1 : 0;

	if (!k->indexed || k->version_count <= keep)
		return;
	kv_key_drop(kv, k, 0, k->version_count - keep);
	kv_index_reap(kv, k);
}

void kv_hidden_commit(struct rp_kv *kv, uint64_t origin)
{
	uint32_t count = kv->hidden_event_count;
	struct rp_list *n, *t;

	if (count == 0)
		return;
	rp_list_foreach_safe (n, t, &kv->hooks) {
		struct rp_kv_hook *hook = rp_list_entry(n, struct rp_kv_hook, node);

		hook->on_commit(hook->ctx, kv->revision, kv->hidden_events, count, origin);
	}
	for (uint32_t i = 0; i < count; i++) {
		hidden_trim(kv, kv->hidden_keys[i]);
		kv_key_unref(kv->hidden_keys[i]);
	}
	kv->hidden_event_count = 0;
}
