/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The grammar of keys: what a key of the etcd API means to Ringpost. One pure function decides, so
 * that the API, the registry and the queue engine can never disagree on whether a key is a key or a
 * message (spec/queues.md, "Keys").
 *
 *   1. rp_route_key_parse() says which kind a key is, and where its parts lie.
 *   2. Ordinary keys and records are keys of the store; a record key has one canonical spelling
 *      (rp_route_key_canonical), under which it is stored whatever the client wrote.
 *   3. Produce, and the delivered forms, are queue traffic: they never reach the store.
 *   4. Ranges go through rp_route_range_classify().
 *
 * Nothing here allocates, copies or keeps what it is given: spans point into the key.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/units.h>

enum rp_key_kind {
	/** Not below /q/ or /queue/: stored, watched, replicated as any key. */
	RP_KEY_ORDINARY,
	/** /q/{name}: the dispatcher record. A registry key. */
	RP_KEY_DISPATCHER,
	/**
	 * /q/{name}/c/{uuid}: the consumer record, a registry key. The same key watched alone,
	 * without a range end, is a consumer of the queue.
	 */
	RP_KEY_CONSUMER,
	/**
	 * The same shape below a ClickHouse queue: the record of a node's own consumer, its sink. A
	 * registry key that anybody may read; its node alone writes it, no client watches it as a
	 * consumer, and no other node delivers to it.
	 */
	RP_KEY_SINK,
	/** /q/{name}/p/{tail}: a put enqueues; a delete cancels. Never stored. */
	RP_KEY_PRODUCE,
	/** /q/{name}/c/{uuid}/{idx}/{tail}: a delivered message, with its holder. */
	RP_KEY_DELIVERED,
	/** /q/{name}/{idx}/{tail}: the seed's short form, without the holder check. */
	RP_KEY_DELIVERED_SHORT,
	/** Below /q/ or /queue/, but of no shape above: INVALID_ARGUMENT; `reason` says why. */
	RP_KEY_INVALID,
};

/** Why a key is RP_KEY_INVALID, with the text for the client. */
#define RP_KEY_REASONS(X)                                                                       \
	X(NONE, "valid")                                                                        \
	X(NO_NAME, "queue key: the queue's name is empty")                                      \
	X(NAME_LONG, "queue key: the queue's name is longer than 255 bytes")                    \
	X(SHAPE, "queue key: neither a record, a producer, a consumer nor a delivered message") \
	X(NO_TAIL, "queue key: the message's tail is empty")                                    \
	X(TAIL_LONG, "queue key: the message's tail is longer than 255 bytes")                  \
	X(DEEP, "queue key: too many segments")                                                 \
	X(BAD_UUID, "queue key: the consumer is not a uuid")                                    \
	X(BAD_IDX, "queue key: the index is not a decimal number of 64 bits")                   \
	X(CLICKHOUSE_CONSUMER, "queue key: a ClickHouse queue has no consumers")                \
	X(CLICKHOUSE_TABLE, "queue key: the ClickHouse table is not `table` or `db.table`")

enum rp_key_reason {
#define X(name, text) RP_KEY_REASON_##name,
	RP_KEY_REASONS(X)
#undef X
		RP_KEY_REASON_COUNT,
};

struct rp_route_key {
	enum rp_key_kind kind;
	enum rp_key_reason reason; /**< NONE unless kind is INVALID */
	struct rp_span name;	   /**< the queue's; all kinds but ORDINARY and some INVALID */
	struct rp_span tail;	   /**< PRODUCE and both delivered forms; 1..255 bytes */
	struct rp_span uuid_text;  /**< as spelled: CONSUMER, SINK, DELIVERED */
	struct rp_span consumer; /**< the consumer key as spelled, without a trailing '/': CONSUMER,
				    SINK, DELIVERED. A delivered key is this, '/', idx, '/', tail */
	uint8_t uuid[RP_UUID_BYTES]; /**< CONSUMER, SINK, DELIVERED; else zeros */
	uint64_t idx;		     /**< both delivered forms */
	bool clickhouse;	     /**< the queue is a ClickHouse queue */
	struct rp_span table;	     /**< of a ClickHouse queue: `table` or `db.table` */
};

