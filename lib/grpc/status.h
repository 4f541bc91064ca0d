/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * gRPC status codes, and the text forms that the protocol gives to status messages and timeouts
 * (PROTOCOL-HTTP2 of gRPC; spec page etcd-semantics, sections 1 and 12). Pure functions.
 */

#include <stddef.h>
#include <stdint.h>

/** code, name as gRPC prints it, HTTP status of the JSON gateway. */
#define RP_GRPC_CODES(X)               \
	X(OK, 0, 200)                  \
	X(CANCELLED, 1, 499)           \
	X(UNKNOWN, 2, 500)             \
	X(INVALID_ARGUMENT, 3, 400)    \
	X(DEADLINE_EXCEEDED, 4, 504)   \
	X(NOT_FOUND, 5, 404)           \
	X(ALREADY_EXISTS, 6, 409)      \
	X(PERMISSION_DENIED, 7, 403)   \
	X(RESOURCE_EXHAUSTED, 8, 429)  \
	X(FAILED_PRECONDITION, 9, 400) \
	X(ABORTED, 10, 409)            \
	X(OUT_OF_RANGE, 11, 400)       \
	X(UNIMPLEMENTED, 12, 501)      \
	X(INTERNAL, 13, 500)           \
	X(UNAVAILABLE, 14, 503)        \
	X(DATA_LOSS, 15, 500)          \
	X(UNAUTHENTICATED, 16, 401)

enum rp_grpc_code {
#define X(name, value, http) RP_GRPC_##name = value,
	RP_GRPC_CODES(X)
#undef X
};
#define RP_GRPC_CODE_COUNT 17

/** "OK", "NOT_FOUND", ...; "UNKNOWN" for a number that is no code. */
const char *rp_grpc_code_name(enum rp_grpc_code code);
/** HTTP status with which the JSON gateway answers. */
int rp_grpc_code_to_http(enum rp_grpc_code code);
/** What a client concludes from an answer without grpc-status (gRPC's http-grpc-status-mapping). */
enum rp_grpc_code rp_grpc_code_from_http(int status);
/** The code of decimal text; UNKNOWN when it is none. */
enum rp_grpc_code rp_grpc_code_parse(const char *text, size_t length);

/**
 * grpc-message: bytes below 0x20, above 0x7e and '%' as %XX. Writes at most `size` bytes without a
 * terminator, never half an escape, and returns how many.
 */
size_t rp_grpc_message_encode(char *out, size_t size, const char *text, size_t length);
/** The way back; a '%' without two hex digits stays as it is. `out` may be `text`. */
size_t rp_grpc_message_decode(char *out, size_t size, const char *text, size_t length);

/** grpc-timeout: 1 to 8 digits and one of H M S m u n. 0 and *ns, or -EINVAL. Saturates. */
int rp_grpc_timeout_parse(const char *text, size_t length, uint64_t *ns);
/** Writes the timeout with the finest unit that fits eight digits, terminated; returns the length.
 */
size_t rp_grpc_timeout_format(char out[16], uint64_t ns);
