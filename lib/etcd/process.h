/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * ringpost.v1.Process: process requests without keys (docs/process-service.md). Part of the
 * services of etcd.h; what a worker is to the node is a consumer like those by keys, so that only
 * what keys have no word for has a callback of its own here.
 *
 * Its consumers and tokens have RP_ETCD_PROCESS_FLAG; what the node says of them it says by the
 * same functions as of etcd's.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/qmsg.h>
#include <base/units.h>
#include <process/output.h>

struct rp_etcd;

#define RP_ETCD_PROCESS_FLAG (1ull << 58)

/** Part of an answer to a job. */
struct rp_etcd_job_output {
	struct rp_span queue;
	uint32_t hash;
	uint64_t idx;
	uint8_t uuid[RP_UUID_BYTES];
	uint64_t request;
	struct rp_span value; /**< JSON; borrow until it is answered */
	bool final;	      /**< completes and acknowledges the job */
};

/** What the service needs of the node. `run` is below 2^56 and not 0; never used again. */
struct rp_etcd_process_backend {
	void *ctx;
	char reply_to[32]; /**< where workers by keys put what they answer Runs */
	/** `value` is an envelope. rp_etcd_run_answer() follows, also before it returns. */
	void (*run_start)(void *ctx, struct rp_span queue, struct rp_span value, uint64_t run);
	/** So many bytes of the values of its events are in the client's connection. */
	void (*run_read)(void *ctx, uint64_t run, uint32_t bytes);
	/** An event that ends it follows: FAILED with CANCELLED, or what came first. */
	void (*run_cancel)(void *ctx, uint64_t run);
	/** Cancelled, and nothing of it is told any more. */
	void (*run_drop)(void *ctx, uint64_t run);
	/** 0: rp_etcd_queue_answer() follows with the token. -EAGAIN: not now; tried again. */
	int (*job_output)(void *ctx, const struct rp_etcd_job_output *o, uint64_t token);
	/**
	 * As rp_etcd_backend.consumer_close(), of a worker that has left for good: what it had goes
	 * on at once.
	 */
	void (*work_leave)(void *ctx, uint64_t consumer);
};

enum rp_etcd_run_event_kind {
	RP_ETCD_RUN_OUTPUT,
	RP_ETCD_RUN_FINAL,
	RP_ETCD_RUN_FAILED,
};

struct rp_etcd_run_event {
	enum rp_etcd_run_event_kind kind;
	struct rp_span value;	   /**< OUTPUT, FINAL: as the worker put it; borrow */
	enum rp_process_code code; /**< FAILED */
	const char *reason;	   /**< FAILED */
};

/** RP_Q_OK: it is live, and events follow; else it is over. `message` may be NULL. */
void rp_etcd_run_answer(
	struct rp_etcd *e, uint64_t run, enum rp_qstatus status, const char *message);
/** After FINAL or FAILED it is over. A run that is not known (any more) is ignored, here and above.
 */
void rp_etcd_run_event(struct rp_etcd *e, uint64_t run, const struct rp_etcd_run_event *event);
