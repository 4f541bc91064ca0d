/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The lead of a node's links: it alone knows how far a bundle is. It reads no bytes; its inputs are
 * messages of the shards that carry links, which may be itself.
 */

#include <base/assert.h>
#include <base/log.h>

#include "link_priv.h"

#define ECN_DOUBT_NS (10 * RP_NS_PER_S)

static uint32_t all_links(const struct rp_links *l)
{
	return UINT32_MAX >> (32 - l->config.per_peer);
}

static bool dials(const struct link_peer *p)
{
	const struct rp_links *l = p->links;

	return !l->stopping && p->added && p->has_endpoint && p->transport &&
	       l->config.node < p->node;
}

void link_lead_schedule(struct link_peer *p, uint64_t now_ns)
{
	struct rp_links *l = p->links;

	p->lead.redial_at_ns = RP_NEVER;
	if (!dials(p))
		return;
	p->lead.redial_at_ns = now_ns + p->lead.redial_wait_ns;
	p->lead.redial_wait_ns = RP_MIN(2 * p->lead.redial_wait_ns, l->config.redial_ns_max);
	link_arm(l, p->lead.redial_at_ns);
}

static void begin(struct link_peer *p, uint64_t epoch, uint64_t boot, uint64_t now_ns)
{
	struct rp_links *l = p->links;
	struct link_lead *lead = &p->lead;

	RP_ASSERT(lead->state == LINK_LEAD_IDLE);
	if (++l->bundle_last == 0)
		l->bundle_last = 1;
	lead->state = LINK_LEAD_FORMING;
	lead->bundle = l->bundle_last;
	lead->admitted = lead->proven = 0;
	lead->epoch = epoch;
	lead->boot = boot;
	lead->deadline_ns = now_ns + l->config.handshake_grace_ns;
	link_arm(l, lead->deadline_ns);
}

/*
 * It has not come up for long. Most likely the peer is not there; but it may be that something on
 * the way drops the question for ECN, so now and then a dial may go without.
 */
static bool doubts_ecn(const struct link_lead *lead, uint64_t now_ns)
{
	return lead->dial_since_ns != 0 && now_ns - lead->dial_since_ns > ECN_DOUBT_NS &&
	       lead->dials % 4 == 3;
}

static void dial(struct link_peer *p, uint64_t now_ns)
{
	struct rp_links *l = p->links;
	struct link_lead *lead = &p->lead;
	struct rp_link_msg m = {.type = LINK_MSG_OPEN, .node = p->node};
	uint32_t usable = p->transport->lone ? 1u << l->config.lead : l->config.owner_shards;

	lead->redial_at_ns = RP_NEVER;
	begin(p, lead->epoch + 1, 0, now_ns);
	m.bundle = lead->bundle;
	m.epoch = lead->epoch;
	m.flags = doubts_ecn(lead, now_ns) ? LINK_MSG_ECN_ASK : 0;
	lead->dials++;
	if (lead->dial_since_ns == 0)
		lead->dial_since_ns = now_ns;
	else
		l->counters.redials++;
	/* A link that fails at once ends the bundle: the others are not begun then. */
	for (uint8_t j = 0; j < l->config.per_peer && lead->bundle == m.bundle &&
			    lead->state == LINK_LEAD_FORMING;
		j++) {
		int owner = rp_link_place(link_peer_slot(p), j, l->config.per_peer,
			l->config.shards, usable, l->config.skip_shard_zero);

		RP_ASSERT(owner >= 0);
		lead->owners[j] = (uint8_t)owner;
		lead->admitted |= 1u << j;
		m.link = j;
		link_post(l, (unsigned)owner, &m, now_ns);
	}
}

static void up(struct link_peer *p, uint64_t now_ns)
{
	struct rp_links *l = p->links;
	struct link_lead *lead = &p->lead;
	struct rp_link_msg m = {
		.type = LINK_MSG_UP, .node = p->node, .bundle = lead->bundle, .boot = lead->boot};

	lead->state = LINK_LEAD_UP;
	lead->deadline_ns = RP_NEVER;
	lead->redial_at_ns = RP_NEVER;
	lead->redial_wait_ns = l->config.redial_ns_min;
	lead->last_refusal = RP_LINK_REFUSAL_NONE;
	lead->dials = 0;
	if (lead->dial_since_ns != 0)
		l->counters.time_to_up_ns += now_ns - lead->dial_since_ns;
	lead->dial_since_ns = 0;
	l->counters.ups++;
	memcpy(m.owners, lead->owners, sizeof(m.owners));
	RP_LOG(RP_LOG_LINK, RP_LOG_INFO, "up: node %llu, bundle %u, %u link%s",
		(unsigned long long)p->node, lead->bundle, l->config.per_peer,
		l->config.per_peer == 1 ? "" : "s");
	link_post_all(l, &m, true, now_ns);
	link_member_on_msg(l, &m, now_ns);
}

