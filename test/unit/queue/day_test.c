/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A day of simulated time: `queue_day_test [hours [seconds of work in each [seed]]]`. Each hour
 * puts, requests, answers, cancels, rejects, workers and requesters that come and go, queues that
 * move and wall clocks that are set; then everybody leaves, and the nodes are left to themselves
 * until the hour is over. What must hold at the end of each hour: every gauge of every node is what
 * it was at the start, and so is every table and every buffer, whatever was counted meanwhile.
 */

#include <inttypes.h>
#include <stdlib.h>

#include "queue_priv.h"

#include "requests.h"

#define NODES 3
#define HOUR (3600 * SEC)
#define MEMBERS 5

static uint64_t hours = 24, work_seconds = 2, seed = 1;

static const char *const replies[] = {"reply-0", "reply-1"};
static const char *const plain[] = {"plain", "rated", "dead"};

/* The second has everything that a policy can say. */
static const struct rp_queue_policy policies[] = {
	{
		.match = "rated",
		.dead_letter = "dead",
		.deliveries_max = 3,
		.ttl_ns = 700 * MS,
		.delay_ns = 5 * MS,
		.dedup_ns = 2 * SEC,
		.priority = 3,
		.depth_max = 40,
		.overflow = RP_QUEUE_OVERFLOW_DROP_OLDEST,
	},
};

struct day {
	struct cluster *c;
	struct rp_rand rand;
	struct client *members[MEMBERS], *requesters[2];
	unsigned uuids, names;
	uint64_t asked, put;
};

static uint32_t below(struct day *d, uint32_t n)
{
	return (uint32_t)rp_rand_below(&d->rand, n);
}

static bool chance(struct day *d, uint32_t in_thousand)
{
	return below(d, 1000) < in_thousand;
}

/* ---- the gauges ---- */

#define GAUGES(X)              \
	X(queues.used)         \
	X(messages.used)       \
	X(consumers.used)      \
	X(hosts.used)          \
	X(holds.used)          \
	X(requests_slab.used)  \
	X(producers_slab.used) \
	X(rejections.used)     \
	X(notices.used)        \
	X(bindings.used)       \
	X(moves_slab.used)     \
	X(mores.used)          \
	X(seen_slab.used)      \
	X(jobs.used)           \
	X(sessions.used)       \
	X(lanes.used)          \
	X(own_count)           \
	X(handing)             \
	X(bytes)               \
	X(foreign_buffers)

static uint64_t blobs_used(const struct blobs *b)
{
	uint64_t used = 0;

	for (unsigned i = 0; i < BLOB_CLASSES; i++)
		used += b->slabs[i].used;
	return used;
}

static void gauge(unsigned node, const char *name, uint64_t is, uint64_t hour)
{
	if (is != 0)
		fail_msg("node %u, after hour %" PRIu64 ": %s is %" PRIu64, node, hour, name, is);
}

static void gauges_are_zero(struct day *d, uint64_t hour)
{
	for (unsigned i = 0; i < NODES; i++) {
		const struct rp_queues *qs = d->c->nodes[i].qs;
		struct rp_queue_totals t;

#define X(name) gauge(i, #name, qs->name, hour);
		GAUGES(X)
#undef X
		gauge(i, "names", blobs_used(&qs->names), hour);
		gauge(i, "matches", blobs_used(&qs->matches), hour);
		gauge(i, "tails", blobs_used(&qs->tails), hour);
		gauge(i, "seen_blobs", blobs_used(&qs->seen_blobs), hour);
		gauge(i, "session_blobs", blobs_used(&qs->session_blobs), hour);
		rp_queue_get_totals(qs, &t);
		gauge(i, "totals",
			t.queues + t.messages + t.consumers + t.holds + t.requests + t.producers +
				t.hosts + t.handing + t.held + t.dispatched + t.bytes,
			hour);
		gauge(i, "jobs", d->c->nodes[i].job_count, hour);
	}
}

/* ---- an hour's work ---- */

static bool is_there(const struct client *cl)
{
	return cl && cl->open && !cl->ended;
}

static void leave(struct day *d, struct client **cl)
{
	if (is_there(*cl))
		close_consumer(
			d->c, *cl, chance(d, 700) ? RP_QUEUE_CLOSE_ENDED : RP_QUEUE_CLOSE_LEFT);
	*cl = NULL;
}

static void come_and_go(struct day *d)
{
	struct client **cl = &d->members[below(d, MEMBERS)];
	unsigned q = below(d, 4);

	if (*cl) {
		leave(d, cl);
		return;
	}
	*cl = open_consumer(d->c, below(d, NODES), q == 3 ? plain[below(d, 3)] : Q,
		++d->uuids % 200, 0, chance(d, 300) ? ";cap=gpu;prefetch=3" : NULL);
}

/* The events of a client: what it holds is answered, acknowledged or rejected, or left. */
static void work(struct day *d, struct client *cl)
{
	const struct event *e;
	struct held_job *j;
	uint8_t uuid[RP_UUID_BYTES];
	unsigned n;

	if (!is_there(cl) || cl->event_count == 0)
		return;
	e = &cl->events[cl->event_count - 1 - below(d, RP_MIN(cl->event_count, 8u))];
	memcpy(&n, cl->uuid, sizeof(n));
	memcpy(uuid, cl->uuid, sizeof(uuid));
	if (e->deleted)
		return;
	j = job_of(d->c, cl->node, e->process.request);
	if (j && chance(d, 400))
		output(d->c, cl->node, replies[e->value % 2], j, 1 + below(d, 10000));
	else if (j && chance(d, 600))
		last_output(d->c, cl->node, j, 1 + below(d, 10000));
	else if (chance(d, 300))
		reject(d->c, cl->node, cl->queue, n, e->idx);
	else
		ack(d->c, cl->node, cl->queue, n, e->idx, 0);
}

