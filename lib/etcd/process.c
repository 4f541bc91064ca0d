/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <ringpost/v1/process.pb-c.h>

#include "process_priv.h"

/* ---- what goes out ---- */

uint8_t *process_copy(const void *data, size_t length)
{
	uint8_t *copy = malloc(length + 1);

	RP_ASSERT(copy != NULL);
	if (length > 0)
		memcpy(copy, data, length);
	return copy;
}

static struct process_message *message_new(const ProtobufCMessage *m, uint64_t of, uint32_t bytes)
{
	struct process_message *x = calloc(1, sizeof(*x));

	RP_ASSERT(x != NULL);
	x->of = of;
	x->bytes = bytes;
	x->length = protobuf_c_message_get_packed_size(m);
	x->data = malloc(x->length + 1);
	RP_ASSERT(x->data != NULL);
	protobuf_c_message_pack(m, x->data);
	return x;
}

static void message_free(struct process_message *x)
{
	rp_list_unlink(&x->link);
	free(x->data);
	free(x);
}

/* 0: the connection has it. */
static int message_give(struct process_stream *s, struct process_message *x)
{
	if (!rp_grpc_call_fits(s->call, x->length))
		return -EAGAIN;
	/* It fits, yet may not be taken: then no on_room() comes. */
	if (rp_grpc_call_send(s->call, x->data, x->length, (uint64_t)(uintptr_t)&x->link) != 0) {
		s->stuck = true;
		return -EAGAIN;
	}
	free(x->data);
	x->data = NULL;
	rp_list_unlink(&x->link);
	rp_list_push_back(&s->given, &x->link);
	return 0;
}

void process_pump(struct process_stream *s)
{
	s->stuck = false;
	while (!rp_list_empty(&s->parked) &&
		message_give(s, rp_list_entry(s->parked.next, struct process_message, link)) == 0)
		;
}

void process_send(struct process_stream *s, const ProtobufCMessage *m, uint64_t of, uint32_t bytes)
{
	struct process_message *x = message_new(m, of, bytes);

	rp_list_push_back(&s->parked, &x->link);
	process_pump(s);
}

int process_offer(struct process_stream *s, const ProtobufCMessage *m, uint64_t of)
{
	struct process_message *x;
	int rc;

	if (!rp_list_empty(&s->parked))
		return -EAGAIN;
	x = message_new(m, of, 0);
	x->is_job = true;
	rp_list_init(&x->link);
	rc = message_give(s, x);
	if (rc != 0)
		message_free(x);
	return rc;
}

void process_stream_begin(
	struct process_stream *s, struct etcd_process *p, struct rp_grpc_call *call, bool is_work)
{
	s->p = p;
	s->call = call;
	s->is_work = is_work;
	rp_list_init(&s->parked);
	rp_list_init(&s->given);
	rp_list_push_back(&p->streams, &s->link);
	rp_grpc_call_set_user(call, s);
}

void process_stream_clear(struct process_stream *s)
{
	struct rp_list *lists[2] = {&s->parked, &s->given};

	for (unsigned i = 0; i < 2; i++)
		while (!rp_list_empty(lists[i]))
			message_free(rp_list_entry(lists[i]->next, struct process_message, link));
	rp_list_unlink(&s->link);
}

/* ---- what both ask ---- */

void process_status_text(
	enum rp_qstatus status, const char *message, struct rp_span name, char *out, size_t size)
{
	const struct rp_etcd_queue_answer answer = {.status = status, .message = message};

	etcd_qstatus_text(&answer, name, out, size);
}

const char *process_name_fault(struct rp_span queue)
{
	if (queue.length == 0)
		return "process: the queue's name is missing";
	if (queue.length > RP_NAME_BYTES_MAX)
		return "process: the queue's name is longer than 255 bytes";
	if (memchr(queue.data, '/', queue.length))
		return "process: the queue's name has a '/'";
	return NULL;
}

int process_check(struct process_stream *s, enum rp_etcd_access access, struct rp_span queue,
	const char *rest, const char **message)
{
	struct rp_etcd *e = s->p->e;
	struct rp_etcd_caller caller = etcd_caller_of(e, s->call);
	char key[RP_NAME_BYTES_MAX + 128];
	int length = snprintf(
		key, sizeof(key), "/q/%.*s/%s", (int)queue.length, (const char *)queue.data, rest);

	return etcd_check(e, access, (struct rp_span){(const uint8_t *)key, (size_t)length},
		(struct rp_span){0}, &caller, message);
}

