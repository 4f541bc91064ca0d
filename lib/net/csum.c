/* SPDX-License-Identifier: Apache-2.0 */
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <base/units.h>
#include <net/csum.h>

/* Most bytes of one pass: its sums of signed words must fit in 32 bits. */
#define CSUM_PASS_BYTES 65536u

#ifdef __x86_64__
/*
 * Vectors have one instruction that multiplies and adds pairs of words, for signed ones. So each
 * word is taken 0x8000 less, which flipping its top bit does, and that is put right at the end.
 */
__attribute__((always_inline)) static inline uint64_t csum_finish(
	__m128i sums, size_t words, const uint8_t *rest, size_t length)
{
	int64_t sum;

	sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
	sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xb1));
	sum = _mm_cvtsi128_si32(sums) + 0x8000 * (int64_t)words;
	return rp_csum_add((uint64_t)sum, rp_csum_few(rest, length));
}

static uint64_t csum_by_16(const uint8_t *p, size_t length)
{
	const __m128i flip = _mm_set1_epi16(INT16_MIN), one = _mm_set1_epi16(1);
	size_t words = length / 16 * 8;
	__m128i sums = _mm_setzero_si128();

	for (; length >= 16; p += 16, length -= 16) {
		__m128i v = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), flip);

		sums = _mm_add_epi32(sums, _mm_madd_epi16(v, one));
	}
	return csum_finish(sums, words, p, length);
}

#define CSUM_AVX2 __attribute__((target("avx2,tune=haswell")))

CSUM_AVX2 static inline __m256i csum_pairs(const uint8_t *p)
{
	__m256i v = _mm256_loadu_si256((const __m256i *)p);

	v = _mm256_xor_si256(v, _mm256_set1_epi16(INT16_MIN));
	return _mm256_madd_epi16(v, _mm256_set1_epi16(1));
}

CSUM_AVX2 static uint64_t csum_by_32(const uint8_t *p, size_t length)
{
	size_t words = length / 32 * 16;
	__m256i a = _mm256_setzero_si256(), b = a;

	for (; length >= 128; p += 128, length -= 128) {
		a = _mm256_add_epi32(a, _mm256_add_epi32(csum_pairs(p), csum_pairs(p + 32)));
		b = _mm256_add_epi32(b, _mm256_add_epi32(csum_pairs(p + 64), csum_pairs(p + 96)));
	}
	for (; length >= 32; p += 32, length -= 32)
		a = _mm256_add_epi32(a, csum_pairs(p));
	a = _mm256_add_epi32(a, b);
	return csum_finish(_mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)),
		words, p, length);
}

static uint64_t csum_pass(const uint8_t *p, size_t length)
{
	return __builtin_cpu_supports("avx2") ? csum_by_32(p, length) : csum_by_16(p, length);
}
#else
static uint64_t csum_pass(const uint8_t *p, size_t length)
{
	return rp_csum_few(p, length);
}
#endif

uint16_t rp_csum_bytes(const void *data, size_t length)
{
	const uint8_t *p = data;
	uint64_t sum = 0;

	if (length < RP_CSUM_FEW)
		return rp_csum_fold(rp_csum_few(p, length));
	for (; length > CSUM_PASS_BYTES; p += CSUM_PASS_BYTES, length -= CSUM_PASS_BYTES)
		sum = rp_csum_add(sum, csum_pass(p, CSUM_PASS_BYTES));
	return rp_csum_fold(rp_csum_add(sum, csum_pass(p, length)));
}

uint16_t csum_scattered(const struct rte_mbuf *m, size_t offset, size_t length)
{
	uint64_t sum = 0;
	size_t done = 0;

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
