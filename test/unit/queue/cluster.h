/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A cluster in one process for the queue engine alone: nodes with their engines, a registry that
 * spreads records after a while, clients, and a network that promises what deliver/deliver.h
 * promises and no more. Everything runs on a virtual clock, from one seed.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <base/list.h>
#include <base/mbuf.h>
#include <base/rand.h>
#include <queue/queue.h>

#define NODES_MAX 4
#define CLIENTS_MAX 4096
#define TOKENS_MAX 65536
#define QUEUES_MAX 16

#define MS RP_NS_PER_MS
#define SEC RP_NS_PER_S
/* Of the wall clock when the virtual one is 0: 2026-07-01. */
#define WALL_START_S 1782864000ull

struct event {
	bool deleted; /**< a DELETE event: taken back */
	uint64_t idx, revision, value, at_ns;
	uint32_t attempt;
	char tail[32];
};

struct client {
	uint64_t handle;
	unsigned node;
	char queue[32], fields[32];
	uint8_t uuid[RP_UUID_BYTES];
	bool open, ended, opened;
	bool blocked; /**< its window is closed: deliver() says -EAGAIN */
	bool mute;    /**< what it is given stays in the server's buffer: never accepted */
	enum rp_queue_end end;
	uint64_t open_revision;
	struct event *events; /**< shown to it */
	unsigned event_count, event_size;
	struct rp_list buffer; /**< given, not shown yet */
};

struct answer {
	bool done;
	enum rp_qstatus status;
	uint32_t deleted;
	uint64_t idx, revision, value;
	uint32_t attempt;
	bool message;
};

struct node {
	uint64_t id;
	struct rp_queues *qs;
	bool dead;
	uint64_t boot;
	struct cluster *c;
	unsigned index;
	/* its store */
	struct {
		uint64_t node;
		uint32_t epoch;
	} records[QUEUES_MAX];
	unsigned claims, released;
};

struct cluster {
	unsigned node_count;
	struct node nodes[NODES_MAX];
	uint64_t now_ns, step_ns;
	struct rp_rand rand;
	struct rp_queue_config config;
	uint64_t delay_min_ns, delay_max_ns, registry_ns;
	unsigned full_one_in; /**< one send in that many finds no room; 0 = none */
	bool up[NODES_MAX][NODES_MAX];
	bool apart[NODES_MAX][NODES_MAX]; /**< the first's keys do not go to the second */
	uint64_t room_ns[NODES_MAX][NODES_MAX];
	struct rp_list frames[NODES_MAX][NODES_MAX];
	struct rp_list updates[NODES_MAX];
	struct rp_list letters; /**< dead letters on their way */
	bool letters_blocked;	/**< none is taken now */
	struct rp_list calls; /**< of clients' sides into the engines, not from inside a callback */
	char queues[QUEUES_MAX][32];
	unsigned queue_count;
	uint64_t homes[NODES_MAX][QUEUES_MAX][256]; /**< node of each consumer's record, by uuid */
	struct client clients[CLIENTS_MAX];
	unsigned client_count;
	struct answer answers[TOKENS_MAX];
	unsigned token_count;
	uint64_t boots, letter_count;
	unsigned qmsg_sent[RP_QMSG_TYPE_COUNT];
};

/** The last is small: a cluster's, where its config names it. */
extern struct rte_mempool *pool_queue, *pool_rx, *pool_tight;

int cluster_group_setup(void **state);
struct cluster *cluster_new(unsigned nodes, uint64_t seed, const struct rp_queue_config *config);
/** Ends it; every engine must be sound, and every buffer back. */
void cluster_free(struct cluster *c);
void cluster_run(struct cluster *c, uint64_t ns);
void cluster_audit(struct cluster *c);

void cluster_cut(struct cluster *c, unsigned a, unsigned b);
void cluster_join(struct cluster *c, unsigned a, unsigned b);
void cluster_kill(struct cluster *c, unsigned node);
void cluster_start(struct cluster *c, unsigned node);
void cluster_state(struct cluster *c, unsigned node, enum rp_node_state state);

struct rp_span span_of(const char *text);
uint64_t cluster_delay(struct cluster *c);
/** Not NULL. */
void *cluster_must(void *p);

/* cluster_letters.c: tokens of puts of dead letters, and what the steps of a cluster do to them. */
#define LETTER_TOKEN (1ull << 40)
int on_dead_letter(void *ctx, uint64_t token, const struct rp_queue_letter *letter);
void letter_answered(struct cluster *c, uint64_t id, enum rp_qstatus status);
void letters_run(struct cluster *c);

/** Its place in c->queues, where it is from now on. */
unsigned queue_index(struct cluster *c, const void *name, size_t length);
/** What its server holds for it. */
void client_drop_buffer(struct client *cl);
void uuid_of(unsigned n, uint8_t uuid[RP_UUID_BYTES]);

/** Each keeps the keys of all queues from the other, or not any more: their stores are equal then.
 */
void cluster_part(struct cluster *c, unsigned a, unsigned b, bool apart);
/** Frames between them are lost and none goes, though each knows that the other lives. */
void cluster_silence(struct cluster *c, unsigned a, unsigned b, bool silent);
void link_lose(struct cluster *c, unsigned a, unsigned b);
unsigned node_index(struct cluster *c, uint64_t id);

/** The token, for answer_of(). */
unsigned put(struct cluster *c, unsigned node, const char *queue, const char *tail, uint64_t value);
unsigned ack(struct cluster *c, unsigned node, const char *queue, unsigned uuid, uint64_t idx,
	uint8_t flags);
unsigned get(struct cluster *c, unsigned node, const char *queue, unsigned uuid, uint64_t idx,
	uint8_t flags);
unsigned reject(struct cluster *c, unsigned node, const char *queue, unsigned uuid, uint64_t idx);
struct answer *answer_of(struct cluster *c, unsigned token);
struct client *open_consumer(struct cluster *c, unsigned node, const char *queue, unsigned uuid,
	uint64_t start_revision, const char *fields);
void close_consumer(struct cluster *c, struct client *client, enum rp_queue_close how);
void room(struct cluster *c, struct client *client);
/** A record of the dispatcher, or of a consumer (node 0 = deleted), to all nodes at once. */
void publish_record(struct cluster *c, const char *queue, const char *text);
void publish_consumer(struct cluster *c, const char *queue, unsigned uuid, const char *text);

struct rp_queue_info info_of(struct cluster *c, unsigned node, const char *queue);
unsigned shown(const struct client *client, bool deleted);
