/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Clusters that have a hard time: nodes crash and come back, ways between them are cut, both ways
 * or one, clocks are off by minutes, nodes are slow, links are half open while calls go on; and
 * meanwhile nodes are configured anew and drained. What holds all the while, and when all has
 * healed:
 *
 *   - no message that was accepted is lost, unless a node that held it crashed;
 *   - none is delivered to a second consumer while the first may still act on it: that one was
 *     closed, was ended, died with its node, was told that the message is taken back, or went on
 *     at a node that the dispatcher could not hear;
 *   - first deliveries to a consumer come in the order of each producer's node, see sim_order.c;
 *   - the nodes' stores are equal, no stream stays, no queue is wedged, no buffer is missing.
 *
 * One seed decides everything.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>

#include "sim_cluster.h"

void fault(struct run *r, const char *format, ...)
{
	va_list ap;

	if (r->fault[0] != '\0')
		return;
	va_start(ap, format);
	vsnprintf(r->fault, sizeof(r->fault), format, ap);
	va_end(ap);
}

void say(struct run *r, const char *format, ...)
{
	va_list ap;

	if (!r->verbose)
		return;
	va_start(ap, format);
	printf("%8" PRIu64 " ms: ", sim_now(r->sim) / 1000000);
	vprintf(format, ap);
	printf("\n");
	va_end(ap);
}

static uint64_t token_of(enum what what, unsigned i)
{
	return (uint64_t)what << 32 | i;
}

void later(struct run *r, uint64_t ns, enum what what, unsigned i)
{
	sim_at(r->sim, sim_now(r->sim) + ns, token_of(what, i));
}

static void queue_name(unsigned queue, char out[16])
{
	snprintf(out, 16, "q%u", queue);
}

/* ---- clients ---- */

static void put(struct run *r)
{
	unsigned i = r->count;
	struct message *m = &r->messages[i];
	char queue[16], tail[16];
	uint32_t value = i;

	if (r->calm || r->count == MESSAGES_MAX)
		return;
	m->put_ns = sim_now(r->sim);
	m->queue = (unsigned)rp_rand_below(&r->rand, QUEUES);
	m->node = (unsigned)rp_rand_below(&r->rand, r->nodes);
	later(r, rp_rand_below(&r->rand, 100 * RP_NS_PER_MS), WHAT_PUT, 0);
	queue_name(m->queue, queue);
	snprintf(tail, sizeof(tail), "m%u", i);
	m->put = sim_put(r->sim, m->node, queue, tail, &value, sizeof(value),
			 token_of(WHAT_PUT, i)) == 0;
	if (!m->put)
		return;
	order_put(r, i);
	r->count++;
}

static void acknowledge(struct run *r, unsigned i)
{
	struct message *m = &r->messages[i];
	struct consumer *c = &r->consumers[m->consumer];
	char queue[16];

	if (m->acked || m->over)
		return;
	if (c->handle == 0) {
		/* It goes on, here or elsewhere, in a moment. */
		if (c->resumes || c->returns)
			later(r, 200 * RP_NS_PER_MS, WHAT_ACK, i);
		return;
	}
	queue_name(m->queue, queue);
	m->maybe_acked = true;
	if (sim_ack(r->sim, c->node, queue, m->idx, c->uuid, token_of(WHAT_ACK, i)) != 0)
		later(r, 200 * RP_NS_PER_MS, WHAT_ACK, i);
}

void consumer_is_over(struct run *r, unsigned k)
{
	r->consumers[k].handle = 0;
	r->consumers[k].resumes = r->consumers[k].returns = false;
	for (unsigned i = 0; i < r->count; i++)
		if (r->messages[i].deliveries > 0 && r->messages[i].consumer == k)
			r->messages[i].over = true;
}

static void open_consumer(struct run *r, unsigned k)
{
	struct consumer *c = &r->consumers[k];
	char queue[16];

	if (c->handle != 0 || (c->queue < SINGLE_QUEUES && k % 3 > 0))
		return;
	if (c->resumes)
		c->node = (c->node + 1) % r->nodes;
	if (sim_is_down(r->sim, c->node)) {
		if (c->resumes)
			later(r, 100 * RP_NS_PER_MS, WHAT_OPEN, k);
		return;
	}
	queue_name(c->queue, queue);
	c->handle = ++r->handles << 16 | k;
	if (sim_consumer_resume(r->sim, c->node, queue, c->uuid, c->handle,
		    c->resumes || c->returns ? c->revision + 1 : 0) == 0) {
		c->life += !c->resumes && !c->returns;
		c->resumes = c->returns = false;
		return;
	}
	/* It could not come back in time. */
	if (c->returns)
		consumer_is_over(r, k);
	c->handle = 0;
	later(r, (c->resumes ? 100 : 500) * RP_NS_PER_MS, WHAT_OPEN, k);
}

