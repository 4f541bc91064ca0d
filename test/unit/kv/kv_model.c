/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#include "kv_model.h"

int model_key_of(struct rp_span key)
{
	return key.length == 1 && key.data[0] >= 'a' && key.data[0] < 'a' + MODEL_KEYS
		       ? key.data[0] - 'a'
		       : -1;
}

bool model_selects(struct rp_span key, struct rp_span end, int k)
{
	int letter = 'a' + k;

	if (end.length == 0)
		return key.length == 1 && key.data[0] == letter;
	if (letter < key.data[0])
		return false;
	return (end.length == 1 && end.data[0] == 0) || letter < end.data[0];
}

const struct model_change *model_at(const struct model *m, int key, int64_t revision)
{
	for (uint32_t i = m->change_count; i > 0; i--) {
		const struct model_change *c = &m->changes[i - 1];

		if (c->key == key && c->revision <= revision)
			return c->deleted ? NULL : c;
	}
	return NULL;
}

const struct model_change *model_before(const struct model *m, uint32_t i)
{
	const struct model_change *c = &m->changes[i];

	if (!c->deleted && c->create == c->revision)
		return NULL;
	return model_at(m, c->key, c->revision - 1);
}

/* ---- duplicates: every pair of operations ---- */

#define PATH_MAX_DEPTH 8

struct leaf {
	const struct rp_kv_op *op;
	int depth; /* of the list that holds it */
	int position[PATH_MAX_DEPTH], branch[PATH_MAX_DEPTH];
};

struct leaves {
	struct leaf at[512];
	int count;
};

static void collect(struct leaves *l, struct leaf path, const struct rp_kv_op *ops, uint32_t count)
{
	int depth = path.depth;

	for (uint32_t i = 0; i < count; i++) {
		path.position[depth] = (int)i;
		path.depth = depth;
		if (ops[i].type == RP_KV_OP_TXN) {
			path.depth = depth + 1;
			path.branch[depth] = 1;
			collect(l, path, ops[i].txn->success, ops[i].txn->success_count);
			path.branch[depth] = 0;
			collect(l, path, ops[i].txn->failure, ops[i].txn->failure_count);
			continue;
		}
		path.op = &ops[i];
		RP_ASSERT(l->count < 512);
		l->at[l->count++] = path;
	}
}

static bool pair_conflicts(const struct leaf *put, const struct leaf *other)
{
	struct rp_span key = put->op->put.key;
	int d = 0;

	if (other->op->type == RP_KV_OP_PUT) {
		if (model_key_of(key) != model_key_of(other->op->put.key))
			return false;
	} else {
		struct rp_span end = other->op->del.end;

		/* A delete without an end is not seen by etcd's rule. */
		if (end.length == 1 && end.data[0] == 0)
			return false;
		if (!model_selects(other->op->del.key, end, model_key_of(key)))
			return false;
	}
	while (put->position[d] == other->position[d]) {
		if (put->branch[d] != other->branch[d])
			return false; /* then and else of one txn */
		d++;
	}
	if (other->op->type == RP_KV_OP_PUT || put->depth == d || other->depth == d)
		return true;
	/* Both in txns of the same list: etcd adds a txn's deletes after its puts were checked. */
	return other->position[d] < put->position[d];
}

static bool list_duplicates(const struct rp_kv_op *ops, uint32_t count)
{
	struct leaves *l = calloc(1, sizeof(*l));
	bool found = false;

	collect(l, (struct leaf){0}, ops, count);
	for (int i = 0; i < l->count; i++) {
		if (l->at[i].op->type != RP_KV_OP_PUT)
			continue;
		for (int j = 0; j < l->count; j++) {
			enum rp_kv_op_type type = l->at[j].op->type;

			if (j != i && (type == RP_KV_OP_PUT || type == RP_KV_OP_DELETE))
				found |= pair_conflicts(&l->at[i], &l->at[j]);
		}
	}
	free(l);
	return found;
}

