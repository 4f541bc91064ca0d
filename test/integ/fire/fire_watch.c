/* SPDX-License-Identifier: Apache-2.0 */
#include "fire.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <etcdserverpb/rpc.pb-c.h>

#include <base/assert.h>

#define RETRY_NS (50 * RP_NS_PER_MS)
#define ROAM_ACK_NS (10 * RP_NS_PER_S)

/* ---- acknowledges ---- */

static void receipt_free(struct receipt *r)
{
	rp_list_unlink(&r->node);
	rp_loop_timer_cancel(&r->again);
	free(r);
}

static void ack_send(struct receipt *r);

static void ack_again(void *ctx)
{
	ack_send(ctx);
}

static int64_t deleted_of(const uint8_t *data, size_t length)
{
	Etcdserverpb__DeleteRangeResponse *a =
		etcdserverpb__delete_range_response__unpack(NULL, length, data);
	int64_t deleted = a ? a->deleted : -1;

	if (a)
		etcdserverpb__delete_range_response__free_unpacked(a, NULL);
	return deleted;
}

static void ack_done(
	void *ctx, enum rp_grpc_code code, const char *text, const uint8_t *data, size_t length)
{
	struct receipt *r = ctx;
	struct fire *f = r->fire;
	bool may_fail = f->o.victim >= 0, gone = code == RP_GRPC_UNAVAILABLE;
	int64_t deleted = code == RP_GRPC_OK ? deleted_of(data, length) : 0;

	f->acks_open--;
	/* What was asked again may have been done the first time. */
	if (code == RP_GRPC_OK && (deleted == 1 || (deleted == 0 && r->retried))) {
		struct message *m = &r->slot->messages[r->number];

		f->tally.acked += m->acked == 0;
		f->tally.ack_nothing += deleted == 0;
		m->acked++;
	} else if (gone && !may_fail && (!f->stopping || f->o.roam)) {
		f->tally.ack_retries++;
		r->retried = true;
		r->tries++;
		f->acks_open++;
		rp_loop_timer_in(f->loop, &r->again, RETRY_NS);
		return;
	} else if (code == RP_GRPC_OK && deleted == 0 && may_fail) {
		f->tally.ack_nothing++;
	} else if (!may_fail) {
		fire_fault(f, "acknowledge of %s: %s, deleted %" PRId64 ": %s", r->key,
			rp_grpc_code_name(code), deleted, text);
	}
	receipt_free(r);
	fire_put_more(f);
}

static void ack_send(struct receipt *r)
{
	struct fire *f = r->fire;
	Etcdserverpb__DeleteRangeRequest q = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;
	uint8_t packed[512];
	unsigned node = r->consumer->node;
	size_t length;

	/* Any node passes it on. */
	if (r->tries % 2 == 1)
		node = fire_other_node(f, node, ACK_CHANNEL);
	q.key.data = (uint8_t *)r->key;
	q.key.len = strlen(r->key);
	length = etcdserverpb__delete_range_request__pack(&q, packed);
	rp_grpc_channel_unary(f->channels[node][ACK_CHANNEL].grpc, "/etcdserverpb.KV/DeleteRange",
		NULL, 0, f->o.roam ? rp_loop_now_ns(f->loop) + ROAM_ACK_NS : RP_NEVER, packed,
		length, ack_done, r);
}

void fire_ack_more(struct fire *f)
{
	uint64_t now = rp_loop_now_ns(f->loop);

	while (!rp_list_empty(&f->receipts)) {
		struct receipt *r = rp_list_entry(f->receipts.next, struct receipt, node);
		bool last = f->stopping || f->tally.started == f->o.messages;

		if (!last && fire_in_flight(f) <= f->o.in_flight + (uint64_t)f->acks_open &&
			now - r->received_ns < f->o.hold_ns)
			break;
		rp_list_unlink(&r->node);
		f->acks_open++;
		ack_send(r);
	}
}

/* ---- deliveries ---- */

/* <watched key>/idx/<node>-<number> */
static struct slot *slot_of(struct consumer *k, const char *key, uint32_t *number)
{
	char watched[160];
	int length =
		snprintf(watched, sizeof(watched), "/q/%s/consumer/%s/", k->queue->name, k->uuid);
	unsigned node;
	uint64_t idx;
	int end = 0;

	if (strncmp(key, watched, (size_t)length) != 0)
		return NULL;
	if (sscanf(key + length, "%" SCNu64 "/%u-%" SCNu32 "%n", &idx, &node, number, &end) != 3 ||
		key[length + end] != '\0' || node >= k->fire->o.nodes ||
		*number >= k->queue->slots[node].count)
		return NULL;
	return &k->queue->slots[node];
}

