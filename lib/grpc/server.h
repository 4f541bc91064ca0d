/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * gRPC over HTTP/2, and plain HTTP on the same ports (http.h), on one rp_loop.
 *
 *   1. rp_grpc_server_new() with a configuration from rp_grpc_server_config_default().
 *   2. rp_grpc_server_add_methods() per service, rp_grpc_server_add_http() per HTTP path.
 *   3. rp_grpc_server_listen() per address: TCP plain or TLS, or a unix socket.
 *   4. Calls arrive as callbacks. Answer at once or later, in any order:
 *        unary          on_start?, on_message, then rp_grpc_call_send() + rp_grpc_call_finish()
 *        client stream  on_start?, on_message..., on_half_close, then send + finish
 *        server stream  on_start?, on_message, then send..., finish
 *        bidi           on_start?, on_message..., on_half_close?; send at any time; finish
 *   5. rp_grpc_server_drain() for a graceful stop, rp_grpc_server_destroy().
 *
 * Life of a call: its handle is valid from on_start (or on_message) until rp_grpc_call_finish()
 * returns or on_cancel() returns, whichever is first; exactly one of the two happens, and no
 * callback comes after it. Each is allowed inside any callback of the call, and outside.
 *
 * Bounds. What a peer makes us hold is limited by rp_grpc_limits: incoming bytes per connection and
 * in all, outgoing bytes per call and per connection. Output of a whole turn of the loop leaves in
 * one write a connection.
 *
 * All functions belong to the loop's thread. A server is not destroyed from within a callback.
 * Spec page: etcd-semantics, sections 1 (transport level), 12 and 13.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <base/units.h>
#include <grpc/loop.h>
#include <grpc/status.h>

struct rp_grpc_server;
struct rp_grpc_conn;
struct rp_grpc_call;
struct rp_http_handler;
struct rp_tls_config;

enum rp_grpc_kind {
	RP_GRPC_UNARY,
	RP_GRPC_CLIENT_STREAM,
	RP_GRPC_SERVER_STREAM,
	RP_GRPC_BIDI,
};

/** Why a call ended before the service finished it. */
enum rp_grpc_cancel {
	RP_GRPC_CANCEL_RESET,	 /* the client's RST_STREAM */
	RP_GRPC_CANCEL_LOST,	 /* the connection is gone */
	RP_GRPC_CANCEL_DEADLINE, /* grpc-timeout; the client has been answered */
	RP_GRPC_CANCEL_REFUSED,	 /* a limit or bad framing; the client has been answered */
	RP_GRPC_CANCEL_STOPPED,	 /* the server ends; the client has been answered UNAVAILABLE */
};

/** What happens to a call. Any member may be NULL. `ctx` is the method's. */
struct rp_grpc_call_ops {
	/** Request headers are there, no message yet. */
	void (*on_start)(struct rp_grpc_call *call, void *ctx);
	/** One whole message, borrowed for the call. Unary and server stream: exactly once. */
	void (*on_message)(
		struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx);
	/** The client sends no more messages. Not called for unary and server-stream methods. */
	void (*on_half_close)(struct rp_grpc_call *call, void *ctx);
	/** Last callback: stop the work, forget the handle. */
	void (*on_cancel)(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx);
	/** After rp_grpc_call_fits() said no: what was asked for fits now. */
	void (*on_room)(struct rp_grpc_call *call, void *ctx);
	/** The last byte of the message sent with this cookie (never 0) is in the kernel's socket.
	 */
	void (*on_written)(struct rp_grpc_call *call, uint64_t cookie, void *ctx);
};

/** One line of a service's table; borrowed by the server until it is destroyed. */
struct rp_grpc_method {
	const char *path; /* "/etcdserverpb.KV/Range" */
	enum rp_grpc_kind kind;
	const struct rp_grpc_call_ops *ops;
	void *ctx;
	/** Largest request message of this method, bytes; 0: the server's limit. */
	size_t message_bytes_max;
};

