/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Queues that ride on the message bus (policy `backend: store`): a put pushes to msgbus.<name>, as
 * a message of the bus, and each node takes for its own consumers what they have room for. An entry
 * is held by this node until its consumer acknowledges it. No shard knows of these queues; Redis is
 * their dispatcher.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <base/assert.h>
#include <base/glob.h>
#include <base/log.h>
#include <ctl/ctl_bus_priv.h>
#include <route/key.h>

/** As the queue engine's: of a consumer that asks for nothing else. */
#define PREFETCH 256
/** What a consumer rejected waits so long before anybody gets it again. */
#define REJECT_NS RP_NS_PER_S

/** 2026-01-01: minutes since then fill 24 bits. */
#define EPOCH_MINUTES (1767225600ull / 60)

struct bus_put {
	struct rp_list node; /**< bus->puts */
	struct rp_ctl *ctl;
	uint64_t token;
};

static void *alloc(size_t size)
{
	void *p = calloc(1, size);

	RP_ASSERT(p != NULL);
	return p;
}

static void queue_run(struct bus_queue *q);

/* ---- which queues ---- */

bool ctl_bus_rides(struct rp_ctl *ctl, struct rp_span name)
{
	const struct rp_conf *c = ctl->conf;

	for (unsigned i = 0; i < c->queues.policies_count; i++)
		if (rp_glob_match(c->queues.policies[i].match, name.data, name.length))
			return c->queues.policies[i].backend == RP_CONF_BACKEND_STORE;
	return false;
}

bool ctl_queue_rides(void *ctx, struct rp_span name)
{
	return ctl_bus_rides(ctx, name);
}

static uint32_t depth_max(struct rp_ctl *ctl, struct rp_span name)
{
	const struct rp_conf *c = ctl->conf;

	for (unsigned i = 0; i < c->queues.policies_count; i++)
		if (rp_glob_match(c->queues.policies[i].match, name.data, name.length) &&
			c->queues.policies[i].depth_max > 0)
			return c->queues.policies[i].depth_max;
	return c->limits.queue_depth;
}

static bool name_ok(struct rp_span name)
{
	static const char *const own[] = {"system.", "backlog.", "sender.", "held."};

	for (size_t i = 0; i < RP_ARRAY_SIZE(own); i++)
		if (name.length >= strlen(own[i]) && memcmp(name.data, own[i], strlen(own[i])) == 0)
			return false;
	return name.length <= RP_NAME_BYTES_MAX && !memchr(name.data, 0, name.length);
}

static void list_name(char list[BUS_LIST_SIZE], struct rp_span name)
{
	snprintf(list, BUS_LIST_SIZE, RP_STORE_PREFIX "%.*s", (int)name.length,
		(const char *)name.data);
}

/* ---- answers ---- */

static void answer(struct rp_ctl *ctl, uint64_t token, enum rp_qstatus status, const char *text,
	const struct bus_message *m, bool shown)
{
	struct rp_control_answer a = {.status = status, .deleted = m && status == RP_Q_OK};
	struct rp_etcd_queue_answer e = {.status = status, .message = text, .deleted = a.deleted};

	if (m && shown) {
		a.has_message = e.has_message = true;
		a.tail = (struct rp_span){m->bytes, m->tail_length};
		a.value = e.value = (struct rp_span){m->bytes + m->tail_length, m->value_length};
		a.revision = e.mod_revision = (uint64_t)m->revision;
		a.attempt = e.attempt = 1;
	}
	if (token & CTL_EMBED_FLAG)
		ctl_queue_answer(ctl, token, &a);
	else
		rp_etcd_queue_answer(ctl->etcd, token, &e);
}

/* ---- puts ---- */

static void on_put(void *ctx, const struct rp_store_result *r)
{
	struct bus_put *p = ctx;
	char text[320];

	snprintf(text, sizeof(text), "message bus: %s", r->text);
	if (r->status == RP_STORE_OK)
		answer(p->ctl, p->token, RP_Q_OK, NULL, NULL, false);
	else if (r->status == RP_STORE_FULL)
		answer(p->ctl, p->token, RP_Q_QUEUE_DEPTH, text, NULL, false);
	else
		answer(p->ctl, p->token, RP_Q_NO_DISPATCHER, text, NULL, false);
	rp_list_unlink(&p->node);
	free(p);
}

