/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <tcp/tcp.h>

struct rp_conf;

/** Addresses, routes and what else `conf` says to the stack on a port. */
void node_tcp_config(const struct rp_conf *conf, uint32_t port, struct rp_tcp_config *t);
/** As the parsers of lib/conf give an address. */
union rp_ip node_ip_of(const uint8_t *bytes, bool six);
