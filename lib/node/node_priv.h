/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <tcp/tcp.h>

struct rp_conf;
struct rp_tls_config;

/**
 * The certificates of links.tls: one of each a shard, since mbedtls lets one thread at a time use a
 * configuration. Leaves them NULL where TLS is off. 0 or -errno with `error` filled; what was made
 * by then is the caller's to unref.
 */
int node_tls_load(const struct rp_conf *conf, uint32_t shards, struct rp_tls_config **clients,
	struct rp_tls_config **servers, char *error, size_t error_size);

/** Addresses, routes and what else `conf` says to the stack on a port. */
void node_tcp_config(const struct rp_conf *conf, uint32_t port, struct rp_tcp_config *t);
/** As the parsers of lib/conf give an address. */
union rp_ip node_ip_of(const uint8_t *bytes, bool six);