static void op_put(struct rp_ctl *ctl, const struct rp_control_queue_op *op, uint64_t token)
{
	struct rp_bus_message *m = rp_bus_message_new();
	struct bus_put *p;
	char id[RP_BUS_ID_SIZE], list[BUS_LIST_SIZE], text[RP_TAIL_BYTES_MAX + 1];
	struct rp_span json;
	char *formatted;

	rp_bus_id_new(id);
	rp_bus_text_set(&m->id, id);
	snprintf(text, sizeof(text), "%.*s", (int)op->name.length, (const char *)op->name.data);
	rp_bus_text_set(&m->command, text);
	snprintf(text, sizeof(text), "%.*s", (int)op->tail.length, (const char *)op->tail.data);
	rp_bus_text_set(&m->tag, text);
	rp_bus_message_set_data(m, op->value);
	m->now = (int64_t)time(NULL);
	formatted = rp_bus_message_format(m, &json.length);
	rp_bus_message_free(m);
	if (!formatted) {
		answer(ctl, token, RP_Q_INVALID,
			"message bus: name and tail of a message have to be UTF-8", NULL, false);
		return;
	}
	p = alloc(sizeof(*p));
	p->ctl = ctl;
	p->token = token;
	rp_list_push_back(&ctl->bus->puts, &p->node);
	list_name(list, op->name);
	json.data = (const uint8_t *)formatted;
	rp_store_push(ctl->bus->store, list, json, depth_max(ctl, op->name), on_put, p);
	ctl->bus->puts_count++;
	free(formatted);
}

/* ---- messages ---- */

static void message_free(struct bus_message *m)
{
	rp_list_unlink(&m->node);
	rp_hmap_remove(&m->q->bus->messages, &m->by_idx);
	free(m);
}

static void message_settle(struct bus_message *m)
{
	rp_store_settle(m->q->taker, m->entry);
	m->q->bus->acks_count++;
	message_free(m);
}

/* Its consumer has room for another one. */
static void consumer_less(struct bus_consumer *k)
{
	RP_ASSERT(k->outstanding > 0);
	k->outstanding--;
}

static void message_give_back(struct bus_message *m)
{
	struct bus_queue *q = m->q;

	rp_store_give_back(q->taker, m->entry);
	q->bus->returned_count++;
	message_free(m);
}

static struct bus_message *message_parse(struct bus_queue *q, uint64_t entry, struct rp_span json)
{
	struct rp_bus_message *parsed = rp_bus_message_parse(json);
	size_t length = json.length, tail_length;
	uint8_t *data = parsed ? rp_bus_message_data(parsed, &length) : NULL;
	const char *tail = parsed ? parsed->tag : "";
	struct bus_message *m;

	/* Whatever a program pushed is shown: what is no message as it is. */
	if (parsed && !data)
		length = strlen(parsed->data);
	if (tail[0] == '\0' || strchr(tail, '/') || strlen(tail) > RP_TAIL_BYTES_MAX)
		tail = parsed && parsed->id[0] && !strchr(parsed->id, '/') ? parsed->id : "raw";
	tail_length = RP_MIN(strlen(tail), (size_t)RP_TAIL_BYTES_MAX);
	m = alloc(sizeof(*m) + tail_length + length + 1);
	m->q = q;
	m->entry = entry;
	m->tail_length = tail_length;
	m->value_length = length;
	memcpy(m->bytes, tail, tail_length);
	memcpy(m->bytes + tail_length,
		data	 ? data
		: parsed ? (const uint8_t *)parsed->data
			 : json.data,
		length);
	rp_list_init(&m->node);
	rp_hmap_insert(&q->bus->messages, &m->by_idx, ++q->bus->idx_last);
	free(data);
	rp_bus_message_free(parsed);
	return m;
}

/* ---- delivering ---- */

