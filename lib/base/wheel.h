/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A timing wheel of three levels with a tick of 8.192 us: 1024 ticks, 1024 times that (8.6 s), 64
 * times that (9 min); what is farther away goes round again. A node never fires early, and at most
 * one tick late: a quarter of a round trip of 50 us is to be told from a whole one.
 *
 *   1. rp_wheel_add() a node with its deadline; rp_wheel_del() takes it out, fired or not.
 *   2. rp_wheel_advance() to now; then rp_wheel_pop() gives the nodes that are due, until NULL.
 *   3. rp_wheel_next() is a time before which nothing is due.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/list.h>

#define RP_WHEEL_SHIFT 13
#define RP_WHEEL_TICK_NS (1ull << RP_WHEEL_SHIFT)
#define RP_WHEEL_SLOTS 1024
#define RP_WHEEL_TOP_SLOTS 64

struct rp_wheel_node {
	struct rp_list link;
	uint64_t deadline_ns;
	uint16_t slot; /* that it was put into last */
};

struct rp_wheel {
	uint64_t tick;	    /* everything before it has fired */
	uint64_t next_tick; /* nothing is to be done before it; may be early */
	uint32_t count;	    /* nodes in slots and due */
	struct rp_list due;
	uint64_t bits[(2 * RP_WHEEL_SLOTS + RP_WHEEL_TOP_SLOTS) / 64];
	struct rp_list slots[2 * RP_WHEEL_SLOTS + RP_WHEEL_TOP_SLOTS];
};

void rp_wheel_init(struct rp_wheel *w, uint64_t now_ns);
void rp_wheel_node_init(struct rp_wheel_node *n);
/** The node is not in the wheel. */
void rp_wheel_add(struct rp_wheel *w, struct rp_wheel_node *n, uint64_t deadline_ns);
/** Harmless where the node is not in the wheel. */
void rp_wheel_del(struct rp_wheel *w, struct rp_wheel_node *n);
/** Moves what is due up to the tick `target`. */
void rp_wheel_turn(struct rp_wheel *w, uint64_t target);
static inline void rp_wheel_advance(struct rp_wheel *w, uint64_t now_ns)
{
	uint64_t target = now_ns >> RP_WHEEL_SHIFT;

	if (w->next_tick <= target)
		rp_wheel_turn(w, target);
	w->tick = RP_MAX(w->tick, target);
}
static inline struct rp_wheel_node *rp_wheel_pop(struct rp_wheel *w)
{
	struct rp_list *l = rp_list_pop_front(&w->due);

	if (!l)
		return NULL;
	w->count--;
	return rp_list_entry(l, struct rp_wheel_node, link);
}
/** RP_NEVER where it is empty. */
uint64_t rp_wheel_next(const struct rp_wheel *w);

static inline bool rp_wheel_armed(const struct rp_wheel_node *n)
{
	return !rp_list_empty(&n->link);
}
