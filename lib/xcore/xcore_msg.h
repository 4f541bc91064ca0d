/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The whole contract between the planes, and between shards: every message that crosses a ring.
 * Messages travel by value; an mbuf chain in `m` changes its owner with them (take) and is freed
 * where it lands.
 *
 * Where a type says "m = name, tail, value" the chain starts with `name_length` bytes of queue
 * name, then `tail_length` bytes of tail, both in the first segment; the rest is the value.
 */

#include <stddef.h>
#include <stdint.h>

#include <base/assert.h>
#include <base/qmsg.h>
#include <base/units.h>
#include <route/record.h>

struct rte_mbuf;

/* clang-format off */
/* X(name, class): class R may use the reserve of a ring (acknowledges, answers, cancels). */
#define RP_XMSG_TYPES(X)                                                                           \
	/* control -> shard */                                                                     \
	X(PUT, N)            /* token, flags = 1 a dead letter; m = name, tail, value. Answered by  \
	                        ANSWER. Of a process request: value = rp_xmsg_process(), idx = its \
	                        id, revision = us left at node = ns; meta behind the tail */       \
	X(ACK, R)            /* token, idx, uuid, flags; m = name, then the last output of a        \
	                        process request. Answered by ANSWER */                             \
	X(ACKS, R)           /* token, uuid, count of numbers: plain messages; m = name, then the   \
	                        numbers, 8 bytes each. Answered by one ANSWER, flags = 1: count    \
	                        went; not OK where one was not settled */                          \
	X(CANCEL, R)         /* token, idx = of one process request, or 0: all with the tail; m =   \
	                        name, tail. Answered by ANSWER */                                  \
	X(FAIL, R)           /* token, idx, uuid; m = name: an output of that process request was   \
	                        too large. Answered by ANSWER */                                   \
	X(BEGUN, R)          /* idx, uuid; m = name: its first output is on its way */              \
	X(RUN_READ, R)       /* count = bytes of outputs that were read; m = name, tail */          \
	X(GET, N)            /* token, idx, uuid, flags; m = name. Answered by ANSWER */           \
	X(REJECT, R)         /* token, idx, uuid, flags; m = name. Answered by ANSWER */           \
	X(PURGE, N)          /* token, flags = enum rp_queue_clearing, idx = how many at most, 0 = \
	                        all; m = name. Answered by ANSWER */                               \
	X(LETTERED, R)       /* token of a DEAD_LETTER or PROCESS_END, status */                    \
	X(SET_POLICIES, N)   /* pointer = struct rp_queue_policy, count of them; other = struct    \
	                        engine_rules, NULL = none: borrow until the next. POLICIES_USED */ \
	X(CONSUMER_OPEN, N)  /* token = consumer, uuid, revision = start_revision; m = name, then  \
	                        the `;field=` text of its record. Answered by ANSWER */            \
	X(CONSUMER_CLOSE, R) /* token = consumer, value = enum rp_queue_close */                   \
	X(ACCEPTED, R)       /* token = consumer, idx: the client has it */                        \
	X(ACKED, R)          /* token, node = consumer, idx: it has it, and is done with it.       \
	                        Answered by ANSWER */                                              \
	X(RETURNED, R)       /* token = consumer, idx: dropped before the client had it */         \
	X(SET_RECORD, N)     /* dispatcher record; m = name, then its text (empty = deleted) */    \
	X(SET_CONSUMER, N)   /* consumer record; uuid; m = name, then its text (empty = gone) */   \
	X(PIN, N)            /* m = name: this node is to dispatch it, pinned */                   \
	X(SET_NODE, N)       /* node, value = enum rp_node_state */                                \
	X(SET_PEER, N)       /* node; m = struct rp_xmsg_peer: where its links listen */           \
	X(SET_UNARY, N)      /* node, value = 1: the gRPC path is up; else idx, revision: times of \
	                        the last PING answered by it (sent), and answered here */          \
	X(UNARY_IN, N)       /* token, node; m = frame. Answered by UNARY_DONE */                  \
	X(UNARY_RESULT, R)   /* token, value = 1 failed; status, epoch, node = dispatcher */       \
	X(SNAPSHOT, N)       /* token, pointer = buffer that the shard fills. SNAPSHOT_DONE */     \
	X(IMPAIR, N)         /* value = port, pointer = struct rp_impair_spec (borrow till done).  \
	                        SNAPSHOT_DONE */                                                   \
	X(SET_LIMITS, N)     /* value = bytes of a message, count = messages and idx = bytes of a  \
	                        queue, revision = ns a consumer may take to return, token = ns    \
	                        until an idle queue ends, node = ns of spinning, flags: 1 unary    \
	                        fallback, 2 the node is drained */                                 \
	X(SET_SECRETS, N)    /* m = struct rp_xmsg_secrets: what links prove from now on */         \
	X(SET_TLS, N)        /* pointer, other = certificates of links (struct rp_tls_config) as   \
	                        client and as server: take */                                      \
	X(TAP, R)            /* pointer = struct rp_tap_config (what it points at is borrowed until  \
	                        it is off), NULL = off; token. SNAPSHOT_DONE */                    \
	X(STOP, R)           /* value: 1 = refuse new puts, drain; 2 = close links. STOPPED */     \
	/* shard -> control */                                                                     \
	X(ANSWER, R)         /* token, status, count, idx, revision, tail_length, value =            \
	                        meta_length, attempt; m = the message where asked */               \
	X(DELIVERY, N)       /* token = consumer, idx, revision, attempt; m = tail, value. Of a      \
	                        process request: value = rp_xmsg_process(), alloc_node = its id,   \
	                        node = ns of its end; flags = 1: its client has it already */      \
	X(JOB_OVER, R)       /* idx, alloc_node = id: no consumer here holds that request */        \
	X(OUTPUT_ROOM, R)    /* alloc_node = id: the requester of that request reads again */       \
	X(PROCESS_END, N)    /* token (0: of no message), value = enum rp_queue_death, idx = id; m =  \
	                        name, `to` of hash bytes, tail, last output. Answered by LETTERED */ \
	X(CANCEL_ASK, R)     /* idx = id; m = name, tail: cancel it, nobody listens */              \
	X(RUN_EVENT, N)      /* idx = id, value = meta_length, flags = 1 the last; m = tail, meta,   \
	                        value, or NULL: there will be none */                              \
	X(RECALL, R)         /* token = consumer, idx: drop it if it was not written yet */        \
	X(WITHDRAW, R)       /* token = consumer, idx, revision; m = tail: a DELETE event */       \
	X(CONSUMER_ENDED, R) /* token = consumer, value = enum rp_queue_end */                     \
	X(DEAD_LETTER, N)    /* token, value = enum rp_queue_death, count = deliveries, revision = \
	                        age in us, hash = length of `to`, idx = meta_length; m = name,    \
	                        `to`, then tail, value. Answered by LETTERED */                    \
	X(POLICIES_USED, R)  /* pointer as in SET_POLICIES: the ones before are needed no more */   \
	X(CLAIMED, R)        /* epoch, value = 1 pinned; m = name: write the dispatcher record */  \
	X(RELEASED, R)       /* epoch; m = name: the queue ended, delete its record */             \
	X(CONSUMER_HERE, R)  /* uuid, value = 1 here, 0 gone; m = name: write, delete its record */ \
	X(UNARY_OUT, N)      /* token, node, hash; m = frame: call DeliverOne there */             \
	X(UNARY_DONE, R)     /* token, value = 1 no frame; status, epoch, node = dispatcher */     \
	X(LINK_STATE, R)     /* node, value = 1 up, 0 down */                                      \
	X(SNAPSHOT_DONE, R)  /* token */                                                           \
	X(TAPPED, N)         /* m = a block of frames' copies, port/tap.h */                       \
	X(STOPPED, R)        /* value as in STOP */                                                \
	/* shard -> shard */                                                                       \
	X(FRAME_OUT, N)      /* node, value = bundle, hash; m = frame, for the owner of its link */ \
	X(FRAME_IN, N)       /* node, value = bundle; m = frame, for the shard it belongs to */    \
	X(LINK, R)           /* struct rp_link_msg of lib/link, field by field */                  \
	X(PACKETS_IN, N)     /* value = port, count, packets: segments of flows of that shard, as   \
	                        checked by the one that received them */                           \
	X(PACKETS_OUT, N)    /* value = port, count, packets: frames for the shard that has a queue \
	                        of the port */                                                     \
	X(ICMP_IN, N)        /* value = port, uuid = remote, hash = local address, epoch = sequence \
	                        number, count = error, attempt = MTU, idx = ports: local, remote */ \
	X(NEIGH, N)          /* value = port, uuid = address (IPv4 as ::ffff:a.b.c.d), idx = its   \
	                        MAC in the first six bytes, flags = 1: from an answer */
