/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which keys may go where, and who may touch them (spec/cluster.md, Policy): a pure function of the
 * prefix lists of the configuration.
 *
 *   1. rp_policy_create() from the lists; a new object for each new configuration.
 *   2. rp_policy_check() for each key or range of a client's call.
 *   3. rp_policy_may_leave() for each key on its way to a peer, and from it.
 *
 * A prefix of queues means all spellings of its keys: /queue/ is /q/, `producer` is `p`, `consumer`
 * is `c`; and one that ends with a queue's name and '/' means the queue's own record as well.
 */

#include <stdbool.h>
#include <stddef.h>

#include <base/units.h>

struct rp_policy;

/** Borrowed for the call. */
struct rp_policy_list {
	const char *const *items;
	unsigned count;
};

struct rp_policy_config {
	struct rp_policy_list local, local_except;
	struct rp_policy_list local_only, local_only_except;
	struct rp_policy_list readonly;
	struct rp_policy_list zone;
};

enum rp_policy_verdict {
	RP_POLICY_ALLOWED,
	RP_POLICY_LOCAL_ONLY,
	RP_POLICY_READONLY,
};

/** NULL: no memory. */
struct rp_policy *rp_policy_create(const struct rp_policy_config *config);
/** One more owner of the same policy, each of which destroys it once; one thread for all of that.
 */
struct rp_policy *rp_policy_ref(struct rp_policy *p);
/** NULL is fine. */
void rp_policy_destroy(struct rp_policy *p);

/**
 * May a client read, or write, [key, end)? `end` as etcd has it: empty = one key, one zero byte =
 * every key from `key` on. A range is refused when any key in it would be. `loopback`: the caller
 * is on this host.
 */
enum rp_policy_verdict rp_policy_check(const struct rp_policy *p, bool write, struct rp_span key,
	struct rp_span end, bool loopback);
/** What a client is told; names the rule and not the key. "" when allowed. */
const char *rp_policy_text(enum rp_policy_verdict verdict);

/** May the key go to a peer? `same_zone`: the peer is known to be in the zone of this node. */
bool rp_policy_may_leave(const struct rp_policy *p, struct rp_span key, bool same_zone);
/**
 * Likewise all keys of a queue: its record, its messages, its consumers. Any thread may ask while
 * the policy has an owner.
 */
bool rp_policy_queue_may_leave(const struct rp_policy *p, struct rp_span name, bool same_zone);
/** Does rp_policy_check() ever refuse? */
bool rp_policy_limits_calls(const struct rp_policy *p);
/** Does rp_policy_may_leave() ever refuse? */
bool rp_policy_limits_leaving(const struct rp_policy *p);
/** Does any key depend on zones? */
bool rp_policy_has_zones(const struct rp_policy *p);
