/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "kv_priv.h"

static struct rp_kv_watcher *watcher_of(struct kv_node *n)
{
	return n ? RP_CONTAINER_OF(n, struct rp_kv_watcher, node) : NULL;
}

static const uint8_t *watcher_end(const struct rp_kv_watcher *w)
{
	return w->bytes + w->start_length;
}

static int watcher_compare_end(const struct rp_kv_watcher *a, const struct rp_kv_watcher *b)
{
	if (a->endless || b->endless)
		return (int)a->endless - (int)b->endless;
	return kv_bytes_compare(watcher_end(a), a->end_length, watcher_end(b), b->end_length);
}

static bool watcher_ends_behind(const struct rp_kv_watcher *w, const struct rp_kv_key *k)
{
	return w->endless ||
	       kv_bytes_compare(k->bytes, k->length, watcher_end(w), w->end_length) < 0;
}

static bool watcher_starts_at_or_before(const struct rp_kv_watcher *w, const struct rp_kv_key *k)
{
	return kv_bytes_compare(w->bytes, w->start_length, k->bytes, k->length) <= 0;
}

static void intervals_augment(struct kv_node *n)
{
	struct rp_kv_watcher *w = watcher_of(n);
	struct rp_kv_watcher *children[2] = {watcher_of(n->left), watcher_of(n->right)};

	w->last_end = w;
	for (int i = 0; i < 2; i++)
		if (children[i] && watcher_compare_end(children[i]->last_end, w->last_end) > 0)
			w->last_end = children[i]->last_end;
}

void kv_watch_init(struct rp_kv *kv)
{
	kv->intervals.root = NULL;
	kv->intervals.augment = intervals_augment;
	rp_list_init(&kv->unsynced);
	rp_list_init(&kv->blocked);
	rp_list_init(&kv->dead);
}

static void intervals_insert(struct rp_kv *kv, struct rp_kv_watcher *w)
{
	struct kv_node *parent = NULL, *n = kv->intervals.root;
	bool left = false;

	while (n) {
		struct rp_kv_watcher *other = watcher_of(n);

		parent = n;
		left = kv_bytes_compare(
			       w->bytes, w->start_length, other->bytes, other->start_length) < 0;
		n = left ? n->left : n->right;
	}
	kv_tree_insert(&kv->intervals, &w->node, parent, left);
}

/* Leaves the state the watcher is in. */
static void watcher_leave(struct rp_kv_watcher *w)
{
	struct rp_kv *kv = w->kv;

	switch (w->state) {
	case KV_WATCH_SYNCED:
		kv_tree_remove(&kv->intervals, &w->node);
		return;
	case KV_WATCH_UNSYNCED:
		kv->stats.watchers_unsynced--;
		break;
	case KV_WATCH_BLOCKED:
		kv->stats.watchers_blocked--;
		break;
	case KV_WATCH_DEAD:
		break;
	}
	rp_list_unlink(&w->link);
}

static void watcher_enter(struct rp_kv_watcher *w, enum kv_watch_state state)
{
	struct rp_kv *kv = w->kv;

	w->state = state;
	switch (state) {
	case KV_WATCH_SYNCED:
		intervals_insert(kv, w);
		break;
	case KV_WATCH_UNSYNCED:
		rp_list_push_back(&kv->unsynced, &w->link);
		kv->stats.watchers_unsynced++;
		break;
	case KV_WATCH_BLOCKED:
		rp_list_push_back(&kv->blocked, &w->link);
		kv->stats.watchers_blocked++;
		break;
	case KV_WATCH_DEAD:
		rp_list_push_back(&kv->dead, &w->link);
		break;
	}
}

static void watcher_set_state(struct rp_kv_watcher *w, enum kv_watch_state state)
{
	watcher_leave(w);
	watcher_enter(w, state);
}

struct rp_kv_watcher *rp_kv_watch(struct rp_kv *kv, const struct rp_kv_watch_options *options)
{
	static const uint8_t zero;
	struct rp_span key = options->key;
	struct kv_selector s;
	struct rp_kv_watcher *w;
	size_t end_length;

	if (key.length == 0)
		key = (struct rp_span){.data = &zero, .length = 1};
	s = kv_selector_of(key, options->end);
	if (!s.single && !s.endless &&
		kv_bytes_compare(key.data, key.length, s.end.data, s.end.length) >= 0) {
		errno = EINVAL;
		return NULL;
	}
	end_length = s.single ? key.length + 1 : s.endless ? 0 : s.end.length;
	w = kv_alloc(sizeof(*w) + key.length + end_length);
	memset(w, 0, sizeof(*w) + key.length + end_length);
	rp_list_init(&w->link);
	w->kv = kv;
	w->ops = options->ops;
	w->ctx = options->ctx;
	w->filters = options->filters;
	w->prev_kv = options->prev_kv;
	w->endless = s.endless;
	w->hit_first = w->hit_last = KV_HIT_NONE;
	w->start_length = (uint32_t)key.length;
	w->end_length = (uint32_t)end_length;
	memcpy(w->bytes, key.data, key.length);
	if (s.single)
		memcpy(w->bytes + key.length, key.data, key.length); /* the zero follows already */
	else if (!s.endless)
		memcpy(w->bytes + key.length, s.end.data, s.end.length);
	w->next_revision = options->start_revision > 0 ? options->start_revision : kv->revision + 1;
	watcher_enter(w, w->next_revision <= kv->revision ? KV_WATCH_UNSYNCED : KV_WATCH_SYNCED);
	kv->stats.watchers++;
	return w;
}

