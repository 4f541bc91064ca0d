/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <rte_mbuf.h>

#include <base/units.h>
#include <net/csum.h>

/* Both 32-bit halves of a word, so that 2^32 words may be added up before a carry is lost. */
static inline uint64_t csum_halves(uint64_t w)
{
	return (w & 0xffffffff) + (w >> 32);
}

static inline uint64_t csum_word(const uint8_t *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return csum_halves(w);
}

/* Fewer than 32 bytes, without a loop. */
static inline uint64_t csum_tail(const uint8_t *p, size_t length)
{
	uint64_t sum = 0;
	uint32_t w;
	uint16_t h;

	if (length & 16) {
		sum += csum_word(p) + csum_word(p + 8);
		p += 16;
	}
	if (length & 8) {
		sum += csum_word(p);
		p += 8;
	}
	if (length & 4) {
		memcpy(&w, p, sizeof(w));
		sum += w;
		p += 4;
	}
	if (length & 2) {
		memcpy(&h, p, sizeof(h));
		sum += h;
		p += 2;
	}
	if (length & 1) {
		h = 0;
		memcpy(&h, p, 1);
		sum += h;
	}
	return sum;
}

/*
 * The body of the sum with vectors of `WIDTH` bytes; what is left is less than one of them. Each
 * load has a variable of its own: an array of them would go through the stack.
 */
#define CSUM_VECTORS(WIDTH)                                                                        \
	typedef uint64_t vector __attribute__((vector_size(WIDTH)));                               \
	typedef uint64_t there __attribute__((vector_size(WIDTH), aligned(1), may_alias));         \
	const vector low = (vector){0} + 0xffffffff;                                               \
	vector a = {0}, b = {0}, c = {0}, d = {0};                                                 \
	for (; length >= 4 * WIDTH; p += 4 * WIDTH, length -= 4 * WIDTH) {                         \
		vector v0 = *(const there *)p, v1 = *(const there *)(p + WIDTH);                   \
		vector v2 = *(const there *)(p + 2 * WIDTH), v3 = *(const there *)(p + 3 * WIDTH); \
		a += v0 & low;                                                                     \
		b += v0 >> 32;                                                                     \
		c += v1 & low;                                                                     \
		d += v1 >> 32;                                                                     \
		a += v2 & low;                                                                     \
		b += v2 >> 32;                                                                     \
		c += v3 & low;                                                                     \
		d += v3 >> 32;                                                                     \
	}                                                                                          \
	for (; length >= WIDTH; p += WIDTH, length -= WIDTH) {                                     \
		vector v0 = *(const there *)p;                                                     \
		a += v0 & low;                                                                     \
		b += v0 >> 32;                                                                     \
	}                                                                                          \
	a += b;                                                                                    \
	c += d;                                                                                    \
	a += c

static uint16_t csum_by_16(const uint8_t *p, size_t length)
{
	CSUM_VECTORS(16);
	return rp_csum_fold(csum_halves(a[0]) + csum_halves(a[1]) + csum_tail(p, length));
}

#ifdef __x86_64__
__attribute__((target("avx2,tune=haswell"))) static uint16_t csum_by_32(
	const uint8_t *p, size_t length)
{
	CSUM_VECTORS(32);
	return rp_csum_fold(csum_halves(a[0]) + csum_halves(a[1]) + csum_halves(a[2]) +
			    csum_halves(a[3]) + csum_tail(p, length));
}
#endif

uint16_t rp_csum_bytes(const void *data, size_t length)
{
	if (length < 32)
		return rp_csum_fold(csum_tail(data, length));
#ifdef __x86_64__
	if (length >= 128 && __builtin_cpu_supports("avx2"))
		return csum_by_32(data, length);
#endif
	return csum_by_16(data, length);
}

uint16_t rp_csum_chain(const struct rte_mbuf *m, size_t offset, size_t length)
{
	uint64_t sum = 0;
	size_t done = 0;

	if (offset + length <= m->data_len)
		return rp_csum_bytes(rte_pktmbuf_mtod_offset(m, const uint8_t *, offset), length);
	for (; m && length > 0; m = m->next) {
		size_t n;
		uint16_t part;

		if (offset >= m->data_len) {
			offset -= m->data_len;
			continue;
		}
		n = RP_MIN(length, (size_t)m->data_len - offset);
		part = rp_csum_bytes(rte_pktmbuf_mtod_offset(m, const uint8_t *, offset), n);
		/* A part that begins at an odd byte has its bytes in the other halves (RFC
		 * 1071 2.B). */
		sum += done & 1 ? __builtin_bswap16(part) : part;
		offset = 0;
		done += n;
		length -= n;
	}
	return rp_csum_fold(sum);
}
