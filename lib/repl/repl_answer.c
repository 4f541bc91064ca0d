/* SPDX-License-Identifier: Apache-2.0 */

/* Calls of peers, answered from the store: Apply, and the answering side of anti-entropy. Nothing
 * here trusts a length, an order or a number that came from outside. */

#include <errno.h>

#include <repl/repl_priv.h>

/** The hello that each message must hold. 0, -EINVAL, or -EPERM for another cluster. */
static int repl_request_hello(struct rp_repl *r, uint64_t from, struct rp_span bytes)
{
	struct rp_reader reader = rp_reader_of(bytes.data, bytes.length);
	struct repl_hello hello;
	struct repl_field f;
	bool found = false;

	while (repl_field_next(&reader, &f)) {
		if (f.number != REPL_F_HELLO || f.type != REPL_WIRE_BYTES)
			continue;
		if (!repl_get_hello(f.bytes, &hello))
			return -EINVAL;
		found = true;
	}
	if (reader.bad || !found || hello.node != from)
		return -EINVAL;
	return repl_hello_take(r, repl_peer_by_node(r, from), &hello);
}

static void repl_answer_begin(struct rp_repl *r)
{
	struct repl_hello hello;

	r->answer.length = 0;
	repl_hello_make(r, &hello);
	repl_put_hello(&r->answer, REPL_F_HELLO, &hello);
}

int repl_answer_apply(struct rp_repl *r, uint64_t from, struct rp_span bytes)
{
	struct rp_reader reader = rp_reader_of(bytes.data, bytes.length);
	struct repl_merge m;
	struct repl_record record;
	struct repl_field f;
	int error = repl_request_hello(r, from, bytes);

	if (error)
		return error;
	/* All of it is looked at before any of it is taken. */
	while (repl_field_next(&reader, &f))
		if (f.number == REPL_F_APPLY_RECORDS &&
			(f.type != REPL_WIRE_BYTES || !repl_get_record(f.bytes, &record)))
			return -EINVAL;
	reader = rp_reader_of(bytes.data, bytes.length);
	repl_merge_begin(&m, r, from);
	while (repl_field_next(&reader, &f))
		if (f.number == REPL_F_APPLY_RECORDS && repl_get_record(f.bytes, &record))
			repl_merge_add(&m, &record);
	repl_merge_end(&m);
	repl_answer_begin(r);
	repl_put_uint(&r->answer, REPL_F_APPLIED_TAKEN, m.taken);
	repl_put_uint(&r->answer, REPL_F_APPLIED_SKEWED, m.skewed);
	return 0;
}

/** Does the range look different here? `budget` bounds what one call may make us read. */
static bool repl_range_differs(
	struct rp_repl *r, uint64_t from, const struct repl_range *range, uint32_t *budget)
{
	struct rp_kv_record page[64];
	struct rp_span at = range->begin;
	uint64_t digest = 0;
	uint32_t count = 0, n;
	bool after = false;

	do {
		n = rp_kv_record_page(r->kv, at, after, range->end, page, RP_ARRAY_SIZE(page));
		for (uint32_t i = 0; i < n; i++) {
			if (!repl_shared(r, from, &page[i]))
				continue;
			count++;
			digest += repl_digest(&page[i]);
		}
		if (count > range->count || *budget < n)
			return true;
		*budget -= n;
		if (n > 0)
			at = page[n - 1].key;
		after = true;
	} while (n == RP_ARRAY_SIZE(page));
	return count != range->count || digest != range->digest;
}

/** Answers all digests of the message; -EINVAL when one is malformed or there are too many. */
static int repl_answer_digests(struct rp_repl *r, uint64_t from, struct rp_span bytes)
{
	struct rp_reader reader = rp_reader_of(bytes.data, bytes.length);
	uint32_t number = 0, budget = REPL_ANSWER_KEYS;
	struct repl_buf *differ = &r->scratch[0];
	struct repl_field f;

	differ->length = 0;
	while (repl_field_next(&reader, &f)) {
		struct repl_range range;

		if (f.number != REPL_F_SYNC_RANGES)
			continue;
		if (f.type != REPL_WIRE_BYTES || !repl_get_range(f.bytes, &range) || number == 64)
			return -EINVAL;
		if (range.end.length > 0 && repl_span_compare(range.begin, range.end) >= 0)
			return -EINVAL;
		if (repl_range_differs(r, from, &range, &budget))
			repl_put_varint(differ, number);
		number++;
	}
	repl_put_bytes(&r->answer, REPL_F_REPLY_DIFFER, repl_buf_span(differ));
	return 0;
}

