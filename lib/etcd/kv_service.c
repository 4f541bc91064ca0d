/* SPDX-License-Identifier: Apache-2.0 */
/* KV.Range, Put, DeleteRange and Compact (spec/etcd-semantics.md section 4). */
#include <stdio.h>
#include <string.h>

#include <etcdserverpb/rpc.pb-c.h>

#include "etcd_priv.h"

#define TEXT_TOO_LARGE "etcdserver: request is too large"

void etcd_key_reason(const struct rp_route_key *k, char *out, size_t size)
{
	snprintf(out, size,
		"%s; expected /q/{queue}, /q/{queue}/p/{tail}, /q/{queue}/c/{uuid} or the key of "
		"a delivered message",
		rp_key_reason_text(
			k->kind == RP_KEY_SINK ? RP_KEY_REASON_CLICKHOUSE_CONSUMER : k->reason));
}

static void refuse_key(struct rp_grpc_call *call, const struct rp_route_key *k)
{
	char text[256];

	etcd_key_reason(k, text, sizeof(text));
	etcd_refuse(call, RP_GRPC_INVALID_ARGUMENT, text);
}

struct rp_span etcd_canonical(struct etcd_arena *a, const struct rp_route_key *k)
{
	uint8_t *key = etcd_arena_get(a, RP_REGISTRY_KEY_BYTES_MAX);
	int length = rp_route_key_canonical(k, key, RP_REGISTRY_KEY_BYTES_MAX);

	return (struct rp_span){.data = key, .length = length > 0 ? (size_t)length : 0};
}

static void parse(struct rp_route_key *k, struct rp_span key)
{
	rp_route_key_parse(k, key.data, key.length);
}

/* A write may be too large, or come too late. */
static bool write_refused(struct rp_etcd *e, struct rp_grpc_call *call, size_t length)
{
	if (etcd_stopped(e, call))
		return true;
	if (length <= e->config.request_bytes_max)
		return false;
	etcd_refuse(call, RP_GRPC_INVALID_ARGUMENT, TEXT_TOO_LARGE);
	return true;
}

static bool access_refused(struct rp_etcd *e, struct rp_grpc_call *call, enum rp_etcd_access access,
	struct rp_span key, struct rp_span end)
{
	struct rp_etcd_caller caller = etcd_caller_of(e, call);
	const char *message = NULL;
	int code = etcd_check(e, access, key, end, &caller, &message);

	if (code != RP_GRPC_OK)
		etcd_refuse(call, code, message);
	return code != RP_GRPC_OK;
}

static bool lease_refused(struct rp_etcd *e, struct rp_grpc_call *call, int64_t lease)
{
	struct rp_etcd_caller caller = etcd_caller_of(e, call);
	const char *message = NULL;
	int code = etcd_auth_check_lease(e, RP_ETCD_WRITE, lease, &caller, &message);

	if (code != RP_GRPC_OK)
		etcd_refuse(call, code, message);
	return code != RP_GRPC_OK;
}

/* ---- Range ---- */

static void range_answer(
	struct rp_etcd *e, struct rp_grpc_call *call, struct rp_kv_range *r, struct rp_span spelled)
{
	struct etcd_arena a = {0};
	bool alias = etcd_alias_range(&a, &r->key, &r->end);
	struct rp_kv_range_result result;
	Etcdserverpb__RangeResponse *m;
	enum rp_kv_error error = rp_kv_range(e->kv, r, &result);

	if (error) {
		etcd_refuse_kv(call, error);
		etcd_arena_free(&a);
		return;
	}
	m = etcd_range_response(&a, &result, spelled);
	for (size_t i = 0; alias && i < m->n_kvs; i++)
		etcd_alias_key(&a, &m->kvs[i]->key);
	m->header = etcd_header_in(&a, e, rp_kv_revision(e->kv));
	etcd_reply(call, &m->base);
	etcd_arena_free(&a);
	rp_kv_range_result_clear(&result);
}

/* Messages are never stored under the key that produces them: there is nothing to see. */
static void range_nothing(struct rp_etcd *e, struct rp_grpc_call *call)
{
	Etcdserverpb__RangeResponse m = ETCDSERVERPB__RANGE_RESPONSE__INIT;
	Etcdserverpb__ResponseHeader h = etcd_header(e, rp_kv_revision(e->kv));

	m.header = &h;
	etcd_reply(call, &m.base);
}

