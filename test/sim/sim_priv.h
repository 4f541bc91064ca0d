/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The state behind sim.h: sim.c has the clock, the network and what tests call; sim_node.c a node,
 * from its creation to its crash, and what its engines ask for.
 */

#include <base/list.h>
#include <net/place.h>

#include "sim.h"

#define WALL_US 1800000000000000ull
#define RING_NS 2000
/* A call whose way there or back is cut fails after so long. */
#define CALL_TIMEOUT_NS RP_NS_PER_S

enum event_type {
	EVENT_WAKE_SHARD,
	EVENT_WAKE_CONTROL,
	EVENT_FRAME,
	EVENT_RING,
	EVENT_DIALLED,
	EVENT_REQUEST,	/* at the called node */
	EVENT_RESPONSE, /* at the caller */
	EVENT_TIMER,
};

struct event {
	uint64_t at_ns, serial;
	enum event_type type;
	unsigned node, shard, peer;
	struct rte_mbuf *frame;
	struct rp_xmsg m;
	unsigned from;
	uint32_t life; /* of the node that it is for: one that died since gets nothing */
	uint64_t token;
	int kind; /* rp_repl_kind, or -1: DeliverOne */
	bool failed;
	uint8_t *bytes;
	size_t length;
};

struct sim_shard {
	struct rp_engine *engine;
	uint64_t wake_ns;
	uint64_t cycles;
};

/** A DeliverOne call that waits at the called node. */
struct unary_wait {
	struct rp_list node;
	uint64_t id, token;
	unsigned caller;
};

struct sim_node {
	struct sim *sim;
	unsigned index;
	uint64_t id;
	bool down;
	uint32_t life;	  /* how often it has started */
	int64_t skew_us;  /* of its wall clock */
	uint64_t slow_ns; /* what each of its frames, calls and turns takes more */
	struct rp_control *control;
	uint64_t control_wake_ns, control_cycles;
	struct sim_shard shards[SIM_SHARDS_MAX];
	struct rte_mempool *queue_pool, *frame_pool;
	struct rp_impair impair;
	struct rp_place place;
	/* Messages on the rings, per shard: to it, and from it. */
	uint32_t to_shard[SIM_SHARDS_MAX], to_control[SIM_SHARDS_MAX];
	rp_repl_peer_id peers[SIM_NODES_MAX];
	bool peer_open[SIM_NODES_MAX];
	bool apart[SIM_NODES_MAX]; /* queues' keys do not leave for it */
	struct rp_control_limits limits;
	struct rp_list unary_waits;
	uint64_t unary_ids;
};

struct shard_ctx {
	struct sim_node *node;
	unsigned shard;
};

struct sim {
	struct sim_options options;
	struct sim_hooks hooks;
	uint64_t now_ns, serial;
	struct rp_rand rand;
	struct event *heap;
	size_t count, size;
	struct sim_node nodes[SIM_NODES_MAX];
	struct shard_ctx shard_ctx[SIM_NODES_MAX][SIM_SHARDS_MAX];
	bool calls_cut;
	/* One way each, from the first to the second. */
	bool frames_cut[SIM_NODES_MAX][SIM_NODES_MAX], way_cut[SIM_NODES_MAX][SIM_NODES_MAX];
	char fault[256];
};

/* sim.c */
/** By whom its queues' keys are kept from, which outlives a crash: it is in its file. */
void sim_policy_use(struct sim_node *n);
struct rp_repl_now sim_now_of(const struct sim_node *n);
void sim_schedule(struct sim *s, struct event e);
void sim_wake_shard(struct sim_node *n, unsigned shard, uint64_t at_ns);
void sim_wake_control(struct sim_node *n, uint64_t at_ns);

/* sim_node.c */
unsigned sim_link_shard(const struct sim_options *o);
void sim_node_new(struct sim *s, unsigned index);
/** Dials the other one from now on. */
void sim_peer_add(struct sim_node *n, unsigned other);
/** Adds the peers and begins. */
void sim_node_start(struct sim_node *n);
void sim_node_free(struct sim_node *n);
void sim_response(struct sim_node *n, unsigned caller, int kind, struct rp_span bytes,
	uint64_t token, bool failed);