static void on_answered(void *ctx, unsigned node, uint64_t token, const struct rp_control_answer *a)
{
	struct run *r = ctx;
	unsigned i = (unsigned)token;
	struct message *m = &r->messages[i];

	if (token >> 32 == WHAT_PUT) {
		if (i == r->trace)
			say(r, "message %u: put at node %u: %s", i, node,
				rp_qstatus_name(a->status));
		m->answered = true;
		m->accepted = a->status == RP_Q_OK;
		order_answered(r, i);
		return;
	}
	if (i == r->trace)
		say(r, "message %u: acknowledge at node %u: %s, deleted %u", i, node,
			rp_qstatus_name(a->status), a->deleted);
	if (m->over)
		return;
	if (a->status == RP_Q_OK) {
		/* With nothing deleted its client knows that it is not, or no longer, its own. */
		m->acked = a->deleted > 0;
		m->over = !m->acked;
		return;
	}
	/* Refused is final; all else is tried again. */
	if (a->status == RP_Q_UNREACHABLE || a->status == RP_Q_NO_DISPATCHER ||
		a->status == RP_Q_STOPPING)
		later(r, 300 * RP_NS_PER_MS, WHAT_ACK, i);
	else
		say(r, "acknowledge of %u at node %u: %s", i, node, rp_qstatus_name(a->status));
}

static void check_second(struct run *r, unsigned i, unsigned k, uint32_t attempt)
{
	struct message *m = &r->messages[i];
	uint64_t moved_ns = r->consumers[m->consumer].moved_ns;

	if (m->deliveries == 0 || m->over)
		return;
	/* Where it went on could not tell in time that it is there. */
	if (moved_ns > 0 && moved_ns <= r->together_ns &&
		sim_now(r->sim) < moved_ns + 10 * RP_NS_PER_S)
		return;
	fault(r,
		"message %u of q%u was delivered to consumer %u at node %u, then (attempt %u) to %u "
		"at node %u, while the first had it still%s",
		i, m->queue, m->consumer, r->consumers[m->consumer].node, attempt, k,
		r->consumers[k].node, m->acked ? ", and had acknowledged it" : "");
}

static void on_delivered(void *ctx, unsigned node, uint64_t handle,
	const struct rp_control_delivery *d, const uint8_t *value, size_t length)
{
	struct run *r = ctx;
	unsigned k = (unsigned)(handle & 0xffff);
	struct consumer *c = &r->consumers[k];
	struct message *m;
	uint32_t i;

	if (c->handle != handle)
		return; /* the watch was closed while it was on its way */
	if (length != sizeof(i) || (memcpy(&i, value, sizeof(i)), i >= r->count)) {
		fault(r, "a delivery of nothing that was put");
		return;
	}
	m = &r->messages[i];
	if (i == r->trace)
		say(r,
			"message %u: delivered at node %u to consumer %u, idx %" PRIx64
			", attempt %u",
			i, node, k, d->idx, d->attempt);
	if (m->queue != c->queue)
		fault(r, "message %u of q%u at a consumer of q%u", i, m->queue, c->queue);
	check_second(r, i, k, d->attempt);
	if (m->deliveries == 0)
		order_delivered(r, i, k, d->attempt);
	m->deliveries++;
	c->revision = d->revision;
	m->consumer = k;
	m->idx = d->idx;
	m->over = false;
	sim_consumer_accepted(r->sim, node, handle, d->idx);
	/* Some take their time, so that a fault finds messages with their consumers. */
	later(r,
		rp_rand_below(&r->rand,
			rp_rand_below(&r->rand, 8) == 0 ? 8 * RP_NS_PER_S : 20 * RP_NS_PER_MS),
		WHAT_ACK, i);
}

static void on_withdrawn(void *ctx, unsigned node, uint64_t handle, uint64_t idx)
{
	struct run *r = ctx;
	unsigned k = (unsigned)(handle & 0xffff);

	for (unsigned i = 0; i < r->count; i++) {
		struct message *m = &r->messages[i];

		if (m->deliveries == 0 || m->consumer != k || m->idx != idx)
			continue;
		m->over = true;
		if (i == r->trace)
			say(r, "message %u: taken back from consumer %u", i, k);
	}
}