/* clang-format on */

enum rp_xmsg_type {
#define X(name, class) RP_XMSG_##name,
	RP_XMSG_TYPES(X)
#undef X
		RP_XMSG_TYPE_COUNT,
};

/** Classes of messages, by what they may use of a ring. */
enum rp_xmsg_class {
	RP_XMSG_CLASS_N, /**< new work: refused while only the reserve is left */
	RP_XMSG_CLASS_R, /**< ends or answers work: may use the reserve */
};

/** Numbers that one ACKS carries, and ACKS of one shard that are not answered. */
#define RP_XMSG_ACKS_MAX 128
#define RP_XMSG_ACKS_OPEN_MAX 64
/** Packets that one message carries. */
#define RP_XMSG_PACKETS_MAX 12

struct rp_xmsg {
	uint8_t type;	 /**< enum rp_xmsg_type */
	uint8_t flags;	 /**< ACK, GET, REJECT: RP_QMSG_NO_HOLDER, RP_QMSG_WANT_MESSAGE */
	uint16_t status; /**< enum rp_qstatus */
	uint16_t name_length, tail_length;
	uint32_t hash;
	uint32_t epoch;
	uint32_t count;
	uint32_t attempt;
	uint32_t value;
	union {
		struct {
			uint64_t token;
			uint64_t node;
			uint64_t idx;
			uint64_t alloc_node;
			uint64_t revision;
			struct rte_mbuf *m;
			void *pointer;
			union {
				void *other; /**< SET_TLS, SET_POLICIES */
				uint8_t uuid[RP_UUID_BYTES];
				struct {
					uint8_t owners[RP_SHARDS_MAX]; /**< LINK */
					uint64_t answered;
				};
			};
		};
		struct rte_mbuf *packets[RP_XMSG_PACKETS_MAX]; /**< PACKETS_IN, PACKETS_OUT */
	};
};
_Static_assert(sizeof(struct rp_xmsg) == 128, "a ring slot is two cache lines");

