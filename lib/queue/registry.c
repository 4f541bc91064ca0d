/* SPDX-License-Identifier: Apache-2.0 */

/* Who dispatches: what is learned, claimed and lost; where consumers are; nodes that come and go.
 */

#include <errno.h>
#include <string.h>

#include "queue_priv.h"

static void queue_set_dispatcher(
	struct rp_queues *qs, struct queue *q, uint32_t epoch, uint64_t node, bool own)
{
	struct peer *p = peer_get(qs, node);

	q->epoch = epoch;
	q->epoch_seen = RP_MAX(q->epoch_seen, epoch);
	q->dispatcher = node;
	q->at = p;
	qs->own_count += (uint32_t)own - q->own;
	q->own = own;
	q->pinned = false;
	pin_forget(q);
	rp_list_unlink(&q->at_node);
	rp_list_push_back(p ? &p->queues : &qs->unclaimed, &q->at_node);
}

bool queue_has_host(const struct queue *q)
{
	struct rp_list *n;

	rp_list_foreach (n, &q->consumers) {
		if (rp_list_entry(n, struct consumer, link)->host)
			return true;
	}
	return false;
}

bool queue_is_wanted(const struct queue *q)
{
	return q->pin_wanted || queue_has_host(q);
}

static bool queue_has_consumer_at(const struct queue *q, uint64_t node)
{
	struct rp_list *n;

	rp_list_foreach (n, &q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);

		if (c->record_node == node || (c->life && c->node == node))
			return true;
	}
	return false;
}

bool queue_is_unused(const struct queue *q)
{
	return q->depth == 0 && q->unsent_count == 0 && q->sent_count == 0 && q->requests == 0 &&
	       rp_list_empty(&q->consumers) &&
	       !(q->more && (!rp_list_empty(&q->more->tails) || q->more->clearing ||
				    q->more->session_count > 0));
}

enum rp_election_verdict queue_elect(
	struct rp_queues *qs, struct queue *q, enum rp_claim claim, uint64_t now_ns)
{
	const struct peer *p = peer_find(qs, q->dispatcher);
	const struct rp_election e = {
		.self = qs->config.node,
		.self_state = qs->peers[0].state,
		.node = q->dispatcher,
		.node_state = p && !queue_is_apart(qs, q, p->node) ? p->state : RP_NODE_GONE,
		.own_claim = q->own,
		.pinned = q->pinned,
		.node_hosts_consumer = claim == RP_CLAIM_CONSUMER && q->dispatcher &&
				       queue_has_consumer_at(q, q->dispatcher),
	};

	return rp_route_elect(&e, claim);
}

enum rp_dispatch queue_dispatch(
	struct rp_queues *qs, struct queue *q, enum rp_claim claim, uint64_t now_ns)
{
	enum rp_election_verdict v;

	/* What queue_elect() would say, without asking for more. */
	if (q->own && qs->peers[0].state == RP_NODE_ONLINE)
		return RP_DISPATCH_LOCAL;
	if (q->at && q->at->state == RP_NODE_ONLINE && claim != RP_CLAIM_CONSUMER &&
		!is_self(qs, q->dispatcher) && !queue_is_apart(qs, q, q->dispatcher))
		return RP_DISPATCH_REMOTE;
	v = queue_elect(qs, q, claim, now_ns);
	if (v == RP_ELECT_CLAIM && !queue_claim(qs, q, now_ns))
		v = RP_ELECT_UNAVAILABLE;
	if (v == RP_ELECT_TAKE_OVER)
		move_claim(qs, q, now_ns);
	return rp_route_dispatch_of(v);
}

/*
 * Two nodes that claim in the dark may take the same epoch. Their sequences start apart, so that
 * their indexes, and with them the keys of their deliveries, differ: an acknowledge that knows no
 * more than the key finds the right one. The upper 12 of 40 bits are the node's; what is left is
 * enough for an epoch, and when it is not, the next epoch begins.
 */
