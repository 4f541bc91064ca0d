/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Assertions about our own code. Input from the network, a client or a file is
 * never asserted: it is handled and counted where it is parsed.
 */

#include <stdio.h>
#include <stdlib.h>

/** Ends the process with place and text when `cond` does not hold. Kept in release builds. */
#define RP_ASSERT(cond)                                              \
	do {                                                         \
		if (__builtin_expect(!(cond), 0))                    \
			rp_assert_failed(#cond, __FILE__, __LINE__); \
	} while (0)

__attribute__((noreturn, cold)) void rp_assert_failed(const char *cond, const char *file, int line);
