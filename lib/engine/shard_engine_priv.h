/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <base/hmap.h>
#include <engine/shard_engine.h>

#include "rules_priv.h"

#define ENGINE_PEER_BITS 9

/** What a shard knows of another node. */
struct engine_peer {
	struct rp_hmap_node by_node;
	uint32_t bundle; /**< 0 = no link */
	uint32_t broken; /**< the bundle of which no more frames are taken */
	bool unary;	 /**< the gRPC path is there */
	bool lost;	 /**< the queues were told that no way is left */
	uint64_t ping_sent_ns,
		ping_answered_ns; /**< of the last PING answered, see rp_queue_peer_lost() */
};

/** News of a bundle that found a ring full. */
#define ENGINE_OUTBOX 1024
struct engine_outbox {
	uint8_t to;
	struct rp_xmsg m;
};

/** Acknowledges that came together, until the last of them is answered. */
struct engine_acks {
	uint64_t token;
	uint32_t open; /**< not answered; 0 = the slot is free */
	uint32_t deleted;
	enum rp_qstatus status; /**< of one that failed; OK */
};

/** Frames of other shards that wait for the queue of this one; a power of 2. */
#define ENGINE_FORWARD_MAX 1024

/** A port, as this shard sees it: what a stack's callbacks need, and what waits. */
struct engine_port {
	struct rp_engine *engine;
	uint32_t port;
	unsigned queue_shard;
	/** To that shard: count is 0 where nothing waits. */
	struct rp_xmsg out;
	/** From other shards, where the queue is ours; NULL: there are none. */
	struct rte_mbuf **forward;
	uint32_t forward_head, forward_tail;
};

struct rp_engine {
	uint32_t shard, shards, link_shard, link_shards, port_count;
	const struct rp_engine_ops *ops;
	void *ctx;
	struct rte_mempool *pool; /**< for texts to control */
	struct rp_tcp_stack *tcp[RP_ENGINE_PORTS_MAX];
	struct engine_port port[RP_ENGINE_PORTS_MAX];
	uint64_t stack_shards;
	/** Packets of one burst for each other shard; count is 0 between bursts. */
	struct rp_xmsg packets_in[RP_SHARDS_MAX];
	struct rp_transport *ktcp;
	struct rp_links *links; /**< NULL: the node has none */
	struct rp_deliver *deliver;
	struct rp_queues *queues;
	const struct engine_rules *rules; /**< control's; NULL: every key may go everywhere */
	struct rp_hmap peers;
	struct rp_hmap_node *peer_chains[1u << ENGINE_PEER_BITS];
	struct engine_peer peer_slots[RP_PEERS_MAX];
	struct rp_place *far_places; /**< RP_PEERS_MAX of them, by slot; NULL without stacks */
	uint32_t peer_count;
	bool out_blocked;    /**< a frame for the link shard found no room */
	uint32_t stop_phase; /**< asked for and not answered yet; 0 = none */
	struct rp_engine_counters counters;
	struct engine_acks acks[RP_XMSG_ACKS_OPEN_MAX];
	/* News of bundles that found a ring full, oldest first. */
	struct engine_outbox outbox[ENGINE_OUTBOX];
	uint32_t outbox_head, outbox_tail, outbox_pending[RP_SHARDS_MAX];
	uint64_t now_ns; /**< of the call that is running, for callbacks without one */
};

/** The peer's slot, made on first sight; NULL when the table is full. */
struct engine_peer *engine_peer_get(struct rp_engine *e, uint64_t node);
/** Way to the peer changed: tells deliver and queues. */
void engine_peer_link(struct rp_engine *e, uint64_t node, uint32_t bundle, uint64_t now_ns);
void engine_peer_unary(struct rp_engine *e, uint64_t node, bool available, uint64_t now_ns);
void engine_peer_way_changed(struct rp_engine *e, struct engine_peer *p, uint64_t now_ns);

/** Posts to control; class R and answers, so a refusal is a fault that is counted. */
void engine_tell(struct rp_engine *e, const struct rp_xmsg *m);
/** A chain of a name, or a name and a text, from the queue pool; NULL when empty. */
struct rte_mbuf *engine_text(struct rp_engine *e, struct rp_span a, struct rp_span b);

/** May the queue's keys not go to the node? */
bool engine_apart(void *ctx, struct rp_span name, uint64_t node);
/** One page of what the view asks for. */
void engine_view_fill(struct rp_engine *e, struct rp_engine_view *v, uint64_t now_ns);

/* shard_acks.c */

/** ACKS; `name` is a copy. */
void engine_on_acks(
	struct rp_engine *e, const struct rp_xmsg *m, struct rp_span name, uint64_t now_ns);
/** True: the answer was to one of those. */
bool engine_acks_answer(struct rp_engine *e, uint64_t token, const struct rp_queue_answer *a);

/* shard_ports.c */

/** The stacks of the ports; 0 or -errno. */
int engine_ports_create(struct rp_engine *e, const struct rp_engine_config *c, uint64_t now_ns);
void engine_ports_destroy(struct rp_engine *e);
/** PACKETS_IN, PACKETS_OUT, ICMP_IN, NEIGH. */
void engine_ports_message(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns);
/** Frames of stacks without a queue go to who has one. True: some did. */
bool engine_ports_send(struct rp_engine *e);
/** Frames wait that could not go yet. */
bool engine_ports_waiting(const struct rp_engine *e);

/* shard_links.c */
/** To another shard; -ENOBUFS: no room now. */
int engine_post_shard(struct rp_engine *e, unsigned to, const struct rp_xmsg *m);
void engine_outbox_flush(struct rp_engine *e);
void engine_on_link(struct rp_engine *e, unsigned from, const struct rp_xmsg *m, uint64_t now_ns);
int engine_frame_out(
	void *ctx, uint64_t node, uint32_t bundle, uint32_t hash, struct rte_mbuf *frame);
/** Room for it in the link, where that is of this shard; else NULL. */
uint8_t *engine_frame_room(
	void *ctx, uint64_t node, uint32_t bundle, uint32_t hash, uint32_t bytes);
void engine_on_frame_out(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns);
void engine_on_frame_in(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns);
void engine_violation(void *ctx, uint64_t node, enum rp_deliver_violation why);

extern const struct rp_links_ops engine_links_ops;
extern const struct rp_deliver_ops engine_deliver_ops;
extern const struct rp_queue_ops engine_queue_ops;
