/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The Internet checksum (RFC 1071). A "sum" is a ones' complement sum of 16-bit words as they lie
 * in memory, folded to 16 bits, not inverted; sums of parts may be added when each part but the
 * last has even length.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rte_mbuf;

static inline uint16_t rp_csum_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/** Adds a word and puts its carry back in: a sum of long words is one of short words (RFC 1071 2).
 */
static inline uint64_t rp_csum_add(uint64_t sum, uint64_t word)
{
	sum += word;
	return sum + (sum < word);
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

/** Sum of `length` bytes; an odd last byte counts as if a zero followed it. */
uint16_t rp_csum_bytes(const void *data, size_t length);

/** Sum of `length` bytes from `offset` of the chain (of as many as there are). */
uint16_t rp_csum_chain(const struct rte_mbuf *m, size_t offset, size_t length);
