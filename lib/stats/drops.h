/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The registry of drops, over drop_reason.def: which counters of which modules count a frame or a
 * message that ends. In = delivered + held + their sum. It holds names only, since the counters
 * belong to modules of higher layers; who reads counters asks here which of them are losses.
 */

#include <stdint.h>

enum rp_drop_severity { RP_DROP_NORMAL, RP_DROP_ODD, RP_DROP_BAD };

struct rp_drop_reason {
	const char *module, *counter;
	enum rp_drop_severity severity;
};

extern const struct rp_drop_reason rp_drop_reasons[];
extern const unsigned rp_drop_reasons_count;

/** NULL when the counter counts no drop. */
const struct rp_drop_reason *rp_drop_reason_find(const char *module, const char *counter);

const char *rp_drop_severity_name(enum rp_drop_severity severity);
