/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What control_request.c, control_job.c and control_run.c are to each other and to the rest. */

#include <engine/control_engine_priv.h>
#include <process/meta.h>

/** A request on its way to its queue. */
struct control_request {
	struct rp_hmap_node by_id;
	uint64_t token; /**< of the caller; of a run: which */
	bool is_run, opened;
	struct rp_span name, tail, value; /**< borrow until it is answered; of a run: its own */
	uint32_t hash;
	struct rp_qmsg_process process; /**< left_us was so at left_ns */
	uint32_t reply_hash;
	uint8_t reply_to[RP_NAME_BYTES_MAX], reply_length;
	uint8_t meta[RP_META_BYTES_MAX];
	/* It was refused, its caller knows, and its session is to be closed until that is so. */
	uint8_t *closes;	/**< name and tail, which are its own then; NULL: not so */
	struct rp_list closing; /**< c->requests_closing */
	uint64_t again_ns;
};

struct control_job;

/** An output that is not answered yet. */
struct control_output {
	struct rp_list node;
	struct rp_hmap_node by_id;
	struct control_job *job;
	uint64_t token;
	struct rp_span value; /**< borrow */
	bool final, too_large;
	bool out; /**< under way, or what asks for its room */
};

/** A process request that a consumer of this node holds. */
struct control_job {
	struct rp_hmap_node by_request;
	struct rp_hmap_node by_reply; /**< key: of reply queue and tail, together */
	struct rp_list waits;	      /**< c->jobs_waiting */
	struct rp_list pending;	      /**< struct control_output, oldest first */
	uint64_t idx, again_ns, backoff_ns;
	uint64_t ends_ns;
	uint64_t user; /**< who watches; 0: nobody is told apart */
	uint64_t out_bytes;
	uint32_t out_count;	 /**< the first of `pending` are out */
	uint32_t stream, number; /**< of the last that was sent; number 0: the next begins one */
	uint32_t hash, reply_hash, max_bytes;
	uint8_t uuid[RP_UUID_BYTES];
	bool begun;
	bool probing;	 /**< there is to be room before the next is sent */
	bool refused;	 /**< one was, and all behind it will be: none goes before they are back */
	bool is_to_wait; /**< since there was no room */
	bool over;	 /**< held by nobody here: freed when the answers are in */
	uint8_t name_length, reply_length, tail_length;
	uint8_t bytes[]; /**< name, reply_to, tail */
};

/** A native Run that lives. */
struct control_run {
	struct rp_hmap_node by_run;
	struct rp_hmap_node by_request;
	bool dropped, live;
	uint32_t hash;
	struct rp_span name, tail; /**< in bytes */
	uint8_t bytes[];
};

static inline bool span_equal(struct rp_span a, struct rp_span b)
{
	return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

/* control_request.c */
/** A put; 1: it is a plain message. Else as rp_control_queue_op(). */
int control_request_put(struct rp_control *c, const struct rp_control_queue_op *op, uint64_t token);
/** The same of a run, whose bytes `r` points to. */
void control_request_start(
	struct rp_control *c, const struct rp_control_queue_op *op, uint64_t run);
void control_request_answered(struct rp_control *c, const struct rp_xmsg *m);
/** PROCESS_END; take what it holds. */
void control_on_process_end(struct rp_control *c, unsigned shard, const struct rp_xmsg *m);
/** CANCEL_ASK; take. */
void control_on_cancel_ask(struct rp_control *c, const struct rp_xmsg *m);
/** To the shard of the queue: it ends, and nobody waits to hear how many. */
void control_cancel(struct rp_control *c, struct rp_span name, uint32_t hash, struct rp_span tail,
	uint64_t request);
/** Of a put of process kind: parts are name, tail, meta, value. */
void control_put_process(struct rp_control *c, const struct rp_span parts[4], uint32_t hash,
	const struct rp_qmsg_process *p, uint64_t token);
void control_request_free_all(struct rp_control *c);
/** Sessions that are to be closed still; next time, or RP_NEVER. */
uint64_t control_requests_run(struct rp_control *c);

/* control_job.c */
/** A delivery says that a consumer here holds it, or will. */
void control_job_learn(struct rp_control *c, const struct control_consumer *k,
	const struct rp_xmsg *m, const struct rp_qmsg_process *p);
void control_on_job_over(struct rp_control *c, const struct rp_xmsg *m);
/** A put that is an output of a job here: 0, answered by ops->queue_answer(); 1: it is none. */
int control_job_put(struct rp_control *c, const struct rp_control_queue_op *op, uint64_t token);
void control_job_answered(struct rp_control *c, const struct rp_xmsg *m);
/** OUTPUT_ROOM: the requester reads again. */
void control_on_output_room(struct rp_control *c, const struct rp_xmsg *m);
/** Outputs whose requester did not read; next time, or RP_NEVER. */
uint64_t control_jobs_run(struct rp_control *c);
void control_job_free_all(struct rp_control *c);

/* control_run.c */
void control_run_answered(struct rp_control *c, uint64_t run, uint64_t request,
	enum rp_qstatus status, const char *message);
/** RUN_EVENT; take. */
void control_on_run_event(struct rp_control *c, const struct rp_xmsg *m);
void control_run_free_all(struct rp_control *c);