void rp_kv_watcher_cancel(struct rp_kv_watcher *w)
{
	struct rp_kv *kv;

	if (!w)
		return;
	kv = w->kv;
	RP_ASSERT(w->state != KV_WATCH_DEAD);
	kv->stats.watchers--;
	watcher_leave(w);
	/* Inside a callback others may still hold it: its end comes when the callbacks are over. */
	if (kv->dispatching > 0)
		watcher_enter(w, KV_WATCH_DEAD);
	else
		free(w);
}

void rp_kv_watcher_resume(struct rp_kv_watcher *w)
{
	if (w->state == KV_WATCH_BLOCKED)
		watcher_set_state(w, KV_WATCH_UNSYNCED);
}

void rp_kv_watcher_range(const struct rp_kv_watcher *w, struct rp_span *start, struct rp_span *end)
{
	static const uint8_t no_end;

	*start = (struct rp_span){.data = w->bytes, .length = w->start_length};
	*end = (struct rp_span){.data = w->bytes + w->start_length, .length = w->end_length};
	if (w->endless)
		*end = (struct rp_span){.data = &no_end, .length = 1};
}

int64_t rp_kv_watcher_progress(const struct rp_kv_watcher *w)
{
	if (w->state != KV_WATCH_SYNCED || w->next_revision > w->kv->revision + 1)
		return 0;
	return w->kv->revision;
}

static void dispatch_begin(struct rp_kv *kv)
{
	kv->dispatching++;
}

static void dispatch_end(struct rp_kv *kv)
{
	struct rp_list *n;

	if (--kv->dispatching > 0)
		return;
	while ((n = rp_list_pop_front(&kv->dead)))
		free(rp_list_entry(n, struct rp_kv_watcher, link));
}

void kv_watch_destroy(struct rp_kv *kv)
{
	while (kv->intervals.root)
		rp_kv_watcher_cancel(watcher_of(kv->intervals.root));
	while (!rp_list_empty(&kv->unsynced))
		rp_kv_watcher_cancel(rp_list_entry(kv->unsynced.next, struct rp_kv_watcher, link));
	while (!rp_list_empty(&kv->blocked))
		rp_kv_watcher_cancel(rp_list_entry(kv->blocked.next, struct rp_kv_watcher, link));
}

static bool watcher_filters_out(const struct rp_kv_watcher *w, const struct rp_kv_version *v)
{
	return w->filters & (v->deleted ? RP_KV_WATCH_NO_DELETE : RP_KV_WATCH_NO_PUT);
}

static void hit_add(struct rp_kv *kv, struct rp_kv_watcher *w, uint32_t event)
{
	uint32_t i = kv->hit_count;

	kv->hits = kv_grow(kv->hits, &kv->hit_size, (uint64_t)i + 1, sizeof(kv->hits[0]));
	kv->hits[i] = (struct kv_hit){.watcher = w, .event = event, .next = KV_HIT_NONE};
	kv->hit_count++;
	if (w->hit_first == KV_HIT_NONE) {
		w->hit_first = i;
		kv->touched = kv_grow(kv->touched, &kv->touched_size,
			(uint64_t)kv->touched_count + 1, sizeof(kv->touched[0]));
		kv->touched[kv->touched_count++] = w;
	} else {
		kv->hits[w->hit_last].next = i;
	}
	w->hit_last = i;
}

/* Every synced watcher whose interval holds the key of the event. */
static void intervals_stab(struct rp_kv *kv, struct kv_node *n, uint32_t event, int64_t revision)
{
	const struct rp_kv_version *v = kv->events[event].kv;

	while (n) {
		struct rp_kv_watcher *w = watcher_of(n);

		if (!watcher_ends_behind(w->last_end, v->key))
			return;
		if (n->left)
			intervals_stab(kv, n->left, event, revision);
		if (!watcher_starts_at_or_before(w, v->key))
			return;
		if (watcher_ends_behind(w, v->key) && w->next_revision <= revision &&
			!watcher_filters_out(w, v))
			hit_add(kv, w, event);
		n = n->right;
	}
}

static void shown_add(struct rp_kv *kv, uint32_t at, const struct rp_kv_watcher *w,
	const struct rp_kv_version *v, const struct rp_kv_version *prev)
{
	kv->shown = kv_grow(kv->shown, &kv->shown_size, (uint64_t)at + 1, sizeof(kv->shown[0]));
	kv->shown[at] = (struct rp_kv_event){.kv = v, .prev = w->prev_kv ? prev : NULL};
}

