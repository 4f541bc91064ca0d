/* SPDX-License-Identifier: Apache-2.0 */

/* Keys and queues for a program that has the node inside. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <base/assert.h>
#include <ctl/ctl_priv.h>
#include <ctl/embed.h>
#include <kv/watch.h>
#include <route/key.h>
#include <sink/clickhouse.h>

#define RETRY_NS (1 * RP_NS_PER_MS)
/** Events of one watch that wait for its function: then the store is asked for them again. */
#define WATCH_PENDING_MAX 1024

/** A call that is to be answered, with copies of what it was given. */
struct embed_call {
	struct rp_list node;	      /**< embed->calls, or embed->finished */
	struct rp_hmap_node by_token; /**< a queue's operation that the shard has */
	struct rp_list waiting;	      /**< embed->waiting: its ring was full */
	struct rp_ctl *ctl;
	rp_ctl_done_fn done; /**< may be NULL */
	void *ctx;
	int status;
	int64_t result;
	char message[200];
	struct rp_control_queue_op op;
	struct rp_kv_op kv_op;
	struct rp_kv_txn txn;
	uint8_t bytes[];
};

struct rp_ctl_consumer {
	struct rp_list node; /**< embed->all_consumers */
	struct rp_hmap_node by_handle;
	struct rp_ctl *ctl;
	struct rp_ctl_consumer_ops ops;
	void *ctx;
	uint32_t hash;
	uint8_t uuid[RP_UUID_BYTES];
	size_t name_length;
	uint8_t name[RP_NAME_BYTES_MAX];
};

struct watch_event {
	struct rp_list node;
	struct rp_kv_version *version;
};

struct rp_ctl_watch {
	struct rp_list node; /**< embed->watches */
	struct rp_ctl *ctl;
	struct rp_kv_watcher *watcher; /**< NULL: it has ended */
	struct rp_ctl_watch_ops ops;
	void *ctx;
	struct rp_list pending; /**< struct watch_event */
	uint32_t pending_count;
	int64_t compacted; /**< not 0: to be ended, behind what is pending */
	bool starved;	   /**< the store holds events back */
	struct rp_loop_task task;
};

static void *alloc(size_t size)
{
	void *p = calloc(1, size);

	RP_ASSERT(p != NULL);
	return p;
}

/* ---- answers ---- */

static void finish(struct embed_call *x, int status, const char *message, int64_t result)
{
	struct ctl_embed *e = &x->ctl->embed;

	x->status = status;
	x->result = result;
	snprintf(x->message, sizeof(x->message), "%s", message);
	rp_list_unlink(&x->node);
	rp_list_push_back(&e->finished, &x->node);
	rp_loop_task_post(x->ctl->loop, &e->task);
}

static void on_finished(void *ctx)
{
	struct ctl_embed *e = ctx;
	struct rp_list batch, *n;

	/* What these begin is answered in a turn of its own. */
	rp_list_init(&batch);
	rp_list_splice_back(&batch, &e->finished);
	while ((n = rp_list_pop_front(&batch))) {
		struct embed_call *x = rp_list_entry(n, struct embed_call, node);

		if (x->done)
			x->done(x->ctx, x->status, x->message, x->result);
		free(x);
	}
}

static struct embed_call *call_new(struct rp_ctl *ctl, size_t bytes, rp_ctl_done_fn done, void *ctx)
{
	struct embed_call *x = alloc(sizeof(*x) + bytes);

	x->ctl = ctl;
	x->done = done;
	x->ctx = ctx;
	rp_list_init(&x->waiting);
	rp_list_push_back(&ctl->embed.calls, &x->node);
	return x;
}

static struct rp_span copy(uint8_t **at, struct rp_span s)
{
	struct rp_span out = {*at, s.length};

	if (s.length > 0)
		memcpy(*at, s.data, s.length);
	*at += s.length;
	return out;
}

/* ---- keys ---- */

