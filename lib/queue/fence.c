/* SPDX-License-Identifier: Apache-2.0 */

/* The consumer's host, when a dispatcher that delivered to it is lost: what it holds is let go. */

#include <string.h>

#include "queue_priv.h"

void host_fence(struct rp_queues *qs, struct peer *p, uint64_t now_ns)
{
	struct rp_list *n, *next;

	rp_list_foreach_safe (n, next, &p->holds) {
		struct hold *hold = rp_list_entry(n, struct hold, at_node);
		struct host *h = hold->host;

		hold_withdraw(qs, hold, now_ns);
		hold_done(qs, hold, true);
		if (h->fenced_node == p->node)
			continue;
		h->fenced_node = p->node;
		h->fenced_anew = h->c->q->dispatcher == p->node;
		if (h->fenced_anew)
			host_new_life(qs, h, now_ns);
	}
}

void host_fence_lifted(struct rp_queues *qs, struct peer *p, uint64_t now_ns)
{
	for (uint32_t i = 0; i < qs->hosts.fresh; i++) {
		struct host *h = (struct host *)(qs->hosts.base + (size_t)i * qs->hosts.item_size);
		struct rp_qmsg msg;

		if (!h->c || h->fenced_node != p->node)
			continue;
		/* Once: it may have heard of that life by now, and deliver for it. */
		if (h->c->q->dispatcher == p->node && !h->fenced_anew) {
			h->fenced_anew = true;
			host_new_life(qs, h, now_ns);
		}
		msg = qmsg_for(h->c->q, RP_QMSG_RESUME);
		memcpy(msg.uuid, h->c->uuid, RP_UUID_BYTES);
		/* Where another node dispatches by now, a life that nobody has: it only releases.
		 */
		msg.token = h->c->q->dispatcher == p->node ? h->life : h->life + 1;
		msg.idx = h->watch_life;
		if (peer_send(qs, p->node, &msg, now_ns) < 0) {
			p->reports_due = true;
			return;
		}
		h->fenced_node = 0;
		if (h->c->q->dispatcher != p->node) {
			h->barred_node = p->node;
			h->barred_life = h->life;
		}
	}
}
