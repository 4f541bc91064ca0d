/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Random runs from seeds: sim_test.c has the shapes of the runs and what must hold, sim_clients.c
 * what clients do and see, sim_faults.c what befalls the nodes.
 */

#include "cluster.h"

#define MESSAGES_MAX 4000
#define DELIVERIES_MAX 64
#define LIVE_MAX 12

struct delivery {
	unsigned client, event;
	bool over; /**< its holder may not have it any more */
};

struct message {
	unsigned token, node, queue, serial;
	uint64_t acked_ns;
	bool acked; /**< a client was told so */
	struct delivery deliveries[DELIVERIES_MAX];
	unsigned delivery_count;
};

/* A uuid of one queue, with the watch that it has now. */
struct member {
	unsigned queue, uuid, client;
	uint64_t seen_revision, closed_ns;
	bool open, dead;
};

struct pending_ack {
	unsigned token, message, member;
	uint64_t idx, due_ns;
	bool sent, home; /**< from the node of its consumer, which knows who delivered it */
};

struct shape {
	const char *name;
	unsigned nodes, queues, members, messages;
	bool cuts, long_cuts, blocks, ends, rejects, mutes, kills, stops, race, tight, drains,
		reloads;
};

enum stop_stage { STOP_NONE, STOP_MOVING, STOP_WATCHES, STOP_LINKS, STOP_DOWN };

struct sim {
	const struct shape *shape;
	struct cluster *c;
	struct rp_rand rand;
	struct message messages[MESSAGES_MAX];
	unsigned message_count, serials[NODES_MAX];
	struct member members[LIVE_MAX];
	unsigned cursor[CLIENTS_MAX]; /**< events looked at */
	unsigned owner[CLIENTS_MAX];  /**< member of the client */
	uint64_t floor[CLIENTS_MAX];  /**< start_revision */
	struct pending_ack *acks;
	unsigned ack_count, ack_size;
	unsigned last_serial[QUEUES_MAX][NODES_MAX];
	unsigned kills, killed, stops, drains;
	unsigned stop_node; /**< NODES_MAX: none */
	enum stop_stage stop_stage;
	uint64_t stop_ns;
	unsigned drain_node; /**< NODES_MAX: none */
	uint64_t drain_ns;   /**< when it began, or the next may */
	bool drained;
	uint64_t cut_until_ns[NODES_MAX][NODES_MAX], cut_ns[NODES_MAX][NODES_MAX];
};

extern const char *const sim_queue_names[];

uint64_t sim_below(struct sim *s, uint64_t n);
bool sim_chance(struct sim *s, unsigned one_in);
/** A node that takes work: neither dead nor stopping. */
unsigned sim_alive(struct sim *s);
bool sim_is_down(const struct sim *s, unsigned node);

/* sim_clients.c */
/** What it holds may be offered to others from now on. */
void sim_member_over(struct sim *s, unsigned member);
void sim_member_open(struct sim *s, unsigned member, unsigned node, uint64_t revision);
void sim_member_close(struct sim *s, unsigned member, enum rp_queue_close how);
/** Ends, and returns: sometimes in time, sometimes as a new life, sometimes elsewhere. */
void sim_members_step(struct sim *s);
void sim_events_step(struct sim *s);
void sim_acks_step(struct sim *s);
/** Most while the claims are in the dark, where that is the matter. */
void sim_puts_step(struct sim *s, unsigned step);

/* sim_faults.c */
/** A node stops in order, one at a time, and comes back. */
void sim_stops_step(struct sim *s);
/** A node is drained, one at a time, and serves again some time after it is. */
void sim_drains_step(struct sim *s);
/** Its limits and times are others from now on. */
void sim_reloads_step(struct sim *s);
void sim_network_step(struct sim *s);
void sim_kills_step(struct sim *s, uint64_t *back_ns, unsigned *down);