static void on_written(
	void *ctx, int grpc_status, const char *message, const struct rp_kv_result *r)
{
	struct embed_call *x = ctx;

	if (grpc_status != RP_GRPC_OK)
		finish(x, grpc_status, message, 0);
	else if (r->error != RP_KV_OK)
		finish(x, RP_GRPC_FAILED_PRECONDITION, rp_kv_error_text(r->error), 0);
	else if (x->kv_op.type == RP_KV_OP_DELETE)
		finish(x, RP_GRPC_OK, "", r->txn.op_count ? r->txn.ops[0].del.deleted : 0);
	else
		finish(x, RP_GRPC_OK, "", r->revision);
}

static void write_key(struct embed_call *x)
{
	struct rp_ctl *ctl = x->ctl;
	struct rp_span key = x->kv_op.type == RP_KV_OP_PUT ? x->kv_op.put.key : x->kv_op.del.key;
	struct rp_route_key k;
	enum rp_kv_error error;

	rp_route_key_parse(&k, key.data, key.length);
	if (k.kind == RP_KEY_INVALID || k.kind == RP_KEY_SINK || rp_route_key_is_traffic(&k)) {
		finish(x, RP_GRPC_INVALID_ARGUMENT,
			k.kind == RP_KEY_SINK
				? rp_key_reason_text(RP_KEY_REASON_CLICKHOUSE_CONSUMER)
			: k.kind == RP_KEY_INVALID ? rp_key_reason_text(k.reason)
						   : "queue key: a message is no key",
			0);
		return;
	}
	if (ctl_key_is_reserved(key)) {
		finish(x, RP_GRPC_PERMISSION_DENIED, CTL_TEXT_RESERVED, 0);
		return;
	}
	if (rp_route_key_is_registry(&k)) {
		ctl->backend.record_write(ctl, &k,
			x->kv_op.type == RP_KV_OP_PUT ? x->kv_op.put.value : (struct rp_span){0}, 0,
			false, NULL, on_written, x);
		return;
	}
	x->txn = (struct rp_kv_txn){.success = &x->kv_op, .success_count = 1, .single = true};
	error = rp_kv_txn_check(&x->txn, 1);
	if (error != RP_KV_OK)
		finish(x, RP_GRPC_INVALID_ARGUMENT, rp_kv_error_text(error), 0);
	else
		ctl->backend.propose(ctl, &x->txn, on_written, x);
}

void rp_ctl_put(struct rp_ctl *ctl, struct rp_span key, struct rp_span value, rp_ctl_done_fn done,
	void *ctx)
{
	struct embed_call *x = call_new(ctl, key.length + value.length, done, ctx);
	uint8_t *at = x->bytes;

	x->kv_op.type = RP_KV_OP_PUT;
	x->kv_op.put.key = copy(&at, key);
	x->kv_op.put.value = copy(&at, value);
	write_key(x);
}

void rp_ctl_delete(struct rp_ctl *ctl, struct rp_span key, rp_ctl_done_fn done, void *ctx)
{
	struct embed_call *x = call_new(ctl, key.length, done, ctx);
	uint8_t *at = x->bytes;

	x->kv_op.type = RP_KV_OP_DELETE;
	x->kv_op.del.key = copy(&at, key);
	write_key(x);
}

size_t rp_ctl_range(struct rp_ctl *ctl, struct rp_span key, struct rp_span end, int64_t limit,
	bool (*fn)(void *ctx, const struct rp_kv_version *v), void *ctx)
{
	struct rp_kv_range range = {.key = key, .end = end, .limit = limit};
	struct rp_kv_range_result r;
	size_t n = 0;
	bool more = true;

	if (rp_kv_range(rp_control_kv(ctl->control), &range, &r) != RP_KV_OK)
		return 0;
	while (more && n < r.item_count)
		more = fn(ctx, r.items[n++]);
	rp_kv_range_result_clear(&r);
	return n;
}

/* ---- watches ---- */

static void event_free(struct watch_event *v)
{
	rp_kv_version_unref(v->version);
	free(v);
}

static void watch_free(struct rp_ctl_watch *w)
{
	struct rp_list *n;

	rp_kv_watcher_cancel(w->watcher);
	rp_loop_task_cancel(&w->task);
	while ((n = rp_list_pop_front(&w->pending)))
		event_free(rp_list_entry(n, struct watch_event, node));
	rp_list_unlink(&w->node);
	free(w);
}

