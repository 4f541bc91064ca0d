/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Process.Work: a worker is a consumer of a queue, and what it says goes to the node.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <base/assert.h>
#include <process/envelope.h>
#include <ringpost/v1/process.pb-c.h>

#include "process_priv.h"

/** How the node says that the same uuid has come elsewhere. */
#define TEXT_REPLACED "queue consumer: replaced"

/** The record of a worker is being written; it is the worker's, or of one that has gone. */
struct work_opening {
	struct rp_list link;   /**< p->openings */
	struct work_stream *s; /**< NULL: it has gone */
	char *fields;	       /**< the record's, until it is written */
};

struct job {
	struct etcd_node node; /**< of the stream, by its index */
	uint64_t request;      /**< 0: a plain message */
	int64_t revision;
	bool over; /**< its end or reject is on its way */
};

struct work_stream {
	struct process_stream s;
	struct etcd_node node; /**< p->works, while it is a consumer */
	struct work_opening *opening;
	struct etcd_table jobs;
	struct rp_list unsent, sent; /**< struct work_say */
	uint32_t unanswered;
	size_t unanswered_bytes;
	bool registered, hooked, nameless, resume, hungry, paused;
	bool saying; /**< it does not end before all that waits was tried */
	uint8_t uuid[RP_UUID_BYTES];
	uint32_t hash;
	struct rp_span queue;
	uint8_t name[RP_NAME_BYTES_MAX];
};

enum say_kind {
	SAY_OUTPUT,
	SAY_END,
	SAY_ACK, /**< the end of a plain message */
	SAY_REJECT,
};

/** What a worker said of a job, until it is answered. */
struct work_say {
	struct etcd_node node; /**< p->says, by its token, while the node has it */
	struct rp_list link;
	struct work_stream *s; /**< NULL: the worker has gone */
	enum say_kind kind;
	uint64_t idx, request;
	uint8_t *value;
	size_t length;
};

static struct work_stream *stream_of(struct process_stream *s)
{
	return RP_CONTAINER_OF(s, struct work_stream, s);
}

static struct work_stream *work_find(struct etcd_process *p, uint64_t handle)
{
	struct etcd_node *n = etcd_table_find(&p->works, handle);

	return n ? RP_CONTAINER_OF(n, struct work_stream, node) : NULL;
}

/* ---- jobs ---- */

static struct job *job_find(const struct work_stream *s, uint64_t idx)
{
	struct etcd_node *n = etcd_table_find(&s->jobs, idx);

	return n ? RP_CONTAINER_OF(n, struct job, node) : NULL;
}

static void job_free(struct work_stream *s, struct job *j)
{
	if (!j)
		return;
	etcd_table_remove(&s->jobs, &j->node);
	free(j);
}

/* A job that is sent again is the same. */
static struct job *job_get(struct work_stream *s, uint64_t idx)
{
	struct job *j = job_find(s, idx);

	if (j)
		return j;
	j = calloc(1, sizeof(*j));
	RP_ASSERT(j != NULL);
	etcd_table_add(&s->jobs, &j->node, idx);
	return j;
}

/* ---- the end of a stream ---- */

static void say_free(struct work_say *x)
{
	rp_list_unlink(&x->link);
	free(x->value);
	free(x);
}

static void opening_free(struct work_opening *o)
{
	rp_list_unlink(&o->link);
	free(o->fields);
	free(o);
}

void work_says_free(struct etcd_process *p)
{
	struct etcd_node *n;

	while (!rp_list_empty(&p->openings))
		opening_free(rp_list_entry(p->openings.next, struct work_opening, link));

	while ((n = etcd_table_any(&p->says))) {
		etcd_table_remove(&p->says, n);
		say_free(RP_CONTAINER_OF(n, struct work_say, node));
	}
}

/* It is no consumer any more, and the node need not be told. */
static void work_unhook(struct work_stream *s)
{
	if (!s->hooked)
		return;
	s->hooked = false;
	etcd_table_remove(&s->s.p->works, &s->node);
	s->s.p->e->stats.workers--;
}

