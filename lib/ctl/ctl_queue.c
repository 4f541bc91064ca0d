/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Admin: the messages and jobs of one queue, and what an operator does to them. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <ctl/ctl_priv.h>
#include <route/key.h>

/** Of Clear and Cancel: in tokens of queue operations; those of the services and of ctl_embed.c
 * have it not.
 */
#define CLEAR_FLAG (1ull << 59)

void ctl_refuse_elsewhere(
	struct rp_ctl *ctl, struct rp_grpc_call *call, const char *queue, uint64_t dispatcher)
{
	char text[RP_NAME_BYTES_MAX + 256], name[128];

	ctl_node_name(ctl, dispatcher, name, sizeof(name));
	snprintf(text, sizeof(text), "queue \"%s\": node %llu%s%s dispatches it: ask there", queue,
		(unsigned long long)dispatcher, name[0] ? " " : "", name);
	rp_grpc_call_finish(call, RP_GRPC_FAILED_PRECONDITION, text);
}

/* ---- looking ---- */

struct message_item {
	Ringpost__V1__QueueMessage m;
	char tail[RP_TAIL_BYTES_MAX + 1], uuid[RP_UUID_TEXT_BYTES + 1];
};

static void message_fill(struct message_item *x, struct rp_engine_view_message *v)
{
	const struct rp_queue_message_info *i = &v->info;

	ringpost__v1__queue_message__init(&x->m);
	memcpy(x->tail, v->tail, i->tail_length);
	x->tail[i->tail_length] = '\0';
	x->uuid[0] = '\0';
	if (!rp_uuid_is_zero(i->uuid)) {
		rp_uuid_format(i->uuid, x->uuid);
		x->uuid[RP_UUID_TEXT_BYTES] = '\0';
	}
	x->m.idx = i->idx;
	x->m.tail = x->tail;
	x->m.state = (char *)i->state;
	x->m.age_ns = i->age_ns;
	x->m.ends = i->ends_in_ns != RP_NEVER;
	x->m.ends_in_ns = x->m.ends ? i->ends_in_ns : 0;
	x->m.attempt = i->attempt;
	x->m.holder_node = i->node;
	x->m.holder = x->uuid;
	x->m.size = v->value_length;
	if (i->process.kind == RP_PROCESS_REQUEST) {
		x->m.request = i->process.request;
		x->m.left_us = i->left_us;
		x->m.priority = i->process.priority;
	}
	x->m.value.data = v->value;
	x->m.value.len = RP_MIN(v->value_length, (uint32_t)sizeof(v->value));
}

static void messages_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__MessagesReply r = RINGPOST__V1__MESSAGES_REPLY__INIT;
	Ringpost__V1__QueueMessage *list[RP_ENGINE_VIEW_MESSAGES_MAX];
	struct message_item items[RP_ENGINE_VIEW_MESSAGES_MAX];
	struct rp_engine_view *v = ctl->view;
	const struct rp_queue_info *q = &v->rows[0].queue;
	Ringpost__V1__Page page;

	if (ctl_view_missing(ctl, a->call)) {
		free(a);
		return;
	}
	if (v->row_count > 0 && !q->dispatching && q->dispatcher &&
		q->dispatcher != ctl->config.self.node) {
		ctl_refuse_elsewhere(ctl, a->call, a->ask.name, q->dispatcher);
		free(a);
		return;
	}
	for (uint32_t i = 0; i < v->message_count; i++) {
		message_fill(&items[i], &v->messages[i]);
		list[i] = &items[i].m;
	}
	r.node = ctl->config.self.node;
	r.messages = list;
	r.n_messages = v->message_count;
	r.page = &page;
	ctl_page_fill(ctl, &page, &a->ask);
	ctl_admin_reply(a->call, &r.base);
	free(a);
}

static void on_messages(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	ctl_list_ask(ctx, call, data, length, RP_ENGINE_VIEW_MESSAGES, messages_reply);
}

/* ---- clearing ---- */

/** A call that waits for its shard. */
struct ctl_clear {
	struct rp_list node;
	uint64_t token;
	struct rp_grpc_call *call;
	char queue[RP_NAME_BYTES_MAX + 1], tail[RP_TAIL_BYTES_MAX + 1];
	bool replay, cancel;
};

static struct ctl_clear *clear_find(struct rp_ctl *ctl, uint64_t token)
{
	struct rp_list *n;

	rp_list_foreach (n, &ctl->clears) {
		struct ctl_clear *x = rp_list_entry(n, struct ctl_clear, node);

		if (x->token == token)
			return x;
	}
	return NULL;
}

static void clear_free(struct ctl_clear *x)
{
	rp_list_unlink(&x->node);
	free(x);
}

static void cancel_reply(
	struct rp_ctl *ctl, struct ctl_clear *x, const struct rp_control_answer *answer)
{
	Ringpost__V1__CancelReply r = RINGPOST__V1__CANCEL_REPLY__INIT;

	if (answer->status != RP_Q_OK && answer->status != RP_Q_NOT_FOUND) {
		rp_grpc_call_finish(x->call,
			(enum rp_grpc_code)rp_etcd_qstatus_code(answer->status),
			rp_qstatus_text(answer->status));
		return;
	}
	r.node = ctl->config.self.node;
	r.queue = x->queue;
	r.tail = x->tail;
	r.requests = answer->deleted;
	ctl_admin_reply(x->call, &r.base);
}

