/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A queue message between nodes, as `queue` and `deliver` exchange it: `queue` decides what is said
 * to whom, `deliver` carries it (streams, credit, chunks, or the unary fallback). The byte layout
 * on the wire is in docs/protocol.md.
 *
 * Payload is always the tail followed by the value in one mbuf chain, with the meta of a process
 * request between them; tail and meta lie in the first segment.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <base/units.h>

struct rte_mbuf;

#define RP_QMSG_TYPES(X)                                                                         \
	/* producer's node -> dispatcher: index this. Answered by TOOK (indexed) or REFUSED */   \
	X(FORWARD)                                                                               \
	/* dispatcher -> consumer's node: offer this. TOOK = that node has it */                 \
	X(DELIVER)                                                                               \
	/* consumer's node -> dispatcher: the client has it; mod_revision is the event's */      \
	X(ACCEPTED)                                                                              \
	/* consumer's node -> dispatcher: not with this consumer, `status` says why */           \
	X(REJECTED)                                                                              \
	/* any -> dispatcher: acknowledge idx held by uuid; answered by REPLY with the token */  \
	X(QACK)                                                                                  \
	/* any -> dispatcher: the message idx, while it is held; answered by REPLY */            \
	X(GET)                                                                                   \
	/* dispatcher -> asker: status, deleted count, the message where asked */                \
	X(REPLY)                                                                                 \
	/* answer to a frame with an old (epoch, dispatcher): the current one is inside */       \
	X(MOVED)                                                                                 \
	/* dispatcher -> consumer's node: withdraw idx from uuid (DELETE event) */               \
	X(WITHDRAW)                                                                              \
	/* consumer's node -> dispatcher: uuid came back, or is new (start_revision) */          \
	X(RESUME)                                                                                \
	/* dispatcher -> the next one: take over; or (RESUMES) you have all that was here */     \
	X(HANDOVER)                                                                              \
	/* node that hosts consumers -> dispatcher: let me have the queue, if you host none */   \
	X(CLAIM)                                                                                 \
	/* any -> dispatcher: end the requests of that tail; answered by REPLY with the token */ \
	X(CANCEL)

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
	X(QUEUE_BUFFERS, "queue is full: dpdk.memory_mib")       \
	X(EXISTS, "a live request has this reply queue and key") \
	X(DEADLINE, "the deadline has passed")                   \
	X(NOT_LIVE, "the request is over, or not held here")     \
	X(BUSY, "the requester does not read")                   \
	X(INCAPABLE, "no consumer has what the request needs")   \
	X(APART, "zones disagree: its dispatcher is out of reach of this node's zone")

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
/** ACCEPTED: of a process request, whose worker has begun to answer. */
#define RP_QMSG_BEGUN 0x01
/** REJECTED without idx: its time to come back was over before. */
#define RP_QMSG_WAITED 0x01
/** REJECTED without idx: whether it had begun to answer what it held is not told. */
#define RP_QMSG_DOUBT 0x02
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

/** What a message has to do with a process request. */
#define RP_PROCESS_KINDS(X)                                                   \
	X(PLAIN)   /* nothing */                                              \
	X(REQUEST) /* it is one */                                            \
	X(OPEN)	   /* to the reply queue: outputs will come with this tail */ \
	X(OUTPUT)  /* to the reply queue: one of them */                      \
	X(END)	   /* to the reply queue: the last, or why there is none */   \
	X(CLOSE)   /* to the reply queue: none will come */                   \
	X(PROBE)   /* to the reply queue: is there room for outputs? */

enum rp_process_kind {
#define X(name) RP_PROCESS_##name,
	RP_PROCESS_KINDS(X)
#undef X
		RP_PROCESS_KIND_COUNT,
};

/** Most bytes of the meta of a process request. */
#define RP_QMSG_META_BYTES_MAX 640

/** A request may have at most so much time: 2^40 ms. */
#define RP_PROCESS_LEFT_US_MAX ((1ull << 40) * 1000)