static uint64_t first_sequence(uint64_t node)
{
	return (node * 0x9e3779b97f4a7c15ull >> 52) << 28;
}

bool queue_claim(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	uint32_t seen = RP_MAX(q->epoch_seen, qs->epoch_floor);
	uint32_t epoch = rp_route_epoch_next(seen, wall_us(qs, now_ns));
	struct rp_list *n;

	if (!epoch)
		return false;
	/* It may live, out of reach, with what it took. */
	if (q->dispatcher && !is_self(qs, q->dispatcher) && !(q->move && q->move->from))
		queue_more(qs, q)->rival = q->dispatcher;
	queue_set_dispatcher(qs, q, epoch, qs->config.node, true);
	q->sequence = first_sequence(qs->config.node);
	COUNT(qs, q, claims);
	q->pinned = q->pin_wanted;
	q->pin_wanted = false;
	qs->ops.claimed(qs->ctx, queue_name(q), epoch, q->pinned);
	rp_list_foreach (n, &q->consumers) {
		struct consumer *c = rp_list_entry(n, struct consumer, link);

		if (c->host)
			consumer_place(qs, c, qs->config.node, c->host->life);
		consumer_update(qs, c);
	}
	queue_work(qs, q);
	if (is_leaving(qs))
		move_begin(qs, q, now_ns);
	return true;
}

static bool hand_over_removed(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	aside_remove(qs, m);
	forward_hand_over(qs, m, now_ns);
	return true;
}

/*
 * Somebody else dispatches now: what waits goes there, behind what its consumers may not have got;
 * what they have stays until it is settled, but where this node has asked to be rid of it.
 */
static void queue_lose(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct message *m;
	struct rp_list *n;

	COUNT(qs, q, losses);
	if (q->move && (q->move->to || is_leaving(qs)) && !q->move->from)
		move_all(qs, q, now_ns);
	else
		move_end(qs, q);
	move_untook(qs, q, now_ns);
	while ((m = lanes_oldest(q))) {
		waiting_remove(qs, m);
		forward_hand_over(qs, m, now_ns);
	}
	hand_over_aside(qs, q, now_ns, hand_over_removed);
	forward_behind(q);
	rp_list_foreach (n, &q->consumers) {
		struct consumer *c = rp_list_entry(n, struct consumer, link);

		/* They tell the new one how they are; what they hold of this one they are asked. */
		if (!is_self(qs, c->node))
			settle_verify(qs, c, now_ns);
		consumer_update(qs, c);
	}
	if (!q->move && q->dispatcher)
		sessions_hand_over(qs, q, q->dispatcher, now_ns);
}

static void queue_resume_hosts(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct rp_list *n;

	rp_list_foreach (n, &q->consumers) {
		struct consumer *c = rp_list_entry(n, struct consumer, link);

		if (c->host && c->host->open)
			host_resume(qs, c->host, now_ns);
	}
}

bool queue_learn(
	struct rp_queues *qs, struct queue *q, uint32_t epoch, uint64_t node, uint64_t now_ns)
{
	bool was_own = q->own;
	int newer;

	/* Most frames say what is known. */
	if (node == q->dispatcher && epoch == q->epoch)
		return false;
	if (!node || epoch > RP_EPOCH_MAX)
		return false;
	if (queue_is_apart(qs, q, node)) {
		q->epoch_seen = RP_MAX(q->epoch_seen, epoch);
		return false;
	}
	newer = rp_route_dispatcher_compare(epoch, node, q->epoch, q->dispatcher);
	if (newer < 0 && node != q->dispatcher)
		queue_more(qs, q)->rival = node;
	if (newer <= 0)
		return false;
	if (q->dispatcher && q->dispatcher != node)
		queue_more(qs, q)->rival = q->dispatcher;
	queue_set_dispatcher(qs, q, epoch, node, false);
	if (is_self(qs, node)) {
		/* An earlier life of this node: only a claim of this one may give indexes out. */
		if (was_own)
			queue_claim(qs, q, now_ns);
		else
			q->recheck = true;
	} else {
		if (was_own)
			queue_lose(qs, q, now_ns);
		queue_resume_hosts(qs, q, now_ns);
	}
	queue_work(qs, q);
	return true;
}

