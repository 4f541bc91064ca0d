/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Results, for people and for programs. */

#include "worker.h"

struct perf_setting {
	const struct perf_options *options;
	const struct rp_port_info *port; /**< NULL: no port */
	const struct rp_eal_info *eal;
	const struct perf_worker *worker;
	unsigned done; /**< results that there are */
};

/** False: the ends do not agree on what was sent and received. */
bool perf_result_good(const struct perf_result *r);

void perf_report_text(const struct perf_setting *s);
void perf_report_json(const struct perf_setting *s);
