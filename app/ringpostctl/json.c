/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/base64.h>

#include <base/assert.h>

#include "json.h"

int json_print(json_t *root)
{
	int rc = root ? json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : -1;

	json_decref(root);
	putchar('\n');
	if (rc != 0 || fflush(stdout) != 0) {
		fprintf(stderr, "ringpostctl: the answer cannot be written as JSON\n");
		return 1;
	}
	return 0;
}

static json_t *json_id(uint64_t id)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, id);
	return json_string(text);
}

json_t *json_head(const char *kind, uint64_t node)
{
	return json_pack(
		"{s:s, s:i, s:o}", "kind", kind, "version", JSON_VERSION, "node", json_id(node));
}

/* A name of a queue may be any bytes; what is no UTF-8 is shown as it can be. */
json_t *json_text(const char *text)
{
	json_t *value = json_string(text);
	char copy[512];

	if (value)
		return value;
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *p = copy; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return json_string(copy);
}

/* As etcdctl -w json has values. */
static json_t *json_base64(const ProtobufCBinaryData *bytes)
{
	size_t size = (bytes->len + 2) / 3 * 4 + 1, length;
	unsigned char *text = malloc(size);
	json_t *value;

	RP_ASSERT(text && mbedtls_base64_encode(text, size, &length, bytes->data, bytes->len) == 0);
	value = json_stringn((const char *)text, length);
	free(text);
	return value;
}

/* Of the types that Admin uses. */
static json_t *json_value(const ProtobufCFieldDescriptor *f, const void *at)
{
	if (f->type == PROTOBUF_C_TYPE_BOOL)
		return json_boolean(*(const protobuf_c_boolean *)at);
	if (f->type == PROTOBUF_C_TYPE_UINT32)
		return json_integer((json_int_t)(*(const uint32_t *)at));
	if (f->type == PROTOBUF_C_TYPE_UINT64)
		return json_integer((json_int_t)(*(const uint64_t *)at));
	if (f->type == PROTOBUF_C_TYPE_FIXED64)
		return json_id(*(const uint64_t *)at);
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		return json_base64(at);
	if (f->type == PROTOBUF_C_TYPE_STRING)
		return json_text(*(char *const *)at);
	RP_ASSERT(f->type == PROTOBUF_C_TYPE_MESSAGE);
	return json_message(*(ProtobufCMessage *const *)at);
}

static json_t *json_field(const ProtobufCFieldDescriptor *f, const ProtobufCMessage *m)
{
	const char *base = (const char *)m;
	const char *items;
	json_t *list;
	size_t size = f->type == PROTOBUF_C_TYPE_UINT32 ? sizeof(uint32_t) : sizeof(void *);

	if (f->label != PROTOBUF_C_LABEL_REPEATED)
		return json_value(f, base + f->offset);
	/* Lists are of numbers, and of messages and texts, which are pointers. */
	items = *(const char *const *)(base + f->offset);
	list = json_array();
	for (size_t i = 0; i < *(const size_t *)(base + f->quantifier_offset); i++)
		json_array_append_new(list, json_value(f, items + i * size));
	return list;
}

json_t *json_message(const ProtobufCMessage *message)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &message->descriptor->fields[i];

		/* Where a page ends is between the node and ringpostctl. */
		if (strcmp(f->name, "page") != 0)
			json_object_set_new(o, f->name, json_field(f, message));
	}
	return o;
}

int json_answer(const char *kind, const ProtobufCMessage *message)
{
	json_t *root = json_head(kind, 0), *fields = json_message(message);

	json_object_update(root, fields);
	json_decref(fields);
	return json_print(root);
}
