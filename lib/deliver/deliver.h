/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Carries queue messages (base/qmsg.h) between this shard and other nodes: streams with credit for
 * FORWARD and DELIVER, confirmed control frames for the rest, and the unary fallback when a link is
 * down or a stream stalls. Spec: links.md "Deliver frames", queues.md "Dispatch"; bytes:
 * docs/protocol.md.
 *
 *   1. rp_deliver_create() on each queue shard. Below it the engine moves frames: frame_out() gives
 *      a frame for a peer's link, rp_deliver_on_frame() takes one. rp_frame_shard() of link/frame.h
 *      says which shard a received frame belongs to. rp_deliver_peer_up()/_down() follow the
 * bundle, rp_deliver_set_unary() says whether a gRPC channel to the peer stands.
 *   2. rp_deliver_send() takes a message for a node. What becomes of a FORWARD or DELIVER is told
 * by exactly one of on_took, on_refused, on_lost; of any other type only on_lost is told.
 *   3. on_msg() brings what other nodes sent; its result is the answer for FORWARD and DELIVER.
 *   4. rp_deliver_poll(now) each loop turn sends what the turn has gathered and runs the timers.
 *
 * Promises. For one (queue, node, type) order is the order of rp_deliver_send(), over stream and
 * unary and the changes between them; control types of one (queue, node) keep their order among
 * themselves likewise. A message is given up only through on_lost or on_refused. After a lost
 * stream, what may have arrived is sent again first, in order, with RP_QMSG_REPEAT: the receiving
 * queue recognises it. Nothing is promised between types: a WITHDRAW is sent after on_took. A
 * payload of no bytes arrives as NULL.
 *
 * Upcalls come from inside the calls of this header (never from rp_deliver_send()) and may call
 * rp_deliver_send(). One thread owns an object; it reads no clock and allocates at creation only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/qmsg.h>
#include <base/units.h>
#include <link/frame.h>

struct rte_mbuf;
struct rte_mempool;
struct rp_deliver;

/**
 * A result of on_msg() for FORWARD and DELIVER only: not now. The message (not taken) and all
 * behind it on this stream wait, their credit is withheld, and on_msg() is asked again after
 * rp_deliver_resume(). By unary it is answered STALL, which the sender tries again.
 */
#define RP_DELIVER_HOLD RP_QSTATUS_COUNT

/** Why a queue's messages for a node went from the stream to unary. */
#define RP_DELIVER_FALLBACKS(X)                        \
	X(LINK_DOWN, "the link is down")               \
	X(STALL, "the stream stalled")                 \
	X(OPEN_REFUSED, "the peer refused the stream") \
	X(NO_STREAM, "limits.streams is reached here")

enum rp_deliver_fallback {
#define X(name, text) RP_DELIVER_FALLBACK_##name,
	RP_DELIVER_FALLBACKS(X)
#undef X
		RP_DELIVER_FALLBACK_COUNT,
};

/** What becomes of a queue's way to a node, of its FORWARDs or its DELIVERs. */
enum rp_deliver_note {
	RP_DELIVER_NOTE_OPENED,	   /**< a stream was asked for */
	RP_DELIVER_NOTE_IDLE,	   /**< its stream ends, as it carries nothing */
	RP_DELIVER_NOTE_FALL_BACK, /**< it goes on by unary */
	RP_DELIVER_NOTE_UNARY,	   /**< a message was taken there by unary */
};

/** What a peer can do wrong on a link; each closes the bundle. */
#define RP_DELIVER_VIOLATIONS(X)                                               \
	X(HEADER, "bad header")                                                \
	X(TYPE, "unknown or unexpected frame type")                            \
	X(FIELDS, "malformed fields")                                          \
	X(HANDLE, "no such stream")                                            \
	X(ROUTE, "frame on the wrong shard")                                   \
	X(CREDIT, "more than the credit")                                      \
	X(LENGTH, "more payload than announced, or than limits.message_bytes") \
	X(SEQUENCE, "answer to what was not sent")                             \
	X(ORDER, "continuation of nothing, or another message inside one")     \
	X(NO_BUFFERS, "out of buffers for what it sent")

enum rp_deliver_violation {
#define X(name, text) RP_DELIVER_VIOLATION_##name,
	RP_DELIVER_VIOLATIONS(X)
#undef X
		RP_DELIVER_VIOLATION_COUNT,
};