void link_lead_down(struct link_peer *p, enum rp_link_down why, uint64_t now_ns)
{
	struct rp_links *l = p->links;
	struct link_lead *lead = &p->lead;
	struct rp_link_msg m = {.type = LINK_MSG_DOWN,
		.node = p->node,
		.bundle = lead->bundle,
		.why = (uint8_t)why,
		.sent_ns = p->ping_sent_ns,
		.answered_ns = p->ping_answered_ns};

	if (lead->state == LINK_LEAD_IDLE)
		return;
	if (lead->state == LINK_LEAD_UP) {
		l->counters.downs[why]++;
		lead->downs++;
		lead->last_down = why;
		lead->down_ns = now_ns;
		RP_LOG(RP_LOG_LINK, why == RP_LINK_DOWN_STOPPED ? RP_LOG_INFO : RP_LOG_WARNING,
			"down: node %llu: %s", (unsigned long long)p->node, rp_link_down_text(why));
	} else {
		l->counters.incomplete++;
	}
	lead->state = LINK_LEAD_IDLE;
	lead->deadline_ns = RP_NEVER;
	link_lead_schedule(p, now_ns);
	link_post_all(l, &m, true, now_ns);
	/* Last: the callee may remove the peer. */
	link_member_on_msg(l, &m, now_ns);
}

/* ---- messages ---- */

static void on_proven(struct link_peer *p, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_lead *lead = &p->lead;

	if (lead->state != LINK_LEAD_FORMING || lead->bundle != m->bundle)
		return;
	/* A peer that restarted between two of its links. */
	if (lead->boot != 0 && lead->boot != m->boot) {
		link_lead_down(p, RP_LINK_DOWN_INCOMPLETE, now_ns);
		return;
	}
	lead->boot = m->boot;
	lead->proven |= 1u << m->link;
	if (lead->proven == all_links(p->links))
		up(p, now_ns);
}

static void on_failed(struct link_peer *p, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_lead *lead = &p->lead;

	if (lead->state == LINK_LEAD_IDLE || lead->bundle != m->bundle)
		return;
	if (m->why != RP_LINK_REFUSAL_NONE && lead->last_refusal != m->why)
		RP_LOG(RP_LOG_LINK, RP_LOG_WARNING, "dial to node %llu, link %u: %s",
			(unsigned long long)p->node, m->link,
			rp_link_refusal_text((enum rp_link_refusal)m->why));
	if (m->why != RP_LINK_REFUSAL_NONE)
		lead->last_refusal = (enum rp_link_refusal)m->why;
	link_lead_down(p,
		lead->state == LINK_LEAD_UP ? RP_LINK_DOWN_NETWORK : RP_LINK_DOWN_INCOMPLETE,
		now_ns);
}

/* What there is against this link of a dialer that has proved itself. */
static enum rp_link_refusal admit(
	struct link_peer *p, unsigned from, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_lead *lead;
	bool same_boot;

	if (!p || !p->added || p->links->stopping)
		return RP_LINK_REFUSAL_UNKNOWN_PEER;
	lead = &p->lead;
	same_boot = lead->boot == m->boot;
	if (same_boot &&
		(m->epoch < lead->epoch ||
			(m->epoch == lead->epoch && (lead->state != LINK_LEAD_FORMING ||
							    lead->admitted >> m->link & 1))))
		return RP_LINK_REFUSAL_OLD_EPOCH;
	if (!same_boot || m->epoch > lead->epoch) {
		link_lead_down(p, RP_LINK_DOWN_SUPERSEDED, now_ns);
		begin(p, m->epoch, m->boot, now_ns);
	}
	lead->admitted |= 1u << m->link;
	lead->owners[m->link] = (uint8_t)from;
	return RP_LINK_REFUSAL_NONE;
}

static void on_ask(struct rp_links *l, unsigned from, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_peer *p = link_peer_of(l, m->node);
	struct rp_link_msg answer = {.type = LINK_MSG_ANSWER,
		.node = m->node,
		.link = m->link,
		.token = m->token,
		.why = (uint8_t)admit(p, from, m, now_ns)};

	if (answer.why == RP_LINK_REFUSAL_NONE)
		answer.bundle = p->lead.bundle;
	link_post(l, from, &answer, now_ns);
}

void link_lead_on_msg(
	struct rp_links *l, unsigned from, const struct rp_link_msg *m, uint64_t now_ns)
{
	struct link_peer *p = link_peer_of(l, m->node);

	RP_ASSERT(link_is_lead(l));
	if (m->type == LINK_MSG_ASK) {
		on_ask(l, from, m, now_ns);
		return;
	}
	if (!p)
		return;
	if (m->type == LINK_MSG_PROVEN)
		on_proven(p, m, now_ns);
	else if (m->type == LINK_MSG_FAILED)
		on_failed(p, m, now_ns);
	else if (m->type == LINK_MSG_LOST && p->lead.bundle == m->bundle)
		link_lead_down(p,
			p->lead.state == LINK_LEAD_UP ? (enum rp_link_down)m->why
						      : RP_LINK_DOWN_INCOMPLETE,
			now_ns);
}

void link_lead_poll(struct link_peer *p, uint64_t now_ns)
{
	struct rp_links *l = p->links;
	struct link_lead *lead = &p->lead;

	if (lead->state == LINK_LEAD_FORMING) {
		if (lead->deadline_ns <= now_ns)
			link_lead_down(p, RP_LINK_DOWN_INCOMPLETE, now_ns);
		else
			link_arm(l, lead->deadline_ns);
	}
	if (lead->state == LINK_LEAD_IDLE && lead->redial_at_ns <= now_ns)
		dial(p, now_ns);
	if (lead->state == LINK_LEAD_IDLE && lead->redial_at_ns != RP_NEVER)
		link_arm(l, lead->redial_at_ns);
}
