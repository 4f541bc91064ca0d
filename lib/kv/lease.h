/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Leases (spec/etcd-semantics.md section 5). A lease is a hidden record of the store, so it
 * replicates as keys do; every live key that names it is attached to it, on every node.
 *
 *   1. Grant, revoke and take are a txn's `system` part (kv.h): they go the way of every write.
 *   2. Its owner is the node that granted or took it. Only the owner counts its time, with
 *      rp_kv_lease_keepalive() to start it anew, which writes nothing.
 *   3. rp_kv_lease_expired() names what is over; the caller revokes it by a txn, so that expiry
 *      replicates as deletes. rp_kv_lease_next_ns() says when to look.
 *   4. On another node a keepalive is answered by RP_KV_LEASE_ELSEWHERE: the owner is to be asked.
 * TAKE adopts the leases of a node that is dead.
 *
 * Keys whose lease is not known here (yet: the record may come behind them; or any more: they were
 * put on another node while it expired) count as a lease without a record. It is over after a
 * grace of 30 s.
 *
 * Costs: a lease about 150 bytes; grant, renewal and expiry log n.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>
#include <kv/kv.h>

#define RP_KV_LEASE_TTL_MAX_S 9000000000
/** A shorter TTL is raised to it (section 0). */
#define RP_KV_LEASE_TTL_MIN_S 2

struct rp_kv_lease {
	int64_t id, ttl_s;  /**< as granted */
	int64_t left_s;	    /**< whole seconds; of another node's lease: all of the TTL */
	uint64_t owner;	    /**< node */
	uint64_t expiry_ns; /**< RP_NEVER: another node counts */
	uint32_t key_count;
};

/** False: there is none, or its time is over. */
bool rp_kv_lease_get(const struct rp_kv *kv, int64_t id, uint64_t now_ns, struct rp_kv_lease *out);

enum rp_kv_lease_state {
	RP_KV_LEASE_NONE,      /**< unknown */
	RP_KV_LEASE_RENEWED,   /**< counts anew from now */
	RP_KV_LEASE_OVER,      /**< expired, and not revoked yet: not renewed */
	RP_KV_LEASE_ELSEWHERE, /**< another node owns it */
};
enum rp_kv_lease_state rp_kv_lease_keepalive(struct rp_kv *kv, int64_t id, uint64_t now_ns);

/** Calls `fn` with each attached key, in ascending order. The store must not change meanwhile. */
void rp_kv_lease_keys(
	const struct rp_kv *kv, int64_t id, void (*fn)(void *ctx, struct rp_span key), void *ctx);

/** Ids of all known leases, soonest expiry first, those of other nodes last; free() it. */
int64_t *rp_kv_lease_list(const struct rp_kv *kv, uint32_t *count);

/** One whose time is over, oldest first; false: none. */
bool rp_kv_lease_expired(const struct rp_kv *kv, uint64_t now_ns, int64_t *id);
/** When the next one expires; RP_NEVER. */
uint64_t rp_kv_lease_next_ns(const struct rp_kv *kv);

/**
 * A new id: positive, not in use, never given before (it holds the node and the hybrid clock, so
 * also not before a restart, nor by another node).
 */
int64_t rp_kv_lease_id_new(struct rp_kv *kv);

/** How many leases other nodes own. */
uint32_t rp_kv_lease_foreign(const struct rp_kv *kv);
/** Up to `max` leases of other nodes for which `orphaned` says that their owner is gone. */
uint32_t rp_kv_lease_orphans(const struct rp_kv *kv, bool (*orphaned)(void *ctx, uint64_t owner),
	void *ctx, int64_t *ids, uint32_t max);
