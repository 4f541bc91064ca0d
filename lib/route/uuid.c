/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include <route/key.h>

static int uuid_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The dashes stand before these digits, counted without dashes. */
static bool uuid_dash_before(unsigned digit)
{
	return digit == 8 || digit == 12 || digit == 16 || digit == 20;
}

int rp_uuid_parse(const void *text, size_t length, uint8_t uuid[RP_UUID_BYTES])
{
	const uint8_t *p = text;
	bool dashed = length == RP_UUID_TEXT_BYTES;
	uint8_t bytes[RP_UUID_BYTES] = {0};
	size_t at = 0;

	if (!dashed && length != 2 * RP_UUID_BYTES)
		return -EINVAL;
	for (unsigned i = 0; i < 2 * RP_UUID_BYTES; i++) {
		int digit;

		if (dashed && uuid_dash_before(i) && p[at++] != '-')
			return -EINVAL;
		digit = uuid_digit(p[at++]);
		if (digit < 0)
			return -EINVAL;
		bytes[i / 2] = (uint8_t)(bytes[i / 2] << 4 | digit);
	}
	memcpy(uuid, bytes, sizeof(bytes));
	return 0;
}

void rp_uuid_format(const uint8_t uuid[RP_UUID_BYTES], char out[RP_UUID_TEXT_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	size_t at = 0;

	for (unsigned i = 0; i < 2 * RP_UUID_BYTES; i++) {
		if (uuid_dash_before(i))
			out[at++] = '-';
		out[at++] = digits[i % 2 ? uuid[i / 2] & 15 : uuid[i / 2] >> 4];
	}
}
