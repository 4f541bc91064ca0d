/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The bus upon a storage: what store.c and turns.c share. */

#include <store/store_priv.h>

#define STORE_TEXT_SIZE 256

enum call_kind { CALL_GET, CALL_PUSH, CALL_LOCAL, CALL_QUEUED };

/** An entry that was taken ahead. */
struct ahead {
	struct rp_list node;
	uint64_t id;
	size_t length;
	uint8_t bytes[];
};

/** A queue of the bus from which entries are taken for who asks. */
struct source {
	struct rp_store *s;
	const char *list;
	struct rp_store_taker *taker; /**< NULL: nobody has asked yet */
	struct rp_list ahead;	      /**< struct ahead, oldest first */
};

struct call {
	struct rp_list node; /**< s->open, s->finished, or one of those who wait */
	struct rp_store *s;
	rp_store_done_fn done;
	void *ctx;
	enum call_kind kind;
	struct rp_store_result result;
	char text[STORE_TEXT_SIZE];
	struct source *from; /**< settled when it is done */
	uint64_t from_id;
};

/** A forward entry whose message is asked of the backlog, or one whose sender is told. */
struct lookup {
	struct rp_list node; /**< s->lookups */
	struct rp_store *s;
	struct call *call; /**< who gets it; NULL: the sender is looked for */
	uint64_t entry_id;
	uint32_t destination;
	char id[];
};

struct rp_store_taker {
	struct rp_list node; /**< s->takers */
	struct rp_store *s;
	void *taker;
	rp_store_entry_fn entry;
	void *ctx;
};

struct rp_store {
	struct rp_loop *loop;
	const struct store_backend *ops;
	void *backend;
	struct store_cache *cache;
	char *owner;
	uint32_t commands_max;
	uint64_t (*wall_ms)(void *ctx);
	void *wall_ctx;
	struct rp_list open, finished, lookups, takers;
	struct rp_list want_local, want_queued; /**< calls, in the order in which they came */
	struct source local, forward, reply;
	bool reply_is_next;
	struct rp_loop_task task;
	struct rp_store_counters counters;
};

uint64_t store_now_ms(struct rp_store *s);
/** Its time is over. */
bool store_is_over(struct rp_store *s, const struct rp_bus_message *m);
struct call *store_call_new(
	struct rp_store *s, enum call_kind kind, rp_store_done_fn done, void *ctx);
/** In a later turn. take: message, which may be NULL. */
void store_call_finish(struct call *c, enum rp_store_status status, const char *text,
	struct rp_bus_message *message);

/* turns.c */
void store_source_init(struct rp_store *s, struct source *from, const char *list);
void store_source_free(struct source *from);
