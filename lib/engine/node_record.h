/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a node says of itself under /_ringpost/node/<id>, so that others find its links and clients
 * its port:
 *
 *	<format>;boot=<n>[;tcp=<address>:<port>][;ktcp=<address>:<port>];k=<n>;shards=<n>
 *	[;rss=<key>,<entries>,<shards>][;rings=<n>][;name=<text>][;zone=<text>][;url=<url>][;draining=1]
 *	;version=<text>
 *
 * The format is 1. Unknown fields are ignored; a field that does not parse counts as absent. Pure.
 */

#include <stdint.h>

#include <base/transport.h>
#include <base/units.h>

/** Where a node's links listen, its shape, and how clients reach it. */
struct rp_node_record {
	uint64_t node; /**< of the key, not of the text */
	uint64_t boot;
	struct rp_endpoint tcp, ktcp; /**< family 0 = none */
	uint32_t per_peer, shards;
	/** How flows to `tcp` are spread: the key, and a table of so many entries that goes round
	 * the shards of `rss_shards` in turn (rp_place_init_spread()). 0: it is not told. */
	uint8_t rss_key[40];
	uint32_t rss_table_size, rss_shards;
	uint32_t rings; /**< queue pairs of the port of `tcp`; 0: it is not told */
	bool draining;	/**< it gives its queues away */
	char name[128];
	char zone[64];	      /**< as it is configured there; cut where it is longer */
	char client_url[256]; /**< "http://host:port" */
	char version[32];     /**< as parsed; format() writes this build's */
};

#define RP_NODE_RECORD_BYTES_MAX 1024

/** Length written (no terminator), or -ENOSPC. A ';' in a text becomes '_'. */
int rp_node_record_format(const struct rp_node_record *r, char *out, size_t size);
/** 0, or -EINVAL when the format is unknown or there is no boot id. `node` is left alone. */
int rp_node_record_parse(struct rp_node_record *r, const void *text, size_t length);

/** "10.0.0.1:7400", "[fd00::1]:7400". Length as snprintf. */
int rp_endpoint_format(const struct rp_endpoint *e, char *out, size_t size);
/** The reverse. 0 or -EINVAL. */
int rp_endpoint_parse(struct rp_endpoint *e, const char *text);
