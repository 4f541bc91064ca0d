/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The end of leases: their owner revokes what is over, which replicates as deletes; the leases of a
 * node that is dead go to the lowest Online one, with their full TTL (spec/cluster.md).
 */

#include <base/log.h>
#include <engine/control_engine_priv.h>
#include <kv/lease.h>

/** Leases revoked or taken in one turn: others want the thread too. */
#define LEASE_BURST 64
#define ORPHANS_NS RP_NS_PER_S
#define STUCK_NS (500 * RP_NS_PER_MS)

static bool lease_apply(struct rp_control *c, enum rp_kv_system_type type, int64_t id)
{
	struct rp_kv_system_op op = {.type = type, .lease = id};
	struct rp_kv_txn txn = {.system = &op, .system_count = 1};
	struct rp_kv_writer writer = {.wall_us = c->now.wall_us, .now_ns = c->now.ns};
	struct rp_kv_result result = {0};
	bool done = rp_kv_apply(c->kv, &txn, &writer, &result) == RP_KV_OK;

	rp_kv_result_clear(&result);
	return done;
}

static uint64_t expire(struct rp_control *c)
{
	int64_t id;

	for (int i = 0; i < LEASE_BURST; i++) {
		if (!rp_kv_lease_expired(c->kv, c->now.ns, &id))
			return rp_kv_lease_next_ns(c->kv);
		/* A store that is marked corrupt takes no deletes. */
		if (!lease_apply(c, RP_KV_SYSTEM_REVOKE, id)) {
			c->counters.leases_stuck++;
			return c->now.ns + STUCK_NS;
		}
		c->counters.leases_expired++;
	}
	return c->now.ns;
}

static bool is_lowest_online(const struct rp_control *c)
{
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info info;

		if (rp_repl_peer_get(c->repl, i, &info) && !info.self &&
			info.state == RP_REPL_ONLINE && info.node < c->self.node)
			return false;
	}
	return true;
}

/* Since when the node has been away, by what earlier scans saw; 0 = it is there. */
static uint64_t lost_since(struct rp_control *c, uint64_t node)
{
	enum rp_repl_state state = rp_repl_state_of(c->repl, node);
	bool there = state == RP_REPL_ONLINE || state == RP_REPL_IN_PROGRESS;
	uint32_t i = 0;

	while (i < c->lost_count && c->lost[i].node != node)
		i++;
	if (there && i < c->lost_count)
		c->lost[i] = c->lost[--c->lost_count];
	if (there || i == RP_PEERS_MAX)
		return 0;
	if (i == c->lost_count)
		c->lost[c->lost_count++] =
			(struct control_lost){.node = node, .since_ns = RP_MAX(c->now.ns, 1u)};
	return c->lost[i].since_ns;
}

static bool orphaned(void *ctx, uint64_t owner)
{
	struct rp_control *c = ctx;
	uint64_t since_ns = lost_since(c, owner);

	return since_ns != 0 && c->now.ns - since_ns >= c->dead_after_ns;
}

static uint64_t adopt(struct rp_control *c)
{
	int64_t ids[LEASE_BURST];
	uint32_t n;

	if (rp_kv_lease_foreign(c->kv) == 0) {
		/* Who was lost long ago may have come and gone unseen since. */
		c->lost_count = 0;
		return RP_NEVER;
	}
	if (c->now.ns < c->orphans_at_ns || !rp_repl_ready(c->repl))
		return RP_MAX(c->orphans_at_ns, c->now.ns + RP_NS_PER_MS);
	n = rp_kv_lease_orphans(c->kv, orphaned, c, ids, LEASE_BURST);
	c->orphans_at_ns = c->now.ns + ORPHANS_NS;
	if (n == 0 || !is_lowest_online(c))
		return c->orphans_at_ns;
	for (uint32_t i = 0; i < n; i++)
		c->counters.leases_adopted += lease_apply(c, RP_KV_SYSTEM_TAKE, ids[i]);
	if (n < LEASE_BURST)
		return c->orphans_at_ns;
	c->orphans_at_ns = c->now.ns;
	return c->now.ns;
}

uint64_t control_leases_run(struct rp_control *c)
{
	uint64_t expire_ns, adopt_ns;

	rp_kv_set_now(c->kv, c->now.ns);
	expire_ns = expire(c);
	adopt_ns = adopt(c);
	return RP_MIN(expire_ns, adopt_ns);
}
