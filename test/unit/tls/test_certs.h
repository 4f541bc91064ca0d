/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Certificates made at the start of a test: an authority, and what it has signed.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>

struct test_cert {
	char cert[4096], key[2048]; /* PEM */
};

/** An authority when `issuer` is NULL. `dns` and `address` (4 bytes) go into the SAN; may be NULL.
 */
void test_cert_make(struct test_cert *out, const struct test_cert *issuer, const char *cn,
	const char *dns, const uint8_t *address);
struct rp_span test_span(const char *pem);
