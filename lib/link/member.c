/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A shard's part in the bundles of its node: it opens, admits and closes the links that the lead
 * says, and knows of each peer whether its bundle is up.
 *
 * News of a bundle may reach a shard from the lead and from the owners of its links, in any order:
 * an owner passes UP on before the first frame, so that no shard takes a frame of a bundle that it
 * has not heard of. Numbers of bundles only grow, and what is not newer than `floor` is ignored.
 */

#include <errno.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>

#include "link_priv.h"

void link_post(struct rp_links *l, unsigned to, const struct rp_link_msg *m, uint64_t now_ns)
{
	if (to == l->config.shard)
		rp_links_on_msg(l, to, m, now_ns);
	else
		l->ops.post(l->ctx, to, m);
}

void link_post_all(struct rp_links *l, const struct rp_link_msg *m, bool lead_too, uint64_t now_ns)
{
	for (unsigned s = 0; s < l->config.shards; s++)
		if (s != l->config.shard && (lead_too || s != l->config.lead))
			l->ops.post(l->ctx, s, m);
}

static void tell_lead(struct rp_links *l, const struct rp_link_msg *m, uint64_t now_ns)
{
	link_post(l, l->config.lead, m, now_ns);
}

/* ---- what the connections say ---- */

void link_member_lost(struct link_conn *c, enum rp_link_down why, uint64_t now_ns)
{
	struct rp_links *l = c->links;
	struct rp_link_msg m = {.type = LINK_MSG_LOST,
		.node = c->line->peer->node,
		.link = c->line->link,
		.bundle = c->bundle,
		.why = (uint8_t)why};

	if (c->conn && why == RP_LINK_DOWN_CLOSED)
		link_conn_close(c, now_ns);
	else
		link_conn_abort(c, now_ns);
	tell_lead(l, &m, now_ns);
}

void link_member_failed(struct link_conn *c, enum rp_link_refusal why, uint64_t now_ns)
{
	struct rp_links *l = c->links;
	struct rp_link_msg m = {.type = LINK_MSG_FAILED,
		.node = c->line->peer->node,
		.link = c->line->link,
		.bundle = c->bundle,
		.why = (uint8_t)why};

	link_conn_abort(c, now_ns);
	tell_lead(l, &m, now_ns);
}

void link_member_proven(struct link_conn *c, uint64_t boot, uint64_t now_ns)
{
	struct rp_link_msg m = {.type = LINK_MSG_PROVEN,
		.node = c->line->peer->node,
		.link = c->line->link,
		.bundle = c->bundle,
		.boot = boot};

	c->state = LINK_PROVEN;
	c->links->counters.handshakes_done++;
	tell_lead(c->links, &m, now_ns);
}

static uint32_t token_of(const struct link_conn *c)
{
	return (uint32_t)(c - c->links->conns) | (c->life & 0xfff) << 20;
}

void link_member_ask(struct link_conn *c, uint64_t now_ns)
{
	struct rp_link_msg m = {.type = LINK_MSG_ASK,
		.node = c->hello.dialer,
		.link = c->hello.link,
		.epoch = c->hello.epoch,
		.boot = c->hello.dialer_boot,
		.token = token_of(c)};

	c->state = LINK_DECIDE;
	tell_lead(c->links, &m, now_ns);
}

/* ---- what the lead says ---- */

static void refuse_open(struct rp_links *l, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct rp_link_msg failed = {.type = LINK_MSG_FAILED,
		.node = m->node,
		.link = m->link,
		.bundle = m->bundle,
		.why = RP_LINK_REFUSAL_NONE};

	l->counters.dials_failed++;
	tell_lead(l, &failed, now_ns);
}

/*
 * The shard of the peer that is among its owners what this one is among ours: devices that know
 * nothing of RSS give a frame the queue that its sender used, and so it comes to its shard at once.
 * 0 where the peer has more or fewer of them.
 */
static uint32_t counterpart(const struct link_peer *p)
{
	const struct rp_links_config *c = &p->links->config;
	uint32_t left = p->far_owners;
	int before = __builtin_popcount(c->owner_shards & ((1u << c->shard) - 1));

	if (__builtin_popcount(c->owner_shards) != __builtin_popcount(left))
		return 0;
	while (before-- > 0)
		left &= left - 1;
	return left & -left;
}

/* Where the link's frames are at home at the other end: a shard of its range that owns links. */
static void aim(const struct link_peer *p, uint8_t link, struct rp_conn_options *options)
{
	uint32_t k = p->links->config.per_peer, in_range = 0;

	if (!p->far_place)
		return;
	for (uint32_t s = 0; s < p->far_shards; s++)
		if (s * k / p->far_shards == link)
			in_range |= 1u << s;
	in_range &= p->far_owners;
	options->far_place = p->far_place;
	if (in_range & counterpart(p))
		in_range = counterpart(p);
	options->far_shards = in_range ? in_range : p->far_owners;
}

