/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <base/units.h>

struct json_t;

/** Puts the bytes into `o` as "data" or "data_base64"; nothing for NULL. Non-zero: it could not. */
int process_set_data(struct json_t *o, struct rp_span data);
