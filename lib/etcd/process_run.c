/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Process.Run: the requests of a stream, and what comes of them. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <process/envelope.h>
#include <ringpost/v1/process.pb-c.h>

#include "process_priv.h"

struct run_stream {
	struct process_stream s;
	struct rp_list runs;
	uint32_t run_count;
};

struct run {
	struct etcd_node node; /**< p->runs, by its handle */
	struct rp_list link;
	struct run_stream *stream;
	uint64_t id; /**< the client's */
	struct rp_span queue;
	uint8_t name[RP_NAME_BYTES_MAX];
};

static struct run_stream *stream_of(struct process_stream *s)
{
	return RP_CONTAINER_OF(s, struct run_stream, s);
}

static struct run *run_find(struct etcd_process *p, uint64_t handle)
{
	struct etcd_node *n = etcd_table_find(&p->runs, handle);

	return n ? RP_CONTAINER_OF(n, struct run, node) : NULL;
}

static void run_free(struct run *r)
{
	etcd_table_remove(&r->stream->s.p->runs, &r->node);
	rp_list_unlink(&r->link);
	r->stream->run_count--;
	free(r);
}

static struct run *run_new(struct run_stream *s, uint64_t id, struct rp_span queue)
{
	struct etcd_process *p = s->s.p;
	struct run *r = calloc(1, sizeof(*r));

	RP_ASSERT(r != NULL);
	r->stream = s;
	r->id = id;
	memcpy(r->name, queue.data, queue.length);
	r->queue = (struct rp_span){r->name, queue.length};
	rp_list_push_back(&s->runs, &r->link);
	s->run_count++;
	etcd_table_add(&p->runs, &r->node, ++p->run_last);
	return r;
}

static void stream_free(struct run_stream *s)
{
	struct etcd_process *p = s->s.p;

	while (!rp_list_empty(&s->runs)) {
		struct run *r = rp_list_entry(s->runs.next, struct run, link);
		uint64_t handle = r->node.key;

		run_free(r);
		p->backend->run_drop(p->backend->ctx, handle);
	}
	process_stream_clear(&s->s);
	free(s);
}

void run_stream_stop(struct process_stream *s, int code, const char *message)
{
	struct rp_grpc_call *call = s->call;

	rp_grpc_call_set_user(call, NULL);
	stream_free(stream_of(s));
	rp_grpc_call_finish(call, (enum rp_grpc_code)code, message);
}

void run_stream_look(struct process_stream *s)
{
	if (s->half_closed && stream_of(s)->run_count == 0 && rp_list_empty(&s->parked))
		run_stream_stop(s, RP_GRPC_OK, "");
}

void run_on_written(struct process_stream *s, const struct process_message *m)
{
	struct etcd_process *p = s->p;

	if (m->bytes > 0 && run_find(p, m->of))
		p->backend->run_read(p->backend->ctx, m->of, m->bytes);
}

/* ---- events ---- */

static void send_failed(struct run_stream *s, uint64_t id, const char *code, const char *reason)
{
	Ringpost__V1__RunEvent m = RINGPOST__V1__RUN_EVENT__INIT;
	Ringpost__V1__Failed failed = RINGPOST__V1__FAILED__INIT;

	failed.code = (char *)code;
	failed.reason = (char *)reason;
	m.id = id;
	m.event_case = RINGPOST__V1__RUN_EVENT__EVENT_FAILED;
	m.failed = &failed;
	process_send(&s->s, &m.base, 0, 0);
}

static void send_refused(struct run_stream *s, uint64_t id, int code, const char *reason)
{
	s->s.p->e->stats.runs_refused++;
	send_failed(s, id, rp_grpc_code_name((enum rp_grpc_code)code), reason);
}

void rp_etcd_run_answer(
	struct rp_etcd *e, uint64_t handle, enum rp_qstatus status, const char *message)
{
	Ringpost__V1__RunEvent m = RINGPOST__V1__RUN_EVENT__INIT;
	Ringpost__V1__Taken taken = RINGPOST__V1__TAKEN__INIT;
	struct run *r = run_find(e->process, handle);
	struct run_stream *s;
	char text[512];

