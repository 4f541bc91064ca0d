/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Bounded reader and writer over a span, little and big endian. A read or write past the end sets
 * `bad` and yields zeros or nothing; the caller checks `bad` once, at the end.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <base/units.h>

struct rp_reader {
	const uint8_t *pos, *end;
	bool bad;
};

struct rp_writer {
	uint8_t *pos, *end;
	bool bad;
};

static inline struct rp_reader rp_reader_of(const void *data, size_t length)
{
	const uint8_t *p = data;

	return (struct rp_reader){.pos = p, .end = p + length};
}

static inline struct rp_writer rp_writer_of(void *data, size_t size)
{
	uint8_t *p = data;

	return (struct rp_writer){.pos = p, .end = p + size};
}

static inline size_t rp_reader_left(const struct rp_reader *r)
{
	return (size_t)(r->end - r->pos);
}

static inline const uint8_t *rp_read_bytes(struct rp_reader *r, size_t n)
{
	const uint8_t *p = r->pos;

	if (r->bad || rp_reader_left(r) < n) {
		r->bad = true;
		return NULL;
	}
	r->pos += n;
	return p;
}

static inline void rp_write_bytes(struct rp_writer *w, const void *data, size_t n)
{
	if (w->bad || (size_t)(w->end - w->pos) < n) {
		w->bad = true;
		return;
	}
	if (n > 0)
		memcpy(w->pos, data, n);
	w->pos += n;
}

#define RP_BYTES_DEF(bits, order, conv)                                                  \
	static inline uint##bits##_t rp_read_##order##bits(struct rp_reader *r)          \
	{                                                                                \
		const uint8_t *p = rp_read_bytes(r, bits / 8);                           \
		uint##bits##_t v = 0;                                                    \
		if (p)                                                                   \
			memcpy(&v, p, sizeof(v));                                        \
		return conv(v);                                                          \
	}                                                                                \
	static inline void rp_write_##order##bits(struct rp_writer *w, uint##bits##_t v) \
	{                                                                                \
		v = conv(v);                                                             \
		rp_write_bytes(w, &v, sizeof(v));                                        \
	}

#define RP_BYTES_SAME(v) (v)
RP_BYTES_DEF(16, le, RP_BYTES_SAME)
RP_BYTES_DEF(32, le, RP_BYTES_SAME)
RP_BYTES_DEF(64, le, RP_BYTES_SAME)
RP_BYTES_DEF(16, be, __builtin_bswap16)
RP_BYTES_DEF(32, be, __builtin_bswap32)
RP_BYTES_DEF(64, be, __builtin_bswap64)
#undef RP_BYTES_DEF
#undef RP_BYTES_SAME

static inline uint8_t rp_read_u8(struct rp_reader *r)
{
	const uint8_t *p = rp_read_bytes(r, 1);

	return p ? *p : 0;
}

static inline void rp_write_u8(struct rp_writer *w, uint8_t v)
{
	rp_write_bytes(w, &v, 1);
}
