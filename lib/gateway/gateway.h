/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * etcd's JSON gateway: POST /v3/kv/range and the others, for every method that etcd's own gateway
 * has a path for and that the server serves (spec/etcd-semantics.md section 13). It knows no
 * service: requests and answers are translated by their protobuf descriptors, and the call goes the
 * way of every other (grpc/bridge.h).
 *
 *   1. rp_gateway_new() after the services are registered at the server, before it serves.
 *   2. rp_gateway_destroy() after the server.
 *
 * Everything belongs to the loop's thread.
 */

#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

struct rp_gateway;
struct rp_grpc_server;

/**
 * Borrows the server, and `services` (NULL at the end): where requests and answers of methods are
 * described. A path whose method the server does not have answers 501. Of calls, `calls_max` go on
 * at once, and further ones wait for their turn: to etcd all HTTP is one client's connection. NULL
 * and errno.
 */
struct rp_gateway *rp_gateway_new(struct rp_grpc_server *server,
	const ProtobufCServiceDescriptor *const *services, uint32_t calls_max);
/** Those that go on above a smaller number end as they would; those that wait get a larger one. */
void rp_gateway_set_calls_max(struct rp_gateway *gateway, uint32_t calls_max);
/** NULL is fine. */
void rp_gateway_destroy(struct rp_gateway *gateway);
