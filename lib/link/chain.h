/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Cutting a byte stream that lies in mbuf chains, and joining small frames. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

/** Frees the first `n` bytes of *chain, which has as many; *chain becomes NULL at its end. */
void rp_chain_skip(struct rte_mbuf **chain, uint32_t n);

/**
 * Takes the first `n` bytes off *chain, which has as many, as a chain of its own. Whole segments
 * move; of the one that is cut, a small part is copied and a large one referenced. The first
 * `contiguous` bytes lie in the first segment. NULL: no buffers, *chain is as it was.
 */
struct rte_mbuf *rp_chain_cut(
	struct rte_mempool *pool, struct rte_mbuf **chain, uint32_t n, uint32_t contiguous);

/** Frames on their way into one send; zeroed = empty. */
struct rp_chain_batch {
	struct rte_mbuf *first, *last;
};

/** Appends `frame` (take): copied into the last segment when it is small and fits. */
void rp_chain_join(struct rp_chain_batch *batch, struct rte_mbuf *frame);
