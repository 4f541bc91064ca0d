/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Placement: which shard of a node a flow belongs to, and which local port makes a flow belong to
 * shards of choice at both of its ends. Pure.
 *
 * A device that spreads flows over its queues (RSS) takes the Toeplitz hash of addresses and ports
 * of what it receives, and a table says the queue for the lower bits of that. The port programs
 * both and reads them back; where a device cannot do it, the lcore that receives a frame computes
 * the same and hands it on. So one function decides everywhere, and a node can publish it: the key,
 * the table, and which shard each entry of it means.
 *
 *   1. rp_place_init() with the key and the table of an end.
 *   2. rp_place_shard_of() says whose a flow is, of a packet as that end receives it.
 *   3. To dial: rp_place_search_begin() with what is wanted at the near end, at the far end, or at
 *      both; rp_place_search_next() then gives one port after the other.
 *
 * Toeplitz hashes are linear: to flip a bit of the port flips the same bits of the hash whatever
 * the rest is. So ports are walked in the order of a Gray code, each by one exclusive-or of the
 * hash of each end (spec tcp.md 6.9).
 */

#include <stdbool.h>
#include <stdint.h>

#include <net/net.h>

#define RP_PLACE_KEY_BYTES 40
#define RP_PLACE_TABLE_MAX 512
/** Entries where no device says how many. */
#define RP_PLACE_TABLE_DEFAULT 128
/** Of a shard in a table; the bits of a set of shards. */
#define RP_PLACE_SHARDS_MAX 64

/** Addresses and ports, as in the packet; ports in host byte order. */
struct rp_place_flow {
	const union rp_ip *src, *dst;
	uint16_t src_port, dst_port;
};

/** How one end spreads flows. Written by rp_place_init() only. */
struct rp_place {
	uint32_t table_size; /**< a power of two */
	uint8_t key[RP_PLACE_KEY_BYTES];
	uint8_t table[RP_PLACE_TABLE_MAX]; /**< the shard of each value of the lower bits */
	/** What each half of a byte, of the 36 of IPv6, flips in the hash. */
	uint32_t flips[72][16];
};

/**
 * The key that a port programs: random, and without the symmetry of those that repeat 16 bits,
 * whose hash is much the same for ports that differ little.
 */
extern const uint8_t rp_place_key_default[RP_PLACE_KEY_BYTES];

/** 0, or -EINVAL: a table size that is no power of two up to RP_PLACE_TABLE_MAX, a shard beyond. */
int rp_place_init(struct rp_place *p, const uint8_t key[RP_PLACE_KEY_BYTES], const uint8_t *table,
	uint32_t table_size);

/**
 * The same with entry i of the table meaning the (i mod n)th of the n `shards`, a bit each: how a
 * port with RP_PORT_RSS is programmed, whose queues belong to these in order. -EINVAL also: none.
 */
int rp_place_init_spread(struct rp_place *p, const uint8_t key[RP_PLACE_KEY_BYTES],
	uint32_t table_size, uint64_t shards);

/** The Toeplitz hash of the flow: 12 bytes of IPv4, 36 of IPv6. Both ends are of one family. */
uint32_t rp_place_hash(const struct rp_place *p, const struct rp_place_flow *flow);

/** The shard that a hash means. */
static inline unsigned rp_place_shard(const struct rp_place *p, uint32_t hash)
{
	return p->table[hash & (p->table_size - 1)];
}

/** The shard of a flow, of a packet that this end receives. */
static inline unsigned rp_place_shard_of(const struct rp_place *p, const struct rp_place_flow *flow)
{
	return rp_place_shard(p, rp_place_hash(p, flow));
}

/** Shards that the table names at all: the others get no flow. */
uint64_t rp_place_shards(const struct rp_place *p);

/* The search for a port. */

/** What is wanted of an end. */
struct rp_place_end {
	const struct rp_place *place; /**< borrowed for the search; NULL: anything is right */
	uint64_t shards;	      /**< a bit each of those that will do */
};

struct rp_place_search_config {
	const union rp_ip *local, *remote;
	uint16_t remote_port;
	uint16_t port_first, port_last; /**< the local ports to choose from, both included */
	/**
	 * Which port comes first, and which permutation of them it is: a keyed hash of addresses
	 * and remote port, so that strangers cannot tell (RFC 6056 3.3.3).
	 */
	uint32_t salt;
	/** How many steps were taken in earlier searches: they go on from there. */
	uint32_t step;
	struct rp_place_end near, far;
};

/** A walk. Lives no longer than the places of its ends. */
struct rp_place_search {
	/** The port and the hashes of both ends, and what a step flips in them: as below. */
	uint64_t state, flip[17];
	const uint8_t *table[2];
	uint64_t shards[2];
	uint32_t table_mask[2];
	uint32_t step, left, mask, bits;
	uint32_t ends; /* so many have wishes, or the near one */
	uint16_t first, last;
};

void rp_place_search_begin(struct rp_place_search *s, const struct rp_place_search_config *config);
/** The next port that puts the flow where it is wanted at both ends; 0: there is none left. */
uint16_t rp_place_search_next(struct rp_place_search *s);
