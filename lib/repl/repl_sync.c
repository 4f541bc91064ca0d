/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Anti-entropy, the asking side. A run walks over all keys in order: digests of up to 16 ranges of
 * 256 keys a call, then, for each range that differs, the list of its keys with their ranks; the
 * answer brings what is newer there and names what is wanted from here, which goes out as Apply
 * calls. So one run makes both sides equal, each call is bounded, and equal stores cost one digest
 * a key.
 */

#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>
#include <base/fnv.h>
#include <repl/repl_priv.h>

int repl_span_compare(struct rp_span a, struct rp_span b)
{
	size_t n = RP_MIN(a.length, b.length);
	int c = n > 0 ? memcmp(a.data, b.data, n) : 0;

	return c ? c : (a.length < b.length ? -1 : a.length > b.length);
}

uint64_t repl_digest(const struct rp_kv_record *kv)
{
	uint64_t v[3] = {kv->stamp, kv->node, kv->deleted};
	uint64_t h = rp_fnv1a(RP_FNV1A_BASIS, kv->key.data, kv->key.length);

	for (size_t i = 0; i < RP_ARRAY_SIZE(v); i++) {
		h = (h ^ v[i]) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 32;
	}
	return h;
}

bool repl_shared(const struct rp_repl *r, uint64_t node, const struct rp_kv_record *kv)
{
	return !repl_expired(r, kv->deleted, kv->stamp) && repl_eligible(r, node, kv->key);
}

void repl_run_free(struct repl_run *run)
{
	repl_buf_free(&run->cursor);
	repl_buf_free(&run->resume);
	repl_buf_free(&run->list_end);
	repl_buf_free(&run->list_keys);
	repl_buf_free(&run->wanted);
	for (uint32_t i = 0; i < REPL_RANGES; i++) {
		repl_buf_free(&run->ranges[i].begin);
		repl_buf_free(&run->ranges[i].end);
	}
	*run = (struct repl_run){0};
}

void repl_run_start(struct rp_repl *r, struct repl_peer *p)
{
	struct repl_run *run = &p->run;

	RP_ASSERT(p->connected && !run->active);
	run->active = true;
	run->last = run->list_open = run->digests_open = false;
	run->pull = r->pulling;
	run->pull_since = r->pull_since;
	run->started_ns = r->now.ns;
	run->started_wall_us = r->now.wall_us;
	run->cursor.length = run->resume.length = 0;
	run->range_count = run->differ = run->items_open = 0;
	run->list_keys.length = run->wanted.length = 0;
	run->wanted_at = 0;
}

void repl_run_stop(struct rp_repl *r, struct repl_peer *p, bool failed)
{
	if (p->run.active && failed)
		REPL_COUNT(r, sync_runs_failed, 1);
	repl_run_free(&p->run);
}

static void repl_sync_begin(struct rp_repl *r)
{
	struct repl_hello hello;

	r->out.length = 0;
	repl_hello_make(r, &hello);
	repl_put_hello(&r->out, REPL_F_HELLO, &hello);
}

static void repl_send_digests(struct rp_repl *r, struct repl_peer *p)
{
	struct repl_run *run = &p->run;
	struct rp_kv_record page[REPL_RANGE_KEYS + 1];

	repl_sync_begin(r);
	run->range_count = 0;
	while (run->range_count < REPL_RANGES && !run->last) {
		struct repl_key_range *kept = &run->ranges[run->range_count++];
		uint32_t n = rp_kv_record_page(r->kv, repl_buf_span(&run->cursor), false,
			(struct rp_span){0}, page, REPL_RANGE_KEYS + 1);
		struct repl_range range = {0};

		repl_buf_set(&kept->begin, repl_buf_span(&run->cursor));
		kept->end.length = 0;
		if (n > REPL_RANGE_KEYS)
			repl_buf_set(&kept->end, page[--n].key);
		else
			run->last = true;
		for (uint32_t i = 0; i < n; i++) {
			if (!repl_shared(r, p->node, &page[i]))
				continue;
			range.count++;
			range.digest += repl_digest(&page[i]);
		}
		range.begin = repl_buf_span(&kept->begin);
		range.end = repl_buf_span(&kept->end);
		repl_put_range(&r->out, REPL_F_SYNC_RANGES, &range);
		repl_buf_set(&run->cursor, range.end);
	}
	run->digests_open = repl_call(r, p, REPL_FOR_DIGESTS, repl_buf_span(&r->out), NULL);
}