/* True when the request now belongs to a queue operation. */
static bool range_dispatch(struct rp_etcd *e, struct rp_grpc_call *call,
	Etcdserverpb__RangeRequest *request, struct rp_kv_range *r)
{
	struct rp_span spelled = {0};
	struct etcd_arena a = {0};
	struct rp_route_key key = {.kind = RP_KEY_ORDINARY};
	bool taken = false;

	if (r->end.length == 0)
		parse(&key, r->key);
	switch (key.kind) {
	case RP_KEY_DISPATCHER:
	case RP_KEY_CONSUMER:
	case RP_KEY_SINK:
		spelled = r->key;
		r->key = etcd_canonical(&a, &key);
		range_answer(e, call, r, spelled);
		break;
	case RP_KEY_ORDINARY:
		range_answer(e, call, r, spelled);
		break;
	case RP_KEY_PRODUCE:
		range_nothing(e, call);
		break;
	case RP_KEY_DELIVERED:
	case RP_KEY_DELIVERED_SHORT:
		etcd_queue_get(e, call, request, &key);
		taken = true;
		break;
	case RP_KEY_INVALID:
		refuse_key(call, &key);
		break;
	}
	etcd_arena_free(&a);
	return taken;
}

static void on_range(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__RangeRequest *m =
		etcd_unpack(e, call, &etcdserverpb__range_request__descriptor, data, length);
	struct rp_kv_range r;
	enum rp_kv_error error;

	if (!m)
		return;
	e->stats.ranges++;
	r = etcd_range_of(m);
	error = rp_kv_range_check(&r);
	if (error)
		etcd_refuse_kv(call, error);
	else if (!access_refused(e, call, RP_ETCD_READ, r.key, r.end) &&
		 range_dispatch(e, call, m, &r))
		return;
	etcd_unpacked_free(&m->base);
}

const struct rp_grpc_call_ops etcd_range_ops = {
	.on_message = on_range, .on_cancel = etcd_call_on_cancel};

/* ---- writes ---- */

static void propose_done(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_call *c = done_ctx;
	struct rp_etcd *e = c->e;
	Etcdserverpb__PutResponse *put;
	Etcdserverpb__DeleteRangeResponse *del;
	Etcdserverpb__TxnResponse *txn;

	if (status != RP_GRPC_OK) {
		etcd_call_fail(c, status, message);
	} else if (r->error) {
		etcd_call_fail(c, etcd_kv_code(r->error), rp_kv_error_text(r->error));
	} else if (c->kind == ETCD_CALL_PUT) {
		put = etcd_put_response(
			&c->arena, r->txn.op_count > 0 ? r->txn.ops[0].put.prev : NULL, c->key);
		put->header = etcd_header_in(&c->arena, e, r->revision);
		etcd_call_reply(c, &put->base);
	} else if (c->kind == ETCD_CALL_DELETE) {
		del = etcd_delete_response(&c->arena, &r->txn.ops[0], c->key);
		del->header = etcd_header_in(&c->arena, e, r->revision);
		etcd_call_reply(c, &del->base);
	} else {
		txn = etcd_txn_response(&c->arena, &r->txn, c->asked);
		txn->header = etcd_header_in(&c->arena, e, r->revision);
		etcd_call_reply(c, &txn->base);
	}
}

void etcd_propose(struct etcd_call *c, const struct rp_kv_txn *txn)
{
	c->e->backend->propose(c->e->backend->ctx, txn, propose_done, c);
}

/* One operation of the store, on its own. */
static void write_one(struct etcd_call *c, struct rp_kv_op op)
{
	struct rp_kv_op *ops = etcd_arena_get(&c->arena, sizeof(ops[0]));
	struct rp_kv_txn *t = etcd_arena_get(&c->arena, sizeof(*t));

	*ops = op;
	t->success = ops;
	t->success_count = 1;
	t->single = true;
	etcd_propose(c, etcd_txn_split(&c->arena, t));
}

/* A put or delete of a record's key; `value.data` NULL deletes. */
static void write_record(struct etcd_call *c, const struct rp_route_key *key, struct rp_kv_op op)
{
	const struct rp_etcd_backend *b = c->e->backend;
	bool put = op.type == RP_KV_OP_PUT;
	struct rp_etcd_caller caller = etcd_caller_of(c->e, c->call);
	struct rp_span value = {0};

	c->key = put ? op.put.key : op.del.key;
	if (b->record_write) {
		if (put)
			value = (struct rp_span){
				.data = op.put.value.data ? op.put.value.data : (const uint8_t *)"",
				.length = op.put.value.length};
		b->record_write(b->ctx, key, value, put ? op.put.lease : 0,
			put ? op.put.prev_kv : op.del.prev_kv, &caller, propose_done, c);
		return;
	}
	if (put)
		op.put.key = etcd_canonical(&c->arena, key);
	else
		op.del.key = etcd_canonical(&c->arena, key);
	write_one(c, op);
}

/* take: the request, which becomes the call's or a queue operation's. */
static void write_dispatch(
	struct rp_etcd *e, struct rp_grpc_call *call, ProtobufCMessage *request, struct rp_kv_op op)
{
	bool put = op.type == RP_KV_OP_PUT;
	struct rp_route_key key = {.kind = RP_KEY_ORDINARY};
	struct etcd_call *c;

