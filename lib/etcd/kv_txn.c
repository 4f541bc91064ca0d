/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV.Txn: on keys it goes to the backend whole. With queue operations it is another thing: its
 * compares guard them, and the chosen branch's go to the dispatcher as one batch (spec/queues.md,
 * "Txn").
 */
#include <stdio.h>
#include <string.h>

#include <etcdserverpb/rpc.pb-c.h>

#include "etcd_priv.h"

/* What a txn's keys are. */
struct txn_scan {
	struct rp_etcd *e;
	struct etcd_arena *arena;
	struct rp_span queue; /* name of the first queue met */
	bool has_queue, has_write;
	const char *fault; /* INVALID_ARGUMENT */
	char text[256];
};

static struct rp_span op_key(const struct rp_kv_op *op, struct rp_span *end)
{
	*end = (struct rp_span){0};
	switch (op->type) {
	case RP_KV_OP_RANGE:
		*end = op->range.end;
		return op->range.key;
	case RP_KV_OP_PUT:
		return op->put.key;
	case RP_KV_OP_DELETE:
		*end = op->del.end;
		return op->del.key;
	case RP_KV_OP_NONE:
	case RP_KV_OP_TXN:
		break;
	}
	return (struct rp_span){0};
}

/* The kind of the key that an operation names; ranges are ordinary here. */
static void op_parse(struct rp_route_key *k, const struct rp_kv_op *op)
{
	struct rp_span end, key = op_key(op, &end);

	*k = (struct rp_route_key){.kind = RP_KEY_ORDINARY};
	if (end.length == 0)
		rp_route_key_parse(k, key.data, key.length);
}

static void scan_queue(struct txn_scan *s, const struct rp_route_key *k, uint32_t depth)
{
	if (depth > 0)
		s->fault = "queue key: queue operations cannot be in a nested txn";
	else if (s->has_queue && (s->queue.length != k->name.length ||
					 memcmp(s->queue.data, k->name.data, k->name.length) != 0))
		s->fault = "queue key: a txn can touch one queue only";
	s->has_queue = true;
	s->queue = k->name;
}

static void scan_record(struct txn_scan *s, struct rp_kv_op *op, const struct rp_route_key *k)
{
	if (op->type == RP_KV_OP_RANGE) {
		op->range.key = etcd_canonical(s->arena, k);
		return;
	}
	if (s->e->backend->record_write) {
		s->fault = "queue key: a record is written by a put or delete alone, not in a txn";
		return;
	}
	s->has_write = true;
	if (op->type == RP_KV_OP_PUT)
		op->put.key = etcd_canonical(s->arena, k);
	else
		op->del.key = etcd_canonical(s->arena, k);
}

static void scan_txn(struct txn_scan *s, const struct rp_kv_txn *t, uint32_t depth);

static void scan_op(struct txn_scan *s, struct rp_kv_op *op, uint32_t depth)
{
	struct rp_route_key k;

	if (op->type == RP_KV_OP_TXN) {
		scan_txn(s, op->txn, depth + 1);
		return;
	}
	op_parse(&k, op);
	switch (k.kind) {
	case RP_KEY_ORDINARY:
		if (op->type == RP_KV_OP_DELETE &&
			rp_route_range_classify(op->del.key.data, op->del.key.length,
				op->del.end.data, op->del.end.length) == RP_RANGE_INSIDE)
			s->fault = "queue key: messages and records are deleted one by one, not "
				   "by range";
		s->has_write |= op->type != RP_KV_OP_RANGE;
		break;
	case RP_KEY_DISPATCHER:
	case RP_KEY_CONSUMER:
		scan_record(s, op, &k);
		break;
	case RP_KEY_SINK:
		if (op->type == RP_KV_OP_RANGE) {
			scan_record(s, op, &k);
			break;
		}
		etcd_key_reason(&k, s->text, sizeof(s->text));
		s->fault = s->text;
		break;
	case RP_KEY_PRODUCE:
	case RP_KEY_DELIVERED:
	case RP_KEY_DELIVERED_SHORT:
		scan_queue(s, &k, depth);
		break;
	case RP_KEY_INVALID:
		etcd_key_reason(&k, s->text, sizeof(s->text));
		s->fault = s->text;
		break;
	}
}

