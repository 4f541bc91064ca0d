/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Watchers on ranges of keys (spec/etcd-semantics.md section 7, without the stream around them).
 *
 *   1. rp_kv_watch() with a range and where to start. It calls nothing back yet.
 *   2. A watcher that is up to date gets the events of each commit at once. One that is behind, or
 *      that starts in the past, is led through the history by rp_kv_step().
 *   3. on_events() answers false when its client has no room: the watcher then keeps only its
 *      position. rp_kv_watcher_resume() when there is room; the same events come again.
 *   4. A position that compaction has passed ends the watcher with on_compacted().
 *   5. rp_kv_watcher_cancel() at any time, also inside its own callbacks.
 *
 * A commit finds its watchers by interval: 10,000 watched ranges cost a commit only those it hits.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>
#include <kv/kv.h>

struct rp_kv_watcher;

struct rp_kv_watch_ops {
	/**
	 * All events of one or more whole revisions, in order, at least one. `revision` is that of
	 * the events when live, the store's when catching up (section 7.2). Events are borrowed;
	 * event.prev is set only when the watcher asked for it. False: nothing was taken. Must not
	 * write to the store.
	 */
	bool (*on_events)(void *ctx, struct rp_kv_watcher *w, int64_t revision,
		const struct rp_kv_event *events, uint32_t count);
	/** History it needs is gone. The watcher is dead when this returns; do not cancel it. */
	void (*on_compacted)(void *ctx, struct rp_kv_watcher *w, int64_t compacted_revision);
};

#define RP_KV_WATCH_NO_PUT 0x1u
#define RP_KV_WATCH_NO_DELETE 0x2u

struct rp_kv_watch_options {
	struct rp_span key, end; /**< key empty = one zero byte; copied */
	int64_t start_revision;	 /**< <= 0 = from the next revision on */
	uint32_t filters;	 /**< RP_KV_WATCH_NO_* */
	bool prev_kv;
	const struct rp_kv_watch_ops *ops;
	void *ctx;
};

/** NULL and errno: EINVAL when the range is empty (key >= end). */
struct rp_kv_watcher *rp_kv_watch(struct rp_kv *kv, const struct rp_kv_watch_options *options);
/** No callback after this. NULL is fine. */
void rp_kv_watcher_cancel(struct rp_kv_watcher *w);
/** There is room again after on_events() answered false; harmless otherwise. */
void rp_kv_watcher_resume(struct rp_kv_watcher *w);
/** What it watches, borrowed: a single key ends with itself and a 0, and "\0" is no end. */
void rp_kv_watcher_range(const struct rp_kv_watcher *w, struct rp_span *start, struct rp_span *end);
/**
 * The revision up to which this watcher was shown everything, when it is up to date and does not
 * wait for a future start; 0 otherwise (section 7.5).
 */
int64_t rp_kv_watcher_progress(const struct rp_kv_watcher *w);
