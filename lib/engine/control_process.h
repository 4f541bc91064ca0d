/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Process requests at the control thread (docs/process-requests.md). Puts of envelopes, outputs and
 * cancels of clients go through rp_control_queue_op(); this is for a service that has no keys:
 *
 *   1. rp_control_run_start() makes a request; ops->run_answer() says whether it lives, then
 *      ops->run_event() brings its outputs in order, and one end. The service says with
 *      rp_control_run_read() what its client took; more does not come before.
 *   2. A worker is a consumer like any; rp_control_job_output() is what it answers.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/qmsg.h>
#include <base/units.h>
#include <process/output.h>
#include <repl/repl.h>

struct rp_control;

/** Tokens and handles of callers have neither of these bits, nor bits 60 and 63. */
#define RP_CONTROL_OUTPUT_FLAG (1ull << 56)
#define RP_CONTROL_REQUEST_FLAG (1ull << 57)

struct rp_control_run {
	struct rp_span queue;
	struct rp_span value; /**< the envelope, as workers see it; its reply_to is only for them */
};

enum rp_control_run_event_kind {
	RP_CONTROL_RUN_OUTPUT,
	RP_CONTROL_RUN_FINAL,
	RP_CONTROL_RUN_FAILED,
};

struct rp_control_run_event {
	enum rp_control_run_event_kind kind;
	struct rp_span value;	   /**< borrow; OUTPUT and FINAL: as the worker put it */
	enum rp_process_code code; /**< FAILED */
	const char *reason;	   /**< FAILED; borrow */
};

/** The queue that the outputs of this node's Runs go to: what workers by keys find as reply_to. */
void rp_control_run_queue(const struct rp_control *c, char name[32]);

/**
 * `run` names it: not 0, below 2^56, of no other that lives. Everything is copied. Answered by
 * ops->run_answer(), also before this returns.
 */
void rp_control_run_start(
	struct rp_control *c, const struct rp_control_run *r, uint64_t run, struct rp_repl_now now);
/** Its client took so many bytes of events' values. An unknown run is ignored, here and below. */
void rp_control_run_read(struct rp_control *c, uint64_t run, uint32_t bytes);
/** FAILED with CANCELLED follows, or what came first. */
void rp_control_run_cancel(struct rp_control *c, uint64_t run);
/** Likewise, and there is no callback any more. */
void rp_control_run_drop(struct rp_control *c, uint64_t run);

struct rp_control_output {
	struct rp_span queue; /**< of the job's delivery, as idx and uuid are */
	uint32_t hash;
	uint64_t idx;
	uint8_t uuid[RP_UUID_BYTES];
	uint64_t request;
	struct rp_span value; /**< borrow until it is answered */
	bool final;	      /**< it completes the job */
};

/**
 * 0: ops->queue_answer(token) follows, later while the requester does not read; outputs of one job
 * stay in order. OK; NOT_LIVE: the job is over, or not held here; TOO_LARGE: and the job has
 * failed.
 */
int rp_control_job_output(struct rp_control *c, const struct rp_control_output *o, uint64_t token,
	struct rp_repl_now now);
