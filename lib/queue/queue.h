/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The queue engine of one shard: what this node does for each queue of that shard, in three roles
 * (spec/queues.md).
 *
 * - The producer's node: a put for a queue that another node dispatches: FORWARD, answered when
 * TOOK.
 * - The dispatcher: holds the messages, binds each to one consumer, offers, redelivers.
 * - The consumer's host: shows offers to its clients, allocates mod_revision, passes acknowledges
 * on.
 *
 * A queue whose dispatcher hosts its consumers goes through the same code without a frame.
 *
 *   1. rp_queue_create() with limits, pools and the callbacks, then rp_queue_set_wall_offset().
 *   2. Control publishes what it knows: rp_queue_set_node(), _set_record(), _set_consumer().
 *   3. Clients' operations come in with a token, and are answered by ops->answer() exactly once.
 *   4. Other nodes' messages come in by rp_queue_on_msg(); what became of ours by _on_took(),
 *      _on_refused(), _on_lost(), _on_room(): the upcalls of deliver/deliver.h, one to one.
 *   5. rp_queue_poll() each loop turn; rp_queue_next_deadline() says how long it may sleep.
 *
 * Callbacks are made from inside the calls of this header and must not call back into it. One lcore
 * owns the object. It reads no clock and allocates at creation only; its tables are bounded by the
 * configuration and cost memory when they are used.
 *
 * Payload. A message is one mbuf chain: tail, then value; the tail lies in the first segment. The
 * dispatcher keeps it until it is acknowledged. What it hands out meanwhile (DELIVER, REPLY to a
 * GET, ops->deliver, ops->answer) is the same chain, with a reference for each owner. Whoever has
 * one may read it and free it, on any lcore, and changes nothing of it: neither its bytes nor how
 * it is chained or cut. A FORWARD is given away. A message that stays longer than `stay_ns` in
 * buffers of another pool than `pool` (a receive pool) is copied into `pool`.
 */

/* clang-format off */
/*
 * Fields of struct rp_qmsg that each type uses, next to type, name, hash, epoch, dispatcher:
 *
 * FORWARD   producer_*, flags REPEAT, payload; token: 0, or of a dispatcher that hands over its own
 *           sequence, growing, and with it attempt and, of a bound message, idx, alloc_node, uuid,
 *           holder_*, mod_revision (0: not shown yet); count: of the dispatcher's boot id
 * DELIVER   idx, alloc_node, uuid, attempt, token = life of the consumer, mod_revision (0, or that of
 *           the event when it is sent again), flags RESUMES (offers begin again after a STALL), payload
 * ACCEPTED  idx, alloc_node, uuid, attempt, mod_revision; idx 0: the consumer has room again, or,
 *           with alloc_node, the requester of that request; flags BEGUN
 * REJECTED  idx, alloc_node, uuid, attempt, status: REJECT, TOO_LARGE (an output; the request ends),
 *           STALL (came back unseen), NO_CONSUMER (idx 0: the consumer has left, flags WAITED:
 *           resume_ms ago); mod_revision = life of the consumer (STALL,
 *           NO_CONSUMER); token: 0, or a client's, answered by REPLY; flags NO_HOLDER
 * QACK GET  idx, alloc_node (0 = not known), uuid, token, flags WANT_MESSAGE, NO_HOLDER
 *           GET of idx 0: has all that was taken there left it? REPLY: OK, MOVED, or STALL with
 *           count 1: it is on its way to the newer dispatcher, 0: to consumers
 * REPLY     token, idx, status, count, attempt, mod_revision, payload; status MOVED: alloc_node is the
 *           node that may have it
 * MOVED     nothing more
 * WITHDRAW  idx, alloc_node, uuid, attempt, status: OK = a DELETE event; STALL = drop it if it was not
 *           shown yet (token = life of the consumer); NOT_FOUND = it was settled elsewhere, forget it
 * RESUME    uuid, token = life, mod_revision = start_revision, idx = the life that its watch began
 *           with, flags RESUMES, or KEEPS: a life for another dispatcher's sake, all is kept
 * HANDOVER  flags RESUMES: all is handed over; payload: tails that are remembered for dedup_s, or
 *           with KEEPS the requests that outputs are expected of
 * CLAIM     nothing more
 * CANCEL    token, payload = tail, or none and idx = a digest of it where the tail may not be said,
 *           mod_revision = of one request, or 0; REPLY: OK, count, alloc_node = another node that may
 *           have some, or 0; STALL: some are on their way
 *
 * FORWARD and DELIVER of a process request have its process part as well. QACK of one may have its
 * last output as payload.
 */
