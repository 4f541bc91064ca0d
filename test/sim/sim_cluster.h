/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A run of sim_cluster: its clients and what they saw (sim_cluster.c), what befalls its nodes
 * (sim_trouble.c), and in what order messages came (sim_order.c).
 */

#include <inttypes.h>

#include "sim.h"

#define QUEUES 12
#define CONSUMERS_MAX (QUEUES * 3)
/* Queues below have one consumer, the others three. */
#define SINGLE_QUEUES 4
#define MESSAGES_MAX 4096
#define FAULTS_MAX 64
#define TROUBLE_NS (40 * RP_NS_PER_S)

/* Timers and tokens: what they are for in the upper half, which one in the lower. */
enum what {
	WHAT_PUT = 1,
	WHAT_ACK,
	WHAT_OPEN,
	WHAT_FAULT,
	WHAT_MEND,
	WHAT_WATCH, /* who sees whom */
};

/* Who dispatched a queue, in the eyes of a producer's node. */
struct took {
	uint64_t dispatcher;
	uint32_t epoch;
};

struct message {
	unsigned queue, node;
	bool put, accepted, answered, acked, excused;
	bool maybe_acked; /* it was asked for, and nobody knows what came of it */
	uint64_t put_ns;
	struct took took_put, took_answer;
	bool together; /* all nodes saw each other from before its put until its answer */
	unsigned deliveries;
	/* The last one. */
	unsigned consumer;
	uint32_t life;
	uint64_t idx;
	bool over; /* that consumer cannot act on it any more */
	/* The first one. */
	unsigned first_consumer;
	uint32_t first_life, first_attempt;
};

struct consumer {
	unsigned queue, node;
	uint8_t uuid[RP_UUID_BYTES];
	uint64_t handle;   /* 0: closed */
	uint32_t life;	   /* of what it holds: goes on where it resumes */
	int64_t revision;  /* of the last event */
	bool resumes;	   /* at another node, behind its last event */
	bool returns;	   /* likewise, where it was */
	uint64_t moved_ns; /* when it was sent away by a node that drained; 0: never */
};

/* The first delivery of `later` came before that of `earlier`, of the same producer's node. */
struct swapped {
	unsigned earlier, later, consumer;
};

struct fault {
	unsigned kind, a, b;
};

struct run {
	struct sim *sim;
	struct rp_rand rand;
	unsigned nodes, shards, links, count, done;
	bool calm; /* no more faults, no more puts */
	struct message messages[MESSAGES_MAX];
	struct consumer consumers[CONSUMERS_MAX];
	uint64_t handles;
	struct fault faults[FAULTS_MAX];
	unsigned fault_count;
	bool apart[SIM_NODES_MAX][SIM_NODES_MAX]; /* by a rule */
	uint64_t together_ns; /* since when all nodes see each other; RP_NEVER: they do not */
	struct swapped swapped[MESSAGES_MAX];
	unsigned swapped_count;
	bool verbose;
	unsigned trace; /* a message that is told of */
	char fault[512];
};

__attribute__((format(printf, 2, 3))) void fault(struct run *r, const char *format, ...);
__attribute__((format(printf, 2, 3))) void say(struct run *r, const char *format, ...);
void later(struct run *r, uint64_t ns, enum what what, unsigned i);
/** What the consumer has and did not acknowledge is none of its business any more. */
void consumer_is_over(struct run *r, unsigned k);

/* sim_trouble.c */
/** The kinds of `kinds` that there are. */
unsigned trouble_kinds(unsigned kinds);
void trouble_make(struct run *r, unsigned kinds);
void trouble_set(struct run *r, unsigned i, bool on);
/** Whatever overlapped, all is mended. */
void trouble_end(struct run *r);

/* sim_order.c */
void order_put(struct run *r, unsigned i);
void order_answered(struct run *r, unsigned i);
void order_watch(struct run *r);
/** The first delivery of a message, before it counts as one. */
void order_delivered(struct run *r, unsigned i, unsigned k, uint32_t attempt);
void order_check(struct run *r);
