/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on the store and on a simple model of it, with the same answers. Watchers with
 * random room are compared with the model's list of changes.
 *
 *   kv_model_test [SEED [STEPS]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/rand.h>
#include <kv/lease.h>
#include <kv/watch.h>

#include "kv_model.h"

#define WATCHERS 24
#define SEEDS 12
#define STEPS 1500

struct watcher {
	struct test *t;
	struct rp_kv_watcher *w;
	struct rp_kv_watch_options options;
	char key, end;
	uint32_t cursor; /* in the model's changes: all before it were shown or do not matter */
	bool blocked;
};

struct test {
	struct rp_rand rand;
	uint64_t seed, step, wall_us, now_ns;
	struct rp_kv *kv;
	struct model *m;
	struct watcher watchers[WATCHERS];
	uint32_t events, compactions, refusals, txns, errors, revoked, expired;
	/* Of the txn being made. */
	struct rp_kv_op ops[256];
	struct rp_kv_compare compares[64];
	struct rp_kv_txn nested[64];
	uint32_t op_count, compare_count, nested_count;
};

static const char letters[] = "abcdefgh0123456789";

static struct rp_span letter(char c)
{
	return (struct rp_span){.data = (const uint8_t *)strchr(letters, c), .length = 1};
}

static void fail(struct test *t, const char *what)
{
	printf("seed %llu step %llu: %s\n", (unsigned long long)t->seed,
		(unsigned long long)t->step, what);
	printf("repeat with: kv_model_test %llu %llu\n", (unsigned long long)t->seed,
		(unsigned long long)t->step + 1);
	exit(1);
}

static uint64_t below(struct test *t, uint64_t n)
{
	return rp_rand_below(&t->rand, n);
}

static struct rp_span random_key(struct test *t)
{
	return letter((char)('a' + below(t, MODEL_KEYS)));
}

static struct rp_span random_value(struct test *t)
{
	return letter((char)('0' + below(t, 10)));
}

/* Nothing, "from here on", or some key, which may lie before the start. */
static struct rp_span random_end(struct test *t)
{
	static const uint8_t zero;

	switch (below(t, 4)) {
	case 0:
		return (struct rp_span){.data = &zero, .length = 1};
	case 1:
		return random_key(t);
	}
	return (struct rp_span){0};
}

static int64_t random_revision(struct test *t)
{
	return below(t, 3) ? 0 : (int64_t)below(t, (uint64_t)t->m->revision + 3);
}

static struct rp_kv_range random_range(struct test *t)
{
	struct rp_kv_range r = {.key = random_key(t), .end = random_end(t)};

	r.limit = (int64_t)below(t, 6) - 1;
	r.revision = random_revision(t);
	r.sort_order = (int32_t)below(t, 3);
	r.sort_target = (int32_t)below(t, 5);
	r.count_only = below(t, 8) == 0;
	if (below(t, 4) == 0)
		r.min_mod_revision = random_revision(t);
	if (below(t, 4) == 0)
		r.max_create_revision = random_revision(t);
	return r;
}

static struct rp_kv_txn random_txn(struct test *t, int depth);

/* 0, or a lease that is there. */
static int64_t random_lease(struct test *t)
{
	int64_t id = (int64_t)below(t, MODEL_LEASES + 1);

	return t->m->leases[id].alive ? id : 0;
}

static void random_op(struct test *t, struct rp_kv_op *op, int depth)
{
	memset(op, 0, sizeof(*op));
	switch (below(t, depth < 3 ? 8 : 7)) {
	case 0:
	case 1:
	case 2:
		op->type = RP_KV_OP_PUT;
		op->put = (struct rp_kv_put){.key = random_key(t),
			.value = random_value(t),
			.lease = random_lease(t),
			.prev_kv = below(t, 2)};
		break;
	case 3:
	case 4:
		op->type = RP_KV_OP_DELETE;
		op->del = (struct rp_kv_delete){
			.key = random_key(t), .end = random_end(t), .prev_kv = below(t, 2)};
		break;
	case 5:
	case 6:
		op->type = RP_KV_OP_RANGE;
		op->range = random_range(t);
		op->range.revision = 0;
		break;
	case 7:
		if (t->nested_count == 64 || t->op_count > 200) {
			op->type = RP_KV_OP_RANGE;
			op->range = random_range(t);
			op->range.revision = 0;
			break;
		}
		op->type = RP_KV_OP_TXN;
		op->txn = &t->nested[t->nested_count];
		t->nested[t->nested_count++] = random_txn(t, depth + 1);
		break;
	}
}

static const struct rp_kv_op *random_ops(struct test *t, uint32_t *count, int depth)
{
	struct rp_kv_op *ops = &t->ops[t->op_count];

	*count = t->op_count > 200 ? 0 : (uint32_t)below(t, depth == 0 ? 4 : 3);
	t->op_count += *count;
	for (uint32_t i = 0; i < *count; i++)
		random_op(t, &ops[i], depth);
	return ops;
}

static struct rp_kv_txn random_txn(struct test *t, int depth)
{
	struct rp_kv_txn x = {.compares = &t->compares[t->compare_count]};

	x.compare_count = t->compare_count > 60 ? 0 : (uint32_t)below(t, 3);
	for (uint32_t i = 0; i < x.compare_count; i++)
		t->compares[t->compare_count++] = (struct rp_kv_compare){
			.result = (int32_t)below(t, 4),
			.target = (int32_t)below(t, 5),
			.key = random_key(t),
			.end = random_end(t),
			.number = (int64_t)below(t, 2 + (uint64_t)t->m->revision / 2),
			.value = random_value(t),
		};
	x.success = random_ops(t, &x.success_count, depth);
	x.failure = random_ops(t, &x.failure_count, depth);
	return x;
}

static void do_txn(struct test *t)
{
	struct rp_kv_writer writer = {.wall_us = t->wall_us += below(t, 3), .now_ns = t->now_ns};
	struct rp_kv_result r;
	struct rp_kv_txn x;
	enum rp_kv_error error;
	const char *fault;

	t->op_count = t->compare_count = t->nested_count = 0;
	x = random_txn(t, 0);
	error = rp_kv_txn_check(&x, 128);
	if (model_duplicates(&x) != (error == RP_KV_DUPLICATE_KEY))
		fail(t, "rule against duplicates");
	if (error) {
		t->errors++;
		return;
	}
	t->txns++;
	if (rp_kv_apply(t->kv, &x, &writer, &r) != RP_KV_OK)
		fail(t, "apply: error");
	fault = model_apply(t->m, &x, writer.wall_us, &r);
	if (fault)
		fail(t, fault);
	rp_kv_result_clear(&r);
}

/* ---- leases ---- */

static enum rp_kv_error lease_apply(
	struct test *t, enum rp_kv_system_type type, int64_t id, int64_t ttl_s)
{
	struct rp_kv_writer writer = {.wall_us = t->wall_us += below(t, 3), .now_ns = t->now_ns};
	struct rp_kv_system_op op = {.type = type, .lease = id, .ttl_s = ttl_s};
	struct rp_kv_txn x = {.system = &op, .system_count = 1};
	struct rp_kv_result r;
	enum rp_kv_error error = rp_kv_apply(t->kv, &x, &writer, &r);

	rp_kv_result_clear(&r);
	return error;
}

static void lease_revoke(struct test *t, int64_t id)
{
	enum rp_kv_error error = lease_apply(t, RP_KV_SYSTEM_REVOKE, id, 0);

	if (error != model_revoke(t->m, id, t->wall_us))
		fail(t, "lease: revoke");
	if (rp_kv_revision(t->kv) != t->m->revision)
		fail(t, "lease: revision of a revoke");
	t->revoked += error == RP_KV_OK;
}

static void on_lease_key(void *ctx, struct rp_span key)
{
	*(uint32_t *)ctx |= 1u << model_key_of(key);
}

static void check_lease(struct test *t, int64_t id)
{
	const struct model_lease *want = &t->m->leases[id];
	uint32_t keys = 0, want_keys = 0;
	struct rp_kv_lease l;
	bool there = rp_kv_lease_get(t->kv, id, t->now_ns, &l);

	if (there != (want->alive && want->expiry_ns > t->now_ns))
		fail(t, "lease: there or not");
	if (there && (l.ttl_s != want->ttl_s || l.expiry_ns != want->expiry_ns))
		fail(t, "lease: ttl");
	rp_kv_lease_keys(t->kv, id, on_lease_key, &keys);
	for (int k = 0; k < MODEL_KEYS; k++) {
		const struct model_change *v = model_at(t->m, k, INT64_MAX);

		if (v && v->lease == id)
			want_keys |= 1u << k;
	}
	if (keys != want_keys)
		fail(t, "lease: keys");
}

static void lease_time(struct test *t)
{
	int64_t id, want;

	t->now_ns += below(t, 2 * RP_NS_PER_S);
	rp_kv_set_now(t->kv, t->now_ns);
	while ((want = model_expired(t->m, t->now_ns)) != 0) {
		if (!rp_kv_lease_expired(t->kv, t->now_ns, &id) || id != want)
			fail(t, "lease: expired");
		if (rp_kv_lease_keepalive(t->kv, id, t->now_ns) != RP_KV_LEASE_OVER)
			fail(t, "lease: keepalive of one that is over");
		lease_revoke(t, id);
		t->expired++;
	}
	if (rp_kv_lease_expired(t->kv, t->now_ns, &id))
		fail(t, "lease: expired too early");
}

static void do_lease(struct test *t)
{
	int64_t id = 1 + (int64_t)below(t, MODEL_LEASES), ttl_s = (int64_t)below(t, 20);
	struct model_lease *l = &t->m->leases[id];

	switch (below(t, 5)) {
	case 0:
	case 1:
		if (lease_apply(t, RP_KV_SYSTEM_GRANT, id, ttl_s) !=
			model_grant(t->m, id, ttl_s, t->wall_us, t->now_ns))
			fail(t, "lease: grant");
		break;
	case 2:
		if (below(t, 2) == 0)
			lease_revoke(t, id);
		break;
	case 3:
		if (rp_kv_lease_keepalive(t->kv, id, t->now_ns) !=
			(l->alive ? RP_KV_LEASE_RENEWED : RP_KV_LEASE_NONE))
			fail(t, "lease: keepalive");
		l->expiry_ns = t->now_ns + (uint64_t)l->ttl_s * RP_NS_PER_S;
		break;
	case 4:
		lease_time(t);
		break;
	}
	for (id = 1; id <= MODEL_LEASES; id++)
		check_lease(t, id);
}

static void do_range(struct test *t)
{
	struct rp_kv_range q = random_range(t);
	struct rp_kv_range_result r = {0};
	enum rp_kv_error error = rp_kv_range(t->kv, &q, &r);
	const char *fault = model_range(t->m, &q, t->m->revision, error, &r);

	if (fault)
		fail(t, fault);
	if (!error)
		rp_kv_range_result_clear(&r);
}

static void do_replicated(struct test *t)
{
	struct rp_kv_record records[4];
	uint32_t n = 1 + (uint32_t)below(t, 4);

	for (uint32_t i = 0; i < n; i++) {
		records[i] = (struct rp_kv_record){
			.key = random_key(t),
			.value = random_value(t),
			.deleted = below(t, 3) == 0,
			.force = below(t, 10) == 0,
			.stamp = t->m->stamp_last + 2 - RP_MIN(below(t, 6), t->m->stamp_last),
			.node = 1 + below(t, 3),
		};
		if (records[i].deleted)
			records[i].value.length = 0;
	}
	if (rp_kv_apply_replicated(t->kv, records, n, 1) != model_replicated(t->m, records, n))
		fail(t, "replicated: count");
	if (rp_kv_revision(t->kv) != t->m->revision)
		fail(t, "replicated: revision");
}

static void do_compact(struct test *t)
{
	int64_t revision = t->m->revision - (int64_t)below(t, 30);
	enum rp_kv_error want = revision <= t->m->compacted ? RP_KV_COMPACTED : RP_KV_OK;

	if (rp_kv_compact(t->kv, revision) != want)
		fail(t, "compact");
	if (want == RP_KV_OK)
		t->m->compacted = revision;
}

static void do_tombstones(struct test *t)
{
	for (int k = 0; k < MODEL_KEYS; k++) {
		struct rp_kv_record r;
		bool have = rp_kv_record_get(t->kv, letter((char)('a' + k)), &r);

		if (have != t->m->known[k])
			fail(t, "record: known");
		if (!have)
			continue;
		if (r.stamp != t->m->stamp[k] || r.node != t->m->writer[k] ||
			r.deleted != !model_at(t->m, k, INT64_MAX))
			fail(t, "record: stamp, node or deleted");
		if (r.deleted && below(t, 3) == 0) {
			if (!rp_kv_tombstone_drop(t->kv, r.key, r.stamp))
				fail(t, "tombstone: drop");
			if (rp_kv_record_get(t->kv, letter((char)('a' + k)), &r))
				fail(t, "tombstone: still there");
			t->m->known[k] = false;
		}
	}
}

/* ---- watchers ---- */

static bool wants(const struct watcher *w, const struct model_change *c)
{
	uint32_t filter = c->deleted ? RP_KV_WATCH_NO_DELETE : RP_KV_WATCH_NO_PUT;

	return !(w->options.filters & filter) && c->revision >= w->options.start_revision &&
	       model_selects(w->options.key, w->options.end, c->key);
}

static void check_event(struct watcher *w, const struct rp_kv_event *e)
{
	struct test *t = w->t;
	struct model *m = t->m;
	const struct model_change *c, *prev;

	while (w->cursor < m->change_count && !wants(w, &m->changes[w->cursor]))
		w->cursor++;
	if (w->cursor == m->change_count)
		fail(t, "watch: an event of nothing");
	c = &m->changes[w->cursor];
	if (e->kv->mod_revision != c->revision || e->kv->deleted != c->deleted ||
		model_key_of(rp_kv_version_key(e->kv)) != c->key)
		fail(t, "watch: event");
	if (!c->deleted && (e->kv->value[0] != c->value || e->kv->version != c->version))
		fail(t, "watch: value");
	prev = w->options.prev_kv && c->revision - 1 >= rp_kv_compacted_revision(t->kv)
		       ? model_before(m, w->cursor)
		       : NULL;
	if ((e->prev != NULL) != (prev != NULL) ||
		(prev && e->prev->mod_revision != prev->revision))
		fail(t, "watch: prev_kv");
	w->cursor++;
	t->events++;
}

/*
 * Live events come before the model has the change: they are kept by the watcher's refusal half of
 * the time, else looked at when the model has caught up.
 */
struct kept {
	struct watcher *w;
	struct rp_kv_version *kv, *prev;
};
static struct kept kept[100000];
static uint32_t kept_count;

static bool on_events(void *ctx, struct rp_kv_watcher *watcher, int64_t revision,
	const struct rp_kv_event *events, uint32_t count)
{
	struct watcher *w = ctx;

	if (below(w->t, 4) == 0) {
		w->blocked = true;
		w->t->refusals++;
		return false;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct kept *k = &kept[kept_count++];

		k->w = w;
		k->kv = rp_kv_version_ref((struct rp_kv_version *)events[i].kv);
		k->prev = events[i].prev ? rp_kv_version_ref((struct rp_kv_version *)events[i].prev)
					 : NULL;
	}
	return true;
}

static void on_compacted(void *ctx, struct rp_kv_watcher *watcher, int64_t compacted)
{
	struct watcher *w = ctx;

	if (compacted != rp_kv_compacted_revision(w->t->kv))
		fail(w->t, "watch: compacted revision");
	w->t->compactions++;
	w->w = NULL;
}

static const struct rp_kv_watch_ops watch_ops = {
	.on_events = on_events, .on_compacted = on_compacted};

static void check_kept(struct test *t)
{
	for (uint32_t i = 0; i < kept_count; i++) {
		struct rp_kv_event e = {.kv = kept[i].kv, .prev = kept[i].prev};

		check_event(kept[i].w, &e);
		rp_kv_version_unref(kept[i].kv);
		if (kept[i].prev)
			rp_kv_version_unref(kept[i].prev);
	}
	kept_count = 0;
}

static void watcher_end_check(struct watcher *w)
{
	struct model *m = w->t->m;

	for (; w->cursor < m->change_count; w->cursor++)
		if (wants(w, &m->changes[w->cursor]))
			fail(w->t, "watch: an event is missing");
}

static void do_watch(struct test *t)
{
	struct watcher *w = &t->watchers[below(t, WATCHERS)];

	if (w->w) {
		if (rp_kv_watcher_progress(w->w) == t->m->revision)
			watcher_end_check(w);
		rp_kv_watcher_cancel(w->w);
	}
	*w = (struct watcher){.t = t};
	w->options = (struct rp_kv_watch_options){
		.key = random_key(t),
		.end = random_end(t),
		.start_revision = random_revision(t),
		.filters = below(t, 5) == 0 ? (uint32_t)below(t, 4) : 0,
		.prev_kv = below(t, 2),
		.ops = &watch_ops,
		.ctx = w,
	};
	w->w = rp_kv_watch(t->kv, &w->options);
	if (w->options.start_revision == 0)
		w->options.start_revision = t->m->revision + 1;
}

static void do_step(struct test *t)
{
	for (int i = 0; i < WATCHERS; i++) {
		struct watcher *w = &t->watchers[i];

		if (w->w && w->blocked && below(t, 2)) {
			w->blocked = false;
			rp_kv_watcher_resume(w->w);
		}
	}
	rp_kv_step(t->kv, 1 + (uint32_t)below(t, 40));
}

static void run(uint64_t seed, uint64_t steps)
{
	struct rp_kv_config config = {.initial_revision = 1, .node = 2, .keep_tombstones = true};
	struct test *t = calloc(1, sizeof(*t));

	t->rand.state = t->seed = seed;
	t->kv = rp_kv_create(&config);
	t->m = calloc(1, sizeof(*t->m));
	t->m->revision = 1;
	t->m->compacted = -1;
	t->m->node = 2;
	for (t->step = 0; t->step < steps; t->step++) {
		uint64_t what = below(t, 100);

		if (what < 40)
			do_txn(t);
		else if (what < 60)
			do_range(t);
		else if (what < 68)
			do_replicated(t);
		else if (what < 70)
			do_compact(t);
		else if (what < 80)
			do_watch(t);
		else if (what < 82)
			do_tombstones(t);
		else if (what < 88)
			do_lease(t);
		else
			do_step(t);
		check_kept(t);
	}
	for (int i = 0; i < 10000; i++) {
		do_step(t);
		check_kept(t);
	}
	for (int i = 0; i < WATCHERS; i++)
		if (t->watchers[i].w && !t->watchers[i].blocked) {
			if (rp_kv_watcher_progress(t->watchers[i].w) == t->m->revision)
				watcher_end_check(&t->watchers[i]);
		}
	printf("seed %llu: %u txns, %u refused, %u events, %u refusals, %u compacted, "
	       "%u leases revoked, %u of them expired\n",
		(unsigned long long)seed, t->txns, t->errors, t->events, t->refusals,
		t->compactions, t->revoked, t->expired);
	rp_kv_destroy(t->kv);
	free(t->m);
	free(t);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t steps = argc > 2 ? strtoull(argv[2], NULL, 0) : STEPS;

	for (uint64_t i = 0; i < (argc > 1 ? 1 : SEEDS); i++)
		run(seed + i, steps);
	return 0;
}
