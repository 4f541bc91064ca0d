/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Ringpost inside of another program: a whole node in this process, its keys and queues by function
 * calls, and services of the program's own on the same port.
 *
 *   1. rp_ringpost_create() with flags as ringpostd(8) takes them (--config FILE among them). One a
 *      process: DPDK starts once.
 *   2. Services of your own: rp_grpc_server_add_methods(rp_ringpost_server(), ...).
 *   3. rp_ringpost_run() on the same thread; it returns when the node has stopped. on_ready() says
 *      when writes are taken.
 *   4. rp_ringpost_destroy() on that thread.
 *
 * Threads. The thread that created the node is the node's thread: it alone makes the calls below,
 * from the events and callbacks, which all come on it, or by rp_ringpost_post(). Two functions may
 * be called on any thread, and in a signal handler where it says so: rp_ringpost_post() and
 * rp_ringpost_stop(). A callback that takes long keeps all clients waiting; the shards, which have
 * threads of their own, go on.
 *
 * Ownership. What is passed in is copied, but for `ctx` and functions. What a callback or a getter
 * gives is borrowed: until the callback returns, or until the next call. Each `done` is called
 * once, never from inside the call that it was given to; after rp_ringpost_destroy() nothing is
 * called. A `done` that may be NULL says so.
 *
 * Policy. Keys go where the prefix lists of the configuration let them. Nobody remote calls here,
 * so local_only_prefix does not matter, and readonly_prefix may be written: this is who writes it.
 *
 * Status is a gRPC code: 0 OK, 3 INVALID_ARGUMENT, 8 RESOURCE_EXHAUSTED, 9 FAILED_PRECONDITION, 14
 * UNAVAILABLE.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rp_ringpost;
struct rp_grpc_server;
struct rp_loop;

struct rp_ringpost_bytes {
	const void *data;
	size_t length;
};

static inline struct rp_ringpost_bytes rp_ringpost_text(const char *text)
{
	return (struct rp_ringpost_bytes){text, strlen(text)};
}

/** `result`: of a put the revision; of a delete and an acknowledge how many; else 0. */
typedef void (*rp_ringpost_done_fn)(void *ctx, int status, const char *message, int64_t result);
typedef void (*rp_ringpost_fn)(void *ctx);

/** Where another node stands, as this one sees it. */
enum rp_ringpost_node_state {
	RP_RINGPOST_NODE_GONE,
	RP_RINGPOST_NODE_SPARE,	      /**< not reached, or not synced */
	RP_RINGPOST_NODE_IN_PROGRESS, /**< syncing */
	RP_RINGPOST_NODE_ONLINE,
};

/** Each may be NULL. */
struct rp_ringpost_events {
	/** Writes are taken from now on; `alone`: no other node was there to sync with. */
	void (*ready)(void *ctx, bool alone);
	void (*node_state)(void *ctx, uint64_t node, enum rp_ringpost_node_state state);
	/** A configuration that was read again is in force. */
	void (*reconfigured)(void *ctx);
	/** The node stops: no write is taken any more. */
	void (*stopping)(void *ctx);
};

struct rp_ringpost_config {
	/** Flags, without a program's name; borrow for the node's life. */
	int argc;
	const char *const *argv;
	/** SIGTERM, SIGINT and SIGHUP stop the node and reload it, as those of ringpostd do. */
	bool signals;
	struct rp_ringpost_events events;
	void *ctx; /**< of the events */
	/** Instead of standard error; any thread. May be NULL. */
	void (*log)(const char *subject, const char *level, const char *text);
};

/**
 * NULL with *status, one of ringpostd's exit statuses, and `error`: cause, evidence and remedy, for
 * a configuration all errors, a line each.
 */
struct rp_ringpost *rp_ringpost_create(
	const struct rp_ringpost_config *config, int *status, char *error, size_t error_size);
