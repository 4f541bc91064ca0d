/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One shard's machine: TCP stacks, links, Deliver and queues, wired together. It reads no clock and
 * touches no device or ring; lib/shard and test/sim feed it and carry out what it asks.
 *
 *   1. rp_engine_create(). The shards of `link_shards` own links; a shard reaches a peer's link
 *      through its owner, by FRAME_OUT and FRAME_IN, and `link_shard` leads them. A shard may have
 *      a stack of its own on each port, with a queue of the port that its lcore polls, or without:
 *      then another one's is used.
 *   2. Each loop turn: rp_engine_on_xmsg() for what the rings brought, rp_engine_rx() for each
 *      port's burst, then rp_engine_poll(), then rp_engine_tx() of each port until it is empty.
 *   3. rp_engine_next_deadline() says how long the loop may sleep.
 *
 * One lcore owns it.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/transport.h>
#include <base/units.h>
#include <deliver/deliver.h>
#include <link/link.h>
#include <queue/queue.h>
#include <queue/trace.h>
#include <tcp/tcp.h>
#include <xcore/xcore_msg.h>

struct rp_engine;

#define RP_ENGINE_PORTS_MAX 16

struct rp_engine_ops {
	/**
	 * Sends to another shard, or to control (to = RP_ENGINE_CONTROL). take on 0. -EAGAIN,
	 * -ENOBUFS: not taken; a class R message to control is refused only when its sender's
	 * backlog is full.
	 */
	int (*post)(void *ctx, unsigned to, const struct rp_xmsg *m);
	/** Bytes nobody can guess. */
	void (*random)(void *ctx, void *out, size_t length);
};

#define RP_ENGINE_CONTROL UINT32_MAX

struct rp_engine_config {
	uint32_t shard, shards, link_shard;
	uint32_t link_shards; /**< bit of each that has transports; 0 = the node has no links */
	/** Of the ports, where this shard has stacks: `place` and `shard` in them as below. */
	struct rp_tcp_config tcp[RP_ENGINE_PORTS_MAX];
	uint32_t port_count; /**< 0: this shard has no stacks */
	/** A bit of each port of which this shard polls no queue; then, by whose our frames leave.
	 */
	uint32_t ports_foreign;
	uint8_t queue_shard[RP_ENGINE_PORTS_MAX];
	/**
	 * Of a port: which shard a flow belongs to; borrowed. What arrives here and is another's
	 * goes to it by PACKETS_IN. NULL: all is ours.
	 */
	const struct rp_place *place[RP_ENGINE_PORTS_MAX];
	/**
	 * Bit of each shard that has stacks on queues of the same ports, this one included: what
	 * one learns of a neighbour the others are told by NEIGH, since an answer arrives on
	 * whatever queue the device chooses.
	 */
	uint64_t stack_shards;
	struct rp_transport *ktcp;    /**< borrow: kernel sockets, on the link shard; NULL = none */
	uint16_t listen_port;	      /**< links.listen, on every transport */
	struct rp_links_config links; /**< shard, shards, lead and owners are filled in */
	struct rp_deliver_config deliver;
	struct rp_queue_config queue;
};

#define RP_ENGINE_COUNTERS(X)                                                                   \
	X(frames_rerouted, "frames that crossed to another shard")                              \
	X(frames_misrouted, "frames for a shard that does not exist; their bundle was closed")  \
	X(frames_overrun, "frames lost to a full ring between shards; their bundle was closed") \
	X(frames_broken, "frames dropped: of a bundle that was closed before they were read")   \
	X(packets_handed, "segments and ICMP errors passed to the shard of their flow")         \
	X(packets_dropped, "of these, those that found the ring to it full")                    \
	X(packets_out, "frames sent by the queue of another shard")                             \
	X(packets_out_dropped, "of these, those that came while that queue was full")           \
	X(neighbours_untold, "neighbours learned that found the ring to another shard full")    \
	X(posts_lost, "messages to control that found ring and backlog full")                   \
	X(answers_unary, "frames answered for DeliverOne")

struct rp_engine_counters {
#define X(name, help) uint64_t name;
	RP_ENGINE_COUNTERS(X)
#undef X
};

/** What SNAPSHOT fills: allocated by control, read by it after SNAPSHOT_DONE. */
struct rp_engine_queue_view {
	char name[RP_NAME_BYTES_MAX + 1];
	struct rp_queue_info info; /**< its name span is not valid */
};

struct rp_engine_connection_view {
	uint32_t port;
	struct rp_tcp_info info;
};

struct rp_engine_neighbour_view {
	uint32_t port;
	struct rp_neigh_info info;
};