/* clang-format on */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/qmsg.h>
#include <base/units.h>
#include <route/record.h>

struct rte_mbuf;
struct rte_mempool;
struct rp_queues;

/** What a full queue does with a put. */
enum rp_queue_overflow {
	RP_QUEUE_OVERFLOW_REJECT,
	RP_QUEUE_OVERFLOW_DROP_OLDEST, /**< of those that no consumer holds */
};

/** Of the queues whose name matches; 0 or NULL in a field: nothing of it. */
struct rp_queue_policy {
	const char *match;	 /**< pattern, base/glob.h; the first that matches counts */
	const char *dead_letter; /**< queue for what ends undelivered; empty: it is dropped */
	uint32_t depth_max;	 /**< instead of limits.queue_depth */
	uint64_t bytes_max;	 /**< instead of limits.queue_bytes */
	enum rp_queue_overflow overflow;
	uint32_t deliveries_max; /**< a client saw it so often: it ends */
	uint64_t ttl_ns;	 /**< ends when it is so old, unless a consumer holds it */
	uint64_t delay_ns;	 /**< not offered before it is so old */
	uint64_t dedup_ns;	 /**< a tail taken within so long is not queued again */
	uint32_t priority;	 /**< of a message that names none: 0..9 */
	bool fail_fast;		 /**< a put while there is no consumer is refused */
};

/** Why a message ended without an acknowledge. */
#define RP_QUEUE_DEATHS(X)                                                         \
	X(EXPIRED, expired, "expired")	      /* ttl_ms is over */                 \
	X(OVERFLOW, overflowed, "overflow")   /* a newer one took its place */     \
	X(EXHAUSTED, exhausted, "deliveries") /* delivered deliveries_max times */ \
	X(REJECTED, rejected, "rejected")     /* by every consumer */              \
	/* of process requests: */                                                 \
	X(COMPLETED, completed, "completed")                                       \
	X(DEADLINE, deadlines, "deadline")                                         \
	X(CANCELLED, cancels, "cancelled")                                         \
	X(NO_CONSUMER, deserted, "no consumer") /* the last that could has left */ \
	X(WORKER_LOST, workers_lost, "worker lost")                                \
	X(TOO_LARGE, answers_too_large, "too large")                               \
	X(REPLAYED, replayed, "replayed") /* a dead letter that goes back to its queue */

enum rp_queue_death {
#define X(name, counter, word) RP_QUEUE_DEATH_##name,
	RP_QUEUE_DEATHS(X)
#undef X
		RP_QUEUE_DEATH_COUNT,
};
/** As the dead letter has it. */
const char *rp_queue_death_word(enum rp_queue_death death);

/** A message that ended, for the queue that its policy names. */
struct rp_queue_letter {
	struct rp_span name; /**< of its queue; borrow */
	const char *to; /**< borrow, as the policies are; REPLAYED: empty, the letter says it */
	enum rp_queue_death death;
	uint64_t age_ns;
	uint64_t idx;
	uint32_t deliveries; /**< that a client saw */
	uint16_t tail_length;
	struct rp_qmsg_process process;
	struct rte_mbuf *payload;
};

/**
 * How a process request ended, for its reply queue: put there as RP_PROCESS_END. `payload`: the
 * last output of its worker, of COMPLETED only; NULL: there is none.
 */
struct rp_queue_process_end {
	struct rp_span name;	 /**< of its queue; borrow */
	struct rp_span reply_to; /**< borrow */
	struct rp_span tail;	 /**< borrow */
	uint64_t request;
	enum rp_queue_death death;
	struct rte_mbuf *payload;
};

/** An output for a requester that has no queue of its own. */
struct rp_queue_run_event {
	uint64_t request;
	bool end;
	uint16_t tail_length, meta_length;
	struct rte_mbuf *payload;
};

struct rp_queue_counters {
#define X(name, text) uint64_t name;
#include <queue/queue_counters.def>
#undef X
};

enum rp_queue_counter {
#define X(name, text) RP_QUEUE_COUNTER_##name,
#include <queue/queue_counters.def>
#undef X
	RP_QUEUE_COUNTER_COUNT,
};

