/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Patterns of names, as policies have them. */

#include <stdbool.h>
#include <stddef.h>

/** True when all of `name` matches: * is any run of bytes, ? one byte, others are themselves. */
bool rp_glob_match(const char *pattern, const void *name, size_t name_length);