/* Nobody returns as a worker whose name was made here. */
static void work_close(struct work_stream *s, enum rp_etcd_consumer_end why, bool left)
{
	const struct rp_etcd_backend *b = s->s.p->e->backend;
	uint64_t handle = s->node.key;

	if (!s->hooked)
		return;
	work_unhook(s);
	if (left || (s->nameless && why != RP_ETCD_CONSUMER_STOPPED))
		b->process->work_leave(b->process->ctx, handle);
	else
		b->consumer_close(b->ctx, handle, why);
}

static void job_drop(struct etcd_node *n, void *ctx)
{
	job_free(ctx, RP_CONTAINER_OF(n, struct job, node));
}

static void stream_free(struct work_stream *s)
{
	struct rp_list *n;

	RP_ASSERT(!s->hooked);
	if (s->opening)
		s->opening->s = NULL;
	etcd_table_each(&s->jobs, job_drop, s);
	etcd_table_clear(&s->jobs);
	while (!rp_list_empty(&s->unsent))
		say_free(rp_list_entry(s->unsent.next, struct work_say, link));
	/* What they borrow stays until they are answered. */
	while ((n = rp_list_pop_front(&s->sent)))
		rp_list_entry(n, struct work_say, link)->s = NULL;
	process_stream_clear(&s->s);
	free(s);
}

static void stream_finish(struct work_stream *s, int code, const char *message)
{
	struct rp_grpc_call *call = s->s.call;

	rp_grpc_call_set_user(call, NULL);
	stream_free(s);
	rp_grpc_call_finish(call, (enum rp_grpc_code)code, message);
}

void work_stream_stop(struct process_stream *s, int code, const char *message)
{
	work_close(stream_of(s), RP_ETCD_CONSUMER_STOPPED, false);
	stream_finish(stream_of(s), code, message);
}

/* A fault of its client's. */
static void work_refuse(struct work_stream *s, int code, const char *message)
{
	work_close(s, RP_ETCD_CONSUMER_CANCELLED, true);
	stream_finish(s, code, message);
}

void work_stream_refuse(struct process_stream *s, int code, const char *message)
{
	work_refuse(stream_of(s), code, message);
}

/* When it says no more, and all that it said is answered, it has left. */
static void work_look(struct work_stream *s)
{
	if (!s->s.half_closed || s->opening || s->saying || !rp_list_empty(&s->unsent) ||
		!rp_list_empty(&s->sent) || !rp_list_empty(&s->s.parked))
		return;
	work_close(s, RP_ETCD_CONSUMER_CANCELLED, true);
	stream_finish(s, RP_GRPC_OK, "");
}

void work_stream_look(struct process_stream *s)
{
	work_look(stream_of(s));
}

/* ---- what the worker is told ---- */

static void send_settled(struct work_stream *s, uint64_t idx, int code, const char *message)
{
	Ringpost__V1__WorkItem m = RINGPOST__V1__WORK_ITEM__INIT;
	Ringpost__V1__Settled settled = RINGPOST__V1__SETTLED__INIT;

	settled.status = (uint32_t)code;
	settled.message = (char *)message;
	m.job = idx;
	m.item_case = RINGPOST__V1__WORK_ITEM__ITEM_SETTLED;
	m.settled = &settled;
	process_send(&s->s, &m.base, 0, 0);
}

static uint8_t *value_join(const struct rp_etcd_delivery *d, size_t *length)
{
	uint8_t *value;
	size_t at = 0;

	*length = 0;
	for (uint32_t i = 0; i < d->value_count; i++)
		*length += d->value[i].length;
	value = malloc(*length + 1);
	RP_ASSERT(value != NULL);
	for (uint32_t i = 0; i < d->value_count; i++) {
		if (d->value[i].length > 0)
			memcpy(value + at, d->value[i].data, d->value[i].length);
		at += d->value[i].length;
	}
	return value;
}