const char *rp_queue_counter_name(enum rp_queue_counter counter);
const char *rp_queue_counter_text(enum rp_queue_counter counter);

/** 0 in a field takes the default in brackets. */
struct rp_queue_config {
	uint64_t node;		    /**< this node's id */
	uint64_t boot;		    /**< its boot id: another at each start */
	struct rte_mempool *pool;   /**< borrow: copies of messages that wait */
	uint32_t reserve;	    /**< buffers of `pool` that messages leave [a sixteenth] */
	uint32_t message_bytes_max; /**< limits.message_bytes: of a value [1572864] */
	uint32_t queue_depth_max;   /**< limits.queue_depth [65536] */
	uint64_t queue_bytes_max;   /**< limits.queue_bytes [256 MiB] */
	uint32_t queues_max;	    /**< limits.queues: this shard's share [1048576] */
	uint32_t messages_max;	    /**< over all queues of the shard [1048576] */
	uint32_t consumers_max;	    /**< known, local and remote [65536] */
	uint32_t holds_max;	    /**< shown to local clients, not acknowledged [262144] */
	uint32_t requests_max;	    /**< acknowledges, gets, rejects on their way [16384] */
	uint32_t producers_max;	    /**< (queue, producer's node) pairs remembered [65536] */
	uint32_t tails_max;	    /**< remembered for dedup_s [1048576] */
	uint32_t prefetch_default;  /**< [256] */
	uint32_t output_credit;	    /**< bytes of outputs that a requester has not read [262144] */
	uint32_t forward_window;    /**< un-TOOK FORWARDs of one queue, <= 512 [512] */
	uint64_t resume_ns;	    /**< queues.resume_ms [1 s] */
	uint64_t idle_ns;	    /**< queues.idle_s [600 s] */
	uint64_t accept_ns;	    /**< DISPATCH_TIMEOUT [5 s] */
	uint64_t dead_after_ns;	    /**< links.dead_after_ms [3 s] */
	uint64_t retry_ns; /**< after a refusal that may pass (a full ring, no buffers) [1 ms] */
	uint64_t stay_ns;  /**< a message may stay in a receive pool's buffers [1 ms] */
	uint64_t pin_ns;   /**< PIN_STABLE: an only consumer is in place [30 s] */
	uint64_t
		guard_ns; /**< a request's end is told by its reply queue, so long after it [3 s] */
	uint64_t age_ns;  /**< so much waiting counts as a step of priority [1 s] */
};

/** Answer to a client's operation. */
struct rp_queue_answer {
	enum rp_qstatus status;
	uint32_t deleted; /**< acknowledge: 1 or 0 */
	uint32_t attempt; /**< of the message in `payload` */
	uint64_t idx;	  /**< put: what the dispatcher gave it where it is this node, else 0 */
	uint64_t mod_revision; /**< of the message in `payload`; consumer_open: of the sequence */
	uint16_t tail_length, meta_length; /**< of `payload`: what stands before the value */
	struct rte_mbuf *payload; /**< take: get, and acknowledge with WANT_MESSAGE; else NULL */
};

/** A delivery for a client: a PUT event on <watched key>/idx/tail. */
struct rp_queue_delivery {
	uint64_t idx;
	uint64_t mod_revision;
	uint32_t attempt; /**< the event's version */
	uint16_t tail_length;
	struct rp_qmsg_process process;
	struct rte_mbuf *payload;
};

/** Why the engine ended a consumer. */
enum rp_queue_end {
	RP_QUEUE_END_REPLACED, /**< a second watch of the same uuid, here or on another node */
	RP_QUEUE_END_REMOVED,  /**< its registration was deleted */
	RP_QUEUE_END_STOPPING,
	RP_QUEUE_END_DRAINING, /**< the node is drained: it goes on at another one */
};

/** How a consumer's watch ended, as control saw it. */
enum rp_queue_close {
	RP_QUEUE_CLOSE_ENDED,  /**< cancelled, or stream or connection gone: resume_ms begins */
	RP_QUEUE_CLOSE_LEFT,   /**< an immediate leave; its record goes, if it has not */
	RP_QUEUE_CLOSE_SERVER, /**< closed by the server: never a death; nothing is released */
};