static void on_ended(void *ctx, unsigned node, uint64_t handle, const char *reason)
{
	struct run *r = ctx;
	unsigned k = (unsigned)(handle & 0xffff);

	if (r->consumers[k].handle != handle)
		return;
	say(r, "consumer %u at node %u was ended: %s", k, node, reason);
	if (strcmp(reason, RP_CONTROL_TEXT_DRAINING) == 0 && r->consumers[k].revision > 0) {
		/* What it holds stays its own, wherever it goes on. */
		r->consumers[k].handle = 0;
		r->consumers[k].resumes = true;
		r->consumers[k].moved_ns = sim_now(r->sim);
		later(r, 50 * RP_NS_PER_MS, WHAT_OPEN, k);
		return;
	}
	consumer_is_over(r, k);
	later(r, RP_NS_PER_S, WHAT_OPEN, k);
}

static void on_timer(void *ctx, uint64_t id)
{
	struct run *r = ctx;
	unsigned i = (unsigned)id;

	switch ((enum what)(id >> 32)) {
	case WHAT_PUT:
		put(r);
		return;
	case WHAT_ACK:
		acknowledge(r, i);
		return;
	case WHAT_OPEN:
		open_consumer(r, i);
		return;
	case WHAT_FAULT:
	case WHAT_MEND:
		trouble_set(r, i, id >> 32 == WHAT_FAULT);
		return;
	case WHAT_WATCH:
		order_watch(r);
		return;
	}
}

/* ---- a run ---- */

static bool joined(void *ctx)
{
	return sim_joined(((struct run *)ctx)->sim);
}

static bool settled(void *ctx)
{
	struct run *r = ctx;

	if (r->fault[0] != '\0')
		return true;
	for (unsigned i = 0; i < r->count; i++) {
		const struct message *m = &r->messages[i];

		if (m->accepted && !m->excused && !m->acked && !(m->over && m->maybe_acked))
			return false;
	}
	return true;
}

static void check_end(struct run *r)
{
	char why[400];

	for (unsigned i = 0; i < r->count; i++) {
		const struct message *m = &r->messages[i];

		if (m->accepted && !m->excused && !m->acked && !(m->over && m->maybe_acked))
			fault(r, "message %u of q%u, accepted at node %u, %s", i, m->queue, m->node,
				m->deliveries == 0 ? "was never delivered"
				: m->over ? "was taken from its consumer and not delivered again"
					  : "could not be acknowledged");
	}
	order_check(r);
	for (unsigned n = 1; n < r->nodes; n++)
		if (!sim_stores_equal(r->sim, 0, n, why, sizeof(why)))
			fault(r, "stores differ: %s", why);
	for (unsigned n = 0; n < r->nodes; n++)
		for (unsigned s = 0; s < r->shards; s++) {
			struct rp_engine *e = sim_engine(r->sim, n, s);
			const char *audit = rp_queue_audit(rp_engine_queues(e));
			struct rp_deliver_info info;
			struct rp_queue_totals t;

			rp_deliver_info(rp_engine_deliver(e), 0, &info);
			rp_queue_get_totals(rp_engine_queues(e), &t);
			if (info.streams_out > 0 || info.streams_in > 0 || info.messages > 0)
				fault(r, "node %u shard %u has %u+%u streams, %u messages on them",
					n, s, info.streams_out, info.streams_in, info.messages);
			if (t.requests > 0)
				fault(r, "node %u shard %u: %u requests are not answered", n, s,
					t.requests);
			if (audit)
				fault(r, "node %u shard %u: %s", n, s, audit);
		}
}

/* Each queue takes and gives a message at the end, from every node. */
static void check_alive(struct run *r)
{
	unsigned first = r->count;

	for (unsigned q = 0; q < QUEUES; q++) {
		struct message *m = &r->messages[r->count];
		uint32_t value = r->count;
		char queue[16];

		*m = (struct message){.queue = q, .node = q % r->nodes, .put_ns = sim_now(r->sim)};
		queue_name(q, queue);
		if (sim_put(r->sim, m->node, queue, "last", &value, sizeof(value),
			    token_of(WHAT_PUT, r->count)) != 0)
			fault(r, "a put at node %u is not taken after all has healed", m->node);
		order_put(r, r->count);
		r->count++;
	}
	sim_run_until(r->sim, sim_now(r->sim) + 20 * RP_NS_PER_S, NULL, NULL);
	for (unsigned i = first; i < r->count; i++)
		if (!r->messages[i].accepted || !r->messages[i].acked)
			fault(r, "q%u is wedged: a message at node %u is %s", r->messages[i].queue,
				r->messages[i].node,
				!r->messages[i].answered   ? "not answered"
				: !r->messages[i].accepted ? "refused"
							   : "not delivered");
}

