/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Property: every message that was put is delivered once and acknowledged once, whole, in order of
 * each producer node at each consumer, and afterwards all memory is back.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>

#include "sim.h"

#define QUEUES_MAX 64
#define CONSUMERS_MAX 3
#define TOKEN_ACK (1ull << 40)
#define TIMER_PUT (1ull << 41)
#define TIMER_ACK (1ull << 42)

struct message {
	unsigned queue, node;
	uint32_t length;
	bool sent, answered, acked;
	bool ack_retried; /* the first may have had its effect, so "deleted" may be 0 */
	unsigned delivered;
	/* Where it was delivered, for the acknowledge. */
	uint64_t idx;
	unsigned consumer, ack_node;
};

struct consumer {
	unsigned queue, node;
	uint8_t uuid[RP_UUID_BYTES];
	uint32_t last[SIM_NODES_MAX]; /* highest message number + 1 of each producer node */
};

struct run {
	struct sim *sim;
	uint64_t seed;
	unsigned nodes, queues, consumers, count, next, in_flight, window, done;
	struct message *messages;
	struct consumer consumer[QUEUES_MAX * CONSUMERS_MAX];
	char fault[512];
};

struct parameters {
	unsigned nodes, shards, links, messages, queues, window;
	double loss;
	uint64_t cut_ns; /* the network is cut for so long, midway */
	bool fallback, verbose;
	enum sim_stacks stacks;
};

__attribute__((format(printf, 2, 3))) static void fault(struct run *r, const char *format, ...)
{
	va_list ap;

	if (r->fault[0] != '\0')
		return;
	va_start(ap, format);
	vsnprintf(r->fault, sizeof(r->fault), format, ap);
	va_end(ap);
}

static void queue_name(unsigned queue, char out[16])
{
	snprintf(out, 16, "q%u", queue);
}

/* The value of message `i`: its number, then bytes that follow from it. */
static void value_fill(uint32_t i, uint32_t length, uint8_t *out)
{
	struct rp_rand rand = {i * 77ull + 5};

	for (uint32_t b = 0; b < length; b++)
		out[b] = (uint8_t)rp_rand_u64(&rand);
}

static void put(struct run *r, unsigned i)
{
	struct message *m = &r->messages[i];
	static uint8_t value[65536];
	char queue[16], tail[16];

	queue_name(m->queue, queue);
	snprintf(tail, sizeof(tail), "m%u", i);
	value_fill(i, m->length, value);
	if (sim_put(r->sim, m->node, queue, tail, value, m->length, i) != 0)
		sim_at(r->sim, sim_now(r->sim) + 100000, TIMER_PUT | i);
	else
		m->sent = true;
}

/*
 * One put at a time a node and queue has its order kept by the client; here they overlap, so order
 * is that in which the puts were made, which a retry would break: a node waits for its turn.
 */
static void feed(struct run *r)
{
	while (r->next < r->count && r->in_flight < r->window && r->fault[0] == '\0') {
		r->in_flight++;
		put(r, r->next++);
		if (!r->messages[r->next - 1].sent)
			return;
	}
}

static void ack(struct run *r, unsigned i)
{
	struct message *m = &r->messages[i];
	char queue[16];

	queue_name(m->queue, queue);
	if (sim_ack(r->sim, m->ack_node, queue, m->idx, r->consumer[m->consumer].uuid,
		    TOKEN_ACK | i) != 0)
		sim_at(r->sim, sim_now(r->sim) + 100000, TIMER_ACK | i);
}

