/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <gateway/reflection.h>
#include <grpc/bridge.h>
#include <grpc/reflection/v1/reflection.pb-c.h>
#include <services.h>

#include "wire_priv.h"

#define REFLECTION_MESSAGE_BYTES 65536
#define FILES_MAX 64
#define SERVICES_MAX 64
#define DEPTH_MAX 16

/* Fields of google/protobuf/descriptor.proto. */
enum {
	SET_FILE = 1,
	FILE_NAME = 1,
	FILE_PACKAGE = 2,
	FILE_DEPENDENCY = 3,
	FILE_MESSAGE = 4,
	FILE_ENUM = 5,
	FILE_SERVICE = 6,
	ANY_NAME = 1,
	MESSAGE_NESTED = 3,
	MESSAGE_ENUM = 4,
	SERVICE_METHOD = 2,
};

typedef Grpc__Reflection__V1__ServerReflectionRequest Request;
typedef Grpc__Reflection__V1__ServerReflectionResponse Answer;

struct rp_reflection {
	const struct rp_grpc_server *server;
	struct rp_grpc_method methods[2];
	struct rp_span files[FILES_MAX];
	unsigned file_count;
};

/* ---- descriptors ---- */

static struct rp_span field_bytes(const struct gateway_field *f)
{
	return (struct rp_span){.data = f->data, .length = f->length};
}

static struct rp_span first_field(struct rp_span message, uint32_t id)
{
	struct gateway_wire w = gateway_wire_of(message);
	struct gateway_field f;

	while (gateway_wire_next(&w, &f))
		if (f.id == id && f.type == 2)
			return field_bytes(&f);
	return (struct rp_span){0};
}

static bool span_is(struct rp_span s, const char *text, size_t length)
{
	return s.length == length && memcmp(s.data, text, length) == 0;
}

/* Takes "name" or "name." off the front of *path: 1 when that was all, 0 when more follows. */
static int path_take(struct rp_span name, const char **path)
{
	size_t n = strcspn(*path, ".");

	if (name.length == 0 || !span_is(name, *path, n))
		return -1;
	*path += n + ((*path)[n] == '.');
	return **path == '\0';
}

static bool has_child(struct rp_span parent, uint32_t id, const char *path)
{
	struct gateway_wire w = gateway_wire_of(parent);
	struct gateway_field f;

	while (gateway_wire_next(&w, &f)) {
		const char *rest = path;

		if (f.id == id && f.type == 2 &&
			path_take(first_field(field_bytes(&f), ANY_NAME), &rest) == 1)
			return true;
	}
	return false;
}

/* Whether `path` names the message, or what is inside it. */
static bool message_has(struct rp_span message, const char *path, unsigned depth)
{
	int taken = path_take(first_field(message, ANY_NAME), &path);
	struct gateway_wire w = gateway_wire_of(message);
	struct gateway_field f;

	if (taken != 0 || depth == DEPTH_MAX)
		return taken == 1;
	while (gateway_wire_next(&w, &f))
		if (f.id == MESSAGE_NESTED && f.type == 2 &&
			message_has(field_bytes(&f), path, depth + 1))
			return true;
	return has_child(message, MESSAGE_ENUM, path);
}

static bool service_has(struct rp_span service, const char *path)
{
	int taken = path_take(first_field(service, ANY_NAME), &path);

	return taken == 0 ? has_child(service, SERVICE_METHOD, path) : taken == 1;
}

static bool file_has(struct rp_span file, const char *symbol)
{
	struct rp_span package = first_field(file, FILE_PACKAGE);
	struct gateway_wire w = gateway_wire_of(file);
	struct gateway_field f;

	if (strlen(symbol) <= package.length || memcmp(symbol, package.data, package.length) != 0 ||
		symbol[package.length] != '.')
		return false;
	symbol += package.length + 1;
	while (gateway_wire_next(&w, &f)) {
		if (f.type != 2)
			continue;
		if (f.id == FILE_MESSAGE && message_has(field_bytes(&f), symbol, 0))
			return true;
		if (f.id == FILE_SERVICE && service_has(field_bytes(&f), symbol))
			return true;
	}
	return has_child(file, FILE_ENUM, symbol);
}