struct rp_queue_ops {
	/**
	 * rp_deliver_send(): 0 = payload taken, all else copied. -ENOBUFS and -ENETUNREACH: not
	 * taken, rp_queue_on_room() follows. -EMSGSIZE, -EINVAL: not taken, never will be.
	 */
	int (*send)(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns);
	/**
	 * May keys of the queue of that name not go to the node? NULL: all may. When it answers
	 * otherwise than before, what is published of the queue is published anew.
	 */
	bool (*apart)(void *ctx, struct rp_span name, uint64_t node);
	/** The answer to `token`; borrow but for the payload (take). */
	void (*answer)(void *ctx, uint64_t token, const struct rp_queue_answer *answer);
	/**
	 * Show it to the client of `consumer`. 0: payload taken; rp_queue_consumer_accepted() is
	 * called when it is in the client's connection. -EAGAIN: not now, not taken; retried, at
	 * once after rp_queue_consumer_room().
	 */
	int (*deliver)(void *ctx, uint64_t consumer, const struct rp_queue_delivery *d);
	/**
	 * Not accepted in time: when the delivery has not been written to the client, drop it and
	 * call rp_queue_consumer_returned(). Else do nothing: accepted has been or will be called.
	 */
	void (*recall)(void *ctx, uint64_t consumer, uint64_t idx);
	/** A DELETE event on <watched key>/idx/tail; of a delivery not written yet, drop both. */
	void (*withdraw)(void *ctx, uint64_t consumer, uint64_t idx, struct rp_span tail,
		uint64_t mod_revision);
	/** The consumer is over: cancel its watch with that reason. The handle is dead. */
	void (*consumer_ended)(void *ctx, uint64_t consumer, enum rp_queue_end why);
	/**
	 * The node hosts the consumer: write its record /q/{name}/c/{uuid} with the fields that
	 * clients put; or (here = false) it has left: delete the record if it names this node.
	 */
	void (*consumer_here)(
		void *ctx, struct rp_span name, const uint8_t uuid[RP_UUID_BYTES], bool here);
	/**
	 * Write the dispatcher record (this node, epoch): keep reply_to; pinned as said. Of an
	 * epoch that was claimed before: it is pinned now.
	 */
	void (*claimed)(void *ctx, struct rp_span name, uint32_t epoch, bool pinned);
	/**
	 * Put it into the queue `to` as a dead letter. 0: payload taken;
	 * rp_queue_dead_lettered(token) follows. -EAGAIN: not now, not taken; asked again.
	 */
	int (*dead_letter)(void *ctx, uint64_t token, const struct rp_queue_letter *letter);
	/**
	 * Tell the requester. 0: payload taken; rp_queue_dead_lettered(token) follows, token 0 is
	 * of no message. -EAGAIN as above.
	 */
	int (*process_end)(void *ctx, uint64_t token, const struct rp_queue_process_end *end);
	/**
	 * The consumer holds a process request that its client was shown elsewhere: as deliver(),
	 * but nothing is shown, and the payload is not taken.
	 */
	int (*job_here)(void *ctx, uint64_t consumer, const struct rp_queue_delivery *d);
	/** No consumer here holds that process request any more. */
	void (*job_over)(void *ctx, uint64_t request, uint64_t idx);
	/** An output of it was refused with BUSY, and its requester reads again. NULL: not told. */
	void (*output_room)(void *ctx, uint64_t request);
	/** Nobody listens to what that request brings: cancel it, wherever its queue is. */
	void (*cancel)(void *ctx, struct rp_span name, struct rp_span tail, uint64_t request);
	/** 0: payload taken; rp_queue_run_read() follows for its bytes. -EAGAIN: not now. */
	int (*run_event)(void *ctx, const struct rp_queue_run_event *event);
	/** The queue ended by itself: delete the record if it is still (this node, epoch). */
	void (*released)(void *ctx, struct rp_span name, uint32_t epoch);
};

/** borrow: pools, ops, ctx for the object's life. NULL and errno: EINVAL, ENOMEM. */
struct rp_queues *rp_queue_create(
	const struct rp_queue_config *config, const struct rp_queue_ops *ops, void *ctx);
/** Frees every payload, without callbacks; NULL is fine. */
void rp_queue_destroy(struct rp_queues *qs);

/** Wall clock minus `now_ns`, in ns: mod_revision and epochs derive from it. At start and anchors.
 */
void rp_queue_set_wall_offset(struct rp_queues *qs, int64_t wall_minus_now_ns);
/**
 * New puts are refused with STOPPING from now on, and what this node dispatches is handed over to
 * nodes that are Online; the rest goes on.
 */
