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
	struct rp_qmsg_process process;
};

/* A process request that a client holds, as its node's control plane knows it. */
struct held_job {
	uint64_t request, idx;
	char queue[32], tail[32];
	uint8_t uuid[RP_UUID_BYTES];
};

/* A process request on its way: opened at its reply queue, then put. */
struct ask {
	struct rp_list link;
	unsigned node, open_token, token;
	uint64_t boot;
	bool put, done, closes;
	unsigned close_token;
	uint64_t again_ns;
	enum rp_qstatus status;
	uint64_t value, request, left_us, started_ns;
	char queue[32], tail[32], reply[32], need[32];
	uint8_t priority, flags;
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
	uint64_t at_ns;
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
	struct held_job jobs[256];
	unsigned job_count;
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
	struct rp_list asks, cancels;
	unsigned run_events;
	unsigned rooms[NODES_MAX]; /**< words that a requester reads again */
	uint64_t requests;
	uint64_t walk[256]; /**< what was left of a request's time when it was seen last */
	unsigned walked;
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
/** One that was killed: it knows nothing, hosts nobody, and is linked with all that live. */
void cluster_restart(struct cluster *c, unsigned node);
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

/* cluster_process.c */
int on_process_end(void *ctx, uint64_t token, const struct rp_queue_process_end *end);
int on_job_here(void *ctx, uint64_t consumer, const struct rp_queue_delivery *d);
void on_job_over(void *ctx, uint64_t request, uint64_t idx);
void on_cancel(void *ctx, struct rp_span name, struct rp_span tail, uint64_t request);
int on_run_event(void *ctx, const struct rp_queue_run_event *event);
void on_output_room(void *ctx, uint64_t request);
void process_held(struct node *n, const struct client *cl, const struct rp_queue_delivery *d);
void process_walks(struct cluster *c, const struct rp_qmsg *m);
void asks_run(struct cluster *c);
void asks_free(struct cluster *c);
void cancels_run(struct cluster *c);
struct rte_mbuf *payload_with(
	const char *tail, const void *meta, uint32_t meta_length, uint64_t value);

/** Values of ends that no worker put: this, and why. */
#define FAILED_BASE (1ull << 40)
/** Of an end without an output. */
#define EMPTY_FINAL (FAILED_BASE | RP_QUEUE_DEATH_COMPLETED)

struct ask_options {
	uint64_t left_us; /**< 0: 10 s */
	const char *need; /**< one capability */
	uint8_t priority, flags;
};
/** Lives as long as the cluster. */
struct ask *ask(struct cluster *c, unsigned node, const char *queue, const char *tail,
	uint64_t value, const char *reply, const struct ask_options *options);
/** The job that a client of the node holds; NULL. */
struct held_job *job_of(struct cluster *c, unsigned node, uint64_t request);
/** Tokens of puts of an output and of the last one, as the node's control plane sends them. */
unsigned output(struct cluster *c, unsigned node, const char *reply, const struct held_job *job,
	uint64_t value);
/** Likewise, as that one of its stream. */
unsigned output_in_turn(struct cluster *c, unsigned node, const char *reply,
	const struct held_job *job, uint64_t value, uint32_t stream, uint32_t number);
unsigned last_output(struct cluster *c, unsigned node, const struct held_job *job, uint64_t value);
unsigned cancel(struct cluster *c, unsigned node, const char *queue, const char *tail);

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
/** As its client's own, which has it and says so by that. */
unsigned ack_by(struct cluster *c, const struct client *client, uint64_t idx);
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
