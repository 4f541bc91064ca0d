/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The two records of the registry, the rules by which they merge, the identity of messages, the
 * election and the cost of a route: pure functions (spec/queues.md, "Records", "Election, epoch and
 * placement", "Cost model").
 *
 *	dispatcher	<node>[;reply_to=<queue>][;pinned][;epoch=<n>]
 *	consumer	<node>[;cap=<a,b,...>][;max_bytes=<n>][;prefetch=<n>][;match=<tail prefix>]
 *
 *   1. *_parse() a value from the store. Spans point into the text, which must outlive the struct.
 *   2. *_merge() what a client put, or compare with rp_route_dispatcher_compare().
 *   3. *_format() writes the value back, unknown fields included.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/units.h>

/** Longest value of a record that a client may put, and that format() is sure to fit. */
#define RP_RECORD_BYTES_MAX 4096

#define RP_EPOCH_BITS 24
#define RP_EPOCH_MAX ((1u << RP_EPOCH_BITS) - 1)
#define RP_SEQUENCE_BITS 40
#define RP_SEQUENCE_MAX ((1ull << RP_SEQUENCE_BITS) - 1)

struct rp_dispatcher_record {
	uint64_t node;	/**< 0 = nobody */
	uint32_t epoch; /**< 0 = not given */
	bool pinned;
	struct rp_span reply_to; /**< length 0 = none */
	/** Texts whose unknown fields format() keeps; the later one wins for a name in both. */
	struct rp_span texts[2];
};

struct rp_consumer_record {
	uint64_t node;	      /**< 0 = not hosted: fields that a client put before its watch */
	uint64_t max_bytes;   /**< 0 = no limit of its own */
	uint32_t prefetch;    /**< 0 = the node's default */
	struct rp_span cap;   /**< comma list; length 0 = none */
	struct rp_span match; /**< prefix of the tail; length 0 = all */
	struct rp_span texts[2];
};

/**
 * 0, or -ENOENT when the first field is no node (0, empty or junk): there is no record then, but
 * what other fields there are is in *out. A field that does not parse counts as absent.
 */
int rp_route_dispatcher_parse(struct rp_dispatcher_record *out, const void *text, size_t length);
int rp_route_consumer_parse(struct rp_consumer_record *out, const void *text, size_t length);

/** Length written, or -ENOSPC. Known fields in the order above, then the unknown ones. */
int rp_route_dispatcher_format(const struct rp_dispatcher_record *r, void *out, size_t size);
int rp_route_consumer_format(const struct rp_consumer_record *r, void *out, size_t size);

/**
 * A client's put on /q/{name}: only reply_to and pinned change. A text without a node (";pinned")
 * changes the fields it names ("reply_to=" and "pinned=0" clear); a whole record replaces both, and
 * must name the same node and epoch as `current` (as parse() gave it). 0, -EPERM (node or epoch
 * differ), -EINVAL (too long, or neither form). On 0 *out borrows from both texts.
 */
int rp_route_dispatcher_merge(struct rp_dispatcher_record *out,
	const struct rp_dispatcher_record *current, const void *text, size_t length);

/**
 * A client's put on a consumer key: ";field=..." parts only, each replacing the field of `current`;
 * an empty value clears it. 0, -EPERM (it names a node), -EINVAL (too long, a number that does not
 * parse, a match longer than a tail can be). On 0 *out borrows from both texts.
 */
int rp_route_consumer_merge(struct rp_consumer_record *out,
	const struct rp_consumer_record *current, const void *text, size_t length);

/** Dispatcher records merge by (epoch, node): <0, 0, >0 as `a` is older, the same, newer. */
int rp_route_dispatcher_compare(
	uint32_t epoch_a, uint64_t node_a, uint32_t epoch_b, uint64_t node_b);

/** True when a consumer's `cap` list holds `need`; an empty need is held by all. */
bool rp_route_cap_has(struct rp_span cap, struct rp_span need);

/**
 * The epoch of a new claim: max(newest epoch seen for the name + 1, minutes since 2026-01-01 UTC).
 * 0 when the 24 bits are used up: the claim must not be made.
 */
uint32_t rp_route_epoch_next(uint32_t epoch_seen, uint64_t wall_us);

/** idx = epoch (24 bits), sequence (40 bits). */
static inline uint64_t rp_route_idx_pack(uint32_t epoch, uint64_t sequence)
{
	return (uint64_t)epoch << RP_SEQUENCE_BITS | (sequence & RP_SEQUENCE_MAX);
}

static inline uint32_t rp_route_idx_epoch(uint64_t idx)
{
	return (uint32_t)(idx >> RP_SEQUENCE_BITS);
}

static inline uint64_t rp_route_idx_sequence(uint64_t idx)
{
	return idx & RP_SEQUENCE_MAX;
}

/* ---- election ---- */

/** State of a node (spec/cluster.md, "Membership"). Only Online nodes dispatch. */
enum rp_node_state {
	RP_NODE_GONE,	     /**< not a member */
	RP_NODE_SPARE,	     /**< timed out, or not synced */
	RP_NODE_IN_PROGRESS, /**< syncing: gets writes, does not dispatch */
	RP_NODE_ONLINE,
};

/** Why a node wants to know who dispatches. */
enum rp_claim {
	RP_CLAIM_NONE,	   /**< an acknowledge, a look: never claims */
	RP_CLAIM_PRODUCER, /**< it has a producer */
	RP_CLAIM_CONSUMER, /**< it hosts a consumer */
};

/** Where a queue's messages go. Never an optional id. */
enum rp_dispatch {
	RP_DISPATCH_LOCAL,
	RP_DISPATCH_REMOTE,
	RP_DISPATCH_UNKNOWN,
};

/** What a node knows of one queue. */
struct rp_election {
	uint64_t self;
	enum rp_node_state self_state;
	uint64_t node; /**< of the record; 0 = unclaimed */
	enum rp_node_state node_state;
	bool own_claim;		  /**< the record is a claim that this node made in this life */
	bool node_hosts_consumer; /**< as the registry has it; only CONSUMER looks */
	bool pinned;		  /**< the record says so: nobody takes it over */
};

enum rp_election_verdict {
	RP_ELECT_LOCAL,	      /**< this node dispatches */
	RP_ELECT_REMOTE,      /**< the record's node does */
	RP_ELECT_CLAIM,	      /**< write the record for this node with the next epoch */
	RP_ELECT_TAKE_OVER,   /**< ask the live dispatcher for the queue; until then as REMOTE */
	RP_ELECT_UNAVAILABLE, /**< nobody dispatches and this node may not */
};

enum rp_election_verdict rp_route_elect(const struct rp_election *e, enum rp_claim claim);

/** The verdict as the three cases. */
static inline enum rp_dispatch rp_route_dispatch_of(enum rp_election_verdict v)
{
	switch (v) {
	case RP_ELECT_LOCAL:
	case RP_ELECT_CLAIM:
		return RP_DISPATCH_LOCAL;
	case RP_ELECT_REMOTE:
	case RP_ELECT_TAKE_OVER:
		return RP_DISPATCH_REMOTE;
	case RP_ELECT_UNAVAILABLE:
		break;
	}
	return RP_DISPATCH_UNKNOWN;
}

/* ---- cost model ---- */

/** Peer RPCs that one message costs from producer to consumer; dispatcher 0 = broadcast. */
uint32_t rp_route_cost_leg(
	uint32_t nodes, uint64_t producer, uint64_t dispatcher, uint64_t consumer);
/** Request there and reply back between two nodes; a dispatcher for each queue. */
uint32_t rp_route_cost_round_trip(uint32_t nodes, uint64_t requester, uint64_t worker,
	uint64_t request_dispatcher, uint64_t reply_dispatcher);
/** Peer RPCs of an acknowledge: 1 to a remote dispatcher, 0 to a local one. */
uint32_t rp_route_cost_ack(uint64_t node, uint64_t dispatcher);