/** Until the node has stopped. An exit status of ringpostd, 0 in order. */
int rp_ringpost_run(struct rp_ringpost *rp);
/** As SIGTERM does. Any thread, and a signal handler. */
void rp_ringpost_stop(struct rp_ringpost *rp);
/** NULL is fine. */
void rp_ringpost_destroy(struct rp_ringpost *rp);

/**
 * Any thread, while the node exists: has the node's thread call fn(ctx), in the order of the calls.
 * What has not run when the node stops is not run.
 */
void rp_ringpost_post(struct rp_ringpost *rp, rp_ringpost_fn fn, void *ctx);
/** On the node's thread, once, after so long. Not run when the node stops before. */
void rp_ringpost_after(struct rp_ringpost *rp, uint64_t ns, rp_ringpost_fn fn, void *ctx);

/* ---- the node ---- */

uint64_t rp_ringpost_node(const struct rp_ringpost *rp);
/** The port of the first client address, where 0 was asked for the one that it got. */
uint16_t rp_ringpost_port(const struct rp_ringpost *rp);
/** For services of your own (grpc/server.h), before rp_ringpost_run(). */
struct rp_grpc_server *rp_ringpost_server(struct rp_ringpost *rp);
/** For timers and descriptors of your own (grpc/loop.h). */
struct rp_loop *rp_ringpost_loop(struct rp_ringpost *rp);
/** File and flags are read again, as by `ringpostctl reload`. False: an error, nothing changed. */
bool rp_ringpost_reload(struct rp_ringpost *rp, char *error, size_t error_size);
/** The term that clients are told is one more, and all peers are dialled and synced with anew. */
void rp_ringpost_restart(struct rp_ringpost *rp);
/**
 * For tests of what depends on the node: its thread does nothing for so long, as if it got no CPU.
 * The shards go on. A stop ends it.
 */
void rp_ringpost_pause(struct rp_ringpost *rp, uint64_t ns);
/** On: as `ringpostctl drain`. */
void rp_ringpost_drain(struct rp_ringpost *rp, bool on);

/**
 * One metric by its name in docs/counters.md; texts are borrowed. Seconds come as nanoseconds,
 * ratios as parts of a million, process_ times as microseconds; of a histogram how many values.
 */
typedef void (*rp_ringpost_metric_fn)(
	void *ctx, const char *name, const char *labels, uint64_t value);
/** Calls `fn` for each metric, later in this thread, and then done(ctx). */
void rp_ringpost_metrics(
	struct rp_ringpost *rp, rp_ringpost_metric_fn fn, rp_ringpost_fn done, void *ctx);

/* ---- keys: those that are no queue's ---- */

struct rp_ringpost_kv {
	struct rp_ringpost_bytes key, value; /**< of a delete the value is empty */
	int64_t create_revision, mod_revision, version, lease;
	bool deleted;
};

/** Answered as a client's put is. `done` may be NULL. */
void rp_ringpost_put(struct rp_ringpost *rp, struct rp_ringpost_bytes key,
	struct rp_ringpost_bytes value, rp_ringpost_done_fn done, void *ctx);
/** `done` may be NULL. */
void rp_ringpost_delete(
	struct rp_ringpost *rp, struct rp_ringpost_bytes key, rp_ringpost_done_fn done, void *ctx);
/** As this node has it. False: there is no such key. *out is borrowed until the next call. */
bool rp_ringpost_get(
	struct rp_ringpost *rp, struct rp_ringpost_bytes key, struct rp_ringpost_kv *out);
/**
 * Calls `fn` for each key that begins with `prefix`, in order, until it says false. It must not
 * call the node. Returns how many it was called for. Records of queues are keys, too.
 */
size_t rp_ringpost_prefix(struct rp_ringpost *rp, struct rp_ringpost_bytes prefix,
	bool (*fn)(void *ctx, const struct rp_ringpost_kv *kv), void *ctx);

struct rp_ringpost_watch;
/**
 * Puts and deletes of all keys that begin with `prefix` (with `exact`: of that key), from
 * `start_revision` on; 0: from now on. In order, each once. `end`: history before start_revision
 * was compacted; the watch is over then.
 */
