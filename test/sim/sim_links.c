/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What each shard of two nodes works for a message, against the number of links between them: all
 * shards take turns in one thread, so that there is no CPU that they wait for, and each one's
 * cycles are its own. What the busiest needs bounds what the pair can do with a CPU for each.
 *
 *	sim_links [--size 64] [--messages 40000] [--runs 3]
 *
 * Node 0 puts on 64 queues that node 1 dispatches and consumes; each message crosses as a FORWARD.
 * A line of JSON for each k of each run. That each queue's messages come once and in order is held.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include <base/assert.h>
#include <base/log.h>

#include "sim.h"

#define QUEUES 64
#define SHARDS 4
#define WINDOW 512
#define TOKEN_ACK (1ull << 40)
#define TIMER_PUT (1ull << 41)
#define ACKS 65536

struct run {
	struct sim *sim;
	uint32_t size, count, next, done, open;
	uint32_t expected[QUEUES]; /* the next number of each queue's messages */
	uint64_t cycles[2][SHARDS + 1];
	/* Acknowledges to be made, outside of the node that shows the message. */
	struct {
		uint64_t idx;
		unsigned queue;
	} acks[ACKS];
	uint64_t ack_last;
	bool waiting;
	const char *fault;
	uint8_t *value;
};

static const uint8_t uuid[RP_UUID_BYTES] = "a consumer's one";

static void queue_name(unsigned queue, char out[16])
{
	snprintf(out, 16, "bench-%u", queue);
}

static void feed(struct run *r)
{
	while (!r->waiting && r->next < r->count && r->open < WINDOW) {
		uint32_t number = r->next / QUEUES;
		char queue[16];

		queue_name(r->next % QUEUES, queue);
		memcpy(r->value, &number, sizeof(number));
		if (sim_put(r->sim, 0, queue, "x", r->value, r->size, r->next) != 0) {
			r->waiting = true;
			sim_at(r->sim, sim_now(r->sim) + 10 * RP_NS_PER_US, TIMER_PUT);
			return;
		}
		r->next++;
		r->open++;
	}
}

static void on_answered(void *ctx, unsigned node, uint64_t token, const struct rp_control_answer *a)
{
	struct run *r = ctx;

	if (a->status != RP_Q_OK)
		r->fault = rp_qstatus_name(a->status);
	if (token & TOKEN_ACK)
		return;
	r->open--;
	r->done++;
	feed(r);
}

static void on_delivered(void *ctx, unsigned node, uint64_t consumer,
	const struct rp_control_delivery *d, const uint8_t *value, size_t length)
{
	struct run *r = ctx;
	uint32_t number;
	unsigned q = (unsigned)consumer - 1;

	if (length != r->size) {
		r->fault = "a message is not as long as it was";
		return;
	}
	memcpy(&number, value, sizeof(number));
	if (number != r->expected[q]++)
		r->fault = "a message came twice, or not in order";
	sim_consumer_accepted(r->sim, node, consumer, d->idx);
	r->acks[r->ack_last % ACKS].idx = d->idx;
	r->acks[r->ack_last % ACKS].queue = q;
	sim_at(r->sim, sim_now(r->sim), r->ack_last++);
}

static void on_timer(void *ctx, uint64_t id)
{
	struct run *r = ctx;
	char queue[16];

	if (id == TIMER_PUT) {
		r->waiting = false;
		feed(r);
		return;
	}
	queue_name(r->acks[id % ACKS].queue, queue);
	if (sim_ack(r->sim, 1, queue, r->acks[id % ACKS].idx, uuid, TOKEN_ACK) != 0)
		sim_at(r->sim, sim_now(r->sim) + 10 * RP_NS_PER_US, id);
}

static bool joined(void *ctx)
{
	return sim_joined(((struct run *)ctx)->sim);
}

static bool finished(void *ctx)
{
	struct run *r = ctx;

	return r->done == r->count || r->fault;
}

static void cycles_take(struct run *r, bool begin)
{
	for (unsigned n = 0; n < 2; n++)
		for (unsigned s = 0; s <= SHARDS; s++) {
			uint64_t now = sim_cycles(r->sim, n, s == SHARDS ? RP_ENGINE_CONTROL : s);

			r->cycles[n][s] = begin ? now : now - r->cycles[n][s];
		}
}

