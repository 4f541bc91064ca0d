/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Nodes with a store and replication in one process, on a virtual clock and a network that loses,
 * doubles, delays and cuts. All from one seed. */

#include <base/rand.h>
#include <repl/repl.h>

#define CLUSTER_NODES_MAX 8
#define CLUSTER_WALL_US 1790000000000000ull

struct cluster;

struct cluster_node {
	struct cluster *c;
	unsigned index;
	uint64_t id;
	bool up;
	unsigned life;
	int64_t skew_us;
	struct rp_kv *kv;
	struct rp_repl *repl;
	unsigned connection[CLUSTER_NODES_MAX]; /**< generation, 0 = none */
	/** What the callbacks said. */
	enum rp_repl_state seen[CLUSTER_NODES_MAX];
	unsigned ready_calls;
	bool ready_alone;
	unsigned hangups, writes_waiting, writes_done, writes_confirmed;
	uint64_t done_ns; /**< of the last write_done */
};

struct cluster_event;

struct cluster {
	unsigned count;
	uint64_t now_ns;
	struct rp_rand rand;
	struct rp_repl_config config; /**< template for each node */
	double loss, duplicate;
	uint64_t delay_ns_max;
	bool cut[CLUSTER_NODES_MAX][CLUSTER_NODES_MAX]; /**< [from][to] */
	bool hung[CLUSTER_NODES_MAX];			/**< takes calls and never answers */
	bool busy[CLUSTER_NODES_MAX];			/**< dials to it fail, though it is there */
	bool deaf[CLUSTER_NODES_MAX];			/**< its own dials get no answer */
	bool (*eligible)(void *ctx, uint64_t node, struct rp_span key);
	struct cluster_node nodes[CLUSTER_NODES_MAX];
	struct cluster_event *events;
	size_t event_count, event_size;
	unsigned generations;
	struct rp_repl_stats total; /**< of all lives that ended */
};

/** Nodes are down until cluster_up(). Ids are 101, 102, ... */
void cluster_init(struct cluster *c, unsigned count, uint64_t seed);
void cluster_free(struct cluster *c);
/** A new life with an empty store; peers are all other nodes, and itself. */
void cluster_up(struct cluster *c, unsigned node);
void cluster_down(struct cluster *c, unsigned node);
void cluster_run(struct cluster *c, uint64_t for_ms);
/** Cuts or joins both directions. */
void cluster_cut(struct cluster *c, unsigned a, unsigned b, bool cut);
struct rp_repl_now cluster_now(const struct cluster *c, unsigned node);

enum rp_repl_outcome cluster_put(
	struct cluster *c, unsigned node, const char *key, const char *value);
enum rp_repl_outcome cluster_delete(struct cluster *c, unsigned node, const char *key);
/** A lease is granted, revoked or taken over; and a key put with it. */
enum rp_repl_outcome cluster_lease(
	struct cluster *c, unsigned node, enum rp_kv_system_type type, int64_t lease);
enum rp_repl_outcome cluster_put_leased(
	struct cluster *c, unsigned node, const char *key, int64_t lease);
/** The value as a string in a static buffer, or NULL. */
const char *cluster_get(struct cluster *c, unsigned node, const char *key);
struct rp_span cluster_span(const char *text);
/** Prints the first difference and answers false when two stores differ. */
bool cluster_equal(struct cluster *c, unsigned a, unsigned b);
/** Every node sees every other Online. */
bool cluster_all_online(struct cluster *c);
