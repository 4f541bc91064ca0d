/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A queue message between nodes, as `queue` and `deliver` exchange it: `queue` decides what is said
 * to whom, `deliver` carries it (streams, credit, chunks, or the unary fallback). The byte layout
 * on the wire is in docs/protocol.md.
 *
 * Payload is always the tail followed by the value in one mbuf chain; the first `tail_length` bytes
 * lie in the first segment.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <base/units.h>

struct rte_mbuf;

#define RP_QMSG_TYPES(X)                                                                        \
	/* producer's node -> dispatcher: index this. Answered by TOOK (indexed) or REFUSED */  \
	X(FORWARD)                                                                              \
	/* dispatcher -> consumer's node: offer this. TOOK = that node has it */                \
	X(DELIVER)                                                                              \
	/* consumer's node -> dispatcher: the client has it; mod_revision is the event's */     \
	X(ACCEPTED)                                                                             \
	/* consumer's node -> dispatcher: not with this consumer, `status` says why */          \
	X(REJECTED)                                                                             \
	/* any -> dispatcher: acknowledge idx held by uuid; answered by REPLY with the token */ \
	X(QACK)                                                                                 \
	/* any -> dispatcher: the message idx, while it is held; answered by REPLY */           \
	X(GET)                                                                                  \
	/* dispatcher -> asker: status, deleted count, the message where asked */               \
	X(REPLY)                                                                                \
	/* answer to a frame with an old (epoch, dispatcher): the current one is inside */      \
	X(MOVED)                                                                                \
	/* dispatcher -> consumer's node: withdraw idx from uuid (DELETE event) */              \
	X(WITHDRAW)                                                                             \
	/* consumer's node -> dispatcher: uuid came back, or is new (start_revision) */         \
	X(RESUME)                                                                               \
	/* dispatcher -> the next one: take over; or (RESUMES) you have all that was here */    \
	X(HANDOVER)                                                                             \
	/* node that hosts consumers -> dispatcher: let me have the queue, if you host none */  \
	X(CLAIM)

enum rp_qmsg_type {
#define X(name) RP_QMSG_##name,
	RP_QMSG_TYPES(X)
#undef X
		RP_QMSG_TYPE_COUNT,
};

/** Outcome of a queue operation, on the wire and across the planes; etcd turns it into a status. */
#define RP_QSTATUSES(X)                                          \
	X(OK, "ok")                                              \
	X(TOO_LARGE, "etcdserver: request is too large")         \
	X(QUEUE_DEPTH, "queue is full: limits.queue_depth")      \
	X(QUEUE_BYTES, "queue is full: limits.queue_bytes")      \
	X(NO_DISPATCHER, "no dispatcher can be reached")         \
	X(NO_CONSUMER, "no consumer")                            \
	X(NOT_HOLDER, "the message is held by another consumer") \
	X(NOT_FOUND, "no such message")                          \
	X(MOVED, "the dispatcher has moved")                     \
	X(DUPLICATE, "already taken")                            \
	X(STALL, "the consumer did not accept in time")          \
	X(REJECT, "rejected by the consumer")                    \
	X(STOPPING, "the node is stopping or draining")          \
	X(LIMIT, "out of streams, queues or buffers")            \
	X(UNREACHABLE, "the peer cannot be reached")             \
	X(INVALID, "malformed")                                  \
	X(QUEUE_BUFFERS, "queue is full: dpdk.memory_mib")

enum rp_qstatus {
#define X(name, text) RP_Q_##name,
	RP_QSTATUSES(X)
#undef X
		RP_QSTATUS_COUNT,
};

const char *rp_qstatus_name(enum rp_qstatus status);
const char *rp_qstatus_text(enum rp_qstatus status);
const char *rp_qmsg_type_name(enum rp_qmsg_type type);

/** GET and QACK: the message itself is wanted in the REPLY. */
#define RP_QMSG_WANT_MESSAGE 0x01
/** FORWARD: it ended in another queue, and this one is for such. */
#define RP_QMSG_LETTER 0x01
/** RESUME: only its life is another one, for another dispatcher's sake: it has what it had. */
#define RP_QMSG_KEEPS 0x01
/** RESUME: the consumer came back (else: a new life). HANDOVER: everything was handed over. */
#define RP_QMSG_RESUMES 0x02
/** FORWARD: it may have been sent before (a lost stream's tail, a move). */
#define RP_QMSG_REPEAT 0x04
/** QACK and GET in the short form, without a holder to check. */
#define RP_QMSG_NO_HOLDER 0x08

/** What a dead letter has in front of the value that it had: above limits.message_bytes. */
#define RP_LETTER_HEAD_BYTES_MAX 4096

struct rp_qmsg {
	enum rp_qmsg_type type;
	uint8_t flags;
	enum rp_qstatus status;
	uint16_t name_length;
	uint16_t tail_length;
	const uint8_t *name;	     /**< the queue's; borrow: valid for the call */
	uint32_t hash;		     /**< rp_queue_hash() of the name */
	uint32_t epoch;		     /**< of the queue, as the sender knows it; 0 = none */
	uint64_t dispatcher;	     /**< node id, as the sender knows it; 0 = none */
	uint64_t idx;		     /**< epoch (24 bits) and sequence (40 bits) */
	uint64_t alloc_node;	     /**< the node that allocated idx */
	uint8_t uuid[RP_UUID_BYTES]; /**< the consumer */
	uint64_t producer_node, producer_boot, producer_seq; /**< identity of a forward */
	uint64_t token;					     /**< of the asker; echoed by REPLY */
	uint64_t mod_revision;	  /**< of the event; RESUME: start_revision */
	uint64_t holder_node;	  /**< FORWARD of a bound message: where its consumer is */
	uint64_t holder_life;	  /**< ... and which life of it holds the message */
	uint64_t age_us;	  /**< FORWARD: since it was put, as far as it was measured */
	uint32_t attempt;	  /**< delivery attempt, from 1 */
	uint32_t deliveries;	  /**< FORWARD of what was indexed: attempts that a client saw */
	uint32_t count;		  /**< REPLY: deleted */
	struct rte_mbuf *payload; /**< tail, then value; NULL where the type has none */
	uint64_t cookie;	  /**< the sender's own; comes back with on_took and the like */
};

/** A message that names no consumer. */
static inline bool rp_uuid_is_zero(const uint8_t uuid[RP_UUID_BYTES])
{
	static const uint8_t zero[RP_UUID_BYTES];

	return memcmp(uuid, zero, RP_UUID_BYTES) == 0;
}

/** CRC32C of a queue's name: the same on every node. Picks the shard and the link. */
uint32_t rp_queue_hash(const void *name, size_t length);

/** (hash * n) >> 32: shard of n shards, or link of n links. */
static inline uint32_t rp_hash_pick(uint32_t hash, uint32_t n)
{
	return (uint32_t)(((uint64_t)hash * n) >> 32);
}
