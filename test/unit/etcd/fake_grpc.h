/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Stands in for lib/grpc in tests of the services: calls are begun, fed and looked at by hand, the
 * client's window is a number.
 *
 *   1. fake_server_new(), rp_etcd_create() with it.
 *   2. fake_call_new() with a path; fake_call_send() a request; fake_call_next() its answers.
 *   3. fake_call_free() cancels what has not finished.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <grpc/http.h>
#include <grpc/server.h>

#define FAKE_ANSWERS 4096

struct rp_grpc_server {
	const struct rp_grpc_method *methods;
	size_t method_count;
	const struct rp_http_handler *handlers;
	size_t handler_count;
};

struct rp_grpc_conn {
	void *user;
	void (*on_close)(void *user);
	bool remote;
};

struct fake_answer {
	uint8_t *data;
	size_t length;
	uint64_t cookie;
};

struct rp_grpc_call {
	const struct rp_grpc_method *method;
	struct rp_grpc_conn *conn;
	void *user;
	bool own_conn, x_peer;
	const char *token; /* instead of fake_token */
	bool over, paused;
	int code;
	char message[1024];
	struct fake_answer answers[FAKE_ANSWERS];
	uint32_t answer_count, answer_next;
	size_t window; /* bytes that fit; SIZE_MAX at first */
	size_t queued; /* bytes sent and not yet read by fake_call_read() */
	bool wants_room, refuse_sends;
};

struct rp_http_request {
	const char *method, *query;
	int status;
	char body[512];
};

/** New calls say `hasleader: true`. */
extern bool fake_has_leader;
/** Metadata of calls from now on, and the certificate's name; NULL: none. */
extern const char *fake_token, *fake_authorization, *fake_cn, *fake_version;

struct rp_grpc_server *fake_server_new(void);
void fake_server_free(struct rp_grpc_server *s);
/** `conn` NULL: one of its own, on this host. Streams are started. */
struct rp_grpc_call *fake_call_new(
	struct rp_grpc_server *s, const char *path, struct rp_grpc_conn *conn);
void fake_call_send(struct rp_grpc_call *c, const void *data, size_t length);
/** Streams: no more requests. */
void fake_call_half_close(struct rp_grpc_call *c);
/** The next answer, or NULL. */
const struct fake_answer *fake_call_next(struct rp_grpc_call *c);
/** Sets the window, tells of room and of what was written. */
void fake_call_window(struct rp_grpc_call *c, size_t window);
void fake_call_written(struct rp_grpc_call *c);
void fake_call_cancel(struct rp_grpc_call *c, enum rp_grpc_cancel why);
void fake_call_free(struct rp_grpc_call *c);
struct rp_grpc_conn *fake_conn_new(bool remote);
void fake_conn_free(struct rp_grpc_conn *c);
void fake_http(struct rp_grpc_server *s, struct rp_http_request *r, const char *method,
	const char *path, const char *query);
