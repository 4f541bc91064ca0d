/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A dispatcher that leaves hands its queues over (spec/queues.md, "Election, epoch and placement").
 *
 * It asks an Online node to take the queue (HANDOVER), and binds nothing new meanwhile. The taker
 * claims with the next epoch and offers nothing new either. The old dispatcher learns of the claim
 * and sends all it has as forwards: bound messages with index, attempt and holder, so that they
 * stay whose they are; the rest in order. First of all go the tails that it remembers for dedup_s
 * (HANDOVER with a payload). When all are taken it says so (HANDOVER with RESUMES), and the taker
 * begins. A taker that dies meanwhile is a dispatcher that died: what was not taken yet is
 * dispatched here again. An acknowledge that comes between the two is asked for again until the
 * message has arrived.
 *
 * A node that hosts consumers asks for a queue whose dispatcher hosts none (CLAIM). When none has
 * come there for resume_ms, it is handed over in the same way.
 */

#include <string.h>

#include "trace_priv.h"

/* Asked again after so long, when nobody has claimed; and how often a move under way is looked at.
 */
#define MOVE_ASK_NS (100 * RP_NS_PER_MS)
#define MOVE_LOOK_NS (1 * RP_NS_PER_MS)
/* One who claimed and does not take it keeps it from nobody for longer. */
#define MOVE_ASKS_MAX 10
/* A node that drains serves its queues meanwhile: after so many it asks again later. */
#define DRAIN_ASKS_MAX 12

#define move_of(l) rp_list_entry(l, struct move, link)

/* Its place is looked for from the end that is nearer in time. */
static void move_later(struct rp_queues *qs, struct move *v, uint64_t at_ns)
{
	struct rp_list *n;

	rp_list_unlink(&v->link);
	v->at_ns = at_ns;
	n = qs->moves.next;
	if (n != &qs->moves && move_of(qs->moves.prev)->at_ns < at_ns) {
		n = &qs->moves;
	} else if (n != &qs->moves && move_of(qs->moves.prev)->at_ns - at_ns <
					      at_ns - RP_MIN(at_ns, move_of(n)->at_ns)) {
		n = &qs->moves;
		while (n->prev != &qs->moves && move_of(n->prev)->at_ns > at_ns)
			n = n->prev;
	} else {
		while (n != &qs->moves && move_of(n)->at_ns <= at_ns)
			n = n->next;
	}
	rp_list_push_back(n, &v->link);
}

/* NULL: there are as many as there may be. */
static struct move *move_get(struct rp_queues *qs, struct queue *q)
{
	if (!q->move) {
		q->move = slab_get(&qs->moves_slab);
		if (!q->move)
			return NULL;
		rp_list_init(&q->move->link);
		q->move->q = q;
	}
	return q->move;
}

void move_end(struct rp_queues *qs, struct queue *q)
{
	if (!q->move)
		return;
	rp_list_unlink(&q->move->link);
	slab_put(&qs->moves_slab, q->move);
	q->move = NULL;
}

/* ---- the old dispatcher ---- */

static bool peer_can_take(const struct rp_queues *qs, const struct queue *q, const struct peer *p)
{
	return p != &qs->peers[0] && p->state == RP_NODE_ONLINE && !p->lost &&
	       !queue_is_apart(qs, q, p->node);
}

/* The node that hosts most of its consumers; else any, but another at each attempt. */
static uint64_t move_target(struct rp_queues *qs, struct queue *q)
{
	uint32_t best_count = 0, candidates = 0, wanted;
	uint64_t best = 0;

	if (!qs->stopping && !q->move->claimer && q->move->asks >= DRAIN_ASKS_MAX)
		return 0;
	if (q->move->claimer) {
		const struct peer *p = peer_find(qs, q->move->claimer);

		return p && peer_can_take(qs, q, p) && q->move->asks < MOVE_ASKS_MAX ? p->node : 0;
	}
	for (unsigned i = 1; i < RP_ARRAY_SIZE(qs->peers) && qs->peers[i].node; i++) {
		struct rp_list *n;
		uint32_t count = 0;

		if (!peer_can_take(qs, q, &qs->peers[i]))
			continue;
		candidates++;
		rp_list_foreach (n, &q->consumers) {
			const struct consumer *c = rp_list_entry(n, struct consumer, link);

			count += c->life && c->node == qs->peers[i].node;
		}
		if (count > best_count) {
			best_count = count;
			best = qs->peers[i].node;
		}
	}
	if (candidates == 0 || (best && q->move->asks % 4 != 3))
		return best;
	wanted = (q->hash + q->move->asks) % candidates;
	for (unsigned i = 1;; i++) {
		if (peer_can_take(qs, q, &qs->peers[i]) && wanted-- == 0)
			return qs->peers[i].node;
	}
}

static void handover_send(
	struct rp_queues *qs, struct queue *q, uint64_t node, bool all, uint64_t now_ns)
{
	struct rp_qmsg m = qmsg_for(q, RP_QMSG_HANDOVER);