/* One event a turn of the loop's tasks: its function may end the watch. */
static void on_watch_task(void *ctx)
{
	struct rp_ctl_watch *w = ctx;
	struct rp_list *n = rp_list_pop_front(&w->pending);
	struct rp_ctl_watch_ops ops = w->ops;
	void *user = w->ctx;

	if (n) {
		struct watch_event *v = rp_list_entry(n, struct watch_event, node);

		w->pending_count--;
		if (w->starved && w->pending_count < WATCH_PENDING_MAX / 2) {
			w->starved = false;
			rp_kv_watcher_resume(w->watcher);
			ctl_kick(w->ctl);
		}
		if (w->pending_count > 0 || w->compacted)
			rp_loop_task_post(w->ctl->loop, &w->task);
		ops.event(user, v->version);
		event_free(v);
		return;
	}
	if (w->compacted) {
		int64_t compacted = w->compacted;

		watch_free(w);
		if (ops.end)
			ops.end(user, compacted);
	}
}

static bool on_events(void *ctx, struct rp_kv_watcher *watcher, int64_t revision,
	const struct rp_kv_event *events, uint32_t count)
{
	struct rp_ctl_watch *w = ctx;

	if (w->pending_count >= WATCH_PENDING_MAX) {
		w->starved = true;
		return false;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct watch_event *v = alloc(sizeof(*v));

		/* The reference is what makes it ours. */
		v->version = rp_kv_version_ref((struct rp_kv_version *)events[i].kv);
		rp_list_push_back(&w->pending, &v->node);
		w->pending_count++;
	}
	rp_loop_task_post(w->ctl->loop, &w->task);
	return true;
}

static void on_compacted(void *ctx, struct rp_kv_watcher *watcher, int64_t compacted_revision)
{
	struct rp_ctl_watch *w = ctx;

	w->watcher = NULL;
	w->compacted = compacted_revision;
	rp_loop_task_post(w->ctl->loop, &w->task);
}

struct rp_ctl_watch *rp_ctl_watch(struct rp_ctl *ctl, struct rp_span key, struct rp_span end,
	int64_t start_revision, const struct rp_ctl_watch_ops *ops, void *ctx)
{
	static const struct rp_kv_watch_ops kv_ops = {
		.on_events = on_events, .on_compacted = on_compacted};
	struct rp_ctl_watch *w = alloc(sizeof(*w));
	struct rp_kv_watch_options o = {
		.key = key, .end = end, .start_revision = start_revision, .ops = &kv_ops, .ctx = w};

	w->ctl = ctl;
	w->ops = *ops;
	w->ctx = ctx;
	rp_list_init(&w->pending);
	rp_loop_task_setup(&w->task, on_watch_task, w);
	rp_list_push_back(&ctl->embed.watches, &w->node);
	w->watcher = rp_kv_watch(rp_control_kv(ctl->control), &o);
	if (w->watcher) {
		ctl_kick(ctl);
		return w;
	}
	watch_free(w);
	return NULL;
}

void rp_ctl_unwatch(struct rp_ctl_watch *w)
{
	if (w)
		watch_free(w);
}

/* ---- queues: operations ---- */

static void op_start(struct embed_call *x)
{
	struct rp_ctl *ctl = x->ctl;
	struct ctl_embed *e = &ctl->embed;
	uint64_t token = CTL_EMBED_FLAG | ++e->token_last;

	if (!rp_repl_ready(rp_control_repl(ctl->control))) {
		finish(x, RP_GRPC_UNAVAILABLE, CTL_TEXT_NOT_READY, 0);
		return;
	}
	rp_hmap_insert(&e->ops, &x->by_token, token);
	if (ctl_queue_op(ctl, &x->op, token) == 0) {
		ctl_kick(ctl);
		return;
	}
	rp_hmap_remove(&e->ops, &x->by_token);
	rp_list_push_back(&e->waiting, &x->waiting);
	if (!rp_loop_timer_armed(&e->retry))
		rp_loop_timer_in(ctl->loop, &e->retry, RETRY_NS);
}

