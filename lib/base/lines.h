/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Memory for tables that are made once and touched at random, a line or a few at a time.
 */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <base/units.h>

#define RP_HUGE_BYTES (2ul << 20)

/**
 * Zeros, `count` records of `size` bytes, from the begin of a cache line; free() them. NULL: there
 * is no memory. A large table asks for huge pages: with pages of 4 KiB, of thousands of records
 * each is on one that the processor has to look up first.
 */
static inline void *rp_lines_alloc(size_t count, size_t size)
{
	size_t bytes = (count * size + RP_CACHE_LINE - 1) & ~(size_t)(RP_CACHE_LINE - 1);
	bool huge = bytes >= RP_HUGE_BYTES / 2;
	void *p;

	if (huge)
		bytes = (bytes + RP_HUGE_BYTES - 1) & ~(RP_HUGE_BYTES - 1);
	p = aligned_alloc(huge ? RP_HUGE_BYTES : RP_CACHE_LINE, bytes);
	if (!p)
		return NULL;
#ifdef MADV_HUGEPAGE
	if (huge)
		madvise(p, bytes, MADV_HUGEPAGE); /* or it does without */
#endif
	memset(p, 0, bytes);
	return p;
}
