/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct rp_conf;
struct rp_tls_config;

/**
 * The certificates of links.tls: one of each a shard, since mbedtls lets one thread at a time use a
 * configuration. Leaves them NULL where TLS is off. 0 or -errno with `error` filled; what was made
 * by then is the caller's to unref.
 */
int node_tls_load(const struct rp_conf *conf, uint32_t shards, struct rp_tls_config **clients,
	struct rp_tls_config **servers, char *error, size_t error_size);
