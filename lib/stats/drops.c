/* SPDX-License-Identifier: Apache-2.0 */
#include <stats/drops.h>

#include <base/assert.h>

static const struct rp_drop_reason_info infos[RP_DROP_COUNT] = {
#define X(name, severity, help) [RP_DROP_##name] = {#name, help, RP_DROP_##severity},
#include <stats/drop_reason.def>
#undef X
};

uint64_t rp_drops_total(const struct rp_drops *d)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < RP_DROP_COUNT; i++)
		total += rp_drops_read(d, (enum rp_drop_reason)i);
	return total;
}

const struct rp_drop_reason_info *rp_drop_reason_info(enum rp_drop_reason reason)
{
	RP_ASSERT((unsigned)reason < RP_DROP_COUNT);
	return &infos[reason];
}

const char *rp_drop_severity_name(enum rp_drop_severity severity)
{
	static const char *const names[] = {"normal", "odd", "bad"};

	RP_ASSERT((unsigned)severity < RP_ARRAY_SIZE(names));
	return names[severity];
}