	/* A ranged delete is one of ordinary keys: it leaves the others alone. */
	if (put || op.del.end.length == 0)
		parse(&key, put ? op.put.key : op.del.key);
	switch (key.kind) {
	case RP_KEY_ORDINARY:
	case RP_KEY_DISPATCHER:
	case RP_KEY_CONSUMER:
		c = etcd_call_new(e, call, put ? ETCD_CALL_PUT : ETCD_CALL_DELETE, request);
		if (c && key.kind == RP_KEY_ORDINARY)
			write_one(c, op);
		else if (c)
			write_record(c, &key, op);
		break;
	case RP_KEY_PRODUCE:
	case RP_KEY_DELIVERED:
	case RP_KEY_DELIVERED_SHORT:
		if (put)
			etcd_queue_put(e, call, (Etcdserverpb__PutRequest *)request, &key);
		else
			etcd_queue_delete(
				e, call, (Etcdserverpb__DeleteRangeRequest *)request, &key);
		break;
	case RP_KEY_SINK:
	case RP_KEY_INVALID:
		refuse_key(call, &key);
		etcd_unpacked_free(request);
		break;
	}
}

static void on_put(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__PutRequest *m =
		etcd_unpack(e, call, &etcdserverpb__put_request__descriptor, data, length);
	struct rp_kv_put p;
	enum rp_kv_error error;

	if (!m)
		return;
	e->stats.puts++;
	p = etcd_put_of(m);
	error = rp_kv_put_check(&p);
	if (error) {
		etcd_refuse_kv(call, error);
	} else if (!write_refused(e, call, length) &&
		   !access_refused(e, call, RP_ETCD_WRITE, p.key, (struct rp_span){0}) &&
		   !(p.lease != 0 && lease_refused(e, call, p.lease)) &&
		   !(p.prev_kv &&
			   access_refused(e, call, RP_ETCD_READ, p.key, (struct rp_span){0}))) {
		write_dispatch(
			e, call, &m->base, (struct rp_kv_op){.type = RP_KV_OP_PUT, .put = p});
		return;
	}
	etcd_unpacked_free(&m->base);
}

const struct rp_grpc_call_ops etcd_put_ops = {
	.on_message = on_put, .on_cancel = etcd_call_on_cancel};

static void on_delete(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__DeleteRangeRequest *m =
		etcd_unpack(e, call, &etcdserverpb__delete_range_request__descriptor, data, length);
	struct rp_kv_delete d;
	enum rp_kv_error error;

	if (!m)
		return;
	e->stats.deletes++;
	d = etcd_delete_of(m);
	error = rp_kv_delete_check(&d);
	if (error) {
		etcd_refuse_kv(call, error);
	} else if (rp_route_range_classify(d.key.data, d.key.length, d.end.data, d.end.length) ==
		   RP_RANGE_INSIDE) {
		etcd_refuse(call, RP_GRPC_INVALID_ARGUMENT,
			"queue key: messages and records are deleted one by one, not by range");
	} else if (!write_refused(e, call, length) &&
		   !access_refused(e, call, RP_ETCD_WRITE, d.key, d.end) &&
		   !(d.prev_kv && access_refused(e, call, RP_ETCD_READ, d.key, d.end))) {
		write_dispatch(
			e, call, &m->base, (struct rp_kv_op){.type = RP_KV_OP_DELETE, .del = d});
		return;
	}
	etcd_unpacked_free(&m->base);
}

const struct rp_grpc_call_ops etcd_delete_ops = {
	.on_message = on_delete, .on_cancel = etcd_call_on_cancel};

/* ---- Compact ---- */

static void compact_answer(struct rp_etcd *e, struct rp_grpc_call *call)
{
	Etcdserverpb__CompactionResponse m = ETCDSERVERPB__COMPACTION_RESPONSE__INIT;
	Etcdserverpb__ResponseHeader h = etcd_header(e, rp_kv_revision(e->kv));

	m.header = &h;
	etcd_reply(call, &m.base);
}

static void on_compact(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__CompactionRequest *m =
		etcd_unpack(e, call, &etcdserverpb__compaction_request__descriptor, data, length);
	enum rp_kv_error error;
	struct etcd_call *c;

	if (!m)
		return;
	e->stats.compactions++;
	error = rp_kv_alarm_active(e->kv, RP_KV_ALARM_CORRUPT) ? RP_KV_CORRUPT
							       : rp_kv_compact(e->kv, m->revision);
	if (error) {
		etcd_refuse_kv(call, error);
	} else if (m->physical && !rp_kv_compact_done(e->kv)) {
		c = etcd_call_new(e, call, ETCD_CALL_COMPACT, NULL);
		if (c)
			rp_list_push_back(&e->compactions, &c->link);
	} else {
		compact_answer(e, call);
	}
	etcd_unpacked_free(&m->base);
}

const struct rp_grpc_call_ops etcd_compact_ops = {
	.on_message = on_compact, .on_cancel = etcd_call_on_cancel};