static void on_answered(void *ctx, unsigned node, uint64_t token, const struct rp_control_answer *a)
{
	struct run *r = ctx;
	unsigned i = (unsigned)(token & 0xffffffff);
	struct message *m = &r->messages[i];

	if (!(token & TOKEN_ACK)) {
		if (a->status != RP_Q_OK)
			fault(r, "put of message %u at node %u: %s", i, node,
				rp_qstatus_name(a->status));
		if (m->answered)
			fault(r, "put of message %u was answered twice", i);
		m->answered = true;
		return;
	}
	if (a->status == RP_Q_UNREACHABLE || a->status == RP_Q_NO_DISPATCHER) {
		m->ack_retried = true;
		sim_at(r->sim, sim_now(r->sim) + 100 * RP_NS_PER_MS, TIMER_ACK | i);
		return;
	}
	if (a->status != RP_Q_OK || (a->deleted != 1 && !m->ack_retried))
		fault(r, "acknowledge of message %u at node %u: %s, deleted %u", i, node,
			rp_qstatus_name(a->status), a->deleted);
	if (m->acked)
		fault(r, "message %u was acknowledged twice", i);
	m->acked = true;
	r->done++;
	r->in_flight--;
	feed(r);
}

static void on_delivered(void *ctx, unsigned node, uint64_t consumer,
	const struct rp_control_delivery *d, const uint8_t *value, size_t length)
{
	struct run *r = ctx;
	struct consumer *k = &r->consumer[consumer - 1];
	static uint8_t expected[65536];
	char tail[16] = "";
	struct message *m;
	unsigned i;

	memcpy(tail, d->tail.data, RP_MIN(d->tail.length, sizeof(tail) - 1));
	i = (unsigned)strtoul(tail + 1, NULL, 10);
	if (i >= r->count) {
		fault(r, "a delivery of nothing that was put: tail %s", tail);
		return;
	}
	m = &r->messages[i];
	value_fill(i, m->length, expected);
	if (length != m->length || memcmp(value, expected, length) != 0)
		fault(r, "message %u arrived changed: %zu bytes for %u", i, length, m->length);
	if (++m->delivered > 1)
		fault(r, "message %u was delivered %u times (attempt %u)", i, m->delivered,
			d->attempt);
	if (m->queue != k->queue)
		fault(r, "message %u of queue %u reached a consumer of queue %u", i, m->queue,
			k->queue);
	if (i < k->last[m->node])
		fault(r, "message %u of node %u came after %u at consumer %" PRIu64, i, m->node,
			k->last[m->node] - 1, consumer);
	k->last[m->node] = i + 1;
	m->idx = d->idx;
	m->consumer = (unsigned)consumer - 1;
	/* One in eight is acknowledged at another node than the consumer's. */
	m->ack_node = rp_rand_below(sim_rand(r->sim), 8) == 0
			      ? (unsigned)rp_rand_below(sim_rand(r->sim), r->nodes)
			      : k->node;
	sim_consumer_accepted(r->sim, node, consumer, d->idx);
	sim_at(r->sim, sim_now(r->sim) + rp_rand_below(sim_rand(r->sim), 3 * RP_NS_PER_MS),
		TIMER_ACK | i);
}

static void on_withdrawn(void *ctx, unsigned node, uint64_t consumer, uint64_t idx)
{
	struct run *r = ctx;

	fault(r, "a delivery (idx %" PRIu64 ") was taken back from consumer %" PRIu64, idx,
		consumer);
}

static void on_ended(void *ctx, unsigned node, uint64_t consumer, const char *reason)
{
	struct run *r = ctx;

	fault(r, "consumer %" PRIu64 " was ended: %s", consumer, reason);
}

static void on_timer(void *ctx, uint64_t id)
{
	struct run *r = ctx;
	unsigned i = (unsigned)(id & 0xffffffff);

	if (id & TIMER_PUT) {
		put(r, i);
		feed(r);
	} else {
		ack(r, i);
	}
}

static bool joined(void *ctx)
{
	struct run *r = ctx;

	return sim_joined(r->sim);
}

static bool finished(void *ctx)
{
	struct run *r = ctx;

	return r->done == r->count || r->fault[0] != '\0';
}

static bool half(void *ctx)
{
	struct run *r = ctx;

	return r->done >= r->count / 2 || r->fault[0] != '\0';
}

