/* SPDX-License-Identifier: Apache-2.0 */
#include <grpc/status.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include <base/units.h>

struct status_code {
	const char *name;
	int http;
};

static const struct status_code status_codes[RP_GRPC_CODE_COUNT] = {
#define X(name, value, http) [value] = {#name, http},
	RP_GRPC_CODES(X)
#undef X
};

const char *rp_grpc_code_name(enum rp_grpc_code code)
{
	return (unsigned)code < RP_GRPC_CODE_COUNT ? status_codes[code].name : "UNKNOWN";
}

int rp_grpc_code_to_http(enum rp_grpc_code code)
{
	return (unsigned)code < RP_GRPC_CODE_COUNT ? status_codes[code].http : 500;
}

enum rp_grpc_code rp_grpc_code_from_http(int status)
{
	switch (status) {
	case 400:
		return RP_GRPC_INTERNAL;
	case 401:
		return RP_GRPC_UNAUTHENTICATED;
	case 403:
		return RP_GRPC_PERMISSION_DENIED;
	case 404:
		return RP_GRPC_UNIMPLEMENTED;
	case 429:
	case 502:
	case 503:
	case 504:
		return RP_GRPC_UNAVAILABLE;
	default:
		return RP_GRPC_UNKNOWN;
	}
}

enum rp_grpc_code rp_grpc_code_parse(const char *text, size_t length)
{
	unsigned v = 0;

	if (length == 0 || length > 2)
		return RP_GRPC_UNKNOWN;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return RP_GRPC_UNKNOWN;
		v = v * 10 + (unsigned)(text[i] - '0');
	}
	return v < RP_GRPC_CODE_COUNT ? (enum rp_grpc_code)v : RP_GRPC_UNKNOWN;
}

size_t rp_grpc_message_encode(char *out, size_t size, const char *text, size_t length)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t n = 0;

	for (size_t i = 0; i < length; i++) {
		uint8_t c = (uint8_t)text[i];

		if (c >= 0x20 && c <= 0x7e && c != '%') {
			if (n == size)
				break;
			out[n++] = (char)c;
			continue;
		}
		if (size - n < 3)
			break;
		out[n++] = '%';
		out[n++] = hex[c >> 4];
		out[n++] = hex[c & 15];
	}
	return n;
}

static int status_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

size_t rp_grpc_message_decode(char *out, size_t size, const char *text, size_t length)
{
	size_t n = 0;

	for (size_t i = 0; i < length && n < size; i++) {
		int high, low;

		if (text[i] == '%' && length - i > 2 && (high = status_hex(text[i + 1])) >= 0 &&
			(low = status_hex(text[i + 2])) >= 0) {
			out[n++] = (char)(high << 4 | low);
			i += 2;
		} else {
			out[n++] = text[i];
		}
	}
	return n;
}

struct status_unit {
	char letter;
	uint64_t ns;
};

static const struct status_unit status_units[] = {
	{'n', 1},
	{'u', RP_NS_PER_US},
	{'m', RP_NS_PER_MS},
	{'S', RP_NS_PER_S},
	{'M', 60 * RP_NS_PER_S},
	{'H', 3600 * RP_NS_PER_S},
};

int rp_grpc_timeout_parse(const char *text, size_t length, uint64_t *ns)
{
	uint64_t v = 0;

	if (length < 2 || length > 9)
		return -EINVAL;
	for (size_t i = 0; i < length - 1; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EINVAL;
		v = v * 10 + (uint64_t)(text[i] - '0');
	}
	for (size_t i = 0; i < RP_ARRAY_SIZE(status_units); i++) {
		if (status_units[i].letter != text[length - 1])
			continue;
		/* 99999999 hours are more than 2^63 ns: RP_NEVER is as good. */
		if (__builtin_mul_overflow(v, status_units[i].ns, ns))
			*ns = RP_NEVER;
		return 0;
	}
	return -EINVAL;
}

size_t rp_grpc_timeout_format(char out[16], uint64_t ns)
{
	size_t i = 0;
	uint64_t v;

	while (i < RP_ARRAY_SIZE(status_units) - 1 && ns / status_units[i].ns > 99999999)
		i++;
	v = RP_MIN(ns / status_units[i].ns, 99999999ull);
	return (size_t)snprintf(out, 16, "%u%c", (unsigned)v, status_units[i].letter);
}
