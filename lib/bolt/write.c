/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <bolt/bolt.h>

#include "format_priv.h"

/* As bbolt: a bucket that fits a quarter of a page lies inside its parent. */
#define WRITE_INLINE_MAX (RP_BOLT_PAGE_BYTES / 4)
#define WRITE_ROOM (RP_BOLT_PAGE_BYTES - BOLT_PAGE_HEADER)
#define WRITE_FIRST_PAGE 3u /* behind two metas and the free list */
#define WRITE_LEVELS_MAX 32

/* A page that is to be written: of items [first, first + count) of the level below. */
struct plan_page {
	uint64_t first, id;
	uint32_t count, pages; /* pages: itself and what overflows */
};

struct plan_level {
	struct plan_page *pages;
	uint64_t count, size;
};

struct plan_bucket {
	const struct rp_bolt_bucket *source;
	struct plan_level levels[WRITE_LEVELS_MAX]; /* 0: leaves */
	uint32_t level_count;
	uint64_t inline_bytes; /* 0: it has pages of its own */
	uint64_t root;
};

struct rp_bolt_writer {
	struct plan_bucket *buckets;
	uint32_t bucket_count;
	uint64_t page_count;
	uint64_t root, root_bytes;
	/* where writing stands */
	enum { WRITE_META0, WRITE_META1, WRITE_FREELIST, WRITE_BUCKETS, WRITE_ROOT, WRITE_END } at;
	uint32_t bucket, level;
	uint64_t page;
	uint8_t *buffer;
	size_t buffer_size, buffer_have, buffer_given;
};

static uint32_t pages_of(uint64_t bytes)
{
	return (uint32_t)((bytes + RP_BOLT_PAGE_BYTES - 1) / RP_BOLT_PAGE_BYTES);
}

/* ---- layout ---- */

static int level_add(struct plan_level *l, uint64_t first)
{
	if (l->count == l->size) {
		uint64_t size = l->size > 0 ? l->size * 2 : 64;
		struct plan_page *pages = realloc(l->pages, size * sizeof(*pages));

		if (!pages)
			return -ENOMEM;
		l->pages = pages;
		l->size = size;
	}
	l->pages[l->count++] = (struct plan_page){.first = first, .pages = 1};
	return 0;
}

/* Bytes of the i-th item of a level, element included. */
static uint64_t item_bytes(const struct plan_bucket *b, uint32_t level, uint64_t i)
{
	const struct rp_bolt_bucket *s = b->source;
	uint32_t key, value;

	if (level == 0) {
		s->size(s->ctx, i, &key, &value);
		return BOLT_LEAF_ELEMENT + (uint64_t)key + value;
	}
	for (uint32_t below = level; below > 0; below--)
		i = b->levels[below - 1].pages[i].first;
	s->size(s->ctx, i, &key, &value);
	return BOLT_BRANCH_ELEMENT + (uint64_t)key;
}

/* Items go to a page while they fit; an item that fits none has pages of its own. */
static int level_plan(struct plan_bucket *b, uint32_t level, uint64_t items)
{
	struct plan_level *l = &b->levels[level];
	uint64_t room = 0;

	for (uint64_t i = 0; i < items; i++) {
		uint64_t bytes = item_bytes(b, level, i);

		/* A branch with one page below it is none: two go to each, whatever their size. */
		if (l->count == 0 ||
			(bytes > room && (level == 0 || l->pages[l->count - 1].count > 1))) {
			if (level_add(l, i) < 0)
				return -ENOMEM;
			room = WRITE_ROOM;
		}
		l->pages[l->count - 1].count++;
		if (bytes > room)
			l->pages[l->count - 1].pages += pages_of(bytes - room);
		room = bytes > room ? 0 : room - bytes;
	}
	return 0;
}

static int bucket_plan(struct rp_bolt_writer *w, struct plan_bucket *b)
{
	uint64_t items = b->source->count, bytes = BOLT_PAGE_HEADER;

	for (uint64_t i = 0; i < items && bytes <= WRITE_INLINE_MAX; i++)
		bytes += item_bytes(b, 0, i);
	if (bytes <= WRITE_INLINE_MAX) {
		b->inline_bytes = bytes;
		return 0;
	}
	do {
		RP_ASSERT(b->level_count < WRITE_LEVELS_MAX);
		if (level_plan(b, b->level_count, items) < 0)
			return -ENOMEM;
		items = b->levels[b->level_count++].count;
	} while (items > 1);
	for (uint32_t level = 0; level < b->level_count; level++)
		for (uint64_t i = 0; i < b->levels[level].count; i++) {
			b->levels[level].pages[i].id = w->page_count;
			w->page_count += b->levels[level].pages[i].pages;
		}
	b->root = b->levels[b->level_count - 1].pages[0].id;
	return 0;
}

