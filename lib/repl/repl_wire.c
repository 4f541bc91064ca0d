/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The protobuf wire format of proto/ringpost/v1/repl.proto, written and read in place: a record's
 * key and value are never copied on their way in, nothing is allocated for what a peer sends, and a
 * message is built up to its limit of bytes. The unit test holds it against protobuf-c.
 */

#include <stdlib.h>

#include <base/assert.h>
#include <repl/repl_priv.h>

static void repl_buf_reserve(struct repl_buf *b, size_t more)
{
	size_t size = RP_MAX(b->size, (size_t)256);

	if (b->size - b->length >= more)
		return;
	while (size - b->length < more)
		size *= 2;
	b->data = realloc(b->data, size);
	RP_ASSERT(b->data);
	b->size = size;
}

void repl_buf_append(struct repl_buf *b, const void *data, size_t length)
{
	if (length == 0)
		return;
	repl_buf_reserve(b, length);
	memcpy(b->data + b->length, data, length);
	b->length += length;
}

void repl_buf_set(struct repl_buf *b, struct rp_span s)
{
	b->length = 0;
	repl_buf_append(b, s.data, s.length);
}

void repl_buf_free(struct repl_buf *b)
{
	free(b->data);
	*b = (struct repl_buf){0};
}

static size_t repl_varint_encode(uint8_t out[10], uint64_t v)
{
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		out[n++] = (uint8_t)(v | 0x80);
	out[n++] = (uint8_t)v;
	return n;
}

void repl_put_varint(struct repl_buf *b, uint64_t v)
{
	uint8_t bytes[10];

	repl_buf_append(b, bytes, repl_varint_encode(bytes, v));
}

static void repl_put_tag(struct repl_buf *b, uint32_t field, uint32_t type)
{
	repl_put_varint(b, (uint64_t)field << 3 | type);
}

void repl_put_uint(struct repl_buf *b, uint32_t field, uint64_t v)
{
	if (v == 0)
		return;
	repl_put_tag(b, field, REPL_WIRE_VARINT);
	repl_put_varint(b, v);
}

void repl_put_fixed64(struct repl_buf *b, uint32_t field, uint64_t v)
{
	uint8_t bytes[8];
	struct rp_writer w = rp_writer_of(bytes, sizeof(bytes));

	if (v == 0)
		return;
	rp_write_le64(&w, v);
	repl_put_tag(b, field, REPL_WIRE_FIXED64);
	repl_buf_append(b, bytes, sizeof(bytes));
}

void repl_put_bytes(struct repl_buf *b, uint32_t field, struct rp_span s)
{
	if (s.length == 0)
		return;
	repl_put_tag(b, field, REPL_WIRE_BYTES);
	repl_put_varint(b, s.length);
	repl_buf_append(b, s.data, s.length);
}

size_t repl_put_begin(struct repl_buf *b, uint32_t field)
{
	repl_put_tag(b, field, REPL_WIRE_BYTES);
	return b->length;
}

void repl_put_end(struct repl_buf *b, size_t mark)
{
	size_t length = b->length - mark;
	uint8_t bytes[10];
	size_t n = repl_varint_encode(bytes, length);

	repl_buf_reserve(b, n);
	memmove(b->data + mark + n, b->data + mark, length);
	memcpy(b->data + mark, bytes, n);
	b->length += n;
}

static uint64_t repl_get_varint(struct rp_reader *r)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		uint8_t byte = rp_read_u8(r);

		v |= (uint64_t)(byte & 0x7f) << shift;
		if (r->bad || byte < 0x80)
			return v;
	}
	r->bad = true;
	return 0;
}

bool repl_field_next(struct rp_reader *r, struct repl_field *f)
{
	uint64_t tag;

	if (r->bad || rp_reader_left(r) == 0)
		return false;
	tag = repl_get_varint(r);
	*f = (struct repl_field){.number = (uint32_t)(tag >> 3), .type = (uint32_t)(tag & 7)};
	if (tag >> 3 == 0 || tag >> 32 != 0)
		r->bad = true;
	switch (f->type) {
	case REPL_WIRE_VARINT:
		f->value = repl_get_varint(r);
		break;
	case REPL_WIRE_FIXED64:
		f->value = rp_read_le64(r);
		break;
	case REPL_WIRE_BYTES:
		f->bytes.length = repl_get_varint(r);
		f->bytes.data = rp_read_bytes(r, f->bytes.length);
		break;
	case REPL_WIRE_FIXED32:
		f->value = rp_read_le32(r);
		break;
	default:
		r->bad = true;
	}
	return !r->bad;
}

void repl_put_record(struct repl_buf *b, uint32_t field, const struct repl_record *record)
{
	size_t mark = repl_put_begin(b, field);

	repl_put_bytes(b, 1, record->kv.key);
	if (!record->kv.deleted)
		repl_put_bytes(b, 2, record->kv.value);
	repl_put_uint(b, 3, record->kv.deleted);
	repl_put_uint(b, 4, (uint64_t)record->kv.lease);
	repl_put_fixed64(b, 5, record->kv.stamp);
	repl_put_fixed64(b, 6, record->kv.node);
	repl_put_uint(b, 7, record->epoch);
	repl_put_end(b, mark);
}

/* A known number with another wire type is an unknown field, as protobuf has it. */
#define REPL_KEY(number, type) ((number) << 3 | (type))
#define REPL_FIELD_KEY(f) REPL_KEY((f)->number, (f)->type)