static void repl_send_list(struct rp_repl *r, struct repl_peer *p)
{
	struct repl_run *run = &p->run;
	struct rp_kv_record page[64];
	struct repl_range listed;
	struct rp_span end, from;
	uint32_t total = 0;
	bool after = false;
	size_t mark;

	run->listing = (uint32_t)__builtin_ctz(run->differ);
	if (run->resume.length == 0)
		repl_buf_set(&run->resume, repl_buf_span(&run->ranges[run->listing].begin));
	end = repl_buf_span(&run->ranges[run->listing].end);
	repl_buf_set(&run->list_end, end);
	run->list_end_is_range = true;
	run->list_keys.length = 0;
	repl_sync_begin(r);
	from = repl_buf_span(&run->resume);
	for (uint32_t n = 1; n > 0 && run->list_end_is_range;) {
		n = rp_kv_record_page(r->kv, from, after, end, page, RP_ARRAY_SIZE(page));
		for (uint32_t i = 0; i < n; i++) {
			struct repl_record record;
			struct repl_meta meta = {.key = page[i].key, .deleted = page[i].deleted};

			from = page[i].key;
			if (total == REPL_LIST_KEYS || r->out.length > r->config.message_bytes) {
				repl_buf_set(&run->list_end, page[i].key);
				run->list_end_is_range = false;
				break;
			}
			if (!repl_eligible(r, p->node, page[i].key))
				continue;
			repl_record_of(r, &page[i], &record);
			repl_rank_of(r, &record, &meta.rank);
			repl_put_meta(&r->out, REPL_F_SYNC_LIST, &meta);
			repl_put_varint(&run->list_keys, meta.key.length);
			repl_buf_append(&run->list_keys, meta.key.data, meta.key.length);
			total++;
		}
		after = true;
	}
	listed = (struct repl_range){.begin = repl_buf_span(&run->resume),
		.end = repl_buf_span(&run->list_end),
		.count = total};
	mark = r->out.length;
	repl_put_range(&r->out, REPL_F_SYNC_LISTED, &listed);
	RP_ASSERT(r->out.length > mark);
	REPL_COUNT(r, ranges_differ, 1);
	run->list_open = repl_call(r, p, REPL_FOR_LIST, repl_buf_span(&r->out), NULL);
}

/** One key of a packed list of keys; false at its end. */
static bool repl_key_next(const struct repl_buf *b, size_t *at, struct rp_span *key)
{
	uint64_t length = 0;

	if (*at >= b->length)
		return false;
	for (unsigned shift = 0;; shift += 7) {
		uint8_t byte = b->data[(*at)++];

		length |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			break;
	}
	*key = (struct rp_span){.data = b->data + *at, .length = length};
	*at += length;
	return true;
}

/** Sends what the peer wanted, no more than half a queue at once. True: all of it is queued. */
static bool repl_send_wanted(struct rp_repl *r, struct repl_peer *p)
{
	struct repl_run *run = &p->run;
	struct rp_span key;

	while (p->fall == REPL_FALL_NONE && p->queued_bytes < r->config.queue_bytes / 2 &&
		p->queued_writes < (r->config.queue_writes + 1) / 2 &&
		repl_key_next(&run->wanted, &run->wanted_at, &key)) {
		struct repl_record record;

		if (repl_record_find(r, key, &record) && repl_eligible(r, p->node, key))
			repl_enqueue_sync(r, p, &record);
	}
	repl_pump(r, p);
	if (run->wanted_at < run->wanted.length)
		return false;
	run->wanted.length = run->wanted_at = 0;
	return true;
}

