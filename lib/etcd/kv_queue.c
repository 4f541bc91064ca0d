/* SPDX-License-Identifier: Apache-2.0 */
/* Put, get and delete on keys that are queue traffic (spec/queues.md, "What a stock client sees").
 */
#include <stdio.h>
#include <string.h>

#include <base/bytes.h>
#include <etcdserverpb/rpc.pb-c.h>
#include <process/envelope.h>

#include "etcd_priv.h"

int rp_etcd_qstatus_code(enum rp_qstatus status)
{
	switch (status) {
	case RP_Q_OK:
	case RP_Q_NOT_FOUND:
		return RP_GRPC_OK;
	case RP_Q_DEADLINE:
		return RP_GRPC_DEADLINE_EXCEEDED;
	case RP_Q_TOO_LARGE:
	case RP_Q_INVALID:
		return RP_GRPC_INVALID_ARGUMENT;
	case RP_Q_QUEUE_DEPTH:
	case RP_Q_QUEUE_BYTES:
	case RP_Q_QUEUE_BUFFERS:
	case RP_Q_LIMIT:
		return RP_GRPC_RESOURCE_EXHAUSTED;
	case RP_Q_NO_CONSUMER:
	case RP_Q_INCAPABLE:
	case RP_Q_NOT_LIVE:
	case RP_Q_NOT_HOLDER:
	case RP_Q_REJECT:
		return RP_GRPC_FAILED_PRECONDITION;
	case RP_Q_DUPLICATE:
	case RP_Q_EXISTS:
		return RP_GRPC_ALREADY_EXISTS;
	case RP_Q_NO_DISPATCHER:
	case RP_Q_BUSY:
	case RP_Q_MOVED:
	case RP_Q_STALL:
	case RP_Q_STOPPING:
	case RP_Q_UNREACHABLE:
	case RP_Q_APART:
		return RP_GRPC_UNAVAILABLE;
	case RP_QSTATUS_COUNT:
		break;
	}
	return RP_GRPC_UNKNOWN;
}

void etcd_qstatus_text(
	const struct rp_etcd_queue_answer *answer, struct rp_span name, char *out, size_t size)
{
	if (answer->message)
		snprintf(out, size, "%s", answer->message);
	else if (answer->status == RP_Q_TOO_LARGE)
		snprintf(out, size, "%s", rp_qstatus_text(answer->status));
	else
		snprintf(out, size, "queue \"%.*s\": %s", (int)name.length, (const char *)name.data,
			rp_qstatus_text(answer->status));
}

Mvccpb__KeyValue *etcd_queue_kv(
	struct etcd_arena *a, const struct rp_etcd_queue_answer *answer, struct rp_span key)
{
	Mvccpb__KeyValue *kv = etcd_arena_get(a, sizeof(*kv));

	mvccpb__key_value__init(kv);
	kv->key = etcd_bytes(key);
	kv->value = etcd_bytes(answer->value);
	kv->mod_revision = kv->create_revision = (int64_t)answer->mod_revision;
	kv->version = answer->attempt;
	return kv;
}

/* `reject` or `reject:reason`. */
static bool reject_reason(struct rp_span value, struct rp_span *reason)
{
	static const char word[] = "reject";
	size_t n = sizeof(word) - 1;

	if (value.length < n || memcmp(value.data, word, n) != 0)
		return false;
	*reason = (struct rp_span){0};
	if (value.length == n)
		return true;
	*reason = (struct rp_span){.data = value.data + n + 1, .length = value.length - n - 1};
	return value.data[n] == ':';
}

static int put_op_of(struct rp_etcd_queue_op *out, const struct rp_kv_put *p,
	const struct rp_route_key *key, const char **message)
{
	if (p->lease != 0) {
		*message = "queue key: a message cannot have a lease";
		return RP_GRPC_INVALID_ARGUMENT;
	}
	if (p->ignore_value || p->ignore_lease) {
		*message = rp_kv_error_text(RP_KV_KEY_NOT_FOUND);
		return RP_GRPC_INVALID_ARGUMENT;
	}
	out->value = p->value;
	out->type = RP_ETCD_QUEUE_PUT;
	if (key->kind == RP_KEY_PRODUCE)
		return RP_GRPC_OK;
	out->type = RP_ETCD_QUEUE_REJECT;
	if (reject_reason(p->value, &out->value))
		return RP_GRPC_OK;
	*message =
		"queue key: only `reject` or `reject:<reason>` can be put on a delivered message";
	return RP_GRPC_INVALID_ARGUMENT;
}

