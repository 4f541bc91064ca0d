/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The tap of a capture: copies of frames that a polling lcore received or is about to send, for the
 * control thread to write down. It never holds up a frame and never fails one: what finds no room
 * is counted.
 *
 *   1. Control fills struct rp_tap_config, with a pool of blocks and one struct rp_tap_counters a
 *      port, and tells the lcore: rp_tap_start().
 *   2. The lcore, while rp_tap_is_on(): rp_tap_frames() with each burst of a port, either way;
 *      rp_tap_flush() once a loop.
 *   3. Full blocks go through `post`; who gets them walks the records with rp_tap_next(), and frees
 *      the block.
 *   4. rp_tap_stop(): what is in the last block is posted, too.
 *
 * Memory is the pool's, and so is the bound: when the reader is slow and holds all blocks, frames
 * are not copied any more. While the tap is off it costs the branch that looks.
 *
 * Received frames are those that the stack gets: the device and the impairment had theirs before.
 * Sent ones are as the stack made them: checksums that the device fills in are not there yet, and a
 * segment that it will cut is whole. The polling lcore owns it.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <base/transport.h>
#include <base/units.h>

struct rte_mbuf;
struct rte_mempool;

/** Data room of a block's mbuf. */
#define RP_TAP_BLOCK_ROOM 16384
/** Most bytes of a frame that are kept: all of it at the largest MTU. */
#define RP_TAP_SNAPLEN_MAX 9216
/** How long the records of a busy lcore may wait for their block to be full. */
#define RP_TAP_WAIT_NS (1 * RP_NS_PER_MS)

/** Of a port; added to by the lcores that poll its queues, read by any thread, relaxed. */
struct rp_tap_counters {
	_Atomic uint64_t seen;	  /**< frames while it was on */
	_Atomic uint64_t taken;	  /**< copied: they fit the filter and found room */
	_Atomic uint64_t dropped; /**< fit the filter and found no room */
};

struct rp_tap_config {
	uint32_t ports;		 /**< bit of each port whose frames are wanted */
	struct rp_endpoint peer; /**< only what is from or to it; family 0: all, port 0: any */
	uint32_t snaplen;	 /**< bytes kept of a frame, 1..RP_TAP_SNAPLEN_MAX */
	struct rte_mempool *pool;
	struct rp_tap_counters *counters; /**< by port; borrowed until rp_tap_stop() */
};

/** One frame in a block; `captured` bytes follow it, padded to 8. */
struct rp_tap_record {
	uint64_t wall_ns; /**< since 1970 */
	uint32_t length;  /**< of the whole frame */
	uint16_t captured;
	uint8_t port;
	bool sent;
};
_Static_assert(sizeof(struct rp_tap_record) == 16, "records lie at multiples of 8");

struct rp_tap {
	bool on;
	struct rp_tap_config config;
	struct rte_mbuf *block; /**< being filled; NULL: none */
	uint64_t block_ns;	/**< of its first record */
	/** take on 0; else the block stays here and is tried again. */
	int (*post)(void *ctx, struct rte_mbuf *block);
	void *ctx;
};

/** All zero but for `post` and `ctx`, which the caller sets, is a tap that is off. */
void rp_tap_start(struct rp_tap *tap, const struct rp_tap_config *config);
/** Posts what is there; what is refused is counted as dropped. Nothing on a tap that is off. */
void rp_tap_stop(struct rp_tap *tap);

static inline bool rp_tap_is_on(const struct rp_tap *tap)
{
	return __builtin_expect(tap->on, 0);
}

/** Borrows the frames, which are `n` of the port, received or (`sent`) about to be sent. */
void rp_tap_frames(struct rp_tap *tap, uint32_t port, bool sent, struct rte_mbuf *const *frames,
	unsigned n, uint64_t wall_ns);
/** Posts a block that has waited long enough; all of them where the lcore is `idle`. */
void rp_tap_flush(struct rp_tap *tap, bool idle, uint64_t wall_ns);

/** Walks a block's records: *offset begins at 0. NULL at the end. `bytes` are those captured. */
const struct rp_tap_record *rp_tap_next(
	const struct rte_mbuf *block, uint32_t *offset, const uint8_t **bytes);

/** Does a frame, of which `head` are the first `length` bytes, fit `peer`? (Pure; for tests.) */
bool rp_tap_fits(const struct rp_endpoint *peer, const uint8_t *head, uint32_t length, bool sent);