static void on_retry(void *ctx)
{
	struct ctl_embed *e = ctx;
	struct rp_list batch, *n;

	rp_list_init(&batch);
	rp_list_splice_back(&batch, &e->waiting);
	/* In order, and behind the first that finds no room they all wait again. */
	while (rp_list_empty(&e->waiting) && (n = rp_list_pop_front(&batch)))
		op_start(rp_list_entry(n, struct embed_call, waiting));
	rp_list_splice_back(&e->waiting, &batch);
}

bool ctl_embed_answer(struct rp_ctl *ctl, uint64_t token, const struct rp_control_answer *a)
{
	struct rp_hmap_node *n;
	struct embed_call *x;

	if (!(token & CTL_EMBED_FLAG))
		return false;
	n = rp_hmap_find(&ctl->embed.ops, token);
	if (!n)
		return true;
	x = RP_CONTAINER_OF(n, struct embed_call, by_token);
	rp_hmap_remove(&ctl->embed.ops, &x->by_token);
	/* The shard goes on: there may be room for those that wait. */
	if (!rp_list_empty(&ctl->embed.waiting))
		rp_loop_task_post(ctl->loop, &ctl->embed.again);
	finish(x, rp_etcd_qstatus_code(a->status),
		a->status == RP_Q_OK ? "" : rp_qstatus_text(a->status), a->deleted);
	return true;
}

void rp_ctl_send(struct rp_ctl *ctl, struct rp_span queue, struct rp_span tail,
	struct rp_span value, rp_ctl_done_fn done, void *ctx)
{
	struct embed_call *x = call_new(ctl, queue.length + tail.length + value.length, done, ctx);
	uint8_t *at = x->bytes;

	x->op = (struct rp_control_queue_op){
		.type = RP_XMSG_PUT,
		.hash = rp_queue_hash(queue.data, queue.length),
		.name = copy(&at, queue),
		.tail = copy(&at, tail),
		.value = copy(&at, value),
	};
	if (queue.length == 0 || queue.length > RP_NAME_BYTES_MAX ||
		memchr(queue.data, '/', queue.length))
		finish(x, RP_GRPC_INVALID_ARGUMENT, "queue key: no name of a queue", 0);
	else if (tail.length == 0 || tail.length > RP_TAIL_BYTES_MAX ||
		 memchr(tail.data, '/', tail.length))
		finish(x, RP_GRPC_INVALID_ARGUMENT, "queue key: no tail of a message", 0);
	else if (value.length > rp_conf_message_bytes(ctl->conf))
		finish(x, RP_GRPC_INVALID_ARGUMENT, rp_qstatus_text(RP_Q_TOO_LARGE), 0);
	else
		op_start(x);
}

/* ---- queues: consumers ---- */

static struct rp_ctl_consumer *consumer_find(struct rp_ctl *ctl, uint64_t handle)
{
	struct rp_hmap_node *n = rp_hmap_find(&ctl->embed.consumers, handle);

	return n ? RP_CONTAINER_OF(n, struct rp_ctl_consumer, by_handle) : NULL;
}

static void consumer_free(struct rp_ctl_consumer *k)
{
	rp_hmap_remove(&k->ctl->embed.consumers, &k->by_handle);
	rp_list_unlink(&k->node);
	free(k);
}

/* Fields of a new consumer are put before it comes, as clients put them. */
static int fields_put(struct rp_ctl *ctl, struct rp_ctl_consumer *k, const char *fields)
{
	uint8_t bytes[RP_REGISTRY_KEY_BYTES_MAX];
	int length = rp_route_key_consumer(
		(struct rp_span){k->name, k->name_length}, k->uuid, bytes, sizeof(bytes));
	struct rp_route_key key;
	const char *message;
	int rc;

	if (!fields || !fields[0])
		return 0;
	/* The name is that of a queue, and of a sink's when it is for ClickHouse. */
	rp_route_key_parse(&key, bytes, (size_t)length);
	if (!rp_route_key_is_registry(&key))
		return -EINVAL;
	/* Nobody waits for the majority's word on it. */
	rc = rp_control_record_write(ctl->control, &key,
		(struct rp_span){(const uint8_t *)fields, strlen(fields)}, 0, false,
		CTL_EMBED_FLAG | ++ctl->embed.token_last, &message, ctl_now(ctl));
	return rc == 0 || rc == -EAGAIN ? rc : -EINVAL;
}

