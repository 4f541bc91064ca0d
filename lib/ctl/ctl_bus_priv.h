/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Queues on the message bus: what ctl_bus.c and ctl_bus_admin.c share. */

#include <ctl/ctl_priv.h>
#include <store/store.h>

#define BUS_LIST_SIZE (sizeof(RP_STORE_PREFIX) + RP_NAME_BYTES_MAX)

/** A queue of which this node has consumers. */
struct bus_queue {
	struct rp_list node; /**< bus->queues */
	struct ctl_bus *bus;
	struct rp_store_taker *taker; /**< NULL: nothing is taken */
	uint32_t wanted;	      /**< entries that were asked for and did not come yet */
	struct rp_list consumers;
	struct rp_list rejected; /**< struct bus_message, by until_ns */
	struct rp_loop_timer timer;
	size_t name_length;
	uint8_t name[RP_NAME_BYTES_MAX];
};

struct bus_consumer {
	struct rp_hmap_node by_handle; /**< bus->consumers, unless it is away */
	struct rp_list node;	       /**< queue->consumers */
	struct bus_queue *q;
	uint8_t uuid[RP_UUID_BYTES];
	uint32_t prefetch, outstanding;
	int64_t revision;      /**< of its last delivery */
	bool away;	       /**< its watch has ended; it may come back in time */
	struct rp_list hidden; /**< struct bus_message, which its client has no room for yet */
	struct rp_list shown;
	struct rp_loop_timer timer;
};

struct bus_message {
	struct rp_hmap_node by_idx; /**< bus->messages */
	struct rp_list node;	    /**< consumer->hidden or shown, queue->rejected */
	struct bus_queue *q;
	struct bus_consumer *consumer; /**< NULL: rejected */
	uint64_t entry;		       /**< of the taker */
	uint64_t until_ns;
	int64_t revision; /**< 0: not shown yet */
	size_t tail_length, value_length;
	uint8_t bytes[]; /**< tail and value */
};

/* ctl_bus_admin.c, ctl_bus_route.c */
void ctl_bus_asks_free(struct ctl_bus *bus);
void ctl_bus_routes_free(struct ctl_bus *bus);

struct ctl_bus {
	struct rp_ctl *ctl;
	struct rp_store *store;
	char owner[24];
	struct rp_hmap consumers, messages;
	uint64_t idx_last;
	struct rp_list queues, puts, asks, routes;
	struct rp_loop_task task;
	uint64_t puts_count, taken_count, acks_count, rejects_count, returned_count;
};