/* clang-format off */
#define RP_DELIVER_COUNTERS(X)                                                                   \
	X(streams_opened, "streams opened here")                                                 \
	X(streams_accepted, "streams opened by peers")                                           \
	X(streams_reset, "streams given up as receiver: a held message kept others from coming") \
	X(idle_closes, "streams closed since nothing went over them")                            \
	X(credit_returns, "times that unused credit went back")                                  \
	X(forwards_streamed, "FORWARDs sent on a stream, repeats included")                      \
	X(deliveries_streamed, "DELIVERs sent on a stream, repeats included")                    \
	X(forwards_unary, "FORWARDs answered by unary")                                          \
	X(deliveries_unary, "DELIVERs answered by unary")                                        \
	X(controls_framed, "other messages sent in frames")                                      \
	X(controls_unary, "other messages answered by unary")                                    \
	X(unary_failures, "unary calls that failed")                                             \
	X(repeats, "messages sent again after a loss")                                           \
	X(lost, "messages handed back, since they cannot be sent now")                           \
	X(took, "FORWARDs and DELIVERs that the peer took")                                      \
	X(received, "FORWARDs and DELIVERs taken here")                                          \
	X(received_unary, "messages that came by unary")                                         \
	X(received_control, "other messages that came")                                          \
	X(held, "times that a message was left with its stream: the queue had no room")          \
	X(chunks_moved, "chunks copied out of receive buffers to wait for the rest")             \
	X(frames_out, "frames given to links")                                                   \
	X(frames_in, "frames that came by links")                                                \
	X(frames_stale, "frames dropped: from a peer whose link is down here")                   \
	X(frames_unsent, "frames dropped: their bundle was gone already")                        \
	X(queue_full, "messages refused for now: what waits for the peer is at its most")        \
	X(partial_dropped, "incomplete messages freed when their stream ended")                  \
	X(no_buffers, "times that no buffer was free")
/* clang-format on */

struct rp_deliver_counters {
#define X(name, help) uint64_t name;
	RP_DELIVER_COUNTERS(X)
#undef X
	uint64_t fallbacks[RP_DELIVER_FALLBACK_COUNT];
	uint64_t violations[RP_DELIVER_VIOLATION_COUNT];
	uint64_t refused[RP_QSTATUS_COUNT];	 /**< our messages the peer refused, by status */
	uint64_t refused_here[RP_QSTATUS_COUNT]; /**< the peer's messages refused here */
};

struct rp_deliver_ops {
	/**
	 * A frame of the queue of `hash`, for the peer's link of that hash; `bundle` is what
	 * rp_deliver_peer_up() said. 0: taken.
	 * -EAGAIN: not taken, rp_deliver_on_room() follows. -ENOTCONN: the bundle is gone, not
	 * taken.
	 */
	int (*frame_out)(
		void *ctx, uint64_t node, uint32_t bundle, uint32_t hash, struct rte_mbuf *frame);
	/**
	 * Room for a small frame that goes as by frame_out(): all of its `bytes` are written before
	 * anything else is called. NULL: it goes by frame_out(). May be NULL itself.
	 */
	uint8_t *(*frame_room)(
		void *ctx, uint64_t node, uint32_t bundle, uint32_t hash, uint32_t bytes);
	/**
	 * Messages, or answers to them, of the queues of these hashes are about to be told: what
	 * they will touch may be fetched. May be NULL.
	 */
	void (*on_soon)(void *ctx, const uint32_t *hashes, unsigned n);
	/**
	 * Sends `frame` (take) to the node by RPC for the queue of `hash`; the answer comes to
	 * rp_deliver_unary_result() with `token`. 0, or -errno (not taken): not now.
	 */
	int (*unary_send)(
		void *ctx, uint64_t node, uint32_t hash, struct rte_mbuf *frame, uint64_t token);
	/** The peer broke the protocol: close its bundle; rp_deliver_peer_down() is expected to
	 * follow. */
	void (*violation)(void *ctx, uint64_t node, enum rp_deliver_violation why);

	/**
	 * A message from `node`. FORWARD and DELIVER: RP_Q_OK = taken, the payload with it; any
	 * other status refuses it (payload not taken; RP_Q_MOVED: *epoch and *dispatcher say the
	 * current one); or RP_DELIVER_HOLD. Other types: the payload is the callee's (take), the
	 * result unused. All of `m` but the payload is borrowed.
	 */
	int (*on_msg)(void *ctx, uint64_t node, const struct rp_qmsg *m, uint32_t *epoch,
		uint64_t *dispatcher, uint64_t now_ns);
	/** The node has it (FORWARD: indexed there). */
	void (*on_took)(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns);
	/** Refused by the node; for MOVED with the current (epoch, dispatcher). take: m->payload.
	 */
	void (*on_refused)(void *ctx, uint64_t node, const struct rp_qmsg *m,
		enum rp_qstatus status, uint32_t epoch, uint64_t dispatcher, uint64_t now_ns);
	/**
	 * Cannot be sent now: any type, in order. RP_QMSG_REPEAT is set when it may have arrived.
	 * take: m->payload.
	 */
	void (*on_lost)(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns);
	/** There is room again after an -ENOBUFS, or a way again after an -ENETUNREACH. */
	void (*on_room)(void *ctx, uint64_t node, uint64_t now_ns);
	/** NULL: not told. `why` of FALL_BACK only. Rare: not of a message on its stream. */
	void (*on_note)(void *ctx, const uint8_t *name, size_t length, enum rp_deliver_note what,
		enum rp_deliver_fallback why);
};