static int file_of_name(const struct rp_reflection *r, const char *name, size_t length)
{
	for (unsigned i = 0; i < r->file_count; i++)
		if (span_is(first_field(r->files[i], FILE_NAME), name, length))
			return (int)i;
	return -1;
}

/* The file and what it imports, each once. */
static void files_add(const struct rp_reflection *r, int file, bool *seen, ProtobufCBinaryData *out,
	size_t *count)
{
	struct gateway_wire w;
	struct gateway_field f;

	if (file < 0 || seen[file])
		return;
	seen[file] = true;
	w = gateway_wire_of(r->files[file]);
	out[(*count)++] = (ProtobufCBinaryData){
		.data = (uint8_t *)r->files[file].data, .len = r->files[file].length};
	while (gateway_wire_next(&w, &f))
		if (f.id == FILE_DEPENDENCY && f.type == 2)
			files_add(r, file_of_name(r, (const char *)f.data, f.length), seen, out,
				count);
}

/* ---- the service ---- */

static void answer_send(struct rp_grpc_call *call, const Request *q, Answer *a)
{
	size_t length;
	uint8_t *data;

	a->valid_host = q->host;
	a->original_request = (Request *)q;
	length = protobuf_c_message_get_packed_size(&a->base);
	data = malloc(length + 1);
	RP_ASSERT(data != NULL);
	protobuf_c_message_pack(&a->base, data);
	if (rp_grpc_call_send_take(call, data, length, 0) < 0)
		rp_grpc_call_finish(
			call, RP_GRPC_RESOURCE_EXHAUSTED, "reflection: answers are not read");
}

static void answer_error(struct rp_grpc_call *call, const Request *q, int code, const char *text)
{
	Grpc__Reflection__V1__ErrorResponse e = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
	Answer a = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

	e.error_code = code;
	e.error_message = (char *)text;
	a.message_response_case =
		GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
	a.error_response = &e;
	answer_send(call, q, &a);
}

static void answer_file(
	const struct rp_reflection *r, struct rp_grpc_call *call, const Request *q, int file)
{
	Grpc__Reflection__V1__FileDescriptorResponse m =
		GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
	Answer a = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
	ProtobufCBinaryData list[FILES_MAX];
	bool seen[FILES_MAX] = {0};

	if (file < 0) {
		answer_error(call, q, RP_GRPC_NOT_FOUND, "not found");
		return;
	}
	m.file_descriptor_proto = list;
	files_add(r, file, seen, list, &m.n_file_descriptor_proto);
	a.message_response_case =
		GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
	a.file_descriptor_response = &m;
	answer_send(call, q, &a);
}

static bool is_served(const struct rp_reflection *r, const ProtobufCServiceDescriptor *s)
{
	char path[256];

	for (unsigned i = 0; i < s->n_methods; i++) {
		snprintf(path, sizeof(path), "/%s/%s", s->name, s->methods[i].name);
		if (rp_grpc_server_find(r->server, path))
			return true;
	}
	return false;
}

static void answer_services(
	const struct rp_reflection *r, struct rp_grpc_call *call, const Request *q)
{
	Grpc__Reflection__V1__ListServiceResponse m =
		GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
	Grpc__Reflection__V1__ServiceResponse services[SERVICES_MAX], *list[SERVICES_MAX];
	Answer a = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

	m.service = list;
	for (unsigned i = 0; rp_proto_services[i] && m.n_service < SERVICES_MAX; i++) {
		Grpc__Reflection__V1__ServiceResponse *s = &services[m.n_service];

		if (!is_served(r, rp_proto_services[i]))
			continue;
		grpc__reflection__v1__service_response__init(s);
		s->name = (char *)rp_proto_services[i]->name;
		list[m.n_service++] = s;
	}
	a.message_response_case =
		GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
	a.list_services_response = &m;
	answer_send(call, q, &a);
}

