/* SPDX-License-Identifier: Apache-2.0 */
#include <stats/drops.h>

#include <string.h>

#include <base/assert.h>
#include <base/units.h>

const struct rp_drop_reason rp_drop_reasons[] = {
#define X(module, counter, severity) {#module, #counter, RP_DROP_##severity},
#include <stats/drop_reason.def>
#undef X
};
const unsigned rp_drop_reasons_count = RP_ARRAY_SIZE(rp_drop_reasons);

const struct rp_message_fate rp_message_fates[] = {
#define X(counter, fate, severity) {#counter, RP_FATE_##fate, RP_DROP_##severity},
#include <stats/message_fate.def>
};
const unsigned rp_message_fates_count = RP_ARRAY_SIZE(rp_message_fates);

const struct rp_drop_reason *rp_drop_reason_find(const char *module, const char *counter)
{
	for (unsigned i = 0; i < rp_drop_reasons_count; i++) {
		const struct rp_drop_reason *r = &rp_drop_reasons[i];

		if (strcmp(r->module, module) == 0 && strcmp(r->counter, counter) == 0)
			return r;
	}
	return NULL;
}

const char *rp_drop_severity_name(enum rp_drop_severity severity)
{
	static const char *const names[] = {"normal", "odd", "bad"};

	RP_ASSERT((unsigned)severity < RP_ARRAY_SIZE(names));
	return names[severity];
}