static void on_ask_open(struct rp_links *l, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_peer *p = link_peer_of(l, m->node);
	struct link_line *line = p && p->has_endpoint ? link_line_get(p, m->link) : NULL;
	struct rp_conn_options options = link_conn_options(l);
	struct link_conn *c = line && !l->stopping ? link_conn_new(l) : NULL;

	l->counters.dials++;
	if (!c) {
		refuse_open(l, m, now_ns);
		return;
	}
	if (options.ecn == RP_ECN_INSIST && (m->flags & LINK_MSG_ECN_ASK))
		options.ecn = RP_ECN_ASK;
	aim(p, m->link, &options);
	link_line_attach(line, c, m->bundle, now_ns);
	c->state = LINK_DIALING;
	c->hello.epoch = m->epoch;
	c->deadline_ns = now_ns + l->config.handshake_grace_ns;
	c->aimed = options.far_place && !p->transport->lone;
	c->conn = p->transport->ops->dial(
		p->transport, &p->endpoint, &options, &link_events, c, now_ns);
	if (!c->conn) {
		link_conn_abort(c, now_ns);
		refuse_open(l, m, now_ns);
		return;
	}
	link_arm(l, c->deadline_ns);
}

static struct link_conn *conn_of(struct rp_links *l, uint32_t token)
{
	uint32_t slot = token & 0xfffff;

	if (slot >= l->conn_count || token_of(&l->conns[slot]) != token ||
		l->conns[slot].state != LINK_DECIDE)
		return NULL;
	return &l->conns[slot];
}

static void on_answer(struct rp_links *l, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_conn *c = conn_of(l, m->token);
	struct link_peer *p = m->why == RP_LINK_REFUSAL_NONE ? link_peer_get(l, m->node) : NULL;
	struct link_line *line = p ? link_line_get(p, m->link) : NULL;
	struct rp_link_msg failed = {.type = LINK_MSG_FAILED,
		.node = m->node,
		.link = m->link,
		.bundle = m->bundle,
		.why = RP_LINK_REFUSAL_NONE};

	if (c)
		link_conn_enter(c);
	if (c && !link_handshake_verdict(c, (enum rp_link_refusal)m->why, now_ns)) {
		link_conn_leave(c);
		c = NULL;
	}
	if (m->why != RP_LINK_REFUSAL_NONE) {
		if (c)
			link_conn_leave(c);
		return;
	}
	/* Gone meanwhile: the bundle that counts on it ends. */
	if (!c || !line) {
		if (c) {
			link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
			link_conn_leave(c);
		}
		tell_lead(l, &failed, now_ns);
		return;
	}
	rp_list_unlink(&c->entry);
	l->handshake_count--;
	link_line_attach(line, c, m->bundle, now_ns);
	link_member_proven(c, c->hello.dialer_boot, now_ns);
	link_conn_leave(c);
}

static void peer_down(struct link_peer *p, enum rp_link_down why, uint64_t now_ns)
{
	struct rp_links *l = p->links;

	p->up = false;
	l->up_count--;
	if (l->ops.on_answered && p->ping_sent_ns != 0)
		l->ops.on_answered(l->ctx, p->node, p->ping_sent_ns, now_ns);
	if (l->ops.on_ping && p->ping_answered_ns != 0)
		l->ops.on_ping(l->ctx, p->node, p->ping_answered_ns);
	l->ops.on_down(l->ctx, p->node, why, now_ns);
}

static void on_up(struct rp_links *l, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_peer *p = link_peer_get(l, m->node);
	bool owns = false;

	if (!p || (int32_t)(m->bundle - p->floor) <= 0)
		return;
	if (p->up)
		peer_down(p, RP_LINK_DOWN_SUPERSEDED, now_ns);
	p->floor = p->bundle = m->bundle;
	p->up = true;
	p->boot = m->boot;
	p->up_since_ns = now_ns;
	p->ping_sent_ns = p->ping_answered_ns = 0;
	memcpy(p->owners, m->owners, sizeof(p->owners));
	l->up_count++;
	for (unsigned j = 0; j < l->config.per_peer; j++) {
		struct link_line *line = p->lines[j];

		if (!line || !line->conn || line->conn->bundle != m->bundle ||
			line->conn->state != LINK_PROVEN)
			continue;
		link_line_up(line, now_ns);
		owns = true;
	}
	if (owns && !link_is_lead(l))
		link_post_all(l, m, false, now_ns);
	l->ops.on_up(l->ctx, p->node, p->bundle, p->boot, now_ns);
	for (unsigned j = 0; j < l->config.per_peer && p->up && p->bundle == m->bundle; j++) {
		struct link_conn *c = p->lines[j] ? p->lines[j]->conn : NULL;

		if (!c || c->state != LINK_UP || (!c->rx && !c->cipher))
			continue;
		link_conn_enter(c);
		link_line_receive(c, now_ns);
		link_conn_leave(c);
	}
}