int etcd_work_deliver(struct rp_etcd *e, uint64_t handle, const struct rp_etcd_delivery *d)
{
	struct work_stream *s = work_find(e->process, handle);
	Ringpost__V1__WorkItem m = RINGPOST__V1__WORK_ITEM__INIT;
	Ringpost__V1__Assigned assigned = RINGPOST__V1__ASSIGNED__INIT;
	uint8_t *value, *data = NULL;
	size_t length;
	struct job *j;
	int rc;

	if (!s)
		return -ENOENT;
	value = value_join(d, &length);
	assigned.data = (ProtobufCBinaryData){.data = value, .len = length};
	if (d->request && rp_process_data((struct rp_span){value, length}, &data, &length))
		assigned.data = (ProtobufCBinaryData){.data = data, .len = length};
	assigned.left_us = d->request ? RP_MAX(d->left_us, 1u) : 0;
	assigned.attempt = d->attempt;
	assigned.priority = d->priority;
	assigned.max_bytes = d->max_bytes;
	assigned.tail = etcd_bytes(d->tail);
	m.job = d->idx;
	m.item_case = RINGPOST__V1__WORK_ITEM__ITEM_ASSIGNED;
	m.assigned = &assigned;
	rc = process_offer(&s->s, &m.base, d->idx);
	free(value);
	free(data);
	if (rc != 0) {
		e->stats.deliveries_no_room++;
		s->hungry = true;
		return rc;
	}
	j = job_get(s, d->idx);
	j->request = d->request;
	j->revision = d->mod_revision;
	e->stats.deliveries_sent++;
	return 0;
}

void work_on_written(struct process_stream *p, const struct process_message *m)
{
	struct work_stream *s = stream_of(p);
	const struct rp_etcd_backend *b = p->p->e->backend;
	const struct job *j = m->is_job && s->hooked ? job_find(s, m->of) : NULL;

	if (j && b->consumer_accepted)
		b->consumer_accepted(b->ctx, s->node.key, m->of, j->revision);
}

int etcd_work_withdraw(struct rp_etcd *e, uint64_t handle, uint64_t idx)
{
	struct work_stream *s = work_find(e->process, handle);
	Ringpost__V1__WorkItem m = RINGPOST__V1__WORK_ITEM__INIT;
	Ringpost__V1__Stop stop = RINGPOST__V1__STOP__INIT;

	if (!s)
		return -ENOENT;
	m.job = idx;
	m.item_case = RINGPOST__V1__WORK_ITEM__ITEM_STOP;
	m.stop = &stop;
	job_free(s, job_find(s, idx));
	process_send(&s->s, &m.base, 0, 0);
	e->stats.withdrawals_sent++;
	return 0;
}

void etcd_work_end(struct rp_etcd *e, uint64_t handle, const char *reason)
{
	struct work_stream *s = work_find(e->process, handle);
	bool replaced = reason && strncmp(reason, TEXT_REPLACED, sizeof(TEXT_REPLACED) - 1) == 0;

	if (!s)
		return;
	work_unhook(s);
	stream_finish(s, replaced ? RP_GRPC_ABORTED : RP_GRPC_UNAVAILABLE,
		reason ? reason : "queue: the consumer was ended");
}

void work_stream_room(struct process_stream *p)
{
	struct work_stream *s = stream_of(p);
	const struct rp_etcd_backend *b = p->p->e->backend;

	if (s->hooked && s->hungry && rp_list_empty(&p->parked)) {
		s->hungry = false;
		b->consumer_room(b->ctx, s->node.key);
	}
	work_look(s);
}

/* ---- what the worker says ---- */