struct rp_engine_address_view {
	uint32_t port;
	struct rp_net_address_info info;
};

/** A peer on one shard: what Deliver has for it there, and its links, as far as it knows them. */
struct rp_engine_link_view {
	uint64_t node;
	bool linked; /**< this shard leads, and the peer may have links */
	struct rp_link_info info;
	bool unary; /**< the gRPC path is there */
	struct rp_deliver_info deliver;
	/** Streams of this shard's queues, by the link of the bundle that they go by. */
	uint32_t streams_out[RP_SHARDS_MAX], streams_in[RP_SHARDS_MAX];
};

#define RP_ENGINE_NO_PORT UINT32_MAX

/** A link that this shard has. */
struct rp_engine_line_view {
	uint32_t port; /**< RP_ENGINE_NO_PORT: a kernel socket */
	struct rp_link_line_info info;
};

enum rp_engine_view_kind {
	RP_ENGINE_VIEW_QUEUES,
	RP_ENGINE_VIEW_CONSUMERS,
	RP_ENGINE_VIEW_STREAMS,
	RP_ENGINE_VIEW_MESSAGES, /**< of an exact queue; cursor: how many to skip */
	RP_ENGINE_VIEW_TRACES,	 /**< of an exact queue, by what `trace` says */
};

#define RP_ENGINE_VIEW_ROWS 512
/** Positions of a table that one view looks at: it bounds what it costs the shard. */
#define RP_ENGINE_VIEW_SLOTS 8192

/** Texts and numbers of a row; which of the three infos, its kind says. */
struct rp_engine_view_row {
	char name[RP_NAME_BYTES_MAX + 1];
	char match[RP_TAIL_BYTES_MAX + 1];
	union {
		struct rp_queue_info queue; /**< spans in these are not valid */
		struct rp_queue_consumer_info consumer;
		struct rp_deliver_stream_info stream;
	};
};

/** Messages of one page, and bytes of each value. */
#define RP_ENGINE_VIEW_MESSAGES_MAX 64
#define RP_ENGINE_VIEW_VALUE_BYTES 4096

struct rp_engine_view_message {
	struct rp_queue_message_info info; /**< its payload is not valid */
	uint8_t tail[RP_TAIL_BYTES_MAX];
	uint32_t value_length; /**< of the whole */
	uint8_t value[RP_ENGINE_VIEW_VALUE_BYTES];
};

/** Which traces are meant. */
struct rp_engine_view_trace {
	uint64_t idx;	/**< that message; 0: those above */
	uint64_t above; /**< a serial */
	uint32_t next;	/**< first follow the next so many; above is set by it */
	uint64_t for_ns;
};

/** One page of a shard's queues, consumers or streams; the whole is too large for one snapshot. */
struct rp_engine_view {
	/* in */
	enum rp_engine_view_kind kind;
	char name[RP_NAME_BYTES_MAX + 1]; /**< only queues that begin with it, or are it */
	bool exact;
	uint32_t cursor; /**< 0, or `next` of the page before */
	struct rp_engine_view_trace trace;
	/* out */
	bool filled;
	uint64_t now_ns;
	uint32_t next; /**< 0: that was the last page */
	uint32_t row_count;
	bool has_times; /**< of an exact queue: as rp_queue_times_of() */
	struct rp_queue_times wait, accept;
	uint32_t place_count; /**< of an exact queue: where its consumers are */
	struct rp_queue_place places[RP_PEERS_MAX];
	struct rp_engine_view_row rows[RP_ENGINE_VIEW_ROWS]; /**< MESSAGES, TRACES: the queue */
	uint32_t message_count;
	struct rp_engine_view_message messages[RP_ENGINE_VIEW_MESSAGES_MAX];
	uint32_t trace_count;
	struct rp_queue_trace traces[RP_QUEUE_TRACES];
};

/** Of kernel sockets, which this layer knows nothing of. */
#define RP_ENGINE_KTCP_COUNTERS 16
#define RP_ENGINE_ADDRESSES_MAX (RP_ENGINE_PORTS_MAX * (RP_NET_ADDRESSES_MAX + 1))

/** Bucket i counts bursts of up to 2^i, the last one the rest. */
#define RP_ENGINE_BURST_BUCKETS 7
struct rp_engine_bursts {
	uint64_t counts[RP_ENGINE_BURST_BUCKETS + 1];
	uint64_t sum; /**< of what was in them */
};

