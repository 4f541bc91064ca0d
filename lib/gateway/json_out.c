/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gateway/json.h>

#include "wire_priv.h"

static json_t *out_message(
	const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t length, unsigned depth);

/* A string that is no UTF-8 keeps what is ASCII in it. */
static json_t *out_string(const struct gateway_field *f)
{
	json_t *out = json_stringn((const char *)f->data, f->length);
	char *text;

	if (out)
		return out;
	text = malloc(f->length + 1);
	if (!text)
		return NULL;
	for (size_t i = 0; i < f->length; i++)
		text[i] = f->data[i] < 0x80 ? (char)f->data[i] : '?';
	out = json_stringn(text, f->length);
	free(text);
	return out;
}

static json_t *out_bytes(const struct gateway_field *f)
{
	char *text = rp_gateway_base64(f->data, f->length);
	json_t *out = text ? json_string_nocheck(text) : NULL;

	free(text);
	return out;
}

static json_t *out_enum(const ProtobufCEnumDescriptor *d, int32_t value)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, value);

	return v ? json_string(v->name) : json_integer(value);
}

static json_t *out_text(const char *format, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), format, value);
	return json_string(text);
}

static json_t *out_number(const ProtobufCFieldDescriptor *f, uint64_t number)
{
	uint32_t low = (uint32_t)number;
	double real;
	float narrow;

	switch (f->type) {
	case PROTOBUF_C_TYPE_BOOL:
		return json_boolean(number != 0);
	case PROTOBUF_C_TYPE_ENUM:
		return out_enum(f->descriptor, (int32_t)number);
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return json_integer((int32_t)low);
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return json_integer(low);
	case PROTOBUF_C_TYPE_SINT32:
		return json_integer((int32_t)(low >> 1 ^ (0u - (low & 1))));
	case PROTOBUF_C_TYPE_SINT64:
		return out_text("%" PRId64, number >> 1 ^ (0ull - (number & 1)));
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return out_text("%" PRId64, number);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return out_text("%" PRIu64, number);
	case PROTOBUF_C_TYPE_DOUBLE:
		memcpy(&real, &number, sizeof(real));
		return json_real(real);
	case PROTOBUF_C_TYPE_FLOAT:
		memcpy(&narrow, &low, sizeof(narrow));
		return json_real((double)narrow);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		break;
	}
	return NULL;
}

static json_t *out_value(
	const ProtobufCFieldDescriptor *d, const struct gateway_field *f, unsigned depth)
{
	bool long_type = d->type == PROTOBUF_C_TYPE_STRING || d->type == PROTOBUF_C_TYPE_BYTES ||
			 d->type == PROTOBUF_C_TYPE_MESSAGE;

	if (long_type != (f->type == 2))
		return NULL;
	if (d->type == PROTOBUF_C_TYPE_MESSAGE)
		return out_message(d->descriptor, f->data, f->length, depth + 1);
	if (d->type == PROTOBUF_C_TYPE_STRING)
		return out_string(f);
	if (d->type == PROTOBUF_C_TYPE_BYTES)
		return out_bytes(f);
	return out_number(d, f->number);
}

/* Adds to the list of that name; takes `value`. */
static bool out_append(json_t *object, const char *name, json_t *value)
{
	json_t *list = json_object_get(object, name);

	if (!list) {
		list = json_array();
		if (!list || json_object_set_new(object, name, list) < 0) {
			json_decref(value);
			return false;
		}
	}
	return value && json_array_append_new(list, value) == 0;
}

static unsigned packed_type(const ProtobufCFieldDescriptor *d)
{
	switch (d->type) {
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return 1;
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return 5;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return 2;
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_BOOL:
	case PROTOBUF_C_TYPE_ENUM:
		break;
	}
	return 0;
}

static bool out_packed(
	json_t *object, const ProtobufCFieldDescriptor *d, const struct gateway_field *f)
{
	struct gateway_wire w = {.at = f->data, .end = f->data + f->length};
	struct gateway_field item = {.type = packed_type(d)};

	while (w.at < w.end)
		if (!gateway_wire_value(&w, item.type, &item) ||
			!out_append(object, d->name, out_number(d, item.number)))
			return false;
	return true;
}

static bool out_field(json_t *object, const ProtobufCFieldDescriptor *d,
	const struct gateway_field *f, unsigned depth)
{
	if (d->label != PROTOBUF_C_LABEL_REPEATED)
		return json_object_set_new(object, d->name, out_value(d, f, depth)) == 0;
	if (f->type == 2 && packed_type(d) != 2)
		return out_packed(object, d, f);
	return out_append(object, d->name, out_value(d, f, depth));
}

static json_t *out_message(
	const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t length, unsigned depth)
{
	struct gateway_wire w = gateway_wire_of((struct rp_span){.data = data, .length = length});
	json_t *out = depth < RP_GATEWAY_DEPTH_MAX ? json_object() : NULL;
	bool good = out != NULL;
	struct gateway_field f;

	while (good && gateway_wire_next(&w, &f)) {
		const ProtobufCFieldDescriptor *field =
			protobuf_c_message_descriptor_get_field(d, f.id);

		if (field)
			good = out_field(out, field, &f, depth);
	}
	good = good && !w.bad;
	if (good)
		return out;
	json_decref(out);
	return NULL;
}

json_t *rp_gateway_json_out(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t length)
{
	return out_message(d, data, length, 0);
}
