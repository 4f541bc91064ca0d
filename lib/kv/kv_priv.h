/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the store.
 *
 *   index   keys in order; each has its versions, oldest first
 *   log     one commit a revision, without gaps: the versions it made; replayed to watchers
 *   watch   synced watchers in an interval tree; unsynced and blocked ones on lists
 *   hidden  records of the server: an index of their own, newest version only, no log
 *   lease   by id in a hash table, by expiry in a heap; each knows the live keys that carry it
 *
 * References: the index holds a key; a version holds its key; a key and the log each hold versions.
 * Bytes are counted while the store itself holds a thing, not while a result does.
 */

#include <string.h>

#include <base/assert.h>
#include <base/hmap.h>
#include <base/list.h>
#include <kv/kv.h>
#include <kv/lease.h>
#include <kv/watch.h>

#include "tree_priv.h"

#define KV_TXN_OPS_MAX 128
/** Nested txns are bounded by txn_ops_max too; this bounds recursion whatever that is. */
#define KV_TXN_DEPTH_MAX 128
/** What one put costs against the quota besides its bytes (section 4.7). */
#define KV_PUT_COST 256
#define KV_SYSTEM_COST 64
/** How long keys whose lease has no record wait for it: it may only be on its way. */
#define KV_LEASE_GRACE_NS (30 * RP_NS_PER_S)
/** Most distinct revisions and about the most bytes in one catch-up response (section 0). */
#define KV_CATCH_UP_REVISIONS 1000
#define KV_CATCH_UP_BYTES (1u << 20)
#define KV_MALLOC_OVERHEAD 16

struct rp_kv_key {
	struct kv_node node;
	uint64_t live_below; /**< live keys in this subtree, this one included */
	uint32_t references;
	uint32_t length;
	uint32_t version_count, version_size;
	struct rp_kv_version **versions; /**< &one while one place is enough */
	struct rp_kv_version *one;
	uint64_t stamp, writer;	       /**< of the newest write, kept when its version is gone */
	struct rp_list tombstone_link; /**< on kv->tombstones while a tombstone */
	struct kv_lease *lease;	       /**< of the newest version; NULL = none */
	struct rp_list lease_link;     /**< on lease->keys */
	bool live;		       /**< the newest version is no tombstone */
	bool tombstone;		       /**< replication still has to know of the delete */
	bool indexed;
	bool hidden; /**< in kv->hidden, not in kv->index */
	uint8_t bytes[];
};

struct kv_lease {
	struct rp_hmap_node by_id; /**< key: the id */
	int64_t ttl_s;		   /**< as granted; 0 while not known */
	uint64_t owner;		   /**< the node that lets it expire */
	uint64_t expiry_ns;	   /**< RP_NEVER while another node owns it */
	uint32_t heap_at;	   /**< place in kv->lease_heap, from 1; 0 = not there */
	bool known;		   /**< has a record; else keys came before it, or outlived it */
	uint32_t key_count;
	struct rp_list keys; /**< struct rp_kv_key */
};

struct kv_commit {
	uint32_t count;
	struct rp_kv_version *versions[]; /**< references, in the order of operations */
};

enum kv_watch_state {
	KV_WATCH_SYNCED,
	KV_WATCH_UNSYNCED,
	KV_WATCH_BLOCKED,
	KV_WATCH_DEAD,
};

struct rp_kv_watcher {
	struct kv_node node;		      /**< in kv->intervals while synced */
	const struct rp_kv_watcher *last_end; /**< of the subtree: who ends last */
	struct rp_list link;		      /**< on unsynced, blocked or dead */
	struct rp_kv *kv;
	const struct rp_kv_watch_ops *ops;
	void *ctx;
	enum kv_watch_state state;
	uint32_t filters;
	bool prev_kv;
	bool endless;	       /**< every key from `start` on */
	int64_t next_revision; /**< first that it was not shown; a lower bound while synced */
	uint32_t hit_first, hit_last; /**< chain in kv->hits during a commit */
	uint32_t start_length, end_length;
	uint8_t bytes[]; /**< start, then end (for a single key: the key and a zero byte) */
};

