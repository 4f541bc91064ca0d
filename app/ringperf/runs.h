/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "host.h"

/** `ringperf run`: one run, or a search, and its reports. An exit status. */
int perf_runs(struct perf_host *host, struct perf_options *options);