static void drive(struct run *r, unsigned kinds)
{
	if (!sim_run_until(r->sim, sim_now(r->sim) + 30 * RP_NS_PER_S, joined, r)) {
		fault(r, "the nodes did not join within 30 s");
		return;
	}
	order_watch(r);
	for (unsigned k = 0; k < CONSUMERS_MAX; k++) {
		struct consumer *c = &r->consumers[k];

		c->queue = k / 3;
		c->node = (unsigned)rp_rand_below(&r->rand, r->nodes);
		for (unsigned b = 0; b < RP_UUID_BYTES; b++)
			c->uuid[b] = (uint8_t)rp_rand_u64(&r->rand);
		open_consumer(r, k);
	}
	trouble_make(r, kinds);
	later(r, 0, WHAT_PUT, 0);
	sim_run_until(r->sim, sim_now(r->sim) + TROUBLE_NS + 14 * RP_NS_PER_S, NULL, NULL);
	r->calm = true;
	trouble_end(r);
	if (!sim_run_until(r->sim, sim_now(r->sim) + 120 * RP_NS_PER_S, joined, r))
		fault(r, "the nodes did not join again within 120 s");
	for (unsigned k = 0; k < CONSUMERS_MAX; k++)
		open_consumer(r, k);
	sim_run_until(r->sim, sim_now(r->sim) + 120 * RP_NS_PER_S, settled, r);
	check_alive(r);
	sim_run_until(r->sim, sim_now(r->sim) + 70 * RP_NS_PER_S, NULL, NULL);
	check_end(r);
}

static bool run_seed(uint64_t seed, unsigned kinds, unsigned trace, bool verbose)
{
	struct run *r = calloc(1, sizeof(*r));
	struct sim_options options = {
		.nodes = 3 + seed % 2,
		.shards = seed % 3 == 0 ? 4 : 1 + seed % 2,
		.seed = seed,
		.network = {.drop = 0.002,
			.reorder = 0.002,
			.reorder_ns = 50000,
			.delay_ns = 20000},
		.call_delay_ns = 200000,
		.unary_fallback = seed % 5 != 0,
		.message_bytes_max = 1 << 16,
		.verbose = verbose,
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
	options.links = options.shards == 4 ? 2 : 1;
	options.stacks = options.shards == 4 ? SIM_STACKS_RSS : SIM_STACKS_ONE;
	r->rand = (struct rp_rand){seed * 3 + 1};
	r->nodes = options.nodes;
	r->shards = options.shards;
	r->links = options.links;
	r->together_ns = RP_NEVER;
	r->verbose = verbose;
	r->trace = trace;
	r->sim = sim_create(&options, &hooks);
	drive(r, kinds);
	leak = sim_destroy(r->sim);
	if (leak)
		fault(r, "%s", leak);
	ok = r->fault[0] == '\0';
	if (!ok)
		printf("FAILED seed %" PRIu64 ": %s\nreplay: sim_cluster --seed %" PRIu64
		       " --kinds 0x%x --verbose\n",
			seed, r->fault, seed, kinds);
	else if (verbose)
		printf("seed %" PRIu64 ": %u messages\n", seed, r->count);
	free(r);
	return ok;
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, seeds = 1, failed = 0;
	unsigned kinds = trouble_kinds(UINT32_MAX);
	unsigned trace = UINT32_MAX;
	bool verbose = false;

	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";

		if (!strcmp(argv[i], "--verbose")) {
			verbose = true;
			continue;
		}
		i++;
		if (!strcmp(argv[i - 1], "--seed"))
			seed = strtoull(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--seeds"))
			seeds = strtoull(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--trace"))
			trace = (unsigned)strtoul(v, NULL, 10);
		else if (!strcmp(argv[i - 1], "--kinds"))
			kinds = trouble_kinds((unsigned)strtoul(v, NULL, 0));
		else
			return fprintf(stderr, "unknown argument %s\n", argv[i - 1]), 2;
	}
	if (kinds == 0)
		return fprintf(stderr, "no kind of fault\n"), 2;
	rp_log_set_level(verbose ? RP_LOG_WARNING : RP_LOG_CRIT);
	sim_eal_start();
	for (uint64_t s = seed; s < seed + seeds; s++)
		failed += !run_seed(s, kinds, trace, verbose);
	printf("%" PRIu64 " passed, %" PRIu64 " failed\n", seeds - failed, failed);
	return failed ? 1 : 0;
}