struct rp_ctl_consumer *ctl_consume_own(struct rp_ctl *ctl, struct rp_span queue,
	const uint8_t *uuid, const char *fields, int64_t start_revision,
	const struct rp_ctl_consumer_ops *ops, void *ctx)
{
	struct ctl_embed *e = &ctl->embed;
	struct rp_ctl_consumer *k;
	int64_t revision;
	int rc = 0;

	if (queue.length == 0 || queue.length > RP_NAME_BYTES_MAX ||
		memchr(queue.data, '/', queue.length)) {
		errno = EINVAL;
		return NULL;
	}
	if (ctl->draining || !rp_repl_ready(rp_control_repl(ctl->control))) {
		errno = ctl->draining ? EBUSY : EAGAIN;
		return NULL;
	}
	k = alloc(sizeof(*k));
	k->ctl = ctl;
	k->ops = *ops;
	k->ctx = ctx;
	k->hash = rp_queue_hash(queue.data, queue.length);
	k->name_length = queue.length;
	memcpy(k->name, queue.data, queue.length);
	if (uuid)
		memcpy(k->uuid, uuid, sizeof(k->uuid));
	else
		while (getrandom(k->uuid, sizeof(k->uuid), 0) != (ssize_t)sizeof(k->uuid))
			;
	rp_hmap_insert(&e->consumers, &k->by_handle, CTL_EMBED_FLAG | ++e->token_last);
	rp_list_push_back(&e->all_consumers, &k->node);
	rc = fields_put(ctl, k, fields);
	if (rc == 0)
		rc = ctl_consumer_open(ctl, k->by_handle.key,
			(struct rp_span){k->name, k->name_length}, k->hash, k->uuid, start_revision,
			&revision);
	ctl_kick(ctl);
	if (rc == 0)
		return k;
	consumer_free(k);
	errno = -rc;
	return NULL;
}

struct rp_ctl_consumer *rp_ctl_consume(struct rp_ctl *ctl, struct rp_span queue,
	const uint8_t *uuid, const char *fields, int64_t start_revision,
	const struct rp_ctl_consumer_ops *ops, void *ctx)
{
	if (rp_clickhouse_is_queue(queue)) {
		errno = EINVAL;
		return NULL;
	}
	return ctl_consume_own(ctl, queue, uuid, fields, start_revision, ops, ctx);
}

void rp_ctl_consumer_close(struct rp_ctl_consumer *k, bool left)
{
	if (!k)
		return;
	ctl_consumer_close(
		k->ctl, k->by_handle.key, left ? RP_QUEUE_CLOSE_LEFT : RP_QUEUE_CLOSE_ENDED);
	ctl_kick(k->ctl);
	consumer_free(k);
}

void rp_ctl_consumer_ack(
	struct rp_ctl_consumer *k, uint64_t idx, bool reject, rp_ctl_done_fn done, void *ctx)
{
	struct embed_call *x = call_new(k->ctl, k->name_length, done, ctx);
	uint8_t *at = x->bytes;

	x->op = (struct rp_control_queue_op){
		.type = reject ? RP_XMSG_REJECT : RP_XMSG_ACK,
		.hash = k->hash,
		.name = copy(&at, (struct rp_span){k->name, k->name_length}),
		.idx = idx,
	};
	memcpy(x->op.uuid, k->uuid, sizeof(k->uuid));
	op_start(x);
}

void rp_ctl_consumer_acks(struct rp_ctl_consumer *k, const uint64_t *idx, unsigned count,
	rp_ctl_done_fn done, void *ctx)
{
	const struct rp_span numbers = {(const uint8_t *)idx, count * sizeof(*idx)};
	struct embed_call *x = call_new(k->ctl, k->name_length + numbers.length, done, ctx);
	uint8_t *at = x->bytes;

	RP_ASSERT(count > 0 && count <= RP_XMSG_ACKS_MAX);
	x->op = (struct rp_control_queue_op){
		.type = RP_XMSG_ACKS,
		.hash = k->hash,
		.name = copy(&at, (struct rp_span){k->name, k->name_length}),
		.value = copy(&at, numbers),
	};
	memcpy(x->op.uuid, k->uuid, sizeof(k->uuid));
	op_start(x);
}