static int show(struct bus_message *m)
{
	struct bus_consumer *k = m->consumer;
	struct rp_ctl *ctl = m->q->bus->ctl;
	struct rp_span value = {m->bytes + m->tail_length, m->value_length};
	struct rp_control_delivery d = {
		.idx = m->by_idx.key,
		.tail = {m->bytes, m->tail_length},
		.value = &value,
		.value_count = 1,
		.attempt = 1,
	};
	int rc;

	if (m->revision == 0) {
		k->revision = RP_MAX(k->revision + 1, (int64_t)ctl_now(ctl).wall_us);
		m->revision = k->revision;
	}
	d.revision = m->revision;
	/* It may be acknowledged before this returns. */
	rc = ctl_deliver(ctl, k->by_handle.key, &d);
	return rc;
}

/* Shows what waits for the client's room, in order. */
static void consumer_show(struct bus_consumer *k)
{
	struct rp_list *n;

	while (!k->away && (n = rp_list_pop_front(&k->hidden))) {
		struct bus_message *m = rp_list_entry(n, struct bus_message, node);

		rp_list_push_back(&k->shown, &m->node);
		if (show(m) == -EAGAIN) {
			rp_list_unlink(&m->node);
			rp_list_push_front(&k->hidden, &m->node);
			return;
		}
	}
}

static struct bus_consumer *choose(struct bus_queue *q)
{
	struct bus_consumer *best = NULL;
	struct rp_list *n;

	rp_list_foreach (n, &q->consumers) {
		struct bus_consumer *k = rp_list_entry(n, struct bus_consumer, node);

		if (!k->away && k->outstanding < k->prefetch &&
			(!best || k->outstanding < best->outstanding))
			best = k;
	}
	return best;
}

static void on_entry(void *ctx, uint64_t id, struct rp_span entry)
{
	struct bus_queue *q = ctx;
	struct bus_message *m;
	struct bus_consumer *k = choose(q);

	q->wanted -= q->wanted > 0;
	q->bus->taken_count++;
	if (!k) {
		rp_store_give_back(q->taker, id);
		return;
	}
	m = message_parse(q, id, entry);
	m->consumer = k;
	k->outstanding++;
	rp_list_push_back(&k->hidden, &m->node);
	consumer_show(k);
}

/* Takes as much as the consumers have room for; a queue without consumers takes nothing. */
static void queue_run(struct bus_queue *q)
{
	char list[BUS_LIST_SIZE];
	uint32_t room = 0;
	struct rp_list *n;

	rp_list_foreach (n, &q->consumers) {
		struct bus_consumer *k = rp_list_entry(n, struct bus_consumer, node);

		if (!k->away)
			room += k->prefetch - RP_MIN(k->outstanding, k->prefetch);
	}
	if (rp_list_empty(&q->consumers) && rp_list_empty(&q->rejected)) {
		rp_store_take_end(q->taker);
		q->taker = NULL;
		q->wanted = 0;
		return;
	}
	if (!q->taker) {
		list_name(list, (struct rp_span){q->name, q->name_length});
		q->taker = rp_store_take(q->bus->store, list, on_entry, q);
	}
	if (room > q->wanted) {
		rp_store_want(q->taker, room - q->wanted);
		q->wanted = room;
	}
}

static void queue_tidy(struct bus_queue *q)
{
	queue_run(q);
	if (q->taker || !rp_list_empty(&q->consumers))
		return;
	rp_loop_timer_cancel(&q->timer);
	rp_list_unlink(&q->node);
	free(q);
}

/* ---- rejects ---- */

static void on_reject_timer(void *ctx)
{
	struct bus_queue *q = ctx;
	uint64_t now_ns = rp_loop_now_ns(q->bus->ctl->loop);

	while (!rp_list_empty(&q->rejected)) {
		struct bus_message *m = rp_list_entry(q->rejected.next, struct bus_message, node);

		if (m->until_ns > now_ns) {
			rp_loop_timer_at(q->bus->ctl->loop, &q->timer, m->until_ns);
			return;
		}
		message_give_back(m);
	}
	queue_tidy(q);
}