	if (!r)
		return;
	s = r->stream;
	if (status != RP_Q_OK) {
		process_status_text(status, message, r->queue, text, sizeof(text));
		send_refused(s, r->id, rp_etcd_qstatus_code(status), text);
		run_free(r);
		run_stream_look(&s->s);
		return;
	}
	m.id = r->id;
	m.event_case = RINGPOST__V1__RUN_EVENT__EVENT_TAKEN;
	m.taken = &taken;
	process_send(&s->s, &m.base, 0, 0);
}

/* An output, or the end, with the data that the worker's JSON has. */
static void send_value(struct run *r, const struct rp_etcd_run_event *event)
{
	Ringpost__V1__RunEvent m = RINGPOST__V1__RUN_EVENT__INIT;
	Ringpost__V1__Output output = RINGPOST__V1__OUTPUT__INIT;
	Ringpost__V1__End end = RINGPOST__V1__END__INIT;
	ProtobufCBinaryData data = etcd_bytes(event->value);
	uint8_t *copy = NULL;
	size_t length;

	if (rp_process_data(event->value, &copy, &length))
		data = (ProtobufCBinaryData){.data = copy, .len = length};
	else if (event->kind == RP_ETCD_RUN_FINAL)
		data = (ProtobufCBinaryData){0}; /* it says that it is the last, and no more */
	m.id = r->id;
	if (event->kind == RP_ETCD_RUN_FINAL) {
		m.event_case = RINGPOST__V1__RUN_EVENT__EVENT_END;
		m.end = &end;
		end.data = data;
	} else {
		m.event_case = RINGPOST__V1__RUN_EVENT__EVENT_OUTPUT;
		m.output = &output;
		output.data = data;
	}
	process_send(&r->stream->s, &m.base, r->node.key, (uint32_t)event->value.length);
	free(copy);
}

void rp_etcd_run_event(struct rp_etcd *e, uint64_t handle, const struct rp_etcd_run_event *event)
{
	struct run *r = run_find(e->process, handle);
	struct run_stream *s;

	if (!r)
		return;
	s = r->stream;
	switch (event->kind) {
	case RP_ETCD_RUN_OUTPUT:
		e->stats.run_outputs++;
		send_value(r, event);
		return;
	case RP_ETCD_RUN_FINAL:
		send_value(r, event);
		break;
	case RP_ETCD_RUN_FAILED:
		e->stats.runs_failed++;
		send_failed(s, r->id, rp_process_code_name(event->code),
			event->reason ? event->reason : rp_process_code_text(event->code));
		break;
	}
	run_free(r);
	run_stream_look(&s->s);
}

/* ---- requests ---- */

/* NULL, or why no request comes of it. */
static const char *job_fault(const Ringpost__V1__Job *j)
{
	size_t bytes = 0;
	const char *fault =
		process_name_fault((struct rp_span){(const uint8_t *)j->queue, strlen(j->queue)});

	if (fault)
		return fault;
	if (j->ttl_ms == 0 || j->ttl_ms > RP_ENVELOPE_TTL_MS_MAX)
		return "process: ttl_ms is missing, or longer than a request may live";
	if (j->chosen_case == RINGPOST__V1__JOB__CHOSEN_PRIORITY &&
		j->priority > RP_PROCESS_PRIORITY_MAX)
		return "process: the priority is 0 to 9";
	if (j->n_need > RP_PROCESS_NEEDS_MAX)
		return "process: too many capabilities are needed";
	for (size_t i = 0; i < j->n_need; i++) {
		bytes += strlen(j->need[i]);
		if (j->need[i][0] == '\0' || strpbrk(j->need[i], " ,;"))
			return "process: a capability is a word without spaces, ',' and ';'";
	}
	return bytes > RP_PROCESS_NEED_BYTES_MAX ? "process: the capabilities needed are too long"
						 : NULL;
}

static char *envelope_of(
	const struct rp_etcd_process_backend *b, const Ringpost__V1__Job *j, size_t *length)
{
	struct rp_envelope x = {
		.ttl_ms = j->ttl_ms,
		.max_bytes = j->max_bytes,
		.has_priority = j->chosen_case == RINGPOST__V1__JOB__CHOSEN_PRIORITY,
		.fail_fast = j->fail_fast,
		.reply_to = {(const uint8_t *)b->reply_to, strlen(b->reply_to)},
		.need_count = (uint32_t)j->n_need,
	};

	if (x.has_priority)
		x.priority = (uint8_t)j->priority;
	for (size_t i = 0; i < j->n_need; i++)
		x.need[i] = (struct rp_span){(const uint8_t *)j->need[i], strlen(j->need[i])};
	return rp_envelope_write(&x, etcd_span(j->data), length);
}

