/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The key-value store: multi-version, ordered by unsigned bytes, in memory (spec/etcd-semantics.md
 * sections 3 and 4). It belongs to one thread and does no I/O: the time of a write comes in as an
 * argument.
 *
 *   1. rp_kv_create(); rp_kv_hook_add() for whoever must see each commit (replication, registry).
 *   2. A client's write is a `struct rp_kv_txn`, even a single put: rp_kv_txn_check(), then
 *      rp_kv_apply(). All of its changes share one new revision, or nothing happens at all.
 *   3. What replication brings goes through rp_kv_apply_replicated(): also one revision a call.
 *   4. Reads: rp_kv_range(), or rp_kv_apply() of a txn that writes nothing.
 *   5. Results hold references to versions of keys, so they stay as they were until
 *      rp_kv_result_clear(), whatever is written meanwhile.
 *   6. Leases are in lease.h: granted and revoked by a txn's `system` part, renewed on their own.
 *   7. rp_kv_compact() names a revision; rp_kv_step() frees what became unreachable, a bounded
 *      piece a call, and lets slow watchers catch up (watch.h).
 *
 * Memory grows with what is written, up to `quota_bytes` for client writes; replicated writes are
 * never refused for want of room. Running out of the process's memory ends the process.
 *
 * Keys below /q/ and /queue/ that are registry records are keys like all others here: their history
 * lives until the next compaction.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <base/list.h>
#include <base/units.h>

struct rp_kv;
struct rp_kv_key;

/** What can be wrong with an operation; the texts are etcd's, to the letter. */
#define RP_KV_ERRORS(X)                                                                \
	X(OK, "")                                                                      \
	X(KEY_EMPTY, "etcdserver: key is not provided")                                \
	X(KEY_NOT_FOUND, "etcdserver: key not found")                                  \
	X(VALUE_PROVIDED, "etcdserver: value is provided")                             \
	X(LEASE_PROVIDED, "etcdserver: lease is provided")                             \
	X(LEASE_NOT_FOUND, "etcdserver: requested lease not found")                    \
	X(TOO_MANY_OPS, "etcdserver: too many operations in txn request")              \
	X(DUPLICATE_KEY, "etcdserver: duplicate key given in txn request")             \
	X(INVALID_SORT, "etcdserver: invalid sort option")                             \
	X(COMPACTED, "etcdserver: mvcc: required revision has been compacted")         \
	X(FUTURE_REVISION, "etcdserver: mvcc: required revision is a future revision") \
	X(NO_SPACE, "etcdserver: mvcc: database space exceeded")                       \
	X(CORRUPT, "etcdserver: corrupt cluster")                                      \
	X(LEASE_EXISTS, "etcdserver: lease already exists")                            \
	X(LEASE_TTL_TOO_LARGE, "etcdserver: too large lease TTL")                      \
	X(KEY_RESERVED, "ringpost: the key is reserved for the server")

enum rp_kv_error {
#define X(name, text) RP_KV_##name,
	RP_KV_ERRORS(X)
#undef X
		RP_KV_ERROR_COUNT,
};

const char *rp_kv_error_text(enum rp_kv_error error);

/** One version of one key, immutable, counted. Read only for all but the store. */
struct rp_kv_version {
	uint32_t references;
	uint32_t value_length;
	struct rp_kv_key *key;	 /**< rp_kv_version_key() gives its bytes */
	int64_t create_revision; /**< 0 in a tombstone */
	int64_t mod_revision;
	int64_t version; /**< 0 in a tombstone */
	int64_t lease;
	uint64_t stamp; /**< hybrid logical clock of the write */
	uint64_t node;	/**< who wrote it */
	bool deleted;	/**< a tombstone: no value */
	uint8_t value[];
};

