/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Very many queues on one node, with its registry: what an idle one costs in memory, whether a
 * message takes longer among many, and what is left when all have ended.
 *
 *   sim_million [--queues N] [--bytes B] [--growth R]
 *
 * Each queue is made by a consumer, is given one message, which is shown and acknowledged, and is
 * left. They stay as idle queues while the first two are measured; then they end by themselves,
 * and their records with them. It fails when an idle queue takes more than B bytes of resident
 * memory, or a message R times the cycles that it takes among a thousand. The memory that is
 * resident at the end is reported: the tables of the engine keep what they once had.
 */

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <base/assert.h>
#include <base/log.h>

#include "sim.h"

#define SEC RP_NS_PER_S
/* Consumers at a time. */
#define BATCH 512
#define PROBES 256

struct run {
	struct sim *sim;
	uint32_t queues;
	unsigned asked, shown, acked; /**< puts */
	uint64_t consumer_last;
};

static void uuid_of(uint64_t n, uint8_t uuid[RP_UUID_BYTES])
{
	memset(uuid, 1, RP_UUID_BYTES);
	memcpy(uuid, &n, sizeof(n));
}

static const char *name_of(uint32_t n, char name[32])
{
	snprintf(name, 32, "queue-%" PRIu32, n);
	return name;
}

static void on_answered(void *ctx, unsigned node, uint64_t token, const struct rp_control_answer *a)
{
	struct run *r = ctx;

	RP_ASSERT(a->status == RP_Q_OK);
	r->acked += token == 2;
}

/* A consumer's handle is its uuid as well; its value says which queue it is. */
static void on_delivered(void *ctx, unsigned node, uint64_t consumer,
	const struct rp_control_delivery *d, const uint8_t *value, size_t value_length)
{
	struct run *r = ctx;
	uint8_t uuid[RP_UUID_BYTES];
	char name[32];
	uint32_t n;

	RP_ASSERT(value_length == sizeof(n));
	memcpy(&n, value, sizeof(n));
	r->shown++;
	sim_consumer_accepted(r->sim, node, consumer, d->idx);
	uuid_of(consumer, uuid);
	RP_ASSERT(sim_ack(r->sim, node, name_of(n, name), d->idx, uuid, 2) == 0);
}

static void wait(struct run *r, uint64_t ns)
{
	sim_run_until(r->sim, sim_now(r->sim) + ns, NULL, NULL);
}

static bool all_acked(void *ctx)
{
	struct run *r = ctx;

	return r->acked == r->asked && r->shown == r->asked;
}

static uint64_t open_at(struct run *r, uint32_t n)
{
	uint8_t uuid[RP_UUID_BYTES];
	char name[32];

	uuid_of(++r->consumer_last, uuid);
	RP_ASSERT(sim_consumer_open(r->sim, 0, name_of(n, name), uuid, r->consumer_last) == 0);
	return r->consumer_last;
}

static void put_at(struct run *r, uint32_t n)
{
	char name[32];

	r->asked++;
	RP_ASSERT(sim_put(r->sim, 0, name_of(n, name), "t", &n, sizeof(n), 1) == 0);
}

static void use(struct run *r, uint32_t first, uint32_t count)
{
	uint64_t handles[BATCH];

	for (uint32_t i = 0; i < count; i++)
		handles[i] = open_at(r, first + i);
	wait(r, SEC / 20);
	for (uint32_t i = 0; i < count; i++)
		put_at(r, first + i);
	wait(r, SEC / 20);
	RP_ASSERT(all_acked(r));
	for (uint32_t i = 0; i < count; i++)
		sim_consumer_close(r->sim, 0, handles[i]);
	wait(r, 2 * SEC);
}

