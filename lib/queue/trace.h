/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What became of one message, step by step, as the shard that dispatches it saw it: one clock tells
 * all times, those of steps at other nodes being when their word of it came. The clock is read once
 * a turn of the shard's loop, so steps of one turn have the same time.
 *
 * A message is followed when somebody asked for it: by its index while it is here, or, before it
 * comes, as one of the next of its queue. What is known of a message that nobody asked for is what
 * its place in the tables shows. Where nothing is followed, a message costs the stores of two times
 * into lines that are written anyway, and the test of a bit in lines that are read anyway.
 *
 *   1. rp_queue_trace() with an index; or rp_queue_trace_next(), then rp_queue_traces() until they
 *      have ended.
 *   2. The last RP_QUEUE_TRACES are kept, also of messages that are gone; new ones push those out
 *      that ended first.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>
#include <route/record.h>

struct rp_queues;

/** X(name, word): `consumer` in brackets where the step is about one. */
#define RP_QUEUE_STEPS(X)                                                                         \
	X(PUT, "put")		 /* a node took it from its client */                             \
	X(INDEXED, "indexed")	 /* the dispatcher, this node, took it into the queue */          \
	X(OFFERED, "offered")	 /* bound to the consumer, and sent to its node */                \
	X(SENT_AGAIN, "resent")	 /* to the same consumer, which may not have got it */            \
	X(TAKEN, "taken")	 /* the consumer's node has it */                                 \
	X(WRITTEN, "written")	 /* it is in the client's connection */                           \
	X(LATE, "not accepted")	 /* the accept timeout is over */                                 \
	X(REJECTED, "rejected")	 /* by the consumer */                                            \
	X(RETURNED, "returned")	 /* the consumer has it no more: it waits again */                \
	X(ACKED, "acknowledged") /* the end, as what follows */                                   \
	X(DIED, "ended")	 /* its word says why */                                          \
	X(PURGED, "purged")	 /* by an operator */                                             \
	X(HANDED,                                                                                 \
		"handed over") /* to the dispatcher that is newer, which knows what came later */ \
	X(GONE, "gone")	       /* in another way, soon after the step before */

enum rp_queue_step {
#define X(name, word) RP_QUEUE_STEP_##name,
	RP_QUEUE_STEPS(X)
#undef X
};
/** As it is shown. */
const char *rp_queue_step_word(enum rp_queue_step step);

/** Messages of one shard that are followed or were. */
#define RP_QUEUE_TRACES 64
/** Steps of one; of more the first and the last are kept. */
#define RP_QUEUE_TRACE_STEPS 24

struct rp_queue_trace_step {
	uint64_t at_ns; /**< since the put, as far as that is known */
	uint64_t node;	/**< where it was put; or the consumer's; HANDED: the newer dispatcher; or 0
			 */
	uint8_t uuid[RP_UUID_BYTES]; /**< the consumer; zero: about none */
	const char *why;	     /**< constant text; "" = nothing to say */
	uint32_t attempt;
	uint8_t step; /**< enum rp_queue_step */
};

struct rp_queue_trace {
	uint64_t serial; /**< grows from one that is followed to the next; 0: it is not followed */
	uint64_t idx;
	uint64_t age_ns; /**< since the put; of one that has ended, until that */
	bool ended;
	uint32_t bytes; /**< of the value */
	uint16_t tail_length;
	uint8_t tail[RP_TAIL_BYTES_MAX];
	uint32_t omitted; /**< steps between the first and the last that are not there */
	uint32_t step_count;
	struct rp_queue_trace_step steps[RP_QUEUE_TRACE_STEPS];
};

/**
 * The newest trace of that message; one that is here is followed from now on. False: it is not
 * here, and was not followed.
 */
bool rp_queue_trace(struct rp_queues *qs, struct rp_span name, uint64_t idx,
	struct rp_queue_trace *out, uint64_t now_ns);
/**
 * The next `count` messages of the queue are followed, if they come within `for_ns`. The serial
 * that theirs are above; 0: no such queue here, or too many queues have this asked of them.
 */
uint64_t rp_queue_trace_next(struct rp_queues *qs, struct rp_span name, uint32_t count,
	uint64_t for_ns, uint64_t now_ns);
/** Traces of the queue above that serial, in the order of serials, `max` at most: how many. */
uint32_t rp_queue_traces(struct rp_queues *qs, struct rp_span name, uint64_t above,
	struct rp_queue_trace *out, uint32_t max, uint64_t now_ns);
