/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The bytes of a protobuf message, field by field, without knowing its type. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <base/units.h>

struct gateway_wire {
	const uint8_t *at, *end;
	bool bad; /* the bytes are no message */
};

struct gateway_field {
	uint32_t id;
	unsigned type;	 /* 0 varint, 1 fixed 64, 2 bytes, 5 fixed 32 */
	uint64_t number; /* types 0, 1, 5 */
	const uint8_t *data;
	size_t length; /* type 2 */
};

static inline struct gateway_wire gateway_wire_of(struct rp_span s)
{
	return (struct gateway_wire){
		.at = s.data, .end = s.length > 0 ? s.data + s.length : s.data};
}

/** The value of a field of that type; false: cut, or no such type. */
bool gateway_wire_value(struct gateway_wire *w, unsigned type, struct gateway_field *f);
/** The next field; false at the end and when bad. */
bool gateway_wire_next(struct gateway_wire *w, struct gateway_field *f);