static void reject(struct bus_message *m)
{
	struct bus_queue *q = m->q;

	consumer_less(m->consumer);
	m->consumer = NULL;
	m->until_ns = rp_loop_now_ns(q->bus->ctl->loop) + REJECT_NS;
	rp_list_unlink(&m->node);
	rp_list_push_back(&q->rejected, &m->node);
	q->bus->rejects_count++;
	if (!rp_loop_timer_armed(&q->timer))
		rp_loop_timer_at(q->bus->ctl->loop, &q->timer, m->until_ns);
	queue_run(q);
}

/* ---- operations ---- */

static void op_on_message(struct rp_ctl *ctl, const struct rp_control_queue_op *op, uint64_t token)
{
	struct rp_hmap_node *n = rp_hmap_find(&ctl->bus->messages, op->idx);
	struct bus_message *m = n ? RP_CONTAINER_OF(n, struct bus_message, by_idx) : NULL;
	struct bus_queue *q;

	if (m && (m->q->name_length != op->name.length ||
			 memcmp(m->q->name, op->name.data, op->name.length) != 0 || !m->consumer))
		m = NULL;
	if (!m) {
		answer(ctl, token, op->type == RP_XMSG_ACK ? RP_Q_OK : RP_Q_NOT_FOUND, NULL, NULL,
			false);
		return;
	}
	if (op->type == RP_XMSG_GET) {
		answer(ctl, token, RP_Q_OK, NULL, m, true);
		return;
	}
	if (!(op->flags & RP_QMSG_NO_HOLDER) &&
		memcmp(m->consumer->uuid, op->uuid, RP_UUID_BYTES) != 0) {
		answer(ctl, token, RP_Q_NOT_HOLDER, NULL, NULL, false);
		return;
	}
	if (op->type == RP_XMSG_REJECT) {
		answer(ctl, token, RP_Q_OK, NULL, NULL, false);
		reject(m);
		return;
	}
	q = m->q;
	answer(ctl, token, RP_Q_OK, NULL, m, op->flags & RP_QMSG_WANT_MESSAGE);
	consumer_less(m->consumer);
	message_settle(m);
	queue_run(q);
}

/* Several at once, of one consumer: how many of them were its own is the answer. */
static void op_acks(struct rp_ctl *ctl, const struct rp_control_queue_op *op, uint64_t token)
{
	struct rp_control_answer a = {.status = RP_Q_OK};
	struct bus_queue *q = NULL;

	for (size_t at = 0; at < op->value.length; at += sizeof(uint64_t)) {
		struct rp_hmap_node *n;
		struct bus_message *m;
		uint64_t idx;

		memcpy(&idx, op->value.data + at, sizeof(idx));
		n = rp_hmap_find(&ctl->bus->messages, idx);
		m = n ? RP_CONTAINER_OF(n, struct bus_message, by_idx) : NULL;
		if (!m || !m->consumer || memcmp(m->consumer->uuid, op->uuid, RP_UUID_BYTES) != 0)
			continue;
		q = m->q;
		a.deleted++;
		consumer_less(m->consumer);
		message_settle(m);
	}
	ctl_queue_answer(ctl, token, &a);
	if (q)
		queue_run(q);
}

int ctl_queue_op(struct rp_ctl *ctl, const struct rp_control_queue_op *op, uint64_t token)
{
	if (!ctl_bus_rides(ctl, op->name))
		return rp_control_queue_op(ctl->control, op, token, ctl_now(ctl));
	if (!name_ok(op->name))
		answer(ctl, token, RP_Q_INVALID, "message bus: the name is the bus's own", NULL,
			false);
	else if (op->type == RP_XMSG_PUT && (ctl->draining || ctl->stop_phase > 0))
		answer(ctl, token, RP_Q_STOPPING, NULL, NULL, false);
	else if (op->type == RP_XMSG_PUT)
		op_put(ctl, op, token);
	else if (op->type == RP_XMSG_ACKS)
		op_acks(ctl, op, token);
	else
		op_on_message(ctl, op, token);
	return 0;
}

/* ---- consumers ---- */

