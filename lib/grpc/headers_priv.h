/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A bounded list of header fields, each terminated, names in lower case.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grpc_header_entry {
	uint32_t name, value; /* offsets into text */
	uint32_t name_length, value_length;
};

struct grpc_headers {
	char *text;
	struct grpc_header_entry *entries;
	uint32_t text_length, text_size;
	uint32_t count, count_max;
	uint32_t bytes; /* as HTTP/2 counts: name + value + 32 each */
};

/** 0; -E2BIG past `bytes_max` (nothing added); -ENOMEM. */
int grpc_headers_add(struct grpc_headers *h, const char *name, size_t name_length,
	const char *value, size_t value_length, uint32_t bytes_max);
/** First value of a name, NULL without. `length` may be NULL. */
const char *grpc_headers_get(const struct grpc_headers *h, const char *name, size_t *length);
/** RFC 9113, 8.1.1: digits and no more, else false. RP_NEVER: there is none. */
bool grpc_headers_content_length(const struct grpc_headers *h, uint64_t *out);
/** Whether they are a request's (RFC 9113, 8.2.2 and 8.3.1); names and values were checked alone.
 */
bool grpc_headers_check_request(const struct grpc_headers *h);
void grpc_headers_free(struct grpc_headers *h);
