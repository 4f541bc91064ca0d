/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "mode.h"

static const struct perf_mode *const modes[] = {
	&perf_mode_io,
	&perf_mode_echo,
	&perf_mode_tcp_stream,
	&perf_mode_tcp_rr,
	&perf_mode_tcp_crr,
	&perf_mode_deliver,
	&perf_mode_rr,
	&perf_mode_process,
	&perf_mode_etcd_put,
	&perf_mode_etcd_range,
	&perf_mode_etcd_watch,
	&perf_mode_grpc,
	&perf_mode_nats_rr,
	&perf_mode_nats,
};

void perf_run_pace(struct perf_run *run, uint64_t now_ns)
{
	const struct perf_options *o = run->options;
	const struct perf_pace_config c = {
		.rate = run->rate,
		.fan_out = run->mode->fan_out ? o->watchers : 1,
		.warmup_ns = o->warmup_ns,
		.run_ns = o->run_ns,
		.cool_ns = o->cool_ns,
	};

	perf_pace_begin(&run->pace, &c, now_ns);
}

const struct perf_mode *perf_mode_at(unsigned n)
{
	return n < RP_ARRAY_SIZE(modes) ? modes[n] : NULL;
}

const struct perf_mode *perf_mode_find(const char *name)
{
	for (unsigned i = 0; i < RP_ARRAY_SIZE(modes); i++)
		if (strcmp(modes[i]->name, name) == 0)
			return modes[i];
	return NULL;
}
