/* SPDX-License-Identifier: Apache-2.0 */
#include "fire.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <etcdserverpb/rpc.pb-c.h>

#include <base/assert.h>

#define RETRY_NS (50 * RP_NS_PER_MS)
/* With a node that may go: messages of a producer that were not received yet. */
#define OPEN_MAX 16
/* A put waits that long for a node that may go; else for ever. */
#define VICTIM_PUT_NS (20 * RP_NS_PER_S)

/* Log-uniform from 0 to small_bytes. */
static uint32_t draw_size(struct fire *f)
{
	double top = log((double)f->o.small_bytes + 1);

	return (uint32_t)(exp(rp_rand_unit(&f->rand) * top)) - 1;
}

static struct message *message_add(struct slot *s, uint32_t size)
{
	if (s->count == s->room) {
		s->room = s->room ? s->room * 2 : 64;
		s->messages = realloc(s->messages, s->room * sizeof(*s->messages));
		RP_ASSERT(s->messages != NULL);
	}
	s->messages[s->count] = (struct message){.size = size};
	return &s->messages[s->count++];
}

static void slot_wait(struct slot *s)
{
	struct fire *f = s->fire;

	if (s->busy || f->stopping || rp_loop_timer_armed(&s->again) || !rp_list_empty(&s->waiting))
		return;
	if (!fire_may_go(f) ? s->next == s->count : s->open >= OPEN_MAX)
		return;
	rp_list_push_back(&f->waiting, &s->waiting);
}

static void slot_again(void *ctx)
{
	struct slot *s = ctx;

	slot_wait(s);
	fire_put_more(s->fire);
}

void fire_slots_create(struct fire *f)
{
	uint32_t all = f->o.queues * f->o.nodes;

	rp_list_init(&f->waiting);
	for (uint32_t i = 0; i < all; i++) {
		struct queue *q = &f->queues[i / f->o.nodes];
		struct slot *s = &q->slots[i % f->o.nodes];

		s->fire = f;
		s->queue = q;
		s->node = i % f->o.nodes;
		rp_list_init(&s->waiting);
		rp_loop_timer_setup(&s->again, slot_again, s);
	}
	if (!fire_may_go(f))
		for (uint32_t i = 0; i < f->o.messages; i++)
			message_add(&f->queues[i % f->o.queues].slots[i / f->o.queues % f->o.nodes],
				draw_size(f));
	for (uint32_t i = 0; !fire_may_go(f) && i < f->o.large;) {
		struct slot *s = &f->queues[rp_rand_below(&f->rand, f->o.queues)]
					  .slots[rp_rand_below(&f->rand, f->o.nodes)];
		struct message *m =
			s->count ? &s->messages[rp_rand_below(&f->rand, s->count)] : NULL;

		if (!m || m->size == f->o.large_bytes)
			continue;
		m->size = f->o.large_bytes;
		i++;
	}
	for (uint32_t i = 0; i < all; i++)
		slot_wait(&f->queues[i / f->o.nodes].slots[i % f->o.nodes]);
}

void fire_slot_received(struct slot *s)
{
	if (s->open > 0)
		s->open--;
	slot_wait(s);
}

void fire_slots_victim_gone(struct fire *f)
{
	for (uint32_t i = 0; i < f->o.queues * f->o.nodes; i++) {
		struct queue *q = &f->queues[i / f->o.nodes];

		if (q->first != (unsigned)f->o.victim)
			continue;
		q->slots[i % f->o.nodes].open = 0;
		slot_wait(&q->slots[i % f->o.nodes]);
	}
}

void fire_slots_destroy(struct fire *f)
{
	for (uint32_t i = 0; i < f->o.queues * f->o.nodes; i++) {
		struct slot *s = &f->queues[i / f->o.nodes].slots[i % f->o.nodes];

		rp_loop_timer_cancel(&s->again);
		free(s->messages);
	}
}

static void fill(struct slot *s, uint32_t number, uint8_t *out, uint32_t size)
{
	struct rp_rand r = {s->fire->o.seed ^ ((uint64_t)s->queue->number << 40) ^
			    ((uint64_t)s->node << 32) ^ number};

	for (uint32_t at = 0; at < size; at += 8) {
		uint64_t word = rp_rand_u64(&r);

		memcpy(out + at, &word, size - at < 8 ? size - at : 8);
	}
}

static void slot_put(struct slot *s);

