/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The TCP stack of one lcore, with the network layer under it. Pure: frames and time come in,
 * frames and events come out; all memory is sized at creation.
 *
 *   1. rp_tcp_create() with the interface, the pools, the limits and a secret.
 *   2. rp_tcp_transport() is the vtable of base/transport.h: dial, listen, send, ...
 *   3. One turn of the loop: rp_tcp_rx() with what the port received; the rest of the shard's work;
 *      rp_tcp_poll(), which makes the events and emits segments, once a connection; rp_tcp_tx()
 *      until it gives less than was asked for.
 *   4. rp_tcp_next_deadline() says how long the loop may sleep.
 *   5. rp_tcp_destroy() frees everything; connections that are still there get no event.
 *
 * Events come from within rp_tcp_poll() only. Any call of the transport may be made from within any
 * event, on any connection; a connection that ends in an event is freed after it. What is sent,
 * consumed or closed outside of an event goes out with the next rp_tcp_poll(); it is cheap when
 * nothing happened, and may be called more than once a turn.
 *
 * Frames given out by rp_tcp_tx() may hold mbufs that are referenced elsewhere (refcnt > 1): the
 * driver may read them only. RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE must be off.
 *
 * send() (base/transport.h) takes any chain. It is cheapest with chains that nobody else refers to;
 * small pieces are copied together, large ones are sent from where they are and freed when they are
 * acknowledged.
 *
 * Pools (net.header_pool, control_pool, payload_pool): a header for each frame that the port has
 * not given back; a control header for each frame without data; and, of the payload pool, an mbuf
 * for each border of a segment that falls inside of an mbuf that was sent (at most one an MSS
 * queued), or of a received one that overlaps another. Without a payload pool these are taken from
 * the header pool, which then has to be larger than all that can be queued. Data rooms: 222 bytes
 * are needed beyond the headroom for headers to carry small payloads (up to 256 bytes) themselves;
 * 94 are the least.
 *
 * Every call is made on the lcore that owns the stack, but for reading the counters.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/transport.h>
#include <net/net.h>
#include <net/place.h>

struct rp_tcp_stack;

struct rp_tcp_counters {
#define X(name, text) uint64_t name;
#include <tcp/tcp_counters.def>
#undef X
};

/** What holds for the connections with some peers. The longest prefix that fits counts. */
struct rp_tcp_route {
	union rp_ip prefix;
	uint8_t prefix_length;		/**< 0..128; an IPv4 prefix is 96 longer than it looks */
	struct rp_conn_options options; /**< what is 0 has the stack's default */
};
#define RP_TCP_ROUTES_MAX 16

enum rp_syn_cookies {
	RP_SYN_COOKIES_AUTO,   /**< while a listener has too many half open */
	RP_SYN_COOKIES_OFF,    /**< a SYN that finds too many half open is dropped */
	RP_SYN_COOKIES_ALWAYS, /**< for tests */
};

enum rp_slow_start {
	RP_SLOW_START_CSS,   /**< HyStart++ with its conservative rounds (RFC 9406) */
	RP_SLOW_START_EXIT,  /**< it ends as soon as round trips grow */
	RP_SLOW_START_PLAIN, /**< it ends by a loss or a mark only */
};

struct rp_tcp_config {
	/** Interface, pools, neighbour limits, network counters. on_neigh_failed is set by the
	 * stack. */
	struct rp_net_config net;
	/**
	 * What the port receives into. While less than a quarter of it is free nobody is accepted,
	 * and windows open less far; below a tenth what is out of order is given up. NULL: it is
	 * not watched.
	 */
	struct rte_mempool *rx_pool;

	uint32_t connections_max; /**< 0 = 1024 */
	uint32_t listeners_max;	  /**< 0 = 16 */
	uint32_t time_wait_max;	  /**< 0 = 4 * connections_max; the oldest goes first when full */
	uint32_t segments_max;	  /**< segments queued or in flight, all connections; 0 = 65536 */
	uint32_t reassembly_max;  /**< ranges out of order, all connections; 0 = 4096 */
	/** Half-open connections a listener; 0 = 128; all together at most half of all connections.
	 */
	uint32_t backlog;
	enum rp_syn_cookies syn_cookies;
	uint32_t send_buffer_bytes; /**< a connection; 0 = 1 MiB */
	/**
	 * Of the send buffer, bytes that were never sent; 0 = 128 KiB. More of them would only grow
	 * cold here, and what their owner finds more urgent meanwhile would wait behind them.
	 */
	uint32_t unsent_bytes_max;
	uint32_t receive_buffer_bytes; /**< a connection; 0 = 1 MiB; at most 1 GiB */
	uint32_t ooo_ranges_max;       /**< ranges out of order, one connection; 0 = 128 */
	uint32_t ooo_mbufs_max;	       /**< mbufs out of order, one connection; 0 = 1024 */
	/**
	 * Of all connections: one may have as many as are left, so that those with gaps share what
	 * the receive pool has and never empty it; 0 = twice ooo_mbufs_max.
	 */
	uint32_t ooo_mbufs_total;
	uint16_t port_first, port_last; /**< of dialled connections; 0 = 32768..60999 */