/* ---- lists ---- */

/** The listed keys of a message, in order. */
struct repl_list_reader {
	struct rp_reader reader;
	struct repl_meta meta;
	uint32_t index; /**< of meta */
	bool valid;
};

static void repl_list_next(struct repl_list_reader *l)
{
	struct repl_field f;

	l->index += l->valid;
	l->valid = false;
	while (!l->valid && repl_field_next(&l->reader, &f))
		if (f.number == REPL_F_SYNC_LIST)
			l->valid = repl_get_meta(f.bytes, &l->meta);
}

static void repl_list_first(struct repl_list_reader *l, struct rp_span bytes)
{
	*l = (struct repl_list_reader){.reader = rp_reader_of(bytes.data, bytes.length)};
	repl_list_next(l);
}

/** Finds the listed range and checks the list: inside of it and strictly ascending. */
static int repl_list_check_order(struct rp_span bytes, struct repl_range *listed, bool *found)
{
	struct rp_reader reader = rp_reader_of(bytes.data, bytes.length);
	struct rp_span last = {0};
	struct repl_field f;
	uint32_t count = 0;

	*found = false;
	while (repl_field_next(&reader, &f)) {
		struct repl_meta meta;

		if (f.number == REPL_F_SYNC_LISTED) {
			if (f.type != REPL_WIRE_BYTES || !repl_get_range(f.bytes, listed))
				return -EINVAL;
			*found = true;
		} else if (f.number == REPL_F_SYNC_LIST) {
			if (f.type != REPL_WIRE_BYTES || !repl_get_meta(f.bytes, &meta) ||
				(count > 0 && repl_span_compare(meta.key, last) <= 0))
				return -EINVAL;
			last = meta.key;
			count++;
		}
	}
	if (count > REPL_LIST_KEYS || (count > 0 && !*found))
		return -EINVAL;
	if (!*found)
		return 0;
	if (listed->end.length > 0 &&
		(repl_span_compare(listed->begin, listed->end) >= 0 ||
			(count > 0 && repl_span_compare(last, listed->end) >= 0)))
		return -EINVAL;
	if (count > 0) {
		struct repl_list_reader l;

		repl_list_first(&l, bytes);
		if (l.valid && repl_span_compare(l.meta.key, listed->begin) < 0)
			return -EINVAL;
	}
	return 0;
}

/** Records of the store in a range, one at a time, those that may go to the asker. */
struct repl_store_reader {
	struct rp_repl *r;
	uint64_t node;
	struct rp_span end, at;
	struct rp_kv_record page[64];
	uint32_t count, next, looked;
	bool after, valid;
	struct repl_record record;
};

static void repl_store_next(struct repl_store_reader *s)
{
	for (s->valid = false; !s->valid; s->next++) {
		const struct rp_kv_record *kv;

		if (s->next == s->count) {
			if (s->after && s->count < RP_ARRAY_SIZE(s->page))
				return;
			s->count = rp_kv_record_page(
				s->r->kv, s->at, s->after, s->end, s->page, RP_ARRAY_SIZE(s->page));
			s->next = 0;
			s->after = true;
			if (s->count == 0)
				return;
			s->at = s->page[s->count - 1].key;
		}
		kv = &s->page[s->next];
		s->looked++;
		if (!repl_eligible(s->r, s->node, kv->key))
			continue;
		repl_record_of(s->r, kv, &s->record);
		s->valid = true;
	}
}

/** Of a key that only this node has: is the asker told? */
static bool repl_tell(const struct rp_repl *r, const struct rp_kv_record *kv)
{
	if (repl_expired(r, kv->deleted, kv->stamp))
		return false;
	/* While this node catches up after a long absence, what it has from before is in doubt. */
	return !(r->pulling && kv->stamp <= r->pull_since);
}