/** Payload of SET_PEER: one link endpoint a transport; family 0 = none. Layout is local memory. */
struct rp_xmsg_peer {
	uint8_t tcp_family, ktcp_family;
	uint16_t tcp_port, ktcp_port;
	uint8_t tcp_addr[16], ktcp_addr[16];
	/* How it spreads flows (net/place.h); table_size 0: unknown. */
	uint8_t shards;
	uint16_t table_size;
	uint32_t owners; /**< a bit of each shard that owns links */
	uint8_t rss_key[40];
};

#define RP_XMSG_SECRET_BYTES_MAX 256

/** Payload of SET_SECRETS; length 0 = none. Who takes it wipes it. */
struct rp_xmsg_secrets {
	uint16_t length, previous_length;
	uint8_t secret[RP_XMSG_SECRET_BYTES_MAX], previous[RP_XMSG_SECRET_BYTES_MAX];
};

/** Kind, priority, flags and meta_length of struct rp_qmsg_process in one word. */
static inline uint32_t rp_xmsg_process(const struct rp_qmsg_process *p)
{
	RP_ASSERT(p->meta_length < 1 << 12 && p->priority < 1 << 4 && p->kind < 1 << 4);
	return p->kind | (uint32_t)p->priority << 4 | (uint32_t)p->flags << 8 |
	       (uint32_t)p->meta_length << 16;
}

static inline void rp_xmsg_process_read(uint32_t word, struct rp_qmsg_process *p)
{
	p->kind = word & 0x0f;
	p->priority = word >> 4 & 0x0f;
	p->flags = (uint8_t)(word >> 8);
	p->meta_length = (uint16_t)(word >> 16);
}

const char *rp_xmsg_type_name(enum rp_xmsg_type type);
/** Frees the mbufs that the message holds: of one that goes nowhere. */
void rp_xmsg_free(const struct rp_xmsg *m);
enum rp_xmsg_class rp_xmsg_class_of(enum rp_xmsg_type type);