static void *value_join(const struct rp_control_delivery *d, size_t *length)
{
	uint8_t *value, *at;

	*length = 0;
	for (uint32_t i = 0; i < d->value_count; i++)
		*length += d->value[i].length;
	value = at = alloc(*length + 1);
	for (uint32_t i = 0; i < d->value_count; i++)
		copy(&at, d->value[i]);
	return value;
}

bool ctl_embed_deliver(
	struct rp_ctl *ctl, uint64_t handle, const struct rp_control_delivery *d, int *rc)
{
	struct rp_ctl_consumer *k;
	struct rp_ctl_message m = {
		.idx = d->idx, .tail = d->tail, .attempt = d->attempt, .revision = d->revision};
	void *joined = NULL;

	if (!(handle & CTL_EMBED_FLAG))
		return false;
	k = consumer_find(ctl, handle);
	*rc = k ? 0 : -ENOENT;
	if (!k)
		return true;
	/* It is the program's from here on: it may acknowledge at once. */
	rp_control_consumer_accepted(ctl->control, handle, d->idx);
	if (d->value_count == 1) {
		m.value = d->value[0];
	} else if (d->value_count > 1) {
		joined = value_join(d, &m.value.length);
		m.value.data = joined;
	}
	k->ops.message(k->ctx, &m);
	free(joined);
	return true;
}

bool ctl_embed_withdraw(struct rp_ctl *ctl, uint64_t handle, uint64_t idx)
{
	struct rp_ctl_consumer *k = consumer_find(ctl, handle);

	if (k && k->ops.withdrawn)
		k->ops.withdrawn(k->ctx, idx);
	return handle & CTL_EMBED_FLAG;
}

bool ctl_embed_end(struct rp_ctl *ctl, uint64_t handle, const char *reason)
{
	struct rp_ctl_consumer *k = consumer_find(ctl, handle);
	struct rp_ctl_consumer_ops ops;
	void *user;

	if (!k)
		return handle & CTL_EMBED_FLAG;
	ops = k->ops;
	user = k->ctx;
	consumer_free(k);
	if (ops.end)
		ops.end(user, reason);
	return true;
}

/* ---- creation ---- */

static struct rp_hmap map_new(void)
{
	return (struct rp_hmap){.chains = alloc(sizeof(struct rp_hmap_node *) << CTL_PENDING_BITS),
		.bits = CTL_PENDING_BITS};
}

void ctl_embed_create(struct rp_ctl *ctl)
{
	struct ctl_embed *e = &ctl->embed;

	e->ops = map_new();
	e->consumers = map_new();
	rp_list_init(&e->calls);
	rp_list_init(&e->finished);
	rp_list_init(&e->waiting);
	rp_list_init(&e->watches);
	rp_list_init(&e->all_consumers);
	rp_loop_task_setup(&e->task, on_finished, e);
	rp_loop_task_setup(&e->again, on_retry, e);
	rp_loop_timer_setup(&e->retry, on_retry, e);
}

void ctl_embed_destroy(struct rp_ctl *ctl)
{
	struct ctl_embed *e = &ctl->embed;
	struct rp_list *lists[2] = {&e->calls, &e->finished}, *n;

	if (!e->ops.chains)
		return;
	rp_loop_task_cancel(&e->task);
	rp_loop_task_cancel(&e->again);
	rp_loop_timer_cancel(&e->retry);
	while (!rp_list_empty(&e->watches))
		watch_free(rp_list_entry(e->watches.next, struct rp_ctl_watch, node));
	while (!rp_list_empty(&e->all_consumers))
		consumer_free(rp_list_entry(e->all_consumers.next, struct rp_ctl_consumer, node));
	for (unsigned i = 0; i < 2; i++)
		while ((n = rp_list_pop_front(lists[i])))
			free(rp_list_entry(n, struct embed_call, node));
	free(e->ops.chains);
	free(e->consumers.chains);
	e->ops.chains = NULL;
}