static struct bus_consumer *consumer_find(struct rp_ctl *ctl, uint64_t handle)
{
	struct rp_hmap_node *n = rp_hmap_find(&ctl->bus->consumers, handle);

	return n ? RP_CONTAINER_OF(n, struct bus_consumer, by_handle) : NULL;
}

/* What it held goes back, from the youngest on, so that the oldest is first again. */
static void consumer_release(struct bus_consumer *k)
{
	struct rp_list *lists[2] = {&k->hidden, &k->shown};

	for (unsigned i = 0; i < 2; i++)
		while (!rp_list_empty(lists[i]))
			message_give_back(rp_list_entry(lists[i]->prev, struct bus_message, node));
	k->outstanding = 0;
}

static void consumer_free(struct bus_consumer *k)
{
	struct bus_queue *q = k->q;

	consumer_release(k);
	if (!k->away)
		rp_hmap_remove(&q->bus->consumers, &k->by_handle);
	rp_control_consumer_here(q->bus->ctl->control, (struct rp_span){q->name, q->name_length},
		k->uuid, false, ctl_now(q->bus->ctl));
	rp_loop_timer_cancel(&k->timer);
	rp_list_unlink(&k->node);
	free(k);
	queue_tidy(q);
}

/* It did not come back in time. */
static void on_gone(void *ctx)
{
	consumer_free(ctx);
}

static struct bus_queue *queue_get(struct rp_ctl *ctl, struct rp_span name)
{
	struct bus_queue *q;
	struct rp_list *n;

	rp_list_foreach (n, &ctl->bus->queues) {
		q = rp_list_entry(n, struct bus_queue, node);
		if (q->name_length == name.length && memcmp(q->name, name.data, name.length) == 0)
			return q;
	}
	q = alloc(sizeof(*q));
	q->bus = ctl->bus;
	q->name_length = name.length;
	memcpy(q->name, name.data, name.length);
	rp_list_init(&q->consumers);
	rp_list_init(&q->rejected);
	rp_loop_timer_setup(&q->timer, on_reject_timer, q);
	rp_list_push_back(&ctl->bus->queues, &q->node);
	return q;
}

/* Of its record, which clients write before they watch. */
static uint32_t prefetch_of(
	struct rp_ctl *ctl, struct rp_span name, const uint8_t uuid[RP_UUID_BYTES])
{
	uint8_t key[RP_REGISTRY_KEY_BYTES_MAX];
	int length = rp_route_key_consumer(name, uuid, key, sizeof(key));
	struct rp_consumer_record r = {0};
	struct rp_kv_record record;

	if (length > 0 &&
		rp_kv_record_get(rp_control_kv(ctl->control), (struct rp_span){key, (size_t)length},
			&record) &&
		!record.deleted)
		rp_route_consumer_parse(&r, record.value.data, record.value.length);
	return r.prefetch ? r.prefetch : PREFETCH;
}

static struct bus_consumer *consumer_same(struct bus_queue *q, const uint8_t uuid[RP_UUID_BYTES])
{
	struct rp_list *n;

	rp_list_foreach (n, &q->consumers) {
		struct bus_consumer *k = rp_list_entry(n, struct bus_consumer, node);

		if (memcmp(k->uuid, uuid, RP_UUID_BYTES) == 0)
			return k;
	}
	return NULL;
}

/* A return: with a revision what it was shown from there on comes again, else it is released. */
static void consumer_return(struct bus_consumer *k, int64_t start_revision)
{
	struct rp_list batch, *n;

	rp_loop_timer_cancel(&k->timer);
	if (start_revision <= 0) {
		consumer_release(k);
		return;
	}
	rp_list_init(&batch);
	rp_list_splice_back(&batch, &k->shown);
	while ((n = rp_list_pop_front(&batch))) {
		struct bus_message *m = rp_list_entry(n, struct bus_message, node);

		rp_list_push_back(m->revision >= start_revision ? &k->hidden : &k->shown, &m->node);
	}
}

