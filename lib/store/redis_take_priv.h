/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Taking from a list of Redis so that nothing is lost: an entry moves to the list of what the owner
 * holds by one command, and leaves that when it is settled. What lies there and is not known, of an
 * earlier connection or process, comes first. A taker has a connection of its own, for it blocks.
 */

#include <base/list.h>
#include <store/redis_priv.h>
#include <store/store_priv.h>

struct redis {
	struct store_init init;
	struct redis_address address;
	struct redis_link main;
	struct rp_list requests, takers;
};

struct redis_taker {
	struct rp_list node; /**< redis->takers */
	struct redis *r;
	struct redis_link link;
	char *list, *held;
	rp_store_entry_fn entry;
	void *ctx;
	uint32_t want;	   /**< entries that may come */
	uint32_t moves;	   /**< LMOVE without an answer */
	bool blocking;	   /**< BLMOVE without an answer */
	bool empty;	   /**< the last answer was that there is none */
	bool known;	   /**< what the owner held before has been read */
	bool look_due;	   /**< it is to be read, when no settling is under way */
	bool looking;	   /**< LRANGE without an answer: nothing is settled meanwhile */
	uint32_t settling; /**< of `entries`, those whose settling has no answer */
	bool ended;
	struct rp_list entries; /**< struct redis_held: known to lie in `held` */
	struct rp_list found;	/**< of them, those that wait to be shown */
	uint64_t id_last, held_count, held_bytes;
	struct rp_loop_timer pause; /**< after an error, before it is tried again */
	struct rp_loop_task show;
};

void *redis_take(void *b, const char *list, const char *held, rp_store_entry_fn entry, void *ctx);
void redis_want(void *taker, uint32_t more);
void redis_settle(void *taker, uint64_t id);
void redis_give_back(void *taker, uint64_t id);
void redis_take_end(void *taker);

/** The main connection is there: what it could not be told is said again. */
void redis_taker_settle_again(struct redis_taker *t);
void redis_taker_set_timeout(struct redis_taker *t, uint32_t timeout_ms);
/** At once; the main connection is stopped. */
void redis_taker_free(struct redis_taker *t);

/** What a reply, or none, means; `text` is what the server or the connection said. */
enum rp_store_status redis_status(
	struct redis_link *l, const struct redisReply *reply, char *text, size_t size);
struct rp_span redis_text(const char *text);
