/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gateway/json.h>

enum wire_type {
	WIRE_VARINT = 0,
	WIRE_64 = 1,
	WIRE_BYTES = 2,
	WIRE_32 = 5,
};

struct json_in {
	const char *why;
	unsigned depth;
};

static bool in_fail(struct json_in *in, const char *why)
{
	in->why = why;
	return false;
}

static void in_tag(
	struct rp_gateway_bytes *out, const ProtobufCFieldDescriptor *f, enum wire_type t)
{
	rp_gateway_bytes_varint(out, (uint64_t)f->id << 3 | t);
}

/* rangeEnd is range_end; the name of the file itself is always right. */
static bool in_same_name(const char *field, const char *name)
{
	const char *p = name;

	if (strcmp(field, name) == 0)
		return true;
	for (; *field; field++) {
		bool up = *field == '_' && field[1];

		if (up)
			field++;
		if ((up ? toupper((unsigned char)*field) : *field) != *p++)
			return false;
	}
	return *p == 0;
}

static const ProtobufCFieldDescriptor *in_field(
	const ProtobufCMessageDescriptor *d, const char *name)
{
	for (unsigned i = 0; i < d->n_fields; i++)
		if (in_same_name(d->fields[i].name, name))
			return &d->fields[i];
	return NULL;
}

/* An integer, also in a string; within `least` and `most`, which are of 64 bits. */
static bool in_integer(
	struct json_in *in, const json_t *v, int64_t least, uint64_t most, uint64_t *out)
{
	const char *text;
	char *end;

	if (json_is_integer(v)) {
		json_int_t n = json_integer_value(v);

		*out = (uint64_t)n;
		return (n < 0 ? n >= least : (uint64_t)n <= most)
			       ? true
			       : in_fail(in, "json: number out of range");
	}
	if (!json_is_string(v))
		return in_fail(in, "json: a number is expected");
	text = json_string_value(v);
	if (!isdigit((unsigned char)text[0]) &&
		!(text[0] == '-' && isdigit((unsigned char)text[1])))
		return in_fail(in, "json: a number is expected");
	errno = 0;
	if (text[0] == '-') {
		int64_t n = strtoll(text, &end, 10);

		*out = (uint64_t)n;
		if (n < least)
			errno = ERANGE;
	} else {
		*out = strtoull(text, &end, 10);
		if (*out > most)
			errno = ERANGE;
	}
	if (*end || json_string_length(v) != strlen(text))
		return in_fail(in, "json: a number is expected");
	return errno == 0 ? true : in_fail(in, "json: number out of range");
}

static bool in_enum(
	struct json_in *in, const ProtobufCEnumDescriptor *d, const json_t *v, uint64_t *out)
{
	if (!json_is_string(v))
		return in_integer(in, v, INT32_MIN, INT32_MAX, out);
	for (unsigned i = 0; i < d->n_values; i++)
		if (strcmp(d->values[i].name, json_string_value(v)) == 0) {
			*out = (uint64_t)(int64_t)d->values[i].value;
			return true;
		}
	return in_fail(in, "json: unknown value of an enum");
}

static bool in_message(struct json_in *in, struct rp_gateway_bytes *out,
	const ProtobufCMessageDescriptor *d, const json_t *json);

static bool in_bytes(struct json_in *in, struct rp_gateway_bytes *out,
	const ProtobufCFieldDescriptor *f, const json_t *v)
{
	struct rp_gateway_bytes inner = {0};
	bool good;

	if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
		good = in_message(in, &inner, f->descriptor, v);
	} else if (!json_is_string(v)) {
		good = in_fail(in, "json: a string is expected");
	} else if (f->type == PROTOBUF_C_TYPE_STRING) {
		rp_gateway_bytes_add(&inner, json_string_value(v), json_string_length(v));
		/* The services' strings end at their first zero byte. */
		good = strlen(json_string_value(v)) == json_string_length(v);
		if (!good)
			in_fail(in, "json: a zero byte in a string");
	} else {
		good = rp_gateway_unbase64(&inner, json_string_value(v), json_string_length(v));
		if (!good)
			in_fail(in, "json: illegal base64 data");
	}
	if (good) {
		in_tag(out, f, WIRE_BYTES);
		rp_gateway_bytes_varint(out, inner.length);
		rp_gateway_bytes_add(out, inner.data, inner.length);
		out->bad |= inner.bad;
	}
	rp_gateway_bytes_free(&inner);
	return good;
}

