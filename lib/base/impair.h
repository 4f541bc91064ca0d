/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The impairment model: what a bad network would do to each packet, decided by a seed. Pure: it
 * only decides; port/ and test/sim hold and release the packets.
 *
 *   1. rp_impair_init() with a specification and a seed.
 *   2. rp_impair_decide() for each packet, in order; it says copies and the delay of each.
 *   3. rp_impair_set() changes the specification at run time (a cut of ten seconds, say).
 */

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include <base/rand.h>

struct rp_impair_spec {
	double drop;	  /**< probability in [0, 1] */
	double duplicate; /**< probability of a second copy */
	double reorder;	  /**< probability that a packet is held back by `reorder_ns` */
	uint64_t reorder_ns;
	uint64_t delay_ns;  /**< of every packet */
	uint64_t jitter_ns; /**< uniform in [0, jitter_ns) on top */
	bool cut;	    /**< everything is dropped */
};

struct rp_impair {
	struct rp_impair_spec spec;
	struct rp_rand rand;
	uint64_t seen, dropped, duplicated, reordered, delayed; /**< counters */
};

/** What happens to one packet: copies in [0, 2], each with its delay. */
struct rp_impair_verdict {
	unsigned copies;
	uint64_t delay_ns[2];
};

void rp_impair_init(struct rp_impair *im, const struct rp_impair_spec *spec, uint64_t seed);
void rp_impair_set(struct rp_impair *im, const struct rp_impair_spec *spec);
struct rp_impair_verdict rp_impair_decide(struct rp_impair *im);

/**
 * Parses "drop=0.01,dup=0.001,reorder=0.05,reorder_us=50,delay_us=10,jitter_us=5,cut=1".
 * 0, or -EINVAL with the offending part in `error` (of `error_size` bytes).
 */
int rp_impair_parse(const char *text, struct rp_impair_spec *spec, char *error, size_t error_size);