int etcd_queue_op_of(struct rp_etcd_queue_op *out, const struct rp_kv_op *op,
	const struct rp_route_key *key, const struct rp_etcd_caller *caller, const char **message)
{
	*out = (struct rp_etcd_queue_op){
		.name = key->name,
		.hash = rp_queue_hash(key->name.data, key->name.length),
		.tail = key->tail,
		.idx = key->idx,
		.caller = *caller,
		.user = etcd_user_of(caller),
	};
	memcpy(out->uuid, key->uuid, sizeof(out->uuid));
	if (key->kind == RP_KEY_DELIVERED_SHORT)
		out->flags |= RP_ETCD_QUEUE_NO_HOLDER;
	switch (op->type) {
	case RP_KV_OP_PUT:
		return put_op_of(out, &op->put, key, message);
	case RP_KV_OP_DELETE:
		out->type = key->kind == RP_KEY_PRODUCE ? RP_ETCD_QUEUE_CANCEL : RP_ETCD_QUEUE_ACK;
		if (op->del.prev_kv)
			out->flags |= RP_ETCD_QUEUE_WANT_MESSAGE;
		return RP_GRPC_OK;
	case RP_KV_OP_RANGE:
		if (key->kind == RP_KEY_PRODUCE)
			break;
		out->type = RP_ETCD_QUEUE_GET;
		out->flags |= RP_ETCD_QUEUE_WANT_MESSAGE;
		return RP_GRPC_OK;
	case RP_KV_OP_NONE:
	case RP_KV_OP_TXN:
		break;
	}
	*message = "queue key: messages are never stored under the key that produces them";
	return RP_GRPC_INVALID_ARGUMENT;
}

/* Permissions are of spellings: one by which the caller could put there himself is enough. */
static int check_reply_to(struct rp_etcd *e, struct rp_span queue, struct rp_span tail,
	const struct rp_etcd_caller *caller, const char **message)
{
	static const char *const words[] = {"/p/", "/producer/", "/i/", "/input/"};
	uint8_t key[RP_NAME_BYTES_MAX + RP_TAIL_BYTES_MAX + 16];
	int code = RP_GRPC_OK;

	for (unsigned i = 0; i < RP_ARRAY_SIZE(words); i++) {
		struct rp_writer w = rp_writer_of(key, sizeof(key));

		rp_write_bytes(&w, "/q/", 3);
		rp_write_bytes(&w, queue.data, queue.length);
		rp_write_bytes(&w, words[i], strlen(words[i]));
		rp_write_bytes(&w, tail.data, tail.length);
		/* What is no name the node refuses, and says so. */
		if (w.bad)
			return RP_GRPC_OK;
		code = etcd_check(e, RP_ETCD_WRITE, (struct rp_span){key, (size_t)(w.pos - key)},
			(struct rp_span){0}, caller, message);
		if (code == RP_GRPC_OK)
			break;
	}
	return code;
}

int etcd_queue_check_reply(struct rp_etcd *e, const struct rp_etcd_queue_op *op,
	const struct rp_etcd_caller *caller, const char **message)
{
	struct rp_envelope envelope;
	const char *why;
	int code = RP_GRPC_OK;

	if (op->type != RP_ETCD_QUEUE_PUT || !(etcd_auth_is_on(e) || etcd_policy_limits(e)) ||
		rp_envelope_parse(&envelope, op->value, &why) != RP_ENVELOPE_OK)
		return RP_GRPC_OK;
	/* The queue's own, by its record, is the choice of who wrote that. */
	if (envelope.reply_to.length > 0)
		code = check_reply_to(e, envelope.reply_to, op->tail, caller, message);
	rp_envelope_clear(&envelope);
	return code;
}

static void count_op(struct rp_etcd *e, enum rp_etcd_queue_op_type type)
{
	switch (type) {
	case RP_ETCD_QUEUE_PUT:
		e->stats.queue_puts++;
		break;
	case RP_ETCD_QUEUE_ACK:
		e->stats.queue_acks++;
		break;
	case RP_ETCD_QUEUE_GET:
		e->stats.queue_gets++;
		break;
	case RP_ETCD_QUEUE_REJECT:
		e->stats.queue_rejects++;
		break;
	case RP_ETCD_QUEUE_CANCEL:
		e->stats.queue_cancels++;
		break;
	}
}

/* take: request. */
static void queue_one(struct rp_etcd *e, struct rp_grpc_call *call, ProtobufCMessage *request,
	enum etcd_call_kind kind, const struct rp_kv_op *op, const struct rp_route_key *key,
	struct rp_span spelled)
{
	struct rp_etcd_caller caller = etcd_caller_of(e, call);
	struct rp_etcd_queue_op queue_op;
	const char *message;
	int code = etcd_queue_op_of(&queue_op, op, key, &caller, &message);
	struct etcd_call *c;

	if (code == RP_GRPC_OK)
		code = etcd_queue_check_reply(e, &queue_op, &caller, &message);
	if (code != RP_GRPC_OK) {
		etcd_unpacked_free(request);
		etcd_refuse(call, code, message);
		return;
	}
	count_op(e, queue_op.type);
	c = etcd_call_new(e, call, kind, request);
	if (!c)
		return;
	c->key = spelled;
	c->ops = etcd_arena_get(&c->arena, sizeof(c->ops[0]));
	*c->ops = queue_op;
	c->op_count = 1;
	etcd_call_queue(c);
}

