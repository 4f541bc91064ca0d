/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * grpc.health.v1.Health for the server as a whole, the service "": SERVING or NOT_SERVING. Others
 * are unknown, as with etcd (spec/etcd-semantics.md section 12.5). Loop's thread.
 */

#include <stdbool.h>

struct rp_health;
struct rp_grpc_server;

/** Registers the service; not serving at first. Destroyed behind the server. NULL and errno. */
struct rp_health *rp_health_new(struct rp_grpc_server *server);
/** Tells all who watch. */
void rp_health_set(struct rp_health *health, bool serving);
/** NULL is fine. */
void rp_health_destroy(struct rp_health *health);
