/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <base/units.h>

#include "line.h"

#define TRIPS 200
/** An interrupt or another program tears a round: the best of many counts. */
#define ROUNDS 100
/** The other CPU may be another program's for a while. */
#define MOST_NS (60 * RP_NS_PER_MS)

struct line {
	_Alignas(2 * RP_CACHE_LINE) atomic_uint value;
	_Alignas(2 * RP_CACHE_LINE) atomic_bool stop;
	uint32_t cpu;
	int rc;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

int perf_line_pin(uint32_t cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

/* Makes each odd value even. */
static void *answer(void *arg)
{
	struct line *l = arg;

	l->rc = perf_line_pin(l->cpu);
	while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
		unsigned v = atomic_load_explicit(&l->value, memory_order_relaxed);

		if (v & 1)
			atomic_store_explicit(&l->value, v + 1, memory_order_relaxed);
	}
	return NULL;
}

/* Time of TRIPS there and back; 0: it took too long. */
static uint64_t one_round(struct line *l, uint64_t until_ns)
{
	uint64_t begin_ns = now_ns();

	for (unsigned i = 0; i < TRIPS; i++) {
		unsigned v = atomic_load_explicit(&l->value, memory_order_relaxed) + 1;

		atomic_store_explicit(&l->value, v, memory_order_relaxed);
		for (unsigned spins = 1; atomic_load_explicit(&l->value, memory_order_relaxed) == v;
			spins++)
			if (spins % 4096 == 0 && now_ns() > until_ns)
				return 0;
	}
	return now_ns() - begin_ns;
}

double perf_line_ns(uint32_t cpu)
{
	struct line l = {.cpu = cpu};
	uint64_t until_ns = now_ns() + MOST_NS, best_ns = 0;
	pthread_t thread;

	if (pthread_create(&thread, NULL, answer, &l) != 0)
		return 0;
	for (unsigned i = 0; i < ROUNDS && now_ns() < until_ns; i++) {
		uint64_t t = one_round(&l, until_ns);

		if (t > 0 && (best_ns == 0 || t < best_ns))
			best_ns = t;
	}
	atomic_store(&l.stop, true);
	pthread_join(thread, NULL);
	return l.rc == 0 ? (double)best_ns / TRIPS : 0;
}
