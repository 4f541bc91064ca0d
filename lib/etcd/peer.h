/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * ringpost.v1.Peer, the calls between control threads (proto/ringpost/v1/peer.proto): the server
 * side's callbacks, and the codec of what is not replication's own.
 *
 *   1. The server: fill struct rp_etcd_peer_backend. Each callback gets a token and is answered
 *      once, at once or later: by rp_etcd_peer_proved(), _answer() or _fail(). Lease is answered
 *      here, from the store.
 *   2. The client: encode, call RP_ETCD_PEER_PATH_*, decode. The messages of Apply and Sync are
 *      bytes here; lib/repl makes and reads them.
 *
 * Prove is the only call that a connection may make before it has proved itself. All others are
 * refused with PERMISSION_DENIED until then, and counted.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/units.h>

struct rp_etcd;
struct rp_etcd_lease_time;

#define RP_ETCD_PEER_PATH_PROVE "/ringpost.v1.Peer/Prove"
#define RP_ETCD_PEER_PATH_APPLY "/ringpost.v1.Peer/Apply"
#define RP_ETCD_PEER_PATH_SYNC "/ringpost.v1.Peer/Sync"
#define RP_ETCD_PEER_PATH_DELIVER_ONE "/ringpost.v1.Peer/DeliverOne"
#define RP_ETCD_PEER_PATH_DELIVER "/ringpost.v1.Peer/Deliver"
#define RP_ETCD_PEER_PATH_LEASE "/ringpost.v1.Peer/Lease"

/** Prove: who calls, and a step of the handshake, opaque here. */
struct rp_etcd_peer_prove {
	uint64_t node;
	struct rp_span cluster; /**< uuid, 16 bytes */
	struct rp_span frame;
	const char
		*address; /**< of the caller, "10.0.0.1:4711" or "unix"; server side only, borrow */
};

struct rp_etcd_peer_prove_reply {
	struct rp_span frame;
	bool proved;
	uint64_t node; /**< the server's */
};

/** Spans are borrowed for the call. `node` is the one that the connection has proved to be. */
struct rp_etcd_peer_backend {
	void *ctx;
	/**
	 * `connection` is non-zero and the same for all calls of one connection: the state of a
	 * handshake of several steps hangs on it. connection_closed() ends it.
	 */
	void (*prove)(void *ctx, uint64_t token, uint64_t connection,
		const struct rp_etcd_peer_prove *prove);
	void (*connection_closed)(void *ctx, uint64_t connection); /**< may be NULL */
	void (*apply)(void *ctx, uint64_t token, uint64_t node, struct rp_span message);
	void (*sync)(void *ctx, uint64_t token, uint64_t node, struct rp_span message);
	/** A frame by the unary path; the answer is a frame too. */
	void (*deliver_one)(void *ctx, uint64_t token, uint64_t node, struct rp_span frame);
};

/**
 * Answers Apply and Sync with a message, DeliverOne with a frame; copied. An unknown token (the
 * call was cancelled) is counted.
 */
void rp_etcd_peer_answer(struct rp_etcd *e, uint64_t token, struct rp_span answer);
/** Answers any of them with an error; `text` is copied. */
void rp_etcd_peer_fail(struct rp_etcd *e, uint64_t token, int grpc_status, const char *text);
/**
 * Answers Prove. With `proved` the connection is that of `peer_node` from now on, until it closes;
 * reply->node is this node.
 */
void rp_etcd_peer_proved(struct rp_etcd *e, uint64_t token, uint64_t peer_node,
	const struct rp_etcd_peer_prove_reply *reply);

/* Encoders return a malloc'd message (free it) and its length. */
void *rp_etcd_peer_encode_prove(const struct rp_etcd_peer_prove *prove, size_t *length);
void *rp_etcd_peer_encode_prove_reply(const struct rp_etcd_peer_prove_reply *reply, size_t *length);
void *rp_etcd_peer_encode_frame(struct rp_span frame, size_t *length);

void *rp_etcd_peer_encode_lease_ask(int64_t lease, bool renew, size_t *length);

/* Decoders fill spans that point into `data`; 0 or -EBADMSG. */
int rp_etcd_peer_decode_prove(struct rp_span data, struct rp_etcd_peer_prove *out);
int rp_etcd_peer_decode_prove_reply(struct rp_span data, struct rp_etcd_peer_prove_reply *out);
int rp_etcd_peer_decode_frame(struct rp_span data, struct rp_span *frame);
int rp_etcd_peer_decode_lease_time(struct rp_span data, struct rp_etcd_lease_time *out);

/** What a dialling node wants from Maintenance.Status: node id and cluster id. 0 or -EBADMSG. */
int rp_etcd_peer_decode_status(struct rp_span data, uint64_t *member_id, uint64_t *cluster_id);
