/* SPDX-License-Identifier: Apache-2.0 */

/* Rows that go in together. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/fnv.h>
#include <sink/clickhouse_priv.h>

void *ch_alloc(size_t size)
{
	void *p = calloc(1, size);

	RP_ASSERT(p != NULL);
	return p;
}

static void *grow(void *p, size_t size)
{
	p = realloc(p, size);
	RP_ASSERT(p != NULL);
	return p;
}

struct ch_batch *ch_batch_new(struct ch_queue *q)
{
	struct ch_batch *b = ch_alloc(sizeof(*b));

	b->q = q;
	b->life = q->life;
	rp_list_init(&b->node);
	return b;
}

void ch_batch_free(struct ch_batch *b)
{
	rp_list_unlink(&b->node);
	sink_http_cancel(b->request);
	free(b->rows);
	free(b->body);
	free(b);
}

void ch_batch_add(struct ch_batch *b, uint64_t idx, struct rp_span value)
{
	size_t need = b->length + value.length + 1;

	if (b->count == b->size) {
		b->size = b->size ? 2 * b->size : 64;
		b->rows = grow(b->rows, b->size * sizeof(*b->rows));
	}
	if (need > b->body_size) {
		b->body_size = RP_MAX(need, 2 * b->body_size);
		b->body = grow(b->body, b->body_size);
	}
	b->rows[b->count++] =
		(struct ch_row){.idx = idx, .offset = b->length, .length = value.length + 1};
	memcpy(b->body + b->length, value.data, value.length);
	b->body[need - 1] = '\n';
	b->length = need;
}

/* Rows from `first` on, without the line's end that each has. */
static void copy_rows(struct ch_batch *to, const struct ch_batch *from, uint32_t first)
{
	for (uint32_t i = first; i < from->count; i++) {
		const struct ch_row *r = &from->rows[i];

		ch_batch_add(to, r->idx, (struct rp_span){from->body + r->offset, r->length - 1});
		to->rows[to->count - 1].withdrawn = r->withdrawn;
		to->withdrawn += r->withdrawn;
	}
}

void ch_batch_halve(struct ch_batch *b)
{
	struct ch_batch *half = ch_batch_new(b->q);
	uint32_t first = b->count / 2;

	RP_ASSERT(b->count > 1);
	half->life = b->life;
	half->state = CH_BATCH_READY;
	half->part = b->part = true;
	half->first_ns = b->first_ns;
	copy_rows(half, b, first);
	b->withdrawn -= half->withdrawn;
	b->count = first;
	b->length = b->rows[first].offset;
	b->sent = false;
	rp_list_insert_between(&half->node, &b->node, b->node.next);
}

void ch_batch_clean(struct ch_batch *b)
{
	uint32_t kept = 0;
	size_t length = 0;

	RP_ASSERT(!b->sent);
	if (b->withdrawn == 0)
		return;
	b->q->held -= b->withdrawn;
	b->q->held_bytes -= b->length;
	for (uint32_t i = 0; i < b->count; i++) {
		struct ch_row r = b->rows[i];

		if (r.withdrawn)
			continue;
		memmove(b->body + length, b->body + r.offset, r.length);
		r.offset = length;
		length += r.length;
		b->rows[kept++] = r;
	}
	b->count = kept;
	b->length = length;
	b->withdrawn = 0;
	b->q->held_bytes += length;
}

void ch_batch_token(const struct ch_batch *b, char *token, size_t size)
{
	uint64_t hash = RP_FNV1A_BASIS;

	/* A message is known by its queue and number for its whole life. */
	for (uint32_t i = 0; i < b->count; i++) {
		const uint64_t row[] = {b->rows[i].idx, b->rows[i].length};

		hash = rp_fnv1a(hash, row, sizeof(row));
	}
	hash = rp_fnv1a(hash, b->q->name, b->q->name_length);
	snprintf(token, size, "ringpost-%" PRIx64 "-%" PRIu64 "-%" PRIu32 "-%016" PRIx64,
		b->q->c->node, b->rows[0].idx, b->count, hash);
}
