/* SPDX-License-Identifier: Apache-2.0 */
#include <sink/row_priv.h>

#include <stdbool.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define DEPTH_MAX 256
#define BLOCK 64u

/** Where the scan is. */
struct outline {
	bool in_string, escaped;
	bool object; /**< one has begun */
	unsigned depth;
	uint8_t closes[DEPTH_MAX]; /**< what ends each that is open */
};

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A brace or bracket, outside of strings. False: it does not fit. */
static bool outline_mark(struct outline *o, uint8_t c)
{
	if (c == '{' || c == '[') {
		if (o->depth == DEPTH_MAX || (o->depth == 0 && c == '['))
			return false;
		o->object = true;
		o->closes[o->depth++] = c == '{' ? '}' : ']';
		return true;
	}
	return o->depth > 0 && o->closes[--o->depth] == c;
}

static bool outline_byte(struct outline *o, uint8_t c)
{
	if (o->in_string) {
		if (o->escaped)
			o->escaped = false;
		else if (c == '\\')
			o->escaped = true;
		else if (c == '"')
			o->in_string = false;
		return true;
	}
	if (c == '{' || c == '}' || c == '[' || c == ']')
		return outline_mark(o, c);
	/* Nothing but blanks is between objects. */
	if (o->depth == 0)
		return is_blank(c);
	o->in_string = c == '"';
	return true;
}

static bool outline_bytes(struct outline *o, const uint8_t *p, size_t length)
{
	bool ok = true;

	for (size_t i = 0; ok && i < length; i++)
		ok = outline_byte(o, p[i]);
	return ok;
}

#ifdef __SSE2__

/** A bit for each byte of a block that is such. */
struct masks {
	uint64_t quotes, slashes, marks, blanks;
};

static uint64_t bits(__m128i equal, unsigned at)
{
	return (uint64_t)(uint32_t)_mm_movemask_epi8(equal) << at;
}

static __m128i equals(__m128i v, char c)
{
	return _mm_cmpeq_epi8(v, _mm_set1_epi8(c));
}

static struct masks block_masks(const uint8_t *p)
{
	struct masks m = {0};

	for (unsigned at = 0; at < BLOCK; at += 16) {
		__m128i v = _mm_loadu_si128((const __m128i *)(p + at));
		/* Brackets and braces are one bit apart. */
		__m128i low = _mm_or_si128(v, _mm_set1_epi8(0x20));

		m.quotes |= bits(equals(v, '"'), at);
		m.slashes |= bits(equals(v, '\\'), at);
		m.marks |= bits(_mm_or_si128(equals(low, '{'), equals(low, '}')), at);
		m.blanks |= bits(_mm_or_si128(_mm_or_si128(equals(v, ' '), equals(v, '\n')),
					 _mm_or_si128(equals(v, '\t'), equals(v, '\r'))),
			at);
	}
	return m;
}

/* Each bit: whether those up to it, itself included, are odd in number. */
static uint64_t odd_up_to(uint64_t m)
{
	for (unsigned i = 1; i < 64; i *= 2)
		m ^= m << i;
	return m;
}

/* Bits from `from` on, below `to`; 0 <= from <= to <= 64. */
static uint64_t between(unsigned from, unsigned to)
{
	uint64_t below = to < 64 ? (1ull << to) - 1 : UINT64_MAX;

	return from < 64 ? below & ~((1ull << from) - 1) : 0;
}

static bool outline_block(struct outline *o, const uint8_t *p)
{
	struct masks m = block_masks(p);
	uint64_t strings, marks;
	unsigned from = 0;

	/* What an escape stands for depends on what is before it, byte by byte. */
	if (m.slashes != 0 || o->escaped)
		return outline_bytes(o, p, BLOCK);
	strings = odd_up_to(m.quotes) ^ (o->in_string ? UINT64_MAX : 0);
	for (marks = m.marks & ~strings; marks != 0; marks &= marks - 1) {
		unsigned at = (unsigned)__builtin_ctzll(marks);

		if (o->depth == 0 && (between(from, at) & ~m.blanks) != 0)
			return false;
		if (!outline_mark(o, p[at]))
			return false;
		from = at + 1;
	}
	o->in_string = strings >> 63;
	return o->depth > 0 || (between(from, BLOCK) & ~m.blanks) == 0;
}

#else

static bool outline_block(struct outline *o, const uint8_t *p)
{
	return outline_bytes(o, p, BLOCK);
}

#endif

enum sink_row sink_row_outline(struct rp_span value)
{
	const uint8_t *p = value.data;
	size_t left = value.length;
	struct outline o;

	o.in_string = o.escaped = o.object = false;
	o.depth = 0;
	for (; left >= BLOCK; p += BLOCK, left -= BLOCK)
		if (!outline_block(&o, p))
			return SINK_ROW_BAD;
	if (!outline_bytes(&o, p, left) || o.in_string || o.depth > 0)
		return SINK_ROW_BAD;
	return o.object ? SINK_ROW_OBJECT : SINK_ROW_EMPTY;
}
