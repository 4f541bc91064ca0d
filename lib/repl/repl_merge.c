/* SPDX-License-Identifier: Apache-2.0 */

/* What merges how: the rules of repl.h for each kind of key (spec/cluster.md, Replication;
 * spec/queues.md, Records). */

#include <inttypes.h>
#include <stdlib.h>

#include <base/assert.h>
#include <base/fnv.h>
#include <base/log.h>
#include <repl/repl_priv.h>
#include <route/key.h>
#include <route/record.h>

#define REPL_SPAN_FMT "%.*s"
#define REPL_SPAN_ARG(s) (int)RP_MIN((s).length, (size_t)200), (const char *)(s).data

/* ---- epochs of tombstones ---- */

static uint64_t repl_key_hash(struct rp_span key)
{
	return rp_fnv1a(RP_FNV1A_BASIS, key.data, key.length);
}

static struct repl_epoch *repl_epoch_find(struct rp_repl *r, struct rp_span key, uint64_t hash)
{
	struct rp_list *n, *bucket = &r->epochs[hash % REPL_EPOCH_BUCKETS];

	rp_list_foreach (n, bucket) {
		struct repl_epoch *e = rp_list_entry(n, struct repl_epoch, node);

		if (e->hash == hash && e->key_length == key.length &&
			memcmp(e->key, key.data, key.length) == 0)
			return e;
	}
	return NULL;
}

void repl_epoch_set(struct rp_repl *r, struct rp_span key, uint32_t epoch)
{
	uint64_t hash = repl_key_hash(key);
	struct repl_epoch *e = repl_epoch_find(r, key, hash);

	if (!e) {
		e = malloc(sizeof(*e) + key.length);
		RP_ASSERT(e);
		e->hash = hash;
		e->key_length = (uint32_t)key.length;
		memcpy(e->key, key.data, key.length);
		rp_list_push_back(&r->epochs[hash % REPL_EPOCH_BUCKETS], &e->node);
	}
	e->epoch = epoch;
}

static void repl_epoch_free(struct repl_epoch *e)
{
	rp_list_unlink(&e->node);
	free(e);
}

/** Forgets the epochs of keys that have no tombstone any more, some buckets a call. */
void repl_epochs_sweep(struct rp_repl *r, uint32_t buckets)
{
	for (; buckets > 0; buckets--) {
		struct rp_list *n, *t, *bucket = &r->epochs[r->sweep_bucket];

		r->sweep_bucket = (r->sweep_bucket + 1) % REPL_EPOCH_BUCKETS;
		rp_list_foreach_safe (n, t, bucket) {
			struct repl_epoch *e = rp_list_entry(n, struct repl_epoch, node);
			struct rp_span key = {.data = e->key, .length = e->key_length};
			struct rp_kv_record kv;

			if (!rp_kv_record_get(r->kv, key, &kv) || !kv.deleted)
				repl_epoch_free(e);
		}
	}
}

void repl_epochs_free(struct rp_repl *r)
{
	struct rp_list *n;

	for (uint32_t i = 0; i < REPL_EPOCH_BUCKETS; i++)
		while ((n = r->epochs[i].next) != &r->epochs[i])
			repl_epoch_free(rp_list_entry(n, struct repl_epoch, node));
}

/* ---- ranks ---- */

bool repl_key_is_dispatcher(struct rp_span key)
{
	struct rp_route_key parsed;

	if (key.length < 4 || memcmp(key.data, "/q/", 3) != 0)
		return false;
	rp_route_key_parse(&parsed, key.data, key.length);
	return parsed.kind == RP_KEY_DISPATCHER;
}

void repl_record_of(struct rp_repl *r, const struct rp_kv_record *kv, struct repl_record *out)
{
	const struct repl_epoch *e;

	*out = (struct repl_record){.kv = *kv};
	if (!kv->deleted || !repl_key_is_dispatcher(kv->key))
		return;
	e = repl_epoch_find(r, kv->key, repl_key_hash(kv->key));
	out->epoch = e ? e->epoch : 0;
}

bool repl_record_find(struct rp_repl *r, struct rp_span key, struct repl_record *out)
{
	struct rp_kv_record kv;

	if (!rp_kv_record_get(r->kv, key, &kv))
		return false;
	repl_record_of(r, &kv, out);
	return true;
}

void repl_rank_of(struct rp_repl *r, const struct repl_record *record, struct repl_rank *rank)
{
	struct rp_dispatcher_record d = {0};

	*rank = (struct repl_rank){.stamp = record->kv.stamp, .node = record->kv.node};
	if (!repl_key_is_dispatcher(record->kv.key))
		return;
	if (record->kv.deleted) {
		rank->epoch = record->epoch;
		rank->closes = true;
		return;
	}
	rp_route_dispatcher_parse(&d, record->kv.value.data, record->kv.value.length);
	rank->epoch = d.epoch;
	rank->dispatcher = d.node;
}

