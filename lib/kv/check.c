/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kv_priv.h"

enum rp_kv_error rp_kv_put_check(const struct rp_kv_put *p)
{
	if (p->key.length == 0)
		return RP_KV_KEY_EMPTY;
	if (p->ignore_value && p->value.length > 0)
		return RP_KV_VALUE_PROVIDED;
	if (p->ignore_lease && p->lease != 0)
		return RP_KV_LEASE_PROVIDED;
	return rp_kv_is_hidden(p->key) ? RP_KV_KEY_RESERVED : RP_KV_OK;
}

enum rp_kv_error rp_kv_delete_check(const struct rp_kv_delete *d)
{
	return d->key.length == 0 ? RP_KV_KEY_EMPTY : RP_KV_OK;
}

static enum rp_kv_error check_txn(const struct rp_kv_txn *t, uint32_t ops_max, uint32_t depth);

static enum rp_kv_error check_op(const struct rp_kv_op *op, uint32_t ops_max, uint32_t depth)
{
	switch (op->type) {
	case RP_KV_OP_NONE:
		return RP_KV_KEY_NOT_FOUND;
	case RP_KV_OP_RANGE:
		return rp_kv_range_check(&op->range);
	case RP_KV_OP_PUT:
		return rp_kv_put_check(&op->put);
	case RP_KV_OP_DELETE:
		return rp_kv_delete_check(&op->del);
	case RP_KV_OP_TXN:
		return check_txn(op->txn, ops_max, depth);
	}
	return RP_KV_KEY_NOT_FOUND;
}

static enum rp_kv_error check_txn(const struct rp_kv_txn *t, uint32_t ops_max, uint32_t depth)
{
	uint32_t ops = RP_MAX(t->compare_count, RP_MAX(t->success_count, t->failure_count));
	enum rp_kv_error error;

	if (ops > ops_max || depth > KV_TXN_DEPTH_MAX)
		return RP_KV_TOO_MANY_OPS;
	for (uint32_t i = 0; i < t->compare_count; i++)
		if (t->compares[i].key.length == 0)
			return RP_KV_KEY_EMPTY;
	for (uint32_t i = 0; i < t->success_count; i++) {
		error = check_op(&t->success[i], ops_max - ops, depth + 1);
		if (error)
			return error;
	}
	for (uint32_t i = 0; i < t->failure_count; i++) {
		error = check_op(&t->failure[i], ops_max - ops, depth + 1);
		if (error)
			return error;
	}
	return RP_KV_OK;
}

/*
 * The rule against duplicates. A list of operations gives the set of keys that it puts (sorted,
 * each once) and the set that it deletes (sorted intervals that do not touch). Sets, not pairwise
 * comparison: nesting allows tens of thousands of operations in one request.
 */
struct key_set {
	struct rp_span *at;
	uint32_t count, size;
};

struct interval {
	struct rp_span start, end;
	bool closed; /* `end` belongs to it: a single key */
};

struct interval_set {
	struct interval *at;
	uint32_t count, size;
};

struct branch_sets {
	struct key_set puts;
	struct interval_set deletes;
};

static int span_compare(struct rp_span a, struct rp_span b)
{
	return kv_bytes_compare(a.data, a.length, b.data, b.length);
}

static int key_order(const void *a, const void *b)
{
	return span_compare(*(const struct rp_span *)a, *(const struct rp_span *)b);
}

static int interval_order(const void *a, const void *b)
{
	return span_compare(
		((const struct interval *)a)->start, ((const struct interval *)b)->start);
}

static void key_set_add(struct key_set *s, struct rp_span key)
{
	s->at = kv_grow(s->at, &s->size, (uint64_t)s->count + 1, sizeof(s->at[0]));
	s->at[s->count++] = key;
}

/* Sorts; true when a key was there twice, which then stays once. */
static bool key_set_normalize(struct key_set *s)
{
	uint32_t kept = 0;
	bool twice = false;

	if (s->count > 1)
		qsort(s->at, s->count, sizeof(s->at[0]), key_order);
	for (uint32_t i = 0; i < s->count; i++) {
		if (kept > 0 && span_compare(s->at[kept - 1], s->at[i]) == 0)
			twice = true;
		else
			s->at[kept++] = s->at[i];
	}
	s->count = kept;
	return twice;
}

static bool key_sets_meet(const struct key_set *a, const struct key_set *b)
{
	uint32_t i = 0, j = 0;

	while (i < a->count && j < b->count) {
		int c = span_compare(a->at[i], b->at[j]);

		if (c == 0)
			return true;
		if (c < 0)
			i++;
		else
			j++;
	}
	return false;
}

static void key_set_join(struct key_set *to, const struct key_set *from)
{
	for (uint32_t i = 0; i < from->count; i++)
		key_set_add(to, from->at[i]);
	key_set_normalize(to);
}

static void interval_set_add(struct interval_set *s, struct interval v)
{
	s->at = kv_grow(s->at, &s->size, (uint64_t)s->count + 1, sizeof(s->at[0]));
	s->at[s->count++] = v;
}

