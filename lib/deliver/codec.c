/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>
#include <base/bytes.h>

#include "codec_priv.h"

#define X(name) [RP_QMSG_##name] = RP_FRAME_##name,
static const uint8_t frame_types[] = {RP_QMSG_TYPES(X)};
#undef X

uint8_t dl_frame_type(enum rp_qmsg_type type)
{
	RP_ASSERT((unsigned)type < RP_QMSG_TYPE_COUNT);
	return frame_types[type];
}

enum rp_qmsg_type dl_qmsg_type(uint8_t frame_type)
{
	for (unsigned i = 0; i < RP_ARRAY_SIZE(frame_types); i++) {
		if (frame_types[i] == frame_type)
			return (enum rp_qmsg_type)i;
	}
	return RP_QMSG_TYPE_COUNT;
}

/* What most forwards have: who made it, its tail, its length. */
#define FIELDS_PLAIN (DL_FIELD_PRODUCER | DL_FIELD_TAIL | DL_FIELD_TOTAL)
#define FIELDS_PLAIN_BYTES (24 + 1 + 4)

static bool is_plain(const struct rp_qmsg *m, const struct dl_extra *extra, bool with_name)
{
	uint64_t more = m->idx | m->alloc_node | m->token | m->mod_revision | m->holder_node |
			m->holder_life | m->age_us | m->attempt | m->count | m->deliveries |
			m->process.kind | (uint64_t)m->status;

	return more == 0 && m->producer_node && m->tail_length && extra->has_total &&
	       !extra->has_seq && !with_name && rp_uuid_is_zero(m->uuid);
}

static uint16_t fields_of(const struct rp_qmsg *m, const struct dl_extra *extra, bool with_name)
{
	uint16_t f = 0;

	if (is_plain(m, extra, with_name))
		return FIELDS_PLAIN;
	f |= m->idx ? DL_FIELD_IDX : 0;
	f |= m->alloc_node ? DL_FIELD_ALLOC : 0;
	f |= rp_uuid_is_zero(m->uuid) ? 0 : DL_FIELD_UUID;
	f |= m->producer_node | m->producer_boot | m->producer_seq ? DL_FIELD_PRODUCER : 0;
	f |= m->token ? DL_FIELD_TOKEN : 0;
	f |= m->mod_revision ? DL_FIELD_REVISION : 0;
	f |= m->attempt ? DL_FIELD_ATTEMPT : 0;
	f |= m->count ? DL_FIELD_COUNT : 0;
	f |= m->status ? DL_FIELD_STATUS : 0;
	f |= m->tail_length ? DL_FIELD_TAIL : 0;
	f |= extra->has_total ? DL_FIELD_TOTAL : 0;
	f |= extra->has_seq ? DL_FIELD_SEQ : 0;
	f |= with_name ? DL_FIELD_NAME : 0;
	f |= m->holder_node | m->holder_life ? DL_FIELD_HOLDER : 0;
	f |= m->age_us | m->deliveries ? DL_FIELD_AGE : 0;
	f |= m->process.kind ? DL_FIELD_PROCESS : 0;
	return f;
}

/*
 * Fields are written and read without a check at each of them: all of them fit where they are
 * written, and before they are read it is known that they are there.
 */
#define X(bit, name, bytes) +(bytes)
#define FIELDS_BYTES_MAX (0 DL_FIELDS(X))
_Static_assert(FIELDS_BYTES_MAX + RP_NAME_BYTES_MAX <= RP_FRAME_FIELDS_BYTES_MAX, "all fit");

/* What the fields take; of the name only its length. */
static uint32_t fields_bytes(uint16_t f)
{
	/* What most messages have is known without a sum. */
	if (f == FIELDS_PLAIN)
		return FIELDS_PLAIN_BYTES;
#undef X
#define X(bit, name, bytes) +(f >> bit & 1) * (bytes)
	return (uint32_t)(0 DL_FIELDS(X));
#undef X
}

static void put_u8(uint8_t **p, uint8_t v)
{
	*(*p)++ = v;
}

static void put_bytes(uint8_t **p, const void *v, size_t n)
{
	memcpy(*p, v, n);
	*p += n;
}

static void put_le32(uint8_t **p, uint32_t v)
{
	put_bytes(p, &v, sizeof(v));
}

static void put_le64(uint8_t **p, uint64_t v)
{
	put_bytes(p, &v, sizeof(v));
}