static void check_message(struct consumer *k, struct slot *s, uint32_t number,
	const Mvccpb__KeyValue *kv, const char *key)
{
	struct fire *f = k->fire;
	struct message *m = &s->messages[number];
	bool here = (int)k->node == f->o.victim;
	/* Where the dispatcher goes, its successor takes what comes before what was held elsewhere.
	 */
	bool moves = (int)k->queue->first == f->o.victim;
	uint8_t sha[SHA_BYTES];

	fire_sha(kv->value.data, kv->value.len, sha);
	if (kv->value.len != m->size || memcmp(sha, m->sha, SHA_BYTES) != 0)
		fire_fault(f, "%s: %zu bytes that are not the %u that were put", key, kv->value.len,
			m->size);
	/* What the node that went away had shown comes once more, to another. */
	if (m->received > m->received_by_victim)
		fire_fault(f, "%s: received again, attempt %" PRId64, key, kv->version);
	else if (!moves && kv->version == 1 && (int64_t)number <= k->last[s->node])
		fire_fault(f, "%s: behind %" PRId64 " of the same producer", key, k->last[s->node]);
	if (kv->version == 1)
		k->last[s->node] = number;
	if (m->received == 0) {
		fire_slot_received(s);
		f->tally.received++;
		f->tally.received_at[k->node]++;
		if (s->node != k->node) {
			f->tally.crossed++;
			f->tally.crossed_to[k->node]++;
		}
	} else {
		f->tally.again++;
	}
	m->received++;
	m->received_by_victim += here;
}

static void on_event(struct consumer *k, const Mvccpb__Event *e)
{
	struct fire *f = k->fire;
	struct receipt *r = malloc(sizeof(*r) + e->kv->key.len + 1);
	struct slot *s;

	RP_ASSERT(r != NULL);
	memcpy(r->key, e->kv->key.data, e->kv->key.len);
	r->key[e->kv->key.len] = '\0';
	s = slot_of(k, r->key, &r->number);
	if (e->kv->mod_revision <= k->revision && f->o.roam)
		fire_fault(f, "%s: revision %" PRId64 " after %" PRId64, r->key,
			e->kv->mod_revision, k->revision);
	k->revision = e->kv->mod_revision;
	if (!s || e->type != MVCCPB__EVENT__EVENT_TYPE__PUT) {
		if (f->o.victim < 0 || !s)
			fire_fault(f, "%s %s: not expected", s ? "DELETE of" : "key", r->key);
		free(r);
		return;
	}
	check_message(k, s, r->number, e->kv, r->key);
	r->fire = f;
	r->retried = false;
	r->tries = 0;
	r->consumer = k;
	r->slot = s;
	r->received_ns = rp_loop_now_ns(f->loop);
	rp_list_init(&r->node);
	rp_loop_timer_setup(&r->again, ack_again, r);
	rp_list_push_back(&f->receipts, &r->node);
}

static void consumer_open(struct consumer *k);
static void look(void *ctx);

static void on_look(
	void *ctx, enum rp_grpc_code code, const char *text, const uint8_t *data, size_t length)
{
	struct consumer *k = ctx;
	Etcdserverpb__RangeResponse *a =
		code == RP_GRPC_OK ? etcdserverpb__range_response__unpack(NULL, length, data)
				   : NULL;

	if (a && a->count > 0) {
		k->known = true;
		k->fire->queues_known++;
		if (k->second)
			consumer_open(k->second);
	} else if (!k->fire->stopping) {
		rp_loop_timer_in(k->fire->loop, &k->look, RETRY_NS);
	}
	if (a)
		etcdserverpb__range_response__free_unpacked(a, NULL);
}

/* Does the other node know the dispatcher? Then no second one claims. */
static void look(void *ctx)
{
	struct consumer *k = ctx;
	Etcdserverpb__RangeRequest q = ETCDSERVERPB__RANGE_REQUEST__INIT;
	uint8_t packed[256];
	char key[160];

	q.key.len = (size_t)snprintf(key, sizeof(key), "/q/%s", k->queue->name);
	q.key.data = (uint8_t *)key;
	rp_grpc_channel_unary(k->fire->channels[(k->node + 1) % k->fire->o.nodes][ACK_CHANNEL].grpc,
		"/etcdserverpb.KV/Range", NULL, 0, RP_NEVER, packed,
		etcdserverpb__range_request__pack(&q, packed), on_look, k);
}

static void on_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct consumer *k = ctx;
	struct fire *f = k->fire;
	Etcdserverpb__WatchResponse *a = etcdserverpb__watch_response__unpack(NULL, length, data);

	if (!a) {
		fire_fault(f, "a watch response that does not parse");
		return;
	}
	if (a->created && !a->canceled && !k->open) {
		k->open = true;
		f->consumers_open++;
		if (k == &k->queue->consumers[0] && !k->known)
			look(k);
	}
	if (a->canceled) {
		if (!fire_may_go(f))
			fire_fault(
				f, "watch of %s cancelled: %s", k->queue->name, a->cancel_reason);
		rp_grpc_client_call_half_close(call);
	}
	for (size_t i = 0; i < a->n_events; i++)
		on_event(k, a->events[i]);
	etcdserverpb__watch_response__free_unpacked(a, NULL);
	fire_ack_more(f);
}

