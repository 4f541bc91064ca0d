/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Connections that our stack dials, to an echo server of the kernel's:
 *
 *   1. dial_begin() says how many, how many at once, and how many bytes each sends and wants back.
 *   2. dial_turn() with each turn of the loop, until dial_done().
 *
 * Each sends its bytes, ends its direction, and reads on until the peer's FIN; or, with
 * `peer_first`, waits for the peer's bytes and FIN before it sends its own: both orders of half
 * closing.
 */

#include <stdbool.h>
#include <stdint.h>

#include <tcp/tcp.h>

struct dial_plan {
	struct rp_endpoint peer; /* family 0: nothing is dialled */
	uint32_t total, at_once, bytes;
	bool peer_first;
	bool ecn; /* ask for it */
};

struct dial_counts {
	uint64_t begun, good, refused_sends;
	uint64_t bad_bytes, short_streams; /* what came is not what was sent */
	uint64_t closed[RP_CLOSE_NOMEM + 1];
};

/** The pool has the payloads. */
void dial_begin(const struct dial_plan *plan, struct rp_tcp_stack *stack, struct rte_mempool *pool);
void dial_turn(uint64_t now_ns);
bool dial_done(void);
const struct dial_counts *dial_counts(void);