/** How the loop of the shard's lcore goes; kept by lib/shard. */
struct rp_engine_loop {
	uint64_t loops, busy_loops, slow_loops, sleeps;
	uint64_t busy_ns, idle_ns; /**< turns with work; those without, and sleep */
	uint64_t gap_ns_max;	   /**< longest turn of the last seconds */
	uint64_t items;		   /**< frames and ring messages */
	/* Of the last second that had some. */
	uint64_t busy_ppm, item_cycles, message_cycles;
	struct rp_engine_bursts rx_bursts, ring_bursts;
};

struct rp_engine_snapshot {
	uint32_t queues_max; /**< in: room in queues[] */
	uint32_t queue_count;
	uint32_t connections_max;
	uint32_t connection_count;
	uint32_t neighbours_max;
	uint32_t neighbour_count;
	uint32_t address_count;
	/** What there was no room for. */
	uint32_t connections_omitted, neighbours_omitted;
	uint64_t now_ns; /**< when it was taken: what the times in it are measured from */
	struct rp_engine_counters engine;
	struct rp_queue_totals queue;
	struct rp_deliver_counters deliver;
	struct rp_deliver_info deliver_info;
	bool has_links, has_tcp;
	struct rp_link_counters links;
	uint32_t links_up;	    /**< bundles; on the leading shard */
	struct rp_tcp_counters tcp; /**< of all ports together */
	struct rp_net_counters net;
	struct rp_tcp_usage tcp_usage;
	struct rp_engine_queue_view *queues;	       /**< queues_max of them */
	struct rp_engine_connection_view *connections; /**< connections_max of them */
	struct rp_engine_neighbour_view *neighbours;   /**< neighbours_max of them */
	struct rp_engine_address_view *addresses; /**< RP_ENGINE_ADDRESSES_MAX of them, or NULL */
	struct rp_engine_link_view *links_known;  /**< RP_PEERS_MAX of them, or NULL */
	uint32_t link_count;
	struct rp_engine_line_view *lines; /**< RP_PEERS_MAX of them, or NULL */
	uint32_t line_count;
	struct rp_engine_view *view; /**< to be filled as well; NULL = none is wanted */
	/* The shard's own, filled by lib/shard. */
	bool has_ktcp;
	uint64_t ktcp[RP_ENGINE_KTCP_COUNTERS]; /**< a struct rp_ktcp_counters */
	struct rp_engine_loop loop;
};

/** NULL and errno. borrow: ops, pools, ktcp. */
struct rp_engine *rp_engine_create(const struct rp_engine_config *config,
	const struct rp_engine_ops *ops, void *ctx, uint64_t now_ns);
/** Frees all mbufs held; no callback. NULL is fine. */
void rp_engine_destroy(struct rp_engine *e);

/** Wall clock minus `now_ns`, at start and when it changes. */
void rp_engine_set_wall_offset(struct rp_engine *e, int64_t wall_minus_now_ns);

/** take: what the message holds. `from` is a shard, or RP_ENGINE_CONTROL. */
void rp_engine_on_xmsg(
	struct rp_engine *e, unsigned from, const struct rp_xmsg *m, uint64_t now_ns);
/** take: frames received on a port. */
void rp_engine_rx(
	struct rp_engine *e, uint32_t port, struct rte_mbuf **frames, unsigned n, uint64_t now_ns);
/** Events, timers, output. True: something was done, or more is to be done now. */
bool rp_engine_poll(struct rp_engine *e, uint64_t now_ns);
/**
 * Its two halves, for who has something to say that comes of the first and is to leave with the
 * second: what came in, timers and queues; what goes out.
 */
bool rp_engine_poll_in(struct rp_engine *e, uint64_t now_ns);
bool rp_engine_poll_out(struct rp_engine *e, uint64_t now_ns);
/** Up to `max` frames for the port; take. */
unsigned rp_engine_tx(struct rp_engine *e, uint32_t port, struct rte_mbuf **out, unsigned max);
uint64_t rp_engine_next_deadline(const struct rp_engine *e);

/** Twice the worst loop gap seen, as the floor of retransmission towards appliances. */
void rp_engine_set_rto_floor(struct rp_engine *e, uint64_t rto_min_ns);

/** Fills *s but for the shard's own part. */
void rp_engine_snapshot(struct rp_engine *e, struct rp_engine_snapshot *s, uint64_t now_ns);
/** For tests: the parts. */
struct rp_queues *rp_engine_queues(struct rp_engine *e);
struct rp_links *rp_engine_links(struct rp_engine *e);
struct rp_deliver *rp_engine_deliver(struct rp_engine *e);
struct rp_tcp_stack *rp_engine_tcp(struct rp_engine *e, uint32_t port);
