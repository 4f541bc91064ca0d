/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of lib/repl. repl.c: peers and time; repl_write.c: commits on their way out; repl_merge.c:
 * records on their way in; repl_sync.c and repl_answer.c: both sides of anti-entropy; repl_wire.c:
 * the protobuf wire format.
 */

#include <base/bytes.h>
#include <base/list.h>
#include <base/rand.h>
#include <base/units.h>
#include <kv/kv.h>
#include <repl/repl.h>

/** Origin of what peers wrote, in commits of the store: the hook does not broadcast it. */
#define REPL_ORIGIN_PEER 0x7265706c

/** Keys of one digest, ranges of one Sync, and most entries of one list. */
#define REPL_RANGE_KEYS 256
#define REPL_RANGES 16
#define REPL_LIST_KEYS 512
/** Most keys that one Sync of a peer may make us look at before ranges count as different. */
#define REPL_ANSWER_KEYS 65536

/* ---- wire (repl_wire.c) ---- */

/** Grows; running out of memory ends the process, as in the store. */
struct repl_buf {
	uint8_t *data;
	size_t length, size;
};

static inline struct rp_span repl_buf_span(const struct repl_buf *b)
{
	return (struct rp_span){.data = b->data, .length = b->length};
}
void repl_buf_append(struct repl_buf *b, const void *data, size_t length);
/** Copies a span over what the buffer held. */
void repl_buf_set(struct repl_buf *b, struct rp_span s);
void repl_buf_free(struct repl_buf *b);

/** Fields of proto3: a zero or empty one is left out. */
void repl_put_varint(struct repl_buf *b, uint64_t v);
void repl_put_uint(struct repl_buf *b, uint32_t field, uint64_t v);
void repl_put_fixed64(struct repl_buf *b, uint32_t field, uint64_t v);
void repl_put_bytes(struct repl_buf *b, uint32_t field, struct rp_span s);
/** Begins a message field; its end puts the length in. */
size_t repl_put_begin(struct repl_buf *b, uint32_t field);
void repl_put_end(struct repl_buf *b, size_t mark);

/** One field as it came; `bytes` for strings and messages, `value` for numbers. */
struct repl_field {
	uint32_t number;
	uint32_t type;
	uint64_t value;
	struct rp_span bytes;
};
/** False at the end, or when the rest is malformed (then r->bad). */
bool repl_field_next(struct rp_reader *r, struct repl_field *f);

#define REPL_WIRE_VARINT 0
#define REPL_WIRE_FIXED64 1
#define REPL_WIRE_BYTES 2
#define REPL_WIRE_FIXED32 5

/** ReplRecord. The key's rank is in it: see struct repl_rank. */
struct repl_record {
	struct rp_kv_record kv;
	uint32_t epoch; /**< of a dispatcher record's tombstone */
};

struct repl_hello {
	uint64_t node, cluster_high, cluster_low, wall_us;
	bool ready;
};

struct repl_range {
	struct rp_span begin, end;
	uint32_t count;
	uint64_t digest;
};

/** What decides between two states of a key, the first field first. */
struct repl_rank {
	uint32_t epoch;	     /**< of a dispatcher record; else 0 */
	bool closes;	     /**< a tombstone of a dispatcher record: above all of its epoch */
	uint64_t dispatcher; /**< the node in a dispatcher record; else 0 */
	uint64_t stamp, node;
};

struct repl_meta {
	struct rp_span key;
	struct repl_rank rank;
	bool deleted;
};

void repl_put_record(struct repl_buf *b, uint32_t field, const struct repl_record *record);
void repl_put_hello(struct repl_buf *b, uint32_t field, const struct repl_hello *hello);
void repl_put_range(struct repl_buf *b, uint32_t field, const struct repl_range *range);
void repl_put_meta(struct repl_buf *b, uint32_t field, const struct repl_meta *meta);
/** False when malformed. Spans borrow from the bytes. */
bool repl_get_record(struct rp_span bytes, struct repl_record *record);
bool repl_get_hello(struct rp_span bytes, struct repl_hello *hello);
bool repl_get_range(struct rp_span bytes, struct repl_range *range);
bool repl_get_meta(struct rp_span bytes, struct repl_meta *meta);

/* Field numbers of repl.proto. */
enum {
	REPL_F_HELLO = 1,
	REPL_F_APPLY_RECORDS = 2,
	REPL_F_APPLIED_TAKEN = 2,
	REPL_F_APPLIED_SKEWED = 3,
	REPL_F_SYNC_RANGES = 2,
	REPL_F_SYNC_LISTED = 3,
	REPL_F_SYNC_LIST = 4,
	REPL_F_REPLY_DIFFER = 2,
	REPL_F_REPLY_NEWER = 3,
	REPL_F_REPLY_WANTED = 4,
	REPL_F_REPLY_MORE = 5,
	REPL_F_REPLY_RESUME = 6,
	REPL_F_REPLY_UNKNOWN = 7,
};