void rp_queue_stop(struct rp_queues *qs, uint64_t now_ns);
/**
 * On: what this node dispatches is handed over to nodes that are Online, as they come; a put for a
 * queue that nobody dispatches is refused with STOPPING, all else goes on. When no queue is left
 * its consumers are ended with DRAINING, and the caller refuses new ones. Off: as before.
 */
void rp_queue_drain(struct rp_queues *qs, bool on, uint64_t now_ns);
/** After rp_queue_stop(): something is still to be handed over, and there is a node to take it. */
bool rp_queue_is_moving(const struct rp_queues *qs);
/** What may change in a running node; as struct rp_queue_config has it. */
struct rp_queue_limits {
	uint32_t message_bytes_max, queue_depth_max;
	uint64_t queue_bytes_max, resume_ns, idle_ns;
};
/**
 * All of them are in force from now on. What a queue holds above them stays, and nothing is taken
 * until it is below; a wait that has begun keeps its end.
 */
void rp_queue_set_limits(struct rp_queues *qs, const struct rp_queue_limits *limits);

/**
 * borrow: until the next call. They count from now on, for what comes; what is in a queue keeps the
 * end and the delay that it was given.
 */
void rp_queue_set_policies(
	struct rp_queues *qs, const struct rp_queue_policy *policies, uint32_t count);

/** False: ops->apart() would say no to all, and is not asked. True at creation. */
void rp_queue_set_parted(struct rp_queues *qs, bool parted);

/* ---- what control publishes ---- */

/** The state of a node, this one included: nothing is claimed before it is Online itself. */
void rp_queue_set_node(
	struct rp_queues *qs, uint64_t node, enum rp_node_state state, uint64_t now_ns);
/** The text of /q/{name}; empty = deleted (which re-elects, and drops nothing). */
void rp_queue_set_record(
	struct rp_queues *qs, struct rp_span name, struct rp_span text, uint64_t now_ns);
/**
 * This node is to dispatch the queue, pinned: it claims what nobody dispatches, and takes it over
 * from a node that hosts no consumer and is not pinned, as soon as that is so. A pinned queue is
 * not taken over; it goes where its only consumer is, after `pin_ns`. Not kept beyond the queue's
 * life, nor when another node pins it.
 */
void rp_queue_pin(struct rp_queues *qs, struct rp_span name, uint64_t now_ns);
/** The text of a consumer record; empty = deleted. -ENOSPC: over a limit, not known then. */
int rp_queue_set_consumer(struct rp_queues *qs, struct rp_span name,
	const uint8_t uuid[RP_UUID_BYTES], struct rp_span text, uint64_t now_ns);

/**
 * No way to the node is left (link and gRPC). `ping_sent_ns`: when the last PING that it answered
 * was sent: `dead_after_ns` later what it delivered here is fenced. `ping_answered_ns`: when its
 * last PING was answered here: 1.5 times that later what its consumers hold is offered again.
 */
void rp_queue_peer_lost(struct rp_queues *qs, uint64_t node, uint64_t ping_sent_ns,
	uint64_t ping_answered_ns, uint64_t now_ns);
/** There is a way again; also at the first time. */
void rp_queue_peer_back(struct rp_queues *qs, uint64_t node, uint64_t now_ns);

/* ---- clients' operations; each is answered once by ops->answer(token) ---- */

/**
 * take: payload (tail, value). OK = indexed by the dispatcher. `name` may lie in front of the tail,
 * in the same buffer.
 */
void rp_queue_put(struct rp_queues *qs, uint64_t token, struct rp_span name, uint16_t tail_length,
	struct rte_mbuf *payload, uint64_t now_ns);
/**
 * As rp_queue_put(), of what belongs to a process request; the payload has its meta behind the
 * tail.
 */
void rp_queue_put_process(struct rp_queues *qs, uint64_t token, struct rp_span name,
	uint16_t tail_length, const struct rp_qmsg_process *process, struct rte_mbuf *payload,
	uint64_t now_ns);
/**
 * Acknowledge; flags RP_QMSG_WANT_MESSAGE, RP_QMSG_NO_HOLDER (uuid unused, may be NULL). take:
 * `last`: NULL, or the last output of the process request that it is.
 */
void rp_queue_ack(struct rp_queues *qs, uint64_t token, struct rp_span name, uint64_t idx,
	const uint8_t *uuid, uint8_t flags, struct rte_mbuf *last, uint64_t now_ns);
