/* SPDX-License-Identifier: Apache-2.0 */

/* Which keys leave for which peer: the prefix policy of the configuration, with the peers' zones.
 */

#include <string.h>

#include <base/assert.h>
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

bool ctl_in_zone(const struct rp_conf *c, const char *address)
{
	struct rp_conf_endpoint peer;
	const char *best = "";
	unsigned best_fit = 0;

	if (rp_conf_endpoint_parse(address, 2379, &peer) != 0)
		return false;
	for (unsigned i = 0; i < c->peer_zones.count; i++) {
		const char *zone;
		unsigned fit = label_fits(c->peer_zones.items[i], &peer, &zone);

		if (fit <= best_fit)
			continue;
		best_fit = fit;
		best = zone;
	}
	return best[0] != '\0' && strcmp(best, c->zone) == 0;
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
			ctl->peers[i]->in_zone = ctl_in_zone(c, ctl->peers[i]->address);
	rp_control_policy_changed(ctl->control,
		rp_policy_limits_leaving(ctl->policy) ? rp_policy_ref(ctl->policy) : NULL);
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
