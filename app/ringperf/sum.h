/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A sum over a stream of bytes: its 8-byte words (little endian, from the start of the stream)
 * added up modulo 2^64, whatever pieces the stream comes in. Each end makes it over what it sends
 * or receives, so that a figure of goodput includes reading every byte at both ends.
 */

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as they lie there");

struct perf_sum {
	uint64_t total;
	uint64_t part; /**< of a word that is not complete */
	unsigned part_bytes;
};

/** Adds what is left of an incomplete word, with zeros behind it. */
static inline uint64_t perf_sum_value(const struct perf_sum *s)
{
	return s->total + s->part;
}

static inline uint64_t perf_sum_words(const uint8_t *p, size_t words)
{
	typedef uint64_t lanes __attribute__((vector_size(16)));
	typedef uint64_t there __attribute__((vector_size(16), aligned(1), may_alias));
	lanes a = {0}, b = {0}, c = {0}, d = {0};
	uint64_t total = 0, w;

	for (; words >= 8; words -= 8, p += 64) {
		a += *(const there *)p;
		b += *(const there *)(p + 16);
		c += *(const there *)(p + 32);
		d += *(const there *)(p + 48);
	}
	a += b + c + d;
	for (; words > 0; words--, p += 8) {
		memcpy(&w, p, sizeof(w));
		total += w;
	}
	return total + a[0] + a[1];
}

static inline void perf_sum_add(struct perf_sum *s, const void *data, size_t length)
{
	const uint8_t *p = data;
	size_t n;

	if (s->part_bytes > 0) {
		n = sizeof(s->part) - s->part_bytes;
		n = n < length ? n : length;
		memcpy((uint8_t *)&s->part + s->part_bytes, p, n);
		s->part_bytes += (unsigned)n;
		if (s->part_bytes < sizeof(s->part))
			return;
		s->total += s->part;
		s->part = 0;
		s->part_bytes = 0;
		p += n;
		length -= n;
	}
	s->total += perf_sum_words(p, length / 8);
	n = length % 8;
	if (n > 0) {
		memcpy(&s->part, p + length - n, n);
		s->part_bytes = (unsigned)n;
	}
}
