/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kernel sockets behind the transport vtable of base/transport.h: what a node without a port uses
 * for its links, and what every benchmark of the userspace stack is held against.
 *
 *   1. rp_ktcp_create(); rp_ktcp_transport() gives the vtable for dial, listen, send and the rest.
 *   2. rp_ktcp_poll(now) each loop turn: bounded work, events come from inside of it (and on_open,
 *      on_close never from inside dial()).
 *   3. An idle lcore may sleep on rp_ktcp_fd(), an epoll descriptor that is readable when there is
 *      something to poll for.
 *
 * Sockets are non-blocking with TCP_NODELAY; the user timeout of rp_conn_options becomes
 * TCP_USER_TIMEOUT. One thread owns an object; there are no others.
 */

#include <stddef.h>
#include <stdint.h>

#include <base/transport.h>

struct rte_mempool;
struct rp_ktcp;

#define RP_KTCP_COUNTERS(X)                                                   \
	X(dials, "connections dialed")                                        \
	X(accepts, "connections accepted")                                    \
	X(accepts_refused, "connections that came and were closed at once")   \
	X(closes, "sockets closed")                                           \
	X(bytes_in, "bytes read")                                             \
	X(bytes_out, "bytes written")                                         \
	X(reads, "calls that read")                                           \
	X(writes, "calls that wrote")                                         \
	X(sends_refused, "chains refused for now: too much is to be written") \
	X(no_buffers, "times that no buffer was free for what is to be read") \
	X(no_connections, "connections that found all places taken")

struct rp_ktcp_counters {
#define X(name, help) uint64_t name;
	RP_KTCP_COUNTERS(X)
#undef X
};

struct rp_ktcp_config {
	struct rp_endpoint listen; /**< address that listen() binds; its port is not used */
	struct rte_mempool *pool;  /**< borrow: received bytes */
	uint32_t connections_max;
	uint32_t send_bytes_max; /**< a connection: bytes taken by send() and not yet the kernel's;
				    0 = 1 MiB */
	uint32_t
		receive_bytes_max; /**< a connection: bytes handed up and not consumed; 0 = 1 MiB */
	int socket_buffer_bytes;   /**< SO_SNDBUF and SO_RCVBUF; 0 = the kernel's choice */
};

/** NULL and errno. */
struct rp_ktcp *rp_ktcp_create(const struct rp_ktcp_config *config);
/** Closes every socket without events; NULL is fine. */
void rp_ktcp_destroy(struct rp_ktcp *k);
/** borrow: lives as long as the object. */
struct rp_transport *rp_ktcp_transport(struct rp_ktcp *k);

/** Events of at most 64 sockets, with a bound of bytes each. How many sockets had events. */
uint32_t rp_ktcp_poll(struct rp_ktcp *k, uint64_t now_ns);
/** The epoll descriptor. It stays the object's. */
int rp_ktcp_fd(const struct rp_ktcp *k);
/** Whether rp_ktcp_poll() has work that the descriptor does not show: do not sleep now. */
bool rp_ktcp_pending(const struct rp_ktcp *k);
/** The port that listen(…, 0, …) got from the kernel; `port` itself otherwise; 0 = not listening.
 */
uint16_t rp_ktcp_port(const struct rp_ktcp *k, uint16_t port);

const struct rp_ktcp_counters *rp_ktcp_counters(const struct rp_ktcp *k);
uint32_t rp_ktcp_connections(const struct rp_ktcp *k);
