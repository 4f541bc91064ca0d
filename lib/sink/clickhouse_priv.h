/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <base/list.h>
#include <sink/clickhouse.h>
#include <sink/http_priv.h>

struct ch_queue;

struct ch_row {
	uint64_t idx;
	size_t offset, length; /**< in the batch's body */
	bool withdrawn;
};

enum ch_batch_state {
	CH_BATCH_OPEN,	/**< gathers */
	CH_BATCH_READY, /**< waits for its turn */
	CH_BATCH_SENDING,
};

/** What is inserted at once; its body does not change once it was sent. */
struct ch_batch {
	struct rp_list node; /**< queue->batches */
	struct ch_queue *q;
	enum ch_batch_state state;
	uint64_t life; /**< of the consumer that its rows came by */
	uint64_t first_ns;
	struct ch_row *rows;
	uint32_t count, size, withdrawn;
	uint8_t *body;
	size_t length, body_size;
	bool sent; /**< once; from then on it is sent as it was */
	bool part; /**< of a batch that was refused */
	struct sink_request *request;
};

struct ch_queue {
	struct rp_list node; /**< clickhouse->queues, the one served last at the back */
	struct rp_clickhouse *c;
	bool on;
	void *consumer;		/**< NULL: none */
	uint64_t life;		/**< one more with each consumer */
	struct rp_list batches; /**< struct ch_batch; what failed stands before what came later */
	struct rp_list acks;	/**< struct ch_ack: under way */
	struct rp_list again;	/**< struct ch_ack: to be said again, the first due first */
	uint32_t sending;
	uint64_t held, held_bytes, refused;
	uint32_t failures;
	uint64_t next_ns; /**< no insert before */
	char error[256];
	char *table; /**< `db`.`table`; NULL: the name says none */
	size_t name_length;
	uint8_t name[RP_NAME_BYTES_MAX];
};

struct rp_clickhouse {
	struct rp_loop *loop;
	const struct rp_sink_host *host;
	struct sink_http *http;
	char *url, *user, *password, *database;
	uint64_t node, timeout_ns;
	struct rp_clickhouse_limits limits;
	struct rp_list queues;
	uint32_t sending, acking;
	bool paused;
	/* What the server knows. */
	bool probed, has_token, has_parallel;
	struct sink_request *probe;
	uint32_t probe_failures;
	uint64_t probe_at_ns;
	struct rp_loop_timer timer;
	struct rp_loop_task task;
	struct rp_clickhouse_counters counters;
};

/** What became of an insert. */
enum ch_outcome {
	CH_OUTCOME_DONE,
	CH_OUTCOME_ROW,	  /**< a row is at fault */
	CH_OUTCOME_LATER, /**< anything else: it is tried again */
	CH_OUTCOME_LARGE, /**< too much at once: smaller, then later */
};
enum ch_outcome ch_outcome_of(const struct sink_answer *a);

/** `db`.`table` of a queue's name, malloc'd; NULL: it names none. */
char *ch_table_of(struct rp_span name, const char *database);
/** Cuts user and password out of it. 0 or -EINVAL; texts are malloc'd. */
int ch_url_parse(const char *text, char **url, char **user, char **password);
/** The URL of an insert, malloc'd; `token` may be NULL. */
char *ch_insert_url(const struct rp_clickhouse *c, const char *table, const char *token);
char *ch_probe_url(const struct rp_clickhouse *c);

/* clickhouse_batch.c */
struct ch_batch *ch_batch_new(struct ch_queue *q);
void ch_batch_free(struct ch_batch *b);
void ch_batch_add(struct ch_batch *b, uint64_t idx, struct rp_span value);
/** The second half of its rows goes into a new one, which stands behind it. */
void ch_batch_halve(struct ch_batch *b);
/** Rows that were withdrawn leave it. Before it is sent only. */
void ch_batch_clean(struct ch_batch *b);
/** Of its queue and rows: who inserts the same again says the same. */
void ch_batch_token(const struct ch_batch *b, char *token, size_t size);

void *ch_alloc(size_t size);
