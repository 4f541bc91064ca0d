/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>
#include <route/record.h>

/* 2026-01-01 00:00:00 UTC, in minutes since 1970. */
#define EPOCH_ORIGIN_MINUTES (1767225600ull / 60)
#define US_PER_MINUTE 60000000ull

int rp_route_dispatcher_compare(
	uint32_t epoch_a, uint64_t node_a, uint32_t epoch_b, uint64_t node_b)
{
	if (epoch_a != epoch_b)
		return epoch_a < epoch_b ? -1 : 1;
	return (node_a > node_b) - (node_a < node_b);
}

uint32_t rp_route_epoch_next(uint32_t epoch_seen, uint64_t wall_us)
{
	uint64_t minutes = wall_us / US_PER_MINUTE;
	uint64_t next = (uint64_t)epoch_seen + 1;

	minutes = minutes > EPOCH_ORIGIN_MINUTES ? minutes - EPOCH_ORIGIN_MINUTES : 0;
	/* A clock that is far ahead must not use the epochs up. */
	if (minutes <= RP_EPOCH_MAX)
		next = RP_MAX(next, minutes);
	return next <= RP_EPOCH_MAX ? (uint32_t)next : 0;
}

enum rp_election_verdict rp_route_elect(const struct rp_election *e, enum rp_claim claim)
{
	bool self_online = e->self_state == RP_NODE_ONLINE;
	bool usable = e->node && e->node_state == RP_NODE_ONLINE;

	RP_ASSERT(e->self != 0);
	if (e->node == e->self) {
		if (!self_online)
			return RP_ELECT_UNAVAILABLE;
		if (e->own_claim)
			return RP_ELECT_LOCAL;
		/* From an earlier life: its indexes must not be given out again. */
		return claim == RP_CLAIM_NONE ? RP_ELECT_UNAVAILABLE : RP_ELECT_CLAIM;
	}
	if (usable) {
		if (claim == RP_CLAIM_CONSUMER && self_online && !e->node_hosts_consumer &&
			!e->pinned)
			return RP_ELECT_TAKE_OVER;
		return RP_ELECT_REMOTE;
	}
	if (claim == RP_CLAIM_NONE || !self_online)
		return RP_ELECT_UNAVAILABLE;
	return RP_ELECT_CLAIM;
}

/* From node to node is one call, on a node none. */
static uint32_t route_hop(uint64_t from, uint64_t to)
{
	return from != to;
}

uint32_t rp_route_cost_leg(
	uint32_t nodes, uint64_t producer, uint64_t dispatcher, uint64_t consumer)
{
	if (!dispatcher)
		return nodes > 0 ? nodes - 1 : 0;
	return route_hop(producer, dispatcher) + route_hop(dispatcher, consumer);
}

uint32_t rp_route_cost_round_trip(uint32_t nodes, uint64_t requester, uint64_t worker,
	uint64_t request_dispatcher, uint64_t reply_dispatcher)
{
	return rp_route_cost_leg(nodes, requester, request_dispatcher, worker) +
	       rp_route_cost_leg(nodes, worker, reply_dispatcher, requester);
}

uint32_t rp_route_cost_ack(uint64_t node, uint64_t dispatcher)
{
	return route_hop(node, dispatcher);
}