/** A synced watcher and one event of the commit being shown. */
struct kv_hit {
	struct rp_kv_watcher *watcher;
	uint32_t event;
	uint32_t next; /**< of the same watcher */
};
#define KV_HIT_NONE UINT32_MAX

struct rp_kv {
	struct rp_kv_config config;
	int64_t revision;
	int64_t compacted; /**< reads below fail; -1 = never */
	uint64_t stamp;	   /**< hybrid logical clock */
	bool nospace, corrupt;

	struct kv_tree index;
	struct kv_tree hidden;
	struct rp_list tombstones;

	uint64_t now_ns;
	struct rp_hmap leases; /**< chains grow with their number */
	uint64_t leases_known;
	struct kv_lease **lease_heap; /**< soonest first */
	uint32_t lease_heap_count, lease_heap_size;
	uint64_t lease_id_last;

	struct kv_commit **log; /**< ring; size is a power of two */
	uint64_t log_size, log_head, log_count;
	int64_t log_first; /**< revision of the oldest commit held */
	int64_t trimmed;   /**< compaction has freed all below and at this revision */

	struct rp_kv_event *events; /**< of the commit being built */
	uint32_t event_count, event_size;
	int64_t write_revision; /**< of the commit being built; 0 = none */
	struct rp_kv_event *hidden_events;
	struct rp_kv_key **hidden_keys; /**< reference; of each of these events */
	uint32_t hidden_event_count, hidden_event_size, hidden_key_size;

	struct rp_list hooks;

	struct kv_tree intervals;
	struct rp_list unsynced, blocked, dead;
	uint32_t dispatching; /**< inside callbacks: cancelled watchers are freed later */
	struct kv_hit *hits;
	uint32_t hit_count, hit_size;
	struct rp_kv_watcher **touched;
	uint32_t touched_count, touched_size;
	struct rp_kv_event *shown; /**< scratch of one watcher's events */
	uint32_t shown_size;

	struct rp_kv_stats stats;
};

/* kv.c */
void *kv_alloc(size_t bytes);
/** Grows an array of `item` bytes each to hold `want`; `*size` is in items. */
void *kv_grow(void *array, uint32_t *size, uint64_t want, size_t item);

/* index.c */
static inline int kv_bytes_compare(const void *a, size_t an, const void *b, size_t bn)
{
	size_t n = an < bn ? an : bn;
	int c = n > 0 ? memcmp(a, b, n) : 0;

	return c != 0 ? c : (an > bn) - (an < bn);
}
static inline struct rp_kv_key *kv_key_of(struct kv_node *n)
{
	return n ? RP_CONTAINER_OF(n, struct rp_kv_key, node) : NULL;
}
/** A selector made plain: [start, end), or to the end of all keys. */
struct kv_selector {
	struct rp_span start, end;
	bool single, endless;
};
struct kv_selector kv_selector_of(struct rp_span key, struct rp_span end);
bool kv_selector_below_end(const struct kv_selector *s, const struct rp_kv_key *k);

