/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The cost model (queues.md) by the counters of nine simulated nodes: calls between nodes that
 * carry a payload, for a round trip, and what is said for the two acknowledges of it, a call being
 * a question and its answer; no other node than those named hears of either.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <route/key.h>

#include "sim.h"

#define NODES 9
#define TRIPS 20
#define SEC RP_NS_PER_S

struct row {
	const char *what;
	unsigned requester, worker, request_at, reply_at;
	uint32_t trip;
	uint32_t acks; /* calls, of both */
};

static const struct row rows[] = {
	{"dispatchers at neither end", 0, 1, 2, 3, 4, 2},
	{"one dispatcher for both, at neither end", 0, 1, 8, 8, 4, 2},
	{"each dispatcher at an end", 3, 4, 4, 3, 2, 0},
	{"both at the requester", 5, 6, 5, 5, 2, 1},
	{"all on one node", 7, 7, 7, 7, 0, 0},
};

struct run {
	struct sim *sim;
	unsigned delivered, answered, deleted;
	uint64_t consumer_last, idx;
};

static void on_answered(void *ctx, unsigned node, uint64_t token, const struct rp_control_answer *a)
{
	struct run *r = ctx;

	RP_ASSERT(a->status == RP_Q_OK);
	r->answered++;
	r->deleted += a->deleted;
}

static void on_delivered(void *ctx, unsigned node, uint64_t consumer,
	const struct rp_control_delivery *d, const uint8_t *value, size_t value_length)
{
	struct run *r = ctx;

	r->delivered++;
	r->idx = d->idx;
	sim_consumer_accepted(r->sim, node, consumer, d->idx);
}

static bool is_joined(void *ctx)
{
	return sim_joined(((struct run *)ctx)->sim);
}

static bool never(void *ctx)
{
	return false;
}

static void settle(struct run *r)
{
	sim_run_until(r->sim, sim_now(r->sim) + SEC / 2, never, r);
}

static uint64_t payloads(struct run *r, unsigned node)
{
	const struct rp_deliver_counters *c =
		rp_deliver_counters(rp_engine_deliver(sim_engine(r->sim, node, 0)));

	return c->forwards_streamed + c->deliveries_streamed + c->forwards_unary +
	       c->deliveries_unary;
}

/* Questions and answers, and reports; none has a payload. */
static uint64_t controls(struct run *r)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < NODES; i++) {
		const struct rp_deliver_counters *c =
			rp_deliver_counters(rp_engine_deliver(sim_engine(r->sim, i, 0)));

		sum += c->controls_framed + c->controls_unary;
	}
	return sum;
}

static uint64_t received(struct run *r, unsigned node)
{
	return rp_deliver_counters(rp_engine_deliver(sim_engine(r->sim, node, 0)))->received;
}

static void uuid_of(uint8_t uuid[RP_UUID_BYTES], uint64_t number)
{
	memset(uuid, 0, RP_UUID_BYTES);
	uuid[0] = 1;
	uuid[15] = (uint8_t)number;
}

/* Its number. */
static uint64_t consumer(struct run *r, unsigned node, const char *queue, const char *fields)
{
	uint8_t uuid[RP_UUID_BYTES], key[RP_REGISTRY_KEY_BYTES_MAX];
	struct rp_span name = {(const uint8_t *)queue, strlen(queue)};
	struct rp_repl_now now = {
		.ns = sim_now(r->sim), .wall_us = 1800000000000000ull + sim_now(r->sim) / 1000};
	struct rp_route_key k;
	const char *message;
	int length;

	uuid_of(uuid, ++r->consumer_last);
	length = rp_route_key_consumer(name, uuid, key, sizeof(key));
	rp_route_key_parse(&k, key, (size_t)length);
	if (fields[0])
		RP_ASSERT(rp_control_record_write(sim_control(r->sim, node), &k,
				  (struct rp_span){(const uint8_t *)fields, strlen(fields)}, 0,
				  false, 1, &message, now) == 0);
	RP_ASSERT(sim_consumer_open(r->sim, node, queue, uuid, r->consumer_last) == 0);
	settle(r);
	return r->consumer_last;
}