bool model_duplicates(const struct rp_kv_txn *t)
{
	return list_duplicates(t->success, t->success_count) ||
	       list_duplicates(t->failure, t->failure_count);
}

/* ---- txns ---- */

static int64_t compare_number(const struct rp_kv_compare *c, const struct model_change *v)
{
	if (!v)
		return 0;
	switch (c->target) {
	case RP_KV_TARGET_VERSION:
		return v->version;
	case RP_KV_TARGET_CREATE:
		return v->create;
	case RP_KV_TARGET_MOD:
		return v->revision;
	case RP_KV_TARGET_LEASE:
		return v->lease;
	}
	return 0;
}

static bool compare_one(const struct rp_kv_compare *c, const struct model_change *v)
{
	int64_t have = compare_number(c, v), want = c->number;

	if (c->target == RP_KV_TARGET_VALUE) {
		have = v->value;
		want = c->value.length > 0 ? c->value.data[0] : -1;
	}
	switch (c->result) {
	case RP_KV_EQUAL:
		return have == want;
	case RP_KV_GREATER:
		return have > want;
	case RP_KV_LESS:
		return have < want;
	}
	return have != want;
}

static bool compare_all(const struct model *m, const struct rp_kv_compare *c)
{
	bool any = false;

	for (int k = 0; k < MODEL_KEYS; k++) {
		const struct model_change *v = model_at(m, k, m->revision);

		if (!v || !model_selects(c->key, c->end, k))
			continue;
		any = true;
		if (!compare_one(c, v))
			return false;
	}
	return any || (c->target != RP_KV_TARGET_VALUE && compare_one(c, NULL));
}

static void change_add(
	struct model *m, int key, bool deleted, char value, int64_t lease, int64_t revision)
{
	const struct model_change *old = model_at(m, key, INT64_MAX);
	struct model_change c = {.revision = revision,
		.key = key,
		.deleted = deleted,
		.value = value,
		.lease = lease};

	if (!deleted) {
		c.create = old ? old->create : revision;
		c.version = old ? old->version + 1 : 1;
	}
	RP_ASSERT(m->change_count < MODEL_CHANGES_MAX);
	m->changes[m->change_count++] = c;
}

struct run {
	struct model *m;
	const struct model *before;
	int64_t next; /* revision that a write takes */
	bool wrote;
	uint64_t stamp;
	const char *fault;
};

static void note_write(struct run *u, int key)
{
	u->wrote = true;
	u->m->known[key] = true;
	u->m->stamp[key] = u->stamp;
	u->m->writer[key] = u->m->node;
}

static void run_txn(struct run *u, const struct rp_kv_txn *t, const struct rp_kv_txn_result *r);

static bool version_is(const struct rp_kv_version *v, const struct model_change *c)
{
	if (!v || !c)
		return !v && !c;
	return v->key && model_key_of(rp_kv_version_key(v)) == c->key &&
	       v->mod_revision == c->revision && v->create_revision == c->create &&
	       v->version == c->version && v->lease == c->lease && v->value_length == 1 &&
	       v->value[0] == c->value;
}

static void run_op(struct run *u, const struct rp_kv_op *op, const struct rp_kv_op_result *r)
{
	struct model *m = u->m;
	uint32_t prevs = 0;
	int k;

	switch (op->type) {
	case RP_KV_OP_NONE:
		break;
	case RP_KV_OP_RANGE: {
		const char *fault = model_range(
			m, &op->range, u->wrote ? u->next : m->revision, RP_KV_OK, &r->range);

		u->fault = fault ? fault : u->fault;
		break;
	}
	case RP_KV_OP_PUT:
		k = model_key_of(op->put.key);
		if (!version_is(r->put.prev, op->put.prev_kv ? model_at(m, k, INT64_MAX) : NULL))
			u->fault = "put: prev_kv";
		change_add(m, k, false, (char)op->put.value.data[0], op->put.lease, u->next);
		note_write(u, k);
		break;
	case RP_KV_OP_DELETE:
		for (k = 0; k < MODEL_KEYS; k++) {
			const struct model_change *v = model_at(m, k, INT64_MAX);

			if (!v || !model_selects(op->del.key, op->del.end, k))
				continue;
			if (op->del.prev_kv &&
				(prevs >= r->del.prev_count || !version_is(r->del.prevs[prevs], v)))
				u->fault = "delete: prev_kvs";
			prevs++;
			change_add(m, k, true, 0, 0, u->next);
			note_write(u, k);
		}
		if (r->del.deleted != prevs)
			u->fault = "delete: deleted";
		break;
	case RP_KV_OP_TXN:
		run_txn(u, op->txn, r->txn);
		break;
	}
	if (r->revision != (u->wrote ? u->next : m->revision))
		u->fault = "revision of a part";
}

