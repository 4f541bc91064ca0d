/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The state behind ktcp.h: ktcp.c has the object, dial, listen and the poll; socket.c one
 * connection's bytes.
 */

#include <stdbool.h>

#include <base/list.h>
#include <ktcp/ktcp.h>

struct rte_mbuf;

#define KTCP_EVENTS 64
#define KTCP_IOVECS 64
#define KTCP_LISTENERS 8
#define KTCP_ACCEPTS 16
/* Received bytes of one socket in one poll. */
#define KTCP_READ_BYTES (256u << 10)
#define KTCP_BUFFER_BYTES (1u << 20)

enum ktcp_state {
	KTCP_FREE,
	KTCP_OPENING,
	KTCP_OPEN,
	KTCP_CLOSING, /* close() called: FIN goes out behind what is queued */
};

struct ktcp_conn {
	struct rp_conn conn;
	struct rp_ktcp *k;
	struct rp_list entry;	/* free, or in use */
	struct rp_list pending; /* has an event that epoll does not show */
	int fd;
	uint32_t generation; /* an epoll event of an earlier life is told by it */
	enum ktcp_state state;
	const struct rp_conn_events *events;
	void *ctx;
	uint32_t interest; /* what epoll watches */
	bool blocked;	   /* the socket took less than it was given */
	bool want_writable, fin_received, fin_told, fin_sent;
	int error; /* errno of the socket's end; told by the next poll */
	uint32_t unconsumed;
	struct rte_mbuf *tx_first, *tx_last;
	uint32_t tx_offset, tx_bytes;
	struct rp_endpoint local, peer;
};

struct ktcp_listener {
	int fd;
	uint16_t port, asked;
	struct rp_conn_options options;
	rp_accept_fn accept;
	void *ctx;
};

struct rp_ktcp {
	struct rp_transport transport;
	struct rp_ktcp_config config;
	int epoll_fd;
	struct ktcp_conn *conns;
	struct rp_list conns_free, conns_used, pending;
	uint32_t conn_count, listener_count;
	struct ktcp_listener listeners[KTCP_LISTENERS];
	struct rp_ktcp_counters counters;
};

/* socket.c */
void ktcp_interest(struct ktcp_conn *c);
void ktcp_pend(struct ktcp_conn *c);
/* Closes the socket and frees the place; no event. */
void ktcp_free(struct ktcp_conn *c);
/* on_close() and free. */
void ktcp_end(struct ktcp_conn *c, enum rp_close_reason why, uint64_t now_ns);
enum rp_close_reason ktcp_reason(int error);
int ktcp_send(struct rp_conn *conn, struct rte_mbuf *chain, uint64_t now_ns);
uint32_t ktcp_send_space(const struct rp_conn *conn);
uint32_t ktcp_piece(const struct rp_conn *conn);
void ktcp_ends(const struct rp_conn *conn, struct rp_endpoint *local, struct rp_endpoint *peer);
void ktcp_consume(struct rp_conn *conn, uint32_t bytes, uint64_t now_ns);
void ktcp_close(struct rp_conn *conn, uint64_t now_ns);
void ktcp_abort(struct rp_conn *conn, uint64_t now_ns);
void ktcp_read(struct ktcp_conn *c, uint64_t now_ns);
/* Writes what is queued; sets `blocked`, or `error` when the socket has ended. */
void ktcp_write(struct ktcp_conn *c);
/* Tells what has become due: writable, FIN, the end. */
void ktcp_settle(struct ktcp_conn *c, uint64_t now_ns);