struct rp_grpc_limits {
	uint32_t connections;	      /* further ones are closed at accept */
	uint32_t streams;	      /* SETTINGS_MAX_CONCURRENT_STREAMS, per connection */
	uint32_t header_bytes;	      /* header list of one request */
	uint32_t message_bytes;	      /* one request message */
	uint32_t http_body_bytes;     /* body of one HTTP request */
	uint32_t stream_window_bytes; /* receive window of a stream */
	uint32_t conn_window_bytes;   /* receive window of a connection */
	uint64_t conn_in_bytes;	      /* partial and unread messages of one connection */
	uint64_t in_bytes;	      /* the same, of all connections */
	uint64_t call_out_bytes;      /* queued by one streaming call, see rp_grpc_call_send() */
	uint64_t conn_out_bytes;      /* queued by all calls of one connection */
	uint32_t stream_resets_burst; /* RST_STREAMs of a client: burst and rate per second */
	uint32_t stream_resets_rate;
};

struct rp_grpc_server_config {
	struct rp_grpc_limits limits;
	/** PING after this much silence (0: never), and the connection ends without an answer in
	 * time. */
	uint64_t ping_interval_ns;
	uint64_t ping_timeout_ns;
	/** Keepalive enforcement: client PINGs closer than this are strikes; 0: never a strike. */
	uint64_t client_ping_min_ns;
	/** Client PINGs without a call are strikes when closer than 2 h (etcd's strict rule). */
	bool client_ping_needs_call;
	/** Time for preface and TLS handshake of a new connection. */
	uint64_t handshake_timeout_ns;
	/**
	 * Accept compressed requests (gzip), and compress answers to those who send them; else
	 * UNIMPLEMENTED, which is what etcd does.
	 */
	bool accept_gzip;
};

/* clang-format off */
/** Each only grows. */
#define RP_GRPC_SERVER_COUNTERS(X)                                                        \
	X(conns_accepted, "connections accepted")                                         \
	X(conns_refused_limit, "connections refused: limits.connections are open")        \
	X(conns_closed_here, "connections closed by this node")                           \
	X(conns_closed_peer, "connections closed by their client")                        \
	X(conns_closed_protocol, "connections closed since the client broke HTTP")        \
	X(conns_closed_tls, "connections closed by a fault of TLS")                       \
	X(conns_closed_timeout, "connections closed since an answer to a PING, or the preface, did not come in time") \
	X(conns_closed_pings, "connections closed for too many PINGs")                    \
	X(calls_started, "calls that began")                                              \
	X(calls_finished, "calls answered to their end")                                  \
	X(calls_cancelled, "calls cancelled by their client, or lost with its connection") \
	X(calls_refused_method, "calls of a method that is not served")                   \
	X(calls_refused_header, "calls whose headers are not those of gRPC")              \
	X(calls_refused_framing, "calls whose messages are cut wrongly")                  \
	X(calls_refused_size, "calls with a message over limits.message_bytes")           \
	X(calls_refused_memory, "calls for which there was no memory")                    \
	X(calls_deadline, "calls whose deadline passed")                                  \
	X(http_requests, "plain HTTP requests")                                           \
	X(messages_in, "messages of clients")                                             \
	X(messages_out, "messages to clients")                                            \
	X(bytes_in, "bytes read from clients")                                            \
	X(bytes_out, "bytes written to clients")                                          \
	X(socket_writes, "calls that wrote to a socket")
/** What there is now. */
#define RP_GRPC_SERVER_GAUGES(X)                                                          \
	X(conns_open, "connections open")                                                 \
	X(calls_open, "calls open")                                                       \
	X(in_bytes_held, "bytes of messages that are not whole yet")                      \
	X(out_bytes_held, "bytes that wait for their client")
#define RP_GRPC_SERVER_STATS(X)    \
	RP_GRPC_SERVER_COUNTERS(X) \
	RP_GRPC_SERVER_GAUGES(X)
/* clang-format on */

struct rp_grpc_server_stats {
#define X(name, help) uint64_t name;
	RP_GRPC_SERVER_STATS(X)
#undef X
};

/** What became of a method's calls; HTTP requests that were made calls (bridge.h) count as well. */
struct rp_grpc_method_stats {
	uint64_t started, messages_in, messages_out;
	uint64_t handled[RP_GRPC_CODE_COUNT]; /**< by code; CANCELLED: reset, or the connection lost
					       */
};