static uint8_t take_u8(const uint8_t **p)
{
	return *(*p)++;
}

static uint32_t take_le32(const uint8_t **p)
{
	uint32_t v;

	memcpy(&v, *p, sizeof(v));
	*p += sizeof(v);
	return v;
}

static uint64_t take_le64(const uint8_t **p)
{
	uint64_t v;

	memcpy(&v, *p, sizeof(v));
	*p += sizeof(v);
	return v;
}

static void process_write(uint8_t **at, const struct rp_qmsg_process *p)
{
	put_le64(at, p->request);
	put_le64(at, p->left_us);
	put_bytes(at, &p->meta_length, sizeof(p->meta_length));
	put_u8(at, p->kind);
	put_u8(at, p->priority);
	put_u8(at, p->flags);
}

static bool process_read(const uint8_t **at, struct rp_qmsg_process *p)
{
	p->request = take_le64(at);
	p->left_us = take_le64(at);
	memcpy(&p->meta_length, *at, sizeof(p->meta_length));
	*at += sizeof(p->meta_length);
	p->kind = take_u8(at);
	p->priority = take_u8(at);
	p->flags = take_u8(at);
	return p->kind != RP_PROCESS_PLAIN && p->kind < RP_PROCESS_KIND_COUNT && p->priority <= 9 &&
	       p->meta_length <= RP_QMSG_META_BYTES_MAX;
}

/* Where they end. */
static uint8_t *fields_write(
	uint8_t *at, uint16_t f, const struct rp_qmsg *m, const struct dl_extra *extra)
{
	if (f == FIELDS_PLAIN) {
		put_le64(&at, m->producer_node);
		put_le64(&at, m->producer_boot);
		put_le64(&at, m->producer_seq);
		put_u8(&at, (uint8_t)m->tail_length);
		put_le32(&at, extra->total);
		return at;
	}
	if (f & DL_FIELD_IDX)
		put_le64(&at, m->idx);
	if (f & DL_FIELD_ALLOC)
		put_le64(&at, m->alloc_node);
	if (f & DL_FIELD_UUID)
		put_bytes(&at, m->uuid, RP_UUID_BYTES);
	if (f & DL_FIELD_PRODUCER) {
		put_le64(&at, m->producer_node);
		put_le64(&at, m->producer_boot);
		put_le64(&at, m->producer_seq);
	}
	if (f & DL_FIELD_TOKEN)
		put_le64(&at, m->token);
	if (f & DL_FIELD_REVISION)
		put_le64(&at, m->mod_revision);
	if (f & DL_FIELD_ATTEMPT)
		put_le32(&at, m->attempt);
	if (f & DL_FIELD_COUNT)
		put_le32(&at, m->count);
	if (f & DL_FIELD_STATUS)
		put_u8(&at, (uint8_t)m->status);
	if (f & DL_FIELD_TAIL)
		put_u8(&at, (uint8_t)m->tail_length);
	if (f & DL_FIELD_TOTAL)
		put_le32(&at, extra->total);
	if (f & DL_FIELD_SEQ) {
		put_u8(&at, extra->seq_shard);
		put_le32(&at, extra->seq);
	}
	if (f & DL_FIELD_NAME) {
		put_u8(&at, (uint8_t)m->name_length);
		put_bytes(&at, m->name, m->name_length);
	}
	if (f & DL_FIELD_HOLDER) {
		put_le64(&at, m->holder_node);
		put_le64(&at, m->holder_life);
	}
	if (f & DL_FIELD_AGE) {
		put_le64(&at, m->age_us);
		put_le32(&at, m->deliveries);
	}
	if (f & DL_FIELD_PROCESS)
		process_write(&at, &m->process);
	return at;
}

uint32_t dl_encode(struct rp_frame_header *header, const struct rp_qmsg *m,
	const struct dl_extra *extra, bool with_name, uint8_t *out)
{
	const uint8_t *end;
	uint32_t n;

	RP_ASSERT(m->tail_length <= RP_TAIL_BYTES_MAX && m->name_length <= RP_NAME_BYTES_MAX);
	RP_ASSERT(m->process.meta_length <= RP_QMSG_META_BYTES_MAX);
	header->type = dl_frame_type(m->type);
	header->flags |= m->flags & RP_FRAME_QMSG_FLAGS;
	header->fields = fields_of(m, extra, with_name);
	header->epoch = m->epoch;
	header->dispatcher = m->dispatcher;
	end = fields_write(out + RP_FRAME_HEADER_BYTES, header->fields, m, extra);
	n = (uint32_t)(end - out) - RP_FRAME_HEADER_BYTES;
	header->length += n;
	rp_frame_header_write(header, out);
	return RP_FRAME_HEADER_BYTES + n;
}

