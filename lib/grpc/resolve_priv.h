/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A name looked up off the loop: getaddrinfo(3) may block for seconds, so a thread of its own does
 * it and rings an eventfd. The thread touches nothing but its job, and outlives who asked if need
 * be.
 */

#include "addr_priv.h"
#include <grpc/loop.h>

struct grpc_resolve;

/** `done` comes once, in the loop: how many addresses (borrowed) or -errno. NULL and errno. */
struct grpc_resolve *grpc_resolve_start(struct rp_loop *loop, const struct grpc_target *target,
	void (*done)(void *ctx, const struct grpc_addr *addrs, int count), void *ctx);
/** Before `done`: it does not come. After it: not to be called. cancel(NULL) is fine. */
void grpc_resolve_cancel(struct grpc_resolve *resolve);
