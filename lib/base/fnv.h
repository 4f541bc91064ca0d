/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * FNV-1a, 64 bits (RFC 9923): for tables of this process and digests, not against people who choose
 * what is hashed.
 */

#include <stddef.h>
#include <stdint.h>

#define RP_FNV1A_BASIS UINT64_C(0xcbf29ce484222325)

/** Goes on from `h`: RP_FNV1A_BASIS, or what it gave for the bytes before. */
static inline uint64_t rp_fnv1a(uint64_t h, const void *data, size_t length)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < length; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}