static bool plain_read(struct rp_reader *r, struct rp_qmsg *m, struct dl_extra *extra)
{
	const uint8_t *at = r->pos;

	m->producer_node = take_le64(&at);
	m->producer_boot = take_le64(&at);
	m->producer_seq = take_le64(&at);
	m->tail_length = take_u8(&at);
	extra->total = take_le32(&at);
	r->pos = at;
	return m->tail_length <= extra->total && m->type != RP_QMSG_TYPE_COUNT;
}

static bool last_fields_read(const uint8_t **at, uint16_t f, struct rp_qmsg *m)
{
	if (f & DL_FIELD_HOLDER) {
		m->holder_node = take_le64(at);
		m->holder_life = take_le64(at);
	}
	if (f & DL_FIELD_AGE) {
		m->age_us = take_le64(at);
		m->deliveries = take_le32(at);
	}
	return !(f & DL_FIELD_PROCESS) || process_read(at, &m->process);
}

bool dl_decode(const struct rp_frame_header *header, struct rp_reader *r, struct rp_qmsg *m,
	struct dl_extra *extra)
{
	uint16_t f = header->fields;
	uint32_t need = fields_bytes(f);
	const uint8_t *at = r->pos;
	uint8_t status = 0;
	bool good;

	*m = (struct rp_qmsg){
		.type = dl_qmsg_type(header->type),
		.flags = header->flags & RP_FRAME_QMSG_FLAGS,
		.epoch = header->epoch,
		.dispatcher = header->dispatcher,
	};
	*extra = (struct dl_extra){
		.has_total = f & DL_FIELD_TOTAL,
		.has_seq = f & DL_FIELD_SEQ,
	};
	if (r->bad || rp_reader_left(r) < need)
		return false;
	if (f == FIELDS_PLAIN)
		return plain_read(r, m, extra);
	if (f & DL_FIELD_IDX)
		m->idx = take_le64(&at);
	if (f & DL_FIELD_ALLOC)
		m->alloc_node = take_le64(&at);
	if (f & DL_FIELD_UUID) {
		memcpy(m->uuid, at, RP_UUID_BYTES);
		at += RP_UUID_BYTES;
	}
	if (f & DL_FIELD_PRODUCER) {
		m->producer_node = take_le64(&at);
		m->producer_boot = take_le64(&at);
		m->producer_seq = take_le64(&at);
	}
	if (f & DL_FIELD_TOKEN)
		m->token = take_le64(&at);
	if (f & DL_FIELD_REVISION)
		m->mod_revision = take_le64(&at);
	if (f & DL_FIELD_ATTEMPT)
		m->attempt = take_le32(&at);
	if (f & DL_FIELD_COUNT)
		m->count = take_le32(&at);
	if (f & DL_FIELD_STATUS)
		status = take_u8(&at);
	if (f & DL_FIELD_TAIL)
		m->tail_length = take_u8(&at);
	if (f & DL_FIELD_TOTAL)
		extra->total = take_le32(&at);
	if (f & DL_FIELD_SEQ) {
		extra->seq_shard = take_u8(&at);
		extra->seq = take_le32(&at);
	}
	if (f & DL_FIELD_NAME) {
		m->name_length = take_u8(&at);
		if (m->name_length == 0 || rp_reader_left(r) < need + m->name_length)
			return false;
		m->name = at;
		at += m->name_length;
	}
	good = last_fields_read(&at, f, m);
	r->pos = at;
	m->status = status < RP_QSTATUS_COUNT ? (enum rp_qstatus)status : RP_Q_INVALID;
	return good && (f & ~DL_FIELD_ALL) == 0 && status < RP_QSTATUS_COUNT &&
	       rp_qmsg_head_bytes(m) <= extra->total && m->type != RP_QMSG_TYPE_COUNT;
}

static bool read_end(const struct rp_reader *r)
{
	return !r->bad && r->pos == r->end;
}

