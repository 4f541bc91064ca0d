/* SPDX-License-Identifier: Apache-2.0 */

/* Which keys leave for which peer: the prefix policy of the configuration, with the peers' zones.
 */

#include <stdio.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <route/policy.h>

static struct rp_policy_list list_of(const struct rp_conf_list *l)
{
	return (struct rp_policy_list){.items = l->items, .count = l->count};
}

/*
 * host[:port]=zone: 2 when host and port are the peer's, 1 when the host is and no port is named,
 * else 0. The configuration was checked.
 */
static unsigned label_fits(
	const char *label, const struct rp_conf_endpoint *peer, const char **zone)
{
	const char *equal = strrchr(label, '=');
	struct rp_conf_endpoint e, at = *peer;
	char host[300];

	snprintf(host, sizeof(host), "%.*s", (int)(equal - label), label);
	*zone = equal + 1;
	if (rp_conf_endpoint_parse(host, 0, &e) != 0)
		return 0;
	if (e.port != 0)
		return rp_conf_endpoint_equal(&e, peer) ? 2 : 0;
	at.port = 0;
	return rp_conf_endpoint_equal(&e, &at) ? 1 : 0;
}

/* The zone of the peer with that address, as the configuration has it; "": it says none. */
static const char *label_of(const struct rp_conf *c, const char *address)
{
	struct rp_conf_endpoint peer;
	const char *best = "";
	unsigned best_fit = 0;

	if (rp_conf_endpoint_parse(address, 2379, &peer) != 0)
		return "";
	for (unsigned i = 0; i < c->peer_zones.count; i++) {
		const char *zone;
		unsigned fit = label_fits(c->peer_zones.items[i], &peer, &zone);

		if (fit <= best_fit)
			continue;
		best_fit = fit;
		best = zone;
	}
	return best;
}

/*
 * Zones are worth something where all nodes see the same: a queue's dispatcher that one of them may
 * hear of, and another may not, serves neither well. So a node says its own zone in its record, and
 * where peer_zones here says otherwise the peer is not known to be in the zone, and people are
 * told.
 */
static bool zone_of_peer(
	const struct rp_conf *c, const struct ctl_peer *p, char *text, size_t text_size)
{
	const char *label = label_of(c, p->address);
	bool inside = label[0] != '\0' && strcmp(label, c->zone) == 0, agrees;
	struct rp_node_record r;

	text[0] = '\0';
	if (p->node == 0 || !rp_control_node_get(p->ctl->control, p->node, &r) || r.zone[0] == '\0')
		return inside;
	/* Of what is too long for a record the beginning counts. */
	agrees = strncmp(c->zone, r.zone, sizeof(r.zone) - 1) == 0;
	if (inside != agrees)
		snprintf(text, text_size, "%s of %s, which says of itself %s",
			label[0] != '\0' ? label : "nothing", p->address, r.zone);
	return inside && agrees;
}

bool ctl_zone_look(struct ctl_peer *p, const struct rp_conf *c)
{
	bool was = p->in_zone;
	char text[sizeof(p->zones)];

	p->in_zone = zone_of_peer(c, p, text, sizeof(text));
	if (c->zone_prefix.count == 0)
		text[0] = '\0';
	if (strcmp(text, p->zones) != 0) {
		snprintf(p->zones, sizeof(p->zones), "%s", text);
		if (text[0] != '\0')
			RP_LOG(RP_LOG_REPL, RP_LOG_ERROR,
				"zone %s: peer_zones says %s: it counts as outside, and keys below "
				"zone_prefix do not go there; give all nodes of a zone the same "
				"peer_zones",
				c->zone, text);
	}
	return p->in_zone != was;
}

static void rules_use(struct rp_ctl *ctl)
{
	rp_control_policy_changed(ctl->control,
		rp_policy_limits_leaving(ctl->policy) ? rp_policy_ref(ctl->policy) : NULL);
}

void ctl_zones_look(struct rp_ctl *ctl)
{
	bool changed = false;

	for (uint32_t i = 0; i < RP_PEERS_MAX; i++)
		if (ctl->peers[i])
			changed |= ctl_zone_look(ctl->peers[i], ctl->conf);
	if (changed && rp_policy_has_zones(ctl->policy))
		rules_use(ctl);
}

void ctl_policy_use(struct rp_ctl *ctl, const struct rp_conf *c)
{
	struct rp_policy_config config = {
		.local = list_of(&c->local_prefix),
		.local_except = list_of(&c->local_prefix_except),
		.local_only = list_of(&c->local_only_prefix),
		.local_only_except = list_of(&c->local_only_prefix_except),
		.readonly = list_of(&c->readonly_prefix),
		.zone = list_of(&c->zone_prefix),
	};
	struct rp_policy *old = ctl->policy;

	ctl->policy = rp_policy_create(&config);
	RP_ASSERT(ctl->policy != NULL);
	rp_etcd_set_policy(ctl->etcd, ctl->policy);
	rp_policy_destroy(old);
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++)
		if (ctl->peers[i])
			ctl_zone_look(ctl->peers[i], c);
	rules_use(ctl);
}

/* The configuration's bound on policies is one of stack space as well. */
void ctl_queue_policies_use(struct rp_ctl *ctl, const struct rp_conf *c)
{
	struct rp_queue_policy policies[RP_ARRAY_SIZE(c->queues.policies)];

	for (unsigned i = 0; i < c->queues.policies_count; i++) {
		const struct rp_conf_policy *p = &c->queues.policies[i];

		policies[i] = (struct rp_queue_policy){
			.match = p->match,
			.dead_letter = p->dead_letter,
			.depth_max = p->depth_max,
			.bytes_max = p->bytes_max,
			.overflow = p->overflow == RP_CONF_OVERFLOW_DROP_OLDEST
					    ? RP_QUEUE_OVERFLOW_DROP_OLDEST
					    : RP_QUEUE_OVERFLOW_REJECT,
			.deliveries_max = p->deliveries_max,
			.ttl_ns = p->ttl_ms * RP_NS_PER_MS,
			.delay_ns = p->delay_ms * RP_NS_PER_MS,
			.dedup_ns = p->dedup_s * RP_NS_PER_S,
			.priority = p->priority,
			.fail_fast = p->fail_fast,
		};
	}
	rp_control_set_policies(ctl->control, policies, c->queues.policies_count);
}

/* Whose calls come before it was ever dialled has no label yet, and is outside. */
bool ctl_same_zone(void *ctx, uint64_t node)
{
	const struct rp_ctl *ctl = ctx;

	for (uint32_t i = 0; i < RP_PEERS_MAX; i++)
		if (ctl->peers[i] && ctl->peers[i]->node == node)
			return ctl->peers[i]->in_zone;
	return false;
}

bool ctl_eligible(void *ctx, uint64_t node, struct rp_span key)
{
	struct rp_ctl *ctl = ctx;
	const size_t own = sizeof(RP_CONTROL_PREFIX) - 1;

	/* Records of nodes are how they find each other, whatever a prefix says. */
	if (!ctl->policy || (key.length >= own && memcmp(key.data, RP_CONTROL_PREFIX, own) == 0))
		return true;
	return rp_policy_may_leave(
		ctl->policy, key, rp_policy_has_zones(ctl->policy) && ctl_same_zone(ctl, node));
}