void queue_recheck(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	enum rp_claim claim = RP_CLAIM_NONE;

	q->recheck = false;
	if (queue_is_wanted(q))
		claim = RP_CLAIM_CONSUMER;
	else if (q->unsent_count > 0)
		claim = RP_CLAIM_PRODUCER;
	queue_dispatch(qs, q, claim, now_ns);
}

void queue_end(struct rp_queues *qs, struct queue *q)
{
	if (q->own)
		qs->ops.released(qs->ctx, queue_name(q), q->epoch);
	queue_free(qs, q);
}

/* Where the consumers are, and whether it is pinned, decides who claims. */
static void claim_again(struct queue *q)
{
	if (!q->own && !q->move && queue_is_wanted(q))
		q->recheck = true;
}

/* Its dispatcher is one that its keys do not go to any more. What that one took stays there. */
static void queue_part(struct rp_queues *qs, struct queue *q)
{
	uint64_t was = q->dispatcher;

	queue_set_dispatcher(qs, q, 0, 0, false);
	if (queue_is_unused(q)) {
		queue_free(qs, q);
		return;
	}
	queue_more(qs, q)->rival = was;
	q->recheck = true;
	queue_work(qs, q);
}

static void queue_recorded(struct rp_queues *qs, struct queue *q,
	const struct rp_dispatcher_record *r, uint64_t now_ns)
{
	if (queue_is_apart(qs, q, r->node)) {
		if (q->dispatcher == r->node)
			queue_part(qs, q);
		return;
	}
	queue_learn(qs, q, r->epoch, r->node, now_ns);
	if (q->epoch != r->epoch || q->dispatcher != r->node || q->pinned == r->pinned)
		return;
	q->pinned = r->pinned;
	/* The one that was first has it. */
	if (r->pinned && !is_self(qs, r->node))
		q->pin_wanted = false;
	claim_again(q);
	queue_work(qs, q);
}

void rp_queue_set_record(
	struct rp_queues *qs, struct rp_span name, struct rp_span text, uint64_t now_ns)
{
	struct rp_dispatcher_record r;
	struct queue *q;

	if (name.length == 0 || name.length > RP_NAME_BYTES_MAX)
		return;
	if (rp_route_dispatcher_parse(&r, text.data, text.length) == 0) {
		q = name_is_apart(qs, name, r.node) ? queue_find(qs, name)
						    : queue_get(qs, name, now_ns);
		if (q)
			queue_recorded(qs, q, &r, now_ns);
		return;
	}
	q = queue_find(qs, name);
	if (!q || !q->dispatcher)
		return;
	if (q->own && !queue_is_unused(q)) {
		queue_claim(qs, q, now_ns);
		return;
	}
	queue_set_dispatcher(qs, q, 0, 0, false);
	left_forget_all(q);
	if (queue_is_unused(q)) {
		queue_free(qs, q);
		return;
	}
	q->recheck = true;
	queue_work(qs, q);
}

/* ---- consumer records ---- */

static void consumer_record_gone(struct rp_queues *qs, struct consumer *c, uint64_t now_ns)
{
	uint64_t was = c->record_node;

	c->heard_node = 0;

	/* Without a record of this life it is the echo of an earlier one's end. */
	if (!was)
		return;
	c->record_node = 0;
	if (c->host) {
		if (c->host->open)
			qs->ops.consumer_ended(qs->ctx, c->host->handle, RP_QUEUE_END_REMOVED);
		host_leave(qs, c->host, now_ns);
		return;
	}
	/*
	 * Its host says itself when it leaves. A record that ends without that is of a host that
	 * has started again, or of the life before this one: it may come back, here or elsewhere.
	 */
	if (c->life) {
		consumer_pause(qs, c, PAUSE_DOUBT, now_ns);
		return;
	}
	consumer_gone(qs, c, false, now_ns);
}