static void on_open_task(void *ctx)
{
	struct ctl_bus *bus = ctx;
	struct rp_list *n, *i;

	rp_list_foreach (n, &bus->queues) {
		struct bus_queue *q = rp_list_entry(n, struct bus_queue, node);

		rp_list_foreach (i, &q->consumers)
			consumer_show(rp_list_entry(i, struct bus_consumer, node));
		queue_run(q);
	}
}

static int consumer_open(struct rp_ctl *ctl, uint64_t handle, struct rp_span name,
	const uint8_t uuid[RP_UUID_BYTES], int64_t start_revision, int64_t *revision)
{
	struct bus_queue *q;
	struct bus_consumer *k;

	if (!name_ok(name))
		return -EINVAL;
	q = queue_get(ctl, name);
	k = consumer_same(q, uuid);
	if (k && !k->away) {
		uint64_t old = k->by_handle.key;

		rp_hmap_remove(&ctl->bus->consumers, &k->by_handle);
		k->away = true;
		ctl_consumer_end(
			ctl, old, "queue consumer: replaced by a later watch of the same uuid");
	}
	if (k) {
		consumer_return(k, start_revision);
	} else {
		k = alloc(sizeof(*k));
		k->q = q;
		memcpy(k->uuid, uuid, sizeof(k->uuid));
		rp_list_init(&k->hidden);
		rp_list_init(&k->shown);
		rp_loop_timer_setup(&k->timer, on_gone, k);
		rp_list_push_back(&q->consumers, &k->node);
	}
	k->away = false;
	k->prefetch = prefetch_of(ctl, name, uuid);
	rp_hmap_insert(&ctl->bus->consumers, &k->by_handle, handle);
	rp_control_consumer_here(ctl->control, name, uuid, true, ctl_now(ctl));
	ctl_kick(ctl);
	*revision = (int64_t)ctl_now(ctl).wall_us - 1;
	if (start_revision > 0)
		*revision = RP_MIN(*revision, start_revision - 1);
	/* The client is told that it watches before it is shown anything. */
	rp_loop_task_post(ctl->loop, &ctl->bus->task);
	return 0;
}

int ctl_consumer_open(struct rp_ctl *ctl, uint64_t handle, struct rp_span name, uint32_t hash,
	const uint8_t uuid[RP_UUID_BYTES], int64_t start_revision, int64_t *revision)
{
	if (ctl_bus_rides(ctl, name))
		return consumer_open(ctl, handle, name, uuid, start_revision, revision);
	return rp_control_consumer_open(
		ctl->control, handle, name, hash, uuid, start_revision, revision, ctl_now(ctl));
}

void ctl_consumer_close(struct rp_ctl *ctl, uint64_t handle, enum rp_queue_close how)
{
	struct bus_consumer *k = consumer_find(ctl, handle);

	if (!k) {
		rp_control_consumer_close(ctl->control, handle, how);
		return;
	}
	if (how != RP_QUEUE_CLOSE_ENDED || ctl->conf->queues.resume_ms == 0) {
		consumer_free(k);
		return;
	}
	rp_hmap_remove(&ctl->bus->consumers, &k->by_handle);
	k->away = true;
	rp_loop_timer_in(ctl->loop, &k->timer, ctl->conf->queues.resume_ms * RP_NS_PER_MS);
}

void ctl_consumer_room(struct rp_ctl *ctl, uint64_t handle)
{
	struct bus_consumer *k = consumer_find(ctl, handle);

	if (k)
		consumer_show(k);
	else
		rp_control_consumer_room(ctl->control, handle);
}

void ctl_bus_end_all(struct rp_ctl *ctl, const char *reason)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &ctl->bus->queues) {
		struct bus_queue *q = rp_list_entry(n, struct bus_queue, node);
		bool last = false;

		while (!last && !rp_list_empty(&q->consumers)) {
			struct bus_consumer *k =
				rp_list_entry(q->consumers.next, struct bus_consumer, node);
			uint64_t handle = k->by_handle.key;
			bool was = !k->away;

			/* With its last consumer the queue may go. */
			last = q->consumers.next->next == &q->consumers;
			consumer_free(k);
			if (was)
				ctl_consumer_end(ctl, handle, reason);
		}
	}
}

/* ---- creation ---- */