struct rp_span rp_kv_version_key(const struct rp_kv_version *v);
static inline struct rp_span rp_kv_version_value(const struct rp_kv_version *v)
{
	return (struct rp_span){.data = v->value, .length = v->value_length};
}
/** Takes one more reference, and gives it back. */
struct rp_kv_version *rp_kv_version_ref(struct rp_kv_version *v);
void rp_kv_version_unref(struct rp_kv_version *v);

struct rp_kv_config {
	/** Revision of the empty store, not below 0: the first write gives one more. */
	int64_t initial_revision;
	/** A client's put that would exceed it raises NOSPACE; 0 = no quota. */
	uint64_t quota_bytes;
	uint32_t txn_ops_max; /**< 0 = 128 */
	uint64_t node;	      /**< writes that begin here carry it */
	/** Tombstones outlive compaction until rp_kv_tombstone_drop() or _purge(). */
	bool keep_tombstones;
};

/** NULL and errno EINVAL on a bad configuration. */
struct rp_kv *rp_kv_create(const struct rp_kv_config *config);
/** Results and versions still referenced outlive it; watchers do not. NULL is fine. */
void rp_kv_destroy(struct rp_kv *kv);

/** Current revision, and the last compacted one (-1 = never). */
int64_t rp_kv_revision(const struct rp_kv *kv);
int64_t rp_kv_compacted_revision(const struct rp_kv *kv);
/** What was written here carries this node id; may change while the store is empty of own writes.
 */
void rp_kv_set_node(struct rp_kv *kv, uint64_t node);
void rp_kv_set_limits(struct rp_kv *kv, uint64_t quota_bytes, uint32_t txn_ops_max);
uint32_t rp_kv_txn_ops_max(const struct rp_kv *kv);
uint64_t rp_kv_quota_bytes(const struct rp_kv *kv);

struct rp_kv_stats {
	uint64_t keys;	     /**< that exist now */
	uint64_t tombstones; /**< deleted keys still known to replication */
	uint64_t versions;
	uint64_t bytes;	       /**< held, overhead and history included */
	uint64_t bytes_in_use; /**< of the keys that exist now */
	uint64_t commits;      /**< revisions of history held */
	uint64_t leases;       /**< that have not expired */
	uint64_t leases_granted, leases_revoked, leases_renewed; /**< here, since creation */
	uint64_t watchers, watchers_unsynced, watchers_blocked;
	uint64_t puts, deletes, ranges, txns, events, events_sent; /**< since creation */
	uint64_t replicated_applied, replicated_stale;
};
void rp_kv_stats_get(const struct rp_kv *kv, struct rp_kv_stats *stats);

/* ---- operations: borrowed descriptions, by the fields of section 14 ---- */

enum rp_kv_sort_order {
	RP_KV_SORT_NONE,
	RP_KV_SORT_ASCEND,
	RP_KV_SORT_DESCEND,
};
enum rp_kv_sort_target {
	RP_KV_SORT_KEY,
	RP_KV_SORT_VERSION,
	RP_KV_SORT_CREATE,
	RP_KV_SORT_MOD,
	RP_KV_SORT_VALUE,
};

/** Selectors: `end` empty = the key alone; one zero byte = all keys from `key` on (section 3). */
struct rp_kv_range {
	struct rp_span key, end;
	int64_t limit, revision;
	int32_t sort_order, sort_target; /**< as they came; checked by rp_kv_range_check() */
	bool serializable, keys_only, count_only;
	int64_t min_mod_revision, max_mod_revision, min_create_revision, max_create_revision;
};

struct rp_kv_put {
	struct rp_span key, value;
	int64_t lease;
	bool prev_kv, ignore_value, ignore_lease;
};

struct rp_kv_delete {
	struct rp_span key, end;
	bool prev_kv;
};

enum rp_kv_compare_result {
	RP_KV_EQUAL,
	RP_KV_GREATER,
	RP_KV_LESS,
	RP_KV_NOT_EQUAL,
};
enum rp_kv_compare_target {
	RP_KV_TARGET_VERSION,
	RP_KV_TARGET_CREATE,
	RP_KV_TARGET_MOD,
	RP_KV_TARGET_VALUE,
	RP_KV_TARGET_LEASE,
};