static int repl_order(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

int repl_rank_compare(const struct repl_rank *a, const struct repl_rank *b)
{
	int c = repl_order(a->epoch, b->epoch);

	c = c ? c : repl_order(a->closes, b->closes);
	c = c ? c : repl_order(a->dispatcher, b->dispatcher);
	c = c ? c : repl_order(a->stamp, b->stamp);
	return c ? c : repl_order(a->node, b->node);
}

/* ---- merging ---- */

void repl_merge_begin(struct repl_merge *m, struct rp_repl *r, uint64_t from)
{
	m->r = r;
	m->from = from;
	m->count = m->taken = m->skewed = 0;
}

static void repl_merge_flush(struct repl_merge *m)
{
	uint32_t n;

	if (m->count == 0)
		return;
	n = rp_kv_apply_replicated(m->r->kv, m->batch, m->count, REPL_ORIGIN_PEER);
	m->taken += n;
	REPL_COUNT(m->r, records_taken, n);
	REPL_COUNT(m->r, records_stale, m->count - n);
	m->count = 0;
}

void repl_merge_end(struct repl_merge *m)
{
	repl_merge_flush(m);
}

/** The rules of records look at what is here, so a batch may hold such a key only once. */
static bool repl_merge_holds(const struct repl_merge *m, struct rp_span key)
{
	for (uint32_t i = 0; i < m->count; i++)
		if (repl_span_compare(m->batch[i].key, key) == 0)
			return true;
	return false;
}

static bool repl_names_this_node(const struct rp_repl *r, const struct rp_kv_record *kv)
{
	struct rp_consumer_record c;

	return !kv->deleted && rp_route_consumer_parse(&c, kv->value.data, kv->value.length) == 0 &&
	       c.node == r->config.node;
}

/** Writes the state of a key above everything that is known of it, here and at all peers. */
static void repl_overrule(struct rp_repl *r, struct rp_kv_record kv, uint64_t stamp)
{
	uint64_t newest = RP_MAX(rp_kv_stamp(r->kv), RP_MAX(stamp, r->now.wall_us));
	struct repl_record record = {.kv = kv};

	record.kv.stamp = newest + 1;
	record.kv.node = r->config.node;
	rp_kv_apply_replicated(r->kv, &record.kv, 1, REPL_ORIGIN_PEER);
	repl_broadcast_record(r, &record);
}

/**
 * Consumer records belong to the host that they name. True: the record was answered, not merged.
 *
 * One that names this node, of a consumer that is not here, is left from an earlier life, or was
 * written by somebody who did not know that it left: a tombstone above it ends it everywhere. One
 * that this node itself wrote in an earlier life says nothing of a consumer that is here now: the
 * record is written again above it.
 */
static bool repl_merge_hosted(
	struct rp_repl *r, const struct rp_kv_record *kv, const struct rp_kv_record *here)
{
	bool hosted = here && repl_names_this_node(r, here);

	if (hosted && kv->node == r->config.node) {
		struct repl_buf *value = &r->scratch[1];
		struct rp_kv_record again = *here;

		/* The value lies in the version that is being replaced. */
		repl_buf_set(value, here->value);
		again.value = repl_buf_span(value);
		again.key = kv->key;
		repl_overrule(r, again, kv->stamp);
		REPL_COUNT(r, host_restored, 1);
		return true;
	}
	if (!hosted && repl_names_this_node(r, kv)) {
		repl_overrule(r, (struct rp_kv_record){.key = kv->key, .deleted = true}, kv->stamp);
		REPL_COUNT(r, host_answered, 1);
		return true;
	}
	return false;
}

/** Kind of the key, or RP_KEY_INVALID when the record may not be stored. */
static enum rp_key_kind repl_merge_check(struct repl_merge *m, const struct repl_record *record)
{
	struct rp_repl *r = m->r;
	const struct rp_kv_record *kv = &record->kv;
	struct rp_route_key key;

	rp_route_key_parse(&key, kv->key.data, kv->key.length);
	if (kv->key.length == 0 || !rp_route_key_is_stored(&key) || kv->stamp == 0 ||
		kv->node == 0) {
		REPL_COUNT(r, records_invalid, 1);
		return RP_KEY_INVALID;
	}
	if (!repl_eligible(r, m->from, kv->key)) {
		REPL_COUNT(r, records_policy, 1);
		return RP_KEY_INVALID;
	}
	if (kv->stamp > r->now.wall_us &&
		kv->stamp - r->now.wall_us > r->config.max_skew_s * 1000000ull) {
		struct repl_peer *p = repl_peer_by_node(r, m->from);

		m->skewed++;
		REPL_COUNT(r, records_skew, 1);
		if (p && !p->skew_logged) {
			p->skew_logged = true;
			RP_LOG(RP_LOG_REPL, RP_LOG_ERROR,
				"node %" PRIu64 " (%s) sends stamps %" PRIu64
				" s ahead of the clock here: refused; set the clocks",
				m->from, p->address, (kv->stamp - r->now.wall_us) / 1000000);
		}
		return RP_KEY_INVALID;
	}
	return key.kind;
}

void repl_merge_add(struct repl_merge *m, const struct repl_record *record)
{
	struct rp_repl *r = m->r;
	const struct rp_kv_record *kv = &record->kv;
	enum rp_key_kind kind = repl_merge_check(m, record);
	struct repl_record here;
	bool known;

	if (kind == RP_KEY_INVALID)
		return;
	if (kind != RP_KEY_ORDINARY && repl_merge_holds(m, kv->key))
		repl_merge_flush(m);
	known = repl_record_find(r, kv->key, &here);
	if (known) {
		struct repl_rank mine, theirs;

		repl_rank_of(r, &here, &mine);
		repl_rank_of(r, record, &theirs);
		if (repl_rank_compare(&theirs, &mine) <= 0) {
			REPL_COUNT(r, records_stale, 1);
			return;
		}
	} else if (repl_expired(r, kv->deleted, kv->stamp)) {
		REPL_COUNT(r, records_stale, 1);
		return;
	}
	if ((kind == RP_KEY_CONSUMER || kind == RP_KEY_SINK) &&
		repl_merge_hosted(r, kv, known ? &here.kv : NULL))
		return;
	if (kind == RP_KEY_DISPATCHER && kv->deleted)
		repl_epoch_set(r, kv->key, record->epoch);
	m->batch[m->count] = *kv;
	m->batch[m->count].force = kind == RP_KEY_DISPATCHER;
	if (++m->count == RP_ARRAY_SIZE(m->batch))
		repl_merge_flush(m);
}
