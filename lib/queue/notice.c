/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A delivery may be settled from another node than its consumer's: the host is told to forget it,
 * and told again when the word was lost, since nobody else would.
 */

#include <string.h>

#include "queue_priv.h"

static int notice_send(struct rp_queues *qs, const struct notice *n, uint64_t node, uint64_t now_ns)
{
	struct rp_qmsg m = qmsg_for(n->q, RP_QMSG_WITHDRAW);

	m.idx = n->idx;
	m.alloc_node = n->alloc_node;
	m.attempt = n->attempt;
	m.status = RP_Q_NOT_FOUND;
	memcpy(m.uuid, n->uuid, RP_UUID_BYTES);
	return qs->ops.send(qs->ctx, node, &m, now_ns);
}

static void notice_free(struct rp_queues *qs, struct notice *n)
{
	rp_list_unlink(&n->link);
	n->q->requests--;
	slab_put(&qs->notices, n);
}

void notice_settled(struct rp_queues *qs, struct queue *q, uint64_t node,
	const struct rp_qmsg *about, uint64_t now_ns)
{
	struct notice first = {.q = q,
		.idx = about->idx,
		.alloc_node = about->alloc_node,
		.attempt = about->attempt};
	struct peer *p = peer_find(qs, node);
	struct notice *n;

	memcpy(first.uuid, about->uuid, RP_UUID_BYTES);
	if (!p || p->state == RP_NODE_GONE)
		return;
	if (!p->lost && notice_send(qs, &first, node, now_ns) == 0)
		return;
	n = q->requests < UINT16_MAX ? slab_get(&qs->notices) : NULL;
	/* With no room for it the host keeps the delivery until its consumer ends. */
	if (!n)
		return;
	*n = first;
	rp_list_init(&n->link);
	rp_list_push_back(&p->notices, &n->link);
	q->requests++;
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