/**
 * Parses any bytes, at any length; never fails: what does not fit is RP_KEY_INVALID with a reason.
 * borrow: `key` must outlive the spans of *out.
 */
void rp_route_key_parse(struct rp_route_key *out, const void *key, size_t length);

/** Registry keys are stored keys below /q/: DISPATCHER, CONSUMER and SINK. */
static inline bool rp_route_key_is_registry(const struct rp_route_key *k)
{
	return k->kind == RP_KEY_DISPATCHER || k->kind == RP_KEY_CONSUMER || k->kind == RP_KEY_SINK;
}

/** Keys that the store holds: ordinary ones and the registry's. */
static inline bool rp_route_key_is_stored(const struct rp_route_key *k)
{
	return k->kind == RP_KEY_ORDINARY || rp_route_key_is_registry(k);
}

/** Queue traffic, never stored: PRODUCE and both delivered forms. */
static inline bool rp_route_key_is_traffic(const struct rp_route_key *k)
{
	return k->kind == RP_KEY_PRODUCE || k->kind == RP_KEY_DELIVERED ||
	       k->kind == RP_KEY_DELIVERED_SHORT;
}

const char *rp_key_kind_name(enum rp_key_kind kind);
const char *rp_key_reason_text(enum rp_key_reason reason);

/** Longest canonical registry key: "/q/" name "/c/" uuid. */
#define RP_REGISTRY_KEY_BYTES_MAX (3 + RP_NAME_BYTES_MAX + 3 + 36)
/** Longest key of a delivered message: the longest consumer spelling, '/', 20 digits, '/', tail. */
#define RP_DELIVERED_KEY_BYTES_MAX \
	(7 + RP_NAME_BYTES_MAX + 10 + 36 + 1 + 20 + 1 + RP_TAIL_BYTES_MAX)

/**
 * The one spelling under which a registry key is stored: /q/{name} or /q/{name}/c/{uuid, 36
 * characters, lower case}. Length written to `out` (of `size`), or -EINVAL when `k` is no registry
 * key, -ENOSPC when it does not fit.
 */
int rp_route_key_canonical(const struct rp_route_key *k, void *out, size_t size);

/** The canonical dispatcher key of a queue; length or -ENOSPC, -EINVAL (name empty or too long). */
int rp_route_key_dispatcher(struct rp_span name, void *out, size_t size);
/** The canonical consumer key; as above. */
int rp_route_key_consumer(
	struct rp_span name, const uint8_t uuid[RP_UUID_BYTES], void *out, size_t size);
/**
 * The key of a delivered message: `consumer` (the watched key as the client spelled it, without a
 * trailing '/'), '/', idx, '/', tail. Length or -ENOSPC.
 */
int rp_route_key_delivered(
	struct rp_span consumer, uint64_t idx, struct rp_span tail, void *out, size_t size);

/** What an etcd range [key, range_end) has to do with queues. */
enum rp_range_kind {
	/** range_end is empty: one key; rp_route_key_parse() says the rest. */
	RP_RANGE_SINGLE,
	/** Touches nothing below /q/ or /queue/. */
	RP_RANGE_OUTSIDE,
	/** Some keys below /q/ or /queue/ and some that are not. */
	RP_RANGE_OVERLAPS,
	/** Lies wholly below /q/, or wholly below /queue/. A ranged delete here is
	   INVALID_ARGUMENT. */
	RP_RANGE_INSIDE,
	/** range_end <= key: holds no key at all. */
	RP_RANGE_EMPTY,
};

/** `end` as etcd has it: empty = single, one zero byte = every key from `key` on. */
enum rp_range_kind rp_route_range_classify(
	const void *key, size_t key_length, const void *end, size_t end_length);

/** Characters of a formatted uuid, without a terminator. */
#define RP_UUID_TEXT_BYTES 36

/**
 * Parses 8-4-4-4-12 hexadecimal digits of any case, or the same 32 digits without dashes. 0 or
 * -EINVAL.
 */
int rp_uuid_parse(const void *text, size_t length, uint8_t uuid[RP_UUID_BYTES]);

/** Writes 36 characters, lower case, no terminator. */
void rp_uuid_format(const uint8_t uuid[RP_UUID_BYTES], char out[RP_UUID_TEXT_BYTES]);