bool repl_get_record(struct rp_span bytes, struct repl_record *record)
{
	struct rp_reader r = rp_reader_of(bytes.data, bytes.length);
	struct repl_field f;

	*record = (struct repl_record){0};
	while (repl_field_next(&r, &f)) {
		switch (REPL_FIELD_KEY(&f)) {
		case REPL_KEY(1, REPL_WIRE_BYTES):
			record->kv.key = f.bytes;
			break;
		case REPL_KEY(2, REPL_WIRE_BYTES):
			record->kv.value = f.bytes;
			break;
		case REPL_KEY(3, REPL_WIRE_VARINT):
			record->kv.deleted = f.value != 0;
			break;
		case REPL_KEY(4, REPL_WIRE_VARINT):
			record->kv.lease = (int64_t)f.value;
			break;
		case REPL_KEY(5, REPL_WIRE_FIXED64):
			record->kv.stamp = f.value;
			break;
		case REPL_KEY(6, REPL_WIRE_FIXED64):
			record->kv.node = f.value;
			break;
		case REPL_KEY(7, REPL_WIRE_VARINT):
			record->epoch = (uint32_t)f.value;
			break;
		default:
			break;
		}
	}
	if (record->kv.deleted) {
		record->kv.value = (struct rp_span){0};
		record->kv.lease = 0;
	}
	return !r.bad;
}

void repl_put_hello(struct repl_buf *b, uint32_t field, const struct repl_hello *hello)
{
	size_t mark = repl_put_begin(b, field);

	repl_put_fixed64(b, 1, hello->node);
	repl_put_fixed64(b, 2, hello->cluster_high);
	repl_put_fixed64(b, 3, hello->cluster_low);
	repl_put_uint(b, 4, hello->ready);
	repl_put_fixed64(b, 5, hello->wall_us);
	repl_put_end(b, mark);
}

bool repl_get_hello(struct rp_span bytes, struct repl_hello *hello)
{
	struct rp_reader r = rp_reader_of(bytes.data, bytes.length);
	struct repl_field f;

	*hello = (struct repl_hello){0};
	while (repl_field_next(&r, &f)) {
		switch (REPL_FIELD_KEY(&f)) {
		case REPL_KEY(1, REPL_WIRE_FIXED64):
			hello->node = f.value;
			break;
		case REPL_KEY(2, REPL_WIRE_FIXED64):
			hello->cluster_high = f.value;
			break;
		case REPL_KEY(3, REPL_WIRE_FIXED64):
			hello->cluster_low = f.value;
			break;
		case REPL_KEY(4, REPL_WIRE_VARINT):
			hello->ready = f.value != 0;
			break;
		case REPL_KEY(5, REPL_WIRE_FIXED64):
			hello->wall_us = f.value;
			break;
		default:
			break;
		}
	}
	return !r.bad;
}

void repl_put_range(struct repl_buf *b, uint32_t field, const struct repl_range *range)
{
	size_t mark = repl_put_begin(b, field);

	repl_put_bytes(b, 1, range->begin);
	repl_put_bytes(b, 2, range->end);
	repl_put_uint(b, 3, range->count);
	repl_put_fixed64(b, 4, range->digest);
	repl_put_end(b, mark);
}

bool repl_get_range(struct rp_span bytes, struct repl_range *range)
{
	struct rp_reader r = rp_reader_of(bytes.data, bytes.length);
	struct repl_field f;

	*range = (struct repl_range){0};
	while (repl_field_next(&r, &f)) {
		switch (REPL_FIELD_KEY(&f)) {
		case REPL_KEY(1, REPL_WIRE_BYTES):
			range->begin = f.bytes;
			break;
		case REPL_KEY(2, REPL_WIRE_BYTES):
			range->end = f.bytes;
			break;
		case REPL_KEY(3, REPL_WIRE_VARINT):
			range->count = (uint32_t)f.value;
			break;
		case REPL_KEY(4, REPL_WIRE_FIXED64):
			range->digest = f.value;
			break;
		default:
			break;
		}
	}
	return !r.bad;
}

void repl_put_meta(struct repl_buf *b, uint32_t field, const struct repl_meta *meta)
{
	size_t mark = repl_put_begin(b, field);

	repl_put_bytes(b, 1, meta->key);
	repl_put_fixed64(b, 2, meta->rank.stamp);
	repl_put_fixed64(b, 3, meta->rank.node);
	repl_put_uint(b, 4, meta->deleted);
	repl_put_uint(b, 5, meta->rank.epoch);
	repl_put_fixed64(b, 6, meta->rank.dispatcher);
	repl_put_end(b, mark);
}

bool repl_get_meta(struct rp_span bytes, struct repl_meta *meta)
{
	struct rp_reader r = rp_reader_of(bytes.data, bytes.length);
	struct repl_field f;

	*meta = (struct repl_meta){0};
	while (repl_field_next(&r, &f)) {
		switch (REPL_FIELD_KEY(&f)) {
		case REPL_KEY(1, REPL_WIRE_BYTES):
			meta->key = f.bytes;
			break;
		case REPL_KEY(2, REPL_WIRE_FIXED64):
			meta->rank.stamp = f.value;
			break;
		case REPL_KEY(3, REPL_WIRE_FIXED64):
			meta->rank.node = f.value;
			break;
		case REPL_KEY(4, REPL_WIRE_VARINT):
			meta->deleted = f.value != 0;
			break;
		case REPL_KEY(5, REPL_WIRE_VARINT):
			meta->rank.epoch = (uint32_t)f.value;
			break;
		case REPL_KEY(6, REPL_WIRE_FIXED64):
			meta->rank.dispatcher = f.value;
			break;
		default:
			break;
		}
	}
	meta->rank.closes = meta->deleted && repl_key_is_dispatcher(meta->key);
	return !r.bad;
}
