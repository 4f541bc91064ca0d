/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What sinks share: they consume queues of the node that has them, through the calls of struct
 * rp_sink_host, and never wait. docs/sinks.md says what each guarantees.
 *
 * One thread, that of the loop.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>

struct rp_loop;

struct rp_sink_message {
	uint64_t idx;
	struct rp_span tail, value; /**< borrowed */
	uint32_t attempt;
};

struct rp_sink_consumer_ops {
	/** It is the sink's until it is acknowledged or rejected. */
	void (*message)(void *ctx, const struct rp_sink_message *m);
	/** It is the sink's no more. */
	void (*withdrawn)(void *ctx, uint64_t idx);
	/** The node ended it; the handle is dead, and what it had is offered again. */
	void (*end)(void *ctx, const char *reason);
};

/** `status` is a gRPC code, 0 when it was done; `result` of an acknowledge: how many. */
typedef void (*rp_sink_done_fn)(void *ctx, int status, const char *message, int64_t result);

#define RP_SINK_STATUS_UNAVAILABLE 14
/** Acknowledges that go together. */
#define RP_SINK_ACKS_MAX 128

/** No `done` comes from inside of the call that it was given to; it may be NULL. */
struct rp_sink_host {
	void *ctx;
	/** NULL and errno: not now. */
	void *(*consume)(void *ctx, struct rp_span queue, uint32_t prefetch,
		const struct rp_sink_consumer_ops *ops, void *ops_ctx);
	/** What it had is offered to others. */
	void (*close)(void *consumer);
	void (*ack)(void *consumer, uint64_t idx, rp_sink_done_fn done, void *done_ctx);
	/** So many at once, RP_SINK_ACKS_MAX at most; UNAVAILABLE: some were not. */
	void (*acks)(void *consumer, const uint64_t *idx, unsigned count, rp_sink_done_fn done,
		void *done_ctx);
	/** To the dead letters of its queue; where it has none the queue keeps it. */
	void (*reject)(void *consumer, uint64_t idx, rp_sink_done_fn done, void *done_ctx);
	void (*send)(void *ctx, struct rp_span queue, struct rp_span tail, struct rp_span value,
		rp_sink_done_fn done, void *done_ctx);
};

/** 1 s, doubling to 60 s. */
static inline uint64_t rp_sink_backoff_ns(uint32_t failures)
{
	uint32_t doublings = failures > 0 ? failures - 1 : 0;

	return RP_MIN(
		doublings < 6 ? RP_NS_PER_S << doublings : 60 * RP_NS_PER_S, 60 * RP_NS_PER_S);
}