static uint64_t resident(void)
{
	unsigned long pages = 0, ignored;
	FILE *f = fopen("/proc/self/statm", "r");

	malloc_trim(0);
	RP_ASSERT(f && fscanf(f, "%lu %lu", &ignored, &pages) == 2);
	fclose(f);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint32_t queues_now(struct run *r)
{
	struct rp_queue_totals t;

	rp_queue_get_totals(rp_engine_queues(sim_engine(r->sim, 0, 0)), &t);
	return t.queues;
}

/* Cycles of both planes for a message to a queue that has a consumer, and its acknowledge. */
static double cycles_among(struct run *r, uint32_t queues)
{
	double least = 0;

	for (unsigned round = 0; round < 5; round++) {
		uint64_t handles[PROBES], before, after;

		for (uint32_t i = 0; i < PROBES; i++)
			handles[i] = open_at(r, (uint32_t)((uint64_t)i * queues / PROBES));
		wait(r, SEC / 10);
		before = sim_cycles(r->sim, 0, 0) + sim_cycles(r->sim, 0, RP_ENGINE_CONTROL);
		for (uint32_t i = 0; i < PROBES; i++)
			put_at(r, (uint32_t)((uint64_t)i * queues / PROBES));
		sim_run_until(r->sim, sim_now(r->sim) + SEC, all_acked, r);
		RP_ASSERT(all_acked(r));
		after = sim_cycles(r->sim, 0, 0) + sim_cycles(r->sim, 0, RP_ENGINE_CONTROL);
		for (uint32_t i = 0; i < PROBES; i++)
			sim_consumer_close(r->sim, 0, handles[i]);
		wait(r, 2 * SEC);
		if (least == 0 || (double)(after - before) / PROBES < least)
			least = (double)(after - before) / PROBES;
	}
	return least;
}

static void set_idle(struct run *r, uint64_t idle_ns)
{
	struct rp_control_limits limits = sim_limits(r->sim);

	limits.idle_ns = idle_ns;
	sim_set_limits(r->sim, 0, &limits);
	wait(r, SEC / 10);
}

static int play(struct run *r, double bytes_max, double growth_max)
{
	uint64_t start, full, end;
	double few, many, each;
	uint32_t made = 0;

	set_idle(r, 1000000 * SEC);
	for (; made < RP_MIN(r->queues, 1024u); made += BATCH)
		use(r, made, BATCH);
	few = cycles_among(r, made);
	start = resident();
	for (uint32_t first = made; first < r->queues; first += BATCH)
		use(r, first, RP_MIN(r->queues - first, BATCH));
	full = resident();
	each = (double)(full - start) / (double)(r->queues - made);
	many = cycles_among(r, r->queues);
	printf("%" PRIu32 " queues, of which %" PRIu32 " are there\n", r->queues, queues_now(r));
	printf("idle: %.0f bytes each, with its record\n", each);
	printf("a message: %.0f cycles among %" PRIu32 " queues, %.0f among %" PRIu32 ": %.2f\n",
		few, made, many, r->queues, many / few);
	set_idle(r, SEC);
	wait(r, 60 * SEC);
	for (unsigned i = 0; i < 1000 && queues_now(r) > 0; i++)
		wait(r, 10 * SEC);
	RP_ASSERT(queues_now(r) == 0);
	wait(r, 3700 * SEC);
	end = resident();
	printf("resident: %.1f MiB at the start, %.1f with all of them, %.1f when they have ended\n",
		(double)start / 1048576, (double)full / 1048576, (double)end / 1048576);
	return each <= bytes_max && many <= growth_max * few ? 0 : 1;
}

int main(int argc, char **argv)
{
	struct sim_options options = {.nodes = 1,
		.shards = 1,
		.seed = 1,
		.call_delay_ns = 1000000,
		.message_bytes_max = 65536};
	struct run r = {.queues = 1000000};
	const struct sim_hooks hooks = {
		.ctx = &r, .answered = on_answered, .delivered = on_delivered};
	double bytes_max = 1024, growth_max = 4;
	const char *fault;
	int status;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--queues") == 0)
			r.queues = (uint32_t)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--bytes") == 0)
			bytes_max = strtod(argv[i + 1], NULL);
		else if (strcmp(argv[i], "--growth") == 0)
			growth_max = strtod(argv[i + 1], NULL);
	}
	sim_eal_start();
	options.queues = r.queues + 2 * BATCH;
	r.sim = sim_create(&options, &hooks);
	wait(&r, 5 * SEC);
	status = play(&r, bytes_max, growth_max);
	fault = sim_destroy(r.sim);
	if (fault)
		fprintf(stderr, "%s\n", fault);
	return fault ? 1 : status;
}