struct rp_deliver_config {
	uint64_t node;	/**< this node's id */
	uint32_t shard; /**< this shard's index, below `shards` */
	uint32_t shards;
	uint32_t links;		    /**< k: links of a bundle; 0 = 1 */
	uint32_t message_bytes_max; /**< limits.message_bytes: value; the tail comes on top */
	uint32_t window_bytes;	    /**< deliver.window_kib: credit a stream starts with, less where
				       there are many */
	uint32_t window_messages;   /**< the same in messages; 0 = 512 */
	uint32_t peer_budget_bytes; /**< credit given to one peer's streams together */
	uint32_t budget_bytes;	    /**< the same over all peers: what payload_pool has for it; 0 =
				       no bound but each peer's */
	uint32_t streams_max;	    /**< each way */
	uint32_t peers_max;
	uint32_t stream_messages_max; /**< waiting or unconfirmed, one queue and node and type; 0 =
					 1024 */
	uint32_t peer_messages_max; /**< links.peer_queue_frames: the same over all queues of a node
				     */
	uint32_t messages_max;	    /**< over all nodes */
	/**
	 * Messages are begun while fewer frames than this are out for a node and not answered; 0 =
	 * no bound. For a shard that posts its frames to another one, which cannot refuse them;
	 * what comes on top is bounded by peer_budget_bytes and by what the node itself has
	 * outstanding.
	 */
	uint32_t peer_frames_max;
	uint64_t idle_ns;	 /**< deliver.idle_s */
	uint64_t credit_idle_ns; /**< unused credit goes back after it; 0 = 1 s */
	uint64_t stall_ns;	 /**< DISPATCH_TIMEOUT; 0 = 5 s */
	bool unary_fallback;
	uint32_t unary_window;		  /**< outstanding a node; 0 = 64 */
	struct rte_mempool *pool;	  /**< borrow: frames, copies, indirect mbufs */
	struct rte_mempool *payload_pool; /**< borrow: parts that wait for the rest of their
					     message; NULL = pool */
};

/** borrow: pool, ops, ctx for the object's life. NULL and errno: EINVAL, ENOMEM. */
struct rp_deliver *rp_deliver_create(
	const struct rp_deliver_config *config, const struct rp_deliver_ops *ops, void *ctx);
/** Frees every payload it still has, without upcalls; NULL is fine. */
void rp_deliver_destroy(struct rp_deliver *d);

/**
 * Sends one message. 0: taken, m->payload with it (all else of `m` was copied; `cookie` comes back
 * in the upcalls). Else nothing was taken: -ENOBUFS: too many wait for this queue or node,
 * on_room() follows. -ENETUNREACH: neither the link nor (with the fallback on) unary is there.
 * -EMSGSIZE: larger than limits.message_bytes. -EINVAL: a name or tail that is too long.
 */
int rp_deliver_send(struct rp_deliver *d, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns);
/** Whether rp_deliver_send() would find a way to the node now. */
bool rp_deliver_reachable(const struct rp_deliver *d, uint64_t node);
/** Asks on_msg() again for what was held with RP_DELIVER_HOLD, on all streams. */
void rp_deliver_resume(struct rp_deliver *d, uint64_t now_ns);

/** The bundle `bundle` (not 0) to the node is up. -ENOSPC: more nodes than peers_max. */
int rp_deliver_peer_up(struct rp_deliver *d, uint64_t node, uint32_t bundle, uint64_t now_ns);
/**
 * It is down: streams of the peer to us end, what they held is dropped (the peer sends it again).
 * Ours go on by unary, or are handed back by on_lost, in order, before this returns.
 */
void rp_deliver_peer_down(struct rp_deliver *d, uint64_t node, uint64_t now_ns);
/** Whether unary_send() can reach the node. When neither way is left: on_lost for all that waits.
 */
int rp_deliver_set_unary(struct rp_deliver *d, uint64_t node, bool available, uint64_t now_ns);
/**
 * Rules of who may be sent what changed: streams of queues whose keys may not go to the node are
 * closed, and what waits for them or is not answered comes back by on_lost. What is to be said of
 * earlier messages goes on its way.
 */
void rp_deliver_part(struct rp_deliver *d,
	bool (*apart)(void *ctx, struct rp_span name, uint64_t node), void *ctx, uint64_t now_ns);
