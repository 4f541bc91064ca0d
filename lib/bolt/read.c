/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include <base/bytes.h>
#include <bolt/bolt.h>

#include "format_priv.h"

#define READ_PAGE_BYTES_MAX 65536u
#define READ_DEPTH_MAX 32

struct page {
	const uint8_t *at;
	uint64_t bytes; /* with its overflow */
	uint16_t flags, count;
};

struct element {
	uint32_t flags;
	struct rp_span key, value; /* value: of a leaf */
	uint64_t page;		   /* of a branch */
};

struct walk {
	const struct rp_bolt_file *f;
	bool (*fn)(void *ctx, struct rp_span key, struct rp_span value);
	void *ctx;
	const char *why;
	/* A file that names a page more than once would be walked for ever. */
	uint64_t pages_left;
	/* The bucket's value, while its name is looked for. */
	const char *wanted;
	struct rp_span found;
};

static int broken(struct walk *w, const char *why)
{
	w->why = why;
	return -EINVAL;
}

static bool meta_read(struct rp_span page, struct rp_bolt_file *f, uint64_t *txn)
{
	struct rp_reader r;
	uint32_t magic, version;

	if (page.length < BOLT_PAGE_HEADER + BOLT_META_BYTES)
		return false;
	r = rp_reader_of(page.data + BOLT_PAGE_HEADER, BOLT_META_BYTES);
	magic = rp_read_le32(&r);
	version = rp_read_le32(&r);
	f->page_bytes = rp_read_le32(&r);
	(void)rp_read_le32(&r);
	f->root = rp_read_le64(&r);
	(void)rp_read_bytes(&r, 24);
	*txn = rp_read_le64(&r);
	return magic == BOLT_MAGIC && version == BOLT_VERSION && f->page_bytes >= 512 &&
	       f->page_bytes <= READ_PAGE_BYTES_MAX && (f->page_bytes & (f->page_bytes - 1)) == 0 &&
	       rp_read_le64(&r) == bolt_checksum(page.data + BOLT_PAGE_HEADER);
}

int rp_bolt_open(struct rp_bolt_file *f, struct rp_span bytes, const char **why)
{
	struct rp_bolt_file first, second;
	uint64_t first_txn = 0, second_txn = 0;
	bool has_first = meta_read(bytes, &first, &first_txn), has_second = false;

	/* The second meta lies behind the first's page, whose size the first knows. */
	for (uint32_t size = 512; !has_second && size <= READ_PAGE_BYTES_MAX; size *= 2) {
		if ((has_first && size != first.page_bytes) || bytes.length < 2ull * size)
			continue;
		has_second = meta_read((struct rp_span){.data = bytes.data + size, .length = size},
				     &second, &second_txn) &&
			     second.page_bytes == size;
	}
	if (!has_first && !has_second) {
		*why = "no bbolt file: neither meta page is right";
		return -EINVAL;
	}
	*f = has_second && (!has_first || second_txn > first_txn) ? second : first;
	f->bytes = bytes;
	return 0;
}

static int page_get(struct walk *w, uint64_t id, struct page *p)
{
	const struct rp_bolt_file *f = w->f;
	uint64_t pages = f->bytes.length / f->page_bytes;
	struct rp_reader r;
	uint32_t overflow;

	if (id >= pages)
		return broken(w, "a page is named that the file does not have");
	if (w->pages_left-- == 0)
		return broken(w, "pages name each other");
	p->at = f->bytes.data + id * f->page_bytes;
	r = rp_reader_of(p->at, BOLT_PAGE_HEADER);
	if (rp_read_le64(&r) != id)
		return broken(w, "a page has another one's number");
	p->flags = rp_read_le16(&r);
	p->count = rp_read_le16(&r);
	overflow = rp_read_le32(&r);
	if (overflow >= pages - id)
		return broken(w, "a page reaches behind the file's end");
	p->bytes = ((uint64_t)overflow + 1) * f->page_bytes;
	return 0;
}

/* Bytes of the page, `pos` from the element that begins at `from`. */
static bool page_span(
	const struct page *p, uint64_t from, uint32_t pos, uint64_t length, struct rp_span *out)
{
	if (pos > p->bytes - from || length > p->bytes - from - pos)
		return false;
	*out = (struct rp_span){.data = p->at + from + pos, .length = length};
	return true;
}