static void scan_compare(struct txn_scan *s, struct rp_kv_compare *c)
{
	struct rp_route_key k;

	if (c->end.length > 0)
		return;
	rp_route_key_parse(&k, c->key.data, c->key.length);
	if (rp_route_key_is_registry(&k)) {
		c->key = etcd_canonical(s->arena, &k);
	} else if (k.kind == RP_KEY_INVALID) {
		etcd_key_reason(&k, s->text, sizeof(s->text));
		s->fault = s->text;
	} else if (k.kind != RP_KEY_ORDINARY) {
		s->fault = "queue key: a message cannot be compared";
	}
}

/* The txn is ours, made by etcd_txn_of(): records get their canonical keys in place. */
static void scan_txn(struct txn_scan *s, const struct rp_kv_txn *t, uint32_t depth)
{
	for (uint32_t i = 0; !s->fault && i < t->compare_count; i++)
		scan_compare(s, (struct rp_kv_compare *)&t->compares[i]);
	for (uint32_t i = 0; !s->fault && i < t->success_count; i++)
		scan_op(s, (struct rp_kv_op *)&t->success[i], depth);
	for (uint32_t i = 0; !s->fault && i < t->failure_count; i++)
		scan_op(s, (struct rp_kv_op *)&t->failure[i], depth);
}

/* ---- txns with queue operations ---- */

static const struct rp_kv_op *chosen(const struct etcd_call *c, uint32_t *count)
{
	bool success = c->guard.txn.succeeded;

	*count = success ? c->asked->success_count : c->asked->failure_count;
	return success ? c->asked->success : c->asked->failure;
}

static struct rp_kv_op *only_ranges(
	struct etcd_arena *a, const struct rp_kv_op *ops, uint32_t count, uint32_t *kept)
{
	struct rp_kv_op *out = etcd_arena_get(a, count * sizeof(out[0]));
	struct rp_route_key k;

	*kept = 0;
	for (uint32_t i = 0; i < count; i++) {
		op_parse(&k, &ops[i]);
		if (ops[i].type == RP_KV_OP_TXN ||
			(ops[i].type == RP_KV_OP_RANGE && !rp_route_key_is_traffic(&k)))
			out[(*kept)++] = ops[i];
	}
	return out;
}

/* Compares and reads, evaluated now: they decide the branch and answer their own part. */
static enum rp_kv_error guard_run(struct etcd_call *c)
{
	struct rp_kv_txn guard = {
		.compares = c->asked->compares, .compare_count = c->asked->compare_count};
	struct rp_kv_writer writer = {0};

	guard.success = only_ranges(
		&c->arena, c->asked->success, c->asked->success_count, &guard.success_count);
	guard.failure = only_ranges(
		&c->arena, c->asked->failure, c->asked->failure_count, &guard.failure_count);
	return rp_kv_apply(c->e->kv, &guard, &writer, &c->guard);
}

static bool is_queue_op(const struct rp_kv_op *op, struct rp_route_key *k)
{
	if (op->type == RP_KV_OP_TXN)
		return false;
	op_parse(k, op);
	return rp_route_key_is_traffic(k);
}

static void queue_txn(struct etcd_call *c)
{
	struct rp_etcd *e = c->e;
	struct rp_etcd_caller caller = etcd_caller_of(e, c->call);
	enum rp_kv_error error = guard_run(c);
	const struct rp_kv_op *ops;
	struct rp_route_key k;
	const char *message;
	uint32_t count;
	int code;

	if (error) {
		etcd_call_fail(c, etcd_kv_code(error), rp_kv_error_text(error));
		return;
	}
	ops = chosen(c, &count);
	c->ops = etcd_arena_get(&c->arena, count * sizeof(c->ops[0]));
	for (uint32_t i = 0; i < count; i++) {
		if (!is_queue_op(&ops[i], &k))
			continue;
		code = etcd_queue_op_of(&c->ops[c->op_count], &ops[i], &k, &caller, &message);
		if (code == RP_GRPC_OK)
			code = etcd_queue_check_reply(e, &c->ops[c->op_count], &caller, &message);
		c->op_count++;
		if (code != RP_GRPC_OK) {
			etcd_call_fail(c, code, message);
			return;
		}
	}
	c->batch = c->op_count > 1;
	if (c->op_count == 0)
		etcd_queue_txn_answer(c, RP_Q_OK, NULL, NULL, 0);
	else if (c->batch && !e->backend->queue_batch)
		etcd_call_fail(c, RP_GRPC_INVALID_ARGUMENT,
			"queue key: a txn with more than one queue operation is not supported");
	else
		etcd_call_queue(c);
}

