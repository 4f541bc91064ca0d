/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the Process service.
 *
 *   process.c       streams: what goes out, in order and with room; refusals, end
 *   process_run.c   requesters
 *   process_work.c  workers
 */

#include <etcd/process.h>

#include "etcd_priv.h"

/** Requests of one stream at a time; each may have so much unread as the engine lets it. */
#define PROCESS_RUNS_MAX 128
/** What a worker said that is not answered: with more of it, it is not read. */
#define PROCESS_UNANSWERED_BYTES (256u << 10)
#define PROCESS_UNANSWERED_MAX 64u

struct run_stream;
struct work_stream;

struct etcd_process {
	struct rp_etcd *e;
	const struct rp_etcd_process_backend *backend;
	struct rp_list streams;	 /**< struct process_stream */
	struct rp_list openings; /**< struct work_opening */
	struct etcd_table runs;	 /**< struct run by handle */
	struct etcd_table works; /**< struct work_stream by its consumer's handle */
	struct etcd_table says;	 /**< struct work_say by token */
	uint64_t run_last, handle_last;
};

/** What Run and Work share; the first member of theirs. */
struct process_stream {
	struct rp_list link;
	struct etcd_process *p;
	struct rp_grpc_call *call;
	struct rp_list parked; /**< struct process_message: not given to the connection yet */
	struct rp_list given;  /**< the same: not in the socket yet, in order */
	bool is_work;
	bool half_closed;
	bool stuck; /**< it fits, yet was not taken: tried again by etcd_process_run() */
};

/** On its way to the client. */
struct process_message {
	struct rp_list link;
	uint64_t of;	/**< the Run, or the job */
	uint32_t bytes; /**< Run: of its event's value */
	bool is_job;	/**< Work: to be told as accepted */
	size_t length;
	uint8_t *data;
};

/** Behind what is parked. take: nothing of `m`. */
void process_send(struct process_stream *s, const ProtobufCMessage *m, uint64_t of, uint32_t bytes);
/** Now or not at all: -EAGAIN, and the stream's room function is called later. */
int process_offer(struct process_stream *s, const ProtobufCMessage *m, uint64_t of);
/** What was parked, as far as there is room. */
void process_pump(struct process_stream *s);
void process_stream_begin(
	struct process_stream *s, struct etcd_process *p, struct rp_grpc_call *call, bool is_work);
/** Frees what is on its way; the call is the caller's. */
void process_stream_clear(struct process_stream *s);
/** The status of an answer as text, as etcd_qstatus_text() has it. */
void process_status_text(
	enum rp_qstatus status, const char *message, struct rp_span name, char *out, size_t size);
/** 0, or a gRPC status and *message: may the caller use the queue that way? */
int process_check(struct process_stream *s, enum rp_etcd_access access, struct rp_span queue,
	const char *rest, const char **message);
/** NULL, or why it is no name of a queue. */
const char *process_name_fault(struct rp_span queue);
/** Malloc'ed. */
uint8_t *process_copy(const void *data, size_t length);

/* What a call of either does. */
void etcd_process_on_message(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx);
void etcd_process_on_half_close(struct rp_grpc_call *call, void *ctx);

/* process_run.c */
/** A RunRequest. The stream may be over by this. */
void run_stream_message(struct process_stream *s, const ProtobufCMessage *message);
void run_on_written(struct process_stream *s, const struct process_message *m);
/** When all is over and told, the call is finished. */
void run_stream_look(struct process_stream *s);
void run_stream_stop(struct process_stream *s, int code, const char *message);
void run_stream_policy(struct process_stream *s);

/* process_work.c */
/** A WorkEvent. The stream may be over by this. */
void work_stream_message(struct process_stream *s, const ProtobufCMessage *message);
/** A fault of its client's: it is over, and the worker has left. */
void work_stream_refuse(struct process_stream *s, int code, const char *message);
/** When all is said and answered, the worker has left. */
void work_stream_look(struct process_stream *s);
void work_on_written(struct process_stream *s, const struct process_message *m);
void work_stream_room(struct process_stream *s);
void work_stream_stop(struct process_stream *s, int code, const char *message);
void work_stream_policy(struct process_stream *s);
/** What was said and found no token is said again; true: some of it still waits. The stream may be
 * over by this. */
bool work_stream_retry(struct process_stream *s);
/** At the end: what the backend never answered. */
void work_says_free(struct etcd_process *p);