struct rp_kv_compare {
	int32_t result, target; /**< as they came; unknown values behave as etcd's */
	struct rp_span key, end;
	int64_t number;	      /**< VERSION, CREATE, MOD, LEASE */
	struct rp_span value; /**< VALUE */
};

enum rp_kv_op_type {
	RP_KV_OP_NONE, /**< a request without its union set: KEY_NOT_FOUND, as etcd says */
	RP_KV_OP_RANGE,
	RP_KV_OP_PUT,
	RP_KV_OP_DELETE,
	RP_KV_OP_TXN,
};

struct rp_kv_txn;

struct rp_kv_op {
	enum rp_kv_op_type type;
	union {
		struct rp_kv_range range;
		struct rp_kv_put put;
		struct rp_kv_delete del;
		const struct rp_kv_txn *txn;
	};
};

/**
 * Changes of what is no key of a client: hidden records (see RP_KV_HIDDEN_PREFIX) and leases
 * (lease.h). They take no revision of their own.
 */
enum rp_kv_system_type {
	RP_KV_SYSTEM_PUT,    /**< key, value */
	RP_KV_SYSTEM_DELETE, /**< key; one that is not there is no error */
	RP_KV_SYSTEM_GRANT,  /**< lease (not 0), ttl_s */
	RP_KV_SYSTEM_REVOKE, /**< lease: its keys are deleted, all at one revision */
	RP_KV_SYSTEM_TAKE,   /**< lease: this node owns it from now on, with its full TTL */
};

struct rp_kv_system_op {
	enum rp_kv_system_type type;
	struct rp_span key, value;
	int64_t lease, ttl_s;
};

struct rp_kv_txn {
	const struct rp_kv_compare *compares;
	const struct rp_kv_op *success, *failure;
	uint32_t compare_count, success_count, failure_count;
	/** Carried out behind the operations, whichever branch was chosen. Never a client's own. */
	const struct rp_kv_system_op *system;
	uint32_t system_count;
	/** A single request, not a txn: etcd looks at a put's lease before the key's existence. */
	bool single;
};

/* ---- results ---- */

struct rp_kv_range_result {
	int64_t count; /**< keys in the range, before limit and filters */
	bool more;
	bool keys_only; /**< the caller leaves values out of what it answers */
	uint32_t item_count;
	struct rp_kv_version **items; /**< references, in the order asked for */
};

struct rp_kv_txn_result;

struct rp_kv_op_result {
	enum rp_kv_op_type type;
	int64_t revision; /**< for the header of this part (section 4.4) */
	union {
		struct rp_kv_range_result range;
		struct {
			struct rp_kv_version *prev; /**< reference, or NULL */
		} put;
		struct {
			int64_t deleted;
			uint32_t prev_count;
			struct rp_kv_version **prevs; /**< references; empty unless asked for */
		} del;
		struct rp_kv_txn_result *txn;
	};
};

struct rp_kv_txn_result {
	bool succeeded;
	uint32_t op_count;
	struct rp_kv_op_result *ops;
};

struct rp_kv_result {
	enum rp_kv_error error;
	int64_t revision; /**< of the store, after the operation */
	bool wrote;	  /**< a new revision was taken */
	struct rp_kv_txn_result txn;
};

void rp_kv_range_result_clear(struct rp_kv_range_result *r);
void rp_kv_result_clear(struct rp_kv_result *r);

/* ---- checks that need no state (sections 4.1 to 4.4); the first fault in etcd's order ---- */

