/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Counters: plain u64 in a struct that one lcore writes and anybody reads, relaxed. A module lists
 * its counters once, X(name, "help"), and gets the struct, the names and the help from the list.
 *
 *   1. In the module's header, a list and its declaration:
 *
 *          #define RP_TCP_COUNTERS(X)                          \
 *                  X(segments_in, "segments received")         \
 *                  X(segments_out, "segments sent")
 *          RP_COUNTERS_DECLARE(tcp, RP_TCP_COUNTERS)
 *
 *      declares struct rp_tcp_counters {uint64_t segments_in, segments_out;} and
 *      extern const struct rp_counter_set rp_tcp_counter_set.
 *   2. In one source of the module: RP_COUNTERS_DEFINE(tcp, RP_TCP_COUNTERS).
 *   3. The owner counts: rp_count(&c->segments_in), rp_count_by(&c->bytes_in, n).
 *   4. Readers take rp_counter_read(), or rp_counters_add() to sum the structs of several shards.
 */

#include <stddef.h>
#include <stdint.h>

#include <base/units.h>

struct rp_counter_info {
	const char *name, *help;
};

/** The counters of one module, in the order of its struct. */
struct rp_counter_set {
	const char *module;
	const struct rp_counter_info *infos;
	unsigned count;
};

/** Owner only: a load and a store, no locked instruction. */
static inline void rp_count_by(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static inline void rp_count(uint64_t *counter)
{
	rp_count_by(counter, 1);
}

/** Any thread. */
static inline uint64_t rp_counter_read(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/** sum[i] += counters[i]: `counters` is the struct of another lcore, `sum` the caller's own. */
static inline void rp_counters_add(uint64_t *sum, const void *counters, unsigned count)
{
	const uint64_t *c = counters;

	for (unsigned i = 0; i < count; i++)
		sum[i] += rp_counter_read(&c[i]);
}

#define RP_COUNTER_FIELD(name, help) uint64_t name;
#define RP_COUNTER_INFO(name, help) {#name, help},

#define RP_COUNTERS_DECLARE(module, LIST) \
	struct rp_##module##_counters {   \
		LIST(RP_COUNTER_FIELD)    \
	};                                \
	extern const struct rp_counter_set rp_##module##_counter_set;

#define RP_COUNTERS_DEFINE(module, LIST)                                                           \
	static const struct rp_counter_info rp_##module##_counter_infos[] = {                      \
		LIST(RP_COUNTER_INFO)};                                                            \
	const struct rp_counter_set rp_##module##_counter_set = {                                  \
		#module, rp_##module##_counter_infos, RP_ARRAY_SIZE(rp_##module##_counter_infos)}; \
	_Static_assert(sizeof(struct rp_##module##_counters) ==                                    \
			       sizeof(uint64_t) * RP_ARRAY_SIZE(rp_##module##_counter_infos),      \
		"a counter struct holds its counters and nothing else");