/**
 * take: `tail`. All process requests with it end, or the one that `request` names, at whatever node
 * that dispatches the queue or did; answered with how many in `deleted`. UNREACHABLE: there was
 * none, but at a node that may have some and could not be asked.
 */
void rp_queue_cancel(struct rp_queues *qs, uint64_t token, struct rp_span name,
	struct rte_mbuf *tail, uint64_t request, uint64_t now_ns);
/** As rp_queue_reject(): an output was too large, and the request ends with that. */
void rp_queue_fail(struct rp_queues *qs, uint64_t token, struct rp_span name, uint64_t idx,
	const uint8_t *uuid, uint64_t now_ns);
/** The holder of a process request has begun to answer. */
void rp_queue_job_begun(struct rp_queues *qs, struct rp_span name, const uint8_t *uuid,
	uint64_t idx, uint64_t now_ns);
/** So many bytes of a request's run events were read. */
void rp_queue_run_read(struct rp_queues *qs, struct rp_span name, struct rp_span tail,
	uint32_t bytes, uint64_t now_ns);
/** The message while it is held; flags RP_QMSG_NO_HOLDER. NOT_FOUND, NOT_HOLDER. */
void rp_queue_get(struct rp_queues *qs, uint64_t token, struct rp_span name, uint64_t idx,
	const uint8_t *uuid, uint8_t flags, uint64_t now_ns);
/** The holder does not want it: it goes to another consumer. Flags as get. */
void rp_queue_reject(struct rp_queues *qs, uint64_t token, struct rp_span name, uint64_t idx,
	const uint8_t *uuid, uint8_t flags, uint64_t now_ns);

/** As rp_queue_put(), of a message that ended elsewhere: it may be a head longer, and no policy
 * refuses it for want of a consumer. */
void rp_queue_put_letter(struct rp_queues *qs, uint64_t token, struct rp_span name,
	uint16_t tail_length, struct rte_mbuf *payload, uint64_t now_ns);
/** What became of ops->dead_letter(): not OK, and it is tried again. */
void rp_queue_dead_lettered(
	struct rp_queues *qs, uint64_t token, enum rp_qstatus status, uint64_t now_ns);
/** What an operator does to the messages that no consumer holds, oldest first. */
enum rp_queue_clearing {
	RP_QUEUE_PURGE,
	RP_QUEUE_REPLAY, /**< dead letters go back to the queues that they were in */
};
/**
 * At most `max` of those that are there now, 0 = all. Answered OK with `deleted`, when all of them
 * have left or are on their way; NOT_HOLDER: another node dispatches; STALL: one is under way.
 */
void rp_queue_clear(struct rp_queues *qs, uint64_t token, struct rp_span name,
	enum rp_queue_clearing what, uint32_t max, uint64_t now_ns);

/* ---- consumers of this node ---- */

struct rp_queue_consumer {
	uint64_t
		handle; /**< control's own, not 0, never used again; also the token of the answer */
	struct rp_span name;
	uint8_t uuid[RP_UUID_BYTES];
	uint64_t start_revision; /**< 0 = a new life */
	struct rp_span fields;	 /**< `;field=` text that clients put on its key; may be empty */
};

/** A watch on a consumer key. Answered OK with mod_revision, or LIMIT; then deliveries follow. */
void rp_queue_consumer_open(
	struct rp_queues *qs, const struct rp_queue_consumer *consumer, uint64_t now_ns);
/** Unknown handles are ignored here and below: the engine may have ended it meanwhile. */
void rp_queue_consumer_close(
	struct rp_queues *qs, uint64_t handle, enum rp_queue_close how, uint64_t now_ns);
/** The delivery is in the client's connection. */
void rp_queue_consumer_accepted(
	struct rp_queues *qs, uint64_t handle, uint64_t idx, uint64_t now_ns);
/**
 * The consumer acknowledges what was delivered to it, which says that it has it as well. Answered
 * as rp_queue_ack() is; of a consumer that is not known: OK, with deleted = 0.
 */
void rp_queue_consumer_ack(
	struct rp_queues *qs, uint64_t token, uint64_t handle, uint64_t idx, uint64_t now_ns);
/** Answer to ops->recall(): it was dropped before the client had it. */
void rp_queue_consumer_returned(
	struct rp_queues *qs, uint64_t handle, uint64_t idx, uint64_t now_ns);
