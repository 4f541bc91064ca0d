/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Proto3 JSON from and to the bytes of a protobuf message, by its descriptor: no message structs
 * in between. As etcd's gateway does it: names of the .proto file in answers, those and lowerCamel
 * ones in requests, bytes in base64, 64-bit integers as strings, default values left out.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

/** Objects and lists in each other. */
#define RP_GATEWAY_DEPTH_MAX 512

/** A growing piece of memory; bad: it could not grow. */
struct rp_gateway_bytes {
	uint8_t *data;
	size_t length, size;
	bool bad;
};
void rp_gateway_bytes_add(struct rp_gateway_bytes *b, const void *data, size_t length);
void rp_gateway_bytes_varint(struct rp_gateway_bytes *b, uint64_t value);
void rp_gateway_bytes_free(struct rp_gateway_bytes *b);

/** Base64, standard alphabet, with padding; to be freed. NULL without memory. */
char *rp_gateway_base64(const uint8_t *data, size_t length);
/** Standard or URL alphabet, padding optional: adds the bytes. False: not base64. */
bool rp_gateway_unbase64(struct rp_gateway_bytes *out, const char *text, size_t length);

/**
 * The message that a JSON object describes. Unknown members are left out, null is absent. False:
 * *why is what is wrong (not freed), `out` is to be freed all the same.
 */
bool rp_gateway_json_in(struct rp_gateway_bytes *out, const ProtobufCMessageDescriptor *d,
	const json_t *json, const char **why);
/** A new object; NULL: the bytes are no such message, or there is no memory. */
json_t *rp_gateway_json_out(
	const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t length);
