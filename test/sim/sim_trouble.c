/* SPDX-License-Identifier: Apache-2.0 */

/* What befalls the nodes of a sim_cluster: faults, and what an operator does meanwhile. */

#include <rte_mbuf.h>

#include "sim_cluster.h"

enum kind {
	FAULT_CRASH,
	FAULT_PARTITION, /* one node from all others */
	FAULT_CUT,	 /* a pair, everything */
	FAULT_ONE_WAY,
	FAULT_HALF_OPEN, /* a pair: frames, not calls */
	FAULT_SKEW,
	FAULT_SLOW,
	FAULT_LEAVE,  /* a consumer closes its watch */
	FAULT_LIMITS, /* a new configuration: limits, times, the fallback */
	FAULT_DRAIN,  /* a node is drained, and is to serve again */
	FAULT_ZONE,   /* a new configuration: a node is in a zone of its own */
	FAULT_MEMBER, /* a new configuration: a node is no peer of the others */
	FAULT_RETURN, /* a consumer's watch ends, and it is back at once */
	FAULT_LABELS, /* a new configuration: two nodes are apart, and the others see both */
	FAULT_KINDS,
};

static const char *const kind_names[] = {"crash", "partition", "cut", "one way", "half open",
	"skew", "slow", "leave", "limits", "drain", "zone", "member", "return", "labels"};

/* What follows the letter that all names of queues and messages here begin with. */
static unsigned number_of(const uint8_t *text, size_t length)
{
	unsigned n = 0;

	for (size_t i = 1; i < length; i++)
		n = n * 10 + (unsigned)(text[i] - '0');
	return n;
}

static void excuse_queue(struct run *r, unsigned queue)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->messages[i].queue == queue && !r->messages[i].acked)
			r->messages[i].excused = true;
}

/* Those that are in the queue there. */
static void excuse_indexed(struct run *r, struct rp_queues *qs, struct rp_span name)
{
	struct rp_queue_message_info infos[32];
	uint32_t n, skip = 0;

	do {
		n = rp_queue_messages(qs, name, skip, infos, RP_ARRAY_SIZE(infos), sim_now(r->sim));
		for (uint32_t k = 0; k < n; k++) {
			const uint8_t *tail = rte_pktmbuf_mtod(infos[k].payload, const uint8_t *);
			unsigned i = number_of(tail, infos[k].tail_length);

			if (tail[0] == 'm' && i < r->count)
				r->messages[i].excused = true;
		}
		skip += n;
	} while (n == RP_ARRAY_SIZE(infos));
}

/*
 * A message that the node held when it died may be lost with it, and no other one: where something
 * is on its way from one dispatcher to another, it may be any of its queue.
 */
static void excuse(struct run *r, unsigned node)
{
	for (unsigned s = 0; s < r->shards; s++) {
		struct rp_queues *qs = rp_engine_queues(sim_engine(r->sim, node, s));
		struct rp_queue_info info;
		uint32_t cursor = 0;

		while (rp_queue_next(qs, &cursor, &info, sim_now(r->sim))) {
			if (info.name.length < 2)
				continue;
			if (info.forwards > 0)
				excuse_queue(r, number_of(info.name.data, info.name.length));
			else if (info.depth > 0)
				excuse_indexed(r, qs, info.name);
		}
	}
}

static void crash(struct run *r, unsigned node)
{
	if (sim_is_down(r->sim, node))
		return;
	excuse(r, node);
	sim_crash(r->sim, node);
	for (unsigned k = 0; k < CONSUMERS_MAX; k++)
		if (r->consumers[k].node == node)
			consumer_is_over(r, k);
	/* Puts there that nobody answers any more were not accepted. */
}

static void cut(struct run *r, unsigned a, unsigned b, bool on)
{
	sim_cut(r->sim, a, b, on, on);
	sim_cut(r->sim, b, a, on, on);
}

/* Each node has a configuration of its own, as a file that is edited on one of them. */
static void reconfigure(struct run *r, unsigned node, bool on)
{
	struct rp_control_limits l = sim_limits(r->sim);

	if (on) {
		l.unary_fallback = rp_rand_below(&r->rand, 2);
		l.message_bytes = 1u << rp_rand_below(&r->rand, 17);
		l.queue_depth = 1u << rp_rand_below(&r->rand, 17);
		l.queue_bytes = 1ull << rp_rand_below(&r->rand, 29);
		l.resume_ns = (1 + rp_rand_below(&r->rand, 30)) * 100 * RP_NS_PER_MS;
		l.idle_ns = (1 + rp_rand_below(&r->rand, 60)) * RP_NS_PER_S;
	}
	sim_set_limits(r->sim, node, &l);
}

/* Both nodes' files say so. */
static void apart_set(struct run *r, unsigned a, unsigned b, bool apart)
{
	r->apart[a][b] = r->apart[b][a] = apart;
	sim_set_apart(r->sim, a, b, apart);
	sim_set_apart(r->sim, b, a, apart);
}