static uint64_t place(struct run *r, const char *queue, unsigned dispatcher, unsigned at)
{
	/* One that nothing is for keeps the queue where it is. */
	if (dispatcher != at)
		consumer(r, dispatcher, queue, ";match=nothing");
	return consumer(r, at, queue, "");
}

static void one_way(struct run *r, unsigned from, const char *queue)
{
	unsigned was = r->delivered;

	RP_ASSERT(sim_put(r->sim, from, queue, "t", "x", 1, 7) == 0);
	settle(r);
	RP_ASSERT(r->delivered == was + 1);
}

/* What was delivered last: how many calls that takes. */
static uint64_t acknowledge(struct run *r, unsigned node, const char *queue, uint64_t consumer)
{
	uint64_t before = controls(r);
	unsigned was = r->deleted;
	uint8_t uuid[RP_UUID_BYTES];

	uuid_of(uuid, consumer);
	RP_ASSERT(sim_ack(r->sim, node, queue, r->idx, uuid, 8) == 0);
	settle(r);
	RP_ASSERT(r->deleted == was + 1);
	return (controls(r) - before) / 2;
}

static bool play(struct run *r, const struct row *w, unsigned number)
{
	char ask[16], tell[16];
	uint64_t before[NODES], heard[NODES], trip = 0, acks = 0, worker, requester;
	bool good = true;

	snprintf(ask, sizeof(ask), "ask%u", number);
	snprintf(tell, sizeof(tell), "tell%u", number);
	worker = place(r, ask, w->request_at, w->worker);
	requester = place(r, tell, w->reply_at, w->requester);
	for (unsigned i = 0; i < NODES; i++) {
		before[i] = payloads(r, i);
		heard[i] = received(r, i);
	}
	for (unsigned i = 0; i < TRIPS; i++) {
		one_way(r, w->requester, ask);
		acks += acknowledge(r, w->worker, ask, worker);
		one_way(r, w->worker, tell);
		acks += acknowledge(r, w->requester, tell, requester);
	}
	for (unsigned i = 0; i < NODES; i++) {
		bool named = i == w->requester || i == w->worker || i == w->request_at ||
			     i == w->reply_at;

		trip += payloads(r, i) - before[i];
		good = good && (named || received(r, i) == heard[i]);
	}
	good = good && trip == (uint64_t)w->trip * TRIPS && acks == (uint64_t)w->acks * TRIPS;
	good = good &&
	       w->acks == rp_route_cost_ack(sim_node_id(w->worker), sim_node_id(w->request_at)) +
				  rp_route_cost_ack(
					  sim_node_id(w->requester), sim_node_id(w->reply_at));
	printf("%s: %g calls a round trip, %g for its acknowledges%s\n", w->what,
		(double)trip / TRIPS, (double)acks / TRIPS,
		good ? "" : " <- not as the model says");
	good = good && w->trip == rp_route_cost_round_trip(NODES, sim_node_id(w->requester),
					  sim_node_id(w->worker), sim_node_id(w->request_at),
					  sim_node_id(w->reply_at));
	return good;
}

int main(int argc, char **argv)
{
	struct run r = {0};
	struct sim_options options = {.nodes = NODES,
		.shards = 1,
		.seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
		.call_delay_ns = 200000,
		.message_bytes_max = 65536,
		.buffers = 2047};
	const struct sim_hooks hooks = {
		.ctx = &r, .answered = on_answered, .delivered = on_delivered};
	const char *left;
	bool good = true;

	sim_eal_start();
	rp_log_set_level(RP_LOG_ERROR);
	r.sim = sim_create(&options, &hooks);
	RP_ASSERT(sim_run_until(r.sim, 60 * SEC, is_joined, &r));
	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++)
		good = play(&r, &rows[i], i) && good;
	/* Broadcast is in the model only: 2(N - 1). */
	good = good && rp_route_cost_round_trip(NODES, 1, 2, 0, 0) == 16;
	left = sim_destroy(r.sim);
	if (left)
		printf("left: %s\n", left);
	return good && !left ? 0 : 1;
}
