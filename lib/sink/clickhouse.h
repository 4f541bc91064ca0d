/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Queues that are written into ClickHouse: what comes on ch:{table} or clickhouse:{table} goes into
 * `table`, or `db.table`, as INSERT ... FORMAT JSONEachRow over HTTP (spec/storage.md).
 *
 *   1. rp_clickhouse_create().
 *   2. rp_clickhouse_queue() for each queue that this node is to write, and again with `on` false
 *      when it is not any more.
 *   3. rp_clickhouse_destroy().
 *
 * Rows gather until a batch is full or its first row has waited long enough, and are acknowledged
 * when the server has answered. A batch that failed is sent again as it was, byte for byte.
 */

#include <sink/sink.h>

struct rp_clickhouse;

#define RP_CLICKHOUSE_COUNTERS(X)                                                          \
	X(rows, "messages that are in their table")                                        \
	X(bytes, "bytes of them")                                                          \
	X(inserts, "inserts that were done")                                               \
	X(inserts_failed, "inserts that failed as a whole and are tried again")            \
	X(inserts_refused, "inserts that were refused because of a row")                   \
	X(rows_refused, "messages that their table refuses: to the dead letters, or kept") \
	X(rows_empty_dropped, "messages without a row in them")                            \
	X(batches_halved, "batches that were cut in two to find a row")                    \
	X(acks_failed, "acknowledges of written rows that were said again")                \
	X(acks_late, "written rows that were not this node's any more: written twice")     \
	X(withdrawn, "messages taken back before they were written")                       \
	X(probes, "times the server was asked what it knows")

struct rp_clickhouse_counters {
#define X(name, help) uint64_t name;
	RP_CLICKHOUSE_COUNTERS(X)
#undef X
};

struct rp_clickhouse_limits {
	uint32_t batch_rows;  /**< [10000] */
	uint64_t batch_bytes; /**< [8 MiB] */
	uint32_t batch_ms;    /**< [100] */
	uint32_t in_flight;   /**< [4] */
};

struct rp_clickhouse_config {
	struct rp_loop *loop;		 /**< borrow */
	const struct rp_sink_host *host; /**< borrow */
	const char *url;		 /**< http://[user[:password]@]host:port */
	const char *database;		 /**< of a table that names none; "" = default */
	uint64_t node;			 /**< in the tokens of its blocks */
	uint64_t timeout_ms;		 /**< of an insert; 0 = 30000 */
	struct rp_clickhouse_limits limits;
};

/** Whether the name is that of a queue for ClickHouse. */
bool rp_clickhouse_is_queue(struct rp_span name);

/** NULL and errno EINVAL: no such URL. */
struct rp_clickhouse *rp_clickhouse_create(const struct rp_clickhouse_config *config);
/** What was not acknowledged is offered again. NULL is fine. */
void rp_clickhouse_destroy(struct rp_clickhouse *c);
void rp_clickhouse_set_limits(struct rp_clickhouse *c, const struct rp_clickhouse_limits *l);

/** Whether this node writes the queue. Off: what is being inserted is waited for first. */
void rp_clickhouse_queue(struct rp_clickhouse *c, struct rp_span name, bool on);
/** No insert is begun any more, of any queue; see rp_clickhouse_busy(). */
void rp_clickhouse_pause(struct rp_clickhouse *c, bool on);
/** Inserts under way, and acknowledges that are not answered. */
bool rp_clickhouse_busy(const struct rp_clickhouse *c);

const struct rp_clickhouse_counters *rp_clickhouse_counters(const struct rp_clickhouse *c);

struct rp_clickhouse_state {
	struct rp_span queue;
	const char *table; /**< quoted */
	bool consuming;
	uint64_t held; /**< messages here that are not acknowledged */
	uint64_t held_bytes;
	uint64_t refused;  /**< since the queue was opened */
	uint32_t failures; /**< in a row; the next attempt waits */
	const char *error; /**< the last one; "" */
};
void rp_clickhouse_each(struct rp_clickhouse *c,
	void (*fn)(void *ctx, const struct rp_clickhouse_state *state), void *ctx);
/** Inserts under way, of all queues. */
uint32_t rp_clickhouse_in_flight(const struct rp_clickhouse *c);
