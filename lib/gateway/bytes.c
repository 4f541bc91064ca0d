/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <base/units.h>
#include <gateway/json.h>

void rp_gateway_bytes_add(struct rp_gateway_bytes *b, const void *data, size_t length)
{
	if (b->bad || length == 0)
		return;
	if (b->length + length > b->size) {
		size_t size = RP_MAX(b->size * 2, b->length + length);
		uint8_t *grown;

		size = RP_MAX(size, (size_t)64);
		grown = realloc(b->data, size);
		if (!grown) {
			b->bad = true;
			return;
		}
		b->data = grown;
		b->size = size;
	}
	memcpy(b->data + b->length, data, length);
	b->length += length;
}

void rp_gateway_bytes_varint(struct rp_gateway_bytes *b, uint64_t value)
{
	uint8_t text[10];
	size_t n = 0;

	do {
		text[n] = (uint8_t)(value & 0x7f);
		value >>= 7;
		text[n++] |= value ? 0x80 : 0;
	} while (value);
	rp_gateway_bytes_add(b, text, n);
}

void rp_gateway_bytes_free(struct rp_gateway_bytes *b)
{
	free(b->data);
	*b = (struct rp_gateway_bytes){0};
}

char *rp_gateway_base64(const uint8_t *data, size_t length)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *out = malloc((length + 2) / 3 * 4 + 1), *p = out;

	if (!out)
		return NULL;
	for (size_t i = 0; i < length; i += 3) {
		size_t n = RP_MIN(length - i, (size_t)3);
		uint32_t v = (uint32_t)data[i] << 16 | (n > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
			     (n > 2 ? data[i + 2] : 0);

		*p++ = digits[v >> 18];
		*p++ = digits[v >> 12 & 63];
		*p++ = n > 1 ? digits[v >> 6 & 63] : '=';
		*p++ = n > 2 ? digits[v & 63] : '=';
	}
	*p = 0;
	return out;
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

static bool unbase64(struct rp_gateway_bytes *out, const char *text, size_t length)
{
	size_t padding = 0;

	while (padding < 2 && length > 0 && text[length - 1] == '=') {
		length--;
		padding++;
	}
	if (length % 4 == 1 || (padding > 0 && (length + padding) % 4 != 0))
		return false;
	for (size_t i = 0; i < length; i += 4) {
		size_t n = RP_MIN(length - i, (size_t)4);
		uint32_t v = 0;
		uint8_t bytes[3];

		for (size_t j = 0; j < 4; j++) {
			int digit = j < n ? base64_value(text[i + j]) : 0;

			if (digit < 0)
				return false;
			v = v << 6 | (uint32_t)digit;
		}
		bytes[0] = (uint8_t)(v >> 16);
		bytes[1] = (uint8_t)(v >> 8);
		bytes[2] = (uint8_t)v;
		rp_gateway_bytes_add(out, bytes, n - 1);
	}
	return true;
}

bool rp_gateway_unbase64(struct rp_gateway_bytes *out, const char *text, size_t length)
{
	char *joined;
	size_t n = 0;
	bool good;

	if (!memchr(text, '\n', length) && !memchr(text, '\r', length))
		return unbase64(out, text, length);
	/* Many encoders break their lines: Go's decoder, and so etcd, leaves that out. */
	joined = malloc(length);
	if (!joined) {
		out->bad = true;
		return true;
	}
	for (size_t i = 0; i < length; i++)
		if (text[i] != '\n' && text[i] != '\r')
			joined[n++] = text[i];
	good = unbase64(out, joined, n);
	free(joined);
	return good;
}