static void work_throttle(struct work_stream *s)
{
	bool full = s->unanswered >= PROCESS_UNANSWERED_MAX ||
		    s->unanswered_bytes >= PROCESS_UNANSWERED_BYTES;
	bool low = s->unanswered <= PROCESS_UNANSWERED_MAX / 2 &&
		   s->unanswered_bytes <= PROCESS_UNANSWERED_BYTES / 2;

	if (full && !s->paused) {
		s->paused = true;
		rp_grpc_call_pause_reading(s->s.call);
	} else if (low && s->paused) {
		s->paused = false;
		rp_grpc_call_resume_reading(s->s.call);
	}
}

static int say_give(struct work_stream *s, const struct work_say *x, uint64_t token)
{
	struct rp_etcd *e = s->s.p->e;
	const struct rp_etcd_process_backend *b = s->s.p->backend;
	struct rp_etcd_queue_op op = {
		.type = x->kind == SAY_ACK ? RP_ETCD_QUEUE_ACK : RP_ETCD_QUEUE_REJECT,
		.name = s->queue,
		.hash = s->hash,
		.value = {x->value, x->length},
		.idx = x->idx,
		.caller = etcd_caller_of(e, s->s.call),
	};
	struct rp_etcd_job_output output = {
		.queue = s->queue,
		.hash = s->hash,
		.idx = x->idx,
		.request = x->request,
		.value = {x->value, x->length},
		.final = x->kind == SAY_END,
	};

	memcpy(op.uuid, s->uuid, sizeof(op.uuid));
	op.user = etcd_user_of(&op.caller);
	memcpy(output.uuid, s->uuid, sizeof(output.uuid));
	if (x->kind == SAY_OUTPUT || x->kind == SAY_END)
		return b->job_output(b->ctx, &output, token);
	return e->backend->queue_op(e->backend->ctx, &op, token);
}

/* The first of those that wait. False: not now. It may be answered, and gone, on return. */
static bool say_first(struct work_stream *s)
{
	struct etcd_process *p = s->s.p;
	struct work_say *x = rp_list_entry(s->unsent.next, struct work_say, link);
	uint64_t token = RP_ETCD_PROCESS_FLAG | ++p->handle_last;

	rp_list_unlink(&x->link);
	rp_list_push_back(&s->sent, &x->link);
	etcd_table_add(&p->says, &x->node, token);
	if (say_give(s, x, token) != -EAGAIN)
		return true;
	etcd_table_remove(&p->says, &x->node);
	rp_list_unlink(&x->link);
	rp_list_push_front(&s->unsent, &x->link);
	return false;
}

bool work_stream_retry(struct process_stream *p)
{
	struct work_stream *s = stream_of(p);
	bool waits;

	s->saying = true;
	while (!rp_list_empty(&s->unsent) && say_first(s))
		;
	s->saying = false;
	waits = !rp_list_empty(&s->unsent);
	work_look(s);
	return waits;
}

/* take: value. */
static void say(
	struct work_stream *s, struct job *j, enum say_kind kind, uint8_t *value, size_t length)
{
	struct work_say *x = calloc(1, sizeof(*x));

	RP_ASSERT(x != NULL);
	x->s = s;
	x->kind = kind;
	x->idx = j->node.key;
	x->request = j->request;
	x->value = value;
	x->length = length;
	j->over = kind != SAY_OUTPUT;
	s->unanswered++;
	s->unanswered_bytes += length;
	rp_list_push_back(&s->unsent, &x->link);
	work_throttle(s);
	work_stream_retry(&s->s);
}

/* Whatever is said of the job from now on would be refused. */
static bool is_lost(enum rp_qstatus status)
{
	return status == RP_Q_NOT_LIVE || status == RP_Q_NOT_HOLDER || status == RP_Q_NOT_FOUND ||
	       status == RP_Q_TOO_LARGE;
}

