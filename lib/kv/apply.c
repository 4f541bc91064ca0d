/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kv_priv.h"

/* A txn being carried out. */
struct apply {
	struct rp_kv *kv;
	const struct rp_kv_writer *writer;
	uint8_t *paths; /* 1 = success, of each txn met, in the order of the walk */
	uint32_t path_count, path_size, path_next;
	uint64_t stamp; /* of all its writes; 0 = none yet */
	bool single;
};

static bool compare_holds(const struct rp_kv_compare *c, const struct rp_kv_version *v)
{
	int64_t number = 0;
	int order = 0;

	switch (c->target) {
	case RP_KV_TARGET_VALUE:
		order = v ? kv_bytes_compare(
				    v->value, v->value_length, c->value.data, c->value.length)
			  : 0;
		break;
	case RP_KV_TARGET_VERSION:
		number = v ? v->version : 0;
		break;
	case RP_KV_TARGET_CREATE:
		number = v ? v->create_revision : 0;
		break;
	case RP_KV_TARGET_MOD:
		number = v ? v->mod_revision : 0;
		break;
	case RP_KV_TARGET_LEASE:
		number = v ? v->lease : 0;
		break;
	}
	if (c->target >= RP_KV_TARGET_VERSION && c->target <= RP_KV_TARGET_LEASE &&
		c->target != RP_KV_TARGET_VALUE)
		order = (number > c->number) - (number < c->number);
	switch (c->result) {
	case RP_KV_EQUAL:
		return order == 0;
	case RP_KV_GREATER:
		return order > 0;
	case RP_KV_LESS:
		return order < 0;
	case RP_KV_NOT_EQUAL:
		return order != 0;
	}
	return true;
}

static bool compare_eval(const struct rp_kv *kv, const struct rp_kv_compare *c)
{
	struct kv_selector s = kv_selector_of(c->key, c->end);
	struct rp_kv_key *k = kv_index_lower(kv, s.start, false);
	bool any = false;

	if (k && !k->live)
		k = kv_index_next_live(k);
	for (; k && kv_selector_below_end(&s, k); k = kv_index_next_live(k)) {
		any = true;
		if (!compare_holds(c, k->versions[k->version_count - 1]))
			return false;
	}
	if (any)
		return true;
	/* No key at all: as one key with all numbers 0, and no value that anything compares to. */
	return c->target != RP_KV_TARGET_VALUE && compare_holds(c, NULL);
}

/* Chooses the branches of a txn and of those nested in what was chosen. */
static void apply_choose(struct apply *a, const struct rp_kv_txn *t)
{
	const struct rp_kv_op *ops;
	uint32_t count;
	bool success = true;

	for (uint32_t i = 0; success && i < t->compare_count; i++)
		success = compare_eval(a->kv, &t->compares[i]);
	a->paths = kv_grow(a->paths, &a->path_size, (uint64_t)a->path_count + 1, 1);
	a->paths[a->path_count++] = success;
	ops = success ? t->success : t->failure;
	count = success ? t->success_count : t->failure_count;
	for (uint32_t i = 0; i < count; i++)
		if (ops[i].type == RP_KV_OP_TXN)
			apply_choose(a, ops[i].txn);
}

static enum rp_kv_error check_put_lease(struct apply *a, const struct rp_kv_put *p)
{
	const struct kv_lease *l = p->lease != 0 ? kv_lease_find(a->kv, p->lease) : NULL;

	return p->lease == 0 || (l && l->known) ? RP_KV_OK : RP_KV_LEASE_NOT_FOUND;
}

static enum rp_kv_error check_put_exists(struct apply *a, const struct rp_kv_put *p)
{
	struct rp_kv_key *k;

	if (!p->ignore_value && !p->ignore_lease)
		return RP_KV_OK;
	k = kv_index_find(a->kv, p->key);
	return k && k->live ? RP_KV_OK : RP_KV_KEY_NOT_FOUND;
}

static enum rp_kv_error check_put(struct apply *a, const struct rp_kv_put *p)
{
	enum rp_kv_error lease = check_put_lease(a, p), exists = check_put_exists(a, p);

	if (a->single)
		return lease ? lease : exists;
	return exists ? exists : lease;
}

