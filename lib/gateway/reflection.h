/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * gRPC server reflection, v1 and v1alpha: the services that the server has and the descriptors of
 * their files, as they were compiled in (services.h). Loop's thread.
 */

struct rp_reflection;
struct rp_grpc_server;

/** Registers the service; destroyed behind the server, which it borrows. NULL and errno. */
struct rp_reflection *rp_reflection_new(struct rp_grpc_server *server);
/** NULL is fine. */
void rp_reflection_destroy(struct rp_reflection *reflection);