static void answer_symbol(
	const struct rp_reflection *r, struct rp_grpc_call *call, const Request *q)
{
	int file = -1;

	for (unsigned i = 0; file < 0 && i < r->file_count; i++)
		if (file_has(r->files[i], q->file_containing_symbol))
			file = (int)i;
	answer_file(r, call, q, file);
}

/* No message here has extensions. */
static void answer_numbers(
	const struct rp_reflection *r, struct rp_grpc_call *call, const Request *q)
{
	Grpc__Reflection__V1__ExtensionNumberResponse m =
		GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;
	Answer a = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
	const char *type = q->all_extension_numbers_of_type;
	bool known = false;

	for (unsigned i = 0; !known && i < r->file_count; i++)
		known = file_has(r->files[i], type);
	if (!known) {
		answer_error(call, q, RP_GRPC_NOT_FOUND, "not found");
		return;
	}
	m.base_type_name = (char *)type;
	a.message_response_case =
		GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
	a.all_extension_numbers_response = &m;
	answer_send(call, q, &a);
}

static void answer(const struct rp_reflection *r, struct rp_grpc_call *call, const Request *q)
{
	const char *name;

	switch ((int)q->message_request_case) {
	case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
		name = q->file_by_filename;
		answer_file(r, call, q, file_of_name(r, name, strlen(name)));
		break;
	case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
		answer_symbol(r, call, q);
		break;
	case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
		answer_error(call, q, RP_GRPC_NOT_FOUND, "not found");
		break;
	case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
		answer_numbers(r, call, q);
		break;
	case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
		answer_services(r, call, q);
		break;
	default:
		answer_error(call, q, RP_GRPC_INVALID_ARGUMENT, "the request asks nothing");
	}
}

static void on_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	/* v1alpha's messages have the same fields. */
	Request *q = grpc__reflection__v1__server_reflection_request__unpack(NULL, length, data);

	if (!q) {
		rp_grpc_call_finish(call, RP_GRPC_INTERNAL,
			"grpc: error unmarshalling request: ServerReflectionRequest does not "
			"decode");
		return;
	}
	answer(ctx, call, q);
	grpc__reflection__v1__server_reflection_request__free_unpacked(q, NULL);
}

static void on_half_close(struct rp_grpc_call *call, void *ctx)
{
	rp_grpc_call_finish(call, RP_GRPC_OK, NULL);
}

static const struct rp_grpc_call_ops reflection_ops = {
	.on_message = on_message, .on_half_close = on_half_close};

struct rp_reflection *rp_reflection_new(struct rp_grpc_server *server)
{
	static const char *const paths[] = {
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
	struct rp_reflection *r = calloc(1, sizeof(*r));
	struct gateway_wire w = gateway_wire_of(
		(struct rp_span){.data = rp_proto_files, .length = rp_proto_files_length});
	struct gateway_field f;
	int error;

	if (!r)
		return NULL;
	r->server = server;
	while (gateway_wire_next(&w, &f)) {
		RP_ASSERT(r->file_count < FILES_MAX);
		if (f.id == SET_FILE && f.type == 2)
			r->files[r->file_count++] = field_bytes(&f);
	}
	for (unsigned i = 0; i < RP_ARRAY_SIZE(paths); i++)
		r->methods[i] = (struct rp_grpc_method){.path = paths[i],
			.kind = RP_GRPC_BIDI,
			.ops = &reflection_ops,
			.ctx = r,
			.message_bytes_max = REFLECTION_MESSAGE_BYTES};
	error = rp_grpc_server_add_methods(server, r->methods, RP_ARRAY_SIZE(r->methods));
	if (error == 0)
		return r;
	free(r);
	errno = -error;
	return NULL;
}

void rp_reflection_destroy(struct rp_reflection *r)
{
	free(r);
}
