/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#include <etcdserverpb/rpc.pb-c.h>

#include "etcd_priv.h"

#define ARENA_BLOCK_BYTES 4096

struct etcd_arena_block {
	struct etcd_arena_block *next;
	size_t used, size;
	_Alignas(16) uint8_t data[];
};

void *etcd_arena_get(struct etcd_arena *a, size_t bytes)
{
	struct etcd_arena_block *b = a->blocks;
	void *p;

	bytes = (bytes + 15) & ~(size_t)15;
	if (!b || b->size - b->used < bytes) {
		size_t size = RP_MAX(bytes, (size_t)ARENA_BLOCK_BYTES);

		b = calloc(1, sizeof(*b) + size);
		RP_ASSERT(b != NULL);
		b->size = size;
		b->next = a->blocks;
		a->blocks = b;
	}
	p = b->data + b->used;
	b->used += bytes;
	return p;
}

void etcd_arena_free(struct etcd_arena *a)
{
	while (a->blocks) {
		struct etcd_arena_block *b = a->blocks;

		a->blocks = b->next;
		free(b);
	}
}

struct rp_kv_range etcd_range_of(const Etcdserverpb__RangeRequest *r)
{
	return (struct rp_kv_range){
		.key = etcd_span(r->key),
		.end = etcd_span(r->range_end),
		.limit = r->limit,
		.revision = r->revision,
		.sort_order = (int32_t)r->sort_order,
		.sort_target = (int32_t)r->sort_target,
		.serializable = r->serializable,
		.keys_only = r->keys_only,
		.count_only = r->count_only,
		.min_mod_revision = r->min_mod_revision,
		.max_mod_revision = r->max_mod_revision,
		.min_create_revision = r->min_create_revision,
		.max_create_revision = r->max_create_revision,
	};
}

struct rp_kv_put etcd_put_of(const Etcdserverpb__PutRequest *p)
{
	return (struct rp_kv_put){
		.key = etcd_span(p->key),
		.value = etcd_span(p->value),
		.lease = p->lease,
		.prev_kv = p->prev_kv,
		.ignore_value = p->ignore_value,
		.ignore_lease = p->ignore_lease,
	};
}

struct rp_kv_delete etcd_delete_of(const Etcdserverpb__DeleteRangeRequest *d)
{
	return (struct rp_kv_delete){
		.key = etcd_span(d->key),
		.end = etcd_span(d->range_end),
		.prev_kv = d->prev_kv,
	};
}

/* A union that does not belong to the target counts as absent: 0, or empty. */
static struct rp_kv_compare compare_of(const Etcdserverpb__Compare *c)
{
	struct rp_kv_compare out = {
		.result = (int32_t)c->result,
		.target = (int32_t)c->target,
		.key = etcd_span(c->key),
		.end = etcd_span(c->range_end),
	};

	switch ((int)c->target) {
	case RP_KV_TARGET_VERSION:
		if (c->target_union_case == ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION)
			out.number = c->version;
		break;
	case RP_KV_TARGET_CREATE:
		if (c->target_union_case == ETCDSERVERPB__COMPARE__TARGET_UNION_CREATE_REVISION)
			out.number = c->create_revision;
		break;
	case RP_KV_TARGET_MOD:
		if (c->target_union_case == ETCDSERVERPB__COMPARE__TARGET_UNION_MOD_REVISION)
			out.number = c->mod_revision;
		break;
	case RP_KV_TARGET_VALUE:
		if (c->target_union_case == ETCDSERVERPB__COMPARE__TARGET_UNION_VALUE)
			out.value = etcd_span(c->value);
		break;
	case RP_KV_TARGET_LEASE:
		if (c->target_union_case == ETCDSERVERPB__COMPARE__TARGET_UNION_LEASE)
			out.number = c->lease;
		break;
	}
	return out;
}

static struct rp_kv_op *ops_of(
	struct etcd_arena *a, Etcdserverpb__RequestOp *const *requests, size_t count)
{
	struct rp_kv_op *ops = etcd_arena_get(a, count * sizeof(ops[0]));

