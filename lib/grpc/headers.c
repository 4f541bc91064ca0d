/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <base/assert.h>
#include <base/units.h>
#include "headers_priv.h"

#define HEADERS_OVERHEAD_BYTES 32u

static int headers_reserve(struct grpc_headers *h, size_t text)
{
	if (h->text_length + text > h->text_size) {
		size_t size = RP_MAX(h->text_size * 2u, h->text_length + text);
		char *grown = realloc(h->text, size = RP_MAX(size, 512u));

		if (!grown)
			return -ENOMEM;
		h->text = grown;
		h->text_size = (uint32_t)size;
	}
	if (h->count == h->count_max) {
		uint32_t max = RP_MAX(h->count_max * 2, 16u);
		struct grpc_header_entry *grown = realloc(h->entries, max * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		h->entries = grown;
		h->count_max = max;
	}
	return 0;
}

static uint32_t headers_put(struct grpc_headers *h, const char *text, size_t length)
{
	uint32_t at = h->text_length;

	if (length > 0)
		memcpy(h->text + at, text, length);
	h->text[at + length] = 0;
	h->text_length += (uint32_t)length + 1;
	return at;
}

int grpc_headers_add(struct grpc_headers *h, const char *name, size_t name_length,
	const char *value, size_t value_length, uint32_t bytes_max)
{
	struct grpc_header_entry *e;
	size_t bytes = name_length + value_length + HEADERS_OVERHEAD_BYTES;

	if (bytes > bytes_max || h->bytes > bytes_max - bytes)
		return -E2BIG;
	if (headers_reserve(h, name_length + value_length + 2) < 0)
		return -ENOMEM;
	e = &h->entries[h->count++];
	e->name = headers_put(h, name, name_length);
	e->name_length = (uint32_t)name_length;
	e->value = headers_put(h, value, value_length);
	e->value_length = (uint32_t)value_length;
	h->bytes += (uint32_t)bytes;
	return 0;
}

const char *grpc_headers_get(const struct grpc_headers *h, const char *name, size_t *length)
{
	size_t name_length = strlen(name);

	for (uint32_t i = 0; i < h->count; i++) {
		const struct grpc_header_entry *e = &h->entries[i];

		if (e->name_length != name_length || memcmp(h->text + e->name, name, name_length))
			continue;
		if (length)
			*length = e->value_length;
		return h->text + e->value;
	}
	return NULL;
}

/* Fields of one connection, which HTTP/2 has not (RFC 9113, 8.2.2). */
static bool headers_forbid(const char *name, const char *value)
{
	static const char *const names[] = {
		"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"};

	for (size_t i = 0; i < RP_ARRAY_SIZE(names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return strcmp(name, "te") == 0 && strcasecmp(value, "trailers") != 0;
}

bool grpc_headers_content_length(const struct grpc_headers *h, uint64_t *out)
{
	const char *text = grpc_headers_get(h, "content-length", NULL);
	char *end;

	*out = RP_NEVER;
	if (!text)
		return true;
	if (text[0] == 0 || strspn(text, "0123456789") != strlen(text))
		return false;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return errno == 0;
}

bool grpc_headers_check_request(const struct grpc_headers *h)
{
	unsigned method = 0, path = 0, scheme = 0, authority = 0;
	bool regular = false;
	uint64_t length;

	for (uint32_t i = 0; i < h->count; i++) {
		const char *name = h->text + h->entries[i].name;
		const char *value = h->text + h->entries[i].value;

		if (name[0] != ':') {
			regular = true;
			if (headers_forbid(name, value))
				return false;
			continue;
		}
		if (regular)
			return false;
		if (strcmp(name, ":method") == 0)
			method++;
		else if (strcmp(name, ":path") == 0)
			path += value[0] != 0 ? 1 : 2;
		else if (strcmp(name, ":scheme") == 0)
			scheme++;
		else if (strcmp(name, ":authority") == 0)
			authority++;
		else
			return false;
	}
	return method == 1 && path == 1 && scheme == 1 && authority <= 1 &&
	       grpc_headers_content_length(h, &length);
}

void grpc_headers_free(struct grpc_headers *h)
{
	free(h->text);
	free(h->entries);
	*h = (struct grpc_headers){0};
}