static bool is_orderly(enum rp_link_down why)
{
	return why == RP_LINK_DOWN_CLOSED || why == RP_LINK_DOWN_STOPPED ||
	       why == RP_LINK_DOWN_REMOVED;
}

static void on_down(struct rp_links *l, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_peer *p = link_peer_get(l, m->node);
	enum rp_link_down why = (enum rp_link_down)m->why;

	if (!p)
		return;
	p->ping_sent_ns = RP_MAX(p->ping_sent_ns, m->sent_ns);
	p->ping_answered_ns = RP_MAX(p->ping_answered_ns, m->answered_ns);
	if ((int32_t)(m->bundle - p->floor) > 0)
		p->floor = m->bundle;
	for (unsigned j = 0; j < l->config.per_peer; j++) {
		struct link_line *line = p->lines[j];

		if (!line || !line->conn || line->conn->bundle != m->bundle)
			continue;
		/* What was sent before a stop still goes out. */
		if (why == RP_LINK_DOWN_STOPPED && line->conn->state == LINK_UP)
			link_line_flush(line, now_ns);
		if (!line->conn)
			continue;
		if (is_orderly(why) && line->conn->conn &&
			(line->conn->state == LINK_UP || line->conn->state == LINK_PROVEN))
			link_conn_close(line->conn, now_ns);
		else
			link_conn_abort(line->conn, now_ns);
	}
	for (unsigned j = 0; j < l->config.per_peer; j++)
		if (p->lines[j] && !p->lines[j]->conn)
			link_line_drop(p->lines[j]);
	/* Last: the callee may remove the peer. */
	if (p->up && p->bundle == m->bundle)
		peer_down(p, why, now_ns);
}

static void on_ping(struct rp_links *l, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_peer *p = link_peer_of(l, m->node);

	if (!p)
		return;
	if (m->sent_ns > p->ping_sent_ns && l->ops.on_answered)
		l->ops.on_answered(l->ctx, m->node, m->sent_ns, now_ns);
	if (m->answered_ns > p->ping_answered_ns && l->ops.on_ping)
		l->ops.on_ping(l->ctx, m->node, m->answered_ns);
	p->ping_sent_ns = RP_MAX(p->ping_sent_ns, m->sent_ns);
	p->ping_answered_ns = RP_MAX(p->ping_answered_ns, m->answered_ns);
}

void link_member_on_msg(struct rp_links *l, const struct rp_link_msg *m, uint64_t now_ns)
{
	switch ((enum link_msg)m->type) {
	case LINK_MSG_OPEN:
		on_ask_open(l, m, now_ns);
		return;
	case LINK_MSG_ANSWER:
		on_answer(l, m, now_ns);
		return;
	case LINK_MSG_UP:
		on_up(l, m, now_ns);
		return;
	case LINK_MSG_DOWN:
		on_down(l, m, now_ns);
		return;
	case LINK_MSG_PING:
		on_ping(l, m, now_ns);
		return;
	case LINK_MSG_PROVEN:
	case LINK_MSG_FAILED:
	case LINK_MSG_ASK:
	case LINK_MSG_LOST:
		break;
	}
	RP_ASSERT(!"a message that only the lead is sent");
}

void rp_links_on_msg(
	struct rp_links *l, unsigned from, const struct rp_link_msg *m, uint64_t now_ns)
{
	switch ((enum link_msg)m->type) {
	case LINK_MSG_PROVEN:
	case LINK_MSG_FAILED:
	case LINK_MSG_ASK:
	case LINK_MSG_LOST:
		link_lead_on_msg(l, from, m, now_ns);
		return;
	case LINK_MSG_OPEN:
	case LINK_MSG_ANSWER:
	case LINK_MSG_UP:
	case LINK_MSG_DOWN:
	case LINK_MSG_PING:
		link_member_on_msg(l, m, now_ns);
		return;
	}
	RP_ASSERT(!"a message that no shard sends");
}

void rp_links_violation(struct rp_links *l, uint64_t node, uint64_t now_ns)
{
	struct link_peer *p = link_peer_of(l, node);
	struct rp_link_msg m = {.type = LINK_MSG_LOST, .node = node, .why = RP_LINK_DOWN_VIOLATION};

	if (!p || !p->up)
		return;
	m.bundle = p->bundle;
	/* Nothing more of this bundle comes up from here, even before the lead has spoken. */
	for (unsigned j = 0; j < l->config.per_peer && !link_is_lead(l); j++)
		if (p->lines[j] && p->lines[j]->conn && p->lines[j]->conn->bundle == m.bundle)
			link_conn_abort(p->lines[j]->conn, now_ns);
	tell_lead(l, &m, now_ns);
}