/** deliver.unary_fallback changed. */
void rp_deliver_set_fallback(struct rp_deliver *d, bool on, uint64_t now_ns);
/**
 * limits.message_bytes rose. A smaller value changes nothing: what was taken under the old limit
 * must still reach its consumer, and new messages are measured where they come in.
 */
void rp_deliver_raise_message_bytes(struct rp_deliver *d, uint32_t message_bytes_max);
/** The peer is dead or removed: everything for it comes back by on_lost, and it is forgotten. */
void rp_deliver_peer_remove(struct rp_deliver *d, uint64_t node, uint64_t now_ns);

/**
 * take: frames of one link that rp_frame_shard() put on this shard, in order, RP_LINK_BURST at
 * most. False: one broke the rules, and those behind it were dropped, as are all others of its
 * bundle.
 */
bool rp_deliver_on_frames(
	struct rp_deliver *d, uint64_t node, struct rte_mbuf **frames, unsigned n, uint64_t now_ns);
/** The same for one. */
void rp_deliver_on_frame(
	struct rp_deliver *d, uint64_t node, struct rte_mbuf *frame, uint64_t now_ns);
/** The link takes frames again after frame_out() said -EAGAIN. */
void rp_deliver_on_room(struct rp_deliver *d, uint64_t node, uint64_t now_ns);

/** Answer to an inbound unary message, and what rp_deliver_unary_result() is given at the sender.
 */
struct rp_deliver_answer {
	enum rp_qstatus status;
	uint32_t epoch; /**< MOVED: the current one */
	uint64_t dispatcher;
};

/**
 * take: one flat frame that came by RPC from `node`. 0: *answer is to be sent back. -EINVAL: not a
 * frame (counted as a violation, the bundle is left alone). rp_deliver_unary_shard() says which
 * shard it goes to.
 */
int rp_deliver_on_unary(struct rp_deliver *d, uint64_t node, struct rte_mbuf *frame,
	struct rp_deliver_answer *answer, uint64_t now_ns);
/** Shard of `shards` for a flat frame of `length` bytes at hand; -EINVAL: not a frame. */
int rp_deliver_unary_shard(const void *frame, size_t length, uint32_t shards);
/** `error` 0: the node answered `answer`; -errno: the call failed. Unknown tokens are ignored. */
void rp_deliver_unary_result(struct rp_deliver *d, uint64_t token, int error,
	const struct rp_deliver_answer *answer, uint64_t now_ns);

/** Sends what is due (bounded) and runs idle closes, stalls and retries. True: more is to be done.
 */
bool rp_deliver_poll(struct rp_deliver *d, uint64_t now_ns);
/** When rp_deliver_poll() next has something to do; RP_NEVER when nothing. */
uint64_t rp_deliver_next_deadline(const struct rp_deliver *d);

/** What is open or waiting for one node, or with node 0 for all. */
struct rp_deliver_info {
	uint32_t streams_out, streams_in; /**< open */
	uint32_t messages;		  /**< waiting or unconfirmed */
	uint32_t flows_unary;		  /**< queues whose messages go by unary now */
	uint64_t credit_given;		  /**< bytes of the budget that streams of the peer have */
	bool up, unary;
};

void rp_deliver_info(const struct rp_deliver *d, uint64_t node, struct rp_deliver_info *info);
/** How many of the peer's streams of this shard go by that link of its bundle; adds to both. */
void rp_deliver_link_streams(
	const struct rp_deliver *d, uint64_t node, uint32_t link, uint32_t *out, uint32_t *in);

/** Messages of one queue to or from one node: a stream, or what goes by unary for want of one. */
struct rp_deliver_stream_info {
	uint64_t node;
	struct rp_span name;	/**< of the queue; borrow: valid until the next call */
	bool out;		/**< this node sends the payload */
	enum rp_qmsg_type type; /**< FORWARD or DELIVER */
	const char *state;	/**< constant text */
	uint32_t messages;	/**< out: waiting or unanswered; in: not resolved */
	uint64_t done;		/**< answered on this stream */
	uint32_t credit_messages;
	uint64_t credit_bytes;
	uint64_t quiet_ns; /**< out: since the last progress */
};

/** Positions of the table that rp_deliver_stream_at() takes. */
uint32_t rp_deliver_stream_slots(const struct rp_deliver *d);
/** What is at a position of the table; false: nothing. */
bool rp_deliver_stream_at(const struct rp_deliver *d, uint32_t slot,
	struct rp_deliver_stream_info *info, uint64_t now_ns);
/** borrow: lives as long as the object. */
const struct rp_deliver_counters *rp_deliver_counters(const struct rp_deliver *d);
const char *rp_deliver_fallback_text(enum rp_deliver_fallback why);
const char *rp_deliver_violation_text(enum rp_deliver_violation why);