static double ns_of(const struct run *r, uint64_t cycles)
{
	return (double)cycles * 1e9 / (double)rte_get_tsc_hz() / r->count;
}

static void print(const struct run *r, unsigned k)
{
	double all = 0, busiest = 0;

	printf("{\"k\": %u, \"size\": %u, \"shard_ns\": [", k, r->size);
	for (unsigned n = 0; n < 2; n++)
		for (unsigned s = 0; s < SHARDS; s++) {
			double ns = ns_of(r, r->cycles[n][s]);

			printf("%s%.0f", n + s ? ", " : "", ns);
			all += ns;
			busiest = RP_MAX(busiest, ns);
		}
	printf("], \"busiest_ns\": %.0f, \"all_ns\": %.0f, \"control_ns\": [%.0f, %.0f]}\n",
		busiest, all, ns_of(r, r->cycles[0][SHARDS]), ns_of(r, r->cycles[1][SHARDS]));
	fflush(stdout);
}

static void drive(struct run *r)
{
	if (!sim_run_until(r->sim, sim_now(r->sim) + 30 * RP_NS_PER_S, joined, r)) {
		r->fault = "the nodes did not join";
		return;
	}
	for (unsigned q = 0; q < QUEUES; q++) {
		char queue[16];

		queue_name(q, queue);
		RP_ASSERT(sim_consumer_open(r->sim, 1, queue, uuid, q + 1) == 0);
	}
	sim_run_until(r->sim, sim_now(r->sim) + RP_NS_PER_S, NULL, NULL);
	cycles_take(r, true);
	feed(r);
	if (!sim_run_until(r->sim, sim_now(r->sim) + 600 * RP_NS_PER_S, finished, r))
		r->fault = "it does not end";
	cycles_take(r, false);
	sim_run_until(r->sim, sim_now(r->sim) + RP_NS_PER_S, NULL, NULL);
	for (unsigned q = 0; q < QUEUES && !r->fault; q++)
		if (r->expected[q] != r->count / QUEUES)
			r->fault = "a message is missing";
}

static bool run_one(unsigned k, uint32_t size, uint32_t count, uint64_t seed)
{
	static struct run r;
	struct sim_options options = {
		.nodes = 2,
		.shards = SHARDS,
		.links = k,
		.stacks = SIM_STACKS_RSS,
		.seed = seed,
		.network = {.delay_ns = 5000},
		.call_delay_ns = 200000,
		.message_bytes_max = 1 << 16,
		.buffers = 32767,
	};
	struct sim_hooks hooks = {
		.ctx = &r, .answered = on_answered, .delivered = on_delivered, .timer = on_timer};
	const char *leak;

	memset(&r, 0, sizeof(r));
	r.size = size;
	r.count = count / QUEUES * QUEUES;
	r.value = calloc(1, size);
	RP_ASSERT(r.value != NULL);
	r.sim = sim_create(&options, &hooks);
	drive(&r);
	if (!r.fault)
		print(&r, k);
	leak = sim_destroy(r.sim);
	free(r.value);
	if (r.fault || leak)
		fprintf(stderr, "k = %u, seed %" PRIu64 ": %s\n", k, seed,
			r.fault ? r.fault : leak);
	return !r.fault && !leak;
}

int main(int argc, char **argv)
{
	static const unsigned ks[] = {1, 2, 4};
	uint32_t size = 64, messages = 40000, runs = 3;
	bool good = true;

	for (int i = 1; i + 1 < argc; i += 2) {
		uint32_t n = (uint32_t)strtoul(argv[i + 1], NULL, 10);

		if (!strcmp(argv[i], "--size"))
			size = n;
		else if (!strcmp(argv[i], "--messages"))
			messages = n;
		else if (!strcmp(argv[i], "--runs"))
			runs = n;
		else
			return fprintf(stderr, "unknown argument %s\n", argv[i]), 2;
	}
	if (argc % 2 == 0 || size < 4 || size > 60000 || messages < QUEUES || runs == 0)
		return fprintf(stderr, "a value is missing or out of range\n"), 2;
	rp_log_set_level(RP_LOG_CRIT);
	sim_eal_start();
	for (uint32_t run = 0; run < runs; run++)
		for (size_t i = 0; i < RP_ARRAY_SIZE(ks); i++)
			good = run_one(ks[i], size, messages, run + 1) && good;
	return good ? 0 : 1;
}