/* A node that goes said so itself, or nobody was there: the put was not taken. */
static bool is_refusal(const char *text)
{
	static const char *const texts[] = {"the node is stopping or draining", "server stopped",
		"Connection refused", "not connected", "REFUSED_STREAM"};
	bool is = false;

	for (size_t i = 0; i < RP_ARRAY_SIZE(texts); i++)
		is = is || strstr(text, texts[i]);
	return is;
}

static void put_done(
	void *ctx, enum rp_grpc_code code, const char *text, const uint8_t *data, size_t length)
{
	struct slot *s = ctx;
	struct fire *f = s->fire;
	struct message *m = &s->messages[s->next];
	uint64_t took = rp_loop_now_ns(f->loop) - s->sent_ns;

	s->busy = false;
	if (code == RP_GRPC_OK) {
		m->state = MESSAGE_PUT;
		s->next++;
		s->open += m->received == 0;
		f->tally.put++;
		f->tally.put_at[s->node]++;
		f->tally.put_ns_sum += took;
		f->tally.put_ns_max = took > f->tally.put_ns_max ? took : f->tally.put_ns_max;
	} else if (fire_may_go(f) && !(f->o.roam && is_refusal(text))) {
		if (f->o.roam)
			fprintf(stderr, "put at node %u, outcome not known: %s: %s\n", s->node,
				rp_grpc_code_name(code), text);
		m->state = MESSAGE_UNKNOWN;
		s->next++;
		f->tally.unknown++;
		rp_loop_timer_in(f->loop, &s->again, RETRY_NS);
	} else if (code == RP_GRPC_RESOURCE_EXHAUSTED || code == RP_GRPC_UNAVAILABLE) {
		if (f->tally.put_retries++ < 5)
			fprintf(stderr, "put at node %u: %s: %s\n", s->node,
				rp_grpc_code_name(code), text);
		f->tally.started--;
		rp_loop_timer_in(f->loop, &s->again, RETRY_NS);
	} else {
		fire_fault(f, "put of %" PRIu32 " on %s at node %u: %s: %s", s->next,
			s->queue->name, s->node, rp_grpc_code_name(code), text);
		s->next++;
	}
	slot_wait(s);
	fire_put_more(f);
	fire_ack_more(f);
}

static void slot_put(struct slot *s)
{
	struct fire *f = s->fire;
	struct message *m = s->next < s->count ? &s->messages[s->next] : NULL;
	Etcdserverpb__PutRequest q = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct channel *c = &f->channels[s->node][s->queue->number % PUT_CHANNELS];
	char key[160];
	size_t length;

	if (!m)
		m = message_add(s, draw_size(f));
	q.key.len = (size_t)snprintf(
		key, sizeof(key), "/q/%s/producer/%u-%u", s->queue->name, s->node, s->next);
	q.key.data = (uint8_t *)key;
	q.value.data = f->scratch;
	q.value.len = m->size;
	/* The limit is that of the whole request, key and all. */
	if (m->size == f->o.large_bytes) {
		m->size -= (uint32_t)(etcdserverpb__put_request__get_packed_size(&q) - m->size);
		q.value.len = m->size;
	}
	fill(s, s->next, f->scratch, m->size);
	fire_sha(f->scratch, m->size, m->sha);
	m->state = MESSAGE_SENT;
	length = etcdserverpb__put_request__pack(&q, f->packed);
	s->busy = true;
	s->sent_ns = rp_loop_now_ns(f->loop);
	f->tally.started++;
	rp_grpc_channel_unary(c->grpc, "/etcdserverpb.KV/Put", NULL, 0,
		fire_may_go(f) ? s->sent_ns + VICTIM_PUT_NS : RP_NEVER, f->packed, length, put_done,
		s);
}

void fire_put_more(struct fire *f)
{
	uint64_t now = rp_loop_now_ns(f->loop);

	if (!f->running || f->stopping)
		return;
	if (f->o.rate) {
		f->allowance += (double)(now - f->allowance_ns) * f->o.rate / 1e9;
		/* What could not be put in time is not made up for later. */
		f->allowance = fmin(f->allowance, f->o.rate / 10.0 + 1);
		f->allowance_ns = now;
	}
	while (!rp_list_empty(&f->waiting) && (!f->o.rate || f->allowance >= 1) &&
		(fire_may_go(f) || fire_in_flight(f) < 2 * (uint64_t)f->o.in_flight)) {
		struct rp_list *n = rp_list_pop_front(&f->waiting);

		f->allowance -= 1;
		slot_put(rp_list_entry(n, struct slot, waiting));
	}
}
