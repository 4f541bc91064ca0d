/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is told to other nodes, and what is kept from them. The end of queue_priv.h. */

#include "queue_priv.h"

/* apart.c */
bool apart_look(const struct rp_queues *qs, struct rp_span name, uint64_t node);
/** May keys of the queue of that name not go to the node? Never so of this one. */
static inline bool name_is_apart(const struct rp_queues *qs, struct rp_span name, uint64_t node)
{
	return qs->parted && apart_look(qs, name, node);
}
static inline bool queue_is_apart(const struct rp_queues *qs, const struct queue *q, uint64_t node)
{
	return qs->parted && apart_look(qs, queue_name(q), node);
}
/** Likewise of a consumer, wherever it is. */
bool consumer_is_apart(const struct rp_queues *qs, const struct consumer *c);
/**
 * Sends as ops->send(). To a node that the queue's keys may not go to only what is about earlier
 * messages: -ENETUNREACH for the rest.
 */
int peer_send(struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns);

/* notice.c */
/** Tells the host of the consumer, now or when there is a way, to forget a delivery. */
void notice_settled(struct rp_queues *qs, struct queue *q, uint64_t node,
	const struct rp_qmsg *about, uint64_t now_ns);
/** Likewise, with `about->status` as WITHDRAW has it. */
void notice_send_to(struct rp_queues *qs, struct queue *q, uint64_t node,
	const struct rp_qmsg *about, uint64_t now_ns);
/** Tells a dispatcher likewise that the consumer has left, in that life; flags as REJECTED has. */
void notice_left(struct rp_queues *qs, struct queue *q, uint64_t node,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t life, uint8_t flags, uint64_t now_ns);
/** Tells a former dispatcher likewise that the consumer has come back to a watch. */
void notice_resumed(struct rp_queues *qs, const struct host *h, uint64_t node, uint64_t now_ns);
void notices_send(struct rp_queues *qs, struct peer *p, uint64_t now_ns);
/** Nobody is there to be told any more. */
void notices_drop(struct rp_queues *qs, struct peer *p);

/* order.c */
/** A forward of this node's own was taken there. */
void left_took(struct rp_queues *qs, struct queue *q, uint64_t node);
/** Something newer may go to `target`: what was put before has arrived, or cannot be waited for. */
bool left_all(struct rp_queues *qs, struct queue *q, uint64_t target, uint64_t now_ns);
void left_answered(struct rp_queues *qs, struct queue *q, uint64_t node, enum rp_qstatus status);
/** Nobody is asked about what was put before: it is another queue's. */
void left_forget_all(struct queue *q);
/** What another node wants to know: RP_Q_OK, STALL: not yet. */
enum rp_qstatus left_status(struct rp_queues *qs, const struct queue *q);
/** Of what is left: it is on its way to the newer dispatcher, and not to a consumer. */
bool left_is_moving(const struct queue *q);