	for (size_t i = 0; i < count; i++) {
		const Etcdserverpb__RequestOp *r = requests[i];

		switch (r->request_case) {
		case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE:
			ops[i].type = RP_KV_OP_RANGE;
			ops[i].range = etcd_range_of(r->request_range);
			break;
		case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT:
			ops[i].type = RP_KV_OP_PUT;
			ops[i].put = etcd_put_of(r->request_put);
			break;
		case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE:
			ops[i].type = RP_KV_OP_DELETE;
			ops[i].del = etcd_delete_of(r->request_delete_range);
			break;
		case ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN:
			ops[i].type = RP_KV_OP_TXN;
			ops[i].txn = etcd_txn_of(a, r->request_txn);
			break;
		case ETCDSERVERPB__REQUEST_OP__REQUEST__NOT_SET:
		case _ETCDSERVERPB__REQUEST_OP__REQUEST__CASE_IS_INT_SIZE:
			break;
		}
	}
	return ops;
}

struct rp_kv_txn *etcd_txn_of(struct etcd_arena *a, const Etcdserverpb__TxnRequest *r)
{
	struct rp_kv_txn *t = etcd_arena_get(a, sizeof(*t));
	struct rp_kv_compare *compares =
		etcd_arena_get(a, r->n_compare * sizeof(struct rp_kv_compare));

	for (size_t i = 0; i < r->n_compare; i++)
		compares[i] = compare_of(r->compare[i]);
	t->compares = compares;
	t->compare_count = (uint32_t)r->n_compare;
	t->success = ops_of(a, r->success, r->n_success);
	t->success_count = (uint32_t)r->n_success;
	t->failure = ops_of(a, r->failure, r->n_failure);
	t->failure_count = (uint32_t)r->n_failure;
	return t;
}

Etcdserverpb__ResponseHeader etcd_header(const struct rp_etcd *e, int64_t revision)
{
	Etcdserverpb__ResponseHeader h = ETCDSERVERPB__RESPONSE_HEADER__INIT;

	h.cluster_id = e->config.cluster_id;
	h.member_id = e->config.member_id;
	h.revision = revision;
	h.raft_term = e->config.raft_term;
	return h;
}

Etcdserverpb__ResponseHeader *etcd_header_in(
	struct etcd_arena *a, const struct rp_etcd *e, int64_t revision)
{
	Etcdserverpb__ResponseHeader *h = etcd_arena_get(a, sizeof(*h));

	*h = etcd_header(e, revision);
	return h;
}

Etcdserverpb__ResponseHeader *etcd_header_part(struct etcd_arena *a, int64_t revision)
{
	Etcdserverpb__ResponseHeader *h = etcd_arena_get(a, sizeof(*h));

	etcdserverpb__response_header__init(h);
	h->revision = revision;
	return h;
}

void etcd_kv_fill(Mvccpb__KeyValue *kv, const struct rp_kv_version *v, bool keys_only)
{
	mvccpb__key_value__init(kv);
	kv->key = etcd_bytes(rp_kv_version_key(v));
	kv->mod_revision = v->mod_revision;
	if (v->deleted)
		return;
	kv->create_revision = v->create_revision;
	kv->version = v->version;
	kv->lease = v->lease;
	if (!keys_only)
		kv->value = etcd_bytes(rp_kv_version_value(v));
}

static Mvccpb__KeyValue *kv_in(
	struct etcd_arena *a, const struct rp_kv_version *v, struct rp_span spelled)
{
	Mvccpb__KeyValue *kv = etcd_arena_get(a, sizeof(*kv));

	etcd_kv_fill(kv, v, false);
	if (spelled.length > 0)
		kv->key = etcd_bytes(spelled);
	return kv;
}

Etcdserverpb__RangeResponse *etcd_range_response(
	struct etcd_arena *a, const struct rp_kv_range_result *r, struct rp_span spelled)
{
	Etcdserverpb__RangeResponse *out = etcd_arena_get(a, sizeof(*out));
	Mvccpb__KeyValue *kvs = etcd_arena_get(a, r->item_count * sizeof(kvs[0]));

	etcdserverpb__range_response__init(out);
	out->count = r->count;
	out->more = r->more;
	out->n_kvs = r->item_count;
	out->kvs = etcd_arena_get(a, r->item_count * sizeof(out->kvs[0]));
	for (uint32_t i = 0; i < r->item_count; i++) {
		etcd_kv_fill(&kvs[i], r->items[i], r->keys_only);
		if (spelled.length > 0)
			kvs[i].key = etcd_bytes(spelled);
		out->kvs[i] = &kvs[i];
	}
	return out;
}

Etcdserverpb__PutResponse *etcd_put_response(
	struct etcd_arena *a, const struct rp_kv_version *prev, struct rp_span spelled)
{
	Etcdserverpb__PutResponse *out = etcd_arena_get(a, sizeof(*out));

	etcdserverpb__put_response__init(out);
	if (prev)
		out->prev_kv = kv_in(a, prev, spelled);
	return out;
}

