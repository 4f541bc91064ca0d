/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Addresses: "host:port", "[v6]:port", ":port", "unix:/path", "unix:@abstract".
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define GRPC_HOST_BYTES 256
#define GRPC_PEER_BYTES 64
/* Addresses of one name that are used. */
#define GRPC_ADDR_MAX 8

struct grpc_addr {
	struct sockaddr_storage sa;
	socklen_t length;
};

struct grpc_target {
	bool is_unix;
	char host[GRPC_HOST_BYTES]; /* or the unix path, with its '@' */
	char port[8];
};

/** Cuts an address into its parts. 0 or -EINVAL. */
int grpc_target_parse(struct grpc_target *t, const char *address);
/**
 * Addresses that need no resolver: numeric, "localhost" (127.0.0.1 and ::1), "" (any), unix.
 * Returns how many, or -ENOENT when a name has to be looked up.
 */
int grpc_target_addresses(const struct grpc_target *t, struct grpc_addr out[GRPC_ADDR_MAX]);
/** getaddrinfo(3): blocks. Returns how many (> 0), or -ENOENT. */
int grpc_target_resolve(const struct grpc_target *t, struct grpc_addr out[GRPC_ADDR_MAX]);
/** "127.0.0.1:4711", "[::1]:4711", "unix". */
void grpc_addr_format(const struct grpc_addr *a, char out[GRPC_PEER_BYTES]);
/** Loopback or unix. */
bool grpc_addr_is_local(const struct grpc_addr *a);
