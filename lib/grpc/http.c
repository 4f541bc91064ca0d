/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include "server_priv.h"

#define HTTP_HEADERS_MAX 8

struct http_reason {
	int status;
	const char *text;
};

static const struct http_reason http_reasons[] = {
	{200, "OK"},
	{204, "No Content"},
	{400, "Bad Request"},
	{401, "Unauthorized"},
	{403, "Forbidden"},
	{404, "Not Found"},
	{405, "Method Not Allowed"},
	{408, "Request Timeout"},
	{409, "Conflict"},
	{413, "Content Too Large"},
	{415, "Unsupported Media Type"},
	{429, "Too Many Requests"},
	{431, "Request Header Fields Too Large"},
	{499, "Client Closed Request"},
	{500, "Internal Server Error"},
	{501, "Not Implemented"},
	{503, "Service Unavailable"},
	{504, "Gateway Timeout"},
	{505, "HTTP Version Not Supported"},
};

/* What etcd sends with every answer, so that a browser's page may use the API. */
static const char *const http_common[][2] = {
	{"access-control-allow-origin", "*"},
	{"access-control-allow-methods", "POST, GET, OPTIONS, PUT, DELETE"},
	{"access-control-allow-headers", "accept, content-type, authorization"},
};

const char *rp_http_reason(int status)
{
	for (size_t i = 0; i < RP_ARRAY_SIZE(http_reasons); i++) {
		if (http_reasons[i].status == status)
			return http_reasons[i].text;
	}
	return "Unknown";
}

bool grpc_http_common_header(unsigned i, const char **name, const char **value)
{
	if (i >= RP_ARRAY_SIZE(http_common))
		return false;
	*name = http_common[i][0];
	*value = http_common[i][1];
	return true;
}

struct rp_http_request *grpc_http_new(struct rp_grpc_conn *conn, struct grpc_headers *headers,
	const char *method, const char *target)
{
	struct rp_http_request *r = calloc(1, sizeof(*r));
	char *mark;

	if (!r)
		return NULL;
	r->path = strdup(target);
	if (!r->path) {
		free(r);
		return NULL;
	}
	mark = strchr(r->path, '?');
	if (mark)
		*mark++ = 0;
	r->query = mark ? mark : r->path + strlen(r->path);
	r->conn = conn;
	r->headers = headers;
	r->method = method;
	r->head_only = strcmp(method, "HEAD") == 0;
	conn->server->stats.http_requests++;
	return r;
}

void grpc_http_free(struct rp_http_request *r)
{
	if (!r)
		return;
	if (r->visible && !r->done) {
		r->done = true;
		if (r->handler->on_cancel)
			r->handler->on_cancel(r, r->handler->ctx);
	}
	free(r->path);
	free(r->body);
	free(r);
}

int grpc_http_add_body(struct rp_http_request *r, const uint8_t *data, size_t length)
{
	struct rp_grpc_server *server = r->conn->server;

	if (r->body_length + length > server->config.limits.http_body_bytes)
		return -E2BIG;
	if (r->body_length + length > r->body_size) {
		size_t size = RP_MAX(r->body_size * 2, r->body_length + length);
		uint8_t *body = realloc(r->body, size);

		if (!body)
			return -ENOMEM;
		r->body = body;
		r->body_size = size;
	}
	memcpy(r->body + r->body_length, data, length);
	r->body_length += length;
	return 0;
}

void grpc_http_refuse(struct rp_http_request *r, int status)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "%d %s\n", status, rp_http_reason(status));

	r->done = false;
	rp_http_reply(r, status, "text/plain; charset=utf-8", text, (size_t)n);
}

void grpc_http_dispatch(struct rp_http_request *r)
{
	if (strcmp(r->method, "OPTIONS") == 0) {
		rp_http_reply(r, 200, NULL, NULL, 0);
		return;
	}
	r->handler = grpc_server_http(r->conn->server, r->path, strlen(r->path));
	if (!r->handler) {
		grpc_http_refuse(r, 404);
		return;
	}
	r->visible = true;
	r->handler->on_request(r, r->handler->ctx);
}

/* The HTTP/2 side of an answer. */

static nghttp2_nv http_nv(const char *name, const char *value)
{
	return (nghttp2_nv){.name = (uint8_t *)name,
		.namelen = strlen(name),
		.value = (uint8_t *)value,
		.valuelen = strlen(value)};
}

static void http_h2_begin(
	struct rp_http_request *r, int status, const char *content_type, ssize_t length)
{
	struct rp_grpc_call *call = r->call;
	nghttp2_data_provider source = {
		.source.ptr = &call->stream, .read_callback = grpc_stream_read};
	nghttp2_nv nv[HTTP_HEADERS_MAX];
	const char *name, *value;
	char code[16], size[24];
	size_t n = 0;

	snprintf(code, sizeof(code), "%d", status);
	snprintf(size, sizeof(size), "%zd", length);
	nv[n++] = http_nv(":status", code);
	if (content_type)
		nv[n++] = http_nv("content-type", content_type);
	if (length >= 0)
		nv[n++] = http_nv("content-length", size);
	for (unsigned i = 0; grpc_http_common_header(i, &name, &value); i++)
		nv[n++] = http_nv(name, value);
	call->answered = true;
	if (r->conn->h2.dead)
		return;
	(void)nghttp2_submit_response(r->conn->h2.session, call->stream.id, nv, n,
		length == 0 || r->head_only ? NULL : &source);
	grpc_h2_post_flush(&r->conn->h2);
}

