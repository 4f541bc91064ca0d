/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Queues and key prefixes whose values, JSON objects or arrays of them, are upserted into tables of
 * PostgreSQL, one transaction a value (spec/storage.md):
 *
 *	<event>=<schema.table>:<column>[,<column>]	further ones behind ; or on a new line
 *
 * An event that begins with '/' is a key prefix, but for /q/<name> and /queue/<name>, which like
 * any other text name a queue. The columns are those that make a row the same one.
 *
 *   1. rp_postgres_create(), which gives each entry a connection of its own.
 *   2. rp_postgres_queue() where this node is to apply a queue, and again with `on` false when not
 *      any more; rp_postgres_put() for each put below a prefix.
 *   3. rp_postgres_destroy().
 */

#include <sink/sink.h>

struct rp_postgres;

#define RP_POSTGRES_COUNTERS(X)                                               \
	X(values, "values that were committed")                               \
	X(rows, "rows that they changed")                                     \
	X(values_empty, "values without an object in them: nothing to do")    \
	X(retries, "transactions that failed and are tried again")            \
	X(refused, "values that can never go in")                             \
	X(letters, "refused values that the dead-letter queue took")          \
	X(letters_failed, "times it did not take one: tried again")           \
	X(kept, "refused values that their queue, or the store, keeps")       \
	X(prefix_puts, "puts below a prefix")                                 \
	X(prefix_deletes, "deletes below a prefix: not applied")              \
	X(prefix_waits, "times that the values of a prefix had no room here") \
	X(prefix_missed, "gaps: history was compacted before it was applied") \
	X(connects, "connections made")                                       \
	X(connects_failed, "connections that failed or were lost")            \
	X(acks_late, "committed values that were not this node's any more: applied again")

struct rp_postgres_counters {
#define X(name, help) uint64_t name;
	RP_POSTGRES_COUNTERS(X)
#undef X
};

struct rp_postgres_config {
	struct rp_loop *loop;		 /**< borrow */
	const struct rp_sink_host *host; /**< borrow */
	const char *url;		 /**< of libpq: a connection string or URL */
	const char *upsert;		 /**< the entries */
	const char *dead_letter;	 /**< a queue; "" = none */
	/** There is room for puts again; may be NULL. */
	void (*room)(void *ctx, unsigned entry);
	void *ctx;
};

/** Most entries. */
#define RP_POSTGRES_ENTRIES_MAX 64

/** 0; -EINVAL with what is wrong in `error`. */
int rp_postgres_check(const char *upsert, const char *dead_letter, char *error, size_t error_size);
/** NULL with `error` filled. */
struct rp_postgres *rp_postgres_create(
	const struct rp_postgres_config *config, char *error, size_t error_size);
/** What was not acknowledged is offered again. NULL is fine. */
void rp_postgres_destroy(struct rp_postgres *p);

unsigned rp_postgres_entry_count(const struct rp_postgres *p);
/** Its prefix, or its queue's name. Borrowed. */
struct rp_span rp_postgres_event(const struct rp_postgres *p, unsigned entry, bool *is_prefix);
void rp_postgres_queue(struct rp_postgres *p, unsigned entry, bool on);
/** Whether there is room for puts; else `room` is called when there is. */
bool rp_postgres_has_room(struct rp_postgres *p, unsigned entry);
void rp_postgres_put(
	struct rp_postgres *p, unsigned entry, struct rp_span key, struct rp_span value);
/** A delete below a prefix, and a gap in what was seen of it. */
void rp_postgres_deleted(struct rp_postgres *p, unsigned entry);
void rp_postgres_missed(struct rp_postgres *p, unsigned entry);

/** No transaction is begun any more; see rp_postgres_busy(). */
void rp_postgres_pause(struct rp_postgres *p, bool on);
bool rp_postgres_busy(const struct rp_postgres *p);
const struct rp_postgres_counters *rp_postgres_counters(const struct rp_postgres *p);

struct rp_postgres_state {
	struct rp_span event;
	bool is_prefix, consuming, connected;
	const char *table;
	uint64_t held;	   /**< values here that are not done with */
	uint32_t failures; /**< in a row */
	const char *error; /**< the last one; "" */
};
void rp_postgres_each(struct rp_postgres *p,
	void (*fn)(void *ctx, const struct rp_postgres_state *state), void *ctx);