/* ---- callbacks of the calls ---- */

void etcd_process_on_room(struct rp_grpc_call *call, void *ctx)
{
	struct process_stream *s = rp_grpc_call_user(call);

	if (!s)
		return;
	process_pump(s);
	if (s->is_work)
		work_stream_room(s);
	else
		run_stream_look(s);
}

void etcd_process_on_written(struct rp_grpc_call *call, uint64_t cookie, void *ctx)
{
	struct process_stream *s = rp_grpc_call_user(call);
	bool last = false;

	/* They leave in order: all before this one have left too. */
	while (s && !last && !rp_list_empty(&s->given)) {
		struct process_message *x =
			rp_list_entry(s->given.next, struct process_message, link);

		last = (uint64_t)(uintptr_t)&x->link == cookie;
		if (s->is_work)
			work_on_written(s, x);
		else
			run_on_written(s, x);
		message_free(x);
	}
}

static void stream_malformed(struct process_stream *s, const char *name)
{
	char text[128];

	s->p->e->stats.malformed++;
	snprintf(text, sizeof(text), "grpc: error unmarshalling request: %s does not decode", name);
	if (s->is_work)
		work_stream_refuse(s, RP_GRPC_INTERNAL, text);
	else
		run_stream_stop(s, RP_GRPC_INTERNAL, text);
}

void etcd_process_on_message(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct process_stream *s = rp_grpc_call_user(call);
	const ProtobufCMessageDescriptor *d = s && s->is_work
						      ? &ringpost__v1__work_event__descriptor
						      : &ringpost__v1__run_request__descriptor;
	ProtobufCMessage *m;

	if (!s)
		return;
	m = protobuf_c_message_unpack(d, NULL, length, data);
	if (!m)
		stream_malformed(s, d->short_name);
	else if (s->is_work)
		work_stream_message(s, m);
	else
		run_stream_message(s, m);
	etcd_unpacked_free(m);
}

void etcd_process_on_half_close(struct rp_grpc_call *call, void *ctx)
{
	struct process_stream *s = rp_grpc_call_user(call);

	if (!s)
		return;
	s->half_closed = true;
	if (s->is_work)
		work_stream_look(s);
	else
		run_stream_look(s);
}

/* ---- all streams ---- */

int etcd_process_create(struct rp_etcd *e)
{
	e->process = calloc(1, sizeof(*e->process));
	RP_ASSERT(e->process != NULL);
	e->process->e = e;
	e->process->backend = e->backend->process;
	rp_list_init(&e->process->streams);
	rp_list_init(&e->process->openings);
	return 0;
}

void etcd_process_free(struct rp_etcd *e)
{
	if (!e->process)
		return;
	RP_ASSERT(rp_list_empty(&e->process->streams));
	work_says_free(e->process);
	etcd_table_clear(&e->process->runs);
	etcd_table_clear(&e->process->works);
	etcd_table_clear(&e->process->says);
	free(e->process);
}

bool etcd_process_run(struct rp_etcd *e)
{
	struct rp_list *n, *t;
	bool waits = false;

	rp_list_foreach_safe (n, t, &e->process->streams) {
		struct process_stream *s = rp_list_entry(n, struct process_stream, link);

		if (s->stuck)
			etcd_process_on_room(s->call, e);
	}
	rp_list_foreach_safe (n, t, &e->process->streams) {
		struct process_stream *s = rp_list_entry(n, struct process_stream, link);

		waits |= s->stuck;
		if (s->is_work)
			waits |= work_stream_retry(s);
	}
	return waits;
}

void etcd_process_policy(struct rp_etcd *e)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &e->process->streams) {
		struct process_stream *s = rp_list_entry(n, struct process_stream, link);

		if (s->is_work)
			work_stream_policy(s);
		else
			run_stream_policy(s);
	}
}

void etcd_process_stop(struct rp_etcd *e)
{
	while (!rp_list_empty(&e->process->streams)) {
		struct process_stream *s =
			rp_list_entry(e->process->streams.next, struct process_stream, link);

		if (s->is_work)
			work_stream_stop(s, RP_GRPC_UNAVAILABLE, ETCD_TEXT_STOPPED);
		else
			run_stream_stop(s, RP_GRPC_UNAVAILABLE, ETCD_TEXT_STOPPED);
	}
}