static void run_txn(struct run *u, const struct rp_kv_txn *t, const struct rp_kv_txn_result *r)
{
	bool success = true;
	const struct rp_kv_op *ops;
	uint32_t count;

	for (uint32_t i = 0; i < t->compare_count; i++)
		success &= compare_all(u->before, &t->compares[i]);
	ops = success ? t->success : t->failure;
	count = success ? t->success_count : t->failure_count;
	if (r->succeeded != success || r->op_count != count) {
		u->fault = "branch";
		return;
	}
	for (uint32_t i = 0; i < count && !u->fault; i++)
		run_op(u, &ops[i], &r->ops[i]);
}

const char *model_apply(
	struct model *m, const struct rp_kv_txn *t, uint64_t wall_us, const struct rp_kv_result *r)
{
	struct model *before = malloc(sizeof(*before));
	struct run u = {.m = m, .before = before, .next = m->revision + 1};

	memcpy(before, m, sizeof(*before));
	u.stamp = RP_MAX(wall_us, m->stamp_last + 1);
	run_txn(&u, t, &r->txn);
	if (u.wrote) {
		m->revision = u.next;
		m->stamp_last = u.stamp;
	}
	if (!u.fault && r->revision != m->revision)
		u.fault = "revision";
	if (!u.fault && r->wrote != u.wrote)
		u.fault = "wrote";
	free(before);
	return u.fault;
}

/* ---- leases ---- */

enum rp_kv_error model_grant(
	struct model *m, int64_t id, int64_t ttl_s, uint64_t wall_us, uint64_t now_ns)
{
	struct model_lease *l = &m->leases[id];

	if (l->alive)
		return RP_KV_LEASE_EXISTS;
	l->alive = true;
	l->ttl_s = RP_MAX(ttl_s, (int64_t)2);
	l->expiry_ns = now_ns + (uint64_t)l->ttl_s * RP_NS_PER_S;
	m->stamp_last = RP_MAX(wall_us, m->stamp_last + 1);
	return RP_KV_OK;
}

enum rp_kv_error model_revoke(struct model *m, int64_t id, uint64_t wall_us)
{
	int64_t next = m->revision + 1;

	if (!m->leases[id].alive)
		return RP_KV_LEASE_NOT_FOUND;
	m->leases[id].alive = false;
	m->stamp_last = RP_MAX(wall_us, m->stamp_last + 1);
	for (int k = 0; k < MODEL_KEYS; k++) {
		const struct model_change *v = model_at(m, k, INT64_MAX);

		if (!v || v->lease != id)
			continue;
		change_add(m, k, true, 0, 0, next);
		m->known[k] = true;
		m->stamp[k] = m->stamp_last;
		m->writer[k] = m->node;
		m->revision = next;
	}
	return RP_KV_OK;
}

int64_t model_expired(const struct model *m, uint64_t now_ns)
{
	int64_t first = 0;

	for (int64_t id = 1; id <= MODEL_LEASES; id++)
		if (m->leases[id].alive && m->leases[id].expiry_ns <= now_ns &&
			(first == 0 || m->leases[id].expiry_ns < m->leases[first].expiry_ns))
			first = id;
	return first;
}

/* ---- ranges ---- */

