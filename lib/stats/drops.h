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

/** Where a message of a queue ends, by message_fate.def. */
enum rp_fate { RP_FATE_IN, RP_FATE_DELIVERED, RP_FATE_PASSED, RP_FATE_REASON };

struct rp_message_fate {
	const char *counter; /**< of lib/queue */
	enum rp_fate fate;
	enum rp_drop_severity severity;
};

extern const struct rp_message_fate rp_message_fates[];
extern const unsigned rp_message_fates_count;

const char *rp_drop_severity_name(enum rp_drop_severity severity);