/* The parts of a delete: itself, or those of the txn that it was split into. */
static const struct rp_kv_op_result *delete_parts(const struct rp_kv_op_result *r, uint32_t *count)
{
	*count = r->type == RP_KV_OP_TXN ? r->txn->op_count : 1;
	return r->type == RP_KV_OP_TXN ? r->txn->ops : r;
}

Etcdserverpb__DeleteRangeResponse *etcd_delete_response(
	struct etcd_arena *a, const struct rp_kv_op_result *r, struct rp_span spelled)
{
	Etcdserverpb__DeleteRangeResponse *out = etcd_arena_get(a, sizeof(*out));
	uint32_t count, prevs = 0;
	const struct rp_kv_op_result *parts = delete_parts(r, &count);

	etcdserverpb__delete_range_response__init(out);
	for (uint32_t i = 0; i < count; i++) {
		out->deleted += parts[i].del.deleted;
		prevs += parts[i].del.prev_count;
	}
	out->prev_kvs = etcd_arena_get(a, prevs * sizeof(out->prev_kvs[0]));
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < parts[i].del.prev_count; j++)
			out->prev_kvs[out->n_prev_kvs++] = kv_in(a, parts[i].del.prevs[j], spelled);
	return out;
}

static Etcdserverpb__ResponseOp *op_response(
	struct etcd_arena *a, const struct rp_kv_op_result *r, const struct rp_kv_op *asked)
{
	Etcdserverpb__ResponseOp *out = etcd_arena_get(a, sizeof(*out));
	struct rp_span as_stored = {0};

	etcdserverpb__response_op__init(out);
	switch (asked->type) {
	case RP_KV_OP_NONE:
		break;
	case RP_KV_OP_RANGE:
		out->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE;
		out->response_range = etcd_range_response(a, &r->range, as_stored);
		out->response_range->header = etcd_header_part(a, r->revision);
		break;
	case RP_KV_OP_PUT:
		out->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_PUT;
		out->response_put = etcd_put_response(a, r->put.prev, as_stored);
		out->response_put->header = etcd_header_part(a, r->revision);
		break;
	case RP_KV_OP_DELETE:
		out->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_DELETE_RANGE;
		out->response_delete_range = etcd_delete_response(a, r, as_stored);
		out->response_delete_range->header = etcd_header_part(a, r->revision);
		break;
	case RP_KV_OP_TXN:
		out->response_case = ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_TXN;
		out->response_txn = etcd_txn_response(a, r->txn, asked->txn);
		out->response_txn->header = etcd_header_part(a, 0);
		break;
	}
	return out;
}

Etcdserverpb__TxnResponse *etcd_txn_response(
	struct etcd_arena *a, const struct rp_kv_txn_result *r, const struct rp_kv_txn *asked)
{
	const struct rp_kv_op *ops = r->succeeded ? asked->success : asked->failure;
	Etcdserverpb__TxnResponse *out = etcd_arena_get(a, sizeof(*out));

	etcdserverpb__txn_response__init(out);
	out->succeeded = r->succeeded;
	out->n_responses = r->op_count;
	out->responses = etcd_arena_get(a, r->op_count * sizeof(out->responses[0]));
	for (uint32_t i = 0; i < r->op_count; i++)
		out->responses[i] = op_response(a, &r->ops[i], &ops[i]);
	return out;
}

/* What a ranged delete must leave alone: registry keys, which go only one by one. */
static const struct {
	struct rp_span start, end;
} kept_ranges[] = {
	{{(const uint8_t *)"/q/", 3}, {(const uint8_t *)"/q0", 3}},
	{{(const uint8_t *)"/queue/", 7}, {(const uint8_t *)"/queue0", 7}},
};

static int span_compare(struct rp_span a, struct rp_span b)
{
	size_t n = RP_MIN(a.length, b.length);
	int c = n > 0 ? memcmp(a.data, b.data, n) : 0;

	return c != 0 ? c : (a.length > b.length) - (a.length < b.length);
}

static bool delete_meets_kept(const struct rp_kv_op *op)
{
	struct rp_span key = op->del.key, end = op->del.end;
	bool endless = end.length == 1 && end.data[0] == 0;

	if (op->type != RP_KV_OP_DELETE || end.length == 0)
		return false;
	for (size_t i = 0; i < RP_ARRAY_SIZE(kept_ranges); i++)
		if (span_compare(key, kept_ranges[i].start) < 0 &&
			(endless || span_compare(end, kept_ranges[i].start) > 0))
			return true;
	/* It may begin inside one, and end behind it. */
	return rp_route_range_classify(key.data, key.length, end.data, end.length) ==
	       RP_RANGE_OVERLAPS;
}

