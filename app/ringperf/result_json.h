/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>

#include "result.h"

/** By docs/schema/ringperf.schema.json. False: it could not be written. */
bool perf_json_write(FILE *f, const struct perf_result_set *s);
