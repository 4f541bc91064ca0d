/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a link needs of a byte stream, whoever carries it: our TCP on a port (lib/tcp), or a kernel
 * socket (lib/ktcp). A link knows nothing else of its connection.
 *
 *   1. The owner of a transport (tcp stack, ktcp) is created elsewhere and hands out rp_transport.
 *   2. dial() gives a connection in the opening state; listen() makes accept() be called with one
 *      that is already open. Both bind a `struct rp_conn_events` and a context to it.
 *   3. on_data() hands over received bytes as an mbuf chain (take). The receive window stays closed
 *      for those bytes until consume() gives them back.
 *   4. send() takes a chain whole or refuses it with -EAGAIN; on_writable() says when there is room
 *      again after a refusal.
 *   5. on_close() is the last event of a connection, whatever the cause; the pointer is dead when
 * it returns. After close() the events go on until on_close(); after abort() none follows.
 *
 * All calls and events are on the lcore that owns the transport. Time comes in as an argument.
 */

#include <stdbool.h>
#include <stdint.h>

struct rp_place;
struct rte_mbuf;
struct rp_conn;
struct rp_transport;

/** IPv4 or IPv6 endpoint; addresses in network byte order, port in host byte order. */
struct rp_endpoint {
	uint8_t family; /**< 4 or 6 */
	uint16_t port;
	uint8_t addr[16]; /**< the first 4 bytes for IPv4 */
};

/** Why a connection ended. */
enum rp_close_reason {
	RP_CLOSE_FIN,	      /**< both directions closed in order */
	RP_CLOSE_RESET,	      /**< RST received */
	RP_CLOSE_TIMEOUT,     /**< user timeout, or retransmissions gave up */
	RP_CLOSE_REFUSED,     /**< nobody listens there */
	RP_CLOSE_UNREACHABLE, /**< no neighbour or no route */
	RP_CLOSE_ABORTED,     /**< the local side aborted, or the transport went away */
	RP_CLOSE_NOMEM,	      /**< out of buffers or connections */
};

struct rp_conn_events {
	void (*on_open)(void *ctx, struct rp_conn *c, uint64_t now_ns);
	/** take: the chain is the callee's. */
	void (*on_data)(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns);
	void (*on_writable)(void *ctx, struct rp_conn *c, uint64_t now_ns);
	/** The peer sent FIN: no more on_data. The callee calls close() when it has sent its rest.
	 */
	void (*on_peer_fin)(void *ctx, struct rp_conn *c, uint64_t now_ns);
	void (*on_close)(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns);
};

/** A connection was accepted: fill *events and *ctx and return 0, or -errno to have it reset. */
typedef int (*rp_accept_fn)(void *listen_ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **ctx, uint64_t now_ns);

enum rp_congestion {
	RP_CONGESTION_DEFAULT, /**< of the route, else CUBIC */
	RP_CONGESTION_CUBIC,   /**< RFC 9438 */
	RP_CONGESTION_DCTCP,   /**< RFC 8257, where both sides do ECN; CUBIC where not */
	RP_CONGESTION_RENO,    /**< RFC 5681 */
};

enum rp_ecn {
	RP_ECN_DEFAULT, /**< of the route, else accepted */
	RP_ECN_OFF,
	RP_ECN_ACCEPT, /**< used where the peer asks for it */
	RP_ECN_ASK,    /**< asked for when dialling, and accepted (RFC 3168) */
	/** Likewise, but a SYN that is lost goes again with the question: for peers known to do it.
	 */
	RP_ECN_INSIST,
};

enum rp_ack_profile {
	RP_ACK_DEFAULT, /**< of the route, else RP_ACK_DELAYED */
	RP_ACK_DELAYED, /**< every second segment, or when the delay is over (RFC 5681 4.2) */
	RP_ACK_QUICK,	/**< the first ones at once, so that the peer's window opens; then so */
	RP_ACK_SECOND,	/**< every second segment, full or not, or when the delay is over */
};

/**
 * What a connection may be told about its way to the peer. A field of 0 has the value of the route
 * (tcp/tcp.h), else the transport's default. A kernel socket heeds the user timeout and the
 * keepalive only: the rest is the system's business.
 */
struct rp_conn_options {
	uint64_t user_timeout_ns;  /**< 0 = the transport's default (RFC 9293 3.8.3 R2) */
	uint64_t rto_min_ns;	   /**< floor of the retransmission timeout; 0 = default */
	uint64_t ack_delay_max_ns; /**< 0 = default */
	/** How late the peer may acknowledge a lone segment; 0 = as late as we do (RFC 8985 7.2) */
	uint64_t peer_ack_delay_ns;
	/** After so much silence the peer is asked whether it is there; 0 = never (RFC 9293 3.8.4)
	 */
	uint64_t keepalive_idle_ns;
	uint64_t keepalive_interval_ns; /**< from one question to the next; 0 = 75 s */
	uint32_t keepalive_probes; /**< questions without an answer end it; 0 = 9; at most 255 */
	enum rp_congestion congestion;
	enum rp_ecn ecn;
	enum rp_ack_profile ack_profile;
	uint16_t mtu; /**< IP packets are no larger, in either direction; 0 = the interface's */
	/**
	 * dial() only: how the peer spreads flows over its shards (net/place.h; borrowed for the
	 * call), and which of them shall get this one, a bit each. NULL: unknown, or all the same.
	 */
	const struct rp_place *far_place;
	uint64_t far_shards;
};

struct rp_transport_ops {
	/** NULL and errno when it cannot even begin; otherwise on_open() or on_close() follows. */
	struct rp_conn *(*dial)(struct rp_transport *t, const struct rp_endpoint *peer,
		const struct rp_conn_options *options, const struct rp_conn_events *events,
		void *ctx, uint64_t now_ns);
	/** One listener a port number. 0 or -errno (EADDRINUSE). `options` go to accepted ones. */
	int (*listen)(struct rp_transport *t, uint16_t port, const struct rp_conn_options *options,
		rp_accept_fn accept, void *listen_ctx);
	/** take on 0; -EAGAIN: not taken, on_writable() follows; -EPIPE: closed, not taken. */
	int (*send)(struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns);
	/** Bytes that send() would take now. */
	uint32_t (*send_space)(const struct rp_conn *c);
	/**
	 * The payload of one full segment, 0: it does not matter. A chain of many mbufs that hold
	 * so much each is sent as it is; others are cut at the borders of segments, which costs a
	 * reference and an mbuf each.
	 */
	uint32_t (*piece)(const struct rp_conn *c);
	/** Its two ends, for people; family 0: not known, as the local one may be before on_open().
	 */
	void (*ends)(const struct rp_conn *c, struct rp_endpoint *local, struct rp_endpoint *peer);
	/** Gives `bytes` of received data back to the receive window. */
	void (*consume)(struct rp_conn *c, uint32_t bytes, uint64_t now_ns);
	/** Orderly close: what was sent goes out, then FIN. */
	void (*close)(struct rp_conn *c, uint64_t now_ns);
	/** RST now; no event follows and the pointer is dead. */
	void (*abort)(struct rp_conn *c, uint64_t now_ns);
};

struct rp_transport {
	const struct rp_transport_ops *ops;
	const char *name; /**< "tcp" or "ktcp" */
	bool lone;	  /**< one shard of the node has it: all links over it are there */
};

/** Every connection starts with its transport, so that a link can call through it. */
struct rp_conn {
	struct rp_transport *transport;
};
