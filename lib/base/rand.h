/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Randomness as an argument: a splitmix64 stream. Whoever creates a core gives it a seeded state;
 * secrets (ISN keys, nonces) are bytes handed in by the caller, never drawn from here.
 */

#include <stdint.h>

struct rp_rand {
	uint64_t state;
};

static inline uint64_t rp_rand_u64(struct rp_rand *r)
{
	uint64_t z = (r->state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/** Uniform in [0, n); n > 0. */
static inline uint64_t rp_rand_below(struct rp_rand *r, uint64_t n)
{
	return (uint64_t)(((__uint128_t)rp_rand_u64(r) * n) >> 64);
}

/** Uniform in [0, 1). */
static inline double rp_rand_unit(struct rp_rand *r)
{
	return (double)(rp_rand_u64(r) >> 11) * 0x1.0p-53;
}