static struct rp_kv_op delete_split(struct etcd_arena *a, const struct rp_kv_op *op)
{
	struct rp_kv_op *parts =
		etcd_arena_get(a, (RP_ARRAY_SIZE(kept_ranges) + 1) * sizeof(parts[0]));
	struct rp_kv_txn *t = etcd_arena_get(a, sizeof(*t));
	struct rp_span at = op->del.key, end = op->del.end;
	bool endless = end.length == 1 && end.data[0] == 0;
	uint32_t count = 0;

	for (size_t i = 0; i <= RP_ARRAY_SIZE(kept_ranges); i++) {
		bool last = i == RP_ARRAY_SIZE(kept_ranges);
		struct rp_span until = last ? end : kept_ranges[i].start;

		if (!last && !endless && span_compare(until, end) > 0)
			until = end;
		if ((last && endless) || span_compare(at, until) < 0) {
			parts[count] = *op;
			parts[count].del.key = at;
			parts[count++].del.end = until;
		}
		if (!last && span_compare(at, kept_ranges[i].end) < 0)
			at = kept_ranges[i].end;
	}
	t->success = parts;
	t->success_count = count;
	return (struct rp_kv_op){.type = RP_KV_OP_TXN, .txn = t};
}

static bool ops_need_split(const struct rp_kv_op *ops, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct rp_kv_txn *t = ops[i].txn;

		if (delete_meets_kept(&ops[i]))
			return true;
		if (ops[i].type == RP_KV_OP_TXN &&
			(ops_need_split(t->success, t->success_count) ||
				ops_need_split(t->failure, t->failure_count)))
			return true;
	}
	return false;
}

static struct rp_kv_op *ops_split(struct etcd_arena *a, const struct rp_kv_op *ops, uint32_t count)
{
	struct rp_kv_op *out = etcd_arena_get(a, count * sizeof(out[0]));

	for (uint32_t i = 0; i < count; i++) {
		out[i] = ops[i];
		if (delete_meets_kept(&ops[i]))
			out[i] = delete_split(a, &ops[i]);
		else if (ops[i].type == RP_KV_OP_TXN)
			out[i].txn = etcd_txn_split(a, ops[i].txn);
	}
	return out;
}

const struct rp_kv_txn *etcd_txn_split(struct etcd_arena *a, const struct rp_kv_txn *t)
{
	struct rp_kv_txn *out;

	if (!ops_need_split(t->success, t->success_count) &&
		!ops_need_split(t->failure, t->failure_count))
		return t;
	out = etcd_arena_get(a, sizeof(*out));
	*out = *t;
	out->success = ops_split(a, t->success, t->success_count);
	out->failure = ops_split(a, t->failure, t->failure_count);
	return out;
}

#define STORED "/q/"
#define SPELLED "/queue/"

static bool starts_with(struct rp_span s, const char *text)
{
	return s.length >= strlen(text) && memcmp(s.data, text, strlen(text)) == 0;
}

/* `s` with its first `cut` bytes replaced. */
static struct rp_span respell(struct etcd_arena *a, struct rp_span s, size_t cut, const char *head)
{
	size_t n = strlen(head);
	uint8_t *out = etcd_arena_get(a, n + s.length - cut);

	memcpy(out, head, n);
	memcpy(out + n, s.data + cut, s.length - cut);
	return (struct rp_span){.data = out, .length = n + s.length - cut};
}

bool etcd_alias_range(struct etcd_arena *a, struct rp_span *key, struct rp_span *end)
{
	if (!starts_with(*key, SPELLED) || rp_route_range_classify(key->data, key->length,
						   end->data, end->length) != RP_RANGE_INSIDE)
		return false;
	*key = respell(a, *key, strlen(SPELLED), STORED);
	/* Inside, the end is below /queue/ too, or is the end of all that is. */
	if (starts_with(*end, SPELLED))
		*end = respell(a, *end, strlen(SPELLED), STORED);
	else
		*end = (struct rp_span){.data = (const uint8_t *)"/q0", .length = 3};
	return true;
}

void etcd_alias_key(struct etcd_arena *a, ProtobufCBinaryData *key)
{
	if (starts_with(etcd_span(*key), STORED))
		*key = etcd_bytes(respell(a, etcd_span(*key), strlen(STORED), SPELLED));
}