enum rp_kv_error rp_kv_range_check(const struct rp_kv_range *r);
enum rp_kv_error rp_kv_put_check(const struct rp_kv_put *p);
enum rp_kv_error rp_kv_delete_check(const struct rp_kv_delete *d);
/** With the limit of operations and the rule against duplicate keys. */
enum rp_kv_error rp_kv_txn_check(const struct rp_kv_txn *t, uint32_t ops_max);
/** No put and no delete in either branch, at any depth. */
bool rp_kv_txn_is_read_only(const struct rp_kv_txn *t);
/** A put in either branch, at any depth: what NOSPACE refuses. */
bool rp_kv_txn_has_put(const struct rp_kv_txn *t);

/* ---- reads and writes ---- */

/** Who writes, and when. */
struct rp_kv_writer {
	uint64_t wall_us; /**< wall clock, for the hybrid logical clock */
	uint64_t now_ns;  /**< monotonic clock, for leases; see rp_kv_set_now() */
	uint64_t origin;  /**< opaque, handed to the hooks; 0 = a client of this node */
};

/** *out is valid only when OK comes back. */
enum rp_kv_error rp_kv_range(
	struct rp_kv *kv, const struct rp_kv_range *r, struct rp_kv_range_result *out);

/**
 * Evaluates the compares and carries out the chosen branch: all of it at one new revision, or
 * nothing (then error says why, and out->txn is empty). The txn must have passed
 * rp_kv_txn_check(). Hooks and synced watchers run before it returns. The caller clears *out.
 */
enum rp_kv_error rp_kv_apply(struct rp_kv *kv, const struct rp_kv_txn *txn,
	const struct rp_kv_writer *writer, struct rp_kv_result *out);

/** Section 4.5. Reads below fail from now on; rp_kv_step() frees. */
enum rp_kv_error rp_kv_compact(struct rp_kv *kv, int64_t revision);
/** Everything that compaction made unreachable is freed. */
bool rp_kv_compact_done(const struct rp_kv *kv);

/**
 * A bounded piece of background work: about `budget` versions freed and as many catch-up commits
 * read. True: there is more, call again soon.
 */
bool rp_kv_step(struct rp_kv *kv, uint32_t budget);
/** Whether it has something to do: a watcher that was made or resumed, a compaction. */
bool rp_kv_step_wanted(const struct rp_kv *kv);

/**
 * A sum over keys and versions up to `revision` (0 = current), in key order: equal data with equal
 * revisions give equal sums, whether or not compaction's freeing has come that far.
 */
enum rp_kv_error rp_kv_hash(struct rp_kv *kv, int64_t revision, uint32_t *hash);

/** Versions in the order in which they were written. */
struct rp_kv_dump {
	struct rp_kv_dump_item {
		struct rp_kv_version *version; /**< reference */
		uint32_t sub;		       /**< its place among those of its revision */
	} * items;
	uint64_t count;
	int64_t revision, compacted;
};

/**
 * All versions that can still be read, tombstones included, as they are now. Takes references, no
 * bytes; about 0.4 us a version. The caller clears it.
 */
void rp_kv_dump(struct rp_kv *kv, struct rp_kv_dump *out);
void rp_kv_dump_clear(struct rp_kv_dump *d);

enum rp_kv_alarm {
	RP_KV_ALARM_NONE,
	RP_KV_ALARM_NOSPACE,
	RP_KV_ALARM_CORRUPT,
};
bool rp_kv_alarm_active(const struct rp_kv *kv, enum rp_kv_alarm alarm);
/** True when it changed. */
bool rp_kv_alarm_set(struct rp_kv *kv, enum rp_kv_alarm alarm, bool active);

/* ---- commits, as others see them ---- */

/** One change. `kv->deleted` tells a delete from a put; `prev` is NULL when the key was not there.
 */
struct rp_kv_event {
	const struct rp_kv_version *kv, *prev;
};

/**
 * Records of the server itself begin with one of these: they replicate like keys (hooks and the
 * functions of "replication" see them), but no operation of a client writes, counts, hashes or
 * watches them, they take no revision and have no history. A client's put of such a key is
 * KEY_RESERVED. Those of the second prefix, which is what nodes say of themselves, are read by a
 * range that lies inside it (spec/links.md), and by no other.
 */
