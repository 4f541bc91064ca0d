/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One end of two nodes whose data planes are real (lib/engine) and whose control planes are not:
 * this says to the engine what control would say, on the lcore itself, and answers what it asks.
 * Queues have the dispatchers that the modes give them, so that a message's way is the whole one of
 * a cluster, producer - link - dispatcher - consumer, without a client's connection.
 *
 *   1. end_begin() makes an engine on the run's port or kernel sockets; the server is node 1, the
 *      client node 2, who dials.
 *   2. end_consume() opens the consumer of a queue here; end_dispatcher() says that the other node
 *      dispatches one.
 *   3. end_frames() and end_turn() each turn; while end_is_up(), end_put().
 */

#include "mode.h"

#include <engine/shard_engine.h>

#define END_SERVER 1u
#define END_CLIENT 2u

#define END_QUEUES_MAX 16384u
/** Tokens below it are of consumers. */
#define END_TOKEN_MIN (END_QUEUES_MAX + 1u)

struct end;

/** Of a value so much lies in one piece, if it has so much. */
#define END_HEAD_BYTES 512

struct end_message {
	uint64_t consumer; /**< the nth that end_consume() opened, from 1 */
	const uint8_t *value;
	uint32_t length;
};

struct end_ops {
	/** The dispatcher has it, or (false) not. */
	void (*answered)(struct end *e, uint64_t token, bool good, uint64_t now_ns);
	/**
	 * A message for a consumer here, at least as long as the run's size. It is acknowledged
	 * when the turn's frames have gone: who waits for what comes of it does not wait for that.
	 */
	void (*message)(struct end *e, const struct end_message *m, uint64_t now_ns);
	/** All of the turn was told: what is put now leaves with what comes of that. May be NULL.
	 */
	void (*told)(struct end *e, uint64_t now_ns);
};

struct end_ack {
	uint64_t consumer, idx;
};

struct end {
	struct perf_run *run;
	const struct end_ops *ops;
	struct rp_engine *engine;
	bool up, stopping;
	int64_t wall_offset_ns;
	uint64_t now_ns; /**< of the turn */
	uint64_t open;	 /**< puts without an answer */
	uint64_t put, answered, received;
	unsigned consumers; /**< queues consumed here */
	/* What the engine said, until the turn is over: its callbacks may not call back. */
	struct rp_xmsg *box;
	unsigned box_head, box_tail;
	struct end_ack *acks; /**< of the turn */
	unsigned ack_count;
	bool got; /**< frames came in this turn */
	bool was_busy;
	uint64_t turned_ns;
	struct perf_load turned, load_from; /**< the latter: what was so when it began to count */
	void *mode;			    /**< the mode's own */
};

/** 0 or -errno with run->why. */
int end_begin(struct perf_run *r, const struct end_ops *ops, uint64_t now_ns);
/** At most END_QUEUES_MAX; the name is copied. */
void end_consume(struct end *e, const char *queue);
void end_dispatcher(struct end *e, const char *queue, uint64_t node);
void end_frames(
	struct perf_run *r, unsigned port, struct rte_mbuf **burst, unsigned n, uint64_t now_ns);
/** True: something was done. */
bool end_turn(struct perf_run *r, uint64_t now_ns);
/** The link stands. A client fails the run when it does not in time. */
bool end_is_up(struct end *e, uint64_t now_ns);
/** `head` begins the value, which has the run's size at least. False: there is no buffer. */
bool end_put(struct end *e, const char *queue, uint64_t token, const void *head,
	uint32_t head_bytes, uint64_t now_ns);
/** Its load is counted from now on. */
void end_load_begin(struct end *e);
void end_load(const struct end *e, struct perf_load *load);
void end_end(struct perf_run *r, uint64_t now_ns);