static int http_h2_write(
	struct rp_http_request *r, const void *data, size_t length, uint64_t cookie)
{
	struct grpc_stream *s = &r->call->stream;
	const struct rp_grpc_limits *limits = &r->conn->server->config.limits;
	size_t queued = grpc_h2_queued_bytes(&r->conn->h2);

	/* The whole of an answer in one piece is always taken. */
	if ((s->out_bytes > 0 && s->out_bytes + length > limits->call_out_bytes) ||
		(queued > 0 && queued + length > limits->conn_out_bytes))
		return -ENOBUFS;
	return grpc_stream_push(s, data, length, false, cookie);
}

/* Answers. */

static void http_begin(
	struct rp_http_request *r, int status, const char *content_type, ssize_t length)
{
	RP_ASSERT(!r->begun && !r->done);
	r->begun = true;
	if (r->call)
		http_h2_begin(r, status, content_type, length);
	else
		grpc_http1_begin(r, status, content_type, length);
}

static int http_write(struct rp_http_request *r, const void *data, size_t length, uint64_t cookie)
{
	RP_ASSERT(r->begun && !r->done);
	if (length == 0 || r->head_only)
		return 0;
	return r->call ? http_h2_write(r, data, length, cookie)
		       : grpc_http1_write(r, data, length, cookie);
}

void rp_http_begin(struct rp_http_request *r, int status, const char *content_type)
{
	http_begin(r, status, content_type, -1);
}

int rp_http_write(struct rp_http_request *r, const void *data, size_t length, uint64_t cookie)
{
	return http_write(r, data, length, cookie);
}

size_t rp_http_queued_bytes(const struct rp_http_request *r)
{
	return r->call ? r->call->stream.out_bytes : grpc_http1_queued_bytes(r);
}

size_t rp_http_room(const struct rp_http_request *r)
{
	size_t queued;

	if (r->call)
		return grpc_stream_room(&r->call->stream);
	queued = grpc_http1_queued_bytes(r);
	return r->conn->h2.dead || queued >= GRPC_ROOM_BYTES ? 0 : GRPC_ROOM_BYTES - queued;
}

bool rp_http_fits(struct rp_http_request *r, size_t length)
{
	return r->call ? grpc_stream_fits(&r->call->stream, length) : grpc_http1_fits(r, length);
}

void rp_http_set_endless(struct rp_http_request *r)
{
	r->endless = true;
}

void grpc_http_room(struct rp_http_request *r)
{
	if (r->visible && !r->done && r->handler->on_room)
		r->handler->on_room(r, r->handler->ctx);
}

void grpc_http_written(struct rp_http_request *r, uint64_t cookie)
{
	if (r->visible && !r->done && r->handler->on_written)
		r->handler->on_written(r, cookie, r->handler->ctx);
}

void rp_http_end(struct rp_http_request *r)
{
	RP_ASSERT(r->begun && !r->done);
	r->done = true;
	if (r->call) {
		grpc_stream_discard_input(&r->call->stream);
		if (!r->head_only)
			grpc_stream_end_output(&r->call->stream);
	} else {
		grpc_http1_end(r);
	}
}

void rp_http_reply(struct rp_http_request *r, int status, const char *content_type,
	const void *body, size_t length)
{
	http_begin(r, status, content_type, (ssize_t)length);
	if (http_write(r, body, length, 0) < 0) {
		/* Its length is announced already: only an end of the stream says that it is cut.
		 */
		r->done = true;
		if (r->call)
			grpc_call_reset(r->call, NGHTTP2_ENHANCE_YOUR_CALM);
		else
			rp_grpc_conn_close(r->conn);
		return;
	}
	rp_http_end(r);
}

/* Accessors. */

const char *rp_http_method(const struct rp_http_request *r)
{
	return r->method;
}

const char *rp_http_path(const struct rp_http_request *r)
{
	return r->path;
}

const char *rp_http_query(const struct rp_http_request *r)
{
	return r->query;
}

bool rp_http_query_get(
	const struct rp_http_request *r, const char *name, const char **value, size_t *length)
{
	size_t name_length = strlen(name);
	const char *p = r->query;

	while (*p) {
		size_t n = strcspn(p, "&");

		if (n >= name_length && memcmp(p, name, name_length) == 0 &&
			(n == name_length || p[name_length] == '=')) {
			size_t skip = name_length + (n > name_length);

			if (value)
				*value = p + skip;
			if (length)
				*length = n - skip;
			return true;
		}
		p += n + (p[n] == '&');
	}
	return false;
}

const char *rp_http_header(const struct rp_http_request *r, const char *name)
{
	return grpc_headers_get(r->headers, name, NULL);
}

const uint8_t *rp_http_body(const struct rp_http_request *r, size_t *length)
{
	*length = r->body_length;
	return r->body;
}

struct rp_grpc_conn *rp_http_conn(const struct rp_http_request *r)
{
	return r->conn;
}

void rp_http_set_user(struct rp_http_request *r, void *user)
{
	r->user = user;
}

void *rp_http_user(const struct rp_http_request *r)
{
	return r->user;
}
