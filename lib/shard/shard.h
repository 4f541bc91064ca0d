/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One shard on one lcore: the loop that moves messages between rings, ports and the engine.
 *
 *   1. The control thread fills struct rp_shard_config and calls rp_shard_create().
 *   2. rte_eal_remote_launch(rp_shard_main, shard, lcore).
 *   3. RP_XMSG_STOP with phases 1 and 2 over the rings; then rp_shard_request_stop() ends the loop.
 *   4. rte_eal_wait_lcore(), then rp_shard_destroy().
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <engine/shard_engine.h>
#include <ktcp/ktcp.h>
#include <port/port.h>
#include <xcore/clock.h>
#include <xcore/xcore.h>

struct rp_shard;

struct rp_shard_config {
	struct rp_engine_config engine; /**< `ktcp` in it is set from `ktcp` below */
	struct rp_xcore *xcore;		/**< borrow */
	const struct rp_clock *clock;	/**< borrow */
	/**
	 * borrow; engine.port_count of them. NULL: this shard polls none, and sends by that of
	 * engine.queue_shard. engine.ports_foreign follows from it.
	 */
	struct rp_port_queue *ports[RP_ENGINE_PORTS_MAX];
	struct rp_ktcp *ktcp;  /**< borrow; NULL = none */
	bool poll;	       /**< never sleeps */
	uint64_t idle_spin_ns; /**< adaptive: spins so long before it sleeps */
};

/** Control thread. NULL and errno. */
struct rp_shard *rp_shard_create(const struct rp_shard_config *config);
/** Control thread, after the loop has ended. NULL is fine. */
void rp_shard_destroy(struct rp_shard *s);
/** The lcore's function; `arg` is the shard. Returns 0. */
int rp_shard_main(void *arg);
/** Any thread: the loop ends with this turn. */
void rp_shard_request_stop(struct rp_shard *s);
