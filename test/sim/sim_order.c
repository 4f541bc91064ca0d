/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Order is promised for each producer's node (spec/queues.md): of two accepted messages of one
 * queue from one node, the one that was put first is shown first to whoever is shown both. Three
 * things are no breach of it:
 *
 *   - what was offered before and comes again, of a queue with several consumers, or that another
 *     node dispatches since: somebody was shown what is newer meanwhile;
 *   - a message of which the producer was told that nobody knows what became of it;
 *   - what a node held that others could not reach, when the newer message was accepted by another
 *     dispatcher meanwhile. That is: not all nodes saw each other then, and it was not the same
 *     dispatcher that accepted both.
 *
 * Whether a put succeeds is known later than its message is shown, so the end decides.
 */

#include <stdio.h>
#include <string.h>

#include "sim_cluster.h"

#define WATCH_NS (10 * RP_NS_PER_MS)

static struct took took_now(struct run *r, const struct message *m)
{
	char name[16];
	int length = snprintf(name, sizeof(name), "q%u", m->queue);
	uint32_t hash = rp_queue_hash(name, (size_t)length);
	struct rp_queue_info info = {0};

	if (sim_is_down(r->sim, m->node))
		return (struct took){0};
	rp_queue_info(rp_engine_queues(sim_engine(r->sim, m->node, rp_hash_pick(hash, r->shards))),
		(struct rp_span){(const uint8_t *)name, (size_t)length}, &info, sim_now(r->sim));
	return (struct took){info.dispatcher, info.epoch};
}

static bool took_same(const struct took *a, const struct took *b)
{
	return a->dispatcher && a->dispatcher == b->dispatcher && a->epoch == b->epoch;
}

void order_put(struct run *r, unsigned i)
{
	r->messages[i].took_put = took_now(r, &r->messages[i]);
}

static bool all_together(struct run *r)
{
	for (unsigned a = 0; a < r->nodes; a++) {
		if (sim_is_down(r->sim, a))
			return false;
		for (unsigned b = 0; b < r->nodes; b++)
			if (r->apart[a][b] ||
				rp_repl_state_of(rp_control_repl(sim_control(r->sim, a)),
					sim_node_id(b)) != RP_REPL_ONLINE)
				return false;
	}
	return true;
}

void order_answered(struct run *r, unsigned i)
{
	struct message *m = &r->messages[i];

	m->took_answer = took_now(r, m);
	m->together = r->together_ns < m->put_ns && all_together(r);
}

void order_watch(struct run *r)
{
	if (!all_together(r))
		r->together_ns = RP_NEVER;
	else if (r->together_ns == RP_NEVER)
		r->together_ns = sim_now(r->sim);
	later(r, WATCH_NS, WHAT_WATCH, 0);
}

void order_delivered(struct run *r, unsigned i, unsigned k, uint32_t attempt)
{
	struct message *m = &r->messages[i];

	m->first_consumer = k;
	m->first_life = r->consumers[k].life;
	m->first_attempt = attempt;
	for (unsigned j = i + 1; j < r->count; j++) {
		const struct message *n = &r->messages[j];

		if (n->deliveries == 0 || n->queue != m->queue || n->node != m->node ||
			n->first_consumer != k || n->first_life != m->first_life)
			continue;
		if (m->queue >= SINGLE_QUEUES && (attempt > 1 || n->first_attempt > 1))
			continue;
		if (r->swapped_count < MESSAGES_MAX)
			r->swapped[r->swapped_count++] = (struct swapped){i, j, k};
		return;
	}
}

static bool same_dispatcher(const struct message *a, const struct message *b)
{
	return took_same(&a->took_put, &a->took_answer) &&
	       took_same(&b->took_put, &b->took_answer) && took_same(&a->took_put, &b->took_put);
}

void order_check(struct run *r)
{
	for (unsigned s = 0; s < r->swapped_count; s++) {
		const struct swapped *w = &r->swapped[s];
		const struct message *a = &r->messages[w->earlier], *b = &r->messages[w->later];

		if (!a->accepted || !b->accepted)
			continue;
		if (!same_dispatcher(a, b) && (!b->together || a->first_attempt > 1))
			continue;
		fault(r,
			"message %u of q%u, put at node %u, came after %u at consumer %u, though %s",
			w->earlier, a->queue, a->node, w->later, w->consumer,
			b->together ? "all nodes saw each other"
				    : "the same dispatcher accepted both");
	}
}