struct rp_bolt_writer *rp_bolt_writer_new(const struct rp_bolt_bucket *buckets, uint32_t count)
{
	struct rp_bolt_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->page_count = WRITE_FIRST_PAGE;
	w->root_bytes = BOLT_PAGE_HEADER;
	w->bucket_count = count;
	w->buckets = calloc(count > 0 ? count : 1, sizeof(*w->buckets));
	for (uint32_t i = 0; w->buckets && i < count; i++) {
		w->buckets[i].source = &buckets[i];
		if (bucket_plan(w, &w->buckets[i]) < 0) {
			rp_bolt_writer_free(w);
			return NULL;
		}
		w->root_bytes += BOLT_LEAF_ELEMENT + strlen(buckets[i].name) + BOLT_BUCKET_HEADER +
				 w->buckets[i].inline_bytes;
	}
	if (!w->buckets) {
		rp_bolt_writer_free(w);
		return NULL;
	}
	w->root = w->page_count;
	w->page_count += pages_of(w->root_bytes);
	return w;
}

void rp_bolt_writer_free(struct rp_bolt_writer *w)
{
	if (!w)
		return;
	for (uint32_t i = 0; w->buckets && i < w->bucket_count; i++)
		for (uint32_t level = 0;
			level < w->buckets[i].level_count + 1 && level < WRITE_LEVELS_MAX; level++)
			free(w->buckets[i].levels[level].pages);
	free(w->buckets);
	free(w->buffer);
	free(w);
}

uint64_t rp_bolt_writer_bytes(const struct rp_bolt_writer *w)
{
	return w->page_count * RP_BOLT_PAGE_BYTES;
}

/* ---- pages ---- */

static void put_header(
	struct rp_writer *p, uint64_t id, uint16_t flags, uint32_t count, uint32_t pages)
{
	rp_write_le64(p, id);
	rp_write_le16(p, flags);
	rp_write_le16(p, (uint16_t)count);
	rp_write_le32(p, pages - 1);
}

/* A zeroed buffer of so many pages. */
static uint8_t *buffer_take(struct rp_bolt_writer *w, uint32_t pages)
{
	size_t bytes = (size_t)pages * RP_BOLT_PAGE_BYTES;

	if (bytes > w->buffer_size) {
		uint8_t *grown = realloc(w->buffer, bytes);

		if (!grown)
			return NULL;
		w->buffer = grown;
		w->buffer_size = bytes;
	}
	memset(w->buffer, 0, bytes);
	w->buffer_have = bytes;
	w->buffer_given = 0;
	return w->buffer;
}

static int make_meta(struct rp_bolt_writer *w, uint64_t txn)
{
	uint8_t *page = buffer_take(w, 1);
	struct rp_writer p = rp_writer_of(page, RP_BOLT_PAGE_BYTES);

	if (!page)
		return -ENOMEM;
	put_header(&p, txn, BOLT_META, 0, 1);
	rp_write_le32(&p, BOLT_MAGIC);
	rp_write_le32(&p, BOLT_VERSION);
	rp_write_le32(&p, RP_BOLT_PAGE_BYTES);
	rp_write_le32(&p, 0);
	rp_write_le64(&p, w->root);
	rp_write_le64(&p, 0);
	rp_write_le64(&p, WRITE_FIRST_PAGE - 1);
	rp_write_le64(&p, w->page_count);
	rp_write_le64(&p, txn);
	rp_write_le64(&p, bolt_checksum(page + BOLT_PAGE_HEADER));
	return 0;
}

static int make_freelist(struct rp_bolt_writer *w)
{
	uint8_t *page = buffer_take(w, 1);
	struct rp_writer p = rp_writer_of(page, RP_BOLT_PAGE_BYTES);

	if (!page)
		return -ENOMEM;
	put_header(&p, WRITE_FIRST_PAGE - 1, BOLT_FREELIST, 0, 1);
	return 0;
}

/* A leaf's elements and pairs behind its header: `at` is where the page begins. */
static void put_leaf(const struct rp_bolt_bucket *s, uint8_t *at, uint64_t first, uint32_t count)
{
	uint8_t *element = at + BOLT_PAGE_HEADER;
	uint8_t *data = element + (size_t)count * BOLT_LEAF_ELEMENT;

	for (uint32_t i = 0; i < count; i++, element += BOLT_LEAF_ELEMENT) {
		struct rp_writer e = rp_writer_of(element, BOLT_LEAF_ELEMENT);
		uint32_t key, value;

		s->size(s->ctx, first + i, &key, &value);
		rp_write_le32(&e, 0);
		rp_write_le32(&e, (uint32_t)(data - element));
		rp_write_le32(&e, key);
		rp_write_le32(&e, value);
		s->fill(s->ctx, first + i, data, data + key);
		data += (size_t)key + value;
	}
}

