/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ringpost.v1.Process: what clients send on a stream of Run and one of Work, mixed with what the
 * node says. The node keeps to its contract and sees that the service keeps to it. An input is a
 * row of: what happens, two bytes of length or argument, and for a message its bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <etcd/etcd.h>
#include <etcd/process.h>

#include "fake_grpc.h"
#include "fake_node.h"

#define STEPS_MAX 128
#define RUNS 256
#define SAYS 256

enum act {
	RUN_MESSAGE,
	WORK_MESSAGE,
	RUN_ANSWER,
	RUN_EVENT,
	SAY_ANSWER,
	ASSIGN,
	WITHDRAW,
	END_WORK,
	TURN,
	WINDOW,
	HALF_CLOSE,
	CANCEL,
	FULL,
	ACT_COUNT,
};

static const char *const paths[2] = {"/ringpost.v1.Process/Run", "/ringpost.v1.Process/Work"};

struct rig {
	struct fake_node node;
	struct rp_etcd_process_backend process;
	struct rp_grpc_server *server;
	struct rp_grpc_call *streams[2];
	uint64_t now_ns, idx_last;
	uint64_t runs[RUNS]; /* live; 0 = free */
	uint64_t says[SAYS];
	bool full;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the node ---- */

static uint64_t *run_slot(struct rig *r, uint64_t run)
{
	for (unsigned i = 0; i < RUNS; i++)
		if (r->runs[i] == run)
			return &r->runs[i];
	return NULL;
}

static void run_start(void *ctx, struct rp_span queue, struct rp_span value, uint64_t run)
{
	struct rig *r = ctx;
	uint64_t *slot = run_slot(r, 0);

	RP_ASSERT(run > 0 && run < 1ull << 56 && queue.length > 0 && value.length > 0);
	RP_ASSERT(!run_slot(r, run));
	if (slot)
		*slot = run;
	else
		rp_etcd_run_answer(r->node.etcd, run, RP_Q_LIMIT, NULL);
}

static void run_read(void *ctx, uint64_t run, uint32_t bytes)
{
	RP_ASSERT(run_slot(ctx, run) && bytes > 0);
}

static void run_cancel(void *ctx, uint64_t run)
{
	RP_ASSERT(run_slot(ctx, run));
}

static void run_drop(void *ctx, uint64_t run)
{
	uint64_t *slot = run_slot(ctx, run);

	RP_ASSERT(slot);
	*slot = 0;
}

static int job_output(void *ctx, const struct rp_etcd_job_output *o, uint64_t token)
{
	struct rig *r = ctx;

	RP_ASSERT(o->request != 0 && o->value.length > 0 && (token & RP_ETCD_PROCESS_FLAG));
	if (r->full)
		return -EAGAIN;
	for (unsigned i = 0; i < SAYS; i++) {
		if (r->says[i] == 0) {
			r->says[i] = token;
			return 0;
		}
	}
	return -EAGAIN;
}

static void work_leave(void *ctx, uint64_t consumer)
{
	struct rig *r = ctx;

	r->node.backend.consumer_close(&r->node, consumer, RP_ETCD_CONSUMER_CANCELLED);
}

static uint64_t worker(struct rig *r)
{
	return rp_list_empty(&r->node.consumers)
		       ? 0
		       : rp_list_entry(r->node.consumers.next, struct fake_consumer, link)->handle;
}

/* ---- steps ---- */

static void message(struct rig *r, unsigned which, const uint8_t *data, size_t length)
{
	struct rp_grpc_call *c = r->streams[which];

	if (c->over || c->answer_count > FAKE_ANSWERS / 2) {
		fake_call_free(c);
		c = r->streams[which] = fake_call_new(r->server, paths[which], NULL);
	}
	/* A stream that is paused is not read. */
	if (!c->over && !c->paused)
		fake_call_send(c, data, length);
}

static void run_event(struct rig *r, uint16_t argument)
{
	uint64_t *slot = &r->runs[argument % 8];
	struct rp_etcd_run_event e = {
		.kind = (enum rp_etcd_run_event_kind)(argument / 8 % 3),
		.value = {(const uint8_t *)"{\"v\":1,\"data\":\"x\"}", argument & 1 ? 18 : 5},
		.code = RP_PROCESS_WORKER_LOST,
	};
	uint64_t run = *slot;

	if (!run)
		return;
	if (e.kind != RP_ETCD_RUN_OUTPUT)
		*slot = 0;
	rp_etcd_run_event(r->node.etcd, run, &e);
}

static void say_answer(struct rig *r, uint16_t argument)
{
	const struct rp_etcd_queue_answer a = {
		.status = (enum rp_qstatus)(argument / 8 % RP_QSTATUS_COUNT)};
	uint64_t *slot = &r->says[argument % 8], token = *slot;

	*slot = 0;
	if (token)
		rp_etcd_queue_answer(r->node.etcd, token, &a);
}

static void assign(struct rig *r, uint16_t argument)
{
	static const uint8_t text[] = "{\"v\":1,\"ttl_ms\":5,\"data\":\"do it\"}";
	const struct rp_span value = {text, argument & 1 ? sizeof(text) - 1 : 7};
	const struct rp_etcd_delivery d = {
		.idx = argument & 2 ? r->idx_last : ++r->idx_last,
		.tail = {text, 3},
		.value = &value,
		.value_count = 1,
		.mod_revision = 1000 + (int64_t)r->idx_last,
		.attempt = 1,
		.request = argument & 4 ? r->idx_last : 0,
		.left_us = argument,
	};

	if (worker(r))
		rp_etcd_consumer_deliver(r->node.etcd, worker(r), &d);
}

static void turn(struct rig *r)
{
	r->now_ns += RP_NS_PER_MS;
	fake_node_clock(&r->node, r->now_ns);
	fake_call_written(r->streams[0]);
	fake_call_written(r->streams[1]);
	rp_etcd_run(r->node.etcd, r->now_ns);
}

static void step(struct rig *r, enum act act, uint16_t argument)
{
	struct rp_grpc_call *c = r->streams[argument & 1];

	switch (act) {
	case RUN_ANSWER:
		if (r->runs[argument % 8])
			rp_etcd_run_answer(r->node.etcd, r->runs[argument % 8], RP_Q_OK, NULL);
		break;
	case RUN_EVENT:
		run_event(r, argument);
		break;
	case SAY_ANSWER:
		say_answer(r, argument);
		break;
	case ASSIGN:
		assign(r, argument);
		break;
	case WITHDRAW:
		if (worker(r))
			rp_etcd_consumer_withdraw(r->node.etcd, worker(r), argument % 8 + 1,
				(struct rp_span){0}, 5000 + argument);
		break;
	case END_WORK:
		if (worker(r)) {
			uint64_t handle = worker(r);

			r->node.backend.consumer_close(
				&r->node, handle, RP_ETCD_CONSUMER_CANCELLED);
			rp_etcd_consumer_end(r->node.etcd, handle,
				argument & 1 ? "queue consumer: replaced" : NULL);
		}
		break;
	case TURN:
		turn(r);
		break;
	case WINDOW:
		c->refuse_sends = argument & 2;
		fake_call_window(c, argument & 4 ? SIZE_MAX : argument);
		break;
	case HALF_CLOSE:
		if (!c->over)
			fake_call_half_close(c);
		break;
	case CANCEL:
		fake_call_cancel(c, (enum rp_grpc_cancel)(argument / 2 % 5));
		break;
	case FULL:
		r->full = argument & 1;
		break;
	case RUN_MESSAGE:
	case WORK_MESSAGE:
	case ACT_COUNT:
		break;
	}
}

/* ---- life ---- */

static void rig_new(struct rig *r)
{
	struct rp_etcd_config config = {
		.cluster_id = 1, .member_id = 200, .raft_term = 2, .request_bytes_max = 4096};

	fake_node_init(&r->node, 1);
	r->process = (struct rp_etcd_process_backend){.ctx = r,
		.run_start = run_start,
		.run_read = run_read,
		.run_cancel = run_cancel,
		.run_drop = run_drop,
		.job_output = job_output,
		.work_leave = work_leave};
	r->node.backend.process = &r->process;
	r->server = fake_server_new();
	config.kv = r->node.kv;
	config.server = r->server;
	config.backend = &r->node.backend;
	config.bcrypt_cost = 4;
	r->node.etcd = rp_etcd_create(&config);
	if (!r->node.etcd)
		abort();
	for (unsigned i = 0; i < 2; i++)
		r->streams[i] = fake_call_new(r->server, paths[i], NULL);
}

static void rig_free(struct rig *r)
{
	for (unsigned i = 0; i < 2; i++)
		fake_call_free(r->streams[i]);
	/* Every request has ended, or was dropped. */
	for (unsigned i = 0; i < RUNS; i++)
		RP_ASSERT(r->runs[i] == 0);
	rp_etcd_destroy(r->node.etcd);
	fake_node_free(&r->node);
	fake_server_free(r->server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_reader in = rp_reader_of(data, size);
	struct rig *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	rig_new(r);
	for (int i = 0; i < STEPS_MAX && rp_reader_left(&in) > 0; i++) {
		enum act act = (enum act)(rp_read_u8(&in) % ACT_COUNT);
		uint16_t length = rp_read_le16(&in);
		const uint8_t *bytes;

		if (act != RUN_MESSAGE && act != WORK_MESSAGE) {
			step(r, act, length);
			continue;
		}
		bytes = rp_read_bytes(&in, RP_MIN((size_t)length, rp_reader_left(&in)));
		if (in.bad)
			break;
		message(r, act == WORK_MESSAGE, bytes, (size_t)(in.pos - bytes));
	}
	rig_free(r);
	free(r);
	return 0;
}