bool etcd_work_answer(struct rp_etcd *e, uint64_t token, const struct rp_etcd_queue_answer *answer)
{
	struct etcd_process *p = e->process;
	struct etcd_node *n;
	struct work_stream *s;
	struct work_say *x;
	struct job *j;
	char text[512] = "";

	if (!(token & RP_ETCD_PROCESS_FLAG))
		return false;
	n = etcd_table_find(&p->says, token);
	if (!n)
		return true;
	x = RP_CONTAINER_OF(n, struct work_say, node);
	etcd_table_remove(&p->says, n);
	s = x->s;
	if (!s) {
		say_free(x);
		return true;
	}
	j = job_find(s, x->idx);
	s->unanswered--;
	s->unanswered_bytes -= x->length;
	if (answer->status != RP_Q_OK) {
		e->stats.queue_refused++;
		process_status_text(answer->status, answer->message, s->queue, text, sizeof(text));
	}
	if (answer->status != RP_Q_OK || x->kind != SAY_OUTPUT)
		send_settled(s, x->idx,
			answer->status == RP_Q_NOT_FOUND ? RP_GRPC_NOT_FOUND
							 : rp_etcd_qstatus_code(answer->status),
			text);
	if (is_lost(answer->status) || (answer->status == RP_Q_OK && x->kind != SAY_OUTPUT))
		job_free(s, j);
	else if (j && x->kind != SAY_OUTPUT)
		j->over = false; /* it may be said again */
	say_free(x);
	work_throttle(s);
	work_look(s);
	return true;
}

static void on_said(struct work_stream *s, const Ringpost__V1__WorkEvent *m)
{
	struct job *j = job_find(s, m->job);
	bool is_end = m->event_case == RINGPOST__V1__WORK_EVENT__EVENT_END;
	ProtobufCBinaryData data = {0};
	size_t length;
	char *json;

	if (!j || j->over) {
		send_settled(s, m->job, RP_GRPC_FAILED_PRECONDITION,
			j ? "process: the job has been ended"
			  : "process: the worker does not have that job, or no more");
		return;
	}
	if (m->event_case == RINGPOST__V1__WORK_EVENT__EVENT_REJECT) {
		length = strlen(m->reject->reason);
		say(s, j, SAY_REJECT, process_copy(m->reject->reason, length), length);
		return;
	}
	data = is_end ? m->end->data : m->output->data;
	if (j->request == 0 && (data.len > 0 || !is_end)) {
		send_settled(s, m->job, RP_GRPC_FAILED_PRECONDITION,
			"process: nobody waits for an output of a plain message");
		return;
	}
	if (j->request == 0) {
		say(s, j, SAY_ACK, NULL, 0);
		return;
	}
	/* An end without data has none to be read. */
	json = rp_output_write((struct rp_span){is_end && data.len == 0 ? NULL
						: data.len == 0		? (const uint8_t *)""
									: data.data,
				       data.len},
		is_end, &length);
	RP_ASSERT(json != NULL);
	say(s, j, is_end ? SAY_END : SAY_OUTPUT, (uint8_t *)json, length);
}

/* ---- registering ---- */

/* NULL, or why no worker comes of it. The uuid is filled in. */
static const char *register_fault(struct work_stream *s, const Ringpost__V1__Register *r)
{
	const char *fault =
		process_name_fault((struct rp_span){(const uint8_t *)r->queue, strlen(r->queue)});

	if (fault)
		return fault;
	if (r->uuid[0] != '\0' && rp_uuid_parse(r->uuid, strlen(r->uuid), s->uuid) != 0)
		return "process: the worker's uuid is none";
	if (r->uuid[0] == '\0' && r->resume)
		return "process: somebody new has nothing to resume";
	for (size_t i = 0; i < r->n_cap; i++)
		if (r->cap[i][0] == '\0' || strpbrk(r->cap[i], " ,;"))
			return "process: a capability is a word without spaces, ',' and ';'";
	if (strpbrk(r->match, ";/") || strlen(r->match) > RP_TAIL_BYTES_MAX)
		return "process: match is the beginning of a tail, without ';'";
	return NULL;
}

