/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The control thread: the event loop, the gRPC server with the etcd services, the channels to
 * peers, and the control engine, joined to the shards by the rings.
 *
 *   1. rp_ctl_create() on the control thread, with rings, pool and ports made; the shards may be
 *      launched before or after it.
 *   2. rp_ctl_listen(), then rp_ctl_run(): it returns when a signal has ended the node and the
 *      shards have drained (or stop.grace_ms is over).
 *   3. The shards are stopped by the caller; then rp_ctl_destroy().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <conf/conf.h>
#include <engine/node_record.h>
#include <engine/shard_engine.h>
#include <port/port.h>
#include <route/record.h>
#include <xcore/clock.h>
#include <xcore/xcore.h>

struct rp_ctl;
struct rp_loop;
struct rp_grpc_server;

#define RP_CTL_ERROR_SIZE 512

/** What happens to the node, for a program that has it inside; each may be NULL. */
struct rp_ctl_events {
	void (*ready)(void *ctx, bool alone);
	void (*node_state)(void *ctx, uint64_t node, enum rp_node_state state);
	void (*reconfigured)(void *ctx);
	void (*stopping)(void *ctx);
	void *ctx;
};

struct rp_ctl_config {
	const struct rp_conf *conf; /**< borrow */
	/** Where it came from, so that SIGHUP and Admin.Reload can read it again. borrow */
	struct rp_conf_source source;
	/** A reload was done: what the process has of its own, as its log, follows. May be NULL. */
	void (*reconfigured)(const struct rp_conf *conf);
	bool no_signals; /**< the program keeps SIGTERM, SIGINT and SIGHUP for itself */
	struct rp_ctl_events events;
	struct rp_node_record self; /**< node, boot, link endpoints, shards */
	uint8_t cluster_uuid[RP_UUID_BYTES];
	bool has_cluster;		      /**< false: peers with nobody */
	const void *secret, *secret_previous; /**< copied; NULL = none */
	size_t secret_length, secret_previous_length;
	/** Of flows on shards, for people, of all ports together and of each: borrow */
	const char *placement, *port_placement[RP_ENGINE_PORTS_MAX];
	bool transport_tcp, transport_ktcp;
	struct rp_xcore *xcore;		/**< borrow */
	struct rp_clock *clock;		/**< borrow; published from here */
	struct rte_mempool *pool;	/**< borrow: of messages */
	struct rte_mempool *frame_pool; /**< borrow: of headers; only its gauges */
	struct rte_mempool *tap_pool;	/**< borrow: blocks of a capture; NULL without ports */
	struct rp_port *const *ports;	/**< borrow */
	uint32_t port_count;
	uint64_t port_shards; /**< bit of each shard that polls a queue of some port */
};

/** Of links.tls, of each shard; NULL where TLS is off. */
struct rp_ctl_link_tls {
	struct rp_tls_config *client[RP_SHARDS_MAX], *server[RP_SHARDS_MAX];
};
/**
 * What the peers' certificates hold now: one of each a shard, since one thread at a time uses a
 * configuration. 0 or -errno with `error` filled and nothing to be freed.
 */
int rp_ctl_link_tls_load(const struct rp_conf *conf, uint32_t shards, struct rp_ctl_link_tls *tls,
	char *error, size_t error_size);
/** Gives back the references that are left in it. */
void rp_ctl_link_tls_free(struct rp_ctl_link_tls *tls);

/** NULL with `error` filled. */
struct rp_ctl *rp_ctl_create(const struct rp_ctl_config *config, char *error, size_t error_size);
/** NULL is fine. */
void rp_ctl_destroy(struct rp_ctl *ctl);
/** Opens the client and admin listeners. 0, or -errno with `error` filled. */
int rp_ctl_listen(struct rp_ctl *ctl, char *error, size_t error_size);
/** The port of the first client listener. */
uint16_t rp_ctl_client_port(const struct rp_ctl *ctl);
/** Until a signal (SIGTERM, SIGINT) or rp_ctl_request_stop(). Returns an enum rp_exit. */
int rp_ctl_run(struct rp_ctl *ctl);
/** Any thread, and a signal handler. */
void rp_ctl_request_stop(struct rp_ctl *ctl);
struct rp_loop *rp_ctl_loop(struct rp_ctl *ctl);
/** For services of the program that has the node inside; before rp_ctl_run(). */
struct rp_grpc_server *rp_ctl_server(struct rp_ctl *ctl);