static struct rp_hmap map_new(void)
{
	return (struct rp_hmap){.chains = alloc(sizeof(struct rp_hmap_node *) << CTL_PENDING_BITS),
		.bits = CTL_PENDING_BITS};
}

int ctl_bus_create(struct rp_ctl *ctl, char *error, size_t error_size)
{
	const struct rp_conf *c = ctl->conf;
	struct ctl_bus *bus = alloc(sizeof(*bus));
	struct rp_store_config config = {
		.loop = ctl->loop,
		.url = c->store.url,
		.owner = bus->owner,
		.commands_max = c->store.commands_max,
		.cache_entries = c->store.cache_entries,
		.timeout_ms = c->store.timeout_ms,
		.memory_bytes_max = c->limits.queue_bytes,
	};

	snprintf(bus->owner, sizeof(bus->owner), "%" PRIu64, ctl->config.self.node);
	bus->ctl = ctl;
	bus->consumers = map_new();
	bus->messages = map_new();
	/* As the queue engine's, so that one of before is none of now. */
	bus->idx_last = ((ctl_now(ctl).wall_us / 60000000 - EPOCH_MINUTES) & 0xffffff) << 40;
	rp_list_init(&bus->queues);
	rp_list_init(&bus->puts);
	rp_list_init(&bus->asks);
	rp_list_init(&bus->routes);
	rp_loop_task_setup(&bus->task, on_open_task, bus);
	ctl->bus = bus;
	bus->store = rp_store_create(&config);
	if (bus->store)
		return 0;
	snprintf(error, error_size,
		"store.url: expected redis://[:password@]address[:port][/database] or "
		"unix:///path[?db=N]");
	return -EINVAL;
}

void ctl_bus_destroy(struct rp_ctl *ctl)
{
	struct ctl_bus *bus = ctl->bus;
	struct rp_list *n;

	if (!bus)
		return;
	rp_loop_task_cancel(&bus->task);
	/* What is held is found again by this node's next life. */
	rp_store_destroy(bus->store);
	ctl_bus_asks_free(bus);
	ctl_bus_routes_free(bus);
	while ((n = rp_list_pop_front(&bus->puts)))
		free(rp_list_entry(n, struct bus_put, node));
	while (!rp_list_empty(&bus->queues)) {
		struct bus_queue *q = rp_list_entry(bus->queues.next, struct bus_queue, node);

		while ((n = rp_list_pop_front(&q->rejected)))
			free(rp_list_entry(n, struct bus_message, node));
		while (!rp_list_empty(&q->consumers)) {
			struct bus_consumer *k =
				rp_list_entry(q->consumers.next, struct bus_consumer, node);

			while ((n = rp_list_pop_front(&k->hidden)) ||
				(n = rp_list_pop_front(&k->shown)))
				free(rp_list_entry(n, struct bus_message, node));
			rp_loop_timer_cancel(&k->timer);
			rp_list_unlink(&k->node);
			free(k);
		}
		rp_loop_timer_cancel(&q->timer);
		rp_list_unlink(&q->node);
		free(q);
	}
	free(bus->consumers.chains);
	free(bus->messages.chains);
	free(bus);
	ctl->bus = NULL;
}

void ctl_bus_use(struct rp_ctl *ctl, const struct rp_conf *c)
{
	rp_store_set_limits(ctl->bus->store, c->store.commands_max, c->store.cache_entries,
		c->store.timeout_ms);
}

void ctl_bus_metrics(struct rp_ctl *ctl, struct rp_metrics *m)
{
	const struct rp_store_counters *c = rp_store_counters(ctl->bus->store);
	struct rp_store_state state;

	rp_store_state_get(ctl->bus->store, &state);
#define X(field, text) rp_metrics_add(m, RP_METRIC_store_##field, "", c->field);
	RP_STORE_COUNTERS(X)
#undef X
	rp_metrics_add(m, RP_METRIC_store_connected, "", state.connected);
	rp_metrics_add(m, RP_METRIC_store_bytes, "", state.bytes);
	rp_metrics_add(m, RP_METRIC_store_held, "", state.held);
}