/* As a client puts them on the consumer's key; caller frees. */
static char *fields_of(const Ringpost__V1__Register *r, size_t *length)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, length);

	RP_ASSERT(f != NULL);
	for (size_t i = 0; i < r->n_cap; i++)
		fprintf(f, "%s%s", i ? "," : ";cap=", r->cap[i]);
	if (r->max_bytes)
		fprintf(f, ";max_bytes=%llu", (unsigned long long)r->max_bytes);
	fprintf(f, ";prefetch=%u", r->prefetch ? r->prefetch : 1);
	if (r->match[0])
		fprintf(f, ";match=%s", r->match);
	RP_ASSERT(fclose(f) == 0);
	return text;
}

static void work_open(struct work_stream *s)
{
	struct etcd_process *p = s->s.p;
	const struct rp_etcd_backend *b = p->e->backend;
	Ringpost__V1__WorkItem m = RINGPOST__V1__WORK_ITEM__INIT;
	Ringpost__V1__Registered registered = RINGPOST__V1__REGISTERED__INIT;
	struct rp_etcd_consumer_open open = {
		.name = s->queue,
		.hash = s->hash,
		.start_revision = s->resume ? 1 : 0,
		.caller = etcd_caller_of(p->e, s->s.call),
	};
	const char *reason = "queue: consumers are not served here";
	char uuid[RP_UUID_TEXT_BYTES + 1];
	int64_t revision;

	memcpy(open.uuid, s->uuid, sizeof(open.uuid));
	open.user = etcd_user_of(&open.caller);
	etcd_table_add(&p->works, &s->node, RP_ETCD_PROCESS_FLAG | ++p->handle_last);
	s->hooked = true;
	p->e->stats.workers++;
	if (!b->consumer_open || b->consumer_open(b->ctx, &open, s->node.key, &revision, &reason)) {
		work_unhook(s);
		stream_finish(s, RP_GRPC_UNAVAILABLE, reason);
		return;
	}
	rp_uuid_format(s->uuid, uuid);
	uuid[RP_UUID_TEXT_BYTES] = '\0';
	registered.uuid = uuid;
	m.item_case = RINGPOST__V1__WORK_ITEM__ITEM_REGISTERED;
	m.registered = &registered;
	process_send(&s->s, &m.base, 0, 0);
	work_look(s);
}

static void on_recorded(void *ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct work_opening *o = ctx;
	struct work_stream *s = o->s;

	opening_free(o);
	if (!s)
		return;
	s->opening = NULL;
	if (status != RP_GRPC_OK)
		stream_finish(s, status, message);
	else if (r->error != RP_KV_OK)
		stream_finish(s, etcd_kv_code(r->error), rp_kv_error_text(r->error));
	else
		work_open(s);
}

static void record_write(struct work_stream *s, const Ringpost__V1__Register *r)
{
	const struct rp_etcd_backend *b = s->s.p->e->backend;
	struct rp_etcd_caller caller = etcd_caller_of(s->s.p->e, s->s.call);
	uint8_t text[RP_REGISTRY_KEY_BYTES_MAX];
	int length = rp_route_key_consumer(s->queue, s->uuid, text, sizeof(text));
	struct rp_route_key key;
	struct rp_span value;

	RP_ASSERT(length > 0);
	rp_route_key_parse(&key, text, (size_t)length);
	s->opening = calloc(1, sizeof(*s->opening));
	RP_ASSERT(s->opening != NULL);
	s->opening->s = s;
	rp_list_push_back(&s->s.p->openings, &s->opening->link);
	s->opening->fields = fields_of(r, &value.length);
	value.data = (const uint8_t *)s->opening->fields;
	b->record_write(b->ctx, &key, value, 0, false, &caller, on_recorded, s->opening);
}

static int work_check(struct process_stream *s, const char **message)
{
	const struct work_stream *w = stream_of(s);
	char rest[32 + RP_UUID_TEXT_BYTES] = "consumer/";
	int code;

	rp_uuid_format(w->uuid, rest + strlen(rest));
	code = process_check(s, RP_ETCD_READ, w->queue, rest, message);
	return code == RP_GRPC_OK ? process_check(s, RP_ETCD_WRITE, w->queue, rest, message) : code;
}