static void on_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *text, void *ctx)
{
	struct consumer *k = ctx;

	if (k->open)
		k->fire->consumers_open--;
	k->open = false;
	k->call = NULL;
	if (!fire_may_go(k->fire)) {
		fire_fault(k->fire, "watch of %s at node %u ended: %s: %s", k->queue->name, k->node,
			rp_grpc_code_name(code), text);
		return;
	}
	if (k->fire->o.roam) {
		k->node = fire_other_node(k->fire, k->node,
			FIRST_CHANNEL_OF_WATCHES + k->queue->number % WATCH_CHANNELS);
		k->fire->tally.roamed++;
	}
	if (!k->fire->stopping || k->fire->o.roam)
		rp_loop_timer_in(k->fire->loop, &k->reopen, (k->fire->o.roam ? 1 : 4) * RETRY_NS);
}

static const struct rp_grpc_client_ops watch_ops = {
	.on_message = on_message, .on_finish = on_finish};

static void consumer_open(struct consumer *k)
{
	struct fire *f = k->fire;
	Etcdserverpb__WatchCreateRequest w = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	Etcdserverpb__WatchRequest q = ETCDSERVERPB__WATCH_REQUEST__INIT;
	struct channel *c =
		&f->channels[k->node][FIRST_CHANNEL_OF_WATCHES + k->queue->number % WATCH_CHANNELS];
	uint8_t packed[512];
	char key[160];

	if (k->call)
		return;
	if (!f->o.roam || k->revision == 0)
		memset(k->last, 0xff, sizeof(k->last));
	else
		w.start_revision = k->revision + 1;
	w.key.len =
		(size_t)snprintf(key, sizeof(key), "/q/%s/consumer/%s", k->queue->name, k->uuid);
	w.key.data = (uint8_t *)key;
	q.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	q.create_request = &w;
	k->call = rp_grpc_channel_call(
		c->grpc, "/etcdserverpb.Watch/Watch", NULL, 0, RP_NEVER, &watch_ops, k);
	RP_ASSERT(k->call != NULL);
	rp_grpc_client_call_send(k->call, packed, etcdserverpb__watch_request__pack(&q, packed));
}

static void consumer_reopen(void *ctx)
{
	consumer_open(ctx);
}

static void uuid_make(struct fire *f, char text[37])
{
	uint64_t a = rp_rand_u64(&f->rand), b = rp_rand_u64(&f->rand);

	snprintf(text, 37, "%08x-%04x-4%03x-a%03x-%012" PRIx64, (unsigned)(a >> 32),
		(unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff), (unsigned)(b >> 52),
		b & UINT64_C(0xffffffffffff));
}

void fire_consumers_create(struct fire *f)
{
	rp_list_init(&f->receipts);
	for (uint32_t i = 0; i < f->o.queues; i++) {
		struct queue *q = &f->queues[i];

		q->consumer_count = q->kind < 2 ? 1 : 2;
		q->first = f->o.nodes == 2 ? q->kind == 0 || q->kind == 3 : i % f->o.nodes;
		for (unsigned c = 0; c < q->consumer_count; c++) {
			struct consumer *k = &q->consumers[c];

			k->fire = f;
			k->queue = q;
			k->node = (q->first + c) % f->o.nodes;
			uuid_make(f, k->uuid);
			rp_loop_timer_setup(&k->reopen, consumer_reopen, k);
			rp_loop_timer_setup(&k->look, look, k);
			f->consumer_count++;
		}
		if (q->consumer_count == 2)
			q->consumers[0].second = &q->consumers[1];
	}
}

void fire_consumers_open(struct fire *f)
{
	for (uint32_t i = 0; i < f->o.queues; i++)
		consumer_open(&f->queues[i].consumers[0]);
}

void fire_consumers_destroy(struct fire *f)
{
	for (uint32_t i = 0; i < f->o.queues; i++)
		for (unsigned c = 0; c < f->queues[i].consumer_count; c++) {
			struct consumer *k = &f->queues[i].consumers[c];

			rp_loop_timer_cancel(&k->reopen);
			rp_loop_timer_cancel(&k->look);
			if (k->call)
				rp_grpc_client_call_cancel(k->call);
		}
	while (!rp_list_empty(&f->receipts))
		receipt_free(rp_list_entry(f->receipts.next, struct receipt, node));
}
