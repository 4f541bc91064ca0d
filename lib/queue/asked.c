/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A consumer that goes on at another node with what it holds. Of what was on its way to the node
 * before nobody here knows whether its client was shown it: the word of it may be on its way too.
 * So that node is asked, and what it says is behind all that it said before; until then nothing of
 * the consumer goes to where it is now, as it is sent in order. A node that is out of reach is not
 * waited for.
 */

#include <string.h>

#include "queue_priv.h"

static bool is_reachable(struct rp_queues *qs, uint64_t node)
{
	const struct peer *p = peer_find(qs, node);

	return p && !p->lost && p->state == RP_NODE_ONLINE;
}

static void asked_send(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct rp_qmsg msg = qmsg_for(m->q, RP_QMSG_WITHDRAW);

	msg.idx = m->idx;
	msg.alloc_node = m->alloc_node;
	msg.attempt = m->attempt;
	msg.status = RP_Q_STALL;
	memcpy(msg.uuid, m->consumer->uuid, RP_UUID_BYTES);
	/* Where it finds no room its timer repeats it. */
	peer_send(qs, m->target, &msg, now_ns);
}

void asked_begin(struct rp_queues *qs, struct message *m, uint64_t node, uint64_t now_ns)
{
	if (m->accepted || m->seen || m->asked || is_self(qs, node) || !is_reachable(qs, node))
		return;
	m->asked = true;
	m->target = node;
	COUNT(qs, m->q, hosts_asked);
	asked_send(qs, m, now_ns);
}

bool asked_again(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	if (!m->asked)
		return false;
	if (is_reachable(qs, m->target))
		asked_send(qs, m, now_ns);
	else
		asked_end(qs, m);
	return true;
}

void asked_end(struct rp_queues *qs, struct message *m)
{
	struct queue *q = m->q;

	if (!m->asked)
		return;
	m->asked = false;
	m->target = 0;
	q->resend = true;
	queue_work(qs, q);
}

void asked_lost(struct rp_queues *qs, uint64_t node)
{
	struct rp_list *n;

	rp_list_foreach (n, &qs->offers) {
		struct message *m = rp_list_entry(n, struct message, timer);

		if (m->asked && m->target == node)
			asked_end(qs, m);
	}
}

/* ---- outputs, of which their host keeps no more than that they were read ---- */

void host_has_read(struct host *h, uint64_t idx)
{
	struct done *d = done_slot(h, idx);

	d->acked = d->output = true;
}

static bool was_read(struct rp_queues *qs, struct host *h, uint64_t idx, uint64_t alloc_node)
{
	const struct done *d = done_slot(h, idx);

	return !hold_find(qs, h, idx) && d->idx == idx && d->alloc_node == alloc_node && d->output;
}

/*
 * A dispatcher that was handed it over does not know that the client has it, and would wait for a
 * word that its former dispatcher got.
 */
void host_had(struct rp_queues *qs, struct host *h, const struct offer *o, uint64_t now_ns)
{
	struct rp_qmsg msg;

	COUNT(qs, h->c->q, deliveries_duplicate);
	if (is_self(qs, o->from) || !was_read(qs, h, o->idx, o->alloc_node))
		return;
	msg = qmsg_for(h->c->q, RP_QMSG_QACK);
	msg.idx = o->idx;
	msg.alloc_node = o->alloc_node;
	memcpy(msg.uuid, h->c->uuid, RP_UUID_BYTES);
	/* Should it be lost, the offer is late, and is asked for. */
	peer_send(qs, o->from, &msg, now_ns);
}

bool host_read_it(struct rp_queues *qs, const struct message *m)
{
	struct host *h = m->consumer->host;

	return lane_class_of(m) == LANE_OUTPUT && is_self(qs, m->consumer->node) && h &&
	       was_read(qs, h, m->idx, m->alloc_node);
}

bool accept_goes_on(
	struct rp_queues *qs, const struct queue *q, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct rp_qmsg on = *m;

	if (q->own || !q->dispatcher || is_self(qs, q->dispatcher) || m->epoch == q->epoch)
		return false;
	/* By it alone it does not go round: who gets it knows that epoch. */
	on.epoch = q->epoch;
	on.dispatcher = q->dispatcher;
	peer_send(qs, q->dispatcher, &on, now_ns);
	return true;
}