	struct rp_tcp_route routes[RP_TCP_ROUTES_MAX];
	uint32_t route_count;

	uint64_t rto_min_ns;	   /**< default of a connection; 0 = 200 ms */
	uint64_t rto_max_ns;	   /**< 0 = 60 s */
	uint64_t ack_delay_max_ns; /**< default of a connection; 0 = 40 ms; below 500 ms */
	uint64_t user_timeout_ns;  /**< default of a connection; 0 = 180 s */
	/** Options of SYNs that are neither offered nor accepted. */
	bool no_timestamps, no_sack, no_window_scale;
	bool no_tail_probes;	       /**< RFC 8985 7 is left out: a lost tail takes a timeout */
	enum rp_slow_start slow_start; /**< the first one of a connection */
	bool no_idle_restart;	       /**< the window stays after an idle time (RFC 5681 4.1) */
	uint8_t receive_shift_least;   /**< a scale larger than the buffer asks for; at most 14 */

	uint64_t time_wait_ns; /**< 2 MSL; 0 = 60 s */
	uint64_t fin_wait_ns;  /**< silence in FIN-WAIT-2 after close(); 0 = 60 s */
	/**
	 * Three timeouts in a row of a large segment: try smaller ones, for ways on which large
	 * packets vanish without a word (RFC 4821, in its simplest form).
	 */
	bool pmtu_blackhole;

	uint8_t secret[16]; /**< of initial sequence numbers and ports; from a good source */
	uint64_t seed;	    /**< of everything that merely should differ */
	struct rp_tcp_counters *counters; /**< borrowed; NULL: kept inside */

	/**
	 * How this node spreads flows over its shards (net/place.h), and which of them this is:
	 * dialled connections get a port that makes them ours, so that shards never use the same.
	 * Borrowed for the life of the stack. NULL: all flows are ours.
	 */
	const struct rp_place *place;
	uint32_t shard;
	/**
	 * Where `place` is given: a packet of a flow that is not here, and that belongs to `shard`.
	 * A segment (take packet->m) is for rp_tcp_rx_packets() of that shard's stack, an ICMP
	 * error for its rp_tcp_rx_error().
	 */
	void (*hand_over)(void *ctx, uint32_t shard, const struct rp_net_packet *packet);
	void *place_ctx;
};

/** NULL and errno: EINVAL, ENOMEM. Copies the configuration; the pools stay the caller's. */
struct rp_tcp_stack *rp_tcp_create(const struct rp_tcp_config *config, uint64_t now_ns);
/** NULL is fine. Frees all mbufs held. */
void rp_tcp_destroy(struct rp_tcp_stack *stack);

/** The transport named "tcp". Owned by the stack. */
struct rp_transport *rp_tcp_transport(struct rp_tcp_stack *stack);
struct rp_net *rp_tcp_net(struct rp_tcp_stack *stack);

/** Takes `n` frames of any kind, as the port gave them. */
void rp_tcp_rx(struct rp_tcp_stack *stack, struct rte_mbuf **frames, unsigned n, uint64_t now_ns);

/**
 * Takes `n` segments that the stacks of other lcores have handed over, on the same interface: they
 * were checked there. In this order they are received, and answered with the next poll.
 */
void rp_tcp_rx_packets(
	struct rp_tcp_stack *stack, struct rte_mbuf **packets, unsigned n, uint64_t now_ns);
/** An ICMP error that another lcore's stack has handed over. */
void rp_tcp_rx_error(
	struct rp_tcp_stack *stack, const struct rp_net_packet *error, uint64_t now_ns);

/**
 * Timers that are due (at most a bounded number a call), then events and output of each connection
 * that something happened to. Returns how many connections and timers were served: 0 is idle.
 */
unsigned rp_tcp_poll(struct rp_tcp_stack *stack, uint64_t now_ns);

/** Up to `max` frames ready for the port; the caller owns them. Returns how many. */
unsigned rp_tcp_tx(struct rp_tcp_stack *stack, struct rte_mbuf **out, unsigned max);

/**
 * When rp_tcp_poll() and rp_tcp_tx() are due without any input: a time in the past where work or
 * frames wait, RP_NEVER where nothing does.
 */
uint64_t rp_tcp_next_deadline(const struct rp_tcp_stack *stack);

/**
 * No connection's RTO is below this, those to come included, whatever its own floor is: twice the
 * worst pause of the caller's loop, which delays acknowledgements as much.
 */
void rp_tcp_set_rto_floor(struct rp_tcp_stack *stack, uint64_t rto_min_ns);

/** Ends a listener; accepted connections stay. 0 or -ENOENT. */
int rp_tcp_unlisten(struct rp_tcp_stack *stack, uint16_t port, uint64_t now_ns);

