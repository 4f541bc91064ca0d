/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include <rte_cycles.h>

#include <xcore/clock.h>

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* The reading whose two TSC reads lie closest together: a preempted one would tilt the rate. */
static void measure(uint64_t *tsc, uint64_t *mono_ns)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 8; i++) {
		uint64_t before = rte_rdtsc(), ns = clock_ns(CLOCK_MONOTONIC), after = rte_rdtsc();

		if (after - before < best) {
			best = after - before;
			*tsc = before + (after - before) / 2;
			*mono_ns = ns;
		}
	}
}

static uint64_t scale(uint64_t ticks, uint64_t rate_q32)
{
	return (uint64_t)(((__uint128_t)ticks * rate_q32) >> 32);
}

static void publish(struct rp_clock *c, uint64_t tsc, uint64_t mono_ns, uint64_t rate_q32)
{
	uint32_t s = atomic_load_explicit(&c->sequence, memory_order_relaxed);
	int64_t offset = (int64_t)clock_ns(CLOCK_REALTIME) - (int64_t)clock_ns(CLOCK_MONOTONIC);

	atomic_store_explicit(&c->sequence, s + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&c->tsc, tsc, memory_order_relaxed);
	atomic_store_explicit(&c->mono_ns, mono_ns, memory_order_relaxed);
	atomic_store_explicit(&c->ns_per_tsc_q32, rate_q32, memory_order_relaxed);
	atomic_store_explicit(&c->wall_offset_ns, offset, memory_order_relaxed);
	atomic_store_explicit(&c->sequence, s + 2, memory_order_release);
}

void rp_clock_init(struct rp_clock *c, uint64_t measure_ns)
{
	struct timespec ts = {.tv_nsec = (long)measure_ns};
	uint64_t tsc = 0, ns = 0;

	*c = (struct rp_clock){0};
	measure(&c->measured_tsc, &c->measured_ns);
	nanosleep(&ts, NULL);
	measure(&tsc, &ns);
	publish(c, tsc, ns,
		(uint64_t)(((__uint128_t)(ns - c->measured_ns) << 32) / (tsc - c->measured_tsc)));
}

uint64_t rp_clock_slewed_rate(uint64_t rate_q32, int64_t error_ns, uint64_t period_ns)
{
	int64_t most = (int64_t)(rate_q32 / 1000000 * RP_CLOCK_SLEW_PPM);
	int64_t slew = (int64_t)((__int128_t)rate_q32 * error_ns / (int64_t)period_ns);

	if (slew > most)
		slew = most;
	if (slew < -most)
		slew = -most;
	return (uint64_t)((int64_t)rate_q32 + slew);
}

void rp_clock_publish(struct rp_clock *c)
{
	uint64_t tsc = 0, ns = 0, shown_ns, rate;

	measure(&tsc, &ns);
	if (tsc - c->measured_tsc == 0 || ns - c->measured_ns < RP_NS_PER_MS)
		return;
	/* The rate over the whole life: the longer, the better measured. */
	rate = (uint64_t)(((__uint128_t)(ns - c->measured_ns) << 32) / (tsc - c->measured_tsc));
	shown_ns = c->mono_ns + scale(tsc - c->tsc, c->ns_per_tsc_q32);
	publish(c, tsc, shown_ns,
		rp_clock_slewed_rate(rate, (int64_t)(ns - shown_ns), RP_NS_PER_S));
}

static void reload(struct rp_clock_reader *r)
{
	const struct rp_clock *c = r->clock;

	for (int i = 0; i < 1000; i++) {
		uint32_t before = atomic_load_explicit(&c->sequence, memory_order_acquire);

		if (before & 1)
			continue;
		r->tsc = atomic_load_explicit(&c->tsc, memory_order_relaxed);
		r->mono_ns = atomic_load_explicit(&c->mono_ns, memory_order_relaxed);
		r->ns_per_tsc_q32 = atomic_load_explicit(&c->ns_per_tsc_q32, memory_order_relaxed);
		r->wall_offset_ns = atomic_load_explicit(&c->wall_offset_ns, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&c->sequence, memory_order_relaxed) == before) {
			r->sequence = before;
			return;
		}
	}
	/* The writer was preempted half way; the next turn tries again with the old view. */
}

void rp_clock_reader_init(struct rp_clock_reader *r, const struct rp_clock *c)
{
	*r = (struct rp_clock_reader){.clock = c};
	reload(r);
}

uint64_t rp_clock_now(struct rp_clock_reader *r)
{
	uint64_t tsc = rte_rdtsc(), now_ns;

	if (atomic_load_explicit(&r->clock->sequence, memory_order_relaxed) != r->sequence)
		reload(r);
	now_ns = r->mono_ns + (tsc > r->tsc ? scale(tsc - r->tsc, r->ns_per_tsc_q32) : 0);
	if (now_ns < r->last_ns)
		return r->last_ns;
	r->last_ns = now_ns;
	return now_ns;
}
