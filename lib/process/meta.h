/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the engine has to know of a process request at each hop, in few bytes between tail and value
 * of its payload, so that a shard never reads JSON (spec/queues.md, "Process requests").
 *
 *	max_bytes u32, little endian; reply_to: length u8, bytes; count of needs u8; each: length
 *u8, bytes
 *
 * OPEN has one too: its reply_to is the queue that the request is put into. That of an OUTPUT says
 * where it stands in its worker's stream of them: max_bytes is its number, from 1, and reply_to the
 * stream, in 4 bytes; without one it is taken as it comes. Pure functions.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/qmsg.h>
#include <base/units.h>

/** Capabilities that a request may need, and their bytes together. */
#define RP_PROCESS_NEEDS_MAX 16
#define RP_PROCESS_NEED_BYTES_MAX 255
#define RP_PROCESS_PRIORITY_MAX 9

#define RP_META_BYTES_MAX \
	(4 + 1 + RP_NAME_BYTES_MAX + 1 + RP_PROCESS_NEEDS_MAX + RP_PROCESS_NEED_BYTES_MAX)

_Static_assert(RP_META_BYTES_MAX <= RP_QMSG_META_BYTES_MAX, "what deliver makes room for");

struct rp_meta {
	uint32_t max_bytes;	 /**< of one output; 0: no bound of its own */
	struct rp_span reply_to; /**< empty: nobody waits for an answer */
	uint32_t need_count;
	struct rp_span need[RP_PROCESS_NEEDS_MAX]; /**< each of 1 byte or more */
};

/** Bytes written to `out`. The needs are within the bounds above. */
uint32_t rp_meta_write(const struct rp_meta *m, uint8_t out[RP_META_BYTES_MAX]);
/** False: malformed. Spans point into `bytes`. */
bool rp_meta_read(struct rp_meta *out, struct rp_span bytes);

/** Of an output; bytes written to `out`. */
uint32_t rp_meta_number_write(uint32_t stream, uint32_t number, uint8_t out[RP_META_BYTES_MAX]);
/** False: it has no number. */
bool rp_meta_number_read(struct rp_span bytes, uint32_t *stream, uint32_t *number);

/** Whether a consumer whose record says `cap` has all that is needed. */
bool rp_meta_is_met(const struct rp_meta *m, struct rp_span cap);