static void one_ask(struct day *d)
{
	struct ask_options o = {.left_us = 20000 + below(d, 2000000),
		.need = chance(d, 200) ? "gpu" : NULL,
		.priority = (uint8_t)below(d, 10),
		.flags = chance(d, 300) ? RP_PROCESS_PRIORITY : 0};
	uint64_t value = d->asked++ % 1000;
	char tail[16];

	snprintf(tail, sizeof(tail), "r%u", d->names++);
	ask(d->c, below(d, NODES), Q, tail, value * 8 + (value % 2), replies[value % 2], &o);
}

static void one_put(struct day *d)
{
	char tail[16];

	snprintf(tail, sizeof(tail), "t%u", below(d, 50));
	put(d->c, below(d, NODES), plain[below(d, 2)], tail, 1 + below(d, 10000));
}

static void one_turn(struct day *d)
{
	char tail[16];

	if (chance(d, 100))
		one_ask(d);
	if (chance(d, 100))
		one_put(d);
	if (chance(d, 40))
		come_and_go(d);
	for (unsigned i = 0; i < MEMBERS; i++) {
		if (chance(d, 150))
			work(d, d->members[i]);
	}
	if (chance(d, 20)) {
		snprintf(tail, sizeof(tail), "r%u", d->names - 1 - below(d, RP_MIN(d->names, 10u)));
		cancel(d->c, below(d, NODES), Q, tail);
	}
	for (unsigned q = 0; q < 2; q++) {
		if (!is_there(d->requesters[q]) || chance(d, 5)) {
			leave(d, &d->requesters[q]);
			d->requesters[q] =
				open_consumer(d->c, below(d, NODES), replies[q], 250 + q, 0, NULL);
		}
	}
	if (chance(d, 3)) {
		unsigned node = below(d, NODES);

		rp_queue_drain(d->c->nodes[node].qs, true, d->c->now_ns);
		cluster_run(d->c, 5 * MS);
		rp_queue_drain(d->c->nodes[node].qs, false, d->c->now_ns);
	}
}

/* Somebody sets a wall clock, by up to half an hour. */
static void set_clocks(struct day *d)
{
	for (unsigned i = 0; i < NODES; i++)
		rp_queue_set_wall_offset(
			d->c->nodes[i].qs, (int64_t)(WALL_START_S * RP_NS_PER_S) +
						   ((int64_t)below(d, 3600) - 1800) * (int64_t)SEC);
}

/* What was asked for has room for more. */
static void forget_answers(struct cluster *c)
{
	for (unsigned i = 0; i < c->token_count; i++) {
		if (!c->answers[i].done)
			fail_msg("operation %u was never answered", i);
	}
	memset(c->answers, 0, c->token_count * sizeof(c->answers[0]));
	c->token_count = 0;
	asks_free(c);
	for (unsigned i = 0; i < c->client_count; i++) {
		client_drop_buffer(&c->clients[i]);
		free(c->clients[i].events);
		c->clients[i].events = NULL;
	}
}

static void one_hour(struct day *d, uint64_t hour)
{
	uint64_t begin = d->c->now_ns;

	d->c->step_ns = MS / 2;
	for (uint64_t i = 0; i < work_seconds * 1000; i++) {
		if (i % 500 == 0)
			set_clocks(d);
		one_turn(d);
		cluster_run(d->c, MS);
	}
	for (unsigned i = 0; i < MEMBERS; i++)
		leave(d, &d->members[i]);
	for (unsigned q = 0; q < 2; q++)
		leave(d, &d->requesters[q]);
	d->c->step_ns = 5 * MS;
	cluster_run(d->c, 20 * SEC);
	d->c->step_ns = SEC;
	/* What nobody was there to read ends with its queue: an operator's doing. */
	for (unsigned i = 0; i < NODES; i++) {
		for (unsigned q = 0; q < d->c->queue_count; q++)
			rp_queue_clear(d->c->nodes[i].qs, (1u << 20) + d->c->token_count++,
				span_of(d->c->queues[q]), RP_QUEUE_PURGE, 0, d->c->now_ns);
	}
	cluster_audit(d->c);
	cluster_run(d->c, begin + HOUR - d->c->now_ns);
	cluster_audit(d->c);
	gauges_are_zero(d, hour);
	forget_answers(d->c);
}

static void test_day(void **state)
{
	struct day d = {.c = cluster_new(NODES, seed, NULL), .rand.state = seed * 7919 + 1};
	uint64_t indexed = 0;

	print_message("seed %" PRIu64 ", %" PRIu64 " hours\n", seed, hours);
	d.c->delay_max_ns = 2 * MS;
	for (unsigned i = 0; i < NODES; i++)
		rp_queue_set_policies(d.c->nodes[i].qs, policies, RP_ARRAY_SIZE(policies));
	gauges_are_zero(&d, 0);
	for (uint64_t hour = 1; hour <= hours; hour++)
		one_hour(&d, hour);
	for (unsigned i = 0; i < NODES; i++)
		indexed += totals_of(d.c, i).indexed;
	print_message("%" PRIu64 " requests, %" PRIu64 " messages taken in\n", d.asked, indexed);
	assert_true(d.asked > 50 * hours && indexed > 100 * hours);
	cluster_free(d.c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_day),
	};

	hours = argc > 1 ? strtoull(argv[1], NULL, 10) : hours;
	work_seconds = argc > 2 ? strtoull(argv[2], NULL, 10) : work_seconds;
	seed = argc > 3 ? strtoull(argv[3], NULL, 10) : seed;
	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