static Etcdserverpb__ResponseOp *queue_response(struct etcd_call *c, const struct rp_kv_op *op,
	const struct rp_etcd_queue_answer *answer, int64_t revision)
{
	Etcdserverpb__ResponseOp *out = etcd_arena_get(&c->arena, sizeof(*out));
	struct rp_kv_range_result none = {0};
	struct rp_kv_op_result deleted = {.type = RP_KV_OP_DELETE};
	Mvccpb__KeyValue *kv = NULL;
	struct rp_span end, key = op_key(op, &end);

	etcdserverpb__response_op__init(out);
	if (answer->has_message)
		kv = etcd_queue_kv(&c->arena, answer, key);
	if (op->type == RP_KV_OP_PUT) {
		out->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_PUT;
		out->response_put = etcd_put_response(&c->arena, NULL, key);
		out->response_put->header = etcd_header_part(&c->arena, revision);
	} else if (op->type == RP_KV_OP_DELETE) {
		Etcdserverpb__DeleteRangeResponse *m;

		deleted.del.deleted = answer->deleted;
		m = etcd_delete_response(&c->arena, &deleted, key);
		m->header = etcd_header_part(&c->arena, revision);
		if (kv) {
			m->prev_kvs = etcd_arena_get(&c->arena, sizeof(m->prev_kvs[0]));
			m->prev_kvs[m->n_prev_kvs++] = kv;
		}
		out->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_DELETE_RANGE;
		out->response_delete_range = m;
	} else {
		Etcdserverpb__RangeResponse *m = etcd_range_response(&c->arena, &none, key);

		m->header = etcd_header_part(&c->arena, revision);
		if (kv) {
			m->kvs = etcd_arena_get(&c->arena, sizeof(m->kvs[0]));
			m->kvs[m->n_kvs++] = kv;
			m->count = 1;
		}
		out->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE;
		out->response_range = m;
	}
	return out;
}

/* A message that is not there: nothing deleted, nothing found, as for a key. */
static bool answer_refuses(enum rp_qstatus status)
{
	return status != RP_Q_OK && status != RP_Q_NOT_FOUND;
}

void etcd_queue_txn_answer(struct etcd_call *c, enum rp_qstatus status, const char *message,
	const struct rp_etcd_queue_answer *answers, uint32_t count)
{
	int64_t revision = rp_kv_revision(c->e->kv);
	Etcdserverpb__TxnResponse *plain, *m = etcd_arena_get(&c->arena, sizeof(*m));
	struct rp_kv_txn reads = {0};
	uint32_t op_count, next_answer = 0, next_read = 0;
	const struct rp_kv_op *ops = chosen(c, &op_count);
	struct rp_etcd_queue_answer refusal = {.status = status, .message = message};
	char text[512];

	for (uint32_t i = 0; !answer_refuses(refusal.status) && i < count; i++)
		refusal = answers[i];
	if (!answer_refuses(refusal.status) && count != c->op_count)
		refusal.status = RP_Q_UNREACHABLE;
	if (answer_refuses(refusal.status)) {
		c->e->stats.queue_refused++;
		etcd_qstatus_text(&refusal, c->ops[0].name, text, sizeof(text));
		etcd_call_fail(c, rp_etcd_qstatus_code(refusal.status), text);
		return;
	}
	reads.success = only_ranges(&c->arena, ops, op_count, &reads.success_count);
	reads.failure = reads.success;
	reads.failure_count = reads.success_count;
	plain = etcd_txn_response(&c->arena, &c->guard.txn, &reads);
	etcdserverpb__txn_response__init(m);
	m->header = etcd_header_in(&c->arena, c->e, revision);
	m->succeeded = c->guard.txn.succeeded;
	m->responses = etcd_arena_get(&c->arena, op_count * sizeof(m->responses[0]));
	for (uint32_t i = 0; i < op_count; i++) {
		struct rp_route_key k;

		m->responses[m->n_responses++] =
			is_queue_op(&ops[i], &k)
				? queue_response(c, &ops[i], &answers[next_answer++], revision)
				: plain->responses[next_read++];
	}
	etcd_call_reply(c, &m->base);
}