static void set_fault(struct run *r, const struct fault *f, bool on)
{
	switch ((enum kind)f->kind) {
	case FAULT_CRASH:
		if (on) {
			crash(r, f->a);
		} else if (sim_is_down(r->sim, f->a)) {
			sim_restart(r->sim, f->a);
			for (unsigned k = 0; k < CONSUMERS_MAX; k++)
				if (r->consumers[k].node == f->a)
					later(r, 2 * RP_NS_PER_S, WHAT_OPEN, k);
		}
		return;
	case FAULT_PARTITION:
		for (unsigned i = 0; i < r->nodes; i++)
			if (i != f->a)
				cut(r, f->a, i, on);
		return;
	case FAULT_CUT:
		cut(r, f->a, f->b, on);
		return;
	case FAULT_ONE_WAY:
		sim_cut(r->sim, f->a, f->b, on, on);
		return;
	case FAULT_HALF_OPEN:
		sim_cut(r->sim, f->a, f->b, on, false);
		sim_cut(r->sim, f->b, f->a, on, false);
		return;
	case FAULT_SKEW:
		sim_set_skew(r->sim, f->a, on ? (int64_t)(f->b % 2 ? 1 : -1) * 300000000 : 0);
		return;
	case FAULT_SLOW:
		sim_set_slow(r->sim, f->a, on ? 5 * RP_NS_PER_MS : 0);
		return;
	case FAULT_LEAVE:
		if (on && r->consumers[f->a * 3 + f->b].handle != 0) {
			unsigned k = f->a * 3 + f->b;
			uint64_t handle = r->consumers[k].handle;

			consumer_is_over(r, k);
			sim_consumer_close(r->sim, r->consumers[k].node, handle);
			later(r, 3 * RP_NS_PER_S, WHAT_OPEN, k);
		}
		return;
	case FAULT_RETURN:
		if (on && r->consumers[f->a * 3 + f->b].handle != 0 &&
			r->consumers[f->a * 3 + f->b].revision > 0) {
			struct consumer *c = &r->consumers[f->a * 3 + f->b];
			uint64_t handle = c->handle;

			c->handle = 0;
			c->returns = true;
			sim_consumer_close(r->sim, c->node, handle);
			/* Less than the least queues.resume_ms. */
			later(r, 20 * RP_NS_PER_MS, WHAT_OPEN, f->a * 3 + f->b);
		}
		return;
	case FAULT_LIMITS:
		reconfigure(r, f->a, on);
		return;
	case FAULT_DRAIN:
		sim_drain(r->sim, f->a, on);
		return;
	case FAULT_ZONE:
		for (unsigned i = 0; i < r->nodes; i++)
			if (i != f->a)
				apart_set(r, f->a, i, on);
		return;
	case FAULT_LABELS:
		apart_set(r, f->a, f->b, on);
		return;
	case FAULT_MEMBER:
		for (unsigned i = 0; i < r->nodes; i++) {
			if (i == f->a)
				continue;
			sim_set_peer(r->sim, f->a, i, !on);
			sim_set_peer(r->sim, i, f->a, !on);
		}
		return;
	case FAULT_KINDS:
		break;
	}
}

unsigned trouble_kinds(unsigned kinds)
{
	return kinds & ((1u << FAULT_KINDS) - 1);
}

void trouble_set(struct run *r, unsigned i, bool on)
{
	const struct fault *f = &r->faults[i];

	say(r, "%s %s: %u %u", on ? "begins" : "ends", kind_names[f->kind], f->a, f->b);
	set_fault(r, f, on);
}

void trouble_end(struct run *r)
{
	for (unsigned a = 0; a < r->nodes; a++) {
		for (unsigned b = 0; b < r->nodes; b++)
			sim_cut(r->sim, a, b, false, false);
		sim_set_slow(r->sim, a, 0);
		sim_set_skew(r->sim, a, 0);
		if (sim_is_down(r->sim, a))
			sim_restart(r->sim, a);
		reconfigure(r, a, false);
		sim_drain(r->sim, a, false);
	}
	for (unsigned a = 0; a < r->nodes; a++) {
		for (unsigned b = 0; b < r->nodes; b++) {
			if (a == b)
				continue;
			apart_set(r, a, b, false);
			sim_set_peer(r->sim, a, b, true);
		}
	}
}

void trouble_make(struct run *r, unsigned kinds)
{
	r->fault_count = 2 + (unsigned)rp_rand_below(&r->rand, 8);
	for (unsigned i = 0; i < r->fault_count; i++) {
		struct fault *f = &r->faults[i];
		uint64_t at = rp_rand_below(&r->rand, TROUBLE_NS);
		uint64_t lasts = RP_NS_PER_S / 2 + rp_rand_below(&r->rand, 12 * RP_NS_PER_S);

		do
			f->kind = (unsigned)rp_rand_below(&r->rand, FAULT_KINDS);
		while (!(kinds >> f->kind & 1));
		f->a = (unsigned)rp_rand_below(&r->rand, r->nodes);
		f->b = (f->a + 1 + (unsigned)rp_rand_below(&r->rand, r->nodes - 1)) % r->nodes;
		if (f->kind == FAULT_LEAVE || f->kind == FAULT_RETURN) {
			f->a = (unsigned)rp_rand_below(&r->rand, QUEUES);
			f->b = (unsigned)rp_rand_below(&r->rand, 3);
		}
		later(r, at, WHAT_FAULT, i);
		later(r, at + lasts, WHAT_MEND, i);
	}
}
