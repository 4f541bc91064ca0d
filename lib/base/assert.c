/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>

void rp_assert_failed(const char *cond, const char *file, int line)
{
	fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, cond);
	abort();
}