struct rp_ringpost_watch *rp_ringpost_watch(struct rp_ringpost *rp, struct rp_ringpost_bytes prefix,
	bool exact, int64_t start_revision,
	void (*event)(void *ctx, const struct rp_ringpost_kv *kv),
	void (*end)(void *ctx, int64_t compacted_revision), void *ctx);
/** No event after this, also in the midst of its own. NULL is fine. */
void rp_ringpost_unwatch(struct rp_ringpost_watch *w);

/* ---- queues ---- */

/**
 * A producer: done with OK when the dispatcher, wherever it is, has indexed the message. A tail is
 * 1 to 255 bytes without a slash. `done` may be NULL.
 */
void rp_ringpost_send(struct rp_ringpost *rp, struct rp_ringpost_bytes queue,
	struct rp_ringpost_bytes tail, struct rp_ringpost_bytes value, rp_ringpost_done_fn done,
	void *ctx);

struct rp_ringpost_consumer;

struct rp_ringpost_message {
	uint64_t idx;
	struct rp_ringpost_bytes tail, value;
	uint32_t attempt; /**< from 1 */
	int64_t revision; /**< of this consumer's sequence; where to go on after a restart */
};

struct rp_ringpost_consumer_ops {
	/** It is this consumer's until it acknowledges or rejects it, which it may at once. */
	void (*message)(
		void *ctx, struct rp_ringpost_consumer *c, const struct rp_ringpost_message *m);
	/** It is not this consumer's any more: an acknowledge would be refused. May be NULL. */
	void (*withdrawn)(void *ctx, struct rp_ringpost_consumer *c, uint64_t idx);
	/** The node ended it; the pointer is dead. */
	void (*end)(void *ctx, struct rp_ringpost_consumer *c, const char *reason);
};

/**
 * A consumer of this node, which then dispatches the queue unless another node with consumers does.
 * `uuid` (16 bytes) names it for its life; NULL: a random one. `fields` as clients put them:
 * ";prefetch=16;match=job", "" for none: prefetch bounds what it is given before it acknowledges.
 * NULL with errno: EINVAL (name, that of a queue for ClickHouse, fields), ENOSPC, EAGAIN (not
 * ready, no buffers), EBUSY (draining).
 */
struct rp_ringpost_consumer *rp_ringpost_consume(struct rp_ringpost *rp,
	struct rp_ringpost_bytes queue, const uint8_t *uuid, const char *fields,
	int64_t start_revision, const struct rp_ringpost_consumer_ops *ops, void *ctx);
/** `left`: it does not come back, and what it held is offered to others at once. NULL is fine. */
void rp_ringpost_consumer_close(struct rp_ringpost_consumer *c, bool left);
/** `done` may be NULL; its result is 0 for what is not held (any more). */
void rp_ringpost_ack(
	struct rp_ringpost_consumer *c, uint64_t idx, rp_ringpost_done_fn done, void *ctx);
/** It goes to another consumer. `done` may be NULL. */
void rp_ringpost_reject(
	struct rp_ringpost_consumer *c, uint64_t idx, rp_ringpost_done_fn done, void *ctx);

/**
 * A pair: replies to what comes on `request` go to `reply` (the record's reply_to), whose
 * dispatcher is pinned to this node, where the requester is: soon after this returns where nobody
 * or a node without consumers of it dispatches `reply`, and else when the last one there has left.
 * A pinned dispatcher follows its only consumer to another node once that was there for 30 s. 0 or
 * -EINVAL (a name), -EAGAIN (not ready).
 */
int rp_ringpost_queue_link(
	struct rp_ringpost *rp, struct rp_ringpost_bytes request, struct rp_ringpost_bytes reply);
/** The node that dispatches the queue, as the registry has it; 0: none is known. */
uint64_t rp_ringpost_queue_dispatcher(struct rp_ringpost *rp, struct rp_ringpost_bytes queue);
