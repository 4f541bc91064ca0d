/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The Internet checksum (RFC 1071). A "sum" is a ones' complement sum of 16-bit words as they lie
 * in memory, folded to 16 bits, not inverted; sums of parts may be added when each part but the
 * last has even length.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_mbuf.h>

/** Adds a word and puts its carry back in: a sum of long words is one of short words (RFC 1071 2).
 */
static inline uint64_t rp_csum_add(uint64_t sum, uint64_t word)
{
	sum += word;
	return sum + (sum < word);
}

static inline uint16_t rp_csum_fold(uint64_t sum)
{
	uint32_t w = (uint32_t)sum, high = (uint32_t)(sum >> 32);

	w += high;
	w += w < high;
	/* The upper half of this is the sum of both halves with the carry of the lower one. */
	return (uint16_t)((w + (w << 16 | w >> 16)) >> 16);
}

/** Sum of a header of a multiple of 4 bytes, not folded: made for a few words. */
static inline uint64_t rp_csum_header(const void *header, unsigned length)
{
	const uint8_t *p = header;
	uint64_t sum = 0;
	uint32_t w;

	for (; length > 0; p += 4, length -= 4) {
		memcpy(&w, p, sizeof(w));
		sum += w;
		/* One word after the other: words that were just stored cannot be loaded at once.
		 */
		__asm__("" : "+r"(sum));
	}
	return sum;
}

/** The same of 20 bytes that were not just stored. */
static inline uint64_t rp_csum_20(const void *header)
{
	const uint8_t *p = header;
	uint64_t a, b;
	uint32_t c;

	memcpy(&a, p, sizeof(a));
	memcpy(&b, p + 8, sizeof(b));
	memcpy(&c, p + 16, sizeof(c));
	return rp_csum_add(rp_csum_add(a, b), c);
}

/** How a long sum is made: by the last of these that the processor knows. */
enum csum_way {
	CSUM_PLAIN,
	CSUM_BY_16,    /* vectors of 16 bytes: each x86-64 */
	CSUM_BY_32,    /* AVX2 */
	CSUM_BY_MASKS, /* AVX-512 VNNI */
};
/** For tests: by that way, up to 64 KiB. False: the processor does not know it. */
bool csum_by(enum csum_way way, const void *data, size_t length, uint16_t *sum);

/** Sum of `length` bytes; an odd last byte counts as if a zero followed it. */
uint16_t rp_csum_bytes(const void *data, size_t length);

/* Adds 32 bytes. Compilers do not make a chain of carries of it. */
static inline uint64_t csum_32(uint64_t sum, const uint8_t *p)
{
#ifdef __x86_64__
	__asm__("addq (%1), %0\n\tadcq 8(%1), %0\n\tadcq 16(%1), %0\n\tadcq 24(%1), %0\n\tadcq $0, %0"
		: "+r"(sum)
		: "r"(p), "m"(*(const uint8_t(*)[32])p)
		: "cc");
	return sum;
#else
	uint64_t w[4];

	memcpy(w, p, sizeof(w));
	return rp_csum_add(rp_csum_add(rp_csum_add(rp_csum_add(sum, w[0]), w[1]), w[2]), w[3]);
#endif
}

/* Fewer than 16 bytes, without a loop; not folded. */
static inline uint64_t csum_tail(const uint8_t *p, size_t length)
{
	uint64_t sum = 0, w;
	uint32_t h;
	uint16_t q;

	if (length & 8) {
		memcpy(&w, p, sizeof(w));
		sum = w;
		p += 8;
	}
	if (length & 4) {
		memcpy(&h, p, sizeof(h));
		sum = rp_csum_add(sum, h);
		p += 4;
	}
	if (length & 2) {
		memcpy(&q, p, sizeof(q));
		sum = rp_csum_add(sum, q);
		p += 2;
	}
	if (length & 1) {
		q = 0;
		memcpy(&q, p, 1);
		sum = rp_csum_add(sum, q);
	}
	return sum;
}

/** rp_csum_bytes() of a few, not folded: what vectors need before and behind would be most of the
 * work. */
static inline uint64_t rp_csum_few(const void *data, size_t length)
{
	const uint8_t *p = data, *end = p + (length & ~(size_t)31);
	uint64_t sum = 0, w[2];

	for (; p < end; p += 32)
		sum = csum_32(sum, p);
	if (length & 16) {
		memcpy(w, p, 16);
		sum = rp_csum_add(rp_csum_add(sum, w[0]), w[1]);
		p += 16;
	}
	return length & 15 ? rp_csum_add(sum, csum_tail(p, length & 15)) : sum;
}
/** Copies a few bytes and sums them, not folded. */
static inline uint64_t rp_csum_copy(uint8_t *to, const uint8_t *p, size_t length)
{
	uint64_t sum = 0;

	for (; length >= 32; length -= 32, p += 32, to += 32) {
		sum = csum_32(sum, p);
		memcpy(to, p, 32);
	}
	if (length == 0)
		return sum;
	memcpy(to, p, length);
	return rp_csum_add(sum, rp_csum_few(p, length));
}
#define RP_CSUM_FEW 128u

uint16_t csum_scattered(const struct rte_mbuf *m, size_t offset, size_t length);
/** Sum of `length` bytes from `offset` of the chain (of as many as there are), not folded. */
static inline uint64_t rp_csum_chain(const struct rte_mbuf *m, size_t offset, size_t length)
{
	const uint8_t *p = rte_pktmbuf_mtod_offset(m, const uint8_t *, offset);

	if (offset + length > m->data_len)
		return csum_scattered(m, offset, length);
	return length < RP_CSUM_FEW ? rp_csum_few(p, length) : rp_csum_bytes(p, length);
}