/** Of a key that only the asker has: is it wanted? */
static bool repl_want(struct rp_repl *r, uint64_t from, const struct repl_meta *meta)
{
	uint64_t ahead = r->config.max_skew_s * 1000000ull;

	if (!repl_eligible(r, from, meta->key))
		return false;
	if (meta->rank.stamp > r->now.wall_us && meta->rank.stamp - r->now.wall_us > ahead) {
		REPL_COUNT(r, records_skew, 1);
		return false;
	}
	return true;
}

struct repl_list_work {
	struct repl_store_reader store;
	struct repl_list_reader list;
	struct repl_buf *wanted, *unknown;
	bool told;
};

static void repl_list_want(struct repl_list_work *w, bool unknown)
{
	repl_put_varint(w->wanted, w->list.index);
	if (unknown)
		repl_put_varint(w->unknown, w->list.index);
}

/** One step of the merge of both sequences. False: no room for the record that is due. */
static bool repl_list_step(struct repl_list_work *w)
{
	struct rp_repl *r = w->store.r;
	const struct repl_record *here = &w->store.record;
	const struct repl_meta *there = &w->list.meta;
	struct repl_rank rank;
	int c = !w->store.valid ? 1 : -1;

	if (w->store.valid && w->list.valid)
		c = repl_span_compare(here->kv.key, there->key);
	if (c > 0) {
		if (!repl_expired(r, there->deleted, there->rank.stamp) &&
			repl_want(r, w->store.node, there))
			repl_list_want(w, true);
		repl_list_next(&w->list);
		return true;
	}
	if (c == 0) {
		repl_rank_of(r, here, &rank);
		c = repl_rank_compare(&there->rank, &rank);
		if (c > 0 && repl_want(r, w->store.node, there))
			repl_list_want(w, false);
	} else {
		c = repl_tell(r, &here->kv) ? -1 : 0;
		there = NULL;
	}
	if (c < 0) {
		size_t size = here->kv.key.length + here->kv.value.length + 64;

		if (w->told && r->answer.length + size > r->config.message_bytes)
			return false;
		repl_put_record(&r->answer, REPL_F_REPLY_NEWER, here);
		w->told = true;
	}
	if (there)
		repl_list_next(&w->list);
	repl_store_next(&w->store);
	return true;
}

/** Enough for one call; the asker's keys below the one to go on with must have been seen. */
static bool repl_list_long(const struct repl_list_work *w)
{
	return w->store.valid && w->store.looked > REPL_ANSWER_KEYS &&
	       (!w->list.valid || repl_span_compare(w->store.record.kv.key, w->list.meta.key) <= 0);
}

static void repl_answer_list(
	struct rp_repl *r, uint64_t from, struct rp_span bytes, const struct repl_range *listed)
{
	struct repl_list_work w = {
		.store = {.r = r, .node = from, .at = listed->begin, .end = listed->end},
		.wanted = &r->scratch[0],
		.unknown = &r->scratch[1],
	};
	bool more = false;

	w.wanted->length = w.unknown->length = 0;
	repl_list_first(&w.list, bytes);
	repl_store_next(&w.store);
	while (!more && (w.store.valid || w.list.valid))
		more = !repl_list_step(&w) || repl_list_long(&w);
	repl_put_bytes(&r->answer, REPL_F_REPLY_WANTED, repl_buf_span(w.wanted));
	repl_put_bytes(&r->answer, REPL_F_REPLY_UNKNOWN, repl_buf_span(w.unknown));
	if (more) {
		repl_put_uint(&r->answer, REPL_F_REPLY_MORE, 1);
		repl_put_bytes(&r->answer, REPL_F_REPLY_RESUME, w.store.record.kv.key);
	}
}

int repl_answer_sync(struct rp_repl *r, uint64_t from, struct rp_span bytes)
{
	struct repl_range listed = {0};
	bool found;
	int error = repl_request_hello(r, from, bytes);

	if (!error)
		error = repl_list_check_order(bytes, &listed, &found);
	if (error)
		return error;
	repl_answer_begin(r);
	error = repl_answer_digests(r, from, bytes);
	if (!error && found)
		repl_answer_list(r, from, bytes, &listed);
	return error;
}
