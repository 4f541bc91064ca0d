/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Process requests through a ringpostd (docs/process-service.md): jobs, each answered by a stream
 * of outputs and an end. The server's role is the worker; both call the ringpostd.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/process.pb-c.h>

#include <base/assert.h>

#include "calls.h"

#define QUEUE "ringperf"
#define JOB_TTL_MS 20000
#define WORKER_PREFETCH 128u
/** Jobs open on one stream, at most (docs/process-service.md). */
#define JOBS_MAX 128u
#define PERF_STREAMS_MAX 1024u

typedef Ringpost__V1__RunEvent RunEvent;
typedef Ringpost__V1__WorkItem WorkItem;

/** A stream a connection: Run of a requester, Work of a worker. */
struct process {
	struct rp_grpc_client_call *streams[PERF_STREAMS_MAX];
};

static uint8_t payload[PERF_MESSAGE_MAX];

static bool send_on(struct calls *c, struct rp_grpc_client_call *stream, const ProtobufCMessage *m)
{
	size_t length = protobuf_c_message_get_packed_size(m);

	RP_ASSERT(length <= CALLS_REQUEST_MAX);
	protobuf_c_message_pack(m, c->buffer);
	return rp_grpc_client_call_send(stream, c->buffer, length) == 0;
}

static void on_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message, void *ctx)
{
	if (code != RP_GRPC_CANCELLED)
		calls_fail(ctx, message[0] ? message : "the ringpostd ended the stream");
}

/* True when all streams stand. */
static bool open_streams(struct calls *c, const char *path, const struct rp_grpc_client_ops *ops)
{
	struct process *p = c->mode;

	for (unsigned i = 0; i < c->channel_count; i++) {
		p->streams[i] =
			rp_grpc_channel_call(c->channels[i], path, NULL, 0, RP_NEVER, ops, c);
		if (!p->streams[i]) {
			calls_fail(c, "a stream cannot be begun");
			return false;
		}
	}
	return true;
}

/* ---- requester ---- */

static void run_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct calls *c = ctx;
	struct perf_run *r = c->run;
	RunEvent *e = ringpost__v1__run_event__unpack(NULL, length, data);

	if (!e || e->id == 0 || e->id > c->slot_count) {
		calls_fail(c, "an event is not understood");
	} else if (e->event_case == RINGPOST__V1__RUN_EVENT__EVENT_OUTPUT) {
		r->pace.units += perf_pace_in_window(&r->pace, rp_loop_clock_ns());
		r->faults += e->output->data.len != r->options->size;
	} else if (e->event_case == RINGPOST__V1__RUN_EVENT__EVENT_END) {
		calls_slot_end(&c->slots[e->id - 1], NULL);
	} else if (e->event_case == RINGPOST__V1__RUN_EVENT__EVENT_FAILED) {
		calls_slot_end(&c->slots[e->id - 1], e->failed->reason);
	}
	ringpost__v1__run_event__free_unpacked(e, NULL);
}

static bool run_ready(struct calls *c)
{
	static const struct rp_grpc_client_ops ops = {
		.on_message = run_message, .on_finish = on_finish};

	return open_streams(c, "/ringpost.v1.Process/Run", &ops);
}

static bool run_begin(struct calls *c, struct calls_slot *s)
{
	Ringpost__V1__RunRequest m = RINGPOST__V1__RUN_REQUEST__INIT;
	Ringpost__V1__Job job = RINGPOST__V1__JOB__INIT;
	unsigned index = (unsigned)(s - c->slots);
	struct process *p = c->mode;

	job.queue = (char *)QUEUE;
	job.data = (ProtobufCBinaryData){.data = payload, .len = c->run->options->size};
	job.ttl_ms = JOB_TTL_MS;
	m.id = index + 1;
	m.act_case = RINGPOST__V1__RUN_REQUEST__ACT_JOB;
	m.job = &job;
	return send_on(c, p->streams[index % c->channel_count], &m.base);
}

