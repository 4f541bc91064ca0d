/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What Lock and Campaign have in common (spec/etcd-semantics.md section 8): a key under a prefix,
 * bound to a lease; the lowest create_revision wins, the others wait, each for the one before it.
 *
 *   GRANT    a lease of 60 s, when the caller brought none
 *   ENTER    the txn that puts the key, or finds it there already
 *   PROCLAIM a campaign with another value than the key has
 *   WAIT     a watch on the one key before ours; no polling
 *   LEAVE    the call is gone: our key is deleted
 *
 * Its keys are ordinary keys. Errors of the store come out as UNKNOWN with the store's text, since
 * etcd's own services reach the store as a client.
 */

#include "etcd_priv.h"

#define ETCD_CONTEST_TTL_S 60

enum etcd_contest_state {
	ETCD_CONTEST_GRANT,
	ETCD_CONTEST_ENTER,
	ETCD_CONTEST_PROCLAIM,
	ETCD_CONTEST_WAIT,
	ETCD_CONTEST_LEAVE,
};

struct etcd_contest;

struct etcd_contest_ops {
	/** Won: answer the call. */
	void (*won)(struct etcd_contest *c);
	/** Set for a campaign: another value in a key that is there is replaced. */
	bool proclaims;
	/** Set for a lock: our key must still be there when we have waited. */
	const char *lost_text;
};

struct etcd_contest {
	struct rp_list link;	   /**< on e->contests */
	struct rp_list ready_link; /**< on e->contests_ready: the key before ours has gone */
	struct rp_etcd *e;
	struct rp_grpc_call *call; /**< NULL: gone */
	const struct etcd_contest_ops *ops;
	enum etcd_contest_state state;
	struct etcd_arena arena;
	struct rp_span name, prefix, key, value; /**< in the arena */
	int64_t lease;
	int64_t revision;	 /**< create_revision of our key */
	int64_t header_revision; /**< of the answer */
	struct rp_kv_watcher *watcher;
	struct rp_kv_compare compare; /**< of the txn that is out */
	struct rp_kv_op op, other;
	struct rp_kv_system_op system;
	struct rp_kv_txn txn;
};

/** Begins; the call is answered by ops->won() or an error. Spans are copied. */
void etcd_contest_begin(struct rp_etcd *e, struct rp_grpc_call *call,
	const struct etcd_contest_ops *ops, struct rp_span name, struct rp_span value,
	int64_t lease);
/** Answers with `m` and ends. */
void etcd_contest_reply(struct etcd_contest *c, const ProtobufCMessage *m);
void etcd_contest_on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx);

/** name + "/", in the arena. */
struct rp_span etcd_contest_prefix(struct etcd_arena *a, struct rp_span name);
/** The end of the range of a prefix, in the arena. */
struct rp_span etcd_contest_end(struct etcd_arena *a, struct rp_span prefix);
/** The key with the lowest create_revision under the prefix: a reference, or NULL. */
struct rp_kv_version *etcd_contest_leader(struct rp_etcd *e, struct rp_span prefix);
/** Whether the caller may do that, and the key is an ordinary one; refuses with UNKNOWN. */
bool etcd_contest_refused(struct rp_etcd *e, struct rp_grpc_call *call, enum rp_etcd_access access,
	struct rp_span key, struct rp_span end);
