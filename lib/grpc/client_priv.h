/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The inside of the client: client.c owns the channel and its connection, client_call.c the calls.
 */

#include "addr_priv.h"
#include "h2_priv.h"
#include "resolve_priv.h"
#include <grpc/client.h>

#define GRPC_CLIENT_TEXT_BYTES 1024

struct rp_grpc_channel {
	struct grpc_h2 h2; /* first */
	struct rp_loop *loop;
	struct rp_grpc_channel_config config;
	char *server_name, *user_agent;
	char authority[GRPC_HOST_BYTES + 16];
	struct grpc_target target;
	enum rp_grpc_channel_state state;
	struct grpc_resolve *resolve;
	struct grpc_addr addrs[GRPC_ADDR_MAX];
	int addr_count, addr_next;
	struct rp_loop_fd connecting;
	struct rp_loop_timer timer; /* connect timeout, then keepalive */
	struct rp_loop_task start_task, lost_task;
	struct rp_loop_task fail_task; /* calls that have got no stream, and calls to be freed */
	uint64_t ping_sent_ns;
	bool alpn_checked, going_away, destroyed;
	int attach_fd;
	char reason[160];
};

struct rp_grpc_client_call {
	struct grpc_stream stream; /* first; id -1 while it has none */
	struct rp_grpc_channel *channel;
	const struct rp_grpc_client_ops *ops;
	rp_grpc_unary_fn unary;
	void *ctx;
	struct rp_loop_timer deadline;
	uint8_t *answer; /* of a unary call */
	size_t answer_length;
	bool answered;
	bool done;     /* the caller has been told, or has cancelled */
	bool detached; /* nghttp2 has closed the stream, messages are still held */
	bool ended;    /* half-closed by the caller */
	int http_status;
	int code; /* grpc-status, -1: none yet */
	bool grpc_type;
	char message[GRPC_CLIENT_TEXT_BYTES];
};

static inline struct rp_grpc_channel *grpc_channel_of(struct grpc_h2 *h2)
{
	return RP_CONTAINER_OF(h2, struct rp_grpc_channel, h2);
}

/** Ends every call with `code` and frees those that may be freed now. */
void grpc_channel_end_calls(
	struct rp_grpc_channel *channel, enum rp_grpc_code code, const char *message);
/** nghttp2's callbacks and the streams' ops. */
void grpc_client_set_callbacks(nghttp2_session_callbacks *callbacks);
void grpc_client_on_message(
	struct grpc_stream *s, bool compressed, const uint8_t *data, size_t length);
void grpc_client_on_half_closed(struct grpc_stream *s);
void grpc_client_on_bad(struct grpc_stream *s, enum grpc_bad why, size_t length);
void grpc_client_on_room(struct grpc_stream *s);
void grpc_client_on_written(struct grpc_stream *s, uint64_t cookie);
void grpc_client_on_closed(struct grpc_stream *s, uint32_t error_code);
void grpc_client_fail_task(void *ctx);
void grpc_call_deliver_headers(struct rp_grpc_client_call *call, const uint8_t *name,
	size_t name_length, const uint8_t *value, size_t value_length);
/** The server ended the stream with trailers. */
void grpc_client_input_end(struct rp_grpc_client_call *call);
