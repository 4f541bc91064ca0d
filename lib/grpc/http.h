/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Plain HTTP requests on the gRPC ports: HTTP/1.1, and HTTP/2 requests that are not gRPC. For
 * /health, /version, /metrics and the JSON gateway.
 *
 *   1. Register handlers with rp_grpc_server_add_http().
 *   2. on_request() comes when the whole body is there. Answer with rp_http_reply(), now or later;
 *      or rp_http_begin(), rp_http_write()..., rp_http_end() for an answer of unknown length.
 *
 * A request is valid until rp_http_reply() or rp_http_end() returns, or on_cancel() returns. Every
 * answer carries the CORS headers of etcd; OPTIONS is answered by the server, as are 404 and bodies
 * over the limit (413). HEAD is handled as GET, without the body.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rp_http_request;
struct rp_grpc_conn;

struct rp_http_handler {
	const char *path; /* "/health"; with a '/' at its end it takes all paths below */
	/** Answers exactly once, now or later. */
	void (*on_request)(struct rp_http_request *request, void *ctx);
	/** The client is gone before the answer was complete; last callback. May be NULL. */
	void (*on_cancel)(struct rp_http_request *request, void *ctx);
	/** After rp_http_fits() said no: what was asked for fits now. May be NULL. */
	void (*on_room)(struct rp_http_request *request, void *ctx);
	/** The last byte of the piece written with this cookie is in the kernel's socket. May be
	 * NULL. */
	void (*on_written)(struct rp_http_request *request, uint64_t cookie, void *ctx);
	void *ctx;
};

/** "GET", "POST", ... */
const char *rp_http_method(const struct rp_http_request *request);
/** Without the query. */
const char *rp_http_path(const struct rp_http_request *request);
/** What follows '?', "" without one. */
const char *rp_http_query(const struct rp_http_request *request);
/** Whether the query has `name`; *value (may be NULL) is its undecoded value, *length its bytes. */
bool rp_http_query_get(const struct rp_http_request *request, const char *name, const char **value,
	size_t *length);
/** Value of a header (lower-case name), NULL when absent. */
const char *rp_http_header(const struct rp_http_request *request, const char *name);
const uint8_t *rp_http_body(const struct rp_http_request *request, size_t *length);
struct rp_grpc_conn *rp_http_conn(const struct rp_http_request *request);
void rp_http_set_user(struct rp_http_request *request, void *user);
void *rp_http_user(const struct rp_http_request *request);

/** "Not Found" of 404. */
const char *rp_http_reason(int status);

/** The whole answer; `body` is copied. */
void rp_http_reply(struct rp_http_request *request, int status, const char *content_type,
	const void *body, size_t length);
/** Start of an answer in pieces. */
void rp_http_begin(struct rp_http_request *request, int status, const char *content_type);
/**
 * A piece, copied. 0, or -ENOBUFS when the client does not read what is queued, -ENOMEM. `cookie`
 * other than 0 asks for on_written().
 */
int rp_http_write(
	struct rp_http_request *request, const void *data, size_t length, uint64_t cookie);
/** As rp_grpc_call_room(), _fits() and _queued_bytes(), of the answer's pieces. */
size_t rp_http_room(const struct rp_http_request *request);
bool rp_http_fits(struct rp_http_request *request, size_t length);
size_t rp_http_queued_bytes(const struct rp_http_request *request);
/** The answer may go on for ever: a client that has closed its side is gone, not waiting. */
void rp_http_set_endless(struct rp_http_request *request);
void rp_http_end(struct rp_http_request *request);
