/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* SipHash-2-4, the keyed function of initial sequence numbers (RFC 6528) and of ports (RFC 6056).
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIP_ROTL(x, b) ((x) << (b) | (x) >> (64 - (b)))
#define SIP_ROUND                           \
	do {                                \
		v0 += v1;                   \
		v1 = SIP_ROTL(v1, 13) ^ v0; \
		v0 = SIP_ROTL(v0, 32);      \
		v2 += v3;                   \
		v3 = SIP_ROTL(v3, 16) ^ v2; \
		v0 += v3;                   \
		v3 = SIP_ROTL(v3, 21) ^ v0; \
		v2 += v1;                   \
		v1 = SIP_ROTL(v1, 17) ^ v2; \
		v2 = SIP_ROTL(v2, 32);      \
	} while (0)

/** Little-endian machines; `key` is 16 bytes. */
static inline uint64_t siphash24(const uint8_t *key, const void *data, size_t length)
{
	const uint8_t *p = data;
	uint64_t k0, k1, m, b = (uint64_t)length << 56;
	uint64_t v0, v1, v2, v3;

	memcpy(&k0, key, 8);
	memcpy(&k1, key + 8, 8);
	v0 = k0 ^ 0x736f6d6570736575ull;
	v1 = k1 ^ 0x646f72616e646f6dull;
	v2 = k0 ^ 0x6c7967656e657261ull;
	v3 = k1 ^ 0x7465646279746573ull;
	for (; length >= 8; p += 8, length -= 8) {
		memcpy(&m, p, 8);
		v3 ^= m;
		SIP_ROUND;
		SIP_ROUND;
		v0 ^= m;
	}
	for (size_t i = 0; i < length; i++)
		b |= (uint64_t)p[i] << (8 * i);
	v3 ^= b;
	SIP_ROUND;
	SIP_ROUND;
	v0 ^= b;
	v2 ^= 0xff;
	SIP_ROUND;
	SIP_ROUND;
	SIP_ROUND;
	SIP_ROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

#undef SIP_ROUND
#undef SIP_ROTL
