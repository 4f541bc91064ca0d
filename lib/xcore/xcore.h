/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The rings between the planes: one single-producer single-consumer rte_ring per ordered pair
 * (shard to shard, control to shard, shard to control) that carries struct rp_xmsg by value
 * (design 2.3). What the messages mean is in xcore_msg.h; this file only moves them.
 *
 *   1. rp_xcore_create() on the control thread after EAL's start, before any shard runs.
 *   2. Each side takes its end: rp_xcore_end(x, shard) or rp_xcore_end(x, RP_XCORE_CONTROL). An end
 *      is used by one thread only.
 *   3. A turn of either loop: rp_xcore_recv() until it gives nothing or the turn's budget is used,
 *      work, rp_xcore_send(), and once at the turn's end rp_xcore_flush(): it moves the backlog and
 *      rings whoever sleeps. Without the flush a sleeper may not learn of what was sent to it.
 *   4. To sleep: rp_xcore_sleep() (shard), or rp_xcore_sleep_begin(), epoll on rp_xcore_fd(),
 *      rp_xcore_sleep_end() (control).
 *   5. After the threads have stopped: recv on every end frees what the messages hold, then
 *      rp_xcore_destroy().
 *
 * Token rule of the control<->shard rings. A ring of N usable slots is cut in three parts, normal,
 * reserve and answers: N = n + r + a. The producer knows the class of each message that it has in
 * the ring, and what the consumer has taken out.
 *
 *   - Class NORMAL is sent while the ring holds fewer than n NORMAL messages and fewer than n + r
 *     NORMAL and RESERVE ones together; otherwise send() says -EAGAIN and nothing is taken: the
 *     caller holds its message.
 *   - Class RESERVE (acknowledges, cancels, withdrawals) needs the second only. Past it the message
 *     waits in a bounded backlog of the sender, in order, and NORMAL ones are refused meanwhile;
 *     -EAGAIN only when the backlog is full too.
 *   - A message that wants an answer is sent with RP_XCORE_ASKS. It also takes one of the `a`
 *     answer slots of the ring that comes back, and holds it until the answer has been received
 *     here; NORMAL asks may hold all but an eighth of them, RESERVE asks all.
 *   - Class ANSWER answers one message received with RP_XCORE_ASKS, exactly one for each.
 *
 * Answers always fit. At any moment the answers that lie in a ring were each asked for by a message
 * whose answer slot is still held by the asker, so there are at most a of them; NORMAL and RESERVE
 * together are at most n + r by the first rule; a + n + r = N. So send() of an ANSWER never fails,
 * no side ever waits with an answer in its hand, and both sides can always go on draining what
 * comes in: there is no cycle of waits. RP_ASSERT holds the callers to "exactly one answer for each
 * ask".
 *
 * Shard<->shard rings have no classes. When the ring is full, send() puts the message into a
 * bounded backlog of the sender, in order; flush() moves it on; the sender goes on draining its own
 * inputs. When the backlog is full as well, send() says -ENOBUFS, nothing is taken, and the caller
 * drops and counts, or holds.
 *
 * Wake-ups. Each end has an eventfd and a `sleeping` word. The sleeper stores sleeping = 1, passes
 * a full barrier and looks once more at everything that could wake it; a sender publishes its
 * messages, passes a full barrier (once a flush, not once a message) and reads the word. One of the
 * two sees the other, so no wake-up is lost, and nobody makes a system call for an end that is
 * awake. The same handshake tells an end that ran out of tokens when there are some again.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>

struct rp_xcore;
struct rp_xcore_end;
struct rp_xmsg;

/** The control thread's end; shards are 0 .. shard_count - 1. */
#define RP_XCORE_CONTROL RP_SHARDS_MAX
#define RP_XCORE_ENDS_MAX (RP_SHARDS_MAX + 1)

/** How a message is sent: one class, and RP_XCORE_ASKS where an answer is wanted. */
enum rp_xcore_how {
	RP_XCORE_NORMAL = 0,
	RP_XCORE_RESERVE = 1,
	RP_XCORE_ANSWER = 2,
	RP_XCORE_CLASS_MASK = 3,
	/** Holds an answer slot until the answer is received. Control<->shard, NORMAL and RESERVE.
	 */
	RP_XCORE_ASKS = 4,
};

/** Counters of an end; any thread may read them, relaxed. */
#define RP_XCORE_COUNTERS(X)                                                           \
	X(sent, "messages put into a ring")                                            \
	X(received, "messages taken out of a ring")                                    \
	X(no_token, "sends refused for want of a token; the caller holds the message") \
	X(backlogged, "messages that waited in the backlog of the sender")             \
	X(backlog_full, "messages to a shard refused, ring and backlog being full")    \
	X(rings, "wake-ups written to the eventfd of another end")                     \
	X(sleeps, "times that this end slept")

struct rp_xcore_stats {
#define X(name, text) uint64_t name;
	RP_XCORE_COUNTERS(X)
#undef X
};

