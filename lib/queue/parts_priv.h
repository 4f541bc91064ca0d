/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The rest of queue_priv.h: functions of the consumer's host, of tails, of requests, and of
 * processes. */

#include "queue_priv.h"

/* host.c */
struct offer {
	uint64_t from, idx, alloc_node, life, mod_revision;
	uint32_t attempt;
	uint16_t tail_length;
	struct rp_qmsg_process process;
	bool begins; /**< offers begin again after a stall */
	struct rte_mbuf *payload;
};

/* admit.c */
void admit_init(struct rp_queues *qs);
/** Of the queues' own pool, for a message of so many bytes. */
uint32_t admit_buffers_of(const struct rp_queues *qs, uint32_t bytes);
/** Whether the queue may take a message more; a refusal is counted. */
enum rp_qstatus admit_message(
	struct rp_queues *qs, struct queue *q, uint32_t bytes, uint64_t now_ns);
/** Whether there are buffers for one that is handed over as `sequence` of `p`: OK or STALL. */
enum rp_qstatus admit_handed(struct rp_queues *qs, struct queue *q, struct producer *p,
	uint64_t sequence, uint32_t bytes, uint64_t now_ns);
/** True when a segment lies in buffers of another pool than the queues' own: a receive pool. */
bool foreign_lies(const struct rp_queues *qs, const struct message *msg);
/** A payload that does is copied when it stays: nothing keeps those buffers long. */
void foreign_check(struct rp_queues *qs, struct message *m, uint64_t now_ns);
void foreign_add(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** Nothing where it was not added. */
void foreign_remove(struct rp_queues *qs, struct message *m);

/* hold.c */
/** NULL: there is no room. */
struct hold *hold_new(
	struct rp_queues *qs, struct host *h, const struct offer *o, uint64_t revision);
struct rp_span hold_tail(const struct hold *h);
/** Its client has it, which is told; an output of a request ends with that. */
void hold_accepted(struct rp_queues *qs, struct hold *h, uint64_t now_ns);

/* host.c */
/** RP_Q_OK: taken, with the payload. DUPLICATE: it has it already; payload not taken, as for
 * others. */
struct host *host_find(const struct rp_queues *qs, uint64_t handle);
/** The client has it, or had it and it is settled. */
bool host_has(struct rp_queues *qs, struct host *h, const struct offer *o);
enum rp_qstatus host_take(
	struct rp_queues *qs, struct consumer *c, const struct offer *o, uint64_t now_ns);
struct hold *hold_find(const struct rp_queues *qs, const struct host *h, uint64_t idx);
struct done *done_slot(struct host *h, uint64_t idx);
/** The message is gone for good: `fenced` if its client may not acknowledge it any more. */
void hold_done(struct rp_queues *qs, struct hold *h, bool fenced);
void hold_forget(struct rp_queues *qs, struct hold *h);
void hold_withdraw(struct rp_queues *qs, struct hold *h, uint64_t now_ns);
/** A message that its client has acknowledged may still be on its way here: it is not shown. */
void host_settled(struct host *h, uint64_t idx, uint64_t alloc_node);
bool host_was_fenced(struct host *h, uint64_t idx);
/** What is over since then was acknowledged: whoever has a copy of it still is told so. */
void host_acked(struct host *h, uint64_t idx);
/** To the dispatcher that delivered it: the client has it, or it came back. */
void hold_report(struct rp_queues *qs, struct hold *h, uint64_t now_ns);
void host_recall(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m, uint64_t from,
	uint64_t now_ns);
/** Tells the dispatcher of the queue that the consumer is here. */
void host_resume(struct rp_queues *qs, struct host *h, uint64_t now_ns);
void host_reports(struct rp_queues *qs, struct peer *p, uint64_t now_ns);
/** The consumer has left for good: the dispatcher is told, the host part freed, the consumer
 * tidied. */
void host_leave(struct rp_queues *qs, struct host *h, uint64_t now_ns);
/** The host part is over; its consumer stays known to the dispatcher's role. */
void host_free(struct rp_queues *qs, struct host *h);
/** What the dispatcher still counts as held here belongs to a life that is over. */
void host_new_life(struct rp_queues *qs, struct host *h, uint64_t now_ns);
void host_fence(struct rp_queues *qs, struct peer *p, uint64_t now_ns);
void host_fence_lifted(struct rp_queues *qs, struct peer *p, uint64_t now_ns);
/** Likewise, and its record goes. `waited`: resume_ms is over. */
void host_end(struct rp_queues *qs, struct host *h, bool waited, uint64_t now_ns);

/* dedup.c */
/** Its tail was taken within dedup_s: it is counted, and not to be queued again. */
bool dedup_has(struct rp_queues *qs, struct queue *q, const struct rte_mbuf *payload,
	uint16_t tail_length);
void dedup_add(struct rp_queues *qs, struct message *m, uint64_t now_ns);
bool dedup_poll(struct rp_queues *qs, uint64_t now_ns);
/** What is remembered goes to the new dispatcher, a part at a time; true: all of it has. */
bool dedup_hand_over(struct rp_queues *qs, struct queue *q, uint64_t to, uint64_t now_ns);
/** HANDOVER with a payload. */
void dedup_receive(
	struct rp_queues *qs, struct queue *q, const struct rte_mbuf *payload, uint64_t now_ns);

/* asked.c */
/** An output, which its client has. */
void host_has_read(struct host *h, uint64_t idx);
/** What is offered once more, and the client has or had. */
void host_had(struct rp_queues *qs, struct host *h, const struct offer *o, uint64_t now_ns);
/** A bound message of this node's own consumer, offered once more: it was an output, and read. */
bool host_read_it(struct rp_queues *qs, const struct message *m);
/** What a client got, told to a node that dispatches no more: true: it goes on from here. */
bool accept_goes_on(
	struct rp_queues *qs, const struct queue *q, const struct rp_qmsg *m, uint64_t now_ns);
/** Bound, and its consumer is not at `node` any more: was it shown there? */
void asked_begin(struct rp_queues *qs, struct message *m, uint64_t node, uint64_t now_ns);
/** Its offer is late. False: nobody was asked. */
bool asked_again(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** It is known, or need not be. */
void asked_end(struct rp_queues *qs, struct message *m);
/** The node is out of reach, and whoever was there waits. */
void asked_lost(struct rp_queues *qs, uint64_t node);

/* settle.c, of consumers and messages of this node */
/** Its client has it, and this node delivered it. */
void settle_accept_here(struct rp_queues *qs, const struct hold *h, uint64_t now_ns);
/** Likewise, of the message that is bound to its consumer. */
void settle_accept_held(
	struct rp_queues *qs, struct message *msg, const struct hold *h, uint64_t now_ns);
/** The plain message that its consumer here holds as `h` is acknowledged: both end. */
void settle_ack_here(struct rp_queues *qs, struct message *msg, struct hold *h, uint64_t now_ns);

/* request.c */
/** Asks the node whether all that it took has left it; ends in left_answered(). */
bool request_left(struct rp_queues *qs, struct queue *q, uint64_t node, uint64_t now_ns);
void request_reply(struct rp_queues *qs, uint64_t from, const struct rp_qmsg *m, uint64_t now_ns);
/** The queue's rival, when it can be asked; 0 = none. */
uint64_t request_rival(struct rp_queues *qs, const struct queue *q);
/** It cannot, and may live: what is not here may be there. */
bool request_rival_lost(struct rp_queues *qs, const struct queue *q);
void request_fail(struct rp_queues *qs, struct request *r, enum rp_qstatus status);
void request_lost(struct rp_queues *qs, uint64_t token, uint64_t now_ns);
bool requests_again(struct rp_queues *qs, uint64_t now_ns);
/** A new one, in none of the lists. */
void request_wait(struct rp_queues *qs, struct request *r, uint64_t now_ns);
/** It is looked at again in a moment. */
void request_park(struct rp_queues *qs, struct request *r, uint64_t now_ns);
/** Its client is told, and it is gone. */
void request_finish(struct rp_queues *qs, struct request *r, const struct settled *s);

/* cancel.c */
/** Asks the next node, or ends. */
void cancel_step(struct rp_queues *qs, struct request *r, uint64_t now_ns);
/** The node that was asked has answered; the payload is not taken. */
void cancel_answered(
	struct rp_queues *qs, struct request *r, const struct rp_qmsg *m, uint64_t now_ns);
/** What became of it is not known. */
void cancel_lost(struct rp_queues *qs, struct request *r, uint64_t now_ns);
/** CANCEL came: what is to be answered. `q` may be NULL; the payload is not taken. */
struct settled cancel_here(struct rp_queues *qs, struct queue *q, uint64_t from,
	const struct rp_qmsg *m, uint64_t now_ns);

/* producer.c */
/** NULL: nothing of it was taken, or that is forgotten. */
struct producer *producer_find(struct rp_queues *qs, struct queue *q, uint64_t node, uint64_t boot);
struct producer *producer_get(struct rp_queues *qs, struct queue *q, uint64_t node, uint64_t boot);
void producer_free(struct rp_queues *qs, struct producer *p);
/** `p` may be NULL. */
bool producer_has(const struct producer *p, uint64_t seq);
void producer_add(struct producer *p, uint64_t seq);
/** It leaves: should it come back, handed over from where it goes now, it is not a repetition. */
void producer_forget(struct rp_queues *qs, const struct message *m);
/** It was to leave, was forgotten, and stays: its producer may repeat it still. */
void producer_again(struct rp_queues *qs, const struct message *m);
/** Whether what has that identity was indexed here, and is on its way to who dispatches next. */
bool producer_leaves(const struct queue *q, uint64_t node, uint64_t boot, uint64_t seq);
/** A former dispatcher had taken it, could not say so, and has handed it over to this node. */
bool producer_came_back(struct rp_queues *qs, const struct message *m);

/* lanes.c */

/* What a message counts as, for those that take it. */
enum lane_class {
	LANE_PLAIN,
	LANE_JOB,
	LANE_OUTPUT,
	LANE_CLASSES,
};
#define LANE_PRIORITIES 10
#define LANE_COUNT (LANE_CLASSES * LANE_PRIORITIES)

/*
 * What waits, by class and priority; exists while something waits that is not plain and of
 * priority 0. The first is the queue's own `waiting`, and stands empty here.
 */
struct lanes {
	uint32_t count; /**< messages */
	struct rp_list waiting[LANE_COUNT];
	struct rp_list *scan[LANE_COUNT];
};

static inline enum lane_class lane_class_of(const struct message *m)
{
	if (m->process.kind == RP_PROCESS_REQUEST)
		return LANE_JOB;
	return m->process.kind == RP_PROCESS_PLAIN ? LANE_PLAIN : LANE_OUTPUT;
}

/** NULL: nothing waits there. */
struct rp_list *lane_at(const struct queue *q, unsigned lane);
/** Something waits. */
bool lanes_any(const struct queue *q);
/** The oldest that waits; NULL. */
struct message *lanes_oldest(const struct queue *q);
/**
 * The next to be offered, of the classes that are not `closed`: by priority, which grows with each
 * second of waiting, then by age; NULL.
 */
struct message *lanes_next(const struct queue *q, const bool closed[LANE_CLASSES], uint64_t now_ns);
/** It was offered to all that are ready. */
void lanes_skip(struct message *m);
/** What waits is offered again from the first on. */
void lanes_rescan(struct queue *q);

/* job.c */
struct job {
	struct rp_list link; /**< more->jobs */
	struct job *hash_next;
	struct message *m;
	struct rte_mbuf *last; /**< the last output: it is answered */
};

void job_begin(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** Nothing where it is none. */
void job_free(struct rp_queues *qs, struct message *m);
/** When its time is over, by this node's clock. */
uint64_t job_ends_ns(const struct message *m);
bool job_is_over(const struct message *m, uint64_t now_ns);
/** The process part of a frame about the message. */
struct rp_qmsg_process process_for(const struct message *m, uint64_t now_ns);
/** And of a message that comes with one; false: malformed. */
bool process_look(
	const struct rp_qmsg_process *p, const struct rte_mbuf *payload, uint16_t tail_length);
static inline bool process_is_sound(
	const struct rp_qmsg_process *p, const struct rte_mbuf *payload, uint16_t tail_length)
{
	if (p->kind == RP_PROCESS_PLAIN && p->meta_length == 0 && p->priority == 0 &&
		p->left_us == 0)
		return tail_length <= payload->data_len;
	return process_look(p, payload, tail_length);
}
struct rp_meta message_meta(const struct message *m);
/** The queue that is told how it ends; empty: none, or it is no process request. */
struct rp_span job_reply_to(const struct message *m);
/** The consumer has what it needs. */
bool job_is_met(const struct message *m, const struct consumer *c);
/** An indexed request ends; whoever holds it is told to stop. */
void job_fail(struct rp_queues *qs, struct message *m, enum rp_queue_death death, uint64_t now_ns);
/** Its worker does not hold it any more; it may have begun, if that is not proven to be false. */
void job_release(struct rp_queues *qs, struct message *m, bool proven, uint64_t now_ns);
/* Which process requests of a queue are to end: all with that tail, or one of them. */
struct cancel_what {
	struct rp_span tail; /**< empty: only its digest is known */
	uint64_t digest;     /**< job_digest() of it */
	uint64_t request;    /**< only that one; 0: all */
};

/** What names a tail where the tail itself may not be said. Never 0. */
uint64_t job_digest(struct rp_span tail);
/** How many of those that are indexed here have ended by it. */
uint32_t job_cancel(
	struct rp_queues *qs, struct queue *q, const struct cancel_what *what, uint64_t now_ns);
/** While it is held its time ends all the same. */
void job_arm_bound(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** A put that wants to fail fast, and there is nobody who could have it. */
bool job_fails_fast(struct rp_queues *qs, struct queue *q, const struct rp_qmsg_process *p,
	const struct rte_mbuf *payload, uint16_t tail_length);
/** A consumer has left, or has other capabilities. */
void jobs_missed(struct rp_queues *qs, struct queue *q, bool waited, uint64_t now_ns);
bool jobs_poll(struct rp_queues *qs, uint64_t now_ns);

/* session.c */

/* A request that outputs are expected of, at its reply queue. */
struct session {
	struct rp_list link; /**< more->sessions */
	struct rp_list old;  /**< qs->ended, when it has, and nothing of it is here */
	struct rp_list room; /**< qs->rooms: `waiter` is to be told that there is some */
	struct rp_wheel_node due;
	struct session *hash_next;
	struct queue *q;
	uint64_t request;
	uint64_t ends_ns; /**< its time, and some more for who has to tell of it */
	uint64_t bytes;	  /**< of outputs that nobody has read */
	uint64_t waiter;  /**< node of a worker that was refused one for want of room; 0 = none */
	uint32_t stream, number; /**< of the last output that was taken; 0: it had none */
	uint32_t messages;
	uint8_t *tail, *name; /**< blobs; name: of the queue that it was put into */
	uint8_t tail_length, name_length;
	bool ended : 1;
	bool cancelled : 1; /**< nobody listens */
	bool native : 1;
};

/**
 * Whether the reply queue takes what came with that process part; *consumed: OK, and there is
 * nothing to be indexed. What is handed over is not asked for.
 */
enum rp_qstatus session_admit(struct rp_queues *qs, struct queue *q,
	const struct rp_qmsg_process *p, struct rte_mbuf *payload, uint16_t tail_length,
	bool *consumed, uint64_t now_ns);
/** An output, or the question for its room, was refused with BUSY: whose it was, `node`, is told.
 */
void session_waits(struct rp_queues *qs, struct queue *q, const struct rte_mbuf *payload,
	uint16_t tail_length, uint64_t node);
/** An output was indexed, or is there no more. */
void session_add(struct rp_queues *qs, struct message *m);
void session_remove(struct rp_queues *qs, struct message *m);
void sessions_look(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
bool sessions_poll(struct rp_queues *qs, uint64_t now_ns);
/** To the new dispatcher, a part at a time; true: all of it has. */
bool sessions_hand_over(struct rp_queues *qs, struct queue *q, uint64_t to, uint64_t now_ns);
/** HANDOVER of them. */
void sessions_receive(
	struct rp_queues *qs, struct queue *q, const struct rte_mbuf *payload, uint64_t now_ns);
/** A queue ends. */
void sessions_free(struct rp_queues *qs, struct queue *q);