void repl_run_step(struct rp_repl *r, struct repl_peer *p)
{
	struct repl_run *run = &p->run;

	if (!run->active || p->fall != REPL_FALL_NONE)
		return;
	if (!repl_send_wanted(r, p) || p->sync_call)
		return;
	if (run->differ != 0) {
		repl_send_list(r, p);
	} else if (!run->last) {
		repl_send_digests(r, p);
	} else if (run->items_open == 0) {
		p->synced_ns = run->started_ns;
		p->synced_wall_us = run->started_wall_us;
		REPL_COUNT(r, sync_runs, 1);
		repl_run_stop(r, p, false);
		repl_synced(r, p);
	}
}

/* ---- answers ---- */

/** Next number of a repeated uint32 that may come packed or not. */
static bool repl_packed_next(struct rp_reader *packed, uint64_t *v)
{
	unsigned shift = 0;

	if (packed->bad || rp_reader_left(packed) == 0)
		return false;
	for (*v = 0; shift < 64; shift += 7) {
		uint8_t byte = rp_read_u8(packed);

		*v |= (uint64_t)(byte & 0x7f) << shift;
		if (packed->bad || byte < 0x80)
			return !packed->bad;
	}
	packed->bad = true;
	return false;
}

/** Sets the bits that a repeated uint32 names; false when one is not below `limit`. */
static bool repl_bits_take(uint64_t *bits, uint32_t limit, const struct repl_field *f)
{
	struct rp_reader packed = rp_reader_of(f->bytes.data, f->bytes.length);
	uint64_t v = f->value;

	if (f->type == REPL_WIRE_VARINT) {
		if (v >= limit)
			return false;
		bits[v / 64] |= 1ull << (v % 64);
		return true;
	}
	while (repl_packed_next(&packed, &v)) {
		if (v >= limit)
			return false;
		bits[v / 64] |= 1ull << (v % 64);
	}
	return !packed.bad && f->type == REPL_WIRE_BYTES;
}

static int repl_digests_answered(struct rp_repl *r, struct repl_peer *p, struct rp_span answer)
{
	struct rp_reader reader = rp_reader_of(answer.data, answer.length);
	struct repl_run *run = &p->run;
	struct repl_field f;
	uint64_t bits[1] = {0};

	while (repl_field_next(&reader, &f))
		if (f.number == REPL_F_REPLY_DIFFER && !repl_bits_take(bits, run->range_count, &f))
			return -EINVAL;
	if (reader.bad)
		return -EINVAL;
	run->digests_open = false;
	run->differ = (uint32_t)bits[0];
	run->resume.length = 0;
	REPL_COUNT(r, ranges_equal, run->range_count - (unsigned)__builtin_popcount(run->differ));
	return 0;
}

struct repl_list_answer {
	uint64_t wanted[REPL_LIST_KEYS / 64], unknown[REPL_LIST_KEYS / 64];
	struct rp_span resume;
	bool more;
};

static bool repl_list_check(struct rp_span answer, struct repl_list_answer *a)
{
	struct rp_reader reader = rp_reader_of(answer.data, answer.length);
	struct repl_field f;

	*a = (struct repl_list_answer){0};
	while (repl_field_next(&reader, &f)) {
		struct repl_record record;

		if (f.number == REPL_F_REPLY_WANTED) {
			if (!repl_bits_take(a->wanted, REPL_LIST_KEYS, &f))
				return false;
		} else if (f.number == REPL_F_REPLY_UNKNOWN) {
			if (!repl_bits_take(a->unknown, REPL_LIST_KEYS, &f))
				return false;
		} else if (f.number == REPL_F_REPLY_MORE) {
			a->more = f.value != 0;
		} else if (f.number == REPL_F_REPLY_RESUME) {
			a->resume = f.bytes;
		} else if (f.number == REPL_F_REPLY_NEWER) {
			if (f.type != REPL_WIRE_BYTES || !repl_get_record(f.bytes, &record))
				return false;
		}
	}
	return !reader.bad;
}

