/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A gRPC client channel: one HTTP/2 connection to one address, plain or TLS, on an rp_loop.
 *
 *   1. rp_grpc_channel_new() with a configuration from rp_grpc_channel_config_default().
 *   2. rp_grpc_channel_connect(). on_state tells READY, or LOST with a reason. When to try again is
 *      the caller's: call connect once more (rp_grpc_backoff_ns() computes a delay).
 *   3. rp_grpc_channel_unary() or rp_grpc_channel_call() while READY. A call without a connection
 *      fails with UNAVAILABLE; nothing is queued for a connection to come.
 *   4. rp_grpc_channel_destroy().
 *
 * Every call that was started ends in exactly one on_finish (or unary done), never from within the
 * function that started it; after it the handle is gone. rp_grpc_channel_destroy() ends what is
 * open with CANCELLED. All functions belong to the loop's thread. A channel may be destroyed within
 * its callbacks.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/rand.h>
#include <base/units.h>
#include <grpc/loop.h>
#include <grpc/status.h>

struct rp_grpc_channel;
struct rp_grpc_client_call;
struct rp_tls_config;

#define RP_GRPC_CHANNEL_STATES(X) \
	X(IDLE)                   \
	X(CONNECTING)             \
	X(READY)                  \
	X(LOST)

enum rp_grpc_channel_state {
#define X(name) RP_GRPC_CHANNEL_##name,
	RP_GRPC_CHANNEL_STATES(X)
#undef X
};

struct rp_grpc_header {
	const char *name; /* lower case */
	const char *value;
};

struct rp_grpc_channel_config {
	struct rp_tls_config *tls;   /* NULL: plain. A reference is taken */
	const char *server_name;     /* TLS name to verify; NULL: the host of the address */
	const char *user_agent;	     /* NULL: "ringpost/<version>" */
	uint64_t connect_timeout_ns; /* name, TCP, TLS and the peer's SETTINGS together */
	/** PING after this much silence, 0: never; the peer is dead without an answer in `timeout`.
	 */
	uint64_t ping_interval_ns;
	uint64_t ping_timeout_ns;
	size_t message_bytes_max; /* one answer */
	size_t out_bytes_max;	  /* queued by all calls */
	/** READY, or LOST with a text why. May destroy the channel or connect again. */
	void (*on_state)(struct rp_grpc_channel *channel, enum rp_grpc_channel_state state,
		const char *reason, void *ctx);
	void *ctx;
};

struct rp_grpc_client_ops {
	/** One whole message, borrowed for the call. */
	void (*on_message)(
		struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx);
	/** After rp_grpc_client_call_fits() said no: it fits now. May be NULL. */
	void (*on_room)(struct rp_grpc_client_call *call, void *ctx);
	/** Last callback. `message` is decoded, terminated, borrowed. */
	void (*on_finish)(struct rp_grpc_client_call *call, enum rp_grpc_code code,
		const char *message, void *ctx);
};

/** `data` is the answer when the code is OK, else NULL and 0; borrowed, as is `message`. */
typedef void (*rp_grpc_unary_fn)(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length);

struct rp_grpc_channel_config rp_grpc_channel_config_default(void);

/** `address` as in rp_grpc_server_listen(). Copies strings. NULL and errno (EINVAL: no address). */
struct rp_grpc_channel *rp_grpc_channel_new(
	struct rp_loop *loop, const char *address, const struct rp_grpc_channel_config *config);
/** Ends calls with CANCELLED; on_state is not called. destroy(NULL) is fine. */
void rp_grpc_channel_destroy(struct rp_grpc_channel *channel);

/** Starts to connect. 0, also while CONNECTING or READY; failures are told by on_state LOST. */
int rp_grpc_channel_connect(struct rp_grpc_channel *channel);
/** Speaks over a connected stream socket (taken, also on failure) in place of connecting. 0 or
 * -errno. */
int rp_grpc_channel_attach(struct rp_grpc_channel *channel, int fd);
/** Ends calls with UNAVAILABLE; the state is IDLE; on_state is not called. */
void rp_grpc_channel_disconnect(struct rp_grpc_channel *channel);
enum rp_grpc_channel_state rp_grpc_channel_state(const struct rp_grpc_channel *channel);
/** When the last byte came from the peer, loop time; 0: never. */
uint64_t rp_grpc_channel_heard_ns(const struct rp_grpc_channel *channel);
/** Bytes queued by all calls and not yet given to the kernel. */
size_t rp_grpc_channel_queued_bytes(const struct rp_grpc_channel *channel);

/**
 * One request, one answer. `headers` are sent as metadata. `deadline_ns` is absolute loop time or
 * RP_NEVER; it is sent as grpc-timeout, and past it `done` gets DEADLINE_EXCEEDED. Copies what it
 * is given. NULL only with errno ENOMEM, or ESHUTDOWN while the channel is being destroyed; then
 * `done` is not called. Every other failure is told by `done`. The handle may be used for
 * rp_grpc_client_call_cancel() until `done` comes.
 */
struct rp_grpc_client_call *rp_grpc_channel_unary(struct rp_grpc_channel *channel, const char *path,
	const struct rp_grpc_header *headers, size_t header_count, uint64_t deadline_ns,
	const void *data, size_t length, rp_grpc_unary_fn done, void *ctx);

/** A call with streams either way. `ops` is borrowed for the life of the call. */
struct rp_grpc_client_call *rp_grpc_channel_call(struct rp_grpc_channel *channel, const char *path,
	const struct rp_grpc_header *headers, size_t header_count, uint64_t deadline_ns,
	const struct rp_grpc_client_ops *ops, void *ctx);
/** Queues a copy. 0, -ENOBUFS over out_bytes_max (see rp_grpc_call_send()), -EPIPE after half-close
 * or when the call has failed (on_finish comes), -ENOMEM. */
int rp_grpc_client_call_send(struct rp_grpc_client_call *call, const void *data, size_t length);
/** No more messages from this side. */
void rp_grpc_client_call_half_close(struct rp_grpc_client_call *call);
/** RST_STREAM; on_finish is not called, the handle is gone. */
void rp_grpc_client_call_cancel(struct rp_grpc_client_call *call);
/** As rp_grpc_call_room() and rp_grpc_call_fits(). */
size_t rp_grpc_client_call_room(const struct rp_grpc_client_call *call);
bool rp_grpc_client_call_fits(struct rp_grpc_client_call *call, size_t length);
/** As for the server's calls. */
void rp_grpc_client_call_pause_reading(struct rp_grpc_client_call *call);
void rp_grpc_client_call_resume_reading(struct rp_grpc_client_call *call);

/** Exponential with jitter: base·1.6^attempt up to max, ± 20 %. `attempt` from 0. */
uint64_t rp_grpc_backoff_ns(
	struct rp_rand *rand, unsigned attempt, uint64_t base_ns, uint64_t max_ns);