void etcd_queue_put(struct rp_etcd *e, struct rp_grpc_call *call, Etcdserverpb__PutRequest *request,
	const struct rp_route_key *key)
{
	struct rp_kv_op op = {.type = RP_KV_OP_PUT, .put = etcd_put_of(request)};

	queue_one(e, call, &request->base, ETCD_CALL_QUEUE_PUT, &op, key, op.put.key);
}

void etcd_queue_delete(struct rp_etcd *e, struct rp_grpc_call *call,
	Etcdserverpb__DeleteRangeRequest *request, const struct rp_route_key *key)
{
	struct rp_kv_op op = {.type = RP_KV_OP_DELETE, .del = etcd_delete_of(request)};

	queue_one(e, call, &request->base, ETCD_CALL_QUEUE_ACK, &op, key, op.del.key);
}

void etcd_queue_get(struct rp_etcd *e, struct rp_grpc_call *call,
	Etcdserverpb__RangeRequest *request, const struct rp_route_key *key)
{
	struct rp_kv_op op = {.type = RP_KV_OP_RANGE, .range = etcd_range_of(request)};

	queue_one(e, call, &request->base, ETCD_CALL_QUEUE_GET, &op, key, op.range.key);
}

static void answer_get(struct etcd_call *c, const struct rp_etcd_queue_answer *answer)
{
	const Etcdserverpb__RangeRequest *request = (const Etcdserverpb__RangeRequest *)c->request;
	Etcdserverpb__RangeResponse m = ETCDSERVERPB__RANGE_RESPONSE__INIT;
	Mvccpb__KeyValue *kv;

	m.header = etcd_header_in(&c->arena, c->e, rp_kv_revision(c->e->kv));
	if (answer->has_message) {
		m.count = 1;
		kv = etcd_queue_kv(&c->arena, answer, c->key);
		if (request->keys_only)
			kv->value = (ProtobufCBinaryData){0};
		m.kvs = &kv;
		m.n_kvs = !request->count_only;
	}
	etcd_call_reply(c, &m.base);
}

static void answer_ack(struct etcd_call *c, const struct rp_etcd_queue_answer *answer)
{
	Etcdserverpb__DeleteRangeResponse m = ETCDSERVERPB__DELETE_RANGE_RESPONSE__INIT;
	Mvccpb__KeyValue *kv;

	m.header = etcd_header_in(&c->arena, c->e, rp_kv_revision(c->e->kv));
	m.deleted = answer->deleted;
	if (answer->has_message) {
		kv = etcd_queue_kv(&c->arena, answer, c->key);
		m.prev_kvs = &kv;
		m.n_prev_kvs = 1;
	}
	etcd_call_reply(c, &m.base);
}

static void answer_put(struct etcd_call *c)
{
	Etcdserverpb__PutResponse m = ETCDSERVERPB__PUT_RESPONSE__INIT;

	m.header = etcd_header_in(&c->arena, c->e, rp_kv_revision(c->e->kv));
	etcd_call_reply(c, &m.base);
}

void rp_etcd_queue_answer(
	struct rp_etcd *e, uint64_t token, const struct rp_etcd_queue_answer *answer)
{
	struct etcd_call *c;
	int code = rp_etcd_qstatus_code(answer->status);
	char text[512];

	if (etcd_work_answer(e, token, answer))
		return;
	c = etcd_call_find(e, token);
	if (!c)
		return;
	if (c->kind == ETCD_CALL_QUEUE_TXN) {
		etcd_queue_txn_answer(c, RP_Q_OK, NULL, answer, 1);
		return;
	}
	/* A reject of a message that is not there any more is no success for who sent it. */
	if (answer->status == RP_Q_NOT_FOUND && c->kind == ETCD_CALL_QUEUE_PUT)
		code = RP_GRPC_NOT_FOUND;
	if (code != RP_GRPC_OK) {
		e->stats.queue_refused++;
		etcd_qstatus_text(answer, c->ops[0].name, text, sizeof(text));
		etcd_call_fail(c, code, text);
	} else if (c->kind == ETCD_CALL_QUEUE_GET) {
		answer_get(c, answer);
	} else if (c->kind == ETCD_CALL_QUEUE_ACK) {
		answer_ack(c, answer);
	} else {
		answer_put(c);
	}
}

void rp_etcd_queue_batch_answer(struct rp_etcd *e, uint64_t token, enum rp_qstatus status,
	const char *message, const struct rp_etcd_queue_answer *answers, uint32_t count)
{
	struct etcd_call *c = etcd_call_find(e, token);

	if (c)
		etcd_queue_txn_answer(c, status, message, answers, count);
}