/* ---- state ---- */

/** The records of one commit, encoded once for all peers. */
struct repl_blob {
	uint32_t references, length;
	uint8_t bytes[];
};

/** A client's write that waits for its majority. */
struct repl_write {
	struct rp_list node; /**< in rp_repl.writes while unanswered; deadline order */
	uint64_t token, deadline_ns;
	uint32_t references; /**< the list's, and one an item */
	uint32_t eligible, taken, open;
	bool answered;
};

/** A blob that one peer gets or has got. */
struct repl_item {
	struct rp_list node; /**< in the peer's queue, then in its call */
	struct repl_blob *blob;
	struct repl_write *write; /**< NULL: nobody waits */
	bool of_sync;		  /**< the run is not over before it is taken */
};

enum repl_purpose {
	REPL_FOR_APPLY,
	REPL_FOR_HELLO,
	REPL_FOR_DIGESTS,
	REPL_FOR_LIST,
};

struct repl_call {
	struct rp_list node; /**< in the peer's calls; deadline order */
	uint64_t token, deadline_ns;
	enum repl_purpose purpose;
	struct rp_list items;
};

struct repl_key_range {
	struct repl_buf begin, end; /**< end empty: no bound */
};

/** An anti-entropy run with one peer, this node asking. */
struct repl_run {
	bool active;
	bool last; /**< the digests reached the end of all keys */
	bool list_open, digests_open;
	bool pull;
	uint64_t started_ns, started_wall_us, pull_since;
	struct repl_buf cursor;			   /**< next digests begin here */
	struct repl_key_range ranges[REPL_RANGES]; /**< of the digests that were sent */
	uint32_t range_count;
	uint32_t differ;	/**< bits: ranges that are to be listed yet */
	struct repl_buf resume; /**< within the range that is being listed */
	uint32_t listing;
	struct repl_buf list_end; /**< the list that was sent covers [resume, list_end) */
	bool list_end_is_range;	  /**< it is the whole rest of the range */
	/** Keys of that list, each with a varint length; `wanted` likewise. */
	struct repl_buf list_keys, wanted;
	size_t wanted_at;
	uint32_t items_open; /**< blobs of the run that the peer has not taken yet */
};

/** Why a peer falls to SPARE. */
enum repl_fall {
	REPL_FALL_NONE,
	REPL_FALL_LOSS,
	REPL_FALL_TIMEOUT,
	REPL_FALL_OVERFLOW,
};

struct repl_peer {
	bool used;
	char *address;
	uint64_t node;
	enum rp_repl_state state;
	bool self, connected, dialling;
	bool boot_open; /**< the decision to be ready waits for it */
	bool synced;	/**< a run was completed on this connection */
	bool ready;	/**< it says that it takes writes */
	bool refused;	/**< the last dial: another cluster, or a node of another slot */
	bool skew_logged, cluster_logged;
	enum repl_fall fall; /**< found where nothing could be called: done by repl_settle() */
	uint64_t dial_at_ns, dial_deadline_ns, hello_at_ns, sync_at_ns;
	uint64_t synced_ns, synced_wall_us;
	struct rp_list queue;		      /**< items to be sent */
	uint32_t queued_writes, queued_bytes; /**< queue and open calls together */
	struct rp_list calls;
	uint32_t apply_calls;
	bool sync_call; /**< one Sync at a time */
	struct repl_run run;
};

/** Epochs of dispatcher records' tombstones, which the store has no place for. */
struct repl_epoch {
	struct rp_list node;
	uint64_t hash;
	uint32_t epoch;
	uint32_t key_length;
	uint8_t key[];
};
#define REPL_EPOCH_BUCKETS 1024

struct rp_repl {
	struct rp_kv *kv;
	struct rp_kv_hook hook;
	struct rp_repl_config config;
	struct rp_repl_stats stats;
	struct rp_rand rand;
	bool started, ready, alone, ready_told;
	uint64_t boot_deadline_ns;
	uint64_t sweep_at_ns; /**< of tombstones */
	uint64_t token_next;
	struct rp_repl_now now; /**< of the call that is being served; the hook needs it */
	struct repl_peer peers[RP_PEERS_MAX];
	uint32_t slots; /**< of `peers`, that were ever used */
	struct rp_list writes;
	uint32_t write_count;
	struct repl_write *proposing; /**< the hook ties items to it */
	uint64_t last_sync_wall_us;   /**< any peer */
	bool pulling;
	uint64_t pull_since;
	struct rp_list epochs[REPL_EPOCH_BUCKETS];
	uint32_t sweep_bucket;
	struct repl_buf out;	/**< of the message being built */
	struct repl_buf answer; /**< borrowed by the caller of rp_repl_on_request() */
	struct repl_buf scratch[2];
};

