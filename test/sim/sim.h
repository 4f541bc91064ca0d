/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A cluster in one process: N nodes of the real cores (tcp, link, deliver, queue, route, kv, repl,
 * wired by lib/engine) on a virtual clock, an impaired network between their ports, and calls
 * between their control engines. One seed decides everything, so a failing seed replays.
 *
 *   1. sim_create() with the options; sim_run_until() steps the clock.
 *   2. sim_put(), sim_consumer() and the hooks are the clients.
 *   3. sim_destroy() checks that every buffer came back.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/impair.h>
#include <engine/control_engine.h>
#include <engine/shard_engine.h>

#define SIM_NODES_MAX 9
#define SIM_SHARDS_MAX 4

struct sim;
struct sim_node;

/** Which shards have stacks, and how packets come to them. */
enum sim_stacks {
	SIM_STACKS_ONE,	      /**< one shard has them all */
	SIM_STACKS_RSS,	      /**< all shards, and the device spreads flows over them */
	SIM_STACKS_HAND_OVER, /**< all shards, but one polls the device */
};

struct sim_options {
	unsigned nodes, shards;
	unsigned links; /**< k: links a peer; 0 = 1 */
	enum sim_stacks stacks;
	uint64_t seed;
	struct rp_impair_spec network; /**< of each frame, on its way */
	uint64_t call_delay_ns;	       /**< of a call between control engines, each way */
	bool unary_fallback;
	uint32_t message_bytes_max;
	unsigned queues;  /**< of each shard, at most; 0 = 4096 */
	unsigned buffers; /**< for messages of each node, and twice that for frames; 0 = 16383 */
	bool verbose;
};

/** The clients' side. Any may be NULL. */
struct sim_hooks {
	void *ctx;
	void (*answered)(
		void *ctx, unsigned node, uint64_t token, const struct rp_control_answer *a);
	/** A delivery event reached the client of `consumer`. */
	void (*delivered)(void *ctx, unsigned node, uint64_t consumer,
		const struct rp_control_delivery *d, const uint8_t *value, size_t value_length);
	void (*withdrawn)(void *ctx, unsigned node, uint64_t consumer, uint64_t idx);
	void (*ended)(void *ctx, unsigned node, uint64_t consumer, const char *reason);
	/** Called by sim_at(). */
	void (*timer)(void *ctx, uint64_t id);
};

/** Starts the EAL with memory of its own, as each of these programs needs it. Once. */
void sim_eal_start(void);

struct sim *sim_create(const struct sim_options *options, const struct sim_hooks *hooks);
/** NULL when all memory is back, else what is not. Frees everything. */
const char *sim_destroy(struct sim *s);
uint64_t sim_now(const struct sim *s);
struct rp_rand *sim_rand(struct sim *s);
/** Steps until `done` says so or the time is reached. True: done. */
bool sim_run_until(struct sim *s, uint64_t until_ns, bool (*done)(void *ctx), void *ctx);
/** hooks.timer(id) at that time. */
void sim_at(struct sim *s, uint64_t at_ns, uint64_t id);

/** 0 or -EAGAIN: try again later. */
int sim_put(struct sim *s, unsigned node, const char *queue, const char *tail, const void *value,
	size_t length, uint64_t token);
int sim_ack(struct sim *s, unsigned node, const char *queue, uint64_t idx,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t token);
int sim_consumer_open(struct sim *s, unsigned node, const char *queue,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t consumer);
/** It comes back, and has all that was shown below that revision. */
int sim_consumer_resume(struct sim *s, unsigned node, const char *queue,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t consumer, int64_t start_revision);
void sim_consumer_close(struct sim *s, unsigned node, uint64_t consumer);
void sim_consumer_accepted(struct sim *s, unsigned node, uint64_t consumer, uint64_t idx);

/** The network between the ports of two nodes; both ways. */
void sim_network(struct sim *s, const struct rp_impair_spec *spec);
/** Calls between the control engines of two nodes fail while cut. */
void sim_calls_cut(struct sim *s, bool cut);

/** The node is gone at once, its memory with it; the others' connections to it are reset. */
void sim_crash(struct sim *s, unsigned node);
/** A new life of it: another boot id, nothing remembered. */
void sim_restart(struct sim *s, unsigned node);
bool sim_is_down(const struct sim *s, unsigned node);
/** Frames, and calls, from one node to another do not arrive; one way. */
void sim_cut(struct sim *s, unsigned from, unsigned to, bool frames, bool calls);
/** Its wall clock is off by so much. */
void sim_set_skew(struct sim *s, unsigned node, int64_t skew_us);
/** Each frame, call and turn of the node takes so much more. */
void sim_set_slow(struct sim *s, unsigned node, uint64_t slow_ns);

/* What an operator does to a running node. */

/** Its limits as struct rp_control_limits has them, but for draining. */
void sim_set_limits(struct sim *s, unsigned node, const struct rp_control_limits *limits);
/** What a node begins with. */
struct rp_control_limits sim_limits(const struct sim *s);
/** It gives its queues away and takes no consumer. */
void sim_drain(struct sim *s, unsigned node, bool on);
/** Its rules keep the keys of queues from the other node, and do not. */
void sim_set_apart(struct sim *s, unsigned node, unsigned other, bool apart);
/** The other node is a peer by its configuration, or not. */
void sim_set_peer(struct sim *s, unsigned node, unsigned other, bool is_peer);

/** The live keys of two nodes are the same; else where they differ first. */
bool sim_stores_equal(struct sim *s, unsigned a, unsigned b, char *why, size_t size);

/**
 * Cycles of the TSC that the shard's engine has taken, or with RP_ENGINE_CONTROL the control's: of
 * the thread of this process that plays them all, and without what the simulation itself takes.
 */
uint64_t sim_cycles(const struct sim *s, unsigned node, unsigned shard);
struct rp_control *sim_control(struct sim *s, unsigned node);
struct rp_engine *sim_engine(struct sim *s, unsigned node, unsigned shard);
uint64_t sim_node_id(unsigned node);
/** All nodes see each other Online and have their links up. */
bool sim_joined(struct sim *s);