static bool in_real(struct json_in *in, const json_t *v, double *out)
{
	if (!json_is_number(v))
		return in_fail(in, "json: a number is expected");
	*out = json_number_value(v);
	return true;
}

static uint64_t zigzag(uint64_t v)
{
	return v << 1 ^ (uint64_t)((int64_t)v >> 63);
}

static bool in_varint(
	struct json_in *in, const ProtobufCFieldDescriptor *f, const json_t *v, uint64_t *out)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_BOOL:
		*out = json_is_true(v);
		return json_is_boolean(v) ? true : in_fail(in, "json: true or false is expected");
	case PROTOBUF_C_TYPE_ENUM:
		return in_enum(in, f->descriptor, v, out);
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return in_integer(in, v, INT32_MIN, INT32_MAX, out);
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return in_integer(in, v, 0, UINT32_MAX, out);
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return in_integer(in, v, INT64_MIN, INT64_MAX, out);
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SINT64:
		if (!in_integer(in, v, INT64_MIN, INT64_MAX, out))
			return false;
		*out = zigzag(*out);
		return true;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_DOUBLE:
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		break;
	}
	return in_integer(in, v, 0, UINT64_MAX, out);
}

static bool in_fixed(struct json_in *in, struct rp_gateway_bytes *out,
	const ProtobufCFieldDescriptor *f, const json_t *v)
{
	bool wide = f->type == PROTOBUF_C_TYPE_FIXED64 || f->type == PROTOBUF_C_TYPE_SFIXED64 ||
		    f->type == PROTOBUF_C_TYPE_DOUBLE;
	uint64_t bits = 0;
	double real = 0;
	float narrow;

	if (f->type == PROTOBUF_C_TYPE_DOUBLE || f->type == PROTOBUF_C_TYPE_FLOAT) {
		if (!in_real(in, v, &real))
			return false;
		narrow = (float)real;
		memcpy(&bits, wide ? (void *)&real : (void *)&narrow, wide ? 8 : 4);
	} else if (!in_varint(in, f, v, &bits)) {
		return false;
	}
	in_tag(out, f, wide ? WIRE_64 : WIRE_32);
	rp_gateway_bytes_add(out, &bits, wide ? 8 : 4);
	return true;
}

static bool in_value(struct json_in *in, struct rp_gateway_bytes *out,
	const ProtobufCFieldDescriptor *f, const json_t *v)
{
	uint64_t number;

	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return in_bytes(in, out, f, v);
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return in_fixed(in, out, f, v);
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
	if (!in_varint(in, f, v, &number))
		return false;
	in_tag(out, f, WIRE_VARINT);
	rp_gateway_bytes_varint(out, number);
	return true;
}

static bool in_list(struct json_in *in, struct rp_gateway_bytes *out,
	const ProtobufCFieldDescriptor *f, const json_t *v)
{
	size_t i;
	json_t *item;

	if (!json_is_array(v))
		return in_fail(in, "json: a list is expected");
	/* Not packed: every reader takes either form. */
	json_array_foreach(v, i, item)
	{
		if (!in_value(in, out, f, item))
			return false;
	}
	return true;
}

static bool in_message(struct json_in *in, struct rp_gateway_bytes *out,
	const ProtobufCMessageDescriptor *d, const json_t *json)
{
	const char *name;
	json_t *v;

	if (!json_is_object(json))
		return in_fail(in, "json: an object is expected");
	if (in->depth == RP_GATEWAY_DEPTH_MAX)
		return in_fail(in, "json: exceeded max depth");
	in->depth++;
	json_object_foreach((json_t *)json, name, v)
	{
		const ProtobufCFieldDescriptor *f = in_field(d, name);

		if (!f || json_is_null(v))
			continue;
		if (f->label == PROTOBUF_C_LABEL_REPEATED ? !in_list(in, out, f, v)
							  : !in_value(in, out, f, v))
			return false;
	}
	in->depth--;
	return true;
}

bool rp_gateway_json_in(struct rp_gateway_bytes *out, const ProtobufCMessageDescriptor *d,
	const json_t *json, const char **why)
{
	struct json_in in = {0};

	/* As etcd takes it: a message with nothing in it. */
	if (json_is_null(json))
		return true;
	if (in_message(&in, out, d, json) && !out->bad)
		return true;
	*why = in.why ? in.why : "out of memory";
	return false;
}
