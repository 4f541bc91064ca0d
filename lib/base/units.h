/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Units, limits of names and small arithmetic. Time is u64 nanoseconds everywhere inside.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#define RP_NS_PER_US 1000ull
#define RP_NS_PER_MS 1000000ull
#define RP_NS_PER_S 1000000000ull
/** No deadline. */
#define RP_NEVER UINT64_MAX

/** Most bytes of a queue's name and of a message's tail (one key segment each). */
#define RP_NAME_BYTES_MAX 255
#define RP_TAIL_BYTES_MAX 255
#define RP_UUID_BYTES 16
/** Most shards (lcores of the data plane) of one node. */
#define RP_SHARDS_MAX 32
/** Most peers of one node; slots of peer tables. */
#define RP_PEERS_MAX 256

#define RP_MIN(a, b) ((a) < (b) ? (a) : (b))
#define RP_MAX(a, b) ((a) > (b) ? (a) : (b))
#define RP_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define RP_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define RP_CACHE_LINE 64
/** Called seldom: stays out of the way of what calls it, which then saves fewer registers. */
#define RP_SELDOM __attribute__((noinline, cold))
/** Neither rare nor common: stays out of the way only. */
#define RP_APART __attribute__((noinline))

/** Bytes somebody else owns, valid for the call. */
struct rp_span {
	const uint8_t *data;
	size_t length;
};
