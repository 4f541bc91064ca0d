/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Unary calls of gRPC at a pace, over some connections, so many under way on each. */

#include <grpc/client.h>
#include <grpc/loop.h>

#include "mode.h"

#define CALLS_REQUEST_MAX (PERF_MESSAGE_MAX + 4096u)

struct calls;

struct calls_slot {
	struct calls *calls;
	struct rp_grpc_channel *channel;
	uint64_t planned_ns, begun_ns;
	unsigned next; /**< of the free ones */
};

struct calls_ops {
	const char *path;
	/** The nth request; its length, and where it is, until the next. */
	size_t (*request)(struct calls *c, uint64_t n, const uint8_t **data);
	/** Instead of a unary call, on a stream of the mode's: calls_slot_end() ends it. NULL:
	 * unary. */
	bool (*begin)(struct calls *c, struct calls_slot *s);
	/** All connections are there; calls begin when it says so. May be NULL. */
	bool (*ready)(struct calls *c);
	/** An answer's end is no end of the operation: that is the mode's business. */
	bool silent;
};

struct calls {
	struct perf_run *run;
	const struct calls_ops *ops;
	struct rp_loop *loop;
	unsigned channel_count, ready_count, slot_count, free;
	unsigned open; /**< calls under way */
	bool started, failed;
	uint64_t sent;
	uint64_t planned_ns; /**< of the call that a request is made for */
	struct rp_grpc_channel **channels;
	bool *ready;	   /**< of each channel: it was */
	uint64_t again_ns; /**< what was refused is dialled again then; 0: nothing was */
	struct calls_slot *slots;
	uint8_t *buffer; /**< of the mode: CALLS_REQUEST_MAX */
	void *mode;
	char reason[160];
};

/** 0 or -errno with run->why. */
int calls_begin(struct perf_run *r, const struct calls_ops *ops);
bool calls_turn(struct perf_run *r, uint64_t now_ns);
void calls_end(struct perf_run *r, uint64_t now_ns);
/** What was begun on the slot is over; `reason`: it failed. */
void calls_slot_end(struct calls_slot *s, const char *reason);
void calls_fail(struct calls *c, const char *reason);
