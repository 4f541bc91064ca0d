/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The inside of the server: server.c owns listeners and connections, conn.c a connection's
 * protocol, call.c gRPC calls, http.c and http1.c plain HTTP, bridge.c gRPC calls out of it.
 */

#include <base/list.h>
#include "addr_priv.h"
#include "h2_priv.h"
#include "headers_priv.h"
#include <grpc/bridge.h>
#include <grpc/http.h>
#include <grpc/server.h>

/* Most bytes of an encoded grpc-message: clients bound a header block at 8 KiB. */
#define GRPC_MESSAGE_BYTES 6144
#define GRPC_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define GRPC_PREFACE_BYTES 24

struct grpc_listener {
	struct rp_grpc_server *server;
	struct rp_tls_config *tls;
	int number;
	unsigned socket_count;
	struct rp_loop_fd sockets[GRPC_ADDR_MAX];
	struct rp_loop_timer retry; /* after running out of descriptors */
	char *unlink_path;
};

struct grpc_method_entry {
	const struct rp_grpc_method *method;
	struct rp_grpc_method_stats stats;
};

struct rp_grpc_server {
	struct rp_loop *loop;
	struct rp_grpc_server_config config;
	struct grpc_method_entry **methods; /* open addressing */
	size_t method_count, method_size;
	const struct rp_http_handler **handlers;
	size_t handler_count;
	struct grpc_listener **listeners;
	int listener_count;
	struct rp_list conns;
	uint64_t in_bytes; /* of all connections, as of their last flush */
	uint64_t next_call_id;
	struct rp_grpc_server_stats stats;
	bool draining, stopped, drained;
	char *drain_text;
	struct rp_loop_timer drain_timer;
	struct rp_loop_task drained_task;
	rp_loop_fn on_drained;
	void *drained_ctx;
};

enum grpc_conn_mode {
	GRPC_CONN_SNIFF, /* TLS handshake, then the first bytes */
	GRPC_CONN_H2,
	GRPC_CONN_HTTP1,
};

struct grpc_http1;

struct rp_grpc_conn {
	struct grpc_h2 h2; /* first */
	struct rp_list node;
	struct rp_grpc_server *server;
	int listener;
	enum grpc_conn_mode mode;
	bool local, is_unix;
	bool going;	   /* the second GOAWAY is out */
	bool finishing;	   /* ended by us */
	bool answers_full; /* an answer was over limits.conn_out_bytes */
	bool pinged_out;   /* for too many pings */
	char peer[GRPC_PEER_BYTES];
	uint8_t sniff[GRPC_PREFACE_BYTES];
	size_t sniff_have;
	struct grpc_http1 *http1;
	struct rp_list headers_due; /* streaming calls whose response HEADERS are to go */
	struct rp_loop_timer timer; /* handshake, then keepalive or idleness */
	struct rp_loop_task close_task;
	uint64_t ping_sent_ns; /* 0: none on its way */
	uint64_t client_ping_ns;
	unsigned ping_strikes;
	uint64_t in_reported;  /* part of server->in_bytes */
	uint64_t out_reported; /* part of the gauge */
	uint64_t wire_in, wire_out, wire_writes, messages_in, messages_out; /* counted so far */
	enum rp_grpc_cancel cancel_why;
	void *user;
	void (*on_close)(void *user);
};

struct rp_grpc_call {
	struct grpc_stream stream; /* first */
	struct rp_list due_node;
	uint64_t id;
	const struct rp_grpc_method *method;
	struct rp_grpc_method_stats *counts; /* of the method */
	struct rp_http_request *http;	     /* not a gRPC call but a plain request */
	struct grpc_headers headers;
	struct rp_loop_timer deadline;
	uint64_t deadline_ns;
	void *user;
	enum rp_grpc_code code;
	char *message;
	uint32_t reset_code; /* of the RST_STREAM that follows an early end */
	bool overflow, malformed;
	bool visible;  /* the service has the handle */
	bool done;     /* the service has finished, or was told of the end */
	bool answered; /* response HEADERS are submitted */
	bool reset;    /* by us, without an answer */
	bool got_message;
	bool gzip; /* the client asked so, and takes it: answers are compressed */
	/* Made from a plain request (bridge.c): the stream is not one of HTTP/2. */
	const struct rp_grpc_bridge_ops *bridge;
	void *bridge_ctx;
	struct rp_http_request *bridge_request;
	bool *bridge_gone; /* to be set when it ends inside on_start */
};

/* conn.c */
int grpc_conn_new(struct rp_grpc_server *server, int fd, const struct grpc_addr *peer,
	struct grpc_listener *listener, struct rp_tls_config *tls);
/** Frees at once: not from within its callbacks. */
void grpc_conn_destroy(struct rp_grpc_conn *conn, enum rp_grpc_cancel why);
/** First GOAWAY of a graceful end. */
void grpc_conn_drain(struct rp_grpc_conn *conn);
/** Ends every call with UNAVAILABLE, then the connection. */
void grpc_conn_stop(struct rp_grpc_conn *conn, const char *text);
void grpc_conn_count(struct rp_grpc_conn *conn);
/** The connection ends when what is queued is written. */
void grpc_conn_finish(struct rp_grpc_conn *conn);

/* methods.c */
/** NULL: no such method. */
struct grpc_method_entry *grpc_server_method(const struct rp_grpc_server *server, const char *path);
void grpc_server_methods_free(struct rp_grpc_server *server);