uint32_t dl_open_write(const struct dl_open *o, uint8_t *out)
{
	struct rp_writer w = rp_writer_of(out, RP_FRAME_FIELDS_BYTES_MAX);

	rp_write_u8(&w, o->kind);
	rp_write_u8(&w, o->name_length);
	rp_write_le16(&w, 0);
	rp_write_le32(&w, o->handle);
	rp_write_bytes(&w, o->name, o->name_length);
	return (uint32_t)(w.pos - out);
}

bool dl_open_read(struct dl_open *o, struct rp_reader *r)
{
	bool reserved;

	o->kind = rp_read_u8(r);
	o->name_length = rp_read_u8(r);
	reserved = rp_read_le16(r) == 0;
	o->handle = rp_read_le32(r);
	o->name = rp_read_bytes(r, o->name_length);
	return read_end(r) && reserved && o->name_length > 0 &&
	       (o->kind == RP_FRAME_FORWARD || o->kind == RP_FRAME_DELIVER);
}

uint32_t dl_opened_write(const struct dl_opened *o, uint8_t *out)
{
	struct rp_writer w = rp_writer_of(out, DL_OPENED_BYTES);

	rp_write_le32(&w, o->handle);
	rp_write_le32(&w, o->messages);
	rp_write_le64(&w, o->bytes);
	rp_write_u8(&w, o->status);
	rp_write_bytes(&w, (const uint8_t[3]){0}, 3);
	return DL_OPENED_BYTES;
}

bool dl_opened_read(struct dl_opened *o, struct rp_reader *r)
{
	o->handle = rp_read_le32(r);
	o->messages = rp_read_le32(r);
	o->bytes = rp_read_le64(r);
	o->status = rp_read_u8(r);
	rp_read_bytes(r, 3);
	return read_end(r) && o->status < RP_QSTATUS_COUNT;
}

uint32_t dl_credit_write(const struct dl_credit *c, uint8_t *out)
{
	struct rp_writer w = rp_writer_of(out, DL_CREDIT_BYTES);

	rp_write_le32(&w, c->messages);
	rp_write_le32(&w, 0);
	rp_write_le64(&w, c->bytes);
	return DL_CREDIT_BYTES;
}

bool dl_credit_read(struct dl_credit *c, struct rp_reader *r)
{
	c->messages = rp_read_le32(r);
	rp_read_le32(r);
	c->bytes = rp_read_le64(r);
	return read_end(r);
}

uint32_t dl_refused_write(const struct dl_refused *f, uint8_t *out)
{
	struct rp_writer w = rp_writer_of(out, DL_REFUSED_BYTES);

	rp_write_le32(&w, f->seq);
	rp_write_u8(&w, f->status);
	rp_write_bytes(&w, (const uint8_t[3]){0}, 3);
	return DL_REFUSED_BYTES;
}

bool dl_refused_read(struct dl_refused *f, struct rp_reader *r)
{
	f->seq = rp_read_le32(r);
	f->status = rp_read_u8(r);
	rp_read_bytes(r, 3);
	return read_end(r) && f->status != RP_Q_OK && f->status < RP_QSTATUS_COUNT;
}

uint32_t dl_took_write(uint32_t seq, uint8_t *out)
{
	struct rp_writer w = rp_writer_of(out, DL_TOOK_BYTES);

	rp_write_le32(&w, seq);
	return DL_TOOK_BYTES;
}

bool dl_took_read(uint32_t *seq, struct rp_reader *r)
{
	*seq = rp_read_le32(r);
	return read_end(r);
}

uint32_t dl_control_took_write(const struct dl_control_took *t, uint8_t *out)
{
	struct rp_writer w = rp_writer_of(out, DL_CONTROL_TOOK_BYTES);

	rp_write_le32(&w, t->seq);
	rp_write_u8(&w, t->shards);
	rp_write_u8(&w, t->shard);
	rp_write_u8(&w, t->links);
	rp_write_u8(&w, t->link);
	return DL_CONTROL_TOOK_BYTES;
}

bool dl_control_took_read(struct dl_control_took *t, struct rp_reader *r)
{
	t->seq = rp_read_le32(r);
	t->shards = rp_read_u8(r);
	t->shard = rp_read_u8(r);
	t->links = rp_read_u8(r);
	t->link = rp_read_u8(r);
	return read_end(r) && t->shards > 0 && t->shards <= RP_SHARDS_MAX && t->shard < t->shards &&
	       t->links > 0 && t->links <= RP_SHARDS_MAX && t->link < t->links;
}
