/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include <rte_pause.h>

#include <base/assert.h>
#include <base/log.h>
#include <port/park.h>

#include "port_priv.h"

/** Pauses before a waiting thread gives its core away, and before it sleeps. */
#define SPINS_BEFORE_YIELD 256
#define SPINS_BEFORE_SLEEP 4096
#define SLEEP_NS 20000
/** A lcore that does not park within this time is worth a line in the log. */
#define WAIT_NS_WORTH_A_WARNING (2 * RP_NS_PER_S)

struct rp_park_wanted rp_park_wanted;

/** Who parks. The lock is held for moments only; `owned` lasts as long as the change to a device.
 */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	bool owned;
	uint64_t since_ns; /* of the owner */
};

static struct gate gate = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.freed = PTHREAD_COND_INITIALIZER,
};
static struct rp_park_slot slots[RP_PARK_SLOTS_MAX]; /* `used` under gate.lock */
static _Thread_local struct rp_park_slot *own_slot;
static _Thread_local unsigned gate_depth; /* how often this thread holds the gate */
static _Thread_local unsigned park_depth; /* how often it holds the lcores */

static _Atomic uint64_t count_parks, count_callbacks, count_cancelled, count_wrapped, count_stale;
static _Atomic uint64_t wait_ns_max, hold_ns_max;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Waits a little, longer the more often it was called in a row. */
static void back_off(unsigned *spins)
{
	if (++*spins < SPINS_BEFORE_YIELD) {
		rte_pause();
	} else if (*spins < SPINS_BEFORE_SLEEP) {
		sched_yield();
	} else {
		struct timespec ts = {.tv_nsec = SLEEP_NS};

		nanosleep(&ts, NULL);
	}
}

static void raise_max(_Atomic uint64_t *max, uint64_t value)
{
	if (value > atomic_load_explicit(max, memory_order_relaxed))
		atomic_store_explicit(max, value, memory_order_relaxed);
}

struct rp_park_slot *rp_park_join(void)
{
	struct rp_park_slot *slot = NULL;

	RP_ASSERT(!own_slot);
	pthread_mutex_lock(&gate.lock);
	for (unsigned i = 0; i < RP_PARK_SLOTS_MAX && !slot; i++)
		if (!slots[i].used)
			slot = &slots[i];
	if (slot)
		slot->used = true;
	pthread_mutex_unlock(&gate.lock);
	if (!slot) {
		errno = ENOSPC;
		return NULL;
	}
	own_slot = slot;
	atomic_store_explicit(&slot->parked_count, 0, memory_order_relaxed);
	rp_park_rest_end(slot);
	return slot;
}

void rp_park_leave(struct rp_park_slot *slot)
{
	if (!slot)
		return;
	RP_ASSERT(slot == own_slot);
	rp_park_rest_begin(slot);
	own_slot = NULL;
	pthread_mutex_lock(&gate.lock);
	slot->used = false;
	pthread_mutex_unlock(&gate.lock);
}

void rp_park_hold(struct rp_park_slot *slot)
{
	/* A thread that parks the others may poll meanwhile: it cannot race with itself. */
	if (park_depth > 0)
		return;
	atomic_fetch_add_explicit(&slot->parked_count, 1, memory_order_relaxed);
	do {
		unsigned spins = 0;

		atomic_store_explicit(&slot->active, 0, memory_order_release);
		while (atomic_load_explicit(&rp_park_wanted.count, memory_order_acquire) != 0)
			back_off(&spins);
		atomic_store_explicit(&slot->active, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
	} while (atomic_load_explicit(&rp_park_wanted.count, memory_order_acquire) != 0);
}

static void wait_for_lcores(void)
{
	uint64_t begin_ns = now_ns();
	bool warned = false;

	for (unsigned i = 0; i < RP_PARK_SLOTS_MAX; i++) {
		unsigned spins = 0;

		if (&slots[i] == own_slot)
			continue;
		while (atomic_load_explicit(&slots[i].active, memory_order_acquire) != 0) {
			back_off(&spins);
			if (!warned && spins > SPINS_BEFORE_SLEEP &&
				now_ns() - begin_ns > WAIT_NS_WORTH_A_WARNING) {
				RP_LOG(RP_LOG_PORT, RP_LOG_WARNING,
					"a polling lcore does not park (slot %u)", i);
				warned = true;
			}
		}
	}
	raise_max(&wait_ns_max, now_ns() - begin_ns);
}

bool park_gate_take(const bool *cancelled)
{
	if (gate_depth > 0) {
		gate_depth++;
		return true;
	}
	pthread_mutex_lock(&gate.lock);
	while (gate.owned && !(cancelled && *cancelled))
		pthread_cond_wait(&gate.freed, &gate.lock);
	if (cancelled && *cancelled) {
		pthread_mutex_unlock(&gate.lock);
		return false;
	}
	gate.owned = true;
	pthread_mutex_unlock(&gate.lock);
	gate_depth = 1;
	return true;
}

void park_gate_leave(void)
{
	RP_ASSERT(gate_depth > 0);
	if (--gate_depth > 0)
		return;
	pthread_mutex_lock(&gate.lock);
	gate.owned = false;
	pthread_cond_broadcast(&gate.freed);
	pthread_mutex_unlock(&gate.lock);
}

bool park_gate_is_mine(void)
{
	return gate_depth > 0;
}

void rp_park_all(void)
{
	park_gate_take(NULL);
	if (park_depth++ > 0)
		return;
	atomic_store_explicit(&rp_park_wanted.count, 1, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst);
	wait_for_lcores();
	gate.since_ns = now_ns();
	atomic_fetch_add_explicit(&count_parks, 1, memory_order_relaxed);
}

void rp_park_release(void)
{
	RP_ASSERT(park_depth > 0);
	if (--park_depth == 0) {
		raise_max(&hold_ns_max, now_ns() - gate.since_ns);
		atomic_store_explicit(&rp_park_wanted.count, 0, memory_order_release);
	}
	park_gate_leave();
}

void park_cancel(bool *cancelled)
{
	pthread_mutex_lock(&gate.lock);
	*cancelled = true;
	pthread_cond_broadcast(&gate.freed);
	pthread_mutex_unlock(&gate.lock);
}

void park_count_callback(void)
{
	atomic_fetch_add_explicit(&count_callbacks, 1, memory_order_relaxed);
}

void park_count_cancelled(void)
{
	atomic_fetch_add_explicit(&count_cancelled, 1, memory_order_relaxed);
}

void park_count_stale(void)
{
	atomic_fetch_add_explicit(&count_stale, 1, memory_order_relaxed);
}

void park_count_wrapped(int by)
{
	atomic_fetch_add_explicit(&count_wrapped, (uint64_t)(int64_t)by, memory_order_relaxed);
}

void rp_park_stats(struct rp_park_stats *stats)
{
	*stats = (struct rp_park_stats){
		.parks = atomic_load_explicit(&count_parks, memory_order_relaxed),
		.callbacks = atomic_load_explicit(&count_callbacks, memory_order_relaxed),
		.cancelled = atomic_load_explicit(&count_cancelled, memory_order_relaxed),
		.stale = atomic_load_explicit(&count_stale, memory_order_relaxed),
		.wrapped = atomic_load_explicit(&count_wrapped, memory_order_relaxed),
		.wait_ns_max = atomic_load_explicit(&wait_ns_max, memory_order_relaxed),
		.hold_ns_max = atomic_load_explicit(&hold_ns_max, memory_order_relaxed),
	};
}
