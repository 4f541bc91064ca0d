/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches that are consumers of a queue (spec/queues.md, "What a stock client sees"). Their
 * revisions are a sequence of the consumer's own; the store's is untouched.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/fnv.h>

#include <etcdserverpb/rpc.pb-c.h>

#include "etcd_priv.h"

static struct etcd_watch *consumer_find(struct rp_etcd *e, uint64_t handle)
{
	struct etcd_node *n = etcd_table_find(&e->consumers, handle);

	return n ? RP_CONTAINER_OF(n, struct etcd_watch, handle) : NULL;
}

/* Equal hashes are told apart where they are used. */
static uint64_t identity_hash(struct rp_span name, const uint8_t uuid[RP_UUID_BYTES])
{
	return rp_fnv1a(rp_fnv1a(RP_FNV1A_BASIS, name.data, name.length), uuid, RP_UUID_BYTES);
}

static struct etcd_watch *identity_find(
	struct rp_etcd *e, struct rp_span name, const uint8_t uuid[RP_UUID_BYTES])
{
	uint64_t hash = identity_hash(name, uuid);
	struct etcd_node *n = etcd_table_find(&e->identities, hash);

	for (; n; n = n->next) {
		struct etcd_watch *w = RP_CONTAINER_OF(n, struct etcd_watch, identity);

		if (n->key == hash && w->name_length == name.length &&
			memcmp(w->uuid, uuid, RP_UUID_BYTES) == 0 &&
			memcmp(w->bytes, name.data, name.length) == 0)
			return w;
	}
	return NULL;
}

/* No consumer any more: its watch is known to its stream only. */
static void consumer_unhook(struct etcd_watch *w)
{
	struct rp_etcd *e = w->stream->e;

	rp_list_unlink(&w->link);
	etcd_table_remove(&e->consumers, &w->handle);
	etcd_table_remove(&e->identities, &w->identity);
	w->stream->consumer_count--;
	e->stats.consumers--;
}

static void consumer_hook(struct etcd_watch *w)
{
	struct rp_etcd *e = w->stream->e;
	struct rp_span name = {.data = w->bytes, .length = w->name_length};

	etcd_table_add(&e->consumers, &w->handle, ++e->consumer_last);
	etcd_table_add(&e->identities, &w->identity, identity_hash(name, w->uuid));
	w->stream->consumer_count++;
	e->stats.consumers++;
}

/* By the server: with a reason; the id stays known until its client cancels it. */
static void consumer_end(struct etcd_watch *w, const char *reason)
{
	etcd_watch_end(w, reason, 0);
	consumer_unhook(w);
	w->kind = ETCD_WATCH_ENDED;
	w->stream->e->stats.watches--;
}

/* A second watch of the same uuid ends the first. */
static void replace_first(struct rp_etcd *e, const struct rp_route_key *key)
{
	struct etcd_watch *first = identity_find(e, key->name, key->uuid);
	uint64_t handle;

	if (!first)
		return;
	handle = first->handle.key;
	consumer_end(first, "queue: another watch has taken over this consumer");
	e->backend->consumer_close(e->backend->ctx, handle, RP_ETCD_CONSUMER_REPLACED);
}

static bool filters_puts(const Etcdserverpb__WatchCreateRequest *r)
{
	for (size_t i = 0; i < r->n_filters; i++)
		if ((int)r->filters[i] == ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT)
			return true;
	return false;
}

void etcd_consumer_create(struct etcd_stream *s, const Etcdserverpb__WatchCreateRequest *r,
	int64_t id, const struct rp_route_key *key)
{
	struct rp_etcd *e = s->e;
	const struct rp_etcd_backend *b = e->backend;
	struct rp_etcd_consumer_open open = {
		.name = key->name,
		.hash = rp_queue_hash(key->name.data, key->name.length),
		.watched_key = key->consumer,
		.start_revision = r->start_revision,
		.caller = etcd_caller_of(e, s->call),
	};
	const char *reason = "queue: consumers are not served here";
	struct etcd_watch *w;
	int64_t revision = 0;

	if (filters_puts(r)) {
		etcd_stream_refuse(s, "queue: a consumer cannot filter puts out");
		return;
	}
	memcpy(open.uuid, key->uuid, sizeof(open.uuid));
	open.user = etcd_user_of(&open.caller);
	replace_first(e, key);
	w = etcd_watch_new(s, id, key->name, key->consumer);
	w->kind = ETCD_WATCH_CONSUMER;
	w->progress_notify = r->progress_notify;
	memcpy(w->uuid, key->uuid, sizeof(w->uuid));
	consumer_hook(w);
	if (!b->consumer_open ||
		b->consumer_open(b->ctx, &open, w->handle.key, &revision, &reason)) {
		consumer_unhook(w);
		e->stats.watches--;
		etcd_watch_free(w);
		etcd_stream_refuse(s, reason);
		return;
	}
	w->last_revision = revision;
	etcd_watch_created(w, revision);
}

void etcd_consumer_closed(struct etcd_watch *w, enum rp_etcd_consumer_end why)
{
	struct rp_etcd *e = w->stream->e;
	uint64_t handle = w->handle.key;

	consumer_unhook(w);
	e->backend->consumer_close(e->backend->ctx, handle, why);
}

void etcd_consumer_room(struct etcd_watch *w)
{
	struct rp_etcd *e = w->stream->e;

	e->backend->consumer_room(e->backend->ctx, w->handle.key);
}