	m.flags = all ? RP_QMSG_RESUMES : 0;
	if (peer_send(qs, node, &m, now_ns) == 0 && all) {
		move_end(qs, q);
		queue_work(qs, q);
	}
}

void move_begin(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct move *v;

	if (q->move && !q->move->from && !q->move->claiming && !q->move->claimer)
		return;
	v = move_get(qs, q);
	if (!v)
		return;
	v->from = v->to = v->claimer = 0;
	v->claiming = false;
	v->asks = 0;
	move_later(qs, v, now_ns);
}

bool move_follow(struct rp_queues *qs, struct queue *q, uint64_t node, uint64_t now_ns)
{
	if (!move_get(qs, q))
		return false;
	q->move->claimer = node;
	move_later(qs, q->move, now_ns);
	return true;
}

void move_claimed(struct rp_queues *qs, struct queue *q, uint64_t from, uint64_t now_ns)
{
	if (!q->own || q->move || q->pinned || queue_has_host(q) || queue_is_apart(qs, q, from) ||
		!move_get(qs, q))
		return;
	q->move->claimer = from;
	move_later(qs, q->move, now_ns + qs->config.resume_ns);
}

void move_keep(struct rp_queues *qs, struct queue *q)
{
	if (q->move && q->own && q->move->claimer && !q->move->to)
		move_end(qs, q);
}

void move_all(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct rp_list *n, *next;
	struct message *waiting;

	rp_list_foreach_safe (n, next, &q->consumers) {
		struct consumer *c = rp_list_entry(n, struct consumer, link);
		bool moved = true;

		dispatch_unsend(qs, c, now_ns);
		while (moved && !rp_list_empty(&c->bound))
			moved = forward_hand_over_as_is(
				qs, rp_list_entry(c->bound.next, struct message, link), now_ns);
		consumer_tidy(qs, c, now_ns);
	}
	while ((waiting = lanes_oldest(q))) {
		if (!forward_hand_over_as_is(qs, waiting, now_ns))
			return;
	}
	hand_over_aside(qs, q, now_ns, forward_hand_over_as_is);
}

void move_untook(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct rp_list *cn, *n, *next;

	rp_list_foreach (cn, &q->consumers) {
		struct consumer *c = rp_list_entry(cn, struct consumer, link);

		dispatch_unsend(qs, c, now_ns);
		rp_list_foreach_safe (n, next, &c->bound) {
			struct message *m = rp_list_entry(n, struct message, link);

			if (!m->took && !m->accepted && !forward_hand_over_as_is(qs, m, now_ns))
				return;
		}
	}
}

static void move_step_out(struct rp_queues *qs, struct move *v, uint64_t now_ns)
{
	struct queue *q = v->q;

	if (q->own) {
		bool kept = v->claimer ? queue_has_host(q) && !v->to : !is_leaving(qs);

		v->to = kept ? 0 : move_target(qs, q);
		v->asks++;
		if (!v->to) {
			/* Nobody is there: what comes later is somebody's who claims. */
			move_end(qs, q);
			queue_work(qs, q);
			return;
		}
		move_later(qs, v, now_ns + MOVE_ASK_NS);
		handover_send(qs, q, v->to, false, now_ns);
		return;
	}
	/* Whoever has claimed gets it, though it may not be who was asked. */
	v->to = q->dispatcher;
	move_later(qs, v, now_ns + MOVE_LOOK_NS);
	if (v->to && !dedup_hand_over(qs, q, v->to, now_ns))
		return;
	if (q->depth > 0)
		move_all(qs, q, now_ns);
	if (v->to && q->depth == 0 && q->handing == 0 && sessions_hand_over(qs, q, v->to, now_ns))
		handover_send(qs, q, v->to, true, now_ns);
}

/* ---- the new one ---- */

void move_claim(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	if (is_leaving(qs) || q->move || !move_get(qs, q))
		return;
	q->move->claiming = true;
	move_later(qs, q->move, now_ns);
}

/* Asked for again as long as there is a reason. */
static void move_step_claim(struct rp_queues *qs, struct move *v, uint64_t now_ns)
{
	struct queue *q = v->q;
	struct rp_qmsg m;

	if (is_leaving(qs) || q->own || !queue_is_wanted(q) ||
		queue_elect(qs, q, RP_CLAIM_CONSUMER, now_ns) != RP_ELECT_TAKE_OVER) {
		move_end(qs, q);
		return;
	}
	m = qmsg_for(q, RP_QMSG_CLAIM);
	peer_send(qs, q->dispatcher, &m, now_ns);
	move_later(qs, v, now_ns + qs->config.resume_ns);
}

static void receive_end(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	move_end(qs, q);
	queue_work(qs, q);
	if (is_leaving(qs))
		move_begin(qs, q, now_ns);
}

/* It takes as long as something comes. */
void move_heard(struct rp_queues *qs, struct move *v, uint64_t now_ns)
{
	move_later(qs, v, now_ns + qs->config.dead_after_ns);
}