static void put_branch(
	const struct plan_bucket *b, uint32_t level, uint8_t *at, uint64_t first, uint32_t count)
{
	const struct rp_bolt_bucket *s = b->source;
	uint8_t *element = at + BOLT_PAGE_HEADER;
	uint8_t *data = element + (size_t)count * BOLT_BRANCH_ELEMENT;

	for (uint32_t i = 0; i < count; i++, element += BOLT_BRANCH_ELEMENT) {
		struct rp_writer e = rp_writer_of(element, BOLT_BRANCH_ELEMENT);
		uint64_t item = first + i;
		uint32_t key, value;

		for (uint32_t below = level; below > 0; below--)
			item = b->levels[below - 1].pages[item].first;
		s->size(s->ctx, item, &key, &value);
		rp_write_le32(&e, (uint32_t)(data - element));
		rp_write_le32(&e, key);
		rp_write_le64(&e, b->levels[level - 1].pages[first + i].id);
		s->key(s->ctx, item, data);
		data += key;
	}
}

static int make_page(struct rp_bolt_writer *w)
{
	const struct plan_bucket *b = &w->buckets[w->bucket];
	const struct plan_page *plan = &b->levels[w->level].pages[w->page];
	uint8_t *page = buffer_take(w, plan->pages);
	struct rp_writer p = rp_writer_of(page, BOLT_PAGE_HEADER);

	if (!page)
		return -ENOMEM;
	put_header(&p, plan->id, w->level == 0 ? BOLT_LEAF : BOLT_BRANCH, plan->count, plan->pages);
	if (w->level == 0)
		put_leaf(b->source, page, plan->first, plan->count);
	else
		put_branch(b, w->level, page, plan->first, plan->count);
	return 0;
}

static int make_root(struct rp_bolt_writer *w)
{
	uint32_t pages = pages_of(w->root_bytes);
	uint8_t *page = buffer_take(w, pages), *data;
	struct rp_writer p =
		rp_writer_of(page, BOLT_PAGE_HEADER + w->bucket_count * BOLT_LEAF_ELEMENT);

	if (!page)
		return -ENOMEM;
	put_header(&p, w->root, BOLT_LEAF, w->bucket_count, pages);
	data = p.end;
	for (uint32_t i = 0; i < w->bucket_count; i++) {
		const struct plan_bucket *b = &w->buckets[i];
		size_t name = strlen(b->source->name);
		uint8_t *bucket = data + name;
		struct rp_writer v = rp_writer_of(bucket, BOLT_BUCKET_HEADER + BOLT_PAGE_HEADER);

		rp_write_le32(&p, BOLT_IS_BUCKET);
		/* From the element, whose first word has just been written. */
		rp_write_le32(&p, (uint32_t)(data - (p.pos - 4)));
		rp_write_le32(&p, (uint32_t)name);
		rp_write_le32(&p, (uint32_t)(BOLT_BUCKET_HEADER + b->inline_bytes));
		memcpy(data, b->source->name, name);
		rp_write_le64(&v, b->root);
		rp_write_le64(&v, 0);
		if (b->inline_bytes > 0) {
			put_header(&v, 0, BOLT_LEAF, (uint32_t)b->source->count, 1);
			put_leaf(b->source, bucket + BOLT_BUCKET_HEADER, 0,
				(uint32_t)b->source->count);
		}
		data = bucket + BOLT_BUCKET_HEADER + b->inline_bytes;
	}
	return 0;
}

/* Steps to the next page of a bucket that has pages; false: there is none. */
static bool next_page(struct rp_bolt_writer *w)
{
	for (; w->bucket < w->bucket_count; w->bucket++, w->level = 0) {
		const struct plan_bucket *b = &w->buckets[w->bucket];

		for (; w->level < b->level_count; w->level++, w->page = 0)
			if (w->page < b->levels[w->level].count)
				return true;
	}
	return false;
}

static int make_next(struct rp_bolt_writer *w)
{
	int error;

	switch (w->at) {
	case WRITE_META0:
		w->at = WRITE_META1;
		return make_meta(w, 0);
	case WRITE_META1:
		w->at = WRITE_FREELIST;
		return make_meta(w, 1);
	case WRITE_FREELIST:
		w->at = WRITE_BUCKETS;
		return make_freelist(w);
	case WRITE_BUCKETS:
		if (next_page(w)) {
			error = make_page(w);
			w->page++;
			return error;
		}
		w->at = WRITE_ROOT;
		return make_next(w);
	case WRITE_ROOT:
		w->at = WRITE_END;
		return make_root(w);
	case WRITE_END:
		break;
	}
	w->buffer_have = w->buffer_given = 0;
	return 0;
}

ssize_t rp_bolt_write(struct rp_bolt_writer *w, uint8_t *out, size_t size)
{
	size_t done = 0;

	while (done < size) {
		size_t n;

		if (w->buffer_given == w->buffer_have) {
			if (make_next(w) < 0)
				return -ENOMEM;
			if (w->buffer_have == 0)
				break;
		}
		n = RP_MIN(size - done, w->buffer_have - w->buffer_given);
		memcpy(out + done, w->buffer + w->buffer_given, n);
		w->buffer_given += n;
		done += n;
	}
	return (ssize_t)done;
}
