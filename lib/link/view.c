/* SPDX-License-Identifier: Apache-2.0 */

/* Bundles and their links, for people. */

#include <errno.h>

#include "link_priv.h"

int rp_links_info(const struct rp_links *l, uint64_t node, struct rp_link_info *info)
{
	const struct link_peer *p = link_peer_of(l, node);

	if (!p)
		return -ENOENT;
	*info = (struct rp_link_info){
		.node = node,
		.up = p->up,
		.dialing = p->lead.state == LINK_LEAD_FORMING,
		.bundle = p->up ? p->bundle : 0,
		.boot = p->boot,
		.up_since_ns = p->up ? p->up_since_ns : 0,
		.last_refusal = p->lead.last_refusal,
		.downs = p->lead.downs,
		.last_down = p->lead.last_down,
		.down_ns = p->lead.down_ns,
		.per_peer = l->config.per_peer,
	};
	memcpy(info->owners, p->owners, sizeof(info->owners));
	for (unsigned j = 0; j < l->config.per_peer; j++) {
		const struct link_line *line = p->lines[j];

		if (!line || !line->conn || line->conn->state != LINK_UP)
			continue;
		info->links_here++;
		info->queued_frames += line->waiting;
		info->rtt_ns = RP_MAX(info->rtt_ns, line->rtt_ns);
		info->answered_ns = RP_MAX(info->answered_ns, line->answered_ns);
	}
	return 0;
}

static enum rp_link_stage stage_of(const struct link_conn *c)
{
	switch (c->state) {
	case LINK_UP:
		return RP_LINK_STAGE_UP;
	case LINK_PROVEN:
		return RP_LINK_STAGE_PROVEN;
	case LINK_DIALING:
		return RP_LINK_STAGE_DIALING;
	case LINK_SECURING:
	case LINK_CHALLENGE:
	case LINK_VERDICT:
	/* Connections that are accepted have no line before they are proven. */
	case LINK_PREAMBLE:
	case LINK_HELLO:
	case LINK_FINISH:
	case LINK_DECIDE:
	case LINK_CLOSING:
	case LINK_FREE:
		break;
	}
	return RP_LINK_STAGE_HANDSHAKE;
}

static void line_info(const struct link_line *line, struct rp_link_line_info *info)
{
	const struct rp_links *l = line->peer->links;
	const struct link_conn *c = line->conn;

	*info = (struct rp_link_line_info){
		.node = line->peer->node,
		.link = line->link,
		.stage = stage_of(c),
		.dialed = l->config.node < line->peer->node,
		.at_home = l->config.shard * l->config.per_peer / l->config.shards == line->link,
		.aimed = c->aimed,
		.queued_frames = line->waiting,
		.rtt_ns = line->rtt_ns,
		.answered_ns = line->answered_ns,
		.frames_sent = line->frames_sent,
		.frames_received = line->frames_received,
		.bytes_sent = line->bytes_sent,
		.bytes_received = line->bytes_received,
	};
	if (!c->conn)
		return;
	info->transport = c->conn->transport;
	info->transport->ops->ends(c->conn, &info->local, &info->peer);
}

void rp_links_lines(const struct rp_links *l, uint64_t node,
	void (*fn)(void *ctx, const struct rp_link_line_info *info), void *ctx)
{
	const struct link_peer *p = link_peer_of(l, node);

	for (unsigned j = 0; p && j < l->config.per_peer; j++) {
		struct rp_link_line_info info;

		if (!p->lines[j] || !p->lines[j]->conn)
			continue;
		line_info(p->lines[j], &info);
		fn(ctx, &info);
	}
}

const char *rp_link_stage_text(enum rp_link_stage stage)
{
	static const char *const texts[] = {
#define X(name, text) [RP_LINK_STAGE_##name] = text,
		RP_LINK_STAGES(X)
#undef X
	};

	return (unsigned)stage < RP_LINK_STAGE_COUNT ? texts[stage] : "?";
}