void move_receive(struct rp_queues *qs, struct queue *q, uint64_t from, const struct rp_qmsg *m,
	uint64_t now_ns)
{
	if (m->flags & RP_QMSG_RESUMES) {
		if (q->move && q->move->from == from)
			receive_end(qs, q, now_ns);
		return;
	}
	if (q->dispatcher == from && !q->own && !is_leaving(qs) && m->epoch == q->epoch &&
		qs->peers[0].state == RP_NODE_ONLINE && !queue_is_apart(qs, q, from) &&
		move_get(qs, q)) {
		q->move->from = from;
		q->move->to = q->move->claimer = 0;
		q->move->claiming = false;
		move_heard(qs, q->move, now_ns);
		if (!queue_claim(qs, q, now_ns))
			move_end(qs, q);
	}
	if (q->own) {
		const struct rp_qmsg claimed = qmsg_for(q, RP_QMSG_MOVED);

		peer_send(qs, from, &claimed, now_ns);
	}
}

/* The consumer that holds it there is the same here, or what is known of it since. */
static struct consumer *bound_holder(
	struct rp_queues *qs, struct queue *q, const struct binding *b, uint64_t now_ns)
{
	struct consumer *c = consumer_get(qs, q, b->uuid);

	if (!c)
		return NULL;
	if (is_self(qs, b->node) && !c->host) {
		uint64_t node = c->node ? c->node : c->record_node;

		/* It has left, and that was on its way to the old dispatcher. */
		if (!node || is_self(qs, node)) {
			consumer_tidy(qs, c, now_ns);
			return NULL;
		}
		/* It goes on at another node, whose word had not come there either. */
		if (!c->node)
			consumer_place(qs, c, node, 0);
		return c;
	}
	/* Its old node is left, and the new one was not heard of yet. */
	if (!c->host && !c->node && !b->life)
		consumer_place(qs, c, b->node, 0);
	if (!c->host && b->life > c->life) {
		consumer_place(qs, c, b->node, b->life);
		/* Of one that is kept apart no record comes. */
		if (c->record_node != b->node && c->life && !consumer_is_apart(qs, c))
			consumer_pause(qs, c, PAUSE_DOUBT, now_ns);
	}
	return c;
}

void dispatch_index_bound(
	struct rp_queues *qs, struct message *m, const struct binding *b, uint64_t now_ns)
{
	struct queue *q = m->q;
	struct consumer *c;
	bool anew;

	m->idx = b->idx;
	m->alloc_node = b->alloc_node;
	message_unhand(qs, m, true);
	message_indexed(qs, m, now_ns);
	trace_indexed(qs, m, now_ns);
	COUNT(qs, q, indexed);
	policy_begin(qs, m, now_ns);
	dedup_add(qs, m, now_ns);
	foreign_check(qs, m, now_ns);
	c = rp_uuid_is_zero(b->uuid) ? NULL : bound_holder(qs, q, b, now_ns);
	if (!c) {
		dispatch_return(qs, m, now_ns);
		return;
	}
	m->state = MESSAGE_BOUND;
	m->consumer = c;
	m->bound_ns = now_ns;
	m->deadline_ns = now_ns + qs->config.accept_ns;
	m->took = m->accepted = m->timed_out = false;
	/* Its host is to know who dispatches now: it gets the delivery again, and answers. */
	m->lost = m->kept = true;
	/*
	 * It may have begun anew since, for what some dispatcher delivered or for all: its host
	 * knows whether the client still has this one, and shows it as new if not. Where its new
	 * life was not heard of yet, that will say it.
	 */
	anew = c->life && c->life != b->life && !c->start_revision;
	m->attempt += anew;
	m->seen = b->mod_revision != 0 && !anew;
	m->mod_revision = anew ? 0 : b->mod_revision;
	rp_list_push_back(&c->bound, &m->link);
	rp_list_push_back(&qs->offers, &m->timer);
	consumer_take(c, m);
	job_arm_bound(qs, m, now_ns);
	c->unaccepted++;
	c->untook++;
	q->in_flight++;
	c->resend = true;
	q->resend = true;
	consumer_update(qs, c);
	queue_work(qs, q);
}

/* ---- both ---- */

bool move_is_between(
	const struct rp_queues *qs, const struct queue *q, uint64_t idx, uint64_t alloc)
{
	return ((q->move && q->move->from) || q->handing > 0) && !message_find(qs, q, idx, alloc);
}

bool move_poll(struct rp_queues *qs, uint64_t now_ns)
{
	leave_step(qs, now_ns);
	for (unsigned i = 0; i < POLL_BUDGET && !rp_list_empty(&qs->moves); i++) {
		struct move *v = move_of(qs->moves.next);

		if (v->at_ns > now_ns)
			break;
		if (v->from)
			receive_end(qs, v->q, now_ns);
		else if (v->claiming)
			move_step_claim(qs, v, now_ns);
		else
			move_step_out(qs, v, now_ns);
	}
	return move_next_ns(qs) <= now_ns;
}

uint64_t move_next_ns(const struct rp_queues *qs)
{
	uint64_t at_ns = leave_next_ns(qs);

	if (rp_list_empty(&qs->moves))
		return at_ns;
	return RP_MIN(at_ns, move_of(qs->moves.next)->at_ns);
}
