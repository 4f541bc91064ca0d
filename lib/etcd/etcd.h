/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The etcd v3 services (KV, Watch, Lease, Lock, Election, Auth, Maintenance, Cluster)
 * and
 * ringpost.v1.Peer on one gRPC server (spec/etcd-semantics.md; spec/queues.md "What a stock client
 * sees"). This folder knows requests, answers and watch streams. What a write means to the cluster,
 * what a queue is and who the members are, it asks `struct rp_etcd_backend`.
 *
 *   1. rp_etcd_create() registers the services at the server, before it serves.
 *   2. Reads go straight to the store. A write becomes a `struct rp_kv_txn` for backend.propose().
 *   3. Keys that are queue traffic (route/key.h) go to the queue callbacks with a token; the answer
 *      comes back by rp_etcd_queue_answer(), at once or later.
 *   4. A watch on one consumer key is a consumer: consumer_open(), then rp_etcd_consumer_deliver().
 *   5. rp_etcd_run() once a turn of the loop: progress, waiting calls.
 *   6. rp_etcd_stop() when the node stops: puts are refused, watch streams end with UNAVAILABLE.
 *
 * Everything is on the control thread. Callbacks may answer before they return. Spans given to a
 * callback live for the call only, unless it says otherwise.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/qmsg.h>
#include <base/units.h>
#include <kv/kv.h>
#include <route/key.h>
#include <route/policy.h>

struct rp_etcd;
struct rp_grpc_server;

/** The version that clients are told: it decides which features they use. */
#define RP_ETCD_VERSION "3.6.0"

/** What a caller is, as far as policy must know. */
struct rp_etcd_caller {
	bool loopback; /**< the connection comes from 127.0.0.0/8, ::1 or a unix socket */
	bool peer;     /**< the connection has proved to be a node of this cluster, and says so */
	/** Who has authenticated; NULL: nobody, or auth is off. Borrowed for the call. */
	const char *user;
	int auth_code;		/**< gRPC status: a token came, and is none */
	uint64_t auth_revision; /**< of the auth store when the token was made */
};

/** What Authenticate hands out. */
enum rp_etcd_token {
	RP_ETCD_TOKEN_SIMPLE, /**< random; known to this node, lives on by being used */
	RP_ETCD_TOKEN_JWT_HS256,
	RP_ETCD_TOKEN_JWT_RS256,
};

enum rp_etcd_access {
	RP_ETCD_READ,
	RP_ETCD_WRITE,
};

/** grpc_status is 0 when it was done; then `result` is set (borrow), else `message`. */
typedef void (*rp_etcd_done_fn)(
	void *done_ctx, int grpc_status, const char *message, const struct rp_kv_result *result);

/** A put on /q/{name}/p/{tail}, an acknowledge, a get, a reject: one operation on one queue. */
enum rp_etcd_queue_op_type {
	RP_ETCD_QUEUE_PUT,    /**< name, tail, value */
	RP_ETCD_QUEUE_ACK,    /**< name, idx, tail, uuid, flags */
	RP_ETCD_QUEUE_GET,    /**< name, idx, tail, uuid, flags */
	RP_ETCD_QUEUE_REJECT, /**< name, idx, tail, uuid, flags; value = the reason, may be empty */
	RP_ETCD_QUEUE_CANCEL, /**< name, tail: every live message with that tail */
};

struct rp_etcd_queue_op {
	enum rp_etcd_queue_op_type type;
	struct rp_span name;
	uint32_t hash; /**< rp_queue_hash() of the name */
	struct rp_span tail;
	struct rp_span value;
	uint64_t idx;
	uint8_t uuid[RP_UUID_BYTES]; /**< who acknowledges; zeros with RP_ETCD_QUEUE_NO_HOLDER */
	uint8_t flags;		     /**< RP_ETCD_QUEUE_* below */
	struct rp_etcd_caller caller;
	uint64_t user; /**< the caller's name as a number; 0: auth is off */
};
/** The short form of a delivered key: the holder is not checked. */
#define RP_ETCD_QUEUE_NO_HOLDER RP_QMSG_NO_HOLDER
/** ACK: the message is wanted in the answer (prev_kv). */
#define RP_ETCD_QUEUE_WANT_MESSAGE RP_QMSG_WANT_MESSAGE

/** Answer to one operation. */
struct rp_etcd_queue_answer {
	enum rp_qstatus status;
	uint32_t deleted;      /**< ACK, CANCEL */
	const char *message;   /**< text for the client; NULL = made from status and queue name */
	bool has_message;      /**< GET, and ACK with WANT_MESSAGE: the fields below are set */
	struct rp_span value;  /**< borrow for the call */
	uint64_t mod_revision; /**< of its delivery; 0 when it was not delivered yet */
	uint32_t attempt;      /**< its version */
};

struct rp_etcd_consumer_open {
	struct rp_span name;
	uint32_t hash;
	uint8_t uuid[RP_UUID_BYTES];
	struct rp_span watched_key; /**< as the client spelled it, without a trailing '/' */
	int64_t start_revision;	    /**< 0 = a new life */
	struct rp_etcd_caller caller;
	uint64_t user; /**< as in struct rp_etcd_queue_op */
};

/** Why a consumer watch is over. */
enum rp_etcd_consumer_end {
	RP_ETCD_CONSUMER_CANCELLED, /**< its client cancelled the watch */
	RP_ETCD_CONSUMER_LOST,	    /**< stream or connection ended: resume_ms begins */
	RP_ETCD_CONSUMER_REPLACED,  /**< a second watch of the same uuid, here */
	RP_ETCD_CONSUMER_STOPPED,   /**< by this server; never a death of the consumer */
};

/** What the node that counts a lease says of it. */
enum rp_etcd_lease_state {
	RP_ETCD_LEASE_NONE,	 /**< it knows of none */
	RP_ETCD_LEASE_COUNTED,	 /**< ttl_s and left_s are set */
	RP_ETCD_LEASE_OVER,	 /**< its time is over, and it is not revoked yet */
	RP_ETCD_LEASE_MOVED,	 /**< another node counts it */
	RP_ETCD_LEASE_NO_ANSWER, /**< the node is not there, or does not answer in time */
};

struct rp_etcd_lease_time {
	enum rp_etcd_lease_state state;
	int64_t ttl_s, left_s; /**< as granted, and whole seconds left */
};

typedef void (*rp_etcd_lease_fn)(void *done_ctx, const struct rp_etcd_lease_time *time);

struct rp_etcd_member {
	uint64_t id;
	const char *name; /**< "" = not started */
	const char *const *peer_urls, *const *client_urls;
	uint32_t peer_url_count, client_url_count;
	bool is_learner;
};

struct rp_etcd_status {
	uint64_t leader; /**< a member id; 0 = none, which clients take as an outage */
	uint64_t raft_index, raft_applied_index;
	const char *const *errors; /**< extra lines for Status.errors; alarms are added here */
	uint32_t error_count;
	const char *unhealthy; /**< NULL, or why /health must say false */
};

/**
 * What the services need of the node. A callback that may be NULL says so. Those that return int
 * give 0 or a gRPC status (3, 7, 8, 9, 14 ...) with a text in *message.
 */
struct rp_etcd_backend {
	void *ctx;

	/**
	 * Applies the txn here and spreads it; `done` exactly once, also before it returns. The
	 * txn and all it points to stay until then.
	 */
	void (*propose)(
		void *ctx, const struct rp_kv_txn *txn, rp_etcd_done_fn done, void *done_ctx);

	/**
	 * May the caller do that to [key, end)? NULL = yes. Called for each part of a txn, with
	 * keys as the client spelled them: /queue/... and /q/... are one (route/key.h).
	 */
	int (*check)(void *ctx, enum rp_etcd_access access, struct rp_span key, struct rp_span end,
		const struct rp_etcd_caller *caller, const char **message);

	/**
	 * One operation on a queue. 0: rp_etcd_queue_answer() follows with the token. -EAGAIN: the
	 * ring has no room; the call waits and is tried again by rp_etcd_run().
	 */
	int (*queue_op)(void *ctx, const struct rp_etcd_queue_op *op, uint64_t token);
	/**
	 * Several operations on one queue, all or none; answered by rp_etcd_queue_batch_answer().
	 * NULL: a txn with more than one queue operation is refused. As queue_op otherwise.
	 */
	int (*queue_batch)(
		void *ctx, const struct rp_etcd_queue_op *ops, uint32_t count, uint64_t token);

	/**
	 * A client's write to a record key: value = its put, or data NULL = a delete. A consumer's
	 * record may carry a lease (it exists, or the answer says so), and goes with it. The
	 * backend merges fields, re-elects, takes a consumer out (spec/queues.md, Records), and
	 * calls `done` as propose does, with a result of one put or delete. NULL: records are
	 * written as ordinary keys.
	 */
	void (*record_write)(void *ctx, const struct rp_route_key *key, struct rp_span value,
		int64_t lease, bool prev_kv, const struct rp_etcd_caller *caller,
		rp_etcd_done_fn done, void *done_ctx);

	/**
	 * A consumer arrived. 0: it is open, *revision is its first header's: below every delivery
	 * that follows, not below any that was before start_revision. Otherwise non-zero, and
	 * *reason is the watch's cancel_reason. `consumer` names it from now on.
	 */
	int (*consumer_open)(void *ctx, const struct rp_etcd_consumer_open *open, uint64_t consumer,
		int64_t *revision, const char **reason);
	void (*consumer_close)(void *ctx, uint64_t consumer, enum rp_etcd_consumer_end why);
	/** The last byte of that delivery's event is in the client's socket: ACCEPTED. */
	void (*consumer_accepted)(void *ctx, uint64_t consumer, uint64_t idx, int64_t mod_revision);
	/** A delivery that was refused with -EAGAIN would be taken now. */
	void (*consumer_room)(void *ctx, uint64_t consumer);

	/**
	 * Asks the node that counts a lease for its time, and has it counted anew with `renew`
	 * (peer.h: Lease); `done` exactly once, also before it returns. NULL: no node can be asked.
	 */
	void (*lease_ask)(void *ctx, uint64_t node, int64_t lease, bool renew,
		rp_etcd_lease_fn done, void *done_ctx);

	/** The members, this node included; borrow until the next call. Returns their count. */
	uint32_t (*members)(void *ctx, const struct rp_etcd_member **members);
	/** Announces a member by its peer URLs; NULL = refused as not supported. */
	int (*member_add)(void *ctx, const char *const *peer_urls, uint32_t count, bool is_learner,
		const struct rp_etcd_caller *caller, struct rp_etcd_member *member,
		const char **message);
	/** Takes a member out: this node peers with it no more. NULL as member_add. */
	int (*member_remove)(
		void *ctx, uint64_t id, const struct rp_etcd_caller *caller, const char **message);
	/** Its peer URLs are others from now on, checked by form. NULL as member_add. */
	int (*member_update)(void *ctx, uint64_t id, const char *const *peer_urls, uint32_t count,
		const struct rp_etcd_caller *caller, const char **message);
	void (*status)(void *ctx, struct rp_etcd_status *status);
	/** Monotonic time of this turn; NULL = that of the last rp_etcd_run(). */
	uint64_t (*now_ns)(void *ctx);

	/** ringpost.v1.Peer, server side (peer.h); NULL = UNIMPLEMENTED. */
	const struct rp_etcd_peer_backend *peer;
	/** ringpost.v1.Process (process.h); NULL = UNIMPLEMENTED. */
	const struct rp_etcd_process_backend *process;
};

struct rp_etcd_config {
	struct rp_kv *kv;		       /**< borrow */
	struct rp_grpc_server *server;	       /**< borrow; not serving yet */
	const struct rp_etcd_backend *backend; /**< borrow; outlives the services */
	uint64_t cluster_id, member_id;	       /**< non-zero, the same after a restart */
	uint64_t raft_term;		       /**< non-zero; rp_etcd_set_term() changes it */
	uint32_t request_bytes_max;	       /**< 0 = 1572864 */
	uint32_t watches_per_stream_max;       /**< 0 = 65536 */
	uint32_t waiting_calls_max;    /**< calls that wait for a ring or a write; 0 = 65536 */
	uint64_t progress_interval_ns; /**< 0 = 10 minutes */

	enum rp_etcd_token token;
	uint64_t token_ttl_ns; /**< 0 = 300 s */
	uint32_t bcrypt_cost;  /**< 4 to 31; 0 = 10 */
	bool client_cert_auth; /**< without a token the CN of a verified certificate is the user */
	/** Files: PEM for RS256, bytes for HS256 (private). Without a private key none are signed.
	 */
	const char *jwt_private_key, *jwt_public_key;
};

struct rp_etcd_stats {
	uint64_t watch_streams, watches, consumers;
	uint64_t calls_waiting; /**< for the backend */
	uint64_t ranges, puts, deletes, txns, compactions, watch_creates, watch_refusals;
	uint64_t lease_grants, lease_revokes, lease_keepalives, lease_streams;
	uint64_t auth_tokens; /**< that are good now */
	uint64_t authenticated, auth_failed, auth_denied, auth_bad_tokens;
	uint64_t locks, campaigns, contests; /**< `contests`: locks and campaigns open now */
	uint64_t queue_puts, queue_acks, queue_gets, queue_rejects, queue_cancels;
	uint64_t queue_refused;	  /**< answers with another status than OK */
	uint64_t deliveries_sent; /**< events written to consumer watches */
	uint64_t deliveries_no_room;
	uint64_t withdrawals_sent;
	uint64_t runs, runs_refused, runs_failed, run_outputs;
	uint64_t workers;	  /**< of Work, now */
	uint64_t answers_dropped; /**< answers whose call had gone */
	uint64_t policy_refused;  /**< calls, and watches that were ended */
	uint64_t malformed;	  /**< messages that did not decode */
	uint64_t peer_unproved;	  /**< x-peer on a connection that has not proved itself */
};

/** NULL and errno. */
struct rp_etcd *rp_etcd_create(const struct rp_etcd_config *config);
/**
 * Frees what is left. The server has been destroyed before, and the backend answers nothing any
 * more: what it still held of requests is gone. NULL is fine.
 */
void rp_etcd_destroy(struct rp_etcd *e);
void rp_etcd_set_term(struct rp_etcd *e, uint64_t raft_term);
/** Member and cluster id may change only before the first call. */
void rp_etcd_set_limits(struct rp_etcd *e, uint32_t request_bytes_max);
/**
 * borrow, until the next one: asked for each key and range of a call (spec/cluster.md, Policy).
 * Watches that are open and would be refused now end with what a new one would be told. NULL: all
 * is allowed, which is how it begins.
 */
void rp_etcd_set_policy(struct rp_etcd *e, const struct rp_policy *policy);
/** Of tokens that are made, or of simple ones used, from now on. 0 = 300 s. */
void rp_etcd_set_token_ttl(struct rp_etcd *e, uint64_t token_ttl_ns);

/**
 * Timers, waiting calls, compactions that are waited for. Returns when it wants to be called again
 * at the latest (RP_NEVER = no wish); the store's own rp_kv_step() is the caller's matter.
 */
uint64_t rp_etcd_run(struct rp_etcd *e, uint64_t now_ns);
/** Refuses new writes and ends watch streams, UNAVAILABLE "etcdserver: server stopped". */
void rp_etcd_stop(struct rp_etcd *e);

void rp_etcd_stats_get(const struct rp_etcd *e, struct rp_etcd_stats *stats);
/**
 * Calls of clients by the version that they say (metadata client-api-version): "unknown" without
 * one, "other" beyond the first few versions. A version is letters, digits and "._-+" only.
 */
void rp_etcd_each_client(const struct rp_etcd *e,
	void (*fn)(void *ctx, const char *version, bool stream, uint64_t requests), void *ctx);

/** The gRPC status that a client is told. */
int rp_etcd_qstatus_code(enum rp_qstatus status);
/** Answers an operation; a token that is unknown (its call was cancelled) is counted. */
void rp_etcd_queue_answer(
	struct rp_etcd *e, uint64_t token, const struct rp_etcd_queue_answer *answer);
/** One answer an operation, in order; `status` is OK or the refusal of the whole. */
void rp_etcd_queue_batch_answer(struct rp_etcd *e, uint64_t token, enum rp_qstatus status,
	const char *message, const struct rp_etcd_queue_answer *answers, uint32_t count);

struct rp_etcd_delivery {
	uint64_t idx;
	struct rp_span tail;
	const struct rp_span *value; /**< in pieces; copied */
	uint32_t value_count;
	int64_t mod_revision; /**< above every earlier one of this uuid, below 2^53 */
	uint32_t attempt;     /**< from 1 */
	/* Of a process request; all 0 of a plain message. */
	uint64_t request;
	uint64_t left_us; /**< of its time */
	uint8_t priority;
	uint32_t max_bytes; /**< of an output; 0: none */
};

/**
 * Writes a delivery's PUT event into the consumer's watch. 0: it goes out, with HTTP/2 window to
 * spare; consumer_accepted() follows when the socket has it, or consumer_close(). -EAGAIN: no room,
 * nothing sent; consumer_room() follows. -ENOENT: no such consumer any more. -EINVAL: mod_revision
 * does not rise, or the key is too long.
 */
int rp_etcd_consumer_deliver(
	struct rp_etcd *e, uint64_t consumer, const struct rp_etcd_delivery *delivery);
/** The DELETE event on a delivered key. As above, but sent whatever room there is. */
int rp_etcd_consumer_withdraw(struct rp_etcd *e, uint64_t consumer, uint64_t idx,
	struct rp_span tail, int64_t mod_revision);
/** Ends a consumer's watch from here with a cancel_reason; consumer_close() is not called. */
void rp_etcd_consumer_end(struct rp_etcd *e, uint64_t consumer, const char *reason);