struct rp_grpc_server_config rp_grpc_server_config_default(void);

/**
 * New values of limits.connections, limits.streams and limits.message_bytes. Connections that are
 * open stay, and keep the number of streams that they were told.
 */
void rp_grpc_server_set_limits(struct rp_grpc_server *server, uint32_t connections,
	uint32_t streams, uint32_t message_bytes);

/** Borrows `loop`; copies `config`. NULL and errno. */
struct rp_grpc_server *rp_grpc_server_new(
	struct rp_loop *loop, const struct rp_grpc_server_config *config);
/** Cancels what is open (RP_GRPC_CANCEL_STOPPED, then connections closed). destroy(NULL) is fine.
 */
void rp_grpc_server_destroy(struct rp_grpc_server *server);

/** 0, -EEXIST for a path that is there, -EINVAL for one that is not "/service/method", -ENOMEM. */
int rp_grpc_server_add_methods(
	struct rp_grpc_server *server, const struct rp_grpc_method *methods, size_t count);
/** Borrows the table until destroy; see http.h. 0, -EEXIST, -ENOMEM. */
int rp_grpc_server_add_http(
	struct rp_grpc_server *server, const struct rp_http_handler *handlers, size_t count);

/**
 * Listens on "host:port", "[v6]:port", ":port" (every address) or "unix:/path" ("unix:@name" is
 * abstract). "localhost" is 127.0.0.1 and ::1 where the host has it. Port 0 takes a free one. `tls`
 * (a reference is taken) makes it a TLS port with ALPN h2 and http/1.1. A unix path that no process
 * listens on any more is replaced.
 * Returns a listener number >= 0 for the functions below, or -errno. *port (may be NULL) is the
 * port got. Names are resolved with getaddrinfo(3), which may block: call it at start.
 */
int rp_grpc_server_listen(struct rp_grpc_server *server, const char *address,
	struct rp_tls_config *tls, uint16_t *port);
/** New connections of this listener use `tls` from now on; those open keep what they have. */
void rp_grpc_server_set_tls(struct rp_grpc_server *server, int listener, struct rp_tls_config *tls);
/** Closes the listening sockets; connections stay. Unix paths are unlinked. */
void rp_grpc_server_close_listeners(struct rp_grpc_server *server);
/**
 * Serves a connected stream socket as if it had been accepted (takes the descriptor, also on
 * failure). 0 or -errno.
 */
int rp_grpc_server_attach(struct rp_grpc_server *server, int fd, struct rp_tls_config *tls);

/**
 * Graceful stop: listeners closed; GOAWAY to every connection; calls in flight may finish; after
 * `grace_ns` what is left is cancelled with UNAVAILABLE `text` and connections are closed.
 * Streaming calls are the services' to end: they would last for ever. `on_drained` is called once,
 * when no connection is left; the server may be destroyed in it.
 */
void rp_grpc_server_drain(struct rp_grpc_server *server, uint64_t grace_ns, const char *text,
	rp_loop_fn on_drained, void *ctx);

/** `fn` is called once for each method, in no order. */
void rp_grpc_server_each_method(const struct rp_grpc_server *server,
	void (*fn)(void *ctx, const struct rp_grpc_method *method,
		const struct rp_grpc_method_stats *stats),
	void *ctx);

struct rp_grpc_server_stats rp_grpc_server_stats(const struct rp_grpc_server *server);

/* A call. */

/**
 * Queues one message, copied. `cookie` other than 0 asks for on_written(). 0, or
 *   -ENOBUFS  over call_out_bytes (streaming calls) or conn_out_bytes: nothing was queued. A
 * message is always taken while nothing else is queued there, so the bound is limit + 1 message;
 *   -ENOMEM.
 */
int rp_grpc_call_send(struct rp_grpc_call *call, const void *data, size_t length, uint64_t cookie);
/** The same without a copy: takes `data` from malloc(3), also on failure. */
int rp_grpc_call_send_take(struct rp_grpc_call *call, void *data, size_t length, uint64_t cookie);
/**
 * Ends the call, after the messages queued. `message` (NULL is "") is copied. The handle is gone.
 * Without any message sent, an error goes out as Trailers-Only.
 */
