/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An engine of one shard without links, small, for the tests of what it does with its control. */

#include <engine/shard_engine_priv.h>

static inline struct rp_engine_config engine_small(struct rte_mempool *pool, uint32_t messages_max)
{
	return (struct rp_engine_config){
		.shards = 1,
		.deliver = {.node = 1,
			.shards = 1,
			.message_bytes_max = 4096,
			.window_bytes = 4096,
			.peer_budget_bytes = 8192,
			.streams_max = 16,
			.peers_max = 4,
			.peer_messages_max = 16,
			.messages_max = 16,
			.idle_ns = RP_NS_PER_S,
			.unary_fallback = true,
			.pool = pool},
		.queue = {.node = 1,
			.boot = 1,
			.pool = pool,
			.message_bytes_max = 4096,
			.queues_max = 16,
			.messages_max = messages_max,
			.consumers_max = 16,
			.holds_max = messages_max,
			.producers_max = 16,
			.tails_max = 16},
	};
}
