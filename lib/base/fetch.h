/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <base/units.h>

/** Brings the lines of what is soon written near; NULL is fine. */
static inline void rp_fetch(const void *object, size_t bytes)
{
	const uint8_t *p = object;

	for (size_t at = 0; p && at < bytes; at += RP_CACHE_LINE)
		__builtin_prefetch(p + at, 1);
}