static enum rp_kv_error check_range(struct apply *a, const struct rp_kv_range *r)
{
	if (r->revision == 0)
		return RP_KV_OK;
	if (r->revision > a->kv->revision)
		return RP_KV_FUTURE_REVISION;
	return r->revision < a->kv->compacted ? RP_KV_COMPACTED : RP_KV_OK;
}

/* What depends on the state, for the chosen path, before anything is written. */
static enum rp_kv_error apply_check(struct apply *a, const struct rp_kv_txn *t, bool puts)
{
	bool success = a->paths[a->path_next++];
	const struct rp_kv_op *ops = success ? t->success : t->failure;
	uint32_t count = success ? t->success_count : t->failure_count;

	for (uint32_t i = 0; i < count; i++) {
		enum rp_kv_error error = RP_KV_OK;

		if (ops[i].type == RP_KV_OP_TXN)
			error = apply_check(a, ops[i].txn, puts);
		else if (ops[i].type == RP_KV_OP_PUT && puts)
			error = check_put(a, &ops[i].put);
		else if (ops[i].type == RP_KV_OP_RANGE && !puts)
			error = check_range(a, &ops[i].range);
		if (error)
			return error;
	}
	return RP_KV_OK;
}

static uint64_t apply_stamp(struct apply *a)
{
	if (a->stamp == 0) {
		/* kv->stamp is the highest ever given or seen, so it is above the key's own. */
		a->stamp = RP_MAX(a->writer->wall_us, a->kv->stamp + 1);
		a->kv->stamp = a->stamp;
	}
	return a->stamp;
}

static struct rp_kv_version *key_newest(const struct rp_kv_key *k)
{
	return k->live ? k->versions[k->version_count - 1] : NULL;
}

static void apply_put(struct apply *a, const struct rp_kv_put *p, struct rp_kv_op_result *out)
{
	struct rp_kv *kv = a->kv;
	struct rp_kv_key *k = kv_index_find_or_add(kv, p->key);
	struct rp_kv_version *prev = key_newest(k), *v;
	struct rp_span value = p->value;

	/* That the key exists was checked; only a delete earlier in this txn can have taken it. */
	if (p->ignore_value)
		value = prev ? rp_kv_version_value(prev) : (struct rp_span){0};
	v = kv_version_new(k, value);
	v->mod_revision = kv_write_revision(kv);
	v->create_revision = prev ? prev->create_revision : v->mod_revision;
	v->version = prev ? prev->version + 1 : 1;
	v->lease = p->ignore_lease ? (prev ? prev->lease : 0) : p->lease;
	v->stamp = apply_stamp(a);
	v->node = kv->config.node;
	if (p->prev_kv && prev)
		out->put.prev = rp_kv_version_ref(prev);
	kv_key_append(kv, k, v);
	kv_event_add(kv, v, prev);
	kv->stats.puts++;
}

static void apply_delete_key(struct apply *a, struct rp_kv_key *k)
{
	struct rp_kv *kv = a->kv;
	struct rp_kv_version *prev = key_newest(k);
	struct rp_kv_version *v = kv_version_new(k, (struct rp_span){0});

	v->deleted = true;
	v->mod_revision = kv_write_revision(kv);
	v->stamp = apply_stamp(a);
	v->node = kv->config.node;
	kv_key_append(kv, k, v);
	kv_event_add(kv, v, prev);
	kv->stats.deletes++;
}

static void apply_delete(struct apply *a, const struct rp_kv_delete *d, struct rp_kv_op_result *out)
{
	struct kv_selector s = kv_selector_of(d->key, d->end);
	struct rp_kv_key *k = kv_index_lower(a->kv, s.start, false);
	uint32_t size = 0;

	if (k && !k->live)
		k = kv_index_next_live(k);
	for (; k && kv_selector_below_end(&s, k); k = kv_index_next_live(k)) {
		if (d->prev_kv) {
			out->del.prevs = kv_grow(out->del.prevs, &size,
				(uint64_t)out->del.prev_count + 1, sizeof(out->del.prevs[0]));
			out->del.prevs[out->del.prev_count++] = rp_kv_version_ref(key_newest(k));
		}
		apply_delete_key(a, k);
		out->del.deleted++;
	}
}

