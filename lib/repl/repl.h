/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Membership and replication between the control threads of a cluster (spec/cluster.md, Membership
 * and Replication). It reads no clock and opens no socket: calls to peers go out through
 * ops->send() as finished protobuf messages (proto/ringpost/v1/repl.proto) and their results come
 * in.
 *
 *   1. rp_repl_create() with the store; it installs a hook there and sees each commit.
 *   2. rp_repl_peer_add() for each configured URL, itself included (found out when dialled, and
 *      skipped), then rp_repl_start(). Dials go out through ops->dial(): the owner connects, asks
 *      Maintenance.Status, proves the cluster secret, and says rp_repl_peer_connected() or
 *      rp_repl_peer_failed().
 *   3. rp_repl_tick() when rp_repl_next_ns() is reached; every call may move that.
 *   4. rp_repl_ready(): the first sync is done, or this node decided to boot alone. Until then no
 *      client write is taken. ops->ready() tells it once.
 *   5. A client's write goes through rp_repl_propose(): apply here, broadcast, wait for the
 *      majority. Writes of the node itself that wait for nobody (registry records) may go to
 *      rp_kv_apply() with origin 0: the hook broadcasts them just the same, as of the time of the
 *      last call in here.
 *   6. Calls of proven peers come in by rp_repl_on_request(), with the answer to send back.
 *
 * What merges how, so that all nodes that can talk end equal:
 *   - a key: the highest (stamp, writer) wins. A stamp more than max_skew ahead of this node's wall
 *     clock is refused, counted and the peer named.
 *   - a dispatcher record /q/{name}: the highest (epoch, node in the record), then (stamp, writer).
 *     A tombstone stands at the epoch of the record that it ended, above all records of that epoch.
 *   - a consumer record belongs to the host that it names. A record that names this node and that
 *     this node does not have is answered with a tombstone above it, and what an earlier life of
 *     this node wrote does not touch a consumer that is here now. So what goes through the sync
 *     of each reconnect is the host's own set, and peers drop what is not in it. A tombstone of
 *     another node is taken: somebody deleted the registration, which is a leave.
 *
 * Peers: SPARE (no connection, timed out, queue overflow) -> IN_PROGRESS (connected, syncing: gets
 * writes, does not count) -> ONLINE. A spare peer is dialled again, and comes back through a sync.
 *
 * Callbacks must not call back into this module; they record and act later. One thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>
#include <kv/kv.h>

struct rp_repl;

/** Monotonic and wall clock of one moment. */
struct rp_repl_now {
	uint64_t ns;
	uint64_t wall_us;
};

/** Of a node, in the order of enum rp_node_state. */
enum rp_repl_state {
	RP_REPL_GONE,
	RP_REPL_SPARE,
	RP_REPL_IN_PROGRESS,
	RP_REPL_ONLINE,
};

const char *rp_repl_state_name(enum rp_repl_state state);

/** The two unary calls of ringpost.v1.Peer that carry replication. */
enum rp_repl_kind {
	RP_REPL_APPLY, /**< ReplApply -> ReplApplyReply */
	RP_REPL_SYNC,  /**< ReplSync -> ReplSyncReply */
};

/** A slot of the peer table; stable until rp_repl_peer_remove(). */
typedef uint32_t rp_repl_peer_id;
#define RP_REPL_NO_PEER UINT32_MAX

struct rp_repl_ops {
	/**
	 * Starts a unary call on the peer's connection; `bytes` are borrowed for the call. 0:
	 * exactly one rp_repl_result() with `token` follows (also when the connection is lost, or
	 * after a hangup). -errno: none follows, and the peer counts as lost.
	 */
	int (*send)(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind, struct rp_span bytes,
		uint64_t token);
	/** Connect; ends in rp_repl_peer_connected() or rp_repl_peer_failed(). `address` is
	 * borrowed. */
	void (*dial)(void *ctx, rp_repl_peer_id peer, const char *address);
	/** Close the connection, or stop dialling; results of open calls may still come, or not. */
	void (*hangup)(void *ctx, rp_repl_peer_id peer);
	/** Also for this node itself. GONE when a member was removed. */
	void (*node_state)(void *ctx, uint64_t node, enum rp_repl_state state);
	/** A write that waited is answered now. `confirmed`: by the majority, else by ack_ms. */
	void (*write_done)(void *ctx, uint64_t token, bool confirmed);
	/** Client writes are taken from now on. `alone`: nobody was there to sync with. */
	void (*ready)(void *ctx, bool alone);
	/** May this key go to that node (zones, local prefixes)? NULL: all may. */
	bool (*eligible)(void *ctx, uint64_t node, struct rp_span key);
};

