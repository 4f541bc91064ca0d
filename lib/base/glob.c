/* SPDX-License-Identifier: Apache-2.0 */
#include <base/glob.h>

bool rp_glob_match(const char *pattern, const void *bytes, size_t name_length)
{
	const char *name = bytes;
	const char *star = NULL;
	size_t at = 0, star_at = 0;

	while (at < name_length) {
		if (*pattern == '*') {
			star = pattern++;
			star_at = at;
		} else if (*pattern && (*pattern == '?' || *pattern == name[at])) {
			pattern++;
			at++;
		} else if (star) {
			pattern = star + 1;
			at = ++star_at;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}