static void on_job(struct run_stream *s, uint64_t id, const Ringpost__V1__Job *j)
{
	struct etcd_process *p = s->s.p;
	struct rp_span queue = {(const uint8_t *)j->queue, strlen(j->queue)};
	const char *message = job_fault(j);
	struct rp_span value;
	char *json;
	int code;

	p->e->stats.runs++;
	if (message) {
		send_refused(s, id, RP_GRPC_INVALID_ARGUMENT, message);
		return;
	}
	code = process_check(&s->s, RP_ETCD_WRITE, queue, "producer/run", &message);
	if (code != RP_GRPC_OK) {
		send_refused(s, id, code, message);
		return;
	}
	if (s->run_count >= PROCESS_RUNS_MAX) {
		send_refused(s, id, RP_GRPC_RESOURCE_EXHAUSTED,
			"process: this stream has too many requests; open another one");
		return;
	}
	json = envelope_of(p->backend, j, &value.length);
	if (!json) {
		send_refused(s, id, RP_GRPC_INVALID_ARGUMENT,
			"process: the data cannot be written into an envelope");
		return;
	}
	value.data = (const uint8_t *)json;
	p->backend->run_start(p->backend->ctx, queue, value, run_new(s, id, queue)->node.key);
	free(json);
}

static struct run *run_of_id(const struct run_stream *s, uint64_t id)
{
	struct rp_list *n;

	rp_list_foreach (n, &s->runs) {
		struct run *r = rp_list_entry(n, struct run, link);

		if (r->id == id)
			return r;
	}
	return NULL;
}

void run_stream_message(struct process_stream *stream, const ProtobufCMessage *message)
{
	const Ringpost__V1__RunRequest *m = (const Ringpost__V1__RunRequest *)message;
	struct run_stream *s = stream_of(stream);
	struct etcd_process *p = s->s.p;
	struct run *r = run_of_id(s, m->id);

	switch (m->act_case) {
	case RINGPOST__V1__RUN_REQUEST__ACT_JOB:
		if (r)
			run_stream_stop(&s->s, RP_GRPC_INVALID_ARGUMENT,
				"process: that id is of a request that has not ended");
		else
			on_job(s, m->id, m->job);
		return;
	case RINGPOST__V1__RUN_REQUEST__ACT_CANCEL:
		/* It may have ended meanwhile, which is told already. */
		if (r)
			p->backend->run_cancel(p->backend->ctx, r->node.key);
		return;
	case RINGPOST__V1__RUN_REQUEST__ACT__NOT_SET:
	case _RINGPOST__V1__RUN_REQUEST__ACT__CASE_IS_INT_SIZE:
		break;
	}
	run_stream_stop(&s->s, RP_GRPC_INVALID_ARGUMENT, "process: neither a job nor a cancel");
}

/* ---- the call ---- */

static void on_start(struct rp_grpc_call *call, void *ctx)
{
	struct rp_etcd *e = ctx;
	struct run_stream *s;

	if (etcd_stopped(e, call))
		return;
	s = calloc(1, sizeof(*s));
	RP_ASSERT(s != NULL);
	rp_list_init(&s->runs);
	process_stream_begin(&s->s, e->process, call, false);
}

static void on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct process_stream *s = rp_grpc_call_user(call);

	if (s)
		stream_free(stream_of(s));
}

void run_stream_policy(struct process_stream *s)
{
	struct rp_list *n;

	rp_list_foreach (n, &stream_of(s)->runs) {
		const struct run *r = rp_list_entry(n, struct run, link);
		const char *message = NULL;
		int code = process_check(s, RP_ETCD_WRITE, r->queue, "producer/run", &message);

		if (code != RP_GRPC_OK) {
			run_stream_stop(s, code, message);
			return;
		}
	}
}

const struct rp_grpc_call_ops etcd_run_ops = {
	.on_start = on_start,
	.on_message = etcd_process_on_message,
	.on_half_close = etcd_process_on_half_close,
	.on_cancel = on_cancel,
	.on_room = etcd_process_on_room,
	.on_written = etcd_process_on_written,
};