void consumer_gone(struct rp_queues *qs, struct consumer *c, bool proven, uint64_t now_ns)
{
	struct queue *q = c->q;

	consumer_place(qs, c, 0, 0);
	dispatch_release_all(qs, c, proven, now_ns);
	consumer_tidy(qs, c, now_ns);
	queue_work(qs, q);
}

/* It is at a node that the queue's keys do not go to: known only for what it holds. */
static void consumer_recorded_apart(
	struct rp_queues *qs, struct queue *q, struct consumer *c, uint64_t node, uint64_t now_ns)
{
	if (!c->host)
		c->record_node = c->heard_node = node;
	consumer_update(qs, c);
	consumer_tidy(qs, c, now_ns);
	claim_again(q);
	queue_work(qs, q);
}

int rp_queue_set_consumer(struct rp_queues *qs, struct rp_span name,
	const uint8_t uuid[RP_UUID_BYTES], struct rp_span text, uint64_t now_ns)
{
	struct rp_consumer_record r;
	struct consumer *c;
	struct queue *q;

	if (name.length == 0 || name.length > RP_NAME_BYTES_MAX)
		return -EINVAL;
	if (rp_route_consumer_parse(&r, text.data, text.length) < 0) {
		q = queue_find(qs, name);
		c = q ? consumer_find(qs, q, uuid) : NULL;
		if (c) {
			consumer_record_gone(qs, c, now_ns);
			claim_again(q);
			queue_work(qs, q);
		}
		return 0;
	}
	if (name_is_apart(qs, name, r.node)) {
		q = queue_find(qs, name);
		c = q ? consumer_find(qs, q, uuid) : NULL;
		if (c)
			consumer_recorded_apart(qs, q, c, r.node, now_ns);
		return 0;
	}
	q = queue_get(qs, name, now_ns);
	c = q ? consumer_get(qs, q, uuid) : NULL;
	if (!c || consumer_set_fields(qs, c, &r, now_ns) < 0)
		return -ENOSPC;
	settle_recorded(qs, c, r.node, now_ns);
	q->resend |= c->resend;
	claim_again(q);
	consumer_update(qs, c);
	queue_work(qs, q);
	return 0;
}

/* ---- nodes ---- */

static void queues_recheck(struct rp_queues *qs, struct rp_list *list)
{
	struct rp_list *n;

	rp_list_foreach (n, list) {
		struct queue *q = rp_list_entry(n, struct queue, at_node);

		q->recheck = true;
		queue_work(qs, q);
	}
}

static void peer_unblock(struct rp_queues *qs, struct peer *p)
{
	while (!rp_list_empty(&p->blocked))
		consumer_unpause(qs, rp_list_entry(p->blocked.next, struct consumer, ready));
	while (!rp_list_empty(&p->blocked_queues))
		queue_work(qs, rp_list_entry(p->blocked_queues.next, struct queue, work));
}

void rp_queue_set_node(
	struct rp_queues *qs, uint64_t node, enum rp_node_state state, uint64_t now_ns)
{
	struct peer *p = peer_get(qs, node);
	struct rp_list *n;

	if (!p || p->state == state)
		return;
	p->state = state;
	if (is_self(qs, node)) {
		if (state != RP_NODE_ONLINE)
			return;
		queues_recheck(qs, &qs->unclaimed);
		for (unsigned i = 0; i < RP_ARRAY_SIZE(qs->peers) && qs->peers[i].node; i++) {
			if (qs->peers[i].state != RP_NODE_ONLINE || i == 0)
				queues_recheck(qs, &qs->peers[i].queues);
		}
		return;
	}
	if (state != RP_NODE_ONLINE) {
		queues_recheck(qs, &p->queues);
		asked_lost(qs, node);
	}
	rp_list_foreach (n, &p->consumers)
		queue_work(qs, rp_list_entry(n, struct consumer, at_node)->q);
	if (state == RP_NODE_GONE)
		notices_drop(qs, p);
	peer_unblock(qs, p);
}

