/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How long an adaptive shard may sleep between two turns that had nothing to do. Pure. */

#include <stdbool.h>

#include <base/units.h>

/** Longest sleep of a shard that polls a port: nothing rings when a frame comes. */
#define SHARD_REST_NS_POLLED (20 * RP_NS_PER_US)
/** Longest sleep of one that does not: rings and sockets wake it, timers are in its deadline. */
#define SHARD_REST_NS_MAX (100 * RP_NS_PER_MS)

/**
 * 0: not at all. `at_ns`: when something is due; `polls`: a port; `full`: a device had no room for
 * all that the turn had for it. What waits for such a device looks due at all times, though the
 * turn did what it could; and whoever takes the frames may need this very CPU for that.
 */
static inline uint64_t shard_rest_ns(uint64_t at_ns, uint64_t now_ns, bool polls, bool full)
{
	uint64_t most_ns = polls ? SHARD_REST_NS_POLLED : SHARD_REST_NS_MAX;

	if (full)
		return SHARD_REST_NS_POLLED;
	return at_ns <= now_ns ? 0 : RP_MIN(at_ns - now_ns, most_ns);
}
