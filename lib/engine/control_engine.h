/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The control plane's machine: store, replication and registry of one node, and the control end of
 * every queue operation. It reads no clock and opens no socket; lib/ctl and test/sim feed it and
 * carry out what it asks through struct rp_control_ops.
 *
 *   1. rp_control_create(), rp_control_peer_add() for each configured peer, rp_control_start().
 *   2. Inputs: queue operations, consumers, writes (all with a token or handle of the caller's),
 *      messages of the shards (rp_control_on_xmsg), results of calls to peers and calls of peers.
 *   3. rp_control_run() after a turn's inputs: it does what callbacks could not do at once,
 * publishes the registry to the shards, and says when it wants to run again.
 *
 * One thread, the control thread; it may take and free mbufs of config.pool.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/qmsg.h>
#include <base/transport.h>
#include <base/units.h>
#include <engine/control_process.h>
#include <engine/node_record.h>
#include <kv/kv.h>
#include <queue/queue.h>
#include <repl/repl.h>
#include <route/record.h>
#include <xcore/xcore_msg.h>

struct rte_mempool;
struct rp_control;
struct rp_policy;
struct rp_tls_config;

/** Keys that the node writes and clients may only read. */
#define RP_CONTROL_PREFIX RP_KV_NODES_PREFIX
#define RP_CONTROL_NODE_PREFIX RP_CONTROL_PREFIX "node/"

/** Why a node that drains ends a consumer, or takes none. */
#define RP_CONTROL_TEXT_DRAINING "queue consumer: the node is draining, watch at another endpoint"

/** Answer to a queue operation. */
struct rp_control_answer {
	enum rp_qstatus status;
	uint32_t deleted;
	bool has_message;
	struct rp_span tail, value; /**< borrow for the call */
	uint64_t revision;
	uint32_t attempt;
	const char *message; /**< of a refusal: what the status does not say; NULL: nothing */
};

struct rp_control_delivery {
	uint64_t idx;
	struct rp_span tail;
	const struct rp_span *value; /**< in pieces, borrowed */
	uint32_t value_count;
	int64_t revision;
	uint32_t attempt;
	uint64_t request; /**< of a process request; 0: it is none, and the rest is not set */
	uint64_t left_us; /**< of its time, now */
	uint8_t priority;
	uint32_t max_bytes;	 /**< of one output; 0 = no bound of its own */
	struct rp_span reply_to; /**< borrow; empty: nobody waits for an answer */
};

struct rp_control_ops {
	/** Messages of that type that post() would take to the shard now. */
	uint32_t (*tokens)(void *ctx, unsigned shard, enum rp_xmsg_type type);
	/** take on 0; -EAGAIN: out of tokens, not taken. */
	int (*post)(void *ctx, unsigned shard, const struct rp_xmsg *m);

	/** As struct rp_repl_ops has them; they may answer later only. */
	int (*peer_call)(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind,
		struct rp_span bytes, uint64_t token);
	void (*dial)(void *ctx, rp_repl_peer_id peer, const char *address);
	void (*hangup)(void *ctx, rp_repl_peer_id peer);
	/** May the key leave for that node? NULL = yes. */
	bool (*eligible)(void *ctx, uint64_t node, struct rp_span key);
	/** Is the node known to be in this node's zone? NULL = none is. */
	bool (*same_zone)(void *ctx, uint64_t node);
	/** Is the queue none of the shards'? Its records are not told to them. NULL = none is. */
	bool (*rides)(void *ctx, struct rp_span name);
	/** DeliverOne at the node; ends in rp_control_unary_result(). -errno: not begun. */
	int (*unary_call)(void *ctx, uint64_t node, struct rp_span frame, uint64_t token);
	/** Answer to rp_control_unary_in(); `answer` is empty when the frame was malformed. */
	void (*unary_answer)(void *ctx, uint64_t token, struct rp_span answer);

	void (*queue_answer)(void *ctx, uint64_t token, const struct rp_control_answer *answer);
	/** 0: it goes to the client; -EAGAIN: no room, rp_control_consumer_room() follows; -ENOENT.
	 */
	int (*deliver)(void *ctx, uint64_t consumer, const struct rp_control_delivery *delivery);
	/** A delivered message is taken back: DELETE event. */
	void (*withdraw)(
		void *ctx, uint64_t consumer, uint64_t idx, struct rp_span tail, int64_t revision);
	/** The consumer is over; its handle is dead. */
	void (*consumer_end)(void *ctx, uint64_t consumer, const char *reason);

	/** A run lives (OK), or it is over. NULL, with run_event: there are none. */
	void (*run_answer)(void *ctx, uint64_t run, enum rp_qstatus status, const char *message);
	/** In order. After FINAL or FAILED the run is over. */
	void (*run_event)(void *ctx, uint64_t run, const struct rp_control_run_event *event);

	/** The end of rp_control_propose(); `result` is borrowed. */
	void (*write_done)(void *ctx, uint64_t token, const struct rp_kv_result *result);
	/** Client writes are taken from now on. */
	void (*ready)(void *ctx, bool alone);
	void (*node_state)(void *ctx, uint64_t node, enum rp_node_state state);
	/** SNAPSHOT_DONE and STOPPED of a shard. */
	void (*snapshot_done)(void *ctx, unsigned shard, uint64_t token);
	void (*stopped)(void *ctx, unsigned shard, uint32_t phase);
	/** A block of a tap (port/tap.h); take. Only after rp_control_tap(). */
	void (*tapped)(void *ctx, unsigned shard, struct rte_mbuf *block);
};

struct rp_control_config {
	struct rp_node_record self; /**< copied */
	uint8_t cluster_uuid[RP_UUID_BYTES];
	bool transport_tcp, transport_ktcp; /**< links may use it */
	uint32_t shards;
	struct rte_mempool *pool;    /**< borrow: what is sent to the shards */
	struct rp_kv_config kv;	     /**< node, keep_tombstones are set here */
	struct rp_repl_config repl;  /**< node, cluster, ops, ctx are set here */
	uint64_t auto_compaction_ns; /**< 0 = never */
	uint32_t consumers_max;	     /**< 0 = 65536 */
	uint32_t message_bytes;	     /**< limits.message_bytes; 0 = 1572864 */
};

#define RP_CONTROL_COUNTERS(X)                                                             \
	X(queue_puts, "puts given to a shard")                                             \
	X(queue_acks, "acknowledges given to a shard")                                     \
	X(queue_gets, "gets given to a shard")                                             \
	X(queue_rejects, "rejects given to a shard")                                       \
	X(queue_cancels, "cancels given to a shard")                                       \
	X(requests, "process requests taken")                                              \
	X(requests_refused, "process requests refused")                                    \
	X(request_ends, "ends of process requests put into their reply queue")             \
	X(outputs, "outputs of workers of this node taken")                                \
	X(outputs_refused, "outputs of workers of this node refused")                      \
	X(outputs_waited, "times an output waited, since its requester did not read")      \
	X(queue_waits, "queue operations that found no token or buffer")                   \
	X(deliveries, "deliveries handed to a consumer")                                   \
	X(deliveries_held, "deliveries that waited for a consumer's room")                 \
	X(deliveries_late, "deliveries whose consumer had gone")                           \
	X(dead_letters, "dead letters put into their queue")                               \
	X(dead_letters_refused, "dead letters that their queue did not take: tried again") \
	X(withdrawals, "deliveries taken back from a consumer")                            \
	X(consumers_opened, "consumer watches")                                            \
	X(records_published, "registry records told to a shard")                           \
	X(claims_written, "dispatcher records written for a shard")                        \
	X(unary_out, "DeliverOne calls made")                                              \
	X(unary_failed, "DeliverOne calls that failed")                                    \
	X(unary_in, "DeliverOne calls taken")                                              \
	X(unary_malformed, "DeliverOne calls refused: not a frame")                        \
	X(leases_expired, "leases whose time was over")                                    \
	X(leases_adopted, "leases taken over from a dead node")                            \
	X(leases_stuck, "leases that could not be revoked, tried again")                   \
	X(no_buffers, "times the pool was empty")

struct rp_control_counters {
#define X(name, help) uint64_t name;
	RP_CONTROL_COUNTERS(X)
#undef X
};

/** NULL and errno. borrow: pool, ops. */
struct rp_control *rp_control_create(
	const struct rp_control_config *config, const struct rp_control_ops *ops, void *ctx);
/** Frees what is held; no callback. NULL is fine. */
void rp_control_destroy(struct rp_control *c);

struct rp_kv *rp_control_kv(struct rp_control *c);
struct rp_repl *rp_control_repl(struct rp_control *c);
const struct rp_control_counters *rp_control_counters(const struct rp_control *c);

/** The peer is one no more; see rp_repl_peer_remove(). */
void rp_control_peer_remove(struct rp_control *c, rp_repl_peer_id peer, struct rp_repl_now now);
/** A configured peer's URL; see rp_repl_peer_add(). */
rp_repl_peer_id rp_control_peer_add(
	struct rp_control *c, const char *address, struct rp_repl_now now);
/** Publishes the node's own record and begins to dial. */
void rp_control_start(struct rp_control *c, struct rp_repl_now now);
/** As rp_repl_peer_connected(); the unary path to the node is there from now on. */
int rp_control_peer_connected(struct rp_control *c, rp_repl_peer_id peer, uint64_t node,
	const uint8_t cluster_uuid[RP_UUID_BYTES], struct rp_repl_now now);
/** As rp_repl_peer_failed(); the unary path is gone. */
void rp_control_peer_failed(
	struct rp_control *c, rp_repl_peer_id peer, bool absent, struct rp_repl_now now);
/** What a node says of itself; false when it is not known (yet). */
bool rp_control_node_get(struct rp_control *c, uint64_t node, struct rp_node_record *out);

/** Background work and what inputs left to do. Returns when it wants to run again. */
uint64_t rp_control_run(struct rp_control *c, struct rp_repl_now now);

/** A client's write; ends in ops->write_done(). -EAGAIN: not ready, nothing was done. */
int rp_control_propose(
	struct rp_control *c, const struct rp_kv_txn *txn, uint64_t token, struct rp_repl_now now);

/**
 * One queue operation, of a type PUT, ACK, GET, REJECT, PURGE or CANCEL (tail; idx = the request,
 * or 0). The value of a PUT may be the envelope of a process request, or an output of one that a
 * consumer here holds. Spans are borrowed until it is answered.
 */
struct rp_control_queue_op {
	enum rp_xmsg_type type;
	uint32_t hash;
	struct rp_span name, tail, value; /**< ACKS: the numbers, 8 bytes each, are the value */
	uint64_t idx;
	uint8_t uuid[RP_UUID_BYTES];
	uint8_t flags; /**< RP_QMSG_NO_HOLDER, RP_QMSG_WANT_MESSAGE */
	uint64_t user; /**< who asks; 0: nobody is told apart. See rp_control_consumer_user() */
};
/** 0: ops->queue_answer() follows, or was called already. -EAGAIN: no token or buffer now. */
int rp_control_queue_op(struct rp_control *c, const struct rp_control_queue_op *op, uint64_t token,
	struct rp_repl_now now);

/**
 * A consumer arrives; `consumer` names it. 0: open, *revision is below every delivery to come.
 * -EAGAIN: not now; -EINVAL: its record does not parse.
 */
int rp_control_consumer_open(struct rp_control *c, uint64_t consumer, struct rp_span name,
	uint32_t hash, const uint8_t uuid[RP_UUID_BYTES], int64_t start_revision, int64_t *revision,
	struct rp_repl_now now);
/**
 * It is that user's: here nobody else acknowledges or rejects with its uuid, or puts outputs of the
 * requests that it holds. An operation of user 0, or a consumer of user 0, is not told apart.
 */
void rp_control_consumer_user(struct rp_control *c, uint64_t consumer, uint64_t user);
void rp_control_consumer_close(struct rp_control *c, uint64_t consumer, enum rp_queue_close how);
void rp_control_consumer_accepted(struct rp_control *c, uint64_t consumer, uint64_t idx);
void rp_control_consumer_room(struct rp_control *c, uint64_t consumer);

/**
 * Of a consumer that no shard has: writes its record, with the fields that clients put, or deletes
 * it when it names this node.
 */
void rp_control_consumer_here(struct rp_control *c, struct rp_span name,
	const uint8_t uuid[RP_UUID_BYTES], bool here, struct rp_repl_now now);
/**
 * A client's put or delete (`value.data` NULL) on a record's key: merged by the rules of
 * spec/queues.md "Records", then proposed; ends in ops->write_done(). 0; -EAGAIN as propose;
 * -EPERM, -EINVAL with *message (constant text). With its lease a consumer's record goes, which is
 * an immediate leave.
 */
struct rp_route_key;
int rp_control_record_write(struct rp_control *c, const struct rp_route_key *key,
	struct rp_span value, int64_t lease, bool prev_kv, uint64_t token, const char **message,
	struct rp_repl_now now);

/**
 * reply_to of `request` is `reply`, and the dispatcher of `reply` is pinned to this node: claimed
 * when nobody dispatches it, and taken over from a node that does and hosts no consumer of it; see
 * rp_queue_pin(). 0; -EAGAIN: not ready, or no buffer.
 */
int rp_control_queue_link(
	struct rp_control *c, struct rp_span request, struct rp_span reply, struct rp_repl_now now);

/** take: what `m` holds. */
void rp_control_on_xmsg(
	struct rp_control *c, unsigned shard, const struct rp_xmsg *m, struct rp_repl_now now);

/** Result of ops->unary_call(). `answer` is what the peer's unary_answer() said. */
void rp_control_unary_result(
	struct rp_control *c, uint64_t token, bool failed, struct rp_span answer);
/** A frame by DeliverOne of `node`. 0: ops->unary_answer() follows; -EINVAL, -EAGAIN. */
int rp_control_unary_in(struct rp_control *c, uint64_t node, struct rp_span frame, uint64_t token);

/** Results and calls of replication, as repl.h has them. */
void rp_control_peer_result(struct rp_control *c, uint64_t token, bool failed,
	struct rp_span answer, struct rp_repl_now now);
int rp_control_on_request(struct rp_control *c, uint64_t from, enum rp_repl_kind kind,
	struct rp_span bytes, struct rp_span *answer, struct rp_repl_now now);

/** What a new configuration changes in a running node; all of it is set. */
struct rp_control_limits {
	uint32_t message_bytes, queue_depth;
	uint64_t queue_bytes;
	uint64_t resume_ns, idle_ns; /**< of consumers and queues */
	uint64_t spin_ns;	     /**< of a shard, before it sleeps */
	bool unary_fallback;
	bool draining;		     /**< see rp_queue_drain() */
	uint64_t auto_compaction_ns; /**< 0 = never */
};
/** Tells every shard, likewise; all of it is copied. */
void rp_control_set_policies(
	struct rp_control *c, const struct rp_queue_policy *policies, uint32_t count);
/** Tells every shard, behind all that was sent to it before. */
void rp_control_set_limits(struct rp_control *c, const struct rp_control_limits *limits);
/**
 * Likewise: what links prove from now on; those that stand stay. 0; -ENOBUFS: no buffers, nobody
 * was told.
 */
int rp_control_set_secrets(struct rp_control *c, const struct rp_xmsg_secrets *secrets);
/** take: what the links of the shard show and ask for from now on, as rp_links_set_tls(). */
void rp_control_set_link_tls(struct rp_control *c, uint32_t shard, struct rp_tls_config *client,
	struct rp_tls_config *server);
/**
 * take: the policy; NULL: every key may leave for every node. ops->eligible and ops->same_zone
 * answer by it from now on. To the shards, a queue's dispatcher at a node for which the queue's
 * keys may not leave is none, and its consumers there are offered nothing: see rp_queue_ops.apart.
 */
void rp_control_policy_changed(struct rp_control *c, struct rp_policy *policy);
/** The node's name and zone in its record, from which the others have them. borrow. */
void rp_control_set_names(
	struct rp_control *c, const char *name, const char *zone, struct rp_repl_now now);

/** In the node's record, which the others show. */
void rp_control_set_draining(struct rp_control *c, bool draining, struct rp_repl_now now);

/** Asks every shard to refuse new puts (1), then to close its links (2). */
void rp_control_stop(struct rp_control *c, uint32_t phase);
/** Asks a shard to fill `buffer`; ops->snapshot_done() follows. 0 or -EAGAIN. */
int rp_control_snapshot(struct rp_control *c, unsigned shard, void *buffer, uint64_t token);
/** Changes the impairment of port `port` on its shard; `spec` lives until snapshot_done(). */
int rp_control_impair(
	struct rp_control *c, unsigned shard, uint32_t port, void *spec, uint64_t token);
/**
 * A shard's tap on, by a struct rp_tap_config which lives until snapshot_done(), or off with NULL.
 * It is sent when there is room; snapshot_done() follows, after off behind the last ops->tapped().
 */
void rp_control_tap(struct rp_control *c, unsigned shard, void *config, uint64_t token);