/*
 * What the key was before the revision of `v`, for prev_kv: as etcd, nothing for a put that created
 * it, and nothing once that revision is compacted.
 */
static const struct rp_kv_version *version_before(
	const struct rp_kv *kv, const struct rp_kv_version *v)
{
	if (v->mod_revision - 1 < kv->compacted)
		return NULL;
	if (!v->deleted && v->create_revision == v->mod_revision)
		return NULL;
	return kv_key_at(v->key, v->mod_revision - 1);
}

void kv_watch_show(struct rp_kv *kv, int64_t revision)
{
	kv->hit_count = 0;
	kv->touched_count = 0;
	for (uint32_t i = 0; i < kv->event_count; i++)
		intervals_stab(kv, kv->intervals.root, i, revision);
	dispatch_begin(kv);
	for (uint32_t t = 0; t < kv->touched_count; t++) {
		struct rp_kv_watcher *w = kv->touched[t];
		uint32_t count = 0;

		for (uint32_t i = w->hit_first; i != KV_HIT_NONE; i = kv->hits[i].next) {
			const struct rp_kv_event *e = &kv->events[kv->hits[i].event];
			const struct rp_kv_version *prev = e->prev;

			/* One revision can change a key twice; watchers see what was before it. */
			if (prev && prev->mod_revision == revision)
				prev = version_before(kv, e->kv);
			shown_add(kv, count++, w, e->kv, prev);
		}
		w->hit_first = w->hit_last = KV_HIT_NONE;
		if (w->state == KV_WATCH_DEAD)
			continue;
		if (w->ops->on_events(w->ctx, w, revision, kv->shown, count)) {
			kv->stats.events_sent += count;
		} else if (w->state == KV_WATCH_SYNCED) {
			w->next_revision = revision;
			watcher_set_state(w, KV_WATCH_BLOCKED);
		}
	}
	dispatch_end(kv);
}

static bool watcher_wants(const struct rp_kv_watcher *w, const struct rp_kv_version *v)
{
	return watcher_starts_at_or_before(w, v->key) && watcher_ends_behind(w, v->key) &&
	       !watcher_filters_out(w, v);
}

static size_t event_bytes(const struct rp_kv_event *e)
{
	return 64 + e->kv->key->length + e->kv->value_length +
	       (e->prev ? 64 + e->prev->key->length + e->prev->value_length : 0);
}

/* Collects whole revisions into kv->shown, from *revision on; moves it behind what was read. */
static uint32_t watcher_collect(
	struct rp_kv *kv, struct rp_kv_watcher *w, int64_t *revision, uint32_t *budget)
{
	uint32_t count = 0, revisions = 0;
	size_t bytes = 0;

	while (*revision <= kv->revision && *budget > 0 && revisions < KV_CATCH_UP_REVISIONS &&
		bytes < KV_CATCH_UP_BYTES) {
		const struct kv_commit *c = kv_log_at(kv, *revision);
		uint32_t before = count;

		for (uint32_t i = 0; i < c->count; i++) {
			const struct rp_kv_version *v = c->versions[i];

			if (!watcher_wants(w, v))
				continue;
			shown_add(kv, count, w, v, w->prev_kv ? version_before(kv, v) : NULL);
			bytes += event_bytes(&kv->shown[count++]);
		}
		revisions += count > before;
		*budget -= RP_MIN(*budget, 1 + c->count);
		(*revision)++;
	}
	return count;
}

/* One batch for one watcher that is behind. */
static void watcher_catch_up(struct rp_kv *kv, struct rp_kv_watcher *w, uint32_t *budget)
{
	int64_t revision = RP_MAX(w->next_revision, kv->log_first);
	uint32_t count;

	if (w->next_revision < kv->compacted) {
		kv->stats.watchers--;
		watcher_set_state(w, KV_WATCH_DEAD);
		w->ops->on_compacted(w->ctx, w, kv->compacted);
		return;
	}
	count = watcher_collect(kv, w, &revision, budget);
	if (count > 0 && !w->ops->on_events(w->ctx, w, kv->revision, kv->shown, count)) {
		if (w->state == KV_WATCH_UNSYNCED)
			watcher_set_state(w, KV_WATCH_BLOCKED);
		return;
	}
	kv->stats.events_sent += count;
	if (w->state != KV_WATCH_UNSYNCED)
		return;
	w->next_revision = revision;
	watcher_set_state(w, revision > kv->revision ? KV_WATCH_SYNCED : KV_WATCH_UNSYNCED);
}

bool kv_watch_step(struct rp_kv *kv, uint32_t *budget)
{
	/* Each call costs at least one, so that empty histories cannot loop for ever. */
	while (*budget > 0 && !rp_list_empty(&kv->unsynced)) {
		struct rp_kv_watcher *w =
			rp_list_entry(kv->unsynced.next, struct rp_kv_watcher, link);

		(*budget)--;
		dispatch_begin(kv);
		watcher_catch_up(kv, w, budget);
		dispatch_end(kv);
	}
	return !rp_list_empty(&kv->unsynced);
}
