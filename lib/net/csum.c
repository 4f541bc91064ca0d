/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <rte_mbuf.h>

#include <base/units.h>
#include <net/csum.h>

/* Lanes of 64 bits take 32-bit halves, so that 2^32 of them fit before any carry is lost. */
typedef uint64_t csum_vec __attribute__((vector_size(16)));

static inline csum_vec csum_load(const uint8_t *p)
{
	csum_vec v;

	memcpy(&v, p, sizeof(v));
	return v;
}

uint16_t rp_csum_bytes(const void *data, size_t length)
{
	const csum_vec low = {0xffffffff, 0xffffffff};
	const uint8_t *p = data;
	uint64_t sum = 0;

	if (length >= 64) {
		csum_vec a = {0}, b = {0}, c = {0}, d = {0};

		do {
			csum_vec v0 = csum_load(p), v1 = csum_load(p + 16);
			csum_vec v2 = csum_load(p + 32), v3 = csum_load(p + 48);

			a += v0 & low;
			b += v0 >> 32;
			c += v1 & low;
			d += v1 >> 32;
			a += v2 & low;
			b += v2 >> 32;
			c += v3 & low;
			d += v3 >> 32;
			p += 64;
			length -= 64;
		} while (length >= 64);
		a += b;
		c += d;
		a += c;
		sum = rp_csum_fold(a[0]) + rp_csum_fold(a[1]);
	}
	for (; length >= 4; p += 4, length -= 4) {
		uint32_t w;

		memcpy(&w, p, sizeof(w));
		sum += w;
	}
	if (length > 0) {
		uint32_t w = 0;

		memcpy(&w, p, length);
		sum += w;
	}
	return rp_csum_fold(sum);
}

uint16_t rp_csum_chain(const struct rte_mbuf *m, size_t offset, size_t length)
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