void etcd_consumer_written(struct etcd_stream *s, uint64_t cookie)
{
	struct rp_etcd *e = s->e;
	struct rp_list *n;

	/* Messages of a stream leave in order: all before this one have left too. */
	while ((n = rp_list_pop_front(&s->accepts))) {
		struct etcd_accept a = *rp_list_entry(n, struct etcd_accept, link);
		bool last = (uint64_t)(uintptr_t)n == cookie;

		free(rp_list_entry(n, struct etcd_accept, link));
		if (e->backend->consumer_accepted && consumer_find(e, a.consumer))
			e->backend->consumer_accepted(
				e->backend->ctx, a.consumer, a.idx, a.mod_revision);
		if (last)
			return;
	}
}

static uint8_t *value_join(const struct rp_etcd_delivery *d, size_t *length)
{
	uint8_t *value;
	size_t at = 0;

	*length = 0;
	for (uint32_t i = 0; i < d->value_count; i++)
		*length += d->value[i].length;
	value = malloc(*length > 0 ? *length : 1);
	RP_ASSERT(value != NULL);
	for (uint32_t i = 0; i < d->value_count; i++) {
		if (d->value[i].length > 0)
			memcpy(value + at, d->value[i].data, d->value[i].length);
		at += d->value[i].length;
	}
	return value;
}

struct consumer_event {
	uint8_t key[RP_DELIVERED_KEY_BYTES_MAX];
	Mvccpb__KeyValue kv;
	Mvccpb__Event event, *events[1];
	Etcdserverpb__ResponseHeader header;
	Etcdserverpb__WatchResponse message;
};

static int event_of(struct consumer_event *m, const struct etcd_watch *w, uint64_t idx,
	struct rp_span tail, int64_t mod_revision)
{
	int length =
		rp_route_key_delivered(etcd_watch_spelled(w), idx, tail, m->key, sizeof(m->key));

	if (length < 0 || mod_revision <= w->last_revision)
		return -EINVAL;
	mvccpb__key_value__init(&m->kv);
	m->kv.key = (ProtobufCBinaryData){.data = m->key, .len = (size_t)length};
	m->kv.mod_revision = mod_revision;
	mvccpb__event__init(&m->event);
	m->event.kv = &m->kv;
	m->events[0] = &m->event;
	m->header = etcd_header(w->stream->e, mod_revision);
	etcdserverpb__watch_response__init(&m->message);
	m->message.header = &m->header;
	m->message.watch_id = etcd_watch_id(w);
	m->message.events = m->events;
	m->message.n_events = 1;
	return 0;
}

int rp_etcd_consumer_deliver(struct rp_etcd *e, uint64_t consumer, const struct rp_etcd_delivery *d)
{
	struct etcd_watch *w = consumer_find(e, consumer);
	struct consumer_event m;
	struct etcd_accept *a;
	uint8_t *value;
	size_t length;
	int status;

	if (consumer & RP_ETCD_PROCESS_FLAG)
		return etcd_work_deliver(e, consumer, d);
	if (!w)
		return -ENOENT;
	status = event_of(&m, w, d->idx, d->tail, d->mod_revision);
	if (status != 0)
		return status;
	value = value_join(d, &length);
	m.kv.value = (ProtobufCBinaryData){.data = value, .len = length};
	m.kv.create_revision = d->mod_revision;
	m.kv.version = d->attempt;
	a = malloc(sizeof(*a));
	RP_ASSERT(a != NULL);
	*a = (struct etcd_accept){
		.consumer = consumer, .idx = d->idx, .mod_revision = d->mod_revision};
	rp_list_push_back(&w->stream->accepts, &a->link);
	status = etcd_stream_offer(w->stream, &m.message, (uint64_t)(uintptr_t)&a->link);
	free(value);
	if (status != 0) {
		rp_list_unlink(&a->link);
		free(a);
		e->stats.deliveries_no_room++;
		if (rp_list_empty(&w->link))
			rp_list_push_back(&w->stream->hungry, &w->link);
		return -EAGAIN;
	}
	w->last_revision = d->mod_revision;
	w->sent = true;
	e->stats.deliveries_sent++;
	return 0;
}

int rp_etcd_consumer_withdraw(struct rp_etcd *e, uint64_t consumer, uint64_t idx,
	struct rp_span tail, int64_t mod_revision)
{
	struct etcd_watch *w = consumer_find(e, consumer);
	struct consumer_event m;
	int status;

	if (consumer & RP_ETCD_PROCESS_FLAG)
		return etcd_work_withdraw(e, consumer, idx);
	if (!w)
		return -ENOENT;
	status = event_of(&m, w, idx, tail, mod_revision);
	if (status != 0)
		return status;
	m.event.type = MVCCPB__EVENT__EVENT_TYPE__DELETE;
	etcd_stream_send(w->stream, &m.message);
	w->last_revision = mod_revision;
	w->sent = true;
	e->stats.withdrawals_sent++;
	return 0;
}

void rp_etcd_consumer_end(struct rp_etcd *e, uint64_t consumer, const char *reason)
{
	struct etcd_watch *w = consumer_find(e, consumer);

	if (consumer & RP_ETCD_PROCESS_FLAG)
		etcd_work_end(e, consumer, reason);
	else if (w)
		consumer_end(w, reason ? reason : "queue: the consumer was ended");
}