/** ops->deliver() would take again after an -EAGAIN. */
void rp_queue_consumer_room(struct rp_queues *qs, uint64_t handle, uint64_t now_ns);

/* ---- other nodes: the upcalls of rp_deliver_ops ---- */

/**
 * FORWARD and DELIVER: RP_Q_OK = the payload is taken; any other status refuses, payload not taken;
 * RP_Q_MOVED sets *epoch and *dispatcher. Other types: the payload is taken, the result unused.
 */
int rp_queue_on_msg(struct rp_queues *qs, uint64_t from, const struct rp_qmsg *m, uint32_t *epoch,
	uint64_t *dispatcher, uint64_t now_ns);
void rp_queue_on_took(
	struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns);
/** take: m->payload, here and in on_lost. */
void rp_queue_on_refused(struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m,
	enum rp_qstatus status, uint32_t epoch, uint64_t dispatcher, uint64_t now_ns);
void rp_queue_on_lost(
	struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns);
void rp_queue_on_room(struct rp_queues *qs, uint64_t node, uint64_t now_ns);

/** What became of a queue's way to another node, for its counters; unknown queues are ignored. */
enum rp_queue_way {
	RP_QUEUE_WAY_OPENED,
	RP_QUEUE_WAY_IDLE,
	RP_QUEUE_WAY_UNARY, /**< a message was taken there by unary */
	/* It goes on by unary, because: */
	RP_QUEUE_WAY_LINK_DOWN,
	RP_QUEUE_WAY_STALLED,
	RP_QUEUE_WAY_REFUSED,
	RP_QUEUE_WAY_NO_STREAM,
};
void rp_queue_on_way(struct rp_queues *qs, struct rp_span name, enum rp_queue_way what);

/* ---- time ---- */

/** Runs what is due, bounded. True: there is more to do now. */
bool rp_queue_poll(struct rp_queues *qs, uint64_t now_ns);
uint64_t rp_queue_next_deadline(const struct rp_queues *qs);

/* ---- insight ---- */

/**
 * How long something took: bucket i counts what is at most 4^i us, the last one the rest. Coarser
 * than stats/hist.h, since each bucket is a line of every scrape.
 */
#define RP_QUEUE_TIMES_BUCKETS 15
struct rp_queue_times {
	uint64_t buckets[RP_QUEUE_TIMES_BUCKETS];
	uint64_t count, sum_ns, max_ns;
};

struct rp_queue_info {
	struct rp_span name; /**< borrow: valid until the next call */
	uint64_t dispatcher; /**< node; 0 = unknown */
	uint32_t epoch;
	bool dispatching;   /**< here */
	uint32_t depth;	    /**< messages here: waiting and in flight */
	uint32_t waiting;   /**< not bound */
	uint32_t in_flight; /**< bound to a consumer */
	uint32_t delayed;   /**< not to be offered yet */
	uint32_t ending;    /**< the dead-letter queue has not taken them yet */
	uint32_t forwards;  /**< on their way to the dispatcher, answered or not */
	uint64_t bytes;	    /**< of those in depth */
	uint32_t consumers_local, consumers_remote;
	uint64_t waiting_oldest_ns, in_flight_oldest_ns; /**< ages; 0 = none */
	/** Of offers that reached their client: from the put to the offer, and from there to it. */
	uint64_t wait_mean_ns, wait_max_ns, accept_mean_ns;
	struct rp_queue_counters counters;
};

/** False: no such queue here. */
bool rp_queue_info(const struct rp_queues *qs, struct rp_span name, struct rp_queue_info *info,
	uint64_t now_ns);
/**
 * Of the offers that reached their client: how long their messages had waited, and how long they
 * took. False: nothing happened in the queue lately.
 */
bool rp_queue_times_of(const struct rp_queues *qs, struct rp_span name, struct rp_queue_times *wait,
	struct rp_queue_times *accept);
/**
 * The first queue at table position *cursor or behind it, which moves on; start at 0. False at the
 * end. Queues that come and go meanwhile may be missed.
 */
bool rp_queue_next(
	const struct rp_queues *qs, uint32_t *cursor, struct rp_queue_info *info, uint64_t now_ns);

