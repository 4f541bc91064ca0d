/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Start and stop of DPDK's environment, so that it needs nothing of the host: no file in /etc, no
 * mounted hugetlbfs, no fixed core. One start a process; DPDK cannot be started twice.
 *
 *   1. rp_eal_start() on the thread that becomes the control thread (EAL's main lcore).
 *   2. Pools by rp_pool_create(), ports by rp_port_create().
 *   3. rte_eal_remote_launch(fn, arg, rp_eal_shard_lcore(i)) for each shard; rte_eal_wait_lcore().
 *   4. rp_eal_stop() when all ports are closed.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/units.h>

struct rte_mempool;

/** Text of an error: cause, evidence, remedy. What every `error` buffer of this folder wants. */
#define RP_PORT_ERROR_SIZE 512

/** The shard may run on every CPU that the process may use. */
#define RP_EAL_CPU_ANY UINT32_MAX

enum rp_eal_hugepages {
	RP_EAL_HUGEPAGES_AUTO, /**< used when enough of them are free */
	RP_EAL_HUGEPAGES_ON,   /**< or the start fails */
	RP_EAL_HUGEPAGES_OFF,
};

struct rp_eal_config {
	const char *program;	 /**< argv[0] of EAL; NULL = "ringpost" */
	const char *file_prefix; /**< of the runtime folder, from the node's uuid; no '/' */
	enum rp_eal_hugepages hugepages;
	uint32_t memory_mib;		   /**< 0 = 128 */
	uint32_t shards;		   /**< worker lcores, at least 0, at most RP_SHARDS_MAX */
	uint32_t shard_cpu[RP_SHARDS_MAX]; /**< CPU of each shard, or RP_EAL_CPU_ANY */
	uint32_t main_cpu;		   /**< of the control thread; RP_EAL_CPU_ANY: it floats */
	bool pci;			   /**< probe PCI: only when a port needs it */
	bool telemetry;			   /**< serve DPDK's telemetry socket */
	const char *extra_args;		   /**< more EAL arguments, split at blanks; NULL = none */
};

struct rp_eal_info {
	bool hugepages;		 /**< in use */
	uint32_t memory_mib;	 /**< given to EAL */
	uint64_t hugepages_free; /**< 2 MiB pages that were free at start */
	char runtime_dir[256];	 /**< removed at stop; at start already without telemetry */
	char arguments[1024];	 /**< as EAL got them, for the log */
};

/** A configuration with every field at its default: no shard, no PCI, no telemetry. */
void rp_eal_config_init(struct rp_eal_config *config);

/**
 * Control thread. 0; -EALREADY after a start; -ENOMEM: memory or hugepages; -EINVAL: a value; else
 * what EAL said. SIGPIPE is ignored from then on, unless it has a handler. `error` (of `error_size`
 * bytes) gets EAL's own last lines. `info` may be NULL.
 */
int rp_eal_start(const struct rp_eal_config *config, struct rp_eal_info *info, char *error,
	size_t error_size);

/** Control thread; every shard has returned and every port is closed. Removes the runtime folder.
 */
void rp_eal_stop(void);

/** lcore id of shard `shard`, for rte_eal_remote_launch(). */
static inline unsigned rp_eal_shard_lcore(uint32_t shard)
{
	return shard;
}

/**
 * An mbuf pool behind the lock-free stack handler (the control thread is preemptible, and a pool on
 * a ring must not be used by such a thread). `count` mbufs of `data_room` bytes behind the headroom
 * and `priv_size` private bytes, a multiple of 8. `socket` is a NUMA socket or -1. `name` is unique
 * and at most 24 bytes.
 * Control thread. NULL with errno and `error` filled. Free with rte_mempool_free().
 */
struct rte_mempool *rp_pool_create(const char *name, uint32_t count, uint16_t data_room,
	uint16_t priv_size, int socket, char *error, size_t error_size);

/** Bytes that rp_pool_create() takes from EAL's memory, for sizing rp_eal_config.memory_mib. */
uint64_t rp_pool_bytes(uint32_t count, uint16_t data_room, uint16_t priv_size);

/** 2 MiB hugepages free on this machine. */
uint64_t rp_eal_hugepages_free(void);
