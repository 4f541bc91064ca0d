/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sequence number arithmetic modulo 2^32 (RFC 9293, 3.4). */

#include <stdbool.h>
#include <stdint.h>

static inline bool rp_seq_lt(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static inline bool rp_seq_leq(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) <= 0;
}

static inline bool rp_seq_gt(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

static inline bool rp_seq_geq(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) >= 0;
}

static inline uint32_t rp_seq_max(uint32_t a, uint32_t b)
{
	return rp_seq_gt(a, b) ? a : b;
}

static inline uint32_t rp_seq_min(uint32_t a, uint32_t b)
{
	return rp_seq_lt(a, b) ? a : b;
}