static void make_clients(struct run *r, struct rp_rand *rand)
{
	for (unsigned q = 0; q < r->queues; q++) {
		unsigned n = 1 + (unsigned)rp_rand_below(rand, CONSUMERS_MAX);

		for (unsigned c = 0; c < n; c++) {
			struct consumer *k = &r->consumer[r->consumers++];

			*k = (struct consumer){
				.queue = q, .node = (unsigned)rp_rand_below(rand, r->nodes)};
			for (unsigned b = 0; b < RP_UUID_BYTES; b++)
				k->uuid[b] = (uint8_t)rp_rand_u64(rand);
		}
	}
	for (unsigned i = 0; i < r->count; i++)
		r->messages[i] = (struct message){
			.queue = (unsigned)rp_rand_below(rand, r->queues),
			.node = (unsigned)rp_rand_below(rand, r->nodes),
			.length = (uint32_t)rp_rand_below(rand, 1ull << rp_rand_below(rand, 14)),
		};
}

static void open_consumers(struct run *r)
{
	for (unsigned c = 0; c < r->consumers; c++) {
		char queue[16];

		queue_name(r->consumer[c].queue, queue);
		if (sim_consumer_open(
			    r->sim, r->consumer[c].node, queue, r->consumer[c].uuid, c + 1) != 0)
			fault(r, "consumer %u could not be opened", c + 1);
	}
}

static void check_idle(struct run *r, const struct parameters *p)
{
	for (unsigned n = 0; n < p->nodes; n++)
		for (unsigned s = 0; s < p->shards; s++) {
			struct rp_queues *q = rp_engine_queues(sim_engine(r->sim, n, s));
			struct rp_queue_totals t;
			const char *audit = rp_queue_audit(q);

			rp_queue_get_totals(q, &t);
			if (t.messages > 0 || t.holds > 0 || t.requests > 0)
				fault(r,
					"node %u shard %u holds %u messages, %u deliveries, %u requests at "
					"the end",
					n, s, t.messages, t.holds, t.requests);
			if (audit)
				fault(r, "node %u shard %u: %s", n, s, audit);
		}
}

static void drive(struct run *r, const struct parameters *p)
{
	if (!sim_run_until(r->sim, sim_now(r->sim) + 30 * RP_NS_PER_S, joined, r)) {
		fault(r, "the nodes did not join within 30 s");
		return;
	}
	open_consumers(r);
	/* Registrations settle: a queue put before its consumers are known is another test. */
	sim_run_until(r->sim, sim_now(r->sim) + 200 * RP_NS_PER_MS, NULL, NULL);
	feed(r);
	if (p->cut_ns > 0) {
		struct rp_impair_spec cut = {.cut = true}, usual = {.drop = p->loss};

		sim_run_until(r->sim, sim_now(r->sim) + 600 * RP_NS_PER_S, half, r);
		sim_network(r->sim, &cut);
		sim_run_until(r->sim, sim_now(r->sim) + p->cut_ns, NULL, NULL);
		sim_network(r->sim, &usual);
	}
	if (!sim_run_until(r->sim, sim_now(r->sim) + 600 * RP_NS_PER_S, finished, r))
		fault(r, "after 600 s %u of %u messages are done", r->done, r->count);
	/* What is on its way at the end may land. */
	sim_run_until(r->sim, sim_now(r->sim) + RP_NS_PER_S, NULL, NULL);
	check_idle(r, p);
}