/** 0 in a time or size takes the default in brackets. */
struct rp_repl_config {
	uint64_t node;
	uint64_t cluster_high, cluster_low; /**< uuid; both 0: peers with nobody */
	uint64_t seed;			    /**< of dial jitter */
	uint32_t ack_ms;		    /**< [1000] longest wait of a write for its majority */
	uint32_t sync_s;		    /**< [30] between anti-entropy runs with one peer */
	uint32_t tombstone_s;		    /**< [600] */
	uint32_t tombstone_max_s;	    /**< [86400] */
	uint32_t max_skew_s;		    /**< [3600] */
	uint32_t boot_ms;	/**< [3000] when no peer has answered by then: boot alone */
	uint32_t redial_ms;	/**< [1000] between dials of a spare peer, with jitter */
	uint32_t timeout_ms;	/**< [3000] of one call; past it the peer falls to SPARE */
	uint32_t hello_ms;	/**< [500] a peer that was sent nothing for so long gets a hello */
	uint32_t queue_bytes;	/**< [16 MiB] of one peer's waiting writes */
	uint32_t queue_writes;	/**< [16384] likewise, in writes */
	uint32_t calls_max;	/**< [8] Apply calls open to one peer */
	uint32_t message_bytes; /**< [262144] of one Apply or Sync message, unless one key is larger
				 */
	uint32_t waiting_max;	/**< [65536] writes that wait for a majority */
	const struct rp_repl_ops *ops;
	void *ctx;
};

#define RP_REPL_COUNTERS(X)                                                                       \
	X(writes, "commits of this node that were broadcast")                                     \
	X(writes_confirmed, "client writes answered by the majority")                             \
	X(writes_unconfirmed, "client writes answered without it: ack_ms, or peers fell away")    \
	X(writes_not_waited, "client writes answered at once: waiting_max reached")               \
	X(refused_not_ready, "client writes refused before the first sync")                       \
	X(applies_sent, "Apply calls sent")                                                       \
	X(applies_received, "Apply calls received")                                               \
	X(syncs_sent, "Sync calls sent")                                                          \
	X(syncs_received, "Sync calls received")                                                  \
	X(sync_runs, "anti-entropy runs completed as initiator")                                  \
	X(sync_runs_failed, "anti-entropy runs given up")                                         \
	X(ranges_equal, "key ranges whose digests were equal")                                    \
	X(ranges_differ, "key ranges that were compared key by key")                              \
	X(records_taken, "records of peers applied")                                              \
	X(records_stale, "records of peers that changed nothing")                                 \
	X(records_skew, "records of peers refused: stamp too far ahead")                          \
	X(records_invalid, "records of peers refused: a key that is never stored, or no stamp")   \
	X(records_policy, "records of peers refused: the key is not theirs to send")              \
	X(host_answered, "consumer records that name this node wrongly, answered by a tombstone") \
	X(host_restored, "consumer records of this node written again over an earlier life's")    \
	X(bad_messages, "malformed Apply or Sync messages")                                       \
	X(wrong_cluster, "peers refused: another cluster")                                        \
	X(unknown_results, "results of calls that are no longer open")                            \
	X(peer_timeouts, "peers that fell to SPARE: a call was not answered")                     \
	X(peer_overflows, "peers that fell to SPARE: their queue was full")                       \
	X(peer_losses, "peers that fell to SPARE: connection lost or call failed")                \
	X(dials, "dials started")                                                                 \
	X(pulls, "rejoins by pulling after a long absence")                                       \
	X(pull_dropped, "keys dropped here by such a rejoin")                                     \
	X(tombstones_dropped, "tombstones forgotten")

struct rp_repl_stats {
#define X(name, text) uint64_t name;
	RP_REPL_COUNTERS(X)
#undef X
};

/** NULL and errno: EINVAL, ENOMEM. borrow: the store outlives it and was created with
 * keep_tombstones and the same node id. */
struct rp_repl *rp_repl_create(struct rp_kv *kv, const struct rp_repl_config *config);
/** No callback comes any more. NULL is fine. */
void rp_repl_destroy(struct rp_repl *r);

/** `address` is copied. RP_REPL_NO_PEER: the table is full (RP_PEERS_MAX). -> dialled at once when
 * started. Adding an address that is there gives its slot. */
