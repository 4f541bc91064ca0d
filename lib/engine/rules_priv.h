/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whom the keys of a queue may not go to, as the shards ask it: made by control for SET_POLICIES,
 * read by every shard until each has said that it uses the next (spec/cluster.md, Policy).
 */

#include <route/policy.h>

struct engine_zone {
	uint64_t node;
	bool same; /**< it is known to be in the zone of this node */
};

struct engine_rules {
	struct rp_policy *policy; /**< an owner of it */
	uint32_t count;
	struct engine_zone nodes[RP_PEERS_MAX];
};

/**
 * Of a node that was never dialled the zone is not known, and nothing is kept from it until it is.
 * `rules` NULL: nothing is kept from anybody.
 */
static inline bool engine_rules_part(
	const struct engine_rules *rules, struct rp_span name, uint64_t node)
{
	for (uint32_t i = 0; rules && i < rules->count; i++) {
		if (rules->nodes[i].node == node)
			return !rp_policy_queue_may_leave(
				rules->policy, name, rules->nodes[i].same);
	}
	return false;
}
