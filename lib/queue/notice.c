/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What another node has to hear, since it would never know otherwise: it is told again when the
 * word was lost.
 *
 * SETTLED  A delivery was settled from another node than its consumer's, or is taken back: its host
 *          may forget it.
 * LEFT     A consumer has left: a dispatcher, be it a former one, has what it held back.
 * RESUMED  A consumer has come back to a watch: a former dispatcher sends again what it asks for.
 */

#include <string.h>

#include "queue_priv.h"

enum notice_kind {
	NOTICE_SETTLED,
	NOTICE_LEFT,
	NOTICE_RESUMED,
};

static int notice_send(struct rp_queues *qs, const struct notice *n, uint64_t node, uint64_t now_ns)
{
	static const uint8_t types[] = {
		[NOTICE_SETTLED] = RP_QMSG_WITHDRAW,
		[NOTICE_LEFT] = RP_QMSG_REJECTED,
		[NOTICE_RESUMED] = RP_QMSG_RESUME,
	};
	struct rp_qmsg m = qmsg_for(n->q, types[n->kind]);

	memcpy(m.uuid, n->uuid, RP_UUID_BYTES);
	switch ((enum notice_kind)n->kind) {
	case NOTICE_SETTLED:
		m.idx = n->idx;
		m.alloc_node = n->alloc_node;
		m.attempt = n->attempt;
		m.status = (enum rp_qstatus)n->status;
		break;
	case NOTICE_LEFT:
		m.status = RP_Q_NO_CONSUMER;
		m.mod_revision = n->life;
		m.flags = n->flags;
		break;
	case NOTICE_RESUMED:
		m.token = n->life;
		m.idx = n->was_life;
		m.mod_revision = n->start_revision;
		m.flags = RP_QMSG_RESUMES;
		break;
	}
	return peer_send(qs, node, &m, now_ns);
}

static void notice_free(struct rp_queues *qs, struct notice *n)
{
	rp_list_unlink(&n->link);
	n->q->requests--;
	slab_put(&qs->notices, n);
}

/* Now, or behind what the node is to be told before. */
static void notice_post(
	struct rp_queues *qs, const struct notice *first, uint64_t node, uint64_t now_ns)
{
	struct peer *p = peer_find(qs, node);
	struct queue *q = first->q;
	struct notice *n;

	if (!p || p->state == RP_NODE_GONE)
		return;
	if (!p->lost && rp_list_empty(&p->notices) && notice_send(qs, first, node, now_ns) == 0)
		return;
	n = q->requests < UINT16_MAX ? slab_get(&qs->notices) : NULL;
	/* With no room for it a host keeps the delivery until its consumer ends, and a dispatcher
	 * until its record does. */
	if (!n)
		return;
	*n = *first;
	rp_list_init(&n->link);
	rp_list_push_back(&p->notices, &n->link);
	q->requests++;
}

void notice_settled(struct rp_queues *qs, struct queue *q, uint64_t node,
	const struct rp_qmsg *about, uint64_t now_ns)
{
	struct rp_qmsg settled = *about;

	settled.status = RP_Q_NOT_FOUND;
	notice_send_to(qs, q, node, &settled, now_ns);
}

void notice_send_to(struct rp_queues *qs, struct queue *q, uint64_t node,
	const struct rp_qmsg *about, uint64_t now_ns)
{
	struct notice n = {.kind = NOTICE_SETTLED,
		.status = (uint8_t)about->status,
		.q = q,
		.idx = about->idx,
		.alloc_node = about->alloc_node,
		.attempt = about->attempt};

	memcpy(n.uuid, about->uuid, RP_UUID_BYTES);
	notice_post(qs, &n, node, now_ns);
}

void notice_left(struct rp_queues *qs, struct queue *q, uint64_t node,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t life, uint8_t flags, uint64_t now_ns)
{
	struct notice n = {.kind = NOTICE_LEFT, .flags = flags, .q = q, .life = life};

	memcpy(n.uuid, uuid, RP_UUID_BYTES);
	notice_post(qs, &n, node, now_ns);
}

void notice_resumed(struct rp_queues *qs, const struct host *h, uint64_t node, uint64_t now_ns)
{
	struct notice n = {.kind = NOTICE_RESUMED,
		.q = h->c->q,
		.life = h->life,
		.was_life = h->watch_life,
		.start_revision = h->start_revision};

	memcpy(n.uuid, h->c->uuid, RP_UUID_BYTES);
	notice_post(qs, &n, node, now_ns);
}

void notices_send(struct rp_queues *qs, struct peer *p, uint64_t now_ns)
{
	while (!rp_list_empty(&p->notices)) {
		struct notice *n = rp_list_entry(p->notices.next, struct notice, link);

		if (notice_send(qs, n, p->node, now_ns) < 0)
			return;
		notice_free(qs, n);
	}
}

void notices_drop(struct rp_queues *qs, struct peer *p)
{
	while (!rp_list_empty(&p->notices))
		notice_free(qs, rp_list_entry(p->notices.next, struct notice, link));
}