void kv_index_init(struct rp_kv *kv);
struct rp_kv_key *kv_index_find(const struct rp_kv *kv, struct rp_span key);
struct rp_kv_key *kv_index_find_or_add(struct rp_kv *kv, struct rp_span key);
/** The same, in whichever index the key belongs to. */
struct rp_kv_key *kv_any_find(const struct rp_kv *kv, struct rp_span key);
struct rp_kv_key *kv_any_find_or_add(struct rp_kv *kv, struct rp_span key);
struct rp_kv_key *kv_hidden_lower(const struct rp_kv *kv, struct rp_span key, bool after);
/** First key >= (or, with `after`, >) the span, tombstones included. */
struct rp_kv_key *kv_index_lower(const struct rp_kv *kv, struct rp_span key, bool after);
struct rp_kv_key *kv_index_next(const struct rp_kv_key *k);
/** First live key at or behind `k`, or the first behind it. */
struct rp_kv_key *kv_index_next_live(struct rp_kv_key *k);
/** Of kv->index or kv->hidden: the first key at `key`, or behind it with `after`. */
struct rp_kv_key *kv_tree_lower(const struct kv_tree *t, struct rp_span key, bool after);
/** Number of live keys in the selector, from the counts in the tree. */
uint64_t kv_tree_count_live(const struct kv_tree *t, const struct kv_selector *s);
/** Takes a key without versions and without a tombstone out of the index. */
void kv_index_reap(struct rp_kv *kv, struct rp_kv_key *k);
/** Adds the newest version (take) and keeps counts, tombstone and stamps right. */
void kv_key_append(struct rp_kv *kv, struct rp_kv_key *k, struct rp_kv_version *v);
/** Drops versions [first, first + count) of the key. */
void kv_key_drop(struct rp_kv *kv, struct rp_kv_key *k, uint32_t first, uint32_t count);
void kv_key_set_tombstone(struct rp_kv *kv, struct rp_kv_key *k, bool on);
/** Newest version that exists at `revision`, NULL when the key did not exist then. */
struct rp_kv_version *kv_key_at(const struct rp_kv_key *k, int64_t revision);
/** Number of versions with mod_revision <= revision. */
uint32_t kv_key_versions_until(const struct rp_kv_key *k, int64_t revision);
struct rp_kv_version *kv_version_new(struct rp_kv_key *k, struct rp_span value);
void kv_key_unref(struct rp_kv_key *k);

/* log.c */
/** Makes the events of kv->events a commit at kv->write_revision; shows it to hooks and watchers.
 */
void kv_commit(struct rp_kv *kv, uint64_t origin);
/** Adds an event; the version is held by its key. */
void kv_event_add(struct rp_kv *kv, struct rp_kv_version *v, struct rp_kv_version *prev);
const struct kv_commit *kv_log_at(const struct rp_kv *kv, int64_t revision);
/** Frees the oldest commit. */
void kv_log_pop(struct rp_kv *kv);
/** Revision that a write in progress has, taking one if it has none yet. */
int64_t kv_write_revision(struct rp_kv *kv);

/* hidden.c */
/** A new state of a hidden key: `deleted`, or a value. */
void kv_hidden_write(struct rp_kv *kv, struct rp_kv_key *k, struct rp_span value, bool deleted,
	uint64_t stamp, uint64_t node);
/** Shows the changes of hidden keys to the hooks; only the newest state is kept. */
void kv_hidden_commit(struct rp_kv *kv, uint64_t origin);

/* lease.c */
void kv_lease_init(struct rp_kv *kv);
void kv_lease_destroy(struct rp_kv *kv);
struct kv_lease *kv_lease_find(const struct rp_kv *kv, int64_t id);
/** The newest version of a client's key has changed. */
void kv_lease_key_changed(struct rp_kv *kv, struct rp_kv_key *k);
/** The newest state of a hidden key has changed. */
void kv_lease_record_changed(struct rp_kv *kv, const struct rp_kv_key *k);
/** Writes the record that makes this node the owner, with the full TTL. */
void kv_lease_write(struct rp_kv *kv, int64_t id, int64_t ttl_s, uint64_t stamp);
void kv_lease_erase(struct rp_kv *kv, int64_t id, uint64_t stamp);
/** The lease's keys in ascending order; free() it. */
struct rp_kv_key **kv_lease_sorted(const struct kv_lease *l);

/* range.c */
/** As rp_kv_range(), at `current` (a txn in progress is ahead of kv->revision). */
enum rp_kv_error kv_range_at(struct rp_kv *kv, const struct rp_kv_range *r, int64_t current,
	struct rp_kv_range_result *out);

/* compact.c */
/** True while there is more to free. Reduces *budget by what it did. */
bool kv_compact_step(struct rp_kv *kv, uint32_t *budget);

/* watch.c */
void kv_watch_init(struct rp_kv *kv);
void kv_watch_show(struct rp_kv *kv, int64_t revision);
bool kv_watch_step(struct rp_kv *kv, uint32_t *budget);
void kv_watch_destroy(struct rp_kv *kv);