static void on_register(struct work_stream *s, const Ringpost__V1__Register *r)
{
	const char *message = register_fault(s, r);
	size_t length = strlen(r->queue);
	int code;

	if (message) {
		work_refuse(s, RP_GRPC_INVALID_ARGUMENT, message);
		return;
	}
	s->registered = true;
	s->resume = r->resume;
	s->nameless = r->uuid[0] == '\0';
	while (s->nameless && getrandom(s->uuid, sizeof(s->uuid), 0) != (ssize_t)sizeof(s->uuid))
		;
	memcpy(s->name, r->queue, length);
	s->queue = (struct rp_span){s->name, length};
	s->hash = rp_queue_hash(r->queue, length);
	code = work_check(&s->s, &message);
	if (code != RP_GRPC_OK)
		work_refuse(s, code, message);
	else if (!s->s.p->e->backend->record_write)
		work_refuse(s, RP_GRPC_UNIMPLEMENTED, "process: workers are not served here");
	else
		record_write(s, r);
}

/* ---- the call ---- */

static void on_start(struct rp_grpc_call *call, void *ctx)
{
	struct rp_etcd *e = ctx;
	struct work_stream *s;

	if (etcd_stopped(e, call))
		return;
	s = calloc(1, sizeof(*s));
	RP_ASSERT(s != NULL);
	rp_list_init(&s->unsent);
	rp_list_init(&s->sent);
	process_stream_begin(&s->s, e->process, call, true);
}

void work_stream_message(struct process_stream *stream, const ProtobufCMessage *message)
{
	const Ringpost__V1__WorkEvent *m = (const Ringpost__V1__WorkEvent *)message;
	struct work_stream *s = stream_of(stream);

	switch (m->event_case) {
	case RINGPOST__V1__WORK_EVENT__EVENT_REGISTER:
		if (s->registered)
			work_refuse(s, RP_GRPC_INVALID_ARGUMENT,
				"process: the worker is registered; another one is another stream");
		else
			on_register(s, m->register_);
		return;
	case RINGPOST__V1__WORK_EVENT__EVENT_OUTPUT:
	case RINGPOST__V1__WORK_EVENT__EVENT_END:
	case RINGPOST__V1__WORK_EVENT__EVENT_REJECT:
		if (s->registered)
			on_said(s, m);
		else
			work_refuse(
				s, RP_GRPC_INVALID_ARGUMENT, "process: a worker registers first");
		return;
	case RINGPOST__V1__WORK_EVENT__EVENT__NOT_SET:
	case _RINGPOST__V1__WORK_EVENT__EVENT__CASE_IS_INT_SIZE:
		break;
	}
	work_refuse(s, RP_GRPC_INVALID_ARGUMENT, "process: not an event of a worker");
}

static void on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct process_stream *s = rp_grpc_call_user(call);

	if (!s)
		return;
	work_close(stream_of(s),
		why == RP_GRPC_CANCEL_STOPPED ? RP_ETCD_CONSUMER_STOPPED
		: why == RP_GRPC_CANCEL_RESET ? RP_ETCD_CONSUMER_CANCELLED
					      : RP_ETCD_CONSUMER_LOST,
		false);
	stream_free(stream_of(s));
}

void work_stream_policy(struct process_stream *s)
{
	const char *message = NULL;
	int code = stream_of(s)->registered ? work_check(s, &message) : RP_GRPC_OK;

	if (code != RP_GRPC_OK)
		work_stream_stop(s, code, message);
}

const struct rp_grpc_call_ops etcd_work_ops = {
	.on_start = on_start,
	.on_message = etcd_process_on_message,
	.on_half_close = etcd_process_on_half_close,
	.on_cancel = on_cancel,
	.on_room = etcd_process_on_room,
	.on_written = etcd_process_on_written,
};
