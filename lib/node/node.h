/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A whole node in this process: EAL, pools, ports, shards and the control thread. One a process,
 * since EAL starts once.
 *
 *   1. rp_node_create() on the thread that becomes the control thread, with a configuration that
 *      rp_conf_resolve() has completed.
 *   2. rp_node_run() until a signal or rp_node_request_stop().
 *   3. rp_node_destroy().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <conf/conf.h>
#include <ctl/ctl.h>

struct rp_node;

#define RP_NODE_ERROR_SIZE 1024

/** What a process has to do with its node, besides its configuration. */
struct rp_node_process {
	/** How it is read again, by SIGHUP and `ringpostctl reload`. */
	struct rp_conf_source source; /**< borrow its texts for the node's life */
	/** One is in force: what the process has of its own, as its log, follows. May be NULL. */
	void (*reconfigured)(const struct rp_conf *conf);
	bool no_signals; /**< the process keeps them for itself */
	struct rp_ctl_events events;
};

/**
 * borrow: `conf` for the node's life. `process` may be NULL: the configuration stays as it is.
 * `shards_float`: the shards may run on every CPU (the plan's CPUs are only a choice of auto). NULL
 * with *exit_code (enum rp_exit) and `error` filled: cause, evidence, remedy.
 */
struct rp_node *rp_node_create(const struct rp_conf *conf, const struct rp_conf_plan *plan,
	const struct rp_node_process *process, bool shards_float, int *exit_code, char *error,
	size_t error_size);
/** Returns an enum rp_exit. */
int rp_node_run(struct rp_node *node);
/** Any thread, and a signal handler. */
void rp_node_request_stop(struct rp_node *node);
/** For ringpost.c. */
struct rp_ctl *rp_node_ctl(struct rp_node *node);
uint64_t rp_node_id(const struct rp_node *node);
/** Removes what the node left in the runtime folder. NULL is fine. */
void rp_node_destroy(struct rp_node *node);

/** What a node takes of the host, for --dry-run: prints one line a fact. */
struct rp_node_sizes {
	uint64_t ports_bytes; /**< receive buffers and devices */
	uint32_t queue_mbufs; /**< buffers for messages */
	uint32_t frame_mbufs; /**< headers, frames */
	uint32_t tap_blocks;  /**< of a capture, 16 KiB each; none without ports */
	uint64_t total_bytes;
};
void rp_node_sizes(
	const struct rp_conf *conf, const struct rp_conf_plan *plan, struct rp_node_sizes *sizes);
