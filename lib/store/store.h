/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The message bus's storage (spec/storage.md): messages by their id, and the queues between
 * programs and their bus. In memory, or in Redis under the keys of the original bus, so that
 * programs written for it work:
 *
 *	msgbus.system.local	messages that programs of this host sent
 *	msgbus.system.forward	<id>.<destination>: messages on their way to other hosts
 *	msgbus.system.reply	answers on their way to other hosts
 *	msgbus.<command>	what a program of this host is to work on
 *	msgbus.backlog.<id>	a forwarded message, for as long as it lives
 *	<ret>			answers, where the message says that it waits for them
 *
 * and of our own: msgbus.sender.<id>, whom to tell when it expires; msgbus.held.<owner>.<queue>,
 * what this owner has taken and not settled.
 *
 *   1. rp_store_create(), with a loop: everything happens on its thread, without waiting there.
 *   2. The calls below. Each `done` is called once, in a later turn of the loop, unless the store
 *      is destroyed before. What it shows is borrowed for the call.
 *   3. rp_store_destroy(). What was taken and not settled is found again by the next store of the
 *      same owner (Redis), or is gone with all the rest (memory).
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>
#include <store/message.h>

struct rp_loop;
struct rp_store;

#define RP_STORE_LOCAL "msgbus.system.local"
#define RP_STORE_FORWARD "msgbus.system.forward"
#define RP_STORE_REPLY "msgbus.system.reply"
#define RP_STORE_PREFIX "msgbus."

/** What a message without an end of its own gets for its time in the backlog. */
#define RP_STORE_TTL_DEFAULT_MS 20000ull

#define RP_STORE_STATUSES(X)                                                         \
	X(OK, "done")                                                                \
	X(NONE, "there is no such message")                                          \
	X(INVALID, "the message has no id, or lacks what the call needs")            \
	X(EXPIRED, "the message's time is over")                                     \
	X(FULL, "the storage is full")                                               \
	X(UNAVAILABLE, "the storage cannot be reached")                              \
	X(TIMEOUT, "the storage did not answer in time: it may have done it or not") \
	X(REFUSED, "the storage refused")                                            \
	X(MALFORMED, "what the storage holds is no message")

enum rp_store_status {
#define X(name, text) RP_STORE_##name,
	RP_STORE_STATUSES(X)
#undef X
		RP_STORE_STATUS_COUNT,
};

const char *rp_store_status_text(enum rp_store_status status);

#define RP_STORE_COUNTERS(X)                                                              \
	X(gets, "get: messages asked for by their id")                                    \
	X(runs, "run: messages pushed to a program's queue")                              \
	X(forwards, "forward: messages put into the backlog")                             \
	X(replies, "reply: answers pushed to where they are waited for")                  \
	X(locals, "local: messages of programs of this host")                             \
	X(queued_forwards, "queued: messages to be forwarded")                            \
	X(queued_replies, "queued: answers")                                              \
	X(commands_dropped, "oldest messages of a program's queue that had to make room") \
	X(forwards_expired_dropped, "messages whose time was over when their turn came")  \
	X(senders_told, "senders that were told of it")                                   \
	X(refused_expired, "calls refused: the message's time was over")                  \
	X(refused_invalid, "calls refused: no id, or no queue to push to")                \
	X(malformed_dropped, "entries of the queues that were no message")                \
	X(cache_hits, "forwarded messages found in the cache")                            \
	X(cache_misses, "forwarded messages asked of the backlog")                        \
	X(failed, "calls that failed: not reached, no answer in time, full, or refused")  \
	X(connects, "connections to Redis made")                                          \
	X(disconnects, "connections to Redis lost or given up")                           \
	X(taken, "entries taken from queues")                                             \
	X(taken_again, "entries that an earlier connection or life had taken")            \
	X(returned, "entries put back to the head of their queue")                        \
	X(settled, "entries that were done with")

struct rp_store_counters {
#define X(name, help) uint64_t name;
	RP_STORE_COUNTERS(X)
#undef X
};

struct rp_store_config {
	struct rp_loop *loop; /**< borrow */
	/** redis://[:password@]host[:port][/database], unix:///path[?db=N]; "" = memory. */
	const char *url;
	const char *owner;	   /**< who it is that takes from the queues: the node's id */
	uint32_t commands_max;	   /**< 0 = 500 */
	uint32_t cache_entries;	   /**< 0 = 1000 */
	uint32_t timeout_ms;	   /**< 0 = 3000 */
	uint64_t memory_bytes_max; /**< of the store in memory; 0 = 256 MiB */
	/** Milliseconds since the epoch; NULL = the system's clock. */
	uint64_t (*wall_ms)(void *ctx);
	void *ctx;
};