static void apply_run(struct apply *a, const struct rp_kv_txn *t, struct rp_kv_txn_result *out)
{
	struct rp_kv *kv = a->kv;
	const struct rp_kv_op *ops;

	out->succeeded = a->paths[a->path_next++];
	ops = out->succeeded ? t->success : t->failure;
	out->op_count = out->succeeded ? t->success_count : t->failure_count;
	if (out->op_count > 0) {
		out->ops = kv_alloc(out->op_count * sizeof(out->ops[0]));
		memset(out->ops, 0, out->op_count * sizeof(out->ops[0]));
	}
	for (uint32_t i = 0; i < out->op_count; i++) {
		struct rp_kv_op_result *r = &out->ops[i];
		enum rp_kv_error error;

		r->type = ops[i].type;
		switch (ops[i].type) {
		case RP_KV_OP_NONE:
			break;
		case RP_KV_OP_RANGE:
			error = kv_range_at(kv, &ops[i].range,
				kv->write_revision > 0 ? kv->write_revision : kv->revision,
				&r->range);
			RP_ASSERT(error == RP_KV_OK);
			break;
		case RP_KV_OP_PUT:
			apply_put(a, &ops[i].put, r);
			break;
		case RP_KV_OP_DELETE:
			apply_delete(a, &ops[i].del, r);
			break;
		case RP_KV_OP_TXN:
			r->txn = kv_alloc(sizeof(*r->txn));
			memset(r->txn, 0, sizeof(*r->txn));
			apply_run(a, ops[i].txn, r->txn);
			break;
		}
		r->revision = kv->write_revision > 0 ? kv->write_revision : kv->revision;
	}
}

/* ---- leases and hidden records ---- */

static enum rp_kv_error system_check(struct apply *a, const struct rp_kv_txn *t)
{
	for (uint32_t i = 0; i < t->system_count; i++) {
		const struct rp_kv_system_op *op = &t->system[i];
		const struct kv_lease *l = kv_lease_find(a->kv, op->lease);

		switch (op->type) {
		case RP_KV_SYSTEM_PUT:
		case RP_KV_SYSTEM_DELETE:
			RP_ASSERT(rp_kv_is_hidden(op->key));
			break;
		case RP_KV_SYSTEM_GRANT:
			if (op->ttl_s > RP_KV_LEASE_TTL_MAX_S)
				return RP_KV_LEASE_TTL_TOO_LARGE;
			if (op->lease == 0 || (l && l->known))
				return RP_KV_LEASE_EXISTS;
			break;
		case RP_KV_SYSTEM_REVOKE:
			if (!l)
				return RP_KV_LEASE_NOT_FOUND;
			break;
		case RP_KV_SYSTEM_TAKE:
			if (!l || !l->known)
				return RP_KV_LEASE_NOT_FOUND;
			break;
		}
	}
	return RP_KV_OK;
}

static void system_revoke(struct apply *a, int64_t id)
{
	struct kv_lease *l = kv_lease_find(a->kv, id);
	bool known = l->known;
	uint32_t count = l->key_count;
	struct rp_kv_key **keys = kv_lease_sorted(l);

	/* With its last key a lease without a record is gone. */
	for (uint32_t i = 0; i < count; i++)
		apply_delete_key(a, keys[i]);
	free(keys);
	if (known)
		kv_lease_erase(a->kv, id, apply_stamp(a));
	a->kv->stats.leases_revoked++;
}

static void system_run(struct apply *a, const struct rp_kv_txn *t)
{
	struct rp_kv *kv = a->kv;

	for (uint32_t i = 0; i < t->system_count; i++) {
		const struct rp_kv_system_op *op = &t->system[i];
		struct rp_kv_key *k;

		switch (op->type) {
		case RP_KV_SYSTEM_PUT:
			k = kv_any_find_or_add(kv, op->key);
			kv_hidden_write(kv, k, op->value, false, apply_stamp(a), kv->config.node);
			break;
		case RP_KV_SYSTEM_DELETE:
			k = kv_any_find(kv, op->key);
			if (k && k->live)
				kv_hidden_write(kv, k, (struct rp_span){0}, true, apply_stamp(a),
					kv->config.node);
			break;
		case RP_KV_SYSTEM_GRANT:
			kv_lease_write(kv, op->lease, op->ttl_s, apply_stamp(a));
			kv->stats.leases_granted++;
			break;
		case RP_KV_SYSTEM_REVOKE:
			if (kv_lease_find(kv, op->lease))
				system_revoke(a, op->lease);
			break;
		case RP_KV_SYSTEM_TAKE:
			kv_lease_write(
				kv, op->lease, kv_lease_find(kv, op->lease)->ttl_s, apply_stamp(a));
			break;
		}
	}
}