rp_repl_peer_id rp_repl_peer_add(struct rp_repl *r, const char *address, struct rp_repl_now now);
/** MemberRemove, reconfiguration: hangup, GONE. */
void rp_repl_peer_remove(struct rp_repl *r, rp_repl_peer_id peer, struct rp_repl_now now);
/** Those of the configuration that may change while it runs, as struct rp_repl_config has them. */
struct rp_repl_times {
	uint32_t ack_ms, sync_s, tombstone_s, tombstone_max_s, max_skew_s;
};
/** In force from now on; a wait that has begun keeps its end. */
void rp_repl_set_times(
	struct rp_repl *r, const struct rp_repl_times *times, struct rp_repl_now now);
void rp_repl_start(struct rp_repl *r, struct rp_repl_now now);

/**
 * The dial succeeded: Status gave `node` and the cluster, and the secret was proved. 0: the peer is
 * IN_PROGRESS and its sync begins. -EPERM: another cluster (logged); -EALREADY: it is this node
 * itself, never dialled again; -EEXIST: another slot has that node; -ECANCELED: it is not being
 * dialled (any more). On error the owner hangs up.
 */
int rp_repl_peer_connected(struct rp_repl *r, rp_repl_peer_id peer, uint64_t node,
	uint64_t cluster_high, uint64_t cluster_low, struct rp_repl_now now);
/**
 * The dial failed, or the connection was lost: SPARE, dialled again later. `absent`: nobody listens
 * there, so a node that starts need not wait for it. A peer that is only slow to answer is waited
 * for until boot_ms: it may have the queues that a node alone would claim for itself.
 */
void rp_repl_peer_failed(
	struct rp_repl *r, rp_repl_peer_id peer, bool absent, struct rp_repl_now now);

/** The answer of a call, or `failed`. An unknown token is counted and ignored. */
void rp_repl_result(struct rp_repl *r, uint64_t token, bool failed, struct rp_span answer,
	struct rp_repl_now now);

/**
 * A call of the proven peer `from`. 0 and the answer's bytes (borrow: until the next call into this
 * module); -EINVAL: malformed, counted (INVALID_ARGUMENT); -EPERM: another cluster.
 */
int rp_repl_on_request(struct rp_repl *r, uint64_t from, enum rp_repl_kind kind,
	struct rp_span bytes, struct rp_span *answer, struct rp_repl_now now);

bool rp_repl_ready(const struct rp_repl *r);

enum rp_repl_outcome {
	RP_REPL_REFUSED, /**< not ready: nothing was done, UNAVAILABLE */
	RP_REPL_DONE,	 /**< *out is the answer (it may hold an error) */
	RP_REPL_WAITING, /**< *out will be the answer when ops->write_done(token) comes */
};

/**
 * A client's write: applied to the store, broadcast, and answered when more than half of the peers
 * that are ONLINE and eligible at this moment have it (this node excluded, none = at once), or
 * after ack_ms. The txn must have passed rp_kv_txn_check(). The caller clears *out, unless REFUSED.
 */
enum rp_repl_outcome rp_repl_propose(struct rp_repl *r, const struct rp_kv_txn *txn, uint64_t token,
	struct rp_kv_result *out, struct rp_repl_now now);

void rp_repl_tick(struct rp_repl *r, struct rp_repl_now now);
/** When rp_repl_tick() is wanted; RP_NEVER when not. */
uint64_t rp_repl_next_ns(const struct rp_repl *r);

/** State of a node as this one sees it; GONE when it is unknown. */
enum rp_repl_state rp_repl_state_of(const struct rp_repl *r, uint64_t node);

struct rp_repl_peer_info {
	const char *address; /**< borrow */
	uint64_t node;	     /**< 0 = never connected */
	enum rp_repl_state state;
	bool self, connected;
	uint32_t queued_writes, queued_bytes, calls_open;
	uint64_t synced_ns; /**< monotonic start of the last completed sync; 0 = never */
};
/** False: no such peer. Slots are 0 .. RP_PEERS_MAX - 1. */
bool rp_repl_peer_get(const struct rp_repl *r, rp_repl_peer_id peer, struct rp_repl_peer_info *out);
rp_repl_peer_id rp_repl_peer_of_node(const struct rp_repl *r, uint64_t node);

const struct rp_repl_stats *rp_repl_get_stats(const struct rp_repl *r);