/* ---- Txn ---- */

static void txn_dispatch(struct etcd_call *c, struct rp_kv_txn *t)
{
	struct txn_scan s = {.e = c->e, .arena = &c->arena};

	scan_txn(&s, t, 0);
	if (!s.fault && s.has_queue && s.has_write)
		s.fault = "queue key: a txn cannot mix queue operations with writes of keys";
	if (s.fault) {
		etcd_call_fail(c, RP_GRPC_INVALID_ARGUMENT, s.fault);
		return;
	}
	c->asked = t;
	if (s.has_queue) {
		c->kind = ETCD_CALL_QUEUE_TXN;
		queue_txn(c);
	} else {
		etcd_propose(c, etcd_txn_split(&c->arena, t));
	}
}

static void txn_read_only(struct etcd_call *c, const struct rp_kv_txn *t)
{
	struct rp_kv_writer writer = {0};
	struct rp_kv_result r;
	enum rp_kv_error error = rp_kv_apply(c->e->kv, t, &writer, &r);
	Etcdserverpb__TxnResponse *m;

	if (error) {
		etcd_call_fail(c, etcd_kv_code(error), rp_kv_error_text(error));
		return;
	}
	m = etcd_txn_response(&c->arena, &r.txn, t);
	m->header = etcd_header_in(&c->arena, c->e, r.revision);
	etcd_call_reply(c, &m->base);
	rp_kv_result_clear(&r);
}

static void txn_run(struct etcd_call *c, size_t length)
{
	struct rp_etcd *e = c->e;
	struct rp_etcd_caller caller = etcd_caller_of(e, c->call);
	struct rp_kv_txn *t = etcd_txn_of(&c->arena, (const Etcdserverpb__TxnRequest *)c->request);
	enum rp_kv_error error = rp_kv_txn_check(t, rp_kv_txn_ops_max(e->kv));
	bool read_only = !error && rp_kv_txn_is_read_only(t);
	const char *message = NULL;
	int code;

	if (error) {
		etcd_call_fail(c, etcd_kv_code(error), rp_kv_error_text(error));
	} else if (e->stopped && !read_only) {
		etcd_call_fail(c, RP_GRPC_UNAVAILABLE, "etcdserver: server stopped");
	} else if (length > e->config.request_bytes_max && !read_only) {
		etcd_call_fail(c, RP_GRPC_INVALID_ARGUMENT, "etcdserver: request is too large");
	} else if ((code = etcd_check_txn(e, t, &caller, &message)) != RP_GRPC_OK) {
		etcd_call_fail(c, code, message);
	} else if (read_only) {
		struct txn_scan s = {.e = e, .arena = &c->arena};

		scan_txn(&s, t, 0);
		c->asked = t;
		if (s.fault) {
			etcd_call_fail(c, RP_GRPC_INVALID_ARGUMENT, s.fault);
		} else if (s.has_queue) {
			c->kind = ETCD_CALL_QUEUE_TXN;
			queue_txn(c);
		} else {
			txn_read_only(c, t);
		}
	} else {
		txn_dispatch(c, t);
	}
}

static void on_txn(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	uint32_t ops_max = rp_kv_txn_ops_max(e->kv);
	struct rp_span bytes = {.data = data, .length = length};
	Etcdserverpb__TxnRequest *m;
	struct etcd_call *c;

	e->stats.txns++;
	switch (etcd_wire_txn_shape(bytes, ops_max, RP_MIN(ops_max, ETCD_TXN_DEPTH_MAX))) {
	case ETCD_TXN_FINE:
		break;
	case ETCD_TXN_MALFORMED:
		etcd_refuse_malformed(e, call, "TxnRequest");
		return;
	case ETCD_TXN_TOO_MANY:
		etcd_refuse_kv(call, RP_KV_TOO_MANY_OPS);
		return;
	}
	m = etcd_unpack(e, call, &etcdserverpb__txn_request__descriptor, data, length);
	if (!m)
		return;
	c = etcd_call_new(e, call, ETCD_CALL_TXN, &m->base);
	if (c)
		txn_run(c, length);
}

const struct rp_grpc_call_ops etcd_txn_ops = {
	.on_message = on_txn, .on_cancel = etcd_call_on_cancel};