struct rp_xcore_config {
	unsigned shard_count;		 /**< 1 .. RP_SHARDS_MAX */
	int control_socket;		 /**< NUMA socket, or SOCKET_ID_ANY (-1) */
	int shard_socket[RP_SHARDS_MAX]; /**< of the rings that the shard reads */
	uint32_t control_slots; /**< N of each control<->shard ring; 0 = 8191 (2^n - 1 wastes none)
				 */
	uint32_t control_reserve_slots; /**< r; 0 = N / 8 */
	uint32_t control_answer_slots;	/**< a; 0 = N / 2; n = N - r - a must be >= 1 */
	uint32_t control_backlog_slots; /**< for RESERVE messages of either side; 0 = 4096 */
	uint32_t shard_slots;		/**< of each shard->shard ring; 0 = 1023 */
	uint32_t shard_backlog_slots;	/**< of each shard->shard backlog; 0 = 1024 */
};

/** NULL and errno: EINVAL, ENOMEM, EMFILE. Control thread, EAL running. */
struct rp_xcore *rp_xcore_create(const struct rp_xcore_config *config);
/** NULL is fine. Messages still inside are forgotten, not freed: drain first. */
void rp_xcore_destroy(struct rp_xcore *x);

/** borrow, valid until destroy; RP_ASSERT on an id that does not exist. */
struct rp_xcore_end *rp_xcore_end(struct rp_xcore *x, unsigned id);
unsigned rp_xcore_end_id(const struct rp_xcore_end *e);
unsigned rp_xcore_shard_count(const struct rp_xcore *x);

/**
 * Copies *m into the ring to `to` (not this end itself). take on 0: what the message holds (mbufs)
 * is the receiver's. -EAGAIN: out of tokens, hold it and try again when rp_xcore_tokens() is not 0
 * (the end is woken for that); -ENOBUFS: shard->shard, ring and backlog full. `how` is an
 * enum rp_xcore_how; between shards it must be RP_XCORE_NORMAL.
 */
int rp_xcore_send(struct rp_xcore_end *e, unsigned to, const struct rp_xmsg *m, unsigned how);

/**
 * The `how` of a message's type, by the table in xcore_msg.h: answered types ask, their answers
 * answer, class R uses the reserve.
 */
unsigned rp_xcore_how_of(unsigned type);

/** rp_xcore_send() with the `how` of m->type (between shards: NORMAL). */
int rp_xcore_post(struct rp_xcore_end *e, unsigned to, const struct rp_xmsg *m);

/**
 * How many messages sent with `how` would be taken now; UINT32_MAX is never returned. For ANSWER:
 * how many answers are owed to `to`. 0 also marks the end as one that waits for tokens, so that it
 * is woken when there are some.
 */
uint32_t rp_xcore_tokens(struct rp_xcore_end *e, unsigned to, unsigned how);

/** Up to `max` messages of one sender, oldest first. take: what they hold is the caller's. */
unsigned rp_xcore_recv(struct rp_xcore_end *e, unsigned from, struct rp_xmsg *out, unsigned max);

/**
 * Up to `max` messages from whoever has some, each sender's in order, the senders in turn: the next
 * call begins behind the one that this call ended with. `from` (may be NULL) gets the sender of
 * each.
 */
unsigned rp_xcore_recv_any(
	struct rp_xcore_end *e, struct rp_xmsg *out, uint8_t *from, unsigned max);

/** Moves the backlog, rings sleepers. How many messages are still in the backlog. */
uint32_t rp_xcore_flush(struct rp_xcore_end *e);

/**
 * Is there something to receive, or did the receiver of a backlog or of a refused message take
 * something out? The latter is told once: then try again.
 */
bool rp_xcore_pending(struct rp_xcore_end *e);

/** The eventfd of this end (borrow), for epoll; readable when it was rung. */
int rp_xcore_fd(const struct rp_xcore_end *e);

/**
 * Declares this end asleep. False: there is work, do not sleep (and the end is awake again). True:
 * now block on rp_xcore_fd(), then rp_xcore_sleep_end(). Flushes first.
 */
bool rp_xcore_sleep_begin(struct rp_xcore_end *e);
/** Declares this end awake and clears its eventfd. Harmless when it did not sleep. */
void rp_xcore_sleep_end(struct rp_xcore_end *e);

/**
 * Both in one for a thread that has nothing else to wait for: sleeps until rung or for `timeout_ns`
 * (RP_NEVER: until rung). True when there is something to do. The caller sets its timer slack.
 */
bool rp_xcore_sleep(struct rp_xcore_end *e, uint64_t timeout_ns);

/** Wakes end `to`, asleep or not (a stop, a signal). Any thread. */
void rp_xcore_wake(struct rp_xcore *x, unsigned to);

/** Messages in the ring between two ends, and how many it takes; 0, 0: there is none. Any thread.
 */
void rp_xcore_ring(
	const struct rp_xcore *x, unsigned from, unsigned to, uint32_t *used, uint32_t *size);

/** A copy of the counters. Any thread. */
void rp_xcore_get_stats(const struct rp_xcore_end *e, struct rp_xcore_stats *out);