static int element_get(struct walk *w, const struct page *p, uint32_t i, struct element *e)
{
	bool leaf = p->flags & BOLT_LEAF;
	uint64_t from = BOLT_PAGE_HEADER + (uint64_t)i * BOLT_LEAF_ELEMENT;
	struct rp_reader r;
	struct rp_span all;
	uint32_t pos, key, value = 0;

	if (from + BOLT_LEAF_ELEMENT > p->bytes)
		return broken(w, "a page is too small for its elements");
	r = rp_reader_of(p->at + from, BOLT_LEAF_ELEMENT);
	e->flags = leaf ? rp_read_le32(&r) : 0;
	pos = rp_read_le32(&r);
	key = rp_read_le32(&r);
	if (leaf)
		value = rp_read_le32(&r);
	else
		e->page = rp_read_le64(&r);
	if (!page_span(p, from, pos, (uint64_t)key + value, &all))
		return broken(w, "an element reaches behind its page's end");
	e->key = (struct rp_span){.data = all.data, .length = key};
	e->value = (struct rp_span){.data = all.data + key, .length = value};
	return 0;
}

static int element_tell(struct walk *w, const struct element *e)
{
	if (!w->wanted) {
		/* A bucket inside a bucket is no pair. */
		if (e->flags & BOLT_IS_BUCKET)
			return 0;
		return w->fn(w->ctx, e->key, e->value) ? 0 : -ECANCELED;
	}
	if ((e->flags & BOLT_IS_BUCKET) && e->key.length == strlen(w->wanted) &&
		memcmp(e->key.data, w->wanted, e->key.length) == 0)
		w->found = e->value;
	return 0;
}

static int page_walk(struct walk *w, const struct page *p, unsigned depth)
{
	struct element e;
	int error = 0;

	if (!(p->flags & (BOLT_LEAF | BOLT_BRANCH)))
		return broken(w, "a page is neither branch nor leaf");
	if (depth == READ_DEPTH_MAX)
		return broken(w, "the tree is too deep");
	for (uint32_t i = 0; error == 0 && i < p->count; i++) {
		struct page below;

		error = element_get(w, p, i, &e);
		if (error == 0 && (p->flags & BOLT_LEAF)) {
			error = element_tell(w, &e);
		} else if (error == 0) {
			error = page_get(w, e.page, &below);
			if (error == 0)
				error = page_walk(w, &below, depth + 1);
		}
	}
	return error;
}

static int bucket_walk(struct walk *w)
{
	struct rp_reader r = rp_reader_of(w->found.data, w->found.length);
	uint64_t root = rp_read_le64(&r);
	struct page p;
	int error;

	(void)rp_read_le64(&r);
	if (root == 0) {
		p.at = r.pos;
		p.bytes = r.bad ? 0 : rp_reader_left(&r);
		(void)rp_read_le64(&r);
		p.flags = rp_read_le16(&r);
		p.count = rp_read_le16(&r);
		(void)rp_read_le32(&r);
		if (r.bad || !(p.flags & BOLT_LEAF))
			return broken(w, "a bucket inside its parent is no leaf");
		return page_walk(w, &p, 0);
	}
	error = r.bad ? broken(w, "a bucket has no header") : page_get(w, root, &p);
	return error < 0 ? error : page_walk(w, &p, 0);
}

int rp_bolt_each(const struct rp_bolt_file *f, const char *bucket,
	bool (*fn)(void *ctx, struct rp_span key, struct rp_span value), void *ctx,
	const char **why)
{
	struct walk w = {.f = f, .fn = fn, .ctx = ctx, .wanted = bucket};
	struct page root;
	int error;

	w.pages_left = 2 * (f->bytes.length / f->page_bytes);
	error = page_get(&w, f->root, &root);
	if (error == 0)
		error = page_walk(&w, &root, 0);
	w.wanted = NULL;
	if (error == 0)
		error = w.found.data ? bucket_walk(&w) : -ENOENT;
	if (error == -EINVAL)
		*why = w.why;
	return error;
}
