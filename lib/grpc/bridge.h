/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A gRPC call made out of a plain HTTP request (http.h): the service sees a call like every other,
 * and what it answers comes back as messages. For the JSON gateway.
 *
 *   1. In the handler's on_request(): rp_grpc_bridge_open() with a method of the same server.
 *   2. rp_grpc_bridge_message() per message of the request, then rp_grpc_bridge_half_close(). Stop
 *      as soon as finish() came; while rp_grpc_bridge_paused(), wait for resumed().
 *   3. Answers come by message(), the end by finish(): then the handle is gone.
 *   4. The handler's on_cancel(): rp_grpc_bridge_cancel(). Its on_room() and on_written():
 *      rp_grpc_bridge_room() and rp_grpc_bridge_written().
 *
 * The service's view: metadata is the request's "authorization", what was sent as
 * "grpc-metadata-*", and the deadline of "grpc-timeout"; rp_grpc_call_peer_cn() is NULL, since who
 * holds a certificate is not who asks (spec/etcd-semantics.md section 11). All belongs to the
 * loop's thread.
 */

#include <grpc/http.h>
#include <grpc/server.h>

struct rp_grpc_bridge_ops {
	/** One message of the answer, borrowed; see rp_grpc_call_send() for cookie and result. */
	int (*message)(void *ctx, const uint8_t *data, size_t length, uint64_t cookie);
	/** The end; also after the deadline, and after a message over the method's size. */
	void (*finish)(void *ctx, enum rp_grpc_code code, const char *text);
	/** The service reads on, after rp_grpc_bridge_paused(). */
	void (*resumed)(void *ctx);
};

/** The method of that path, NULL when there is none. */
const struct rp_grpc_method *rp_grpc_server_find(
	const struct rp_grpc_server *server, const char *path);
/**
 * The service's on_start() may finish the call before this returns, with NULL and errno 0 then;
 * NULL and errno EINVAL is a grpc-timeout that is none, ENOMEM no memory: finish() does not come.
 */
struct rp_grpc_call *rp_grpc_bridge_open(struct rp_http_request *request,
	const struct rp_grpc_method *method, const struct rp_grpc_bridge_ops *ops, void *ctx);
/** May finish the call, as all of these. */
void rp_grpc_bridge_message(struct rp_grpc_call *call, const uint8_t *data, size_t length);
void rp_grpc_bridge_half_close(struct rp_grpc_call *call);
bool rp_grpc_bridge_paused(const struct rp_grpc_call *call);
void rp_grpc_bridge_room(struct rp_grpc_call *call);
void rp_grpc_bridge_written(struct rp_grpc_call *call, uint64_t cookie);
/** The request is gone; finish() does not come, the handle is gone. */
void rp_grpc_bridge_cancel(struct rp_grpc_call *call);
