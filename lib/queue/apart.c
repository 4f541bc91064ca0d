/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Nodes that a queue's keys may not go to: prefixes that do not leave a node, and zones
 * (spec/cluster.md, Policy). A queue that is parted so is like one in a cluster that is parted:
 *
 * - Each side dispatches for itself. What a dispatcher there claims is not learned here, whatever
 *   says so; when the rule has gone, the epochs decide, as after any parting.
 * - No message crosses, and nothing that asks for one. A put that may have crossed before, and of
 *   which nobody knows, is told so.
 * - What a consumer was offered before stays its own: nobody has died. Acknowledges, rejects, that
 *   it has left or come back, and the answers to all of that go on to whoever delivered it. What it
 *   has not got by then is asked back from its host. What was put there before can be cancelled.
 */

#include <errno.h>

#include "queue_priv.h"

void rp_queue_set_parted(struct rp_queues *qs, bool parted)
{
	qs->parted = parted;
}

bool apart_look(const struct rp_queues *qs, struct rp_span name, uint64_t node)
{
	return node && !is_self(qs, node) && qs->ops.apart && qs->ops.apart(qs->ctx, name, node);
}

bool consumer_is_apart(const struct rp_queues *qs, const struct consumer *c)
{
	return !c->host && queue_is_apart(qs, c->q, c->life ? c->node : c->record_node);
}

/* About what crossed before; or, of what is handed over, asked for again where it may have arrived:
 * nobody else can say. */
static bool may_cross(const struct rp_qmsg *m)
{
	switch (m->type) {
	case RP_QMSG_ACCEPTED:
	case RP_QMSG_REJECTED:
	case RP_QMSG_QACK:
	case RP_QMSG_GET:
	case RP_QMSG_REPLY:
	case RP_QMSG_WITHDRAW:
	case RP_QMSG_RESUME:
		return true;
	case RP_QMSG_FORWARD:
		return m->token && (m->flags & RP_QMSG_REPEAT);
	case RP_QMSG_CANCEL:
		return !m->payload; /* it says no key */
	case RP_QMSG_DELIVER:
	case RP_QMSG_MOVED:
	case RP_QMSG_HANDOVER:
	case RP_QMSG_CLAIM:
	case RP_QMSG_TYPE_COUNT:
		break;
	}
	return false;
}

int peer_send(struct rp_queues *qs, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns)
{
	const struct rp_span name = {m->name, m->name_length};
	struct rp_qmsg told;

	if (!name_is_apart(qs, name, node))
		return qs->ops.send(qs->ctx, node, m, now_ns);
	if (!may_cross(m)) {
		COUNT_SHARD(qs, kept_apart);
		return -ENETUNREACH;
	}
	/* Who dispatches on this side is not for that one to learn. */
	told = *m;
	told.epoch = 0;
	told.dispatcher = 0;
	return qs->ops.send(qs->ctx, node, &told, now_ns);
}