#define RP_KV_HIDDEN_PREFIX "\0\0ringpost\0"
#define RP_KV_HIDDEN_PREFIX_BYTES 11
#define RP_KV_NODES_PREFIX "/_ringpost/"
#define RP_KV_NODES_END "/_ringpost0"
#define RP_KV_NODES_PREFIX_BYTES 11
static inline bool rp_kv_is_nodes(struct rp_span key)
{
	return key.length >= RP_KV_NODES_PREFIX_BYTES &&
	       memcmp(key.data, RP_KV_NODES_PREFIX, RP_KV_NODES_PREFIX_BYTES) == 0;
}
static inline bool rp_kv_is_hidden(struct rp_span key)
{
	return rp_kv_is_nodes(key) ||
	       (key.length >= RP_KV_HIDDEN_PREFIX_BYTES &&
		       memcmp(key.data, RP_KV_HIDDEN_PREFIX, RP_KV_HIDDEN_PREFIX_BYTES) == 0);
}

/**
 * Called once a revision, and once more for hidden records that changed with it (the revision is
 * then the store's), in the order of commits, after the change is readable and before watchers
 * see it. Events are in the order of operations; borrow (rp_kv_version_ref() to keep). Must not
 * write to the store.
 */
struct rp_kv_hook {
	struct rp_list node;
	void (*on_commit)(void *ctx, int64_t revision, const struct rp_kv_event *events,
		uint32_t count, uint64_t origin);
	void *ctx;
};
void rp_kv_hook_add(struct rp_kv *kv, struct rp_kv_hook *hook);
void rp_kv_hook_remove(struct rp_kv *kv, struct rp_kv_hook *hook);

/* ---- replication (spec/cluster.md, Replication) ---- */

/** The newest known state of one key: of a live one, or of a tombstone. */
struct rp_kv_record {
	struct rp_span key, value; /**< value is empty in a tombstone */
	bool deleted;
	/** Of apply: taken whatever stamps say (records that merge by another rule). */
	bool force;
	int64_t lease;
	uint64_t stamp, node;
	int64_t mod_revision; /**< out only; 0 when compaction dropped the tombstone's version */
};

/**
 * Applies those records whose (stamp, node) is above the key's, or that say `force`, as one
 * revision; none such = no revision. Returns how many were applied. `origin` goes to the hooks.
 * A later record of the same key in one call sees the earlier.
 */
uint32_t rp_kv_apply_replicated(
	struct rp_kv *kv, const struct rp_kv_record *records, uint32_t count, uint64_t origin);

/** The record of a key, live or tombstone; false when the key was never heard of. borrow. */
bool rp_kv_record_get(const struct rp_kv *kv, struct rp_span key, struct rp_kv_record *out);

/**
 * Up to `max` records in key order, tombstones included, beginning at `from` (or behind it, with
 * `after`), and below `end` unless that is empty. Views: valid until the store changes.
 */
uint32_t rp_kv_record_page(const struct rp_kv *kv, struct rp_span from, bool after,
	struct rp_span end, struct rp_kv_record *out, uint32_t max);

/** Forgets the tombstone of a key if its stamp is still `stamp`. True when it did. */
bool rp_kv_tombstone_drop(struct rp_kv *kv, struct rp_span key, uint64_t stamp);
/** Forgets up to `budget` tombstones with a stamp below `stamp_end`; returns how many. */
uint32_t rp_kv_tombstone_purge(struct rp_kv *kv, uint64_t stamp_end, uint32_t budget);

/**
 * The monotonic clock as the caller reads it; never goes back. Leases that come by replication and
 * belong to this node count from here.
 */
void rp_kv_set_now(struct rp_kv *kv, uint64_t now_ns);

/** The hybrid logical clock: the highest stamp given or seen. */
uint64_t rp_kv_stamp(const struct rp_kv *kv);