static int64_t sort_value(const struct rp_kv_range *q, const struct model_change *c)
{
	switch (q->sort_target) {
	case RP_KV_SORT_VERSION:
		return c->version;
	case RP_KV_SORT_CREATE:
		return c->create;
	case RP_KV_SORT_MOD:
		return c->revision;
	case RP_KV_SORT_VALUE:
		return c->value;
	}
	return c->key;
}

static bool comes_before(
	const struct rp_kv_range *q, const struct model_change *a, const struct model_change *b)
{
	int64_t x = sort_value(q, a), y = sort_value(q, b);
	bool less = x != y ? x < y : a->key < b->key;

	return q->sort_order == RP_KV_SORT_DESCEND ? !less : less;
}

static bool passes(const struct rp_kv_range *q, const struct model_change *c)
{
	return (!q->min_mod_revision || c->revision >= q->min_mod_revision) &&
	       (!q->max_mod_revision || c->revision <= q->max_mod_revision) &&
	       (!q->min_create_revision || c->create >= q->min_create_revision) &&
	       (!q->max_create_revision || c->create <= q->max_create_revision);
}

const char *model_range(const struct model *m, const struct rp_kv_range *q, int64_t current,
	enum rp_kv_error error, const struct rp_kv_range_result *r)
{
	const struct model_change *found[MODEL_KEYS];
	int64_t revision = q->revision > 0 ? q->revision : current, count = 0;
	uint32_t n = 0;
	bool filtered = q->min_mod_revision || q->max_mod_revision || q->min_create_revision ||
			q->max_create_revision;
	bool all = q->sort_order != RP_KV_SORT_NONE || filtered || q->limit <= 0;

	if (revision > current)
		return error == RP_KV_FUTURE_REVISION ? NULL : "range: future";
	if (revision < m->compacted)
		return error == RP_KV_COMPACTED ? NULL : "range: compacted";
	if (error)
		return "range: error";
	for (int k = 0; k < MODEL_KEYS; k++) {
		const struct model_change *c = model_at(m, k, revision);

		if (!c || !model_selects(q->key, q->end, k))
			continue;
		count++;
		if (!q->count_only && (all || count <= q->limit + 1) && passes(q, c))
			found[n++] = c;
	}
	for (uint32_t i = 1; i < n; i++)
		for (uint32_t j = i; j > 0 && comes_before(q, found[j], found[j - 1]); j--) {
			const struct model_change *c = found[j];

			found[j] = found[j - 1];
			found[j - 1] = c;
		}
	if (r->count != count)
		return "range: count";
	if (r->more != (q->limit > 0 && n > q->limit))
		return "range: more";
	if (r->more)
		n = (uint32_t)q->limit;
	if (r->item_count != n)
		return "range: items";
	for (uint32_t i = 0; i < n; i++)
		if (!version_is(r->items[i], found[i]))
			return "range: item";
	return NULL;
}

/* ---- replication ---- */

uint32_t model_replicated(struct model *m, const struct rp_kv_record *records, uint32_t count)
{
	int64_t next = m->revision + 1;
	uint32_t taken = 0;
	bool wrote = false;

	for (uint32_t i = 0; i < count; i++) {
		const struct rp_kv_record *r = &records[i];
		int k = model_key_of(r->key);
		bool exists = model_at(m, k, INT64_MAX) != NULL;
		bool newer = r->stamp > m->stamp[k] ||
			     (r->stamp == m->stamp[k] && r->node > m->writer[k]);

		m->stamp_last = RP_MAX(m->stamp_last, r->stamp);
		if (!r->force && m->known[k] && !newer)
			continue;
		taken++;
		m->known[k] = true;
		m->stamp[k] = r->stamp;
		m->writer[k] = r->node;
		if (r->deleted && !exists)
			continue;
		change_add(m, k, r->deleted, r->deleted ? 0 : (char)r->value.data[0], 0, next);
		wrote = true;
	}
	m->revision += wrote;
	return taken;
}
