/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "pace.h"

/** Less than this of the rate is a miss. */
#define MET_SHARE 0.99

static uint64_t from_ns(const struct perf_pace *p)
{
	return p->begin_ns + p->config.warmup_ns;
}

static uint64_t to_ns(const struct perf_pace *p)
{
	return from_ns(p) + p->config.run_ns;
}

static uint64_t end_ns(const struct perf_pace *p)
{
	return to_ns(p) + p->config.cool_ns;
}

static bool counts(const struct perf_pace *p, uint64_t at_ns)
{
	return at_ns >= from_ns(p) && at_ns < to_ns(p);
}

void perf_pace_begin(struct perf_pace *p, const struct perf_pace_config *config, uint64_t now_ns)
{
	memset(p, 0, sizeof(*p));
	p->config = *config;
	p->begin_ns = now_ns;
	p->slot_ns = RP_MAX(config->run_ns / PERF_SERIES_MAX + 1, RP_NS_PER_MS);
	rp_hist_init(&p->corrected);
	rp_hist_init(&p->raw);
}

uint64_t perf_pace_next(const struct perf_pace *p, uint64_t now_ns)
{
	uint64_t at_ns = now_ns;

	if (p->config.rate > 0)
		at_ns = p->begin_ns +
			(uint64_t)((double)p->taken * (double)RP_NS_PER_S / p->config.rate);
	return at_ns < end_ns(p) ? at_ns : RP_NEVER;
}

uint64_t perf_pace_take(struct perf_pace *p, uint64_t now_ns)
{
	uint64_t planned_ns = perf_pace_next(p, now_ns);

	p->taken++;
	p->planned += counts(p, planned_ns);
	return planned_ns;
}

void perf_pace_untake(struct perf_pace *p, uint64_t planned_ns)
{
	p->taken--;
	p->planned -= counts(p, planned_ns);
}

void perf_pace_done(struct perf_pace *p, uint64_t planned_ns, uint64_t begun_ns, uint64_t units,
	uint64_t now_ns)
{
	uint64_t took_ns = now_ns - planned_ns;
	struct perf_pace_slot *s;

	if (counts(p, now_ns)) {
		p->ended_in_window++;
		p->units += units;
	}
	if (!counts(p, planned_ns))
		return;
	p->done++;
	rp_hist_record(&p->corrected, took_ns);
	rp_hist_record(&p->raw, now_ns - begun_ns);
	s = &p->series[RP_MIN((planned_ns - from_ns(p)) / p->slot_ns, PERF_SERIES_MAX - 1u)];
	s->count++;
	s->sum_ns += took_ns;
	s->max_ns = RP_MAX(s->max_ns, took_ns);
}

void perf_pace_skip(struct perf_pace *p, uint64_t planned_ns)
{
	if (!counts(p, planned_ns))
		return;
	p->done++;
	p->ended_in_window++;
	p->units++;
}

void perf_pace_lost(struct perf_pace *p, uint64_t planned_ns)
{
	p->lost += counts(p, planned_ns);
}

bool perf_pace_in_window(const struct perf_pace *p, uint64_t now_ns)
{
	return counts(p, now_ns);
}

bool perf_pace_over(const struct perf_pace *p, uint64_t now_ns)
{
	return now_ns >= end_ns(p);
}

void perf_pace_verdict(const struct perf_pace *p, struct perf_verdict *v)
{
	double seconds = (double)p->config.run_ns / (double)RP_NS_PER_S;
	/* What was never begun, since those before it were not over, is as open as what was. */
	unsigned fan_out = RP_MAX(p->config.fan_out, 1u);
	uint64_t planned = p->planned * fan_out;

	if (p->config.rate > 0)
		planned =
			RP_MAX(planned, (uint64_t)(p->config.rate * seconds * MET_SHARE) * fan_out);
	*v = (struct perf_verdict){
		.wanted = p->config.rate,
		.achieved = (double)p->ended_in_window / seconds / fan_out,
		.open = planned > p->done + p->lost ? planned - p->done - p->lost : 0,
	};
	v->met = v->achieved >= MET_SHARE * p->config.rate && v->open == 0 && p->lost == 0 &&
		 p->done > 0;
}