/** Positions of the table that rp_queue_at() takes. */
uint32_t rp_queue_slots(const struct rp_queues *qs);
/** The queue at a position of the table; false: none is there. */
bool rp_queue_at(
	const struct rp_queues *qs, uint32_t slot, struct rp_queue_info *info, uint64_t now_ns);

/** A consumer as this node knows it: as its host, as the queue's dispatcher, or by its record. */
struct rp_queue_consumer_info {
	struct rp_span name; /**< of the queue; borrow, as `match`: valid until the next call */
	uint8_t uuid[RP_UUID_BYTES];
	uint64_t node;	   /**< where it is; 0 = not known */
	bool here;	   /**< this node hosts it */
	bool dispatched;   /**< this node dispatches its queue: outstanding is what it is offered */
	const char *state; /**< constant text: ready, or why nothing is offered to it */
	uint32_t prefetch; /**< as its record has it, or the default */
	uint32_t outstanding, unaccepted;
	uint32_t holds;	 /**< shown to the client here, not acknowledged */
	uint64_t offers; /**< made to it by this node, or taken for it by this node as its host */
	uint64_t acks;	 /**< of those */
	uint64_t oldest_ns; /**< age of the oldest of those outstanding; 0: none, or not known */
	uint64_t max_bytes; /**< 0 = as large as they come */
	struct rp_span match;
};

/** Positions of the table that rp_queue_consumer_at() takes. */
uint32_t rp_queue_consumer_slots(const struct rp_queues *qs);
/** The consumer at a position of the table; false: none is there. */
bool rp_queue_consumer_at(const struct rp_queues *qs, uint32_t slot,
	struct rp_queue_consumer_info *info, uint64_t now_ns);

struct rp_queue_place {
	uint64_t node;
	uint32_t consumers;
};
/** Where the consumers of a queue are: nodes written, at most `max`. */
uint32_t rp_queue_places(const struct rp_queues *qs, struct rp_span name,
	struct rp_queue_place *places, uint32_t max);

struct rp_queue_message_info {
	uint64_t idx;
	uint64_t age_ns;
	uint64_t ends_in_ns; /**< RP_NEVER: by no policy, or not while it is held */
	uint32_t attempt;
	const char *state;	     /**< constant text: waiting, delayed, ending, held */
	uint64_t node;		     /**< held: where its consumer is */
	uint8_t uuid[RP_UUID_BYTES]; /**< held: by whom */
	uint16_t tail_length;
	uint16_t meta_length;		/**< of the payload, between tail and value */
	struct rp_qmsg_process process; /**< all zero of a plain message */
	uint64_t left_us;		/**< of its time; 0 of a plain message */
	const struct rte_mbuf *payload; /**< borrow: valid until the next call */
};
/** How far rp_queue_messages() looks. */
#define RP_QUEUE_MESSAGES_REACH 8192
/**
 * Messages that this node dispatches: those that wait, oldest first, then those delayed, ending and
 * held. `skip` of them are left out, at most RP_QUEUE_MESSAGES_REACH. How many were written.
 */
uint32_t rp_queue_messages(const struct rp_queues *qs, struct rp_span name, uint32_t skip,
	struct rp_queue_message_info *out, uint32_t max, uint64_t now_ns);

/** Of the shard, all queues together. */
struct rp_queue_totals {
	uint32_t queues, messages, consumers, holds, requests,
		producers;   /**< table entries in use */
	uint32_t hosts;	     /**< consumers of this node */
	uint32_t handing;    /**< messages handed over and not taken yet */
	uint32_t held;	     /**< messages here, or handed over and not taken yet */
	uint32_t dispatched; /**< queues that this node dispatches */
	uint64_t bytes;	     /**< of messages here */
	struct rp_queue_counters counters;
	/** Of offers that reached their client, as in struct rp_queue_info. */
	struct rp_queue_times wait, accept;
};

/** So many queues are fetched for in one go. */
#define RP_QUEUE_FETCH_MAX 64
/**
 * Something is about to be done with the queues of these hashes, of which RP_QUEUE_FETCH_MAX count:
 * what that will touch is brought near. It changes nothing, and costs nothing where all is near.
 */
void rp_queue_fetch(const struct rp_queues *qs, const uint32_t *hashes, unsigned n);
void rp_queue_get_totals(const struct rp_queues *qs, struct rp_queue_totals *totals);
/** Checks the tables against each other; NULL, or what does not hold. For tests: it walks it all.
 */
const char *rp_queue_audit(const struct rp_queues *qs);
