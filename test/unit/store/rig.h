/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A store on a loop, with a clock of the test's, and calls that wait for their end. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <grpc/loop.h>
#include <store/store.h>

#include "redis_server.h"

struct rig {
	bool redis;
	struct redis_server server;
	struct rp_loop *loop;
	struct rp_store *s;
	struct rp_store_config config;
	uint64_t wall_ms;
};

struct outcome {
	bool done;
	enum rp_store_status status;
	char text[256];
	struct rp_bus_message *message;
	enum rp_store_kind kind;
	uint64_t count;
};

void rig_create(struct rig *r, bool redis);
/* The store again, as a new process of the same owner would make it. */
void rig_restart(struct rig *r);
void rig_destroy(struct rig *r);

/* Turns of the loop until *done; false: not within `ms`. */
bool rig_wait(struct rig *r, const bool *done, unsigned ms);
/* Turns for so long; the store's clock goes on with it. */
void rig_pass(struct rig *r, unsigned ms);
/* rp_store_done_fn; ctx is a struct outcome. */
void rig_done(void *ctx, const struct rp_store_result *result);
void outcome_clear(struct outcome *o);

/* Each waits for its end, and gives its status; *o, which may be NULL, is to be cleared. */
enum rp_store_status rig_get(struct rig *r, const char *id, struct outcome *o);
enum rp_store_status rig_run(struct rig *r, const struct rp_bus_message *m, struct outcome *o);
enum rp_store_status rig_forward(struct rig *r, const struct rp_bus_message *m, struct outcome *o);
enum rp_store_status rig_reply(struct rig *r, const struct rp_bus_message *m, struct outcome *o);
enum rp_store_status rig_push(struct rig *r, const char *queue, const char *entry, uint32_t max);
uint64_t rig_length(struct rig *r, const char *queue);
/* The first entry of a queue, or "". Borrowed until the next. */
const char *rig_pop(struct rig *r, const char *queue);

/* A message with that id for destination 7, of source 3, that lives for so long from now on. */
struct rp_bus_message *rig_message(struct rig *r, const char *id, uint64_t ttl_ms);
