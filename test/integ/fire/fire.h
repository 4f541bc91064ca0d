/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A load of queue messages on two or three nodes, by their etcd API, that knows what has to come of
 * it.
 *
 * Each queue has one producer at each node and consumers by its kind (its number modulo 4): of two
 * nodes at node 1 only, at node 0 only, at both with node 0 first, at both with node 1 first; of
 * three each node is the first in turn. So messages cross the links as FORWARD and as DELIVER, both
 * ways. With --roam a node may say that it goes, and its consumers go on at the next one. A
 * producer has one put on its way at a time: what it put is in order at its node. Consumers check
 * SHA-256, the order by producer, that nothing comes twice, and acknowledge late enough to keep
 * `in_flight` messages under way.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/list.h>
#include <base/rand.h>
#include <grpc/client.h>
#include <grpc/loop.h>

#define NODES 3 /* at most */
#define PUT_CHANNELS 2
#define FIRST_CHANNEL_OF_WATCHES PUT_CHANNELS
#define WATCH_CHANNELS 2
#define ACK_CHANNEL (PUT_CHANNELS + WATCH_CHANNELS)
#define CHANNELS (ACK_CHANNEL + 1)
#define SHA_BYTES 32

struct options {
	const char *endpoint[NODES];
	unsigned nodes;
	const char *prefix; /* of the queues' names */
	uint32_t messages, queues, large, large_bytes, small_bytes;
	uint32_t in_flight, rate; /* messages; messages a second, 0 = as fast as it goes */
	uint64_t hold_ns;	  /* an acknowledge waits no longer than that */
	uint64_t seed;
	uint64_t drain_ns; /* time for what is left at the end */
	int victim;	   /* the node that may go and come back; -1: none may */
	bool roam;	   /* nodes go in order, one after the other, and lose nothing */
};

enum message_state {
	MESSAGE_NEW,
	MESSAGE_SENT,
	MESSAGE_PUT,	 /* its put was answered OK */
	MESSAGE_UNKNOWN, /* its put failed with a node that may go: it may be there or not */
};

struct message {
	uint8_t sha[SHA_BYTES];
	uint32_t size;
	uint8_t state;
	uint8_t received, acked;
	uint8_t received_by_victim;
};

struct channel {
	struct fire *fire;
	struct rp_grpc_channel *grpc;
	struct rp_loop_timer redial;
	unsigned node, index;
	unsigned attempts;
	bool ready;
};

/** The producer of a queue at a node. */
struct slot {
	struct fire *fire;
	struct queue *queue;
	unsigned node;
	uint32_t count, room, next; /* of messages[] in use; of the next to put */
	struct message *messages;
	uint32_t open; /* put and not received, of those that can still come */
	bool busy;
	uint64_t sent_ns;
	struct rp_list waiting; /* in fire->waiting, while it may put */
	struct rp_loop_timer again;
};

struct consumer {
	struct fire *fire;
	struct queue *queue;
	struct consumer *second; /* opened when this one is */
	unsigned node;
	char uuid[37];
	struct rp_grpc_client_call *call;
	struct rp_loop_timer reopen, look;
	bool open;
	bool known;	     /* the other node knows the dispatcher */
	int64_t revision;    /* of the last event: with --roam it goes on behind it */
	int64_t last[NODES]; /* sequence of each producer, -1 = none */
};

struct queue {
	unsigned number, kind;
	unsigned first; /* node of the consumer that comes first: the dispatcher's */
	char name[64];
	struct slot slots[NODES];
	struct consumer consumers[2];
	unsigned consumer_count;
};

/** A message that was received and is to be acknowledged. */
struct receipt {
	struct rp_list node;
	struct fire *fire;
	struct consumer *consumer;
	struct slot *slot; /* its message is found by the number: messages[] moves */
	uint32_t number;
	uint64_t received_ns;
	bool retried;
	unsigned tries;
	struct rp_loop_timer again;
	char key[];
};

struct tally {
	uint64_t started, put, unknown, put_retries, received, crossed, acked, ack_retries, again;
	uint64_t roamed; /* consumers that went to another node */
	uint64_t put_at[NODES], received_at[NODES], crossed_to[NODES];
	uint64_t ack_nothing; /* acknowledges answered deleted = 0 */
	uint64_t put_ns_max, put_ns_sum;
};

struct fire {
	struct options o;
	struct rp_loop *loop;
	struct rp_rand rand;
	struct channel channels[NODES][CHANNELS];
	struct queue *queues;
	struct rp_list waiting;	 /* slots that may put */
	struct rp_list receipts; /* oldest first */
	struct tally tally;
	uint32_t acks_open, consumers_open, consumer_count, queues_known;
	uint64_t begin_ns, in_flight_max, in_flight_sum, in_flight_samples;
	double allowance; /* of o.rate */
	uint64_t allowance_ns;
	struct rp_loop_timer tick, progress;
	struct rp_loop_fd input;
	uint8_t *scratch, *packed;
	bool running, stopping;
	uint64_t stop_ns;
	uint32_t faults;
};

/** Counts a fault and tells the first ones. */
__attribute__((format(printf, 2, 3))) void fire_fault(struct fire *f, const char *format, ...);

uint64_t fire_in_flight(const struct fire *f);
/** Nodes may go: the load lasts until it is told to end. */
static inline bool fire_may_go(const struct fire *f)
{
	return f->o.victim >= 0 || f->o.roam;
}
/** With --roam: a node other than that one, which can be talked to if there is one. */
unsigned fire_other_node(const struct fire *f, unsigned node, unsigned channel);
/** SHA-256 of `length` bytes. */
void fire_sha(const uint8_t *data, size_t length, uint8_t sha[SHA_BYTES]);

/* fire_put.c */
void fire_slots_create(struct fire *f);
void fire_slots_destroy(struct fire *f);
/** Puts as many as rate and the slots allow. */
void fire_put_more(struct fire *f);
/** A message of the slot has been received for the first time. */
void fire_slot_received(struct slot *s);
/** A node that may go has gone: what it held is not waited for. */
void fire_slots_victim_gone(struct fire *f);

/* fire_watch.c */
void fire_consumers_create(struct fire *f);
void fire_consumers_destroy(struct fire *f);
void fire_consumers_open(struct fire *f);
/** Acknowledges what has waited long enough. */
void fire_ack_more(struct fire *f);