/* server.c */
bool grpc_server_has_service(
	const struct rp_grpc_server *server, const char *path, size_t service_length);
const struct rp_http_handler *grpc_server_http(
	const struct rp_grpc_server *server, const char *path, size_t length);
void grpc_server_conn_gone(struct rp_grpc_server *server);

/* call.c */
struct rp_grpc_call *grpc_call_new(struct rp_grpc_conn *conn, int32_t id);
void grpc_call_free(struct rp_grpc_call *call);
/** The request's headers are complete. */
void grpc_call_begin(struct rp_grpc_call *call);
/** Ends a call that the service has not ended: it is told `why`, the client the rest. */
void grpc_call_abort(struct rp_grpc_call *call, enum rp_grpc_code code, const char *message,
	enum rp_grpc_cancel why);
/** The request's body, now that it has ended, was not as long as its content-length says. */
bool grpc_call_length_wrong(const struct rp_grpc_call *call);
/** Ends a request that was found malformed after it began (RFC 9113, 8.1.1). */
void grpc_call_refuse_malformed(struct rp_grpc_call *call);
void grpc_call_submit_headers(struct rp_grpc_call *call);
/** Resets the stream without an answer. */
void grpc_call_reset(struct rp_grpc_call *call, uint32_t error_code);
extern const struct grpc_h2_ops grpc_conn_ops;
/* ops of call.c that conn.c puts into the table */
void grpc_call_on_message(
	struct grpc_stream *s, bool compressed, const uint8_t *data, size_t length);
void grpc_call_on_body(struct grpc_stream *s, const uint8_t *data, size_t length);
void grpc_call_on_half_closed(struct grpc_stream *s);
void grpc_call_on_bad(struct grpc_stream *s, enum grpc_bad why, size_t length);
void grpc_call_on_trailers(struct grpc_stream *s);
void grpc_call_on_room(struct grpc_stream *s);
void grpc_call_on_written(struct grpc_stream *s, uint64_t cookie);
void grpc_call_on_closed(struct grpc_stream *s, uint32_t error_code);

/* bridge.c */
void grpc_bridge_finish(struct rp_grpc_call *call, enum rp_grpc_code code, const char *text);

/* http.c */
struct rp_http_request {
	struct rp_grpc_conn *conn;
	struct rp_grpc_call *call; /* HTTP/2; NULL: HTTP/1.1 */
	const struct rp_http_handler *handler;
	struct grpc_headers *headers;
	char *path, *query; /* one block */
	const char *method;
	uint8_t *body;
	size_t body_length, body_size;
	void *user;
	bool visible, begun, done, head_only;
	bool endless; /* a client that sends no more is gone */
};

/** `target`: path and query. NULL without memory. */
struct rp_http_request *grpc_http_new(struct rp_grpc_conn *conn, struct grpc_headers *headers,
	const char *method, const char *target);
/** Adds to the body. 0, -E2BIG, -ENOMEM. */
int grpc_http_add_body(struct rp_http_request *request, const uint8_t *data, size_t length);
/** The request is complete: to its handler, or answered here. */
void grpc_http_dispatch(struct rp_http_request *request);
/** An answer made by the server itself. */
void grpc_http_refuse(struct rp_http_request *request, int status);
/** Tells the handler, when it has the request; frees it. free(NULL) is fine. */
void grpc_http_free(struct rp_http_request *request);
/** Name and value of the i-th header that every answer has, false past the last. */
/** To the request's handler, while it has the request. */
void grpc_http_room(struct rp_http_request *request);
void grpc_http_written(struct rp_http_request *request, uint64_t cookie);
bool grpc_http_common_header(unsigned i, const char **name, const char **value);

/* http1.c */
int grpc_http1_open(struct rp_grpc_conn *conn);
void grpc_http1_close(struct rp_grpc_conn *conn);
void grpc_http1_input(struct rp_grpc_conn *conn, const uint8_t *data, size_t length);
/** End of input; true when an answer is still to be given. */
bool grpc_http1_ended(struct rp_grpc_conn *conn);
void grpc_http1_flush(struct rp_grpc_conn *conn);
/** A handler has the request. */
bool grpc_http1_answering(const struct rp_grpc_conn *conn);
bool grpc_http1_idle(const struct rp_grpc_conn *conn);
void grpc_http1_begin(
	struct rp_http_request *request, int status, const char *content_type, ssize_t length);
int grpc_http1_write(
	struct rp_http_request *request, const void *data, size_t length, uint64_t cookie);
bool grpc_http1_fits(struct rp_http_request *request, size_t length);
size_t grpc_http1_queued_bytes(const struct rp_http_request *request);
/** Tells of what the kernel has taken, and of room. */
void grpc_http1_flushed(struct rp_grpc_conn *conn);
void grpc_http1_end(struct rp_http_request *request);

/* gzip.c */
/** Makes a gzip message, malloc'd. 0 or -ENOMEM. */
int grpc_gzip_deflate(const uint8_t *data, size_t length, uint8_t **out, size_t *out_length);
/** Inflates a gzip message into malloc'd bytes. 0, -EINVAL, -E2BIG past `size_max`, -ENOMEM. */
int grpc_gzip_inflate(
	const uint8_t *data, size_t length, size_t size_max, uint8_t **out, size_t *out_length);
