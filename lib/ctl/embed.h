/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The control thread's calls for a program that has the node inside (node/ringpost.h, which says
 * what each does): keys, queues and consumers without a client. Control thread; spans are borrowed
 * for the call, and copied where they are needed longer.
 */

#include <base/units.h>
#include <ctl/ctl.h>

struct rp_ctl_consumer;
struct rp_ctl_watch;
struct rp_kv_version;
struct rp_metrics;

/** Once, never from inside the call; `status` is a gRPC code. */
typedef void (*rp_ctl_done_fn)(void *ctx, int status, const char *message, int64_t result);

void rp_ctl_put(struct rp_ctl *ctl, struct rp_span key, struct rp_span value, rp_ctl_done_fn done,
	void *ctx);
void rp_ctl_delete(struct rp_ctl *ctl, struct rp_span key, rp_ctl_done_fn done, void *ctx);
/** Up to `limit` keys (0: all) of [key, end) as rp_kv_range has them; `fn` says false to end it. */
size_t rp_ctl_range(struct rp_ctl *ctl, struct rp_span key, struct rp_span end, int64_t limit,
	bool (*fn)(void *ctx, const struct rp_kv_version *v), void *ctx);

struct rp_ctl_watch_ops {
	void (*event)(void *ctx, const struct rp_kv_version *v);
	void (*end)(void *ctx, int64_t compacted_revision); /**< may be NULL */
};
/** NULL: the range is empty. */
struct rp_ctl_watch *rp_ctl_watch(struct rp_ctl *ctl, struct rp_span key, struct rp_span end,
	int64_t start_revision, const struct rp_ctl_watch_ops *ops, void *ctx);
void rp_ctl_unwatch(struct rp_ctl_watch *w);

void rp_ctl_send(struct rp_ctl *ctl, struct rp_span queue, struct rp_span tail,
	struct rp_span value, rp_ctl_done_fn done, void *ctx);

struct rp_ctl_message {
	uint64_t idx;
	struct rp_span tail, value;
	uint32_t attempt;
	int64_t revision;
};

struct rp_ctl_consumer_ops {
	void (*message)(void *ctx, const struct rp_ctl_message *m);
	void (*withdrawn)(void *ctx, uint64_t idx);
	void (*end)(void *ctx, const char *reason);
};

/** NULL and errno; EINVAL: no name of a queue, or of one for ClickHouse, which its sink consumes.
 */
struct rp_ctl_consumer *rp_ctl_consume(struct rp_ctl *ctl, struct rp_span queue,
	const uint8_t *uuid, const char *fields, int64_t start_revision,
	const struct rp_ctl_consumer_ops *ops, void *ctx);
void rp_ctl_consumer_close(struct rp_ctl_consumer *k, bool left);
void rp_ctl_consumer_ack(
	struct rp_ctl_consumer *k, uint64_t idx, bool reject, rp_ctl_done_fn done, void *ctx);

/** So many plain messages at once, RP_XMSG_ACKS_MAX at most; `result` is how many went. */
void rp_ctl_consumer_acks(struct rp_ctl_consumer *k, const uint64_t *idx, unsigned count,
	rp_ctl_done_fn done, void *ctx);

int rp_ctl_queue_link(struct rp_ctl *ctl, struct rp_span request, struct rp_span reply);
uint64_t rp_ctl_queue_dispatcher(struct rp_ctl *ctl, struct rp_span queue);

/** `fn` on the control thread after each rp_ctl_wake(), at least once for all that came meanwhile.
 */
void rp_ctl_on_wake(struct rp_ctl *ctl, void (*fn)(void *ctx), void *ctx);
/** Any thread. */
void rp_ctl_wake(struct rp_ctl *ctl);

/** False with the errors, a line each: nothing changed. */
bool rp_ctl_reload(struct rp_ctl *ctl, char *error, size_t error_size);
void rp_ctl_restart(struct rp_ctl *ctl);
void rp_ctl_pause(struct rp_ctl *ctl, uint64_t ns);
void rp_ctl_drain(struct rp_ctl *ctl, bool on);
/** `fn` with all metrics, later. */
void rp_ctl_metrics(
	struct rp_ctl *ctl, void (*fn)(void *ctx, const struct rp_metrics *m), void *ctx);
