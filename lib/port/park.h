/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Parking: while somebody changes a device under a polling lcore, that lcore must be at a place
 * where it touches no device. PMDs do such changes on EAL's interrupt thread (memif unmaps its
 * rings there when the peer goes) and inside rte_eth_dev_stop() and _start(). So every interrupt
 * and alarm callback of a PMD, and every start and stop of a port, runs with all polling lcores
 * parked.
 *
 *   1. A lcore that polls ports calls rp_park_join() once, and rp_park_leave() at its end.
 *   2. Once a loop, while it holds no mbuf of a half-done burst call, rp_park_point(). It costs one
 *      relaxed load when nobody asks. When somebody asks it returns when he is done.
 *   3. Around a sleep, or any wait: rp_park_rest_begin() and rp_park_rest_end(). In between the
 *      lcore counts as parked and must not touch a port.
 *   4. Who changes a device: rp_park_all(), change, rp_park_release(). lib/port does so itself.
 *
 * There is one set of lcores a process, since the callbacks of a PMD bring no context with them.
 * Parkers exclude each other; one thread may nest.
 *
 * How: a slot says `active` while its lcore may touch a port; a parker sets `wanted` and waits
 * until no slot is active. The lcore sets `active` before it looks at `wanted`, with a full barrier
 * in between, and the parker sets `wanted` before it looks at `active`, likewise: one of them sees
 * the other.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>

#define RP_PARK_SLOTS_MAX (2 * RP_SHARDS_MAX)

struct rp_park_slot {
	/* Written by the lcore, read by parkers. */
	_Alignas(RP_CACHE_LINE) atomic_uint active;
	_Atomic uint64_t parked_count; /**< times it was held at a point */
	/* Written by the owner of the table, under its lock. */
	_Alignas(RP_CACHE_LINE) bool used;
};

struct rp_park_wanted {
	_Alignas(RP_CACHE_LINE) atomic_uint count;
};

/** Parkers now; read by every polling lcore, written by a parker only. */
extern struct rp_park_wanted rp_park_wanted;

/** Counters of the process, read by any thread. */
struct rp_park_stats {
	uint64_t parks; /**< times the lcores were parked */
	uint64_t
		callbacks; /**< PMD interrupt and alarm callbacks that ran with the lcores parked */
	uint64_t cancelled; /**< callbacks that were unregistered while they waited for a parker */
	uint64_t stale;	    /**< callbacks removed since a PMD had closed their descriptor */
	uint64_t wrapped;   /**< callbacks now registered through us */
	uint64_t wait_ns_max; /**< longest wait for the lcores to park */
	uint64_t hold_ns_max; /**< longest time they were held */
};

/** The calling thread polls from now on. NULL and errno (ENOSPC) when the table is full. */
struct rp_park_slot *rp_park_join(void);
/** The calling thread no longer polls. NULL is fine. */
void rp_park_leave(struct rp_park_slot *slot);

/** Any thread. Returns when no other joined thread touches a port; holds them until release. */
void rp_park_all(void);
void rp_park_release(void);

void rp_park_stats(struct rp_park_stats *stats);

/** Out of line parts of the functions below. */
void rp_park_hold(struct rp_park_slot *slot);

/** The polling lcore, once a loop. */
static inline void rp_park_point(struct rp_park_slot *slot)
{
	if (__builtin_expect(
		    atomic_load_explicit(&rp_park_wanted.count, memory_order_relaxed) != 0, 0))
		rp_park_hold(slot);
}

/** The polling lcore: touches no port until rp_park_rest_end(). */
static inline void rp_park_rest_begin(struct rp_park_slot *slot)
{
	atomic_store_explicit(&slot->active, 0, memory_order_release);
}

static inline void rp_park_rest_end(struct rp_park_slot *slot)
{
	atomic_store_explicit(&slot->active, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	rp_park_point(slot);
}
