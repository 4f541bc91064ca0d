/* SPDX-License-Identifier: Apache-2.0 */

/* Timers. Each list has one delay, so its first entry is always the next that is due. */

#include "queue_priv.h"

static void queue_run(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	bool more;

	queue_unwork(q);
	if (q->recheck)
		queue_recheck(qs, q, now_ns);
	more = forward_pump(qs, q, now_ns);
	more |= dispatch_pump(qs, q, now_ns);
	more |= clear_step(qs, q, now_ns);
	pin_look(qs, q, now_ns);
	if (more)
		queue_work(qs, q);
}

static bool poll_work(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; i < POLL_BUDGET && !rp_list_empty(&qs->work); i++)
		queue_run(qs, rp_list_entry(qs->work.next, struct queue, work), now_ns);
	return !rp_list_empty(&qs->work);
}

static bool poll_offers(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(&qs->offers); i++) {
		struct message *m = rp_list_entry(qs->offers.next, struct message, timer);

		if (m->deadline_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		settle_timeout(qs, m, now_ns);
	}
	return false;
}

static bool poll_pauses(struct rp_queues *qs, struct rp_list *list, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(list); i++) {
		struct consumer *c = rp_list_entry(list->next, struct consumer, ready);

		if (c->pause_until_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		consumer_unpause(qs, c);
	}
	return false;
}

static bool poll_doubted(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(&qs->doubted); i++) {
		struct consumer *c = rp_list_entry(qs->doubted.next, struct consumer, ready);

		if (c->pause_until_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		consumer_gone(qs, c, false, now_ns);
	}
	return false;
}

static bool poll_resuming(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(&qs->resuming); i++) {
		struct host *h = rp_list_entry(qs->resuming.next, struct host, timer);

		if (h->deadline_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		host_end(qs, h, true, now_ns);
	}
	return false;
}

static bool poll_requests(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(&qs->requests); i++) {
		struct request *r = rp_list_entry(qs->requests.next, struct request, timer);

		if (r->deadline_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		/* What is on its way to the newer dispatcher gets there, or comes back: it is asked
		 * again. */
		request_fail(qs, r, r->of && !r->moving ? RP_Q_STALL : RP_Q_UNREACHABLE);
	}
	return false;
}

/* Messages that stayed in a receive pool's buffers move to the queues' own. */
static bool poll_foreign(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(&qs->foreign); i++) {
		struct message *m = rp_list_entry(qs->foreign.next, struct message, stay);
		struct rte_mbuf *copy;

		if (m->stay_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		foreign_remove(qs, m);
		copy = rte_pktmbuf_copy(m->payload, qs->config.pool, 0, UINT32_MAX);
		if (copy && copy->data_len >= m->tail_length) {
			rte_pktmbuf_free(m->payload);
			m->payload = copy;
			COUNT(qs, m->q, copied);
			continue;
		}
		rte_pktmbuf_free(copy);
		foreign_add(qs, m, now_ns);
	}
	return false;
}

static bool poll_later(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(&qs->later); i++) {
		struct queue *q = rp_list_entry(qs->later.next, struct queue, work);

		if (q->more->later_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		queue_work(qs, q);
	}
	return false;
}

static bool poll_idle(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; !rp_list_empty(&qs->idle); i++) {
		struct queue *q = rp_list_entry(qs->idle.next, struct queue, idle);

		if (q->active_ns + qs->config.idle_ns > now_ns)
			return false;
		if (i == POLL_BUDGET)
			return true;
		/* What another node dispatches ends there; until then a put here has to know. */
		if (queue_is_unused(q) && (q->own || !q->dispatcher || is_self(qs, q->dispatcher)))
			queue_end(qs, q);
		else
			queue_touch(qs, q, now_ns);
	}
	return false;
}

bool rp_queue_poll(struct rp_queues *qs, uint64_t now_ns)
{
	bool more = peers_poll(qs, now_ns);

	more |= poll_offers(qs, now_ns);
	more |= poll_pauses(qs, &qs->retry, now_ns);
	more |= poll_pauses(qs, &qs->stalled, now_ns);
	more |= poll_pauses(qs, &qs->suspended, now_ns);
	more |= poll_doubted(qs, now_ns);
	more |= poll_resuming(qs, now_ns);
	more |= poll_requests(qs, now_ns);
	more |= requests_again(qs, now_ns);
	more |= move_poll(qs, now_ns);
	more |= policy_poll(qs, now_ns);
	more |= jobs_poll(qs, now_ns);
	more |= sessions_poll(qs, now_ns);
	more |= pin_poll(qs, now_ns);
	more |= poll_foreign(qs, now_ns);
	more |= poll_later(qs, now_ns);
	more |= poll_idle(qs, now_ns);
	more |= poll_work(qs, now_ns);
	return more;
}

#define FIRST(list, type, member, field) \
	(rp_list_empty(list) ? RP_NEVER : rp_list_entry((list)->next, type, member)->field)

uint64_t rp_queue_next_deadline(const struct rp_queues *qs)
{
	uint64_t t = qs->peer_deadline_ns, idle;

	if (!rp_list_empty(&qs->work) || !rp_list_empty(&qs->rooms))
		return 0;
	t = RP_MIN(t, FIRST(&qs->offers, struct message, timer, deadline_ns));
	t = RP_MIN(t, FIRST(&qs->retry, struct consumer, ready, pause_until_ns));
	t = RP_MIN(t, FIRST(&qs->stalled, struct consumer, ready, pause_until_ns));
	t = RP_MIN(t, FIRST(&qs->suspended, struct consumer, ready, pause_until_ns));
	t = RP_MIN(t, FIRST(&qs->doubted, struct consumer, ready, pause_until_ns));
	t = RP_MIN(t, FIRST(&qs->resuming, struct host, timer, deadline_ns));
	t = RP_MIN(t, FIRST(&qs->requests, struct request, timer, deadline_ns));
	t = RP_MIN(t, FIRST(&qs->again, struct request, again, again_ns));
	t = RP_MIN(t, move_next_ns(qs));
	t = RP_MIN(t, policy_next_ns(qs));
	t = RP_MIN(t, rp_wheel_next(&qs->session_wheel));
	t = RP_MIN(t, rp_wheel_next(&qs->look_wheel));
	t = RP_MIN(t, FIRST(&qs->pins, struct queue_more, pin, pin_at_ns));
	t = RP_MIN(t, FIRST(&qs->foreign, struct message, stay, stay_ns));
	t = RP_MIN(t, FIRST(&qs->later, struct queue, work, more->later_ns));
	idle = FIRST(&qs->idle, struct queue, idle, active_ns);
	return RP_MIN(t, idle == RP_NEVER ? RP_NEVER : idle + qs->config.idle_ns);
}