static bool run_seed(uint64_t seed, const struct parameters *p)
{
	struct rp_rand rand = {seed};
	struct run *r = calloc(1, sizeof(*r));
	struct sim_options options = {
		.nodes = p->nodes,
		.shards = p->shards,
		.links = p->links,
		.stacks = p->stacks,
		.seed = seed,
		.network = {.drop = p->loss,
			.duplicate = p->loss / 4,
			.reorder = p->loss,
			.reorder_ns = 50000,
			.delay_ns = 5000,
			.jitter_ns = 2000},
		.call_delay_ns = 200000,
		.unary_fallback = p->fallback,
		.message_bytes_max = 1 << 16,
		.verbose = p->verbose,
	};
	struct sim_hooks hooks = {.ctx = r,
		.answered = on_answered,
		.delivered = on_delivered,
		.withdrawn = on_withdrawn,
		.ended = on_ended,
		.timer = on_timer};
	const char *leak;
	bool ok;

	RP_ASSERT(r != NULL);
	r->seed = seed;
	r->nodes = p->nodes;
	r->queues = p->queues;
	r->count = p->messages;
	r->window = p->window;
	r->messages = calloc(r->count, sizeof(*r->messages));
	RP_ASSERT(r->messages != NULL);
	make_clients(r, &rand);
	r->sim = sim_create(&options, &hooks);
	drive(r, p);
	if (p->verbose)
		printf("seed %" PRIu64 ": %u done at %" PRIu64 " ms\n", seed, r->done,
			sim_now(r->sim) / 1000000);
	leak = sim_destroy(r->sim);
	if (leak)
		fault(r, "%s", leak);
	ok = r->fault[0] == '\0';
	if (!ok)
		printf("FAILED seed %" PRIu64 ": %s\nreplay: sim_queues --seed %" PRIu64
		       " --seeds 1 --nodes %u --shards %u --links %u --messages %u --queues %u --loss %g "
		       "--cut-ms %" PRIu64 "%s\n",
			seed, r->fault, seed, p->nodes, p->shards, p->links, p->messages, p->queues,
			p->loss, (uint64_t)(p->cut_ns / RP_NS_PER_MS),
			p->fallback ? "" : " --no-fallback");
	free(r->messages);
	free(r);
	return ok;
}

int main(int argc, char **argv)
{
	struct parameters p = {.nodes = 3,
		.shards = 1,
		.links = 1,
		.messages = 10000,
		.queues = 20,
		.window = 500,
		.loss = 0.01,
		.fallback = true};
	uint64_t seed = 1, seeds = 1, failed = 0;

	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";

		if (!strcmp(argv[i], "--verbose")) {
			p.verbose = true;
			continue;
		}
		if (!strcmp(argv[i], "--no-fallback")) {
			p.fallback = false;
			continue;
		}
		i++;
		if (!strcmp(argv[i - 1], "--seed"))
			seed = strtoull(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--seeds"))
			seeds = strtoull(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--nodes"))
			p.nodes = (unsigned)strtoul(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--shards"))
			p.shards = (unsigned)strtoul(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--links"))
			p.links = (unsigned)strtoul(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--stacks"))
			p.stacks = !strcmp(v, "rss")	     ? SIM_STACKS_RSS
				   : !strcmp(v, "hand-over") ? SIM_STACKS_HAND_OVER
							     : SIM_STACKS_ONE;
		else if (!strcmp(argv[i - 1], "--messages"))
			p.messages = (unsigned)strtoul(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--queues"))
			p.queues = (unsigned)strtoul(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--window"))
			p.window = (unsigned)strtoul(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--loss"))
			p.loss = strtod(v, NULL);
		else if (!strcmp(argv[i - 1], "--cut-ms"))
			p.cut_ns = strtoull(v, NULL, 10) * RP_NS_PER_MS;
		else
			return fprintf(stderr, "unknown argument %s\n", argv[i - 1]), 2;
	}
	if (p.nodes < 1 || p.nodes > SIM_NODES_MAX || p.shards < 1 || p.shards > SIM_SHARDS_MAX ||
		p.links < 1 || p.links > p.shards || p.queues < 1 || p.queues > QUEUES_MAX ||
		p.messages < 1)
		return fprintf(stderr, "a value is out of range\n"), 2;
	if (!p.verbose)
		rp_log_set_level(RP_LOG_CRIT);
	sim_eal_start();
	for (uint64_t s = seed; s < seed + seeds; s++)
		failed += !run_seed(s, &p);
	printf("%" PRIu64 " passed, %" PRIu64 " failed\n", seeds - failed, failed);
	return failed ? 1 : 0;
}