bool ctl_clear_answer(struct rp_ctl *ctl, uint64_t token, const struct rp_control_answer *answer)
{
	Ringpost__V1__ClearReply r = RINGPOST__V1__CLEAR_REPLY__INIT;
	struct ctl_clear *x;

	if (!(token & CLEAR_FLAG))
		return false;
	x = clear_find(ctl, token);
	/* The caller may have gone. */
	if (!x)
		return true;
	if (x->cancel) {
		cancel_reply(ctl, x, answer);
	} else if (answer->status == RP_Q_NOT_HOLDER) {
		rp_grpc_call_finish(x->call, RP_GRPC_FAILED_PRECONDITION,
			"another node dispatches the queue: ask there (ringpostctl queues says "
			"which)");
	} else if (answer->status != RP_Q_OK) {
		rp_grpc_call_finish(x->call, RP_GRPC_ABORTED,
			"the queue is being purged or replayed for another caller");
	} else {
		r.node = ctl->config.self.node;
		r.queue = x->queue;
		r.act = (char *)(x->replay ? "replay" : "purge");
		r.messages = answer->deleted;
		ctl_admin_reply(x->call, &r.base);
	}
	clear_free(x);
	return true;
}

static struct ctl_clear *clear_new(struct rp_ctl *ctl, struct rp_grpc_call *call, const char *queue)
{
	struct ctl_clear *x = calloc(1, sizeof(*x));

	RP_ASSERT(x != NULL);
	x->token = ++ctl->clear_token_last | CLEAR_FLAG;
	x->call = call;
	snprintf(x->queue, sizeof(x->queue), "%s", queue);
	rp_list_push_back(&ctl->clears, &x->node);
	rp_grpc_call_set_user(call, x);
	return x;
}

static void clear_send(
	struct rp_ctl *ctl, struct ctl_clear *x, const struct rp_control_queue_op *op)
{
	if (rp_control_queue_op(ctl->control, op, x->token, ctl_now(ctl)) != 0) {
		rp_grpc_call_finish(x->call, RP_GRPC_UNAVAILABLE,
			"ringpost: the shard's ring is full, ask again");
		clear_free(x);
	}
	ctl_kick(ctl);
}

static void clear_ask(
	struct rp_ctl *ctl, struct rp_grpc_call *call, const Ringpost__V1__ClearRequest *q)
{
	struct rp_span name = {(const uint8_t *)q->queue, strlen(q->queue)};
	bool replay = strcmp(q->act, "replay") == 0;
	struct rp_control_queue_op op = {
		.type = RP_XMSG_PURGE,
		.hash = rp_queue_hash(name.data, name.length),
		.name = name,
		.flags = replay ? RP_QUEUE_REPLAY : RP_QUEUE_PURGE,
		.idx = q->max,
	};
	struct ctl_clear *x;

	if (name.length == 0 || name.length > RP_NAME_BYTES_MAX) {
		rp_grpc_call_finish(call, RP_GRPC_INVALID_ARGUMENT,
			"queue key: the queue's name has 1 to 255 bytes");
		return;
	}
	if (!replay && strcmp(q->act, "purge") != 0) {
		rp_grpc_call_finish(
			call, RP_GRPC_INVALID_ARGUMENT, "ringpost: act: expected purge or replay");
		return;
	}
	x = clear_new(ctl, call, q->queue);
	x->replay = replay;
	clear_send(ctl, x, &op);
}

static void on_clear(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	Ringpost__V1__ClearRequest *q = ringpost__v1__clear_request__unpack(NULL, length, data);

	if (ctl_admin_malformed(call, q))
		return;
	if (ctl_admin_admitted(call))
		clear_ask(ctx, call, q);
	ringpost__v1__clear_request__free_unpacked(q, NULL);
}

static void cancel_ask(
	struct rp_ctl *ctl, struct rp_grpc_call *call, const Ringpost__V1__CancelRequest *q)
{
	struct rp_span name = {(const uint8_t *)q->queue, strlen(q->queue)};
	struct rp_span tail = {(const uint8_t *)q->tail, strlen(q->tail)};
	struct rp_control_queue_op op = {
		.type = RP_XMSG_CANCEL,
		.hash = rp_queue_hash(name.data, name.length),
		.name = name,
		.tail = tail,
		.idx = q->request,
	};
	struct ctl_clear *x;

	if (name.length == 0 || name.length > RP_NAME_BYTES_MAX || tail.length == 0 ||
		tail.length > RP_TAIL_BYTES_MAX) {
		rp_grpc_call_finish(call, RP_GRPC_INVALID_ARGUMENT,
			"queue key: the queue's name and the tail have 1 to 255 bytes");
		return;
	}
	x = clear_new(ctl, call, q->queue);
	x->cancel = true;
	snprintf(x->tail, sizeof(x->tail), "%s", q->tail);
	clear_send(ctl, x, &op);
}

static void on_cancel_job(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	Ringpost__V1__CancelRequest *q = ringpost__v1__cancel_request__unpack(NULL, length, data);

	if (ctl_admin_malformed(call, q))
		return;
	if (ctl_admin_admitted(call))
		cancel_ask(ctx, call, q);
	ringpost__v1__cancel_request__free_unpacked(q, NULL);
}

static void on_clear_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct ctl_clear *x = rp_grpc_call_user(call);

	if (x)
		clear_free(x);
}

void ctl_clears_free(struct rp_ctl *ctl)
{
	while (ctl->clears.next && !rp_list_empty(&ctl->clears))
		clear_free(rp_list_entry(ctl->clears.next, struct ctl_clear, node));
}

const struct rp_grpc_call_ops ctl_messages_ops = {
	.on_message = on_messages, .on_cancel = ctl_admin_on_cancel};
const struct rp_grpc_call_ops ctl_clear_ops = {
	.on_message = on_clear, .on_cancel = on_clear_cancel};
const struct rp_grpc_call_ops ctl_cancel_ops = {
	.on_message = on_cancel_job, .on_cancel = on_clear_cancel};