/** No capable consumer: refused rather than kept. */
#define RP_PROCESS_FAIL_FAST 0x01
/** Its worker has begun to answer: it is not offered to another one any more. */
#define RP_PROCESS_BEGUN 0x02
/** OPEN: events go to the control thread of the node that dispatches the reply queue. */
#define RP_PROCESS_NATIVE 0x04
/** Somebody waits for an answer: the meta names a reply queue. */
#define RP_PROCESS_REPLY 0x08
/** `priority` is its own, not its queue's. */
#define RP_PROCESS_PRIORITY 0x10

/** FORWARD and DELIVER: the part of a process request; all zero in any other message. */
struct rp_qmsg_process {
	uint64_t request; /**< names it; made by the requester's node */
	/** Time left at `left_ns` of the sender's clock, which does not travel. */
	uint64_t left_us, left_ns;
	uint16_t meta_length; /**< of process/meta.h, between tail and value */
	uint8_t kind;	      /**< enum rp_process_kind */
	uint8_t priority;     /**< 0..9 */
	uint8_t flags;	      /**< RP_PROCESS_ */
};

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
	uint64_t mod_revision; /**< of the event; RESUME: start_revision */
	uint64_t holder_node;  /**< FORWARD of a bound message: where its consumer is */
	uint64_t holder_life;  /**< ... and which life of it holds the message */
	uint64_t age_us;       /**< FORWARD: since it was put, as far as it was measured */
	uint32_t attempt;      /**< delivery attempt, from 1 */
	uint32_t deliveries;   /**< FORWARD of what was indexed: attempts that a client saw */
	uint32_t count;	       /**< REPLY: deleted */
	struct rp_qmsg_process process;
	struct rte_mbuf *payload; /**< tail, then value; NULL where the type has none */
	uint64_t cookie;	  /**< the sender's own; comes back with on_took and the like */
};

/** What stands before the value in the payload, all of it in the first segment. */
static inline uint32_t rp_qmsg_head_bytes(const struct rp_qmsg *m)
{
	return (uint32_t)m->tail_length + m->process.meta_length;
}

/**
 * What is left of `left_us`, which was so at `since_ns`, at `now_ns` of the same clock: each step
 * takes at least a microsecond, whatever the clock says, so that it never grows. 0: it is over.
 */
static inline uint64_t rp_process_left_us(uint64_t left_us, uint64_t since_ns, uint64_t now_ns)
{
	uint64_t ns = (int64_t)(now_ns - since_ns) > 0 ? now_ns - since_ns : 0;
	uint64_t us = ns / RP_NS_PER_US + 1;

	return left_us > us ? left_us - us : 0;
}

/** A message that names no consumer. */
static inline bool rp_uuid_is_zero(const uint8_t uuid[RP_UUID_BYTES])
{
	static const uint8_t zero[RP_UUID_BYTES];

	return memcmp(uuid, zero, RP_UUID_BYTES) == 0;
}

/** What rp_queue_hash() is, for any processor. */
uint32_t rp_queue_hash_portable(const void *name, size_t length);

/** CRC32C of a queue's name: the same on every node. Picks the shard and the link. */
static inline uint32_t rp_queue_hash(const void *name, size_t length)
{
#ifdef __SSE4_2__
	const uint8_t *p = name;
	uint64_t crc = 0xffffffff, eight;
	uint32_t four;
	uint16_t two;

	for (; length >= sizeof(eight); length -= sizeof(eight), p += sizeof(eight)) {
		memcpy(&eight, p, sizeof(eight));
		crc = __builtin_ia32_crc32di(crc, eight);
	}
	if (length & 4) {
		memcpy(&four, p, sizeof(four));
		crc = __builtin_ia32_crc32si((uint32_t)crc, four);
		p += sizeof(four);
	}
	if (length & 2) {
		memcpy(&two, p, sizeof(two));
		crc = __builtin_ia32_crc32hi((uint32_t)crc, two);
		p += sizeof(two);
	}
	if (length & 1)
		crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
	return ~(uint32_t)crc;
#else
	return rp_queue_hash_portable(name, length);
#endif
}

/** (hash * n) >> 32: shard of n shards, or link of n links. */
static inline uint32_t rp_hash_pick(uint32_t hash, uint32_t n)
{
	return (uint32_t)(((uint64_t)hash * n) >> 32);
}