/* What the puts of the dearer branch cost against the quota. */
static uint64_t ops_cost(const struct rp_kv_op *ops, uint32_t count);

static uint64_t txn_cost(const struct rp_kv_txn *t)
{
	uint64_t success = ops_cost(t->success, t->success_count);
	uint64_t failure = ops_cost(t->failure, t->failure_count);

	return RP_MAX(success, failure) + (uint64_t)t->system_count * KV_SYSTEM_COST;
}

static uint64_t ops_cost(const struct rp_kv_op *ops, uint32_t count)
{
	uint64_t cost = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (ops[i].type == RP_KV_OP_PUT)
			cost += KV_PUT_COST + ops[i].put.key.length + ops[i].put.value.length;
		else if (ops[i].type == RP_KV_OP_TXN)
			cost += txn_cost(ops[i].txn);
	}
	return cost;
}

static bool txn_grants(const struct rp_kv_txn *t)
{
	for (uint32_t i = 0; i < t->system_count; i++)
		if (t->system[i].type == RP_KV_SYSTEM_GRANT)
			return true;
	return false;
}

static enum rp_kv_error apply_allowed(struct rp_kv *kv, const struct rp_kv_txn *t)
{
	if (kv->corrupt && !rp_kv_txn_is_read_only(t))
		return RP_KV_CORRUPT;
	if (!rp_kv_txn_has_put(t) && !txn_grants(t))
		return RP_KV_OK;
	if (kv->config.quota_bytes > 0 && kv->stats.bytes + txn_cost(t) > kv->config.quota_bytes)
		kv->nospace = true;
	return kv->nospace ? RP_KV_NO_SPACE : RP_KV_OK;
}

enum rp_kv_error rp_kv_apply(struct rp_kv *kv, const struct rp_kv_txn *txn,
	const struct rp_kv_writer *writer, struct rp_kv_result *out)
{
	struct apply a = {.kv = kv, .writer = writer, .single = txn->single};

	/* Neither a hook nor a watcher may write from inside a commit. */
	RP_ASSERT(kv->write_revision == 0);
	*out = (struct rp_kv_result){.revision = kv->revision};
	out->error = apply_allowed(kv, txn);
	if (out->error)
		return out->error;
	kv->stats.txns++;
	rp_kv_set_now(kv, writer->now_ns);
	apply_choose(&a, txn);
	out->error = system_check(&a, txn);
	if (!out->error)
		out->error = apply_check(&a, txn, true);
	if (!out->error) {
		a.path_next = 0;
		out->error = apply_check(&a, txn, false);
	}
	if (!out->error) {
		a.path_next = 0;
		apply_run(&a, txn, &out->txn);
		system_run(&a, txn);
		out->wrote = kv->write_revision > 0;
		kv_commit(kv, writer->origin);
		out->revision = kv->revision;
	}
	free(a.paths);
	return out->error;
}

static void txn_result_clear(struct rp_kv_txn_result *t)
{
	for (uint32_t i = 0; i < t->op_count; i++) {
		struct rp_kv_op_result *r = &t->ops[i];

		switch (r->type) {
		case RP_KV_OP_NONE:
			break;
		case RP_KV_OP_RANGE:
			rp_kv_range_result_clear(&r->range);
			break;
		case RP_KV_OP_PUT:
			if (r->put.prev)
				rp_kv_version_unref(r->put.prev);
			break;
		case RP_KV_OP_DELETE:
			for (uint32_t j = 0; j < r->del.prev_count; j++)
				rp_kv_version_unref(r->del.prevs[j]);
			free(r->del.prevs);
			break;
		case RP_KV_OP_TXN:
			txn_result_clear(r->txn);
			free(r->txn);
			break;
		}
	}
	free(t->ops);
	t->ops = NULL;
	t->op_count = 0;
}

void rp_kv_result_clear(struct rp_kv_result *r)
{
	txn_result_clear(&r->txn);
}