static void interval_set_normalize(struct interval_set *s)
{
	uint32_t kept = 0;

	if (s->count > 1)
		qsort(s->at, s->count, sizeof(s->at[0]), interval_order);
	for (uint32_t i = 0; i < s->count; i++) {
		struct interval *last = kept > 0 ? &s->at[kept - 1] : NULL;
		struct interval v = s->at[i];
		int c = last ? span_compare(v.start, last->end) : 1;

		if (c > 0 || (c == 0 && !last->closed)) {
			s->at[kept++] = v;
			continue;
		}
		c = span_compare(v.end, last->end);
		if (c > 0 || (c == 0 && v.closed)) {
			last->end = v.end;
			last->closed = v.closed;
		}
	}
	s->count = kept;
}

static bool interval_set_has(const struct interval_set *s, struct rp_span key)
{
	uint32_t low = 0, high = s->count;
	const struct interval *v;
	int c;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (span_compare(s->at[mid].start, key) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == 0)
		return false;
	v = &s->at[low - 1];
	c = span_compare(key, v->end);
	return c < 0 || (c == 0 && v->closed);
}

static bool interval_set_has_any(const struct interval_set *s, const struct key_set *keys)
{
	for (uint32_t i = 0; s->count > 0 && i < keys->count; i++)
		if (interval_set_has(s, keys->at[i]))
			return true;
	return false;
}

static void branch_sets_free(struct branch_sets *s)
{
	free(s->puts.at);
	free(s->deletes.at);
}

static void branch_add_deletes(struct branch_sets *s, const struct rp_kv_op *ops, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct rp_kv_delete *d = &ops[i].del;
		struct interval v;

		if (ops[i].type != RP_KV_OP_DELETE)
			continue;
		v = (struct interval){.start = d->key, .end = d->end};
		if (d->end.length == 0) {
			v.end = d->key;
			v.closed = true;
		} else if (span_compare(d->key, d->end) >= 0) {
			/* Empty; or without an end, which etcd's rule does not see either. */
			continue;
		}
		interval_set_add(&s->deletes, v);
	}
	interval_set_normalize(&s->deletes);
}

static bool branch_duplicates(const struct rp_kv_op *ops, uint32_t count, struct branch_sets *out);

/* A nested txn: its branches exclude each other, but both count against what stands around it. */
static bool branch_add_txn(struct branch_sets *out, const struct rp_kv_txn *t)
{
	struct branch_sets a = {0}, b = {0};
	bool bad = branch_duplicates(t->success, t->success_count, &a) ||
		   branch_duplicates(t->failure, t->failure_count, &b) ||
		   key_sets_meet(&out->puts, &a.puts) || key_sets_meet(&out->puts, &b.puts) ||
		   interval_set_has_any(&out->deletes, &a.puts) ||
		   interval_set_has_any(&out->deletes, &b.puts);

	if (!bad) {
		key_set_join(&out->puts, &a.puts);
		key_set_join(&out->puts, &b.puts);
		for (uint32_t i = 0; i < a.deletes.count; i++)
			interval_set_add(&out->deletes, a.deletes.at[i]);
		for (uint32_t i = 0; i < b.deletes.count; i++)
			interval_set_add(&out->deletes, b.deletes.at[i]);
		interval_set_normalize(&out->deletes);
	}
	branch_sets_free(&a);
	branch_sets_free(&b);
	return bad;
}

static bool branch_duplicates(const struct rp_kv_op *ops, uint32_t count, struct branch_sets *out)
{
	struct key_set own = {0};
	bool bad;

	branch_add_deletes(out, ops, count);
	for (uint32_t i = 0; i < count; i++)
		if (ops[i].type == RP_KV_OP_TXN && branch_add_txn(out, ops[i].txn))
			return true;
	for (uint32_t i = 0; i < count; i++)
		if (ops[i].type == RP_KV_OP_PUT)
			key_set_add(&own, ops[i].put.key);
	bad = key_set_normalize(&own) || key_sets_meet(&own, &out->puts) ||
	      interval_set_has_any(&out->deletes, &own);
	if (!bad)
		key_set_join(&out->puts, &own);
	free(own.at);
	return bad;
}

enum rp_kv_error rp_kv_txn_check(const struct rp_kv_txn *t, uint32_t ops_max)
{
	struct branch_sets success = {0}, failure = {0};
	enum rp_kv_error error = check_txn(t, ops_max, 0);

	if (error)
		return error;
	if (branch_duplicates(t->success, t->success_count, &success) ||
		branch_duplicates(t->failure, t->failure_count, &failure))
		error = RP_KV_DUPLICATE_KEY;
	branch_sets_free(&success);
	branch_sets_free(&failure);
	return error;
}

static bool ops_have(const struct rp_kv_op *ops, uint32_t count, bool puts_only)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct rp_kv_txn *t = ops[i].txn;

		switch (ops[i].type) {
		case RP_KV_OP_PUT:
			return true;
		case RP_KV_OP_DELETE:
			if (!puts_only)
				return true;
			break;
		case RP_KV_OP_TXN:
			if (ops_have(t->success, t->success_count, puts_only) ||
				ops_have(t->failure, t->failure_count, puts_only))
				return true;
			break;
		case RP_KV_OP_NONE:
		case RP_KV_OP_RANGE:
			break;
		}
	}
	return false;
}

bool rp_kv_txn_is_read_only(const struct rp_kv_txn *t)
{
	return t->system_count == 0 && !ops_have(t->success, t->success_count, false) &&
	       !ops_have(t->failure, t->failure_count, false);
}

bool rp_kv_txn_has_put(const struct rp_kv_txn *t)
{
	return ops_have(t->success, t->success_count, true) ||
	       ops_have(t->failure, t->failure_count, true);
}
