/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * ringpost.v1.Peer, the calls between control threads: the server side's callbacks, and the codec
 * that the client side uses (proto/ringpost.proto).
 *
 *   1. The server: fill struct rp_etcd_peer_backend; each callback gets a token and answers by
 *      rp_etcd_peer_answer() with bytes made by one of the encoders below.
 *   2. The client: encode a request, call RP_ETCD_PEER_PATH_*, decode the answer.
 *
 * Prove is the only call that a connection may make before it has proved itself; the backend says
 * in its answer whether it has. All others are refused with PERMISSION_DENIED until then.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/units.h>
#include <kv/kv.h>

struct rp_etcd;

#define RP_ETCD_PEER_PATH_PROVE "/ringpost.v1.Peer/Prove"
#define RP_ETCD_PEER_PATH_APPLY "/ringpost.v1.Peer/Apply"
#define RP_ETCD_PEER_PATH_SYNC "/ringpost.v1.Peer/Sync"
#define RP_ETCD_PEER_PATH_DELIVER_ONE "/ringpost.v1.Peer/DeliverOne"

/** Prove: whose connection it is and the bytes of the handshake, opaque here. */
struct rp_etcd_peer_prove {
	uint64_t node;
	struct rp_span cluster; /**< uuid, 16 bytes */
	struct rp_span frame;
};

/** Apply: writes of one node, and of others that it passes on. */
struct rp_etcd_peer_apply {
	uint64_t node; /**< the sender */
	const struct rp_kv_record *records;
	uint32_t record_count;
};

/** Sync: one page of the records, or of digests of ranges of them. */
struct rp_etcd_peer_sync {
	uint64_t node;
	struct rp_span from; /**< the page begins behind this key; empty = at the first */
	struct rp_span end;  /**< and stays below this one; empty = no bound */
	uint32_t limit;	     /**< most records of the page; 0 = the server's own */
	uint64_t since;	     /**< only records with a stamp of at least this */
	bool digest_only;    /**< the digest of the whole range instead of records */
};

struct rp_etcd_peer_page {
	const struct rp_kv_record *records;
	uint32_t record_count;
	bool more;
	uint64_t digest; /**< of the range asked for */
	uint64_t count;	 /**< records that it covers */
	uint64_t stamp;	 /**< the server's hybrid logical clock */
};

struct rp_etcd_peer_backend {
	void *ctx;
	/** `connection` is the same for all calls of one connection. */
	void (*prove)(void *ctx, uint64_t token, uint64_t connection,
		const struct rp_etcd_peer_prove *prove);
	void (*apply)(void *ctx, uint64_t token, const struct rp_etcd_peer_apply *apply);
	void (*sync)(void *ctx, uint64_t token, const struct rp_etcd_peer_sync *sync);
	/** A frame by the unary path; the answer is a frame too. */
	void (*deliver_one)(void *ctx, uint64_t token, uint64_t node, struct rp_span frame);
};

/** Answers with an encoded message (copied), or with an error. Unknown tokens are counted. */
void rp_etcd_peer_answer(struct rp_etcd *e, uint64_t token, const void *message, size_t length);
void rp_etcd_peer_fail(struct rp_etcd *e, uint64_t token, int grpc_status, const char *text);
/** The answer to Prove, with the verdict: the connection is a peer's from now on. */
void rp_etcd_peer_proved(
	struct rp_etcd *e, uint64_t token, uint64_t node, const void *message, size_t length);

/*
 * Encoders return a malloc'd message and its length, for free(); NULL only for want of memory.
 * Decoders return NULL and EBADMSG, or an object whose spans borrow from it, freed by
 * rp_etcd_peer_free().
 */
void *rp_etcd_peer_encode_prove(const struct rp_etcd_peer_prove *prove, size_t *length);
void *rp_etcd_peer_encode_apply(const struct rp_etcd_peer_apply *apply, size_t *length);
void *rp_etcd_peer_encode_sync(const struct rp_etcd_peer_sync *sync, size_t *length);
void *rp_etcd_peer_encode_deliver_one(uint64_t node, struct rp_span frame, size_t *length);
/** Answers: to Prove and DeliverOne a frame, to Apply a count, to Sync a page. */
void *rp_etcd_peer_encode_frame(struct rp_span frame, size_t *length);
void *rp_etcd_peer_encode_applied(uint64_t stamp, uint32_t applied, size_t *length);
void *rp_etcd_peer_encode_page(const struct rp_etcd_peer_page *page, size_t *length);

struct rp_etcd_peer_message {
	struct rp_span frame;
	uint64_t stamp;
	uint32_t applied;
	struct rp_etcd_peer_page page;
};
struct rp_etcd_peer_message *rp_etcd_peer_decode_frame(const void *data, size_t length);
struct rp_etcd_peer_message *rp_etcd_peer_decode_applied(const void *data, size_t length);
struct rp_etcd_peer_message *rp_etcd_peer_decode_page(const void *data, size_t length);
void rp_etcd_peer_free(struct rp_etcd_peer_message *m);
