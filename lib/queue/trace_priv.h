/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where the engine tells of messages that are followed (trace.h), and of times. */

#include <queue/trace.h>

#include "queue_priv.h"

struct queue_traces;

struct queue_traces *traces_new(void);

void trace_add(struct rp_queues *qs, const struct message *m, enum rp_queue_step step,
	const struct consumer *c, uint64_t now_ns);
void trace_end(struct rp_queues *qs, struct message *m, enum rp_queue_step step, uint64_t node,
	const char *why, uint64_t now_ns);
/** The message, just indexed, is followed if that was asked for. */
void trace_begin(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** It leaves the queue, and nobody said how. */
void trace_gone(struct rp_queues *qs, struct message *m);
/** The queue is freed: nobody waits for its messages. */
void trace_disarm(struct rp_queues *qs, struct queue *q);

/* times.c */
struct queue_times_table *times_new(void);
/** An offer of the queue reached its client. */
void times_count(struct rp_queues *qs, struct queue *q, uint64_t wait_ns, uint64_t accept_ns);
/** The queue is freed. */
void times_forget(struct rp_queues *qs, struct queue *q);

/** A step of a message; `c`: the consumer that it is about, or NULL. */
static inline void trace_step(struct rp_queues *qs, const struct message *m,
	enum rp_queue_step step, const struct consumer *c, uint64_t now_ns)
{
	if (__builtin_expect(m->traced, 0))
		trace_add(qs, m, step, c, now_ns);
}

/** Its last step; `why` is constant text. */
static inline void trace_last(struct rp_queues *qs, struct message *m, enum rp_queue_step step,
	uint64_t node, const char *why, uint64_t now_ns)
{
	if (__builtin_expect(m->traced, 0))
		trace_end(qs, m, step, node, why, now_ns);
}

static inline void trace_indexed(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	m->indexed_ns = now_ns;
	if (__builtin_expect(m->q->traced, 0))
		trace_begin(qs, m, now_ns);
}