/* ---- worker ---- */

static bool work_say(struct calls *c, struct rp_grpc_client_call *call, uint64_t job, bool end)
{
	Ringpost__V1__WorkEvent m = RINGPOST__V1__WORK_EVENT__INIT;
	Ringpost__V1__Output output = RINGPOST__V1__OUTPUT__INIT;
	Ringpost__V1__End last = RINGPOST__V1__END__INIT;

	m.job = job;
	if (end) {
		m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_END;
		m.end = &last;
	} else {
		output.data = (ProtobufCBinaryData){.data = payload, .len = c->run->options->size};
		m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_OUTPUT;
		m.output = &output;
	}
	return send_on(c, call, &m.base);
}

static void work_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct calls *c = ctx;
	WorkItem *w = ringpost__v1__work_item__unpack(NULL, length, data);

	if (!w) {
		calls_fail(c, "an item is not understood");
		return;
	}
	if (w->item_case == RINGPOST__V1__WORK_ITEM__ITEM_ASSIGNED) {
		bool said = true;

		c->run->pace.ended_in_window++;
		for (uint32_t i = 0; i < c->run->options->outputs && said; i++)
			said = work_say(c, call, w->job, false);
		if (!said || !work_say(c, call, w->job, true))
			calls_fail(c, "the ringpostd does not read");
	} else if (w->item_case == RINGPOST__V1__WORK_ITEM__ITEM_SETTLED) {
		c->run->faults += w->settled->status != 0;
	}
	ringpost__v1__work_item__free_unpacked(w, NULL);
}

static bool work_begin(struct calls *c)
{
	static const struct rp_grpc_client_ops ops = {
		.on_message = work_message, .on_finish = on_finish};
	Ringpost__V1__WorkEvent m = RINGPOST__V1__WORK_EVENT__INIT;
	Ringpost__V1__Register reg = RINGPOST__V1__REGISTER__INIT;
	struct process *p = c->mode;

	reg.queue = (char *)QUEUE;
	reg.prefetch = WORKER_PREFETCH;
	m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_REGISTER;
	m.register_ = &reg;
	if (!open_streams(c, "/ringpost.v1.Process/Work", &ops))
		return false;
	for (unsigned i = 0; i < c->channel_count; i++)
		if (!send_on(c, p->streams[i], &m.base))
			calls_fail(c, "a worker cannot say who it is");
	return !c->failed;
}

/* ---- the mode ---- */

static int process_begin(struct perf_run *r, uint64_t now_ns)
{
	static const struct calls_ops ops = {.ready = run_ready, .begin = run_begin};
	struct calls *c;
	int rc;

	if (r->options->window > JOBS_MAX || r->options->connections > PERF_STREAMS_MAX) {
		r->why = "a stream has 128 jobs at most, and there are 1024 streams at most";
		return -EINVAL;
	}
	rc = calls_begin(r, &ops);
	if (rc)
		return rc;
	c = r->state;
	c->mode = calloc(1, sizeof(struct process));
	return c->mode ? 0 : -ENOMEM;
}

static bool process_turn(struct perf_run *r, uint64_t now_ns)
{
	struct calls *c = r->state;

	if (!r->options->server)
		return calls_turn(r, now_ns);
	if (!c->started && c->ready_count == c->channel_count)
		c->started = work_begin(c);
	if (rp_loop_run_once(c->loop, 10 * RP_NS_PER_MS) < 0)
		calls_fail(c, "epoll fails");
	return true;
}

const struct perf_mode perf_mode_process = {
	.name = "process",
	.text = "process requests through a ringpostd, each answered by outputs and an end; --serve works",
	.needs = PERF_NEEDS_SOCKETS,
	.measures = "job to its end, round trip",
	.unit = "outputs",
	.begin = process_begin,
	.turn = process_turn,
	.end = calls_end,
};