#define REPL_COUNT(r, name, n) ((r)->stats.name += (n))

/* ---- repl.c ---- */

void repl_set_state(struct rp_repl *r, struct repl_peer *p, enum rp_repl_state state);
struct repl_peer *repl_peer_by_node(struct rp_repl *r, uint64_t node);
static inline rp_repl_peer_id repl_peer_id(const struct rp_repl *r, const struct repl_peer *p)
{
	return (rp_repl_peer_id)(p - r->peers);
}
/** Starts a call with the bytes; take: the items of `items` (may be NULL). False: it fell. */
bool repl_call(struct rp_repl *r, struct repl_peer *p, enum repl_purpose purpose,
	struct rp_span bytes, struct rp_list *items);
void repl_hello_make(const struct rp_repl *r, struct repl_hello *hello);
/** -EPERM when it is of another cluster. */
int repl_hello_take(struct rp_repl *r, struct repl_peer *p, const struct repl_hello *hello);
bool repl_eligible(const struct rp_repl *r, uint64_t node, struct rp_span key);
/** A tombstone so old that it need not be told to who does not know the key. */
bool repl_expired(const struct rp_repl *r, bool deleted, uint64_t stamp);
/** A run with the peer was completed. */
void repl_synced(struct rp_repl *r, struct repl_peer *p);

/* ---- repl_write.c ---- */

void repl_hook(void *ctx, int64_t revision, const struct rp_kv_event *events, uint32_t count,
	uint64_t origin);
/** Broadcasts one record that the hook did not see. */
void repl_broadcast_record(struct rp_repl *r, const struct repl_record *record);
/** Queues the record for one peer, as part of its run. */
void repl_enqueue_sync(struct rp_repl *r, struct repl_peer *p, const struct repl_record *record);
/** Sends what the limits of open calls allow. */
void repl_pump(struct rp_repl *r, struct repl_peer *p);
/** The peer has these, or never will. Frees the items. */
void repl_items_end(struct rp_repl *r, struct repl_peer *p, struct rp_list *items, bool taken);
void repl_queue_drop(struct rp_repl *r, struct repl_peer *p);
void repl_writes_tick(struct rp_repl *r);
void repl_writes_free(struct rp_repl *r);

/* ---- repl_merge.c ---- */

void repl_rank_of(struct rp_repl *r, const struct repl_record *record, struct repl_rank *rank);
int repl_rank_compare(const struct repl_rank *a, const struct repl_rank *b);
/** Completes a record of the store: the epoch of a tombstone. */
void repl_record_of(struct rp_repl *r, const struct rp_kv_record *kv, struct repl_record *out);
bool repl_record_find(struct rp_repl *r, struct rp_span key, struct repl_record *out);
bool repl_key_is_dispatcher(struct rp_span key);
void repl_epoch_set(struct rp_repl *r, struct rp_span key, uint32_t epoch);
void repl_epochs_sweep(struct rp_repl *r, uint32_t buckets);
void repl_epochs_free(struct rp_repl *r);

/** Merges records of one peer; begin, add each, end. */
struct repl_merge {
	struct rp_repl *r;
	uint64_t from;
	uint32_t count, taken, skewed;
	struct rp_kv_record batch[64];
};
void repl_merge_begin(struct repl_merge *m, struct rp_repl *r, uint64_t from);
/** borrow until the end. */
void repl_merge_add(struct repl_merge *m, const struct repl_record *record);
void repl_merge_end(struct repl_merge *m);

/* ---- repl_sync.c, repl_answer.c ---- */

int repl_span_compare(struct rp_span a, struct rp_span b);
uint64_t repl_digest(const struct rp_kv_record *kv);
/** Does this record take part in digests and lists with that node? */
bool repl_shared(const struct rp_repl *r, uint64_t node, const struct rp_kv_record *kv);

void repl_run_start(struct rp_repl *r, struct repl_peer *p);
void repl_run_stop(struct rp_repl *r, struct repl_peer *p, bool failed);
/** Goes on with the run as far as it can without an answer. */
void repl_run_step(struct rp_repl *r, struct repl_peer *p);
/** -EINVAL: malformed. */
int repl_run_answer(
	struct rp_repl *r, struct repl_peer *p, enum repl_purpose purpose, struct rp_span answer);
void repl_run_free(struct repl_run *run);

int repl_answer_sync(struct rp_repl *r, uint64_t from, struct rp_span bytes);
int repl_answer_apply(struct rp_repl *r, uint64_t from, struct rp_span bytes);
