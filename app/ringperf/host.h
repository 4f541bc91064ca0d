/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a process of ringperf measures with: DPDK's environment, ports, pools, a transport, and the
 * lcore. Made once a process, since EAL starts once.
 *
 *   1. perf_host_make().
 *   2. Batch tests: rte_eal_remote_launch() of their loop on perf_host_lcore(). Modes:
 *      perf_host_launch(), then perf_host_run() for each run, perf_host_end().
 *   3. perf_host_destroy().
 *
 * Of the control thread.
 */

#include "mode.h"

struct perf_host {
	const struct perf_options *options;
	struct perf_worker worker;
	struct rp_eal_info eal;
	bool made, launched;
	struct rp_port_config port_configs[PERF_PORTS_MAX];
	struct rp_port_info port_infos[PERF_PORTS_MAX];
	struct rte_mempool *header_pool, *control_pool, *ktcp_pool;
	char error[RP_PORT_ERROR_SIZE];
	/* The control thread gives the lcore a run; the lcore takes it away when it has begun. */
	_Atomic(struct perf_run *) next;
};

/** 0, or -errno with `error` filled. Borrows the options, which may change but for the devices. */
int perf_host_make(struct perf_host *h, const struct perf_options *options, bool engine);
void perf_host_destroy(struct perf_host *h);
bool perf_host_has_port(const struct perf_host *h);
bool perf_host_link_is_up(const struct perf_host *h);
unsigned perf_host_lcore(void);

/** CLOCK_MONOTONIC. */
uint64_t perf_now_ns(void);
/**
 * Looks after ports and clock until done(ctx), or until the deadline or a signal: false.
 */
bool perf_host_watch(struct perf_host *h, uint64_t deadline_ns, bool (*done)(void *ctx), void *ctx);
/** One look, of the interactive mode. */
void perf_host_look(struct perf_host *h);
/** SIGINT or SIGTERM came. */
extern atomic_bool perf_told_to_stop;

void perf_host_launch(struct perf_host *h);
/** The run is the lcore's until `ended`. A mode that needs sockets only runs in a thread. */
int perf_host_run(struct perf_host *h, struct perf_run *run);
/** Ends the lcore's loop; no run is under way. */
void perf_host_end(struct perf_host *h);