void rp_grpc_call_finish(struct rp_grpc_call *call, enum rp_grpc_code code, const char *message);
/** send() of one message, then finish() OK; finishes with RESOURCE_EXHAUSTED when it cannot queue.
 */
void rp_grpc_call_reply(struct rp_grpc_call *call, const void *data, size_t length);

/**
 * Bytes of messages (5 more each are framing) that can be written now without being parked: what is
 * left of the HTTP/2 windows of stream and connection and of the connection's own buffer, less what
 * is queued already; 0 while the socket takes no more.
 */
size_t rp_grpc_call_room(const struct rp_grpc_call *call);
/**
 * Whether a message of `length` bytes can be written now without being parked. One that is larger
 * than half of the peer's whole window counts as fitting when half of the window is free. When
 * false, on_room() comes once, as soon as it would be true.
 */
bool rp_grpc_call_fits(struct rp_grpc_call *call, size_t length);
/** Bytes queued and not yet given to the kernel's socket. */
size_t rp_grpc_call_queued_bytes(const struct rp_grpc_call *call);

/** No on_message() until resume; the client's window is not renewed meanwhile. Does not nest. */
void rp_grpc_call_pause_reading(struct rp_grpc_call *call);
/** Messages held come in the next turn of the loop. */
void rp_grpc_call_resume_reading(struct rp_grpc_call *call);

void rp_grpc_call_set_user(struct rp_grpc_call *call, void *user);
void *rp_grpc_call_user(const struct rp_grpc_call *call);
struct rp_grpc_conn *rp_grpc_call_conn(const struct rp_grpc_call *call);
const struct rp_grpc_method *rp_grpc_call_method(const struct rp_grpc_call *call);
/** As rp_grpc_conn_peer_cn(), but NULL for a call that came as plain HTTP (bridge.h). */
const char *rp_grpc_call_peer_cn(const struct rp_grpc_call *call);
/** Unique among the calls of the process's life; for logs and tokens. */
uint64_t rp_grpc_call_id(const struct rp_grpc_call *call);
/** When grpc-timeout runs out, RP_NEVER without one. */
uint64_t rp_grpc_call_deadline_ns(const struct rp_grpc_call *call);

/**
 * First value of a request header (lower-case name, e.g. "token", "authorization", ":authority"),
 * terminated, borrowed for the life of the call; NULL when absent. `length` may be NULL.
 */
const char *rp_grpc_call_metadata(
	const struct rp_grpc_call *call, const char *name, size_t *length);
/** The same for a "-bin" header, base64 decoded: bytes written, -ENOENT, -EINVAL or -ENOSPC. */
ssize_t rp_grpc_call_metadata_bin(
	const struct rp_grpc_call *call, const char *name, uint8_t *out, size_t size);

/* A connection: what calls of one client share. */

/** `on_close` (may be NULL) is called once with `user`, after the last on_cancel of its calls. */
void rp_grpc_conn_set_user(struct rp_grpc_conn *conn, void *user, void (*on_close)(void *user));
void *rp_grpc_conn_user(const struct rp_grpc_conn *conn);
/** "127.0.0.1:4711", "[::1]:4711", "unix"; borrowed. */
const char *rp_grpc_conn_peer(const struct rp_grpc_conn *conn);
/** Loopback address or unix socket: a caller on this host. */
bool rp_grpc_conn_is_local(const struct rp_grpc_conn *conn);
bool rp_grpc_conn_is_unix(const struct rp_grpc_conn *conn);
/** Common name of the client certificate that TLS verified; NULL without one. */
const char *rp_grpc_conn_peer_cn(const struct rp_grpc_conn *conn);
/** Number of the listener it came from, -1 if attached. */
int rp_grpc_conn_listener(const struct rp_grpc_conn *conn);
/** Closes it at the end of this turn; its calls get RP_GRPC_CANCEL_LOST. */
void rp_grpc_conn_close(struct rp_grpc_conn *conn);