static void peers_deadline(struct rp_queues *qs)
{
	qs->peer_deadline_ns = RP_NEVER;
	for (unsigned i = 0; i < RP_ARRAY_SIZE(qs->peers) && qs->peers[i].node; i++) {
		const struct peer *p = &qs->peers[i];

		qs->peer_deadline_ns =
			RP_MIN(qs->peer_deadline_ns, RP_MIN(p->fence_ns, p->offer_ns));
	}
}

void rp_queue_peer_lost(struct rp_queues *qs, uint64_t node, uint64_t ping_sent_ns,
	uint64_t ping_answered_ns, uint64_t now_ns)
{
	struct peer *p = is_self(qs, node) ? NULL : peer_get(qs, node);
	uint64_t dead = qs->config.dead_after_ns;

	if (!p)
		return;
	p->lost = true;
	if (!p->fenced)
		p->fence_ns = ping_sent_ns + dead;
	if (!p->offered)
		p->offer_ns = ping_answered_ns + dead + dead / 2;
	peers_deadline(qs);
	asked_lost(qs, node);
}

void rp_queue_peer_back(struct rp_queues *qs, uint64_t node, uint64_t now_ns)
{
	struct peer *p = is_self(qs, node) ? NULL : peer_get(qs, node);
	struct rp_list *n;

	if (!p)
		return;
	p->lost = p->fenced = p->offered = false;
	p->fence_ns = p->offer_ns = RP_NEVER;
	peers_deadline(qs);
	host_fence_lifted(qs, p, now_ns);
	rp_list_foreach (n, &p->consumers) {
		struct consumer *c = rp_list_entry(n, struct consumer, at_node);

		/* Its host tells the dispatcher how it is; here is only what it held before. */
		if (!c->q->own)
			settle_verify(qs, c, now_ns);
		consumer_update(qs, c);
	}
	rp_list_foreach (n, &p->queues)
		queue_resume_hosts(qs, rp_list_entry(n, struct queue, at_node), now_ns);
	rp_queue_on_room(qs, node, now_ns);
}

void rp_queue_on_room(struct rp_queues *qs, uint64_t node, uint64_t now_ns)
{
	struct peer *p = peer_find(qs, node);

	if (!p)
		return;
	host_reports(qs, p, now_ns);
	notices_send(qs, p, now_ns);
	peer_unblock(qs, p);
}

/* The consumers of a node that is dead by now: what they hold is offered again. */
static void peer_offer(struct rp_queues *qs, struct peer *p, uint64_t now_ns)
{
	struct rp_list *n, *next;

	rp_list_foreach_safe (n, next, &p->consumers) {
		struct consumer *c = rp_list_entry(n, struct consumer, at_node);

		if (!settle_keep_kept(qs, c, now_ns))
			consumer_gone(qs, c, false, now_ns);
	}
}

bool peers_poll(struct rp_queues *qs, uint64_t now_ns)
{
	if (now_ns < qs->peer_deadline_ns)
		return false;
	for (unsigned i = 0; i < RP_ARRAY_SIZE(qs->peers) && qs->peers[i].node; i++) {
		struct peer *p = &qs->peers[i];

		if (p->fence_ns <= now_ns) {
			p->fenced = true;
			p->fence_ns = RP_NEVER;
			host_fence(qs, p, now_ns);
		}
		if (p->offer_ns <= now_ns) {
			p->offered = true;
			p->offer_ns = RP_NEVER;
			peer_offer(qs, p, now_ns);
		}
	}
	peers_deadline(qs);
	return true;
}