/**
 * This node was away for longer than tombstones are kept. What it has from before, and the other
 * has never heard of, was deleted meanwhile.
 */
static bool repl_pull_drop(struct rp_repl *r, const struct repl_run *run, struct rp_span key)
{
	struct rp_kv_record kv;
	struct repl_record t;
	struct repl_rank rank;

	if (!run->pull || !rp_kv_record_get(r->kv, key, &kv) || kv.stamp > run->pull_since)
		return false;
	if (!kv.deleted) {
		repl_record_of(r, &kv, &t);
		repl_rank_of(r, &t, &rank);
		if (repl_key_is_dispatcher(key))
			repl_epoch_set(r, key, rank.epoch);
		t.kv.deleted = true;
		t.kv.force = true;
		t.kv.stamp = kv.stamp + 1;
		t.kv.node = r->config.node;
		t.kv.key = key;
		t.kv.value = (struct rp_span){0};
		t.kv.lease = 0;
		rp_kv_apply_replicated(r->kv, &t.kv, 1, REPL_ORIGIN_PEER);
		REPL_COUNT(r, pull_dropped, 1);
	}
	return true;
}

static void repl_list_wanted(
	struct rp_repl *r, struct repl_run *run, const struct repl_list_answer *a)
{
	struct rp_span key;
	size_t at = 0;

	for (uint32_t i = 0; repl_key_next(&run->list_keys, &at, &key); i++) {
		uint64_t bit = 1ull << (i % 64);

		if (!(a->wanted[i / 64] & bit))
			continue;
		if ((a->unknown[i / 64] & bit) && repl_pull_drop(r, run, key))
			continue;
		repl_put_varint(&run->wanted, key.length);
		repl_buf_append(&run->wanted, key.data, key.length);
	}
}

static int repl_list_answered(struct rp_repl *r, struct repl_peer *p, struct rp_span answer)
{
	struct repl_run *run = &p->run;
	struct repl_list_answer a;
	struct rp_reader reader = rp_reader_of(answer.data, answer.length);
	struct rp_span end = repl_buf_span(&run->list_end);
	struct repl_merge m;
	struct repl_field f;

	if (!repl_list_check(answer, &a))
		return -EINVAL;
	/* It must get on, and stay inside, or the run would never end. */
	if (a.more && (repl_span_compare(a.resume, repl_buf_span(&run->resume)) <= 0 ||
			      (end.length > 0 && repl_span_compare(a.resume, end) >= 0)))
		return -EINVAL;
	repl_merge_begin(&m, r, p->node);
	while (repl_field_next(&reader, &f)) {
		struct repl_record record;

		if (f.number == REPL_F_REPLY_NEWER && repl_get_record(f.bytes, &record))
			repl_merge_add(&m, &record);
	}
	repl_merge_end(&m);
	repl_list_wanted(r, run, &a);
	run->list_open = false;
	if (a.more) {
		repl_buf_set(&run->resume, a.resume);
	} else if (!run->list_end_is_range) {
		repl_buf_set(&run->resume, end);
	} else {
		run->differ &= run->differ - 1;
		run->resume.length = 0;
	}
	return 0;
}

int repl_run_answer(
	struct rp_repl *r, struct repl_peer *p, enum repl_purpose purpose, struct rp_span answer)
{
	if (!p->run.active)
		return 0;
	if (purpose == REPL_FOR_DIGESTS && p->run.digests_open)
		return repl_digests_answered(r, p, answer);
	if (purpose == REPL_FOR_LIST && p->run.list_open)
		return repl_list_answered(r, p, answer);
	return 0;
}
