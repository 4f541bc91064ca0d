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

/*
 * One instruction multiplies, adds pairs, and adds these to a sum; it takes four cycles and begins
 * each half, hence eight sums. Vectors of 64 bytes would be no faster where these are half each,
 * and slow some processors down. What is left is loaded by a mask: zeros behind it count like
 * words.
 */
#define CSUM_VNNI __attribute__((target("avx2,avx512vl,avx512bw,avx512vnni,tune=haswell")))

CSUM_VNNI static inline __m256i csum_add_pairs(__m256i sum, __m256i v)
{
	v = _mm256_xor_si256(v, _mm256_set1_epi16(INT16_MIN));
	return _mm256_dpwssd_epi32(sum, v, _mm256_set1_epi16(1));
}

CSUM_VNNI static uint64_t csum_by_masks(const uint8_t *p, size_t length)
{
	size_t words = (length + 31) / 32 * 16;
	__m256i s[8] = {_mm256_setzero_si256()};
	__m128i low;

	for (unsigned i = 1; i < 8; i++)
		s[i] = s[0];
	for (; length >= 256; p += 256, length -= 256)
		for (unsigned i = 0; i < 8; i++)
			s[i] = csum_add_pairs(s[i], _mm256_loadu_si256((const __m256i *)p + i));
	for (; length >= 64; p += 64, length -= 64) {
		s[0] = csum_add_pairs(s[0], _mm256_loadu_si256((const __m256i *)p));
		s[1] = csum_add_pairs(s[1], _mm256_loadu_si256((const __m256i *)p + 1));
	}
	if (length >= 32) {
		s[2] = csum_add_pairs(s[2], _mm256_loadu_si256((const __m256i *)p));
		p += 32;
		length -= 32;
	}
	if (length > 0)
		s[3] = csum_add_pairs(s[3], _mm256_maskz_loadu_epi8((1u << length) - 1, p));
	for (unsigned i = 0; i < 4; i++)
		s[i] = _mm256_add_epi32(s[i], s[i + 4]);
	s[0] = _mm256_add_epi32(_mm256_add_epi32(s[0], s[1]), _mm256_add_epi32(s[2], s[3]));
	low = _mm_add_epi32(_mm256_castsi256_si128(s[0]), _mm256_extracti128_si256(s[0], 1));
	return csum_finish(low, words, p, 0);
}

static bool csum_knows(enum csum_way way)
{
	switch (way) {
	case CSUM_PLAIN:
	case CSUM_BY_16:
		return true;
	case CSUM_BY_32:
		return __builtin_cpu_supports("avx2");
	case CSUM_BY_MASKS:
		return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl") &&
		       __builtin_cpu_supports("avx512bw");
	}
	return false;
}

static uint64_t csum_pass_by(enum csum_way way, const uint8_t *p, size_t length)
{
	switch (way) {
	case CSUM_PLAIN:
		break;
	case CSUM_BY_16:
		return csum_by_16(p, length);
	case CSUM_BY_32:
		return csum_by_32(p, length);
	case CSUM_BY_MASKS:
		return csum_by_masks(p, length);
	}
	return rp_csum_few(p, length);
}

static uint64_t csum_pass(const uint8_t *p, size_t length)
{
	if (csum_knows(CSUM_BY_MASKS))
		return csum_by_masks(p, length);
	return csum_knows(CSUM_BY_32) ? csum_by_32(p, length) : csum_by_16(p, length);
}
#else
static bool csum_knows(enum csum_way way)
{
	return way == CSUM_PLAIN;
}

static uint64_t csum_pass_by(enum csum_way way, const uint8_t *p, size_t length)
{
	return rp_csum_few(p, length);
}

static uint64_t csum_pass(const uint8_t *p, size_t length)
{
	return rp_csum_few(p, length);
}
#endif

bool csum_by(enum csum_way way, const void *data, size_t length, uint16_t *sum)
{
	if (!csum_knows(way) || length > CSUM_PASS_BYTES)
		return false;
	*sum = rp_csum_fold(csum_pass_by(way, data, length));
	return true;
}

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
