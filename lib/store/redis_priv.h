/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One connection to Redis on the loop, made again whenever it is lost: hiredis does the protocol.
 * A command waits while the connection is being made, and fails when that fails, or when no answer
 * comes in time.
 */

#include <base/list.h>
#include <base/units.h>
#include <grpc/loop.h>

struct redisReply;
struct redis_io;

struct redis_address {
	char host[256]; /**< or the path of a socket */
	uint16_t port;	/**< 0: a socket */
	char *password; /**< NULL: none */
	unsigned database;
};

/** 0 or -EINVAL. A host is an address, or "localhost": nothing here waits for a resolver. */
int redis_address_parse(struct redis_address *a, const char *url);
void redis_address_free(struct redis_address *a);

/** NULL: not done, or not known whether it was; redis_link_error() says why. */
typedef void (*redis_reply_fn)(void *ctx, const struct redisReply *reply);

enum redis_link_state {
	REDIS_LINK_IDLE,       /**< waits for its next attempt */
	REDIS_LINK_CONNECTING, /**< until AUTH and SELECT are answered */
	REDIS_LINK_UP,
};

struct redis_link {
	struct rp_loop *loop;
	const struct redis_address *address;
	enum redis_link_state state;
	struct redis_io *io;	/**< NULL: no connection */
	struct rp_list waiting; /**< struct redis_command, until it is up */
	struct rp_list pending; /**< that were sent, oldest first */
	uint32_t count;		/**< of both */
	uint64_t timeout_ns;
	bool by_progress; /**< time runs from the last answer on, not from the sending */
	uint64_t progress_ns, backoff_ns;
	struct rp_loop_timer retry, watchdog;
	bool timed_out; /**< while commands fail: for want of an answer in time */
	bool in_doubt;	/**< while commands fail: they were sent, and may have been done */
	char error[200];
	void (*up)(void *ctx);
	void (*down)(void *ctx); /**< after the commands have failed */
	void *ctx;
	uint64_t *connects, *disconnects; /**< counters */
};

/** Connects at once, and again and again. `up` and `down` may be NULL. */
void redis_link_start(struct redis_link *l);
/** No callback after it: the commands are dropped. Idempotent. */
void redis_link_stop(struct redis_link *l);
/** The reply comes once, unless the link is stopped; never from inside of the call. */
void redis_link_command(struct redis_link *l, redis_reply_fn fn, void *ctx, unsigned count,
	const struct rp_span *arguments);
const char *redis_link_error(const struct redis_link *l);
