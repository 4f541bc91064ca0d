/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a storage has to be able to do: lists of byte strings, values with an expiry, and taking
 * from the head of a list into a list of what the owner holds. store.c makes the bus of it.
 *
 * `done` of a call may come from inside of it; an entry of a taker may not.
 */

#include <base/list.h>
#include <grpc/loop.h>
#include <store/store.h>

struct store_answer {
	enum rp_store_status status;
	const char *text; /**< what the server said; "" */
	struct rp_span value;
	uint64_t count;
};
typedef void (*store_done_fn)(void *ctx, const struct store_answer *a);

enum store_full {
	STORE_FULL_REFUSE, /**< FULL */
	STORE_FULL_TRIM,   /**< the oldest go; count says how many */
};

/** All of it, or nothing. */
struct store_forward {
	const char *key, *sender_key;
	struct rp_span value, sender;
	uint64_t ttl_ms, sender_ttl_ms;
	const char *list;
	const char *const *entries;
	uint32_t entry_count;
};

struct store_backend {
	void (*destroy)(void *b);
	void (*set_timeout)(void *b, uint32_t timeout_ms);
	void (*get)(void *b, const char *key, store_done_fn done, void *ctx);
	void (*push)(void *b, const char *list, struct rp_span value, uint32_t max,
		enum store_full full, store_done_fn done, void *ctx);
	void (*forward)(void *b, const struct store_forward *f, store_done_fn done, void *ctx);
	void (*length)(void *b, const char *list, store_done_fn done, void *ctx);
	void *(*take)(
		void *b, const char *list, const char *held, rp_store_entry_fn entry, void *ctx);
	void (*want)(void *taker, uint32_t more);
	void (*settle)(void *taker, uint64_t id);
	void (*give_back)(void *taker, uint64_t id);
	void (*take_end)(void *taker);
	void (*state)(void *b, struct rp_store_state *state);
};

struct store_init {
	struct rp_loop *loop;
	const char *url;
	uint32_t timeout_ms;
	uint64_t memory_bytes_max;
	uint64_t (*wall_ms)(void *ctx);
	void *ctx;
	struct rp_store_counters *counters;
};

/** NULL and errno. */
void *store_memory_new(const struct store_init *init);
void *store_redis_new(const struct store_init *init);
extern const struct store_backend store_memory, store_redis;

/** calloc that ends the process when memory is gone. */
void *store_alloc(size_t size);
char *store_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Of a name or of bytes: FNV-1a. */
uint64_t store_hash(const void *data, size_t length);

/* cache.c: the messages that were forwarded last, by their ids. */
struct store_cache;
struct store_cache *store_cache_new(uint32_t entries_max);
void store_cache_free(struct store_cache *c);
void store_cache_set_max(struct store_cache *c, uint32_t entries_max);
/** Borrowed until the cache is changed; NULL: not there. It is the youngest from now on. */
const struct rp_bus_message *store_cache_get(struct store_cache *c, const char *id);
/** Copied. */
void store_cache_put(struct store_cache *c, const struct rp_bus_message *m);
void store_cache_remove(struct store_cache *c, const char *id);
uint64_t store_cache_bytes(const struct store_cache *c);
uint32_t store_cache_count(const struct store_cache *c);