/** NULL and errno: EINVAL, a URL that is none. A server that is not there is no error. */
struct rp_store *rp_store_create(const struct rp_store_config *config);
/** No callback after it. NULL is fine. */
void rp_store_destroy(struct rp_store *s);
/** From now on; the URL and the owner stay. */
void rp_store_set_limits(
	struct rp_store *s, uint32_t commands_max, uint32_t cache_entries, uint32_t timeout_ms);

enum rp_store_kind {
	RP_STORE_KIND_FORWARD, /**< to be sent to its one destination */
	RP_STORE_KIND_REPLY,
};

struct rp_store_result {
	enum rp_store_status status;
	const char *text;		/**< why, with what the server said; "" with OK */
	struct rp_bus_message *message; /**< of get, local and queued, with OK; else NULL */
	enum rp_store_kind kind;	/**< of queued */
	uint64_t count; /**< run: how many oldest had to go; length: how many there are */
};

typedef void (*rp_store_done_fn)(void *ctx, const struct rp_store_result *r);

/** The message under its id, unless its time is over. */
void rp_store_get(struct rp_store *s, const char *id, rp_store_done_fn done, void *ctx);
/** To the queue of the program that works on its command, which holds `commands_max` at most. */
void rp_store_run(
	struct rp_store *s, const struct rp_bus_message *m, rp_store_done_fn done, void *ctx);
/**
 * Into the backlog for the rest of its life, and one entry for each destination to the forward
 * queue: all of it or nothing. EXPIRED when there is no rest.
 */
void rp_store_forward(
	struct rp_store *s, const struct rp_bus_message *m, rp_store_done_fn done, void *ctx);
/** To the queue that its `reply` names. */
void rp_store_reply(
	struct rp_store *s, const struct rp_bus_message *m, rp_store_done_fn done, void *ctx);
/**
 * The next message that a program of this host sent, as soon as there is one; it gets an id when it
 * has none. It is settled when `done` returns.
 */
void rp_store_local(struct rp_store *s, rp_store_done_fn done, void *ctx);
/** The next of forward or reply, by turns while both have some; settled likewise. */
void rp_store_queued(struct rp_store *s, rp_store_done_fn done, void *ctx);

/* ---- any queue, for those who work on commands (msgbus.<command>) ---- */

/** `entry` behind all others of the queue; FULL when it holds `max` already (0: no bound). */
void rp_store_push(struct rp_store *s, const char *queue, struct rp_span entry, uint32_t max,
	rp_store_done_fn done, void *ctx);
/** How many wait in the queue: result.count. */
void rp_store_length(struct rp_store *s, const char *queue, rp_store_done_fn done, void *ctx);

struct rp_store_taker;
/** One that was taken: it is this owner's until it is settled or given back. Borrowed bytes. */
typedef void (*rp_store_entry_fn)(void *ctx, uint64_t id, struct rp_span entry);

/**
 * Takes entries of the queue, oldest first, as many as rp_store_want() allows; never from inside
 * a call. What this owner took before and did not settle comes first. One taker of a queue at a
 * time; one that follows another may be given a few entries more than it wanted.
 */
struct rp_store_taker *rp_store_take(
	struct rp_store *s, const char *queue, rp_store_entry_fn entry, void *ctx);
/** So many more. */
void rp_store_want(struct rp_store_taker *t, uint32_t more);
/** Done with: it is gone, at last when the server is there again. */
void rp_store_settle(struct rp_store_taker *t, uint64_t id);
/** Back to the head of its queue, for whoever takes next. */
void rp_store_give_back(struct rp_store_taker *t, uint64_t id);
/** No entry from now on, and what was not settled is given back. NULL is fine. */
void rp_store_take_end(struct rp_store_taker *t);

/* ---- state ---- */

struct rp_store_state {
	bool redis;	   /**< else in memory */
	bool connected;	   /**< always, in memory */
	char address[300]; /**< without a password; "memory" */
	char error[200];   /**< why it is not, or was not last; "" */
	uint64_t bytes;	   /**< held in memory, of messages and entries taken */
	uint32_t calls;	   /**< that wait for an answer */
	uint32_t takers;
	uint64_t held; /**< entries taken and not settled */
};
void rp_store_state_get(struct rp_store *s, struct rp_store_state *state);
const struct rp_store_counters *rp_store_counters(const struct rp_store *s);