/*
 * What a layer of sockets needs beyond the vtable. Errors as there.
 */

/** dial() from a local port of the caller's choice; 0: any. EADDRINUSE where the flow exists. */
struct rp_conn *rp_tcp_dial_from(struct rp_tcp_stack *stack, const struct rp_endpoint *peer,
	uint16_t local_port, const struct rp_conn_options *options,
	const struct rp_conn_events *events, void *ctx, uint64_t now_ns);
/**
 * Ends our direction, as close() does, while the owner goes on reading for as long as it takes: the
 * silence in FIN-WAIT-2 has no limit (RFC 9293 3.6) until close() follows.
 */
void rp_tcp_shutdown(struct rp_conn *c, uint64_t now_ns);
/**
 * As abort(), for data that comes when the owner has closed and will read nothing more: RST without
 * ACK, as a connection that is not there answers (RFC 9293 3.6.1, 3.10.7.1).
 */
void rp_tcp_refuse(struct rp_conn *c, uint64_t now_ns);
/** 0: the stack's default. */
void rp_tcp_set_user_timeout(struct rp_conn *c, uint64_t user_timeout_ns, uint64_t now_ns);
/** The fields of rp_conn_options, with their defaults; idle 0 ends it. */
void rp_tcp_set_keepalive(struct rp_conn *c, uint64_t idle_ns, uint64_t interval_ns,
	uint32_t probes, uint64_t now_ns);
/** Sends an acknowledgement that is owed and delayed, with the next poll. */
void rp_tcp_ack_now(struct rp_conn *c);

/** The send queue in segments. */
struct rp_tcp_segments {
	uint32_t unacked;	   /**< sent, not acknowledged cumulatively */
	uint32_t sacked, lost;	   /**< of these */
	uint32_t retransmitted;	   /**< of these: sent again, and neither SACKed nor lost since */
	uint32_t head_retransmits; /**< of the first of these */
	bool after_timeout;	   /**< the recovery that goes on began with a timeout */
};
/** Walks the queue. */
void rp_tcp_conn_segments(const struct rp_conn *c, struct rp_tcp_segments *segments);

/**
 * Fetches what a send over the connection touches: for an owner that sends over many in turn, a few
 * before it does. Borrow.
 */
void rp_tcp_prefetch(const struct rp_conn *c);

/** The counters may be read from any thread (each a relaxed load). */
const struct rp_tcp_counters *rp_tcp_counters(const struct rp_tcp_stack *stack);

/** Numbers of connections and records now. */
struct rp_tcp_usage {
	uint32_t connections, half_open, time_wait, segments, ranges, timers;
};
void rp_tcp_usage(const struct rp_tcp_stack *stack, struct rp_tcp_usage *usage);

/** A connection for `show tcp`. Times in ns, sizes in bytes. */
struct rp_tcp_info {
	struct rp_endpoint local, peer;
	const char *state;
	bool passive;
	uint16_t mss;
	bool sack, timestamps;
	bool ecn;		/**< agreed on, and our data may be marked */
	const char *congestion; /**< "cubic", "dctcp" or "reno" */
	uint16_t path_mtu;	/**< that ICMP or timeouts taught; 0: none */
	uint64_t keepalive_idle_ns, keepalive_interval_ns; /**< idle 0: off */
	uint32_t keepalive_probes, keepalive_sent;	   /**< sent: without an answer so far */
	uint8_t send_shift, receive_shift;
	uint32_t cwnd, ssthresh, pipe;
	uint32_t send_window, receive_window;
	uint32_t unsent, unacked; /**< bytes queued, bytes sent and not acknowledged */
	uint32_t unconsumed, ooo; /**< bytes with the owner, bytes out of order */
	uint64_t srtt_ns, rttvar_ns, rtt_min_ns, rto_ns, rto_floor_ns;
	uint64_t reo_window_ns;
	uint32_t backoff;
	bool recovery, reordering;
	bool reduced; /**< marks reduced cwnd, and of that window not all is acknowledged */
	uint64_t rtx_segments, rtos, tlps, undos;
	uint64_t bytes_sent, bytes_received;
	uint64_t opened_ns, deadline_ns; /**< deadline RP_NEVER: none */
	/**
	 * What the next deadline is for: "rto", "tlp", "reorder", "probe", "persist", "ack" (a
	 * delayed one), "keepalive", "fin-wait" or "none".
	 */
	const char *timer;
};

void rp_tcp_conn_info(const struct rp_conn *c, struct rp_tcp_info *info);
/** Calls `cb` for each connection. It must not call the transport. */
void rp_tcp_foreach(const struct rp_tcp_stack *stack,
	void (*cb)(void *ctx, const struct rp_tcp_info *info), void *ctx);

/**
 * Recounts everything that is kept as a running sum or in two places (pipe, queues, windows, lists,
 * timers) and compares. NULL, or what is wrong. For tests and fuzzing: it walks all connections.
 */
const char *rp_tcp_check(const struct rp_tcp_stack *stack);
